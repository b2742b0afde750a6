"""A model's text becomes commands: never raises, never drops silently, never shows a raw call to a person.

Three dialects, one list of commands: the provider's own calls, tags (`<get path="x"/>`), and the formats
that models fall into when they write calls as text. What is tried where, in this order: a format of its
own; code, which is never run and stays in the text; then tags, mended if need be. Whatever is left out is
named in the warnings. Knows tools by their schemas alone, and runs nothing.

A call counts only where the model itself speaks: where it begins a line or follows the end of a sentence, and lies in no code,
quotation, block quote, table, list item, thought, result, or turn of somebody else. What is shown stays in the text; what
stands where it may be meant is refused and named, so that the model can write it again on a line of its own. What stands
as a call in a text that the model was shown as information is a quotation, wherever the model writes it.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.records import ToolCall, ToolSpec
from appliance.text import call_repair, code_regions, json_calls, model_marks, tool_call_formats
from appliance.text.json_calls import FoundCalls, Written
from appliance.text.scanner import CONTAINER, Hopeless, Source
from appliance.text.word_hashes import letters_of
from appliance.text.xml_tags import Close, Tag, Tags, pattern

AS_TEXT = "a tool call was written as text"
ORDINARY = (AS_TEXT, tool_call_formats.THOUGHTS, tool_call_formats.MARKS)  # warnings that a model needs not be told
TWICE = "a tool call was also written as text"
QUOTED = "a tool call that stands in a text of others was not run"
MAX_TARGET_CHARS = 512
MAX_DEPTH = 64
# What formats put between the name of a call, the names of its arguments, and their values, in letters alone.
INNER = re.compile(r"\s*<([\w.-]{1,60})>(.*?)</\1>", re.DOTALL)  # an argument as an element in the tag of a tool
BETWEEN = "(?:arguments|parameters?|input|args|argkey|argvalue|body|tool|call|sep|begin|json|string|true|false|null|none|dsml){0,6}"

# Where something may begin that is not prose.
PATTERN_OF_MARKS = r"`+|^{container}~{{3,}}|{worded}|{marks}|{tags}|{elements}|\[TOOL_CALLS\]|^[ \t]*[{{\[](?!TOOL_CALLS\])"
# The argument that the text between a tag and its close fills; where that was given as an attribute, the text is a filter.
BODIES = {
    "get": ("path",), "rm": ("path",), "search": ("path", "query"), "mv": ("to",), "cp": ("to",),
    "sh": ("command",), "env": ("command",), "ask_user": ("question", "options"),
    "set": ("body",), "update": ("body",), "unknown": ("body",), "known": ("body",), "think": ("body",),
}  # fmt: skip
FILTERED = ("get", "rm", "mv", "cp")
STRICT = FILTERED[1:]  # they refuse what they do not know: left out, it may have kept them from removing more
NAMELIKE = ("path", "to", "query", "ref", "question", "options", "id")  # blanks around them mean nothing
# Other names of an argument, each for the first of these that the tool has.
ALIASES = {
    "key": ("path", "ref"), "file": ("path", "ref"), "path": ("ref", "query"), "query": ("path",), "ref": ("path",),
    "value": ("body", "text", "search"), "content": ("body", "text"), "text": ("body",), "body": ("text",),
    "results": ("limit",), "max_results": ("limit",), "destination": ("to",), "cmd": ("command",), "manifest": ("preview",),
}  # fmt: skip
# Names that mean the same tool: an unknown one stands for the first known one beside it.
SAME = (
    ("read", "read_file", "context_read", "get"), ("sh", "exec", "shell", "bash"), ("fetch_url", "web_fetch"),
    ("list_files", "list_dir"), ("set", "write_file"), ("search", "context_search"), ("update", "summarize"),
)  # fmt: skip
STARTS = (*model_marks.STARTS, tool_call_formats.LIST_MARK.lower())
TARGETS = ("path", "to", "query", "question")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
TRUTHS = {"true": True, "yes": True, "1": True, "": True, "false": False, "no": False, "0": False}


class ParsedAnswer(Struct, frozen=True):
    """What a model said and what it wants done; `warnings` name everything that was left out or mended.

    `is_malformed` when it meant to call a tool and no call of it can be run: not a final answer.
    """

    text: str
    calls: tuple[ToolCall, ...]
    warnings: tuple[str, ...] = ()
    is_malformed: bool = False


def read(
    text: str | None,
    calls: Sequence[ToolCall],
    tools: Iterable[ToolSpec],
    limit: int = 99,
    *,
    is_cut: bool = False,
    others: Collection[str] = (),
    data: Sequence[str] = (),
    thoughts: str = "",
) -> ParsedAnswer:
    """Commands of an answer, at most `limit`. `calls` are the provider's own; with any, none is taken from the text.

    With `is_cut` the model was stopped: a tag whose body it never finished is not run. `others` are names of tools that it was
    not offered: their tags are no words for a person, and no commands either. `data` are the texts that it was shown as
    information: a call that stands in one of them is not run when it comes as text, or behind words. `thoughts` came apart from the
    answer: where it says nothing, a call in them is told of.
    """
    names, bare = KnownToolNames(tools, others), replace_surrogates(text or "").strip()
    answer = model_marks.answer_of(bare, is_whole=True, is_tool=names.has) or ""
    reader = Reader(answer, names, limit=limit, is_cut=is_cut, shown=Quotable(data))
    reader.read()
    warnings, made, count = list(reader.warnings), list(reader.calls), reader.count
    if answer != bare:
        warnings.insert(0, tool_call_formats.THOUGHTS)
    if calls:
        warnings = [TWICE] if reader.calls or reader.is_malformed else warnings
        made = []
        for call in calls:
            if (arguments := _whole_arguments(call.arguments)) is None:
                warnings.append(json_calls.UNREADABLE)
            elif bare and reader.shown.has_call(call.name, call.arguments):
                warnings.append(QUOTED)
            else:
                made.append(replace(call, arguments=names.renamed(call.name, arguments)))
        count = len(made)
    if count > limit:
        warnings.append(f"{count} calls in one answer: only the first {limit} are run")
    is_malformed = not made and (reader.is_malformed or bool(calls))
    if not (made or is_malformed or reader.text()):
        inner = Reader(model_marks.without_thought_marks(thoughts or bare), names)
        inner.read()
        warnings, is_malformed = ([tool_call_formats.IN_THOUGHTS], True) if inner.calls else (warnings, False)
    return ParsedAnswer(reader.text(), tuple(made[:limit]), tuple(dict.fromkeys(warnings)), is_malformed)


def refusal(call: ToolCall) -> str:
    """Why a call cannot be meant: a target that is too long, or with control characters; "" when it can."""
    for name, value in call.arguments.items():
        if name == "command" and isinstance(value, str):  # what follows its first line may be a document
            value = value.strip().partition("\n")[0].replace("\t", " ")
        elif name not in TARGETS or not isinstance(value, str):
            continue
        if len(value) > MAX_TARGET_CHARS:
            return f"{name} has {len(value)} characters, more than {MAX_TARGET_CHARS}"
        if found := CONTROL.search(value):
            return f"{name} has a control character: {found.group()!r}"
    return ""


class KnownToolNames:
    """The tools by every name that means one of them."""

    def __init__(self, tools: Iterable[ToolSpec], others: Collection[str] = ()) -> None:
        self._specs = {spec.name: spec for spec in tools}
        self._folded = {name.casefold(): name for name in reversed(self._specs)}
        for group in SAME:
            if known := next((name for name in group if name in self._specs), ""):
                self._folded.update({name: known for name in group if name not in self._folded})
        # A mark of thoughts is one, unless the tool of that name is offered.
        self._others = {name.casefold() for name in others} - self._folded.keys() - {*model_marks.THOUGHT_NAMES}
        for group in SAME:
            if self._others.intersection(group):
                self._others.update(set(group) - self._folded.keys())
        self.tag = pattern({*self._folded, *self._others})
        tags, marks = self.tag.pattern if self.tag else "(?!)", model_marks.MARK.pattern
        names = "|".join(name for name in code_regions.ELEMENTS if name not in {*self._folded, *self._others})
        elements = code_regions.ELEMENT.format(names=names or "(?!)")
        worded = f"(?i:{tool_call_formats.WORDED.format(names='|'.join(map(re.escape, self._folded)) or '(?!)')})"
        self.worded = re.compile(worded, re.MULTILINE)
        parts = {"container": CONTAINER, "worded": worded, "marks": marks, "tags": f"(?i:{tags})", "elements": f"(?i:{elements})"}
        self.mark = re.compile(PATTERN_OF_MARKS.format(**parts), re.MULTILINE)
        self.element = re.compile(parts["elements"])
        self.starts = tuple(f"<{slash}{name}" for name in self.all() for slash in ("", "/")) + STARTS
        self.flags = {key.lower() for spec in self._specs.values() for key in _schema_properties(spec)}

    def worded_begun(self, text: str, at: int) -> int:
        """Where, from `at` on, a call that begins with a word may begin that is not yet whole; -1 for nowhere."""
        begun = tool_call_formats.WORD_BEGUN.search(text, at)
        small = "".join(begun[0].split()).lower() if begun else ""
        starts = ("functools[{", *(f"{word}{name}(" for word in tool_call_formats.WORDS for name in self._folded))
        return begun.start() if begun and small and any(start.startswith(small) for start in starts) else -1

    def all(self) -> Sequence[str]:
        """Every name in small letters."""
        return (*self._folded, *self._others)

    def has(self, name: str) -> bool:
        """Whether a name in small letters is one of a tool."""
        return name in self._folded or name in self._others

    def find(self, name: str) -> ToolSpec | None:
        """The tool that a name means, in whatever letters."""
        plain = name.casefold()
        return self._specs.get(name) or self._specs.get(
            self._folded.get(plain, self._folded.get(plain.removeprefix("functions."), ""))
        )

    def renamed(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as they are, except for other names of one that the tool has."""
        spec = self._specs.get(name)
        return arguments if spec is None else {_find_key(spec, key, arguments) or key: value for key, value in arguments.items()}


