"""Taking a run back: everything or nothing, never over what was changed since, and itself taken back the same way."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from process import Box, a_box  # noqa: F401
from test_database import a_run, child, killed, until
from test_verbs import Bench as Rows
from test_verbs import bench as _bench  # noqa: F401

from appliance.channels.rpc.entries import EntryMethods
from appliance.clock import now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.knowledge.entries import By, Content, Entries
from appliance.knowledge.search import Search
from appliance.knowledge.verb_arguments import Look
from appliance.knowledge.views import Actor
from appliance.records import Event
from appliance.service.undo import Undo, Undone
from appliance.work.jobs import JobOrder, Jobs

PERSON = Actor("client")
PICTURE = bytes(range(256))


class Bench(Rows):
    """Two models' runs and a person, over one database, and the way back."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.back = Undo(self.store, self.entries, self.runs)

    def undo(self, run: str = "", **more: Any) -> Undone:
        return self.back.undo(run or self.me.run, **more)

    def content(self) -> list[Any]:
        """Every entry and every byte, without what an index knows."""
        columns = "id, scope, path, title, body, attributes, hash, writer, run, created_ms, updated_ms, uid, mime, is_textual"
        return [
            self.store.rows(f"SELECT {columns} FROM entries ORDER BY id"),
            self.store.rows("SELECT entry, data FROM blobs ORDER BY entry"),
        ]

    def everything(self) -> list[Any]:
        """Every row of every table that an undo could touch."""
        tables = ("entries", "blobs", "changes", "changesets", "runs", "sessions", "events", "views")
        return [self.store.rows(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]

    def found(self, words: str) -> list[str]:
        return [hit.ref for hit in Search(self.store).find(words)]

    def chains(self) -> None:
        """The history of every path ends with what is there now, and no step is missing."""
        for scope, path in self.store.rows("SELECT DISTINCT scope, path FROM changes"):
            steps = self.store.rows(
                "SELECT before_hash, after_hash FROM changes WHERE scope = ? AND path = ? ORDER BY id", (scope, path)
            )
            there = self.entries.find(path, scope=scope)
            assert steps[-1][1] == (there.hash if there else ""), path
            assert [before for before, _ in steps[1:]] == [after for _, after in steps[:-1]], path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "owlbox.db")
    made.entries.set("memory://garden", "The tomatoes want water.", title="Garden", attributes={"tags": ["green"]})
    made.entries.set("memory://old", "An old note.")
    made.entries.put("agent://owl.png", Content(blob=PICTURE, title="Owl"))
    yield made
    made.store.close()


def work(bench: Bench) -> None:
    """One of everything, by the model's run."""
    me = bench.me
    bench.set("memory://garden", "The tomatoes have water.")
    bench.set("memory://new", "Something new.")
    bench.verbs.rm(me, "memory://old")
    bench.verbs.cp(me, "memory://garden", "memory://copy")
    bench.verbs.mv(me, "memory://new", "memory://moved")
    bench.set("known://fact", "Owls hoot.")
    bench.entries.put("agent://owl.png", Content(blob=b"other"), By("model", me.run))


# -- everything -------------------------------------------------------------------------------------


def test_undo_brings_back_every_row_every_byte_and_the_index(bench: Bench) -> None:
    before = bench.content()
    work(bench)
    assert bench.found("old note") == [] and bench.content() != before
    done = bench.undo()
    assert bench.content() == before and bench.store.problems() == []
    assert bench.found("old note") == ["memory://old"] and bench.found("have") == []
    assert bench.entries.blob(bench.entries.get("agent://owl.png")) == PICTURE
    told = {change.path: change.how for change in done.changes if not change.path.startswith("log://")}
    assert (
        told
        == {
            "memory://garden": "changed",
            "memory://old": "back",
            "memory://copy": "gone",
            "memory://moved": "gone",
            "known://fact": "gone",
            "agent://owl.png": "changed",
        }
        or "agent://owl.png" not in told
    )
    bench.chains()


