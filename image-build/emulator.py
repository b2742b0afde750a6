"""An emulated computer with an image's card in it, for image_test.py and power_cuts.py: started, used over ssh, and cut off."""

import os
import pty
import select
import signal
import socket
import subprocess
import termios
import time
from pathlib import Path

BOOT_AT = "4M"
CARD = 6 << 30
BOOT_LIMIT_S = 1200.0
GREETING_S = 5.0
BOARDS = {
    "amd64": ["qemu-system-x86_64", "-M", "q35,sata=off,smbus=off", "-cpu", "max,la57=off"],
    "arm64": ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72"],
}
COUNTING = ["-accel", "tcg,thread=single", "-icount", "shift=0,align=off,sleep=on"]  # a nanosecond for each instruction
FIRMWARE = ["-bios", "/usr/share/ovmf/OVMF.fd"]
CONSOLE = {"amd64": "ttyS0", "arm64": "ttyAMA0"}


class Card:
    """A larger card with the image on it and what an owner drops on the boot partition. It stays so: boxes get layers.

    A folder that holds a whole card already keeps it.
    """

    def __init__(self, image: Path, folder: Path, arch: str) -> None:
        self.arch, self.folder = arch, folder
        self.key = folder / "key"
        self._base = folder / "card.img"
        if (folder / "initrd").exists():  # the last file below: the card of a run that goes on
            return
        for left in (self._base, self.key, self.key.with_suffix(".pub")):
            left.unlink(missing_ok=True)
        subprocess.run(["cp", "--sparse=always", "--reflink=auto", str(image), str(self._base)], check=True)
        os.truncate(self._base, CARD)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        self.drop("authorized_keys", self.key.with_suffix(".pub").read_text())
        self.drop("hostname", "barnowl\n")
        self.drop("secrets.txt", "skill/weather=feather-1234\n")
        self.drop("timezone", "Europe/Berlin\n")
        listed = self._mtools("mdir", "-b", "-i", self._partition)
        for kind in ("vmlinuz", "initrd"):  # for a start without the firmware
            name = next(word for word in listed.split() if kind in word)
            self._mtools("mcopy", "-n", "-i", self._partition, name, str(folder / f"{kind}.part"))
            os.replace(folder / f"{kind}.part", folder / kind)

    def drop(self, name: str, text: str) -> None:
        """Put a file on the boot partition."""
        self._mtools("mcopy", "-o", "-i", self._partition, str(self.put(name, text)), f"::{name}")

    def put(self, name: str, text: str) -> Path:
        """A file beside the card, to be handed to a box."""
        path = self.folder / name
        path.write_text(text)
        return path

    def layer(self, name: str, below: Path | None = None) -> Path:
        """A card of its own, which keeps only what differs from this one, or from the layer `below`."""
        path = self.folder / f"{name}.qcow2"
        backing = ["-b", str(below or self._base), "-F", "qcow2" if below else "raw"]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(path)], check=True)
        return path

    @property
    def _partition(self) -> str:
        return f"{self._base}@@{BOOT_AT}"

    def _mtools(self, *words: str) -> str:
        environ = {**os.environ, "MTOOLS_SKIP_CHECK": "1"}
        return subprocess.run(words, check=True, capture_output=True, text=True, env=environ).stdout


