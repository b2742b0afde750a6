"""Power cuts of an image's whole root without an emulator: dozens in minutes, where power_cuts.py takes hours.

    .venv/bin/python image-build/root_cuts.py IMAGE [--cuts 60] [--seed 0] [--key SIGNING_KEY]

The root filesystem of the image lies on a disk that remembers its writes and flushes (tests/support/recorded_disk.py) and is
started by systemd-nspawn, with the image's own systemd, units and services and the kernel of this machine: only an image of this
machine's architecture. Its first start, a time in which it is told things, and an update are recorded. Then moments are drawn by
chance: what the disk held, with a random part of what it had not flushed missing or torn, is mounted and started, and must come to
a running system with no failed unit, a doctor without a problem, all that was acknowledged before, and a version that works.
`root-cuts-ARCH.json` beside the image has every cut. Not covered: the boot partition, the growing of the filesystem, the kernel.
Needs root, systemd-container and 6 GB of memory.
"""

import argparse
import base64
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "image-build"), str(ROOT / "tests/support")]

import trial_versions  # noqa: E402
from power_cuts import CHECK, LOAD, PLAY, wait_for  # noqa: E402
from recorded_disk import RecordedDisk, hide_mounts  # noqa: E402

OPTIONS = "loop,noatime,commit=30,errors=remount-ro"  # of / in overlay/etc/fstab
SECTOR = 512
PYTHON = ["setpriv", "--reuid=owlbox", "--regid=owlbox", "--init-groups", "/opt/owlbox/current/bin/python", "-I", "-X", "utf8"]
SECRET = "skill/weather=feather-1234\n"
CONFIG = '[models]\nscript = "models/play.toml"\n'
MASKED = ("console-getty.service",)  # there is no console
SHARES = {"first start": 0.3, "load": 0.3, "update": 0.4}


