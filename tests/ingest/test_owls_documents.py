"""The documents that the owl writes itself: whole, at once, with their front matter, and in nobody else's prompt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stores import new_store
from test_scenarios import CHAT, Stage, opened

from appliance.clock import CancelToken
from appliance.errors import Conflict, Refused
from appliance.ingest import notes
from appliance.ingest.own_documents import Documents
from appliance.knowledge.entries import Entries
from appliance.records import Inbound, ToolCall
from appliance.runtime.methods import LocalCall, find_methods
from appliance.service.core import Core

KEPT = "---\nloading: always\nagent-modification: true\n---\n\nOld words.\n"


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with opened(tmp_path_factory.mktemp("documents"), {"hi": ["Hoot."], "ben": ["Hoot."]}) as made:
        yield made


def write(stage: Stage, name: str, run: str = "", **given: Any) -> Any:
    return stage.core.toolbox.dispatch(ToolCall("1", name, given), run, CancelToken())


def writing(box: Path, people: int) -> Documents:
    return Documents(box, lambda: people, notes.Folder(box, Entries(new_store(box.with_name(f"{box.name}.db")))))


def undone(core: Core, run: str, *, is_dry_run: bool = False) -> Any:
    return find_methods(*core.offered)["run.undo"].call(LocalCall(), run=run, is_dry_run=is_dry_run)


def in_prompt(stage: Stage, name: str) -> str | None:
    return next((part.text for part in notes.documents(stage.core.home.box)[0] if part.name == name), None)


@pytest.mark.covers("E-256", "E-257", "S-039", "S-040")
def test_memory_is_replaced_as_a_whole_and_an_empty_one_is_in_no_prompt(stage: Stage) -> None:
    assert in_prompt(stage, "MEMORY") is None
    assert write(stage, "memory_write", content="- Ada is vegetarian.").status == 200
    assert in_prompt(stage, "MEMORY") == "- Ada is vegetarian."
    assert write(stage, "memory_write", content="").status == 200 and in_prompt(stage, "MEMORY") is None
    for given in ({}, {"content": None}):
        assert write(stage, "memory_write", **given).outcome == "invalid_arguments"
    assert [path.name for path in stage.core.home.box.glob(".*.new")] == []


@pytest.mark.covers("B-116", "E-230")
def test_front_matter_stays_and_the_change_is_in_the_thread(stage: Stage) -> None:
    path = stage.core.home.box / "BELIEFS.md"
    path.write_text(KEPT)
    run = stage.ask("[hi] Hello.", CHAT).run
    assert write(stage, "update_beliefs", run, content="New words.").status == 200
    assert path.read_text() == KEPT.replace("Old", "New") and in_prompt(stage, "BELIEFS") == "New words."
    (change,) = [event for event in stage.core.runs.events(run) if event.kind == "context_update"]
    assert change.tool == "BELIEFS" and change.content == "BELIEFS.md has 2 words"
    (stage.core.home.box / "GOALS.md").unlink(missing_ok=True)
    assert write(stage, "update_goals", run, content="Rest.").status == 200 and in_prompt(stage, "GOALS") == "Rest."


@pytest.mark.covers("B-116", "E-230")
def test_a_document_that_bars_the_owl_stays_as_it_is(stage: Stage) -> None:
    path = stage.core.home.box / "GOALS.md"
    path.write_text(KEPT.replace("true", "false"))
    assert write(stage, "update_goals", content="Mine.").status == 403
    assert path.read_text() == KEPT.replace("true", "false")
    path.write_text("---\nnever closed")
    assert write(stage, "update_goals", content="Mine.").status == 400 and path.read_text() == "---\nnever closed"


@pytest.mark.covers("A-010")
def test_where_several_people_talk_nothing_is_written_into_everybodys_prompt(stage: Stage) -> None:
    mine = stage.ask("[hi] Hello.", CHAT).run
    with stage.core.store.write(durable=True):
        stage.core.runs.touch_session(Inbound("local", "ben", "hi", "m1", 1))
    outcome = write(stage, "memory_write", mine, content="Ada's secret.")
    assert outcome.status == 403 and in_prompt(stage, "MEMORY") is None and "remember" in outcome.hint


def test_a_note_is_a_new_file_that_takes_the_place_of_none(tmp_path: Path) -> None:
    documents = writing(tmp_path, 1)
    first, second = documents.add_note("Packing list", "Tent."), documents.add_note("Packing list", "Stove.")
    assert (first.name, second.name) == ("packing-list.md", "packing-list-2.md") and first.parent == tmp_path / "notes"
    assert first.read_text(encoding="utf-8") == "# Packing list\n\nTent.\n"
    assert documents.add_note("../..", "Out?").parent == tmp_path / "notes"


def test_where_several_people_talk_no_note_is_written_that_all_would_see(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        writing(tmp_path, 2).add_note("Secret", "Ada's present")
    assert not (tmp_path / "notes").exists()


def test_an_undo_takes_a_note_file_back_and_brings_it_back(stage: Stage) -> None:
    core, run = stage.core, stage.ask("[hi] Hello.", CHAT).run
    assert write(stage, "write_note", run, title="Packing list", text="Tent.").status == 200
    path = core.home.box / "notes/packing-list.md"
    assert core.entries.get("box://notes/packing-list.md").body == path.read_text() == "# Packing list\n\nTent.\n"
    assert undone(core, run, is_dry_run=True)["changes"][0]["path"] == "box://notes/packing-list.md" and path.exists()
    back = undone(core, run)
    assert not path.exists() and core.entries.find("box://notes/packing-list.md") is None
    again = undone(core, back["by"])
    assert path.read_text() == "# Packing list\n\nTent.\n"
    undone(core, again["by"])
    assert not path.exists()


def test_an_undo_leaves_a_note_file_that_somebody_has_changed_since(stage: Stage) -> None:
    core, run = stage.core, stage.ask("[hi] Hello.", CHAT).run
    assert write(stage, "write_note", run, title="Packing list", text="Tent.").status == 200
    path = core.home.box / "notes/packing-list.md"
    path.write_text("# Packing list\n\nTent. And a stove.\n")  # nobody has looked at the folder since
    with pytest.raises(Conflict, match="packing-list.md"):
        undone(core, run)
    assert "stove" in path.read_text() and "stove" in core.entries.get("box://notes/packing-list.md").body


def test_an_undo_brings_back_a_document_as_the_person_had_left_it(stage: Stage) -> None:
    path = stage.core.home.box / "GOALS.md"
    path.write_text(KEPT)  # and the entry knows nothing of it yet
    run = stage.ask("[hi] Hello.", CHAT).run
    assert write(stage, "update_goals", run, content="New words.").status == 200
    undone(stage.core, run)
    assert path.read_text() == KEPT and in_prompt(stage, "GOALS") == "Old words."
