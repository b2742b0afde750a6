"""Backups: one archive with the database, the configuration and the folder of documents; made, checked, listed, rotated.

An archive is a zip file of mode 0600. Its database is a copy made beside a running core and looked through by SQLite; the
archive is read back and compared before it gets its name. `manifest.json` in it says what it holds and how the home
looked, so that nothing is written while nothing has changed. Not in it: secrets (the vault is the broker's), models, prefix
states, logs, files that tools made in `sessions/`, and links. What is in plain in `owlbox.toml` is in plain in it. An archive
may come from anybody: what it may hold is decided by `belongs`, never by what it names, and its manifest has a form and a size.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from appliance import __version__
from appliance.clock import now_ms
from appliance.errors import NotFound, StoreError
from appliance.runtime import paths
from appliance.runtime.methods import method
from appliance.runtime.paths import Home
from appliance.runtime.settings import DAY_MS, Config
from appliance.store import database_copy, disk_faults, storage_errors
from appliance.store.database import Store
from appliance.upkeep import staging

NAME = re.compile(r"owlbox-\d{8}T\d{6}Z(-\d+)?\.zip")
MANIFEST = "manifest.json"
DATABASE, CONFIGURATION, BOX = "owlbox.db", "owlbox.toml", "box/"
PART = ".zip.part"
LEVEL = 1  # of compression: on a Raspberry Pi the higher ones take minutes for a tenth of the size
PIECE = 1 << 20
LARGEST_MANIFEST = 64 << 20  # bytes: half a million files
LATEST_MS = 253_370_764_800_000  # the year 9999, after which there are no dates
# What zipfile raises for an archive that is damaged, encrypted or compressed in a way it does not know.
KEEP_DAYS = 60  # older backups are removed, but for the newest
UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError, struct.error)
DEEPEST = 100  # folders in each other
# Folders of a home that belong to one of its parts: no backup holds anything of them, whatever it says.
OWN_FOLDERS = {"vault", "spend", "ssh", "skill-envs", *(name.partition("/")[0] for name in paths.FOLDERS)}
Progress = Callable[[str, int, int], None]  # the step, bytes done, of how many


def unheard(step: str, done: int, total: int) -> None:
    """For whom progress means nothing."""


class BackupManifest(Struct, frozen=True):
    """What an archive says of itself; `digests` are SHA-256 of its files by name."""

    home: str
    made_ms: Annotated[int, Meta(ge=0, lt=LATEST_MS)]
    version: Annotated[str, Meta(max_length=100)]
    database: int
    counts: dict[str, int]
    state: str
    digests: dict[str, str]


class Backup(BackupManifest, frozen=True, kw_only=True):
    """One archive, as its manifest tells."""

    path: Path
    size_bytes: int

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        told = {"file": str(self.path), "size_bytes": self.size_bytes, "made_ms": self.made_ms, "version": self.version}
        return {**told, "database_version": self.database, "rows": self.counts, "files": len(self.digests) - 1}


class MadeBackup(Struct, frozen=True):
    """What `make` did: the backup of the present state, whether it is new, and names of removed backups and unreadable files."""

    backup: Backup
    is_new: bool
    removed: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class BackupMethods:
    """Backups of a running core, asked for over its socket; those for other places are made by the command."""

    def __init__(self, home: Home, settings: Callable[[], Config]) -> None:
        self._home = home
        self._settings = settings

    @method("backup.make", is_long=True)
    def make(self) -> dict[str, Any]:
        """Save the database, the configuration and box/ into backups/, unless nothing has changed since the newest one."""
        made = make(self._home, self._settings(), self._home.backups, unheard)
        return {**made.backup.plain(), "is_new": made.is_new, "removed": list(made.removed), "unreadable": list(made.unreadable)}

    @method("backup.list", is_quiet=True)
    def list_backups(self) -> list[dict[str, Any]]:
        """The backups in backups/ of the home, newest first."""
        return [one.plain() for one in listing(self._home.backups)]


def make(home: Home, settings: Config, folder: Path, progress: Progress) -> MadeBackup:
    """A backup of the home in a folder, unless the newest one there holds the same; works beside a running core."""
    state, at_ms = _state(home, settings), now_ms()
    existing = [one for one in listing(folder) if one.home == str(home.root)]
    if existing and existing[0].state == state and existing[0].made_ms <= at_ms:
        return MadeBackup(existing[0], is_new=False)
    with _new_file(folder, at_ms) as (part, path):
        copy = part.with_name(part.name + ".db")
        try:
            store = Store.open(home.database)
            try:
                store.snapshot(copy, lambda done, total: progress("copying", done, total))
            finally:
                store.close()
            facts = database_copy.check(copy)
            told = {"home": str(home.root), "made_ms": at_ms, "version": __version__, "state": state}
            told |= {"database": facts.version, "counts": facts.counts}
            unreadable = _pack(part, [(DATABASE, copy), *_files(home, settings)], told, progress)
        finally:
            copy.unlink(missing_ok=True)
        try:
            verify(read(part), progress)
        except StoreError as error:
            hint = "the disk may be failing: dmesg shows it; try again, or another one: owlbox backup --to DIR"
            raise StoreError(f"no backup was made, what was written is not what is read back: {error.message}", hint=hint) from None
        os.replace(part, path)
        paths.flush(folder)
    removed = tuple(_rotate(home, settings, folder, existing)) if existing else ()
    return MadeBackup(read(path), True, removed, tuple(unreadable))


def listing(folder: Path) -> list[Backup]:
    """The backups in a folder, newest first; archives that cannot be read are left out.

    Those dated in the future come last: nobody knows how old they are, and they stand for no day that anyone remembers.
    """
    found, now = [], now_ms()
    for path in folder.glob("owlbox-*.zip") if folder.is_dir() else ():
        if NAME.fullmatch(path.name):
            try:
                found.append(read(path))
            except StoreError:
                continue
    return sorted(found, key=lambda one: (one.made_ms <= now, one.made_ms, one.path.name), reverse=True)


def read(path: Path) -> Backup:
    """What an archive says of itself; StoreError when it is none of ours or damaged."""
    try:
        with disk_faults.naming(path), zipfile.ZipFile(path) as archive:
            if MANIFEST not in archive.namelist():
                raise StoreError(f"{path} is a zip file, but not a backup: it has no {MANIFEST}", hint=database_copy.ANOTHER)
            with archive.open(MANIFEST) as file:
                data = file.read(LARGEST_MANIFEST + 1)
        if len(data) > LARGEST_MANIFEST:
            raise StoreError(f"{path}: its {MANIFEST} has more than {LARGEST_MANIFEST >> 20} MB", hint=database_copy.ANOTHER)
        told = msgspec.json.decode(data, type=BackupManifest)
        size = path.stat().st_size
    except FileNotFoundError:
        raise NotFound(f"no backup {path}", hint="owlbox backup list shows them") from None
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno in disk_faults.ON_A_DISK:
            raise
        raise StoreError(f"{path} is damaged or no backup: {error}", hint=database_copy.ANOTHER) from None
    return Backup(**asdict(told), path=path, size_bytes=size)


def verify(backup: Backup, progress: Progress, target: Path | None = None) -> None:
    """Read a whole archive, and write its files into the folder `target` if there is one.

    StoreError unless each is the one that was put in, and belongs into a backup.
    """
    try:
        with zipfile.ZipFile(backup.path) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            total, done = sum(info.file_size for info in infos.values()), 0
            if infos.keys() != {MANIFEST, *backup.digests} or len(infos) != len(archive.infolist()):
                raise StoreError(f"{backup.path} does not hold the files it names, each once", hint=database_copy.ANOTHER)
            _require_own(backup)
            for name, digest in backup.digests.items():
                found = hashlib.sha256()
                with archive.open(name) as file, _create(target, infos[name]) as out:
                    while piece := _read_piece(file, backup.path):
                        found.update(piece)
                        out.write(piece)
                        done += len(piece)
                        progress("checking", done, total)
                    if target is not None:
                        out.flush()
                        os.fsync(out.fileno())
                if found.hexdigest() != digest:
                    raise StoreError(f"{backup.path} is damaged: {name} is not what was saved", hint=database_copy.ANOTHER)
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno in disk_faults.ON_A_DISK:
            raise
        raise StoreError(f"{backup.path} is damaged: {error}", hint=database_copy.ANOTHER) from None


def belongs(name: str) -> bool:
    """Whether a backup may hold a file of this name: one of box/, the configuration, the database, or a policy file."""
    parts = PurePosixPath(name).parts
    if not parts or "/".join(parts) != name or ".." in parts or len(parts) > DEEPEST:
        return False
    is_policy = name.endswith(".toml") and parts[0] not in OWN_FOLDERS
    return name == DATABASE or is_policy or (name.startswith(BOX) and len(parts) > 1)


def _require_own(backup: Backup) -> None:
    """StoreError for an archive with a file that no backup holds, or with more than one policy file."""
    foreign = [name for name in backup.digests if not belongs(name)]
    foreign += [name for name in backup.digests if name not in (DATABASE, CONFIGURATION) and not name.startswith(BOX)][1:]
    if foreign or DATABASE not in backup.digests:
        what = f"holds a file that no backup holds: {foreign[0]}" if foreign else f"lacks {DATABASE}"
        raise StoreError(f"{backup.path} {what}", hint=database_copy.ANOTHER)


def _create(folder: Path | None, info: zipfile.ZipInfo) -> IO[bytes]:
    """A new file of an archive in a folder, with the mode that it was saved with, the database private; without a folder none."""
    if folder is None:
        return open(os.devnull, "wb")
    path = folder / info.filename
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o600 if info.filename == DATABASE else mode_here(info.external_attr >> 16)
    return open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb")


def mode_here(mode: int) -> int:
    """What of a file's mode elsewhere holds in a home: its owner reads and writes it, not everybody, and it runs as nobody else."""
    return mode & 0o775 | 0o600


