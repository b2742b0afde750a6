"""The files of the workspace in step with the disk, as each run sees them; constraints and the manifest."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from process import Box, a_box  # noqa: F401
from stores import new_store

from appliance.agent.toolbox import Caller
from appliance.channels.rpc.entries import WorkspaceControl
from appliance.clock import CancelToken, now_ms, sleep_s, this_process
from appliance.errors import BadInput, Conflict, NotFound, OwlError, TooLarge
from appliance.ingest.file_reader import Gather
from appliance.ingest.sources import Sources
from appliance.ingest.workspace_sync import MANIFEST, MAX_FILE_BYTES, Constraint, Project, WorkspaceChange
from appliance.knowledge.drives import Drives
from appliance.knowledge.entries import Content, Entries
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.verb_arguments import Look, Write
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor, Views
from appliance.records import Inbound, Outcome
from appliance.runtime.paths import Home
from appliance.service.undo import Undo
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.text.edits import LinePatch
from appliance.tools import context_changes


@dataclass
class Desk:
    """A workspace and everything that follows it."""

    root: Path
    store: Store
    entries: Entries
    views: Views
    verbs: Verbs
    runs: Runs
    sources: Sources
    project: Project

    def write(self, name: str, text: str | bytes = "x\n") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        moment = 1_700_000_000_000_000_000 + now_ms()  # long ago, and another time at each write
        os.utime(path, ns=(moment, moment))
        return path

    def run(self) -> Actor:
        inbound = Inbound("local", "ada", "hi", f"m-{now_ms()}", now_ms())
        self.runs.touch_session(inbound)
        return Actor("model", self.runs.begin(inbound.session, "chat").id)

    def person(self, actor: Actor) -> Actor:
        return Actor("client", actor.run)

    @property
    def workspace(self) -> WorkspaceControl:
        return WorkspaceControl(self.project, self.verbs, lambda run, tokens: None)

    def seen(self, actor: Actor) -> dict[str, str]:
        return {view.path: view.visibility for view in self.views.views_of(actor.run)}

    def paths(self) -> list[str]:
        rows = self.store.rows("SELECT path FROM entries WHERE scope = 'project:1' ORDER BY path")
        return [str(path) for (path,) in rows]

    def writes(self) -> int:
        return int(self.store.value("SELECT total_changes()"))


@pytest.fixture
def desk(home: Home, tmp_path: Path) -> Iterator[Desk]:
    store = new_store(home.database)
    root = Path(os.path.realpath(tmp_path)) / "work"
    root.mkdir()
    entries, views, schemes = Entries(store), Views(store), Schemes()
    sources = Sources(store, entries, Drives(store, entries, schemes))
    project = Project(root, store, sources, lambda: Gather(os.environ), closed=[home.root])
    verbs = Verbs(store, entries, views, schemes, files=project)
    yield Desk(root, store, entries, views, verbs, Runs(store, this_process().encode()), sources, project)
    store.close()


# -- following --------------------------------------------------------------------------------------


@pytest.mark.covers("R-182")
def test_however_many_files_a_run_may_see_its_history_has_those_alone_that_it_touched(desk: Desk):
    for number in range(600):  # more than are asked for below
        desk.write(f"src/{number}.py", "x = 1\n" * 200)
    actor = desk.run()
    desk.project.before_turn(actor)
    desk.verbs.get(actor, "src/7.py")
    touched = desk.views.touched(actor.run, 500)
    assert [one.path for one in touched if one.body.startswith("x = 1")] == ["src/7.py"]
    assert sum(len(one.body) for one in touched) < 2_000, [(one.path, len(one.body)) for one in touched]


@pytest.mark.covers("R-046", "R-182")
def test_followed_files_are_archived_until_the_run_asks_for_them(desk: Desk):
    desk.write("src/a.py", "def f(): ...\n")
    desk.write("notes.md")
    desk.write("owl.png", b"\x89PNG\0")
    desk.write(".env", "SECRET=1")
    desk.write("build/out.txt")
    desk.write(".gitignore", "build/\n")
    desk.write("large.txt", b"x" * (MAX_FILE_BYTES + 1))
    (desk.root / "link.md").symlink_to("notes.md")
    actor = desk.run()
    assert desk.project.before_turn(actor) == WorkspaceChange(read=2)
    assert desk.paths() == ["notes.md", "src/a.py"]
    assert {path: how for path, how in desk.seen(actor).items() if path != MANIFEST} == {
        "notes.md": "archived",
        "src/a.py": "archived",
    }
    entry = desk.entries.get("src/a.py")
    assert entry.body == "def f(): ...\n" and entry.description == "def f()"
    assert not [one.path for one in desk.views.touched(actor.run, 500) if "://" not in one.path], "none of them was touched yet"
    assert desk.verbs.get(actor, "src/a.py").message == "def f(): ...\n"
    desk.project.before_turn(actor)
    assert desk.seen(actor)["src/a.py"] == "visible"  # looking again lowers nothing
    assert [one.path for one in desk.views.touched(actor.run, 500) if "://" not in one.path] == ["src/a.py"]


def test_tools_over_drives_change_the_file_itself_for_a_person(desk: Desk):
    desk.write("src/a.py", "one\ntwo\n")
    desk.project.before_turn(desk.run())
    a = desk.entries.get("src/a.py")
    drives = Drives(desk.store, desk.entries, Schemes())
    services = {
        "entries": desk.entries,
        "drives": drives,
        "verbs": desk.verbs,
        "runs": desk.runs,
        "caller": Caller("", CancelToken()),
    }
    context_changes.context_edit(a.uid, (LinePatch(1, 1, "1"),), **services)
    assert (desk.root / "src/a.py").read_text() == "1\ntwo\n"
    context_changes.context_copy(a.uid, "agent:/b.py", move=True, **services)
    assert not (desk.root / "src/a.py").exists() and desk.entries.get("agent:/b.py").body == "1\ntwo\n"
    desk.write("c.md")
    desk.project.before_turn(desk.run())
    context_changes.context_delete(desk.entries.get("c.md").uid, **services)
    assert not (desk.root / "c.md").exists() and desk.paths() == ["agent://b.py"]


@pytest.mark.covers("R-049")
def test_what_changed_on_the_disk_is_there_before_the_next_turn_and_nothing_else_is_written(desk: Desk):
    for name in ("a.md", "b.md", "c.md"):
        desk.write(name, name)
    actor = desk.run()
    desk.project.before_turn(actor)
    sleep_s(0.12)  # what was written this moment is looked at once more
    desk.project.before_turn(actor)
    before = desk.writes()
    assert desk.project.before_turn(actor) == WorkspaceChange() and desk.writes() == before
    kept = desk.entries.get("b.md")
    desk.write("a.md", "changed")
    desk.write("new.md", "new")
    (desk.root / "c.md").unlink()
    assert desk.project.before_turn(actor) == WorkspaceChange(read=2, removed=1)
    assert desk.entries.get("a.md").body == "changed" and desk.paths() == ["a.md", "b.md", "new.md"]
    assert desk.entries.get("b.md") == kept
    assert desk.seen(actor)["new.md"] == "archived"
    desk.write("b.md", "b.md")  # touched: it says the same
    assert desk.project.before_turn(actor) == WorkspaceChange() and desk.entries.get("b.md") == kept
    desk.write("d.bin", b"\0")
    desk.project.before_turn(actor)
    assert desk.project.before_turn(actor) == WorkspaceChange()


def accept(desk: Desk, actor: Actor, proposed: Outcome) -> Outcome:
    """What a person's yes to it comes to."""
    (where,) = proposed.data["proposals"]
    return desk.verbs.resolve(desk.person(actor), where, True)


