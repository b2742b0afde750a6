"""What tells kinds of local models apart when tools are offered: how tools, calls and results are written.

A family is one file in `families/`. It knows a chat template by its words, says what the template is given, and writes and reads a
call in the format that the model was trained on. Where a template leaves calls or results out, they are written here too. The
grammar of a call ends with its last bracket: what closes it need not be drawn. Renders and draws nothing itself.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from appliance.providers.grammar import GrammarRules, calls_grammar, simple
from appliance.providers.tool_schemas import flat
from appliance.providers.value_styles import JSON, LOOSE, Style, dumped, literal
from appliance.records import ToolCall, ToolSpec
from appliance.text import answer_parser

FENCE = re.compile(r"\A```(?:json|tool_call)?\s*")

TOLD = ("type", "description", "enum", "const")


class Family(ABC):
    """One kind of models. The defaults are those of calls as JSON, `{"name": ..., "arguments": ...}`, behind a mark."""

    name = ""
    marks: tuple[str, ...] = ()  # each begins a call where it begins a line; the first is what `opening` writes
    closing = ""
    more_marks: tuple[str, ...] = ()  # of results and ends: no text from outside may contain them
    is_bare = False  # an answer that begins with { is a call
    has_single_calls = False  # a turn of the model holds one call
    has_free_ids = True  # ids of calls are any text; otherwise nine letters and digits
    result_role = "tool"
    arguments = "arguments"
    before, after = "\n", "}"  # around the JSON of a call
    style: Style = JSON

    @classmethod
    @abstractmethod
    def is_meant(cls, template: str) -> bool:
        """Whether a chat template belongs to this family."""

    def variables(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The variables that the template receives besides the messages."""
        return {"tools": [described(tool) for tool in tools]}

    def tools_text(self, tools: Sequence[Any]) -> str:
        """What the system text ends with where the template has no words for tools; "" for families whose templates all do.

        `tools` are described, without marks in their texts.
        """
        return ""

    @property
    def opening(self) -> str:
        """The beginning of a call, up to where a tool is named."""
        return self.marks[0] + self.before if self.marks else self.before

    def grammar(self, tools: Sequence[ToolSpec]) -> str:
        """GBNF of one call from its first mark on."""
        start = [f"root ::= ({' | '.join(map(literal, self.marks))}) {self._blank()} call"] if self.marks else ["root ::= call"]
        return calls_grammar(tools, self.style, self._call, [*start, f"call ::= {self._named()} chosen"])

    def loose_grammar(self, tools: Sequence[ToolSpec]) -> str:
        """GBNF of a call as JSON in a fence or by itself, with any blanks, as models write it that forget the format."""
        start = ['root ::= ("```" ("json" | "tool_call")? ws)? "{" ws "\\"name\\"" ws ":" ws chosen ws "}"']
        return calls_grammar(tools, LOOSE, self._loose_call, start)

    def written(self, calls: Sequence[ToolCall]) -> str:
        """Calls as the model writes them."""
        mark = self.marks[0] if self.marks else ""
        return "\n".join(f"{mark}{self.before}{self._one(call)}{self.closing}" for call in calls)

    def returned(self, name: str, text: str) -> str:
        """A result as the model reads it where the template has no words for one."""
        return f"Result of {name}:\n{text}"

    def read(self, text: str, tools: Sequence[ToolSpec]) -> ToolCall | None:
        """The call in a text that begins with one, None where none can be read."""
        found = answer_parser.read(FENCE.sub("", text), (), tools).calls
        return ToolCall("call_1", found[0].name, found[0].arguments) if found else None

    def _blank(self) -> str:
        return r"[ \t\r\n]{0,4}"

    def _named(self) -> str:
        return literal('{"name": ')

    def _call(self, tool: ToolSpec, rules: GrammarRules) -> str:
        start = literal(f'{dumped(tool.name)}, "{self.arguments}": ')
        return f"{start} {rules.arguments_of(tool)} {literal(self.after)}"

    @staticmethod
    def _loose_call(tool: ToolSpec, rules: GrammarRules) -> str:
        keys = '("\\"arguments\\"" | "\\"parameters\\"")'
        return f'{literal(dumped(tool.name))} ws "," ws {keys} ws ":" ws {rules.arguments_of(tool)}'

    def _one(self, call: ToolCall) -> str:
        return f'{{"name": {dumped(call.name)}, "{self.arguments}": {dumped(call.arguments)}{self.after}'


def described(tool: ToolSpec) -> dict[str, Any]:
    """A tool as templates expect it."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": told(flat(tool.schema))},
    }


def told(schema: Any) -> Any:
    """What a model has to be told of a schema: limits are held by the grammar, and refused where the tool runs."""
    if not isinstance(schema, dict):
        return schema
    either = [one for one in schema.get("anyOf") or () if one != {"type": "null"}]
    if len(either) == 1 and len(schema["anyOf"]) == 2:
        return told({**schema, "anyOf": None, **either[0]})  # what may be left out need not be called nothing
    found: dict[str, Any] = {name: schema[name] for name in TOLD if name in schema}
    for name in ("items", "anyOf", "oneOf", "allOf", "prefixItems"):
        if schema.get(name):
            inner = schema[name]
            found[name] = [told(one) for one in inner] if isinstance(inner, list) else told(inner)
    if isinstance(fields := schema.get("properties"), dict):
        found["properties"] = {name: told(one) for name, one in fields.items()}
    if schema.get("required"):
        found["required"] = schema["required"]
    return found


def named_arguments(tool: ToolSpec, rules: GrammarRules, equals: str) -> str:
    """GBNF of arguments that stand between brackets of their own, each behind its name and `equals`."""
    shape = simple(tool.schema, tool.schema)
    if shape.get("properties") or shape.get("required"):
        return rules.members(shape, lambda name: literal(f"{name}{equals}"))
    if shape.get("additionalProperties") is False:
        return '""'
    pair = f"[A-Za-z_] [A-Za-z0-9_]{{0,60}} {literal(equals)} value"
    return f"({pair} ({rules.style.comma} {pair}){{0,31}})?"


def members_of(value: Mapping[str, Any], style: Style, equals: str) -> str:
    """Arguments as a style writes them, without brackets around them."""
    comma, colon = str(json.loads(style.comma)), str(json.loads(style.colon))
    return comma.join(f"{name}{equals}{_format_value(one, style, comma, colon)}" for name, one in value.items())


def _format_value(value: Any, style: Style, comma: str, colon: str) -> str:
    if isinstance(value, dict):
        names = (dumped(name) if style.has_quoted_names else name for name in value)
        inner = comma.join(f"{name}{colon}{_format_value(one, style, comma, colon)}" for name, one in zip(names, value.values()))
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{comma.join(_format_value(one, style, comma, colon) for one in value)}]"
    return style.value(value)
