"""Work handed to roles and helpers: what they see, what comes back, side by side, stopped, killed and taken up again."""

import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from process import clean_environ
from stores import new_home
from test_database import until
from test_scenarios import CHAT, Stage, Told, script
from ticks import Silent

from appliance.agent.toolbox import Caller, Needs, tool
from appliance.clock import CancelToken, new_id, now_ms
from appliance.errors import NotFound
from appliance.prompt.roles import WORKER
from appliance.records import Event, Inbound, Outcome, RunSettings, Terms, ToolCall
from appliance.runtime.paths import Home
from appliance.runtime.settings import WorkerSettings
from appliance.service.core import Core
from appliance.work.briefing import Briefing
from appliance.work.jobs import DONE, JobEnded, JobOrder, JobTerms
from appliance.work.tasks import NewTask
from appliance.work.tick import TickParts, Ticks

TERMS = Terms(role="assistant")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def use(name: str, **arguments: Any) -> dict[str, Any]:
    return call("use", tool=name, arguments=arguments)


def delegate(agent: str, task: str, **more: Any) -> dict[str, Any]:
    return use("delegate", agent=agent, task=task, **more)


ANSWERS: dict[str, Sequence[Any]] = {
    "simple": ["It is noon."] * 30,
    "to-worker": [delegate("worker", "[of-worker] Look.", context="It is dark.", responseFormat="one word"), "He saw an owl."],
    "of-worker": ["An owl."],
    "to-coder": [delegate("coder", "[of-coder] Write it."), "It is written."],
    "of-coder": [call("write_file", path="a.txt", content="kept"), call("web_search", query="x"), "Written."],
    "to-researcher": [delegate("researcher", "[of-researcher] Find it."), "Found."],
    "of-researcher": [call("message", content="hi"), "Nothing found."],
    "to-memory": [delegate("memory", "[of-memory] Keep it."), "Kept."],
    "of-memory": [call("remember", text="Ada likes owls.", title="Owls"), call("exec", command="ls"), "Kept one."],
    "to-behind": [delegate("worker", "[of-behind] Take your time.", priority="background"), "It is on its way."],
    "of-behind": [{"text": "At last.", "delay_s": 0.3}],
    "to-nobody": [delegate("plumber", "Mend it."), delegate("worker", " "), "I could not."],
    "to-busy": [delegate("memory", "[of-busy] Go on and on."), "Too long."],
    "of-busy": [call("remember", text=f"fact {n}", title=f"fact {n}") for n in range(20)],
    "to-broken": [delegate("worker", "[of-broken] Try."), "It failed."],
    "of-broken": [use("list_dir", path="."), call("write_file", path="b.txt", content="half"), {"text": "", "error": "timeout"}],
    "to-flaky": [delegate("worker", "[of-flaky] Try."), "It worked."],
    "of-flaky": [{"text": "", "error": "unavailable"}, "Third time lucky."],
    "to-slow": [delegate("researcher", "[of-slow] Wait.", operation="deep_research", timeout=1), "Too slow."],
    "of-slow": [{"text": "never said", "delay_s": 30}],
    "to-child": [delegate("worker", "[of-child] Ask others."), "Done."],
    "of-child": [use("delegate", agent="coder", task="No."), use("spawn", task="No."), "I may not."],
    "to-asking": [delegate("coder", "[of-asking] Change it.")],
    "stopped": [delegate("worker", "[of-stopped] Wait."), "never said"],
    "of-stopped": [{"text": "never said", "delay_s": 30}],
    "spawning": [use("spawn", task="[one] Do one."), use("spawn", task="[two] Do two."), use("spawn_await", job_ids="*"), "Both."],
    "one": ["The first."],
    "two": ["The second."],
    **{
        f"tries-{role}": [
            call("write_file", path=f"{role}.txt", content="x"),
            call("read_file", path=f"{role}.txt"),
            call("message", content=f"From {role}."),
            call("exec", command="ls"),
            call("remember", text=f"{role} was here.", title=role),
            "Tried.",
        ]
        for role in ("worker", "heartbeat")
    },
    "to-teller": [delegate("worker", "[of-teller] Tell."), "Told."],
    "of-teller": [call("message", content="Half way."), "Done."],
    **{f"warm-{n}": [delegate("worker", f"[of-warm-{n}] Go."), "Warm."] for n in (1, 2)},
    **{f"of-warm-{n}": ["Here."] for n in (1, 2)},
    "to-heard": [delegate("worker", "[of-heard] Look."), "Heard."],
    "of-heard": ["An owl.", "An owl."],
    "own": [{"text": "Hoot.", "repeat": True}],
    "of-broken-2": [{"text": "", "error": "timeout"}] * 3,
    "to-worker-2": [delegate("worker", "[of-worker-2] Look."), "Seen."],
    "of-worker-2": ["An owl."],
    **{f"parent-{n}": [delegate("meeter", f"[side-{n}] Meet."), f"Met {n}."] for n in range(4)},
    **{f"side-{n}": [call("meet", at="sides"), "Met."] for n in range(4)},
    **{f"task-{n}": [delegate("meeter", f"[help-{n}] Meet."), call("complete_task", summary=f"met {n}")] for n in range(2)},
    **{f"help-{n}": [call("meet", at="helps"), "Met."] for n in range(2)},
}
ANSWERS |= {
    "twins": [
        {"tool_calls": [*delegate("meeter", "[twin-0] Meet.")["tool_calls"], *delegate("meeter", "[twin-1] Meet.")["tool_calls"]]},
        "Both.",
    ],
    **{f"twin-{n}": [call("meet", at="twins"), f"Met {n}."] for n in range(2)},
    "odd": [
        {
            "tool_calls": [
                *delegate("worker", "[odd-fails] Try.")["tool_calls"],
                *delegate("worker", "[odd-works] Try.")["tool_calls"],
                *use("list_tasks")["tool_calls"],
            ]
        },
        "One of two.",
    ],
    "odd-fails": [{"text": "", "error": "failed"}],
    "odd-works": ["It worked."],
    "to-gone": [delegate("worker", "[of-gone] Try.", timeout=2), "No model."],
    "of-gone": [{"text": "", "error": "unavailable", "delay_s": 0.7, "repeat": True}],
    "both-stop": [
        {"tool_calls": [one for n in range(2) for one in delegate("worker", f"[stop-{n}] Wait.")["tool_calls"]]},
        "never said",
    ],
    **{f"stop-{n}": [{"text": "never said", "delay_s": 60}] for n in range(2)},
}
BARRIERS = {"sides": threading.Barrier(4), "helps": threading.Barrier(2), "twins": threading.Barrier(2)}


