"""Descriptors that bubblewrap inherits: texts as sealed memory, and files and folders of this machine.

A folder is opened one component after the other and no link is followed, so what was judged under a path is what is
open, whatever somebody renames meanwhile. Bubblewrap mounts what the descriptor names and ends when it mounted another one.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from appliance.errors import BadInput


class Descriptors(contextlib.ExitStack):
    """Open descriptors for one start of bubblewrap; all are closed when it is left."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[int] = []

    def add(self, content: bytes | Path) -> int:
        """The number of a descriptor that yields these bytes, or of one of the file or folder at this path."""
        handle = sealed(content) if isinstance(content, bytes) else opened(content)
        self.callback(os.close, handle)
        self.numbers.append(handle)
        return handle

    def listed(self, words: Iterable[str | bytes | Path]) -> int:
        """A descriptor with these words for `--args`; bytes and paths among them become the numbers of their descriptors."""
        plain = [word if isinstance(word, str) else str(self.add(word)) for word in words]
        return self.add(os.fsencode("\0".join((*plain, ""))))


def sealed(content: bytes) -> int:
    """A descriptor that yields these bytes; whoever gets hold of it inside can neither change nor enlarge it."""
    handle = os.memfd_create("order", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    os.lseek(handle, 0, os.SEEK_SET)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    return handle


def opened(path: Path) -> int:
    """A descriptor of a file or folder that gives no access to its content; BadInput for a link, or for one on the way."""
    handle = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for name in path.parts[1:]:
            inner = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            os.close(handle)
            handle = inner
        if stat.S_ISLNK(os.fstat(handle).st_mode):
            raise NotADirectoryError
    except NotADirectoryError:
        os.close(handle)
        raise BadInput(f"{path} is a link or lies below one", hint="name the folder itself") from None
    except OSError as error:
        os.close(handle)
        what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be opened: {error.strerror}"
        raise BadInput(f"{path} {what}") from None
    return handle
