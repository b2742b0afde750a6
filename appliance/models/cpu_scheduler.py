"""Who may use the CPU now: one generation at a time, the urgent first, everybody in the end.

A turn is held while tokens are computed and given up at safe points (`rest`): between two tokens, or two
chunks of a prompt. People come before background work; a person's short look-up (an embedding) comes
before both; embeddings in bulk take what is left. Between people turns go round, so that nobody waits for
somebody else's long answer. Waiting is parked, never polled. Knows nothing about models: `place` is
whatever has to be in memory, and two places never work at once.
"""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from msgspec import Struct

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Busy, Cancelled, DeadlineExceeded

QUANTUM_S = 1.0  # how long one person may go on while another waits


class Rank(IntEnum):
    """The order of the queue."""

    QUICK = 0
    PERSON = 1
    BACKGROUND = 2
    GAP = 3


# Started and not yet ended, a paused one included: each holds a sequence of the model's memory.
LIMITS = {Rank.QUICK: 16, Rank.PERSON: 4, Rank.BACKGROUND: 2, Rank.GAP: 16}
GENERATING = (Rank.PERSON, Rank.BACKGROUND)


class TurnRequest(Struct, frozen=True):
    """What somebody wants the CPU for. `is_alone` waits until nothing else has been begun."""

    rank: Rank
    person: str = ""
    place: object = None
    is_alone: bool = False


@dataclass(eq=False)
class Turn:
    """One request's turn, from waiting to the end."""

    scheduler: "CpuScheduler"
    wish: TurnRequest
    cancel: CancelToken
    number: int
    since_s: float = 0.0
    rested_s: float = 0.0
    has_begun: bool = False
    is_wanted: bool = False
    must_leave: bool = False

    def rest(self) -> None:
        """A safe point: let a more urgent turn go first. Cancelled when stopped meanwhile, Busy when it cannot go on."""
        self.scheduler.rest(self)


class CpuScheduler:
    """Hands out turns."""

    def __init__(self, quantum_s: float = QUANTUM_S) -> None:
        self._quantum_s = quantum_s
        self._changed = threading.Condition()
        self._waiting: list[Turn] = []
        self._begun: list[Turn] = []
        self._holder: Turn | None = None
        self._numbers = itertools.count(1)
        self._served: dict[str, int] = {}

    @property
    def is_taken(self) -> bool:
        """True while somebody computes."""
        return self._holder is not None

    @property
    def waiting(self) -> int:
        """The number of requests that wait for their turn."""
        return len(self._waiting)

    @contextmanager
    def turn(self, wish: TurnRequest, cancel: CancelToken, deadline_s: float) -> Iterator[Turn]:
        """Hold a turn for a with block; Cancelled or DeadlineExceeded when it does not come in time."""
        turn = Turn(self, wish, cancel, next(self._numbers))
        forget = cancel.then(self._wake_waiting)
        try:
            with self._changed:
                self._waiting.append(turn)
                self._assign_cpu()
                self._changed.wait_for(lambda: self._holder is turn or cancel.is_set(), deadline_s)
                if cancel.is_set():
                    raise Cancelled("stopped while waiting for the model")
                if self._holder is not turn:
                    raise DeadlineExceeded(
                        f"the model was busy for {round(deadline_s, 2):g} s", hint="try again when the other answer is done"
                    )
            yield turn
        finally:
            forget()
            self._leave_queue(turn)

    def rest(self, turn: Turn) -> None:
        """See `Turn.rest`."""
        if not self._waiting and not turn.must_leave:
            return
        with self._changed:
            if not turn.must_leave:
                first = self._next_turn()
                if first is None or not self._goes_before(first, turn):
                    return
                started_s = monotonic_s()
                self._holder = None
                self._waiting.append(turn)
                self._assign_cpu()
                self._changed.wait_for(lambda: self._holder is turn or turn.cancel.is_set() or turn.must_leave)
                turn.rested_s += monotonic_s() - started_s
            if turn.cancel.is_set():
                raise Cancelled("stopped while others went first")
            if turn.must_leave:
                raise Busy("another model was needed for a person's question", hint="it is tried again when that is answered")

    # -- inside, all under the condition -------------------------------------------------------------

    def _leave_queue(self, turn: Turn) -> None:
        with self._changed:
            for turns in (self._waiting, self._begun):
                if turn in turns:
                    turns.remove(turn)
            if self._holder is turn:
                self._holder = None
            if not self._waiting and not self._begun:
                self._served.clear()
            self._assign_cpu()

    def _assign_cpu(self) -> None:
        """Give a free CPU to the first in line, and tell the holder whether it is in anybody's way."""
        first = self._next_turn()
        if self._holder is None and first is not None:
            self._waiting.remove(first)
            if not first.has_begun:
                first.has_begun = True
                self._begun.append(first)
            self._holder, first.since_s = first, monotonic_s()
            self._served[first.wish.person] = next(self._numbers)
            first = self._next_turn()
        if self._holder is not None:
            is_urgent = first is not None and first.wish.rank < self._holder.wish.rank
            self._holder.is_wanted = is_urgent or self._holder.must_leave
        self._changed.notify_all()

    def _next_turn(self) -> Turn | None:
        """The waiting turn that comes next: by rank, then the person served longest ago, then who came first."""
        able = [t for t in self._waiting if not t.cancel.is_set() and self._may_begin(t)]
        return min(able, key=lambda t: (t.wish.rank, self._served.get(t.wish.person, 0), t.number), default=None)

    def _may_begin(self, turn: Turn) -> bool:
        if turn.has_begun:
            return not turn.must_leave
        wish = turn.wish
        if wish.is_alone:
            return not self._begun
        if sum(t.wish.rank == wish.rank for t in self._begun) >= LIMITS[wish.rank]:
            return False
        if wish.rank not in GENERATING:
            return True
        elsewhere = [t for t in self._begun if t.wish.rank in GENERATING and t.wish.place is not wish.place]
        if elsewhere and wish.rank is Rank.PERSON:
            for other in elsewhere:
                # Two models do not fit: what works in the background begins anew later.
                other.must_leave = other.wish.rank is Rank.BACKGROUND
        return not elsewhere

    def _goes_before(self, first: Turn, holder: Turn) -> bool:
        if first.wish.rank != holder.wish.rank:
            return first.wish.rank < holder.wish.rank
        return first.wish.person != holder.wish.person and monotonic_s() - holder.since_s >= self._quantum_s

    def _wake_waiting(self) -> None:
        with self._changed:
            self._assign_cpu()
