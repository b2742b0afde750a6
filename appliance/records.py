"""Facts that cross module borders: frozen structs, and the six ports of the core as Protocols.

Knows nothing about where anything is stored or sent. `to_plain` and `from_plain` turn records into
JSON-ready values and back; unknown fields are ignored, missing ones take their defaults, so records
written by an older version load unchanged.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]
Dialect = Literal["native", "grammar", "tags"]
Kind = Literal[
    "message",
    "thinking",
    "tool_use",
    "tool_result",
    "context_update",
    "status_change",
    "delegate",
    "compaction",
    "model_change",
    "proposal",
]
Tier = Literal["tiny", "small", "able"]  # of a model: how much of a turn the program decides in its place
Mode = Literal["ask", "act"]  # of a loop: reading only, or everything
Approval = Literal["ask", "review", "auto"]  # of a run: reading only, changes wait for a person, or changes happen


def to_plain(record: object) -> Any:
    """JSON-ready value (dict, list, str, ...) of any record."""
    return msgspec.to_builtins(record)


def from_plain(cls: type[T], value: object) -> T:
    """The record that `value` describes; msgspec.ValidationError names the path of a wrong field."""
    return msgspec.convert(value, cls)


# -- conversation ---------------------------------------------------------------------------------


class ToolCall(Struct, frozen=True):
    """One command of a model: the tool's name and its arguments as the model gave them."""

    id: str
    name: str
    arguments: dict[str, Any] = {}


class Image(Struct, frozen=True):
    """A picture beside a message: what it is called, its media type such as image/png, and its bytes as base64."""

    name: str
    media_type: str
    data: str

    @classmethod
    def of_bytes(cls, name: str, media_type: str, data: bytes) -> "Image":
        """A picture from its bytes."""
        return cls(name, media_type, base64.b64encode(data).decode("ascii"))

    @property
    def reference(self) -> str:
        """The text that replaces a picture for a model that sees none (A-114)."""
        return f"[picture {self.name}, {self.media_type}, {max(1, len(self.data) * 3 // 4000)} kB: this model cannot see it]"


class ShortForm(Struct, frozen=True):
    """What a skill asks of a tiny or small model: the first of these sentences that can be followed; none for what it cannot do.

    An empty sentence says that the words behind the name are missing. `instruction` is the skill's own text, which is no answer.
    """

    sentences: tuple[str, ...] = ()
    instruction: str = ""


