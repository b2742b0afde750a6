"""What the screen says at 80 by 24 when a part fails: cause and next step in whole sentences, and the cause in its last line."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import leave_out, needs
from process import Box, Core, a_box, clean_environ, script, send  # noqa: F401
from screens import Seen, show
from stores import new_home

from appliance.cli.screen import CoreChild
from appliance.runtime import paths
from appliance.runtime.paths import Home

ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
PLAY = """
[[turns]]
match = "slow"
repeat = true
text = "one two three four five six seven eight nine ten eleven twelve"
chunk_size = 4
chunk_delay_s = 0.3
[[turns]]
repeat = true
text = "Hoot hoot."
"""
AWAY = """
[models]
pool = "default"
local_only = false
[pools]
default = ["acme/big"]
[providers.acme]
base_url = "http://127.0.0.1:9/v1"
"""


def mount(*words: str) -> None:
    if subprocess.run(["mount", *words], capture_output=True).returncode:
        leave_out(f"cannot mount here: {' '.join(words)}")


@pytest.fixture(name="small")
def a_box_on_a_small_disk(tmp_path: Path, runtime: Path) -> Iterator[Box]:
    """A home on a disk of its own."""
    place = runtime / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(place))
    try:
        box = Box(Home(place / "home"), clean_environ(tmp_path, runtime))
        new_home(box.home)
        script(box, PLAY)
        yield box
        for child in box.children:
            child.kill()
            child.wait(60)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def sentence(seen: Seen, box: Box) -> str:
    """The screen without white space, so that it does not matter where a long path made a line end."""
    return "".join("".join(line.strip(" ▁▂▃▄▅▆▇▎") for line in seen.lines()).split()).replace(str(box.home.root), "HOME")


async def says(seen: Seen, box: Box, *wanted: str) -> None:
    """Wait until all of these sentences stand on the screen."""
    short = ["".join(one.split()) for one in wanted]
    await seen.until(lambda: all(one in sentence(seen, box) for one in short), f"{wanted} in\n{sentence(seen, box)}")


def last_line(seen: Seen) -> str:
    return seen.lines()[-2].strip()


@needs(root=True)
def test_a_full_disk(small: Box) -> None:
    core = small.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        with (small.home.root.parent / "filling").open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(65536))
                except OSError:
                    break
        await seen.type("hello there")
        fault = "the disk is 100% full: no session was opened (free some space: owlbox doctor disk says how; owlbox maintain --now"
        await says(seen, small, f"hello there (not sent) {fault} archives what is idle)")
        await seen.until(lambda: last_line(seen).startswith("● disk full, /status"), "the last line says so")
        await seen.type("/status")
        await says(seen, small, "problem disk full: nothing was written to HOME (free some space and try again)")

    show(ENVIRON, core.box.runtime, scenario)


@needs(root=True)
def test_a_read_only_disk(small: Box) -> None:
    assert small.serve().stop() == 0
    mount("-o", "remount,ro", str(small.home.root.parent))
    core = small.serve()

    async def scenario(seen: Seen) -> None:
        await seen.shows("● the disk is read-only, /status")
        await seen.type("hello there")
        next_step = "(what is stored can be read; dmesg says why the kernel stopped writing; save a copy: owlbox backup --to DIR)"
        await says(seen, small, f"hello there (not sent) the disk is read-only: nothing was written to HOME/owlbox.db {next_step}")

    show(ENVIRON, core.box.runtime, scenario)


def test_a_damaged_database(box: Box) -> None:
    """The screen has started the core itself, and repeats what that said when it ended; once, however often it is tried."""
    with box.home.database.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 65536)
    child = CoreChild(box.home, paths.core_socket(box.runtime), box.environ)
    child.start()

    async def scenario(seen: Seen) -> None:
        await says(
            seen, box, "The core cannot start: database HOME/owlbox.db is damaged", "owlbox doctor --repair saves what it can"
        )
        await seen.pilot.pause(3)
        assert sentence(seen, box).count("Thecorecannotstart") == 1
        assert last_line(seen).startswith("○ connecting · next try in ")

    try:
        show(ENVIRON, box.runtime, scenario, revive=child.revive)
    finally:
        child.stop()


def test_a_core_of_somebody_else_that_is_gone(box: Box) -> None:
    core = box.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        core.kill()
        await seen.until(lambda: last_line(seen).endswith("owlbox doctor shows why"), "what to do")
        assert last_line(seen).startswith("○ core away · next try in ")
        await seen.type("/status")
        await seen.shows("the core is away (owlbox doctor shows why)")

    show(ENVIRON, box.runtime, scenario)


def test_a_model_process_that_is_killed_in_an_answer(box: Box) -> None:
    script(box, PLAY)
    core = box.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("slow one")
        await seen.shows("one two")
        send(core.broker_pid(), signal.SIGKILL)
        cause = "The answer was interrupted: the model process was killed, most likely because memory ran out"
        next_step = "(choose a smaller model or window: owlbox model list, models.context in owlbox.toml). Ask again to go on."
        await says(seen, box, f"{cause} {next_step}")
        await seen.type("/status")
        await says(
            seen,
            box,
            "problem the model process was killed, most likely because memory ran out, and starts again when needed",
        )
        await seen.type("hello there")
        await seen.shows("Hoot hoot.")

    show(ENVIRON, core.box.runtime, scenario)


def test_a_model_file_that_is_gone(box: Box) -> None:
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    core = box.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("hello there")
        await says(seen, box, "hello there no model in HOME/models (owlbox model add smollm2)")

    show(ENVIRON, core.box.runtime, scenario)


def test_no_network(box: Box) -> None:
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    box.home.config.write_text(AWAY)
    core = box.serve()

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("hello there")
        await seen.shows("… acme cannot be reached: waiting for the network")
        await seen.until(lambda: " · thinking " in last_line(seen), "it goes on trying")
        await says(seen, box, "The model's provider cannot be reached:", "Try again when the network is back")

    show(ENVIRON, core.box.runtime, scenario)
