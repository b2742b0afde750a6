"""A sentence encoder becomes a GGUF file: the same bytes every time, its values kept, and damage is refused."""

import hashlib
import json
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput
from appliance.models import catalogue, encoder_conversion
from appliance.providers import gguf
from appliance.runtime.paths import Home

PACKAGE = Path(__file__).parents[2]
WORDS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "owl", "##s", "[", "!"]
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "layer_norm_eps": 1e-12,
}


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """A tiny encoder with reproducible values."""
    random, h, f = np.random.default_rng(7), SHAPE["hidden_size"], SHAPE["intermediate_size"]
    sizes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), h),
        "embeddings.position_embeddings.weight": (16, h),
        "embeddings.token_type_embeddings.weight": (2, h),
        "embeddings.LayerNorm.weight": (h,),
        "embeddings.LayerNorm.bias": (h,),
    }
    rows = {"intermediate.dense": (f, h), "output.dense": (h, f)}
    for part in encoder_conversion.PARTS.values():
        shape = (h,) if "LayerNorm" in part else rows.get(part, (h, h))
        sizes[f"encoder.layer.0.{part}.weight"] = shape
        sizes[f"encoder.layer.0.{part}.bias"] = shape[:1]
    return {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}


def safetensors(tensors: dict[str, np.ndarray[Any, Any]]) -> bytes:
    head, data = {}, b""
    for name, array in tensors.items():
        facts = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        head[name], data = facts, data + array.tobytes()
    packed = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    return struct.pack("<Q", len(packed)) + packed + data


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder as such a model is published."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(safetensors(weights()))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "config.json").write_text(json.dumps(SHAPE))
    return folder


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "appliance.models.encoder_conversion", *words]
    return subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, timeout=180)


def test_the_child_makes_a_complete_file_and_the_same_one_again(source: Path, tmp_path: Path) -> None:
    for name in ("one.gguf", "two.gguf"):
        done = run(str(source), str(tmp_path / name))
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "one.gguf").read_bytes() == (tmp_path / "two.gguf").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.gguf", "source", "two.gguf"]
    header = gguf.read(tmp_path / "one.gguf")
    assert (header.architecture, header.name, header.licence) == ("bert", "all-MiniLM-L6-v2", "apache-2.0")
    assert (header.context_length, header.embedding_length, header.head_count, header.vocabulary_size) == (16, 32, 4, len(WORDS))
    assert header.file_bytes == header.expected_bytes + -header.expected_bytes % 32


def test_matrices_are_quantised_and_the_rest_is_kept_exactly(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "owl.gguf"
    encoder_conversion.convert(source, out)
    header, plain = gguf.read(out), weights()
    data = out.read_bytes()
    start = len(data) - max(t.offset + (t.size_bytes or 0) + -(t.size_bytes or 0) % 32 for t in header.tensors)
    kinds = {t.name: t.type for t in header.tensors}
    assert kinds["token_embd.weight"] == kinds["blk.0.ffn_up.weight"] == 8
    assert kinds["position_embd.weight"] == kinds["token_types.weight"] == kinds["blk.0.attn_q.bias"] == 0
    assert len(kinds) == 5 + 2 * len(encoder_conversion.PARTS)
    at = {t.name: (start + t.offset, t.size_bytes or 0) for t in header.tensors}
    where, size = at["position_embd.weight"]
    assert data[where : where + size] == plain["embeddings.position_embeddings.weight"].tobytes()
    where, size = at["token_embd.weight"]
    assert data[where : where + size] == encoder_conversion.quantized(plain["embeddings.word_embeddings.weight"])


def test_words_are_marked_as_llama_cpp_wants_them() -> None:
    assert [encoder_conversion._convert_token(w) for w in WORDS] == [
        "[PAD]",
        "[unused0]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "▁owl",
        "s",
        "▁[",
        "▁!",
    ]
    assert [encoder_conversion._token_kind(w) for w in WORDS] == [3, 5, 2, 3, 3, 3, 1, 1, 1, 1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=32, max_size=32))
