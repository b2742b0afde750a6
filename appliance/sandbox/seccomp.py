"""Which system calls a process may make, as a program for the kernel (seccomp, classic BPF).

Two programs, for x86-64 and 64-bit ARM: what a tool in the sandbox may call (`tool_filter`), and a process
that must not reach any network (`no_network`). Both name what is denied and let the rest pass, as container
runtimes do: a list of what is allowed breaks with every new C library. A denied call fails with an error a
program can handle; calls in the tongue of another architecture, where the numbers mean something else, end
the process. Knows nothing about bubblewrap.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from appliance.errors import Unavailable

Machine = Literal["x86_64", "aarch64"]

# linux/audit.h: how the kernel names the architecture of a call.
_ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000  # numbers of the x32 tongue carry the same architecture, and this bit
SECCOMP_CALL: Mapping[str, int] = {"x86_64": 317, "aarch64": 277}

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _BITS, _AT_LEAST, _GO, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x05, 0x06
_NR, _ARCH, _ARGUMENTS = 0, 4, 16

# Call: its number on x86-64 and on aarch64, None where it does not exist (linux: unistd_64.h, asm-generic/unistd.h).
_NUMBERS: Mapping[str, tuple[int | None, int | None]] = {
    # other processes' memory and state
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    # what is mounted where
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    # files by another way than their name
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    # namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    # keys of the kernel, which namespaces do not part
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # programs for the kernel, and calls past this filter
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "lookup_dcookie": (212, 18),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    # the machine as a whole
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "nfsservctl": (180, 42),
    "_sysctl": (156, None),
    # where a process runs and where its memory lies: limits of ours
    "sched_setaffinity": (203, 122),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # memory that belongs to no process and so counts for none; pages that a pipe holds on to are the last
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "vmsplice": (278, 75),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # what the kernel counts for the user or the machine, so that whoever takes much leaves others nothing
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "mq_open": (240, 180),
    # room on the disk that is taken at once, before anybody can look
    "fallocate": (285, 47),
    # rules of Landlock, which the last step into the sandbox needs; each takes memory that counts for none
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    # judged by what is asked
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "creat": (85, None),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "personality": (135, 92),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "socket": (41, 198),
    "socketpair": (53, 199),
}

_CLONE_NEW = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # Linux, 32 bit, old version number, both; asking
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX: typing into the terminal of whoever started us
_OUTSIDE = (1024, 1026, 1031)  # F_SETLEASE, which lets others wait 45 s for a file, F_NOTIFY, F_SETPIPE_SZ
_AF_UNIX = 1
_AF_INTERNET = (2, 10, 16)  # AF_INET, AF_INET6, and AF_NETLINK, which looking up a name asks for the addresses of this machine

_SET_ID = 0o6000  # a program that would run with the rights of the folder's owner, for whoever finds it outside
_CREATING = 0o20000100  # O_CREAT, and O_TMPFILE's own bit: only then is a mode meant
# Which argument is the mode, and which one the flags that say whether it is meant.
_MODES: Mapping[str, tuple[int, int | None]] = {
    "open": (2, 1),
    "openat": (3, 2),
    "creat": (1, None),
    "chmod": (1, None),
    "fchmod": (1, None),
    "fchmodat": (2, None),
    "fchmodat2": (2, None),
    "mkdir": (1, None),
    "mkdirat": (2, None),
    "mknod": (1, None),
    "mknodat": (2, None),
}

# Absent rather than forbidden: the C library then takes another way. What the first two are asked lies where no
# filter can look.
_ABSENT = (
    *("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_create", "memfd_secret"),
    *("shmget", "semget", "msgget", "vmsplice", "inotify_init", "inotify_init1", "io_setup", "mq_open"),
)
_LATER = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")  # denied when it has done with them
_JUDGED = ("clone", "personality", "ioctl", "fcntl", "socket", "socketpair", "fallocate", *_MODES)


class SyscallRule(NamedTuple):
    """One call and when it fails with `error`: always, or depending on the low 32 bits of one argument."""

    call: str
    error: int
    argument: int = -1  # -1: whatever is asked
    test: Literal["always", "bits", "among", "unless"] = "always"
    values: tuple[int, ...] = ()
    flags: int | None = None  # with "bits": the argument that must say that a file is made


@lru_cache(maxsize=8)
def tool_filter(machine: str = "", *, has_unix: bool = True, has_network: bool = False) -> bytes:
    """The program for a tool: nothing of the list above, no socket but AF_UNIX, and not even that without `has_unix`.

    `has_network` is for a program that shares this machine's network: there AF_UNIX is for pairs alone, because sockets
    with abstract names belong to a network and not to a folder.
    """
    rules = [
        SyscallRule(name, errno.ENOSYS if name in _ABSENT else errno.EPERM) for name in _NUMBERS if name not in (*_JUDGED, *_LATER)
    ]
    rules += [
        SyscallRule("fallocate", errno.EOPNOTSUPP),  # the C library then writes, as on disks that do not know it
        SyscallRule("clone", errno.EPERM, 0, "bits", (_CLONE_NEW,)),
        SyscallRule("personality", errno.EPERM, 0, "unless", _PERSONALITIES),
        SyscallRule("ioctl", errno.EPERM, 1, "among", _TERMINAL),
        SyscallRule("fcntl", errno.EPERM, 1, "among", _OUTSIDE),
    ]
    rules += [SyscallRule(name, errno.EPERM, mode, "bits", (_SET_ID,), flags) for name, (mode, flags) in _MODES.items()]
    if has_network:
        allowed = {"socket": _AF_INTERNET, "socketpair": (_AF_UNIX,)}
        held = [SyscallRule(name, errno.EAFNOSUPPORT, 0, "unless", families) for name, families in allowed.items()]
        return compile_rules([*rules, *held], machine)
    return compile_rules([*rules, *_socket_rules((_AF_UNIX,) if has_unix else ())], machine)


@lru_cache(maxsize=4)
def no_more_rules(machine: str = "") -> bytes:
    """The program for a tool that comes on top when its Landlock rules are in force: it makes none of its own."""
    return compile_rules([SyscallRule(name, errno.ENOSYS) for name in _LATER], machine)


def no_network(machine: str = "") -> bytes:
    """The program for a process of ours that must not reach a network: sockets are AF_UNIX only, and no io_uring."""
    rings = [SyscallRule(name, errno.ENOSYS) for name in _NUMBERS if name.startswith("io_uring_")]
    return compile_rules([*rings, *_socket_rules((_AF_UNIX,))], machine)


def _socket_rules(families: tuple[int, ...]) -> list[SyscallRule]:
    return [SyscallRule(name, errno.EAFNOSUPPORT, 0, "unless", families) for name in ("socket", "socketpair")]


def compile_rules(rules: list[SyscallRule], machine: str = "") -> bytes:
    """The rules as the kernel reads them, for this machine unless another is named."""
    machine = machine or this_machine()
    column = list(_ARCHITECTURES).index(machine)
    code = [
        _load_instruction(_ARCH),
        _jump_instruction(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _return_instruction(_KILL),
        _load_instruction(_NR),
    ]
    if machine == "x86_64":
        code += [_jump_instruction(_AT_LEAST, _X32_BIT, 0, 1), _return_instruction(_KILL)]
    blocks = [(number, _build_block(rule)) for rule in rules if (number := _NUMBERS[rule.call][column]) is not None]
    return b"".join([*code, *_build_tree(sorted(blocks))])


def _build_tree(blocks: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """Looks for the number by halves: the kernel goes through it once for every call there is when a sandbox is made."""
    if len(blocks) == 1:
        number, block = blocks[0]
        return [_jump_instruction(_EQUAL, number, 0, len(block)), *block, _return_instruction(_ALLOW)]
    half = len(blocks) // 2
    lower, upper = _build_tree(blocks[:half]), _build_tree(blocks[half:])
    return [_jump_instruction(_AT_LEAST, blocks[half][0], 0, 1), struct.pack("=HBBI", _GO, 0, 0, len(lower)), *lower, *upper]


def _build_block(rule: SyscallRule) -> list[bytes]:
    """What is asked once the number is known to be this call's; always ends in a verdict."""
    no = _return_instruction(_ERRNO | rule.error)
    if rule.test == "always":
        return [no]
    load = _load_instruction(_ARGUMENTS + 8 * rule.argument)
    if rule.test == "bits":
        asked = [load, _jump_instruction(_BITS, rule.values[0], 0, 1), no, _return_instruction(_ALLOW)]
        if rule.flags is None:
            return asked
        return [_load_instruction(_ARGUMENTS + 8 * rule.flags), _jump_instruction(_BITS, _CREATING, 0, 3), *asked]
    # Each match jumps over those after it and the first verdict, to the second.
    first, second = (no, _return_instruction(_ALLOW)) if rule.test == "unless" else (_return_instruction(_ALLOW), no)
    count = len(rule.values)
    tests = [_jump_instruction(_EQUAL, value, count - at, 0) for at, value in enumerate(rule.values)]
    return [load, *tests, first, second]


