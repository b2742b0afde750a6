"""The text of office documents and books: Word, Excel and PowerPoint files (OOXML), OpenDocument files, EPUB.

Headings, paragraphs, lists and tables become Markdown; a sheet is a table whose first full row names the columns, so that each
row can be read by itself. What a document is, its parts say and not its name. Pure: bytes in, text out; ValueError says what is
wrong. All of it is somebody else's ZIP and XML: only the parts that hold text are unpacked, by deflate alone, and up to a limit in
sum; XML is read as a stream, and a document that declares entities is refused, so none can be expanded. Archives inside are never
opened, and nothing that a document refers to is fetched. Not promised: layout, formulas (their last value is), pictures, macros.
"""

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import unquote
from xml.parsers import expat

from appliance.text import html_text

MAX_PARTS = 20_000  # in an archive
MAX_UNPACKED_BYTES = 128 * 1024 * 1024  # of all parts that are read of one document
MAX_CELLS = 1_000_000  # of a table: more would be more text than an entry holds
MAX_SHEET_CHARS = 8_000_000  # of a sheet, more than an entry may hold
MAX_REPEATS = 1000  # of a row or cell that is written once with a number
MAX_FORMAT_CHARS = 255  # of a format of numbers, as Excel has it
CHUNK = 1 << 16
PLAIN_TYPES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the only ones that unpack in steps of a given size
BUILT_IN_DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
BUILT_IN_PERCENT = frozenset((9, 10))
QUOTED_FORMAT = re.compile(r'"[^"]*"|\[(?!h+\]|m+\]|s+\])[^\]]*\]|\\.|_.', re.IGNORECASE)
CELL_PLACE = re.compile(r"([A-Z]{1,3})\d+")
NUMBER = re.compile(r"[-+]?[\d.,:/% -]*\d[\d.,:/% -]*")  # a date and a time as well
HEADING_STYLE = re.compile(r"heading (\d)$")  # Word writes this name in every language

Attributes = Mapping[str, str]
Event = tuple[Literal["start", "end", "text"], str, Attributes]


def read(data: bytes, max_chars: int) -> tuple[str, str]:
    """Title and text of a document; reading ends behind `max_chars`. ValueError for what is none, or cannot be read."""
    with _Archive(data) as archive:
        kind = archive.text("mimetype") if "mimetype" in archive.names else ""
        if kind.startswith("application/epub") or "META-INF/container.xml" in archive.names and "content.xml" not in archive.names:
            title, parts = _epub(archive)
        elif "content.xml" in archive.names:
            title, parts = _title(archive, "meta.xml"), _open_document(archive)
        else:
            main = next(iter(archive.related("", "officeDocument").values()), "")
            readers = {"word": _word, "xl": _sheets, "ppt": _slides}
            reader = readers.get(main.partition("/")[0])
            if reader is None:
                raise ValueError("an archive that is no document")
            title, parts = _title(archive, "docProps/core.xml"), reader(archive, main)
        found: list[str] = []
        size = 0
        for part in parts:
            found.append(part)
            size += len(part) + 1
            if size > max_chars:
                break
    return title, re.sub(r"\n{3,}", "\n\n", "\n".join(found)).strip()


def table(rows: Iterable[list[str]]) -> Iterator[str]:
    """Rows as a Markdown table, the first of them its head unless it holds numbers; rows of one cell before it are lines above.

    A table of one row is a line.
    """
    first: list[str] = []
    has_head = False
    for row in rows:
        cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if not cells:
            continue
        if not first and sum(map(bool, cells)) < 2:
            yield next(filter(None, cells)) + "\n"
            continue
        if not first:
            first = cells
            continue
        if not has_head:
            names = ["" for _ in first] if any(map(NUMBER.fullmatch, first)) else first
            yield from (_row(names), f"|{' --- |' * len(names)}", *([] if names == first else [_row(first)]))
            has_head = True
        yield _row(cells)
    yield "" if has_head else "; ".join(filter(None, first)) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


