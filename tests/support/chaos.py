"""Everything that can go wrong to a box, at random and at once, while messages, tasks and dropped files flow.

A real home on a small disk of its own, `owlbox serve`, workers in the background, and a clock that somebody sets
(libfaketime). Core, workers and broker are killed, hung and stopped, the disk runs full, the model fails. Then all
is calm, and what was promised is counted: nothing lost, nothing done twice, what is uncertain marked, the database
whole. A seed gives the same dice; threads and kernels do not roll them, so a failure also shows what was done.

    python tests/support/chaos.py --seed 7 --length 600
"""

import argparse
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from process import Box, clean_environ, left_over, send  # noqa: E402

from appliance.clock import is_alive, monotonic_s, sleep_s  # noqa: E402
from appliance.errors import OwlError  # noqa: E402
from appliance.runtime import paths  # noqa: E402
from appliance.runtime.paths import Home  # noqa: E402
from appliance.runtime.rpc_client import Client  # noqa: E402
from appliance.service import doctor, home_setup  # noqa: E402
from appliance.store.database import Store  # noqa: E402

DISK = "48m"
# How an answer may end that somebody was promised.
EXCUSED = ("interrupted", "stopped", "connection_lost", "unavailable", "disk_full", "busy")
CALM_S = 60.0  # for so long nothing may move before all is done: a loaded machine is slow, not stuck
BACKLOG = 12  # tasks that wait; more are not asked for then, so that calm comes soon
WORKERS = 3
PLANS = 400
FAKETIME = Path("/usr/lib") / f"{os.uname().machine}-linux-gnu" / "faketime" / "libfaketimeMT.so.1"
# libfaketime 0.9.10 passes a negative time to the kernel in a sleep by the monotonic clock (its issue 426).
SLEEP = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    return syscall(SYS_clock_nanosleep, clock, flags, wanted, left) ? errno : 0;
}
"""
PLAY = """
[[turns]]
match = "^plan {number}$"
tool_calls = [{{name = "create_task", arguments = {{name = "call planned {number}"}}}}]
"""
REPEATED = """
[[turns]]
match = "^(Task: )?slow say"
repeat = true
text = "one two three four five six seven eight nine ten"
chunk_size = 4
chunk_delay_s = 0.15
[[turns]]
match = "^(Task: )?fails"
repeat = true
error = "unavailable"
[[turns]]
match = "^(Task: )?breaks"
repeat = true
text = "I was about to"
error = "timeout"
[[turns]]
match = "^Task: slow call"
repeat = true
delay_s = 0.8
tool_calls = [{name = "complete_task", arguments = {summary = "slowly done"}}]
[[turns]]
match = "^Task: waits"
repeat = true
tool_calls = [{name = "wait_task", arguments = {reason = "a person must look"}}]
[[turns]]
match = "^Task: splits"
repeat = true
tool_calls = [
    {name = "create_task", arguments = {name = "call for another"}},
    {name = "complete_task", arguments = {summary = "split"}},
]
[[turns]]
match = "^Task: call"
repeat = true
tool_calls = [{name = "complete_task", arguments = {summary = "all done"}}]
[[turns]]
repeat = true
text = "Hoot hoot."
"""
SETTINGS = {
    "WORKERS__HEARTBEAT_S": "1",
    "WORKERS__DEAD_AFTER_S": "3",
    "WORKERS__REAP_INTERVAL_S": "1",
    "WORKERS__TICK_INTERVAL_S": "1",
    "WORKERS__MAX_TICK_S": "10",
    "OUTBOX__RETRY_S": "0.2",
    "OUTBOX__RETRY_MAX_S": "2",
    "LLM__BROKER_WAIT_S": "5",
}
MESSAGES = ("say", "say", "say", "slow say", "fails", "breaks", "plan", "plan")
TASKS = ("call", "call", "call", "say", "slow call", "slow say", "fails", "breaks", "waits", "splits")
HURTS = {
    "kill a worker": 5,
    "kill the core": 1,
    "kill the broker": 1,
    "set the clock": 4,
    "fill the disk": 2,
    "hang a worker": 1,
    "stop a worker": 1,
    "stop the core": 0.5,
}


@dataclass
class Promises:
    """What was acknowledged to those who asked."""

    messages: dict[str, tuple[str, int]] = field(default_factory=dict)  # text: run, loop
    tasks: dict[int, str] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=dict)  # key: text
    dropped: dict[str, str] = field(default_factory=dict)  # key of a task: its name


class Arena:
    """A home, what runs on it, and what is done to it."""

    def __init__(self, root: Path, runtime: Path, disk: Path, dice: random.Random) -> None:
        self.box = Box(Home(disk / "home"), clean_environ(root, runtime))
        home_setup.init(self.box.home)
        self.store = Store.open(self.box.home.database)
        self.dice = dice
        self.promises = Promises()
        self.actions: deque[str] = deque(maxlen=30)
        self.counts: dict[str, int] = {}
        self._clock, self._ballast = runtime / "clock", disk / "ballast"
        self._children: list[subprocess.Popen[bytes]] = []
        self._core: subprocess.Popen[bytes] | None = None
        self._hung: list[int] = []
        self._began_s = monotonic_s()
        self._guard = threading.Lock()
        self._output = (runtime / "output.txt").open("ab")
        self.is_over = threading.Event()  # nobody asks for anything more, and nothing more goes wrong
        self.is_closed = threading.Event()  # nothing is started any more
        script = runtime / "script.toml"
        script.write_text("".join(PLAY.format(number=n) for n in range(PLANS)) + REPEATED)
        self.box.environ |= {f"OWLBOX__{name}": value for name, value in SETTINGS.items()}
        self.box.environ |= {"OWLBOX__MODELS__SCRIPT": str(script), **self._faked(runtime)}
        self.person = pwd.getpwuid(os.getuid()).pw_name

    def _faked(self, runtime: Path) -> dict[str, str]:
        """The environment of processes whose clock we set."""
        self._clock.write_text("+0")
        source, library = runtime / "sleep.c", runtime / "sleep.so"
        source.write_text(SLEEP)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        return {
            "LD_PRELOAD": f"{library} {FAKETIME}",
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def note(self, text: str) -> None:
        """One more thing that was done."""
        with self._guard:
            self.actions.append(f"{monotonic_s() - self._began_s:6.1f} s  {text}")
            word = text.partition(":")[0]
            self.counts[word] = self.counts.get(word, 0) + 1

    # -- processes --------------------------------------------------------------------------------------

    def client(self) -> Client:
        """A connection to the core."""
        return Client(str(paths.core_socket(self.box.runtime)), name="chaos", timeout_s=20)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """A process of the home, in a session of its own."""
        command = self.box.command(*words)
        child = subprocess.Popen(
            command,
            env=self.box.environ,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        self._children.append(child)
        return child

    def keep(self) -> None:
        """Let there be a core and workers, as systemd would."""
        while not self.is_closed.wait(0.3):
            for child in self._children:
                child.poll()  # nobody is left as a zombie
            if self._core is None or self._core.poll() is not None:
                self._core = self.start("serve")
            if len(self.pids("workers")) < WORKERS:
                self._hire()

    def _hire(self) -> None:
        """One more worker: through the core when it answers, else by hand. It counts once it is on record."""
        before = len(self.pids("workers"))
        try:
            with self.client() as client:
                client.call("worker.start", {"is_persistent": True}, deadline_s=15)
            self.note("a worker was started by the core")
        except (OwlError, OSError):
            self.start("worker", "run", "--persist")
            self.note("a worker was started by hand")
            end_s = monotonic_s() + 6
            while len(self.pids("workers")) == before and monotonic_s() < end_s and not self.is_closed.is_set():
                sleep_s(0.1)

    def pids(self, which: str) -> list[int]:
        """Living workers, those that work on something, or brokers."""
        sql = {
            "workers": "SELECT process FROM workers WHERE status = 'running'",
            "busy": "SELECT process FROM workers WHERE id IN (SELECT claimed_by FROM tasks WHERE status = 'in_progress')",
            "brokers": "SELECT boot_id || '/' || pid || '/' || start_ticks FROM processes "
            "WHERE kind = 'broker' AND ended_ms IS NULL",
        }[which]
        try:
            found = [str(row[0]) for row in self.store.rows(sql)]
        except OwlError:
            return []
        return [int(one.split("/")[1]) for one in found if is_alive(one)]

    # -- what goes wrong --------------------------------------------------------------------------------

    def hurt(self) -> None:
        """One thing, at random."""
        [what] = self.dice.choices(list(HURTS), list(HURTS.values()))
        core = self._core.pid if self._core is not None and self._core.poll() is None else None
        workers, brokers = self.pids("busy") or self.pids("workers"), self.pids("brokers")
        if what == "set the clock":
            self._set_clock()
        elif what == "fill the disk":
            self._fill(0.3 + self.dice.random() * 1.5)
        elif what in ("kill the core", "stop the core"):
            self._send(what, core, signal.SIGKILL if what.startswith("kill") else signal.SIGTERM)
        elif what == "kill the broker":
            self._send(what, self.dice.choice(brokers) if brokers else None, signal.SIGKILL)
        elif what == "hang a worker":
            self._hang(self.dice.choice(workers) if workers else None)
        else:
            number = signal.SIGKILL if what.startswith("kill") else signal.SIGTERM
            self._send(what, self.dice.choice(workers) if workers else None, number)

    def _send(self, what: str, pid: int | None, number: signal.Signals) -> None:
        if pid is None:
            return
        try:
            send(pid, number)
            self.note(f"{what}: {pid}")
        except ProcessLookupError:
            pass

    def _hang(self, pid: int | None) -> None:
        """A worker stands still until it is taken for dead, and comes back."""
        self._send("hang a worker", pid, signal.SIGSTOP)
        if pid is not None:
            timer = threading.Timer(4.5, self._send, ("wake it", pid, signal.SIGCONT))
            timer.daemon = True
            timer.start()

    def _set_clock(self) -> None:
        offset_s = self.dice.choice((0, 3600, -3600, 86_400 * 3, -86_400 * 2, 90, -90))
        temporary = self._clock.with_suffix(".new")
        temporary.write_text(f"{offset_s:+d}")
        temporary.rename(self._clock)
        self.note(f"set the clock: {offset_s:+d} s")

    def _fill(self, seconds: float) -> None:
        """Nothing can be written for a while."""
        self.note(f"fill the disk: {seconds:.1f} s")
        try:
            with self._ballast.open("wb", buffering=0) as file:
                while file.write(b"x" * 65536):
                    pass
        except OSError:
            pass
        self.is_over.wait(seconds)
        self._ballast.unlink(missing_ok=True)

    # -- the end ----------------------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Nothing is being done, and nothing waits that could be done."""
        try:
            busy = [self.store.value(sql) for sql in UNFINISHED.values()]
        except OwlError:
            return False
        folder = self.box.home.drop / "users" / self.person
        return not any(busy) and not [path for path in folder.glob("*") if path.is_file()]

    def wait_for_words(self) -> float:
        """Until something was accepted, for which a slow machine needs a while; how long that took."""
        began_s = monotonic_s()
        while not (self.promises.messages and self.promises.tasks) and monotonic_s() < began_s + CALM_S:
            self.is_over.wait(0.1)
        return monotonic_s() - began_s

    def settle(self) -> None:
        """Wait until all is done, as long as anything moves."""
        seen, moved_s = -1, monotonic_s()
        while not self.is_quiet() and monotonic_s() < moved_s + CALM_S:
            if (now := self._ask("SELECT MAX(id) FROM events")) != seen:
                seen, moved_s = now, monotonic_s()
            sleep_s(0.3)

    def has_enough(self) -> bool:
        """True while as much waits to be done as may."""
        return self._ask("SELECT COUNT(*) FROM tasks WHERE status = 'pending' AND open_blockers = 0") >= BACKLOG

    def _ask(self, sql: str) -> int:
        try:
            return int(self.store.value(sql) or 0)
        except OwlError:
            return -1

    def stop(self) -> list[str]:
        """End everything in good order; what did not end so."""
        pids = [*self.pids("workers"), *([self._core.pid] if self._core is not None else [])]
        for pid in pids:
            self._send("stop at the end", pid, signal.SIGTERM)
        end_s = monotonic_s() + 60
        while left_over(self.box) and monotonic_s() < end_s:
            for child in self._children:
                child.poll()
            sleep_s(0.1)
        return [f"still there after SIGTERM: {line}" for line in left_over(self.box)]

    def kill(self) -> None:
        """Leave nothing behind, whatever happened."""
        self._ballast.unlink(missing_ok=True)
        for line in left_over(self.box):
            self._send("cleared away", int(line.split()[0]), signal.SIGKILL)
        for child in self._children:
            child.wait(60)
        self.store.close()
        self._output.close()