class Box:
    """An emulated computer with a layer of a card in it."""

    def __init__(self, card: Card, disk: Path, port: int, *, cores: int = 2, has_firmware: bool = True) -> None:
        """Without `has_firmware`, and always on arm64, QEMU loads the kernel itself; with it the machine's firmware does."""
        self._card, self._disk, self._port, self._cores = card, disk, port, cores
        self.has_firmware = has_firmware and card.arch == "amd64"
        self.has_watchdog = False
        self.counts_instructions = False  # its clock moves on with what it computes: nothing is late for being emulated
        self._qemu: subprocess.Popen[bytes] | None = None

    def power_on(self) -> None:
        """Start it, and wait for nothing."""
        arch, folder = self._card.arch, self._card.folder
        board = [*BOARDS[arch]]
        if self.has_firmware:
            board += FIRMWARE
        else:
            board += ["-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd")]
            # no_timer_check: on a busy machine an emulator's ticks are late, and the kernel would give up; panic=-1 ends it.
            # mitigations=off: what a kernel does against speculation is an eighth of an emulated start.
            words = "root=LABEL=OWLROOT ro fsck.repair=yes net.ifnames=0 no_timer_check mitigations=off panic=-1 quiet"
            words += f" console={CONSOLE[arch]}"
            board += ["-append", words]
        board += [
            *(COUNTING if self.counts_instructions else ["-accel", "tcg,thread=multi"]),
            "-smp",
            str(self._cores),
            "-m",
            "2048",
            "-display",
            "none",
            "-nodefaults",
            "-no-reboot",
        ]
        board += ["-serial", f"file:{folder / 'console.log'}"]
        drive = f"if=none,id=card,format=qcow2,cache=writeback,file={self._disk}"
        board += ["-drive", drive, "-device", "virtio-blk-pci,drive=card"]
        board += ["-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self._port}-:22", "-device", "virtio-net-pci,netdev=net,romfile="]
        board += ["-device", "virtio-rng-pci"]
        if self.has_watchdog:  # the only one that the kernel of both knows
            board += ["-device", "i6300esb", "-action", "watchdog=reset"]
        self._qemu = subprocess.Popen(board, stdin=subprocess.DEVNULL)

    def start(self) -> float:
        """Power on; seconds until `admin` may log in."""
        began_s = time.monotonic()
        self.power_on()
        assert self._qemu is not None
        while time.monotonic() - began_s < BOOT_LIMIT_S:
            if self._qemu.poll() is not None:
                raise SystemExit(f"the emulator ended with {self._qemu.returncode}; the console ended with:\n{self.console()}")
            if self._greets() and self.ssh("admin", "true", check=False, limit_s=60).returncode == 0:
                return time.monotonic() - began_s
            time.sleep(0.5)
        raise SystemExit(f"no login in {BOOT_LIMIT_S:g} s; the console ended with:\n{self.console()}")

    def _greets(self) -> bool:
        """Whether its sshd says something. A connection that QEMU took too early would be tried again much too late."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), GREETING_S) as stream:
                return stream.recv(4) == b"SSH-"
        except OSError:
            return False

    def words(self, user: str) -> list[str]:
        """The beginning of a call of ssh. Calls of one start share a connection: an emulator is slow at handshakes."""
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=30"]
        assert self._qemu is not None
        shared = self._card.folder / f"ssh-{self._qemu.pid}-%r"
        options += ["ControlMaster=auto", "ControlPersist=600", f"ControlPath={shared}"]
        flags = [word for option in options for word in ("-o", option)]
        return ["ssh", "-i", str(self._card.key), "-p", str(self._port), *flags, f"{user}@127.0.0.1"]

    def ssh(
        self, user: str, command: str, *, check: bool = True, limit_s: float = 900, stdin: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command over ssh; a failure ends the test with what it said."""
        words = [*self.words(user), command]
        try:
            with (stdin or Path(os.devnull)).open("rb") as given:
                done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, stdin=given)
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(words, 255, "", f"no answer in {limit_s:g} s")
        if check and done.returncode != 0:
            raise SystemExit(f"FAILED: {user}: {command}: {done.returncode}\n{done.stdout}{done.stderr}\n{self.journal()}")
        return done

    def put(self, file: Path, to: str) -> None:
        """Copy a file to a place that admin may write to."""
        self.ssh("admin", f"cat >{to}", stdin=file)

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
        os.kill(pid, signal.SIGTERM)
        os.close(handle)
        os.waitpid(pid, 0)
        return seen

    def journal(self) -> str:
        """The last lines of the box's journal, when it can be reached."""
        return self.ssh("admin", "sudo journalctl -b --no-pager -n 60 -o short-monotonic", check=False, limit_s=120).stdout

    def console(self) -> str:
        """The last lines of the serial console."""
        log = self._card.folder / "console.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-40:]) if log.exists() else ""

    def stop(self) -> None:
        """Power off in good order."""
        self.ssh("admin", "sudo systemctl poweroff", check=False, limit_s=60)
        assert self._qemu is not None
        try:
            self._qemu.wait(300)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"it did not power off:\n{self.console()}") from None

    def wait_for_end(self, limit_s: float) -> float:
        """Seconds until the emulator ended by itself, as it does when the machine is reset."""
        assert self._qemu is not None
        began_s = time.monotonic()
        try:
            self._qemu.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"it was not reset within {limit_s:g} s:\n{self.console()}") from None
        return time.monotonic() - began_s

    def photograph(self, path: Path) -> None:
        """The card as it would be had the plug been pulled now: what the emulator had in memory is not in it."""
        assert self._qemu is not None and self._qemu.poll() is None
        self._qemu.send_signal(signal.SIGSTOP)
        try:
            subprocess.run(["cp", "--sparse=always", "--reflink=auto", str(self._disk), str(path)], check=True)
        finally:
            self._qemu.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Pull the plug."""
        if self._qemu is not None and self._qemu.poll() is None:
            self._qemu.kill()
            self._qemu.wait()