def test_undo_is_in_the_history_of_each_entry(bench: Bench) -> None:
    work(bench)
    done = bench.undo(sender="ada")
    last = bench.entries.changes("memory://garden")[0]
    assert (last.verb, last.writer, last.run) == ("undo", "client", done.by)
    assert "-The tomatoes have water." in last.patch and "+The tomatoes want water." in last.patch
    assert [c.verb for c in bench.entries.changes("memory://old")][:2] == ["undo", "rm"]
    gone = bench.entries.changes("memory://copy")[0]
    assert (gone.verb, gone.after_hash) == ("undo", "")
    run = bench.runs.get(done.by)
    assert (run.kind, run.status, run.outcome, run.session) == ("ask", 200, "done", bench.runs.get(bench.me.run).session)
    [event] = bench.runs.events(done.by)
    assert event.sender_id == "ada" and bench.me.run in event.content and run.ended_ms is not None


def test_undo_can_be_undone_and_done_again(bench: Bench) -> None:
    before = bench.content()
    work(bench)
    after = bench.content()
    first = bench.undo()
    with pytest.raises(Conflict, match="taken back already") as caught:
        bench.undo()
    assert first.by in caught.value.hint
    second = bench.undo(first.by)
    assert bench.content() == after
    with pytest.raises(Conflict, match="taken back already"):
        bench.undo(first.by)
    third = bench.undo(second.by)
    assert bench.content() == before
    with pytest.raises(Conflict, match="taken back already"):
        bench.undo()
    bench.undo(third.by)
    bench.undo()
    assert bench.content() == before and bench.store.problems() == []
    bench.chains()


def test_thread_that_goes_on_is_taken_back_from_where_it_was(bench: Bench) -> None:
    bench.set("memory://garden", "one")
    bench.undo()
    kept = bench.content()
    bench.set("memory://garden", "two")
    assert bench.undo().changes
    assert bench.content() == kept


NAMES = ("memory://a", "memory://b", "known://c", "known://d", "agent://e.bin")
REFS = st.sampled_from(NAMES)
TEXTS = st.sampled_from(["hoot", "one\ntwo", "", "Crème 🦉"])
STEPS = st.one_of(
    st.tuples(st.just("set"), REFS, TEXTS),
    st.tuples(st.just("rm"), REFS, st.just("")),
    st.tuples(st.sampled_from(["cp", "mv"]), REFS, REFS),
    st.tuples(st.just("blob"), REFS, TEXTS),
    st.tuples(st.just("undo"), st.just(""), st.just("")),
)


def step(bench: Bench, actor: Actor, what: tuple[str, str, str]) -> None:
    verb, ref, more = what
    if verb == "set":
        bench.set(ref, more, actor, is_literal=True)
    elif verb == "blob":
        scope = f"run:{actor.run}" if ref.startswith("known") else "project:1"
        bench.entries.put(ref, Content(blob=more.encode()), By("model", actor.run), scope=scope)
    elif verb == "rm":
        bench.verbs.rm(actor, ref, Look())
    elif verb in ("cp", "mv"):
        (bench.verbs.cp if verb == "cp" else bench.verbs.mv)(actor, ref, more)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(first=st.lists(STEPS, max_size=6), mine=st.lists(STEPS, min_size=1, max_size=8))
def test_whatever_a_run_did_is_taken_back_and_brought_back(
    tmp_path_factory: pytest.TempPathFactory, first: list[tuple[str, str, str]], mine: list[tuple[str, str, str]]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("undo") / "owlbox.db")
    try:
        for what in first:
            step(bench, bench.other, what)
        before = bench.content()
        for what in mine:
            step(bench, bench.me, what)
        after = bench.content()
        done = bench.undo()
        assert bench.content() == before
        if done.by:
            bench.undo(done.by)
            assert bench.content() == after
        bench.chains()
        assert bench.store.problems() == []
    finally:
        bench.store.close()


# -- or nothing -------------------------------------------------------------------------------------


def _recreate(bench: Bench) -> None:
    bench.entries.remove("memory://new")
    bench.entries.set("memory://new", "Another one.")


LATER: dict[str, tuple[str, Callable[[Bench], object], str]] = {
    "edited": ("memory://garden", lambda b: b.entries.set("memory://garden", "Rain."), "set by client"),
    "retitled": ("memory://garden", lambda b: b.entries.put("memory://garden", Content(title="Beds")), "set by client"),
    "removed": ("memory://garden", lambda b: b.entries.remove("memory://garden"), "rm by client"),
    "made and edited": ("memory://new", lambda b: b.entries.set("memory://new", "Mine."), "set by client"),
    "made and removed": ("memory://new", lambda b: b.entries.remove("memory://new"), "rm by client"),
    "made anew": ("memory://new", _recreate, "set by client"),
    "moved": ("memory://beds", lambda b: b.entries.move("memory://garden", "memory://beds"), "mv by client"),
    "name taken": ("memory://old", lambda b: b.entries.set("memory://old", "Mine."), "set by client"),
    "bytes": ("agent://owl.png", lambda b: b.entries.put("agent://owl.png", Content(blob=b"x")), "set by client"),
    "bytes removed": ("agent://owl.png", lambda b: b.entries.remove("agent://owl.png"), "rm by client"),
    "another run": ("memory://garden", lambda b: b.set("memory://garden", "Sun.", b.other), "edit by model in thread"),
}


