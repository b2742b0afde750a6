"""What runs in the sandbox for tools that touch files: one verb on one path, then it ends.

Never imported: its text is handed to the sandbox's own Python, so it needs the standard library and nothing else, and
whatever version of it the machine has. The order is JSON on standard input, the answer JSON on standard output. The core
has judged the path before; here it is looked at once more, because links may have changed meanwhile, and the sandbox's
mounts hold what both overlook. A file is replaced by a whole one or not at all. With the argument `begin` it becomes a
command instead, if the files that this names are still the ones that were approved.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it would cost as much as the rest
    from typing import Any, BinaryIO

    Values = dict[str, Any]

MAX_TEXT = 1_000_000  # characters of one answer
MAX_LISTED = 5_000
MAX_MATCHES = 1_000
MAX_LINE = 500  # characters of a line that grep shows
MAX_NAMED = 200  # files that a command names, and those that these name
MAX_WORDS = 5_000  # of one file that are looked at
MAX_SCRIPT_BYTES = 256 << 10  # of a file that may name others
MAX_HASHED_BYTES = 64 << 20  # larger ones are told apart by size and time
SUFFIXES = ("", ".py", ".sh", "/__main__.py", "/__init__.py")
USUAL = {  # files that a program reads without being told their names
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": ("package.json",),
    "cargo": ("Cargo.toml", "build.rs"),
    "pytest": ("conftest.py", "pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini"),
    "git": (".git/config",),
    "just": ("justfile",),
}
CHANGED = 125  # the exit code where a file is not the one that was approved
SNIFFED = 8192  # bytes that tell whether a file is text
UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # in a name: what would end its line or turn its letters


class Fault(Exception):
    """The error that the caller gets: a kind, and a message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class FilePlace:
    """A place in the sandbox, and how the caller calls it."""

    def __init__(self, order: Values) -> None:
        self.shown: str = order["shown"]
        self.tops = [os.path.realpath(top) for top in order["tops"]]
        self.real = self.held(order["path"])
        if self.real != order["path"]:  # the core has followed the links
            raise self.moved()

    def held(self, path: str) -> str:
        """The path with its links followed; it has to lie where the caller may go."""
        real = os.path.realpath(path)
        if not lies_in(real, self.tops):
            raise Fault("permission", "path is outside workspace: " + self.shown)
        return real

    def moved(self) -> Fault:
        """A link was put here since somebody judged the path: what it leads to may be what is never shown."""
        return Fault("permission", self.shown + " was changed meanwhile")

    def opened(self) -> BinaryIO:
        """The file to be read, by the path that was judged."""
        file = open(self.real, "rb")
        if not is_at(file.fileno(), self.real):
            file.close()
            raise self.moved()
        return file

    def name(self, real: str) -> str:
        """How something below it is called."""
        if real == self.real:
            return self.shown
        below = readable(os.path.relpath(real, self.real))
        return below if self.shown == "." else self.shown.rstrip("/") + "/" + below

    def require(self, wanted: str) -> int:
        """Its mode; it has to be there, and a file or a folder as wanted."""
        try:
            mode = os.stat(self.real).st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise Fault("not_found", self.shown + " does not exist") from None
        if wanted == "file" and stat.S_ISDIR(mode):
            raise Fault("bad_input", self.shown + " is a directory")
        if wanted == "file" and not stat.S_ISREG(mode):
            raise Fault("bad_input", self.shown + " is not a file")
        if wanted == "folder" and not stat.S_ISDIR(mode):
            raise Fault("bad_input", self.shown + " is not a directory")
        return mode


# -- the verbs -----------------------------------------------------------------------------------------


