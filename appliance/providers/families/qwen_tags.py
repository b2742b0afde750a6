"""Qwen 3 Coder and Qwen 3.5: a call is tags in <tool_call>, one for the tool and one for each argument."""

from collections.abc import Sequence
from typing import Any

from appliance.providers.families.hermes import Hermes as Base
from appliance.providers.grammar import GrammarRules, simple
from appliance.providers.value_styles import dumped, literal
from appliance.records import ToolCall, ToolSpec

# A text ends where a closing tag begins; booleans are written in either manner.
MORE = 'written ::= ([^<\\x00-\\x08\\x0b-\\x1f\\x7f] | "<" [^/\\x00-\\x1f\\x7f])*\ntruth ::= "true" | "false" | "True" | "False"\n'


class QwenTags(Base):
    """`<tool_call>`, `<function=NAME>`, `<parameter=NAME>`, a value as it is."""

    name = "qwen_tags"
    first, last = ">\n", "</function>"  # behind the name of the tool, and behind the arguments
    opened, closed = "<parameter={}>\n", "\n</parameter>\n"  # around the value of one
    rules = MORE

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It shows the tags."""
        return "<tool_call>" in template and "<function=" in template and "<parameter=" in template

    def grammar(self, tools: Sequence[ToolSpec]) -> str:
        """With the rules for what stands in tags."""
        return super().grammar(tools) + self.rules

    def _named(self) -> str:
        return literal("<function=")

    def _call(self, tool: ToolSpec, rules: GrammarRules) -> str:
        shape = simple(tool.schema, tool.schema)
        fields, required = shape.get("properties", {}), shape.get("required", [])
        parts = []
        for name in (*required, *(one for one in fields if one not in required)):
            tag = f"{literal(self.opened.format(name))} {_value(fields.get(name, {}), rules)} {literal(self.closed)}"
            parts.append(tag if name in required else f"({tag})?")
        if not fields and shape.get("additionalProperties") is not False:
            begin, end = map(literal, self.opened.split("{}"))
            parts.append(f"({begin} [A-Za-z_] [A-Za-z0-9_]{{0,60}} {end} written {literal(self.closed)}){{0,31}}")
        return f"{literal(tool.name + self.first)} {' '.join(parts)} {literal(self.last)}"

    def _one(self, call: ToolCall) -> str:
        parts = (f"{self.opened.format(name)}{self._text_of(value)}{self.closed}" for name, value in call.arguments.items())
        return f"<function={call.name}{self.first}{''.join(parts)}{self.last}"

    def _text_of(self, value: Any) -> str:
        return value if isinstance(value, str) else dumped(value)


def _value(shape: dict[str, Any], rules: GrammarRules) -> str:
    kind, options = shape.get("type"), shape.get("enum")
    if isinstance(options, list) and options:
        return "(" + " | ".join(literal(one if isinstance(one, str) else dumped(one)) for one in options) + ")"
    if kind == "boolean":
        return "truth"
    choices = shape.get("anyOf")
    kinds = [one.get("type") for one in choices] if isinstance(choices, list) else [kind]
    return "written" if kinds == [None] or "string" in kinds else rules.of(shape)
