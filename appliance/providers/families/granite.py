"""Granite 3: a JSON list behind <|tool_call|>; its template writes contents alone. Granite 4 is of the Hermes family."""

from appliance.providers.family import Family


class Granite(Family):
    """Granite 3.0 to 3.3."""

    name = "granite"
    marks = ("<|tool_call|>",)
    result_role = "tool_response"
    before, after = "[", "}]"

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It has a role for the tools."""
        return "<|start_of_role|>" in template and "<|tool_call|>" in template

    def _blank(self) -> str:
        return '" "? "["'
