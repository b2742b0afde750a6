"""The doctor's look at the database: its tables in a process of their own, its search index, its log; and their repair."""

from collections import Counter

from appliance.knowledge.index import Passages
from appliance.runtime.paths import Home
from appliance.sessions.runs import Runs
from appliance.store import storage_errors
from appliance.store.database import Store
from appliance.upkeep import repair
from appliance.upkeep.checks.finding import Finding
from appliance.upkeep.checks.table_process import SAMPLE, TableCheck

LARGE_MB = 100  # of a database
LOG_MB = 64  # of its log, which each checkpoint empties


def check(home: Home, tables: TableCheck, *, is_repairing: bool) -> Finding:
    """The database's pages, its rows and its search index; what is mended is said."""
    found = tables.result()
    if is_repairing and home.database.exists() and (found.problems or repair.problems(home)):
        return Finding("database", "ok", str(repair.rebuild(home)))
    store = Store.open(home.database)
    try:
        passages = Passages(store)
        is_brief = not is_repairing and passages.size() > SAMPLE
        if found.problems:
            bad = {name: state for name, state in found.states.items() if state in ("corrupt", "missing")}
            return Finding("database", "problem", "; ".join(found.problems[:3]), storage_errors.AFTER_DAMAGE, bad or found.states)
        if store.is_read_only:
            return Finding("database", "ok", f"version {store.version}, intact, opened for reading alone", "", found.states)
        problems = passages.problems(SAMPLE if is_brief else 0)
        if problems and is_repairing:
            copy = home.backups / "before-repair.db"
            store.snapshot(copy)
            passages.rebuild()
            if not (problems := store.problems() or passages.problems()):
                return Finding("database", "ok", f"search index rebuilt; a copy from before is {copy}")
        if problems:
            return Finding("database", "problem", "; ".join(problems), "owlbox doctor --repair rebuilds the search index")
        if lost := Runs(store, "").cut_off():
            return Finding("database", "warning", f"{lost} interrupted answers", "the next start of the core marks them")
        size_mb = home.database.stat().st_size // 1_000_000
        counts = Counter(found.states.values())
        if size_mb > LARGE_MB:
            hint = "delete threads you no longer need: owlbox thread list"
            return Finding("database", "warning", f"{size_mb} MB, intact", hint, found.states)
        far = " as far as a short look goes; owlbox doctor --repair looks at all of it" if is_brief else ""
        said = f"version {store.version}, intact{far}; {counts['ok']} tables with rows, {counts['empty']} empty"
        return Finding("database", "ok", said, "", found.states)
    finally:
        store.close()


def check_log(home: Home, *, is_repairing: bool) -> Finding:
    """Whether the log beside the database is brought into it: one that only grows has a reader that never ends."""
    path = home.database.with_name(home.database.name + "-wal")
    size_mb = path.stat().st_size // 1_000_000 if path.exists() else 0
    if size_mb <= LOG_MB:
        return Finding("log", "ok", f"{size_mb} MB wait to be written into the database")
    if is_repairing:
        store = Store.open(home.database)
        try:
            store.checkpoint()
        finally:
            store.close()
        if not path.exists() or path.stat().st_size // 1_000_000 <= LOG_MB:
            return Finding("log", "ok", f"{size_mb} MB were written into the database")
    hint = "owlbox maintain --now; if it stays, restart the core, which ends a reader that hangs"
    return Finding("log", "warning", f"{path.name} has {size_mb} MB: it is not brought into the database", hint)
