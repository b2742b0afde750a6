"""The two servers of a mailbox: hearing of new mails by IMAP, and sending one by SMTP.

A certificate is checked by the system's authorities, or has to be one of the pinned ones. Whatever goes wrong with a server is
an error of our tree: Busy before anything was handed over, Lost when nobody knows whether it was. Owns no mail.
"""

import hashlib
import logging
import smtplib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from typing import Protocol

from imapclient import SEEN, IMAPClient
from imapclient.exceptions import IMAPClientError

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Busy, Lost, NotFound, Refused, Unavailable
from appliance.runtime.settings import Email

LOG = logging.getLogger(__name__)
TIMEOUT_S = 30.0
IDLE_S = 29 * 60.0  # servers may drop a client that idles for 30 minutes (RFC 2177)
LATER_S = 10.0  # before mails are looked at again that could not be taken
BATCH = 50
FOLDER = "INBOX"


def tls_context(settings: Email) -> ssl.SSLContext:
    """The TLS settings by which servers are verified."""
    context = ssl.create_default_context()
    if not settings.verify or settings.pins:  # a pin says more than an authority does
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def check_pin(sock: object, settings: Email) -> None:
    """Refused when certificates are pinned and the server has another one."""
    if not settings.pins:
        return
    shown = sock.getpeercert(binary_form=True) if isinstance(sock, ssl.SSLSocket) else None
    digest = hashlib.sha256(shown or b"").hexdigest()
    if shown is None or digest not in {pin.replace(":", "").strip().lower() for pin in settings.pins}:
        raise Refused(f"the certificate {digest} is not pinned", hint="if it is right, add it to channels.email.pins")


class MailReader(Protocol):
    """Takes the mails of one look."""

    def wants(self, uid: int) -> bool:
        """Whether a mail is to be fetched now; one that is not stays unseen, for later."""

    def take(self, uid: int, size: int, data: bytes | None) -> bool:
        """Take a mail, without bytes when it is too large; False keeps it unseen, for later."""


class ImapMailbox:
    """One connection to the server for reading."""

    def __init__(self, settings: Email, password: str) -> None:
        self._settings = settings
        self._password = password
        self._client: IMAPClient | None = None
        self._exists = b""  # how many mails the server last said there are

    @contextmanager
    def connected(self) -> Iterator["ImapMailbox"]:
        """Log in and choose the folder; Unavailable or Refused when that fails."""
        keys = self._settings
        is_implicit = keys.tls and not keys.imap_starttls
        try:
            context = tls_context(keys) if keys.tls else None
            client = IMAPClient(
                keys.imap_host, keys.imap_port, ssl=is_implicit, ssl_context=context if is_implicit else None, timeout=TIMEOUT_S
            )
        except (OSError, IMAPClientError) as error:
            raise Unavailable(f"{keys.imap_host}:{keys.imap_port} cannot be reached: {error}") from None
        self._client = client
        try:
            with _reported("reading"):
                if keys.tls and keys.imap_starttls:
                    client.starttls(context)
                if keys.tls:
                    check_pin(client.socket(), keys)
                client.socket().setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                client.login(keys.user, self._password)
                client.select_folder(FOLDER)
            yield self
        finally:
            self._client = None
            with suppress(OSError, IMAPClientError):
                client.shutdown()

    @property
    def client(self) -> IMAPClient:
        """The connection."""
        if self._client is None:
            raise Lost("the mailbox is not connected")
        return self._client

    def has_idle(self) -> bool:
        """Whether the server tells of new mails by itself."""
        with _reported("reading"):
            return bool(self.client.has_capability("IDLE"))

    def take_unseen(self, most_bytes: int, reader: MailReader, stop: CancelToken) -> bool:
        """Hand over every mail that nobody has seen and mark it as seen; False when some were kept for later.

        Asks again until there is none: what comes meanwhile is told of once, while nobody idles.
        """
        before: list[int] = []
        while True:
            with _reported("reading"):
                unseen = sorted(self.client.search("UNSEEN"))
            if self._has_told_of_more() and not stop.is_set() and not unseen:
                continue  # told of behind the answer that did not count it
            if not unseen or unseen == before or stop.is_set():  # the same again: a server that keeps no marks
                return True
            before = unseen
            if not self._take_listed(unseen, most_bytes, reader, stop):
                return False

    def _has_told_of_more(self) -> bool:
        """Whether another number of mails stood with an answer; IMAPClient reads it and gives it to nobody."""
        said = self.client._imap.response("EXISTS")[1][-1] or self._exists
        before, self._exists = self._exists, said
        return bool(said != before)

    def _take_listed(self, unseen: list[int], most_bytes: int, reader: MailReader, stop: CancelToken) -> bool:
        client, is_whole = self.client, True
        for start in range(0, len(unseen), BATCH):
            batch = unseen[start : start + BATCH]
            with _reported("reading"):
                sizes = client.fetch(batch, ["RFC822.SIZE"])
            for uid in batch:
                if stop.is_set():
                    return True
                if not reader.wants(uid):
                    is_whole = False
                    continue
                size = int(sizes.get(uid, {}).get(b"RFC822.SIZE", 0))
                data = None
                if size <= most_bytes:
                    with _reported("reading"):
                        data = client.fetch([uid], ["BODY.PEEK[]"]).get(uid, {}).get(b"BODY[]")
                    if data is None:
                        continue  # deleted meanwhile
                if not reader.take(uid, size, data):
                    is_whole = False
                    continue
                with _reported("reading"):  # after it is stored: a kill in between brings it again, as a repeat
                    client.add_flags([uid], [SEEN])
        return is_whole

    def wait(self, stop: CancelToken, longest_s: float, *, is_polled: bool) -> None:
        """Until there may be a new mail, at most this long; at once when `stop` is set."""
        if is_polled or longest_s < 1:
            stop.wait(longest_s)
            if not stop.is_set():
                with _reported("reading"):
                    self.client.noop()
            return
        client = self.client
        forget = stop.then(lambda: _hang_up(client))
        try:
            self._idle(client, stop, longest_s)
        finally:
            forget()

    def _idle(self, client: IMAPClient, stop: CancelToken, longest_s: float) -> None:
        with _reported("reading"):
            client.idle()
            end_s = monotonic_s() + longest_s
            while not stop.is_set() and (left_s := end_s - monotonic_s()) > 0:
                said = client.idle_check(timeout=left_s)
                if not said or any(len(one) > 1 and one[1] == b"EXISTS" for one in said if isinstance(one, tuple)):
                    break  # nothing said: the time is over, or the server is gone, which ending the wait shows
            if not stop.is_set():
                client.idle_done()