def _load_instruction(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD, 0, 0, offset)


def _jump_instruction(test: int, value: int, yes: int, no: int) -> bytes:
    return struct.pack("=HBBI", test, yes, no, value)


def _return_instruction(verdict: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, verdict)


def calls() -> tuple[str, ...]:
    """Every call that `tool_filter` and `no_more_rules` say anything about."""
    return tuple(_NUMBERS)


def number(call: str, machine: str = "") -> int | None:
    """The number of a call on a machine, None where it does not exist."""
    return _NUMBERS[call][list(_ARCHITECTURES).index(machine or this_machine())]


def this_machine() -> Machine:
    """The architecture we run on; Unavailable where no program can be made."""
    name = os.uname().machine
    if name == "x86_64":
        return "x86_64"
    if name == "aarch64":
        return "aarch64"
    raise Unavailable(f"no list of system calls for {name}", hint="the sandbox works on x86_64 and aarch64")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(program: bytes) -> None:
    """Bind this process, all its threads and children to a program, for good; nothing lifts it again."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS, without which only root may do this
        raise Unavailable(f"no_new_privs: {os.strerror(ctypes.get_errno())}")
    text = ctypes.create_string_buffer(program, len(program))
    argument = _Program(len(program) // 8, ctypes.cast(text, ctypes.c_void_p))
    # SECCOMP_SET_MODE_FILTER, with TSYNC: threads that run already are bound as well.
    if libc.syscall(SECCOMP_CALL[this_machine()], 1, 1, ctypes.byref(argument)):
        raise Unavailable(f"seccomp: {os.strerror(ctypes.get_errno())}", hint="the kernel needs CONFIG_SECCOMP_FILTER")
