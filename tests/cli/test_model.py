"""`owlbox model ...` and the refusal to chat without a model, end to end: real homes, real processes."""

import hashlib
import json
import os
from pathlib import Path
from typing import Literal

import pytest
from model_fixtures import model_home  # noqa: F401
from process import Box, a_box, script  # noqa: F401
from record_tools import replace
from test_gguf import entry, model, put, text

from appliance.models import catalogue, model_info
from appliance.providers.llama import Llama, Options
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, ModelSettings

CacheType = Literal["f16", "q8_0"]


@pytest.fixture(name="box")
def a_box_without_a_script(box: Box) -> Box:
    """A fresh home in which nothing stands in for a model."""
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    return box


def drop(box: Box, name: str, data: bytes | None = None, age: int = 0) -> Path:
    path = box.home.models / name
    path.write_bytes(model() if data is None else data)
    os.utime(path, (1, 1_700_000_000 - age))
    return path


def encoder() -> bytes:
    """A tiny file of an architecture that cannot talk."""
    old, new = (entry("general.architecture", 8, text(name)) for name in ("llama", "bert"))
    return model(data=512).replace(old, new, 1)


# -- list and info ----------------------------------------------------------------------------------


def test_the_list_says_what_fits_and_what_is_in_use(box: Box) -> None:
    drop(box, "old.gguf", age=100)
    drop(box, "new.gguf")
    drop(box, "broken.gguf", model()[:300])
    found = {m["name"]: m for m in box.json("model", "list")}
    assert [n for n, m in found.items() if m["is_in_use"]] == ["new"]
    assert found["minilm"]["kind"] == "embedding" and found["smollm2"]["licence"] == "Apache-2.0"
    assert {m["fits"] for m in found.values()} <= {"yes", "tight", "no"}
    plain = box.run("model", "list").stdout
    assert plain.splitlines()[0].split() == ["model", "kind", "size", "memory", "fits", "calls", "%", "licence", "state"]
    assert "truncated" in plain and "in use" in plain and "qwen3-4b" in plain


