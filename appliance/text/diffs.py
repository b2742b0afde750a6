"""Differences between two texts as a unified diff, the way back, and a view with conflict blocks.

Knows nothing about what the texts are. Only "\\n" separates lines; every other character is text. Time
is bounded on any input, and for that the difference is not always the smallest one.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from difflib import SequenceMatcher

from msgspec import Struct

from appliance.errors import BadInput, Conflict
from appliance.text.fuzzy_match import bounded, shown

HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
NO_NEWLINE = "\\ No newline at end of file\n"
LINE_STEPS = 8_000_000  # how much work one diff may do, in lines looked at,
PAIR_STEPS = 1_000_000  # and in pairs of lines that difflib may compare


class Block(Struct, frozen=True):
    """Lines [a:b] of the old text became lines [c:d] of the new one."""

    a: int
    b: int
    c: int
    d: int


class Hunk(Struct, frozen=True):
    """A piece of a unified diff: at line index `start`, these old lines become these new ones."""

    start: int
    old: list[str]
    new: list[str]


def diff(before: str, after: str, name: str = "", context: int = 3) -> str:
    """A unified diff, "" when nothing differs; `apply` gives back `after` exactly."""
    if context < 0:
        raise BadInput(f"{context} lines of context cannot be", hint="use 0 or more")
    if bounded(before) == bounded(after):
        return ""
    old, new = _split_lines(before), _split_lines(after)
    title = "".join(c if c.isprintable() else "?" for c in name)
    head = [f"--- a/{title}\n", f"+++ b/{title}\n"] if title else ["--- before\n", "+++ after\n"]
    groups: list[list[Block]] = []
    for block in _find_blocks(old, new):
        if groups and block.a - groups[-1][-1].b <= 2 * context:
            groups[-1].append(block)
        else:
            groups.append([block])
    return "".join([*head, *(line for group in groups for line in _hunk_lines(old, new, group, context))])


def apply(patch: str, before: str) -> str:
    """What a unified diff of one text makes of `before`; Conflict when it is not exactly the text it was made for."""
    bounded(before)
    if not patch:
        return before
    old, result, at = _split_lines(before), [], 0
    for hunk in _parse_hunks(patch):
        if hunk.start < at:
            raise BadInput(f"the hunk at line {hunk.start + 1} is out of order", hint="sort the hunks by line")
        if hunk.start > len(old) or old[hunk.start : hunk.start + len(hunk.old)] != hunk.old:
            raise Conflict(f"the patch does not fit at line {hunk.start + 1}", hint="read the text again and make a new one")
        result += old[at : hunk.start] + hunk.new
        at = hunk.start + len(hunk.old)
    result += old[at:]
    if any(not line.endswith("\n") for line in result[:-1]):
        raise Conflict("the patch ends the text where it goes on", hint="read the text again and make a new one")
    return bounded("".join(result))


def merge_view(before: str, after: str) -> str:
    """The whole text with each change as a conflict block: the old lines above =======, the new ones below."""
    old, new = _split_lines(bounded(before)), _split_lines(bounded(after))
    longest = max((len(run[0]) for run in re.finditer(r"^(?:<+|=+|>+)", f"{before}\n{after}", re.MULTILINE)), default=0)
    size = max(7, longest + 1)  # so that no line of the texts looks like a marker
    result, at = [], 0
    for block in _find_blocks(old, new):
        result += old[at : block.a]
        result += ["<" * size + " before\n", *_end_lines(old[block.a : block.b]), "=" * size + "\n"]
        result += [*_end_lines(new[block.c : block.d]), ">" * size + " after\n"]
        at = block.b
    return "".join(result + old[at:])


def _end_lines(lines: list[str]) -> list[str]:
    return [line if line.endswith("\n") else line + "\n" for line in lines]


def _split_lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    return [*(line + "\n" for line in whole), *([rest] if rest else [])]


def _hunk_lines(old: list[str], new: list[str], group: list[Block], context: int) -> Iterator[str]:
    first, last = group[0], group[-1]
    start, end = max(0, first.a - context), min(len(old), last.b + context)
    new_start, new_end = first.c - (first.a - start), last.d + (end - last.b)
    yield f"@@ -{_format_range(start, end)} +{_format_range(new_start, new_end)} @@\n"
    at = start
    for block in group:
        for sign, lines in ((" ", old[at : block.a]), ("-", old[block.a : block.b]), ("+", new[block.c : block.d])):
            yield from _sign_lines(sign, lines)
        at = block.b
    yield from _sign_lines(" ", old[at:end])


def _sign_lines(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield sign + line if line.endswith("\n") else f"{sign}{line}\n{NO_NEWLINE}"


def _format_range(start: int, end: int) -> str:
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _parse_hunks(patch: str) -> Iterator[Hunk]:
    lines = patch.removesuffix("\n").split("\n")
    at = next((i for i, line in enumerate(lines) if HUNK.match(line)), -1)
    if at < 0:
        raise BadInput(f"this is not a unified diff: {shown(patch)}", hint="it has no line @@ -line,count +line,count @@")
    while at < len(lines):
        head = HUNK.match(lines[at])
        if head is None:
            raise BadInput(f"line {at + 1} of the patch is not a part of it: {shown(lines[at])}", hint="patch one text at a time")
        old_count, new_count = (1 if n is None else int(n) for n in head.group(2, 3))
        start = int(head[1]) - (1 if old_count else 0)
        old: list[str] = []
        new: list[str] = []
        at = _hunk_body(lines, at + 1, (old, old_count), (new, new_count))
        yield Hunk(start, old, new)


def _hunk_body(lines: list[str], at: int, old: tuple[list[str], int], new: tuple[list[str], int]) -> int:
    """Fill both sides of a hunk up to their counts; the index of the line behind it."""
    sides = {" ": (old, new), "": (old, new), "-": (old,), "+": (new,)}
    touched: tuple[tuple[list[str], int], ...] = ()
    while at < len(lines):
        line = lines[at]
        if line.startswith("\\"):
            for side, _ in touched:
                side[-1] = side[-1].removesuffix("\n")
        elif len(old[0]) == old[1] and len(new[0]) == new[1]:
            break
        else:
            touched = sides.get(line[:1], ())
            if not touched or any(len(side) == count for side, count in touched):
                raise BadInput(f"line {at + 1} of the patch does not fit its hunk: {shown(line)}", hint="count its lines again")
            for side, _ in touched:
                side.append(line[1:] + "\n")
        at += 1
    if len(old[0]) < old[1] or len(new[0]) < new[1]:
        raise BadInput("the patch ends inside a hunk", hint="send all of it")
    return at


def _find_blocks(old: list[str], new: list[str]) -> list[Block]:
    """The differing blocks, in order."""
    head = _count_equal(old, new, 1)
    tail = min(_count_equal(old, new, -1), len(old) - head, len(new) - head)
    ends = (len(old) - tail, len(new) - tail)
    blocks, a, c = [], head, head
    for i, j in [*sorted(_match_lines(old, new, Block(head, ends[0], head, ends[1]))), ends]:
        if i > a or j > c:
            blocks.append(Block(a, i, c, j))
        a, c = i + 1, j + 1
    return blocks


def _count_equal(old: list[str], new: list[str], step: int) -> int:
    count = 0
    for x, y in zip(old[::step], new[::step]):
        if x != y:
            break
        count += 1
    return count


def _match_lines(old: list[str], new: list[str], whole: Block) -> list[tuple[int, int]]:
    """Pairs of equal lines that keep their order: lines that occur once first, then what lies between them.

    difflib alone is quadratic or worse on repetitive text; a stretch too costly to compare is left
    without matches, so that it is replaced in one piece.
    """
    found: list[tuple[int, int]] = []
    line_steps, pair_steps = LINE_STEPS, PAIR_STEPS
    waiting = [whole]
    while waiting:
        s = waiting.pop()
        mine, theirs = old[s.a : s.b], new[s.c : s.d]
        line_steps -= len(mine) + len(theirs)
        if not mine or not theirs or line_steps < 0:
            continue
        pairs = _find_anchors(mine, theirs)
        if pairs:
            found += [(s.a + i, s.c + j) for i, j in pairs]
            edges = [(-1, -1), *pairs, (len(mine), len(theirs))]
            spans = [Block(s.a + i + 1, s.a + k, s.c + j + 1, s.c + m) for (i, j), (k, m) in zip(edges, edges[1:])]
            waiting += [span for span in spans if span.a < span.b and span.c < span.d]
        elif (cost := len(mine) * len(theirs)) <= pair_steps:
            pair_steps -= cost
            for run in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
                found += [(s.a + run.a + k, s.c + run.b + k) for k in range(run.size)]
    return found


def _find_anchors(mine: list[str], theirs: list[str]) -> list[tuple[int, int]]:
    """The longest ascending sequence of lines that occur once on either side."""
    places = _find_unique(theirs)
    pairs = [(i, places[line]) for line, i in _find_unique(mine).items() if line in places]
    tops: list[int] = []  # smallest end of an ascending sequence of each length, by index in `pairs` below
    ends: list[int] = []
    before: list[int] = []
    for at, (_, j) in enumerate(pairs):
        length = bisect_left(tops, j)
        before.append(ends[length - 1] if length else -1)
        tops[length : length + 1] = [j]
        ends[length : length + 1] = [at]
    chain = []
    at_end = ends[-1] if ends else -1
    while at_end >= 0:
        chain.append(pairs[at_end])
        at_end = before[at_end]
    return chain[::-1]


def _find_unique(lines: list[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for at, line in enumerate(lines):
        places[line] = -1 if line in places else at
    return {line: at for line, at in places.items() if at >= 0}
