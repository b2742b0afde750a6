"""Where a host may be connected to: its name resolved once, and every address that comes back judged.

Whoever connects uses the addresses it was given here, so that a name cannot mean another place a moment later. The judgement is
`hosts.Rules`; added to it is what only this machine knows, its own addresses and its links. Knows nothing about requests.
"""

import ipaddress

from appliance.errors import Refused
from appliance.text.urls import Target
from appliance.web import dns, hosts
from appliance.web.dns import Deadline, Resolve
from appliance.web.hosts import Rules


def resolved(target: Target, resolve: Resolve, deadline: Deadline) -> list[str]:
    """The addresses of a host in the order to try, not judged."""
    return [str(target.address)] if target.address else dns.resolved(resolve, target.host, deadline)


def check(rules: Rules, target: Target, found: list[str]) -> None:
    """Refused when one of a host's addresses may not be reached."""
    near = dns.neighbours() if any(":" in text for text in found) else []
    for text in found:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise Refused(f"{target.url}: its address is {text!r}", hint=hosts.HINT) from None
        why = rules.why_not(address)
        if not why and not any(address in network for network in rules.networks):
            is_near = any(address in network for network in near)
            why = "is this machine" if dns.is_ours(text) else "is on this network" if is_near else ""
        if why:
            raise Refused(f"{target.url}: {target.host} is at {text}, which {why}", hint=hosts.HINT)
