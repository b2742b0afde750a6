"""Turns on the CPU: the urgent first, people in rounds, everybody in the end, nobody in two places at once."""

import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Busy, Cancelled, DeadlineExceeded, OwlError
from appliance.models.cpu_scheduler import LIMITS, CpuScheduler, Rank, Turn, TurnRequest

BOUND_S = 60.0


class Stage:
    """Askers in threads of their own; `said` is what they did, in order."""

    def __init__(self, quantum_s: float = 1.0) -> None:
        self.scheduler = CpuScheduler(quantum_s)
        self.said: list[str] = []
        self.threads: list[threading.Thread] = []

    def enter(self, name: str, wish: TurnRequest, steps: int = 1, each: Callable[[Turn], None] | None = None) -> CancelToken:
        """An asker that computes in `steps` steps with a rest before each; waits until it is in the queue or running."""
        cancel, inside = CancelToken(), threading.Event()

        def work() -> None:
            try:
                with self.scheduler.turn(wish, cancel, BOUND_S) as turn:
                    inside.set()
                    for step in range(steps):
                        turn.rest()
                        self.said.append(f"{name}{step}")
                        if each:
                            each(turn)
            except OwlError as error:
                self.said.append(f"{name}:{error.outcome}")
            finally:
                inside.set()

        before = len(self.scheduler._waiting)
        thread = threading.Thread(target=work, daemon=True)
        self.threads.append(thread)
        thread.start()
        end_s = monotonic_s() + BOUND_S
        while not inside.is_set() and len(self.scheduler._waiting) == before and monotonic_s() < end_s:
            inside.wait(0.002)
        return cancel

    def finish(self) -> list[str]:
        for thread in self.threads:
            thread.join(BOUND_S)
            assert not thread.is_alive()
        assert not self.scheduler.is_taken and not self.scheduler._begun and not self.scheduler._waiting
        return self.said


def held(stage: Stage, wish: TurnRequest, steps: int) -> tuple[threading.Event, CancelToken]:
    """An asker named H that stops before each step until told to go on once; then it runs through."""
    go = threading.Event()
    return go, stage.enter("H", wish, steps, lambda turn: None if go.wait(BOUND_S) else None)


def test_a_person_interrupts_background_work_which_goes_on_where_it_was() -> None:
    stage = Stage()
    go, _ = held(stage, TurnRequest(Rank.BACKGROUND, "worker"), 3)
    stage.enter("p", TurnRequest(Rank.PERSON, "ann"), 2)
    go.set()
    assert stage.finish() == ["H0", "p0", "p1", "H1", "H2"]


def test_a_look_up_goes_before_people_and_bulk_work_after_everybody() -> None:
    stage = Stage()
    go, _ = held(stage, TurnRequest(Rank.PERSON, "ann"), 2)
    stage.enter("gap", TurnRequest(Rank.GAP))
    stage.enter("b", TurnRequest(Rank.BACKGROUND, "worker"))
    stage.enter("q", TurnRequest(Rank.QUICK))
    go.set()
    assert stage.finish() == ["H0", "q0", "H1", "b0", "gap0"]


def test_people_take_turns_within_a_quantum_and_one_person_does_not() -> None:
    stage = Stage(quantum_s=0)
    go, _ = held(stage, TurnRequest(Rank.PERSON, "ann"), 3)
    stage.enter("a", TurnRequest(Rank.PERSON, "ann"), 1)
    stage.enter("b", TurnRequest(Rank.PERSON, "bob"), 2)
    go.set()
    # bob rests before his first step, as everybody does, and a quantum of nothing is over at once.
    assert stage.finish() == ["H0", "H1", "b0", "H2", "b1", "a0"]


def test_somebody_with_many_questions_does_not_go_before_one_who_has_one() -> None:
    stage = Stage()
    go, _ = held(stage, TurnRequest(Rank.PERSON, "ann"), 1)
    for number in range(3):
        stage.enter(f"a{number}-", TurnRequest(Rank.PERSON, "ann"))
    stage.enter("b", TurnRequest(Rank.PERSON, "bob"))
    go.set()
    assert stage.finish()[1] == "b0"


