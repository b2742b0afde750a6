"""A mail of the channel: sender, words, quotation, attachments, ids, and whether it is one to be answered.

Everything in a mail is untrusted. Its header is read first and alone (`text.mail.head`): one with a defect, or with a sender that
can be read in two ways, is refused before anything is judged by it, and whoever is not admitted costs no more than that. Then its
parts are read (`text.mail.body`). HTML is read by whoever is handed in, for it takes a parser that can be slow. Opens no
connection, stores nothing.

Who sent a mail is what a receiving server found out by SPF, DKIM and DMARC: only the topmost `Authentication-Results` of the one
server that the configuration names is read, because a sender can write such headers too, below. That server has to remove those
that come in under its own name (RFC 8601, section 5). A header that could be read in two ways proves nothing.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from email.utils import mktime_tz, parsedate_tz

from msgspec import Struct

from appliance.channels.contract import MAX_ATTACHMENTS, Attached
from appliance.errors import BadInput
from appliance.sandbox.session_files import MAX_ATTACHMENT_BYTES
from appliance.text import charsets
from appliance.text.mail import body
from appliance.text.mail import head as mail_head
from appliance.text.mail.body import MailPart
from appliance.text.mail.head import Head

MAX_BYTES = 25 * 1024 * 1024
MAX_READ, MAX_TEXT, MAX_QUOTED = 400_000, 60_000, 8000
MAX_HOPS = 50
NO_TEXT = "(no text)"
OWN_ID = re.compile(r"<owlbox\.[0-9a-f]{16}\.([0-9a-zA-Z-]{1,64})@[^<>\s]{1,255}>")  # of mails that we wrote
MESSAGE_ID = re.compile(r"<[^<>\s]{1,400}>")
ROBOT = re.compile(r"(?:mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?|listserv|majordomo)(?:[+.-].*)?", re.IGNORECASE)
LISTS = ("List-Id", "List-Unsubscribe", "List-Post", "List-Help", "Mailing-List", "X-Mailing-List", "X-BeenThere")
ROBOTS = ("X-Autoreply", "X-Autorespond", "X-Autoresponder", "Auto-Reply")
ON = ("On ", "Am ", "Le ", "El ", "Il ", "Op ", "Em ")  # how a line begins that introduces what is repeated, and what it says
WROTE = ("wrote", "schrieb", "écrit", "escribió", "scritto", "schreef", "escreveu")
FORWARDED = re.compile(
    r"\s*-{2,}\s*(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Weitergeleitete Nachricht)\b.*", re.I
)
NAMED = re.compile(rb"(?:^|[\r\n])from[ \t]*:[ \t]*([^\r\n]{1,1000})", re.IGNORECASE)
MOBILE = re.compile(r"(?:Sent from my|Von meinem|Gesendet von meinem?|Get Outlook for)\b.{0,80}", re.IGNORECASE)
MAX_CHARS = 8000
HARMLESS = re.compile(r'="([A-Za-z0-9+/=@._-]*)"')  # a quoted value that needs no quotes, as OpenDKIM writes header.b
RESULT = re.compile(r"\s*(spf|dkim|dmarc)\s*=\s*([a-z]+)\b", re.IGNORECASE)
PROPERTY = re.compile(r"\b(smtp\.mailfrom|header\.d|header\.from)\s*=\s*([^\s;]+)", re.IGNORECASE)


class Authentication(Struct, frozen=True):
    """The results as they were found, "" for one that there is not; `is_proven`: one of them proves the sender's domain."""

    spf: str = ""
    dkim: str = ""
    dmarc: str = ""
    is_proven: bool = False


def read_results(headers: Sequence[str], trusted_server: str, address: str) -> Authentication:
    """What the trusted server found, of the `Authentication-Results` of a mail, topmost first, whose sender is `address`."""
    wanted = trusted_server.strip().casefold()
    for header in headers if wanted else ():
        text = _without_comments(" ".join(header.split())[:MAX_CHARS])
        if text is None:
            if header.strip().casefold().startswith(wanted):
                return Authentication()
            continue
        server, _, rest = text.partition(";")
        if server.strip().partition(" ")[0].casefold() == wanted:
            return _judge(rest.split(";"), address.rpartition("@")[2].casefold())
    return Authentication()


def _without_comments(text: str) -> str | None:
    """The header without comments; None for one with quotes or parentheses that a sender may have put there."""
    text = HARMLESS.sub(r"=\1", text)
    if '"' in text or "\\" in text:
        return None
    kept: list[str] = []
    depth = 0
    for char in text:
        if char == ")":
            depth -= 1
            if depth < 0:
                return None
        elif char == "(":
            depth += 1
        elif not depth:
            kept.append(char)
    return "".join(kept) if not depth else None


def _judge(results: Sequence[str], domain: str) -> Authentication:
    found: dict[str, list[tuple[str, dict[str, str]]]] = {"spf": [], "dkim": [], "dmarc": []}
    for one in results:
        if head := RESULT.match(one):
            properties = {name.lower(): value.casefold() for name, value in PROPERTY.findall(one)}
            found[head[1].lower()].append((head[2].lower(), properties))
    spf, dkim, dmarc = (found[name] for name in ("spf", "dkim", "dmarc"))
    is_clear = len(spf) < 2 and len(dmarc) < 2
    is_proven = is_clear and not (dmarc and dmarc[0][0] not in ("pass", "none"))
    is_proven = is_proven and (
        any(result == "pass" and _is_aligned(domain, more.get("header.d", "")) for result, more in dkim)
        or any(result == "pass" and more.get("header.from", "") == domain for result, more in dmarc)
        or any(result == "pass" and _is_aligned(domain, more.get("smtp.mailfrom", "").rpartition("@")[2]) for result, more in spf)
    )
    spoken = {name: " ".join(result for result, _ in results) for name, results in found.items()}
    return Authentication(spoken["spf"], spoken["dkim"], spoken["dmarc"], bool(is_proven and domain))


