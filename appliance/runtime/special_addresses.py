"""Which IP addresses are not the public internet, and why: private networks, this machine, metadata services, tunnels.

Pure, and about addresses alone: the public addresses of this machine and of its links are known to `web.addresses`.
"""

import ipaddress

from appliance.text.urls import Address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

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
