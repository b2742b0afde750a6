"""The kinds of files that people keep in a folder, each with what it says; and those that cannot be read, by name."""

import io
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import (
    MAIL,
    archive,
    docx,
    epub,
    links,
    locked_pdf,
    open_document,
    paragraph,
    pdf,
    pptx,
    xlsx,
)
from stores import new_store

from appliance.ingest import card_text, notes, office_text, rtf_text
from appliance.ingest.extract import MAX_FILE_BYTES
from appliance.knowledge.entries import Entries

CELLS = "<w:tbl><w:tr>{}</w:tr><w:tr>{}</w:tr></w:tbl>"
CELL = "<w:tc>{}</w:tc>"
ROW = "<row>{}</row>"
EVENT = """BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Dentist\\, Dr. Ro
 th
DTSTART;TZID=Europe/Berlin:20261203T143000
LOCATION:Rue 1\\nParis
BEGIN:VALARM
DESCRIPTION:no
END:VALARM
RRULE:FREQ=YEARLY
END:VEVENT
END:VCALENDAR
"""
CARD = """BEGIN:VCARD
VERSION:2.1
N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCller;J=
=C3=B6rg
TEL;CELL:0160 5
item1.EMAIL;type=INTERNET;type=HOME:j@example.org
BDAY:19800206
PHOTO;ENCODING=b;TYPE=JPEG:QUJD
END:VCARD
"""
TABLE_HTML = b"<table><tr><th>Name</th><th>Phone</th></tr><tr><td>Bea</td><td>0160 <b>5</b></td></tr></table><script>x</script>"
SHEET = xlsx(
    ROW.format("<c t='s'><v>0</v></c>")
    + ROW.format("<c r='B3' t='inlineStr'><is><t>month</t></is></c><c r='D3' t='s'><v>1</v></c><c r='E3' t='str'><v>share</v></c>")
    + ROW.format("<c r='B4' s='1'><v>46268</v></c><c r='D4'><v>1180.5</v></c><c r='E4' s='2'><v>0.19</v></c>"),
    ("Household", "amount"),
)
WORD = docx(
    paragraph("Rent", '<w:pPr><w:pStyle w:val="H"/></w:pPr>')
    + paragraph("1,180 euro")
    + paragraph("cats allowed", "<w:pPr><w:numPr/></w:pPr>")
    + "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>"
    + CELLS.format(*(CELL.format(paragraph(a)) + CELL.format(paragraph(b)) for a, b in (("Name", "Phone"), ("Bea", "0160 | 5")))),
    **{"word/footer1.xml": "<w:ftr xmlns:w='w'>" + paragraph("Landlord: H. Sauer") + "</w:ftr>"},
)
ODS = open_document(
    '<table:table table:name="Pets"><table:table-row><table:table-cell><text:p>Name</text:p></table:table-cell>'
    "<table:table-cell><text:p>Age</text:p></table:table-cell></table:table-row>"
    '<table:table-row table:number-rows-repeated="2"><table:table-cell><text:p>Owl</text:p></table:table-cell>'
    "<table:table-cell><text:p>7</text:p></table:table-cell></table:table-row></table:table>",
    "spreadsheet",
)
ODT = open_document(
    '<text:h text:outline-level="2">Beds</text:h><text:p>Beans<text:s text:c="2"/>in bed C.</text:p>'
    "<text:list><text:list-item><text:p>peas</text:p></text:list-item></text:list>"
)
RTF = rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}\f0 Gr\'fc\'dfe \u8364? 5\par{\*\x hid}{\b Bold} end}"

