"""The latest calls of the socket's methods and their results: who asked, what, with which outcome, and with what answer.

Owns the table `calls`: a row for each call, of which the newest are kept. Arguments and results are people's own words: excerpts
of them are shown to nobody but who made the call, none are kept of methods about secrets and logins, and those that hold the text
of a memory, or name a thread, are blanked by the database when that is forgotten or deleted. The line `request` of each call in
the log has neither. Rows are written some at a time, which spares the card: those of the last calls are lost with the power.
"""

import json
import logging
import re
import threading
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Struct, structs

from appliance.errors import OwlError
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
MOST = 2000
TOGETHER = 50  # calls that are written in one transaction
FORGETTING = ("memory.forget", "thread.delete", "session.delete")  # before these all are written, so that nothing is left out
# Whose arguments and results are never kept: secrets, and what repeats the text that it makes forgotten.
UNKEPT = ("secret.", "login.", "memory.forget")
SECRET = re.compile(r".*(password|token|secret|sealed|authorization|headers|credential).*|env|key|value", re.IGNORECASE)
# Of an excerpt: characters in all and of one text, members of one list, levels.
MAX_CHARS, MAX_TEXT, MAX_MEMBERS, MAX_DEPTH = 2000, 300, 10, 6
CUT = "…"


class CallRecord(Struct, frozen=True):
    """One call: `outcome` "ok" or that of its error, whose words are in `error`. `params` and `result` are excerpts as JSON."""

    at_ms: int
    sender: str
    method: str
    outcome: str
    ms: int = 0
    correlation: str = ""
    error: str = ""
    params: str = ""
    result: str = ""


COLUMNS = ", ".join(CallRecord.__struct_fields__)


class CallLog:
    """Keeps the latest calls."""

    def __init__(self, store: Store, most: int = MOST) -> None:
        self._store = store
        self._most = most
        self._guard = threading.Lock()
        self._waiting: list[tuple[str | int, ...]] = []

    def note(self, caller: str, call: CallRecord, params: object = None, result: object = None) -> None:
        """A call is over. `caller` is who made it, by the name that `caller_of` gives."""
        if not call.method.startswith(UNKEPT):
            call = structs.replace(call, params=excerpt(params), result=excerpt(result) if call.outcome == "ok" else "")
        with self._guard:
            self._waiting.append((caller, *structs.astuple(call)))
            is_due = len(self._waiting) >= TOGETHER
        if is_due:
            self.flush()

    def flush(self) -> None:
        """Write what waits; a full or busy disk keeps none of it, and the log has the lines of these requests."""
        with self._guard:
            waiting, self._waiting = self._waiting, []
            if not waiting:
                return
            try:
                with self._store.write(is_hurried=True) as execute:
                    for values in waiting:
                        execute(f"INSERT INTO calls (caller, {COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
                    execute("DELETE FROM calls WHERE id <= (SELECT MAX(id) FROM calls) - ?", (self._most,))
            except OwlError as error:
                LOG.debug("%d calls are not kept: %s", len(waiting), error)

    @method("call.list", is_quiet=True)
    def list_calls(
        self,
        limit: Annotated[int, Range(1, MOST), "how many to show"] = 100,
        name: Annotated[str, "only this method, or those that begin with it and a dot"] = "",
        only: Annotated[Literal["", "failed"], "failed: only those that ended with an error"] = "",
        *,
        call: Call,
    ) -> list[CallRecord]:
        """The latest calls of methods, newest first: who asked, the outcome, how long it took; one's own with what was said."""
        self.flush()
        rows = self._store.rows(
            f"SELECT caller = ?1, {COLUMNS} FROM calls "
            "WHERE (?2 = '' OR method = ?2 OR substr(method, 1, length(?2) + 1) = ?2 || '.') "
            "AND (?3 = '' OR outcome <> 'ok') ORDER BY id DESC LIMIT ?4",
            (caller_of(call.person, call.uid), name, only, limit),
        )
        found = ((is_own, CallRecord(*values)) for is_own, *values in rows)
        return [one if is_own else structs.replace(one, params="", result="") for is_own, one in found]


def caller_of(person: str, uid: int) -> str:
    """Who makes a call: somebody who was authenticated, or a user of this machine."""
    return f"person={person}" if person else f"uid={uid}"


def excerpt(value: object) -> str:
    """The beginning of a value as JSON, without what its name says is secret."""
    return json.dumps(_shorten(value, 0), ensure_ascii=False)[:MAX_CHARS] if value is not None else ""


def _shorten(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Struct):
        value = structs.asdict(value)
    if depth > MAX_DEPTH and isinstance(value, Mapping | list | tuple | set | frozenset):
        return CUT
    if isinstance(value, Mapping):
        members = list(value.items())[: 3 * MAX_MEMBERS]
        return {str(name): CUT if SECRET.fullmatch(str(name)) else _shorten(one, depth + 1) for name, one in members}
    if isinstance(value, list | tuple | set | frozenset):
        return [_shorten(one, depth + 1) for one in list(value)[:MAX_MEMBERS]]
    text = str(value)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + CUT
