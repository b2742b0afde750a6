"""Mail: reads a mailbox by IMAP as mails come, answers by SMTP in the same thread.

A mail counts as received once it is stored, and is marked as seen after that: a kill in between brings it again, and its id
says that it is known. A sender's address proves nothing by itself: see `mail.reading`. Needs the extra `mail`.

The id of a mail that is sent follows from the notification's key, so that a repeat has the id of what it repeats and receiving
servers may drop it. It also names the thread, so that an answer to it continues that.
"""

import hashlib
import logging
import mimetypes
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from pathlib import Path

from appliance import __version__
from appliance.channels.contract import Connection, Received, Running
from appliance.channels.mail import reading, servers
from appliance.channels.mail.reading import MESSAGE_ID
from appliance.clock import now_ms
from appliance.errors import BadInput, Busy, OwlError
from appliance.ingest.extract_process import Clerk
from appliance.records import Outbound
from appliance.runtime.settings import Email
from appliance.sandbox.session_files import read_attachment
from appliance.text.mail.head import ADDRESS
from appliance.text.markdown_html import render

LOG = logging.getLogger(__name__)
SECRET = "secret:"
MAX_KEPT = 5000  # mails of which is remembered whose they are
MAX_HTML = 512 * 1024
NAME = "Owlbox"
REPLY = re.compile(r"\s*re\s*:", re.IGNORECASE)
MAX_SUBJECT, MAX_REFERENCES = 78, 20
LONG_LINES = SMTP.clone(max_line_length=900)  # else long ids in References are folded into encoded words, which nobody reads
FRAME = '<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>{}</body></html>'


class EmailChannel(Connection):
    """A mailbox."""

    is_live = False  # nobody wants a copy of every answer by mail
    folds_case = True

    def __init__(self, settings: Email, secret: Callable[[str], str], data_folder: Callable[[str], Path]) -> None:
        self._settings = settings
        self._secret = secret
        self._data_folder = data_folder
        self._address = (settings.from_address or settings.user).strip()
        self._clerk = Clerk(os.environ)
        self._reading = threading.Lock()  # one mail at a time
        self._senders: OrderedDict[int, str] = OrderedDict()  # of mails that were kept for later

    def receive(self, running: Running) -> None:
        """Read new mails until told to stop."""
        with servers.ImapMailbox(self._settings, self._password()).connected() as mailbox:
            is_polled = not mailbox.has_idle()
            running.connected()
            if is_polled:
                LOG.info("the mail server does not tell of new mails: asked every %g s", self._settings.poll_s)
            usual_s = self._settings.poll_s if is_polled else servers.IDLE_S
            while not running.stop.is_set():
                is_done = mailbox.take_unseen(reading.MAX_BYTES, _Look(self, running, self._senders), running.stop)
                if not running.stop.is_set():
                    mailbox.wait(running.stop, usual_s if is_done else min(usual_s, servers.LATER_S), is_polled=is_polled)

    def deliver(self, message: Outbound) -> None:
        """Send an answer or a notification as a mail."""

        if not message.text.strip() and not message.attachment:
            return
        recipient = find_recipient(message)
        folder = self._data_folder(message.files_of or message.session)
        attached = read_attachment(folder, message.attachment) if message.attachment else None
        try:
            mail = build_mail(message, self._address, attached)
        except ValueError as error:  # of a header that cannot be
            raise BadInput(f"a mail that cannot be written: {error}", hint="nothing was sent") from None
        servers.send(self._settings, self._password(), self._address, recipient, mail)

    def check(self) -> list[str]:
        """Log in at both servers."""
        keys = self._settings
        with servers.ImapMailbox(keys, self._password()).connected() as mailbox:
            way = "tells of new mails" if mailbox.has_idle() else f"is asked every {keys.poll_s:g} s"
            tried = [f"{keys.imap_host}:{keys.imap_port} takes the login and {way}"]
        with servers.smtp_session(keys, self._password()):
            return [*tried, f"{keys.smtp_host}:{keys.smtp_port} takes the login"]

    def warnings(self) -> list[str]:
        """Settings that let others read mail or forge a sender, as warnings."""
        found = []
        if not self._settings.tls:
            found.append("connections are not encrypted (channels.email.tls = false)")
        elif not self._settings.verify and not self._settings.pins:
            found.append("certificates are not checked (channels.email.verify = false)")
        if not self._settings.trusted_server:
            found.append("no sender can be proven: channels.email.trusted_server is empty")
        return found

    def close(self) -> None:
        """End the child that reads HTML."""
        self._clerk.kill()
        with self._reading:
            self._clerk.close()

    def _password(self) -> str:
        password = self._settings.password
        return self._secret(password.removeprefix(SECRET)) if password.startswith(SECRET) else password

    def take(self, running: Running, size: int, data: bytes | None, busy: Collection[str]) -> str:
        """Hand in one mail; its sender when it is to be kept for later, as every mail of those in `busy`, else ""."""
        if data is None:
            running.intake.refuse("somebody", f"a mail of {size} bytes is too large, the limit is {reading.MAX_BYTES}")
            return ""
        try:
            head = reading.read_head(data, own_address=self._address, trusted_server=self._settings.trusted_server)
            # Whoever is not admitted costs no more than the header of their mail.
            asks = Received(head.message_id, head.sender, "", head.at_ms, is_proven=head.authentication.is_proven)
            if why := head.why_not or running.intake.find_refusal(asks):
                running.intake.refuse(head.sender, why)
                return ""
            if head.sender in busy:
                return head.sender
            with self._reading:
                mail = reading.read_content(data, head, self._read_html)
        except BadInput as error:
            running.intake.refuse(reading.name_sender(data), error.message)
            return ""
        try:
            running.intake.take(received(mail))
        except Busy as error:
            LOG.info("mails of %s are kept for later: %s", head.sender[:200], error)
            return head.sender
        return ""

    def _read_html(self, data: bytes, charset: str) -> str:
        """The words of an HTML mail, read by a child with a deadline."""
        if len(data) > MAX_HTML:
            return "(an HTML mail that is too large to read)"
        try:
            found = self._clerk.read("mail.html", data, "html", charset)
        except OwlError as error:
            return f"(an HTML mail that cannot be read: {error.message})"
        return found.text or "(an HTML mail that cannot be read)"