# What stands in a file, and what its entry says.
READ: list[tuple[str, bytes, str]] = [
    ("a.md", b"# Garden\n\nOwls.", "# Garden\n\nOwls."),
    ("a.markdown", b"Owls.", "Owls."),
    ("a.txt", b"one\r\ntwo", "one\ntwo"),
    ("bom.txt", b"\xef\xbb\xbfone", "one"),
    ("win.txt", "Größe".encode("utf-16"), "Größe"),
    ("big.txt", b"\xfe\xff" + "Größe".encode("utf-16-be"), "Größe"),
    ("win.csv", "Name;Größe\r\nEule;7".encode("utf-16"), "Name;Größe\nEule;7"),
    ("a.csv", b"name,age\nada,36\n", "name,age\nada,36\n"),
    ("a.tsv", b"name\tage\nada\t36\n", "name\tage\nada\t36\n"),
    ("README", "ünï".encode(), "ünï"),
    ("a.org", b"* Plan\n", "* Plan\n"),
    ("a.rst", b"Plan\n====\n", "Plan\n====\n"),
    ("a.json", b'{"a": 1}', '{"a": 1}'),
    ("a.yaml", b"a: 1\n", "a: 1\n"),
    ("a.toml", b"a = 1\n", "a = 1\n"),
    ("a.py", b"def f(): pass\n", "def f(): pass\n"),
    ("a.sh", b"echo hi\n", "echo hi\n"),
    ("a.log", b"10:00 start\n", "10:00 start\n"),
    ("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\nHoot\n", "1\n00:00:01,000 --> 00:00:02,000\nHoot\n"),
    ("empty.txt", b"", ""),
    ("a.html", b"<html><head><style>b{}</style></head><script>x()</script><p>Hi <b>you</b></html>", "Hi you"),
    ("a.htm", TABLE_HTML, "| Name | Phone |\n| --- | --- |\n| Bea | 0160 5 |"),
    (
        "spaced.html",
        b"<table>\n<tr><th>Name</th> <th>Age</th></tr>\n <tr><td>Bea</td> <td>4</td></tr>\n\n"
        b"<tr><td>Otto</td><td>7</td></tr>\n</table>",
        "| Name | Age |\n| --- | --- |\n| Bea | 4 |\n| Otto | 7 |",
    ),
    ("page", b"<!doctype html><p>Hi", "Hi"),
    ("a.xhtml", b"<html xmlns='http://www.w3.org/1999/xhtml'><body><p>Hi</p></body></html>", "Hi"),
    ("a.eml", MAIL, "The owl ate fünf mice."),
    ("a.mht", b"Subject: Saved\nMIME-Version: 1.0\nContent-Type: text/html\n\n<p>Hi <i>page</i>", "Hi page"),
    ("a.pdf", pdf("mice in the barn"), "mice in the barn"),
    (
        "a.docx",
        WORD,
        "## Rent\n\n1,180 euro\n\n- cats allowed\n\n| Name | Phone |\n| --- | --- |\n| Bea | 0160 \\| 5 |\n\nLandlord: H. Sauer",
    ),
    ("a.docm", docx(paragraph("one<w:tab/>")), "one"),
    (
        "a.xlsx",
        SHEET,
        "## Costs\n\nHousehold\n\n| month | amount | share |\n| --- | --- | --- |\n| 2026-09-03 | 1180.5 | 19% |",
    ),
    ("a.pptx", pptx("Plan", "End", note="say hello"), "## Plan\n\n- say hello\n\n## End"),
    ("a.odt", ODT, "## Beds\n\nBeans  in bed C.\n\n- peas"),
    ("a.ods", ODS, "## Pets\n\n| Name | Age |\n| --- | --- |\n| Owl | 7 |\n| Owl | 7 |"),
    ("a.epub", epub("<h1>One</h1><p>Hoot.</p>", "<p>Twice.</p>"), "# One\n\nHoot.\n\nTwice."),
    ("a.rtf", RTF, "Grüße € 5\nBold end\n"),
    ("a.ics", EVENT.encode(), "## Dentist, Dr. Roth\nStart: 2026-12-03 14:30 Europe/Berlin\nLocation: Rue 1, Paris\n"
        "Repeats: FREQ=YEARLY"),
    ("a.vcf", CARD.encode(), "## Jörg Müller\nPhone (cell): 0160 5\nEmail (home): j@example.org\nBirthday: 1980-02-06"),
]  # fmt: skip
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><w:document><w:t>&b;</w:t></w:document>'
# Files that cannot be read, why, and whether somebody expects words in them.
UNREAD: list[tuple[str, bytes, str, bool]] = [
    ("a.png", b"\x89PNG\r\n\x1a\n\0\0", "binary, not text", False),
    ("a.mp3", b"ID3\3\0\0", "binary, not text", False),
    ("a.zip", archive({"x.txt": "x"}), "binary, not text", True),
    ("a.doc", OLE, "old office program", True),
    ("locked.docx", OLE, "has a password", True),
    ("b.docx", b"PK\x03\x04\0\0", "not a whole archive", True),
    ("c.docx", archive({"x.txt": "x"}), "no document", True),
    ("d.docx", docx("<w:p>"), "not whole XML", True),
    ("e.docx", archive({"_rels/.rels": links(officeDocument="word/a.xml"), "word/a.xml": BOMB}), "declares entities", True),
    ("f.docx", docx(""), "without any text", True),
    ("g.docx", archive({"_rels/.rels": links(officeDocument="word/a.xml"), "word/a.xml": "x"}, zipfile.ZIP_BZIP2), "packed", True),
    ("a.rtf", b"no rich text", "no rich text", True),
    ("locked.pdf", locked_pdf(), "encrypted", True),
    ("scan.pdf", pdf(""), "without any text", True),
    ("latin.txt", "Größe".encode("latin-1"), "not UTF-8 text (byte 2)", True),
]


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[notes.Folder, Entries]]:
    """A folder with a file of every kind, read once."""
    home = tmp_path_factory.mktemp("kinds")
    store = new_store(home / "owlbox.db")
    for name, data, *_ in READ:
        path = home / "box/read" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name, data, *_ in UNREAD:
        path = home / "box/unread" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    rows = Entries(store)
    folder = notes.Folder(home / "box", rows, os.environ)
    folder.sync_paths(sorted(path for path in (home / "box").rglob("*") if path.is_file()))
    yield folder, rows
    store.close()


