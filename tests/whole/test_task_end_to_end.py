"""Tasks through real processes: the real small model works on one and the asker hears of it; one that kills is paused."""

import json
import os
import pwd
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import ONE_THREAD, shallow_file, shallow_home  # noqa: F401
from process import Box, Core, a_box, is_gone, script, send, until  # noqa: F401

PLAY = """
[[turns]]
match = "^Task: dangerous"
repeat = true
text = "I begin and"
chunk_size = 4
chunk_delay_s = 30
[[turns]]
match = "^paint"
tool_calls = [{name = "create_task", arguments = {name = "slow painting"}}, {name = "spawn_worker", arguments = {}}]
[[turns]]
match = "^paint"
text = "A worker does it."
[[turns]]
match = "^Task: slow"
repeat = true
text = "one two three four five six seven eight nine ten eleven twelve"
chunk_size = 4
chunk_delay_s = 0.5
[[turns]]
repeat = true
text = "Hoot hoot."
"""
SHORT = {"HEARTBEAT_S": "1", "DEAD_AFTER_S": "600", "REAP_INTERVAL_S": "1", "TICK_INTERVAL_S": "1"}


@pytest.fixture
def owl(box: Box) -> Iterator[Box]:
    """A box whose model plays PLAY; workers in the background are ended with it."""
    script(box, PLAY)
    box.environ |= {f"OWLBOX__WORKERS__{name}": value for name, value in SHORT.items()}
    yield box
    for worker in box.json("worker", "list", "--status", "running"):
        if not is_gone(worker["pid"]):
            send(worker["pid"], signal.SIGKILL)


def thread_of(box: Box, text: str) -> str:
    """A thread in which somebody has asked something."""
    assert box.run("chat", text=f"{text}\n").returncode == 0
    return str(box.json("thread", "list", "--type", "chat")[0]["id"])


def leave(box: Box, name: str, request: dict[str, Any]) -> Path:
    """A request in the folder of whoever runs this; the folder."""
    folder = box.home.drop / "users" / pwd.getpwuid(os.getuid()).pw_name
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text(json.dumps(request))
    hidden.rename(folder / f"{name}.json")
    return folder


def ask_for(box: Box, run: str, name: str) -> int:
    """A task asked for in a thread, by a program that leaves a file; its number."""
    leave(box, "request", {"kind": "task", "name": name, "run": run})
    until(lambda: bool(box.json("task", "list")), "the core has taken it")
    return int(box.json("task", "list")[0]["id"])


def task(box: Box, number: int) -> dict[str, Any]:
    found: dict[str, Any] = box.json("task", "view", str(number))
    return found


def told(box: Box, run: str) -> list[str]:
    """What stands in a thread that is the text of a letter."""
    return [event["content"] for event in box.events(run) if (event["input"] or {}).get("letter")]


@pytest.mark.model
def test_the_local_model_works_on_a_task_and_its_result_reaches_who_asked(box: Box, shallow_file: Path) -> None:  # noqa: F811
    (box.home.models / shallow_file.name).hardlink_to(shallow_file)
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    box.environ |= {"OWLBOX__MODELS__MAX_OUTPUT_TOKENS": "24", "OWLBOX__MODELS__TIER": "able", **ONE_THREAD}
    core = box.serve()
    run = thread_of(box, "Hello!")
    number = ask_for(box, run, "Name the capital of France")
    made = core.call("worker.start")
    until(lambda: task(box, number)["status"] in ("complete", "failed", "waiting"), "the model is done", 240)
    until(lambda: bool(told(box, run)), "the asker is told")
    until(lambda: is_gone(made["pid"]), "the worker ends")
    found = task(box, number)
    # What it says, and so how far it comes, is its own affair: what was kept is what was told, once.
    ends = {"complete": ("done", "output"), "failed": ("failed", "failure"), "waiting": ("waits for you", "waiting_reason")}
    state, column = ends[found["status"]]
    assert found[column].strip()
    assert told(box, run) == [f"Task {number} (Name the capital of France) {state}:\n{found[column]}"]
    assert found[column].splitlines()[0] in box.run("task", "view", str(number)).stdout
    turns = core.call("thread.view", id=found["run"])["turns"]
    assert {turn["provider"] for turn in turns} == {"llama"} and all(turn["output_tokens"] > 0 for turn in turns)


def test_a_task_that_kills_its_worker_three_times_is_paused_and_the_asker_told_once(owl: Box) -> None:
    core = owl.serve()
    run = thread_of(owl, "Hello!")
    number = ask_for(owl, run, "dangerous")
    threads = []
    for attempt in (1, 2, 3):
        worker = core.call("worker.start", is_persistent=True)
        until(lambda n=attempt: len([a for a in task(owl, number)["tries"] if a["run"]]) == n, "it works")  # type: ignore[misc]
        threads.append(task(owl, number)["run"])
        send(worker["pid"], signal.SIGKILL)
        until(lambda: bool(core.call("worker.reap")), "it is found dead")
    found = task(owl, number)
    assert (found["status"], found["deaths"]) == ("waiting", 3)
    for attempt, thread in enumerate(threads, 1):
        assert f"attempt {attempt}: thread {thread}, step " in found["waiting_reason"]
    assert found["waiting_reason"].startswith("its worker died 3 times.")
    another = core.call("worker.start", is_persistent=True)
    until(lambda: "[[sleeping]]" in Path(another["log"]).read_text(), "nobody takes it again")
    until(lambda: bool(told(owl, run)), "the asker is told")
    core.call("worker.reap")
    assert told(owl, run) == [f"Task {number} (dangerous) waits for you:\n{found['waiting_reason']}"]
    assert len(task(owl, number)["tries"]) == 3
    assert core.stop() == 0
    again: Core = owl.serve()
    assert len(told(owl, run)) == 1
    again.call("tool.call", name="reset_task", arguments={"id": number})
    until(lambda: len(task(owl, number)["tries"]) == 4, "after a reset it is tried again")


