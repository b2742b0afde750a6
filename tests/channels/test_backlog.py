"""Messages that wait: none is lost, each sender's come in their order, and others do not wait with them."""

import pytest

from appliance.channels.connectors import slack as backlog
from appliance.channels.connectors.slack import Backlog
from appliance.channels.contract import Received
from appliance.errors import Busy


class Strict:
    """An intake that takes so many messages of each sender at a time, until it is told to take more."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: list[str] = []
        self.tries = 0

    def take(self, received: Received) -> bool:
        self.tries += 1
        if sum(one.startswith(received.sender) for one in self.taken) >= self.most:
            raise Busy("later")
        self.taken.append(f"{received.sender}{received.text}")
        return True

    def refuse(self, sender: str, why: str) -> None:
        raise AssertionError(why)

    def find_refusal(self, received: Received) -> str:
        return ""

    def is_welcome(self, sender: str) -> bool:
        return False

    def last_taken_ms(self) -> int:
        return 0


class Line:
    """A backlog with its intake, and what was confirmed."""

    def __init__(self, most: int) -> None:
        self.intake, self.waiting = Strict(most), Backlog()
        self.confirmed: list[str] = []

    def come(self, sender: str, text: str) -> None:
        key = f"{sender}{text}"
        self.waiting.hand_in(key, Received(key, sender, text, 1), self.intake, lambda: self.confirmed.append(key))


def test_one_who_writes_too_much_waits_in_order_and_nobody_else_does() -> None:
    line = Line(2)
    for number in range(5):
        line.come("a", str(number))
    line.come("b", "0")
    assert line.intake.taken == ["a0", "a1", "b0"] == line.confirmed
    line.come("a", "3")  # the service sends it again
    line.intake.most = 9
    line.come("a", "5")
    assert line.intake.taken == ["a0", "a1", "b0"] and len(line.waiting) == 4 and line.waiting.pause_s() == 0
    line.waiting.retry(line.intake)
    assert line.confirmed[3:] == ["a2", "a3", "a4", "a5"] and line.waiting.pause_s() is None


def test_a_full_queue_is_asked_seldom_and_what_does_not_fit_is_left_to_the_service() -> None:
    line = Line(0)
    for number in range(backlog.MOST + 5):
        line.come(f"s{number} ", "")
    assert len(line.waiting) == backlog.MOST and line.confirmed == []
    before = line.intake.tries
    for _ in range(3):
        line.waiting.retry(line.intake)
    assert line.intake.tries == before + backlog.TRIES
    assert line.waiting.pause_s() == pytest.approx(backlog.PAUSE_S, abs=0.5)


def test_long_texts_are_bounded_too() -> None:
    line = Line(0)
    for number in range(5):
        line.come(f"s{number} ", "x" * (backlog.MOST_CHARS // 2))
    assert len(line.waiting) == 2
    line.intake.most = 1
    line.waiting.retry(line.intake)
    assert line.confirmed == [f"s{number} {'x' * (backlog.MOST_CHARS // 2)}" for number in range(2)]
    line.intake.most = 0
    for number in range(5):
        line.come(f"t{number} ", "x" * (backlog.MOST_CHARS // 2))
    assert len(line.waiting) == 2, "what was handed in has made room"


def test_those_who_wait_longest_go_first() -> None:
    line = Line(0)
    for sender in ("c", "a", "b"):
        line.come(sender, "1")
    line.come("c", "1")  # sent again: it keeps its place
    line.intake.most = 1
    line.waiting.retry(line.intake)
    assert line.confirmed == ["c1", "a1", "b1"]
