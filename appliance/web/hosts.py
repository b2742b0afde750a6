"""Which places on the net may be reached: what a URL means, and whether a host or an address is one of ours.

Owns the one reading of a URL for everything that is fetched, and the list of addresses that are not the public
internet. A host that could be read in two ways, such as `0177.1`, is refused, not guessed at. Pure: names are
resolved by `web.fetch`, which asks here about every address that comes back. Not promised: that a public server
does no harm, or does not pass a request on.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urljoin

from appliance.errors import BadInput, ConfigError, Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS = {"http": 80, "https": 443}
MAX_URL = 4096
UNSEEN = re.compile(r"[\x00-\x20\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
SAFE = "%/:=&?~+!$,;'@()*[]|"  # of a path and its query; whatever else is escaped
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
# What is not the public internet (IANA's special-purpose registries). The first that fits gives the reason.
SPECIAL: tuple[tuple[str, str], ...] = (
    ("169.254.169.254/32", "is a cloud's metadata service"),
    ("169.254.170.2/32", "is a cloud's metadata service"),
    ("168.63.129.16/32", "is a cloud's metadata service"),
    ("100.100.100.200/32", "is a cloud's metadata service"),
    ("fd00:ec2::254/128", "is a cloud's metadata service"),
    ("0.0.0.0/8", "is no address but `this host`"),
    ("10.0.0.0/8", "is in a private network"),
    ("172.16.0.0/12", "is in a private network"),
    ("192.168.0.0/16", "is in a private network"),
    ("100.64.0.0/10", "is behind a provider's address translation"),
    ("127.0.0.0/8", "is this machine (loopback)"),
    ("169.254.0.0/16", "is on this link only (link-local)"),
    ("192.0.0.0/24", "is reserved for protocols"),
    ("192.0.2.0/24", "is for documentation"),
    ("198.51.100.0/24", "is for documentation"),
    ("203.0.113.0/24", "is for documentation"),
    ("192.88.99.0/24", "is a relay of 6to4"),
    ("198.18.0.0/15", "is for benchmarks"),
    ("224.0.0.0/4", "is multicast"),
    ("255.255.255.255/32", "is broadcast"),
    ("240.0.0.0/4", "is reserved"),
    ("::/128", "is no address (unspecified)"),
    ("::1/128", "is this machine (loopback)"),
    ("::/96", "has an IPv4 address in it, in a form nobody uses"),
    ("64:ff9b:1::/48", "is a private translation to IPv4"),
    ("100::/64", "leads nowhere (discard)"),
    ("2001::/32", "is a tunnel (Teredo)"),
    ("2001:2::/48", "is for benchmarks"),
    ("2001:db8::/32", "is for documentation"),
    ("2001::/23", "is reserved for protocols"),
    ("2002::/16", "is a tunnel (6to4)"),
    ("3fff::/20", "is for documentation"),
    ("fc00::/7", "is in a private network"),
    ("fe80::/10", "is on this link only (link-local)"),
    ("fec0::/10", "is in a private network (site-local)"),
    ("ff00::/8", "is multicast"),
)
TABLE: tuple[tuple[Network, str], ...] = tuple((ipaddress.ip_network(text), why) for text, why in SPECIAL)
MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")  # IPv4 as IPv6 sockets show it
TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # how a network without IPv4 reaches the public IPv4 internet
PUBLIC = ipaddress.IPv6Network("2000::/3")
ISATAP = (0x00005EFE, 0x02005EFE)  # third word of an address that carries an IPv4 one in its fourth


@dataclass(frozen=True)
class Target:
    """What a URL means: `url` in its one form, the host in ASCII, `path` as it is asked for, `address` of a literal."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    address: Address | None = None

    @property
    def authority(self) -> str:
        """Host and port as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port: what secrets of a request are for."""
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True)
class Rules:
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
        if found := _covering(host, self.blocked):
            raise Refused(f"{shown}: {found} is blocked", hint="fetch from another host", outcome="blocked_host")
        if self.allowed and not _covering(host, self.allowed):
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


