"""What a hostile program tries from inside a call: run as `python3 -I -S attacks.py`, the world as JSON on standard input.

Every function `try_NAME` is one attempt, carried out in a process of its own. It returns what it got, raises the
kernel's refusal, or is ended. Each goes as far as shows that the way is open and no further: outside of a
sandbox, where all of them are run too, none harms the machine. Prints one line of JSON an attempt. Standard
library only: nothing else is there.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
MARK = b"attacks.py"
NEW_NS, NEW_USER, NEW_NET = 0x20000, 0x10000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC = 1, 32, 4096, 16384
DEVICES = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "fd", "stdin", "stdout", "stderr"}
World = dict[str, Any]


def call(world: World, name: str, *arguments: object) -> int:
    """A system call by its number, past the C library."""
    number = world["numbers"][name]
    if number is None:
        raise OSError(errno.ENOSYS, "not on this machine")
    return checked(libc.syscall(number, *(_long(argument) for argument in arguments)))


def _long(value: object) -> object:
    return ctypes.c_long(value) if isinstance(value, int) else value


def checked(result: int) -> int:
    """The result of a call of the C library, or its error."""
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def read(path: str) -> str:
    """What a file holds, as much of it as proves that it can be read."""
    with open(path, "rb") as file:
        return f"{len(file.read(64))} bytes of {path}"


def openable(flags: int, *paths: str) -> str:
    """Those of the paths that can be opened; the last refusal when none can."""
    got, refusal = [], OSError(errno.ENOENT, "")
    for path in paths:
        try:
            os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK))
            got.append(path)
        except OSError as error:
            refusal = error
    if not got:
        raise refusal
    return " ".join(got)


def stranger(pid: int) -> int:
    """The process id of somebody else: numbers are given anew inside, and one of ours may have got it."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if MARK in file.read():
                raise ProcessLookupError(errno.ESRCH, "one of our own")
    except FileNotFoundError:
        pass
    return pid


def alone() -> None:
    """Out of the machine's mounts before playing with them; inside a sandbox that is refused, and not needed."""
    libc.unshare(NEW_NS)
    libc.mount(None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE


def mounted(*arguments: object) -> None:
    checked(libc.mount(*arguments))


def folder(name: str) -> bytes:
    os.makedirs(name, exist_ok=True)
    return os.path.abspath(name).encode()


# -- what lies beside the folder -----------------------------------------------------------------------


def try_other_session(world: World) -> str:
    return read(world["other"])


def try_other_session_upwards(world: World) -> str:
    return read("../../other/data/secret")


def try_database(world: World) -> str:
    return read(world["database"])


def try_configuration(world: World) -> str:
    return read(world["configuration"])


def try_keys(world: World) -> str:
    return read(world["keys"])


def try_people(world: World) -> str:
    return read(world["people"])


def try_identity(world: World) -> str:
    return read(world["identity"])


def try_log(world: World) -> str:
    return read(world["log"])


def try_write_outside(world: World) -> str:
    with open(world["outside"], "w") as file:
        file.write("was here")
    os.unlink(world["outside"])
    return "wrote"


def try_write_programs(world: World) -> str:
    return openable(os.O_WRONLY, "/usr/lib/os-release", "/usr/bin", "/etc/passwd", "/lib/os-release")


def try_symbolic_link(world: World) -> str:
    os.symlink(world["database"], "link")
    return read("link")


def try_hard_link(world: World) -> str:
    os.link(world["database"], "hard")
    return read("hard")


def try_own_root(world: World) -> str:
    return read("/proc/self/root/../../.." + world["database"])


def try_first_root(world: World) -> str:
    return read(f"/proc/{world['first']}/root{world['database']}")


def try_upwards(world: World) -> str:
    return read("../" * 40 + world["database"].lstrip("/"))


def try_chroot(world: World) -> str:
    inner = folder("jail")
    held = os.open("/", os.O_RDONLY)
    checked(libc.chroot(inner))
    os.fchdir(held)
    for _ in range(40):
        os.chdir("..")
    checked(libc.chroot(b"."))
    return read(world["database"])


def try_handle(world: World) -> str:
    """The second inode of the disk below the folder is that disk's root, whatever is mounted where."""
    handle = struct.pack("=IiII", 8, 1, 2, 0)
    return f"descriptor {call(world, 'open_by_handle_at', os.open('.', os.O_RDONLY), handle, os.O_RDONLY)}"


def try_handle_by_name(world: World) -> str:
    handle, place = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128)), ctypes.c_int()
    call(world, "name_to_handle_at", -100, b"/usr", handle, ctypes.byref(place), 0)
    return "a handle"