@tool(group="test", menu=(), is_terminal=False, needs=Needs())
def meet(at: Annotated[str, "where"], *, caller: Caller) -> str:
    """Wait until everybody is here."""
    BARRIERS[at].wait(120)
    return "met"


@contextmanager
def opened(folder: Path, told: dict[str, Sequence[Any]] = ANSWERS, **keys: str) -> Iterator[Stage]:
    """A core that stays, in this process, with a broker that plays the answers."""
    runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir(0o700)
    home = Home(folder / "home")
    if not home.database.exists():
        new_home(home)
    given = {"OWLBOX__MODELS__SCRIPT": script(folder, told), "OWLBOX__MODELS__CONTEXT": "200000"}
    given |= {f"OWLBOX__{name}": value for name, value in keys.items()}
    core = Core(home, clean_environ(folder, runtime) | given)
    core.recover()
    yield Stage(core)
    assert core.close("the test is over") == []
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("delegation")
    with opened(folder, DELEGATION__RETRY_S="0.05", DELEGATION__SPAWN="true") as made:
        made.core.toolbox.add(meet)
        (made.core.home.box / "roles").mkdir(exist_ok=True)
        (made.core.home.box / "roles" / "meeter.md").write_text("---\ntools: [meet, list_dir]\n---\nYou meet others.\n")
        yield made


def asked(stage: Stage, name: str, settings: RunSettings = CHAT) -> Told:
    return stage.ask(f"[{name}] Go.", settings)


def notes(stage: Stage, run: str) -> list[Event]:
    return [event for event in stage.core.runs.events(run) if event.kind == "delegate"]


def child(stage: Stage, told: Told) -> list[Event]:
    """What happened in the run of the only job."""
    (job,) = stage.core.jobs.jobs_of(told.run)
    return stage.core.runs.events(job.run)


