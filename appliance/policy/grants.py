"""Grants: what a person lets marked runs do without being asked again, for a while.

Owns the `grants` table. One says whom or what may be reached (`kind` and `target`, which may be `*`), on account of whose
texts (`origins`, such as `web:example.org`, `mcp:time` or `any`), for whom, and until when. What is revoked or has expired
stays as a record. Whoever may open the socket may grant; no model can. Knows nothing about runs.
Not promised: that a clock which is set back does not make one last longer.
"""

import fnmatch
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import BadInput, NotFound
from appliance.policy.audit_log import Ledger
from appliance.policy.taint import KINDS, Kind, Mark
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.store import visibility, wall_clock
from appliance.store.database import Row, Store
from appliance.text.fences import is_origin

DAY_MS = 24 * 3600 * 1000
UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
MOST_MS = 366 * DAY_MS
ANY = "any"
COLUMNS = "id, person, kind, target, origins, made_by, made_ms, expires_ms, revoked_ms"
JOINING = frozenset(";&|<>`$()\n\r")  # what makes two commands of one line, or puts one into another
SCOPE = re.compile(r"web:[\w.*-]{1,253}|skill:[\w.*-]{1,64}")


class Grant(Struct, frozen=True):
    """A standing approval; `revoked_ms` is None while it holds."""

    id: int
    person: str
    kind: str
    target: str
    origins: tuple[str, ...]
    made_by: str
    made_ms: int
    expires_ms: int
    revoked_ms: int | None = None

    def is_open(self, now: int) -> bool:
        """Whether it holds."""
        return self.revoked_ms is None and now < self.expires_ms

    def covers(self, kind: str, target: str, marks: Sequence[Mark]) -> bool:
        """Whether it allows such a call in a run tainted by these origins."""
        if self.kind != kind or not fnmatch.fnmatchcase(target, self.target):
            return False
        if kind == "exec" and self.target != "*" and set(target) & JOINING - set(self.target):
            return False  # `make *` lets no other command pass that is written behind it
        return ANY in self.origins or all(_is_of(mark, self.origins) for mark in marks)


