"""Logins from other machines: one-time invites, passwords, and the sessions that both begin.

Owns the `logins`, `invites` and `passwords` tables. Tokens are random and only their SHA-256 is stored; passwords are stored
as scrypt. Whoever holds a session's token is that person, with the rights that the person has everywhere (`service.callers`).
Attempts are limited for each person, for each address and for both together: counted before a password is hashed, and taken back
when it was right. What a caller says of an address is believed from the process that serves the page alone; anybody else's
attempts are counted for whoever they are. The counts are kept in memory, and none of a password is forgotten before its time. Where
somebody is logged in, attempts that fail elsewhere do not count. A refused attempt
is noted in the audit log, and is told nothing of what was wrong. Knows nothing about HTTP and cookies.
"""

import hashlib
import hmac
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Struct

from appliance.clock import monotonic_s, new_id, now_ms
from appliance.errors import BadInput, Exhausted, NotFound, Refused
from appliance.policy.audit_log import Ledger
from appliance.runtime.events import Events
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.sessions.people import LOCAL, People
from appliance.store import wall_clock
from appliance.store.database import Store
from appliance.store.visibility import own_people
from appliance.text.urls import network_of

COLUMNS = "id, person, agent, address, created_ms, seen_ms, expires_ms"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
SEEN_MS = HOUR_MS  # between two notes of when a session was last used: each is a write
PROGRAM_PREFIX, TOKEN_DAYS = "owl-", 3650  # of a program's token, which is ended and does not run out
MIN_PASSWORD = 10
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**14, 8, 5  # 16 MB and about a quarter of a second on x86-64, a second on a Pi
WINDOW_S = 900.0
MAX_FAILED = (("person", 30), ("address", 20), ("both", 6), ("invite", 20))  # attempts that may fail within the window
# Names and addresses that attempts of a kind are counted for. Passwords are hashed one after the other, so that no more than a few
# thousand can be tried within the window.
MAX_COUNTED = 20_000

Token = Annotated[str, Range(1, 128), "the token of a session"]
Agent = Annotated[str, Range(0, 300), "what the browser calls itself"]
Where = Annotated[str, Range(0, 64), "the address that it comes from"]


class Login(Struct, frozen=True):
    """A session as people see it."""

    id: str
    person: str
    agent: str
    address: str
    created_ms: int
    seen_ms: int
    expires_ms: int


class LoginsEnded(Struct, frozen=True):
    """Event: these sessions are over; whoever is connected with one is hung up on."""

    ids: tuple[str, ...]


class StartedLogin(Struct, frozen=True):
    """A session that has just begun; `token` is told here and nowhere else."""

    person: str
    token: str
    expires_ms: int


class Invite(Struct, frozen=True):
    """A one-time invite; `invite` is told here and nowhere else."""

    person: str
    invite: str
    expires_ms: int
    address: str  # of the page that takes it, "" where none is configured


class Validity(Struct, frozen=True):
    """The lifetimes of invites and sessions, and the address of the page."""

    address: str = ""
    invite_h: float = 24
    session_days: float = 30


