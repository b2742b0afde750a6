"""Queries at the local socket: the database asked freely, reading only, by the user whose core it is."""

import math
import os
from typing import Annotated, Any

from appliance.channels.inbox import MAX_CHARS
from appliance.errors import Refused
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import user_name
from appliance.store import sql_console
from appliance.store.database import Store

PAGE_CHARS = 400_000
QUERY_S = 10.0  # for a query that somebody typed


class SqlMethods:
    """Answers queries so that they can be sent: a page of rows, long values cut, bytes by their size."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @method("sql.query")
    def query(
        self,
        sql: Annotated[str, "one query; empty lists the tables and their columns"] = "",
        limit: Annotated[int, Range(1, 100_000), "how many rows"] = 1000,
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Ask the database freely, reading only, for at most 10 seconds; for the user whose core it is.

        `has_more` says that there are more rows, `is_cut` that long values were cut. Bytes are told by their size.
        """
        if call.uid != os.getuid():
            raise Refused(f"the database is for user {user_name(os.getuid())} alone", hint="run owlbox sql as that user")
        asked = sql.strip() or sql_console.TABLES
        found = self._store.query(asked, limit=limit, deadline_s=QUERY_S, is_stopped=call.cancel.is_set)
        rows: list[list[Any]] = []
        room, has_more, is_cut = PAGE_CHARS, found.has_more, False
        for row in found.rows:
            cells = [_json_cell(value) for value in row]
            for i, cell in enumerate(cells):
                if isinstance(cell, str) and len(cell) > MAX_CHARS // len(cells):
                    cells[i], is_cut = f"{cell[: MAX_CHARS // len(cells)]} [cut: {len(cell)} characters]", True
            room -= sum(len(str(cell)) + 4 for cell in cells)
            if room < 0 and rows:
                has_more = True
                break
            rows.append(cells)
        return {"columns": list(found.columns), "rows": rows, "has_more": has_more, "is_cut": is_cut}


def _json_cell(value: Any) -> Any:
    """A value of the database as JSON has it."""
    if isinstance(value, bytes):
        return {"size_bytes": len(value)}
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value
