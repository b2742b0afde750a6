"""What the terminal shows, cell by cell, so that only cells that change are written, and lines that move are scrolled.

Textual writes a widget anew as a whole when a letter of it changes, and the whole screen when the talk scrolls by a line. Over a
slow line that is most of what is sent. `Frame` knows what was written last and lets through the difference. Lines that moved
together are moved by the terminal, with a scroll region (DECSTBM), line feed and reverse index, which every terminal has.

Limits: a line with letters whose width depends on their neighbours is written as Textual writes it. What others write to the
terminal is not known: `forget` makes everything be written again. Links (OSC 8) are left out; the screen has none.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.color import ColorSystem
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.app import App
from textual.screen import Screen
from textual.strip import Strip

Cell = tuple[str, str]  # a letter and the codes of its style; the second half of a wide letter is empty
Row = list[Cell | None]  # None: nobody knows what stands there
GAP = 4  # so many equal cells are written again rather than skipped
LEAST_MOVED = 3  # lines with text that have to move together for a scroll to pay
SIDE = 2  # columns at the right edge that may differ in lines that moved: a scroll bar


class FrameApp(App[None]):
    """A program that writes only what differs from what its terminal shows."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._frame = Frame()

    def on_mount(self) -> None:
        """After Ctrl+Z another program has had the terminal."""
        self.app_resume_signal.subscribe(self, lambda _: self.draw_anew())

    def draw_anew(self) -> None:
        """Write the whole screen."""
        self._frame.forget()
        self.refresh(layout=True)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        """Textual has something to write; nothing is written where nothing differs."""
        is_written = self._running and not (self._closed or self._batch_count or self.is_headless or self.is_inline)
        if isinstance(renderable, CompositorUpdate) and is_written:
            colours = self.console._color_system or ColorSystem.TRUECOLOR
            codes = self._frame.changes(renderable, (self.size.width, self.size.height), colours)
            is_moved = self.cursor_position != self._previous_cursor_position
            renderable = FrameChanges(codes) if codes or is_moved else None
        super()._display(screen, renderable)


class FrameChanges(CompositorUpdate):
    """Codes that are ready to be written."""

    def __init__(self, codes: str) -> None:
        self._codes = codes

    def render_segments(self, console: object) -> str:
        """The bytes to write to the terminal."""
        return self._codes


class Frame:
    """The screen of one terminal."""

    def __init__(self) -> None:
        self._width = 0
        self._rows: list[Row] = []

    def forget(self) -> None:
        """Nobody knows what stands on the terminal: everything is written next time."""
        self._rows = []

    def changes(self, update: CompositorUpdate, size: tuple[int, int], colours: ColorSystem) -> str:
        """The codes that bring the terminal of this size from what it shows to what the update shows; "" for nothing."""
        width, height = size
        if (self._width, len(self._rows)) != size:
            self._width, self._rows = width, [[None] * width for _ in range(height)]
        wanted: dict[int, Row] = {}
        opaque: dict[int, list[tuple[int, Strip]]] = {}
        for y, pieces in _pieces(update):
            if y >= height:
                continue
            row = wanted.get(y) or list(self._rows[y])
            for x, strip in pieces:
                if (cells := _cells(strip, colours)) is None:
                    opaque[y] = [*opaque.get(y, ()), *pieces]
                    break
                cells = cells[: max(0, width - x)]
                row[x : x + len(cells)] = cells
            wanted[y] = row
        pen = _Pen()
        if not opaque:
            self._scroll(wanted, pen)
        for y in sorted(wanted):
            if y in opaque:
                pen.write_strips(y, opaque[y], colours)
                self._rows[y] = [None] * width
            elif wanted[y] != self._rows[y]:
                pen.write_row(y, self._rows[y], wanted[y])
                self._rows[y] = wanted[y]
        return pen.finish()

    def _scroll(self, wanted: dict[int, Row], pen: "_Pen") -> None:
        """Let the terminal move the lines that stand above or below their place, where enough of them do."""
        changed = [y for y, row in wanted.items() if row != self._rows[y]]
        if len(changed) < LEAST_MOVED:
            return
        first, last = min(changed), max(changed)
        before = [_key(row) for row in self._rows]
        after = [_key(wanted.get(y, row)) for y, row in enumerate(self._rows)]
        places: dict[tuple[Cell | None, ...], list[int]] = {}
        for y in range(first, last + 1):
            if before[y]:
                places.setdefault(before[y], []).append(y)
        votes = Counter(old - y for y in changed for old in places.get(after[y], ()) if after[y])
        by, _ = max(votes.items(), key=lambda one: (one[1], -abs(one[0])), default=(0, 0))
        if not by:
            return
        span = _longest_run(y for y in range(first, last + 1) if first <= y + by <= last and after[y] == before[y + by])
        gained = sum(1 for y in span if after[y] and after[y] != before[y])
        if gained < LEAST_MOVED:
            return
        top, bottom = min(span[0], span[0] + by), max(span[-1], span[-1] + by)
        if any(None in wanted.get(y, self._rows[y]) for y in range(top, bottom + 1)):
            return  # what is not known would stay where it was moved to
        pen.scroll(top, bottom, by)
        block = self._rows[top : bottom + 1]
        empty: list[Row] = [[None] * self._width for _ in range(abs(by))]
        self._rows[top : bottom + 1] = [*block[by:], *empty] if by > 0 else [*empty, *block[:by]]
        for y in range(top, bottom + 1):
            wanted.setdefault(y, block[y - top])  # what moved and is not part of the update has to be where it was


