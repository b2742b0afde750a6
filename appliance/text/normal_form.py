"""Unicode's normal forms in time that grows with the text. Pure.

`unicodedata.normalize` sorts combining marks that stand in a row, which takes their number squared: 64,000 of them took 48 s. So no
more than 30 in a row are kept, as many as the stream-safe format of Unicode (UAX 15) has. Two ligatures that stand for a sentence
each are left out: a text of them grows eighteen times.
"""

import re
import unicodedata
from typing import Literal

MOST_MARKS = 30
MAYBE_MARKS = re.compile(r"[^\w\x00-\x7f]{31,}")  # marks are neither letters nor ASCII
SENTENCES = re.compile("[\ufdfa\ufdfb]")


def normalized(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """The text in a normal form."""
    if text.isascii():
        return text
    text = MAYBE_MARKS.sub(_without_many, text)
    return unicodedata.normalize(form, SENTENCES.sub("", text) if "K" in form else text)


def _without_many(match: re.Match[str]) -> str:
    kept, marks = [], 0
    for letter in match[0]:
        marks = marks + 1 if unicodedata.combining(letter) else 0
        if marks <= MOST_MARKS:
            kept.append(letter)
    return "".join(kept)
