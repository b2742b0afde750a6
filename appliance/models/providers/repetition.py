"""Whether a text goes in circles: the same words again and again at its end, as small models write until they are stopped.

Knows words, no tokens and no models. Lists, tables and code repeat, too, but change a little each time; what counts here is
the same block, word for word, with nothing in between. Rulers and rows of numbers may be long.
"""

import re

WORDS = re.compile(r"\w+|[^\w\s]")
LONGEST = 120  # words of a block
LOOK_WORDS = 16  # between two looks
FEWEST = 96  # words that have to repeat; what is shorter is a chorus
PLAIN_FEWEST = 400  # ... of a block without letters, such as the rows of a matrix
LONG = 24  # words of a block that nobody says four times
ROUNDS, LONG_ROUNDS = 12, 4
KEPT = max(PLAIN_FEWEST, LONGEST * LONG_ROUNDS) + LONGEST


class Repeats:
    """Follows one text as it comes."""

    def __init__(self) -> None:
        self._rest = ""  # may go on: the last word of what came
        self._words: list[str] = []
        self._unseen = 0

    def feed(self, text: str) -> bool:
        """Take what came; True when the text circles."""
        found = list(WORDS.finditer(self._rest + text))
        whole = self._rest + text
        begin = found[-1].start() if found and found[-1].end() == len(whole) else len(whole)
        fresh = [match.group() for match in found if match.start() < begin]
        self._rest = whole[begin:]
        self._words = [*self._words, *fresh][-KEPT:]
        self._unseen += len(fresh)
        if self._unseen < LOOK_WORDS:
            return False
        self._unseen = 0
        return circles(self._words)


def circles(words: list[str]) -> bool:
    """True when words end in one block said over and over."""
    return any(_counts_repeat(words, length) for length in range(1, min(LONGEST, len(words) // LONG_ROUNDS) + 1))


def _counts_repeat(words: list[str], length: int) -> bool:
    if words[-1] != words[-1 - length] or words[-2 * length : -length] != words[-length:]:
        return False
    same, end = length, len(words)
    while same < end and words[end - same - 1] == words[end - same - 1 + length]:
        same += 1
    fewest = FEWEST if any(letter.isalpha() for word in words[-length:] for letter in word) else PLAIN_FEWEST
    return same >= fewest and same >= length * (LONG_ROUNDS if length >= LONG else ROUNDS)