class _Pen:
    """Codes as they are collected; knows the place and the style that the last ones left the terminal with."""

    def __init__(self) -> None:
        self._codes: list[str] = []
        self._style = ""
        self._place = (-1, -1)

    def write_row(self, y: int, before: Row, after: Row) -> None:
        """The cells of a line that differ."""
        x, width = 0, len(after)
        while x < width:
            if after[x] == before[x] or after[x] is None:
                x += 1
                continue
            while x and (cell := after[x]) is not None and cell[0] == "":
                x -= 1  # a wide letter is written as a whole
            stop = _end_of_run(before, after, x)
            self._go_to(x, y)
            for cell in after[x:stop]:
                if cell is not None and cell[0]:
                    self._set_style(cell[1])
                    self._codes.append(cell[0])
            self._place = (stop, y) if stop < width else (-1, -1)
            x = stop

    def write_strips(self, y: int, pieces: Sequence[tuple[int, Strip]], colours: ColorSystem) -> None:
        """Pieces of a line as Textual writes them."""
        self._set_style("")
        for x, strip in pieces:
            self._codes.append(f"\x1b[{y + 1};{x + 1}H")
            self._codes += [Strip.render_style(style, text, colours) if style else text for text, style, _ in strip]
        self._place = (-1, -1)

    def scroll(self, top: int, bottom: int, by: int) -> None:
        """Move the lines between two of them up, or down for a negative number."""
        self._set_style("")
        at, move = (bottom, "\n") if by > 0 else (top, "\x1bM")
        self._codes.append(f"\x1b[{top + 1};{bottom + 1}r\x1b[{at + 1};1H{move * abs(by)}\x1b[r")
        self._place = (-1, -1)

    def finish(self) -> str:
        """All of them."""
        self._set_style("")
        return "".join(self._codes)

    def _go_to(self, x: int, y: int) -> None:
        if self._place != (x, y):
            self._codes.append(f"\x1b[{x + 1}G" if self._place[1] == y else f"\x1b[{y + 1};{x + 1}H")

    def _set_style(self, style: str) -> None:
        if style != self._style:
            self._codes.append(f"\x1b[{'0;' if self._style and style else ''}{style or '0'}m")
            self._style = style


def _pieces(update: CompositorUpdate) -> Iterator[tuple[int, list[tuple[int, Strip]]]]:
    """The strips of an update by line, each with its first column."""
    if isinstance(update, LayoutUpdate):
        for y, strips in enumerate(update.strips, update.region.y):
            x, found = update.region.x, []
            for strip in strips:
                found.append((x, strip))
                x += strip.cell_length
            yield y, found
    elif isinstance(update, ChopsUpdate):
        for y, first, stop in update.spans:
            yield (
                y,
                [
                    (x, strip if end <= stop else strip.crop(0, stop - x))
                    for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items())
                    if strip is not None and x < stop and end > first
                ],
            )


def _cells(strip: Strip, colours: ColorSystem) -> list[Cell] | None:
    """The cells of a strip; None where the letters together are not as wide as each alone."""
    found: list[Cell] = []
    for text, style, control in strip:
        if control:
            continue
        codes = Strip.render_ansi(style, colours) if style else ""
        if text.isascii():
            found += [(letter, codes) for letter in text]
            continue
        before = len(found)
        for letter in text:
            width = cell_len(letter)
            if width:
                found += [(letter, codes), ("", codes)][:width]
            elif len(found) > before:
                at = len(found) - (2 if found[-1][0] == "" else 1)
                found[at] = (found[at][0] + letter, codes)
        if len(found) - before != cell_len(text):
            return None
    return found


def _end_of_run(before: Row, after: Row, x: int) -> int:
    """Where the cells that are written together from a place on end: behind the last that differs before a gap."""
    stop, width = x + 1, len(after)
    for at in range(x + 1, width):
        if after[at] is None or at - stop > GAP:
            break
        if after[at] != before[at]:
            stop = at + 1
    while stop < width and (cell := after[stop]) is not None and cell[0] == "":
        stop += 1
    return stop


def _key(row: Row) -> tuple[Cell | None, ...]:
    """What two lines are compared by: nothing for one that is empty or not known."""
    cells = tuple(row[:-SIDE])
    if None in cells or all(cell is not None and cell[0] in (" ", "") for cell in cells):
        return ()
    return cells


def _longest_run(numbers: Iterator[int]) -> list[int]:
    """The longest part of ascending numbers without a gap."""
    best: list[int] = []
    run: list[int] = []
    for number in numbers:
        run = [*run, number] if run and run[-1] + 1 == number else [number]
        best = run if len(run) > len(best) else best
    return best
