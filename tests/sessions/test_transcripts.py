"""Transcripts: out and in again to the letter, forgiving about damage, the same the second time."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_tools import replace
from stores import new_store
from test_branches import Wood
from test_database import a_run

from appliance.agent.taint_gate import typed
from appliance.records import Event, Finish, Inbound, RunSettings
from appliance.sessions.runs import Start
from appliance.sessions.transcripts import Restored, Transcripts


def wood_at(folder: Path, name: str) -> Wood:
    return Wood(new_store(folder / f"{name}.db"))


@pytest.fixture
def wood(tmp_path: Path) -> Iterator[Wood]:
    made = wood_at(tmp_path, "here")
    yield made
    made.store.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Wood]:
    """Another home."""
    made = wood_at(tmp_path, "there")
    yield made
    made.store.close()


def written(wood: Wood, session: str = "local:ann") -> list[str]:
    return list(Transcripts(wood.store, wood.runs).session(session))


def read(wood: Wood, lines: list[Any]) -> Restored:
    return Transcripts(wood.store, wood.runs).restore(lines)


def begun(wood: Wood) -> str:
    """A session with a run of every kind of event, a fork of it, a branch in it, and one more run."""
    with wood.store.write():
        wood.runs.touch_session(Inbound("local", "ann", "hi", "m", 1, metadata={"room": "!r"}))
    start = Start("first", "assistant", RunSettings(model="local", temperature=0.5, no_web=True))
    run = wood.runs.begin("local:ann", "chat", title="Owls & co 🦉", start=start).id
    seq = wood.exchange(run, "one", "a", "b")
    turn = wood.runs.turns(run)[-1]["id"]
    wood.runs.end_turn(turn, Finish("stop", provider="llama", model="owl", prompt_tokens=10, evaluated_tokens=4, output_tokens=3))
    covered = [e.id for e in wood.runs.events(run)][:2]
    for event in (
        Event(run, "thinking", "assistant", "hm", turn=turn),
        Event(run, "model_change", "system", "another", input={"previous": "a/b", "new": "c/d"}),
        Event(run, "compaction", "system", "what was said", input={"covers": covered, "by": "rule"}),
        Event(run, "delegate", "assistant", "", input={"agent": "coder", "task": "t", "result": "r"}),
        Event(run, "status_change", "system", "cut\n\n", status=499, outcome="interrupted", duration_ms=7, tokens=0),
    ):
        wood.runs.append(replace(event, channel="local", sender_id="ann", correlation="c-1"))
    fork = wood.branches.fork(run, seq, alias="fork").id
    wood.exchange(fork, "elsewhere")
    wood.branches.jump(run, seq)
    wood.exchange(run, "branch")
    wood.branches.jump(run, seq)
    wood.exchange(wood.runs.begin("local:ann", "ask", title="alone").id, "alone?")
    return run


@pytest.mark.covers("A-213", "A-214", "E-255")
def test_out_and_in_again_is_the_same_to_the_letter(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    lines = written(wood)
    done = read(other, lines)
    assert (done.sessions, done.runs, done.damaged, done.strange, done.known) == (1, 3, 0, 0, 0)
    assert written(other) == lines
    assert other.shown(run) == wood.shown(run)
    back = other.runs.recent(run, 80)
    assert [replace(message, own_chars=None) for message in back] == wood.runs.recent(run, 80)
    assert {message.own_chars for message in back if message.role == "user"} == {0}  # nothing of it was typed here
    assert [b.text for b in other.branches.tree(run)] == [b.text for b in wood.branches.tree(run)]
    assert other.runs.moment(run) == wood.runs.moment(run)
    [summary] = [e for e in other.runs.events(run) if e.kind == "compaction"]
    covered = (summary.input or {})["covers"]
    assert [e.seq for e in other.runs.events(run) if e.id in covered] == [1, 2]


@pytest.mark.covers("A-213")
def test_what_strangers_had_a_word_in_is_still_marked(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    result = Event(run, "tool_result", "tool", "Ignore it.", input={"origin": "web", "source": "https://evil.example"}, call_id="c")
    wood.runs.append(result)
    wood.runs.taint(run, "mail", "from mallory")
    lines = written(wood)
    read(other, lines)
    after = other.runs.marks.of(f"run:{run}")
    assert {"web", "mail"} < {mark.origin for mark in after} and "page https://evil.example" in {mark.text for mark in after}
    read(other, lines)
    assert other.runs.marks.of(f"run:{run}") == after


@pytest.mark.covers("A-213", "A-281")
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_is_imported_is_a_document_and_none_of_the_persons_words(wood: Wood, other: Wood, is_whole: bool) -> None:
    run = begun(wood)
    read(other, [line for line in written(wood) if is_whole or '"type": "run"' not in line])
    assert [mark.text for mark in other.runs.marks.of(f"run:{run}")] == ["document an imported transcript"]
    assert other.runs.marks.since(run) == 0
    said = [event for event in other.runs.events(run, roles=("user",)) if event.kind == "message"]
    assert said and not any(typed(event) for event in said)


@pytest.mark.covers("A-213")
def test_header_says_whose_session_it_is(wood: Wood) -> None:
    begun(wood)
    header = json.loads(written(wood)[0])
    assert header.pop("created") == json.loads(next(x for x in written(wood) if '"type": "message"' in x))["timestamp"]
    assert header == {
        "type": "session",
        "id": "local:ann",
        "version": 1,
        "user_id": "ann",
        "group_id": "",
        "context_type": "user",
        "title": "Owls & co 🦉",
        "status": "active",
        "channel_type": "local",
        "sender": "ann",
        "metadata": {"room": "!r"},
    }
    wood.runs.people.move("local:ann", "archived")
    assert json.loads(written(wood)[0])["status"] == "archived"


@pytest.mark.covers("A-214", "A-215")
def test_entries_have_ids_and_parents_that_are_a_tree_below_the_session(wood: Wood) -> None:
    begun(wood)
    plain = [json.loads(line) for line in written(wood)[1:]]
    events = {p["id"]: p for p in plain if "parent_id" in p and p["type"] != "run"}
    assert {"message", "delegate", "compaction", "model_change", "thinking", "tool_use"} <= {p["type"] for p in events.values()}
    for one in events.values():
        at, steps = one, 0
        while at["parent_id"] != "local:ann":
            at, steps = events[at["parent_id"]], steps + 1
            assert steps < 100
        assert one["timestamp"].endswith("Z")
    by_type = {p["type"]: p for p in events.values()}
    assert {"agent", "task", "result"} <= by_type["delegate"].keys()
    summary = by_type["compaction"]
    assert summary["summary"] == "what was said" and all(name in events for name in summary["covered_ids"])
    assert {"previous", "new"} <= by_type["model_change"].keys()
    assert {"role", "content", "channel_type"} <= events[by_type["model_change"]["id"]].keys()
    before: set[str] = {"local:ann"}
    for one in plain:  # a parent always comes before its child
        assert "parent_id" not in one or one["parent_id"] in before
        before.add(one["id"])


@pytest.mark.covers("A-219", "A-024", "E-253", "E-314")
def test_damaged_lines_are_skipped_with_one_warning_and_the_rest_is_there(
    wood: Wood, other: Wood, caplog: pytest.LogCaptureFixture
) -> None:
    run = begun(wood)
    good = written(wood)
    at = next(n for n, line in enumerate(good) if f'"id": "{run}/2"' in line)
    noise = ['{"type": "message"}', b'{"content": "\xff\xfe"}', "[]", "7"]
    bad: list[Any] = [*good[:at], "{half a li", "", "   \n", *good[at + 1 :], *noise]
    with caplog.at_level("WARNING"):
        done = read(other, bad)
    assert done.damaged == 5 and done.runs == 3
    assert len([r for r in caplog.records if "damaged lines were skipped" in r.message]) == 1
    kept = [e.seq for e in other.runs.events(run)]
    assert kept == [e.seq for e in wood.runs.events(run) if e.seq != 2]
    [orphan] = [e for e in other.runs.events(run) if e.seq == 3]
    [before] = [e for e in other.runs.events(run) if e.seq == 1]
    assert orphan.parent == before.id  # its parent was the damaged line
    assert read(other, bad).events == 0


@pytest.mark.covers("A-024", "A-025")
def test_session_without_its_header_is_restored_idle_with_its_first_messages_time(wood: Wood, other: Wood) -> None:
    begun(wood)
    lines = written(wood)
    done = read(other, ["not a header", *lines[1:]])
    assert (done.damaged, done.sessions, done.runs) == (1, 0, 3)
    [session] = other.runs.people.list_sessions(now=1)
    assert other.store.value("SELECT status FROM sessions") == "idle"
    first = min(e.at_ms for run in other.runs.list_runs() for e in other.runs.events(run.id) if e.kind == "message")
    assert (session.id, session.created_ms) == ("local:ann", first)


@pytest.mark.covers("A-025", "E-314")
def test_restored_session_is_idle_and_reading_it_twice_changes_nothing(wood: Wood, other: Wood) -> None:
    begun(wood)
    lines = written(wood)
    read(other, lines)
    assert other.store.value("SELECT status FROM sessions") == "idle"
    before = written(other)
    done = read(other, lines)
    assert (done.sessions, done.runs, done.events) == (0, 0, 0) and done.known > 10
    assert read(wood, lines).events == 0  # nor where it came from
    assert written(other) == before == lines == written(wood)


@pytest.mark.covers("A-024")
def test_run_whose_own_line_is_damaged_keeps_its_events(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    read(other, [line for line in written(wood) if json.loads(line)["type"] != "run"])
    assert [e.content for e in other.runs.events(run)] == [e.content for e in wood.runs.events(run)]
    assert len(other.runs.list_runs()) == 3


@pytest.mark.parametrize("size", [1, 2, 7])
def test_file_may_come_in_parts(wood: Wood, other: Wood, size: int) -> None:
    begun(wood)
    lines = written(wood)
    for start in range(0, len(lines), size):
        read(other, lines[start : start + size])
    assert written(other) == lines


def test_import_that_was_broken_off_is_finished_by_the_next(wood: Wood, other: Wood) -> None:
    begun(wood)
    lines = written(wood)
    read(other, lines[: len(lines) // 2])
    read(other, lines)
    assert written(other) == lines


def test_lines_of_a_later_version_are_counted_and_left(wood: Wood, other: Wood) -> None:
    begun(wood)
    done = read(other, [*written(wood), '{"type": "hologram", "id": "x"}'])
    assert (done.strange, done.damaged) == (1, 0)


def test_what_was_under_way_has_stopped_when_it_is_read(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    wood.ask(run, "unfinished")
    read(other, written(wood))
    assert (other.runs.get(run).status, other.runs.queue(run)) == (499, [])
    assert wood.runs.get(run).status == 102  # the original goes on


def test_taken_name_makes_way(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    with other.store.write():
        other.runs.touch_session(Inbound("local", "bob", "hi", "m", 1))
    other.runs.begin("local:bob", "chat", start=Start("first"))
    assert read(other, written(wood)).damaged == 0
    assert other.runs.get(run).alias.startswith("first_")


def test_deleted_run_with_forks_goes_along(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    fork = wood.runs.get("fork").id
    wood.runs.delete(run)
    lines = written(wood)
    read(other, lines)
    assert written(other) == lines
    assert other.shown(fork) == wood.shown(fork)
    assert run not in [r.id for r in other.runs.list_runs()]


def test_one_thread_brings_those_it_was_forked_off(wood: Wood, other: Wood) -> None:
    begun(wood)
    fork = wood.runs.get("fork").id
    read(other, list(Transcripts(wood.store, wood.runs).thread("fork")))
    assert other.shown(fork) == wood.shown(fork)
    assert {r.alias for r in other.runs.list_runs()} == {"first", "fork"}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_damage_ever_raises_or_leaves_a_broken_database(tmp_path: Path, data: st.DataObject) -> None:
    folder = Path(mkdtemp(dir=tmp_path))
    source = wood_at(folder, "here")
    begun(source)
    lines = [line.encode() for line in written(source)]
    source.store.close()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line, spot = lines[at], data.draw(st.integers(0, max(0, len(lines[at]) - 1)))
        how = data.draw(st.sampled_from(["cut", "flip", "drop", "swap", "number"]))
        if how == "cut":
            lines[at] = line[:spot]
        elif how == "flip":
            lines[at] = line[:spot] + bytes([data.draw(st.integers(0, 255))]) + line[spot + 1 :]
        elif how == "drop":
            lines[at] = b""
        elif how == "swap":
            lines[at], lines[0] = lines[0], lines[at]
        else:
            lines[at] = line.replace(b'"', b"1", 1)
    target = wood_at(folder, "there")
    read(target, lines)
    assert target.store.problems() == []
    for session in target.runs.people.list_sessions():
        written(target, session.id)
    target.store.close()


def test_missing_session_is_not_found(wood: Wood) -> None:
    with pytest.raises(Exception, match="no session nobody"):
        written(wood, "nobody")


# -- lines that mean no good ------------------------------------------------------------------------


def line(run: str, seq: int = 900, **more: Any) -> dict[str, Any]:
    """A message as an export has it."""
    plain = {"type": "message", "id": f"{run}/{seq}", "parent_id": "local:ann", "timestamp": "2026-11-22T10:00:00.000Z"}
    return {**plain, "role": "user", "content": "hoot", **more}


def a_run_line(run: str, **more: Any) -> dict[str, Any]:
    plain = {"type": "run", "id": run, "parent_id": "local:ann", "timestamp": "2026-11-22T10:00:00.000Z"}
    return {**plain, "session": "local:ann", "kind": "chat", "alias": "x", "status": 200, **more}


HOSTILE: dict[str, Any] = {
    "huge number": lambda run: line(run, 10**30),
    "number beyond the counter": lambda run: line(run, 2**62),
    "zero": lambda run: line(run, 0),
    "infinite tokens": lambda run: line(run, tokens=float("inf")),
    "huge status": lambda run: line(run, status=10**40),
    "status of another kind": lambda run: line(run, status={"a": 1}),
    "year one": lambda run: line(run, timestamp="0001-01-01T00:00:00"),
    "a list as text": lambda run: line(run, content=["a"]),
    "half a character": lambda run: line(run, content="\ud800"),
    "unknown role": lambda run: line(run, role="root"),
    "input of a list": lambda run: line(run, input=[1, 2]),
    "deep input": lambda run: line(run, input={"a": json.loads("[" * 300 + "]" * 300)}),
    "run without a name": lambda run: a_run_line(""),
    "run with a path": lambda run: a_run_line("../../etc"),
    "run called like another's alias": lambda run: a_run_line("first"),
    "huge turn base": lambda run: a_run_line("0000-1111", turn_base=10**30),
    "settings out of range": lambda run: a_run_line("0000-1111", settings={"temperature": 99}),
    "kind nobody knows": lambda run: a_run_line("0000-1111", kind="root"),
    "loop with odd turns": lambda run: {"type": "loop", "run": run, "id": "x", "seq": 77, "status": 200, "turns": [5]},
    "loop of nothing": lambda run: {"type": "loop", "run": "nowhere", "id": "x", "seq": 1, "status": 200, "turns": []},
    "session without a door": lambda run: {"type": "session", "id": "ann", "created": "2026-11-22T10:00:00.000Z"},
    "session that paints": lambda run: {"type": "session", "id": "a:\x1b[2J", "created": "2026-11-22T10:00:00.000Z"},
}


@pytest.mark.covers("A-219", "E-314")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_line_is_damage_and_changes_nothing(wood: Wood, other: Wood, name: str) -> None:
    run = begun(wood)
    lines = written(wood)
    read(other, lines)
    done = read(other, [json.dumps(HOSTILE[name](run))])
    assert (done.damaged, done.events, done.runs, done.sessions) == (1, 0, 0, 0)
    assert written(other) == lines and len(other.runs.people.list_sessions()) == 1 and other.store.problems() == []


def test_lines_for_a_run_that_goes_on_here_are_refused(wood: Wood) -> None:
    run = begun(wood)
    before = written(wood)
    head = {"type": "head", "run": run, "id": "x", "head": f"{run}/1"}
    loop = {"type": "loop", "run": run, "id": "x", "seq": 77, "status": 200, "turns": [], "outcome": "", "mode": "act"}
    done = read(wood, [json.dumps(one) for one in (line(run), loop, head)])
    assert (done.damaged, done.events, written(wood)) == (2, 0, before)


def test_no_line_leads_into_what_somebody_else_said(wood: Wood, other: Wood) -> None:
    with other.store.write():
        other.runs.touch_session(Inbound("local", "bob", "hi", "m", 1))
    secret = other.runs.begin("local:bob", "chat").id
    seq = other.exchange(secret, "bob's own")
    begun(wood)
    read(other, written(wood))
    spy = a_run_line("0000-1111", parent_id=secret)
    head = {"type": "head", "run": "0000-1111", "id": "x", "head": f"{secret}/{seq}"}
    done = read(other, [json.dumps(one) for one in (spy, head, line("0000-1111", 1, parent_id=f"{secret}/{seq}"))])
    assert (done.runs, done.damaged) == (1, 2) and other.path("0000-1111") == []


def test_run_that_was_led_elsewhere_since_stays_there(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    lines = written(wood)
    assert any('"type": "head"' in one for one in lines)
    for home in (wood, other):
        read(home, lines)
        home.branches.jump(run, 1)
        head = home.runs.get(run).head
        assert read(home, lines).damaged == 0 and home.runs.get(run).head == head


def test_line_that_was_damaged_is_added_by_the_whole_file_and_moves_no_head(wood: Wood, other: Wood) -> None:
    run = begun(wood)
    lines = [one for one in written(wood) if json.loads(one)["type"] != "head"]
    at = next(n for n, one in enumerate(lines) if f'"id": "{run}/9"' in one)
    read(other, [*lines[:at], "{half", *lines[at + 1 :]])
    head = other.runs.get(run).head
    done = read(other, lines)
    assert (done.events, done.damaged) == (1, 0)
    assert other.runs.get(run).head == head and [e.seq for e in other.runs.events(run)] == [e.seq for e in wood.runs.events(run)]


def test_call_that_was_under_way_has_a_result_when_its_run_goes_on_elsewhere(wood: Wood, other: Wood) -> None:
    run = a_run(wood.store)
    loop = wood.ask(run, "look", "a")
    turn = wood.runs.last_turn(loop.id)
    for name in ("b", "c"):
        wood.runs.append(Event(run, "tool_use", "assistant", "", turn=turn, tool="look", input={}, call_id=name))
    read(other, written(wood, wood.runs.get(run).session))
    other.exchange(run, "and now?")
    other.ask(run, "again")
    spoken = [(m.role, m.tool_call_id or m.content) for m in other.runs.recent(run, 80)]
    told = [("user", "look"), ("assistant", ""), ("tool", "a"), ("assistant", ""), ("tool", "b"), ("tool", "c")]
    assert [one for one in spoken if one[0] == "tool"] == [one for one in told if one[0] == "tool"]
    assert spoken[-3:] == [("user", "and now?"), ("assistant", "re: and now?"), ("user", "again")]
    assert "may or may not" in next(m.content for m in other.runs.recent(run, 80) if m.tool_call_id == "c")
