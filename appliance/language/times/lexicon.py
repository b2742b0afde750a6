"""The words of a language that speak of time, as its file lists them: phrases and the kinds of token that they make.

The table `times` of a language file has a line for each meaning: `"weekday 1" = "monday, mon"`. The key is the kind of the
token, with its value behind it; the phrases stand behind it, with commas between. A phrase may have several kinds ("second" is an
ordinal and a unit), and a word of a weekday may be one with a part of the day ("Freitagabend"). The table `days` gives the feasts:
fixed days, Easter, Advent. Built once a language, when the first time is read in it. Which kinds there are, `KINDS` says. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta

from msgspec import Struct

from appliance.errors import BadInput

WORD = re.compile(r"\d+|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]|_")


# Kinds of tokens, and how the value behind each is read.
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("number", "ordinal", "weekday", "weekdays", "month", "times", "noon"), "number"),
    **dict.fromkeys(("unit", "part", "in_part", "parts", "ampm", "zone", "eve"), "word"),
    **dict.fromkeys(("day", "adverb", "span", "every_part", "wake", "alarm", "timer"), "words"),
    **dict.fromkeys(
        (
            *("one", "suffix", "half", "quarter", "past", "to", "half_to", "quarter_of", "three_quarters", "and_half"),
            *("and_quarter", "less_quarter", "less", "and_a_half", "hour_mark", "minute_mark", "on_the_hour", "times_word"),
            *("every", "other", "next", "after_next", "this", "coming", "last", "in", "on", "at", "by", "around", "before"),
            *("after", "ago", "later", "earlier", "ahead", "from", "until", "between", "and", "or", "of", "the"),
            *("except", "only", "condition", "start", "end_of", "start_of", "workday", "workdays", "weekend", "weekends"),
            *("for", "long", "per", "office_hours", "filler", "link", "ask", "once", "judged", "same_time", "unsure", "minus"),
            *("now", "vague", "plain", "elision", "numbered", "that_day"),
        ),
        "",
    ),
}
NOT_MENDED = frozenset({"plain", "feast", "zone", "link", "minus"})  # words to which no misspelled one is mended
# Kinds of words by which a text may name a time, and of those that may stand before one.
NAMING = (
    *("unit", "weekday", "weekdays", "month", "day", "part", "parts", "noon", "adverb", "weekend", "weekends"),
    *("number", "later", "earlier"),
)
LEADING = ("at", "in", "on", "by", "around", "every", "half", "quarter", "next", "this", "coming")
SHORT = 3  # letters of a word that names one only where the file does not say that it may mean something else: "sun", "m"
ALARMS = ("wake", "alarm", "timer")
Value = str | float | tuple[str, ...]


class LexiconEntry(Struct, frozen=True):
    """A phrase: its words, and the kinds that it has with their values."""

    words: tuple[str, ...]
    kinds: Mapping[str, Value]


class Lexicon:
    """The phrases of one language by their first word, the longest first."""

    def __init__(self, rows: Iterable[tuple[str, str]], feasts: Mapping[str, str]) -> None:
        """`rows` are the lines of its file; BadInput for a kind that there is not."""
        found: dict[tuple[str, ...], dict[str, Value]] = {}
        for key, phrases in counted_rows(rows):
            kind, *value = key.split(" ")
            if kind not in KINDS:
                raise BadInput(f"times: {key!r} is no kind of word", hint=f"kinds are {', '.join(sorted(KINDS))}")
            for phrase in phrases.split(","):
                if words := split_words(phrase):
                    found.setdefault(words, {})[kind] = _read_value(kind, value)
        for name, rule in feasts.items():
            found.setdefault(split_words(name), {})["feast"] = rule
        self._by_word: dict[str, list[LexiconEntry]] = {}
        for words, kinds in found.items():
            self._by_word.setdefault(words[0], []).append(LexiconEntry(words, kinds))
        for entries in self._by_word.values():
            entries.sort(key=lambda one: -len(one.words))
        self.words = frozenset(word for words in found for word in words if word[0].isalpha())
        near = (words[0] for words, kinds in found.items() if len(words) == 1 and kinds.keys() - NOT_MENDED)
        unsure = {words[0] for words, kinds in found.items() if "unsure" in kinds and len(words[0]) <= SHORT}
        single = [(words[0], kinds.keys()) for words, kinds in found.items() if len(words) == 1]
        self.naming = frozenset(word for word, kinds in single if kinds & set(NAMING)) - unsure
        self.leading = frozenset(word for word, kinds in single if kinds & {*NAMING, *LEADING} and "number" not in kinds) - unsure
        self.long_words = tuple(sorted({word for word in near if len(word) >= 4 and word.isalpha()}))
        self._alarms = {kind: kinds[kind] for kinds in found.values() for kind in ALARMS if kind in kinds}
        self.ones = tuple(" ".join(words) for words, kinds in found.items() if "one" in kinds)
        self._elisions = tuple(words[0] for words, kinds in found.items() if "elision" in kinds)
        self._add_compounds({words[0]: kinds for words, kinds in found.items() if len(words) == 1})

    def match(self, words: Sequence[str]) -> LexiconEntry | None:
        """The longest phrase that the words begin with."""
        for entry in self._by_word.get(words[0], ()):
            if tuple(words[: len(entry.words)]) == entry.words:
                return entry
        return None

    def month_of(self, word: str) -> int:
        """The number of the month that a word names, 0 for none."""
        entry = self.match([word])
        month = entry.kinds.get("month", 0) if entry is not None else 0
        return int(month) if isinstance(month, int | float) else 0

    def alarm_name(self, text: str, kind: str) -> str:
        """What an alarm is called that a text asks for: "wake up", "timer"; of this kind where it does not say."""
        words = split_words(text)
        named = (self.match(words[at : at + 8]) for at in range(len(words)))
        asked = next((one.kinds[alarm] for one in named if one for alarm in ALARMS if alarm in one.kinds), self._alarms.get(kind))
        return " ".join(asked) if isinstance(asked, tuple) else ""

    def count_words(self, text: str) -> int:
        """How many words of a text it knows."""
        return sum(word in self.words for word in split_words(text))

    def without_elision(self, text: str) -> str:
        """A text without the short word that French ties to its first one: "d'appeler"."""
        found = next((one for one in self._elisions if text.lower().replace("’", "'").startswith(f"{one}'")), "")
        return text[len(found) + 1 :] if found else text

    def _add_compounds(self, single: Mapping[str, Mapping[str, Value]]) -> None:
        """A day of the week and a part of the day in one word."""
        for day, its in single.items():
            for part, kinds in single.items() if "weekday" in its and len(day) > SHORT else ():
                for kind, made in (("parts", "weekdays"), ("part", "weekday")):
                    if kind in kinds and len(part) >= SHORT and f"{day}{part}" not in self._by_word:
                        entry = LexiconEntry((f"{day}{part}",), {made: its["weekday"], "with_part": kinds[kind]})
                        self._by_word[f"{day}{part}"] = [entry]


def counted_rows(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The lines of a file, one that counts (`"month 1.." = "january, jan; february, feb"`) as a line for each of its numbers."""
    for key, phrases in rows:
        kind, _, first = key.removesuffix("..").rpartition(" ")
        if key.endswith(".."):
            yield from ((f"{kind} {number}", one) for number, one in enumerate(phrases.split(";"), int(first)))
        else:
            yield key, phrases