class Quotable:
    """The texts that a model was shown as information: calls that stand in them are not its own."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._letters: list[str] | None = None

    def has_call(self, name: str, arguments: Mapping[str, Any], body: str | None = None) -> bool:
        """Whether a call stands in one of the texts, in whatever format: its name, and the letters of its arguments behind it."""
        if not self._texts:
            return False
        inner, given = arguments.get("tool"), arguments.get("arguments")
        if isinstance(inner, str) and isinstance(given, Mapping) and self.has_call(inner, given):
            return True
        if self._letters is None:
            self._letters = [letters_of(text) for text in self._texts]
        parts = [letters for part in _parts_of(arguments, body) if (letters := letters_of(part))]
        if not parts:  # a name alone may be a word: it has to stand as a call
            small = name.casefold()
            forms = (f"<{small}", f"{small}(", f'"{small}"', f"={small}>", f":{small}{{")
            return any(form in text for text in ("".join(text.split()).casefold() for text in self._texts) for form in forms)
        written = re.compile(BETWEEN.join(map(re.escape, (letters_of(name), *parts))))
        return any(written.search(text) for text in self._letters)


def _parts_of(value: Any, body: str | None = None) -> Iterator[str]:
    """The names and values of arguments in the order in which they were written."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield key
            yield from _parts_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from _parts_of(one)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
    if body is not None:
        yield body


