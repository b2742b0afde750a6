"""The local socket as a door: what a client may ask of the core.

One table of methods serves the socket and, when no core runs, the command line in its own process. The
caller's identity is what the kernel says, never what it claims. Whoever may open the socket is trusted
with every thread and entry of the box; what a model may see on a person's behalf is narrower. Streams are notifications: `accepted`
after the commit, then those of `relay`.
"""

import math
import os
import pwd
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from appliance.channels.inbox import Inbox
from appliance.channels.relay import MAX_CHARS, fit, relay
from appliance.clock import CancelToken, correlation_id, new_id, now_ms
from appliance.errors import BadInput, Lost, Refused, Unavailable, from_outcome
from appliance.records import Inbound, Outcome, ToolCall, to_plain
from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range
from appliance.sessions.runs import Runs

CHANNEL = "local"
PAGE_CHARS = 400_000
BATCH = 100
TURNS = 1000
Limit = Annotated[int, Range(1, 1000), "how many to show"]
Offset = Annotated[int, Range(0, 10_000_000), "how many to leave out first"]
Seen = Annotated[Literal["visible", "summarized", "archived"] | None, "how the thread sees it; needs one"]
Thread = Annotated[str, "act in this thread: what it sees changes; empty acts on content alone"]
Filter = Annotated[str, "only entries whose text matches: words, a glob or /regex/"]


@dataclass(frozen=True)
class Pending:
    """Changed keys that are not in force: until the broker was renewed, and until the next start."""

    broker: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    def plain(self) -> dict[str, str]:
        """For programs."""
        return {"broker": ", ".join(self.broker), "restart": ", ".join(self.restart)}

    def text(self) -> str:
        """In one line, "" for nothing."""
        waits = ((self.broker, "when the broker has answered what it is asked now"), (self.restart, "after a restart"))
        return "; ".join(f"{', '.join(keys)} {when}" for keys, when in waits if keys)


@dataclass(frozen=True)
class Reloaded:
    """What a reload came to: the keys that it has put in force, and those that wait."""

    changed: str
    pending: Pending


@dataclass(frozen=True)
class Means:
    """What the door needs from the core besides the inbox and the record."""

    dispatch: Callable[[ToolCall, str, CancelToken, str], Outcome]
    tools: Callable[[], list[dict[str, Any]]]
    status: Callable[[], dict[str, Any]]
    plan: Callable[[str], list[dict[str, Any]]]
    prompt_size: Callable[[str, str], dict[str, Any]]
    reload: Callable[[], Reloaded]
    shutdown: Callable[[str], None]
    bench: Callable[[str, float, Callable[[str, int, int], None], CancelToken], dict[str, Any]]


@dataclass(frozen=True)
class Shelf:
    """What the door shows of what the owl knows."""

    listing: Callable[[str, int, int], list[dict[str, Any]]]
    view: Callable[[str, int, int], dict[str, Any]]
    skills: Callable[[], list[dict[str, Any]]]
    act: Callable[[str, str, dict[str, Any]], Outcome]  # thread, verb, arguments
    history: Callable[[str, int, str], list[dict[str, Any]]]  # reference, how many, thread
    undo: Callable[[str, str, bool, bool], dict[str, Any]]  # thread, who asks, whether it is only tried, without its helpers
    query: Callable[[str, int, CancelToken], tuple[Sequence[str], Sequence[Sequence[Any]], bool]]
    waiting: Callable[[str, int], list[dict[str, Any]]]  # thread, how many


@dataclass(frozen=True)
class Taking:
    """What the door does with what clients have read; numbers are those of their users."""

    known: Callable[[Sequence[str]], dict[str, Any]]
    chosen: Callable[[str, str], dict[str, Any]]
    tree: Callable[[str], str]
    piece: Callable[[str, str, int], int]
    keep: Callable[[Sequence[dict[str, Any]], int], list[dict[str, Any]]]
    page: Callable[[str, int, str, CancelToken], dict[str, Any]] | None = None
    part: Callable[[str, int], str] | None = None


class LocalCall:
    """A call from this very process."""

    def __init__(self, notify: Callable[[str, dict[str, Any]], None], client: str = "cli") -> None:
        self.correlation = correlation_id()
        self.cancel = CancelToken()
        self.client = client
        self.uid = os.getuid()
        self.notify = notify