@pytest.mark.covers("R-049", "R-085")
def test_an_accepted_change_is_on_the_disk_and_outlasts_what_others_write_there(desk: Desk):
    path = desk.write("a.md", "one\ntwo\nthree\n")
    path.chmod(0o750)
    actor = desk.run()
    desk.project.before_turn(actor)
    for word in ("one", "two", "three"):
        done = accept(desk, actor, desk.verbs.set(actor, "a.md", Write(search=word, replace=word.upper())))
        assert done.status == 200 and word.upper() in path.read_text()
    assert path.read_text() == "ONE\nTWO\nTHREE\n" and path.stat().st_mode & 0o777 == 0o750
    desk.project.before_turn(actor)
    desk.write("a.md", path.read_text() + "four\n")
    desk.project.before_turn(actor)
    assert desk.entries.get("a.md").body == "ONE\nTWO\nTHREE\nfour\n"
    assert [one.name for one in desk.root.iterdir()] == ["a.md"]


@pytest.mark.covers("R-089")
def test_an_accepted_removal_is_not_undone_by_the_mirror(desk: Desk):
    path = desk.write("src/a.md", "old")
    actor, other = desk.run(), desk.run()
    for each in (actor, other):
        desk.project.before_turn(each)
    assert accept(desk, actor, desk.verbs.rm(actor, "src/a.md", Look())).status == 200 and not path.exists()
    for each in (actor, other):
        desk.project.before_turn(each)
    assert desk.paths() == [] and not path.exists()


