"""LFM2 and LFM2.5: calls as Python writes them, in a list between marks."""

from appliance.providers.family import Family, members_of, named_arguments
from appliance.providers.grammar import GrammarRules
from appliance.providers.value_styles import PYTHON, literal
from appliance.records import ToolCall, ToolSpec


class Lfm(Family):
    """`<|tool_call_start|>[name(argument="value")]<|tool_call_end|>`."""

    name = "lfm"
    marks = ("<|tool_call_start|>",)
    closing = "<|tool_call_end|>"
    more_marks = (
        *("<|tool_call_end|>", "<|tool_list_start|>", "<|tool_list_end|>"),
        *("<|tool_response_start|>", "<|tool_response_end|>"),
    )
    before = "["
    style = PYTHON

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It lists the tools in the system text."""
        return "List of tools: " in template and "<|im_start|>" in template

    def returned(self, name: str, text: str) -> str:
        """Between the marks that LFM2 has for it."""
        return f"<|tool_response_start|>{text}<|tool_response_end|>"

    def _blank(self) -> str:
        return '"["'

    def _named(self) -> str:
        return '""'

    def _call(self, tool: ToolSpec, rules: GrammarRules) -> str:
        return f'{literal(f"{tool.name}(")} {named_arguments(tool, rules, "=")} ")]"'

    def _one(self, call: ToolCall) -> str:
        return f"{call.name}({members_of(call.arguments, self.style, '=')})]"
