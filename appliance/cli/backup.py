"""The commands `owlbox backup` and `owlbox restore`: made by hand, or each night by a timer.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from appliance.cli.console import terminal
from appliance.cli.console.connect import require_owner
from appliance.cli.console.terminal import say, say_json
from appliance.runtime.paths import Home
from appliance.service.restore import Change

Command = Callable[..., argparse.ArgumentParser]
MB = 1_000_000


def add(command: Command) -> None:
    """Add both commands."""
    made = command("backup", backup, "save the database, the configuration and box/ into one file; list shows what was saved")
    made.add_argument("action", nargs="?", default="", choices=["", "list"], metavar="list", help="show the backups, newest first")
    made.add_argument("--to", default="", metavar="DIR", help="where they lie, such as another disk; backups/ of the home without")
    back = command("restore", restore, "take a backup into use; what was there before is kept aside")
    back.add_argument("file", help="a file, or its name as `backup list` shows it")
    back.add_argument("--dry-run", action="store_true", help="only check it and say what would change")


def backup(args: argparse.Namespace, home: Home) -> int:
    """Make one, or show them."""
    from appliance.service import backups
    from appliance.service.maintenance import settings_of

    require_owner(home)
    folder = Path(args.to).expanduser().absolute() if args.to else home.backups
    if args.action:
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
    progress = terminal.Progress()
    try:
        made = backups.make(home, settings_of(home, os.environ), folder, progress.show)
    finally:
        progress.end()
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


def restore(args: argparse.Namespace, home: Home) -> int:
    """Say what a backup changes, and without --dry-run do it."""
    from appliance.service import restore as service
    from appliance.service.daemon import Lock
    from appliance.service.maintenance import settings_of

    if not args.dry_run:
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.config.exists() or home.database.exists():
        require_owner(home)
    lock = None if args.dry_run else Lock(home.lock)
    progress = terminal.Progress()
    try:
        try:
            change = service.preview(home, settings_of(home, os.environ), service.find(home, args.file), progress.show)
        finally:
            progress.end()
        aside = None if lock is None else service.restore(home, Path(change.file))
    finally:
        if lock is not None:
            lock.release()
    if args.json:
        return say_json({**change.plain(), "is_restored": aside is not None, "aside": str(aside or "")})
    say("\n".join(_change_lines(change)))
    say("nothing was changed, because of --dry-run" if aside is None else f"restored; what was there before is in {aside}")
    return 0


def _change_lines(change: Change) -> list[str]:
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
    return f"{datetime.fromtimestamp(at_ms / 1000).astimezone():%Y-%m-%d %H:%M}"


def _format_size(size_bytes: int) -> str:
    return f"{size_bytes / MB:.1f} MB"


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
