"""Under which addresses a server is reached: which Host and Origin headers are right, and what cookies and URLs say.

A browser that was sent to us under another name (DNS rebinding), and a page of somebody else that calls us, both carry a name
that is not ours. Knows nothing about sockets and requests beyond these two headers.
"""

import ipaddress
from urllib.parse import urlsplit

from msgspec import Struct

from appliance.errors import ConfigError
from appliance.runtime.settings import WebSettings

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Site(Struct, frozen=True):
    """`hosts` are Host headers that are ours, `origins` the same with their scheme; `address` is what people are told."""

    address: str
    hosts: frozenset[str]
    origins: frozenset[str]
    is_encrypted: bool  # at the browser's end: by us, or by a proxy before us
    is_proxied: bool

    @property
    def cookie(self) -> str:
        """The name of the login's cookie: with the prefix, browsers take it from an encrypted answer of this host alone."""
        return "__Host-owlbox" if self.is_encrypted else "owlbox"


def build_site(host: str, port: int, *, has_tls: bool, address: str = "") -> Site:
    """The site of a server that listens at a host and port; `address` is the one that people use instead, such as a proxy's."""
    scheme = "https" if has_tls else "http"
    names = {host if ":" not in host else f"[{host}]", *(LOOPBACK if is_loopback(host) else ())}
    hosts = {_with_port(name, port, scheme) for name in names if name not in ("0.0.0.0", "[::]")}
    origins = {f"{scheme}://{one}" for one in hosts}
    own = f"{scheme}://{_with_port('localhost' if is_loopback(host) else host, port, scheme)}"
    if address:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise ConfigError(f"channels.web.address is {address!r}", key="channels.web.address", hint="such as https://owl.lan")
        own = f"{parts.scheme}://{parts.netloc.lower()}"
        hosts.add(parts.netloc.lower())
        origins.add(own)
    is_proxied = bool(address) and own.startswith("https:") and not has_tls
    return Site(own, frozenset(hosts), frozenset(origins), own.startswith("https:"), is_proxied)


def build_local_site() -> Site:
    """The site of a Unix socket, where clients name whatever host they like of these."""
    return Site("http://localhost", frozenset({"localhost", "owlbox"}), frozenset(), is_encrypted=False, is_proxied=False)


def page_address(keys: WebSettings) -> str:
    """Where people open the page of a configuration."""
    return build_site(keys.host, keys.port, has_tls=bool(keys.certificate), address=keys.address).address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _with_port(name: str, port: int, scheme: str) -> str:
    return name.lower() if port == {"http": 80, "https": 443}[scheme] else f"{name.lower()}:{port}"
