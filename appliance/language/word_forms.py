"""Words as a search compares them: without accents and endings, as parts of a compound, as names, a typing error apart. Pure.

Rough, for all languages at once: no word is looked up, so two words of one stem may have nothing to do with
each other. What is compared weighs more than this (`evidence`). Two texts say the same by wording, and by meaning where vectors are
at hand, but never when their numbers, their names or their negations differ, however near they lie: "the code is 4711" and "the
code is 4712" are two facts.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from appliance.language.languages import FIRST, FunctionWords, all_words, expression, read_shipped, says, strip_accents

LEAST_COMPOUND, LEAST_PART = 8, 3  # letters of a compound, and of a word in it
PLURAL_CHARS = 4  # letters a word has more than, so that its last "s" is an ending
LETTERS = frozenset("BCDFGHJKLMNPQRSTVWXZ")  # that name something by themselves: "bed C"
WORD = re.compile(r"[^\W_]+(?:[-'’.@/][^\W_]+)*")
ISO_DATE = re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<month>0[1-9]|1[0-2])-(?P<day>[0-3]\d)\b")


def content_words(text: str, ignored: Collection[str]) -> list[str]:
    """The words that carry meaning, without accents and possessives, in order, each once."""
    ignored = ignored.of_text(text) if isinstance(ignored, FunctionWords) else ignored
    found = []
    for match in WORD.finditer(text):
        word = match[0].lower().replace("’", "'")
        word = expression("inverted").sub("", expression("elision").sub("", word))
        if match[0] not in LETTERS and (word in ignored or word.removesuffix("'s") in ignored):
            continue
        word = strip_accents(without_possessive(word))
        if len(word) > 1 or word.isdigit() or match[0] in LETTERS:
            found.append(word)
    return list(dict.fromkeys(found))


def without_possessive(word: str) -> str:
    """A word without what says that something is somebody's: "Mum" for "Mum's"."""
    return word.replace("’", "'").removesuffix("'s").removesuffix("'")


def stem(word: str) -> str:
    """A word without what is added to it, roughly, in any of the languages."""
    word = without_possessive(word)
    if not word.isalpha():
        return word
    if len(word) > PLURAL_CHARS and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in _longest_first("endings"):
        if len(word) - len(ending) >= 4 and word.endswith(ending):
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=2)
def _longest_first(name: str) -> tuple[str, ...]:
    return tuple(sorted(all_words(name), key=lambda one: (-len(one), one)))


@lru_cache(maxsize=1)
def _month_names() -> tuple[str, ...]:
    return tuple(read_shipped(FIRST)["phrases"]["months"].split())


def has_stem(stemmed: str, text: str) -> bool:
    """Whether a text has a word of this stem."""
    return any(_is_form(stemmed, *form) for form in _forms(text))


@lru_cache(maxsize=1024)
def _forms(text: str) -> tuple[tuple[str, str], ...]:
    """The words of a text with their stems, each once: a question asks for several words in the same sentences."""
    words = dict.fromkeys(strip_accents(match[0].lower()) for match in WORD.finditer(with_spelled_dates(text)))
    words |= dict.fromkeys(part for word in words if "@" in word for part in re.split(r"[-.@]", word))  # of an address
    return tuple((word, stem(word)) for word in words)


def _is_form(stemmed: str, word: str, its_stem: str) -> bool:
    """Whether a word is one of a stem."""
    if its_stem == stemmed or (len(stemmed) >= 4 and word.startswith(stemmed) and len(word) <= len(stemmed) + 5):
        return True
    if "-" in word and any(stem(part) == stemmed for part in word.split("-")):
        return True
    if len(stemmed) >= 6 and its_stem[:6] == stemmed[:6] and abs(len(word) - len(stemmed)) <= 4 and word.isalpha():
        return True  # babysitter, babysits
    # The last part of a compound.
    return len(stemmed) >= 5 and len(word) > len(stemmed) + 3 and word.endswith(stemmed)


def has_word(word: str, text: str) -> bool:
    """Whether a text has a word itself, with or without a possessive; a part of a hyphenated one or of an address counts."""
    theirs = [strip_accents(without_possessive(match[0].lower())) for match in WORD.finditer(text)]
    forms = {word, f"{word}s", f"{word}n"}
    return any(one in forms or word == f"{one}s" or word in re.split(r"[-.@/]", one) for one in theirs)


