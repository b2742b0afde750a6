"""What other agents may use of the assistant: its texts and one person's tasks, each call noted in the audit.

A guest is a program that speaks for the person who started it: it sees what a model of that person may see, and no
task of anybody else. It changes nothing, but for adding tasks where its person allowed that; what it writes there is
a stranger's text. The tools are named as ours are, so that the policy's rules about those hold for guests too.
Knows nothing about protocols or sockets. Not promised: that a guest is who it says; its name is only noted.
"""

import os
import threading
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Struct

from appliance.agent.tool_results import Reply
from appliance.agent.tool_rules import ToolRules
from appliance.agent.toolbox import Caller, Toolbox, tool
from appliance.clock import CancelToken, monotonic_s, new_id
from appliance.errors import BadInput, Exhausted, NotFound
from appliance.knowledge.drives import Drives, stored_path
from appliance.knowledge.entries import Entries, Entry
from appliance.knowledge.search import Search, words_of
from appliance.policy.audit_log import Ledger
from appliance.policy.taint import OUTSIDE
from appliance.records import Outcome, Terms, ToolCall
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.sessions.runs import Runs
from appliance.store.database import Store
from appliance.text.fences import foreign
from appliance.text.references import scheme_of
from appliance.tools import knowledge, planning
from appliance.tools.context import Items, show_items
from appliance.tools.knowledge import READ_LINES, Found
from appliance.work.tasks import Priority, Status, Tasks

KIND = "guest_call"  # of a row in the audit
ORIGIN = "agent"
ROLE = "guest"
MAX_TASKS, TASKS_S = 30, 3600.0  # that one person's guests may add in so many seconds
MAX_NAME = 120
Adds = Annotated[bool, "whether it may add tasks"]


class Guest(Struct, frozen=True):
    """Who calls: the person it speaks for, what it calls itself, and whether it may add tasks."""

    person: str
    name: str
    may_add: bool = False


class Guests:
    """The tools of guests, and the one way to call them."""

    def __init__(self, store: Store, services: Mapping[str, Any], rules: ToolRules, ledger: Ledger) -> None:
        """`services` are those of a core's own tools, `rules` hold for these as well, the ledger is the audit."""
        self._rules = rules
        self._ledger = ledger
        self._toolbox = Toolbox(OFFERED, {"desk": Desk(store, services), **services}, rules=rules)
        self._added: dict[str, deque[float]] = {}
        self._guard = threading.Lock()

    @method("guest.tools", access="own", is_quiet=True)
    def listing(self, may_add: Adds = False) -> list[dict[str, Any]]:
        """The tools that another agent may call: `name`, `description`, `schema`, `is_read_only`."""
        policy, state = self._rules.policy, {one["name"]: one["is_enabled"] for one in self._toolbox.registry()}
        tools = [made for made in self._toolbox.tools() if made.mark.is_read_only or may_add]
        tools = [made for made in tools if state[made.mark.name] and policy.check(made.mark.name, ROLE).allowed]
        return [
            {
                "name": made.mark.name,
                "description": made.description,
                "schema": _described(made.signature.schema(), {f.name: f.help for f in made.signature.fields}),
                "is_read_only": made.mark.is_read_only,
            }
            for made in tools
        ]

    def call(self, guest: Guest, name: str, arguments: Mapping[str, Any], cancel: CancelToken) -> Outcome:
        """What becomes of a call, good or bad; NotFound for a tool that this guest does not have."""
        is_change = not self._toolbox.is_read_only(name)
        if self._toolbox.spec(name) is None or (is_change and not guest.may_add):
            raise NotFound(f"no tool {name[:MAX_NAME]}", hint="tools/list shows what there is")
        if is_change:
            self._bound(guest.person)
            self._audit(guest, name, arguments, "asked", durable=True)
        self._toolbox.use(self._rules.policy)
        call = ToolCall(new_id(), name, dict(arguments))
        outcome = self._toolbox.dispatch(call, "", cancel, f"local:{guest.person}", terms=Terms(role=ROLE))
        self._audit(guest, name, arguments, outcome.outcome, duration_ms=outcome.duration_ms)
        return outcome

    @method("guest.call", access="own")
    def call_for_caller(
        self,
        name: Annotated[str, Range(1, 200), "the tool"],
        arguments: dict[str, Any],
        agent: Annotated[str, Range(0, 200), "what it calls itself"] = "",
        may_add: Adds = False,
        person: Annotated[str, Range(0, 64), "for whom; only the core's own user may name another person"] = "",
        *,
        call: Call,
    ) -> Outcome:
        """Run one tool for another agent; noted in the audit with what it asked for."""
        # Whoever may open the socket may do more than any guest: this says how little the guest behind the caller may do.
        who = person if person and call.uid in (os.getuid(), 0) else caller_name(call)
        return self.call(Guest(who, agent, may_add), name, arguments, call.cancel)

    def close(self) -> None:
        """Take no more calls."""
        self._toolbox.close()

    def _audit(
        self, guest: Guest, name: str, arguments: Mapping[str, Any], outcome: str, *, durable: bool = False, **more: Any
    ) -> None:
        detail = {"tool": name, "arguments": dict(arguments), "outcome": outcome, "origin": ORIGIN, **more}
        actor = " ".join(guest.name.split())[:MAX_NAME] or "unnamed"
        self._ledger.note(KIND, session=f"{ORIGIN}:{guest.person}", actor=actor, detail=detail, durable=durable)

    def _bound(self, person: str) -> None:
        """Exhausted when a person's guests have added too much of late: a queue that is full serves nobody."""
        with self._guard:
            now_s, added = monotonic_s(), self._added.setdefault(person, deque())
            while added and added[0] < now_s - TASKS_S:
                added.popleft()
            if len(added) >= MAX_TASKS:
                raise Exhausted(f"{MAX_TASKS} tasks were added within the hour", hint="wait, or have the person add it")
            added.append(now_s)


