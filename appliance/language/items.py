"""Several things in one request, taken apart: "flour, milk and eggs" are three items of a list. Pure.

A list takes each thing by itself. A task may hold several in its own words ("call Anna and Ben"), so it is parted only where each
part stands for itself: three or more of them, each of several words where the first is, or where the person says "them".
"""

import re
from collections.abc import Collection, Sequence

from appliance.language.languages import Language, words_in
from appliance.language.todo_lines import is_deed

MOST_ITEMS = 20
MOST_WORDS = 8  # of one item among several
SHORT = 4  # words of each of two that are only linked by "and"
LEAST_TASKS = 3  # parts of an enumeration of tasks
EDGE = ' ,;.!\t\n"“”„«»'
LAST = -1
QUOTED = re.compile(r"[\"“„«][^\"“”„«»]+[\"”“»]")


def listed(text: str, language: Language) -> list[str]:
    """The things that a text names for a list, without articles: at its commas and at "and"."""
    if QUOTED.fullmatch(text.strip()) or len(text.splitlines()) > 1:
        return [line.strip(EDGE) for line in text.splitlines() if line.strip(EDGE)]
    found = _parts(text, language)
    if len(found) > 1 and max(len(one.split()) for one in found) > MOST_WORDS:
        return [text.strip(EDGE)]
    if len(found) == 2 and "," not in text and ";" not in text and max(len(one.split()) for one in found) > SHORT:
        return [text.strip(EDGE)]
    return [without_article(one, language) for one in found][:MOST_ITEMS] or [text.strip(EDGE)]


def tasks(text: str, language: Language, *, is_several: bool = False) -> list[str]:
    """The tasks that a text names; the text itself where it may be one. `is_several`: the person spoke of "them"."""
    if link := language.phrases.get("also_duty"):
        text = re.sub(rf"\s+(?:{link})\s*\b", " ; ", text, flags=re.IGNORECASE)
    found = _parts(text, language)
    is_several = is_several or ";" in text or all(_is_deed(one, language) for one in found)
    if len(found) < 2 or max(len(one.split()) for one in found) > MOST_WORDS:
        return [text.strip(EDGE)]
    first, rest = len(found[0].split()), [len(one.split()) for one in found[1:]]
    is_shared = first > 1 and max(rest) == 1  # "call Anna, Ben and Carl": the verb is said once
    is_enumeration = len(found) >= LEAST_TASKS and ("," in text or ";" in text)
    if is_shared or not (is_enumeration or is_several):
        return [text.strip(EDGE)]
    return found[:MOST_ITEMS]


def without_article(text: str, language: Language) -> str:
    """An item without the article before it: "some milk", "du lait"."""
    words = text.split()
    if len(words) > 1 and words[0].lower() in language.words["articles"]:
        words = words[1:]
        if len(words) > 1 and words[0].lower() in language.words["articles"]:  # "de la farine"
            words = words[1:]
    bare = " ".join(words)
    return language.expression("partitive").sub("", bare) or bare


def says_several(text: str, language: Language) -> bool:
    """Whether a request speaks of more than one thing: "add them", "put both"."""
    return bool(set(words_in(text)) & language.words["several"])


def _is_deed(text: str, language: Language) -> bool:
    """Whether a text says what is to be done: it begins with such a verb, or has an infinitive where its language puts it."""
    words = words_in(text)
    if len(words) < 2:
        return False
    first, last = language.expression("infinitive_first"), language.expression("infinitive_last")  # "payer ...", "... machen"
    return is_deed(text) or first.fullmatch(words[0]) is not None or last.fullmatch(words[-1]) is not None


def _parts(text: str, language: Language) -> list[str]:
    links = "|".join(sorted(map(re.escape, language.words["links"]), key=len, reverse=True))
    found = re.split(rf"\s*[,;]\s*(?:(?:{links})\s+)?|\s+(?:{links})\s+" if links else r"\s*[,;]\s*", text.strip(EDGE))
    return [one.strip(EDGE) for one in found if one.strip(EDGE)]


def ordinal(text: str, language: Language, count: int) -> Sequence[int] | None:
    """Which of so many listed things a short answer means, from 0: "the second one", "both"; None for no such answer."""
    words = [word for word in words_in(text) if word not in language.words["around"]]
    numbers = language.words["ordinals"]
    if words and set(words) <= language.words["all"]:
        return tuple(range(count))
    if len(words) != 1:
        return None
    place = _places(numbers).get(words[0])
    if place is None:
        return None
    at = count - 1 if place == LAST else place - 1
    return (at,) if 0 <= at < count else None


def _places(given: Collection[str]) -> dict[str, int]:
    """The place that each word stands for, as `word=2`."""
    found = {}
    for one in given:
        word, _, place = one.partition("=")
        found[word] = LAST if place == "last" else int(place or 0)
    return found
