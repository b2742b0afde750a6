"""What a receiving server found out about who sent a mail: SPF, DKIM and DMARC, out of its `Authentication-Results`.

Only the topmost header of the one server that the configuration names is read: a sender can write such headers too, below. The
server has to remove those that come in under its own name (RFC 8601, section 5). A header that could be read in two ways proves
nothing. Pure; checks no signature itself.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

MAX_CHARS = 8000
HARMLESS = re.compile(r'="([A-Za-z0-9+/=@._-]*)"')  # a quoted value that needs no quotes, as OpenDKIM writes header.b
RESULT = re.compile(r"\s*(spf|dkim|dmarc)\s*=\s*([a-z]+)\b", re.IGNORECASE)
PROPERTY = re.compile(r"\b(smtp\.mailfrom|header\.d|header\.from)\s*=\s*([^\s;]+)", re.IGNORECASE)


class Authentication(Struct, frozen=True):
    """The results as they were found, "" for one that there is not; `is_proven`: one of them proves the sender's domain."""

    spf: str = ""
    dkim: str = ""
    dmarc: str = ""
    is_proven: bool = False


def read_results(headers: Sequence[str], trusted_server: str, address: str) -> Authentication:
    """What the trusted server found, of the `Authentication-Results` of a mail, topmost first, whose sender is `address`."""
    wanted = trusted_server.strip().casefold()
    for header in headers if wanted else ():
        text = _without_comments(" ".join(header.split())[:MAX_CHARS])
        if text is None:
            if header.strip().casefold().startswith(wanted):
                return Authentication()
            continue
        server, _, rest = text.partition(";")
        if server.strip().partition(" ")[0].casefold() == wanted:
            return _judge(rest.split(";"), address.rpartition("@")[2].casefold())
    return Authentication()


def _without_comments(text: str) -> str | None:
    """The header without comments; None for one with quotes or parentheses that a sender may have put there."""
    text = HARMLESS.sub(r"=\1", text)
    if '"' in text or "\\" in text:
        return None
    kept: list[str] = []
    depth = 0
    for char in text:
        if char == ")":
            depth -= 1
            if depth < 0:
                return None
        elif char == "(":
            depth += 1
        elif not depth:
            kept.append(char)
    return "".join(kept) if not depth else None


def _judge(results: Sequence[str], domain: str) -> Authentication:
    found: dict[str, list[tuple[str, dict[str, str]]]] = {"spf": [], "dkim": [], "dmarc": []}
    for one in results:
        if head := RESULT.match(one):
            properties = {name.lower(): value.casefold() for name, value in PROPERTY.findall(one)}
            found[head[1].lower()].append((head[2].lower(), properties))
    spf, dkim, dmarc = (found[name] for name in ("spf", "dkim", "dmarc"))
    is_clear = len(spf) < 2 and len(dmarc) < 2
    is_proven = is_clear and not (dmarc and dmarc[0][0] not in ("pass", "none"))
    is_proven = is_proven and (
        any(result == "pass" and _is_aligned(domain, more.get("header.d", "")) for result, more in dkim)
        or any(result == "pass" and more.get("header.from", "") == domain for result, more in dmarc)
        or any(result == "pass" and _is_aligned(domain, more.get("smtp.mailfrom", "").rpartition("@")[2]) for result, more in spf)
    )
    spoken = {name: " ".join(result for result, _ in results) for name, results in found.items()}
    return Authentication(spoken["spf"], spoken["dkim"], spoken["dmarc"], bool(is_proven and domain))


def _is_aligned(domain: str, proven: str) -> bool:
    """Whether a proven domain speaks for the sender's: it is the same, or one above it that is no top-level domain."""
    return "." in proven and (domain == proven or domain.endswith(f".{proven}"))
