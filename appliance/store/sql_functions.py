"""The SQL functions that every query may use, as one table; nothing of SQLite itself.

    hedmatch(pattern, text)                  1 when the pattern fits the text, else 0; 0 for a NULL text
    hedsearch(pattern, text)                 where it is first found, counted from 1 as by instr(); 0 when nowhere
    hedfound(pattern, text)                  what is found there; NULL when nothing
    hedreplace(pattern, replacement, text)   the text with what fits replaced; as it was when nothing fits
    hedreplace(sed, text)                    the same by a sed command alone
    heddiff(before, after)                   a unified diff; '' when they are the same
    schemeOf(path)                           the scheme of a path; NULL for a bare path
    countTokens(text)                        about how many tokens; 0 for NULL
    slugify(text)                            a text as one step of a path
    asked_for(context)                       1 when whoever asks may be shown sessions and runs of a person or group
    seen(audience)                           1 when what belongs to a person or group may be shown to whom this is asked for

A pattern is one of `patterns`, or one or more sed commands, which carry their own replacement. A value
found in JSON or XML has no place: hedsearch says 1. Numbers count as their text, a BLOB as its UTF-8
text. NULL gives NULL where nothing else is said. A pattern that is not valid, or takes too long, ends the
query with an error that names it.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from appliance.errors import BadInput
from appliance.store.visibility import asked_for, seen

# Patterns, edits, addresses and tokens are imported where they are called: opening the store must not pay for them, nor the process
# that checks it for msgspec.
if TYPE_CHECKING:
    from appliance.text.edits import Sed
    from appliance.text.patterns import PatternHit

Value = int | float | str | bytes | None


class Function(NamedTuple):
    """An SQL function: its name, what it calls, with how many values, and whether these alone decide the result."""

    name: str
    call: Callable[..., Any]
    value_count: int
    is_deterministic: bool = True


def hedmatch(pattern: Value, text: Value) -> int:
    """1 when the pattern fits, else 0; sed commands fit where they would all find something."""
    given, subject = _decode_text(pattern), _decode_text(text)
    if given is None or subject is None:
        return 0
    from appliance.text import edits, patterns

    seds = edits.parse_sed(given)
    if seds is not None:
        return int(edits.apply_sed(subject, seds) is not None)
    return int(patterns.compiled(given).matches(subject))


def hedsearch(pattern: Value, text: Value) -> int | None:
    """The place of the first find, from 1; 0 when there is none."""
    given, subject = _decode_text(pattern), _decode_text(text)
    if given is None or subject is None:
        return None
    found = _search_pattern(given, subject)
    return 0 if found is None else (found.index or 0) + 1


def hedfound(pattern: Value, text: Value) -> str | None:
    """The text of the first find, or NULL."""
    given, subject = _decode_text(pattern), _decode_text(text)
    found = None if given is None or subject is None else _search_pattern(given, subject)
    return None if found is None else _replace_surrogates(found.text)


def hedreplace(pattern: Value, replacement: Value, text: Value) -> str | None:
    """The text with what fits replaced; sed commands bring their own replacement."""
    given, new, subject = _decode_text(pattern), _decode_text(replacement), _decode_text(text)
    if given is None or new is None or subject is None:
        return None
    from appliance.text import edits, patterns

    seds = edits.parse_sed(given)
    replaced = patterns.compiled(given).replace(subject, new) if seds is None else edits.apply_sed(subject, seds)
    return subject if replaced is None else replaced


def hedreplace_sed(commands: Value, text: Value) -> str | None:
    """The text edited by sed commands; BadInput when they are none."""
    given, subject = _decode_text(commands), _decode_text(text)
    if given is None or subject is None:
        return None
    from appliance.text import edits

    seds = edits.parse_sed(given)
    if seds is None:
        raise BadInput(f"{given[:60]!r} is not a sed command", hint="use hedreplace(pattern, replacement, text), or s/old/new/")
    replaced = edits.apply_sed(subject, seds)
    return subject if replaced is None else replaced


def heddiff(before: Value, after: Value) -> str | None:
    """A unified diff of two texts."""
    old, new = _decode_text(before), _decode_text(after)
    if old is None or new is None:
        return None
    from appliance.text import edits

    return edits.diff(old, new)


def scheme_of(path: Value) -> str | None:
    """The scheme of a path, or NULL."""
    from appliance.text import references

    return references.scheme_of(_decode_text(path))


def count_tokens(text: Value) -> int:
    """About how many tokens a text has."""
    return _token_estimate()(_decode_text(text))


@cache
def _token_estimate() -> Callable[[str | None], int]:
    from appliance.text.tokens import estimate

    return estimate


def slugify(text: Value) -> str | None:
    """A text as one step of a path."""
    subject = _decode_text(text)
    if subject is None:
        return None
    from appliance.text import references

    return references.slug(subject)


FUNCTIONS = (
    Function("hedmatch", hedmatch, 2),
    Function("hedsearch", hedsearch, 2),
    Function("hedfound", hedfound, 2),
    Function("hedreplace", hedreplace, 3),
    Function("hedreplace", hedreplace_sed, 2),
    Function("heddiff", heddiff, 2),
    Function("schemeOf", scheme_of, 1),
    Function("countTokens", count_tokens, 1),
    Function("slugify", slugify, 1),
    Function("seen", seen, 1, is_deterministic=False),
    Function("asked_for", asked_for, 1, is_deterministic=False),
)


def _decode_text(value: Value) -> str | None:
    """A value of SQLite as text; None for NULL and for bytes that are not UTF-8."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return None if value is None else str(value)


def _search_pattern(pattern: str, subject: str) -> "PatternHit | None":
    from appliance.text import edits, patterns

    seds = edits.parse_sed(pattern)
    return patterns.compiled(pattern).search(subject) if seds is None else _search_sed(seds, subject)


def _search_sed(seds: "Sequence[Sed]", subject: str) -> "PatternHit | None":
    """Where the first command would change something: the place of a mark that it puts there."""
    from msgspec.structs import replace

    from appliance.text import edits
    from appliance.text.patterns import PatternHit

    mark = next((char for char in map(chr, range(0xE000, 0xF900)) if char not in subject), "\0")
    marked = edits.apply_sed(subject, [replace(seds[0], replacement=mark, is_global=False)])
    if marked is None:
        return None
    index = marked.index(mark)
    return PatternHit(subject[index : index + len(subject) - len(marked) + 1], index)


def _replace_surrogates(text: str) -> str:
    """The text without half characters, which JSON can spell and SQLite cannot keep."""
    return text.encode("utf-8", "replace").decode()
