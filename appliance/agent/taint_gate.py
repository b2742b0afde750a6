"""The gate at dispatch: a call of a tainted run that acts on the world is held for approval, and the notification names the source.

Asked by the toolbox about every call, and quick about those that reach nothing: a run without marks costs a row read, one
more for the folder in which a command works. What is held becomes a proposal, whatever the run's terms; where nobody is
there to decide, it is refused and its person gets a letter. A grant lets it pass. The outcome of each stands in the audit.
Who runs what was accepted is `agent.released_calls`. Not promised: that nothing leaves which a person has let pass.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.approvals import APPROVED
from appliance.agent.command_runs import Executions
from appliance.agent.dispatch import actor_of
from appliance.agent.result_pages import INLINE_CHARS
from appliance.agent.taint_tracking import HELP, SUBJECTS, Origins, Sight, is_elsewhere, named_paths
from appliance.agent.toolbox import Caller, Toolbox, ToolMark
from appliance.errors import OwlError
from appliance.knowledge.action_log import subject_of
from appliance.knowledge.entries import PROJECT
from appliance.knowledge.verbs import Verbs
from appliance.policy import taint
from appliance.policy.audit_log import Ledger
from appliance.policy.grants import Grant, Grants
from appliance.policy.taint import CARRYING, INSIDE, TOOL, KnownData, Mark, ToolReach
from appliance.records import Event, Outcome, ToolCall
from appliance.sessions.events import SPOKEN, origin_of
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.runs import Run, Runs
from appliance.text.fences import is_origin
from appliance.text.invisible import escape_invisible

LOG = logging.getLogger(__name__)
HELD = "held"  # an outcome's label, and the attribute of a proposal that says which call waits
KIND = "call_held"  # of an audit row
READERS = ("read", "context_read")  # tools that show one entry
PEOPLE = ("chat", "ask")  # kinds of runs whose messages people wrote
TASKS = "task"  # the channel of a task's briefing, which nobody typed
ASKED_FOR = ("schedule", "device")  # what the program does in a person's own words is let through
CORE = "core"  # the person of the conversation, as a target
MAX_EVENTS = 2000  # newest ones of a run that are looked at


class ServerTools(Protocol):
    """The stored declarations of MCP tools, read without calling their servers."""

    def count(self, server: str) -> int: ...

    def arguments(self, server: str, tool: str) -> frozenset[str]:
        """The arguments of a server's tool; none for one that is not known."""
        ...


class NoServers:
    """Where there are no servers of tools."""

    def count(self, server: str) -> int:
        return 0

    def arguments(self, server: str, tool: str) -> frozenset[str]:
        return frozenset()


class HeldCall(Struct, frozen=True):
    """A call that may not simply be run."""

    run: Run
    reach: ToolReach
    target: str
    marks: tuple[Mark, ...]
    carried: tuple[str, ...] = ()

    @property
    def because(self) -> str:
        """The sources in words."""
        return taint.because(self.marks)

    @property
    def scopes(self) -> list[str]:
        """The same for a grant."""
        return sorted({mark.scope for mark in self.marks})


class HeldCalls:
    """What becomes of a held call: a proposal, or a refusal of which its person is told; and the audit of both."""

    def __init__(self, runs: Runs, verbs: Verbs, ledger: Ledger, outbox: Outbox, executions: Executions | None = None) -> None:
        """With `executions` a command is shown with the files that it names, and bound to them."""
        self._runs = runs
        self._verbs = verbs
        self._ledger = ledger
        self._outbox = outbox
        self._executions = executions

    def propose(self, held: HeldCall, call: ToolCall, caller: Caller) -> Outcome:
        """Record the call as what waits for a person's decision."""
        given: dict[str, Any] = {
            HELD: {"tool": call.name, "arguments": call.arguments},
            "kind": held.reach.kind,
            "target": held.target,
            "origins": held.scopes,
            "because": held.because,
            "role": caller.terms.role,
        }
        text = text_of(held, call)
        if held.reach.kind == "exec" and self._executions is not None:
            told, given[APPROVED] = self._executions.described(caller, call.name, str(call.arguments.get("command") or ""))
            text = f"{text}\n{told}"
        actor = actor_of(self._runs, caller)
        outcome = self._verbs.record(actor, call.name, subject_of(call) or held.target, text, given)
        self.note(KIND, held, call, caller)
        return Outcome(202, "proposed", outcome.message, data={**outcome.data, HELD: True})

    def refuse(self, held: HeldCall, call: ToolCall, caller: Caller) -> Outcome:
        """Refuse the call, because nobody is there to decide, and notify its person."""
        self.note(KIND, held, call, caller)
        person = self._runs.person(held.run.session)
        if person:
            text = f"Not done: {text_of(held, call)}\nowlbox grants add lets such calls pass; or do it yourself."
            key = f"held:{held.run.id}:{call.id}:{self._runs.marks.seq(held.run.id)}"
            self._outbox.put(Notification(key, person, text, run=held.run.id), sources=(f"run:{held.run.id}",), durable=True)
        text = f"{call.name} was held: it would {taint.KINDS[held.reach.kind]} in a thread with untrusted text ({held.because})"
        return Outcome(403, HELD, text, "go on without it, and say in your result that it waits for the person, who was told")

    def note(self, kind: str, held: HeldCall, call: ToolCall, caller: Caller, grant: Grant | None = None) -> None:
        """Write the decision on a call to the audit log."""
        detail: dict[str, Any] = {"target": held.target, "because": held.because, "carried": list(held.carried)}
        detail |= {"grant": grant.id} if grant is not None else {"is_attended": caller.terms.is_attended}
        self._ledger.note(
            kind,
            severity="warning" if grant is None else "info",
            session=caller.session,
            run=held.run.id,
            actor=call.name,
            rule=f"taint.{held.reach.kind}",
            detail=detail,
        )


