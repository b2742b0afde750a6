"""kill -9 at every stage: what was accepted is there, what was said is kept, the next question works."""

import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from process import Box, Core, a_box, is_gone, left_over, send, until  # noqa: F401
from test_daemon import asking

from appliance.clock import sleep_s
from appliance.errors import OwlError
from appliance.upkeep import doctor

ROUNDS = 6
# Runs whose numbering has a hole, and locks or loops of processes that are gone.
HOLES = "SELECT run FROM events GROUP BY run HAVING MIN(seq) <> 1 OR MAX(seq) <> COUNT(*)"
DANGLING = "SELECT l.id FROM loops l JOIN runs r ON r.id = l.run WHERE l.status IN (200, 499, 500) AND r.status IN (100, 102)"


def speaking(core: Core, text: str = "endless one") -> tuple[threading.Thread, list[Any]]:
    """A question whose answer has begun to stream."""
    thread, seen = asking(core, text)
    until(lambda: any(isinstance(item, tuple) and item[0] == "delta" for item in list(seen)), "it speaks")
    return thread, seen


def is_resting(pid: int) -> bool:
    """True when a process does nothing for a while: it has read what it was sent."""

    def used() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]

    before = used()
    sleep_s(0.5)
    return used() == before


def is_kept(core: Core, run: str) -> bool:
    """True when the draft of what was streamed is in the database."""
    with core.box.store() as store:
        return bool(store.value("SELECT draft FROM loops WHERE run = ?", (run,)))


def accepted(seen: list[Any]) -> str:
    """The thread that was acknowledged."""
    return str(next(item[1]["run"] for item in seen if isinstance(item, tuple) and item[0] == "accepted"))


def assert_whole(box: Box) -> None:
    """What must hold after any crash."""
    problems = [f for f in doctor.examine(box.home, box.environ) if f.state == "problem"]
    assert problems == []
    with box.store() as store:
        assert store.rows(HOLES) == [] and store.rows(DANGLING) == []


def test_core_killed_in_the_middle_of_an_answer(box: Box) -> None:
    core = box.serve()
    broker = core.broker_pid()
    thread, seen = speaking(core)
    run = accepted(seen)
    until(lambda: is_kept(core, run), "a draft is kept")
    core.kill()
    thread.join(60)
    assert isinstance(seen[-1], OwlError)
    until(lambda: is_gone(broker), "its broker ends")
    again = box.serve()
    found = again.call("thread.view", id=run)
    assert (found["thread"]["status"], found["thread"]["outcome"]) == (499, "interrupted")
    question, said, why = found["events"]
    assert question["content"] == "endless one" and said["content"].startswith("one two") and why["content"] == "interrupted"
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert_whole(box)


def test_broker_killed_in_the_middle_of_an_answer(box: Box) -> None:
    core = box.serve()
    thread, seen = speaking(core)
    send(core.broker_pid(), signal.SIGKILL)
    thread.join(60)
    assert (seen[-1]["status"], seen[-1]["outcome"]) == (499, "interrupted")
    said = box.events(accepted(seen))
    assert said[1]["content"].startswith("one ") and said[-1]["content"].startswith("interrupted")
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert_whole(box)


def test_core_and_broker_killed_at_once(box: Box) -> None:
    core = box.serve()
    broker = core.broker_pid()
    thread, seen = speaking(core)
    send(broker, signal.SIGKILL)
    core.kill()
    thread.join(60)
    again = box.serve()
    assert again.call("thread.view", id=accepted(seen))["thread"]["status"] == 499
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert_whole(box)


def test_a_command_without_a_core_killed_in_the_middle_of_its_answer(box: Box) -> None:
    child = box.start("ask", "endless one")
    assert child.stdout is not None
    os.read(child.stdout.fileno(), 4)
    with box.store() as store:
        broker = int(store.value("SELECT pid FROM processes WHERE kind = 'broker' AND ended_ms IS NULL"))
    child.kill()
    child.wait(60)
    until(lambda: is_gone(broker), "its broker ends")
    (thread,) = box.json("thread", "list")
    assert (thread["title"], thread["status"], thread["outcome"]) == ("endless one", 499, "interrupted")
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert_whole(box)


