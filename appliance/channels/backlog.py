"""Messages that a channel could not hand in yet, because their sender writes too much or the queue is full.

They are handed in later in the order of each sender, while those of others go on. For services that send again what was not
confirmed, but only a few times. Held in memory and bounded: what does not fit, and all of it after a kill, is left to the service.
"""

from collections.abc import Callable

from msgspec import Struct

from appliance.channels.contract import Intake, Received
from appliance.clock import monotonic_s
from appliance.errors import Busy

PAUSE_S = 1.0
MOST, MOST_CHARS = 2000, 8_000_000
TRIES = 20  # in vain, in one round: a full queue is not asked for every message


class _Held(Struct, frozen=True):
    received: Received
    confirm: Callable[[], None]


class Backlog:
    """What waits in one channel."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._chars = 0
        self._next_s = 0.0

    def __len__(self) -> int:
        return len(self._held)

    def hand_in(self, key: str, received: Received, intake: Intake, confirm: Callable[[], None]) -> None:
        """Hand a message in and confirm it, now or later; one that does not fit is neither. `key` names it to the service."""
        held = _Held(received, confirm)
        if key in self._held:
            self._held[key] = held  # sent again: the way to confirm it is another
        elif any(one.received.sender == received.sender for one in self._held.values()) or not self._try(held, intake):
            if len(self._held) < MOST and self._chars + len(received.text) <= MOST_CHARS:
                self._held[key] = held
                self._chars += len(received.text)

    def pause_s(self) -> float | None:
        """Until `retry` has something to do; None while nothing waits."""
        return max(0.0, self._next_s - monotonic_s()) if self._held else None

    def retry(self, intake: Intake) -> None:
        """Hand in what can be by now; nothing before its pause is over."""
        if self._next_s > monotonic_s():
            return
        busy: set[str] = set()
        for key, held in list(self._held.items()):
            if held.received.sender in busy:
                continue
            if self._try(held, intake):
                del self._held[key]
                self._chars -= len(held.received.text)
            else:
                busy.add(held.received.sender)
                if len(busy) >= TRIES:
                    break
        self._next_s = monotonic_s() + PAUSE_S

    def _try(self, held: _Held, intake: Intake) -> bool:
        try:
            intake.take(held.received)
        except Busy:
            return False
        held.confirm()
        return True
