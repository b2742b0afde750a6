"""The rows of Markdown tables as sentences: each cell with the heading of its column. Pure."""

import re

from appliance.text import sentences

ROW = re.compile(r"^\s*\|.*\|\s*$")
RULE = re.compile(r"^\s*\|[\s:|-]+\|\s*$")
CELL = re.compile(r"(?<!\\)\|")


def split(text: str) -> list[str]:
    """The sentences of a text as `sentences.split` has them, a row of a table being one: "Bed: C; 2027: potatoes"."""
    found: list[str] = []
    plain: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if ROW.match(lines[at]) and at + 1 < len(lines) and RULE.match(lines[at + 1]):
            found.extend(sentences.split("\n".join(plain)))
            plain, headings, at = [], _cells(lines[at]), at + 2
            while at < len(lines) and ROW.match(lines[at]):
                if row := _said(headings, _cells(lines[at])):
                    found.append(row)
                at += 1
            continue
        plain.append(lines[at])
        at += 1
    return [*found, *sentences.split("\n".join(plain))]


def _cells(line: str) -> list[str]:
    return [" ".join(cell.replace("\\|", "|").split()) for cell in CELL.split(line.strip())[1:-1]]


def _said(headings: list[str], cells: list[str]) -> str:
    """A row in words; a cell without a heading stands by itself, an empty one is left out."""
    named = [*headings, *([""] * (len(cells) - len(headings)))]
    return "; ".join(f"{heading}: {cell}" if heading else cell for heading, cell in zip(named, cells) if cell)
