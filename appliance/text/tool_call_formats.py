"""Tool calls that models write into their text in formats of their own: where each ends and what it asks for.

Every reader takes a `Source` and a position and hands back a `FoundCalls`, or None when what stands there is
prose. Nothing is run and no tool is known here: names and arguments come out as they were written, and
`text.answer_parser` decides about them. A fragment that cannot be read is passed over as a whole and named in
`problems`; none of it is handed on. Reading takes time linear in the text: what was looked at is passed.
"""

import re
import textwrap
from bisect import bisect_left
from typing import Any

from msgspec.structs import replace

from appliance.text import code_regions, json_calls, model_marks
from appliance.text.code_regions import Fence
from appliance.text.json_calls import FoundCalls, Written
from appliance.text.lenient_values import NAME
from appliance.text.model_marks import MARK, MarkKind
from appliance.text.scanner import Hopeless, Source

IN_THOUGHTS = "a tool call in thoughts was not run"
THOUGHTS = "thoughts were left out of the answer"
MARKS = "control marks were left out of the answer"

# Fences whose content is meant to be run, and fences that are a call only when all of them is one.
LIVE = ("tool_code", "tool_call", "tool_calls", "tool_use", "function_call")
PLAIN = ("", "json")

NAMED = re.compile(rf"\s*({NAME})(?:\[CALL_ID\]\w{{1,64}})?(?:\[ARGS\])?\s*(?=\{{)")
USED = re.compile(r"\s*<(?:tool_)?name>\s*([^<\s]{1,100})\s*</(?:tool_)?name>\s*<(?:input|arguments|parameters)>\s*")
DSML = r"(?:[|\uff5c]DSML[|\uff5c])?"
INVOKED = re.compile(rf"""\s*<(?:function=["']?({NAME})["']?>|({DSML}invoke|function)\s+name=["']({NAME})["']\s*>)""")
PARAMETER = re.compile(rf"""\s*<({DSML}param(?:eter)?)(?:=|\s+name=)["']?({NAME})["']?(?:\s+string=.\w+.)?\s*>(<!\[CDATA\[)?""")
NEXT_PARAMETER = re.compile(rf"\n[ \t]*<{DSML}param(?:eter)?(?:=|\s+name=)[\"']?{NAME}[\"']?\s*>")
STRAY_END = re.compile(rf"\s*</{DSML}param(?:eter)?>")
# A name and JSON between marks, as DeepSeek and Kimi write calls; GLM puts pairs behind the name.
BAR = "[|\uff5c]"
SECTION = re.compile(
    rf"\s*+(?:<{BAR}tool[▁_]call[▁_]begin{BAR}>)?\s*+(?:function\s*+<{BAR}tool▁sep{BAR}>)?\s*+(?:functions\.)?({NAME})(?::\d+)?\s*+"
    rf"(?:<{BAR}tool▁sep{BAR}>|<{BAR}tool_call_argument_begin{BAR}>)?\s*+(?:```(?:json)?\s*+)?(?=\{{)"
)
SECTION_END = re.compile(rf"\s*+(?:```)?\s*+(?:<{BAR}tool[▁_]call[▁_]end{BAR}>)?")
ACTION = re.compile(r"<\|(?:plugin|interpreter)\|>")
BRACKETS_LEFT = re.compile(r"[}\])]+\s*")
PAIRED = re.compile(rf"\s*+({NAME})\s*+(?=<arg_key>|</tool_call>)")
PAIR = re.compile(rf"\s*+<arg_key>\s*+({NAME})\s*+</arg_key>\s*+<arg_value>")
CHANNEL = re.compile(r"(?:<\|start\|>([^<]{0,200}))?<\|channel\|?>([^<\n]{0,200})(?:<\|constrain\|>\s*\w*\s*)?(<\|message\|>)?")
RECIPIENT = re.compile(rf"to=(?:functions\.)?({NAME})")
SPOKEN_END = re.compile(r"<\|(?:end|call|return|start|channel)\|?>|<channel\|>")

LIST_MARK = "[TOOL_CALLS]"


# -- calls that begin with a word ------------------------------------------------------------------------

