"""The local model: answers from a GGUF file through llama.cpp, reusing what it has already read.

What it computed for the unchanging beginning of a prompt is kept on disk and read back after a restart.
Loads at the first need and says no before llama.cpp runs out of memory. In the grammar dialect an answer
that begins with { is held to one tool call and never shown as text; anything else streams as prose. In the native dialect the
model's own template describes the tools, and calls are in the format of its family.
Generations take turns: one computes while others rest; none may be begun while closing.
"""

import copy
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled, DeadlineExceeded, OwlError, ProviderError, TooLarge, Unavailable
from appliance.providers import families, gguf, memory_room
from appliance.providers.chat_template import NOTHING_SAID, Template, spoken
from appliance.providers.family import Family
from appliance.providers.grammar import call_grammar
from appliance.providers.kv_cache import FOR_BACKGROUND, LEAVE_FREE_BYTES, Sequences, common
from appliance.providers.llama_library import LoadedModel
from appliance.providers.prefix_cache import States
from appliance.providers.sampling import Writing
from appliance.records import Ask, Cancel, Dialect, Finish, Measure, Message, Pause, Piece, Route, ToolSpec

LOG = logging.getLogger(__name__)
MB = 1_000_000
KEPT_GRAMMARS = 8
PREFIX_MB = 512  # of disk that saved beginnings of prompts may take: a dozen of the bundled model
PROBES = ("0", "?")  # two questions that share no letter: what their prompts share is the system text
WORTH_KEEPING = 64  # tokens; fewer are evaluated as quickly as they are read from disk
WORTH_READING = 32  # tokens more than memory has, likewise
LONG_FACTORS = "rope_factors_long"
SAMPLES, SAMPLE_BYTES = 64, 4096  # 256 KB of a model file: all of it would take seconds at each start


class Options(Struct, frozen=True):
    """How to run a model; 0 means choose. `seed` None draws differently every time."""

    context: int = 0
    threads: int = 0
    memory_mb: int = 0
    cache_type: str = "f16"
    prefix_mb: int = PREFIX_MB
    is_guessing: bool = True  # evaluate what the prompt says already several tokens at a time
    reclaim_bytes: int = 0  # what other models hold now and will have given back when this one is loaded
    seed: int | None = None


class Alone:
    """The turn of somebody who shares with nobody."""

    is_wanted = False
    rested_s = 0.0

    def rest(self) -> None:
        """Nobody waits."""


