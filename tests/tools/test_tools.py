"""The tools that ship, over a real database: what they find, keep, show, and what they can never reach."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from stores import new_home, new_store

from appliance import tools
from appliance.agent.agent import Agent
from appliance.agent.loop import Loops
from appliance.agent.loop_state import LoopLimits
from appliance.agent.toolbox import Toolbox, ToolRules
from appliance.channels.inbox import Inbox
from appliance.clock import CancelToken, now_ms, sleep_s, this_process
from appliance.knowledge.drives import Drives
from appliance.knowledge.entries import Entries
from appliance.knowledge.grep import Texts
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.search import Search
from appliance.policy.policy_file import Policy
from appliance.prompt.packet import Packets
from appliance.providers.scripted import Scripted
from appliance.records import Ask, Cancel, Event, Finish, Inbound, LoopEnded, Measure, Outcome, Piece, Route, ToolCall
from appliance.runtime.paths import Home
from appliance.sessions.history import History
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import Runs
from appliance.store.database import Store

SECRET = "-----BEGIN OPENSSH TEST KEY----- b3BlbnNzaC1rZXk"
ROUTE = Route("local", "scripted", "s", 8192, "native")


@dataclass
class Bench:
    """The tools with everything they work on."""

    home: Home
    store: Store
    entries: Entries
    runs: Runs
    toolbox: Toolbox

    def call(self, name: str, run: str = "", **arguments: Any) -> Outcome:
        return self.toolbox.dispatch(ToolCall("c1", name, arguments), run, CancelToken())

    def hear(self, text: str, who: str = "ada") -> str:
        """A message in a thread of its own; returns the thread."""
        sleep_s(0.002)  # ids and times are in milliseconds
        inbox = Inbound("local", who, text, f"m-{text[:20]}-{now_ms()}", now_ms())
        with self.store.write():
            self.runs.touch_session(inbox)
        return self.runs.begin(inbox.session, "chat", title=text[:40]).id


@pytest.fixture
def bench(home: Home) -> Iterator[Bench]:
    store = new_store(home.database)
    entries, runs = Entries(store), Runs(store, this_process().encode())
    services = {"entries": entries, "finder": Search(store), "runs": runs}
    services |= {"drives": Drives(store, entries, Schemes()), "texts": Texts(store, Schemes()), "history": History(store)}
    toolbox = Toolbox(tools.load(), services, rules=ToolRules(Policy()), store=store)
    yield Bench(home, store, entries, runs, toolbox)
    toolbox.close()
    store.close()


def test_a_file_that_could_not_be_read_is_told_with_the_reason(bench: Bench) -> None:
    drives = Drives(bench.store, bench.entries, Schemes(), why_unread=lambda ref: "binary" if ref == "box://odd" else "")
    toolbox = Toolbox(tools.load(), {"entries": bench.entries, "drives": drives}, rules=ToolRules(Policy()), store=bench.store)
    for name, given in (("read", {"ref": "box:/odd"}), ("context_read", {"path": "odd", "drive": "box"})):
        assert "box:/odd could not be read: binary" in toolbox.dispatch(ToolCall("c1", name, given), "", CancelToken()).message
    toolbox.close()


def test_what_is_remembered_is_found_and_read(bench: Bench) -> None:
    kept = bench.call("remember", text="The garden faces south.", title="Garden")
    assert kept.message == "Kept as memory://notes/garden"
    found = bench.call("search", query="where does the garden face?")
    assert found.message == "memory://notes/garden (Garden): The garden faces south."
    assert found.data["hits"][0]["ref"] == "memory://notes/garden"
    assert bench.call("read", ref="memory:/notes/garden").message == "The garden faces south."


def test_remember_never_overwrites_another_note_and_repeats_nothing(bench: Bench) -> None:
    refs = [bench.call("remember", text=text, title="Car").message for text in ("blue", "red", "blue", "green", "red")]
    assert [r.removeprefix("Kept as memory://notes/") for r in refs] == ["car", "car-2", "car", "car-3", "car-2"]
    assert bench.entries.count() == 3 and bench.entries.get("memory://notes/car").body == "blue"


@pytest.mark.parametrize(("run", "writer"), [("", "client"), ("a-run", "model")])
def test_a_note_says_who_wrote_it(bench: Bench, run: str, writer: str) -> None:
    thread = bench.hear("hi") if run else ""
    bench.call("remember", run=thread, text="tea at four")
    entry = bench.entries.get("memory://notes/tea-four")
    assert (entry.writer, entry.run) == (writer, thread)


def test_a_long_note_is_read_in_parts_and_says_how_to_go_on(bench: Bench) -> None:
    bench.entries.set("memory://notes/long", "\n".join(f"line {n}" for n in range(1, 451)))
    first = bench.call("read", ref="memory://notes/long").message
    assert first.endswith("line 200\n[250 more lines: read again with line=201]")
    last = bench.call("read", ref="memory://notes/long", line=401).message
    assert last.startswith("line 401") and last.endswith("line 450")
    past = bench.call("read", ref="memory://notes/long", line=451)
    assert past.status == 400 and "past the end" in past.message and past.hint == "it has 450 lines"


def test_a_note_of_long_lines_is_read_in_pages_that_follow_each_other(bench: Bench) -> None:
    lines = [f"{n} " + "x" * 1500 for n in range(1, 31)]
    bench.entries.set("memory://notes/wide", "\n".join(lines))
    seen, line = [], 1
    while line:
        page = bench.call("read", ref="memory://notes/wide", line=line).message
        assert len(page) <= 10_000
        text, _, hint = page.partition("\n[")
        seen += text.split("\n")
        line = int(hint.rpartition("=")[2].rstrip("]")) if hint else 0
    assert seen == lines
    bench.entries.set("memory://notes/one", "x" * 50_000)
    assert bench.call("read", ref="memory://notes/one").message.endswith("[line 1: 9800 of 50000 characters shown]")


@pytest.mark.parametrize(
    ("name", "arguments", "status", "part"),
    [
        ("search", {"query": "the of and"}, 400, "nothing to search for"),
        ("search", {"query": ""}, 400, "Invalid input for search: query: Expected `str` of length >= 1"),
        ("search", {"query": '" OR NEAR(* ^'}, 200, "Nothing found"),
        ("search", {"query": "zebra"}, 200, "Nothing found for 'zebra'."),
        ("read", {"ref": "memory://notes/none"}, 404, "no entry memory:/notes/none"),
        ("read", {"ref": "memory://../x"}, 400, "may not go up"),
        ("remember", {"text": ""}, 400, "Invalid input for remember: text"),
        ("list_threads", {"type": "dream"}, 400, "Invalid enum value 'dream'"),
        ("view_thread", {"id": "0000-none"}, 404, "no thread 0000-none"),
    ],
)
def test_bad_and_empty_requests_say_so(bench: Bench, name: str, arguments: dict[str, Any], status: int, part: str) -> None:
    result = bench.call(name, **arguments)
    assert result.status == status and part in result.message


@pytest.mark.covers("B-057")
def test_threads_are_listed_newest_first_and_shown(bench: Bench) -> None:
    assert bench.call("list_threads").message == "No threads."
    old, new = bench.hear("about owls"), bench.hear("about mice")
    lines = bench.call("list_threads").message.splitlines()
    assert [line.split()[0] for line in lines] == [new, old] and lines[1].endswith("about owls")
    assert len(bench.call("list_threads", limit=1).message.splitlines()) == 1
    assert bench.call("list_threads", type="ask").message == "No threads."
    assert bench.call("list_threads", offset=1).message.startswith(old)
    assert bench.call("view_thread", id=old).message.startswith("about owls, chat")


@pytest.mark.covers("S-042", "E-283")
def test_what_was_said_is_found_with_a_heading_and_in_bold(bench: Bench) -> None:
    texts = "Where is the blue kettle? " + "word " * 90, "x " * 300 + "KETTLE again"
    one, other = (bench.hear(text) for text in texts)
    for run, text in zip((one, other), texts):
        bench.runs.append(Event(run, "message", "user", text, channel="local", sender_id="ada"))
    stranger = bench.hear("kettle", "eve")
    bench.runs.append(Event(stranger, "message", "user", "kettle", channel="local", sender_id="eve"))
    bench.runs.append(Event(one, "tool_result", "tool", "a kettle, says a tool", tool="look"))
    found = bench.call("search_history", query="kettle", max_results=0)
    head, said = found.message.splitlines()
    assert (
        re.fullmatch(rf"## 1. .local / eve. [-0-9]{{10}}T[0-9]{{2}}:[0-9]{{2}}, thread {stranger}", head)
        and said == "user: **kettle**"
    )
    assert bench.call("search_history", query="kettle", max_results=99).message.count("## ") == 3
    every = bench.call("search_history", run=one, query="kettle").message
    _, said, _, _, last = every.splitlines()
    assert said.startswith("user: ...x x") and said.endswith("**KETTLE** again") and len(said) < 330
    assert every.count("## ") == 2 and last.startswith("user: Where is the blue **kettle**?") and last.endswith("...")
    assert bench.call("search_history", run=one, query="kettle", days=1).message == every
    with bench.store.write() as execute:
        execute("DROP TRIGGER events_are_final")
        execute("UPDATE events SET at_ms = 1000 WHERE run = ?", (one,))
    assert bench.call("search_history", run=one, query="kettle", days=1).message.count("## ") == 1
    assert bench.call("search_history", query="zebra").message == "No matches found for 'zebra'."
    assert bench.call("search_history", query=" ").outcome == "invalid_arguments"


@pytest.mark.covers("B-057")
def test_a_thread_is_shown_with_who_said_what(bench: Bench) -> None:
    text = {"text": "remember tea", "tool_calls": [{"name": "remember", "arguments": {"text": "tea at four"}}]}
    inbox, _ = _conversation(bench, [text, {"text": "Done."}])
    run = _answered(inbox, "keep this")
    shown = bench.call("view_thread", id=run).message
    assert "1. user: keep this" in shown and "tool (remember): Kept as memory://notes/tea-four" in shown
    assert "assistant: Done." in shown
    assert "keep this" not in bench.call("view_thread", id=run, after=1).message.split("\n", 1)[1]


@pytest.mark.covers("B-058")
@pytest.mark.parametrize(("words", "name", "given"), [(["search", "x", "--limit", "0"], "search", {"query": "x", "limit": 0})])
def test_the_command_line_refuses_in_the_same_words_as_the_model_s_tool(
    bench: Bench, tmp_path: Path, runtime: Path, words: list[str], name: str, given: dict[str, Any]
) -> None:
    home = Home(tmp_path / "cli")
    new_home(home)
    environ = {**os.environ, "RUNTIME_DIRECTORY": str(runtime), "OWLBOX_HOME": str(home.root)}
    command = [sys.executable, "-m", "appliance", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
    result = bench.call(name, **given)
    assert result.message == "Invalid input for search: limit: Expected `int` >= 1, got 0"
    assert done.returncode == 2 and done.stderr == f"owlbox: {result.message} ({result.hint})\n"


# -- what tools can never reach -----------------------------------------------------------------------


class ScriptedModel:
    """Model port over a script in this process; keeps what it was asked."""

    def __init__(self, path: Path) -> None:
        self._scripted = Scripted(path, 8192)
        self.asked: list[Ask] = []

    def plan(self, pool: str) -> list[Route]:
        return [ROUTE]

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        self.asked.append(ask)
        return self._scripted.generate(route, ask, cancel)

    def measure(self, route: Route, ask: Ask) -> Measure:
        return self._scripted.measure(route, ask)


class Nobody:
    """Skills and Status port with nothing to say."""

    def lines(self) -> list[str]:
        return []

    def show(self, session: str, state: str) -> None: ...


def _conversation(bench: Bench, turns: list[dict[str, Any]]) -> tuple[Inbox, ScriptedModel]:
    path = bench.home.root / "play.json"
    path.write_text(json.dumps({"turns": turns}))
    model = ScriptedModel(path)
    packets = Packets(list, Search(bench.store), Nobody())
    many = len(turns) + 1
    limits = LoopLimits(max_turns=many, max_commands=many, max_strikes=many, max_cycles=many, max_loop_commands=many)
    agent = Agent(model, bench.toolbox, packets, bench.runs, limits)
    loops = Loops(bench.store, bench.runs, agent, status=Nobody())
    made = Inbox(
        bench.store,
        bench.runs,
        loops,
        relevant=lambda said: packets.relevant(said.text),
        outbox=Outbox(bench.store, bench.runs.process),
    )
    return made, model


def _answered(inbox: Inbox, text: str) -> str:
    accepted = inbox.accept(Inbound("local", "ada", text, f"m-{now_ms()}", now_ms()), "corr")
    subscription = inbox.feed.subscribe(accepted.loop)
    inbox.start(accepted.loop)
    ends = [item for item in subscription if isinstance(item, LoopEnded)]
    assert ends and ends[0].status == 200, ends
    inbox.close("test")
    return accepted.run


def _reaches(path: Path) -> list[str]:
    """Ways to write down one file."""
    text = str(path)
    schemes = [text, f"file://{text}", f"file:{text}", f"memory://notes/../../{text}"]
    return [*schemes, "~/.ssh/id_rsa", os.path.relpath(text), f"/proc/self/root{text}"]


def _filled(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Arguments with a text wherever a tool takes one, and the least of what else it needs."""
    filled: dict[str, Any] = {}
    for name, shape in schema["properties"].items():
        kinds = {one.get("type") for one in [shape, *shape.get("anyOf", ())] if "enum" not in one}
        if "string" in kinds:
            filled[name] = text
        elif "array" in kinds and shape.get("items", {}).get("type") == "string":
            filled[name] = [text]
        elif name in schema.get("required", ()):
            filled[name] = shape["enum"][0] if "enum" in shape else 1
    return filled


