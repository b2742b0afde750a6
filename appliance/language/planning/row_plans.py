"""Answers that are worked out from rows of notes: how many, how much in all, the most, the next one, whether a box is ticked.

A question is read into an operation and words; a table answers it only when its rows are what the question's noun names, every
other word stands in its title, its columns or its cells, and the column that is asked for can be told. In doubt there is no
answer, and the question is answered from sentences. What is said comes from the rows, which are shown with it. Words that ask
for an operation stand in the table `rows` of each language file. How near two texts are in meaning is a port.
"""

import re
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime
from enum import StrEnum
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from appliance.language import word_forms
from appliance.language.evidence import Evidence, Finder
from appliance.language.languages import Language, kind_words, strip_accents, words_in
from appliance.language.planning.plans import Say, Scene, shown_source
from appliance.language.support import denies
from appliance.language.tables import DATED, Day, MonthOf, RowTable, TableRow, day_of, number_of, read_tables
from appliance.records import ThreadState

Nearness = Callable[[str, str], float]

COLUMN_NEAR, NEARER = 0.4, 0.12  # cosine of "brightest" and the column "Lux" .54, and how much less any other column may have
FORM_NEAR = 0.75  # cosine of "pay" and the column "paid" .81, of "come" .26
KIND_NEAR = 0.3  # cosine of a noun and a table's title and columns: books and "Name, Author, Rating" .38, tasks .19 (MiniLM)
MOST_SHOWN = 12
HUNDREDTHS = re.compile(r"[.,]\d\d(?!\d)")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")


class RowOperation(StrEnum):
    """What is done with the rows."""

    COUNT = "count"
    SUM = "sum"
    AVERAGE = "average"
    MOST = "most"
    LEAST = "least"
    LAST = "last"
    FIRST = "first"
    NEXT = "next"
    WHICH = "which"
    TOLD = "told"  # which, by a column of yes and no alone: "who has not paid?"
    WHETHER = "whether"


OPERATIONS = frozenset(one.value for one in RowOperation)
BY_FIRST_WORD = (RowOperation.WHICH, RowOperation.TOLD, RowOperation.WHETHER)
ADDED = (RowOperation.SUM, RowOperation.AVERAGE)
IN_TIME = (RowOperation.LAST, RowOperation.FIRST, RowOperation.NEXT)


class RowRequest(Struct, frozen=True):
    """A question as an operation and the words that say on what."""

    operation: RowOperation
    words: tuple[str, ...]  # the noun first
    compound: int = 1  # how many of them stand side by side there, of which one may be the noun: "glaze orders"
    month: int = 0
    year: int = 0
    is_yearly: bool = False  # of days that come again each year, such as birthdays
    compared: str = ""  # the words that ask for the operation: "brightest"
    is_denied: bool = False  # "not paid yet"
    answers: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())  # what cells say for yes, and for no
    denying: tuple[str, ...] = ()  # beginnings of words that deny: "unpaid"
    beside: tuple[str, ...] = ()  # the other words of the question, such as its verb

    def bare(self, word: str) -> str:
        """A word without the beginning that denies: paid for "unpaid"; "" for one without."""
        return next((word[len(one) :] for one in self.denying if word.startswith(one)), "")


class RowAnswer(Struct, frozen=True):
    """What the rows of a table say: a number in words ("" where the rows are all of it), and the rows it comes from."""

    operation: RowOperation
    ref: str
    rows: tuple[TableRow, ...]
    value: str = ""
    is_ticked: bool = False
    day: date | None = None  # where days are compared

    @property
    def lines(self) -> list[str]:
        """The rows as they are shown."""
        shown = [row.line for row in self.rows[:MOST_SHOWN]]
        return [*shown, "…"] if len(self.rows) > MOST_SHOWN else shown


