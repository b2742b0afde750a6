"""What an update does to the machine: environments, services, and programs run for the owner of the home.

`Host` is an installation without services, in which nothing may run during an update; `ServiceHost` is the appliance, whose
services systemd stops and starts.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import OwlError, Refused, StoreError
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import disk_faults
from appliance.upkeep.home_lock import Lock

QUESTION = "Say hello in one short sentence."
STEP_S, BUILD_S, READY_S = 7200.0, 1800.0, 120.0
ANSWER_S, ANSWER_DOCTORS = 600.0, 100  # what a question may take: so long, or on a slow machine so many times what doctor took
UNITS = "owlbox*"
SYSTEMD = Path("/usr/lib/python3/dist-packages/systemd")  # systemd-python as Debian packs it, which has no wheel
# Units that are not to be stopped: ours, and what ends with a call or with its bridge.
LASTING = ("owlbox-update", "owlbox-tool@", "owlbox-program@")


class UpdateHost:
    """An installation without services."""

    def __init__(self, home: Home, environ: Mapping[str, str], answer_s: float = ANSWER_S) -> None:
        """`answer_s`: what a question may take at least."""
        self.home = home
        self._answer_s = answer_s
        self._environ = environ
        self._lock: Lock | None = None
        self._doctor_s = 0.0  # the longest so far: how slow this machine is now

    def build(self, folder: Path, wheels: list[Path]) -> None:
        """Make an environment with exactly these wheels; everything of it is on the disk afterwards."""
        try:
            self._run([sys.executable, "-P", "-m", "venv", "--without-pip", str(folder)], BUILD_S)
        except StoreError:
            if fault := disk_faults.write_fault(folder.parent, folder):
                raise fault from None
            raise
        for wheel in wheels:
            _install_wheel(wheel, folder)
        packages = _find_packages(folder)
        if SYSTEMD.is_dir() and not (packages / SYSTEMD.name).exists():
            (packages / SYSTEMD.name).symlink_to(SYSTEMD)
        self._run([str(folder / "bin/python"), "-I", "-m", "compileall", "-q", "-j", "0", str(packages)], BUILD_S, (0, 1))
        os.sync()

    def remove(self, folder: Path) -> None:
        """Remove an environment."""
        shutil.rmtree(folder, ignore_errors=True)

    def step(self, python: Path, step: str, place: Path) -> None:
        """One of `home_steps`, with the code of that Python."""
        words = [
            str(python),
            "-I",
            "-X",
            "utf8",
            "-m",
            "appliance.upkeep.updates.home_steps",
            step,
            str(self.home.root),
            str(place),
        ]
        self._run(self._as_owner(words), STEP_S)

    def find_problems(self, python: Path, home: Home) -> set[str]:
        """The problems that the doctor of a version reports, by the names of its checks."""
        began_s = monotonic_s()
        done = self._ask(python, home, STEP_S, "doctor", "--json")
        self._doctor_s = max(self._doctor_s, monotonic_s() - began_s)
        try:
            return {str(one["name"]) for one in json.loads(done.stdout) if one["state"] == "problem"}
        except (ValueError, KeyError, TypeError):
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
            raise StoreError(f"its doctor did not get to an end: {said[0]}") from None

    def ask(self, python: Path, home: Home) -> str:
        """What a version answers to a question, asked of the model that the home has; the services go on meanwhile."""
        limit_s = min(STEP_S, max(self._answer_s, ANSWER_DOCTORS * self._doctor_s))
        done = self._ask(python, home, limit_s, "ask", QUESTION, "--json")
        try:
            return str(json.loads(done.stdout)["answer"]).strip()
        except (ValueError, KeyError, TypeError):
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise StoreError(f"it did not answer a question: {said[0]}") from None

    def stop(self) -> None:
        """Have nobody work with the home; AlreadyRunning while a core does."""
        if self._lock is None and self.home.root.is_dir():
            self._lock = Lock(self.home.lock)

    def start(self, python: Path) -> None:
        """Let others work with it again; an error when the version does not come up."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _ask(self, python: Path, home: Home, limit_s: float, *words: str) -> "subprocess.CompletedProcess[str]":
        command = self._as_owner([str(python), "-I", "-X", "utf8", "-m", "appliance", "--home", str(home.root), *words])
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=self._clean(), cwd="/")
        except subprocess.TimeoutExpired:
            raise StoreError(f"{words[0]} did not end in {limit_s:.4g} s") from None
        except OSError as error:
            raise StoreError(f"{words[0]} did not begin: {error}") from None

    def _run(self, command: list[str], limit_s: float, good: tuple[int, ...] = (0,)) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=self._clean(), cwd="/")
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreError(f"{Path(command[0]).name} failed: {error}") from None
        if done.returncode not in good:
            said = [line for line in (done.stderr or done.stdout).strip().splitlines() if not line.startswith("See ")]  # systemctl
            raise StoreError(said[-1] if said else f"exit code {done.returncode}")

    def _as_owner(self, command: list[str]) -> list[str]:
        """A command that runs as the owner of the home."""
        owner = self.home.root.stat().st_uid
        if owner == os.geteuid():
            return command
        name = pwd.getpwuid(owner).pw_name
        return ["setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups", "--", *command]

    def _clean(self) -> dict[str, str]:
        names = ("PATH", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH")
        kept = {name: self._environ[name] for name in names if name in self._environ}
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **kept}


