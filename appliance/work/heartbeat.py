"""The heartbeat: looking after what HEARTBEAT.md says, unasked, and telling somebody only when something needs attention.

Owns no table: what is due when is kept by `schedules`, one for the lines of a file and one for each of its sections, made
anew when what they say has changed. `sync` writes nothing when nothing has. Before a model is asked: nothing to look after,
hours in which nothing is looked after, nobody there to tell; each of these costs nothing more. What a model says then is a
job of role `work.heartbeat`, which nobody's history shows; an alert becomes a notification in the conversation last talked in.
"""

import hashlib
import logging
import random
import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import CancelToken, now_ms
from appliance.errors import OwlError
from appliance.ingest import box_refs
from appliance.knowledge.entries import PROJECT
from appliance.language.times import recurrence, timezones
from appliance.language.times.recurrence import Rule
from appliance.records import Marked
from appliance.runtime import trusted_files
from appliance.runtime.settings import HeartbeatSettings as Settings
from appliance.sessions.outbox import Notification
from appliance.sessions.sessions import Session, SessionFilter
from appliance.work import heartbeat_file
from appliance.work.day_windows import window
from appliance.work.effects import ScheduleEffects
from appliance.work.heartbeat_file import Checklist, Section
from appliance.work.jobs import DONE, Job, JobOrder, Jobs, JobTerms, Priority
from appliance.work.schedule_service import Timetable
from appliance.work.schedules import Action, New, Notify, Schedule

LOG = logging.getLogger(__name__)
FILE = "HEARTBEAT.md"
JOB = "heartbeat"
KEY = "heartbeat:"
LINES = "checklist"  # the schedule of what stands outside of sections
TOKEN = "HEARTBEAT_OK"
MAX_BYTES = 64 * 1024
MAX_ALERT = 1500  # characters: a screenful; a small model may not find its end
FIRST_HOUR, LAST_HOUR = 6, 22  # of cadences of a day and longer
SOMETIME_MS = 345_600_000  # a Monday, from which two weeks are counted
QUIET = f"If nothing needs attention, answer with {TOKEN} only."
NOBODY = "nobody has talked yet"
WORDING = (
    "Something that was looked after unasked needs the person's attention. Say it to them in a few plain words. Add nothing, "
    "leave out no fact, greet nobody.\n\n"
)


class Beat(Struct, frozen=True):
    """What one look came to: `skipped` with the reason, `quiet`, `alert` with its text, or `failed`."""

    outcome: str
    text: str = ""

    def line(self) -> str:
        """In one line, for a log."""
        return f"{self.outcome}: {' '.join(self.text.split())[:200]}" if self.text else self.outcome


