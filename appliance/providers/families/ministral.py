"""Mistral since 2025: [TOOL_CALLS]NAME[ARGS]{...}, as Mistral Small 3.2 and Ministral 3 write it."""

from appliance.providers.families.mistral import Mistral as Base
from appliance.providers.grammar import GrammarRules
from appliance.providers.value_styles import dumped, literal
from appliance.records import ToolCall, ToolSpec


class Ministral(Base):
    """A name, then its arguments behind a mark."""

    name = "ministral"
    before = ""
    more_marks = (*Base.more_marks, "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It has the mark of arguments."""
        return "[TOOL_CALLS]" in template and "[ARGS]" in template

    def _blank(self) -> str:
        return '""'

    def _named(self) -> str:
        return '""'

    def _call(self, tool: ToolSpec, rules: GrammarRules) -> str:
        return f"{literal(f'{tool.name}[ARGS]')} {rules.arguments_of(tool)}"

    def _one(self, call: ToolCall) -> str:
        return f"{call.name}[ARGS]{dumped(call.arguments)}"
