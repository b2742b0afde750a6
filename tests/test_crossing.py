"""Nothing crosses contexts: every tool and every method called for one person, after another one has said and kept secrets.

The matrix is made from the tools and methods that there are: a new one is in it by itself. What it is called with aims
at everything of the other person's that can be named: ids, references, words that stand beside the secret.
"""

import inspect
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from test_scenarios import CHAT, ENTRIES, Stage, Told, opened, put, update

from appliance import jsonrpc, tools
from appliance.audience import only, seen, showing
from appliance.channels.rpc import LocalCall
from appliance.clock import CancelToken, new_id, now_ms
from appliance.errors import BadInput, OwlError
from appliance.handoffs import Order
from appliance.manuals import Shelf
from appliance.records import Ask, Inbound, RunSettings, Terms, ToolCall, to_plain
from appliance.schema import MIGRATIONS
from appliance.signatures import signature
from appliance.store import Store
from appliance.tasks import NewTask
from appliance.toolbox import read_tool

SECRET = "SECRET7319"
TEXT = f"the codeword is {SECRET}"
TOOLS = {one.mark.name: one for one in map(read_tool, tools.load())}
MANUALS = Shelf()
# Tools that are not called here, and why.
ELSEWHERE = {
    "shell": "what a sandbox sees is attacked in test_attacks.py",
    "files": "what a sandbox sees is attacked in test_attacks.py",
    "workers": "it starts a process, which works for its own person's task alone: test_shifts.py",
    "delegation": "it starts a run of the same session: test_delegation.py",
}
WAITS = {"sleep"}  # it says nothing of anybody
# Methods that show the whole house to whoever is its user on this machine (host trust), or change it.
HOUSE = ("core.", "model.", "policy.", "secret.", "usage.", "worker.", "outbox.", "queue.", "mcp.", "role.", "job.", "grant.")


@dataclass
class Crossing:
    """A stage on which ada has kept secrets, and ben talks; `asks` are the packets of ben's runs."""

    stage: Stage
    ada: str
    ben: str
    aims: dict[str, list[Any]]
    asks: list[Ask]

    def ask(self, person: str, text: str, settings: RunSettings = CHAT) -> str:
        core = self.stage.core
        accepted = core.inbox.accept(Inbound("local", person, text, new_id(), now_ms(), settings=settings), new_id())
        self.stage.heard(Told(accepted.run, accepted.loop), lambda: core.inbox.start(accepted.loop))
        return accepted.run

    def call(self, name: str, arguments: dict[str, Any], run: str) -> Any:
        return self.stage.core.toolbox.dispatch(ToolCall("1", name, arguments), run, CancelToken(), terms=Terms(role="assistant"))


