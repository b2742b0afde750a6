"""Who is told by push: devices and topics that a person has subscribed, and the copies of notifications that go to them.

A subscription is an address of its person in the channel `push`, `unifiedpush` or `ntfy`; what leads there is kept with it, and
told to nobody. What is put into the outbox for a person here, and for no other channel, is put there once more for each of their
subscriptions, in the same transaction and under a key of its own: so each is sent, tried again, held back and counted by itself,
and each once. Nothing is copied for a channel that is off, nor for a group. A subscription ends with the login that made it, with
its person, and when its service says that it is gone, of which the person is told. Owns no table: addresses are those of `people`.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from appliance.channels.connections import Connections
from appliance.channels.contract import REPEAT
from appliance.clock import now_ms
from appliance.errors import BadInput, Conflict, NotFound, Refused, TooLarge
from appliance.records import Outbound
from appliance.runtime.events import Events
from appliance.runtime.methods import Call, method
from appliance.runtime.settings import Channels
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.sessions.logins import LoginsEnded
from appliance.sessions.outbox import Notification, NotificationPut, Outbox
from appliance.sessions.people import LOCAL, Identity, People
from appliance.store.database import Store
from appliance.text.invisible import escape_invisible

WAYS = ("push", "unifiedpush", "ntfy")
HERE = ("", LOCAL, "tui")  # channels of notifications that are for a person wherever they are
MAX_OF_ONE = 10  # subscriptions of a person
MAX_SHOWN = 700  # characters, of at most four bytes each
TITLE = "Owlbox"
ASKS = ("proposal", "held")  # what the keys of notifications begin with that want a decision
ENDED = ("task", "job")
ANSWERED = "answer"

Way = Annotated[Literal["push", "unifiedpush", "ntfy"], "the channel that carries it"]
Shows = Literal["hint", "text"]


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


class PushText(Struct, frozen=True):
    """What a device shows; `tag` is the same for the same notification, so that it stands there once."""

    title: str
    body: str
    tag: str
    thread: str


@runtime_checkable
class SubscribedChannel(Protocol):
    """A channel that reaches subscriptions."""

    def accept(self, target: PushTarget) -> tuple[PushTarget, str]:
        """The target as it is kept, and its place; an error says why it cannot be one."""
        ...

    @property
    def public_key(self) -> str:
        """What devices subscribe with; "" where they need nothing."""
        ...


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
        reply = {**about, "target": {"endpoint": target.endpoint, "key": target.key, "auth": target.auth}, "since_ms": now_ms()}
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


def shown(message: Outbound, known: PushSubscription) -> PushText:
    """What a device shows of a notification: its words only where the person has chosen that, and no mark of a repeat."""
    kind, text = message.key.partition(":")[0], message.text.strip()
    body = text.removeprefix(REPEAT).strip()
    if known.shows != "text":
        body = "The owl has a message for you."
        if "schedule" in message.metadata:
            body = "The owl has a reminder."
        elif kind in ASKS:
            body = "The owl asks for your approval."
        elif kind in ENDED:
            body = "A task has ended."
        elif kind == ANSWERED:
            body = "The owl has answered."
    body = escape_invisible(body)
    body = body if len(body) <= MAX_SHOWN else f"{body[: MAX_SHOWN - 1]}…"
    return PushText(TITLE, body, hashlib.sha256(message.key.encode("utf-8", "replace")).hexdigest()[:32], message.run)


class PushMethods:
    """What people do with subscriptions."""

    def __init__(self, subscriptions: Subscriptions, connections: Connections, people: People) -> None:
        self._subscriptions = subscriptions
        self._connections = connections
        self._people = people

    @method("push.key", access="own")
    def show_key(self, way: Way = "push") -> dict[str, str]:
        """The public key that a device subscribes with, in base64url; an error where the channel is not open."""
        return {"way": way, "key": self._channel(way).public_key}

    @method("push.subscribe", access="own")
    def subscribe(
        self,
        way: Way,
        endpoint: Annotated[str, Range(0, 1000), "its address, or a topic of ntfy; empty makes a topic"] = "",
        key: Annotated[str, Range(0, 200), "its public key (p256dh), in base64url"] = "",
        auth: Annotated[str, Range(0, 100), "its secret, in base64url"] = "",
        name: Annotated[str, Range(0, 80), "what it is called in the list"] = "",
        shows: Annotated[Shows, "what a locked screen shows: a hint, or the text itself"] = "hint",
        person: Annotated[str, Range(0, 128), "whose notifications; default: yours"] = "",
        *,
        call: Call,
    ) -> dict[str, Any]:
        """Show notifications on a device or topic from now on; the first of them says so. `endpoint` is a topic that was made."""
        who = self._person(person, call)
        target, place = self._channel(way).accept(PushTarget(endpoint.strip(), key.strip(), auth.strip()))
        plain = " ".join(escape_invisible(name).split())[:80] or place
        self._people.ensure_person(who)
        self._people.require_active(who)
        about = {"name": plain, "shows": shows, "place": place, "login": call.login}
        made = self._subscriptions.add(way, who, target, about)
        return {"id": made.id, "way": way, "person": who, "name": plain, "endpoint": target.endpoint if not endpoint else ""}

    @method("push.list", access="own")
    def list_subscriptions(
        self,
        person: Annotated[str, Range(0, 128), "whose; default: yours"] = "",
        everybody: Annotated[bool, "of all people"] = False,
        *,
        call: Call,
    ) -> list[PushSubscription]:
        """Devices and topics that show notifications."""
        return self._subscriptions.list("" if everybody else self._person(person, call))

    @method("push.unsubscribe", access="own")
    def unsubscribe(
        self,
        id: Annotated[str, Range(1, 64), "its id, or the beginning of it"],
        person: Annotated[str, Range(0, 128), "whose; default: yours"] = "",
        *,
        call: Call,
    ) -> PushSubscription:
        """Show no more notifications on a device or topic."""
        found = [one for one in self._subscriptions.list(self._person(person, call)) if one.id.startswith(id)]
        if len(found) != 1:
            raise NotFound(
                f"no subscription {id}" if not found else f"several begin with {id}", hint="owlbox channel subscriptions"
            )
        self._subscriptions.end(found[0])
        return found[0]

    def _person(self, person: str, call: Call) -> str:
        return self._people.resolve(LOCAL, person or caller_name(call))

    def _channel(self, way: str) -> SubscribedChannel:
        channel = self._connections.connection(way)
        if not isinstance(channel, SubscribedChannel):
            raise BadInput(f"channel {way} has no subscriptions")
        return channel
