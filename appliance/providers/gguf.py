"""Reads the head of a GGUF model file: what it is, how much memory it wants, and whether all of it is there.

llama.cpp ends the process on some damaged files, so this module looks first. Bounded reads only (a
memory map would turn a bad SD card into SIGBUS), and every length is checked against the file before it
is believed. Knows nothing about llama.cpp. Not promised: that the tensors' contents are sound; only a
SHA-256 can say that.
"""

import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from appliance.errors import BadInput

MAGIC = b"GGUF"
MAX_HEAD_BYTES = 128 * 1024 * 1024  # the largest vocabularies need about 20 MB
MAX_ENTRIES = 65_536  # metadata keys, and tensors; real files have a few hundred
MAX_KEPT_BYTES = 1024 * 1024  # of one text; chat templates are the largest we keep
MAX_KEPT_ITEMS = 1024  # of one array; per-layer head counts are the largest we keep
MAX_SHOWN = 120
TEXTS_BYTES = 1 << 16  # read at once of texts that are left out
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, ARRAY = 8, 9
# ggml tensor types: items per block, bytes per block (ggml.c, type_traits).
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
KV_ITEM_BYTES = 2  # keys and values are kept as f16
LARGEST_WINDOW = 8192  # more is used only when models.context asks for it
SMALLEST_WINDOW, WINDOW_STEP = 512, 256
BATCH = 256  # the largest prefill chunk; llama.cpp's 512 would reserve twice the memory for nothing
CACHE_PARTS = {"f16": 1.0, "q8_0": 34 / 64}  # size of the cache, as a part of 16 bits an item
DOWNLOAD_AGAIN = "download it again: owlbox model add smollm2"


class Tensor(Struct, frozen=True):
    """One tensor's place in the file; `size_bytes` is None for a type we do not know."""

    name: str
    type: int
    offset: int
    size_bytes: int | None