@pytest.mark.parametrize(("name", "data", "text"), READ, ids=[name for name, *_ in READ])
def test_a_file_of_the_folder_is_read_by_its_kind(
    mirrored: tuple[notes.Folder, Entries], name: str, data: bytes, text: str
) -> None:
    body = mirrored[1].get(f"box://read/{name}").body
    if name.endswith((".eml", ".mht")):  # below its headers
        assert text in body.split("\n") and "=FC" not in body and "<" not in body.partition("\n\n")[2]
    else:
        assert body.strip("\n") == text.strip("\n")


@pytest.mark.parametrize(("name", "data", "why", "is_told"), UNREAD, ids=[name for name, *_ in UNREAD])
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    mirrored: tuple[notes.Folder, Entries], name: str, data: bytes, why: str, is_told: bool
) -> None:
    folder, rows = mirrored
    (problem,) = [one for one in folder.problems if one.startswith(f"unread/{name}: ")]
    assert why in problem and "kept as bytes" not in problem and rows.find(f"box://unread/{name}") is None
    assert (f"unread/{name}" in folder.unread) == is_told
    assert why.removeprefix("cannot be read: ") in folder.why_unread(f"box://unread/{name}")
    assert folder.why_unread(f"memory://unread/{name}") == folder.why_unread("box://unread/other") == ""


def test_what_could_not_be_read_is_said_in_a_sentence(mirrored: tuple[notes.Folder, Entries]) -> None:
    said = mirrored[0].describe_unread()
    assert said == f"{len(UNREAD) - 2} files in the folder could not be read: unread/a.doc, unread/a.rtf, unread/a.zip and 10 more"


def test_doctor_names_what_the_folder_could_not_read(mirrored: tuple[notes.Folder, Entries]) -> None:
    assert notes.check(mirrored[0].root, os.environ) == mirrored[0].problems


