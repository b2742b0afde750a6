"""Lists: several things in one request, the tasks that a text names, and the lines at the end of a note. Pure.

A list takes each thing by itself ("flour, milk and eggs"). A task may hold several in its own words ("call Anna and Ben"), so it is
parted only where each part stands for itself: three or more of them, each of several words where the first is, or where the person
says "them". A sentence says what somebody has to do that is an open box, is marked as to be done, says that something must or
should be done, asks for it, or begins with what one is to do; what is done, only wished or asked does not count. A note that ends
in a list gets items of that list: the same mark, an open box beside boxes, the next number; any other note gets a paragraph.
"""

import re
from collections.abc import Collection, Sequence

from appliance.errors import Conflict
from appliance.language import sentences
from appliance.language.languages import Language, expression, says, words_in

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
    return [one for part in language.parted.split(text.strip(EDGE)) if (one := part.strip(EDGE))]


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


MOST = 20
OPEN_BOX = re.compile(r"^\s*(?:[-*+]\s*)?\[ \]\s*")
CLOSED_BOX = re.compile(r"^\s*(?:[-*+]\s*)?\[[xX]\]")


def find_todos(text: str) -> list[str]:
    """What is to be done, in the words and the order of the text, each once."""
    found: list[str] = []
    for line in text.splitlines():
        if CLOSED_BOX.match(line):
            continue
        if OPEN_BOX.match(line):
            found.append(OPEN_BOX.sub("", line).strip())
            continue
        marked = expression("todo_mark").match(line)
        for one in sentences.split(line[marked.end() :] if marked else line):
            if marked or _is_todo(one):
                found.append(one)
    return [one for one in dict.fromkeys(found) if one][:MOST]


def _is_todo(sentence: str) -> bool:
    if sentence.endswith("?") and expression("todo_asked").match(sentence) is None:
        return False
    if says("todo_done", sentence) or says("todo_rule", sentence):
        return False
    return says("todo_must", sentence) or says("todo_before", sentence) or is_deed(sentence)


def is_deed(text: str) -> bool:
    """Whether a text begins with what one is to do."""
    return expression("todo_deed").match(text) is not None


ITEM = re.compile(r"^(?P<space>\s*)(?P<mark>[-*+]|(?P<number>\d{1,4})(?P<dot>[.)]))(?P<gap>\s+)(?P<box>\[[ xX]\]\s+)?")


def is_list(body: str) -> bool:
    """Whether a note ends in a list."""
    return _last_item(body) is not None


def added(body: str, lines: Sequence[str]) -> str:
    """A note with these lines behind it."""
    kept, last = body.rstrip(), _last_item(body)
    if last is None:
        made = "\n\n".join(line.strip() for line in lines)
        return f"{kept}\n\n{made}\n" if kept else f"{made}\n"
    made = "\n".join(_item(last, at, line.strip()) for at, line in enumerate(lines, 1))
    return f"{kept}\n{made}\n"


def taken_off(body: str, lines: Sequence[str]) -> str:
    """A note without the lines that `added` put behind it; Conflict when it does not end in them any more."""
    rows = body.rstrip().split("\n")
    for line in reversed(lines):
        while rows and not rows[-1].strip():
            rows.pop()
        if not rows or ITEM.sub("", rows[-1], count=1).strip() != ITEM.sub("", line.strip(), count=1).strip():
            raise Conflict(f"the note does not end in {line!r}", hint="somebody changed it since")
        rows.pop()
    return "\n".join(rows).rstrip() + "\n"


def _last_item(body: str) -> "re.Match[str] | None":
    row = next((row for row in reversed(body.rstrip().split("\n")) if row.strip()), "")
    return ITEM.match(row)


def _item(last: "re.Match[str]", at: int, text: str) -> str:
    mark = f"{int(last['number']) + at}{last['dot']}" if last["number"] else last["mark"]
    return f"{last['space']}{mark}{last['gap']}{'[ ] ' if last['box'] else ''}{text}"