class Checkpoint:
    """Holds calls."""

    def __init__(
        self, runs: Runs, grants: Grants, origins: Origins, held_calls: HeldCalls, servers: ServerTools | None = None
    ) -> None:
        self._runs = runs
        self._grants = grants
        self._origins = origins
        self._held_calls = held_calls
        self._servers = servers or NoServers()

    def heard(self, call: ToolCall, caller: Caller) -> Outcome | None:
        """Know again what a marked run writes in a call, run or not: before it is written, whoever kills us then leaves a file."""
        try:
            self._keep_words(caller.run, self._runs.marks.of(f"run:{caller.run}"), *_texts_of(call))
        except OwlError as error:
            return _not_run(call, error)
        return None

    def before(self, toolbox: Toolbox, mark: ToolMark, call: ToolCall, caller: Caller) -> Outcome | None:
        """The result of a call that is held; None for one that may be run."""
        try:
            return self._check_before(toolbox, mark, call, caller)
        except OwlError as error:
            return _not_run(call, error)

    def _check_before(self, toolbox: Toolbox, mark: ToolMark, call: ToolCall, caller: Caller) -> Outcome | None:
        self._origins.before(_sight_of(mark, caller), call)
        since = self._runs.marks.since(caller.run)
        reach = mark.needs.reach
        if since is None or reach is None:
            return None
        if caller.is_vouched and reach.kind == "document":
            texts = _texts_of(call)
            self._runs.marks.forget_words("\n".join(texts), *texts)
        if caller.is_cleared or (caller.terms.is_planned and reach.kind in ASKED_FOR and self._is_asked_for(caller.run)):
            return None
        return self._decide(toolbox, reach, replace(call, arguments=taint.canonical(reach, call.arguments)), caller, since)

    def _decide(self, toolbox: Toolbox, reach: ToolReach, call: ToolCall, caller: Caller, since: int) -> Outcome | None:
        """What becomes of a call that reaches out of a marked run; None when it may be run."""
        held = self._hold_call(toolbox, reach, call, caller, since)
        if held is None:
            return None
        grant = self._grants.find(self._person_of(held.run), reach.kind, held.target, held.marks)
        if grant is not None:
            self._held_calls.note("call_granted", held, call, caller, grant=grant)
            return None
        if caller.terms.is_attended and caller.terms.has_proposals and caller.terms.has_interaction:
            return self._held_calls.propose(held, call, caller)
        return self._held_calls.refuse(held, call, caller)

    def _is_asked_for(self, run_id: str) -> bool:
        """Whether the newest message of a run is its own person's, and no document is piped in behind it."""
        run = self._runs.any(run_id)
        events = self._runs.record.path(run.head, kinds=SPOKEN, limit=MAX_EVENTS)
        last = next((event for event in reversed(events) if event.kind == "message" and event.role == "user"), None)
        return last is not None and _is_own(last, run, self._person_of(run)) and typed(last) == last.content

    def answered(self, text: str, run: str) -> str:
        """A filter that changes nothing: what a marked run says or is about to write is known again, whoever saves it where."""
        self._keep_words(run, self._runs.marks.of(f"run:{run}"), text)
        return text

    def _keep_words(self, run: str, marks: Sequence[Mark], *texts: str) -> None:
        """Know texts again, together and each, but for what is no stranger's in them."""
        if marks and any(text.strip() for text in texts):
            self._runs.marks.keep_words(texts, marks, self._own_words(self._runs.any(run)), durable=True)

    def _own_words(self, run: Run) -> str:
        """What is no stranger's: what the person typed, and what stands unmarked in entries that the run was shown."""
        events, person = self._runs.record.path(run.head, kinds=SPOKEN, limit=MAX_EVENTS), self._person_of(run)
        own = [typed(event) for event in events if _is_own(event, run, person)]
        return "\n".join([*own, *self._runs.marks.clean_texts(named_paths(events), PROJECT)])

    def after(self, toolbox: Toolbox, mark: ToolMark, call: ToolCall, caller: Caller, outcome: Outcome) -> Outcome:
        """Record the origin of a call's result and return the marked outcome."""
        try:
            server = _server_of(toolbox, str(call.arguments.get("name", ""))) if mark.name == HELP else ""
            sight = replace(_sight_of(mark, caller), server=server)
            told = self._origins.after(sight, call, outcome)
            if caller.run and not (mark.is_read_only or outcome.is_error) and sight.group in SUBJECTS:
                self._origins.recognize(sight, call, outcome, self._own_words(self._runs.any(caller.run)))
            # What others wrote is known again; what one's own entries hold beside it is one's own.
            if is_origin(told.origin) and told.origin not in INSIDE and (outcome.origin or is_elsewhere(call.arguments)):
                self._keep_words(caller.run, [Mark(told.origin, told.source)], told.message[:INLINE_CHARS])
            return told
        except OwlError as error:
            LOG.error("the outcome of %s could not be marked: %s", call.name, error, extra={"run": caller.run})
            return outcome  # its event is marked by itself, or is not written either

    # -- looking ------------------------------------------------------------------------------------

    def _hold_call(self, toolbox: Toolbox, reach: ToolReach, call: ToolCall, caller: Caller, since: int) -> HeldCall | None:
        marks = taint.holding(reach.kind, self._runs.marks.of(f"run:{caller.run}"))
        if not marks:
            return None
        run = self._runs.any(caller.run)
        target = self._target_of(reach, call, run)
        if not target:
            return None  # it reaches its own person only
        carried: tuple[str, ...] = ()
        if reach.kind in CARRYING:
            where = str(call.arguments.get(reach.target, "")) if reach.kind == "web" else target
            known = self._collect_known(toolbox, run, since, target)
            count = self._servers.count(target.removeprefix("mcp:"))
            known = replace(known, names=self._argument_names(toolbox, call), tools=count)
            carried = taint.carried(reach, where, call.arguments, known)
            if not carried:
                return None
        return HeldCall(run, reach, target, marks, carried)

    def _target_of(self, reach: ToolReach, call: ToolCall, run: Run) -> str:
        """Whom or what a call reaches, as a grant names it; "" for a message to its own person."""
        given = call.arguments.get(reach.target) if reach.target else None
        value = str(given or "").strip()
        if reach.kind == "send":
            other = str(call.arguments.get("session_id") or "")
            if other and other != run.session:  # the same person may talk there among others
                there, here = (self._runs.people.find(session) for session in (other, run.session))
                is_mine = there is not None and here is not None and there.context == here.context
                return "" if is_mine else f"session:{other}"
            person = value.removeprefix("person:")
            return "" if person in ("", CORE, self._person_of(run)) else f"person:{person}"
        if reach.named:
            return reach.named
        if reach.kind == "web":
            return taint.host_of(value) or value or "*"
        if reach.kind == "call" and value:
            return value if value.startswith("mcp:") else f"mcp:{value}"
        return value or "*"

    def _collect_known(self, toolbox: Toolbox, run: Run, since: int, target: str) -> KnownData:
        """What a call may carry: what the person said, and what untrusted text listed."""
        own: list[str] = []
        public: list[str] = []
        theirs: list[str] = []
        links: set[str] = set()
        followed = 0
        calls: dict[str, ToolCall] = {}
        kinds, person = _reach_kinds(toolbox), self._person_of(run)
        for event in self._runs.record.path(run.head, kinds=SPOKEN, limit=MAX_EVENTS):
            is_before = since > 0 and event.run == run.id and event.seq < since
            if event.kind == "message" and event.role == "user":
                followed = 0
                own += [typed(event)] if _is_own(event, run, person) else []
            elif event.kind == "tool_use":
                calls[event.call_id] = toolbox.meant(ToolCall(event.call_id, event.tool, event.input or {}))
            elif event.kind == "tool_result":
                origin, call = origin_of(event), calls.get(event.call_id, ToolCall("", event.tool))
                kind = kinds.get(call.name, "")
                is_asked = kind in CARRYING and event.outcome != HELD
                followed += is_asked and not is_before
                # What a model wrote may list an address of its own making: only what it cannot have written lists any. What is
                # no answer of the web, such as an error, may quote it.
                is_web = is_asked and origin == "web" and event.outcome == "ok"
                is_listing = (is_web and kind != "call") or origin == "mail" or (is_before and not origin)
                if is_listing or (origin and call.name in READERS and is_elsewhere(call.arguments)):
                    links |= taint.links(event.content)
                public += [event.content] if is_web else []
                theirs += [event.content] if origin == target else []
        return KnownData("\n".join(own), frozenset(links), "\n".join(public), "\n".join(theirs), followed)

    def _argument_names(self, toolbox: Toolbox, call: ToolCall) -> frozenset[str]:
        """The arguments that a tool has; of a call that names a server's tool, those of that."""
        reach = _reach_of(toolbox, call.name)
        if reach is not None and reach.within:
            return self._servers.arguments(str(call.arguments.get(reach.target) or "-"), str(call.arguments.get(TOOL)))
        spec = toolbox.spec(call.name)
        known = spec.schema.get("properties") if spec is not None else None
        return frozenset(known) if isinstance(known, dict) else frozenset()

    def _person_of(self, run: Run) -> str:
        return self._runs.person(run.session)


