"""Idle costs nothing: with the heartbeat on and schedules that are not due, nothing is asked and nothing written."""

from bench_idle import laden, look, settled
from process import Box, a_box  # noqa: F401

from appliance.clock import sleep_s

MOST_WAKES = 15  # in ten seconds: the watcher of the folder makes one a second, and nothing else makes more than a few


def test_an_idle_core_asks_nobody_and_writes_nothing(box: Box):
    core = box.serve()
    laden(core)
    pids = [core.child.pid, core.broker_pid()]
    before = settled(box, pids, 3)
    for _ in range(4):  # a start may still have something to do, without writing
        woken = look(box, pids)
        sleep_s(10)
        cost = look(box, pids).since(woken)
        if cost["wakes"] <= MOST_WAKES:
            break
    assert cost["wakes"] <= MOST_WAKES, "of all threads of core and broker in ten seconds"
    cost = look(box, pids).since(before)
    assert (cost["model_calls"], cost["database_bytes"]) == (0, 0)
    core.call("tool.call", name="create_schedule", arguments={"name": "one more", "frequency": "on 5 January 2035 at 9am"})
    assert look(box, pids).since(before)["database_bytes"] > 0, "a write would be seen"