def read_request(
    question: str, language: Language, ignored: Collection[str], month_of: MonthOf, last: str = ""
) -> RowRequest | None:
    """What a question asks of rows; None for one that asks nothing of the kind. One that names nothing ("how much is that in
    total?") asks of the rows that `last`, the question before it, was about."""
    said = " ".join(words_in(question))
    found = _find_operation(said, language)
    if found is None and language.words["question"].isdisjoint(words_in(question)) and any(map(month_of, words_in(question))):
        found = RowOperation.SUM, "", said  # "groceries in October"
    if found is None:
        return None
    operation, compared, rest = found
    named = [word for word in words_in(rest) if month_of(word)]
    years = YEAR.findall(question)
    ours = {*ignored, *named, *years} | language.words["own"] | frozenset(language.rows.get("beside", ()))
    words = tuple(word for word in word_forms.content_words(rest, ours) if not denies(word))
    if len(named) > 1 or len(years) > 1:
        return None
    if not words:
        before = read_request(last, language, ignored, month_of) if last and not named and not years else None
        return replace(before, operation=operation, compared=compared) if before is not None else None
    is_yearly = not set(words).isdisjoint(language.rows.get("yearly", ()))
    month, year = month_of(named[0]) if named else 0, int(years[0]) if years else 0
    cells = frozenset(language.rows.get("yes", ())), frozenset(language.rows.get("no", ()))
    told = denies(question), cells, language.rows.get("denying", ()), tuple(words_in(rest))
    spoken = [word_forms.without_possessive(strip_accents(word)) for word in words_in(rest)]
    start = spoken.index(words[0]) if words[0] in spoken else len(spoken)
    compound = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, spoken[start:])))
    return RowRequest(operation, words, max(1, compound), month, year, is_yearly, compared, *told)


def _find_operation(said: str, language: Language) -> tuple[RowOperation, str, str] | None:
    """The operation that a question names, the phrase that does, and the other words: the longest phrase counts."""
    first = word_forms.without_possessive(said.split(" ", 1)[0])
    best: tuple[int, RowOperation, str, str] | None = None
    for name, phrases in language.rows.items():
        if name not in OPERATIONS:
            continue
        operation = RowOperation(name)
        if operation in ADDED and language.expression("asks_who").search(said):
            continue  # "who has not paid for it?"
        for phrase in phrases:
            if operation in BY_FIRST_WORD:
                place, length = (0, 0) if first == phrase else (-1, 0)  # weaker than any other
            else:
                place, length = _find_phrase(said, phrase), len(phrase)
            if place >= 0 and (best is None or length > best[0]):
                best = (length, operation, phrase, f"{said[:place]} {said[place + len(phrase) :]}")
    if best is None:
        return None
    _, operation, compared, rest = best
    for phrase in language.rows[operation]:  # "how much did we spend on groceries in total" says twice that it adds up
        rest = " ".join(rest.split())
        place = _find_phrase(rest, phrase)
        rest = rest if place < 0 else f"{rest[:place]} {rest[place + len(phrase) :]}"
    return operation, compared, rest


def _find_phrase(said: str, phrase: str) -> int:
    return f" {said} ".find(f" {phrase} ")


def answer(request: RowRequest, tables: Sequence[RowTable], today: date, month_of: MonthOf, near: Nearness) -> RowAnswer | None:
    """What the one table says that the question can mean; None when none does, or two do.

    What is next or last is so in all of them.
    """
    found = [one for table in tables if (one := _answer_from(request, table, today, month_of, near)) is not None]
    if request.operation in (RowOperation.NEXT, RowOperation.LAST):
        found.sort(key=lambda one: one.day or today, reverse=request.operation is RowOperation.LAST)
        found = found[:1]
    return found[0] if len(found) == 1 else None


def _answer_from(request: RowRequest, table: RowTable, today: date, month_of: MonthOf, near: Nearness) -> RowAnswer | None:
    if request.operation is RowOperation.WHETHER:
        return _tell_ticked(request, table)
    rows = _matching(request, table, near)
    rows = _within(rows, request, table, month_of, today)
    if not rows:
        return None
    if request.operation in (RowOperation.COUNT, RowOperation.WHICH, RowOperation.TOLD):
        value = str(len(rows)) if request.operation is RowOperation.COUNT else ""
        return RowAnswer(request.operation, table.ref, tuple(rows), value)
    if request.operation in IN_TIME:
        return _compare_days(request, rows, table, today, month_of)
    place = _column_of(request, table, near)
    numbers = [(number, row) for row in rows if place >= 0 and (number := number_of(_cell(row, place))) is not None]
    if not numbers:
        return None
    if request.operation in ADDED:
        total = sum(number for number, _ in numbers)
        total = total / len(numbers) if request.operation is RowOperation.AVERAGE else total
        shown = tuple(row for _, row in numbers)
        return RowAnswer(request.operation, table.ref, shown, _written(total, table.columns[place], numbers[0][1], place))
    best = (max if request.operation is RowOperation.MOST else min)(number for number, _ in numbers)
    return RowAnswer(request.operation, table.ref, tuple(row for number, row in numbers if number == best))


# -- which rows ------------------------------------------------------------------------------------------


