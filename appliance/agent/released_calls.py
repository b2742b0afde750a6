"""What a person has let pass is run: the very call that was held, in the background, while its loop waits for the result.

Owns the threads in which such calls run, and their results, which stand in the proposals' entries. Each is run once: one
that a process did not live to finish is told as interrupted and never begun again. A decision may be remembered as a
grant. Knows nothing about why a call was held.
"""

import glob
import logging
import threading
from typing import Any

from msgspec.structs import replace

from appliance.agent.approvals import APPROVED
from appliance.agent.loop_events import BackgroundWorkEnded
from appliance.agent.taint_gate import cleared
from appliance.agent.toolbox import Toolbox
from appliance.clock import CancelToken, new_id
from appliance.errors import BadInput, NotFound, OwlError
from appliance.knowledge.action_log import Waiting
from appliance.knowledge.entries import Content, Entries
from appliance.knowledge.views import Views
from appliance.policy import grants
from appliance.policy.grants import Grant, Grants
from appliance.policy.modes import terms as terms_of
from appliance.records import Outcome, ToolCall
from appliance.runtime.events import Events
from appliance.sessions.runs import Runs

LOG = logging.getLogger(__name__)
DONE = "done"  # the attribute of a proposal that says the outcome of its call
CLOSE_S = 10.0


class ReleasedCalls:
    """Runs calls that were held and then accepted. Publishes `BackgroundWorkEnded`."""

    def __init__(self, runs: Runs, entries: Entries, views: Views, grants: Grants, toolbox: Toolbox, events: Events) -> None:
        self._runs = runs
        self._entries = entries
        self._views = views
        self._grants = grants
        self._toolbox = toolbox
        self._events = events
        self._guard = threading.Lock()
        self._running: dict[tuple[str, str], CancelToken] = {}
        self._threads: list[threading.Thread] = []

    def accepted(self, waiting: Waiting, outcome: Outcome) -> None:
        """Something that waited was accepted: a call that was held begins."""
        attributes = self._attributes_of(waiting.run, waiting.ref)
        call = cleared(attributes)
        if call is None:
            return
        entry = self._entries.get(waiting.ref, scope=f"run:{waiting.run}")
        if entry.body.strip():  # whoever accepted it has done it, and says the outcome
            self._store_outcome(waiting.run, waiting.ref, Outcome(200, "ok", entry.body))
            return
        token, key = CancelToken(), (waiting.run, waiting.ref)
        given = (waiting, call, str(attributes.get("role") or ""), token)
        thread = threading.Thread(target=self._run_released, args=given, name="cleared", daemon=True)
        with self._guard:
            self._running[key] = token
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    def is_running(self, run: str, ref: str) -> bool:
        """Whether a call that was let pass still runs."""
        with self._guard:
            return (run, ref) in self._running

    def result(self, run: str, ref: str) -> Outcome | None:
        """The result of an approved call; None when it is not one, or still runs."""
        attributes = self._attributes_of(run, ref)
        if cleared(attributes) is None:
            return None
        view = self._views.find(run, ref)
        if view is None or view.state in ("proposed", "failed") or self.is_running(run, ref):
            return None
        done = attributes.get(DONE)
        if not isinstance(done, dict):
            text = "it was accepted and interrupted: it may or may not have been done"
            return Outcome(499, "interrupted", text, "look before it is tried again")
        names = ("status", "outcome", "message", "hint", "origin", "source")
        return Outcome(**{name: done[name] for name in names if name in done})

    def remember(self, ref: str, run: str, lasts: str, by: str) -> Grant:
        """Let the same pass for a while without asking; BadInput for what is no held call."""
        attributes = self._attributes_of(run, ref)
        if cleared(attributes) is None:
            raise BadInput(f"{ref} is not a call that was held: nothing to remember", hint="approve it without --remember")
        person = self._runs.person(self._runs.get(run).session)
        kind, target = (str(attributes.get(name) or "") for name in ("kind", "target"))
        origins = [str(origin) for origin in attributes.get("origins") or ()]
        return self._grants.add(person, kind, glob.escape(target), origins, grants.lasting(lasts), by)

    def stop(self, run: str) -> int:
        """Stop what runs for a run; how many calls."""
        with self._guard:
            hit = [token for (of, _), token in self._running.items() if of == run]
        for token in hit:
            token.set()
        return len(hit)

    def abandon(self, run: str) -> int:
        """None: what a person has said yes to is done, whoever stops the run meanwhile."""
        return 0

    def close(self) -> None:
        """Stop everything and wait until it is noted, but not for ever."""
        with self._guard:
            tokens, threads = list(self._running.values()), list(self._threads)
        for token in tokens:
            token.set()
        for thread in threads:
            thread.join(CLOSE_S)

    # -- inside -------------------------------------------------------------------------------------

    def _run_released(self, waiting: Waiting, call: ToolCall, role: str, token: CancelToken) -> None:
        try:
            run = self._runs.get(waiting.run)
            approved = {
                str(name): str(value) for name, value in (self._attributes_of(run.id, waiting.ref).get(APPROVED) or {}).items()
            }
            terms = replace(terms_of("act", run.settings, role=role), approval="auto", approved=approved)
            call = replace(call, id=f"cleared-{new_id()}")
            outcome = self._toolbox.dispatch(call, run.id, token, run.session, terms=terms, is_cleared=True)
            self._store_outcome(run.id, waiting.ref, outcome)
        except OwlError as error:
            LOG.warning("the outcome of %s was not noted: %s", waiting.ref, error, extra={"run": waiting.run})
        finally:
            with self._guard:
                self._running.pop((waiting.run, waiting.ref), None)
        try:
            self._events.publish(BackgroundWorkEnded(waiting.run))
        except OwlError as error:
            LOG.warning("thread %s does not go on: %s", waiting.run, error)

    def _store_outcome(self, run: str, ref: str, outcome: Outcome) -> None:
        """Note in a proposal's entry the outcome of its call."""
        names = ("status", "outcome", "message", "hint", "origin", "source")
        done = {name: getattr(outcome, name) for name in names}
        attributes = {**self._attributes_of(run, ref), DONE: done, **(outcome.provenance or {})}
        content = Content(body=outcome.message, attributes=attributes)
        self._entries.put(ref, content, scope=f"run:{run}")

    def _attributes_of(self, run: str, ref: str) -> dict[str, Any]:
        try:
            return dict(self._entries.get(ref, scope=f"run:{run}").attributes)
        except NotFound:
            return {}