# -- people and programs --------------------------------------------------------------------------------


def talk(arena: Arena, name: str, seed: str) -> None:
    """Ask one question after the other, each until it is acknowledged, and listen to the answer."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.is_set():
        number += 1
        text = f"{dice.choice(MESSAGES)} {name}{number}"
        if text.startswith("plan"):
            text = f"plan {_next_plan(arena)}"
        while not arena.is_over.is_set() and text not in arena.promises.messages:
            _ask(arena, text)
            arena.is_over.wait(dice.random() * 0.3)


def _next_plan(arena: Arena) -> int:
    with arena._guard:
        arena.counts["plans"] = arena.counts.get("plans", 0) + 1
        return arena.counts["plans"]


def _ask(arena: Arena, text: str) -> None:
    try:
        with arena.client() as client:
            for what, told in client.stream("message.send", {"text": text, "message_id": text}, deadline_s=20):
                if what == "accepted":
                    arena.promises.messages[text] = (told["run"], told["loop"])
    except (OwlError, OSError):
        pass  # the core is away, or has no room


def plan(arena: Arena, seed: str) -> None:
    """Add tasks, some after others, and change one's mind now and then."""
    dice, number = random.Random(seed), 0
    while not arena.is_over.wait(0.1 + dice.random() * 0.3):
        if arena.has_enough():
            continue
        number += 1
        name, known = f"{dice.choice(TASKS)} number {number}", list(arena.promises.tasks)
        after = [dice.choice(known[-8:])] if known and dice.random() < 0.3 else []
        try:
            with arena.client() as client:
                given = {"name": name, "blocked_by": after, "priority": dice.choice(("low", "medium", "high"))}
                told = client.call("tool.call", {"name": "create_task", "arguments": given}, deadline_s=20)
                if told["status"] == 200:
                    arena.promises.tasks[int(told["data"]["id"])] = name
                if known and dice.random() < 0.05:
                    client.call("tool.call", {"name": "cancel_task", "arguments": {"id": dice.choice(known[-3:])}}, deadline_s=20)
        except (OwlError, OSError):
            continue


