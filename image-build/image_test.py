"""Boots an image in an emulator as its owner would use it: what `make image-test` runs.

    python image-build/image_test.py IMAGE [--arch arm64|amd64] [--kills N] [--keep]

A copy of the image gets a public key, a name and a secret on its boot partition, is put on a larger card and started. Then over
ssh: the card is filled, the screen opens, the local model answers, doctor is content, the secret is in the vault and off the
card, and all of it is still there after a restart. With --kills the emulator is killed N times at moments drawn by chance while
questions are asked, with what it had in memory lost, and every question that was acknowledged must be there afterwards.
amd64 starts through its firmware as a computer does; arm64 on QEMU's `virt` board with the kernel of the card.
"""

import argparse
import json
import os
import pty
import random
import select
import shutil
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

BOOT_AT = "4M"
CARD = 6 << 30
BOOT_LIMIT_S = 900.0
BOARDS = {
    "amd64": ["qemu-system-x86_64", "-M", "q35", "-cpu", "max", "-bios", "/usr/share/ovmf/OVMF.fd"],
    "arm64": ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72"],
}
CONSOLE = {"amd64": "ttyS0", "arm64": "ttyAMA0"}


class Box:
    """An emulated computer with a card in it."""

    def __init__(self, folder: Path, card: Path, arch: str, port: int) -> None:
        self._folder, self._card, self._arch, self._port = folder, card, arch, port
        self._key = folder / "key"
        self._qemu: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Power on; seconds until `admin` may log in."""
        board = [*BOARDS[self._arch]]
        if self._arch == "arm64":
            board += ["-kernel", str(self._folder / "vmlinuz"), "-initrd", str(self._folder / "initrd")]
            board += ["-append", f"root=LABEL=OWLROOT ro fsck.repair=yes net.ifnames=0 console={CONSOLE[self._arch]}"]
        board += ["-accel", "tcg,thread=multi", "-smp", "2", "-m", "2048", "-display", "none", "-no-reboot"]
        board += ["-serial", f"file:{self._folder / 'console.log'}"]
        board += ["-drive", f"if=none,id=card,format=raw,cache=writeback,file={self._card}", "-device", "virtio-blk-pci,drive=card"]
        board += ["-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self._port}-:22", "-device", "virtio-net-pci,netdev=net,romfile="]
        board += ["-device", "virtio-rng-pci"]
        began_s = time.monotonic()
        self._qemu = subprocess.Popen(board, stdin=subprocess.DEVNULL)
        while time.monotonic() - began_s < BOOT_LIMIT_S:
            if self._qemu.poll() is not None:
                raise SystemExit(f"the emulator ended with {self._qemu.returncode}; see {self._folder / 'console.log'}")
            if self.ssh("admin", "true", check=False, limit_s=60).returncode == 0:
                return time.monotonic() - began_s
            time.sleep(1)
        raise SystemExit(f"no login in {BOOT_LIMIT_S:g} s; the console ended with:\n{self.console()}")

    def words(self, user: str) -> list[str]:
        """The beginning of a call of ssh."""
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=30"]
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", "-i", str(self._key), "-p", str(self._port), *flags, f"{user}@127.0.0.1"]

    def ssh(self, user: str, command: str, *, check: bool = True, limit_s: float = 600) -> "subprocess.CompletedProcess[str]":
        """Run a command over ssh; a failure ends the test with what it said."""
        words = [*self.words(user), command]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(words, 255, "", f"no answer in {limit_s:g} s")
        if check and done.returncode != 0:
            raise SystemExit(f"FAILED: {user}: {command}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.journal()}")
        return done

    def screen(self, limit_s: float) -> bytes:
        """What `ssh owl@box` draws in a terminal of 80 by 24 until its tabs are there."""
        pid, handle = pty.fork()
        if pid == 0:
            os.execvp("ssh", [*self.words("owl")[:-1], "-t", self.words("owl")[-1]])
        termios.tcsetwinsize(handle, (24, 80))
        seen, end_s = b"", time.monotonic() + limit_s
        try:
            while time.monotonic() < end_s and b"Threads" not in seen:
                if select.select([handle], [], [], 1)[0]:
                    seen += os.read(handle, 65536)
        except OSError:
            pass
        os.kill(pid, 15)
        os.close(handle)
        os.waitpid(pid, 0)
        return seen

    def journal(self) -> str:
        """The last lines of the box's journal, when it can be reached."""
        return self.ssh("admin", "sudo journalctl -b --no-pager -n 60 -o short-monotonic", check=False, limit_s=120).stdout

    def console(self) -> str:
        """The last lines of the serial console."""
        log = self._folder / "console.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-40:]) if log.exists() else ""

    def stop(self) -> None:
        """Power off in good order."""
        self.ssh("admin", "sudo systemctl poweroff", check=False, limit_s=60)
        assert self._qemu is not None
        try:
            self._qemu.wait(180)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"it did not power off:\n{self.console()}") from None

    def kill(self) -> None:
        """Pull the plug."""
        if self._qemu is not None and self._qemu.poll() is None:
            self._qemu.kill()
            self._qemu.wait()


