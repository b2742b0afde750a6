"""The face of llama.cpp's C functions: one loaded model with one context, tokens in and out.

Everything unsafe lives here: pointers, callbacks that C keeps, calls that end the process when they are
made in the wrong order. Knows nothing about conversations. One thread at a time may evaluate and sample;
tokenizing is safe from any thread.

llama.cpp is built with changes of ours (`image-build/llama_patch.py`); one without them is used too, is slower, and may give a
text other numbers by where in the window it lies.

Three settings are not free to choose (measured with 0.3.36): `kv_unified`, or each sequence gets only its
share of the window and copying a part of one ends the process; `swa_full`, or sliding-window models
(Gemma 3) lose text without saying so; flash attention, or the numbers of a sequence differ by where in the
window its tokens lie, so that a text depends on other conversations, and is another one with guesses.
"""

import copy
import ctypes
import functools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.errors import Cancelled, Unavailable
from appliance.providers.gguf import BATCH as BATCH

LOG = logging.getLogger(__name__)
SEQUENCES = 8  # conversations whose evaluated tokens are kept; a whole state each in recurrent models
RECURRENT_SEQUENCES = 6
BACKGROUND_SEQUENCES = 4
BACKGROUND_BATCH = 64  # one chunk of a prompt is what a person may have to wait for
ROWS_TRIED = (8, 3)  # tokens evaluated at once that may give the same numbers as one after the other
ROWS_COMPARED = 3
OURS = "OWLBOX_ATTENTION"  # what `image-build/llama_patch.py` adds to the features that llama.cpp names
PIECE_BYTES = 256
CONTROL = 1 << 3  # LLAMA_TOKEN_ATTR_CONTROL
# Threads of llama.cpp wait for each other by spinning. With another busy process on two cores the default
# (300,000 rounds) fell from 77 to 3 tokens/s; this many give 68 alone and 23 beside it (2026-11-21).
SPIN_ROUNDS = "1000"
ERROR = 4  # level of llama.cpp's log
FULL, ABORTED = 1, 2  # answers of llama_decode
CACHE_TYPES = {"f16": 1, "q8_0": 8}  # GGML_TYPE_F16, GGML_TYPE_Q8_0


class Library(Struct, frozen=True):
    """llama_cpp as a module, and its last complaints. C keeps a pointer to `callback`: it must live as long."""

    api: Any
    complaints: deque[str]
    callback: Any


