"""Edits of a text: by line number, by exact text, by markers, by sed. Everything that edits goes through it.

Owns how edits are carried out; `text.edit_blocks` reads them, `fuzzy` finds what they mean, `diffs` compares.
Knows nothing about entries, files or who may change them: text goes in, text comes out, or an error and
nothing has changed. Only "\\n" separates lines; every other character is text. The time it takes grows
with the text, but for regular expressions in sed, which get `REGEX_S` seconds each.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from appliance.errors import BadInput, Conflict, DeadlineExceeded, TooLarge
from appliance.text.diffs import apply, diff, merge_view
from appliance.text.edit_blocks import MAX_OPERATIONS, Operation, Sed, parse_markers, parse_sed
from appliance.text.fuzzy_match import MAX_CHARS, EditedText, bounded, fuzzy, not_found, remove, shown

# Imported where it is used: 8 ms that only an edit by a regular expression needs.
if TYPE_CHECKING:
    import regex

__all__ = [
    "EditedText",
    "LinePatch",
    "Operation",
    "Sed",
    "apply",
    "apply_markers",
    "apply_sed",
    "diff",
    "exact",
    "fuzzy",
    "merge_view",
    "parse_markers",
    "parse_sed",
    "patch_lines",
]
MAX_PATCHES = 10_000
REGEX_S = 1.0
MAX_REGEX_CHARS = 500
# What nobody writes by accident: classes, wildcards with a quantifier, alternatives in a group. Anchors
# alone are literal text, and so are `a.b`, `what?` and the `\beta` of a formula.
REGEX_SIGNS = re.compile(
    r"\\[dDwWsSbB](?![A-Za-z])|(?<!\\)\.[*+]|\[[^\[\]\n]+\][*+?{]|\[[^\[\]\n]*\w-\w[^\[\]\n]*\]"
    r"|\([^()]*\|[^()]*\)|\)[*+?{]|\{\d+,?\d*\}"
)
TEMPLATE = re.compile(r"\\([1-9])|\\([nt\\&])|(&)")


class LinePatch(Struct, frozen=True):
    """Lines `start_line` to `end_line` (from 1, both included) become `content`; `end_line` 0 inserts before."""

    start_line: int
    end_line: int
    content: str


def patch_lines(text: str, patches: Sequence[LinePatch]) -> str:
    """The text with all patches made; their numbers mean the text as it was, so their order does not matter.

    Empty content deletes, a start behind the last line appends, inserts at one line keep their order. A
    final newline of `content` is optional. BadInput for patches that overlap or name impossible lines.
    """
    bounded(text)
    has_end = text.endswith("\n")
    lines = text.removesuffix("\n").split("\n") if text else []
    result: list[str] = []
    at = 0  # lines done; walking down once gives what patching from the bottom up would
    for first, end, patch in _in_order(patches, len(lines)):
        if first < at:
            raise BadInput(f"two patches change line {patch.start_line}", hint="send one patch for it")
        result += lines[at:first]
        if patch.content:
            result += patch.content.removesuffix("\n").split("\n")
            has_end = has_end or (end == len(lines) and patch.content.endswith("\n"))
        at = end
    result += lines[at:]
    return bounded("\n".join(result) + ("\n" if has_end and result else ""))


def _in_order(patches: Sequence[LinePatch], total: int) -> list[tuple[int, int, LinePatch]]:
    if len(patches) > MAX_PATCHES:
        raise TooLarge(f"{len(patches)} patches are too many, the limit is {MAX_PATCHES}", hint="send them in parts")
    spans = []
    for patch in patches:
        start, end = patch.start_line, patch.end_line
        if start < 1 or end < 0 or 0 < end < start:
            raise BadInput(f"lines {start} to {end} cannot be", hint="lines count from 1; end_line 0 inserts before start_line")
        first = min(start - 1, total)
        spans.append((first, max(first, min(end, total)), start, patch))
    ordered = sorted(spans, key=lambda s: (s[0], s[1] > s[0], s[2]))
    return [(first, end, patch) for first, end, _, patch in ordered]


def exact(text: str, old: str, new: str, *, is_all: bool = True) -> EditedText:
    """Replace `old`, as it is, everywhere, or only its first occurrence; Conflict when it does not occur."""
    for part in (text, old, new):
        bounded(part)
    if not old:
        raise BadInput("the text to replace is empty", hint="give the text that is to change")
    count = text.count(old)
    if not count:
        raise not_found(text, old)
    warnings = () if is_all or count == 1 else (f"the text to replace occurs {count} times; the first one was edited",)
    done = count if is_all else 1
    _check_size(len(text) + done * (len(new) - len(old)))
    return EditedText(text.replace(old, new, done), warnings, done)


def _check_size(size: int) -> None:
    if size > MAX_CHARS:
        raise TooLarge(f"the edited text would have {size} characters, the limit is {MAX_CHARS}", hint="replace less")


# -- markers ------------------------------------------------------------------------------------------


def apply_markers(text: str | None, operations: Sequence[Operation]) -> EditedText:
    """Carry out operations in order, each on what the ones before it left; `text` is None when there is none yet.

    Conflict when a text to change is not there; then nothing has changed.
    """
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(f"{len(operations)} edits are too many, the limit is {MAX_OPERATIONS}", hint="send them in parts")
    warnings: list[str] = []
    count = 0
    for operation in operations:
        edited = _apply_operation(text, operation)
        text = edited.text
        count += edited.count
        warnings += edited.warnings
    return EditedText(text or "", tuple(warnings), count)


def _apply_operation(text: str | None, operation: Operation) -> EditedText:
    kind, part, search = operation.kind, operation.text, operation.search
    if kind in ("new", "replace") or (kind == "search_replace" and search is None):
        return EditedText(bounded(part), (), 1)
    if kind == "append" or (kind == "search_replace" and not (search or "").strip()):
        return fuzzy(text or "", "", part)
    if kind == "prepend":
        gap = "\n" if text and not part.endswith("\n") else ""
        return EditedText(bounded(part + gap + (text or "")), (), 1)
    if text is None:
        raise Conflict(f"there is no text yet to look for {shown(search or part)}", hint="create it first, or use <<NEW")
    if kind == "delete":
        return remove(text, part)
    if kind == "sed":
        return _by_sed(text, part)
    return fuzzy(text, search or "", part)


def _by_sed(text: str, commands: str) -> EditedText:
    seds = parse_sed(commands)
    if seds is None:
        raise BadInput(f"these are no sed commands: {shown(commands)}", hint="write s/old/new/")
    for sed in seds:
        edited = _substitute_sed(text, sed)
        if edited is None:
            raise _no_match(text, sed)
        text = edited
    return EditedText(text, (), len(seds))


def _no_match(text: str, sed: Sed) -> Conflict:
    error = not_found(text, sed.pattern)
    if not sed.is_regex and set(sed.pattern) & set("\\^$.*+?()[]{}|"):
        error.hint += "; if it is a regular expression, add the flag r"
    return error


# -- sed ----------------------------------------------------------------------------------------------


def apply_sed(text: str, seds: Sequence[Sed]) -> str | None:
    """The text with all commands carried out in order, None when one of them finds nothing.

    A pattern is literal text, and so is its replacement. It is a regular expression, with `&` and `\\1`
    in the replacement and `^` and `$` at every line, when the flag r asks for it, or when it does not
    occur literally and holds unmistakable regex signs. Without g the first place in the text changes.
    """
    for sed in seds:
        edited = _substitute_sed(text, sed)
        if edited is None:
            return None
        text = edited
    return text


def _substitute_sed(text: str, sed: Sed) -> str | None:
    bounded(text)
    if not sed.pattern:
        raise BadInput("the sed command has nothing to search for", hint="write s/old/new/")
    if sed.is_regex:
        return _by_regex(text, sed)
    edited = _by_literal(text, sed)
    return _by_regex(text, sed) if edited is None and _is_regex(sed) else edited


def _by_literal(text: str, sed: Sed) -> str | None:
    hay, needle = (_fold_case(text), _fold_case(sed.pattern)) if sed.is_case_blind else (text, sed.pattern)
    pieces: list[str] = []
    done, at, limit = 0, hay.find(needle), hay.count(needle) if sed.is_global else 1
    if at < 0:
        return None
    _check_size(len(text) + limit * (len(sed.replacement) - len(needle)))
    if not sed.is_case_blind:
        return text.replace(needle, sed.replacement, limit)
    while at >= 0 and limit:
        pieces += (text[done:at], sed.replacement)
        done, limit = at + len(needle), limit - 1
        at = hay.find(needle, done)
    return "".join([*pieces, text[done:]])


def _fold_case(text: str) -> str:
    """The text in lower case, character by character, so that places in both are the same."""
    return text.lower() if text.isascii() else "".join([low if len(low := c.lower()) == 1 else c for c in text])


def _is_regex(sed: Sed) -> bool:
    pattern = sed.pattern
    if len(pattern) > MAX_REGEX_CHARS:
        return False
    is_meant = REGEX_SIGNS.search(pattern) or (re.search(r"\\[1-9]", sed.replacement) and "(" in pattern and ")" in pattern)
    return bool(is_meant) and _compile_sed(sed) is not None


def _compile_sed(sed: Sed) -> "regex.Pattern[str] | None":
    import regex

    try:
        return regex.compile(sed.pattern, regex.MULTILINE | (regex.IGNORECASE if sed.is_case_blind else 0))
    except (regex.error, RecursionError, OverflowError, ValueError, KeyError):
        return None


def _by_regex(text: str, sed: Sed) -> str | None:
    pattern = _compile_sed(sed) if len(sed.pattern) <= MAX_REGEX_CHARS else None
    if pattern is None:
        raise BadInput(f"this is not a regular expression we can use: {shown(sed.pattern)}", hint="leave out the flag r")
    template = _parse_template(sed.replacement, pattern.groups)
    pieces: list[str] = []
    done, size = 0, len(text)
    try:
        for match in pattern.finditer(text, timeout=REGEX_S):
            fresh = "".join(part if isinstance(part, str) else match[part] or "" for part in template)
            size += len(fresh) - len(match[0])
            _check_size(size)
            pieces += (text[done : match.start()], fresh)
            done = match.end()
            if not sed.is_global:
                break
    except TimeoutError:
        hint = "write a simpler one, or quote the text itself"
        raise DeadlineExceeded(f"the expression took longer than {REGEX_S:g} s: {shown(sed.pattern)}", hint=hint) from None
    return "".join([*pieces, text[done:]]) if pieces else None


def _parse_template(replacement: str, groups: int) -> list[str | int]:
    parts: list[str | int] = []
    done = 0
    for found in TEMPLATE.finditer(replacement):
        parts.append(replacement[done : found.start()])
        done = found.end()
        if found[1] and int(found[1]) > groups:
            raise BadInput(f"the pattern has no group {found[1]}", hint="put what to keep in ( and ), without backslashes")
        parts.append(int(found[1]) if found[1] else 0 if found[3] else {"n": "\n", "t": "\t"}.get(found[2], found[2]))
    return [*parts, replacement[done:]]
