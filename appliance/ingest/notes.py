"""The folder box/: what every file of it says as a searchable entry.

Files are the person's and the truth; entries under `box://` mirror them and are never written back, except when a run that
wrote a text file is undone. Documents, pages and mails are read as `context add` reads them (`ingest.extract`), in a child. A
file that cannot be read whole (binary, too large, broken, not UTF-8) has no entry and is named in `problems`. Knows nothing about
watching, skills or prompts; which files are prompt documents, `prompt_documents` says.
"""

import logging
import mimetypes
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from appliance.errors import BadInput, Conflict, Unavailable
from appliance.ingest import extract, prompt_documents, watcher
from appliance.ingest.box_refs import SCHEME, owner_of, ref_of
from appliance.ingest.extract import FileReading
from appliance.ingest.extract_process import Clerk
from appliance.ingest.watcher import FileBytes, mark_of
from appliance.ingest.workspace_files import WorkspaceFiles
from appliance.knowledge import entries
from appliance.knowledge.contents import guess_mime
from appliance.knowledge.entries import Draft, Entries, Entry
from appliance.knowledge.entry_marks import AUTHOR, ORIGIN
from appliance.store import visibility
from appliance.text import markdown

LOG = logging.getLogger(__name__)
WRITER = "folder"
BATCH = 32  # files in one transaction: one more does not make it faster, and others wait less
TITLE_CHARS = 200
NAMED = 3  # files named in a sentence about many
MARKDOWN = (".md", ".markdown")  # note programs show a note by the name of its file
HEADED = (*MARKDOWN, ".txt")  # files whose "# " lines are headings, not comments
MIMES = {".md": "text/markdown", ".markdown": "text/markdown", ".org": "text/org", ".rst": "text/x-rst", ".toml": "text/toml"}


KEPT = re.compile(r"[,:] kept as bytes(?:, its words cannot be found)?")  # in a note about a file that is not mirrored
WORDLESS = ("image/", "audio/", "video/", "font/")  # files in which nobody expects words


# -- files as entries -------------------------------------------------------------------------------


def check(box: Path, environ: Mapping[str, str]) -> list[str]:
    """Files of the folder that cannot be mirrored and why, by reading every one now; changes nothing."""
    root = box.resolve()
    tree = watcher.walk(root)
    found = []
    clerk = Clerk(environ)
    try:
        for path in map(Path, sorted((*tree.files, *tree.closed))):
            try:
                ref_of(root, path)
                _read_file(root, path, clerk)
            except (BadInput, Conflict) as error:
                found.append(f"{_shown_name(root, path)}: {error.message}")
    finally:
        clerk.close()
    return found


def _read_file(root: Path, path: Path, clerk: Clerk) -> tuple[FileBytes, FileReading] | None:
    """A file and what it says; None for what is no file, BadInput says why it cannot be mirrored, Conflict when it changes."""
    found = watcher.read_bytes(root, path, lambda head: _max_bytes(path.name, head))
    if found is None:
        return None
    form = extract.form_of(path.name, found.data[: watcher.HEAD_BYTES])
    if form in extract.CONVERTED:
        try:
            reading = clerk.read(path.name, found.data, form)
        except Unavailable as error:
            raise BadInput(error.message) from None
    else:
        reading = extract.read(path.name, found.data, form if form in ("markdown", "csv") else "text")
    if reading.text is None:
        raise BadInput(KEPT.sub("", reading.note))
    return found, reading


def _max_bytes(name: str, head: bytes) -> int:
    form = extract.form_of(name, head)
    if form == "bytes":
        raise BadInput(KEPT.sub("", extract.OLD_NOTE) if head.startswith(extract.OLD_OFFICE) else "binary, not text")
    return extract.max_bytes(form)