class Message(Struct, frozen=True):
    """One message of a conversation (S-005); channel and sender are empty where unknown.

    `origin` is that of a result which strangers may have written; whoever shows it to a model puts a fence around it.
    `own_chars` is how much of a prompt the person typed where a document follows, None for all of it. `short_form` is what a
    skill that was called by its name asks of a model that cannot follow its steps. `state` is what an answer of the program left
    to the messages behind it, `made` what a call made or changed: a number, an id or a reference.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    reasoning: str = ""
    at_ms: int = 0
    channel: str = ""
    sender_id: str = ""
    images: tuple[Image, ...] = ()
    origin: str = ""
    own_chars: int | None = None
    short_form: "ShortForm | None" = None
    state: "ThreadState | None" = None
    made: str = ""
    is_error: bool = False


class Asked(Struct, frozen=True):
    """A question of the program that is open until the next message: what it is for, and what it knows already.

    `kind`: "sure" whether to do it, "when" or "of_what" to remind of, "which" of the `options` is meant.
    """

    kind: str
    intent: str = ""
    language: str = ""
    parts: Mapping[str, str] = {}
    options: tuple[str, ...] = ()


class ThreadState(Struct, frozen=True):
    """What an answer of the program leaves to the messages behind it, as data beside its words: the question that is open, the
    references of the notes that it quotes and what it quotes of them, and the numbers of the tasks that it lists."""

    asked: Asked | None = None
    quoted: tuple[str, ...] = ()
    said: str = ""
    listed: tuple[str, ...] = ()

    @property
    def kept(self) -> dict[str, Any]:
        """What the event of the answer keeps beside its words."""
        return {"state": to_plain(self)}


class RunSettings(Struct, frozen=True):
    """The settings of one run; None and "" mean the configuration's value.

    `model` is a pool or a route. `layout` is how a packet is laid out: history as messages, or blocks of entries.
    """

    model: str = ""
    temperature: float | None = None
    context_limit: int | None = None
    persona: str = ""
    approval: Approval = "review"
    layout: Literal["chat", "entries"] = "chat"
    no_repo: bool = False
    no_web: bool = False
    no_interaction: bool = False
    no_proposals: bool = False
    is_yolo: bool = False


Marked = tuple[tuple[str, str], ...]  # the taint marks that a text carries: the origin and the source of each


class Inbound(Struct, frozen=True):
    """What a channel hands in. `message_id` is the channel's own id: the same one is accepted once.

    `is_injected`: while an answer is being given in its thread, it is shown to the model at its next call. `own_chars` is
    how much of the text the person typed where a document follows; None for all of it, -1 where nobody typed any of it.
    `marks` are those of untrusted texts that it was made of. `context` is the group that it is for, "" for the sender's own;
    `shared_session` that in which all linked addresses of a person talk.
    """

    channel: str
    sender_id: str
    text: str
    message_id: str
    at_ms: int
    thread: str = ""
    kind: Literal["chat", "ask"] = "chat"
    metadata: dict[str, Any] = {}
    mode: Mode = "act"
    alias: str = ""  # of a thread that begins with it
    settings: RunSettings | None = None
    is_injected: bool = False
    own_chars: int | None = None
    marks: Marked = ()
    context: str = ""
    shared_session: str = ""
    images: tuple[Mapping[str, Any], ...] = ()  # name, mime and size_bytes of uploads that are pictures

    @property
    def session(self) -> str:
        """The session this message belongs to: `{channel}:{sender_id}` (S-006), that of a group or of linked addresses if given."""
        if self.context.startswith("group:"):
            return f"{self.channel}:{self.context}"
        return self.shared_session or f"{self.channel}:{self.sender_id}"


class Outbound(Struct, frozen=True):
    """What a channel is asked to deliver: `key` names the letter for ever, `run` the thread it belongs to, if any.

    `metadata` holds what the session's last message brought for the way back, then what the letter adds. `marks` are those
    of untrusted texts that it was made of: whoever puts it into a thread marks that. `shown` is the channel's name of a message
    that has shown the beginning of this text while it was written, "" for none. `attachment` is a file in the folder of the session
    `files_of`, where that is another one than its own.
    """

    session: str
    text: str
    attachment: str | None = None
    metadata: dict[str, Any] = {}
    key: str = ""
    person: str = ""
    run: str = ""
    correlation: str = ""
    marks: Marked = ()
    shown: str = ""
    files_of: str = ""


class Event(Struct, frozen=True):
    """The finest record of a run: appended once, never changed, gap-free `seq` from 1 per run.

    `input["marks"]` are the marks of untrusted texts that it was made of; appending it marks the run.
    """

    run: str
    kind: str
    role: str
    content: str
    seq: int = 0
    id: int = 0
    parent: int | None = None
    turn: int | None = None
    tool: str = ""
    input: dict[str, Any] | None = None
    call_id: str = ""
    duration_ms: int | None = None
    tokens: int | None = None
    at_ms: int = 0
    channel: str = ""
    sender_id: str = ""
    correlation: str = ""
    status: int = 200
    outcome: str = "ok"


class Outcome(Struct, frozen=True):
    """The outcome of a tool call: an HTTP-like status, a short label, text, and a hint for the next step.

    `origin` says where the text came from when strangers wrote it, such as "web": information, never an order; `source`
    which page, mail or tool exactly. `duration_ms` is how long the call took, None for one that was never made.
    """

    status: int
    outcome: str
    message: str
    hint: str = ""
    data: Any = None
    origin: str = ""
    duration_ms: int | None = None
    source: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether both say the same; how long the calls took makes no difference."""
        return isinstance(other, Outcome) and self._said() == other._said()

    def __hash__(self) -> int:
        return hash(self._said())

    def _said(self) -> tuple[Any, ...]:
        return (self.status, self.outcome, self.message, self.hint, self.data, self.origin, self.source)

    @property
    def made(self) -> str:
        """What the call made or changed: the number, the id or the path of its data, or of the schedule there."""
        given = self.data if isinstance(self.data, dict) and not self.is_error else {}
        thing = given["schedule"] if isinstance(given.get("schedule"), dict) else given
        return str(thing.get("id") or thing.get("path") or "")

    @property
    def beside(self) -> dict[str, Any] | None:
        """What the event of a result keeps beside its text."""
        return {**(self.provenance or {}), **({"made": self.made} if self.made else {})} or None

    @property
    def provenance(self) -> dict[str, Any] | None:
        """What the event of a result says of where its text came from; None for one of our own."""
        return {"origin": self.origin} | ({"source": self.source} if self.source else {}) if self.origin else None

    @property
    def is_error(self) -> bool:
        """True for status 400 and above."""
        return self.status >= 400