def _matching(request: RowRequest, table: RowTable, near: Nearness) -> list[TableRow]:
    """The rows of a table that are what the question names; none when its rows are something else."""
    told = _told_columns(request, table, near)
    words = [word for word in request.words if word not in told]
    kind = f"{table.title} {' '.join(table.columns)}"
    filters = [word for word in words if not _is_in(word, kind)]
    nouns = [word for word in request.words[: request.compound] if word in words]
    is_named = any(word not in filters for word in nouns)
    is_named = is_named or (not words and any(_is_in(request.bare(word) or word, kind) for word in told))
    if not is_named and nouns and request.operation in ADDED and any(_is_in(nouns[0], row.text) for row in table.rows):
        is_named = True
    elif not is_named and len(words) > 1 and any(table.columns):
        is_named = near(nouns[0] if nouns else words[0], f"{table.title}: {', '.join(table.columns)}") >= KIND_NEAR
        filters = filters[1:]
    chooses = {RowOperation.WHICH: filters or told, RowOperation.TOLD: told}.get(request.operation, True)
    if not is_named or not chooses:
        return []
    rows = [row for row in table.rows if all(_is_in(word, row.text) for word in filters)]
    return [row for row in rows if all(_says(_cell(row, place), is_yes, request) for place, is_yes in told.values())]


def _told_columns(request: RowRequest, table: RowTable, near: Nearness) -> dict[str, tuple[int, bool]]:
    """The words of the question that a column says yes or no to ("paid", "unpaid"), its place and whether yes is asked for."""
    found = {}
    for place, column in enumerate(table.columns):
        cells = {cell.lower() for cell in table.column(place)}
        if not column or any(cells.isdisjoint(said) for said in request.answers):
            continue
        for word in dict.fromkeys((*request.words, *request.beside)):
            bare = request.bare(word)
            is_opposite = not _is_in(word, column) and bool(bare) and _is_in(bare, column)
            if is_opposite or _is_in(word, column) or near(word, column) >= FORM_NEAR:
                found[word] = (place, is_opposite == request.is_denied)
    return found


def _says(cell: str, is_yes: bool, request: RowRequest) -> bool:
    """Whether a cell says yes; what says neither, such as "deposit", is not yet so."""
    return (cell.lower() in request.answers[0]) == is_yes


def _within(rows: Sequence[TableRow], request: RowRequest, table: RowTable, month_of: MonthOf, today: date) -> list[TableRow]:
    """The rows of the month and the year that the question names; of a month without a year, the newest that has come."""
    if not request.month and not request.year:
        return list(rows)
    days = [(day, row) for row in rows if (day := _row_day(row, table, month_of)) is not None and day.year]
    if request.month:
        days = [(day, row) for day, row in days if day.month == request.month]
    year = request.year or max(
        (day.year or 0 for day, _ in days if (at := day.first()) is not None and at <= today),
        default=max((day.year or 0 for day, _ in days), default=0),
    )
    return [row for day, row in days if day.year == year]


def _row_day(row: TableRow, table: RowTable, month_of: MonthOf) -> Day | None:
    places = table.dated(month_of)
    return day_of(_cell(row, places[0]), month_of) if places else None


def _is_in(word: str, text: str) -> bool:
    return word_forms.has_stem(word_forms.stem(word), text) or word_forms.has_word(word, text)


def _cell(row: TableRow, place: int) -> str:
    return row.cells[place] if place < len(row.cells) else ""


# -- what they say ---------------------------------------------------------------------------------------


def _tell_ticked(request: RowRequest, table: RowTable) -> RowAnswer | None:
    """Whether the box of the one row is ticked that holds every word."""
    boxed = [row for row in table.rows if row.is_ticked is not None]
    found = [row for row in boxed if all(_is_in(word, f"{row.text} {table.title}") for word in request.words)]
    found = [row for row in found if any(_is_in(word, row.text) for word in request.words)]
    if len(found) != 1 or len(request.words) < 2:
        return None
    return RowAnswer(RowOperation.WHETHER, table.ref, (found[0],), is_ticked=bool(found[0].is_ticked))


def _compare_days(
    request: RowRequest, rows: Sequence[TableRow], table: RowTable, today: date, month_of: MonthOf
) -> RowAnswer | None:
    operation = request.operation
    moment = {RowOperation.NEXT: Day.next, RowOperation.LAST: Day.last}.get(operation, lambda day, _: day.first())
    days: list[tuple[date, TableRow]] = []
    for row in rows:
        day = _row_day(row, table, month_of)
        if day is not None and request.is_yearly and operation is not RowOperation.FIRST:
            day = Day(day.month, day.day, None)
        at = None if day is None else moment(day, today)
        if at is not None:
            days.append((at, row))
    if operation is RowOperation.NEXT:
        days = [(at, row) for at, row in days if at >= today]
    elif operation is RowOperation.LAST:
        days = [(at, row) for at, row in days if at <= today]
    if not days:
        return None
    best = (max if operation is RowOperation.LAST else min)(at for at, _ in days)
    return RowAnswer(operation, table.ref, tuple(row for at, row in days if at == best), day=best)


