"""What is sent by mail: an answer in its thread, or a new mail, as plain text with the same in HTML, and a file if there is one.

The id of a mail follows from the notification's key, so that a repeat has the id of what it repeats and receiving servers
may drop it. It also names the thread, so that an answer to it continues that.
"""

import hashlib
import mimetypes
import re
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr

from appliance import __version__
from appliance.channels.mail.reading import MESSAGE_ID
from appliance.channels.markdown_html import render
from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.records import Outbound
from appliance.text.mail.head import ADDRESS

NAME = "Owlbox"
REPLY = re.compile(r"\s*re\s*:", re.IGNORECASE)
MAX_SUBJECT, MAX_REFERENCES = 78, 20
LONG_LINES = SMTP.clone(max_line_length=900)  # else long ids in References are folded into encoded words, which nobody reads
FRAME = '<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>{}</body></html>'


def find_recipient(message: Outbound) -> str:
    """The address that a notification goes to; BadInput when nothing says it."""
    mail = message.metadata.get("mail")
    named = mail.get("address") if isinstance(mail, dict) else ""
    channel, _, sender = message.session.partition(":")
    address = str(named or (sender if channel == "email" else ""))
    if not ADDRESS.fullmatch(address):
        raise BadInput(f"no address to send a mail to: {address!r}", hint="whoever has written by mail can be answered")
    return address


def build(message: Outbound, own_address: str, attached: tuple[str, bytes] | None = None) -> EmailMessage:
    """The mail that tells a notification; `attached` is the name and the bytes of its file."""
    mail = message.metadata.get("mail")
    answered = mail if isinstance(mail, dict) and "seq" in message.metadata else {}
    made = EmailMessage(policy=LONG_LINES)
    made["From"] = formataddr((NAME, own_address))
    made["To"] = find_recipient(message)
    made["Subject"] = _subject(message.text, answered)
    made["Date"] = format_datetime(datetime.fromtimestamp(now_ms() / 1000, UTC))
    made["Message-ID"] = message_id(message, own_address)
    replied = str(answered.get("message_id", ""))
    if MESSAGE_ID.fullmatch(replied):
        chain = [str(one) for one in answered.get("references", ()) if MESSAGE_ID.fullmatch(str(one)) and one != replied]
        made["In-Reply-To"] = replied
        made["References"] = " ".join([*chain[-MAX_REFERENCES:], replied])
    made["Auto-Submitted"] = "auto-replied" if answered else "auto-generated"
    made["X-Auto-Response-Suppress"] = "All"
    made["X-Loop"] = own_address
    made["User-Agent"] = f"{NAME}/{__version__}"
    made.set_content(message.text, cte="quoted-printable")
    made.add_alternative(FRAME.format(render(message.text)), subtype="html", cte="quoted-printable")
    if attached is not None:
        name, data = attached
        main, _, sub = (mimetypes.guess_type(name)[0] or "application/octet-stream").partition("/")
        made.add_attachment(data, maintype=main, subtype=sub, filename=name)
    return made


def message_id(message: Outbound, own_address: str) -> str:
    """The id of the mail that tells a notification, always the same."""
    digest = hashlib.sha256(message.key.encode("utf-8", "replace")).hexdigest()[:16]
    return f"<owlbox.{digest}.{message.run or '0'}@{own_address.rpartition('@')[2] or 'localhost'}>"


def _subject(text: str, answered: dict[str, object]) -> str:
    """The subject of what is answered behind one `Re:`, else how the text begins."""
    if answered:
        subject = " ".join(str(answered.get("subject", "")).split())
        return subject if REPLY.match(subject) else f"Re: {subject}".strip()
    first = " ".join(next((line for line in text.splitlines() if line.strip()), "").split()).lstrip("#*> ")
    return first if len(first) <= MAX_SUBJECT else f"{first[: MAX_SUBJECT - 1]}…"
