"""Misspelled words about time: "tomorow", "wensday", "evry".

Says what a text would be with its near misses mended, and nothing about when that is: whoever asks takes it only where the
mended text is a time, and then asks the person, since it is a guess. Pure.
"""

import re

from appliance.language.edit_distance import distance
from appliance.language.times.lexicon import Lexicon

MIN_CHARS, LONG_CHARS = 4, 7  # of a word that may have one wrong letter, or two
WORD = re.compile(r"[^\W\d_]{4,13}(?:'[^\W\d_]+)?")


def mended(said: str, lexicon: Lexicon) -> str:
    """The text with the nearest word about time for each near miss: a guess, which is for the person to confirm."""

    def correct(found: "re.Match[str]") -> str:
        word = found[0].lower()
        if len(word) < MIN_CHARS or word in lexicon.words:
            return found[0]
        most = 2 if len(word) >= LONG_CHARS else 1
        near = [
            (count, target[-1] != word[-1], target)
            for target in lexicon.long_words
            if abs(len(target) - len(word)) <= most
            and (target[0] == word[0] or word[1:2] == target[:1])
            and (count := distance(word, target, most)) <= most
        ]
        return min(near)[2] if near else found[0]

    return WORD.sub(correct, said)
