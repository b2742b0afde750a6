"""Texts of others inside of ours: shown so that none can end what stands around it, or look like the beginning of more.

A text that has to be exact goes between two lines that do not occur in it; a short one loses what would make a tag.
Pure. Not promised: that what a text says is harmless; it is information, never an order.
"""

import re

TAG = re.compile(r"<(?=[^\s\d=])")  # what may begin a tag or a fence; not `a < b`, `<=` or `<3`


def fenced(name: str, text: str) -> str:
    """A text between two lines that do not occur in it, so that it is clear where it ends."""
    while f":::{name}" in text:
        name += "'"
    return f"<<:::{name}\n{text}\n:::{name}"


def exact(name: str, text: str) -> str:
    """A text to the letter: as it is when it is one line that holds no tag, else within a fence."""
    return fenced(name, text) if "<" in text or len(text.splitlines()) > 1 or text.endswith("\n") else text


def safe(text: str) -> str:
    """A short text without anything that begins or ends a tag or a fence."""
    return TAG.sub("< ", text)


def quoted(text: str) -> str:
    """A text as the value of an attribute, or in the midst of a line of ours."""
    return " ".join(text.replace('"', "&quot;").replace("<", "&lt;").splitlines())
