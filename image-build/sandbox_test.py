"""Runs the sandbox's part of the test suite inside an emulated box with an image: what `make image-sandbox` runs.

    .venv/bin/python image-build/sandbox_test.py IMAGE [FILE...] [--minutes N] [--keep]

FILE is a test file of this checkout; without any, FILES below. What is committed is copied into the box, with pytest, the system's
own `systemd-nspawn` of the image's Debian, and nothing else; the tests run as root with the Python, the packages and the kernel of
the image. So the system-call programs, Landlock, the limits and the tool unit are those of that processor, arm64 too.

The emulated processor counts instructions: its clock moves on by one nanosecond with each. A box that is a hundred times slower
than a real one takes a hundred times as long, but no test in it fails for the time that it takes. Not covered: what a real
processor does that the emulator does not, such as pointer authentication faults and speculation.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "image-build")]

from emulator import BOARDS, Box, Card  # noqa: E402

FILES = (
    "tests/sandbox/test_seccomp.py",
    "tests/sandbox/test_limits.py",
    "tests/sandbox/test_mount_race.py",
    "tests/sandbox/test_folder_tree.py",
    "tests/sandbox/test_folder_turns.py",
    "tests/sandbox/test_launcher.py",
    "tests/sandbox/test_shell.py",
    "tests/whole/test_tool_unit.py",
    "tests/whole/test_attacks.py",
    "tests/whole/test_attacks_unit.py",
)
PLACE = "/var/lib/owl-tests"
TAKEN = ("appliance", "tests", "systemd", "skills", "docs", "image-build", "pyproject.toml", "Makefile")
WHEELS = ("pytest", "hypothesis")  # the second for files that a test shares with others
PACKAGE = "systemd-container"  # boots the machines of tests; the image itself has no use for it
SOURCE = "deb http://deb.debian.org/debian trixie main\n"


def main() -> int:
    """Run them; 0 when none failed."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("image", type=Path)
    words.add_argument("files", nargs="*", default=FILES)
    words.add_argument("--arch", choices=sorted(BOARDS))
    words.add_argument("--minutes", type=float, default=120, help="the longest that one file may take")
    words.add_argument("--port", type=int, default=22024)
    words.add_argument("--keep", action="store_true", help="keep the card")
    chosen = words.parse_args()
    arch = chosen.arch or ("arm64" if "arm64" in chosen.image.name else "amd64")
    folder = Path(tempfile.mkdtemp(prefix="owlbox-sandbox-", dir=chosen.image.absolute().parent))
    counts: Counter[str] = Counter()
    try:
        load = pack(folder / "load", arch)
        card = Card(chosen.image, folder, arch)
        box = Box(card, card.layer("box"), chosen.port, cores=1, has_firmware=False)
        box.counts_instructions = True
        try:
            print(f"login after {box.start():.0f} s", flush=True)
            install(box, load)
            for file in chosen.files:
                counts += run(box, file, chosen.minutes * 60)
        finally:
            box.kill()
    finally:
        if chosen.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    print(f"{counts['passed']} passed, {counts['failed'] + counts['error']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or counts["error"] or not counts["passed"] else 0


def pack(folder: Path, arch: str) -> Path:
    """What the box is given: the checkout as it is committed, pytest for its Python, and the package, in one archive."""
    (folder / "tree").mkdir(parents=True)
    tree = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD", *TAKEN], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder / "tree")], input=tree, check=True)
    machine = "aarch64" if arch == "arm64" else "x86_64"
    platforms = [word for tag in ("_2_17", "_2_28", "2014") for word in ("--platform", f"manylinux{tag}_{machine}")]
    kind = ["--only-binary=:all:", *platforms, "--python-version", "3.13", "--implementation", "cp", "--abi", "cp313"]
    kind += ["--abi", "abi3", "--abi", "none"]
    pip = [sys.executable, "-m", "pip", "download", "-q", *kind, "-d", str(folder / "wheels"), *WHEELS]
    subprocess.run(pip, check=True)
    install = [str(ROOT / "image-build/install-wheels.sh"), arch, str(folder / "wheels"), str(folder / "packages")]
    subprocess.run(install, check=True)
    shutil.rmtree(folder / "wheels")
    fetch_package(folder, arch)
    archive = folder.with_suffix(".tar.gz")
    subprocess.run(["tar", "-czf", str(archive), "-C", str(folder), "."], check=True)
    return archive


def fetch_package(folder: Path, arch: str) -> None:
    """The package of the image's Debian for its processor, without touching what apt knows of this machine."""
    lists = folder.with_name("apt")
    for name in ("lists/partial", "archives/partial"):
        (lists / name).mkdir(parents=True)
    (lists / "sources.list").write_text(SOURCE)
    (lists / "status").touch()
    options = {
        "APT::Architecture": arch,
        "APT::Architectures": arch,
        "Dir::State::Lists": lists / "lists",
        "Dir::State::status": lists / "status",
        "Dir::Cache": lists,
        "Dir::Etc::SourceList": lists / "sources.list",
        "Dir::Etc::SourceParts": "-",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-q=2", *(f"-o{name}={value}" for name, value in options.items())]
    subprocess.run([*apt, "update"], check=True, cwd=folder)
    subprocess.run([*apt, "download", PACKAGE], check=True, cwd=folder)
    shutil.rmtree(lists)


def install(box: Box, load: Path) -> None:
    """Put it all in its place. The services of the image are stopped: the tests start what they need themselves."""
    box.put(load, "/tmp/load.tar.gz")
    box.ssh("admin", f"sudo mkdir -p {PLACE} && sudo tar -xzf /tmp/load.tar.gz --no-same-owner -C {PLACE}", limit_s=3600)
    box.ssh("admin", f"sudo sh -c 'dpkg-deb -x {PLACE}/{PACKAGE}_*.deb / && ldconfig && systemctl daemon-reload'", limit_s=1800)
    box.ssh("admin", "sudo systemctl stop 'owlbox*.timer' 'owlbox*.socket' 'owlbox*.service'", limit_s=1800)
    print("  " + box.ssh("admin", "uname -srm; systemd-nspawn --version | head -1").stdout.replace("\n", "; "), flush=True)


def run(box: Box, file: str, limit_s: float) -> Counter[str]:
    """One file; what became of its tests. What failed is printed."""
    began_s = time.monotonic()
    variables = f"CI=1 LANG=C.UTF-8 HOME=/root PYTHONPATH={PLACE}/packages PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    pytest = "/opt/owlbox/current/bin/python -m pytest -q --tb=short -rfE -p no:cacheprovider -o faulthandler_timeout=0"
    done = box.ssh("admin", f"sudo sh -c 'cd {PLACE}/tree && env -i {variables} {pytest} {file}'", check=False, limit_s=limit_s)
    lines = done.stdout.rstrip().splitlines() or [f"nothing but {done.stderr[-500:]!r}"]
    found = re.findall(r"(\d+) (passed|failed|error|skipped)", lines[-1])
    counts = Counter({kind: int(number) for number, kind in found})
    if done.returncode or not counts:
        counts["failed"] += 0 if counts["failed"] or counts["error"] else 1
        print(done.stdout[-20_000:], done.stderr[-2000:], flush=True)
    print(f"  {file}: {lines[-1]} ({time.monotonic() - began_s:.0f} s outside)", flush=True)
    return counts


if __name__ == "__main__":
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    sys.exit(main())
