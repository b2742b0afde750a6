"""The first questions a person is asked, by the program and one at a time, so that any model will do.

They are asked as long as BOOTSTRAP.md is there, which the last answer or `/skip` removes. Each answer is written at once, as a
line of USER.md, IDENTITY.md or SOUL.md; which questions are answered stands in the front matter of BOOTSTRAP.md, so an interview
that was interrupted goes on with the next one. No model is asked and nothing is added to a thread.
"""

import stat
import threading
import tomllib
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from appliance.errors import NotFound
from appliance.ingest import prompt_documents
from appliance.ingest.document_methods import read_text
from appliance.runtime import paths
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.text import markdown

SKIP = "/skip"
LANGUAGE, OTHERWISE = "language", "en"
MAX_CHARS = 300
# In their order: the document an answer goes to, and the beginning of its line.
QUESTIONS = {
    LANGUAGE: ("USER", "- Language: "),
    "assistant": ("IDENTITY", "- Your name: "),
    "person": ("USER", "- To be called: "),
    "place": ("USER", "- Place or time zone: "),
    "help": ("USER", "- Wants help with: "),
    "tone": ("SOUL", "- How to speak: "),
}


class Asked(Struct, frozen=True):
    """What is said to the person: a question, or the last words when `is_open` is false; "" when nothing is to be asked."""

    text: str = ""
    is_open: bool = False
    number: int = 0
    total: int = len(QUESTIONS)


class Interview:
    """Asks and writes down; for admins, because documents speak to everybody."""

    def __init__(self, box: Path) -> None:
        self._box = box
        self._guard = threading.Lock()

    @method("interview.next")
    def next(self) -> Asked:
        """The question that is open, if any."""
        with self._guard:
            return self._open_question()

    @method("interview.answer")
    def answer(self, text: Annotated[str, Range(0, 4000), "empty leaves the question out; /skip ends them all"]) -> Asked:
        """Write an answer down; the next question, or the last words."""
        with self._guard:
            given = self._read_given()
            step = next((name for name in QUESTIONS if given is not None and name not in given), "")
            if given is None or not step:
                raise NotFound("nothing is being asked", hint="owlbox onboard brings the first questions back")
            line = " ".join(markdown.visible(text).split())[:MAX_CHARS]
            if line.lower() == SKIP:
                return self._end(given, "skipped")
            if line:
                self._write_line(*QUESTIONS[step], line)
            given = {**given, step: self._find_language(line) if step == LANGUAGE else "given" if line else "left out"}
            if len(given) == len(QUESTIONS):
                return self._end(given, "end")
            self._keep_given(given)
            return self._open_question()

    # -- inside -------------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> dict[str, Any]:
        return tomllib.loads((resources.files("appliance.channels") / "interview.toml").read_text(encoding="utf-8"))

    @property
    def _path(self) -> Path:
        return self._box / f"{prompt_documents.LAST}.md"

    def _open_question(self) -> Asked:
        given = self._read_given()
        step = next((name for name in QUESTIONS if given is not None and name not in given), "")
        if given is None or not step:
            return Asked()
        text = self._words["hello"] if step == LANGUAGE else self._words[self._language_of(given)][step]
        return Asked(text, True, len(given) + 1)

    def _read_given(self) -> dict[str, str] | None:
        """The questions that are answered; None where there is no interview."""
        if not self._path.is_file():
            return None
        front, _ = markdown.split(read_text(self._path))
        known = front.get("answered")
        return {name: str(known[name]) for name in QUESTIONS if name in known} if isinstance(known, dict) else {}

    def _keep_given(self, given: dict[str, str]) -> None:
        _, body = markdown.split(read_text(self._path))
        lines = ["---", "answered:", *(f"  {name}: {how}" for name, how in given.items()), "---", "", body]
        _replace_file(self._path, "\n".join(lines))

    def _write_line(self, document: str, label: str, answer: str) -> None:
        """Put a line into a document, in the place of the one that begins so."""
        path = self._box / f"{document}.md"
        lines = read_text(path).rstrip("\n").split("\n")
        kept = [line for line in lines if not line.startswith(label)]
        if kept[-1:] != [""] and not kept[-1].startswith("- "):
            kept.append("")  # a list begins after an empty line
        _replace_file(path, "\n".join([*kept, f"{label}{answer}"]) + "\n")

    def _end(self, given: dict[str, str], words: str) -> Asked:
        self._path.unlink()
        return Asked(self._words[self._language_of(given)][words])

    def _language_of(self, given: dict[str, str]) -> str:
        name = given.get(LANGUAGE, OTHERWISE)
        return name if name in self._words else OTHERWISE

    def _find_language(self, text: str) -> str:
        """The language that an answer names in any of the languages; English for others, which stay in USER.md all the same."""
        words = text.lower().replace(",", " ").replace(".", " ").split()
        tables = {name: one["names"] for name, one in self._words.items() if isinstance(one, dict)}
        return next((name for name, names in tables.items() if set(names) & set(words)), OTHERWISE)


def _replace_file(path: Path, text: str) -> None:
    """Put the text in the place of a file, with its mode."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    paths.put(path, text.encode("utf-8"))
    path.chmod(mode)
