"""The commands about what has happened: `owlbox undo`, `history` and `sql`.

Each takes the parsed arguments and the home and returns the exit code, as in `cli.listings`. What a query may
do, and for whom, is decided by the core.
"""

import argparse
import sys
from typing import Any

from appliance.cli.console import terminal
from appliance.cli.console.parser import Command
from appliance.cli.console.terminal import say, say_json, say_line
from appliance.cli.console.tool_command import once
from appliance.clock import local_time
from appliance.errors import BadInput
from appliance.runtime.paths import Home

LOG = ("log://", "update://", "content://")  # what a thread notes about itself
MAX_SQL = 1_000_000
CELL = 100  # characters of a value in a table
FUNCTIONS = "also: hedmatch hedsearch hedfound hedreplace heddiff schemeOf countTokens slugify seen asked_for"


def add(command: Command) -> None:
    """Add the commands."""
    made = command("undo", undo, "take back everything a thread changed in entries, or nothing of it")
    made.add_argument("thread", help="its id, or the beginning or end of it")
    made.add_argument("--dry-run", action="store_true", help="only say what would change, and what is in the way")
    made.add_argument("--alone", action="store_true", help="without what was changed by those to whom it handed work")
    made = command("history", history, "who changed an entry, newest first; also of one that is gone")
    made.add_argument("ref", help="its reference, as `entry list` or `search` shows it")
    made.add_argument("--limit", type=int, default=20, help="how many changes, at most 100")
    made.add_argument("--patch", action="store_true", help="with what changed in the text")
    made.add_argument("--thread", default="", metavar="ID", help="as this thread sees it")
    made = command("sql", sql, "ask the database in SQL, reading only; without a query, its tables and columns")
    made.add_argument("query", nargs="*", help="one SELECT, with hedmatch() and the other functions; - reads it from a pipe")
    made.add_argument("--limit", type=int, default=1000, help="how many rows")


def undo(args: argparse.Namespace, home: Home) -> int:
    """Take a thread back; 1 when a dry run says that it cannot be."""
    done = once(home, "run.undo", {"run": args.thread, "is_dry_run": args.dry_run, "is_alone": args.alone})
    code = 1 if done["later"] else 0
    if args.json:
        say_json(done)
        return code
    own = {f"run:{one}" for one in (done["run"], *done["helpers"])}
    noted = [c for c in done["changes"] if c["scope"] in own and c["path"].startswith(LOG)]
    rows = [[c["how"], c["path"]] for c in done["changes"] if c not in noted]
    if done["later"]:
        say_line(f"thread {done['run']} cannot be taken back, these were changed since:")
        terminal.table([[_last_change(c), c["path"]] for c in done["later"]], ["change", "reference"], sys.stdout)
    elif not done["changes"] and not done["by"]:
        say(f"nothing to undo: thread {done['run']} has changed no entries or tasks")
    else:
        count = _count_kinds([c["kind"] for c in done["changes"] if c not in noted])
        more = f", and {len(noted)} in its own log" if noted else ""
        say(f"{'would take back' if args.dry_run else 'took back'} {count}{more}")
        for helper in done["helpers"]:
            say_line(f"also what was changed in thread {helper}, to which it handed work")
        if rows:
            terminal.table(rows, ["now", "reference"], sys.stdout)
        if done["by"]:
            say_line(f"owlbox undo {done['by']} brings it back")
    return code


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


def history(args: argparse.Namespace, home: Home) -> int:
    """Print the changes of an entry."""
    params = {"ref": args.ref, "limit": args.limit, "patch": args.patch, "run": args.thread}
    found = once(home, "entry.history", params)
    if args.json:
        say_json(found)
    elif not found:
        say("no changes are remembered")
    elif args.patch:
        for change in found:
            say_line(f"{'  '.join(cell for cell in _change_row(change) if cell)} bytes")
            say("(left out, it is too much at once)" if change.get("is_cut") else change["patch"].rstrip("\n"))
    else:
        terminal.table(
            [_change_row(change) for change in found], ["changed", "how", "by", "thread", "bytes"], sys.stdout, cut=["by"]
        )
    return 0


def _change_row(change: dict[str, Any]) -> list[str]:
    when = local_time(change["at_ms"])[:19]
    return [when, change["verb"], change["writer"], change["run"][-8:], str(change["size_bytes"])]


def sql(args: argparse.Namespace, home: Home) -> int:
    """Ask the database; a single column is printed as it is, more as a table, JSON as one object a row."""
    query = " ".join(args.query)
    if query == "-":
        query = sys.stdin.buffer.read(MAX_SQL).decode("utf-8", "replace")
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