def try_descriptors(world: World) -> str:
    if not world["held"]:
        raise OSError(errno.EBADF, "")
    return f"inherited {world['held']}"


def is_one_of(path: str, files: list[os.stat_result]) -> bool:
    """Whether it is one of these files; what the first has closed since it was listed is none."""
    try:
        return any(os.path.samestat(os.stat(path), one) for one in files)
    except FileNotFoundError:
        return False


def try_descriptors_of_the_first(world: World) -> str:
    """Beyond the streams that it has from the same hands as we have."""
    held, ours = f"/proc/{world['first']}/fd", [os.fstat(number) for number in (0, 1, 2)]
    found = [f"{held}/{name}" for name in os.listdir(held)]
    return openable(os.O_RDONLY, *(path for path in found if not is_one_of(path, ours)))


def try_memory_of_the_first(world: World) -> str:
    return openable(os.O_RDWR, f"/proc/{world['first']}/mem")


def try_environment(world: World) -> str:
    if world["secret"] not in "\n".join(os.environ.values()):
        raise OSError(errno.ENOENT, "")
    return "the key"


def try_preload(world: World) -> str:
    if not (found := [name for name in os.environ if name.startswith(("LD_", "PYTHON", "PERL"))]):
        raise OSError(errno.ENOENT, "")
    return " ".join(found)


def try_environment_of_the_first(world: World) -> str:
    with open(f"/proc/{world['first']}/environ") as file:
        if not (held := file.read()):
            raise OSError(errno.ENOENT, "")
    return held[:40]


# -- other processes -------------------------------------------------------------------------------------


def _of(pid: int, name: str) -> str:
    return openable(os.O_RDONLY, f"/proc/{stranger(pid)}/{name}")


def try_core_environment(world: World) -> str:
    return _of(world["core"], "environ")


def try_core_memory(world: World) -> str:
    return _of(world["core"], "mem")


def try_core_descriptors(world: World) -> str:
    return " ".join(os.listdir(f"/proc/{stranger(world['core'])}/fd"))


def try_core_root(world: World) -> str:
    return read(f"/proc/{stranger(world['core'])}/root{world['database']}")


def try_broker_environment(world: World) -> str:
    return _of(world["broker"], "environ")


def try_broker_memory(world: World) -> str:
    return _of(world["broker"], "mem")


def try_broker_descriptors(world: World) -> str:
    return " ".join(os.listdir(f"/proc/{stranger(world['broker'])}/fd"))


def try_list_of_processes(world: World) -> str:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if world["home"].encode() in file.read():
                return f"process {pid}"
    raise OSError(errno.ESRCH, "")


def try_signal(world: World) -> str:
    os.kill(stranger(world["core"]), 0)
    return "would arrive"


def try_signal_by_descriptor(world: World) -> str:
    signal.pidfd_send_signal(os.pidfd_open(stranger(world["broker"])), 0)
    return "would arrive"


def try_stolen_descriptor(world: World) -> str:
    try:
        handle = os.pidfd_open(stranger(world["core"]))
    except ProcessLookupError:
        handle = os.pidfd_open(os.getppid())
    return f"descriptor {call(world, 'pidfd_getfd', handle, 0, 0)}"


def try_ptrace(world: World) -> str:
    call(world, "ptrace", 0x4206, world["core"], 0, 0)  # PTRACE_SEIZE
    return "seized"


