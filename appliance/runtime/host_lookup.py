"""How a host is reached, in time: the deadline of a request, the addresses of a name, and the proxy of the environment.

Owns the deadline that every step of a request keeps, and the look-up, which cannot be ended and is left to itself when
it is late. Knows nothing about which addresses may be reached.
"""

import math
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from appliance.clock import monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded, NotFound, OwlError, Unavailable
from appliance.records import Cancel
from appliance.text.urls import Target

SLICE_S = 0.1  # after which a cancellation is noticed
UNKNOWN = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

Resolve = Callable[[str], Sequence[str]]  # the addresses of a name


class Deadline(Struct, frozen=True):
    """When a request ends at the latest, and the token that ends it before; `what` names it in errors.

    `silence_s` is the longest wait for the next byte, `slice_s` how long it may take to notice a cancellation; infinite for a wait
    of minutes, which a cancellation ends by ending the connection, so that nothing wakes up meanwhile.
    """

    end_s: float
    what: str
    cancel: Cancel | None = None
    silence_s: float = math.inf
    slice_s: float = SLICE_S

    def left_s(self) -> float:
        """Seconds that are left; DeadlineExceeded or Cancelled when it is over."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"{self.what} was stopped")
        left = self.end_s - monotonic_s()
        if left <= 0:
            raise DeadlineExceeded(f"{self.what} took too long", hint="allow more time")
        return left

    def within(self, seconds: float) -> "Deadline":
        """The same, ending after so many seconds if that is earlier."""
        return Deadline(min(self.end_s, monotonic_s() + seconds), self.what, self.cancel, self.silence_s, self.slice_s)


def look_up(host: str) -> list[str]:
    """The addresses of a name by the system's resolver, in the order to try; NotFound when there are none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in UNKNOWN:
            raise NotFound(f"there is no host {host}", hint="check how it is written") from None
        raise Unavailable(f"{host} cannot be looked up: {error.strerror}", hint="check the network and try again") from None
    except (UnicodeError, OSError) as error:
        raise Unavailable(f"{host} cannot be looked up: {error}", hint="check how it is written") from None
    return list(dict.fromkeys(_with_scope(item[4]) for item in found))


def _with_scope(address: tuple[Any, ...]) -> str:
    """The address as text; one of a link (fe80::...) means nothing without the number of the link."""
    return f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] else str(address[0])


def addresses_of(target: Target, resolve: Resolve, deadline: Deadline) -> list[str]:
    """The addresses of a host in time; the thread that asks is left to itself when it is late."""
    if target.address is not None:
        return [str(target.address)]
    done = threading.Event()
    answer: list[str] = []
    failure: list[OwlError] = []

    def ask() -> None:
        try:
            answer.extend(resolve(target.host))
        except OwlError as error:
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    while not done.wait(min(SLICE_S, deadline.left_s())):
        pass
    if failure:
        raise failure[0]
    if not answer:
        raise NotFound(f"{target.host} has no address", hint="check how it is written")
    return answer


def proxy_of(target: Target) -> str:
    """The URL of the proxy that the environment names for a place, "" for none."""
    from urllib.request import getproxies, proxy_bypass  # 20 ms that most processes never need

    found = getproxies()
    named = found.get(target.scheme) or found.get("all") or ""
    return "" if not named or proxy_bypass(target.host) else named if "://" in named else f"http://{named}"
