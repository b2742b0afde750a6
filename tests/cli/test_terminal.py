"""Tables on terminals of any width: what is cut, what never is, and that letters of two columns count as two."""

import io
import os
import pty
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any, TextIO

import pytest
from process import Box, a_box  # noqa: F401

from appliance.cli import session
from appliance.console import terminal

ID = "019ab2c4-0000-7000-8000-00000000000"
HEADS = ["id", "state", "name"]
ROWS = [[f"{ID}1", "waiting", "short"], [f"{ID}2", "done", "a name that goes on and on and never comes to an end"]]


def drawn(rows: list[list[str]], heads: list[str], width: int, monkeypatch: pytest.MonkeyPatch, *cut: str) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width) if width else "")
    out = io.StringIO()
    terminal.table(rows, heads, out, cut=cut)
    return out.getvalue().splitlines()


def test_a_pipe_has_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(ROWS, HEADS, 0, monkeypatch, "name")
    assert lines[2].endswith("comes to an end") and len(lines) == 3


def test_what_may_be_cut_is_cut_until_the_line_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(ROWS, HEADS, 70, monkeypatch, "name")
    assert max(map(len, lines)) <= 70 and lines[2].startswith(f"{ID}2  done ") and lines[2].endswith("…")
    assert lines[1] == f"{ID}1  waiting  short"


def test_nothing_is_cut_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(ROWS, HEADS, 200, monkeypatch, "name") == drawn(ROWS, HEADS, 0, monkeypatch, "name")