@pytest.mark.parametrize("victim", ["ask", "core"])
def test_the_turn_lock_of_a_killed_process_holds_nobody_up(box: Box, victim: str) -> None:
    core = box.serve() if victim == "core" else None
    child = box.start("ask", "stuck")
    until(lambda: lock(box) is not None, "the lock is taken")
    if core is not None:
        core.kill()
    child.kill()
    child.wait(60)
    assert lock(box) is not None, "the row is left behind"
    assert box.run("thread", "list").returncode == 0
    assert lock(box) is None, "whoever comes next takes it away"
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert lock(box) is None


def lock(box: Box) -> Any:
    """Who holds the turn."""
    with box.store() as store:
        return store.value("SELECT process FROM turn_locks")


def test_kills_at_random_moments_lose_nothing_that_was_accepted(box: Box) -> None:
    """Six rounds: questions go in, core or broker dies at some moment, and everything still adds up."""
    dice = random.Random(20261121)
    promised: dict[str, str] = {}
    for number in range(ROUNDS):
        core = box.serve()
        asked = [(text, *asking(core, text)) for text in (f"slow {number}", f"quick {number}")]
        if number % 5 in (1, 2, 4):  # in the others a slow machine may have accepted nothing yet
            until(lambda asked=asked: any(seen for _, _, seen in asked), "one is accepted")  # type: ignore[misc]
        sleep_s(dice.random() * 1.2)
        if number % 5 == 4:
            kill_broker(core)
            sleep_s(dice.random() * 0.5)
        core.kill()
        for text, thread, seen in asked:
            thread.join(60)
            promised.update({item[1]["run"]: text for item in seen if isinstance(item, tuple) and item[0] == "accepted"})
        assert_whole(box)
    core = box.serve()
    until(lambda: core.call("core.status")["answering"] == 0, "all that waited is answered", 240)
    for run, text in promised.items():
        found = core.call("thread.view", id=run)
        assert found["events"][0]["content"] == text and found["thread"]["status"] in (200, 499)
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n" and len(promised) > ROUNDS // 2
    assert core.stop() == 0
    assert_whole(box)
    until(lambda: not left_over(box), "nothing is left running")


def kill_broker(core: Core) -> None:
    """kill -9 of the broker, if there is one just now."""
    pid = core.call("core.status")["broker"].get("pid")
    if pid:
        send(pid, signal.SIGKILL)


def test_a_broker_that_dies_while_the_database_is_kept_is_started_again(box: Box) -> None:
    core = box.serve()
    first = core.broker_pid()
    with box.store() as store, store.write():
        send(first, signal.SIGKILL)
        until(lambda: core.broker_pid() != first, "another broker runs")
        send(core.broker_pid(), signal.SIGKILL)
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"


@pytest.mark.parametrize("text", ["endless one", "waits behind it"])
def test_ask_of_a_killed_core_says_that_the_message_is_kept(box: Box, text: str) -> None:
    core = box.serve()
    thread, _ = asking(core, "stuck") if text != "endless one" else (None, None)
    until(lambda: thread is None or any(t["status"] == 102 for t in core.call("thread.list")), "the one before it is worked on")
    child = box.start("ask", text)
    until(lambda: text in [t["title"] for t in core.call("thread.list")], "it is accepted")
    until(lambda: is_resting(child.pid), "it was told so")
    core.kill()
    assert child.wait(60) == 5 and child.stderr is not None
    said = child.stderr.read().decode()
    assert "your message is saved: owlbox thread view " in said and said.count("\n") == 1
    again = box.serve()
    until(lambda: again.call("thread.view", id=said.split()[-1])["thread"]["status"] in (200, 499), "it has ended")
    if thread is not None:
        thread.join(60)
