"""Cuts a text into chunks, where its structure allows it: the pieces that search finds and models read.

A function of the text alone: headings, fenced code, tables, messages, paragraphs, lines, sentences, and characters as
the last resort. A chunk is a place in the text (characters, the end excluded), never a copy. Chunks do not overlap and
leave out nothing but white space. What lies around a chunk is told apart from it, by `before` and `after`.
Knows nothing about entries, indexes or models; `proposed` takes line ranges that somebody else thought of.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import OwlError, Unavailable

WHOLE_CHARS = 200  # a shorter text is one chunk (B-089)
TARGET_CHARS = 500  # measured beside 300 and 800: docs/background/finding.md
LARGEST = 1.5  # times that for a paragraph that stays whole
BLOCK = 4  # times that for code or a table that stays whole
MAX_CHARS = 15_000  # of a chunk that a model asked for
NEAR_LINES = 2  # of the chunks before and after that belong to what is known of a chunk
NEAR_CHARS = 300  # of them at most, each
MAX_HEADING = 200  # characters of a heading path
MIN_MESSAGES, MAX_SPEAKERS = 4, 12

HEADING = re.compile(r" {0,3}(#{1,6})[ \t]")
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
MESSAGE = re.compile(r"(?:[-*>] )?(?:\*\*)?([^\W\d_][\w .'-]{0,39})(?:\*\*)?(?: \([^()]{1,60}\))?(?:\*\*)?:(?:\*\*)? ?\S")
SENTENCE = re.compile(r"[.!?…][\"')\]]?\s|[。！？]")

Ranges = Sequence[tuple[int, int]]


class Chunk(Struct, frozen=True):
    """A place in a text. `heading` is the path of headings above it, `who` says it when it is a message."""

    seq: int
    start: int
    stop: int
    heading: str = ""
    who: str = ""


class _Block(Struct, frozen=True):
    """Something that belongs together: a heading, a paragraph, code, a table, a message."""

    kind: str
    start: int
    end: int
    heading: str = ""
    who: str = ""


class _ChunkLine(Struct, frozen=True):
    start: int
    end: int
    text: str


def structured(text: str, *, is_prose: bool = True, target_chars: int = TARGET_CHARS) -> list[Chunk]:
    """The chunks of a text in order; none when it is blank. Without `is_prose` (code, data) no line is a heading or a message."""
    if not text.strip():
        return []
    if len(text) < WHOLE_CHARS:
        return [Chunk(0, 0, len(text))]
    lines = list(_split_lines(text))
    speakers = _find_speakers(lines) if is_prose else frozenset[str]()
    if speakers:
        blocks = list(_split_messages(lines, speakers))
    elif is_prose:
        blocks = list(_split_blocks(lines))
    else:
        blocks = list(_split_paragraphs(lines))
    pieces = [piece for block in blocks for piece in _cut_block(text, block, target_chars)]
    return _number_chunks(text, pieces if speakers else list(_pack_blocks(pieces, target_chars)))


def proposed(text: str, ranges: Ranges, *, is_prose: bool = True) -> list[Chunk]:
    """Chunks of lines (first and last, from 1) that somebody proposed; [] when these make no sense.

    What lies between two ranges goes with the first of them; headings are those of the structure.
    """
    lines = list(_split_lines(text))
    if not ranges or any(not 1 <= first <= last <= len(lines) for first, last in ranges):
        return []
    if any(first <= ranges[n][1] for n, (first, _) in enumerate(ranges[1:])):
        return []
    starts = [0, *(lines[first - 1].start for first, _ in ranges[1:]), len(text)]
    headings = [block for block in _split_blocks(lines) if block.kind == "heading"] if is_prose else []
    blocks = []
    for start, end in zip(starts, starts[1:]):
        above = [block.heading for block in headings if block.start <= start]
        whole = _Block("proposed", start, end, above[-1] if above else "")
        blocks += list(_cut_block(text, whole)) if end - start > MAX_CHARS else [whole]
    return _number_chunks(text, blocks)


def by_model(text: str, propose: Callable[[str], Ranges], *, is_prose: bool = True) -> tuple[list[Chunk], str]:
    """Chunks as a model proposes them, and "model"; those of the structure, and why, when it cannot.

    `propose` gets the text with numbered lines. It is not asked about a text that is one chunk anyway. That there
    is no model at all is an error of the caller's, and passes.
    """
    if len(text) < WHOLE_CHARS:
        return structured(text), "model"
    numbered = "\n".join(f"{n}: {line}" for n, line in enumerate(text.split("\n"), 1))
    try:
        found = proposed(text, propose(numbered), is_prose=is_prose)
        why = "" if found else "the model proposed no usable line ranges"
    except Unavailable:
        raise
    except OwlError as error:
        found, why = [], error.message
    return (found, "model") if found else (structured(text, is_prose=is_prose), why)


def before(text: str, chunks: Sequence[Chunk], n: int) -> str:
    """The last two lines of the chunk before one, "" for the first."""
    if n == 0:
        return ""
    last = chunks[n - 1]
    lines = text[last.start : last.stop].rstrip()[-NEAR_CHARS - 1 :].split("\n")[-NEAR_LINES:]
    return "\n".join(lines).strip()[-NEAR_CHARS:]


def after(text: str, chunks: Sequence[Chunk], n: int) -> str:
    """The first two lines of the chunk after one, "" for the last."""
    if n + 1 >= len(chunks):
        return ""
    following = chunks[n + 1]
    beginning = text[following.start : min(following.stop, following.start + NEAR_CHARS)]
    return "\n".join(beginning.lstrip().split("\n")[:NEAR_LINES]).strip()


# -- lines and blocks -------------------------------------------------------------------------------


def _split_lines(text: str) -> Iterator[_ChunkLine]:
    start = 0
    for line in text.split("\n"):
        yield _ChunkLine(start, start + len(line), line)
        start += len(line) + 1


def _find_speakers(lines: Sequence[_ChunkLine]) -> frozenset[str]:
    """The names before the lines of a conversation; empty for any other text."""
    counts: dict[str, int] = {}
    others = 0
    for line in lines:
        if not line.text.strip() or HEADING.match(line.text):
            continue
        if found := MESSAGE.match(line.text):
            name = found[1].strip()
            counts[name] = counts.get(name, 0) + 1
        else:
            others += 1
    names = {name for name, count in counts.items() if count > 1}
    said = sum(counts[name] for name in names)
    is_conversation = (
        said >= MIN_MESSAGES and 2 <= len(names) <= MAX_SPEAKERS and said >= 2 * (others + sum(counts.values()) - said)
    )
    return frozenset(names) if is_conversation else frozenset()


def _split_messages(lines: Sequence[_ChunkLine], speakers: frozenset[str]) -> Iterator[_Block]:
    """Each message with the lines that follow it; a heading goes with what comes after it."""
    path: list[tuple[int, str]] = []
    current: _Block | None = None
    for line in lines:
        heading, found = HEADING.match(line.text), MESSAGE.match(line.text)
        who = found[1].strip() if found else ""
        if heading:
            path = _headings_above(path, len(heading[1]), _heading_text(line.text))
        if heading or who in speakers:
            if current is not None and current.who:
                yield current
                current = None
            start = line.start if current is None else current.start
            current = _Block("message", start, line.end, _join_headings(path), who if who in speakers else "")
        elif line.text.strip():
            current = replace(current, end=line.end) if current else _Block("message", line.start, line.end)
    if current is not None:
        yield current


def _split_blocks(lines: Sequence[_ChunkLine]) -> Iterator[_Block]:
    """The blocks of Markdown, or of plain text, which is Markdown without marks."""
    path: list[tuple[int, str]] = []
    n = 0
    while n < len(lines):
        line = lines[n]
        mark = line.text.lstrip(" ")[:1]
        if not line.text.strip():
            n += 1
        elif mark == "#" and (heading := HEADING.match(line.text)):
            path = _headings_above(path, len(heading[1]), _heading_text(line.text))
            yield _Block("heading", line.start, line.end, _join_headings(path))
            n += 1
        elif mark in "`~" and FENCE.match(line.text):
            end = _fence_end(lines, n)
            yield _Block("code", line.start, lines[end].end, _join_headings(path))
            n = end + 1
        elif n + 1 < len(lines) and _is_underlined(line.text, lines[n + 1].text):
            level = 1 if "=" in lines[n + 1].text else 2
            path = _headings_above(path, level, line.text.strip())
            yield _Block("heading", line.start, lines[n + 1].end, _join_headings(path))
            n += 2
        else:
            end = _paragraph_end(lines, n)
            kind = "table" if mark == "|" else "paragraph"
            yield _Block(kind, line.start, lines[end].end, _join_headings(path))
            n = end + 1


def _split_paragraphs(lines: Sequence[_ChunkLine]) -> Iterator[_Block]:
    """Split a text at blank lines."""
    start: _ChunkLine | None = None
    last: _ChunkLine | None = None
    for line in lines:
        if line.text.strip():
            start, last = start or line, line
        elif start and last:
            yield _Block("paragraph", start.start, last.end)
            start = None
    if start and last:
        yield _Block("paragraph", start.start, last.end)


def _heading_text(line: str) -> str:
    """A heading's text: without the marks before it, and without those that may close it."""
    return line.strip(" \t").lstrip("#").strip(" \t").rstrip("#").rstrip(" \t")[:MAX_HEADING]