class _Archive:
    """The parts of a document, unpacked in steps and up to a limit in sum."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
            raise ValueError(f"not a whole archive: {error}") from None
        self.names = frozenset(self._zip.namelist())
        self._left = MAX_UNPACKED_BYTES
        if len(self.names) > MAX_PARTS:
            raise ValueError(f"{len(self.names)} parts, the limit is {MAX_PARTS}")

    def __enter__(self) -> "_Archive":
        return self

    def __exit__(self, *raised: object) -> None:
        self._zip.close()

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a part; ValueError where it is missing, protected, broken or too much."""
        try:
            info = self._zip.getinfo(name)
            if info.flag_bits & 1:
                raise ValueError("it has a password: save it without one to find its words")
            if info.compress_type not in PLAIN_TYPES:
                raise ValueError(f"{name} is packed in a way that is not read")
            with self._zip.open(info) as file:
                while part := file.read(CHUNK):
                    self._left -= len(part)
                    if self._left < 0:
                        raise ValueError(f"unpacks to more than {MAX_UNPACKED_BYTES} bytes")
                    yield part
        except KeyError:
            raise ValueError(f"its part {name} is missing") from None
        except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError) as error:
            raise ValueError(f"{name} cannot be unpacked: {error}") from None

    def text(self, name: str) -> str:
        """A part as text."""
        return b"".join(self.chunks(name)).decode("utf-8", "replace")

    def events(self, name: str) -> Iterator[Event]:
        """Elements and text of an XML part in order, names without their prefix."""
        found: list[Event] = []
        parser = expat.ParserCreate()
        parser.buffer_text = True

        def refuse(*given: object) -> None:
            raise ValueError("its XML declares entities")

        parser.EntityDeclHandler = refuse
        parser.StartElementHandler = lambda tag, given: found.append(("start", _local(tag), given))
        parser.EndElementHandler = lambda tag: found.append(("end", _local(tag), {}))
        parser.CharacterDataHandler = lambda text: found.append(("text", text, {}))
        try:
            for chunk in self.chunks(name):
                parser.Parse(chunk, False)
                yield from found
                found.clear()
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise ValueError(f"{name} is not whole XML: {error}") from None
        yield from found

    def related(self, part: str, kind: str) -> dict[str, str]:
        """The parts that a part refers to as this kind, by how it names them."""
        folder, name = posixpath.split(part)
        source = posixpath.join(folder, "_rels", f"{name}.rels")
        found = {}
        for event, tag, given in self.events(source) if source in self.names else ():
            if (event, tag) == ("start", "Relationship") and given.get("Type", "").endswith(f"/{kind}"):
                target = given.get("Target", "")
                path = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(folder, target))
                if path in self.names:
                    found[given.get("Id", "")] = path
        return found


def _local(tag: str) -> str:
    return tag.rpartition(":")[2]


def _attribute(given: Attributes, name: str) -> str:
    """An attribute by its name without the prefix, "" for none."""
    return next((value for key, value in given.items() if _local(key) == name), "")


def _title(archive: _Archive, part: str) -> str:
    """The text of the `title` element in a part of the document; "" for none."""
    if part not in archive.names:
        return ""
    is_in, said = False, ""
    for event, name, _ in archive.events(part):
        if event != "text":
            is_in = event == "start" and name == "title"
        elif is_in:
            said += name
    return " ".join(said.split())


