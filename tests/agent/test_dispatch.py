"""Commands of one answer: recorded, then run in order; what fails, ends, waits or is refused."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from stores import new_store

from appliance import tools
from appliance.agent.dispatch import RECORDING, CommandScene, Dispatch, Dispatched, Recorded, RunLog, claim
from appliance.agent.toolbox import Toolbox, ToolRules, tool
from appliance.clock import CancelToken
from appliance.knowledge.entries import Entries
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Views
from appliance.policy.policy_file import Policy
from appliance.records import Event, Inbound, Outcome, RunSettings, Terms, ToolCall
from appliance.runtime.hooks import Hooks
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.tools.asking import split

ENTRIES = Terms(layout="entries")


@tool(group="shell", menu=("run",))
def sh(command: str) -> str:
    """Run it at once; only a test does that."""
    return f"ran {command}"


@tool(group="web", is_read_only=True, menu=("run",))
def look_up(query: str) -> str:
    """Look it up in the web."""
    return "found"


@tool(group="test", is_terminal=True, menu=("run",))
def finish(word: str = "") -> str:
    """End it."""
    return "ended"


class Desk:
    """A run, its tools and the dispatch, over a real database."""

    def __init__(self, store: Store) -> None:
        self.store, self.runs, self.entries, self.views = store, Runs(store, ""), Entries(store), Views(store)
        self.verbs = Verbs(store, self.entries, self.views, Schemes())
        services = {"verbs": self.verbs, "runs": self.runs, "entries": self.entries}
        self.policy = Policy()
        others = [one for one in tools.load() if one.tool.name != "sh"]
        self.toolbox = Toolbox([*others, sh, look_up, finish], services, rules=ToolRules(self.policy))
        self.hooks = Hooks()
        self.log = RunLog(store, self.runs, self.verbs)
        self.dispatch = Dispatch(self.toolbox, hooks=self.hooks, recorder=self.log)
        inbound = Inbound("local", "ada", "hi", "m", 1)
        with store.write():
            self.runs.touch_session(inbound)
        self.run = self.runs.begin(inbound.session, "chat").id
        self.runs.start_turn(self.runs.enqueue(self.run, 0, "c"), 1, "r")

    def do(self, *calls: ToolCall, terms: Terms = ENTRIES, cancel: CancelToken | None = None) -> tuple[str, Dispatched]:
        """The results as `tool:status`, and what the dispatch says."""
        scene = CommandScene(self.run, cancel or CancelToken(), terms=terms, specs=self.toolbox.specs("run"))
        events: list[Event] = []
        steps = self.dispatch.run(scene, calls)
        while True:
            try:
                events.append(next(steps))
            except StopIteration as end:
                results = " ".join(f"{e.tool}:{e.status}" for e in events if e.kind == "tool_result")
                return results, end.value

    def states(self) -> dict[str, tuple[str, int, str]]:
        found = self.views.views_of(self.run, prefix="log://")
        return {view.path: (view.state, view.status, view.outcome) for view in found}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    store = new_store(tmp_path / "owlbox.db")
    made = Desk(store)
    yield made
    made.toolbox.close()
    store.close()


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"id-{name}-{len(str(arguments))}", name, arguments)


def put(path: str, body: str = "x") -> ToolCall:
    return call("set", path=path, body=body)


@pytest.mark.covers("R-055", "R-057", "E-120")
def test_a_hidden_tool_is_refused_although_it_is_registered(desk: Desk) -> None:
    results, _ = desk.do(call("sh", command="rm -rf /"), terms=Terms("ask", layout="entries"))
    assert results == "sh:403" and desk.states() == {"log://turn_1/sh/rm_-rf_": ("failed", 403, "permission")}
    sql = "SELECT COUNT(*) FROM entries WHERE path LIKE 'sh://%'"
    assert desk.store.value(sql) == 0, "no channel of output"
    assert desk.do(call("look_up", query="owl"), terms=Terms(has_web=False))[0] == "look_up:403"
    assert desk.do(call("ask_user", question="Why?"), terms=Terms(has_interaction=False))[0] == "ask_user:403"
    assert desk.do(call("sh", command="date"), call("look_up", query="owl"))[0] == "sh:200 look_up:200"


@pytest.mark.covers("R-003", "R-054", "E-123")
@pytest.mark.parametrize(
    ("refused", "fine"),
    [
        (put("a.txt"), put("known://a")),
        (call("rm", path="here.txt"), call("rm", path="known://here")),
        (call("mv", path="known://here", to="b.txt"), call("mv", path="known://here", to="known://b")),
        (call("cp", path="known://here", to="b.txt"), call("cp", path="known://here", to="known://b")),
    ],
    ids=["set", "rm", "mv", "cp"],
)
def test_a_question_changes_no_file_and_everything_else(desk: Desk, refused: ToolCall, fine: ToolCall) -> None:
    desk.entries.set("here.txt", "x")
    desk.do(put("known://here"))
    asking = Terms("ask", layout="entries")
    assert desk.do(refused, terms=asking)[0] == f"{refused.name}:403"
    assert ("failed", 403, "permission:403") in desk.states().values()
    assert desk.do(fine, terms=asking)[0] == f"{fine.name}:200"
    assert desk.views.proposals(desk.run) == [] and desk.entries.get("here.txt").body == "x"


def test_nobody_is_waited_for_where_nobody_is(desk: Desk) -> None:
    alone = Terms(layout="entries", is_attended=False)
    results, done = desk.do(put("a.txt"), terms=alone)
    assert results == "set:403" and done.waits == () and "needs approval" in done.done[0].text
    assert desk.do(call("ask_user", question="Why?"), terms=alone)[0] == "ask_user:403"
    assert desk.do(put("known://a"), terms=alone)[0] == "set:200"


@pytest.mark.covers("R-061", "R-069", "R-070")
def test_a_failure_aborts_the_rest_and_no_end_counts_beside_it(desk: Desk) -> None:
    calls = [call("get", path="known://no"), put("known://a"), call("update", body="done", status=200)]
    results, done = desk.do(*calls)
    assert results == "get:404 set:424 update:409"
    assert list(desk.states().values()) == [
        ("failed", 404, "not_found"),
        ("failed", 424, "aborted"),
        ("failed", 409, "conflict"),
    ]
    assert done.done[1].outcome.outcome == "aborted"


def test_after_an_end_nothing_is_run(desk: Desk) -> None:
    assert desk.do(call("finish"), put("known://a"))[0] == "finish:200 set:424"
    assert desk.do(call("get", path="known://no"), call("finish"))[0] == "get:404 finish:409"


@pytest.mark.covers("R-059", "E-046")
@pytest.mark.parametrize(("path", "status"), [("known://" + "x" * 505, 400), ("known://" + "x" * 504, 200), ("a\x07b", 400)])
def test_a_target_of_more_than_512_characters_or_with_control_characters_is_refused(desk: Desk, path: str, status: int) -> None:
    assert desk.do(put(path))[0] == f"set:{status}"


@pytest.mark.covers("R-063", "R-085")
def test_what_waits_stops_everything_behind_it(desk: Desk) -> None:
    results, done = desk.do(put("known://a"), put("a.txt"), put("known://b"))
    assert results == "set:200" and len(done.waits) == 1
    assert desk.states()["log://turn_1/set/known%3A/b"] == ("streaming", 102, ""), "recorded, not run"
    assert [view.path for view in desk.views.proposals(desk.run)] == list(done.waits)


def test_what_was_recorded_and_not_run_is_run_in_its_own_entry(desk: Desk) -> None:
    later = put("known://b")
    desk.do(put("a.txt"), later)
    steps = desk.dispatch.rest(CommandScene(desk.run, CancelToken(), terms=ENTRIES, specs=desk.toolbox.specs("run")), [later])
    assert [e.status for e in steps] == [200]
    assert desk.states()["log://turn_1/set/known%3A/b"] == ("resolved", 200, "") and len(desk.states()) == 2


@pytest.mark.covers("R-060", "R-065", "E-125")
def test_recording_filters_run_by_priority(desk: Desk) -> None:
    seen: list[str] = []

    def note(name: str) -> Callable[[Recorded, CommandScene], Recorded]:
        def handler(recorded: Recorded, scene: CommandScene) -> Recorded:
            seen.append(name)
            return recorded

        return handler

    desk.hooks.add(RECORDING, note("ten"))
    desk.hooks.add(RECORDING, note("five"), 5)
    desk.do(put("known://a"))
    assert seen == ["five", "ten"]


def test_a_stop_runs_nothing_more(desk: Desk) -> None:
    stopped = CancelToken()
    stopped.set()
    assert desk.do(put("known://a"), put("known://b"), cancel=stopped)[0] == "set:499 set:424"
    assert "streaming" not in {state for state, _, _ in desk.states().values()}


@pytest.mark.covers("R-042")
def test_entries_of_calls_that_never_ended_are_closed(desk: Desk) -> None:
    desk.log.begin(desk.run, [put("known://a")])
    assert desk.log.mend(desk.run) == 1 and desk.log.mend(desk.run) == 0
    assert list(desk.states().values()) == [("failed", 499, "interrupted")]


@pytest.mark.covers("R-092")
@pytest.mark.parametrize(
    ("options", "found"), [("yes; no, never", ["yes", "no, never"]), ("yes, no", ["yes", "no"]), ("", []), (" ; a ;", ["a"])]
)
def test_options_are_divided_by_semicolons_or_else_by_commas(options: str, found: Sequence[str]) -> None:
    assert split(options) == found


@pytest.mark.parametrize(("given", "status"), [({"status": 200}, 200), ({"status": 102}, 0), ({}, 0), ({"status": "200"}, 0)])
def test_an_update_claims_an_end_only_by_its_status(given: dict[str, Any], status: int) -> None:
    assert claim(ToolCall("c", "update", given)) == status and claim(ToolCall("c", "set", given)) == 0


def test_a_result_that_waits_for_nobody_is_a_result(desk: Desk) -> None:
    @tool(group="test", menu=("run",))
    def queue_it() -> Outcome:
        """Put it into a queue of its own."""
        return Outcome(202, "accepted", "queued")

    desk.toolbox.add(queue_it)
    results, done = desk.do(call("queue_it"), put("known://a"))
    assert results == "queue_it:202 set:200" and done.waits == () and RunSettings().layout == "chat"