@pytest.mark.covers("B-182")
@pytest.mark.parametrize("name", LATER)
def test_what_was_changed_since_is_named_and_nothing_changes(bench: Bench, name: str) -> None:
    ref, change, how = LATER[name]
    bench.set("memory://garden", "The tomatoes have water.")
    bench.set("memory://new", "Something new.")
    bench.verbs.rm(bench.me, "memory://old")
    bench.entries.put("agent://owl.png", Content(blob=b"other"), By("model", bench.me.run))
    change(bench)
    before = bench.everything()
    with pytest.raises(Conflict, match="1 entry was changed since") as caught:
        bench.undo()
    assert ref in caught.value.message and how in caught.value.message and caught.value.hint
    [later] = bench.undo(is_dry_run=True).later
    assert later.path == ref and later.at_ms > 0
    assert bench.everything() == before
    assert bench.store.problems() == []


def test_many_that_were_changed_since_are_counted_and_the_first_named(bench: Bench) -> None:
    for number in range(14):
        bench.set(f"memory://n{number:02}", "mine")
    for number in range(14):
        bench.entries.set(f"memory://n{number:02}", "yours")
    with pytest.raises(Conflict, match=r"14 entries were changed since: memory://n00 .*memory://n09 .* and 4 more"):
        bench.undo()


def test_a_later_run_is_undone_first(bench: Bench) -> None:
    before = bench.content()
    bench.set("memory://garden", "one")
    bench.set("memory://garden", "two", bench.other)
    with pytest.raises(Conflict, match=f"in thread {bench.other.run[-8:]}"):
        bench.undo()
    bench.undo(bench.other.run)
    bench.undo()
    assert bench.content() == before


def test_bytes_never_come_back_without_their_entry(bench: Bench) -> None:
    bench.entries.remove("agent://owl.png", By("model", bench.me.run))
    bench.entries.set("agent://owl.png", "a text by this name")
    before = bench.everything()
    with pytest.raises(Conflict, match="owl.png"):
        bench.undo()
    assert bench.everything() == before and bench.store.problems() == []


def test_names_that_were_exchanged_are_exchanged_again(bench: Bench) -> None:
    before = bench.content()
    with bench.store.write(run=bench.me.run, durable=True):
        for source, target in (("garden", "spare"), ("old", "garden"), ("spare", "old")):
            bench.entries.move(f"memory://{source}", f"memory://{target}", By("model", bench.me.run))
    assert bench.body("memory://old") == "The tomatoes want water."
    bench.undo()
    assert bench.content() == before
    bench.chains()


def test_what_an_index_noted_meanwhile_does_not_stand_in_the_way_and_is_stale(bench: Bench) -> None:
    before = bench.content()
    bench.set("memory://garden", "The tomatoes have water.")
    bench.set("memory://new", "Something new.")
    with bench.store.write() as execute:
        execute("UPDATE entries SET indexed_ms = 7")
    done = bench.undo()
    assert bench.content() == before
    assert bench.entries.get("memory://garden").indexed_ms is None and bench.entries.get("memory://old").indexed_ms == 7
    with bench.store.write() as execute:
        execute("UPDATE entries SET indexed_ms = 8")
    bench.undo(done.by)
    assert bench.body("memory://garden") == "The tomatoes have water."


def test_dry_run_says_it_all_and_changes_nothing(bench: Bench) -> None:
    work(bench)
    before = bench.everything()
    tried = bench.undo(is_dry_run=True)
    assert bench.everything() == before and (tried.by, tried.later) == ("", ())
    assert tried.changes == bench.undo().changes


# -- which runs -------------------------------------------------------------------------------------


def test_run_that_changed_nothing_has_nothing_to_take_back(bench: Bench) -> None:
    before = bench.everything()
    done = bench.undo()
    assert (done.run, done.by, done.changes) == (bench.me.run, "", ()) and bench.everything() == before


