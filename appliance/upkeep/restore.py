"""Restoring a backup: what it would change, and the change, with everything that is replaced kept aside.

What is to come is laid out and checked in a folder beside what is there, then each part (folder of documents, configuration,
policy file, database) changes places with it in one step, the database last (`upkeep.staging`). Needs a home that nobody works
with. A single database file, as migrations and repairs leave it in `backups/`, is restored in the same way, without the other
parts. A file that is neither is refused with what it is.
"""

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.errors import DiskFull, NotFound, OwlError, StoreError
from appliance.records import to_plain
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.store import database_copy, disk_faults, migrations, storage_errors
from appliance.store.database import Store
from appliance.store.database_copy import Facts
from appliance.upkeep import backups, home_setup, staging
from appliance.upkeep.backups import BOX, DATABASE, Progress

HEAD_BYTES = 4096
NAMED = 5  # foreign objects of a database that an error names
SQLITE, ZIP = b"SQLite format 3\0", b"PK\3\4"
# How files begin that people take for backups, and what they are.
OTHERS = (
    (b"manifest.json\0", "a bundle for updates: owlbox update takes it"),
    (b'{"what": "owlbox sealed backup"', "a sealed backup whose first line this owlbox does not take"),
    (b"GGUF", "a model"),
    (b"\x1f\x8b", "a gzip file"),
)
MARKED_WORDS = {"marks": "subject GLOB 'words:*'", "marked_words": "TRUE"}  # by which words of strangers are known again


class RestoredFileChange(Struct, frozen=True):
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
        if path.is_dir():
            hint = f"owlbox import {path} --home NEW" if (path / backups.MANIFEST).is_file() else "name a file in it"
            raise NotFound(f"{path} is a folder, not a backup", hint=hint)
    raise NotFound(f"no backup {name}", hint="owlbox backup list shows them")


def is_archive(path: Path) -> bool:
    """Whether a file is an archive and not a single database; StoreError says what it is when it is neither, or cut off."""
    with disk_faults.naming(path), path.open("rb") as file:
        head, size = file.read(HEAD_BYTES), path.stat().st_size
    if zipfile.is_zipfile(path):
        return True
    if not size:
        what = "is empty"
    elif not head.strip(b"\0"):
        what = "holds only zeros, as a file does that was cut off by a power cut"
    elif head.startswith(ZIP):
        what = "is cut off: the end of the archive is missing"
    elif head.startswith(SQLITE):
        page = int.from_bytes(head[16:18], "big")
        wanted = (1 << 16 if page == 1 else page) * int.from_bytes(head[28:32], "big")
        if size >= wanted:
            return False
        what = f"is cut off: it has {size} of {wanted} bytes"
    else:
        what = next((f"is {what}" for begin, what in OTHERS if head.startswith(begin)), "is not a backup: another program made it")
    raise StoreError(f"{path} {what}", hint=database_copy.ANOTHER)


def preview(home: Home, settings: Config, path: Path, progress: Progress) -> RestoredFileChange:
    """What restoring a file would change, after all of it has been read and checked; changes nothing."""
    now = _present(home)
    if not is_archive(path):
        facts = _checked(path)
        at_ms = path.stat().st_mtime_ns // 1_000_000
        return RestoredFileChange(
            str(path), at_ms, "", facts.version, facts.counts, now.version if now else None, now.counts if now else {}
        )
    backup = backups.read(path)
    _require_known(path, backup.database)
    _require_room(home, path)
    backups.verify(backup, progress)
    wanted = {name: digest for name, digest in backup.digests.items() if name != DATABASE}
    here = backups.digests(home, settings)
    return RestoredFileChange(
        *(str(path), backup.made_ms, backup.version, backup.database, backup.counts),
        *(now.version if now else None, now.counts if now else {}),
        added=tuple(sorted(wanted.keys() - here.keys())),
        replaced=tuple(sorted(name for name in wanted.keys() & here.keys() if wanted[name] != here[name])),
        removed=tuple(sorted(name for name in here.keys() - wanted.keys() if name.startswith(BOX))),
    )


def restore(home: Home, path: Path, progress: Progress = backups.unheard) -> Path:
    """Take a backup that `preview` has checked into use; the folder that holds what was there before.

    The caller holds the lock of the home, so that no core runs.
    """
    database_copy.require_unused(home.database)
    try:
        with staging.stage(home.root) as made:
            names = _lay_out(path, made, progress)
            if len(names) > 1:
                _make_folders(home, made)
            _checked(made / DATABASE)
            if home.database.exists():  # files from now may come back into it
                database_copy.carry(home.database, made / DATABASE, MARKED_WORDS)
            aside = staging.put_in_place(home, made, names)
        home_setup.init(home, is_forced=True)  # folders that no backup holds, where there was no home before
        return aside
    except OSError as error:
        raise storage_errors.host_error(error, home.root) from None


def _lay_out(path: Path, made: Path, progress: Progress) -> list[str]:
    """Put what a file holds into an empty folder, checked again; the names of the parts."""
    if not is_archive(path):
        shutil.copyfile(path, made / DATABASE)
        return [DATABASE]
    backup = backups.read(path)
    (made / BOX).mkdir(mode=0o700)
    backups.verify(backup, progress, made)
    return [Path(BOX).name, *(name for name in backup.digests if not name.startswith(BOX))]


def _require_room(home: Home, path: Path) -> None:
    """DiskFull unless what an archive says to hold fits on the disk beside what is there."""
    with zipfile.ZipFile(path) as archive:
        needed = sum(info.file_size for info in archive.infolist())
    folder = home.root if home.root.is_dir() else home.root.parent
    room = os.statvfs(folder) if folder.is_dir() else None
    if room is not None and needed > room.f_bavail * room.f_frsize:
        mb = 1_000_000
        said = f"disk full: {path} needs {needed // mb} MB, {home.root} has {room.f_bavail * room.f_frsize // mb} MB left"
        raise DiskFull(said, hint="free some space, or restore into a home on another disk: --home DIR")


def _make_folders(home: Home, stage: Path) -> None:
    """Folders of documents that were empty when they were saved; each that exists now keeps its mode."""
    for name in paths.FOLDERS:
        if name.startswith(BOX):
            (stage / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder, _, _ in os.walk(stage / BOX):
        if (now := home.root / Path(folder).relative_to(stage)).is_dir():
            shutil.copymode(now, folder)


def _present(home: Home) -> Facts | None:
    """The counts of the present database; None when it cannot be read."""
    try:
        store = Store.open(home.database)
        try:
            return store.facts()
        finally:
            store.close()
    except OwlError:
        return None


def _checked(path: Path) -> Facts:
    foreign = database_copy.foreign_objects(path)
    facts = database_copy.check(path)
    if not facts.counts:
        raise StoreError(f"{path} is a database of another program", hint=database_copy.ANOTHER)
    _require_known(path, facts.version)
    if foreign:
        named = ", ".join(foreign[:NAMED]) + (f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else "")
        hint = "export what it holds with the owlbox that made it (owlbox export FILE), then import that"
        raise StoreError(f"the database in {path} has what owlbox does not make: {named}", hint=hint)
    return facts


def _require_known(path: Path, version: int) -> None:
    migrations.require_known(path, version)
    if version < 1:
        raise StoreError(f"the database in {path} is of version {version}, which there is not", hint=database_copy.ANOTHER)