# -- one piece of work -----------------------------------------------------------------------------------


@pytest.mark.covers("A-088", "A-090", "A-092", "A-096", "A-079")
def test_a_child_sees_what_it_is_given_and_its_parent_sees_the_result(stage: Stage) -> None:
    told = asked(stage, "to-worker")
    assert (told.end.status, told.said, told.deeds) == (200, "He saw an owl.", "use:200")
    (result,) = told.events("tool_result")
    assert result.content.startswith("worker finished in ") and result.content.endswith(" s:\nAn owl.")
    first, *_ = child(stage, told)
    assert first.content == "It is dark.\n\n[of-worker] Look.\n\nAnswer in this form: one word"
    (note,) = notes(stage, told.run)
    assert (note.input or {})["agent"] == "worker" and note.content == result.content and note.status == 200
    kinds = {event.kind for event in stage.core.runs.events(told.run)}
    assert kinds == {"message", "tool_use", "tool_result", "delegate"}
    messages = stage.core.runs.recent(told.run, 100)
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]


def test_what_was_heard_needs_no_letter_after_the_next_start(stage: Stage) -> None:
    told = asked(stage, "to-heard")
    (job,) = stage.core.jobs.jobs_of(told.run)
    assert job.status == DONE and job.is_told
    with stage.core.store.write():
        stage.core.runs.open_session("task:eve", "eve", "user:eve")
        waiting = stage.core.runs.begin("task:eve", "chat").id
    alone = stage.core.jobs.add(JobOrder("worker", "[of-heard] x", session="task:eve", parent=waiting, tool="delegate"))
    (ended,) = stage.core.jobs.wait([alone.id], CancelToken(), 60)
    assert ended.status == DONE and not ended.is_told  # nobody has gone on with it


@pytest.mark.covers("A-089", "A-005")
def test_a_simple_question_sets_nobody_to_work(stage: Stage) -> None:
    before = stage.core.store.value("SELECT COUNT(*) FROM runs")
    told = asked(stage, "simple")
    assert told.said == "It is noon." and stage.core.jobs.jobs_of(told.run) == []
    assert stage.core.store.value("SELECT COUNT(*) FROM runs") == before + 1


@pytest.mark.covers("A-085", "A-082", "A-081", "A-083")
@pytest.mark.parametrize(
    ("name", "refused", "done"),
    [
        ("coder", "web_search is not a tool of role coder", ["write_file"]),
        ("researcher", "message is not a tool of role researcher", []),
        ("memory", "exec is not a tool of role memory", ["remember"]),
    ],
)
def test_a_call_outside_of_a_roles_tools_is_refused_and_names_both(stage: Stage, name: str, refused: str, done: list[str]) -> None:
    told = asked(stage, f"to-{name}")
    assert told.end.status == 200
    results = [event for event in child(stage, told) if event.kind == "tool_result"]
    assert [event.tool for event in results if event.status == 200] == done
    assert [refused in event.content for event in results if event.status == 403] == [True]


@pytest.mark.covers("A-091")
def test_work_in_the_background_is_acknowledged_at_once_and_told_later(stage: Stage) -> None:
    told = asked(stage, "to-behind")
    (ack,) = told.events("tool_result")
    assert told.said == "It is on its way." and "its result comes as a message" in ack.content
    (job,) = stage.core.jobs.jobs_of(told.run)
    (ended,) = stage.core.jobs.wait([job.id], CancelToken(), 60)
    assert (ended.status, ended.result, ended.is_told) == (DONE, "At last.", True)
    letter = stage.core.outbox.find(f"job:{job.id}")
    assert letter is not None and letter.notification.person == "ada" and letter.notification.run == told.run
    assert letter.notification.text == ended.describe_end() and letter.notification.context == "user:ada"


@pytest.mark.covers("A-095")
def test_an_unknown_agent_and_an_empty_task_are_results_that_the_model_reads(stage: Stage) -> None:
    told = asked(stage, "to-nobody")
    assert told.end.status == 200 and told.said == "I could not."
    first, second = (event.content for event in told.events("tool_result"))
    assert "no agent plumber" in first and "there are worker, researcher, coder, memory" in first
    assert "task: is required" in second and stage.core.jobs.jobs_of(told.run) == []


