"""Documents for tests, made by hand: a PDF that says something, and ones that cannot be read."""

import io
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
