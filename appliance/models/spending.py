"""What was spent on remote models, by day and person: one small file of the broker without any text of anybody.

Before a request the most that it may cost is put down, and afterwards what it did cost; a process that is killed in
between has spent the most. Lines are only added, and made into one line a day and person when
there are many.
With a limit every line before a request is flushed to the disk, so that no power cut forgets what was spent; without
one nothing is flushed. People are named by a hash. Days are those of the box's clock; one that jumps back counts on
where that day was. Knows no prices.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import Exhausted, OwlError, StoreError
from appliance.models.prices import MICROS, dollars
from appliance.runtime import paths
from appliance.runtime.settings import Spending
from appliance.store import disk_faults

LOG = logging.getLogger(__name__)
NO_LIMITS = Spending()
KEEP_DAYS = 62
MOST_LINES = 2000  # added since the file was made small; then it is made small again
HINT = "owlbox usage shows it; [spending] in owlbox.toml sets the limits"


class Amount(Struct, frozen=True):
    """Money and tokens."""

    micros: int = 0
    tokens: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.micros + other.micros, self.tokens + other.tokens)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.micros - other.micros, self.tokens - other.tokens)


class Reserved(Struct, frozen=True):
    """A reservation of a request's highest cost; settled with the real one."""

    number: int
    day: str
    who: str
    most: Amount


@dataclass
class _Book:
    """The file's contents."""

    lines: int = 0
    days: dict[tuple[str, str], Amount] = field(default_factory=dict)
    open: dict[int, Reserved] = field(default_factory=dict)


