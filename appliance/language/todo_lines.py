"""The sentences of a text that say what somebody has to do, for models that are too small to be trusted with it.

A sentence counts that is an open box of a list, is marked as to be done, says that something must, should or needs to be done,
asks for it, or begins with what one is to do. What is done, and what is only wished or asked, does not count.
Pure. Not promised: all of them; a task that is only to be understood from what was said before is not found.
"""

import re

from appliance.language import sentences
from appliance.language.language_files import expression, says

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
