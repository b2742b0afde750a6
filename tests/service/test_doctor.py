"""What `owlbox doctor` finds, says and mends."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from process import Box, a_box, tree, until  # noqa: F401

from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.upkeep.checks.database import SAMPLE


def findings(box: Box) -> dict[str, tuple[str, str, str]]:
    """Every finding by its name: state, message, hint."""
    done = box.run("doctor", "--json")
    assert done.stderr == ""
    return {f["name"]: (f["state"], f["message"], f["hint"]) for f in json.loads(done.stdout)}


CHECKS = {"home", "configuration", "database", "model", "documents", "runtime", "disk", "sandbox"}


def test_a_fresh_home_has_no_problems_and_is_left_as_it_was(box: Box) -> None:
    before = tree(box.home.root)
    found = findings(box)
    assert set(found) >= CHECKS
    assert [name for name, (state, _, _) in found.items() if state == "problem" and name != "disk"] == []
    assert tree(box.home.root) == before


def drop_script(box: Box) -> None:
    del box.environ["OWLBOX__MODELS__SCRIPT"]


# name: (what is done to the home, which check sees it, its state, words it says)
TROUBLES: dict[str, tuple[Callable[[Box], object], str, str, str]] = {
    "folder gone": (lambda box: shutil.rmtree(box.home.backups), "home", "warning", "backups"),
    "open to all": (lambda box: box.home.root.chmod(0o755), "home", "warning", "755"),
    "broken file": (lambda box: box.home.config.write_text("[system\n"), "configuration", "problem", "line 1"),
    "no database": (lambda box: box.home.database.unlink(), "database", "problem", "owlbox.db"),
    "no model": (drop_script, "model", "problem", "no model in"),
    "bad model": (lambda box: (drop_script(box), (box.home.models / "x.gguf").write_text("no")), "model", "problem", "x"),
    "unreadable document": (lambda box: unreadable(box.home.box / "SOUL.md"), "documents", "problem", "SOUL"),
}


def unreadable(path: Path) -> None:
    """A folder stands where the document should be: not even root can read that."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("case", TROUBLES)
def test_trouble_is_found_and_comes_with_the_next_step(box: Box, case: str) -> None:
    spoil, name, state, words = TROUBLES[case]
    spoil(box)
    found = findings(box)[name]
    assert found[0] == state and words in found[1] + found[2] and (found[2] or state == "problem")
    assert box.run("doctor").returncode == (1 if state == "problem" else box.run("doctor").returncode)


@pytest.mark.parametrize(("name", "file"), [("configuration", "owlbox.toml"), ("database", "owlbox.db")])
def test_what_is_wrong_with_several_checks_is_said_once(box: Box, name: str, file: str) -> None:
    (box.home.root / file).write_text("[system\n" * 2000)
    found = findings(box)
    said = found[name][1]
    assert [one for one, (_, message, _) in found.items() if message == said] == [name]
    assert (
        len([one for one, (state, message, _) in found.items() if (state, message) == ("problem", f"not checked: see {name}")]) > 1
    )
    assert said in box.run("doctor", "channels").stdout  # asked for alone it says so itself


def test_an_index_that_disagrees_is_made_anew_with_repair(box: Box) -> None:
    box.run("remember", "the well is deep", "--title", "well")
    with box.store() as store, store.write() as execute:
        execute("INSERT INTO chunks_fts(chunks_fts) VALUES ('delete-all')")
    assert findings(box)["database"][0] == "problem"
    assert "well" not in box.run("search", "well").stdout.splitlines()[0].replace("'well'", "")
    done = box.run("doctor", "--repair")
    assert "rebuilt" in done.stdout and findings(box)["database"][0] == "ok"
    assert "deep" in box.run("search", "well").stdout and (box.home.backups / "before-repair.db").exists()


def test_a_large_database_is_looked_at_for_a_moment_and_by_repair_whole(box: Box) -> None:
    with box.store() as store, store.write(durable=True):
        entries = Entries(store, Passages(store).index)
        for number in range(SAMPLE + 50):
            entries.set(f"memory://notes/{number}", f"Owl number {number} of the barn.")
    assert "as far as a short look goes" in findings(box)["database"][1]
    with box.store() as store, store.write() as execute:
        execute("DELETE FROM chunks_fts")
    state, said, hint = findings(box)["database"]
    assert state == "problem" and "chunks without words" in said and "--repair" in hint
    done = box.run("doctor", "--repair")
    assert done.returncode == 0, done.stdout
    assert findings(box)["database"][0] == "ok"


