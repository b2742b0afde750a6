"""Whole loops, turn by turn: the scripted model over the broker's real socket, the real database, the real tools.

One broker and one core serve all of them; every scenario is a run of its own, and its answers are chosen by its name.
"""

import json
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import pytest
import quick
from process import clean_environ
from record_tools import replace
from rooms import USE_ROOMS
from stores import new_home
from test_database import until
from ticks import Silent

from appliance.agent.approvals import CONTENT, VETO, Ballot, Resolved
from appliance.agent.dispatch import RECORDING, CommandScene, Recorded, actor_of
from appliance.agent.loop import Subscription
from appliance.agent.toolbox import Caller, tool
from appliance.channels.inbox import Inbox
from appliance.channels.rpc.entries import WorkspaceControl
from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, Conflict, NotFound
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.records import Delta, Event, Inbound, LoopEnded, Mode, Outcome, RunSettings
from appliance.runtime.crash_points import CrashPoint, Passed, nobody
from appliance.runtime.methods import LocalCall, find_methods
from appliance.runtime.paths import Home
from appliance.runtime.settings import WorkerSettings
from appliance.service.core import Core
from appliance.sessions.runs import Runs
from appliance.sessions.turns import WAITING
from appliance.work.briefing import Briefing
from appliance.work.tasks import NewTask, Task
from appliance.work.tick import TickParts, Ticks

ENTRIES = RunSettings(layout="entries")
WILD = RunSettings(layout="entries", is_yolo=True)


def put(path: str, body: str = "text") -> str:
    return f'<set path="{path}">{body}</set>'


def update(status: int, body: str = "All done.") -> str:
    return f'<update status="{status}">{body}</update>'


BAD = '<get path="known://nothing"/>'


@dataclass(frozen=True)
class Scenario:
    """Answers of the model, and how the loop ends. `deeds` are the results in order, as `tool:status`."""

    name: str
    answers: tuple[str, ...]
    end: tuple[int, str]
    deeds: str = ""
    said: str | None = None
    settings: RunSettings = ENTRIES
    mode: Mode = "act"


def s(name: str, answers: Sequence[str], end: tuple[int, str], deeds: str = "", **more: Any) -> Any:
    marks = more.pop("marks", ())
    return pytest.param(Scenario(name, tuple(answers), end, deeds, **more), id=name, marks=marks)


OK, CANNOT, STRIKES, CYCLE, STILL, WAITS = (
    (200, "ok"), (200, "cannot_comply"), (499, "strikes"), (499, "cycle"), (499, "stagnation"), (202, "proposed"),
)  # fmt: skip
NO_CHANGE = RunSettings(layout="entries", no_proposals=True)
CHAT = RunSettings()

SCENARIOS = [
    # -- the explicit end
    s(
        "update-200",
        [put("known://a") + update(200)],
        OK,
        "set:200 update:200",
        said="All done.",
        marks=pytest.mark.covers("R-068"),
    ),
    s("update-204", [put("known://a") + update(204)], OK, "set:200 update:200", said="", marks=pytest.mark.covers("R-068")),
    s(
        "update-422",
        [update(422, "No such thing.")],
        CANNOT,
        "update:200",
        said="No such thing.",
        marks=pytest.mark.covers("R-068"),
    ),
    s(
        "removal-with-a-filter",
        [
            put("known://t/a", "the pump") + put("known://t/b", "oak") + put("known://t/c", "owl"),
            '<rm path="known://t/*" manifest/>' + '<rm path="known://t/*">pump</rm>',
            '<get path="known://t/b"/><get path="known://t/c"/><get path="known://t/a"/>',
            '<rm path="known://t/*" only="owl"/>',
            '<get path="known://t/c"/>',
            update(200),
        ],
        OK,
        "set:200 set:200 set:200 rm:200 rm:200 get:200 get:200 get:404 rm:400 get:200 update:200",
        marks=pytest.mark.covers("R-118"),
    ),
    s("update-102", [put("known://a") + update(102, "so far"), update(200)], OK, "set:200 update:200 update:200"),
    s(
        "update-without-status",
        ["<update>so far</update>", update(200)],
        OK,
        "update:200 update:200",
        marks=pytest.mark.covers("R-068"),
    ),
    s(
        "last-update-ends",
        [update(102, "so far") + update(200)],
        OK,
        "update:200 update:200",
        marks=pytest.mark.covers("R-070", "E-137"),
    ),
    s(
        "last-update-goes-on",
        [update(200) + update(102, "not yet"), update(204)],
        OK,
        "update:200 update:200 update:200",
        marks=pytest.mark.covers("R-070", "E-137"),
    ),
    s("words-and-update", ["It is full." + update(200, "done")], OK, "update:200", said="It is full."),
    # -- no call
    s("words", ["It is full."], OK, "", said="It is full.", marks=pytest.mark.covers("R-071", "E-126", "S-010")),
    s("long-words", ["o" * 600], OK, "", said="o" * 600, marks=pytest.mark.covers("E-126")),
    s("words-in-chat", ["It is full."], OK, "", said="It is full.", settings=CHAT, marks=pytest.mark.covers("S-010")),
    s("call-then-words", [put("known://a"), "Kept."], OK, "set:200", said="Kept.", marks=pytest.mark.covers("R-071", "E-127")),
    s(
        "narration",
        ["First I look. " + put("known://a") + " There.", "Done."],
        OK,
        "set:200",
        said="First I look. There.Done.",
        marks=pytest.mark.covers("R-082"),
    ),
    # -- strikes, stalls, glitches
    s(
        "three-failures",
        [BAD, '<get path="known://n2"/>', '<get path="known://n3"/>'],
        STRIKES,
        "get:404 get:404 get:404",
        marks=pytest.mark.covers("R-073", "R-074"),
    ),
    s(
        "a-clean-turn-between",
        [BAD, '<get path="known://n2"/>', put("known://a"), '<get path="known://n3"/>', '<get path="known://n4"/>', "Well."],
        OK,
        "get:404 get:404 set:200 get:404 get:404",
        marks=pytest.mark.covers("E-135", "R-004"),
    ),
    s(
        "one-turn-many-failures",
        [BAD + '<get path="known://n2"/>' + '<get path="known://n3"/>', "Well."],
        OK,
        "get:404 get:424 get:424",
        marks=pytest.mark.covers("R-004", "R-061"),
    ),
    s("empty-once", ["", "Here."], OK, "", said="Here.", marks=pytest.mark.covers("R-071", "E-127")),
    s("empty-thrice", ["", " \n", ""], STRIKES, "", marks=pytest.mark.covers("R-077", "E-127")),
    s(
        "malformed-once",
        ['<tool_call>{"name": "get", "arguments"</tool_call>', "Here."],
        OK,
        "",
        said="Here.",
        marks=pytest.mark.covers("R-072", "E-128"),
    ),
    s(
        "malformed-thrice",
        ['<tool_call>{"name": "get", "arguments"</tool_call>'] * 3,
        STRIKES,
        "",
        marks=pytest.mark.covers("R-072", "R-073"),
    ),
    s("unknown-tool", ['{"name": "fly", "arguments": {}}', "Here."], OK, "", said="Here.", marks=pytest.mark.covers("R-080")),
    s(
        "mended-quote",
        ['<set path="known://a>text</set>' + put("known://b"), update(204)],
        OK,
        None,
        marks=pytest.mark.covers("R-081"),
    ),
    # -- circles and standing still
    s("circle-1", [put("known://a", "x")] * 5, CYCLE, "set:200 set:200 set:200", marks=pytest.mark.covers("E-129", "R-075")),
    s(
        "circle-2",
        [put("known://a"), put("known://b")] * 3,
        CYCLE,
        " ".join(["set:200"] * 6),
        marks=pytest.mark.covers("E-130", "R-075"),
    ),
    s(
        "circle-3",
        [put("known://a"), put("known://b"), put("known://c")] * 3,
        CYCLE,
        " ".join(["set:200"] * 9),
        marks=pytest.mark.covers("E-130"),
    ),
    s(
        "circle-of-attributes",
        [f'<set path="known://v" visibility="{v}">t</set>' for v in ("visible", "archived")] * 2 + [put("known://w"), update(204)],
        OK,
        None,
        marks=pytest.mark.covers("R-076"),
    ),
    s(
        "circle-in-another-order",
        [put("known://a") + put("known://b"), put("known://b") + put("known://a"), put("known://a") + put("known://b")],
        CYCLE,
        " ".join(["set:200"] * 6),
        marks=pytest.mark.covers("E-131"),
    ),
    s("six-different", [put(f"known://{n}") for n in "abcdef"] + [update(204)], OK, None, marks=pytest.mark.covers("E-133")),
    s(
        "standing-still",
        [put("known://same", f"text {n}") for n in range(5)],
        STILL,
        " ".join(["set:200"] * 5),
        marks=pytest.mark.covers("E-134", "R-077"),
    ),
    s(
        "same-report",
        [put(f"known://{n}") + update(102, "still at it") for n in "abc"],
        STILL,
        None,
        marks=pytest.mark.covers("R-077"),
    ),
    # -- an end beside a failure
    s("end-after-a-failure", [BAD + update(200), "Well."], OK, "get:404 update:409", marks=pytest.mark.covers("R-069", "E-136")),
    s(
        "end-before-a-failure",
        [update(200) + BAD, "Well."],
        OK,
        "update:200 get:404",
        said="Well.",
        marks=pytest.mark.covers("R-069", "E-136"),
    ),
    # -- caps
    s(
        "too-many-commands-in-one",
        ["".join(put(f"known://n{i}") for i in range(105)), update(204)],
        OK,
        None,
        marks=pytest.mark.covers("R-078"),
    ),
    # -- dispatch
    s(
        "failure-aborts-the-rest",
        [put("known://a") + BAD + put("known://b"), "Well."],
        OK,
        "set:200 get:404 set:424",
        marks=pytest.mark.covers("R-061"),
    ),
    s("an-exception", ["<boom/>" + put("known://b"), "Well."], OK, "boom:500 set:424", marks=pytest.mark.covers("R-062")),
    s("long-target", [f'<get path="{"x" * 513}"/>', "Well."], OK, "get:400", marks=pytest.mark.covers("R-059")),
    s("longest-target", [f'<get path="known://{"x" * 504}"/>', "Well."], OK, "get:404", marks=pytest.mark.covers("R-059")),
    s(
        "control-character",
        ['{"name": "get", "arguments": {"path": "known://a\\u0007b"}}', "Well."],
        OK,
        "get:400",
        marks=pytest.mark.covers("R-059"),
    ),
    s("thinking", ["<think>Hm.</think>" + put("known://a"), "Well."], OK, None, marks=pytest.mark.covers("R-051")),
    # -- modes and flags
    s(
        "ask-mode-file",
        [put("a.txt"), '<rm path="here.txt"/>', "Well."],
        OK,
        "set:403 rm:403",
        mode="ask",
        marks=pytest.mark.covers("R-054", "E-123", "R-003"),
    ),
    s(
        "ask-mode-move",
        [put("known://a") + '<mv path="known://a" to="b.txt"/>', "Well."],
        OK,
        "set:200 mv:403",
        mode="ask",
        marks=pytest.mark.covers("R-054", "E-123"),
    ),
    s(
        "ask-mode-copy",
        [put("known://a") + '<cp path="known://a" to="b.txt"/>', "Well."],
        OK,
        "set:200 cp:403",
        mode="ask",
        marks=pytest.mark.covers("R-054"),
    ),
    s(
        "ask-mode-known",
        [put("known://a") + '<mv path="known://a" to="known://b"/><rm path="known://b"/>', "Well."],
        OK,
        "set:200 mv:200 rm:200",
        mode="ask",
        marks=pytest.mark.covers("R-054", "E-123"),
    ),
    s("ask-mode-shell", ["<sh>rm -rf /</sh>", "Well."], OK, "", mode="ask", marks=pytest.mark.covers("R-055", "R-057")),
    s("no-proposals", [put("a.txt"), "Well."], OK, "set:403", settings=NO_CHANGE, marks=pytest.mark.covers("R-053")),
    # -- proposals
    s("a-file-waits", [put("a.txt") + put("known://a")], WAITS, "", marks=pytest.mark.covers("R-063", "R-084", "R-113", "R-095")),
    s("a-removal-waits", ['<rm path="here.txt"/>'], WAITS, "", marks=pytest.mark.covers("R-084", "E-108")),
    s(
        "a-move-to-a-file-waits",
        [put("known://a") + '<mv path="known://a" to="moved.txt"/>'],
        WAITS,
        "set:200",
        marks=pytest.mark.covers("R-084"),
    ),
    s(
        "a-question-waits",
        ['<ask_user question="Red?" options="yes; no, never"/>'],
        WAITS,
        "",
        marks=pytest.mark.covers("R-084", "R-092"),
    ),
    s("a-command-waits", ["<sh>date</sh>"], WAITS, "", marks=pytest.mark.covers("R-084", "E-117")),
    s(
        "knowledge-does-not-wait",
        [put("known://a", "b"), '<set path="known://a" search="b" replace="c"/>', update(204)],
        OK,
        "set:200 set:200 update:200",
        marks=pytest.mark.covers("R-091", "E-115"),
    ),
    s("wild-file", [put("w.txt") + update(200)], OK, "set:200 update:200", settings=WILD, marks=pytest.mark.covers("R-093")),
    s(
        "wild-removal",
        ['<rm path="gone.txt"/>' + update(200)],
        OK,
        "rm:200 update:200",
        settings=WILD,
        marks=pytest.mark.covers("R-093", "R-089"),
    ),
]


