"""What the program writes itself where a tiny or small model would have to: a report of tasks, the tasks of a text, its summary.

Pure, but for the list that a tool answered with. Nothing is added to the words of the tasks or of the text: a summary is made of
its own sentences, those that hold the words which the text uses most, in their order.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from appliance.language import sentences
from appliance.language.items import find_todos
from appliance.language.languages import Language

MOST = 3  # tasks of each kind
RANKS = {"high": 0, "medium": 1, "low": 2}
STUCK = ("waiting", "failed")


def write_standup(tasks: Sequence[Mapping[str, Any]], now: datetime, language: Language) -> str:
    """Three lines: what was done since the last working day began, what comes next, what waits or failed."""
    since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days={0: 3, 6: 2}.get(now.weekday(), 1))
    done = [one for one in tasks if one["status"] == "complete" and (one["ended_ms"] or 0) >= since.timestamp() * 1000]
    stuck = [one for one in tasks if one["status"] in STUCK]
    ready = [one for one in tasks if one["status"] in ("pending", "in_progress") and not one["open_blockers"]]
    ready.sort(key=lambda one: (one["status"] != "in_progress", RANKS.get(one["priority"], 1), one["id"]))
    parts = (("done_line", done), ("next_line", ready), ("stuck_line", stuck))
    nothing = language.say("nothing_word")
    return "\n".join(language.say(key, text=", ".join(one["name"] for one in some[:MOST]) or nothing) for key, some in parts)


def write_todos(text: str, language: Language) -> str:
    """What a text says is to be done, numbered, and how to keep one of it."""
    found = find_todos(text)
    if not found:
        return language.say("no_todos")
    lines = (f"{number}. {one}" for number, one in enumerate(found, 1))
    return "\n".join([language.say("todos"), *lines, language.say("keep_todo")])


WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
HEADING = re.compile(r"^#{1,6}\s.*$", re.MULTILINE)
STEM = 6  # letters by which two forms of a word count as one
FIRST = 1.3  # what the first sentence counts, which often says what the text is about
MAX_CHARS = 400


def summary(text: str, ignored: Collection[str], most: int = 3, max_chars: int = MAX_CHARS) -> str:
    """At most so many sentences of a text, and as many characters; always one, "" for a text without any."""
    said = [one for one in dict.fromkeys(sentences.split(HEADING.sub("", text))) if WORD.search(one) and not one.endswith(",")]
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