@pytest.mark.parametrize("width", [60, 50, 40])
def test_a_narrow_terminal_has_the_first_column_on_a_line_of_its_own(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(ROWS, HEADS, width, monkeypatch, "name")
    assert [line for line in lines if not line.startswith(" ")] == ["id", f"{ID}1", f"{ID}2"]
    assert lines[1].split() == ["state", "name"] and lines[5].startswith("  done     a name that")
    assert max(map(len, lines)) <= width


def test_what_may_not_be_cut_stays_whole_however_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in range(1, 60):
        text = "\n".join(drawn(ROWS, HEADS, width, monkeypatch, "name"))
        assert f"{ID}2" in text and "waiting" in text
        assert "a name that goes on" in "\n".join(drawn(ROWS, HEADS, width, monkeypatch))


def test_several_columns_share_what_room_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn([["1", "x" * 60, "y" * 30, "z"]], ["n", "what", "when", "end"], 60, monkeypatch, "what", "when")
    assert len(lines[0]) == 60 and lines[1].count("…") == 2 and lines[1].endswith("  z")


def test_wide_letters_take_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn([["1", "日本語", "x"], ["2", "e\u0301te\u0301", "x"]], ["n", "name", "end"], 0, monkeypatch)
    assert lines == ["n  name    end", "1  日本語  x", "2  e\u0301te\u0301     x"]
    lines = drawn([["1", "日本語" * 20, "x"]], ["n", "name", "end"], 40, monkeypatch, "name")
    assert terminal.breadth(lines[1]) <= 40 and lines[1].endswith("x")


def test_a_line_is_clipped_to_its_room() -> None:
    assert terminal.clipped("short", 5) == "short" and terminal.clipped("longer", 5) == "long…"
    assert terminal.clipped("日本語", 5) == "日本…" and terminal.breadth(terminal.clipped("日本語", 4)) <= 4
    assert terminal.clipped("two words", 5) == "two…"


def test_the_width_is_what_columns_says_else_the_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = pty.openpty()
    try:
        with open(theirs, "w", closefd=False) as out:
            monkeypatch.delenv("COLUMNS", raising=False)
            assert terminal.columns(out) == terminal.NARROW  # this one does not say
            monkeypatch.setenv("COLUMNS", "66")
            assert terminal.columns(out) == 66 and terminal.columns(io.StringIO()) == 66
            monkeypatch.setenv("COLUMNS", "wide")
            assert terminal.columns(io.StringIO()) == 0
    finally:
        os.close(theirs)
        os.close(mine)


LISTS = (
    "thread list",
    "run list",
    "session list",
    "entry list",
    "entry waiting",
    "context list --drive memory",
    "context tree",
    "task list",
    "schedule list",
    "worker list",
    "role list",
    "job list",
    "grants list",
    "secret list",
    "mcp servers",
    "model list",
    "tool list",
    "policy log",
    "usage",
    "sql",
    "sql select id, name, description from tasks",
    "history memory:/a",
)


@pytest.mark.parametrize("has_much", [False, True])
def test_every_list_fits_the_terminal(box: Box, has_much: bool) -> None:
    box.serve()
    name = "a name that goes on and on, with 日本語 in it, " * 4
    assert box.run("entry", "set", "memory:/a", name).returncode == 0
    if has_much:
        made = (
            ("ask", name),
            ("entry", "set", "memory:/b/with/a/path", f"# {name}"),
            ("task", "add", name, "--description", name * 3),
            ("schedule", "add", name, "--frequency", "every weekday at 7am except on the first Monday of the month"),
            ("remind", name, "--when", "tomorrow at noon"),
            ("grants", "add", "web", "a-long-host-name." * 5 + "example", "--from", "web:" + "b." * 40 + "example"),
            ("mcp", "add", "far", "--command", "python3", "--args", "-c " + "x" * 100, "--no-index"),
        )
        for words in made:
            done = box.run(*words)
            assert done.returncode == 0, (words, done.stderr)
    for words in LISTS:
        for width in (80, 60):
            shown = box.run(*words.split(" ", 1 if words.startswith("sql") else -1), COLUMNS=str(width))
            assert shown.returncode == 0 and shown.stdout.strip(), (words, shown.stderr)
            lines = shown.stdout.splitlines()
            broad = [line for line in lines if terminal.breadth(line) > width and (has_much or width == 80)]
            assert not broad and not shown.stderr, (words, width, broad, shown.stderr)


def on_terminal(work: Callable[[TextIO], object]) -> str:
    """What is written to a terminal."""
    mine, theirs = pty.openpty()
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as out:
            work(out)
        told = bytearray()
        with suppress(OSError):  # EIO after the last byte: what was written may come in several pieces
            while data := os.read(mine, 65536):
                told += data
        return told.decode().replace("\r\n", "\n")
    finally:
        os.close(mine)


def test_a_terminal_is_shown_what_nobody_sees() -> None:
    hidden = "".join(chr(0xE0000 + ord(c)) for c in "47")
    told = on_terminal(lambda out: terminal.say(f"page2{hidden}\x1b[2J a\u200bb 👩\u200d🚀", out))
    assert told == "page2\\u{e0034}\\u{e0037}\\u{1b}[2J a\\u{200b}b 👩\u200d🚀\n"
    assert on_terminal(lambda out: terminal.complain("no\nsuch\u202e thing", out)) == "owlbox: no such\\u{202e} thing\n"


def test_an_export_on_a_terminal_shows_what_nobody_sees_and_in_a_pipe_is_as_it_is() -> None:
    class Told:
        """A core that streams one line."""

        def call(self, method: str, params: Any = None, listen: Any = None) -> None:
            listen("line", {"text": '{"title": "a\u202eb\u2028c"}\n'})

    def export(out: TextIO) -> None:
        with redirect_stdout(out):
            session.write_stream(Told(), {"thread": "x"}, "")  # type: ignore[arg-type]

    assert on_terminal(export) == '{"title": "a\\u{202e}b\\u{2028}c"}\n'
    export(piped := io.StringIO())
    assert piped.getvalue() == '{"title": "a\u202eb\u2028c"}\n'


def test_no_cell_and_no_line_is_forged() -> None:
    out = io.StringIO()
    terminal.table([["a\u200b", "b\x1b[A"]], ["x", "y"], out)
    terminal.say_line("problem: a\n  ok: b", out)
    assert out.getvalue().splitlines()[1:] == ["a\\u{200b}  b\\u{1b}[A", "problem: a\\n  ok: b"]


def test_pieces_of_an_answer_keep_their_spelling() -> None:
    def work(out: TextIO) -> None:
        answer = terminal.AnswerPrinter(out, None)
        for piece in "👩\u200d🚀 ❤\ufe0f a\u200db":
            answer.listen("delta", {"text": piece})
        answer.end_line()

    assert on_terminal(work) == "👩\u200d🚀 ❤\ufe0f a\\u{200d}b\n"
