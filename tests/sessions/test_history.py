"""Memory of talk: one history for all of a person's doors, labelled, read from its end, and only their own."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_store

from appliance.channels import session_control
from appliance.clock import this_process
from appliance.knowledge.search import Search
from appliance.prompt.packet import Packets
from appliance.prompt.pruning import labelled
from appliance.records import Event, Inbound, Message, Route
from appliance.runtime.settings import Alias, PeopleSettings
from appliance.runtime.users import user_name
from appliance.sessions.branches import Branches
from appliance.sessions.history import History, Owner, label
from appliance.sessions.runs import Runs
from appliance.sessions.sessions import Session
from appliance.sessions.transcripts import Transcripts
from appliance.store.database import Store

OWNERS = (Owner("ada"), Owner("ada@example.org", "mail"))
LONG = 8_000_000


class Past:
    """Exchanges, at whatever doors."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "owlbox.db"
        self.store = new_store(self.path)
        self.runs = Runs(self.store, this_process().encode())
        self.at_ms = 1000

    def talk(self, asked: str, answer: str, session: str = "local:ada", kind: str = "chat", context: str = "") -> str:
        """A prompt and its answer, as a loop that ended well; its run."""
        channel, _, sender = session.partition(":")
        if self.runs.people.find(session) is None:
            context = context or f"user:{sender}"
            self.runs.people.add(Session(session, channel, sender, sender, context, "active", created_ms=1, last_active_ms=1))
        run = self.runs.begin(session, kind).id
        self.at_ms += 10
        prompt = self.runs.append(
            Event(run, "message", "user", asked, channel=channel, sender_id=sender, at_ms=self.at_ms), durable=True
        )
        loop = self.runs.enqueue(run, prompt.id, "c")
        self.runs.start_loop(loop)
        turn = self.runs.start_turn(loop, 1, "local")
        for event in (
            Event(run, "tool_use", "assistant", "", tool="look", call_id="1", turn=turn),
            Event(run, "tool_result", "tool", "a tool said kettle", tool="look", call_id="1", turn=turn),
            Event(run, "message", "assistant", answer, turn=turn, at_ms=self.at_ms + 1),
        ):
            self.runs.append(event, durable=True)
        self.runs.end_loop(self.runs.loop(loop), 200, "ok")
        return run

    def history(self, owners: tuple[Owner, ...] = OWNERS) -> History:
        return History(self.store, owners)


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    made = Past(tmp_path)
    yield made
    made.store.close()


def texts(history: History, count: int = 100, context: str = "user:ada") -> list[str]:
    return [told.text for told in history.last(context, count)]


# -- whose and in which order ---------------------------------------------------------------------------


@pytest.mark.covers("S-032", "A-010")
def test_one_history_holds_all_doors_of_a_person_in_order_and_nobody_elses(past: Past) -> None:
    past.talk("at the desk", "one")
    past.talk("by mail", "two", "mail:ada@example.org", context="user:ada")
    past.talk("of another", "never", "local:ben")
    past.talk("of the house", "never", "matrix:room", context="group:house")
    past.talk("at the desk again", "three")
    told = past.history().last("user:ada", 100)
    assert [one.text for one in told] == ["at the desk", "one", "by mail", "two", "at the desk again", "three"]
    assert [one.at_ms for one in told] == sorted(one.at_ms for one in told)
    assert texts(past.history(), context="group:house") == ["of the house", "never"]


@pytest.mark.covers("S-036", "S-035")
@pytest.mark.parametrize(("count", "expected"), [(5, 5), (1, 1), (0, 0), (-1, 0), (1000, 40)])
def test_exactly_the_newest_are_read(past: Past, count: int, expected: int) -> None:
    for number in range(20):
        past.talk(f"q{number}", f"a{number}")
    every = [text for number in range(20) for text in (f"q{number}", f"a{number}")]
    assert texts(past.history(), count) == every[len(every) - expected :]


@pytest.mark.parametrize("kind", ["child", "tick"])
def test_what_nobody_said_is_no_history(past: Past, kind: str) -> None:
    past.talk("look around with a kettle", "nothing to do with a kettle", kind=kind)
    past.talk("hello", "hoot")
    assert texts(past.history()) == ["hello", "hoot"]
    assert past.history().search("kettle", context="user:ada") == []


@pytest.mark.covers("E-250", "S-015")
def test_what_no_model_could_answer_is_no_history(past: Past) -> None:
    run = past.talk("a kettle", "yes, a kettle")
    failed = past.runs.append(
        Event(run, "message", "user", "another kettle", channel="local", sender_id="ada", at_ms=2000), durable=True
    )
    loop = past.runs.enqueue(run, failed.id, "c")
    past.runs.start_loop(loop)
    past.runs.end_loop(past.runs.loop(loop), 500, "authentication_failed")
    assert texts(past.history()) == ["a kettle", "yes, a kettle"]
    found = past.history().search("kettle", context="user:ada")
    assert [one.told.text for one in found] == ["yes, a kettle", "a kettle"] and found[0].after is None


# -- labels ---------------------------------------------------------------------------------------------


@pytest.mark.covers("S-037", "S-038", "E-252")
@pytest.mark.parametrize(
    ("channel", "sender", "expected"),
    [
        ("local", "ada", "[local / owner]"),
        ("matrix", "ada", "[matrix / owner]"),
        ("mail", "ada@example.org", "[mail / owner]"),
        ("matrix", "ada@example.org", "[matrix / ada@example.org]"),
        ("local", "Ada", "[local / Ada]"),
        ("mail", "", "[mail / unknown]"),
        ("", "ada", ""),
    ],
)
def test_a_record_is_labelled_with_its_door_and_speaker(past: Past, channel: str, sender: str, expected: str) -> None:
    assert label(channel, sender, OWNERS) == expected