def test_info_of_a_dropped_file(box: Box) -> None:
    path = drop(box, "tiny.gguf")
    found = box.json("model", "info", "tiny")
    assert (found["architecture"], found["quantisation"], found["trained_window"], found["window"]) == ("llama", "F32", 4096, 4096)
    assert found["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest() and not found["is_verified"]
    assert found["has_template"] and found["template_sha256"] == hashlib.sha256(b"{{ messages }}").hexdigest()
    assert (found["dialect"], found["is_in_use"], found["path"]) == ("grammar", True, str(path))
    again = box.json("model", "info", str(path))
    assert {**again, "free_mb": 0} == {**found, "free_mb": 0}
    plain = box.run("model", "info", "tiny").stdout
    assert "told in Owlbox's own words" in plain
    assert "nothing to compare it with" in plain and f"sha256 {found['template_sha256']}" in plain


def test_info_of_a_file_elsewhere_and_of_a_model_that_is_not_here(box: Box, tmp_path: Path) -> None:
    path = put(tmp_path, model())
    found = box.json("model", "info", str(path))
    assert (found["title"], found["is_installed"], found["architecture"]) == ("Tiny Owl", False, "llama")
    away = box.json("model", "info", "qwen3-4b")
    assert away["source"].startswith("https://") and away["path"] == "" and not away["is_verified"] and len(away["sha256"]) == 64
    wrong = box.run("model", "info", "smollm")
    assert wrong.returncode == 3 and "did you mean smollm2" in wrong.stderr


def test_a_changed_file_of_the_catalogue_is_called_so(box: Box) -> None:
    drop(box, catalogue.entries()["smollm2"].file)
    assert not box.json("model", "info", "smollm2")["is_verified"]
    plain = box.run("model", "info", "smollm2").stdout
    assert "NOT the catalogue's" in plain and "has 98362432" in plain


@pytest.mark.model
def test_the_bundled_model_is_verified(box: Box, model_home: Home) -> None:  # noqa: F811
    file = catalogue.entries()["smollm2"].file
    (box.home.models / file).hardlink_to(model_home.models / file)
    found = box.json("model", "info", "smollm2")
    assert found["is_verified"] and found["has_template"] and found["quantisation"] == "Q4_1" and found["is_in_use"]
    assert found["memory_mb"] <= catalogue.entries()["smollm2"].ram_mb * 1.2


@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
@pytest.mark.parametrize(("asked", "limit_mb"), [(0, 1_000_000), (0, 1), (0, 3), (1000, 1_000_000), (100_000, 1_000_000)])
def test_the_window_told_is_the_window_the_model_gets(tmp_path: Path, asked: int, limit_mb: int, cache_type: CacheType) -> None:
    path = put(tmp_path, model())
    taken = Llama(path, Options(context=asked, memory_mb=limit_mb, cache_type=cache_type))
    settings = replace(Config(), models=replace(ModelSettings(), context=asked, memory_mb=limit_mb, cache_type=cache_type))
    found = model_info.describe(Home(tmp_path), settings, str(path), lambda stage, done, total: None)
    assert found["window"] == taken.window and found["memory_mb"] == round(taken.memory_bytes / 1_000_000)


# -- use --------------------------------------------------------------------------------------------


def test_use_changes_the_configuration_and_keeps_its_comments(box: Box) -> None:
    drop(box, "old.gguf", age=100)
    drop(box, "new.gguf")
    before = box.home.config.read_text()
    done = box.run("model", "use", "old")
    assert (done.returncode, done.stdout) == (0, "models.default = old\n")
    assert box.home.config.read_text() == before.replace('#default = ""', 'default = "old"', 1)
    assert [m["name"] for m in box.json("model", "list") if m["is_in_use"]] == ["old"]
    assert "already" in box.run("model", "use", "OLD.gguf").stdout


def test_a_running_core_takes_it_at_once(box: Box) -> None:
    drop(box, "old.gguf", age=100)
    drop(box, "new.gguf")
    core = box.serve()
    assert [r["model"] for r in core.call("model.plan")] == ["new"]
    done = box.json("model", "use", "old")
    assert done["is_changed"] and done["core"] == "The running core uses models.default from now on."
    assert [r["model"] for r in core.call("model.plan")] == ["old"]


def test_use_of_what_cannot_be_used_is_refused(box: Box) -> None:
    drop(box, "broken.gguf", model()[:300])
    before = box.home.config.read_bytes()
    for name, code, words in (
        ("smollm2", 3, "owlbox model add smollm2"),
        ("broken", 1, "truncated"),
        ("brken", 3, "did you mean broken"),
    ):
        done = box.run("model", "use", name)
        assert done.returncode == code and words in done.stderr
    assert box.home.config.read_bytes() == before


def test_use_says_when_the_environment_decides(box: Box) -> None:
    drop(box, "tiny.gguf")
    done = box.run("model", "use", "tiny", OWLBOX__MODELS__DEFAULT="other")
    assert done.returncode == 0 and "OWLBOX__MODELS__DEFAULT is set" in done.stderr


# -- rm ---------------------------------------------------------------------------------------------


def test_rm_asks_and_refuses_the_one_in_use(box: Box) -> None:
    old, new = drop(box, "old.gguf", age=100), drop(box, "new.gguf")
    assert box.run("model", "rm", "new", "--yes").returncode == 1 and new.exists()
    for answer in ("", "n\n", "what\n"):
        done = box.run("model", "rm", "old", text=answer)
        assert done.returncode == 1 and "[y/N]" in done.stderr and "old is kept" in done.stderr and old.exists()
    done = box.run("model", "rm", "old", text="y\n")
    assert (done.returncode, done.stdout) == (0, f"deleted {old}\n") and not old.exists()
    assert box.json("model", "rm", "new", "--yes", "--force") == {"model": "new", "deleted": [str(new)]} and not new.exists()


@pytest.mark.covers("E-149", "R-171")
def test_a_model_that_was_added_and_removed_leaves_the_list_as_it_was(box: Box, tmp_path: Path) -> None:
    drop(box, "old.gguf", age=100)
    before, file = box.json("model", "list"), tmp_path / "guest.gguf"
    file.write_bytes(model())
    assert box.run("model", "add", str(file)).returncode == 0
    added = box.json("model", "list")
    assert {one["name"] for one in added} - {one["name"] for one in before} == {"guest"}
    assert [one["name"] for one in added if one["is_in_use"]] == ["guest"], "the newest one answers"
    assert box.run("model", "rm", "guest", "--yes", "--force").returncode == 0
    assert box.json("model", "list") == before and file.exists()


def test_rm_of_nothing_is_told(box: Box) -> None:
    done = box.run("model", "rm", "smollm2", "--yes", "--json")
    assert done.returncode == 3 and "not installed" in json.loads(done.stderr)["error"]["message"]
    assert box.run("model", "rm", "smol", "--yes").returncode == 3


# -- chat without a model ---------------------------------------------------------------------------


@pytest.mark.covers("B-136")
@pytest.mark.parametrize("words", [["chat"], ["chat", "-p", "hi"], ["chat", "--plain"]])
def test_chat_does_not_start_without_a_model(box: Box, words: list[str]) -> None:
    done = box.run(*words, text="hello\n")
    assert (done.returncode, done.stdout) == (5, "") and done.stderr.count("\n") == 1
    assert "no model" in done.stderr and "owlbox model add smollm2" in done.stderr
    assert box.json("thread", "list") == []


@pytest.mark.covers("B-136")
def test_a_running_core_without_a_model_refuses_too(box: Box) -> None:
    box.serve()
    done = box.run("chat", text="hello\n")
    assert (done.returncode, done.stdout) == (5, "")
    assert "no model" in done.stderr and "owlbox model add smollm2" in done.stderr
    assert box.json("thread", "list") == []


@pytest.mark.covers("B-136")
def test_an_embedding_model_is_no_model_to_talk_to(box: Box) -> None:
    path = drop(box, "vectors.gguf", encoder())
    assert {m["name"]: m["kind"] for m in box.json("model", "list")}["vectors"] == "embedding"
    done = box.run("chat", text="hello\n")
    assert done.returncode == 5 and "no model that can talk" in done.stderr
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}["model"]
    assert found["state"] == "problem" and "no model that can talk" in found["message"]
    assert box.run("model", "use", "vectors").stdout == f"models.embedding = {path.stem}\n"


def test_chat_starts_when_something_can_answer(box: Box) -> None:
    script(box, '[[turns]]\nrepeat = true\ntext = "Hoot."\n')
    done = box.run("chat", text="hello\n")
    assert done.returncode == 0 and "Hoot." in done.stdout
