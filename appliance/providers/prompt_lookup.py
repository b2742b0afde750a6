"""Prompt-lookup decoding: guesses the next tokens of an answer from what the prompt and the answer said before.

Where the last tokens stand earlier in the text, what followed them there is the guess. Guessed tokens are evaluated together
with the one that was drawn, which costs less than one after the other; each is then drawn as if there had been no guess, and
what comes after the first wrong one is forgotten. So the text is the same, sooner. An answer that quotes, summarises or rewrites
gains; in any other one guessing pauses by itself. Owns the guesses; knows nothing about llama.cpp.
"""

from array import array
from collections.abc import Sequence

AGREE = 3  # tokens at the end that have to stand earlier, too
FIRST_GUESS, LONGEST_GUESS = 2, 7  # eight tokens at once: kernels take four rows in one step, and a ninth costs as much as two
TRIED = 8  # guessed tokens after which guessing has to have been right
LEAST_RIGHT = 0.4  # of them: a guessed token takes a third of the time of one that is drawn (bundled model, 2026-11-24)
KEPT = 0.8  # weight of earlier guesses at each new one: an answer may begin to quote late
PAUSE_GUESSES = 32  # that are left out where guessing was wrong
TOKEN_BYTES = 4


class PromptLookup:
    """Guesses for one answer, and how right they were."""

    def __init__(self) -> None:
        self._size = FIRST_GUESS
        self._tried = self._right = 0.0
        self._pause = 0
        self.guessed = self.right = 0

    def guess(self, tokens: Sequence[int], room: int) -> list[int]:
        """What may come after this text, at most `room` tokens; often nothing."""
        if self._pause > 0:
            self._pause -= 1
            return []
        at = find_continuation(tokens)
        return list(tokens[at : at + max(0, min(room, self._size))]) if at is not None else []

    def judge(self, guessed: int, right: int) -> None:
        """Of the tokens that were guessed last so many were right."""
        self.guessed, self.right = self.guessed + guessed, self.right + right
        self._tried = self._tried * KEPT + guessed
        self._right = self._right * KEPT + right
        self._size = min(LONGEST_GUESS, self._size * 2) if right == guessed else FIRST_GUESS
        if self._tried >= TRIED and self._right < LEAST_RIGHT * self._tried:
            self._pause, self._tried, self._right = PAUSE_GUESSES, 0.0, 0.0


def find_continuation(tokens: Sequence[int]) -> int | None:
    """Where a text went on the last time that it said what it ends with; None when it never did."""
    data, length = array("i", tokens).tobytes(), AGREE * TOKEN_BYTES
    end = len(data) - TOKEN_BYTES  # the end itself is no earlier place
    while end >= length and (at := data.rfind(data[-length:], 0, end)) >= 0:
        if at % TOKEN_BYTES == 0:
            return at // TOKEN_BYTES + AGREE
        end = at + length - 1  # found between two tokens
    return None
