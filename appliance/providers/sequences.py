"""Which tokens llama.cpp still remembers, per conversation, so that only new ones are evaluated.

A sequence belongs to a slot (`Ask.slot`) until it is needed elsewhere: background slots give way first,
then the one unused for longest. Owns the books; the memory itself is llama.cpp's. Used under the
caller's lock. Saving a sequence to disk belongs here when it comes.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from appliance.errors import Cancelled, TooLarge, Unavailable
from appliance.providers.library import ABORTED, BATCH, FULL, SEQUENCES, Loaded

BACKGROUND_CHUNK = 64


@dataclass
class Held:
    """One sequence of the context: whose it is, and the tokens it holds in order."""

    id: int
    slot: str | None = None
    tokens: list[int] = field(default_factory=list)
    used: int = 0
    is_background: bool = True


class Sequences:
    """Hands out sequences and keeps their books exact, also when an evaluation is stopped half-way."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._held = [Held(i) for i in range(SEQUENCES)]
        self._ticks = itertools.count(1)

    def place(self, slot: str, prompt: Sequence[int], is_background: bool) -> Held:
        """The slot's sequence, holding the longest known beginning of `prompt` and nothing else.

        At least the last token is left to evaluate, since only evaluation yields the next one.
        """
        own = next((h for h in self._held if h.slot == slot), None) or self._free_one()
        own.slot, own.used, own.is_background = slot, next(self._ticks), is_background
        donor = max(self._held, key=lambda h: common(h.tokens, prompt))
        keep = common(own.tokens, prompt)
        if donor is not own and common(donor.tokens, prompt) > keep and not self._loaded.is_recurrent:
            keep = common(donor.tokens, prompt)
            self._loaded.clear(own.id)
            self._loaded.copy(donor.id, own.id, keep)
            own.tokens = donor.tokens[:keep]
        self.cut(own, min(keep, len(prompt) - 1))
        return own

    def cut(self, held: Held, length: int) -> None:
        """Forget all but the first `length` tokens; a model that cannot forgets everything."""
        if length < len(held.tokens) or length == 0:
            if length and self._loaded.cut(held.id, length):
                del held.tokens[length:]
            else:
                self._drop(held)

    def extend(self, held: Held, tokens: Sequence[int], should_stop: Callable[[], bool]) -> None:
        """Evaluate more tokens; Cancelled between chunks or inside one, TooLarge when nothing can make room.

        After an error the sequence still holds what was evaluated before it.
        """
        chunk = BACKGROUND_CHUNK if held.is_background else BATCH
        for i in range(0, len(tokens), chunk):
            part = tokens[i : i + chunk]
            while True:
                if should_stop():
                    raise Cancelled("stopped before the answer was complete")
                try:
                    code = self._loaded.evaluate(part, held.id, len(held.tokens), wants_logits=i + chunk >= len(tokens))
                except Unavailable:
                    self._drop(held)
                    raise
                if code == 0:
                    break
                self._tidy(held)
                if code == ABORTED:
                    raise Cancelled("stopped while reading the prompt")
                if code == FULL and not self._make_room(held):
                    raise TooLarge(f"the window of {self._loaded.window} tokens is full", hint="start a new conversation")
            held.tokens += part

    def _tidy(self, held: Held) -> None:
        """Remove what an unfinished evaluation may have left behind our books."""
        if not self._loaded.cut(held.id, len(held.tokens)):
            self._drop(held)

    def _free_one(self) -> Held:
        victim = min(self._held, key=lambda h: (h.slot is not None, not h.is_background, h.used))
        victim.slot = None  # its tokens stay: the new owner may share a beginning with it
        return victim

    def _make_room(self, keeper: Held) -> bool:
        """Forget one other sequence; False when no other holds anything."""
        others = [h for h in self._held if h is not keeper and h.tokens]
        if not others:
            return False
        self._drop(min(others, key=lambda h: (not h.is_background, h.used)))
        return True

    def _drop(self, held: Held) -> None:
        self._loaded.clear(held.id)
        held.tokens = []


def common(known: Sequence[int], wanted: Sequence[int]) -> int:
    """Length of the common beginning."""
    length = min(len(known), len(wanted))
    if known[:length] == wanted[:length]:
        return length
    return next(i for i in range(length) if known[i] != wanted[i])
