"""The sandbox under attack: a program inside a call, with no policy in the way, tries everything it can think of.

The program is `attacks.py`. It runs twice under the same caller, who is as careless as can be (keys in the environment,
open descriptors, a terminal): once in a sandbox, where the operating system has to refuse each attempt, and once bare,
where each has to succeed or at least fail differently, so that no test here passes by itself. A real core and
its broker are the victims, and are asked all the while whether they still answer.
"""

import json
import os
import re
import shutil
import signal
import socket
import stat
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attacks
import pytest
from needs import needs
from process import Box, Core, boxed, until

from appliance.clock import monotonic_s, sleep_s
from appliance.runtime import paths
from appliance.sandbox import seccomp

pytestmark = needs("bwrap", "perl")
LIMIT_S = 60.0
ANSWER_S, LONGEST_S = 5.0, 30.0  # half of all answers, and each: two slow processors may be shared with a compiler
MB = 1 << 20
SECRET = "sk-attack-0123456789abcdef"
PROGRAM = f"{os.getpid()}-attacks.py"  # its processes are known by it
NAMES = sorted(name[4:] for name in vars(attacks) if name.startswith("try_"))
NUMBERS = {"semget": (64, 190), "msgget": (68, 186), "vmsplice": (278, 75)}  # x86-64, aarch64

# What a core would do that takes no care at all: everything it has is open, inherited and in the environment.
CALLER = """
import fcntl, json, os, subprocess, sys, termios, threading
from pathlib import Path
from appliance.sandbox.launcher import Limits, SandboxOrder as Order, Sandbox
given = json.load(sys.stdin)
fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
for path in given["leaks"]:
    os.set_inheritable(os.open(path, os.O_RDWR), True)
os.environ.update(LD_PRELOAD="libresolv.so.2", PYTHONSTARTUP="x", PERL5LIB="x", PROVIDER_KEY=given["secret"])
stdin, folder = json.dumps(given["world"]).encode(), Path(given["folder"])
if given["is_inside"]:
    limits = Limits(**given["limits"])
    done = Sandbox().run(Order("exec", "own", tuple(given["argv"]), folder=folder, stdin=stdin, limits=limits), threading.Event())
    said = [done.status, done.exit_code, done.error, done.stdout.decode(), done.stderr.decode(), done.duration_ms]
else:
    done = subprocess.run(given["argv"], input=stdin, capture_output=True, cwd=folder, close_fds=False, timeout=180)
    said = ["bare", done.returncode, "", done.stdout.decode(), done.stderr.decode(), 0]
print(json.dumps(said))
"""

# What is refused, by the kernel's word for it; everything else must be one of REFUSED.
REFUSED = {
    *("EPERM", "EACCES", "ENOENT", "ENOSYS", "EROFS", "ESRCH", "EAFNOSUPPORT", "EXDEV", "EBADF", "ENXIO", "EFBIG", "EINVAL"),
    "ECONNREFUSED",
}
Verdicts = dict[str, dict[str, str]]
ENDED = {"x32": "SIGSYS", "i386": "SIGSYS"} if os.uname().machine == "x86_64" else {}  # other machines do not know them at all
# Where the way out is shown by another refusal than inside: it got as far as the arguments, which are wrong on purpose,
# or to a network that may not be there.
FARTHER = {
    *("load_module", "load_module_from_memory", "another_kernel", "reboot", "clock_elsewhere", "accounting", "swap", "request_key"),
    *("metadata_address", "public_address", "mount_control_groups", "handle"),
}
# Without root outside these are refused there, too, for want of rights.
OF_ROOT = {
    *("accounting", "another_kernel", "bind", "capabilities", "chroot", "clock", "core_pattern", "device_node", "disk_node"),
    *("devices", "handle", "host_name", "join_namespace", "kernel_files", "kernel_log", "kernel_memory", "load_module"),
    *("load_module_from_memory", "modprobe_path", "mount", "mount_control_groups", "mount_proc", "new_mount", "open_tree"),
    *("out_of_memory_score", "packet_socket", "pivot_root", "ports", "priority", "privilege_level", "raise_limits", "raw_socket"),
    *("real_time", "reboot", "remount", "set_groups", "set_user_id", "set_user_id_program", "swap", "sysctl", "sysrq", "unmount"),
    *("userfaultfd", "write_programs", "quota", "control_groups", "hard_link", "perf_events", "bpf", "type_into_terminal"),
    *("type_in_high_bits", "clock_elsewhere", "interrupts"),
    # The broker is shut to other processes of its own user.
    *("broker_memory", "broker_environment", "broker_descriptors"),
}
NEED_RESOURCE = {"out_of_memory_score", "raise_limits"}  # not even every root has this capability
# What a kernel may be built without.
OPTIONAL = {
    *("vsock_socket", "crypto_socket", "x32", "i386", "swap", "quota", "accounting", "another_kernel", "ports"),
    *("privilege_level", "io_uring", "userfaultfd", "interrupts", "memory_file", "fanotify", "descriptor_table"),
}
ABSENT = ("ENOSYS", "EAFNOSUPPORT", "ENOPKG", "ENOENT")


