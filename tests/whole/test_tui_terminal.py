"""The real `owlbox` in a real terminal (tmux): typed at, killed under, left again."""

import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import needs
from process import ROOT, Box, a_box, is_gone, script, send, until  # noqa: F401

from appliance.errors import OwlError
from appliance.runtime import paths
from appliance.runtime.rpc_client import Client

pytestmark = needs("tmux")
MOST_RSS_MB = 80
PLAY = """
[[turns]]
match = "slow"
repeat = true
text = "SLOW"
chunk_size = 4
chunk_delay_s = 0.2
[[turns]]
repeat = true
text = "**Hoot** hoot, see [box://notes/garden.md]."
""".replace("SLOW", "one two three four " * 60)


class Terminal:
    """A terminal of its own, in which one command runs."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.box = box
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._record = folder / "written"

    def open(self, width: int, height: int, *words: str, **environ: str) -> None:
        """Start `owlbox WORDS` at a size; its exit code is shown when it ends."""
        command = " ".join(self.box.command(*words)) + "; echo EXIT $?; exec sleep 1000"
        size = ["-x", str(width), "-y", str(height)]
        given = {**self.box.environ, "TERM": "xterm-256color", **environ}
        subprocess.run([*self._tmux, "new-session", "-d", *size, command], env=given, check=True, cwd=ROOT)
        self._run("pipe-pane", f"cat >> {shlex.quote(str(self._record))}")

    def text(self) -> str:
        """What stands on the screen."""
        return self._run("capture-pane", "-p")

    def coloured_text(self) -> str:
        """The same with the codes of its colours."""
        return self._run("capture-pane", "-pe")

    def keys(self, *keys: str) -> None:
        """Press keys by their tmux names."""
        self._run("send-keys", *keys)

    def shows(self, *words: str) -> None:
        """Wait until all of these stand on the screen."""
        try:
            until(lambda: all(word in self.text() for word in words), f"{words} on the screen")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None

    def is_connected(self, *words: str) -> None:
        """Wait until the core is there, and these words."""
        until(lambda: re.search(r"[●*] (connected|script)\b", self.text()) is not None, "a core")
        self.shows(*words)

    def written(self) -> int:
        """How many bytes have been written to it by now."""
        return self._record.stat().st_size if self._record.exists() else 0

    def showed(self, word: str, since: int) -> None:
        """Wait until this was written to the screen after so many bytes, however short it stood there."""
        until(lambda: word.encode() in self._record.read_bytes()[since:], f"{word} written to the screen")

    def is_rung(self) -> bool:
        """Whether the bell has been rung."""
        return self._run("display-message", "-p", "#{window_bell_flag}") == "1\n"

    def has_mouse(self) -> bool:
        """Whether clicks go to the command; else the terminal selects text with them."""
        return self._run("display-message", "-p", "#{mouse_any_flag}") == "1\n"

    def resize(self, width: int, height: int) -> None:
        """Another size."""
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def pid(self) -> int:
        """The process of the command."""
        shell = int(self._run("display-message", "-p", "#{pane_pid}"))
        return int(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()[0])

    def close(self) -> None:
        """End the terminal and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def terminal(box: Box, runtime: Path) -> Iterator[Terminal]:
    """A terminal for a home with a scripted model; the core the screen starts ends with it."""
    script(box, PLAY)
    (box.home.box / "BOOTSTRAP.md").unlink()  # the first questions are answered
    made = Terminal(box, runtime)
    yield made
    pid = core_pid(box)
    made.close()
    if pid and pid not in [child.pid for child in box.children]:
        until(lambda: is_gone(pid), "the core ends with its screen")


def core_pid(box: Box) -> int:
    """The core that answers now, 0 when none does."""
    try:
        with Client(str(paths.core_socket(box.runtime)), name="test", timeout_s=60) as client:
            return int(client.server["pid"])
    except OwlError:
        return 0


def rss_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


