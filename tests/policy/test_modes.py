"""On what terms a loop works: what modes and flags take away, and the order of what is left."""

from itertools import permutations
from typing import Any

import pytest

from appliance.policy import modes
from appliance.policy.modes import menu, refusal, terms
from appliance.records import Mode, RunSettings, Terms, ToolSpec

READING = ("get", "search", "env", "think")
ALL = ("think", "get", "search", "env", "set", "cp", "mv", "rm", "sh", "update", "ask_user")


def spec(name: str) -> ToolSpec:
    group = {"search": "web", "sh": "shell", "env": "shell"}.get(name, "entries")
    return ToolSpec(name, "", {}, group=group, is_read_only=name in READING)


def left(mode: Mode = "act", **settings: Any) -> list[str]:
    return [s.name for s in menu(terms(mode, RunSettings(**settings)), [spec(name) for name in sorted(ALL)])]


@pytest.mark.covers("R-052", "E-124", "R-051")
def test_tools_are_shown_in_one_order_however_they_were_registered() -> None:
    assert left() == list(ALL) and left() != sorted(ALL)
    for some in permutations(["ask_user", "set", "get", "think"]):
        assert [s.name for s in menu(Terms(), [spec(n) for n in some])] == ["think", "get", "set", "ask_user"]


@pytest.mark.covers("R-053", "E-120", "E-121", "E-122", "R-052", "R-003")
@pytest.mark.parametrize(
    ("mode", "flags", "gone"),
    [
        ("act", (), ()),
        ("ask", (), ("sh",)),
        ("act", ("no_interaction",), ("ask_user",)),
        ("act", ("no_web",), ("search",)),
        ("act", ("no_proposals",), ("ask_user", "env", "sh")),
        ("act", ("no_repo",), ()),
        ("ask", ("no_interaction", "no_web"), ("sh", "ask_user", "search")),
        ("ask", ("no_interaction", "no_web", "no_proposals"), ("sh", "ask_user", "search", "env")),
    ],
)
def test_modes_and_flags_take_tools_away_and_leave_the_order(mode: Mode, flags: tuple[str, ...], gone: tuple[str, ...]) -> None:
    assert left(mode, **dict.fromkeys(flags, True)) == [name for name in ALL if name not in gone]


def test_tools_that_nobody_named_come_after_their_kind() -> None:
    more = [ToolSpec("list_threads", "", {}, is_read_only=True), ToolSpec("remember", "", {}), ToolSpec("complete_task", "", {})]
    shown = [s.name for s in menu(Terms(), [*more, spec("get"), spec("set"), spec("update")])]
    assert shown == ["get", "list_threads", "set", "remember", "complete_task", "update"]


@pytest.mark.covers("R-057")
@pytest.mark.parametrize("name", ["sh", "shell", "exec"])
def test_what_is_taken_away_is_refused_by_every_name(name: str) -> None:
    for taken in (terms("ask", RunSettings()), terms("act", RunSettings(no_proposals=True))):
        assert refusal(taken, name) and not refusal(Terms(), name)


@pytest.mark.covers("R-003", "R-093", "R-095")
def test_who_decides_about_files() -> None:
    free, wild = terms("act", RunSettings()), RunSettings(is_yolo=True)
    assert free.bars_files == "" and free.approval == "review" and free == Terms()
    assert terms("act", wild).approval == terms("act", RunSettings(approval="auto")).approval == "auto"
    assert "without changing files" in terms("ask", wild).bars_files
    assert terms("act", RunSettings(approval="ask")).mode == "ask"
    assert terms("act", RunSettings(no_proposals=True)).bars_files
    assert not terms("act", RunSettings(no_proposals=True, is_yolo=True)).bars_files


def test_nobody_is_waited_for_where_nobody_is() -> None:
    alone = terms("act", RunSettings(), is_attended=False)
    assert "needs approval" in alone.bars_files and "needs approval" in refusal(alone, "ask_user")
    assert terms("act", RunSettings(approval="auto"), is_attended=False).bars_files == ""


@pytest.mark.covers("A-085")
def test_what_is_barred_is_not_to_be_had_however_it_is_named() -> None:
    assert modes.has(None, "exec", "shell") and not modes.has((), "exec", "shell")
    assert modes.has(("shell",), "exec", "shell") and not modes.has(("web",), "exec", "shell")
    assert not modes.has(("-shell",), "exec", "shell") and modes.has(("-shell",), "search", "knowledge")
    assert not modes.has(("exec", "-shell"), "exec", "shell") and not modes.has(("exec", "-shell"), "search", "knowledge")
    assert not modes.has(("shell", "-exec"), "exec", "shell") and modes.has(("shell", "-exec"), "sh", "shell")
    assert modes.unbarred(("exec", "-shell")) == ("exec",) and modes.unbarred(("-shell",)) is None and modes.unbarred(()) == ()
    assert "coder" in modes.instead(("-shell",), "shell") and modes.instead(("-web",), "shell") == modes.instead(None, "web") == ""
