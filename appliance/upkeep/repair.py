"""Rebuilding a damaged database: its rows into a new file, the old file kept aside, the search index made anew.

The caller holds the lock of the home. Reading happens in a process of its own (`store.salvage`).
"""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import OwlError, StoreError
from appliance.knowledge.index import Passages
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import database_copy, storage_errors
from appliance.store.database import Store
from appliance.upkeep import staging

WITHOUT_PAGES = "owlbox backup list shows the backups, owlbox restore FILE restores one"


class Repaired(Struct, frozen=True):
    """Where the old file is, and rows by table: written to the new one, and lost; tables where that is only a part are named."""

    aside: Path
    kept: dict[str, int]
    lost: dict[str, int]
    uncounted: tuple[str, ...]

    def __str__(self) -> str:
        words = ", ".join(f"{count} of {table}" for table, count in self.lost.items() if count)
        more = f"; more may be lost of {', '.join(self.uncounted)}" if self.uncounted else ""
        return f"rebuilt with {sum(self.kept.values())} rows, lost: {words or 'none found'}{more}; the old file is {self.aside}"


def rebuild(home: Home) -> Repaired:
    """Replace the database by a new one with every row that can be read; StoreError when none can."""
    database_copy.require_unused(home.database)
    stamp = f"{datetime.fromtimestamp(now_ms() / 1000, UTC):%Y%m%dT%H%M%SZ}"
    aside = paths.unused(home.backups, f"damaged-{stamp}", ".db")
    try:
        home.backups.mkdir(mode=0o700, exist_ok=True)
        with staging.stage(home.root) as made:
            new = made / home.database.name
            words = [sys.executable, "-P", "-X", "utf8", "-m", "appliance.store.salvage", str(home.database), str(new)]
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                said = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
                raise StoreError(f"database {home.database} cannot be rebuilt: {said[0]}", hint=WITHOUT_PAGES)
            told = json.loads(done.stdout)
            store = Store.open(new)
            try:
                passages = Passages(store)
                passages.rebuild()
                if problems := store.problems() or passages.problems():
                    raise StoreError(f"the rebuilt database is not whole: {problems[0]}", hint=WITHOUT_PAGES)
            finally:
                store.close()
            database_copy.replace(home.database, new, aside)
    except OSError as error:
        raise storage_errors.host_error(error, home.database) from None
    return Repaired(
        aside,
        {table: count["kept"] for table, count in told.items()},
        {table: count["lost"] for table, count in told.items()},
        tuple(table for table, count in told.items() if not count["is_exact"]),
    )


def problems(home: Home) -> list[str]:
    """What is wrong with the pages of the database; what keeps it from being opened counts."""
    try:
        store = Store.open(home.database)
    except OwlError as error:
        return [error.message]
    try:
        return store.problems()
    finally:
        store.close()
