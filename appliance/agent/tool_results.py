"""What a tool returns: data for programs and the text that a model reads, of a bounded length, errors in one shape.

Pure. Knows nothing about tools; `agent.toolbox` calls it once for each result.
"""

import json
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from appliance.records import Outcome

MAX_CHARS = 10_000  # of one result, with what says that there is more


T = TypeVar("T")


class Reply(NamedTuple, Generic[T]):
    """A result whose text is not its data. `T` is published as the schema of the result: a TypedDict or a record."""

    data: T
    text: str


def outcome_of(value: Any) -> Outcome:
    """A tool's return value as an outcome: text as it is, a reply with its own, anything else as JSON."""
    if isinstance(value, Outcome):
        return value
    if isinstance(value, str):
        return Outcome(200, "ok", value)
    data = msgspec.to_builtins(value.data if isinstance(value, Reply) else value)
    return Outcome(200, "ok", value.text if isinstance(value, Reply) else json.dumps(data, ensure_ascii=False), data=data)


def cut(text: str, limit: int = MAX_CHARS) -> str:
    """The text within so many characters: cut at the end of a line where there is one late enough, and saying so."""
    if len(text) <= limit:
        return text
    room = limit - 80  # what the note may take
    end = text.rfind("\n", room // 2, room)
    shown = text[: end if end > 0 else room]
    return f"{shown}\n[cut: {len(shown)} of {len(text)} characters shown; ask for less]"


def as_text(outcome: Outcome) -> str:
    """An outcome as the model reads it: errors have the shape of B-062."""
    if not outcome.is_error:
        return outcome.message
    shape = {"is_error": True, "error_type": outcome.outcome, "message": outcome.message, "next_action_hint": outcome.hint}
    return json.dumps(shape, ensure_ascii=False)
