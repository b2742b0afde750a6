"""A database with something of everything in it, taken to the next version: nothing of it is lost, and it is used on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import full_database
import pytest
from test_database import NEXT, said

from appliance.clock import this_process
from appliance.errors import StoreError
from appliance.knowledge.entries import Entries
from appliance.knowledge.search import Search
from appliance.mcp.offers import Offers
from appliance.models.usage import Accounts
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import Grants
from appliance.policy.taint import Mark
from appliance.policy.taint_marks import Marks
from appliance.service.undo import Undo
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store import visibility
from appliance.store.database import Store
from appliance.store.migrations import FIRST, LATEST, MIGRATIONS, statements
from appliance.store.process_registry import Leases
from appliance.work.jobs import Jobs
from appliance.work.schedules import ScheduleRows
from appliance.work.tasks import TaskRows


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of this version."""
    path = tmp_path_factory.mktemp("full") / "owlbox.db"
    full_database.make(path)
    return path


@pytest.fixture
def store(full: Path, tmp_path: Path) -> Iterator[Store]:
    """A copy of it, migrated to the version after this one."""
    made = Store.open(Path(shutil.copy(full, tmp_path / "owlbox.db")), migrations=NEXT)
    assert (made.version, made.value("SELECT x FROM later"), made.problems()) == (LATEST + 1, 7, [])
    yield made
    assert made.problems() == []
    made.close()


def test_conversations_and_notes_are_kept(store: Store) -> None:
    entries, runs, finder = Entries(store), Runs(store, ""), Search(store)
    assert entries.get("memory://notes/garden").body == "The tomatoes have water."
    assert entries.get("memory://notes/garden").attributes == {"tags": ["green"]}
    assert entries.get("memory://notes/owl").body == "Crème brûlée for the 🦉, 'quoted'.\nSecond line."
    assert [h.ref for h in finder.find("tea", scopes=("user:ann",))] == ["memory://ann"]
    assert [h.ref for h in finder.find("creme brulee")] == ["memory://notes/owl"]
    states = {s["id"]: s["status"] for s in runs.sessions()}
    assert states.pop("local:ann") in ("idle", "active")  # since version 6 a session rests only after a while
    assert states == {"local:bob": "active", "local:cleo": "active"}
    done = next(r for r in runs.list_runs() if r.title == "What is there?")
    exchange = ["message", "thinking", "tool_use", "tool_result", "message"]
    assert [e.kind for e in runs.events(done.id)] == exchange * 2
    assert runs.events(done.id)[2].input == {"at": "the 🦉 'owl'"}
    assert [m.role for m in runs.recent(done.id, 80)] == ["user", "assistant", "tool", "assistant"] * 2
    assert [t["prompt_tokens"] for t in runs.turns(done.id)] == [0, 7, 0, 7]
    assert {lease.kind: lease.reason for lease in Leases(store).listing()} == {"core": "done", "worker": ""}
    assert store.value("SELECT COUNT(*) FROM inbox WHERE message_id IN ('m1', 'm2', 'm3')") == 3
    (run, change), *_ = store.rows("SELECT run, change FROM changesets ORDER BY seq")
    rows = [(row.op, row.old[4]) for row in apsw.Changeset.iter(change)]
    assert (run, rows) == (done.id, [("UPDATE", "The tomatoes want water.")])


def test_it_is_mended_and_used_on(store: Store) -> None:
    runs = Runs(store, "")
    [loop] = runs.recover(lambda event: None)
    assert [e.kind for e in runs.events(loop.run)] == ["message", "message", "status_change"]
    assert runs.events(loop.run)[1].content.startswith("Once upon a time")
    assert [buried.kind for buried in Leases(store).mark_dead()] == ["worker"]
    assert [runs.events(waiting.run)[0].content for waiting in runs.waiting()] == ["Are you there?"]
    assert runs.append(said(loop.run, "again")).seq == 4
    Entries(store).set("memory://notes/garden", "It rains.")


def test_bytes_history_and_views_are_kept(store: Store) -> None:
    entries = Entries(store)
    picture = entries.get("agent:/birds/owl.png")
    assert (entries.blob(picture), picture.title, picture.mime) == (bytes(range(256)), "Owl", "image/png")
    assert entries.get("agent:/birds").is_folder
    assert [c.verb for c in entries.changes("agent:/owl.png")] == ["mv", "set"]
    told = entries.changes("memory://notes/garden")
    assert [(c.writer, bool(c.run)) for c in told] == [("model", True), ("client", False)]
    assert "-The tomatoes want water." in told[0].patch and "+The tomatoes have water." in told[0].patch
    seen = "SELECT path, visibility, state, status, summary FROM run_entries"
    assert store.rows(seen) == [("memory://notes/garden", "visible", "resolved", 200, "tomatoes, watered")]


