"""Real servers for mail on loopback: a Dovecot of the test's own, and a receiver that speaks SMTP.

Dovecot comes from Debian and keeps its mailboxes in a folder of the test. The receiver is ours, because a test has to say when
it hangs up; it takes real connections of smtplib and keeps what it was given.
"""

import getpass
import grp
import os
import pwd
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from process import end, until

from appliance.clock import new_id

CONFIG = """
base_dir = {root}/run
log_path = {root}/log
protocols = imap
listen = 127.0.0.1
default_internal_user = {internal}
default_internal_group = {group}
default_login_user = {login}
first_valid_uid = 0
mail_fsync = never
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
service anvil {{
  chroot =
}}
"""

# What is written in another way since 2.4, which Debian 13 has.
OLD = """
disable_plaintext_auth = no
mail_location = maildir:{root}/mail/%n
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={root}/mail/%n
}}
"""
NEW = """
mail_driver = maildir
mail_path = {root}/mail/%{{user}}
passdb static {{
  password = secret
}}
userdb static {{
  fields {{
    uid = {uid}
    gid = {gid}
    home = {root}/mail/%{{user}}
  }}
}}
"""
TLS = (
    "ssl = required\nssl_cert = <{root}/cert.pem\nssl_key = <{root}/key.pem\n",
    "ssl = required\nssl_server_cert_file = {root}/cert.pem\nssl_server_key_file = {root}/key.pem\n",
)