class Heartbeat:
    """Looks after things. `is_able` says whether a model is fit to word a message.

    In the background people's questions go first, and what is in memory for them stays; only a process that stays does such
    work.
    """

    def __init__(
        self,
        box: Path,
        settings: Callable[[], Settings],
        jobs: Jobs,
        effects: ScheduleEffects,
        timetable: Timetable,
        is_able: Callable[[], bool],
        *,
        is_lasting: bool = True,
    ) -> None:
        self._box = box
        self._settings = settings
        self._jobs = jobs
        self._runs = effects.runs
        self._outbox = effects.outbox
        self._timetable = timetable
        self._is_able = is_able
        self._priority: Priority = "background" if is_lasting else "normal"
        self._started_ms = now_ms()
        self._cancel = CancelToken()
        self.problems: tuple[str, ...] = ()

    # -- what there is to look after ------------------------------------------------------------------

    def sync(self) -> None:
        """Bring the schedules in line with the files and the configuration; those of what has not changed stay."""
        settings, keep, problems = self._settings(), list[str](), list[str]()
        if settings.enabled:
            if not timezones.is_known(settings.timezone):
                problems.append(f"heartbeat.timezone {settings.timezone!r} is not known: the box's own is used")
            for context, path in self._find_files():
                found = self._read_checklist(path)
                problems += found.problems if found is not None else ()
                for new in self._wanted_schedules(context, found, settings):
                    keep.append(new.key)
                    self._timetable.ensure(new)
        self._timetable.remove_keyed(KEY, keep)
        for problem in problems:
            if problem not in self.problems:
                LOG.warning("%s", problem)
        self.problems = tuple(problems)

    def _find_files(self) -> list[tuple[str, Path]]:
        """Every HEARTBEAT.md with whose it is: "" for the box's own, which may be missing."""
        found = [("", self._box / FILE)]
        for kind, folder in (("user", "users"), ("group", "groups")):
            try:
                found += [(f"{kind}:{path.parent.name}", path) for path in sorted((self._box / folder).glob(f"*/{FILE}"))]
            except OSError as error:
                LOG.error("%s is not looked through: %s", error.filename, error.strerror)
        return found

    def _read_checklist(self, path: Path) -> Checklist | None:
        """What a file says; None when there is none. One that others could have written says nothing but that."""
        if why := trusted_files.problem(path, home=self._box.parent):
            return Checklist("", (), (), (f"{path.name} is not taken: {why}",))
        try:
            with path.open("rb") as file:
                return heartbeat_file.read(file.read(MAX_BYTES).decode("utf-8", "replace"))
        except FileNotFoundError:
            return None
        except OSError as error:
            return Checklist("", (), (), (f"{path.name} cannot be read: {error.strerror}",))

    def _wanted_schedules(self, context: str, found: Checklist | None, settings: Settings) -> list[New]:
        """The schedules of one file. Without anything to look after there is none, so that nothing is ever due."""
        wanted = []
        if found is None or found.lines:
            seconds = max(1, round(settings.interval_minutes * 60))
            rule = recurrence.interval(seconds, _active_zone(settings))
            said = f"every {settings.interval_minutes:g} min"
            wanted.append(_new_schedule(context, LINES, "HEARTBEAT.md", rule, "", f"{seconds} {rule.zone}", said))
        for section in found.sections if found is not None else ():
            rule = jittered(section, f"{self._box}|{context}", _active_zone(settings))
            hashed = f"{section.hash} {rule.zone}"
            wanted.append(_new_schedule(context, section.title, section.title, rule, section.prompt, hashed, section.cadence))
        return wanted

    # -- one look ---------------------------------------------------------------------------------------

    def run_beat(self, schedule: Schedule, due_ms: int) -> str:
        """Run the job of a due schedule and return its outcome. Never raises: what went wrong is logged, and it goes on."""
        context, title = str(schedule.action.details.get("context", "")), str(schedule.action.details.get("section", LINES))
        try:
            return self.check_file(context, title, f"{schedule.key}:{due_ms}").line()
        except OwlError as error:
            LOG.error("heartbeat: %s", error)
            return f"failed: {error}"

    def check_file(self, context: str, title: str, key: str, *, is_forced: bool = False) -> Beat:
        """Look after the lines of a file, or one section, and put a notification when something needs attention.

        `is_forced` leaves out whether it is time for it. An alert with the same key is put once.
        """
        settings = self._settings()
        path = dict(self._find_files()).get(context)
        found = self._read_checklist(path) if path is not None else None
        section = next((one for one in found.sections if one.title == title), None) if found else None
        prompt = self._build_prompt(settings, found, title, section)
        session = self._last_session(context)
        why = "nothing to check" if not prompt else "" if is_forced else self._why_not(settings, session)
        if why or session is None:
            LOG.debug("heartbeat: %s", why or NOBODY)
            return Beat("skipped", why or NOBODY)
        marks = self._marks_of(path) if path is not None else ()
        job = self._run_order(JobOrder(JOB, prompt, JobTerms(marks=marks), session.id, is_told=True))
        if job is None:
            return Beat("failed", "the work could not be done; the log says why")
        if job.status != DONE:  # said once for what the file says now, not at every look
            self._send_alert(job.result, session, f"unable:{hashlib.sha256(prompt.encode()).hexdigest()[:16]}", job)
            return Beat("failed", job.result)
        if heartbeat_file.is_quiet(job.result, TOKEN):
            LOG.debug("heartbeat: nothing needs attention")
            return Beat("quiet")
        worded = self._reword_result(job, session) if section is not None else job
        text = bounded(worded.result.strip(), job.id)
        self._send_alert(text, session, key, worded)
        return Beat("alert", text)

    def now(self) -> list[tuple[str, Beat]]:
        """Look after everything at once, whatever the time; the outcome of each."""
        key, done = f"asked:{now_ms()}", []
        for context, path in self._find_files():
            found = self._read_checklist(path)
            titles = [LINES] if found is None or found.lines else []
            for title in [*titles, *(one.title for one in (found.sections if found is not None else ()))]:
                done.append((title, self.check_file(context, title, f"{key}:{context}:{title}", is_forced=True)))
        return done

    def close(self) -> None:
        """Wait for nothing any more."""
        self._cancel.set()

    @staticmethod
    def _build_prompt(settings: Settings, found: Checklist | None, title: str, section: Section | None) -> str:
        """The prompt of a heartbeat; "" when there is nothing to do."""
        if section is not None:
            return f"{section.prompt}\n\n{QUIET}"
        if title != LINES or (found is not None and not found.lines):
            return ""
        return settings.prompt if found is None else f"{settings.prompt}\n\n<{FILE}>\n{found.text.strip()}\n</{FILE}>"

    def _marks_of(self, path: Path) -> Marked:
        """The marks of what a file says, where another than its person wrote of it."""
        ref = box_refs.ref_of(self._box, path)
        return tuple((mark.origin, mark.source) for mark in self._runs.marks.entries([ref], PROJECT).get(ref, ()))

    def _why_not(self, settings: Settings, session: Session | None) -> str:
        if not settings.enabled:
            return "heartbeat.enabled is false"
        if not window(settings.active_from, settings.active_until).has(now_ms(), timezones.find(_active_zone(settings))):
            return "outside of the active hours"
        if session is not None and session.last_active_ms < self._started_ms:
            return "nobody has talked since the start"
        return ""

    def _last_session(self, context: str) -> Session | None:
        """The conversation last talked in: of a context, or of the box."""
        listed = self._runs.people.list_sessions(SessionFilter(), limit=1000)
        return next((one for one in listed if one.channel != "task" and context in ("", one.context)), None)

    def _run_order(self, order: JobOrder) -> Job | None:
        """A job that was done, or that takes a more capable model; None when it failed, which is logged."""
        job = self._jobs.add(replace(order, priority=self._priority))
        done = self._jobs.wait([job.id], self._cancel)[0]
        if done.status == DONE or done.outcome == "unable":
            return done
        LOG.error("heartbeat: job %s as %s ended %s: %s", done.id, order.role, done.outcome or done.status, done.result)
        return None

    def _reword_result(self, job: Job, session: Session) -> Job:
        """The same result in the assistant's words; as it is when its model is not fit for that."""
        if not self._is_able():
            return job
        given = JobTerms(tools=(), marks=self._runs.marks.carried(f"run:{job.run}"))
        done = self._run_order(JobOrder("assistant", WORDING + job.result, given, session.id, is_told=True))
        return done if done is not None and done.status == DONE and done.result.strip() else job

    def _send_alert(self, text: str, session: Session, key: str, job: Job) -> None:
        """A notification in the thread last talked in, with the marks of the job that wrote it."""
        thread = next((run.id for run in self._runs.list_runs(kind="chat", session=session.id, limit=1)), None)
        notification = Notification(f"{KEY}{key}", session.person, text, session.context, session.id, run=thread)
        alert = replace(notification, metadata={"urgency": "alert"})
        self._outbox.put(alert, sources=(f"run:{job.run}",), durable=True)