class Header(Struct, frozen=True):
    """What a model file says about itself. Counts are 0 where the file is silent."""

    path: Path
    version: int
    architecture: str
    name: str
    licence: str
    context_length: int
    block_count: int
    embedding_length: int
    feed_forward_length: int
    head_count: int
    kv_heads: tuple[int, ...]
    key_length: int
    value_length: int
    vocabulary_size: int
    chat_template: str
    tensors: tuple[Tensor, ...]
    file_bytes: int
    expected_bytes: int

    def memory_bytes(self, context: int, batch: int = 512) -> int:
        """Estimated memory of the loaded model: weights, keys and values for `context` tokens, compute buffer."""
        return self.file_bytes + self.token_bytes * context + self._compute_bytes(context, batch)

    def needed_bytes(self, window: int, cache_type: str) -> int:
        """The same with the cache kept as `cache_type`, as the local model loads it."""
        return self.memory_bytes(window, BATCH) - round(self.token_bytes * window * (1 - CACHE_PARTS[cache_type]))

    def choose_window(self, asked: int, cache_type: str, limit_bytes: int) -> int:
        """The largest window within the model's training, ours and the memory; the asked-for one if given."""
        trained = self.context_length or LARGEST_WINDOW
        if asked:
            return min(asked, trained)
        window = min(trained, LARGEST_WINDOW)
        while window > SMALLEST_WINDOW and self.needed_bytes(window, cache_type) > limit_bytes:
            window -= WINDOW_STEP
        return max(window, min(trained, SMALLEST_WINDOW))

    @property
    def parameters(self) -> int:
        """The number of parameters in the tensors of known types."""
        known = (tensor for tensor in self.tensors if tensor.size_bytes is not None and tensor.type in BLOCKS)
        return sum((tensor.size_bytes or 0) // BLOCKS[tensor.type][1] * BLOCKS[tensor.type][0] for tensor in known)

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values that one token of context costs."""
        heads = sum(self.kv_heads) if len(self.kv_heads) > 1 else self.kv_heads[0] * self.block_count
        return heads * (self.key_length + self.value_length) * KV_ITEM_BYTES

    def _compute_bytes(self, context: int, batch: int) -> int:
        # Logits of a whole batch, or one layer's widest intermediate results plus the attention mask,
        # whichever is larger (llama.cpp plans for the worst); measured within 20 % on SmolLM2.
        logits = batch * self.vocabulary_size * 4
        layer = batch * 4 * (3 * self.feed_forward_length + 6 * self.embedding_length) + batch * context * 6
        return max(logits, layer) + batch * self.embedding_length * 8


def read(path: Path) -> Header:
    """The header of a complete GGUF file, read once as long as the file is the same; BadInput says what is wrong with any other."""
    try:
        found = path.stat()
    except OSError:
        return _read_file(path, 0, 0)  # which says what is wrong
    return _read_file(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=8)
def _read_file(path: Path, size: int, mtime_ns: int) -> Header:
    try:
        with path.open("rb", buffering=1 << 18) as file:
            return _HeaderReader(file, path).header()
    except OSError as error:
        raise BadInput(
            f"{path.name}: cannot be read: {error.strerror or error}", hint="check the file and its permissions"
        ) from None


class _HeaderReader:
    """Reads forward through one file and never past its end or the limits above."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = file.seek(0, 2)
        self._at = file.seek(0)

    def header(self) -> Header:
        """Everything we want to know, in file order."""
        if self._size < 24 or self._take_bytes(4) != MAGIC:
            raise self._describe_wrong("not a GGUF file", "models are .gguf files; owlbox model list shows the known ones")
        version = self._read_number("<I")
        if version not in (2, 3):
            kind = "big-endian" if version in (2 << 24, 3 << 24) else f"version {version}"
            raise self._describe_wrong(f"GGUF {kind} is not supported, only versions 2 and 3")
        tensor_count, entry_count = self._read_number("<Q"), self._read_number("<Q")
        if tensor_count > MAX_ENTRIES or entry_count > MAX_ENTRIES:
            raise self._describe_wrong(f"damaged header: {tensor_count} tensors and {entry_count} keys are claimed")
        facts: dict[str, Any] = {}
        for _ in range(entry_count):
            key = self._read_text()
            facts[key] = self._read_value(self._read_number("<I"))
        tensors = tuple(self._read_tensor() for _ in range(tensor_count))
        return self._check_header(version, facts, tensors)

    def _check_header(self, version: int, facts: dict[str, Any], tensors: tuple[Tensor, ...]) -> Header:
        architecture = facts.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise self._describe_wrong("the header names no architecture")
        expected = self._expected_bytes(facts.get("general.alignment", 32), tensors)
        if self._size < expected:
            raise self._describe_wrong(f"truncated: {self._size} of {expected} bytes")

        def number(key: str, default: int = 0) -> int:
            value = facts.get(f"{architecture}.{key}", default)
            if isinstance(value, tuple):
                value = max(value, default=default)
            return value if isinstance(value, int) and 0 <= value < 1 << 31 else default

        heads = number("attention.head_count")
        per_head = number("embedding_length") // heads if heads else 0
        kv = facts.get(f"{architecture}.attention.head_count_kv", heads)
        return Header(
            path=self._path,
            version=version,
            architecture=architecture,
            name=_printable_word(facts.get("general.name")) or self._path.stem,
            licence=_printable_word(facts.get("general.license")),
            context_length=number("context_length"),
            block_count=number("block_count"),
            embedding_length=number("embedding_length"),
            feed_forward_length=number("feed_forward_length"),
            head_count=heads,
            kv_heads=tuple(n for n in kv if isinstance(n, int)) or (0,)
            if isinstance(kv, tuple)
            else (number("attention.head_count_kv", heads),),
            key_length=number("attention.key_length", per_head),
            value_length=number("attention.value_length", per_head),
            vocabulary_size=number("vocab_size") or facts.get("tokenizer.ggml.tokens", _Skipped(0)).count,
            chat_template=facts["tokenizer.chat_template"] if isinstance(facts.get("tokenizer.chat_template"), str) else "",
            tensors=tensors,
            file_bytes=self._size,
            expected_bytes=expected,
        )

    def _expected_bytes(self, alignment: Any, tensors: tuple[Tensor, ...]) -> int:
        """Bytes the file must have for its tensors of known type to be complete."""
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
            raise self._describe_wrong(f"damaged header: alignment {alignment!r}")
        start = (self._at + alignment - 1) // alignment * alignment
        return max((start + t.offset + t.size_bytes for t in tensors if t.size_bytes is not None), default=self._at)

    def _read_tensor(self) -> Tensor:
        name, rank = self._read_text(), self._read_number("<I")
        if rank > 8:
            raise self._describe_wrong(f"damaged header: tensor {name[:MAX_SHOWN]!r} has {rank} dimensions")
        items = 1
        for _ in range(rank):
            items *= self._read_number("<Q")
        kind, offset = self._read_number("<I"), self._read_number("<Q")
        per_block, block_bytes = BLOCKS.get(kind, (1, 0))
        size = -(-items // per_block) * block_bytes if kind in BLOCKS else None
        return Tensor(name, kind, offset, size)

    def _read_value(self, kind: int, depth: int = 0) -> Any:
        if kind in SCALARS:
            return self._read_number(SCALARS[kind])
        if kind == TEXT:
            return self._read_text()
        if kind != ARRAY or depth > 1:
            raise self._describe_wrong(f"damaged header: value type {kind}")
        item, count = self._read_number("<I"), self._read_number("<Q")
        least = struct.calcsize(SCALARS[item]) if item in SCALARS else 8
        if count * least > self._size - self._at:
            raise self._describe_short(count * least)
        if item in SCALARS and count > MAX_KEPT_ITEMS:
            self._skip_bytes(count * least)
            return _Skipped(count)
        if item == TEXT:
            self._skip_texts(count)
            return _Skipped(count)
        if count > MAX_KEPT_ITEMS:
            raise self._describe_wrong(f"damaged header: {count} values of type {item}")
        return tuple(self._read_value(item, depth + 1) for _ in range(count))

    def _skip_texts(self, count: int) -> None:
        """Go past so many texts. A vocabulary has 100,000: their sizes are taken out of blocks, with one call for each."""
        size_of = struct.Struct("<Q").unpack_from
        while count:
            block, at = self._file.read(TEXTS_BYTES), 0
            last = len(block) - 8
            while count and at <= last:
                at += 8 + size_of(block, at)[0]
                count -= 1
            if not at:
                raise self._describe_short(8)
            self._file.seek(self._at)
            self._skip_bytes(at)

    def _read_text(self) -> str:
        size = self._read_number("<Q")
        if size > MAX_KEPT_BYTES:
            if size > self._size - self._at:
                raise self._describe_short(size)
            raise self._describe_wrong(f"damaged header: a text of {size} bytes")
        return self._take_bytes(size).decode("utf-8", "replace")

    def _read_number(self, form: str) -> Any:
        return struct.unpack(form, self._take_bytes(struct.calcsize(form)))[0]

    def _take_bytes(self, size: int) -> bytes:
        if size > self._size - self._at:
            raise self._describe_short(size)
        if self._at + size > MAX_HEAD_BYTES:
            raise self._describe_wrong(f"damaged header: longer than {MAX_HEAD_BYTES} bytes")
        data = self._file.read(size)
        if len(data) != size:
            raise self._describe_short(size)
        self._at += size
        return data

    def _skip_bytes(self, size: int) -> None:
        if size > self._size - self._at:
            raise self._describe_short(size)
        if self._at + size > MAX_HEAD_BYTES:
            raise self._describe_wrong(f"damaged header: longer than {MAX_HEAD_BYTES} bytes")
        self._at = self._file.seek(self._at + size)

    def _describe_short(self, size: int) -> BadInput:
        return self._describe_wrong(f"truncated: {self._size} of at least {self._at + size} bytes")

    def _describe_wrong(self, what: str, hint: str = DOWNLOAD_AGAIN) -> BadInput:
        return BadInput(f"{self._path.name}: {what}", hint=hint)


class _Skipped(Struct, frozen=True):
    """An array too long to keep: only its length is known."""

    count: int


def _printable_word(value: Any) -> str:
    """A short line of printable text, or ""."""
    return "".join(c for c in value if c.isprintable())[:MAX_SHOWN].strip() if isinstance(value, str) else ""