@dataclass
class Scene:
    """A core with its broker, things worth having, and a session's folder for the attacker."""

    core: Core
    sessions: Path
    world: dict[str, Any]
    waits_s: list[float] = field(default_factory=list)

    def folder(self, name: str, is_inside: bool) -> Path:
        """The folder of a session for one way to attack, with the program in it, and one that root has made set-user-id."""
        made = self.sessions / (f"own-{name}" if is_inside else f"bare-{name}") / "data"
        if not made.exists():
            made.mkdir(parents=True)
            shutil.copyfile(attacks.__file__, made / PROGRAM)
            shutil.copyfile("/usr/bin/id", made / "id")
            (made / "id").chmod(stat.S_ISUID | 0o755)
        return made

    def run(self, *argv: str, is_inside: bool = True, **limits: float) -> list[Any]:
        """What became of the attack program: status, exit code, error, output, errors, milliseconds."""
        folder = self.folder(argv[0] if argv else "", is_inside)
        given = {
            "is_inside": is_inside,
            "argv": ["/usr/bin/python3", "-I", "-S", PROGRAM, *argv],
            "folder": str(folder),
            "world": {**self.world, "is_inside": is_inside, "first": 1 if is_inside else self.world["core"]},
            "secret": SECRET,
            "leaks": [self.world["database"], self.world["keys"]],
            "limits": {"timeout_s": LIMIT_S, **limits},
        }
        master, slave = os.openpty()
        alone = ["unshare", "--mount", "--propagation", "private"] if not is_inside and os.geteuid() == 0 else []
        try:
            done = subprocess.run(
                [*alone, sys.executable, "-c", CALLER, str(slave)],
                input=json.dumps(given),
                capture_output=True,
                text=True,
                timeout=2 * LIMIT_S,
                pass_fds=[slave],
                start_new_session=True,
            )
        finally:
            os.close(master)
            os.close(slave)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))


def treasures(box: Box, core: Core, port: int, abstract: str) -> dict[str, Any]:
    """What the attacker is after, by name; each is really there."""
    root, machine = box.home.root, seccomp.this_machine()
    numbers = {call: seccomp.number(call) for call in seccomp.calls()}
    world: dict[str, Any] = {
        "home": str(root),
        "database": str(box.home.database),
        "configuration": str(root / "owlbox.toml"),
        "keys": str(root / "keys.toml"),
        "other": str(root / "sessions/other/data/secret"),
        "people": str(root / "users/mia/MEMORY.md"),
        "identity": str(root / "box/SOUL.md"),
        "log": str(root / "logs/core.log"),
    }
    for name in ("keys", "other", "people"):
        Path(world[name]).parent.mkdir(parents=True, exist_ok=True)
        Path(world[name]).write_text(SECRET)
    runtime = box.runtime
    return {
        **world,
        "outside": str(root.parent / "mark"),
        "core": core.child.pid,
        "broker": core.broker_pid(),
        "core_socket": str(paths.core_socket(runtime)),
        "broker_socket": str(paths.broker_socket(runtime)),
        "port": port,
        "abstract": abstract,
        "secret": SECRET,
        "groups": ["release_agent", "cgroup.procs", "notify_on_release"],
        "numbers": {**{call: pair[machine != "x86_64"] for call, pair in NUMBERS.items()}, **numbers},
    }


@contextmanager
def asked(core: Core, waits_s: list[float]) -> Iterator[None]:
    """Meanwhile the core is asked again and again, and how long it takes is noted."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.1):
            began_s = monotonic_s()
            core.call("core.status")
            waits_s.append(monotonic_s() - began_s)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield
        finally:
            stop.set()
        asking.result(LIMIT_S)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    place = tmp_path_factory.mktemp("attacked")
    runtime = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    with (
        boxed(place, runtime) as box,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
    ):
        abstract = f"owlbox-attacked-{os.getpid()}"
        local.bind(f"\0{abstract}")
        local.listen()
        core = box.serve()
        world = treasures(box, core, server.getsockname()[1], abstract)
        yield Scene(core, box.home.root / "sessions", world)
    shutil.rmtree(runtime, ignore_errors=True)


def verdicts(said: list[Any]) -> Verdicts:
    """What each attempt came to."""
    assert said[1] == 0, said
    return {line.pop("name"): line for line in map(json.loads, said[3].splitlines())}


@pytest.fixture(scope="module")
def inside(scene: Scene) -> Verdicts:
    with asked(scene.core, scene.waits_s):
        return verdicts(scene.run())


@pytest.fixture(scope="module")
def outside(scene: Scene) -> Verdicts:
    return verdicts(scene.run(is_inside=False))


@pytest.mark.covers("A-003", "A-057", "A-058", "A-065", "A-066", "A-067", "A-068", "A-153")
@pytest.mark.parametrize("name", NAMES)
def test_every_attempt_is_refused_by_the_system(inside: Verdicts, name: str):
    said = inside[name]
    assert "got" not in said, said
    assert said["refused"] == ENDED.get(name, said["refused"])
    assert name in ENDED or said["refused"] in REFUSED, said


@pytest.mark.parametrize("name", NAMES)
def test_each_attempt_would_work_without_the_sandbox(inside: Verdicts, outside: Verdicts, name: str):
    """The control: without it a test above might pass because the attempt is no good."""
    if name in OF_ROOT and os.geteuid() != 0 or name in NEED_RESOURCE and not has_resource():
        pytest.skip("needs more rights to work outside")
    is_absent = name in OPTIONAL and outside[name].get("refused") in ABSENT
    is_farther = name in FARTHER and outside[name] != inside[name]
    assert "got" in outside[name] or is_farther or is_absent, (outside[name], inside[name])


def test_there_are_as_many_as_the_documentation_says() -> None:
    assert len(NAMES) > 100 and len(ENDLESS) == 8


def has_resource() -> bool:
    """True when we have CAP_SYS_RESOURCE."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff"))
    return bool(int(line.split()[1], 16) >> 24 & 1)


