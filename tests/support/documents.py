"""Documents for tests, made by hand: a PDF that says something, and ones that cannot be read."""

import io
import zipfile
import zlib


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF with a line of text on each page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, text in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{text}\nendobj\n".encode())
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    out.write("".join(f"{place:010d} 00000 n \n" for place in places).encode())
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    out.write(f"trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def locked_pdf() -> bytes:
    """A PDF that opens with a password only."""
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("secret")))
    writer.encrypt("password", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


MAIL = (
    b"From: Ada <ada@example.org>\r\nTo: bob@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n"
    b"Date: Mon, 2 Nov 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\n"
    b'Content-Type: multipart/mixed; boundary="B"\r\n\r\n--B\r\nContent-Type: text/plain; charset=iso-8859-1\r\n'
    b"Content-Transfer-Encoding: quoted-printable\r\n\r\nThe owl ate f=FCnf mice.\r\n--B\r\n"
    b'Content-Type: application/zip; name="mice.zip"\r\nContent-Disposition: attachment; filename="mice.zip"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\nUEsDBA==\r\n--B--\r\n"
)


def swollen_pdf() -> bytes:
    """A page whose text is 200 MB once it is unpacked, in a file of one."""
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(b" " * 10_000_000) for _ in range(20)) + packer.flush()
    plain = pdf("owl")
    start = plain.index(b"stream\n") + len(b"stream\n")
    end = plain.index(b"\nendstream", start)
    head = plain[: start - len(b"stream\n")]
    head = head[: head.rindex(b"<<")] + b"<< /Length %d /Filter /FlateDecode >>\n" % len(packed)
    return head + b"stream\n" + packed + plain[end:]


# -- office documents -------------------------------------------------------------------------------

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RID = f'xmlns:r="{R}"'
ODF = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "text", "table", "drawing", "meta")
)


def archive(parts: dict[str, str | bytes], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP of these parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packing) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def links(**targets: str) -> str:
    """The part that says what a part refers to: an id and kind for each target, `slide_2="slides/slide2.xml"`."""
    rows = (f'<Relationship Id="{name}" Type="{R}/{name.partition("_")[0]}" Target="{to}"/>' for name, to in targets.items())
    return f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{"".join(rows)}</Relationships>'


def docx(body: str, **more: str | bytes) -> bytes:
    """A Word document with these paragraphs as XML; style H is a heading."""
    styles = f'<w:styles {W}><w:style w:styleId="H"><w:name w:val="heading 2"/></w:style></w:styles>'
    document = f"<w:document {W} {RID}><w:body>{body}</w:body></w:document>"
    return archive(
        {
            "_rels/.rels": links(officeDocument="word/document.xml"),
            "word/_rels/document.xml.rels": links(styles="styles.xml", footer="footer1.xml", footnotes="notes.xml"),
            "word/document.xml": document,
            "word/styles.xml": styles,
            **more,
        }
    )


def paragraph(text: str, before: str = "") -> str:
    """A paragraph of Word."""
    return f"<w:p>{before}<w:r><w:t>{text}</w:t></w:r></w:p>"


def xlsx(rows: str, strings: tuple[str, ...] = ()) -> bytes:
    """A sheet called Costs of these rows as XML; style 1 is a date, 2 a share."""
    shared = "".join(f"<si><t>{text}</t></si>" for text in strings)
    return archive(
        {
            "_rels/.rels": links(officeDocument="xl/workbook.xml"),
            "xl/_rels/workbook.xml.rels": links(worksheet="worksheets/a.xml", styles="styles.xml", sharedStrings="shared.xml"),
            "xl/workbook.xml": f'<workbook {RID}><sheets><sheet name="Costs" r:id="worksheet"/></sheets></workbook>',
            "xl/styles.xml": "<styleSheet><numFmts><numFmt numFmtId='164' formatCode='dd/mm/yyyy \"days\"'/></numFmts><cellXfs>"
            "<xf numFmtId='0'/><xf numFmtId='164'/><xf numFmtId='9'/></cellXfs></styleSheet>",
            "xl/shared.xml": f"<sst>{shared}</sst>",
            "xl/worksheets/a.xml": f"<worksheet><sheetData>{rows}</sheetData></worksheet>",
        }
    )


def pptx(*slides: str, note: str = "") -> bytes:
    """A presentation with a title on each slide, and a note for the speaker of the first."""
    text = (
        "<p:sld xmlns:p='p' xmlns:a='a'><p:sp><p:nvPr><p:ph type='{}'/></p:nvPr><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:sp></p:sld>"
    )
    names = range(1, len(slides) + 1)
    ids = "".join(f'<p:sldId id="{n}" r:id="slide_{n}"/>' for n in names)
    return archive(
        {
            "_rels/.rels": links(officeDocument="ppt/presentation.xml"),
            "ppt/_rels/presentation.xml.rels": links(**{f"slide_{n}": f"slides/slide{n}.xml" for n in names}),
            "ppt/presentation.xml": f"<p:presentation xmlns:p='p' {RID}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            **{f"ppt/slides/slide{n}.xml": text.format("title", said) for n, said in zip(names, slides)},
            "ppt/slides/_rels/slide1.xml.rels": links(notesSlide="../notesSlides/n1.xml"),
            "ppt/notesSlides/n1.xml": text.format("body", note),
        }
    )


def open_document(body: str, kind: str = "text") -> bytes:
    """An OpenDocument file: text, spreadsheet or presentation, with this content as XML."""
    content = (
        f"<office:document-content {ODF}><office:body><office:{kind}>{body}</office:{kind}></office:body></office:document-content>"
    )
    return archive({"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": content})


def epub(*chapters: str) -> bytes:
    """A book called Owls, its chapters as HTML; their files stand in another order than they are read."""
    names = [f"c{len(chapters) - n}.xhtml" for n in range(len(chapters))]
    items = "".join(f'<item id="{name}" href="text/{name}"/>' for name in sorted(names))
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    title = "<metadata xmlns:dc='d'><dc:title>Owls</dc:title></metadata>"
    return archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/a.opf"/></rootfiles></container>',
            "OEBPS/a.opf": f"<package>{title}<manifest>{items}</manifest><spine>{spine}</spine></package>",
            **{f"OEBPS/text/{name}": f"<html><body>{said}</body></html>" for name, said in zip(names, chapters)},
        }
    )