def test_nothing_is_read_again_while_nothing_changed(mirrored: tuple[notes.Folder, Entries]) -> None:
    folder = mirrored[0]
    assert folder.sync_paths(sorted(path for path in (folder.root / "read").iterdir())) == 0


def test_a_document_that_unpacks_to_too_much_is_refused_while_it_is_unpacked() -> None:
    part = b"<w:document>" + b" " * (office_text.MAX_UNPACKED_BYTES + 1)
    data = archive({"_rels/.rels": links(officeDocument="word/a.xml"), "word/a.xml": part})
    assert len(data) < 200_000 < MAX_FILE_BYTES
    with pytest.raises(ValueError, match="unpacks to more than"):
        office_text.read(data, 100)


def test_a_long_document_is_read_no_further_than_asked() -> None:
    _, text = office_text.read(docx("".join(paragraph(f"line {n}") for n in range(1000))), 100)
    assert text.startswith("line 0\n\nline 1") and len(text) < 120


def test_nested_tables_and_groups_end_well() -> None:
    deep = docx("<w:tbl><w:tr><w:tc>" * 500 + paragraph("x") + "</w:tc></w:tr></w:tbl>" * 500)
    assert office_text.read(deep, 1000)[1] == "x"
    with pytest.raises(ValueError, match="nested too deep"):
        rtf_text.read(b"{\\rtf1" + b"{" * 5000)
    assert card_text.read("BEGIN:VCARD\nEND:VCARD\nEND:VCARD\nBEGIN:VEVENT\n") == "## -\n"


def test_a_table_without_a_head_keeps_its_first_row() -> None:
    assert list(office_text.table([["Rent", "1,180"], ["Deposit", "3,540"]])) == [
        "|  |  |", "| --- | --- |", "| Rent | 1,180 |", "| Deposit | 3,540 |", "",
    ]  # fmt: skip
    assert list(office_text.table([["Rent", "", "euro"]])) == ["Rent; euro\n"]


def test_an_edit_that_keeps_size_and_time_of_change_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "box/a.md"
    path.parent.mkdir()
    path.write_text("teal")
    os.utime(path, ns=(10**18, 10**18))
    store = new_store(tmp_path / "owlbox.db")
    rows = Entries(store)
    folder = notes.Folder(path.parent, rows, os.environ)
    folder.sync_paths([path])
    path.write_text("blue")
    os.utime(path, ns=(10**18, 10**18))
    assert folder.sync_paths([path]) == 1 and rows.get("box://a.md").body == "blue"
    other = tmp_path / "other.md"
    other.write_text("gold")
    os.utime(other, ns=(10**18, 10**18))
    other.replace(path)
    assert folder.sync_paths([path]) == 1 and rows.get("box://a.md").body == "gold"
    store.close()


def test_what_a_document_names_again_and_again_is_read_once() -> None:
    """A book of 2 kB that named its chapter 50,000 times took the reader's whole time, as did a format of 300,000 letters."""
    book = zipfile.ZipFile(io.BytesIO(epub("<p>Owls sleep by day.</p>")))
    parts = {name: book.read(name).decode() for name in book.namelist()}
    parts["OEBPS/a.opf"] = parts["OEBPS/a.opf"].replace("<spine>", "<spine>" + '<itemref idref="c1.xhtml"/>' * 50_000)
    sheet = zipfile.ZipFile(io.BytesIO(xlsx('<row><c r="A1" s="1"><v>45000</v></c></row>')))
    cells = {name: sheet.read(name).decode() for name in sheet.namelist()}
    cells["xl/styles.xml"] = cells["xl/styles.xml"].replace("dd/mm/yyyy", "dd/mm/yyyy" + "[" * 300_000)
    began_s = time.process_time()
    assert office_text.read(archive(parts), 100_000)[1].count("Owls sleep by day.") == 1
    office_text.read(archive(cells), 100_000)
    assert time.process_time() - began_s < 2.0
