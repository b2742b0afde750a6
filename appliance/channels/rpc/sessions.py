"""The record at the local socket: sessions and their states, runs with their branches and settings, transcripts.

Whoever may open the socket may look at and change all of it, as with threads. What is long is streamed: `line`
for a transcript, and what `inbox.relay` tells for an answer.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from msgspec.structs import replace

from appliance.channels.inbox import MAX_CHARS, AcceptedMessage, fit, relay
from appliance.channels.rpc.run_state import RunStates
from appliance.channels.session_control import Control, Prompt, read_settings
from appliance.errors import BadInput, Lost
from appliance.records import Mode, Outcome
from appliance.runtime.methods import Call, method
from appliance.runtime.rpc.notifications import StateNote
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name, group_context
from appliance.sessions.history import HistoryRecord
from appliance.sessions.runs import Run as RunRecord
from appliance.sessions.sessions import SessionFilter, session_data

Limit = Annotated[int, Range(1, 1000), "how many to show"]
Offset = Annotated[int, Range(0, 10_000_000), "how many to leave out first"]
Session = Annotated[str, "channel:sender, or the sender of the only one"]
Run = Annotated[str, "its name or id, or the beginning or end of the id"]
Ms = Annotated[int, Range(0, 2**53), "milliseconds since 1970; 0 does not matter"]
Wait = Annotated[bool, "stream the answer; false returns once the prompt is safe"]
States = Annotated[bool, "also stream `state` after each command and each turn, and at the end"]
Given = Annotated[dict[str, Any] | None, "temperature, context_limit, persona, approval, no_repo, no_web, ..."]
PAGE_CHARS = 400_000
EXCERPT_CHARS = 120  # behind the beginning of what was found


def _prompt_method(mode: Mode, what: str) -> Callable[..., dict[str, Any]]:
    """The method of one mode: they differ in nothing else."""

    @method(f"run.{mode}", access="own", is_long=True)
    def asking(
        self: "SessionMethods",
        call: Call,
        prompt: str,
        model: Annotated[str, "a pool or a route; needed"] = "",
        run: Annotated[str, "continue this one; empty begins one"] = "",
        alias: Annotated[str, "the name of a new one"] = "",
        fork: Annotated[bool, "in a fork of `run`"] = False,
        settings: Given = None,
        message_id: Annotated[str, "the same id is accepted once"] = "",
        wait: Wait = True,
        states: States = False,
    ) -> dict[str, Any]:
        given = read_settings({**(settings or {}), "model": model})
        return self.prompted(call, Prompt(prompt, mode, run, alias, fork, given, message_id), wait, is_describing=states)

    asking.__doc__ = f"{what} Answered once every tool has finished, or at once with status 100 while others come first."
    return asking


class SessionMethods:
    """Sessions and runs for people, where arguments have to be read or an answer is streamed."""

    def __init__(self, control: Control, states: RunStates) -> None:
        self.control = control
        self._states = states

    # -- sessions -----------------------------------------------------------------------------------

    @method("session.list", access="own")
    def sessions(
        self,
        user: Annotated[str, "only this person's"] = "",
        group: Annotated[str, "only this group's"] = "",
        context_type: Literal["", "user", "group"] = "",
        status: Literal["", "created", "active", "idle", "stopped", "archived", "closing", "closed"] = "",
        created_after_ms: Ms = 0,
        created_before_ms: Ms = 0,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> list[dict[str, Any]]:
        """Sessions, the newest activity first, as they are now."""
        wanted = SessionFilter(user, group, context_type, status, created_after_ms, created_before_ms)
        return self.control.list_sessions(wanted, limit, offset)

    @method("session.create")
    def create(self, channel: str, sender: str, group: Annotated[str, "of a group, not of the sender"] = "") -> dict[str, Any]:
        """A session before its first message."""
        return session_data(self.control.create(channel, sender, group))

    @method("session.change", access="own")
    def change(
        self,
        call: Call,
        id: Session,
        status: Annotated[Literal["active", "archived", "closed"], "archived: until somebody writes in it; closed: for good"],
        is_final: Annotated[bool, "close also the caller's own, which is refused without"] = False,
    ) -> dict[str, Any]:
        """Archive a session, make it active again, or close it: it takes no more messages, what is answered there is stopped."""
        if status == "closed":
            return session_data(self.control.close(id, caller_name(call), is_final=is_final))
        return session_data(self.control.archive(id) if status == "archived" else self.control.resume(id))

    @method("session.delete", access="own")
    def delete(self, id: Session) -> dict[str, Any]:
        """Delete a closed session with everything said in it."""
        return {"session": id, "events": self.control.delete(id)}

    @method("session.export", access="own", is_long=True)
    def export(
        self, call: Call, id: Annotated[str, "channel:sender, or the sender of the only one"] = "", thread: Run = ""
    ) -> dict[str, Any]:
        """A session, or one thread after those it was forked off, as JSON lines: notifications `line` {text, is_end}, long ones
        in several."""
        if bool(id) == bool(thread):
            raise BadInput("give either a session or a thread", hint="owlbox session list and owlbox thread list show them")
        transcripts = self.control.transcripts
        return _stream_lines(call, transcripts.thread(thread) if thread else transcripts.session(id))

    @method("history.list", access="own", is_quiet=True)
    def history(
        self,
        call: Call,
        context: Annotated[str, "user:NAME or group:NAME; empty is the caller's"] = "",
        last: Limit = 80,
        query: Annotated[str, Range(0, 200), "letters that were said, in whatever case"] = "",
    ) -> list[HistoryRecord]:
        """What was asked and answered, over all threads, oldest first: two records for each prompt that was answered.

        With a query the newest messages that hold it, cut around it: of the caller's group, without one all that it may read.
        """
        if not query:
            return self.control.history.last(context or f"user:{caller_name(call)}", last)
        if not query.strip():
            raise BadInput("nothing is looked for", hint="give some letters of what was said")
        found = self.control.history.search(query.strip(), context=group_context(), limit=last)
        return [replace(one.told, text=_cut_around(one.told.text, query.strip())) for one in found]

    # -- runs ---------------------------------------------------------------------------------------

    ask = _prompt_method("ask", "A question that changes nothing.")
    act = _prompt_method("act", "Work with everything the run may use.")

    @method("run.inject", access="own", is_long=True)
    def inject(self, call: Call, run: Run, text: str, wait: Wait = False) -> dict[str, Any]:
        """Say something to a run: an idle one begins with it, a busy one has it next."""
        told = self._follow_prompt(call, self.control.send_message(caller_name(call), run, text, call.correlation), wait)
        if wait or told.get("status") not in (100, 102):
            return told
        return {**told, "status": 202 if self.control.runs.get(run).status == 202 else 102}  # the run's, which goes on

    @method("run.state", access="own")
    def state(self, run: Run) -> StateNote:
        """How a run stands: what it has touched in order of time, what it does not know, its last word on itself, what it took."""
        return StateNote(**self._states.describe(run))

    @method("run.path", access="own")
    def path(
        self,
        run: Run,
        seq: Annotated[int, Range(0, 2**53), "the branch that ends at this number; 0 is the present one"] = 0,
        offset: Offset = 0,
        limit: Limit = 100,
    ) -> dict[str, Any]:
        """One branch from its very beginning, through whatever runs it leads; `has_more` says that there are further events."""
        events, count = self.control.branches.page(run, seq, offset, limit)
        shown: list[dict[str, Any]] = []
        room = PAGE_CHARS
        for event in events:
            one, size = fit(event)
            room -= size
            if room < 0 and shown:
                break
            shown.append(one)
        return {"events": shown, "has_more": offset + len(shown) < count}

    @method("run.config", access="own")
    def config(
        self, run: Run, settings: Given = None, alias: Annotated[str, "another name: letters, digits and _; its id stays"] = ""
    ) -> RunRecord:
        """Change what a run is set to, or its name; without either only say what that is."""
        self.control.require_model(read_settings(settings or {}).model)
        found = self.control.runs.rename(run, alias) if alias else self.control.runs.get(run)
        return self.control.runs.configure(found.id, settings or {})

    @method("run.write", access="own")
    def write(
        self,
        call: Call,
        ref: Annotated[str, "run://NAME"],
        body: Annotated[str, "a prompt for it"] = "",
        attributes: Annotated[dict[str, Any] | None, 'model, mode, flags; or {"state": "cancelled"}'] = None,
    ) -> Outcome:
        """Write to a run's address: a text is a prompt for it, new or not, and a state of cancelled aborts it."""
        outcome, accepted = self.control.write(caller_name(call), ref, body, attributes or {}, call.correlation)
        if accepted is not None:
            self.control.begin(accepted)
        return outcome

    # -- inside -------------------------------------------------------------------------------------

    def prompted(self, call: Call, prompt: Prompt, wait: bool, *, is_describing: bool = False) -> dict[str, Any]:
        """Hand in a prompt, and hear the answer unless others of its run come first (R-037)."""
        accepted = self.control.prompt(caller_name(call), prompt, call.correlation)
        is_first = all(loop.id >= accepted.loop for loop in self.control.runs.queue(accepted.run))
        return self._follow_prompt(call, accepted, wait and is_first, is_describing=is_describing)

    def _follow_prompt(self, call: Call, accepted: AcceptedMessage, wait: bool, *, is_describing: bool = False) -> dict[str, Any]:
        run = self.control.runs.get(accepted.run)
        known = {"run": run.id, "alias": run.alias, "loop": accepted.loop, "seq": accepted.seq, "is_new": accepted.is_new}
        feed = self.control.inbox.feed
        subscription = feed.subscribe(accepted.loop)
        try:
            if not wait:
                self.control.begin(accepted)
            elif accepted.is_new:
                self.control.inbox.start(accepted.loop)
            call.notify("accepted", known)
            if not wait or not accepted.is_new:
                return {**known, "status": self.control.runs.loop(accepted.loop).status}
            call.cancel.then(subscription.close)
            notify = self._states.follow(run.id, call.notify) if is_describing else call.notify
            end = relay(subscription, notify, is_through=True)  # answered when every tool has finished
            if is_describing:
                call.notify("state", self._states.describe(run.id))
            return {**known, "status": end.status, "outcome": end.outcome, "message": end.message}
        except Lost:
            return known
        finally:
            feed.leave(accepted.loop, subscription)


def _cut_around(text: str, query: str) -> str:
    """A text on one line, cut to some words before and behind what was looked for."""
    flat = " ".join(text.split())
    at = max(0, flat.casefold().find(query.casefold()))
    start, end = max(0, at - EXCERPT_CHARS // 3), at + EXCERPT_CHARS
    return f"{'…' if start else ''}{flat[start:end]}{'…' if end < len(flat) else ''}"


def _stream_lines(call: Call, lines: Iterable[str]) -> dict[str, Any]:
    """Send lines of an export, long ones in parts; how many there were."""
    count = 0
    for line in lines:
        for start in range(0, len(line), MAX_CHARS):
            part = line[start : start + MAX_CHARS]
            call.notify("line", {"text": part, "is_end": start + MAX_CHARS >= len(line)})
        count += 1
    return {"lines": count}
