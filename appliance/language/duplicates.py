"""Whether two texts say the same: by wording, and by meaning where vectors are at hand.

Two texts are never the same when their numbers, their names or their negations differ, however near they lie: "the code is 4711"
and "the code is 4712" are two facts. Pure.
"""

import re
from collections.abc import Collection, Sequence

from appliance.language.languages import all_words, says

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
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
    return tuple(word.lower().replace("’", "'") for word in WORD.findall(text))


def _negations(words: Collection[str]) -> frozenset[str]:
    return frozenset(word for word in words if says("negation", word))


def _digits(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+", text))


def _names(text: str) -> frozenset[str]:
    """Words with a capital letter that do not begin a sentence."""
    found = set()
    for match in WORD.finditer(text):
        before = text[: match.start()].rstrip()
        if match[0][0].isupper() and before and before[-1] not in ".!?:" and match[0] != "I":
            found.add(match[0])
    return frozenset(found)