def _described(schema: dict[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    """A schema with what its arguments mean, which our own models are told only when they ask."""
    told = {name: {**part, "description": words[name]} if words.get(name) else part for name, part in schema["properties"].items()}
    return {**schema, "properties": told}


class Desk:
    """What the tools of guests work with."""

    def __init__(self, store: Store, services: Mapping[str, Any]) -> None:
        self.store = store
        self.drives: Drives = services["drives"]
        self.entries: Entries = services["entries"]
        self.finder: Search = services["finder"]
        self.tasks: Tasks = services["tasks"]
        self.runs: Runs = services["runs"]

    def person(self, caller: Caller) -> str:
        """Whose guest calls."""
        return self.runs.person(caller.session) or caller.session.partition(":")[2]

    def own(self, task: int, caller: Caller) -> None:
        """NotFound unless the task is that person's."""
        found = self.tasks.find(task)
        if found is None or found.person != self.person(caller):
            raise NotFound(f"no task {task}", hint="list_tasks shows them")


# -- tools --------------------------------------------------------------------------------------------


@tool(group="knowledge", is_read_only=True)
def search(
    query: Annotated[str, Range(1, 1000), "words to look for, in any language"],
    limit: Annotated[int, Range(1, 50), "how many to show"] = 10,
    *,
    desk: Desk,
) -> Reply[Found]:
    """Find notes, documents and pages that the person keeps, by words and meaning. Shows references for `read`."""
    if not words_of(query):
        raise BadInput(f"nothing to search for in {query!r}", hint="use words that name the thing")
    return knowledge.show_hits(query, desk.finder.find(query, limit=limit, is_model=True))


@tool(group="knowledge", is_read_only=True)
def read(
    ref: Annotated[str, Range(1, 2048), "reference of the text, as search and context_list show it"],
    line: Annotated[int, Range(1, 10_000_000), "first line to show"] = 1,
    limit: Annotated[int, Range(1, 2000), "how many lines"] = READ_LINES,
    *,
    desk: Desk,
) -> str:
    """Read a text by its reference; a long one comes in pages."""
    found = desk.drives.text(ref, is_model=True)
    text = knowledge.read(found.path, line, limit, entries=desk.entries)
    origin = _origin(found, desk)
    return foreign(origin, text) if origin else text


@tool(group="context", name="context_list", is_read_only=True)
def list_items(
    folder: Annotated[str, Range(0, 4096), "only what is in this folder, as drive:/path; everything without one"] = "",
    limit: Annotated[int, Range(1, 1000), "how many to show"] = 100,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    *,
    desk: Desk,
) -> Reply[Items]:
    """List what is kept, by reference."""
    stored = stored_path(folder, "") if folder else ""
    if stored and not desk.drives.is_visible(stored, True):
        raise NotFound(f"no drive {scheme_of(stored)}", hint="context_list without a folder shows everything")
    found, total = desk.drives.items(stored, limit=limit, offset=offset, is_model=True)
    return show_items(found, total)


@tool(group="planning", is_read_only=True)
def list_tasks(
    status: Annotated[Status | Literal[""], "only in this state"] = "",
    priority: Annotated[Priority | Literal[""], "only of this priority"] = "",
    limit: Annotated[int, Range(1, 1000), "how many to show"] = 20,
    offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    *,
    desk: Desk,
    caller: Caller,
) -> Reply[planning.Listed]:
    """List the person's tasks, newest first."""
    found = desk.tasks.list_tasks(status=status, priority=priority, person=desk.person(caller), limit=limit + 1, offset=offset)
    return planning.show_tasks(found, limit)


@tool(group="planning", is_read_only=True)
def view_task(id: planning.Number, *, desk: Desk, caller: Caller) -> Reply[planning.Viewed] | None:
    """Read everything about one of the person's tasks."""
    desk.own(id, caller)
    return planning.view_task(id, tasks=desk.tasks, runs=desk.runs, caller=caller)


@tool(group="planning")
def create_task(
    name: planning.Name,
    description: Annotated[str, Range(0, 10_000), "everything needed to do it"] = "",
    priority: Annotated[Priority, "how urgent it is"] = "medium",
    deadline: planning.When = "",
    *,
    desk: Desk,
    caller: Caller,
) -> Reply[planning.Planned]:
    """Have the owl do work later, in the background; its person is told what came of it."""
    with desk.store.write(durable=True):
        made = planning.create_task(name, description, priority, deadline=deadline, tasks=desk.tasks, runs=desk.runs, caller=caller)
        desk.runs.marks.add(f"task:{made.data['id']}", ORIGIN)  # whoever works on it reads untrusted text
    return made


OFFERED = (search, read, list_items, list_tasks, view_task, create_task)


def _origin(entry: Entry, desk: Desk) -> str:
    """Where untrusted people may have written a text, "" for one of the person's own."""
    marks = desk.runs.marks.entries([entry.path], entry.scope).get(entry.path, ())
    told = str(entry.attributes.get("origin") or (marks[0].origin if marks else ""))
    return told or OUTSIDE.get(scheme_of(entry.path) or "", "")
