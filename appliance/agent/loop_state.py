"""What one loop is given and what it counts: its caps, where it stands when it is taken up, and the talk as the model sees it.

Facts that `agent.agent` works on; nothing is decided here.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from appliance.agent import stop_conditions
from appliance.agent.dispatch import CommandScene as Commands
from appliance.agent.dispatch import LoopEffects
from appliance.agent.stop_conditions import Past
from appliance.clock import new_id
from appliance.language.planning.plans import ModelTalk
from appliance.policy.modes import FREE
from appliance.prompt.packet_types import Packet, PacketScene
from appliance.prompt.roles import CHAT, Role
from appliance.records import Cancel, Finish, Message, Outcome, Route, RunSettings, Terms, Tier, ToolCall, ToolSpec
from appliance.runtime import log
from appliance.text.answer_parser import ParsedAnswer


class LoopLimits(Struct, frozen=True):
    """Caps of one loop, and how the model is asked. `max_commands` is for one answer, `max_loop_commands` for all of them.

    `tier` says how much of a turn the program decides in place of a route's model.
    """

    max_turns: int = 99
    max_commands: int = 99
    max_strikes: int = 3
    max_cycles: int = stop_conditions.REPETITIONS
    max_period: int = stop_conditions.PERIOD
    max_loop_commands: int = 990
    history_messages: int = 80
    temperature: float = 0.1
    max_output_tokens: int = 512
    may_think: bool = False
    deadline_s: float = 600.0
    pause_s: float = 30.0
    tier: Callable[[Route], Tier] = lambda route: "able"


class TurnSource(Protocol):
    """Interface that a loop calls between two model calls."""

    def begin_turn(self) -> None:
        """The model is about to be asked."""
        ...

    def arrived(self) -> Sequence[Message]:
        """The messages that the person added since the last call."""
        ...


class NothingArrives:
    """A loop to which nobody adds anything."""

    def begin_turn(self) -> None: ...

    def arrived(self) -> Sequence[Message]:
        return ()


class Work(Struct, frozen=True):
    """Where a loop stands when it is begun or taken up: its terms, what its run is set to, and the turns so far.

    `turn` counts those of the whole run, `turns` those of this loop. `source` is asked before each call of the model.
    `tools` are used instead of everybody's.
    `effects` are the calls with their results of a turn that waited for a decision.
    """

    terms: Terms = FREE
    settings: RunSettings = RunSettings()
    loop: int = 0
    turn: int = 0
    turns: int = 0
    source: TurnSource = NothingArrives()
    effects: tuple[tuple[ToolCall, Outcome], ...] = ()


WORK = Work()


class LoopTalk(Struct):
    """One loop's working state: the conversation as the model sees it, and what is counted."""

    run: str
    routes: Sequence[Route]
    cancel: Cancel
    role: Role = CHAT
    person: str = ""
    session: str = ""
    work: Work = WORK
    messages: list[Message] = field(default_factory=list)
    specs: tuple[ToolSpec, ...] = ()
    prompt: str = ""
    said: str = ""
    past: Past = field(default_factory=Past)
    scene: PacketScene | None = None  # of the last call, with its packet and what that came to
    packet: Packet | None = None
    finish: Finish = Finish("stop")
    told: set[str] = field(default_factory=set)  # troubles with models that the person has heard of
    plain: ModelTalk | None = None  # what a tiny or small model is asked in place of a packet
    effects: LoopEffects = field(default_factory=LoopEffects)  # of this loop: none is done twice

    @property
    def is_shown_entries(self) -> bool:
        """Whether a person's run is laid out in blocks, with tools of its own."""
        return self.work.terms.layout == "entries" and self.role.is_chat

    @property
    def is_work(self) -> bool:
        """Whether it is work that nobody talks about meanwhile: a task's, a job's."""
        return not self.role.is_chat or self.role.is_child

    @property
    def commands(self) -> Commands:
        """Where and on what terms its commands are run."""
        return Commands(self.run, self.cancel, self.session, self.work.terms, self.specs, log.correlation(), self.effects)


def with_fresh_ids(answer: ParsedAnswer, before: Sequence[Message]) -> ParsedAnswer:
    """The answer with a fresh id for every call that has none, or one already used in this conversation.

    A model's own ids start over with every answer; results are matched with calls by id, so they may not.
    """
    used = {call.id for message in before for call in message.tool_calls} | {""}
    calls: list[ToolCall] = []
    for call in answer.calls:
        calls.append(replace(call, id=new_id()) if call.id in used else call)
        used.add(call.id)
    return replace(answer, calls=tuple(calls))