class Folder:
    """Keeps the `box://` entries in line with the files of a folder.

    `is_other` tells the files that somebody else mirrors (skills): they get no entry here.
    """

    def __init__(
        self, root: Path, rows: Entries, environ: Mapping[str, str], is_other: Callable[[Path], bool] = lambda path: False
    ) -> None:
        self._environ = environ
        self.root = root.resolve()
        self._entries = rows
        self._is_other = is_other
        self._guard = threading.Lock()
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> list[str]:
        """The files that could not be mirrored, with the reason, one line each."""
        with self._guard:
            return [f"{name}: {reason}" for name, reason in sorted(self._problems.items())]

    @property
    def unread(self) -> list[str]:
        """The names of files that could not be read, of those the caller may see, without pictures and sound."""
        with self._guard:
            names = [name for name in sorted(self._problems) if not guess_mime(name, False).startswith(WORDLESS)]
        return [name for name in names if visibility.seen(owner_of(self.root, self.root / name))]

    def why_unread(self, ref: str) -> str:
        """Why the file of a reference could not be read, "" where it could, is none, or belongs to others."""
        name = ref.removeprefix(SCHEME)
        with self._guard:
            reason = self._problems.get(name, "") if ref.startswith(SCHEME) else ""
        return reason.removeprefix("cannot be read: ") if visibility.seen(owner_of(self.root, self.root / name)) else ""

    def list_files(self) -> list[tuple[str, str]]:
        """The files that the present context may see: path in the folder and title, "" where nothing was read of one."""
        whose = ("", visibility.current())
        paths = [path for path in map(Path, watcher.walk(self.root).files) if owner_of(self.root, path) in whose]
        titles = {line.ref: line.title for line in self._entries.list_lines(SCHEME, limit=len(paths) + 1)}
        names = sorted(path.relative_to(self.root).as_posix() for path in paths)
        return [(name, titles.get(normalize("NFC", SCHEME + name), "")) for name in names]

    def describe_unread(self) -> str:
        """The unread files in one sentence, "" for none."""
        names = self.unread
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        files = "1 file" if len(names) == 1 else f"{len(names)} files"
        return f"{files} in the folder could not be read: {', '.join(names[:NAMED])}{more}" if names else ""

    def known_files(self) -> list[Path]:
        """The files that entries say are there."""
        found = self._entries.attributes(SCHEME)
        return [self.root / str(given.get("file", ref.removeprefix(SCHEME))) for ref, given in found.items()]

    def sync_paths(self, paths: Sequence[Path], run: str = "", *, is_vouched: bool = False) -> int:
        """Look at these paths and bring their entries in line; returns how many entries changed.

        Writes nothing for a file whose size and time of change are as its entry says. `run` is the one that wrote the files;
        with `is_vouched` a person was shown their text and said yes to it.
        """
        changed = 0
        clerk = Clerk(self._environ)
        try:
            for batch in _batch_paths(self._changed_first(paths), BATCH):
                drafts, gone = self._compare_files(batch, clerk)
                written = [ref_of(self.root, path) for path in batch] if run and not is_vouched else []
                if drafts or gone or written:
                    self._entries.mirror(list(drafts.values()), gone, writer=WRITER, run=run, written=written)
                if drafts or gone:
                    LOG.info("folder read", extra={"changed": len(drafts), "removed": len(gone), "refs": [*drafts, *gone][:5]})
                    changed += len(drafts) + len(gone)
        finally:
            clerk.close()
        return changed

    def _changed_first(self, paths: Sequence[Path]) -> list[Path]:
        """Files that came or went before those that stay: one that was renamed is both, and keeps its entry in one batch."""
        known = set(self._entries.attributes(SCHEME)) if len(paths) > BATCH else set()
        refs = {path: _shown_name(self.root, path) for path in paths}
        return sorted(paths, key=lambda path: (os.path.isfile(path) and f"{SCHEME}{refs[path]}" in known, path))

    # -- an undo ------------------------------------------------------------------------------------

    def refresh_files(self, refs: Sequence[str]) -> None:
        """Bring the entries of these references in line, as far as they are files here."""
        self.sync_paths([self._file_path(ref, {}) for ref in refs if ref.startswith(SCHEME)])

    def restore(self, old: Entry | None, new: Entry | None) -> None:
        """Have the file of an entry that an undo brought back, changed or took away follow it; Conflict where it cannot."""
        if any(entry is not None and _is_converted(str(entry.attributes.get("reader", ""))) for entry in (old, new)):
            raise Conflict("the file is not a text file and cannot be written from its text", hint="change the file yourself")
        files = WorkspaceFiles(self.root)
        was, now = (entry if entry is not None and _is_mirror(entry) else None for entry in (old, new))
        is_moved = was is not None and now is not None and was.path != now.path
        if was is not None and (now is None or is_moved):
            path = self._file_path(was.path, was.attributes)
            if (found := self._require_file(files, path, was)) is not None:
                files.remove(_shown_name(self.root, path), found[0])
        if now is not None:
            path = self._file_path(now.path, now.attributes)
            found = self._require_file(files, path, None if is_moved else was)
            seen, mode = (None, 0) if found is None else (found[0], found[1].st_mode)
            files.write(_shown_name(self.root, path), now.body.encode(), seen, mode)
            if at_ns := now.attributes.get("mtime_ns"):  # as the entry knows it, which would else change once more
                os.utime(path, ns=(at_ns, at_ns), follow_symlinks=False)

    def _require_file(self, files: WorkspaceFiles, path: Path, was: Entry | None) -> tuple[bytes, os.stat_result] | None:
        """A file as it is, None for none; Conflict unless it holds what its entry held."""
        text = watcher.read_text(self.root, path, entries.MAX_BODY_BYTES)
        if text is not None and (was is None or text != was.body):
            raise Conflict(f"{path} has changed on the disk meanwhile and is left as it is", hint="change the file yourself")
        return files.read(_shown_name(self.root, path))

    def _file_path(self, ref: str, attributes: Mapping[str, Any]) -> Path:
        """The file of a reference."""
        return self.root / str(attributes.get("file", ref.removeprefix(SCHEME)))

    def _compare_files(self, paths: Sequence[Path], clerk: Clerk) -> tuple[dict[str, Draft], list[str]]:
        """The entries to be written and those to be removed; what is wrong with a file is noted."""
        refs: dict[Path, str] = {}
        reasons = dict.fromkeys(paths, "")
        for path in paths:
            try:
                refs[path] = ref_of(self.root, path)
            except BadInput as error:
                reasons[path] = error.message
        before = self._entries.attributes_of(list(refs.values()))
        drafts: dict[str, Draft] = {}
        gone: list[str] = []
        for path, ref in refs.items():
            given = before.get(ref)
            if given is not None and not self._is_other(path) and self._is_same(path, given):
                continue
            found = None
            try:
                found = None if self._is_other(path) else _read_file(self.root, path, clerk)
            except BadInput as error:
                reasons[path] = error.message
            except Conflict:
                continue  # it moves again: it is told again when it rests
            if found is not None and given is not None and self._is_mirrored(ref, given, *found):
                continue
            if found is not None:
                drafts[ref] = self._draft_entry(path, ref, *found)
            elif given is not None and given.get("file", _shown_name(self.root, path)) == _shown_name(self.root, path):
                gone.append(ref)
        for path, reason in reasons.items():
            self._note_problem(_shown_name(self.root, path), reason)
        return drafts, [ref for ref in gone if ref not in drafts]

    def _is_same(self, path: Path, given: Mapping[str, Any]) -> bool:
        """True when a file can be read, looks as its entry knows it, and would be read in the same way now."""
        try:
            info = path.lstat()
        except OSError:
            return False
        reader = str(given.get("reader", ""))  # "" in what was mirrored before 2026-12, as text
        is_read = extract.is_current(path.name, reader) if reader else extract.is_plain(path.name)
        if given.get("mark", mark_of(info)) != mark_of(info) or not is_read or not _is_alike(given, info.st_size, info.st_mtime_ns):
            return False
        return stat.S_ISREG(info.st_mode) and os.access(path, os.R_OK) and watcher.is_inside(self.root, path.parent)

    def _is_mirrored(self, ref: str, given: Mapping[str, Any], found: FileBytes, reading: FileReading) -> bool:
        """True when a text file only lies elsewhere on the disk than its entry knows, as after an undo or a restored backup.

        Its entry is left as it is: a later change of it would stand in the way of an undo.
        """
        if _is_converted(reading.reader) or not _is_alike(given, found.size_bytes, found.mtime_ns):
            return False
        entry = self._entries.find(ref)
        return entry is not None and entry.body == (reading.text or "").replace("\r\n", "\n")

    def _draft_entry(self, path: Path, ref: str, found: FileBytes, reading: FileReading) -> Draft:
        text = (reading.text or "").replace("\r\n", "\n")
        is_converted = _is_converted(reading.reader)
        attributes: dict[str, Any] = {"size_bytes": found.size_bytes, "mtime_ns": found.mtime_ns, "mark": found.mark}
        attributes |= {"reader": reading.reader, "mime": reading.mime if is_converted else _guess_mime(path)}
        attributes |= {ORIGIN: reading.origin, AUTHOR: reading.author} if reading.origin else {}
        if ref != SCHEME + _shown_name(self.root, path):
            attributes["file"] = _shown_name(self.root, path)  # the name on disk spells the same letters in another way
        if prompt_documents.is_shipped(_shown_name(self.root, path)):
            attributes["is_document"] = prompt_documents.is_in_prompts(_shown_name(self.root, path))
            attributes["is_blank"] = _is_blank(text)
        title = " ".join((reading.title or path.name).split())[:TITLE_CHARS] if is_converted else _find_title(path, text)
        has_source = is_converted and reading.reader.partition("/")[0] not in ("pdf", "office")  # which are no text inside
        source = found.data[: entries.MAX_BODY_BYTES].decode("utf-8", "replace") if has_source else ""
        is_card = reading.reader.startswith("card/")  # of which more is asked than its text says (`knowledge.calendar`)
        return Draft(ref, title, text, attributes, owner_of(self.root, path), source, is_card)

    def _note_problem(self, name: str, reason: str) -> None:
        """Remember a problem, or that it is over; each is logged once."""
        with self._guard:
            before = self._problems.pop(name, "")
            if reason:
                self._problems[name] = reason
        if reason and reason != before:
            LOG.warning("not taken from the folder: %s: %s", name, reason)


