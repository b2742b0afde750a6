"""Texts of entries, searched letter by letter: a substring in whatever case, and grep by lines.

Unlike `search` it uses no index, so it finds parts of words and signs. Reads only, in one scope, a few
megabytes at a time; whoever asks as the model is shown nothing of a scheme that is hidden from it. Case is
Unicode's, which SQLite's own comparisons do not know. Not promised: quick answers over many megabytes.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from appliance.errors import BadInput
from appliance.knowledge.entries import PROJECT
from appliance.knowledge.schemes import Schemes
from appliance.store import visibility
from appliance.store.database import Row, Store
from appliance.text.invisible import normalized
from appliance.text.patterns import Pattern, kind_of
from appliance.text.references import display, locator_of

PREVIEW_CHARS = 500
LEAD_CHARS = 100  # of a preview before what was found
LINE_CHARS = 400  # of a line that grep shows
BATCH_BYTES = 4 * 1024 * 1024
BATCH = 500  # texts loaded at once, however small
AFTER_SLASH = "0"  # the letter after "/": what lies in a folder sorts before it
LAST = chr(0x10FFFF)  # sorts after every path
PER_LINE = ("(?", "\\A", "\\Z", "\\z", "\\G")  # what may mean something else in a whole text than in a line

Stop = Callable[[], bool]


class GrepPreview(Struct, frozen=True):
    """An item whose title or text holds what was looked for."""

    ref: str
    id: str
    title: str
    updated_ms: int
    preview: str


class GrepMatch(Struct, frozen=True):
    """A line that matches, with the lines around it."""

    ref: str
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class GrepScope(Struct, frozen=True):
    """Where grep looks and how much it shows. `folder` is a stored path, "" for everything; `glob` is over names."""

    folder: str = ""
    glob: str = ""
    context: int = 0
    limit: int = 100
    is_model: bool = False


class Needle:
    """What grep looks for in a line: a regular expression, a glob or the letters themselves; BadInput for a bad one."""

    def __init__(self, text: str, kind: Literal["regex", "glob", "literal"] = "regex", *, is_any_case: bool = False) -> None:
        if "\n" in text:
            raise BadInput("the pattern holds a line break", hint="it is looked for in each line", outcome="invalid_arguments")
        self._literal, self._line, self._whole = "", None, None
        self._is_any_case = is_any_case
        if kind == "literal" or (kind == "glob" and kind_of(text) != "glob"):
            self._literal = folded(text) if is_any_case else text
        elif kind == "glob":
            self._line = Pattern(folded(text) if is_any_case else text)
        else:
            self._line = _compile_regex(text, "i" if is_any_case else "")
            if not any(mark in text for mark in PER_LINE):
                self._whole = _compile_regex(text, "im" if is_any_case else "m")

    def is_in(self, body: str) -> bool:
        """False only when no line of a text holds it: one look at the whole is quicker than one at each line."""
        return self._whole.matches(body) if self._whole else not self._literal or self.is_on(body)

    def is_on(self, line: str) -> bool:
        """Whether a line holds it."""
        if self._line is None:
            return self._literal in (folded(line) if self._is_any_case else line)
        if self._line.kind == "glob":
            return self._line.search(folded(line) if self._is_any_case else line) is not None
        return self._line.matches(line)


class Texts:
    """Looks through texts; `is_model` leaves out what the model may not see."""

    def __init__(self, store: Store, schemes: Schemes, *, scope: str = PROJECT) -> None:
        self._store = store
        self._schemes = schemes
        self._scope = scope

    def _is_visible(self, path: str, is_model: bool) -> bool:
        return not is_model or self._schemes.find_scheme(path).is_visible_to_model

    def search(self, query: str, *, limit: int = 20, is_model: bool = False, stop: Stop = lambda: False) -> list[GrepPreview]:
        """Items whose title or text holds the query, in whatever case, newest first."""
        wanted = folded(query)
        found: list[GrepPreview] = []
        rows = self._store.rows(
            f"SELECT id, path, octet_length(body) FROM entries WHERE scope = ?{visibility.only()} "
            "ORDER BY updated_ms DESC, id DESC",
            (self._scope,),
        )
        for uid, path, title, body, updated_ms in self._load_texts([r for r in rows if self._is_visible(r[1], is_model)], stop):
            if wanted in folded(title) or wanted in folded(body):
                found.append(GrepPreview(display(path), uid, title, int(updated_ms), _preview_match(body, wanted)))
                if len(found) == limit:
                    break
        return found

    def grep(self, needle: Needle, where: GrepScope, stop: Stop = lambda: False) -> list[GrepMatch]:
        """Lines that match, by reference and line, one more than `where.limit` when there are more."""
        found: list[GrepMatch] = []
        for _, path, _, body, _ in self._load_texts(self._select_rows(where, stop), stop):
            if needle.is_in(body):
                found += _find_matches(display(path), body, needle, where.context, where.limit + 1 - len(found))
            if len(found) > where.limit:
                break
        return found

    def _select_rows(self, where: GrepScope, stop: Stop) -> list[Row]:
        """The texts that a grep looks through, by path."""
        start = where.folder if where.folder.endswith("/") or not where.folder else f"{where.folder}/"
        end = start[:-1] + AFTER_SLASH if start else LAST
        rows = self._store.rows(
            "SELECT id, path, octet_length(body) FROM entries "
            f"WHERE scope = ?1 AND path >= ?2 AND path < ?3 AND (path = ?2 OR path > ?4){visibility.only()} ORDER BY path",
            (self._scope, where.folder, end, start),
        )
        named = Pattern(where.glob.lstrip("/")) if where.glob else None
        return [
            row
            for row in rows
            if row[2]
            and not stop()
            and self._is_visible(row[1], where.is_model)
            and (named is None or named.matches(locator_of(row[1]) if "/" in where.glob else row[1].rpartition("/")[2]))
        ]

    def _load_texts(self, rows: Sequence[Row], stop: Stop) -> Iterator[Row]:
        """(uid, path, title, body, updated) of rows (id, path, bytes) in their order, a few megabytes at a time."""
        for batch in _batch_rows(rows):
            ids = [row[0] for row in batch]
            found = self._store.rows(
                "SELECT id, uid, path, title, body, updated_ms FROM entries WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            )
            by_id = {row[0]: row[1:] for row in found}
            for number in ids:
                if stop():
                    return
                if number in by_id:
                    yield by_id[number]


def folded(text: str) -> str:
    """Text for comparing without case: `STRASSE` and `straße`, `É` in one letter or two, are the same."""
    if text.isascii():
        return text.lower()
    return normalized("NFC", normalized("NFD", text).casefold())


def _compile_regex(text: str, flags: str) -> Pattern:
    """A regular expression as a pattern: written between slashes, its own slashes escaped."""
    escaped, is_after_backslash = "", False
    for letter in text:
        escaped += "\\/" if letter == "/" and not is_after_backslash else letter
        is_after_backslash = letter == "\\" and not is_after_backslash
    made = f"/{escaped}/{flags}"
    if kind_of(made) != "regex":
        raise BadInput(f"{text!r} is not a regular expression", hint="escape special letters", outcome="invalid_arguments")
    try:
        return Pattern(made)
    except BadInput as error:
        raise BadInput(error.message, hint=error.hint, outcome="invalid_arguments") from None


def _find_matches(ref: str, body: str, needle: Needle, context: int, limit: int) -> list[GrepMatch]:
    """The first so many lines of a text that hold it."""
    found: list[GrepMatch] = []
    lines = body.split("\n")
    for n, line in enumerate(lines):
        if len(found) == limit:
            break
        if needle.is_on(line):
            before, after = lines[max(0, n - context) : n], lines[n + 1 : n + 1 + context]
            found.append(
                GrepMatch(ref, n + 1, _shorten_line(line), tuple(map(_shorten_line, before)), tuple(map(_shorten_line, after)))
            )
    return found


def _shorten_line(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def _preview_match(body: str, wanted: str) -> str:
    """The beginning of a text, or from shortly before what was found when that comes later."""
    whole = folded(body)
    end = whole.find(wanted) + len(wanted)
    if end <= PREVIEW_CHARS or wanted not in whole:
        return body[:PREVIEW_CHARS]
    if len(whole) != len(body):  # then the place is found by halving: the shortest beginning that holds what was found
        end = bisect_left(range(len(body) + 1), True, key=lambda length: wanted in folded(body[:length]))
    start = max(0, end - len(wanted) - LEAD_CHARS)
    return f"…{body[start : start + PREVIEW_CHARS - 1]}"


def _batch_rows(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows (id, path, bytes) in groups that fit into memory."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        if batch and (len(batch) >= BATCH or size + row[2] > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row[2]
    if batch:
        yield batch
