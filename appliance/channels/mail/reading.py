"""A mail as bytes becomes a message: sender, words, quotation, attachments, ids, and whether it is one to be answered.

Everything in a mail is untrusted: a header that is there twice, an address that can be read in two ways, or parts nested
without end make it unreadable, which is an error and no crash. HTML is read by whoever is handed in, for it takes a parser that
can be slow. Opens no connection, stores nothing.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import mktime_tz, parsedate_tz

from msgspec import Struct

from appliance.channels.contract import MAX_ATTACHMENTS, Attached
from appliance.channels.mail.authentication import Authentication, read_results
from appliance.errors import BadInput
from appliance.sandbox.session_files import MAX_ATTACHMENT_BYTES

MAX_BYTES = 25 * 1024 * 1024
MAX_DEPTH, MAX_PARTS = 20, 200
MAX_READ, MAX_TEXT, MAX_QUOTED = 400_000, 60_000, 8000
MAX_HOPS = 50
NO_TEXT = "(no text)"
OWN_ID = re.compile(r"<owlbox\.[0-9a-f]{16}\.([0-9a-zA-Z-]{1,64})@[^<>\s]{1,255}>")  # of mails that we wrote
MESSAGE_ID = re.compile(r"<[^<>\s]{1,400}>")
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,10}")
ROBOT = re.compile(r"(?:mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?|listserv|majordomo)(?:[+.-].*)?", re.IGNORECASE)
LISTS = ("List-Id", "List-Unsubscribe", "List-Post", "List-Help", "Mailing-List", "X-Mailing-List", "X-BeenThere")
ROBOTS = ("X-Autoreply", "X-Autorespond", "X-Autoresponder", "Auto-Reply")
SENDER = re.compile(rf'(?:"[^"\\]*"|[^"<>,;:()\\]*) ?<({ADDRESS.pattern})>|({ADDRESS.pattern})')
ON = ("On ", "Am ", "Le ", "El ", "Il ", "Op ", "Em ")  # how a line begins that introduces what is repeated, and what it says
WROTE = ("wrote", "schrieb", "écrit", "escribió", "scritto", "schreef", "escreveu")
FORWARDED = re.compile(
    r"\s*-{2,}\s*(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Weitergeleitete Nachricht)\b.*", re.I
)
MOBILE = re.compile(r"(?:Sent from my|Von meinem|Gesendet von meinem?|Get Outlook for)\b.{0,80}", re.IGNORECASE)
Html = Callable[[bytes, str], str]


class Mail(Struct, frozen=True):
    """A mail. `words` are its sender's own, `quoted` what it repeats of others; `why_not` says why it is never answered.

    `signature` is pgp, smime or none; whether it is valid is not known.
    """

    sender: str
    subject: str
    words: str
    quoted: str
    message_id: str
    in_reply_to: tuple[str, ...]
    references: tuple[str, ...]
    at_ms: int
    attachments: tuple[Attached, ...]
    authentication: Authentication
    signature: str
    why_not: str


def read(data: bytes, *, own_address: str, trusted_server: str, html: Html) -> Mail:
    """The mail in these bytes; BadInput for one that cannot be understood."""
    if len(data) > MAX_BYTES:
        raise BadInput(f"a mail of {len(data)} bytes, the limit is {MAX_BYTES}", hint="nothing of it is read")
    try:
        return _read(message_from_bytes(data), data, own_address, trusted_server, html)
    except (MessageError, ValueError, LookupError, TypeError, AttributeError, RecursionError, AssertionError) as error:
        raise BadInput(f"a mail that cannot be read: {type(error).__name__}", hint="nothing of it is used") from None


def _read(message: "Message[str, str]", data: bytes, own_address: str, trusted_server: str, html: Html) -> Mail:
    sender = _find_sender(message)
    content = _Content(html)
    content.gather(message, 0)
    words, quoted = split_quotation(content.text[:MAX_READ] or NO_TEXT)
    message_ids = MESSAGE_ID.findall(_header(message, "Message-ID"))
    date = parsedate_tz(_header(message, "Date"))
    return Mail(
        sender,
        _decoded(_header(message, "Subject"))[:300],
        words[:MAX_TEXT],
        quoted[:MAX_QUOTED],
        message_ids[0] if message_ids else f"<{hashlib.sha256(data).hexdigest()}@no-id>",
        tuple(MESSAGE_ID.findall(_header(message, "In-Reply-To"))[:5]),
        tuple(MESSAGE_ID.findall(_header(message, "References"))[-20:]),
        _milliseconds(date),
        tuple(content.attachments),
        read_results([str(one) for one in message.get_all("Authentication-Results") or ()], trusted_server, sender),
        content.signature,
        find_robot(message, sender, own_address),
    )


def find_robot(message: "Message[str, str]", sender: str, own_address: str) -> str:
    """Why a mail is never answered: it was sent by a program, a list or ourselves; "" for one of a person."""
    automatic = _header(message, "Auto-Submitted").partition(";")[0].strip().casefold()
    if automatic not in ("", "no"):
        return f"an automatic mail (Auto-Submitted: {automatic[:40]})"
    if _header(message, "Precedence").strip().casefold() in ("bulk", "list", "junk", "auto_reply"):
        return "a mail to many (Precedence)"
    if found := next((name for name in LISTS if message.get(name) is not None), ""):
        return f"a mail of a list ({found})"
    if found := next((name for name in ROBOTS if message.get(name) is not None), ""):
        return f"an automatic mail ({found})"
    suppressed = _header(message, "X-Auto-Response-Suppress").casefold()
    if "all" in suppressed or "autoreply" in suppressed:
        return "a mail that wants no automatic answer (X-Auto-Response-Suppress)"
    if message.get("Return-Path") is not None and _header(message, "Return-Path").replace(" ", "") == "<>":
        return "a bounce (empty Return-Path)"
    if message.get_content_type() in ("multipart/report", "message/delivery-status", "message/disposition-notification"):
        return f"a report ({message.get_content_type()})"
    if ROBOT.fullmatch(sender.partition("@")[0]):
        return "the sender is a program"
    if sender == own_address.casefold() or own_address.casefold() in _header(message, "X-Loop").casefold():
        return "our own mail (a loop)"
    return "it went through too many servers (a loop)" if len(message.get_all("Received") or ()) > MAX_HOPS else ""


def split_quotation(text: str) -> tuple[str, str]:
    """The sender's own words without a signature, and what a mail repeats of earlier ones."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    own: list[str] = []
    quoted: list[str] = []
    for i, line in enumerate(lines):
        if line in ("-- ", "--"):
            break
        if FORWARDED.fullmatch(line[:500]) or (line.startswith("_____") and lines[i + 1 : i + 2] and ":" in lines[i + 1][:20]):
            quoted += lines[i:]
            break
        if _introduces(line) or (i + 1 < len(lines) and not line.endswith(":") and _introduces(f"{line} {lines[i + 1]}")):
            if not any(rest.strip() and not rest.startswith(">") for rest in lines[i + 2 :]):
                quoted += lines[i:]
                break
            continue  # the answer stands below or between
        (quoted if line.startswith(">") else own).append(line)
    while own and (not own[-1].strip() or MOBILE.fullmatch(own[-1].strip()[:200])):
        own.pop()
    return "\n".join(own).strip(), "\n".join(quoted).strip()


