"""The folder box/: every text file of it as a searchable entry.

Files are the person's and the truth; entries under `box://` mirror them and are never written back, except when a run that
wrote a file is undone. A file that cannot be mirrored whole (binary, too large, unreadable, not UTF-8) has no entry and is
named in `problems`. Knows nothing about watching, skills or prompts; which files are prompt documents, `prompt_documents` says.
"""

import logging
import mimetypes
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance.errors import BadInput, Conflict
from appliance.ingest import prompt_documents, watcher
from appliance.ingest.box_refs import SCHEME, owner_of, ref_of
from appliance.ingest.workspace_files import WorkspaceFiles
from appliance.knowledge import entries
from appliance.knowledge.entries import Draft, Entries, Entry
from appliance.text import markdown

LOG = logging.getLogger(__name__)
WRITER = "folder"
BATCH = 32  # files in one transaction: one more does not make it faster, and others wait less
TITLE_CHARS = 200
HEADED = (".md", ".markdown", ".txt")  # files whose "# " lines are headings, not comments
MIMES = {".md": "text/markdown", ".markdown": "text/markdown", ".org": "text/org", ".rst": "text/x-rst", ".toml": "text/toml"}


# -- files as entries -------------------------------------------------------------------------------


def check(box: Path) -> list[str]:
    """Files of the folder that cannot be mirrored and why, by reading every one now; changes nothing."""
    root = box.resolve()
    tree = watcher.walk(root)
    found = []
    for path in map(Path, sorted((*tree.files, *tree.closed))):
        try:
            ref_of(root, path)
            watcher.read_text(root, path, entries.MAX_BODY_BYTES)
        except (BadInput, Conflict) as error:
            found.append(f"{_shown_name(root, path)}: {error.message}")
    return found


class Folder:
    """Keeps the `box://` entries in line with the files of a folder.

    `is_other` tells the files that somebody else mirrors (skills): they get no entry here.
    """

    def __init__(self, root: Path, rows: Entries, is_other: Callable[[Path], bool] = lambda path: False) -> None:
        self.root = root.resolve()
        self._entries = rows
        self._is_other = is_other
        self._guard = threading.Lock()
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> list[str]:
        """What could not be mirrored and why, one line a file."""
        with self._guard:
            return [f"{name}: {reason}" for name, reason in sorted(self._problems.items())]

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
        for batch in _batch_paths(sorted(paths), BATCH):
            drafts, gone = self._compare_files(batch)
            written = [ref_of(self.root, path) for path in batch] if run and not is_vouched else []
            if drafts or gone or written:
                self._entries.mirror(list(drafts.values()), gone, writer=WRITER, run=run, written=written)
            if drafts or gone:
                LOG.info("folder read", extra={"changed": len(drafts), "removed": len(gone), "refs": [*drafts, *gone][:5]})
                changed += len(drafts) + len(gone)
        return changed

    # -- an undo ------------------------------------------------------------------------------------

    def refresh_files(self, refs: Sequence[str]) -> None:
        """Bring the entries of these references in line, as far as they are files here."""
        self.sync_paths([self._file_path(ref, {}) for ref in refs if ref.startswith(SCHEME)])

    def restore(self, old: Entry | None, new: Entry | None) -> None:
        """Have the file of an entry that an undo brought back, changed or took away follow it; Conflict where it cannot."""
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
        if text is not None and (was is None or text.text != was.body):
            raise Conflict(f"{path} has changed on the disk meanwhile and is left as it is", hint="change the file yourself")
        return files.read(_shown_name(self.root, path))

    def _file_path(self, ref: str, attributes: Mapping[str, Any]) -> Path:
        """The file of a reference."""
        return self.root / str(attributes.get("file", ref.removeprefix(SCHEME)))

    def _compare_files(self, paths: Sequence[Path]) -> tuple[dict[str, Draft], list[str]]:
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
                found = None if self._is_other(path) else watcher.read_text(self.root, path, entries.MAX_BODY_BYTES)
            except BadInput as error:
                reasons[path] = error.message
            except Conflict:
                continue  # it moves again: it is told again when it rests
            if found is not None:
                drafts[ref] = self._draft_entry(path, ref, found)
            elif given is not None and given.get("file", _shown_name(self.root, path)) == _shown_name(self.root, path):
                gone.append(ref)
        for path, reason in reasons.items():
            self._note_problem(_shown_name(self.root, path), reason)
        return drafts, [ref for ref in gone if ref not in drafts]

    def _is_same(self, path: Path, given: Mapping[str, Any]) -> bool:
        """True when a file can be read and has the size and time of change that its entry knows."""
        try:
            info = path.lstat()
        except OSError:
            return False
        is_known = (given.get("size_bytes"), given.get("mtime_ns")) == (info.st_size, info.st_mtime_ns)
        return is_known and stat.S_ISREG(info.st_mode) and os.access(path, os.R_OK) and watcher.is_inside(self.root, path.parent)

    def _draft_entry(self, path: Path, ref: str, found: watcher.Text) -> Draft:
        attributes: dict[str, Any] = {"size_bytes": found.size_bytes, "mtime_ns": found.mtime_ns, "mime": _guess_mime(path)}
        if ref != SCHEME + _shown_name(self.root, path):
            attributes["file"] = _shown_name(self.root, path)  # the name on disk spells the same letters in another way
        if prompt_documents.is_shipped(_shown_name(self.root, path)):
            attributes["is_document"] = prompt_documents.is_in_prompts(_shown_name(self.root, path))
            attributes["is_blank"] = _is_blank(found.text)
        return Draft(ref, _find_title(path, found.text), found.text, attributes, owner_of(self.root, path))

    def _note_problem(self, name: str, reason: str) -> None:
        """Remember a problem, or that it is over; each is logged once."""
        with self._guard:
            before = self._problems.pop(name, "")
            if reason:
                self._problems[name] = reason
        if reason and reason != before:
            LOG.warning("not taken from the folder: %s: %s", name, reason)


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
    if not isinstance(title, str | int | float) or not str(title).strip():
        title = markdown.title(body) if path.suffix.lower() in HEADED else ""
    return " ".join(str(title or path.name).split())[:TITLE_CHARS]


def _guess_mime(path: Path) -> str:
    return MIMES.get(path.suffix.lower()) or mimetypes.guess_type(path.name)[0] or "text/plain"


def _batch_paths(paths: Sequence[Path], size: int) -> Iterator[Sequence[Path]]:
    return (paths[i : i + size] for i in range(0, len(paths), size))
