"""A model file is judged by its header, before llama.cpp sees it."""

import struct
import tracemalloc
from cProfile import Profile
from pathlib import Path
from pstats import Stats

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput
from appliance.providers import gguf


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def number(key: str, value: int) -> bytes:
    return entry(key, 4, struct.pack("<I", value))


def tensor(name: str, items: int, kind: int, offset: int) -> bytes:
    return text(name) + struct.pack("<IQIQ", 1, items, kind, offset)


def model(*, version: int = 3, extra: list[bytes] | None = None, tensors: list[bytes] | None = None, data: int = 256) -> bytes:
    """A tiny but complete GGUF file."""
    entries = [
        entry("general.architecture", 8, text("llama")),
        entry("general.name", 8, text("Tiny Owl")),
        number("llama.context_length", 4096),
        number("llama.block_count", 2),
        number("llama.embedding_length", 64),
        number("llama.attention.head_count", 8),
        number("llama.attention.head_count_kv", 2),
        entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("b") + text("c")),
        entry("tokenizer.chat_template", 8, text("{{ messages }}")),
        *(extra or []),
    ]
    infos = [tensor("w", 64, 0, 0)] if tensors is None else tensors
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(entries)) + b"".join(entries) + b"".join(infos)
    return head + b"\0" * (-len(head) % 32) + b"\1" * data


def put(folder: Path, data: bytes) -> Path:
    path = folder / "owl.gguf"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_header_of_a_complete_file_is_read(tmp_path: Path, version: int) -> None:
    header = gguf.read(put(tmp_path, model(version=version)))
    assert (header.name, header.architecture, header.context_length, header.block_count) == ("Tiny Owl", "llama", 4096, 2)
    assert (header.head_count, header.kv_heads, header.key_length, header.vocabulary_size) == (8, (2,), 8, 3)
    assert header.chat_template == "{{ messages }}"
    assert header.expected_bytes == header.file_bytes
    assert [t.name for t in header.tensors] == ["w"]


def test_every_truncation_is_named_with_both_sizes(tmp_path: Path) -> None:
    whole = model()
    for size in range(24, len(whole)):
        with pytest.raises(BadInput, match=rf"owl\.gguf: truncated: {size} of (at least )?\d+ bytes") as caught:
            gguf.read(put(tmp_path, whole[:size]))
        assert "owlbox model add" in caught.value.hint


@pytest.mark.parametrize("data", [b"", b"GGUF", b"PK\3\4" + bytes(100), b"<html>" * 20])
def test_other_files_are_not_gguf(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadInput, match="not a GGUF file"):
        gguf.read(put(tmp_path, data))


@pytest.mark.parametrize(
    "data",
    [
        b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63) + bytes(64),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62) + bytes(64),
        model(extra=[entry("x", 9, struct.pack("<IQ", 4, 2**60))]),
        model(extra=[entry("x", 9, struct.pack("<IQ", 9, 2**40))]),
        model(extra=[entry("x", 77, b"")]),
        model(extra=[number("general.alignment", 0)]),
        model(tensors=[tensor("w", 2**60, 0, 2**60)]),
    ],
)
def test_absurd_lengths_are_refused_without_using_memory(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path, data)
    tracemalloc.start()
    with pytest.raises(BadInput):
        gguf.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_byte_never_raises_anything_else(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = bytearray(model())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        gguf.read(put(tmp_path_factory.getbasetemp(), bytes(whole)))
    except BadInput:
        pass


def test_unknown_tensor_type_leaves_only_the_header_checked(tmp_path: Path) -> None:
    header = gguf.read(put(tmp_path, model(tensors=[tensor("w", 64, 999, 0)], data=0)))
    assert header.tensors[0].size_bytes is None


def test_big_endian_and_old_versions_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="big-endian is not supported"):
        gguf.read(put(tmp_path, model(version=3 << 24)))
    with pytest.raises(BadInput, match="version 1 is not supported"):
        gguf.read(put(tmp_path, model(version=1)))


def test_memory_grows_with_the_context(tmp_path: Path) -> None:
    header = gguf.read(put(tmp_path, model()))
    assert header.token_bytes == 2 * 2 * (8 + 8) * 2
    assert header.memory_bytes(4096) - header.memory_bytes(1024) >= 3072 * header.token_bytes


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="none.gguf: cannot be read: No such file"):
        gguf.read(tmp_path / "none.gguf")


def test_a_vocabulary_is_passed_over_with_a_call_a_text_and_read_once(tmp_path: Path) -> None:
    words = b"".join(text(f"word{n}") for n in range(20_000))
    path = put(tmp_path, model(extra=[entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 20_000) + words)]))
    calls = Profile()
    first = calls.runcall(gguf.read, path)
    assert first.vocabulary_size == 20_000 and Stats(calls).total_calls < 25_000  # type: ignore[attr-defined]
    assert gguf.read(path) is first
    path.write_bytes(path.read_bytes() + b"\0")
    assert gguf.read(path) is not first
