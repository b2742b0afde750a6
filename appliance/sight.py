"""What a run's model would be sent now, and what it was sent before: for people who want to know why it answers so.

Looks, and lowers nothing: the size told is the one before anything is made to fit. Also summarizes a conversation on
request. Knows nothing about sockets.
"""

from collections.abc import Callable, Sequence
from typing import Any

from appliance import modes
from appliance.compaction import Compactor
from appliance.copies import Copies
from appliance.packet import Packets
from appliance.records import Route, Terms, ToolSpec, to_plain
from appliance.runs import Run, Runs
from appliance.scenes import Packet, Scene

HISTORY = 80


class Sight:
    """Looks at packets of runs."""

    def __init__(
        self,
        runs: Runs,
        packets: Packets,
        copies: Copies,
        compactor: Compactor,
        plan: Callable[[str], Sequence[Route]],
        menu: Callable[[str], Sequence[ToolSpec]],
    ) -> None:
        self._runs = runs
        self._packets = packets
        self._copies = copies
        self._compactor = compactor
        self._plan = plan
        self._menu = menu

    def size(self, ref: str) -> dict[str, Any]:
        """What fills the packet that would answer a run's newest prompt again, by its best route."""
        run = self._runs.get(ref)
        scene = self._scene(run)
        packet = self._packets.assemble(scene)
        return {
            "run": run.id,
            "layout": scene.layout,
            "route": scene.route.name,
            "window": scene.window,
            "ceiling": packet.ceiling,
            "tokens": packet.tokens,
            "is_over": packet.is_over,
            "table": {**to_plain(packet.table), "usage": packet.table.usage, "free": packet.table.free},
            "text": packet.table.text(),
            "notes": list(packet.notes),
            "parts": _parts(packet),
            "copies": self._copies.turns(run.id),
        }

    def copy(self, ref: str, turn: int) -> dict[str, Any]:
        """What a turn's model was sent and said; the newest turn for 0."""
        run = self._runs.get(ref)
        turns = self._copies.turns(run.id)
        found = self._copies.get(run.id, turn or (turns[-1] if turns else 0))
        texts = {name: found.text(name) for name in ("system", "user", "answer", "reasoning")}
        return {"run": run.id, "turn": found.turn, "route": found.route, "tokens": found.tokens, "at_ms": found.at_ms, **texts}

    def compact(self, ref: str) -> dict[str, Any]:
        """Summarize the older part of a run's conversation now."""
        event = self._compactor.compact(ref)
        given = event.input or {}
        return {"run": event.run, "seq": event.seq, "covers": len(given["covers"]), "by": given["by"], "summary": event.content}

    def _scene(self, run: Run) -> Scene:
        messages = tuple(self._runs.recent(run.id, HISTORY))
        loop, turn = self._runs.moment(run.id)
        layout = run.settings.layout
        role = run.role or ("worker" if run.kind == "tick" else "chat")
        terms: Terms = modes.terms("act", run.settings)
        specs = tuple(modes.menu(terms, self._menu("run" if layout == "entries" else role)))
        return Scene(
            run=run.id,
            route=self._plan(run.settings.model)[0],
            specs=specs,
            messages=messages,
            layout=layout,
            role=role,
            loop=loop,
            turn=turn + 1,
            prompt=next((m.content for m in reversed(messages) if m.role == "user"), ""),
            persona=run.settings.persona,
            context_limit=run.settings.context_limit or 0,
        )


def _parts(packet: Packet) -> dict[str, int]:
    """Characters of every named part."""
    found = {f"system/{part.name}": len(part.text) for part in packet.system}
    if packet.blocks:
        return found | {f"user/{part.name}": len(part.text) for part in packet.blocks}
    return found | {"messages": sum(len(message.content) for message in packet.messages)}
