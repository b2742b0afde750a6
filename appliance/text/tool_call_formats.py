"""Tool calls that models write into their text in formats of their own: where each ends and what it asks for.

Every reader takes a `Source` and a position and hands back a `Found`, or None when what stands there is
prose. Nothing is run and no tool is known here: names and arguments come out as they were written, and
`text.answer_parser` decides about them. A fragment that cannot be read is passed over as a whole and named in
`problems`; none of it is handed on. Reading takes time linear in the text: what was looked at is passed.
"""

import json
import re
from bisect import bisect_left
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.text import call_repair, code_regions, model_marks
from appliance.text.code_regions import Fence
from appliance.text.lenient_values import NAME, Loose
from appliance.text.model_marks import MARK, MarkKind
from appliance.text.scanner import Hopeless, Source

UNREADABLE = "a tool call could not be read"
MENDED = "a mark that was missing in a tool call, or too many, was mended"
BESIDE_WORDS = "a tool call with words on its line was not run"
IN_THOUGHTS = "a tool call in thoughts was not run"
THOUGHTS = "thoughts were left out of the answer"
MARKS = "control marks were left out of the answer"

# Fences whose content is meant to be run, and fences that are a call only when all of them is one.
LIVE = ("tool_code", "tool_call", "tool_calls", "tool_use", "function_call")
PLAIN = ("", "json")

# What JSON is made of; the whole of a value is found first, so that nothing is decoded twice.
TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*+"|(?P<open>[{\[])|(?P<close>[}\]])|[\s,:0-9.+\-]++|[eE]|true|false|null|NaN|Infinity', re.DOTALL
)
MAX_LEVELS = 100
# Broken JSON that was meant as a call: it begins like one, or has both words of one.
BROKEN_START = re.compile(r'[\[{\s]*(?:"(?:name|tool_calls)"?|(?:name|tool_calls)")\s*:')
BROKEN_WORDS = (re.compile(r'"(?:name|function)"'), re.compile(r'"(?:arguments|parameters)"'))
BROKEN_CHARS = 2000  # how far into a fragment those are looked for
OPENED = re.compile(r"[\[{\s]{1,200}")
BRACKETS = re.compile(r'["{}\[\]]|\\.', re.DOTALL)
CALLED = re.compile(rf"\s*(?:print\(\s*)?(?:(?:default_api|functions|tools)\.)?({NAME}?)(?:\.call)?\(")
NAMED = re.compile(rf"\s*({NAME})(?:\[CALL_ID\]\w{{1,64}})?(?:\[ARGS\])?\s*(?=\{{)")
COLON_CALL = re.compile(rf"\s*,?\s*call:({NAME})\s*(?=\{{)")
USED = re.compile(r"\s*<(?:tool_)?name>\s*([^<\s]{1,100})\s*</(?:tool_)?name>\s*<(?:input|arguments|parameters)>\s*")
DSML = r"(?:[|\uff5c]DSML[|\uff5c])?"
INVOKED = re.compile(rf"""\s*<(?:function=["']?({NAME})["']?>|({DSML}invoke|function)\s+name=["']({NAME})["']\s*>)""")
PARAMETER = re.compile(rf"""\s*<({DSML}param(?:eter)?)(?:=|\s+name=)["']?({NAME})["']?(?:\s+string=.\w+.)?\s*>(<!\[CDATA\[)?""")
# A name and JSON between marks, as DeepSeek and Kimi write calls; GLM puts pairs behind the name.
BAR = "[|\uff5c]"
SECTION = re.compile(
    rf"\s*+(?:<{BAR}tool[▁_]call[▁_]begin{BAR}>)?\s*+(?:function\s*+<{BAR}tool▁sep{BAR}>)?\s*+(?:functions\.)?({NAME})(?::\d+)?\s*+"
    rf"(?:<{BAR}tool▁sep{BAR}>|<{BAR}tool_call_argument_begin{BAR}>)?\s*+(?:```(?:json)?\s*+)?(?=\{{)"
)
SECTION_END = re.compile(rf"\s*+(?:```)?\s*+(?:<{BAR}tool[▁_]call[▁_]end{BAR}>)?")
PAIRED = re.compile(rf"\s*+({NAME})\s*+(?=<arg_key>|</tool_call>)")
PAIR = re.compile(rf"\s*+<arg_key>\s*+({NAME})\s*+</arg_key>\s*+<arg_value>")
CHANNEL = re.compile(r"(?:<\|start\|>([^<]{0,200}))?<\|channel\|?>([^<\n]{0,200})(?:<\|constrain\|>\s*\w*\s*)?(<\|message\|>)?")
RECIPIENT = re.compile(rf"to=(?:functions\.)?({NAME})")
SPOKEN_END = re.compile(r"<\|(?:end|call|return|start|channel)\|?>|<channel\|>")

