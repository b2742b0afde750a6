"""What a packet is made for, and what it is: facts that the agent, the packet and the budget hand to each other.

Knows nothing about how a section is worded or how anything is made to fit.
"""

from typing import Literal

from msgspec import Struct
from msgspec import field as struct_field

from appliance.language.times.timezones import LOCAL
from appliance.prompt.entry_blocks import SeenEntries
from appliance.records import Message, Part, Route, ToolSpec
from appliance.text.tokens import PromptTable

Figures = tuple[int, int, int | None]  # turn, tokens used, tokens free


class Recovery(Struct, frozen=True):
    """How a prompt that did not fit is doing: shown in part, for so many turns in which nothing became smaller."""

    is_prompt_short: bool = False
    idle_turns: int = 0
    tokens: int = 0


class Plain(Struct, frozen=True):
    """A prompt that is sent as it is, without documents, tools or a longer conversation: for models that follow no more."""

    system: tuple[Part, ...]
    messages: tuple[Message, ...]


class PacketScene(Struct, frozen=True):
    """What a packet is made for. `before` is the packet of the turn before in the same loop, None for its first.

    `turn` counts from 1 through the whole run and what it was forked from. `measured` is what the provider said the
    packet before had in tokens. `messages` are the conversation of the chat layout, of which so many are `remembered`
    (0: all). `context_limit` lowers the route's window.
    """

    run: str
    route: Route
    specs: tuple[ToolSpec, ...] = ()
    messages: tuple[Message, ...] = ()
    remembered: int = 0
    layout: Literal["chat", "entries"] = "chat"
    role: str = "assistant"
    about: str = ""  # the role's own words
    documents: tuple[str, ...] | None = None  # that it is shown, None: all
    has_skills: bool = True
    is_child: bool = False
    loop: int = 0
    turn: int = 1
    prompt: str = ""
    person: str = ""
    persona: str = ""
    mode: Literal["ask", "act"] = "act"
    context_limit: int = 0
    max_output_tokens: int = 512
    measured: int | None = None
    before: "Packet | None" = None
    recovery: Recovery = struct_field(default_factory=Recovery)
    has_history: bool = True
    plain: Plain | None = None

    @property
    def window(self) -> int:
        """Tokens that the prompt and the answer may have together; 0 where nobody knows."""
        known = [limit for limit in (self.route.window, self.context_limit) if limit > 0]
        return min(known, default=0)

    @property
    def key(self) -> tuple[object, ...]:
        """The inputs besides the documents on which the system text depends."""
        names = tuple(spec.name for spec in self.specs)
        return (self.route.name, self.route.dialect, self.window, self.role, self.layout, self.persona, names)


class Packet(Struct, frozen=True):
    """What goes to the model, and what is known of its size. `blocks` are the named parts of an `entries` message.

    `tokens` is the best number there is: what was counted for the packet before, and an estimate of the difference.
    """

    system: tuple[Part, ...]
    messages: tuple[Message, ...]
    key: tuple[object, ...]
    chars: int = 0
    tokens: int = 0
    ceiling: int | None = None
    table: PromptTable = PromptTable()
    blocks: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    recovery: Recovery = struct_field(default_factory=Recovery)
    figures: Figures = (0, 0, None)
    found: tuple[Part, ...] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is more than the route takes."""
        return self.ceiling is not None and self.tokens > self.ceiling


class Stage(Struct, frozen=True):
    """The inputs of the sections of a user message."""

    scene: PacketScene
    seen: SeenEntries
    log: tuple[str, ...]
    found: tuple[Part, ...]
    zone: str = LOCAL  # that times are told in
    folder: str = ""  # where the notes lie