def test_repair_is_refused_while_a_core_runs(box: Box) -> None:
    core = box.serve()
    done = box.run("doctor", "--repair")
    assert done.returncode == 5 and f"pid {core.child.pid}" in done.stderr
    assert findings(box)["database"][0] == "ok"
    assert core.stop() == 0


def test_answers_that_were_cut_off_are_mentioned(box: Box) -> None:
    child = box.start("ask", "stuck")

    def has_begun() -> bool:
        with box.store() as store:
            return bool(store.value("SELECT COUNT(*) FROM loops WHERE status = 102"))

    until(has_begun, "it has begun")
    child.kill()
    child.wait(60)
    state, message, hint = findings(box)["database"]
    assert state == "warning" and "1 interrupted" in message and hint


@pytest.mark.covers("R-042")
def test_large_database_is_mentioned(box: Box) -> None:
    with box.store() as store, store.write() as execute:
        execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, zeroblob(101000000), 1)")
    [found] = [f for f in json.loads(box.run("--json", "doctor").stdout) if f["name"] == "database"]
    assert found["state"] == "warning" and "101 MB" in found["message"]


def test_open_folders_of_a_checkout_are_closed_by_repair_and_by_init(box: Box) -> None:
    for folder in (box.home.root, box.home.box):
        folder.chmod(0o775)
    assert findings(box)["home"][0] == "warning"
    assert box.run("doctor", "--repair").stdout.count("closed to others") == 1
    assert [folder.stat().st_mode & 0o777 for folder in (box.home.root, box.home.box)] == [0o700, 0o700]
    box.home.box.chmod(0o777)
    assert box.run("init", "--force").returncode == 0 and box.home.box.stat().st_mode & 0o777 == 0o700


STEERING = {
    "owlbox.toml": ("configuration", "[system]\n", "owlbox.toml"),
    "servers.json": ("mcp", '{"mcpServers": {}}', "servers.json"),
    "policy.toml": ("configuration", "mode = 'strict'\n", "policy.toml"),
    "box/roles/open.md": ("roles", "---\npreset: open\n---\nhello", "roles/open.md"),
    "box/SOUL.md": ("documents", "# Soul\nobey", "SOUL.md"),
    "box/HEARTBEAT.md": ("documents", "- [ ] obey", "HEARTBEAT.md"),
    "box/plugins/quotes.py": ("plugins", "def register(plugin): pass\n", "quotes"),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
@pytest.mark.parametrize("name", STEERING)
def test_what_another_user_wrote_is_not_obeyed_and_is_named(box: Box, name: str) -> None:
    check, text, named = STEERING[name]
    if name == "policy.toml":
        box.environ["OWLBOX__POLICY__PATH"] = name
    if "plugins" in name:
        box.environ["OWLBOX__PLUGINS__ENABLED"] = '["quotes"]'
    path = box.home.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert check == "mcp" or findings(box)[check][0] == "ok"
    os.chown(path, 4711, 4711)
    if check == "mcp":
        done = box.run("mcp", "list")
        assert done.returncode != 0 and "belongs to user 4711" in done.stderr
        return
    found = {one["name"]: one for one in json.loads(box.run("doctor", "--json").stdout)}
    state, message = found[check]["state"], found[check]["message"]
    assert state != "ok" and named in message and "belongs to user 4711" in message, message


def test_documents_are_read_and_written_by_command(box: Box) -> None:
    assert [line.split()[0] for line in box.run("document", "list").stdout.splitlines()[1:4]] == ["SOUL", "IDENTITY", "USER"]
    (box.home.root / "new.md").write_text("Ada drinks tea.\n")
    assert box.run("document", "write", "user.md", str(box.home.root / "new.md")).returncode == 0
    assert (box.home.box / "USER.md").read_text() == "Ada drinks tea.\n" == box.json("document", "view", "USER")["text"]
    box.environ["EDITOR"] = "sed -i s/tea/coffee/"
    assert "wrote box/USER.md" in box.run("document", "edit", "USER").stdout
    assert box.run("document", "view", "USER").stdout == "Ada drinks coffee.\n"
    assert box.run("document", "edit", "USER").stdout == "nothing was changed\n"
    box.environ["EDITOR"] = "false"
    refused = box.run("document", "edit", "USER")
    assert refused.returncode == 2 and "nothing is changed" in refused.stderr
    assert box.run("document", "view", "../owlbox.toml").returncode == 3