class Reader:
    """Reads one answer from left to right."""

    def __init__(
        self,
        text: str,
        names: KnownToolNames,
        *,
        limit: int = 99,
        is_inner: bool = False,
        is_cut: bool = False,
        shown: "Quotable | None" = None,
    ) -> None:
        self.calls: list[ToolCall] = []
        self.count = 0  # of calls, with those past the limit, which are not made
        self.warnings: list[str] = []
        self.is_malformed = False
        self._source = Source(text)
        self._names = names
        self._tags = Tags(self._source, names.tag, names.flags)
        self._limit = limit
        self._is_inner = is_inner
        self._is_cut = is_cut
        self.shown = shown or Quotable(())
        self._is_unclosed = False  # thoughts or a result began that have no end: nothing is run any more
        self._kept: list[str] = []
        self._kept_to = 0

    def read(self) -> None:
        """Find every call; afterwards `calls`, `warnings` and `text()` say what was found."""
        text, at = self._source.text, 0
        while match := self._names.mark.search(text, at):
            found = self._spoken(match, self._mend(self.at(match)))
            at = max(found.end, match.end()) if found.is_prose else found.end
            if not found.is_prose:
                self._kept.append(text[self._kept_to : match.start()])
                self._kept_to = at
                if found.is_thought_end and text[found.end :].strip():  # only the end was marked: all before it was thought
                    self._kept, self.calls, self.count, self.warnings, self.is_malformed = [], [], 0, [], False
                elif found.is_thought_end and self.calls:
                    self.calls, self.count, self.is_malformed = [], 0, True
                    self.warnings.append(tool_call_formats.IN_THOUGHTS)
                self._take_calls(found)
        rest = text[self._kept_to :]
        if (start := self._cut_mark(rest)) < len(rest):
            self._take_calls(FoundCalls(len(text), problems=(json_calls.UNREADABLE,)))
        self._kept.append(rest[:start])

    def _mend(self, found: FoundCalls) -> FoundCalls:
        """Broken calls as the one reading of them that fits the tools; as they are with none or several, and in a cut answer."""
        fitting = [calls for calls in found.options if not self._is_cut and all(map(self._fits, calls))]
        even = [calls for calls in fitting if all(call_repair.is_even(call.arguments) for call in calls)]
        chosen = fitting if len(fitting) == 1 else even
        if len(chosen) != 1:
            return found
        return replace(found, calls=chosen[0], problems=(), notes=(*found.notes, json_calls.MENDED), options=())

    def _fits(self, call: Written) -> bool:
        spec = self._names.find(call.name)
        return spec is not None and call_repair.fits(self._names.renamed(spec.name, call.arguments), spec.schema)

    def _cut_mark(self, rest: str) -> int:
        """Where the beginning of a call stands at the end of an answer that was cut there; the length when none does."""
        start = rest.rfind("<") if self._is_cut else -1
        tail = rest[start:].lower()
        is_mark = start >= 0 and len(tail) > 1 and any(mark.startswith(tail) for mark in self._names.starts)
        return start if is_mark else len(rest)

    def _spoken(self, match: re.Match[str], found: FoundCalls) -> FoundCalls:
        """What was found where the model itself speaks; elsewhere prose, or a problem where it may have been meant."""
        self._is_unclosed |= found.is_unclosed
        if found.is_prose or not (found.calls or found.problems or found.inner is not None):
            return found
        start = match.end() - len(match.group().lstrip(" \t"))
        tag = self._tags.at(start)
        ends = (found.end, tag.end) if isinstance(tag, Tag) else (found.end,)
        if end := code_regions.shown_end(self._source, self._kept_to, start, ends):
            return FoundCalls(end, is_prose=True)
        if not found.problems and self._is_unclosed:
            return FoundCalls(found.end, problems=(tool_call_formats.IN_THOUGHTS,))
        if not found.problems and code_regions.is_beside_words(self._source, self._kept_to, start):
            return FoundCalls(found.end, problems=(json_calls.BESIDE_WORDS,))
        return found

    def text(self) -> str:
        """The prose, without what was a call."""
        whole = ""
        for part in self._kept:
            if whole.endswith("\n\n") or not whole:
                part = part.lstrip()
            elif whole.endswith("\n"):
                part = part.lstrip(" \t").removeprefix("\n")
            whole += part
        return whole.strip()

    def at(self, match: re.Match[str]) -> FoundCalls:
        """What stands where something may begin."""
        token, at, source = match.group().lstrip(" \t"), match.start(), self._source
        if self._names.worded.match(source.text, at) is not None:
            return tool_call_formats.worded(source, at, match.end()) or FoundCalls(match.end(), is_prose=True)
        if token[-1] in "`~":
            marks = token[token.index(token[-1]) :]
            return self._read_code(match.end() - len(marks), len(marks))
        if token == tool_call_formats.LIST_MARK:
            return tool_call_formats.listed(source, at)
        if token in ("{", "["):
            return json_calls.line_json(source, match.end() - 1)
        tag = self._tags.at(at)
        if tag is None or (isinstance(tag, Close) and model_marks.is_of_thoughts(source.text[at : tag.end])):
            if (found := tool_call_formats.marked(source, at)) is not None:
                return found
            is_element = self._names.element.match(source.text, at)
            end = code_regions.element_end(source, at, is_cut=self._is_cut) if is_element else at + 1
            return FoundCalls(end, is_prose=True)
        if self._names.find(tag.name) is None:
            return self._refuse_tag(tag)
        return (
            self._read_tag(tag) if isinstance(tag, Tag) else FoundCalls(tag.end, notes=(f"a stray end of {tag.name} was left out",))
        )

    def _read_code(self, at: int, length: int) -> FoundCalls:
        """A code span or a fenced block: prose, unless the block is a call by itself."""
        block = code_regions.fence(self._source, at) if length >= 3 else None
        if block is None:
            return FoundCalls(code_regions.span_end(self._source, at, length), is_prose=True)
        live = None
        if not self._is_inner and block.stands == "line" and block.is_sure:
            is_alone = not "".join((*self._kept, self._source.text[self._kept_to : at])).strip()
            live = tool_call_formats.fenced(self._source, block, is_alone)
        return live or FoundCalls(block.end, is_prose=True)

    def _read_tag(self, tag: Tag) -> FoundCalls:
        spec = self._names.find(tag.name)
        if tag.is_cut or spec is None:
            return FoundCalls(tag.end, problems=(f"the tag {tag.name} was cut off",))
        names = [_find_key(spec, key, tag.attributes) or key for key in tag.attributes]
        filled = _argument_of_body(spec, names)
        is_filter = filled == "body" and spec.name in FILTERED
        body = self._tags.body(tag, filled is not None and not is_filter and "replace" not in names)
        if self._is_cut and body.text is not None and body.notes and body.end == len(self._source.text):
            return FoundCalls(body.end, problems=(f"the tag {tag.name} was cut off",))
        call = Written(spec.name, dict(tag.attributes), body.text, is_text=True)
        return FoundCalls(body.end, (call,), notes=(*tag.notes, *body.notes), is_tag=True)

    def _refuse_tag(self, tag: Tag | Close) -> FoundCalls:
        """The tag of a tool that was not offered; prose when it has neither an end nor anything that it would be given."""
        if isinstance(tag, Close) or tag.is_cut:
            return FoundCalls(tag.start + 1, is_prose=True)
        body = self._tags.body(tag, is_wanted=False)
        if not tag.is_closed and not tag.attributes and body.notes:
            return FoundCalls(tag.end, is_prose=True)
        return FoundCalls(body.end, problems=(f"the tool {tag.name} is not offered",))

    def _take_calls(self, found: FoundCalls) -> None:
        for call in found.calls:
            spec = self._names.find(call.name)
            if spec is None:
                self.warnings.append(f"unknown tool {_clean_name(call.name)}")
                self.is_malformed = True
            elif self.shown.has_call(call.name, call.arguments, call.body):
                self.warnings.append(QUOTED)
                self.is_malformed = True
            elif self._add_call(call, spec) and not found.is_tag:
                self.warnings.append(AS_TEXT)
        self.warnings += (*found.problems, *found.notes)
        self.is_malformed = self.is_malformed or bool(found.problems)
        if found.inner is not None:
            self._read_block(found.inner)

    def _read_block(self, text: str) -> None:
        """The inside of a block that was meant to be run."""
        inner = Reader(text, self._names, limit=self._limit - len(self.calls), is_inner=True, shown=self.shown)
        inner.read()
        self.calls += [replace(call, id=f"call_{len(self.calls) + n}") for n, call in enumerate(inner.calls, 1)]
        self.count += inner.count
        self.warnings += inner.warnings
        if not inner.calls:
            self.is_malformed = True
            self.warnings += [] if inner.warnings else [json_calls.UNREADABLE]
        elif inner.text():
            self.warnings.append("words beside a call in a block of code were left out")

    def _add_call(self, written: Written, spec: ToolSpec) -> bool:
        if self.count >= self._limit:
            self.count += 1
            return True
        arguments = _whole_arguments(_convert_arguments(written, spec, self.warnings))
        if arguments is None:
            self.warnings.append(json_calls.UNREADABLE)
            self.is_malformed = True
            return False
        self.count += 1
        self.calls.append(ToolCall(f"call_{len(self.calls) + 1}", spec.name, arguments))
        return True


