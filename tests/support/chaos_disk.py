"""The small disk of `chaos.py`: it runs full, takes no writes for a while, and loses in a power cut what was not flushed.

As root it is ext4 on a disk that remembers its writes (`recorded_disk`), served by a process of its own, because who serves a
disk must not map files of it, and chaos opens the database. That process does not see the file system, either: killed as the last
that does, it would have to unmount it, and wait for itself. Elsewhere it is a tmpfs, which loses nothing: `can_lose` says so.
"""

import errno
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE_MB = 128  # ten minutes write some 50 MB: database and log, four backups, logs
LEAST_BYTES = 4096
LIMIT_S = 20.0


class SmallDisk:
    """A tmpfs; and what every disk here can do."""

    can_lose = False

    def __init__(self, path: Path) -> None:
        """`path` is an empty folder, in a mount namespace of ours."""
        self.path = path
        self._ballast = path / "ballast"
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,mode=0700", "small", str(self.path))

    def remount(self, mode: str) -> bool:
        """Take writes again, or none; False while something is open for writing."""
        return subprocess.run(["mount", "-o", f"remount,{mode}", str(self.path)], capture_output=True).returncode == 0

    def fill(self) -> None:
        """Leave no room, until `empty`."""
        with self._ballast.open("wb") as file:
            at, size = 0, SIZE_MB << 20
            while size >= LEAST_BYTES:
                try:
                    os.posix_fallocate(file.fileno(), at, size)
                    at += size
                except OSError:
                    size //= 2

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def cut(self, seed: int) -> bool:
        """The power fails, and comes back; False while something is open."""
        raise NotImplementedError

    def close(self) -> None:
        """Unmount it, whatever is on it."""
        subprocess.run(["umount", "-l", str(self.path)], capture_output=True)


class LosingDisk(SmallDisk):
    """ext4 on a recorded disk."""

    can_lose = True
    options: tuple[str, ...] = ()  # of mkfs.ext4

    def _mount(self) -> None:
        self._served = Path(tempfile.mkdtemp(prefix="served-"))
        self._server = subprocess.Popen(
            [sys.executable, __file__, str(self._served), *self.options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self._attach(self._ask(""))
        except (OSError, subprocess.CalledProcessError):
            self.close()
            raise

    def cut(self, seed: int) -> bool:
        self._ask("cut")  # what is written from here on was not written
        if subprocess.run(["umount", str(self.path)], capture_output=True).returncode:
            self._ask("go on")
            return False
        self._attach(self._ask(f"lose {seed}"))
        return True

    def fail(self) -> None:
        """Give an error for whatever is read, written or flushed from now on; the file system may write no more after one."""
        self._ask("fail")

    def mend(self) -> None:
        """Give no more errors: what was not written is lost, as in a power cut."""
        self._ask("mend")
        _run("umount", str(self.path))
        self._attach(self._ask("again"))

    def close(self) -> None:
        super().close()
        self._server.communicate(timeout=LIMIT_S)  # the end of its input ends it
        self._served.rmdir()

    def _attach(self, device: str) -> None:
        try:
            _run("mount", "-o", "noatime,commit=5", device, str(self.path))
        finally:
            _run("losetup", "-d", device)  # once it is unmounted

    def _ask(self, words: str) -> str:
        assert self._server.stdin is not None and self._server.stdout is not None
        if words:
            self._server.stdin.write(words + "\n")
            self._server.stdin.flush()
        if not (told := self._server.stdout.readline()):
            raise OSError(f"the recorded disk has ended: {words}")
        return told.strip()


class FailingDisk(LosingDisk):
    """One that goes on taking writes when it fails, because it has no journal: what is flushed gives an error each time."""

    options = ("-O", "^has_journal")


def small_disk(path: Path) -> SmallDisk:
    """The best that can be had here."""
    try:
        return LosingDisk(path)
    except (OSError, subprocess.CalledProcessError):
        return SmallDisk(path)


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def _serve(place: Path, options: list[str]) -> None:
    """Serve a disk until standard input ends; each line is answered when it is done, with a new loop device by its name."""
    from recorded_disk import FSYNC, NAME, READ, WRITE, RecordedDisk, hide_mounts

    class Disk(RecordedDisk):
        is_failing = False

        def _answer(self, operation: int, node: int, body: bytes) -> tuple[int, bytes]:
            is_refused = self.is_failing and operation in (READ, WRITE, FSYNC)
            return (errno.EIO, b"") if is_refused else super()._answer(operation, node, body)

    hide_mounts()
    file = place / NAME.decode()
    with tempfile.NamedTemporaryFile() as image:
        image.truncate(SIZE_MB << 20)
        _run("mkfs.ext4", "-q", "-F", *options, image.name)
        disk = Disk(place, Path(image.name).read_bytes())
    print(_run("losetup", "--find", "--show", str(file)), flush=True)
    moment = 0
    for line in sys.stdin:
        what, _, seed = line.strip().partition(" ")
        told = "done"
        if what == "cut":
            moment = len(disk.log)
        elif what == "lose":
            content = disk.crash(moment, random.Random(int(seed)))
            disk.close()
            disk = Disk(place, content)
        elif what in ("fail", "mend"):
            disk.is_failing = what == "fail"
        if what in ("lose", "again"):
            told = _run("losetup", "--find", "--show", str(file))
        print(told, flush=True)
    disk.close()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2:])
