"""The first questions a person is asked, by the program and one at a time, so that any model will do.

They are asked as long as BOOTSTRAP.md is there, which the last answer or `/skip` removes. Each answer is written at once, as a
line of USER.md, IDENTITY.md or SOUL.md; which questions are answered stands in the front matter of BOOTSTRAP.md, so an interview
that was interrupted goes on with the next one. What answers nothing, such as a greeting or a command, is not written down and the
same question is asked again. A place also sets `system.timezone`, when it names a zone. No model is asked and nothing is added
to a thread.

A time zone is named by a place of the zone database or a country of its tables. A country with several zones that do not keep the
same time names none, and neither does a word that is part of several names.
"""

import logging
import re
import stat
import threading
import tomllib
import unicodedata
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import NotFound, OwlError
from appliance.ingest import prompt_documents
from appliance.ingest.document_methods import read_text
from appliance.language.languages import Languages, words_in
from appliance.language.planning import note_plans
from appliance.language.times import timezones
from appliance.runtime import paths
from appliance.runtime.methods import method
from appliance.text import markdown

LOG = logging.getLogger(__name__)
SKIP, BACK = "/skip", "/back"
LANGUAGE, OTHERWISE = "language", "en"
PLACE, NAMES = "place", ("person", "assistant")
MAX_NAME_WORDS = 4
WORD = re.compile(r"[^\W\d_]+")
MAX_CHARS = 300
# In their order: the document an answer goes to, and the beginning of its line.
QUESTIONS = {
    LANGUAGE: ("USER", "- Language: "),
    "person": ("USER", note_plans.PERSON_LINE),
    "assistant": ("IDENTITY", note_plans.ASSISTANT_LINE),
    PLACE: ("USER", "- Place or time zone: "),
    "help": ("USER", "- Wants help with: "),
    "tone": ("SOUL", "- How to speak: "),
}
OFFSET = re.compile(r"(?:utc|gmt)?\s*([+-])\s*(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
# Names that no person says, and regions that are called by a point of the compass.
OTHERS = ("Etc/", "SystemV/", "posix/", "right/", "Brazil/", "Canada/", "Chile/", "Mexico/", "US/")
COMPASS = ("/East", "/North", "/South", "/West")
LEAST_LETTERS = 4  # of a name that is looked for within a sentence: three are also words, such as "MET"
MOST_WORDS = 4  # of a name
SEASONS = tuple(datetime(2026, month, 1) for month in (1, 7))


class InterviewQuestion(Struct, frozen=True):
    """What is said to the person: a question, or the last words when `is_open` is false; "" when nothing is to be asked.

    `note` is the outcome of the answer before, where that is not plain. `keys`, `later` and `hints` are what a screen says beside
    it in the same language: what may be typed, that the rest is asked another time, and what to do next.
    """

    text: str = ""
    is_open: bool = False
    number: int = 0
    total: int = len(QUESTIONS)
    note: str = ""
    keys: str = ""
    later: str = ""
    hints: str = ""


class Interview:
    """Asks and writes down; for admins, because documents speak to everybody."""

    def __init__(self, box: Path, set_timezone: Callable[[str], None]) -> None:
        """`set_timezone` changes the configuration and puts it in force."""
        self._box = box
        self._set_timezone = set_timezone
        self._guard = threading.Lock()

    @method("interview.answer")
    def answer(
        self,
        text: Annotated[str | None, "empty leaves the question out; /back goes back, /skip ends them all; null only asks"] = None,
    ) -> InterviewQuestion:
        """Write an answer down; the question that is open then, if any, or the last words."""
        with self._guard:
            if text is None:
                return self._open_question()
            given = self._read_given()
            step = next((name for name in QUESTIONS if given is not None and name not in given), "")
            if given is None or not step:
                raise NotFound("nothing is being asked", hint="owlbox onboard brings the first questions back")
            line = " ".join(markdown.visible(text).split())[:MAX_CHARS]
            if line.lower() == SKIP:
                return self._end(given, "skipped")
            if line.lower() == BACK:
                return self._go_back(given)
            if step in NAMES:
                line = self._find_name(line)
            if line and (why := self._find_fault(step, line, given)):
                return replace(self._open_question(), note=why)
            if line:
                self._write_line(*QUESTIONS[step], line)
            language = self._find_language(line) or OTHERWISE
            given = {**given, step: language if step == LANGUAGE else "given" if line else "left out"}
            if len(given) == len(QUESTIONS):
                return self._end(given, "end")
            self._keep_given(given)
            asked = self._open_question()
            return replace(asked, note=self._use_place(line, given)) if step == PLACE and line else asked

    # -- inside -------------------------------------------------------------------------------------

    @cached_property
    def _words(self) -> dict[str, Any]:
        return tomllib.loads((resources.files("appliance.channels") / "interview.toml").read_text(encoding="utf-8"))

    @property
    def _path(self) -> Path:
        return self._box / f"{prompt_documents.LAST}.md"

    def _open_question(self) -> InterviewQuestion:
        given = self._read_given()
        step = next((name for name in QUESTIONS if given is not None and name not in given), "")
        if given is None or not step:
            return InterviewQuestion()
        text = self._words["hello"] if step == LANGUAGE else self._words[self._language_of(given)][step]
        return self._put_beside(given, InterviewQuestion(text, True, len(given) + 1))

    def _put_beside(self, given: dict[str, str], asked: InterviewQuestion) -> InterviewQuestion:
        """The question with the screen's key line and hints in the same language."""
        words = self._words[self._language_of(given)]
        hints = words["hints"].strip().format(box=self._box / "notes")
        return replace(asked, keys=words["keys"], later=words["later"], hints=hints)

    def _go_back(self, given: dict[str, str]) -> InterviewQuestion:
        """Ask the question before again; what was noted for it is taken away."""
        if given:
            document, label = QUESTIONS[last := list(given)[-1]]
            path = self._box / f"{document}.md"
            kept = [line for line in read_text(path).split("\n") if not line.startswith(label)]
            _replace_file(path, "\n".join(kept))
            self._keep_given({name: how for name, how in given.items() if name != last})
        return self._open_question()

    def _find_name(self, line: str) -> str:
        """The name in an answer, without the words that lead to it in any of the languages."""
        leads = [lead for one in self._words.values() if isinstance(one, dict) for lead in one["said"]]
        for lead in sorted(leads, key=len, reverse=True):
            if line.lower().startswith(f"{lead} "):
                line = line[len(lead) :].strip()
                break
        return line.rstrip(" .,!") or line

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

    def _use_place(self, line: str, given: dict[str, str]) -> str:
        """Set the time zone that an answer names; what is said about that."""
        words = self._words[self._language_of(given)]
        if not (zone := find_timezone(line)):
            return str(words["no_zone"])
        try:
            self._set_timezone(zone)
        except (OwlError, OSError) as error:  # the answer is written down, and the talk goes on
            LOG.warning("system.timezone was not set to %s: %s", zone, error)
            return str(words["zone_failed"]).format(zone=zone, error=error)
        return str(words["zone"]).format(zone=zone)

    def _end(self, given: dict[str, str], words: str) -> InterviewQuestion:
        self._path.unlink()
        return self._put_beside(given, InterviewQuestion(self._words[self._language_of(given)][words]))

    def _language_of(self, given: dict[str, str]) -> str:
        name = given.get(LANGUAGE, OTHERWISE)
        return name if name in self._words else OTHERWISE

    def _find_language(self, text: str) -> str:
        """The language that an answer names in any of the languages, English for one that is not spoken here; "" for no language.

        Within a sentence a name counts and a code of two letters does not.
        """
        words = set(WORD.findall(text.lower()))
        for name, names in ((name, set(one["names"])) for name, one in self._words.items() if isinstance(one, dict)):
            if any(word in names and (len(word) > 2 or len(words) == 1) for word in words):
                return name
        return OTHERWISE if words & set(self._words["others"]) or text.strip() in self._words["others"] else ""

    def _find_fault(self, step: str, line: str, given: dict[str, str]) -> str:
        """The reply to a text that answers no question; "" for an answer."""
        if step == LANGUAGE:
            return "" if self._find_language(line) else str(self._words["which"])
        words = self._words[self._language_of(given)]
        if step in NAMES and len(line.split()) > MAX_NAME_WORDS:
            return str(words["only_name"])
        bare = line.lower().strip(" .,!?¿¡")
        empty = (word for one in self._words.values() if isinstance(one, dict) for word in one["empty"])
        is_question = line.endswith("?") and " " in bare
        is_said = any(letter.isalpha() for letter in bare) or (step == PLACE and bool(find_timezone(line)))
        if line.startswith("/") or is_question or not is_said or bare in empty:
            return str(words["again"])
        return str(words["only_name"]) if step in NAMES and self._is_sentence(line) else ""

    def _is_sentence(self, line: str) -> bool:
        """Whether a few words are a sentence: two of them mean nothing by themselves, and none is written as a name is."""
        said = line.split()
        if len(said) < 2 or any(len(word) > 1 and word[0].isupper() for word in said[1:]):
            return False
        little = Languages(self._box.parent).function_words()
        return sum(word in little for word in words_in(line)) > 1


def _replace_file(path: Path, text: str) -> None:
    """Put the text in the place of a file, with its mode."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    paths.put(path, text.encode("utf-8"), mode)


def find_timezone(text: str) -> str:
    """The name of the zone, as `system.timezone` takes it; "" when the answer names none, or several."""
    whole = " ".join(text.split()).strip(" .!")
    if found := OFFSET.fullmatch(whole):
        offset = f"{found[1]}{int(found[2]):02}:{found[3] or '00'}"
        return offset if timezones.is_known(offset) else ""
    if whole.lower() in ("utc", "gmt", "z"):
        return "UTC"
    zones = [name for name in sorted(available_timezones()) if not name.startswith(OTHERS) and not name.endswith(COMPASS)]
    exact = next((name for name in zones if name.lower() == whole.lower().replace(" ", "_")), "")
    return exact or _find_in_words(whole, zones)


def _find_in_words(text: str, zones: list[str]) -> str:
    """The zone whose city or country stands in a sentence; longer names are looked for first."""
    cities: dict[tuple[str, ...], list[str]] = {}
    for name in zones:
        cities.setdefault(_words(name.rpartition("/")[2]), []).append(name)
    places = _countries(set(zones)) | {words: first for words, (first, *others) in cities.items() if _agree(first, others)}
    words = _words(text)
    for length in range(min(MOST_WORDS, len(words)), 0, -1):
        for at in range(len(words) - length + 1):
            part = words[at : at + length]
            if part in places and (len("".join(part)) >= LEAST_LETTERS or part == words):
                return places[part]
    return ""


def _words(name: str) -> tuple[str, ...]:
    """Lower-case words without accents, so that Zürich and São Paulo are found."""
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return tuple(word.lower() for word in WORD.findall(letters))


def _countries(zones: set[str]) -> dict[tuple[str, ...], str]:
    """Countries in which all zones keep the same time."""
    found: dict[str, list[str]] = {}
    for code, _, zone, *_ in _rows("zone.tab"):
        if zone in zones:
            found.setdefault(code, []).append(zone)
    named = {code: name for code, name, *_ in _rows("iso3166.tab")}
    return {_words(named[code]): first for code, (first, *others) in found.items() if code in named and _agree(first, others)}


def _agree(first: str, others: list[str]) -> bool:
    """Whether zones have the same time in winter and in summer."""
    wanted = [day.astimezone(ZoneInfo(first)).utcoffset() for day in SEASONS] if others else []
    return all([day.astimezone(ZoneInfo(one)).utcoffset() for day in SEASONS] == wanted for one in others)


def _rows(name: str) -> list[list[str]]:
    """The rows of a table of the zone database, none where it has no tables."""
    path = next((path for folder in TZPATH if (path := Path(folder) / name).is_file()), None)
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    return [[*line.split("\t"), "", ""] for line in lines if line and not line.startswith("#")]
