"""What an update does in the home, in a process of the home's owner: `python -m ....home_steps STEP HOME FILE`.

`save` copies the database to a file, `stage` makes a home beside it in which another version can be tried, `restore` brings a saved
copy back, `tidy` removes the copies of earlier updates. Each may be done again after it was cut off.
"""

import os
import shutil
import sys
from pathlib import Path

from appliance.errors import OwlError
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import database_copy, disk_faults, storage_errors
from appliance.store.database import Store


def save(home: Home, target: Path) -> None:
    """A copy of the database, checked and flushed; one that is there already stays."""
    if target.exists():
        return
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    store = Store.open(home.database)
    try:
        store.snapshot(part)
    finally:
        store.close()
    database_copy.check(part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, target)
    paths.flush(target.parent)


def stage(home: Home, folder: Path) -> None:
    """A home to try a version in: a copy of the database and the configuration, the same models."""
    shutil.rmtree(folder, ignore_errors=True)
    trial = Home(folder)
    for name in paths.FOLDERS:
        if not name.startswith("models"):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    trial.models.symlink_to(home.models)
    shutil.copyfile(home.config, trial.config)
    save(home, trial.database)


def restore(home: Home, saved: Path) -> None:
    """The saved database takes the place of the present one, which is kept aside; one that this version can open stays."""
    try:
        Store.open(home.database).close()
    except OwlError:
        pass  # a later version has changed its tables, or it is damaged
    else:
        return
    copy = home.root / ".before-update.db"
    shutil.copyfile(saved, copy)
    copy.chmod(0o600)
    database_copy.replace(home.database, copy, paths.unused(home.backups, "taken-back", ".db"))
    paths.flush(home.root)


def tidy(home: Home, saved: Path) -> None:
    """Of the copies from before updates only this one stays: there is no way back behind the last update."""
    for path in home.backups.glob("before-update-*.db"):
        if path.name != saved.name:
            path.unlink(missing_ok=True)


def main(words: list[str]) -> int:
    """Do one of them; 1 with a reason on stderr."""
    step, home, place = words[0], Home(Path(words[1])), Path(words[2])
    try:
        {"save": save, "stage": stage, "restore": restore, "tidy": tidy}[step](home, place)
    except OwlError as error:
        print(disk_faults.explain_fault(error) or error, file=sys.stderr)
        return 1
    except OSError as error:
        print(storage_errors.host_error(error, place), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
