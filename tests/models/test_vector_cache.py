"""Vectors that are known already: a text is embedded once, by the model that is there now, and not all are kept."""

from pathlib import Path
from typing import Any

import pytest
from test_client import broker, models

from appliance.models.client import LONGEST, VectorCache
from appliance.runtime.methods import method
from appliance.runtime.rpc_server import ServedCall


class Encoder:
    """A broker that makes vectors, and counts of what; `model` may be changed."""

    def __init__(self) -> None:
        self.model = "first"
        self.asked: list[str] = []

    @method("embed", is_long=True)
    def embed(self, call: ServedCall, texts: list[str], is_background: bool = False, deadline_s: float = 60) -> dict[str, Any]:
        """The length of each text, and which model it is."""
        self.asked += texts
        return {"model": self.model, "vectors": [[float(len(text)), float(len(self.model))] for text in texts]}


@pytest.fixture
def encoder(path: Path) -> Any:
    made = Encoder()
    listener = broker(path, made)  # type: ignore[arg-type]
    yield made
    listener.close()


@pytest.fixture
def path(runtime: Path) -> Path:
    return runtime / "broker.sock"


def test_a_question_is_embedded_once_whoever_asks(path: Path, encoder: Encoder) -> None:
    known = VectorCache()
    first, second = models(path, known=known), models(path, known=known)
    assert first.embed(["owl"]).vectors == [[3.0, 5.0]]
    made = second.embed(["barn", "owl", "barn"])
    assert made.model == "first" and [list(one) for one in made.vectors] == [[4.0, 5.0], [3.0, 5.0], [4.0, 5.0]]
    assert encoder.asked == ["owl", "barn"]


def test_background_work_leaves_nothing_behind_and_uses_nothing(path: Path, encoder: Encoder) -> None:
    client = models(path)
    client.embed(["owl"])
    assert client.embed(["owl", "barn"], is_background=True).vectors == [[3.0, 5.0], [4.0, 5.0]]
    client.embed(["barn"])
    assert encoder.asked == ["owl", "owl", "barn", "barn"]


def test_vectors_of_two_models_are_never_mixed(path: Path, encoder: Encoder) -> None:
    client = models(path)
    client.embed(["owl"])
    encoder.model = "another"
    made = client.embed(["owl", "barn"])
    assert made.model == "another" and [list(one) for one in made.vectors] == [[3.0, 7.0], [4.0, 7.0]]
    encoder.model = "a third"
    client.embed(["anything"], is_background=True)  # which tells that there is another one
    assert [list(one) for one in client.embed(["owl"]).vectors] == [[3.0, 7.0]] and encoder.asked[-1] == "owl"


def test_the_texts_asked_for_last_are_kept() -> None:
    cache = VectorCache(2)
    cache.keep("m", {"a": [1.0], "b": [2.0]})
    assert cache.find(["a"])[1].keys() == {"a"}
    cache.keep("m", {"c": [3.0], "x" * (LONGEST + 1): [4.0]})
    model, found = cache.find(["a", "b", "c", "x" * (LONGEST + 1)])
    assert model == "m" and {text: list(vector) for text, vector in found.items()} == {"a": [1.0], "c": [3.0]}
