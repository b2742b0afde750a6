"""What of a conversation is sent when not all of it fits: whole exchanges are left out, never half of a call.

Pure: messages in, messages out. An exchange is what a person said and all that followed; within the newest
one, a step is what the model said with the results of its calls. Where a strategy drops from the old end it
drops a good piece at a time, so that the beginning stays the same for several turns and need not be read anew.
Knows nothing about routes or entries; what was left out is still stored.
"""

import json
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from appliance.records import Message
from appliance.text.tokens import DIVISOR, of_chars

RESULT_CHARS = 50_000  # of one tool result that is sent
WINDOW = 200_000  # tokens, where nobody knows a model's window
RESERVED = 4096  # tokens for the answer
LEAST = 10  # tokens that any message counts as
FIRST, LAST = 2, 10  # messages that `ends` keeps
PIECES = 8  # a conversation that is too long loses so large a part of the room at once

Strategy = Literal["opening", "recent", "ends", "important"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Size = Callable[[Message], int]


class Pruned(Struct, frozen=True):
    """The messages that are sent, and the number left out."""

    messages: list[Message]
    dropped: int = 0


def size_of(message: Message, divisor: float = DIVISOR) -> int:
    """About how many tokens a message takes, its calls included."""
    calls = sum(len(json.dumps(c.arguments, ensure_ascii=False)) + len(c.name) for c in message.tool_calls)
    return max(LEAST, of_chars(len(message.content) + calls, divisor))


def room_of(window: int, system: int, ceiling: float, answer: int = RESERVED) -> int:
    """Tokens that a conversation may take beside the system text: of a window without the answer's room the part below the ceiling.

    Of a small window an eighth is kept for the answer at most.
    """
    whole = window or WINDOW
    return math.floor((whole - min(answer, RESERVED, whole // 8)) * ceiling) - system


class Windows:
    """The windows of models: the last one that was known, for when asking for it fails."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def window_of(self, model: str, window: int) -> int:
        """The window to count on: the one given, else the last one of this model, else the default."""
        if window > 0:
            self._known[model] = window
        return self._known.get(model, WINDOW)


def cut_results(messages: Sequence[Message], limit: int = RESULT_CHARS) -> list[Message]:
    """The messages with every tool result within its limit; a cut one says so."""
    return [_cut_message(m, limit) if m.role == "tool" and len(m.content) > limit else m for m in messages]


def settled(messages: Sequence[Message], limit: int) -> list[Message]:
    """The last messages that are remembered, at most so many, from one on with which the next ones will begin too.

    Each prompt pushes out the oldest: as long as the beginning stays the same, a local model need not read all of it again.
    """
    count = sum(len(m.tool_calls) + (m.role == "tool" or bool(m.content)) for m in messages)
    begins = [at for at, m in enumerate(messages[: limit // 4]) if m.role == "user"]
    if limit <= 0 or count < limit or not begins:
        return list(messages)
    return list(
        messages[
            min(begins, key=lambda at: zlib.crc32(f"{messages[at].at_ms} {messages[at].content}".encode("utf-8", "replace"))) :
        ]
    )


def labelled(messages: Sequence[Message], label: Callable[[str, str], str]) -> list[Message]:
    """The messages with a label that says who speaks where, when more than one person or channel does."""
    if len({(m.channel, m.sender_id) for m in messages if m.role == "user" and m.channel}) < 2:
        return list(messages)
    return [
        replace(m, content=f"{label(m.channel, m.sender_id)}\n{m.content}") if m.role == "user" and m.channel else m
        for m in messages
    ]


def prune(messages: Sequence[Message], room: int, size: Size = size_of, strategy: Strategy = "opening") -> Pruned:
    """What fits into so many tokens; the newest message of a person is always kept, and every call has its results.

    `opening` keeps system messages, the first message and the newest; `recent` the newest alone; `ends` the first
    two and at most ten of the newest messages; `important` exchanges in which something was done before others.
    """
    kept = list(messages)
    if sum(map(size, kept)) <= room:
        return Pruned(kept)
    system = [m for m in kept if m.role == "system"]
    told = [m for m in kept if m.role != "system"]
    room -= sum(map(size, system))
    groups = exchanges(told)
    if strategy == "important":
        chosen = _take_important(groups, room, size)
    elif strategy == "ends":
        chosen = _take_ends(groups, room, size)
    else:
        chosen = _take_newest(groups, room, size, keeps_first=strategy == "opening")
    left = [*system, *(m for group in chosen for m in group)]
    return Pruned(left, len(kept) - len(left))


def exchanges(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages in groups that each begin with what a person said."""
    groups: list[list[Message]] = []
    for message in messages:
        # Two user messages in a row are one exchange: the second is our note on an unusable answer.
        if not groups or (message.role == "user" and groups[-1][-1].role != "user"):
            groups.append([])
        groups[-1].append(message)
    return groups


def _take_newest(groups: Sequence[list[Message]], room: int, size: Size, *, keeps_first: bool) -> list[list[Message]]:
    first: list[list[Message]] = []
    if keeps_first and len(groups) > 1:
        opening = [groups[0][0]]
        if _sum_sizes(opening, size) <= room // 4:  # a first message that fills the window would starve all others
            first = [opening]
            room -= _sum_sizes(opening, size)
    sizes = [_sum_sizes(group, size) for group in groups[:-1]]
    if keeps_first and first:
        sizes[0] -= _sum_sizes(first[0], size)
    last = _sum_sizes(groups[-1], size) if groups else 0
    begin = _find_begin([*sizes, last], room)
    tail = [list(group) for group in groups[begin:]]
    if len(tail) == 1:
        tail = [_newest_steps(tail[0], room, size)]
    return [*first, *tail] if begin else tail


def _find_begin(sizes: Sequence[int], room: int) -> int:
    """From where on the pieces fit, in large enough strides that the place seldom moves; the last one always stays."""
    excess = sum(sizes) - room
    if excess <= 0 or not sizes:
        return 0
    stride = max(1, room // PIECES)
    due, dropped = math.ceil(excess / stride) * stride, 0
    for begin, amount in enumerate(sizes[:-1]):
        if dropped >= due:
            return begin
        dropped += amount
    return len(sizes) - 1


def _newest_steps(group: list[Message], room: int, size: Size) -> list[Message]:
    """The newest exchange within the room: its prompt, and the newest of its steps."""
    said = [m for m in group if m.role == "user"]
    steps: list[list[Message]] = []
    for message in group:
        if message.role == "assistant":
            steps.append([message])
        elif message.role == "tool" and steps:
            steps[-1].append(message)
    if not steps or _sum_sizes(group, size) <= room:
        return group
    kept = {
        id(m)
        for step in steps[_find_begin([_sum_sizes(step, size) for step in steps], room - _sum_sizes(said, size)) :]
        for m in step
    }
    return [m for m in group if m.role == "user" or id(m) in kept]


def _take_ends(groups: Sequence[list[Message]], room: int, size: Size) -> list[list[Message]]:
    """The first two messages and the newest, at most ten of them in whole exchanges."""
    head: list[list[Message]] = [groups[0][:FIRST]] if groups and len(groups) > 1 else []
    if head and any(m.tool_calls for m in head[0]):
        head = [groups[0]]  # a call without its result would be no valid conversation
    tail: list[list[Message]] = []
    room -= sum(_sum_sizes(group, size) for group in head)
    count = 0
    for group in reversed(groups[1:] if head else groups):
        if tail and (count + len(group) > LAST or _sum_sizes(group, size) > room):
            break
        tail.insert(0, group if tail else _newest_steps(group, room, size))
        count += len(group)
        room -= _sum_sizes(group, size)
    return [*head, *tail] if room >= 0 else tail


def _take_important(groups: Sequence[list[Message]], room: int, size: Size) -> list[list[Message]]:
    """The newest exchange, then those in which most was done, newer ones first, in their order."""
    if not groups:
        return []
    last = _newest_steps(groups[-1], room, size)
    left = room - _sum_sizes(last, size)
    ranked = sorted(range(len(groups) - 1), key=lambda n: (sum(m.role == "tool" for m in groups[n]), n), reverse=True)
    chosen = []
    for number in ranked:
        if (amount := _sum_sizes(groups[number], size)) <= left:
            chosen.append(number)
            left -= amount
    return [*(groups[number] for number in sorted(chosen)), last]


def _sum_sizes(group: Sequence[Message], size: Size) -> int:
    return sum(map(size, group))


def _cut_message(message: Message, limit: int) -> Message:
    note = f"\n[cut: {limit} of {len(message.content)} characters shown]"
    return replace(message, content=message.content[:limit] + note)
