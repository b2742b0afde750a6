"""Hooks: the order of handlers, what stops a chain, and that one that fails stops nothing."""

import logging
import threading

import pytest

from appliance.runtime.hooks import Hooks


@pytest.mark.covers("R-065")
def test_handlers_come_by_priority_then_by_age_and_a_false_one_stops_the_chain() -> None:
    hooks, called = Hooks(), []

    def handler(name: str, says: object = None) -> object:
        return lambda *given: (called.append((name, *given)), says)[1]

    hooks.add("entry", handler("usual"))  # type: ignore[arg-type]
    hooks.add("entry", handler("late"), 20)  # type: ignore[arg-type]
    hooks.add("entry", handler("early"), 1)  # type: ignore[arg-type]
    hooks.add("entry", handler("usual too"))  # type: ignore[arg-type]
    assert hooks.handle("entry", 7)
    assert [name for name, _ in called] == ["early", "usual", "usual too", "late"] and called[0] == ("early", 7)
    called.clear()
    hooks.add("entry", handler("stop", False), 5)  # type: ignore[arg-type]
    assert not hooks.handle("entry", 7)
    assert [name for name, _ in called] == ["early", "stop"]


def test_an_event_reaches_everybody_whatever_they_return_or_raise(caplog: pytest.LogCaptureFixture) -> None:
    hooks, told = Hooks(), []
    hooks.add("run created", lambda run: False)
    hooks.add("run created", lambda run: 1 / 0)
    hooks.add("run created", told.append)
    with caplog.at_level(logging.ERROR, "appliance.runtime.hooks"):
        hooks.tell("run created", "r1")
    assert told == ["r1"] and "a handler of run created failed" in caplog.text


def test_a_filter_hands_its_value_on_and_a_failing_one_leaves_it() -> None:
    hooks = Hooks()
    hooks.add("parts", lambda value, extra: value + extra, 30)
    hooks.add("parts", lambda value, extra: value * 10, 20)
    hooks.add("parts", lambda value, extra: value.nothing, 25)
    assert hooks.filter("parts", 1, 2) == 12
    assert hooks.filter("nobody", 1, 2) == 1


def test_a_failing_handler_of_a_chain_does_not_stop_it() -> None:
    hooks, told = Hooks(), []
    hooks.add("entry", lambda: 1 / 0)
    hooks.add("entry", lambda: told.append(1))
    assert hooks.handle("entry") and told == [1]


def test_a_handler_can_be_taken_away_also_while_it_is_called() -> None:
    hooks, told = Hooks(), []
    remove = hooks.add("x", lambda: (told.append("first"), remove()))
    hooks.add("x", lambda: told.append("second"))
    hooks.tell("x")
    hooks.tell("x")
    assert told == ["first", "second", "second"] and hooks.names() == ["x"]
    remove()  # twice does nothing


def test_threads_add_at_once() -> None:
    hooks = Hooks()
    threads = [threading.Thread(target=lambda: [hooks.add("x", lambda: None) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(hooks._handlers["x"]) == 200


@pytest.mark.parametrize("made", [None, "text", 5, {"a": 1}])
def test_a_filter_that_returns_something_else_leaves_the_value_and_a_list_does_for_a_tuple(made: object) -> None:
    hooks = Hooks()
    hooks.add("parts", lambda parts: made)
    hooks.add("parts", lambda parts: [*parts, "more"])
    assert hooks.filter("parts", ("first",)) == ("first", "more")
