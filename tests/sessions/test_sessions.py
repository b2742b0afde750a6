"""Sessions: their states and what silence does, how many there may be, who works in them, and what a crash leaves."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from record_tools import replace
from stores import new_store
from test_database import child, killed, said, until
from test_inbox import Desk, Voice, until_stopped

from appliance.channels import session_control as control_module
from appliance.channels.session_control import Control
from appliance.clock import now_ms, this_process
from appliance.errors import BadInput, Conflict, NotFound, OwlError, TooLarge
from appliance.knowledge.views import Views
from appliance.records import Inbound, LoopEnded
from appliance.sessions.runs import Runs
from appliance.sessions.sessions import NEXT, Session, SessionFilter, SessionRules, Sessions
from appliance.store.database import Store

DAY_MS = 24 * 3600 * 1000
Making = Callable[..., tuple[Desk, Control]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def sessions(store: Store) -> Sessions:
    return Sessions(store, this_process().encode())


def message(sender: str = "ann", channel: str = "local") -> Inbound:
    return Inbound(channel, sender, "hi", "m", 1)


def made(sessions: Sessions, status: str, name: str = "local:ann", **more: object) -> Session:
    """A session in some state."""
    channel, _, sender = name.partition(":")
    times = {"created_ms": now_ms(), "last_active_ms": now_ms(), **more}
    session = Session(name, channel, sender, sender, f"user:{sender}", status, **times)  # type: ignore[arg-type]
    sessions.add(session)
    return session


# -- states -----------------------------------------------------------------------------------------

STATES = list(NEXT)


@pytest.mark.covers("A-221", "A-222", "E-313")
@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_only_some_changes_of_status_are_possible(store: Store, sessions: Sessions, before: str, after: str) -> None:
    made(sessions, before)
    if before == after:
        assert sessions.move("local:ann", after).status == before  # type: ignore[arg-type]
    elif after in NEXT[before]:
        assert sessions.move("local:ann", after).status == after  # type: ignore[arg-type]
    else:
        with pytest.raises(BadInput, match=f"is {before} and cannot become {after}"):
            sessions.move("local:ann", after)  # type: ignore[arg-type]
        assert sessions.get("local:ann").status == before
        with pytest.raises(OwlError, match="cannot change its status so"), store.write() as execute:
            execute("UPDATE sessions SET status = ?", (after,))  # the database says so by itself


@pytest.mark.covers("A-222")
def test_codes_table_of_changes_is_in_ours() -> None:
    required = {
        "created": {"active", "closed"},
        "active": {"idle", "closing", "closed"},
        "idle": {"active", "closing", "closed"},
        "closing": {"closed"},
        "closed": set(),
    }
    assert all(need <= set(NEXT[status]) for status, need in required.items())
    assert NEXT["closing"] == ("closed",) and NEXT["closed"] == ()


@pytest.mark.covers("A-221", "A-223")
def test_silence_makes_a_session_idle_then_archived_and_nothing_polls(store: Store, sessions: Sessions) -> None:
    with store.write():
        sessions.touch(message())
    sessions.rest("local:ann")
    now = now_ms()
    assert [sessions.list_sessions(now=now + s * 1000)[0].status for s in (0, 599, 601, 86_399, 86_401)] == [
        *("active", "active", "idle", "idle", "archived")
    ]
    assert store.value("SELECT status FROM sessions") == "active"  # judged by who looks, written down by upkeep
    assert sessions.store_statuses(now + 601_000) == (1, 0)
    assert store.value("SELECT status FROM sessions") == "idle"
    assert sessions.store_statuses(now + DAY_MS + 1000) == (0, 1)
    assert store.row("SELECT status, archived_ms IS NOT NULL FROM sessions") == ("archived", 1)
    assert sessions.store_statuses(now + DAY_MS + 2000) == (0, 0)


@pytest.mark.covers("A-221")
def test_archival_can_be_switched_off(store: Store) -> None:
    sessions = Sessions(store, "", lambda: SessionRules(archive_s=0))
    made(sessions, "active", last_active_ms=1)
    assert sessions.get("local:ann").status == "idle"


@pytest.mark.covers("A-223", "A-229", "E-313")
@pytest.mark.parametrize("before", ["created", "idle", "stopped", "archived"])
def test_message_makes_a_session_active_again(store: Store, sessions: Sessions, before: str) -> None:
    made(sessions, before, last_active_ms=1, archived_ms=5)
    with store.write():
        sessions.touch(message())
    found = sessions.get("local:ann")
    assert (found.status, found.archived_ms) == ("active", None) and found.last_active_ms > 1


@pytest.mark.covers("A-229")
def test_archived_session_is_listed_and_active_again_when_resumed(sessions: Sessions) -> None:
    made(sessions, "archived", last_active_ms=now_ms() - 9 * DAY_MS, archived_ms=5)
    assert [s.id for s in sessions.list_sessions(SessionFilter(status="archived"))] == ["local:ann"]
    found = sessions.move("local:ann", "active")
    assert (found.status, found.archived_ms) == ("active", None)
    assert sessions.list_sessions()[0].status == "active"  # and not archived again for its old silence


@pytest.mark.covers("A-224", "E-313")
@pytest.mark.parametrize("status", ["closing", "closed"])
def test_closed_session_refuses_messages_and_processes(store: Store, sessions: Sessions, status: str) -> None:
    made(sessions, status)
    with pytest.raises(Conflict, match=f"session local:ann is {status}"), store.write():
        sessions.touch(message())
    with pytest.raises(Conflict, match=f"is {status}"):
        sessions.attach("local:ann", "p")
    assert sessions.get("local:ann").status == status


@pytest.mark.covers("A-224", "E-313")
def test_only_a_closed_session_is_deleted_and_closing_twice_does_nothing(sessions: Sessions) -> None:
    made(sessions, "active")
    with pytest.raises(Conflict, match="is active .close it first"):
        sessions.delete("local:ann")
    assert sessions.move("local:ann", "closed") == sessions.move("local:ann", "closed")
    sessions.delete("local:ann")
    with pytest.raises(NotFound):
        sessions.get("local:ann")


@pytest.mark.covers("A-223", "E-313")
def test_one_session_too_many_is_refused_until_one_is_archived(store: Store) -> None:
    sessions = Sessions(store, "", lambda: SessionRules(max_sessions=3))
    with store.write():
        for name in "abc":
            sessions.touch(message(name))
        sessions.open("task:7", "a", "user:a")  # the queue's own do not count
    with pytest.raises(TooLarge, match="3 sessions are open, the limit is 3"), store.write():
        sessions.touch(message("d"))
    with store.write():
        sessions.touch(message("a"))  # one that is there is no new one
    sessions.move("local:b", "archived")
    with store.write():
        sessions.touch(message("d"))
    assert sessions.find("local:d") is not None


@pytest.mark.covers("A-223")
def test_hundred_is_the_limit_by_default(store: Store, sessions: Sessions) -> None:
    with store.write():
        for number in range(100):
            sessions.touch(message(str(number)))
    with pytest.raises(TooLarge, match="100"), store.write():
        sessions.touch(message("one more"))


@pytest.mark.covers("A-225")
def test_processes_of_a_session_are_counted_and_known(store: Store) -> None:
    me = this_process().encode()
    sessions = Sessions(store, me, lambda: SessionRules(max_processes=2))
    made(sessions, "active")
    sessions.attach("local:ann", "boot/1/1")
    with pytest.raises(Conflict, match="already"):
        sessions.attach("local:ann", "boot/1/1")
    with pytest.raises(NotFound, match="does not work"):
        sessions.detach("local:ann", "other")
    sessions.attach("local:ann", me)
    sessions.attach("local:ann", "boot/2/2")  # the first one is dead, which frees its place
    assert set(sessions.attached("local:ann")) == {me, "boot/2/2"}
    sessions.detach("local:ann", "boot/2/2")
    assert sessions.attached("local:ann") == [me]


@pytest.mark.covers("A-225")
def test_process_cap_is_enforced_while_the_others_live(store: Store) -> None:
    sessions = Sessions(store, "me", lambda: SessionRules(max_processes=1))
    made(sessions, "active")
    sessions.attach("local:ann", this_process().encode())
    with pytest.raises(TooLarge, match="the limit is 1"):
        sessions.attach("local:ann", "another")
    with pytest.raises(TooLarge), store.write():
        sessions.touch(message())  # a message handed in by another process
    assert sessions.attached("local:ann") == [this_process().encode()]


@pytest.mark.covers("A-217")
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (SessionFilter(), ["local:ann", "matrix:!room", "local:bob"]),
        (SessionFilter(person="bob"), ["local:bob"]),
        (SessionFilter(group="owls"), ["matrix:!room"]),
        (SessionFilter(context_type="user"), ["local:ann", "local:bob"]),
        (SessionFilter(context_type="group"), ["matrix:!room"]),
        (SessionFilter(status="archived"), ["local:bob"]),
        (SessionFilter(created_after_ms=150), ["local:ann", "matrix:!room"]),
        (SessionFilter(created_before_ms=250), ["matrix:!room", "local:bob"]),
        (SessionFilter(person="ann", status="closed"), []),
    ],
)
def test_listing_can_be_narrowed(sessions: Sessions, wanted: SessionFilter, names: list[str]) -> None:
    made(sessions, "archived", "local:bob", created_ms=100, last_active_ms=1)
    group = made(Sessions(sessions._store, ""), "active", "matrix:x", created_ms=0)
    sessions.add(replace(group, id="matrix:!room", context="group:owls", person="x", created_ms=200, last_active_ms=now_ms() - 5))
    with sessions._store.write() as execute:
        execute("DELETE FROM sessions WHERE id = 'matrix:x'")
    made(sessions, "active", created_ms=300)
    assert [s.id for s in sessions.list_sessions(wanted)] == names
    assert [s.id for s in sessions.list_sessions(wanted, limit=1, offset=1)] == names[1:2]


@pytest.mark.covers("A-227")
def test_copy_in_hand_and_stored_session_are_apart(store: Store, sessions: Sessions) -> None:
    made(sessions, "active", metadata={"room": "a"})
    held = sessions.get("local:ann")
    held.metadata["room"] = "changed by its holder"
    assert sessions.get("local:ann").metadata == {"room": "a"}
    sessions.move("local:ann", "closed")
    assert held.status == "active"


@pytest.mark.covers("A-226", "E-313")
def test_message_that_cannot_be_kept_is_nowhere_and_its_sender_is_told(store: Store) -> None:
    desk = Desk(store, Voice())
    with store.write() as execute:
        execute("CREATE TRIGGER broken BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'the disk says no'); END")
    with pytest.raises(OwlError, match="the disk says no"):
        desk.accept("hello")
    assert desk.inbox.busy() == 0 and desk.runs.waiting() == []
    assert [store.value(f"SELECT COUNT(*) FROM {table}") for table in ("runs", "events", "loops")] == [0, 0, 0]


# -- after a crash ----------------------------------------------------------------------------------

CRASH = """
    from appliance.clock import this_process
    from appliance.records import Inbound
    from appliance.sessions.runs import Runs
    from test_database import said
    store = Store.open(path)
    runs = Runs(store, this_process().encode())
    with store.write(durable=True):
        runs.touch_session(Inbound("local", "ann", "hi", "m", 1))
        run = runs.begin("local:ann", "chat")
        prompt = runs.append(said(run.id, "what was acknowledged"))
        loop = runs.enqueue(run.id, prompt.id, "c")
    runs.start_loop(loop)
    runs.append(said(run.id, "half", turn=None))
    print("acknowledged", flush=True)
    sys.stdin.read()
