"""Making a home: folders, prompt documents, configuration, database. Nothing outside the home is touched.

Completing an existing home never overwrites a file in it. No service is installed (B-007).
"""

import os
import stat
from pathlib import Path

from appliance.errors import BadInput, Conflict, OwlError
from appliance.ingest import prompt_documents
from appliance.runtime import config, paths
from appliance.runtime.paths import Home
from appliance.store import disk_faults
from appliance.store.database import Store

IGNORE = """\
# Keep the database, models, logs and sessions of this home out of version control.
*
!.gitignore
!owlbox.toml
!box/
!box/**
"""

# Tables whose names people choose cannot be shown as keys at their default.


def init(home: Home, *, is_forced: bool = False, is_new_database: bool = False) -> list[Path]:
    """Make a home and return what was made; Conflict when there is one, unless forced to complete it.

    A home in which a core has run and that has lost its database gets a new one only when that is asked for.
    """
    try:
        if (home.config.exists() or home.database.exists()) and not is_forced:
            raise Conflict(
                f"{home.root} is an owlbox home already", hint="complete what is missing with --force; nothing is overwritten"
            )
        if home.root.exists() and not is_forced and any(home.root.iterdir()):
            raise Conflict(f"{home.root} is not empty", hint="choose another folder, or use it all the same with --force")
        if not home.database.exists() and home.lock.exists() and not is_new_database:
            raise Conflict(
                f"the database of {home.root} is gone",
                hint="owlbox restore FILE restores a backup; to begin with nothing: owlbox init --force --new-database",
            )
        return _make(home)
    except OSError as error:
        raise _host_error(error, home) from None


def _make(home: Home) -> list[Path]:
    made = []
    if not home.root.exists():
        home.root.mkdir(mode=0o700, parents=True)
        made.append(home.root)
    for name in paths.FOLDERS:
        folder = home.root / name
        if not folder.is_dir():
            folder.mkdir(parents=True, mode=0o700)
            made.append(folder)
    made += prompt_documents.install(home.box)
    close(home)
    if not home.database.exists():
        Store.create(home.database).close()
        made.append(home.database)
    # The configuration is written last: with it, the home is complete.
    for path, text in ((home.root / ".gitignore", IGNORE), (home.config, config.default_toml())):
        if not path.exists():
            paths.put(path, text.encode())
            made.append(path)
    return made


def close(home: Home) -> list[str]:
    """Give the home and box/ of a checkout mode 0700; what was changed. On the appliance systemd-tmpfiles says who may enter."""
    changed = []
    for folder in (home.root, home.box) if home.root != paths.SERVICE_HOME else ():
        if folder.is_dir() and folder.stat().st_uid == os.geteuid() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
            changed.append(str(folder))
    return changed


def _host_error(error: OSError, home: Home) -> OwlError:
    where = error.filename or home.root
    return disk_faults.explain_fault(error, home.root) or BadInput(
        f"cannot make {where}: {error.strerror}", hint="choose another folder with --home"
    )