class Logins:
    """Invites, passwords and sessions."""

    def __init__(
        self,
        store: Store,
        people: People,
        ledger: Ledger,
        events: Events,
        validity: Callable[[], Validity],
        cost: int = SCRYPT_N,
        page_user: str = "",
    ) -> None:
        """`cost` is that of one password: memory and time go with it. `page_user` is whom the page's process runs as."""
        self._cost = cost
        self._page_user = page_user
        self._store = store
        self._people = people
        self._ledger = ledger
        self._events = events
        self._validity = validity
        self._attempts = AttemptLimit()
        self._hashing = threading.Lock()  # one password at a time: each takes memory and all of a CPU

    # -- for the process that serves the page -------------------------------------------------------

    def redeem_invite(self, invite: str, agent: str = "", address: str = "", *, call: Call) -> StartedLogin:
        """Begin a session with an invite, which holds no longer then."""
        address = self._address_of(call, address)
        attempt = self._attempts.begin([("invite", network_of(address))])
        active = "NOT EXISTS (SELECT 1 FROM persons WHERE name = person AND deactivated_ms IS NOT NULL)"  # else it stays, for later
        sql = f"DELETE FROM invites WHERE token_hash = ? AND expires_ms > ? AND {active} RETURNING person"
        with self._store.write(durable=True) as execute:
            rows = execute(sql, (_hash_token(invite), now_ms()))
            if rows:
                self._attempts.take_back(attempt)
                return self._begin(str(rows[0][0]), agent, address)
        raise self._refuse("", address, "an invite that is none, was used, is too old, or of somebody who is deactivated")

    @method("login.enter", access="all")
    def enter_password(
        self,
        name: Annotated[str, Range(0, 128), "of the person"] = "",
        password: Annotated[str, Range(0, 512)] = "",
        agent: Agent = "",
        address: Where = "",
        invite: Annotated[str, Range(0, 128), "in place of both, as it was sent; it holds no longer then"] = "",
        *,
        call: Call,
    ) -> StartedLogin:
        """Begin a session with a name and a password, or with an invite."""
        if invite:
            return self.redeem_invite(invite, agent, address, call=call)
        person, address = name, self._address_of(call, address)
        where = network_of(address)
        keys = [
            ("address", where),
            ("both", f"{name}\0{where}"),
        ]  # who fails elsewhere locks nobody out of where they are logged in
        attempt = self._attempts.begin(keys if self._is_logged_in(name, where) else [("person", name), *keys])
        rows = self._store.rows("SELECT salt, hash FROM passwords WHERE person = ?", (person,))
        # A person without a password takes as long as one with it: how long it takes says nothing.
        salt, stored = (bytes(rows[0][0]), bytes(rows[0][1])) if rows else (b"0" * 16, b"")
        with self._hashing:
            given = _hash_password(password, salt, self._cost)
        if not hmac.compare_digest(given, stored):
            raise self._refuse(person, address, "a wrong name or password")
        if not self._people.is_active(person):
            raise self._refuse(person, address, "the person is deactivated")
        self._attempts.take_back(attempt)
        with self._store.write(durable=True):
            return self._begin(person, agent, address)

    @method("login.check", access="all", is_quiet=True)
    def check_token(self, token: Token) -> dict[str, str]:
        """The session that a token belongs to."""
        return {"person": self.find(token).person}

    @method("login.leave", access="all")
    def leave(self, token: Token) -> dict[str, bool]:
        """End the session whose token this is."""
        return {"is_ended": bool(self._end("token_hash = ?", _hash_token(token)))}

    def find(self, token: str) -> Login:
        """The session that a token stands for; Refused when there is none, or it is over."""
        rows = self._store.rows(f"SELECT {COLUMNS} FROM logins WHERE token_hash = ?", (_hash_token(token),))
        found = Login(*rows[0]) if rows else None
        if found is not None and not self._people.is_active(found.person):
            raise Refused(f"{found.person} is deactivated", hint="ask an admin of the box", outcome="not_logged_in")
        if found is None or found.expires_ms <= now_ms():
            if token.startswith(PROGRAM_PREFIX):
                hint = "owlbox people token NAME --person PERSON makes one"
                raise Refused("this token is not known, or has ended", hint=hint, outcome="not_logged_in")
            raise Refused("this session is over", hint="log in again", outcome="not_logged_in")
        if found.seen_ms < now_ms() - SEEN_MS and not self._store.is_read_only:
            with self._store.write() as execute:
                execute("UPDATE logins SET seen_ms = ? WHERE id = ?", (now_ms(), found.id))
        return found

    # -- for people ---------------------------------------------------------------------------------

    @method("login.invite")
    def invite_person(self, person: Annotated[str, "whom; empty for oneself"] = "", *, call: Call) -> Invite:
        """Make a one-time invite, and the person when there is none of that name."""
        person = self._named(person, call)
        validity, token = self._validity(), secrets.token_urlsafe(24)
        expires_ms = now_ms() + round(validity.invite_h * HOUR_MS)
        with self._store.write(durable=True) as execute:
            self._people.ensure_person(person)
            self._people.require_active(person)
            execute("DELETE FROM invites WHERE expires_ms <= ?", (wall_clock.age_limit(self._store) - DAY_MS,))
            execute("INSERT INTO invites VALUES (?, ?, ?)", (_hash_token(token), person, expires_ms))
        self._ledger.note("login_invited", actor=f"user:{person}", detail={"expires_ms": expires_ms})
        return Invite(person, token, expires_ms, f"{validity.address}/#invite={token}" if validity.address else "")

    @method("login.token", access="own")
    def make_token(
        self,
        name: Annotated[str, Range(1, 100), "the program that is to use it, for the list"],
        person: Annotated[str, Range(0, 128), "the person it works for; default: you"] = "",
        *,
        call: Call,
    ) -> StartedLogin:
        """A token for a program, which holds until it is ended as a login is: whoever has it is that person."""
        who, now, token = self._named(person, call), now_ms(), f"{PROGRAM_PREFIX}{secrets.token_urlsafe(32)}"
        with self._store.write(durable=True) as execute:
            self._people.ensure_person(who)
            self._people.require_active(who)
            values = (new_id(), who, _hash_token(token), f"program: {name}", "", now, now, now + TOKEN_DAYS * DAY_MS)
            execute("INSERT INTO logins VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        self._ledger.note("token_made", actor=f"user:{caller_name(call)}", detail={"person": who, "program": name})
        return StartedLogin(who, token, now + TOKEN_DAYS * DAY_MS)

    @method("login.set_password", access="own")
    def set_password(
        self,
        password: Annotated[str, Range(0, 512), "at least ten characters; empty removes it"],
        person: Annotated[str, Range(0, 128), "whose; empty for one's own"] = "",
        *,
        call: Call,
    ) -> dict[str, str]:
        """Set or remove a person's password, and end all sessions of that person."""
        who = self._named(person, call)
        if password and len(password) < MIN_PASSWORD:
            raise BadInput(f"a password needs at least {MIN_PASSWORD} characters", hint="several words are easy to remember")
        salt = secrets.token_bytes(16)
        with self._hashing:
            stored = _hash_password(password, salt, self._cost) if password else b""
        with self._store.write(durable=True) as execute:
            self._people.ensure_person(who)
            execute("DELETE FROM passwords WHERE person = ?", (who,))
            if password:
                execute("INSERT INTO passwords VALUES (?, ?, ?, ?)", (who, salt, stored, now_ms()))
        self._end("person = ?", who)
        self._ledger.note("password_changed", actor=f"user:{caller_name(call)}", detail={"person": who, "is_removed": not password})
        return {"person": who}

    @method("login.list", access="own")
    def list_logins(
        self, person: Annotated[str, Range(0, 128), "only this person's; empty for all that you may see"] = ""
    ) -> list[Login]:
        """Sessions that have not ended, the one that was used last first."""
        sql = f"""SELECT {COLUMNS} FROM logins
            WHERE expires_ms > ?1 AND (?2 = '' OR person = ?2){own_people("person")} ORDER BY seen_ms DESC, id LIMIT 1000"""
        return [Login(*row) for row in self._store.rows(sql, (now_ms(), person))]

    @method("login.end", access="own")
    def end_login(self, id: Annotated[str, Range(1, 64), "its id, as `people logins` shows it, or the beginning of it"]) -> Login:
        """End a session: whoever holds its cookie has to log in again."""
        found = [one for one in self.list_logins() if one.id.startswith(id)]
        if len(found) != 1:
            raise NotFound(f"no session {id}" if not found else f"several sessions begin with {id}", hint="owlbox people logins")
        self._end("id = ?", found[0].id)
        return found[0]

    def move(self, leap: wall_clock.Leap) -> None:
        """Let what was begun by a clock that was wrong hold as long as it was to; call inside the write that notes the leap."""
        validity_ms = round(self._validity().invite_h * HOUR_MS)
        with self._store.write() as execute:
            execute(
                "UPDATE logins SET created_ms = created_ms + ?1, seen_ms = seen_ms + ?1, expires_ms = expires_ms + ?1 "
                "WHERE created_ms BETWEEN ?2 AND ?3",
                (leap.by_ms, leap.since_ms, leap.until_ms),
            )
            sql = "UPDATE invites SET expires_ms = expires_ms + ?1 WHERE expires_ms - ?2 BETWEEN ?3 AND ?4"
            execute(sql, (leap.by_ms, validity_ms, leap.since_ms, leap.until_ms))

    # -- inside -------------------------------------------------------------------------------------

    def _named(self, person: str, call: Call) -> str:
        """The person of this name: the caller for none, the owner for one of the owner's other names."""
        return self._people.resolve(LOCAL, person) if person else caller_name(call)

    def _end(self, condition: str, value: str | bytes) -> tuple[str, ...]:
        """End the sessions for which a condition holds, and hang up on them; their ids."""
        with self._store.write(durable=True) as execute:
            ids = tuple(str(row[0]) for row in execute(f"DELETE FROM logins WHERE {condition} RETURNING id", (value,)))
        if ids:
            self._events.publish(LoginsEnded(ids))
        return ids

    def _begin(self, person: str, agent: str, address: str) -> StartedLogin:
        """A new session; call inside a write."""
        now, token = now_ms(), secrets.token_urlsafe(32)
        expires_ms = now + round(self._validity().session_days * DAY_MS)
        with self._store.write() as execute:
            execute("DELETE FROM logins WHERE expires_ms <= ?", (wall_clock.age_limit(self._store) - DAY_MS,))
            values = (new_id(), person, _hash_token(token), agent, address, now, now, expires_ms)
            execute("INSERT INTO logins VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        self._ledger.note("login", actor=f"user:{person}", detail={"address": address, "agent": agent})
        return StartedLogin(person, token, expires_ms)

    def _is_logged_in(self, person: str, network: str) -> bool:
        rows = self._store.rows("SELECT DISTINCT address FROM logins WHERE person = ? AND expires_ms > ?", (person, now_ms()))
        return any(network_of(str(address)) == network for (address,) in rows if address)

    def _address_of(self, call: Call, said: str) -> str:
        """Where an attempt comes from: as the page's process says, which is our user or one of its own; else the caller's name."""
        is_page = call.person == self._page_user if call.person else call.uid in (os.getuid(), 0)
        return said if is_page else caller_name(call)

    def _refuse(self, person: str, address: str, why: str) -> Refused:
        """Note an attempt that failed; the error to raise."""
        detail = {"person": person, "address": address, "why": why}
        self._ledger.note("login_refused", severity="warning", actor=address or "unknown", detail=detail)
        return Refused("this login is not right", hint="ask for a new invite: owlbox people invite NAME")


@dataclass(frozen=True)
class LoginAttempt:
    """One that is counted, for each of its keys, until it is taken back or the window is over."""

    keys: tuple[tuple[str, str], ...]
    at_s: float


class AttemptLimit:
    """Counts attempts by kind and name, within a window of time."""

    def __init__(self) -> None:
        self._counted: dict[str, dict[str, deque[float]]] = {kind: {} for kind, _ in MAX_FAILED}
        self._guard = threading.Lock()

    def begin(self, keys: list[tuple[str, str]]) -> LoginAttempt:
        """Count an attempt for each of these; Exhausted, and nothing counted, when too many have failed for one of them."""
        most, attempt = dict(MAX_FAILED), LoginAttempt(tuple(keys), monotonic_s())
        with self._guard:
            for kind, name in keys:
                counted = self._counted[kind]
                if name not in counted and len(counted) >= MAX_COUNTED:
                    self._forget_old(counted, attempt.at_s)
                    if kind == "invite" and len(counted) >= MAX_COUNTED:  # nobody guesses one: what is spared here is the audit
                        del counted[next(iter(counted))]
                times = counted.get(name, deque())
                while times and times[0] < attempt.at_s - WINDOW_S:
                    times.popleft()
                if len(times) >= most[kind] or (name not in counted and len(counted) >= MAX_COUNTED):
                    raise Exhausted("too many logins have failed", hint=f"try again in {WINDOW_S / 60:.0f} minutes")
            for kind, name in keys:
                self._counted[kind].setdefault(name, deque()).append(attempt.at_s)
        return attempt

    def take_back(self, attempt: LoginAttempt) -> None:
        """Remove an attempt from the counts, because it did not fail."""
        with self._guard:
            for kind, name in attempt.keys:
                times = self._counted[kind].get(name, deque())
                if attempt.at_s in times:
                    times.remove(attempt.at_s)
                if not times:
                    self._counted[kind].pop(name, None)

    def _forget_old(self, counted: dict[str, deque[float]], now_s: float) -> None:
        for name in [name for name, times in counted.items() if not times or times[-1] < now_s - WINDOW_S]:
            del counted[name]


def _hash_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _hash_password(password: str, salt: bytes, cost: int) -> bytes:
    data = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(data, salt=salt, n=cost, r=SCRYPT_R, p=SCRYPT_P, maxmem=64 * 1024 * 1024)
