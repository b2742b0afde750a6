"""A summary of a text made of its own sentences: those that hold the words which the text uses most, in their order.

For models that are too small to be trusted with one, and in place of an answer that says more than the text. Adds no word.
"""

import re
from collections import Counter
from collections.abc import Collection

from appliance.language import sentences

WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
HEADING = re.compile(r"^#{1,6}\s.*$", re.MULTILINE)
STEM = 6  # letters by which two forms of a word count as one
FIRST = 1.3  # what the first sentence counts, which often says what the text is about
MAX_CHARS = 400


def summary(text: str, ignored: Collection[str], most: int = 3, max_chars: int = MAX_CHARS) -> str:
    """At most so many sentences of a text, and as many characters; always one, "" for a text without any."""
    said = [one for one in dict.fromkeys(sentences.split(HEADING.sub("", text))) if WORD.search(one)]
    if len(said) <= 1:
        return "".join(said)
    words = [[w.lower()[:STEM] for w in WORD.findall(one) if w.lower() not in ignored] for one in said]
    counts = Counter(word for line in words for word in set(line))

    def weight(place: int) -> float:
        line = words[place]
        own = sum(counts[word] for word in set(line)) / (len(line) + 3) if line else 0.0  # 3: a sentence of one word says little
        return own * (FIRST if place == 0 else 1.0)

    chosen: list[int] = []
    for place in sorted(range(len(said)), key=lambda one: (-weight(one), one)):
        if chosen and sum(len(said[one]) + 1 for one in (*chosen, place)) > max_chars:
            continue
        chosen.append(place)
        if len(chosen) == most:
            break
    return " ".join(_close_sentence(said[place]) for place in sorted(chosen))


def _close_sentence(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", "…", ":", ";")) else f"{sentence}."
