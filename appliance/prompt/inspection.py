"""What a run's model would be sent now, and what it was sent before: for people who want to know why it answers so.

Looks, and lowers nothing: the size told is the one before anything is made to fit. Also summarizes a conversation on
request. Knows nothing about sockets.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from appliance.errors import NotFound, TooLarge, Unavailable
from appliance.policy import modes
from appliance.prompt.compaction import Compactor
from appliance.prompt.packet import Packets
from appliance.prompt.packet_types import Packet, PacketScene
from appliance.prompt.roles import CHAT, Role
from appliance.prompt.sent_copies import Copies
from appliance.records import Route, Terms, ToolSpec, to_plain
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Run, Runs
from appliance.sessions.turns import telemetry
from appliance.store import visibility

HISTORY = 80
Named = Annotated[str, "its name or id, or the beginning or end of the id"]


class PacketInspector:
    """Looks at packets of runs."""

    def __init__(
        self,
        runs: Runs,
        packets: Packets,
        copies: Copies,
        compactor: Compactor,
        plan: Callable[[str], Sequence[Route]],
        menu: Callable[[str, tuple[str, ...] | None], Sequence[ToolSpec]],
        role_of: Callable[[str, bool], Role] = lambda name, is_queue: CHAT,
    ) -> None:
        self._runs = runs
        self._packets = packets
        self._copies = copies
        self._compactor = compactor
        self._plan = plan
        self._menu = menu
        self._role_of = role_of

    @method("run.packet", access="own")
    def size(
        self, run: Named, turn: Annotated[int, Range(-1, 10_000_000), "what was sent then: its number, 0 the newest; -1 none"] = -1
    ) -> dict[str, Any]:
        """The parts of the packet that would be sent now, with their sizes; changes nothing.

        With a turn what its model was sent and said, word for word, where `runs.copies` keeps that. `tokens` and `table` count
        tokens, `ceiling` is how many it may have; `part_chars` counts the characters of each named part.
        """
        found = self._runs.get(run)
        if turn >= 0:
            return self._copy(found.id, turn)
        scene = self._scene_of_run(found)
        with visibility.showing(self._runs.context_of(found.id)):
            packet = self._packets.assemble(scene)
        return {
            "run": found.id,
            "layout": scene.layout,
            "route": scene.route.name,
            "window": scene.window,
            "ceiling": packet.ceiling,
            "tokens": packet.tokens,
            "is_over": packet.is_over,
            "table": {**to_plain(packet.table), "usage": packet.table.usage, "free": packet.table.free},
            "text": packet.table.text(),
            "notes": list(packet.notes),
            "part_chars": _part_chars(packet),
            "copies": self._copies.turns(found.id),
            "telemetry": telemetry(self._runs.turns(found.id)),
        }

    def _copy(self, known: str, turn: int) -> dict[str, Any]:
        turns = self._copies.turns(known)
        if not turns:
            hint = 'by default only those of run.ask and run.act are: runs.copies = "all" keeps all from now on'
            raise NotFound(f"nothing that was sent in thread {known} is kept", hint=hint)
        found = self._copies.get(known, turn or turns[-1])
        texts = {name: found.text(name) for name in ("system", "user", "answer", "reasoning")}
        return {"run": known, "turn": found.turn, "route": found.route, "tokens": found.tokens, "at_ms": found.at_ms, **texts}

    def require_room(self, ref: str, tokens: int) -> None:
        """TooLarge when a run that is shown its entries has no room for so many tokens more (R-045)."""
        run = self._runs.get(ref)
        if run.settings.layout != "entries":
            return
        try:
            packet = self._packets.assemble(self._scene_of_run(run))
        except Unavailable:
            return  # no model can be asked at all
        if packet.ceiling is not None and tokens > (free := max(0, packet.ceiling - packet.tokens)):
            hint = "name fewer files; what was named is followed all the same"
            raise TooLarge(f"{tokens} tokens more are too many: run {run.alias} has room for {free}", hint=hint)

    @method("run.compact", access="own", is_long=True)
    def compact(self, run: Named) -> dict[str, Any]:
        """Summarize the older part of a conversation for its model; the originals stay."""
        event = self._compactor.compact(run)
        given = event.input or {}
        return {"run": event.run, "seq": event.seq, "covers": len(given["covers"]), "by": given["by"], "summary": event.content}

    def _scene_of_run(self, run: Run) -> PacketScene:
        messages = tuple(self._runs.recent(run.id, HISTORY))
        loop, turn = self._runs.moment(run.id)
        layout = run.settings.layout
        role = self._role_of(run.role, run.kind == "tick")
        terms: Terms = modes.terms("act", run.settings)
        is_shown_entries = layout == "entries" and role.is_chat
        tools = role.unkept if layout == "entries" else role.tools
        specs = tuple(modes.menu(terms, self._menu("run" if is_shown_entries else role.menu, tools)))
        return PacketScene(
            run=run.id,
            route=self._plan(run.settings.model)[0],
            specs=specs,
            messages=messages,
            remembered=HISTORY,
            layout=layout,
            role=role.name,
            about=role.text,
            documents=role.documents,
            has_skills=role.has_skills,
            loop=loop,
            turn=turn + 1,
            prompt=next((m.content for m in reversed(messages) if m.role == "user"), ""),
            persona=run.settings.persona,
            context_limit=run.settings.context_limit or 0,
        )


def _part_chars(packet: Packet) -> dict[str, int]:
    """Characters of every named part."""
    found = {f"system/{part.name}": len(part.text) for part in packet.system}
    if packet.blocks:
        return found | {f"user/{part.name}": len(part.text) for part in packet.blocks}
    return found | {"messages": sum(len(message.content) for message in packet.messages)}
