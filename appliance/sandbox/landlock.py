"""The last step into the sandbox: a few lines that limit themselves and then become the command.

Bubblewrap cannot do this part: Landlock (which files may be touched at all, and no TCP, whatever is mounted)
forbids mounting, and a limit on processes set before the user namespace exists would count all of the user's.
So this runs inside, after everything is mounted. It is Perl because it runs before every command and perl,
which every Debian has, starts in 2 ms where Python takes 12. Knows the kernel's numbers; not what a tool is.
"""

import ctypes
import math
import os
import resource
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from appliance.sandbox import seccomp

# linux/landlock.h
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV, _MAKE_CHAR, _MAKE_BLOCK = 1 << 14, 1 << 15, 1 << 6, 1 << 11
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_CREATE_RULESET = 444  # add_rule and restrict_self follow; the same everywhere

_SIGNALS = 256  # that wait, and timers: the kernel counts them for the user, who needs them outside as well

PERL = "/usr/bin/perl"
# Arguments: descriptor to say on that the command begins now; numbers of prlimit64 and seccomp; niceness; limits as
# "resource:value"; the ruleset in hexadecimal, "" where the kernel has none; rules as "rights:path", one a
# line; the system-call program that comes last, in hexadecimal; then the command. No modules, not even
# "no warnings": loading one takes as long as all the rest. A locale is named for the command alone: perl
# would open thirteen files for it.
PROGRAM = r"""
my ($ready, $prlimit, $seccomp, $nice, $limits, $ruleset, $rules, $last) = splice @ARGV, 0, 8;
sub fail { print STDERR "sandbox: $_[0]: $!\n"; exit 125 }
for (split / /, $limits) {
    my ($what, $value) = split /:/;
    my $both = pack "QQ", $value, $value;
    syscall($prlimit + 0, 0, $what + 0, $both, 0) == 0 or fail "limit $what";
}
if ($ruleset) {
    my $all = pack "H*", $ruleset;
    my $set = syscall(444, $all, length $all, 0);
    $set >= 0 or fail "landlock";
    for (split /\n/, $rules) {
        my ($rights, $path) = split /:/, $_, 2;
        sysopen my $place, $path, 012000000 or fail $path;
        my $rule = pack "Ql", $rights, fileno $place;
        syscall(445, $set, 1, $rule, 0) == 0 or fail "landlock $path";
        close $place;
    }
    syscall(446, $set, 0) == 0 or fail "landlock";
}
my $program = pack "H*", $last;
my $filter = pack "S x6 P", length($program) / 8, $program;
syscall($seccomp + 0, 1, 0, $filter) == 0 or fail "seccomp";
setpriority 0, 0, $nice + getpriority 0, 0;
open my $door, ">&=", $ready or fail "descriptor $ready";
syswrite $door, "!";
close $door;
$ENV{LANG} //= "C.UTF-8";
exec { $ARGV[0] } @ARGV;
my $why = $! + 0;
print STDERR "$ARGV[0]: $!\n";
exit($why == 2 ? 127 : 126);
"""


@dataclass(frozen=True)
class AllowedPath:
    """A path inside the sandbox; everything not named may be read where it is mounted, and written nowhere."""

    path: str
    is_folder: bool = True


@dataclass(frozen=True)
class Ceiling:
    """What each process may use, 0 for no limit; how much nicer than we all of them are, or they would starve who ends them.

    Memory is what it may write to for itself: address space that is only reserved costs nothing, and some
    programs reserve gigabytes.
    """

    memory_bytes: int
    file_bytes: int
    cpu_s: float
    pids: int
    files: int = 256
    nice: int = 10


def version() -> int:
    """The kernel's version of Landlock (its "ABI"), 0 where it has none or it is switched off."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def entry(ceiling: Ceiling, writable: Iterable[AllowedPath], ready_fd: int, abi: int, *, has_network: bool = False) -> list[str]:
    """The words to put before a command, so that it runs under these limits and writes below these places only.

    A byte on `ready_fd` says that everything is in force and the command comes next. `has_network`: TCP is allowed.
    """
    prlimit = {"x86_64": 302, "aarch64": 261}[seccomp.this_machine()]
    rules = "\n".join(f"{rights}:{path}" for rights, path in _list_rules(abi, writable))
    given = [
        str(ready_fd),
        str(prlimit),
        str(seccomp.SECCOMP_CALL[seccomp.this_machine()]),
        str(ceiling.nice),
        _pack_limits(ceiling),
    ]
    held = ruleset(abi, has_network=has_network).hex()
    return [PERL, "-e", PROGRAM, *given, held, rules, seccomp.no_more_rules().hex()]


def _pack_limits(ceiling: Ceiling) -> str:
    wanted = {
        resource.RLIMIT_DATA: ceiling.memory_bytes,
        resource.RLIMIT_FSIZE: ceiling.file_bytes,
        resource.RLIMIT_CPU: math.ceil(ceiling.cpu_s),
        resource.RLIMIT_NPROC: ceiling.pids,
        resource.RLIMIT_NOFILE: ceiling.files,
        resource.RLIMIT_SIGPENDING: _SIGNALS,
    }
    return " ".join([f"{what}:{value}" for what, value in wanted.items() if value] + [f"{resource.RLIMIT_CORE}:0"])


def ruleset(abi: int, *, has_network: bool = False) -> bytes:
    """Everything this version of Landlock can forbid, as struct landlock_ruleset_attr; empty for 0."""
    if abi < 1:
        return b""
    network = 3 if abi >= 4 and not has_network else 0  # bind and connect of TCP
    scope = 3 if abi >= 6 else 0  # abstract Unix sockets and signals to outside
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    return struct.pack("=QQQ", _handled_bits(abi), network, scope)[:size]


def _handled_bits(abi: int) -> int:
    bits = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    return (1 << bits) - 1


def _list_rules(abi: int, writable: Iterable[AllowedPath]) -> Iterable[tuple[int, str]]:
    handled = _handled_bits(abi)
    yield _READING, "/"
    yield handled & (_WRITE_FILE | _TRUNCATE | _IOCTL_DEV), "/dev"
    for place in writable:
        rights = handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
        yield rights if place.is_folder else rights & _ON_FILES, place.path


def has_perl() -> bool:
    """True where the program above can run."""
    return os.access(PERL, os.X_OK)