def _introduces(line: str) -> bool:
    """Whether a line says that what follows was written by somebody."""
    line = line.strip()
    return len(line) < 400 and line.endswith(":") and line.startswith(ON) and any(word in line for word in WROTE)


class _Content:
    """What the parts of a mail hold."""

    def __init__(self, html: Html) -> None:
        self.text = ""
        self.signature = "none"
        self.attachments: list[Attached] = []
        self._html = html
        self._parts = 0

    def gather(self, part: "Message[str, str]", depth: int) -> None:
        """Take a part and those in it: the first text is the mail's, the others and all files are attachments."""
        self._parts += 1
        if depth > MAX_DEPTH or self._parts > MAX_PARTS:
            raise BadInput(f"a mail with more than {MAX_PARTS} parts or {MAX_DEPTH} levels", hint="nothing of it is used")
        kind, inner = part.get_content_type(), list(_parts_of(part))
        if kind == "multipart/signed":
            self.signature = "smime" if "pkcs7" in str(part.get_param("protocol") or "") else "pgp"
            inner = inner[:1]
        if kind == "multipart/alternative":
            plain = [one for one in inner if one.get_content_type() == "text/plain"]
            inner = plain[:1] or inner[::-1]  # the richest one stands last
            for one in inner[: 1 if plain else None]:
                self.gather(one, depth + 1)
                if self.text:
                    return
            return
        if kind in ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime") and not self.text:
            self.text = "(an encrypted mail, which cannot be read here)"
            return
        if kind == "message/rfc822" or not part.is_multipart():
            self._take_leaf(part, kind)
            return
        for one in inner:
            self.gather(one, depth + 1)

    def _take_leaf(self, part: "Message[str, str]", kind: str) -> None:
        name = _decoded(part.get_filename() or "")
        is_file = bool(name) or part.get_content_disposition() == "attachment" or not kind.startswith("text/")
        if not is_file and not self.text and kind in ("text/plain", "text/html"):
            raw = part.get_payload(decode=True)
            body = raw if isinstance(raw, bytes) else b""
            charset = str(part.get_content_charset() or "")
            self.text = (self._html(body, charset) if kind == "text/html" else _characters(body, charset)).strip()
            return
        if not is_file or len(self.attachments) > MAX_ATTACHMENTS:  # one more than is kept: the gateway says so
            return
        if kind == "message/rfc822":
            held = part.get_payload()
            data = held[0].as_bytes() if isinstance(held, list) and held and isinstance(held[0], Message) else b""
        else:
            raw = part.get_payload(decode=True)
            data = raw if isinstance(raw, bytes) else b""
        problem = f"{len(data)} bytes are too many" if len(data) > MAX_ATTACHMENT_BYTES else ""
        self.attachments.append(Attached(name or "unnamed", kind, b"" if problem else data, problem))