@pytest.mark.parametrize("verb", ["mv", "cp"])
def test_an_accepted_move_or_copy_is_one_on_the_disk(desk: Desk, verb: str):
    source = desk.write("a.sh", "#!/bin/sh\n")
    source.chmod(0o755)
    actor, other = desk.run(), desk.run()
    for each in (actor, other):
        desk.project.before_turn(each)
    proposed = (desk.verbs.mv if verb == "mv" else desk.verbs.cp)(actor, "a.sh", "bin/tools/b.sh")
    assert accept(desk, actor, proposed).status == 200
    target = desk.root / "bin/tools/b.sh"
    assert target.read_text() == "#!/bin/sh\n" and target.stat().st_mode & 0o777 == 0o755
    assert source.exists() is (verb == "cp")
    desk.project.before_turn(other)
    assert desk.paths() == (["a.sh"] if verb == "cp" else []) + ["bin/tools/b.sh"]


def test_what_a_person_writes_at_once_is_on_the_disk_too(desk: Desk):
    path = desk.write("a.md", "one")
    desk.project.before_turn(desk.run())
    me = Actor("client")
    desk.write("a.md", "one and more")  # nobody has looked since
    assert desk.verbs.set(me, "a.md", Write(search="one", replace="two")).status == 200 and path.read_text() == "two and more"
    assert desk.verbs.set(me, "new/b.md", Write(body="made")).status == 200 and (desk.root / "new/b.md").read_text() == "made"
    assert desk.verbs.mv(me, "a.md", "c.md").status == 200 and (desk.root / "c.md").read_text() == "two and more"
    assert desk.verbs.mv(me, "c.md", "memory://c").status == 200 and desk.verbs.cp(me, "memory://c", "c.md").status == 200
    assert (desk.root / "c.md").read_text() == "two and more"
    (desk.root / ".c.md.owlbox-part").write_text("left by a killed process")
    assert desk.verbs.set(me, "c.md", Write(body="three")).status == 200
    assert sorted(one.name for one in desk.root.iterdir()) == ["c.md", "new"]
    assert desk.verbs.rm(me, "c.md").status == 200 and not path.exists() and not (desk.root / "c.md").exists()
    assert desk.project.before_turn(desk.run()) == WorkspaceChange()


@pytest.mark.parametrize("verb", ["set", "rm", "mv"])
def test_accepting_again_what_was_cut_off_between_disk_and_database_finds_it_done(desk: Desk, verb: str):
    path = desk.write("a.md", "old")
    actor = desk.run()
    desk.project.before_turn(actor)
    if verb == "set":
        proposed = desk.verbs.set(actor, "a.md", Write(body="new"))
        path.write_text("new")
    elif verb == "rm":
        proposed = desk.verbs.rm(actor, "a.md", Look())
        path.unlink()
    else:
        proposed = desk.verbs.mv(actor, "a.md", "b.md")
        path.rename(desk.root / "b.md")
    assert accept(desk, actor, proposed).status == 200
    assert {one.name: one.read_text() for one in desk.root.iterdir()} == {"set": {"a.md": "new"}, "rm": {}, "mv": {"b.md": "old"}}[
        verb
    ]