def test_only_so_many_are_begun_and_the_rest_wait() -> None:
    stage = Stage(quantum_s=0)
    go, _ = held(stage, TurnRequest(Rank.PERSON, "p0"), 2)
    for number in range(1, LIMITS[Rank.PERSON] + 3):
        stage.enter(f"p{number}-", TurnRequest(Rank.PERSON, f"p{number}"), 2)
    most = []
    stage.enter("q", TurnRequest(Rank.QUICK), 1, lambda turn: most.append(len(stage.scheduler._begun)))
    go.set()
    assert len(stage.finish()) == 2 * (LIMITS[Rank.PERSON] + 3) + 1
    assert most[0] <= LIMITS[Rank.PERSON] + 1


def test_another_model_sends_background_work_away_and_waits_for_people() -> None:
    stage, one, two = Stage(), object(), object()
    go, _ = held(stage, TurnRequest(Rank.BACKGROUND, "worker", one), 3)
    stage.enter("p", TurnRequest(Rank.PERSON, "ann", two), 1)
    go.set()
    assert stage.finish() == ["H0", f"H:{Busy('').outcome}", "p0"]
    stage = Stage(quantum_s=0)
    go, _ = held(stage, TurnRequest(Rank.PERSON, "ann", one), 3)
    stage.enter("p", TurnRequest(Rank.PERSON, "bob", two), 1)
    go.set()
    assert stage.finish() == ["H0", "H1", "H2", "p0"]


def test_cancel_ends_waiting_and_resting_and_a_deadline_ends_waiting() -> None:
    stage = Stage()
    go, _ = held(stage, TurnRequest(Rank.PERSON, "ann"), 1)
    waiting = stage.enter("w", TurnRequest(Rank.PERSON, "bob"))
    waiting.set()
    with (
        pytest.raises(DeadlineExceeded, match=r"busy for 0.05 s"),
        stage.scheduler.turn(TurnRequest(Rank.PERSON), CancelToken(), 0.05),
    ):
        pass
    go.set()
    assert sorted(stage.finish()) == ["H0", f"w:{Cancelled('').outcome}"]
    stage = Stage()
    go, resting = held(stage, TurnRequest(Rank.BACKGROUND, "worker"), 2)
    stop = threading.Event()
    stage.enter("p", TurnRequest(Rank.PERSON, "ann"), 1, lambda turn: None if stop.wait(BOUND_S) else None)
    go.set()
    while "p0" not in stage.said:
        stop.wait(0.002)
    resting.set()
    stage.threads[0].join(BOUND_S)
    assert stage.said[-1] == f"H:{Cancelled('').outcome}"
    stop.set()
    stage.finish()


def test_alone_waits_for_all_that_was_begun_even_when_it_rests() -> None:
    stage = Stage()
    go, _ = held(stage, TurnRequest(Rank.BACKGROUND, "worker"), 2)
    stage.enter("p", TurnRequest(Rank.PERSON, "ann"), 1)
    stage.enter("alone", TurnRequest(Rank.QUICK, is_alone=True))
    go.set()
    assert stage.finish() == ["H0", "p0", "H1", "alone0"]


def test_time_spent_resting_is_counted() -> None:
    stage, rested = Stage(), []
    go, _ = held(stage, TurnRequest(Rank.BACKGROUND, "worker"), 1)
    stage.threads.clear()
    pause = threading.Event()
    stage.enter("b", TurnRequest(Rank.BACKGROUND, "other"), 2, lambda turn: rested.append(turn.rested_s))
    stage.enter("p", TurnRequest(Rank.PERSON, "ann"), 1, lambda turn: None if pause.wait(0.05) else None)
    go.set()
    stage.finish()
    assert rested[0] == 0 and len(rested) == 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(Rank)), st.sampled_from("abc"), st.integers(1, 3), st.booleans()), max_size=8))
def test_everybody_gets_through_and_one_computes_at_a_time(askers: list[tuple[Rank, str, int, bool]]) -> None:
    stage, inside = Stage(quantum_s=0), []

    def compute(turn: Turn) -> None:
        inside.append(turn)
        assert inside == [turn]
        inside.remove(turn)

    for number, (rank, person, steps, is_stopped) in enumerate(askers):
        cancel = stage.enter(f"{number}-", TurnRequest(rank, person, "model"), steps, compute)
        if is_stopped:
            cancel.set()
    said = stage.finish()
    for number, (_, _, steps, is_stopped) in enumerate(askers):
        if not is_stopped:
            assert [w for w in said if w.startswith(f"{number}-")] == [f"{number}-{step}" for step in range(steps)]
