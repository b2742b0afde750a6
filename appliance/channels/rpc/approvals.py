"""Decisions at the local socket: look at what waits, accept or reject it, and hear how the answer goes on.

Beside `rpc` because one table would pass 600 lines. Whoever may open the socket may decide.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from appliance.channels.inbox import Inbox
from appliance.channels.relay import relay
from appliance.errors import Conflict, Lost
from appliance.records import to_plain
from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range
from appliance.sessions.runs import PROPOSED, WAITING

Decision = Literal["accept", "reject", "error"]
Decide = Callable[[str, str, Decision, str], dict[str, Any]]  # reference, run, decision, output
Remember = Callable[[str, str, str, int], object]  # reference, run, how long, who


class Decisions:
    """The method table of decisions. `waits_for` tells the loop that a proposal holds up, 0 for none."""

    def __init__(
        self,
        inbox: Inbox,
        decide: Decide,
        waits_for: Callable[[str, str], int],
        show: Callable[[str, str], dict[str, Any]],
        remember: Remember | None = None,
    ) -> None:
        self._inbox = inbox
        self._decide = decide
        self._waits_for = waits_for
        self._show = show
        self._remember = remember

    @method("run.proposal", access="own")
    def proposal(
        self,
        call: Call,
        ref: Annotated[str, Range(1, 2048), "what waits, as entry.waiting names it, or the end of it"],
        run: Annotated[str, "the thread in which it waits; empty where only one such waits"] = "",
    ) -> dict[str, Any]:
        """What a person has to know to decide: of a change of a file `patch`, a unified difference, else `text` and `options`.

        `because` names the page, mail or server whose text a held call follows, "" for what is not held.
        `patch` is empty where it would be very long; `text` has both texts then.
        """
        return self._show(ref, run)

    @method("run.resolve", access="own", is_long=True)
    def resolve(
        self,
        call: Call,
        ref: Annotated[str, Range(1, 2048), "what waits, as entry.waiting names it, or the end of it"],
        action: Annotated[Decision, "error: it was tried and went wrong"] = "accept",
        run: Annotated[str, "the thread in which it waits; empty where only one such waits"] = "",
        output: Annotated[str, "the answer to a question, what a command printed, or the reason"] = "",
        wait: Annotated[bool, "stream how the answer goes on, as message.send does"] = False,
        remember: Annotated[str, "of a held call that is accepted: for how long the like may pass, such as 7d"] = "",
        digest: Annotated[str, "of what was looked at, as run.proposal told it: a conflict when it is another one by now"] = "",
    ) -> dict[str, Any]:
        """Decide about what a thread proposed. `status` is the thread's: 102 while it goes on, 202 while more waits.

        It is 100 for a task's thread: a worker goes on with it. `outcome` says what became of the proposal. Once decided
        it stays so: a conflict otherwise.
        """
        if digest and digest != self._show(ref, run)["digest"]:
            raise Conflict(f"{ref} is not what you were shown: it was changed meanwhile", hint="look at it again, then decide")
        if remember and action == "accept" and self._remember is not None:
            self._remember(ref, run, remember, call.uid)
        loop = self._waits_for(ref, run)
        subscription = self._inbox.feed.subscribe(loop)
        try:
            known = self._decide(ref, run, action, output)
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
