"""Turns of the bundled model itself: it answers from a note and names it, adds a task, and is stopped when it goes on and on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home  # noqa: F401
from process import clean_environ
from test_scenarios import ENTRIES, Stage

from appliance import catalogue, onboard
from appliance.clock import new_id
from appliance.core import Core
from appliance.places import Home
from appliance.records import Event, Inbound, RunSettings

pytestmark = pytest.mark.model
NOTE = "# Garage\n\nThe garage door code is kept by Ada, the neighbour. She lives at number 12.\n"
CHAT = RunSettings()


@pytest.fixture(scope="module")
def stage(model_home: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:  # noqa: F811
    """A core in this process, with the bundled model in a broker beside it; short answers, always the same."""
    root, runtime = tmp_path_factory.mktemp("real-turns"), Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir(mode=0o700)
    home = Home(root / "home")
    onboard.init(home)
    file = catalogue.entries()["smollm2"].file
    (home.models / file).hardlink_to(model_home.models / file)
    settings = {"MODELS__TEMPERATURE": "0", "MODELS__MAX_OUTPUT_TOKENS": "40", "RUNS__MAX_TURNS": "2", "RUNS__TITLES": "words"}
    core = Core(
        home,
        clean_environ(root, runtime) | {f"OWLBOX__{key}": value for key, value in settings.items()},
        process="cli",
        is_shared=False,
    )
    core.recover()
    (home.box / "notes" / "garage.md").write_text(NOTE, encoding="utf-8")
    core.look()
    yield Stage(core)
    assert core.close("the test is over") == []
    shutil.rmtree(runtime)


@pytest.mark.covers("R-149", "B-115")
def test_it_answers_from_a_note_and_names_it(stage: Stage) -> None:
    told = stage.ask("Who keeps the garage door code?", ENTRIES, "act")
    assert told.end.status == 200 and "Ada" in told.said and "[box://notes/garage.md]" in told.said and told.deeds == ""
    sent = stage.core.copies.get(told.run, 1)
    assert "kept by Ada, the neighbour. She lives at number 12. [box://notes/garage.md]" in sent.text("user/relevant")
    (turn,) = stage.core.runs.turns(told.run)
    assert turn["provider"] == "llama" and turn["prompt_tokens"] == sent.tokens


@pytest.mark.parametrize(
    ("prompt", "name", "settings"),
    [
        ("Add a task to water the roses.", "water the roses", ENTRIES),
        ("Please create a task: call the plumber on Monday", "call the plumber on Monday", CHAT),
    ],
)
def test_it_adds_a_task_on_request_and_says_so(stage: Stage, prompt: str, name: str, settings: RunSettings) -> None:
    told = stage.ask(prompt, settings, "act")
    assert (told.end.status, told.deeds) == (200, "create_task:200") and f": {name} (medium)" in told.said
    (made,) = [task for task in stage.core.tasks.listing(limit=10) if task.origin == told.run]
    assert made.name == name and made.status == "pending" and f"Added task {made.id}: {name}" in told.said
    assert len(stage.core.runs.turns(told.run)) == 1  # what the tool says is the answer: asked on, the model would repeat itself


@pytest.mark.covers("R-002", "S-011")
def test_it_is_stopped_by_a_cap_when_it_goes_on_and_on(stage: Stage) -> None:
    runs = stage.core.runs
    runs.touch_session(Inbound("local", "ada", "", new_id(), 1))
    run = runs.begin("local:ada", "chat").id
    runs.append(Event(run, "message", "user", "Look for owls."))
    for n in range(4):  # a model continues what it is shown, a small one above all
        runs.append(Event(run, "tool_use", "assistant", "", tool="search", input={"query": "owls"}, call_id=f"c{n}"))
        runs.append(Event(run, "tool_result", "tool", "Nothing was found. Search again.", tool="search", call_id=f"c{n}"))
    told = stage.ask("Look for owls again.", CHAT, "act", thread=run)
    assert (told.end.status, told.end.outcome) == (499, "max_turns") and told.deeds == "search:200 search:200"
    assert runs.get(run).status == 499 and len(runs.turns(run)) == 2
