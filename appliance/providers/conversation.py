"""A request in the order that every provider accepts: two sides that take turns, each call followed by its result.

Joins what one side said in a row, gives results to the calls they belong to, tells a model that sees no pictures of
them, and makes names and ids that providers take. The same request always gives the same words: that is what their
caches live on. Knows no provider's format.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from appliance.errors import BadInput
from appliance.records import Ask, Image, Message, Part, ToolCall, ToolSpec

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
NO_RESULT = "No result of this call was kept."
LEFT_OUT = "(The earlier part of this conversation was left out.)"
GO_ON = "Go on."
STABLE = ("persona", "override", "BOOTSTRAP")  # parts from the first of these on differ between conversations


class Returned(Struct, frozen=True):
    """The result of a call."""

    id: str
    name: str
    text: str


@dataclass
class TalkTurn:
    """What one side said in a row: results, words and pictures, or words and calls."""

    role: Literal["user", "assistant"]
    texts: list[str] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Returned] = field(default_factory=list)
    reasoning: str = ""

    @property
    def text(self) -> str:
        """The words, joined as in every provider's prompt."""
        return "\n\n".join(self.texts)

    @property
    def is_empty(self) -> bool:
        """True when nothing was said."""
        return not (self.texts or self.images or self.calls or self.results)


class RequestTalk(Struct, frozen=True):
    """A whole request: the system text, its part that other conversations share, and the turns."""

    stable: str
    system: str
    turns: tuple[TalkTurn, ...]


def read(ask: Ask, *, has_images: bool, id_size: int = 0, must_alternate: bool = True) -> RequestTalk:
    """The request in order; BadInput when it says nothing. `must_alternate`: the user begins and speaks last."""
    names, messages = ToolNames(ask), list(ask.messages)
    parts = list(ask.system)
    while messages and messages[0].role == "system":
        parts.append(Part("earlier", messages.pop(0).content))
    turns = _Turns(names, has_images, id_size, is_wordy=ask.dialect != "native")
    for message in messages:
        turns.add(message)
    found = turns.close()
    if not found and not parts:
        raise BadInput("the request is empty", hint="send at least one message")
    if not found:
        found = [TalkTurn("user", [GO_ON])]
    if must_alternate:
        if found[0].role == "assistant":
            found.insert(0, TalkTurn("user", [LEFT_OUT]))
        if found[-1].role == "assistant":
            found.append(TalkTurn("user", [GO_ON]))
    first = next((i for i, part in enumerate(parts) if part.name in STABLE), len(parts))
    return RequestTalk(_join_parts(parts[:first]), _join_parts(parts), tuple(found))


class ToolNames:
    """Names of tools as providers take them, and back."""

    def __init__(self, ask: Ask) -> None:
        self._ours: dict[str, str] = {}
        self._theirs: dict[str, str] = {}
        called = (call.name for message in ask.messages for call in message.tool_calls)
        for name in dict.fromkeys([*(tool.name for tool in ask.tools), *called]):
            theirs = name if NAME.fullmatch(name) else _fit_name(name)
            self._theirs[name] = theirs
            self._ours.setdefault(theirs, name)

    def theirs(self, name: str) -> str:
        """What we send for a name of ours."""
        return self._theirs.get(name) or _fit_name(name)

    def ours(self, name: str) -> str:
        """Whom a name from there means."""
        return self._ours.get(name, name)


def described(tools: Iterable[ToolSpec], names: ToolNames) -> list[tuple[str, ToolSpec]]:
    """Tools with the names they are sent under, in the order that was given."""
    return [(names.theirs(tool.name), tool) for tool in tools]