LIST_MARK = "[TOOL_CALLS]"


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


# -- code ------------------------------------------------------------------------------------------------


def fenced(source: Source, block: Fence, is_first: bool) -> FoundCalls | None:
    """The calls of a fenced block, or None when it is code to be shown.

    JSON without a label of its own is a call only where the answer `is_first` and last nothing but such blocks: beside words
    it is somebody's data, or shown as an example.
    """
    content = Source(source.text[block.start : block.stop].strip())
    if block.label in LIVE:
        found = _read_values(content, 0, is_marked=True) or _read_python(content, 0)
        if found is not None and not found.problems and not content.text[found.end :].strip():
            return FoundCalls(block.end, found.calls)
        return FoundCalls(block.end, inner=content.text)
    if not _is_json(source, block) or not is_first:
        return None
    found = _read_values(content, 0, is_marked=False)
    if found is None or found.is_prose or (not found.problems and content.text[found.end :].strip()):
        return None
    return FoundCalls(block.end, found.calls, found.problems) if _is_last(source, block.end) else None


def _is_json(source: Source, block: Fence) -> bool:
    return block.label in PLAIN and source.text.startswith(("{", "["), source.after_blanks(block.start))


def _is_last(source: Source, at: int) -> bool:
    """Whether nothing but blocks that may be calls, and marks without meaning, follows."""
    while (at := source.after_blanks(at)) < len(source.text):
        block = code_regions.fence(source, at)
        if block is not None and (block.label in LIVE or _is_json(source, block)):
            at = block.end
        elif (mark := MARK.match(source.text, at)) is not None and model_marks.kind_of(mark[0]) in (MarkKind.NOISE, MarkKind.END):
            at = mark.end()
        else:
            return False
    return True


# -- JSON ---------------------------------------------------------------------------------------------


def line_json(source: Source, at: int) -> FoundCalls:
    """The calls in JSON that begins a line at `at`, or how far it is prose."""
    opened = OPENED.match(source.text, at)
    if opened is None or not (source.text.startswith('"', opened.end()) or BROKEN_START.match(source.text, at)):
        return FoundCalls(at + 1, is_prose=True)
    found = _read_values(source, at, is_marked=False) or FoundCalls(at + 1, is_prose=True)
    if found.is_prose or found.problems:
        return found
    rest = source.text[found.end : source.line_end(found.end)].strip()
    if rest and not rest.startswith("<"):
        return FoundCalls(found.end, problems=(BESIDE_WORDS,))
    return found


def data_end(source: Source, at: int) -> int:
    """Where JSON that is whole and no call ends; 0 when it is not whole, or a call."""
    try:
        value, end = _decode_json(source, at)
    except Hopeless:
        return 0
    return end if calls_in(value) is None else 0


