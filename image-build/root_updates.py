"""Updates of an image's root without an emulator: minutes with the real model, where image_test.py needs hours on a busy machine.

    .venv/bin/python image-build/root_updates.py IMAGE --key SIGNING_KEY

The root filesystem of the image is started by systemd-nspawn with its own systemd, units and services, and the kernel of this
machine: only an image of this machine's architecture. It is told something; then an update that is well, one that is broken at its
trial and one that is broken as a service are applied, and the first is rolled back. After each the version that has to runs, its
doctor finds no problem, no unit has failed and what it was told is there. Needs root, systemd-container and 4 GB of memory.
"""

import argparse
import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "image-build"), str(ROOT / "tests/support")]

import trial_versions  # noqa: E402
from recorded_disk import hide_mounts  # noqa: E402
from root_cuts import Machine, look, mounted, prepare, read_root  # noqa: E402

ROOM = 2 << 30
OWLBOX = ("setpriv", "--reuid=owlbox", "--regid=owlbox", "--init-groups", "owlbox")


def main() -> int:
    """Apply them; 0 when each ended as it has to."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("image", type=Path)
    words.add_argument("--key", type=Path, required=True, help="the private key of updates that the image takes")
    chosen = words.parse_args()
    arch = "arm64" if "arm64" in chosen.image.name else "amd64"
    private = base64.b64decode(chosen.key.read_text("ascii"))
    wheels = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox/image/wheels" / arch
    hide_mounts()
    with tempfile.TemporaryDirectory(prefix="owl-root-", dir="/dev/shm") as folder:
        work, place = Path(folder), Path(folder) / "root"
        place.mkdir()
        disk = work / "disk.img"
        disk.write_bytes(read_root(chosen.image))
        os.truncate(disk, disk.stat().st_size + ROOM)  # as a first start has it fill its card
        subprocess.run(["resize2fs", "-f", str(disk)], check=True, capture_output=True)
        with mounted(disk, place):
            prepare(place, is_played=False)
            machine = Machine(place)
            try:
                wrong = use(machine, work, wheels, arch, private)
            finally:
                machine.kill()
    print(f"{0 if wrong else 1} passed, {len(wrong)} failed")
    for what in wrong:
        print(what)
    return 1 if wrong else 0


def use(machine: Machine, work: Path, wheels: Path, arch: str, private: bytes) -> list[str]:
    """The updates one after the other; what was not as it has to be."""
    wrong = [f"the first start: {unit} failed" for unit in machine.settle()]
    machine.run(*OWLBOX, "remember", "The spare key lies under the fern.")
    machine.run("mkdir", "-p", "/run/stick")
    cases = [
        ("one that is well", 1, {}, 0, "version 0.1.1 runs"),
        ("one broken at its trial", 2, {"appliance/__main__.py": trial_versions.broken_at_its_trial}, 1, "nothing has changed"),
        ("one broken as a service", 3, {"appliance/service/core.py": trial_versions.broken_as_a_service}, 1, "taken back"),
    ]
    for what, number, edits, code, said in cases:
        path = trial_versions.make(wheels, work / "updates", arch, private, number, edits)
        shutil.move(path, f"/proc/{machine.pid}/root/run/stick/{path.name}")
        wrong += act(machine, what, ["update", "apply", f"/run/stick/{path.name}"], code, said, "0.1.1")
        machine.run("rm", f"/run/stick/{path.name}")
    return wrong + act(machine, "back to the version before", ["update", "rollback"], 0, "taken back as asked", "0.1.0")


def act(machine: Machine, what: str, words: list[str], code: int, said: str, runs: str) -> list[str]:
    """One command of `owlbox update`, and a look at what it left."""
    began_s = time.monotonic()
    done = machine.run("owlbox", *words)
    text = " ".join((done.stdout + done.stderr).split())
    print(f"{what}: {time.monotonic() - began_s:.0f} s: {text[-200:]}", flush=True)
    wrong = [] if (done.returncode, said in text) == (code, True) else [f"it ended with {done.returncode}"]
    version, problems = look(machine, set())
    wrong += [*([] if version == runs else [f"version {version} runs"]), *problems]
    if "fern" not in machine.run(*OWLBOX, "search", "fern").stdout:
        wrong.append("what was remembered is gone")
    return [f"{what}: {one}" for one in wrong]


if __name__ == "__main__":
    sys.exit(main())
