"""URLs: what one means, in its one form, for everything that judges, shows or fetches it.

The only reader of a web address: control characters, line breaks, backslashes and invisible characters are refused, never
stripped; a host is written as it is looked up (IDNA), a path without dot segments and with escapes only where they are
needed. A host that could be read in two ways, such as `0177.1`, is refused, not guessed at. Two slashes are not one. Pure:
whether a host may be reached is judged by `web.hosts`.
"""

import ipaddress
import re
import unicodedata
from urllib.parse import quote, urljoin

from msgspec import Struct

from appliance.errors import BadInput, Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = {"http": 80, "https": 443}
MAX_URL = 4096
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of characters that no reader sees: control, format, halves, line ends
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")  # never escaped
SAFE = "%/:=&?~+!$,;'@()*[]|"  # of a path and its query; whatever else is escaped
HINT = "write host and path plainly"
# Between what a link of Markdown is called and its address, in place or below: of whatever scheme, also spelt with entities.
NAMED_LINK = re.compile(r"\](?=[(:]\s*<?(?:[a-z][a-z0-9+.-]*:|//|&|\\))", re.IGNORECASE | re.ASCII)


class Target(Struct, frozen=True):
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
    def name(self) -> str:
        """The host as people write it: in its own script, an IPv6 address in brackets."""
        if "xn--" in self.host:
            import idna  # tables that hardly anybody needs

            try:
                return idna.decode(self.host)
            except (idna.IDNAError, UnicodeError):
                return self.host
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def origin(self) -> str:
        """Scheme, host and port: what secrets of a request are for."""
        return f"{self.scheme}://{self.authority}"


def parse(url: str) -> Target:
    """What a URL means; BadInput for what is none, Refused for one in a form that hides where it leads, or what it carries."""
    text = url.strip(" \t\r\n")
    shown = ascii(text[:200])
    if len(text) > MAX_URL:
        raise BadInput(f"the URL has {len(text)} characters, the limit is {MAX_URL}", hint="shorten it")
    found = SCHEME.match(text)
    is_bare = found is not None and not text.startswith("//", found.end())
    if found is None or (is_bare and (found[1].lower() in PORTS or "." in found[1] or text[found.end() :][:1].isdigit())):
        raise BadInput(f"{shown} is not a whole URL", hint="write it like https://host/page", outcome="invalid_arguments")
    scheme = found[1].lower()
    if scheme not in PORTS:
        raise Refused(f"{shown}: {scheme} cannot be fetched", hint="only http and https are", outcome="bad_scheme")
    authority, path = _split_authority(text[found.end() + 2 :])
    if why := _find_disguise(authority) or _find_hidden(text):
        raise Refused(f"{shown} {why}", hint=HINT)
    host, port = _host_port(authority, shown, PORTS[scheme])
    host, address = read_host(host, shown)
    bare = Target("", scheme, host, port, _normalize_path(path), address)
    return Target(f"{bare.origin}{bare.path}", scheme, host, port, bare.path, address)


def follow(before: Target, location: str) -> Target:
    """Where a redirect leads; BadInput or Refused as for `parse`."""
    location = location.strip(" \t\r\n")
    if why := _find_hidden(location):  # `urljoin` would drop some of it
        raise Refused(f"a redirect of {before.url} {why}", hint="fetch another page")
    try:
        return parse(urljoin(before.url, location))
    except ValueError:
        raise BadInput(f"{before.url} redirects to {location[:200]!r}, which is not a URL", hint="fetch another page") from None


# -- reading a URL -----------------------------------------------------------------------------------


def _split_authority(rest: str) -> tuple[str, str]:
    """Authority and path with its query, without the fragment."""
    end = next((i for i, c in enumerate(rest) if c in "/?#"), len(rest))
    path = rest[end:].partition("#")[0]
    return rest[:end], path if path.startswith("/") else f"/{path}"


