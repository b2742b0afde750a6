"""Files of a disk as what an entry could hold: which ones a path means, and each of them read safely.

Owns walking folders and opening files, as the user of this process and nobody else. Links are never followed,
wherever they stand; pipes, devices and sockets are never opened; nothing is read beyond a limit. What is left
out of a folder: hidden files, what git ignores, keys and passwords as far as a name or the first line tells, and
the assistant's own home (a descriptor of its database that is closed would drop the locks of the whole process). Also
owns the facts that go between whoever reads and whoever keeps. Knows nothing about the database.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import BadInput, NotFound, Refused, TooLarge
from appliance.ingest import extract, extract_process, watcher
from appliance.ingest.extract import FileReading
from appliance.ingest.watcher import HEAD_BYTES, mark_of
from appliance.knowledge.contents import MAX_BLOB_BYTES, MAX_CHARACTERS, digest
from appliance.secrets import sensitive_files
from appliance.store import disk_faults
from appliance.text import gitignore
from appliance.text.references import parse_ref

DISK = "disk://"
MAX_FILES = 200_000  # of one command
RACY_MS = 100  # a file that changed so lately may change again without a new time
NEVER = frozenset((".git", ".hg", ".svn", ".jj"))  # folders of version control: not even with hidden files
KERNEL = ("/proc", "/sys", "/dev")  # what is there is made while it is read, and reading some of it does something
OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class ItemToRead(Struct, frozen=True):
    """Something to be kept under a stored path: a file, or a page by its URL; `problem` says why it cannot be."""

    ref: str
    file: str = ""
    url: str = ""
    size_bytes: int = 0
    mark: str = ""
    problem: str = ""


class KnownFile(Struct, frozen=True):
    """What is kept under a stored path: its hash now and when it was read (`kept_hash`, "" when it never was), and from where."""

    ref: str
    hash: str
    kept_hash: str = ""
    sha256: str = ""
    mark: str = ""
    reader: str = ""
    file: str = ""
    source_url: str = ""
    uid: int = -1
    is_copy: bool = True  # of something elsewhere, as everything on its drive

    @property
    def is_as_read(self) -> bool:
        """Whether it was read from somewhere and nobody has written to it since."""
        return self.hash == self.kept_hash != ""


class ReadItem(Struct, frozen=True):
    """What is to be kept: a text with perhaps the bytes it was read from, or bytes alone."""

    ref: str
    body: str | None
    blob: bytes | None
    original: bytes | None = None
    title: str = ""
    description: str = ""
    mime: str = ""
    source_url: str = ""
    file: str = ""
    mark: str = ""
    sha256: str = ""
    reader: str = ""
    note: str = ""

    @property
    def size_bytes(self) -> int:
        """About how much there is to be kept."""
        return len(self.body or "") + len(self.blob or b"") + len(self.original or b"")


class Kept(Struct, frozen=True):
    """The outcome of an item: added, updated, unchanged or error, and a word about it; `chunks` are found by search."""

    ref: str
    status: str
    message: str = ""
    chunks: int = 0


class Chosen(Struct, frozen=True):
    """A page of the items that a reference means; `folder` is what a tree is shown of, `next_after` "" at the end."""

    items: tuple[KnownFile, ...]
    next_after: str = ""
    folder: str = ""


class ItemStore(Protocol):
    """Where items are kept: the database in this process, or a core behind a socket."""

    def find_known(self, refs: Sequence[str]) -> dict[str, KnownFile]: ...
    def select_items(self, ref: str, after: str = "") -> Chosen: ...
    def store_items(self, items: Sequence[ReadItem]) -> list[Kept]: ...
    def tree(self, folder: str) -> str: ...


class FileRules(Struct, frozen=True):
    """What of a folder is taken: `skips` is asked about each stored path in it, `closed` are folders nobody may read here."""

    has_hidden: bool = False
    has_ignored: bool = False
    closed: tuple[str, ...] = ()
    skips: Callable[[str], bool] = lambda path: False
    has_secrets: bool = False


class SkippedCounts(Struct):
    """The numbers of files that a walk skipped, by reason."""

    hidden: int = 0
    ignored: int = 0
    links: int = 0
    secret: int = 0
    special: int = 0
    problems: list[ItemToRead] = field(default_factory=list)


def absolute(text: str) -> str:
    """The path on disk that a person means, from the root, with the links on the way resolved but not a last one."""
    path = os.path.abspath(os.path.expanduser(text))
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)) if path != "/" else path


def ref_of(file: str) -> str:
    """The stored path of a file by its absolute path; BadInput for a name that cannot be one."""
    if not watcher.is_text(file):
        raise BadInput("its name is not UTF-8", hint="rename it")
    try:
        ref = parse_ref(f"disk:{file}")
    except BadInput:
        raise BadInput("its name is too long, or holds a line break or another control character", hint="rename it") from None
    if len(ref) < len(DISK) + len(file.strip("/")) and file != file.strip():
        raise BadInput("its name ends with a space", hint="rename it")
    return ref


def is_within(path: str, folder: str) -> bool:
    """Whether a path is this folder or lies in it, by whole names."""
    return Path(path).is_relative_to(folder)


def shown(file: str) -> str:
    """A path as it can be printed."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