@pytest.mark.covers("A-086", "A-096")
def test_the_cap_of_a_role_ends_its_work_with_an_outcome_of_its_own(stage: Stage) -> None:
    told = asked(stage, "to-busy")
    (job,) = stage.core.jobs.jobs_of(told.run)
    assert (job.status, job.outcome) == ("failed", "max_turns")
    assert "Max turns exceeded (10)" in job.result and told.deeds == "use:500"
    assert sum(event.kind == "tool_use" for event in child(stage, told)) == 10


@pytest.mark.covers("A-017")
def test_a_failure_names_what_was_completed_and_takes_nothing_back(stage: Stage) -> None:
    told = asked(stage, "to-broken")
    (result,) = told.events("tool_result")
    assert result.status >= 500 and "Completed before that, and not taken back: list_dir(.); write_file(b.txt)." in result.content
    (job,) = stage.core.jobs.jobs_of(told.run)
    assert job.attempts == 1  # what changes things is not done twice
    folder = stage.core.home.root / "sessions"
    assert [path.read_text() for path in folder.rglob("b.txt")] == ["half"]


@pytest.mark.covers("A-094")
def test_work_that_a_model_kept_from_beginning_is_tried_again(stage: Stage) -> None:
    told = asked(stage, "to-flaky")
    (job,) = stage.core.jobs.jobs_of(told.run)
    assert (job.status, job.result) == (DONE, "Third time lucky."), job
    assert told.said == "It worked."


@pytest.mark.covers("A-094", "A-093")
def test_an_operation_ends_in_time_and_says_so(stage: Stage) -> None:
    told = asked(stage, "to-slow")
    (result,) = told.events("tool_result")
    assert (result.status, result.outcome) == (504, "timeout")
    assert "researcher (deep_research) failed" in result.content and "it took longer than 1 s" in result.content


@pytest.mark.covers("A-094")
def test_all_tries_together_have_the_time_of_the_job(tmp_path: Path) -> None:
    with opened(tmp_path, {name: ANSWERS[name] for name in ("to-gone", "of-gone")}, DELEGATION__RETRY_S="600") as other:
        told = asked(other, "to-gone")
        (job,) = other.core.jobs.jobs_of(told.run)
    assert (job.status, job.outcome, job.attempts) == ("failed", "timeout", 1), "it is over in the pause before the second try"
    assert job.result == "it took longer than 2 s. Nothing was completed." and told.said == "No model."


@pytest.mark.covers("S-091")
def test_a_child_starts_no_children(stage: Stage) -> None:
    told = asked(stage, "to-child")
    results = [event for event in child(stage, told) if event.kind == "tool_result"]
    assert [event.status for event in results] == [403, 403]
    job = stage.core.jobs.jobs_of(told.run)[0]
    assert stage.core.jobs.jobs_of(job.run) == []
    plain = stage.core.role_service.menu(stage.core.roles.child())
    assert not {"delegate", "spawn", "spawn_await", "spawn_worker"} & {spec.name for spec in plain} and len(plain) <= 8


def test_stopping_a_thread_stops_those_it_waits_for(stage: Stage) -> None:
    found: list[Told] = []
    thread = threading.Thread(target=lambda: found.append(asked(stage, "stopped")))
    thread.start()
    until(
        lambda: any(job.task.startswith("[of-stopped]") and job.status == "running" for job in stage.core.jobs.list_jobs(limit=5))
    )
    (job,) = [job for job in stage.core.jobs.list_jobs(limit=5) if job.task.startswith("[of-stopped]")]
    assert stage.inbox.stop(job.parent)
    thread.join(60)
    assert found[0].end.status == 499
    (ended,) = stage.core.jobs.wait([job.id], CancelToken(), 60)
    assert ended.status == "cancelled"


