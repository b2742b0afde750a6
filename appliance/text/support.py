"""Whether an answer says only what given texts say: every number and name of it, and nearly all of its other words.

A model that is too small to be trusted puts what it was shown into a sentence of its own; here it is checked word by word, so
that no made-up fact gets a source. Not promised: that the words stand in the same relation to each other as in the texts; an
answer that joins two sentences wrongly is found only where its words come from different ones.
"""

import re
import unicodedata
from collections.abc import Collection, Sequence

WORD = re.compile(r"[^\W_]+(?:[-'’.,:@/][^\W_]+)*")
SHARE = 0.8  # of the words that are neither numbers nor names
STEM = 5  # letters by which two forms of a word are told to be the same
ADMISSION = re.compile(
    r"\b(?:do(?:es)? not|don['’]t|doesn['’]t|did not|is not|isn['’]t|not) "
    r"(?:know|say|mention|given|mentioned|specified|provided|stated|contain)"
    r"|weiß (?:ich )?nicht|nicht (?:bekannt|erwähnt)|ne sais pas|no (?:lo )?sé|no information|cannot|unknown",
    re.IGNORECASE,
)


def is_supported(answer: str, texts: Sequence[str], question: str, ignored: Collection[str]) -> bool:
    """True when an answer adds something to the question, and all that it adds stands in one of the texts."""
    if ADMISSION.search(answer):
        return False
    asked = _stem_words(question)
    new = [match[0] for match in WORD.finditer(answer) if match[0].lower() not in ignored and _stem_word(match[0]) not in asked]
    return bool(new) and any(_holds_words(text, new) for text in texts)


def _holds_words(text: str, words: Sequence[str]) -> bool:
    known = _stem_words(text)
    hard = [word for word in words if any(c.isdigit() for c in word) or word[0].isupper()]
    soft = [word for word in words if word not in hard]
    if any(_stem_word(word) not in known for word in hard):
        return False
    return not soft or sum(_stem_word(word) in known for word in soft) >= SHARE * len(soft)


def _stem_words(text: str) -> set[str]:
    found = set()
    for match in WORD.finditer(text):
        found.add(_stem_word(match[0]))
        found.update(_stem_word(part) for part in re.split(r"[-'’/]", match[0]) if part)
    return found


def _stem_word(word: str) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn")
    plain = plain.replace("’", "'").removesuffix("'s").strip(".,:")
    return plain if any(c.isdigit() for c in plain) else plain[:STEM]
