"""Pools name routes, routes find models, and one answer is made at a time."""

import os
import threading
from pathlib import Path

import pytest
from process import until
from test_gguf import entry, model, text

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import BadInput, Cancelled, DeadlineExceeded, NotFound, Unavailable
from appliance.models.pool import Pool, find_model
from appliance.providers.llama import Llama, Options
from appliance.records import Ask, Finish, Message, Piece
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, ModelSettings


def scripted(folder: Path, text: str, **pools: tuple[str, ...]) -> Pool:
    (folder / "play.toml").write_text(text)
    return Pool(Home(folder), Config(models=ModelSettings(script="play.toml"), pools={"default": ("local",), **pools}))


def dropped(folder: Path, *names: str) -> Home:
    home = Home(folder)
    home.models.mkdir()
    for age, name in enumerate(reversed(names)):
        (home.models / f"{name}.gguf").write_bytes(model())
        os.utime(home.models / f"{name}.gguf", (1000 + age, 1000 + age))
    return home


def asked(words: str = "hi", **more: object) -> Ask:
    return Ask((), (Message("user", words),), **more)  # type: ignore[arg-type]


def test_a_script_stands_in_for_every_route(tmp_path: Path) -> None:
    pool = scripted(tmp_path, '[[turns]]\ntext = "hoot"\n', small=("anthropic/claude", "local"))
    assert [r.name for r in pool.plan("small")] == ["anthropic/claude", "local"]
    assert {(r.provider, r.model, r.dialect) for r in pool.plan("small")} == {("scripted", "play", "native")}
    piece, finish = pool.generate("local", asked(), CancelToken())
    assert isinstance(piece, Piece) and piece.text == "hoot"
    assert isinstance(finish, Finish) and finish.provider == "scripted"


def test_no_model_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=f"no model in {tmp_path}/models") as caught:
        Pool(Home(tmp_path), Config()).plan()
    assert caught.value.hint == "owlbox model add smollm2"


def test_the_window_is_told_before_the_model_is_loaded(tmp_path: Path) -> None:
    status = Pool(dropped(tmp_path, "owl"), Config()).status()
    assert (status["model"], status["memory_mb"], status["window"]) == ("", 0, 4096)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert Pool(Home(empty), Config()).status()["window"] == 0
    far = Config(pools={"default": ("anthropic/claude",)})
    assert Pool(Home(tmp_path), far).status()["window"] == 0


def test_unknown_pool_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no pool named tiny") as caught:
        Pool(Home(tmp_path), Config()).plan("tiny")
    assert caught.value.hint == "there are: default, local, small; or local/FILE, or PROVIDER/MODEL"


def test_remote_routes_are_left_out_of_a_local_only_plan(tmp_path: Path) -> None:
    pools = {"default": ("anthropic/claude", "local"), "far": ("anthropic/claude",)}
    pool = Pool(dropped(tmp_path, "owl"), Config(pools=pools))
    assert [(r.name, r.model, r.dialect, r.window) for r in pool.plan()] == [("local", "owl", "grammar", 4096)]
    with pytest.raises(Unavailable, match="models.local_only is true"):
        pool.plan("far")


@pytest.mark.parametrize("name", ["", "newest", "NEWEST.gguf", "new"])
def test_a_model_is_found_by_name_stem_or_beginning(tmp_path: Path, name: str) -> None:
    assert find_model(dropped(tmp_path, "newest", "older"), name).stem == "newest"


def test_a_missing_model_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no model bran-owl in") as caught:
        find_model(dropped(tmp_path, "tawny", "barn-owl"), "bran-owl")
    assert "did you mean barn-owl?" in caught.value.hint


def test_embedding_models_and_damaged_files_are_not_picked(tmp_path: Path) -> None:
    home = dropped(tmp_path, "embedder", "damaged", "chat")
    (home.models / "embedder.gguf").write_bytes(model(extra=[entry("general.architecture", 8, text("bert"))]))
    (home.models / "damaged.gguf").write_bytes(model()[:-9])
    os.utime(home.models / "chat.gguf", (1, 1))
    assert find_model(home, "").stem == "chat"
    (home.models / "chat.gguf").unlink()
    with pytest.raises(BadInput, match="truncated"):
        Pool(home, Config(models=ModelSettings(default="damaged"))).plan()


def test_a_dropped_model_is_seen_without_a_restart(tmp_path: Path) -> None:
    home = dropped(tmp_path, "first")
    pool = Pool(home, Config())
    assert pool.plan()[0].model == "first"
    (home.models / "second.gguf").write_bytes(model())
    assert pool.plan()[0].model == "second"


def test_one_answer_at_a_time_and_interactive_first(tmp_path: Path) -> None:
    pool = scripted(tmp_path, '[[turns]]\nrepeat = true\nchunks = ["a", "b"]\nchunk_delay_s = 0.05\n')
    order: list[str] = []

    def run(name: str, is_background: bool) -> None:
        for piece in pool.generate("local", asked(is_background=is_background), CancelToken()):
            order.append(f"{name} {'end' if isinstance(piece, Finish) else piece.text}")

    first = pool.generate("local", asked(), CancelToken())
    next(first)
    assert pool.status()["is_busy"]
    threads = [threading.Thread(target=run, args=arguments) for arguments in (("back", True), ("front", False))]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda number=number: len(pool._scheduler._waiting) == number, "it waits")  # type: ignore[misc]
    list(first)
    for thread in threads:
        thread.join()
    assert order == ["front a", "front b", "front end", "back a", "back b", "back end"]
    assert not pool.status()["is_busy"]


def test_waiting_for_a_turn_ends_with_cancel_or_deadline(tmp_path: Path) -> None:
    pool = scripted(tmp_path, '[[turns]]\nrepeat = true\nchunks = ["a", "b"]\nchunk_delay_s = 60\n')
    holder = pool.generate("local", asked(), CancelToken())
    next(holder)
    stop = CancelToken()
    threading.Timer(0.05, stop.set).start()
    started_s = monotonic_s()
    with pytest.raises(Cancelled):
        next(pool.generate("local", asked(), stop))
    with pytest.raises(DeadlineExceeded, match="busy for 0.05 s"):
        next(pool.generate("local", asked(deadline_s=0.05), CancelToken()))
    assert monotonic_s() - started_s < 20
    holder.close()
    assert isinstance(next(pool.generate("local", asked(), CancelToken())), Piece)


def test_the_window_counts_on_memory_that_the_loaded_model_will_give_back(tmp_path: Path) -> None:
    path = dropped(tmp_path, "owl").models / "owl.gguf"
    scarce = Llama(path, Options(reclaim_bytes=-(10**15)))
    assert scarce.window < Llama(path, Options(reclaim_bytes=0)).window