def bounded(text: str, job: str) -> str:
    """A text as it is told unasked: not longer than a screenful; where the rest is."""
    if len(text) <= MAX_ALERT:
        return text
    return f"{text[:MAX_ALERT].rstrip()} …\n({len(text)} characters in all: owlbox job view {job})"


def jittered(section: Section, seed: str, zone: str) -> Rule:
    """The rule of a cadence, at times drawn for this box and section: the same at every start."""
    drawn = random.Random(f"{seed}|{section.hash}")
    minute, hour = drawn.randrange(60), drawn.randint(FIRST_HOUR, LAST_HOUR)
    if section.cadence == "hourly":
        return recurrence.cron(f"{minute} * * * *", zone)
    if section.cadence == "daily":
        return recurrence.cron(f"{minute} {hour} * * *", zone)
    if section.cadence == "weekly":
        return recurrence.cron(f"{minute} {hour} * * {drawn.randint(1, 5)}", zone)
    if section.cadence == "monthly":
        return recurrence.cron(f"{minute} {hour} {drawn.randint(1, 28)} * *", zone)
    return recurrence.cadence("biweekly", SOMETIME_MS + drawn.randrange(14) * 86_400_000 + (hour * 60 + minute) * 60_000, zone=zone)


def _new_schedule(context: str, name: str, title: str, rule: Rule, prompt: str, hashed: str, said: str) -> New:
    slug = f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-') or 'section'}-{hashed[:6]}" if name != LINES else LINES
    details = {"job": JOB, "section": name, "context": context, "prompt": prompt}
    return New(
        f"Heartbeat: {title}"[:200],
        rule,
        Action("system", details),
        said,
        type="heartbeat",
        mode="silent",
        context=context,
        notify=Notify(on_success=False, on_failure=False),
        created_by="system",
        key=f"{KEY}{context or 'box'}:{slug}",
        hash=hashed,
    )


def _active_zone(settings: Settings) -> str:
    """The zone of the active hours, the box's own when nobody knows it."""
    return settings.timezone if timezones.is_known(settings.timezone) else timezones.LOCAL