# -- the stage -----------------------------------------------------------------------------------------


@tool(group="test", menu=("run",))
def boom() -> str:
    """Fail in a way that nobody foresaw."""
    raise ZeroDivisionError("boom")


@tool(group="test", menu=("run",))
def witness(path: str, *, verbs: Verbs, caller: Caller) -> str:
    """Say how many commands are recorded and have no result yet."""
    return f"{len(verbs.actions.unfinished(caller.run))} recorded, none of them with a result"


@tool(group="shell", menu=("run",))
def sh(command: Annotated[str, "what to run"], *, verbs: Verbs, runs: Runs, caller: Caller) -> Outcome:
    """Run a command, once somebody allows it."""
    return verbs.record(actor_of(runs, caller), "sh", command, command)


@dataclass
class Told:
    """What a caller hears of a loop."""

    run: str
    loop: int
    items: list[Any] = field(default_factory=list)

    @property
    def end(self) -> LoopEnded:
        return next(item for item in reversed(self.items) if isinstance(item, LoopEnded))

    @property
    def said(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, Delta))

    def events(self, kind: str) -> list[Event]:
        return [item for item in self.items if isinstance(item, Event) and item.kind == kind]

    @property
    def deeds(self) -> str:
        return " ".join(f"{e.tool}:{e.status}" for e in self.events("tool_result"))


@dataclass
class Stage:
    """A core in this process, and its broker beside it."""

    core: Core

    @property
    def inbox(self) -> Inbox:
        return self.core.inbox

    def ask(self, text: str, settings: RunSettings = ENTRIES, mode: Mode = "act", thread: str = "") -> Told:
        """Put a prompt and hear everything until it ends or waits."""
        inbound = Inbound("local", "ada", text, new_id(), now_ms(), thread, mode=mode, settings=None if thread else settings)
        accepted = self.inbox.accept(inbound, new_id())
        return self.heard(Told(accepted.run, accepted.loop), lambda: self.inbox.start(accepted.loop))

    def heard(self, told: Told, begin: Callable[[], object]) -> Told:
        subscription: Subscription = self.inbox.feed.subscribe(told.loop)
        try:
            begin()
            for item in subscription:
                told.items.append(item)
                if isinstance(item, LoopEnded):
                    return told
        finally:
            self.inbox.feed.leave(told.loop, subscription)
        raise AssertionError("it never ended")

    def decide(self, told: Told, decision: Any, output: str = "", at: int = 0) -> tuple[Told, Resolved]:
        """Decide about what a run proposed, and hear how it goes on."""
        ref = self.waiting(told.run)[at]
        found: list[Resolved] = []
        after = Told(told.run, told.loop)
        self.heard(after, lambda: found.append(self.core.approvals.resolve(ref, told.run, decision, output)))
        return after, found[0]

    def waiting(self, run: str) -> list[str]:
        return [one.ref for one in self.core.approvals.waiting(run)]

    def log(self, run: str) -> dict[str, tuple[str, int, str]]:
        """The run's log entries: state, status, and body."""
        sql = "SELECT path, state, status, body FROM run_entries WHERE run = ? AND path LIKE 'log://turn_%' ORDER BY path"
        return {str(p): (str(state), int(status), str(body)) for p, state, status, body in self.core.store.rows(sql, (run,))}

    def entry(self, path: str, run: str = "") -> str | None:
        found = self.core.entries.find(path, scope=f"run:{run}" if run else "project:1")
        return None if found is None else found.body


