"""The words of a question as notes write them: compounds taken apart, a genitive without its ending, typing errors mended.

Nothing is looked up in a dictionary: a word is known when a note has it, or when it is one of everyday life. Pure but for counting
in the index how many passages have a word.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from appliance.language.edit_distance import distance
from appliance.language.language_files import all_words
from appliance.language.word_forms import (
    LEAST_COMPOUND,
    LEAST_PART,
    WORD,
    content_words,
    has_stem,
    is_name,
    stem,
    strip_accents,
)

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
