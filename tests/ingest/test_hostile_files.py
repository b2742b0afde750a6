"""Files that are made to be slow to read: the work is counted, and stays in proportion to the file."""

import io
import sys
import time
import zipfile
import zlib
from types import FrameType
from typing import Any

import pytest

from appliance.ingest import extract

MIXED = b"Subject: x\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
CARD = b"BEGIN:VCARD\r\nFN:Ann\r\n"
# What is repeated in a file of each form, between a beginning and an end.
SHAPES = {
    "mail of parts": ("a.eml", MIXED, b"--b\r\n\r\nhello\r\n", b"--b--\r\n"),
    "mail of pages": ("a.eml", MIXED, b"--b\r\nContent-Type: text/html\r\n\r\n<p>hello</p>\r\n", b"--b--\r\n"),
    "mail of files": ("a.eml", MIXED, b'--b\r\nContent-Type: a/b; name="=?utf-8?q?=41=41?="\r\n\r\nx\r\n', b"--b--\r\n"),
    "mail in itself": ("a.eml", b"", b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n", b""),
    "header lines": ("a.eml", MIXED, b"A: b\r\n", b"\r\n"),
    "deep blocks": ("a.html", b"", b"<div><b>", b"x"),
    "deep lists": ("a.html", b"", b"<ul><li>x", b""),
    "hidden in hidden": ("a.html", b"<svg>" * 5000, b"<svg></math></svg>", b"x"),
    "comments without end": ("a.html", b"", b"<!--", b""),
    "marked sections": ("a.html", b"", b"<![CDATA[", b""),
    "instructions": ("a.html", b"", b"<?", b""),
    "ends without end": ("a.html", b"", b"</ ", b""),
    "quotes without end": ("a.html", b"", b"<a b='", b""),
    "two kinds of quotes": ("a.html", b"", b"<a b='\" c=\"", b""),
    "attributes": ("a.html", b"<a ", b"a=b ", b">x</a>"),
    "cells": ("a.html", b"<table>", b"<tr><td>a<td>b</tr>", b""),
    "scripts": ("a.html", b"", b"<script>", b""),
    "events": ("a.ics", b"BEGIN:VCALENDAR\r\n", b"BEGIN:VEVENT\r\nSUMMARY:x\r\nEND:VEVENT\r\n", b"END:VCALENDAR"),
    "folded lines": ("a.ics", b"BEGIN:VEVENT\r\nSUMMARY:x\r\n", b" a\r\n", b"END:VEVENT"),
    "parameters": ("a.ics", b"BEGIN:VEVENT\r\nSUMMARY", b";A=B", b":x\r\nEND:VEVENT"),
    "phones": ("a.vcf", CARD, b"TEL:1\r\n", b"END:VCARD"),
    "a long quoted line": (
        "a.vcf", CARD + b"NOTE;ENCODING=QUOTED-PRINTABLE:" + b"x" * 200_000 + b"=\r\n", b"=\r\n", b"\r\nEND:VCARD",
    ),
    "groups": ("a.rtf", b"{\\rtf1 ", b"{x", b""),
    "letters": ("a.rtf", b"{\\rtf1 ", b"\\u1 ", b"}"),
    "columns": ("a.csv", b"", b'"a,', b""),
}  # fmt: skip


def shaped(shape: str, size: int) -> tuple[str, bytes]:
    name, begin, unit, end = SHAPES[shape]
    return name, begin + unit * max(1, (size - len(begin)) // len(unit)) + end


def lines_run(name: str, data: bytes) -> int:
    """How many lines of Python reading this file takes."""
    count = 0

    def trace(frame: FrameType, event: str, given: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    form = extract.form_of(name, data[:2048])
    sys.settrace(trace)
    try:
        extract.read(name, data, form)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_reading_takes_work_in_proportion_to_the_file(shape: str) -> None:
    lines_run(*shaped(shape, 2000))  # what is loaded once
    half, whole = (lines_run(*shaped(shape, size)) for size in (40_000, 80_000))
    assert whole < 2.3 * half + 2000 and whole < 40 * 80_000  # Python 3.13 takes a quarter more lines than 3.11


SEARCHED = ("header lines", "hidden in hidden", "comments without end", "marked sections", "instructions", "ends without end")
SEARCHED_TOO = ("quotes without end", "two kinds of quotes", "parameters", "a long quoted line")


@pytest.mark.parametrize("shape", (*SEARCHED, *SEARCHED_TOO))
def test_a_megabyte_is_searched_through_a_few_times_and_not_once_for_each_mark(shape: str) -> None:
    name, data = shaped(shape, 1_000_000)
    began_s = time.process_time()
    extract.read(name, data, extract.form_of(name, data[:2048]))
    assert time.process_time() - began_s < 15  # the processor's time, mostly under one second; a square takes minutes


def packed(*files: tuple[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files:
            archive.writestr(name, text)
    return made.getvalue()


def pdf(kids: int, content: bytes) -> bytes:
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[" + b"3 0 R " * kids + b"]/Count %d>>" % kids,
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>/XObject<</X 6 0 R>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n" % len(zlib.compress(content)) + zlib.compress(content) + b"\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Type/XObject/Subtype/Form/Length 9>>stream\nq Q q Q q\nendstream",
    )
    made = b"%PDF-1.4\n"
    places = []
    for number, one in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n" % number + one + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return made + b"xref\n0 7\n0000000000 65535 f \n" + table + b"trailer<</Root 1 0 R/Size 7>>\nstartxref\n%d\n%%%%EOF" % len(made)


CELL = "<table:table-cell{}><text:p>x</text:p></table:table-cell>"
WIDE, LONG = ' table:number-columns-repeated="16384"', ' table:number-rows-repeated="1048576"'
ROW = f"<table:table-row{LONG}>{CELL.format(WIDE)}</table:table-row>"


def sheet(rows: str) -> bytes:
    names = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:table="t" xmlns:text="x"'
    return packed(("content.xml", f"<d {names}><office:spreadsheet><table:table>{rows}</table:table></office:spreadsheet></d>"))


@pytest.mark.parametrize(
    ("name", "build", "limit"),
    [
        ("a.ods", lambda: sheet(ROW * 100), "1000000 cells"),
        ("a.pdf", lambda: pdf(1, b"q Q " * 3_000_000), "1000000 operations"),
    ],
)
def test_a_small_file_that_becomes_a_large_one_is_given_up(name: str, build: Any, limit: str) -> None:
    data = build()
    found = extract.read(name, data, extract.form_of(name, data[:2048]))
    assert found.text is None and limit in found.note and len(data) < 3_000_000


def test_a_sheet_that_is_written_wider_and_longer_than_it_is_is_read() -> None:
    rest = f"<table:table-cell{WIDE}/>"
    rows = f"<table:table-row>{CELL.format('')}{CELL.format('')}{rest}</table:table-row>" * 1500
    found = extract.read("a.ods", sheet(f"{rows}<table:table-row{LONG}>{rest}</table:table-row>"), "office")
    assert found.text is not None and found.text.count("| x | x |") == 1500