# Answers for the tests below that are more than one row of a table.
MORE: dict[str, list[Any]] = {
    "accept-file": [put("new.txt", "hello") + put("known://after", "x"), "Written."],
    "reject-file": [put("never.txt", "hello") + put("known://never", "x"), "never said"],
    "error-file": [put("wrong.txt", "hello") + put("known://wrong", "x"), "It went wrong."],
    "changed-file": [put("changed.txt", "mine"), "It had changed."],
    "decided": [put("decision.txt"), "<linger/>", "Gone on."],
    "narrowed": ["".join(f'<get path="wide{n}.txt"/>' for n in range(3)) + put("narrow.txt"), "Narrower."],
    "two-calls": [put("one.txt") + put("two.txt"), "Both."],
    "two-edits": ['<set path="here.txt" search="one" replace="ONE"/><set path="here.txt" search="two" replace="TWO"/>', "Done."],
    "half-edits": [
        '<set path="half.txt" search="one" replace="ONE"/><set path="half.txt" search="six" replace="SIX"/>' + put("late.txt"),
        "Done.",
    ],
    "one-pattern": ['<rm path="pattern/*.txt"/>', "Gone."],
    "ask-user": ['<ask_user question="Which colour?">red; green, dark</ask_user>', "Red it is."],
    "command": ["<sh>date</sh>", "It is noon."],
    "vetoed": [put("vetoed.txt"), "I may not."],
    "policy": [put("policy.txt"), "I may not."],
    "own-policy": [put("own-policy.txt"), "I may not."],
    "replaced": ["<sh>secret</sh>", "Fine."],
    "remove": ['<rm path="removed.txt"/>', "Removed."],
    "keep": ['<rm path="kept.txt"/>'],
    "terminal": [put("t.txt") + update(200, "Finished."), "never said"],
    "end-before": [update(200, "Finished.") + put("eb.txt"), "never said"],
    "end-before-wrong": [update(200, "Finished.") + put("ebw.txt"), "Not finished."],
    "tick": [
        {
            "tool_calls": [
                {"name": "use", "arguments": {"tool": "sh", "arguments": {"command": "date"}}},
                {"name": "read", "arguments": {"ref": "known://none"}},
            ]
        },
        "It is noon.",
    ],
    "tick-no": [{"tool_calls": [{"name": "use", "arguments": {"tool": "sh", "arguments": {"command": "rm"}}}]}, "never said"],
    "tick-stop": [{"tool_calls": [{"name": "use", "arguments": {"tool": "sh", "arguments": {"command": "rm"}}}]}, "never said"],
    "tick-reset": [{"tool_calls": [{"name": "use", "arguments": {"tool": "sh", "arguments": {"command": "ls"}}}]}, "Anew."],
    "tick-moment": [{"tool_calls": [{"name": "use", "arguments": {"tool": "sh", "arguments": {"command": "ls"}}}]}, "In time."],
    **{f"commands-{n}": ["".join(put(f"known://c{i}") for i in range(n)), update(204)] for n in (99, 105)},
    **{f"rush-{n}": [put(f"rush{n}.txt") + put(f"known://rush{n}"), "Done."] for n in range(4)},
    "tick-close": [{"tool_calls": [{"name": "use", "arguments": {"tool": "sh", "arguments": {"command": "ls"}}}]}],
    "close": [put("close.txt")],
    **{f"state-{state}": [put(f"{state}.txt"), "Well."] for state in ("resolved", "cancelled", "failed")},
    "tick-quick": [{"tool_calls": [{"name": "use", "arguments": {"tool": "sh", "arguments": {"command": "ls"}}}]}, "Quick."],
    "void": [update(200, "Finished.") + BAD, "Well."],
    "void-again": [update(200, "Finished.") + BAD, "Well."],
    "chat-file": [
        {
            "tool_calls": [
                {"name": "use", "arguments": {"tool": "set", "arguments": {"path": "chat.txt", "body": "hello"}}},
                {"name": "remember", "arguments": {"text": "a file was written"}},
            ]
        },
        "Written.",
    ],
    "at-once": [put("once.txt"), "At once."],
    "held-1": [put("held.txt"), "First."],
    "held-2": ["Second."],
    "dropped-1": [put("dropped.txt")],
    "dropped-2": ["After it."],
    "recorded": ['<witness path="note"/>' + put("known://r1") + BAD + put("known://r2"), "Well."],
    "filtered": [put("known://f1", "bad word") + put("known://f2"), put("known://f3", "shout"), "Well."],
    "same-unknown": [
        put("unknown://q", "Why?") + put("unknown://other", "How?"),
        put("unknown://r", "Why?") + put("unknown://q", "Why?") + put("unknown://s", "Where?"),
        "Well.",
    ],
    "no-answer": [{"error": "timeout"}] * 9,
    "no-room": [{"error": "context_too_long"}] * 9,
    "use": ['{"name": "use", "arguments": {"tool": "set", "arguments": {"path": "memory:/used", "body": "by use"}}}', "Used."],
    "use-unknown": ['{"name": "use", "arguments": {"tool": "fly", "arguments": {}}}', "Well."],
    "use-itself": ['{"name": "use", "arguments": {"tool": "use", "arguments": {"tool": "read"}}}', "Well."],
    "use-terminal": ['{"name": "use", "arguments": {"tool": "complete_task", "arguments": {"summary": "x"}}}', "Well."],
    "help": ['{"name": "tool_help", "arguments": {"name": "context_write"}}', "I see."],
    "reasons": [
        {"text": "I look.", "reasoning": "Let me look.", "tool_calls": [{"name": "search", "arguments": {"query": "owl"}}]},
        "Nothing.",
    ],
    "inject-entries": ["<linger/>"],
    "inject-entries-more": ["Both."],
    "inject-chat": [{"tool_calls": [{"name": "linger", "arguments": {}}]}],
    "inject-chat-more": ["Both."],
    "spin-1": [{"tool_calls": [{"name": "spin", "arguments": {"word": "round"}}]}, "Spun."],
    "spin-2": [{"tool_calls": [{"name": "spin", "arguments": {}}]}, "Not spun."],
    "partial": [{"text": "One Two three <search query='x", "chunk_size": 4, "chunk_delay_s": 0.3}],
    "reads": [{"tool_calls": [{"name": "search", "arguments": {"query": q}} for q in ("owl", "cat", "dog")]}, "Read."],
    "wild-veto": [put("wv.txt"), "Not so."],
    "alone": [put("alone.txt"), "Not alone."],
    "twenty-one": [put(f"known://t{n}") for n in range(30)],
    "trouble": ['<set path="known://t>x</set>', update(204)],
    "unknown-twice": ['{"name": "fly9", "arguments": {}}', "Well."],
}


def script(folder: Path, told: dict[str, Sequence[Any]]) -> str:
    """A file with answers by the name that their prompt has; its path."""
    turns = []
    for name, answers in told.items():
        turns += [{"match": rf"\[{name}\]", **(a if isinstance(a, dict) else {"text": a})} for a in answers]
    (folder / "script.json").write_text(json.dumps({"turns": turns}))
    return str(folder / "script.json")


@contextmanager
def opened(folder: Path, told: dict[str, Sequence[Any]], passed: Passed = nobody, runtime: Path | None = None) -> Iterator[Stage]:
    """A core on the home in a folder, made when there is none yet, and a broker that plays these answers."""
    runtime = runtime or Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir()
    home = Home(folder / "home")
    if not home.database.exists():
        new_home(home)
    given = {"OWLBOX__MODELS__SCRIPT": script(folder, told), "OWLBOX__MODELS__CONTEXT": "200000"}
    core = Core(home, clean_environ(folder, runtime) | given, process="cli", is_shared=False, passed=passed)
    core.recover()
    core.toolbox.remove("sh")
    for function in (boom, sh, witness):
        core.toolbox.add(function)
    try:
        yield Stage(core)
        assert core.close("the test is over") == []
    finally:
        shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    told = {param.values[0].name: param.values[0].answers for param in SCENARIOS} | MORE
    with opened(tmp_path_factory.mktemp("stage"), told) as made:
        for name in ("here.txt", "gone.txt"):
            made.core.entries.set(name, "one\ntwo\n")
        yield made


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_loop_goes_as_its_answers_say(stage: Stage, scenario: Scenario) -> None:
    told = stage.ask(f"[{scenario.name}] Do it.", scenario.settings, scenario.mode)
    assert (told.end.status, told.end.outcome) == scenario.end, told.items
    if scenario.deeds is not None:
        assert told.deeds == scenario.deeds
    if scenario.said is not None:
        assert told.said == scenario.said
    assert stage.core.runs.get(told.run).status == scenario.end[0]
    if scenario.end == WAITS:
        assert stage.inbox.stop(told.run) and stage.waiting(told.run) == []


