"""Boots an image in an emulator as its owner would use it: what `make image-test` runs.

    .venv/bin/python image-build/image_test.py IMAGE [--arch arm64|amd64] [--key SIGNING_KEY] [--kills N] [--keep]

A copy of the image gets a public key, a name and a secret on its boot partition, is put on a larger card and started. Then over
ssh: the card is filled, the screen opens, the local model answers, doctor is content, the secret is in the vault and off the
card, what `install.sh --machine` hardens is in force, and all of it is still there after a restart. With --key, the private half of
the key that the image was built with, updates are applied: one that is well, one that is broken at its trial and one that is broken
as a service, both of which must leave the data whole. With --kills the plug is pulled until there are N cuts: power_cuts.py.
amd64 starts through its firmware as a computer does; arm64 on QEMU's `virt` board with the kernel of the card.
"""

import argparse
import base64
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "image-build")]

import trial_versions  # noqa: E402
from emulator import BOARDS, CARD, Box, Card  # noqa: E402
from power_cuts import PLACE, PLAY, PLAYED, cut_power, look_over  # noqa: E402

# What is in force on a machine that does nothing else; each prints a line, which must contain the word.
MACHINE = {
    "swap in compressed memory": ("grep -v ^Filename /proc/swaps", "/dev/zram0"),
    "at most 200 MB of journal": ("sudo systemd-analyze cat-config systemd/journald.conf | grep ^SystemMaxUse", "200M"),
    "the watchdog's time": ("systemctl show -p RuntimeWatchdogUSec --value", "15s"),
    "inbound nothing by default": ("sudo nft list chain inet owlbox input | grep -o 'policy drop'", "drop"),
    "security updates each day": ("systemctl is-enabled apt-daily-upgrade.timer", "enabled"),
    "and only those": ("apt-config dump Unattended-Upgrade::Origins-Pattern | tail -1", "Debian-Security"),
    "no traces of a crash on the card": ("systemctl show owlbox -p LimitCORE --value", "0"),
}


