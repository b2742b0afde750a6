"""The doctor's look at the machine below: temperature, throttling, clock, memory, wear of the card, units of systemd.

Reads what the kernel offers under `root`; what a machine does not have is said and is no fault. Starts nothing but `systemctl`,
and that only on the appliance.
"""

import os
import subprocess
from pathlib import Path

from appliance.clock import now_ms
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import wall_clock
from appliance.upkeep.checks.finding import Finding

ROOT = Path("/")
HOT_C, TOO_HOT_C = 75, 84  # a Raspberry Pi slows down from 80 on, and hard from 85
SECTOR_BYTES = 512
SPENT_PART = 8  # of the ten steps in which an eMMC says how much of its life is used
CARD_CYCLES = 300  # of a common card: so often may all of it be written
WORN_YEARS = 3
BUILT_MS = 1_760_000_000_000  # 2025-10-09: a clock before that has never been set
FREE_PART = 0.08  # of memory
THROTTLING = {
    0: "the supply voltage is too low",
    1: "the processor is slowed down",
    2: "the processor is throttled",
    3: "it is at its temperature limit",
}
SINCE_BOOT = 16
LIMIT_S = 5.0
KNOWN_UNITS = "owlbox*"


def check_temperature(root: Path = ROOT) -> Finding:
    """The hottest sensor."""
    found = read_temperatures(root)
    if not found:
        return Finding("temperature", "ok", "this machine has no sensor")
    name, hottest = max(found.items(), key=lambda one: one[1])
    said = f"{hottest:.0f} C ({name})"
    if hottest >= TOO_HOT_C:
        return Finding("temperature", "problem", said, "give it air or a heat sink; answers are slow until then")
    if hottest >= HOT_C:
        return Finding("temperature", "warning", said, "give it air or a heat sink: above 80 C it slows down")
    return Finding("temperature", "ok", said)


def read_temperatures(root: Path = ROOT) -> dict[str, float]:
    """Degrees Celsius by the name of their sensor."""
    found = {}
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        try:
            name, degrees = (zone / "type").read_text().strip(), int((zone / "temp").read_text()) / 1000
        except (OSError, ValueError):
            continue  # a sensor that is switched off
        if -40 < degrees < 150:
            found[name] = degrees
    return found


def check_throttling(root: Path = ROOT) -> Finding:
    """What the firmware of a Raspberry Pi says of its supply and its speed, now and since the start."""
    try:
        bits = int((root / "sys/devices/platform/soc/soc:firmware/get_throttled").read_text().strip(), 16)
    except (OSError, ValueError):
        return Finding("throttling", "ok", "not reported by this machine")
    now = [words for bit, words in THROTTLING.items() if bits >> bit & 1]
    before = [words for bit, words in THROTTLING.items() if bits >> (bit + SINCE_BOOT) & 1]
    hint = "use the power supply that belongs to the board, and a short cable; docs/guides/trouble.md"
    if now:
        return Finding("throttling", "problem", f"now: {'; '.join(now)}", hint)
    if before:
        return Finding("throttling", "warning", f"since the machine started, but not now: {'; '.join(before)}", hint)
    return Finding("throttling", "ok", "full speed")


def check_clock() -> Finding:
    """Whether the clock is set and follows others: schedules, expiry and the order of messages go by it."""
    return describe_clock(now_ms(), wall_clock.is_synchronized())


def describe_clock(now: int, is_synchronized: bool | None) -> Finding:
    """The same for a time, and what the kernel says of it."""
    if now < BUILT_MS:
        return Finding(
            "clock",
            "problem",
            "it has not been set since the machine started",
            "connect the network, or set it: sudo timedatectl set-time 'YYYY-MM-DD hh:mm'",
        )
    if is_synchronized is None:
        return Finding("clock", "ok", "set; the kernel does not say whether it follows a time server")
    if not is_synchronized:
        hint = "no network? systemctl status systemd-timesyncd; the time may be wrong by minutes after weeks"
        return Finding("clock", "warning", "set, but it follows no time server", hint)
    return Finding("clock", "ok", "set, and follows a time server")