# -- decisions -----------------------------------------------------------------------------------------


@pytest.mark.covers("R-063", "R-086", "R-088", "R-087", "R-113", "R-085")
def test_what_is_accepted_is_done_and_what_came_after_it_is_run_then(stage: Stage) -> None:
    told = stage.ask("[accept-file] Write it.")
    assert told.end == LoopEnded(202, "proposed", told.end.message) and told.deeds == ""
    assert stage.entry("new.txt") is None and stage.entry("known://after", told.run) is None, "nothing runs behind it"
    (ref,) = stage.waiting(told.run)
    assert stage.log(told.run)[ref][:2] == ("proposed", 202)
    after, resolved = stage.decide(told, "accept")
    assert (resolved.status, resolved.outcome.status) == (102, 200)
    assert stage.entry("new.txt") == "hello" and stage.entry("known://after", told.run) == "x"
    assert after.deeds == "set:200 set:200" or after.deeds == "set:200", after.deeds
    assert after.end == LoopEnded(200, "ok") and after.said == "Written." and stage.waiting(told.run) == []
    assert stage.log(told.run)[ref][:2] == ("resolved", 200)


@pytest.mark.covers("E-154", "R-088")
def test_the_answer_to_a_decision_says_that_the_run_goes_on_and_its_end_is_told_later(stage: Stage) -> None:
    methods, call = find_methods(*stage.core.offered), LocalCall()
    told, after = stage.ask("[decided] Write it."), Told("", 0)
    (ref,), after.loop = stage.waiting(told.run), told.loop
    gate, known = Gate(), dict[str, Any]()
    stage.core.toolbox.add(gate.tool)
    decide = partial(methods["run.resolve"].call, call, ref=ref, run=told.run)
    begun = threading.Thread(target=stage.heard, args=(after, lambda: known.update(decide())))
    try:
        begun.start()
        assert gate.is_reached.wait(60) and known["status"] == 102, "it answers while the run goes on"
        view = partial(methods["run.view"].call, call, run=told.run)
        assert view()["run"]["status"] == 102 and known["outcome"]["status"] == 200
    finally:
        gate.may_go.set()
        begun.join(60)
        stage.core.toolbox.remove("linger")
    assert after.end == LoopEnded(200, "ok") and after.said == "Gone on."
    until(lambda: view()["run"]["status"] == 200)


@pytest.mark.covers("R-086", "R-088", "R-079")
def test_what_is_rejected_ends_the_loop_as_completed(stage: Stage) -> None:
    told = stage.ask("[reject-file] Write it.")
    (ref,) = stage.waiting(told.run)
    after, resolved = stage.decide(told, "reject", "not like this")
    assert resolved.status == 200 and after.end.status == 200 and after.end.outcome == "rejected"
    assert after.deeds == "set:403 set:424" and after.said == "" and stage.entry("never.txt") is None
    assert stage.log(told.run)[ref] == ("failed", 403, "not like this")
    assert stage.core.runs.get(told.run).status == 200 and stage.entry("known://never", told.run) is None


@pytest.mark.covers("R-086")
def test_what_went_wrong_fails_and_the_loop_goes_on(stage: Stage) -> None:
    told = stage.ask("[error-file] Write it.")
    (ref,) = stage.waiting(told.run)
    after, resolved = stage.decide(told, "error", "the disk is full")
    assert resolved.status == 102 and after.end == LoopEnded(200, "ok") and after.said == "It went wrong."
    assert after.deeds == "set:500 set:424" and stage.log(told.run)[ref] == ("failed", 500, "the disk is full")


@pytest.mark.covers("E-328")
def test_a_file_that_changed_meanwhile_is_not_overwritten(stage: Stage) -> None:
    stage.core.entries.set("changed.txt", "old")
    told = stage.ask("[changed-file] Write it.")
    stage.core.entries.set("changed.txt", "somebody else's")
    after, resolved = stage.decide(told, "accept")
    old, new = (sha256(text.encode()).hexdigest() for text in ("old", "somebody else's"))
    assert f"its hash was {old}, now it is {new}" in resolved.outcome.message
    assert new in after.events("tool_result")[0].content, "the model reads why"
    assert resolved.outcome.status == 409 and after.deeds == "set:409" and after.said == "It had changed."
    assert stage.entry("changed.txt") == "somebody else's"


@pytest.mark.covers("E-329")
def test_what_waits_stays_when_a_run_may_read_less_and_its_next_turn_makes_room(stage: Stage) -> None:
    for n in range(3):
        stage.core.entries.set(f"wide{n}.txt", f"{n} is a line of it\n" * 1500)
    told = stage.ask("[narrowed] Read them and write.")
    (ref,) = stage.waiting(told.run)
    config = partial(find_methods(*stage.core.offered)["run.config"].call, LocalCall(), run=told.run)
    seen = "SELECT visibility FROM run_entries WHERE run = ? AND path GLOB 'wide*' ORDER BY path"
    with pytest.raises(BadInput, match="5"):
        config(settings={"context_limit": 5})
    assert config(settings={"context_limit": 12_000})["settings"]["context_limit"] == 12_000
    assert stage.waiting(told.run) == [ref] and stage.core.runs.get(told.run).status == 202
    assert stage.log(told.run)[ref][:2] == ("proposed", 202)
    assert stage.core.store.rows(seen, (told.run,)) == [("visible",)] * 3, "nothing is lowered before it is asked again"
    after, _ = stage.decide(told, "accept")
    assert after.end == LoopEnded(200, "ok") and after.said == "Narrower." and stage.entry("narrow.txt") == "text"
    assert stage.core.store.rows(seen, (told.run,)) == [("summarized",)] * 3
    notes = stage.core.store.rows("SELECT path, body FROM run_entries WHERE run = ? AND path GLOB 'error://*'", (told.run,))
    assert [path for path, _ in notes] == ["error://turn_2/budget/opened"] and "wide0.txt, wide1.txt, wide2.txt" in notes[0][1]
    *_, sent = stage.core.runs.turns(told.run)
    assert 0 < sent["prompt_tokens"] <= 0.9 * 12_000


@pytest.mark.covers("R-063", "E-110", "E-111")
def test_proposals_come_one_at_a_time(stage: Stage) -> None:
    told = stage.ask("[two-calls] Write both.")
    assert len(stage.waiting(told.run)) == 1 and [e.input and e.input["subject"] for e in told.events("proposal")] == ["one.txt"]
    after, resolved = stage.decide(told, "accept")
    assert after.end.status == 202 and stage.entry("one.txt") == "text" and stage.entry("two.txt") is None
    last, resolved = stage.decide(after, "accept")
    assert last.end == LoopEnded(200, "ok") and stage.entry("two.txt") == "text" and last.said == "Both."


@pytest.mark.covers("R-063", "E-110")
def test_a_call_that_proposes_several_changes_goes_on_after_the_last_decision(stage: Stage) -> None:
    for name in ("a", "b"):
        stage.core.entries.set(f"pattern/{name}.txt", name)
    told = stage.ask("[one-pattern] Remove them.")
    first, second = stage.waiting(told.run)
    resolved = stage.core.approvals.resolve(first, told.run, "accept")
    assert resolved.status == 202 and resolved.waits == (second,) and stage.waiting(told.run) == [second]
    after, resolved = stage.decide(told, "accept")
    assert after.deeds == "rm:200" and after.said == "Gone." and stage.entry("pattern/a.txt") is None


@pytest.mark.covers("R-090", "E-116")
def test_several_edits_of_a_file_are_one_proposal(stage: Stage) -> None:
    stage.core.entries.set("here.txt", "one\ntwo\n")
    told = stage.ask("[two-edits] Change both.")
    (ref,) = stage.waiting(told.run)
    shown = stage.core.approvals.show(ref, told.run)
    assert "-one\n-two\n+ONE\n+TWO\n" in shown.patch and stage.entry("here.txt") == "one\ntwo\n"
    after, _ = stage.decide(told, "accept")
    assert stage.entry("here.txt") == "ONE\nTWO\n" and after.said == "Done." and after.end.status == 200


@pytest.mark.covers("R-090")
def test_an_edit_that_fails_keeps_the_one_before_it_waiting(stage: Stage) -> None:
    stage.core.entries.set("half.txt", "one\ntwo\n")
    told = stage.ask("[half-edits] Change both.")
    assert told.end.status == 202 and len(stage.waiting(told.run)) == 1
    assert [e.status >= 400 for e in told.events("tool_result")] == [True, True], (
        "the second failed, what comes after it was not run"
    )
    after, _ = stage.decide(told, "accept")
    assert stage.entry("half.txt") == "ONE\ntwo\n" and stage.entry("late.txt") is None and after.said == "Done."


