"""`owlbox approve` and `owlbox reject`, and a prompt that is answered only when everything is decided."""

import json
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from process import Box, Core, a_box, script, until  # noqa: F401

from appliance.errors import OwlError

PLAY = """
[[turns]]
match = "write one"
text = '<set path="one.txt">hello</set>'
[[turns]]
match = "write one"
text = "Written."
[[turns]]
match = "write two"
text = '<set path="two.txt">hello</set>'
[[turns]]
match = "write plan"
text = '<set path="plan.md">mine</set>'
[[turns]]
match = "write plan"
text = "It had changed."
[[turns]]
match = "ask me"
text = '<ask_user question="Red?" options="yes;no"/>'
[[turns]]
match = "ask me"
text = "As you like."
[[turns]]
repeat = true
text = "Hoot hoot."
"""


@pytest.fixture
def played(box: Box) -> Box:
    script(box, PLAY)
    return box


def acting(box: Box, prompt: str) -> tuple[Core, threading.Thread, dict[str, Any]]:
    """A prompt on its way, and its answer once it is there."""
    core, told = box.serve(), {}  # type: ignore[var-annotated]

    def act() -> None:
        with suppress(OwlError):  # the core may be ended meanwhile
            told.update(core.call("run.act", prompt=prompt, model="default"))

    thread = threading.Thread(target=act)
    thread.start()
    until(lambda: bool(core.call("entry.waiting")), "it waits")
    return core, thread, told


@pytest.mark.covers("R-064", "R-086", "R-088")
def test_a_prompt_is_answered_when_everything_is_decided(played: Box) -> None:
    core, thread, told = acting(played, "write one")
    run = played.json("entry", "waiting")[0]["run"]
    injected = core.call("run.inject", run=run, text="hello there")
    assert injected["status"] == 202, "it waits behind the decision"
    assert not told and "set one.txt" in played.run("entry", "waiting").stdout
    done = played.run("approve")
    assert done.returncode == 0 and "Written." in done.stdout, done.stderr
    thread.join(60)
    assert (told["status"], told["outcome"]) == (200, "ok")
    said = [event["content"] for event in played.events(run)]
    assert said[3:] == ["hello there", "one.txt: accepted", "Written."], "what was said meanwhile is answered with it"
    assert played.run("entry", "get", "one.txt").stdout == "hello\n"
    nothing = played.run("approve")
    assert nothing.returncode == 3 and "nothing to approve" in nothing.stderr


def test_a_rejection_ends_it_and_says_so(played: Box) -> None:
    _, thread, told = acting(played, "write two")
    done = played.run("reject", "two.txt", "--output", "not now", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["status"] == 200, done.stderr
    thread.join(60)
    assert (told["status"], told["outcome"]) == (200, "rejected")
    assert played.run("entry", "get", "two.txt").returncode == 3


@pytest.mark.covers("E-328")
def test_what_was_edited_on_the_disk_since_is_not_accepted(played: Box, tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    plan = root / "plan.md"
    plan.write_text("old")
    played.environ["OWLBOX__SANDBOX__WORKSPACE"] = str(root)
    _, thread, told = acting(played, "write plan")
    plan.write_text("his own")
    done = played.run("approve", "--json")
    thread.join(60)
    answer = json.loads(done.stdout or done.stderr)
    assert all(sha256(text).hexdigest() in json.dumps(answer) for text in (b"old", b"his own")), answer
    assert (told["status"], told["outcome"]) == (200, "ok") and plan.read_text() == "his own"
    assert played.run("entry", "get", "plan.md").stdout == "his own\n"


def test_a_question_is_answered_without_a_core_too(played: Box) -> None:
    _, thread, _ = acting(played, "ask me")
    script(played, PLAY.replace("ask me", "asked before", 1))
    played.children[0].terminate()
    played.children[0].wait(60)
    thread.join(60)
    waiting = played.run("entry", "waiting").stdout
    assert waiting.startswith("ask_user Red?"), "it survives the core"
    done = played.run("approve", "--output", "yes")
    assert done.returncode == 0 and "As you like." in done.stdout, done.stderr
