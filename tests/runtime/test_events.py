"""Typed events: who hears of what, in which order, and what becomes of an error."""

from dataclasses import dataclass

import pytest

from appliance.runtime.events import Events


@dataclass(frozen=True)
class Rang:
    times: int


@dataclass(frozen=True)
class RangTwice(Rang):
    pass


def test_subscribers_of_the_class_are_called_in_their_order() -> None:
    events, heard = Events(), list[tuple[str, int]]()
    events.subscribe(Rang, lambda rang: heard.append(("first", rang.times)))
    events.subscribe(Rang, lambda rang: heard.append(("second", rang.times)))
    events.subscribe(str, lambda text: heard.append((text, 0)))
    events.publish(Rang(3))
    assert heard == [("first", 3), ("second", 3)]


def test_an_event_of_a_subclass_is_another_event() -> None:
    events, heard = Events(), list[Rang]()
    events.subscribe(Rang, heard.append)
    events.publish(RangTwice(2))
    assert heard == []


def test_an_error_reaches_the_publisher_and_later_subscribers_do_not_hear() -> None:
    events, heard = Events(), list[Rang]()

    def refuse(rang: Rang) -> None:
        raise ValueError("no")

    events.subscribe(Rang, refuse)
    events.subscribe(Rang, heard.append)
    with pytest.raises(ValueError, match="no"):
        events.publish(Rang(1))
    assert heard == []


def test_who_subscribes_during_an_event_hears_the_next_one() -> None:
    events, heard = Events(), list[Rang]()
    events.subscribe(Rang, lambda rang: events.subscribe(Rang, heard.append) if rang.times == 1 else None)
    events.publish(Rang(1))
    assert heard == []
    events.publish(Rang(2))
    assert heard == [Rang(2)]
