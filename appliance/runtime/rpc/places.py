"""How many connections and calls a listener serves at a time: of everybody, of all who are not its owners, and of one person.

Users of this machine are told apart by their user id, and only owners from others; whoever came with a login is counted as the
person, however many addresses, connections and user ids that person comes with. Knows nothing about what is called.
"""

import threading
from collections.abc import Collection, Iterable

from appliance.errors import Busy
from appliance.runtime.jsonrpc import Peer

KEPT_CONNECTIONS = 8  # that only owners may have
LEAST_CONNECTIONS = 4  # of one person: what a page in a browser needs
PARTS = 3  # one person has a third of what is there for all but owners


class Places:
    """The places of one listener."""

    def __init__(self, owners: Collection[int], *, connections: int, long_calls: int, threads: int) -> None:
        """Places are kept for the users in `owners`, whatever others do."""
        self._owners = owners
        self._kept = min(KEPT_CONNECTIONS, connections // 4)
        self._connections = connections
        self._all_long = threading.BoundedSemaphore(long_calls)
        self._others_long = threading.BoundedSemaphore(max(1, long_calls * 3 // 4))
        self._others_quick = threading.Semaphore(max(1, threads // 2))
        self._long_of_one = max(1, long_calls * 3 // 4 // PARTS)
        self._quick_of_one = max(1, threads // 2 // PARTS)
        self._guard = threading.Lock()
        self._of_persons: dict[str, tuple[threading.Semaphore, threading.Semaphore]] = {}  # long and quick, made when they come

    def free_connections(self, peer: Peer, taken: int) -> int:
        """How many more connections there may be for this caller, of whom only the kernel has spoken."""
        return self._connections - taken - (0 if peer.uid in self._owners else self._kept)

    def require_connection(self, peer: Peer, others: Iterable[Peer]) -> None:
        """Busy when whoever has said hello may have no further connection beside the others."""
        if not (person := _person_of(peer)):
            return
        persons = [found for other in others if (found := _person_of(other))]
        most = max(LEAST_CONNECTIONS, (self._connections - self._kept) // PARTS)
        if persons.count(person) >= most:
            raise Busy(f"{most} connections of {person} are open already", hint="close one and try again")
        if len(persons) >= self._connections - self._kept:
            raise Busy(f"{len(persons)} connections of people are open already", hint="try again in a moment")

    def take_long(self, peer: Peer) -> bool:
        """Take a place for a long call, if there is one for this caller."""
        taken: list[threading.Semaphore] = []
        for places in self._long_places(peer):
            if not places.acquire(blocking=False):
                for one in taken:
                    one.release()
                return False
            taken.append(places)
        return True

    def leave_long(self, peer: Peer) -> None:
        """Give it back."""
        for places in self._long_places(peer):
            places.release()

    def quick_turns(self, peer: Peer) -> list[threading.Semaphore]:
        """What a quick call waits for, beside the turns of its connection."""
        return [] if peer.uid in self._owners else [*(one[1] for one in self._shares(peer)), self._others_quick]

    def _long_places(self, peer: Peer) -> list[threading.Semaphore]:
        others = [] if peer.uid in self._owners else [*(one[0] for one in self._shares(peer)), self._others_long]
        return [*others, self._all_long]

    def _shares(self, peer: Peer) -> list[tuple[threading.Semaphore, threading.Semaphore]]:
        if not (person := _person_of(peer)):
            return []
        with self._guard:
            made = threading.Semaphore(self._long_of_one), threading.Semaphore(self._quick_of_one)
            return [self._of_persons.setdefault(person, made)]


def _person_of(peer: Peer) -> str:
    """Who has proved to be a person; "" for a user of this machine, and for the HTTP server's, which speaks for nobody yet."""
    return peer.person if peer.login or not peer.pid else ""