@pytest.mark.covers("E-328")
def test_a_file_that_is_not_followed_is_not_overwritten(desk: Desk):
    desk.write(".gitignore", "*.log\n")
    path = desk.write("a.log", "kept")
    actor = desk.run()
    desk.project.before_turn(actor)
    done = accept(desk, actor, desk.verbs.set(actor, "a.log", Write(body="mine")))
    assert done.status == 409 and path.read_text() == "kept"
    desk.project.constrain("b.md", "ignore")
    done = accept(desk, actor, desk.verbs.set(actor, "b.md", Write(body="mine")))
    assert done.status == 403 and "ignored" in done.message and not (desk.root / "b.md").exists()


@pytest.mark.parametrize("name", ["link/x.md", "file.md", ".git/hooks/pre-commit"])
def test_nothing_is_written_through_a_link_or_into_git(desk: Desk, tmp_path: Path, name: str):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.md").write_text("his")
    (desk.root / "link").symlink_to(outside)
    (desk.root / "file.md").symlink_to(outside / "file.md")
    actor = desk.run()
    desk.project.before_turn(actor)
    assert accept(desk, actor, desk.verbs.set(actor, name, Write(body="mine"))).status == 403
    assert [(one.name, one.read_text()) for one in outside.iterdir()] == [("file.md", "his")] and not (desk.root / ".git").exists()


def test_a_file_keeps_its_form_and_one_that_is_known_as_a_text_of_it_is_not_replaced(desk: Desk):
    marked, page = desk.write("a.md", b"\xef\xbb\xbfold\r\n"), desk.write("b.html", "<p>old</p><p>&amp;</p>")
    actor = desk.run()
    desk.project.before_turn(actor)
    assert accept(desk, actor, desk.verbs.set(actor, "a.md", Write(search="old", replace="new"))).status == 200
    assert marked.read_bytes() == b"\xef\xbb\xbfnew\r\n"
    if desk.entries.get("b.html").body != page.read_text():
        assert accept(desk, actor, desk.verbs.set(actor, "b.html", Write(body="new"))).status == 403
        assert page.read_text() == "<p>old</p><p>&amp;</p>"


def test_an_undo_brings_the_files_back(desk: Desk):
    desk.write("a.md", "old")
    desk.write("b.md", "there")
    actor = desk.run()
    desk.project.before_turn(actor)
    assert accept(desk, actor, desk.verbs.set(actor, "a.md", Write(body="new"))).status == 200
    assert accept(desk, actor, desk.verbs.rm(actor, "b.md", Look())).status == 200
    assert accept(desk, actor, desk.verbs.set(actor, "c.md", Write(body="made"))).status == 200
    undo = Undo(desk.store, desk.entries, desk.runs, [desk.project])

    def on_disk() -> dict[str, str]:
        return {one.name: one.read_text() for one in desk.root.iterdir()}

    undo.undo(actor.run, is_dry_run=True)
    assert on_disk() == {"a.md": "new", "c.md": "made"}
    back = undo.undo(actor.run)
    assert on_disk() == {"a.md": "old", "b.md": "there"}
    undo.undo(back.by)
    assert on_disk() == {"a.md": "new", "c.md": "made"}
    desk.write("a.md", "his")
    with pytest.raises(Conflict):
        undo.undo(actor.run)
    assert on_disk() == {"a.md": "his", "c.md": "made"}


def test_files_of_nobody_are_left_alone(desk: Desk):
    desk.entries.put("proposed.md", Content(body="never on the disk"))
    desk.entries.put("disk:/elsewhere.md", Content(body="added"))
    desk.project.before_turn(desk.run())
    assert desk.paths() == ["disk://elsewhere.md", "proposed.md"]


def test_without_a_workspace_nothing_is_followed(desk: Desk):
    none = Project(None, desk.store, desk.sources, lambda: Gather(os.environ))
    actor = desk.run()
    assert none.before_turn(actor) == WorkspaceChange() and desk.seen(actor) == {}
    assert WorkspaceControl(none, desk.verbs, lambda run, tokens: None).persist(desk.person(actor), "a.md", "add").status == 404
    gone = Project(desk.root / "gone", desk.store, desk.sources, lambda: Gather(os.environ))
    assert gone.before_turn(actor) == WorkspaceChange()


# -- the manifest -----------------------------------------------------------------------------------