def _column_of(request: RowRequest, table: RowTable, near: Nearness) -> int:
    """The column of numbers that is meant: named by the question, the only one, or the one nearest to what it asks; -1 for none."""
    numeric = table.numeric()
    if request.operation in ADDED:  # "May 2028" and "Sept 2026", years, or plots 19A and 19B, are no amounts
        numeric = [place for place in numeric if len({_unit(cell) for cell in table.column(place)} - {""}) <= 1]
        numeric = [place for place in numeric if not all(YEAR.fullmatch(cell) for cell in table.column(place) if cell)]
    named = [
        place for place in numeric if table.columns[place] and any(_is_in(word, table.columns[place]) for word in request.words)
    ]
    if len(named) == 1:
        return named[0]
    if len(numeric) < 2:
        return numeric[0] if numeric else -1
    money = [place for place in numeric if not kind_words("amount of money", "beside").isdisjoint(words_in(table.columns[place]))]
    if request.operation in ADDED and len(money) == 1:
        return money[0]
    asked = " ".join([*(word for word in request.words if not _is_in(word, table.title)), request.compared])
    first, second = sorted(((near(asked, table.columns[place]), place) for place in numeric), reverse=True)[:2]
    return first[1] if first[0] >= max(COLUMN_NEAR, second[0] + NEARER) else -1


def _unit(cell: str) -> str:
    """What stands beside the number in a cell."""
    return re.sub(r"[\d.,'’\s−-]+", "", cell)


def _written(number: float, column: str, row: TableRow, place: int) -> str:
    """A number with the unit that its cells have, else with the name of its column."""
    plain = f"{number:,.2f}" if number % 1 else f"{number:,.0f}"
    plain = plain if HUNDREDTHS.search(_cell(row, place)) or "." not in plain else plain.rstrip("0")
    unit = _unit(_cell(row, place))
    return f"{plain} {unit}" if unit else f"{plain} ({column.replace('_', ' ')})" if column else plain


PHRASES = {RowOperation.COUNT: "rows_count", RowOperation.SUM: "rows_sum", RowOperation.AVERAGE: "rows_average"}


class RowPlans:
    """Makes them from the notes that a finder offers; a question that asks nothing of rows costs no search."""

    def __init__(self, finder: Finder, now: Callable[[], datetime]) -> None:
        self._finder = finder
        self._now = now

    def is_unordered(self, found: Evidence, question: str, language: Language) -> bool:
        """Whether the first or last of several dated lines is asked for, which their days alone tell: "when did it last snow?"."""
        asked = _find_operation(" ".join(words_in(question)), language)
        dated = [one for one in found.best if one.ref == found.best[0].ref and DATED.match(one.text)]
        return asked is not None and asked[0] in IN_TIME and len(dated) > 1 and found.best[0] in dated

    def make(self, scene: Scene, language: Language) -> Say | None:
        """What the rows say, with its source; None where they do not answer."""
        month_of = language.lexicon.month_of
        ignored = language.words["common"] | language.words["question"]
        request = read_request(scene.text, language, ignored, month_of, scene.last_question)
        if request is None:
            return None
        before = set(request.words).difference(words_in(scene.text))  # of the question that it follows up
        before |= {bare for word in request.words if (bare := request.bare(word))}
        notes = self._finder.notes_about(" ".join((scene.text, *sorted(before))))
        tables = [table for ref, note in notes for table in read_tables(ref, note.title or "", note.body)]
        found = answer(request, tables, self._now().date(), month_of, self._finder.nearness)
        if found is None:
            return None
        return Say(_write_answer(found, language), state=ThreadState(quoted=(found.ref,), said="\n".join(found.lines)))


def _write_answer(found: RowAnswer, language: Language) -> str:
    source, lines = f"[{shown_source(found.ref)}]", found.lines
    listed = f"{lines[0]} {source}" if len(lines) == 1 else "".join(f"\n- {line}" for line in lines) + f"\n{source}"
    if found.operation is RowOperation.WHETHER:
        return language.say("rows_yes" if found.is_ticked else "rows_no", rows=listed)
    if found.operation not in PHRASES:
        return listed.strip()
    return language.say(PHRASES[found.operation], value=found.value, rows=listed if listed.startswith("\n") else f" {listed}")