@pytest.mark.covers("S-037", "S-038")
def test_labels_stand_above_what_was_said_when_several_speak(past: Past) -> None:
    packets = Packets(list, Search(past.store), type("None", (), {"lines": lambda self: ()})())
    packets.owners = OWNERS
    said = [
        Message("user", "mine", channel="local", sender_id="ada"),
        Message("assistant", "yes"),
        Message("user", "theirs", channel="matrix", sender_id="ben [local / owner]"),
    ]
    shown = packets.fit(said, (), (), Route("r", "p", "m", 8000, "native"))
    assert [m.content for m in shown] == ["[local / owner]\nmine", "yes", "[matrix / ben local / owner]\ntheirs"]
    assert labelled(said[:2], lambda channel, sender: "no") == said[:2], "one who talks alone needs no label"


@pytest.mark.covers("S-038")
def test_owners_are_the_user_of_the_machine_and_the_aliases_of_the_configuration() -> None:
    people = PeopleSettings((Alias("@ada:x", "matrix"), Alias("ada@example.org")))
    mine = user_name(os.getuid())
    assert session_control.owners(people) == (Owner(mine, "local"), Owner("@ada:x", "matrix"), Owner("ada@example.org"))


# -- how much is read -----------------------------------------------------------------------------------


def read_bytes() -> int:
    """What this process has read from files and sockets so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


@pytest.mark.covers("S-035")
def test_the_last_few_of_a_long_history_are_read_from_its_end_alone(past: Past) -> None:
    piece = "x" * 40_000
    for number in range(LONG // 80_000):
        past.talk(f"{number} {piece}", f"{number} {piece}")
    past.store.close()
    assert past.path.stat().st_size > LONG
    past.store = Store.open(past.path)
    history, before = past.history(), read_bytes()
    told = history.last("user:ada", 5)
    assert len(told) == 5 and read_bytes() - before < 1_000_000


@pytest.mark.covers("S-043")
def test_a_search_holds_a_page_at_a_time(past: Past) -> None:
    for number in range(4):
        past.talk(f"needle {number}", "hay")
    mentions = past.history().search("NEEDLE", context="user:ada", limit=3)
    assert [one.told.text for one in mentions] == ["needle 3", "needle 2", "needle 1"]
    assert mentions[0].told.label == "[local / owner]" and mentions[0].after is not None and mentions[0].after.text == "hay"


# -- nothing is put in between ---------------------------------------------------------------------------


@pytest.mark.covers("S-041")
def test_no_summary_is_ever_put_into_what_was_said(past: Past) -> None:
    run = past.talk("a long story", "and its end")
    past.runs.append(Event(run, "compaction", "system", "SUMMARY of it", input={"covers": [1], "by": "rule"}), durable=True)
    for number in range(100):
        past.talk(f"q{number}", f"a{number}")
    told = past.history().last("user:ada", 1000)
    assert len(told) == 202 and not any("SUMMARY" in one.text for one in told)
    assert past.history().search("SUMMARY", context="user:ada") == []
    elsewhere = past.history().elsewhere("local:ada", "ada", 1000)
    assert not any("SUMMARY" in one.text for one in elsewhere)


# -- out, in, and from two processes -----------------------------------------------------------------------


@pytest.mark.covers("S-033", "S-034", "S-043", "E-253")
def test_a_history_is_written_out_and_read_in_without_its_damaged_lines(
    past: Past, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        past.talk(f"q{number}", f"a{number}")
    parts = Branches(past.store, past.runs, None)  # type: ignore[arg-type]
    assert parts is not None
    lines = list(Transcripts(past.store, past.runs).session("local:ada"))
    assert all(json.loads(line)["type"] for line in lines)
    assert sum(json.loads(line)["type"] == "message" for line in lines) == 6, "one line a message"
    (tmp_path / "other").mkdir()
    other = Past(tmp_path / "other")
    given: list[str | bytes] = [*lines]
    given.insert(3, "{half a line that was cut")
    given += [b'{"type": "message", "content": "\xff\xfe"}', "{"]
    with caplog.at_level("WARNING"):
        done = Transcripts(other.store, other.runs).restore(given)  # type: ignore[arg-type]
    assert done.damaged == 3 and texts(other.history()) == texts(past.history()) != []
    (warning,) = [record.getMessage() for record in caplog.records if "damaged lines" in record.getMessage()]
    assert "'{half a line that was cut'" in warning
    other.store.close()


@pytest.mark.covers("S-033", "E-258", "S-032")
def test_two_processes_add_to_one_history_at_once(past: Past) -> None:
    past.talk("before", "both")
    children = []
    for name in ("left", "right"):
        if (child := os.fork()) == 0:
            code = 1
            try:
                mine = Store.open(past.path)
                runs = Runs(mine, this_process().encode())
                inbound = Inbound("local", "ada", name, name, 1)
                for number in range(20):
                    with mine.write(durable=True):
                        runs.touch_session(inbound)
                    run = runs.begin("local:ada", "chat").id
                    runs.append(Event(run, "message", "user", f"{name} {number}", channel="local", sender_id="ada"), durable=True)
                mine.close()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    found = [one.told.text for word in ("left ", "right ") for one in past.history().search(word, context="user:ada", limit=50)]
    assert sorted(found) == sorted(f"{name} {number}" for name in ("left", "right") for number in range(20))
