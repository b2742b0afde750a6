"""How many connections and calls a listener serves at a time: of everybody, of all who are not its owners, and of one person.

Users of this machine are told apart by their user id, and only owners from others; whoever came with a login is counted as the
person, however many addresses, connections and user ids that person comes with. Of what people share, nobody takes more than a
third, nor a place beyond the last that leaves as many free as they have: those who act together do not take all, and whoever comes
next has one. Knows nothing about what is called.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterable

from appliance.errors import Busy
from appliance.runtime.jsonrpc import Peer
from appliance.runtime.users import user_name

KEPT_CONNECTIONS = 8  # that only owners may have
LEAST_CONNECTIONS = 4  # of one person: what a page in a browser needs
OWNERS, OTHERS = ":owners", ":others"  # no name of a person has a colon
PARTS = 3  # one person has a third of what is there for all but owners


class Places:
    """The places of one listener."""

    def __init__(self, owners: Collection[int], *, connections: int, long_calls: int, threads: int) -> None:
        """Places are kept for the users in `owners`, whatever others do."""
        self._owners = owners
        self._owner_names = frozenset(user_name(uid) for uid in owners)
        self._kept = min(KEPT_CONNECTIONS, connections // 4)
        self._connections = connections
        self._long, self._others_long = long_calls, max(1, long_calls * 3 // 4)
        self._taken_long = Counter[str]()  # by person, OWNERS, and OTHERS who have not said which person they are
        self._others_quick = threading.Semaphore(max(1, threads // 2))
        self._quick_of_one = max(1, threads // 2 // PARTS)
        self._guard = threading.Lock()
        self._quick: dict[str, threading.Semaphore] = {}  # of a person, made when they come

    def free_connections(self, peer: Peer, taken: int) -> int:
        """How many more connections there may be for this caller, of whom only the kernel has spoken."""
        return self._connections - taken - (0 if peer.uid in self._owners else self._kept)

    def require_connection(self, peer: Peer, others: Iterable[Peer]) -> None:
        """Busy when whoever has said hello may have no further connection beside the others."""
        if not (person := _person_of(peer)) or self._is_owner(peer):
            return
        persons = [found for other in others if (found := _person_of(other)) and not self._is_owner(other)]
        own, shared = persons.count(person), self._connections - self._kept
        if own >= LEAST_CONNECTIONS and not has_share(own, len(persons), shared):
            raise Busy(f"{own} connections of {person} are open already", hint="close one and try again")
        if len(persons) >= shared:
            raise Busy(f"{len(persons)} connections of people are open already", hint="try again in a moment")

    def take_long(self, peer: Peer) -> bool:
        """Take a place for a long call, if there is one for this caller."""
        who = self._name_of(peer)
        with self._guard:
            others = self._taken_long.total() - self._taken_long[OWNERS]
            is_free = self._taken_long.total() < self._long
            if who != OWNERS:
                is_free &= others < self._others_long
            if who not in (OWNERS, OTHERS):
                is_free &= has_share(self._taken_long[who], others, self._others_long)
            self._taken_long[who] += is_free
        return is_free

    def leave_long(self, peer: Peer) -> None:
        """Give it back."""
        who = self._name_of(peer)
        with self._guard:
            self._taken_long[who] -= 1
            if not self._taken_long[who]:
                del self._taken_long[who]

    def quick_turns(self, peer: Peer) -> list[threading.Semaphore]:
        """The limit of concurrent quick calls, beside that of the connection."""
        who = self._name_of(peer)
        if who in (OWNERS, OTHERS):
            return [] if who == OWNERS else [self._others_quick]
        with self._guard:
            return [self._quick.setdefault(who, threading.Semaphore(self._quick_of_one)), self._others_quick]

    def _name_of(self, peer: Peer) -> str:
        return OWNERS if self._is_owner(peer) else _person_of(peer) or OTHERS

    def _is_owner(self, peer: Peer) -> bool:
        return peer.uid in self._owners or _person_of(peer) in self._owner_names


def has_share(own: int, taken: int, places: int) -> bool:
    """Whether somebody with so many `own` places may have one more of those that people share."""
    return own < max(1, places // PARTS) and own < places - taken


def _person_of(peer: Peer) -> str:
    """Who has proved to be a person; "" for a user of this machine, and for the HTTP server's, which speaks for nobody yet."""
    return peer.person if peer.login or not peer.pid else ""
