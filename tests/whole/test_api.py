"""The API as a client sees it: one core behind its real socket, asked over connections of the one client that screen and
commands use."""

import ast
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from process import ROOT, clean_environ
from stores import new_home, new_store
from test_database import until
from test_scenarios import put, script, update

from appliance import __version__
from appliance.agent.toolbox import tool
from appliance.clock import CancelToken, new_id
from appliance.errors import BadInput, Cancelled, Lost, NotFound, OwlError, Refused
from appliance.runtime import jsonrpc, log, paths
from appliance.runtime.methods import LocalCall
from appliance.runtime.paths import Home
from appliance.runtime.rpc.call_log import CallLog, CallRecord
from appliance.runtime.rpc.notifications import NOTIFICATIONS, StateNote
from appliance.runtime.rpc_client import Client
from appliance.runtime.rpc_server import Listener, listen
from appliance.service.core import Core
from appliance.service.daemon import open_listener
from appliance.sessions.turns import telemetry

SEALED = "sealed"  # a secret, which a function adds
METHOD = re.compile(r"[a-z_]+\.[a-z_]+")
ANSWERS: dict[str, Any] = {
    "keeps": [put("known://tea", "green") + update(102, "half way"), put("unknown://cup", "which cup?") + update(200, "All done.")],
    "hoot": ["Hoot."],
    "goes on": ["hoot " * 200],
    "holds": [put("held.txt", "x"), "Written."],
}


@dataclass
class Served:
    """A core, its listener, and its clients' end."""

    core: Core
    listener: Listener
    path: str
    folder: Path
    followers: "list[Follower]" = field(default_factory=list)

    def client(self, name: str = "test") -> Client:
        return Client(self.path, name=name, timeout_s=60)

    def call(self, method: str, **params: Any) -> Any:
        with self.client() as client:
            return client.call(method, params, deadline_s=60)

    def follow(self, method: str, **params: Any) -> "Follower":
        made = Follower(self.client("follower"), method, params)
        self.followers.append(made)
        return made


class Follower:
    """A client that listens in a thread of its own until it is stopped."""

    def __init__(self, client: Client, method: str, params: dict[str, Any]) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.cancel = CancelToken()
        self._client = client
        self._thread = threading.Thread(target=self._listen, args=(method, params), daemon=True)
        self._thread.start()

    def _listen(self, method: str, params: dict[str, Any]) -> None:
        with suppress(Cancelled, Lost):
            for one in self._client.stream(method, params, deadline_s=300, cancel=self.cancel):
                self.heard.append(one)

    def of(self, name: str) -> list[Any]:
        return [params for heard, params in self.heard if heard == name]

    def stop(self) -> None:
        self.cancel.set()
        self._thread.join(30)
        self._client.close()


@contextmanager
def serving(folder: Path, answers: dict[str, Any] = ANSWERS, furnish: Callable[[Home], object] = bool) -> Iterator[Served]:
    """A core in this process behind a socket of its own."""
    runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir(0o700)
    home = Home(folder / "home")
    new_home(home)
    furnish(home)
    given = {"OWLBOX__MODELS__SCRIPT": script(folder, answers), "OWLBOX__MODELS__CONTEXT": "200000"}
    given |= {"OWLBOX__POOLS__SWIFT": '["local"]'}
    core = Core(home, clean_environ(folder, runtime) | given, process="cli", is_shared=False)
    core.recover()
    log.start("core", folder / "logs", "info", log.Redactor())
    listener = open_listener(core, None)
    listener.start()
    made = Served(core, listener, str(paths.core_socket(core.runtime)), folder)
    yield made
    for one in made.followers:
        one.stop()
    listener.close()
    core.close("test")
    log.stop()
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("api")) as made:
        yield made


# -- what there is ----------------------------------------------------------------------------------


