"""A homeserver's Client-Server API, as far as a channel needs it: waiting for events, sending, files, typing.

Speaks HTTP itself: the library for it takes 37 MB more in a small core, and keeps no promise that this does not. A send names a
transaction, so that the server takes each once however often it is repeated. Knows nothing about messages of people.
"""

import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Busy, Conflict, Lost, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import HttpSession
from appliance.text import urls

ROOT = "/_matrix/client/v3"
MEDIA = "/_matrix/client/v1/media/download"
MAX_ANSWER = 16 * 1024 * 1024
CALL_S, FILE_S = 30.0, 120.0
WAIT_MS = 60_000  # the server answers earlier when something happens


class Homeserver:
    """One account at a server."""

    def __init__(self, address: str, user: str, token: str) -> None:
        self.user = user
        self._address = address.rstrip("/")
        self._token = token
        self._session = HttpSession(kept=2)

    def close(self) -> None:
        """Close the connections that rest."""
        self._session.close()

    def whoami(self) -> str:
        """The account of the token."""
        return str(self.call("GET", f"{ROOT}/account/whoami").get("user_id", ""))

    def sync(self, since: str, cancel: CancelToken, *, limit: int = 50) -> dict[str, Any]:
        """What has happened since a token, "" for the newest of each room at once; waits until something does."""
        timeline = {"limit": limit, "lazy_load_members": True}
        quiet: dict[str, Any] = {"types": []}
        chosen = {
            "presence": quiet,
            "account_data": quiet,
            "room": {"timeline": timeline, "ephemeral": quiet, "account_data": quiet},
        }
        asked = {"filter": json.dumps(chosen), "timeout": str(WAIT_MS if since else 0), **({"since": since} if since else {})}
        limit_s = WAIT_MS / 1000 + CALL_S
        return self.call("GET", f"{ROOT}/sync?{urlencode(asked)}", limit_s=limit_s, cancel=cancel)

    def messages(self, room: str, start: str, end: str) -> tuple[list[dict[str, Any]], str]:
        """Events of a room before a token, the newest first, and where to go on, "" for the end."""
        asked = {"dir": "b", "from": start, "limit": "100", **({"to": end} if end else {})}
        found = self.call("GET", f"{ROOT}/rooms/{quote(room, safe='')}/messages?{urlencode(asked)}")
        events = [one for one in found.get("chunk") or () if isinstance(one, dict)]
        return events, str(found.get("end") or "") if events else ""

    def send(self, room: str, kind: str, transaction: str, content: Mapping[str, Any]) -> str:
        """Send an event, once for a transaction; its id."""
        path = f"{ROOT}/rooms/{quote(room, safe='')}/send/{quote(kind, safe='')}/{quote(transaction, safe='')}"
        return str(self.call("PUT", path, content).get("event_id", ""))

    def join(self, room: str) -> None:
        """Accept an invitation."""
        self.call("POST", f"{ROOT}/rooms/{quote(room, safe='')}/join", {})

    def members(self, room: str) -> tuple[str, ...]:
        """The members of a room."""
        joined = self.call("GET", f"{ROOT}/rooms/{quote(room, safe='')}/joined_members").get("joined")
        return tuple(sorted(joined)) if isinstance(joined, dict) else ()

    def typing(self, room: str, timeout_ms: int) -> None:
        """Show that the assistant writes, for so long; 0 for not any more."""
        said = {"typing": True, "timeout": timeout_ms} if timeout_ms else {"typing": False}
        self.call("PUT", f"{ROOT}/rooms/{quote(room, safe='')}/typing/{quote(self.user, safe='')}", said)

    def upload(self, name: str, mime: str, data: bytes) -> str:
        """Keep a file on the server; its `mxc:` address."""
        path = f"/_matrix/media/v3/upload?{urlencode({'filename': name})}"
        return str(json.loads(self._ask("POST", path, data, mime, FILE_S, MAX_ANSWER)).get("content_uri", ""))

    def download(self, address: str, limit: int) -> bytes:
        """A file of the server; TooLarge when it is larger than the limit."""
        server, _, media = address.removeprefix("mxc://").partition("/")
        if not address.startswith("mxc://") or not server or not media:
            raise NotFound(f"{address[:100]!r} is not an address of a file")
        return self._ask("GET", f"{MEDIA}/{quote(server, safe='')}/{quote(media, safe='')}", None, "", FILE_S, limit)

    def call(
        self,
        method: str,
        path: str,
        content: Mapping[str, Any] | None = None,
        *,
        limit_s: float = CALL_S,
        cancel: CancelToken | None = None,
    ) -> dict[str, Any]:
        """Send a request with a JSON body, and return the JSON of the response."""
        body = None if content is None else json.dumps(content).encode()
        answer = self._ask(method, path, body, "application/json", limit_s, MAX_ANSWER, cancel)
        try:
            found = json.loads(answer)
        except ValueError:
            raise Unavailable(f"{self._address} answers what is not JSON") from None
        return found if isinstance(found, dict) else {}

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        mime: str,
        limit_s: float,
        most_bytes: int,
        cancel: CancelToken | None = None,
    ) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", **({"Content-Type": mime} if body is not None else {})}
        target = urls.parse(f"{self._address}{path}")
        deadline = Deadline(monotonic_s() + limit_s, "the homeserver", cancel, slice_s=math.inf)
        with self._session.ask(target, headers, body, by=deadline, method=method) as answer:
            data, is_cut = answer.body(most_bytes)
            if answer.status_code >= 400:
                raise error_of(answer.status_code, data, answer.headers)
        if is_cut:
            raise TooLarge(f"the homeserver sends more than {most_bytes} bytes")
        return data


def error_of(status: int, data: bytes, headers: Mapping[str, str]) -> OwlError:
    """The error that a response of the server stands for."""
    try:
        said = json.loads(data)
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    text = f"the homeserver says {status} {str(said.get('errcode', ''))[:60]}: {str(said.get('error', ''))[:200]}"
    if status == 429:
        given = said.get("retry_after_ms")
        after = headers.get("retry-after", "")
        seconds = given / 1000 if isinstance(given, int | float) else float(after) if after.isdecimal() else 5.0
        return Busy(text, retry_s=max(0.1, min(seconds, 3600.0)))
    kinds: dict[int, type[OwlError]] = {401: Unavailable, 403: Refused, 404: NotFound, 409: Conflict, 413: TooLarge}
    return kinds.get(status, Lost if status >= 500 else Refused)(text)
