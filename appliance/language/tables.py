"""The tables of a text: Markdown tables, CSV, lists, boxes and lines that begin with a date, each a set of rows with columns.

A row keeps the line it was read from, which is what a person is shown. Cells stay text; `number_of` and `day_of` read them, and
say nothing where a cell is neither. Pure. Month names come from the language files; nothing is known of questions.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date

from msgspec import Struct

from appliance.language.sentences import HEADING_MARK, ITEM, ROW, RULE, cells_of, row_line

MonthOf = Callable[[str], int]

MOST_ROWS = 2000  # of one text
LEAST_LISTED = 2  # items that make a list, lines that make a log
DATA_FILES = (".csv", ".tsv")
BOX = re.compile(r"^\[(?P<tick>[ xX✓✔])\]\s+")
DATED = re.compile(r"^(?P<date>(?:19|20)\d\d-\d\d(?:-\d\d)?|\d{1,2}\.\d{1,2}\.(?:19|20)\d\d)[:,\s]\s*(?P<rest>\S.*)$")
NAMED = re.compile(r"^(?P<name>[^:;|]{1,60}?)\s*(?::| – | — | - )\s*(?P<value>\S.*)$")
FIELD = re.compile(r"^(?:[-*] )?(?P<name>[^:;|]{1,40}?): (?P<value>\S.*)$")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|\[\[(?:[^|\]]*\|)?([^\]]*)\]\]")
STARS = re.compile(r"[★⭐]+")
NUMBER = re.compile(r"(?<![\w.,])[-−]?\d{1,3}(?:[ ,.'’]\d{3})+(?:[.,]\d{1,2})?(?![\d])|(?<![\w.,])[-−]?\d+(?:[.,]\d{1,3})?(?!\d)")
UNITS = re.compile(r"^[^\d]{0,6}$")  # what may stand beside the number of a cell that is one: a sign of money, a unit
ISO_DAY = re.compile(r"\b((?:19|20)\d\d)-(0[1-9]|1[0-2])(?:-([0-3]\d))?\b")
DOTTED_DAY = re.compile(r"\b(\d{1,2})\.\s?(\d{1,2})\.\s?((?:19|20)\d\d)?")
WORDED_DAY = re.compile(
    r"\b(\d{1,2})(?:\.|st|nd|rd|th)?\s+(?:\w{2}\s+)?([^\W\d_]{3,})\.?(?:,?\s+((?:19|20)\d\d))?|\b([^\W\d_]{3,})\.?\s+(\d{1,2})(?:st|nd|rd|th)?\b(?:,?\s+((?:19|20)\d\d))?"
)


class Day(Struct, frozen=True):
    """A day as it was written: without a year where it comes back every year, without a day where a month is meant."""

    month: int
    day: int | None
    year: int | None

    def first(self) -> date | None:
        """The day, the first one of a month; None without a year, or where the calendar has none."""
        return make_date(self.year, self.month, self.day or 1) if self.year else None

    def next(self, today: date) -> date | None:
        """The next time from today on; the day itself where it has a year."""
        return self.first() or min((one for one in self._near(today) if one >= today), default=None)

    def last(self, today: date) -> date | None:
        """The last time before today; the day itself where it has a year."""
        return self.first() or max((one for one in self._near(today) if one < today), default=None)

    def _near(self, today: date) -> list[date]:
        """Its days in the years around this one: 29 February comes at least every eight."""
        years = range(today.year - 8, today.year + 9)
        return [found for year in years if (found := make_date(year, self.month, self.day or 1)) is not None]


class TableRow(Struct, frozen=True):
    """One row: its cells, the line as a person reads it, and whether its box is ticked; None where it has none."""

    cells: tuple[str, ...]
    line: str
    is_ticked: bool | None = None

    @property
    def text(self) -> str:
        return " ".join(self.cells)


class RowTable(Struct, frozen=True):
    """Rows that stand together. `title` is what names them: the heading above, the words before a colon, and the file."""

    ref: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]

    def column(self, place: int) -> list[str]:
        """The cells of a column, "" where a row has none."""
        return [row.cells[place] if place < len(row.cells) else "" for row in self.rows]

    def numeric(self) -> list[int]:
        """The columns whose cells are numbers, but for one that only numbers the rows."""
        return [place for place in range(len(self.columns)) if self._is_numeric(place)]

    def _is_numeric(self, place: int) -> bool:
        cells = [cell for cell in self.column(place) if cell]
        if not cells or any(number_of(cell) is None or ISO_DAY.search(cell) for cell in cells):
            return False
        numbers = [number_of(cell) or 0.0 for cell in cells]
        is_running = len(cells) > LEAST_LISTED and all(two - one == 1 for one, two in zip(numbers, numbers[1:]))
        return not is_running

    def dated(self, month_of: MonthOf) -> list[int]:
        """The columns whose cells are days."""
        return [
            place
            for place in range(len(self.columns))
            if (cells := [cell for cell in self.column(place) if cell])
            and all(day_of(cell, month_of) is not None for cell in cells)
        ]


def is_data(ref: str) -> bool:
    """Whether a reference is that of a file of values."""
    return ref.lower().endswith(DATA_FILES)


def read_tables(ref: str, title: str, text: str) -> list[RowTable]:
    """The tables of a note; `title` names the note."""
    file = re.sub(r"\.\w{1,5}$", "", ref.rpartition("/")[2]).replace("-", " ").replace("_", " ")
    name = " ".join(dict.fromkeys(f"{title} {file}".split()))
    if is_data(ref):
        return list(_read_data(ref, name, text))
    return [*_read_markdown(ref, name, text), *_read_records(ref, name, text)]


def _read_data(ref: str, name: str, text: str) -> Iterator[RowTable]:
    """The one table of a file of values."""
    lines = [line for line in text.lstrip("\ufeff").splitlines() if line.strip()][: MOST_ROWS + 1]
    if len(lines) < LEAST_LISTED:
        return
    mark = max(",;\t", key=lambda one: sum(line.count(one) for line in lines[:20]))
    if not lines[0].count(mark):
        return
    head, *rows = csv.reader(lines, delimiter=mark)
    columns = tuple(_plain(cell) for cell in head)
    yield RowTable(ref, name, columns, tuple(_make_row(columns, [_plain(cell) for cell in row]) for row in rows))


def _read_markdown(ref: str, name: str, text: str) -> Iterator[RowTable]:
    lines = text.split("\n")
    heading, at = "", 0
    while at < len(lines):
        line = lines[at]
        if ROW.match(line) and at + 1 < len(lines) and RULE.match(lines[at + 1]):
            columns = tuple(_plain(cell) for cell in cells_of(line))
            stop = next((n for n in range(at + 2, len(lines)) if not ROW.match(lines[n])), len(lines))
            rows = [_make_row(columns, [_plain(cell) for cell in cells_of(one)]) for one in lines[at + 2 : stop][:MOST_ROWS]]
            yield RowTable(ref, f"{heading} {name}".strip(), columns, tuple(rows))
        elif HEADING_MARK.match(line) or (line.rstrip().endswith(":") and not ITEM.match(line)):
            heading, stop = HEADING_MARK.sub("", line).strip(" :#*"), at + 1
        else:
            match = next((kind for kind in (ITEM, DATED) if kind.match(line)), None)
            stop = at + 1
            while match is not None and stop < len(lines) and match.match(lines[stop]):
                stop += 1
            if match is not None and stop - at >= LEAST_LISTED:
                rows = [_listed_row(one) for one in lines[at:stop][:MOST_ROWS]]
                columns = ("",) * max(len(row.cells) for row in rows)
                yield RowTable(ref, f"{heading} {name}".strip(), columns, tuple(rows))
        at = stop


def _read_records(ref: str, name: str, text: str) -> Iterator[RowTable]:
    """Headings with nothing but named values below them, as contacts have: a row for each."""
    rows: list[tuple[str, dict[str, str]]] = []
    for part in re.split(r"(?m)^#{2,6} +", text)[1:]:
        head, *lines = [line for line in part.split("\n") if line.strip()]
        found = [FIELD.match(line) for line in lines]
        if found and all(found):
            rows.append((_plain(head), {one["name"]: _plain(one["value"]) for one in found if one is not None}))
    columns = list(dict.fromkeys(key for _, facts in rows for key in facts))
    if len(rows) < LEAST_LISTED:
        return
    made = (
        TableRow((head, *(facts.get(key, "") for key in columns)), _record_line(head, facts)) for head, facts in rows[:MOST_ROWS]
    )
    yield RowTable(ref, name, ("", *columns), tuple(made))


def _record_line(head: str, facts: Mapping[str, str]) -> str:
    return f"{head}: {'; '.join(f'{key}: {value}' for key, value in facts.items())}"


def _listed_row(line: str) -> TableRow:
    """An item of a list, or a line of a log: its date or name apart from the rest."""
    said = ITEM.sub("", line).strip() if ITEM.match(line) else line.strip()
    box = BOX.match(said)
    said = _plain(BOX.sub("", said))
    dated, named = DATED.match(said), NAMED.match(said)
    cells = (dated["date"], dated["rest"]) if dated else (named["name"], named["value"]) if named else (said,)
    return TableRow(cells, said, box["tick"] != " " if box else None)


def _make_row(columns: Sequence[str], cells: Sequence[str]) -> TableRow:
    return TableRow(tuple(cells), row_line([column.replace("_", " ") for column in columns], cells))


def _plain(cell: str) -> str:
    """A cell as it is read: of a link its words, without marks of emphasis."""
    return re.sub(r"[*_`]{1,3}(\S(?:.*?\S)?)[*_`]{1,3}", r"\1", LINK.sub(lambda at: at[1] or at[2] or "", cell)).strip()


# -- what a cell says -----------------------------------------------------------------------------------


def number_of(cell: str) -> float | None:
    """The number that a cell is, stars counted; None for one with other words, or several numbers."""
    if stars := STARS.fullmatch(cell.strip()):
        return float(len(stars[0]))
    found = NUMBER.findall(cell)
    rest = NUMBER.sub("", cell)
    return parse_number(found[0]) if len(found) == 1 and UNITS.match(rest.strip()) else None


def parse_number(written: str) -> float:
    """A number as people write it: 1,610 and 1.610 are thousands, 1,5 and 1.50 are not."""
    plain = re.sub(r"[ '’]", "", written).replace("−", "-")
    last = max(plain.rfind(","), plain.rfind("."))
    if last < 0:
        return float(plain)
    is_whole = len(plain) - last - 1 == 3 and plain[:last].lstrip("-").replace(",", "").replace(".", "") not in ("", "0")
    head = re.sub(r"[.,]", "", plain if is_whole else plain[:last])
    return float(head) if is_whole else float(f"{head}.{plain[last + 1 :]}")


def day_of(cell: str, month_of: MonthOf) -> Day | None:
    """The first day that a cell names; `month_of` gives the number of a word that is a month, 0 for any other."""
    if found := ISO_DAY.search(cell):
        return Day(int(found[2]), int(found[3]) if found[3] else None, int(found[1]))
    if found := DOTTED_DAY.search(cell):
        return _checked(int(found[2]), int(found[1]), found[3])
    for worded in WORDED_DAY.finditer(cell):
        day, name, year = (worded[1], worded[2], worded[3]) if worded[1] else (worded[5], worded[4], worded[6])
        if month := month_of(name.lower()):
            return _checked(month, int(day), year)
    return None


def _checked(month: int, day: int, year: str | None) -> Day | None:
    return Day(month, day, int(year) if year else None) if make_date(2000, month, day) else None


def make_date(year: int, month: int, day: int) -> date | None:
    """A date; None where the calendar has none."""
    try:
        return date(year, month, day)
    except ValueError:
        return None