class ServiceHost(UpdateHost):
    """The appliance."""

    def __init__(self, home: Home, environ: Mapping[str, str], *, is_boot: bool = False) -> None:
        """`is_boot`: systemd itself starts the services afterwards, and waits for us."""
        super().__init__(home, environ)
        self._is_boot = is_boot
        self._stopped: tuple[str, ...] = ()

    def stop(self) -> None:
        """Stop every unit of ours."""
        if self._is_boot:
            return
        listing = ["systemctl", "list-units", "--state=active,activating,failed", "--plain", "--no-legend", "--no-pager", UNITS]
        done = subprocess.run(listing, capture_output=True, text=True, timeout=READY_S)
        names = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
        self._stopped = self._stopped or tuple(
            name for name in names if not name.startswith(LASTING) and not name.endswith(".slice")
        )
        # Sockets and timers first: they would start the services again.
        later = [name for name in self._stopped if name.endswith(".service")]
        for group in ([name for name in self._stopped if name not in later], later):
            if group:
                self._run(["systemctl", "stop", *group], READY_S)

    def start(self, python: Path) -> None:
        """Start them, and wait until the core answers."""
        if self._is_boot:
            return
        names = self._stopped or self._list_enabled()  # another process of ours stopped them, and was ended
        if not names:
            return
        self._run(["systemctl", "start", *names], READY_S)
        if not any(name.startswith("owlbox.") for name in names):
            return
        end_s, said = monotonic_s() + READY_S, ""
        while monotonic_s() < end_s:
            said = self._core_state(python)
            if said == "running":
                return
            sleep_s(1)
        raise StoreError(f"the core does not come up: {said}")

    def _list_enabled(self) -> tuple[str, ...]:
        listing = ["systemctl", "list-unit-files", "--state=enabled", "--plain", "--no-legend", "--no-pager", UNITS]
        done = subprocess.run(listing, capture_output=True, text=True, timeout=READY_S)
        names = (line.split()[0] for line in done.stdout.splitlines() if line.strip())
        return tuple(name for name in names if not name.startswith(LASTING) and "@." not in name)

    def _core_state(self, python: Path) -> str:
        try:
            told: dict[str, Any] = json.loads(self._ask(python, self.home, READY_S, "status", "--json").stdout)
            return str(told.get("core"))
        except (ValueError, OwlError) as error:
            return str(error)


def _find_packages(folder: Path) -> Path:
    return next(folder.glob("lib/python3*/site-packages"))


def _install_wheel(wheel: Path, folder: Path) -> None:
    """Unpack a wheel into an environment: its files, and what it has for the folders beside. Without pip, which an image lacks."""
    packages = _find_packages(folder)
    schemes = {"purelib": packages, "platlib": packages, "data": folder, "scripts": folder / "bin"}
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            parts = Path(info.filename).parts
            if Path(info.filename).is_absolute() or ".." in parts:
                raise Refused(f"{wheel.name} holds {info.filename}, which lies outside of it")
            if info.is_dir():
                continue
            target = packages / info.filename
            if parts[0].endswith(".data") and len(parts) > 2:
                if parts[1] not in schemes:
                    continue  # headers for compilers
                target = schemes[parts[1]].joinpath(*parts[2:])
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            target.chmod(0o755 if parts[1:2] == ("scripts",) or info.external_attr >> 16 & 0o100 else 0o644)


def find_host(home: Home, environ: Mapping[str, str], folder: Path, *, is_boot: bool = False) -> UpdateHost:
    """The one that this installation is; Refused where it cannot be updated, with what to do instead."""
    if not (folder / "current").is_symlink():
        hint = "in a checkout: git pull, then make; else docs/guides/upgrade.md"
        raise Refused(f"{folder} holds no versions beside one another: this installation is not updated by bundles", hint=hint)
    if not os.access(folder, os.W_OK):
        if fault := disk_faults.write_fault(folder):
            raise fault
        raise Refused(f"user {os.geteuid()} may not write to {folder}", hint="sudo owlbox update ...")
    if home.root == paths.SERVICE_HOME and Path("/run/systemd/system").is_dir():
        return ServiceHost(home, environ, is_boot=is_boot)
    return UpdateHost(home, environ)
