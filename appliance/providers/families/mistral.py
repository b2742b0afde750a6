"""Mistral before 2025: calls as a JSON list behind [TOOL_CALLS], with ids of nine letters and digits."""

from appliance.providers.family import Family


class Mistral(Family):
    """Mistral 7B v0.3, Nemo, Mixtral."""

    name = "mistral"
    marks = ("[TOOL_CALLS]",)
    more_marks: tuple[str, ...] = (
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[INST]",
        "[/INST]",
    )
    has_free_ids = False
    before, after = "[", "}]"

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It lists calls, without [ARGS]."""
        return "[TOOL_CALLS]" in template and "[ARGS]" not in template

    def _blank(self) -> str:
        return '" "? "["'