def drop(arena: Arena, seed: str) -> None:
    """Leave files, whether a core runs or not."""
    dice, number = random.Random(seed), 0
    folder = arena.box.home.drop / "users" / arena.person
    while not arena.is_over.wait(0.3 + dice.random() * 0.5):
        number += 1
        own = f"file-{number}"
        request: dict[str, Any] = {"kind": "message", "text": f"letter {number}", "id": own}
        runs = list(arena.promises.messages.values())
        if runs and dice.random() < 0.5:
            request["run"] = dice.choice(runs)[0]
        if dice.random() < 0.5 and not arena.has_enough():
            del request["text"]
            request |= {"kind": "task", "name": f"{dice.choice(TASKS)} dropped {number}"}
        hidden = folder / f".{own}"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            hidden.write_text(json.dumps(request))
            hidden.rename(folder / f"{own}.json")
        except OSError:
            hidden.unlink(missing_ok=True)
            continue
        key = f"drop:user:{arena.person}:id:{own}"
        if request["kind"] == "task":
            arena.promises.dropped[key] = request["name"]
        else:
            arena.promises.letters[key] = request["text"]


# -- what must hold -------------------------------------------------------------------------------------

UNFINISHED = {
    "loops": "SELECT group_concat(id) FROM loops WHERE status IN (100, 102)",
    "tasks": "SELECT group_concat(id) FROM tasks WHERE status = 'in_progress' OR status = 'pending' AND open_blockers = 0",
    "letters": "SELECT group_concat(id) FROM outbox WHERE status IN ('waiting', 'sending')",
}
NEVER = {
    "a run whose events have a gap": "SELECT run FROM events GROUP BY run HAVING MIN(seq) <> 1 OR MAX(seq) <> COUNT(*)",
    "a run that goes on without a loop": "SELECT id FROM runs WHERE status IN (100, 102) AND id IN (SELECT run FROM loops)",
    "a call without its one result": """SELECT run, call_id FROM events WHERE kind IN ('tool_use', 'tool_result')
        GROUP BY run, call_id HAVING SUM(kind = 'tool_use') <> SUM(kind = 'tool_result')""",
    "a question that was recorded twice": """SELECT content FROM events
        WHERE kind = 'message' AND role = 'user' AND channel = 'local' GROUP BY content HAVING COUNT(*) > 1""",
    "a question answered twice": """SELECT l.id FROM loops l JOIN turns t ON t.loop = l.id JOIN events e ON e.turn = t.id
        WHERE l.status = 200 AND e.content = 'Hoot hoot.' GROUP BY l.id HAVING COUNT(*) > 1""",
    "a complete loop that says and does nothing": """SELECT l.id FROM loops l WHERE l.status = 200 AND NOT EXISTS
        (SELECT 1 FROM turns t JOIN events e ON e.turn = t.id WHERE t.loop = l.id AND e.kind IN ('message', 'tool_use'))""",
    "a loop stopped without a reason": """SELECT id, status, outcome FROM loops
        WHERE status NOT IN (200, 500) AND outcome NOT IN ('interrupted', 'stopped', 'cancelled', 'connection_lost')""",
    "a task with more or fewer than one complete attempt": """SELECT t.id FROM tasks t JOIN task_attempts a ON a.task = t.id
        GROUP BY t.id HAVING SUM(a.outcome = 'complete') <> (t.status = 'complete')""",
    "an attempt without an end": "SELECT task, number FROM task_attempts WHERE ended_ms IS NULL OR outcome = ''",
    "a task done before what it waits for": """SELECT t.id FROM tasks t JOIN task_deps d ON d.task = t.id
        LEFT JOIN tasks b ON b.id = d.blocker WHERE t.status = 'complete' AND b.status IS NOT 'complete'""",
    "a pending task that nothing holds up": """SELECT t.id FROM tasks t WHERE t.status = 'pending' AND NOT EXISTS
        (SELECT 1 FROM task_deps d LEFT JOIN tasks b ON b.id = d.blocker WHERE d.task = t.id AND b.status IS NOT 'complete')""",
    "a task paused without evidence": """SELECT id, waiting_reason FROM tasks WHERE status = 'waiting'
        AND waiting_reason <> 'a person must look' AND waiting_reason NOT LIKE 'its worker died 3 times. attempt%'""",
    "an ended task that nobody was told of": """SELECT t.id, t.status FROM tasks t
        WHERE t.status IN ('complete', 'failed', 'waiting') AND NOT EXISTS
        (SELECT 1 FROM outbox o WHERE o.key = 'task:' || t.id || ':' || t.attempts || ':' || t.status)""",
    "a task told twice": """SELECT t.id, COUNT(*) FROM tasks t JOIN outbox o ON o.key LIKE 'task:' || t.id || ':%'
        WHERE o.key NOT LIKE '%:waiting'  -- one that waited for a person is also told of when it is given up
        GROUP BY t.id HAVING COUNT(*) > 1""",
    "a letter that went nowhere": "SELECT id, key, status, error FROM outbox WHERE status NOT IN ('sent', 'logged')",
    "a letter that is not in its thread once": """SELECT o.id, o.key FROM outbox o
        WHERE o.run IS NOT NULL AND o.key NOT LIKE 'answer:%'
        AND (SELECT COUNT(*) FROM events e WHERE e.run = o.run AND e.input ->> 'letter' = o.key) <> 1""",
    "a repeat from a door that knows what it has told": "SELECT id, key FROM outbox WHERE via = 'local' AND may_repeat",
    "more tasks than calls that made them": """SELECT origin FROM tasks WHERE origin IS NOT NULL AND key IS NULL
        GROUP BY origin HAVING COUNT(*) >
        (SELECT COUNT(*) FROM events e WHERE e.run = origin AND e.kind = 'tool_use' AND e.tool = 'create_task')""",
    "a call that succeeded without a task": """SELECT e.run FROM events e
        WHERE e.kind = 'tool_result' AND e.tool = 'create_task' AND e.status = 200
        GROUP BY e.run HAVING COUNT(*) > (SELECT COUNT(*) FROM tasks WHERE origin = e.run)""",
    "a worker that still counts": "SELECT id, process FROM workers WHERE status = 'running'",
    "a turn lock that somebody left": "SELECT session, process FROM turn_locks",
}


