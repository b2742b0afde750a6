"""What a model is told beside each message of a person: when it was said, and once for whom, where and on what it runs.

Times are those of the messages, in the box's zone, so that a conversation stays the same to the byte from turn to turn and what
was evaluated of it is used again. Nothing of this is stored. Tiny and small models are told none of it.
"""

import platform
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from appliance.language.times import timezones
from appliance.records import Message
from appliance.text.fences import quoted


def dated(messages: Sequence[Message], person: str, folder: str, zone: str) -> list[Message]:
    """The messages, those of a person with a line before them; the first of these says more."""
    about = [f"on {platform.system()}", *([f"notes in {folder}"] if folder else []), *([f"for {quoted(person)}"] if person else [])]
    found: list[Message] = []
    for message in messages:
        if message.role == "user" and message.at_ms:
            line = ", ".join([tell_time(message.at_ms, zone), *about])
            message, about = replace(message, content=f"[{line}]\n{message.content}"), []
        found.append(message)
    return found


def tell_time(at_ms: int, zone: str) -> str:
    """A moment with its day and its zone: Friday 2026-03-06 09:00 Europe/Berlin."""
    at = datetime.fromtimestamp(at_ms / 1000, timezones.find(zone))
    name = zone if zone != timezones.LOCAL else getattr(at.tzinfo, "key", None)
    return f"{at:%A %Y-%m-%d %H:%M} {name or f'{at:%z}'}"
