"""One round of maintenance, run by a timer: checks the database, forgets what is old, then ends.

Safe beside a running core, whose transactions it waits for, and without one. Twice at a time never. When
nothing is due it opens no database and writes nothing; what it found is said, and only a round that found
no problem counts as done. When that was is kept in the runtime folder, so a reboot makes a check due. Age is counted by
`wall_clock`, which a clock that is ahead moves by two days at most.
"""

import fcntl
import glob
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from appliance.agent.result_pages import Overflow
from appliance.channels.session_control import rules
from appliance.clock import now_ms
from appliance.errors import AlreadyRunning, ConfigError
from appliance.knowledge.change_log import Changes
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import Passages
from appliance.knowledge.search import Search
from appliance.memory.memories import Memories
from appliance.memory.session_review import SessionReview
from appliance.policy.audit_log import Keep, Ledger
from appliance.prompt.sent_copies import Copies
from appliance.runtime import config, paths
from appliance.runtime.paths import Home
from appliance.runtime.settings import DAY_MS, Config
from appliance.service.parts.base import person_rules
from appliance.sessions.outbox import Outbox
from appliance.sessions.people import People
from appliance.sessions.runs import Runs
from appliance.sessions.sessions import Sessions
from appliance.store import clearing, disk_room, wall_clock
from appliance.store.database import Store
from appliance.store.process_registry import Leases
from appliance.upkeep import backups, staging

LOG = logging.getLogger(__name__)
LOGS_DAYS = 28  # turned-over logs are removed then
UNDO_DAYS = 90  # what `owlbox undo` needs of a thread is kept so long after its last change
HISTORY_DAYS = 365  # changes of entries are listed so long, the newest of each entry always
CHECK_EVERY_MS = DAY_MS
LONGEST_OUTPUT = 5_000_000  # bytes of what a child says outside of its log
OF_A_WORKER = "????????-????-7???-????-????????????.log"  # named by its id
STAMP = "maintained"


