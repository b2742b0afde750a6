"""The files of the languages that ship, and what they say for all languages at once.

A language is one file of `languages/`, whatever its name: nothing else names it. What is asked in a message is read in the
language of the message (`languages`). A note, the answer of a model or the head of a mail may be in any of them: for these the
words and expressions of all files are joined, and read once a process. An expression of a file is a regular expression; `<name>`
in it stands for another one, joined likewise, or for words about time by their kinds (`TIMES`).
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from appliance.language.times.lexicon import counted_rows

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


@lru_cache(maxsize=1)
def month_names() -> frozenset[str]:
    """The months in all languages, without accents; not their short forms, which may be somebody's name."""
    months = (one for name in shipped_names() for key, one in _times(name) if key.startswith("month "))
    names = {phrases.split(",")[0].strip() for phrases in months}
    return frozenset("".join(c for c in unicodedata.normalize("NFD", one) if not unicodedata.combining(c)) for one in names)


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
