"""Making a packet fit: what is lowered before a call of the model and after its tools have run, and in what order.

Before a call: nothing while it fits. Else what was opened in the turn before is summarized, then the prompt is
shown in part, then the earlier conversation is left out, and then it is an error 413. After dispatch: what this
turn opened is summarized when the next packet would not fit. Statuses and texts are never touched. What was
lowered is noted in the run's log. Keeps the copies of what was sent. Knows nothing about providers' wires.
"""

import json
import logging
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import OwlError, TooLarge
from appliance.knowledge.change_log import By
from appliance.knowledge.entries import Content, Entries
from appliance.knowledge.views import Actor, View, Views
from appliance.prompt.packet import Packets
from appliance.prompt.packet_types import Packet, PacketScene, Recovery
from appliance.prompt.sent_copies import Copies
from appliance.records import Ask, Finish, Route, to_plain
from appliance.text import tokens

LOG = logging.getLogger(__name__)
DUE = 0.8  # of the ceiling: from there on a conversation is summarized
MAX_IDLE_TURNS = 3  # with a prompt shown in part and nothing becoming smaller
OURS = ("instructions", "budget")  # blocks that are there whatever is asked
ROUNDS = 3  # of counting a conversation before it is sent as it is
MAX_NAMED = 20  # of what was lowered, in a note

Count = Callable[[Route, Ask], int]


class BudgetRows(Struct, frozen=True):
    """Where the budget lowers and notes things: what a core has of each."""

    views: Views
    entries: Entries
    copies: Copies | None = None