def violations(arena: Arena) -> list[str]:
    """Everything that is not as it must be, with ids."""
    found = [
        f"doctor: {one.name}: {one.message}" for one in doctor.examine(arena.box.home, arena.box.environ) if one.state == "problem"
    ]
    store = arena.store
    found += [f"database: {problem}" for problem in store.problems()]
    found += [f"unfinished {name}: {store.value(sql)}" for name, sql in UNFINISHED.items() if store.value(sql)]
    for what, sql in NEVER.items():
        if rows := store.rows(sql):
            found.append(f"{what}: {rows[:5]}{' and more' if len(rows) > 5 else ''}")
    found += list(_broken(arena.promises, store))
    bad = arena.box.home.drop / "users" / arena.person / "bad"
    found += [f"refused file {path.name}: {path.read_text().strip()}" for path in bad.glob("*.why")]
    return found


def _broken(promises: Promises, store: Store) -> Iterator[str]:
    """What was acknowledged and is not there as promised."""
    for text, (run, loop) in promises.messages.items():
        asked = "SELECT 1 FROM loops l JOIN events e ON e.id = l.prompt WHERE l.id = ? AND l.run = ? AND e.content = ?"
        if not store.value(asked, (loop, run, text)):
            yield f"lost message {text!r}: loop {loop} of thread {run}"
        status, outcome = store.row("SELECT status, outcome FROM loops WHERE id = ?", (loop,)) or (0, "")
        is_answered = status == 200 or status == 500 and text.startswith(("fails", "breaks"))
        if not is_answered and outcome not in EXCUSED:
            yield f"message {text!r} has no answer and no excuse: {status} {outcome}"
    for task, name in promises.tasks.items():
        if store.value("SELECT name FROM tasks WHERE id = ?", (task,)) != name:
            yield f"lost task {task} {name!r}"
    for key, name in promises.dropped.items():
        if store.rows("SELECT name FROM tasks WHERE key = ?", (key,)) != [(name,)]:
            yield f"lost file {key}: a task {name!r}"
    for key, text in promises.letters.items():
        if store.rows("SELECT text FROM outbox WHERE key = ?", (key,)) != [(text,)]:
            yield f"lost file {key}: a letter {text!r}"


