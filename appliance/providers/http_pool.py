"""Requests to one provider over HTTP, and what a failure of one means for whoever asked the model.

Redirects are not followed. A cancellation ends a request in any phase. A connection is kept for a short while. Knows
nothing about formats. Importing this imports requests.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from appliance import __version__
from appliance.errors import Cancelled, DeadlineExceeded, HttpError, OwlError, ProviderError
from appliance.providers.error_mapping import Heard, clean, fault
from appliance.providers.remote_settings import Remote, is_near
from appliance.runtime.host_lookup import Deadline
from appliance.runtime.http_client import Answer, HttpSession
from appliance.text import urls

KEPT_LINES = 4
ERROR_BYTES = 1 << 16
DRAIN_S = 0.2


@dataclass(frozen=True)
class ProviderRequest:
    """A request: `body` None means GET."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any] | None = None

    def written(self) -> tuple[dict[str, str], bytes | None]:
        """The headers and the body as they are sent."""
        head = {"User-Agent": f"owlbox/{__version__}", "Accept-Encoding": "identity", **self.headers}
        if self.body is None:
            return head, None
        head |= {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
        return head, json.dumps(self.body, ensure_ascii=False).encode("utf-8", "replace")


class Lines:
    """The connections of one adapter; several threads may ask at once, each gets one of its own."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        file = Path(remote.verify) if isinstance(remote.verify, str) else None
        is_far = not is_near(urlsplit(remote.base_url).hostname or "")
        self._session = HttpSession(authorities=file, only_these=file is not None, kept=KEPT_LINES, is_proxied=is_far)

    def open(self, request: ProviderRequest, deadline: Deadline) -> "HttpReply":
        """The answer from its first byte on; ProviderError for anything but success."""
        problem: OwlError
        try:
            answer = self._session.ask(urls.parse(request.url), *request.written(), by=deadline)
        except OwlError as error:
            problem = self._explain_failure(error, deadline)
        else:
            reply = HttpReply(answer, self._remote, request)
            if 200 <= answer.status_code < 300:
                return reply
            with reply:
                heard = Heard(answer.status_code, answer.headers, reply.complaint())
            problem = fault(self._remote, heard, request.headers.values())
        # Outside of the handler, so that no traceback leads to the request and its headers.
        raise problem

    def read(self, request: ProviderRequest, deadline: Deadline, most_bytes: int = 8_000_000) -> Any:
        """The whole answer to a request as JSON."""
        with self.open(request, deadline) as reply:
            data = reply.whole(most_bytes)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            said = clean(data[:2000].decode("utf-8", "replace"), request.headers.values())
        raise ProviderError(f"{self._remote.provider} sent no JSON: {said}", outcome="invalid_response")

    def close(self) -> None:
        """Close the connections that rest; those in use are closed when they are done."""
        self._session.close()

    def _explain_failure(self, error: OwlError, deadline: Deadline) -> OwlError:
        """The error for a failure before the head of the response."""
        name, place = self._remote.provider, self._remote.place
        if isinstance(error, (Cancelled, DeadlineExceeded)):
            return error
        stage = error.stage if isinstance(error, HttpError) else ""
        why = error.why if isinstance(error, HttpError) else error.message
        if stage == "silence":
            return _silence_error(self._remote, deadline)
        if stage == "authorities":
            text, hint = f"{name}: its certificate cannot be checked: {error.message}", f"is providers.{name}.ca_file right?"
            return ProviderError(text, hint=hint, outcome="provider_not_available")
        if stage == "tls":
            hint = f"if it is yours, providers.{name}.ca_file names the file of its authority"
            return ProviderError(f"{name}: no safe connection to {place}: {why}", hint=hint, outcome="provider_not_available")
        if stage == "hang-up":
            return ProviderError(f"{name}: {place} hung up without an answer", outcome="upstream_error", kind="gateway")
        if stage in ("answer", "body"):
            return ProviderError(f"{name}: the answer of {place} {why}", outcome="upstream_error", kind="gateway")
        if stage == "request" or error.status < 404 or error.status == 413:
            return ProviderError(f"{name}: the request cannot be sent ({why})", hint=error.hint, outcome="invalid_request")
        text = f"nobody answers at {place} ({why})" if stage else why
        hint = "is there a network, and is base_url right?"
        return ProviderError(f"{name} cannot be reached: {text}", hint=hint, outcome="provider_not_available", kind="network")


class HttpReply:
    """An answer while it comes. Closing it before its end closes the connection."""

    def __init__(self, answer: Answer, remote: Remote, request: ProviderRequest) -> None:
        self._answer = answer
        self._remote = remote
        self.media_type = answer.mime  # what the answer says it is, such as text/event-stream
        self.hidden = tuple(request.headers.values())  # what no message may show: the key among them
        self.close = answer.close

    def __enter__(self) -> "HttpReply":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the answer as they come."""
        parts = self._answer.iter_content()
        while True:
            problem: OwlError | None = None
            data = b""
            try:
                data = next(parts, b"")
            except HttpError as error:
                problem = self._explain_break(error)
            if problem is not None:
                raise problem
            if not data:
                return
            yield data

    def whole(self, most_bytes: int) -> bytes:
        """All of the answer; ProviderError when it is larger than `most_bytes`."""
        parts, size = [], 0
        for data in self.chunks():
            size += len(data)
            if size > most_bytes:
                raise ProviderError(f"{self._remote.provider} sent more than {most_bytes} bytes", outcome="invalid_response")
            parts.append(data)
        return b"".join(parts)

    def complaint(self) -> bytes:
        """The beginning of an error's body, as far as it comes."""
        parts: list[bytes] = []
        try:
            for data in self.chunks():
                parts.append(data)
                if sum(map(len, parts)) > ERROR_BYTES:
                    break
        except ProviderError:
            pass
        return b"".join(parts)

    def hasten(self, silence_s: float) -> None:
        """Wait no longer than so long for more from now on."""
        self._answer.deadline = replace(self._answer.deadline, silence_s=min(silence_s, self._answer.deadline.silence_s))

    def drain(self) -> None:
        """Read the few bytes behind the last event, so that the connection can be used again."""
        self._answer.deadline = self._answer.deadline.within(DRAIN_S)
        try:
            for _ in self.chunks():
                pass
        except OwlError:
            pass  # then it is closed

    def _explain_break(self, error: HttpError) -> ProviderError:
        """The error for a failure within the response."""
        if error.stage == "silence":
            return _silence_error(self._remote, self._answer.deadline)
        text = f"{self._remote.provider} ({self._remote.model}): the answer broke off"
        return ProviderError(text, outcome="stream_error", kind="network")


def _silence_error(remote: Remote, deadline: Deadline) -> ProviderError:
    what = f"{remote.provider} ({remote.model}) was silent for {deadline.silence_s:g} s"
    return ProviderError(what, hint="try again, or allow more time", outcome="provider_timeout", kind="network")
