"""What is known of the wall clock: by how much it was set while the machine ran, and how far it is trusted for forgetting.

Writer of the table `wall_clock`, one row. A Pi has no battery: its clock starts at the last shutdown, or in 1970, and leaps when it
hears the time. Whoever looks compares it with the clock that counts from the machine's start, which nobody sets, and with what the
processes before saw since that start. What is forgotten by age goes by a time that moves on by `STEP_MS` a day at most, however far
the clock was ahead for a while; it never goes back.
"""

import ctypes

from msgspec import Struct

from appliance.clock import boot_id, now_ms
from appliance.store.database import Store

DAY_MS = 24 * 3600 * 1000
CLOCKLESS_MS = 50 * 365 * DAY_MS  # about 2020: a time before that is that of a clock which was never set
# SQL behind a column of times: up to the time that follows, but for those of a clock that was never set, of unknown age.
OLD = f"BETWEEN {CLOCKLESS_MS} AND"
LEAP_MS = 5000  # by less the clock is only trimmed; trims add up to a leap
STEP_MS = 2 * DAY_MS  # a day, and one more to catch up with days when the box was off
AHEAD_MS = 60_000  # a clock set ahead by more is believed after a while
HOLD_MS = 30_000  # in which a time server sets a wrong clock right
BOOTING_MS = 300_000  # after the machine's start, in which a clock that follows no time server yet is likely to be set
UNSYNCHRONIZED = 5  # of adjtimex: TIME_ERROR


class Leap(Struct, frozen=True):
    """The clock was set by so much. What was counted by the old one since the machine started lies between its two times."""

    by_ms: int
    since_ms: int
    until_ms: int


class SeenClock(Struct, frozen=True):
    """The row: the machine's start, by its id and by the wall clock, and until when after it the clock is not believed yet."""

    boot: str
    start_ms: int
    held_until_ms: int
    aged_ms: int


def read(store: Store) -> SeenClock:
    """The recorded state of the clock; a fresh one when none is recorded."""
    row = store.row("SELECT boot, start_ms, held_until_ms, aged_ms FROM wall_clock")
    return SeenClock(*row) if row is not None else SeenClock("", 0, 0, now_ms())


def has_leapt(store: Store, now: int, up_ms: int) -> bool:
    """Whether there is something to `note`: the clock was set since the last one, or the machine has started."""
    seen = read(store)
    return seen.boot != boot_id() or abs(now - up_ms - seen.start_ms) >= LEAP_MS


def note(store: Store, now: int, up_ms: int) -> Leap | None:
    """Note that the clock shows `now` so long after the machine's start; the leap, when it was set since the last note.

    The caller moves what was counted in the same transaction.
    """
    with store.write(durable=True) as execute:
        if not has_leapt(store, now, up_ms):
            return None
        seen, boot = read(store), boot_id()
        by_ms = now - up_ms - seen.start_ms if seen.boot == boot else 0
        is_first_look = seen.boot not in ("", boot) and up_ms < BOOTING_MS and is_synchronized() is False
        held_until_ms = up_ms + HOLD_MS if by_ms > AHEAD_MS or is_first_look else 0
        execute(
            "INSERT INTO wall_clock (one, boot, start_ms, held_until_ms, aged_ms) VALUES (1, ?1, ?2, ?3, ?4) "
            "ON CONFLICT (one) DO UPDATE SET boot = ?1, start_ms = ?2, held_until_ms = ?3",
            (boot, now - up_ms, held_until_ms, now),
        )
    return Leap(by_ms, seen.start_ms, now - by_ms) if by_ms else None


def held_ms(store: Store, up_ms: int) -> int:
    """For how long a clock that was set ahead is not believed yet: it may be set back at once."""
    return max(0, min(HOLD_MS, read(store).held_until_ms - up_ms))


def age_limit(store: Store, now: int | None = None) -> int:
    """The time by which things are old enough to be forgotten: the clock's, unless it is ahead of what the days before showed."""
    now = now_ms() if now is None else now
    aged_ms = read(store).aged_ms
    return min(now, aged_ms + STEP_MS) if aged_ms > CLOCKLESS_MS else now


def advance(store: Store, now: int) -> int:
    """A day has passed: the time of `age_limit`, which moves on by a step at most. Writes once a day."""
    limit_ms = age_limit(store, now)
    if limit_ms - read(store).aged_ms >= DAY_MS // 2:
        with store.write() as execute:
            execute("UPDATE wall_clock SET aged_ms = ?", (limit_ms,))
    return limit_ms


def is_synchronized() -> bool | None:
    """Whether the clock follows a time server; None where the kernel does not tell."""
    buffer = ctypes.create_string_buffer(512)  # struct timex, modes = 0: only asks
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    state = adjtimex(buffer) if adjtimex is not None else -1
    return None if state < 0 else state != UNSYNCHRONIZED
