"""The folder box/: prompt documents in their order, and every text file of it as a searchable entry.

Files are the person's and the truth; entries under `box://` mirror them and are never written back, except when a run that
wrote a file is undone. A file that cannot be mirrored whole (binary, too large, unreadable, not UTF-8) has no entry and is
named in `problems`. Prompt documents are read from disk for every prompt; one of headings and comments alone is left out, so
an unused one costs nothing. Knows nothing about watching, skills or prompts' sizes.
"""

import logging
import mimetypes
import os
import stat
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from appliance.errors import BadInput, Conflict, NotFound, TooLarge
from appliance.ingest import watcher
from appliance.ingest.workspace_files import WorkspaceFiles
from appliance.knowledge import entries
from appliance.knowledge.entries import Draft, Entries, Entry
from appliance.knowledge.search import words_of
from appliance.records import Part
from appliance.runtime import paths, trusted_files
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.text import markdown

LOG = logging.getLogger(__name__)
# In the order of docs/requirements/overlaps.md section 9; BOOTSTRAP comes after the tools.
ALWAYS = ("SOUL", "IDENTITY", "USER", "AGENTS", "ENVIRONMENT", "BELIEFS", "GOALS", "CAPABILITIES", "MEMORY")
LAST = "BOOTSTRAP"
SHIPPED = (*ALWAYS, "HEARTBEAT", LAST)
MAX_CHARS = 20_000
Name = Annotated[str, Range(1, 64), "such as USER or HEARTBEAT"]

SCHEME = "box://"
WRITER = "folder"
BATCH = 32  # files in one transaction: one more does not make it faster, and others wait less
TITLE_CHARS = 200
HEADED = (".md", ".markdown", ".txt")  # files whose "# " lines are headings, not comments
MIMES = {".md": "text/markdown", ".markdown": "text/markdown", ".org": "text/org", ".rst": "text/x-rst", ".toml": "text/toml"}


def shipped(name: str) -> str:
    """The text of a document as it ships."""
    return (resources.files("appliance") / "box" / f"{name}.md").read_text(encoding="utf-8")


def install(box: Path) -> list[Path]:
    """Write the shipped documents that are missing; never touches one that is there."""
    box.mkdir(parents=True, exist_ok=True)
    made = []
    for name in SHIPPED:
        path = box / f"{name}.md"
        if not path.exists():
            path.write_text(shipped(name), encoding="utf-8")
            made.append(path)
    return made


class PromptDocuments:
    """The shipped documents and HEARTBEAT.md for people: read by everybody, written by admins.

    The files belong to the core's user, because they speak to every conversation.
    """

    def __init__(self, box: Path) -> None:
        self._box = box

    @method("document.list", access="all")
    def listing(self) -> list[str]:
        """The names that there are."""
        return list(SHIPPED)

    @method("document.view", access="all")
    def view(self, name: Name) -> dict[str, Any]:
        """A document as its file is, "" for none."""
        path = self._document_path(name)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            text = ""
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from None
        return {"name": name, "text": text}

    @method("document.write")
    def write(self, name: Name, text: Annotated[str, "the whole document"], *, call: Call) -> dict[str, Any]:
        """Put this in the place of a document; it counts from the next message."""
        path = self._document_path(name)
        if len(text) > MAX_CHARS:
            raise TooLarge(f"{name} would have {len(text)} characters, more than {MAX_CHARS}", hint="put the rest into a note")
        paths.put(path, text.encode("utf-8", "replace"))
        LOG.info("document %s was written by user %d", name, call.uid)
        return {"name": name, "path": f"box/{path.name}"}

    def _document_path(self, name: str) -> Path:
        if name not in SHIPPED:
            raise NotFound(f"no document {name}", hint=f"there are {', '.join(SHIPPED)}")
        return self._box / f"{name}.md"


def documents(box: Path) -> tuple[list[Part], list[str]]:
    """The documents for every prompt, in order, and what is wrong with those that could not be read.

    Front matter decides: `loading: contextual` leaves one out here, `loading: always` takes any other Markdown
    file of the folder itself in, after ours.
    """
    parts, problems = [], []
    extra = [path.stem for path, loading in _marked_files(box) if loading == "always" and path.stem not in SHIPPED]
    for name in (*ALWAYS, *extra, LAST):
        try:
            front, text = _read_document(box / f"{name}.md")
        except BadInput as error:
            problems.append(f"{name}.md: {error.message}")
            continue
        if text and front.get("loading") != "contextual":
            parts.append(Part(name, text))
    return parts, problems


