"""Files that are sent with a notification: read out of the folder of the session's tools, and out of nothing else.

A tool may have put anything there: no link is followed, only plain files are opened, and one that is too large is refused.
"""

import os
import stat
from pathlib import Path, PurePosixPath

from appliance.channels.contract import MAX_ATTACHMENT_BYTES
from appliance.errors import BadInput, NotFound, Refused, TooLarge

INSIDE = "/work/"
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
        raise Refused(f"attachment {path!r} is no plain file")
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
