"""The text with which a piece of work is begun, and the notes before a question: written and read back at one place. Pure.

A model reads such a text as it is; for a tiny or small one the program reads it back. Not promised: that a description which holds
one of our own headings on a line of its own is read as a whole.
"""

import re

from msgspec import Struct

TASK = "Task: "
PREDECESSORS = "Predecessor Task Outputs"
TEXTS = "Texts that belong to the task"
EARLIER = "Earlier attempts at this task have done this already; go on from there and do not repeat it"
FORM = "Answer in this form: "
# A reason to wait that holds this is over once a more capable model can be asked.
NEEDS_MODEL = "(owlbox model add)"
# And one that holds this is a person's own: it stays on their list, and nobody is told that it waits.
FOR_PERSON = "(owlbox task done)"
HEADINGS = re.compile(rf"^(?P<title>{'|'.join(map(re.escape, (PREDECESSORS, TEXTS, EARLIER)))}):$", re.MULTILINE)
LIST = re.compile(r"<(?P<file>[\w.]+)>\n(?P<text>.*)\n</(?P=file)>\s*\Z", re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*]|\d+[.)])?\s*(?:\[ \])?\s*")
REF = re.compile(r"^\[[a-z]+://[^\]\n]+\]\n", re.MULTILINE)
FORM_LINE = re.compile(rf"(?:\A|\n\n){re.escape(FORM)}.*\Z", re.DOTALL)


class WorkRequest(Struct, frozen=True):
    """What is asked for: a name and more about it, and the texts that were given with it."""

    name: str
    description: str = ""
    texts: str = ""
    is_task: bool = False  # of the list, where it can stay
    has_more: bool = False  # a form for the answer, results of other tasks or of earlier attempts, which only a model can use

    @property
    def wordings(self) -> tuple[tuple[str, str], ...]:
        """How the whole request may be said in one sentence, the likeliest first, each with the text that was given with it."""
        if self.description:
            return (self.description, self.texts), (f"{self.name.rstrip(' .:')}: {self.description}", self.texts)
        before, gap, last = self.name.rpartition("\n\n")
        return ((self.name, self.texts), (last, before)) if gap else ((self.name, self.texts),)


def read(text: str) -> WorkRequest:
    """A request as it was meant. What is no task is one sentence, with its text below it or, in paragraphs before, above it."""
    text, count = FORM_LINE.subn("", text)
    if not text.startswith(TASK):
        return WorkRequest(text.strip(), has_more=bool(count))
    parts = HEADINGS.split(text[len(TASK) :])
    sections = dict(zip(parts[1::2], parts[2::2]))
    name, _, description = parts[0].strip().partition("\n\n")
    texts = REF.sub("", sections.get(TEXTS, "").strip())
    return WorkRequest(name, description.strip(), texts, True, bool(count) or PREDECESSORS in sections)


def listed(text: str) -> list[str]:
    """The lines of a list to look after, without their marks; none when the text has no such list."""
    found = LIST.search(text)
    return [ITEM.sub("", line).strip() for line in found["text"].splitlines() if line.strip()] if found else []


NOTES = "Notes:"
QUESTION = "\n\nQuestion: "
NOTE = re.compile(r"^- (.*) \[([^\[\]\n]+)\]$", re.MULTILINE)


def strip_notes(prompt: str) -> str:
    """What a person said, without the notes that a chat's message carries before it."""
    notes, mark, question = prompt.partition(QUESTION)
    first, *lines = notes.split("\n")
    is_ours = bool(mark) and first == NOTES and bool(lines) and all(NOTE.fullmatch(line) for line in lines)
    return question if is_ours else prompt