def rules(blocked: Iterable[str] = (), allowed: Iterable[str] = (), networks: Iterable[str] = ()) -> Rules:
    """Rules from what a person wrote; ConfigError names what is no host and no network."""
    made: list[Network] = []
    for text in networks:
        try:
            made.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError as error:
            raise ConfigError(f"{text!r} is no network: {error}", hint="write it like 192.168.1.0/24") from None
    return Rules(tuple(map(_listed, blocked)), tuple(map(_listed, allowed)), tuple(made))


def parse(url: str) -> Target:
    """What a URL means; BadInput for what is none, Refused for one in a form that hides where it leads."""
    text = url.strip(" \t\r\n")
    shown = repr(text[:200])
    if len(text) > MAX_URL:
        raise BadInput(f"the URL has {len(text)} characters, the limit is {MAX_URL}", hint="shorten it")
    found = SCHEME.match(text)
    is_bare = found is not None and not text.startswith("//", found.end())
    if found is None or (is_bare and (found[1].lower() in PORTS or "." in found[1] or text[found.end() :][:1].isdigit())):
        raise BadInput(f"{shown} is no whole URL", hint="write it like https://host/page", outcome="invalid_arguments")
    scheme = found[1].lower()
    if scheme not in PORTS:
        raise Refused(f"{shown}: {scheme} cannot be fetched", hint="only http and https are", outcome="bad_scheme")
    authority, path = _split(text[found.end() + 2 :])
    if why := _disguise(authority):
        raise Refused(f"{shown} {why}", hint="write host and path plainly")
    host, port = _host_port(authority, shown, PORTS[scheme])
    host, address = _host(host, shown)
    bare = Target("", scheme, host, port, _escaped(path), address)
    return Target(f"{bare.origin}{bare.path}", scheme, host, port, bare.path, address)


def follow(before: Target, location: str) -> Target:
    """Where a redirect leads; BadInput or Refused as for `parse`."""
    if "\\" in location:
        raise Refused(f"a redirect of {before.url} has a backslash in it", hint="fetch another page")
    try:
        return parse(urljoin(before.url, location.strip(" \t\r\n")))
    except ValueError:
        raise BadInput(f"{before.url} redirects to {location[:200]!r}, which is no URL", hint="fetch another page") from None


def special(address: Address) -> str:
    """Why an address is not one of the public internet, "" when it is."""
    for network, why in TABLE:
        if address.version == network.version and address in network:
            return why
    if isinstance(address, ipaddress.IPv4Address):
        return ""
    if address in MAPPED or address in TRANSLATED:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return f"has {inner} in it, which {why}" if (why := special(inner)) else ""
    if address not in PUBLIC:
        return "is reserved"
    if int(address) >> 32 & 0xFFFFFFFF in ISATAP:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return f"has {inner} in it, which {why}" if (why := special(inner)) else ""
    return ""


def local_name(host: str) -> str:
    """Why a name is none of the public internet, "" when it may be one."""
    for names, why in NAMES:
        if any(host == name or host.endswith(f".{name}") for name in names):
            return why
    return "" if "." in host else "is a name of this network (it has no dot)"


# -- reading a URL -----------------------------------------------------------------------------------


def _split(rest: str) -> tuple[str, str]:
    """Authority and path with its query, without the fragment."""
    end = next((i for i, c in enumerate(rest) if c in "/?#"), len(rest))
    path = rest[end:].partition("#")[0]
    return rest[:end], path if path.startswith("/") else f"/{path}"


def _disguise(authority: str) -> str:
    """What about an authority might make two readers see two hosts, "" for nothing."""
    if UNSEEN.search(authority):
        return "has a space, a line break or an invisible character in its host"
    if "\\" in authority:
        return "has a backslash before its path"
    if "@" in authority:
        return "has a user name or password in it"
    if "%" in authority:
        return "has a percent sign in its host"
    return ""