class Machine:
    """A root that systemd-nspawn started; `pid` is its first process."""

    def __init__(self, place: Path) -> None:
        environ = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        flags = ["--boot", "--register=no", "--keep-unit", "--link-journal=no", "--private-network", "--console=pipe"]
        self._nspawn = subprocess.Popen(
            ["systemd-nspawn", "-q", "-D", str(place), *flags],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.pid = "0"
        wait_for(self._is_up, "systemd")

    def _is_up(self) -> bool:
        """True once its first process is systemd: before, nspawn has other children for a moment."""
        found = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        self.pid = found[0] if found else "0"
        return bool(found) and self.run("test", "-S", "/run/systemd/private").returncode == 0

    def words(self, *command: str) -> list[str]:
        """The command line that runs a command in it."""
        return ["nsenter", "-t", self.pid, "-a", "--", *command]

    def run(self, *command: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a command in it."""
        return subprocess.run(self.words(*command), capture_output=True, text=True, input=text, timeout=900)

    def settle(self) -> list[str]:
        """Units that failed, once everything was started."""
        self.run("systemctl", "is-system-running", "--wait")
        return self.run("sh", "-c", "systemctl --failed --no-legend --plain --no-pager | cut -d ' ' -f 1").stdout.split()

    def kill(self) -> None:
        """End it at once."""
        subprocess.run(["kill", "-9", self.pid], check=False)
        self._nspawn.wait(60)


@contextlib.contextmanager
def mounted(disk: Path, place: Path) -> Iterator[None]:
    """A disk in its place for a while."""
    subprocess.run(["mount", "-o", OPTIONS, str(disk), str(place)], check=True)
    try:
        yield
    finally:
        wait_for(lambda: subprocess.run(["umount", str(place)], capture_output=True).returncode == 0, "end of its use", 60)
        wait_for(lambda: not subprocess.run(["losetup", "-j", str(disk)], capture_output=True).stdout, "free disk", 60)


def read_root(image: Path) -> bytes:
    """The second partition of an image."""
    told = json.loads(subprocess.run(["sfdisk", "-J", str(image)], check=True, capture_output=True).stdout)
    part = told["partitiontable"]["partitions"][1]
    with image.open("rb") as file:
        file.seek(part["start"] * SECTOR)
        return file.read(part["size"] * SECTOR)


def prepare(place: Path, *, is_played: bool = True) -> None:
    """What the boot partition would bring, and nothing that this machine does not have; a script in place of the model."""
    boot = place / "boot/firmware"
    boot.mkdir(parents=True, exist_ok=True)
    (boot / "secrets.txt").write_text(SECRET)
    (boot / "hostname").write_text("barnowl\n")
    (place / "etc/fstab").write_text("")
    (place / "var/lib/owlbox-grown").touch()
    for unit in MASKED:
        (place / "etc/systemd/system" / unit).symlink_to("/dev/null")
    if is_played:
        (boot / "owlbox.toml").write_text(CONFIG)
        (place / "var/lib/owlbox/models/play.toml").write_text(PLAY)
        for model in (place / "var/lib/owlbox/models").glob("all-MiniLM*"):
            model.unlink()


class Recording(NamedTuple):
    """What was written to a disk: how long its log was at the end of each phase, and when something was acknowledged."""

    disk: RecordedDisk
    ends: dict[str, int]
    promises: list[tuple[int, str]]


def record(disk: RecordedDisk, place: Path, update: Path | None, length_s: float) -> Recording:
    """A first start, a time of load, an update."""
    ends: dict[str, int] = {}
    promises: list[tuple[int, str]] = []
    with mounted(disk.path, place):
        machine = Machine(place)
        try:
            failed = machine.settle()
            if failed:
                raise SystemExit(f"FAILED: the first start itself: {failed}")
            ends["first start"] = len(disk.log)
            load(machine, disk, promises, length_s)
            ends["load"] = len(disk.log)
            if update:
                machine.run("mkdir", "-p", "/run/stick")
                shutil.copyfile(update, f"/proc/{machine.pid}/root/run/stick/{update.name}")
                done = machine.run("owlbox", "update", "apply", f"/run/stick/{update.name}")
                print(f"the update itself: {' '.join((done.stdout + done.stderr).split())}", flush=True)
                ends["update"] = len(disk.log)
        finally:
            machine.kill()
    return Recording(disk, ends, promises)


def load(machine: Machine, disk: RecordedDisk, promises: list[tuple[int, str]], length_s: float) -> None:
    """Tell the core things for a while."""
    command = machine.words("timeout", f"{length_s:g}", *PYTHON, "-c", LOAD, "cut")  # it is nobody's child out here
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as told:
        reader = threading.Thread(target=lambda: promises.extend((len(disk.log), line.strip()) for line in told.stdout or ()))
        reader.start()
        reader.join()


def start(place: Path, promised: set[str]) -> tuple[str, list[str]]:
    """The version that a root comes up with after a cut, and what is wrong with it."""
    machine = Machine(place)
    try:
        return look(machine, promised)
    finally:
        machine.kill()


def look(machine: Machine, promised: set[str]) -> tuple[str, list[str]]:
    """The version that runs, and what is wrong: with the doctor, with units, and with what was acknowledged."""
    failed = machine.settle()
    done = machine.run(*PYTHON, "-", text=CHECK)
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        journal = machine.run("journalctl", "-b", "--no-pager", "-n", "40").stdout
        return "none", [f"the look said {done.stdout[-500:]}{done.stderr[-800:]}", *failed, journal]
    lost = sorted(promised - set(told["names"]))
    return told["version"], [*(f"lost {name}" for name in lost), *told["problems"], *(f"failed: {unit}" for unit in failed)]


def cut(recording: Recording, image: Path, place: Path, count: int, seed: int, end_s: float) -> Iterator[dict[str, Any]]:
    """Make the disks of so many moments, start each, and tell what was found."""
    dice, phases, last = random.Random(seed), dict[str, tuple[int, int]](), 0
    for phase, end in recording.ends.items():
        phases[phase], last = (last, end), end
    for number in range(count):
        if time.monotonic() > end_s:
            return
        [phase] = dice.choices(list(phases), [SHARES[name] for name in phases])
        moment = dice.randint(phases[phase][0] + 1, phases[phase][1])
        image.write_bytes(recording.disk.crash(moment, dice))
        promised = {name for at, name in recording.promises if at <= moment}
        began_s = time.monotonic()
        with mounted(image, place):
            version, wrong = start(place, promised)
        sound = subprocess.run(["e2fsck", "-fn", str(image)], capture_output=True, text=True)
        wrong += [f"ext4: {sound.stdout}"] if sound.returncode else []
        took_s = time.monotonic() - began_s
        found = "; ".join(wrong) or (f"{len(promised)} promised, all there" if promised else "whole")
        print(f"  cut {number + 1}, {phase} after {moment} writes: {version} in {took_s:.0f} s, {found}", flush=True)
        yield {"cut": number + 1, "phase": phase, "writes": moment, "promised": len(promised), "version": version, "wrong": wrong}


def main() -> int:
    """Record, cut, and count; 1 when a root did not come up whole."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("image", type=Path)
    words.add_argument("--cuts", type=int, default=60)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--length", type=float, default=15.0, help="seconds of load")
    words.add_argument("--minutes", type=float, default=600)
    words.add_argument("--key", type=Path, help="the private key of updates that the image takes")
    chosen = words.parse_args()
    arch = "arm64" if "arm64" in chosen.image.name else "amd64"
    out = chosen.image.absolute().with_name(f"root-cuts-{arch}.json")
    hide_mounts()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    end_s = time.monotonic() + chosen.minutes * 60
    with tempfile.TemporaryDirectory(prefix="owl-root-", dir="/dev/shm") as folder:
        work = Path(folder)
        place, served, image = work / "root", work / "served", work / "disk.img"
        place.mkdir()
        served.mkdir()
        image.write_bytes(read_root(chosen.image))
        with mounted(image, place):
            prepare(place)
        update = None
        if chosen.key:
            wheels = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox/image/wheels" / arch
            update = trial_versions.make(wheels, work, arch, base64.b64decode(chosen.key.read_text("ascii")), 1, {})
        disk = RecordedDisk(served, image.read_bytes())
        try:
            recording = record(disk, place, update, chosen.length)
        finally:
            disk.close()
        flushes = sum(entry is None for entry in disk.log)
        writes, promised = len(disk.log) - flushes, len(recording.promises)
        print(f"{writes} writes, {flushes} flushes, {promised} promises; phases end at {recording.ends}", flush=True)
        cuts = list(cut(recording, image, place, chosen.cuts, chosen.seed, end_s))
        kept = {"seed": chosen.seed, "writes": writes, "flushes": flushes, "ends": recording.ends, "cuts": cuts}
        out.write_text(json.dumps(kept, indent=1) + "\n")
    bad = [one for one in cuts if one["wrong"]]
    by_phase = ", ".join(f"{number} {phase}" for phase, number in sorted(Counter(str(one["phase"]) for one in cuts).items()))
    print(f"{len(cuts)} power cuts, {len(bad)} not whole: {by_phase}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
