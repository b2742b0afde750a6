"""A screen that works for somebody else, in a browser or behind ssh, touches no file of the machine that it runs on."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process import Core, script, standing_core
from screens import Seen, show

from appliance.runtime.rpc_client import SSH_KEY
from appliance.tui.app import PANELS
from appliance.tui.commands import COMMANDS

PLAY = '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n'
LEAVING = {"ctrl+c", "ctrl+q", "ctrl+d"}
OWN = tuple(str(Path(one).resolve()) for one in (sys.prefix, sys.base_prefix, Path(__file__).parents[2], "/proc", "/dev", "/usr"))
WRITING = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.listdir",
           "os.scandir", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "shutil.copyfile")  # fmt: skip


class Watch:
    """What this process does with files while it watches; an audit hook stays for good, so it is told to look away."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.is_on or not (event == "open" or event in WRITING):
            return
        path = os.fsdecode(given[0]) if given and isinstance(given[0], str | bytes | os.PathLike) else repr(given[:1])
        is_reading = event in ("os.listdir", "os.scandir") or (event == "open" and not given[2] & (os.O_WRONLY | os.O_RDWR))
        if not (is_reading and str(Path(path).resolve()).startswith(OWN)):
            self.seen.append(f"{event} {path}")


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with standing_core(lambda box: script(box, PLAY)) as made:
        yield made


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.is_on = False


@pytest.mark.covers("A-172", "S-126")
def test_no_command_and_no_key_touches_a_file(core: Core, watch: Watch, tmp_path: Path) -> None:
    victim = tmp_path / "victim.toml"
    victim.write_text("precious = 1\n")

    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.app.chat.send("hello owl")
        await seen.shows("Hoot hoot.", "context")
        watch.is_on = True
        await seen.app.chat.execute(f"/export {victim}")
        await seen.shows("/export writes the file on this computer")
        for command in COMMANDS:
            for argument in (*([""] if command.name != "quit" else []), *([f" {tmp_path}/new"] if command.argument else [])):
                await seen.app.chat.execute(f"/{command.name}{argument}")
                await _close_all(seen)
        pressed: set[tuple[str, type, str]] = set()
        for panel in PANELS:
            seen.app.action_panel(panel.LABEL.lower())
            await seen.pilot.pause()
            bound = {(key, type(one.node), one.binding.action) for key, one in seen.app.screen.active_bindings.items()}
            for key, *_ in bound - pressed:  # what all panels have in common is pressed on the first
                if key not in LEAVING:
                    seen.app.simulate_key(key)
                    await asyncio.sleep(0)
            pressed |= bound
            await seen.pilot.pause()
            await _close_all(seen)
        watch.is_on = False

    try:
        show({"TERM": "xterm-256color", "LANG": "C.UTF-8", SSH_KEY: ""}, core.box.runtime, scenario)
    finally:
        watch.is_on = False
    assert watch.seen == []
    assert victim.read_text() == "precious = 1\n" and sorted(one.name for one in tmp_path.iterdir()) == ["victim.toml"]


async def _close_all(seen: Seen) -> None:
    while len(seen.app.screen_stack) > 1:
        await seen.pilot.pause()
        await seen.until(lambda: seen.app.screen.is_mounted, "what has just come is whole before it goes")
        if len(seen.app.screen_stack) > 1:
            seen.app.pop_screen()
    seen.app.action_panel("chat")
