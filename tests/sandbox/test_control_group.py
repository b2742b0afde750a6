"""The control group of a call: found where the system has given us one to divide, with limits that the kernel keeps, and gone then.

Which controllers there are is the machine's choice; where memory and processes are not among them, nothing is divided, and the
limits are looked at as before. What a group holds and how it goes is the same with any.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from needs import leave_out, needs
from process import until

from appliance.sandbox import control_group, landlock, runner
from appliance.sandbox.bubblewrap import Execution, Limits, SandboxOrder
from appliance.sandbox.control_group import CONTROLLERS, CallGroup

MB = 1 << 20
FIND = """
import os, sys
from appliance.sandbox import control_group
sys.stdin.readline()
print(control_group.find())
print(control_group.find())  # from where we are now
print(open("/proc/self/cgroup").read())
"""

FORKS = """
import os, time
count = 0
try:
    while os.fork():
        count += 1
    time.sleep(30)
except OSError:
    print(count)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of this test's own, with all controllers that the machine gives."""
    lines = (line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines())
    top = next((Path(words[1]) for words in lines if words[2] == "cgroup2"), None)
    if top is None or not os.access(top, os.W_OK) or os.geteuid() != 0:
        leave_out("needs root and control groups of version 2")
        raise AssertionError
    for name in set(CONTROLLERS) & set((top / "cgroup.controllers").read_text().split()):
        (top / "cgroup.subtree_control").write_text(f"+{name}")
    made = top / f"owlbox-test-{os.getpid()}"
    made.mkdir()
    try:
        yield made
    finally:
        (made / "cgroup.kill").write_text("1")
        for folder in [*sorted(made.rglob("*/"), reverse=True), made]:
            if folder.is_dir():
                until(lambda folder=folder: removed(folder), f"{folder} is left")


def removed(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def keeps_limits(group: Path) -> bool:
    return set(CONTROLLERS) <= set((group / "cgroup.controllers").read_text().split())


def found_in(group: Path) -> list[str]:
    """What a process in this group finds, twice, and where it is then."""
    command = [sys.executable, "-c", FIND]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        (group / "cgroup.procs").write_text(str(child.pid))
        return child.communicate("\n", timeout=60)[0].splitlines()


def call(script: str, groups: Path | None, **limits: float) -> Execution:
    given = Limits(**{"timeout_s": 60.0, **limits})  # type: ignore[arg-type]
    order = SandboxOrder("exec", "s1", ("/usr/bin/python3", "-I", "-S", "-c", script), limits=given)
    return runner.run(order, runner.Means("nobody", landlock.version(), groups), threading.Event())


def test_only_a_group_that_was_given_to_us_is_divided(group: Path) -> None:
    first, again, *where = found_in(group)
    assert (first, again) == ("None", "None") and f"0::/{group.name}" in where
    assert not (group / control_group.OURS).exists()
    os.setxattr(group, control_group.DELEGATED[0], b"1")
    first, again, *where = found_in(group)
    if keeps_limits(group):
        assert first == again == str(group) and f"0::/{group.name}/{control_group.OURS}" in where
        assert set(CONTROLLERS) <= set((group / "cgroup.subtree_control").read_text().split())
    else:
        assert (first, again) == ("None", "None") and not (group / control_group.OURS).exists()


def test_what_a_killed_core_left_is_given_back(group: Path) -> None:
    (group / f"{control_group.CALL}left").mkdir()
    (group / "of-others").mkdir()
    assert control_group.prepare(group, ()) == group and control_group.prepare(group, ("nothing",)) is None
    assert sorted(path.name for path in group.iterdir() if path.is_dir()) == ["of-others"]


def test_all_that_a_process_starts_is_in_the_group_and_ends_with_it(group: Path) -> None:
    control_group.prepare(group)
    made = CallGroup(group, "0123", 64 * MB, 8)
    (folder,) = group.glob(f"{control_group.CALL}*")
    with subprocess.Popen(["/bin/sh", "-c", "read line; sleep 60 & sleep 60"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        made.take(child.pid)
        child.stdin.write(b"\n")
        child.stdin.flush()
        until(lambda: len((folder / "cgroup.procs").read_text().split()) == 3, "both sleep in the group")
        if keeps_limits(group):
            assert (folder / "memory.max").read_text().strip() == str(64 * MB) and not made.complaint()
            assert (folder / "pids.max").read_text().strip() == "9"
        made.remove()
    assert child.returncode == -9 and not folder.exists()
    with pytest.raises(OSError):
        made.take(os.getpid())


@needs("bwrap", "perl")
@pytest.mark.covers("A-069")
def test_a_call_that_can_have_no_group_is_looked_at(tmp_path: Path) -> None:
    """A folder in which no groups can be made, as when their number is used up; memory is limited all the same."""
    done = call("x = bytearray(150 << 20); import time; time.sleep(30)", tmp_path / "gone", memory_bytes=100 * MB)
    assert done.status == "failed" and "100 MB of memory" in done.error, done


@needs("bwrap", "perl")
@pytest.mark.covers("A-069")
def test_the_kernel_keeps_the_limits_of_a_call(group: Path) -> None:
    """Ended before it has more, however quick: memory, files in memory, pipes, areas; processes are refused."""
    if not keeps_limits(group):
        assert control_group.prepare(group) is None  # and nobody makes groups in it
        return
    assert control_group.prepare(group) == group
    taking = {
        "memory": "x = bytearray(60 << 20)",
        "files": "[open(f'/dev/shm/{i}', 'wb').write(bytes(1 << 20)) for i in range(60)]",
        "empty files": "[open(f'/tmp/{i}', 'wb').close() for i in range(10 ** 6)]",
        "children": "import os\nfor i in range(3): os.fork()\nx = bytearray(8 << 20); import time; time.sleep(300)",
    }
    for name, script in taking.items():
        done = call(script, group, memory_bytes=40 * MB, timeout_s=300)
        assert done.status == "failed" and "used more than 40 MB of memory" in done.error, (name, done)
    done = call(FORKS, group, pids=8, timeout_s=300)
    assert done.stdout in (b"6\n", b"7\n"), done
    assert call("print('well')", group).stdout == b"well\n" and not list(group.glob(f"{control_group.CALL}*"))