def digests(home: Home, settings: Config) -> dict[str, str]:
    """SHA-256 of the home's files that a backup holds, without the database; "" for one that this user may not read."""
    found = {}
    for name, path in _files(home, settings):
        try:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        except PermissionError:
            found[name] = ""
    return found


def _files(home: Home, settings: Config) -> Iterator[tuple[str, Path]]:
    """What belongs to a backup beside the database: name in the archive, and the file."""
    given = home.root / settings.policy.path if settings.policy.path else None
    for path in (home.config, given):
        name = str(path.relative_to(home.root)) if path is not None and path.is_relative_to(home.root) else ""
        if path is not None and belongs(name) and not name.startswith(BOX) and path.is_file():
            yield name, path
    yield from documents(home.root)


def documents(root: Path) -> Iterator[tuple[str, Path]]:
    """The plain files of box/ below a folder, with their names from there; none that is a link, or whose name is no text."""
    for folder, names, files in os.walk(root / BOX):
        names.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and not any("\udc80" <= letter <= "\udcff" for letter in str(path)):
                yield str(path.relative_to(root)), path


def _state(home: Home, settings: Config) -> str:
    """How the home looks from outside: size and time of every file that a backup holds. Opens none of them."""
    wal = home.database.with_name(home.database.name + "-wal")
    seen: list[tuple[str, int, int]] = []
    for name, path in ((DATABASE, home.database), (wal.name, wal), *_files(home, settings)):
        try:
            info = path.stat()
        except FileNotFoundError:
            continue
        if info.st_size or path != wal:  # an empty log is as good as none
            seen.append((name, info.st_size, info.st_mtime_ns))
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _pack(part: Path, files: list[tuple[str, Path]], told: dict[str, Any], progress: Progress) -> list[str]:
    """Write the archive to the disk, its manifest last; returns the files that it leaves out.

    This user may not read them, or they lie too deep.
    """
    found, done, unreadable = {}, 0, []
    total = sum(path.stat().st_size for _, path in files)
    with part.open("wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
            for name, path in files:
                if not belongs(name):
                    unreadable.append(name)
                    continue
                try:
                    info, digest = zipfile.ZipInfo.from_file(path, name, strict_timestamps=False), hashlib.sha256()
                    source = path.open("rb")
                except FileNotFoundError:
                    continue  # removed since it was listed
                except PermissionError:
                    unreadable.append(name)  # somebody's private note must not cost everybody the backup
                    continue
                info.compress_type = zipfile.ZIP_DEFLATED
                with source, archive.open(info, "w", force_zip64=True) as target:
                    while piece := _read_piece(source, path):
                        target.write(piece)
                        digest.update(piece)
                        done += len(piece)
                        progress("packing", done, total)
                found[name] = digest.hexdigest()
            # With a date of its own: a zip file knows none before 1980, and a Pi without a battery may begin in 1970.
            archive.writestr(zipfile.ZipInfo(MANIFEST), json.dumps({**told, "digests": found}, indent=1))
        file.flush()
        os.fsync(file.fileno())
    return unreadable


def _read_piece(source: IO[bytes], path: Path) -> bytes:
    with disk_faults.naming(path):
        return source.read(PIECE)


@contextmanager
def _new_file(folder: Path, at_ms: int) -> Iterator[tuple[Path, Path]]:
    """An empty private file to write an archive to, removed afterwards, and the name that it is to get. Full disks are named."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        clean(folder)
        stem = f"owlbox-{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%dT%H%M%SZ}"
        path = paths.unused(folder, stem, ".zip")
        part = folder / f".{stem}.{os.getpid()}{PART}"
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):  # a network disk may know no locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield part, path
        finally:
            part.unlink(missing_ok=True)
            os.close(handle)
    except OSError as error:
        raise storage_errors.host_error(error, folder) from None


def clean(folder: Path) -> list[str]:
    """Remove what killed commands have left in a folder of backups: files that nobody holds; what that was, in words."""
    left = [part for part in folder.glob(f".owlbox-*{PART}") if staging.is_left(part)]
    left += [
        copy for copy in folder.glob(f".owlbox-*{PART}.db*") if not copy.with_name(copy.name.partition(PART)[0] + PART).exists()
    ]
    for path in left:
        path.unlink(missing_ok=True)
    return [f"removed {path}, which a backup that was ended had left" for path in left]


def _rotate(home: Home, settings: Config, folder: Path, existing: list[Backup]) -> Iterator[str]:
    """Remove the last of `existing`, this home's backups newest first without the one just made, if it is one too many or too
    old; its name. At most one goes for one that is made, and its age is counted from the newest of them: a clock that is wrong
    today makes none of them old.

    So it is with copies from before a migration: the home has backups of its new version then.
    """
    oldest_ms = existing[0].made_ms - KEEP_DAYS * DAY_MS
    last = existing[-1]
    gone = [last.path] if len(existing) >= settings.backups.keep or last.made_ms < oldest_ms else []
    gone += [path for made_ms, path in database_copy.migration_copies(home.backups)[-1:] if made_ms < oldest_ms]
    for path in gone:
        path.unlink(missing_ok=True)
        yield path.name
