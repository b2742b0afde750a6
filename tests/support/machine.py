"""A throw-away machine with a real systemd for tests: systemd-nspawn on the host's /usr and this checkout, read-only.

Up in about half a second. Everything else of it is one folder under /tmp, gone afterwards. Needs root;
without it, or without namespaces, the tests that want a machine fail and say so, unless a person has set
OWLBOX_TEST_NO_NSPAWN=1. Only what was started here is ended, by its own id.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import process
import pytest
from needs import lack, leave_out

from appliance.clock import monotonic_s, sleep_s

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
LIMIT_S = 120.0
SERVICES = ("owlbox.service", "owlbox-broker.service")
SOCKETS = ("owlbox.socket", "owlbox-broker.socket")
TIMER = "owlbox-maintenance.timer"
TIMERS = (TIMER, "owlbox-heartbeat.timer", "owlbox-worker.timer")
LAUNCHER = "/opt/owlbox/bin/owlbox"
PYTHON = "/opt/owlbox/test-python"
BASE = "/opt/owlbox/python"


@dataclass
class Machine:
    """A machine that is up."""

    root: Path
    nspawn: "subprocess.Popen[bytes]"
    leader: int
    booted_s: float

    def run(self, *command: str, user: str = "", text: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command inside to its end, as root or as `user` with that user's groups."""
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        inside = ["nsenter", "-t", str(self.leader), "-a", "--", *become, *command]
        clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        return subprocess.run(inside, input=text, capture_output=True, text=True, timeout=LIMIT_S, env=clean)

    def ok(self, *command: str, user: str = "", text: str = "") -> str:
        """What a command prints; it must succeed."""
        done = self.run(*command, user=user, text=text)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.journal()}"
        return done.stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.ok("systemctl", "show", "--value", "-p", name, unit)

    def until(self, condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        """Return when the condition holds; fail with the journal when it does not in time."""
        try:
            process.until(condition, what, limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.journal()}") from None

    def journal(self) -> str:
        """The last lines of the machine's journal."""
        return self.run("journalctl", "--no-pager", "-n", "60", "-o", "short-monotonic").stdout

    def power_off(self) -> int:
        """End in good order; the exit code of nspawn."""
        self.run("systemctl", "poweroff")
        return self.nspawn.wait(LIMIT_S)


def make_root(root: Path) -> None:
    """A root folder with nothing in it but links into /usr, and a Python that has this checkout."""
    for name in ("usr", "etc", "opt", "var", "run", "proc", "sys", "dev", "tmp", "root", "home"):
        (root / name).mkdir()
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    shutil.copyfile("/etc/os-release", root / "etc/os-release")
    (root / "etc/machine-id").touch()
    base = Path(sys.base_prefix)
    is_ours = not base.is_relative_to("/usr") or base.is_relative_to("/usr/local")
    home, program = (Path(BASE) if is_ours else base), f"python3.{sys.version_info.minor}"
    venv = root / "opt/owlbox/venv"
    packages = venv / f"lib/{program}/site-packages"
    packages.mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin/python").symlink_to(home / "bin" / program)
    (venv / "pyvenv.cfg").write_text(f"home = {home}/bin\n")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.suffix != ".pth" and not entry.name.startswith("__editable__"):
            (packages / entry.name).symlink_to(f"/opt/owlbox/packages/{entry.name}")
    (packages / "appliance").unlink(missing_ok=True)
    (packages / "appliance").symlink_to("/opt/owlbox/checkout/appliance")
    python = root / PYTHON[1:]
    python.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={home}/lib exec /opt/owlbox/venv/bin/python "$@"\n')
    python.chmod(0o755)
    for name in ("python", "packages", "checkout"):
        (root / "opt/owlbox" / name).mkdir()


def install(root: Path, *options: str) -> str:
    """What a person does to install the services; returns what install.sh said."""
    script = [str(UNITS / "install.sh"), "--destdir", str(root), "--python", PYTHON, *options]
    said = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    # Only our own files: what the host's /usr adds is done at boot. Folders under /run too.
    for command, kind in (
        (["systemd-sysusers"], "sysusers.d"),
        (["systemd-tmpfiles", "--create", "--exclude-prefix=/run"], "tmpfiles.d"),
    ):
        files = [str(path) for path in sorted((root / "etc" / kind).glob("*.conf"))]
        subprocess.run([*command, f"--root={root}", *files], check=True, capture_output=True)
    return said


def enable(root: Path, *units: str) -> None:
    """Have these units started at boot."""
    subprocess.run(["systemctl", f"--root={root}", "--quiet", "enable", *units], check=True)


def drop_in(root: Path, unit: str, text: str) -> None:
    """Change a unit for a test."""
    folder = root / f"etc/systemd/system/{unit}.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "90-test.conf").write_text(text)


def user_id(root: Path, name: str) -> int:
    """The id a user has in the machine."""
    lines = (root / "etc/passwd").read_text().splitlines()
    return next(int(line.split(":")[2]) for line in lines if line.startswith(f"{name}:"))


@contextmanager
def folder() -> Iterator[Path]:
    """A root folder for a machine, removed afterwards."""
    if os.environ.get("OWLBOX_TEST_NO_NSPAWN") == "1":
        pytest.skip("OWLBOX_TEST_NO_NSPAWN=1")
    if reason := lack("systemd-nspawn", "nsenter", "setpriv", root=True):
        leave_out(f"booting a machine {reason} (packages systemd-container, util-linux)")
    made = Path(tempfile.mkdtemp(prefix="owl-machine-", dir="/tmp"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        assert str(made) not in Path("/proc/self/mounts").read_text(), f"{made} is still mounted"
        shutil.rmtree(made)


@contextmanager
def booted(root: Path) -> Iterator[Machine]:
    """The machine in this folder, up; powered off afterwards if it still is."""
    name = f"owl-{root.stat().st_ino}"
    binds = ["/usr", f"{sysconfig.get_path('purelib')}:/opt/owlbox/packages", f"{ROOT}:/opt/owlbox/checkout"]
    if os.readlink(root / "opt/owlbox/venv/bin/python").startswith(BASE):
        binds.append(f"{sys.base_prefix}:{BASE}")
    command = ["systemd-nspawn", "--quiet", f"--directory={root}", f"--machine={name}", *(f"--bind-ro={b}" for b in binds)]
    # nspawn's own filter knows no Landlock, which the tool unit uses where it can.
    command.append("--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self")
    command += ["--boot", "--register=no", "--keep-unit", "--link-journal=no", "--private-network", "--console=pipe"]
    began_s = monotonic_s()
    with (root / "console").open("wb") as console:
        # Without this variable systemd 257 inside does not come up on a host with cgroups of version 1.
        environ = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        nspawn = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    leader = 0
    try:
        leader = _leader(nspawn, root / "console")
        machine = Machine(root, nspawn, leader, monotonic_s() - began_s)
        # nspawn hides parts of /proc, as no real machine does; where any is hidden, the kernel lets no sandbox have its own.
        machine.run("mount", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", "/proc")
        yield machine
        if nspawn.poll() is None:
            machine.power_off()
    finally:
        if nspawn.poll() is None:
            if str(leader) in _children(nspawn):
                os.kill(leader, signal.SIGKILL)  # pid 1 of the machine: everything in it ends with it
            nspawn.kill()
            nspawn.wait(60)
        left = Path(f"/run/systemd/nspawn/propagate/{name}")
        if left.is_dir():
            left.rmdir()


def _children(nspawn: "subprocess.Popen[bytes]") -> list[str]:
    return Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children").read_text().split()


def _leader(nspawn: "subprocess.Popen[bytes]", console: Path) -> int:
    """The machine's first process, once its systemd says that the machine is up."""
    end_s = monotonic_s() + LIMIT_S
    asked = "nothing"
    while monotonic_s() < end_s and nspawn.poll() is None:
        if children := _children(nspawn):
            wait = ["nsenter", "-t", children[0], "-a", "--", "systemctl", "is-system-running", "--wait"]
            asked = subprocess.run(wait, capture_output=True, text=True, timeout=LIMIT_S).stdout.strip()
            if asked in ("running", "degraded"):
                return int(children[0])
        sleep_s(0.05)
    pytest.fail(
        f"the machine did not come up (it says {asked!r}); OWLBOX_TEST_NO_NSPAWN=1 leaves these tests out\n{console.read_text()}"
    )