class Llama:
    """One local model, not loaded until it is needed."""

    name = "llama"

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.model = path.stem
        self._options = options
        self.header = gguf.read(path)
        self._changed_ns = path.stat().st_mtime_ns
        self.window = self._choose_window()
        self._is_native = families.find(self.header.chat_template) is not None
        self._loading = threading.Lock()
        self._ready: Ready | None = None

    @property
    def is_loaded(self) -> bool:
        """True while the model is in memory."""
        return self._ready is not None

    @property
    def dialect(self) -> Dialect:
        """How it is told of tools: natively where the template of its file knows them, else in our own words."""
        is_native = self._is_native if self._ready is None else self._ready.template.family is not None
        return "native" if is_native else "grammar"

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of the loaded model, with the context for background work once it is there."""
        ready = self._ready
        return self._needed_bytes(self.window) + (ready.context_bytes if ready is not None and ready.has_two else 0)

    def is_fresh(self) -> bool:
        """False when the file was replaced since."""
        try:
            return self.path.stat().st_mtime_ns == self._changed_ns
        except OSError:
            return False

    def load(self, cancel: Cancel) -> None:
        """Bring the model into memory now; Cancelled when stopped, TooLarge when it would not fit."""
        with self._loading:
            self._open_model(cancel)

    def close(self) -> None:
        """Give the memory back; nothing may be running."""
        with self._loading:
            if self._ready is not None:
                self._ready.close()
                self._ready = None

    def count(self, text: str) -> int:
        """Tokens of a plain text."""
        with self._loading:
            return len(self._open_model(threading.Event()).loaded.tokens(text))

    def measure(self, route: Route, ask: Ask) -> Measure:
        """Tokens per named part; "template" is what the chat format adds. A part describes the tools, so theirs are there."""
        with self._loading:
            ready = self._open_model(threading.Event())
            parts: dict[str, int] = {}
            for part in ask.system:
                parts[part.name] = parts.get(part.name, 0) + len(ready.loaded.tokens(part.text))
            parts.setdefault("tools", 0)
            parts["messages"] = parts.get("messages", 0) + sum(len(ready.loaded.tokens(spoken(m))) for m in ask.messages)
            total = len(ready.prompt(ask))
            if ready.family(ask) is not None and ask.tools:
                parts["tools"] += total - len(ready.prompt(replace(ask, tools=())))
        parts["template"] = total - sum(parts.values())
        return Measure(self.model, parts, total)

    def generate(self, route: Route, ask: Ask, cancel: Cancel, pause: Pause | None = None) -> Iterator[Piece | Finish]:
        """Text as it comes, then one Finish. Cancelled and DeadlineExceeded end it within a token.

        Time spent resting does not count towards the deadline.
        """
        end_s, turn = monotonic_s() + ask.deadline_s, pause or Alone()

        def should_stop() -> bool:
            return cancel.is_set() or monotonic_s() > end_s + turn.rested_s

        try:
            yield from self._generate_answer(ask, cancel, turn, should_stop)
        except Cancelled:
            if cancel.is_set():
                raise
            raise DeadlineExceeded(
                f"{self.model} did not finish within {ask.deadline_s:g} s", hint="allow more time, or ask for a shorter answer"
            ) from None

    def _generate_answer(self, ask: Ask, cancel: Cancel, turn: Pause, should_stop: Callable[[], bool]) -> Iterator[Piece | Finish]:
        with self._loading:
            ready = self._open_model(cancel).lane(ask.is_background)
        if ask.tools and ask.dialect == "native" and ready.family(ask) is None:
            text = f"the chat template of {self.model} turned out to know no tools"
            raise ProviderError(text, hint="ask again: its tools are told in words now", outcome="model_not_supported")
        prompt = ready.prompt(ask)
        if not prompt:
            raise BadInput("the request is empty", hint="send at least one message")
        if len(prompt) >= ready.loaded.window:
            raise TooLarge(f"prompt has {len(prompt)} tokens, the window of {self.model} has {ready.loaded.window}")

        def pause() -> bool:
            """Asked between two tokens or chunks: others may go first here."""
            turn.rest()
            return should_stop()

        reading = PromptReading(ready, ask, prompt)
        writing: Writing | None = None
        try:
            # Only prefill is watched: one token is short, and the callback costs more than the check between two.
            reading.read(pause, (lambda: should_stop() or turn.is_wanted) if ask.is_background else should_stop)
            options = self._options
            writing = Writing(
                ready,
                ask,
                reading.held,
                options.seed,
                end=reading.end,
                must_call=ask.must_call,
                is_guessing=options.is_guessing,
            )
            yield from writing.pieces(pause)
            calls = writing.calls()
        finally:
            if writing is not None:
                writing.close()
            ready.sequences.release(reading.held)
        yield Finish(
            reason="tool_calls" if calls else writing.reason,
            tool_calls=calls,
            provider=self.name,
            model=self.model,
            prompt_tokens=len(prompt),
            evaluated_tokens=reading.evaluated,
            output_tokens=writing.count,
            sureness=writing.sureness if ask.is_measured else 0.0,
        )

    # -- loading -----------------------------------------------------------------------------------

    def _choose_window(self) -> int:
        """The largest window that fits; memory that other models hold now will have been given back."""
        limit = self._limit_bytes() + (0 if self._options.memory_mb else self._options.reclaim_bytes)
        return self.header.choose_window(self._options.context, self._options.cache_type, limit)

    def _needed_bytes(self, window: int) -> int:
        return self.header.needed_bytes(window, self._options.cache_type)

    def _limit_bytes(self) -> int:
        return self._options.memory_mb * MB or memory_room.free_bytes()

    def _open_model(self, cancel: Cancel) -> "Ready":
        """The loaded model; the caller holds the lock, so that nobody closes it meanwhile."""
        if self._ready is not None:
            return self._ready
        self._refuse_too_large()
        gguf.read(self.path)  # it may have been replaced since; llama.cpp must not see a truncated file
        started_s = monotonic_s()
        loaded = LoadedModel(self.path, self.window, self._options.threads, self._options.cache_type, cancel.is_set)
        try:
            loaded.touch()
            self._ready = Ready(loaded, self._build_template(loaded), self._build_states(loaded), self._second_bytes())
        except OwlError:
            loaded.close()
            raise
        taken_ms = round((monotonic_s() - started_s) * 1000)
        LOG.info("model loaded", extra={"model": self.model, "window": loaded.window, "ms": taken_ms})
        return self._ready

    def _second_bytes(self) -> int:
        """Memory of a second context, or 0 when the limit that was set does not allow one."""
        size, limit = self._needed_bytes(self.window) - self.header.file_bytes, self._options.memory_mb * MB
        return 0 if limit and self._needed_bytes(self.window) + size > limit else size

    def _refuse_too_large(self) -> None:
        needed, limit = self.memory_bytes, self._limit_bytes()
        if needed > limit:
            word = "are allowed (models.memory_mb)" if self._options.memory_mb else "are free"
            raise TooLarge(
                f"model {self.model} needs about {needed // MB} MB, {limit // MB} MB {word}",
                hint="choose a smaller model (owlbox model list), a smaller models.context, or stop other programs",
            )

    def _build_states(self, loaded: LoadedModel) -> States:
        """The prefix states that this file, template, llama.cpp and cache type made: others mean something else."""
        template = hashlib.sha256(loaded.own_template().encode()).hexdigest()
        parts: tuple[str, ...] = (
            fingerprint(self.path),
            template,
            loaded.build(),
            self._options.cache_type,
            str(loaded.is_recurrent),
        )
        if is_bound_to_window(self.header):
            parts += (str(loaded.window),)
        return States(self.path.parent / "prefix", "\n".join(parts), self._options.prefix_mb * MB)

    def _build_template(self, loaded: LoadedModel) -> Template:
        api = loaded.api
        return Template(
            loaded.own_template(),
            start=loaded.text_of(api.llama_vocab_bos(loaded.vocabulary)),
            end=loaded.text_of(api.llama_vocab_eos(loaded.vocabulary)),
            controls=loaded.control_texts(),
        )


class Ready:
    """What exists only while the model is in memory."""

    def __init__(self, loaded: LoadedModel, template: Template, states: States, context_bytes: int) -> None:
        self.loaded = loaded
        self.template = template
        self.states = states
        self.context_bytes = context_bytes
        self.sequences = Sequences(loaded, 0)
        self._beside: Ready | None = None
        self._grammars: dict[str, str] = {}
        self._stable: tuple[Any, list[int]] = ((), [])

    def close(self) -> None:
        """Give the memory back."""
        self.states.settle()
        self.template.close()
        if self._beside is not None and self._beside is not self:
            self._beside.loaded.close()
        self.loaded.close()

    def lane(self, is_background: bool) -> "Ready":
        """The same model for conversations or for background work, which has a context of its own if memory allows."""
        if not is_background:
            return self
        if self._beside is None:
            self._beside = self._open_second() or self
            if self._beside is self:
                self.sequences.reserve(FOR_BACKGROUND)
        return self._beside

    @property
    def has_two(self) -> bool:
        """True when background work has a context of its own."""
        return self._beside is not None and self._beside is not self

    def _open_second(self) -> "Ready | None":
        if not self.context_bytes or memory_room.free_bytes() < LEAVE_FREE_BYTES + self.context_bytes:
            LOG.info("background work shares the context of conversations: memory is short")
            return None
        try:
            loaded = self.loaded.beside()
        except Unavailable as error:
            LOG.info("background work shares the context of conversations: %s", error)
            return None
        made = copy.copy(self)
        made.loaded, made.sequences = loaded, Sequences(loaded, loaded.sequences)
        return made

    def prompt(self, ask: Ask) -> list[int]:
        """The tokens the model reads for a request."""
        return self.loaded.tokens(self.template.render(ask), is_template=True)

    def stable(self, ask: Ask, prompt: list[int]) -> int:
        """How many tokens at the beginning of a prompt depend on its system text alone."""
        if not ask.system:
            return 0
        key = (ask.system, ask.tools if self.family(ask) is not None else ())
        if self._stable[0] != key:
            first, second = (self.prompt(replace(ask, messages=(Message("user", probe),))) for probe in PROBES)
            self._stable = (key, first[: common(first, second)])
        length = len(self._stable[1])
        # A template may put the system text elsewhere once there are several messages: then nothing is stable.
        return length if length < len(prompt) and prompt[:length] == self._stable[1] else 0

    def turn(self, ask: Ask, prompt: list[int]) -> int:
        """How many tokens at the beginning of a prompt are the same in the next one of its conversation."""
        more = (Message("assistant", NOTHING_SAID), Message("user", PROBES[0]))
        try:
            return common(prompt, self.prompt(replace(ask, messages=(*ask.messages, *more))))
        except BadInput:  # this template wants other turns: what is kept is the system text
            return 0

    def family(self, ask: Ask) -> Family | None:
        """In whose words an ask is rendered and answered; None for our own."""
        return self.template.family_of(ask)

    def grammar(self, tools: tuple[ToolSpec, ...], family: Family | None = None, *, is_loose: bool = False) -> str:
        """The tools' grammar, kept for the next turn: roles have few different sets of tools."""
        key = repr([(t.name, t.schema) for t in tools]) + f" {'' if family is None else family.name} {is_loose}"
        if key not in self._grammars:
            if len(self._grammars) >= KEPT_GRAMMARS:
                self._grammars.pop(next(iter(self._grammars)))
            if family is None:
                self._grammars[key] = call_grammar(tools)
            else:
                self._grammars[key] = family.loose_grammar(tools) if is_loose else family.grammar(tools)
        return self._grammars[key]


