"""Two persons and a group: what one may ask about the others, in every method, tool and command that names an object.

The matrix is made from the method table and the toolbox: a method or tool with an argument that stands in none of the tables here
fails the test, so that nobody forgets it. Asked about what is somebody else's, each answers as about what there is not.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from process import clean_environ
from stores import new_home

from appliance.clock import CancelToken, new_id
from appliance.errors import NotFound, OwlError, Refused
from appliance.knowledge.change_log import By
from appliance.knowledge.entries import Content
from appliance.knowledge.views import Actor
from appliance.records import Event, Inbound, ToolCall, to_plain
from appliance.runtime.methods import LocalCall, Method, MethodTable, find_methods
from appliance.runtime.paths import Home
from appliance.runtime.users import user_name
from appliance.service.callers import Callers
from appliance.service.core import Core
from appliance.sessions.outbox import Notification
from appliance.work.jobs import JobOrder

OWNER, ASKER = 2, 1  # uids of `bin` and `daemon`: every system has them
A, B, GROUP = "bin", "daemon", "family"
SECRETS = {f"user:{A}": "zebrawood", f"group:{GROUP}": "quokkafield"}
HIDDEN = "lanternfish"  # stands beside each secret word, which may itself be asked for
Row = tuple[str, dict[str, Any]]

# Arguments that name an object, by the method or tool, or by all with this name; "" for those that name none.
OBJECTS = {
    "run": "run",
    "thread": "run",
    "session": "session",
    "session_id": "session",
    "channel": "session",
    "person": "person",
    "user": "person",
    "context": "context",
    "group": "group",
    "owner": "context",
    "ref": "entry",
    "refs": "entry",
    "prefix": "entry",
    "target": "entry",
    "path": "entry",
    "src_path": "entry",
    "dst_path": "entry",
    "to": "entry",
    "context_ids": "entry",
    "keys": "letter",
    "identity": "identity",
    "task_id": "task",
    "blocked_by": "task",
    "job_id": "schedule",
    "job_ids": "job",
    "key": "memory",
    "alias": "alias",
}
BY_METHOD = {
    **{f"session.{verb}.id": "session" for verb in ("change", "delete", "export", "view")},
    **{f"thread.{verb}.id": "run" for verb in ("delete", "end", "follow", "view")},
    **{f"{verb}_task.id": "task" for verb in ("update", "delete", "view")},
    **{f"{verb}_schedule.id": "schedule" for verb in ("view", "update", "delete", "trigger")},
    **{f"skill.{verb}.name": "skill" for verb in ("view", "call", "remove", "trust")},
    **{f"skill_{verb}.name": "skill" for verb in ("read", "delete")},
    **{f"ingest.{verb}.key": "" for verb in ("part", "piece")},
    "upload.keep.key": "",
    "view_thread.id": "run",
    "login.end.id": "login",
    "people.key.key": "",
    "push.subscribe.key": "",
    "session.export.thread": "run",
    "read_large_result.id": "result",
    "run.write.ref": "run_ref",
    "message.target": "recipient",
    "message.file": "entry",
    "grant.add.target": "",
    "delegate.target": "",
    "delegate.context": "",
    "context_grep.context": "",
    "secret.rotate.to": "",
    "skill.view.path": "",
    "skill_read.path": "",
    **{f"{tool}.path": "" for tool in ("read_file", "write_file", "edit_file", "list_dir", "grep", "find")},
}
# Arguments that name no object of a context: words, numbers, switches, what is the installation's.
PLAIN = set(
    """timestamp signature states messages temperature max_tokens stop texts kinds action add addition address after agent all args
    arguments attributes before body by column command content content_base64 context_type created_after_ms created_before_ms
    data days deadline description digest document drive dst_drive src_drive dry_run duration_ms edits enabled entry everybody
    exit_code expected_hash expires_ms file files filter folder force fork format kinds states frequency fresh fusion glob
    hash id ignore_case inner is_alone is_dry_run is_final is_literal is_now is_overwriting is_active
    is_persistent is_preview is_removed is_scheduling is_trusted items items_per_dir keep_auth keyword_only kind
    last lasts lasts_ms limit line lines max_bytes max_chars max_depth max_results message_id mime mode model
    name new_text notify offset old_text on_conflict only operation options origins output overwrite own_chars page parameters
    patch patches pattern persist pool preview priority prompt provider query question reason recursive room remember
    remove replace request responseFormat role rule sealed search seconds semantic_only sender seq server settings
    severity soonest source source_url sql status summary system_prompt task tell text threshold timeout timeout_seconds
    timezone title turns tool tools top_k turn type until_ms url visibility wait wanted when words token invite password
    uploads fingerprint is_verified topic old new is_merging tags tag importance least_importance ttl_s include_mcp
    loading passages missing_ok move brief take_back strict is_queue_kept is_waiting is_forced start minutes place day
    amount unit other feed language way endpoint auth shows""".split()
)
# What a needed argument is given where nothing is asked about it.
WORDS: Mapping[str, Any] = {
    "arguments": {},
    "attributes": {},
    "seq": 1,
    "keys": [],
    "origins": ["web"],
    "patches": [],
    "until_ms": 1,
    "refs": [],
    "items": [],
    "files": {},
    "request": {"target": "x"},
    "enabled": False,
    "way": "push",
    "is_accepted": True,
    "exit_code": 0,
    "seconds": 0.01,
    "frequency": "daily at 9",
    "data": {},
    "messages": [{"role": "user", "content": "x"}],
    "texts": [],
    "kind": "web",
    "server": "none",
    "ref": "memory://none",
    "status": "idle",
    "blocked_by": [],
}
QUERIES = {"query", "pattern", "topic"}
# Arguments under whose name something is made: a path that another holds cannot be taken, and that is said (`path_taken`).
MAKERS = {
    *("entry.set.ref", "entry.cp.target", "entry.mv.target", "set.path", "cp.to", "mv.to", "pipe_to_context.path"),
    *("context_write.path", "context_copy.dst_path"),
    *("run.ask.alias", "run.act.alias", "run.fork.alias", "run.config.alias", "run.write.ref"),
}
# Methods and tools that are not called here, and why.
LEFT_OUT = {
    "model.remote": "asks servers",
    "notice.follow": "streams until its caller leaves; `everybody` is refused below",
    "event.follow": "streams until its caller leaves; asked below",
    "model.chat": "asks a model, and nothing of anybody is in it",
    "core.broker": "starts one",
    "fetch_url": "asks servers",
    "web_search": "asks servers",
    "ingest.page": "asks servers",
    "delegate": "begins work of the caller's own",
    "thread.follow": "streams; its thread is asked for by thread.view in the same way",
}


@dataclass
class House:
    """A core with objects of each kind for one person and one group, and their ids by kind."""

    core: Core
    ids: dict[str, dict[str, Any]]

    def ask(self, method: str, uid: int = ASKER, **arguments: Any) -> str:
        """What a user of this machine is answered, notifications included, as text."""
        told: list[Any] = []
        call = LocalCall(lambda name, params: told.append([name, params]), uid=uid)
        found = self.methods[method]
        try:
            bound = found.signature.bind(arguments)
            with self.core.callers.entitled(call, found.mark, bound):
                told.append(found.run(call, bound))
        except OwlError as error:
            told.append(f"{error.outcome}: {error.message} ({error.hint})")
        return json.dumps(told, ensure_ascii=False)

    @property
    def methods(self) -> dict[str, Method]:
        return find_methods(*self.core.offered)

    def rows(self) -> list[Row]:
        """Each argument that names an object, as (method or tool, its needed arguments), with `?` and the kind in its place."""
        found: list[Row] = []
        tools = {made.mark.name: made.signature for made in self.core.toolbox.tools()}
        signatures = {**{name: one.signature for name, one in self.methods.items()}, **tools}
        for name, signature in sorted(signatures.items()):
            for field in signature.fields:
                kind = BY_METHOD.get(f"{name}.{field.name}", OBJECTS.get(field.name))
                assert kind is not None or field.name in PLAIN, f"{name} has an argument {field.name}: say in a table what it names"
                if kind and name not in LEFT_OUT:
                    given = {f.name: WORDS.get(f.name, "x") for f in signature.fields if f.is_required}
                    found.append((name, given | {field.name: f"?{kind}", "": isinstance(WORDS.get(field.name), list)}))
        return found

    def put(self, name: str, given: dict[str, Any], thing: Any) -> str:
        """The answer about one object, with its id and what differs from call to call taken out."""
        is_list = given.get("")
        filled = {
            key: ([thing] if is_list else thing) if isinstance(value, str) and value.startswith("?") else value
            for key, value in given.items()
            if key
        }
        is_method = name in self.methods
        answer = self.ask(name, **filled) if is_method else self.ask("tool.call", name=name, arguments=filled)
        answer = re.sub(r'"duration_ms": \d+', "", answer)
        for form in {str(thing), json.dumps(thing)[1:-1], str(thing).replace("://", ":/"), str(thing).rpartition("/")[2]} - {""}:
            answer = re.sub(rf"(?<![\w/]){re.escape(form)}(?!\w)", "ID", answer)
        return answer


def furnish(core: Core, context: str, uid_name: str) -> dict[str, Any]:
    """One object of each kind that belongs to a context."""
    word = SECRETS[context]
    secret = f"{word} {HIDDEN}"
    sender = context if context.startswith("group:") else uid_name
    session = f"local:{sender}"
    with core.store.write():
        core.runs.touch_session(Inbound("local", uid_name, secret, new_id(), 1, context=context if sender == context else ""))
    run = core.runs.begin(session, "chat", title=f"about {secret}").id
    asked = core.runs.append(Event(run, "message", "user", f"tell me of {secret}", channel="local", sender_id=uid_name))
    loop = core.runs.enqueue(run, asked.id, "c", "act")
    core.runs.start_loop(loop)
    core.runs.append(Event(run, "message", "assistant", f"{secret} it is", channel="local"))
    core.runs.end_loop(core.runs.loop(loop), 200, "ok")
    entry = f"memory://{word[:5]}/thing"
    core.entries.put(entry, Content(body=f"the word is {secret}", title=secret), By("model", run))
    gone = f"memory://{word[:5]}/gone"
    core.entries.put(gone, Content(body=f"it was {secret}"), By("model", run))
    core.entries.put(gone, Content(body=f"it was {secret}, changed"), By("model", run))
    core.entries.remove(gone, By("model", run))
    waiting = core.verbs.record(Actor("model", run, *core.runs.moment(run)), "ask_user", f"is it {secret}?", secret)

    def tool(called: str, **given: Any) -> Any:
        outcome = core.toolbox.dispatch(ToolCall("c", called, given), "", CancelToken(), session)
        assert not outcome.is_error, outcome
        return outcome.data

    def number(data: Any) -> Any:
        plain = to_plain(data)
        return plain["id"] if "id" in plain else plain["schedule"]["id"]

    task = number(tool("create_task", name=f"do {secret}", description=secret))
    schedule = number(tool("create_schedule", name=f"mind {secret}", frequency="every Monday at 9", description=secret))
    job = core.jobs.add(JobOrder("assistant", f"find {secret}", session=session, parent=run)).id
    core.outbox.put(Notification(f"letter-{word}", uid_name, f"hear of {secret}", context, session, "local"), durable=True)
    core.policy.ledger.note("policy_allowed", session=session, run=run, detail={"what": secret})
    core.policy.gate.set_session(session, "mode = 'permissive'", secret)
    core.taint.grants.add(uid_name, "web", f"{word}.example", ["web"], 3_600_000, uid_name)
    memory, _ = core.memory.memories.write(context, f"The {secret} grows slowly in the garden.", title=secret, topic=secret)
    kind, _, name = context.partition(":")
    skill = core.home.box / f"{kind}s" / name / "skills" / word / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(f"---\nname: {word}\ndescription: Of {secret}.\n---\nSay {secret}.\n")
    note = core.home.box / f"{kind}s" / name / "notes" / "own.md"
    note.parent.mkdir(parents=True)
    note.write_text(f"# {secret}\n\n{secret} is the word.\n")
    core.box_folder.compare()
    invite = core.policy.logins.invite_person(uid_name, call=LocalCall()).invite
    login = core.policy.logins.find(core.policy.logins.redeem_invite(invite, agent=secret, call=LocalCall()).token)
    return {
        "run": run,
        "alias": core.runs.get(run).alias,
        "run_ref": f"run://{core.runs.get(run).alias}",
        "session": session,
        "person": uid_name if kind == "user" else name,
        "context": context,
        "group": GROUP,
        "recipient": f"person:{uid_name}",
        "entry": entry,
        "gone": gone,
        "note": f"box://{kind}s/{name}/notes/own.md",
        "waiting": (waiting.data or {})["proposals"][0],
        "letter": f"letter-{word}",
        "memory": memory.id,
        "task": task,
        "schedule": schedule,
        "job": job,
        "skill": word,
        "result": "1",
        "identity": f"local/{uid_name}",
        "login": login.id,
    }


MADE_UP = {
    "run": "01a0b0c0d0e0f0a0b0c0d0e0f0a0b0c0",
    "alias": "chat_made_up",
    "run_ref": "run://chat_made_up",
    "session": "local:nobody",
    "person": "nobody",
    "context": "user:nobody",
    "group": "nobodies",
    "recipient": "person:nobody",
    "entry": "memory://madeup/thing",
    "gone": "memory://madeup/gone",
    "note": "box://users/nobody/notes/own.md",
    "waiting": "log://turn_0/ask_user/is_it_nothing%3F",
    "new": "memory://madeup/new",
    "letter": "letter-made-up",
    "memory": "01a0b0c0d0e0",
    "task": 987_654,
    "schedule": "0fedcba9",
    "job": "job-made-up",
    "skill": "made-up",
    "result": "1",
    "identity": "local/nobody",
    "login": "01a0b0c0-d0e0-7000-8000-000000000000",
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    place = tmp_path_factory.mktemp("isolation")
    home, runtime = Home(place / "home"), place / "run"
    new_home(home)
    runtime.mkdir(mode=0o700)
    environ = clean_environ(place, runtime) | {"OWLBOX__SYSTEM__ADMIN_USERS": '["root"]', "OWLBOX__DELEGATION__SPAWN": "true"}
    core = Core(home, environ, process="cli", is_shared=False)
    core.recover()
    people = core.base.people
    for name in (A, B):
        people.add_person(name)
    people.change_group(GROUP, add=[A])
    ids = {context: furnish(core, context, A) for context in SECRETS}
    with core.store.write():
        core.runs.touch_session(Inbound("local", B, "hello", new_id(), 1))
    yield House(core, ids)
    core.close("test")


def is_told(answer: str, ids: Mapping[str, Any]) -> list[str]:
    """What of somebody else's stands in an answer: their word, or the id of a thread, letter or job."""
    named = [str(ids[kind]) for kind in ("run", "alias", "job", "letter", "entry", "memory")]
    return [word for word in (HIDDEN, *named) if word in answer]


