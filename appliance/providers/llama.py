"""The local model: answers from a GGUF file through llama.cpp, reusing what it has already read.

Loads at the first need and says no before llama.cpp runs out of memory. In the grammar dialect an answer
that begins with { is held to one tool call and never shown as text; anything else streams as prose.
The caller makes sure that one generation runs at a time and none while closing. Tools are not described here: the system text
already does. Not promised: separating a model's thoughts from its answer.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance import gguf
from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled, DeadlineExceeded, OwlError, TooLarge
from appliance.providers import room
from appliance.providers.grammar import call_grammar
from appliance.providers.library import BATCH, Loaded
from appliance.providers.sequences import Sequences
from appliance.providers.template import Template, spoken
from appliance.providers.writing import Writing
from appliance.records import Ask, Cancel, Finish, Measure, Piece, Route, ToolSpec

LOG = logging.getLogger(__name__)
MB = 1_000_000
LARGEST_WINDOW = 8192
SMALLEST_WINDOW = 512
WINDOW_STEP = 256
KEPT_GRAMMARS = 8


@dataclass(frozen=True)
class Options:
    """How to run a model; 0 means choose. `seed` None draws differently every time."""

    context: int = 0
    threads: int = 0
    memory_mb: int = 0
    seed: int | None = None


class Llama:
    """One local model, not loaded until it is needed."""

    name = "llama"

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.model = path.stem
        self._options = options
        self.header = gguf.read(path)
        self.window = self._choose_window()
        self._loading = threading.Lock()
        self._ready: _Ready | None = None

    @property
    def is_loaded(self) -> bool:
        """True while the model is in memory."""
        return self._ready is not None

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of the loaded model."""
        return self.header.memory_bytes(self.window, BATCH)

    def load(self, cancel: Cancel) -> None:
        """Bring the model into memory now; Cancelled when stopped, TooLarge when it would not fit."""
        with self._loading:
            self._open(cancel)

    def close(self) -> None:
        """Give the memory back; nothing may be running."""
        with self._loading:
            if self._ready is not None:
                self._ready.loaded.close()
                self._ready = None

    def count(self, text: str) -> int:
        """Tokens of a plain text."""
        with self._loading:
            return len(self._open(threading.Event()).loaded.tokens(text))

    def measure(self, route: Route, ask: Ask) -> Measure:
        """Tokens per named part; "template" is what the chat format adds. A part describes the tools, so theirs are there."""
        with self._loading:
            ready = self._open(threading.Event())
            parts: dict[str, int] = {}
            for part in ask.system:
                parts[part.name] = parts.get(part.name, 0) + len(ready.loaded.tokens(part.text))
            parts.setdefault("tools", 0)
            parts["messages"] = parts.get("messages", 0) + sum(len(ready.loaded.tokens(spoken(m))) for m in ask.messages)
            total = len(ready.prompt(ask))
        parts["template"] = total - sum(parts.values())
        return Measure(self.model, parts, total)

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        """Text as it comes, then one Finish. Cancelled and DeadlineExceeded end it within a token."""
        end_s = monotonic_s() + ask.deadline_s

        def should_stop() -> bool:
            return cancel.is_set() or monotonic_s() > end_s

        try:
            yield from self._generate(ask, cancel, should_stop)
        except Cancelled:
            if cancel.is_set():
                raise
            raise DeadlineExceeded(
                f"{self.model} did not finish within {ask.deadline_s:g} s", hint="allow more time, or ask for a shorter answer"
            ) from None

    def _generate(self, ask: Ask, cancel: Cancel, should_stop: Callable[[], bool]) -> Iterator[Piece | Finish]:
        with self._loading:
            ready = self._open(cancel)
        prompt = ready.prompt(ask)
        if not prompt:
            raise BadInput("the request is empty", hint="send at least one message")
        if len(prompt) >= ready.loaded.window:
            raise TooLarge(f"prompt has {len(prompt)} tokens, the window of {self.model} has {ready.loaded.window}")
        held = ready.sequences.place(ask.slot, prompt, ask.is_background)
        fresh = prompt[len(held.tokens) :]
        watched = ready.loaded.watch(should_stop)
        try:
            ready.sequences.extend(held, fresh, should_stop)
        finally:
            # Only prefill is watched: one token is short, and the callback costs more than the check between two.
            del watched
            ready.loaded.watch(None)
        writing = Writing(ready, ask, held, self._options.seed)
        try:
            yield from writing.pieces(should_stop)
        finally:
            writing.close()
        calls = writing.calls()
        yield Finish(
            reason="tool_calls" if calls else writing.reason,
            tool_calls=calls,
            provider=self.name,
            model=self.model,
            prompt_tokens=len(prompt),
            evaluated_tokens=len(fresh),
            output_tokens=writing.count,
        )

    # -- loading -----------------------------------------------------------------------------------

    def _choose_window(self) -> int:
        """The largest window within the model's training, our limit and the memory; the asked-for one if given."""
        trained = self.header.context_length or LARGEST_WINDOW
        if self._options.context:
            return min(self._options.context, trained)
        window = min(trained, LARGEST_WINDOW)
        limit = self._limit()
        while window > SMALLEST_WINDOW and self.header.memory_bytes(window, BATCH) > limit:
            window -= WINDOW_STEP
        return max(window, min(trained, SMALLEST_WINDOW))

    def _limit(self) -> int:
        return self._options.memory_mb * MB or room.free_bytes()

    def _open(self, cancel: Cancel) -> "_Ready":
        """The loaded model; the caller holds the lock, so that nobody closes it meanwhile."""
        if self._ready is not None:
            return self._ready
        self._refuse_too_large()
        gguf.read(self.path)  # it may have been replaced since; llama.cpp must not see a truncated file
        started_s = monotonic_s()
        loaded = Loaded(self.path, self.window, self._options.threads, cancel.is_set)
        try:
            self._ready = _Ready(loaded, self._template(loaded))
        except OwlError:
            loaded.close()
            raise
        taken_ms = round((monotonic_s() - started_s) * 1000)
        LOG.info("model loaded", extra={"model": self.model, "window": loaded.window, "ms": taken_ms})
        return self._ready

    def _refuse_too_large(self) -> None:
        needed, limit = self.memory_bytes, self._limit()
        if needed > limit:
            word = "are allowed (models.memory_mb)" if self._options.memory_mb else "are free"
            raise TooLarge(
                f"model {self.model} needs about {needed // MB} MB, {limit // MB} MB {word}",
                hint="choose a smaller model (owlbox model list), a smaller models.context, or stop other programs",
            )

    def _template(self, loaded: Loaded) -> Template:
        api = loaded.api
        return Template(
            loaded.own_template(),
            start=loaded.text_of(api.llama_vocab_bos(loaded.vocabulary)),
            end=loaded.text_of(api.llama_vocab_eos(loaded.vocabulary)),
            controls=loaded.control_texts(),
        )


class _Ready:
    """What exists only while the model is in memory."""

    def __init__(self, loaded: Loaded, template: Template) -> None:
        self.loaded = loaded
        self.template = template
        self.sequences = Sequences(loaded)
        self._grammars: dict[str, str] = {}

    def prompt(self, ask: Ask) -> list[int]:
        """The tokens the model reads for a request."""
        return self.loaded.tokens(self.template.render(ask), is_template=True)

    def grammar(self, tools: tuple[ToolSpec, ...]) -> str:
        """The tools' grammar, kept for the next turn: roles have few different sets of tools."""
        key = repr([(t.name, t.schema) for t in tools])
        if key not in self._grammars:
            if len(self._grammars) >= KEPT_GRAMMARS:
                self._grammars.pop(next(iter(self._grammars)))
            self._grammars[key] = call_grammar(tools)
        return self._grammars[key]
