"""How much a model can be left to decide."""

import json
import os
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home

from appliance.models.tiers import Measured, Tiers
from appliance.records import Route

__all__ = ["model_file", "model_home"]

LOCAL = Route("local", "llama", "SmolLM2-135M-Instruct.Q4_1", 8192, "grammar")


def test_remote_models_and_scripts_are_able(tmp_path: Path) -> None:
    tiers = Tiers(tmp_path, lambda: "auto")
    assert tiers.of(Route("far", "openai", "x", 8192, "native", is_remote=True)) == "able"
    assert tiers.of(Route("local", "scripted", "x", 8192, "grammar")) == "able"


def test_the_configured_tier_holds_for_local_models_alone(tmp_path: Path) -> None:
    tiers = Tiers(tmp_path, lambda: "tiny")
    assert tiers.of(LOCAL) == "tiny" and tiers.of(Route("local", "scripted", "x", 8192, "grammar")) == "tiny"
    assert tiers.of(Route("far", "openai", "x", 8192, "native")) == "able"


@pytest.mark.model
def test_the_bundled_model_is_tiny_until_something_else_was_measured(tmp_path: Path, model_file: Path) -> None:
    path = tmp_path / f"{LOCAL.model}.gguf"
    path.symlink_to(model_file)
    tiers = Tiers(tmp_path, lambda: "auto")
    assert tiers.of(LOCAL) == "tiny"
    assert tiers.of_file(path) == ("tiny", "expected")
    tiers.keep(path, Measured("small", 30))
    again = Tiers(tmp_path, lambda: "auto")
    assert tiers.of(LOCAL) == again.of(LOCAL) == "small" and again.of_file(path) == ("small", "measured")
    assert again.measured(path) == Measured("small", 30)
    assert Tiers(tmp_path, lambda: "able").of_file(path) == ("able", "set")


def test_what_was_measured_of_another_file_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"one")
    tiers = Tiers(tmp_path, lambda: "auto")
    tiers.keep(path, Measured("able"))
    assert tiers.measured(path) == Measured("able")
    path.write_bytes(b"two")
    assert tiers.measured(path) is None
    path.write_bytes(b"one")
    os.utime(path, (1, 1))
    assert tiers.measured(path) == Measured("able"), "the same file, whenever it was written"


@pytest.mark.parametrize("change", [{"version": 1}, {"cpu": "another processor 4"}, {"tier": "great"}, {"calls": "many"}])
def test_what_was_measured_with_other_prompts_or_another_processor_does_not_hold(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"one")
    tiers = Tiers(tmp_path, lambda: "auto")
    tiers.keep(path, Measured("able"))
    known = json.loads((tmp_path / "tiers.json").read_text())
    (tmp_path / "tiers.json").write_text(json.dumps({"a.gguf": known["a.gguf"] | change}))
    assert tiers.measured(path) is None