class Budget:
    """Gives the agent packets that fit. `count` asks the route's own tokenizer, where there is one."""

    def __init__(
        self, packets: Packets, rows: BudgetRows, count: Count | None = None, full: Callable[[str], object] | None = None
    ) -> None:
        """`full` is told the run of a conversation that nears its limit."""
        self._packets = packets
        self._rows = rows
        self._count = count
        self._full = full

    # -- the three moments of a turn ------------------------------------------------------------------

    def assemble(self, scene: PacketScene) -> Packet:
        """The packet for a call, made to fit; TooLarge (413) when nothing that may be lowered is left."""
        scene = replace(scene, recovery=scene.before.recovery if scene.before is not None else scene.recovery)
        if scene.layout == "chat":
            return _require_fit(self._assemble_chat(scene))
        packet = self._count_packet(self._packets.assemble(scene), scene)
        if scene.recovery.is_prompt_short:
            packet, scene = self._recover_prompt(packet, scene)
        if not packet.is_over:
            return packet
        packet = self._summarize_opened(scene, scene.turn - 1) or packet
        if packet.is_over and not scene.recovery.is_prompt_short:
            packet, scene = self._shorten_prompt(packet, scene)
        if packet.is_over and scene.has_history:
            packet = self._without_history(packet, scene)
        return _require_fit(packet)

    def answered(self, scene: PacketScene, packet: Packet, text: str, thoughts: str, finish: Finish) -> None:
        """The model has answered: learn how its route counts, and keep a copy of what was sent and said."""
        self._packets.learn(scene.route, packet.chars, finish.prompt_tokens)
        if self._rows.copies is not None:
            calls = "".join(f"\n{json.dumps(to_plain(call), ensure_ascii=False)}" for call in finish.tool_calls)
            said = (text + calls).removeprefix("\n") if calls else text
            self._rows.copies.store_turn(scene, packet, said, thoughts or finish.reasoning, finish.prompt_tokens)
        size = finish.prompt_tokens or packet.tokens
        if self._full is not None and scene.layout == "chat" and packet.ceiling is not None and size > DUE * packet.ceiling:
            self._full(scene.run)

    def dispatched(self, scene: PacketScene, packet: Packet, finish: Finish) -> tuple[str, ...]:
        """The tools of a turn have run: the paths that had to be summarized again because the next packet would not fit."""
        if scene.layout == "chat" or packet.ceiling is None:
            return ()
        after = replace(scene, before=packet, measured=finish.prompt_tokens or None, recovery=packet.recovery)
        if not self._count_packet(self._packets.assemble(after), after).is_over:
            return ()
        before = {view.path for view in self._opened_views(scene, scene.turn)}
        self._summarize_opened(after, scene.turn)
        return tuple(sorted(before))

    def _assemble_chat(self, scene: PacketScene) -> Packet:
        """A conversation, of which nothing is left out because of a mere guess, nor too little."""
        packet = self._packets.assemble(scene)
        for _ in range(ROUNDS):
            is_guessed = bool(packet.notes) and self._packets.is_guessed(scene.route)
            counted = self._count_packet(packet, scene, is_wanted=is_guessed)
            if counted is packet:
                break
            packet = self._packets.assemble(scene)  # now that it is known how the route counts
            if packet.messages == counted.messages:
                return counted
        return packet

    # -- the steps --------------------------------------------------------------------------------------

    def _summarize_opened(self, scene: PacketScene, turn: int) -> Packet | None:
        """Summarize what was opened or touched in a turn, whatever its scheme; None when there was nothing."""
        views = self._opened_views(scene, turn)
        if not views:
            return None
        actor = self._system_actor(scene)
        self._rows.views.demote(actor, [view.entry for view in views], to="summarized")
        text = f"Too long for the model. Summarized again: {_name_paths([view.path for view in views])}. Open less at once."
        self._log_note(scene, "opened" if turn < scene.turn else "dispatched", text)
        return self._count_packet(self._packets.assemble(scene), scene)

    def _shorten_prompt(self, packet: Packet, scene: PacketScene) -> tuple[Packet, PacketScene]:
        """Show the prompt in part."""
        short = replace(scene, recovery=Recovery(True, 0, packet.tokens))
        self._log_note(
            scene, "prompt", "Too long for the model. The prompt is shown in part until there is room: close what you do not need."
        )
        return self._count_packet(self._packets.assemble(short), short), short

    def _recover_prompt(self, packet: Packet, scene: PacketScene) -> tuple[Packet, PacketScene]:
        """A prompt that is shown in part: whole again when it fits; TooLarge after too many turns that freed nothing."""
        whole = replace(scene, recovery=Recovery())
        full = self._count_packet(self._packets.assemble(whole), whole)
        if not full.is_over:
            return full, whole
        was = scene.recovery
        idle = was.idle_turns + 1 if full.tokens >= was.tokens else 0
        if idle >= MAX_IDLE_TURNS:
            raise TooLarge(
                f"the prompt did not fit for {idle} turns, and nothing was closed",
                hint="give a shorter prompt, or a model with a larger window",
            )
        now = replace(scene, recovery=Recovery(True, idle, full.tokens))
        return replace(packet, recovery=now.recovery), now

    def _without_history(self, packet: Packet, scene: PacketScene) -> Packet:
        """Leave out what was said before, which is kept in the record."""
        short = replace(scene, has_history=False)
        made = self._count_packet(self._packets.assemble(short), short)
        if made.tokens >= packet.tokens:
            return packet
        return replace(made, notes=(*made.notes, "the earlier conversation was left out"))

    # -- inside -----------------------------------------------------------------------------------------

    def _count_packet(self, packet: Packet, scene: PacketScene, *, is_wanted: bool = False) -> Packet:
        """A packet that an estimate calls too long, or that may be longer than it seems, counted by the route itself."""
        is_wanted = is_wanted or (packet.is_over and not scene.measured) or self._may_be_over(packet, scene)
        if not is_wanted or self._count is None:
            return packet
        ask = Ask(packet.system, packet.messages, scene.specs, scene.route.dialect)
        try:
            counted = self._count(scene.route, ask)
        except OwlError as error:
            LOG.warning("a prompt could not be counted, its size is estimated: %s", error)
            return packet
        self._packets.learn(scene.route, packet.chars, counted)
        return replace(packet, tokens=counted) if counted > 0 else packet

    def _may_be_over(self, packet: Packet, scene: PacketScene) -> bool:
        """Whether a packet that seems to fit would not, if its script were one of which a model knows little."""
        ceiling, density = packet.ceiling, self._packets.density(scene.route)
        if ceiling is None or packet.is_over or packet.chars * 4 <= ceiling:
            return False
        most = tokens.at_most(_packet_text(packet), density)
        if scene.measured and scene.before is not None:  # only what is new can be such
            most = scene.measured + max(0, most - tokens.at_most(_packet_text(scene.before), density))
        return most > ceiling

    def _opened_views(self, scene: PacketScene, turn: int) -> list[View]:
        """What a run sees in full since a turn, whatever its scheme and status; of what failed its line in the log stays."""
        return [view for view in self._rows.views.views_of(scene.run, visibility="visible") if view.turn == turn]

    def _log_note(self, scene: PacketScene, what: str, text: str) -> None:
        """A line in the run's log that says what was done about its size."""
        path = f"error://turn_{scene.turn}/budget/{what}"
        entry = self._rows.entries.put(path, Content(body=text), By("system", scene.run), scope=f"run:{scene.run}")
        self._rows.views.show(self._system_actor(scene), entry.id, "visible", "failed", 413, TooLarge.outcome)

    @staticmethod
    def _system_actor(scene: PacketScene) -> Actor:
        return Actor("system", scene.run, scene.loop, scene.turn)


def _require_fit(packet: Packet) -> Packet:
    """The packet; TooLarge with its overflow when it does not fit."""
    if not packet.is_over:
        return packet
    ceiling = packet.ceiling or 0
    theirs = [part.text for part in packet.blocks if part.name not in OURS] or [message.content for message in packet.messages]
    over, said = packet.tokens - ceiling, sum(map(len, theirs))
    if packet.chars and packet.tokens * (packet.chars - said) // packet.chars > ceiling:
        raise TooLarge(
            f"the instructions, documents and tools alone have more tokens than the {ceiling} that the model may be sent",
            hint="choose a model with a larger window, or raise models.context",
        )
    raise TooLarge(
        f"the prompt has {packet.tokens} tokens, {over} more than the model may be sent",
        hint="ask in fewer words, begin a new thread, or choose a model with a larger window",
    )


def _packet_text(packet: Packet) -> str:
    """Everything that is sent as text."""
    return "".join([*(part.text for part in packet.system), *(message.content for message in packet.messages)])


def _name_paths(paths: Sequence[str]) -> str:
    more = len(paths) - MAX_NAMED
    return ", ".join(paths[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
