"""The database's tables, and the numbered migrations from one version of them to the next, each in its own transaction.

The first one is `schema.sql`. A migration that has been released never changes: further ones are appended. Each is a text of
statements, run one after another. Databases of versions below `FIRST` were made before 0.1.0 and are not migrated.
"""

import re
from pathlib import Path

from appliance.errors import StoreError

APPLICATION_ID = 0x4F574C42  # "OWLB", in the file's header
# Tables whose changes are recorded per run, so that a run can be taken back.
UNDOABLE = ("entries", "blobs", "tasks", "task_deps", "schedules")
# Columns of those that follow from the rest: a change of them keeps nothing from being taken back.
DERIVED = ("indexed_ms", "open_blockers")
# What brings them in line after rows were brought back in any order.
SETTLING = (
    """UPDATE tasks SET open_blockers = n.open FROM (
        SELECT t.id, (SELECT COUNT(*) FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker
            WHERE d.task = t.id AND b.status IS NOT 'complete') AS open FROM tasks t) AS n
    WHERE tasks.id = n.id AND tasks.open_blockers <> n.open""",
)

FIRST = 100
MIGRATIONS: tuple[str, ...] = (Path(__file__).with_name("schema.sql").read_text("utf-8"),)

LATEST = FIRST - 1 + len(MIGRATIONS)


def statements(text: str) -> list[str]:
    """The statements of a migration one by one: SQLite runs a text of several no further than the first row.

    One ends with a `;` at the end of a line, behind which neither an indented one nor an END comes.
    """
    return [one for one in re.split(r"(?<=;)\n+(?! |END;)", text) if one]


def up_to(version: int) -> tuple[str, ...]:
    """The migrations that a database of a version has had."""
    return MIGRATIONS[: max(0, version - FIRST + 1)]


def require_known(path: Path, version: int, latest: int = LATEST) -> None:
    """Refuse the database of a file when no migration leads from its version to this one; 0 has none yet."""
    told = f"the database in {path} is of version {version}"
    if version > latest:
        hint = "update owlbox, or take a backup made by this version: owlbox backup list, owlbox restore FILE"
        raise StoreError(f"{told}, this owlbox knows up to {latest}", hint=hint)
    if 0 < version < FIRST:
        hint = "export what it holds with the owlbox that made it (owlbox export FILE), then import that into a new home"
        raise StoreError(f"{told}, from before 0.1.0", hint=hint)
