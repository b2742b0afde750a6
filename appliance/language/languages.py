"""The sentences, words and phrases of each language: one file that ships for each, and one of the home that adds to it.

`languages/NAME.toml` of this package and `sentences/NAME.toml` of the home have the same tables; the home's lists are added,
its words joined, its phrases and rules take the place of ours. A file of the home that cannot be read is left out and told in
`problems`. A new language is one file. Words and expressions of all shipped languages at once are read without a home. Knows
nothing about what is done with a sentence.
"""

import re
import tomllib
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.errors import BadInput
from appliance.language import sentence_templates
from appliance.language.sentence_templates import SentenceTemplate, make_sentence
from appliance.language.times.lexicon import Lexicon, counted_rows

FIRST = "en"  # of the languages: what tells nothing is read in it
REFERENCE = re.compile(r"(?<![?P])<(\w+)>")
TIMES: Mapping[str, tuple[str, ...]] = {
    "month": ("month",),
    "weekday": ("weekday", "weekdays"),
    "number_word": ("number", "times", "adverb"),
    "ordinal": ("ordinal",),
    "ordinal_ending": ("suffix",),
    "hour_mark": ("hour_mark", "ampm"),
    "time_unit": ("unit",),
    "day_name": ("weekday", "weekdays", "month", "day", "part", "parts", "noon", "adverb", "weekend", "weekends"),
}
CAREFUL = ("time_unit", "day_name")
LEAST_SURE = 4  # letters of a word of which the file says that it may mean something else: "sun", "m"


