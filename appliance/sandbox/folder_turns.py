"""Which calls use which folders of this machine now, over all processes of one home; some calls wait for each other.

What is hidden in a folder is found by its name before a call and mounted over by its name. A command that may write there at
that moment could rename it in between: the next call would see what is hidden, or bubblewrap would make its mount point behind
a link. The same goes for files that a person approved: their hashes are compared before the command reads them. So a call that
hides something, or whose files were approved, does not begin while a command writes to the same folder, and no command that
writes begins while such a call runs. Other calls share their folders. One locked file a call, which the kernel unlocks when its
process ends, however it ends. Not promised: anything about programs that no call of ours started.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from appliance.clock import monotonic_s, new_id
from appliance.errors import Busy, Cancelled
from appliance.records import Cancel, to_plain
from appliance.sandbox.slots import LOOK_S

GATE = "gate"  # the file whose lock is held while the others are looked at
Found = TypeVar("Found")


class FolderUse(Struct, frozen=True):
    """The folders that a call is shown, those of them that its command may write to, and whether something in them must stay
    as it was found: because it is hidden, or because it was approved."""

    tops: tuple[str, ...]
    written: tuple[str, ...] = ()
    is_strict: bool = False

    def conflicts(self, other: "FolderUse") -> bool:
        """Whether one of the two could change what must stay for the other. Two that only read never do."""
        if not (self.is_strict or other.is_strict):
            return False
        return _folders_overlap(other.written, self.tops) or _folders_overlap(self.written, other.tops)


class FolderTurns:
    """The calls that use folders of this machine; without a folder for its files it knows those of this process alone."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @contextmanager
    def take(
        self,
        tops: Sequence[str],
        written: Sequence[str],
        scan: Callable[[], tuple[Found, ...]],
        *,
        cancel: Cancel,
        wait_s: float,
        is_strict: bool = False,
    ) -> Iterator[tuple[Found, ...]]:
        """Use folders for a while: what `scan` found hidden in them when nobody could rename it.

        Busy when a call that is in the way has not ended after `wait_s`, Cancelled when `cancel` is set before.
        """
        if self._folder is None or not tops:
            yield scan()
            return
        end_s = monotonic_s() + wait_s
        while (begun := self._try_begin(FolderUse(tuple(tops), tuple(written), is_strict), scan)) is None:
            if cancel.wait(LOOK_S):
                raise Cancelled("cancelled while it waited for another command")
            if monotonic_s() >= end_s:
                raise Busy(
                    f"another command works in {', '.join(tops)}, where something is hidden or was approved",
                    hint="try again when it has ended, or list folders without secrets in them",
                )
        found, path, handle = begun
        try:
            yield found
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)

    def _try_begin(self, wanted: FolderUse, scan: Callable[[], tuple[Found, ...]]) -> tuple[tuple[Found, ...], Path, int] | None:
        """What is hidden, and the locked file that says so; None while another call is in the way."""
        assert self._folder is not None
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock_file(self._folder / GATE):
            others = list(self._read_others())
            if any(wanted.conflicts(other) for other in others):
                return None  # without looking: what a running command renames may not be found at all
            found = scan()
            use = FolderUse(wanted.tops, wanted.written, wanted.is_strict or bool(found))
            if any(use.conflicts(other) for other in others):
                return None
            path = self._folder / new_id()
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.write(handle, json.dumps(to_plain(use)).encode())
            return found, path, handle

    def _read_others(self) -> Iterator[FolderUse]:
        """What the calls that run said of themselves; files of those whose process has ended are removed."""
        assert self._folder is not None
        for path in self._folder.iterdir():
            if path.name == GATE:
                continue
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    said = json.loads(file.read())
                    yield FolderUse(tuple(said["tops"]), tuple(said["written"]), said["is_strict"])
                else:
                    path.unlink()


@contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _folders_overlap(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a folder of the one list is, holds or lies in one of the other."""
    return any(os.path.commonpath((one, other)) in (one, other) for one in some for other in others)
