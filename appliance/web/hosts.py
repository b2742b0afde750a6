"""Which places on the net may be reached: whether a host or an address is one of ours.

What a URL means is read by `text.urls`, what an address is by `runtime.special_addresses`. Pure: names are resolved by
`runtime.http_client`, and `web.fetch` asks here about every address that comes back. Not promised: that a public server
does no harm, or does not pass a request on.
"""

import ipaddress
from collections.abc import Iterable

from msgspec import Struct

from appliance.errors import BadInput, ConfigError, Refused
from appliance.runtime.special_addresses import Network, special
from appliance.text.urls import Address, Target, read_host

HINT = "only pages of the public web can be fetched"
BAD_PORTS = frozenset(  # of services that would take a request for a command of theirs; browsers refuse them too
    int(port)
    for port in (
        "0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115 117 119 123 135 137 "
        "139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563 587 601 636 989 990 993 995 1719 1720 "
        "1723 2049 3659 4045 4190 5060 5061 6000 6379 6566 6665 6666 6667 6668 6669 6679 6697 10080 11211"
    ).split()
)
# Names that mean something only here, by their end. The first that fits gives the reason.
NAMES = (
    (("localhost", "localdomain", "localhost6", "ip6-localhost", "ip6-loopback", "loopback"), "is this machine"),
    (("broadcasthost",), "is everybody on this network"),
    (("metadata.google.internal", "metadata", "instance-data"), "is a cloud's metadata service"),
    (("local",), "is a name of this network (mDNS)"),
    (("internal", "intranet", "lan", "home", "corp", "private", "home.arpa"), "is a name of a private network"),
    (("onion", "i2p"), "is not on the public internet"),
    (("test", "example", "invalid"), "is a name that leads nowhere"),
)


class HostRules(Struct, frozen=True):
    """What may be reached beside the public web, and what of it may not. A person sets these, never a model.

    `blocked` and `allowed` are names of hosts, each with what lies under it; with any `allowed`, nothing else passes.
    `networks` may be reached although they are not public.
    """

    blocked: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    def check(self, target: Target) -> None:
        """Refused for a host that may not be reached, whatever it resolves to."""
        host, shown = target.host, target.url
        if found := _find_covering(host, self.blocked):
            raise Refused(f"{shown}: {found} is blocked", hint="fetch from another host", outcome="blocked_host")
        if self.allowed and not _find_covering(host, self.allowed):
            listed = ", ".join(self.allowed[:5])
            raise Refused(f"{shown}: {host} is not among the allowed hosts", hint=f"allowed: {listed}", outcome="blocked_host")
        if target.port in BAD_PORTS:
            raise Refused(f"{shown}: port {target.port} is not for web pages", hint="use 80, 443 or another port of a web server")
        why = self.why_not(target.address) if target.address is not None else "" if self.networks else local_name(host)
        if why:
            raise Refused(f"{shown}: {host} {why}", hint=HINT)

    def why_not(self, address: Address) -> str:
        """Why an address may not be reached, "" when it may."""
        return "" if any(address in network for network in self.networks) else special(address)


def rules(blocked: Iterable[str] = (), allowed: Iterable[str] = (), networks: Iterable[str] = ()) -> HostRules:
    """Rules from what a person wrote; ConfigError names what is no host and no network."""
    made: list[Network] = []
    for text in networks:
        try:
            made.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError as error:
            raise ConfigError(f"{text!r} is not a network: {error}", hint="write it like 192.168.1.0/24") from None
    return HostRules(tuple(map(_parse_host, blocked)), tuple(map(_parse_host, allowed)), tuple(made))


def local_name(host: str) -> str:
    """Why a name is none of the public internet, "" when it may be one."""
    for names, why in NAMES:
        if any(host == name or host.endswith(f".{name}") for name in names):
            return why
    return "" if "." in host else "is a name of this network (it has no dot)"


def _find_covering(host: str, names: Iterable[str]) -> str:
    """The name in a list that a host is or lies under, "" when there is none."""
    return next((name for name in names if host == name or host.endswith(f".{name}")), "")


def _parse_host(name: str) -> str:
    """An entry of a list of hosts in the form hosts have; ConfigError for what is no host."""
    text = name.strip().removeprefix("*").removeprefix(".")
    try:
        return read_host(f"[{text}]" if ":" in text else text, repr(name))[0]
    except (BadInput, Refused) as error:
        raise ConfigError(f"{name!r} is not a host: {error.message}", hint="write it like example.org") from None
