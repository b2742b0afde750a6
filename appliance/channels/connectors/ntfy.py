"""ntfy: notifications for everybody who knows a topic, by ntfy.sh or a server of one's own.

**The server reads along, and so does whoever knows the topic.** A topic that is made here is 128 bits long. The server is what the
owner configured, wherever it is. It knows no repeats: one that may have arrived is sent again, marked. Knows nothing about who has
subscribed (`sessions.push_subscriptions`).
"""

import json
import re
import secrets
from collections.abc import Callable
from typing import Annotated, Any

from appliance.channels.connectors.push import shown
from appliance.channels.contract import REPEAT, Connection, lost_when_sent
from appliance.clock import monotonic_s
from appliance.errors import BadInput, Busy, NotFound, Refused, TooLarge, Unavailable
from appliance.records import Outbound
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import HttpSession
from appliance.sessions.push_subscriptions import PushTarget, Subscriptions
from appliance.text import urls

SECRET = "secret:"
TOPIC = re.compile(r"[\w-]{1,64}", re.ASCII)
SEND_S = 15.0
HIGH = 4  # of five priorities
LONGEST_S = 3600


class Ntfy(Connection):
    """A server of ntfy."""

    is_live = False
    public_key = ""

    def __init__(self, url: str, token: Callable[[], str], subscriptions: Subscriptions) -> None:
        self._home = urls.parse(f"{url.rstrip('/')}/")
        self._token = token
        self._subscriptions = subscriptions
        self._http = HttpSession()

    def accept(self, target: PushTarget) -> tuple[PushTarget, str]:
        """A topic; a new one where none is given."""
        topic = target.endpoint or f"owl-{secrets.token_urlsafe(16)}"
        if not TOPIC.fullmatch(topic) or target.key or target.auth:
            raise BadInput(
                f"topic {topic[:70]!r}", hint="1 to 64 letters, digits, - and _, without keys; leave it out for a new one"
            )
        return PushTarget(topic), self._home.origin

    def deliver(self, message: Outbound) -> None:
        """Publish what its person has chosen under their topic."""
        if (found := self._subscriptions.find_for(message, "ntfy")) is None:
            return
        known, target = found
        told = shown(message, known)
        body = f"{REPEAT} {told.body}" if message.text.startswith(REPEAT) else told.body
        self._ask({"topic": target.endpoint, "title": told.title, "message": body, "priority": HIGH})

    def _ask(self, given: dict[str, Any] | None) -> None:
        """Publish, or look whether the server is there."""
        target = self._home if given else urls.parse(f"{self._home.url}v1/health")
        token = self._token()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        body = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace") if given else None
        name = target.authority
        by = Deadline(monotonic_s() + SEND_S, name)
        try:
            with lost_when_sent(name), self._http.ask(target, headers, body, by=by) as answer:
                status, after = answer.status_code, answer.headers.get("retry-after", "")
        except NotFound as error:  # of its name: without a network nobody knows it
            raise Unavailable(error.message, hint=error.hint) from None
        if status == 429:
            wait_s = int(after) if after.isascii() and after.isdecimal() and len(after) < 6 else 0
            raise Busy(f"{name} answered {status}", retry_s=float(min(LONGEST_S, max(5, wait_s))))
        if status == 413:
            raise TooLarge(f"{name} answered {status}")
        if 300 <= status < 500:
            raise Refused(f"{name} answered {status}", hint="look at channels.ntfy.url and its token")
        if not 200 <= status < 300:
            raise Unavailable(f"{name} answered {status}", hint="it is sent again later")

    def check(self) -> list[str]:
        """Look whether the server is there; nothing is published."""
        self._ask(None)
        return [f"{self._home.authority} is there"]

    def warnings(self) -> list[str]:
        """A server that is asked without encryption."""
        is_open = self._home.scheme != "https" and self._home.host not in ("localhost", "127.0.0.1", "[::1]")
        return ["channels.ntfy.url is not encrypted: others can read what is sent"] if is_open else []

    def close(self) -> None:
        """Close connections that rest."""
        self._http.close()


def connect(
    url: Annotated[str, "the server"] = "https://ntfy.sh",
    token: Annotated[str, "its access token, such as secret:channel/ntfy"] = "",
    *,
    subscriptions: Subscriptions,
    secret: Callable[[str], str],
) -> Ntfy:
    """The channel of this table."""
    find = (lambda: secret(token.removeprefix(SECRET))) if token.startswith(SECRET) else (lambda: token)
    return Ntfy(url, find, subscriptions)