@pytest.mark.covers("R-092")
def test_an_answer_arrives_through_the_decision(stage: Stage) -> None:
    told = stage.ask("[ask-user] Paint it.")
    (ref,) = stage.waiting(told.run)
    assert stage.core.entries.get(ref, scope=f"run:{told.run}").attributes["options"] == ["red", "green, dark"]
    assert told.events("proposal")[0].content == "Which colour?"
    after, _ = stage.decide(told, "accept", "red")
    assert stage.log(told.run)[ref] == ("resolved", 200, "red") and after.events("tool_result")[0].content == "red"
    assert after.said == "Red it is."


@pytest.mark.covers("E-117", "R-087")
def test_a_command_waits_and_what_it_printed_is_stored(stage: Stage) -> None:
    told = stage.ask("[command] What time is it?")
    (ref,) = stage.waiting(told.run)
    assert stage.log(told.run)[ref] == ("proposed", 202, "date")
    after, _ = stage.decide(told, "accept", "12:00")
    assert stage.log(told.run)[ref] == ("resolved", 200, "12:00") and after.events("tool_result")[0].content == "12:00"


@pytest.mark.covers("R-087", "R-065", "E-125")
def test_the_first_veto_speaks_and_later_ones_are_not_heard(stage: Stage) -> None:
    heard: list[str] = []

    def veto(name: str, status: int, ballot: Ballot) -> bool:
        heard.append(name)
        ballot.veto = Outcome(status, "permission", f"{name} says no")
        return False

    hooks = stage.core.hooks
    away = [hooks.add(VETO, partial(veto, "late", 409), 10), hooks.add(VETO, partial(veto, "early", 403), 5)]
    try:
        told = stage.ask("[vetoed] Write it.")
        (ref,) = stage.waiting(told.run)
        after, resolved = stage.decide(told, "accept")
    finally:
        for remove in away:
            remove()
    assert heard == ["early"] and resolved.outcome.status == 403 and resolved.status == 102
    assert stage.log(told.run)[ref] == ("failed", 403, "early says no")
    assert after.deeds == "set:403" and after.said == "I may not." and stage.entry("vetoed.txt") is None


@pytest.mark.covers("A-045")
@pytest.mark.parametrize("name", ["policy", "own-policy"])
def test_the_policy_is_asked_again_when_something_is_accepted(stage: Stage, name: str) -> None:
    told, is_of_session = stage.ask(f"[{name}] Write it."), name == "own-policy"
    policy, gate, session = stage.core.toolbox.policy, stage.core.policy.gate, stage.core.runs.get(told.run).session
    if is_of_session:
        gate.set_session(session, "[tools]\ndeny = ['set']", "ada")
    else:
        stage.core.toolbox.use(type(policy)(tools_deny=("set",)))
    try:
        after, resolved = stage.decide(told, "accept")
    finally:
        stage.core.toolbox.use(policy)
        if is_of_session:
            gate.lift_session(session, "ada")
    assert resolved.outcome.status == 403 and "tools.deny: set" in resolved.outcome.message
    assert after.said == "I may not." and stage.entry(f"{name}.txt") is None


@pytest.mark.covers("R-087")
def test_what_is_stored_may_be_replaced_and_is_told_afterwards(stage: Stage) -> None:
    told_of: list[str] = []
    hooks = stage.core.hooks
    away = [
        hooks.add(CONTENT, lambda text, waiting: text.replace("1234", "****")),
        hooks.add("proposal.accepted", lambda waiting, outcome: told_of.append(f"{waiting.subject} {outcome.message}")),
    ]
    try:
        told = stage.ask("[replaced] Run it.")
        (ref,) = stage.waiting(told.run)
        stage.decide(told, "accept", "pin 1234")
    finally:
        for remove in away:
            remove()
    assert stage.log(told.run)[ref] == ("resolved", 200, "pin ****") and told_of == ["secret pin ****"]


@pytest.mark.covers("R-084", "R-063")
def test_a_change_that_a_chat_proposes_goes_on_in_the_chat(stage: Stage) -> None:
    told = stage.ask("[chat-file] Write it.", CHAT)
    assert told.end.status == 202 and told.deeds == "" and stage.entry("chat.txt") is None
    after, _ = stage.decide(told, "accept")
    assert after.deeds == "use:200 remember:200" and after.said == "Written." and stage.entry("chat.txt") == "hello"
    spoken = [(m.role, len(m.tool_calls)) for m in stage.core.runs.recent(told.run, 80)]
    assert spoken == [("user", 0), ("assistant", 2), ("tool", 0), ("tool", 0), ("assistant", 0)]


@pytest.mark.covers("R-089", "E-108")
def test_a_removed_file_goes_when_accepted_and_stays_when_rejected(stage: Stage) -> None:
    for name in ("removed.txt", "kept.txt"):
        stage.core.entries.set(name, "here")
    stage.decide(stage.ask("[remove] Remove it."), "accept")
    stage.decide(stage.ask("[keep] Remove it."), "reject")
    assert stage.entry("removed.txt") is None and stage.entry("kept.txt") == "here"


@pytest.mark.covers("R-086")
def test_an_accepted_change_before_an_end_ends_it(stage: Stage) -> None:
    after, _ = stage.decide(stage.ask("[terminal] Write it."), "accept")
    assert after.end == LoopEnded(200, "ok", "Finished.") and after.said == "Finished." and after.deeds == "set:200 update:200"


@pytest.mark.covers("R-086", "R-069")
def test_an_end_that_was_claimed_before_a_change_counts_once_that_is_accepted(stage: Stage) -> None:
    after, _ = stage.decide(stage.ask("[end-before] Write it."), "accept")
    assert after.end == LoopEnded(200, "ok", "Finished.") and after.said == "Finished." and stage.entry("eb.txt") == "text"
    wrong, _ = stage.decide(stage.ask("[end-before-wrong] Write it."), "error", "the disk is full")
    assert wrong.said == "Not finished." and [e.status for e in wrong.events("status_change")] == [409]


def test_a_decision_in_the_very_moment_of_the_proposal_is_not_lost(stage: Stage) -> None:
    told, decided = Told("", 0), False
    inbound = Inbound("local", "ada", "[at-once] Write it.", new_id(), now_ms(), settings=ENTRIES)
    accepted = stage.inbox.accept(inbound, new_id())
    subscription = stage.inbox.feed.subscribe(accepted.loop)
    stage.inbox.start(accepted.loop)
    for item in subscription:  # goes on beyond the pause
        told.items.append(item)
        if isinstance(item, Event) and item.kind == "proposal":
            stage.core.approvals.resolve(stage.waiting(accepted.run)[0], accepted.run, "accept")
            decided = True
    assert decided and told.said == "At once." and stage.entry("once.txt") == "text" and told.deeds == "set:200"


@pytest.mark.covers("R-031")
@pytest.mark.parametrize(("state", "deeds"), [("resolved", "set:200"), ("cancelled", "set:403"), ("failed", "set:500")])
def test_a_state_written_to_what_waits_decides_about_it(stage: Stage, state: str, deeds: str) -> None:
    told = stage.ask(f"[state-{state}] Write it.")
    (ref,) = stage.waiting(told.run)
    after, done = Told(told.run, told.loop), list[dict[str, Any]]()
    write = partial(
        find_methods(*stage.core.offered)["entry.set"].call, LocalCall(), ref=ref, attributes={"state": state}, run=told.run
    )
    stage.heard(after, lambda: done.append(write()))
    assert (done[0]["status"], after.deeds, after.end.status) == (200, deeds, 200)
    assert stage.entry(f"{state}.txt") == ("text" if state == "resolved" else None) and stage.waiting(told.run) == []
    with pytest.raises(Conflict, match="does not wait"):
        write()


