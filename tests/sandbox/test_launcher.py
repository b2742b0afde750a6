"""The sandbox with real bubblewrap: what a call sees, what it may use, and that nothing of it is left."""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from needs import needs
from process import is_gone

from appliance import clock
from appliance.clock import monotonic_s, sleep_s
from appliance.errors import BadInput, Busy, NotFound, Unavailable
from appliance.sandbox import bubblewrap, folder_tree, landlock, runner, seccomp
from appliance.sandbox.launcher import Bind, Execution, Limits, Plan, Sandbox, SandboxOrder, is_left, this_core

pytestmark = needs("bwrap", "perl")
NEVER = threading.Event()
LIMIT_S = 60.0
MB = 1 << 20


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def order(*argv: str, folder: Path | None = None, **more: object) -> SandboxOrder:
    return SandboxOrder("exec", "s1", argv, folder=folder, **more)  # type: ignore[arg-type]


def shell(sandbox: Sandbox, script: str, folder: Path | None = None, **more: object) -> Execution:
    return sandbox.run(order("bash", "-c", script, folder=folder, **more), NEVER)


def python(sandbox: Sandbox, script: str, **more: object) -> Execution:
    """Run a script with the system's Python; only what /usr has is there."""
    return sandbox.run(order("/usr/bin/python3", "-I", "-S", "-c", script, **more), NEVER)


def titled(part: str) -> list[int]:
    """The processes of this machine whose title has these words."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if part.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]:
                found.append(int(pid))
        except OSError:
            continue
    return found


def until(condition: Callable[[], object], what: str) -> None:
    end_s = monotonic_s() + LIMIT_S
    while not condition():
        assert monotonic_s() < end_s, f"not in {LIMIT_S:g} s: {what}"
        sleep_s(0.02)


# -- what a call sees ---------------------------------------------------------------------------------


@pytest.mark.covers("A-056", "A-066", "A-064", "A-073", "A-074")
def test_only_the_folder_is_writable_and_only_it_outlives_the_call(sandbox: Sandbox, work: Path):
    script = """
for place in / /etc /usr /usr/bin /dev /run /var /proc /proc/sys/kernel; do echo x >$place/x && echo "wrote $place"; done
echo kept >/work/a; echo gone >/tmp/b; echo gone >/dev/shm/c; echo gone >/var/tmp/d; sleep 60 &
"""
    assert shell(sandbox, script, work).stdout == b""
    assert [p.name for p in work.iterdir()] == ["a"]
    again = shell(sandbox, "cat /work/a; ls -A /tmp /dev/shm; ps -e 2>/dev/null | grep -c sleep; ls /proc | grep -c '^[0-9]'", work)
    lines = again.stdout.decode().split()
    assert lines[:3] == ["kept", "/dev/shm:", "/tmp:"] and lines[3] == "0" and int(lines[4]) <= 6


@pytest.mark.covers("A-064", "A-066", "A-068")
def test_where_the_kernel_has_no_landlock_the_rest_holds(work: Path):
    """Each wall by itself: with Landlock in force nobody would miss the mounts, nor the network of its own."""
    worlds = ("user", "pid", "net", "ipc", "uts", "cgroup", "mnt")
    with socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0owlbox-rest-{os.getpid()}")
        local.listen()
        script = f"""
import os, socket
for place in ("/", "/etc", "/usr", "/usr/bin", "/dev", "/run", "/var", "/proc", "/proc/sys/kernel", "/home", "/work/sub/.."):
    try:
        open(place + "/x", "w").close()
        print("wrote", place)
    except OSError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect("\\0owlbox-rest-{os.getpid()}")
    print("reached")
except OSError:
    pass
for name in {worlds!r}:
    print(name, os.readlink("/proc/self/ns/" + name))
"""
        (work / "sub").mkdir()
        made = order("/usr/bin/python3", "-I", "-S", "-c", script, folder=work)
        done = runner.run(made, runner.Means(this_core(), 0), NEVER)
    assert done.status == "completed", done
    first, *lines = done.stdout.decode().splitlines()
    assert first == "wrote /work/sub/.." and [line.split()[0] for line in lines] == [*worlds]
    ours = {f"{name} {os.readlink(f'/proc/self/ns/{name}')}" for name in worlds}
    assert not ours & set(lines), "a namespace is shared with this machine"


@pytest.mark.covers("A-057", "A-056")
def test_binds_show_what_they_name_as_they_say_and_nothing_else(sandbox: Sandbox, work: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("key")
    (tmp_path / "read").mkdir()
    (tmp_path / "read/a").write_text("to read\n")
    (tmp_path / "write").mkdir()
    (tmp_path / "one").write_text("one\n")
    binds = (
        Bind(tmp_path / "read", "/project/read"),
        Bind(tmp_path / "write", "/project/write", is_writable=True),
        Bind(tmp_path / "one", "/project/one", is_writable=True),
    )
    script = f"""
