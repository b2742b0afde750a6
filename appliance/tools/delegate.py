"""Tools that hand work to others: delegate, spawn_await. Who does it sees what is given here and nothing else."""

import json
from typing import Annotated, Any, Literal

from msgspec.structs import replace

from appliance.agent.dispatch import session_of
from appliance.agent.toolbox import Caller, Needs, Toolbox, tool
from appliance.clock import CancelToken
from appliance.errors import BadInput, Cancelled, Unavailable
from appliance.policy import modes
from appliance.prompt.roles import CHILD, Roles
from appliance.records import Outcome
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs
from appliance.work.jobs import DONE, USUAL, Job, JobOrder, Jobs, JobTerms

GROUP = "delegation"
TIMEOUT_S, MAX_TIMEOUT_S = 60.0, 300.0  # of an operation that names none, and the longest that may be asked for
WAITS = Needs(deadline_s=24 * 3600, is_waiting=True)  # its own bounds are those of the work
SETTLE_S = 1.5  # for work that is stopped to end
ALL = "*"
ANYTHING = ("some",)  # parameter, whatever its name
# What each can be asked for by name, and which parameters that takes where no task says more; others do what
# their task says.
OPERATIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "worker": {
        "read_file": ("path",),
        "write_file": ("path", "content"),
        "delete_file": ("path",),
        "list_files": (),
        "search_files": ("pattern",),
        "web_search": ("query",),
        "web_fetch": ("url",),
    },
    "researcher": dict.fromkeys(("deep_research", "synthesize_sources"), ANYTHING),
    "coder": dict.fromkeys(("analyze_code", "generate_code", "review_code", "execute_code"), ANYTHING),
}
Urgency = Literal["normal", "background", "collect", "low", "high", "critical", 1, 2, 3, 4]
RANKS: dict[str | int, int] = {"low": 1, "high": 3, "critical": 4, **{rank: rank for rank in range(1, 5)}}
Task = Annotated[str, Range(0, 100_000), "what is to be done, with everything needed to do it"]
Context = Annotated[str, "what is to be known for it"]


@tool(group=GROUP, menu=(), needs=replace(WAITS, is_beside=True))
def delegate(
    agent: Annotated[str, "who does it: worker, researcher, coder or memory"] = "",
    task: Task = "",
    context: Context = "",
    responseFormat: Annotated[str, "what the answer should look like"] = "",
    priority: Annotated[Urgency, "background: go on, and tell me later; else how soon it begins where much waits"] = "normal",
    operation: Annotated[str, "one of those that the agent knows by name"] = "",
    parameters: Annotated[dict[str, Any] | None, "of the operation"] = None,
    timeout: Annotated[float, "seconds"] = 0,
    target: Annotated[str, "another word for agent"] = "",
    tools: Annotated[str, "of what is collected: the tools it has, with commas between; empty for its profile's"] = "",
    system_prompt: Annotated[str, "of what is collected: told to it instead of its profile's own words"] = "",
    *,
    jobs: Jobs,
    roles: Roles,
    runs: Runs,
    toolbox: Toolbox,
    caller: Caller,
) -> Outcome:
    """Have a specialist do one piece of work: worker for files and messages, researcher for the web, coder for code."""
    agent = agent or target
    if priority == "collect":
        if toolbox.spec("spawn_await") is None:
            raise Unavailable("helpers whose results are collected are switched off", hint="delegation.spawn = true offers them")
        given = JobTerms(context, tools=_tools_of(agent, tools, roles, caller), text=system_prompt or None, mode=caller.terms.mode)
        return _begin_collected(JobOrder(agent or CHILD, task, given, session_of(runs, caller), caller.run), jobs)
    known = [one.name for one in roles.helpers()]
    if agent not in known:
        raise _invalid_arguments(f"no agent {agent}" if agent else "agent: is required", f"there are {', '.join(known)}")
    operations = OPERATIONS.get(agent, {})
    if operation and operation not in operations:
        supported = ", ".join(operations) or "none by name: say it in task"
        raise _invalid_arguments(f"{agent} has no operation {operation}", f"it supports {supported}")
    if not task.strip() and not operation:
        raise _invalid_arguments("task: is required", "say what is to be done")
    if timeout < 0 or timeout > MAX_TIMEOUT_S:
        raise _invalid_arguments(f"timeout {timeout:g}", f"at most {MAX_TIMEOUT_S:g} seconds")
    if operation:
        timeout = timeout or TIMEOUT_S
        if not task.strip() and (missing := _missing_parameters(operations[operation], parameters or {})):
            raise _invalid_arguments(f"parameters: {operation} needs {missing}", "give them, or say in task what is to be done")
        task = "\n".join(part for part in (f"Operation: {operation}", _parameters_line(parameters), task.strip()) if part)
    given = JobTerms(context, responseFormat, operation, timeout, mode=caller.terms.mode, rank=RANKS.get(priority, USUAL))
    order = JobOrder(agent, task, given, session_of(runs, caller), caller.run, tool="delegate")
    if priority == "background":
        job = jobs.add(replace(order, priority="background"))
        text = f"{agent} works on it (job {job.id}); its result comes as a message. Go on, do not wait."
        return Outcome(200, "ok", text, data={"job": job.id, "agent": agent})
    return _job_outcome(_wait_jobs(jobs, [jobs.add(order).id], caller)[0], runs)


