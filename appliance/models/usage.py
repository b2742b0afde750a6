"""What every request to a model took and cost: by person, session, model and day, without a word of what was said.

Owns the tables `requests`, the newest thousand of each person one by one, and `usage`, the sums of each day, which are
kept. Requests of the box itself, such as titles, have the person "". Runs that are deleted stay counted. Knows no prices:
what a request cost comes with its end.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Struct

from appliance.clock import now_ms
from appliance.records import Ask, Finish, Route
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.store import visibility
from appliance.store.database import Store

MOST_RECORDS = 1000  # of one person
By = Literal["day", "person", "session", "model", "provider"]
COUNTS = ("requests", "prompt", "cached", "cache_write", "output", "reasoning", "cost_micros", "unpriced")
GROUPS: Mapping[By, str] = {
    "day": "day",
    "person": "person",
    "session": "session",
    "model": "provider || '/' || model",
    "provider": "provider",
}
REQUEST_COLUMNS = (
    "at_ms, person, run, purpose, route, provider, model, is_estimated, prompt, cached, cache_write, output, reasoning, cost_micros"
)


class Sum(Struct, frozen=True):
    """What a group of requests came to; `unpriced` of them cost nobody knows what."""

    name: str
    requests: int = 0
    prompt: int = 0
    cached: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost_micros: int = 0
    unpriced: int = 0


class Accounts:
    """Reads and writes what requests took."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, route: Route, ask: Ask, finish: Finish) -> None:
        """A request has been answered, by the one that `finish` names."""
        at_ms, run = now_ms(), ask.slot if ask.purpose == "turn" else ""
        tokens = (
            finish.prompt_tokens,
            finish.cached_tokens,
            finish.cache_write_tokens,
            finish.output_tokens,
            finish.reasoning_tokens,
        )
        who = (finish.provider, finish.model)
        with self._store.write() as execute:
            execute(
                f"INSERT INTO requests ({REQUEST_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (at_ms, ask.person, run, ask.purpose, route.name, *who, int(finish.is_estimated), *tokens, finish.cost_micros),
            )
            execute(
                "DELETE FROM requests WHERE person = ?1 AND id <= "
                "(SELECT id FROM requests WHERE person = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                (ask.person, MOST_RECORDS),
            )
            found = execute("SELECT session FROM runs WHERE id = ?", (run,)) if run else []
            key = (_local_day(at_ms), ask.person, str(found[0][0]) if found else "", *who)
            execute(
                f"INSERT INTO usage (day, person, session, provider, model, {', '.join(COUNTS)}) "
                "VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                + ", ".join(f"{name} = {name} + excluded.{name}" for name in COUNTS),
                (*key, *tokens, finish.cost_micros or 0, int(finish.cost_micros is None)),
            )

    @method("usage.sums")
    def sums(
        self,
        by: By = "day",
        days: Annotated[int, Range(1, 36_500), "how many days back, today included"] = 31,
        person: Annotated[str, "only this person's; empty for everybody's"] = "",
        session: Annotated[str, "only this session's; empty for all"] = "",
    ) -> list[Sum]:
        """Requests, tokens and millionths of a dollar by day, person, session, model or provider; of `unpriced` nobody knows."""
        own = visibility.own_people("person")
        where, given = ["day > ?"], [_local_day(now_ms() - days * 86_400_000)]
        for name, value in (("person", person), ("session", session)):
            if value:
                where.append(f"{name} = ?")
                given.append(value)
        totals = ", ".join(f"SUM({name})" for name in COUNTS)
        # Days the newest first, all else the dearest first.
        order = "name DESC" if by == "day" else "SUM(cost_micros) DESC, SUM(prompt + output) DESC, name"
        sql = f"SELECT {GROUPS[by]} AS name, {totals} FROM usage WHERE {' AND '.join(where)}{own} GROUP BY name ORDER BY {order}"
        return [Sum(str(name), *map(int, counts)) for name, *counts in self._store.rows(sql, given)]

    @method("usage.requests")
    def records(
        self,
        person: Annotated[str | None, "only this person's; empty for the box's own, null for all"] = None,
        run: Annotated[str, "only this thread's; empty for all"] = "",
        limit: Annotated[int, Range(1, 1000), "how many, newest first"] = 50,
    ) -> list[dict[str, Any]]:
        """Requests to models one by one; of each person the newest thousand are kept."""
        own = visibility.own_people("person")
        where, given = ["1"], []
        for name, value in (("person", person), ("run", run or None)):
            if value is not None:
                where.append(f"{name} = ?")
                given.append(value)
        sql = f"SELECT {REQUEST_COLUMNS} FROM requests WHERE {' AND '.join(where)}{own} ORDER BY id DESC LIMIT ?"
        rows = self._store.rows(sql, (*given, limit))
        found = [dict(zip(REQUEST_COLUMNS.split(", "), row, strict=True)) for row in rows]
        return [{**one, "is_estimated": bool(one["is_estimated"])} for one in found]


def _local_day(at_ms: int) -> str:
    """The day by the box's clock and time zone."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().date().isoformat()
