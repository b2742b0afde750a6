"""Calls as JSON, JavaScript or Python write them, without marks of their own: where each ends and what it asks for.

Every reader takes a `Source` and a position and hands back a `FoundCalls`, or None when what stands there is prose. A fragment that
cannot be read is passed over as a whole and named in `problems`, with the calls that it may have been in `options`. Reading takes
time linear in the text: what was looked at is passed.
"""

import json
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.text import call_repair, model_marks
from appliance.text.lenient_values import NAME, Loose
from appliance.text.scanner import Hopeless, Source

UNREADABLE = "a tool call could not be read"
MENDED = "a mark that was missing in a tool call, or too many, was mended"
BESIDE_WORDS = "a tool call with words on its line was not run"

# What JSON is made of; the whole of a value is found first, so that nothing is decoded twice.
TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*+"|(?P<open>[{\[])|(?P<close>[}\]])|[\s,:0-9.+\-]++|[eE]|true|false|null|NaN|Infinity', re.DOTALL
)
MAX_LEVELS = 100
MAX_ENCODED = 3  # how often arguments may have been written as a text of a text
# Broken JSON that was meant as a call: it begins like one, or has both words of one.
BROKEN_START = re.compile(r'[\[{\s]*(?:"(?:name|tool_calls)"?|(?:name|tool_calls)")\s*:')
BROKEN_WORDS = (re.compile(r'"(?:name|function)"'), re.compile(r'"(?:arguments|parameters)"'))
BROKEN_CHARS = 2000  # how far into a fragment those are looked for
OPENED = re.compile(r"[\[{\s]{1,200}")
BRACKETS = re.compile(r'["{}\[\]]|\\.', re.DOTALL)
CALLED = re.compile(rf"\s*(?:print\(\s*)?(?:(?:default_api|functions|tools)\.)?({NAME}?)(?:\.call)?\(")
COLON_CALL = re.compile(rf"\s*[,:]?\s*call:({NAME})\s*(?=[{{(])")


class Written(Struct, frozen=True):
    """A call as it was written. `body` is the text between its tags; with `is_text` every value is text."""

    name: str
    arguments: dict[str, Any]
    body: str | None = None
    is_text: bool = False


Calls = tuple[Written, ...]