def calls_in(value: Any, *, is_marked: bool = False) -> tuple[list[Written], bool] | None:
    """The calls that a JSON value is, and whether one of them could not be read; None when it is data."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        parts = [calls_in(item, is_marked=is_marked) for item in value]
        if not parts or any(part is None for part in parts):
            return None
        whole = [part for part in parts if part is not None]
        return [call for calls, _ in whole for call in calls], any(is_bad for _, is_bad in whole)
    if not isinstance(value, dict):
        return None
    value = next((value[key] for key in ("function", "function_call") if isinstance(value.get(key), dict)), value)
    name = next((value[key] for key in ("name", "function", "tool") if isinstance(value.get(key), str)), "")
    keys = ("arguments", "parameters", "input", "args") if is_marked else ("arguments", "parameters")
    key = next((key for key in keys if key in value), "")
    if not name or "description" in value or not (key or is_marked):
        return None
    arguments = value.get(key, {})
    if isinstance(arguments, str):
        try:
            arguments = _decode_value(Source(arguments), 0)[0]
        except Hopeless:
            return [], True
    if arguments is None:
        arguments = {}
    return ([Written(name, arguments)], False) if isinstance(arguments, dict) else ([], True)


def _read_values(source: Source, at: int, *, is_marked: bool) -> FoundCalls | None:
    """One JSON value or several in a row, as calls; None without any, prose when the first is data."""
    end = at = source.after_blanks(at)
    calls: list[Written] = []
    while source.text[at : at + 1] in (("{", "[", '"') if is_marked else ("{", "[")):
        try:
            value, stop = (_decode_value if is_marked else _decode_json)(source, at)
        except Hopeless as error:
            if is_marked or _is_call_like(source.text[at : at + BROKEN_CHARS]):
                return _broken(source, at, error, calls)
            return FoundCalls(end, tuple(calls)) if calls else FoundCalls(max(error.at, at + 1), is_prose=True)
        found = calls_in(value, is_marked=is_marked)
        if found is None and not is_marked:
            return FoundCalls(end, tuple(calls)) if calls else FoundCalls(stop, is_prose=True)
        calls += found[0] if found else []
        if found is None or found[1]:
            return FoundCalls(stop, tuple(calls), (UNREADABLE,), options=_options(source, at, tuple(calls)) if is_marked else ())
        end, at = stop, source.after_blanks(stop)
        if source.text[at : at + 1] in (",", ";"):
            at = source.after_blanks(at + 1)
    return FoundCalls(end, tuple(calls)) if calls else None


def _decode_json(source: Source, at: int) -> tuple[Any, int]:
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


def _decode_value(source: Source, at: int) -> tuple[Any, int]:
    """The value at `at` where a mark says that it is a call: JSON, or the same as Python writes it."""
    try:
        return _decode_json(source, at)
    except Hopeless as error:
        try:
            return Loose(source, is_literal=True).read(at)
        except Hopeless:
            raise error from None


def _broken(source: Source, at: int, error: Hopeless, before: list[Written], name: str = "") -> FoundCalls:
    """What stands at `at` and cannot be read, with what it may have been."""
    options = _options(source, at, tuple(before), name)
    return FoundCalls(_hopeless_end(source, at, error.at), tuple(before), (UNREADABLE,), options=options)


def _options(source: Source, at: int, before: tuple[Written, ...], name: str = "", *, is_python: bool = False) -> tuple[Calls, ...]:
    """The calls that broken ones from `at` on may have been, those `before` included; of arguments, the call of a `name`."""
    found: list[Calls] = []
    for value in call_repair.readings(source, at, is_python=is_python):
        if not name:
            calls = calls_in(value, is_marked=True) if call_repair.is_pure(value) else None
            found += [(*before, *calls[0])] if calls is not None and not calls[1] else []
        elif isinstance(value, dict) and "" not in value:
            found.append((*before, Written(name, value)))
    return tuple(found)


def _is_call_like(fragment: str) -> bool:
    return bool(BROKEN_START.match(fragment)) or all(word.search(fragment) for word in BROKEN_WORDS)


def _hopeless_end(source: Source, at: int, looked_at: int) -> int:
    """Where broken JSON ends: at its last bracket, else with its paragraph."""
    looked_at = at + len(source.text[at:looked_at].rstrip())
    stop, depth, is_quoted = source.before_code(at, source.paragraph_end(looked_at)), 0, False
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


# -- formats with marks of their own ------------------------------------------------------------------


def marked(source: Source, at: int) -> FoundCalls | None:
    """What stands at a mark: calls of one of the known formats, thoughts, or a mark without meaning."""
    match = MARK.match(source.text, at)
    if match is None:
        return None
    mark, after = match.group(), match.end()
    kind = model_marks.kind_of(mark)
    if kind is MarkKind.THOUGHT:
        close = _thought_end(source, after, mark)
        return FoundCalls(close, notes=(THOUGHTS,)) if close else FoundCalls(after, is_prose=True, is_unclosed=True)
    if kind is MarkKind.THOUGHT_END:
        return FoundCalls(after, notes=(THOUGHTS if source.text[after:].strip() else MARKS,), is_thought_end=True)
    if kind is MarkKind.END:
        return _read_end(source, at, after, mark)
    if kind is MarkKind.CHANNEL:
        return _read_channel(source, at, after)
    if kind is MarkKind.TURN:
        return _read_turn(source, after, mark)
    if kind is MarkKind.RESULT:
        return _read_result(source, at, after, mark)
    if kind is MarkKind.NOISE:
        return FoundCalls(after, notes=(MARKS,))
    if mark == "<|python_tag|>":
        return _read_values(source, after, is_marked=True) or _read_python(source, after) or _skip_rest(source, after, "<|eom_id|>")
    if mark == "<tool_use>":
        return _read_used(source, after) or _read_block(source, after, mark)
    if mark in ("<function=", "<function name=", "<invoke"):
        return _read_invoked(source, at) or _skip_rest(source, after, "</invoke>" if mark == "<invoke" else "</function>")
    return _read_block(source, after, mark)


def _thought_end(source: Source, after: int, mark: str) -> int:
    """Where the thoughts that a mark opens are closed; 0 when they are not."""
    every = source.places("thoughts", lambda: _index_thoughts(source.text))
    own = every.get(model_marks.closing(mark), [])
    first = _next(own, after)
    if first < 0:  # none of its own: any other will have been meant
        first = min((at for closes in every.values() if (at := _next(closes, after)) >= 0), default=-1)
    found = model_marks.THOUGHT_CLOSE.match(source.text, first) if first >= 0 else None
    return found.end() if found else 0


def _next(places: list[int], at: int) -> int:
    """The first of sorted places from `at` on; -1 without one."""
    place = bisect_left(places, at)
    return places[place] if place < len(places) else -1


def _read_turn(source: Source, after: int, mark: str) -> FoundCalls:
    """The head of a turn; when it is not the assistant's, all of it, up to where the assistant speaks again."""
    role = model_marks.ROLE.match(source.text, after) if mark.replace("\uff5c", "|") in model_marks.TURNS else None
    is_others = role["other"] is not None if role else mark.replace("\uff5c", "|") in model_marks.OTHERS_TURNS
    return FoundCalls(_own_turn(source, after) if is_others else role.end() if role else after, notes=(MARKS,))