@pytest.mark.covers("R-085", "R-063")
@pytest.mark.parametrize("number", range(4))
def test_whoever_decides_and_stops_at_once_the_record_stays_whole(stage: Stage, number: int) -> None:
    told = stage.ask(f"[rush-{number}] Write it.")
    (ref,) = stage.waiting(told.run)
    begin, done = threading.Barrier(4), list[object]()

    def do(work: Callable[[], object]) -> None:
        begin.wait(30)
        try:
            done.append(work())
        except (Conflict, NotFound) as error:
            done.append(error)

    accept = partial(stage.core.approvals.resolve, ref, told.run, "accept")
    reject = partial(stage.core.approvals.resolve, ref, told.run, "reject")
    crowd = [threading.Thread(target=do, args=(work,)) for work in (accept, accept, reject, partial(stage.inbox.stop, told.run))]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join(60)
    until(lambda: stage.core.runs.queue(told.run) == [] and stage.inbox.busy() == 0)
    assert sum(isinstance(one, Resolved) for one in done) <= 1 and len(done) == 4
    events = stage.core.runs.events(told.run)
    calls, results = (sorted(e.call_id for e in events if e.kind == kind) for kind in ("tool_use", "tool_result"))
    assert calls == results, "every call has one result"
    assert stage.core.runs.get(told.run).status in (200, 499) and stage.waiting(told.run) == []
    assert "streaming" not in [state for state, _, _ in stage.log(told.run).values()]


@pytest.mark.covers("R-085", "E-110")
def test_a_decision_is_made_once(stage: Stage) -> None:
    told = stage.ask("[held-1] Write it.")
    (ref,) = stage.waiting(told.run)
    waits = stage.ask("[held-2] And this.", thread=told.run)
    assert waits.end.status == 100 and "approval" in waits.end.message, "it waits behind"
    second = Told(told.run, waits.loop)
    stage.heard(second, lambda: stage.decide(told, "accept"))
    assert second.said == "Second." and second.end == LoopEnded(200, "ok")
    with pytest.raises(Conflict, match="does not wait"):
        stage.core.approvals.resolve(ref, told.run, "accept")
    with pytest.raises(NotFound):
        stage.core.approvals.resolve("log://turn_1/set/other", told.run, "accept")


def test_a_stopped_loop_waits_no_longer(stage: Stage) -> None:
    told = stage.ask("[dropped-1] Write it.")
    (ref,) = stage.waiting(told.run)
    assert stage.inbox.stop(told.run) and not stage.inbox.stop(told.run)
    assert stage.core.runs.get(told.run).status == 499 and stage.log(told.run)[ref][:2] == ("failed", 499)
    assert stage.ask("[dropped-2] And now?", thread=told.run).said == "After it."


@pytest.mark.covers("R-093", "R-087")
def test_a_run_that_needs_nobodys_word_hears_vetoes_all_the_same(stage: Stage) -> None:
    def veto(ballot: Ballot) -> bool:
        ballot.veto = Outcome(403, "permission", "readonly")
        return False

    away = stage.core.hooks.add(VETO, veto)
    try:
        told = stage.ask("[wild-veto] Write it.", WILD)
    finally:
        away()
    assert told.deeds == "set:403" and told.said == "Not so." and stage.entry("wv.txt") is None and stage.waiting(told.run) == []


