"""The record: gap-free, never changed, whole after a crash, text unchanged to the character."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_tools import replace
from stores import new_store
from test_database import a_run, child, finished, said

from appliance.clock import this_process
from appliance.errors import BadInput, Busy, Conflict, NotFound, OwlError
from appliance.knowledge.change_log import By
from appliance.knowledge.entries import Content, Entries
from appliance.records import Event, Finish, Inbound, Message, Outbound, RunSettings, ToolCall, from_plain, to_plain
from appliance.sessions.history import PAGE, History, Owner, Recall, label
from appliance.sessions.runs import FAILED, STOPPED, Loop, Runs, Start, as_messages
from appliance.sessions.turns import NEXT
from appliance.store.database import Store
from appliance.store.wall_clock import CLOCKLESS_MS

ANYTHING = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


@pytest.fixture
def runs(store: Store) -> Runs:
    return Runs(store, this_process().encode())


def begun(runs: Runs, run: str, text: str = "hi") -> Loop:
    """A prompt that is being answered by this process."""
    loop = runs.enqueue(run, runs.append(said(run, text)).id, "c")
    runs.start_loop(loop)
    return runs.loop(loop)


# -- events -----------------------------------------------------------------------------------------


@pytest.mark.covers("B-015", "B-052")
def test_every_event_has_a_number_of_tokens(store: Store, runs: Runs) -> None:
    run = a_run(store)
    runs.append(Event(run, "message", "user", "How many owls are there?"))
    runs.append(Event(run, "tool_use", "assistant", "", tool="count", input={"what": "owls"}))
    runs.append(Event(run, "message", "assistant", "Three.", tokens=2))
    assert [e.tokens for e in runs.events(run)] == [6, 4, 2]


@pytest.mark.covers("B-052")
def test_every_field_of_an_event_comes_back(store: Store, runs: Runs) -> None:
    run = a_run(store)
    event = Event(
        run=run,
        kind="tool_result",
        role="tool",
        content="an owl",
        turn=3,
        tool="look",
        input={"at": ["the", {"tree": None}], "count": 1.5},
        call_id="call_1",
        duration_ms=17,
        tokens=5,
        at_ms=1234,
        channel="local",
        sender_id="ann",
        correlation="c",
        status=404,
        outcome="not_found",
    )
    stored = runs.append(event)
    assert stored == replace(event, seq=1, id=stored.id)
    assert runs.events(run) == [stored]


@pytest.mark.covers("B-052")
def test_a_thread_says_what_it_is_and_when_it_began_and_ended(store: Store, runs: Runs) -> None:
    session = runs.get(a_run(store)).session
    run = runs.begin(session, "ask", title="Owls?")
    assert (run.kind, run.title, run.task, run.metadata, run.ended_ms) == ("ask", "Owls?", None, {}, None)
    runs.end_loop(begun(runs, run.id), 200, "ok")
    ended = runs.get(run.id)
    assert ended.ended_ms is not None and ended.ended_ms >= ended.created_ms > 0
    assert [r.id for r in runs.list_runs(kind="ask")] == [run.id]
    with pytest.raises(OwlError, match="CHECK constraint failed: kind"):
        runs.begin(session, "party")


@pytest.mark.covers("B-052", "E-101")
@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        ({"status": 99}, "status"),
        ({"status": 600}, "status"),
        ({"status": "done"}, "status"),
        ({"kind": "shout"}, "kind"),
        ({"role": "owl"}, "role"),
    ],
)
def test_value_out_of_range_is_a_constraint_error_and_takes_no_number(
    store: Store, runs: Runs, wrong: dict[str, object], column: str
) -> None:
    run = a_run(store)
    with pytest.raises(OwlError, match=column):
        runs.append(replace(said(run), **wrong))  # type: ignore[arg-type]
    assert runs.append(said(run)).seq == 1


def test_events_are_never_changed(store: Store, runs: Runs) -> None:
    run = a_run(store)
    before = runs.append(said(run))
    for column in ("content = 'x'", "seq = 9", "status = 500"):
        with pytest.raises(OwlError, match="events are never changed"), store.write() as execute:
            execute(f"UPDATE events SET {column}")
    assert runs.events(run) == [before]


@pytest.mark.covers("B-052")
def test_each_event_points_at_the_one_before_it(store: Store, runs: Runs) -> None:
    one, two = a_run(store), a_run(store)
    for number in range(4):
        runs.append(said(one, str(number)))
        runs.append(said(two, str(number)))
    for run in (one, two):
        events = runs.events(run)
        assert [e.parent for e in events] == [None, *(e.id for e in events[:-1])]
        assert [e.seq for e in events] == [1, 2, 3, 4]


@pytest.mark.covers("B-052")
def test_sequence_has_no_gaps_under_threads(store: Store, runs: Runs) -> None:
    run = a_run(store)
    with ThreadPoolExecutor(8) as pool:
        given = list(pool.map(lambda n: runs.append(said(run, str(n))).seq, range(200)))
    events = runs.events(run)
    assert sorted(given) == [e.seq for e in events] == list(range(1, 201))
    assert {e.content for e in events} == {str(n) for n in range(200)}
    assert [e.parent for e in events[1:]] == [e.id for e in events[:-1]]


@pytest.mark.covers("E-258", "B-052")
def test_processes_that_append_at_once_lose_nothing_and_leave_no_gap(store: Store, runs: Runs) -> None:
    run = a_run(store)
    code = """
        from appliance.records import Event
        from appliance.sessions.runs import Runs
        runs = Runs(Store.open(path), "")
        sys.stdin.readline()
        for number in range(50):
            content = f"{sys.argv[3]}{number}"
            runs.append(Event(run=sys.argv[2], kind="message", role="user", content=content), durable=number % 2 == 0)
    """
    crowd = [child(code, store.path, run, name) for name in "abcd"]
    for one in crowd:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in crowd:
        finished(one)
    events = runs.events(run)
    assert [e.seq for e in events] == list(range(1, 201))
    for name in "abcd":
        assert [e.content for e in events if e.content[0] == name] == [f"{name}{n}" for n in range(50)]


@pytest.mark.covers("B-054")
@pytest.mark.parametrize(
    "text", ["'; DROP TABLE events; --", 'say "hoot"', "🦉👩‍👩‍👧", "a\r\nb\n\n\tc", "a\0b", "é e\u0301", "\u202e\ufeff", ""]
)
def test_special_characters_come_back_unchanged(store: Store, runs: Runs, text: str) -> None:
    run = a_run(store)
    runs.append(said(run, text, input={text or "empty": text}, tool=text))
    [event] = runs.events(run)
    assert (event.content, event.tool, event.input) == (text, text, {text or "empty": text})
    assert store.problems() == []


@pytest.mark.covers("B-054")
@ANYTHING
@given(text=st.text(), value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_text_and_any_input_come_back_unchanged(store: Store, runs: Runs, text: str, value: object) -> None:
    run = a_run(store)
    runs.append(said(run, text, input={"value": value}, sender_id=text))
    [event] = runs.events(run)
    assert (event.content, event.input, event.sender_id) == (text, {"value": value}, text)


def test_half_a_character_is_refused_and_takes_no_number(store: Store, runs: Runs) -> None:
    run = a_run(store)
    for event in (said(run, "\ud800"), said(run, input={"x": "\udfff"})):
        with pytest.raises(BadInput, match="half a character"):
            runs.append(event)
    assert runs.append(said(run)).seq == 1


def test_events_can_be_asked_for_by_role_and_from_a_number_on(store: Store, runs: Runs) -> None:
    run = a_run(store)
    for role in ("user", "assistant", "system", "assistant"):
        runs.append(replace(said(run), role=role))
    assert [e.seq for e in runs.events(run, roles=("assistant", "system"))] == [2, 3, 4]
    assert [e.seq for e in runs.events(run, after=2)] == [3, 4]
    assert [e.seq for e in runs.events(run, after=1, roles=("assistant",), limit=1)] == [2]


# -- runs and sessions ------------------------------------------------------------------------------


def test_run_is_found_by_either_end_of_its_id(store: Store, runs: Runs) -> None:
    run = a_run(store)
    assert {runs.get(ref).id for ref in (run, run[:-1], run[-6:])} == {run}
    other = a_run(store)
    with pytest.raises(BadInput, match="ambiguous"):
        runs.get(run[:4])
    for wrong in (run[-3:], "nope", "%%%%", "____", ""):
        with pytest.raises(NotFound, match="no thread"):
            runs.get(wrong)
    assert [r.id for r in runs.list_runs()] == sorted([run, other], reverse=True)
    assert [r.id for r in runs.list_runs(limit=1, offset=1)] == [min(run, other)]


def test_deleted_run_takes_its_rows_along(store: Store, runs: Runs) -> None:
    run, other = a_run(store), a_run(store)
    loop = begun(runs, run)
    runs.start_turn(loop.id, 1, "local")
    runs.end_loop(loop, 200, "ok")
    below = runs.begin(runs.get(run).session, "chat", parent=run).id
    runs.append(said(other))
    assert runs.delete(run) == 1
    assert [store.value(f"SELECT COUNT(*) FROM {t}") for t in ("runs", "events", "loops", "turns")] == [2, 1, 0, 0]
    assert runs.get(below).parent is None
    with pytest.raises(NotFound):
        runs.delete(run)


def test_run_that_is_being_answered_cannot_be_deleted(store: Store, runs: Runs) -> None:
    run = a_run(store)
    begun(runs, run)
    with pytest.raises(Conflict, match="being answered"):
        runs.delete(run)
    assert len(runs.events(run)) == 1


@pytest.mark.covers("S-006")
def test_session_id_is_channel_and_sender() -> None:
    assert Inbound("matrix", "@ann:example.org", "hi", "m", 1).session == "matrix:@ann:example.org"


@pytest.mark.covers("S-007")
def test_inbound_and_outbound_carry_what_a_channel_needs() -> None:
    inbound = Inbound("local", "ann", "hi", "m1", 5, metadata={"room": "!r"})
    assert (inbound.session, inbound.text, inbound.at_ms, inbound.metadata) == ("local:ann", "hi", 5, {"room": "!r"})
    outbound = Outbound("local:ann", "hoot", "owl.png", {"room": "!r"})
    given = {"session": "local:ann", "text": "hoot", "attachment": "owl.png", "metadata": {"room": "!r"}}
    assert {name: value for name, value in to_plain(outbound).items() if value} == given
    assert Outbound("local:ann", "hoot") == Outbound("local:ann", "hoot", None, {})
    assert from_plain(Inbound, to_plain(inbound)) == inbound


@pytest.mark.covers("S-005")
def test_message_comes_back_whole_and_an_old_one_loads_unchanged() -> None:
    whole = Message("assistant", "hoot", (ToolCall("c1", "look", {"at": 1}),), "c0", "hm", 5, "local", "ann")
    assert from_plain(Message, to_plain(whole)) == whole
    assert from_plain(Message, {"role": "user", "content": "hi", "at_ms": 5}) == Message("user", "hi", at_ms=5)
    assert {from_plain(Message, {"role": r, "content": ""}).role for r in ("system", "user", "assistant", "tool")}
    with pytest.raises(Exception, match="role"):
        from_plain(Message, {"role": "owl", "content": ""})


def test_sessions_are_known_with_what_recovery_needs(store: Store, runs: Runs) -> None:
    a_run(store)
    runs.touch_session(Inbound("local", "ann", "hi", "m", 1))
    [session] = runs.sessions()
    assert (session["id"], session["person"], session["context"]) == ("local:ann", "ann", "user:ann")
    assert (session["status"], session["process"], session["archived_ms"]) == ("active", this_process().encode(), None)
    assert session["last_active_ms"] >= session["created_ms"] > 0
    runs.stop_sessions()
    [session] = runs.sessions()
    assert (session["status"], session["process"]) == ("stopped", "")


# -- loops and turns --------------------------------------------------------------------------------


def test_prompt_is_begun_once_although_many_try(store: Store, runs: Runs) -> None:
    run = a_run(store)
    loop, start, won = runs.enqueue(run, runs.append(said(run)).id, "c"), threading.Barrier(6), []

    def begin() -> None:
        start.wait(10)
        try:
            runs.start_loop(loop)
        except Conflict:
            return
        won.append(1)

    crowd = [threading.Thread(target=begin) for _ in range(6)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert won == [1]
    assert runs.waiting() == []


def test_turn_keeps_its_cost_and_the_route_that_answered(store: Store, runs: Runs) -> None:
    run = a_run(store)
    loop = begun(runs, run)
    first = runs.start_turn(loop.id, 1, "far")
    assert runs.start_turn(loop.id, 1, "local") == first  # the first route did not answer
    runs.end_turn(first, Finish("stop", provider="llama", model="owl", prompt_tokens=10, evaluated_tokens=4, output_tokens=3))
    [turn] = runs.turns(run)
    assert (turn["route"], turn["model"], turn["prompt_tokens"], turn["evaluated_tokens"], turn["output_tokens"]) == (
        "local",
        "owl",
        10,
        4,
        3,
    )


def test_memory_is_what_was_said_oldest_first_and_never_more_than_the_limit(store: Store, runs: Runs) -> None:
    run = a_run(store)
    for number in range(6):
        runs.append(replace(said(run, str(number)), role="user" if number % 2 == 0 else "assistant"))
        runs.append(Event(run=run, kind="status_change", role="system", content="not for the model"))
    assert [m.content for m in runs.recent(run, 4)] == ["2", "3", "4", "5"]
    assert [m.content for m in runs.recent(run, 80)] == [str(n) for n in range(6)]


def _call(call_id: str = "call_1") -> Event:
    return Event(run="r", kind="tool_use", role="assistant", content="", tool="look", input={}, call_id=call_id)


def _result(call_id: str = "call_1") -> Event:
    return Event(run="r", kind="tool_result", role="tool", content="an owl", tool="look", call_id=call_id)


def test_calls_of_one_answer_are_one_message_and_a_result_without_its_call_is_left_out() -> None:
    events = [_result("old"), replace(said("r"), role="user"), _call("a"), _call("b"), _result("a"), _result("b")]
    messages = as_messages(events)
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool"]
    assert [c.id for c in messages[1].tool_calls] == ["a", "b"]
    assert [m.tool_call_id for m in messages[2:]] == ["a", "b"]


def test_open_call_gets_a_result_although_its_id_was_used_before(store: Store, runs: Runs) -> None:
    run = a_run(store)
    loop = begun(runs, run)
    for event in (_call(), _result(), _call()):
        runs.append(replace(event, run=run))
    written = runs.close_open(loop, "half an ans", "interrupted")
    assert [(e.kind, e.call_id, e.status, e.outcome) for e in written] == [
        ("tool_result", "call_1", STOPPED, "interrupted"),
        ("message", "", STOPPED, "interrupted"),
        ("status_change", "", STOPPED, "interrupted"),
    ]
    assert "may or may not have taken effect" in written[0].content
    assert written[1].content == "half an ans"
    assert runs.close_open(loop, "", "interrupted")[0].kind == "status_change"  # nothing is open any more


def test_recovery_leaves_the_living_alone_and_writes_nothing(store: Store, runs: Runs) -> None:
    run = a_run(store)
    begun(runs, run)
    log = store.path.with_name("owlbox.db-wal")
    before = log.stat().st_size, runs.events(run), runs.get(run)
    assert Runs(store, "another").recover(lambda event: None) == []
    assert (log.stat().st_size, runs.events(run), runs.get(run)) == before


def test_several_processes_that_recover_at_once_mend_each_loop_once(store: Store) -> None:
    dead, run = Runs(store, "no-such-boot/1/1"), a_run(store)
    begun(dead, run)
    with ThreadPoolExecutor(4) as pool:
        mended = list(pool.map(lambda n: len(Runs(store, str(n)).recover(lambda event: None)), range(4)))
    assert sum(mended) == 1
    assert [e.kind for e in dead.events(run)] == ["message", "status_change"]


def test_loop_that_has_ended_stays_as_it_ended(store: Store, runs: Runs) -> None:
    run = a_run(store)
    loop = begun(runs, run)
    runs.end_loop(loop, 200, "ok")
    runs.end_loop(loop, FAILED, "late")
    assert (runs.loop(loop.id).status, runs.get(run).status) == (200, 200)
    with pytest.raises(Conflict, match="not waiting"):
        runs.start_loop(loop.id)


# -- status, queue, settings ------------------------------------------------------------------------


@pytest.mark.covers("R-035", "R-036")
@pytest.mark.parametrize("after", list(NEXT))
@pytest.mark.parametrize("before", list(NEXT))
def test_database_itself_refuses_every_other_change_of_a_runs_status(store: Store, before: int, after: int) -> None:
    run = a_run(store)
    with store.write() as execute:
        execute("DELETE FROM runs")
        execute(
            "INSERT INTO runs (id, session, kind, status, created_ms, updated_ms, alias) "
            "VALUES (?, 'local:ann', 'chat', ?, 1, 1, 'a')",
            (run, before),
        )
    is_allowed = after == before or after in NEXT[before]
    try:
        with store.write() as execute:
            execute("UPDATE runs SET status = ?", (after,))
    except OwlError as error:
        assert not is_allowed and "cannot change its status so" in str(error)
    assert store.value("SELECT status FROM runs") == (after if is_allowed else before)
    if before not in (100, 102):
        assert 102 in NEXT[before]  # whatever has ended takes another prompt


@pytest.mark.covers("R-035")
def test_table_of_changes_is_the_required_one() -> None:
    required = "100>102|499; 102>200|202|500|499; 202>102|200|499; 200>102|499; 500>102|499; 499>102"
    table = {int(a): {int(x) for x in b.split("|")} for a, b in (one.split(">") for one in required.split("; "))}
    assert {before: set(after) for before, after in NEXT.items()} == table


@pytest.mark.covers("R-036")
@pytest.mark.parametrize(("status", "outcome"), [(200, "ok"), (499, "cancelled"), (500, "failed")])
def test_run_that_has_ended_takes_another_prompt(store: Store, runs: Runs, status: int, outcome: str) -> None:
    run = a_run(store)
    runs.end_loop(begun(runs, run), status, outcome)
    assert runs.get(run).status == status
    again = begun(runs, run, "again")
    assert (runs.get(run).status, again.seq) == (102, 2)
    runs.end_loop(again, 200, "ok")
    assert (runs.get(run).status, runs.get(run).outcome) == (200, "ok")


@pytest.mark.covers("R-037")
def test_prompts_are_a_queue_with_one_active(store: Store, runs: Runs) -> None:
    run = a_run(store)
    first = begun(runs, run)
    waiting = [runs.enqueue(run, runs.append(said(run, name)).id, "c") for name in ("second", "third")]
    assert [(loop.id, loop.seq, loop.status) for loop in runs.queue(run)] == [
        (first.id, 1, 102),
        (waiting[0], 2, 100),
        (waiting[1], 3, 100),
    ]
    with pytest.raises(Busy, match="is being answered"):
        runs.start_loop(waiting[0])
    with pytest.raises(OwlError, match="UNIQUE"), store.write() as execute:
        execute("UPDATE loops SET status = 102")  # the database says so by itself
    runs.end_loop(first, 200, "ok")
    runs.start_loop(waiting[0])
    assert [loop.status for loop in runs.queue(run)] == [102, 100]


@pytest.mark.covers("R-042")
def test_prompt_is_begun_although_a_dead_process_left_another_one_open(store: Store, runs: Runs) -> None:
    run = a_run(store)
    begun(Runs(store, "no-such-boot/1/1"), run)
    runs.end_loop(begun(runs, run, "next"), 200, "ok")
    assert [e.outcome for e in runs.events(run) if e.kind == "status_change"] == ["interrupted"]


@pytest.mark.covers("R-038")
def test_prompt_that_is_withdrawn_leaves_the_running_one_alone(store: Store, runs: Runs) -> None:
    run = a_run(store)
    first = begun(runs, run)
    waiting = runs.loop(runs.enqueue(run, runs.append(said(run, "second")).id, "c"))
    runs.end_loop(waiting, STOPPED, "cancelled")
    assert (runs.get(run).status, runs.loop(first.id).status) == (102, 102)
    runs.end_loop(first, 200, "ok")
    assert runs.get(run).status == 200


@pytest.mark.covers("R-001", "R-002")
def test_every_level_is_a_row_that_points_at_the_one_above(store: Store, runs: Runs) -> None:
    run = a_run(store)
    loops = []
    for text in ("one", "two"):  # one run holds any number of loops, a loop any number of turns
        loop = begun(runs, run, text)
        for seq in (1, 2):
            runs.end_turn(
                runs.start_turn(loop.id, seq, "local"),
                Finish("stop", provider="p", model="m", prompt_tokens=1, evaluated_tokens=1, output_tokens=1),
            )
        runs.end_loop(loop, 200, "ok")
        loops.append(loop)
    rows = store.rows(
        "SELECT s.id, r.id, l.seq, t.seq FROM sessions s JOIN runs r ON r.session = s.id JOIN loops l ON l.run = r.id "
        "JOIN turns t ON t.loop = l.id ORDER BY t.id"
    )
    assert rows == [("local:ann", run, loop, turn) for loop in (1, 2) for turn in (1, 2)]
    assert [t["number"] for t in runs.turns(run)] == [1, 2, 3, 4]
    assert [loop.mode for loop in loops] == ["act", "act"]
    with pytest.raises(OwlError, match="FOREIGN KEY"), store.write() as execute:
        execute("INSERT INTO loops (run, seq, status, created_ms) VALUES ('nobody', 1, 100, 1)")


@pytest.mark.covers("R-032")
def test_run_is_called_by_its_model_and_the_time_and_no_two_the_same(store: Store, runs: Runs) -> None:
    session = runs.get(a_run(store)).session
    with ThreadPoolExecutor(8) as pool:
        start = Start(settings=RunSettings(model="local/Owl-1.5B"))
        made = list(pool.map(lambda n: runs.begin(session, "chat", start=start), range(40)))
    aliases = [run.alias for run in made]
    assert len(set(aliases)) == 40
    assert all(re.fullmatch(r"local_Owl_1_5B_\d{13}(_\d+)?", alias) for alias in aliases)
    assert runs.get(aliases[7]).id == made[7].id
    with pytest.raises(OwlError, match="UNIQUE"), store.write() as execute:
        execute("UPDATE runs SET alias = 'same'")


@pytest.mark.covers("R-033", "E-102")
def test_rename_takes_plain_free_names_and_keeps_everything_else(store: Store, runs: Runs) -> None:
    run, other = a_run(store), a_run(store)
    runs.end_loop(begun(runs, run), 200, "ok")
    for wrong in ("a-b", "", "a b", "é", "a\n"):
        with pytest.raises(BadInput, match="cannot be a run's name"):
            runs.rename(run, wrong)
    renamed = runs.rename(run, "a_b1")
    assert (renamed.id, renamed.alias, renamed.last_seq) == (run, "a_b1", 1)
    assert runs.get("a_b1") == renamed and runs.rename(run, "a_b1") == renamed
    with pytest.raises(Conflict, match="another run is called a_b1"):
        runs.rename(other, "a_b1")
    assert [loop["seq"] for loop in runs.loops_of(run)] == [1]


@pytest.mark.covers("R-034")
@pytest.mark.parametrize(
    ("changes", "is_right"),
    [
        ({"temperature": 0}, True),
        ({"temperature": 2}, True),
        ({"temperature": 2.01}, False),
        ({"temperature": -0.1}, False),
        ({"context_limit": 1024}, True),
        ({"context_limit": 1023}, False),
        ({"model": "other"}, True),
        ({"approval": "auto"}, True),
        ({"approval": "never"}, False),
        ({"wings": 2}, False),
        ({"persona": "another"}, False),
    ],
)
def test_settings_of_a_run_have_their_ranges(store: Store, runs: Runs, changes: dict[str, object], is_right: bool) -> None:
    session = runs.get(a_run(store)).session
    run = runs.begin(session, "chat", start=Start(settings=RunSettings(model="local", persona="a poet")))
    if is_right:
        after = runs.configure(run.id, dict(changes)).settings
        assert after == replace(run.settings, **changes)  # type: ignore[arg-type]
        log = store.path.with_name("owlbox.db-wal")
        before = log.stat()
        assert runs.configure(run.id, dict(changes)) == runs.configure(run.id, {})
        assert (log.stat().st_size, log.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns), "who only looks writes nothing"
    else:
        with pytest.raises(BadInput):
            runs.configure(run.id, dict(changes))
        if "persona" not in changes and "wings" not in changes:
            with pytest.raises(BadInput):
                runs.begin(session, "chat", start=Start(settings=replace(run.settings, **changes)))  # type: ignore[arg-type]
        assert runs.get(run.id).settings == run.settings


@pytest.mark.covers("R-042")
def test_only_runs_that_came_to_an_end_long_ago_have_expired(store: Store, runs: Runs) -> None:
    old, running, young = a_run(store), a_run(store), a_run(store)
    runs.end_loop(begun(runs, old), 200, "ok")
    begun(runs, running)
    with store.write() as execute:
        execute("UPDATE runs SET updated_ms = ? WHERE id <> ?", (CLOCKLESS_MS + 5, young))
    runs.end_loop(begun(runs, young), 200, "ok")
    assert runs.expired(CLOCKLESS_MS + 10) == [old]
    with store.write() as execute:
        execute("UPDATE runs SET updated_ms = 5 WHERE id = ?", (old,))
    assert runs.expired(CLOCKLESS_MS + 10) == [], "of a clock that was never set: nobody knows how old it is"


# -- what is remembered -----------------------------------------------------------------------------


@pytest.mark.covers("E-237")
def test_resumed_chat_shows_earlier_tool_calls_in_order(store: Store) -> None:
    first = Runs(store, this_process().encode())
    run = a_run(store)
    for number in range(3):
        loop = begun(first, run, f"q{number}")
        turn = first.start_turn(loop.id, 1, "local")
        for event in (_call(f"c{number}"), _result(f"c{number}"), replace(said(run, f"a{number}"), role="assistant")):
            first.append(replace(event, run=run, turn=turn))
        first.end_loop(loop, 200, "ok")
    later = Runs(store, "another process").recent(run, 80)
    assert [c.id for m in later for c in m.tool_calls] == ["c0", "c1", "c2"]
    assert [m.role for m in later] == ["user", "assistant", "tool", "assistant"] * 3


@pytest.mark.covers("E-251", "E-254")
@pytest.mark.parametrize(("limit", "first"), [(80, 20), (100, 0), (1, 99), (0, None), (-1, None)])
@pytest.mark.parametrize("thoughts", [0, 1])  # a turn has at most one
def test_newest_of_a_hundred_are_remembered_in_order(
    store: Store, runs: Runs, limit: int, first: int | None, thoughts: int
) -> None:
    run = a_run(store)
    for number in range(100):
        for _ in range(thoughts):
            runs.append(Event(run, "thinking", "assistant", "does not count"))
        runs.append(replace(said(run, str(number)), role="user" if number % 2 == 0 else "assistant"))
    expected = [] if first is None else [str(n) for n in range(first, 100)]
    assert [m.content for m in runs.recent(run, limit)] == expected


@pytest.mark.covers("E-255")
def test_thoughts_are_remembered_with_what_they_led_to(store: Store, runs: Runs) -> None:
    run = a_run(store)
    for event in (said(run, "q"), Event(run, "thinking", "assistant", "hm"), _call("c"), _result("c")):
        runs.append(replace(event, run=run))
    runs.append(replace(said(run, "answer"), role="assistant"))
    runs.append(said(run, "old record", channel=""))
    messages = runs.recent(run, 80)
    roles = [("user", ""), ("assistant", "hm"), ("tool", ""), ("assistant", ""), ("user", "")]
    assert [(m.role, m.reasoning) for m in messages] == roles
    assert messages[1].tool_calls == (ToolCall("c", "look", {}),)
    assert messages[-1].channel == ""


@pytest.mark.covers("A-105")
def test_change_of_the_model_is_an_event_and_the_conversation_stays(store: Store, runs: Runs) -> None:
    run = a_run(store)
    told = []
    for model in ("owl", "owl", "lark", "lark"):
        loop = begun(runs, run, f"for {model}")
        turn = runs.start_turn(loop.id, 1, "local")
        runs.end_turn(turn, Finish("stop", provider="llama", model=model, prompt_tokens=1, evaluated_tokens=1, output_tokens=1))
        told.append(runs.note_model(turn))
        runs.append(replace(said(run, "re"), role="assistant", turn=turn))
        runs.end_loop(loop, 200, "ok")
    assert [event is not None for event in told] == [False, False, True, False]
    [event] = [e for e in runs.events(run) if e.kind == "model_change"]
    assert event.input == {"previous": "llama/owl", "new": "llama/lark"}
    assert len(runs.recent(run, 80)) == 8


class Broken:
    """Memory port that cannot be read."""

    def recent(self, run: str, limit: int) -> list[Message]:
        raise OwlError("the disk says no")


@pytest.mark.covers("S-014", "E-247")
def test_when_memory_cannot_be_read_the_prompt_is_left(store: Store, runs: Runs) -> None:
    run = a_run(store)
    runs.end_loop(begun(runs, run, "old"), 200, "ok")
    begun(runs, run, "the question")
    assert [m.content for m in Recall(Broken(), runs.question).recent(run, 80)] == ["the question"]
    assert [m.content for m in Recall(runs, runs.question).recent(run, 80)] == ["old", "the question"]
    with store.write() as execute:  # one row of old is no JSON any more
        execute("DROP TRIGGER events_are_final")
        execute("PRAGMA ignore_check_constraints = on")
        execute("UPDATE events SET input = '{half' WHERE seq = 1")
    assert [m.content for m in Recall(runs, runs.question).recent(run, 80)] == ["the question"]


@pytest.mark.covers("S-016", "E-251", "E-254")
def test_history_has_two_records_for_each_prompt_that_was_answered(store: Store, runs: Runs) -> None:
    def exchange(run: str, text: str, status: int = 200, channel: str = "local") -> None:
        prompt = runs.append(said(run, text, channel=channel, sender_id="ann"))
        loop = runs.loop(runs.enqueue(run, prompt.id, "c"))
        runs.start_loop(loop.id)
        turn = runs.start_turn(loop.id, 1, "local")
        for event in (_call(text), _result(text), replace(said(run, "let me see"), role="assistant")):
            runs.append(replace(event, run=run, turn=turn))
        runs.append(replace(said(run, f"re: {text}"), role="assistant", turn=turn))
        runs.end_loop(loop, status, "ok")

    one, other = a_run(store), a_run(store, "bob")
    two = runs.begin("local:ann", "ask").id
    task = runs.begin("local:ann", "tick").id
    exchange(one, "first")
    exchange(two, "second", channel="matrix")
    exchange(one, "failed", status=500)
    exchange(other, "not mine")
    exchange(task, "for a worker")
    exchange(one, "third")
    history = History(store)
    told = history.last("user:ann", 80)
    assert [(t.role, t.text, t.channel, t.sender) for t in told] == [
        ("user", "first", "local", "ann"),
        ("assistant", "re: first", "local", "assistant"),
        ("user", "second", "matrix", "ann"),
        ("assistant", "re: second", "matrix", "assistant"),
        ("user", "third", "local", "ann"),
        ("assistant", "re: third", "local", "assistant"),
    ]
    assert [t.text for t in history.last("user:ann", 3)] == ["re: second", "third", "re: third"]
    assert [history.last("user:ann", n) for n in (0, -1)] == [[], []]


@pytest.mark.covers("S-016")
def test_history_reads_only_the_end(store: Store, runs: Runs) -> None:
    a_run(store)
    plan = " ".join(
        str(row)
        for row in store.rows(
            "EXPLAIN QUERY PLAN SELECT l.id FROM loops l CROSS JOIN runs r ON r.id = l.run "
            "CROSS JOIN sessions s ON s.id = r.session CROSS JOIN events p ON p.id = l.prompt "
            "WHERE s.context = 'user:ann' AND l.status = 200 ORDER BY l.id DESC LIMIT 3"
        )
    )
    assert "TEMP B-TREE" not in plan  # no sorting: it stops as soon as there are enough


@pytest.mark.covers("S-042", "S-043", "E-283")
def test_a_search_of_history_finds_letters_in_whatever_case_with_their_neighbours(store: Store, runs: Runs) -> None:
    run, other = a_run(store), a_run(store, "bob")
    texts = ["How hot is it?", "Boil the Kettle.", "Thanks", "The KETTLE is mine", "Is it?"]
    for n, text in enumerate(texts):
        runs.append(replace(said(run, text, sender_id="ann"), role="assistant" if n % 2 else "user", at_ms=1000 + n))
    runs.append(replace(_result("the kettle as a tool says it"), run=run))
    runs.append(said(other, "Bob's kettle"))
    history = History(store)
    found = history.search("kettle", context="user:ann")
    assert [m.told.text for m in found] == ["The KETTLE is mine", "Boil the Kettle."]
    assert [(m.before and m.before.text, m.after and m.after.text) for m in found] == [
        ("Thanks", "Is it?"),
        ("How hot is it?", "Thanks"),
    ]
    assert [m.told.text for m in history.search("kettle", context="user:ann", since_ms=1002)] == ["The KETTLE is mine"]
    assert len(history.search("kettle")) == 3 and len(history.search("kettle", limit=1)) == 1
    assert history.search("k.ttle") == [] and history.search("kettle", context="user:nobody") == []
    with store.write() as execute:
        execute("UPDATE runs SET deleted_ms = 1 WHERE id = ?", (run,))
    assert [m.told.text for m in history.search("kettle")] == ["Bob's kettle"]


@pytest.mark.covers("S-043")
def test_a_long_history_is_searched_a_page_at_a_time(store: Store, runs: Runs) -> None:
    run = a_run(store)
    with store.write():
        for n in range(PAGE + 20):
            runs.append(said(run, f"needle {n}" if n < 3 else "hay"))
    assert [m.told.text for m in History(store).search("needle")] == ["needle 2", "needle 1", "needle 0"]


@pytest.mark.covers("E-252")
@pytest.mark.parametrize(
    ("channel", "sender", "expected"),
    [
        ("mail", "ann@example.org", "[mail / owner]"),
        ("matrix", "@ann:x", "[matrix / owner]"),
        ("mail", "@ann:x", "[mail / @ann:x]"),
        ("mail", "Ann@example.org", "[mail / Ann@example.org]"),
        ("mail", "", "[mail / unknown]"),
        ("", "ann@example.org", ""),
        ("mail", "assistant", "[mail / assistant]"),
    ],
)
def test_message_is_labelled_with_its_channel_and_sender(channel: str, sender: str, expected: str) -> None:
    owners = (Owner("ann@example.org"), Owner("@ann:x", "matrix"))
    assert label(channel, sender, owners) == expected


@pytest.mark.covers("A-106")
def test_what_a_run_notes_goes_with_it_and_what_is_kept_for_a_person_stays(store: Store, runs: Runs) -> None:
    run = a_run(store)
    entries = Entries(store)
    entries.put("known://plan", Content(body="only here"), By("model", run), scope=f"run:{run}")
    for scope in ("user:ann", "group:owls"):
        entries.put("memory://tea", Content(body="green"), By("model", run), scope=scope)
    assert entries.find("known://plan", scope=f"run:{a_run(store)}") is None
    runs.delete(run)
    assert entries.find("known://plan", scope=f"run:{run}") is None
    assert [entries.get("memory://tea", scope=scope).body for scope in ("user:ann", "group:owls")] == ["green", "green"]