class _Flow:
    """Paragraphs and tables as they come, one after the other: text is added, and what is whole is taken.

    A table in a cell of another is read as text of that cell.
    """

    def __init__(self) -> None:
        self._said: list[str] = []
        self._rows: list[list[str]] = []
        self._cells = 0
        self._tables = 0

    def add(self, text: str) -> None:
        self._said.append(text)

    def paragraph(self, before: str = "") -> Iterator[str]:
        """The paragraph ends here; in a table it is a part of its cell."""
        if self._tables:
            self._said.append(" ")
        elif said := self._take():
            yield f"{before}{said}\n" if not before.startswith("-") else f"{before}{said}"

    def open_table(self) -> None:
        self._tables += 1

    def open_row(self) -> None:
        if self._tables == 1:
            self._rows.append([])

    def end_cell(self, count: int = 1) -> None:
        if self._tables == 1 and self._rows:
            said = self._take()
            self._rows[-1] += [said] * count
        else:
            self._said.append(" ")

    def end_row(self, count: int = 1) -> None:
        if self._tables == 1 and self._rows and any(self._rows[-1]):
            while not self._rows[-1][-1]:  # sheets are written as wide as they may become
                self._rows[-1].pop()
            self._cells += count * len(self._rows[-1])
            if self._cells > MAX_CELLS:
                raise ValueError(f"a table of more than {MAX_CELLS} cells")
            self._rows += [self._rows[-1]] * (count - 1)

    def end_table(self) -> Iterator[str]:
        self._tables -= 1
        if not self._tables:
            yield ""
            yield from table(self._rows)
            self._rows, self._cells = [], 0

    def _take(self) -> str:
        said = "".join(self._said)
        self._said.clear()
        return "\n".join(line.strip() for line in said.strip().split("\n"))


# -- Word, Excel, PowerPoint ------------------------------------------------------------------------


def _word(archive: _Archive, main: str) -> Iterator[str]:
    marks: dict[str, str] = {}
    for styles in archive.related(main, "styles").values():
        marks = _style_marks(archive, styles)
    yield from _word_part(archive, main, marks)
    for kind in ("header", "footer", "footnotes", "endnotes", "comments"):
        for part in archive.related(main, kind).values():
            yield from _word_part(archive, part, marks)


def _style_marks(archive: _Archive, part: str) -> dict[str, str]:
    """What stands before a paragraph of each style that is a heading or an item of a list."""
    marks, style = {}, ""
    for event, name, given in archive.events(part):
        if event == "start" and name == "style":
            style = _attribute(given, "styleId")
        elif event == "start" and name == "name" and style:
            called = _attribute(given, "val").lower()
            if found := HEADING_STYLE.match(called):
                marks[style] = f"{'#' * min(6, int(found[1]))} "
            elif called == "title" or called.startswith(("list bullet", "list number")):
                marks[style] = "# " if called == "title" else "- "
    return marks


def _word_part(archive: _Archive, part: str, marks: Mapping[str, str]) -> Iterator[str]:
    flow, before, is_text, unseen = _Flow(), "", False, 0
    signs = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
    for event, name, given in archive.events(part):
        if name in ("Fallback", "del", "moveFrom", "tabs") and event != "text":  # said already, or no longer, or no text
            unseen += 1 if event == "start" else -1
        elif unseen:
            continue
        elif event == "text":
            if is_text:
                flow.add(name)
        elif event == "start":
            is_text = name == "t"
            if name == "p":
                before = ""
            elif name == "pStyle":
                before = marks.get(_attribute(given, "val"), "")
            elif name == "numPr" and not before:
                before = "- "
            elif name in signs:
                flow.add(signs[name])
            elif name == "tbl":
                flow.open_table()
            elif name == "tr":
                flow.open_row()
        else:
            is_text = False
            if name == "p":
                yield from flow.paragraph(before)
            elif name == "tc":
                flow.end_cell()
            elif name == "tbl":
                yield from flow.end_table()


def _sheets(archive: _Archive, main: str) -> Iterator[str]:
    shared: list[str] = []
    for part in archive.related(main, "sharedStrings").values():
        shared = list(_shared_texts(archive, part))
    shown: list[Callable[[float], str]] = []
    sheets = []
    epoch = datetime(1899, 12, 30)
    for event, name, given in archive.events(main):
        if event == "start" and name == "workbookPr" and _attribute(given, "date1904") in ("1", "true"):
            epoch = datetime(1904, 1, 1)
        elif event == "start" and name == "sheet":
            sheets.append((given.get("name", ""), next((v for k, v in given.items() if k.endswith(":id")), "")))
    for part in archive.related(main, "styles").values():
        shown = _number_formats(archive, part, epoch)
    parts = archive.related(main, "worksheet")
    for title, key in sheets:
        if sheet := parts.get(key):
            yield f"## {title}\n"
            yield from table(_sheet_rows(archive, sheet, shared, shown))


