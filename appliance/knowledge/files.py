"""What the verbs need of files on the disk, as a port: an entry of a workspace is a file there, and changes with it.

`ingest/workspace_sync` has the real ones. Knows nothing about how files are read or written.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from appliance.knowledge.entries import Entry


class Followers(Protocol):
    """Files that follow their entries when an undo brings those back, by their stored path; paths of others are left alone."""

    def refresh_files(self, paths: Sequence[str]) -> None:
        """Bring entries in line with these files."""
        ...

    def restore(self, old: Entry | None, new: Entry | None) -> None:
        """Follow an entry that was brought back to what it was: `old` as it stood, `new` as it stands, None for none."""
        ...


class Files(Followers, Protocol):
    """Files of a workspace, by their stored path."""

    def has_file(self, path: str, scope: str) -> bool:
        """Whether an entry of this path and scope is a file on the disk, or would be one."""
        ...

    def veto(self, path: str) -> str:
        """The reason to refuse a change of this path; "" to accept it."""
        ...

    def changed(self, path: str) -> str:
        """The reason why a file differs from its entry; "" when it does not."""
        ...

    def write(self, path: str, content: str | bytes, like: str) -> Callable[[Entry], None]:
        """The file holds this, durably; what is to be called with its entry. Mode and form are those of the file `like`."""
        ...

    def remove(self, path: str) -> None:
        """The file is gone, durably."""
        ...


class NoFiles:
    """Where there is no workspace: entries alone."""

    def has_file(self, path: str, scope: str) -> bool:
        return False

    def veto(self, path: str) -> str:
        return ""

    def refresh_files(self, paths: Sequence[str]) -> None: ...

    def changed(self, path: str) -> str:
        return ""

    def write(self, path: str, content: str | bytes, like: str) -> Callable[[Entry], None]:
        return lambda entry: None

    def remove(self, path: str) -> None: ...

    def restore(self, old: Entry | None, new: Entry | None) -> None: ...