@pytest.mark.covers("A-080", "A-084")
@pytest.mark.parametrize(
    ("role", "deeds"),
    [
        ("worker", "write_file:200 read_file:200 message:200 exec:403 remember:403"),
        ("heartbeat", "write_file:403 read_file:404 message:200 exec:403 remember:200"),
    ],
)
def test_worker_and_heartbeat_do_what_their_tools_allow_and_no_more(stage: Stage, role: str, deeds: str) -> None:
    asked(stage, "simple")
    job = stage.core.jobs.add(JobOrder(role, f"[tries-{role}] Go.", JobTerms(), "local:ada", priority="background", is_told=True))
    (ended,) = stage.core.jobs.wait([job.id], CancelToken(), 60)
    assert (ended.status, ended.result) == (DONE, "Tried."), ended
    results = [event for event in stage.core.runs.events(ended.run) if event.kind == "tool_result"]
    assert " ".join(f"{event.tool}:{event.status}" for event in results) == deeds


def test_what_a_helper_says_beside_is_said_in_the_thread_it_works_for(stage: Stage) -> None:
    told = asked(stage, "to-teller")
    (letter,) = [one.notification for one in stage.core.outbox.list_postings(limit=50) if one.notification.text == "Half way."]
    assert (letter.run, letter.person) == (told.run, "ada")


@pytest.mark.covers("A-097")
def test_no_process_is_started_for_work_that_is_handed_over(stage: Stage) -> None:
    def children() -> set[str]:
        return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}

    asked(stage, "warm-1")
    before = children()
    told = asked(stage, "warm-2")
    assert told.said == "Warm." and children() <= before


# -- side by side ----------------------------------------------------------------------------------------


def met(stage: Stage, run: str) -> list[tuple[int, str]]:
    """What came of the meetings of those to whom a run handed work: a model says its words whatever a tool answers."""
    events = [event for job in stage.core.jobs.jobs_of(run) for event in stage.core.runs.events(job.run)]
    return [(event.status, event.content) for event in events if event.kind == "tool_result"]