@pytest.mark.covers("R-045")
def test_files_are_promoted_in_a_run_only_as_far_as_it_has_room(tmp_path: Path) -> None:
    with opened(tmp_path, {"files": ["Here."]}) as stage:
        core, run = stage.core, stage.ask("[files] Look.", RunSettings(layout="entries", context_limit=8192)).run
        core.project.root = tmp_path / "work"
        core.project.root.mkdir()
        for name, size in (("big.md", 60_000), ("small.md", 100)):
            (core.project.root / name).write_text("owl\n" * (size // 4))
        actor = Actor("client", run, *core.runs.moment(run))
        control = WorkspaceControl(core.project, core.verbs, core.sight.require_room)
        assert control.follow(actor, "big.md", "add").status == 413
        assert control.follow(actor, "small.md", "add").status == 200
        assert [view.path for view in core.views.views_of(run, visibility="visible") if view.path in ("big.md", "small.md")] == [
            "small.md"
        ]


# -- a task that waits ---------------------------------------------------------------------------------


def work(stage: Stage, only: int) -> Task:
    """A worker's round in this process."""
    core = stage.core
    briefing = Briefing(core.tasks, core.runs, core.entries)
    parts = TickParts(core.store, core.tasks, core.runs, core.loops, core.models, core.packets, briefing)
    ticks = Ticks(parts, lambda: WorkerSettings(max_turns=5), Silent())
    ticks.tick("worker-1", only)
    return core.tasks.get(only)


def test_a_task_goes_on_in_its_thread_once_what_it_waits_for_is_decided(stage: Stage) -> None:
    core = stage.core
    task = core.tasks.add(NewTask("[tick] What time is it?"))
    waits = work(stage, task.id)
    assert waits.status == "waiting" and "It goes on once that is decided" in waits.waiting_reason
    assert core.runs.get(waits.run).status == 202 and not core.tasks.is_work()
    (ref,) = stage.waiting(waits.run)
    resolve = find_methods(*core.offered)["run.resolve"]
    resolved = resolve.call(LocalCall(), ref=ref, run=waits.run, output="12:00", wait=True)  # there is nothing to wait for
    assert (resolved["status"], resolved["outcome"]["status"]) == (100, 200) and core.tasks.get(task.id).status == "pending"
    assert stage.inbox.start_waiting() == 0 and stage.inbox.busy() == 0, "it is a worker's, not the core's"
    done = work(stage, task.id)
    assert done.status == "complete" and done.output.startswith("It is noon.") and done.run == waits.run
    events = core.runs.events(done.run)
    results = [(e.tool, e.status, e.content) for e in events if e.kind == "tool_result"]
    assert results[0] == ("use", 200, "12:00") and results[1][0] == "read", "what came after it is run then"
    assert [t["seq"] for t in core.runs.turns(done.run)] == [1, 2] and core.runs.get(done.run).status == 200
    assert [a.run for a in core.tasks.attempts(task.id)] == [done.run] * 2


def test_a_task_fails_when_what_it_waits_for_is_rejected_or_given_up(stage: Stage) -> None:
    core = stage.core
    task = core.tasks.add(NewTask("[tick-no] Remove it."))
    run = work(stage, task.id).run
    assert core.approvals.resolve(stage.waiting(run)[0], run, "reject", "leave it").status == 200
    assert (core.tasks.get(task.id).status, core.runs.get(run).status) == ("failed", 200)
    assert "rejected" in core.tasks.get(task.id).failure
    task = core.tasks.add(NewTask("[tick-stop] Remove it."))
    run = work(stage, task.id).run
    assert stage.inbox.abort(run) and not stage.inbox.abort(run)
    assert (core.tasks.get(task.id).status, core.runs.get(run).status) == ("failed", 499)


def test_closing_a_session_ends_what_waits_there_for_a_decision(stage: Stage) -> None:
    core = stage.core
    accepted = stage.inbox.accept(Inbound("local", "cleo", "[close] Write.", new_id(), now_ms(), settings=ENTRIES), new_id())
    told = stage.heard(Told(accepted.run, accepted.loop), lambda: stage.inbox.start(accepted.loop))
    assert told.end.status == 202 and core.control.close("local:cleo").status == "closed"
    assert (stage.waiting(told.run), core.runs.get(told.run).status) == ([], 499)
    task = core.tasks.add(NewTask("[tick-close] List."))
    run = work(stage, task.id).run
    core.approvals.resolve(stage.waiting(run)[0], run, "accept", "x")
    assert core.control.close(f"task:{task.id}").status == "closed"
    assert (core.runs.queue(run), core.runs.get(run).status) == ([], 499)


def test_a_decision_for_a_task_that_was_begun_anew_ends_the_old_attempt(stage: Stage) -> None:
    core = stage.core
    task = core.tasks.add(NewTask("[tick-reset] List."))
    run = work(stage, task.id).run
    core.tasks.reset(task.id)
    done = work(stage, task.id)
    assert done.status == "complete" and done.run != run, "a thread that still waits is not gone on with"
    assert core.approvals.resolve(stage.waiting(run)[0], run, "accept", "x").status == 499
    assert core.runs.get(run).status == 499 and core.tasks.get(task.id).status == "complete"


def test_a_decision_about_a_task_that_was_recorded_and_not_followed_is_followed_at_the_next_start(stage: Stage) -> None:
    core = stage.core
    task = core.tasks.add(NewTask("[tick-quick] List."))
    waits = work(stage, task.id)
    actor = Actor("client", waits.run, *core.runs.moment(waits.run))
    core.verbs.resolve(actor, stage.waiting(waits.run)[0], True)  # by somebody who did not live to go on
    assert core.approvals.recover() == 1 and core.tasks.get(task.id).status == "pending"
    assert work(stage, task.id).output.startswith("Quick.")


def test_a_task_goes_on_also_when_the_decision_came_in_the_very_moment(stage: Stage) -> None:
    core, run = stage.core, ""

    def decide() -> None:
        until(lambda: bool(core.approvals.waiting(limit=1)))
        (waiting,) = core.approvals.waiting(limit=1)
        core.approvals.resolve(waiting.ref, waiting.run, "accept", "a b")

    task = core.tasks.add(NewTask("[tick-moment] List."))
    deciding = threading.Thread(target=decide)
    deciding.start()
    run = work(stage, task.id).run
    deciding.join(60)
    assert core.tasks.get(task.id).status == "pending" and [loop.status for loop in core.runs.queue(run)] == [100]
    assert work(stage, task.id).output.startswith("In time.")


# -- recording -----------------------------------------------------------------------------------------


@pytest.mark.covers("R-058", "R-061", "R-079", "R-083", "R-066")
def test_every_command_is_recorded_before_any_is_run(stage: Stage) -> None:
    told = stage.ask("[recorded] Do four.")
    kinds = [item.kind for item in told.items if isinstance(item, Event) and item.kind.startswith("tool")]
    assert kinds[:4] == ["tool_use"] * 4 and kinds[4:] == ["tool_result"] * 4
    assert told.events("tool_result")[0].content == "4 recorded, none of them with a result"
    assert stage.log(told.run) == {
        "log://turn_1/witness/note": ("resolved", 200, "4 recorded, none of them with a result"),
        "log://turn_1/set/known%3A/r1": ("resolved", 200, "known://r1: written, 2 tokens"),
        "log://turn_1/get/known%3A/nothing": ("failed", 404, "no entry known://nothing"),
        "log://turn_1/set/known%3A/r2": ("failed", 424, "set was not run: a call before it failed"),
    }, "one entry each, with its result"


@pytest.mark.covers("R-078")
@pytest.mark.parametrize(("count", "warnings"), [(99, 0), (105, 1)])
def test_commands_beyond_99_are_dropped_with_one_warning(stage: Stage, count: int, warnings: int) -> None:
    told = stage.ask(f"[commands-{count}] Do them.")
    sql = "SELECT body FROM run_entries WHERE run = ? AND path LIKE 'error://turn_1/%'"
    found = stage.core.store.rows(sql, (told.run,))
    assert len(told.events("tool_result")) == 100 and len(found) == warnings, found  # with the update that ends it
    assert stage.entry("known://c98", told.run) == "text" and stage.entry("known://c99", told.run) is None


@pytest.mark.covers("R-060", "R-083")
def test_the_recording_filter_may_change_or_refuse_a_command(stage: Stage) -> None:
    def filtered(recorded: Recorded, scene: CommandScene) -> Recorded:
        body = str(recorded.meant.arguments.get("body", ""))
        if "bad" in body:
            return replace(recorded, refusal=Outcome(403, "permission", "that word is not used here"))
        if body == "shout":
            call = replace(recorded.meant, arguments={**recorded.meant.arguments, "body": "SHOUT"})
            return replace(recorded, call=call, meant=call)
        return recorded

    away = stage.core.hooks.add(RECORDING, filtered)
    try:
        told = stage.ask("[filtered] Do it.")
    finally:
        away()
    assert told.deeds == "set:403 set:424 set:200" and stage.entry("known://f1", told.run) is None
    assert stage.entry("known://f3", told.run) == "SHOUT"
    path = "log://turn_1/set/known%3A/f1"
    assert stage.log(told.run)[path] == ("failed", 403, "that word is not used here")


@pytest.mark.covers("R-067")
def test_an_open_question_is_kept_once(stage: Stage) -> None:
    told = stage.ask("[same-unknown] Ask.")
    rows = stage.core.store.rows("SELECT path FROM entries WHERE scope = ? AND path LIKE 'unknown://%'", (f"run:{told.run}",))
    assert sorted(rows) == [("unknown://other",), ("unknown://q",), ("unknown://s",)]
    assert told.deeds == "set:200 set:200 set:200 set:200 set:200"
    assert "unknown://q: asks this already" in told.events("tool_result")[2].content


@pytest.mark.covers("R-080", "R-164")
@pytest.mark.parametrize(("name", "status"), [("no-answer", 504), ("no-room", 413)])
def test_a_model_that_gives_no_answer_is_an_error_entry(stage: Stage, name: str, status: int) -> None:
    told = stage.ask(f"[{name}] Do it.")
    sql = "SELECT path, status FROM run_entries WHERE run = ? AND path LIKE 'error://%'"
    ((path, noted),) = stage.core.store.rows(sql, (told.run,))
    assert told.end.status == 500 and noted == status and path.startswith("error://turn_1/model/")


@pytest.mark.covers("R-080", "R-081", "R-079")
def test_what_was_wrong_with_an_answer_is_an_error_entry_and_a_failed_action_is_none(stage: Stage) -> None:
    sql = "SELECT path, status FROM run_entries WHERE run = ? AND path LIKE 'error://%'"
    told = stage.ask("[trouble] Do it.")
    ((path, status),) = stage.core.store.rows(sql, (told.run,))
    assert path.startswith("error://turn_1/answer/") and status == 422
    failed = stage.ask("[unknown-twice] Do it.")
    assert len(stage.core.store.rows(sql, (failed.run,))) == 1
    void = stage.ask("[void] Do it.")
    assert stage.core.store.rows(sql, (void.run,)) == []


@pytest.mark.covers("R-069", "E-136")
def test_an_update_that_does_not_hold_is_stored_as_a_conflict(stage: Stage) -> None:
    sql = "SELECT status FROM run_entries WHERE run = ? AND path LIKE ?"
    told = stage.ask("[void-again] Do it.")
    for scheme in ("update://", "log://turn_1/update/"):
        assert stage.core.store.rows(sql, (told.run, f"{scheme}%")) == [(409,)]
    assert [e.status for e in told.events("status_change")] == [409] and told.said == "Well."


# -- the menu ------------------------------------------------------------------------------------------


@pytest.mark.covers("R-056", "R-057")
def test_use_runs_any_other_tool_and_tool_help_explains_it(stage: Stage) -> None:
    told = stage.ask("[use] Keep it.", CHAT)
    assert told.deeds == "use:200" and stage.entry("memory://used") == "by use" and told.said == "Used."
    assert stage.ask("[use-unknown] Fly.", CHAT).deeds == "use:404"
    assert stage.ask("[use-itself] Loop.", CHAT).deeds == "use:400"
    told = stage.ask("[help] How?", CHAT)
    text = told.events("tool_result")[0].content
    assert told.deeds == "tool_help:200" and "Schema of its arguments" in text and '"path"' in text and "context_write" in text


@pytest.mark.covers("R-057")
def test_a_tool_that_ends_other_work_is_not_to_be_had(stage: Stage) -> None:
    told = stage.ask("[use-terminal] End it.", CHAT)
    assert told.deeds == "use:403" and told.said == "Well."


def test_a_menu_has_at_most_eight_tools_and_names_the_rest_by_group(stage: Stage) -> None:
    for role in ("chat", "worker"):
        specs = stage.core.toolbox.specs(role)
        assert len(specs) <= 8, [spec.name for spec in specs]
        lines = next(spec for spec in specs if spec.name == "use").description.splitlines()[1:]
        named = {name for line in lines for name in line.partition(": ")[2].split(", ")}
        assert "entries" in " ".join(lines) and "context" in " ".join(lines), "a group of more than two by its name alone"
        assert not named & {spec.name for spec in specs}
        assert not named & {"complete_task", "ask_user", "update", "use"}
    assert [spec.name for spec in stage.core.toolbox.specs("chat")][-1] == "use"


@pytest.mark.covers("R-051", "R-052", "E-124")
def test_a_run_of_entries_is_shown_its_own_tools_in_order(stage: Stage) -> None:
    names = [spec.name for spec in stage.core.toolbox.specs("run")]
    known = ["think", "get", "env", "set", "cp", "mv", "rm", "sh", "update", "ask_user"]
    assert [name for name in names if name not in ("boom", "witness")] == known


# -- talk ----------------------------------------------------------------------------------------------


@pytest.mark.covers("S-013")
def test_reasons_go_back_with_the_calls_they_led_to(stage: Stage) -> None:
    told = stage.ask("[reasons] Look.", CHAT)
    assert told.said.endswith("Nothing.") and [e.content for e in told.events("thinking")] == ["Let me look."]
    spoken = stage.core.runs.recent(told.run, 80)
    assert [m.reasoning for m in spoken if m.tool_calls] == ["Let me look."]


@pytest.mark.covers("E-246", "R-040", "S-011")
def test_a_loop_of_twenty_turns_ends_after_twenty(stage: Stage) -> None:
    before = stage.core.agent.limits
    stage.core.agent.limits = replace(before, max_turns=20)
    try:
        told = stage.ask("[twenty-one] Never stop.")
    finally:
        stage.core.agent.limits = before
    assert told.end == LoopEnded(499, "max_turns", "Max turns exceeded (20)") and len(told.events("tool_result")) == 20
    assert stage.core.runs.events(told.run)[0].content == "[twenty-one] Never stop.", "the exchange is kept"


def test_reading_calls_of_one_answer_have_their_results_in_order(stage: Stage) -> None:
    told = stage.ask("[reads] Read.", CHAT)
    assert told.deeds == "search:200 search:200 search:200"
    assert [e.call_id for e in told.events("tool_use")] == [e.call_id for e in told.events("tool_result")]


# -- between the calls of a model ----------------------------------------------------------------------


class Gate:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.is_reached, self.may_go = threading.Event(), threading.Event()

    @property
    def tool(self) -> Callable[..., str]:
        @tool(group="test", menu=("chat", "run"))
        def linger(word: str = "") -> str:
            """Take your time."""
            self.is_reached.set()
            assert self.may_go.wait(30)
            return "at last"

        return linger


@pytest.mark.covers("B-175", "R-037")
@pytest.mark.parametrize("settings", [ENTRIES, CHAT], ids=["entries", "chat"])
def test_a_message_typed_meanwhile_is_shown_at_the_next_call(stage: Stage, settings: RunSettings) -> None:
    gate = Gate()
    stage.core.toolbox.add(gate.tool)
    name, told = f"inject-{settings.layout}", Told("", 0)
    try:
        asking = threading.Thread(target=lambda: told.items.extend(stage.ask(f"[{name}] Linger.", settings).items))
        asking.start()
        assert gate.is_reached.wait(30)
        run = stage.core.runs.list_runs(limit=1)[0].id
        more = Inbound("local", "ada", f"[{name}-more] And this?", new_id(), now_ms(), run, is_injected=True)
        accepted = stage.inbox.accept(more, new_id())
        second = stage.heard(Told(run, accepted.loop), lambda: (stage.inbox.start(accepted.loop), gate.may_go.set()))
        asking.join(60)
    finally:
        stage.core.toolbox.remove("linger")
    assert told.said == "Both." and (second.end.status, second.end.outcome) == (200, "injected")
    assert [loop.outcome for loop in stage.core.runs.queue(run)] == []
    spoken = [(m.role, m.content) for m in stage.core.runs.recent(run, 80)]
    assert [role for role, _ in spoken] == ["user", "assistant", "tool", "user", "assistant"], "nothing between call and result"
    assert "And this?" in spoken[3][1]


@pytest.mark.covers("B-174")
def test_what_was_said_before_a_stop_is_kept_and_half_a_call_is_not(stage: Stage) -> None:
    heard: list[Any] = []
    inbound = Inbound("local", "ada", "[partial] Count.", new_id(), now_ms(), settings=CHAT)
    accepted = stage.inbox.accept(inbound, new_id())
    subscription = stage.inbox.feed.subscribe(accepted.loop)
    stage.inbox.start(accepted.loop)
    for item in subscription:
        heard.append(item)
        if isinstance(item, Delta) and "Two" in "".join(d.text for d in heard if isinstance(d, Delta)):
            stage.inbox.stop(accepted.run)
    events = stage.core.runs.events(accepted.run)
    said = next(e for e in events if e.kind == "message" and e.role == "assistant")
    assert said.content.startswith("One Two") and said.status == 499 and said.outcome.startswith("cancelled")
    assert not [e for e in events if e.kind == "tool_use"] and heard[-1].status == 499


# -- killed, and begun again -----------------------------------------------------------------------------


@pytest.mark.covers("R-042", "R-063")
def test_what_waits_survives_a_restart_and_goes_on_behind_it(tmp_path: Path) -> None:
    with opened(tmp_path, {"restart": [put("restart.txt") + put("known://restart")]}) as before:
        told = before.ask("[restart] Write it.")
        assert told.end.status == 202
    with opened(tmp_path, {"restart": ["After the restart."]}) as after:
        (ref,) = after.waiting(told.run)
        assert after.core.runs.get(told.run).status == 202
        heard, resolved = after.decide(told, "accept")
        assert resolved.status == 102 and heard.deeds == "set:200 set:200"
        assert after.entry("restart.txt") == "text" and after.entry("known://restart", told.run) == "text"
        assert heard.end == LoopEnded(200, "ok") and [t["seq"] for t in after.core.runs.turns(told.run)] == [1, 2]


LIFE = {
    CrashPoint.ACCEPTED: "ok",
    CrashPoint.LOOP_STARTED: "interrupted",
    CrashPoint.TURN_BEGUN: "interrupted",
    CrashPoint.CALL_RECORDED: "interrupted",
    CrashPoint.CALL_DONE: "interrupted",
    CrashPoint.RESULT_RECORDED: "interrupted",
    CrashPoint.ANSWERED: "interrupted",
    CrashPoint.LOOP_ENDED: "ok",
}
KILLED: dict[str, Sequence[Any]] = {"killed": ["I begin. " + put("known://k1") + put("known://k2"), "It is done."]}
CHILD = (
    USE_ROOMS
    + """
import os, signal
from pathlib import Path
from test_scenarios import KILLED, opened

def passed(step):
    if step.name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

with opened(Path(sys.argv[1]), KILLED, passed, Path(sys.argv[3])) as stage:
    stage.ask("[killed] Do it.")
"""
)


DECIDED = (
    USE_ROOMS
    + """
import os, signal
from pathlib import Path
from test_scenarios import Actor, opened, put

with opened(Path(sys.argv[1]), {"decided-and-died": [put("decided.txt")]}, runtime=Path(sys.argv[2])) as stage:
    told = stage.ask("[decided-and-died] Write it.")
    (ref,) = stage.waiting(told.run)
    stage.inbox.close("a turn that is not over yet would follow the decision itself")
    stage.core.verbs.resolve(Actor("client", told.run, *stage.core.runs.moment(told.run)), ref, True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
)


@pytest.mark.covers("R-063")
def test_a_decision_that_was_recorded_and_not_followed_is_followed_at_the_next_start(tmp_path: Path, runtime: Path) -> None:
    words = [sys.executable, "-c", DECIDED, str(tmp_path), str(runtime / "child")]
    done = quick.run(words, cwd=quick.ROOT, env=quick.ENVIRON, timeout_s=100)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with opened(tmp_path, {"decided-and-died": ["Gone on with."]}) as after:
        (run,) = after.core.runs.list_runs()
        assert after.core.runs.loop(1).status == WAITING
        heard = after.heard(Told(run.id, 1), after.inbox.start_waiting)
        assert heard.end == LoopEnded(200, "ok") and heard.said == "Gone on with." and after.entry("decided.txt") == "text"


@pytest.mark.covers("R-042", "R-058", "R-062")
@pytest.mark.parametrize("step", LIFE, ids=[step.name for step in LIFE])
def test_killed_at_any_step_nothing_is_lost_and_nothing_is_done_twice(tmp_path: Path, runtime: Path, step: CrashPoint) -> None:
    words = [sys.executable, "-c", CHILD, str(tmp_path), step.name, str(runtime / "child")]
    done = quick.run(words, cwd=quick.ROOT, env=quick.ENVIRON, timeout_s=100)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with opened(tmp_path, {"killed-after": ["All is well."], **(KILLED if step is CrashPoint.ACCEPTED else {})}) as again:
        (run,) = again.core.runs.list_runs()
        loop = again.core.runs.loop(1)
        if loop.status == 100:
            again.heard(Told(run.id, 1), again.inbox.start_waiting)
        events = again.core.runs.events(run.id)
        assert [e.seq for e in events] == list(range(1, len(events) + 1)) and events[0].content == "[killed] Do it."
        calls, results = ([e.call_id for e in events if e.kind == kind] for kind in ("tool_use", "tool_result"))
        assert calls == results, "every call has one result, in their order"
        assert again.core.runs.loop(1).outcome == LIFE[step]
        log = {path: state for path, (state, _, _) in again.log(run.id).items()}
        assert "streaming" not in log.values(), log
        said = [e.content for e in events if e.kind == "tool_result"]
        if step is CrashPoint.CALL_RECORDED:
            assert "may or may not" in said[0] and again.entry("known://k1", run.id) is None
        if step is CrashPoint.CALL_DONE:
            assert "may or may not" in said[0] and "was not run" in said[1]
            assert again.entry("known://k1", run.id) == "text" and again.entry("known://k2", run.id) is None
        after = again.ask("[killed-after] And now?", thread=run.id)
        assert after.said == "All is well." and after.end == LoopEnded(200, "ok")
