"""Changed keys of the configuration that are not in force yet, and what they wait for."""

from msgspec import Struct


class Pending(Struct, frozen=True):
    """Keys by what they wait for: a renewed broker, or the next start."""

    broker: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    def plain(self) -> dict[str, str]:
        """For programs."""
        return {"broker": ", ".join(self.broker), "restart": ", ".join(self.restart)}

    def text(self) -> str:
        """In one line, "" for nothing."""
        waits = ((self.broker, "when the broker has answered what it is asked now"), (self.restart, "after a restart"))
        return "; ".join(f"{', '.join(keys)} {when}" for keys, when in waits if keys)


class Reloaded(Struct, frozen=True):
    """What a reload did: the keys that it has put in force, and those that wait."""

    changed: str
    pending: Pending
