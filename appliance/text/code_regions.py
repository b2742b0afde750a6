"""Which parts of a text are shown and not meant: code in spans, blocks and elements, comments, and quotations.

Covered: code spans; fenced blocks, also in a list item, in a block quote or behind words on their line; `<pre>`, `<code>` and
their like; comments; indented code; block quotes and rows of tables by the marks of their own line; a quotation on either side of
what is asked about. Not covered: a line without a mark that goes on with the block quote above it.
Where the marks of a text contradict each other, all that may be code counts as code. Each question takes time linear in the
text, however often it is asked going forward. Knows nothing about tool calls.
"""

import re
import unicodedata
from bisect import bisect_left

from msgspec import Struct

from appliance.text.scanner import CONTAINER, MAX_PREFIX_CHARS, PREFIX, Source

FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([^\n`]*)(?:\n|\Z)")
# A line that may end a block: nothing but its marks, behind what a list item or a block quote puts before them.
FENCE_END = re.compile(r"^([ \t>]*)(`{3,}|~{3,})[ \t]*$", re.MULTILINE)
# A line that a reader may take for the end or the beginning of one: marks before its words, or behind them.
FENCE_LIKE = re.compile(rf"^{CONTAINER}(?P<first>`{{3,}}|~{{3,}})|(?<![`\n])(?P<last>`{{3,}})[ \t]*$", re.MULTILINE)
ELEMENTS = ("pre", "code", "samp", "kbd", "tt", "xmp")
BLOCKS = ("pre", "xmp")
ELEMENT = r"<!--|<(?:{names})(?=[\s>])"
ELEMENT_NAME = re.compile(r"<([a-z]+)", re.IGNORECASE)
ELEMENT_END = re.compile(rf"-->|</({'|'.join(ELEMENTS)})\s*>", re.IGNORECASE)
INDENT = 4
LIST_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]+")
QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“”", "«": "»", "‘": "’", "‹": "›"}
QUOTE = re.compile("[\"'“”„«»‘’‹›]")
BEFORE_QUOTE = re.compile(r"[\s(\[{:;,/>—–-]")
AFTER_QUOTE = re.compile(r"[\s)\]}:;,.!?…/<—–-]")
QUOTATION_CHARS = 500  # how far from what is quoted its marks may stand


class Fence(Struct, frozen=True):
    """A fenced block: its label, where its content lies, where it ends, whether its end was written, and whether the text
    allows no other reading of it. It stands on a "line" of its own, in an "item" of a list or a quote, or behind "words".
    """

    label: str
    start: int
    stop: int
    end: int
    is_closed: bool
    stands: str = "line"
    is_sure: bool = True


def fence(source: Source, at: int) -> Fence | None:
    """The fenced block that opens at `at`; None when these marks open none."""
    text = source.text
    opened = FENCE.match(text, at)
    if opened is None:
        return None
    line = text.rfind("\n", max(0, at - MAX_PREFIX_CHARS - 1), at) + 1
    before = text[line:at]
    is_line = len(before) <= MAX_PREFIX_CHARS and PREFIX.fullmatch(before) is not None
    words = opened.group(2).split()
    label = (words or [""])[0].lower()
    if not is_line:
        return None if len(words) > 1 or text[at] != "`" else _behind_words(source, opened, label)
    stands = "line" if not before.strip(" ") and len(before) < INDENT else "item"
    for closed in FENCE_END.finditer(text, opened.end()):
        if not closes(closed, opened.group(1), before):
            continue
        if is_doubtful(text[opened.end() : closed.start()], opened.group(1), before):
            return Fence(label, opened.end(), closed.start(), _last_fence(source, closed.end()), True, stands, is_sure=False)
        return Fence(label, opened.end(), closed.start(), closed.end(), True, stands)
    is_sure = not is_doubtful(text[opened.end() :], opened.group(1), before)
    return Fence(label, opened.end(), len(text), len(text), False, stands, is_sure)


def _behind_words(source: Source, opened: re.Match[str], label: str) -> Fence:
    """A block whose marks stand behind words; it ends with the next ones, wherever they stand on their line."""
    text, start = source.text, opened.end()
    stop = source.find(opened.group(1), start)
    if stop == len(text):
        return Fence(label, start, stop, stop, False, stands="words")
    end = stop + len(opened.group(1))
    lines = _fence_lines(source)
    is_sure = (len(lines) - bisect_left(lines, start)) % 2 == 1
    return Fence(label, start, stop, end if is_sure else _last_fence(source, end), True, stands="words", is_sure=is_sure)


def closes(line: re.Match[str], marks: str, before: str) -> bool:
    """Whether a `FENCE_END` ends the block that these marks opened behind that prefix: its own may not be much longer."""
    return line.group(2).startswith(marks) and _measure_width(line.group(1)) < _measure_width(before) + INDENT


def is_doubtful(content: str, marks: str, before: str) -> bool:
    """Whether lines in a block may be its end, or the beginning of another, or have left its list item."""
    if any((found["first"] or found["last"]).startswith(marks) for found in FENCE_LIKE.finditer(content)):
        return True
    is_item = ">" not in before and before.strip(" \t") != ""
    return is_item and any(line.strip() and not line.startswith((" ", "\t")) for line in content.split("\n"))


def _last_fence(source: Source, at: int) -> int:
    """The end of the last line that looks like a fence, `at` when it lies before."""
    lines = _fence_lines(source)
    return max(at, source.line_end(lines[-1])) if lines else at


def _fence_lines(source: Source) -> list[int]:
    return source.places("fences", lambda: {"": [found.start() for found in FENCE_LIKE.finditer(source.text)]})[""]


