"""Which route is asked after which failure: each fault, each shape of a pool, and nothing said twice."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from record_tools import replace
from services import (
    BROKEN,
    CUT,
    DENIED,
    GARBLED,
    GATEWAY,
    LIMITED,
    LOADING,
    OFFLINE,
    SLOW,
    UNKNOWN,
    Stage,
    Step,
    asked,
    pooled,
)

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import BadInput, Cancelled, ContextTooLong, DeadlineExceeded, OwlError, ProviderError, TooLarge, Unavailable
from appliance.models.client import ModelAnswered
from appliance.models.client import Models as Client
from appliance.models.failover import CallPatience, Chain, Chance, generate, pauses
from appliance.models.pool import Pool
from appliance.records import Ask, Cancel, Finish, Measure, Piece, Route
from appliance.runtime.events import Events
from appliance.runtime.settings import ModelSettings
from appliance.service.broker_process import ExternalBroker

QUICK = CallPatience(total_s=600, pause_s=30, first_s=0.0)


class Clock:
    """A clock that pauses move on, instead of anybody waiting for them."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Asker:
    """The model port of the core, straight to a pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def plan(self, pool: str = "") -> tuple[Route, ...]:
        return self.pool.plan(pool)

    def measure(self, route: Route, ask: Ask) -> Measure:
        return self.pool.measure(route.name, ask, CancelToken())

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        return self.pool.generate(route.name, ask, cancel if isinstance(cancel, CancelToken) else CancelToken())


def routes(*windows: int) -> list[Route]:
    return [Route(f"r{i}", f"p{i}", "m", window, "native") for i, window in enumerate(windows, 1)]


def walk(count: int, *errors: OwlError, patience: CallPatience | None = None) -> tuple[list[tuple[str, float]], OwlError | None]:
    """Whom a chain asks, and after which pause, when this goes wrong; how it ends, None when an answer came."""
    clock, seen = Clock(), []
    chain = Chain(routes(*[8000] * count), patience, now=clock)
    left = list(errors)
    while True:
        try:
            chance = chain.next()
        except OwlError as error:
            return seen, error
        seen.append((chance.route.name, round(chance.wait_s, 1)))
        clock.now_s += chance.wait_s
        if not left:
            return seen, None
        try:
            chain.failed(left.pop(0))
        except OwlError as error:
            return seen, error


def told(error: ProviderError, after_s: float) -> ProviderError:
    return ProviderError(error.message, outcome=error.outcome, kind=error.kind, retry_after_s=after_s)


# -- one route: who waits how long -----------------------------------------------------------------------


@pytest.mark.covers("R-198", "A-023")
@pytest.mark.parametrize(
    ("error", "pauses_s", "total_s"),
    [
        (LIMITED, [0, 1, 2, 4, 8, 16, 30, 30], 600),
        (LOADING, [0, 1, 2, 4, 8, 16, 30, 30], 600),
        (GATEWAY, [0, 1, 2, 4, 8, 15], 30),
        (OFFLINE, [0, 1, 2, 4, 8, 15], 30),
        (BROKEN, [0, 1, 2, 4, 8, 16], 60),
        (DENIED, [0], 0),
        (UNKNOWN, [0], 0),
        (SLOW, [0], 0),
        (CUT, [0], 0),
        (GARBLED, [0], 0),
        (Unavailable("no model"), [0], 0),
        (DeadlineExceeded("too long"), [0], 0),
    ],
)
def test_a_single_route_is_asked_again_as_long_as_its_trouble_may_pass(
    error: OwlError, pauses_s: list[float], total_s: float
) -> None:
    seen, end = walk(1, *[error] * 100)
    waits = [wait_s for _, wait_s in seen]
    assert waits[: len(pauses_s)] == pauses_s and max(waits) <= 30
    assert sum(waits) == total_s
    assert end is error


@pytest.mark.covers("A-023", "R-198")
def test_a_service_that_says_when_is_not_asked_before_that() -> None:
    assert walk(1, told(LIMITED, 90)) == ([("r1", 0), ("r1", 90)], None)
    seen, end = walk(1, told(LIMITED, 3600))
    assert seen == [("r1", 0)] and isinstance(end, ProviderError) and end.retry_after_s == 3600
    assert walk(1, *[told(LIMITED, 0)] * 3) == ([("r1", 0), ("r1", 1), ("r1", 2), ("r1", 4)], None)  # "now" is no pause
    assert walk(2, told(LIMITED, 50), told(LIMITED, 20)) == ([("r1", 0), ("r2", 0), ("r2", 20)], None)


@pytest.mark.covers("R-198")
def test_no_single_wait_is_longer_than_the_longest_pause() -> None:
    chain = Chain(routes(8000), now=(clock := Clock()))
    chain.next()
    chain.failed(told(LIMITED, 0.25))
    chance = chain.next()
    steps = list(pauses(chance, CancelToken(), 0.1))
    assert [round(left_s, 2) for left_s in steps] == [0.25, 0.15, 0.05] and clock.now_s == 1000
    stop = CancelToken()
    stop.set()
    with pytest.raises(Cancelled):
        list(pauses(chance, stop, 30))


@pytest.mark.covers("R-198")
def test_the_whole_call_has_a_deadline() -> None:
    seen, end = walk(1, *[LIMITED] * 50, patience=CallPatience(total_s=20, pause_s=5))
    assert seen == [("r1", wait_s) for wait_s in (0, 1, 2, 4, 5, 5, 3)] and end is LIMITED


# -- several routes ------------------------------------------------------------------------------------


@pytest.mark.covers("S-022")
@pytest.mark.parametrize("error", [LIMITED, LOADING, GATEWAY, BROKEN, OFFLINE, DENIED, UNKNOWN, SLOW, CUT, GARBLED])
def test_the_next_route_is_asked_at_once_whatever_went_wrong(error: OwlError) -> None:
    assert walk(2, error) == ([("r1", 0), ("r2", 0)], None)


@pytest.mark.covers("S-022", "R-198")
def test_only_when_no_route_is_left_those_are_asked_again_whose_trouble_may_pass() -> None:
    assert walk(3, DENIED, LIMITED, BROKEN, LIMITED) == (
        [("r1", 0), ("r2", 0), ("r3", 0), ("r2", 1), ("r3", 0)],
        None,
    )
    seen, end = walk(2, DENIED, UNKNOWN)
    assert seen == [("r1", 0), ("r2", 0)] and end is UNKNOWN


@pytest.mark.covers("A-126")
def test_when_nobody_can_be_reached_that_is_what_is_said() -> None:
    skipped = ProviderError("left alone", outcome="provider_not_available")
    seen, end = walk(2, OFFLINE, skipped, *[OFFLINE] * 20)
    assert isinstance(end, ProviderError) and end.outcome == "provider_not_available"
    assert "r1: no route to host; r2: left alone" in end.message and end.status == 503
    assert [name for name, _ in seen][:3] == ["r1", "r2", "r1"]
    cut = ProviderError("cut", outcome="stream_error", kind="network", retry_after_s=3600)
    offline = ProviderError("none", outcome="provider_not_available", kind="network", retry_after_s=3600)
    ends = [walk(2, offline, other)[1] for other in (offline, cut)]
    assert [end.kind for end in ends if isinstance(end, ProviderError)] == ["network", ""]  # who broke off was there


@pytest.mark.parametrize("error", [BadInput("no"), Cancelled("stopped")])
def test_what_no_other_route_would_mend_ends_it(error: OwlError) -> None:
    assert walk(3, error) == ([("r1", 0)], error)


def test_no_routes_at_all() -> None:
    seen, end = walk(0)
    assert not seen and isinstance(end, Unavailable) and "doctor" in end.hint


@pytest.mark.parametrize("error", [ContextTooLong("8000 are too many"), TooLarge("8000 are too many")])
@pytest.mark.parametrize(("windows", "asked_for"), [((8, 4, 8, 16, 2), ["r1", "r4"]), ((8, 4), ["r1"]), ((2, 4), ["r1", "r2"])])
def test_a_prompt_too_long_goes_to_wider_routes_only(windows: tuple[int, ...], asked_for: list[str], error: OwlError) -> None:
    chain, seen = Chain(routes(*windows)), []
    with pytest.raises(TooLarge) as caught:
        while True:
            seen.append(chain.next().route.name)
            chain.failed(error)
    assert seen == asked_for and caught.value is error


def test_a_route_that_reads_less_than_was_thought_is_asked_once_more_with_less() -> None:
    chain, (first, second) = Chain(routes(100, 50)), routes(100, 50)
    assert chain.next().route == first
    assert not chain.narrowed(first) and not chain.narrowed(second)
    assert chain.narrowed(small := replace(first, window=20))
    assert chain.next() == Chance(small)
    assert not chain.narrowed(replace(first, window=10))
    chain.failed(ContextTooLong("still"))
    assert chain.next().route == second  # which is wider than what the first one turned out to be


@pytest.mark.covers("E-327")
def test_a_route_whose_model_calls_no_tools_is_asked_once_more_in_words() -> None:
    (first,) = routes(100)
    native = replace(first, dialect="native")
    chain = Chain([native])
    chain.next()
    assert not chain.narrowed(native)
    assert chain.narrowed(wordy := replace(native, dialect="tags")) and chain.next() == Chance(wordy)
    assert not chain.narrowed(wordy) and not chain.narrowed(native), "and only once"


def test_a_prompt_too_long_is_said_even_when_another_route_failed_later() -> None:
    chain = Chain(routes(8, 16))
    chain.next()
    chain.failed(error := ContextTooLong("too long"))
    chain.next()
    chain.failed(DENIED)
    with pytest.raises(TooLarge) as caught:
        chain.next()
    assert caught.value is error


# -- through a pool: what is heard by whom, and what the person sees ---------------------------------------


def talked(pool: Pool, **more: object) -> tuple[str, Finish | OwlError]:
    """What an answer of the default pool says, and how it ends."""
    said = ""
    try:
        for piece in generate(Asker(pool), pool.plan(), asked(**more), CancelToken(), QUICK):
            if isinstance(piece, Finish):
                return said, piece
            said += piece.text
    except OwlError as error:
        return said, error
    raise AssertionError("no finish")


@pytest.mark.covers("S-022", "A-118", "A-119", "R-198")
@pytest.mark.parametrize(
    ("a", "b", "heard", "said", "by"),
    [
        ([["hoot"]], [["b"]], "a", "hoot", "a"),
        ([[DENIED]], [["hoot"]], "ab", "hoot", "b"),
        ([[LIMITED]], [["hoot"]], "ab", "hoot", "b"),
        ([[BROKEN]], [["hoot"]], "ab", "hoot", "b"),
        ([[OFFLINE]], [["hoot"]], "ab", "hoot", "b"),
        ([[SLOW]], [["hoot"]], "ab", "hoot", "b"),
        ([[GARBLED], ["hoot"]], [["b"]], "aa", "hoot", "a"),
        ([[GARBLED], [GARBLED]], [["hoot"]], "aab", "hoot", "b"),
        ([["ho", CUT]], [["b"]], "a", "ho", CUT),
        ([["ho", GARBLED]], [["b"]], "a", "ho", GARBLED),
        ([["ho", LIMITED]], [["b"]], "a", "ho", LIMITED),
        ([["ho", OFFLINE]], [["b"]], "a", "ho", OFFLINE),
        ([[LIMITED], ["hoot"]], [[DENIED]], "aba", "hoot", "a"),
        ([[LIMITED], [LIMITED], ["hoot"]], [[LIMITED]], "ababa", "hoot", "a"),
        ([[DENIED]], [[DENIED]], "ab", "", DENIED),
        ([[CUT]], [[UNKNOWN]], "ab", "", UNKNOWN),
        ([[ContextTooLong("too long")]], [["b"]], "a", "", "context_too_long"),
    ],
)
def test_faults_through_a_pool_of_two(
    tmp_path: Path, a: list[Step], b: list[Step], heard: str, said: str, by: str | OwlError
) -> None:
    stage = Stage({"a/m": a, "b/m": b}, windows={"m": 5000})
    text, end = talked(pooled(tmp_path, stage))
    asked_of = "".join(name[0] for name in stage.heard if not name.endswith("?"))
    assert (asked_of, text) == (heard, said)
    if isinstance(end, Finish):
        assert (end.provider, end.model) == (by, "m")
    else:
        assert end is by or end.outcome == by


@pytest.mark.covers("A-125")
@pytest.mark.parametrize("error", [DENIED, CUT, UNKNOWN, SLOW, GARBLED])
def test_without_failover_the_first_ones_error_comes_unchanged(tmp_path: Path, error: OwlError) -> None:
    stage = Stage({"a/m": [[error]], "b/m": [["b"]]}, windows={"m": 5000})
    pool = pooled(tmp_path, stage, models=ModelSettings(local_only=False, failover=False))
    for _ in range(5):  # nor does the breaker put another in its place
        assert talked(pool) == ("", error)
    assert "b/m" not in stage.heard


@pytest.mark.covers("E-316", "A-124", "A-126")
def test_after_three_failures_a_provider_is_skipped_and_one_success_forgets_them(tmp_path: Path) -> None:
    stage = Stage({"a/m": [[BROKEN]], "b/m": [["hoot"]]}, windows={"m": 5000})
    pool = pooled(tmp_path, stage)
    for _ in range(3):
        assert talked(pool)[0] == "hoot"
    assert [route.name for route in pool.plan()] == ["b/m"]
    assert pool.remotes.status()["providers"][0] | {"retry_s": 0} == {
        "name": "a",
        "state": "skipped",
        "failures": 3,
        "retry_s": 0,
        "problem": "500 oops",
        "minute": 3,
        "per_minute": 60,
        "open": 0,
        "waiting": 0,
    }
    stage.plays["b/m"] = [[BROKEN]]
    for _ in range(3):
        with pytest.raises(ProviderError):
            list(pool.generate("b/m", asked(), CancelToken()))
    with pytest.raises(
        ProviderError, match=r"no model is available: a/m: a is not asked for another \d+ s after 3 failures"
    ) as caught:
        pool.plan()
    assert caught.value.outcome == "provider_not_available"
    pool.remotes.reset("a")
    stage.plays["a/m"] = [["again"]]
    assert talked(pool)[0] == "again" and pool.remotes.status()["providers"][0]["failures"] == 0


@pytest.mark.covers("R-198", "A-124")
def test_repeating_one_request_counts_as_one_failure(tmp_path: Path) -> None:
    stage = Stage({"a/m": [[BROKEN]] * 5 + [["hoot"]]}, windows={"m": 5000})
    pool = pooled(tmp_path, stage, pools={"default": ("a/m",)})
    assert talked(pool)[0] == "hoot" and stage.heard.count("a/m") == 6


@pytest.mark.covers("A-023")
def test_a_person_hears_nothing_twice_when_an_answer_breaks_off(tmp_path: Path) -> None:
    stage = Stage({"a/m": [["one ", "two ", BROKEN], ["one two three"]]}, windows={"m": 5000})
    text, end = talked(pooled(tmp_path, stage, pools={"default": ("a/m",)}))
    assert (text, end) == ("one two ", BROKEN)


def test_a_question_that_is_stopped_while_it_waits_ends_at_once(tmp_path: Path) -> None:
    stage = Stage({"a/m": [[told(LIMITED, 300)]]}, windows={"m": 5000})
    pool, stop = pooled(tmp_path, stage, pools={"default": ("a/m",)}), CancelToken()
    started_s = monotonic_s()
    answer = generate(Asker(pool), pool.plan(), asked(), stop, CallPatience())
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(Cancelled):
        list(answer)
    assert monotonic_s() - started_s < 20


def test_the_core_hands_on_what_a_request_took_even_when_it_cannot_be_put_down() -> None:
    def full(answered: ModelAnswered) -> None:
        raise Unavailable("database is locked")

    events = Events()
    events.subscribe(ModelAnswered, full)
    client = Client(ExternalBroker(Path("/nowhere")), events=events)
    client._record_usage(ModelAnswered(routes(1)[0], asked(), Finish("stop"), 0.1, 0.2))
