"""What a mail says and what it brings along: its parts, walked in one pass, with its texts put together and its files named.

The one reader of the mail channel and of mail files in a folder. A folder reads a file so:

    found = body.read(data, html, most_parts=5000, most_files=200)   # `html` gives the words of HTML: bytes and charset to text
    found.head.text("subject"), found.text, [(file.name, file.mime, file.size_bytes) for file in found.files], found.left_out

Of alternatives the plain text is taken, and where that is empty the richest one that says something; files in the others are
files of the mail. Texts before and behind pictures belong together. Read as text: plain, HTML, Markdown and enriched; other kinds
are files. Bytes of a file are decoded when they are asked for. Nothing in here executes, fetches or stores anything.
"""

import re
from binascii import Error as BinasciiError
from binascii import a2b_qp, a2b_uu
from collections.abc import Callable, Iterator

from appliance.errors import BadInput
from appliance.text import charsets
from appliance.text.mail import head as mail_head
from appliance.text.mail.head import Head

MAX_DEPTH, MAX_PARTS, MAX_PART_HEAD = 20, 200, 32_768
MAX_TEXT_BYTES, MAX_PAGES = 1_000_000, 10  # of all texts together before they are decoded, and how many of them may be HTML
KIND = re.compile(r"[!-.0-~]{1,80}/[!-.0-~]{1,80}")
TEXTS = ("text/plain", "text/html", "text/markdown", "text/x-markdown", "text/enriched", "text/richtext")
SEALED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")
ENCRYPTED = "(an encrypted mail, which cannot be read here)"
MAIL = "message/rfc822"
ENRICHED = re.compile(r"<param>[^<]{0,500}</param>|</?[A-Za-z0-9-]{1,60}>|<<|\n+", re.IGNORECASE)
Html = Callable[[bytes, str], str]


class MailPart:
    """One part of a mail, or a mail itself: its head, and where in the mail its bytes are."""

    def __init__(self, data: bytes, begin: int, end: int, usual: str = "text/plain", head: Head | None = None) -> None:
        head_end, self._begin = mail_head.find_end(data, begin, end)
        self._data, self._end = data, end
        self.head = head or mail_head.parse(data[begin : min(head_end, begin + MAX_PART_HEAD)])
        kind, self.parameters = mail_head.parse_parameters(self.head.get("content-type"))
        self.kind = kind if KIND.fullmatch(kind) else usual
        disposition, given = mail_head.parse_parameters(self.head.get("content-disposition"))
        self.is_attached = disposition == "attachment"
        self.file_name = mail_head.decode_words(given.get("filename") or self.parameters.get("name", ""))
        self._encoding = self.head.get("content-transfer-encoding").strip().casefold()
        self._boundary = b"--" + self.parameters.get("boundary", "")[:200].rstrip().encode("utf-8", "replace")

    @property
    def is_multipart(self) -> bool:
        """Whether there are parts in it."""
        return self.kind.startswith("multipart/")

    @property
    def size_bytes(self) -> int:
        """The size as a file."""
        return len(self.content()) if self._encoding in ENCODINGS else self._end - self._begin

    def parts(self, most: int) -> Iterator["MailPart"]:
        """Those between its boundaries, one more than `most` at most; without the last boundary until its end."""
        usual = MAIL if self.kind == "multipart/digest" else "text/plain"
        data, mark, begin, at = self._data, self._boundary, -1, self._begin
        while most >= 0 and mark != b"--" and (found := data.find(mark, at, self._end)) >= 0:
            at = data.find(b"\n", found, self._end) + 1 or self._end
            rest = data[found + len(mark) : min(at, found + len(mark) + 80)].strip()
            if (found > self._begin and data[found - 1 : found] != b"\n") or rest not in (b"", b"--"):
                continue  # not at the beginning of a line, or a longer boundary that begins so
            if begin >= 0:
                most -= 1
                line_break = 2 if data[found - 2 : found] == b"\r\n" else 1  # it belongs to the boundary
                yield MailPart(data, begin, max(begin, found - line_break), usual)
            begin = at
            if rest:
                return
        if 0 <= begin < self._end and most >= 0:
            yield MailPart(data, begin, self._end, usual)

    def content(self) -> bytes:
        """The bytes of what it holds."""
        raw, decode = self._data[self._begin : self._end], ENCODINGS.get(self._encoding)
        return decode(raw) if decode else raw