# -- the whole ------------------------------------------------------------------------------------------


def play(arena: Arena, length_s: float, seed: int) -> list[str]:
    """Chaos for a while, then calm, then the count; what was violated."""
    people: list[tuple[Callable[..., None], tuple[str, ...]]] = [
        (talk, ("a", f"{seed}/a")),
        (talk, ("b", f"{seed}/b")),
        (talk, ("c", f"{seed}/c")),
        (plan, (f"{seed}/plan",)),
        (drop, (f"{seed}/drop",)),
    ]
    keeper = threading.Thread(target=arena.keep, name="keeper")
    threads = [threading.Thread(target=work, args=(arena, *args), name=work.__name__) for work, args in people]
    for thread in (keeper, *threads):
        thread.start()
    begun_s = monotonic_s()
    try:
        arena.is_over.wait(min(4.0, length_s / 4))
        waited_s = arena.wait_for_words()
        while monotonic_s() < begun_s + waited_s + length_s:
            arena.hurt()
            arena.is_over.wait(arena.dice.uniform(0.5, 3.5))
        arena.note("all is calm")
        arena.is_over.set()
        for thread in threads:
            thread.join(60)
        arena.settle()
    finally:
        arena.is_over.set()
        arena.is_closed.set()
        keeper.join(60)
    return [*arena.stop(), *violations(arena)]


