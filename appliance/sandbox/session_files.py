"""Files that come and go with messages: read out of the folder of the session's tools, or written into it.

A tool may have put anything there: no link is followed, only plain files are opened, and one that is too large is refused.
"""

import os
import stat
from pathlib import Path, PurePosixPath

from appliance.errors import BadInput, NotFound, Refused, TooLarge
from appliance.runtime import paths

INSIDE = "/work/"
MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_attachment(folder: Path, path: str) -> tuple[str, bytes]:
    """Name and bytes of a file, named as tools see it (`/work/plan.pdf`) or from the folder; it must be a plain file in there."""
    parts = PurePosixPath(path.removeprefix(INSIDE)).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise BadInput(f"attachment {path!r}", hint="name a file of this conversation, such as /work/plan.pdf")
    try:
        place = os.open(folder, FLAGS | os.O_DIRECTORY)
        for part in parts[:-1]:
            place = _step_into(place, part, FLAGS | os.O_DIRECTORY)
        file = _step_into(place, parts[-1], FLAGS)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise Refused(f"attachment {path!r}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Refused(f"attachment {path!r} is not a plain file")
    with open(file, "rb") as stream:
        data = stream.read(MAX_ATTACHMENT_BYTES + 1)
    if len(data) > MAX_ATTACHMENT_BYTES:
        raise TooLarge(f"attachment {path!r} has more than {MAX_ATTACHMENT_BYTES} bytes")
    return parts[-1], data


def _step_into(place: int, name: str, flags: int) -> int:
    """Open a name in an open folder, and close that."""
    try:
        return os.open(name, flags, dir_fd=place)
    finally:
        os.close(place)


def write_inside(folder: Path, name: str, data: bytes, part: str) -> None:
    """Write a file of a folder that tools may have changed: nothing is followed out of it. `part` is no other writer's name."""
    folder.parent.mkdir(mode=0o770, parents=True, exist_ok=True)
    top = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            os.mkdir(folder.name, 0o770, dir_fd=top)
        except FileExistsError:
            pass
        inner = os.open(folder.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    finally:
        os.close(top)
    try:
        try:
            os.unlink(part, dir_fd=inner)
        except FileNotFoundError:
            pass
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640, dir_fd=inner)
        with paths.naming(folder / name), open(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, name, src_dir_fd=inner, dst_dir_fd=inner)
    finally:
        os.close(inner)
