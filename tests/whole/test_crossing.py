"""Nothing crosses contexts: every tool and every method called for one person, after another one has said and kept secrets.

The matrix is made from the tools and methods that there are: a new one is in it by itself. What it is called with aims
at everything of the other person's that can be named: ids, references, words that stand beside the secret.
"""

import json
import os
import pwd
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pytest
from proof import part
from test_database import until
from test_scenarios import CHAT, ENTRIES, Stage, Told, opened, put, update

from appliance import tools
from appliance.agent.tool_manuals import ManualIndex
from appliance.agent.toolbox import read_tool
from appliance.clock import CancelToken, new_id, now_ms
from appliance.errors import BadInput, Cancelled, OwlError
from appliance.records import Ask, Inbound, RunSettings, Terms, ToolCall, to_plain
from appliance.runtime.methods import LocalCall, Method, find_methods
from appliance.runtime.subscriptions import Notice
from appliance.store.visibility import only, seen, showing
from appliance.work.jobs import JobOrder
from appliance.work.tasks import NewTask

SECRET = "SECRET7319"
TEXT = f"the codeword is {SECRET}"
TOOLS = {one.mark.name: one for one in map(read_tool, tools.load())}
MANUALS = ManualIndex()
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
        (schedule,) = [f"{one.id:08x}" for one in core.schedules.rows.list_schedules() if SECRET in one.name]
        job = core.jobs.add(JobOrder("worker", TEXT, session="local:ada", parent=made.ada, priority="background", tool="delegate"))
        core.indexer.index_pending(lambda: True)
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
    singly: list[dict[str, Any]] = []
    for chosen in zip_longest(*aimed.values()):
        pairs = zip(aimed.items(), chosen, strict=True)
        wanted = {field: values[0] if value is None else value for (field, values), value in pairs}
        if len(wanted) > 1:
            singly += [{**first, field: value} for field, value in wanted.items()]
        yield {**first, **wanted}
    yield from part(singly, 3)


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


def methods(stage: Stage) -> dict[str, Method]:
    return find_methods(*stage.core.offered)


# What stands for a thread, a session or a person in a method's parameters, as ben's.
ABOUT = ("thread", "run", "session", "context", "person", "sender", "id")
SKIPPED = {
    "message.send": "what it answers is in the packets above",
    "notice.follow": "it goes on for ever; who is told what is tested below",
    "session.import": "it takes lines in",
    "sql.query": "the whole database, for its owner alone",
}


@pytest.mark.covers("A-010")
def test_no_method_about_a_persons_thread_shows_anothers(crossing: Crossing) -> None:
    given = {"thread": crossing.ben, "run": crossing.ben, "session": "local:ben", "context": "user:ben"}
    given |= {"person": "ben", "sender": "ben"}
    tried = []
    for name, method in sorted(methods(crossing.stage).items()):
        sign = method.signature
        about = [field.name for field in sign.fields if field.name in ABOUT]
        is_ending = name.rpartition(".")[2] in ("delete", "close", "archive", "undo")
        if name in SKIPPED or name.startswith(HOUSE) or not about or is_ending:
            continue
        mine = {**given, "id": "local:ben" if name.startswith("session.") else crossing.ben}
        arguments = {field: mine[field] for field in about}
        for field in sign.fields:
            if field.is_required and field.name not in arguments:
                arguments[field.name] = crossing.aims.get(field.name, ["codeword"])[0]
        assert SECRET not in shown(answered(method, arguments)), (name, arguments)
        tried.append(name)
    wanted = {"thread.follow", "run.proposal"}
    wanted |= {"thread.view", "session.view", "session.export", "run.view", "run.packet", "history.list"}
    assert wanted <= set(tried)


def answered(method: Method, arguments: dict[str, Any]) -> list[Any]:
    """What a method says and tells meanwhile, or what is wrong."""
    told: list[Any] = []
    call = LocalCall(lambda kind, value: told.append(value))
    call.cancel.set()  # what follows something shows what is there, and leaves
    try:
        return [method.call(call, **arguments), told]
    except OwlError as error:
        return [error.message, error.hint, told]


# -- what another person keeps is not even counted -----------------------------------------------------

ONLY_HERS = "zyzzyva7319"  # a word that nothing of the house or of ben's has
FEW = 3  # of what else may be named: the word is what this is about
LOOKING = {"query", "pattern", "text", "search", "wanted", "glob", "body"}
SEARCHES = {"search", "context_search", "context_grep", "search_semantic", "search_history"}
LISTS = {"context_tree", "context_list", "context_info", "list_tasks", "list_schedules", "list_threads"}
TOLD = {"entry.get", "entry.history", "history.list", "thread.view", "run.view", "run.packet", "run.path", "run.tree"}
MOMENTS = re.compile(r'"[a-z_]*_(ms|s)": [0-9.]+|[0-9]+ (second|minute)s? ago')


