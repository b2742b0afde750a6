"""What a tool returns, as the text a model reads: rendered, cut to a bounded length, errors in one shape.

Pure. Knows nothing about tools; `agent.toolbox` calls it once for each result.
"""

import json
from typing import Any

import msgspec

from appliance.records import Outcome

MAX_CHARS = 10_000  # of one result, with what says that there is more


def render(value: Any) -> str:
    """A tool's return value as the text a model reads: text as it is, a result's own `text()`, else JSON."""
    if isinstance(value, str):
        return value
    if callable(text := getattr(value, "text", None)):
        return str(text())
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


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