# -- arguments ----------------------------------------------------------------------------------------


def _schema_properties(spec: ToolSpec) -> dict[str, Any]:
    found = spec.schema.get("properties")
    return found if isinstance(found, dict) else {}


def _is_open(spec: ToolSpec) -> bool:
    """True for a tool that takes whatever it is given."""
    return not _schema_properties(spec) and spec.schema.get("additionalProperties") is not False


def _find_key(spec: ToolSpec, key: str, given: Iterable[str], body: str | None = None) -> str:
    """The tool's own name of an argument; "" when it has none. Beside a body, a value is what the body replaces."""
    known = {name.lower(): name for name in _schema_properties(spec)}
    if key.lower() == "value" and key not in known and "search" in known and "search" not in given and (body or "").strip():
        return "search"
    if key in known.values() or (_is_open(spec) and key not in ("key", "file", "value")):
        return key
    if found := known.get(key.lower().replace("-", "_")):
        return found
    taken = {name.lower() for name in given}
    options = ALIASES.get(key.lower(), ())
    return next((name for name in options if name not in taken and (name in known or _is_open(spec))), "")


def _argument_of_body(spec: ToolSpec, given: Iterable[str]) -> str | None:
    """The argument that a body fills; None when there is none, or it was given."""
    properties, taken = _schema_properties(spec), set(given)
    own = [name for name in BODIES.get(spec.name, ()) if name in properties or _is_open(spec)]
    if spec.name == "ask_user":
        return next((name for name in own if name not in taken), None)
    if own:
        is_filter = spec.name in FILTERED and "body" in properties and "body" not in taken
        return own[0] if not taken & set(own) else "body" if is_filter else None
    texts = [name for name in spec.schema.get("required", ()) if properties.get(name, {}).get("type") == "string"]
    return texts[0] if texts and texts[0] not in taken else None