# -- which files ------------------------------------------------------------------------------------


def expand(text: str, rules: FileRules, counts: SkippedCounts) -> Iterator[ItemToRead]:
    """The files that a path means: itself, or everything in a folder; one with a problem is told, not raised."""
    path = absolute(text)
    try:
        _check_closed(path, rules)
        info = os.lstat(path)
    except BadInput as error:
        yield ItemToRead("", path, problem=str(error))
        return
    except OSError as error:
        yield ItemToRead("", path, problem=_describe_error(error))
        return
    if stat.S_ISDIR(info.st_mode):
        yield from walk(path, rules, counts)
    else:
        yield _wanted_file(path, info)


def walk(root: str, rules: FileRules, counts: SkippedCounts) -> Iterator[ItemToRead]:
    """Every file in a folder and below that the rules take, by name."""
    scope = gitignore.Ignores(root) if rules.has_ignored else gitignore.around(root)
    waiting = [(root, scope)]
    while waiting:
        folder, scope = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            counts.problems.append(ItemToRead("", folder, problem=_describe_error(error)))
            continue
        below = []
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not _is_taken(entry, is_folder, scope, rules, counts):
                continue
            if is_folder:
                below.append((entry.path, scope if rules.has_ignored else scope.enter(entry.path)))
            else:
                wanted = _looked_at(entry)
                if wanted.problem or not rules.skips(wanted.ref):
                    yield wanted
        waiting += reversed(below)


def _is_taken(
    entry: "os.DirEntry[str]", is_folder: bool, scope: gitignore.Ignores, rules: FileRules, counts: SkippedCounts
) -> bool:
    if entry.name in NEVER or entry.path in rules.closed or entry.path in KERNEL:
        return False
    if entry.name.startswith(".") and not rules.has_hidden:
        counts.hidden += 1
    elif entry.is_symlink():
        counts.links += 1
    elif not is_folder and not entry.is_file(follow_symlinks=False):
        counts.special += 1
    elif not rules.has_ignored and scope.is_ignored(entry.path, is_folder):
        counts.ignored += 1
    elif not rules.has_secrets and sensitive_files.is_secret(entry.name):
        counts.secret += 1
    else:
        return True
    return False


def _looked_at(entry: "os.DirEntry[str]") -> ItemToRead:
    try:
        return _wanted_file(entry.path, entry.stat(follow_symlinks=False))
    except OSError as error:
        return ItemToRead("", entry.path, problem=_describe_error(error))


