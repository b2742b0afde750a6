"""The second half of a generation: drawing tokens after the prompt was read, until the answer is whole.

In the grammar dialect an answer that begins with { is held to one tool call and never shown as text;
anything else streams as prose. Thoughts in front come as pieces of their own. Knows nothing about prompts, loading or who waits.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from appliance.models.providers.grammar import Sampler, read_call
from appliance.models.providers.kv_cache import Held, Sequences
from appliance.models.providers.llama_library import Loaded
from appliance.models.providers.repetition import Repeats
from appliance.models.providers.token_stream import BEGIN, END, Answer
from appliance.records import Ask, Piece, ToolCall, ToolSpec

LOG = logging.getLogger(__name__)
THINKING_TOKENS = 8  # at the end of a prompt, enough for <think> and a line break in any vocabulary


class Ready(Protocol):
    """What a writer needs of a model in memory."""

    loaded: Loaded
    sequences: Sequences

    def grammar(self, tools: tuple[ToolSpec, ...]) -> str: ...


class Writing:
    """The second half of a generation: drawing tokens after the prompt was read.

    `must_call`: the answer is a call from its first token on, without thoughts, whatever the model would rather say.
    `is_watched`: prose that goes in circles is ended; the reason is then "repetition".
    """

    def __init__(
        self, ready: Ready, ask: Ask, held: Held, seed: int | None, *, must_call: bool = False, is_watched: bool = True
    ) -> None:
        self._ready = ready
        self._ask = ask
        self._held = held
        seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self._sampler = Sampler(ready.loaded, ask.temperature, seed, ask.repeat_penalty)
        may_call = bool(ask.tools) and (must_call or ask.dialect == "grammar")
        is_thinking = not must_call and self._ends_thinking(held.tokens)
        self._answer = Answer(ask.stop, may_call=may_call, is_thinking=is_thinking)
        if must_call and may_call:
            self._sampler.constrain(ready.grammar(ask.tools), "call")
        self._repeats = Repeats() if is_watched else None
        self.reason: Any = "stop"
        self.count = 0

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()

    def pieces(self, should_stop: Callable[[], bool]) -> Iterator[Piece]:
        """Text that may be shown, until the model ends, a stop string comes, the call is whole or room runs out."""
        loaded = self._ready.loaded
        while True:
            tokens = self._next()
            if loaded.is_end(tokens[0]):
                break
            self.count += len(tokens)
            for piece in self._told(self._answer.feed(b"".join(map(self._bytes, tokens)))):
                yield piece
                if self._repeats is not None and self._repeats.feed(piece.text):
                    self.reason = "repetition"
            if self.reason != "stop":
                break
            if self._answer.is_stopped or self._sampler.is_complete:
                break
            if self.count >= self._ask.max_tokens or len(self._held.tokens) + len(tokens) >= loaded.window:
                self.reason = "length"
                break
            self._ready.sequences.extend(self._held, tokens, should_stop)
        yield from self._told("" if self._answer.is_call else self._answer.finish())

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

    def _told(self, text: str) -> Iterator[Piece]:
        if thoughts := self._answer.thoughts():
            yield Piece(thoughts, is_reasoning=True)
        if text:
            yield Piece(text)

    def _bytes(self, token: int) -> bytes:
        """What a token says; the marks of thoughts count as text also where they are control tokens."""
        piece = self._ready.loaded.piece(token)
        if not piece and (name := self._ready.loaded.text_of(token)) in (BEGIN, END):
            return name.encode()
        return piece

    def _ends_thinking(self, prompt: Sequence[int]) -> bool:
        """True when the model's template has already begun its thoughts."""
        return b"".join(map(self._bytes, prompt[-THINKING_TOKENS:])).rstrip().endswith(BEGIN.encode())

    def _next(self) -> list[int]:
        """The next token, and those that can only follow it: all are evaluated together."""
        begun = self._sampler.skip() if self.count == 0 else []
        if begun:
            return begun
        token = self._sampler.draw()
        if not self._sampler.is_constrained and self._answer.begins_call(self._ready.loaded.piece(token)):
            self._sampler.constrain(self._ready.grammar(self._ask.tools))
        return [self._sampler.settle(token), *self._sampler.skip()]
