"""People: persons, groups with their members, to which person the address of a channel belongs, and which group a room is.

Owns the `persons`, `groups`, `members`, `identities` and `rooms` tables. `resolve` answers from the primary key of `identities`,
whatever their number. An address that is linked to nobody is a person of its own: a user of this machine by name, anybody else as
`channel:address`, so that the same name in two channels is two persons (A-265). The owner's addresses in the configuration
are identities of the owner. Admins are those of `system.admin_users`; everybody else has standard rights. A person who is
deactivated stays who they are and is served nowhere: each way in and out asks `is_active`. Not done here:
restricting what a caller is shown (`service.callers`), and moving what was said before an address was linked.
"""

import hashlib
import json
import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import BadInput, Conflict, NotFound, Refused
from appliance.runtime.events import Events
from appliance.runtime.methods import Call, method
from appliance.runtime.users import caller_name, user_name
from appliance.sessions.history import Owner, is_one_of
from appliance.store import visibility
from appliance.store.database import Store

LOCAL, EMAIL = "local", "email"
NAME = re.compile(r"[\w@+-][\w.@+-]{0,63}")
UNNAMED = re.compile(r"[^\w.@+-]+")
MOST = 10_000
DEACTIVATED = "deactivated"  # outcome of what is refused to somebody who is
Rights = Literal["admin", "standard"]
PersonName = Annotated[str, "the name of a person"]
GroupName = Annotated[str, "the name of a group"]
Address = Annotated[str, "CHANNEL/ADDRESS, such as matrix/@ann:example.org"]


class Identity(Struct, frozen=True):
    """An address in a channel; `reply` is what the last message from it brought for the way back."""

    channel: str
    address: str
    reply: Mapping[str, Any] = {}

    @property
    def session(self) -> str:
        """The session that this address would have by itself."""
        return f"{self.channel}:{self.address}"


class Person(Struct, frozen=True):
    """A person as people see it: identities as CHANNEL/ADDRESS, of the owner also a name that holds in every channel."""

    name: str
    rights: Rights
    groups: tuple[str, ...]
    identities: tuple[str, ...]
    is_active: bool = True
    is_owner: bool = False


class Room(Struct, frozen=True):
    """A place in a channel that several people share, and the group that it is."""

    channel: str
    room: str
    label: str
    group: str
    is_active: bool


class PersonRemoved(Struct, frozen=True):
    """Event: a person is known no more, nor are their logins."""

    person: str


class PersonActivated(Struct, frozen=True):
    """Event: a person is served from now on, or nowhere any more; `by` is who decided it."""

    person: str
    is_active: bool
    by: str


class PersonRules(Struct, frozen=True):
    """What the configuration says of people: admins, the owner and the owner's addresses, groups of the sandbox."""

    admins: tuple[str, ...] = ()
    owner: str = ""
    addresses: tuple[Owner, ...] = ()
    groups: Mapping[str, Sequence[str]] = {}


