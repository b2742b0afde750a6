"""What is written to the terminal: only what differs, and a terminal that follows the codes shows what was meant."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from appliance.tui.frame import Frame

WIDTH, HEIGHT = 20, 8
CODE = re.compile(r"\x1b\[([0-9;]*)([HGmr])|\x1bM|\n|[^\x1b\n]")
STYLES = (Style(), Style(bold=True), Style(color="#ff0000", bgcolor="#000010"))
WORDS = ("", "owl", "peas in March", "一二三", "é|é", "▌ hoot hoot hoot hoot", "q" * WIDTH, "e\u0301 combined")
LINES = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(STYLES)), min_size=HEIGHT, max_size=HEIGHT)
Cells = list[list[tuple[str, str]]]


class Terminal:
    """As much of a terminal as is needed: placing, styles, a scroll region."""

    def __init__(self) -> None:
        self.rows: Cells = [[("?", "")] * WIDTH for _ in range(HEIGHT)]
        self._x = self._y = 0
        self._style = ""
        self._region = (0, HEIGHT - 1)

    def write(self, codes: str) -> None:
        end = 0
        for found in CODE.finditer(codes):
            assert found.start() == end, repr(codes[end:])
            end = found.end()
            numbers, kind = found[1], found[2]
            if kind == "H":
                self._y, self._x = (int(number) - 1 for number in numbers.split(";"))
            elif kind == "G":
                self._x = int(numbers) - 1
            elif kind == "m":
                if numbers == "0" or numbers.startswith("0;"):
                    self._style = ""
                self._style += "" if numbers == "0" else numbers.removeprefix("0;")
            elif kind == "r":
                top, bottom = (int(number) - 1 for number in numbers.split(";")) if numbers else (0, HEIGHT - 1)
                self._region, self._x, self._y = (top, bottom), 0, 0
            elif found[0] == "\n":
                self._move(at=self._region[1], out=self._region[0], step=1)
            elif found[0] == "\x1bM":
                self._move(at=self._region[0], out=self._region[1], step=-1)
            else:
                self._put(found[0])
        assert end == len(codes)

    def _move(self, at: int, out: int, step: int) -> None:
        if self._y == at:
            self.rows.pop(out)
            self.rows.insert(at, [("?", "")] * WIDTH)
        else:
            self._y += step

    def _put(self, letter: str) -> None:
        width, row = cell_len(letter), self.rows[self._y]
        if not width:
            at = self._x - (2 if row[self._x - 1][0] == "" else 1)
            row[at] = (row[at][0] + letter, row[at][1])
            return
        assert self._x + width <= WIDTH, "nothing is written beyond the edge"
        row[self._x : self._x + width] = [(letter, self._style), ("", self._style)][:width]
        self._x += width


def strip(text: str, style: Style) -> Strip:
    return Strip([Segment(text, style)]).adjust_cell_length(WIDTH, style)


def whole(lines: list[tuple[str, Style]]) -> LayoutUpdate:
    return LayoutUpdate([[strip(*line)] for line in lines], Region(0, 0, WIDTH, HEIGHT))


def shown(lines: list[tuple[str, Style]]) -> Cells:
    """What such lines look like when they are all written."""
    terminal = Terminal()
    terminal.write(draw(Frame(), whole(lines)))
    return terminal.rows


def draw(frame: Frame, update: LayoutUpdate | ChopsUpdate) -> str:
    return frame.changes(update, (WIDTH, HEIGHT), ColorSystem.TRUECOLOR)


@pytest.mark.covers("B-157")
@given(st.lists(st.one_of(LINES, st.integers(-5, 5)), min_size=1, max_size=6))
def test_terminal_shows_what_was_meant_whatever_it_showed_before(screens: list[list[tuple[str, Style]] | int]) -> None:
    frame, terminal, lines = Frame(), Terminal(), [("", STYLES[0])] * HEIGHT
    for one in screens:
        lines = one if isinstance(one, list) else [*lines[one:], *lines[:one]]  # a number: all moves by so many lines
        terminal.write(draw(frame, whole(lines)))
        assert terminal.rows == shown(lines)
        assert draw(frame, whole(lines)) == ""


def test_letter_is_written_alone_and_lines_that_move_are_not_written() -> None:
    frame = Frame()
    lines = [(f"line {number}", STYLES[0]) for number in range(HEIGHT)]
    draw(frame, whole(lines))
    assert draw(frame, whole([*lines[:3], ("line X", STYLES[0]), *lines[4:]])) == "\x1b[4;6HX"
    draw(frame, whole(lines))
    moved = draw(frame, whole([*lines[1:7], ("line 8", STYLES[0]), lines[7]]))
    assert moved.startswith("\x1b[1;7r\x1b[7;1H\n\x1b[r") and "line 8" in moved and "line 5" not in moved


def test_part_of_a_line_leaves_the_rest() -> None:
    frame, terminal = Frame(), Terminal()
    terminal.write(draw(frame, whole([("abcdefghij", STYLES[0])] * HEIGHT)))
    piece = Strip([Segment("CDEFG", STYLES[0])])
    terminal.write(draw(frame, ChopsUpdate([{}, {2: piece}], [(1, 2, 5)], [[], [7]])))
    assert "".join(letter for letter, _ in terminal.rows[1]).rstrip() == "abCDEfghij"


def test_letters_that_are_joined_are_written_whole_and_everything_after_another_size() -> None:
    frame, family = Frame(), "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    lines = [("owl", STYLES[0])] * HEIGHT
    draw(frame, whole(lines))
    joined = draw(frame, whole([(family, STYLES[0]), *lines[1:]]))
    assert family in joined and "owl" not in joined
    assert "owl" in draw(frame, whole(lines)) and draw(frame, whole(lines)) == ""
    assert frame.changes(whole(lines), (WIDTH, HEIGHT + 1), ColorSystem.TRUECOLOR).count("owl") == HEIGHT
    frame.forget()
    assert draw(frame, whole(lines)).count("owl") == HEIGHT
