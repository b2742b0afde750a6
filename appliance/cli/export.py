"""`owlbox export` and `owlbox import`: everything as files that can be read without Owlbox, and back into a new home."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from appliance.console.connect import require_owner
from appliance.console.terminal import say, show
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add both commands."""
    made = command("export", export, "export everything as JSON lines, Markdown, TOML and CSV into a new folder")
    made.add_argument("folder", help="a folder that is empty or does not exist yet")
    made.add_argument("--run", default=None, metavar="ID", help="only one run, a text file for each turn; latest for the newest")
    made = command("import", import_home, "make a new home from an export")
    made.add_argument("folder", help="a folder that export has written")


def export(args: argparse.Namespace, home: Home) -> int:
    from appliance.upkeep import exports

    require_owner(home)
    folder = Path(args.folder).expanduser().absolute()
    if args.run is not None:
        made = exports.write_turns(home, "" if args.run == "latest" else args.run, folder)
        return show(args, {"files": [str(path) for path in made]}, f"wrote {len(made)} turns to {folder}")
    counts = exports.write(home, folder)
    text = (
        f"wrote {sum(counts.values())} rows of {len(counts)} tables to {folder}; sessions/, memory/ and tasks.csv are for reading"
    )
    return show(args, {"folder": str(folder), "rows": counts}, text)


def import_home(args: argparse.Namespace, home: Home) -> int:
    from appliance.upkeep import exports, staging
    from appliance.upkeep.home_lock import Lock

    home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = Lock(home.lock)
    try:
        for told in staging.clean(home):
            say(told, sys.stderr)
        counts = exports.read(home, Path(args.folder).expanduser().absolute())
    finally:
        lock.release()
    return show(args, {"home": str(home.root), "rows": counts}, f"made {home.root} with {sum(counts.values())} rows")