def _is_own(event: Event, run: Run, person: str) -> bool:
    """Whether the thread's own person wrote an event."""
    is_message = event.kind == "message" and event.role == "user" and run.kind in PEOPLE
    return is_message and event.channel != TASKS and event.sender_id in ("", None, person)


def typed(event: Event) -> str:
    """What a person typed of a message: not the document that was piped in behind it."""
    own = (event.input or {}).get("own")
    return event.content[:own] if isinstance(own, int) else event.content


def text_of(held: HeldCall, call: ToolCall) -> str:
    """The text of the approval request: everything a person needs to decide."""
    given = taint.shown(call.arguments)
    target, because = escape_invisible(held.target, "exact"), escape_invisible(held.because, "exact")
    lines = [f"{call.name} wants to {taint.KINDS[held.reach.kind]} ({target})."]
    lines.append(f"Held because this thread was shown untrusted text: {because}")
    carried = escape_invisible(", ".join(held.carried), "exact")
    lines += [f"It carries what you have not said, in {carried}."] if carried else []
    return "\n".join([*lines, given])


def cleared(attributes: Mapping[str, Any]) -> ToolCall | None:
    """The call that a proposal holds; None for any other proposal."""
    given = attributes.get(HELD)
    if not isinstance(given, dict):
        return None
    return ToolCall("", str(given.get("tool", "")), dict(given.get("arguments") or {}))


