"""Requests of webhooks at the local socket: the server that heard one hands it on, and the channel judges it.

The server has no secrets, so everybody may call this: a signature alone says who speaks.
"""

from typing import Annotated, Protocol, runtime_checkable

from appliance.channels.connections import Connections
from appliance.errors import NotFound
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range

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
