"""What the assistant may write in box/ itself: the prompt documents MEMORY, BELIEFS, GOALS as whole files, and new notes.

A document is replaced whole and at once; its front matter stays, and `agent-modification: false` in it bars the assistant.
They are shown in everybody's prompts, so a house in which several people talk keeps to its notes instead: what one
person said is not shown to others. Its entry changes at once, for the run that writes: an undo of that run finds it there.
Knows nothing about prompts.
"""

import os
from collections.abc import Callable
from pathlib import Path

from appliance.errors import BadInput, Refused, TooLarge
from appliance.ingest.notes import MAX_CHARS, Folder
from appliance.knowledge.search import words_of
from appliance.text import markdown

FENCE = markdown.FENCE
NOTES = "notes"  # the folder of box/ that new notes are written to
MOST_SAME = 1000  # notes of one title


class Documents:
    """Writes documents; `people` says how many people and groups talk to this assistant, `folder` mirrors box/."""

    def __init__(self, box: Path, people: Callable[[], int], folder: Folder) -> None:
        self._box = box
        self._people = people
        self._folder = folder

    def replace(self, name: str, content: str, run: str = "") -> Path:
        """The document holds this from now on, "" for nothing; Refused where it is not for the assistant to write."""
        if len(content) > MAX_CHARS:
            raise TooLarge(f"{name} would have {len(content)} characters, more than {MAX_CHARS}", hint="keep what matters")
        if (count := self._people()) > 1:
            hint = "use remember: notes are their own"
            raise Refused(f"{count} people and groups talk here, and all are shown {name}", hint=hint)
        path = self._box / f"{name}.md"
        head, may_change = self._read_front_matter(path)
        if not may_change:
            raise Refused(f"{path.name} says that the owl may not change it", hint="ask the person to write it")
        self._folder.sync_paths([self._folder.root / path.name])  # what a person wrote last is not this run's change
        written = path.with_name(f".{path.name}.{os.getpid()}.new")
        with written.open("w", encoding="utf-8") as file:
            file.write(head + content.rstrip() + ("\n" if content.strip() else ""))
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
        self._folder.sync_paths([self._folder.root / path.name], run)
        return path

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
                with path.open("x", encoding="utf-8") as file:
                    file.write(f"# {title}\n\n{text.rstrip()}\n")
                    file.flush()
                    os.fsync(file.fileno())
                self._folder.sync_paths([self._folder.root / NOTES / path.name], run)
                return path
            except FileExistsError:
                continue
        raise BadInput(f"there are {MOST_SAME} notes called {title!r}", hint="choose another title")

    @staticmethod
    def _read_front_matter(path: Path) -> tuple[str, bool]:
        """The front matter as it stands, and whether the assistant may change the rest."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return "", True
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path.name} cannot be read: {error}", hint="mend the file") from None
        front, _ = markdown.split(text)
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        if lines[0].strip() != FENCE:
            return "", True
        end = next(number for number, line in enumerate(lines[1:], 1) if line.strip() == FENCE)
        return "\n".join([*lines[: end + 1], "", ""]), front.get("agent-modification", True) is not False
