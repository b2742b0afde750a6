"""Messages and threads at the local socket: hand in a message and hear its answer, look at threads, stop, end and delete them.

The caller's identity is what the kernel says, never what it claims. Whoever may open the socket is trusted with every
thread of the box. Streams are notifications: `accepted` after the commit, then those of `inbox.relay`.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from msgspec.structs import replace

from appliance.channels.inbox import Inbox, fit, relay
from appliance.channels.rpc.uploads import Uploads
from appliance.clock import new_id, now_ms
from appliance.errors import BadInput, Lost
from appliance.records import Inbound, RunSettings, to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name, group_context
from appliance.sessions.runs import Run, Runs

CHANNEL = "local"
PAGE_CHARS = 400_000
BATCH = 100
TURNS = 1000


class ThreadMethods:
    """Messages and threads of an inbox and its record."""

    def __init__(
        self, inbox: Inbox, runs: Runs, uploads: Uploads | None = None, require_model: Callable[[str], None] = lambda name: None
    ) -> None:
        """`require_model` refuses a name that is no pool, route or model."""
        self._inbox = inbox
        self._require_model = require_model
        self._uploads = uploads
        self._runs = runs

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
        uploads: Annotated[Sequence[str], "files that came with it, as upload.keep names them"] = (),
        model: Annotated[str, Range(0, 200), "a pool or route that answers in a new thread; run.config sets it later"] = "",
    ) -> dict[str, Any]:
        """Hand in a message. It is committed before `accepted` is sent; a caller that leaves does not stop the answer."""
        user = caller_name(call)
        # Ids are chosen by callers: one person's must not swallow another's message.
        key = f"{user}/{message_id}" if message_id else new_id()
        inbound = Inbound(CHANNEL, user, text, key, now_ms(), thread=thread, kind=kind, context=group_context())
        if model and not thread:
            self._require_model(model)
            inbound = replace(inbound, settings=RunSettings(model=model))
        if own_chars >= 0:
            inbound = replace(inbound, own_chars=own_chars)
        if uploads and self._uploads is not None:
            attached = self._uploads.attach(call, uploads)
            own = own_chars if own_chars >= 0 else len(text)
            inbound = replace(inbound, text=f"{text}\n\n{attached.text}", own_chars=own, images=attached.images)
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
    def stop(
        self,
        run: Annotated[str, "its name or id, or the beginning or end of the id"],
        is_queue_kept: Annotated[bool, "queued prompts come next, instead of being dropped"] = False,
    ) -> dict[str, Any]:
        """Stop what is being answered in a thread; what was said is kept."""
        found = self._runs.get(run)
        return {"run": found.id, "stopped": self._inbox.abort(found.id) if is_queue_kept else self._inbox.stop(found.id)}

    @method("thread.list", access="own")
    def threads(
        self,
        type: Literal["", "chat", "ask", "tick", "child"] = "",
        limit: Annotated[int, Range(1, 1000), "how many to show"] = 20,
        offset: Annotated[int, Range(0, 10_000_000), "how many to leave out first"] = 0,
    ) -> list[Run]:
        """Threads, newest first."""
        return self._runs.list_runs(kind=type, limit=limit, offset=offset)

    @method("thread.view", access="own", is_quiet=True)
    def view(
        self,
        id: str,
        only: list[str] | None = None,
        after: Annotated[int, Range(0, 2**62), "only events after this sequence number"] = 0,
        limit: Annotated[int, Range(1, 1000), "how many events at most"] = 1000,
        turns: Annotated[int, Range(1, 1000), "how many of the newest turns"] = TURNS,
    ) -> dict[str, Any]:
        """A page of a thread's events, optionally only those of some roles, and its newest turns.

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
        newest = self._runs.turns(run.id)[-turns:]
        return {"thread": to_plain(run), "events": events, "has_more": has_more, "turns": newest}

    @method("thread.end", access="own")
    def end(self, id: str) -> dict[str, Any]:
        """Say that a talk is over: its thread is marked as ended, until its next message. Not while it is being answered."""
        run = self._runs.get(id)
        return {"run": run.id, "is_ended": self._runs.leave_off(run.id)}

    @method("thread.delete", access="own")
    def delete(self, id: str) -> dict[str, Any]:
        """Delete a thread with everything said in it."""
        run = self._runs.get(id)
        return {"run": run.id, "events": self._runs.delete(run.id)}
