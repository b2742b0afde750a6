"""Memory from the command line and at archival, with a real core and the scripted model."""

from pathlib import Path

import pytest
from process import Box, a_box  # noqa: F401


def test_memory_is_added_listed_found_shown_and_forgotten(box: Box) -> None:
    assert "nothing is remembered" in box.run("memory", "list").stdout
    made = box.run("memory", "add", "The", "garage", "code", "is", "4711.", "--topic", "house", "--tag", "code")
    assert made.stdout == "Kept as memory:/house/garage-code-4711\n"
    again = box.run("memory", "add", "The garage code is 4711")
    assert again.stdout == "Brought up to date: memory:/house/garage-code-4711\n"
    table = box.run("memory", "list", "--topic", "house").stdout
    assert "house/garage-code-4711" in table and "4711" in table
    (line,) = box.json("memory", "search", "garage")
    assert line["record"]["version"] == 2 and line["record"]["tags"] == ["code"]
    shown = box.run("memory", "show", line["record"]["id"]).stdout
    assert shown.startswith("---\nid: ") and "topic: house" in shown
    assert box.run("memory", "move-topic", "house", "home").stdout == "memories moved from house to home: 1\n"
    assert box.run("memory", "topics").stdout.split() == ["topic", "records", "home", "1"]
    line = box.json("memory", "list")[0]
    kept = box.run("memory", "forget", line["ref"])
    assert kept.returncode == 2 and "--yes" in kept.stderr
    assert box.run("memory", "forget", line["ref"], "--yes").stdout.startswith("Forgot The garage code")
    assert box.run("memory", "forget", line["ref"], "--yes").returncode == 3
    assert box.run("history", line["ref"]).stdout.count("4711") <= 1, "only the name that was asked for"
    assert box.run("memory", "list", "--owner", "nobody").returncode == 2


@pytest.mark.covers("A-232")
def test_a_memory_that_was_printed_comes_back_as_it_was(box: Box, tmp_path: Path) -> None:
    made = box.json("memory", "add", "Salt is in the cellar.", "--topic", "house", "--tag", "food", "--importance", "7")
    shown, file = box.run("memory", "show", made["ref"]).stdout, tmp_path / "salt.md"
    file.write_text(shown)
    assert box.json("memory", "forget", made["ref"], "--yes")["id"] == made["record"]["id"]
    assert box.run("memory", "import", str(file)).stdout == "Kept as memory:/house/salt-cellar\n"
    assert box.run("memory", "show", made["record"]["id"]).stdout == shown
    file.write_text(shown.replace("cellar.", "attic."))
    assert box.run("memory", "import", str(file)).stdout.startswith("Brought up to date: ")
    assert [one["record"]["text"] for one in box.json("memory", "list", "--tag", "food")] == ["Salt is in the attic."]
    file.write_text("Salt.\n")
    assert box.run("memory", "import", str(file)).returncode == 2


def test_remembering_the_same_in_other_words_is_one_entry(box: Box) -> None:
    first = box.run("remember", "I like green tea.").stdout
    assert box.run("remember", "I like green tea").stdout == first
    assert box.run("remember", "I do not like green tea.").stdout != first


@pytest.mark.covers("A-228", "A-239")
def test_what_was_said_is_remembered_when_a_session_is_archived_and_once(box: Box) -> None:
    core = box.serve()
    core.call("message.send", text="I prefer tea with milk. What time is it?")
    core.call("message.send", text="ok")
    (session,) = core.call("session.list")
    core.call("session.change", id=session["id"], status="archived")
    (line,) = core.call("memory.list")
    assert line["record"]["text"] == "I prefer tea with milk." and line["record"]["kind"] == "preference"
    assert line["record"]["source"] == f"session:{session['id']}" and line["record"]["owner"] == session["context"]
    core.call("memory.forget", key=line["ref"])
    core.call("message.send", text="hello again")
    core.call("session.change", id=session["id"], status="archived")
    assert core.call("memory.list") == [], "what was forgotten does not come back"


@pytest.mark.covers("A-228")
def test_nothing_is_looked_through_where_that_is_switched_off(box: Box) -> None:
    core = box.serve(OWLBOX__SESSIONS__ARCHIVAL__MEMORY_EXTRACTION="false")
    core.call("message.send", text="I prefer tea with milk.")
    (session,) = core.call("session.list")
    core.call("session.change", id=session["id"], status="archived")
    assert core.call("memory.list") == []
