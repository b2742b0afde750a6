"""Requests that programs of this box leave as files, also while no core runs: each is done exactly once.

`drop/users/NAME/` and `drop/groups/ID/` in the home hold one JSON object a file; the folder says on whose behalf,
whatever the file claims. What a file asks for is recorded durably with a key of the file, then the file goes. One
that cannot be taken is put into `bad/` beside it, with the reason in `NAME.why`. Links, pipes, folders and files of
another owner are never read. A writer gives its file another name first (beginning with a dot, say) and renames it
when it is whole. Owns these folders, no table. Not promised: the order of requests of different folders.
"""

import hashlib
import json
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from appliance.clock import now_ms
from appliance.errors import BadInput, Busy, Conflict, NotFound, OwlError, Refused, TooLarge
from appliance.ingest.watcher import is_ignored
from appliance.records import Event
from appliance.runtime.crash_points import CrashPoint, Passed, nobody
from appliance.runtime.signatures import Range, signature
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.work.tasks import NewTask, TaskRows

LOG = logging.getLogger(__name__)
MAX_BYTES = 1_000_000
KEEP_BAD = 100  # files in a folder's bad/, the newest
YOUNG_MS = 2000  # one that makes no sense may still be written to for so long
BAD = "bad"
CLAIMED = ".taking-"
MARK = ("agent", "a file in drop/")  # of what another program says, which nobody typed
WRONG = (BadInput, Conflict, NotFound, Refused, TooLarge)  # it will not be right later either
FOLDERS = {"users": "user", "groups": "group"}

Status = Annotated[int, Range(200, 599)]