def test_part_of_an_id_is_enough_and_a_wrong_one_is_not_found(bench: Bench) -> None:
    bench.set("memory://new", "x")
    assert bench.undo(bench.me.run[-12:], is_dry_run=True).run == bench.me.run
    with pytest.raises(NotFound, match="no thread nowhere"):
        bench.undo("nowhere")
    with pytest.raises(BadInput, match="ambiguous"):
        bench.undo(bench.me.run[:4])


def a_loop(bench: Bench) -> int:
    event = bench.runs.append(Event(bench.me.run, "message", "user", "hi"))
    loop = bench.runs.enqueue(bench.me.run, event.id, "c")
    bench.runs.start_loop(loop)
    return loop


def test_run_that_is_being_answered_is_left_alone_until_it_is_stopped(bench: Bench) -> None:
    bench.set("memory://new", "x")
    loop = a_loop(bench)
    before = bench.everything()
    for is_dry_run in (True, False):
        with pytest.raises(Conflict, match="being answered") as caught:
            bench.undo(is_dry_run=is_dry_run)
    assert "stop it first" in caught.value.hint and bench.everything() == before
    bench.runs.end_loop(bench.runs.loop(loop), 499, "stopped")
    assert bench.undo().by


# -- what was handed to others ----------------------------------------------------------------------


def handed(bench: Bench, *, is_over: bool = True) -> Jobs:
    """The other run is work that the first one handed out; both changed the same things, in turn."""
    jobs = Jobs(bench.store, "p")
    job = jobs.add(JobOrder("memory", "Keep it.", parent=bench.me.run, tool="delegate"))
    with bench.store.write(durable=True):
        jobs.begin(job.id, bench.other.run)
    bench.set("memory://garden", "The tomatoes have water.")
    bench.set("memory://garden", "The tomatoes are ripe.", actor=bench.other)
    bench.set("memory://new", "Something new.", actor=bench.other)
    bench.set("memory://garden", "The tomatoes are eaten.")
    bench.set("memory://new", "Something old.")
    if is_over:
        with bench.store.write(durable=True):
            jobs.end(job.id, "done", "ok", "Kept.")
    return jobs


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_what_a_thread_handed_to_others_is_taken_back_with_it(bench: Bench, is_forgotten: bool) -> None:
    before = bench.content()
    jobs = handed(bench)
    if is_forgotten:
        given = {"agent": "memory", "run": bench.other.run}
        bench.runs.append(Event(bench.me.run, "delegate", "system", "Kept.", tool="delegate", input=given))
        assert jobs.forget(1, now_ms() + 2 * 86_400_000) == 1 and jobs.jobs_of(bench.me.run) == []
    after = bench.content()
    tried = bench.undo(is_dry_run=True)
    assert (tried.helpers, tried.by, bench.content() == after) == ((bench.other.run,), "", True)
    done = bench.undo()
    assert bench.content() == before and done.helpers == (bench.other.run,) and bench.store.problems() == []
    told = {change.path: change.how for change in done.changes if not change.path.startswith("log://")}
    assert told == {"memory://garden": "changed", "memory://new": "gone"}
    assert "with 1 that it had handed work to" in bench.runs.events(done.by)[0].content
    for run in (bench.me.run, bench.other.run):
        with pytest.raises(Conflict, match="taken back already"):
            bench.undo(run)
    bench.undo(done.by)
    assert bench.body("memory://garden") == "The tomatoes are eaten." and bench.body("memory://new") == "Something old."
    bench.chains()


def test_a_thread_alone_is_taken_back_where_nothing_of_its_helpers_is_mixed_with_it(bench: Bench) -> None:
    handed(bench)
    before = bench.everything()
    with pytest.raises(Conflict, match="memory://garden"):
        bench.undo(is_alone=True)
    with pytest.raises(Conflict, match=r"memory://garden \(edit by model in thread"):
        bench.undo(bench.other.run)  # who asked has changed it since
    assert bench.everything() == before
    third = bench.runs.begin("local:ada", "chat").id
    jobs = Jobs(bench.store, "p")
    job = jobs.add(JobOrder("memory", "Keep it.", parent=third, tool="delegate"))
    with bench.store.write(durable=True):
        jobs.begin(job.id, bench.other.run)
        jobs.end(job.id, "done", "ok", "Kept.")
    bench.entries.put("memory://own", Content(body="mine"), By("model", third))
    assert bench.undo(third, is_alone=True).helpers == ()
    assert bench.entries.find("memory://own") is None and bench.body("memory://garden") == "The tomatoes are eaten."