@pytest.mark.covers("R-047")
def test_the_manifest_is_written_once_for_a_run(desk: Desk):
    desk.write("src/b.py", "x" * 21)
    desk.write("src/a.py", "x" * 20)
    desk.write("README", "ü" * 4)
    actor = desk.run()
    desk.project.before_turn(actor)
    found = desk.entries.get(MANIFEST, scope=f"run:{actor.run}")
    assert found.body == "* README - 2 tokens\n* src/a.py - 10 tokens\n* src/b.py - 11 tokens\n"
    assert MANIFEST == "log://turn_0/repo/manifest" and desk.seen(actor)[MANIFEST] == "visible"
    desk.write("later.md")
    desk.project.before_turn(actor)
    assert desk.entries.get(MANIFEST, scope=f"run:{actor.run}") == found
    other = desk.run()
    desk.project.before_turn(other)
    assert "later.md" in desk.entries.get(MANIFEST, scope=f"run:{other.run}").body
    child = desk.runs.begin(desk.runs.get(actor.run).session, "chat", parent=actor.run)
    desk.views.fork(actor.run, child.id)
    desk.project.before_turn(Actor("model", child.id))
    assert desk.entries.find(MANIFEST, scope=f"run:{child.id}") is None  # it sees its parent's


@pytest.mark.covers("R-048")
def test_a_run_without_the_repository_looks_at_nothing_but_what_is_added(desk: Desk):
    desk.write("a.md", "one")
    desk.write("b.md", "two")
    actor = desk.run()
    assert desk.project.before_turn(actor, has_repo=False) == WorkspaceChange()
    assert desk.paths() == [] and desk.seen(actor) == {}
    assert desk.workspace.persist(desk.person(actor), "a.md", "add", has_repo=False).message == "one"
    assert desk.paths() == ["a.md"] and desk.seen(actor)["a.md"] == "visible" and MANIFEST not in desk.seen(actor)
    desk.write("a.md", "changed")
    assert desk.project.before_turn(actor, has_repo=False) == WorkspaceChange(read=1)
    assert desk.entries.get("a.md").body == "changed" and desk.paths() == ["a.md"]


# -- constraints ------------------------------------------------------------------------------------


@pytest.mark.covers("R-044")
def test_what_is_ignored_is_not_followed_and_stays_on_the_disk(desk: Desk):
    for name in ("src/a.py", "src/gen/b.py", "src/gen/keep.py"):
        desk.write(name)
    desk.project.constrain("src/gen/**", "ignore")
    desk.project.constrain("src/gen/keep.py", "add")
    desk.project.before_turn(desk.run())
    assert desk.paths() == ["src/a.py", "src/gen/keep.py"] and (desk.root / "src/gen/b.py").exists()
    desk.project.constrain("src/**", "ignore")  # set last: it counts
    desk.project.before_turn(desk.run())
    assert desk.paths() == []
    desk.project.release("src/**")
    desk.project.before_turn(desk.run())
    assert desk.paths() == ["src/a.py", "src/gen/keep.py"]


@pytest.mark.covers("R-044")
def test_what_git_leaves_out_can_be_added_by_name(desk: Desk):
    desk.write(".gitignore", "*.log\n")
    desk.write("a.log")
    desk.write("b.log")
    desk.write(".hidden.md")
    desk.project.constrain("a.log", "add")
    desk.project.constrain(".hidden.md", "readonly")
    desk.project.before_turn(desk.run())
    assert desk.paths() == [".hidden.md", "a.log"]


@pytest.mark.covers("R-044")
@pytest.mark.parametrize("verb", ["set", "rm", "mv"])
def test_a_change_of_what_is_read_only_is_refused_when_it_is_accepted(desk: Desk, verb: str):
    desk.write("lib/a.py", "old")
    desk.write("b.py", "old")
    desk.project.constrain("lib/*", "readonly")
    actor = desk.run()
    desk.project.before_turn(actor)
    if verb == "set":
        proposed = desk.verbs.set(actor, "lib/a.py", Write(body="new"))
    elif verb == "rm":
        proposed = desk.verbs.rm(actor, "lib/a.py", Look())
    else:
        proposed = desk.verbs.mv(actor, "lib/a.py", "c.py")
    assert proposed.status == 202
    (where,) = proposed.data["proposals"]
    done = desk.verbs.resolve(desk.person(actor), where, True)
    assert done.status == 403 and "lib/a.py is read-only" in done.message
    assert desk.entries.get("lib/a.py").body == "old" and desk.entries.find("c.py") is None
    assert desk.views.get(actor.run, where).state == "failed" and desk.views.get(actor.run, where).status == 403
    (where,) = desk.verbs.set(actor, "b.py", Write(body="new")).data["proposals"]
    assert desk.verbs.resolve(desk.person(actor), where, True).status == 200 and desk.entries.get("b.py").body == "new"


