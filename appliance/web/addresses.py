"""Whether the addresses that a name resolved to may be connected to: every one is judged.

Whoever connects uses the addresses that were judged here, so that a name cannot mean another place a moment later. The
judgement is `hosts.HostRules`; added to it is what only this machine knows, its own addresses and its links. Knows nothing
about requests.
"""

import ipaddress
import socket
from pathlib import Path

from appliance.errors import Refused
from appliance.text.urls import Target
from appliance.web import hosts
from appliance.web.hosts import HostRules

LINKS = Path("/proc/net/if_inet6")


def check(rules: HostRules, target: Target, found: list[str]) -> None:
    """Refused when one of a host's addresses may not be reached."""
    near = neighbours() if any(":" in text for text in found) else []
    for text in found:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise Refused(f"{target.url}: its address is {text!r}", hint=hosts.HINT) from None
        why = rules.why_not(address)
        if not why and not any(address in network for network in rules.networks):
            is_near = any(address in network for network in near)
            why = "is this machine" if is_ours(text) else "is on this network" if is_near else ""
        if why:
            raise Refused(f"{target.url}: {target.host} is at {text}, which {why}", hint=hosts.HINT)


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
