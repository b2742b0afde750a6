"""Embedding: texts as unit vectors on our own llama.cpp, loaded when needed, in the gaps."""

import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_broker import TOKEN, started
from test_gguf import model as tiny_model

from appliance.clock import CancelToken
from appliance.errors import BadInput, Cancelled, NotFound, Unavailable
from appliance.models import catalogue
from appliance.models.client import Models as Client
from appliance.models.pool import Pool, find_encoder
from appliance.providers.encoder import Encoder
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, ModelSettings
from appliance.service.broker_process import ExternalBroker

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the embedding model alone."""
    made = Home(tmp_path_factory.mktemp("encoder-home"))
    catalogue.add(made, "minilm", lambda stage, done, total: None)
    made.config.write_text("", encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def encoder(home: Home) -> Iterator[Encoder]:
    made = Encoder(find_encoder(home, ""), 384)
    yield made
    made.close()


def likeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.covers("B-091")
def test_a_text_is_a_unit_vector_and_meaning_is_nearness(encoder: Encoder) -> None:
    cat, kitten, tax = (encoder.embed(t) for t in ("A cat sits on the mat.", "A kitten is on the rug.", "The tax is due in May."))
    assert len(cat) == 384 and likeness(cat, cat) == pytest.approx(1)
    assert likeness(cat, kitten) > 0.5 > 0.3 > likeness(cat, tax)
    assert encoder.embed("A cat sits on the mat.") == cat


@pytest.mark.parametrize("text", ["", " ", "\x00", "🦉" * 50, "x" * 100_000, "owl " * 5000, "\ud800"])
def test_odd_texts_have_a_vector_too(encoder: Encoder, text: str) -> None:
    assert likeness(encoder.embed(text), encoder.embed(text)) == pytest.approx(1)


def test_what_is_over_the_limit_does_not_count(encoder: Encoder) -> None:
    start = "owl " * 400
    assert encoder.embed(start + "tax office") == encoder.embed(start + "garden")


def test_a_text_is_cut_to_what_the_model_was_trained_for(home: Home, tmp_path: Path) -> None:
    data = bytearray(find_encoder(home, "").read_bytes())
    place = data.index(b"bert.context_length") + len(b"bert.context_length") + 4
    assert struct.unpack_from("<I", data, place) == (512,)
    struct.pack_into("<I", data, place, 16)
    path = tmp_path / "short.gguf"
    path.write_bytes(data)
    assert Encoder(path, 384).longest == 16 and Encoder(find_encoder(home, ""), 384).longest == 256


@pytest.mark.covers("B-091")
def test_nothing_is_loaded_before_the_first_text_nor_for_none(home: Home) -> None:
    pool = Pool(home, Config())
    assert pool.embed([], CancelToken()) == ("", []) and pool.status()["embedding"] == ""
    model, vectors = pool.embed(["owl"], CancelToken())
    assert model == "all-MiniLM-L6-v2.Q8_0" and len(vectors[0]) == 384
    assert pool.status()["embedding"] == "all-MiniLM-L6-v2.Q8_0"
    pool.close()


@pytest.mark.covers("B-095")
def test_another_length_than_configured_is_refused_with_both(home: Home) -> None:
    with pytest.raises(BadInput, match="384 numbers, models.embedding_dimension is 768") as caught:
        Pool(home, Config(models=ModelSettings(embedding_dimension=768))).embed(["owl"], CancelToken())
    assert "models.embedding_dimension = 384" in caught.value.hint


def test_a_missing_model_says_how_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "chat.gguf").write_bytes(tiny_model())
    with pytest.raises(Unavailable, match="no embedding model in") as caught:
        Pool(Home(tmp_path), Config()).embed(["owl"], CancelToken())
    assert caught.value.hint == "owlbox model add minilm"


def test_a_name_chooses_among_several(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path)
    other.models.mkdir()
    (path,) = home.models.glob("*.gguf")
    for name in ("first.gguf", "second.gguf"):
        os.link(path, other.models / name)
    assert find_encoder(other, "second").name == find_encoder(other, "SEC").name == "second.gguf"
    with pytest.raises(NotFound, match="no embedding model third"):
        find_encoder(other, "third")


def test_a_stopped_batch_ends_between_two_texts(home: Home) -> None:
    pool, cancel = Pool(home, Config()), CancelToken()
    pool.embed(["warm"], CancelToken())
    threading.Timer(0.05, cancel.set).start()
    with pytest.raises(Cancelled):
        pool.embed(["owl " * 200] * 5000, cancel, is_background=True)
    pool.close()


@pytest.mark.covers("B-095")
def test_the_core_asks_the_broker_for_vectors(home: Home) -> None:
    with started(home, OWLBOX_TOKEN=TOKEN) as running:
        client = Client(ExternalBroker(running.socket, TOKEN))
        assert client.embed([]).vectors == [] and client.status()["embedding"] == ""
        made = client.embed([f"owl number {n}" for n in range(300)], is_background=True)
        assert made.model == client.status()["embedding"] == "all-MiniLM-L6-v2.Q8_0"
        assert len(made.vectors) == 300 and {len(v) for v in made.vectors} == {384}
        with running.client() as raw, pytest.raises(BadInput, match="257 texts at once"):
            raw.call("embed", {"texts": ["x"] * 257})
