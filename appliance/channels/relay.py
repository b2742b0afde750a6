"""What happens in a loop, handed on to a caller as it happens, in pieces that fit into a frame.

For every door that lets somebody listen. Notifications: `delta` for text, `event` for every stored event, `proposal`
for what waits for a decision. Knows nothing about sockets; a caller who is gone is told by what `notify` raises.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from appliance.agent.loop_events import Shown
from appliance.records import Delta, Event, LoopEnded, to_plain
from appliance.sessions.runs import PROPOSED

# An event leaves room in a frame of 4 MiB: a character takes up to 6 bytes, escaped.
MAX_CHARS = 100_000
LEFT = LoopEnded(100, "waiting", "the answer goes on without this listener")

Notify = Callable[[str, dict[str, Any]], None]


def relay(items: Iterable[Shown], notify: Notify, *, is_through: bool = False) -> LoopEnded:
    """Tell a caller everything about a loop until it ends, or waits for a decision; with `is_through` also beyond that."""
    end = LEFT
    for item in items:
        if isinstance(item, Delta):
            for start in range(0, len(item.text), MAX_CHARS):  # a slow listener gets them joined
                notify("delta", {"text": item.text[start : start + MAX_CHARS]})
        elif isinstance(item, LoopEnded):
            end = item
            if not (is_through and item.status == PROPOSED):
                break
        else:
            notify("event", fit(item)[0])
            if item.kind == "proposal":
                notify("proposal", {"run": item.run, "text": item.content, **(item.input or {})})
    return end


def fit(event: Event) -> tuple[dict[str, Any], int]:
    """An event ready to be sent, and its size in characters; what is too long is cut and says so."""
    plain: dict[str, Any] = to_plain(event)
    given = json.dumps(event.input, ensure_ascii=False) if event.input else ""
    if len(given) > MAX_CHARS:
        plain["input"] = {"cut": f"{len(given)} characters are too many to show"}
        given = ""
    size = len(event.content)
    if size > MAX_CHARS:
        plain["content"] = f"{event.content[:MAX_CHARS]}\n[cut: {MAX_CHARS} of {size} characters shown]"
    return plain, min(size, MAX_CHARS) + len(given) + 500