def _parts_of(part: "Message[str, str]") -> Iterator["Message[str, str]"]:
    held = part.get_payload()
    if isinstance(held, list) and part.get_content_type() != "message/rfc822":
        yield from (one for one in held if isinstance(one, Message))


def _find_sender(message: "Message[str, str]") -> str:
    """The one bare address of the sender, in small letters."""
    given = [" ".join(str(one).split()) for one in message.get_all("From") or []]
    found = SENDER.fullmatch(given[0]) if len(given) == 1 and len(given[0]) < 1000 else None
    if found is None:
        raise BadInput("a mail without exactly one plain address of a sender", hint="nothing of it is used")
    return str(found[1] or found[2]).casefold()


def _header(message: "Message[str, str]", name: str) -> str:
    """The first header of this name on one line, "" for none."""
    return " ".join(str(message.get(name) or "").split())


def _decoded(text: str) -> str:
    """Encoded words as characters; as it stands when they cannot be read."""
    try:
        return " ".join(str(make_header(decode_header(text))).split())
    except (ValueError, LookupError, MessageError):
        return " ".join(text.split())


def _characters(data: bytes, charset: str) -> str:
    """A text by its charset; Latin-1, which takes every byte, where that is unknown or wrong."""
    try:
        return data.decode(charset or "utf-8")
    except (LookupError, ValueError):
        return data.decode("latin-1")


def _milliseconds(date: tuple[int, int, int, int, int, int, int, int, int, int | None] | None) -> int:
    """When a mail says that it was sent; 0 for never."""
    try:
        return max(0, int(mktime_tz(date) * 1000)) if date else 0
    except (OverflowError, ValueError):
        return 0
