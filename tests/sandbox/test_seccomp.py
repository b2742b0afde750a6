"""The system-call programs: what they say to each call on both machines, and that the kernel obeys them."""

import errno
import signal
import struct
import subprocess
import sys

import pytest

from appliance.errors import Unavailable
from appliance.sandbox import seccomp

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028
ALLOWED, KILLED = 0x7FFF0000, 0x80000000


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What a program says to a call: our own reading of classic BPF, so that both machines can be looked at."""
    words = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=iIQ6Q", struct.unpack("=i", struct.pack("=I", number))[0], architecture, 0, *words)
    code = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        what, yes, no, constant = code[at]
        at += 1
        if what == 0x20:
            value = struct.unpack_from("=I", data, constant)[0]
        elif what == 0x06:
            return int(constant)
        elif what == 0x05:
            at += constant
        else:
            is_met = {0x15: value == constant, 0x45: value & constant, 0x35: value >= constant}[what]
            at += yes if is_met else no


def failing(error: int) -> int:
    return 0x00050000 | error


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def say(machine: str, call: str, *arguments: int, has_unix: bool = True) -> int:
    number = seccomp.number(call, machine)
    assert number is not None
    return verdict(seccomp.tool_filter(machine, has_unix=has_unix), MACHINES[machine], number, *arguments)


@pytest.mark.covers("A-067")
@pytest.mark.parametrize("call", ["ptrace", "mount", "umount2", "pivot_root", "setns", "unshare", "bpf", "keyctl", "add_key"])
def test_what_breaks_out_of_a_sandbox_is_denied(machine: str, call: str):
    assert say(machine, call) == failing(errno.EPERM)


@pytest.mark.parametrize("call", ["io_uring_setup", "io_uring_enter", "clone3", "memfd_create", "shmget"])
def test_what_has_another_way_is_said_to_be_absent(machine: str, call: str):
    assert say(machine, call) == failing(errno.ENOSYS)


def test_room_on_the_disk_is_taken_by_writing_alone(machine: str):
    assert say(machine, "fallocate", 3, 0, 0, 1 << 30) == failing(errno.EOPNOTSUPP)


@pytest.mark.covers("A-067", "A-068")
def test_every_socket_but_a_local_one_is_denied(machine: str):
    for family in range(2, 46):
        assert say(machine, "socket", family) == failing(errno.EAFNOSUPPORT)
    assert say(machine, "socket", 1) == say(machine, "socketpair", 1) == ALLOWED
    # A value that only looks right in its low half is the same family to the kernel: an int.
    assert say(machine, "socket", (1 << 32) + 2) == failing(errno.EAFNOSUPPORT)
    assert say(machine, "socket", 1, has_unix=False) == say(machine, "socketpair", 1, has_unix=False) == failing(errno.EAFNOSUPPORT)


def test_arguments_decide_where_a_call_is_needed(machine: str):
    thread, user_namespace = 0x3D0F00, 0x10000000 | signal.SIGCHLD
    assert say(machine, "clone", thread) == ALLOWED
    assert say(machine, "clone", user_namespace) == failing(errno.EPERM)
    assert say(machine, "personality", 0) == say(machine, "personality", 0xFFFFFFFF) == ALLOWED
    assert say(machine, "personality", 0x0040000) == failing(errno.EPERM)
    assert say(machine, "ioctl", 0, 0x5401) == ALLOWED
    assert say(machine, "ioctl", 0, 0x5412) == say(machine, "ioctl", 0, 0x541C) == failing(errno.EPERM)
    assert say(machine, "ioctl", 0, (7 << 32) | 0x5412) == failing(errno.EPERM)  # the kernel takes the low half


def test_no_file_becomes_set_user_id(machine: str):
    making, tmpfile, writing = 0o100 | 1, 0o20200000 | 2, 1
    for call in ("fchmod", "fchmodat", "fchmodat2", "mkdirat", "mknodat"):
        before = (3,) if call == "fchmod" else (3, 0)
        assert say(machine, call, *before, 0o755) == say(machine, call, *before, 0o1777) == ALLOWED
        assert say(machine, call, *before, 0o4755) == say(machine, call, *before, 0o2755) == failing(errno.EPERM)
    assert say(machine, "openat", 3, 0, making, 0o4755) == say(machine, "openat", 3, 0, tmpfile, 0o4755) == failing(errno.EPERM)
    assert say(machine, "openat", 3, 0, making, 0o644) == ALLOWED
    assert say(machine, "openat", 3, 0, writing, 0o4755) == ALLOWED  # what lies there is not a mode
    assert say(machine, "openat2") == failing(errno.ENOSYS)


def test_no_rules_are_made_once_those_of_the_sandbox_hold(machine: str):
    last = seccomp.no_more_rules(machine)
    for call in ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"):
        assert say(machine, call) == ALLOWED  # the sandbox needs them
        number = seccomp.number(call, machine)
        assert number is not None and verdict(last, MACHINES[machine], number) == failing(errno.ENOSYS)
    assert {verdict(last, MACHINES[machine], number) for number in (0, 1, 59, 221)} == {ALLOWED}


@pytest.mark.parametrize("call", ["inotify_init1", "io_setup", "mq_open"])
def test_what_is_counted_for_the_user_outside_as_well_is_not_to_be_had(machine: str, call: str):
    assert say(machine, call) == failing(errno.ENOSYS)


def test_no_file_is_leased_so_that_others_wait_for_it(machine: str):
    duplicate, set_lock, set_lease, notify, set_pipe_size = 0, 6, 1024, 1026, 1031
    assert say(machine, "fcntl", 3, set_pipe_size) == failing(errno.EPERM)
    assert say(machine, "fcntl", 3, set_lease) == say(machine, "fcntl", 3, notify) == failing(errno.EPERM)
    assert say(machine, "fcntl", 3, duplicate) == say(machine, "fcntl", 3, set_lock) == ALLOWED


def test_every_call_meets_its_own_rule_and_no_other(machine: str):
    listed = {n for call in seccomp.calls() if (n := seccomp.number(call, machine)) is not None}
    program = seccomp.compile_rules([seccomp.SyscallRule(call, number + 1) for number, call in enumerate(seccomp.calls())], machine)
    for call_number in range(600):
        said = verdict(program, MACHINES[machine], call_number)
        wanted = [at + 1 for at, call in enumerate(seccomp.calls()) if seccomp.number(call, machine) == call_number]
        assert said == (failing(wanted[0]) if call_number in listed else ALLOWED), call_number


@pytest.mark.parametrize("call", ["semget", "msgget", "shmget", "vmsplice"])
def test_memory_that_would_be_nobodys_is_not_to_be_had(machine: str, call: str):
    assert say(machine, call) == failing(errno.ENOSYS)


def test_ordinary_calls_pass_and_every_other_tongue_ends_the_process(machine: str):
    program = seccomp.tool_filter(machine)
    ordinary = {"x86_64": (0, 1, 2, 9, 57, 59, 60, 231, 257), "aarch64": (56, 63, 64, 93, 94, 221, 222)}[machine]
    assert {verdict(program, MACHINES[machine], number) for number in ordinary} == {ALLOWED}
    other = next(value for name, value in MACHINES.items() if name != machine)
    assert {verdict(program, wrong, 39) for wrong in (other, I386, ARM)} == {KILLED}
    if machine == "x86_64":
        assert verdict(program, MACHINES[machine], 0x40000000 | 39) == KILLED  # x32


def test_no_number_is_listed_twice_and_both_machines_know_the_same_dangers():
    for machine in MACHINES:
        numbers = [n for call in seccomp.calls() if (n := seccomp.number(call, machine)) is not None]
        assert len(numbers) == len(set(numbers))
    absent = [call for call in seccomp.calls() if seccomp.number(call, "aarch64") is None]
    other_ways = ["open", "creat", "chmod", "mkdir", "mknod"]
    assert absent == ["uselib", "modify_ldt", "iopl", "ioperm", "_sysctl", "inotify_init", *other_ways]


def test_no_network_leaves_everything_else(machine: str):
    program, architecture = seccomp.no_network(machine), MACHINES[machine]
    socket, ptrace = seccomp.number("socket", machine), seccomp.number("ptrace", machine)
    assert socket is not None and ptrace is not None
    for family in (2, 10, 16, 17, 40):
        assert verdict(program, architecture, socket, family) == failing(errno.EAFNOSUPPORT)
    assert verdict(program, architecture, socket, 1) == ALLOWED
    assert verdict(program, architecture, ptrace) == ALLOWED
    assert verdict(program, architecture, 425) == failing(errno.ENOSYS)


def test_install_binds_threads_that_run_already_and_children():
    script = """
import socket, subprocess, sys, threading
from appliance.sandbox import seccomp
go, said = threading.Event(), []
def attempt():
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.socket(family)
            said.append("open")
        except OSError as error:
            said.append(error.errno)
thread = threading.Thread(target=lambda: (go.wait(), attempt()))
thread.start()
socket.socket(socket.AF_INET).close()
seccomp.install(seccomp.no_network())
go.set()
thread.join()
attempt()
socket.socketpair()
child = subprocess.run([sys.executable, "-c", "import socket; socket.socket()"], capture_output=True, text=True)
print(said, child.stderr.splitlines()[-1])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=180)
    assert done.stdout.startswith(f"{[errno.EAFNOSUPPORT] * 4} OSError: [Errno {errno.EAFNOSUPPORT}]"), done.stderr


def test_a_broken_program_is_refused_with_the_reason():
    script = "from appliance.sandbox import seccomp; seccomp.install(b'\\x00' * 12)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=180)
    assert done.returncode == 1 and Unavailable.__name__ in done.stderr and "seccomp" in done.stderr