class _Look:
    """One look through the unseen mails: whoever writes too much waits, and nobody else does."""

    def __init__(self, channel: EmailChannel, running: Running, senders: OrderedDict[int, str]) -> None:
        self._channel = channel
        self._running = running
        self._senders = senders
        self._busy: set[str] = set()

    def wants(self, uid: int) -> bool:
        """Not what is known to be of somebody who has to wait."""
        return self._senders.get(uid, "") not in self._busy

    def take(self, uid: int, size: int, data: bytes | None) -> bool:
        """Hand in one mail; False when it is kept for later."""
        sender = self._channel.take(self._running, size, data, self._busy)
        if not sender:
            self._senders.pop(uid, None)
            return True
        self._busy.add(sender)
        self._senders[uid] = sender
        while len(self._senders) > MAX_KEPT:
            self._senders.popitem(last=False)
        return False


def received(mail: reading.Mail) -> Received:
    """A mail as the gateway takes it: its subject belongs to what is said, what it repeats does not."""
    head, results = mail.head, mail.head.authentication
    is_answer = [reading.OWN_ID.fullmatch(one) for one in (*head.in_reply_to, *head.references)]
    own_runs = [found[1] for found in is_answer if found]
    said = mail.words if head.in_reply_to or not head.subject else f"{head.subject}\n\n{mail.words}"
    repeated = "" if own_runs else mail.quoted  # of our own mails it is in the thread already
    text = f"{said}\n\n[The mail repeats:]\n{repeated}" if repeated else said
    return Received(
        head.message_id,
        head.sender,
        text,
        head.at_ms,
        own_chars=len(said) if repeated else None,
        is_proven=results.is_proven,
        references=(*own_runs, *head.in_reply_to, *reversed(head.references)),
        is_new_thread=True,
        attachments=mail.attachments,
        marks=(("mail", head.sender),) if not results.is_proven else (),
        metadata={
            "mail": {
                "address": head.sender,
                "subject": head.subject,
                "message_id": head.message_id,
                "references": list(head.references),
                "signature": mail.signature,
                "authentication": {"spf": results.spf, "dkim": results.dkim, "dmarc": results.dmarc},
            }
        },
    )


def connect(settings: Email, *, secret: Callable[[str], str], data_folder: Callable[[str], Path]) -> EmailChannel:
    """The channel of this table."""
    return EmailChannel(settings, secret, data_folder)


def find_recipient(message: Outbound) -> str:
    """The address that a notification goes to; BadInput when nothing says it."""
    mail = message.metadata.get("mail")
    named = mail.get("address") if isinstance(mail, dict) else ""
    channel, _, sender = message.session.partition(":")
    address = str(named or (sender if channel == "email" else ""))
    if not ADDRESS.fullmatch(address):
        raise BadInput(f"no address to send a mail to: {address!r}", hint="whoever has written by mail can be answered")
    return address


def build_mail(message: Outbound, own_address: str, attached: tuple[str, bytes] | None = None) -> EmailMessage:
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
    """The Message-ID of a notification's mail; the same at every attempt."""
    digest = hashlib.sha256(message.key.encode("utf-8", "replace")).hexdigest()[:16]
    return f"<owlbox.{digest}.{message.run or '0'}@{own_address.rpartition('@')[2] or 'localhost'}>"


def _subject(text: str, answered: dict[str, object]) -> str:
    """The subject of what is answered behind one `Re:`, else how the text begins."""
    if answered:
        subject = " ".join(str(answered.get("subject", "")).split())
        return subject if REPLY.match(subject) else f"Re: {subject}".strip()
    first = " ".join(next((line for line in text.splitlines() if line.strip()), "").split()).lstrip("#*> ")
    return first if len(first) <= MAX_SUBJECT else f"{first[: MAX_SUBJECT - 1]}…"
