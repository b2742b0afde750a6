"""Finds the lines an edit means although they are quoted inexactly, and puts others in their place.

Owns the search order: whole lines as written, whole lines but for white space and blank lines, then a
piece of a line. Knows nothing about markers, sed or diffs. Only "\\n" separates lines. It never guesses
words: text that differs in more than white space is not found.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from appliance.errors import Conflict, TooLarge

MAX_CHARS = 4 * 1024 * 1024  # of a text before or after an edit; a stored body is half of that at most
SPACES_OF_A_TAB = 4  # where neither text shows how deep its author indents


class EditedText(Struct, frozen=True):
    """A text after an edit: in how many places it changed, and what the author should know about it."""

    text: str
    warnings: tuple[str, ...]
    count: int


class Hits(Struct, frozen=True):
    """Where something was found last, and how often."""

    last: int
    count: int


def bounded(text: str) -> str:
    """The same text; TooLarge when it is too long to edit."""
    if len(text) > MAX_CHARS:
        raise TooLarge(f"the text has {len(text)} characters, an edit takes {MAX_CHARS}", hint="split it")
    return text


def fuzzy(text: str, search: str, replacement: str) -> EditedText:
    """Replace what `search` quotes (the last of several, with a warning); an empty search appends.

    Whole lines are replaced as lines: a missing final newline in either quote does not matter, and an
    empty replacement leaves no empty line behind. Conflict when nothing fits.
    """
    for part in (text, search, replacement):
        bounded(part)
    if not search.strip():
        gap = "\n" if text and not text.endswith("\n") else ""
        return EditedText(bounded(text + gap + replacement), (), 1)
    edited = (
        _as_lines(text, search, replacement)
        or _as_spaced_lines(text, search, replacement, _collapse_blanks)
        or _inside_a_line(text, search, replacement)
        or _as_spaced_lines(text, search, replacement, _remove_blanks)
    )
    if edited is None:
        raise not_found(text, search)
    bounded(edited.text)
    return edited


def remove(text: str, region: str) -> EditedText:
    """The text without this region (the last of several, with a warning); Conflict when it is not there literally."""
    for part in (text, region):
        bounded(part)
    edited = _as_lines(text, region, "") or _inside_a_line(text, region, "") if region else None
    if edited is None:
        raise not_found(text, region)
    return edited


def not_found(text: str, search: str) -> Conflict:
    """The error for text that is not there; its hint names the line where the quote begins to be right."""
    first = next((line.strip() for line in search.split("\n") if line.strip()), "")
    at = text.find(first) if first else -1
    hint = "read the text again and copy what is to change"
    if at >= 0 and "\n" in search.strip():
        hint = f"its first line is line {_line_at(text, at)}, but the lines after it differ; {hint}"
    return Conflict(f"not found, nothing was changed: {shown(search)}", hint=hint)


def shown(text: str) -> str:
    """The beginning of a text on one line, for a message."""
    flat = " ".join(text[:400].split())
    return flat if len(flat) <= 80 and len(text) <= 400 else flat[:80].rstrip() + "…"


# -- the three ways to find -----------------------------------------------------------------------


def _as_lines(text: str, search: str, replacement: str) -> EditedText | None:
    core = search.removesuffix("\n")
    hits = _find_hits(f"\n{text}\n", f"\n{core}\n", step=len(core) + 1)
    if hits is None:
        return None
    start, end = hits.last, hits.last + len(core)  # the newline before the text makes up for the one before the needle
    if replacement:
        edited = text[:start] + replacement.removesuffix("\n") + text[end:]
    elif end < len(text):
        edited = text[:start] + text[end + 1 :]
    else:
        edited = text[: max(0, start - 1)]
    return EditedText(edited, _note_ambiguity(hits, _line_at(text, start)), 1)


def _inside_a_line(text: str, search: str, replacement: str) -> EditedText | None:
    core = search.removesuffix("\n")
    hits = _find_hits(text, core, step=len(core))
    if hits is None:
        return None
    edited = text[: hits.last] + replacement.removesuffix("\n") + text[hits.last + len(core) :]
    return EditedText(edited, _note_ambiguity(hits, _line_at(text, hits.last)), 1)


def _as_spaced_lines(text: str, search: str, replacement: str, key: Callable[[str], str]) -> EditedText | None:
    lines, asked = text.split("\n"), [line for line in search.split("\n") if line.strip()]
    full = [(at, key(line)) for at, line in enumerate(lines) if line.strip()]
    # A key has no newline in it, so that one search in the joined keys finds all lines at once.
    joined, needle = "\n".join(["", *(k for _, k in full), ""]), "\n".join(["", *map(key, asked), ""])
    hits = _find_hits(joined, needle, step=len(needle) - 1)
    if hits is None:
        return None
    start = joined.count("\n", 0, hits.last)
    matched = [full[start + i][0] for i in range(len(asked))]
    first, last = matched[0], matched[-1]
    fresh = _without_common_blanks(replacement, search)
    pairs = [(a, lines[at]) for a, at in zip(asked, matched)]
    fitted = _reindent_lines(fresh, pairs, lines)
    warnings = _note_ambiguity(hits, first + 1)
    if fitted != fresh:
        warnings += ("the indentation of the replacement was adapted to the text",)
    if key is _remove_blanks:
        warnings += ("the text to replace differs in white space inside its lines",)
    fitted = _with_line_ends(fitted, asked[0], lines[first], lines[last])
    return EditedText("\n".join([*lines[:first], *fitted, *lines[last + 1 :]]), warnings, 1)


def _find_hits(text: str, needle: str, step: int) -> Hits | None:
    # str.rfind is quadratic on repeated text, str.find is not: hence the way from the start.
    last, count, at = -1, 0, text.find(needle)
    while at >= 0:
        last, count, at = at, count + 1, text.find(needle, at + step)
    return Hits(last, count) if count else None


def _note_ambiguity(hits: Hits, line: int) -> tuple[str, ...]:
    if hits.count == 1:
        return ()
    return (f"the text to replace occurs {hits.count} times; the last one, at line {line}, was edited",)


def _line_at(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _collapse_blanks(line: str) -> str:
    return " ".join(line.split())


def _remove_blanks(line: str) -> str:
    return "".join(line.split())


# -- fitting the replacement ------------------------------------------------------------------------


def _without_common_blanks(replacement: str, search: str) -> list[str]:
    """Lines of the replacement, less the blank ones at its ends that the search has there too."""
    fresh = replacement.removesuffix("\n").split("\n") if replacement else []
    asked = search.removesuffix("\n").split("\n")
    before = min(_count_blanks(fresh), _count_blanks(asked))
    after = min(_count_blanks(reversed(fresh[before:])), _count_blanks(reversed(asked)))
    return fresh[before : len(fresh) - after]


def _count_blanks(lines: Iterable[str]) -> int:
    count = 0
    for line in lines:
        if line.strip():
            break
        count += 1
    return count


def _with_line_ends(fresh: list[str], asked: str, first: str, last: str) -> list[str]:
    """The lines with the carriage returns that the replaced lines had."""
    if first.endswith("\r") and fresh:
        fresh = [line.removesuffix("\r") + "\r" for line in fresh]
        return fresh if last.endswith("\r") else [*fresh[:-1], fresh[-1].removesuffix("\r")]
    return [line.removesuffix("\r") for line in fresh] if asked.endswith("\r") else fresh


def _reindent_lines(fresh: list[str], pairs: Sequence[tuple[str, str]], lines: list[str]) -> list[str]:
    """The replacement indented as the text is: what the search had as A and the text has as B becomes B."""
    known: dict[str, str] = {}
    same: dict[str, set[str]] = {}
    for asked, found in pairs:
        known.setdefault(_indent_of(asked), _indent_of(found))
        same.setdefault(asked, set()).add(_indent_of(found))
    near, far = {_indent_of(found) for _, found in pairs}, {_indent_of(line) for line in lines if line.strip()}
    style = _indent_style(near) or _indent_style(far)
    ours = {_indent_of(line) for line in fresh if line.strip()} | set(known)
    unit = _indent_unit(ours if style == "\t" else far)
    fits = {indent: _fit_indent(indent, known, style, unit) for indent in ours}
    result = []
    for line in fresh:
        indent = _indent_of(line)
        twins = same.get(line, set())  # a line taken over unchanged keeps its own depth
        better = next(iter(twins)) if len(twins) == 1 else fits.get(indent, indent)
        result.append(better + line[len(indent) :] if line.strip() else line)
    return result


def _fit_indent(indent: str, known: dict[str, str], style: str, unit: int) -> str:
    if indent in known:
        return known[indent]
    if shallower := [k for k in known if indent.startswith(k)]:
        base = max(shallower, key=len)
        return known[base] + _convert_indent(indent[len(base) :], style, unit)
    if deeper := [k for k in known if k.startswith(indent)]:
        base = min(deeper, key=len)
        extra = base[len(indent) :]
        return known[base].removesuffix(extra if known[base].endswith(extra) else _convert_indent(extra, style, unit))
    return indent


def _convert_indent(extra: str, style: str, unit: int) -> str:
    if style == "\t":
        spaces = extra.count(" ")
        return "\t" * (extra.count("\t") + spaces // unit) + " " * (spaces % unit)
    return extra.replace("\t", " " * unit) if style == " " else extra


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent_style(indents: set[str]) -> str:
    """What the indents are made of: a tab, a space, or "" when there are none or both."""
    used = set("".join(indents))
    return used.pop() if len(used) == 1 else ""


def _indent_unit(indents: set[str]) -> int:
    """How many spaces one level has: the smallest step between depths that is no mere alignment."""
    depths = sorted({0, *(len(i) for i in indents if "\t" not in i)})
    return min((b - a for a, b in zip(depths, depths[1:]) if b - a > 1), default=SPACES_OF_A_TAB)