def _is_alike(given: Mapping[str, Any], size_bytes: int, mtime_ns: int) -> bool:
    return (given.get("size_bytes"), given.get("mtime_ns")) == (size_bytes, mtime_ns)


def _is_converted(reader: str) -> bool:
    """Whether the text of an entry is not what stands in its file."""
    return reader.partition("/")[0] in extract.CONVERTED


def _is_mirror(entry: Entry) -> bool:
    return entry.path.startswith(SCHEME) and entry.scope == entries.PROJECT


def _shown_name(root: Path, path: Path) -> str:
    """A file's name as it can be shown."""
    return os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")


def _is_blank(text: str) -> bool:
    """Whether a document says nothing, whatever its front matter says."""
    try:
        return not markdown.has_text(markdown.split(text)[1])
    except BadInput:
        return False


def _find_title(path: Path, text: str) -> str:
    """Title of the front matter, else the first heading, else the file's name."""
    try:
        front, body = markdown.split(text)
    except BadInput:
        front, body = {}, text
    title = front.get("title")
    if not isinstance(title, str) or not title.strip():
        title = markdown.title(body) if path.suffix.lower() in HEADED else ""
    return " ".join(str(title or (path.stem if path.suffix.lower() in MARKDOWN else path.name)).split())[:TITLE_CHARS]


def _guess_mime(path: Path) -> str:
    return MIMES.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0] or "text/plain"


def _batch_paths(paths: Sequence[Path], size: int) -> Iterator[Sequence[Path]]:
    return (paths[i : i + size] for i in range(0, len(paths), size))
