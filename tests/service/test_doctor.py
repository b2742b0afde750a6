"""What `owlbox doctor` finds, says and mends."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from process import Box, a_box, tree, until  # noqa: F401


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


def test_an_index_that_disagrees_is_made_anew_with_repair(box: Box) -> None:
    box.run("remember", "the well is deep", "--title", "well")
    with box.store() as store, store.write() as execute:
        execute("INSERT INTO chunks_fts(chunks_fts) VALUES ('delete-all')")
    assert findings(box)["database"][0] == "problem"
    assert "well" not in box.run("search", "well").stdout.splitlines()[0].replace("'well'", "")
    done = box.run("doctor", "--repair")
    assert "rebuilt" in done.stdout and findings(box)["database"][0] == "ok"
    assert "deep" in box.run("search", "well").stdout and (box.home.backups / "before-repair.db").exists()


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