class Drops:
    """Takes requests out of the folders below `root`. Only the core does, one at a time."""

    def __init__(self, root: Path, store: Store, runs: Runs, outbox: Outbox, tasks: TaskRows, *, passed: Passed = nobody) -> None:
        self.root = root
        self._store = store
        self._runs = runs
        self._outbox = outbox
        self._tasks = tasks
        self._passed = passed
        self._guard = threading.Lock()
        self._kinds: dict[str, Callable[..., None]] = {"message": self.message, "task": self.task, "result": self.result}

    def prepare(self) -> None:
        """Make the folders that are missing; where that cannot be, nothing is dropped either."""
        for name in FOLDERS:
            try:
                self.root.mkdir(mode=0o700, exist_ok=True)
                (self.root / name).mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                LOG.error("no requests are taken from files, %s cannot be made: %s", self.root / name, error)

    def take_files(self) -> int:
        """Do what every file asks for; how many were done. What the queue or the disk has no room for stays, and is raised."""
        count, later = 0, None
        with self._guard:
            for context, folder in self._context_folders():
                try:
                    with _open_folder(folder) as handle:
                        for name in _waiting_files(handle):
                            try:
                                count += self._take_file(context, folder, handle, name)
                            except OwlError as error:
                                later = later or error
                            except OSError as error:
                                LOG.warning("%s cannot be taken: %s", folder / name, error)
                except OSError as error:
                    LOG.warning("%s was passed over: %s", folder, error)
        if later is not None:
            raise later
        return count

    def _context_folders(self) -> Iterator[tuple[str, Path]]:
        """The folders by the context they stand for; a link is none."""
        for name, kind in FOLDERS.items():
            parent = self.root / name
            try:
                found = [] if parent.is_symlink() or not parent.is_dir() else sorted(parent.iterdir())
                folders = [one for one in found if not is_ignored(one.name) and one.is_dir() and not one.is_symlink()]
            except OSError as error:
                LOG.error("no requests are taken from %s: %s", parent, error.strerror)
                continue
            yield from ((f"{kind}:{folder.name}", folder) for folder in folders)

    # -- one file -----------------------------------------------------------------------------------

    def _take_file(self, context: str, folder: Path, handle: int, name: str) -> bool:
        """Do what a file asks for, then remove it; False when it was put into bad/, or another of its name is not done yet."""
        # First under a name of ours, so that what is removed is what was read, whatever is put there meanwhile.
        claimed = name if name.startswith(CLAIMED) else _claimed_name(name)
        if claimed != name:
            if _file_exists(claimed, handle):
                return False
            os.rename(name, claimed, src_dir_fd=handle, dst_dir_fd=handle)
        plain = claimed.removeprefix(CLAIMED)
        try:
            raw, mtime_ns = _read_file(claimed, handle, self.root.stat().st_uid)
            request = _parse_request(raw, mtime_ns // 1_000_000)
            mark = hashlib.sha256(b"%s\0%d\0" % (os.fsencode(plain), mtime_ns) + raw).hexdigest()[:32]
            self._perform_request(context, request, mark)
        except WRONG as error:
            self._refuse_file(folder, handle, claimed, error)
            return False
        self._passed(CrashPoint.DROP_TAKEN)
        os.unlink(claimed, dir_fd=handle)
        self._passed(CrashPoint.DROP_REMOVED)
        LOG.info("took a %s of %s", request["kind"], context, extra={"file": plain})
        return True

    def _perform_request(self, context: str, request: dict[str, Any], mark: str) -> None:
        given = dict(request)
        kind, claim, own = given.pop("kind", None), given.pop("context", context), given.pop("id", "")
        if not isinstance(kind, str) or kind not in self._kinds:
            raise BadInput(f"unknown kind {kind!r}", hint=f"use {', '.join(self._kinds)}")
        if claim != context:
            raise Refused(f"a file in the folder of {context} cannot speak for {claim!r}", hint="put it into that one's folder")
        if not isinstance(own, str) or len(own) > 200:
            raise BadInput("id is not a text of at most 200 characters")
        act = self._kinds[kind]
        bound = signature(act).bind(given)
        with self._store.write(durable=True):
            act(**bound, context=context, key=f"drop:{context}:{f'id:{own}' if own else mark}")

    def _refuse_file(self, folder: Path, handle: int, name: str, error: OwlError) -> None:
        """Move a file into bad/ and write the reason beside it."""
        plain = name.removeprefix(CLAIMED)
        LOG.warning("refused %s: %s", folder / plain, error)
        try:
            os.mkdir(BAD, 0o700, dir_fd=handle)
        except FileExistsError:
            pass
        with _open_folder(folder / BAD) as bad:
            free = next(n for n in (plain, *(f"{plain}.{i}" for i in range(1, 10_000))) if not _file_exists(n, bad))
            os.rename(name, free, src_dir_fd=handle, dst_dir_fd=bad)
            why = os.open(f"{free}.why", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=bad)
            with open(why, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{error}\n")
            _prune_refused(bad)

    # -- what a file may ask for --------------------------------------------------------------------

    def message(
        self,
        text: str,
        channel: str = "",
        session: str = "",
        run: str = "",
        metadata: dict[str, Any] | None = None,
        *,
        context: str,
        key: str,
    ) -> None:
        """Tell the people of this context something."""
        self._outbox.require_room()
        self._require_own(context, session, run)
        person = context.removeprefix("user:")
        notification = Notification(
            key, person, text, context, session, channel, run or None, metadata=metadata or {}, marks=(MARK,)
        )
        self._outbox.put(notification)

    def task(
        self,
        name: str,
        description: str = "",
        priority: Literal["low", "medium", "high"] = "medium",
        blocked_by: Sequence[int] = (),
        context_ids: Sequence[str] = (),
        deadline_ms: int | None = None,
        session: str = "",
        run: str = "",
        *,
        context: str,
        key: str,
    ) -> None:
        """Have something done for this context."""
        self._require_own(context, session, run)
        person = context.removeprefix("user:")
        self._tasks.add(
            NewTask(
                name,
                description,
                priority,
                blocked_by,
                context_ids,
                deadline_ms,
                person=person,
                session=session,
                origin=run or None,
                key=key,
            )
        )

    def result(self, run: str, call_id: str, content: str, status: Status = 200, *, context: str, key: str) -> None:
        """What a tool call came to whose caller is gone; nothing when the call has its result, or is being waited for."""
        self._require_own(context, "", run)
        call: Event | None = None
        for event in self._runs.events(run, roles=("assistant", "tool")):
            if event.call_id == call_id and event.kind in ("tool_use", "tool_result"):
                call = event if event.kind == "tool_use" else None
        if call is None or self._runs.is_answering(run):
            LOG.warning("nobody waits for the result of call %s in thread %s", call_id, run)
            return
        self._runs.append(
            Event(
                run=run,
                kind="tool_result",
                role="tool",
                content=content,
                turn=call.turn,
                tool=call.tool,
                call_id=call_id,
                status=status,
                outcome="ok" if status < 400 else "failed",
                correlation=call.correlation,
                input={"origin": MARK[0], "source": MARK[1]},
            )
        )

    def _require_own(self, context: str, session: str, run: str) -> None:
        """Refused for a session or thread of somebody else, and for one that is not there: who asks learns no difference."""
        if session and not self._outbox.addresses(context, session=session):
            raise Refused(f"{context} has no session {session}")
        if run and not self._outbox.thread(Notification("", "", "", context, run=run)):
            raise Refused(f"{context} has no thread {run}")


def _claimed_name(name: str) -> str:
    """A name of ours for a file while it is being taken; short enough for any name."""
    claimed = CLAIMED + name
    return claimed if len(os.fsencode(claimed)) <= 240 else CLAIMED + hashlib.sha256(os.fsencode(name)).hexdigest()


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    """A folder itself, not one that a link leads to, for as long as its files are worked on."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _waiting_files(handle: int) -> list[str]:
    """What lies in a folder to be taken: what was begun before, then the oldest first."""
    found = []
    with os.scandir(handle) as items:
        for item in items:
            if item.name != BAD and (item.name.startswith(CLAIMED) or not is_ignored(item.name)):
                try:
                    found.append((not item.name.startswith(CLAIMED), item.stat(follow_symlinks=False).st_mtime_ns, item.name))
                except FileNotFoundError:
                    continue
    return [name for _, _, name in sorted(found)]


def _read_file(name: str, handle: int, owner: int) -> tuple[bytes, int]:
    """A plain file of the home's owner, whole, and when it was written."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    except OSError as error:
        raise BadInput(f"not a plain file that can be read: {error.strerror}") from None
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            raise BadInput("not a plain file")
        if info.st_nlink != 1:
            raise BadInput("the file has more than one name")
        if info.st_uid != owner:
            raise Refused(f"the file belongs to user {info.st_uid}, the home to user {owner}")
        if info.st_size > MAX_BYTES:
            raise TooLarge(f"{info.st_size} bytes, the limit is {MAX_BYTES}")
        with open(file, "rb", closefd=False) as opened:
            return opened.read(MAX_BYTES + 1), info.st_mtime_ns
    finally:
        os.close(file)


def _parse_request(raw: bytes, at_ms: int) -> dict[str, Any]:
    """The object in a file; Busy while one that holds none is so young that it may still be written to."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        if 0 <= now_ms() - at_ms < YOUNG_MS:
            raise Busy(f"a file is being written: {error}") from None
        raise BadInput(f"not JSON: {error}", hint="give it another name until it is whole") from None
    if not isinstance(found, dict):
        raise BadInput("not a JSON object")
    return found


def _file_exists(name: str, handle: int) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _prune_refused(bad: int) -> None:
    """Keep the newest files only: a program that writes nonsense all day must not fill the disk."""
    with os.scandir(bad) as items:
        files = sorted((item.stat(follow_symlinks=False).st_ctime_ns, item.name) for item in items if item.name.endswith(".why"))
    for _, name in files[:-KEEP_BAD]:
        for one in (name, name.removesuffix(".why")):
            try:
                os.unlink(one, dir_fd=bad)
            except (FileNotFoundError, IsADirectoryError, PermissionError):
                pass
