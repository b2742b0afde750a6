"""The second half of a generation: drawing tokens after the prompt was read, until the answer is whole.

In the grammar dialect an answer that begins with { is held to one tool call and never shown as text;
anything else streams as prose. Knows nothing about prompts, loading or who waits.
"""

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from appliance.providers.grammar import Sampler, read_call
from appliance.providers.library import Loaded
from appliance.providers.sequences import Held, Sequences
from appliance.providers.streaming import Answer
from appliance.records import Ask, Piece, ToolCall, ToolSpec

LOG = logging.getLogger(__name__)


class Ready(Protocol):
    """What a writer needs of a model in memory."""

    loaded: Loaded
    sequences: Sequences

    def grammar(self, tools: tuple[ToolSpec, ...]) -> str: ...


class Writing:
    """The second half of a generation: drawing tokens after the prompt was read."""

    def __init__(self, ready: Ready, ask: Ask, held: Held, seed: int | None) -> None:
        self._ready = ready
        self._ask = ask
        self._held = held
        self._sampler = Sampler(ready.loaded, ask.temperature, int.from_bytes(os.urandom(4), "little") if seed is None else seed)
        self._answer = Answer(ask.stop, may_call=ask.dialect == "grammar" and bool(ask.tools))
        self.reason: Any = "stop"
        self.count = 0

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()

    def pieces(self, should_stop: Callable[[], bool]) -> Iterator[Piece]:
        """Text that may be shown, until the model ends, a stop string comes, the call is whole or room runs out."""
        loaded = self._ready.loaded
        while True:
            token = self._next()
            if loaded.is_end(token):
                break
            self.count += 1
            text = self._answer.feed(loaded.piece(token))
            if text:
                yield Piece(text)
            if self._answer.is_stopped or self._has_call():
                break
            if self.count >= self._ask.max_tokens or len(self._held.tokens) + 1 >= loaded.window:
                self.reason = "length"
                break
            self._ready.sequences.extend(self._held, [token], should_stop)
        rest = self._answer.finish() if not self._answer.is_call else ""
        if rest:
            yield Piece(rest)

    def calls(self) -> tuple[ToolCall, ...]:
        """The tool call, if the answer was one; a call cut short is dropped, and nobody sees its text."""
        if not self._answer.is_call:
            return ()
        call = read_call(self._answer.call_text)
        if call is None:
            self.reason = "length"
            LOG.warning("tool call cut off", extra={"tokens": self.count, "limit": self._ask.max_tokens})
            return ()
        return (call,)

    def _next(self) -> int:
        token = self._sampler.draw()
        if not self._sampler.is_constrained and self._answer.begins_call(self._ready.loaded.piece(token)):
            self._sampler.constrain(self._ready.grammar(self._ask.tools))
        return self._sampler.settle(token) if self._sampler.is_constrained else token

    def _has_call(self) -> bool:
        text = self._answer.call_text
        return text.rstrip().endswith("}") and read_call(text) is not None
