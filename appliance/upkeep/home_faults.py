"""Faults of a home that cost a part of the service and not all of it: a disk without writes, folders that are closed to us.

Found without writing anything, because `owlbox status` asks. `doctor` looks harder and says the same.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path

from appliance.clock import up_ms
from appliance.errors import OwlError
from appliance.runtime import config
from appliance.runtime.paths import Home
from appliance.store import disk_faults, storage_errors, wall_clock
from appliance.store.database import Store

# Folders of a home, and what does not work while one is closed to us.
PARTS = {
    "box": "documents, notes, skills and roles are not read",
    "drop": "requests of other programs are not taken",
    "models": "no local model can be loaded",
    "sessions": "tools have no files to work with",
    "backups": "nothing is saved",
    "logs": "nothing is logged",
}


def listing(home: Home, store: Store) -> list[str]:
    """All of them, the disk first; and that schedules wait for the clock."""
    if not home.database.exists():
        return [str(storage_errors.missing(home.database))]
    fault, held_ms = disk(home, store), wall_clock.held_ms(store, up_ms())
    waiting = f"schedules wait {math.ceil(held_ms / 1000)} s: the clock was set ahead, or is not set yet (owlbox doctor clock)"
    return [*([str(fault)] if fault else []), *closed(home), *([waiting] if held_ms else [])]


def next_start(home: Home, environ: Mapping[str, str]) -> list[str]:
    """What would keep the next core from starting: a configuration that was broken under this one."""
    try:
        config.load(home, environ)
    except OwlError as error:
        return [f"the next start fails, the configuration cannot be used: {error}"]
    return []


def disk(home: Home, store: Store) -> OwlError | None:
    """Why nothing can be written now, None when it can: looked for without writing, then what the last write met."""
    return disk_faults.standing_fault(home.config) or store.disk_fault


def closed(home: Home) -> list[str]:
    """Folders that this user may not read or enter, with the mode and what follows."""
    found = []
    for name, effect in PARTS.items():
        folder = home.root / name
        for path in (folder, *_below(folder)):
            if os.access(path, os.F_OK) and not os.access(path, os.R_OK | os.X_OK):
                mode = f"{path.stat().st_mode & 0o7777:o}"
                found.append(f"{path} is closed to user {os.getuid()} (mode {mode}): {effect}")
    return found


def _below(folder: Path) -> list[Path]:
    """The folders in a folder."""
    try:
        return [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def emptied_vault(home: Home) -> str:
    """What is wrong with the files of the vault as far as can be seen without its key, "" when nothing is."""
    try:
        for path in sorted(path for path in home.vault.iterdir() if path.is_file()):
            with disk_faults.naming(path):
                if not path.read_bytes():
                    return f"{path} is empty: its secrets are lost; restore it from a copy, or move it away and set them again"
    except OSError as error:  # there is none, or it is the broker's alone, unless the disk fails
        return str(disk_faults.explain_fault(error) or "")
    return ""
