"""The screen over a real sshd on loopback, beside another terminal program in the same run. `make bench-screen`.

    python tests/bench/bench_screen.py [--beside FILE --beside-shows TEXT] [--idle SECONDS] [--json FILE]

Measured for both: from the start of `ssh` until the input line is drawn, and from a key until its letter comes back (median and
worst of 40). For the screen also: bytes for 1,000 streamed words, its memory then, and its share of a processor on each tab
while nobody types. `ssh` alone, running `true`, stands beside them. Knows nothing about what is good enough.
"""

import argparse
import fcntl
import json
import os
import pty
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import figures
from process import Box, Core, end, script, standing_core, until
from sshd import LAX, SSHD, USER, free_port, is_listening

from appliance.clock import monotonic_s, sleep_s

WORDS = 300
PARAGRAPH = "word " * 40
BREAK = "\\n\\n"
PLAY = f"""
[[turns]]
repeat = true
text = "{(PARAGRAPH + BREAK) * (WORDS // 40)}"
chunk_size = 5
chunk_delay_s = 0.02
"""
CODES = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>()][0-9A-B]?")
LETTERS = "qwzjvxkq" * 5
TABS = "chat tools context tasks threads schedules workers help".split()
KEYS = ("\x1bOP", "\x1bOQ", "\x1bOR", "\x1bOS", "\x1b[15~", "\x1b[17~", "\x1b[18~", "\x1b[19~")  # F1 to F8
TICKS = os.sysconf("SC_CLK_TCK")


class Line:
    """A program on a terminal of 80 by 24 of its own."""

    def __init__(self, words: list[str]) -> None:
        self.began_s = monotonic_s()
        pid, self._master = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execvp(words[0], words)
        self.pid = pid
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.written = b""

    def read(self, seconds: float) -> bytes:
        """What comes within a time; returns as soon as something has."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        try:
            more = os.read(self._master, 65536) if ready else b""
        except OSError:
            more = b""
        self.written += more
        return more

    def shows(self, text: str, limit_s: float = 60.0) -> float:
        """Seconds from the beginning until a text was drawn."""
        before = monotonic_s()
        while text.encode() not in CODES.sub(b"", self.written):
            if monotonic_s() - before > limit_s:
                raise AssertionError(f"{text!r} is not drawn: {CODES.sub(b'', self.written)[-600:]!r}")
            self.read(0.5)
        return monotonic_s() - self.began_s

    def quiet(self, seconds: float) -> None:
        """Read until nothing has come for a time."""
        while self.read(seconds):
            pass

    def settle(self, seconds: float) -> None:
        """Read for a time, whatever comes."""
        end_s = monotonic_s() + seconds
        while (left_s := end_s - monotonic_s()) > 0:
            self.read(left_s)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def echo_s(self, letter: str) -> float:
        """Seconds from a key until its letter is drawn."""
        self.settle(0.1)
        begun_s, drawn = monotonic_s(), b""
        self.type(letter)
        while letter.encode() not in CODES.sub(b"", drawn):
            drawn += self.read(1.0)
            if monotonic_s() - begun_s > 10:
                raise AssertionError(f"the letter {letter} is not drawn: {drawn[-200:]!r}")
        return monotonic_s() - begun_s

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._master)


@contextmanager
def plain_sshd(folder: Path) -> Iterator[list[str]]:
    """An sshd that runs what it is asked to; the words that log in there."""
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "sshd").write_text(LAX.format(folder=folder))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    port = free_port()
    child = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "sshd"), "-p", str(port)], stderr=subprocess.DEVNULL)
    options = "BatchMode=yes StrictHostKeyChecking=no UserKnownHostsFile=/dev/null LogLevel=ERROR IdentitiesOnly=yes".split()
    try:
        until(lambda: is_listening(port), "sshd listens")
        words = ["ssh", "-tt", "-F", "none", "-i", str(folder / "key"), *(f"-o{one}" for one in options), "-p", str(port)]
        yield [*words, f"{USER}@127.0.0.1"]
    finally:
        end(child)


def launcher(folder: Path, name: str, given: dict[str, str], command: str) -> str:
    """A file that runs a command with an environment."""
    path = folder / name
    path.write_text("#!/bin/sh\n" + "".join(f"export {key}='{value}'\n" for key, value in given.items()) + f"exec {command}\n")
    path.chmod(0o755)
    return str(path)


def face_of(line: Line, shown: str) -> dict[str, Any]:
    """First paint and echo."""
    painted_s = line.shows(shown)
    line.settle(3.0)
    echoes = [line.echo_s(letter) for letter in LETTERS]
    return {
        "first_paint_ms": round(1000 * painted_s),
        "echo_ms": round(1000 * statistics.median(echoes), 1),
        "echo_worst_ms": round(1000 * max(echoes), 1),
    }


def screen_pid(box: Box) -> int:
    """The process of the screen."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if str(box.home.root).encode() in words and b"tui" in words:
            return int(path.parent.name)
    raise AssertionError("no screen runs")


