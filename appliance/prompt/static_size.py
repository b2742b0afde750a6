"""How many tokens the static prompt takes, part by part, counted by the broker on what it is sent.

Static is everything but the person's own text: instructions, tools, documents as they ship, skills.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from appliance.ingest import prompt_documents
from appliance.models.client import Models
from appliance.prompt.packet import SEPARATOR, Packets
from appliance.prompt.roles import ASSISTANT, Role, Roles
from appliance.records import Ask, Message, ToolSpec
from appliance.runtime import log
from appliance.runtime.methods import method
from appliance.skills.catalog import bundled
from appliance.skills.skill_file import parse_skill
from appliance.text import markdown


class Sizes:
    """Measures prompts; asks a model for nothing but counts."""

    def __init__(
        self, models: Models, packets: Packets, roles: Roles, specs: Callable[[Role], Sequence[ToolSpec]], pool: Callable[[], str]
    ) -> None:
        self._models = models
        self._packets = packets
        self._roles = roles
        self._specs = specs
        self._pool = pool

    @method("prompt.size", access="own")
    def measure(self, text: str = "hi", role: Annotated[str, "as this role sends it"] = "") -> dict[str, Any]:
        """The prompt for a text, in tokens by part, as the broker counts what it receives."""
        wanted = self._roles.assistant() if role in ("", ASSISTANT) else self._roles.child(role)
        route = self._models.plan(wanted.pool or self._pool())[0]
        specs = tuple(self._specs(wanted))
        system = self._packets.system(specs, route.dialect, route.window, wanted)
        ask = Ask(
            system=system, messages=(Message("user", text),), tools=specs, dialect=route.dialect, correlation=log.correlation()
        )
        measure = self._models.measure(route, ask)
        shipped = {n: _shipped_document(n) for n in prompt_documents.SHIPPED}
        groups = {"instructions": 0, "tools": 0, "documents": 0, "skills": 0, "person": 0}
        for name, tokens in measure.parts.items():
            if name in ("instructions", "style", "profiles"):
                groups["instructions"] += tokens
            elif name in ("tools", "skills"):
                groups[name] += tokens
            elif any(p.name == name and p.text.removesuffix(SEPARATOR) == _shipped_skill(name) for p in system):
                groups["skills"] += tokens
            elif any(p.name == name and shipped.get(name) == p.text.removesuffix(SEPARATOR) for p in system):
                groups["documents"] += tokens
            elif any(p.name == name for p in system):
                groups["person"] += tokens
        static = sum(tokens for name, tokens in groups.items() if name != "person")
        return {
            "role": wanted.name,
            "route": route.name,
            "dialect": route.dialect,
            "model": measure.model,
            "static": static,
            "groups": groups,
            "parts": measure.parts,
            "total": measure.total,
        }


def _shipped_document(name: str) -> str:
    """The text of a document as it ships."""
    return markdown.visible(markdown.split(prompt_documents.shipped(name))[1])


def _shipped_skill(part: str) -> str:
    """The text of a skill that ships, by the name of its part of the prompt; "" for any other part."""
    path = bundled() / part.removeprefix("skill ") / "SKILL.md"
    if not part.startswith("skill ") or not path.is_file():
        return ""
    return parse_skill(path, path.read_text(encoding="utf-8")).body