def _find_disguise(authority: str) -> str:
    """What about an authority might make two readers see two hosts, "" for nothing."""
    if any(letter.isspace() or unicodedata.category(letter) in UNSEEN for letter in authority):
        return "has a space, a line break or an invisible character in its host"
    if "\\" in authority:
        return "has a backslash before its path"
    if "@" in authority:
        return "has a user name or password in it"
    if "%" in authority:
        return "has a percent sign in its host"
    return ""


def _find_hidden(path: str) -> str:
    """What of a path, its query and fragment a person would not see or two readers would read differently, "" for nothing."""
    if "\\" in path:
        return "has a backslash in its path"
    if any(unicodedata.category(letter) in UNSEEN for letter in path):
        return "has a line break, a control character or an invisible one in its path"
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
        raise BadInput(
            f"{shown}: the port is not a number", hint="write it like https://host:8443/page", outcome="invalid_arguments"
        )
    number = int(port) if port else usual
    if number > 65535:
        raise BadInput(f"{shown}: there is no port {number}", hint="ports end at 65535", outcome="invalid_arguments")
    return host, number


def read_host(text: str, shown: str) -> tuple[str, Address | None]:
    """A host in its one form, and the address it is if it is one."""
    if text.startswith("["):
        try:
            six = ipaddress.IPv6Address(text[1:-1] if text.endswith("]") else text)
        except ValueError:
            raise BadInput(f"{shown}: {text} is not an IPv6 address", hint="write it like [2606:4700::1111]") from None
        return six.compressed, six
    host = _encode_name(text, shown).lower()
    host = host[:-1] if host.endswith(".") else host
    labels = host.split(".")
    if NUMERIC.fullmatch(labels[-1]):
        four = _parse_ipv4(labels)
        if four is None:
            raise Refused(f"{shown}: {host} is not an IPv4 address, and no name ends with a number", hint=HINT)
        if str(four) != host:
            raise Refused(f"{shown}: {host} is an unusual form of {four}", hint=HINT)
        return host, four
    if len(host) > 253 or not all(LABEL.fullmatch(label) for label in labels):
        raise BadInput(
            f"{shown}: {host[:80]!r} is not a name of a host", hint="letters, digits, - and dots", outcome="invalid_arguments"
        )
    return host, None


def _encode_name(text: str, shown: str) -> str:
    """A name as it is looked up: other scripts as Punycode, other forms of letters, digits and dots as the plain ones."""
    if text.isascii():
        return text
    import idna  # tables that hardly anybody needs

    try:
        mapped = idna.uts46_remap(text, std3_rules=True)
        return mapped if mapped.isascii() else idna.encode(mapped, uts46=True, std3_rules=True).decode()
    except (idna.IDNAError, UnicodeError):
        raise BadInput(f"{shown}: its host is not a name", hint="check how it is written", outcome="invalid_arguments") from None


def _parse_ipv4(labels: list[str]) -> ipaddress.IPv4Address | None:
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


def _normalize_path(path: str) -> str:
    """A path with its query in its one form: without dot segments, escaped where it has to be and nowhere else."""
    path, mark, query = quote(path.encode("utf-8", "surrogatepass"), safe=SAFE).partition("?")
    path, query = ESCAPE.sub(_normalize_escape, path), ESCAPE.sub(_normalize_escape, query)
    kept: list[str] = []
    names = path.split("/")[1:]
    for at, name in enumerate(names):
        if name not in (".", ".."):
            kept.append(name)
            continue
        if name == ".." and kept:
            kept.pop()
        if at == len(names) - 1:
            kept.append("")
    return f"/{'/'.join(kept)}{mark}{query}"


def _normalize_escape(found: re.Match[str]) -> str:
    """An escape in its one form: a letter that needs none as itself, a percent sign that begins none as one."""
    if not found[1]:
        return "%25"
    letter = chr(int(found[1], 16))
    return letter if letter in UNRESERVED else found[0].upper()


def network_of(address: str) -> str:
    """What attempts and connections from an address are counted for: itself, or of IPv6 the /64 that one subscriber has all of."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def show_addresses(text: str) -> str:
    """Markdown whose links show where they lead: `[here](https://…)` becomes `[here] (https://…)`."""
    return NAMED_LINK.sub("] ", text)
