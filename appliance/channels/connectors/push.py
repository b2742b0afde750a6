"""Web Push: notifications on phones and computers whose browser has subscribed on the web page (RFC 8030, 8291, 8292).

A browser names a push service of its maker, which carries what only that browser can read. A message that is sent again has the
same topic and the same tag: it takes the place of the first. The key of this installation is made at the first start and kept in
the vault. Addresses come from people and are judged like any that is fetched: nothing of this network unless its owner allows it.
Knows nothing about who has subscribed (`sessions.push_subscriptions`).
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Struct

from appliance.channels.contract import REPEAT, Connection, Running
from appliance.clock import now_ms
from appliance.errors import BadInput, Busy, ConfigError, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.records import Outbound
from appliance.secrets import web_push
from appliance.secrets.web_push import DeviceKeys
from appliance.sessions.push_subscriptions import PushSubscription, PushTarget, Subscriptions
from appliance.text.invisible import escape_invisible

LOG = logging.getLogger(__name__)
SECRET = "channel/push"
KEEP_S = 24 * 3600  # for a device that is off
SIGNED_S = 12 * 3600
GONE = (404, 410)
LONGEST_S = 3600
MAX_ENDPOINT = 1000
MAX_SHOWN = 700  # characters, of at most four bytes each
TITLE = "Owlbox"
ASKS = ("proposal", "held")  # what the keys of notifications begin with that want a decision
ENDED = ("task", "job")
ANSWERED = "answer"


class WebPush(Connection):
    """The channel of everything that takes Web Push; `name` is that of its file."""

    is_live = False
    is_idempotent = True

    def __init__(
        self,
        name: str,
        contact: str,
        subscriptions: Subscriptions,
        fetch: Any,
        secret: Callable[[str], str],
        keep_secret: Callable[[str, str], Any],
    ) -> None:
        """`fetch` posts to addresses that may be reached."""
        if not contact.startswith(("mailto:", "https://")):
            key = f"channels.{name}.contact"
            raise ConfigError(f"{key} is {contact!r}", key=key, hint="write mailto:you@example.org, or an https address")
        self._name = name
        self._contact = contact
        self._subscriptions = subscriptions
        self._fetch = fetch
        self._secret = secret
        self._keep_secret = keep_secret
        self._guard = threading.Lock()
        self._key = ""

    # -- the key --------------------------------------------------------------------------------------

    def receive(self, running: Running) -> None:
        """Read the key, or make it, and wait."""
        self._find_key(makes=True)
        running.connected()
        running.stop.wait()

    @property
    def public_key(self) -> str:
        """What devices subscribe with."""
        return web_push.public_key(self._find_key())

    def _find_key(self, *, makes: bool = False) -> str:
        with self._guard:
            if not self._key:
                try:
                    found = self._secret(SECRET)
                except NotFound:
                    if not makes:
                        raise
                    self._keep_secret(SECRET, web_push.new_key())
                    found = self._secret(SECRET)
                web_push.public_key(found)
                self._key = found
            return self._key

    # -- subscriptions ----------------------------------------------------------------------------------

    def accept(self, target: PushTarget) -> tuple[PushTarget, str]:
        """A device whose address may be reached and whose keys are keys."""
        if not target.endpoint or not target.key or not target.auth:
            raise BadInput("a device has an endpoint, a key (p256dh) and auth", hint="the page and UnifiedPush apps give all three")
        if len(target.endpoint.encode("utf-8", "replace")) > MAX_ENDPOINT:
            raise TooLarge(f"an endpoint of more than {MAX_ENDPOINT} bytes")
        DeviceKeys(target.key, target.auth).check()
        return target, str(self._fetch.check(target.endpoint).origin)

    # -- sending --------------------------------------------------------------------------------------

    def deliver(self, message: Outbound) -> None:
        """Send what its person has chosen to a device; one that is gone is forgotten, and its person told."""
        if (found := self._subscriptions.find_for(message, self._name)) is None:
            return
        known, target = found
        told = shown(message, known)
        text = json.dumps({"title": told.title, "body": told.body, "tag": told.tag, "thread": told.thread}, ensure_ascii=False)
        body = web_push.encrypt(text.encode("utf-8", "replace"), DeviceKeys(target.key, target.auth))
        try:
            origin = self._fetch.check(target.endpoint).origin
            status, after = self._fetch.post(target.endpoint, self._headers(origin, told.tag), body, session=f"push:{known.person}")
        except Unavailable as error:
            if error.outcome != "rate_limited":
                raise
            raise Busy(error.message, retry_s=60) from None
        except NotFound as error:  # of its name: without a network nobody knows it
            raise Unavailable(error.message, hint=error.hint) from None
        self._judge(status, after, known)

    def _headers(self, origin: str, topic: str) -> dict[str, str]:
        expires_s = now_ms() // 1000 + SIGNED_S
        return {
            "Authorization": web_push.authorization(self._find_key(), origin, self._contact, expires_s),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(KEEP_S),
            "Urgency": "high",
            "Topic": topic,
        }

    def _judge(self, status: int, after: str, known: PushSubscription) -> None:
        where = f"{known.place} answered {status}"
        if status in GONE:
            LOG.warning("channel %s: %s of %s is gone (%s) and forgotten", self._name, known.id, known.person, where)
            self._subscriptions.forget(known)
            raise NotFound(f"{where}: the device is gone", hint="its person has been told")
        if status == 413:
            raise TooLarge(where)
        if status == 429:
            wait_s = int(after) if after.isascii() and after.isdecimal() and len(after) < 6 else 0
            raise Busy(where, retry_s=float(min(LONGEST_S, max(5, wait_s))))
        if 300 <= status < 400:
            raise Refused(f"{where}: a redirect, which is not followed")
        if not 200 <= status < 300:
            raise Unavailable(where, hint="it is sent again later; 401 and 403 say that the key or the clock has changed")

    # -- the rest -------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Read the key, and judge where devices are reached; nothing is sent."""
        try:
            tried = [f"the key is {self.public_key[:12]}…"]
        except NotFound:
            tried = ["there is no key yet: it is made when the channel is first open"]
        for known in self._subscriptions.list():
            if known.way == self._name:
                try:
                    self._fetch.check(self._subscriptions.find(known.way, known.id)[1].endpoint)
                    tried.append(f"{known.id} of {known.person} is told at {known.place}")
                except OwlError as error:
                    tried.append(f"{known.id} of {known.person} cannot be told: {error.message}")
        return tried


class PushText(Struct, frozen=True):
    """What a device shows; `tag` is the same for the same notification, so that it stands there once."""

    title: str
    body: str
    tag: str
    thread: str


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


def connect(
    contact: Annotated[str, "whom push services may ask about messages: mailto: or https:"] = "mailto:owlbox@example.org",
    *,
    subscriptions: Subscriptions,
    fetch: Any,
    secret: Callable[[str], str],
    keep_secret: Callable[[str, str], Any],
) -> WebPush:
    """The channel of this table."""
    return WebPush("push", contact, subscriptions, fetch, secret, keep_secret)
