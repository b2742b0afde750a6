"""Time, ids, who lives, stop signs and alarms."""

import os
import signal
import subprocess
import threading
import uuid
from pathlib import Path

import pytest

from appliance.clock import (
    Alarms,
    CancelToken,
    boot_id,
    correlation_id,
    is_alive,
    iso,
    monotonic_s,
    new_id,
    now_ms,
    process,
    sleep_s,
    this_process,
)


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1795299780123, "2026-11-21T22:23:00.123Z"), (1709208000007, "2024-02-29T12:00:00.007Z")],
)
def test_times_are_written_in_utc(at_ms: int, text: str) -> None:
    assert iso(at_ms) == text


def test_ids_are_version_7_unique_and_sort_by_the_millisecond() -> None:
    before = now_ms()
    first = new_id()
    sleep_s(0.002)
    many = [new_id() for _ in range(2000)]
    assert {uuid.UUID(i).version for i in many} == {7}
    assert {uuid.UUID(i).variant for i in many} == {uuid.RFC_4122}
    assert len(set(many)) == 2000
    assert all(first < i for i in many)
    assert before <= uuid.UUID(first).int >> 80 <= now_ms()


@pytest.mark.covers("A-271")
def test_correlation_ids_are_version_4_and_unique() -> None:
    many = [uuid.UUID(correlation_id()) for _ in range(1000)]
    assert {(i.version, i.variant) for i in many} == {(4, uuid.RFC_4122)}
    assert len(set(many)) == 1000


# -- who lives --------------------------------------------------------------------------------------


def test_living_process_is_alive_and_a_killed_one_is_not() -> None:
    child = subprocess.Popen(["sleep", "60"])
    known = process(child.pid)
    assert known.is_alive() and is_alive(known.encode())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, its entry still there
    assert not known.is_alive()
    child.wait()
    assert not known.is_alive() and not is_alive(known.encode())


def test_same_pid_with_another_start_or_boot_is_somebody_else() -> None:
    me = this_process()
    assert me.is_alive() and me.pid == os.getpid() and me.boot_id == boot_id()
    for other in (me._replace(start_ticks=me.start_ticks - 1), me._replace(boot_id="another-boot")):
        assert not other.is_alive()
        assert not is_alive(other.encode())
    assert not is_alive("")


def test_identity_of_a_process_that_is_gone_is_never_alive() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert not process(child.pid).is_alive()


def test_process_with_brackets_in_its_name_is_known(tmp_path: Path) -> None:
    odd = tmp_path / "a) S (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "60"])
    try:
        end_s = monotonic_s() + 60
        while ") S (" not in Path(f"/proc/{child.pid}/comm").read_text():
            assert monotonic_s() < end_s
        assert process(child.pid).start_ticks > this_process().start_ticks
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


# -- stop signs -------------------------------------------------------------------------------------


def test_stop_sign_calls_back_once_in_order_and_late_comers_at_once() -> None:
    token, heard = CancelToken(), []
    token.then(lambda: heard.append(1))
    token.then(lambda: heard.append(2))
    assert heard == [] and not token.is_set()
    token.set()
    token.set()
    token.then(lambda: heard.append(3))
    assert heard == [1, 2, 3] and token.is_set()


def test_stop_sign_never_loses_a_callback_to_a_race() -> None:
    for _ in range(200):
        token, heard = CancelToken(), []
        setter = threading.Thread(target=token.set)
        setter.start()
        token.then(lambda heard=heard: heard.append(1))
        setter.join()
        assert heard == [1]


def test_callback_may_use_the_sign_itself() -> None:
    token, heard = CancelToken(), []
    token.then(lambda: token.then(lambda: heard.append(token.is_set())))
    token.set()
    assert heard == [True]


# -- alarms -----------------------------------------------------------------------------------------


def test_alarms_ring_in_the_order_of_their_time_and_not_early() -> None:
    def ring(step_s: float) -> tuple[list[tuple[int, float]], bool]:
        """Three alarms, set in the wrong order; which rang when, and whether they were set before the first was due."""
        alarms, rang, done, start_s = Alarms(), list[tuple[int, float]](), threading.Event(), monotonic_s()
        alarms.after(3 * step_s, lambda: (rang.append((3, monotonic_s() - start_s)), done.set()))
        alarms.after(2 * step_s, lambda: rang.append((2, monotonic_s() - start_s)))
        alarms.after(step_s, lambda: rang.append((1, monotonic_s() - start_s)))
        was_quick = monotonic_s() - start_s < step_s
        assert done.wait(60)
        return rang, was_quick

    for step_s in (0.05, 0.2, 1.0, 5.0):  # a longer one on a machine that is slow at setting them
        rang, was_quick = ring(step_s)
        if was_quick:
            break
    assert [number for number, _ in rang] == [1, 2, 3]
    assert all(number * step_s <= at_s for number, at_s in rang)


def test_cancelled_alarm_stays_silent() -> None:
    alarms, rang, done = Alarms(), [], threading.Event()
    handle = alarms.after(0.5, lambda: rang.append("cancelled"))
    alarms.cancel(handle)
    alarms.cancel(handle)
    alarms.after(0.6, done.set)
    assert done.wait(60)
    assert rang == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_alarm_that_raises_does_not_silence_the_others() -> None:
    alarms, done = Alarms(), threading.Event()
    alarms.after(0.01, lambda: 1 // 0)
    alarms.after(0.05, done.set)
    assert done.wait(60)


def _switches(thread: threading.Thread) -> str:
    lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith("voluntary_ctxt_switches"))


def test_thread_of_far_alarms_is_parked() -> None:
    alarms = Alarms()
    alarms.after(3600, lambda: None)
    sleep_s(0.1)
    [thread] = [t for t in threading.enumerate() if t.name == "alarms"][-1:]

    def is_parked() -> bool:
        before = _switches(thread)
        sleep_s(0.4)
        return _switches(thread) == before

    assert any(is_parked() for _ in range(20))  # the first time it may be on its way to rest


def test_what_is_forgotten_is_not_called_and_not_kept() -> None:
    token, heard = CancelToken(), []
    forget = token.then(lambda: heard.append("first"))
    token.then(lambda: heard.append("second"))
    forget()
    forget()
    assert len(token._callbacks) == 1
    token.set()
    assert heard == ["second"]
    token.then(lambda: heard.append("late"))()
    assert heard == ["second", "late"]
