"""Turns of a real model: it is shown the note a question is about, adds a task, and every loop comes to an end.

In `make proof` it is the whole bundled one, otherwise the first two layers of it.

What it says is nobody's promise: another processor rounds otherwise, and a small model then says something else. So
these tests look at what it was shown, what is kept of it, and how loops end.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home, shallow_home  # noqa: F401
from process import clean_environ
from proof import IS_WHOLE
from test_scenarios import ENTRIES, Stage, Told

from appliance.clock import new_id
from appliance.models import catalogue
from appliance.records import Event, Inbound, RunSettings
from appliance.runtime.paths import Home
from appliance.service.core import Core
from appliance.upkeep import home_setup

pytestmark = pytest.mark.model
NOTE = "# Garage\n\nThe garage door code is kept by Ada, the neighbour. She lives at number 12.\n"
CHAT = RunSettings()
MOST_TURNS = 2


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A core in this process, with a model in a broker beside it; short answers, always the same."""
    found: Home = request.getfixturevalue("model_home" if IS_WHOLE else "shallow_home")
    root, runtime = tmp_path_factory.mktemp("real-turns"), Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir(mode=0o700)
    home = Home(root / "home")
    home_setup.init(home)
    file = catalogue.entries()["smollm2"].file
    (home.models / file).hardlink_to(found.models / file)
    settings = {"AGENTS__ASSISTANT__TEMPERATURE": "0", "MODELS__MAX_OUTPUT_TOKENS": "40", "RUNS__TITLES": "words"}
    settings |= {"AGENTS__ASSISTANT__MAX_ITERATIONS": str(MOST_TURNS), "RUNS__MAX_TURNS": str(MOST_TURNS)}
    core = Core(
        home,
        clean_environ(root, runtime) | {f"OWLBOX__{key}": value for key, value in settings.items()},
        process="cli",
        is_shared=False,
    )
    core.recover()
    (home.box / "notes" / "garage.md").write_text(NOTE, encoding="utf-8")
    core.box_folder.compare()
    try:
        yield Stage(core)
        assert core.close("the test is over") == []
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


def check_kept(stage: Stage, told: Told, most_turns: int) -> None:
    """Whatever it said: the loop is over, what was told is what is kept, and every turn was the local model's."""
    runs = stage.core.runs
    assert told.end.status in (200, 202, 499) and runs.get(told.run).status == told.end.status, told.items
    kept = [event for event in runs.events(told.run) if event.kind == "message" and event.role == "assistant"]
    said = [event.content for event in told.events("message") if event.role == "assistant"]
    assert said == [event.content for event in kept][len(kept) - len(said) :]
    if told.end.status == 200:
        shown = "".join(told.said.split())  # what was streamed has spaces that are not kept
        assert said and all("".join(text.split()) in shown for text in said)
    turns = runs.turns(told.run)
    assert 1 <= len(turns) <= most_turns and {turn["provider"] for turn in turns} == {"llama"}
    for turn in turns:
        assert 0 < turn["evaluated_tokens"] <= turn["prompt_tokens"] and 0 < turn["output_tokens"] <= 48


@pytest.mark.covers("R-149", "B-115", "R-208")
def test_it_is_shown_the_note_that_a_question_is_about_with_its_name(stage: Stage) -> None:
    told = stage.ask("Who keeps the garage door code?", ENTRIES, "act")
    sent = stage.core.copies.get(told.run, 1)
    assert "kept by Ada, the neighbour. She lives at number 12. [box://notes/garage.md]" in sent.text("user/relevant")
    assert stage.core.runs.turns(told.run)[0]["prompt_tokens"] == sent.tokens
    check_kept(stage, told, MOST_TURNS)


@pytest.mark.parametrize(
    ("prompt", "name", "settings"),
    [
        ("Add a task to water the roses.", "water the roses", ENTRIES),
        ("Please create a task: call the plumber on Monday", "call the plumber on Monday", CHAT),
    ],
)
def test_it_adds_a_task_on_request_and_says_so(stage: Stage, prompt: str, name: str, settings: RunSettings) -> None:
    told = stage.ask(prompt, settings, "act")
    assert (told.end.status, told.deeds) == (200, "create_task:200") and f"On your list: {name}" in told.said
    (made,) = [task for task in stage.core.tasks.list_tasks(limit=10) if task.origin == told.run]
    assert made.name == name and made.status == "pending"
    assert len(stage.core.runs.turns(told.run)) == 1  # what the tool says is the answer: asked on, the model would repeat itself


def test_a_loop_ends_within_its_cap_however_often_it_was_shown_the_same_call(stage: Stage) -> None:
    """Which verdict ends it depends on the model; tests/agent/test_agent.py and test_scenarios.py have each of them."""
    runs = stage.core.runs
    runs.touch_session(Inbound("local", "ada", "", new_id(), 1))
    run = runs.begin("local:ada", "chat").id
    runs.append(Event(run, "message", "user", "Look for owls."))
    for n in range(4):  # a model continues what it is shown, a small one above all
        runs.append(Event(run, "tool_use", "assistant", "", tool="search", input={"query": "owls"}, call_id=f"c{n}"))
        runs.append(Event(run, "tool_result", "tool", "Nothing was found. Search again.", tool="search", call_id=f"c{n}"))
    told = stage.ask("Look for owls again.", CHAT, "act", thread=run)
    check_kept(stage, told, MOST_TURNS)
    calls = [event.call_id for event in runs.events(run) if event.kind == "tool_use"]
    assert sorted(calls) == sorted(event.call_id for event in runs.events(run) if event.kind == "tool_result")