def person_hash(person: str) -> str:
    """The name of a person in the file, and of a model in a file's name."""
    return hashlib.sha256(person.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def today() -> str:
    """The day by the box's clock and time zone, such as 2026-11-22."""
    return datetime.fromtimestamp(now_ms() / 1000).astimezone().date().isoformat()


class Spend:
    """The account of one home; several threads may ask, and several brokers."""

    def __init__(self, path: Path, limits: Spending = NO_LIMITS, *, day: Callable[[], str] = today) -> None:
        self.path = path
        self._limits = limits
        self._day = day
        self._guard = threading.Lock()
        self._book = _Book()
        self._seen: tuple[int, int] | None = None  # inode and size of the file that the book was read from

    @property
    def has_limits(self) -> bool:
        """True when anything may be refused."""
        return self._limits != NO_LIMITS

    @property
    def limits_money(self) -> bool:
        """True when an amount of money may be too much: then every price must be known."""
        return bool(self._limits.day_usd or self._limits.month_usd or self._limits.person_day_usd)

    def reserve(self, person: str, most: Amount) -> Reserved:
        """Put down what a request may cost at most; Exhausted, and nothing is put down, when that is over a limit."""
        with self._open_book() as (book, fd):
            made = Reserved(int.from_bytes(os.urandom(6), "big"), self._day(), person_hash(person), most)
            self._require_allowance(book, made)
            line = ["r", made.number, made.day, made.who, most.micros, most.tokens]
            self._write_line(fd, line, is_durable=self.has_limits)
            self._take_line(book, line)
            return made

    def settle(self, reserved: Reserved, spent: Amount) -> None:
        """Replace the reservation by the real cost."""
        with self._open_book() as (book, fd):
            if reserved.number not in book.open:
                return
            line = ["s", reserved.number, spent.micros, spent.tokens]
            self._write_line(fd, line, is_durable=False)
            self._take_line(book, line)
            if book.lines > MOST_LINES + len(book.days) + len(book.open):
                self._rewrite_book(book)

    def spent(self, person: str | None = None, *, month: bool = False) -> Amount:
        """Today's sum, or this month's; of one person, or of everybody."""
        with self._guard:
            day = self._day()
            self._refresh_book(is_ours=False)
            return _sum_spent(self._book, day[:7] if month else day, None if person is None else person_hash(person))

    def plain(self) -> dict[str, Any]:
        """The sums and limits as JSON-ready values."""
        day, month = self.spent(), self.spent(month=True)
        limits = {f.name: value for f in fields(self._limits) if (value := getattr(self._limits, f.name))}
        sums = {"day_usd": day.micros / MICROS, "month_usd": month.micros / MICROS, "day_tokens": day.tokens}
        return {**sums, "limits": limits}

    # -- inside -----------------------------------------------------------------------------------------

    @contextmanager
    def _open_book(self) -> Iterator[tuple[_Book, int]]:
        """The book as the file has it now, and the file, ours alone until the end."""
        with self._guard:
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise _unwritable_error(self.path, error) from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)  # another broker of this home
                self._refresh_book()
                fd = self._append_to()
                try:
                    yield self._book, fd
                    if self._seen is not None:
                        info = os.fstat(fd)
                        self._seen = (info.st_ino, info.st_size)
                finally:
                    os.close(fd)
            finally:
                os.close(lock)

    def _append_to(self) -> int:
        try:
            is_new = not self.path.exists()
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if is_new:
                paths.flush(self.path.parent)
        except OSError as error:
            raise _unwritable_error(self.path, error) from None
        self._seen = self._seen or (0, 0)
        return fd

    def _require_allowance(self, book: _Book, wanted: Reserved) -> None:
        limits, day = self._limits, wanted.day
        rules = (
            ("everybody today", _sum_spent(book, day, None), limits.day_usd, limits.day_tokens),
            ("everybody this month", _sum_spent(book, day[:7], None), limits.month_usd, 0),
            ("you today", _sum_spent(book, day, wanted.who), limits.person_day_usd, limits.person_day_tokens),
        )
        for whose, used, usd, tokens in rules:
            if usd and used.micros + wanted.most.micros > usd * MICROS:
                spent, most = dollars(used.micros), dollars(round(usd * MICROS))
                raise Exhausted(
                    f"{spent} of {most} for {whose} are spent, and this may cost {dollars(wanted.most.micros)}", hint=HINT
                )
            if tokens and used.tokens + wanted.most.tokens > tokens:
                text = f"{used.tokens} of {tokens} tokens for {whose} are used, and this may take {wanted.most.tokens}"
                raise Exhausted(text, hint=HINT)

    def _refresh_book(self, *, is_ours: bool = True) -> None:
        """Read the file again when it is not as we left it. What was put down and never settled counts as spent.

        Only who has it alone, `is_ours`, may mend it: a line without an end may be one that another broker writes.
        """
        try:
            info = self.path.stat()
            if self._seen == (info.st_ino, info.st_size):
                return
            text = self.path.read_text("utf-8", "replace")
        except FileNotFoundError:
            self._book, self._seen = _Book(), None
            return
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error.strerror}", hint="no remote model is asked meanwhile") from None
        self._book = _Book()
        for number, line in enumerate(text.splitlines(), 1):
            try:
                self._take_line(self._book, json.loads(line))
            except (ValueError, TypeError, KeyError, IndexError):
                LOG.error("%s, line %d is torn and left out", self.path.name, number)
        self._seen = (info.st_ino, info.st_size)
        if text and not text.endswith("\n"):
            self._seen = None
            if is_ours:
                self._rewrite_book(self._book)  # a power cut tore the last line: the next one must not become a part of it

    def _take_line(self, book: _Book, line: Any) -> None:
        kind, *rest = line
        book.lines += 1
        if kind == "d":
            day, who, micros, tokens = rest
            _add_amount(book, str(day), str(who), Amount(int(micros), int(tokens)))
        elif kind == "r":
            number, day, who, micros, tokens = rest
            made = Reserved(int(number), str(day), str(who), Amount(int(micros), int(tokens)))
            book.open[made.number] = made
            _add_amount(book, made.day, made.who, made.most)
        else:
            number, micros, tokens = rest
            made = book.open.pop(int(number))
            _add_amount(book, made.day, made.who, Amount(int(micros), int(tokens)) - made.most)

    def _rewrite_book(self, book: _Book) -> None:
        """The sums alone, whole or not at all; requests that are open stay open."""
        kept = set(sorted({day for day, _ in book.days})[-KEEP_DAYS:])
        book.days = {key: amount for key, amount in book.days.items() if key[0] in kept}
        book.open = {number: made for number, made in book.open.items() if made.day in kept}
        closed = dict(book.days)
        for made in book.open.values():
            closed[made.day, made.who] -= made.most
        lines: list[list[Any]] = [["d", *key, amount.micros, amount.tokens] for key, amount in closed.items()]
        lines += [["r", m.number, m.day, m.who, m.most.micros, m.most.tokens] for m in book.open.values()]
        try:
            paths.put(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        except OSError as error:
            LOG.error("%s stays as long as it is: %s", self.path.name, error)
            return
        book.lines, self._seen = len(lines), None  # read again before the next one

    def _write_line(self, fd: int, line: list[Any], *, is_durable: bool) -> None:
        try:
            data = (json.dumps(line) + "\n").encode()
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if is_durable:
                os.fdatasync(fd)
        except OSError as error:
            raise _unwritable_error(self.path, error) from None


def _unwritable_error(path: Path, error: OSError) -> OwlError:
    fault = disk_faults.explain_fault(error)
    return fault or StoreError(f"{path} cannot be written: {error.strerror}", hint="no remote model is asked meanwhile")


def _sum_spent(book: _Book, begin: str, who: str | None) -> Amount:
    """The spending of the days with this prefix, of one person or of all."""
    found = (amount for (day, whose), amount in book.days.items() if day.startswith(begin) and who in (None, whose))
    return sum(found, Amount())


def _add_amount(book: _Book, day: str, who: str, amount: Amount) -> None:
    book.days[day, who] = book.days.get((day, who), Amount()) + amount
