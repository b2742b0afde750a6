"""Prefix states on disk: whole or not at all, checked before use, bounded, private."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.providers.prefix_cache import States

TOKENS = list(range(1000, 1300))
WINDOW = 1000
MB = 1_000_000


def states(folder: Path, identity: str = "owl", limit: int = 10 * MB) -> States:
    return States(folder, identity, limit)


def kept(folder: Path, payload: bytes = b"state" * 100, tokens: list[int] = TOKENS) -> Path:
    made = states(folder)
    before = set(folder.glob("*.state"))
    made.keep(tokens, payload)
    made.settle()
    (path,) = set(folder.glob("*.state")) - before
    return path


def test_what_was_kept_is_read_after_a_restart_and_is_private(tmp_path: Path) -> None:
    path = kept(tmp_path / "prefix")
    again = states(tmp_path / "prefix")
    known, length = again.best([*TOKENS, 7, 8], WINDOW)
    assert known is not None and (length, again.read(known)) == (300, b"state" * 100)
    assert again.has(TOKENS) and not again.has(TOKENS[:-1])
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_the_longest_common_beginning_wins_and_nothing_common_finds_nothing(tmp_path: Path) -> None:
    kept(tmp_path, b"a", TOKENS[:100])
    kept(tmp_path, b"b", TOKENS)
    again = states(tmp_path)
    known, length = again.best([*TOKENS[:200], 5, 6], WINDOW)
    assert known is not None and (length, again.read(known)) == (200, b"b")
    assert again.best([1, 2, 3], WINDOW) == (None, 0) and again.best([], WINDOW) == (None, 0)


def test_a_state_larger_than_the_window_is_passed_over_for_one_that_fits(tmp_path: Path) -> None:
    kept(tmp_path, b"a", TOKENS[:100])
    kept(tmp_path, b"b", TOKENS)
    again = states(tmp_path)
    known, length = again.best(TOKENS[:200], 250)
    assert known is not None and (length, again.read(known)) == (100, b"a")
    assert again.best(TOKENS[:200], 99) == (None, 0)


def test_another_identity_sees_nothing_of_it(tmp_path: Path) -> None:
    kept(tmp_path)
    assert states(tmp_path, "another model").best(TOKENS, WINDOW) == (None, 0)


@pytest.mark.parametrize("cut", [0, 5, 60, 200, 1000, -1, -4])
def test_a_truncated_file_is_never_used_and_is_made_anew(tmp_path: Path, cut: int) -> None:
    path = kept(tmp_path)
    known, _ = states(tmp_path).best(TOKENS, WINDOW)
    path.write_bytes(path.read_bytes()[:cut])
    assert known is not None and states(tmp_path).best(TOKENS, WINDOW) == (None, 0)
    path.write_bytes(b"")
    late = states(tmp_path)  # and one that knew it before it was damaged
    assert late.read(known) is None and not late.has(TOKENS)
    kept(tmp_path)
    assert states(tmp_path).has(TOKENS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_flipped_bit_is_never_believed(tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / str(time.monotonic_ns())
    path = kept(folder, b"\x00\x01\x02" * 50)
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[place + 1 :])
    again = states(folder)
    known, length = again.best(TOKENS, WINDOW)
    state = again.read(known) if known else None
    # A flip in the time of making changes nothing; any other is noticed.
    assert state is None or (state == b"\x00\x01\x02" * 50 and length == len(TOKENS))


def test_the_longest_unused_go_first_and_the_newest_stays(tmp_path: Path) -> None:
    paths = [kept(tmp_path, bytes(1000), [n, *TOKENS]) for n in range(4)]
    for age, path in zip([100, 10_000, 50, 1], paths):
        os.utime(path, (time.time() - age, time.time() - age))
    small = states(tmp_path, limit=6000 + 1000)
    small.keep([9, *TOKENS], bytes(1000))
    small.settle()
    left = set(tmp_path.glob("*.state"))
    assert paths[1] not in left and paths[3] in left and small.has([9, *TOKENS])
    assert sum(p.stat().st_size for p in left) <= 10_000


def test_what_is_larger_than_the_limit_is_not_written(tmp_path: Path) -> None:
    tiny = states(tmp_path, limit=100)
    tiny.keep(TOKENS, bytes(1000))
    tiny.settle()
    assert not list(tmp_path.glob("*.state"))
    assert tiny.may_take(100) and not tiny.may_take(101)
    none = states(tmp_path, limit=0)
    none.keep(TOKENS, b"")
    none.settle()


def test_using_a_state_often_writes_its_time_rarely(tmp_path: Path) -> None:
    path = kept(tmp_path)
    again = states(tmp_path)
    known, _ = again.best(TOKENS, WINDOW)
    assert known is not None
    before = path.stat().st_mtime_ns
    again.read(known)
    assert path.stat().st_mtime_ns == before
    os.utime(path, (1, 1))
    again.read(known)
    assert path.stat().st_mtime > 1


def test_leftovers_of_a_killed_writer_are_swept(tmp_path: Path) -> None:
    left = tmp_path / ".x.state.1.2.part"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    kept(tmp_path)
    assert not left.exists()


def test_a_folder_that_cannot_be_written_is_survived(tmp_path: Path) -> None:
    (tmp_path / "prefix").write_text("a file where the folder should be")
    nowhere = states(tmp_path / "prefix")
    nowhere.keep(TOKENS, b"x")
    nowhere.settle()
    assert nowhere.best(TOKENS, WINDOW) == (None, 0)