def test_four_waiting_parents_leave_the_four_threads_of_tools_to_their_children(stage: Stage) -> None:
    """Each child waits in a tool for all the others: it ends only if no waiting parent holds a thread that they need."""
    told: dict[int, tuple[str, list[tuple[int, str]]]] = {}

    def parent(number: int) -> None:
        inbound = Inbound("local", f"ann{number}", f"[parent-{number}] Go.", new_id(), now_ms(), settings=CHAT)
        accepted = stage.inbox.accept(inbound, new_id())
        heard = stage.heard(Told(accepted.run, accepted.loop), lambda: stage.inbox.start(accepted.loop))
        told[number] = heard.said, met(stage, accepted.run)

    threads = [threading.Thread(target=parent, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert told == {n: (f"Met {n}.", [(200, "met")]) for n in range(4)}


@pytest.mark.covers("S-089")
def test_what_one_answer_hands_to_several_is_done_side_by_side(stage: Stage) -> None:
    """Each child waits in a tool for the other: one after the other, neither would end well."""
    told = asked(stage, "twins")
    results = [event.content.partition(":\n")[2] for event in told.events("tool_result")]
    assert results == ["Met 0.", "Met 1."] and told.said == "Both.", "in the order in which they were asked for"
    assert met(stage, told.run) == [(200, "met")] * 2
    given = {event.call_id: (event.input or {})["arguments"]["task"] for event in told.events("tool_use")}
    assert [given[event.call_id] for event in told.events("tool_result")] == ["[twin-0] Meet.", "[twin-1] Meet."]


@pytest.mark.covers("A-017", "A-096")
def test_one_of_several_that_fails_leaves_the_others_their_results_and_ends_what_comes_behind(stage: Stage) -> None:
    told = asked(stage, "odd")
    first, second, third = told.events("tool_result")
    assert first.status >= 500 and "worker failed after" in first.content
    assert second.status == 200 and second.content.endswith("It worked.")
    assert (third.status, third.outcome) == (424, "aborted")
    assert told.said == "One of two."


def test_stopping_a_thread_stops_all_that_one_answer_began(stage: Stage) -> None:
    found: list[Told] = []
    thread = threading.Thread(target=lambda: found.append(asked(stage, "both-stop")))
    thread.start()

    def mine() -> list[Any]:
        return [job for job in stage.core.jobs.list_jobs(limit=9) if job.task.startswith("[stop-") and job.status == "running"]

    until(lambda: len(mine()) == 2)
    jobs = mine()
    assert stage.inbox.stop(jobs[0].parent)
    thread.join(60)
    assert found[0].end.status == 499
    assert {job.status for job in stage.core.jobs.wait([job.id for job in jobs], CancelToken(), 60)} == {"cancelled"}


def test_two_workers_with_two_waiting_parents_do_not_starve(stage: Stage) -> None:
    """There is nobody else to do what the two wait for, and what each waits for waits for the other's."""
    core = stage.core
    tasks = [core.tasks.add(NewTask(f"[task-{n}] Meet somebody.", person="ada")) for n in range(2)]
    briefing = Briefing(core.tasks, core.runs, core.entries)
    parts = TickParts(core.store, core.tasks, core.runs, core.loops, core.models, core.packets, briefing, roles=core.roles)
    workers = [Ticks(parts, lambda: WorkerSettings(max_turns=5), Silent()) for _ in tasks]
    threads = [threading.Thread(target=one.tick, args=(f"worker-{n}", tasks[n].id)) for n, one in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    runs = {job.parent for job in core.jobs.list_jobs(limit=9) if job.task.startswith("[help-")}
    assert len(runs) == 2 and [met(stage, run) for run in runs] == [[(200, "met")]] * 2
    assert [(core.tasks.get(task.id).status, core.tasks.get(task.id).output) for task in tasks] == [
        ("complete", "met 0"),
        ("complete", "met 1"),
    ]


# -- helpers ---------------------------------------------------------------------------------------------


def tried(stage: Stage, run: str, name: str, terms: Terms = TERMS, **arguments: Any) -> Outcome:
    return stage.core.toolbox.dispatch(ToolCall("c", name, arguments), run, CancelToken(), "local:ada", terms=terms)


@pytest.mark.covers("S-088", "S-089", "S-090", "E-285")
def test_helpers_work_side_by_side_and_their_results_are_collected(stage: Stage) -> None:
    told = asked(stage, "spawning")
    first, second, results = (event.content for event in told.events("tool_result"))
    jobs = stage.core.jobs.jobs_of(told.run)
    assert [job.id for job in jobs] == [first, second] and all(re.fullmatch("[0-9a-f]{8}", job.id) for job in jobs)
    assert results == f"[{first}: OK]\nThe first.\n\n[{second}: OK]\nThe second."
    assert told.said == "Both." and all(stage.core.outbox.find(f"job:{job.id}") is None for job in jobs)


@pytest.mark.covers("S-088", "S-090", "E-285")
def test_what_a_helper_is_asked_wrongly_is_said(stage: Stage) -> None:
    run = asked(stage, "simple").run
    assert "task: is required" in tried(stage, run, "spawn", task=" ").message
    unknown = tried(stage, run, "spawn", task="x", profile="poet")
    assert (unknown.status, unknown.message) == (400, "no profile poet") and unknown.hint == "there are meeter"
    assert tried(stage, run, "spawn_await", job_ids="*").message == "No jobs found."
    assert tried(stage, run, "spawn_await", job_ids="0a1b2c3d").message == "[0a1b2c3d: NOT FOUND]"
    assert tried(stage, run, "spawn_await").status == 400


@pytest.mark.covers("S-090", "E-285")
def test_a_helper_that_fails_is_text_and_no_error_of_the_tool(stage: Stage) -> None:
    run = asked(stage, "simple").run
    made = tried(stage, run, "spawn", task="[of-broken-2] Try.", tools="read_file")
    outcome = tried(stage, run, "spawn_await", job_ids=made.message)
    assert outcome.status == 200 and outcome.message.startswith(f"[{made.message}: ERROR]\n")


@pytest.mark.covers("S-088", "S-090")
def test_nobody_gets_the_results_of_somebody_elses_helpers(stage: Stage) -> None:
    mine, other = asked(stage, "simple").run, asked(stage, "simple").run
    made = tried(stage, mine, "spawn", task="[own] Hoot.")
    assert tried(stage, other, "spawn_await", job_ids=made.message).message == f"[{made.message}: NOT FOUND]"
    assert tried(stage, mine, "spawn_await", job_ids=made.message).message == f"[{made.message}: OK]\nHoot."


@pytest.mark.covers("S-092", "S-091", "E-286", "E-287")
def test_a_profile_decides_what_its_helper_is_told_and_has(stage: Stage) -> None:
    core, box = stage.core, stage.core.home.box
    front = "prompt_file: verse.md\ntools: read_file, spawn\npool: small\nskills: false"
    (box / "roles" / "poet.md").write_text(f"---\n{front}\n---\nYou write verses.\n")
    before = core.roles.child("poet")
    assert (before.documents, before.pool, before.text) == (("AGENTS", "ENVIRONMENT"), "small", "You write verses.")
    (box / "verse.md").write_text("Rhyme.")
    assert core.roles.child("poet").text == "Rhyme.\n\nYou write verses."
    (box / "verse.md").write_text("Do not rhyme.")
    found = core.roles.child("poet")
    assert found.text == "Do not rhyme.\n\nYou write verses."
    assert [spec.name for spec in core.role_service.menu(found)] == ["read_file"]
    system = core.packets.system(core.role_service.menu(found), "native", role=found)
    assert [part.name for part in system] == ["instructions", "style"]  # AGENTS and ENVIRONMENT are empty as they ship
    (box / "AGENTS.md").write_text("Leave the cellar alone.")
    assert [part.name for part in core.packets.system((), "native", role=found)] == ["AGENTS", "instructions", "style"]
    run = asked(stage, "simple").run
    made = tried(stage, run, "spawn", task="[own] x", profile="poet", system_prompt="You shout.").message
    job = core.jobs.get(made)
    assert core.role_service.delegation._role_of(job).text == "Do not rhyme.\n\nYou shout."
    assert tried(stage, run, "spawn_await", job_ids=made).message.startswith(f"[{made}: OK]")
    (box / "roles" / "plain.md").write_text("---\nprompt_file: none.md\n---\nYou are plain.\n")
    assert (core.roles.child("plain").pool, core.roles.child("plain").text) == ("", "You are plain.")


@pytest.mark.covers("S-093")
def test_profiles_are_offered_when_there_are_any(stage: Stage) -> None:
    core = stage.core
    spec = core.toolbox.spec("delegate")
    assert spec is not None and "meeter" in spec.schema["properties"]["agent"]["enum"]
    assert spec.schema["required"] == ["task"] and "collect" in spec.schema["properties"]["priority"]["enum"]
    menu = core.role_service.menu(core.roles.assistant())
    (shown,) = [part.text for part in core.packets.system(menu, "native") if part.name == "profiles"]
    assert '<profile name="meeter">' in shown
    assert all(part.name != "profiles" for part in core.packets.system((), "native"))


@pytest.mark.covers("S-028", "S-094", "S-093")
def test_spawn_is_not_there_until_it_is_switched_on(tmp_path: Path) -> None:
    with opened(tmp_path, {"x": ["y"]}) as other:
        spec = other.core.toolbox.spec("delegate")
        assert spec is not None and other.core.toolbox.spec("spawn_await") is None
        assert spec.schema["required"] == ["agent", "task"]
        assert "collect" not in spec.schema["properties"]["priority"]["enum"] and "tools" not in spec.schema["properties"]
        refused = other.core.toolbox.dispatch(ToolCall("c", "spawn", {"task": "x"}), "", CancelToken(), "local:ada")
        assert (refused.status, refused.hint) == (503, "delegation.spawn = true offers them")
        menu = other.core.role_service.menu(other.core.roles.assistant())
        assert all(part.name != "profiles" for part in other.core.packets.system(menu, "native"))


# -- the code variant ------------------------------------------------------------------------------------


@pytest.mark.covers("A-093", "A-094", "A-095")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"agent": "worker", "operation": "execute_code"}, "worker has no operation execute_code"),
        ({"agent": "memory", "operation": "deep_research"}, "memory has no operation deep_research"),
        ({"agent": "worker", "task": "x", "timeout": 301}, "timeout 301"),
        ({"agent": "worker", "task": "x", "timeout": -1}, "timeout -1"),
        ({"agent": "worker", "task": "x", "priority": 9}, "Invalid input for delegate: priority"),
        ({"agent": "assistant", "task": "x"}, "no agent assistant"),
        ({"task": "x"}, "agent: is required"),
        ({"agent": "heartbeat", "task": "x"}, "no agent heartbeat"),
        ({"agent": "worker", "operation": "read_file"}, "parameters: read_file needs path"),
        ({"agent": "worker", "operation": "write_file", "parameters": {"path": "a"}}, "parameters: write_file needs content"),
        ({"target": "coder", "operation": "review_code"}, "parameters: review_code needs some"),
        ({"target": "coder", "operation": "web_fetch", "parameters": {"url": "x"}}, "coder has no operation web_fetch"),
        ({"agent": 7, "task": "x"}, "Invalid input for delegate: agent"),
    ],
)
def test_a_wrong_delegation_is_refused_before_anything_begins(stage: Stage, given: dict[str, Any], said: str) -> None:
    run = asked(stage, "simple").run
    outcome = tried(stage, run, "delegate", **given)
    assert outcome.status == 400 and outcome.message.startswith(said)
    assert stage.core.jobs.jobs_of(run) == []


