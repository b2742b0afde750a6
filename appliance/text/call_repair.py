"""Calls in which a bracket or a quotation mark was lost or is too many: what they may have been.

One mark is put in or taken out where it may have stood, or all brackets that are open at the end are closed; every text that can be
read then is a reading. Which of them was meant is for a caller to say who knows the tools: `fits` says whether arguments are what a
schema asks for. Not covered: two lost marks within a call, lost names and commas.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from appliance.text.lenient_values import Loose
from appliance.text.model_marks import MARK
from appliance.text.scanner import Hopeless, Source

MOST_CHARS = 2000  # of a call that is looked at
MOST_READINGS = 1000  # each takes a tenth of a millisecond
TOKENS = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|[{}()\[\]]')
PAIRS = {"{": "}", "[": "]", "(": ")"}
AFTER = ":,=([{ \n\t"
BEFORE = ":,)]} \n\t"
TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
CALL_KEYS = frozenset("id type index name function tool arguments parameters input args".split())


def readings(source: Source, at: int, *, is_python: bool = False) -> Iterator[Any]:
    """The values that what is broken from `at` up to the next mark may have been; with `is_python` arguments of a call.

    Looking for them takes time: a text has one chance.
    """
    if source.has_options:
        return
    source.has_options = True
    mark = MARK.search(source.text, at, at + MOST_CHARS)
    text = source.text[at : source.before_code(at, mark.start() if mark else len(source.text))].rstrip()
    if len(text) > MOST_CHARS:
        return
    seen = set()
    for edited in islice(_edits(text, is_python=is_python), MOST_READINGS):
        inner = Source(edited)
        loose = Loose(inner, is_literal=True)
        try:
            value, end = loose.arguments(0) if is_python else loose.read(0)
        except Hopeless:
            continue
        if inner.after_blanks(end) == len(edited) and (written := repr(value)) not in seen:
            seen.add(written)
            yield value
            if edited == text:  # only JSON forbids it
                return


def _edits(text: str, *, is_python: bool) -> Iterator[str]:
    """The text as it is, then with one mark more or fewer."""
    yield text
    opened: list[str] = ["("] if is_python else []
    for token in TOKENS.finditer(text):
        if token[0] in PAIRS:
            opened.append(token[0])
        elif opened and token[0] == PAIRS[opened[-1]]:
            opened.pop()
    if not text[-1:].isalnum():  # a number or a word at the end may have been longer
        yield text + "".join(PAIRS[mark] for mark in reversed(opened))
    for mark in ("}", "]", "{", "["):
        is_close = mark in "}]"
        for at in range(len(text) + 1):
            if _is_edge(text, at, is_close=is_close) and not (at == len(text) and text[-1:].isalnum()):
                yield f"{text[:at]}{mark}{text[at:]}"
    for quote in "\"'":
        if text.count(quote) % 2:
            for at in range(len(text) + 1):
                if text[at : at + 1] == "\\":  # it may stand where the mark should
                    yield f"{text[:at]}{quote}{text[at + 1 :]}"
                elif _is_edge(text, at, is_close=True) or _is_edge(text, at, is_close=False):
                    yield f"{text[:at]}{quote}{text[at:]}"
    for at, char in enumerate(text):
        if char in "{}[]":
            yield f"{text[:at]}{text[at + 1 :]}"


def _is_edge(text: str, at: int, *, is_close: bool) -> bool:
    """Whether a mark may close behind a word or bracket that ends at `at`, or open before one that begins there."""
    before, after = text[at - 1 : at], text[at : at + 1]
    if is_close:
        return before.strip() != "" and before not in ":,=" and (after == "" or after in BEFORE)
    return after.strip() != "" and after not in ":,=" and (before == "" or before in AFTER)


def is_pure(value: Any) -> bool:
    """Whether no argument of a call stands beside its arguments."""
    value = value.get("tool_calls", value) if isinstance(value, dict) else value
    return all(isinstance(one, dict) and one.keys() <= CALL_KEYS for one in (value if isinstance(value, list) else [value]))


def is_even(value: Any) -> bool:
    """Whether every list in a value holds one kind of values."""
    if isinstance(value, Mapping):
        return all(map(is_even, value.values()))
    if not isinstance(value, list):
        return True
    kinds = {float if type(one) is int else type(one) for one in value}
    return len(kinds) < 2 and all(map(is_even, value))


def fits(value: Any, schema: Any) -> bool:
    """Whether a value has the types, choices and names of a schema; what a schema does not say is free."""
    if not isinstance(schema, dict):
        return True
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return any(fits(value, option) for option in options)
    if "enum" in schema and value not in schema["enum"]:
        return False
    kinds = schema.get("type") or []
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and all(kind in TYPES for kind in kinds):
        is_one = any(isinstance(value, TYPES[kind]) and (kind == "boolean") == isinstance(value, bool) for kind in kinds)
        if not is_one:
            return False
    if isinstance(value, Mapping):
        properties = schema.get("properties") or {}
        is_named = not properties or value.keys() <= properties.keys()
        is_full = set(schema.get("required") or ()) <= value.keys()
        return is_named and is_full and all(fits(one, properties.get(key)) for key, one in value.items())
    return all(fits(one, schema.get("items")) for one in value) if isinstance(value, list) else True
