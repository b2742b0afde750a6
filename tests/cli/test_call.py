"""Any method from the command line, commands again and again, and one search for all places: with a core that runs."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from process import ROOT, Box, a_shared_box  # noqa: F401

from appliance.cli import call
from appliance.cli.main import whole_parser
from appliance.errors import BadInput
from appliance.reference import docs


@pytest.fixture(name="box", scope="module")
def a_served_box(shared_box: Box) -> Iterator[Box]:
    shared_box.serve()
    assert shared_box.run("remember", "the boat is red").returncode == 0
    assert shared_box.run("ask", "where is the boat").returncode == 0
    yield shared_box


def example(schema: dict[str, Any]) -> Any:
    """A value of an argument's type."""
    one = next((option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"), {})
    if one.get("enum"):
        return one["enum"][0]
    kinds = {"string": "a=b c", "integer": 7, "number": 1.5, "boolean": True, "array": ["x"], "object": {"a": 1}}
    return kinds.get(one.get("type", ""), 3)


def test_every_method_of_the_socket_is_reached_with_any_of_its_arguments(box: Box) -> None:
    """Words become the arguments that the method declares; the page of methods names the same methods."""
    methods = box.json("call")
    page = docs.pages(whole_parser())["reference/methods.md"].partition("## the broker")[0]
    named = {line.split("`")[1] for line in page.splitlines() if line.startswith("### `")}
    assert named == set(methods)
    for name, one in methods.items():
        given = {key: example(schema) for key, schema in one["params"].get("properties", {}).items()}
        words = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in given.items()]
        assert call.read_params(words, one["params"]) == given, name


@pytest.mark.covers("A-191")
def test_groups_and_processes_are_read_by_any_client_without_a_change(box: Box) -> None:
    assert box.run("people", "group", "garden", "--add").returncode == 2  # nobody was named
    assert box.run("people", "group", "garden").returncode == 0
    assert box.json("people", "group") == {"garden": []}
    running = {one["kind"] for one in box.json("status")["processes"] if one["is_alive"]}
    assert {"core", "broker"} <= running


def test_what_is_no_argument_of_a_method_is_refused_with_what_is() -> None:
    schema = {"properties": {"limit": {"type": "integer"}, "title": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    for word, said in (("limt=3", "did you mean limit?"), ("limit", "key=value"), ("limit=many", "such as 5")):
        with pytest.raises(BadInput) as error:
            call.read_params([word], schema)
        assert said in str(error.value)
    assert call.read_params(["title=5"], schema) == {"title": "5"}


def test_a_call_reads_a_pipe_and_writes_what_is_sent_and_the_result(box: Box) -> None:
    assert [one["title"] for one in json.loads(box.run("call", "thread.list", "limit=1").stdout)] == ["where is the boat"]
    done = box.run("call", "message.send", "-", text=json.dumps({"text": "hi", "kind": "ask"}))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["method"] == "accepted" and lines[-1]["status"] == 200
    assert "".join(one["params"]["text"] for one in lines if one.get("method") == "delta") == "Hoot hoot."
    quiet = box.run("call", "message.send", "text=hi", "kind=ask", "--quiet").stdout
    assert json.loads(quiet)["status"] == 200
    wrong = box.run("call", "thread.lst")
    assert wrong.returncode == 3 and "did you mean thread.list?" in wrong.stderr


def test_a_command_is_shown_again_and_again_until_it_is_stopped(box: Box) -> None:
    command = [sys.executable, "-m", "appliance", "--home", str(box.home.root), "status", "--watch", "0.2", "--json"]
    child = subprocess.Popen(command, env=box.environ, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout is not None
    rounds = [json.loads(child.stdout.readline()) for _ in range(3)]
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)
    assert [one["core"] for one in rounds] == ["running"] * 3 and child.returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "the boat is red"),
        (("--by", "letters"), "the boat is red"),
        (("--by", "pattern"), "the boat is red"),
        (("--in", "threads"), "where is the **boat**"),
        (("--in", "memory"), "the boat is red"),
    ],
)
def test_one_search_finds_in_every_place(box: Box, words: tuple[str, ...], said: str) -> None:
    assert said in box.run("search", "boat", *words).stdout


def test_a_thread_is_renamed_and_set_by_its_own_word(box: Box) -> None:
    [thread] = box.json("thread", "list", "--limit", "1")
    assert box.run("thread", "rename", thread["id"], "boats").returncode == 0
    again = [box.json(word, "config", "boats") for word in ("thread", "run")]
    assert again[0]["alias"] == "boats" and again[0] == {**again[1], "updated_ms": again[0]["updated_ms"]}