def _own_turn(source: Source, at: int) -> int:
    starts = source.places("turns", lambda: {"": [found.start() for found in model_marks.OWN_TURN.finditer(source.text)]})[""]
    place = _next(starts, at)
    return place if place >= 0 else len(source.text)


def _read_result(source: Source, at: int, after: int, mark: str) -> FoundCalls:
    """A result that the model made up or repeats; one in the middle of a line that is never closed may be words about the mark."""
    close = model_marks.RESULTS[mark.replace("\uff5c", "|")]
    close = close.replace("|", "\uff5c") if "\uff5c" in mark else close
    end = source.find(close, after)
    if end < len(source.text):
        return FoundCalls(end + len(close), notes=(MARKS,))
    if source.text[at - 1 : at] in ("", ">", "]") or _begins_line(source, at):
        return FoundCalls(len(source.text), notes=(MARKS,))
    return FoundCalls(after, is_prose=True, is_unclosed=True)


def _index_thoughts(text: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for match in model_marks.THOUGHT_CLOSE.finditer(text):
        found.setdefault(match[0].lower().replace(" ", ""), []).append(match.start())
    return found


def _read_end(source: Source, at: int, after: int, mark: str) -> FoundCalls | None:
    """The end of an answer: what follows is the next turn of a conversation that the model makes up."""
    if mark == "</s>" and source.find("<s>", 1) < at:  # what was struck through ends
        return None
    return FoundCalls(len(source.text) if source.after_blanks(0) < at else after, notes=(MARKS,))


def listed(source: Source, at: int) -> FoundCalls:
    """The calls after `[TOOL_CALLS]`: a JSON list, or names each with its arguments."""
    after = at + len(LIST_MARK)
    if (found := _read_values(source, after, is_marked=True)) is not None:
        return found
    end = after
    calls: list[Written] = []
    while named := NAMED.match(source.text, end):
        try:
            value, end = _decode_value(source, named.end())
        except Hopeless as error:
            return _broken(source, named.end(), error, calls, named.group(1))
        calls.append(Written(named.group(1), value))
        end = end + len(LIST_MARK) if source.text.startswith(LIST_MARK, end) else end
    if calls:
        return FoundCalls(end, tuple(calls))
    return FoundCalls(source.before_code(after, source.line_end(after)), problems=(UNREADABLE,))


def _read_block(source: Source, after: int, mark: str) -> FoundCalls | None:
    """Calls between a mark and its close, which may be missing; None when a person may have meant the mark."""
    close = _written_close(source, after, mark)
    found = (
        _python_list(source, after)
        or _read_values(source, after, is_marked=True)
        or _colon_calls(source, after)
        or _read_invoked(source, after)
        or _read_sections(source, after)
        or _read_pairs(source, after)
    )
    if found is None:
        found = _read_python(source, after)
        if found is not None and not (mark.startswith("<|") or source.text.startswith(close, source.after_blanks(found.end))):
            found = None
    if found is None:
        inner = source.after_blanks(after)
        if mark.endswith(("calls>", "calls▁begin|>", "calls▁begin\uff5c>", "section_begin|>")) and MARK.match(source.text, inner):
            return FoundCalls(after)
        is_begun = source.text.startswith(("<", "{", "["), inner) or (
            inner == len(source.text) and _begins_line(source, after - len(mark))
        )
        is_meant = is_begun or mark.startswith("<|") or source.find(close, after) < len(source.text)
        return _skip_rest(source, after, close) if is_meant else None
    end = source.after_blanks(found.end)
    if found.problems:
        closed = source.find(close, found.end)
        is_near = closed <= source.paragraph_end(found.end)
        return replace(found, end=closed + len(close)) if is_near and closed < len(source.text) else found
    return FoundCalls(end + len(close) if source.text.startswith(close, end) else found.end, found.calls, found.problems)


def _written_close(source: Source, after: int, mark: str) -> str:
    """What closes a mark, with bars as wide as its own."""
    close = model_marks.CALLS[mark.replace("\uff5c", "|")]
    return close.replace("|", "\uff5c") if "\uff5c" in mark else close


def _begins_line(source: Source, at: int) -> bool:
    return not source.text[source.text.rfind("\n", 0, at) + 1 : at].strip()


def _skip_rest(source: Source, after: int, close: str) -> FoundCalls:
    """A fragment that was meant as a call and is none: up to its close, else to the end of its paragraph."""
    place = source.find(close, after)
    is_closed = place < min(len(source.text), source.code(after))
    end = place + len(close) if is_closed else source.before_code(after, source.paragraph_end(after))
    return FoundCalls(end, problems=(UNREADABLE,))


def _read_used(source: Source, after: int) -> FoundCalls | None:
    match = USED.match(source.text, after)
    if match is None:
        return None
    try:
        value, end = _decode_value(source, match.end())
    except Hopeless:
        return None
    close = source.find("</tool_use>", end)
    end = close + len("</tool_use>") if re.fullmatch(r"\s*(?:</\w+>)?\s*", source.text[end : min(close, end + 100)]) else end
    if not isinstance(value, dict):
        return FoundCalls(end, problems=(UNREADABLE,))
    return FoundCalls(end, (Written(match.group(1), value),))


def _read_invoked(source: Source, at: int) -> FoundCalls | None:
    """`<function=NAME>`, `<function name="NAME">` or `<invoke name="NAME">` with JSON or parameters in it; several in a row."""
    calls: list[Written] = []
    while match := INVOKED.match(source.text, at):
        name, close = match[1] or match[3], f"</{match[2] or 'function'}>"
        start = source.after_blanks(match.end())
        if source.text.startswith("{", start):
            try:
                value, at = _decode_value(source, start)
            except Hopeless as error:
                return _broken(source, start, error, calls, name)
            calls.append(Written(name, value))
        else:
            arguments, at = _read_parameters(source, match.end())
            if at < 0 or (not arguments and not source.text.startswith(close, source.after_blanks(at))):
                return FoundCalls(_skip_rest(source, start, close).end, tuple(calls), (UNREADABLE,))
            calls.append(Written(name, arguments, is_text=True))
        end = source.after_blanks(at)
        at = end + len(close) if source.text.startswith(close, end) else at
    return FoundCalls(at, tuple(calls)) if calls else None


def _read_sections(source: Source, at: int) -> FoundCalls | None:
    """`NAME` and JSON between marks, as DeepSeek and Kimi write them; several in a row."""
    calls: list[Written] = []
    while match := SECTION.match(source.text, at):
        try:
            value, at = _decode_value(source, match.end())
        except Hopeless as error:
            return _broken(source, match.end(), error, calls, match[1])
        calls.append(Written(match[1], value))
        end = SECTION_END.match(source.text, at)
        at = end.end() if end else at
    return FoundCalls(at, tuple(calls)) if calls else None


def _read_pairs(source: Source, at: int) -> FoundCalls | None:
    """A name with `<arg_key>` and `<arg_value>` for each argument, as GLM writes a call."""
    named = PAIRED.match(source.text, at)
    if named is None:
        return None
    at, arguments = named.end(), dict[str, Any]()
    while match := PAIR.match(source.text, at):
        close = source.find("</arg_value>", match.end())
        if close == len(source.text):
            return FoundCalls(source.before_code(at, source.paragraph_end(at)), problems=(UNREADABLE,))
        arguments[match[1]] = source.text[match.end() : close].strip("\n")
        at = close + len("</arg_value>")
    return FoundCalls(at, (Written(named[1], arguments, is_text=True),))


def _read_parameters(source: Source, at: int) -> tuple[dict[str, Any], int]:
    """Parameters in tags, and where they end; -1 when one has no end."""
    arguments: dict[str, Any] = {}
    while match := PARAMETER.match(source.text, at):
        end = f"{']]>' if match[3] else ''}</{match[1]}>"
        close = source.find(end, match.end())
        if close == len(source.text):
            return {}, -1
        arguments[match[2]] = source.text[match.end() : close].removeprefix("\n").removesuffix("\n")
        at = close + len(end)
    return arguments, at


def _read_channel(source: Source, at: int, after: int) -> FoundCalls:
    """A channel's header: a call when it is addressed to a tool, thoughts when it is not for the person."""
    match = CHANNEL.match(source.text, at)
    if match is None:
        role = model_marks.ROLE.match(source.text, after)
        is_others = role is not None and role["other"] is not None
        return FoundCalls(_own_turn(source, after) if is_others else role.end() if role else after, notes=(MARKS,))
    header = f"{match.group(1) or ''} {match.group(2)}"
    if to := RECIPIENT.search(header):
        try:
            value, end = _decode_value(source, source.after_blanks(match.end()))
        except Hopeless as error:
            end = source.before_code(match.end(), max(error.at, _spoken_end(source, match.end())))
            return FoundCalls(
                end, problems=(UNREADABLE,), options=_options(source, source.after_blanks(match.end()), (), to.group(1))
            )
        if not isinstance(value, dict):
            return FoundCalls(end, problems=(UNREADABLE,))
        return FoundCalls(end, (Written(to.group(1), value),))
    word = (match.group(2).split() or [""])[0]
    if word in ("analysis", "thought", "thinking"):
        return FoundCalls(_spoken_end(source, match.end()), notes=(THOUGHTS,))
    is_header = word in ("final", "commentary")
    end = match.end() if match.group(3) else source.text.index(word, after) + len(word) if is_header else after
    return FoundCalls(end, notes=(MARKS,))


def _spoken_end(source: Source, at: int) -> int:
    match = SPOKEN_END.search(source.text, at)
    return match.start() if match else len(source.text)


# -- loose arguments ----------------------------------------------------------------------------------


def _colon_calls(source: Source, at: int) -> FoundCalls | None:
    """`call:NAME{key:value}`, one or several."""
    calls: list[Written] = []
    while match := COLON_CALL.match(source.text, at):
        try:
            value, at = Loose(source).read(match.end())
        except Hopeless as error:
            return _broken(source, match.end(), error, calls, match.group(1))
        calls.append(Written(match.group(1), value))
    return FoundCalls(at, tuple(calls)) if calls else None


def _python_list(source: Source, at: int) -> FoundCalls | None:
    """`[name(key="value"), ...]`, as LFM2 writes calls."""
    at = source.after_blanks(at)
    if not source.text.startswith("[", at) or not CALLED.match(source.text, at + 1):
        return None
    calls: list[Written] = []
    while source.text[at : at + 1] in ("[", ","):
        found = _read_python(source, at + 1)
        if found is None or found.problems:
            return FoundCalls(found.end if found else at + 1, tuple(calls), (UNREADABLE,))
        calls += found.calls
        at = source.after_blanks(found.end)
    return FoundCalls(at + 1 if source.text.startswith("]", at) else at, tuple(calls))


def _read_python(source: Source, at: int) -> FoundCalls | None:
    """`name(key="value")`, one or several, as Python writes it."""
    calls: list[Written] = []
    while match := CALLED.match(source.text, at):
        try:
            arguments, at = Loose(source).arguments(match.end())
        except Hopeless as error:
            looked_at = min(error.at, source.paragraph_end(match.end()))  # a quotation mark may have been taken for a string's
            end = source.before_code(match.end(), max(looked_at, source.line_end(match.end())))
            options = _options(source, match.end(), tuple(calls), match.group(1), is_python=True)
            return FoundCalls(end, tuple(calls), (UNREADABLE,), options=options)
        if "print(" in match.group() and source.text.startswith(")", at):
            at += 1
        body = arguments.pop("", None)
        calls.append(Written(match.group(1), arguments, body if isinstance(body, str) else None))
    return FoundCalls(at, tuple(calls)) if calls else None