WORDED = (
    r"^[ \t]*functools(?=\s*\[\s*\{{)"
    r"|^[ \t]*\[(?=\s*(?:{names})\()"
    r"|(?:^[ \t]*|(?<=<channel\|>))call:(?=(?:{names})\s*[{{(])"
    r"|(?:^[ \t]*|(?<=<channel\|>))(?:assistant)?(?:(?:commentary|analysis) +)?to=(?:functions\.)?(?=(?:{names})\b)"
)
# What may still become one, at the end of a text, and what stands before the name of a tool there, without blanks.
WORD_BEGUN = re.compile(r"^[ \t]*(?:functools\s*)?(?:\[\s*)?[\w.:= ]*+\Z", re.MULTILINE)
WORDS = ("[", "call:", *(f"{channel}to={space}" for channel in ("", "commentary", "analysis") for space in ("", "functions.")))
ADDRESSED = re.compile(rf"({NAME})\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?=\{{)")


def worded(source: Source, at: int, after: int) -> FoundCalls | None:
    """The calls at what `WORDED` matched up to `after`; None when it is prose.

    A list as Python writes it is a call only where the answer is nothing else.
    """
    word = source.text[at:after].strip()
    if word == "functools":
        return json_calls.read_values(source, after, is_marked=True)
    if word == "[":
        found = json_calls.python_list(source, after - 1)
        return found if found is not None and not source.text[:at].strip() and _is_last(source, found.end) else None
    if word == "call:":
        return json_calls.colon_calls(source, after - len(word))
    named = ADDRESSED.match(source.text, after)
    if named is None:
        return None
    try:
        value, end = json_calls.decode_value(source, named.end())
    except Hopeless as error:
        return json_calls.broken(source, named.end(), error, [], named[1])
    return FoundCalls(end, (Written(named[1], value),))


# -- code ------------------------------------------------------------------------------------------------


def fenced(source: Source, block: Fence, is_first: bool) -> FoundCalls | None:
    """The calls of a fenced block, or None when it is code to be shown.

    JSON without a label of its own is a call only where the answer `is_first` and last nothing but such blocks: beside words
    it is somebody's data, or shown as an example.
    """
    content = Source(source.text[block.start : block.stop].strip())
    if block.label in LIVE:
        found = json_calls.read_values(content, 0, is_marked=True) or json_calls.read_python(content, 0)
        if found is not None and not found.problems and not content.text[found.end :].strip():
            return FoundCalls(block.end, found.calls)
        return FoundCalls(block.end, inner=content.text)
    if not _is_json(source, block) or not is_first:
        return None
    found = json_calls.read_values(content, 0, is_marked=False)
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
    if mark == "<|action_start|>" and (kind_of_action := ACTION.match(source.text, after)):
        after = kind_of_action.end()
    if mark == "<|python_tag|>":
        return (
            json_calls.read_values(source, after, is_marked=True)
            or json_calls.read_python(source, after)
            or _skip_rest(source, after, "<|eom_id|>")
        )
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
    if (found := json_calls.read_values(source, after, is_marked=True)) is not None:
        return found
    end = after
    calls: list[Written] = []
    while named := NAMED.match(source.text, end):
        try:
            value, end = json_calls.decode_value(source, named.end())
        except Hopeless as error:
            return json_calls.broken(source, named.end(), error, calls, named.group(1))
        calls.append(Written(named.group(1), value))
        end = end + len(LIST_MARK) if source.text.startswith(LIST_MARK, end) else end
    if calls:
        return FoundCalls(end, tuple(calls))
    return FoundCalls(source.before_code(after, source.line_end(after)), problems=(json_calls.UNREADABLE,))


def _read_block(source: Source, after: int, mark: str) -> FoundCalls | None:
    """Calls between a mark and its close, which may be missing; None when a person may have meant the mark."""
    close = _written_close(source, after, mark)
    found = (
        json_calls.python_list(source, after)
        or json_calls.read_values(source, after, is_marked=True)
        or json_calls.colon_calls(source, after)
        or _read_invoked(source, after)
        or _read_sections(source, after)
        or _read_pairs(source, after)
    )
    if found is None:
        found = json_calls.read_python(source, after)
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
        is_near = mark.startswith(("<|", "<\uff5c")) or closed <= source.paragraph_end(found.end)
        if not is_near or closed == len(source.text):
            return found
        others = (one for one in MARK.finditer(source.text, found.end, closed) if model_marks.kind_of(one[0]) is MarkKind.CALL)
        another = next(others, None)  # it is read by itself
        return replace(found, end=another.start() if another else closed + len(close))
    if (extra := BRACKETS_LEFT.match(source.text, end)) and source.text.startswith(close, extra.end()):
        end, found = extra.end(), replace(found, notes=(*found.notes, json_calls.MENDED))
    return replace(found, end=end + len(close)) if source.text.startswith(close, end) else found


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
    return FoundCalls(end, problems=(json_calls.UNREADABLE,))