class Round(Struct, frozen=True):
    """The result of one round; `problems` need a person."""

    is_due: bool
    problems: tuple[str, ...] = ()
    processes: int = 0
    notifications: int = 0
    sessions: int = 0
    memories: int = 0
    records: int = 0
    changes: int = 0
    disk_used: float = 0.0
    audits: int = 0
    statistics: tuple[str, ...] = ()
    log_bytes: int = 0
    logs: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people; one line when nothing was done."""
        done = [f"problem: {problem}" for problem in self.problems]
        done += [f"forgot {self.processes} ended processes"] if self.processes else []
        done += [f"forgot {self.notifications} old notifications"] if self.notifications else []
        done += [f"put {self.sessions} silent sessions to rest"] if self.sessions else []
        done += [f"remembered {self.memories} things from them"] if self.memories else []
        done += [f"dropped {self.records} old inner records of runs"] if self.records else []
        done += [f"forgot {self.changes} old changes"] if self.changes else []
        done += [f"the disk is {self.disk_used:.0%} full"] if self.disk_used else []
        done += [f"dropped {self.audits} old audit rows"] if self.audits else []
        done += [f"refreshed the statistics of {', '.join(self.statistics)}"] if self.statistics else []
        done += [f"took {self.log_bytes} bytes of the log into the database"] if self.log_bytes else []
        done += [f"cut or removed {name}" for name in self.logs]
        done += self.leftovers
        return done or ["the database is well; nothing to do" if self.is_due else "nothing is due"]


def maintain(
    home: Home, environ: Mapping[str, str], *, now: int | None = None, is_forced: bool = False, early_ms: int = 0
) -> Round:
    """One round, due a day after the last one, or that much earlier; AlreadyRunning while another one runs on this home."""
    now = now_ms() if now is None else now
    with _alone(home.require()):
        settings = settings_of(home, environ)
        leftovers = (*staging.clean(home), *backups.clean(home.backups))
        stamp = paths.runtime_folder(home, environ, make=True) / STAMP
        used = disk_room.used_part(home.root)
        is_full = used >= settings.orchestrator.disk_refuse
        if not (is_forced or is_full) and 0 <= now - _at_ms(stamp) < CHECK_EVERY_MS - early_ms:
            return Round(is_due=False, leftovers=leftovers)
        store = Store.open(home.database)
        try:
            problems = tuple(store.problems(is_quick=True))
            if problems:
                return Round(True, problems, leftovers=leftovers)
            aged = wall_clock.advance(store, now)
            logs = (*_prune_logs(home.logs, aged), *_prune_audit(home, aged, settings))
            if used >= settings.orchestrator.disk_warn:
                LOG.warning("the disk is %.0f %% full", used * 100, extra={"disk_used": round(used, 3)})
            known = People(store, lambda: person_rules(settings))
            people = Sessions(store, "", lambda: rules(settings, is_full=is_full), known)
            remembered = _review(store, people, settings, aged)
            idle, archived = people.store_statuses(aged)
            done = Round(
                True,
                processes=Leases(store).forget(),
                notifications=Outbox(store, "").forget(aged),
                sessions=idle + archived,
                memories=remembered,
                records=_expire(store, settings.runs.retention_days, aged),
                changes=_expire_changes(store, aged),
                audits=Ledger(store, keep=lambda: Keep(settings.runs.retention_days)).sweep(aged),
                statistics=tuple(store.optimize()),
                log_bytes=store.checkpoint(),
                disk_used=used if used >= settings.orchestrator.disk_warn else 0.0,
                logs=logs,
                leftovers=leftovers,
            )
        finally:
            store.close()
        stamp.touch(mode=0o600)
        os.utime(stamp, ns=(now * 1_000_000, now * 1_000_000))
        return done


def _review(store: Store, people: Sessions, settings: Config, now: int) -> int:
    """Look through sessions that are about to be archived, and forget what has expired; how many things are new."""
    passages = Passages(store)
    memories = Memories(Entries(store, passages.index), passages, Search(store, passages))
    memories.sweep()
    review = SessionReview(people, Runs(store, ""), memories, lambda: settings.sessions.archival.memory_extraction)
    return sum(review.review(session, now) for session in people.due_for_archive(now))


def settings_of(home: Home, environ: Mapping[str, str]) -> Config:
    """The configuration; the defaults while it cannot be read, because the database needs its care all the same."""
    try:
        return config.load(home, environ)
    except ConfigError:
        return Config()


def _expire(store: Store, days: int, now: int) -> int:
    """Drop the inner records of runs that came to an end long ago; how many. What was said stays (R-042)."""
    overflow = Overflow(store, Entries(store))
    pages = sum(overflow.clear(run) for run in Runs(store, "").expired(now - days * DAY_MS))
    return pages + Copies(store).expire(days)


def _expire_changes(store: Store, now: int) -> int:
    """Forget who changed what, and what undoing needs, once both are old; how many changes and runs."""
    return Changes(store).expire(now - HISTORY_DAYS * DAY_MS) + clearing.expire_changesets(store, now - UNDO_DAYS * DAY_MS)


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Hold the home's folder itself locked: no lock file to write, and the kernel lets go however we end."""
    folder = os.open(home.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise AlreadyRunning(f"maintenance of {home.root} is already running", hint="wait for it to end") from None
    finally:
        os.close(folder)


def _prune_audit(home: Home, now: int, settings: Config) -> Iterator[str]:
    """Remove turned-over audit files that are older than rows are kept."""
    if settings.audit.file:
        path = home.root / settings.audit.file
        for older in sorted(path.parent.glob(f"{glob.escape(path.name)}.[0-9]*")):
            if now - _at_ms(older) > settings.runs.retention_days * DAY_MS:
                older.unlink(missing_ok=True)
                yield older.name


def _prune_logs(folder: Path, now: int) -> Iterator[str]:
    """Remove turned-over logs that are old enough; turn over what a child's output has grown to."""
    for path in sorted((*folder.rglob("*.log.[0-9]"), *folder.rglob("*.log.[0-9].gz"), *folder.glob(OF_A_WORKER))):
        if now - _at_ms(path) > LOGS_DAYS * DAY_MS:
            path.unlink(missing_ok=True)
            yield str(path.relative_to(folder))
    for path in sorted(folder.rglob("output.log")):
        if path.stat().st_size > LONGEST_OUTPUT:
            # The child goes on writing at the end of the same file: copied and emptied, not renamed.
            shutil.copyfile(path, path.with_name("output.log.1"))
            os.truncate(path, 0)
            yield str(path.relative_to(folder))


def _at_ms(path: Path) -> int:
    """When a file was last written; 0 when there is none."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