@pytest.mark.covers("A-022")
def test_screen_starts_its_core_survives_its_death_and_takes_it_along(terminal: Terminal):
    terminal.open(120, 40)
    terminal.is_connected("I am your owl")
    terminal.keys("hello there", "Enter")
    terminal.shows("▌ hello there", "Hoot hoot, see [notes/garden.md].", "context")
    terminal.keys("still typing")
    first, written = core_pid(terminal.box), terminal.written()
    send(first, signal.SIGKILL)
    terminal.showed("core away", written)
    terminal.shows("● ", "│ still typing")
    second = core_pid(terminal.box)
    assert second not in (0, first)
    terminal.keys("Enter")
    terminal.shows("▌ still typing")
    until(lambda: terminal.text().count("Hoot hoot") == 2, "the second answer")
    assert rss_mb(terminal.pid()) < MOST_RSS_MB
    terminal.keys("C-c")
    terminal.shows("EXIT 0")
    assert "Ask the owl" not in terminal.text()  # the terminal is as it was, and says how to go on
    assert "owlbox chat --thread" in terminal.text()
    until(lambda: is_gone(second), "its core is gone")


def test_core_of_somebody_else_is_neither_started_nor_stopped(terminal: Terminal):
    core = terminal.box.serve()
    terminal.open(80, 24, "chat", "-p", "'slow one'")
    terminal.shows("▌ slow one", "one two")
    core.kill()
    terminal.shows("○ core away")
    assert core_pid(terminal.box) == 0
    core = terminal.box.serve()
    terminal.shows("● ", "The answer was interrupted")
    terminal.keys("/quit", "Enter")
    terminal.shows("EXIT 0")
    assert core_pid(terminal.box) == core.child.pid


def test_keys_of_a_terminal(terminal: Terminal):
    terminal.open(80, 24)
    terminal.is_connected()
    terminal.keys("one", "C-j", "two", "M-Enter", "three\\", "Enter", "four")
    terminal.shows("│ one", "│ two", "│ three ", "│ four")
    terminal.keys("Enter")
    terminal.shows("▌ one", "▌ four", "Hoot")
    assert terminal.has_mouse()
    for word in ("off", "on"):
        terminal.keys(f"/mouse {word}", "Enter")
        until(lambda: terminal.has_mouse() == (word == "on"), f"the mouse is {word}")  # noqa: B023 - it is called at once
    terminal.keys("Tab")
    terminal.shows("/ filters by name and arguments")
    terminal.keys("3")
    terminal.shows("/ searches what the owl knows")
    terminal.keys("BTab", "BTab")
    terminal.shows("▌ four")
    terminal.resize(40, 10)
    terminal.shows("Hoot")
    terminal.resize(100, 30)
    terminal.shows("▌ one", "Hoot")


@pytest.mark.covers("A-248", "A-257")
def test_a_reminder_rings_on_an_open_screen(terminal: Terminal):
    terminal.open(80, 24)
    terminal.is_connected()
    assert terminal.box.run("remind", "nap", "in", "2", "seconds").returncode == 0
    terminal.shows("Reminder: nap  (Esc closes)")
    assert terminal.is_rung()
    terminal.keys("Escape")
    until(lambda: "Esc closes" not in terminal.text(), "the banner is closed")


def test_hang_up_ends_screen_and_core(terminal: Terminal):
    terminal.open(80, 24)
    terminal.is_connected()
    screen, core = terminal.pid(), core_pid(terminal.box)
    terminal.close()
    until(lambda: is_gone(screen) and is_gone(core), "both are gone")


def test_ascii_terminal_without_colours(terminal: Terminal):
    terminal.open(80, 24, LC_ALL="C", NO_COLOR="1")
    terminal.is_connected("+------")
    terminal.keys("hello", "Enter")
    terminal.shows("| hello", "Hoot hoot, see")
    assert terminal.text().isascii()
    assert not re.search(r"\x1b\[[0-9;]*\b([34][0-7]|[34]8|9[0-7]|10[0-7])\b", terminal.coloured_text())


@pytest.mark.parametrize("words", [(), ("tui",), ("chat",)])
def test_without_a_home_it_says_how_to_make_one(terminal: Terminal, words: tuple[str, ...]):
    shutil.rmtree(terminal.box.home.root)
    terminal.open(200, 10, *words)
    terminal.shows("owlbox: no owlbox home at", "make one: owlbox init", "EXIT 3")


def test_core_that_cannot_start_says_why(terminal: Terminal):
    terminal.box.home.config.write_text("[systen]\nlevel = 1\n")
    terminal.open(120, 24)
    terminal.shows("○ connecting", "systen")
    terminal.box.home.config.write_text("")
    terminal.is_connected()


def test_in_a_pipe_it_is_plain_lines(box: Box):
    script(box, PLAY)
    done = box.run(text="hello\n")
    assert done.returncode == 0 and "**Hoot** hoot" in done.stdout and "\x1b" not in done.stdout
