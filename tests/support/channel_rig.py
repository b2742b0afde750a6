"""A core in this process with channels that run, a scripted model beside it; and a program that is one and kills itself.

`python channel_rig.py HOME STEP` serves channels until it passes STEP, where it ends as by kill -9; without STEP until its standard
input ends.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from process import ROOT, clean_environ, until
from stores import new_home

from appliance.clock import new_id
from appliance.runtime import config_edit
from appliance.runtime.crash_points import CrashPoint, Passed, nobody
from appliance.runtime.paths import Home
from appliance.service.core import Core

PLAY = """
[[turns]]
match = "long"
repeat = true
text = "one two three four five six seven eight nine ten"
chunk_size = 4
chunk_delay_s = 0.25
[[turns]]
match = "boiler manual"
tool_calls = [{name = "delegate", arguments = {agent = "worker", task = "Send the person the boiler manual"}}]
[[turns]]
match = "boiler manual"
tool_calls = [{name = "message", arguments = {file = "boiler manual"}}]
[[turns]]
match = "boiler manual"
text = "Sent."
[[turns]]
match = "boiler manual"
text = "It is on its way."
[[turns]]
repeat = true
text = "**Hoot** hoot <b>."
"""
LONG = "one two three four five six seven eight nine ten"
SAID = "**Hoot** hoot <b>."


@dataclass
class Rig:
    """A core and what is asked of it in tests of channels."""

    core: Core

    @contextmanager
    def tier(self, name: str) -> Iterator[None]:
        """Let the program decide for the model, as before a tiny one."""
        for one in (name, "auto"):
            config_edit.set_text(self.core.base.home, {}, "models", "tier", one)
            self.core.reload()
            if one == name:
                yield

    def put_manual(self) -> bytes:
        """Put a manual into the folder; its bytes."""
        data = b"%PDF-1.4 boiler"
        path = self.core.base.home.box / "manuals" / "Boiler manual.pdf"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return data

    def messages(self) -> list[str]:
        """Everything that people said and was stored."""
        rows = self.core.store.rows("SELECT content FROM events WHERE kind = 'message' AND role = 'user' ORDER BY id")
        return [str(row[0]) for row in rows]

    def state(self, name: str) -> Any:
        """What a channel says of itself."""
        return next(one for one in self.core.connections.list_states() if one.name == name)

    def until_connected(self, name: str) -> None:
        """Wait for it."""
        until(lambda: self.state(name).state == "connected", lambda: f"{name}: {self.state(name)}")

    def quiet(self) -> bool:
        """Whether nothing is answered and nothing waits to be sent."""
        # First: an answer that ends between the looks is in the outbox by then; what is stored has perhaps not begun.
        if self.core.runs.waiting() or self.core.inbox.busy():
            return False
        counts = self.core.outbox.counts()
        return not counts.get("waiting") and not counts.get("sending")

    def marks(self, text: str) -> list[str]:
        """The origins of untrusted text in the thread in which somebody said this."""
        sql = "SELECT run FROM events WHERE kind = 'message' AND role = 'user' AND content LIKE ? ORDER BY id DESC LIMIT 1"
        run = self.core.store.value(sql, (f"%{text}%",))
        return [mark.origin for mark in self.core.runs.marks.of(f"run:{run}")]

    def session_of(self, text: str) -> tuple[str, str, str]:
        """Session, context and run in which somebody said this."""
        sql = (
            "SELECT s.id, s.context, e.run FROM events e JOIN runs r ON r.id = e.run JOIN sessions s ON s.id = r.session "
            "WHERE e.kind = 'message' AND e.role = 'user' AND e.content LIKE ? ORDER BY e.id DESC LIMIT 1"
        )
        row = self.core.store.row(sql, (f"%{text}%",))
        assert row is not None, f"nobody said {text}: {self.messages()}"
        return str(row[0]), str(row[1]), str(row[2])


def settings(table: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Keys of a table as variables of the environment."""
    import json

    shown = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    return {f"OWLBOX__{table.replace('.', '__').upper()}__{key.upper()}": value for key, value in shown.items()}


@contextmanager
def running(
    folder: Path, environ: Mapping[str, str], *, passed: Passed = nobody, prepare: Callable[[Core], None] = lambda core: None
) -> Iterator[Rig]:
    """A core whose channels and sender run, on the home in a folder, made when there is none yet."""
    runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
    runtime.mkdir(0o700)
    home = Home(folder / "home")
    if not home.database.exists():
        new_home(home)
    (folder / "script.toml").write_text(PLAY)
    given = {"OWLBOX__MODELS__SCRIPT": str(folder / "script.toml"), "OWLBOX__RUNS__TITLES": "words"}
    core = Core(home, clean_environ(folder, runtime) | given | environ, process="cli", is_shared=False, passed=passed)
    core.recover()
    prepare(core)
    core.queue.courier.start()
    core.connections.start()
    core.inbox.start_waiting()
    try:
        yield Rig(core)
        core.connections.close()
        assert core.close("the test is over") == []
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


@contextmanager
def serving(folder: Path, environ: Mapping[str, str], step: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """The same as a process of its own, which kills itself when it passes a step."""
    given = {**clean_environ(folder, folder), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/support'}", **environ}
    words = [sys.executable, str(ROOT / "tests/support/channel_rig.py"), str(folder), step]
    with subprocess.Popen(words, env=given, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def kill_at(step: str, folder: Path, environ: Mapping[str, str]) -> None:
    """Let a process take what waits for it, and die at a step."""
    with serving(folder, environ, step) as child:
        code = child.wait(90)
        assert code == -signal.SIGKILL, child.stderr.read().decode() if child.stderr else ""


def main() -> None:
    """Serve as a process of its own."""
    folder, step = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""

    def passed(reached: CrashPoint) -> None:
        if reached.name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    environ = {name: value for name, value in os.environ.items() if name.startswith("OWLBOX__")}
    with running(folder, environ, passed=passed):
        sys.stdin.read()


if __name__ == "__main__":
    main()