def looks(crossing: Crossing, word: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls of every tool that only reads, with a word wherever one may stand."""
    aims = {name: values[:FEW] for name, values in crossing.aims.items()} | dict.fromkeys(LOOKING, [f"{word}*", f"{word} codeword"])
    for name, found in sorted(TOOLS.items()):
        is_away = found.mark.needs.reach is not None or found.mark.group in (*ELSEWHERE, "web")
        if found.mark.is_read_only and not is_away and name not in WAITS:
            for arguments in attempts(name, aims):
                with suppress(BadInput):
                    found.signature.bind(arguments)
                    yield name, arguments


def tellings(crossing: Crossing, word: str, run: str) -> Iterator[tuple[str, str]]:
    """What every tool that reads says to ben, and what methods say of a thread of his in which nothing was done yet."""
    for name, arguments in looks(crossing, word):
        told = shown(crossing.call(name, arguments, crossing.ben)).replace(word, "WORD")
        yield f"{name} {shown(arguments)}".replace(word, "WORD"), MOMENTS.sub("", told)
    known = methods(crossing.stage)
    for name in sorted(TOLD):
        sign = known[name].signature
        mine = {"thread": run, "run": run, "id": run, "context": "user:ben"}
        given = {field.name: mine[field.name] for field in sign.fields if field.name in mine}
        for ref in ("**", f"known://{word}", "memory://notes/*"):
            aimed = {"ref": ref, "wanted": word, "prefix": ref.rstrip("*")}
            arguments = given | {field.name: aimed[field.name] for field in sign.fields if field.name in aimed}
            told = shown(answered(known[name], arguments)).replace(word, "WORD").replace(run, "RUN")
            told = told.replace(crossing.stage.core.runs.get(run).alias, "ALIAS")
            yield f"{name} {ref}".replace(word, "WORD"), MOMENTS.sub("", told)


@pytest.mark.covers("E-331")
def test_what_another_person_keeps_changes_no_answer_and_no_count(crossing: Crossing) -> None:
    assert {*SEARCHES, *LISTS} <= {name for name, _ in looks(crossing, "x")}
    runs = [crossing.stage.core.runs.begin("local:ben", "chat", title="a thread").id for _ in range(2)]
    before = dict(tellings(crossing, "qwxzvk5521", runs[0]))  # a word that nobody has
    for number in range(3):
        kept = {"text": f"{ONLY_HERS} number {number}: the codeword", "title": f"{ONLY_HERS} {number}"}
        assert crossing.call("remember", kept, crossing.ada).status == 200
        written = {"path": f"agent:/{ONLY_HERS}/{number}.md", "content": kept["text"], "title": ONLY_HERS}
        assert crossing.call("context_write", written, crossing.ada).status == 200
        task = {"name": f"{ONLY_HERS} {number}", "description": kept["text"]}
        assert crossing.call("create_task", task, crossing.ada).status == 200
    crossing.stage.core.indexer.index_pending(lambda: True)
    for name, arguments in (("search", {"query": ONLY_HERS}), ("context_grep", {"pattern": ONLY_HERS})):
        assert f"{ONLY_HERS} number" in crossing.call(name, arguments, crossing.ada).message, "ada finds it"
    after = dict(tellings(crossing, ONLY_HERS, runs[1]))
    for call in before:
        assert after[call] == before[call], call


@pytest.mark.covers("E-153", "A-010", "R-184")
@pytest.mark.parametrize("method", ["notice.follow", "thread.follow"])
def test_a_client_is_told_what_is_for_its_own_person_alone(crossing: Crossing, method: str) -> None:
    follow, notices = methods(crossing.stage)[method], crossing.stage.core.queue.notices
    people = {one.pw_uid: one.pw_name for one in sorted(pwd.getpwall(), key=lambda one: one.pw_uid)[:2]}
    heard: dict[str, list[tuple[str, Any]]] = {person: [] for person in people.values()}
    calls, threads = [], []
    for uid, person in people.items():
        call = LocalCall(lambda kind, value, person=person: heard[person].append((kind, value)))  # type: ignore[misc]
        call.uid = uid
        calls.append(call)
        threads.append(threading.Thread(target=_left, args=(follow, call)))
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(notices.is_followed(person) for person in heard))
        for number in range(3):
            for person in heard:
                assert notices.put(Notice(person, f"{number} for {person}")) == 1
        until(lambda: all(len(_texts(told)) == 3 for told in heard.values()))
        assert {person: _texts(told) for person, told in heard.items()} == {
            person: [f"{number} for {person}" for number in range(3)] for person in heard
        }
    finally:
        for call in calls:
            call.cancel.set()
        for thread in threads:
            thread.join(60)


def _left(follow: Method, call: LocalCall) -> None:
    """Follow until the caller leaves, which is no error of its own."""
    with suppress(Cancelled):
        follow.call(call)


def _texts(told: list[tuple[str, Any]]) -> list[str]:
    return [value["text"] for kind, value in told if kind == "notice"]


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
    call = LocalCall()
    made = methods(crossing.stage)["session.create"].call
    assert made(call, channel="matrix", sender="room", group="house")["context_type"] == "group"
    assert made(call, channel="matrix", sender="carl")["context_type"] == "user"
    stored = crossing.stage.core.store.rows("SELECT DISTINCT substr(context, 1, instr(context, ':') - 1) FROM sessions ORDER BY 1")
    assert stored == [("group",), ("user",)]


def test_what_people_write_themselves_is_the_houses(crossing: Crossing) -> None:
    crossing.stage.core.entries.set("memory://notes/house-rule", "no shoes on the carpet")
    for run in (crossing.ada, crossing.ben):
        assert "no shoes" in crossing.call("search", {"query": "carpet"}, run).message
    assert os.getuid() == LocalCall(lambda kind, value: None).uid
