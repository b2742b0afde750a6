"""Slack's Web API as far as a channel needs it: opening a socket, sending, files.

Speaks HTTP itself, as `matrix.homeserver` does. A send carries nothing by which Slack would know a repeat. Knows nothing about
messages.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from appliance.channels.contract import lost_when_sent
from appliance.clock import monotonic_s
from appliance.errors import Busy, HttpError, Lost, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import HttpSession
from appliance.text import urls

CALL_S, FILE_S = 30.0, 120.0
MAX_ANSWER = 4 * 1024 * 1024
WAITING = ("ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout")
TOKENS = ("invalid_auth", "account_inactive", "token_revoked", "token_expired", "not_authed")
GONE = ("channel_not_found", "user_not_found", "is_archived", "not_in_channel", "thread_not_found")


class SlackApi:
    """The API at one address."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        self._session = HttpSession(kept=2)

    def close(self) -> None:
        """Close the connections that rest."""
        self._session.close()

    def call(self, method: str, token: str, **arguments: object) -> dict[str, Any]:
        """One call; an error of our tree says whether it may be tried again, Lost whether it may have been done."""
        body = json.dumps({name: value for name, value in arguments.items() if value not in (None, "")}).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json; charset=utf-8"}
        data = self._ask(f"{self._address}/{method}", headers, body, method)
        return _result(method, data)

    def form(self, method: str, token: str, **arguments: str) -> dict[str, Any]:
        """Call a method that takes a form instead of JSON."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-www-form-urlencoded"}
        return _result(method, self._ask(f"{self._address}/{method}", headers, urlencode(arguments).encode(), method))

    def download(self, url: str, token: str, limit: int) -> bytes:
        """A file; only from Slack itself, for the token goes along."""
        given, own = urlsplit(url), urlsplit(self._address)
        host = given.hostname or ""
        is_slack = given.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))
        if not is_slack and (given.scheme, given.netloc) != (own.scheme, own.netloc):
            raise Refused(f"the file lies at {host[:100]}, which is not Slack")
        return self._ask(url, {"Authorization": f"Bearer {token}"}, None, "a file", FILE_S, limit)

    def upload(self, url: str, data: bytes) -> None:
        """Hand over the bytes of a file at the address that Slack named for it."""
        headers = {"Content-Type": "application/octet-stream"}
        self._ask(url, headers, data, "an upload", FILE_S)

    def _ask(
        self, url: str, headers: dict[str, str], body: bytes | None, what: str, limit_s: float = CALL_S, most: int = MAX_ANSWER
    ) -> bytes:
        deadline = Deadline(monotonic_s() + limit_s, f"Slack ({what})")
        try:
            with lost_when_sent("Slack"), self._session.ask(urls.parse(url), headers, body, by=deadline) as answer:
                if answer.status_code == 429:
                    after = answer.headers.get("retry-after", "")
                    raise Busy(f"Slack: too many calls of {what}", retry_s=float(after) if after.isdecimal() else 5.0)
                if answer.status_code >= 400:
                    kind: type[OwlError] = Lost if answer.status_code >= 500 else NotFound if answer.status_code == 404 else Refused
                    raise kind(f"Slack answers {answer.status_code} to {what}")
                data, is_cut = answer.body(most)
        except HttpError as error:
            raise Busy(error.message, retry_s=60) from None
        if is_cut:
            raise TooLarge(f"{what} has more than {most} bytes")
        return data


def _result(method: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise Lost(f"Slack answers to {method} what is not JSON")
    if found.get("ok") is True:
        return dict(found)
    why = str(found.get("error", ""))[:100]
    if why in WAITING:
        raise Busy(f"Slack: {method}: {why}", retry_s=30)
    if why in TOKENS:
        key = "app_token" if method == "apps.connections.open" else "bot_token"
        raise Unavailable(f"Slack does not take the {key}: {why}", hint="an app_token begins with xapp-, a bot_token with xoxb-")
    raise (NotFound if why in GONE else Refused)(f"Slack: {method}: {why}")
