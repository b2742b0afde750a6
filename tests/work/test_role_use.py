"""Another role that answers in somebody's own thread: it has there what it has in work that is handed to it, and no more."""

from collections.abc import Iterator

import pytest
from test_delegation import call, opened
from test_scenarios import CHAT, Stage, Told

from appliance.errors import NotFound, Refused
from appliance.records import RunSettings
from appliance.store import visibility

POLICY = """
[roles.coder]
deny = ["grep"]
"""
ANSWERS = {
    "first": ["Hoot."] * 20,
    "coding": [
        call("write_file", path="a.txt", content="kept"),
        call("web_search", query="x"),
        call("grep", pattern="x"),
        "Written.",
    ],
    "held": [call("exec", command="cat a.txt"), "Held."],
    "back": [call("write_file", path="b.txt", content="no"), "Back."] * 2,
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("role-use")
    with opened(folder, ANSWERS) as made:
        yield made


def begun(stage: Stage, settings: RunSettings = CHAT) -> str:
    return stage.ask("[first] Hello.", settings).run


def results(told: Told) -> dict[str, tuple[int, str]]:
    return {event.tool: (event.status, event.content) for event in told.events("tool_result")}


@pytest.mark.covers("S-017", "E-248")
def test_a_role_in_a_chat_has_its_own_tools_and_the_policy_of_its_name(stage: Stage) -> None:
    run = begun(stage)
    session = stage.core.runs.get(run).session
    stage.core.policy.gate.set_session(session, POLICY, "root")
    assert stage.core.role_service.use_role(run, "coder").role == "coder"
    told = results(stage.ask("[coding] Go.", thread=run))
    assert told["write_file"][0] == 200 and [told[name][0] for name in ("web_search", "grep")] == [403] * 2
    assert "web_search is not a tool of role coder" in told["web_search"][1] and "roles.coder" in told["grep"][1]
    assert "not a tool of role assistant" in results(stage.ask("[back] Go.", CHAT))["write_file"][1]  # the next run
    assert stage.core.role_service.use_role(run, "assistant").role == ""
    assert "not a tool of role assistant" in results(stage.ask("[back] Go.", thread=run))["write_file"][1]
    stage.core.policy.gate.lift_session(session, "root")


def test_a_role_in_a_thread_with_a_strangers_text_has_its_calls_held(stage: Stage) -> None:
    run = begun(stage, RunSettings(approval="auto"))
    stage.core.runs.taint(run, "web", "https://evil.example/x")
    stage.core.role_service.use_role(run, "coder")
    told = stage.ask("[held] Go.", thread=run)
    (waits,) = stage.core.approvals.waiting(run)
    assert told.end.status == 202 and "evil.example" in stage.core.approvals.show(waits.ref, run).because


def test_nobody_gets_by_a_role_what_the_assistant_may_not_hand_over(stage: Stage) -> None:
    run, file = begun(stage), stage.core.home.box / "roles" / "assistant.md"
    session = stage.core.runs.get(run).session
    file.parent.mkdir(exist_ok=True)
    for text in ("tools: [knowledge]", "preset: open\ntools: [knowledge, planning]"):
        file.write_text(f"---\n{text}\n---\n")
        with pytest.raises(Refused, match="the assistant hands it no work"):
            stage.core.role_service.use_role(run, "coder")
    file.write_text("---\npreset: delegating\n---\n")
    assert stage.core.role_service.use_role(run, "worker").role == "worker"
    file.unlink()
    stage.core.policy.gate.set_session(session, '[roles.assistant]\ndeny = ["delegate"]\n', "root")
    with pytest.raises(Refused, match=r"roles\.assistant"):
        stage.core.role_service.use_role(run, "coder")
    assert stage.core.role_service.use_role(run, "").role == ""
    stage.core.policy.gate.lift_session(session, "root")


def test_only_whoever_is_shown_a_thread_says_who_answers_there(stage: Stage) -> None:
    run = begun(stage)
    with visibility.asked_by("eve", "user:eve", frozenset({"user:eve", "group:family"})), pytest.raises(NotFound):
        stage.core.role_service.use_role(run, "coder")
    with visibility.asked_by("ada", "user:ada", frozenset({"user:ada"})):
        assert stage.core.role_service.use_role(run, "memory").role == "memory"
        for name in ("heartbeat", "child", "nobody"):
            with pytest.raises(NotFound):
                stage.core.role_service.use_role(run, name)