class Rpc:
    """The method table."""

    def __init__(self, inbox: Inbox, runs: Runs, means: Means, shelf: Shelf, intake: Taking | None = None) -> None:
        self._inbox = inbox
        self._runs = runs
        self._means = means
        self._shelf = shelf
        self._intake = intake

    @method("message.send", access="own", is_long=True)
    def send(
        self,
        call: Call,
        text: str,
        thread: Annotated[str, "continue this one; empty starts a new one"] = "",
        kind: Literal["chat", "ask"] = "chat",
        message_id: Annotated[str, "the same id is accepted once"] = "",
        wait: Annotated[bool, "stream the answer; false returns once the message is safe"] = True,
        own_chars: Annotated[int, "characters that the person typed, when a document follows them; -1 for all"] = -1,
    ) -> dict[str, Any]:
        """Hand in a message. It is committed before `accepted` is sent; a caller that leaves does not stop the answer."""
        user = _user(call.uid)
        # Ids are chosen by callers: one person's must not swallow another's message.
        key = f"{user}/{message_id}" if message_id else new_id()
        inbound = Inbound(CHANNEL, user, text, key, now_ms(), thread=thread, kind=kind)
        if own_chars >= 0:
            inbound = replace(inbound, own_chars=own_chars)
        accepted = self._inbox.accept(inbound, call.correlation)
        known = {"run": accepted.run, "loop": accepted.loop, "seq": accepted.seq, "is_new": accepted.is_new}
        subscription = self._inbox.feed.subscribe(accepted.loop)
        try:
            if accepted.is_new:
                self._inbox.start(accepted.loop)
            call.notify("accepted", known)
            if not wait or not accepted.is_new:
                return known
            call.cancel.then(subscription.close)
            end = relay(subscription, call.notify)
            return {**known, "status": end.status, "outcome": end.outcome, "message": end.message}
        except Lost:
            return known
        finally:
            self._inbox.feed.leave(accepted.loop, subscription)

    @method("run.stop", access="own")
    def stop(self, call: Call, run: str) -> dict[str, Any]:
        """Stop what is being answered in a thread; what was said is kept."""
        found = self._runs.get(run)
        return {"run": found.id, "stopped": self._inbox.stop(found.id)}

    @method("run.undo", access="own")
    def undo(
        self,
        call: Call,
        run: str,
        is_dry_run: Annotated[bool, "only say what would change, and what is in the way"] = False,
        is_alone: Annotated[bool, "without what was changed by those to whom it handed work"] = False,
    ) -> dict[str, Any]:
        """Take back everything a thread and its helpers changed in entries, or nothing: a conflict names what was changed since.

        `by` is the thread that took it back, which can be undone too; empty when there was nothing to take back.
        """
        return self._shelf.undo(run, _user(call.uid), is_dry_run, is_alone)

    @method("thread.list", access="own")
    def threads(
        self, call: Call, type: Literal["", "chat", "ask", "tick", "child"] = "", limit: Limit = 20, offset: Offset = 0
    ) -> list[dict[str, Any]]:
        """Threads, newest first."""
        return [to_plain(run) for run in self._runs.listing(kind=type, limit=limit, offset=offset)]

    @method("thread.view", access="own", is_quiet=True)
    def view(
        self,
        call: Call,
        id: str,
        only: list[str] | None = None,
        after: Annotated[int, Range(0, 2**62), "only events after this sequence number"] = 0,
        limit: Annotated[int, Range(1, 1000), "how many events at most"] = 1000,
    ) -> dict[str, Any]:
        """A page of a thread's events, optionally only those of some roles, and its newest 1000 turns.

        `has_more` is true when there are further events: ask again with `after` set to the last one's `seq`.
        An event too large to send is cut and says so.
        """
        roles = ("user", "assistant", "system", "tool")
        wrong = [role for role in only or [] if role not in roles]
        if wrong:
            raise BadInput(f"unknown role {', '.join(wrong)}", hint=f"use {', '.join(roles)}")
        run = self._runs.get(id)
        events: list[dict[str, Any]] = []
        room, has_more = PAGE_CHARS, False
        while room > 0 and len(events) < limit:
            # A few at a time: a thread may hold more than memory does.
            found = self._runs.events(
                run.id, after=after, roles=only or (), limit=min(BATCH, limit - len(events)) + 1, is_branch=True
            )
            has_more = len(found) > min(BATCH, limit - len(events))
            for event in found[:-1] if has_more else found:
                if room <= 0:
                    has_more = True
                    break
                plain, size = fit(event)
                events.append(plain)
                room -= size
                after = event.seq
            if not has_more:
                break
        turns = self._runs.turns(run.id)[-TURNS:]
        return {"thread": to_plain(run), "events": events, "has_more": has_more, "turns": turns}

    @method("thread.end", access="own")
    def end(self, call: Call, id: str) -> dict[str, Any]:
        """Say that a talk is over: its thread is marked as ended, until its next message. Not while it is being answered."""
        run = self._runs.get(id)
        return {"run": run.id, "is_ended": self._runs.leave_off(run.id)}

    @method("thread.delete", access="own")
    def delete(self, call: Call, id: str) -> dict[str, Any]:
        """Delete a thread with everything said in it."""
        run = self._runs.get(id)
        return {"run": run.id, "events": self._runs.delete(run.id)}

    @method("entry.list", access="own")
    def entries(
        self,
        call: Call,
        prefix: Annotated[str, "only references that begin so, such as box://notes/"] = "",
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> list[dict[str, Any]]:
        """Entries sorted by reference: `ref`, `title`, `size_bytes`, `updated_ms`."""
        return self._shelf.listing(prefix, limit, offset)

    @method("entry.view", access="own")
    def entry(
        self,
        call: Call,
        ref: str,
        line: Annotated[int, Range(1, 10_000_000), "first line to show"] = 1,
        limit: Annotated[int, Range(1, 100_000), "how many lines"] = 1000,
    ) -> dict[str, Any]:
        """Some lines of an entry, with `total_lines` and what is known about it."""
        return self._shelf.view(ref, line, limit)

    @method("entry.set", access="own")
    def set_entry(
        self,
        call: Call,
        ref: Annotated[str, "a reference or a pattern; may be empty for kind known"],
        body: Annotated[str | None, "the whole text, or edit markers"] = None,
        search: Annotated[str | None, "text to replace; empty appends"] = None,
        replace: Annotated[str | None, "what takes its place"] = None,
        title: str | None = None,
        description: str | None = None,
        mime: str | None = None,
        source_url: str | None = None,
        attributes: Annotated[dict[str, Any] | None, "replaces the stored ones"] = None,
        visibility: Seen = None,
        summary: Annotated[str | None, "at most 80 characters; needs a thread"] = None,
        wanted: Filter = "",
        expected_hash: Annotated[str | None, "only when the entry still has this hash; empty: only when there is none"] = None,
        kind: Annotated[Literal["entry", "known"], "known: a bare path means known://path"] = "entry",
        is_literal: Annotated[bool, "the body is text, whatever it looks like"] = False,
        run: Thread = "",
    ) -> dict[str, Any]:
        """Write an entry or all of a pattern; what is not given stays. `data.paths` names what changed."""
        given = {name: value for name, value in locals().items() if name not in ("self", "call", "run") and value is not None}
        return self._act(run, "set", given)

    @method("entry.get", access="own")
    def get_entry(
        self,
        call: Call,
        ref: str,
        wanted: Filter = "",
        line: Annotated[int | None, "first line, negative from the end"] = None,
        limit: Annotated[int | None, "how many lines"] = None,
        is_preview: Annotated[bool, "only list what matches"] = False,
        persist: Annotated[
            Literal["add", "readonly", "ignore", "none"] | None, "how files that fit are followed from now on"
        ] = None,
        run: Thread = "",
    ) -> dict[str, Any]:
        """The text of an entry as `message`, its hash in `data`; of a pattern a listing."""
        if persist is not None:
            return self._act(run, "persist", {"ref": ref, "kind": persist})
        return self._act(run, "get", {"ref": ref, "wanted": wanted, "line": line, "limit": limit, "is_preview": is_preview})

    @method("entry.rm", access="own")
    def remove_entry(
        self,
        call: Call,
        ref: str,
        wanted: Filter = "",
        is_preview: Annotated[bool, "only list what would be removed"] = False,
        run: Thread = "",
    ) -> dict[str, Any]:
        """Remove an entry or all of a pattern; in a thread content that others see stays."""
        return self._act(run, "rm", {"ref": ref, "wanted": wanted, "is_preview": is_preview})

    @method("entry.cp", access="own")
    def copy_entry(self, call: Call, ref: str, target: str, visibility: Seen = None, run: Thread = "") -> dict[str, Any]:
        """Copy an entry; one that is overwritten is named in `data.warnings`."""
        return self._act(run, "cp", {"ref": ref, "target": target, "visibility": visibility})

    @method("entry.mv", access="own")
    def move_entry(self, call: Call, ref: str, target: str, visibility: Seen = None, run: Thread = "") -> dict[str, Any]:
        """Move an entry; one that is overwritten is named in `data.warnings`."""
        return self._act(run, "mv", {"ref": ref, "target": target, "visibility": visibility})

    @method("entry.update", access="own")
    def update(self, call: Call, text: str, run: Thread = "", status: Literal[102, 200, 204, 422] = 102) -> dict[str, Any]:
        """Record how a thread's work stands."""
        return self._act(run, "update", {"text": text, "status": status})

    @method("entry.waiting", access="own")
    def waiting(self, call: Call, run: Annotated[str, "only in this thread"] = "", limit: Limit = 100) -> list[dict[str, Any]]:
        """What waits for a decision, oldest first: `ref` in the log of `run`, `action`, `subject`, `updated_ms`."""
        return self._shelf.waiting(run, limit)

    @method("entry.resolve", access="own")
    def resolve(
        self,
        call: Call,
        ref: Annotated[str, "the proposal, as entry.waiting names it"],
        run: Annotated[str, "the thread in which it waits"],
        is_accepted: Annotated[bool, "do it; false leaves everything as it is"],
    ) -> dict[str, Any]:
        """Decide about what a thread proposed; once decided it stays so. A conflict when the file has changed since."""
        return self._act(run, "resolve", {"ref": ref, "is_accepted": is_accepted})

    def _act(self, run: str, verb: str, given: dict[str, Any]) -> dict[str, Any]:
        outcome = self._shelf.act(run, verb, given)
        if outcome.is_error:
            raise from_outcome(outcome.outcome.partition(":")[0], outcome.message, outcome.hint)
        plain: dict[str, Any] = to_plain(outcome)
        return plain

    @method("entry.history", access="own")
    def history(
        self,
        call: Call,
        ref: str,
        limit: Annotated[int, Range(1, 100), "how many changes"] = 20,
        patch: Annotated[bool, "with what changed in the text"] = False,
        run: Annotated[str, "as this thread sees it"] = "",
    ) -> list[dict[str, Any]]:
        """The last changes of an entry, newest first, also of one that is gone.

        A patch is empty where it would be long; `is_cut` says that it was left out because the answer got too large.
        """
        room, changes = PAGE_CHARS, []
        for change in self._shelf.history(ref, limit, run):
            if not patch:
                changes.append({name: value for name, value in change.items() if name != "patch"})
                continue
            room -= len(change["patch"])
            changes.append(change if room >= 0 else {**change, "patch": "", "is_cut": True})
        return changes

    @method("sql.query")
    def query(
        self,
        call: Call,
        sql: Annotated[str, "one query; empty lists the tables and their columns"] = "",
        limit: Annotated[int, Range(1, 100_000), "how many rows"] = 1000,
    ) -> dict[str, Any]:
        """Ask the database freely, reading only, for at most 10 seconds; for the user whose core it is.

        `has_more` says that there are more rows, `is_cut` that long values were cut. Bytes are told by their size.
        """
        if call.uid != os.getuid():
            raise Refused(f"the database is for user {_user(os.getuid())} alone", hint="run owlbox sql as that user")
        columns, found, has_more = self._shelf.query(sql, limit, call.cancel)
        rows: list[list[Any]] = []
        room, is_cut = PAGE_CHARS, False
        for row in found:
            cells = [_cell(value) for value in row]
            for i, cell in enumerate(cells):
                if isinstance(cell, str) and len(cell) > MAX_CHARS // len(cells):
                    cells[i], is_cut = f"{cell[: MAX_CHARS // len(cells)]} [cut: {len(cell)} characters]", True
            room -= sum(len(str(cell)) + 4 for cell in cells)
            if room < 0 and rows:
                has_more = True
                break
            rows.append(cells)
        return {"columns": list(columns), "rows": rows, "has_more": has_more, "is_cut": is_cut}

    @method("ingest.known", access="all", is_quiet=True)
    def known(self, call: Call, refs: Annotated[list[str], "stored paths"]) -> dict[str, Any]:
        """What is known of those that exist, by path: `hash`, and as it was read `kept_hash`, `sha256`, `mark`, `file`."""
        return self._taking().known(refs[:1000])

    @method("ingest.chosen", access="all", is_quiet=True)
    def chosen(
        self,
        call: Call,
        ref: Annotated[str, "an id, drive:/path or a folder; empty means everything"] = "",
        after: Annotated[str, "only after this stored path"] = "",
    ) -> dict[str, Any]:
        """A page of the items a reference means, as `ingest.known` tells them; ask again with `next_after` until it is empty."""
        return self._taking().chosen(ref, after)

    @method("ingest.tree", access="all", is_quiet=True)
    def tree(self, call: Call, folder: Annotated[str, "a stored path; empty is every drive"] = "") -> dict[str, Any]:
        """What is in a folder, as a picture."""
        return {"tree": self._taking().tree(folder)}

    @method("ingest.piece", access="all", is_quiet=True)
    def piece(
        self, call: Call, key: Annotated[str, Range(1, 64), "a name of the caller's choice"], data: Annotated[str, "base64"]
    ) -> dict[str, Any]:
        """Hand in a part of something large; parts of one name follow each other. `ingest.keep` takes them."""
        return {"size_bytes": self._taking().piece(key, data, call.uid)}

    @method("ingest.keep", access="all")
    def keep(
        self, call: Call, items: Annotated[list[dict[str, Any]], "ref, body or body_key, blob_key, original_key, title, mime, ..."]
    ) -> list[dict[str, Any]]:
        """Keep what the caller has read, in one transaction: `ref`, `status` added, updated, unchanged or error, `message`."""
        return self._taking().keep(items, call.uid)

    @method("ingest.page", access="all", is_long=True)
    def page(
        self,
        call: Call,
        url: Annotated[str, Range(1, 4096), "the whole address"],
        addition: Annotated[str, Range(0, 10_000), "the person's words for the agent that loads it through MCP servers"] = "",
    ) -> dict[str, Any]:
        """Fetch a page or document for the caller: `size_bytes`, `mime`, `charset`, and the `key` for `ingest.part`."""
        fetch = self._taking().page
        if fetch is None:
            raise Unavailable("no page can be fetched here", hint="save the page, then add the file")
        return fetch(url, call.uid, addition, call.cancel)

    @method("ingest.part", access="all", is_quiet=True)
    def part(self, call: Call, key: Annotated[str, Range(1, 64), "of ingest.page"]) -> dict[str, Any]:
        """The next bytes of a fetched page in base64, which are forgotten then; empty after the last."""
        part = self._taking().part
        return {"data": "" if part is None else part(key, call.uid)}

    def _taking(self) -> Taking:
        if self._intake is None:
            raise Unavailable("nothing can be added here")
        return self._intake

    @method("skill.list", access="all")
    def skills(self, call: Call) -> list[dict[str, Any]]:
        """Every skill by name; `missing` says why one cannot be used."""
        return self._shelf.skills()

    @method("tool.list", access="all")
    def tools(self, call: Call) -> list[dict[str, Any]]:
        """Every tool with its schemas."""
        return self._means.tools()

    @method("tool.call", access="own")
    def tool(self, call: Call, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run one tool on behalf of a person: the same validation and policy as for the model."""
        outcome = self._means.dispatch(ToolCall(call.correlation, name, arguments), "", call.cancel, f"{CHANNEL}:{_user(call.uid)}")
        plain: dict[str, Any] = to_plain(outcome)
        return plain

    @method("core.status", access="own")
    def status(self, call: Call) -> dict[str, Any]:
        """What runs, what it holds, what it is doing."""
        return self._means.status()

    @method("model.plan", access="all")
    def plan(self, call: Call, pool: str = "") -> list[dict[str, Any]]:
        """The routes of a pool that could answer now, best first; what is missing when there is none. Loads nothing."""
        return self._means.plan(pool)

    @method("model.bench", is_long=True)
    def bench(
        self,
        call: Call,
        model: Annotated[str, "the file stem of a local model; empty is the one that answers"] = "",
        seconds: Annotated[float, Range(5, 3000), "longest wait; what does not fit is left out"] = 600,
    ) -> dict[str, Any]:
        """Measure a model on this device, put everyday requests to it in a home of their own, judge it, and keep its tier.

        Streams `progress` {step, done, steps}. Ends when the caller leaves.
        """

        def tell(step: str, done: int, steps: int) -> None:
            call.notify("progress", {"step": step, "done": done, "steps": steps})

        return self._means.bench(model, seconds, tell, call.cancel)

    @method("prompt.size", access="own")
    def size(self, call: Call, text: str = "hi", role: Annotated[str, "as this role sends it"] = "") -> dict[str, Any]:
        """The prompt for a text, in tokens by part, as the broker counts what it receives."""
        return self._means.prompt_size(text, role)

    @method("core.reload")
    def reload(self, call: Call) -> dict[str, Any]:
        """Read the configuration again; a bad one changes nothing. `changed` is in force, `broker` and `restart` name what waits.

        Keys under `broker` hold as soon as the broker has answered what it is being asked, those under `restart` after one.
        """
        done = self._means.reload()
        return {"changed": done.changed, **done.pending.plain()}

    @method("core.shutdown")
    def shutdown(self, call: Call, reason: str = "asked to") -> dict[str, Any]:
        """Stop the core in good order."""
        self._means.shutdown(reason)
        return {"state": "initiated"}


def _cell(value: Any) -> Any:
    """A value of the database as JSON has it."""
    if isinstance(value, bytes):
        return {"size_bytes": len(value)}
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