class PromptReading:
    """The first half of a generation: the prompt into a sequence, from memory, from disk, or by evaluation."""

    def __init__(self, ready: Ready, ask: Ask, prompt: list[int]) -> None:
        self._ready = ready
        self._prompt = prompt
        self._stable = ready.stable(ask, prompt)
        self._turn = ready.turn(ask, prompt) if ready.loaded.is_recurrent else 0
        self._is_kept = ask.purpose != "bench"  # its text is never asked about again: spare the card
        self.held = ready.sequences.place(ask.slot, prompt, ask.is_background)
        self.end = ready.sequences.end_of(self.held, prompt)  # what the first token is drawn from without any evaluation
        self.evaluated = 0

    def read(self, pause: Callable[[], bool], should_end: Callable[[], bool]) -> None:
        """Evaluate what is not known. `pause` is asked between chunks, `should_end` inside one, from C."""
        loaded = self._ready.loaded
        watched: Any = None

        def unwatched() -> bool:
            """While we rest, others evaluate: they must not be ended by our signal."""
            nonlocal watched
            if watched is not None:
                loaded.watch(None)
                watched = None
            is_over = pause()
            watched = loaded.watch(should_end)  # kept alive here: C holds a pointer to it
            return is_over

        self._restore_state()
        try:
            if len(self.held.tokens) < self._stable:
                self._evaluate_until(self._stable, unwatched)
                self._save_state()
            if self._is_kept and self._turn > len(self.held.tokens):
                self._ready.sequences.mark(self.held)
                self._evaluate_until(self._turn, unwatched)
                self._ready.sequences.mark(self.held)
            self._evaluate_until(len(self._prompt), unwatched)
        finally:
            if watched is not None:
                loaded.watch(None)
        if self.evaluated and self._is_kept:
            self._ready.sequences.keep_end(self._prompt)

    def _evaluate_until(self, end: int, pause: Callable[[], bool]) -> None:
        fresh = self._prompt[len(self.held.tokens) : end]
        self.evaluated += len(fresh)
        self._ready.sequences.extend(self.held, fresh, pause)

    def _restore_state(self) -> None:
        """Take the beginning from disk where that knows clearly more than memory does."""
        states, sequences, begun = self._ready.states, self._ready.sequences, len(self.held.tokens)
        if begun >= self._stable:
            return
        loaded = self._ready.loaded
        known, length = states.best(self._prompt[:-1], loaded.window, is_whole=loaded.is_recurrent)
        if known is None or length < begun + WORTH_READING:
            return
        state = states.read(known)
        if state is not None and sequences.adopt(self.held, known.tokens, state):
            sequences.cut(self.held, length)

    def _save_state(self) -> None:
        """Save the system text's state; it was just evaluated, so nothing is saved twice."""
        tokens, states, sequences = self._prompt[: self._stable], self._ready.states, self._ready.sequences
        if not self._is_kept or len(tokens) < WORTH_KEEPING or states.has(tokens):
            return
        size = sequences.size_bytes(self.held)
        if states.may_take(size) and memory_room.free_bytes() > 2 * size:  # llama.cpp's copy, and ours
            states.keep(tokens, sequences.snapshot(self.held))


def is_bound_to_window(header: gguf.Header) -> bool:
    """True for models (Phi-3) that compute the same text differently in a longer window: they turn positions by other factors."""
    return any(t.name.startswith(LONG_FACTORS) for t in header.tensors)


def fingerprint(path: Path) -> str:
    """What tells a model file from another: size, time of change, and samples of its content (256 KB read)."""
    info = path.stat()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for i in range(SAMPLES):
            file.seek(info.st_size * i // SAMPLES)
            digest.update(file.read(SAMPLE_BYTES))
    return f"{info.st_size} {info.st_mtime_ns} {digest.hexdigest()}"