# -- what a loop may do -------------------------------------------------------------------------


class Terms(Struct, frozen=True):
    """What a loop may do. `is_attended`: a person can be asked; otherwise nothing ever waits for one.

    `role` is as whom it works, for rules about roles; "" for calls outside of any loop. `tools` are those it has, by name
    or group (None: all), `sandbox` the widest sandbox these may ask for ("": any). A child is a run that another one
    started, and starts none.
    """

    mode: Mode = "act"
    approval: Literal["review", "auto"] = "review"
    layout: Literal["chat", "entries"] = "chat"
    has_repo: bool = True
    has_web: bool = True
    has_interaction: bool = True
    has_proposals: bool = True
    is_attended: bool = True
    role: str = ""
    tools: tuple[str, ...] | None = None
    sandbox: str = ""
    is_child: bool = False
    is_planned: bool = False  # the program does what its person asked for in so many words: no model wrote the call
    approved: Mapping[str, str] = {}  # files that a command may run with, by name: their hashes

    @property
    def bars_files(self) -> str:
        """The reason why no file may be changed; "" when a change can at least be proposed."""
        if self.mode == "ask":
            return "this question is answered without changing files"
        if self.approval == "auto":
            return ""
        if not self.has_proposals:
            return "this run proposes nothing"
        return "" if self.is_attended else "it needs approval, and nobody is here to give it"


# -- models ---------------------------------------------------------------------------------------


class Part(Struct, frozen=True):
    """A named piece of system text, so that its size can be reported by name."""

    name: str
    text: str


class ToolSpec(Struct, frozen=True):
    """What a model is told about a tool, with the JSON schema of its arguments.

    `is_beside`: calls of it that stand next to each other run side by side, although they may change something. `is_once`: the
    same call a second time in one loop gets the first one's result, because it would only do the same again.
    """

    name: str
    description: str
    schema: dict[str, Any]
    group: str = ""
    is_read_only: bool = False
    is_terminal: bool = False
    is_beside: bool = False
    is_once: bool = False


class Route(Struct, frozen=True):
    """One way to reach a model: its context window in tokens and the dialect of its tool calls.

    `max_tokens` is its longest answer, 0 where the asker decides. `is_remote`: it is asked over a network.
    """

    name: str
    provider: str
    model: str
    window: int
    dialect: Dialect
    max_tokens: int = 0
    is_remote: bool = False