def main() -> int:
    """Test one image; 0 when everything held."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("image", type=Path)
    words.add_argument("--arch", choices=sorted(BOARDS))
    words.add_argument("--key", type=Path, help="the private key of updates that the image takes")
    words.add_argument("--kills", type=int, default=0, help="power cuts at moments drawn by chance")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--port", type=int, default=22022)
    words.add_argument(
        "--played", action="store_true", help="answers come from a script, where the emulator is too slow for a model"
    )
    words.add_argument("--cores", type=int, default=2)
    words.add_argument("--keep", action="store_true", help="keep the card and the console's log")
    chosen = words.parse_args()
    arch = chosen.arch or ("arm64" if "arm64" in chosen.image.name else "amd64")
    folder = Path(tempfile.mkdtemp(prefix="owlbox-image-", dir=chosen.image.absolute().parent))
    try:
        card = Card(chosen.image, folder, arch)
        disk = card.layer("box")
        box = Box(card, disk, chosen.port, cores=chosen.cores)
        private = base64.b64decode(chosen.key.read_text("ascii")) if chosen.key else b""
        try:
            try_first_boot(box, card, is_played=chosen.played)
            try_second_boot(box, card)
            if private:
                try_updates(box, card, private)
            try_watchdog(box)
        finally:
            box.kill()
    finally:
        if chosen.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    cuts = cut_power(chosen.image, arch, chosen.port, chosen.kills, seed=chosen.seed, key=private).cuts if chosen.kills else []
    print(f"1 passed, 0 failed; {len(cuts)} power cuts")
    return 0


def say(what: str, began_s: float | None = None) -> None:
    """One line of progress."""
    print(what if began_s is None else f"{what} ({time.monotonic() - began_s:.0f} s)", flush=True)


def hold(condition: bool, what: str, box: Box) -> None:
    """Fail with the journal unless the condition holds."""
    if not condition:
        raise SystemExit(f"FAILED: {what}\n{box.journal()}")
    say(f"  {what}")


def try_first_boot(box: Box, card: Card, *, is_played: bool) -> None:
    """Everything that a first start has to do."""
    first_s = box.start()
    say(f"first start: login after {first_s:.0f} s")
    state = box.ssh("admin", "systemctl is-system-running --wait; systemctl --failed --no-legend --no-pager", check=False).stdout
    hold(state.startswith("running"), f"the system runs: {' '.join(state.split())}", box)
    say("  " + box.ssh("admin", "systemd-analyze time | head -1").stdout.strip())
    size = int(box.ssh("admin", "df --output=size -B1 / | tail -1").stdout)
    hold(size > CARD * 0.85, f"the root filesystem fills the card: {size / 1e9:.1f} GB", box)
    hold(box.ssh("admin", "cat /etc/hostname").stdout.strip() == "barnowl", "it has the name it was given", box)
    hold("CE" in box.ssh("admin", "date +%Z").stdout, "and the time zone", box)
    local = box.ssh("admin", "avahi-resolve -4 -n barnowl.local 2>/dev/null || getent hosts barnowl.local", check=False).stdout
    hold("barnowl.local" in local, f"its name is found by mDNS: {local.strip()}", box)
    box.ssh("admin", "for i in $(seq 60); do sudo test -e /boot/firmware/secrets.txt || exit 0; sleep 2; done; exit 1")
    names = box.ssh("owl", "secret list").stdout
    hold("skill/weather" in names, "the secret is in the vault and off the card", box)
    if is_played:
        box.ssh("admin", f"sudo -u owlbox sh -c 'cat >{PLACE} && {PLAYED}'", stdin=card.put("play", PLAY))
        box.ssh("admin", "sudo systemctl restart owlbox-broker owlbox")
    began_s = time.monotonic()
    box.ssh("owl", "ask 'What is your name?'", limit_s=1800)
    answer = box.ssh("owl", "ask 'Write one sentence about owls.'", limit_s=1800).stdout
    who = "a script" if is_played else "the local model"
    hold(bool(answer.strip()), f"{who} answers in {time.monotonic() - began_s:.0f} s: {answer.strip()[:90]}", box)
    began_s = time.monotonic()
    drawn = box.screen(300)
    took_s = time.monotonic() - began_s
    hold(b"Threads" in drawn, f"the screen opens over ssh in {took_s:.0f} s, {len(drawn)} bytes, {drawn[-60:]!r}", box)
    box.ssh("owl", "remember 'The spare key lies under the fern.'")
    look(box, card)
    refused = box.ssh("admin", "sudo sshd -T -C user=admin,host=x,addr=10.0.0.9 | grep -i '^passwordauthentication'").stdout
    hold(refused.strip().endswith("no"), "no password is taken at the door", box)
    missing = []
    for what, (command, word) in MACHINE.items():
        said = " ".join(box.ssh("admin", command, check=False).stdout.split())
        say(f"  {what}: {said}{'' if word in said else f', and not {word}'}")
        missing += [what] if word not in said else []
    hold(not missing, f"the machine is hardened{', but for ' if missing else ''}{', '.join(missing)}", box)
    say("  by stage: " + " ".join(box.ssh("admin", "systemd-analyze blame --no-pager | head -8 | xargs").stdout.split()))


def look(box: Box, card: Card) -> None:
    """doctor finds nothing that is wrong."""
    told = look_over(box, card)
    wrong = "; ".join(told["problems"])
    hold(not wrong, f"doctor of {told['version']} is content with {told['checks']} things{': ' if wrong else ''}{wrong}", box)


def try_second_boot(box: Box, card: Card) -> None:
    """What was said and kept is there after a restart."""
    box.stop()
    box.has_firmware = False  # it has shown that it works
    say(f"second start: login after {box.start():.0f} s")
    box.ssh("admin", "systemctl is-system-running --wait", check=False)
    hold("What is your name?" in box.ssh("owl", "thread list").stdout, "the conversation is there", box)
    hold("fern" in box.ssh("owl", "search fern").stdout, "and what was remembered", box)
    said = box.ssh("admin", "sudo journalctl -b -u systemd-journald --no-pager -o cat | grep 'System Journal'").stdout
    hold("max 200" in said, f"the journal keeps to its size: {said.strip()}", box)
    look(box, card)


def try_updates(box: Box, card: Card, private: bytes) -> None:
    """One that is well, two that are broken; what was remembered is there after each."""
    cases = [
        (1, {}, 0, "version 0.1.1 runs", "0.1.1"),
        (2, {"appliance/__main__.py": trial_versions.broken_at_its_trial}, 1, "not applied, nothing has changed", "0.1.1"),
        (3, {"appliance/service/core.py": trial_versions.broken_as_a_service}, 1, "taken back", "0.1.1"),
    ]
    for number, edits, code, words, runs in cases:
        place = trial_versions.put(box, card, private, number, edits)
        began_s = time.monotonic()
        done = box.ssh("admin", f"sudo owlbox update apply {place}", check=False, limit_s=3600)
        say(f"update {number}: {time.monotonic() - began_s:.0f} s: {' '.join((done.stdout + done.stderr).split())}")
        hold((done.returncode, words in done.stdout) == (code, True), f"it ends with {done.returncode}: {words}", box)
        box.ssh("admin", f"rm {place}")
        told = look_over(box, card)
        hold(told["version"] == runs, f"version {told['version']} runs", box)
        hold(not told["problems"], f"its doctor is content with {told['checks']} things", box)
        hold("fern" in box.ssh("owl", "search fern").stdout, "what was remembered is there", box)
    began_s = time.monotonic()
    done = box.ssh("admin", "sudo owlbox update rollback", check=False, limit_s=3600)
    say(f"rollback: {time.monotonic() - began_s:.0f} s: {' '.join((done.stdout + done.stderr).split())}")
    hold(look_over(box, card)["version"] == "0.1.0", "the version before runs", box)
    hold("fern" in box.ssh("owl", "search fern").stdout, "and what was remembered is there", box)


def try_watchdog(box: Box) -> None:
    """The hardware starts a machine anew whose systemd hangs. This box counts instructions: slowness alone would set it off."""
    box.stop()
    box.has_watchdog = box.counts_instructions = True
    box.start()
    who = box.ssh("admin", "cat /sys/class/watchdog/watchdog0/{identity,state,timeout} | xargs").stdout.strip()
    hold("active" in who, f"systemd keeps the watchdog quiet: {who} s", box)
    box.ssh("admin", "sudo kill -SEGV 1", check=False, limit_s=60)  # it freezes, for somebody to look at
    say(f"the watchdog reset the hung machine after {box.wait_for_end(600):.0f} s")
    box.has_watchdog = box.counts_instructions = False
    say(f"start after the watchdog: login after {box.start():.0f} s")


if __name__ == "__main__":
    sys.exit(main())
