"""Whole lives of messages, letters, tasks and dropped files, each in a process of its own that may end itself at a step.

`Nursery` forks them from a process that has everything imported already: that saves two seconds a life. The steps
that are passed go into a file, in their order. Knows nothing about what must hold afterwards.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import quick
from process import LIMIT_S, ROOT, until
from record_tools import asdict

from appliance.clock import new_id, now_ms
from appliance.records import Inbound, Outbound
from appliance.runtime.crash_points import CrashPoint
from appliance.runtime.paths import Home
from appliance.service.core import Core
from appliance.sessions.outbox import Notification
from appliance.work.tasks import NewTask
from appliance.work.worker import WorkerOptions
from appliance.work.worker_log import PhaseLog

LINES = "lines"
DONE = "done"  # last line of the file of steps: the life went to its end


@dataclass(frozen=True)
class Given:
    """Where a life takes place; the process ends itself when it passes `step` the `nth` time; `text` is what is asked."""

    home: str
    environ: dict[str, str]
    trace: str
    text: str
    step: str = ""
    nth: int = 1


class Lines:
    """A door that appends to a file and remembers nothing, as mail does."""

    is_idempotent = False

    def __init__(self, path: Path) -> None:
        self._path = path

    def deliver(self, message: Outbound) -> None:
        """One more line, kept also when the process is killed at once."""
        with self._path.open("a") as file:
            file.write(message.text.replace("\n", " ") + "\n")


class Walk:
    """Notes each step that is passed, and ends the process at the one that is wanted."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._trace = Path(given.trace)
        self._guard = threading.Lock()
        self._count = 0

    def passed(self, step: CrashPoint) -> None:
        """Called by the product."""
        with self._guard:
            with self._trace.open("a") as file:
                file.write(f"{step.name}\n")
            if step.name == self._given.step:
                self._count += 1
                if self._count == self._given.nth:
                    os.kill(os.getpid(), signal.SIGKILL)


def walk(given: Given, life: str) -> None:
    """Go through a life in this process."""
    LIVES[life](given, Walk(given).passed)
    with open(given.trace, "a") as file:
        file.write(f"{DONE}\n")


def recover(given: Given) -> None:
    """What the next start of a core and of a worker do with whatever was left, and one more question."""
    core = _core(given, Walk(given).passed)
    core.queue.take_drops()
    core.recover()
    core.queue.courier.start()
    core.inbox.start_waiting()
    _ask(core, "the next question", "next")
    _until_quiet(core)
    _work(core, given)
    _until_quiet(core)
    core.close("recovered")
    with open(given.trace, "a") as file:
        file.write(f"{DONE}\n")


# -- lives ------------------------------------------------------------------------------------------


def message(given: Given, passed: Callable[[CrashPoint], None]) -> None:
    """A question whose answer needs a tool, and nobody listens to it: it becomes a letter."""
    core = _core(given, passed)
    core.queue.courier.start()
    _ask(core, given.text, "first")
    _until_quiet(core)
    core.close(DONE)


def letter(given: Given, passed: Callable[[CrashPoint], None]) -> None:
    """A letter over a door that cannot know what it has sent before."""
    core = _core(given, passed)
    core.queue.courier.start()
    core.outbox.put(Notification("greeting", "ann", "Good morning.", channel=LINES), durable=True)
    _until_quiet(core)
    core.close(DONE)


def task(given: Given, passed: Callable[[CrashPoint], None], name: str = "call it") -> None:
    """A task from the moment it is written down; its model ends it with a call, or by saying something."""
    core = _core(given, passed)
    core.tasks.add(NewTask(name, person="ann", session="local:ann", key="the task"))
    _work(core, given)
    core.close(DONE)


def spoken(given: Given, passed: Callable[[CrashPoint], None]) -> None:
    """A task whose model just answers."""
    task(given, passed, "say it")


def drop(given: Given, passed: Callable[[CrashPoint], None]) -> None:
    """A core that starts and finds files: taken before anything else, as `serve` does it."""
    core = _core(given, passed)
    core.queue.take_drops()
    core.close(DONE)


LIVES: dict[str, Callable[[Given, Callable[[CrashPoint], None]], None]] = {
    "message": message,
    "letter": letter,
    "task": task,
    "spoken": spoken,
    "drop": drop,
}


# -- inside -----------------------------------------------------------------------------------------


def _core(given: Given, passed: Callable[[CrashPoint], None]) -> Core:
    core = Core(Home(Path(given.home)), given.environ, passed=passed)
    core.queue.courier.register(LINES, Lines(Path(given.trace).with_name("lines.txt")))
    return core


def _ask(core: Core, text: str, message_id: str) -> None:
    accepted = core.inbox.accept(Inbound("local", "ann", text, message_id, now_ms()), "of a test")
    if accepted.is_new:
        core.inbox.start(accepted.loop)


def _until_quiet(core: Core) -> None:
    """Everything is answered, and every letter has gone its way."""
    open_letters = "SELECT COUNT(*) FROM outbox WHERE status IN ('waiting', 'sending')"
    until(lambda: core.inbox.busy() == 0 and core.store.value(open_letters) == 0, "all is answered and told")


def _work(core: Core, given: Given) -> None:
    """Workers, one after the other, until there is nothing to do."""
    for _ in range(4):
        if core.tasks.is_work():
            phases = PhaseLog(Path(given.trace).with_name("worker.log"), str)
            core.shift(WorkerOptions(new_id(), "once"), phases).run()


# -- processes --------------------------------------------------------------------------------------


class Nursery:
    """Starts lives as processes, one at a time."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._child = subprocess.Popen(
            [sys.executable, __file__],
            env={**environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests/support"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def raise_up(self, given: Given, life: str) -> int:
        """Go through a life, "" to recover; the exit code, negative for a signal: -14 when it took too long."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps([asdict(given), life]) + "\n")
        self._child.stdin.flush()
        return int(self._child.stdout.readline())

    def close(self) -> None:
        """No more of them."""
        self._child.communicate()


def _main() -> None:
    """Fork a process for each line of standard input and say how it ended."""
    quick.load()
    gc.collect()
    gc.freeze()  # what all share is not looked at, and so not copied
    for line in sys.stdin:
        plain, life = json.loads(line)
        pid = os.fork()
        if not pid:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            signal.alarm(int(LIMIT_S))
            given = Given(**plain)
            walk(given, life) if life else recover(given)
            sys.exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    _main()