"""


@pytest.mark.covers("A-019", "A-025")
def test_after_a_crash_sessions_runs_and_what_was_acknowledged_are_there(store: Store) -> None:
    process = child(CRASH, store.path)
    killed(process, "acknowledged")
    runs = Runs(store, this_process().encode())
    assert [s.status for s in runs.people.list_sessions()] == ["active"]
    assert runs.people.attached("local:ann") != []
    [loop] = runs.recover(lambda event: None)
    [session] = runs.people.list_sessions()
    assert (session.id, session.status, session.process) == ("local:ann", "stopped", "")
    assert runs.people.attached("local:ann") == []
    assert [e.content for e in runs.events(loop.run)][:2] == ["what was acknowledged", "half"]
    with store.write():
        runs.touch_session(message())
    assert [s.id for s in runs.people.list_sessions(SessionFilter(status="active"))] == ["local:ann"]  # the same one, not a second


# -- what people do with them -----------------------------------------------------------------------


@pytest.fixture
def desk(store: Store) -> Making:
    def make(speech: object = None) -> tuple[Desk, Control]:
        desk = Desk(store, Voice(speech) if speech else Voice())  # type: ignore[arg-type]
        return desk, control_module.build(store, desk.runs, desk.inbox, Views(store), desk.model.plan)

    return make


@pytest.mark.covers("A-224")
def test_closing_stops_what_is_answered_and_deleting_takes_everything(desk: Making, store: Store) -> None:
    here, control = desk(until_stopped)
    listening = here.ask("tell me")
    until(lambda: here.runs.sessions()[0]["process"] and store.value("SELECT COUNT(*) FROM turns"))
    assert control.close("local:ann").status in ("closing", "closed")  # the answer may have ended by then
    assert list(listening)[-1] == LoopEnded(499, "cancelled", "stopped")
    until(lambda: control.sessions.get("local:ann").status == "closed")
    with pytest.raises(Conflict, match="is closed"):
        here.accept("are you there?")
    assert control.delete("local:ann") >= 2
    assert [store.value(f"SELECT COUNT(*) FROM {t}") for t in ("sessions", "runs", "events", "loops")] == [0, 0, 0, 0]
    assert here.accept("hello again").is_new  # and a new one may begin


@pytest.mark.covers("A-221")
def test_session_may_be_made_before_its_first_message_and_put_away_on_request(desk: Making) -> None:
    here, control = desk()
    assert control.create("local", "ann").status == "created"
    with pytest.raises(Conflict, match="already"):
        control.create("local", "ann")
    assert here.answer("hi")[-1] == LoopEnded(200, "ok")
    assert control.sessions.get("ann").status == "active"
    assert control.archive("local:ann").status == "archived"
    assert control.resume("local:ann").status == "active"


def test_session_that_is_answered_is_not_put_away(desk: Making, store: Store) -> None:
    here, control = desk(until_stopped)
    listening = here.ask("tell me")
    until(lambda: store.value("SELECT COUNT(*) FROM turns"))
    with pytest.raises(Conflict, match="being answered"):
        control.archive("local:ann")
    here.inbox.stop(here.runs.list_runs()[0].id)
    assert list(listening)[-1].status == 499  # type: ignore[union-attr]


@pytest.mark.covers("E-314")
def test_two_writers_leave_two_whole_records(store: Store) -> None:
    runs, other = Runs(store, "a"), Runs(store, "b")
    with store.write():
        runs.touch_session(message())
        run = runs.begin("local:ann", "chat").id
    start = threading.Barrier(2)

    def write(who: Runs, name: str) -> None:
        start.wait(10)
        for number in range(30):
            who.append(said(run, f"{name}{number}" * 50))

    crowd = [threading.Thread(target=write, args=args) for args in ((runs, "x"), (other, "y"))]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert {e.content for e in runs.events(run)} == {f"{n}{i}" * 50 for n in "xy" for i in range(30)}


@pytest.mark.covers("E-314", "A-218")
def test_lock_held_for_too_long_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "owlbox.db"
    new_store(path).close()
    patient, holder = Store.open(path, busy_delays_ms=(10, 10)), apsw.Connection(str(path))
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(OwlError, match=str(path)) as error, patient.write():
            pass
        assert error.value.status == 503
    finally:
        holder.close()
        patient.close()