def read(path: FilePlace, order: Values) -> Values:
    """Lines of a file from `offset` on."""
    path.require("file")
    offset, limit = max(1, order.get("offset") or 1), order.get("limit")
    with path.opened() as file:
        head = file.read(SNIFFED)
        if b"\0" in head:
            raise Fault("bad_input", f"{path.shown} holds no text: {os.fstat(file.fileno()).st_size} bytes")
        file.seek(0)
        taken: list[str] = []
        size, is_cut, more = 0, False, False
        for number, line in enumerate(file, 1):
            if number < offset:
                continue
            if limit is not None and number >= offset + limit:
                more = True
                break
            text = line.decode("utf-8", "replace")
            if size + len(text) > MAX_TEXT:
                taken.append(text[: MAX_TEXT - size])
                is_cut = True
                break
            taken.append(text)
            size += len(text)
        size_bytes = os.fstat(file.fileno()).st_size
    text = "".join(taken)
    return {"text": text, "first": offset, "lines": len(taken), "has_more": more or is_cut, "size_bytes": size_bytes}


def hashed(path: FilePlace, order: Values) -> Values:
    """The SHA-256 of a file, "" for one that is not there yet: whether it is another one later."""
    if not os.path.isfile(path.real):
        return {"sha256": ""}
    digest = hashlib.sha256()
    with path.opened() as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return {"sha256": digest.hexdigest()}


def named(path: FilePlace, order: Values) -> Values:
    """The files that a command names by `words`, and those that these name in turn: their hash and size, and the text of a
    short one. A name is looked for from every folder that is named, and from that of the file which names it."""
    folders = [path.real]
    waiting = [(word, path.real, True) for word in order["words"]]
    for word in order["words"]:
        waiting += [(name, path.real, True) for name in USUAL.get(os.path.basename(word), ())]
        folder = os.path.realpath(os.path.join(path.real, word))
        if os.path.isdir(folder) and lies_in(folder, path.tops) and folder not in folders:
            folders.append(folder)
    found: dict[str, Values] = {}
    while waiting and len(found) < MAX_NAMED:
        word, beside, is_direct = waiting.pop(0)
        for real in meant(word, [*folders, beside], path.tops):
            shown = os.path.relpath(real, path.real) if lies_in(real, [path.real]) else real
            if shown not in found and len(found) < MAX_NAMED:
                found[shown], text = described_file(real)
                if is_direct:
                    found[shown]["text"] = text[:SNIFFED]
                words = dict.fromkeys(re.findall(r"[\w./+@~-]+", text))
                waiting += [(name, os.path.dirname(real), False) for name in list(words)[:MAX_WORDS]]
    return {"files": found}


def meant(word: str, folders: list[str], tops: list[str]) -> Iterator[str]:
    """The files that a word may mean, with links followed; none outside of what the caller is shown."""
    if not word or len(word) > 1000 or "\0" in word:
        return
    seen = set()
    for folder in dict.fromkeys(folders):
        whole = os.path.join(folder, word)
        names = glob.glob(whole) if glob.has_magic(word) else [whole + suffix for suffix in SUFFIXES]
        for name in names[:MAX_NAMED]:
            real = os.path.realpath(name)
            if real not in seen and lies_in(real, tops) and os.path.isfile(real):
                seen.add(real)
                yield real


def lies_in(real: str, tops: list[str]) -> bool:
    """Whether a path lies in one of these folders."""
    return any(real == top or real.startswith(top.rstrip("/") + "/") for top in tops)


