"""The registry of tools: states, switches, roles, deadlines, and numbers that add up."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from appliance.agent.tool_counts import Tallies
from appliance.agent.toolbox import Caller, Needs, Toolbox, ToolRules, read_tool, tool
from appliance.clock import CancelToken
from appliance.errors import Cancelled, Conflict, NotFound
from appliance.policy.policy_file import Policy
from appliance.policy.rules import PolicyVerdict
from appliance.records import Outcome, Terms, ToolCall
from appliance.runtime.tool_settings import ToolSettings


@tool(group="test", is_read_only=True)
def echo(text: str) -> str:
    """Say it again."""
    return text


@tool(group="test")
def fall() -> str:
    """Fall over."""
    raise ValueError("over")


@tool(group="test", needs=Needs(deadline_s=0.05))
def linger(*, caller: Caller) -> str:
    """Wait to be stopped."""
    caller.cancel.wait(30)
    raise Cancelled("stopped")


@tool(group="lab", needs=Needs(version="2.1", roles=("coder", "chat"), network="proxy", profile="exec", mounts=("/srv",)))
def dig(*, caller: Caller) -> float:
    """Dig for something."""
    return caller.deadline_s


@tool(group="test")
def needy(*, missing: int) -> int:
    """Need what is not there."""
    return missing


FUNCTIONS = (echo, fall, linger, dig, needy)


@pytest.fixture
def box() -> Iterator[Toolbox]:
    made = Toolbox(FUNCTIONS, {}, rules=ToolRules(Policy()))
    yield made
    made.close()


def call(box: Toolbox, name: str, role: str = "", cancel: CancelToken | None = None, **arguments: object) -> Outcome:
    return box.dispatch(ToolCall("c", name, arguments), "run", cancel or CancelToken(), "s", terms=Terms(role=role))


def listed(box: Toolbox, name: str) -> dict[str, object]:
    return next(one for one in box.registry() if one["name"] == name)


@pytest.mark.covers("A-131", "A-146")
def test_definition_says_what_a_tool_needs(box: Toolbox) -> None:
    found, spec = listed(box, "dig"), read_tool(dig).spec
    assert (spec.name, spec.description, spec.schema["type"]) == ("dig", "Dig for something.", "object")
    needs = {
        "version": "2.1",
        "deadline_s": 0,
        "network": "proxy",
        "roles": ("coder", "chat"),
        "profile": "exec",
        "mounts": ("/srv",),
        "is_waiting": False,
        "is_beside": False,
        "reach": None,
        "is_inside": False,
    }
    assert (found["version"], found["group"], found["needs"]) == ("2.1", "lab", needs)
    assert listed(box, "echo")["needs"] == {
        "version": "1",
        "deadline_s": 0,
        "network": "none",
        "roles": (),
        "profile": "db",
        "mounts": (),
        "is_waiting": False,
        "is_beside": False,
        "reach": None,
        "is_inside": False,
    }


@pytest.mark.covers("A-131")
def test_tool_is_for_its_roles_only(box: Toolbox) -> None:
    assert call(box, "dig", "coder").status == 200
    refused = call(box, "dig", "worker")
    assert (refused.status, refused.message) == (403, "dig is for coder and chat, not for worker")
    assert call(box, "dig").status == 200  # a person, outside of any role
    assert "dig" in [s.name for s in box.specs("chat")] and "dig" not in [s.name for s in box.specs("worker")]


@pytest.mark.covers("A-132")
def test_result_says_how_long_the_call_took(box: Toolbox) -> None:
    fine, bad, slow = call(box, "echo", text="hi"), call(box, "fall"), call(box, "linger")
    assert (fine.message, fine.is_error, bad.is_error) == ("hi", False, True)
    assert fine.duration_ms is not None and bad.duration_ms is not None
    assert slow.duration_ms is not None and slow.duration_ms >= 50
    assert listed(box, "linger")["calls"]["duration_ms"] >= 50  # type: ignore[index]


@pytest.mark.covers("A-145")
@pytest.mark.parametrize(
    ("name", "arguments", "status", "outcome", "words"),
    [
        ("echo", {}, 400, "invalid_arguments", "text"),
        ("nothing", {}, 404, "not_found", "Unknown tool nothing"),
        ("needy", {}, 503, "unavailable", "no missing"),
    ],
)
def test_call_that_cannot_be_is_told_why_and_not_counted(
    box: Toolbox, name: str, arguments: dict[str, object], status: int, outcome: str, words: str
) -> None:
    found = call(box, name, **arguments)
    assert (found.status, found.outcome) == (status, outcome) and words in found.message
    assert all(one["calls"]["total"] == 0 for one in box.registry())


@pytest.mark.covers("A-145", "A-146")
@pytest.mark.parametrize("name", ["echo", "test"])
def test_what_is_switched_off_is_there_and_not_to_be_had(name: str) -> None:
    off: set[str] = set()
    box = Toolbox(FUNCTIONS, {}, rules=ToolRules(Policy(), settings=lambda: ToolSettings(disabled=tuple(off))))
    assert call(box, "echo", text="a").status == 200
    off.add(name)
    box.use(Policy())
    refused = call(box, "echo", text="b")
    assert (refused.status, refused.outcome, refused.message) == (503, "unavailable", "echo is switched off")
    assert (listed(box, "echo")["state"], listed(box, "echo")["is_enabled"]) == ("disabled", False)
    assert "echo" not in [s.name for s in box.specs("chat")] and listed(box, "dig")["is_enabled"]
    off.clear()
    assert call(box, "echo", text="c").status == 200
    box.close()


def test_a_closed_toolbox_says_so(box: Toolbox) -> None:
    box.close()
    assert (call(box, "echo", text="a").status, call(box, "echo", text="a").outcome) == (503, "unavailable")


@pytest.mark.covers("A-146")
def test_state_follows_the_calls() -> None:
    inside, go_on = threading.Event(), threading.Event()

    @tool(group="test")
    def busy() -> str:
        """Take a while."""
        inside.set()
        go_on.wait(30)
        return "done"

    box = Toolbox([busy, *FUNCTIONS], {}, rules=ToolRules(Policy()))
    assert [listed(box, name)["state"] for name in ("busy", "needy")] == ["available", "registered"]
    thread = threading.Thread(target=call, args=(box, "busy"))
    thread.start()
    assert inside.wait(30) and listed(box, "busy")["state"] == "busy"
    assert listed(box, "busy")["last_ms"] and listed(box, "busy")["calls"]["total"] == 0  # type: ignore[index]
    go_on.set()
    thread.join(60)
    assert listed(box, "busy")["state"] == "available"
    call(box, "fall")
    assert listed(box, "fall")["state"] == "error"
    box.close()


@pytest.mark.covers("A-146")
def test_numbers_tell_how_calls_ended(box: Toolbox) -> None:
    stopped = CancelToken()
    stopped.set()
    for name in ("fall", "fall", "linger"):
        call(box, name)
    call(box, "linger", cancel=stopped)
    call(box, "echo", text="a")
    assert [_numbers(box, name) for name in ("fall", "linger", "echo")] == [(2, 0, 2, 0, 0), (2, 0, 0, 1, 1), (1, 1, 0, 0, 0)]
    calls = listed(box, "linger")["calls"]
    assert calls["average_ms"] == round(calls["duration_ms"] / 2, 1)  # type: ignore[index]


def _numbers(box: Toolbox, name: str) -> tuple[int, ...]:
    calls: dict[str, int] = listed(box, name)["calls"]  # type: ignore[assignment]
    return tuple(calls[kind] for kind in ("total", "success", "failed", "timeout", "cancelled"))


@pytest.mark.covers("A-147")
def test_names_are_offered_once_and_taken_back_once(box: Toolbox) -> None:
    with pytest.raises(Conflict, match="echo is offered twice"):
        box.add(echo)
    box.remove("echo")
    assert call(box, "echo", text="a").status == 404
    with pytest.raises(NotFound, match="no tool echo"):
        box.remove("echo")
    box.add(echo)
    assert call(box, "echo", text="a").status == 200 and _numbers(box, "echo")[0] == 1


@pytest.mark.covers("A-148")
def test_parallel_calls_add_up_and_mix_nothing() -> None:
    box, wrong = Toolbox(FUNCTIONS, {}, rules=ToolRules(Policy()), threads=8), []

    def work(who: int) -> None:
        for number in range(40):
            text = f"{who}-{number}"
            if call(box, "echo", text=text).message != text:
                wrong.append(text)
            call(box, "fall")

    threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == [] and _numbers(box, "echo") == (320, 320, 0, 0, 0) and _numbers(box, "fall") == (320, 0, 320, 0, 0)
    box.close()


@pytest.mark.covers("A-070", "A-071")
def test_deadline_is_the_tools_own_unless_somebody_says_otherwise() -> None:
    box = Toolbox(FUNCTIONS, {}, rules=ToolRules(Policy(), deadline_s=7))
    assert (listed(box, "echo")["deadline_s"], listed(box, "linger")["deadline_s"]) == (7, 0.05)
    assert call(box, "dig").data == 7  # a tool is told
    assert call(box, "linger").outcome == "timeout"
    told = Toolbox(FUNCTIONS, {}, rules=ToolRules(Policy(), settings=lambda: ToolSettings(deadline_s=3, deadlines_s={"dig": 9})))
    assert [listed(told, name)["deadline_s"] for name in ("dig", "linger", "echo")] == [9, 0.05, 3]
    box.close()
    told.close()


@pytest.mark.covers("A-031")
def test_whoever_holds_the_tools_is_asked_before_each_call() -> None:
    asked: list[tuple[str, ...]] = []

    class Strict(ToolRules):
        def check(self, names: Sequence[str], *about: str) -> PolicyVerdict:
            asked.append((*names, *about))
            return PolicyVerdict(names[0] != "fall", "some.rule")

    box = Toolbox(FUNCTIONS, {}, rules=Strict(Policy()))
    assert call(box, "echo", "chat", text="a").status == 200
    assert call(box, "dig", "chat").status == 200
    refused = call(box, "fall", "chat")
    assert (refused.status, refused.message) == (403, "fall is not allowed here (some.rule)")
    wanted = [("echo", "chat", "s", "run", "none"), ("dig", "chat", "s", "run", "proxy"), ("fall", "chat", "s", "run", "none")]
    assert asked == wanted and _numbers(box, "fall")[0] == 0
    box.close()


def test_what_was_never_begun_has_no_numbers() -> None:
    tallies = Tallies()
    tallies.begin("a")
    tallies.end("a", Outcome(504, "timeout", ""), 7)
    assert (tallies.of("a").timeout, tallies.of("a").average_ms, tallies.of("b").total, tallies.of("b").average_ms) == (
        1,
        7.0,
        0,
        0.0,
    )
    tallies.forget("a")
    assert tallies.of("a").total == 0
    tallies.begin("b")
    tallies.forget("b")
    tallies.end("b", Outcome(200, "ok", ""), 7)  # it was removed while it ran
    assert tallies.of("b").total == 0
