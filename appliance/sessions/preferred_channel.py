"""The channel that USER.md names: by which a person or group would rather be told (A-249).

Reads `box/USER.md` and `box/users/NAME/USER.md` each time it is asked, at most the first 64 KB of a file. Knows nothing about
which channels are open.
"""

import re
from pathlib import Path

from appliance.errors import BadInput
from appliance.text import markdown

PERSON = "USER.md"
MAX_BYTES = 64 * 1024
PREFERRED = re.compile(
    r"^[ \t]*(?:[-*][ \t]+)?\**preferred[_ ]channel\**[ \t]*:\**[ \t]*`?([\w./@:-]+)`?[ \t]*$", re.IGNORECASE | re.MULTILINE
)


class PreferredChannel:
    """Looks it up."""

    def __init__(self, box: Path) -> None:
        self._box = box

    def find(self, context: str) -> str:
        """The channel that USER.md names for a context, its own or the box's; "" for none."""
        kind, _, name = context.partition(":")
        own = self._box / f"{kind}s" / name / PERSON
        for path in (own, self._box / PERSON):
            if name not in ("", ".", "..") and "/" not in name and (found := _read_channel(path)):
                return found
        return ""


def _read_channel(path: Path) -> str:
    """The preferred channel that a document names, in its front matter or on a line; "" for none."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
        front, body = markdown.split(text)
    except OSError:
        return ""
    except BadInput:
        front, body = {}, text
    if isinstance(given := front.get("preferred_channel"), str):
        return _lower_channel(given.strip())
    found = PREFERRED.search(markdown.visible(body))
    return _lower_channel(found[1]) if found else ""


def _lower_channel(channel: str) -> str:
    """The channel in small letters; a place of it is called as its service calls it."""
    name, slash, place = channel.partition("/")
    return f"{name.lower()}{slash}{place}"
