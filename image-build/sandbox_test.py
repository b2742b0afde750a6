"""Runs the sandbox's part of the test suite on an emulated processor with the image's kernel: what `make image-sandbox` runs.

    .venv/bin/python image-build/sandbox_test.py [--arch arm64|amd64] [--minutes N] [FILE...]

FILE is a test file of this checkout; without any, FILES below. The packages that an image has of Debian are unpacked, not
installed, with the wheels of its Python and pytest beside them and what is committed here: two minutes, where an image takes
twenty. All of it is the memory disk of a kernel of that Debian, so the system-call programs, Landlock and the limits of a sandbox
are looked at by a kernel of that machine. `build/sandbox/ARCH` keeps what was unpacked; remove it to have later packages.

The emulated processor counts instructions: its clock moves on by one nanosecond with each. A box that is a hundred times slower
than a real one takes a hundred times as long, but no test in it fails for the time that it takes. Not covered: the services of the
image (`make image-test`), and what a real processor does that the emulator does not, such as speculation.
Needs root, and Debian's mmdebstrap, cpio and qemu-system-arm (for amd64: qemu-system-x86).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "image-build")]

from emulator import BOARDS, CONSOLE, COUNTING  # noqa: E402

FILES = (
    "tests/sandbox/test_seccomp.py",
    "tests/sandbox/test_limits.py",
    "tests/sandbox/test_control_group.py",
    "tests/sandbox/test_mount_race.py",
    "tests/sandbox/test_folder_tree.py",
    "tests/sandbox/test_folder_turns.py",
    "tests/sandbox/test_launcher.py",
    "tests/sandbox/test_shell.py",
    "tests/whole/test_tool_unit.py",
    "tests/whole/test_attacks.py",
    "tests/whole/test_attacks_unit.py",
)
TAKEN = ("appliance", "tests", "systemd", "skills", "docs", "image-build", "pyproject.toml", "Makefile")
PACKAGES = (
    "base-files base-passwd bash coreutils dash debianutils diffutils findutils grep gzip hostname libc-bin login passwd mawk "
    "ncurses-base perl-base sed tar util-linux mount procps python3 bubblewrap iproute2 busybox-static systemd systemd-sysv "
    "systemd-container dbus kmod libpam-modules openssh-client rsync git"
).split()
KERNELS = {"arm64": "linux-image-arm64", "amd64": "linux-image-amd64"}
TAGS = ("_2_17", "_2_28", "_2_31", "_2_34", "2014")  # of wheels, as in packages.sh
EXTRAS = ("mcp", "web", "mail", "slack", "matrix", "docs")
LEFT_OUT = ("boot", "usr/lib/modules", "usr/lib/firmware", "usr/share/locale", "usr/share/doc", "usr/share/man")
PYTHON = "opt/owlbox/versions/test"
MEMORY_MB = 3072
# The first process. bubblewrap changes its root, which the kernel does not let anybody do whose root is the memory disk itself:
# so it is mounted over itself, once.
INIT = """\
#!/usr/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
if [ ! -e /mounted ]; then
    : >/mounted
    mkdir -p /over && mount --bind / /over && cd /over && mount --move . / && exec chroot . /init
fi
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t securityfs securityfs /sys/kernel/security
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for place in /dev/shm /tmp; do mount -t tmpfs -o mode=1777 tmpfs $place; done
mount -t tmpfs -o mode=755 run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
for number in 0 1 2; do ln -sf /proc/self/fd/$number /dev/$(echo stdin stdout stderr | cut -d ' ' -f $((number + 1))); done
ln -sf /proc/self/fd /dev/fd
ip link set lo up
hostname owl
echo '127.0.0.1 localhost owl' >/etc/hosts
echo "kernel: $(uname -rm), $(cat /sys/kernel/security/lsm)"
cd /checkout
for file in $(cat /files); do
    echo "file: $file"
    # A systemd that was tried leaves its cgroups, in which the next one could not start.
    busybox find /sys/fs/cgroup -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null
    env -i CI=1 LANG=C.UTF-8 HOME=/root PATH=$PATH /PLACE/bin/python -m pytest -q --color=no --tb=short -rfE -p no:cacheprovider \\
        -o faulthandler_timeout=0 "$file" 2>&1
    echo "code: $?"
done
poweroff -f
"""


def main() -> int:
    """Run them; 0 when none failed."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("files", nargs="*", default=FILES)
    words.add_argument("--arch", choices=sorted(BOARDS), default="arm64")
    words.add_argument("--minutes", type=float, default=240, help="the longest that it may take")
    chosen = words.parse_args()
    place = ROOT / "build/sandbox" / chosen.arch
    if not (place / "whole").exists():
        shutil.rmtree(place, ignore_errors=True)
        unpack(place / "root", chosen.arch)
        (place / "whole").touch()
    began_s = time.monotonic()
    counts = read(run(place, chosen.arch, chosen.files, chosen.minutes * 60), chosen.files)
    print(f"in {time.monotonic() - began_s:.0f} s")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


