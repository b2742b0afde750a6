"""The commands `owlbox backup` and `owlbox restore`: made by hand, or each night by a timer.

Each takes the parsed arguments and the home.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.clock import local_time, use_zone
from appliance.console import terminal
from appliance.console.connect import require_owner
from appliance.console.terminal import say, say_json, say_line, show
from appliance.errors import BadInput, ConfigError, OwlError
from appliance.runtime.paths import Home
from appliance.upkeep.restore import RestoredFileChange

if TYPE_CHECKING:
    from appliance.runtime.settings import Config

Command = Callable[..., argparse.ArgumentParser]
MB = 1_000_000


def add(command: Command) -> None:
    """Add both commands."""
    made = command("backup", backup, "save database, configuration and box/ into one file; list shows backups")
    made.add_argument("action", nargs="?", default="", choices=["", "list"], metavar="list", help="show the backups, newest first")
    made.add_argument("--to", default="", metavar="PLACE", help="another disk, or sftp://user@host/folder; else backups.target")
    made.add_argument(
        "--encrypt", action="store_true", help="encrypt it with a passphrase, which it asks for; backups.key_file needs none"
    )
    back = command("restore", restore, "restore a backup; the present state is kept aside")
    back.add_argument("file", help="a file, its name as `backup list` shows it, or sftp://user@host/folder/file")
    back.add_argument("--dry-run", action="store_true", help="only check it and say what would change")


def backup(args: argparse.Namespace, home: Home) -> int:
    """Make one, or show them."""
    from appliance.runtime import config
    from appliance.runtime.settings import Config
    from appliance.upkeep import backup_target, sealed_backups

    require_owner(home)
    try:
        settings = config.load(home, os.environ)
    except ConfigError as error:
        if args.action:
            return _backup(args, home, Config(), args.to)
        _backup(args, home, Config(), args.to)  # a home must be saved before it is mended, if need be plain
        words = "saved without the configuration's backups.target and key_file, because it cannot be used"
        raise ConfigError(f"{words}: {error.message}", key=error.key, hint=error.hint) from None
    place = args.to or settings.backups.target
    if not place or args.action:
        return _backup(args, home, settings, place)
    is_target = place == settings.backups.target
    try:
        if not sealed_backups.is_remote(place):
            backup_target.require_disk(home, backup_target.expand(place))
            if not args.to:
                backup_target.require_same_disk(home, place)
        done = _backup(args, home, settings, place)
    except OwlError as error:
        if is_target:
            backup_target.record(home, place, error)
        raise
    if is_target:
        backup_target.record(home, place)
    return done


def _backup(args: argparse.Namespace, home: Home, settings: "Config", place: str) -> int:
    """Make one at a place, "" for the home's own, or show those that are there."""
    from appliance.upkeep import backup_target, backups, sealed_backups

    if args.encrypt or settings.backups.key_file or sealed_backups.is_remote(place):
        return _keep_elsewhere(args, home, settings, place)
    folder = backup_target.expand(place) if place else home.backups
    if args.action:
        use_zone(settings.system.timezone)
        found = backups.listing(folder)
        if args.json:
            say_json([one.plain() for one in found])
        elif not found:
            say(f"no backups in {folder}: owlbox backup makes one")
        else:
            rows = [
                [one.path.name, _format_time(one.made_ms), _format_size(one.size_bytes), one.version, _format_counts(one.counts)]
                for one in found
            ]
            terminal.table(rows, ["file", "saved", "size", "version", "holds"], sys.stdout, cut=["holds"])
        return 0
    with terminal.Progress() as progress:
        made = backups.make(home, settings, folder, progress.show)
    if args.json:
        say_json({**made.backup.plain(), "is_new": made.is_new, "removed": made.removed, "unreadable": made.unreadable})
    elif made.is_new:
        say(f"saved {made.backup.path} ({_format_size(made.backup.size_bytes)}; {_format_counts(made.backup.counts)})")
        if made.unreadable:
            say(f"not saved, no right to read: {', '.join(made.unreadable)}")
        if made.removed:
            say(f"removed {len(made.removed)} old: {', '.join(made.removed)}")
    else:
        say(f"nothing has changed since {made.backup.path}")
    return 0


