"""gpt-oss: `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`; thoughts have a channel, too."""

from collections.abc import Sequence

from appliance.providers.family import Family
from appliance.providers.grammar import GrammarRules
from appliance.providers.value_styles import dumped, literal
from appliance.records import ToolCall, ToolSpec

HEADER = 'header ::= "<|channel|>commentary"? " "? "<|constrain|>"? "json"? "<|message|>"\n'


class Harmony(Family):
    """Messages in channels; the tool stands in front of the channel or behind it."""

    name = "harmony"
    marks = ("<|channel|>commentary to=functions.", "to=functions.")
    closing = "<|call|>"
    more_marks = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
    has_single_calls = True
    before = ""

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It has the channel of calls."""
        return "<|channel|>commentary" in template

    def grammar(self, tools: Sequence[ToolSpec]) -> str:
        """With the rule for what stands between the name and the arguments."""
        return super().grammar(tools) + HEADER

    def read(self, text: str, tools: Sequence[ToolSpec]) -> ToolCall | None:
        """Either form."""
        return super().read(f"<|start|>assistant {text}" if text.startswith("to=") else text, tools)

    def _blank(self) -> str:
        return '""'

    def _named(self) -> str:
        return '""'

    def _call(self, tool: ToolSpec, rules: GrammarRules) -> str:
        return f"{literal(tool.name)} header {rules.arguments_of(tool)}"

    def _one(self, call: ToolCall) -> str:
        return f"{call.name} <|constrain|>json<|message|>{dumped(call.arguments)}"