def _shared_texts(archive: _Archive, part: str) -> Iterator[str]:
    said, is_text, is_spoken = "", False, False
    for event, name, _ in archive.events(part):
        if event == "text":
            said += name if is_text and not is_spoken else ""
            continue
        is_text = event == "start" and name == "t"
        if name == "rPh":  # how a word is spoken, written above it
            is_spoken = event == "start"
        elif event == "end" and name == "si":
            yield said
            said = ""


def _number_formats(archive: _Archive, part: str, epoch: datetime) -> list[Callable[[float], str]]:
    """The number format of each cell style."""
    codes: dict[int, str] = {}
    found: list[Callable[[float], str]] = []
    is_in = False
    for event, name, given in archive.events(part):
        if name == "cellXfs" and event != "text":
            is_in = event == "start"
        elif event == "start" and name == "numFmt":
            codes[int(given.get("numFmtId", 0))] = given.get("formatCode", "")
        elif event == "start" and name == "xf" and is_in:
            number = int(given.get("numFmtId", 0))
            code = QUOTED_FORMAT.sub("", codes.get(number, "")[:MAX_FORMAT_CHARS]).partition(";")[0].lower()
            if number in BUILT_IN_DATES or (code not in ("", "general") and re.search("[dmyhs]", code)):
                found.append(lambda value: _date(value, epoch))
            elif number in BUILT_IN_PERCENT or "%" in code:
                found.append(lambda value: f"{value * 100:.10g}%")
            else:
                found.append(_number)
    return found


def _date(value: float, epoch: datetime) -> str:
    try:
        at = epoch + timedelta(seconds=round(value * 86400))
    except OverflowError:
        return _number(value)
    if 0 <= value < 1:
        return at.strftime("%H:%M")
    return at.strftime("%Y-%m-%d" if value == int(value) else "%Y-%m-%d %H:%M")


def _number(value: float) -> str:
    return f"{value:.15g}"


def _sheet_rows(archive: _Archive, part: str, shared: list[str], shown: list[Callable[[float], str]]) -> Iterator[list[str]]:
    """The rows of a sheet, without the columns that are empty in all of them."""
    rows: list[dict[int, str]] = []
    row: dict[int, str] = {}
    size = 0
    column, kind, style, said, is_text = 0, "", 0, "", False
    for event, name, given in archive.events(part):
        if event == "text":
            said += name if is_text else ""
            continue
        is_text = event == "start" and name in ("v", "t")
        if event == "start" and name == "row":
            row, column = {}, 0
        elif event == "start" and name == "c":
            place = CELL_PLACE.match(given.get("r", ""))
            column = _column(place[1]) if place else column + 1
            kind, style, said = given.get("t", ""), int(given.get("s", 0)), ""
        elif event == "end" and name == "c" and said.strip():
            row[column] = _cell(said, kind, shared, shown[style] if style < len(shown) else _number)
        elif event == "end" and name == "row" and row:
            rows.append(row)
            size += sum(map(len, row.values()))
            if size > MAX_SHEET_CHARS:
                break
    used = sorted({column for row in rows if len(row) > 1 for column in row})
    # A cell alone in its row and column, such as a title, is no column of the table below it.
    return ([row.get(column, "") for column in used] if set(row) & set(used) else list(row.values()) for row in rows)


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - 64
    return number


def _cell(said: str, kind: str, shared: list[str], shown: Callable[[float], str]) -> str:
    if kind == "s":
        return shared[int(said)] if said.strip().isdigit() and int(said) < len(shared) else ""
    if kind == "b":
        return "TRUE" if said.strip() == "1" else "FALSE"
    if kind in ("", "n"):
        try:
            return shown(float(said))
        except ValueError:
            return said
    return said


def _slides(archive: _Archive, main: str) -> Iterator[str]:
    parts = archive.related(main, "slide")
    for event, name, given in archive.events(main):
        if event == "start" and name == "sldId":
            part = parts.pop(next((v for k, v in given.items() if k.endswith(":id")), ""), None)  # each is read once
            for page in (part, *archive.related(part, "notesSlide").values()) if part else ():
                yield from _slide(archive, page)