def used(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": "use", "arguments": {"tool": tool, "arguments": arguments}}]}


ANSWERS: dict[str, Any] = {
    "ada-chat": [
        {"tool_calls": [{"name": "remember", "arguments": {"text": TEXT, "title": "codeword"}}]},
        used("context_write", path="agent:/plans/codeword.md", content=TEXT, title="codeword"),
        f"I keep it: {TEXT}.",
    ],
    "ada-entries": [put("known://codeword", TEXT) + put("codeword.txt", TEXT), update(200)],
    "ben-chat": ["Hello, Ben."],
    "ben-asks": ["I do not know."],
    "ben-entries": ['<get path="**"/><get path="memory://notes/*"/>', update(200)],
}


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crossing]:
    with opened(tmp_path_factory.mktemp("crossing"), ANSWERS) as stage:
        core = stage.core
        asks: list[Ask] = []
        made = Crossing(stage, "", "", {}, asks)
        made.ada = made.ask("ada", f"[ada-chat] My {TEXT}. Keep it.")
        other = made.ask("ada", f"[ada-entries] Write {TEXT} down.", ENTRIES)
        task = core.tasks.add(NewTask("codeword task", TEXT, person="ada", session="local:ada", origin=made.ada, run=made.ada))
        paged = core.toolbox.dispatch(
            ToolCall("1", "remember", {"text": f"{TEXT} " * 2000, "title": "long codeword"}), made.ada, CancelToken()
        )
        assert paged.status == 200
        plan = {"name": f"plan {SECRET}", "frequency": "every day at 8", "description": TEXT, "action": "prompt"}
        planned = made.call("create_schedule", plan, made.ada)
        assert planned.status == 200, planned
        (schedule,) = [f"{one.id:08x}" for one in core.hours.rows.listing() if SECRET in one.name]
        job = core.jobs.add(Order("worker", TEXT, session="local:ada", parent=made.ada, priority="background", tool="delegate"))
        core.indexer.work(lambda: True)
        made.ben = made.ask("ben", "[ben-chat] Hello.")
        core.hooks.add("request.started", lambda run, ask: asks.append(ask) if core.runs.context_of(run) == "user:ben" else None)
        paths = ["memory://notes/codeword", "agent:/plans/codeword.md", "memory:/notes/long-codeword", "codeword.txt"]
        uids = [str(core.entries.get(ref).uid) for ref in ("memory://notes/codeword", "agent://plans/codeword.md")]
        (waiting,) = [one.ref for one in core.approvals.waiting(other)]
        folders = ["memory:/", "agent:/plans", "memory://**", "**"]
        ids = [made.ada, other, task.id, "lr_1", 1, schedule, job.id]
        words = ["codeword", "codeword is", "SECRET.*", "*"]
        made.aims = {
            **dict.fromkeys(("path", "ref", "src_path", "name", "uid", "entry"), [*paths, *uids, *folders, waiting]),
            **dict.fromkeys(("id", "task_id", "thread", "run", "session_id", "job", "job_id", "task"), [*ids, "local:ada"]),
            **dict.fromkeys(("query", "pattern", "text", "search", "body", "wanted", "prompt", "glob"), words),
            **dict.fromkeys(("drive", "src_drive"), ["memory", "agent"]),
            **dict.fromkeys(("ids", "job_ids", "context_ids"), [[made.ada], paths[:2]]),
            **dict.fromkeys(("person", "target", "sender", "user"), ["ada", "person:ada"]),
            "session": ["local:ada"],
            "context": ["user:ada", ""],
            "dst_path": ["agent:/stolen.md"],
            "to": ["known://stolen"],
            "visibility": ["visible"],
        }
        yield made