def _wanted_file(path: str, info: os.stat_result) -> ItemToRead:
    try:
        ref = ref_of(path)
    except BadInput as error:
        return ItemToRead("", path, problem=str(error))
    kinds = ((stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    if not stat.S_ISREG(info.st_mode):
        what = next((word for is_kind, word in kinds if is_kind(info.st_mode)), "a device")
        return ItemToRead(ref, path, problem=f"is {what}, not a file" + (": links are not followed" if what == "a link" else ""))
    is_racy = now_ms() - max(info.st_mtime_ns, info.st_ctime_ns) // 1_000_000 < RACY_MS
    return ItemToRead(ref, path, size_bytes=info.st_size, mark="" if is_racy else mark_of(info))


def _check_closed(path: str, rules: FileRules) -> None:
    for folder in rules.closed:
        if is_within(path, folder):
            raise BadInput(f"is in Owlbox's own home {folder}", hint="what is in box/ is known already, as box:/")
    for folder in KERNEL:
        if is_within(path, folder):
            raise BadInput(f"is in {folder}, where there are no files but what the kernel makes up", hint="add files of a disk")
    if inside := NEVER.intersection(Path(path).parts):
        raise BadInput(f"belongs to {min(inside)}, what version control keeps for itself", hint="add the files around it")


def _describe_error(error: OSError) -> str:
    if fault := disk_faults.explain_fault(error):
        return str(fault)
    return "no such file or folder" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"


# -- reading one ------------------------------------------------------------------------------------


class Gather:
    """Reads files, from any number of threads; `private` are files that are never opened, such as a database in use."""

    def __init__(
        self, environ: Mapping[str, str], private: Sequence[Path] = (), deadline_s: float = extract_process.DEADLINE_S
    ) -> None:
        self._clerks = extract_process.Clerks(environ, min(4, os.cpu_count() or 1), deadline_s)
        self._private = private

    def item(self, wanted: ItemToRead, known: KnownFile | None = None) -> ReadItem | None:
        """A file as it is to be kept, None when it says what is `known`; an OwlError says why it cannot be."""
        data, form, mark = self._read_file(wanted.file)
        if (
            known is not None
            and known.is_as_read
            and known.sha256 == digest(data)
            and extract.is_current(wanted.file, known.reader)
        ):
            return None
        found = self.reading(os.path.basename(wanted.file), data, form)
        return replace(item_of(wanted.ref, found, data), file=wanted.file, mark=mark if wanted.mark else "")

    def reading(self, name: str, data: bytes, form: str, charset: str = "") -> FileReading:
        """What these bytes say; where a parser may break over them, a child reads them."""
        if form not in extract.RISKY:
            return extract.read(name, data, form, charset)
        found = self._clerks.read(name, data, form, charset)
        if form == "python" and found.text is None and not found.reader:  # the text is a text whatever its parser makes of it
            plain = extract.read(name, data, "text", charset)
            return replace(plain, reader="", note=plain.note or found.note.replace("kept as bytes", "kept without an outline"))
        return found

    def close(self) -> None:
        """End the children; reading files that need one fails from now on."""
        self._clerks.close()

    def _read_file(self, path: str) -> tuple[bytes, str, str]:
        """All bytes of a file, its form and how it looked; Refused for a private key."""
        try:
            self._check_private(path)
            with disk_faults.naming(Path(path)), open(os.open(path, OPEN), "rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                if not stat.S_ISREG(before.st_mode):
                    raise BadInput("is not a file")
                if os.readlink(f"/proc/self/fd/{file.fileno()}") != path:
                    raise BadInput("lies behind a link, and links are not followed", hint="name the place itself")
                head = file.read(HEAD_BYTES) or b""
                if sensitive_files.is_key(head):
                    raise Refused("holds a private key: whoever talks to this assistant could read it", hint="leave it where it is")
                form = extract.form_of(os.path.basename(path), head)
                _check_size(before.st_size, form)
                data = head + _read_rest(file, before.st_size - len(head) + 1)
                after = os.fstat(file.fileno())
        except FileNotFoundError:
            raise NotFound("is gone") from None
        except OSError as error:
            raise BadInput("is a link, and links are not followed" if os.path.islink(path) else _describe_error(error)) from None
        if mark_of(before) != mark_of(after) or len(data) != before.st_size:
            raise BadInput("changed while it was read", hint="add it again")
        return data, form, mark_of(before)

    def _check_private(self, path: str) -> None:
        """BadInput for a file that must not be opened, by whatever name."""
        info = os.lstat(path)
        for private in self._private:
            try:
                if os.path.samestat(info, os.stat(private)):
                    raise BadInput("is Owlbox's own database, which nobody else may open")
            except FileNotFoundError:
                continue


def _read_rest(file: FileIO, size: int) -> bytes:
    parts, left = [], size
    while left > 0 and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _check_size(size_bytes: int, form: str) -> None:
    """TooLarge before anything large is read."""
    limit = extract.max_bytes(form)
    if size_bytes > limit:
        what = "a file of this kind" if form in extract.LIMITS else "a text"
        raise TooLarge(f"has {size_bytes} bytes, the limit for {what} is {limit}", hint="split it, or leave it where it is")


def item_of(ref: str, found: FileReading, data: bytes) -> ReadItem:
    """What is kept of a reading: a text with its bytes where they differ and fit, else the bytes; TooLarge for neither."""
    fits = len(data) <= MAX_BLOB_BYTES
    if found.text is None and not fits:
        raise TooLarge(f"has {len(data)} bytes, the limit is {MAX_BLOB_BYTES}" + (f" ({found.note})" if found.note else ""))
    is_other = found.reader.partition("/")[0] in extract.CONVERTED and not found.reader.startswith("html") and fits
    name = ref.rstrip("/").rpartition("/")[2][: MAX_CHARACTERS["title"]]
    return ReadItem(
        ref,
        found.text,
        data if found.text is None else None,
        data if is_other and found.text is not None else None,
        title=found.title or name,
        description=found.description,
        mime=found.mime,
        sha256=digest(data),
        reader=found.reader,
        note=found.note,
    )