@tool(group=GROUP, is_read_only=True, menu=(), needs=WAITS)
def spawn_await(
    job_ids: Annotated[str, "numbers that delegate gave, with commas between, or * for all"] = "",
    *,
    jobs: Jobs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Wait for helpers and get their results."""
    wanted = [name.strip() for name in job_ids.split(",") if name.strip()]
    if not wanted:
        raise BadInput("job_ids: is required", hint="numbers that delegate gave, or *", outcome="invalid_arguments")
    known = {job.id: job for job in jobs.jobs_of(caller.run, "spawn")} if caller.run else {}
    if ALL in wanted:
        if not known:
            return Outcome(200, "ok", "No jobs found.")
        wanted = list(known)
    ended = {job.id: job for job in _wait_jobs(jobs, [name for name in wanted if name in known], caller)}
    lines = []
    for name in wanted:
        job = ended.get(name)
        state = "NOT FOUND" if job is None else "OK" if job.status == DONE else "ERROR"
        lines.append(f"[{name}: {state}]" if job is None else f"[{name}: {state}]\n{job.result}")
    origin = next((found for job in ended.values() if (found := _taint_origin(job, runs))), "")
    return Outcome(200, "ok", "\n\n".join(lines), origin=origin)


def _tools_of(profile: str, tools: str, roles: Roles, caller: Caller) -> tuple[str, ...] | None:
    """The tools of a helper that is collected: no more than who asks for it has, unless a profile says so."""
    known = [one.name for one in roles.profiles()]
    if profile and profile not in known:
        raise _invalid_arguments(
            f"no profile {profile}", f"there are {', '.join(known)}" if known else "there are none: leave it out"
        )
    named = tuple(name.strip() for name in tools.split(",") if name.strip()) or None
    if named is None:
        return None if profile else caller.terms.tools
    is_narrower = profile and set(named) <= set(roles.get(profile).tools or named)
    return named if is_narrower else (*named, *modes.bars(caller.terms.tools))


def _begin_collected(order: JobOrder, jobs: Jobs) -> Outcome:
    """Have a helper begin beside; its number is told at once."""
    if not order.task.strip():
        raise _invalid_arguments("task: is required", "say what is to be done")
    job = jobs.add(replace(order, tool="spawn", is_told=True))
    return Outcome(200, "ok", job.id, data={"job": job.id, "agent": job.role})


def _wait_jobs(jobs: Jobs, ids: list[str], caller: Caller) -> list[Job]:
    """The jobs, once all have ended; stopped with whoever waits for them."""
    found = jobs.wait(ids, caller.cancel)
    if not caller.cancel.is_set():
        return found
    for job in found:
        jobs.halt(job.id)
    jobs.wait(ids, CancelToken(), SETTLE_S)
    raise Cancelled("stopped while others worked")


def _job_outcome(job: Job, runs: Runs) -> Outcome:
    """The result of a job for the caller that waited."""
    data = {"job": job.id, "agent": job.role, "run": job.run, "duration_s": job.duration_s, "status": job.status}
    text = job.describe_end()
    if job.status == DONE:
        return Outcome(200, "ok", text, data=data, origin=_taint_origin(job, runs))
    hint = "tell the person what failed, or try in another way"
    status = 504 if job.outcome == "timeout" else 499 if job.status == "cancelled" else 500
    return Outcome(status, job.outcome or "failed", text, hint, data=data)


def _taint_origin(job: Job, runs: Runs) -> str:
    """Origin of the untrusted text in it; "" when nowhere."""
    return next(iter(runs.get(job.run).origins), "") if job.run and runs.has_run(job.run) else ""


def _invalid_arguments(message: str, hint: str) -> BadInput:
    return BadInput(message, hint=hint, outcome="invalid_arguments")


def _missing_parameters(needed: tuple[str, ...], parameters: dict[str, Any]) -> str:
    """Which of its parameters an operation has not been given; "" for none."""
    is_enough = bool(parameters) if needed == ANYTHING else False
    return "" if is_enough else ", ".join(name for name in needed if name not in parameters)


def _parameters_line(parameters: dict[str, Any] | None) -> str:
    return f"Parameters: {json.dumps(parameters, ensure_ascii=False)}" if parameters else ""
