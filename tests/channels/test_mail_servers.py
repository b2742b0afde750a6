"""Mail servers that cannot call, and certificates: one Dovecot without IDLE that wants TLS and has a certificate of its own."""

import hashlib
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from mail_servers import Dovecot, dovecot, mail, receiver
from needs import needs
from process import until

from appliance.channels.connectors.email import EmailChannel
from appliance.channels.contract import Received, Running
from appliance.channels.mail import servers
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Busy, Lost, OwlError, Refused
from appliance.runtime.settings import Email

pytestmark = needs("dovecot")


class Taken:
    """An intake that keeps what it is given, and may be busy."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.busy = 0
        self.tries: list[str] = []
        self.kept_out = ""

    def take(self, received: Received) -> bool:
        self.tries.append(received.text)
        if received.sender == self.kept_out:
            raise Busy("too many")
        if self.busy:
            self.busy -= 1
            raise Busy("the queue is full")
        self.texts.append(received.text)
        return True

    def refuse(self, sender: str, why: str) -> None:
        self.texts.append(why)

    def find_refusal(self, received: Received) -> str:
        return ""

    def is_welcome(self, sender: str) -> bool:
        return False

    def last_taken_ms(self) -> int:
        return 0


@pytest.fixture(scope="module", name="server")
def a_server() -> Iterator[tuple[Dovecot, str]]:
    with tempfile.TemporaryDirectory(prefix="owlmail-", dir="/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
        cert = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
        (root / "cert.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        (root / "key.pem").write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)
        )
        with dovecot(root / "d", certificate=root, more="imap_capability = IMAP4rev1") as server:
            yield server, hashlib.sha256(cert.public_bytes(serialization.Encoding.DER)).hexdigest()


def settings(server: Dovecot, **more: object) -> Email:
    given = {
        "imap_host": "127.0.0.1",
        "imap_port": server.port,
        "imap_starttls": True,
        "user": "owl",
        "password": "secret",
        "poll_s": 0.1,
    }
    return Email(**{**given, **more})


@pytest.mark.covers("S-113", "E-291")
def test_a_server_that_cannot_call_is_asked_and_what_cannot_be_taken_stays(server: tuple[Dovecot, str]) -> None:
    channel = EmailChannel(settings(server[0], pins=(server[1],)), str, Path)
    intake, stop, connected = Taken(), CancelToken(), list[float]()
    intake.busy = 1
    server[0].put(mail("first", Subject=""))

    def is_done() -> bool:
        if intake.busy == 0 and not intake.texts:
            assert server[0].unseen() >= 1  # it was refused for now, and is still unseen
        return len(intake.texts) == 2

    thread = threading.Thread(target=channel.receive, args=(Running(intake, stop, lambda: connected.append(monotonic_s())),))
    thread.start()
    until(lambda: intake.busy == 0, "it was offered")
    server[0].put(mail("second", Subject=""))
    until(is_done, "both were taken", servers.LATER_S + 10)
    assert sorted(intake.texts) == ["first", "second"]
    until(lambda: not server[0].unseen(), "they are marked as seen")
    stop.set()
    thread.join(10)
    assert not thread.is_alive() and len(connected) == 1
    channel.close()


def test_one_who_writes_too_much_waits_and_nobody_else(server: tuple[Dovecot, str]) -> None:
    channel = EmailChannel(settings(server[0], pins=(server[1],), user="crowd"), str, Path)
    intake, stop = Taken(), CancelToken()
    intake.kept_out = "loud@example.org"
    for number in range(5):
        server[0].put(mail(f"loud {number}", sender="loud@example.org", Subject=""), "crowd")
    server[0].put(mail("quiet", sender="quiet@example.org", Subject=""), "crowd")
    thread = threading.Thread(target=channel.receive, args=(Running(intake, stop, lambda: None),))
    thread.start()
    until(lambda: intake.texts == ["quiet"] and server[0].unseen("crowd") == 5, "the quiet one is read")
    assert intake.tries.count("loud 1") == 0  # it was fetched once, to know whose it is, and not handed in
    intake.kept_out = ""
    until(lambda: len(intake.texts) == 6, "all are read", servers.LATER_S + 10)
    assert intake.texts[1:] == [f"loud {number}" for number in range(5)]
    stop.set()
    thread.join(10)
    channel.close()


@pytest.mark.covers("S-087")
def test_a_certificate_is_checked_or_has_to_be_the_pinned_one(server: tuple[Dovecot, str]) -> None:
    with pytest.raises(OwlError, match="certificate|CERTIFICATE"):
        EmailChannel(settings(server[0]), str, Path).check()
    with pytest.raises(Refused, match="is not pinned"):
        EmailChannel(settings(server[0], pins=("ab" * 32,)), str, Path).check()
    with pytest.raises(OwlError):  # without encryption the server takes no password
        EmailChannel(settings(server[0], tls=False), str, Path).check()
    shown = ":".join(server[1][i : i + 2] for i in range(0, 64, 2)).upper()
    with receiver() as plain, receiver(certificate=server[0].root.parent) as sink:
        for port, pins, said in (
            (plain.port, (shown,), "STARTTLS extension not supported"),  # nothing is sent without encryption
            (sink.port, (), "certificate verify failed"),
            (sink.port, ("ab" * 32,), "is not pinned"),
            (sink.port, (shown,), ""),
        ):
            keys = settings(server[0], pins=pins, smtp_host="127.0.0.1", smtp_port=port)
            with pytest.raises(Busy, match=said) if said else nullcontext():
                servers.send(keys, "secret", "owl@example.org", "ann@example.org", mail())
        assert len(sink.mails) == 1 and not plain.mails
    with pytest.raises(OwlError, match="login"), servers.ImapMailbox(settings(server[0], pins=(shown,)), "wrong").connected():
        raise AssertionError("it took a wrong password")
    assert EmailChannel(settings(server[0], verify=False), str, Path).warnings()[0].startswith("certificates are not checked")
    with pytest.raises(Lost):
        _ = servers.ImapMailbox(settings(server[0]), "x").client


FOUND = (b"* SEARCH\r\n* 1 EXISTS\r\n", b"* SEARCH 7\r\n", b"* SEARCH\r\n")


class LateTeller(socketserver.StreamRequestHandler):
    """A mailbox that gets its only mail while it is searched: it is told of behind the answer that does not count it."""

    def handle(self) -> None:
        searches = 0
        self.wfile.write(b"* OK [CAPABILITY IMAP4rev1 IDLE] hello\r\n")
        while line := self.rfile.readline().split():
            tag, verb = line[0], line[1].upper()
            if verb == b"UID":
                verb = line[2].upper()
            said = {
                b"CAPABILITY": b"* CAPABILITY IMAP4rev1 IDLE\r\n",
                b"SELECT": b"* 0 EXISTS\r\n",
                b"SEARCH": FOUND[min(searches, 2)],
                b"FETCH": b"* 1 FETCH (UID 7 RFC822.SIZE 8 BODY[] {8}\r\nX: y\r\n\r\n)\r\n",
            }.get(verb, b"")
            searches += verb == b"SEARCH"
            self.wfile.write(said + (b"+ waiting\r\n" if verb == b"IDLE" else tag + b" OK done\r\n"))


@pytest.mark.covers("S-113")
def test_a_mail_that_is_told_of_behind_an_answer_is_looked_for_before_the_wait() -> None:
    taken: list[int] = []

    class Reader:
        def wants(self, uid: int) -> bool:
            return True

        def take(self, uid: int, size: int, data: bytes | None) -> bool:
            taken.append(uid)
            return True

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), LateTeller) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        keys = Email(imap_host="127.0.0.1", imap_port=listening.server_address[1], user="owl", password="secret", tls=False)
        try:
            with servers.ImapMailbox(keys, "secret").connected() as mailbox:
                assert mailbox.take_unseen(1000, Reader(), CancelToken())
        finally:
            listening.shutdown()
            thread.join()
    assert taken == [7]
