"""A model's text becomes commands: never raises, never drops silently, never shows raw JSON to a person.

First form: the provider's own tool calls, and JSON calls written as text (alone, in a fence, or after a
`<tool_call>` tag). Text inside backticks or in the middle of a sentence is never a call.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from appliance.records import ToolCall

FENCE = re.compile(r"^```(?:json|tool_call|tool_code)?[ \t]*\n(.*?)\n?```$", re.DOTALL)
TAG = re.compile(r"^<tool_call>(.*?)(?:</tool_call>)?$", re.DOTALL)
# Broken JSON that was meant as a call: it begins like one, or has both words of one.
BROKEN = re.compile(r'\{\s*"name"\s*:|(?=.*"name")(?=.*"(?:arguments|parameters)")', re.DOTALL)
UNREADABLE = "a tool call could not be read"


@dataclass(frozen=True)
class Answer:
    """What a model said and what it wants done; `warnings` name everything that was left out."""

    text: str
    calls: tuple[ToolCall, ...]
    warnings: tuple[str, ...] = ()


def read(text: str, calls: Sequence[ToolCall], tools: Collection[str]) -> Answer:
    """Commands of an answer. `calls` are the provider's own; without any, the text may itself be one call."""
    bare = _whole(text).strip()
    calls = [replace(c, arguments=_whole_arguments(c.arguments)) for c in calls]
    written, problem = _written(bare)
    is_prose = written is None and not problem
    if calls:
        return Answer(bare if is_prose else "", tuple(calls), () if is_prose else ("a tool call was also written as text",))
    if written is None:
        return Answer("", (), (problem,)) if problem else Answer(bare, ())
    if written.name not in tools:
        return Answer("", (), (f"unknown tool {written.name}",))
    return Answer("", (written,), ("a tool call was written as text",))


def _written(bare: str) -> tuple[ToolCall | None, str]:
    """The call that a text is, or what is wrong with it; neither for prose."""
    match = FENCE.match(bare) or TAG.match(bare)
    inner = match.group(1).strip() if match else bare
    if not inner.startswith("{"):
        return None, ""
    try:
        value = json.loads(inner)
    except (ValueError, RecursionError):
        return None, UNREADABLE if BROKEN.match(inner) else ""
    if not isinstance(value.get("name"), str) or not {"arguments", "parameters"} & set(value):
        return None, ""
    arguments = value.get("arguments", value.get("parameters"))
    if not isinstance(arguments, dict):
        return None, UNREADABLE
    return ToolCall("call_1", value["name"], _whole_arguments(arguments)), ""


def _whole(text: str) -> str:
    """Text that can be stored and sent: half a surrogate, which a model can escape its way to, becomes "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _whole_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_whole(json.dumps(arguments, ensure_ascii=False)))
    return found