@pytest.mark.covers("B-005", "B-006")
def test_a_chat_leaves_long_work_to_a_worker_and_answers_while_that_works(owl: Box) -> None:
    core = owl.serve()
    run = thread_of(owl, "paint the barn")
    assert [event["tool"] for event in owl.events(run) if event["kind"] == "tool_use"] == ["create_task", "spawn_worker"]
    [made] = owl.json("task", "list")
    until(lambda: bool(task(owl, made["id"])["run"]), "a worker works")
    asked = owl.run("ask", "hello")
    assert asked.stdout == "Hoot hoot.\n" and task(owl, made["id"])["status"] == "in_progress"
    [worker] = core.call("worker.list")
    assert worker["pid"] != core.child.pid and task(owl, made["id"])["run"] != run
    until(lambda: bool(told(owl, run)), "its result is in the chat")
    assert task(owl, made["id"])["status"] == "complete"


@pytest.mark.covers("B-022")
def test_another_worker_takes_over_from_a_killed_one_without_any_command(owl: Box) -> None:
    core = owl.serve()
    pair = [core.call("worker.start", is_persistent=True) for _ in range(2)]
    for one in pair:
        until(lambda log=Path(one["log"]): "[[sleeping]]" in log.read_text(), "it has nothing to do")  # type: ignore[misc]
    number = int(owl.json("task", "add", "slow work")["id"])
    until(lambda: bool(task(owl, number)["run"]), "one works")
    first, second = sorted(pair, key=lambda one: one["id"] != task(owl, number)["tries"][0]["worker"])
    send(first["pid"], signal.SIGKILL)
    until(lambda: task(owl, number)["status"] == "complete", "the other has done it")
    lost, done = task(owl, number)["tries"]
    assert (lost["worker"], done["worker"]) == (first["id"], second["id"])
    assert (lost["outcome"], done["outcome"]) == ("its worker died: killed", "complete")
    assert owl.json("thread", "view", lost["run"])["thread"]["outcome"] == "interrupted"


@pytest.mark.covers("A-021")
def test_files_left_while_the_core_was_killed_are_done_once_however_often_it_is_killed(owl: Box) -> None:
    core = owl.serve()
    run = thread_of(owl, "Hello!")
    core.kill()
    for number in range(10):
        leave(owl, f"message-{number}", {"kind": "message", "text": f"letter {number}", "run": run})
        folder = leave(owl, f"task-{number}", {"kind": "task", "name": f"task {number}", "run": run})
    for _ in range(2):
        child = owl.start("serve")
        until(lambda: len(list(folder.glob("*.json"))) < 20, "it begins to take them")
        child.kill()
        child.wait(60)
    owl.serve()
    until(lambda: list(folder.iterdir()) == [], "all are taken")
    until(lambda: len(told(owl, run)) == 10, "all are told")
    assert sorted(told(owl, run)) == [f"letter {number}" for number in range(10)]
    assert sorted(found["name"] for found in owl.json("task", "list")) == [f"task {number}" for number in range(10)]


def test_an_errand_before_a_tiny_model_waits_on_the_list_and_nobody_is_told(owl: Box) -> None:
    owl.environ |= {"OWLBOX__MODELS__TIER": "tiny"}
    core = owl.serve()
    run = thread_of(owl, "Hello!")
    errand = ask_for(owl, run, "call the bank")
    leave(owl, "another", {"kind": "task", "name": "Research the best heat pumps", "run": run})
    until(lambda: len(owl.json("task", "list")) == 2, "the core has taken both")
    work = next(int(one["id"]) for one in owl.json("task", "list") if one["id"] != errand)
    core.call("worker.start", is_persistent=True)
    until(lambda: {task(owl, number)["status"] for number in (errand, work)} == {"waiting"}, "both wait")
    until(lambda: bool(told(owl, run)), "the asker is told of one")
    assert "on your list" in task(owl, errand)["waiting_reason"]
    assert owl.run("task", "done", str(errand)).returncode == 0  # nor of what they did themselves
    leave(owl, "third", {"kind": "task", "name": "Research the best lawn mowers", "run": run})
    until(lambda: len(told(owl, run)) > 1, "the asker is told of the third")
    third = next(int(one["id"]) for one in owl.json("task", "list") if one["id"] not in (errand, work))
    assert told(owl, run) == [
        f"Task {number} (Research the best {name}) waits for you:\n{task(owl, number)['waiting_reason']}"
        for number, name in ((work, "heat pumps"), (third, "lawn mowers"))
    ]
    assert core.stop() == 0