def _not_run(call: ToolCall, error: OwlError) -> Outcome:
    """What cannot be looked at is not run."""
    return Outcome(error.status, error.outcome, f"{call.name} was not run: {error.message}", error.hint)


def _texts_of(call: ToolCall) -> list[str]:
    return [text for text, _ in taint.leaves(call.arguments) if isinstance(text, str)]


def _sight_of(mark: ToolMark, caller: Caller) -> Sight:
    profile = mark.needs.profile if mark.needs.network == "none" else "net"
    return Sight(mark.name, mark.group, profile, mark.is_read_only, caller.run, caller.session, caller.terms)


def _reach_of(toolbox: Toolbox, tool: str) -> ToolReach | None:
    return next((one.mark.needs.reach for one in toolbox.tools() if one.mark.name == tool), None)


def _reach_kinds(toolbox: Toolbox) -> dict[str, str]:
    """Each tool that reaches outside, with the kind of its reach."""
    marks = (one.mark for one in toolbox.tools())
    return {mark.name: mark.needs.reach.kind for mark in marks if mark.needs.reach is not None}


def _server_of(toolbox: Toolbox, tool: str) -> str:
    """The origin of what a tool says of itself: the server's that offers it; "" for one of ours."""
    reach = _reach_of(toolbox, tool)
    return reach.named if reach is not None and reach.kind == "call" and reach.named.startswith("mcp:") else ""