def test_what_the_helper_did_is_taken_back_alone_and_then_the_rest(bench: Bench) -> None:
    jobs = Jobs(bench.store, "p")
    job = jobs.add(JobOrder("memory", "Keep it.", parent=bench.me.run, tool="delegate"))
    with bench.store.write(durable=True):
        jobs.begin(job.id, bench.other.run)
        jobs.end(job.id, "done", "ok", "Kept.")
    bench.set("memory://new", "Something new.", actor=bench.other)
    bench.set("memory://own", "mine")
    bench.undo(bench.other.run)
    assert bench.undo().helpers == () and bench.entries.find("memory://own") is None


def test_a_thread_whose_helper_still_works_is_left_alone(bench: Bench) -> None:
    jobs = handed(bench, is_over=False)
    before = bench.everything()
    with pytest.raises(Conflict, match="has not ended") as caught:
        bench.undo()
    (job,) = jobs.jobs_of(bench.me.run)
    assert f"owlbox job stop {job.id}" in caught.value.hint and bench.everything() == before


INTERRUPTED = """
    from appliance.clock import this_process
    from appliance.knowledge.entries import Entries, By, Content
    from appliance.records import Event
    from appliance.sessions.runs import Runs
    store = Store.open(path)
    runs, entries, run = Runs(store, this_process().encode()), Entries(store), sys.argv[2]
    event = runs.append(Event(run, "message", "user", "hi"))
    runs.start_loop(runs.enqueue(run, event.id, "c"))
    for number in range(10_000):
        entries.put(f"memory://{number % 7}", Content(body=str(number)), By("model", run))
        print("wrote", flush=True)
"""


@pytest.mark.covers("B-182")
@pytest.mark.parametrize("is_recovered", [True, False])
def test_run_of_a_killed_process_is_taken_back(bench: Bench, is_recovered: bool) -> None:
    before = bench.content()
    killed(child(INTERRUPTED, bench.store.path, bench.me.run), "wrote")
    assert bench.content() != before
    if is_recovered:
        assert [loop.run for loop in bench.runs.recover(lambda event: None)] == [bench.me.run]
    bench.undo()
    assert bench.content() == before and bench.store.problems() == []


def test_deleted_thread_leaves_no_text_in_what_is_kept_to_undo_it(bench: Bench) -> None:
    bench.set("memory://garden", "a secret")
    done = bench.undo()
    bench.undo(done.by)
    bench.runs.delete(bench.me.run)
    bench.runs.delete(done.by)
    kept = b"".join(
        bytes(row[0]) for row in bench.store.rows("SELECT change FROM changesets WHERE run IN (?, ?)", (bench.me.run, done.by))
    )
    assert kept == b""
    with pytest.raises(NotFound):
        bench.undo()


# -- what runs see ----------------------------------------------------------------------------------


def test_entries_that_go_leave_every_view_and_those_that_stay_keep_theirs(bench: Bench) -> None:
    bench.set("memory://new", "x")
    bench.set("memory://garden", "The tomatoes have water.")
    new, garden = bench.entries.get("memory://new").id, bench.entries.get("memory://garden").id
    for entry in (new, garden):
        bench.views.show(bench.other, entry, "visible")
    bench.undo()
    assert [view.entry for view in bench.views.views_of(bench.other.run)] == [garden]
    assert bench.views.get(bench.me.run, "memory://garden").writes == 1
    assert bench.log() == [] and bench.store.problems() == []


def test_undo_ends_what_the_run_had_proposed(bench: Bench) -> None:
    bench.entries.set("notes.txt", "mine")
    bench.set("notes.txt", "theirs")
    assert len(bench.views.proposals(bench.me.run)) == 1
    bench.undo()
    assert bench.views.proposals(bench.me.run) == [] and bench.body("notes.txt") == "mine"


def test_history_that_is_too_much_to_send_says_what_it_leaves_out(bench: Bench) -> None:
    for number in range(80):
        bench.entries.set("memory://long", f"{number:05} " * 1300)

    shown = EntryMethods(bench.entries, bench.runs, *[None] * 5)  # type: ignore[arg-type]
    found = shown.history("memory://long", 100, patch=True)
    assert len(found) == 80 and found[0]["patch"] and found[-1]["is_cut"] and not found[-1]["patch"]
    assert sum(len(change["patch"]) for change in found) <= 400_000
    assert "patch" not in shown.history("memory://long", 100)[0] and len(shown.history("memory://long", 3)) == 3


