"""A model's text becomes commands: never raises, never drops silently, never shows raw JSON to a person.

First form: the provider's own tool calls, and JSON calls written as text (alone, in a fence, or after a
`<tool_call>` tag). Text inside backticks or in the middle of a sentence is never a call.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.records import ToolCall

FENCE = re.compile(r"^```(?:json|tool_call|tool_code)?[ \t]*\n(.*?)\n?```$", re.DOTALL)
TAG = re.compile(r"^<tool_call>\s*(.*?)\s*(?:</tool_call>)?$", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """What a model said and what it wants done; `warnings` name everything that was left out."""

    text: str
    calls: tuple[ToolCall, ...]
    warnings: tuple[str, ...] = ()


def read(text: str, calls: Sequence[ToolCall], tools: Collection[str]) -> Answer:
    """Commands of an answer. `calls` are the provider's own; without any, the text may itself be one call."""
    if calls:
        return Answer(text.strip(), tuple(calls))
    bare = text.strip()
    match = FENCE.match(bare) or TAG.match(bare)
    inner = match.group(1).strip() if match else bare
    if not inner.startswith("{"):
        return Answer(bare, ())
    try:
        value = json.loads(inner)
    except (ValueError, RecursionError):
        looks_like_call = '"name"' in inner and '"arguments"' in inner
        return Answer("", (), ("a tool call could not be read",)) if looks_like_call else Answer(bare, ())
    call = _call(value)
    if call is None:
        return Answer(bare, ())
    if call.name not in tools:
        return Answer("", (), (f"unknown tool {call.name}",))
    return Answer("", (call,), ("a tool call was written as text",))


def _call(value: Any) -> ToolCall | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    return ToolCall("call_1", value["name"], arguments) if isinstance(arguments, dict) else None