def run(seed: int, length_s: float, disk: Path) -> int:
    """The whole of it on a disk; the exit code."""
    root, runtime = Path(tempfile.mkdtemp(prefix="chaos-")), Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    print(f"chaos: seed {seed}, {length_s:g} s", flush=True)
    arena = Arena(root, runtime, disk, random.Random(seed))
    problems = ["it did not come to an end"]
    try:
        problems = play(arena, length_s, seed)
        made = arena.promises
        print(f"kept: {len(made.messages)} messages, {len(made.tasks)} tasks, {len(made.dropped) + len(made.letters)} files")
        print(f"done: {arena.counts}")
    finally:
        arena.kill()
        for problem in problems:
            print(f"VIOLATED: {problem}")
        if problems:
            print("the last 30 actions:", *arena.actions, sep="\n  ")
            shutil.copytree(arena.box.home.root, root / "home")
            shutil.copy(runtime / "output.txt", root / "output.txt")
            print(f"the home is kept in {root}; again: python tests/support/chaos.py --seed {seed} --length {length_s:g}")
        else:
            shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    return 1 if problems else 0


def on_a_small_disk(words: list[str]) -> int:
    """This program again, with a disk of its own that no other process sees; as root, or in a user namespace."""
    disk, tried = Path(tempfile.mkdtemp(prefix="disk-")), ""
    # libfaketime leaves files of killed processes in /dev/shm: these go with the namespace.
    mount = f'mount -t tmpfs -o size={DISK},mode=0700 small "$0" && mount -t tmpfs shm /dev/shm && exec "$@"'
    try:
        for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
            inside = [*unshare, "sh", "-c", mount, str(disk)]
            probe = subprocess.run([*inside, "true"], capture_output=True, text=True)
            if probe.returncode == 0:
                return subprocess.run([*inside, sys.executable, __file__, *words, "--disk", str(disk)]).returncode
            tried += probe.stderr
    finally:
        disk.rmdir()
    print(f"a small disk cannot be mounted here: {tried}", file=sys.stderr)
    return 2


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="chaos, then calm, then the count")
    parser.add_argument("--seed", type=int, default=None, help="for the same dice again")
    parser.add_argument("--length", type=float, default=600, metavar="S", help="seconds of chaos")
    parser.add_argument("--disk", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not FAKETIME.exists():
        print(f"no {FAKETIME}: apt-get install faketime", file=sys.stderr)
        return 2
    if args.disk is None:
        return on_a_small_disk(sys.argv[1:])
    return run(random.SystemRandom().randrange(10**6) if args.seed is None else args.seed, args.length, args.disk)


if __name__ == "__main__":
    sys.exit(main())
