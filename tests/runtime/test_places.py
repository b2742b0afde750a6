"""Places of a listener: one person, however often they come, has a part of them, and the owner's are kept."""

import pytest

from appliance.errors import Busy
from appliance.runtime.jsonrpc import NOBODY, Peer
from appliance.runtime.rpc.places import Places
from appliance.runtime.users import user_name

OWNER_NAME = user_name(1000)
OWNER, PAGE = Peer(7, 1000, 1000), Peer(8, NOBODY, NOBODY, person="owlbox-web")


def peer(person: str) -> Peer:
    return Peer(8, NOBODY, NOBODY, person=person, login=f"login of {person}")


@pytest.fixture
def places() -> Places:
    return Places({0, 1000}, connections=64, long_calls=32, threads=32)


@pytest.mark.covers("A-179", "A-185")
def test_one_person_has_a_third_of_the_connections_of_people(places: Places) -> None:
    connected: list[Peer] = [PAGE]
    for _ in range(18):
        places.require_connection(peer("mallory"), connected)
        connected.append(peer("mallory"))
    with pytest.raises(Busy, match="18 connections of mallory"):
        places.require_connection(peer("mallory"), connected)
    places.require_connection(peer("ann"), connected)
    for most, person in ((18, "ben"), (10, "carl"), (5, "dora")):
        for _ in range(most):
            places.require_connection(peer(person), connected)
            connected.append(peer(person))
        with pytest.raises(Busy, match=f"{most} connections of {person}"):
            places.require_connection(peer(person), connected)
    for number in range(5):
        places.require_connection(peer(f"p{number}"), connected)
        connected.append(peer(f"p{number}"))
    with pytest.raises(Busy, match="56 connections of people"):
        places.require_connection(peer("ann"), connected)
    for one in (OWNER, PAGE, peer(OWNER_NAME)):
        places.require_connection(one, connected)
    assert places.free_connections(OWNER, len(connected)) == 7


@pytest.mark.covers("A-179")
def test_one_person_has_a_third_of_the_long_calls_and_the_turns(places: Places) -> None:
    assert [places.take_long(peer("mallory")) for _ in range(10)] == [True] * 8 + [False] * 2
    assert [places.take_long(peer("ann")) for _ in range(9)] == [True] * 8 + [False], "two who act together have two thirds"
    assert [places.take_long(peer("ben")) for _ in range(5)] == [True] * 4 + [False], "and leave as many as they have"
    assert [places.take_long(peer("carl")) for _ in range(3)] == [True] * 2 + [False] and places.take_long(peer("dora"))
    assert all(places.take_long(peer(OWNER_NAME)) for _ in range(9)) and not places.take_long(OWNER)
    places.leave_long(peer("mallory"))
    assert places.take_long(peer(OWNER_NAME)), "the owner's are kept, also for who has logged in"
    own, _ = places.quick_turns(peer("mallory"))
    assert [own.acquire(blocking=False) for _ in range(6)] == [True] * 5 + [False] and places.quick_turns(OWNER) == []
    assert all(turns.acquire(blocking=False) for turns in places.quick_turns(peer("ann")))
