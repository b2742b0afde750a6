"""The parts about what the owl does and says unasked, built once and tied together: heartbeat, quiet, preferred channels, care.

Here stands what follows from what: a changed HEARTBEAT.md changes schedules, a mute that ends frees letters, USER.md says by
which channel somebody would rather be told. Owns no table. Apart from `service.core`, which builds everything else, as `office` is
for the queue.
"""

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from appliance.channels.quiet_hours import Quiet
from appliance.clock import now_ms
from appliance.errors import AlreadyRunning, BadInput, OwlError
from appliance.knowledge.index import Passages
from appliance.records import to_plain
from appliance.runtime.methods import Call, method
from appliance.runtime.settings import Config
from appliance.runtime.signatures import Range
from appliance.runtime.users import user_name
from appliance.service import maintenance
from appliance.service.queue_parts import Ground, Office
from appliance.service.schedule_parts import Hours
from appliance.text import markdown
from appliance.work import recurrence
from appliance.work.heartbeat import FILE, JOB, KEY, Heartbeat, Means
from appliance.work.jobs import Jobs
from appliance.work.schedules import Action, New, Notify

LOG = logging.getLogger(__name__)
PERSON = "USER.md"
MAX_BYTES = 64 * 1024
EARLY_MS = 4 * 3600 * 1000  # the same time of day is a little less than a day later now and then
PREFERRED = re.compile(r"^\s*(?:[-*]\s+)?\**preferred[_ ]channel\**\s*:\**\s*`?([\w./@:-]+)`?\s*$", re.IGNORECASE | re.MULTILINE)
# The owl's own care, by key: what it is called, when, and which job it is.
CARE = (
    ("system:upkeep", "Look after the database", "17 3 * * *", "upkeep"),
    ("system:index", "Look after the search index", "47 3 * * 0", "index"),
)


class Unasked:
    """What a core does by itself."""

    def __init__(
        self,
        ground: Ground,
        settings: Callable[[], Config],
        hours: Hours,
        office: Office,
        jobs: Jobs,
        is_able: Callable[[], bool],
        *,
        is_lasting: bool = True,
    ) -> None:
        """`is_able` says whether the assistant's model is fit to word a message, `is_lasting` whether this process stays."""
        self._ground, self._settings, self._hours, self._office = ground, settings, hours, office
        hours.preferred = self.preferred
        self.quiet = Quiet(ground.store, lambda: settings().notifications)
        office.courier.tie(self.preferred, self.quiet, office.notices.has_screen)
        self.heartbeat = Heartbeat(
            Means(
                ground.home.box,
                lambda: settings().heartbeat,
                ground.runs,
                jobs,
                office.outbox,
                hours.timetable.ensure,
                hours.timetable.drop,
                lambda: settings().heartbeat.is_worded and is_able(),
                now_ms(),
                "background" if is_lasting else "normal",
            )
        )
        hours.jobs[JOB] = lambda due: self.heartbeat.beat(due.schedule, due.due_ms)
        hours.jobs["upkeep"] = lambda due: self._maintain()
        hours.jobs["index"] = lambda due: self._mend_index()
        office.live.look_s = lambda: settings().orchestrator.result_poll_ms / 1000

    def sync(self) -> None:
        """Bring the owl's own schedules in line with files and configuration; writes nothing when they are."""
        for key, name, line, job in CARE:
            rule, action = recurrence.cron(line), Action("system", {"job": job})
            told = Notify(on_success=False)
            self._hours.timetable.ensure(
                New(name, rule, action, line, type="system", mode="silent", notify=told, created_by="system", key=key, hash=line)
            )
        self.heartbeat.sync()

    def look(self, paths: Sequence[Path] = ()) -> None:
        """Files of box/ have changed, these or any."""
        if any(path.name == FILE for path in paths):
            try:
                self.heartbeat.sync()
            except OwlError as error:
                LOG.error("HEARTBEAT.md is not taken into use: %s", error)

    def preferred(self, context: str) -> str:
        """The channel that USER.md names for a context, its own or the box's; "" for none (A-249)."""
        kind, _, name = context.partition(":")
        own = self._ground.home.box / f"{kind}s" / name / PERSON
        for path in (own, self._ground.home.box / PERSON):
            if name not in ("", ".", "..") and "/" not in name and (found := _named(path)):
                return found
        return ""

    def close(self) -> None:
        """Wait for nothing any more."""
        self.heartbeat.close()

    # -- jobs -----------------------------------------------------------------------------------------

    def _maintain(self) -> str:
        self._hours.rows.prune(now_ms())
        try:
            done = maintenance.maintain(self._ground.home, self._ground.environ, early_ms=EARLY_MS)
        except AlreadyRunning as error:
            return str(error)
        if done.problems:
            raise OwlError(f"the database has problems: {'; '.join(done.problems)[:500]}", hint="owlbox doctor")
        return "; ".join(done.lines())

    def _mend_index(self) -> str:
        passages = Passages(self._ground.store)
        problems = passages.problems()
        if problems:
            LOG.warning("the search index is made anew: %s", "; ".join(problems[:3]))
            passages.rebuild()
            return f"made anew: {problems[0]}"
        return "the index is well"

    # -- methods ----------------------------------------------------------------------------------------

    @method("heartbeat.view", access="all")
    def view(self, call: Call) -> dict[str, Any]:
        """What is looked after when, what is wrong with HEARTBEAT.md, quiet hours, and the caller's mute and preferred channel."""
        context = f"user:{user_name(call.uid)}"
        self.heartbeat.sync()
        settings, now = self._settings(), now_ms()
        rows = self._hours.rows.listing(prefix=KEY)
        return {
            "enabled": settings.heartbeat.enabled,
            "schedules": [to_plain(self._hours.timetable.view(one)) for one in rows],
            "problems": list(self.heartbeat.problems),
            "muted_until_ms": self.quiet.muted_until(context, now),
            "quiet": [settings.notifications.quiet_from, settings.notifications.quiet_until],
            "preferred_channel": self.preferred(context),
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
            count = self._hours.round()
            beats = [{"section": "", "outcome": f"{count} due" if count else "nothing is due", "text": ""}]
        return {"beats": beats}

    @method("notify.mute", access="own")
    def mute(
        self, until_ms: Annotated[int, Range(0, 2**53), "hold back what was not asked for until then; 0 ends it"] = 0, *, call: Call
    ) -> dict[str, Any]:
        """Hear of nothing for a while but answers and reminders; what is held back comes afterwards, all at once."""
        context = f"user:{user_name(call.uid)}"  # whoever calls mutes only what is for themselves
        if until_ms:
            return {"until_ms": self.quiet.mute(context, until_ms)}
        self.quiet.unmute(context)
        self._office.outbox.free(context)
        return {"until_ms": 0}


def _named(path: Path) -> str:
    """The preferred channel that a document names, in its front matter or on a line; "" for none."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
        front, body = markdown.split(text)
    except OSError:
        return ""
    except BadInput:
        front, body = {}, text
    if isinstance(given := front.get("preferred_channel"), str):
        return _lowered(given.strip())
    found = PREFERRED.search(markdown.visible(body))
    return _lowered(found[1]) if found else ""


def _lowered(channel: str) -> str:
    """The channel in small letters; a place of it is called as its service calls it."""
    name, slash, place = channel.partition("/")
    return f"{name.lower()}{slash}{place}"