def try_ptrace_own_parent(world: World) -> str:
    call(world, "ptrace", 0x4206, os.getppid(), 0, 0)
    return "seized"


def try_ptrace_from_below(world: World) -> str:
    call(world, "ptrace", 0, 0, 0, 0)  # PTRACE_TRACEME
    return "traced"


def _remote(world: World, name: str) -> str:
    try:
        with open(f"/proc/{stranger(world['core'])}/maps") as file:
            start = next(int(line.split("-")[0], 16) for line in file if " rw-p " in line)
    except OSError:
        start = 0x400000
    buffer = ctypes.create_string_buffer(8)
    here = struct.pack("=QQ", ctypes.addressof(buffer), 8 if name.endswith("readv") else 0)
    there = struct.pack("=QQ", start, 8 if name.endswith("readv") else 0)
    return f"{call(world, name, world['core'], here, 1, there, 1, 0)} bytes"


def try_read_remote_memory(world: World) -> str:
    return _remote(world, "process_vm_readv")


def try_write_remote_memory(world: World) -> str:
    return _remote(world, "process_vm_writev")


def try_compare_processes(world: World) -> str:
    return f"{call(world, 'kcmp', os.getpid(), os.getppid(), 0, 0, 0)}"


def try_limits_of_others(world: World) -> str:
    return f"{resource.prlimit(stranger(world['core']), resource.RLIMIT_NOFILE)}"


# -- the net and sockets -----------------------------------------------------------------------------------


def _connected(family: int, kind: int, address: Any) -> str:
    with socket.socket(family, kind) as sock:
        sock.settimeout(2)
        sock.connect(address)
    return f"connected to {address}"


def try_localhost(world: World) -> str:
    return _connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", world["port"]))


def try_localhost_datagram(world: World) -> str:
    return _connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 53))


def try_localhost_ipv6(world: World) -> str:
    return _connected(socket.AF_INET6, socket.SOCK_DGRAM, ("::1", 53))


def try_metadata_address(world: World) -> str:
    return _connected(socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 80))  # sends nothing: only asks for the way


def try_public_address(world: World) -> str:
    return _connected(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))


def try_listen(world: World) -> str:
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))
        sock.listen()
    return "listens"


def try_core_socket(world: World) -> str:
    return _connected(socket.AF_UNIX, socket.SOCK_STREAM, world["core_socket"])


def try_broker_socket(world: World) -> str:
    return _connected(socket.AF_UNIX, socket.SOCK_STREAM, world["broker_socket"])


def try_core_socket_by_root(world: World) -> str:
    return _connected(socket.AF_UNIX, socket.SOCK_STREAM, f"/proc/{stranger(world['core'])}/root{world['core_socket']}")


def try_abstract_socket(world: World) -> str:
    return _connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + world["abstract"])


def try_any_socket(world: World) -> str:
    """Message buses, systemd, container daemons, agents of keys: whatever has a socket anywhere it may lie."""
    found = []
    for top in ("/run", "/tmp", "/var", "/dev", "/etc", "/home", "/root"):
        for place, folders, names in os.walk(top):
            found += [f"{place}/{name}" for name in names if stat.S_ISSOCK(os.lstat(f"{place}/{name}").st_mode)]
            if place.count("/") >= 3:
                folders.clear()
    if not found:
        raise OSError(errno.ENOENT, "")
    return " ".join(found)[:200]


def _socket(family: int, kind: int, protocol: int = 0) -> str:
    socket.socket(family, kind, protocol).close()
    return "a socket"


def try_raw_socket(world: World) -> str:
    return _socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def try_packet_socket(world: World) -> str:
    return _socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


def try_netlink_socket(world: World) -> str:
    return _socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


def try_vsock_socket(world: World) -> str:
    return _socket(40, socket.SOCK_STREAM)


def try_crypto_socket(world: World) -> str:
    return _socket(38, socket.SOCK_SEQPACKET)


