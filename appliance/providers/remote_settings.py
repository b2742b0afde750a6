"""What an adapter knows of a remote model: where it is, how long to wait for it, and what it can do.

Keys are asked for at each request and kept nowhere. Knows nothing about HTTP nor about any provider's format.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit, urlunsplit

from msgspec import Struct

from appliance.errors import ConfigError, ProviderError

WINDOW = 100_000  # of a model of which nobody says how much it reads (S-020)
NEAR = (".local", ".lan", ".home.arpa", ".internal", ".localhost")
KEY = "{key}"  # in the value of a header: the key is put there, and nowhere else
MIN_KEY_CHARS = 6  # shorter words are too common to hide
KEYLIKE = re.compile(r"(?<![\w./-])[A-Za-z0-9_-]{16,}(?![\w./-])")  # in a header of the configuration: neither address nor word


@dataclass(frozen=True)
class Remote:
    """A model of a provider, and what we may expect of it.

    `base_url` is as its documentation gives it, with a query that every request needs (Azure's api-version), if any.
    A value of `headers` with {key} in it takes the key's place: then the format's own header for it is not sent.
    `window` 0 asks the provider, and takes 100,000 where it does not say. `verify` may name a file of authorities.
    `learnt` is a file that holds yes or no: whether the model ends thoughts that it never opened.
    """

    provider: str
    kind: str  # a module of `formats`
    base_url: str
    model: str
    key: Callable[[], str] = field(repr=False)
    window: int = 0
    max_tokens: int = 8192
    timeout_s: float = 120
    headers: Mapping[str, str] = field(default_factory=dict)
    has_reasoning: bool = False
    has_tools: bool = True
    has_images: bool = False
    is_caching: bool = True
    verify: str | bool = True
    learnt: Path | None = None

    def __post_init__(self) -> None:
        if self.verify is False:
            raise ConfigError(
                f"provider {self.provider}: certificates are always verified",
                key=f"providers.{self.provider}",
                hint="name a file with the server's authority instead",
            )
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ConfigError(
                f"provider {self.provider}: {_hide_password(parts)!r} is not an address of a service",
                key=f"providers.{self.provider}.base_url",
                hint="give one such as https://api.example.com/v1",
            )

    @property
    def place(self) -> str:
        """Host and port, to be named in messages."""
        return urlsplit(self.base_url).netloc

    def url(self, path: str, query: str = "") -> str:
        """The address of a call: `path` behind the base's own, its query kept."""
        parts = urlsplit(self.base_url)
        whole = "&".join(part for part in (parts.query, query) if part)
        return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, whole, ""))

    def signed(self, header: str, form: str = KEY) -> dict[str, str]:
        """The headers of a request: those of the configuration, and the key in its place; nothing without a key."""
        key = self.key()
        self._check_key(key)
        found = {name: value.replace(KEY, key) for name, value in self.headers.items()}
        if key and not any(KEY in value for value in self.headers.values()):
            found[header] = form.replace(KEY, key)
        return found

    def secrets(self, keys: Iterable[str]) -> tuple[str, ...]:
        """What no answer may show: these keys, which were sent, and what else of the configured headers may be one."""
        words = [word for value in self.headers.values() for word in KEYLIKE.findall(value)]
        return (*(key for key in keys if len(key) >= MIN_KEY_CHARS), *words)

    def _check_key(self, key: str) -> None:
        """Refuse a key that no header can carry, and one that would be read by others on its way."""
        if not all("!" <= letter <= "~" for letter in key):
            raise ProviderError(
                f"the key of {self.provider} holds characters that no key has",
                hint="set it again, without spaces and line breaks",
                outcome="authentication_failed",
            )
        parts = urlsplit(self.base_url)
        if key and parts.scheme == "http" and not is_near(parts.hostname or ""):
            raise ProviderError(
                f"the key of {self.provider} would travel to {self.place} for all to read",
                hint="use an https address",
                outcome="invalid_request",
            )


class ListedModel(Struct, frozen=True):
    """A model that a provider offers; 0 where it does not say how much it reads and writes."""

    model: str
    window: int = 0
    max_tokens: int = 0


def is_near(host: str) -> bool:
    """True for this machine and the net around it."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.lower().endswith(NEAR)


def _hide_password(parts: SplitResult) -> str:
    """An address without what may be a password."""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
