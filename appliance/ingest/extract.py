"""What a file says: its text, title and description, whatever its form: text, Markdown, CSV, source code, HTML, mail, PDF, office.

`read` is pure: bytes in, a `Reading` out. A file of which no text can be had is not an error: its bytes are what
there is, and `note` says why. Forms whose parsers may hang, crash or take all memory (`RISKY`) are read in a
child: `main` is that child, `ingest.extract_process` its parent. Of archives only documents are opened, up to a limit
(`ingest.office_text`); others stay bytes, so a small file cannot become a large one.
"""

import codecs
import csv
import io
import itertools
import json
import os
import re
import resource
import sys
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import asdict, replace

from appliance.errors import BadInput
from appliance.ingest import card_text, office_text, rtf_text
from appliance.knowledge.contents import BYTES, MAX_BLOB_BYTES, MAX_BODY_BYTES, MAX_CHARACTERS, TEXT, guess_mime
from appliance.text import charsets, html_text, markdown
from appliance.text.mail import body
from appliance.text.source_outline import language_of, outline

RISKY = ("pdf", "html", "mail", "python", "office", "card", "rtf")
CONVERTED = ("pdf", "html", "mail", "office", "card", "rtf")  # forms whose text is not what stands in the file
FORMS = {
    "html": "html htm xhtml",
    "mail": "eml mht mhtml mbox",
    "csv": "csv tsv",
    "markdown": "md markdown",
    "card": "ics vcf",
    "office": "docx docm dotx xlsx xlsm xltx pptx pptm ppsx odt ott ods ots odp otp epub",
    "rtf": "rtf",
    "pdf": "pdf",
}
ENDINGS = {ending: form for form, endings in FORMS.items() for ending in endings.split()}
# A number goes up when a form is read in another way, so that what was read before is read again.
VERSION = dict.fromkeys(("text", "markdown", "csv", "code", "python", "bytes", *CONVERTED), 1) | {
    "html": 4,
    "mail": 4,
    "card": 3,
    "text": 2,
    "markdown": 2,
}
MAX_FILE_BYTES = 64 * 1024 * 1024  # of a document whose text is wanted although it is too large to be kept itself
LIMITS = {"bytes": MAX_BLOB_BYTES, "html": MAX_BLOB_BYTES} | dict.fromkeys(("pdf", "mail", "office"), MAX_FILE_BYTES)
OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # how Word, Excel and Outlook files began until 2007, and those with a password do
OLD_NOTE = "a document of an old office program, kept as bytes: save it as docx, xlsx or PDF to find its words"
HEAD_CHARS = 20_000  # in which a title is looked for
CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
SAVED = re.compile(rb"<!--\s*(?:saved from url=\(\d+\)|Page saved with SingleFile\s+url:\s*)(\S{1,2000})")  # by a browser
HEAD_BYTES = 4096  # in which it says so
# What a page says of its own address, whoever saved it: in its head.
PUBLISHED = re.compile(
    rb"""<(?:base|link[^<>]{0,200}?\srel=["']?canonical["']?|meta[^<>]{0,200}?\sproperty=["']?og:url["']?)(?:\s[^<>]{0,200}?)?"""
    rb"""\s(?:href|content)=["']?(https?://[^\s"'<>]{1,2000})""",
    re.IGNORECASE,
)
PUBLISHED_BYTES = 65_536  # in which it does
# A mail that was saved as a text: lines of a header in a row, one of them with a sender's address, another that all mails have.
HEADER = re.compile(r"(?:^(?:[A-Za-z][A-Za-z0-9-]{0,60}:[ \t]|[ \t]+\S)[^\n]{0,2000}\n){2,200}", re.MULTILINE)
SENDER = re.compile(r"^From:[ \t]+([^\n]*@[^\n]*)$", re.MULTILINE | re.IGNORECASE)
OF_MAIL = re.compile(r"^(?:Subject|Date|Message-ID|Received|Return-Path):", re.MULTILINE | re.IGNORECASE)
MAILBOX = re.compile(rb"^From \S+[^\n]{0,200}\n(?=[A-Za-z][A-Za-z0-9-]{0,60}:)", re.MULTILINE)  # between the mails of an mbox
MAX_MAILS = 2000  # of one mbox
TRANSCRIPT = re.compile(r'\{"type": ?"session", ?"id": ?"')  # how an exported thread or session begins
MAX_AUTHOR = 300  # characters
CPU_S = 30  # for one file, in the child
UNTITLED = ("untitled", "(anonymous)")  # what programs that make PDFs write for none
MAX_ATTACHMENTS, MAX_PARTS = 200, 5000  # named of one mail, and looked at
MAX_PAGES, MAX_OPERATIONS = 5000, 1_000_000  # of a PDF: 20 seconds' work; pages and forms may be named again and again
OPERATION_BYTES = 8  # that the shortest operations take
MEMORY = 1024 * 1024 * 1024  # bytes of addresses of the child
# What parsers raise over broken input; anything else ends the child, and the parent says so.
FAULTS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, AssertionError, OSError, MemoryError)