def _read_used(source: Source, after: int) -> FoundCalls | None:
    match = USED.match(source.text, after)
    if match is None:
        return None
    try:
        value, end = json_calls.decode_value(source, match.end())
    except Hopeless:
        return None
    close = source.find("</tool_use>", end)
    end = close + len("</tool_use>") if re.fullmatch(r"\s*(?:</\w+>)?\s*", source.text[end : min(close, end + 100)]) else end
    if not isinstance(value, dict):
        return FoundCalls(end, problems=(json_calls.UNREADABLE,))
    return FoundCalls(end, (Written(match.group(1), value),))


def _read_invoked(source: Source, at: int) -> FoundCalls | None:
    """`<function=NAME>`, `<function name="NAME">` or `<invoke name="NAME">` with JSON or parameters in it; several in a row."""
    calls, notes = list[Written](), tuple[str, ...]()
    while match := INVOKED.match(source.text, at):
        name, close = match[1] or match[3], f"</{match[2] or 'function'}>"
        start = source.after_blanks(match.end())
        if source.text.startswith("{", start):
            try:
                value, at = json_calls.decode_value(source, start)
            except Hopeless as error:
                return json_calls.broken(source, start, error, calls, name)
            calls.append(Written(name, value))
        else:
            arguments, at, is_mended = _read_parameters(source, match.end(), close)
            notes = (json_calls.MENDED,) if is_mended else notes
            if at < 0 or (not arguments and not source.text.startswith(close, source.after_blanks(at))):
                return FoundCalls(_skip_rest(source, start, close).end, tuple(calls), (json_calls.UNREADABLE,))
            calls.append(Written(name, arguments, is_text=True))
        end = source.after_blanks(at)
        at = end + len(close) if source.text.startswith(close, end) else at
    return FoundCalls(at, tuple(calls), notes=notes) if calls else None


def _read_sections(source: Source, at: int) -> FoundCalls | None:
    """`NAME` and JSON between marks, as DeepSeek and Kimi write them; several in a row."""
    calls: list[Written] = []
    while match := SECTION.match(source.text, at):
        try:
            value, at = json_calls.decode_value(source, match.end())
        except Hopeless as error:
            return json_calls.broken(source, match.end(), error, calls, match[1])
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
            return FoundCalls(source.before_code(at, source.paragraph_end(at)), problems=(json_calls.UNREADABLE,))
        arguments[match[1]] = source.text[match.end() : close].strip("\n")
        at = close + len("</arg_value>")
    if source.text.startswith("<arg_key>", source.after_blanks(at)):
        return FoundCalls(source.before_code(at, source.paragraph_end(at)), problems=(json_calls.UNREADABLE,))
    return FoundCalls(at, (Written(named[1], arguments, is_text=True),))


def _read_parameters(source: Source, at: int, last: str) -> tuple[dict[str, Any], int, bool]:
    """Parameters in tags, where they end, and whether an end was mended; -1 when one has none.

    One that is not closed ends where the next begins on a line of its own, or with the call, which `last` closes. Values are as
    deep in the text as their tags: what both are indented by is no part of them.
    """
    text, arguments, is_mended = source.text, dict[str, Any](), False
    while match := PARAMETER.match(text, at):
        end = f"{']]>' if match[3] else ''}</{match[1]}>"
        close = source.find(end, match.end())
        another = NEXT_PARAMETER.search(text, match.end(), close)
        if another is not None or close == len(text):
            close, end, is_mended = min(another.start() if another else close, source.find(last, match.end())), "", True
            if close == len(text) or "<" in text[match.end() : close]:  # it may be anything
                return {}, -1, False
        value = text[match.end() : close]
        if match[0].partition("<")[0].rpartition("\n")[2] and value.startswith("\n"):
            value = textwrap.dedent(value.rstrip(" \t"))
        arguments[match[2]] = value.removeprefix("\n").removesuffix("\n")
        at = close + len(end)
        while stray := STRAY_END.match(text, at):
            at, is_mended = stray.end(), True
    return arguments, at, is_mended


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
            value, end = json_calls.decode_value(source, source.after_blanks(match.end()))
        except Hopeless as error:
            end = source.before_code(match.end(), max(error.at, _spoken_end(source, match.end())))
            return FoundCalls(
                end,
                problems=(json_calls.UNREADABLE,),
                options=json_calls.possible_calls(source, source.after_blanks(match.end()), (), to.group(1)),
            )
        if not isinstance(value, dict):
            return FoundCalls(end, problems=(json_calls.UNREADABLE,))
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