def unpack(root: Path, arch: str) -> None:
    """Debian's packages, and the wheels of an image but for the engine's."""
    root.parent.mkdir(parents=True)
    unpacking = ["mmdebstrap", "-q", f"--arch={arch}", "--variant=extract", "--mode=root", "--format=directory"]
    unpacking += ["--skip=check/qemu", "--aptopt=Apt::Install-Recommends false"]
    unpacking += [f"--include={','.join([*PACKAGES, KERNELS[arch]])}", "trixie", str(root)]
    subprocess.run(unpacking, check=True, env={**os.environ, "TMPDIR": "/dev/shm"})
    for name in ("passwd", "group"):
        shutil.copyfile(root / f"usr/share/base-passwd/{name}.master", root / "etc" / name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *(need for extra in EXTRAS for need in project["optional-dependencies"][extra])]
    needs = [need for need in needs if not need.startswith("llama-cpp-python")]
    machine = "aarch64" if arch == "arm64" else "x86_64"
    platforms = [word for tag in TAGS for word in ("--platform", f"manylinux{tag}_{machine}")]
    kind = ["--only-binary=:all:", *platforms, "--python-version", "3.13", "--implementation", "cp"]
    kind += [word for abi in ("cp313", "abi3", "none") for word in ("--abi", abi)]
    wheels, packages = root.with_name("wheels"), root / PYTHON / "lib/python3.13/site-packages"
    pip = [sys.executable, "-m", "pip", "download", "-q", *kind, "-d", str(wheels), *needs, "numpy", "pytest", "hypothesis"]
    subprocess.run(pip, check=True)
    packages.mkdir(parents=True)
    subprocess.run([str(ROOT / "image-build/install-wheels.sh"), arch, str(wheels), str(packages)], check=True)
    (root / PYTHON / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (root / PYTHON / "bin").mkdir()
    (root / PYTHON / "bin/python").symlink_to("/usr/bin/python3")


def run(place: Path, arch: str, files: Sequence[str], limit_s: float) -> str:
    """Start the kernel with all of it, and wait for its end; what it said."""
    root, log = place / "root", place / "console.log"
    checkout = root / "checkout"
    shutil.rmtree(checkout, ignore_errors=True)
    checkout.mkdir()
    tree = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD", *TAKEN], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=tree, check=True)
    (root / "init").write_text(INIT.replace("PLACE", PYTHON))
    (root / "init").chmod(0o755)
    (root / "files").write_text("\n".join(files) + "\n")
    left = [word for name in LEFT_OUT for word in ("-path", f"./{name}", "-prune", "-o")]
    found = subprocess.run(["find", ".", *left, "-print0"], cwd=root, check=True, capture_output=True).stdout
    with (place / "initrd").open("wb") as out:
        subprocess.run(["cpio", "-0", "-o", "-H", "newc", "--quiet"], cwd=root, check=True, input=found, stdout=out)
    kernel = next((root / "boot").glob("vmlinuz-*"))
    words = f"console={CONSOLE[arch]} quiet panic=-1 no_timer_check rdinit=/init"
    command = [*BOARDS[arch], *COUNTING, "-smp", "1", "-m", str(MEMORY_MB), "-display", "none", "-nodefaults"]
    command += ["-no-reboot", "-serial", f"file:{log}", "-device", "virtio-rng-pci", "-kernel", str(kernel)]
    command += ["-initrd", str(place / "initrd"), "-append", words]
    try:
        subprocess.run(command, check=True, timeout=limit_s, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        print(f"not done in {limit_s:g} s")
    (place / "initrd").unlink()
    return log.read_text(errors="replace").replace("\r", "")


def read(said: str, files: Sequence[str]) -> Counter[str]:
    """What became of the tests; what failed is printed."""
    head, *parts = re.split(r"^file: ", said, flags=re.MULTILINE)
    print(head.strip().splitlines()[-1] if head.strip() else "no kernel came up")
    counts: Counter[str] = Counter()
    for file, part in zip(files, [*parts, *[""] * len(files)]):
        sums = [line for line in part.splitlines() if re.search(r"\d+ (passed|failed|error|skipped).* in ", line)]
        last = sums[-1] if sums else ""
        counts += Counter({kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped)", last)})
        counts["failed"] += sum(int(number) for number in re.findall(r"(\d+) error", last)) or (not last)
        if "\ncode: 0\n" not in part:
            print(part[-20_000:])
        print(f"  {file}: {last or 'did not end'}")
    return counts


if __name__ == "__main__":
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    sys.exit(main())