@pytest.mark.covers("R-170", "A-190")
def test_discover_says_every_method_with_schemas_of_arguments_and_results(served: Served) -> None:
    found = served.call("discover")
    assert (found["name"], found["version"]) == ("core", __version__)
    methods = found["methods"]
    assert sorted(methods) == list(served.core.table) and set(found["notifications"]) == set(NOTIFICATIONS)
    listing = methods["thread.list"]
    assert listing["params"]["properties"]["limit"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}
    assert listing["result"]["type"] == "array" and listing["result"]["items"]["$ref"] in ("#/$defs/Run",)
    assert "alias" in listing["result"]["$defs"]["Run"]["properties"]
    assert (listing["access"], listing["is_long"], methods["message.send"]["is_long"]) == ("own", False, True)
    assert all(one["doc"] and one["params"]["additionalProperties"] is False for one in methods.values())
    # What a process may ask for: messages, work of others, tools, the web, models, tasks, skills, events, how it is.
    wanted = "message.send tool.call ingest.page skill.view event.follow event.publish core.status run.act"
    assert set(wanted.split()) <= set(methods)
    tools = {one["name"] for one in served.call("tool.list")}
    needed = {f"{verb}_schedule" for verb in ("create", "view", "update", "delete", "preview")} | {"list_schedules"}
    assert needed <= tools and {"delegate", "fetch_url", "create_task", "view_task", "update_task"} <= tools


def literal_calls() -> Iterator[tuple[str, str, list[str] | None]]:
    """Every call of a method by its name outside of the core: where, the name, the arguments where they are written out."""
    places = ["cli/**/*.py", "console/*.py", "tui/*.py", "http/*.py"]
    for file in sorted(one for place in places for one in (ROOT / "appliance").glob(place)):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            for at, name in enumerate(node.args):
                if isinstance(name, ast.Constant) and isinstance(name.value, str) and METHOD.fullmatch(name.value):
                    given = node.args[at + 1] if at + 1 < len(node.args) else None
                    keys = given.keys if isinstance(given, ast.Dict) else []
                    known = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
                    is_whole = isinstance(given, ast.Dict) and len(known) == len(keys)
                    yield f"{file.name}:{node.lineno}", name.value, known if is_whole else None


def test_every_call_of_screen_commands_and_servers_is_one_that_the_core_takes(served: Served) -> None:
    methods, wrong, count = served.call("discover")["methods"], [], 0
    for where, name, given in literal_calls():
        if name.partition(".")[0] not in {one.partition(".")[0] for one in methods}:
            continue  # no method, such as the name of a file
        count += 1
        if name not in methods:
            wrong.append(f"{where}: there is no method {name}")
        elif given is not None:
            schema = methods[name]["params"]
            unknown, missing = set(given) - set(schema["properties"]), set(schema["required"]) - {*given, SEALED}
            wrong += [f"{where}: {name}: unknown {sorted(unknown)}, missing {sorted(missing)}"] if unknown or missing else []
    assert not wrong, "\n".join(wrong)
    assert count > 150


@pytest.mark.covers("R-180")
def test_a_client_and_a_server_of_another_major_version_refuse_each_other(served: Served) -> None:
    with served.client() as client:
        told = {"name": "core", "version": __version__, "pid": os.getpid()}
        assert client.server == {**told, "zone": str(ZoneInfo(client.server["zone"]))}
    wire = jsonrpc.connect(served.path)
    wire.send({"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"client": "old", "version": "99.1.2"}})
    answer = json.loads(next(wire.lines()))  # type: ignore[arg-type]
    assert answer["error"]["data"]["outcome"] == "permission" and "of version 99.1.2" in answer["error"]["message"]
    wire.close()


@pytest.mark.covers("R-180")
def test_a_client_refuses_a_server_of_another_major_version(runtime: Path) -> None:
    path = runtime / "new.sock"
    sock = listen(path)

    def answer() -> None:
        wire = jsonrpc.Wire(sock.accept()[0])
        asked = json.loads(next(wire.lines()))  # type: ignore[arg-type]
        wire.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"name": "core", "version": "7.0.0", "pid": 1}})

    server = threading.Thread(target=answer, daemon=True)
    server.start()
    with pytest.raises(Refused, match=r"core is of version 7\.0\.0"):
        Client(str(path), name="test")
    server.join(10)
    sock.close()


# -- what happens -----------------------------------------------------------------------------------


