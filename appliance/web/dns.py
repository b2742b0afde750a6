"""Names become addresses, in time: the system's resolver in a thread of its own, and what this machine's own addresses are.

Owns the deadline that every step of a request keeps, and the look-up, which cannot be ended and is left to itself when
it is late. Knows nothing about which addresses may be reached.
"""

import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.clock import monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded, NotFound, OwlError, Unavailable
from appliance.records import Cancel

LINKS = Path("/proc/net/if_inet6")
SLICE_S = 0.1  # after which a stop sign is noticed
UNKNOWN = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

Resolve = Callable[[str], Sequence[str]]  # the addresses of a name


@dataclass(frozen=True)
class Deadline:
    """When a piece of work ends at the latest, and the sign that ends it before; `what` names it in errors."""

    end_s: float
    what: str
    cancel: Cancel | None = None

    def left_s(self) -> float:
        """Seconds that are left; DeadlineExceeded or Cancelled when it is over."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"{self.what} was stopped")
        left = self.end_s - monotonic_s()
        if left <= 0:
            raise DeadlineExceeded(f"{self.what} took too long", hint="allow more time, or fetch another page")
        return left

    def within(self, seconds: float) -> "Deadline":
        """The same, ending after so many seconds if that is earlier."""
        return Deadline(min(self.end_s, monotonic_s() + seconds), self.what, self.cancel)


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
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def resolved(resolve: Resolve, host: str, deadline: Deadline) -> list[str]:
    """What a resolver says in time; the thread that asks is left to itself when it is late."""
    done = threading.Event()
    answer: list[str] = []
    failure: list[OwlError] = []

    def ask() -> None:
        try:
            answer.extend(resolve(host))
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
        raise NotFound(f"{host} has no address", hint="check how it is written")
    return answer


def is_ours(address: str) -> bool:
    """Whether an address is one of this machine's: the kernel would send from it to itself. Nothing is sent."""
    wanted = ipaddress.ip_address(address)
    if isinstance(wanted, ipaddress.IPv6Address) and wanted.ipv4_mapped is not None:
        wanted = wanted.ipv4_mapped  # the same place, and a socket may show it in another form
    family = socket.AF_INET6 if wanted.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(wanted), 9))
            return ipaddress.ip_address(probe.getsockname()[0]) == wanted
        except OSError:
            return False  # there is no way to it at all


def neighbours(table: Path = LINKS) -> list[ipaddress.IPv6Network]:
    """The IPv6 networks of this machine's own links: public addresses too are those of the house's other devices."""
    found = []
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return []  # no IPv6 here
    for line in lines:
        number, _, length, *_ = line.split()
        found.append(ipaddress.IPv6Network((int(number, 16), int(length, 16)), strict=False))
    return found
