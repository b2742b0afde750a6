"""Meaning as numbers: texts into unit vectors by a small sentence encoder (a BERT in a GGUF file).

Loaded at the first text, on the same llama.cpp as the language model, with settings of its own: one thread,
so that it never fights the language model for the CPU. A text is cut to what the encoder was trained to
read. One thread at a time, the holder of the turn. Knows nothing about who asks.
"""

import logging
import os
import threading
from pathlib import Path
from typing import Any

from appliance.clock import monotonic_s
from appliance.errors import BadInput, TooLarge, Unavailable
from appliance.providers import gguf, memory_room
from appliance.providers.llama_library import library

LOG = logging.getLogger(__name__)
# Measured for all-MiniLM-L6-v2: 9.5 ms a short text with these, 25 with llama.cpp's own choice.
MAX_TOKENS = 256
MAX_CHARS = 8192  # far more than so many tokens; no need to tokenize a book
THREADS = 1
MB = 1_000_000
SPARE_BYTES = 64_000_000  # its working memory beside the weights


class Encoder:
    """One embedding model, not loaded until it is needed."""

    name = "encoder"

    def __init__(self, path: Path, dimension: int) -> None:
        self.path = path
        self.model = path.stem
        self.header = gguf.read(path)
        if self.header.embedding_length != dimension:
            raise BadInput(
                f"{path.name} makes vectors of {self.header.embedding_length} numbers, models.embedding_dimension is {dimension}",
                hint=f"set models.embedding_dimension = {self.header.embedding_length}, or choose another models.embedding",
            )
        self.dimension = dimension
        self._changed_ns = path.stat().st_mtime_ns
        self._guard = threading.Lock()
        self._ready: _Ready | None = None

    @property
    def is_loaded(self) -> bool:
        """True while the model is in memory."""
        return self._ready is not None

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of the loaded model."""
        return self.header.file_bytes + SPARE_BYTES

    @property
    def longest(self) -> int:
        """Tokens of a text that count: past the positions it was trained for llama.cpp would end the process."""
        return min(MAX_TOKENS, self.header.context_length or MAX_TOKENS)

    def is_fresh(self) -> bool:
        """False when the file was replaced since."""
        try:
            return self.path.stat().st_mtime_ns == self._changed_ns
        except OSError:
            return False

    def embed(self, text: str) -> list[float]:
        """The text's unit vector, `dimension` numbers."""
        with self._guard:
            if self._ready is None:
                free = memory_room.free_bytes()
                if self.memory_bytes > free:
                    what = f"embedding model {self.model} needs about {self.memory_bytes // MB} MB, {free // MB} MB are free"
                    raise TooLarge(what, hint="stop other programs, or choose a smaller language model (owlbox model list)")
                started_s = monotonic_s()
                self._ready = _Ready(self.path, self.longest)
                LOG.info("model loaded", extra={"model": self.model, "ms": round((monotonic_s() - started_s) * 1000)})
            return self._ready.embed(text, self.dimension)

    def close(self) -> None:
        """Give the memory back."""
        with self._guard:
            if self._ready is not None:
                self._ready.close()
                self._ready = None


class _Ready:
    """What exists only while the model is in memory."""

    def __init__(self, path: Path, longest: int) -> None:
        self._longest = longest
        self._library = library()
        self._api: Any = self._library.api
        self._library.complaints.clear()
        self._model = self._api.llama_model_load_from_file(os.fsencode(path), self._api.llama_model_default_params())
        if not self._model:
            raise Unavailable(f"llama.cpp cannot load {path.name}: {self._last_complaint()}", hint="owlbox model add minilm")
        self._vocabulary = self._api.llama_model_get_vocab(self._model)
        settings = self._api.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = longest
        settings.n_seq_max = 1
        settings.n_threads = settings.n_threads_batch = THREADS
        settings.flash_attn_type = self._api.LLAMA_FLASH_ATTN_TYPE_ENABLED
        settings.embeddings = settings.no_perf = True
        settings.pooling_type = self._api.LLAMA_POOLING_TYPE_MEAN
        self._context = self._api.llama_init_from_model(self._model, settings)
        if not self._context:
            self._api.llama_model_free(self._model)
            raise Unavailable(
                f"no memory for the embedding model {path.name}: {self._last_complaint()}", hint="stop other programs"
            )
        self._batch = self._api.llama_batch_init(longest, 0, 1)

    def close(self) -> None:
        self._api.llama_batch_free(self._batch)
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)

    def embed(self, text: str, dimension: int) -> list[float]:
        tokens = self._tokenize_text(text)
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        code = int(self._api.llama_encode(self._context, batch))
        if code:
            raise Unavailable(f"llama.cpp could not embed {len(tokens)} tokens (code {code}): {self._last_complaint()}")
        found = self._api.llama_get_embeddings_seq(self._context, 0)
        values = [float(found[i]) for i in range(dimension)]
        length = sum(v * v for v in values) ** 0.5
        return [v / length for v in values] if length > 0 else values

    def _tokenize_text(self, text: str) -> list[int]:
        """The tokens of a text with their frame; too many are cut before the closing one."""
        data = text[:MAX_CHARS].encode("utf-8", "replace")
        out = (self._api.llama_token * (len(data) + 8))()
        count = int(self._api.llama_tokenize(self._vocabulary, data, len(data), out, len(out), True, False))
        found = list(out[: max(0, count)])
        return found if len(found) <= self._longest else [*found[: self._longest - 1], found[-1]]

    def _last_complaint(self) -> str:
        return self._library.complaints[-1][:200] if self._library.complaints else "no reason given"