def span_end(source: Source, at: int, length: int) -> int:
    """Where the code span that opens with so many backticks ends; behind them when it has no end in its paragraph."""
    places = source.ticks(length)
    place = bisect_left(places, at + length)
    if place == len(places) or places[place] > (last := source.paragraph_end(at)):
        return at + length
    end = places[place] + length
    is_fence = places[place] == last and source.text[end : source.line_end(end)].strip() != ""
    return at + length if is_fence else end


def element_end(source: Source, at: int, *, is_cut: bool = False) -> int:
    """Where the element or the comment that opens at `at` ends.

    One that is never closed ends with its paragraph; as a block of its own, or at the end of a text that was cut, with the text.
    """
    if end := closed_end(source, at):
        return end
    text, name = source.text, _element_name(source, at)
    is_block = (not name or name in BLOCKS) and not text[text.rfind("\n", 0, at) + 1 : at].strip()
    return len(text) if is_cut or is_block else source.paragraph_end(at)


def closed_end(source: Source, at: int) -> int:
    """Where the element or the comment that opens at `at` was closed; 0 when it was not."""
    ends = source.places("elements", lambda: _element_ends(source.text)).get(_element_name(source, at), [])
    place = bisect_left(ends, at)
    return ends[place] if place < len(ends) else 0


def _element_name(source: Source, at: int) -> str:
    opened = ELEMENT_NAME.match(source.text, at)
    return opened.group(1).lower() if opened else ""


def _element_ends(text: str) -> dict[str, list[int]]:
    ends: dict[str, list[int]] = {}
    for found in ELEMENT_END.finditer(text):
        ends.setdefault((found.group(1) or "").lower(), []).append(found.end())
    return ends


def indented_end(source: Source, at: int) -> int:
    """Where the line of `at` ends, if it is indented code; 0 when it is not."""
    line = source.text.rfind("\n", 0, at) + 1
    if not source.text.startswith((" ", "\t"), line):
        return 0
    found = source.places("indented", lambda: _find_indented_code(source.text))
    is_code = found["code"][bisect_left(found["at"], line + 1) - 1]
    return source.line_end(at) if is_code else 0


def _find_indented_code(text: str) -> dict[str, list[int]]:
    """Where indented code begins and ends, and which of both it is.

    Code comes after a blank line and is indented by four columns, in a list item by four more than its words.
    """
    found: dict[str, list[int]] = {"at": [0], "code": [0]}
    at, item, is_code, is_blank = 0, 0, False, True
    for line in text.split("\n"):
        words = line.lstrip(" \t")
        if words:
            columns = _measure_width(line[: len(line) - len(words)])
            was_code, is_code = is_code, columns >= item + INDENT and (is_blank or is_code)
            if not is_code and (marker := LIST_ITEM.match(words)):
                item = columns + marker.end()
            elif not is_code and is_blank and columns < item:
                item = 0
            if is_code != was_code:
                found["at"].append(at)
                found["code"].append(int(is_code))
        is_blank = not words
        at += len(line) + 1
    return found


def shown_end(source: Source, since: int, start: int, ends: tuple[int, ...]) -> int:
    """Where what only shows the part between `start` and one of `ends` ends; 0 where the writer himself speaks."""
    line = source.text.rfind("\n", 0, start) + 1
    prefix = PREFIX.match(source.text, line, start)
    if prefix is not None and (">" in prefix[0] or source.text.startswith("|", prefix.end(), start)):
        return max(ends)
    return indented_end(source, start) or quotation_end(source, since, start, ends)


def is_beside_words(source: Source, since: int, start: int) -> bool:
    """Whether `start` lies in the line of a list item, or in the middle of a sentence: behind a letter, a digit or a comma."""
    line = source.text.rfind("\n", 0, start) + 1
    prefix = PREFIX.match(source.text, line, start)
    before = source.text[max(line, since, start - QUOTATION_CHARS) : start].rstrip()
    is_item = prefix is not None and prefix[0].strip() != ""
    return is_item or (before != "" and (before[-1] in ",|" or unicodedata.category(before[-1])[0] in "LNM"))


def quotation_end(source: Source, since: int, start: int, ends: tuple[int, ...]) -> int:
    """Where the quotation around what lies between `start` and one of `ends` ends; 0 when it is not quoted.

    Looks back as far as the paragraph, `since` and a fixed number of characters allow. An apostrophe and a mark of inches open
    nothing: an opening mark stands behind a blank or a bracket and before a word, a closing one the other way round.
    """
    text = source.text
    first = max(since, start - QUOTATION_CHARS)
    first = max(first, text.rfind("\n\n", first, start))
    opened = ""
    for found in QUOTE.finditer(text, first, start):
        mark, at = found.group(), found.start()
        if opened:
            opened = "" if mark in QUOTES[opened] and _closes_quote(text, at) else opened
        elif mark in QUOTES and (mark not in "\"'" or _opens_quote(text, at)):
            opened = mark
    if not opened:
        return 0
    for end in ends:
        last = end + 1 if end > source.paragraph_end(start) else min(source.paragraph_end(end), end + QUOTATION_CHARS)
        for found in QUOTE.finditer(text, end, last):
            if found.group() in QUOTES[opened] and _closes_quote(text, found.start()):
                return source.before_code(min(ends), found.end())  # what it holds besides is looked at on its own
    return 0


def _opens_quote(text: str, at: int) -> bool:
    is_behind = at == 0 or BEFORE_QUOTE.match(text, at - 1) is not None
    return is_behind and not text[at + 1 : at + 2].isspace()


def _closes_quote(text: str, at: int) -> bool:
    is_before = at + 1 == len(text) or AFTER_QUOTE.match(text, at + 1) is not None
    return is_before and not text[at - 1 : at].isspace()


def _measure_width(prefix: str) -> int:
    """The width of a line's indentation in columns."""
    return len(prefix.expandtabs(INDENT))