def _convert_arguments(written: Written, spec: ToolSpec, notes: list[str]) -> dict[str, Any]:
    """What the tool is given: its own names, values of its own types, the body where it belongs."""
    properties, found = _schema_properties(spec), {}
    for key, value in written.arguments.items():
        name = _find_key(spec, key, written.arguments, written.body)
        if not name and written.is_text and spec.name not in STRICT:
            notes.append(f"{_clean_name(key)} of {spec.name} means nothing and was left out")
        elif name in found:
            notes.append(f"{_clean_name(key)} of {spec.name} was given twice")
        else:
            found[name or key] = _convert_value(value, properties.get(name, {})) if written.is_text else value
    if written.body is None:
        return found
    if not written.arguments and (inner := _read_elements(written.body)) and set(spec.schema.get("required", ())) <= set(inner):
        if set(inner) <= set(properties):
            return {key: _convert_value(value, properties[key]) for key, value in inner.items()}
    name = _argument_of_body(spec, found) or ("the text between its tags" if spec.name in STRICT else "")
    if written.body.strip():
        if name:
            is_bare = name in NAMELIKE or spec.name in FILTERED
            found[name] = _convert_value(written.body.strip() if is_bare else written.body, properties.get(name, {}))
        else:
            notes.append(f"the text in {spec.name} was left out")
    elif name == "body" and set(found) <= {"path"} and spec.name not in FILTERED:  # emptied on purpose
        found[name] = written.body
    return found