@pytest.mark.covers("A-093")
@pytest.mark.parametrize(
    ("priority", "rank"), [(1, 1), (2, 2), (3, 3), (4, 4), ("low", 1), ("normal", 2), ("high", 3), ("critical", 4)]
)
def test_a_delegation_in_the_words_of_the_code_is_done(stage: Stage, priority: Any, rank: int) -> None:
    run = asked(stage, "simple").run
    given = {"target": "worker", "operation": "read_file", "parameters": {"path": "[own]"}, "priority": priority}
    outcome = tried(stage, run, "delegate", **given)
    (job,) = stage.core.jobs.jobs_of(run)
    assert outcome.status == 200 and outcome.message.startswith("worker (read_file) finished in ")
    assert (job.role, job.given.operation, job.given.rank, job.given.timeout_s) == ("worker", "read_file", rank, 60)
    assert job.task == 'Operation: read_file\nParameters: {"path": "[own]"}'


@pytest.mark.covers("A-090")
def test_a_model_is_shown_the_plain_words_alone(stage: Stage) -> None:
    spec = stage.core.toolbox.spec("delegate")
    assert spec is not None and spec.schema["required"] == ["task"] and "target" not in spec.schema["properties"]
    assert spec.schema["properties"]["agent"]["enum"][:4] == ["worker", "researcher", "coder", "memory"]
    assert "heartbeat" not in spec.schema["properties"]["agent"]["enum"]
    assert spec.schema["properties"]["priority"] == {"enum": ["normal", "background", "collect"], "default": "normal"}


