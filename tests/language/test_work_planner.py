"""What is done with work where the model is tiny or small: done with a check, or not done and said so; never tried twice."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from record_tools import replace
from stores import new_store
from test_agent import LOCAL, PlayedModel, PlayedTools, Quiet

from appliance.agent.agent import Agent
from appliance.agent.loop_state import LoopLimits
from appliance.clock import CancelToken
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.request_texts import FOR_PERSON, NEEDS_MODEL
from appliance.language.router import CAREFUL, EFFECTS, Router
from appliance.language.work_planner import OF_SKILLS, QUIET, WorkPlanner
from appliance.prompt.packet import Packets
from appliance.prompt.roles import Role
from appliance.records import LoopEnded, Message, Outcome, Tier, ToolCall

NAMES = (
    "remind",
    "list_tasks",
    "list_schedules",
    "write_note",
    "complete_task",
    "fail_task",
    "wait_task",
    "create_task",
    "remember",
    "append_note",
)
ENDS = ("complete_task", "fail_task", "wait_task")
NOTES = {
    "box://notes/garden.md": ("Garden", "# Garden\n\nThe roses need water every second day. The tap is behind the shed.\n"),
    "box://notes/lisbon.md": (
        "Lisbon",
        "# Lisbon\n\nWe fly to Lisbon on 4 May with TAP. The hotel in Lisbon is the Gloria. Ada waters the garden in May.\n",
    ),
}
WORKER = Role("worker", is_background=True, menu="worker")
HELPER = Role("researcher", is_child=True)
Ran = tuple[LoopEnded, list[ToolCall], int]


@pytest.fixture
def work(tmp_path: Path) -> Callable[..., Ran]:
    store = new_store(tmp_path / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    for ref, (title, body) in NOTES.items():
        entries.set(ref, body, title=title, writer="folder")
    languages = Languages()
    finder = Finder(Search(store, passages), entries, lambda texts: (), languages.function_words(), languages.pointing_words())
    guide = WorkPlanner(Router(languages, lambda texts: ()), finder, entries, lambda: datetime(2026, 11, 23, 9, 5))

    def run(text: str, role: Role = WORKER, tier: Tier = "tiny", answers: Any = (), act: Any = None) -> Ran:
        said: Any = Quiet(Message("user", f"Task: {text}" if role is WORKER else text))
        names = NAMES if role is WORKER else tuple(name for name in NAMES if name not in ENDS)
        tools = PlayedTools(act or (lambda call: Outcome(200, "ok", f"did {call.name}")), names=names)
        model = PlayedModel(list(answers))
        limits = LoopLimits(tier=lambda route: tier)
        mind = Agent(model, tools, Packets(lambda: (), said, said), said, limits, make_guide=lambda: guide)  # type: ignore[arg-type]
        steps = list(mind.loop("run", (LOCAL,), CancelToken(), role=role))
        assert isinstance(steps[-1], LoopEnded)
        return steps[-1], tools.called, len(model.asked)

    return run


def names(calls: list[ToolCall]) -> list[str]:
    return [call.name for call in calls]


def test_everything_about_something_becomes_a_note_with_sources(work: Any) -> None:
    _, calls, asked = work("Collect everything about the garden into a note")
    assert names(calls) == ["write_note", "complete_task"] and asked == 0
    body = calls[0].arguments["text"]
    assert calls[0].arguments["title"] == "Garden"
    assert (
        "roses need water" in body and "Ada waters the garden" in body and "[box://notes/lisbon.md]" in body and "hotel" not in body
    )


def test_a_note_is_summarised_with_its_own_sentences_by_a_tiny_model(work: Any) -> None:
    _, calls, asked = work("Summarise the note about Lisbon")
    assert names(calls) == ["complete_task"] and asked == 0
    said = calls[0].arguments["summary"]
    assert "4 May" in said and said.endswith("[box://notes/lisbon.md]")


@pytest.mark.parametrize(
    "answer, held", [("We fly to Lisbon on 4 May with TAP.", "TAP. [box"), ("The flight to Lisbon costs 300 euros.", "Gloria")]
)
def test_a_small_models_summary_counts_when_the_note_supports_it(work: Any, answer: str, held: str) -> None:
    _, calls, asked = work("Summarise the note about Lisbon", tier="small", answers=[answer])
    assert names(calls) == ["complete_task"] and asked == 1
    assert held in calls[0].arguments["summary"] and "300" not in calls[0].arguments["summary"]


def test_a_summary_becomes_a_note_when_that_is_asked(work: Any) -> None:
    _, calls, _ = work("Summarise the Lisbon note into a note called Trip")
    assert names(calls) == ["write_note", "complete_task"] and calls[0].arguments["title"] == "Trip"


@pytest.mark.parametrize("text", ["Find out when we fly to Lisbon", "What is the hotel in Lisbon?"])
def test_what_the_notes_answer_is_found(work: Any, text: str) -> None:
    _, calls, _ = work(text)
    assert names(calls) == ["complete_task"] and "box://notes/lisbon.md" in calls[0].arguments["summary"]


@pytest.mark.parametrize(
    "text",
    [
        "Write a business plan with current market numbers",
        "Book a flight to Lisbon",
        "Find the cheapest flight to Lisbon",
        "Collect everything about the garden into a note and email it to Ada",
        "Summarise the news of today",
        "Paint the fence",
        "Erstelle einen Finanzplan für das nächste Jahr",
    ],
)
@pytest.mark.parametrize("tier", ["tiny", "small"])
def test_what_no_small_model_can_do_waits_for_one_that_can(work: Any, text: str, tier: Tier) -> None:
    _, calls, asked = work(text, tier=tier)
    assert names(calls) == ["wait_task"] and asked == 0 and NEEDS_MODEL in calls[0].arguments["reason"]


@pytest.mark.parametrize(
    "text", ["Collect everything about eels into a note", "Summarise the note about Peru", "What is Bo's age?"]
)
def test_what_is_not_in_the_notes_fails_and_names_what_was_looked_for(work: Any, text: str) -> None:
    _, calls, asked = work(text)
    assert names(calls) == ["fail_task"] and asked == 0 and "nothing about that" in calls[0].arguments["reason"]


def test_an_effect_that_fails_is_no_result(work: Any) -> None:
    def act(call: ToolCall) -> Outcome:
        return Outcome(403, "permission", "not allowed") if call.name == "write_note" else Outcome(200, "ok", "ok")

    _, calls, _ = work("Write a note called Packing that says: tent, stove", act=act)
    assert names(calls) == ["write_note", "fail_task"] and "not allowed" in calls[1].arguments["reason"]


def test_a_question_back_is_no_result_where_nobody_answers(work: Any) -> None:
    _, calls, _ = work("Remind me to call the plumber")
    assert names(calls) == ["fail_task"]


def test_a_job_that_was_handed_over_ends_with_why_it_is_not_done(work: Any) -> None:
    end, calls, asked = work("Plan the wedding", role=HELPER)
    assert (end.status, end.outcome, calls, asked) == (422, "unable", [], 0) and NEEDS_MODEL in end.message
    text = "The roses need water every second day. The tap is behind the shed, next to the roses."
    end, _, _ = work(f"Summarise this text:\n\n{text}", role=HELPER)
    assert end == LoopEnded(200, "ok")


@pytest.mark.parametrize(
    "name", ["call the bank", "Water the roses", "Brot kaufen", "acheter du pain", "llamar al banco", "Plan the wedding"]
)
def test_an_errand_of_the_person_stays_on_their_list(work: Any, name: str) -> None:
    _, calls, asked = work(name)
    assert names(calls) == ["wait_task"] and asked == 0
    assert FOR_PERSON in calls[0].arguments["reason"] and NEEDS_MODEL in calls[0].arguments["reason"]


@pytest.mark.parametrize(
    "name",
    [
        *("Write a poem about owls", "Research the best heat pumps", "Translate the manual", "Vergleiche die Angebote"),
        *("What is the best heat pump?", "Collect everything about the garage and email it to Ada"),
    ],
)
def test_what_is_asked_of_the_box_and_too_much_for_it_is_told(work: Any, name: str) -> None:
    _, calls, _ = work(name)
    assert len(calls) == 1 and calls[0].name in ("wait_task", "fail_task") and FOR_PERSON not in calls[0].arguments["reason"]
    _, calls, _ = work("call the bank\n\nAsk them for the last three statements and sum them up.")
    assert FOR_PERSON not in calls[0].arguments["reason"]


def test_a_list_to_look_after_is_quiet_until_a_line_finds_something(work: Any) -> None:
    role = Role("heartbeat", is_child=True)
    text = "Read it.\n\n<HEARTBEAT.md>\n- [ ] {}\n</HEARTBEAT.md>"

    def act(call: ToolCall) -> Outcome:
        return Outcome(200, "ok", "1. roses", data={"tasks": rows})

    rows: list[Any] = []
    end, calls, asked = work(text.format("list my tasks"), role=role, act=act)
    assert end.status == 200 and names(calls) == ["list_tasks"] and asked == 0
    end, calls, _ = work(text.format("Is the garage door shut?"), role=role)
    assert (end.outcome, calls) == ("unable", []) and end.message.startswith("Is the garage door shut?")
    assert QUIET not in end.message


def test_an_able_model_keeps_its_loop(work: Any) -> None:
    end, calls, asked = work("Plan the wedding", tier="able", answers=["It is planned."])
    assert end.status == 200 and asked == 1 and calls == []


def test_every_language_says_what_it_takes() -> None:
    for language in Languages().all:
        assert NEEDS_MODEL in language.say("unable"), language.name
        assert NEEDS_MODEL in language.say("for_you") and FOR_PERSON in language.say("for_you"), language.name
        if "unable" in language.phrases:  # a small file leaves such work out, and says so in English
            assert replace(language).sentences["collect_note"] and language.sentences["digest"], language.name


def test_work_adds_lines_to_a_note_that_is_named_and_to_no_other(work: Any) -> None:
    _, called, _ = work("Add 'prune the roses' to my note about the garden")
    assert [(call.name, call.arguments) for call in called][0] == (
        "append_note",
        {"name": "notes/garden.md", "text": "prune the roses"},
    )
    _, called, _ = work("Add 'wax' to my note about the skis")
    assert [call.name for call in called] == ["fail_task"]  # nobody answers what is asked back


def test_work_is_told_the_calendar(work: Any) -> None:
    _, called, _ = work("How many days until Christmas?")
    assert called[-1].name == "complete_task" and "32 days until Friday, 25 December 2026." in str(called[-1].arguments)


def test_no_skill_may_ask_for_what_may_change_something() -> None:
    assert not {*EFFECTS, *CAREFUL} & {*OF_SKILLS}