def described_file(real: str) -> tuple[Values, str]:
    """What tells a file from another one, and its text, "" where it is none or long."""
    try:
        with open(real, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_size > MAX_HASHED_BYTES:
                return {"sha256": f"changed {info.st_mtime_ns}", "size_bytes": info.st_size}, ""
            data = file.read(MAX_HASHED_BYTES + 1)
    except OSError as error:
        return {"sha256": f"not read: {error.strerror}", "size_bytes": -1}, ""
    text = "" if len(data) > MAX_SCRIPT_BYTES or b"\0" in data else data.decode("utf-8", "replace")
    return {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}, text


def begin(order: Values) -> None:
    """Become the command, unless a file that it names is another one than was approved."""
    now = named(FilePlace(order), order)["files"]
    if differing := differences(order["approved"], {name: one["sha256"] for name, one in now.items()}):
        names = ", ".join(readable(name) for name in differing[:3])
        sys.stderr.write(f"not run: changed since it was approved: {names}\n")
        sys.exit(CHANGED)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and a command would inherit that
        signal.signal(number, signal.SIG_DFL)
    os.execv(order["argv"][0], order["argv"])


def differences(approved: dict[str, str], now: dict[str, str]) -> list[str]:
    """The files that are not what they were."""
    return sorted(name for name in {*approved, *now} if approved.get(name) != now.get(name))


def write(path: FilePlace, order: Values) -> Values:
    """The whole file, and the folders above it."""
    if os.path.isdir(path.real):
        raise Fault("bad_input", path.shown + " is a directory")
    data = order["content"].encode("utf-8", "surrogatepass")
    folder = os.path.dirname(path.real)
    is_new = not os.path.exists(path.real)
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Fault("bad_input", path.shown + " lies below a file") from None
    replace(path, data)
    return {"bytes": len(data), "is_new": is_new}


def edit(path: FilePlace, order: Values) -> Values:
    """Every place where the old text stands."""
    path.require("file")
    with path.opened() as file:
        data = file.read()
    old, new = (order[name].encode("utf-8", "surrogatepass") for name in ("old_text", "new_text"))
    count = data.count(old)
    if not count:
        raise Fault("conflict", f"old_text is not in {path.shown}; it was not changed")
    made = data.replace(old, new)
    replace(path, made)
    return {"count": count, "bytes": len(made)}


def listing(path: FilePlace, order: Values) -> Values:
    """The content of a folder: folders first, then the rest, by name."""
    path.require("folder")
    found = []
    with os.scandir(path.real) as entries:
        for entry in entries:
            found.append(described(entry))
    found.sort(key=lambda one: (one["type"] != "d", one["name"]))
    return {"entries": found[:MAX_LISTED], "total": len(found)}


def described(entry: os.DirEntry[str]) -> Values:
    """One line of a listing; a link that leads to a folder is one."""
    try:
        info = entry.stat(follow_symlinks=False)
        is_folder = entry.is_dir()
    except OSError:
        return {"name": readable(entry.name), "type": "f", "size_bytes": 0, "changed_s": 0, "target": ""}
    target = readable(os.readlink(entry.path)) if stat.S_ISLNK(info.st_mode) else ""
    kind, name = "d" if is_folder else "f", readable(entry.name)
    return {"name": name, "type": kind, "size_bytes": info.st_size, "changed_s": int(info.st_mtime), "target": target}


def grep(path: FilePlace, order: Values) -> Values:
    """Lines that match a regular expression, in a file or in every file of a folder and below."""
    try:
        pattern = re.compile(order["pattern"], re.IGNORECASE if order.get("ignore_case") else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise Fault("bad_input", f"{order['pattern']!r} is not a regular expression: {error}") from None
    is_folder = stat.S_ISDIR(path.require("any"))
    found: list[Values] = []
    looked = skipped = 0
    for name in walk(path.real) if is_folder else [path.real]:
        try:
            matches = matching(name, pattern, MAX_MATCHES + 1 - len(found))
        except OSError:
            matches = None  # what cannot be opened is left out
        if matches is None:
            skipped += 1
            continue
        looked += 1
        found += [{"path": path.name(name), "line": number, "text": text} for number, text in matches]
        if len(found) > MAX_MATCHES:
            break
    return {"matches": found[:MAX_MATCHES], "has_more": len(found) > MAX_MATCHES, "files": looked, "skipped": skipped}


def matching(name: str, pattern: re.Pattern[str], most: int) -> list[tuple[int, str]] | None:
    """Numbers and texts of the lines of a file that match; None for what is no text."""
    found: list[tuple[int, str]] = []
    if not stat.S_ISREG(os.stat(name).st_mode):
        return None
    with open(name, "rb") as file:
        if b"\0" in file.read(SNIFFED):
            return None
        file.seek(0)
        for number, line in enumerate(file, 1):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            match = pattern.search(text)
            if match:
                start = max(0, min(match.start() - MAX_LINE // 4, len(text) - MAX_LINE))
                found.append((number, text[start : start + MAX_LINE]))
                if len(found) >= most:
                    break
    return found


def find(path: FilePlace, order: Values) -> Values:
    """Names in a folder and below that a glob means; one with a slash means paths from there."""
    path.require("folder")
    pattern = order["pattern"]
    is_path = "/" in pattern
    wanted = re.compile(translated(pattern.lstrip("/")) if is_path else fnmatch.translate(pattern))
    found: list[str] = []
    total = 0
    for name in walk(path.real, has_folders=True):
        below = os.path.relpath(name, path.real)
        if wanted.match(below if is_path else os.path.basename(name)):
            total += 1
            if total <= MAX_LISTED:
                found.append(path.name(name) + ("/" if os.path.isdir(name) else ""))
    return {"paths": found, "total": total}


def walk(top: str, *, has_folders: bool = False) -> Iterator[str]:
    """Every file below a folder, by name; links are not followed."""
    waiting = [top]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                here = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        folders = []
        for entry in here:
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder:
                folders.append(entry.path)
            if has_folders or not (is_folder or entry.is_symlink()):
                yield entry.path
        waiting += reversed(folders)


def translated(pattern: str) -> str:
    """A glob over whole paths as a regular expression: ** for any folders, * within a name."""
    text, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            text, at = text + "(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            text, at = text + ".*", at + 2
        elif pattern[at] == "*":
            text, at = text + "[^/]*", at + 1
        elif pattern[at] == "?":
            text, at = text + "[^/]", at + 1
        else:
            text, at = text + re.escape(pattern[at]), at + 1
    return text + r"\Z"


def replace(path: FilePlace, data: bytes) -> None:
    """Put these bytes in the place of a file, at once: whoever reads meanwhile has the old ones or the new ones."""
    above, name = os.path.split(path.real)
    folder = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not is_at(folder, above):
            raise path.moved()
        put(folder, name, data)
    finally:
        os.close(folder)


def put(folder: int, name: str, data: bytes) -> None:
    """The same for a name in a folder that is open."""
    try:
        mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    temporary = ".owl-" + os.urandom(8).hex()
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise


def is_at(handle: int, path: str) -> bool:
    """Whether what is open was opened by this path and no link; somebody may have replaced it since."""
    return os.readlink(f"/proc/self/fd/{handle}") in (path, path + " (deleted)")


def readable(name: str) -> str:
    """A name on one line, as text that can be stored: what is none of it by its number."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


VERBS = {"read": read, "hash": hashed, "named": named, "write": write, "edit": edit, "list": listing, "grep": grep, "find": find}


def answer(order: Values) -> Values:
    """Execute an order; an error is an answer, too."""
    shown = str(order.get("shown", ""))
    try:
        return {"done": VERBS[order["verb"]](FilePlace(order), order)}
    except Fault as fault:
        return {"error": fault.kind, "message": fault.message}
    except PermissionError:
        return {"error": "permission", "message": shown + " may not be opened"}
    except (FileNotFoundError, NotADirectoryError):
        return {"error": "not_found", "message": shown + " does not exist"}
    except OSError as error:
        kind = "too_large" if error.errno in (27, 28, 122) else "failed"  # EFBIG, ENOSPC, EDQUOT
        kind = "bad_input" if error.errno == 36 else kind  # ENAMETOOLONG
        return {"error": kind, "message": f"{shown}: {error.strerror}"}
    except MemoryError:
        return {"error": "too_large", "message": shown + " is too large for this tool"}


if __name__ == "__main__" and len(sys.argv) > 1:
    begin(json.loads(sys.stdin.buffer.read()))
elif __name__ == "__main__":
    sys.stdout.buffer.write(json.dumps(answer(json.loads(sys.stdin.buffer.read()))).encode("ascii"))