class Ask(Struct, frozen=True):
    """One request to a model. `system` is joined by the broker, byte for byte, with "\\n\\n".

    `slot` names the conversation whose evaluated prefix may be reused, `person` whose turn it is when
    several wait. `must_call` asks for a tool call and nothing else, where the route can hold a model to it.
    `is_retry`: the same was asked here before and failed, which counts once. `repeat_penalty` (1.1 is usual, 0 leaves it to the
    provider) makes a local model less likely to say again what it just said. `is_measured` asks for `Finish.sureness`.
    `may_think`: a local model whose template can switch thoughts off is let; they take at most half of `max_tokens`.
    `purpose` tells a turn from side work such as titles (`providers/scripted` consumes turns only for "turn" and "bench") and from
    measurements ("bench": what the local model reads for one is not kept on disk).
    """

    system: tuple[Part, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    dialect: Dialect = "grammar"
    slot: str = ""
    purpose: str = "turn"
    is_background: bool = False
    temperature: float = 0.1
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    deadline_s: float = 600.0
    correlation: str = ""
    person: str = ""
    must_call: bool = False
    is_retry: bool = False
    repeat_penalty: float = 0.0
    is_measured: bool = False
    may_think: bool = False


class Piece(Struct, frozen=True):
    """Text as it is generated; `is_reasoning` for thoughts that are not part of the answer.

    With `tool` there is no text: a call of that tool has begun, whose arguments are being generated.
    """

    text: str
    is_reasoning: bool = False
    tool: str = ""


class Finish(Struct, frozen=True):
    """The end of a generation: native tool calls, reasoning, who answered, and what it cost.

        `evaluated_tokens` counts the prompt tokens that were computed, not those found in the cache: prompt less `cached_tokens`.
        `cache_write_tokens` is the part of them that a provider kept for the next time, `reasoning_tokens` the part of the
    output that was thought. `is_estimated`: nobody counted, the numbers come from the length of the texts.
        `sureness` is the probability of the token of the answer that the model was least sure of; 0 where nobody knows.
    """

    reason: Literal["stop", "length", "tool_calls", "repetition", "filtered"]
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    provider: str = ""
    model: str = ""
    prompt_tokens: int = 0
    evaluated_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    is_estimated: bool = False
    cost_micros: int | None = 0
    sureness: float = 0.0


class Measure(Struct, frozen=True):
    """Prompt size as the broker counted it, in tokens: per named part, and the whole rendered prompt."""

    model: str
    parts: dict[str, int]
    total: int


# -- the steps of a turn ----------------------------------------------------------------------------


class TurnBegun(Struct, frozen=True):
    """The agent is about to call the model over this route."""

    seq: int
    route: str


class TurnEnded(Struct, frozen=True):
    """The model has answered; what it cost is in `finish`."""

    seq: int
    finish: Finish


class LoopEnded(Struct, frozen=True):
    """The verdict: status 200 done, 499 stopped, 500 failed, with a short outcome label."""

    status: int
    outcome: str
    message: str = ""


class Delta(Struct, frozen=True):
    """Text of an answer as it streams: shown, never stored; the whole text follows as an Event."""

    text: str


class Thinking(Struct, frozen=True):
    """Thoughts before an answer as they stream: shown, never stored; all of them follow as an Event."""

    text: str


class CallPreparing(Struct, frozen=True):
    """The arguments of a call are being generated: shown, never stored; the call follows as an Event."""

    tool: str


Step = Delta | Thinking | CallPreparing | Event | TurnBegun | TurnEnded | LoopEnded


# -- ports (S-002): model, channel, tool, memory, skills, status -----------------------------------


class Cancel(Protocol):
    """A stop sign shared by the one who stops and the one who works (threading.Event fits)."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Pause(Protocol):
    """A turn on the CPU: `rest` lets more urgent work go first, `is_wanted` says that some waits."""

    is_wanted: bool
    rested_s: float

    def rest(self) -> None: ...


class Model(Protocol):
    """Model port: the open routes of a pool; text pieces, then exactly one Finish (S-003); sizes."""

    def plan(self, pool: str) -> Sequence[Route]: ...
    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]: ...
    def measure(self, route: Route, ask: Ask) -> Measure: ...


class Channel(Protocol):
    """Channel port: delivers a text to a person; when it returns, it is delivered.

    An error of our tree says that it was not, but Lost and DeadlineExceeded, after which nobody knows: then, and
    when we die meanwhile, it comes again with a mark. BadInput, NotFound, Refused and TooLarge are final, Busy
    costs no attempt. `is_idempotent`: it knows letters by their key and delivers each once, however often it comes.
    """

    @property
    def is_idempotent(self) -> bool: ...
    def deliver(self, message: Outbound) -> None: ...


class ToolPort(Protocol):
    """Tool port: what may be called, and the one way to call it. `dispatch` never raises."""

    def specs(self, role: str = "chat", only: tuple[str, ...] | None = None) -> Sequence[ToolSpec]: ...
    def spec(self, name: str) -> ToolSpec | None: ...
    def allowed(self, only: tuple[str, ...] | None) -> tuple[str, ...]: ...
    def meant(self, call: ToolCall) -> ToolCall: ...
    def dispatch(
        self, call: ToolCall, run: str, cancel: Cancel, session: str = "", *, terms: Terms = Terms(), log: str = ""
    ) -> Outcome: ...

    def is_read_only(self, name: str) -> bool: ...


class Memory(Protocol):
    """Memory port: earlier messages of a run, oldest first, at most `limit` of the newest."""

    def recent(self, run: str, limit: int) -> Sequence[Message]: ...


class Skills(Protocol):
    """Skills port: one line per available skill, in a stable order."""

    def lines(self) -> Sequence[str]: ...


class Status(Protocol):
    """Status port: told while the owl is thinking or acting, so that a door can show it."""

    def show(self, session: str, state: str) -> None: ...


Notify = Callable[[str, Mapping[str, Any]], None]