def try_socket_in_high_bits(world: World) -> str:
    """The kernel looks at the low half of the number only; a filter that compares all of it sees another family."""
    return f"descriptor {call(world, 'socket', (1 << 32) | 2, 1, 0)}"


# -- more rights -------------------------------------------------------------------------------------------------


def try_set_user_id_program(world: World) -> str:
    """A program that belongs to root and makes root of whoever runs it, lying in the folder."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        os.dup2(writing, 1)
        os.execv("./id", ["id", "-u"])
    os.close(writing)
    os.waitpid(child, 0)
    if os.read(reading, 10) != b"0\n":
        raise OSError(errno.EPERM, "")
    return "root"


def try_make_set_user_id(world: World) -> str:
    with open("setuid", "w") as file:
        os.fchmod(file.fileno(), 0o4755)
    return f"mode {os.stat('setuid').st_mode:o}"


def try_set_user_id(world: World) -> str:
    os.setresuid(0, 0, 0)
    return "root"


def try_set_groups(world: World) -> str:
    os.setgroups([0, 27])
    return "groups"


def try_capabilities(world: World) -> str:
    checked(libc.capset(struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", 1 << 21, 1 << 21, 0, 0, 0, 0)))
    return "CAP_SYS_ADMIN"


def try_user_namespace(world: World) -> str:
    call(world, "unshare", NEW_USER)
    return "a user namespace"


def _born(pid: int) -> str:
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a child in a user namespace"


def try_clone_user_namespace(world: World) -> str:
    return _born(call(world, "clone", NEW_USER | signal.SIGCHLD, 0, 0, 0, 0))


def try_clone3_user_namespace(world: World) -> str:
    return _born(call(world, "clone3", struct.pack("=11Q", NEW_USER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0), 88))


def try_join_namespace(world: World) -> str:
    call(world, "setns", os.open("/proc/self/ns/net", os.O_RDONLY), NEW_NET)
    return "joined"


def try_mount(world: World) -> str:
    alone()
    mounted(b"none", folder("m"), b"tmpfs", 0, None)
    return "mounted"


def try_mount_proc(world: World) -> str:
    alone()
    mounted(b"proc", folder("m"), b"proc", 0, None)
    return "mounted"


def try_bind(world: World) -> str:
    alone()
    mounted(b"/", folder("m"), None, MS_BIND | MS_REC, None)
    return read(os.path.abspath("m") + world["database"])


def try_remount(world: World) -> str:
    alone()
    libc.mount(b"/usr", folder("m"), None, MS_BIND, None)
    mounted(None, b"/usr" if world["is_inside"] else folder("m"), None, MS_REMOUNT | MS_BIND, None)
    return "writable"


def try_unmount(world: World) -> str:
    alone()
    libc.mount(b"none", folder("m"), b"tmpfs", 0, None)
    checked(libc.umount2(b"/proc" if world["is_inside"] else folder("m"), 2))
    return "uncovered"


def try_new_mount(world: World) -> str:
    return f"descriptor {call(world, 'fsopen', b'tmpfs', 0)}"


def try_open_tree(world: World) -> str:
    alone()
    return f"descriptor {call(world, 'open_tree', -100, b'/', 1)}"  # OPEN_TREE_CLONE


def try_pivot_root(world: World) -> str:
    alone()
    libc.mount(b"none", folder("m"), b"tmpfs", 0, None)
    folder("m/old")
    call(world, "pivot_root", folder("m"), os.path.abspath("m/old").encode())
    return "another root"


def try_device_node(world: World) -> str:
    os.mknod("device", stat.S_IFCHR | 0o666, os.makedev(1, 11))
    return openable(os.O_RDONLY, "device")


def try_disk_node(world: World) -> str:
    os.mknod("disk", stat.S_IFBLK | 0o600, os.stat(".").st_dev)
    os.unlink("disk")
    return "a node of the disk"


def try_devices(world: World) -> str:
    names = ("kmsg", "mem", "port", "fuse", "kvm", "net/tun", "loop-control", "vda", "sda", "mmcblk0", "nvme0n1")
    return openable(os.O_RDONLY, *(f"/dev/{name}" for name in names))


def try_other_devices(world: World) -> str:
    if not (found := set(os.listdir("/dev")) - DEVICES - {"core"}):
        raise OSError(errno.ENOENT, "")
    return " ".join(sorted(found))[:100]


def try_priority(world: World) -> str:
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return "more urgent"


def try_real_time(world: World) -> str:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "before everybody"


def try_processors(world: World) -> str:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return "all processors"


def try_raise_limits(world: World) -> str:
    try:
        for what in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_DATA):
            resource.setrlimit(what, (1 << 50, resource.RLIM_INFINITY))
    except ValueError as error:
        raise PermissionError(errno.EPERM, str(error)) from error
    return "raised"


def try_large_file(world: World) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("hole", "wb") as file:
        file.truncate(1 << 40)
    os.unlink("hole")
    return "a terabyte"


# -- the kernel ------------------------------------------------------------------------------------------------------


def try_core_pattern(world: World) -> str:
    return openable(os.O_WRONLY, "/proc/sys/kernel/core_pattern")


def try_modprobe_path(world: World) -> str:
    return openable(os.O_WRONLY, "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/poweroff_cmd")


def try_sysctl(world: World) -> str:
    return openable(os.O_WRONLY, "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/pid_max", "/proc/sys/fs/file-max")


def try_sysrq(world: World) -> str:
    return openable(os.O_WRONLY, "/proc/sysrq-trigger", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/panic")


def try_interrupts(world: World) -> str:
    return openable(os.O_WRONLY, "/proc/irq/default_smp_affinity")


def try_kernel_files(world: World) -> str:
    return openable(os.O_WRONLY, "/sys/power/state", "/sys/kernel/uevent_helper", "/sys/module/printk/parameters/time")


def try_kernel_memory(world: World) -> str:
    return openable(os.O_RDONLY, "/proc/kcore", "/dev/mem", "/proc/kmsg", "/sys/kernel/debug")


def try_control_groups(world: World) -> str:
    found = [f"{place}/{name}" for place, _, names in os.walk("/sys/fs/cgroup") for name in names if name in world["groups"]]
    return openable(os.O_WRONLY, *found)[:100]


def try_mount_control_groups(world: World) -> str:
    alone()
    mounted(b"none", folder("m"), b"cgroup2", 0, None)
    return "mounted"


def try_out_of_memory_score(world: World) -> str:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    return "never chosen"


def try_keyring(world: World) -> str:
    return f"key {call(world, 'add_key', b'user', b'attack', b'x', 1, -2)}"


def try_keyring_read(world: World) -> str:
    return f"keyring {call(world, 'keyctl', 0, -4, 1)}"


def try_request_key(world: World) -> str:
    call(world, "request_key", b"user", b"attack", 0, 0)
    return "a key"


def try_io_uring(world: World) -> str:
    return f"descriptor {call(world, 'io_uring_setup', 1, ctypes.create_string_buffer(120))}"


def try_bpf(world: World) -> str:
    return f"descriptor {call(world, 'bpf', 0, struct.pack('=4I', 2, 4, 4, 1) + bytes(112), 128)}"


def try_perf_events(world: World) -> str:
    attributes = struct.pack("=IIQ", 1, 112, 0) + bytes(96)
    return f"descriptor {call(world, 'perf_event_open', attributes, 0, -1, -1, 0)}"


def try_userfaultfd(world: World) -> str:
    return f"descriptor {call(world, 'userfaultfd', os.O_CLOEXEC)}"


def try_fanotify(world: World) -> str:
    return f"descriptor {call(world, 'fanotify_init', 0x200, 0)}"


def try_load_module(world: World) -> str:
    return f"{call(world, 'finit_module', -1, b'', 0)}"


def try_load_module_from_memory(world: World) -> str:
    return f"{call(world, 'init_module', bytes(16), 16, b'')}"


def try_another_kernel(world: World) -> str:
    return f"{call(world, 'kexec_load', 0, 0, 0, 0xFFFF)}"


def try_reboot(world: World) -> str:
    return f"{call(world, 'reboot', 1, 2, 3, 0)}"  # not the numbers that would do it


def try_clock(world: World) -> str:
    now = ctypes.create_string_buffer(256)
    checked(libc.adjtimex(now))
    struct.pack_into("=I", now, 0, 0x10)  # ADJ_STATUS, as it is
    checked(libc.adjtimex(now))
    return "the clock"


def try_clock_elsewhere(world: World) -> str:
    return f"{call(world, 'clock_settime', 0, struct.pack('=qq', 0, -1))}"  # a time there is not


def try_host_name(world: World) -> str:
    socket.sethostname(socket.gethostname())
    return "renamed"


def try_kernel_log(world: World) -> str:
    return f"{call(world, 'syslog', 10, 0, 0)} bytes"


def try_accounting(world: World) -> str:
    return f"{call(world, 'acct', b'/no/such/file')}"


def try_swap(world: World) -> str:
    return f"{call(world, 'swapon', b'/no/such/file', 0)}"


def try_quota(world: World) -> str:
    return f"{call(world, 'quotactl', 0x800001 << 8, 0, 0, 0)}"  # Q_SYNC of everything


def try_ports(world: World) -> str:
    return f"{call(world, 'ioperm', 0x80, 1, 1)}"


def try_privilege_level(world: World) -> str:
    return f"{call(world, 'iopl', 3)}"


def try_descriptor_table(world: World) -> str:
    return f"{call(world, 'modify_ldt', 0, ctypes.create_string_buffer(16), 16)}"


def try_personality(world: World) -> str:
    return f"{call(world, 'personality', 0x40000)}"  # no random addresses


def try_x32(world: World) -> str:
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "")
    libc.syscall(0x40000000 | 39)
    return "answered"


def try_i386(world: World) -> str:
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "")
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
    return str(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())


def try_type_into_terminal(world: World) -> str:
    fcntl.ioctl(os.openpty()[1], 0x5412, b"x")  # TIOCSTI
    return "typed"


def try_type_in_high_bits(world: World) -> str:
    return f"{call(world, 'ioctl', os.openpty()[1], (1 << 32) | 0x5412, b'x')}"


def try_terminal_of_the_caller(world: World) -> str:
    return openable(os.O_RDWR, "/dev/tty")


# -- memory that is nobody's --------------------------------------------------------------------------------------------


def try_memory_file(world: World) -> str:
    return f"descriptor {call(world, 'memfd_create', b'x', 0)}"


def try_shared_memory(world: World) -> str:
    made = call(world, "shmget", 0, 4096, 0o1600)
    libc.shmctl(made, 0, None)
    return f"segment {made}"


def try_semaphores(world: World) -> str:
    made = call(world, "semget", 0, 1, 0o1600)
    libc.semctl(made, 0, 0)
    return f"semaphores {made}"


def try_message_queue(world: World) -> str:
    made = call(world, "msgget", 0, 0o1600)
    libc.msgctl(made, 0, None)
    return f"queue {made}"


def try_rules(world: World) -> str:
    """Rules of Landlock, of which a process may make millions."""
    return f"descriptor {call(world, 'landlock_create_ruleset', struct.pack('=Q', 1), 8, 0)}"


def try_pinned_pages(world: World) -> str:
    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return f"{call(world, 'vmsplice', os.pipe()[1], struct.pack('=QQ', address, 4096), 1, 0)} bytes"


# -- without end: each on its own -------------------------------------------------------------------------------------------


ENOUGH = 1 << 30  # whoever is asked for more than that is to be ended from outside, and waits for it with what it has
GENERATIONS = 10  # of a bomb that nobody ends: each doubles it, to 1,024 processes at most


def rest(most: int) -> None:
    if most > ENOUGH:
        time.sleep(60)


def grow_processes(most: int) -> None:
    """So many processes; without an end a fork bomb, of which every process makes more, and which is bounded all the same.

    A count that all of them keep would lose some under load, and the bomb would have no end (seen: 4,000 at once).
    """
    if most > ENOUGH:
        for _ in range(GENERATIONS):
            with contextlib.suppress(OSError):
                os.fork()
        rest(most)
        return
    children = []
    for _ in range(most):
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def grow_memory(most: int) -> None:
    held = []
    while len(held) << 20 < most:
        held.append(bytearray(os.urandom(1)) * (1 << 20))
    rest(most)


def grow_files(most: int) -> None:
    for number in range(most >> 20):
        with open(f"fill-{number}", "wb") as file:
            file.write(bytes(1 << 20))
    rest(most)


def grow_output(most: int) -> None:
    for _ in range(most >> 20):
        os.write(1, b"x" * (1 << 20))
    rest(most)


def grow_shared_pages(most: int) -> None:
    """Pages shared with nobody, put out of sight: they stay, and count for no process."""
    pages, step = mmap.mmap(-1, min(most, 1 << 32), flags=mmap.MAP_SHARED | 0x4000), 1 << 20
    for start in range(0, len(pages), step):
        pages[start : start + step] = bytes(step)
        pages.madvise(mmap.MADV_DONTNEED, start, step)
    rest(most)


def grow_page_tables(most: int) -> None:
    """Reading empty memory costs no page, but a page of the table that says so for every two megabytes."""
    pages = mmap.mmap(-1, 1 << 42, flags=mmap.MAP_PRIVATE | 0x4000, prot=mmap.PROT_READ)
    pages.madvise(15)  # MADV_NOHUGEPAGE
    for number in range(min(most >> 12, 1 << 20)):
        pages[number << 21]
    rest(most)


def grow_sockets(most: int) -> None:
    """What waits in sockets to be read is the kernel's memory."""
    held, done, generation = [], 0, 0
    while done < most:
        try:
            pair = socket.socketpair()
        except OSError:
            generation += 1
            if generation > 20 or os.fork():
                time.sleep(60)
            held.clear()
            continue
        held.append(pair)
        pair[0].setblocking(False)
        try:
            while True:
                done += pair[0].send(bytes(1 << 15))
        except BlockingIOError:
            pass
    rest(most)


