"""The whole of it with the real small model: a question goes in, an answer comes out, in a few words of prompt."""

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import ONE_THREAD, model_file, model_home  # noqa: F401
from process import Box, Core, clean_environ, end, send
from stores import new_home

from appliance import tools
from appliance.agent.tool_rules import ToolRules
from appliance.agent.toolbox import Toolbox
from appliance.models import catalogue
from appliance.policy.policy_file import Policy
from appliance.providers.family import described
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client

pytestmark = pytest.mark.model
LIMITS = {"instructions": 250, "tools": 600, "documents": 200, "skills": 150}  # design, promise 1
STATIC = 1200


@pytest.fixture(scope="module")
def real(model_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:  # noqa: F811
    """A core with the bundled model, as `make` leaves it."""
    place, runtime = tmp_path_factory.mktemp("real"), Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    home = Home(place / "home")
    new_home(home)
    file = catalogue.entries()["smollm2"].file
    (home.models / file).hardlink_to(model_home.models / file)
    # Short answers: how clever they are is not the question here.
    box = Box(home, {**clean_environ(place, runtime), "OWLBOX__MODELS__MAX_OUTPUT_TOKENS": "40", **ONE_THREAD})
    core = box.serve()
    yield core
    end(core.child)
    shutil.rmtree(runtime, ignore_errors=True)


def check_answered(real: Core, done: "subprocess.CompletedProcess[str]") -> None:
    """Whatever the model says, and another processor makes it say something else: what is kept is what was printed."""
    (thread, *_) = real.box.json("thread", "list")
    seen = real.call("thread.view", id=thread["id"])
    turn = seen["turns"][-1]
    assert turn["provider"] == "llama" and 0 < turn["evaluated_tokens"] <= turn["prompt_tokens"] and turn["output_tokens"] > 0
    said = [event["content"] for event in seen["events"] if event["kind"] == "message" and event["role"] == "assistant"]
    assert thread["status"] in (200, 202, 499) and (done.returncode == 0) == (thread["status"] == 200), done.stderr
    assert not done.stdout.lstrip().startswith("{")  # a call is never shown as it was written
    if done.returncode == 0:
        assert said[-1].strip() and "".join(said[-1].split()) in "".join(done.stdout.split())  # streamed, there is more space
    else:
        assert done.stderr.strip() and "Traceback" not in done.stderr


@pytest.mark.covers("R-208")
def test_the_local_model_answers_through_a_pipe(real: Core) -> None:
    check_answered(real, real.box.run("ask", text="What is the capital of France? One word."))


@pytest.mark.covers("R-208")
def test_the_second_turn_evaluates_only_what_is_new(real: Core) -> None:
    real.box.run("chat", text="You are a funny owl.\nYou are a clever bird as well.\n")
    (thread, *_) = real.box.json("thread", "list", "--type", "chat")
    turns = real.call("thread.view", id=thread["id"])["turns"]
    first, last = turns[0], turns[-1]
    assert len(turns) >= 2 and last["evaluated_tokens"] < last["prompt_tokens"] / 3
    assert last["prompt_tokens"] > first["prompt_tokens"]


@pytest.mark.covers("R-208")
def test_the_broker_dies_and_the_real_model_answers_again(real: Core) -> None:
    send(real.broker_pid(), signal.SIGKILL)
    check_answered(real, real.box.run("ask", "You are a funny owl."))


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
    menu = [t for t in real.call("tool.list") if "chat" in t["menu"]]
    assert menu
    fields = [[t["name"], t["description"], t["schema"]] for t in menu]
    real.broker_pid()
    lent = real.call("core.broker")
    with Client(lent["socket"], name="test", token=lent["token"], timeout_s=60) as client:
        texts = [json.dumps(f, ensure_ascii=False, separators=(",", ":")) for f in fields]
        counted = client.call("count", {"route": "local", "texts": texts}, deadline_s=120)
    groups = real.box.json("prompt-size")["groups"]
    assert sum(counted) <= LIMITS["tools"], dict(zip([t["name"] for t in menu], counted))
    assert sum(counted) + sum(n for name, n in groups.items() if name not in ("tools", "person")) <= STATIC


def test_what_a_models_own_template_is_told_of_the_tools_stays_small(real: Core) -> None:
    """As the families of local models describe them; 60 tokens are for the template's own words and for what is another role's."""
    with_all = Toolbox(tools.load(), {}, rules=ToolRules(Policy()))
    texts = [json.dumps(described(spec), ensure_ascii=False) for spec in with_all.specs("chat")]
    with_all.close()
    real.broker_pid()
    lent = real.call("core.broker")
    with Client(lent["socket"], name="test", token=lent["token"], timeout_s=60) as client:
        counted = client.call("count", {"route": "local", "texts": texts}, deadline_s=120)
    assert len(counted) == 6 and sum(counted) <= LIMITS["tools"] - 60


@pytest.mark.parametrize(("role", "most"), [("assistant", STATIC), ("heartbeat", 600), ("memory", 500)])
def test_the_static_prompt_of_a_role_stays_small_in_both_dialects(real: Core, role: str, most: int) -> None:
    size = real.box.json("prompt-size", "--role", role)
    assert size["role"] == role and 100 < size["static"] <= most
    shown = set(real.call("role.view", name=role)["menu"])
    fields = [[t["name"], t["description"], t["schema"]] for t in real.call("tool.list") if t["name"] in shown]
    assert len(fields) == len(shown)
    real.broker_pid()
    lent = real.call("core.broker")
    with Client(lent["socket"], name="test", token=lent["token"], timeout_s=60) as client:
        texts = [json.dumps(f, ensure_ascii=False, separators=(",", ":")) for f in fields]
        counted = client.call("count", {"route": "local", "texts": texts}, deadline_s=120)
    native = sum(counted) + size["static"] - size["groups"]["tools"]
    assert native <= most, dict(zip([f[0] for f in fields], counted))