def cpu_s(pid: int) -> float:
    """Seconds of a processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def measure(core: Core, login: list[str], folder: Path, idle_s: float) -> dict[str, Any]:
    """The screen."""
    given = {**core.box.environ, "OWLBOX_HOME": str(core.box.home.root)}
    owlbox = launcher(folder, "owlbox", given, f"{sys.executable} -m appliance --home {core.box.home.root} tui")
    line = Line([*login, owlbox])
    try:
        found = face_of(line, "Ask the owl, or type")
        line.type("\x7f" * len(LETTERS))
        line.quiet(1.0)
        pid, before = screen_pid(core.box), len(line.written)
        found["rss_mb"] = round(rss_mb(pid), 1)
        line.type("go\r")
        line.quiet(3.0)  # while an answer runs, its seconds are drawn
        thread = core.call("thread.list", limit=1)[0]["id"]
        words = len(core.call("thread.view", id=thread)["events"][-1]["content"].split())
        found["words"], found["bytes_per_1000_words"] = words, round(1000 * (len(line.written) - before) / words)
        found["rss_after_mb"] = round(rss_mb(pid), 1)
        idle = {}
        for number, tab in enumerate(TABS, 1):
            line.type(KEYS[number - 1])
            line.settle(2.0)
            used, since, drawn = cpu_s(pid), monotonic_s(), len(line.written)
            while monotonic_s() - since < idle_s:
                line.read(0.5)
            idle[tab] = {
                "cpu_percent": round(100 * (cpu_s(pid) - used) / (monotonic_s() - since), 2),
                "bytes_per_minute": round(60 * (len(line.written) - drawn) / (monotonic_s() - since)),
            }
        return {**found, "idle": idle}
    finally:
        line.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", default="", help="another terminal program, such as elia")
    parser.add_argument("--beside-shows", default="", help="what it draws when its input line is there")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds on each tab")
    parser.add_argument("--json", default="", metavar="FILE")
    given = parser.parse_args()

    def prepare(box: Box) -> None:
        (box.home.box / "BOOTSTRAP.md").unlink()
        script(box, PLAY)

    with tempfile.TemporaryDirectory(prefix="owl-bench-", dir="/tmp") as name, standing_core(prepare) as core:
        folder = Path(name)
        with plain_sshd(folder) as login:
            begun_s = monotonic_s()
            subprocess.run(
                [*login, "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
            )
            found: dict[str, Any] = {"ssh_alone_ms": round(1000 * (monotonic_s() - begun_s))}
            if given.beside:
                env = {"PATH": os.environ["PATH"], "HOME": name, "LANG": "C.UTF-8", "XDG_CONFIG_HOME": name, "XDG_DATA_HOME": name}
                for _ in range(2):  # the first start makes its files
                    line = Line([*login, launcher(folder, "beside", env, given.beside)])
                    try:
                        found["beside"] = {"program": Path(given.beside).name, **face_of(line, given.beside_shows)}
                    finally:
                        line.close()
                    sleep_s(1.0)
            found["owlbox"] = measure(core, login, folder, given.idle)
    print(json.dumps(found, indent=2))
    figures.write(given.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