@functools.lru_cache(maxsize=1)
def library() -> Library:
    """llama.cpp, imported and told to log through us. It has one log function per process, hence the cache."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_ROUNDS)  # read once, when llama.cpp is loaded
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise Unavailable(f"llama-cpp-python cannot be used: {error}", hint="install it: pip install llama-cpp-python") from None
    api: Any = llama_cpp
    complaints: deque[str] = deque(maxlen=5)

    @api.llama_log_callback  # type: ignore[untyped-decorator]
    def forward(level: int, text: bytes, _: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == ERROR and line:
            complaints.append(line)
        if line.strip("."):
            # Never louder: an evaluation we stop on purpose is an error to llama.cpp, and real ones are raised.
            LOG.debug("%s", line)

    api.llama_log_set(forward, ctypes.c_void_p(0))
    api.llama_backend_init()
    return Library(api, complaints, forward)


class LoadedModel:
    """A model in memory with a context of `window` tokens, shared by SEQUENCES sequences."""

    def __init__(self, path: Path, window: int, threads: int, cache_type: str, should_stop: Callable[[], bool]) -> None:
        self._library = library()
        self.api = api = self._library.api
        self._library.complaints.clear()
        settings = api.llama_model_default_params()
        progress = api.llama_progress_callback(lambda part, _: not should_stop())
        settings.progress_callback = progress
        settings.check_tensors = True  # weights that are no numbers make an answer of noise, or end the process
        self.model = api.llama_model_load_from_file(os.fsencode(path), settings)
        if not self.model:
            if should_stop():
                raise Cancelled(f"loading {path.name} was stopped")
            raise self._explain_failure(f"llama.cpp cannot load {path.name}")
        self.vocabulary = api.llama_model_get_vocab(self.model)
        self.vocabulary_size = int(api.llama_vocab_n_tokens(self.vocabulary))
        # Recurrent models keep one state, not a row per token: nothing can be cut off or copied in part, but by a partial state.
        self.is_recurrent = bool(api.llama_model_is_recurrent(self.model) or api.llama_model_is_hybrid(self.model))
        self.sequences = RECURRENT_SEQUENCES if self.is_recurrent else SEQUENCES
        self._pieces: dict[int, bytes] = {}
        self._samplers: dict[Any, Any] = {}
        self._owns_model = True
        self._alike = 0
        self.batch = BATCH
        self._wanted = (window, threads, cache_type)
        try:
            self._open_context()
        except Unavailable:
            api.llama_model_free(self.model)
            raise

    def beside(self) -> "LoadedModel":
        """The same model with a second, empty context for background work; Unavailable when there is no memory.

        What is computed there never moves a token of a conversation: answers stay the same to the bit.
        """
        twin = copy.copy(self)
        twin._owns_model = False
        twin.batch, twin.sequences = BACKGROUND_BATCH, BACKGROUND_SEQUENCES
        twin._open_context()
        return twin

    def _open_context(self) -> None:
        window = self._wanted[0]
        self.context = self.api.llama_init_from_model(self.model, self._context_settings(*self._wanted))
        if not self.context:
            raise self._explain_failure(f"no memory for a window of {window} tokens")
        self.window = int(self.api.llama_n_ctx(self.context))
        self.memory = self.api.llama_get_memory(self.context)
        self._batch = self.api.llama_batch_init(self.batch, 0, 1)

    def _context_settings(self, window: int, threads: int, cache_type: str) -> Any:
        settings = self.api.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max = window, self.sequences + 1  # the last one is for trying things out
        settings.type_k = settings.type_v = CACHE_TYPES[cache_type]
        # Quantised values need it, too. A saved state keeps values in another order without it, and is then refused.
        settings.flash_attn_type = self.api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        settings.n_batch = settings.n_ubatch = self.batch
        settings.n_threads = settings.n_threads_batch = threads or len(os.sched_getaffinity(0))
        settings.kv_unified = settings.swa_full = settings.no_perf = True
        return settings

    def close(self) -> None:
        """Give the memory back. Nobody may evaluate any more."""
        self.api.llama_batch_free(self._batch)
        self.api.llama_free(self.context)
        if self._owns_model:
            for sampler in self._samplers.values():
                self.api.llama_sampler_free(sampler)
            self.api.llama_model_free(self.model)

    def _explain_failure(self, what: str) -> Unavailable:
        why = self._library.complaints[-1] if self._library.complaints else "no reason given"
        if any("invalid data" in line for line in self._library.complaints):
            return Unavailable(f"{what}: its weights are damaged", hint="copy or download it again: owlbox model list, model add")
        return Unavailable(f"{what}: {why[:200]}", hint="owlbox model list shows which files are usable")

    # -- words -------------------------------------------------------------------------------------

    def tokens(self, text: str, *, is_template: bool = False) -> list[int]:
        """The tokens of a text; in a rendered template control tokens count as such, and the start token is added."""
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        out = (self.api.llama_token * room)()
        count = self.api.llama_tokenize(self.vocabulary, data, len(data), out, room, False, is_template)
        found = list(out[:count])
        if is_template and self.api.llama_vocab_get_add_bos(self.vocabulary):
            start = self.api.llama_vocab_bos(self.vocabulary)
            if found[:1] != [start]:
                found.insert(0, start)
        return found

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; often not whole characters. Control tokens stand for none."""
        known = self._pieces.get(token)
        if known is None:
            out = ctypes.create_string_buffer(PIECE_BYTES)
            size = int(self.api.llama_token_to_piece(self.vocabulary, token, out, PIECE_BYTES, 0, False))
            if size < 0:  # it needs so many
                out = ctypes.create_string_buffer(-size)
                size = int(self.api.llama_token_to_piece(self.vocabulary, token, out, -size, 0, False))
            known = self._pieces[token] = out.raw[: max(0, size)]
        return known

    def text_of(self, token: int) -> str:
        """A token's own name, such as <|im_end|>; "" for none (-1)."""
        return "" if token < 0 else self.api.llama_vocab_get_text(self.vocabulary, token).decode("utf-8", "replace")

    def token_of(self, text: str) -> int:
        """The token whose name is this text, such as <tool_call>; -1 for none."""
        found = self.tokens(text, is_template=True)[-1:]
        return found[0] if found and self.text_of(found[0]) == text else -1

    def control_texts(self) -> list[str]:
        """Names of the control tokens: text from outside must never contain them."""
        attribute = self.api.llama_vocab_get_attr
        return [self.text_of(t) for t in range(self.vocabulary_size) if attribute(self.vocabulary, t) & CONTROL]

    def is_end(self, token: int) -> bool:
        """True for tokens that end an answer."""
        return bool(self.api.llama_vocab_is_eog(self.vocabulary, token))

    def own_template(self) -> str:
        """The chat template stored in the model file, or ""."""
        return (self.api.llama_model_chat_template(self.model, None) or b"").decode("utf-8", "replace")

    def sampler(self, key: Any, make: Callable[[], Any]) -> Any:
        """A sampler that is costly to make, as a copy of the one made first under this key; the caller frees it."""
        if key not in self._samplers:
            self._samplers[key] = make()
        return self.api.llama_sampler_clone(self._samplers[key])

    # -- evaluation --------------------------------------------------------------------------------

    def evaluate(self, tokens: Sequence[int], sequence: int, start: int, *, rows: int) -> int:
        """Add tokens to a sequence from position `start`; 0, FULL (no room, nothing changed) or ABORTED.

        `rows` says behind how many of them, at the end, the next token can be drawn.
        """
        batch = self._batch
        batch.n_tokens = len(tokens)
        first = len(tokens) - rows
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, i >= first
            batch.seq_id[i][0] = sequence
        code = int(self.api.llama_decode(self.context, batch))
        if code not in (0, FULL, ABORTED):
            raise self._explain_failure(f"llama.cpp could not evaluate {len(tokens)} tokens (code {code})")
        return code

    def alike(self) -> int:
        """How many tokens may be evaluated at once so that each gives the numbers, to the bit, that it would give alone.

        llama.cpp's kernels differ by the number of rows, by CPU and by quantisation: it is tried out once, in a sequence of its
        own, which takes as long as five tokens. What was evaluated last can no longer be drawn from. One token where llama.cpp
        divides the keys of a single token, and of no other, among threads: from 512 in the window on, which a trial would not see.
        """
        if not self._alike:
            rows = ROWS_TRIED if self.is_ours or self._has_one_thread else ()
            self._alike = next((count for count in rows if self._is_alike(count)), 1)
        return self._alike

    @property
    def is_ours(self) -> bool:
        """True when llama.cpp was built with our changes."""
        return OURS.encode() in self.api.llama_print_system_info()

    @property
    def _has_one_thread(self) -> bool:
        return int(self.api.llama_n_threads(self.context)) == 1

    def _is_alike(self, count: int) -> bool:
        tokens = [(7 * i + 1) % self.vocabulary_size for i in range(count)]
        first, spare = count - ROWS_COMPARED, self.sequences
        try:
            code = self.evaluate(tokens, spare, 0, rows=ROWS_COMPARED)
            together = [self.copy_row(i - ROWS_COMPARED) for i in range(ROWS_COMPARED)] if code == 0 else []
            self.clear(spare)
            code = code or (self.evaluate(tokens[:first], spare, 0, rows=0) if first else 0)
            for i, row in enumerate(together, first):
                code = code or self.evaluate(tokens[i : i + 1], spare, i, rows=1)
                if code or self.copy_row(-1) != row:
                    return False
            return code == 0
        finally:
            self.clear(spare)

    def copy_row(self, row: int) -> bytes:
        """The numbers that the next token would be drawn from, behind one of the tokens evaluated last."""
        return ctypes.string_at(
            self.api.llama_get_logits_ith(self.context, row), self.vocabulary_size * ctypes.sizeof(ctypes.c_float)
        )

    def touch(self) -> None:
        """Read every weight once, so that the first answer does not wait for the disk."""
        start = int(self.api.llama_vocab_bos(self.vocabulary))
        self.evaluate([max(0, start)], 0, 0, rows=1)
        self.clear(0)

    def watch(self, should_stop: Callable[[], bool] | None) -> Any:
        """Let `should_stop` end a running `evaluate`; keep the returned object until watch(None)."""
        callback = self.api.ggml_abort_callback(0 if should_stop is None else lambda _: should_stop())
        self.api.llama_set_abort_callback(self.context, callback, None)
        return callback

    def cut(self, sequence: int, start: int) -> bool:
        """Forget a sequence from position `start`; False when this model can only forget the whole."""
        return bool(self.api.llama_memory_seq_rm(self.memory, sequence, start, -1))

    def clear(self, sequence: int) -> None:
        """Forget a whole sequence."""
        self.api.llama_memory_seq_rm(self.memory, sequence, -1, -1)

    def copy(self, source: int, target: int, end: int) -> None:
        """Let `target` begin with the first `end` tokens of `source`; shares memory, costs nothing."""
        self.api.llama_memory_seq_cp(self.memory, source, target, 0, end)

    def state_bytes(self, sequence: int, *, is_partial: bool = False) -> int:
        """Size of what `save` would return."""
        return int(self.api.llama_state_seq_get_size_ext(self.context, sequence, int(is_partial)))

    def save(self, sequence: int, *, is_partial: bool = False) -> bytes:
        """Everything llama.cpp computed for a sequence, or the part that cannot be cut; b"" when it holds nothing."""
        size = self.state_bytes(sequence, is_partial=is_partial)
        out = (ctypes.c_uint8 * size)()
        count = int(self.api.llama_state_seq_get_data_ext(self.context, out, size, sequence, int(is_partial)))
        return bytes(memoryview(out)[:count])

    def restore(self, sequence: int, state: bytes | memoryview, *, is_partial: bool = False) -> bool:
        """Put a saved state in a sequence's place, a partial one beside what it holds; False when there is no room.

        The sequence is then empty. Only for bytes that came from `save` of the same model and settings: others end the process.
        """
        if not is_partial:
            self.clear(sequence)
        kind = ctypes.c_uint8 * len(state)  # never copied: of 2,000 tokens it has 46 MB
        pointer = ctypes.POINTER(kind)
        data = ctypes.cast(ctypes.c_char_p(state), pointer).contents if isinstance(state, bytes) else kind.from_buffer(state)
        if int(self.api.llama_state_seq_set_data_ext(self.context, data, len(state), sequence, int(is_partial))) == len(state):
            return True
        self.clear(sequence)
        return False

    def build(self) -> str:
        """What must be the same for a saved state to mean the same: version and CPU features of llama.cpp."""
        return f"{self.api.__version__} {self.api.llama_print_system_info().decode('utf-8', 'replace')}"
