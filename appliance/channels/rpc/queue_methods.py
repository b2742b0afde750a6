"""The queue at the local socket: workers, what is to be told, and the core's broker for its workers.

The methods of tasks are tools (`tool.call`). Who may open the socket may look at and end workers; the broker is lent
to the core's own user alone. Beside `rpc` because one table would pass 600 lines.
"""

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from appliance.errors import Lost, Refused
from appliance.records import to_plain
from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.subscriptions import Notices
from appliance.sessions.outbox import Outbox

Limit = Annotated[int, Range(1, 1000), "how many to show"]
Offset = Annotated[int, Range(0, 10_000_000), "how many to leave out first"]
Worker = Annotated[str, Range(1, 64), "its id, or the beginning or end of it"]


@dataclass(frozen=True)
class Staff:
    """What the door needs to look after workers."""

    listing: Callable[[str, int, int], list[dict[str, Any]]]
    view: Callable[[str], dict[str, Any]]
    start: Callable[[Literal["once", "persist"], int | None, bool], dict[str, Any]]
    stop: Callable[[str], dict[str, Any]]
    kill: Callable[[str], dict[str, Any]]
    reap: Callable[[], list[dict[str, Any]]]
    log: Callable[[str, int], dict[str, Any]]
    lend: Callable[[str], dict[str, str]]


class Queue:
    """The method table of the queue; `changed` tells workers and the courier, `counts` are the tasks by status.

    `deliver` sends what is due where nobody else does.
    """

    def __init__(
        self,
        staff: Staff,
        outbox: Outbox,
        notices: Notices,
        changed: Callable[[], None],
        counts: Callable[[], dict[str, Any]],
        deliver: Callable[[], object],
    ) -> None:
        self._staff = staff
        self._outbox = outbox
        self._notices = notices
        self._changed = changed
        self._counts = counts
        self._deliver = deliver

    @method("worker.list", access="all")
    def workers(
        self,
        call: Call,
        status: Annotated[Literal["", "running", "stopped", "dead"], "only in this state"] = "",
        limit: Limit = 20,
        offset: Offset = 0,
    ) -> list[dict[str, Any]]:
        """Workers, newest first."""
        return self._staff.listing(status, limit, offset)

    @method("worker.view")
    def worker(self, call: Call, id: Worker) -> dict[str, Any]:
        """One worker, with the tasks it holds in `claims`."""
        return self._staff.view(id)

    @method("worker.start")
    def start(
        self,
        call: Call,
        is_persistent: Annotated[bool, "goes on until it is stopped; otherwise it does one task"] = False,
        task: Annotated[int | None, "only this task"] = None,
        is_scheduling: Annotated[bool, "judge due schedules first"] = True,
    ) -> dict[str, Any]:
        """Start a worker that outlives its caller; returns when it is registered: `id`, `pid`, `mode`, `log`, `message`."""
        return self._staff.start("persist" if is_persistent else "once", task, is_scheduling)

    @method("worker.stop")
    def stop(self, call: Call, id: Worker) -> dict[str, Any]:
        """Ask a worker to stop; it gives back what it holds. `state` is "stopping" when that takes longer than a moment."""
        return self._staff.stop(id)

    @method("worker.kill")
    def kill(self, call: Call, id: Worker) -> dict[str, Any]:
        """End a worker at once; what it held is pending again."""
        return self._staff.kill(id)

    @method("worker.reap")
    def reap(self, call: Call) -> list[dict[str, Any]]:
        """Bury workers that have died or are silent for too long, and give back what they held; those buried."""
        return self._staff.reap()

    @method("worker.log", is_quiet=True)
    def log(
        self, call: Call, id: Worker, after: Annotated[int, Range(-1, 2**62), "only from this byte on; -1 is the end of it"] = -1
    ) -> dict[str, Any]:
        """At most the last 128 KB of a worker's log as `text`, with the whole size in bytes; a foreground worker has none."""
        return self._staff.log(id, after)

    @method("core.broker", access="all", is_quiet=True)
    def broker(
        self, call: Call, reason: Annotated[str, 'empty only asks; "needed" starts it; anything else says that it is sick'] = ""
    ) -> dict[str, str]:
        """Where the core's broker listens and what it asks for, for workers of the core's own user. Never kept anywhere."""
        if call.uid != os.getuid():
            raise Refused("the broker is lent to the core's own user alone", hint="ask the core instead")
        return self._staff.lend(reason)

    @method("queue.changed", access="all", is_quiet=True)
    def changed(self, call: Call) -> dict[str, Any]:
        """Say that another process has stored notifications or tasks: idle workers and the sender look for them."""
        self._changed()
        return {}

    @method("queue.counts", access="all", is_quiet=True)
    def counts(self, call: Call) -> dict[str, Any]:
        """How many `tasks`, `workers` and `letters` there are in each state."""
        return self._counts()

    @method("outbox.list")
    def letters(
        self,
        call: Call,
        status: Annotated[Literal["", "waiting", "sending", "sent", "logged", "failed", "cancelled"], "only in this state"] = "",
        limit: Limit = 20,
        offset: Offset = 0,
    ) -> list[dict[str, Any]]:
        """What is and was to be told to people, newest first."""
        return [to_plain(posting) for posting in self._outbox.listing(status=status, limit=limit, offset=offset)]

    @method("notice.waiting", access="own")
    def waiting(self, call: Call) -> list[dict[str, Any]]:
        """What the caller was told and has not been shown yet, oldest first: {key, text, run, at_ms}. Show it, then say so."""
        self._deliver()
        found = self._outbox.unseen(_person(call.uid))
        known = [(one, self._outbox.thread(one.letter)) for one in found]
        return [{"key": o.letter.key, "text": o.letter.text, "run": run, "at_ms": o.ended_ms} for o, run in known]

    @method("notice.seen", access="own")
    def seen(self, call: Call, keys: Annotated[list[str], "as notice.waiting names them"]) -> dict[str, Any]:
        """The caller has been shown these."""
        return {"count": self._outbox.see(_person(call.uid), keys)}

    @method("notice.follow", access="own", is_long=True)
    def follow(self, call: Call, everybody: Annotated[bool, "also what is for others"] = False) -> dict[str, Any]:
        """Streams `notice` {person, text, run, seq, at_ms, key} for all that arrives unasked for the caller, until it leaves.

        `lost` counts what a slow one missed.
        """
        box = self._notices.subscribe("" if everybody else _person(call.uid))
        call.cancel.then(box.close)
        try:
            for notice in box:
                call.notify("notice", to_plain(notice))
        except Lost:
            pass  # it has gone
        finally:
            self._notices.leave(box)
        return {"lost": box.lost}


def _person(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
