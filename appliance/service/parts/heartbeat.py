"""Builds what a core does by itself: the heartbeat, and maintenance of database and index as schedules of its own.

A changed HEARTBEAT.md changes schedules, a mute that ends releases notifications. Owns no table.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from appliance.agent import titles
from appliance.clock import now_ms
from appliance.errors import AlreadyRunning, OwlError
from appliance.knowledge.index import Passages
from appliance.language.times import recurrence, timezones
from appliance.records import to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.service import maintenance
from appliance.service.parts.base import BaseParts
from appliance.service.parts.models import ModelParts
from appliance.service.parts.queue import QueueParts
from appliance.service.parts.schedules import ScheduleParts
from appliance.work.heartbeat import FILE, JOB, KEY, Heartbeat
from appliance.work.jobs import Jobs
from appliance.work.schedules import Action, New, Notify

LOG = logging.getLogger(__name__)
EARLY_MS = 4 * 3600 * 1000  # the same time of day is a little less than a day later now and then
# The schedules of the installation itself, by key: what it is called, when, and which job it is.
CARE = (
    ("system:upkeep", "Look after the database", "17 3 * * *", "upkeep"),
    ("system:index", "Look after the search index", "47 3 * * 0", "index"),
)


class HeartbeatParts:
    """What a core does by itself."""

    def __init__(self, base: BaseParts, models: ModelParts, queue: QueueParts, schedules: ScheduleParts, jobs: Jobs) -> None:
        self._base, self._schedules, self._queue = base, schedules, queue
        settings = lambda: base.settings().heartbeat  # noqa: E731

        def is_able() -> bool:
            """Whether the assistant's model is fit to word a message."""
            return titles.is_able(models.models.plan(base.settings().models.pool)[0], base.home.models)

        self.heartbeat = Heartbeat(
            *(base.home.box, settings, jobs, schedules.effects, schedules.timetable, is_able), is_lasting=base.is_shared
        )
        schedules.system_jobs.register(JOB, lambda due: self.heartbeat.run_beat(due.schedule, due.due_ms))
        schedules.system_jobs.register("upkeep", lambda due: self._maintain())
        schedules.system_jobs.register("index", lambda due: self._mend_index())

    def sync(self) -> None:
        """Bring the installation's own schedules in line with files and configuration; writes nothing when they are."""
        for key, name, line, job in CARE:
            zone = self._base.settings().system.timezone
            rule, action = (
                recurrence.cron(line, zone if timezones.is_known(zone) else timezones.LOCAL),
                Action("system", {"job": job}),
            )
            told, hashed = Notify(on_success=False), f"{line} {zone}"
            self._schedules.timetable.ensure(
                New(name, rule, action, line, type="system", mode="silent", notify=told, created_by="system", key=key, hash=hashed)
            )
        self.heartbeat.sync()

    def look(self, paths: Sequence[Path] = ()) -> None:
        """Files of box/ have changed, these or any."""
        if any(path.name == FILE for path in paths):
            try:
                self.heartbeat.sync()
            except OwlError as error:
                LOG.error("HEARTBEAT.md is not taken into use: %s", error)

    def close(self) -> None:
        """Wait for nothing any more."""
        self.heartbeat.close()

    # -- jobs -----------------------------------------------------------------------------------------

    def _maintain(self) -> str:
        self._schedules.rows.prune(now_ms())
        try:
            done = maintenance.maintain(self._base.home, self._base.environ, early_ms=EARLY_MS)
        except AlreadyRunning as error:
            return str(error)
        if done.problems:
            raise OwlError(f"the database has problems: {'; '.join(done.problems)[:500]}", hint="owlbox doctor")
        return "; ".join(done.lines())

    def _mend_index(self) -> str:
        passages = Passages(self._base.store)
        problems = passages.problems()
        if problems:
            LOG.warning("the search index is rebuilt: %s", "; ".join(problems[:3]))
            passages.rebuild()
            return f"made again: {problems[0]}"
        return "the index is well"

    # -- methods ----------------------------------------------------------------------------------------

    @method("heartbeat.view", access="all")
    def view(self, call: Call) -> dict[str, Any]:
        """What is looked after when, what is wrong with HEARTBEAT.md, quiet hours, and the caller's mute and preferred channel."""
        context = f"user:{caller_name(call)}"
        self.heartbeat.sync()
        settings, now = self._base.settings(), now_ms()
        rows = self._schedules.rows.list_schedules(prefix=KEY)
        return {
            "enabled": settings.heartbeat.enabled,
            "schedules": [to_plain(self._schedules.timetable.view(one)) for one in rows],
            "problems": list(self.heartbeat.problems),
            "muted_until_ms": self._queue.quiet.muted_until(context, now),
            "quiet": [settings.notifications.quiet_from, settings.notifications.quiet_until],
            "preferred_channel": self._queue.courier.preferred(context),
        }

    @method("heartbeat.beat", is_long=True)
    def beat(
        self, is_now: Annotated[bool, "everything at once, whatever the time; otherwise only what is due"] = False
    ) -> dict[str, Any]:
        """Look after what HEARTBEAT.md says; `beats` has section, outcome and text of each look."""
        self.sync()
        if is_now:
            beats = [{"section": title, "outcome": beat.outcome, "text": beat.text} for title, beat in self.heartbeat.now()]
        else:
            count = self._schedules.runner.round()
            beats = [{"section": "", "outcome": f"{count} due" if count else "nothing is due", "text": ""}]
        return {"beats": beats}

    @method("notify.mute", access="own")
    def mute(
        self, until_ms: Annotated[int, Range(0, 2**53), "hold back what was not asked for until then; 0 ends it"] = 0, *, call: Call
    ) -> dict[str, Any]:
        """Hear of nothing for a while but answers and reminders; what is held back comes afterwards, all at once."""
        context = f"user:{caller_name(call)}"  # whoever calls mutes only what is for themselves
        if until_ms:
            return {"until_ms": self._queue.quiet.mute(context, until_ms)}
        self._queue.quiet.unmute(context)
        self._queue.outbox.free(context)
        return {"until_ms": 0}