class FileReading(Struct, frozen=True):
    """What a file says; `text` is None when its bytes are all there is. `reader` names form, version and library.

    `origin` is that of untrusted text, where a file of this kind says that somebody else wrote it: a mail, an invitation, a saved
    page. `author` is who that was, as far as it says.
    """

    text: str | None
    mime: str
    reader: str
    title: str = ""
    description: str = ""
    note: str = ""
    origin: str = ""
    author: str = ""


def form_of(name: str, head: bytes) -> str:
    """The format of a file, from its name and its first bytes."""
    if b"%PDF-" in head[:1024]:
        return "pdf"
    form = _form_by_name(name)
    if form == "pdf":
        form = ""
    if form == "office":
        return form
    has_mark = any(head.startswith(mark) for mark, _ in MARKS)
    if b"\0" in head and not has_mark:
        return "bytes"
    if not form and re.match(rb"\s*(?:<!doctype html|<html[\s>])", head[:512], re.IGNORECASE):
        return "html"
    language = language_of(name)
    return form or ("python" if language == "python" else "code" if language else "text")


def max_bytes(form: str) -> int:
    """The largest file of this format that is read."""
    return LIMITS.get(form, MAX_BODY_BYTES)


def is_plain(name: str) -> bool:
    """Whether the name is that of a file whose text is what stands in it."""
    return _form_by_name(name) not in CONVERTED


def _form_by_name(name: str) -> str:
    return ENDINGS.get(name.rpartition(".")[2].lower(), "") if "." in name else ""


def reader_of(form: str) -> str:
    """The name of what would read this form now: form, version, and the library that makes a difference."""
    if form == "pdf":
        from importlib.metadata import PackageNotFoundError, version  # 10 ms that no start needs

        try:
            version("pypdf")
        except PackageNotFoundError:
            return "bytes/1"
    library = "+trafilatura" if form == "html" and html_text.is_refined() else ""
    return f"{form}/{VERSION[form]}{library}"


def read(name: str, data: bytes, form: str, charset: str = "") -> FileReading:
    """The text of a file; problems are part of the result, never raised."""
    reader = reader_of(form)
    if form == "bytes":
        return as_bytes(name, OLD_NOTE if data.startswith(OLD_OFFICE) else "")
    if form == "pdf":
        return _read_pdf(name, data, reader)
    if form in ("office", "card", "rtf"):
        return _read_converted(name, data, form, charset)
    if form == "html":
        title, text = html_text.page(data, charset)
        saved = SAVED.search(data[:HEAD_BYTES]) or PUBLISHED.search(data[:PUBLISHED_BYTES])
        origin, author = ("web", saved[1].decode("utf-8", "replace")) if saved else ("", "")
        return _check_reading(FileReading(text, "text/html", reader, title, origin=origin, author=author), name)
    if form == "mail":
        try:
            return _check_reading(_read_mailbox(data, reader), name)
        except BadInput as error:
            return as_bytes(name, f"{error.message}: kept as bytes", "message/rfc822", reader)
    try:
        text = _decode_text(data, form, charset)
    except (UnicodeDecodeError, LookupError) as error:
        where = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        return as_bytes(name, f"not UTF-8 text{where}: kept as bytes, its words cannot be found", reader=reader)
    if "\0" in text:
        return as_bytes(name, "a text with zero bytes: kept as bytes, its words cannot be found", reader=reader)
    title, description = "", ""
    if form == "markdown":
        title = _find_heading(text)
    elif form == "csv":
        description = _describe_columns(text, "\t" if name.lower().endswith(".tsv") else ",")
    elif form in ("python", "code"):
        description = outline(text, name)
    mime = "text/csv" if form == "csv" and name.lower().endswith(".csv") else guess_mime(name, True)
    origin = "document" if TRANSCRIPT.match(text) else ""  # as in a thread that is imported from it
    author = _find_sender(text) if form in ("text", "markdown") else ""
    found = FileReading(text, mime, reader, title, description, origin="mail" if author else origin, author=author)
    return _check_reading(found, name)


def as_bytes(name: str, note: str = "", mime: str = "", reader: str = "bytes/1") -> FileReading:
    """A file of which only the bytes are kept, why, and who tried; with "" as the reader it is tried again another time."""
    found = mime or guess_mime(name, False)
    told = note.encode("utf-8", "backslashreplace").decode()  # it may quote what was read
    return FileReading(None, BYTES if found == TEXT else found, reader, note=told)