def test_a_block_comes_back_within_half_a_step(values: list[float]) -> None:
    array = np.array([values], dtype=np.float32)
    packed = encoder_conversion.quantized(array)
    assert len(packed) == 34
    step = np.frombuffer(packed[:2], "<f2").astype(np.float32)[0]
    back = np.frombuffer(packed[2:], np.int8).astype(np.float32) * step
    largest = np.abs(array).max()
    # Half a step, and what half precision does to the step itself.
    assert np.abs(back - array).max() <= largest / 254 * 1.01 + largest / 1000 + 1e-5


def test_a_zero_block_stays_zero() -> None:
    assert encoder_conversion.quantized(np.zeros((2, 32), np.float32)) == bytes(68)


def big(source: Path) -> None:
    (source / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")


def rewrite(source: Path, old: bytes, new: bytes) -> None:
    path = source / "model.safetensors"
    data = path.read_bytes()
    assert len(old) == len(new) and old in data
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize(
    "damage",
    [
        big,
        lambda s: (s / "model.safetensors").write_bytes(b"ab"),
        lambda s: (s / "model.safetensors").unlink(),
        lambda s: (s / "vocab.txt").write_bytes(b"\xff\xfe"),
        lambda s: (s / "vocab.txt").write_text("owl\n"),
        lambda s: (s / "config.json").write_text("[1]"),
        lambda s: (s / "config.json").write_text(json.dumps({**SHAPE, "num_hidden_layers": 2})),
        lambda s: (s / "model.safetensors").write_bytes((s / "model.safetensors").read_bytes()[:-4]),
        lambda s: rewrite(s, b'"F32"', b'"I64"'),
        lambda s: rewrite(s, b"[10, 32]", b"[10, 33]"),
        lambda s: (s / "model.safetensors").write_bytes(
            safetensors({**weights(), "embeddings.LayerNorm.bias": np.full(32, math.nan, np.float32)})
        ),
    ],
    ids=["head", "tiny", "gone", "bytes", "no [CLS]", "list", "layers", "short", "type", "shape", "nan"],
)
def test_damage_is_one_line_and_leaves_nothing(source: Path, tmp_path: Path, damage: Any) -> None:
    damage(source)
    with pytest.raises(BadInput, match="not a BERT encoder"):
        encoder_conversion.convert(source, tmp_path / "owl.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_the_child_says_what_is_wrong(tmp_path: Path) -> None:
    done = run(str(tmp_path), str(tmp_path / "x.gguf"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "model.safetensors" in done.stderr
    assert run("one").returncode == 2


@pytest.mark.model
def test_the_real_model_is_the_pinned_file_and_knows_what_is_alike(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = Home(tmp_path_factory.mktemp("encoder-home"))
    path = catalogue.add(home, "minilm", lambda stage, done, total: None)
    entry = catalogue.entries()["minilm"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256 and path.stat().st_size == entry.size_bytes
    found = catalogue.find(home, "minilm")
    assert (found.kind, found.is_installed, found.problem) == ("embedding", True, "")
    program = (
        "import json, sys, llama_cpp\n"
        "model = llama_cpp.Llama(sys.argv[1], embedding=True, flash_attn=True, n_ctx=256, n_batch=256, n_ubatch=256,\n"
        "                        n_threads=1, verbose=False)\n"
        "print(json.dumps([model.embed(text, normalize=True) for text in sys.argv[2:]]))\n"
    )
    texts = ["a cat sits on the mat", "a kitten is on the rug", "the stock market fell sharply today"]
    said = subprocess.run([sys.executable, "-c", program, str(path), *texts], capture_output=True, text=True, timeout=120)
    cat, kitten, market = (np.array(v) for v in json.loads(said.stdout))
    assert cat.shape == (384,)
    assert float(cat @ kitten) > 0.5 > 0.2 > float(cat @ market)