def contextual(box: Path, about: str) -> list[Part]:
    """The documents marked `loading: contextual` that hold a word of what is asked or to be done, named by reference.

    Words of three letters and fewer, and those that carry no meaning, do not count; without any there is none.
    """
    words = [word for word in words_of(about, 500) if len(word) > 3]
    parts = []
    for path, loading in _marked_files(box) if words else ():
        if loading != "contextual":
            continue
        try:
            _, text = _read_document(path)
            ref = ref_of(box, path)
        except BadInput as error:
            LOG.warning("prompt document left out: %s: %s", path.name, error.message)
            continue
        known = text.lower()
        if any(word in known for word in words):
            parts.append(Part(ref, text))
    return parts


def _marked_files(box: Path) -> Iterator[tuple[Path, str]]:
    """The Markdown files of the folder itself that say when they are loaded, by name; HEARTBEAT is loaded elsewhere."""
    try:
        found = [entry for entry in os.scandir(box) if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False)]
    except OSError:
        return
    for name in sorted(entry.name for entry in found):
        path = box / name
        if path.stem == "HEARTBEAT":
            continue
        try:
            with path.open("rb") as file:
                if file.read(6).removeprefix(b"\xef\xbb\xbf")[:3] != b"---":
                    continue
            loading = _split_front_matter(path)[0].get("loading")
        except (OSError, BadInput):
            continue
        if isinstance(loading, str):
            yield path, loading


def _read_document(path: Path) -> tuple[dict[str, Any], str]:
    """Front matter and the document's visible text, "" when there is nothing to say; BadInput when it is unreadable.

    What others than the box's own user could have written is not read: it would speak to every person of the box.
    """
    if why := trusted_files.problem(path, home=path.parent.parent):
        raise BadInput(f"not taken: {why}")
    return _split_front_matter(path)


def _split_front_matter(path: Path) -> tuple[dict[str, Any], str]:
    """The same of any file, whoever wrote it."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            raw = file.read(MAX_CHARS + 1)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}") from None
    if len(raw) > MAX_CHARS:
        raw = raw[:MAX_CHARS] + f"\n[cut: only the first {MAX_CHARS} characters of this document are read]"
    front, body = markdown.split(raw)
    return front, markdown.visible(body) if markdown.has_text(body) else ""


# -- files as entries -------------------------------------------------------------------------------


def ref_of(root: Path, path: Path) -> str:
    """The reference of a file: `box://` and its path in the folder; BadInput for a name that cannot be one."""
    name = path.relative_to(root).as_posix()
    if not watcher.is_text(name):
        raise BadInput("its name is not UTF-8", hint="rename it")
    ref = unicodedata.normalize("NFC", SCHEME + name)
    if entries.parse_ref(ref) != ref:
        raise BadInput("its name begins or ends with a space", hint="rename it")
    return ref


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

    def sync_paths(self, paths: Sequence[Path], run: str = "") -> int:
        """Look at these paths and bring their entries in line; returns how many entries changed.

        Writes nothing for a file whose size and time of change are as its entry says. `run` is the one that wrote the files.
        """
        changed = 0
        for batch in _batch_paths(sorted(paths), BATCH):
            drafts, gone = self._compare_files(batch)
            if drafts or gone:
                self._entries.mirror(list(drafts.values()), gone, writer=WRITER, run=run)
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
        if path.parent == self.root and path.suffix == ".md" and path.stem in SHIPPED:
            attributes["is_document"] = path.stem in (*ALWAYS, LAST)  # HEARTBEAT is not in the prompt
            attributes["is_blank"] = not markdown.has_text(found.text)
        return Draft(ref, _find_title(path, found.text), found.text, attributes, _owning_context(self.root, path))

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


def _owning_context(root: Path, path: Path) -> str:
    """The context whose file it is: what lies below users/ID and groups/ID is theirs alone."""
    parts = path.relative_to(root).parts
    kind = {"users": "user", "groups": "group"}.get(parts[0], "") if len(parts) > 2 else ""
    return f"{kind}:{parts[1]}" if kind else ""


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
