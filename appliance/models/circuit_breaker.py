"""A circuit breaker: a service that failed several times in a row is left alone for a while.

Counts failures of requests, not of their repetitions: whoever asks says which is which. Pure: the caller brings the
time. Knows nothing about models; one object for each service. Forgets everything when its process ends.
"""

from msgspec import Struct
from msgspec.structs import replace

FAILURES = 3
OPEN_S = 60.0


class Standing(Struct, frozen=True):
    """What is known of a service: failures in a row, until when it is skipped, and what the last one said."""

    failures: int = 0
    until_s: float = 0.0
    why: str = ""


class Breaker:
    """Decides whether a service is asked."""

    def __init__(self, failures: int = FAILURES, open_s: float = OPEN_S) -> None:
        self._limit = failures
        self._open_s = open_s
        self.standing = Standing()

    def left_s(self, now_s: float) -> float:
        """For how long it is still skipped; 0 when it may be asked."""
        return max(0.0, self.standing.until_s - now_s)

    def failed(self, now_s: float, why: str) -> bool:
        """A request has failed; True when that opened it. After a pause one failure more opens it again."""
        count = self.standing.failures + 1
        is_open = count >= self._limit
        until_s = now_s + self._open_s if is_open else self.standing.until_s
        self.standing = replace(self.standing, failures=count, until_s=until_s, why=why)
        return is_open

    def succeeded(self) -> None:
        """A request was answered: everything is forgotten."""
        self.standing = Standing()

    reset = succeeded
