"""The prompt documents and HEARTBEAT.md at the local socket: read by everybody, written by admins.

The files belong to the core's user, because they speak to every conversation; this is how people of the box change them.
"""

from collections.abc import Callable
from typing import Annotated, Any

from appliance.runtime.jsonrpc import Call, method
from appliance.runtime.signatures import Range

Name = Annotated[str, Range(1, 64), "such as USER or HEARTBEAT"]


class Documents:
    """The method table of documents."""

    def __init__(self, names: tuple[str, ...], read: Callable[[str], str], write: Callable[[str, str, int], str]) -> None:
        """`write` takes a name, the text and the user's number, and returns the file's path below box/."""
        self._names, self._read, self._write = names, read, write

    @method("document.list", access="all")
    def listing(self, call: Call) -> list[str]:
        """The names that there are."""
        return list(self._names)

    @method("document.view", access="all")
    def view(self, call: Call, name: Name) -> dict[str, Any]:
        """A document as its file is, "" for none."""
        return {"name": name, "text": self._read(name)}

    @method("document.write")
    def write(self, call: Call, name: Name, text: Annotated[str, "the whole document"]) -> dict[str, Any]:
        """Put this in the place of a document; it counts from the next message."""
        return {"name": name, "path": self._write(name, text, call.uid)}
