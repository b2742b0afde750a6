"""What the program writes itself: a report of tasks, the tasks of a text, and what a skill comes to with a small model."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from stores import new_store

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.items import find_todos
from appliance.language.languages import Languages
from appliance.language.planning.results import write_standup, write_todos
from appliance.language.program_or_model import Do, ModelTalk, Plan, Say
from appliance.language.router import Router
from appliance.language.work_planner import WorkPlanner
from appliance.records import Message
from appliance.skills.arguments import render, short_form
from appliance.skills.skill_file import Skill, parse_skill

LANGUAGES = Languages()
NOW = datetime(2026, 11, 23, 9, 5)  # a Monday
SHIPPED = Path(__file__).parents[2] / "skills"
MAIL = """Thanks for the meeting. Priya will send the contract until Friday. Tom was ill.
- [ ] order toner
- [x] call Bob
To do: Tom writes the load test.
Please water the plants. The pressure should be between 1.2 and 1.5 bar. I already paid the rent. What do you think?"""


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkPlanner]:
    store = new_store(tmp_path_factory.mktemp("reports") / "owlbox.db")
    passages = Passages(store)
    entries = Entries(store, passages.index)
    entries.set(
        "box://notes/boiler.md", "# Boiler\n\nThe boiler is from 2019. Henrik services it.\n", title="Boiler", writer="folder"
    )
    finder = Finder(Search(store, passages), entries, lambda texts: (), LANGUAGES.function_words(), LANGUAGES.pointing_words())
    yield WorkPlanner(Router(LANGUAGES, lambda texts: ()), finder, entries, lambda: NOW)
    store.close()


def called(guide: WorkPlanner, skill: Skill, words: str) -> Plan:
    return guide.plan("tiny", [Message("user", skill.body, own_chars=0, short_form=short_form(skill, words))])


def shipped(name: str) -> Skill:
    path = SHIPPED / name / "SKILL.md"
    return parse_skill(path, path.read_text(encoding="utf-8"))


def own(body: str, front: str = "") -> Skill:
    return parse_skill(Path("box/skills/mine/SKILL.md"), f"---\nname: mine\ndescription: Mine.\n{front}---\n{body}\n")


def test_a_text_says_what_is_to_be_done() -> None:
    assert find_todos(MAIL) == [
        "Priya will send the contract until Friday.",
        "order toner",
        "Tom writes the load test.",
        "Please water the plants.",
    ]
    assert find_todos("Anna muss den Vertrag schicken. Es regnet. Bitte die Blumen gießen.") == [
        "Anna muss den Vertrag schicken.",
        "Bitte die Blumen gießen.",
    ]
    assert "2. order toner" in write_todos(MAIL, LANGUAGES.english)
    assert write_todos("It rains.", LANGUAGES.english).startswith("I find nothing")


def test_a_standup_has_three_lines_of_tasks() -> None:
    ended_ms = int(datetime(2026, 11, 20, 15).timestamp() * 1000)  # on Friday
    rows: list[dict[str, Any]] = [
        {"id": 1, "name": "oil the gate", "status": "complete", "priority": "low", "open_blockers": 0, "ended_ms": ended_ms},
        {"id": 2, "name": "sweep", "status": "complete", "priority": "low", "open_blockers": 0, "ended_ms": 1},
        {"id": 3, "name": "paint", "status": "pending", "priority": "low", "open_blockers": 0, "ended_ms": None},
        {"id": 4, "name": "order toner", "status": "pending", "priority": "high", "open_blockers": 0, "ended_ms": None},
        {"id": 5, "name": "print", "status": "pending", "priority": "high", "open_blockers": 1, "ended_ms": None},
        {"id": 6, "name": "call Bob", "status": "waiting", "priority": "low", "open_blockers": 0, "ended_ms": None},
    ]
    assert write_standup(rows, NOW, LANGUAGES.english) == "Done: oil the gate\nNext: order toner, paint\nStuck: call Bob"
    assert write_standup([], NOW, LANGUAGES.english) == "Done: nothing\nNext: nothing\nStuck: nothing"


def test_shipped_skills_come_to_what_the_program_can_do(guide: WorkPlanner) -> None:
    summary = called(guide, shipped("summarize"), "The library is closed. Books go to the town hall. It opens in May.")
    assert isinstance(summary, Say) and summary.text == "The library is closed."
    note = called(guide, shipped("summarize"), "the boiler")
    assert isinstance(note, Say) and note.text.startswith("The boiler is from 2019.") and "[box://notes/boiler.md]" in note.text
    standup = called(guide, shipped("standup"), "")
    assert isinstance(standup, Do) and standup.call.name == "list_tasks"
    todos = called(guide, shipped("task-extractor"), MAIL.replace("\n", " "))
    assert isinstance(todos, Say) and "Please water the plants." in todos.text


def test_a_skill_of_steps_and_tools_says_what_it_takes(guide: WorkPlanner) -> None:
    for skill in (shipped("study-cards"), shipped("research"), own("1. Call `search`.\n2. Answer.")):
        plan = called(guide, skill, "boiler")
        assert isinstance(plan, Say) and "owlbox model list" in plan.text
    missing = called(guide, own("x", 'metadata:\n  small: "Say of $ARGUMENTS"\n'), "")
    assert "summarize this conversation so far" in render(shipped("summarize"), "")
    assert isinstance(missing, Say) and missing.text.startswith("After the name")


def test_a_skill_that_is_one_request_is_asked_plainly_and_no_answer_recites_it(guide: WorkPlanner) -> None:
    plan = called(guide, own("Say in the voice of a pirate: $ARGUMENTS"), "good day")
    assert isinstance(plan, ModelTalk) and plan.messages[-1].content == "Say in the voice of a pirate: good day"
    assert "voice of a pirate" in plan.forbidden and "good day" not in plan.forbidden


def test_a_skill_never_asks_for_an_effect_in_its_short_form(guide: WorkPlanner) -> None:
    plan = called(guide, own("1. One.\n2. Two.", 'metadata:\n  small: "Add a task to $ARGUMENTS"\n'), "rob a bank")
    assert isinstance(plan, ModelTalk)


TALKED = [
    Message("user", "The boiler lost its pressure again this morning."),
    Message("assistant", "The pressure of the boiler should be 1.4 bar. [box://notes/boiler.md]"),
    Message("user", "I have filled up the boiler to that pressure, and Ada comes on Friday to look at the valve."),
    Message("assistant", "Good."),
]


@pytest.mark.parametrize(
    "text",
    [
        *("/summarize", "Summarise this conversation so far", "Fasse unser Gespräch zusammen", "Résume notre conversation"),
        *("Resume esta conversación", "Riassumi questa conversazione"),
    ],
)
def test_a_talk_is_summed_up_in_its_own_sentences(guide: WorkPlanner, text: str) -> None:
    skill = shipped("summarize")
    asked = Message("user", text)
    if text.startswith("/"):
        asked = Message("user", skill.body, own_chars=0, short_form=short_form(skill, ""))
    said = guide.plan("tiny", [*TALKED, asked])
    assert isinstance(said, Say) and "Ada comes on Friday" in said.text and "1.4 bar" in said.text and "box://" not in said.text
    nothing = guide.plan("tiny", [asked])
    assert isinstance(nothing, Say) and nothing.text and "boiler" not in nothing.text


def test_words_behind_a_skill_are_what_is_summed_up(guide: WorkPlanner) -> None:
    form = short_form(shipped("summarize"), "the boiler")
    assert form.sentences == ("Summarise the note about the boiler", "Summarise in one sentence: the boiler")
