"""An answer of a remote model while it comes: what the formats share once their words are told apart.

A format tells a draft what was said, thought, called and counted; the draft hands on pieces and makes the Finish.
Thoughts that a server leaves in the text (<think>) come apart from it. Thoughts are kept only where they were asked for.
A call whose arguments are no JSON is handed on as text, in the form that `text.answer_parser` mends or reports. Knows no format.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from appliance.clock import new_id
from appliance.errors import ProviderError
from appliance.providers.conversation import ToolNames
from appliance.providers.error_mapping import clean
from appliance.providers.remote_settings import Remote
from appliance.providers.token_stream import Mask, StreamedAnswer
from appliance.records import Ask, Finish, Piece, ToolCall

MAX_CALLS = 128
MAX_ARGUMENTS_CHARS = 4_000_000
MENDED = "<|tool_call>call:{}{}<tool_call|>"

Reason = Literal["stop", "length", "tool_calls"]


@dataclass
class AnswerUsage:
    """What an answer cost, as far as the provider says: -1 is not known. `prompt` counts all of it, cached or not."""

    prompt: int = -1
    output: int = -1
    cached: int = 0
    written: int = 0
    reasoning: int = 0


@dataclass
class StartedCall:
    """A call as it grows; `mark` is what the provider wants to see again beside it."""

    id: str = ""
    name: str = ""
    text: str = ""
    mark: str = ""


class AnswerDraft:
    """One answer as it grows."""

    def __init__(self, remote: Remote, ask: Ask, names: ToolNames, *, may_be_thinking: bool = False) -> None:
        self._remote = remote
        self._names = names
        self._answer = StreamedAnswer(ask.stop, may_call=False, may_be_thinking=may_be_thinking)
        self._pieces: list[Piece] = []
        self._said_chars = 0
        self._thoughts: list[str] = []
        self._calls: dict[Any, StartedCall] = {}
        self.reason: Reason | None = None  # why the provider ended it; None until it says so
        self.model = ""
        self.usage = AnswerUsage()
        self.is_over = False  # nothing more is worth waiting for
        self.is_refused = False
        self.hidden: tuple[str, ...] = ()  # what no message may show: keys
        self._mask = self._thought_mask = Mask(())
        self.kept: dict[str, Any] = {}  # of one answer: what a format must remember between events

    @property
    def has_thought_unmarked(self) -> bool | None:
        """Whether the model has ended thoughts that it never opened; None where the finished answer does not tell."""
        return self._answer.has_thought_unmarked

    # -- what a format tells ---------------------------------------------------------------------------

    def hide(self, secrets: Sequence[str]) -> None:
        """Show none of these in what follows, also where one comes in pieces."""
        self._mask, self._thought_mask = Mask(secrets), Mask(secrets)

    def say(self, text: Any) -> None:
        """Words of the answer."""
        if isinstance(text, str) and text:
            self._show_text(self._answer.feed(text.encode("utf-8", "replace")))
            if self._answer.is_stopped:
                self.reason, self.is_over = "stop", True

    def think(self, text: Any) -> None:
        """Words of its thoughts."""
        if isinstance(text, str) and text:
            self._answer.expect_answer()
            if self._remote.has_reasoning:
                self._append_thought(self._thought_mask.feed(text))

    def call(self, place: Any, *, id: Any = None, name: Any = None, text: Any = None, mark: Any = None) -> StartedCall:
        """A part of the call at a place; parts of one place belong together."""
        begun = self._calls.get(place)
        if begun is None:
            if len(self._calls) >= MAX_CALLS:
                raise ProviderError(f"{self._remote.provider} sent more than {MAX_CALLS} calls", outcome="invalid_response")
            begun = self._calls[place] = StartedCall()
        if isinstance(id, str) and id and not begun.id:
            begun.id = id
        if isinstance(name, str) and name and not begun.name:
            begun.name = name
            self._pieces.append(Piece("", tool=self._mask.clean(self._names.ours(name))))
        if isinstance(text, str):
            if len(begun.text) + len(text) > MAX_ARGUMENTS_CHARS:
                raise ProviderError(f"{self._remote.provider} sent a call without an end", outcome="invalid_response")
            begun.text += text
        if isinstance(mark, str) and mark:
            begun.mark = mark
        return begun

    def count(self, **numbers: Any) -> None:
        """Numbers of the usage by name; anything but a whole number is no number."""
        for name, value in numbers.items():
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                setattr(self.usage, name, value)

    def mark(self, mark: str) -> None:
        """Keep the data that the provider wants back beside the calls of this answer."""
        for begun in self._calls.values():
            begun.mark = mark

    def end(self, reason: Reason) -> None:
        """The reason why the provider ended the answer."""
        self.reason = reason

    # -- what comes of it ------------------------------------------------------------------------------

    def take(self) -> list[Piece]:
        """The pieces that came since this was last asked."""
        found, self._pieces = self._pieces, []
        return found

    @property
    def is_stopped(self) -> bool:
        """True when one of the stop texts came, which the provider did not know or heed."""
        return self._answer.is_stopped

    @property
    def has_output(self) -> bool:
        """True when anything was said, thought or called."""
        return bool(self._said_chars or self._thoughts or self._calls or self._pieces)

    def finish(self, prompt: Callable[[], int], of_chars: Callable[[int], int], marked: Callable[[str, str], None]) -> Finish:
        """The end; its last pieces are in `take`. `marked` is told the id and mark of each call that has one.

        `prompt` and `of_chars` estimate tokens where the provider did not count them.
        """
        if self.reason is None:
            raise ProviderError(
                f"{self._remote.provider} ({self._remote.model}): the answer ended in the middle",
                outcome="stream_error",
                kind="network",
            )
        self._show_text(self._answer.finish(is_cut=self.reason == "length"))
        self._append_thought(self._thought_mask.finish())
        self._append_spoken(self._mask.finish())
        if self.is_refused and not self.has_output:
            raise ProviderError(
                f"{self._remote.provider} ({self._remote.model}) declined to answer this",
                hint="ask in other words, or ask another model",
                outcome="invalid_request",
            )
        calls = self._build_calls(marked)
        usage, chars = self.usage, self._said_chars + sum(map(len, self._thoughts)) + sum(len(c.text) for c in self._calls.values())
        total = usage.prompt if usage.prompt >= 0 else prompt()
        return Finish(
            reason="filtered"
            if self.is_refused
            else "tool_calls"
            if calls
            else "stop"
            if self.reason == "tool_calls"
            else self.reason,
            tool_calls=calls,
            reasoning="".join(self._thoughts),
            provider=self._remote.provider,
            model=self._mask.clean(self.model) or self._remote.model,
            prompt_tokens=total,
            evaluated_tokens=max(0, total - usage.cached),
            output_tokens=usage.output if usage.output >= 0 else of_chars(chars),
            cached_tokens=min(usage.cached, total),
            cache_write_tokens=usage.written,
            reasoning_tokens=usage.reasoning,
            is_estimated=usage.prompt < 0 or usage.output < 0,
        )

    def _show_text(self, text: str) -> None:
        self.think(self._answer.thoughts())
        self._append_spoken(self._mask.feed(text))

    def _append_spoken(self, text: str) -> None:
        if text:
            self._said_chars += len(text)
            self._pieces.append(Piece(text))

    def _append_thought(self, text: str) -> None:
        if text:
            self._thoughts.append(text)
            self._pieces.append(Piece(text, is_reasoning=True))

    def _build_calls(self, marked: Callable[[str, str], None]) -> tuple[ToolCall, ...]:
        """The calls; with one that cannot be read, all of them become text. What was cut off is dropped."""
        begun = [call for call in self._calls.values() if call.name]
        read = [_parse_arguments(call.text) for call in begun]
        if self.reason == "length" and read and read[-1] is None:
            begun, read = begun[:-1], read[:-1]
        if any(arguments is None for arguments in read):
            for call in begun:
                self._append_spoken(self._mask.clean(MENDED.format(self._names.ours(call.name), call.text.strip() or "{}")))
            return ()
        found: list[ToolCall] = []
        for call, arguments in zip(begun, read):
            id = call.id if call.id and all(call.id != other.id for other in found) else f"call_{new_id()[-24:].replace('-', '')}"
            if call.mark:
                marked(id, call.mark)
            name, arguments = self._mask.clean(self._names.ours(call.name)), self._mask.clean_all(arguments or {})
            found.append(ToolCall(self._mask.clean(id), name, arguments))
        return tuple(found)


def parsed(text: str, who: str, hidden: Sequence[str] = ()) -> dict[str, Any]:
    """The object that an event holds; ProviderError invalid_response for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        shown = clean(" ".join(text[:2000].split()), hidden)[:80]
        raise ProviderError(f"{who} sent something that is not a JSON object: {shown}", outcome="invalid_response")
    return value


def at(value: Any, *path: str | int) -> Any:
    """The value at a path of names and indexes, None where there is none."""
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def items(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, nothing when it is none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def number(value: Any) -> int:
    """A positive whole number, 0 for anything else."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _parse_arguments(text: str) -> dict[str, Any] | None:
    """Arguments as they were written; None when that is no JSON object. None at all are none."""
    for _ in range(2):  # some servers encode them twice
        if not text.strip():
            return {}
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, str):
            break
        text = value
    if value is None:
        return {}
    return value if isinstance(value, dict) else None