def attempts(name: str, aims: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Calls of a tool: its examples, and each of them with what it names replaced by what is aimed at."""
    found = TOOLS[name]
    fields = [field.name for field in found.signature.fields]
    needed = [field for field in found.signature.fields if field.is_required]
    usual = {one.name: "codeword" if "str" in str(one.type) else "bool" in str(one.type) or 1 for one in needed}
    first, *others = [dict(one.arguments) for one in MANUALS.of(name, found.mark.group).examples] or [usual, usual]
    yield from (first, *others)
    aimed = {field: aims[field] for field in fields if field in aims and (field in first or "drive" not in field)}
    for chosen in zip_longest(*aimed.values()):
        pairs = zip(aimed.items(), chosen, strict=True)
        wanted = {field: values[0] if value is None else value for (field, values), value in pairs}
        if len(wanted) > 1:
            yield from ({**first, field: value} for field, value in wanted.items())
        yield {**first, **wanted}


def shown(value: Any) -> str:
    return json.dumps(to_plain(value), default=str, ensure_ascii=False)


@pytest.mark.covers("A-010", "A-006")
@pytest.mark.parametrize("name", sorted({name for name, one in TOOLS.items() if one.mark.group not in ELSEWHERE} - WAITS))
def test_no_tool_shows_one_person_what_another_one_said_or_kept(crossing: Crossing, name: str) -> None:
    tried = 0
    for arguments in attempts(name, crossing.aims):
        try:
            TOOLS[name].signature.bind(arguments)
        except BadInput:
            continue
        tried += 1
        outcome = crossing.call(name, arguments, crossing.ben)
        assert SECRET not in shown(outcome), arguments
        assert outcome.outcome not in ("failed", "timeout") or "TypeError" not in outcome.message, outcome
    assert tried >= 2
    kept = crossing.stage.core.entries
    assert all(kept.get(ref).body.startswith(TEXT) for ref in ("memory://notes/codeword", "agent://plans/codeword.md"))


@pytest.mark.covers("A-010")
def test_the_matrix_can_find_something(crossing: Crossing) -> None:
    reading = ("search", "read", "search_history", "context_read", "context_search", "view_task", "view_thread", "get")
    for name in (*reading, "view_schedule"):
        calls = (crossing.call(name, arguments, crossing.ada) for arguments in attempts(name, crossing.aims))
        assert any(SECRET in shown(outcome) for outcome in calls), f"{name} shows ada nothing of her own"


@pytest.mark.covers("A-010")
def test_no_packet_holds_what_another_person_said_or_kept(crossing: Crossing) -> None:
    crossing.asks.clear()
    crossing.ask("ben", "[ben-asks] What is the codeword?")
    run = crossing.ask("ben", "[ben-entries] What is the codeword?", ENTRIES)
    assert len(crossing.asks) >= 2 and SECRET not in shown([to_plain(ask) for ask in crossing.asks])
    assert SECRET not in shown([to_plain(event) for event in crossing.stage.core.runs.events(run)])
    said = crossing.ask("ada", "[ben-asks] What is the codeword?")
    (first,) = [event for event in crossing.stage.core.runs.events(said) if event.role == "user"]
    assert SECRET in str(first.input), "ada is shown her own note"


# -- the methods ---------------------------------------------------------------------------------------


def methods(stage: Stage) -> dict[str, Any]:
    core = stage.core
    doors = (core.customs, core.servers, core.warden, core.workshop, core.troupe, core.unasked)
    owners = (core.rpc, core.office.queue, core.office.live, core.decisions, core.record, core.glance, core.secrets, core.costs)
    owners = (*owners, core.guests, *(one.door for one in doors))
    return {name: function for owner in owners for name, function in jsonrpc.marked(owner).items()}


# What stands for a thread, a session or a person in a method's parameters, as ben's.
ABOUT = ("thread", "run", "session", "context", "person", "sender", "id")
SKIPPED = {
    "message.send": "what it answers is in the packets above",
    "notice.follow": "it goes on for ever; whom a letter is for is tested in test_outbox.py",
    "session.import": "it takes lines in",
    "sql.query": "the whole database, for its owner alone",
}


@pytest.mark.covers("A-010")
def test_no_method_about_a_persons_thread_shows_anothers(crossing: Crossing) -> None:
    given = {"thread": crossing.ben, "run": crossing.ben, "session": "local:ben", "context": "user:ben"}
    given |= {"person": "ben", "sender": "ben"}
    tried = []
    for name, function in sorted(methods(crossing.stage).items()):
        sign = signature(function, skip=("self", "call"))
        about = [field.name for field in sign.fields if field.name in ABOUT]
        is_ending = name.rpartition(".")[2] in ("delete", "close", "archive", "undo")
        if name in SKIPPED or name.startswith(HOUSE) or not about or is_ending:
            continue
        mine = {**given, "id": "local:ben" if name.startswith("session.") else crossing.ben}
        arguments = {field: mine[field] for field in about}
        for field in sign.fields:
            if field.is_required and field.name not in arguments:
                arguments[field.name] = crossing.aims.get(field.name, ["codeword"])[0]
        assert SECRET not in shown(answered(function, arguments)), (name, arguments)
        tried.append(name)
    wanted = {"thread.follow", "run.proposal", "run.copy"}
    wanted |= {"thread.view", "session.view", "session.export", "thread.export", "run.view", "run.packet", "history.list"}
    assert wanted <= set(tried)


def answered(function: Any, arguments: dict[str, Any]) -> list[Any]:
    """What a method says and tells meanwhile, or what is wrong."""
    told: list[Any] = []
    call = LocalCall(lambda kind, value: told.append(value))
    call.cancel.set()  # what follows something shows what is there, and leaves
    try:
        bound = signature(function, skip=("self", "call")).bind(arguments)
        answer = function(call, **bound)
        return [list(answer) if inspect.isgenerator(answer) else answer, told]
    except OwlError as error:
        return [error.message, error.hint, told]


# -- how it is kept out ----------------------------------------------------------------------------------


def test_only_what_belongs_to_somebody_else_is_kept_out() -> None:
    assert only() == "" and seen("user:ada") == 1
    with showing("user:ada"):
        assert [seen(whose) for whose in ("", "user:ada", "user:ben", None)] == [1, 1, 0, 1]
        assert only("e") == " AND (e.audience = '' OR seen(e.audience))"
    assert only() == ""


@pytest.mark.covers("A-010")
def test_a_path_that_somebody_else_has_can_not_be_taken_over(crossing: Crossing) -> None:
    taken = {"path": "agent:/plans/codeword.md", "content": "mine now", "on_conflict": "overwrite"}
    outcome = crossing.call("context_write", taken, crossing.ben)
    assert outcome.status == 403 and "codeword.md" in outcome.message and SECRET not in shown(outcome)
    told = crossing.call("remember", {"text": "ben's own codeword", "title": "codeword"}, crossing.ben)
    assert told.message.startswith("Kept as memory://notes/codeword-")
    assert "ben's own" in crossing.call("search", {"query": "codeword"}, crossing.ben).message
    assert "ben's own" not in shown(crossing.call("search", {"query": "codeword", "limit": 50}, crossing.ada))


@pytest.mark.covers("A-010")
def test_every_session_belongs_to_a_person_or_a_group(crossing: Crossing) -> None:
    record = crossing.stage.core.record
    call = LocalCall(lambda kind, value: None)
    made = methods(crossing.stage)["session.create"]
    assert record is not None and made(call, channel="matrix", sender="room", group="house")["context_type"] == "group"
    assert made(call, channel="matrix", sender="carl")["context_type"] == "user"
    stored = crossing.stage.core.store.rows("SELECT DISTINCT substr(context, 1, instr(context, ':') - 1) FROM sessions ORDER BY 1")
    assert stored == [("group",), ("user",)]


def test_what_people_write_themselves_is_the_houses(crossing: Crossing) -> None:
    crossing.stage.core.entries.set("memory://notes/house-rule", "no shoes on the carpet")
    for run in (crossing.ada, crossing.ben):
        assert "no shoes" in crossing.call("search", {"query": "carpet"}, run).message
    assert os.getuid() == LocalCall(lambda kind, value: None).uid


def test_a_database_of_before_tells_whose_its_entries_are(tmp_path: Path) -> None:
    at = next(number for number, statements in enumerate(MIGRATIONS) if any("COLUMN audience" in one for one in statements))
    old = Store.create(tmp_path / "owlbox.db", migrations=MIGRATIONS[:at])
    with old.write() as execute:
        execute(
            "INSERT INTO sessions (id, channel, sender_id, person, context, status, process, created_ms, last_active_ms) "
            "VALUES ('local:ada', 'local', 'ada', 'ada', 'user:ada', 'active', '', 1, 1)"
        )
        execute(
            "INSERT INTO runs (id, session, kind, title, status, created_ms, updated_ms, alias) "
            "VALUES ('r1', 'local:ada', 'chat', '', 200, 1, 1, 'r1')"
        )
        for path, run in (("memory://hers", "r1"), ("memory://ours", None)):
            execute(
                "INSERT INTO entries (scope, path, title, body, attributes, hash, writer, run, created_ms, updated_ms, uid) "
                "VALUES ('project:1', ?1, '', 'x', '{}', 'h', 'model', ?2, 1, 1, ?1)",
                (path, run),
            )
    old.close()
    new = Store.open(tmp_path / "owlbox.db")
    assert new.rows("SELECT path, audience FROM entries ORDER BY path") == [("memory://hers", "user:ada"), ("memory://ours", "")]
    new.close()