def _hang_up(client: IMAPClient) -> None:
    """End whatever waits on a connection, from another thread."""
    with suppress(OSError, AttributeError):
        client.socket().shutdown(socket.SHUT_RDWR)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Errors of the network and of the library as ours."""
    try:
        yield
    except IMAPClientError as error:
        text = " ".join(str(error).split())[:300]
        is_login = type(error).__name__ == "LoginError"
        raise Refused(f"the mail server refuses the login: {text}") if is_login else Lost(f"{what} mail: {text}") from None
    except (OSError, EOFError, ValueError) as error:  # ValueError: a socket that was closed meanwhile
        raise Lost(f"{what} mail: {error or type(error).__name__}") from None


@contextmanager
def smtp_session(settings: Email, password: str) -> Iterator[smtplib.SMTP]:
    """A connection to the server for sending, logged in; Busy when there is none to be had now."""
    where = f"{settings.smtp_host}:{settings.smtp_port}"
    context = tls_context(settings) if settings.tls else None
    try:
        if settings.tls and not settings.smtp_starttls:
            smtp: smtplib.SMTP = smtplib.SMTP_SSL(settings.smtp_host, settings.smtp_port, timeout=TIMEOUT_S, context=context)
        else:
            smtp = smtplib.SMTP(settings.smtp_host, settings.smtp_port, timeout=TIMEOUT_S)
    except (OSError, smtplib.SMTPException) as error:
        raise Busy(f"{where} cannot be reached: {error}", retry_s=60) from None
    try:
        try:
            smtp.ehlo_or_helo_if_needed()
            if settings.tls and settings.smtp_starttls:
                smtp.starttls(context=context)
                smtp.ehlo()
            if settings.tls:
                check_pin(smtp.sock, settings)
            if smtp.has_extn("auth"):
                smtp.login(settings.user, password)
        except smtplib.SMTPAuthenticationError as error:
            text = f"{where} refuses the login ({error.smtp_code})"
            raise Busy(text, hint="owlbox channel test email", retry_s=600) from None
        except Refused as error:
            raise Busy(error.message, hint=error.hint, retry_s=600) from None
        except (OSError, smtplib.SMTPException) as error:
            raise Busy(f"{where} does not take a login: {error}", retry_s=60) from None
        yield smtp
    finally:
        with suppress(OSError, smtplib.SMTPException):
            smtp.close()


def send(settings: Email, password: str, sender: str, recipient: str, mail: EmailMessage) -> None:
    """Hand a mail to the server. Lost when it may have it, Refused or NotFound when it never takes it, else to be tried again."""
    with smtp_session(settings, password) as smtp:
        try:
            code, said = smtp.mail(sender)
            if code == 250:
                code, said = smtp.rcpt(recipient)
        except (OSError, smtplib.SMTPException) as error:
            raise Busy(f"sending mail: {error}", retry_s=60) from None
        _require(code, said, (250, 251), recipient)
        try:
            code, said = smtp.data(mail.as_bytes())
        except smtplib.SMTPDataError as error:  # before its first byte
            code, said = error.smtp_code, _bytes(error.smtp_error)
        except (OSError, smtplib.SMTPException) as error:
            raise Lost(f"sending mail: the connection ended before the server had answered: {error}") from None
        _require(code, said, (250,), recipient)
        with suppress(OSError, smtplib.SMTPException):
            smtp.quit()


def _require(code: int, said: bytes, wanted: tuple[int, ...], recipient: str) -> None:
    text = f"the mail server says {code} about {recipient}: {said.decode('utf-8', 'replace')[:200]}"
    if code >= 500:
        raise NotFound(text) if code in (550, 551, 553) else Refused(text)
    if code not in wanted:
        raise Unavailable(text)


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")