def _slide(archive: _Archive, part: str) -> Iterator[str]:
    flow, is_text, before, role = _Flow(), False, "", ""
    for event, name, given in archive.events(part):
        if event == "text":
            if is_text and role not in ("sldNum", "dt", "ftr"):
                flow.add(name)
        elif event == "start":
            is_text = name == "t"
            if name == "sp":
                role = before = ""
            elif name == "ph":
                role = given.get("type", "")
                before = "## " if role in ("title", "ctrTitle") else "- " if role in ("", "body", "obj") else ""
            elif name == "br":
                flow.add(" ")
            elif name == "tbl":
                flow.open_table()
            elif name == "tr":
                flow.open_row()
        else:
            is_text = False
            if name == "p":
                yield from flow.paragraph(before)
            elif name == "tc":
                flow.end_cell()
            elif name == "tbl":
                yield from flow.end_table()
            elif name == "sp":
                yield ""


# -- OpenDocument, EPUB -----------------------------------------------------------------------------


def _open_document(archive: _Archive) -> Iterator[str]:
    flow, before, unseen, depth, rows, cells, lists, is_sheet = _Flow(), "", 0, 0, 1, 1, 0, False
    signs = {"tab": "\t", "line-break": "\n"}
    for event, name, given in archive.events("content.xml"):
        if event != "text" and name in ("tracked-changes", "forms", "styles", "automatic-styles", "font-face-decls"):
            unseen += 1 if event == "start" else -1
        elif unseen:
            continue
        elif event == "text":
            if depth:
                flow.add(name)
        elif event == "start":
            if name in ("p", "h"):
                depth += 1
                level = _attribute(given, "outline-level")
                before = f"{'#' * min(6, int(level))} " if name == "h" and level.isdigit() else "- " if lists else ""
            elif name in signs:
                flow.add(signs[name])
            elif name == "s":
                flow.add(" " * min(int(_attribute(given, "c") or 1), 100))
            elif name == "list":
                lists += 1
            elif name == "spreadsheet":
                is_sheet = True
            elif name == "page" and _attribute(given, "name"):
                yield f"\n## {_attribute(given, 'name')}\n"
            elif name == "table":
                if is_sheet:
                    yield f"## {_attribute(given, 'name')}\n"
                flow.open_table()
            elif name == "table-row":
                rows = _repeats(given, "number-rows-repeated")
                flow.open_row()
            elif name in ("table-cell", "covered-table-cell"):
                cells = _repeats(given, "number-columns-repeated")
        elif name in ("p", "h"):
            depth -= 1
            yield from flow.paragraph(before)
        elif name == "list":
            lists -= 1
        elif name in ("table-cell", "covered-table-cell"):
            flow.end_cell(cells)
        elif name == "table-row":
            flow.end_row(rows)
        elif name == "table":
            yield from flow.end_table()


def _repeats(given: Attributes, name: str) -> int:
    said = _attribute(given, name)
    return max(1, min(int(said), MAX_REPEATS)) if said.isdigit() else 1


def _epub(archive: _Archive) -> tuple[str, Iterator[str]]:
    """The chapters of a book in the order in which they are read."""
    roots = (given for event, name, given in archive.events("META-INF/container.xml") if name == "rootfile")
    package = next((_attribute(given, "full-path") for given in roots), "")
    if not package:
        raise ValueError("a book without contents")
    files: dict[str, str] = {}
    order = []
    for event, name, given in archive.events(package):
        if event == "start" and name == "item":
            path = posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(given.get("href", ""))))
            files[given.get("id", "")] = path
        elif event == "start" and name == "itemref":
            order.append(given.get("idref", ""))
    chapters = dict.fromkeys(files[key] for key in order if files.get(key) in archive.names)  # each is read once
    return _title(archive, package), (
        html_text.page(b"".join(archive.chunks(part)), has_frame=False)[1] + "\n" for part in chapters
    )