cat /project/read/a; echo x >/project/read/a; echo x >/project/write/b; echo y >>/project/one; mv /project/write/b /project/write/c
ls {tmp_path} {Path.home()} /root /home /var/lib /work/.. ; cat {tmp_path}/secret /work/../secret
"""
    done = shell(sandbox, script, work, binds=binds, profile="project")
    assert done.stdout.decode().splitlines()[0] == "to read"
    assert b"key" not in done.stdout and "secret" not in done.stdout.decode().splitlines()
    assert (tmp_path / "read/a").read_text() == "to read\n" and (tmp_path / "one").read_text() == "one\ny\n"
    assert [p.name for p in (tmp_path / "write").iterdir()] == ["c"]


@pytest.mark.covers("A-065", "A-067")
def test_nobody_inside_has_any_right(sandbox: Sandbox):
    done = shell(sandbox, "id -u; id -G; cat /proc/self/status; cat /etc/passwd; ls /proc/self/fd; ulimit -c")
    text = done.stdout.decode()
    assert text.startswith("1000\n1000\n")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}:\t{'0' * 16}" in text
    assert "NoNewPrivs:\t1" in text and "Seccomp:\t2" in text
    assert "owl:x:1000:1000::/work:/bin/sh" in text
    assert text.split()[-5:] == ["0", "1", "2", "3", "0"]  # 3 is ls's own


@pytest.mark.covers("A-067")
def test_the_kernel_refuses_every_call_on_the_list(sandbox: Sandbox, work: Path):
    """Each by its number on this machine, with arguments that get it past the filter's questions if it were not there."""
    numbers = {call: seccomp.number(call) for call in seccomp.calls()}
    script = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
made = 0o4755
first = {{"open": (b"x", 0o101, made), "openat": (-100, b"x", 0o101, made), "creat": (b"x", made), "chmod": (b"/work", made),
    "fchmod": (0, made), "fchmodat": (-100, b"/work", made), "fchmodat2": (-100, b"/work", made), "mkdir": (b"x", made),
    "mkdirat": (-100, b"x", made), "mknod": (b"x", made), "mknodat": (-100, b"x", made),
    "clone": (0x10000011,), "personality": (0x40000,), "ioctl": (0, 0x5412), "fcntl": (0, 1024),
    "socket": (2, 1), "socketpair": (2, 1)}}
for call, number in {numbers!r}.items():
    if number is not None:
        said = libc.syscall(number, *first.get(call, ()), 0, 0, 0, 0)
        print(call, said, errno.errorcode.get(ctypes.get_errno()))
"""
    done = python(sandbox, script, folder=work)
    assert done.status == "completed", done
    said = {line.split()[0]: line.split()[1:] for line in done.stdout.decode().splitlines()}
    assert sorted(said) == sorted(call for call, number in numbers.items() if number is not None)
    assert {result for result, _ in said.values()} == {"-1"}
    assert {why for _, why in said.values()} == {"EPERM", "ENOSYS", "EAFNOSUPPORT", "ENOTSUP"}
    assert list(work.iterdir()) == []


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the other tongues of x86-64")
@pytest.mark.parametrize(
    "code",
    [
        "import ctypes; print(ctypes.CDLL(None).syscall(0x40000000 | 39))",
        # mov eax, 20 (getpid on i386); int 0x80; ret
        "import ctypes, mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b814000000cd80c3'));"
        " print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))())",
    ],
    ids=["x32", "i386"],
)
def test_another_architectures_calls_end_the_process(sandbox: Sandbox, code: str):
    done = python(sandbox, code)
    assert (done.exit_code, done.error, done.stdout) == (159, "ended by signal 31 (SIGSYS)", b"")


@pytest.mark.covers("A-068")
@pytest.mark.parametrize("profile", ["exec", "files", "project", "net"])
def test_nothing_can_be_reached_not_even_this_machine(sandbox: Sandbox, profile: str):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0owlbox-test-{os.getpid()}-{profile}")
        local.listen()
        script = f"""
import socket
for family in range(1, 46):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print("family", family)
    except OSError as error:
        assert family == 1 or error.errno == 97, (family, error)
for address in (("127.0.0.1", {server.getsockname()[1]}), ("169.254.169.254", 80), ("1.1.1.1", 53), ("::1", 80)):
    try:
        socket.create_connection(address, 2)
        print("reached", address)
    except OSError as error:
        pass
try:
    socket.socket(socket.AF_UNIX).connect("\\0owlbox-test-{os.getpid()}-{profile}")
    print("reached abstract")
except OSError:
    pass
