"""The commands about what has happened: `owlbox undo`, `history` and `sql`, made from their methods.

What a query may do, and for whom, is decided by the core.
"""

import argparse
import sys
from typing import Any

from appliance.clock import local_time
from appliance.console import terminal
from appliance.console.inputs import read_text
from appliance.console.terminal import Table, say, say_json
from appliance.console.tool_command import once
from appliance.console.verbs import Verb
from appliance.errors import BadInput
from appliance.runtime.paths import Home
from appliance.text.references import for_people

LOG = ("log://", "update://", "content://")  # what a thread notes about itself
MAX_SQL = 1_000_000
CELL = 100  # characters of a value in a table
FUNCTIONS = "also: hedmatch hedsearch hedfound hedreplace heddiff schemeOf countTokens slugify seen asked_for"


def _tell_undone(args: argparse.Namespace, done: dict[str, Any]) -> list[str] | Table:
    """What was taken back, or what is in the way."""
    own = {f"run:{one}" for one in (done["run"], *done["helpers"])}
    noted = [c for c in done["changes"] if c["scope"] in own and c["path"].startswith(LOG)]
    changed = [c for c in done["changes"] if c not in noted]
    if done["later"]:
        later = [[_last_change(c), for_people(c["path"])] for c in done["later"]]
        head = f"thread {done['run']} cannot be taken back, these were changed since:"
        return Table(later, ["change", "reference"], lead=[head])
    if not done["changes"] and not done["by"]:
        return [f"nothing to undo: thread {done['run']} has changed no entries or tasks"]
    more = f", and {len(noted)} in its own log" if noted else ""
    lead = [f"{'would take back' if args.dry_run else 'took back'} {_count_kinds([c['kind'] for c in changed])}{more}"]
    lead += [f"also what was changed in thread {helper}, to which it handed work" for helper in done["helpers"]]
    foot = [f"owlbox undo {done['by']} brings it back"] if done["by"] else []
    return Table([[c["how"], for_people(c["path"])] for c in changed], ["now", "reference"], lead=lead, foot=foot)


def _count_kinds(kinds: list[str]) -> str:
    """So many entries and tasks."""
    tasks = kinds.count("task")
    entries = len(kinds) - tasks
    said = [f"{entries} {'entry' if entries == 1 else 'entries'}"] if entries or not tasks else []
    return " and ".join([*said, *([f"{tasks} {'task' if tasks == 1 else 'tasks'}"] if tasks else [])])


def _last_change(change: dict[str, Any]) -> str:
    """What was done to an entry since, and by whom."""
    thread = f" in {change['run'][-8:]}" if change["run"] else ""
    when = f", {local_time(change['at_ms'])[:16]}" if change["at_ms"] else ""
    return f"{change['verb'] or change['how']} by {change['writer'] or 'somebody'}{thread}{when}"


def _tell_history(args: argparse.Namespace, found: list[dict[str, Any]]) -> list[str] | Table:
    """The changes of an entry, with --patch as texts."""
    if not args.patch or not found:
        return Table([_change_row(one) for one in found], ["changed", "how", "by", "thread", "bytes"], ["by"],
                     empty="no changes are remembered")  # fmt: skip
    lines = []
    for change in found:
        lines.append(f"{'  '.join(cell for cell in _change_row(change) if cell)} bytes")
        lines += ["(left out, it is too much at once)"] if change.get("is_cut") else change["patch"].splitlines()
    return lines


def _change_row(change: dict[str, Any]) -> list[str]:
    when = local_time(change["at_ms"])[:19]
    return [when, change["verb"], change["writer"], change["run"][-8:], str(change["size_bytes"])]


def sql(args: argparse.Namespace, home: Home) -> int:
    """Ask the database; a single column is printed as it is, more as a table, JSON as one object a row."""
    query = " ".join(args.query)
    if query == "-":
        query = read_text("-", MAX_SQL)
        if not query.strip():
            raise BadInput("there is no query on standard input", hint="owlbox sql, without -, lists tables and columns")
    found = once(home, "sql.query", {"sql": query, "limit": args.limit})
    columns, rows = found["columns"], found["rows"]
    if args.json:
        names = _unique_columns(columns)
        say_json([dict(zip(names, row, strict=True)) for row in rows])
    elif len(columns) == 1:
        for row in rows:
            say(_cell_text(row[0]))
    else:
        shown = [[_cell_text(value) for value in row] for row in rows]
        most = CELL if query.strip() else MAX_SQL
        terminal.table([[terminal.clipped(v, most) for v in row] for row in shown], columns, sys.stdout, cut=columns)
        if not query.strip():
            say("\n".join(terminal.folded(FUNCTIONS, sys.stdout)))
    shown_rows = f"only the first {len(rows)} rows" if len(rows) > 1 else "only the first row"
    for is_so, what in ((found["has_more"], shown_rows), (found["is_cut"], "long values are cut")):
        if is_so:
            print(f"owlbox: {what}: narrow the query, or raise --limit", file=sys.stderr)
    return 0


def _cell_text(value: Any) -> str:
    if isinstance(value, dict):
        return f"({value['size_bytes']} bytes)"
    return "" if value is None else str(value)


def _unique_columns(names: list[str]) -> list[str]:
    """The names of columns, each once: a repeated one gets a number."""
    found: list[str] = []
    for name in names:
        number, made = 2, name
        while made in found:
            made, number = f"{name}_{number}", number + 1
        found.append(made)
    return found


def _add_query(made: argparse.ArgumentParser) -> None:
    made.add_argument("query", nargs="*", help="one SELECT, with hedmatch() and the other functions; - reads it from a pipe")
    made.add_argument("--limit", type=int, default=1000, help="how many rows")


# fmt: off
NOUNS = (
    Verb("undo", "run.undo", "thread=run --dry-run=is_dry_run --alone=is_alone", says=_tell_undone,
         text="undo all changes of a thread",
         helps={"thread": "its id, or the beginning or end of it"}, code=lambda done: 1 if done["later"] else 0),
    Verb("history", "entry.history", "ref --limit --patch --thread=run", says=_tell_history,
         text="history of an entry, newest first",
         helps={"ref": "its reference, as `entry list` or `search` shows it"}),
    Verb("sql", text="query the database, read-only; default: list its tables",
         handler=sql, adds=_add_query),
)
