"""The header of a mail, or of a part of one: its fields, its one sender, encoded words and parameters.

A header ends at the first empty line, and a line ends as all lines of the header do: CRLF in what a server sends, LF in a file.
What mail servers may read in another way has a defect: a CR or LF alone, a zero byte, a line that is no field, a field that is
there twice. `parse` with `is_strict` refuses such a header whole, before anybody is judged by it; else it reads what it can.
Everything is read in one pass and within bounds, so that a stranger's mail costs no more than its bytes.
"""

import re
from binascii import Error as BinasciiError
from binascii import a2b_base64, a2b_qp
from collections.abc import Iterable, Iterator
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from appliance.errors import BadInput
from appliance.text import charsets

MAX_HEAD_BYTES, MAX_FIELDS, MAX_VALUE = 262_144, 1000, 8192
# Fields of which there is one at most: by the second one somebody else would be taken for the sender, or a part read otherwise.
SINGLE = ("from", "sender", "subject", "date", "message-id", "content-type", "content-transfer-encoding")
FIELD = re.compile(rb"([!-9;-~]{1,100}):(.*)", re.DOTALL)
ALONE = re.compile(rb"[\r\n\0]")
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,10}")
WORD = re.compile(r"=\?([^?\s*]{1,40})(?:\*[^?\s]{0,40})?\?([bBqQ])\?([^?]*)\?=")
EXTENDED = re.compile(r"(.{1,100}?)(?:\*(\d{1,3}))?(\*)?", re.DOTALL)
MAX_PARAMETERS = 100
NO_BASE64 = bytes(byte for byte in range(256) if not (chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "+/")))


class Head(Struct, frozen=True):
    """Fields in their order: names in small letters, values on one line and not decoded. `defect` is what is wrong, else ""."""

    fields: tuple[tuple[str, str], ...]
    defect: str = ""

    def get(self, name: str) -> str:
        """The first field of this name, "" for none."""
        return next((value for field, value in self.fields if field == name), "")

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return any(field == name for field, _ in self.fields)

    def all(self, name: str) -> list[str]:
        """Every field of this name, topmost first."""
        return [value for field, value in self.fields if field == name]

    def text(self, name: str) -> str:
        """The first field of this name with its encoded words read."""
        return decode_words(self.get(name))


def find_end(data: bytes, begin: int = 0, end: int | None = None) -> tuple[int, int]:
    """Where a header ends that begins there, and where the text begins behind its empty line."""
    end = len(data) if end is None else end
    for empty in (b"\r\n", b"\n"):
        if data.startswith(empty, begin, end):
            return begin, begin + len(empty)
    found = [(at, at + len(mark)) for mark in (b"\r\n\r\n", b"\n\n") if (at := data.find(mark, begin, end)) >= 0]
    return min(found, default=(end, end))


def parse(data: bytes, *, is_strict: bool = False, most_bytes: int = MAX_HEAD_BYTES) -> Head:
    """The fields of a header without its empty line; BadInput for one with a defect if `is_strict`."""
    fields: list[tuple[str, str]] = []
    defect = f"its header has more than {most_bytes} bytes" if len(data) > most_bytes else ""
    data = data[:most_bytes]
    ending = b"\r\n" if b"\r\n" in data else b"\n"
    if (found := ALONE.search(data.replace(ending, b""))) and not defect:
        names = {b"\0": "a zero byte", b"\r": "a CR without LF", b"\n": "an LF without CR"}
        defect = f"its header has {names[found[0]]}"
    seen: set[str] = set()
    for line in _unfold(data, ending):
        matched = FIELD.match(line)
        if matched is None:
            defect = defect or f"its header has a line that is no field: {_as_text(line)[:60]}"
            continue
        name = matched[1].decode("ascii").casefold()
        if name in SINGLE and name in seen:
            defect = defect or f"its header has two fields {matched[1].decode('ascii')}"
        if len(fields) == MAX_FIELDS:
            defect = defect or f"its header has more than {MAX_FIELDS} fields"
            break
        seen.add(name)
        fields.append((name, _as_text(matched[2])))
    if defect and is_strict:
        raise BadInput(f"a mail with a defect: {defect}", hint="nothing of it is used")
    return Head(tuple(fields), defect)


def find_sender(head: Head) -> str:
    """The one bare address of the sender, in small letters; BadInput unless it can be read in one way only."""
    given = head.all("from")
    found = parse_address(given[0]) if len(given) == 1 and len(given[0]) <= MAX_VALUE else ""
    if not found:
        raise BadInput("a mail without exactly one plain address of a sender", hint="nothing of it is used")
    return found.casefold()


