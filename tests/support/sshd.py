"""A real sshd of our own on loopback with the drop-in of systemd/, and a terminal that looks through it."""

import grp
import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from needs import leave_out
from process import Box, end, until

ROOT = Path(__file__).parents[2]
USER = pwd.getpwuid(os.getuid()).pw_name
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or ""
LAX = """\
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
AllowTcpForwarding yes
AllowStreamLocalForwarding yes
AllowAgentForwarding yes
X11Forwarding yes
GatewayPorts yes
PermitTunnel yes
PermitUserRC yes
AcceptEnv LANG LC_* OWLBOX_*
Subsystem sftp internal-sftp
"""


@dataclass
class Door:
    """An sshd of our own with a core behind it."""

    box: Box
    folder: Path
    port: int
    key: str = "key"

    def of(self, key: str) -> "Door":
        """The same for somebody with another key."""
        return Door(self.box, self.folder, self.port, key)

    def options(self) -> list[str]:
        """What makes a client talk to it and to nothing else."""
        plain = [
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "IdentitiesOnly=yes",
        ]
        return ["-F", "none", "-i", str(self.folder / self.key), *(f"-o{option}" for option in plain)]

    def command(self, *words: str, options: tuple[str, ...] = ()) -> list[str]:
        """`ssh USER@127.0.0.1 WORDS`."""
        return ["ssh", *self.options(), "-p", str(self.port), *options, f"{USER}@127.0.0.1", *words]

    def ssh(self, *words: str, options: tuple[str, ...] = (), text: str = "") -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        return subprocess.run(self.command(*words, options=options), input=text, capture_output=True, text=True, timeout=180)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def opened(box: Box, runtime: Path) -> Iterator[Door]:
    """The drop-in as it is installed, for this user, in front of the box's core."""
    launcher = runtime / "owlbox"
    given = {**box.environ, "OWLBOX_HOME": str(box.home.root)}
    exports = "".join(f"export {name}='{value}'\n" for name, value in given.items())
    launcher.write_text(f'#!/bin/sh\n{exports}exec {sys.executable} -m appliance "$@"\n')
    launcher.chmod(0o755)
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(runtime / name)], check=True)
    text = (ROOT / "systemd/sshd-owlbox.conf").read_text()
    mine = {
        "Match User owl\n": f"Match User {USER}\n",
        "/opt/owlbox/bin/owlbox": str(launcher),
        "/var/lib/owlbox/ssh/authorized_keys": str(box.home.ssh_keys),
        "CommandUser owlbox\n": f"CommandUser {USER}\n",
    }
    for theirs, ours in mine.items():
        assert text.count(theirs) == 1
        text = text.replace(theirs, ours)
    added = box.run("people", "add-key", USER, str(runtime / "key.pub"))
    assert added.returncode == 0, added.stderr
    (runtime / "sshd").write_text(LAX.format(folder=runtime) + text)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists; left there, because others may use it now
    for _ in range(5):  # between our look and its own, a port may have become somebody else's
        port = free_port()
        with (runtime / "sshd.log").open("wb") as log:
            child = subprocess.Popen([SSHD, "-D", "-e", "-f", str(runtime / "sshd"), "-p", str(port)], stdout=log, stderr=log)
        until(lambda port=port, child=child: is_listening(port) or child.poll() is not None, "sshd listens")  # type: ignore[misc]
        if child.poll() is None:
            break
    try:
        assert child.poll() is None, (runtime / "sshd.log").read_text()
        yield Door(box, runtime, port)
    finally:
        end(child)


@dataclass
class Screen:
    """A terminal of 80 by 24 with one program in it, in a tmux of our own."""

    path: Path

    def tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(self.path), *words], check=True, capture_output=True, text=True, timeout=180
        ).stdout

    def text(self) -> str:
        """What it shows."""
        return self.tmux("capture-pane", "-p")

    def type(self, text: str) -> None:
        """Type a line and press Return."""
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")


def require_terminals() -> None:
    """sshd gives a new terminal to the group tty, which only root may where the system does not (devpts without gid=5)."""
    master, end = os.openpty()
    is_given = os.fstat(end).st_gid == grp.getgrnam("tty").gr_gid
    os.close(master)
    os.close(end)
    if os.geteuid() != 0 and not is_given:
        leave_out("needs new terminals that belong to the group tty, or root")


@contextmanager
def looking(door: Door) -> Iterator[Screen]:
    """`ssh owl@box` in a terminal of 80 by 24."""
    require_terminals()
    made = Screen(door.folder / "tmux")
    words = " ".join(door.command())
    try:
        made.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", f"{words}; echo the door closed; sleep 60")
        yield made
    finally:
        subprocess.run(["tmux", "-S", str(made.path), "kill-server"], capture_output=True)