# -- without end ----------------------------------------------------------------------------------------------------

SMALL = {"memory_bytes": 100 * MB, "disk_bytes": 50 * MB, "pids": 32, "output_bytes": 100_000}
# Each with what ends it, and how much of it shows that outside nothing would.
ENDLESS = {
    "grow_processes": ("more than 32 processes|more than 100 MB of memory", 100),  # whichever is seen first
    "grow_memory": ("more than 100 MB of memory", 150 * MB),
    "grow_shared_pages": ("more than 100 MB of memory", 150 * MB),
    "grow_page_tables": ("more than 100 MB of memory", 110 * MB),
    "grow_sockets": ("more than 256 sockets", 50 * MB),
    "grow_files": ("filled its folder with more than 50 MB", 60 * MB),
    "grow_unlinked": ("filled its folder with more than 50 MB", 60 * MB),
    "grow_output": ("timed out", 3 * MB),
}
ENDLESS_BYTES = 2 << 30  # much more than is allowed, and what a machine survives when nothing ends it


@pytest.fixture(scope="module")
def exhausted(scene: Scene) -> dict[str, list[Any]]:
    """What became of each that would not stop; two at a time, as if two calls did it."""

    def run(name: str) -> list[Any]:
        return scene.run(name, str(ENDLESS_BYTES), **{**SMALL, "timeout_s": 1.5 if name == "grow_output" else 20})

    with asked(scene.core, scene.waits_s), ThreadPoolExecutor(2) as pool:
        return dict(zip(ENDLESS, pool.map(run, ENDLESS), strict=True))


@pytest.mark.covers("A-283", "A-069", "E-317")
@pytest.mark.parametrize("name", ENDLESS)
def test_whoever_does_not_stop_is_ended(exhausted: dict[str, list[Any]], name: str):
    status, code, error, out, err, _ = exhausted[name]
    if name == "grow_processes" and os.geteuid() != 0:
        assert status in ("failed", "timeout"), error  # the kernel gives no more, and who asks on waits for the end
        return
    assert (status, code) == ("timeout" if name == "grow_output" else "failed", -1), (error, err)
    assert re.search(ENDLESS[name][0], error) and "with everything it had started" in error
    assert len(out) <= SMALL["output_bytes"]


@pytest.mark.parametrize("name", ENDLESS)
def test_without_the_sandbox_nothing_would_end_it(scene: Scene, name: str):
    status, code, _, _, err, _ = scene.run(name, str(ENDLESS[name][1]), is_inside=False)
    assert (status, code) == ("bare", 0), err


@pytest.mark.covers("A-283", "A-153")
def test_the_core_answers_all_the_while(scene: Scene, inside: dict[str, Any], exhausted: dict[str, Any]):
    assert len(scene.waits_s) > 10
    assert statistics.median(scene.waits_s) < ANSWER_S and max(scene.waits_s) < LONGEST_S, sorted(scene.waits_s)[-5:]
    assert scene.core.call("core.status")["broker"]["state"] == "running"
    assert scene.core.call("core.status")["broker"]["pid"] == scene.world["broker"]


@pytest.mark.covers("A-280")
@pytest.mark.parametrize("is_inside", [True, False])
def test_a_process_left_behind_lives_on_only_without_the_sandbox(scene: Scene, is_inside: bool):
    said = scene.run("leave_daemon", "20", is_inside=is_inside)
    assert said[1] == 0, said
    alive = scene.folder("leave_daemon", is_inside) / "alive"
    if is_inside:
        before = alive.read_text()
        sleep_s(0.3)
        assert alive.read_text() == before
    else:
        seen: set[str] = set()  # it empties its file before each word
        until(lambda: seen.add(alive.read_text()) or len(seen - {""}) > 1, "it lives")
        os.kill(int(max(seen).split()[0]), signal.SIGKILL)


def test_nothing_of_it_is_left_on_the_machine(scene: Scene, inside: dict[str, Any], exhausted: dict[str, Any]):
    """The things worth having are as they were, and no process of any attack runs."""
    for name in ("keys", "other", "people"):
        assert Path(scene.world[name]).read_text() == SECRET
    assert not Path(scene.world["outside"]).exists()
    running = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if PROGRAM in words.split("\0"):
            running.append(words)
    assert running == []
