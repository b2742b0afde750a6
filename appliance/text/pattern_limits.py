"""How long and how much one use of a pattern may take, and the errors that say it was too much.

Knows nothing of kinds of patterns. A caller that loops calls `check` in every step; what runs in another
engine gets `left_s` as its timeout.
"""

from appliance.clock import monotonic_s
from appliance.errors import DeadlineExceeded, TooLarge

VISIT_LIMIT = 500_000  # nodes that one evaluation may look at: what it keeps of them is memory
DEPTH_LIMIT = 100  # elements or containers inside each other


class PatternWatch:
    """The time that one use of a pattern has left."""

    def __init__(self, pattern: str, timeout_s: float, max_visits: int = VISIT_LIMIT) -> None:
        self._pattern = pattern
        self._timeout_s = timeout_s
        self._until_s = monotonic_s() + timeout_s
        self._max_visits = max_visits
        self._visits = 0

    def check(self) -> None:
        """Raise DeadlineExceeded when the time is over, TooLarge when too much was looked at."""
        self._visits += 1
        if self._visits > self._max_visits:
            raise TooLarge(
                f"the pattern {short(self._pattern)} looked at more than {self._max_visits:,} nodes",
                hint="name the steps of the path instead of * and ..",
            )
        if self._visits % 16 == 0 and monotonic_s() > self._until_s:
            raise self.over()

    def left_s(self) -> float:
        """Seconds until the deadline; DeadlineExceeded when there are none."""
        left_s = self._until_s - monotonic_s()
        if left_s <= 0:
            raise self.over()
        return left_s

    def over(self) -> DeadlineExceeded:
        """The error that says so."""
        message = f"the pattern {short(self._pattern)} took longer than {self._timeout_s:g} s"
        return DeadlineExceeded(message, hint="use a simpler pattern or a shorter text")


def short(text: str) -> str:
    """A pattern as an error message shows it."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def bounded(subject: str, limit: int, what: str) -> str:
    """The subject itself; TooLarge when it has more characters than that."""
    if len(subject) > limit:
        message = f"{what} has {len(subject):,} characters, a pattern may read {limit:,}"
        raise TooLarge(message, hint="match a part of it")
    return subject
