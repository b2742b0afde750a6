"""Typing errors in requests and in questions, and compounds taken apart: nothing is looked up in a dictionary.

In a request a word of four letters or more that is in none of the lists of its language, and one letter away from a word of its
sentences (left out, added, two in each other's place, or in a word of six another; two letters from a word of eight), is put in its
place. Whether the message then asks for something is for the sentences to say, and its parts stay as they were typed: a misspelled
time is asked back. Words that people shorten ("pls", "u") are replaced too. Names are left alone: a word with a capital letter
inside a sentence is no typing error. In a question a word is known when a note has it, or when it is one of everyday life. Pure but
for counting in the index how many passages have a word.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct

from appliance.language.languages import Language, all_words, strip_accents
from appliance.language.word_forms import (
    LEAST_COMPOUND,
    LEAST_PART,
    WORD,
    content_words,
    distance,
    has_stem,
    is_name,
    stem,
)

TYPED_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
LEAST_LETTERS = 4
LEAST_EXCHANGED = 6  # letters of the word that is meant, for another letter in place of one
LONG_LETTERS = 8  # of the word that is meant, for two errors
MOST_ERRORS = 3  # words of a message
MOST_WAYS = 3  # in which each of them may be meant


class Correction(Struct, frozen=True):
    """A text with words in place of those that were typed. `places` are their spans in it, and the words as typed."""

    text: str
    places: tuple[tuple[int, int, str], ...]

    def as_typed(self, part: str) -> str:
        """A part of the text in the words of the person."""
        at = self.text.translate(MARKS).rfind(part.translate(MARKS))
        if at < 0:
            return part
        made, last = "", at
        for start, end, typed in self.places:
            if start >= at and end <= at + len(part):
                made, last = f"{made}{self.text[last:start]}{typed}", end
        return made + self.text[last : at + len(part)]


MARKS = str.maketrans(dict.fromkeys(".;!?", ","))


def mended(text: str, language: Language, real: frozenset[str] = frozenset()) -> list[Correction]:
    """A text with its typing errors mended, each way that it may be meant; none where there is no error, or there are too many.

    `real` are words of any language that are no typing errors.
    """
    words = list(TYPED_WORD.finditer(text))
    meant = [[] if one[0].lower() in real else _words_meant(text, one, language) for one in words]
    wrong = [at for at, found in enumerate(meant) if found and words[at][0].lower() not in language.short]
    if len(wrong) > MOST_ERRORS or not any(meant):
        return []
    first = [found[0] if found else "" for found in meant]
    others = [(at, other) for at in wrong for other in meant[at][1:MOST_WAYS]]
    return [_put_in(text, words, chosen) for chosen in (first, *([*first[:at], other, *first[at + 1 :]] for at, other in others))]


def _put_in(text: str, words: Sequence["re.Match[str]"], chosen: Sequence[str]) -> Correction:
    made, last, places = "", 0, []
    for found, meant in zip(words, chosen):
        if meant:
            made += text[last : found.start()]
            places.append((len(made), len(made) + len(meant), found[0]))
            made, last = made + meant, found.end()
    return Correction(made + text[last:], tuple(places))


def _words_meant(text: str, found: "re.Match[str]", language: Language) -> list[str]:
    """What a word of a text may stand for, the nearest first; none where it stands for itself."""
    word = found[0].lower()
    if word in language.short:
        return [language.short[word]]
    return _near_words(word, language) if _may_be_wrong(text, found) else []


def _may_be_wrong(text: str, found: "re.Match[str]") -> bool:
    before = text[: found.start()].rstrip()
    is_first = not before or before.endswith((".", "!", "?", ":", "¿", "¡"))
    return len(found[0]) >= LEAST_LETTERS and (is_first or not found[0][0].isupper())


def _near_words(word: str, language: Language) -> list[str]:
    if word in language.known_words:
        return []
    near: list[tuple[int, str]] = []
    cues = language.cues_by_letter
    exchanged = (other for other in cues.get((0, word[1]), ()) if other[1] == word[0])
    for other in {*cues.get((0, word[0]), ()), *cues.get((1, word[1]), ()), *exchanged}:
        most = 2 if len(other) >= LONG_LETTERS and other[0] == word[0] else 1
        if abs(len(other) - len(word)) > most:
            continue
        if any(word == other + ending for ending in all_words("inflections")) or _is_another_short_word(word, other):
            continue
        if (found := distance(word, other, most)) <= most:
            near.append((found, other))
    return [other for _, other in sorted(near)]


def _is_another_short_word(word: str, other: str) -> bool:
    """Whether a letter is another: of short words, most of those that differ so are words of their own ("lost", "list")."""
    a, b = strip_accents(word), strip_accents(other)
    return len(other) < LEAST_EXCHANGED and len(a) == len(b) and a != b and sorted(a) != sorted(b)


MISTYPED_CHARS, LONG_CHARS = 5, 8  # letters of a word that may have a typing error, and two


class QuestionWords:
    """Reads questions. `count` says how many passages have each of some words, `alike` has the stems of everyday life."""

    def __init__(
        self, count: Callable[[Sequence[str]], Mapping[str, int]], ignored: Collection[str], alike: Collection[str]
    ) -> None:
        self._count = count
        self._ignored = ignored
        self._alike = alike

    def without_errors(self, question: str, words: list[str], theirs: Collection[str]) -> tuple[str, list[str]]:
        """A question and its words with those of the notes found in place of words one letter away that no note has.

        Names stay as they are but for two letters in each other's place: whoever asks for Jonah does not mean Jonas.
        """
        counts = self._count(words)
        theirs = [one for one in theirs if one.isalpha()]
        meant: dict[str, str] = {}
        for word in words:
            if self._is_mistyped_function_word(word, counts):
                meant[word] = ""
            if word in meant or len(word) < MISTYPED_CHARS or not word.isalpha() or counts.get(word):
                continue
            if is_name(question, word):
                swapped = [one for one in theirs if one != word and sorted(one) == sorted(word) and distance(word, one, 1) == 1]
                meant |= {word: swapped[0]} if swapped else {}
                continue
            if stem(word) in self._alike or any(has_stem(stem(word), other) for other in theirs):
                continue
            most = 2 if len(word) >= LONG_CHARS else 1
            near = [one for one in theirs if one[0] == word[0] and len(one) >= MISTYPED_CHARS and distance(word, one, most) <= most]
            if near:
                meant[word] = min(near, key=lambda one: distance(word, one, most))
        if not meant:
            return question, words
        words = [word for word in words if meant.get(word) != ""] or words
        mended = WORD.sub(lambda match: meant.get(strip_accents(match[0].lower()), match[0]), question)
        return mended, list(dict.fromkeys(meant.get(word, word) for word in words))

    def _is_mistyped_function_word(self, word: str, counts: Mapping[str, int]) -> bool:
        """Whether a word that no note has is one letter from a word that carries no meaning: "shuold"."""
        if len(word) < MISTYPED_CHARS or not word.isalpha() or counts.get(word) or stem(word) in self._alike:
            return False
        near = (one for one in self._ignored if one[0] == word[0] and len(one) >= MISTYPED_CHARS)
        return any(distance(word, one, 1) <= 1 for one in near)

    def with_parts(self, question: str) -> str:
        """A question with the two words of each compound in its place, as in German, where both are known and the whole is not."""
        words = content_words(question, self._ignored)
        counts = self._count([*words, *(word[:-1] for word in words)])
        # "Fritzis number", "des Vereins": the name itself is what a note has.
        known = {w: w[:-1] for w in words if w.endswith("s") and not counts.get(w) and counts.get(w[:-1]) and w.isalpha()}
        known |= {
            w: w.replace("-", " ") for w in words if "-" in w and not counts.get(w) and all(part.isalpha() for part in w.split("-"))
        }
        known |= {word: parts for word in words if word not in known and (parts := self._parts_of(word))}
        return WORD.sub(lambda match: known.get(strip_accents(match[0].lower()), match[0]), question) if known else question

    def _parts_of(self, word: str) -> str:
        """The two words, of notes or of everyday life, that a compound is made of; "" for a word that is known, or that is none."""
        count = self._count
        if len(word) < LEAST_COMPOUND or not word.isalpha() or stem(word) in self._alike or count([word]).get(word):
            return ""
        splits = [(word[:at], word[at:]) for at in range(LEAST_PART, len(word) - LEAST_PART + 1)]
        firsts = {
            first: (first, *(first[: -len(joint)] for joint in all_words("joints") if first.endswith(joint))) for first, _ in splits
        }
        counts = count([*(one for found in firsts.values() for one in found), *(last for _, last in splits)])

        def is_known(one: str) -> bool:
            return bool(counts.get(one)) or (len(one) > LEAST_PART and stem(one) in self._alike)

        pairs = ((one, last) for first, last in splits for one in firsts[first] if len(one) >= LEAST_PART)
        return next((f"{one} {last}" for one, last in pairs if is_known(one) and is_known(last)), "")
