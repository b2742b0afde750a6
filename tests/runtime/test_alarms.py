"""Alarms ring in the order of their times, whatever order they were set in."""

import threading

from appliance.clock import Alarms, monotonic_s


def test_an_alarm_that_is_set_later_and_due_sooner_rings_first() -> None:
    alarms, rung, is_done = Alarms(), list[str](), threading.Event()
    began_s = monotonic_s()
    alarms.after(60, lambda: rung.append("far"))
    threading.Event().wait(0.1)  # its thread sleeps now
    alarms.after(0.3, lambda: (rung.append("later"), is_done.set()))
    alarms.after(0.1, lambda: rung.append("sooner"))
    alarms.after(30, lambda: rung.append("far"))
    assert is_done.wait(30) and rung == ["sooner", "later"] and monotonic_s() - began_s < 25


def test_a_cancelled_alarm_never_rings() -> None:
    alarms, rung, is_done = Alarms(), list[str](), threading.Event()
    handle = alarms.after(0.1, lambda: rung.append("cancelled"))
    alarms.after(0.3, is_done.set)
    alarms.cancel(handle)
    assert is_done.wait(30) and rung == []
