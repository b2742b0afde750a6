"""Schedules that talk: a message in a conversation, or a piece of work under a role, begun after their firing.

A message is known by the firing's key as its message id, a job by the same as its correlation, so that a second beginning
does nothing. An answer that takes longer than `scheduler.timeout_s` is stopped (A-245). Owns no table.
"""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from appliance.channels.delivery import OutboxSender
from appliance.channels.inbox import Inbox
from appliance.clock import Alarms, CancelToken, correlation_id
from appliance.errors import BadInput, NotFound, OwlError
from appliance.records import Inbound
from appliance.runtime.settings import SchedulerSettings
from appliance.sessions.runs import DONE, FAILED, RUNNING, STOPPED
from appliance.work.effects import ScheduleEffects
from appliance.work.firing import Done, Due
from appliance.work.jobs import JobOrder, Jobs, JobTerms
from appliance.work.lineage import Lineage
from appliance.work.schedules import Schedule

LOG = logging.getLogger(__name__)
ENDED = (DONE, STOPPED, FAILED)
ROLE = "worker"  # of a prompt that names none


class ScheduledMessages:
    """Brings about the actions `message` and `prompt`."""

    def __init__(
        self,
        inbox: Inbox,
        courier: OutboxSender,
        effects: ScheduleEffects,
        jobs: Jobs,
        lineage: Lineage,
        settings: Callable[[], SchedulerSettings],
    ) -> None:
        self._inbox = inbox
        self._courier = courier
        self._effects = effects
        self._jobs = jobs
        self._lineage = lineage
        self._settings = settings
        self._runs = effects.runs
        self._alarms = Alarms()
        self._cancel = CancelToken()

    def say(self, due: Due) -> Done:
        """A turn in the session that the schedule names."""
        return self.say_in(due, due.schedule.session)

    def say_in(self, due: Due, session: str) -> Done:
        """The action's text as a message in a session; skipped when its channel does not run (S-068)."""
        known = due.schedule
        channel, _, sender = session.partition(":")
        if not (channel and sender):
            raise BadInput(f"schedule {known.ref} names no session", hint="set one such as local:ada")
        if channel not in self._courier.channels():
            return Done(f"channel {channel} does not run", "skipped")
        thread = self._effects.thread(known, session) or self._effects.latest_chat(session)
        said = known.action.text or known.name
        marks = self._runs.marks.carried(f"schedule:{known.ref}")
        message = Inbound(channel, sender, said, due.key, due.now_ms, thread=thread, metadata=dict(known.metadata), marks=marks)
        if marks:  # a stranger's text is not the person's word because a clock says it
            message = replace(message, own_chars=-1)
        loop = self._inbox.accept(message, correlation_id()).loop
        found = self._runs.loop(loop)
        if found.status in ENDED:  # a process that died had begun it
            return Done(found.outcome)
        self._inbox.start(loop)
        self._alarms.after(self._settings().timeout_s, lambda: self._end_slow(loop))
        return Done(f"message to {session}", "running")

    def prompt(self, due: Due) -> Done:
        """A piece of work under a role, in the conversation or apart from it."""
        known = due.schedule
        if known.mode == "session" and (session := self.latest_session(known)):
            return self.say_in(due, session)
        if self._lineage.has_job(due.key):
            return Done("begun already", "running")
        session = known.session if self._session_exists(known.session) else f"local:{known.person or 'owl'}"
        with self._jobs.store.write():
            if not self._session_exists(session):
                self._runs.open_session(session, known.person, known.context or f"user:{known.person}")
        text = known.action.text or known.name
        given = JobTerms(timeout_s=self._settings().timeout_s, marks=self._runs.marks.carried(f"schedule:{known.ref}"))
        whose = {"session": session, "tool": "schedule", "correlation": due.key}
        job = self._jobs.add(JobOrder(known.role or ROLE, text, given, **whose, priority="background", is_told=True))
        return Done(f"job {job.id}", "running")

    def latest_session(self, known: Schedule) -> str:
        """The conversation that was used last on the channel that is wanted, else on any (A-247)."""
        context = known.context or f"user:{known.person}"
        wanted = known.notify.channel or self._courier.preferred(context)
        there = self._courier.at(context, wanted) if wanted else []
        return next((one.session for one in (*there, *self._effects.outbox.addresses(context)) if one.session), "")

    def close(self) -> None:
        """Stop no answer any more: whoever ends the process does."""
        self._cancel.set()

    def _end_slow(self, loop: int) -> None:
        try:
            found = self._runs.loop(loop)
            if found.status == RUNNING and not self._cancel.is_set():
                LOG.error("the answer to a schedule's message took too long and is stopped", extra={"run": found.run})
                self._inbox.abort(found.run)
        except OwlError as error:
            LOG.error("an answer that takes too long could not be stopped: %s", error)

    def _session_exists(self, session: str) -> bool:
        try:
            return bool(session) and bool(self._runs.session(session))
        except NotFound:
            return False