def check_memory(root: Path = ROOT) -> Finding:
    """Report free memory, and whether the kernel killed a process for lack of it."""
    try:
        known = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines() if ":" in line)
        total, free = (int(known[name].split()[0]) // 1024 for name in ("MemTotal", "MemAvailable"))
        counts = dict(line.split() for line in (root / "proc/vmstat").read_text().splitlines())
    except (OSError, KeyError, ValueError):
        return Finding("memory", "ok", "not reported by this machine")
    ended = int(counts.get("oom_kill", 0))
    said = f"{free} of {total} MB free"
    smaller = "a smaller model (owlbox model list), or a shorter context (owlbox config set models.context NUMBER)"
    if free < total * FREE_PART:
        return Finding("memory", "warning", f"only {said}", smaller)
    more = f"; {ended} processes were killed for lack of memory since the machine started" if ended else ""
    return Finding("memory", "ok", said + more)


def check_wear(home: Home, root: Path = ROOT) -> Finding:
    """How worn the disk below the home is, as far as it tells, and how long it lasts at the rate since the start."""
    folder = find_disk(home, root)
    if folder is None:
        return Finding("wear", "ok", "not reported by this disk")
    if lives := _read_text(folder / "device/life_time"):
        used = max(int(part, 16) for part in lives.split())
        if used >= SPENT_PART:
            return Finding("wear", "warning", f"{folder.name} says {min(used, 10) * 10} % of its life is used", "replace it soon")
    written, up_s = read_written(folder), read_uptime(root)
    size = int(_read_text(folder / "size") or 0) * SECTOR_BYTES
    if not (written and up_s and size):
        return Finding("wear", "ok", f"{folder.name} tells no more")
    day = written / max(up_s / 86_400, 1 / 24)
    said = f"{folder.name}: {day / 1e9:.2f} GB a day since the start"
    if not folder.name.startswith("mmcblk"):
        return Finding("wear", "ok", said)
    years = size * CARD_CYCLES / day / 365
    said += f"; a common card of {size / 1e9:.0f} GB would last {min(years, 100):.0f} years"
    if years < WORN_YEARS and up_s > 86_400:
        return Finding("wear", "warning", said, "owlbox metrics shows what writes; keep backups on another disk")
    return Finding("wear", "ok", said)


def find_disk(home: Home, root: Path = ROOT) -> Path | None:
    """The folder in /sys of the disk that the home lies on; None for one that is none, such as an overlay."""
    device = os.stat(home.root).st_dev
    link = root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if not link.exists():
        return None
    folder = link.resolve()
    return folder.parent if (folder / "partition").exists() else folder


def read_written(folder: Path) -> int:
    """Bytes written to a disk since the machine started; 0 when it does not tell."""
    numbers = _read_text(folder / "stat").split()
    return int(numbers[6]) * SECTOR_BYTES if len(numbers) > 6 else 0


def check_units(home: Home) -> Finding:
    """Whether systemd has given up on a part; only where it looks after this home."""
    if home.root != paths.SERVICE_HOME or not Path("/run/systemd/system").is_dir():
        return Finding("units", "ok", "this home is not managed by systemd")
    command = ["systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager", KNOWN_UNITS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    failed = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    if failed:
        hint = f"journalctl -u {failed[0]} says why; then: systemctl reset-failed {failed[0]}"
        return Finding("units", "problem", f"systemd has given up on {', '.join(failed)}", hint)
    return Finding("units", "ok", "none has failed")


def read_uptime(root: Path = ROOT) -> float:
    """Seconds since the machine started; 0 when it does not tell."""
    return float((_read_text(root / "proc/uptime") or "0").split()[0])


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