@lru_cache(maxsize=512)
def with_spelled_dates(text: str) -> str:
    """A text with each date such as 2026-11-01 written in words behind it, as people ask for it."""
    return ISO_DATE.sub(lambda at: f"{at[0]} ({int(at['day'])} {_month_names()[int(at['month']) - 1]})", text)


def is_compound(word: str, text: str) -> bool:
    """Whether a long word is made of words of a text, as in German: "garagencode" of "garage" and "code"."""
    if len(word) < LEAST_COMPOUND or not word.isalpha():
        return False
    theirs = {plain for match in WORD.finditer(text) if len(plain := strip_accents(match[0].lower())) >= LEAST_PART}
    for first in theirs:
        begun = first if word.startswith(first) else stem(first)
        if not word.startswith(begun) or len(begun) < LEAST_PART:
            continue
        rest = word[len(begun) :]
        if any(rest.removeprefix(joint) in theirs for joint in ("", *_longest_first("joints"))):
            return True
    return False


def is_name(question: str, word: str) -> bool:
    """Whether a word has a capital letter inside a sentence."""
    found = [match for match in WORD.finditer(question) if strip_accents(without_possessive(match[0].lower())) == word]
    return any(match.start() > 0 and match[0][0].isupper() and not match[0].isupper() for match in found)


def has_full_name(text: str, name: str) -> bool:
    """Whether a text has a name with another word in capitals beside it, which does not merely begin a sentence."""
    named = rf"(?i:{re.escape(name)})"
    after = re.search(rf"\b{named} [A-ZÄÖÜÉ][\w'’-]+", strip_accents(text))
    before = re.search(rf"(?<![.!?] )(?<!^)\b([A-ZÄÖÜÉ][\w'’-]+) {named}\b", strip_accents(text))
    return after is not None or (before is not None and before[1].lower() not in all_words("titles"))


def distance(a: str, b: str, most: int) -> int:
    """How many letters are left out, added, another or in each other's place; more than `most` is told as `most` + 1."""
    first, last = 0, 0
    shorter = min(len(a), len(b))
    while first < shorter and a[first] == b[first]:
        first += 1
    while last < shorter - first and a[-1 - last] == b[-1 - last]:
        last += 1
    a, b = a[first : len(a) - last], b[first : len(b) - last]
    if not a or not b:
        return min(len(a) + len(b), most + 1)
    if most == 1:  # what begins and ends differently is one letter for another, two exchanged, or more
        return 1 if len(a) == len(b) == 1 or (len(a) == 2 and a == b[::-1]) else 2
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        older, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


PLAIN_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
BY_WORDS = 0.8  # share of common words from which two texts are the same
BY_WORDS_NEAR = 0.5  # and with near vectors
BY_MEANING = 0.9  # cosine of all-MiniLM from which wording may differ


def is_same(first: str, second: str, cosine: float | None = None) -> bool:
    """Whether remembering both would be remembering one thing twice; `cosine` of their vectors where there are any."""
    one, two = _words(first), _words(second)
    if one == two:
        return True
    left, right = set(one) - all_words("fillers"), set(two) - all_words("fillers")
    if not left or not right:
        return False
    if _digits(first) != _digits(second) or _negations(left) != _negations(right) or _names(first) != _names(second):
        return False
    share = len(left & right) / len(left | right)
    return share >= BY_WORDS or (cosine is not None and cosine >= BY_MEANING and share >= BY_WORDS_NEAR)


def find_same(text: str, others: Sequence[str], cosines: Sequence[float] = ()) -> int | None:
    """Which of the others says the same, the first; None when none does."""
    for number, other in enumerate(others):
        if is_same(text, other, cosines[number] if number < len(cosines) else None):
            return number
    return None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.lower().replace("’", "'") for word in PLAIN_WORD.findall(text))


def _negations(words: Collection[str]) -> frozenset[str]:
    return frozenset(word for word in words if says("negation", word))


def _digits(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", text))


def _names(text: str) -> frozenset[str]:
    """Words with a capital letter that do not begin a sentence."""
    found = set()
    for match in PLAIN_WORD.finditer(text):
        before = text[: match.start()].rstrip()
        if match[0][0].isupper() and before and before[-1] not in ".!?:" and match[0] != "I":
            found.add(match[0])
    return frozenset(found)