class MailBody:
    """What the parts hold: `texts` in their order, `files`, which kind of `signature`, and how many files were `left_out`."""

    def __init__(self, html: Html, most_parts: int, most_files: int) -> None:
        self.head = Head(())
        self.texts: list[str] = []
        self.files: list[MailPart] = []
        self.signature = "none"
        self.left_out = 0
        self._html = html
        self._pages_left, self._bytes_left = MAX_PAGES, MAX_TEXT_BYTES
        self._parts_left, self._most_files = most_parts, most_files

    @property
    def text(self) -> str:
        """The words, "" for none."""
        return "\n\n".join(self.texts)

    def gather(self, part: MailPart, depth: int = 0, *, is_words: bool = True, is_chosen: bool = True) -> None:
        """Take a part and those in it: without `is_words` no text, without `is_chosen` no picture either that it shows."""
        self._parts_left -= 1
        if self._parts_left < 0 or depth > MAX_DEPTH:
            raise BadInput(f"a mail with too many parts, or more than {MAX_DEPTH} levels of them", hint="nothing of it is used")
        if part.kind in SEALED:
            if is_words and not self.texts:
                self.texts.append(ENCRYPTED)
            return
        inner = list(part.parts(self._parts_left)) if part.is_multipart else []
        if not inner:
            self._take_leaf(part, depth, is_words, is_chosen)
        elif part.kind == "multipart/alternative":
            self._take_alternatives(inner, depth, is_words, is_chosen)
        else:
            if part.kind == "multipart/signed":
                self.signature = "smime" if "pkcs7" in part.parameters.get("protocol", "") else "pgp"
                inner = inner[:1]
            before = len(self.texts)
            for one in inner:
                # What goes with a page is shown in it: only its first text has words.
                is_shown = part.kind == "multipart/related" and len(self.texts) > before
                self.gather(one, depth + 1, is_words=is_words and not is_shown, is_chosen=is_chosen)

    def _take_alternatives(self, inner: list[MailPart], depth: int, is_words: bool, is_chosen: bool) -> None:
        """The plain one first, then from the richest, which stands last, until one has words."""
        before = len(self.texts)
        plain = [one for one in inner if one.kind == "text/plain"]
        for one in (*plain, *(one for one in reversed(inner) if one.kind != "text/plain")):
            has_words = len(self.texts) > before
            if one.is_multipart or one.is_attached or not has_words:
                self.gather(one, depth + 1, is_words=is_words and not has_words, is_chosen=is_chosen and not has_words)

    def _take_leaf(self, part: MailPart, depth: int, is_words: bool, is_chosen: bool) -> None:
        is_text = (part.kind in TEXTS or part.is_multipart) and not part.is_attached and (not part.file_name or not depth)
        if is_text and is_words and (text := self._read_text(part)):
            self.texts.append(text)
        if is_text or (not is_chosen and part.head.has("content-id") and not part.is_attached):
            return
        if len(self.files) == self._most_files:
            self.left_out += 1
        else:
            self.files.append(part)

    def _read_text(self, part: MailPart) -> str:
        data, charset = part.content()[: self._bytes_left], part.parameters.get("charset", "")
        self._bytes_left -= len(data)
        if part.kind == "text/html":
            self._pages_left -= 1
            return self._html(data, charset).strip() if data and self._pages_left >= 0 else ""
        text = charsets.decode(data, charset).replace("\r\n", "\n").replace("\r", "\n")
        return (_read_enriched(text) if part.kind in ("text/enriched", "text/richtext") else text).strip()


def read(data: bytes, html: Html, *, head: Head | None = None, most_parts: int = MAX_PARTS, most_files: int = 1 << 20) -> MailBody:
    """What a mail holds; `head` where its header was parsed before. BadInput for one with too many parts."""
    found, whole = MailBody(html, most_parts, most_files), MailPart(data, 0, len(data), head=head)
    found.head = whole.head
    found.gather(whole)
    return found


def _read_enriched(text: str) -> str:
    """The words of enriched text (RFC 1896): marks in angle brackets, and line breaks that count one less than they are."""

    def replace(found: re.Match[str]) -> str:
        if found[0].startswith("\n"):
            return "\n" * (len(found[0]) - 1) or " "
        return "<" if found[0] == "<<" else ""

    return ENRICHED.sub(replace, text)


def _decode_uu(data: bytes) -> bytes:
    """What uuencode has made, between its first and last line."""
    made = bytearray()
    for line in data.split(b"\n"):
        if line.startswith(b"begin ") or not line.strip():
            continue
        if line.strip() == b"end":
            break
        try:
            made += a2b_uu(line.rstrip(b"\r"))
        except BinasciiError:
            continue
    return bytes(made)


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "base64": mail_head.decode_base64,
    "quoted-printable": a2b_qp,
    **dict.fromkeys(("x-uuencode", "uuencode", "x-uue", "uue"), _decode_uu),
}
