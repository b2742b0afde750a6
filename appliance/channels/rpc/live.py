"""What an open screen is told by itself: a thread as it grows, whoever writes into it, and what arrives for its person.

One long call for each screen, which sleeps until something was written. Another process's writes are heard of when it
says so (`queue.changed`); only while one is answering in the very thread that is looked at, the record is read once a
second (`orchestrator.result_poll_ms`). Text as it streams is for whoever sent the message; here come stored events.
Knows nothing about how it is shown.
"""

from collections.abc import Callable
from typing import Annotated, Any

from appliance.channels.inbox import fit
from appliance.clock import now_ms
from appliance.errors import Cancelled, Lost, NotFound
from appliance.records import to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.subscriptions import Notice, Notices, Signal
from appliance.runtime.users import caller_name
from appliance.sessions.outbox import Outbox
from appliance.sessions.runs import RUNNING, WAITING, Runs

BATCH = 100  # events that are read at a time
LOOK_S = 1.0  # at what another process writes into the thread on the screen
TITLE_S = 5.0  # at what another process calls it


class LiveMethods:
    """The method table of open screens."""

    def __init__(
        self,
        runs: Runs,
        notices: Notices,
        outbox: Outbox,
        deliver: Callable[[], object],
        look_s: Callable[[], float] = lambda: LOOK_S,
    ) -> None:
        """`deliver` sends what is due where nobody else does; `look_s` is how often to look at what other processes write."""
        self._runs = runs
        self._notices = notices
        self._outbox = outbox
        self._deliver = deliver
        self._look_s = look_s

    @method("thread.follow", access="own", is_long=True, is_quiet=True)
    def follow(
        self,
        call: Call,
        id: Annotated[str, "the thread that is looked at; empty for none"] = "",
        after: Annotated[int, Range(0, 2**62), "only events after this sequence number"] = 0,
    ) -> dict[str, Any]:
        """Streams until the caller leaves or the thread is deleted; Cancelled when the core ends, for the thread is still there.

        `event` for each event stored in the thread, `thread` {id, status, outcome, last_seq, title, alias, role} first and
        whenever that has changed, `notice` {person, text, run, seq, at_ms, key} for what arrives unasked for the caller.
        """
        box = self._notices.look_out(caller_name(call))
        call.cancel.then(box.close)
        watched = _Watched(self._runs, self._runs.get(id).id if id else "", after)
        try:
            watched.send_news(call)
            while not box.is_closed:
                item = box.take(self._look_s() if watched.is_elsewhere() else TITLE_S if id else None)
                if isinstance(item, Signal):
                    call.notify(item.method, item.params)
                elif isinstance(item, Notice):
                    call.notify("notice", to_plain(item))
                    self._outbox.see(box.person, [item.key])
                elif not box.is_closed:
                    watched.send_news(call)
        except (Lost, NotFound):
            pass  # it has gone
        else:
            raise Cancelled("the core is ending")
        finally:
            self._notices.blink(box)
        return {"after": watched.after}

    @method("event.follow", access="own", is_long=True, is_quiet=True)
    def follow_events(
        self,
        call: Call,
        after: Annotated[int, Range(-1, 2**62), "only events whose `id` is larger; -1 for those that come from now on"] = -1,
        kinds: Annotated[list[str], "only these kinds, such as message or tool_result; all without any"] = [],  # noqa: B006
    ) -> dict[str, Any]:
        """Streams `event` for each event stored in any of the caller's threads, in the order of their `id`, until it leaves.

        A client that lost its connection goes on with the last `id` it has seen as `after`, and misses none. Also sends `notice`,
        `published` and `stream.cancelled` as they come; those are not stored.
        """
        box = self._notices.look_out(caller_name(call), is_screen=False)
        call.cancel.then(box.close)
        at = self._runs.record.newest() if after < 0 else after
        try:
            at = self._send_events(call, at, kinds)
            while not box.is_closed:
                item = box.take()
                if isinstance(item, Signal):
                    call.notify(item.method, item.params)
                elif isinstance(item, Notice):
                    call.notify("notice", to_plain(item))
                at = self._send_events(call, at, kinds)
        except Lost:
            pass  # it has gone
        finally:
            self._notices.blink(box)
        return {"after": at}

    def _send_events(self, call: Call, at: int, kinds: list[str]) -> int:
        """Send what is stored after an event; the id of the last one."""
        while found := self._runs.record.stored_after(at, BATCH):
            for event in found:
                if not kinds or event.kind in kinds:
                    call.notify("event", fit(event)[0])
            at = found[-1].id
        return at

    @method("event.publish", access="own")
    def publish(
        self,
        call: Call,
        name: Annotated[str, Range(1, 80), "what it is about"],
        data: Annotated[dict[str, Any], "whatever those who follow understand"],
    ) -> dict[str, Any]:
        """Tell the caller's other clients that follow something, as `published`; `count` says how many. Nothing is stored."""
        told = {"name": name, "data": data, "client": call.client, "at_ms": now_ms()}
        return {"count": self._notices.put(Signal(caller_name(call), "published", told))}

    @method("notice.list", access="own")
    def told(
        self,
        call: Call,
        limit: Annotated[int, Range(1, 1000), "how many to show"] = 50,
        is_waiting: Annotated[bool, "only what was not shown yet, oldest first and all of it: show it, then say so"] = False,
    ) -> list[dict[str, Any]]:
        """What the caller was told, newest first: {key, text, run, at_ms}."""
        if is_waiting:
            self._deliver()
        person = caller_name(call)
        found = self._outbox.unseen(person) if is_waiting else self._outbox.told(person, limit)
        known = [(one, self._outbox.thread(one.notification)) for one in found]
        return [{"key": o.notification.key, "text": o.notification.text, "run": run, "at_ms": o.ended_ms} for o, run in known]

    @method("notice.seen", access="own")
    def seen(self, call: Call, keys: Annotated[list[str], "as notice.list names them"]) -> dict[str, Any]:
        """The caller has been shown these."""
        return {"count": self._outbox.see(caller_name(call), keys)}

    @method("notice.follow", access="own", is_long=True)
    def follow_notices(self, call: Call, everybody: Annotated[bool, "also what is for others"] = False) -> dict[str, Any]:
        """Streams `notice` {person, text, run, seq, at_ms, key} for all that arrives unasked for the caller, until it leaves.

        `lost` counts what a slow one missed.
        """
        box = self._notices.subscribe("" if everybody else caller_name(call))
        call.cancel.then(box.close)
        try:
            for item in box:
                if isinstance(item, Signal):
                    call.notify(item.method, item.params)
                else:
                    call.notify("notice", to_plain(item))
        except Lost:
            pass  # it has gone
        finally:
            self._notices.leave(box)
        return {"lost": box.lost}


class _Watched:
    """A thread and the part of it that was sent already."""

    def __init__(self, runs: Runs, thread: str, after: int) -> None:
        self._runs = runs
        self._thread = thread
        self._told: dict[str, Any] = {}
        self._last_seq = -1
        self.after = after

    def send_news(self, call: Call) -> None:
        """Send the changes; reads one row when there are none."""
        if not self._thread:
            return
        run = self._runs.get(self._thread)
        if run.last_seq != self._last_seq:
            self._last_seq = run.last_seq
            for event in self._runs.events(run.id, after=self.after, is_branch=True):
                call.notify("event", fit(event)[0])
                self.after = event.seq
        known = {"status": run.status, "outcome": run.outcome, "last_seq": run.last_seq, "title": run.title, "alias": run.alias}
        known = {"id": run.id, **known, "role": run.role}
        if known != self._told:
            self._told = known
            call.notify("thread", known)

    def is_elsewhere(self) -> bool:
        """True while the thread is, or will be, answered by another process: its commits ring no bell here."""
        if self._told.get("status") not in (WAITING, RUNNING):
            return False
        return any(loop.process != self._runs.process for loop in self._runs.queue(self._thread))