"""
        done = python(sandbox, script, profile=profile)
        assert done.status == "completed", done
        assert done.stdout.decode().splitlines() == (["family 1"] if profile == "exec" else [])


@pytest.mark.covers("A-077")
def test_arguments_and_variables_are_data(sandbox: Sandbox):
    odd = ["$(id)", "`id`", "; id", "a b", "", "-x", "'\"\\", "ü\udcff", "*"]
    made = order("printf", r"%s\n", *odd, environ={"TOOL_EXEC": "$(id); `id`", "TOOL_X": "1 2"})
    done = Sandbox().run(made, NEVER)
    assert done.stdout == b"".join(os.fsencode(word) + b"\n" for word in odd)
    env = sandbox.run(order("env", environ={"TOOL_EXEC": "$(id); `id`"}, execution="01a2b3c4-exec"), NEVER)
    assert set(env.stdout.decode().splitlines()) == {
        "TOOL_NAME=exec",
        "EXECUTION_ID=01a2b3c4-exec",
        "SESSION_ID=s1",
        "TOOL_EXEC=$(id); `id`",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "HOME=/work",
        "USER=owl",
        "LANG=C.UTF-8",
        "TMPDIR=/tmp",
        "PWD=/work",
    } - ({"PWD=/work"} if b"PWD=" not in env.stdout else set())


def test_stdin_is_what_was_given_and_nothing_of_ours(sandbox: Sandbox):
    text = os.urandom(3 * MB)
    assert sandbox.run(order("wc", "-c", stdin=text), NEVER).stdout.strip() == str(len(text)).encode()
    assert sandbox.run(order("cat"), NEVER).stdout == b""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"argv": ()}, "no command"),
        ({"argv": ("a\0b",)}, "NUL byte"),
        ({"argv": ("x" * 200_000,)}, "longer than the kernel takes"),
        ({"tool": "a b"}, "cannot be a label"),
        ({"tool": "../x"}, "cannot be a label"),
        ({"session": "a b"}, "cannot be a label"),
        ({"profile": "root"}, "unknown sandbox profile"),
        ({"environ": {"LD_PRELOAD": "x"}}, "cannot be set"),
        ({"environ": {"TOOL_NAME": "x"}}, "cannot be set"),
        ({"environ": {"A=B": "x"}}, "cannot be set"),
        ({"folder": Path("/nowhere/at/all")}, "does not exist"),
        ({"folder": Path("relative")}, "not an absolute path"),
        ({"folder": Path("/proc/self/cwd")}, "is a link"),
        ({"binds": (Bind(Path("/usr"), "/usr/lib"),)}, "belongs to the sandbox"),
        ({"binds": (Bind(Path("/usr"), "/"),)}, "belongs to the sandbox"),
        ({"binds": (Bind(Path("/usr"), "/work/x", True),), "folder": Path("/tmp")}, "belongs to the sandbox"),
        ({"binds": (Bind(Path("/tmp"), "/work/tmp", True),), "folder": Path("/"), "is_writable": False}, "belongs to the sandbox"),
        ({"binds": (Bind(Path("/usr"), "/a/../etc"),)}, "not a plain absolute path"),
        ({"binds": (Bind(Path("/usr"), "/project", True),), "profile": "files"}, "profile files writes to /work only"),
        ({"files": {"/usr/bin/x": b""}}, "not a place for a script"),
        ({"files": {"/skills/../etc/x": b""}}, "not a place for a script"),
        ({"limits": Limits(pids=0)}, "limit pids"),
    ],
)
def test_orders_that_cannot_be_carried_out_are_refused(sandbox: Sandbox, change: dict[str, object], said: str):
    made = {"tool": "exec", "session": "s1", "argv": ("true",), **change}
    with pytest.raises(BadInput, match=said):
        sandbox.run(SandboxOrder(**made), NEVER)  # type: ignore[arg-type]


def test_a_folder_below_tmp_is_shown_where_it_is_over_the_private_one(sandbox: Sandbox, tmp_path: Path):
    real = tmp_path.resolve()  # pytest's folders lie below /tmp
    (real / "seen").write_text("hoot")
    made = SandboxOrder(
        "exec", "s1", ("sh", "-c", f"cat {real}/seen; echo x > {real}/new; ls /tmp"), binds=(Bind(real, str(real)),)
    )
    done = sandbox.run(made, NEVER)
    assert done.stdout.startswith(b"hoot") and b"Read-only" in done.stderr and not (real / "new").exists()
    with pytest.raises(BadInput, match="belongs to the sandbox"):
        sandbox.run(SandboxOrder("exec", "s1", ("true",), binds=(Bind(real, str(real), True),)), NEVER)


def test_a_folder_below_var_tmp_is_shown_where_it_is_and_is_a_link_for_everybody_else(sandbox: Sandbox):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        real = Path(name).resolve()
        (real / "seen").write_text("hoot")
        look = ("sh", "-c", f"cat {real}/seen; ls /var/tmp | wc -l; echo x > /var/tmp/new")
        done = sandbox.run(SandboxOrder("exec", "s1", look, binds=(Bind(real, str(real)),)), NEVER)
        assert done.stdout.split() == [b"hoot1"] and b"Read-only" in done.stderr
    done = sandbox.run(SandboxOrder("exec", "s1", ("sh", "-c", "echo owl > /var/tmp/new; cat /tmp/new")), NEVER)
    assert done.stdout == b"owl\n"


# -- how it ends ------------------------------------------------------------------------------------


@pytest.mark.covers("A-013", "E-317")
def test_another_exit_code_than_0_is_a_failure_with_what_it_said(sandbox: Sandbox):
    done = shell(sandbox, "echo out; echo problem >&2; exit 7")
    assert (done.status, done.exit_code, done.error) == ("failed", 7, "exit code 7")
    assert (done.stdout, done.stderr) == (b"out\n", b"problem\n")
    killed = shell(sandbox, "kill -SEGV $$")
    assert (killed.status, killed.exit_code, killed.error) == ("failed", 139, "ended by signal 11 (SIGSEGV)")
    absent = sandbox.run(order("no-such-program"), NEVER)
    assert (absent.status, absent.exit_code) == ("failed", 127)
    assert absent.stderr == b"no-such-program: No such file or directory\n"


@pytest.mark.covers("A-012", "A-280", "E-317")
def test_a_call_that_takes_too_long_ends_with_all_it_started_and_keeps_its_output(sandbox: Sandbox):
    began_s = monotonic_s()
    made = order("bash", "-c", "echo first; sleep 600 & (setsid sleep 600 &); sleep 600; echo never", limits=Limits(timeout_s=1))
    done = sandbox.run(made, NEVER)
    assert (done.status, done.exit_code, done.stdout) == ("timeout", -1, b"first\n")
    assert "timed out after 1 s" in done.error and 1000 <= done.duration_ms
    assert monotonic_s() - began_s < LIMIT_S
    assert titled(made.execution) == []


@pytest.mark.covers("A-280", "A-064")
@pytest.mark.parametrize(
    "script", ["(setsid sleep 600 &) ; exit 0", "nohup sleep 600 >/dev/null 2>&1 & exit 3", "sleep 600 & kill -9 $$"]
)
def test_nothing_is_left_behind_when_it_ends_by_itself(sandbox: Sandbox, script: str):
    made = order("bash", "-c", script)
    done = sandbox.run(made, NEVER)
    assert done.status in ("completed", "failed") and done.duration_ms < 1000 * LIMIT_S
    assert titled(made.execution) == []


@pytest.mark.covers("A-279", "A-280")
@pytest.mark.parametrize("is_by_id", [True, False])
def test_cancelling_ends_it_and_keeps_its_output(sandbox: Sandbox, pool: ThreadPoolExecutor, is_by_id: bool):
    cancel, shown = threading.Event(), threading.Event()
    made = order("bash", "-c", "echo begun; sleep 600 & sleep 600")
    running = pool.submit(sandbox.run, made, cancel, lambda stream, data: shown.set())
    assert shown.wait(LIMIT_S)
    assert [o.execution for o in sandbox.listing()] == [made.execution]
    if is_by_id:
        sandbox.cancel(made.execution)
    else:
        cancel.set()
    done = running.result(LIMIT_S)
    assert (done.status, done.exit_code, done.stdout) == ("cancelled", -1, b"begun\n")
    assert titled(made.execution) == [] and sandbox.listing() == []
    for unknown in (made.execution, "no-such-id"):
        with pytest.raises(NotFound):
            sandbox.cancel(unknown)


@pytest.mark.covers("A-280")
def test_whenever_it_is_cancelled_nothing_is_left(pool: ThreadPoolExecutor):
    """At every moment of its making: some are cancelled before bubblewrap has told us of a first process."""
    sandbox, handles = Sandbox(), len(os.listdir("/proc/self/fd"))

    def once(delay_s: float) -> str:
        cancel = clock.CancelToken()
        alarm = threading.Timer(delay_s, cancel.set)
        alarm.start()
        made = order("sleep", "600")
        status = sandbox.run(made, cancel).status
        assert titled(made.execution) == []
        return status

    assert set(pool.map(once, [n / 1000 for n in range(32)])) == {"cancelled"}
    assert len(os.listdir("/proc/self/fd")) == handles
    assert (sandbox.health()["running"], sandbox.health()["waiting"]) == (0, 0)


CALLER = """
import sys, threading
from appliance.sandbox import runner as cells; from appliance.sandbox import landlock
from appliance.sandbox.launcher import Limits, SandboxOrder as Order
order = Order("exec", "s1", ("bash", "-c", "setsid sleep 600 & sleep 600"), execution=sys.argv[1], limits=Limits(timeout_s=600))
cells.run(order, cells.Means(sys.argv[2], landlock.version()), threading.Event())
"""


@pytest.mark.covers("A-280", "A-020")
def test_it_ends_when_its_caller_is_killed(sandbox: Sandbox):
    execution = f"killed-{os.getpid()}"
    # It bears our name: else a core that starts meanwhile would take it for left behind and end it.
    caller = subprocess.Popen([sys.executable, "-c", CALLER, execution, this_core()])
    try:
        until(lambda: len(titled(execution)) >= 2, "the sandbox is there")
        until(lambda: sleeping(execution) >= 2, "its command runs")
        tree = namespace(execution)
    finally:
        caller.kill()
        caller.wait(LIMIT_S)
    until(lambda: titled(execution) == [], "the sandbox is gone")
    until(lambda: all(map(is_gone, tree)), "and everything it had started")


def namespace(execution: str) -> list[int]:
    """Every process of a sandbox, as numbered outside."""
    found = titled(execution)
    for pid in found:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split() if int(child) not in found]
    return found


def sleeping(execution: str) -> int:
    return sum(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in namespace(execution) if os.path.exists(f"/proc/{pid}"))


@pytest.mark.covers("A-020", "A-076")
def test_what_an_earlier_core_left_is_found_by_its_label_and_ended(pool: ThreadPoolExecutor):
    dead = subprocess.Popen(["sleep", "0"])
    gone = f"{this_core().partition(':')[0]}:{clock.process(dead.pid).encode()}"
    dead.wait()
    made = SandboxOrder("read_file", "s7", ("sleep", "600"), execution=f"01a2b3c4-left-{os.getpid()}", limits=Limits(timeout_s=600))
    ours = order("sleep", "600")
    sandbox, cancel, count = Sandbox(), threading.Event(), 0
    kept = pool.submit(sandbox.run, ours, cancel)
    until(lambda: sleeping(ours.execution), "ours runs")
    assert made.label == "tool-read_file-01a2b3c4"
    try:
        for _ in range(10):  # a core of another test may be faster than we
            left, title = pool.submit(runner.run, made, runner.Means(gone, 0), cancel), f"session=s7 execution={made.execution}"
            until(lambda left=left, title=title: left.done() or sleeping(f"{made.label} owlbox {title}"), "the old one runs")
            count = sandbox.sweep()
            assert left.result(LIMIT_S).status == "failed" and titled(made.execution) == []
            if count:
                break
        assert count >= 1 and titled(ours.execution)
    finally:
        cancel.set()
    assert kept.result(LIMIT_S).status == "cancelled"


# -- limits -------------------------------------------------------------------------------------------


@pytest.mark.covers("A-069")
def test_defaults_are_one_cpu_512_mb_and_1_gb(sandbox: Sandbox):
    limits = Limits()
    assert (limits.cpus, limits.memory_bytes, limits.disk_bytes, limits.pids) == (1.0, 512 * MB, 1024 * MB, 64)
    done = shell(sandbox, "nproc; ulimit -f; ulimit -u; ulimit -n; nice; df --output=size -B1 /tmp | tail -1")
    nice = str(min(19, os.nice(0) + 10))  # than whoever watches: at the same rank as a fork bomb one would not come to ending it
    assert done.stdout.decode().split() == ["1", str(1024 * MB // 1024), "64", "256", nice, str(64 * MB)]


@pytest.mark.covers("A-069")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import time; x = bytearray(150 << 20); time.sleep(600)", "used more than 100 MB of memory"),
        (
            "import os, time\nfor _ in range(4):\n if not os.fork():\n  x = bytearray(40 << 20); time.sleep(600)\ntime.sleep(600)",
            "memory",
        ),
        (
            "import time\nfor i in range(6): open(f'/work/{i}', 'wb').write(bytes(10 << 20))\ntime.sleep(600)",
            "filled its folder with more than 50 MB",
        ),
        (
            "import os, time\nheld = []\nfor i in range(6):\n f = open('/work/x', 'wb'); f.write(bytes(10 << 20)); f.flush()\n"
            " os.unlink('/work/x'); held.append(f)\ntime.sleep(600)",
            "filled its folder",
        ),
        ("import time\nfor i in range(13000): open(f'/work/{i}', 'w').close()\ntime.sleep(600)", "filled its folder"),
        ("import os\nfor i in range(1 << 30): os.mkdir(f'/tmp/{i}')", "more than 50000 files in memory"),
    ],
    ids=["memory", "memory of a tree", "disk", "files without a name", "many files", "many files in memory"],
)
def test_whoever_uses_too_much_is_ended_and_told(sandbox: Sandbox, work: Path, script: str, said: str):
    limits = Limits(memory_bytes=100 * MB, disk_bytes=50 * MB, timeout_s=10 * LIMIT_S)
    done = python(sandbox, script, folder=work, limits=limits)
    assert (done.status, done.exit_code) == ("failed", -1) and said in done.error, done


@pytest.mark.covers("A-069")
def test_more_processes_than_allowed_are_not_to_be_had(sandbox: Sandbox):
    done = shell(sandbox, "for i in $(seq 200); do sleep 600 & done; wait", limits=Limits(pids=20, timeout_s=5))
    # The kernel counts for everybody but root; for root the watcher does.
    assert done.status in ("failed", "timeout") and ("more than 20 processes" in done.error or b"fork" in done.stderr)


def test_pages_shared_by_a_family_count_once(sandbox: Sandbox):
    script = "import os, time\nx = bytearray(60 << 20)\nfor _ in range(4):\n if not os.fork(): time.sleep(1); os._exit(0)\n"
    done = python(sandbox, script + "for _ in range(4): os.wait()", limits=Limits(memory_bytes=100 * MB))
    assert done.status == "completed", done


def test_one_file_may_not_pass_the_disk_limit_even_for_a_moment(sandbox: Sandbox, work: Path):
    done = shell(sandbox, "head -c 20M /dev/zero >a", work, limits=Limits(disk_bytes=5 * MB))
    assert done.exit_code != 0 and (work / "a").stat().st_size <= 5 * MB


def test_a_folder_that_is_too_full_already_may_still_be_used(sandbox: Sandbox, work: Path):
    (work / "old").write_bytes(bytes(20 * MB))
    done = shell(sandbox, "sleep 1; rm old; echo done", work, limits=Limits(disk_bytes=10 * MB))
    assert (done.status, done.stdout) == ("completed", b"done\n")


def test_output_is_bounded_shown_as_it_comes_and_costs_no_memory(sandbox: Sandbox):
    pieces: list[tuple[int, bytes]] = []
    limits = Limits(output_bytes=100_000, timeout_s=2)
    before = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    done = sandbox.run(order("bash", "-c", "echo oops >&2; yes", limits=limits), NEVER, lambda *piece: pieces.append(piece))
    after = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    assert done.status == "timeout" and done.is_cut and len(done.stdout) == 100_000 and done.stderr == b"oops\n"
    assert b"".join(data for stream, data in pieces if stream == 1) == done.stdout
    assert int(after) - int(before) < 20_000
    whole = sandbox.run(order("seq", "20000"), NEVER)
    assert not whole.is_cut and whole.stdout.endswith(b"\n20000\n")


def test_output_is_shown_before_the_end(sandbox: Sandbox, work: Path):
    seen: list[bytes] = []

    def show(stream: int, data: bytes) -> None:
        seen.append(data)
        (work / "seen").touch()

    script = "echo a; until [ -e /work/seen ]; do sleep 0.05; done; echo b"
    done = sandbox.run(order("sh", "-c", script, folder=work), NEVER, show)
    assert done.stdout == b"a\nb\n" and seen == [b"a\n", b"b\n"]


def test_whoever_shows_and_fails_leaves_nothing_running(sandbox: Sandbox):
    made = order("bash", "-c", "echo a; sleep 600")

    def fails(stream: int, data: bytes) -> None:
        raise OSError("the screen is gone")

    with pytest.raises(OSError, match="the screen is gone"):
        sandbox.run(made, NEVER, fails)
    assert titled(made.execution) == [] and sandbox.health()["running"] == 0


# -- turns --------------------------------------------------------------------------------------------


@pytest.mark.covers("A-072")
def test_only_so_many_run_at_once_and_those_who_wait_can_be_cancelled(pool: ThreadPoolExecutor):
    assert Plan().max_concurrent == 10
    sandbox, stop = Sandbox(Plan(max_concurrent=2)), threading.Event()
    held = [pool.submit(sandbox.run, order("sleep", "600"), stop) for _ in range(2)]
    until(lambda: sandbox.health()["running"] == 2, "two run")
    third, fourth = order("echo", "3"), order("echo", "4")
    waiting = pool.submit(sandbox.run, third, NEVER)
    until(lambda: sandbox.health()["waiting"] == 1, "the third waits")
    last = pool.submit(sandbox.run, fourth, NEVER)
    until(lambda: sandbox.health()["waiting"] == 2, "the fourth waits")
    sandbox.cancel(fourth.execution)
    assert last.result(LIMIT_S).status == "cancelled"
    assert not waiting.done() and titled(third.execution) == []
    sandbox.cancel(sandbox.listing()[0].execution)
    assert waiting.result(LIMIT_S).stdout == b"3\n"
    stop.set()
    assert {one.result(LIMIT_S).status for one in held} == {"cancelled"}
    assert (sandbox.health()["running"], sandbox.health()["waiting"]) == (0, 0)


@pytest.mark.covers("A-072")
def test_processes_of_one_home_share_the_turns(pool: ThreadPoolExecutor, tmp_path: Path):
    plan = Plan(max_concurrent=1, slots=tmp_path / "slots", wait_s=0.3)
    first, second, stop = Sandbox(plan), Sandbox(plan), threading.Event()
    held: Future[Execution] = pool.submit(first.run, order("sleep", "600"), stop)
    until(lambda: first.health()["running"] == 1, "the first runs")
    with pytest.raises(Busy, match="all 1 sandboxes are in use"):
        second.run(order("true"), NEVER)
    stop.set()
    held.result(LIMIT_S)
    assert second.run(order("true"), NEVER).status == "completed"


# -- when there is no sandbox ------------------------------------------------------------------------------


def impossible(tmp_path: Path) -> SandboxOrder:
    """An order that passes every check and that bubblewrap cannot carry out: a mount below one that cannot be written."""
    (tmp_path / "empty").mkdir(exist_ok=True)
    binds = (Bind(tmp_path / "empty", "/project"), Bind(tmp_path / "empty", "/project/below"))
    return order("true", binds=binds, profile="project")


@pytest.mark.covers("A-011", "A-018")
def test_a_sandbox_that_cannot_be_made_is_tried_twice_and_told_in_full(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    sandbox = Sandbox()
    with caplog.at_level(logging.WARNING), pytest.raises(Unavailable, match="/project/below") as told:
        sandbox.run(impossible(tmp_path), NEVER)
    assert told.value.hint
    assert [(r.levelname, f"attempt {n} of 2" in r.getMessage()) for n, r in enumerate(caplog.records, 1)] == [
        ("WARNING", True),
        ("ERROR", True),
    ]
    for word in ("'tool': 'exec'", "'session': 's1'", "'execution'", "/project/below", "'program': 'true'"):
        assert word in caplog.records[1].getMessage()
    health = sandbox.health()
    assert (health["state"], health["is_degraded"]) == ("degraded", True) and "/project/below" in health["reason"]
    began_s = monotonic_s()
    assert sandbox.run(order("true"), NEVER).status == "completed"  # waited out the pause
    assert monotonic_s() - began_s > 0.2
    assert sandbox.health()["state"] == "ok"


@pytest.mark.covers("A-018")
def test_those_who_come_during_the_pause_wait_and_can_leave(tmp_path: Path, pool: ThreadPoolExecutor):
    sandbox, stop = Sandbox(Plan(wait_s=0.1)), threading.Event()
    for _ in range(2):
        with pytest.raises(Unavailable):
            Sandbox.run(sandbox, impossible(tmp_path), NEVER)
    with pytest.raises(Unavailable, match="cannot be made at present"):
        sandbox.run(order("true"), NEVER)
    stop.set()
    assert sandbox.run(order("true"), stop).status == "cancelled"


@pytest.mark.covers("A-018", "A-011")
def test_a_helper_that_hangs_is_given_up_and_leaves_nothing(tmp_path: Path):
    hangs = tmp_path / "hangs"
    shutil.copyfile(shutil.which("sleep") or "", hangs)
    script = tmp_path / "bwrap"
    script.write_text(f"#!/bin/sh\nexec {hangs} 600\n")
    for path in (hangs, script):
        path.chmod(0o755)
    sandbox = Sandbox(Plan(bwrap=str(script), start_s=0.3))
    with pytest.raises(Unavailable, match=r"not made within 0\.3 s"):
        sandbox.run(order("true"), NEVER)
    assert titled(str(hangs)) == [] and sandbox.health()["is_degraded"]


def test_without_bubblewrap_nothing_runs_and_the_reason_is_given(tmp_path: Path):
    sandbox = Sandbox(Plan(bwrap=str(tmp_path / "none")))
    assert sandbox.missing() == "bubblewrap is not installed: apt-get install bubblewrap"
    mark = tmp_path / "mark"
    with pytest.raises(Unavailable, match="bubblewrap is not installed") as told:
        sandbox.run(order("touch", str(mark), folder=tmp_path), NEVER)
    assert told.value.hint == "apt-get install bubblewrap" and not mark.exists()
    assert sandbox.health()["state"] == "missing"
    assert Sandbox(Plan(unit=tmp_path / "tool.sock")).missing().endswith("systemctl enable --now owlbox-tool.socket")


def test_where_bubblewrap_cannot_work_the_trial_says_so(tmp_path: Path):
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    script.chmod(0o755)
    sandbox = Sandbox(Plan(bwrap=str(script)))
    reason, _, hint = sandbox.missing().partition(": ")
    assert "setting up uid map, Permission denied" in reason and hint
    health = sandbox.health()  # tries anew, and each try has a name of its own
    said = re.sub("tool-trial-[0-9a-f]+", "TRIAL", f"{reason}: {hint}")
    assert (health["state"], re.sub("tool-trial-[0-9a-f]+", "TRIAL", health["reason"])) == ("missing", said)
    with pytest.raises(Unavailable, match="setting up uid map"):
        sandbox.run(order("touch", "/work/x", folder=tmp_path), NEVER)
    assert not (tmp_path / "x").exists()


def test_health_names_what_holds_here(sandbox: Sandbox):
    health = sandbox.health()
    assert (health["state"], health["runner"], health["uid"]) == ("ok", "child", os.getuid())
    assert health["has_landlock"] == (landlock.version() > 0) and health["seccomp"] == os.uname().machine


# -- parts ------------------------------------------------------------------------------------------------


def test_what_was_installed_below_work_is_shown_elsewhere(tmp_path: Path):
    assert bubblewrap.place_of_program("/workshop/env") == "/workshop/env"
    inside = bubblewrap.place_of_program("/work/home/skill-envs/1")
    bubblewrap.check(order("true", binds=(Bind(Path("/work/home/skill-envs/1"), inside),)))
    for bind in (Bind(tmp_path, "/work/home", True), Bind(tmp_path, "/work/home")):
        with pytest.raises(BadInput, match="belongs to the sandbox"):
            bubblewrap.check(order("true", binds=(bind,)))


@pytest.mark.skipif(landlock.version() < 1, reason="this kernel has no Landlock")
def test_landlock_holds_where_nothing_else_does(tmp_path: Path):
    """The entry alone, without bubblewrap: only Landlock stands between the command and the files.

    What bubblewrap does for everybody is done here by setpriv: the kernel asks it of all but root.
    """
    (tmp_path / "open").mkdir()
    (tmp_path / "shut").mkdir()
    reading, writing = os.pipe()
    script = (
        f"cd {tmp_path}; echo x >open/a && mv open/a open/b; echo x >shut/a; echo x >b; cat /etc/passwd >/dev/null && echo read"
    )
    ceiling = landlock.Ceiling(0, 1 << 20, 60, 0, nice=0)
    words = landlock.entry(ceiling, [landlock.AllowedPath(str(tmp_path / "open"))], writing, landlock.version())
    command = ["setpriv", "--no-new-privs", *words, "/bin/bash", "-c", script]
    done = subprocess.run(command, pass_fds=[writing], capture_output=True, text=True, timeout=LIMIT_S)
    os.close(writing)
    assert os.read(reading, 10) == b"!" and os.read(reading, 10) == b""
    os.close(reading)
    assert done.stdout == "read\n" and done.stderr.count("Permission denied") == 2, done.stderr
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["open", "open/b", "shut"]


@pytest.mark.parametrize(("abi", "size"), [(0, 0), (1, 8), (2, 8), (3, 8), (4, 16), (5, 16), (6, 24), (7, 24)])
def test_older_kernels_are_asked_for_less(abi: int, size: int):
    rules = landlock.ruleset(abi)
    assert len(rules) == size
    if abi:
        assert int.from_bytes(rules[:8], "little") == {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}.get(abi, 0xFFFF)


def test_an_older_landlock_still_lets_a_call_run(sandbox: Sandbox, work: Path):
    for abi in range(landlock.version() + 1):
        script = "echo x >a; mkdir b; mv a b/c; truncate -s 0 b/c; echo y >/tmp/z; cat /tmp/z"
        done = runner.run(order("sh", "-ec", script, folder=work), runner.Means(this_core(), abi), NEVER)
        assert (done.status, done.stdout) == ("completed", b"y\n"), (abi, done)
        shutil.rmtree(work / "b")


def test_bytes_of_a_folder_are_those_on_the_disk(tmp_path: Path):
    (tmp_path / "a").write_bytes(bytes(MB))
    os.link(tmp_path / "a", tmp_path / "twice")
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/b").write_bytes(bytes(MB))
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", 1 << 30)
    size = folder_tree.measure(tmp_path, 1 << 40)
    assert size.is_whole and 2 * MB <= size.seen_bytes < 2 * MB + 100_000
    assert folder_tree.measure(tmp_path / "none", 1).seen_bytes == 0


@pytest.mark.covers("A-020")
def test_a_core_elsewhere_is_nobody_that_we_could_miss():
    """In a container numbers of processes mean something else, and its sandboxes are seen from outside, too."""
    here, _, process = this_core().partition(":")
    dead = "/".join([*process.split("/")[:2], "1"])
    assert not is_left(this_core()) and is_left(f"{here}:{dead}")
    assert not is_left(f"1{here}:{dead}") and not is_left("x")


def test_titles_are_read_only_where_they_are_ours():
    made = order("true")
    assert bubblewrap.core_of(bubblewrap.title(made, "boot/12/34")) == "boot/12/34"
    for other in ("", "bash", "tool-x", "tool-x other core=1", "x owlbox core=1"):
        assert bubblewrap.core_of(other) == ""


def test_signals_to_the_sandbox_itself_end_everything(sandbox: Sandbox, pool: ThreadPoolExecutor):
    made = order("sleep", "600")
    running = pool.submit(sandbox.run, made, NEVER)
    until(lambda: sleeping(made.execution), "it runs")
    os.kill(titled(made.execution)[0], signal.SIGKILL)
    done = running.result(LIMIT_S)
    assert (done.status, done.exit_code, done.error) == ("failed", -1, "its sandbox was ended by signal 9 (SIGKILL)")
    assert titled(made.execution) == []
