"""Who is told by push: devices and topics that a person has subscribed, and the copies of notifications that go to them.

A subscription is an address of its person in the channel `push`, `unifiedpush` or `ntfy`; what leads there is kept with it, and
told to nobody. What is put into the outbox for a person here, and for no other channel, is put there once more for each of their
subscriptions, in the same transaction and under a key of its own: so each is sent, tried again, held back and counted by itself,
and each once. Nothing is copied for a channel that is off, nor for a group. A subscription ends with the login that made it, with
its person, and when its service says that it is gone, of which the person is told. Owns no table: addresses are those of `people`.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import Conflict, NotFound, Refused, TooLarge
from appliance.records import Outbound
from appliance.runtime.events import Events
from appliance.runtime.settings import Channels
from appliance.sessions.logins import LoginsEnded
from appliance.sessions.outbox import Notification, NotificationPut, Outbox
from appliance.sessions.people import LOCAL, Identity, People
from appliance.store.database import Store
from appliance.text.invisible import escape_invisible

WAYS = ("push", "unifiedpush", "ntfy")
HERE = ("", LOCAL, "tui")  # channels of notifications that are for a person wherever they are
MAX_OF_ONE = 10  # subscriptions of a person
MAX_NAME = 80


class PushSubscription(Struct, frozen=True):
    """A device or topic; `place` is where it is reached, without what is secret about that."""

    id: str
    way: str
    person: str
    name: str
    shows: str
    place: str
    since_ms: int


class PushTarget(Struct, frozen=True):
    """What a channel needs to reach a subscription: kept with it, and shown to nobody."""

    endpoint: str
    key: str = ""
    auth: str = ""


class Subscriptions:
    """Reads and writes them, and copies notifications for them."""

    def __init__(self, store: Store, people: People, outbox: Outbox, events: Events, settings: Callable[[], Channels]) -> None:
        self._store = store
        self._people = people
        self._outbox = outbox
        self._settings = settings
        events.subscribe(NotificationPut, self._copy)
        events.subscribe(LoginsEnded, self._end_logins)

    def list(self, person: str = "") -> list[PushSubscription]:
        """Those of a person, or all."""
        found = self._people.addresses_of(WAYS, person)
        return [_described(name, one) for name, one in found if one.reply.get("target")]

    def find(self, way: str, id: str) -> tuple[PushSubscription, PushTarget]:
        """A subscription; NotFound when it has ended."""
        for person, one in self._people.addresses_of((way,), address=id):
            if given := one.reply.get("target"):
                return _described(person, one), PushTarget(given["endpoint"], given["key"], given["auth"])
        raise NotFound(f"nothing is subscribed as {id} of {way}", hint="owlbox channel subscriptions shows what is")

    def find_for(self, message: Outbound, way: str) -> tuple[PushSubscription, PushTarget] | None:
        """The subscription that a message is for; None where nothing is to be sent: it is empty, or each has a copy of its own."""
        if not message.text.strip():
            return None
        if id := str(message.metadata.get("subscription") or ""):
            known, target = self.find(way, id)
            if known.person != message.person:  # whoever may put notifications may name any subscription
                raise Refused(f"{id} is no subscription of {message.person}")
            return known, target
        if not any(one.way == way for one in self.list(message.person)):
            raise NotFound(f"{message.person} has no subscription of {way}", hint="owlbox channel subscribe makes one")
        return None

    def add(self, way: str, person: str, target: PushTarget, about: dict[str, Any]) -> PushSubscription:
        """Keep a subscription; the same one again takes its place, also of somebody else who had the same device."""
        id = hashlib.sha256(f"{way} {target.endpoint}".encode()).hexdigest()[:16]
        name = " ".join(escape_invisible(about["name"]).split())[:MAX_NAME] or about["place"]
        reply = {
            **about,
            "name": name,
            "target": {"endpoint": target.endpoint, "key": target.key, "auth": target.auth},
            "since_ms": now_ms(),
        }
        with self._store.write(durable=True):
            mine = self.list(person)
            other = next((one for one in self.list() if (one.way, one.id) == (way, id)), None)
            if other is None and len(mine) >= MAX_OF_ONE:
                raise TooLarge(f"{person} has {MAX_OF_ONE} subscriptions", hint="end one of them: owlbox channel unsubscribe ID")
            if other is not None and other.person != person:
                # A device that two people use in turn knows its own secret; who only heard of its address does not.
                if self.find(way, id)[1] != target or not target.auth:
                    raise Conflict("this device or topic is subscribed by somebody else", hint="choose another one")
                self.end(other, f"{other.name} tells {person} from now on, and you no longer.")
            self._people.keep_address(way, id, person, reply)
            found = self.find(way, id)[0]
            said = f"Notifications for {person} are shown here from now on."
            self._outbox.put(self._notification(found, f"subscribed:{id}:{found.since_ms}", said, Notification("", person, said)))
        return found

    def end(self, known: PushSubscription, said: str = "") -> None:
        """End a subscription, with what waits for it; what its person is told of it, if anything."""
        with self._store.write(durable=True):
            self._people.drop_address(known.way, known.id)
            self._outbox.clear(f"{known.way}:{known.id}", is_gone=True)
            if said:
                key, session = f"unsubscribed:{known.id}:{known.since_ms}", f"{LOCAL}:{known.person}"
                self._outbox.put(Notification(key, known.person, said, session=session, channel=LOCAL))

    def forget(self, known: PushSubscription) -> None:
        """Its service says that it is gone."""
        self.end(known, f"{known.name} gets no notifications any more: its service says it is gone. Switch them on there again.")

    def _copy(self, put: NotificationPut) -> None:
        """Put a copy for each subscription of the person, within the transaction that puts the notification."""
        told = put.notification
        if told.context != f"user:{told.person}" or told.channel not in (*HERE, *WAYS) or "subscription" in told.metadata:
            return
        tables = self._settings().connectors
        ways = [way for way in WAYS if way in tables and tables[way].enabled and told.channel in (*HERE, way)]
        if not ways:
            return
        for _, one in self._people.addresses_of(ways, told.person):
            if one.reply.get("target"):
                known = _described(told.person, one)
                self._outbox.put(self._notification(known, f"{told.key}@{known.way}:{known.id}", told.text, told))

    @staticmethod
    def _notification(known: PushSubscription, key: str, text: str, told: Notification) -> Notification:
        session, metadata = f"{known.way}:{known.id}", {**told.metadata, "subscription": known.id}
        changed = {"key": key, "text": text, "session": session, "channel": known.way, "attachment": None, "metadata": metadata}
        return replace(told, **changed)

    def _end_logins(self, ended: LoginsEnded) -> None:
        for person, one in self._people.addresses_of(WAYS):
            if one.reply.get("login") in ended.ids:
                self.end(_described(person, one))


def _described(person: str, one: Identity) -> PushSubscription:
    about = one.reply
    name, shows, place = (str(about.get(part, "")) for part in ("name", "shows", "place"))
    return PushSubscription(one.address, one.channel, person, name, shows, place, int(about.get("since_ms", 0)))
