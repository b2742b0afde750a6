"""When something is to be, told in another language than English: the words that say so, and what they are in English.

The one parser of times reads English (`language.times`); a language file holds its words for time with their English ones. In
a text the longest run of such words is taken for the time, the rest for what it is about. In doubt there is none: whoever asked
is then asked when. Pure.
"""

import re

from appliance.language.languages import Language

NUMBER = re.compile(r"\d{1,4}(?::\d{2})?(?:-\d{2}-\d{2})?(?=\W|$)")
ANCHOR = re.compile(
    r"minute|hour|\bdays?\b|week|month|\d:\d\d|\bat \d|day\b|tomorrow|today|tonight|noon|midnight|every|morning|evening|afternoon"
    r"|\d{1,2} (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
)
EDGE = re.compile(
    r"^(?:daran|dass|an|ans|zu|zum|zur|de|d['’]|que|qu['’]|à|a|al|auf|für|pour|para|con|wegen)\b[\s,]*|^d['’]", re.IGNORECASE
)
LAST = re.compile(r"[\s,]+(?:daran|an|zu|de|que|à|a|y|et|und)$", re.IGNORECASE)
BARE = re.compile(r"^\d+ (?:minutes?|hours?|days?|weeks?|months?)$")
CLOCK = re.compile(r"^\d{1,2}(?::\d{2})?\b")
MOST_WORDS = 12


def parted(text: str, language: Language) -> tuple[str, str]:
    """What a text is about, and when in English; "" for the second where it does not say."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    for size in range(min(MOST_WORDS, len(words)), 0, -1):
        for first in range(len(words) - size + 1):
            start, end = words[first][0], words[first + size - 1][1]
            when = translated(text[start:end].strip(" ,.!?"), language)
            if when and ANCHOR.search(when):
                what = f"{text[:start].strip(' ,')} {text[end:].strip(' ,')}".strip(" ,.!?")
                while (shorter := LAST.sub("", EDGE.sub("", what)).strip(" ,")) != what:
                    what = shorter
                return what, _add_prepositions(when)
    return text, ""


def translated(text: str, language: Language) -> str:
    """A text that consists of words for time alone, in English; "" for any other."""
    made, at = [], 0
    while at < len(text):
        if text[at] in " ,":
            at += 1
            continue
        for pattern, english in language.times:
            if (found := _compile_pattern(pattern).match(text, at)) is not None and found.end() > at:
                made.append(_fill_template(english, found))
                at = found.end()
                break
        else:
            number = NUMBER.match(text, at)
            if number is None:
                return ""
            made.append(number[0])
            at = number.end()
    return re.sub(r"\b(\w+) next\b", r"next \1", " ".join(" ".join(made).split()))


def _compile_pattern(pattern: str) -> "re.Pattern[str]":
    is_word = "(?=" not in pattern and (pattern[-1].isalnum() or pattern[-1] in ")?")
    return re.compile(rf"(?:{pattern})(?!\w)" if is_word else pattern, re.IGNORECASE)


def _fill_template(english: str, found: "re.Match[str]") -> str:
    text = english.replace("{-1}", str((int(found[1]) - 1) or 12) if "{-1}" in english else "")
    for number in range(1, (found.re.groups or 0) + 1):
        text = text.replace(f"{{{number}}}", found[number] or "")
    return text


def _add_prepositions(when: str) -> str:
    """The words for time with what English puts before them."""
    when = re.sub(r"\bon every\b", "every", re.sub(r"\bin in\b", "in", when))
    when = re.sub(r"\bat on\b", "on", when)
    if BARE.match(when):
        return f"in {when}"
    if CLOCK.match(when) and not re.match(r"^\d{1,2} [a-z]{3}", when):
        return f"at {when}"
    return re.sub(r"(?<!at )(?<!\d )\b(\d{1,2}:\d{2})", r"at \1", when)
