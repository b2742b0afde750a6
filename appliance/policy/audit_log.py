"""What was allowed, refused and done from outside the conversation: verdicts, mounts, commands, fetches.

Owns the `audit` table. A row is written when it happens, cleaned of secrets, and kept for so many days and so many
rows. Knows nothing about policies. Not promised: a row inside a transaction of the caller that is rolled back, or the
newest rows after a power cut; whoever must not act without one passes `durable`.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.policy.audit_file import AuditFile, as_line
from appliance.runtime import log as logs
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.store import visibility
from appliance.store.database import Row, Store
from appliance.store.wall_clock import OLD

LOG = logging.getLogger(__name__)
Severity = Literal["info", "warning", "error"]
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
MAX_TEXT = 2000  # characters of one text in the detail of a row
MAX_ITEMS = 50
MAX_DETAIL = 16_000
DAY_MS = 24 * 3600 * 1000
PRUNE_EVERY = 256  # rows of this process
COLUMNS = "id, at_ms, kind, severity, session, run, actor, rule, correlation, detail"


class Keep(Struct, frozen=True):
    """How much is kept: rows older than so many days go, and the oldest of more than so many rows; a file that gets each, too."""

    days: float = 31
    max_rows: int = 100_000
    file: Path | None = None
    is_synced: bool = True


class AuditRow(Struct, frozen=True):
    """One row: what happened in which conversation, who did it, and the rule that spoke against it."""

    id: int
    at_ms: int
    kind: str
    severity: Severity
    session: str = ""
    run: str = ""
    actor: str = ""
    rule: str = ""
    correlation: str = ""
    detail: Mapping[str, Any] = {}


class AuditQuery(Struct, frozen=True):
    """Which rows are wanted: "" and 0 leave a field open; `kind` may be a beginning such as `mount_`."""

    kind: str = ""
    severity: str = ""
    session: str = ""
    run: str = ""
    rule: str = ""
    before: int = 0  # ids below this one
    limit: int = 50


class Ledger:
    """Reads and writes audit rows. `clean` hides secrets in any value; `keep` is asked each time."""

    def __init__(
        self,
        store: Store,
        clean: Callable[[object], object] = lambda value: value,
        keep: Callable[[], Keep] = Keep,
        file: AuditFile | None = None,
    ) -> None:
        self._store = store
        self._clean = clean
        self._keep = keep
        self._file = file or AuditFile()
        self._count = 0

    def note(
        self,
        kind: str,
        *,
        severity: Severity = "info",
        session: str = "",
        run: str = "",
        actor: str = "",
        rule: str = "",
        detail: Mapping[str, Any] | None = None,
        durable: bool = False,
    ) -> None:
        """Write a row, a line in the log, and one in the file of `Keep`."""
        if severity not in get_args(Severity):
            raise BadInput(f"severity {severity!r} is none", hint=f"use {', '.join(get_args(Severity))}")
        names = [_shorten_value(self._clean(text)) for text in (session, run, actor, rule)]
        text = self._encode_detail(detail or {})
        with self._store.write(durable=durable) as execute:
            execute(
                f"INSERT INTO audit ({COLUMNS.removeprefix('id, ')}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (now_ms(), kind, severity, *names, logs.correlation(), text),
            )
            self._count += 1
            if self._count % PRUNE_EVERY == 0:
                self._crop_rows(execute)
        LOG.log(LEVELS[severity], "audit %s", kind, extra={"session": session, "run": run, "actor": actor, "rule": rule})
        if (path := (keep := self._keep()).file) is not None:
            self._file.append(path, self._describe(kind, severity, names, json.loads(text)), is_synced=keep.is_synced)

    def close(self) -> None:
        """No row after this gets into the file."""
        self._file.close()

    @staticmethod
    def _describe(kind: str, severity: Severity, names: Sequence[Any], detail: Mapping[str, Any]) -> dict[str, Any]:
        """The line of a row in the file, with the person and the group that this thread works for."""
        session, run, actor, rule = names
        contexts = (str(actor).partition(":"), visibility.current().partition(":"))
        user, group = (next((name for sort, _, name in contexts if sort == wanted), "") for wanted in ("user", "group"))
        who = {"user": visibility.person() or user, "group": group, "process": "" if user and actor == f"user:{user}" else actor}
        return as_line(kind, detail, severity=severity, session=session, run=run, rule=rule, **who)

    @method("audit.list")
    def list_by_fields(
        self,
        kind: Annotated[str, "only kinds that begin so, such as mount_"] = "",
        severity: Annotated[Literal["", Severity], "only of this one"] = "",
        session: str = "",
        run: str = "",
        rule: Annotated[str, "only rules with this in their name"] = "",
        before: Annotated[int, Range(0, 2**62), "only rows with a smaller id; 0 for the newest"] = 0,
        limit: Annotated[int, Range(1, 1000), "how many to show"] = 50,
    ) -> list[AuditRow]:
        """Show what was allowed, refused and done, newest first."""
        return self.listing(AuditQuery(kind, severity, session, run, rule, before, limit))

    def listing(self, asked: AuditQuery | None = None) -> list[AuditRow]:
        """Rows, newest first."""
        asked = asked or AuditQuery()
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM audit WHERE (?1 = '' OR substr(kind, 1, length(?1)) = ?1) AND (?2 = '' OR severity = ?2) "
            "AND (?3 = '' OR session = ?3) AND (?4 = '' OR run = ?4) AND (?5 = '' OR instr(rule, ?5) > 0) "
            f"AND (?6 = 0 OR id < ?6){visibility.own_sessions('session')} ORDER BY id DESC LIMIT ?7",
            (asked.kind, asked.severity, asked.session, asked.run, asked.rule, asked.before, asked.limit),
        )
        return [_line_of(row) for row in rows]

    def sweep(self, now: int | None = None) -> int:
        """Drop what is too old or too much; how many rows."""
        now, keep = now_ms() if now is None else now, self._keep()
        with self._store.write() as execute:
            # A row from before the clock was set is not old: only the number of rows ends it.
            old = execute(f"DELETE FROM audit WHERE at_ms {OLD} ? RETURNING 1", (now - int(keep.days * DAY_MS),))
            return len(old) + self._crop_rows(execute)

    def _crop_rows(self, execute: Callable[..., Sequence[Row]]) -> int:
        rows = execute("DELETE FROM audit WHERE id <= (SELECT MAX(id) FROM audit) - ? RETURNING 1", (self._keep().max_rows,))
        return len(rows)

    def _encode_detail(self, detail: Mapping[str, Any]) -> str:
        text = json.dumps(_shorten_value(self._clean(dict(detail))), ensure_ascii=False)
        if len(text) <= MAX_DETAIL:
            return text
        return json.dumps({"cut": text[: MAX_DETAIL // 2]}, ensure_ascii=False)


def _shorten_value(value: Any) -> Any:
    """A clean value as JSON can hold it, with long texts and long lists cut."""
    if isinstance(value, dict):
        return {str(name): _shorten_value(item) for name, item in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, list | tuple):
        return [_shorten_value(item) for item in value[:MAX_ITEMS]]
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} [cut: {len(text)} characters]"


def _line_of(row: Row) -> AuditRow:
    return replace(AuditRow(*row[:-1]), detail=json.loads(row[-1]))