def grow_unlinked(most: int) -> None:
    """Files without a name that only a mapping holds, in a process that cannot be looked into."""
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    for _ in range(most >> 22):
        with open("gone", "w+b") as file:
            file.write(bytes(4 << 20))
            file.flush()
            checked(libc.mmap(None, 4096, 1, 1, file.fileno(), 0))
        os.unlink("gone")
    rest(most)


def leave_daemon(most: int) -> None:
    """A process that would live on; says its number, and that it lives, in a file."""
    if os.fork():
        time.sleep(0.3)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (1, 2, 15):
        signal.signal(number, signal.SIG_IGN)
    null = os.open("/dev/null", os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    end_s = time.monotonic() + most
    while time.monotonic() < end_s:
        with open("alive", "w") as file:
            file.write(f"{os.getpid()} {time.monotonic()}")
        time.sleep(0.02)


# -- one after another ---------------------------------------------------------------------------------------------------


def attempt(function: Callable[[World], str], world: World) -> dict[str, str]:
    """Let a child try; what it got or how it was refused."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        signal.alarm(10)
        try:
            said = {"got": function(world) or "something"}
        except OSError as error:
            said = {"refused": errno.errorcode.get(error.errno or 0, str(error))}
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    status = os.waitpid(child, 0)[1]
    if not told:
        return {"refused": signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "ended"}
    return dict(json.loads(told))


def main() -> None:
    if len(sys.argv) > 1:
        globals()[sys.argv[1]](int(sys.argv[2]))
        return
    held = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    world = json.load(sys.stdin)
    world["held"] = [handle for handle in held if os.path.exists(f"/proc/self/fd/{handle}")]
    for name, function in sorted(globals().items()):
        if name.startswith("try_"):
            print(json.dumps({"name": name[4:], **attempt(function, world)}), flush=True)


if __name__ == "__main__":
    main()