def _read_elements(body: str) -> dict[str, str]:
    """The texts of the elements that a body is made of, by name; empty for a body that is anything else."""
    found, at = {}, 0
    while element := INNER.match(body, at):
        found[element[1]], at = element[2].strip("\n"), element.end()
    return {} if body[at:].strip() else found


def _convert_value(value: str | None, schema: Any) -> Any:
    """Text as the type that a schema asks for; as it is when it is none of that type."""
    options = [schema, *schema.get("anyOf", ())] if isinstance(schema, dict) else []
    types = {option.get("type") for option in options if isinstance(option, dict)}
    if value is None:
        return "" if "string" in types else True
    if "string" in types or not types:
        return value
    word = value.strip()
    choices = [choice for option in options if isinstance(option, dict) for choice in option.get("enum", ())]
    if (chosen := next((choice for choice in choices if str(choice) == word), None)) is not None:
        return chosen
    if "boolean" in types and word.lower() in TRUTHS:
        return TRUTHS[word.lower()]
    if types & {"integer", "number"} and INTEGER.fullmatch(word):
        return int(word)
    if types & {"number", "array", "object"}:
        try:
            read, end = json_calls.decode_value(Source(word), 0)  # JSON, or a list or an object as Python writes it
        except Hopeless:
            return value
        if end != len(word):
            return value
        if "number" in types and isinstance(read, float) and math.isfinite(read):
            return read
        if ("array" in types and isinstance(read, list)) or ("object" in types and isinstance(read, dict)):
            return read
    return value


def _clean_name(name: str) -> str:
    """A name that a model made up, fit for a note."""
    return re.sub(r"[^\w.:-]+", " ", name[:60]).strip() or "without a name"


def replace_surrogates(text: str) -> str:
    """Text that can be stored and sent: half a surrogate, which a model can escape its way to, becomes "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _whole_arguments(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Arguments that can be stored and sent; None when they are nested beyond reason."""
    level: list[Any] = [arguments]
    for _ in range(MAX_DEPTH):
        if not level:
            break
        inner = [value for value in level if isinstance(value, (dict, list))]
        level = [v for value in inner for v in (value.values() if isinstance(value, dict) else value)]
    if level:
        return None
    try:
        found: dict[str, Any] = json.loads(replace_surrogates(json.dumps(arguments, ensure_ascii=False)))
    except ValueError:  # a number of thousands of digits
        return None
    return found
