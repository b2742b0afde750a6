"""Mails as they are found: each shape with its sender, subject, words and files, read by the channel and by the folder alike."""

import base64
import quopri
import time

import pytest

from appliance.channels.mail import reading
from appliance.channels.mail.reading import NO_TEXT
from appliance.errors import BadInput
from appliance.ingest import extract
from appliance.text import charsets, html_text
from appliance.text.mail import body, head

OWL, MX = "owl@home.org", "mx.home.org"
ANN = "From: Ann <ann@example.org>"
Files = list[tuple[str, str, bytes]]


def page(data: bytes, charset: str) -> str:
    return html_text.page(data, charset, has_frame=False)[1]


def channel(data: bytes) -> reading.Mail:
    return reading.read_content(data, reading.read_head(data, own_address=OWL, trusted_server=MX), page)


def mail(*lines: str | bytes, head: tuple[str | bytes, ...] = (ANN,), end: bytes = b"\r\n") -> bytes:
    """A mail of header fields, an empty line and lines of text."""
    return end.join(one if isinstance(one, bytes) else one.encode() for one in (*head, b"", *lines))


def typed(kind: str, data: bytes | str, *more: str) -> bytes:
    """A mail of one part."""
    return mail(data, head=(ANN, f"Content-Type: {kind}", *more))


def multi(kind: str, *parts: bytes, more: str = "") -> bytes:
    """A part of several, for `whole` or inside another one. Boundaries follow from how deep it is."""
    mark = "b" * (1 + max((one.count(b"boundary=") for one in parts), default=0))
    inner = b"".join(f"--{mark}\r\n".encode() + one + b"\r\n" for one in parts)
    return f"Content-Type: multipart/{kind}; boundary={mark}{more}\r\n\r\n".encode() + inner + f"--{mark}--\r\n".encode()


def whole(part: bytes) -> bytes:
    return f"{ANN}\r\nSubject: x\r\n".encode() + part


def part(kind: str, data: bytes | str, *more: str) -> bytes:
    fields = "".join(f"{one}\r\n" for one in (f"Content-Type: {kind}", *more))
    return fields.encode() + b"\r\n" + (data if isinstance(data, bytes) else data.encode())


PLAIN, EMPTY, HTML = part("text/plain", "plain words"), part("text/plain", " \r\n"), part("text/html", "<p>rich <b>words</b></p>")
PICTURE = part("image/png", base64.b64encode(b"PNG"), "Content-Transfer-Encoding: base64", "Content-ID: <p@x>")
PHOTO = part(
    "image/jpeg", base64.b64encode(b"JPG"), "Content-Transfer-Encoding: base64", "Content-Disposition: inline; filename=p.jpg"
)
PDF = part("application/pdf", "%PDF", 'Content-Disposition: attachment; filename="a.pdf"')
MORE = part("text/plain", "more words")
A_PDF: Files = [("a.pdf", "application/pdf", b"%PDF")]
A_PHOTO: Files = [("p.jpg", "image/jpeg", b"JPG")]
A_PICTURE: Files = [("unnamed", "image/png", b"PNG")]
JIS = b"\x1b$B"
UU = b"begin 644 a.txt\r\n#:&D*\r\n`\r\nend\r\n"


def named(field: str) -> bytes:
    return whole(multi("mixed", PLAIN, part("application/pdf", "%PDF", f"Content-Disposition: attachment; {field}")))


