"""Webhooks: what other programs tell the assistant, and what the assistant tells a URL; both signed with a shared secret.

A signature is `v1=` and the HMAC-SHA256, in hex, of the id, the timestamp (seconds since 1970) and the body with dots between
them. In: a source has a name and a secret of its own; a signature that is wrong or older than five minutes is refused, and so is
one that came before. What a source says is untrusted text, whoever it is linked to. Out: each notification is one POST with an
id that stays the same when it is sent again. Knows nothing about the server that hears requests (`http.program_calls`).
"""

import hashlib
import hmac
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated

from appliance.channels.contract import Connection, Received, Running, lost_when_sent
from appliance.clock import monotonic_s, now_ms
from appliance.errors import BadInput, Busy, Conflict, NotFound, Refused, TooLarge, Unavailable
from appliance.records import Outbound
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import HttpSession
from appliance.text import urls

SECRET = "secret:"
TOLERANCE_S = 300
MAX_SEEN = 10_000
MAX_TEXT = 10_240
SEND_S = 20.0
MIN_SECRET = 16
FINAL = (400, 401, 403, 404, 405, 410, 413, 415, 422)


def sign(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature of a body."""
    signed = f"{message_id}.{timestamp}.".encode("utf-8", "surrogatepass") + body
    return "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


class Webhook(Connection):
    """The channel of webhooks."""

    is_live = False
    checks_senders = True

    def __init__(self, url: str, key: str, sources: dict[str, str], secret: Callable[[str], str]) -> None:
        self._url = url
        self._key = key
        self._sources = sources
        self._secret = secret
        self._running: Running | None = None
        self._guard = threading.Lock()
        self._seen: OrderedDict[str, float] = OrderedDict()  # signatures that were taken, and when
        self._http = HttpSession()

    # -- in -------------------------------------------------------------------------------------------

    def receive(self, running: Running) -> None:
        """Take what is handed to `take_request` until told to stop."""
        self._running = running
        running.connected()
        running.stop.wait()
        self._running = None

    def take_request(self, source: str, message_id: str, timestamp: str, signature: str, body: bytes) -> None:
        """Judge a request and hand in its message; Refused for a wrong signature, Conflict for one that came before."""
        running = self._running
        if running is None:
            raise Unavailable("webhooks are not accepted at the moment", hint="try again in a moment")
        # A source that is none takes as long as one that is, and is told the same.
        expected = sign(self._find_secret(self._sources.get(source, "")) or "none", message_id, timestamp, body)
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogatepass")) or source not in self._sources:
            running.intake.refuse(source, "the signature is wrong")
            raise Refused("the signature is not right", hint="docs/guides/programs.md says how to sign")
        if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now_ms() / 1000 - int(timestamp)) > TOLERANCE_S:
            running.intake.refuse(source, "the timestamp is too old, or in the future")
            raise Refused(f"the timestamp is more than {TOLERANCE_S} seconds away", hint="is the clock right?")
        text, thread = _read_body(body)
        with self._guard:
            if signature in self._seen:
                raise Conflict("this was received before", hint="sign each message with an id of its own")
            self._seen[signature] = monotonic_s()
            while self._seen and (len(self._seen) > MAX_SEEN or next(iter(self._seen.values())) < monotonic_s() - 3 * TOLERANCE_S):
                self._seen.popitem(last=False)
        received = Received(
            *(message_id, source, text, int(timestamp) * 1000),
            own_chars=0,
            is_proven=True,
            references=(thread,) if thread else (),
            is_new_thread=not thread,
            marks=((f"person:{source}", "webhook"),),
            metadata={"source": source, "message_id": message_id},
        )
        try:
            is_taken = running.intake.take(received)
        except BaseException:
            with self._guard:
                self._seen.pop(signature, None)  # it may be sent again
            raise
        if not is_taken:
            raise Refused("the message was not accepted", hint="the log says why")

    def _find_secret(self, value: str) -> str:
        found = self._secret(value.removeprefix(SECRET)) if value.startswith(SECRET) else value
        if value and len(found) < MIN_SECRET:
            raise BadInput(f"a secret of webhooks has fewer than {MIN_SECRET} characters", hint="openssl rand -hex 32 makes one")
        return found

    # -- out ------------------------------------------------------------------------------------------

    def deliver(self, message: Outbound) -> None:
        """Post a notification; when nobody can say that it arrived, it is Lost, and comes again with a mark."""
        if not self._url:
            if message.metadata.get("message_id"):
                return  # an answer to a webhook that wants none: it stands in its thread
            raise NotFound("channels.webhook.url is not set", hint="set it, or choose another channel")
        told = {"id": message.key, "person": message.person, "text": message.text, "thread": message.run}
        told |= {"session": message.session, "in_reply_to": message.metadata.get("message_id", "")}
        self._post(message.key, json.dumps(told, ensure_ascii=False).encode("utf-8", "replace"))

    def _post(self, message_id: str, body: bytes) -> None:
        timestamp = str(now_ms() // 1000)
        headers = {
            "Content-Type": "application/json",
            "X-Owlbox-Id": message_id,
            "X-Owlbox-Timestamp": timestamp,
            "X-Owlbox-Signature": sign(self._find_secret(self._key), message_id, timestamp, body),
        }
        target = urls.parse(self._url)
        by = Deadline(monotonic_s() + SEND_S, target.authority)
        with lost_when_sent(target.authority), self._http.ask(target, headers, body, by=by) as answer:
            status = answer.status_code
        if status in FINAL:
            raise Refused(f"{target.authority} answered {status}", hint="look at channels.webhook.url and its secret")
        if status == 429:
            raise Busy(f"{target.authority} answered {status}", hint="it is sent again later")
        if not 200 <= status < 300:
            raise Unavailable(f"{target.authority} answered {status}", hint="it is sent again later")

    # -- the rest -------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Read the secrets, and post a test where there is a URL."""
        tried = [f"source {name} has its secret" for name, value in self._sources.items() if self._find_secret(value)]
        if self._url:
            self._post("test", json.dumps({"id": "test", "text": "a test of webhooks", "is_test": True}).encode())
            tried.append(f"{urls.parse(self._url).authority} took a test")
        return tried or ["there is nothing to try: set channels.webhook.url or sources"]

    def warnings(self) -> list[str]:
        """A URL whose text others can read on the way."""
        is_open = self._url.startswith("http:") and urls.parse(self._url).host not in ("localhost", "127.0.0.1", "[::1]")
        return ["channels.webhook.url is not encrypted: others can read what is sent"] if is_open else []

    def close(self) -> None:
        """Close connections that rest."""
        self._http.close()


def _read_body(body: bytes) -> tuple[str, str]:
    """The text of a request, and the id of the message that it answers; BadInput for anything else."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BadInput("the body is not JSON", hint='send {"text": "..."}') from None
    if not isinstance(given, dict) or not isinstance(given.get("text"), str) or not given["text"].strip():
        raise BadInput("the body has no text", hint='send {"text": "..."}')
    if len(given["text"]) > MAX_TEXT:
        raise TooLarge(f"the text has {len(given['text'])} characters, {MAX_TEXT} are allowed", hint="send less")
    answers = given.get("in_reply_to", "")
    if not isinstance(answers, str) or len(answers) > 200:
        raise BadInput("in_reply_to is the id of an earlier message", hint="leave it out")
    return given["text"], answers


def connect(
    url: Annotated[str, "where notifications are posted; empty for nowhere"] = "",
    key: Annotated[str, "what they are signed with, such as secret:channel/webhook"] = "",
    sources: Annotated[dict[str, str], "who may send, with the secret of each: doorbell = 'secret:channel/doorbell'"] = {},  # noqa: B006
    *,
    secret: Callable[[str], str],
) -> Webhook:
    """The channel of this table."""
    if url:
        urls.parse(url)
        if not key:
            raise BadInput("key: is needed to sign what is sent to url", hint="owlbox secret set channel/webhook")
    return Webhook(url, key, dict(sources), secret)