def parse_address(text: str) -> str:
    """The address of `Name <address>`, `address` or `address (Name)`; "" where there is another number of them or a doubt.

    Names may be quoted with escapes. An address in a comment or an unquoted name is a doubt, unless it is the same one.
    """
    outside: list[str] = []
    angle, aside, at = "", "", 0
    while at < len(text):
        char = text[at]
        if char == '"' and not angle:
            at = _end_of(text, at + 1, '"')
            if at < 0:
                return ""
            outside.append('""')
        elif char == "(":
            start, at = at, _end_of_comment(text, at + 1)
            if at < 0:
                return ""
            aside += text[start:at]
            outside.append(" ")
        elif char == "<":
            end = text.find(">", at)
            if end < 0 or angle:
                return ""
            angle, at = text[at + 1 : end].strip(), end + 1
            outside.append("\0")
        else:
            outside.append(char)
            at += 1
    name, _, behind = "".join(outside).partition("\0")
    address = (angle if angle or "\0" in outside else name).strip()
    if not ADDRESS.fullmatch(address) or behind.strip() or "@" in aside or "<" in aside:
        return ""
    said = name.strip() if angle else ""
    is_clear = not any(sign in said for sign in ",;:\\>") and said.count("@") == said.casefold().count(address.casefold())
    return address if is_clear else ""


def decode_words(text: str) -> str:
    """A text with its encoded words read and on one line; those of one charset in a row are read together."""
    made: list[str] = []
    run, charset, at = bytearray(), "", 0
    text = text[:MAX_VALUE]
    for word in WORD.finditer(text):
        between = text[at : word.start()]
        if charset and (between.strip() or charset != word[1].casefold()):
            made.append(charsets.decode(bytes(run), charset))
            run.clear()
        made.append(between if between.strip() or not charset else "")
        charset, at = word[1].casefold(), word.end()
        run += _decode_word(word[2], word[3])
    made.append(charsets.decode(bytes(run), charset) if charset else "")
    made.append(text[at:])
    return " ".join("".join(made).split())


def parse_parameters(value: str) -> tuple[str, dict[str, str]]:
    """The first word of a field such as Content-Type, in small letters, and its parameters, those of RFC 2231 put together."""
    pieces = list(_split_value(value[:MAX_VALUE]))
    found: dict[str, str] = {}
    parts: dict[str, list[tuple[int, bool, str]]] = {}
    for piece in pieces[1 : MAX_PARAMETERS + 1]:
        name, _, given = piece.partition("=")
        name = name.strip().casefold()
        matched = EXTENDED.fullmatch(name)
        if matched is not None and (matched[2] or matched[3]):
            parts.setdefault(matched[1], []).append((int(matched[2] or 0), bool(matched[3]), _unquote(given)))
        elif name and name not in found:
            found[name] = _unquote(given)
    for name, given_parts in parts.items():
        found[name] = _join_extended(sorted(given_parts))
    return (pieces[0].strip().casefold() if pieces else ""), found


def _unfold(data: bytes, ending: bytes) -> Iterator[bytes]:
    """Each field with its continuation lines."""
    lines: list[bytes] = []
    for line in data.split(ending):
        if lines and line[:1] in (b" ", b"\t"):
            lines.append(line)
            continue
        if lines:
            yield b"".join(lines)
        lines = [line] if line else []
    if lines:
        yield b"".join(lines)


def _as_text(value: bytes) -> str:
    """A raw value on one line: UTF-8, as mail may have today, else what the West writes."""
    return " ".join(charsets.decode(value).replace("\0", " ").split())


def _end_of(text: str, at: int, closing: str) -> int:
    """Behind the sign that closes, with a backslash before a sign that does not; -1 for none."""
    while at < len(text):
        if text[at] == closing:
            return at + 1
        at += 2 if text[at] == "\\" else 1
    return -1


def _end_of_comment(text: str, at: int) -> int:
    """Behind a comment, in which others may stand; -1 for one that does not end."""
    depth = 1
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in "()":
            depth += 1 if text[at] == "(" else -1
            if not depth:
                return at + 1
        at += 1
    return -1


def _decode_word(kind: str, data: str) -> bytes:
    raw = data.encode("utf-8", "replace")
    if kind in "qQ":
        return a2b_qp(raw, header=True)
    return decode_base64(raw)


def decode_base64(data: bytes) -> bytes:
    """The bytes behind base64, whatever stands between its signs and however it ends."""
    kept = data.translate(None, delete=NO_BASE64)
    kept = kept[: len(kept) - 1] if len(kept) % 4 == 1 else kept
    try:
        return a2b_base64(kept + b"=" * (-len(kept) % 4))
    except BinasciiError:
        return b""


def _split_value(value: str) -> Iterator[str]:
    """What semicolons part, those in quotes apart."""
    start = at = 0
    while at < len(value):
        if value[at] == '"':
            end = _end_of(value, at + 1, '"')
            at = end if end > 0 else len(value)
        elif value[at] == ";":
            yield value[start:at]
            start = at = at + 1
        else:
            at += 1
    yield value[start:]


def _unquote(value: str) -> str:
    value = value.strip()
    if value.startswith('"'):
        value = value[1:-1] if value.endswith('"') and len(value) > 1 else value[1:]
        return re.sub(r"\\(.)", r"\1", value)
    return value.partition(" (")[0]


def _join_extended(parts: Iterable[tuple[int, bool, str]]) -> str:
    charset, made = "", bytearray()
    for number, is_encoded, given in parts:
        if is_encoded and number == 0 and given.count("'") >= 2:
            charset, _, given = given.split("'", 2)
        made += unquote_to_bytes(given) if is_encoded else given.encode("utf-8", "replace")
    return charsets.decode(bytes(made), charset)