@pytest.mark.covers("E-328")
@pytest.mark.parametrize("what", ["edited", "gone", "made", "source", "elsewhere"])
def test_a_file_that_was_edited_since_a_change_was_proposed_is_left_as_it_is(desk: Desk, what: str):
    desk.write("a.py", "old")
    desk.write("b.py", "other")
    actor = desk.run()
    desk.project.before_turn(actor)
    target = "new.py" if what in ("made", "source") else "a.py"
    if what == "source":
        (where,) = desk.verbs.mv(actor, "a.py", target).data["proposals"]
    else:
        (where,) = desk.verbs.set(actor, target, Write(body="mine")).data["proposals"]
    if what == "gone":
        (desk.root / "a.py").unlink()
    else:
        desk.write({"made": "new.py", "elsewhere": "b.py"}.get(what, "a.py"), "his")
    done = desk.verbs.resolve(desk.person(actor), where, True)
    old, his = (sha256(text.encode()).hexdigest() for text in ("old", "his"))
    if what == "elsewhere":
        assert done.status == 200 and desk.entries.get("a.py").body == "mine" and desk.entries.get("b.py").body == "other"
        return
    was, now = {"gone": (old, "none"), "made": ("none", his)}.get(what, (old, his))
    assert (done.status, done.outcome) == (409, "conflict") and f"its hash was {was}, now it is {now}" in done.message
    assert desk.views.get(actor.run, where).status == 409
    found = desk.entries.find("new.py" if what == "made" else "a.py")
    assert (found.body if found else None) == (None if what == "gone" else "his")
    assert str(desk.entries.get(where, scope=f"run:{actor.run}").attributes["reason"]).endswith(f"now it is {now}")


@pytest.mark.covers("R-045")
def test_constraints_last_and_visibility_is_the_runs_own(desk: Desk):
    desk.write("a.md")
    one, two = desk.run(), desk.run()
    desk.workspace.persist(desk.person(one), "a.md", "readonly")
    desk.project.before_turn(two)
    assert desk.seen(one)["a.md"] == "visible" and desk.seen(two)["a.md"] == "archived"
    again = Project(desk.root, desk.store, desk.sources, lambda: Gather(os.environ))
    assert again.constraints() == [Constraint("a.md", "readonly")] and again.kind_of("a.md") == "readonly"
    assert again.kind_of("b.md") == ""


@pytest.mark.covers("R-045")
def test_a_constraint_makes_no_room(desk: Desk):
    desk.write("a.md", "x" * 1000)

    def check(run: str, tokens: int) -> None:
        if tokens > 100:
            raise TooLarge(f"{tokens} tokens are more than there is room for")

    narrow = Project(desk.root, desk.store, desk.sources, lambda: Gather(os.environ))
    actor = desk.run()
    with pytest.raises(TooLarge, match="500 tokens"):
        WorkspaceControl(narrow, desk.verbs, check).persist(desk.person(actor), "a.md", "add")
    assert narrow.constraints() == [Constraint("a.md", "add")]
    assert desk.seen(actor).get("a.md", "archived") == "archived"


@pytest.mark.covers("R-046")
def test_a_get_that_persists_promotes_every_match(desk: Desk):
    for name in ("src/a.py", "src/b.py", "c.md"):
        desk.write(name)
    actor = desk.run()
    desk.project.before_turn(actor)
    found = desk.workspace.persist(desk.person(actor), "src/*.py", "add")
    assert found.status == 200 and found.data["count"] == 2
    seen = desk.seen(actor)
    assert (seen["src/a.py"], seen["src/b.py"], seen["c.md"]) == ("visible", "visible", "archived")
    assert desk.workspace.persist(desk.person(actor), "c.md", "ignore").message == "c.md: ignored from now on"
    assert desk.paths() == ["src/a.py", "src/b.py"]