class _Turns:
    """Turns as they come out of messages."""

    def __init__(self, names: ToolNames, has_images: bool, id_size: int, *, is_wordy: bool = False) -> None:
        """`is_wordy`: calls and their results are told in words, for a model that knows no others."""
        self._names = names
        self._is_wordy = is_wordy
        self._called: dict[str, str] = {}  # names of tools that were called in words, by our id
        self._has_images = has_images
        self._id_size = id_size
        self._turns: list[TalkTurn] = []
        self._open: list[tuple[str, Returned]] = []  # calls whose result is still to come, with our id: some have the same
        self._used: set[str] = set()

    def add(self, message: Message) -> None:
        if message.role == "assistant":
            self._add_answer(message)
        elif message.role == "tool" and any(id == message.tool_call_id for id, _ in self._open):
            place = next(i for i, (id, _) in enumerate(self._open) if id == message.tool_call_id)
            call = self._open.pop(place)[1]
            turn = self._turn_for("user")
            turn.results.append(Returned(call.id, call.name, message.content))
            self._add_images(turn, message.images)
        else:
            turn = self._turn_for("user")
            text = message.content
            if message.role == "tool":
                text = f"Result of {self._called.get(message.tool_call_id) or message.tool_call_id or 'a tool'}:\n{text}"
            if text.strip():
                turn.texts.append(text)
            self._add_images(turn, message.images)

    def close(self) -> list[TalkTurn]:
        self._settle_calls()
        return [turn for turn in self._turns if not turn.is_empty]

    def _add_answer(self, message: Message) -> None:
        self._settle_calls()
        turn = self._turn_for("assistant")
        if message.content.strip():
            turn.texts.append(message.content)
        turn.reasoning = message.reasoning or turn.reasoning
        if self._is_wordy:
            self._called |= {call.id: call.name for call in message.tool_calls}
            said = ({"name": call.name, "arguments": call.arguments} for call in message.tool_calls)
            turn.texts += [json.dumps(call, ensure_ascii=False) for call in said]
            return
        for call in message.tool_calls:
            sent = self._unique_id(call.id)
            name = self._names.theirs(call.name)
            self._open.append((call.id, Returned(sent, name, NO_RESULT)))
            turn.calls.append(ToolCall(sent, name, call.arguments))

    def _settle_calls(self) -> None:
        """Give the calls that have no result one that says so: providers refuse them otherwise."""
        if self._open:
            self._turn_for("user").results += [call for _, call in self._open]
            self._open = []

    def _turn_for(self, role: Literal["user", "assistant"]) -> TalkTurn:
        if self._turns and self._turns[-1].is_empty:
            self._turns.pop()
        if not self._turns or self._turns[-1].role != role or (role == "assistant" and self._turns[-1].calls):
            self._turns.append(TalkTurn(role))
        return self._turns[-1]

    def _add_images(self, turn: TalkTurn, images: Sequence[Image]) -> None:
        if self._has_images:
            turn.images += images
        else:
            turn.texts += [image.reference for image in images]

    def _unique_id(self, ours: str) -> str:
        """An id that providers take, used once in a request: answers that were mended count their calls from 1."""
        found, n = self._fit_id(ours), 1
        while found in self._used:
            n += 1
            found = self._fit_id(f"{ours}#{n}")
        self._used.add(found)
        return found

    def _fit_id(self, ours: str) -> str:
        if self._id_size:
            is_fine = len(ours) == self._id_size and ours.isascii() and ours.isalnum()
            return ours if is_fine else _digest_id(ours, self._id_size)
        return ours if ID.fullmatch(ours) else _digest_id(ours, 24)


def _join_parts(parts: Sequence[Part]) -> str:
    return "\n\n".join(part.text for part in parts)


def _fit_name(name: str) -> str:
    """A name that providers take for one that they would not; another one for each."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:50] or "tool"
    return f"{plain if NAME.fullmatch(plain) else '_' + plain}_{_digest_id(name, 8)}"


def _digest_id(text: str, size: int) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest(), "big")
    found = ""
    while len(found) < size:
        number, digit = divmod(number, len(LETTERS))
        found += LETTERS[digit]
    return found