class FoundCalls(Struct, frozen=True):
    """What was read up to `end`: calls, problems, notes, and whether it was meant to be a call at all."""

    end: int
    calls: tuple[Written, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    inner: str | None = None  # text that is live and still to be read
    is_prose: bool = False
    is_tag: bool = False  # as the tags of a tool, not in a format of its own
    is_thought_end: bool = False  # all before it was thought
    options: tuple[Calls, ...] = ()  # the calls that it may have been, where it could not be read
    is_unclosed: bool = False  # all behind it may be thought or somebody else's words


def line_json(source: Source, at: int) -> FoundCalls:
    """The calls in JSON that begins a line at `at`, or how far it is prose."""
    opened = OPENED.match(source.text, at)
    if opened is None or not (source.text.startswith('"', opened.end()) or BROKEN_START.match(source.text, at)):
        return FoundCalls(at + 1, is_prose=True)
    found = read_values(source, at, is_marked=False) or FoundCalls(at + 1, is_prose=True)
    if found.is_prose or found.problems:
        return found
    line_end = source.line_end(found.end)
    rest = source.text[found.end : line_end].strip()
    if rest and not rest.strip("}]"):
        return replace(found, end=line_end, notes=(MENDED,))
    if rest and not rest.startswith("<"):
        return FoundCalls(found.end, problems=(BESIDE_WORDS,))
    return found


def data_end(source: Source, at: int) -> int:
    """Where JSON that is whole and no call ends; 0 when it is not whole, or a call."""
    try:
        value, end = decode_json(source, at)
    except Hopeless:
        return 0
    return end if calls_in(value) is None else 0


def calls_in(value: Any, *, is_marked: bool = False, is_mending: bool = False) -> tuple[list[Written], bool] | None:
    """The calls that a JSON value is, and whether one of them could not be read; None when it is data.

    With `is_mending`, arguments that are a text with a mark too few or too many are read as the first that it may have been.
    """
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        parts = [calls_in(item, is_marked=is_marked, is_mending=is_mending) for item in value]
        if not parts or any(part is None for part in parts):
            return None
        whole = [part for part in parts if part is not None]
        return [call for calls, _ in whole for call in calls], any(is_bad for _, is_bad in whole)
    if not isinstance(value, dict):
        return None
    value = next((value[key] for key in ("function", "function_call") if isinstance(value.get(key), dict)), value)
    name = next((value[key] for key in ("name", "function", "tool", "tool_name") if isinstance(value.get(key), str)), "")
    keys = ("arguments", "parameters", "input", "args") if is_marked else ("arguments", "parameters")
    key = next((key for key in keys if key in value), "")
    if not name or "description" in value or not (key or is_marked):
        return None
    arguments = value.get(key, {})
    for _ in range(MAX_ENCODED):
        if isinstance(arguments, str):
            arguments = _decode_text(arguments, is_mending=is_mending)
    if arguments is None:
        arguments = {}
    return ([Written(name, arguments)], False) if isinstance(arguments, dict) else ([], True)


def _decode_text(text: str, *, is_mending: bool) -> Any:
    """The value that a text is; the text itself where it is none."""
    try:
        return decode_value(Source(text), 0)[0]
    except Hopeless:
        return next(call_repair.readings(Source(text), 0), text) if is_mending and text.strip() else text


def read_values(source: Source, at: int, *, is_marked: bool) -> FoundCalls | None:
    """One JSON value or several in a row, as calls; None without any, prose when the first is data."""
    end = at = source.after_blanks(at)
    calls: list[Written] = []
    while source.text[at : at + 1] in (("{", "[", '"') if is_marked else ("{", "[")):
        try:
            value, stop = (decode_value if is_marked else decode_json)(source, at)
        except Hopeless as error:
            if is_marked or _is_call_like(source.text[at : at + BROKEN_CHARS]):
                return broken(source, at, error, calls)
            return FoundCalls(end, tuple(calls)) if calls else FoundCalls(max(error.at, at + 1), is_prose=True)
        found = calls_in(value, is_marked=is_marked)
        if found is None and not is_marked:
            return FoundCalls(end, tuple(calls)) if calls else FoundCalls(stop, is_prose=True)
        calls += found[0] if found else []
        if found is None or found[1]:
            return FoundCalls(stop, tuple(calls), (UNREADABLE,), options=possible_calls(source, at, tuple(calls)))
        end, at = stop, source.after_blanks(stop)
        if source.text[at : at + 1] in (",", ";"):
            at = source.after_blanks(at + 1)
    return FoundCalls(end, tuple(calls)) if calls else None


def decode_json(source: Source, at: int) -> tuple[Any, int]:
    """The JSON value at `at` and where it ends."""
    end, depth, broken = at, 0, len(source.text)
    while match := TOKEN.match(source.text, end):
        if match.lastgroup is None and "\n" in match.group() and match.group()[0] == '"':
            broken = min(broken, match.start() + match.group().index("\n"))
            if source.has_failed:
                break
        end = match.end()
        depth += (match.lastgroup == "open") - (match.lastgroup == "close")
        if not 0 < depth <= MAX_LEVELS:
            break
    if end > at and not depth:
        try:
            # Models write line ends into strings. On a whole text this error would count lines for ever.
            return json.loads(source.text[at:end], strict=False), end
        except ValueError:
            pass
    source.has_failed = True
    raise Hopeless(min(end, broken))


def decode_value(source: Source, at: int) -> tuple[Any, int]:
    """The value at `at` where a mark says that it is a call: JSON, or the same as Python writes it."""
    try:
        return decode_json(source, at)
    except Hopeless as error:
        try:
            return Loose(source, is_literal=True).read(at)
        except Hopeless:
            raise error from None


def broken(source: Source, at: int, error: Hopeless, before: list[Written], name: str = "") -> FoundCalls:
    """What stands at `at` and cannot be read, with what it may have been."""
    maybe = possible_calls(source, at, tuple(before), name)
    return FoundCalls(_hopeless_end(source, at, error.at), tuple(before), (UNREADABLE,), options=maybe)


def possible_calls(
    source: Source, at: int, before: tuple[Written, ...], name: str = "", *, is_python: bool = False
) -> tuple[Calls, ...]:
    """The calls that broken ones from `at` on may have been, those `before` included; of arguments, the call of a `name`."""
    found: list[Calls] = []
    for value in call_repair.readings(source, at, is_python=is_python):
        if not name:
            calls = calls_in(value, is_marked=True, is_mending=True) if call_repair.is_pure(value) else None
            found += [(*before, *calls[0])] if calls is not None and not calls[1] else []
        elif isinstance(value, dict) and "" not in value:
            found.append((*before, Written(name, value)))
    return tuple(found)


def _is_call_like(fragment: str) -> bool:
    return bool(BROKEN_START.match(fragment)) or all(word.search(fragment) for word in BROKEN_WORDS)


def _hopeless_end(source: Source, at: int, looked_at: int) -> int:
    """Where broken JSON ends: at its last bracket, else with its paragraph."""
    looked_at = at + len(source.text[at:looked_at].rstrip())
    mark = model_marks.MARK.match(source.text, source.after_blanks(looked_at))
    last = mark.start() if mark else source.paragraph_end(looked_at)
    stop, depth, is_quoted = source.before_code(at, last), 0, False
    for token in BRACKETS.finditer(source.text, at, stop):
        if token.group() == '"':
            is_quoted = not is_quoted
        elif not is_quoted and token.group() in "{[":
            depth += 1
        elif not is_quoted and token.group() in "}]":
            depth -= 1
            if depth <= 0 and token.end() >= looked_at:
                return token.end()
    return stop


def colon_calls(source: Source, at: int) -> FoundCalls | None:
    """`call:NAME{key:value}`, one or several, in some answers with round brackets."""
    calls: list[Written] = []
    while match := COLON_CALL.match(source.text, at):
        try:
            is_round = source.text.startswith("(", match.end())
            value, at = Loose(source).arguments(match.end() + 1) if is_round else Loose(source).read(match.end())
        except Hopeless as error:
            return broken(source, match.end(), error, calls, match.group(1))
        calls.append(Written(match.group(1), value))
    return FoundCalls(at, tuple(calls)) if calls else None


def python_list(source: Source, at: int) -> FoundCalls | None:
    """`[name(key="value"), ...]`, as LFM2 writes calls."""
    at = source.after_blanks(at)
    if not source.text.startswith("[", at) or not CALLED.match(source.text, at + 1):
        return None
    calls: list[Written] = []
    while source.text[at : at + 1] in ("[", ","):
        found = read_python(source, at + 1)
        if found is None or found.problems:
            return FoundCalls(found.end if found else at + 1, tuple(calls), (UNREADABLE,))
        calls += found.calls
        at = source.after_blanks(found.end)
    return FoundCalls(at + 1 if source.text.startswith("]", at) else at, tuple(calls))


def read_python(source: Source, at: int) -> FoundCalls | None:
    """`name(key="value")`, one or several, as Python writes it."""
    calls: list[Written] = []
    while match := CALLED.match(source.text, at):
        try:
            arguments, at = Loose(source).arguments(match.end())
        except Hopeless as error:
            looked_at = min(error.at, source.paragraph_end(match.end()))  # a quotation mark may have been taken for a string's
            end = source.before_code(match.end(), max(looked_at, source.line_end(match.end())))
            maybe = possible_calls(source, match.end(), tuple(calls), match.group(1), is_python=True)
            return FoundCalls(end, tuple(calls), (UNREADABLE,), options=maybe)
        if "print(" in match.group() and source.text.startswith(")", at):
            at += 1
        body = arguments.pop("", None)
        calls.append(Written(match.group(1), arguments, body if isinstance(body, str) else None))
    return FoundCalls(at, tuple(calls)) if calls else None