def free_port() -> int:
    """A port of loopback that nobody has just now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@dataclass
class Dovecot:
    """A server for reading, which may be stopped and started again."""

    root: Path
    more: str = ""  # lines of its configuration
    certificate: Path | None = None  # a folder with cert.pem and key.pem
    port: int = field(default_factory=free_port)
    child: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Until it accepts connections."""
        (self.root / "mail").mkdir(parents=True, exist_ok=True)
        me, is_root = getpass.getuser(), os.getuid() == 0
        users = {"internal": "dovecot" if is_root else me, "login": "dovenull" if is_root else me}
        group = "dovecot" if is_root else grp.getgrgid(os.getgid()).gr_name
        reader = pwd.getpwnam("nobody") if is_root else pwd.getpwuid(os.getuid())  # it refuses to read mail as root
        ids = {"uid": reader.pw_uid, "gid": reader.pw_gid, "port": self.port, "root": self.root, "group": group}
        (self.root / "mail").chmod(0o777)
        config = self.root / "dovecot.conf"
        said = subprocess.run([str(program()), "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
        is_new = tuple(map(int, said.split(".")[:2])) >= (2, 4)
        open_to_all = "ssl = no\nauth_allow_cleartext = yes\n" if is_new else "ssl = no\n"
        tls = TLS[is_new].format(root=self.certificate) if self.certificate else open_to_all
        head = f"dovecot_config_version = {said.partition('-')[0]}\ndovecot_storage_version = 2.4.0\n" if is_new else ""
        config.write_text(head + (CONFIG + (NEW if is_new else OLD)).format(**users, **ids) + tls + self.more + "\n")
        self.box()
        self.child = subprocess.Popen(
            [str(program()), "-F", "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        until(self._answers, "dovecot listens")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                return sock.recv(4) == b"* OK"
        except OSError:
            return False

    def stop(self) -> None:
        """End it with all its children."""
        if self.child is not None:
            os.killpg(self.child.pid, signal.SIGKILL)  # those who serve somebody outlive their parent otherwise
            end(self.child)
            until(lambda: not self._answers(), "dovecot is gone")
            shutil.rmtree(self.root / "run", ignore_errors=True)
            self.child = None

    def box(self, user: str = "owl") -> Path:
        """The folder of a mailbox."""
        folder = self.root / "mail" / user
        for place in (folder, *(folder / name for name in ("tmp", "new", "cur"))):
            if not place.exists():
                place.mkdir()
                place.chmod(0o777)
        return folder

    def put(self, mail: EmailMessage | bytes, user: str = "owl") -> None:
        """Deliver a mail as a server does."""
        data = mail if isinstance(mail, bytes) else mail.as_bytes()
        name = f"{time.time_ns()}.{new_id()}.test"  # mails get their numbers by their names: two of one millisecond in order
        folder = self.box(user)
        (folder / "tmp" / name).write_bytes(data)
        (folder / "tmp" / name).chmod(0o666)
        (folder / "tmp" / name).rename(folder / "new" / name)

    def unseen(self, user: str = "owl") -> int:
        """How many mails nobody has read."""
        folder = self.box(user)
        flags = [path.name.rpartition(",")[2] for path in (folder / "cur").iterdir()]
        return len(list((folder / "new").iterdir())) + sum("S" not in one for one in flags)


def program() -> Path:
    """Where Dovecot is."""
    found = shutil.which("dovecot", path=f"{os.environ['PATH']}:/usr/sbin")
    return Path(found or "/usr/sbin/dovecot")


@contextmanager
def dovecot(root: Path, **more: Any) -> Iterator[Dovecot]:
    """A running Dovecot; its folder must have a short path and be open to its users."""
    root.mkdir(parents=True, exist_ok=True)
    made = Dovecot(root, **more)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@dataclass
class Received:
    """A mail as the receiver got it."""

    sender: str
    recipients: list[str]
    data: bytes

    @property
    def mail(self) -> EmailMessage:
        """What it says."""
        made = message_from_bytes(self.data, policy=policy.default)
        assert isinstance(made, EmailMessage)
        return made

    @property
    def text(self) -> str:
        """Its plain words."""
        body = self.mail.get_body(("plain",))
        assert body is not None
        return str(body.get_content()).replace("\r\n", "\n").strip()


class Receiver:
    """Takes mails by SMTP. `plan` says what happens to the next: ok, hang-up (after all data, before the answer), or a code.

    With the folder of a certificate it offers encryption.
    """

    def __init__(self, forward: Dovecot | None = None, user: str = "friend", certificate: Path | None = None) -> None:
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        self.mails: list[Received] = []
        self.plan: list[str] = []
        self.refused: dict[str, int] = {}
        self._forward, self._user = forward, user
        self._guard = threading.Lock()
        self.port = 0
        self._server: socketserver.ThreadingTCPServer | None = None

    def start(self) -> None:
        """Listen, at the port of before if there was one."""
        receiver = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = 60

            def handle(self) -> None:
                receiver._serve(self)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _serve(self, talk: socketserver.StreamRequestHandler) -> None:
        def say(line: str) -> None:
            talk.wfile.write(f"{line}\r\n".encode())
            talk.wfile.flush()

        sender, recipients = "", list[str]()
        say("220 test")
        while line := talk.rfile.readline(2000).decode("utf-8", "replace").strip():
            verb, _, rest = line.partition(" ")
            address = rest.partition("<")[2].partition(">")[0]
            match verb.upper():
                case "EHLO":
                    say(f"250-test\r\n{'250-STARTTLS' if self._tls else '250-SIZE'}\r\n250 8BITMIME")
                case "STARTTLS" if self._tls is not None:
                    say("220 go on")
                    try:
                        talk.connection = self._tls.wrap_socket(talk.connection, server_side=True)
                    except OSError:
                        return  # our certificate is not trusted
                    talk.rfile, talk.wfile = talk.connection.makefile("rb"), talk.connection.makefile("wb", 0)
                case "MAIL":
                    sender, recipients = address, []
                    say("250 ok")
                case "RCPT":
                    code = self.refused.get(address, 250)
                    recipients += [address] if code == 250 else []
                    say(f"{code} {'ok' if code == 250 else 'no'}")
                case "DATA":
                    with self._guard:
                        step = self.plan.pop(0) if self.plan else "ok"
                    if step.isdigit():
                        say(f"{step} not now")
                        continue
                    say("354 go on")
                    lines = []
                    while (read := talk.rfile.readline()) != b".\r\n":
                        if not read:
                            return  # half a mail is none; and at the end of a connection every further line is empty
                        lines.append(read)
                    data = b"".join(one[1:] if one.startswith(b"..") else one for one in lines)
                    with self._guard:
                        self.mails.append(Received(sender, recipients, data))
                    if self._forward is not None:
                        self._forward.put(data, self._user)
                    if step == "hang-up":
                        return
                    say("250 taken")
                case "QUIT":
                    say("221 bye")
                    return
                case _:
                    say("250 ok")


@contextmanager
def receiver(**more: Any) -> Iterator[Receiver]:
    """A running receiver."""
    made = Receiver(**more)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def mail(text: str = "hello", *, sender: str = "Ann <ann@example.org>", **headers: str) -> EmailMessage:
    """A mail; `headers` with _ for -, "" leaves one out."""
    made = EmailMessage(policy=policy.SMTP.clone(max_line_length=900))
    given = {"From": sender, "To": "owl@example.org", "Subject": "Tea", "Message-ID": f"<{new_id()}@example.org>"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    for name, value in given.items():
        if value:
            made[name] = value
    made.set_content(text)
    return made