# -- over the command line and the socket -----------------------------------------------------------


def changed(box: Box) -> str:
    """A thread that has changed something, and one entry that it made."""
    with box.store() as store:
        entries = Entries(store)
        run = a_run(store, "root")
        entries.set("memory://garden", "one\ntwo\n")
        entries.put("memory://garden", Content(body="one\nthree\n"), By("model", run, "edit"))
        entries.put("memory://new", Content(body="x"), By("model", run))
    return run


@pytest.mark.parametrize("is_served", [False, True])
def test_undo_and_history_as_commands(box: Box, is_served: bool) -> None:
    run = changed(box)
    if is_served:
        box.serve()
    tried = box.json("undo", run[-12:], "--dry-run")
    assert [(c["path"], c["how"]) for c in tried["changes"]] == [("memory://garden", "changed"), ("memory://new", "gone")]
    assert (tried["run"], tried["by"], tried["later"]) == (run, "", [])
    done = box.run("undo", run[-12:])
    assert done.returncode == 0 and done.stdout.startswith("took back 2 entries\n") and "memory:/new" in done.stdout
    by = done.stdout.split()[-4]
    assert box.json("entry", "view", "memory://garden")["lines"] == ["one", "two", ""]
    again = box.run("undo", run)
    assert again.returncode == 1 and f"owlbox undo {by} brings it back" in again.stderr
    assert box.run("undo", "0000").returncode == 3
    [last, edit, made] = box.json("history", "memory://garden", "--patch")
    assert [c["verb"] for c in (last, edit, made)] == ["undo", "edit", "set"]
    assert (last["run"], edit["run"], edit["writer"]) == (by, run, "model") and "-two\n+three" in edit["patch"]
    shown = box.run("history", "memory://garden", "--limit", "2").stdout.splitlines()
    assert len(shown) == 3 and "undo" in shown[1] and by[-8:] in shown[1] and "edit" in shown[2] and run[-8:] in shown[2]
    assert "-two\n+three" in box.run("history", "memory://garden", "--patch").stdout
    assert box.json("history", "memory://new")[0]["after_hash"] == ""  # it is gone and still has one
    assert box.run("history", "memory://never").returncode == 3
    box.run("entry", "set", "memory://garden", "mine")
    refused = box.run("undo", by, "--json")
    assert refused.returncode == 1 and "memory://garden (edit by client" in json.loads(refused.stderr)["error"]["message"]
    dry = box.run("undo", by, "--dry-run")
    assert dry.returncode == 1 and "memory:/garden" in dry.stdout and "edit by client" in dry.stdout


def test_the_command_says_whose_work_went_with_a_thread(box: Box) -> None:
    run = changed(box)
    with box.store() as store:
        helper = a_run(store, "root")
        Entries(store).put("memory://helped", Content(body="x"), By("model", helper))
        jobs = Jobs(store, "p")
        job = jobs.add(JobOrder("worker", "Look.", parent=run, tool="delegate"))
        with store.write(durable=True):
            jobs.begin(job.id, helper)
            jobs.end(job.id, "done", "ok", "Done.")
    alone = box.json("undo", run, "--dry-run", "--alone")
    assert alone["helpers"] == [] and len(alone["changes"]) == 2
    done = box.run("undo", run).stdout
    assert done.startswith("took back 3 entries\n") and "memory:/helped" in done
    assert f"also what was changed in thread {helper}, to which it handed work" in done


def test_undo_of_a_thread_that_changed_nothing_says_so(box: Box) -> None:
    assert box.run("ask", "hello").returncode == 0
    [thread] = box.json("thread", "list")
    done = box.run("undo", thread["id"])
    assert done.returncode == 0 and done.stdout.startswith("nothing to undo") and len(box.json("thread", "list")) == 1


def test_undo_while_it_is_answered_is_refused_by_the_core(box: Box) -> None:
    core = box.serve()
    box.start("ask", "slow one")
    until(lambda: core.call("core.status")["answering"])
    [thread] = core.call("thread.list")
    refused = box.run("undo", thread["id"])
    assert refused.returncode == 1 and "being answered" in refused.stderr
    core.call("run.stop", run=thread["id"])
