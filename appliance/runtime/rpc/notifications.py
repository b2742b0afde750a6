"""Every notification that a method sends before its result, as a record: its fields are the parameters on the wire.

`discover` and the reference are made from these. Whoever sends one writes its parameters as a dictionary; tests hold what is
sent against these records.
"""

from typing import Any

import msgspec
from msgspec import Struct

from appliance.records import Event


class AcceptedNote(Struct):
    """The message is committed."""

    run: str
    loop: int
    seq: int
    is_new: bool
    alias: str = ""


class DeltaNote(Struct):
    """A piece of the answer's text, in order."""

    text: str


class ThinkingNote(Struct):
    """A piece of the thoughts before an answer, in order; not part of the answer."""

    text: str


class PreparingNote(Struct):
    """A call of a tool has begun, whose arguments are still being generated."""

    tool: str


class ProposalNote(Struct):
    """A call waits for a decision; what the tool was called with stands beside these."""

    run: str
    text: str
    refs: list[str] = []


class ResolvedNote(Struct):
    """A decision was stored, before the answer goes on."""

    run: str
    ref: str
    outcome: dict[str, Any]
    status: int
    loop: int = 0


class StateNote(Struct):
    """How a run stands: after each command (status 102, without telemetry), after each turn, and at its end."""

    run: str
    alias: str
    turn: int
    status: int
    outcome: str
    summary: str
    history: list[dict[str, Any]]
    unknowns: list[dict[str, Any]]
    telemetry: dict[str, Any] | None


class ThreadChanged(Struct):
    """How a thread stands: first, and when one of these has changed."""

    id: str
    status: int
    outcome: str
    last_seq: int
    title: str
    alias: str = ""
    role: str = ""


class NoticeNote(Struct):
    """A notification arrived for the caller."""

    person: str
    text: str
    run: str
    seq: int
    at_ms: int
    key: str


class Published(Struct):
    """Another client of the same person or group published something; it is not stored."""

    name: str
    data: dict[str, Any]
    client: str
    at_ms: int


class StreamCancelled(Struct):
    """A command that ran was stopped by the core or by a person."""

    run: str
    path: str
    reason: str


class LineNote(Struct):
    """A line of an exported session; parts of a long line have `is_end` false."""

    text: str
    is_end: bool


class ProgressNote(Struct):
    """A measurement goes on."""

    step: str
    done: int
    steps: int


class PieceNote(Struct):
    """Of the broker: a piece of the text is generated."""

    id: str
    text: str
    is_reasoning: bool
    tool: str = ""


NOTIFICATIONS: dict[str, type[Struct]] = {
    "accepted": AcceptedNote,
    "delta": DeltaNote,
    "thinking": ThinkingNote,
    "preparing": PreparingNote,
    "event": Event,
    "proposal": ProposalNote,
    "resolved": ResolvedNote,
    "state": StateNote,
    "thread": ThreadChanged,
    "notice": NoticeNote,
    "published": Published,
    "stream.cancelled": StreamCancelled,
    "line": LineNote,
    "progress": ProgressNote,
    "piece": PieceNote,
}


def describe_notifications() -> dict[str, Any]:
    """Every notification by name: when it is sent, and the schema of its parameters."""
    parts, definitions = msgspec.json.schema_components(list(NOTIFICATIONS.values()), ref_template="#/{name}")
    del parts
    found = {}
    for name, kind in NOTIFICATIONS.items():
        schema = definitions[kind.__name__]
        doc = "An event was stored." if kind is Event else " ".join((kind.__doc__ or "").split())
        found[name] = {"doc": doc, "params": {key: value for key, value in schema.items() if key not in ("title", "description")}}
    return found
