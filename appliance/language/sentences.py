"""Where sentences end: texts as people write them, with titles, abbreviations, initials, ordinals, numbers and lists.

Pure. Knows the abbreviations of the language files; a sentence that ends with one of them is joined with the next, which reads
worse than it means. No grammar is parsed: a full stop followed by a space ends a sentence unless something speaks against it.
"""

import re

from appliance.language.language_files import all_words, expression

END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’»)\]]*+(?=\s|$)|\n+")
LAST_WORD = re.compile(r"(?<![\w.'’-])[\w.'’-]*+$")
NEXT_WORD = re.compile(r"\s*(\w*)")
MOST_BEFORE = 80
ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+")
HEADING = re.compile(r"^\s*#{1,6}\s+")
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
        if sentence := " ".join(HEADING.sub("", ITEM.sub("", text[start:end])).split()):
            sentences.append(sentence)
        start = end
    return sentences


def split_markdown(text: str) -> list[str]:
    """The sentences of a text as `sentences.split` has them, a row of a table being one: "Bed: C; 2027: potatoes"."""
    found: list[str] = []
    plain: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if ROW.match(lines[at]) and at + 1 < len(lines) and RULE.match(lines[at + 1]):
            found.extend(split("\n".join(plain)))
            plain, headings, at = [], _cells(lines[at]), at + 2
            while at < len(lines) and ROW.match(lines[at]):
                if row := _said(headings, _cells(lines[at])):
                    found.append(row)
                at += 1
            continue
        plain.append(lines[at])
        at += 1
    return [*found, *split("\n".join(plain))]


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
    is_day = expression("month").fullmatch(_next_word(text, match)) is not None
    if word.isdigit() and (is_day or not line.strip(" -*").removesuffix(word).strip()):
        return False  # the number of a list item, or of a day in German
    is_initial = len(word) == 1 and word.isalpha() and word not in ("i", "a") and text[match.start() - 1].isupper()
    return not (word in all_words("abbreviations") or is_initial)


def _next_word(text: str, match: "re.Match[str]") -> str:
    found = NEXT_WORD.match(text, match.end())
    return found[1].lower() if found else ""


def _cells(line: str) -> list[str]:
    return [" ".join(cell.replace("\\|", "|").split()) for cell in CELL.split(line.strip())[1:-1]]


def _said(headings: list[str], cells: list[str]) -> str:
    """A row in words; a cell without a heading stands by itself, an empty one is left out."""
    named = [*headings, *([""] * (len(cells) - len(headings)))]
    return "; ".join(f"{heading}: {cell}" if heading else cell for heading, cell in zip(named, cells) if cell)