def _headings_above(path: Sequence[tuple[int, str]], level: int, title: str) -> list[tuple[int, str]]:
    """The headings above what follows a heading of this level, with itself."""
    return [*(part for part in path if part[0] < level), (level, title)]


def _join_headings(path: Sequence[tuple[int, str]]) -> str:
    return " > ".join(text for _, text in path)[:MAX_HEADING]


def _fence_end(lines: Sequence[_ChunkLine], n: int) -> int:
    """The line that closes a fence; the last line of the text when none does."""
    opening = FENCE.match(lines[n].text)
    mark = opening[1] if opening else "```"
    for end in range(n + 1, len(lines)):
        text = lines[end].text.strip()
        if text.startswith(mark) and not text.strip(mark[0]):
            return end
    return len(lines) - 1


def _is_underlined(text: str, below: str) -> bool:
    return len(text) <= MAX_HEADING and text.lstrip()[:1] not in "-*+>|" and UNDERLINE.match(below) is not None


def _paragraph_end(lines: Sequence[_ChunkLine], n: int) -> int:
    """The last line of a paragraph or table: before a blank line, a heading or a fence."""
    is_table = lines[n].text.lstrip(" ").startswith("|")
    while n + 1 < len(lines):
        text = lines[n + 1].text
        mark = text.lstrip(" ")[:1]
        if not mark.strip() or (mark == "|") != is_table:
            break
        if (mark == "#" and HEADING.match(text)) or (mark in "`~" and FENCE.match(text)):
            break
        n += 1
    return n