@pytest.mark.covers("A-187", "A-267", "A-268")
def test_nothing_of_others_is_told_by_any_method_that_names_an_object(house: House) -> None:
    wrong = []
    for name, given in house.rows():
        kind, field = next((value[1:], key) for key, value in given.items() if isinstance(value, str) and value.startswith("?"))
        makes = f"{name}.{field}" in MAKERS
        for context, ids in house.ids.items():
            sorts = ("entry", "note", "waiting", *(() if makes else ("gone",))) if kind == "entry" else (kind,)
            for sort in sorts:
                answer = house.put(name, given, ids[sort])
                told = is_told(answer, ids)
                if told or (not makes and answer != (made_up := house.put(name, given, MADE_UP[sort]))):
                    wrong.append(
                        f"{name}.{field} {ids[sort]} of {context}: {told} {answer[:220]} | {'' if told else made_up[:220]}"
                    )
                elif makes and any(f'"status": {status}' in answer for status in (200, 202)):
                    wrong.append(f"{name}.{field} {ids[sort]} of {context} was overwritten: {answer[:220]}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


@pytest.mark.covers("A-267", "A-268")
def test_no_list_and_no_search_shows_anything_of_others(house: House) -> None:
    wrong = []
    tools = {made.mark.name: made.signature for made in house.core.toolbox.tools()}
    for name, signature in [(name, one.signature) for name, one in house.methods.items()] + list(tools.items()):
        is_asking = any(field.name in QUERIES for field in signature.fields)
        for word in SECRETS.values() if is_asking else ("x",):
            given = {f.name: word if f.name in QUERIES else WORDS.get(f.name, "x") for f in signature.fields if f.is_required}
            if name not in (*LEFT_OUT, "core.shutdown"):
                answer = house.put(name, given, "x")
                if others := {told for ids in house.ids.values() for told in is_told(answer, ids)}:
                    wrong.append(f"{name}: {others} {answer[:400]}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


def test_owner_and_admin_find_all_that_is_hidden_from_others(house: House) -> None:
    ids = house.ids[f"user:{A}"]
    for uid in (OWNER, 0):
        for name, given in (("thread.view", {"id": ids["run"]}), ("entry.view", {"ref": ids["entry"]})):
            assert HIDDEN in house.ask(name, uid, **given), (name, uid)
        for tool, kind in (("view_task", "task"), ("view_schedule", "schedule")):
            assert HIDDEN in house.ask("tool.call", uid, name=tool, arguments={"id": ids[kind]}), (tool, uid)
        assert ids["session"] in house.ask("session.view", uid, id=ids["session"])
    assert HIDDEN in house.ask("tool.call", OWNER, name="skill_read", arguments={"name": ids["skill"]})


def test_refused_requests_are_noted_in_the_audit(house: House) -> None:
    run = house.ids[f"user:{A}"]["run"]
    house.ask("thread.view", id=run)
    noted = house.core.policy.ledger.listing()[0]
    assert (noted.kind, noted.actor) == ("request_refused", f"user:{B}") and noted.detail["method"] == "thread.view"


@pytest.mark.covers("A-187", "A-269")
def test_person_authenticated_by_another_server_is_an_admin_by_name_alone(house: House) -> None:
    core, run = house.core, house.ids[f"user:{A}"]["run"]
    for admins in (["root"], []):
        alone = Callers(core.runs, core.base.people, core.policy.ledger, lambda admins=admins: admins)  # type: ignore[misc]
        table = MethodTable(*core.offered, entitle=alone.entitled)
        for person in (A, user_name(os.getuid())):
            assert HIDDEN in json.dumps(table.call(LocalCall(person=person), "thread.view", {"id": run}))
        with pytest.raises(NotFound):
            table.call(LocalCall(person=B), "thread.view", {"id": run})
        with pytest.raises(Refused, match="for admins of this box"):
            table.call(LocalCall(person=B), "audit.list", {})
        with pytest.raises(Refused, match="for user"):
            table.call(LocalCall(person=user_name(os.getuid())), "sql.query", {"sql": "SELECT 1"})


@pytest.mark.covers("A-178", "A-191")
def test_status_and_groups_are_an_admins_in_full_and_everybody_elses_as_far_as_they_are_theirs(house: House) -> None:
    lease = house.core.leases.begin("core")
    call = house.core.table.call
    groups = [call(LocalCall(uid=uid), "group.list", {}) for uid in (0, OWNER, ASKER)]
    assert groups == [{GROUP: [A]}, {GROUP: [A]}, {}]
    whole, own, other = (call(LocalCall(uid=uid), "core.status", {}) for uid in (0, OWNER, ASKER))
    house.core.leases.end(lease, "test")
    assert whole["processes"][0]["kind"] == "core" and {"broker", "home", "queue"} <= set(whole)
    assert min(own["processes"], other["processes"]) >= 1 and "queue" not in own and "home" not in own
    assert {A} <= {one["person"] for one in own["sessions"]} <= {A, GROUP} and own["default_pool"] == whole["default_pool"]
    assert {one["person"] for one in other["sessions"]} == {B}


@pytest.mark.covers("A-187", "A-190", "R-184")
def test_events_of_others_are_followed_by_nobody(house: House) -> None:
    told: dict[str, list[str]] = {A: [], B: []}
    for person, heard in told.items():
        call = LocalCall(lambda name, params, heard=heard: heard.append(json.dumps(params)), person=person)  # type: ignore[misc]
        call.cancel.set()  # what is stored is told first
        house.core.table.call(call, "event.follow", {"after": 0})
    assert any(HIDDEN in one for one in told[A]) and not any(HIDDEN in one for one in told[B])


def test_notes_of_nobody_are_changed_by_everybody_and_documents_by_none_but_admins(house: House) -> None:
    note = "memory://shared/note"
    house.core.entries.put(note, Content(body="milk"), By("user", ""))
    assert "changed" in house.ask("entry.set", ref=note, body="bread")
    assert "bread" in house.ask("entry.get", OWNER, ref=note)
    assert "removed" in house.ask("entry.rm", OWNER, ref=note)
    assert "may not write" in house.ask("entry.set", ref="box://MEMORY.md", body="bread")
    assert "is for admins" in house.ask("document.write", name="MEMORY.md", text="bread")


@pytest.mark.covers("A-172")
def test_no_method_opens_a_file_that_a_person_names(house: House, tmp_path: Path) -> None:
    """What works for somebody else has rights on files that they have not: a path of the machine is a name like any other to it."""
    victim = tmp_path / "victim.toml"
    seen: list[str] = []
    victim.write_text("precious = 1\n")
    watched = [str(victim)]

    def note(event: str, given: tuple[Any, ...]) -> None:
        if watched and any(isinstance(one, str | bytes | os.PathLike) and os.fsdecode(one) in watched for one in given):
            seen.append(f"{event} {given}")

    sys.addaudithook(note)
    tried = 0
    for name, method in house.methods.items():
        needed = {f.name: WORDS.get(f.name, "x") for f in method.signature.fields if f.is_required}
        for field in method.signature.fields if name not in LEFT_OUT and method.mark.access != "admin" else ():
            house.ask(name, **needed | {field.name: watched if isinstance(WORDS.get(field.name), list) else watched[0]})
            tried += 1
    Path(watched[0]).open("rb").close()
    assert tried > 150 and len(seen) == 1, "and it would be noticed"
    watched.clear()
    assert victim.read_text() == "precious = 1\n" and [one.name for one in tmp_path.iterdir()] == ["victim.toml"]
