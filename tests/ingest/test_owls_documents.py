"""The documents that the owl writes itself: whole, at once, with their front matter, and in nobody else's prompt."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stores import new_store
from test_scenarios import CHAT, Stage, opened

from appliance import tools
from appliance.agent.capabilities import BESIDE, SUBJECTS, Ability, fault, server_lines, static_lines
from appliance.agent.toolbox import read_tool
from appliance.clock import CancelToken
from appliance.errors import Conflict, NotFound, Refused
from appliance.ingest import notes, prompt_documents
from appliance.ingest.document_methods import PromptDocuments
from appliance.ingest.own_documents import Documents
from appliance.knowledge.entries import Entries
from appliance.records import Inbound, ToolCall
from appliance.runtime.methods import LocalCall, find_methods
from appliance.service.core import Core
from appliance.store import visibility

KEPT = "---\nloading: always\nagent-modification: true\n---\n\nOld words.\n"


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with opened(tmp_path_factory.mktemp("documents"), {"hi": ["Hoot."], "ben": ["Hoot."]}) as made:
        yield made


def write(stage: Stage, tool: str, run: str = "", /, **given: Any) -> Any:
    return stage.core.toolbox.dispatch(ToolCall("1", tool, given), run, CancelToken())


def writing(box: Path, people: int) -> Documents:
    return Documents(box, lambda: people, notes.Folder(box, Entries(new_store(box.with_name(f"{box.name}.db"))), os.environ))


def undone(core: Core, run: str, *, is_dry_run: bool = False) -> Any:
    return find_methods(*core.offered)["run.undo"].call(LocalCall(), run=run, is_dry_run=is_dry_run)


def in_prompt(stage: Stage, name: str) -> str | None:
    return next((part.text for part in prompt_documents.documents(stage.core.home.box)[0] if part.name == name), None)


@pytest.mark.covers("E-256", "E-257", "S-039", "S-040")
def test_memory_is_replaced_as_a_whole_and_an_empty_one_is_in_no_prompt(stage: Stage) -> None:
    assert in_prompt(stage, "MEMORY") is None
    assert write(stage, "memory_write", content="- Ada is vegetarian.").status == 200
    assert in_prompt(stage, "MEMORY") == "# Your Memory\n\n- Ada is vegetarian."
    assert write(stage, "memory_write", content="# Memory\n\n- Ada has a cat.").status == 200
    assert in_prompt(stage, "MEMORY") == "# Your Memory\n\n- Ada has a cat."
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


def test_lines_are_added_to_a_note_in_its_form_and_taken_off_again(stage: Stage) -> None:
    core, run = stage.core, stage.ask("[hi] Hello.", CHAT).run
    path = core.home.box / "notes/shopping.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("---\ntitle: Shopping\n---\n\n- milk\n")
    assert write(stage, "append_note", run, name="notes/shopping.md", text="eggs\nbread").status == 200
    assert path.read_text() == "---\ntitle: Shopping\n---\n\n- milk\n- eggs\n- bread\n"
    assert "- bread" in core.entries.get("box://notes/shopping.md").body
    assert write(stage, "shorten_note", run, name="notes/shopping.md", text="bread").status == 200
    assert path.read_text().endswith("- milk\n- eggs\n")
    path.write_text("- milk\n- eggs\n- mine\n")
    assert write(stage, "shorten_note", run, name="notes/shopping.md", text="eggs").status == 409
    assert path.read_text() == "- milk\n- eggs\n- mine\n"


def test_an_undo_takes_added_lines_back(stage: Stage) -> None:
    core, run = stage.core, stage.ask("[hi] Hello.", CHAT).run
    path = core.home.box / "notes/shopping.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text("- milk\n")
    assert write(stage, "append_note", run, name="notes/shopping.md", text="eggs").status == 200
    undone(core, run)
    assert path.read_text() == "- milk\n"


@pytest.mark.parametrize(
    "name", ["SOUL.md", "GOALS.md", "../owlbox.md", "/etc/hosts.md", "notes/none.md", "roles/chat/SOUL.md", "users/ben/USER.md"]
)
def test_only_notes_get_lines(stage: Stage, name: str) -> None:
    run = stage.ask("[hi] Hello.", CHAT).run
    before = {path: path.read_bytes() for path in stage.core.home.box.rglob("*.md")}
    assert write(stage, "append_note", run, name=name, text="mine").is_error
    assert {path: path.read_bytes() for path in stage.core.home.box.rglob("*.md")} == before


def test_neither_a_link_nor_a_note_of_several_people_nor_another_encoding_is_changed(tmp_path: Path) -> None:
    box = tmp_path / "box"
    (box / "notes").mkdir(parents=True)
    (tmp_path / "outside.md").write_text("mine\n")
    (box / "notes/link.md").symlink_to(tmp_path / "outside.md")
    (box / "notes/latin.md").write_bytes("Käse".encode("latin-1"))
    (box / "notes/plain.md").write_text("- milk\n")
    for name, people in (("link", 1), ("latin", 1), ("plain", 2)):
        with pytest.raises((Refused, NotFound)):
            writing(box, people).change_note(f"notes/{name}.md", lambda body: body + "x")
    assert (tmp_path / "outside.md").read_text() == "mine\n" and (box / "notes/plain.md").read_text() == "- milk\n"


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


# -- any document ---------------------------------------------------------------------------------------------------


@pytest.mark.covers("B-180")
def test_a_document_is_created_read_changed_and_deleted(stage: Stage) -> None:
    box = stage.core.home.box
    assert write(stage, "prompt_create", name="house", content="The house has two floors.").status == 200
    assert (box / "house.md").read_text() == (
        "---\nloading: contextual\nagent-modification: true\n---\n\nThe house has two floors.\n"
    )
    assert write(stage, "prompt_create", name="house", content="Mine.").status == 409
    patch = {"start_line": 6, "end_line": 6, "content": "The house has three floors."}
    assert write(stage, "document_write", name="house", patches=[patch]).status == 200
    assert "three floors" in write(stage, "document_read", name="house").message
    listed = {one["name"]: one for one in write(stage, "document_list").data}
    assert listed["house"]["may_modify"] and not listed["SOUL"]["may_modify"] and "ENVIRONMENT" not in listed
    assert stage.core.entries.get("box://house.md").body.endswith("three floors.\n")
    assert write(stage, "document_delete", name="house").status == 200
    assert not (box / "house.md").exists() and stage.core.entries.find("box://house.md") is None


@pytest.mark.covers("B-180", "B-112", "A-099")
def test_what_is_the_persons_alone_no_tool_changes(stage: Stage) -> None:
    box = stage.core.home.box
    (box / "roles/coder").mkdir(parents=True)
    (box / "users/eve").mkdir(parents=True)
    kept = {"SOUL.md": "Mine.", "roles/coder/SOUL.md": "Terse.", "house.md": "No front matter.", "users/eve/USER.md": "Eve."}
    for name, text in kept.items():
        (box / name).write_text(text if name != "SOUL.md" else "---\nagent-modification: true\n---\nMine.")
    before = {name: (box / name).read_text() for name in kept}
    patch = [{"start_line": 1, "end_line": 1, "content": "Yours."}]
    for name in ("SOUL", "roles/coder/SOUL", "house", "IDENTITY", "BOOTSTRAP"):
        assert write(stage, "document_write", name=name, patches=patch).status == 403, name
        assert write(stage, "document_delete", name=name).status == 403, name
    assert write(stage, "prompt_create", name="roles/coder/IDENTITY", content="x").status == 403
    run = stage.ask("[hi] Hello.", CHAT).run
    for tool, given in (("document_read", {}), ("document_write", {"patches": patch}), ("document_delete", {})):
        assert write(stage, tool, run, name="users/eve/USER", **given).status == 404, "another person's"
    assert {name: (box / name).read_text() for name in kept} == before


@pytest.mark.covers("B-180")
@pytest.mark.parametrize(
    "line",
    ["loading: sometimes", "colour: red", "agent-modification: false", "loading: [", "loading: always\nloading"],
)
def test_front_matter_that_is_not_right_leaves_a_document_as_it_was(stage: Stage, line: str) -> None:
    path = stage.core.home.box / "BELIEFS.md"
    path.write_text(KEPT)
    number = 3 if line.startswith("agent") else 2
    patch = {"start_line": number, "end_line": number, "content": line}
    assert write(stage, "document_write", name="BELIEFS", patches=[patch]).status == 400
    assert path.read_text() == KEPT


@pytest.mark.covers("B-180")
def test_a_change_whose_entry_cannot_be_written_is_taken_back(stage: Stage) -> None:
    path = stage.core.home.box / "GOALS.md"
    path.write_text(KEPT)
    stage.core.box_folder.compare()
    refused = "CREATE TRIGGER full BEFORE UPDATE ON entries WHEN NEW.path = 'box://GOALS.md' BEGIN SELECT RAISE(ABORT, 'full'); END"
    with stage.core.store.write() as execute:
        execute(refused)
    assert write(stage, "update_goals", content="New words.").is_error
    assert path.read_text() == KEPT
    with stage.core.store.write() as execute:
        execute("DROP TRIGGER full")
    assert write(stage, "update_goals", content="New words.").status == 200


@pytest.mark.covers("A-100")
def test_a_groups_document_is_called_group_in_that_group_and_nowhere_else(stage: Stage) -> None:
    box, methods = stage.core.home.box, PromptDocuments(stage.core.home.box)
    for context, told in (("", "no document GROUP"), ("user:ada", "no document GROUP")):
        with visibility.showing(context), pytest.raises(NotFound, match=told):
            methods.write("GROUP", "Four play.", call=LocalCall())
    with visibility.showing("group:band"):
        assert methods.write("GROUP", "Four play.", call=LocalCall())["path"] == "box/groups/band/GROUP.md"
        assert methods.view("group")["text"] == "Four play."
    assert (box / "groups/band/GROUP.md").read_text() == "Four play." and not (box / "GROUP.md").exists()


# -- what it can do -------------------------------------------------------------------------------------------------


@pytest.mark.covers("B-117")
def test_capabilities_are_written_by_subject_with_their_front_matter_and_counts(stage: Stage) -> None:
    path = stage.core.home.box / "CAPABILITIES.md"
    path.write_text(KEPT)
    outcome = write(stage, "capabilities_refresh")
    own = [one for one in stage.core.toolbox.tools() if not one.origin]
    assert outcome.data["internal_tools"] == len(own) and outcome.data["mcp_tools"] == 0 and outcome.data["created"] is False
    text = path.read_text()
    assert text.startswith(KEPT.partition("Old words.")[0]) and "Old words" not in text and "**Tasks**" in text
    assert not [one.mark.name for one in own if "_" in one.mark.name and one.mark.name in text]
    path.unlink()
    assert write(stage, "capabilities_refresh").data["created"] is True and path.exists()
    path.write_text(KEPT.replace("true", "false"))
    assert write(stage, "capabilities_refresh").status == 403 and "Old words" in path.read_text()


@pytest.mark.covers("B-117")
def test_a_server_that_fails_is_noted_and_not_asked_where_nobody_wants_it(stage: Stage) -> None:
    (stage.core.home.root / "servers.json").write_text('{"mcpServers": {"broken": {"command": "/nowhere/none"}}}')
    found = write(stage, "capabilities_refresh")
    assert found.status == 200 and "broken" in found.data["note"] and found.data["mcp_tools"] == 0
    assert "broken" not in write(stage, "capabilities_refresh", include_mcp=False).data["note"]


@pytest.mark.covers("B-117")
def test_without_a_model_and_where_its_words_are_no_use_a_static_text_is_written() -> None:
    abilities = [Ability("create_task", "planning", "Create a task."), Ability("fetch_url", "web", "Fetch a page.")]
    assert [line.partition(":")[0] for line in static_lines(abilities)] == ["- **Tasks**", "- **Web**"]
    assert fault("- **Tasks**: it can plan what is to be done later, and do it in the background.", abilities) == ""
    assert "create_task" in fault("- **Tasks**: it calls create_task to plan what is to be done.", abilities)
    assert fault("Tasks.", abilities) and fault("x" * 10_000, abilities)
    assert server_lines({"github": 1, "mail": 3}) == ["- **Other programs**: github (1 tool), mail (3 tools)"]


@pytest.mark.covers("B-117")
def test_an_able_model_words_what_it_can_do(stage: Stage) -> None:
    path = stage.core.home.root.parent / "script.json"  # the broker reads it when it is first asked
    words = "- **Work**: it plans what is to be done and does it in the background."
    path.write_text(json.dumps({**json.loads(path.read_text()), "title": words}))
    outcome = write(stage, "capabilities_refresh")
    assert outcome.data["by"] == "model" and words in (stage.core.home.box / "CAPABILITIES.md").read_text()


@pytest.mark.covers("B-112")
def test_a_new_home_says_what_it_can_do_and_a_prompt_does_not_pay_for_it(tmp_path: Path) -> None:
    prompt_documents.install(tmp_path)
    abilities = [Ability(one.mark.name, one.mark.group, one.description) for one in map(read_tool, tools.load())]
    text = (tmp_path / "CAPABILITIES.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("- ")] == static_lines(abilities)
    assert "CAPABILITIES" not in [part.name for part in prompt_documents.documents(tmp_path)[0]]


def test_every_group_of_tools_that_ships_has_a_subject() -> None:
    groups = {read_tool(one).mark.group for one in tools.load()}
    assert groups <= {group for _, of in SUBJECTS.values() for group in of} | set(BESIDE)
