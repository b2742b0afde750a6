"""An orderly end: order, limits, and steps that misbehave."""

import logging
import re
import threading
from collections.abc import Callable

import pytest
from process import until

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import AlreadyRunning
from appliance.runtime.shutdown import SLOW_S, Shutdown


@pytest.mark.covers("A-274", "E-321")
def test_the_states_follow_each_other_and_a_second_request_is_refused() -> None:
    seen: list[str] = []
    end = Shutdown()
    for register in (end.before, end.component, end.after):
        register("look", lambda: seen.append(end.state))
    assert end.state == "running"
    end.initiate("signal SIGTERM")
    assert (end.state, end.reason) == ("initiated", "signal SIGTERM")
    for _ in range(2):
        with pytest.raises(AlreadyRunning, match="shutdown already initiated: signal SIGTERM"):
            end.initiate("again")
    assert end.run() == [] and end.state == "complete" and seen == ["stopping"] * 3
    with pytest.raises(AlreadyRunning):
        end.initiate("once more")


@pytest.mark.covers("A-274")
def test_only_one_of_many_requests_at_once_wins() -> None:
    end, start, won = Shutdown(), threading.Barrier(8), []

    def ask(n: int) -> None:
        start.wait(60)
        try:
            end.initiate(f"thread {n}")
            won.append(n)
        except AlreadyRunning:
            pass

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 1 and end.reason == f"thread {won[0]}"


@pytest.mark.covers("A-275", "A-276")
def test_hooks_and_components_run_in_the_order_they_were_registered() -> None:
    seen: list[str] = []
    end = Shutdown()

    def note(name: str) -> Callable[[], None]:
        return lambda: seen.append(name)

    for register, names in ((end.after, "xy"), (end.component, "ab"), (end.before, "12"), (end.component, "c")):
        for name in names:
            register(name, note(name))
    end.initiate("test")
    assert end.run() == [] and "".join(seen) == "12abcxy"


@pytest.mark.covers("A-275", "E-321")
def test_a_step_that_raises_or_hangs_is_named_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    end = Shutdown(total_s=60, hook_s=1)
    hang = threading.Event()

    def broken() -> None:
        raise ZeroDivisionError("bug")

    end.before("broken", broken)
    end.before("hangs", lambda: hang.wait(600) and None)
    end.before("fine", lambda: seen.append("before"))
    end.component("sick", broken)
    end.component("store", lambda: seen.append("store"))
    end.after("gone", lambda: seen.append("after"))
    end.initiate("test")
    started_s = monotonic_s()
    with caplog.at_level(logging.INFO, "appliance"):
        assert end.run() == ["broken", "hangs", "sick"]
    hang.set()
    assert monotonic_s() - started_s < 20 and seen == ["before", "store", "after"]
    assert "shutdown step broken failed" in caplog.text and "shutdown step hangs did not end in time" in caplog.text


def test_a_slow_step_is_named_with_its_seconds(caplog: pytest.LogCaptureFixture) -> None:
    end = Shutdown()
    end.component("quick", lambda: None)
    end.component("slow", lambda: sleep_s(SLOW_S + 0.1))
    end.initiate("test")
    assert end.run() == []
    assert re.findall(r"shutdown step (\w+) took \d+\.\d s", caplog.text) == ["slow"]


@pytest.mark.covers("A-274", "A-275")
def test_the_whole_takes_no_longer_than_its_limit_and_every_step_is_tried() -> None:
    end, hang, tried = Shutdown(total_s=0.6, hook_s=5), threading.Event(), []

    def stuck() -> None:
        tried.append(1)
        hang.wait(600)

    for register in (end.before, end.component, end.component, end.after):
        register("stuck", stuck)
    end.initiate("test")
    started_s = monotonic_s()
    assert end.run() == ["stuck"] * 4
    assert monotonic_s() - started_s < 20
    until(lambda: len(tried) == 4, "the last one was tried")
    hang.set()


@pytest.mark.covers("A-276")
def test_the_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    end = Shutdown()
    with caplog.at_level(logging.INFO, "appliance"):
        end.initiate("the power button")
        end.run()
    assert "shutdown initiated: the power button" in caplog.text and "shutdown complete: the power button" in caplog.text


def test_the_limits_are_thirty_and_five_seconds() -> None:
    end = Shutdown()
    assert (end._total_s, end._hook_s) == (30.0, 5.0)