def test_the_queue_is_kept(store: Store) -> None:
    tasks, outbox = TaskRows(store), Outbox(store, "")
    assert [(t.id, t.status, t.open_blockers) for t in tasks.list_tasks()] == [(2, "in_progress", 0), (1, "complete", 0)]
    assert [t.id for t in tasks.release("worker-2", "gone")] == [2] and tasks.get(2).status == "pending"
    [letter] = outbox.list_postings()
    assert (letter.status, letter.notification.text) == ("sending", "They have water.")
    assert [posting.may_repeat for posting in outbox.recover((), lambda channel: False)] == [True]


def test_what_waits_and_what_is_known_of_strangers_is_kept(store: Store) -> None:
    [job] = Jobs(store, "").list_jobs()
    assert (job.status, job.role, job.task, job.session) == ("waiting", "researcher", "count the roses", "local:ann")
    schedules = ScheduleRows(store)
    [plan] = schedules.list_schedules()
    [firing] = schedules.firings(plan.id)
    assert (plan.name, plan.action.text, plan.status, plan.context) == ("roses", "Water the roses.", "active", "user:ann")
    assert (firing.status, firing.outcome, plan.state.last_due_ms) == ("done", "told", firing.due_ms)
    assert schedules.next_ms() == plan.state.next_ms is not None and plan.state.next_ms > firing.due_ms
    assert store.rows("SELECT context FROM mutes") == [("user:ann",)]
    [ware] = Offers(store).by_words("weather tomorrow", 5)
    assert (ware.server, ware.name) == ("weather", "forecast")
    marks, owl = Marks(store), Entries(store).get("memory://notes/owl")
    run = next(r for r in Runs(store, "").list_runs() if r.title == "What is there?")
    assert marks.of(f"entry:{owl.id}") == marks.of(f"run:{run.id}") == (Mark("web", "https://example.org/roses"),)
    assert marks.since(run.id) == 3 and run.metadata["origins"] == {"web": 3}
    [grant] = Grants(store).listing(is_all=True)
    assert (grant.person, grant.kind, grant.target, grant.origins) == ("ann", "web", "example.org", ("web:example.org",))
    for whose, is_seen in (("user:ann", True), ("user:bob", False)):
        with visibility.showing(whose):
            assert (Entries(store).find("agent://roses.md") is not None) is is_seen


def test_what_was_written_down_about_the_outside_is_kept(store: Store) -> None:
    [line] = Ledger(store).listing()
    assert (line.kind, line.severity, line.session, line.rule) == ("policy_denied", "error", "local:ann", "network.host.disabled")
    [request] = Accounts(store).records()
    assert (request["person"], request["cost_micros"]) == ("ann", 1500)
    assert store.value("SELECT url FROM fetches") == "https://example.org/roses"


def test_what_a_run_changed_before_is_taken_back(store: Store) -> None:
    runs, entries = Runs(store, this_process().encode()), Entries(store)
    run = next(r.id for r in runs.list_runs() if r.title == "What is there?")
    done = Undo(store, entries, runs).undo(run)
    assert entries.get("memory://notes/garden").body == "The tomatoes want water."
    Undo(store, entries, runs).undo(done.by)
    assert entries.get("memory://notes/garden").body == "The tomatoes have water."


def test_a_database_of_before_the_first_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "owlbox.db"
    Store.create(path).close()
    db = apsw.Connection(str(path))
    db.pragma("user_version", 27)
    db.close()
    with pytest.raises(StoreError, match=f"{path} is of version 27, from before 0.1.0") as caught:
        Store.open(path)
    assert "owlbox export" in caught.value.hint and "import" in caught.value.hint
    assert FIRST > 27


def test_statements_of_a_migration_come_one_by_one() -> None:
    trigger = "CREATE TRIGGER t AFTER INSERT ON x BEGIN\n    DELETE FROM y; -- of z;\n    DELETE FROM z;\nEND;"
    assert statements(f"-- writer: one; two\nSELECT 1;\n\n{trigger}\n") == ["-- writer: one; two\nSELECT 1;", trigger]


def test_each_table_has_the_one_writer_that_the_schema_names() -> None:
    rooms = Path(__file__).parents[2] / "appliance"
    texts = {str(path.relative_to(rooms)): path.read_text() for path in rooms.rglob("*.py")}
    lines = MIGRATIONS[0].splitlines()
    named = ""
    for before, line in zip(["", *lines], lines, strict=False):
        named = line.removeprefix("-- writer: ") if line.startswith("-- writer: ") else named if before else ""
        words = line.replace("VIRTUAL ", "").split()
        if words[:2] == ["CREATE", "TABLE"]:
            inserts = [name for name, text in texts.items() if f"INTO {words[2]} " in text and name != "store/table_lines.py"]
            assert inserts == [named], words[2]
