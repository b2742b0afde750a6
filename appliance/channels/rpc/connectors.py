"""What is asked of running channels at the local socket: webhooks that came in, and devices that a person subscribes.

The server that heard a webhook has no secrets, so everybody may hand one in: a signature alone says who speaks. Subscriptions are
those of whoever calls; an admin may name others.
"""

from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from appliance.channels.connections import Connections
from appliance.errors import BadInput, NotFound
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name
from appliance.sessions.people import LOCAL, People
from appliance.sessions.push_subscriptions import PushSubscription, PushTarget, Subscriptions

Way = Annotated[Literal["push", "unifiedpush", "ntfy"], "the channel that carries it"]
Shows = Literal["hint", "text"]

NAME = "webhook"


@runtime_checkable
class SignedRequests(Protocol):
    """A channel that takes signed requests; its file is imported when it is switched on."""

    def take_request(self, source: str, message_id: str, timestamp: str, signature: str, body: bytes) -> None: ...


class WebhookMethods:
    """The method for webhooks that came in."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @method("webhook.receive", access="all")
    def receive(
        self,
        source: Annotated[str, Range(1, 100), "who says it, as channels.webhook.sources names them"],
        message_id: Annotated[str, Range(1, 200), "the id that was signed"],
        timestamp: Annotated[str, Range(1, 20), "seconds since 1970, as they were signed"],
        signature: Annotated[str, Range(1, 200), "v1= and the HMAC-SHA256 of id, timestamp and body"],
        body: Annotated[str, Range(0, 100_000), "as it came"],
    ) -> dict[str, bool]:
        """Hand in what a webhook brought, which is untrusted text: refused unless its signature is right, recent and new."""
        channel = self._connections.connection(NAME)
        if not isinstance(channel, SignedRequests):
            raise NotFound("another channel has the name webhook")
        channel.take_request(source, message_id, timestamp, signature, body.encode("utf-8", "surrogateescape"))
        return {"is_taken": True}


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
        self._people.ensure_person(who)
        self._people.require_active(who)
        about = {"name": name, "shows": shows, "place": place, "login": call.login}
        made = self._subscriptions.add(way, who, target, about)
        return {"id": made.id, "way": way, "person": who, "name": made.name, "endpoint": target.endpoint if not endpoint else ""}

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
