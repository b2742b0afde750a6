"""The local socket as a door: what a client may ask of the core.

One table of methods serves the socket and, when no core runs, the command line in its own process. The
caller's identity is what the kernel says, never what it claims. Streams are notifications: `accepted`
after the commit, `delta` for text, `event` for every stored event.
"""

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from appliance.clock import CancelToken, correlation_id, new_id, now_ms
from appliance.errors import BadInput, Lost
from appliance.inbox import Inbox
from appliance.jsonrpc import Call, method
from appliance.records import Delta, Inbound, LoopEnded, Outcome, ToolCall, to_plain
from appliance.runs import Runs

CHANNEL = "local"


@dataclass(frozen=True)
class Means:
    """What the door needs from the core besides the inbox and the record."""

    dispatch: Callable[[ToolCall, str, CancelToken], Outcome]
    tools: Callable[[], list[dict[str, Any]]]
    status: Callable[[], dict[str, Any]]
    prompt_size: Callable[[str], dict[str, Any]]
    reload: Callable[[], str]
    shutdown: Callable[[str], None]


@dataclass(frozen=True)
class Shelf:
    """What the door shows of what the owl knows."""

    listing: Callable[[str, int, int], list[dict[str, Any]]]
    view: Callable[[str, int, int], dict[str, Any]]
    skills: Callable[[], list[dict[str, Any]]]


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

    def __init__(self, inbox: Inbox, runs: Runs, means: Means, shelf: Shelf) -> None:
        self._inbox = inbox
        self._runs = runs
        self._means = means
        self._shelf = shelf

    @method("message.send")
    def send(
        self,
        call: Call,
        text: str,
        thread: Annotated[str, "continue this one; empty starts a new one"] = "",
        kind: Literal["chat", "ask"] = "chat",
        message_id: Annotated[str, "the same id is accepted once"] = "",
        wait: Annotated[bool, "stream the answer; false returns once the message is safe"] = True,
    ) -> dict[str, Any]:
        """Hand in a message. It is committed before `accepted` is sent; a caller that leaves does not stop the answer."""
        inbound = Inbound(CHANNEL, _user(call.uid), text, message_id or new_id(), now_ms(), thread=thread, kind=kind)
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
            end = LoopEnded(100, "waiting", "the answer goes on without this listener")
            for item in subscription:
                if isinstance(item, Delta):
                    call.notify("delta", {"text": item.text})
                elif isinstance(item, LoopEnded):
                    end = item
                else:
                    call.notify("event", to_plain(item))
            return {**known, "status": end.status, "outcome": end.outcome, "message": end.message}
        except Lost:
            return known
        finally:
            self._inbox.feed.leave(accepted.loop, subscription)

    @method("run.stop")
    def stop(self, call: Call, run: str) -> dict[str, Any]:
        """Stop what is being answered in a thread; what was said is kept."""
        found = self._runs.get(run)
        return {"run": found.id, "stopped": self._inbox.stop(found.id)}

    @method("thread.list")
    def threads(
        self, call: Call, type: Literal["", "chat", "ask", "tick"] = "", limit: int = 20, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Threads, newest first."""
        if limit < 1 or offset < 0:
            raise BadInput(f"limit {limit} and offset {offset}: limit must be at least 1, offset at least 0")
        return [to_plain(run) for run in self._runs.listing(kind=type, limit=limit, offset=offset)]

    @method("thread.view")
    def view(self, call: Call, id: str, only: list[str] | None = None, after: int = 0) -> dict[str, Any]:
        """A thread with its events, optionally only those of some roles or after a sequence number."""
        roles = ("user", "assistant", "system", "tool")
        wrong = [role for role in only or [] if role not in roles]
        if wrong:
            raise BadInput(f"unknown role {', '.join(wrong)}", hint=f"use {', '.join(roles)}")
        run = self._runs.get(id)
        events = self._runs.events(run.id, after=after, roles=only or ())
        return {"thread": to_plain(run), "events": [to_plain(e) for e in events], "turns": self._runs.turns(run.id)}

    @method("thread.delete")
    def delete(self, call: Call, id: str) -> dict[str, Any]:
        """Delete a thread with everything said in it."""
        run = self._runs.get(id)
        return {"run": run.id, "events": self._runs.delete(run.id)}

    @method("entry.list")
    def entries(
        self,
        call: Call,
        prefix: Annotated[str, "only references that begin so, such as box://notes/"] = "",
        limit: Annotated[int, "how many to show"] = 100,
        offset: Annotated[int, "how many to leave out first"] = 0,
    ) -> list[dict[str, Any]]:
        """Entries sorted by reference: `ref`, `title`, `size_bytes`, `updated_ms`."""
        if limit < 1 or offset < 0:
            raise BadInput(f"limit {limit} and offset {offset}: limit must be at least 1, offset at least 0")
        return self._shelf.listing(prefix, limit, offset)

    @method("entry.view")
    def entry(
        self,
        call: Call,
        ref: str,
        line: Annotated[int, "first line to show"] = 1,
        limit: Annotated[int, "how many lines"] = 1000,
    ) -> dict[str, Any]:
        """Some lines of an entry, with `total_lines` and what is known about it."""
        if line < 1 or limit < 1:
            raise BadInput(f"line {line} and limit {limit}: both must be at least 1")
        return self._shelf.view(ref, line, limit)

    @method("skill.list")
    def skills(self, call: Call) -> list[dict[str, Any]]:
        """Every skill by name; `missing` says why one cannot be used."""
        return self._shelf.skills()

    @method("tool.list")
    def tools(self, call: Call) -> list[dict[str, Any]]:
        """Every tool with its schemas."""
        return self._means.tools()

    @method("tool.call")
    def tool(self, call: Call, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run one tool on behalf of a person: the same validation and policy as for the model."""
        outcome = self._means.dispatch(ToolCall(call.correlation, name, arguments), "", call.cancel)
        plain: dict[str, Any] = to_plain(outcome)
        return plain

    @method("core.status")
    def status(self, call: Call) -> dict[str, Any]:
        """What runs, what it holds, what it is doing."""
        return self._means.status()

    @method("prompt.size")
    def size(self, call: Call, text: str = "hi") -> dict[str, Any]:
        """The prompt for a text, in tokens by part, as the broker counts what it receives."""
        return self._means.prompt_size(text)

    @method("core.reload")
    def reload(self, call: Call) -> dict[str, Any]:
        """Read the configuration again; a bad one changes nothing."""
        return {"changed": self._means.reload()}

    @method("core.shutdown")
    def shutdown(self, call: Call, reason: str = "asked to") -> dict[str, Any]:
        """Stop the core in good order."""
        self._means.shutdown(reason)
        return {"state": "initiated"}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