@pytest.mark.parametrize(
    ("pattern", "kind"), [("a.md", "frozen"), ("known://a", "add"), ("/etc/*", "add"), ("../x", "add"), ("", "add")]
)
def test_constraints_that_cannot_be_are_refused(desk: Desk, pattern: str, kind: str):
    with pytest.raises(BadInput):
        desk.project.constrain(pattern, kind)  # type: ignore[arg-type]
    assert desk.project.constraints() == []


def test_a_constraint_that_is_not_there_cannot_be_released(desk: Desk):
    desk.project.constrain("src/*", "add")
    with pytest.raises(NotFound, match="src/b"):
        desk.project.release("src/b")
    desk.project.constrain("src/*", "ignore")
    assert desk.project.constraints() == [Constraint("src/*", "ignore")]


def test_files_that_cannot_be_read_stop_no_turn(desk: Desk):
    desk.write("a.md")
    desk.write("bad.txt", b"caf\xe9")
    desk.write("line\nbreak.md")
    os.mkfifo(desk.root / "pipe")
    try:
        desk.project.before_turn(desk.run())
    except OwlError as error:
        pytest.fail(str(error))
    assert desk.paths() == ["a.md"]


@pytest.mark.covers("R-049")
def test_what_is_away_is_not_forgotten_and_what_is_gone_is(desk: Desk):
    for name in ("a.md", "sub/b.md", "sub/c.md"):
        desk.write(name)
    desk.project.before_turn(desk.run())
    desk.root.rename(desk.root.with_name("elsewhere"))  # a disk that is not mounted now
    assert desk.project.before_turn(desk.run()) == WorkspaceChange()
    desk.root.with_name("elsewhere").rename(desk.root)
    (desk.root / "sub" / "c.md").unlink()
    (desk.root / "sub").chmod(0)
    user = os.geteuid()
    if user == 0:
        desk.root.parent.chmod(0o755)
        os.seteuid(65534)  # root may read everything
    try:
        followed = desk.project._followed_files()
    finally:
        os.seteuid(user)
        (desk.root / "sub").chmod(0o755)
    assert "sub/b.md" not in followed and desk.project._remove_gone(followed) == 0
    assert desk.project.before_turn(desk.run()) == WorkspaceChange(removed=1)
    assert desk.paths() == ["a.md", "sub/b.md"]


@pytest.mark.covers("R-046", "R-045", "R-044", "R-173", "E-150")
def test_people_say_how_files_are_followed(box: Box, tmp_path: Path):
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("print('owl')\n")
    (root / "b.md").write_text("# B\n")
    box.environ["OWLBOX__SANDBOX__WORKSPACE"] = str(root)
    thread = box.run("ask", "hello", "--json")
    run = json.loads(thread.stdout)["run"]
    done = box.json("entry", "get", "src/*.py", "--persist", "readonly", "--thread", run)
    assert done["data"]["paths"] == ["src/a.py"]
    assert box.run("entry", "get", "b.md", "--persist", "ignore").stdout == "b.md: ignore from now on\n"
    assert box.run("entry", "get", "c/*", "--persist", "none").returncode == 3
    with box.store() as store:
        assert store.rows("SELECT pattern, kind FROM constraints ORDER BY id") == [("src/*.py", "readonly"), ("b.md", "ignore")]
        seen = store.rows(
            "SELECT path, visibility FROM views v JOIN entries e ON e.id = entry WHERE v.run = ? AND path GLOB 'src/*'", (run,)
        )
        assert seen == [("src/a.py", "visible")]
    assert box.run("entry", "get", "b.md", "--persist", "none").stdout == "b.md: no constraint any more\n"
    core = box.serve()  # and the same over the socket
    assert core.call("entry.get", ref="b.md", persist="readonly", run=run)["status"] == 200
    with box.store() as store:
        kinds = "SELECT pattern, kind FROM constraints ORDER BY id"
        assert store.rows(kinds) == [("src/*.py", "readonly"), ("b.md", "readonly")]
        assert core.call("entry.get", ref="b.md", persist="none")["message"] == "b.md: no constraint any more"
        assert store.rows(kinds) == [("src/*.py", "readonly")]
