"""Applying an update and taking it back, step by step, so that a machine that stops at any moment starts with a working version.

The new version is built beside the old one and tried on a copy of the home: its doctor, and a real question to the model. Then
the services stop, the database is saved, the link `current` is renamed, and the new version migrates the database. What is not well
by then goes back, code and data. `journal` says which step has begun; `recover` reads it at the next start.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from appliance.clock import now_ms
from appliance.errors import Busy, DiskFault, DiskFull, OwlError, Refused
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import disk_faults
from appliance.upkeep.updates import bundle
from appliance.upkeep.updates.host import UpdateHost
from appliance.upkeep.updates.journal import Journal, JournalFile, Step, UpdateResult

CURRENT, RECOVERY, LOCK = "current", "recovery", "update.lock"
TRIAL = ".update-trial"
TIMES = 3  # of the size of its wheels: what unpacked and installed versions take
Passed = Callable[[str], None]
Progress = Callable[[str], None]
UNCHANGED = "not applied, nothing has changed"
UNRECORDED = "that is not on record, owlbox update recover does it again when the disk takes it"


def nobody(what: str) -> None:
    """Nobody wants to know."""


class Updater:
    """The versions of one installation, in one folder."""

    def __init__(self, folder: Path, home: Home, host: UpdateHost, *, passed: Passed = nobody, progress: Progress = nobody) -> None:
        """`passed` hears of every moment at which a machine may stop; in production nobody does."""
        self._folder = folder
        self._home = home
        self._host = host
        self._passed = passed
        self._progress = progress
        self._file = JournalFile(folder)

    def apply(self, path: Path, key: bytes, version: str) -> UpdateResult:
        """Take the version of a bundle into use; `version` is the one that runs. What is not well is taken back and said."""
        with self._alone():
            self.recover()
            path = bundle.find(path, key)
            old = Path(os.readlink(self._folder / CURRENT)).name
            with bundle.opened(path, key) as (found, archive):
                bundle.require_usable(found, version, path.name)
                self._require_room(found.size_bytes)
                self._link(RECOVERY, old)
                journal = self._begin(Step.BUILDING, self._file.read(), old=old, new=found.version, saved="")
                try:
                    self._progress(f"building version {found.version}")
                    self._host.remove(self._place(found.version))
                    wheels = self._place(found.version) / "wheels"
                    wheels.mkdir(parents=True)
                    files = bundle.unpack(found, archive, wheels, path.name)
                    self._host.build(self._place(found.version), files)
                    self._host.remove(wheels)
                    self._passed("built")
                    journal = self._begin(Step.TRYING, journal)
                    self._try_version(journal)
                except (OwlError, OSError) as error:
                    return self._drop(journal, f"{UNCHANGED}: {_why(error)}")
            return self._take_over(journal)

    def roll_back(self) -> UpdateResult:
        """Go back to the version before the last update; its database too, if it cannot open the present one."""
        with self._alone():
            self.recover()
            journal = self._file.read()
            if not journal.previous or not self._place(journal.previous).is_dir():
                raise Refused("there is no version before this one here", hint="owlbox update status shows what there is")
            new = Path(os.readlink(self._folder / CURRENT)).name
            saved = journal.previous_saved or journal.saved  # an earlier version kept no more than the second
            self._require_way_back(journal.previous, Path(saved))
            self._link(RECOVERY, journal.previous)
            return self._take_back(
                self._begin(Step.ROLLING_BACK, journal, old=journal.previous, new=new, saved=saved), "taken back as asked"
            )

    def recover(self) -> str:
        """Finish what was cut off, forward or back; what was done, "" when nothing was under way."""
        journal = self._file.read()
        if journal.step == Step.IDLE:
            (self._folder / RECOVERY).unlink(missing_ok=True)
            return ""
        if journal.step in (Step.BUILDING, Step.TRYING):
            return self._drop(journal, "cut off before anything had changed").said
        if journal.step in (Step.STOPPING, Step.SAVING):
            self._host.start(self._python(journal.old))
            return self._drop(journal, "cut off before anything had changed").said
        if journal.step in (Step.SWITCHING, Step.MIGRATING, Step.ROLLING_BACK):
            return self._take_back(journal, "cut off before the new version was known to be well").said
        return self._finish(journal).said

    # -- steps --------------------------------------------------------------------------------------

    def _begin(self, step: Step, journal: Journal, **fields: object) -> Journal:
        written = self._file.change(journal, step=step, **fields)
        self._passed(step)
        return written

    def _try_version(self, journal: Journal) -> None:
        """The new version on a copy of the home: nothing may be a problem that is none now, and a question must be answered."""
        self._progress("trying it on a copy of the home")
        self._host.step(self._python(journal.old), "stage", self._trial)
        self._passed("staged")
        python, trial = self._python(journal.new), Home(self._trial)
        # Both look at the same copy, without services: what the running core is spared there is not held against the new version.
        before = self._host.find_problems(self._python(journal.old), trial)
        if worse := self._host.find_problems(python, trial) - before:
            raise Refused(f"its doctor finds a problem that the present version does not have: {', '.join(sorted(worse))}")
        if "model" not in before and not self._host.ask(python, trial):
            raise Refused("it has no answer to a question")
        self._host.remove(self._trial)
        self._passed("tried")

    def _take_over(self, journal: Journal) -> UpdateResult:
        """From the old version to the new one; back again when that is not well."""
        now = f"{datetime.fromtimestamp(now_ms() / 1000, UTC):%Y%m%dT%H%M%SZ}"
        saved = paths.unused(self._home.backups, f"before-update-{journal.old}-{now}", ".db")
        journal = self._begin(Step.STOPPING, journal, saved=str(saved))
        self._progress("stopping the services")
        try:
            self._host.stop()
            self._passed("stopped")
            journal = self._begin(Step.SAVING, journal)
            self._host.step(self._python(journal.old), "save", saved)
            self._passed("saved")
            switching = self._begin(Step.SWITCHING, journal)
        except (OwlError, OSError) as error:
            self._host.start(self._python(journal.old))
            return self._drop(journal, f"{UNCHANGED}: {_why(error)}")
        journal = switching
        try:
            self._link(CURRENT, journal.new)
            self._passed("switched")
            journal = self._begin(Step.MIGRATING, journal)
            self._progress("bringing the database to the new version")
            if "database" in self._host.find_problems(self._python(journal.new), self._home):
                raise Refused("its doctor finds the database damaged")
            self._passed("migrated")
            gated = self._begin(Step.GATED, journal)
        except (OwlError, OSError) as error:
            return self._take_back(journal, f"taken back: {_why(error)}")
        return self._finish(gated)

    def _finish(self, journal: Journal) -> UpdateResult:
        """The new version is well: start it, and remove what is not needed."""
        with contextlib.suppress(OSError):  # a disk that does not take this keeps nobody from starting it
            journal = self._begin(Step.STARTING, journal)
        self._progress("starting the services")
        try:
            self._host.start(self._python(journal.new))
        except (OwlError, OSError) as error:
            return self._take_back(journal, f"taken back: {_why(error)}")
        self._passed("started")
        try:
            return self._tidy(journal)
        except OSError as error:
            return UpdateResult(journal.new, f"version {journal.new} runs; {UNRECORDED}: {_why(error)}", True, now_ms())

    def _tidy(self, journal: Journal) -> UpdateResult:
        """Remove what the new version does not need; its start is known to everybody afterwards."""
        journal = self._begin(Step.TIDYING, journal)
        for path in self._place("").iterdir():
            is_version = (path / "pyvenv.cfg").is_file() and not path.is_symlink()
            if is_version and path.name not in (journal.old, journal.new):
                self._host.remove(path)
        with contextlib.suppress(OwlError, OSError):  # the new version is well all the same
            self._host.step(self._python(journal.old), "tidy", Path(journal.saved))
        self._passed("tidied")
        ended = self._file.end(journal, f"version {journal.new} runs", is_applied=True)
        ended = self._file.change(ended, previous=journal.old, previous_saved=journal.saved)
        (self._folder / RECOVERY).unlink(missing_ok=True)
        self._passed("ended")
        return ended.results[0]

    def _take_back(self, journal: Journal, said: str) -> UpdateResult:
        """Back to the old version, and to the saved database where the old version cannot open the present one."""
        with contextlib.suppress(OSError):  # cut off here, the step before leads to the same
            journal = self._begin(Step.ROLLING_BACK, journal)
        self._progress("going back to the version before")
        self._host.stop()
        try:
            if journal.saved and Path(journal.saved).exists():
                self._host.step(self._python(journal.old), "restore", Path(journal.saved))
            self._passed("restored")
            if Path(os.readlink(self._folder / CURRENT)).name != journal.old:
                self._link(CURRENT, journal.old)
            self._passed("link is back")
        except (OwlError, OSError) as error:
            # Neither version is known to be well with the present database: none is started, so that nothing is lost.
            message = f"{said}; the version before is not back yet, and nothing runs: {_why(error)}"
            raise DiskFault(message, hint="mend that, then: sudo owlbox update recover") from None
        self._host.start(self._python(journal.old))
        return self._drop(journal, said)

    def _drop(self, journal: Journal, said: str) -> UpdateResult:
        """Remove the new version; the old one is in use."""
        self._host.remove(self._trial)
        if journal.new and journal.new != Path(os.readlink(self._folder / CURRENT)).name:
            self._host.remove(self._place(journal.new))
        self._passed("dropped")
        try:
            ended = self._file.end(journal, said, is_applied=False)
            if ended.previous == ended.results[0].version or ended.previous == journal.old:
                ended = self._file.change(ended, previous="")
            (self._folder / RECOVERY).unlink(missing_ok=True)
        except OSError as error:
            return UpdateResult(journal.new, f"{said}; {UNRECORDED}: {_why(error)}", False, now_ms())
        return ended.results[0]

    @property
    def _trial(self) -> Path:
        return self._home.root / TRIAL

    def _python(self, version: str) -> Path:
        return self._place(version) / "bin/python"

    def _place(self, version: str) -> Path:
        """The folder of a version: beside the one that `current` leads to."""
        return (self._folder / os.readlink(self._folder / CURRENT)).parent / version

    def _link(self, name: str, version: str) -> None:
        """Have a link lead to a version from one moment to the next, also after a power cut."""
        path, target = self._folder / name, os.path.relpath(self._place(version), self._folder)
        part = path.with_name(f".{name}.part")
        with paths.naming(path):
            part.unlink(missing_ok=True)
            part.symlink_to(target)
            os.replace(part, path)
            paths.flush(self._folder)

    def _require_way_back(self, version: str, saved: Path) -> None:
        """Refused when a version cannot open the present database and the copy that it could open is gone."""
        if saved.is_file():
            return
        try:  # without the copy this fails before it changes anything, unless the version needs none
            self._host.step(self._python(version), "restore", saved)
        except (OwlError, OSError):
            said = f"version {version} cannot open the present database, and the copy from before the update is gone: {saved}"
            raise Refused(said, hint="put that file back, or stay with the present version") from None

    def _require_room(self, size_bytes: int) -> None:
        """DiskFull unless the version and three copies of the database fit."""
        database = self._home.database.stat().st_size
        for folder, needed in ((self._folder, size_bytes * TIMES), (self._home.root, database * TIMES)):
            space = os.statvfs(folder)
            lacking = needed - space.f_bavail * space.f_frsize
            if lacking > 0:
                raise DiskFull(f"{folder} lacks {lacking // 1_000_000 + 1} MB for the update", hint="free some space and try again")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        handle = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Busy("another update is under way", hint="owlbox update status shows it") from None
        finally:
            os.close(handle)


def _why(error: OwlError | OSError) -> str:
    """What a person is told of an error: of one of the disk its name and what to do."""
    told = disk_faults.explain_fault(error) or error
    return str(told) if isinstance(told, DiskFault) else getattr(told, "message", str(told))