class People:
    """Reads and writes who is who."""

    def __init__(self, store: Store, rules: Callable[[], PersonRules] = PersonRules, events: Events | None = None) -> None:
        """`events` hear of persons who were removed, deactivated and activated."""
        self._store = store
        self._events = events or Events()
        self._rules = rules

    # -- who somebody is ----------------------------------------------------------------------------

    def find_linked(self, channel: str, address: str) -> str:
        """The person to whom an address was linked, or the owner for one of the owner's; "" for one that is linked to nobody."""
        sql = "SELECT person FROM identities WHERE channel = ? AND address = ?"
        if (found := self._store.value(sql, (channel, address))) is not None:
            return str(found)
        rules = self._rules()
        if is_one_of(channel, address, rules.addresses):
            return rules.owner
        has_others = "SELECT 1 FROM identities WHERE person = ? LIMIT 1"
        return address if channel == LOCAL and self._store.value(has_others, (address,)) is not None else ""

    def resolve(self, channel: str, address: str) -> str:
        """The person who writes from an address."""
        return self.find_linked(channel, address) or (address if channel == LOCAL else f"{channel}:{quote(address, safe='@+')}")

    def identities(self, person: str) -> list[Identity]:
        """The addresses that were linked to a person, oldest first."""
        sql = "SELECT channel, address, reply FROM identities WHERE person = ? ORDER BY linked_ms, channel, address"
        return [Identity(str(c), str(a), json.loads(reply)) for c, a, reply in self._store.rows(sql, (person,))]

    def addresses_of(self, channels: Sequence[str], person: str = "", address: str = "") -> list[tuple[str, Identity]]:
        """The addresses in these channels with whose they are, oldest first; only a person's, or only that one, when given."""
        sql = (
            "SELECT person, channel, address, reply FROM identities WHERE channel IN (SELECT value FROM json_each(?1)) "
            "AND ?2 IN ('', person) AND ?3 IN ('', address) ORDER BY linked_ms, channel, address"
        )
        rows = self._store.rows(sql, (json.dumps(list(channels)), person, address))
        return [(str(p), Identity(str(c), str(a), json.loads(reply))) for p, c, a, reply in rows]

    def keep_address(self, channel: str, address: str, person: str, reply: Mapping[str, Any]) -> None:
        """Link an address to a person, with what leads back to it. Call inside a write, once it is nobody else's."""
        with self._store.write() as execute:
            sql = (
                "INSERT INTO identities (channel, address, person, reply, linked_ms) VALUES (?1, ?2, ?3, ?4, ?5) "
                "ON CONFLICT (channel, address) DO UPDATE SET reply = ?4, linked_ms = ?5"
            )
            execute(sql, (channel, address, person, json.dumps(dict(reply), ensure_ascii=False), now_ms()))

    def drop_address(self, channel: str, address: str) -> None:
        """Link an address to nobody. Call inside a write."""
        with self._store.write() as execute:
            execute("DELETE FROM identities WHERE channel = ? AND address = ?", (channel, address))

    def groups_of(self, person: str) -> tuple[str, ...]:
        """The groups that a person is in, by name."""
        sql = "SELECT group_name FROM members WHERE person = ?"
        named = {name for name, members in self._rules().groups.items() if person in members}
        return tuple(sorted(named | {str(row[0]) for row in self._store.rows(sql, (person,))}))

    def contexts_of(self, person: str) -> frozenset[str]:
        """Every context that a person is in: their own and those of their groups."""
        return frozenset({f"user:{person}", *(f"group:{name}" for name in self.groups_of(person))})

    @property
    def owner(self) -> str:
        """Whose installation it is: the user that the core runs as, whatever else the owner is called (`people.owner_aliases`)."""
        return self._rules().owner

    def require_known(self, context: str) -> None:
        """NotFound, with the nearest name, for the context of a person or group whom nobody added and who never talked here."""
        kind, _, name = context.partition(":")
        rules = self._rules()
        if kind == "group":
            names = {*rules.groups, *(str(row[0]) for row in self._store.rows("SELECT name FROM groups"))}
        else:
            configured = {rules.owner, user_name(os.getuid()), *rules.admins, *(one.address for one in rules.addresses)}
            names = {*configured, *self._added(), *(person for members in rules.groups.values() for person in members)}
        is_known = name in names or (kind != "group" and (_is_local_user(name) or self.find_linked(LOCAL, name) != ""))
        if is_known or self._store.value("SELECT 1 FROM sessions WHERE context = ? LIMIT 1", (context,)) is not None:
            return
        close = get_close_matches(name, sorted(names - {""}), 1)
        lists = "owlbox people group lists them" if kind == "group" else "owlbox people list shows them"
        raise NotFound(
            f"no {'group' if kind == 'group' else 'person'} {name}", hint=f"did you mean {close[0]}?" if close else lists
        )

    def _added(self) -> list[str]:
        return [str(row[0]) for row in self._store.rows("SELECT name FROM persons ORDER BY name LIMIT ?", (MOST,))]

    def is_admin(self, person: str) -> bool:
        """Whether a person is the core's own user, or named in `system.admin_users`."""
        return person in (user_name(os.getuid()), *self._rules().admins)

    def is_active(self, person: str) -> bool:
        """Whether a person is served: everybody is who was not deactivated."""
        return self._store.value("SELECT deactivated_ms FROM persons WHERE name = ?", (person,)) is None

    def is_told(self, context: str) -> bool:
        """Whether a person or group, as a context, is told anything."""
        kind, _, name = context.partition(":")
        return kind != "user" or self.is_active(name)

    def require_active(self, person: str) -> None:
        """Refused for somebody who is deactivated."""
        if not self.is_active(person):
            raise Refused(
                f"{person} is deactivated", hint=f"an admin takes that back: owlbox people activate {person}", outcome=DEACTIVATED
            )

    def note_reply(self, channel: str, address: str, reply: Mapping[str, Any]) -> None:
        """Keep what a message from a linked address brought for the way back. Call inside the message's transaction."""
        with self._store.write() as execute:
            sql = "UPDATE identities SET reply = ?1 WHERE channel = ?2 AND address = ?3 AND reply <> ?1"
            execute(sql, (json.dumps(dict(reply), ensure_ascii=False), channel, address))

    # -- rooms --------------------------------------------------------------------------------------

    def open_room(self, channel: str, room: str, label: str = "") -> str:
        """The group that talks in a room of a channel; made, under a name like the room's, when the room is new."""
        sql = "SELECT group_name, label FROM rooms WHERE channel = ? AND room = ?"
        if (row := self._store.row(sql, (channel, room))) is not None:
            return str(row[0])
        with self._store.write(durable=True) as execute:
            if rows := execute(sql, (channel, room)):
                return str(rows[0][0])
            # A name that anybody could give a room must not be that of an existing group: the hash keeps them apart.
            plain = "-".join(UNNAMED.sub(" ", label or channel).split()).lower()[:40].strip(".-") or channel
            name = f"{plain}-{hashlib.sha256(f'{channel}/{room}'.encode()).hexdigest()[:6]}"
            execute("INSERT INTO groups (name, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, now_ms()))
            execute("INSERT INTO rooms VALUES (?, ?, ?, ?, ?)", (channel, room, name, label[:200], now_ms()))
        return name

    def is_group_active(self, group: str) -> bool:
        """Whether a group takes messages."""
        return self._store.value("SELECT deactivated_ms FROM groups WHERE name = ?", (group,)) is None

    @method("group.rooms")
    def list_rooms(self) -> list[Room]:
        """Every room in which the assistant was addressed, with its group."""
        sql = (
            "SELECT r.channel, r.room, r.label, r.group_name, g.deactivated_ms IS NULL FROM rooms r "
            "JOIN groups g ON g.name = r.group_name ORDER BY r.group_name, r.channel, r.room LIMIT ?"
        )
        return [Room(str(c), str(r), str(label), str(g), bool(on)) for c, r, label, g, on in self._store.rows(sql, (MOST,))]

    # -- what an admin does -------------------------------------------------------------------------

    @method("people.list")
    def list_people(self) -> list[Person]:
        """The owner, and every person who was added, by name, with their rights, groups and addresses."""
        return [self._described(name) for name in dict.fromkeys((*filter(None, [self.owner]), *self._added()))]

    @method("people.show", access="own")
    def show_person(self, person: PersonName) -> Person:
        """Show one person: rights, groups, addresses."""
        self._require_person(person)
        return self._described(person)

    @method("people.add")
    def add_person(self, person: PersonName) -> Person:
        """Add a person; a user of this machine is the person of the same name."""
        _check_name(person, "person")
        with self._store.write(durable=True) as execute:
            sql = "INSERT INTO persons (name, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING 1"
            if not execute(sql, (person, now_ms())):
                raise Conflict(f"there is a person {person} already", hint="owlbox people list shows them")
        return self._described(person)

    def ensure_person(self, person: str) -> None:
        """Add a person unless there is one of that name. Call inside a write."""
        _check_name(person, "person")
        with self._store.write() as execute:
            execute("INSERT INTO persons (name, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING", (person, now_ms()))

    @method("people.remove")
    def remove_person(self, person: PersonName) -> Person:
        """Remove a person from all groups, with the links of their addresses. What was said and stored stays."""
        self._require_person(person)
        found = self._described(person)
        with self._store.write(durable=True) as execute:
            execute("DELETE FROM persons WHERE name = ?", (person,))
        self._events.publish(PersonRemoved(person))
        return found

    @method("people.activate")
    def activate_person(
        self,
        person: PersonName,
        is_active: Annotated[bool, "false: they keep what they have and are served nowhere"] = True,
        *,
        call: Call,
    ) -> Person:
        """Serve a person, or not any more: no message, login, token, key or call of theirs is taken, and nothing is sent."""
        self._require_person(person)
        if not is_active and person in (user_name(os.getuid()), caller_name(call)):
            raise Conflict(f"{person} cannot be deactivated: you, and the user that the core runs as, always get in")
        with self._store.write(durable=True) as execute:
            sql = "UPDATE persons SET deactivated_ms = IIF(?1, NULL, COALESCE(deactivated_ms, ?2)) WHERE name = ?3"
            execute(sql, (is_active, now_ms(), person))
        self._events.publish(PersonActivated(person, is_active, caller_name(call)))
        return self._described(person)

    @method("people.link")
    def link_identity(
        self, identity: Address, person: Annotated[str, "the person's name; empty takes the link back"] = ""
    ) -> Person:
        """Link an address to a person, or take that back: what is written from there belongs to a person of its own again."""
        if not person:
            return self._unlink_identity(identity)
        channel, address = _split_identity(identity)
        self._require_person(person)
        with self._store.write(durable=True) as execute:
            rows = execute("SELECT person FROM identities WHERE channel = ? AND address = ?", (channel, address))
            if rows and rows[0][0] != person:
                raise Conflict(f"{identity} is linked to {rows[0][0]}", hint=f"first: owlbox people unlink {identity}")
            if not rows:
                sql = "INSERT INTO identities (channel, address, person, linked_ms) VALUES (?, ?, ?, ?)"
                execute(sql, (channel, address, person, now_ms()))
        return self._described(person)

    def _unlink_identity(self, identity: str) -> Person:
        channel, address = _split_identity(identity)
        with self._store.write(durable=True) as execute:
            rows = execute("DELETE FROM identities WHERE channel = ? AND address = ? RETURNING person", (channel, address))
            if not rows:
                raise NotFound(f"{identity} is linked to nobody", hint="owlbox people list shows the links")
        return self._described(str(rows[0][0]))

    @method("group.list", access="own")
    def list_groups(self) -> dict[str, list[str]]:
        """The members of every group, those of `sandbox.groups` included; others than admins are shown their own."""
        found = {name: set(members) for name, members in self._rules().groups.items()}
        for (name,) in self._store.rows("SELECT name FROM groups"):
            found.setdefault(str(name), set())
        for person, name in self._store.rows("SELECT person, group_name FROM members"):
            found[str(name)].add(str(person))
        shown = visibility.asking()
        return {name: sorted(found[name]) for name in sorted(found) if shown is None or f"group:{name}" in shown}

    @method("group.change")
    def change_group(
        self,
        group: GroupName,
        add: Annotated[Sequence[str], "persons who join"] = (),
        remove: Annotated[Sequence[str], "persons who leave"] = (),
        is_removed: Annotated[bool, "remove the group itself"] = False,
        room: Annotated[str, "a room that is this group's from now on: CHANNEL/ROOM, such as matrix/!abc:example.org"] = "",
        is_active: Annotated[bool | None, "false: it keeps what it has and takes no messages"] = None,
    ) -> dict[str, Any]:
        """Make a group, let persons join and leave it, give it a room, let it be heard or not, or remove it; who is in it then."""
        _check_name(group, "group")
        place = _split_identity(room) if room else None
        with self._store.write(durable=True) as execute:
            if is_active is not None:
                sql = "UPDATE groups SET deactivated_ms = IIF(?1, NULL, COALESCE(deactivated_ms, ?2)) WHERE name = ?3 RETURNING 1"
                if not execute(sql, (is_active, now_ms(), group)):
                    raise NotFound(f"no group {group}", hint="owlbox people group lists them")
            if is_removed:
                if not execute("DELETE FROM groups WHERE name = ? RETURNING 1", (group,)):
                    raise NotFound(f"no group {group}", hint="owlbox people group lists them")
                return {"group": group, "members": []}
            execute("INSERT INTO groups (name, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING", (group, now_ms()))
            if place:
                sql = "INSERT INTO rooms VALUES (?1, ?2, ?3, '', ?4) ON CONFLICT (channel, room) DO UPDATE SET group_name = ?3"
                execute(sql, (*place, group, now_ms()))
            for person in add:
                self._require_person(person)
                execute("INSERT INTO members VALUES (?, ?) ON CONFLICT DO NOTHING", (person, group))
            for person in remove:
                if not execute("DELETE FROM members WHERE person = ? AND group_name = ? RETURNING 1", (person, group)):
                    raise NotFound(f"{person} is not in group {group}", hint=f"owlbox people group {group} shows who is")
        return {"group": group, "members": self.list_groups()[group]}

    # -- inside -------------------------------------------------------------------------------------

    def _require_person(self, person: str) -> None:
        if person == self.owner:
            self.ensure_person(person)
        elif self._store.value("SELECT 1 FROM persons WHERE name = ?", (person,)) is None:
            raise NotFound(f"no person {person}", hint="owlbox people list shows them, owlbox people add NAME adds one")

    def _described(self, person: str) -> Person:
        known = tuple(f"{one.channel}/{one.address}" for one in self.identities(person))
        rights: Rights = "admin" if self.is_admin(person) else "standard"
        is_owner = person == self.owner
        if is_owner:
            named = (f"{one.channel}/{one.address}" if one.channel else one.address for one in self._rules().addresses)
            known = tuple(dict.fromkeys((*(one for one in named if one != f"{LOCAL}/{person}"), *known)))
        return Person(person, rights, self.groups_of(person), known, self.is_active(person), is_owner)


def _is_local_user(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except (KeyError, ValueError):
        return False


def _check_name(name: str, what: str) -> None:
    if not NAME.fullmatch(name):
        raise BadInput(f"{what} {name!r}", hint="1 to 64 letters, digits and . _ @ + -, not beginning with a dot")


def _split_identity(identity: str) -> tuple[str, str]:
    channel, _, address = identity.partition("/")
    if not channel or not address.strip() or ":" in channel:
        raise BadInput(f"address {identity!r}", hint="write it as CHANNEL/ADDRESS, such as matrix/@ann:example.org")
    return channel, address.casefold() if channel == EMAIL else address  # the one channel whose addresses have no case
