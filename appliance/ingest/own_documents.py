"""What the assistant may write in box/ itself: prompt documents, and new notes.

Which documents it may change, their names and their front matter say (`prompt_documents.may_modify`): SOUL, IDENTITY and
BOOTSTRAP never. Front matter is kept by a new text and strict in an edit; what fails leaves the file as it was. Documents are
shown in everybody's prompts, so an installation in which several people talk keeps to its notes instead: what one person said
is not shown to others. An entry changes at once, for the run that writes: an undo of that run finds it there. Knows nothing
about prompts.
"""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from appliance.errors import BadInput, Conflict, NotFound, OwlError, Refused, TooLarge
from appliance.ingest import prompt_documents
from appliance.ingest.box_refs import owner_of, ref_of
from appliance.ingest.document_methods import Described, describe, read_text
from appliance.ingest.notes import Folder
from appliance.ingest.prompt_documents import KEYS, LOADING, MAX_CHARS, MODIFICATION
from appliance.knowledge.search import words_of
from appliance.runtime import paths
from appliance.store import visibility
from appliance.text import markdown
from appliance.text.edits import LinePatch, patch_lines

FENCE = markdown.FENCE
NOTES = "notes"  # the folder of box/ that new notes are written to
SKILLS = "skills"  # the folder of box/ whose files are skills
MOST_SAME = 1000  # notes of one title
LOADS = ("always", "contextual")


