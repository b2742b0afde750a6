"""What the files of `connectors` have in common that look something up when somebody asks: weather, news, rates, the house.

No channels of messages: they are files of `connectors` because they are switched on, tested and watched as those are. What is
fetched is kept for a while; where nobody answers, what is known is told with its time, up to half a day. Answers are untrusted:
limited in size, read strictly. `knowledge.lookups` finds the one that is switched on.
"""

import logging
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Protocol, TypeVar

import msgspec

from appliance.channels.contract import Connection, Running
from appliance.clock import monotonic_s, now_ms
from appliance.errors import Cancelled, HttpError, OwlError, Refused, Unavailable
from appliance.records import Cancel, Outbound
from appliance.text import urls

LOG = logging.getLogger(__name__)
STALE_S = 12 * 3600.0  # how old what is told may be, where nobody answers
AGAIN_S = 60.0  # before one that did not answer is asked again
MAX_KEPT = 50
T = TypeVar("T")


class FetchedAnswer(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class FetchConfigured(Protocol):
    """Asks an address of the configuration; what it redirects to is judged as any page, and never sent a body or headers."""

    def __call__(
        self, url: str, cancel: Cancel, *, headers: Mapping[str, str] = ..., body: bytes | None = None, most: int = ...
    ) -> FetchedAnswer: ...


class Lookup(Connection):
    """One of them. A subclass is made by `connect` of its file."""

    is_live = False
    checks_senders = True
    every_s: float | None = None

    def __init__(self, fetch: FetchConfigured) -> None:
        self._fetch = fetch
        self._kept: OrderedDict[str, tuple[float, int, Any]] = OrderedDict()
        self._failed: dict[str, tuple[float, OwlError]] = {}
        self._guard = threading.Lock()

    @abstractmethod
    def refresh(self, cancel: Cancel) -> None:
        """Ask once, so that its state says whether it answers; an error says why it does not."""

    def receive(self, running: Running) -> None:
        """Ask at once and, where `every_s` says so, at intervals."""
        while not running.stop.is_set():
            self.refresh(running.stop)
            running.connected()
            running.stop.wait(self.every_s)

    def deliver(self, message: Outbound) -> None:
        """Nobody is told anything here."""
        raise Refused("nothing can be sent to this channel", hint="choose another channel")

    def ask(
        self, url: str, cancel: Cancel, most: int, *, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> bytes:
        """What an address answers; Unavailable names its host alone, for the address may hold a key."""
        host = urls.parse(url).authority
        try:
            found = self._fetch(url, cancel, headers=headers or {}, body=body, most=most)
        except OwlError as error:
            error.message = error.message.replace(url, host)
            if not isinstance(error, HttpError | Cancelled):
                error.saying("web", host)  # it may quote where it is redirected to
            raise
        if found.status >= 400:
            hint = "its key is wrong, or missing" if found.status in (401, 403) else "try again later"
            raise Unavailable(f"{host} answers {found.status}", hint=hint, outcome="http_error")
        return found.body

    def keep(self, key: str, fresh_s: float, make: Callable[[], T]) -> tuple[T, int]:
        """What `make` gives and when it did, in ms: made anew when it is older than this, or told as it was where that fails."""
        now_s = monotonic_s()
        with self._guard:
            known, failed = self._kept.get(key), self._failed.get(key)
        if known is not None and now_s - known[0] < fresh_s:
            return known[2], known[1]
        try:
            if failed is not None and now_s - failed[0] < AGAIN_S:
                raise failed[1]
            made = make()
        except Cancelled:
            raise
        except OwlError as error:
            with self._guard:
                if failed is None or failed[1] is not error:
                    recent = {name: one for name, one in self._failed.items() if now_s - one[0] < AGAIN_S}
                    self._failed = {**recent, key: (now_s, error)}
            if known is None or now_s - known[0] > STALE_S:
                raise
            LOG.warning("told as it was before: %s", error)
            return known[2], known[1]
        at_ms = now_ms()
        with self._guard:
            self._failed.pop(key, None)
            self._kept[key] = (monotonic_s(), at_ms, made)
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made, at_ms


def is_day(text: str) -> bool:
    """Whether a text is a day of the calendar, 2026-11-28."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def read_json(data: bytes, kind: type[T], who: str) -> T:
    """An answer in JSON as a record; Unavailable for one of another form."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, ValueError):  # whose text quotes the answer
        raise Unavailable(f"{who} answers in a form that is not known") from None
