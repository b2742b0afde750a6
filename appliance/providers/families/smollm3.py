"""SmolLM3: calls as in the Hermes family; its template takes tools under a name of its own and leaves calls to the text."""

from collections.abc import Sequence
from typing import Any

from appliance.providers.families.hermes import Hermes as Base
from appliance.providers.family import described
from appliance.records import ToolSpec


class SmolLM3(Base):
    """SmolLM3 in its mode of tools as XML."""

    name = "smollm3"

    @classmethod
    def is_meant(cls, template: str) -> bool:
        """It asks for `xml_tools`."""
        return "xml_tools" in template and "<tool_call>" in template

    def variables(self, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        """The tools as `xml_tools`."""
        return {"xml_tools": [described(tool) for tool in tools]}