def _host_port(authority: str, shown: str, usual: int) -> tuple[str, int]:
    host, mark, port = authority, "", ""
    if not authority.startswith("["):
        host, mark, port = authority.partition(":")
    elif "]" in authority:
        inner, _, after = authority.partition("]")
        host, mark, port = inner + "]", after[:1], after[1:]
    if not host:
        raise BadInput(f"{shown} names no host", hint="write it like https://host/page", outcome="invalid_arguments")
    if (mark not in ("", ":")) or (port and not (port.isascii() and port.isdecimal() and len(port) <= 5)):
        raise BadInput(f"{shown}: the port is no number", hint="write it like https://host:8443/page", outcome="invalid_arguments")
    number = int(port) if port else usual
    if number > 65535:
        raise BadInput(f"{shown}: there is no port {number}", hint="ports end at 65535", outcome="invalid_arguments")
    return host, number


def _host(text: str, shown: str) -> tuple[str, Address | None]:
    """A host in its one form, and the address it is if it is one."""
    if text.startswith("["):
        try:
            six = ipaddress.IPv6Address(text[1:-1] if text.endswith("]") else text)
        except ValueError:
            raise BadInput(f"{shown}: {text} is no IPv6 address", hint="write it like [2606:4700::1111]") from None
        return six.compressed, six
    host = _ascii(text, shown).lower()
    host = host[:-1] if host.endswith(".") else host
    labels = host.split(".")
    if NUMERIC.fullmatch(labels[-1]):
        four = _ipv4(labels)
        if four is None:
            raise Refused(f"{shown}: {host} is no IPv4 address, and no name ends with a number", hint=HINT)
        if str(four) != host:
            why = special(four) or "is hidden so"
            raise Refused(f"{shown}: {host} is an unusual form of {four}, which {why}", hint=HINT)
        return host, four
    if len(host) > 253 or not all(LABEL.fullmatch(label) for label in labels):
        raise BadInput(
            f"{shown}: {host[:80]!r} is no name of a host", hint="letters, digits, - and dots", outcome="invalid_arguments"
        )
    return host, None


def _ascii(text: str, shown: str) -> str:
    """A name as it is looked up: other scripts as Punycode, other forms of letters, digits and dots as the plain ones."""
    if text.isascii():
        return text
    import idna  # tables that hardly anybody needs

    try:
        mapped = idna.uts46_remap(text, std3_rules=True)
        return mapped if mapped.isascii() else idna.encode(mapped, uts46=True, std3_rules=True).decode()
    except (idna.IDNAError, UnicodeError):
        raise BadInput(f"{shown}: its host is no name", hint="check how it is written", outcome="invalid_arguments") from None


def _ipv4(labels: list[str]) -> ipaddress.IPv4Address | None:
    """The address that browsers and C libraries read in these numbers: decimal, octal, hexadecimal, fewer than four."""
    numbers = []
    for label in labels:
        base = 16 if label.startswith("0x") else 8 if len(label) > 1 and label.startswith("0") else 10
        try:
            numbers.append(int(label.removeprefix("0x") or "0", base) if len(label) < 80 else -1)
        except ValueError:
            return None
    if len(numbers) > 4 or any(n > 255 for n in numbers[:-1]) or min(numbers) < 0:
        return None
    value = numbers[-1]
    if value >= 256 ** (5 - len(numbers)):
        return None
    for i, number in enumerate(numbers[:-1]):
        value += number << (24 - 8 * i)
    return ipaddress.IPv4Address(value)


def _escaped(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe=SAFE)


def _covering(host: str, names: Iterable[str]) -> str:
    """The name in a list that a host is or lies under, "" when there is none."""
    return next((name for name in names if host == name or host.endswith(f".{name}")), "")


def _listed(name: str) -> str:
    """An entry of a list of hosts in the form hosts have; ConfigError for what is no host."""
    text = name.strip().removeprefix("*").removeprefix(".")
    try:
        return _host(f"[{text}]" if ":" in text else text, repr(name))[0]
    except (BadInput, Refused) as error:
        raise ConfigError(f"{name!r} is no host: {error.message}", hint="write it like example.org") from None
