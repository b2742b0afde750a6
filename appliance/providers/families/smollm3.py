"""SmolLM3: calls as in the Hermes family, which its template leaves to the text."""

from collections.abc import Sequence
from typing import Any

from appliance.providers.families.hermes import Hermes as Base
from appliance.providers.family import described
from appliance.providers.value_styles import dumped
from appliance.records import ToolSpec


class SmolLM3(Base):
    """In its mode of tools as XML: the template takes them under a name of its own, that of most GGUF files not at all."""

    name = "smollm3"

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It asks for `xml_tools`, or names the model."""
        return ("xml_tools" in template and "<tool_call>" in template) or "named SmolLM" in template

    def variables(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The tools as `xml_tools`."""
        return {"xml_tools": [described(tool) for tool in tools]}

    def tools_text(self, tools: Sequence[Any]) -> str:
        """In the form that the model was trained on."""
        signatures = "\n".join(map(dumped, tools))
        call = '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        return (
            "\n\n### Tools\n\nYou may call functions to help with the question. Their signatures:\n"
            f"<tools>\n{signatures}\n</tools>\n\nA call is a JSON object between tags:\n{call}"
        )