BODIES: dict[str, tuple[bytes, str, Files]] = {
    "no type at all": (mail("hello"), "hello", []),
    "lines that end with LF": (mail("hello", "there", end=b"\n"), "hello\nthere", []),
    "nothing behind the header": (mail(), "", []),
    "a header without an end": (ANN.encode(), "", []),
    "quoted-printable": (
        typed(
            "text/plain; charset=utf-8", quopri.encodestring("Grüße, a=b".encode()), "Content-Transfer-Encoding: quoted-printable"
        ),
        *("Grüße, a=b", []),
    ),
    "quoted-printable with soft breaks": (
        typed("text/plain", "one =\r\nline =3D one", "Content-Transfer-Encoding: Quoted-Printable"),
        *("one line = one", []),
    ),
    "base64": (typed("text/plain", base64.b64encode(b"hello"), "Content-Transfer-Encoding: base64"), "hello", []),
    "base64 without padding": (typed("text/plain", "aGVsbG8", "Content-Transfer-Encoding: BASE64"), "hello", []),
    "base64 with a foreign line": (typed("text/plain", "aGVs\r\n!!\r\nbG8=", "Content-Transfer-Encoding: base64"), "hello", []),
    "an unknown encoding": (typed("text/plain", "hello", "Content-Transfer-Encoding: 9bit"), "hello", []),
    "uuencode": (typed("text/plain", UU, "Content-Transfer-Encoding: x-uuencode"), "hi", []),
    "html": (typed("text/html", "<p>rich <b>words</b></p><script>no</script>"), "rich words", []),
    "html in gb2312": (typed("text/html; charset=gb2312", "<p>你好囧</p>".encode("gb18030")), "你好囧", []),
    "markdown": (typed("text/markdown", "# Tea\r\n\r\n- green"), "# Tea\n\n- green", []),
    "enriched": (
        typed("text/enriched", "<bold>Now</bold> is\r\nthe <<time>\r\n\r\n<param>x</param>go"),
        *("Now is the <time>\ngo", []),
    ),
    "a top text with a name": (typed('text/plain; name="mail.txt"', "hello"), "hello", []),
    "plain and html": (whole(multi("alternative", PLAIN, HTML)), "plain words", []),
    "html and plain": (whole(multi("alternative", HTML, PLAIN)), "plain words", []),
    "html beside an empty plain part": (whole(multi("alternative", EMPTY, HTML)), "rich words", []),
    "empty html beside plain": (whole(multi("alternative", PLAIN, part("text/html", ""))), "plain words", []),
    "enriched beside html": (whole(multi("alternative", part("text/enriched", "<b>x</b>"), HTML)), "rich words", []),
    "only empty alternatives": (whole(multi("alternative", EMPTY, part("text/html", "<p></p>"))), "", []),
    "html with its picture": (whole(multi("related", HTML, PICTURE)), "rich words", A_PICTURE),
    "a picture before its html": (whole(multi("related", PICTURE, HTML)), "rich words", A_PICTURE),
    "html with its style": (whole(multi("related", HTML, part("text/plain", "p { }"))), "rich words", []),
    "plain beside html with a picture": (whole(multi("alternative", PLAIN, multi("related", HTML, PICTURE))), "plain words", []),
    "empty plain beside html with a picture": (
        whole(multi("alternative", EMPTY, multi("related", HTML, PICTURE))),
        *("rich words", A_PICTURE),
    ),
    "a file in the other alternative": (
        whole(multi("alternative", PLAIN, multi("mixed", HTML, PDF, part("text/html", "<p>x</p>")))),
        *("plain words", A_PDF),
    ),
    "an invitation": (
        whole(multi("alternative", PLAIN, HTML, part("text/calendar; method=REQUEST", "BEGIN:VCALENDAR"))),
        *("plain words", []),
    ),
    "a text and a file": (whole(multi("mixed", PLAIN, PDF)), "plain words", A_PDF),
    "a file and a text": (whole(multi("mixed", PDF, PLAIN)), "plain words", A_PDF),
    "a text after an inline picture": (whole(multi("mixed", PHOTO, PLAIN)), "plain words", A_PHOTO),
    "texts around an inline picture": (
        whole(multi("mixed", PLAIN, PHOTO, MORE)),
        *("plain words\n\nmore words", A_PHOTO),
    ),
    "one text part after a picture in an alternative": (
        whole(multi("alternative", multi("mixed", PHOTO, PLAIN), EMPTY)),
        *("plain words", A_PHOTO),
    ),
    "a footer of another server": (whole(multi("mixed", multi("alternative", PLAIN, HTML), MORE)), "plain words\n\nmore words", []),
    "an attached text": (
        whole(multi("mixed", PLAIN, part("text/plain", "notes", "Content-Disposition: attachment; filename=n.txt"))),
        *("plain words", [("n.txt", "text/plain", b"notes")]),
    ),
    "an inline text with a name": (
        whole(multi("mixed", PLAIN, part('text/plain; name="n.txt"', "notes"))),
        *("plain words", [("n.txt", "text/plain", b"notes")]),
    ),
    "only a file": (mail("%PDF", head=(ANN, "Content-Type: application/pdf; name=a.pdf")), "", A_PDF),
    "signed by pgp": (whole(multi("signed", PLAIN, PDF, more="; protocol=application/pgp-signature")), "plain words", []),
    "encrypted": (whole(multi("encrypted", PLAIN)), body.ENCRYPTED, []),
    "encrypted for s/mime": (typed("application/pkcs7-mime; name=smime.p7m", "xx"), body.ENCRYPTED, []),
    "a mail in a mail": (
        whole(multi("mixed", PLAIN, part("message/rfc822", "From: x@y.z\r\nSubject: b\r\n\r\nhi"))),
        *("plain words", [("unnamed", "message/rfc822", b"From: x@y.z\r\nSubject: b\r\n\r\nhi")]),
    ),
    "a digest": (
        whole(multi("digest", b"\r\nFrom: x@y.z\r\n\r\nhi")),
        *("", [("unnamed", "message/rfc822", b"From: x@y.z\r\n\r\nhi")]),
    ),
    "no last boundary": (whole(multi("mixed", PLAIN, MORE)[: -len("--b--\r\n")]), "plain words\n\nmore words", []),
    "no boundary in the text": (typed("multipart/mixed; boundary=q", "hello"), "hello", []),
    "no boundary at all": (typed("multipart/mixed", "hello"), "hello", []),
    "a boundary with spaces behind it": (
        typed('multipart/mixed; boundary="a b"', "--a b  \r\n\r\none\r\n--a bc\r\ntwo\r\n--a b--"),
        *("one\r\n--a bc\r\ntwo".replace("\r", ""), []),
    ),
    "words before and behind the parts": (typed("multipart/mixed; boundary=q", "no\r\n--q\r\n\r\nyes\r\n--q--\r\nno"), "yes", []),
    "a part without a header": (typed("multipart/mixed; boundary=q", "--q\r\n\r\nyes\r\n--q--"), "yes", []),
    "a broken type": (typed("text", "hello"), "hello", []),
    "a type with a comment": (typed("text/plain; charset=utf-8 (ours)", "Grüße"), "Grüße", []),
    "a file name in words": (named("filename==?utf-8?q?Gr=C3=BC=C3=9Fe.pdf?="), "plain words", [("Grüße.pdf", *A_PDF[0][1:])]),
    "a file name by rfc 2231": (named("filename*=utf-8''Gr%C3%BC%C3%9Fe.pdf"), "plain words", [("Grüße.pdf", *A_PDF[0][1:])]),
    "a file name in pieces": (
        named("filename*0*=utf-8''Gr%C3%BC; filename*1*=%C3%9Fe; filename*2=.pdf"),
        *("plain words", [("Grüße.pdf", *A_PDF[0][1:])]),
    ),
    "a file name with quotes": (named(r'filename="a \"b\"; c.pdf"'), "plain words", [('a "b"; c.pdf', *A_PDF[0][1:])]),
    "a raw file name": (named('filename="Grüße.pdf"'), "plain words", [("Grüße.pdf", *A_PDF[0][1:])]),
    "gb2312 that is gb18030": (typed("text/plain; charset=GB2312", "囧 €".encode("gb18030")), "囧 €", []),
    "a charset with other marks": (typed("text/plain; charset=latin-9", b"\xa4 \xbduf"), "€ œuf", []),
    "a charset with its year": (typed("text/plain; charset=ISO_8859-2:1987", "żółw".encode("iso8859-2")), "żółw", []),
    "a charset without marks": (typed("text/plain; charset=iso88597", "γλαύξ".encode("iso8859-7")), "γλαύξ", []),
    "a charset by its code": (typed("text/plain; charset=csISOLatin5", "ğ".encode("cp1254")), "ğ", []),
    "shift_jis of windows": (typed('text/plain; charset="Shift_JIS"', "①㈱髙".encode("cp932")), "①㈱髙", []),
    "euc-kr of windows": (typed("text/plain; charset=ks_c_5601-1987", "똠방각하".encode("cp949")), "똠방각하", []),
    "euc-jp of windows": (typed("text/plain; charset=euc-jp", b"\xad\xa1\xa4\xa2\x8e\xb1"), "①あｱ", []),
    "iso-2022-jp": (typed("text/plain; charset=iso-2022-jp", "日本語 abc".encode("iso2022_jp")), "日本語 abc", []),
    "iso-2022-jp with JIS X 0213": (
        typed("text/plain; charset=iso-2022-jp", "鷗俱𠮟 ok".encode("iso2022_jp_2004")),
        "鷗俱𠮟 ok",
        [],
    ),
    "iso-2022-jp with the first JIS X 0213": (
        typed("text/plain; charset=iso-2022-jp-3", b"\x1b$(O\x2e\x22\x1b$(P\x21\x21\x1b(B ok"),
        "𠀋𠂉 ok",
        [],
    ),
    "iso-2022-jp with Chinese, Korean and accents": (
        typed("text/plain; charset=iso-2022-jp-2", "日本 你们 한국 é".encode("iso2022_jp_2")),
        "日本 你们 한국 é",
        [],
    ),
    "shift_jis of JIS X 0213": (typed("text/plain; charset=shift_jisx0213", "鷗俱".encode("shift_jis_2004")), "鷗俱", []),
    "iso-2022-jp with signs of machines": (
        typed("text/plain; charset=iso-2022-jp", JIS + b"\x2d\x21\x7c\x62\x1b(I\x31\x1b(B ok"),
        *("①髙ｱ ok", []),
    ),
    "big5 of hong kong": (typed("text/plain; charset=big5", "嘅".encode("big5hkscs")), "嘅", []),
    "big5 of windows": (typed("text/plain; charset=big5", "中 €".encode("cp950")), "中 €", []),
    "ascii that is utf-8": (typed("text/plain; charset=us-ascii", "Grüße"), "Grüße", []),
    "no charset and utf-8": (typed("text/plain", "Grüße"), "Grüße", []),
    "no charset and windows": (typed("text/plain", "Grüße – “x”".encode("cp1252")), "Grüße – “x”", []),
    "latin-1 that is windows": (typed("text/plain; charset=iso-8859-1", "“x” €".encode("cp1252")), "“x” €", []),
    "utf-8 that is windows": (typed("text/plain; charset=utf-8", b"caf\xe9"), "café", []),
    "utf-8 with a damaged byte": (typed("text/plain; charset=utf-8", "Grüße ä".encode() + b"\xff"), "Grüße ä\ufffd", []),
    "a charset that is none": (typed("text/plain; charset=nonsense", "Grüße"), "Grüße", []),
    "a codec that is no charset": (typed("text/plain; charset=punycode", "Gre-abc-lva8j"), "Gre-abc-lva8j", []),
    "utf-7": (typed("text/plain; charset=utf-7", "Hi +AOQ-"), "Hi ä", []),
    "utf-16": (typed("text/plain; charset=utf-16", "Grüße".encode("utf-16")), "Grüße", []),
    "turkish": (typed("text/plain; charset=iso-8859-9", "şçğ".encode("cp1254")), "şçğ", []),
    "thai": (typed("text/plain; charset=tis-620", "ไทย".encode("cp874")), "ไทย", []),
    "russian": (typed("text/plain; charset=koi8-r", "Привет".encode("koi8-r")), "Привет", []),
}