def is_current(name: str, reader: str) -> bool:
    """Whether a file that was read by this reader would be read in the same way now."""
    form = reader.partition("/")[0]
    if form in ("bytes", "text"):
        form = _form_by_name(name) or form  # there may have been nothing to read it with
    return form in VERSION and reader_of(form) == reader


# -- the forms --------------------------------------------------------------------------------------


def _decode_text(data: bytes, form: str, charset: str = "") -> str:
    """The characters of a text; UnicodeDecodeError or LookupError when they are not what they should be."""
    for mark, name in MARKS:
        if data.startswith(mark):
            return data.decode(name)
    if form == "python" and not charset:  # the first two lines of Python may name another encoding
        named = next((found for line in data.split(b"\n", 2)[:2] if (found := CODING.match(line))), None)
        charset = named[1].decode("ascii") if named else ""
    return charsets.decode(data, charset) if charset else data.decode()


def _find_heading(text: str) -> str:
    """Title of the front matter, else the first heading."""
    head = text[:HEAD_CHARS]
    try:
        front, body = markdown.split(head)
    except BadInput:
        front, body = {}, head
    named = front.get("title")
    return named if isinstance(named, str) and named.strip() else markdown.title(body)


def _describe_columns(text: str, comma: str) -> str:
    """The columns of a table and how many rows it has."""
    first = text.partition("\n")[0]
    comma = ";" if first.count(";") > first.count(comma) else comma
    try:
        names = next(csv.reader(io.StringIO(first), delimiter=comma), [])
    except csv.Error:
        return ""
    rows = max(0, text.count("\n") + (not text.endswith("\n")) - 1)
    named = ", ".join(" ".join(name.split())[:60] for name in names[:50])
    return f"columns: {named}; {rows} row{'' if rows == 1 else 's'}" if named else ""


def _find_sender(text: str) -> str:
    """Who wrote a text that is a mail with its header; "" for any other."""
    for block in HEADER.finditer(text[:HEAD_BYTES].replace("\r\n", "\n")):
        if (sender := SENDER.search(block[0])) and OF_MAIL.search(block[0]):
            return f"from {sender[1].strip()}"
    return ""


def _read_mailbox(data: bytes, reader: str) -> FileReading:
    """One mail, or all mails of an mbox one below the other."""
    starts = [found.end() for found in itertools.islice(MAILBOX.finditer(data), MAX_MAILS)] if data.startswith(b"From ") else []
    if not starts:
        return _read_mail(data, reader)
    ends = [*(found.start() for found in itertools.islice(MAILBOX.finditer(data), 1, MAX_MAILS)), len(data)]
    mails = [_read_mail(data[start:end], reader) for start, end in zip(starts, ends, strict=False)]
    senders = ", ".join(dict.fromkeys(mail.author.removeprefix("from ") for mail in mails if mail.author))
    text = "\n\n".join(mail.text or "" for mail in mails)
    return FileReading(text, "application/mbox", reader, origin="mail", author=f"from {senders}" if senders else "")


def _read_mail(data: bytes, reader: str) -> FileReading:
    found = body.read(data, _read_page, most_parts=MAX_PARTS, most_files=MAX_ATTACHMENTS)
    lines = [f"{name}: {text}" for name in ("Subject", "From", "To", "Cc", "Date") if (text := found.head.text(name.casefold()))]
    for file in found.files:
        lines.append(f"Attachment: {file.file_name or 'unnamed'} ({file.kind}, {file.size_bytes} bytes)")
    lines += [f"Attachment: … and {found.left_out} more"] if found.left_out else []
    text = "\n".join(lines) + "\n\n" + found.text + "\n"
    page = found.head.get("snapshot-content-location")  # of a page that a browser saved
    sender, subject = found.head.text("from"), found.head.text("subject")
    origin, author = ("web", page) if page else ("mail", f"from {sender}" if sender else "")
    # Every sentence of a mail is about who wrote it as well: "when does the order from Velotek arrive?"
    title = f"{subject} ({sender})" if subject and sender and not page else subject
    return FileReading(text, "message/rfc822", reader, title, " · ".join(lines[1:3]), "", origin, author)


def _read_page(data: bytes, charset: str) -> str:
    return html_text.page(data, charset, has_frame=False)[1]