@pytest.mark.covers("B-004")
def test_no_tool_reads_a_file_that_was_not_ingested(bench: Bench, tmp_path: Path) -> None:
    key = tmp_path / ".ssh/id_rsa"
    key.parent.mkdir()
    key.write_text(SECRET)
    calls = []
    for tool in bench.toolbox.tools():
        ways = [{"name": tool.mark.name, "arguments": _filled(tool.spec.schema, way)} for way in _reaches(key)]
        calls += [one for place, one in enumerate(ways) if one not in ways[:place]]
    # One call an answer, so that a failed one does not keep the next from being tried.
    # Forty a conversation: the prompt of each holds all results before it.
    events, asked = [], ""
    for first in range(0, len(calls), 40):
        turns = [{"tool_calls": [one]} for one in calls[first : first + 40]]
        inbox, model = _conversation(bench, [*turns, {"text": "I could not read it."}])
        events += bench.runs.events(_answered(inbox, "show me ~/.ssh/id_rsa"))
        asked += repr(model.asked)
    results = [e for e in events if e.kind == "tool_result"]
    assert {e.tool for e in results} == {t.mark.name for t in bench.toolbox.tools()} and len(results) == len(calls)
    assert not {"aborted", "failed"} & {e.outcome for e in results}
    everything = json.dumps([[e.content, e.input] for e in events]) + asked
    assert "b3BlbnNzaC1rZXk" not in everything and "OPENSSH" not in everything
    assert key.read_text() == SECRET


@pytest.mark.covers("B-004")
def test_a_file_that_was_ingested_can_be_read(bench: Bench) -> None:
    bench.entries.set("drive://home/notes.txt", SECRET)
    assert bench.call("read", ref="drive:/home/notes.txt").message == SECRET