@pytest.mark.covers("A-190")
def test_events_are_followed_from_a_number_on_and_none_is_missed(served: Served) -> None:
    follower = served.follow("event.follow")
    until(lambda: served.core.queue.notices._lookouts)
    first = served.call("message.send", text="[hoot] once")["run"]
    until(lambda: [e for e in follower.of("event") if e["role"] == "assistant" and e["run"] == first])
    follower.stop()
    seen = [event["id"] for event in follower.of("event")]
    assert seen == sorted(seen)
    for word in ("two", "three"):  # nobody listens
        served.call("message.send", text=f"[hoot] {word}", thread=first)
    again = served.follow("event.follow", after=seen[-1])
    until(lambda: len([e for e in again.of("event") if e["role"] == "user"]) == 2)
    again.stop()
    late = [event["id"] for event in again.of("event")]
    stored = [event.id for event in served.core.runs.record.stored_after(0, 1000)]
    assert [*seen, *late] == stored[stored.index(seen[0]) :] and len(set(stored)) == len(stored)
    said = served.follow("event.follow", after=0, kinds=["message"])
    until(lambda: said.of("event"))
    said.stop()
    assert {event["kind"] for event in said.of("event")} == {"message"}


@pytest.mark.covers("A-190", "R-184")
def test_what_a_client_publishes_reaches_its_own_persons_clients_alone(served: Served) -> None:
    follower = served.follow("notice.follow")
    notices = served.core.queue.notices
    stranger = notices.subscribe("somebody-else")
    until(lambda: len(notices._boxes) == 2)
    assert served.call("event.publish", name="door", data={"is_open": True}) == {"count": 1}
    until(lambda: follower.of("published"))
    told = follower.of("published")[0]
    assert (told["name"], told["data"], told["client"]) == ("door", {"is_open": True}, "test")
    notices.leave(stranger)
    assert stranger.take(0) is None


@pytest.mark.covers("R-181", "R-182", "R-183")
def test_the_state_of_a_run_is_told_after_each_command_each_turn_and_at_its_end(served: Served) -> None:
    with served.client() as client:
        params = {"prompt": "[keeps] Keep it.", "model": "local", "settings": {"approval": "auto"}, "states": True}
        heard = []
        stream = client.stream("run.act", params, deadline_s=60)
        with suppress(StopIteration):
            while True:
                heard.append(next(stream))
        states = [msgspec.convert(params, StateNote) for name, params in heard if name == "state"]
        commands = [state for state in states if state.telemetry is None]
        turns = [state for state in states if state.telemetry is not None]
        results = [params for name, params in heard if name == "event" and params["kind"] == "tool_result"]
        assert len(commands) == len(results) == 4 and {state.status for state in commands} == {102}
        assert len(turns) == 2 and [state.status for state in turns] == [102, 200]
        assert commands[0].history[-1]["path"] in {one["path"] for one in commands[1].history}
        last = turns[-1]
        assert last.turn == 2 and last.summary == "All done." and last.unknowns == [{"path": "unknown://cup", "body": "which cup?"}]
        asked = client.call("run.state", {"run": last.run})
    assert asked == msgspec.to_builtins(last)
    assert [one["at_ms"] for one in last.history] == sorted(one["at_ms"] for one in last.history)
    prompt = last.history[0]
    assert (prompt["tool"], prompt["body"], prompt["status"]) == ("prompt", "[keeps] Keep it.", 200)
    tea = next(one for one in last.history if one["path"] == "known://tea")
    assert (tea["status"], tea["body"], tea["turn"], tea["tool"]) == (200, "green", 1, "known")
    assert isinstance(json.loads(tea["attributes"]), dict)
    assert last.telemetry and last.telemetry["prompt_tokens"] >= last.telemetry["context_tokens"] > 0


@pytest.mark.covers("R-172")
def test_a_run_names_a_pool_of_the_configuration_and_none_that_is_not_there(served: Served) -> None:
    asked = served.call("run.ask", prompt="[hoot] who?", model="swift")
    assert asked["status"] == 200 and served.call("run.view", run=asked["run"])["run"]["settings"]["model"] == "swift"
    with pytest.raises(OwlError, match="slow"):
        served.call("run.ask", prompt="[hoot] who?", model="slow")