def _read_converted(name: str, data: bytes, form: str, charset: str) -> FileReading:
    title, mime, organizer = "", guess_mime(name, False), None
    try:
        if form == "office":
            if data.startswith(OLD_OFFICE):
                raise ValueError("it has a password, or is of an old program: save it without one, or as docx, xlsx or PDF")
            title, text = office_text.read(data, MAX_BODY_BYTES)
        elif form == "rtf":
            text = rtf_text.read(data)
        else:
            plain = html_text.decoded(data, charset)
            text, organizer = card_text.read(plain), card_text.organizer(plain)
    except FAULTS as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        return as_bytes(name, f"cannot be read, kept as bytes: {why}", mime, reader_of(form))
    if not text.strip():
        return as_bytes(name, "a document without any text, kept as bytes", mime, reader_of(form))
    reading = FileReading(text, mime, reader_of(form), title or _find_heading(text))
    if organizer is not None:
        reading = replace(reading, origin="mail", author=f"from {organizer}" if organizer else "")
    return _check_reading(reading, name)


def _read_pdf(name: str, data: bytes, reader: str) -> FileReading:
    try:
        import pypdf
    except ImportError:
        hint = "its words cannot be found without pypdf: run make in the folder of the sources, which installs it"
        return as_bytes(name, f"a PDF, kept as bytes: {hint}", "application/pdf")
    try:
        document = pypdf.PdfReader(io.BytesIO(data))
        if document.is_encrypted and not document.decrypt(""):
            return as_bytes(
                name, "an encrypted PDF, kept as bytes: save it without a password to find its words", "application/pdf"
            )
        title = " ".join(str(document.metadata.title or "").split()) if document.metadata else ""
        title = "" if title in UNTITLED else title
        parts: list[str] = []
        size = 0
        count = _Counter(MAX_OPERATIONS, "operations in a PDF")
        for page in itertools.islice(document.pages, MAX_PAGES):
            content = page.get_contents()
            count.take(len(content.get_data()) // OPERATION_BYTES if content is not None else 0)
            parts.append(page.extract_text(visitor_operand_before=lambda *given: count.take(1)).strip())
            size += len(parts[-1].encode("utf-8", "replace"))
            if size > MAX_BODY_BYTES:
                break  # too long whole: `_check_reading` says so
    except (pypdf.errors.PyPdfError, *FAULTS) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        return as_bytes(name, f"a PDF that cannot be read, kept as bytes: {why}", "application/pdf", reader)
    text = "\n\n".join(part for part in parts if part)
    if not text:
        return as_bytes(name, "a PDF without any text (scanned?), kept as bytes", "application/pdf", reader)
    return _check_reading(FileReading(text, "application/pdf", reader, title), name)


class _Counter:
    """So much work and no more; ValueError says which limit was met."""

    def __init__(self, most: int, what: str) -> None:
        self._left, self._limit = most, f"more than {most} {what}"

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(self._limit)


def _check_reading(found: FileReading, name: str) -> FileReading:
    """The reading within the limits of an entry, with nothing that a database does not take."""
    text = (found.text or "").replace("\0", "").encode("utf-8", "replace")
    if len(text) > MAX_BODY_BYTES:
        return as_bytes(
            name, f"{len(text)} bytes of text or more, the limit is {MAX_BODY_BYTES}: split it", found.mime, found.reader
        )
    title, description = (
        "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in given).encode("utf-8", "replace").decode()
        for given in (found.title, found.description)
    )
    return FileReading(
        text.decode(),
        found.mime,
        found.reader,
        " ".join(title.split())[: MAX_CHARACTERS["title"]],
        description.strip()[: MAX_CHARACTERS["description"]],
        found.note,
        found.origin,
        " ".join(found.author.encode("utf-8", "replace").decode().split())[:MAX_AUTHOR],
    )


# -- the child --------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests of standard input until it ends: a line of JSON and so many bytes, for which comes a line of JSON."""
    with open("/proc/self/oom_score_adj", "w") as file:  # when memory ends, this goes and not a core or a database
        file.write("1000")
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)  # a person who waits for an answer goes first
    source, answer = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while line := source.readline():
        # Whatever becomes of the parent, no file is read for ever.
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit_s, most_s = int(used.ru_utime + used.ru_stime) + CPU_S, resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s if most_s == resource.RLIM_INFINITY else min(limit_s, most_s), most_s))
        answer.write(json.dumps(asdict(_answer_request(json.loads(line), source))).encode() + b"\n")
        answer.flush()


def _answer_request(asked: dict[str, str | int], source: BinaryIO) -> FileReading:
    name, form, size = str(asked["name"]), str(asked["form"]), int(asked["size"])
    data = source.read(size)
    try:
        return read(name, data, form, str(asked["charset"]))
    except FAULTS as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        return as_bytes(name, f"cannot be read as {form}, kept as bytes: {why}", reader="")


if __name__ == "__main__":
    main()