def _is_aligned(domain: str, proven: str) -> bool:
    """Whether a proven domain speaks for the sender's: it is the same, or one above it that is no top-level domain."""
    return "." in proven and (domain == proven or domain.endswith(f".{proven}"))


class MailHead(Struct, frozen=True):
    """The parsed header of a mail. `why_not` is the reason why it is never answered."""

    sender: str
    subject: str
    message_id: str
    in_reply_to: tuple[str, ...]
    references: tuple[str, ...]
    at_ms: int
    authentication: Authentication
    why_not: str
    fields: Head


class Mail(Struct, frozen=True):
    """A mail. `words` are the sender's own text, `quoted` what it quotes of others.

    `signature` is pgp, smime or none; whether it is valid is not known.
    """

    head: MailHead
    words: str
    quoted: str
    attachments: tuple[Attached, ...]
    signature: str


def read_head(data: bytes, *, own_address: str, trusted_server: str) -> MailHead:
    """What the header of a mail says; BadInput for one that can be read in two ways."""
    if len(data) > MAX_BYTES:
        raise BadInput(f"a mail of {len(data)} bytes, the limit is {MAX_BYTES}", hint="nothing of it is read")
    fields = mail_head.parse(data[: mail_head.find_end(data)[0]], is_strict=True)
    sender = mail_head.find_sender(fields)
    message_ids = MESSAGE_ID.findall(fields.get("message-id"))
    return MailHead(
        sender,
        fields.text("subject")[:300],
        message_ids[0] if message_ids else f"<{hashlib.sha256(data).hexdigest()}@no-id>",
        tuple(MESSAGE_ID.findall(fields.get("in-reply-to"))[:5]),
        tuple(MESSAGE_ID.findall(fields.get("references"))[-20:]),
        _milliseconds(fields.get("date")),
        read_results(fields.all("authentication-results"), trusted_server, sender),
        find_robot(fields, sender, own_address),
        fields,
    )


def read_content(data: bytes, head: MailHead, html: Callable[[bytes, str], str]) -> Mail:
    """The mail whose header was read from these bytes; BadInput for one with too many parts."""
    found = body.read(data, html, head=head.fields, most_files=MAX_ATTACHMENTS + 1)  # one more than is kept: the gateway says so
    words, quoted = split_quotation(found.text[:MAX_READ] or NO_TEXT)
    return Mail(head, words[:MAX_TEXT], quoted[:MAX_QUOTED], tuple(_attach(file) for file in found.files), found.signature)


def name_sender(data: bytes) -> str:
    """Whom a mail that cannot be read says to be from, however it is read, for the log; "somebody" where it does not say so."""
    end = data.find(b"\r\n\r\n", 0, mail_head.MAX_HEAD_BYTES)
    said = NAMED.findall(data[: end if end >= 0 else mail_head.find_end(data[: mail_head.MAX_HEAD_BYTES])[0]])
    return " and ".join(mail_head.decode_words(charsets.decode(one)) for one in said[:3])[:200] or "somebody"


def _attach(file: MailPart) -> Attached:
    size = file.size_bytes
    problem = f"{size} bytes are too many" if size > MAX_ATTACHMENT_BYTES else ""
    return Attached(file.file_name or "unnamed", file.kind, b"" if problem else file.content(), problem)


def find_robot(fields: Head, sender: str, own_address: str) -> str:
    """Why a mail is never answered: it was sent by a program, a list or ourselves; "" for one of a person."""
    automatic = fields.get("auto-submitted").partition(";")[0].strip().casefold()
    if automatic not in ("", "no"):
        return f"an automatic mail (Auto-Submitted: {automatic[:40]})"
    if fields.get("precedence").casefold() in ("bulk", "list", "junk", "auto_reply"):
        return "a mail to many (Precedence)"
    if found := next((name for name in LISTS if fields.has(name.casefold())), ""):
        return f"a mail of a list ({found})"
    if found := next((name for name in ROBOTS if fields.has(name.casefold())), ""):
        return f"an automatic mail ({found})"
    suppressed = fields.get("x-auto-response-suppress").casefold()
    if "all" in suppressed or "autoreply" in suppressed:
        return "a mail that wants no automatic answer (X-Auto-Response-Suppress)"
    if fields.has("return-path") and fields.get("return-path").replace(" ", "") == "<>":
        return "a bounce (empty Return-Path)"
    kind, _ = mail_head.parse_parameters(fields.get("content-type"))
    if kind in ("multipart/report", "message/delivery-status", "message/disposition-notification"):
        return f"a report ({kind})"
    if ROBOT.fullmatch(sender.partition("@")[0]):
        return "the sender is a program"
    if sender == own_address.casefold() or own_address.casefold() in fields.get("x-loop").casefold():
        return "our own mail (a loop)"
    return "it went through too many servers (a loop)" if len(fields.all("received")) > MAX_HOPS else ""


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


def _milliseconds(text: str) -> int:
    """When a mail says that it was sent; 0 for never."""
    try:
        date = parsedate_tz(text[:200])
        return max(0, int(mktime_tz(date) * 1000)) if date else 0
    except (OverflowError, ValueError, TypeError, LookupError):
        return 0
