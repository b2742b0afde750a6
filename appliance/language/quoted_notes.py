"""Notes that a message to a small model carries before the question: how they are written, and taken off again. Pure."""

import re

NOTES = "Notes:"
QUESTION = "\n\nQuestion: "
NOTE = re.compile(r"^- (.*) \[([^\[\]\n]+)\]$", re.MULTILINE)


def strip_notes(prompt: str) -> str:
    """What a person said, without the notes that a chat's message carries before it."""
    notes, mark, question = prompt.partition(QUESTION)
    first, *lines = notes.split("\n")
    is_ours = bool(mark) and first == NOTES and bool(lines) and all(NOTE.fullmatch(line) for line in lines)
    return question if is_ours else prompt