class Grants:
    """Reads and writes grants. `ledger` hears of those that are revoked."""

    def __init__(self, store: Store, ledger: Ledger | None = None) -> None:
        self._store = store
        self._ledger = ledger or Ledger(store)

    # -- what people do -----------------------------------------------------------------------------

    @method("grant.list")
    def list_all(self, all: Annotated[bool, "include revoked and expired grants"] = False) -> list[Grant]:
        """The grants of tainted threads, newest first."""
        return self.listing(is_all=all)

    @method("grant.add", access="own")
    def add_by_person(
        self,
        kind: Annotated[Kind, "what is approved"],
        target: Annotated[str, Range(1, 2000), "host, mcp:NAME, person:NAME, command; may be a pattern, * for all"],
        origins: Annotated[list[str], "origin of the text: web:HOST, mcp:NAME, mail, document, skill:NAME, any"],
        lasts: Annotated[str, "such as 12h or 7d"] = "7d",
        person: Annotated[str, "in this person's threads; default: yours"] = "",
        *,
        call: Call,
    ) -> Grant:
        """Let such calls pass without asking, for a while."""
        user = caller_name(call)
        return self.add(person or user, kind, target, origins, lasting(lasts), user)

    @method("grant.revoke")
    def revoke_by_person(self, id: Annotated[int, Range(1, 2**62), "its number"], *, call: Call) -> Grant:
        """Revoke a grant."""
        taken = self.revoke(id)
        self._ledger.note("grant_revoked", actor=caller_name(call), detail={"grant": id, "target": taken.target})
        return taken

    # -- the table ----------------------------------------------------------------------------------

    def add(self, person: str, kind: str, target: str, origins: Sequence[str], lasts_ms: int, by: str) -> Grant:
        """A new one; BadInput for a kind or an origin that there is not, and for one that would last for ever."""
        if kind not in KINDS:
            raise BadInput(f"{kind!r} is nothing that is held", hint=f"use one of {', '.join(KINDS)}")
        if not target.strip() or len(target) > 2000:
            raise BadInput("a grant needs a target", hint="a host, a server such as mcp:time, person:NAME, a command, or * for all")
        for origin in origins:
            if origin != ANY and not is_origin(origin) and not SCOPE.fullmatch(origin):
                raise BadInput(f"{origin!r} is not an origin", hint="use web:HOST, web, mcp:NAME, mail, document, skill:NAME, any")
        if not origins or not 0 < lasts_ms <= MOST_MS:
            raise BadInput("a grant is on account of somebody's texts, and for at most a year", hint="--from web:HOST --for 7d")
        now = now_ms()
        with self._store.write(durable=True) as execute:
            given = (person, kind, target, json.dumps(sorted(set(origins))), by, now, now + lasts_ms)
            rows = execute(
                "INSERT INTO grants (person, kind, target, origins, made_by, made_ms, expires_ms) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING {COLUMNS}",
                given,
            )
        return _grant_of(rows[0])

    def revoke(self, grant: int) -> Grant:
        """Take one back; NotFound when there is none that holds."""
        with self._store.write(durable=True) as execute:
            sql = f"UPDATE grants SET revoked_ms = ? WHERE id = ? AND revoked_ms IS NULL RETURNING {COLUMNS}"
            rows = execute(sql, (now_ms(), grant))
        if not rows:
            raise NotFound(f"no grant {grant} that could be revoked", hint="owlbox grants list shows them")
        return _grant_of(rows[0])

    def move(self, leap: wall_clock.Leap) -> None:
        """Let what was granted by a clock that was wrong hold as long as it was to; call inside the write that notes the leap."""
        with self._store.write() as execute:
            execute(
                "UPDATE grants SET made_ms = made_ms + ?1, expires_ms = expires_ms + ?1 WHERE made_ms BETWEEN ?2 AND ?3",
                (leap.by_ms, leap.since_ms, leap.until_ms),
            )

    def listing(self, person: str = "", *, is_all: bool = False) -> list[Grant]:
        """Those that hold, of one person or of everybody, newest first; with `is_all` those that do not any more, too."""
        rows = self._store.rows(
            f"SELECT {COLUMNS} FROM grants WHERE ?1 IN ('', person) AND (?2 OR (revoked_ms IS NULL AND expires_ms > ?3)) "
            f"{visibility.own_people('person')} ORDER BY id DESC LIMIT 1000",
            (person, is_all, now_ms()),
        )
        return [_grant_of(row) for row in rows]

    def find(self, person: str, kind: str, target: str, marks: Sequence[Mark]) -> Grant | None:
        """The grant that lets a person's run do this; None when there is none."""
        return next((grant for grant in self.listing(person) if grant.covers(kind, target, marks)), None)


def lasting(text: str) -> int:
    """Milliseconds that `7d`, `12h`, `30m` or `2w` last; BadInput for anything else."""
    found = re.fullmatch(r"\s*([0-9]{1,5})\s*([mhdw])\s*", text.lower())
    if found is None or not 0 < (ms := int(found[1]) * UNITS_MS[found[2]]) <= MOST_MS:
        raise BadInput(f"{text!r} is not a time that a grant can last", hint="use 30m, 12h, 7d or 2w, at most a year")
    return ms


def _is_of(mark: Mark, origins: Sequence[str]) -> bool:
    """Whether origins that a grant names cover a mark: its very scope, all of its origin, or a pattern of hosts."""
    return mark.origin in origins or any(fnmatch.fnmatchcase(mark.scope, origin) for origin in origins)


def _grant_of(row: Row) -> Grant:
    values: list[Any] = list(row)
    values[4] = tuple(json.loads(values[4]))
    return Grant(*values)
