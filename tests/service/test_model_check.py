"""`owlbox model bench`: the verdict by its thresholds, and measuring over a real broker, a real core, a real model."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import ONE_THREAD, shallow_file, shallow_home  # noqa: F401
from process import Box, a_box, left_over, script, send, until  # noqa: F401
from record_tools import replace
from test_broker import TOKEN, started
from test_gguf import entry, model, text
from test_pool import dropped, scripted

from appliance.clock import CancelToken
from appliance.errors import Cancelled, NotFound, Unavailable
from appliance.models import catalogue
from appliance.models.client import Models
from appliance.models.pool import Pool
from appliance.records import Ask, Finish, Message, Part, Tier, ToolCall
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.service import model_check
from appliance.service.broker_process import ExternalBroker
from appliance.service.local_models import settle
from appliance.service.model_check import Calls, Qualification, counted, judge, unread

GOOD = Qualification(
    "owl-1b", "llama", "local", 4096,
    load_s=1.0, read_s=4.0, read_tokens=600, prefill_tokens_per_s=150.0,
    decode_tokens_per_s=12.0, decodes=3, calls=Calls(10, 10, 10, 9), rss_mb=900, free_mb=2000, total_mb=4000,
)  # fmt: skip
# Writes sixteen pieces, calls every tool as it should but `work.tasks` (unknown tool, then no call) and one `remind` (no time).
PLAY = """
[[turns]]
match = "Write the numbers"
repeat = true
text = "one two three four five six seven eight nine ten eleven twelve."
chunk_size = 4
chunk_delay_s = 0.01
[[turns]]
match = "garden fence.$|tax letter|birthday.$"
repeat = true
tool_calls = [{name = "search", arguments = {query = "words"}}]
[[turns]]
match = "Remember|keep this|Note down"
repeat = true
tool_calls = [{name = "remember", arguments = {text = "a fact"}}]
[[turns]]
match = "18:00"
repeat = true
tool_calls = [{name = "remind", arguments = {text = "water", at = "18:00"}}]
[[turns]]
match = "9:00"
repeat = true
tool_calls = [{name = "remind", arguments = {text = "call"}}]
[[turns]]
match = "still open"
repeat = true
tool_calls = [{name = "todo", arguments = {}}]
[[turns]]
repeat = true
text = "Hoot hoot."
"""
COUNTS = {"asked": 10, "parseable": 9, "valid": 7, "expected": 7}


# -- the verdict ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"decode_tokens_per_s": 8.0}, "8.0 tokens/s: you can read along"),
        ({"decode_tokens_per_s": 7.9}, "usable for talking, with patience"),
        ({"decode_tokens_per_s": 3.0}, "with patience"),
        ({"decode_tokens_per_s": 2.9}, "too slow for talking, fine for work at night"),
        ({"decode_tokens_per_s": None}, "could not be measured"),
        ({"calls": Calls(10, 10, 10, 8)}, "8 of 10 tool calls were right: reliable"),
        ({"calls": Calls(10, 10, 10, 7)}, "7 of 10 tool calls were right: do not count on tool calls"),
        ({"calls": Calls(4, 4, 4, 4)}, "Whether it can call tools is not known"),
        ({"read_s": None}, "did not begin to answer"),
        ({"provider": "scripted"}, "A script answers in place of a model"),
    ],
)
def test_the_verdict_follows_its_thresholds(change: dict[str, object], words: str) -> None:
    assert words in " ".join(judge(replace(GOOD, **change)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "wanted", "counts"),
    [
        ([ToolCall("1", "search", {"query": "fence"})], "search", (1, 1, 1)),
        ([ToolCall("1", "search", {"query": "fence"})], "remember", (1, 1, 0)),
        ([ToolCall("1", "remind", {"text": "water"})], "remind", (1, 0, 0)),
        ([ToolCall("1", "tasks", {})], "tasks", (1, 1, 1)),
        ([ToolCall("1", "todo", {})], "tasks", (1, 0, 0)),
        ([ToolCall("1", "tasks", {}), ToolCall("2", "tasks", {})], "tasks", (0, 0, 0)),
        ([], "tasks", (0, 0, 0)),
    ],
)
def test_only_one_call_of_the_right_tool_counts(made: list[ToolCall], wanted: str, counts: tuple[int, int, int]) -> None:
    assert counted(Calls(3, 2, 1, 0), made, wanted) == Calls(4, 2 + counts[0], 1 + counts[1], counts[2])


def test_the_text_begins_with_what_nobody_knows() -> None:
    one, two = unread("abc", 600), unread("xyz", 600)
    assert len(one) == 2400 and one[:13] != two[:13] and one.startswith("Notebook abc. Note 1: ")


# -- over a real broker -------------------------------------------------------------------------------


@pytest.fixture(name="folder")
def a_home_with_a_script(tmp_path: Path) -> Home:
    (tmp_path / "play.toml").write_text(PLAY)
    (tmp_path / "owlbox.toml").write_text('[models]\nscript = "play.toml"\n')
    return Home(tmp_path)


@pytest.fixture(name="models")
def a_client_of_a_broker(folder: Home) -> Iterator[Models]:
    with started(folder, OWLBOX_TOKEN=TOKEN) as broker:
        yield Models(ExternalBroker(broker.socket, TOKEN))


def quiet(step: str, done: int, steps: int) -> None:
    """Nobody looks on."""


def test_everything_is_measured_and_counted(models: Models) -> None:
    steps: list[tuple[str, int, int]] = []
    found = model_check.qualify(models, models.plan()[0], lambda *told: steps.append(told), CancelToken(), seconds=60)
    assert steps == [(name, done, 4) for done, name in enumerate(model_check.STEPS)]
    assert (found.model, found.provider, found.window, found.decodes) == ("play", "scripted", 8192, 3)
    assert found.read_tokens > 1000 and found.read_s > 0 and found.prefill_tokens_per_s
    assert found.decode_tokens_per_s and 0 < found.decode_tokens_per_s < 250  # two tokens a piece, some 100 pieces a second
    assert found.calls == Calls(**COUNTS)
    assert 0 < found.rss_mb < found.total_mb and 0 < found.free_mb <= found.total_mb
    assert found.verdict == judge(found) and "script" in found.verdict[0]


@pytest.mark.parametrize(
    ("stuck", "notes"),
    [
        ("Hi", ["load", "reading", "writing", "tool calls"]),
        ("garden fence", ["reading", "writing", "tool calls"]),
        ("the numbers", ["writing", "tool calls"]),
        ("tax letter", ["tool calls"]),
    ],
)
def test_what_takes_too_long_is_left_out_and_said(folder: Home, stuck: str, notes: list[str]) -> None:
    late = f'[[turns]]\nmatch = "{stuck}"\nrepeat = true\ndelay_s = 600\ntext = "late"\n'
    (folder.root / "play.toml").write_text(late + PLAY)
    with started(folder, OWLBOX_TOKEN=TOKEN) as broker:
        models = Models(ExternalBroker(broker.socket, TOKEN))
        found = model_check.qualify(models, models.plan()[0], quiet, CancelToken(), seconds=6)
    assert found.took_s < 60 and found.calls.asked <= 5
    said = [note for note in found.notes if not note.startswith("the machine was busy")]
    assert [note.split(":")[0] for note in said] == notes
    assert found.decode_tokens_per_s is None or stuck == "tax letter"
    assert judge(replace(found, provider="llama"))


def test_a_long_answer_is_cut_and_still_measured(folder: Home) -> None:
    slow = '[[turns]]\nmatch = "the numbers"\nrepeat = true\nchunk_size = 1\nchunk_delay_s = 0.05\ntext = "' + "owl " * 400 + '"\n'
    (folder.root / "play.toml").write_text(slow + PLAY)
    with started(folder, OWLBOX_TOKEN=TOKEN) as broker:
        models = Models(ExternalBroker(broker.socket, TOKEN))
        found = model_check.qualify(models, models.plan()[0], quiet, CancelToken(), seconds=20)
    assert found.decodes == 3 and found.decode_tokens_per_s and found.decode_tokens_per_s < 21
    assert found.calls.asked == 10


def test_a_stop_ends_it(models: Models) -> None:
    cancel = CancelToken()

    def stop(step: str, done: int, steps: int) -> None:
        if step == "writing":
            cancel.set()

    with pytest.raises(Cancelled):
        model_check.qualify(models, models.plan()[0], stop, cancel, seconds=60)


# -- the route of one model ---------------------------------------------------------------------------


def test_a_route_names_one_model_whatever_the_default_is(tmp_path: Path) -> None:
    home = dropped(tmp_path, "new", "old")
    pool = Pool(home, Config())
    assert pool.plan()[0].model == "new"
    (route,) = pool.plan("local/old")
    assert (route.name, route.model, route.provider) == ("local/old", "old", "llama")
    with pytest.raises(NotFound, match="did you mean old"):
        pool.plan("local/odl")


def test_a_model_that_cannot_talk_is_no_route(tmp_path: Path) -> None:
    home = dropped(tmp_path, "chat")
    old, new = (entry("general.architecture", 8, text(name)) for name in ("llama", "bert"))
    (home.models / "finder.gguf").write_bytes(model(data=512).replace(old, new, 1))
    with pytest.raises(Unavailable, match="finder only makes vectors and cannot talk"):
        Pool(home, Config()).plan("local/finder")


def test_a_script_stands_in_for_a_named_model_too(tmp_path: Path) -> None:
    assert scripted(tmp_path, '[[turns]]\ntext = "hoot"\n').plan("local/any")[0].provider == "scripted"


@pytest.mark.parametrize(
    ("expected", "right", "tier"),
    [
        ("tiny", 7, "tiny"), ("tiny", 8, "small"), ("small", 0, "small"), ("small", 8, "able"), ("able", 5, "able"),
        ("able", 4, "small"),
    ],
)  # fmt: skip
def test_a_tier_follows_from_the_calls_and_from_what_was_expected(expected: Tier, right: int, tier: Tier) -> None:
    assert settle(expected, Calls(10, 10, 10, right)) == tier


@pytest.mark.model
def test_a_tier_that_was_measured_is_kept(box: Box, shallow_home: Home) -> None:  # noqa: F811
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    box.environ.update(ONE_THREAD)
    file = catalogue.entries()["smollm2"].file
    (box.home.models / file).hardlink_to(shallow_home.models / file)
    found = box.json("model", "bench")
    assert (found["tier"], found["basis"]) == ("tiny", "measured on this device") and "used as tiny" in found["verdict"][0]
    assert found["read_tokens"] > 0 and found["calls"]["asked"] > 4
    assert json.loads((box.home.models / "tiers.json").read_text())[file]["tier"] == "tiny"
    assert "tiny, measured on this device: " in box.run("model", "info", "smollm2").stdout


# -- the command --------------------------------------------------------------------------------------


def test_the_command_prints_numbers_and_words(box: Box) -> None:
    script(box, PLAY)
    done = box.run("model", "bench", "--seconds", "60")
    assert done.returncode == 0, done.stderr
    rows = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert rows[1:8] == ["ready after", "first word", "reading", "writing", "tool calls", "memory", "took"]
    assert "\n\n" not in done.stdout and "7 of 10" in done.stdout and "A script answers in place of a model" in done.stdout
    assert [line for line in done.stderr.splitlines() if line in model_check.STEPS] == list(model_check.STEPS)
    assert left_over(box) == []


def test_a_running_core_measures_too(box: Box) -> None:
    script(box, PLAY)
    box.serve()
    found = box.json("model", "bench", "--seconds", "60")
    assert (found["provider"], found["calls"]) == ("scripted", COUNTS)
    assert found["rss_mb"] > 0 and found["decode_tokens_per_s"] > 0
    assert box.json("thread", "list") == []  # nothing is recorded


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 5, "owlbox model add smollm2"),
        (("smollm",), 3, "did you mean smollm2"),
        (("smollm2",), 3, "owlbox model add smollm2"),
        (("finder",), 1, "cannot talk"),
        (("--seconds", "1"), 2, "seconds"),
        (("--seconds", "soon"), 2, "seconds"),
    ],
)
def test_what_cannot_be_measured_is_said(box: Box, words: tuple[str, ...], code: int, said: str) -> None:
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    if words == ("finder",):
        old, new = (entry("general.architecture", 8, text(name)) for name in ("llama", "bert"))
        (box.home.models / "finder.gguf").write_bytes(model(data=512).replace(old, new, 1))
    done = box.run("model", "bench", *words)
    assert (done.returncode, done.stdout) == (code, "") and said in done.stderr


@pytest.mark.parametrize("is_served", [True, False])
def test_ctrl_c_ends_it_and_leaves_nothing(box: Box, is_served: bool) -> None:
    script(box, '[[turns]]\nmatch = "the numbers"\nrepeat = true\ndelay_s = 600\ntext = "late"\n' + PLAY)
    core = box.serve() if is_served else None
    child = box.start("model", "bench", "--seconds", "500")
    assert child.stderr is not None
    said: list[bytes] = []
    while not said or b"writing" not in said[-1]:
        said.append(child.stderr.readline())
        assert said[-1], said
    send(child.pid, signal.SIGINT)
    assert child.wait(60) == 1 and b"owlbox: stopped" in child.stderr.read()
    if core is not None:
        until(lambda: not core.call("core.status")["broker"]["is_busy"], "the broker is free again")
        assert core.stop() == 0
    until(lambda: left_over(box) == [], "nothing is left over")


@pytest.mark.model
def test_two_routes_to_one_file_share_what_was_read(shallow_home: Home) -> None:  # noqa: F811
    pool = Pool(shallow_home, Config())
    try:
        stem = pool.plan()[0].model
        ask = Ask((Part("core", unread("twice", 100)),), (Message("user", "Hi"),), slot="x", purpose="bench", max_tokens=1)
        *_, first = pool.generate("local", ask, CancelToken())
        memory_mb = pool.status()["memory_mb"]
        *_, second = pool.generate(f"local/{stem}", ask, CancelToken())
        assert isinstance(first, Finish) and isinstance(second, Finish)
        assert second.evaluated_tokens < first.evaluated_tokens / 4
        assert pool.status()["memory_mb"] == memory_mb
    finally:
        pool.close()
