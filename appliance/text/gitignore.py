"""Which files of a folder git would ignore, by the `.gitignore` files on the way to each of them.

Owns reading those files and asking them; the patterns themselves are `pathspec`'s. The deepest file that
says something about a path decides. A pattern that fits a folder says nothing about what is in it: whoever walks
does not enter a folder that is ignored, and that is all git means by it. Not read: the person's global ignore file.
"""

import os
import re
import stat
from typing import TYPE_CHECKING

from msgspec import Struct

# Imported where a file of patterns is read: 8 ms that a start without a walk over files does not need.
if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NAME = ".gitignore"
EXCLUDES = ".git/info/exclude"
MAX_BYTES = 256 * 1024  # of one file of patterns; a longer one is not what it says it is
MAX_PATTERN = 1000
FOLDER = "ps_d"  # the group in which pathspec's expressions hold the slash after a folder
EVERY_FOLDER = f"(?P<{FOLDER}>/)"  # its expression for `*/`
CLASSES = {"alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "xdigit": "0-9a-fA-F"}
CLASS = re.compile(r"\[:([a-z]+):\]")  # pathspec takes it for letters
BELOW = re.compile(r"/\*\*/ *$")  # every folder in a folder, at any depth; pathspec takes it for the folder itself
BYTES = {byte: 0xE000 + byte for byte in range(0x80, 0x100)}  # no letters and no white space, whatever the byte


class Ignores(Struct, frozen=True):
    """What is ignored in a folder and below, as far as it and the folders above say."""

    folder: str
    spec: "GitIgnoreSpec | None" = None
    above: "Ignores | None" = None

    def enter(self, folder: str) -> "Ignores":
        """The same for a folder below, with what its own file says; this very one when it has none.

        In a repository of its own, what the one around it says does not count.
        """
        found = (
            Ignores(folder, _read_patterns(os.path.join(folder, EXCLUDES)))
            if _is_repository(folder) and folder != self.folder
            else self
        )
        spec = _read_patterns(os.path.join(folder, NAME))
        return found if spec is None else Ignores(folder, spec, found)

    def is_ignored(self, path: str, is_folder: bool) -> bool:
        """Whether git would leave this path out, when the folders on the way to it are not left out."""
        scope: Ignores | None = self
        while scope is not None:
            if scope.spec is not None and path.startswith(f"{scope.folder.rstrip('/')}/"):
                inside = path[len(scope.folder.rstrip("/")) + 1 :]
                verdict = _match_path(scope.spec, _by_bytes(os.fsencode(f"{inside}/" if is_folder else inside)))
                if verdict is not None:
                    return verdict
            scope = scope.above
        return False


def around(folder: str) -> Ignores:
    """What the repository that an absolute folder lies in says about it; outside of one, only its own file counts.

    A folder that is itself ignored was named on purpose: what its repository says does not count then.
    """
    top = _find_repository(folder)
    if not top:
        return Ignores(folder).enter(folder)
    found = Ignores(top, _read_patterns(os.path.join(top, EXCLUDES)))
    if top != folder:
        steps = [top]
        for name in os.path.relpath(folder, top).split("/"):
            found = found.enter(steps[-1])
            steps.append(os.path.join(steps[-1], name))
            if found.is_ignored(steps[-1], True):
                found = Ignores(folder)
                break
    return found.enter(folder)


def _match_path(spec: "GitIgnoreSpec", path: str) -> bool | None:
    """What the last pattern that fits a path says of it; a folder's path ends in a slash."""
    for pattern in reversed(spec.patterns):
        found = None if pattern.regex is None else pattern.regex.search(path)
        if found is not None and _is_whole(found, path):
            return pattern.include
    return None


def _is_whole(found: re.Match[str], path: str) -> bool:
    """Whether what was found is the path itself, not a folder on the way to it."""
    is_folder = path.endswith("/")
    if found.re.pattern == EVERY_FOLDER:
        return is_folder
    if FOLDER in found.re.groupindex and found[FOLDER]:
        return found.end(FOLDER) == len(path)
    return not (is_folder and found.end() == len(path))  # `a/**` is what is in the folder, without the folder


def _find_repository(folder: str) -> str:
    """The folder with `.git` in it that is nearest above or here, "" for none."""
    while True:
        if _is_repository(folder):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def _is_repository(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def _read_patterns(path: str) -> "GitIgnoreSpec | None":
    """The patterns in a file; None when it is no plain file that can be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
                return None
            text = _by_bytes(file.read(MAX_BYTES).removeprefix(b"\xef\xbb\xbf"))
    except OSError:
        return None
    from pathspec import GitIgnoreSpec

    lines = (CLASS.sub(lambda found: CLASSES.get(found[1], found[0]), line) for line in text.replace("\r\n", "\n").split("\n"))
    lines = (BELOW.sub("/**/*/", line) for line in lines)
    known = [line for line in lines if len(line) <= MAX_PATTERN and _is_pattern(line)]
    return GitIgnoreSpec.from_lines(known) if known else None


def _by_bytes(data: bytes) -> str:
    """A character for each byte: to git `?` is one byte, and a letter outside of ASCII is several."""
    return data.decode("latin-1").translate(BYTES)


def _is_pattern(line: str) -> bool:
    """False for a comment, a blank line, and what git itself takes no notice of."""
    if not line.strip() or line.startswith("#"):
        return False
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([line])
    except ValueError:
        return False
    return True