def main() -> int:
    """Test one image; 0 when everything held."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("image", type=Path)
    words.add_argument("--arch", choices=sorted(BOARDS))
    words.add_argument("--kills", type=int, default=0, help="power cuts at moments drawn by chance")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--port", type=int, default=22022)
    words.add_argument("--keep", action="store_true", help="keep the card and the console's log")
    chosen = words.parse_args()
    arch = chosen.arch or ("arm64" if "arm64" in chosen.image.name else "amd64")
    folder = Path(tempfile.mkdtemp(prefix="owlbox-image-"))
    try:
        box = Box(folder, make_card(chosen.image, folder, arch), arch, chosen.port)
        try:
            try_first_boot(box)
            try_second_boot(box)
            cut_power(box, chosen.kills, random.Random(chosen.seed))
        finally:
            box.kill()
    finally:
        if chosen.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    print("1 passed, 0 failed")
    return 0


def make_card(image: Path, folder: Path, arch: str) -> Path:
    """A larger card with the image on it and what an owner drops on the boot partition."""
    card = folder / "card.img"
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", str(image), str(card)], check=True)
    os.truncate(card, CARD)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    drops = {
        "authorized_keys": (folder / "key.pub").read_text(),
        "hostname": "barnowl\n",
        "secrets.txt": "skill/weather=feather-1234\n",
    }
    drops["timezone"] = "Europe/Berlin\n"
    for name, text in drops.items():
        (folder / name).write_text(text)
        copy = ["mcopy", "-o", "-i", f"{card}@@{BOOT_AT}", str(folder / name), f"::{name}"]
        subprocess.run(copy, check=True, env={**os.environ, "MTOOLS_SKIP_CHECK": "1"})
    if arch == "arm64":  # the board's firmware is the emulator here: it loads the kernel itself
        listed = subprocess.run(["mdir", "-b", "-i", f"{card}@@{BOOT_AT}"], capture_output=True, text=True, check=True)
        listing = listed.stdout.split()
        for kind, to in (("vmlinuz", "vmlinuz"), ("initrd", "initrd")):
            name = next(word for word in listing if kind in word)
            subprocess.run(["mcopy", "-i", f"{card}@@{BOOT_AT}", name, str(folder / to)], check=True)
    return card


def say(what: str, began_s: float | None = None) -> None:
    """One line of progress."""
    print(what if began_s is None else f"{what} ({time.monotonic() - began_s:.0f} s)", flush=True)


def hold(condition: bool, what: str, box: Box) -> None:
    """Fail with the journal unless the condition holds."""
    if not condition:
        raise SystemExit(f"FAILED: {what}\n{box.journal()}")
    say(f"  {what}")


def try_first_boot(box: Box) -> None:
    """Everything that a first start has to do."""
    say(f"first start: login after {box.start():.0f} s")
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
    began_s = time.monotonic()
    box.ssh("owl", "ask 'What is your name?'")
    answer = box.ssh("owl", "ask 'Write one sentence about owls.'", limit_s=1200).stdout
    hold(bool(answer.strip()), f"the local model answers in {time.monotonic() - began_s:.0f} s: {answer.strip()[:90]}", box)
    began_s = time.monotonic()
    drawn = box.screen(300)
    took_s = time.monotonic() - began_s
    hold(b"Threads" in drawn, f"the screen opens over ssh in {took_s:.0f} s, {len(drawn)} bytes, {drawn[-60:]!r}", box)
    box.ssh("owl", "remember 'The spare key lies under the fern.'")
    look_over(box)
    refused = box.ssh("admin", "sudo sshd -T -C user=admin,host=x,addr=10.0.0.9 | grep -i '^passwordauthentication'").stdout
    hold(refused.strip().endswith("no"), "no password is taken at the door", box)


def look_over(box: Box) -> None:
    """doctor finds nothing that is wrong."""
    done = box.ssh("admin", "sudo -u owlbox owlbox doctor --json", check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"FAILED: doctor said {done.stdout[-500:]}{done.stderr[-500:]}") from None
    wrong = [f"{one['name']}: {one['message']}" for one in found if one["state"] == "problem"]
    hold(not wrong, f"doctor is content with {len(found)} things{': ' if wrong else ''}{'; '.join(wrong)}", box)


def try_second_boot(box: Box) -> None:
    """What was said and kept is there after a restart."""
    box.stop()
    say(f"second start: login after {box.start():.0f} s")
    box.ssh("admin", "systemctl is-system-running --wait", check=False)
    hold("What is your name?" in box.ssh("owl", "thread list").stdout, "the conversation is there", box)
    hold("fern" in box.ssh("owl", "search fern").stdout, "and what was remembered", box)


def cut_power(box: Box, kills: int, chance: random.Random) -> None:
    """Power cuts while something is kept; everything acknowledged is there after the next start."""
    kept: list[str] = []
    for count in range(kills):
        end_s = time.monotonic() + chance.uniform(2, 40)
        asking: subprocess.Popen[str] | None = None
        while time.monotonic() < end_s:
            word = f"plumage{count}x{len(kept)}"
            asking = subprocess.Popen([*box.words("owl"), f"remember 'Word {word}.'"], stdout=subprocess.PIPE, text=True)
            while asking.poll() is None and time.monotonic() < end_s:
                time.sleep(0.05)
            if asking.poll() == 0:
                kept.append(word)
        box.kill()
        if asking is not None:
            asking.kill()
            asking.wait()
        after_s = box.start()
        box.ssh("admin", "systemctl is-system-running --wait", check=False)
        look_over(box)
        lost = [word for word in kept if word not in box.ssh("owl", f"search {word}").stdout]
        hold(not lost, f"cut {count + 1} of {kills}: up after {after_s:.0f} s, {len(kept)} kept, lost: {lost or 'none'}", box)


if __name__ == "__main__":
    sys.exit(main())
