"""Which request a message likely is that fits no sentence: a linear classifier over word and letter n-grams.

It decides only whether to ask back ("Shall I add the task ...?"), never an effect. Its weights are fitted by `make train-language`
from the sentences of the language files and from sets of requests and of sentences that ask for nothing, and ship as one file.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources

import msgspec
from msgspec import Struct

KINDS = ("none", "remind", "task", "remember", "other")  # `other`: an effect that cannot be asked back from its words alone
ASKED = ("remind", "task", "remember")
WORDS = (1, 3)  # least and most words of an n-gram
LETTERS = (3, 5)  # and letters of a word, its ends counted
MOST_CHARS = 200  # of a message that is a request in passing
TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)?|[:?!,]")
DIGIT = re.compile(r"\d")


class RequestWeights(Struct, frozen=True):
    """`ngrams` gives each a whole number for each of `KINDS`, in parts of `scale`; `least` is the probability from which to ask."""

    scale: float
    least: float
    bias: tuple[int, ...]
    ngrams: Mapping[str, tuple[int, ...]]


def ngrams(text: str) -> Iterator[str]:
    """The n-grams of a text, each digit read as 0: of its words, and of the letters of each word."""
    words = DIGIT.sub("0", text[:MOST_CHARS].lower().replace("’", "'"))
    found = ["^", *TOKEN.findall(words), "$"]
    least, most = WORDS
    for size in range(least, most + 1):
        for at in range(len(found) - size + 1):
            yield " ".join(found[at : at + size])
    least, most = LETTERS
    for word in found[1:-1]:
        ends = f"_{word}_"
        for size in range(least, min(most, len(ends) - 1) + 1):
            for at in range(len(ends) - size + 1):
                yield ends[at : at + size]


def probabilities(text: str, weights: RequestWeights) -> list[float]:
    """How likely each of `KINDS` is."""
    found = set(ngrams(text))
    known = [weights.ngrams[one] for one in found if one in weights.ngrams]
    length = math.sqrt(len(found)) or 1.0
    scores = [(sum(one[at] for one in known) / length + weights.bias[at]) * weights.scale for at in range(len(KINDS))]
    shares = [math.exp(score - max(scores)) for score in scores]
    return [share / sum(shares) for share in shares]


def likely_request(text: str) -> str:
    """Which of `ASKED` a message likely is, "" for none."""
    if len(text) > MOST_CHARS:
        return ""
    weights = _read_weights()
    shares = dict(zip(KINDS, probabilities(text, weights)))
    kind = max(ASKED, key=lambda one: shares[one])
    return kind if sum(shares[one] for one in ASKED) >= weights.least else ""


@lru_cache(maxsize=1)
def _read_weights() -> RequestWeights:
    """The weights that ship, read at the first message that needs them."""
    data = (resources.files("appliance") / "language" / "weights" / "requests.json").read_bytes()
    return msgspec.json.decode(data, type=RequestWeights)
