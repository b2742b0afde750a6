"""A sentence encoder of the BERT family as it is published (safetensors and vocab.txt), made a GGUF file for llama.cpp.

Runs as a child process, `python -m appliance.models.encoder_conversion FOLDER OUT`, so that nobody else pays for numpy. The same
input gives the same bytes on every machine, so that the result can be pinned by its SHA-256. Matrices become
q8_0, everything else stays float32; texts are pooled by their mean. Knows nothing about where files come
from. Not promised: any other architecture, and reading what the tokenizer of such a model adds of its own.
"""

import json
import math
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from appliance.errors import BadInput, OwlError
from appliance.runtime import paths

Array = NDArray[np.float32]
Entry = tuple[str, bytes]

ALIGNMENT = 32
BLOCK = 32  # items of a q8_0 block, which has one scale
LARGEST_HEAD_BYTES = 16 * 1024 * 1024
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}
# Numbers of the GGUF format: value types, tensor types, kinds of tokens, pooling by the mean.
UINT32, INT32, FLOAT32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_Q8_0 = 0, 8
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
POOL_MEAN = 1
FILE_TYPE_Q8_0, QUANTIZATION_VERSION = 7, 2
WORD_START = "\u2581"  # llama.cpp marks the beginning of a word, BERT its continuation (##)
# What unpacking a damaged file raises.
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, struct.error)
PARTS = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}


def convert(source: Path, target: Path, name: str = "all-MiniLM-L6-v2", licence: str = "apache-2.0") -> None:
    """Write the encoder in folder `source` to `target`, which appears complete and flushed, or not at all."""
    try:
        shape = json.loads((source / "config.json").read_text("utf-8"))
        words = (source / "vocab.txt").read_text("utf-8").removesuffix("\n").split("\n")
        tensors = list(_list_tensors(_read_weights(source / "model.safetensors"), int(shape["num_hidden_layers"])))
        entries = [*_describe_model(shape, name, licence), *_describe_vocabulary(words), *_describe_ending()]
    except DAMAGE as error:
        hint = "it needs model.safetensors, vocab.txt and config.json"
        raise BadInput(f"{source}: not a BERT encoder: {error}", hint=hint) from None
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            for piece in _write_file(entries, tensors):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
        paths.flush(target.parent)
    finally:
        part.unlink(missing_ok=True)


# -- what is read -----------------------------------------------------------------------------------