def _keep_elsewhere(args: argparse.Namespace, home: Home, settings: "Config", place: str) -> int:
    """One that is sealed, or lies on a server: made in the home first, then brought there."""
    from appliance.upkeep import backup_target, backups, sealed_backups, staging

    if not place:
        raise BadInput(
            "an encrypted backup beside the home does not help when the disk fails",
            hint="owlbox backup --encrypt --to /media/stick",
        )
    server = sealed_backups.parse_place(place) if sealed_backups.is_remote(place) else None
    folder = backup_target.expand(place)
    if args.action:
        names = sealed_backups.list_files(server) if server else sealed_backups.list_folder(folder)
        return show(args, {"place": place, "files": names}, names or f"no backups in {place}")
    passphrase = _find_passphrase(args, settings, is_new=True) if args.encrypt or settings.backups.key_file else ""
    with terminal.Progress() as progress:
        path = backups.make(home, settings, home.backups, progress.show).backup.path
        name = path.name + (sealed_backups.SUFFIX if passphrase else "")
        with staging.stage(home.root) as made:
            target = folder / name if not server else made / name if passphrase else path
            if passphrase:
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                sealed_backups.seal(path, target, passphrase, progress.show)
            removed = sealed_backups.send(target, server, settings.backups.keep) if server else []
        if not server:
            removed = sealed_backups.rotate(folder, name, settings.backups.keep)
    words = f"saved {name} to {place}" + (", sealed" if passphrase else "") + (f"; removed {len(removed)} old" if removed else "")
    return show(args, {"file": name, "place": place, "is_sealed": bool(passphrase), "removed": removed}, words)


def _find_passphrase(args: argparse.Namespace, settings: "Config", *, is_new: bool) -> str:
    """What the key file holds, else what a person types; a new one twice."""
    from appliance.cli.secret import read_value
    from appliance.upkeep import sealed_backups

    if settings.backups.key_file:
        return sealed_backups.read_key_file(Path(settings.backups.key_file).expanduser())
    first = sealed_backups.require_long(read_value("passphrase of the backup: "))
    if is_new and sys.stdin.isatty() and read_value("once more: ") != first:
        raise BadInput("the passphrases differ", hint="try again")
    return first


@contextmanager
def _opened(args: argparse.Namespace, home: Home, settings: "Config", progress: terminal.Progress) -> "Iterator[str]":
    """The file that is to be restored: fetched from a server and opened where that is needed, and removed afterwards."""
    from appliance.upkeep import restore as service
    from appliance.upkeep import sealed_backups, staging

    if not sealed_backups.is_remote(args.file) and not sealed_backups.is_sealed(found := service.find(home, args.file)):
        yield str(found)
        return
    with staging.stage(home.root if home.root.is_dir() else Path(tempfile.gettempdir())) as folder:
        path = folder / "fetched"
        if sealed_backups.is_remote(args.file):
            sealed_backups.fetch(sealed_backups.parse_place(args.file), path)
        else:
            path = service.find(home, args.file)
        if sealed_backups.is_sealed(path):
            opened = folder / "opened.zip"
            sealed_backups.unseal(path, opened, _find_passphrase(args, settings, is_new=False), progress.show)
            path = opened
        yield str(path)


def restore(args: argparse.Namespace, home: Home) -> int:
    """Say what a backup changes, and without --dry-run do it."""
    from appliance.service.maintenance import settings_of
    from appliance.upkeep import restore as service
    from appliance.upkeep import staging
    from appliance.upkeep.home_lock import Lock

    if not args.dry_run:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.config.exists() or home.database.exists():
        require_owner(home)
    lock = None if args.dry_run else Lock(home.lock)
    progress = terminal.Progress()
    try:
        for told in () if args.dry_run else staging.clean(home):
            say(told, sys.stderr)
        settings = settings_of(home, os.environ)
        use_zone(settings.system.timezone)
        with _opened(args, home, settings, progress) as file:
            try:
                change = service.preview(home, settings, Path(file), progress.show)
            finally:
                progress.end()
            aside = None if lock is None else service.restore(home, Path(change.file))
    finally:
        if lock is not None:
            lock.release()
    if args.json:
        return say_json({**change.plain(), "is_restored": aside is not None, "aside": str(aside or "")})
    for line in _change_lines(change):
        say_line(line)
    say("nothing was changed, because of --dry-run" if aside is None else f"restored; what was there before is in {aside}")
    return 0


def _change_lines(change: RestoredFileChange) -> list[str]:
    """What changes, for people."""
    saved = f"saved {_format_time(change.made_ms)}" + (f" by version {change.version}" if change.version else "")
    now = "cannot be read" if change.database_version_now is None else f"version {change.database_version_now}"
    lines = [f"backup       {change.file}, {saved}", f"database     {now} -> version {change.database_version}"]
    for name, count in change.rows.items():
        before = change.rows_now.get(name)
        lines.append(f"{name:<12} {'?' if before is None else before} -> {count}")
    for word, names in (("added", change.added), ("replaced", change.replaced), ("removed", change.removed)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            lines.append(f"{word:<12} {', '.join(names[:5])}{more}")
    return lines


def _format_time(at_ms: int) -> str:
    return local_time(at_ms)[:16]


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes / MB:.1f} MB"


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