@pytest.mark.covers("R-071", "R-181")
def test_the_summary_of_a_run_is_its_last_answer(served: Served) -> None:
    run = served.call("run.ask", prompt="[hoot] who?", model="local")["run"]
    [*_, said] = [event for event in served.core.runs.events(run) if event.kind == "message" and event.role == "assistant"]
    state = served.call("run.state", run=run)
    assert said.content and state["summary"] == said.content[:500] != "[hoot] who?"
    assert [one["body"] for one in state["history"] if one["tool"] == "prompt"] == ["[hoot] who?"]
    run = served.call("run.ask", prompt="[goes on] who?", model="local")["run"]
    assert served.call("run.state", run=run)["summary"] == ("hoot " * 200)[:500]


@pytest.mark.covers("R-183")
def test_the_context_of_a_run_that_was_stopped_is_that_of_its_last_counted_turn() -> None:
    turns = [{"prompt_tokens": 40, "output_tokens": 2}, {"prompt_tokens": 70, "output_tokens": 3}, {"prompt_tokens": None}]
    assert telemetry(turns) == {"context_tokens": 70, "prompt_tokens": 110, "output_tokens": 5}
    assert telemetry([{"prompt_tokens": None}])["context_tokens"] == 0


@pytest.mark.covers("R-183")
def test_the_state_of_a_run_that_never_asked_a_model_has_the_same_shape(served: Served) -> None:
    run = served.core.runs.begin(served.core.runs.sessions()[0]["id"], "chat").id
    bare, full = served.call("run.state", run=run), served.call("run.state", run=served.core.runs.list_runs(limit=50)[-1].id)
    assert set(bare) == set(full) and set(bare["telemetry"]) == set(full["telemetry"])
    assert set(bare["telemetry"].values()) == {0}


@pytest.mark.covers("S-009")
def test_sessions_and_channels_say_how_they_stand(served: Served) -> None:
    before = {one["id"]: one["messages"] for one in served.call("session.list")}
    run = served.call("message.send", text="[hoot] counted")["run"]
    session = served.core.runs.get(run).session
    found = next(one for one in served.call("session.list") if one["id"] == session)
    assert found["messages"] == before.get(session, 0) + 1 and found["created_ms"] > 0
    assert (found["channel"], found["id"]) == ("local", f"local:{found['sender_id']}")
    states = {one["name"]: one for one in served.call("channel.list")}
    assert (states["webhook"]["state"], states["webhook"]["problem"]) == ("off", "")


@pytest.mark.covers("R-184")
def test_a_client_is_told_of_what_waits_for_a_decision(served: Served) -> None:
    with served.client() as client:
        stream = client.stream("run.act", {"prompt": "[holds] Write it.", "model": "local"}, deadline_s=60)
        told = next(params for name, params in stream if name == "proposal")
    [waits] = served.call("entry.waiting", run=told["run"])
    assert told["refs"] == [waits["ref"]] and waits["ref"].startswith("log://turn_1/set/held"), (told, waits)
    served.call("run.stop", run=told["run"], is_queue_kept=True)


# -- tools ------------------------------------------------------------------------------------------


@pytest.mark.covers("R-056")
def test_a_tool_is_called_by_clients_under_its_own_name_as_soon_as_it_is_registered(served: Served) -> None:
    @tool(group="test", menu=())
    def hum(text: Annotated[str, "what"]) -> str:
        """Hum it."""
        return f"hm {text}"

    def called(name: str, **arguments: object) -> tuple[int, str]:
        outcome = served.call("tool.call", name=name, arguments=arguments)
        return outcome["status"], outcome["message"]

    assert called("hum", text="la")[0] == 404
    served.core.toolbox.add(hum)
    try:
        assert called("hum", text="la") == (200, "hm la")
        names = [one["name"] for one in served.call("tool.list")]
    finally:
        served.core.toolbox.remove("hum")
    assert called("hum", text="la")[0] == 404 and "hum" in names and len(names) > 60
    said = {name: called(name, strange=1) for name in names if name != "hum"}
    unlike = {name: one for name, one in said.items() if one[0] != 400 or "strange" not in one[1]}
    assert unlike == {"web_search": (503, "web_search is switched off")}, "each says itself that it has no such argument"


