"""Restoring a backup: what it would change, and the change, with everything that is replaced kept aside.

What is to come is laid out and checked in a folder beside what is there, then each part (folder of documents, configuration,
database) changes places with it in one step, the database last. The folder then holds the old parts. Killed in between,
each part is the old or the new one, and restoring again finishes it. Needs a home that nobody works with. A single database
file, as migrations and repairs leave it in `backups/`, is restored in the same way, without the other parts.
"""

import ctypes
import json
import os
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import NotFound, OwlError, StoreError
from appliance.records import to_plain
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.service import backups, home_setup
from appliance.service.backups import BOX, DATABASE, MANIFEST, Backup, Progress
from appliance.store import database_copy, storage_errors
from appliance.store.database import Store
from appliance.store.database_copy import Facts
from appliance.store.migrations import LATEST

AT_FDCWD, RENAME_EXCHANGE = -100, 2


class Change(Struct, frozen=True):
    """What restoring a file changes: when it was saved and by which version; rows and version of the database; files by name."""

    file: str
    made_ms: int
    version: str
    database_version: int
    rows: dict[str, int]
    database_version_now: int | None  # None: the present one cannot be read
    rows_now: dict[str, int]
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return json.loads(json.dumps(to_plain(self)))  # type: ignore[no-any-return]


def find(home: Home, name: str) -> Path:
    """The file that is meant: a path, or a name in backups/."""
    for path in (Path(name).expanduser(), home.backups / name):
        if path.is_file():
            log = path.with_name(path.name + "-wal")
            if log.exists() and log.stat().st_size:
                raise StoreError(f"{path} lacks what is in {log.name}", hint=database_copy.ANOTHER)
            return path.absolute()
    raise NotFound(f"no backup {name}", hint="owlbox backup list shows them")


def preview(home: Home, settings: Config, path: Path, progress: Progress) -> Change:
    """What restoring a file would change, after all of it has been read and checked; changes nothing."""
    now = _present(home)
    if not zipfile.is_zipfile(path):
        facts = _checked(path)
        at_ms = path.stat().st_mtime_ns // 1_000_000
        return Change(str(path), at_ms, "", facts.version, facts.counts, now.version if now else None, now.counts if now else {})
    backup = backups.read(path)
    _require_known(path, backup.database)
    backups.verify(backup, progress)
    wanted = {name: digest for name, digest in backup.digests.items() if name != DATABASE}
    here = backups.digests(home, settings)
    return Change(
        *(str(path), backup.made_ms, backup.version, backup.database, backup.counts),
        *(now.version if now else None, now.counts if now else {}),
        added=tuple(sorted(wanted.keys() - here.keys())),
        replaced=tuple(sorted(name for name in wanted.keys() & here.keys() if wanted[name] != here[name])),
        removed=tuple(sorted(name for name in here.keys() - wanted.keys() if name.startswith(BOX))),
    )


def restore(home: Home, path: Path) -> Path:
    """Take a backup that `preview` has checked into use; the folder that holds what was there before.

    The caller holds the lock of the home, so that no core runs.
    """
    database_copy.require_unused(home.database)
    stamp = f"{datetime.fromtimestamp(now_ms() / 1000, UTC):%Y%m%dT%H%M%SZ}"
    stage = home.root / f".restore-{stamp}-{os.getpid()}"
    try:
        stage.mkdir(mode=0o700)
        names = _lay_out(path, stage)
        if len(names) > 1:
            _make_folders(home, stage)
        _checked(stage / DATABASE)
        for name in names:
            if name != DATABASE:
                _exchange(stage / name, home.root / name)
        database_copy.replace(home.database, stage / DATABASE, stage / "owlbox.db.before")
        if (before := stage / "owlbox.db.before").exists():
            for suffix in ("", "-wal", "-shm"):
                if (old := before.with_name(before.name + suffix)).exists():
                    os.rename(old, stage / (DATABASE + suffix))
        home.backups.mkdir(mode=0o700, exist_ok=True)
        aside = paths.unused(home.backups, f"before-restore-{stamp}")
        os.rename(stage, aside)
        paths.flush(home.root)
        home_setup.init(home, is_forced=True)  # folders that no backup holds, where there was no home before
        return aside
    except OSError as error:
        raise storage_errors.host_error(error, home.root) from None
    finally:
        if stage.exists() and not _holds_old(stage, home):
            shutil.rmtree(stage, ignore_errors=True)


def _lay_out(path: Path, stage: Path) -> list[str]:
    """Put what a file holds into an empty folder; the names of the parts, the database last."""
    if not zipfile.is_zipfile(path):
        shutil.copyfile(path, stage / DATABASE)
        return [DATABASE]
    backup: Backup = backups.read(path)
    (stage / BOX).mkdir(mode=0o700)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename == MANIFEST:
                continue
            parts = Path(info.filename).parts
            if info.is_dir() or info.filename not in backup.digests or ".." in parts or info.filename.startswith("/"):
                raise StoreError(f"{path} holds a file that cannot belong to a home: {info.filename}", hint=database_copy.ANOTHER)
            target = stage / info.filename
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = 0o600 if info.filename == DATABASE else (info.external_attr >> 16 & 0o777) or 0o600
            with archive.open(info) as source, open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
                shutil.copyfileobj(source, file, backups.PIECE)
                file.flush()
                os.fsync(file.fileno())
    top = {Path(name).parts[0] for name in backup.digests} | {Path(BOX).name}
    return sorted(top, key=lambda name: name == DATABASE)


def _make_folders(home: Home, stage: Path) -> None:
    """Folders of documents that were empty when they were saved; each that exists now keeps its mode."""
    for name in paths.FOLDERS:
        if name.startswith(BOX):
            (stage / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder, _, _ in os.walk(stage / BOX):
        if (now := home.root / Path(folder).relative_to(stage)).is_dir():
            shutil.copymode(now, folder)


def _exchange(new: Path, place: Path) -> None:
    """Let two files or folders change places in one step; where there is nothing yet, the new one moves in."""
    if not place.exists():
        os.rename(new, place)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(place), RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(place))


def _holds_old(stage: Path, home: Home) -> bool:
    """Whether parts of the home have been moved there already: then it must not be removed."""
    return not home.database.exists() or (stage / "owlbox.db.before").exists() or not (stage / DATABASE).exists()


def _present(home: Home) -> Facts | None:
    """What is in the present database; None when it cannot be read."""
    try:
        store = Store.open(home.database)
        try:
            return store.facts()
        finally:
            store.close()
    except OwlError:
        return None


def _checked(path: Path) -> Facts:
    facts = database_copy.check(path)
    _require_known(path, facts.version)
    return facts


def _require_known(path: Path, version: int) -> None:
    if not 0 < version <= LATEST:
        raise StoreError(f"the database in {path} is of version {version}, this owlbox knows up to {LATEST}", hint="update owlbox")