@pytest.mark.covers("A-093")
def test_a_wrong_operation_is_answered_with_the_supported_ones(stage: Stage) -> None:
    outcome = tried(stage, "", "delegate", agent="coder", operation="fly")
    assert outcome.hint == "it supports analyze_code, generate_code, review_code, execute_code"


# -- for others of this process ----------------------------------------------------------------------------


def test_a_prompt_without_a_parent_is_done_in_its_session_and_told_to_its_person(stage: Stage) -> None:
    asked(stage, "simple")
    heard: list[str] = []
    stage.core.events.subscribe(JobEnded, lambda ended: heard.append(ended.job.id))
    job = stage.core.jobs.add(JobOrder("worker", "[own] x", JobTerms(), "local:ada", priority="background"))
    silent = stage.core.jobs.add(JobOrder("heartbeat", "[own-2] x", JobTerms(), "local:ada", priority="background", is_told=True))
    ended = stage.core.jobs.wait([job.id, silent.id], CancelToken(), 60)
    assert [one.result for one in ended][0] == "Hoot." and sorted(heard) == sorted([job.id, silent.id])
    assert stage.core.outbox.find(f"job:{job.id}") is not None and stage.core.outbox.find(f"job:{silent.id}") is None
    run = stage.core.runs.get(ended[0].run)
    assert (run.kind, run.role, run.session) == ("child", WORKER, "local:ada")
    assert all("[own]" not in told.text for told in stage.core.history.last("user:ada", 100))


def test_a_deleted_thread_takes_its_jobs_along(stage: Stage) -> None:
    told = asked(stage, "to-worker-2")
    (job,) = stage.core.jobs.jobs_of(told.run)
    stage.core.runs.delete(told.run)
    with pytest.raises(NotFound):
        stage.core.jobs.get(job.id)
