"""The whole of it with the real small model: a question goes in, an answer comes out, in a few words of prompt."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home  # noqa: F401
from process import Box, Core, clean_environ, end, send
from stores import new_home

from appliance import catalogue
from appliance.client import Client
from appliance.places import Home

pytestmark = pytest.mark.model
LIMITS = {"instructions": 250, "tools": 600, "documents": 200, "skills": 150}  # design, promise 1
STATIC = 1200


@pytest.fixture(scope="module")
def real(model_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:  # noqa: F811
    """A core with the bundled model, as `make` leaves it."""
    place, runtime = tmp_path_factory.mktemp("real"), Path("/tmp") / f"owl-real-{tmp_path_factory.getbasetemp().name}"
    runtime.mkdir(mode=0o700, exist_ok=True)
    home = Home(place / "home")
    new_home(home)
    file = catalogue.entries()["smollm2"].file
    (home.models / file).hardlink_to(model_home.models / file)
    # Short answers: how clever they are is not the question here.
    box = Box(home, {**clean_environ(place, runtime), "OWLBOX__MODELS__MAX_OUTPUT_TOKENS": "40"})
    core = box.serve()
    yield core
    end(core.child)
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.mark.covers("R-208")
def test_the_local_model_answers_through_a_pipe(real: Core) -> None:
    done = real.box.run("ask", text="What is the capital of France? One word.")
    assert done.returncode == 0 and "paris" in done.stdout.lower() and "{" not in done.stdout
    (thread, *_) = real.box.json("thread", "list")
    turn = real.call("thread.view", id=thread["id"])["turns"][-1]
    assert thread["outcome"] == "ok" and turn["provider"] == "llama" and turn["output_tokens"] > 0


@pytest.mark.covers("R-208")
def test_the_second_turn_evaluates_only_what_is_new(real: Core) -> None:
    real.box.run("chat", text="My dog is called Rex.\nWhat did I say?\n")
    (thread, *_) = real.box.json("thread", "list", "--type", "chat")
    turns = real.call("thread.view", id=thread["id"])["turns"]
    first, last = turns[0], turns[-1]
    assert len(turns) >= 2 and last["evaluated_tokens"] < last["prompt_tokens"] / 3
    assert last["prompt_tokens"] > first["prompt_tokens"]


@pytest.mark.covers("R-208")
def test_the_broker_dies_and_the_real_model_answers_again(real: Core) -> None:
    send(real.broker_pid(), signal.SIGKILL)
    done = real.box.run("ask", "What is two plus two?")
    assert done.returncode == 0 and done.stdout.strip()


def test_a_question_longer_than_the_window_is_refused_in_one_line(real: Core) -> None:
    done = real.box.run("ask", text="owl " * 20_000)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "token" in done.stderr


def test_the_static_prompt_stays_small(real: Core) -> None:
    size = real.box.json("prompt-size")
    groups = size["groups"]
    assert size["static"] <= STATIC, size
    assert {name: groups[name] for name, limit in LIMITS.items() if groups[name] > limit} == {}
    assert groups["person"] == 0 and size["total"] <= STATIC + 50


def test_the_persons_own_text_does_not_count_as_ours(real: Core) -> None:
    before = real.box.json("prompt-size")
    path = real.box.home.box / "USER.md"
    old = path.read_text()
    path.write_text("# User\n\n" + "Ada keeps bees in London. " * 40)
    try:
        after = real.box.json("prompt-size")
    finally:
        path.write_text(old)
    assert after["groups"]["person"] > 200 and after["static"] == before["static"]


def test_the_static_prompt_stays_small_for_providers_with_native_calls(real: Core) -> None:
    """The same limits where tools are sent as schemas, counted by the same tokenizer."""
    tools = [t for t in real.call("tool.list") if "chat" in t["menu"]]
    assert tools
    fields = [[t["name"], t["description"], t["schema"]] for t in tools]
    real.broker_pid()
    lent = real.call("core.broker")
    with Client(lent["socket"], name="test", token=lent["token"]) as client:
        texts = [json.dumps(f, ensure_ascii=False, separators=(",", ":")) for f in fields]
        counted = client.call("count", {"route": "local", "texts": texts}, deadline_s=120)
    groups = real.box.json("prompt-size")["groups"]
    assert sum(counted) <= LIMITS["tools"], dict(zip([t["name"] for t in tools], counted))
    assert sum(counted) + sum(n for name, n in groups.items() if name not in ("tools", "person")) <= STATIC
