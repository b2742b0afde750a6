"""Where sentences end, in texts as people write them and in notes: with titles, abbreviations, ordinals, numbers, lists, tables.

Pure. Knows the abbreviations of the language files; a sentence that ends with one of them is joined with the next, which reads
worse than it means. No grammar is parsed: a full stop followed by a space ends a sentence unless something speaks against it.

The sentences of a note come each with the headings above it and its list or paragraph: people write a subject once, as a heading or
as the line above a list, and only facts below it. Headings, items, boxes that are ticked, tables and the lines of a paragraph that
somebody wrapped are known; nested lists are read as one list, and code as text. Links to other notes are read as the words they
show, and tags as words.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from appliance.language.languages import all_words, expression
from appliance.text import markdown

END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s|$)|\n+")
LAST_WORD = re.compile(r"(?<![\w.'’-])[\w.'’-]*+$")
NEXT_WORD = re.compile(r"\s*(\w*)")
MOST_BEFORE = 80
DAY_AND_MONTH = re.compile(r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])")
ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
HEADING_MARK = re.compile(r"^\s*#{1,6}\s+")
ROW = re.compile(r"^\s*\|.*\|\s*$")
RULE = re.compile(r"^\s*\|[\s:|-]+\|\s*$")
CELL = re.compile(r"(?<!\\)\|")


def boundaries(text: str, *, is_open: bool = False) -> list[int]:
    """Where each sentence ends, as the place behind it. `is_open`: more may follow, so the end of the text ends none."""
    found: list[int] = []
    for match in END.finditer(text):
        if is_open and match.end() >= len(text):
            continue
        if "\n" not in match[0] and not _is_end(text, match):
            continue
        found.append(match.end())
    if not is_open and text.strip() and (not found or text[found[-1] :].strip()):
        found.append(len(text))
    return found


def split(text: str) -> list[str]:
    """The sentences of a text, each on one line; the mark of a list item or a heading is taken off."""
    sentences, start = [], 0
    for end in boundaries(text):
        if sentence := " ".join(HEADING_MARK.sub("", ITEM.sub("", text[start:end])).split()):
            sentences.append(sentence)
        start = end
    return sentences


def split_markdown(text: str) -> list[str]:
    """The sentences of a text as `sentences.split` has them, a row of a table being one: "Bed: C; 2027: potatoes"."""
    found: list[str] = []
    beside: list[str] = []
    for kind, lines in _blocks(text):
        if kind != "table":
            beside += lines[1:] if kind == "heading" else lines
            continue
        found.extend(split("\n".join(beside)))
        beside, (headings, *rows) = [], map(cells_of, (lines[0], *lines[2:]))
        found.extend(filter(None, (row_line(headings, row) for row in rows)))
    return [*found, *split("\n".join(beside))]


def whole(text: str) -> str:
    """A text up to the end of its last whole sentence; "" when not even the first is whole."""
    found = [end for end in boundaries(text) if END.search(text[:end].rstrip("\n")[-4:] + " ")]
    return text[: found[-1]].rstrip() if found else ""


def _is_end(text: str, match: "re.Match[str]") -> bool:
    """Whether a full stop, question mark or exclamation mark ends a sentence."""
    if not match[0].startswith("."):
        return True
    # As far as a word or the number of an item reaches, and not from the beginning of a long text.
    first = max(0, match.start() - MOST_BEFORE)
    line = text[text.rfind("\n", first, match.start()) + 1 or first : match.start()]
    before = LAST_WORD.search(line)
    word = before[0].lower() if before else ""
    following = NEXT_WORD.match(text, match.end())
    after = following[1] if following else ""
    is_day = expression("month").fullmatch(after.lower()) is not None or after[:1].islower()  # "vom 3. bis 5. Mai"
    if DAY_AND_MONTH.fullmatch(word) or word.isdigit() and (is_day or not line.strip(" -*").removesuffix(word).strip()):
        return False  # the number of a list item, or of a day in German: "am 3. Mai", "am 3.5. um zehn"
    is_initial = len(word) == 1 and word.isalpha() and word not in ("i", "a") and text[match.start() - 1].isupper()
    return not (word in all_words("abbreviations") or is_initial)


def cells_of(line: str) -> list[str]:
    """The cells of a row of a Markdown table."""
    return [" ".join(cell.replace("\\|", "|").split()) for cell in CELL.split(line.strip())[1:-1]]


def row_line(headings: Sequence[str], cells: Sequence[str]) -> str:
    """A row in words; a cell without a heading stands by itself, an empty one is left out."""
    named = [*headings, *([""] * (len(cells) - len(headings)))]
    return "; ".join(f"{heading}: {cell}" if heading else cell for heading, cell in zip(named, cells) if cell)


HEADING = re.compile(r"^\s{0,3}(#{1,6})\s+(.*)$")
BOX = re.compile(r"^\[([ xX])\]\s+")
STRONG = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
QUOTE = re.compile(r"^\s*(?:>\s?)+(?:\[![\w-]+\][+-]?\s*)?")  # of a quotation, and the kind of a box that note programs draw
NOTE_LINK = re.compile(r"!?\[\[([^\[\]|#^]*)(?:[#^][^\[\]|]*)?(?:\|([^\[\]]*))?\]\]")
TAG = re.compile(r"(?<![^\s(,;])#(?![0-9A-Fa-f]{6}\b)([^\W\d_][\w/-]*)")  # no colour and no number
ANCHOR = re.compile(r"\s\^[\w-]+$")  # what other notes point to
LABEL_WORDS, LABEL_CHARS = 8, 60  # of a line above a list that says what is in it
FRAGMENT_WORDS = 2  # of what is no sentence by itself
WRAPPED_CHARS = 55  # of a line that goes on in the next one


class Line(Struct, frozen=True):
    """A sentence of a note. `whole` is the line or item it stands in, `group` counts lists, tables and paragraphs."""

    text: str
    heading: str = ""
    whole: str = ""
    group: int = 0
    is_item: bool = False
    is_done: bool | None = None  # whether the box before an item is ticked, None without a box


def read(text: str, title: str = "") -> list[Line]:
    """The fields and sentences of a note; a heading that is its title says nothing more."""
    fields, text = markdown.fields(text)
    found = [Line(field, "", field, -number, is_item=True) for number, field in enumerate(fields, 1)]
    path: list[tuple[int, str]] = []
    label, group, was = "", 0, ""
    blocks = list(_blocks(text))
    for at, (kind, lines) in enumerate(blocks):
        if kind == "heading":
            level, name = len(lines[0]), plain(lines[1])
            path = [one for one in path if one[0] < level] + ([] if _is_same(name, title) else [(level, name)])
            label, was = "", kind
            below = next((block for block in blocks[at + 1 :] if block[0] != "blank"), None)
            is_empty = below is None or (below[0] == "heading" and len(below[1][0]) <= level)
            if is_empty and not _is_same(name, title):
                group += 1
                found.append(Line(name, ": ".join(one for _, one in path[:-1]), name, group))
            continue
        if kind == "text" and at + 1 < len(blocks) and blocks[at + 1][0] in ("item", "table") and _is_label(lines[0]):
            label, was = plain(lines[0]).rstrip(":").strip(), "label"
            continue
        if kind == "blank":
            continue
        if kind != was or kind in ("text", "table"):
            group += 1
        if kind == "text" and was in ("item", "table"):
            label = ""
        was = kind
        heading = ": ".join([*(one for _, one in path[-2:]), *([label] if label and kind in ("item", "table") else [])])
        if kind == "table":
            found.extend(Line(row, heading, row, group, is_item=True) for row in split_markdown("\n".join(lines)))
            continue
        whole = plain(" ".join(lines))
        box = BOX.match(whole)
        whole = BOX.sub("", whole)
        is_done = None if box is None else box[1] != " "
        found.extend(Line(one, heading, whole, group, kind == "item", is_done) for one in _sentences(whole))
    return found


def _sentences(whole: str) -> list[str]:
    """The sentences of a line; what is too short to say anything alone ends the one before: "Six hours a year. Done: 4."."""
    found: list[str] = []
    for one in split(whole):
        if found and len(one.split()) <= FRAGMENT_WORDS:
            found[-1] = f"{found[-1]} {one}"
        else:
            found.append(one)
    return found


def plain(text: str) -> str:
    """A line without the mark of an item or a quotation and the stars of strong words, links and tags as words."""
    said = " ".join(ITEM.sub("", QUOTE.sub("", text)).split())
    said = NOTE_LINK.sub(lambda at: at[2] or at[1], ANCHOR.sub("", said))
    return STRONG.sub(r"\2", TAG.sub(lambda at: at[1].replace("/", " "), said))


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Headings (their mark and their text), items, tables, lines of text, and blank lines, in order."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            yield "blank", []
        elif (heading := HEADING.match(line)) is not None:
            yield "heading", [heading[1], heading[2].rstrip("#").rstrip()]
        elif ROW.match(line) and at + 1 < len(lines) and RULE.match(lines[at + 1]):
            end = at + 2
            while end < len(lines) and ROW.match(lines[end]):
                end += 1
            yield "table", lines[at:end]
            at = end
            continue
        else:
            kind, wrapped = ("item" if ITEM.match(line) else "text"), [line]
            while at + 1 < len(lines) and _goes_on(wrapped[-1], lines[at + 1]):
                at += 1
                wrapped.append(lines[at])
            yield kind, wrapped
        at += 1


def _goes_on(line: str, after: str) -> bool:
    """Whether a line was wrapped: long, without an end, and what follows begins as the middle of a sentence."""
    if len(line) < WRAPPED_CHARS or line.rstrip().endswith((".", "!", "?", ":", "…", "|")) or not after.strip():
        return False
    return HEADING.match(after) is None and ITEM.match(after) is None and after.strip()[0].islower()


def _is_label(line: str) -> bool:
    """Whether a line above a list says what is in it, and is no sentence of its own."""
    said = line.strip()
    if said.endswith(":"):
        return len(said) <= LABEL_CHARS
    return len(said.split()) <= LABEL_WORDS // 2 and not said.endswith((".", "!", "?")) and not any(c.isdigit() for c in said)


def _is_same(name: str, title: str) -> bool:
    return name.strip().lower() == title.strip().lower()