@pytest.mark.covers("S-115", "S-116")
@pytest.mark.parametrize("name", BODIES)
def test_channel_and_folder_read_the_same_words_and_files(name: str) -> None:
    data, words, files = BODIES[name]
    found = channel(data)
    assert found.words == (words or NO_TEXT)
    assert [(one.name, one.mime, one.data) for one in found.attachments] == files
    text = extract.read("a.eml", data, "mail").text
    assert text is not None and text.startswith("Subject: x\n" if b"\nSubject: x" in data else "From: Ann <ann@example.org>\n")
    assert text.endswith(f"\n\n{words}\n") and text.count("Attachment: ") == len(files)


SUBJECTS = {
    "plain": ("Tea at five", "Tea at five"),
    "raw utf-8": ("Grüße aus Köln", "Grüße aus Köln"),
    "raw windows": ("Grüße".encode("cp1252"), "Grüße"),
    "quoted": ("=?utf-8?Q?Gr=C3=BC=C3=9Fe_a=5Fb?=", "Grüße a_b"),
    "base64": ("=?UTF-8?B?R3LDvMOfZQ==?=", "Grüße"),
    "base64 without padding": ("=?UTF-8?B?R3LDvMOfZQ?=", "Grüße"),
    "words in a row": ("=?utf-8?q?Gr=C3=BC?=\r\n =?utf-8?q?=C3=9Fe?= ok", "Grüße ok"),
    "half a sign in each": ("=?utf-8?q?Gr=C3?= =?utf-8?q?=BC?=", "Grü"),
    "two charsets": ("=?iso-8859-1?q?=FC?= =?utf-8?q?=C3=9F?=", "üß"),
    "with a language": ("=?utf-8*de?q?Gr=C3=BC?=", "Grü"),
    "gb2312": ("=?gb2312?B?" + base64.b64encode("囧".encode("gb18030")).decode() + "?=", "囧"),
    "iso-2022-jp": ("=?iso-2022-jp?B?" + base64.b64encode(JIS + b"\x2d\x21\x1b(B").decode() + "?=", "①"),
    "folded": ("Tea\r\n\tat five", "Tea at five"),
    "no end of a word": ("=?utf-8?q?abc", "=?utf-8?q?abc"),
    "an unknown kind": ("=?utf-8?x?abc?=", "=?utf-8?x?abc?="),
    "words inside words": ("a=?utf-8?q?b?=c", "abc"),
    "empty": ("", ""),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_subjects_are_read_as_they_are_meant(name: str) -> None:
    given, shown = SUBJECTS[name]
    data = mail("x", head=(ANN, b"Subject: " + (given if isinstance(given, bytes) else given.encode())))
    assert channel(data).head.subject == shown


SENDERS = {
    "ann@example.org": "ann@example.org",
    "<Ann@Example.org>": "ann@example.org",
    "Ann <ann@example.org>": "ann@example.org",
    "ann@example.org (Ann)": "ann@example.org",
    "(Ann) ann@example.org": "ann@example.org",
    "Ann (at (the) office) <ann@example.org>": "ann@example.org",
    "Ann <ann@example.org> (work)": "ann@example.org",
    r'"Ann \"Annie\" Smith" <ann@example.org>': "ann@example.org",
    r'"Smith\, Ann" <ann@example.org>': "ann@example.org",
    '"Smith, Ann" <ann@example.org>': "ann@example.org",
    r"Ann (a \) b) <ann@example.org>": "ann@example.org",
    "Jörg <ann@example.org>": "ann@example.org",
    "=?utf-8?q?J=C3=B6rg?= <ann@example.org>": "ann@example.org",
    "J. R. Smith <ann@example.org>": "ann@example.org",
    "ann@example.org <ann@example.org>": "ann@example.org",
    '"bob@evil.test via List" <ann@example.org>': "ann@example.org",
    "Ann [work] <ann@example.org>": "ann@example.org",
    "": "",
    "Ann": "",
    "<>": "",
    "ann@example.org, bob@example.org": "",
    "ann@example.org bob@example.org": "",
    "Smith, Ann <ann@example.org>": "",
    "Group: ann@example.org;": "",
    "ann@example.org (bob@example.org)": "",
    "bob@example.org <ann@example.org>": "",
    "<ann@example.org> <bob@example.org>": "",
    "<ann@example.org> bob": "",
    "<@relay.test:ann@example.org>": "",
    '"Ann <ann@example.org>': "",
    '"Ann <ann@example.org>" <': "",
    "Ann (x <ann@example.org>": "",
    "Ann <ann@example.org": "",
    "Ann > <ann@example.org>": "",
    "ann@[127.0.0.1]": "",
    '"ann smith"@example.org': "",
    "=?utf-8?q?=22a=22_=3Cbob=40example.org=3E?= <ann@example.org>": "ann@example.org",
}


@pytest.mark.covers("E-289")
@pytest.mark.parametrize("given", SENDERS)
def test_a_sender_is_the_one_address_that_every_server_reads(given: str) -> None:
    data = mail("x", head=(f"From: {given}",))
    if SENDERS[given]:
        assert channel(data).head.sender == SENDERS[given]
    else:
        with pytest.raises(BadInput, match="exactly one plain address"):
            channel(data)


PROOF = b"Authentication-Results: mx.home.org; dkim=pass header.d=home.org; dmarc=pass header.from=home.org\r\n"
REST = b"Subject: x\r\nMessage-ID: <1@x>\r\n\r\nopen the door\r\n"
DEFECTS = {
    "bare CR": (PROOF + b"X-A: a\rFrom: ann@home.org\rSubject: hi\r\r\nFrom: eve@home.org\r\n" + REST, "a CR without LF"),
    "bare LF": (PROOF + b"X-A: a\nFrom: ann@home.org\n\nFrom: eve@home.org\r\n" + REST, "an LF without CR"),
    "LF before CRLF": (PROOF + b"X-A: a\n\r\nFrom: ann@home.org\r\n" + REST, "an LF without CR|exactly one plain address"),
    "CR before CRLF": (PROOF + b"X-A: a\r\r\nFrom: ann@home.org\r\n" + REST, "a CR without LF"),
    "CR in a file of LF": (b"From: ann@home.org\rX: y\nSubject: x\n\nx", "a CR without LF"),
    "space before the colon": (PROOF + b"From : eve@home.org\r\nFrom: ann@home.org\r\n" + REST, "a line that is no field"),
    "a line without a colon": (b"From: ann@home.org\r\nhello\r\n" + REST, "a line that is no field"),
    "a first line that goes on": (b" x\r\nFrom: ann@home.org\r\n" + REST, "a line that is no field"),
    "an mbox line": (b"From eve@home.org Mon\r\nFrom: ann@home.org\r\n" + REST, "a line that is no field"),
    "a zero byte": (b"From: ann@home.org\0\r\n" + REST, "a zero byte"),
    "two From": (b"From: ann@home.org\r\nfrom: eve@home.org\r\n" + REST, "two fields from"),
    "two Sender": (b"From: ann@home.org\r\nSender: a@b.c\r\nSender: d@e.f\r\n" + REST, "two fields Sender"),
    "two types": (b"From: ann@home.org\r\nContent-Type: text/plain\r\nContent-Type: text/html\r\n" + REST, "two fields"),
    "a name that is no ASCII": ("From: ann@home.org\r\nFröm: eve@home.org\r\n".encode() + REST, "a line that is no field"),
    "no From": (PROOF + REST, "exactly one plain address"),
}


@pytest.mark.covers("E-289")
@pytest.mark.parametrize("name", DEFECTS)
def test_a_header_that_others_read_otherwise_is_refused_before_it_is_judged(name: str) -> None:
    data, words = DEFECTS[name]
    with pytest.raises(BadInput, match=words):
        reading.read_head(data, own_address=OWL, trusted_server=MX)
    assert "home.org" in reading.name_sender(data) or name == "no From"
    assert extract.read("a.eml", data, "mail").text is not None  # a file is read as far as it can be


def test_a_refused_mail_names_whom_it_says_to_be_from() -> None:
    assert reading.name_sender(DEFECTS["two From"][0]) == "ann@home.org and eve@home.org"
    assert reading.name_sender(b"From: =?utf-8?q?J=C3=B6?= <a@b.c>, <d@e.f>\r\n\r\nx") == "Jö <a@b.c>, <d@e.f>"
    assert reading.name_sender(b"\r\nx") == "somebody" and len(reading.name_sender(b"From: " + b"x" * 9000)) == 200


WORD = b"=?utf-8?q?a?= "
BOMBS = {
    "subject": b"From: e@evil.org\r\nSubject: " + WORD * 48_000 + b"\r\n\r\nx",
    "subject in lines": b"From: e@evil.org\r\nSubject: " + (WORD + b"\r\n ") * 15_000 + b"\r\n\r\nx",
    "fields": b"From: e@evil.org\r\n" + b"X: y\r\n" * 1_000_000 + b"\r\nx",
    "fields within the size": b"From: e@evil.org\r\n" + b"X:\r\n" * 60_000 + b"\r\nx",
    "parts": b"From: e@evil.org\r\nContent-Type: multipart/mixed; boundary=a\r\n\r\n" + b"--a\r\n\r\nx\r\n" * 100_000,
    "boundaries in a line": b"From: e@evil.org\r\nContent-Type: multipart/mixed; boundary=a\r\n\r\n" + b"--a" * 1_000_000,
    "levels": b"From: e@evil.org\r\n"
    + b"".join(b"Content-Type: multipart/mixed; boundary=%d\r\n\r\n--%d\r\n" % (n, n) for n in range(5000)),
    "name": b'From: e@evil.org\r\nContent-Type: application/x; name="' + WORD * 40_000 + b'"\r\n\r\nx',
    "parameters": b"From: e@evil.org\r\nContent-Type: text/plain" + b"; a*0=b" * 30_000 + b"\r\n\r\nx",
    "quotes": b"From: e@evil.org\r\nContent-Type: text/plain; a=" + b'"' * 200_000 + b"\r\n\r\nx",
    "comments": b"From: " + b"(" * 200_000 + b"\r\n\r\nx",
    "angles": b"From: " + b"<a@b> " * 40_000 + b"\r\n\r\nx",
    "results": b"From: e@evil.org\r\n" + b"Authentication-Results: " + b"(" * 200_000 + b"\r\n\r\nx",
    "references": b"From: e@evil.org\r\nReferences: " + b"<" * 200_000 + b"\r\n\r\nx",
    "date": b"From: e@evil.org\r\nDate: " + b"1 " * 100_000 + b"\r\n\r\nx",
    "enriched": b"From: e@evil.org\r\nContent-Type: text/enriched\r\n\r\n" + b"<param>" * 700_000,
    "line breaks": b"From: e@evil.org\r\n\r\n" + b"\r\n" * 2_000_000,
    "quotations": b"From: e@evil.org\r\n\r\n" + b"On x wrote\n" * 400_000,
    "jis": b"From: e@evil.org\r\nContent-Type: text/plain; charset=iso-2022-jp\r\n\r\n" + b"\x1b$B\x1b(B" * 600_000,
    "soft breaks": b"From: e@evil.org\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" + b"=\r\n" * 2_000_000,
    "uuencode": b"From: e@evil.org\r\nContent-Transfer-Encoding: uuencode\r\n\r\n" + b"!\n" * 1_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_mail_costs_no_more_than_its_bytes(name: str) -> None:
    """CPU time and not the clock's, so that a busy machine is no failure; before, these took up to minutes."""
    for read in (channel, lambda data: extract.read("a.eml", data, "mail")):
        began_s = time.process_time()
        try:
            read(BOMBS[name])
        except BadInput:
            pass
        assert time.process_time() - began_s < 2.5, name


def test_a_stranger_costs_the_header_alone() -> None:
    data = b"From: e@evil.org\r\nContent-Type: multipart/mixed; boundary=a\r\n\r\n" + b"--a\r\n\r\nx\r\n" * 2_000_000
    began_s = time.process_time()
    assert reading.read_head(data, own_address=OWL, trusted_server=MX).sender == "e@evil.org"
    assert time.process_time() - began_s < 0.1


def test_any_bytes_are_characters_in_every_charset() -> None:
    everything = bytes(range(256)) * 3
    for name in (*charsets.CODECS, "", "x", "idna", "unicode_escape", "zip", "\0", "a" * 5000):
        assert isinstance(charsets.decode(everything, name), str)
    assert head.parse(everything).defect and not body.read(everything, page).files
