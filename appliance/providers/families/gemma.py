"""Gemma 4: `<|tool_call>call:NAME{argument:value}<tool_call|>`, texts between <|"|>; those of Gemma 2 and 3 know no tools."""

from appliance.providers.family import Family, members_of, named_arguments
from appliance.providers.grammar import GrammarRules
from appliance.providers.value_styles import GEMMA, literal
from appliance.records import ToolCall, ToolSpec


class Gemma(Family):
    """Gemma since its fourth generation."""

    name = "gemma"
    marks = ("<|tool_call>",)
    closing = "<tool_call|>"
    more_marks: tuple[str, ...] = (
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|tool>",
        "<tool|>",
        '<|"|>',
        "<|channel>",
        "<channel|>",
    )
    before = "call:"
    style = GEMMA

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It has the mark."""
        return "<|tool_call>call:" in template

    def _blank(self) -> str:
        return '"call:"'

    def _named(self) -> str:
        return '""'

    def _call(self, tool: ToolSpec, rules: GrammarRules) -> str:
        return f'{literal(f"{tool.name}{{")} {named_arguments(tool, rules, ":")} "}}"'

    def _one(self, call: ToolCall) -> str:
        return f"{call.name}{{{members_of(call.arguments, self.style, ':')}}}"