def split_words(text: str) -> tuple[str, ...]:
    """The words and marks of a text, in the form in which phrases are looked up."""
    return tuple(found[0] for found in WORD.finditer(text.lower().replace("’", "'")))


def _read_value(kind: str, value: Sequence[str]) -> Value:
    how = KINDS[kind]
    if how == "words":
        return tuple(value)
    if not value:
        return ""
    return float(value[0]) if how == "number" else value[0]


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")  # as the rules name them


def day_of(rule: str, year: int) -> date:
    """`12-25`, `easter+1`, or `sunday-4 12-25`: so many such weekdays before a day."""
    if rule.startswith("easter"):
        return _easter(year) + timedelta(days=int(rule.removeprefix("easter") or 0))
    if " " in rule:
        weekday, before = rule.split(" ")
        name, count = weekday.rsplit("-", 1)
        day = day_of(before, year)
        back = (day.weekday() - WEEKDAYS.index(name)) % 7 or 7
        return day - timedelta(days=back + 7 * (int(count) - 1))
    month, number = rule.split("-")
    return date(year, int(month), int(number))


def _easter(year: int) -> date:
    """Easter Sunday of the Gregorian calendar (the anonymous algorithm of 1876)."""
    golden, century, rest = year % 19, year // 100, year % 100
    leap, skipped = divmod(century, 4)
    lunar = (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + century - leap - lunar + 15) % 30
    weekday = (32 + 2 * skipped + 2 * (rest // 4) - epact - rest % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)