# -- cutting and packing ----------------------------------------------------------------------------


def _cut_block(text: str, block: _Block, target_chars: int = TARGET_CHARS) -> Iterator[_Block]:
    """A block in pieces that are not too long."""
    longest = target_chars * (BLOCK if block.kind in ("code", "table") else LARGEST)
    start = block.start
    while block.end - start > longest:
        end = _find_cut(text, start, target_chars)
        yield replace(block, start=start, end=end)
        start = end
    if text[start : block.end].strip():
        yield replace(block, start=start)


def _find_cut(text: str, start: int, target_chars: int) -> int:
    """Where to cut what begins here: after a line, a sentence or a word, else wherever it is long enough."""
    least, most = start + target_chars // 2, start + target_chars
    line = text.rfind("\n", least, most)
    if line >= 0:
        return line + 1
    sentences = [found.end() for found in SENTENCE.finditer(text, least, most)]
    if sentences:
        return sentences[-1]
    word = text.rfind(" ", least, most)
    return word + 1 if word >= 0 else most


def _pack_blocks(pieces: Sequence[_Block], target_chars: int) -> Iterator[_Block]:
    """Neighbours put together while they are short, a heading always with what follows it."""
    current: list[_Block] = []
    has_text = False  # headings alone wait for what follows, up to a limit
    for piece in pieces:
        if current:
            is_section = piece.kind == "heading" and current[-1].kind != "heading"
            length = current[-1].end - current[0].start
            is_full = piece.end - current[0].start > target_chars * (1 if has_text else BLOCK)
            is_full = is_full and (has_text or piece.kind == "heading")
            if is_full or (is_section and length >= WHOLE_CHARS):
                headings = _last_headings(current) if has_text else 0
                yield _merge_blocks(current[: len(current) - headings])
                current, has_text = current[len(current) - headings :], False
        current.append(piece)
        has_text = has_text or piece.kind != "heading"
    if current:
        yield _merge_blocks(current)


def _last_headings(blocks: Sequence[_Block]) -> int:
    count = 0
    while blocks[len(blocks) - 1 - count].kind == "heading":
        count += 1
    return count


def _merge_blocks(blocks: Sequence[_Block]) -> _Block:
    # Under which headings a chunk lies is told by its first text: its own headings are in it anyway.
    first = next((block for block in blocks if block.kind != "heading"), blocks[-1])
    return replace(first, start=blocks[0].start, end=blocks[-1].end)


def _number_chunks(text: str, blocks: Sequence[_Block]) -> list[Chunk]:
    """Blocks as chunks, without white space around them; blank ones are left out."""
    found: list[Chunk] = []
    for block in blocks:
        start, end = block.start, block.end
        while end > start and text[end - 1].isspace():
            end -= 1
        while start < end and text[start] in "\r\n":
            start += 1
        if start < end:
            found.append(Chunk(len(found), start, end, block.heading, block.who))
    return found