# -- the log of calls -------------------------------------------------------------------------------


@pytest.mark.covers("R-178", "A-188", "R-177")
def test_every_call_and_its_result_or_error_is_in_the_log_of_calls(served: Served) -> None:
    with served.client("logged") as client:
        client.call("thread.list", correlation="11111111-2222-4333-8444-555555555555")
        for name, params, kind in (("thread.view", {"id": "nothing"}, NotFound), ("thread.list", {"limit": 0}, BadInput)):
            with pytest.raises(kind):
                client.call(name, params)
        listed = partial(client.call, "call.list", {"limit": 10})
        until(lambda: sum(one["sender"].startswith("logged pid=") for one in listed()) >= 4)
        newest = [one for one in listed() if one["sender"].startswith("logged pid=") and one["method"] != "call.list"]
    calls = {(one["method"], one["outcome"]): one for one in newest}  # two that end together may be noted in either order
    wanted = {("thread.list", "bad_input"), ("thread.view", "not_found"), ("thread.list", "ok"), ("hello", "ok")}
    assert set(calls) == wanted and len(newest) == len(wanted)
    assert calls["thread.list", "bad_input"]["error"].startswith("limit:")
    assert calls["thread.list", "ok"]["correlation"].startswith("11111111-")
    assert {one["outcome"] for one in served.call("call.list", only="failed")} <= {"bad_input", "not_found", "permission"}
    assert {one["method"] for one in served.call("call.list", name="thread")} <= {"thread.list", "thread.view"}
    assert all(isinstance(one, dict) for one in served.call("call.list", limit=2000))


@pytest.mark.covers("R-178")
def test_the_log_of_calls_holds_what_was_said_for_its_caller_until_it_is_forgotten(served: Served) -> None:
    log_of_calls = served.core.calls

    def newest(name: str, person: str = "") -> CallRecord:
        found = log_of_calls.list_calls(limit=1, name=name, call=LocalCall(person=person))
        return found[0] if found else CallRecord(0, "", "", "")  # it is noted after the answer

    written = served.call("memory.write", text='The shed code is "9317".')
    until(lambda: "9317" in newest("memory.write").params)
    made = newest("memory.write")
    assert json.loads(made.params) == {"text": 'The shed code is "9317".'} and json.loads(made.result)["ref"] == written["ref"]
    assert (newest("memory.write", "ada").params, newest("memory.write", "ada").result) == ("", ""), "another's words"
    with pytest.raises(OwlError):
        served.call("login.enter", person="ada", password="correct horse")
    with pytest.raises(OwlError):
        served.call("tool.call", name="nothing", arguments={"api_token": "hush", "deep": [{"Password": "hush", "n": 1}]}, more=1)
    until(lambda: "deep" in newest("tool.call").params)
    assert (
        newest("login.enter").params == "" and "hush" not in newest("tool.call").params and '"n": 1' in newest("tool.call").params
    )
    served.call("memory.forget", key=written["record"]["id"])
    assert not [one for one in log_of_calls.list_calls(limit=2000, call=LocalCall()) if "9317" in one.params + one.result]
    assert newest("memory.write").outcome == "ok", "that it was made stays"
    thread = served.call("message.send", text="hoot about the cellar key")["run"]
    until(lambda: "cellar" in newest("message.send").params)
    served.call("thread.delete", id=thread)
    assert "cellar" not in newest("message.send").params + newest("message.send").result


def test_the_oldest_calls_make_room_and_a_long_answer_is_an_excerpt(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    log_of_calls = CallLog(store, most=3)
    for number in range(5):
        log_of_calls.note("uid=0", CallRecord(number, "x", "a.b", "ok"), {"n": number}, ["word " * 100] * 50)
    found = log_of_calls.list_calls(call=LocalCall(uid=0))
    store.close()
    assert [one.at_ms for one in found] == [4, 3, 2] and len(found[0].result) <= 2000 and found[0].params == '{"n": 4}'


def test_what_is_wrong_is_an_error_of_its_class_and_the_connection_stays(served: Served) -> None:
    with served.client() as client:
        with pytest.raises(OwlError, match="unknown method"):
            client.call("no.such")
        assert client.call("ping")["name"] == "core"