@lru_cache(maxsize=1)
def shipped_names() -> tuple[str, ...]:
    """The languages that ship, English first."""
    folder = resources.files("appliance") / "language" / "languages"
    names = {one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml")}
    return tuple(sorted(names, key=lambda name: (name != FIRST, name)))


@lru_cache(maxsize=64)
def read_shipped(name: str) -> Mapping[str, Any]:
    """The tables of the file of a language that ships, {} for any other."""
    if name not in shipped_names():
        return {}
    return tomllib.loads((resources.files("appliance") / "language" / "languages" / f"{name}.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def all_words(name: str) -> frozenset[str]:
    """A list of words of all languages."""
    return frozenset(word for given in _values("words", name) for word in given.lower().split())


@lru_cache(maxsize=128)
def alternatives(name: str) -> str:
    """What matches an expression of any language; nothing where none has it."""
    if name == "a_number":
        return rf"(?:\d[\d.,]*|\b{alternatives('number')}\b)"
    if name in TIMES:
        found = _time_phrases(name)
    else:
        found = [REFERENCE.sub(lambda at: alternatives(at[1]), given) for given in _values("expressions", name)]
    return f"(?:{'|'.join(found)})" if found else "(?!)"


@lru_cache(maxsize=128)
def expression(name: str) -> "re.Pattern[str]":
    """The same compiled: at the first need, for all of them take some 20 ms, which no start should pay."""
    return re.compile(alternatives(name), re.IGNORECASE)


def says(name: str, text: str) -> bool:
    """Whether an expression of any language matches somewhere in a text."""
    return expression(name).search(text) is not None


def strip_accents(word: str) -> str:
    """A word as people type it who leave out the accents."""
    return "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")


@lru_cache(maxsize=1)
def month_names() -> frozenset[str]:
    """The months in all languages, without accents; not their short forms, which may be somebody's name."""
    months = (one for name in shipped_names() for key, one in _times(name) if key.startswith("month "))
    names = {phrases.split(",")[0].strip() for phrases in months}
    return frozenset(map(strip_accents, names))


def is_greeting(text: str) -> bool:
    """Whether a text greets and does nothing else."""
    words, behind = alternatives("greeting"), alternatives("greeted")
    return re.fullmatch(rf"\W*(?:{words}\W+)?{words}(?:\W+(?:{behind}|owl|owlbox))?\W*", text, re.IGNORECASE) is not None


def kinds(kind: str, field: str) -> str:
    """What matches in any language what the table `kinds` says of a kind of thing; "" for nothing."""
    return "|".join(REFERENCE.sub(lambda at: alternatives(at[1]), given) for given in _kind_values(kind, field))


def kind_words(kind: str, field: str) -> frozenset[str]:
    """The words of all languages that the table `kinds` lists for a kind of thing."""
    return frozenset(word for given in _kind_values(kind, field) for word in given.split())


def _kind_values(kind: str, field: str) -> Iterator[str]:
    for name in shipped_names():
        if given := read_shipped(name).get("kinds", {}).get(kind, {}).get(field):
            yield str(given)


def _values(table: str, name: str) -> Iterator[str]:
    for language in shipped_names():
        if given := read_shipped(language).get(table, {}).get(name):
            yield str(given)


def _times(language: str) -> list[tuple[str, str]]:
    """The phrases about time of a language, by their kinds."""
    return [*counted_rows(read_shipped(language).get("times", {}).items())]


def _time_phrases(name: str) -> list[str]:
    """The phrases about time of these kinds, the longest first, without those that may as well mean something else."""
    found = set()
    for language in shipped_names():
        times = _times(language)
        unsure = {word.strip() for word in dict(times).get("unsure", "").split(",")} if name in CAREFUL else set()
        for key, phrases in times:
            if key.split(" ")[0] in TIMES[name]:
                given = {phrase.strip() for phrase in phrases.split(",")}
                found |= {one for one in given if one not in unsure or len(one) >= LEAST_SURE}
    return [re.escape(one) for one in sorted(found, key=lambda one: (-len(one), one))]


LEAST_PLAIN = 3  # letters that a word of a question has more than, which is known without its accents as well
FOLDER = "sentences"  # of the home
UNTYPED = ("aside", "claim", "near")  # sentences of which no typing error is looked for
FAR = 2  # words by which another language must lead, so that a text is not in this one
OF_MEANING = 0.5  # as much as a function word a word counts that tells of the language of a text and has a meaning
ALIKE = "alike.txt"
TABLES = (
    *("words", "rules", "sentences", "not", "examples", "shots", "phrases", "levels", "signs", "times", "alike", "short", "places"),
    *("days", "units", "currencies", "rows", "expressions", "kinds"),
)
TEXTS = ("text", "translation", "polite", "spelling", "summary")  # of these the last words belong to the text
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class Language(Struct, frozen=True, dict=True):
    """One language as its files describe it."""

    name: str
    words: Mapping[str, frozenset[str]]
    rules: Mapping[str, str]
    sentences: Mapping[str, tuple[str, ...]]
    exceptions: Mapping[str, tuple[str, ...]]
    examples: Mapping[str, tuple[str, ...]]
    shots: Mapping[str, tuple[str, ...]]  # requests and their answers, in turn
    phrases: Mapping[str, str]
    levels: Mapping[str, frozenset[str]]
    signs: Mapping[str, str]  # of sums, by their words
    times: tuple[tuple[str, str], ...]  # kinds of words about time, and the phrases of each
    alike: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()  # words that speak of the same, and kinds of it
    problems: tuple[str, ...] = ()
    short: Mapping[str, str] = {}  # words as people shorten them, and what they stand for
    places: Mapping[str, str] = {}  # cities and countries as the language calls them: the name of a zone, or a country's code
    days: Mapping[str, str] = {}  # days of the calendar by their names, as `dates` reads them
    units: Mapping[str, str] = {}  # units of `units` by their words
    currencies: Mapping[str, str] = {}  # their codes by their names; "pounds" are a unit as well
    expressions: Mapping[str, str] = {}
    rows: Mapping[str, tuple[str, ...]] = {}  # phrases that ask something of rows, by what they ask

    @cached_property
    def patterns(self) -> Mapping[str, tuple[SentenceTemplate, ...]]:
        """What asks for something, by intent."""
        return self._make_sentences(self.sentences)

    @cached_property
    def refusals(self) -> Mapping[str, tuple[SentenceTemplate, ...]]:
        """What only looks like it, by intent."""
        return self._make_sentences(self.exceptions)

    def possible(self, words: Collection[str], names: Sequence[str]) -> list[tuple[str, list[SentenceTemplate]]]:
        """The sentences of these intents, in this order, that a message of these words may fit as a whole or in a part."""
        found = [(name, [one for one in self.patterns.get(name, ()) if one.may_fit(words)]) for name in names]
        return [(name, fitting) for name, fitting in found if fitting]

    @cached_property
    def cue_words(self) -> tuple[str, ...]:
        """The words with which people ask: those of the sentences, of four letters or more."""
        given = [*self.rules.values(), *(one for name, found in self.sentences.items() if name not in UNTYPED for one in found)]
        return tuple(sorted({word for one in given for word in _literal_words(one) if len(word) >= 4}))

    @cached_property
    def cues_by_letter(self) -> Mapping[tuple[int, str], tuple[str, ...]]:
        """Those words by their first letter (0) and by their second (1): one typing error leaves one of them in its place."""
        found: dict[tuple[int, str], list[str]] = {}
        for word in self.cue_words:
            for place in (0, 1):
                found.setdefault((place, word[place]), []).append(word)
        return {key: tuple(words) for key, words in found.items()}

    @cached_property
    def known_words(self) -> frozenset[str]:
        """Every word of its files, and of the groups of all languages: none of them is a typing error."""
        return self.own_words.union(*(same | kinds for same, kinds in _shipped_alike()))

    @cached_property
    def own_words(self) -> frozenset[str]:
        """Every word of its files: a text that has them is likely in it."""
        lists = (
            *self.sentences.values(),
            *self.exceptions.values(),
            *self.examples.values(),
            self.rules.values(),
            self.phrases.values(),
        )
        given = [*(one for texts in lists for one in texts), *(phrases for _, phrases in self.times)]
        words = _literal_words("\n".join((*given, *self.days, *self.units, *self.currencies)))
        return frozenset(words).union(*self.levels.values(), *self.words.values(), *(same | kinds for same, kinds in self.alike))

    @cached_property
    def function_words(self) -> frozenset[str]:
        """Words that carry no meaning in a search."""
        return self.words["common"] | self.words["question"]

    @cached_property
    def lexicon(self) -> Lexicon:
        """Its words about time."""
        return Lexicon(self.times, self.days)

    @cached_property
    def joint(self) -> "re.Pattern[str] | None":
        """Where a request may begin without a mark before it: "so remind me", "can you"."""
        if "joint" not in self.rules:
            return None
        return re.compile(rf"\s(?={sentence_templates.expression(self.rules['joint'], self.rules)})", re.IGNORECASE)

    @cached_property
    def linked(self) -> "re.Pattern[str]":
        """A word that links two requests."""
        return re.compile(rf"\s*[,;]?\s+(?:{'|'.join(map(re.escape, self.words['links'])) or '(?!)'})\s+", re.IGNORECASE)

    @cached_property
    def parted(self) -> "re.Pattern[str]":
        """The same, or a mark alone."""
        return re.compile(rf"{self.linked.pattern}|\s*[,;]\s*", re.IGNORECASE)

    @cached_property
    def opening(self) -> "re.Pattern[str]":
        """What may stand before what is said, such as "by the way, please"."""
        return re.compile(
            rf"[\s¿¡]*{sentence_templates.expression(self.rules.get('please', ''), self.rules)}[\s,:]*", re.IGNORECASE
        )

    def without_opening(self, text: str) -> str:
        """A text without the words of courtesy before it."""
        found = self.opening.match(text)
        return text[found.end() :] or text if found is not None else text

    @cached_property
    def closing(self) -> "re.Pattern[str]":
        closing = sentence_templates.expression(self.rules.get("closing", "please"), self.rules)
        return re.compile(rf"[\s,]+{closing}[\s.!?]*\Z", re.IGNORECASE)

    def without_closing(self, text: str) -> str:
        """A text without the words of courtesy behind it."""
        found = self.closing.search(text)
        return text[: found.start()] or text if found is not None else text

    def check(self) -> None:
        """BadInput says which template is wrong."""
        for found in (*self.patterns.values(), *self.refusals.values()):
            for one in found:
                _ = one.expression
        for name, given in self.expressions.items():
            try:
                re.compile(given)
            except re.error as error:
                raise BadInput(f"expressions: {name!r} is no regular expression: {error}") from None

    def _make_sentences(self, table: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[SentenceTemplate, ...]]:
        before, after = ("<please>" if "please" in self.rules else ""), ("<thanks>" if "thanks" in self.rules else "")
        around = {"claim": ("", "")} | dict.fromkeys(TEXTS, (before, ""))
        known: dict[str, str] = {}  # what its rules stand for, as far as a sentence was tried that uses them
        return {
            name: tuple(make_sentence(one, self.rules, *around.get(name, (before, after)), known) for one in given)
            for name, given in table.items()
        }

    def level(self, text: str) -> str:
        """How urgent a word says something is; "" for one that says nothing about it."""
        word = text.strip().lower()
        return next((level for level, words in self.levels.items() if word in words), "")

    def expression(self, name: str) -> "re.Pattern[str]":
        """One of the regular expressions of its file; one that matches nothing where it has none."""
        return _compile(self.expressions.get(name, "(?!)"))

    def phrase(self, name: str) -> str:
        """One of the phrases of its file, of the English one where it does not have it."""
        said = self.phrases.get(name)
        return str(read_shipped(FIRST)["phrases"][name]) if said is None else said

    def say(self, phrase: str, **parts: str) -> str:
        """One of the program's own sentences in this language, or in English."""
        return self.phrase(phrase).format(**parts)


@lru_cache(maxsize=256)
def _compile(given: str) -> "re.Pattern[str]":
    return re.compile(given, re.IGNORECASE)


def _literal_words(template: str) -> list[str]:
    """The words of a template that stand in it as they are, in small letters."""
    return [word.lower() for word in WORD.findall(re.sub(r"\{[^}]*\}|<\w+>", " ", template))]


def words_in(text: str) -> list[str]:
    """The words of a text in small letters, in order, without the short forms that French puts before them."""
    return [expression("elision").sub("", word.lower().replace("’", "'")) for word in WORD.findall(text)]


class Languages:
    """The languages that are known, English first."""

    def __init__(self, home: Path | None = None) -> None:
        """`home` is a folder with a folder of files of its own."""
        self.problems: list[str] = []
        names = list(shipped_names())
        folder = home / FOLDER if home is not None else None
        own = sorted(path.stem for path in folder.glob("*.toml")) if folder is not None and folder.is_dir() else []
        self.all = [self._load_language(name, folder) for name in dict.fromkeys([*names, *own])]
        self.english = self.all[0]

    def detect(self, text: str, before: str = "") -> list[Language]:
        """The languages that a text may be in, the most likely first; where nothing tells that of `before`, else English."""
        counts, earlier = self._count_words(text), self._count_words(before)
        most = max(counts.values())
        near = [one for one in self.all if counts[one.name] > most - FAR]
        return sorted(near, key=lambda one: (-counts[one.name], -earlier[one.name]))

    def _count_words(self, text: str) -> dict[str, float]:
        """How many of a text's words each language has: one that several have counts less, one with a meaning half."""
        counts = dict.fromkeys((one.name for one in self.all), 0.0)
        for word in words_in(text):
            speakers = [one for one in self.all if word in one.own_words]
            for one in speakers:
                counts[one.name] += (1 if word in one.function_words else OF_MEANING) / len(speakers)
        return counts

    def function_words(self) -> "FunctionWords":
        """Words of all languages that carry no meaning in a search."""
        return FunctionWords(self)

    def real_words(self) -> frozenset[str]:
        """Words of all languages that look like a typing error in one of them, and are none."""
        return frozenset().union(*(one.words["real"] for one in self.all))

    def pointing_words(self) -> frozenset[str]:
        """Those of them that ask for something or point to somebody."""
        return frozenset().union(*(one.words["question"] | one.words["own"] | one.words["again"] for one in self.all))

    def alike_words(self) -> dict[str, frozenset[str]]:
        """For each word that has some, the other words of all languages that speak of the same."""
        found: dict[str, frozenset[str]] = {}
        for same, kinds in (*_shipped_alike(), *(group for one in self.all for group in one.alike)):
            for word in same | kinds:
                found[word] = found.get(word, frozenset()) | (same | (kinds if word in same else frozenset())) - {word}
        return found

    def _load_language(self, name: str, folder: Path | None) -> Language:
        path = folder / f"{name}.toml" if folder is not None else None
        if path is not None and path.is_file():
            try:
                own = tomllib.loads(path.read_text(encoding="utf-8"))
                _check_tables(own)
                made = _build_language(name, read_shipped(name), own)
                made.check()
                return made
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, BadInput) as error:
                self.problems.append(f"{FOLDER}/{path.name}: {error}")
        return _shipped_language(name)


@lru_cache(maxsize=64)
def _shipped_language(name: str) -> Language:
    """A language without a person's own sentences; what is made of its templates is made once a process."""
    return _build_language(name, read_shipped(name), {})


@lru_cache(maxsize=1)
def _shipped_alike() -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    """The words of everyday life that speak of the same, in all languages: a group a line of the file."""
    text = (resources.files("appliance") / "language" / "languages" / ALIKE).read_text(encoding="utf-8")
    return tuple(_alike(line) for line in text.splitlines() if line and not line.startswith("#"))


def _check_tables(own: Mapping[str, Any]) -> None:
    for table, rows in own.items():
        if table not in TABLES or not isinstance(rows, dict):
            raise BadInput(f"{table!r} is no table of it", hint=f"there are {', '.join(TABLES)}")


def _build_language(name: str, shipped: Mapping[str, Any], own: Mapping[str, Any]) -> Language:
    def both(table: str) -> list[Mapping[str, Any]]:
        return [given.get(table, {}) for given in (shipped, own)]

    words: dict[str, frozenset[str]] = defaultdict(frozenset)
    for rows in both("words"):
        words |= {key: words[key] | frozenset(str(value).lower().split()) for key, value in rows.items()}
    words |= {key: words[key] | {strip_accents(word) for word in words[key] if len(word) > LEAST_PLAIN} for key in ("question",)}
    levels: dict[str, frozenset[str]] = {}
    for rows in both("levels"):
        levels |= {key: levels.get(key, frozenset()) | frozenset(str(value).lower().split()) for key, value in rows.items()}
    return Language(
        name,
        words,
        {key: str(value) for rows in both("rules") for key, value in rows.items()},
        _merge_lists(both("sentences")),
        _merge_lists(both("not")),
        _merge_lists(both("examples")),
        _merge_lists(both("shots")),
        {key: str(value) for rows in both("phrases") for key, value in rows.items()},
        levels,
        {key.lower(): str(value) for rows in both("signs") for key, value in rows.items()},
        tuple((str(key), str(value)) for rows in both("times") for key, value in rows.items()),
        tuple(_alike(str(value)) for rows in both("alike") for value in rows.values()),
        short={key.lower(): str(value) for rows in both("short") for key, value in rows.items()},
        places={place: key for rows in both("places") for key, value in rows.items() for place in _names(str(value))},
        days={day: key for rows in both("days") for key, value in rows.items() for day in _names(str(value))},
        currencies={name: key for rows in both("currencies") for key, value in rows.items() for name in _names(f"{key}, {value}")},
        units={unit: key for rows in both("units") for key, value in rows.items() for unit in _names(str(value))},
        expressions={key: str(value) for rows in both("expressions") for key, value in rows.items()},
        rows={key: tuple(_names(str(value))) for rows in both("rows") for key, value in rows.items()},
    )


def _names(listed: str) -> list[str]:
    """Names with commas between, in small letters."""
    return [one.strip().lower() for one in listed.split(",") if one.strip()]


def _alike(group: str) -> tuple[frozenset[str], frozenset[str]]:
    """Words that speak of the same, and after a colon those that name kinds of it, which are not the same as each other."""
    same, _, kinds = group.lower().partition(":")
    return frozenset(same.split()), frozenset(kinds.split())


def _merge_lists(tables: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for rows in tables:
        for key, value in rows.items():
            found[key] = (*found.get(key, ()), *map(str, value))
    return found


class FunctionWords(frozenset[str]):
    """Those of all languages; in a text only those of its own language: Mia is nobody's pronoun in English."""

    _languages: Languages

    def __new__(cls, languages: Languages) -> "FunctionWords":
        made = super().__new__(cls, frozenset().union(*(one.function_words for one in languages.all)))
        made._languages = languages
        return made

    def of_text(self, text: str) -> frozenset[str]:
        """Those of the language of a text."""
        return self._languages.detect(text)[0].function_words