def _read_weights(path: Path) -> dict[str, Array]:
    """The tensors of a safetensors file; every place in it is checked before it is believed."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else len(data)
    if size > min(LARGEST_HEAD_BYTES, len(data) - 8):
        raise ValueError(f"{path.name}: damaged header")
    found = {}
    for name, facts in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            found[name.removeprefix("bert.")] = _read_weight(name, facts, memoryview(data)[8 + size :])
    return found


def _read_weight(name: str, facts: dict[str, Any], data: memoryview) -> Array:
    if facts["dtype"] not in DTYPES:
        if "position_ids" in name:
            return np.zeros(0, np.float32)  # a table of 0, 1, 2 ... that older files carry along
        raise ValueError(f"tensor {name} has type {facts['dtype']}")
    dtype, (start, end) = DTYPES[facts["dtype"]], facts["data_offsets"]
    if not 0 <= start <= end <= len(data) or end - start != math.prod(facts["shape"]) * dtype.itemsize:
        raise ValueError(f"tensor {name} lies outside the file")
    flat: Array = np.frombuffer(data[start:end], dtype=dtype).astype(np.float32)
    if not np.isfinite(flat).all():
        raise ValueError(f"tensor {name} has values that are no numbers")
    return flat.reshape(facts["shape"])


def _list_tensors(weights: dict[str, Array], layers: int) -> Iterator[tuple[str, Array]]:
    """Every tensor under its GGUF name, in the order of the file."""
    yield "token_embd.weight", weights["embeddings.word_embeddings.weight"]
    yield "position_embd.weight", weights["embeddings.position_embeddings.weight"]
    yield "token_types.weight", weights["embeddings.token_type_embeddings.weight"]
    for kind in ("weight", "bias"):
        yield f"token_embd_norm.{kind}", weights[f"embeddings.LayerNorm.{kind}"]
    for layer in range(layers):
        for ours, theirs in PARTS.items():
            for kind in ("weight", "bias"):
                yield f"blk.{layer}.{ours}.{kind}", weights[f"encoder.layer.{layer}.{theirs}.{kind}"]


# -- what is written --------------------------------------------------------------------------------


def _describe_model(shape: dict[str, Any], name: str, licence: str) -> Iterator[Entry]:
    yield _text_entry("general.architecture", "bert")
    yield _text_entry("general.name", name)
    yield _text_entry("general.license", licence)
    for key, value in {
        "context_length": shape["max_position_embeddings"],
        "embedding_length": shape["hidden_size"],
        "feed_forward_length": shape["intermediate_size"],
        "block_count": shape["num_hidden_layers"],
        "attention.head_count": shape["num_attention_heads"],
    }.items():
        yield _number_entry(f"bert.{key}", value)
    yield "bert.attention.layer_norm_epsilon", struct.pack("<If", FLOAT32, shape["layer_norm_eps"])
    yield "bert.attention.causal", struct.pack("<I?", BOOL, False)
    yield _number_entry("bert.pooling_type", POOL_MEAN)


def _describe_vocabulary(words: list[str]) -> Iterator[Entry]:
    at = {word: i for i, word in enumerate(words)}
    tokens = b"".join(_pack_text(_convert_token(word)) for word in words)
    kinds = struct.pack(f"<{len(words)}i", *map(_token_kind, words))
    yield _text_entry("tokenizer.ggml.model", "bert")
    yield "tokenizer.ggml.tokens", struct.pack("<IIQ", ARRAY, TEXT, len(words)) + tokens
    yield "tokenizer.ggml.token_type", struct.pack("<IIQ", ARRAY, INT32, len(words)) + kinds
    yield _number_entry("tokenizer.ggml.token_type_count", 2)
    # "seperator" is how the format spells it.
    special = {"bos": "[CLS]", "seperator": "[SEP]", "eos": "[SEP]", "padding": "[PAD]", "unknown": "[UNK]", "mask": "[MASK]"}
    for name, word in special.items():
        yield _number_entry(f"tokenizer.ggml.{name}_token_id", at[word])
    yield _text_entry("tokenizer.ggml.pre", "default")


def _describe_ending() -> Iterator[Entry]:
    yield _number_entry("general.file_type", FILE_TYPE_Q8_0)
    yield _number_entry("general.quantization_version", QUANTIZATION_VERSION)


def _convert_token(word: str) -> str:
    if word.startswith("[") and word.endswith("]") and len(word) > 2:
        return word
    return word[2:] if word.startswith("##") else WORD_START + word


def _token_kind(word: str) -> int:
    if word in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"):
        return CONTROL
    if word == "[UNK]":
        return UNKNOWN
    return UNUSED if word.startswith("[unused") else NORMAL


def _write_file(entries: list[Entry], tensors: list[tuple[str, Array]]) -> Iterator[bytes]:
    """The whole file, in pieces: header, entries, where each tensor lies, the tensors."""
    infos, blobs, offset = [], [], 0
    for name, array in tensors:
        is_matrix = array.ndim > 1 and not name.startswith(("position_embd", "token_types"))
        kind, blob = (TYPE_Q8_0, quantized(array)) if is_matrix else (TYPE_F32, array.astype("<f4").tobytes())
        dimensions = struct.pack(f"<{array.ndim}Q", *reversed(array.shape))
        infos.append(_pack_text(name) + struct.pack("<I", array.ndim) + dimensions + struct.pack("<IQ", kind, offset))
        blobs.append(_pad_data(blob))
        offset += len(blobs[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    yield _pad_data(head + b"".join(_pack_text(key) + value for key, value in entries) + b"".join(infos))
    yield from blobs


def quantized(array: Array) -> bytes:
    """A matrix as q8_0: for each 32 items in a row one half-precision scale, then 32 signed bytes."""
    if array.shape[-1] % BLOCK:
        raise ValueError(f"rows of {array.shape[-1]} items cannot be cut into blocks of {BLOCK}")
    blocks = array.reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    # A block whose scale has no inverse in 32 bits is as good as zero.
    inverse = np.zeros_like(scale)
    np.divide(np.float32(1), scale, out=inverse, where=scale >= np.finfo(np.float32).tiny)
    scaled = blocks * inverse
    size = np.abs(scaled)
    whole = np.floor(size)
    rounded = np.sign(scaled) * (whole + np.floor(2 * (size - whole)))  # halves go away from zero
    return np.concatenate([scale.astype("<f2").view(np.uint8), rounded.astype(np.int8).view(np.uint8)], axis=1).tobytes()


def _pack_text(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _text_entry(key: str, value: str) -> Entry:
    return key, struct.pack("<I", TEXT) + _pack_text(value)


def _number_entry(key: str, value: int) -> Entry:
    return key, struct.pack("<II", UINT32, value)


def _pad_data(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGNMENT)


def main(words: list[str]) -> int:
    """Convert FOLDER to OUT; errors are one line on standard error."""
    if len(words) != 2:
        print("usage: python -m appliance.models.encoder_conversion FOLDER OUT", file=sys.stderr)
        return 2
    try:
        convert(Path(words[0]), Path(words[1]))
    except (OwlError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