class Documents:
    """Writes documents; `people` says how many people and groups talk here, `folder` mirrors box/."""

    def __init__(self, box: Path, people: Callable[[], int], folder: Folder) -> None:
        self._box = box
        self._people = people
        self._folder = folder

    # -- prompt documents ---------------------------------------------------------------------------

    def listing(self) -> list[Described]:
        """The documents that the present context may see."""
        return [describe(self._box, path) for path in prompt_documents.listing(self._box) if self._is_seen(path)]

    def read(self, name: str) -> str:
        """A document with its front matter; NotFound when there is none."""
        return self._read_existing(self._document_path(name))

    def exists(self, name: str) -> bool:
        """Whether there is a document of this name."""
        return self._document_path(name).exists()

    def ref(self, name: str) -> str:
        """The reference of a document."""
        return ref_of(self._box, self._document_path(name))

    def replace(self, name: str, content: str, run: str = "", *, is_own: bool = True, is_vouched: bool = False) -> bool:
        """The document holds this from now on, "" for nothing; whether it is new. Refused where it is not for the assistant.

        `is_own` is a text that came out of a conversation, which may not be shown to other people. For one that is `is_vouched`,
        here and in `create` and `edit`, a person was shown this very change and said yes: it is not marked as the run is.
        """
        path = self._document_path(name)
        text = read_text(path)
        head, front = _split_head(text)
        self._require_open(path, front, is_own=is_own)
        self._put_document(path, head + content.rstrip() + ("\n" if content.strip() else ""), run, is_vouched=is_vouched)
        return not text

    def create(self, name: str, content: str, loading: str, run: str = "", *, is_vouched: bool = False) -> Path:
        """A new document that the assistant may change again; Conflict where there is one of this name."""
        path = self._document_path(name)
        front = {LOADING: loading, MODIFICATION: "true"}
        self._require_open(path, front, is_own=True)
        if path.exists():
            raise Conflict(f"there is a document {name}", hint="document_write changes lines of it")
        head = f"{FENCE}\n{LOADING}: {loading}\n{MODIFICATION}: true\n{FENCE}\n\n"
        self._put_document(path, f"{head}{content.rstrip()}\n", run, is_vouched=is_vouched)
        return path

    def edit(self, name: str, patches: Sequence[LinePatch], run: str = "", *, is_vouched: bool = False) -> Path:
        """Change lines of a document, front matter included; refused when that is not as it must be afterwards."""
        path = self._document_path(name)
        text = self._read_existing(path)
        front, _ = markdown.split(text)
        self._require_open(path, front, is_own=True)
        after = patch_lines(text, patches)
        _check_front(front, markdown.split(after)[0])
        self._put_document(path, after, run, is_vouched=is_vouched)
        return path

    def delete(self, name: str, run: str = "") -> Path:
        """Remove a document."""
        path = self._document_path(name)
        front, _ = markdown.split(self._read_existing(path))
        self._require_open(path, front, is_own=True)
        self._put_document(path, None, run)
        return path

    # -- notes --------------------------------------------------------------------------------------

    def add_note(self, title: str, text: str, run: str = "") -> Path:
        """A new file in box/notes with a heading and a text, beside those there are; Refused where several people talk."""
        if len(text) > MAX_CHARS:
            raise TooLarge(f"the note would have {len(text)} characters, more than {MAX_CHARS}", hint="keep what matters")
        if (count := self._people()) > 1:
            raise Refused(f"{count} people and groups talk here, and all see box/", hint="use remember: notes are their own")
        folder = self._box / NOTES
        folder.mkdir(parents=True, exist_ok=True)
        name = "-".join(words_of(title)[:8])[:60] or "note"
        for number in range(1, MOST_SAME):
            path = folder / (f"{name}.md" if number == 1 else f"{name}-{number}.md")
            try:
                with paths.naming(path), path.open("x", encoding="utf-8") as file:
                    file.write(f"# {title}\n\n{text.rstrip()}\n")
                    file.flush()
                    os.fsync(file.fileno())
                self._folder.sync_paths([self._folder.root / NOTES / path.name], run)
                return path
            except FileExistsError:
                continue
            except OSError:
                path.unlink(missing_ok=True)  # nothing of it, rather than half
                raise
        raise BadInput(f"there are {MOST_SAME} notes called {title!r}", hint="choose another title")

    def change_note(self, name: str, change: Callable[[str], str], run: str = "") -> Path:
        """A note, a Markdown file that is no prompt document, becomes what `change` makes of its text; front matter stays.

        Refused where several people talk; what fails leaves the file as it was.
        """
        path = self._note_path(name)
        if (count := self._people()) > 1 and not owner_of(self._box, path):
            raise Refused(f"{count} people and groups talk here, and all see box/", hint="use remember: notes are their own")
        text = read_text(path)
        if "\ufffd" in text:
            raise Refused(f"{path.name} is not UTF-8", hint="save it as UTF-8 first")
        head, _ = _split_head(text)
        body = text.removeprefix("\ufeff").replace("\r\n", "\n").removeprefix(head.rstrip("\n"))
        self._put_document(path, head.rstrip("\n") + change(body), run)
        return path

    # -- inside -------------------------------------------------------------------------------------

    def _note_path(self, name: str) -> Path:
        """The file of a note; NotFound for none, Refused for what prompts are made of."""
        bare = name.removeprefix("box://").removeprefix("box/")
        parts = Path(bare).parts
        path = self._box / bare
        if not parts or Path(bare).is_absolute() or ".." in parts or path.suffix != ".md" or not self._is_seen(path):
            raise NotFound(f"no note {name}", hint="name a file below box/, such as notes/garden.md")
        if not path.is_file() or any(one.is_symlink() for one in (path, *path.parents) if one.is_relative_to(self._box)):
            raise NotFound(f"no note {name}", hint="write_note makes a new one")
        if path in prompt_documents.listing(self._box) or parts[0] in (prompt_documents.ROLES, SKILLS):
            raise Refused(
                f"{bare} is not a note but a document that prompts are made of", hint="document_write changes lines of it"
            )
        return path

    def _document_path(self, name: str) -> Path:
        path = prompt_documents.find(self._box, name)
        if path is None or not self._is_seen(path):
            raise NotFound(
                f"no document {name}", hint="document_list names those there are; a new one has letters, digits, - and _"
            )
        return path

    def _is_seen(self, path: Path) -> bool:
        return bool(visibility.seen(owner_of(self._box, path)))

    def _read_existing(self, path: Path) -> str:
        if not path.is_file():
            raise NotFound(f"no document {prompt_documents.name_of(self._box, path)}", hint="document_list names those there are")
        return read_text(path)

    def _require_open(self, path: Path, front: dict[str, Any], *, is_own: bool) -> None:
        """Refused where a document is not for the assistant to write, or others would read what one person said."""
        if is_own and not owner_of(self._box, path) and (count := self._people()) > 1:
            hint = "use remember: notes are their own"
            raise Refused(f"{count} people and groups talk here, and all are shown {path.stem}", hint=hint)
        if path.stem in prompt_documents.PROTECTED:
            raise Refused(f"{path.name} is the person's alone", hint="ask the person to write it")
        if not prompt_documents.may_modify(path.stem, front):
            hint = f"ask the person to write it, or to put {MODIFICATION}: true into its front matter"
            raise Refused(f"{path.name} does not let the assistant change it", hint=hint)

    def _put_document(self, path: Path, text: str | None, run: str, *, is_vouched: bool = False) -> None:
        """The file and its entry become this together, None for gone; what fails leaves both as they were."""
        if text is not None and len(text) > MAX_CHARS:
            raise TooLarge(f"{path.stem} would have {len(text)} characters, more than {MAX_CHARS}", hint="keep what matters")
        mirrored = [self._folder.root / path.relative_to(self._box)]
        self._folder.sync_paths(mirrored)  # what a person wrote last is not this run's change
        before = path.read_bytes() if path.exists() else None
        try:
            _write_bytes(path, None if text is None else text.encode("utf-8"))
            self._folder.sync_paths(mirrored, run, is_vouched=is_vouched)
        except (OwlError, OSError) as error:
            _write_bytes(path, before)
            if isinstance(error, OwlError):
                raise
            raise BadInput(f"{path.name} cannot be written: {error.strerror}", hint="it is as it was") from None


def _write_bytes(path: Path, data: bytes | None) -> None:
    """Put these bytes in the place of a file, with its mode; None removes it."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    paths.put(path, data, mode)


def _split_head(text: str) -> tuple[str, dict[str, Any]]:
    """The front matter as it stands, with an empty line, and what it says; "" and nothing without one."""
    front, _ = markdown.split(text)
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].strip() != FENCE:
        return "", front
    end = next(number for number, line in enumerate(lines[1:], 1) if line.strip() == FENCE)
    return "\n".join([*lines[: end + 1], "", ""]), front


def _check_front(before: dict[str, Any], after: dict[str, Any]) -> None:
    """BadInput unless front matter says what a document's may; who may change it stays a person's decision."""
    if strange := [str(key) for key in after if key not in KEYS and key not in before]:
        raise BadInput(f"front matter has no key {strange[0]}", hint=f"there are {', '.join(KEYS)}")
    if after.get(LOADING, "always") not in LOADS:
        raise BadInput(f"{LOADING}: {after[LOADING]!r}", hint=f"use {' or '.join(LOADS)}")
    if after.get(MODIFICATION) != before.get(MODIFICATION):
        raise BadInput(f"{MODIFICATION} is not the assistant's to change", hint="leave that line as it is")
