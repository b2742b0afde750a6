"""Decisions at the local socket: look at what waits, accept or reject it, and hear how the answer goes on.

Whoever may open the socket may decide.
"""

from typing import Annotated, Any

from appliance.agent.approvals import Approvals, Decision
from appliance.agent.released_calls import ReleasedCalls
from appliance.channels.inbox import Inbox, relay
from appliance.errors import Conflict, Lost
from appliance.knowledge.action_log import ShownChange
from appliance.records import to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.sessions.runs import PROPOSED, WAITING, Runs


class ApprovalMethods:
    """Decides on behalf of people; `released` lets the like of a call pass for a while."""

    def __init__(self, inbox: Inbox, runs: Runs, approvals: Approvals, released: ReleasedCalls) -> None:
        self._inbox = inbox
        self._runs = runs
        self._approvals = approvals
        self._released = released

    @method("run.proposal", access="own")
    def proposal(
        self,
        ref: Annotated[str, Range(1, 2048), "what waits, as entry.waiting names it, or the end of it"],
        run: Annotated[str, "the thread in which it waits; empty where only one such waits"] = "",
    ) -> ShownChange:
        """What a person has to know to decide: of a change of a file `patch`, a unified difference, else `text` and `options`.

        `because` names the page, mail or server whose text a held call follows, "" for what is not held.
        `patch` is empty where it would be very long; `text` has both texts then.
        """
        return self._approvals.show(ref, run)

    @method("run.resolve", access="own", is_long=True)
    def resolve(
        self,
        ref: Annotated[str, Range(1, 2048), "what waits, as entry.waiting names it, or the end of it"],
        action: Annotated[Decision, "error: it was tried and went wrong"] = "accept",
        run: Annotated[str, "the thread in which it waits; empty where only one such waits"] = "",
        output: Annotated[str, "the answer to a question, what a command printed, or the reason"] = "",
        wait: Annotated[bool, "stream how the answer goes on, as message.send does"] = False,
        remember: Annotated[str, "of a held call that is accepted: for how long the like may pass, such as 7d"] = "",
        digest: Annotated[str, "of what was looked at, as run.proposal told it: a conflict when it is another one by now"] = "",
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Decide about what a thread proposed. `status` is the thread's: 102 while it goes on, 202 while more waits.

        It is 100 for a task's thread: a worker goes on with it. `outcome` is that of the proposal. Once decided
        it stays so: a conflict otherwise.
        """
        if digest and digest != self._approvals.show(ref, run).digest:
            raise Conflict(f"{ref} is not what you were shown: it was changed meanwhile", hint="look at it again, then decide")
        if remember and action == "accept":
            waiting = self._approvals.find(ref, self._run_id(run))
            self._released.remember(waiting.ref, waiting.run, remember, caller_name(call))
        loop = self._approvals.loop_of(ref, run)
        subscription = self._inbox.feed.subscribe(loop)
        try:
            known: dict[str, Any] = to_plain(self._approvals.resolve(ref, self._run_id(run), action, output))
            if not wait or not loop or known["status"] in (WAITING, PROPOSED):
                return known
            call.notify("resolved", known)
            call.cancel.then(subscription.close)
            end = relay(subscription, call.notify)
            return {**known, "status": end.status, "end": to_plain(end)}
        except Lost:
            return known
        finally:
            self._inbox.feed.leave(loop, subscription)

    def _run_id(self, run: str) -> str:
        return self._runs.get(run).id if run else ""
