"""What kind of thing a question asks for, and whether a sentence holds one: a person, a place, a time, an age, a number.

A sentence that does not hold what is asked for is no answer, however many of the question's words it has: "the dog was
vaccinated on 12 May" says nothing about how old the dog is. The words are those of the tables `kinds` and `expressions` of the
language files, of all languages at once; here stands what digits, marks and capital letters look like. Pure; no grammar is
parsed, so a kind says what must be there and never that what is there is right. A question of no known kind takes anything.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from appliance.language.languages import all_words, alternatives, kind_words, kinds

CAPITALIZED = r"\b[A-ZÄÖÜÉ][\w'’-]+"
NAME = rf"(?<![.!?:] )(?<!^){CAPITALIZED}"
FULL_NAME = rf"\b[A-ZÄÖÜÉ][a-zäöüéß'’-]+ {CAPITALIZED}"
LABEL = r"^[\w' -]{2,30}: "  # "Fuse box: hall"
NAMED = r"(?:[A-ZÄÖÜÉ][\w'’-]+ ?){1,3}: "  # and one that may be somebody: "Lea: 7 September"
OWNER = re.compile(r"\b[A-ZÄÖÜÉ][\w-]*['’]s\b")  # "Mum's birthday: 14 March"
PASSWORD = r"(?=\S*[^\W\d_])(?=\S*\d)[^\s:/]{4,}|^\W*\S+\W*$"
PHONE = r"\d{2,}[-/ .]\d{2,}|\d{5,}"
ACCOUNT = r"\b[A-Z]{2}\d{2}(?:\b|[A-Z\d]{4})"
MAIL = r"\S@\S"
CURRENCY = "[€$£¥]"
NUMBERS = re.compile(r"[^\W_]+")


class Kind(Struct, frozen=True):
    """What is asked for. `words` of the question are said by the thing itself: "old" by an age, "cost" by an amount."""

    name: str
    question: str
    holds: Callable[[str], bool]
    words: frozenset[str] = frozenset()
    perhaps: str = ""  # what may be meant where people leave out what it is: an amount without its currency, beside these words
    beside: frozenset[str] = frozenset()

    def may_hold(self, text: str) -> bool:
        """Whether a text without such a thing may say it all the same: an amount behind its name, or anywhere beside one."""
        if not self.perhaps:
            return False
        if compiled(rf"\b(?:{'|'.join(self.beside)}): ?(?:{self.perhaps})").search(text):
            return True
        if compiled(self.perhaps).search(compiled(_date()).sub(" ", text)) is None:
            return False
        return not self.beside.isdisjoint(word.lower() for word in NUMBERS.findall(text))


def kind_of(question: str) -> Kind | None:
    """What an answer must hold: the first kind that fits, for the narrow ones come first."""
    return next((kind for kind in all_kinds() if compiled(kind.question).search(question)), None)


def says_what_is_asked(question: str, answer: str) -> bool:
    """Whether an answer holds what is asked for in words of its own: "the vet looks after them" names nobody."""
    kind = kind_of(question)
    asked = {word.lower() for word in NUMBERS.findall(question)}
    return kind is None or kind.holds(NUMBERS.sub(lambda word: "" if word[0].lower() in asked else word[0], answer))


def holds_time(text: str) -> bool:
    """Whether a text says when, or for how long."""
    return compiled(_when()).search(text) is not None


def holds_clock(text: str) -> bool:
    """Whether a text has a time of day."""
    return compiled(_clock()).search(text) is not None


def people(text: str) -> list[str]:
    """The words of a text for somebody, such as "neighbour"."""
    return compiled(rf"\b{alternatives('person')}\b").findall(text)


@lru_cache(maxsize=128)
def compiled(words: str) -> "re.Pattern[str]":
    """A pattern, made at the first need: all of them take 13 ms, which no start should pay."""
    return re.compile(words, re.IGNORECASE)


@lru_cache(maxsize=1)
def _date() -> str:
    """A date or a time of day."""
    month, ending, of = map(alternatives, ("month", "ordinal_ending", "of_month"))
    return "|".join(
        (
            rf"\b\d{{1,2}}(?:{ending}|\.)?(?: {of})? {month}\b(?:,? (?:{of} )?\d{{4}})?",
            rf"\b{month} \d{{1,2}}{ending}?\b(?:,? \d{{4}})?|\b{month}(?: {of})? \d{{4}}",
            r"\b(?:19|20)\d\d-[01]\d(?:-[0-3]\d)?\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b|\b\d{1,2}/\d{4}\b|\b\d{1,2}\.\d{1,2}\.(?!\d)",
            r"\b(?:19|20)\d\d\b",
            _clock(),
        )
    )


@lru_cache(maxsize=1)
def _clock() -> str:
    """A time of day."""
    return "|".join(
        (
            rf"\b(?:[01]?\d|2[0-4])[:.][0-5]\d\b(?! (?:{alternatives('no_clock')}|%))",
            rf"\b\d{{1,2}} ?(?:{alternatives('hour_mark')}|h ?\d\d)(?!\w)",
            rf"\b{alternatives('clock_at')} \d{{1,2}}\b|\b{alternatives('clock_until')} {alternatives('number')}\b",
        )
    )


@lru_cache(maxsize=1)
def _when() -> str:
    """The same, or a day, a part of a day or a span of time."""
    some_day = rf"\b(?:{alternatives('day_name')}|{alternatives('some_day')})\b"
    of_month = rf"\b\d{{1,2}}{alternatives('ordinal_ending')}\b|\b{alternatives('ordinal')}\b"
    span = rf"{alternatives('a_number')}[ -](?:{alternatives('more')} )?{alternatives('time_unit')}\b"
    return "|".join((_date(), some_day, of_month, span))


def _duration() -> str:
    unit = f"(?:{alternatives('time_unit')}|{alternatives('length_unit')})"
    return rf"{alternatives('a_number')}[ -]?(?:{alternatives('more')} ){{0,2}}{unit}\b|{alternatives('duration')}"


def _bare_amount() -> str:
    """1,060 or 214, and no count, length or part of a longer number."""
    unit = f"(?:{alternatives('time_unit')}|{alternatives('length_unit')}|%|kg|g|l)"
    grouped = r"(?<![\w.,/:-])\d{1,3}(?:[.,' ]\d{3})+(?![\w/:-])"
    return rf"{grouped}|(?<![\w.,/:-])\d{{2,5}}(?:[.,]\d\d)?(?! ?{unit}\b)(?![\w/:-])"


def _any_number() -> str:
    return rf"\d|\b(?:{alternatives('number')}|{alternatives('any_number')})\b"


def _holds_number(text: str) -> bool:
    """Whether a text has a number that is no date and no time of day."""
    return bool(compiled(_any_number()).search(compiled(_date()).sub(" ", text)))


def _holds_place(text: str) -> bool:
    """Whether a text says where: a word such as "under", a name that is no day, or a label with something behind it."""
    rest = compiled(LABEL).sub("", compiled(_when()).sub(" ", compiled(_date()).sub(" ", text)))
    rest = compiled(rf"\b{alternatives('ends_place')}\b(?= *(?:$|[.,;)]|{alternatives('and')}\b| {{2}}))").sub(" ", rest)
    has_label = bool(compiled(LABEL).match(text)) and bool(re.search(r"[^\W\d]{2}", rest))
    return bool(compiled(kinds("place", "holds")).search(rest) or re.search(NAME, rest) or has_label)


def _holds_person(text: str) -> bool:
    """Whether a text has a word with a capital letter, or one such as "neighbour"."""
    if re.match(NAMED, text):
        return True
    label = compiled(LABEL).match(text)
    if label is not None and all_words("verbs").isdisjoint(label[0].lower().split()):  # "Ada keeps the code: 4471" has none
        text = text[label.end() :]
    rest = compiled(_when()).sub(" ", compiled(_date()).sub(" ", text))
    capitals = re.findall(r"\b[A-ZÄÖÜÉ][\w'’-]*[a-zäöüéß]", rest)
    return any(word.lower() not in beginnings() for word in capitals) or bool(people(rest))


def _holds_owner(text: str) -> bool:
    """Whether a text names somebody, or says to what something belongs."""
    owners = any(one.lower().replace("’", "'") not in beginnings() for one in OWNER.findall(text))
    return owners or compiled(kinds("owner", "holds")).search(text) is not None or _holds_person(text)


def _holds_full_name(text: str) -> bool:
    """Whether a text has two words with capital letters in a row, the first of which is no title and begins no sentence."""
    titled = re.sub(r"\b(\w+)\.", lambda at: at[1] if at[1].lower() in all_words("titles") else at[0], text)
    none = beginnings() | all_words("titles")
    return any(found[0].split()[0].lower() not in none for found in re.finditer(FULL_NAME, titled))


@lru_cache(maxsize=1)
def beginnings() -> frozenset[str]:
    """Words that begin a sentence and are nobody."""
    return all_words("common") | all_words("question") | all_words("beginnings")


def _fits(words: str) -> Callable[[str], bool]:
    return lambda text: compiled(words).search(text) is not None


@lru_cache(maxsize=1)
def all_kinds() -> tuple[Kind, ...]:
    """The kinds in the order in which they are tried, made at the first need."""

    def make(name: str, holds: Callable[[str], bool] | None = None, marks: str = "", perhaps: str = "") -> Kind:
        known = holds or _fits("|".join(filter(None, (kinds(name, "holds"), marks))))
        asks = kinds(name, "asks") or "(?!)"
        return Kind(name, asks, known, kind_words(name, "words"), perhaps, kind_words(name, "beside"))

    return (
        make("statement"),
        make("event"),
        make("first name", _holds_full_name),
        make("password", marks=PASSWORD),
        make("place", _holds_place),
        make("owner", _holds_owner),
        make("person", _holds_person),
        make("street"),
        make("job"),
        make("age", marks=r": \d{1,3}\.?$"),
        make("telephone number", _fits(PHONE)),
        Kind("account number", r"\biban\b", _fits(ACCOUNT)),
        make("e-mail address", _fits(MAIL)),
        make("colour"),
        make("amount of money", marks=CURRENCY, perhaps=_bare_amount()),
        make("weight"),
        make("height", _fits(rf"\d ?{alternatives('length_unit')}\b")),
        make("frequency"),
        make("duration or distance", _fits(_duration())),
        make("time", _fits(_when())),
        make("number", _holds_number),
        replace(make("amount", _fits(_any_number())), name="number"),
    )
