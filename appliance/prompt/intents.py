"""What a prompt asks for in so many words, such as "add a task to water the roses": the tool, and the person's own words for it.

For models that are too small to see it: they are held to that one call, and what it says is not theirs to make up. Knows
English, and forms without a language such as "todo: water the roses". Pure; in doubt a prompt asks for nothing.
"""

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from appliance.records import ToolSpec

MAX_NAME = 100
POLITE = r"\s*(?:(?:please|now|ok|okay|hey|hi|hello|owl|owlbox)[,!]?\s+)*(?:(?:can|could|would|will)\s+you\s+(?:please\s+)?)?"
THING = r"(?:task|to-?do)(?:\s+item)?"
PLACE = r"(?:\s+(?:for me|(?:to|on|in|for)\s+(?:my|the|your|our)\s+(?:list|queue|tasks|to-?do list|task list)))?"
TASK = re.compile(
    rf"{POLITE}(?:(?:add|create|make|put|queue|start|set up)\s+(?:me\s+|us\s+)?(?:an?\s+|one\s+|another\s+)?"
    rf"(?:new\s+)?{THING}{PLACE}"
    rf"\s*(?::|,|to\b|for\b|called\b|named\b|that says\b)|(?:new\s+)?{THING}\s*:)\s*(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
KEEP = re.compile(
    rf"{POLITE}(?:remember|keep in mind|don['’]t forget|do not forget)\s*(?::|,?\s+that\b)\s*(?P<text>\S[^\n?]*)\s*\Z",
    re.IGNORECASE,
)
TIMED = r"(?:at|in|on|by|every|each|next|this|tomorrow|tonight|today|noon|midnight|daily|weekly|hourly|\d)"
AT = r"(?:at|in|on|every|tomorrow|tonight|next)"
REMIND = re.compile(
    rf"{POLITE}(?P<text>(?:remind me\b\s*[,:]?\s*(?!what|who|when|where|how|why|which)(?=.*\b{TIMED}\b)\S[^\n?]*"
    rf"|{TIMED}\b[^\n?]*?,?\s+remind me\b[^\n?]*"
    rf"|wake me(?: up)?\s+{AT}\b[^\n?]*|(?:tell|ping|nudge|alert) me\s+to\b(?=.*\b{TIMED}\b)[^\n?]*"
    rf"|(?:tell|ping|nudge|alert) me\s+{AT}\b[^\n?]*?\s+to\b[^\n?]*|(?:ping|nudge|alert) me\s+in\s[^\n?]*"
    rf"|set\s+(?:me\s+)?(?:an?|the)\s+(?:alarm|timer|reminder)\b(?=.*(?:\d|\b{TIMED}\b))[^\n?]*))[\s?]*\Z",
    re.IGNORECASE,
)
QUOTES = "\"'“”‘’«»"


@dataclass(frozen=True)
class Cue:
    """A call that a prompt asks for."""

    tool: str
    arguments: dict[str, Any]


def plain(prompt: str) -> Cue | None:
    """The call that a prompt asks for in so many words; None where it asks for anything else, or asks something."""
    if prompt.rstrip().endswith("?") and not re.match(r"\s*(?:can|could|would|will)\s+you\b", prompt, re.IGNORECASE):
        return None
    makers: tuple[tuple[re.Pattern[str], Callable[[str], Cue]], ...] = ((TASK, _task), (KEEP, _keep), (REMIND, _remind))
    for pattern, make in makers:
        if found := pattern.match(prompt):
            return make(found["text"].strip())
    return None


def narrowed(spec: ToolSpec, arguments: dict[str, Any]) -> ToolSpec:
    """A tool as a grammar holds a model to exactly these arguments."""
    fields = {name: {"const": value} for name, value in arguments.items()}
    return replace(spec, schema={"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False})


def _task(text: str) -> Cue:
    whole = " ".join(text.rstrip(" .!?\n").split()).strip(QUOTES)
    name = textwrap.shorten(whole, MAX_NAME, placeholder=" …") if " " in whole[:MAX_NAME] else whole[:MAX_NAME]
    return Cue("create_task", {"name": name} if name == whole and "\n" not in text else {"name": name, "description": text})


def _remind(text: str) -> Cue:
    return Cue("remind", {"text": text.rstrip(" .!?")})


def _keep(text: str) -> Cue:
    return Cue("remember", {"text": text})
