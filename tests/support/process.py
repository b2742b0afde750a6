"""Real owlboxes for tests: a home of its own, the command line as a child, `owlbox serve` as a child.

Nothing is pretended: what a test starts here is what a person starts. Every process a test began is
ended with the test, by its own id. Import `a_box` (the fixture `box`) and `script` where needed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import quick
from stores import new_home

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import OwlError
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
from appliance.store.database import Store

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0  # generous: two slow cores may be shared with a compiler
LEAST_PAUSE_S, MOST_PAUSE_S, TIMES = 0.05, 1.2, 12  # between two looks at what a test waits for: so many times as long as a look
# What most tests let the model say: "slow" and "stuck" questions take their time, others do not.
PLAY = """
[[turns]]
match = "slow"
repeat = true
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
chunk_size = 4
chunk_delay_s = 0.2
[[turns]]
match = "endless"
repeat = true
text = "one two ENDLESS"
chunk_size = 4
chunk_delay_s = 0.2
[[turns]]
match = "stuck"
repeat = true
text = "at last"
delay_s = 600
[[turns]]
repeat = true
text = "Hoot hoot."
""".replace("ENDLESS", "and on " * 350)  # for two minutes: nobody has to be quick to stop it


@dataclass
class Box:
    """One home and everything started on it."""

    home: Home
    environ: dict[str, str]
    children: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def runtime(self) -> Path:
        """The folder of this home's sockets."""
        return paths.runtime_folder(self.home, self.environ)

    def command(self, *words: str) -> list[str]:
        """The command line of `owlbox WORDS` on this home."""
        return [sys.executable, "-m", "appliance", "--home", str(self.home.root), *words]

    def run(self, *words: str, text: str | bytes = b"", **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end; `text` is its standard input."""
        given = text.encode() if isinstance(text, str) else text
        done = quick.run(self.command(*words), given=given, timeout_s=LIMIT_S * 2, env={**self.environ, **environ})
        out, err = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def json(self, *words: str) -> Any:
        """What a command prints with --json; it must succeed."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *words: str, **environ: str) -> "subprocess.Popen[bytes]":
        """Start a command and leave it running."""
        child = quick.popen(
            self.command(*words),
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.children.append(child)
        return child

    def serve(self, **environ: str) -> "Core":
        """A core that accepts connections."""
        core = Core(self, self.start("serve", **environ))
        until(core.is_up, "the core listens")
        return core

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The database, opened as any of our processes would."""
        store = Store.open(self.home.database)
        try:
            yield store
        finally:
            store.close()

    def events(self, run: str) -> list[dict[str, Any]]:
        """Everything recorded in a thread."""
        found: list[dict[str, Any]] = self.json("thread", "view", run)["events"]
        return found

    def log(self, name: str) -> list[dict[str, Any]]:
        """The lines of a log, `core` or `broker/broker`."""
        path = self.home.logs / f"{name}.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@dataclass
class Core:
    """A running `owlbox serve`."""

    box: Box
    child: "subprocess.Popen[bytes]"

    def is_up(self) -> bool:
        """True when it answers."""
        assert self.child.poll() is None, self.child.stderr.read().decode() if self.child.stderr else ""
        try:
            self.client().close()
        except OwlError:
            return False
        return True

    def client(self) -> Client:
        """A connection to it."""
        return Client(str(paths.core_socket(self.box.runtime)), name="test", timeout_s=LIMIT_S)

    def call(self, method: str, **params: Any) -> Any:
        """One call on a connection of its own."""
        with self.client() as client:
            return client.call(method, params, deadline_s=LIMIT_S)

    def broker_pid(self) -> int:
        """The process id of its broker, once that listens."""
        status: dict[str, Any] = {}

        def is_there() -> bool:
            status.update(self.call("core.status")["broker"])
            return status["state"] == "running"

        until(is_there, "the broker runs")
        return int(status["pid"])

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.child.kill()
        self.child.wait(LIMIT_S)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.child.terminate()
        return self.child.wait(LIMIT_S)


@contextmanager
def boxed(place: Path, runtime: Path) -> Iterator[Box]:
    """A fresh home whose model plays PLAY; its processes are ended afterwards."""
    home = Home(place / "home")
    new_home(home)
    made = Box(home, clean_environ(place, runtime))
    script(made, PLAY)
    try:
        yield made
    finally:
        for child in made.children:
            end(child)


@pytest.fixture(name="box")
def a_box(tmp_path: Path, runtime: Path) -> Iterator[Box]:
    """A box of the test's own."""
    with boxed(tmp_path, runtime) as made:
        yield made


@pytest.fixture(scope="module", name="shared_box")
def a_shared_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A box for all tests of a file that only look, or leave nothing that another would see."""
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as runtime:
        with boxed(tmp_path_factory.mktemp("shared"), Path(runtime)) as made:
            yield made


def script(box: Box, text: str) -> None:
    """Let the scripted model say this from the next start on."""
    path = Path(box.environ["XDG_RUNTIME_DIR"]) / "script.toml"
    path.write_text(text, encoding="utf-8")
    box.environ["OWLBOX__MODELS__SCRIPT"] = str(path)


def clean_environ(tmp_path: Path, runtime: Path) -> dict[str, str]:
    """An environment without anything of the person who runs the tests; HOME is an empty folder."""
    nowhere = tmp_path / "person"
    nowhere.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(nowhere),
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(runtime),
    }


def end(child: "subprocess.Popen[bytes]") -> None:
    """End one process that a test started."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(LIMIT_S)
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def until(is_so: Callable[[], bool], what: str | Callable[[], str], limit_s: float = LIMIT_S) -> None:
    """Wait until something is so; what takes long to see is looked at less often. `what` may say how it stands at the end."""
    end_s = monotonic_s() + limit_s
    while True:
        began_s = monotonic_s()
        if is_so():
            return
        now_s = monotonic_s()
        assert now_s < end_s, f"not in {limit_s:g} s: {what if isinstance(what, str) else what()}"
        sleep_s(min(MOST_PAUSE_S, max(LEAST_PAUSE_S, TIMES * (now_s - began_s))))


def is_gone(pid: int) -> bool:
    """True when no process has this id, or only a dead one that nobody has looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def left_over(box: Box) -> list[str]:
    """Processes that still work on a home, as `pid command`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if str(box.home.root) in words and not is_gone(int(path.parent.name)):
            found.append(f"{path.parent.name} {' '.join(words)}")
    return found


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process this test started, itself or through its core; ProcessLookupError when it is gone.

    Numbers of processes come back within one run of all tests: who has this one now is looked at while a handle holds it.
    """
    handle = os.pidfd_open(pid)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if words and b"appliance" not in words:  # none: it has ended, and nobody has looked at it yet
            raise ProcessLookupError(f"process {pid} is none of ours any more")
        signal.pidfd_send_signal(handle, number)
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} is gone") from None
    finally:
        os.close(handle)


def tree(root: Path, skip: tuple[str, ...] = ("logs", "owlbox.lock", "owlbox.db-wal", "owlbox.db-shm")) -> dict[str, int]:
    """Every file of a folder with its size; what a failed command must not have changed."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] not in skip:
            found[name] = path.lstat().st_size if path.is_file() else -1
    return found


@contextmanager
def standing_core(prepare: Callable[[Box], None]) -> Iterator[Core]:
    """For measurements: a core on a fresh home, after `prepare` has put in what it needs; nothing is left afterwards."""
    place, runtime = Path(tempfile.mkdtemp(prefix="bench-")), Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    try:
        box = Box(Home(place / "home"), clean_environ(place, runtime))
        new_home(box.home)
        prepare(box)
        core = box.serve()
        try:
            yield core
        finally:
            end(core.child)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
