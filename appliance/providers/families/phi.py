"""Phi-4-mini: a JSON list between <|tool_call|> and <|/tool_call|>, in some answers behind `functools`."""

from collections.abc import Sequence
from typing import Any

from appliance.providers.family import Family
from appliance.providers.value_styles import dumped


class Phi(Family):
    """Microsoft's own template takes tools as a text inside the system turn; others take them as a variable."""

    name = "phi"
    marks = ("<|tool_call|>", "functools")
    closing = "<|/tool_call|>"
    more_marks = ("<|/tool_call|>", "<|tool|>", "<|/tool|>", "<|tool_response|>")
    result_role = "tool_response"
    before, after = "[", "}]"

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It has the marks around the tools."""
        return "<|tool|>" in template and "<|/tool|>" in template

    def tools_text(self, tools: Sequence[Any]) -> str:
        """Between the marks, as the own template writes a text that it is given."""
        return f"<|tool|>{dumped([tool['function'] for tool in tools])}<|/tool|>"

    def _blank(self) -> str:
        return '"["'
