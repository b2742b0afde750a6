"""What one sandboxed call is: the order, its limits, what it sees of this machine, and the words bubblewrap needs.

Pure but for looking at the system's own paths. The sandbox shows the host's /usr read-only, an /etc made from
nothing, a private /tmp, /proc and /dev, one writable folder at /work, and what the order binds besides; no
network, no environment of ours, no capability. Runs nothing: that is `sandbox.runner`. Knows nothing about tools,
roles or policy: whoever makes an order has asked.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from appliance.clock import new_id
from appliance.errors import BadInput
from appliance.sandbox import landlock, seccomp
from appliance.sandbox.landlock import AllowedPath, Ceiling

BWRAP = "/usr/bin/bwrap"
WORK = "/work"
SCRIPTS = "/skills"  # scripts of skills, whose own folder no tool sees
PROGRAMS = "/programs"  # what is installed below WORK on this machine: the sandbox has a folder of its own there
PRODUCT = "owlbox"
USER_ID = 1000  # inside; outside it is whoever runs this
# Of bubblewrap's words, bytes stand for the number of a descriptor that yields them, a path for one that is open there.
Word = str | bytes | Path
Profile = Literal["files", "project", "exec", "net"]
Status = Literal["pending", "running", "completed", "failed", "timeout", "cancelled"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = re.compile(r"LD_.*|PERL.*|GLIBC_.*|TOOL_NAME|EXECUTION_ID|SESSION_ID")  # would reach what limits the command
_MAX_WORD_BYTES = 128 * 1024 - 1  # MAX_ARG_STRLEN of Linux
_MAX_WORDS_BYTES = 1 << 20
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")  # of the host's, where they are
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/dev", "/sys", "/tmp", WORK)


@dataclass(frozen=True)
class Bind:
    """A file or folder of this machine shown inside at `inside`, read-only unless writable.

    What `is_own` was made by the core itself: nothing that would have to be hidden lies in it.
    """

    source: Path
    inside: str
    is_writable: bool = False
    is_own: bool = False


@dataclass(frozen=True)
class Limits:
    """What one call may use. Memory, processes and disk hold for all its processes together."""

    cpus: float = 1.0
    memory_bytes: int = 512 << 20
    pids: int = 64
    disk_bytes: int = 1 << 30
    tmp_bytes: int = 64 << 20
    timeout_s: float = 60.0
    output_bytes: int = 1 << 20  # of each of the two streams


@dataclass(frozen=True)
class SandboxOrder:
    """One call: who asked, what to run, what it may see. `execution` is made when it is empty."""

    tool: str
    session: str
    argv: tuple[str, ...]
    execution: str = field(default_factory=new_id)
    profile: Profile = "exec"
    folder: Path | None = None  # the session's data folder, at /work; without it /work is memory
    is_writable: bool = True  # the folder
    binds: tuple[Bind, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)  # by their paths below SCRIPTS; they can be run, not changed
    stdin: bytes = b""
    environ: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()

    @property
    def label(self) -> str:
        """The name a person finds it by in a list of processes (A-076)."""
        return f"tool-{self.tool}-{self.execution[:8]}"


@dataclass(frozen=True)
class Execution:
    """The outcome of an order; `exit_code` is -1 when it never ran to its end by itself."""

    id: str
    status: Status
    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_ms: int
    error: str = ""
    is_cut: bool = False


def check(order: SandboxOrder) -> None:
    """BadInput unless the order can be carried out as it stands."""
    if not _NAME.fullmatch(order.tool):
        raise BadInput(f"tool name {order.tool!r} cannot be a label", hint="letters, digits, _ . -")
    if order.profile not in get_args(Profile):
        raise BadInput(f"unknown sandbox profile {order.profile!r}", hint=f"one of {', '.join(get_args(Profile))}")
    if not order.argv or not order.argv[0]:
        raise BadInput("no command to run")
    if len(order.execution) < 8 or not all(_NAME.fullmatch(name) for name in (order.execution, order.session or "x")):
        raise BadInput(f"execution {order.execution!r} or session {order.session!r} cannot be a label")
    _check_words(order)
    for name in order.environ:
        if not _VARIABLE.fullmatch(name) or _OURS.fullmatch(name):
            raise BadInput(f"variable {name!r} cannot be set in the sandbox")
    if order.folder is not None:
        _check_source(order.folder)
    for bind in order.binds:
        _check_bind(order, bind)
    for path in order.files:
        if not path.startswith(f"{SCRIPTS}/") or os.path.normpath(path) != path or "\0" in path:
            raise BadInput(f"{path!r} is not a place for a script", hint=f"below {SCRIPTS}")
    low = [n for n, v in vars(order.limits).items() if v <= 0]
    if low:
        raise BadInput(f"limit {low[0]} must be more than 0")


def _check_words(order: SandboxOrder) -> None:
    words = [os.fsencode(word) for word in (*order.argv, *order.environ.values())]
    if any(b"\0" in word for word in words):
        raise BadInput("a NUL byte in the command or its environment")
    if max(map(len, words)) > _MAX_WORD_BYTES or sum(map(len, words)) > _MAX_WORDS_BYTES:
        raise BadInput("the command is longer than the kernel takes", hint="hand large texts over as stdin")


def _check_source(path: Path) -> None:
    """BadInput for a path that cannot be one; whether it is there and no link is seen when it is opened."""
    if not path.is_absolute() or "\0" in str(path) or ".." in path.parts:
        raise BadInput(f"{path} is not an absolute path")


def _check_bind(order: SandboxOrder, bind: Bind) -> None:
    _check_source(bind.source)
    inside = bind.inside
    if not inside.startswith("/") or os.path.normpath(inside) != inside or "\0" in inside:
        raise BadInput(f"{inside!r} is not a plain absolute path inside the sandbox")
    is_below_work = order.folder is not None and inside.startswith(f"{WORK}/")
    if order.folder is not None and is_below_work and bind.is_writable:  # only a folder of it that is mounted where it is
        is_below_work = order.is_writable and bind.source == order.folder / inside[len(WORK) + 1 :]
    # Over the private one: a home may lie there, and what was installed in it.
    is_shown_in_private = inside.startswith("/tmp/") and bind.source == Path(inside) and not bind.is_writable
    is_free = is_below_work or is_shown_in_private
    if inside == "/" or not is_free and any(inside == path or inside.startswith(f"{path}/") for path in _SYSTEM):
        raise BadInput(f"{inside} belongs to the sandbox itself", hint="bind below another folder, such as /project")
    if bind.is_writable and order.profile in ("files", "net"):
        raise BadInput(f"profile {order.profile} writes to {WORK} only, not to {inside}")


def place_of_program(path: str) -> str:
    """Where something installed on this machine is seen: at its own path, unless that would be made in the writable folder."""
    return f"{PROGRAMS}{path}" if path.startswith(f"{WORK}/") else path


def options(order: SandboxOrder) -> list[Word]:
    """The command line of bubblewrap."""
    words = [*_namespace_words(), *_system_words(order), *_folder_words(order), *_environ_words(order)]
    program = seccomp.tool_filter(has_unix=order.profile == "exec")
    # Last: nothing may be made in what is left between the mounts. /proc: what is set below /proc/sys is set for the
    # whole machine, and belongs to root, whom the kernel knows inside as well when it is root who runs this.
    closed = [word for place in ("/proc", "/dev", "/") for word in ("--remount-ro", place)]
    return [*words, *closed, "--chdir", WORK, "--seccomp", program]


def command(order: SandboxOrder, ready_fd: int, abi: int) -> list[str]:
    """What bubblewrap runs: the command behind its entry, which says on `ready_fd` that it begins."""
    return [*landlock.entry(_ceiling_of(order.limits), _writable_places(order), ready_fd, abi), *order.argv]


def title(order: SandboxOrder, core: str) -> str:
    """How the sandbox's processes are called in the list of processes: label, product, session, execution, whose they are.

    Bubblewrap's first argument, because any process may read that and nothing inside depends on it.
    """
    return f"{order.label} {PRODUCT} session={order.session} execution={order.execution} core={core}"


def core_of(title: str) -> str:
    """The process a title names as its core, "" when it is not a title of ours."""
    name, _, rest = title.partition(" ")
    product, _, labels = rest.partition(" ")
    return labels.rpartition(" core=")[2] if name.startswith("tool-") and product == PRODUCT else ""


def _namespace_words() -> Iterator[str]:
    yield from ("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
    yield from ("--unshare-cgroup", "--uid", str(USER_ID), "--gid", str(USER_ID), "--hostname", PRODUCT, "--cap-drop", "ALL")
    yield from ("--die-with-parent", "--new-session", "--clearenv")


def _system_words(order: SandboxOrder) -> Iterator[Word]:
    """The host's programs, and a small world around them."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _LINKS:
        if os.path.islink(name):
            yield from ("--symlink", os.readlink(name), name)
        elif os.path.isdir(name):
            yield from ("--ro-bind", name, name)
    yield from ("--perms", "0755", "--dir", "/etc", "--dir", "/run", "--dir", "/var")
    if not any(bind.inside.startswith("/var/tmp/") for bind in order.binds):  # else a folder with nothing but them
        yield from ("--symlink", "/tmp", "/var/tmp")
    for name in _ETC:
        # A link is made sooner than a mount.
        target = os.readlink(name) if os.path.islink(name) else ""
        if target.startswith("/usr/"):
            yield from ("--symlink", target, name)
        else:
            yield from ("--ro-bind-try", name, name)
    yield from ("--perms", "0644", "--file", f"owl:x:{USER_ID}:{USER_ID}::{WORK}:/bin/sh\n".encode(), "/etc/passwd")
    yield from ("--perms", "0644", "--file", f"owl:x:{USER_ID}:\n".encode(), "/etc/group")
    yield from ("--proc", "/proc", "--dev", "/dev")
    for name in ("/tmp", "/dev/shm"):
        yield from ("--perms", "1777", "--size", str(order.limits.tmp_bytes), "--tmpfs", name)


def _folder_words(order: SandboxOrder) -> Iterator[Word]:
    """The folders that this call sees besides, and may write to."""
    if order.folder is None:
        yield from ("--size", str(order.limits.tmp_bytes), "--tmpfs", WORK)
    else:
        yield from ("--bind-fd" if order.is_writable else "--ro-bind-fd", order.folder, WORK)
    for bind in order.binds:
        yield from ("--bind-fd" if bind.is_writable else "--ro-bind-fd", bind.source, bind.inside)
    for path, content in order.files.items():
        yield from ("--perms", "0555", "--file", content, path)


def _environ_words(order: SandboxOrder) -> Iterator[str]:
    # LANG is set by the entry, where it costs nothing.
    plain = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "USER": "owl", "TMPDIR": "/tmp"}
    ours = {"TOOL_NAME": order.tool, "EXECUTION_ID": order.execution, "SESSION_ID": order.session}
    for name, value in {**plain, **order.environ, **ours}.items():
        yield from ("--setenv", name, value)


def _ceiling_of(limits: Limits) -> Ceiling:
    # Twice the memory: the watcher ends what really uses too much, this stops one process that runs ahead of it.
    cpu_s = limits.cpus * limits.timeout_s + 1
    return Ceiling(2 * limits.memory_bytes, limits.disk_bytes, cpu_s, limits.pids)


def _writable_places(order: SandboxOrder) -> Iterator[AllowedPath]:
    if order.is_writable or order.folder is None:
        yield AllowedPath(WORK)
    yield from (AllowedPath("/tmp"), AllowedPath("/dev/shm"))
    for bind in order.binds:
        if bind.is_writable:
            yield AllowedPath(bind.inside, bind.source.is_dir())


def missing(bwrap: str = BWRAP) -> str:
    """What prevents a sandbox on this machine and how to install it; "" when nothing does."""
    if not os.access(bwrap, os.X_OK):
        return "bubblewrap is not installed: apt-get install bubblewrap"
    if not landlock.has_perl():
        return f"{landlock.PERL} is not there: apt-get install perl-base"
    if os.uname().machine not in ("x86_64", "aarch64"):
        return f"no list of system calls for {os.uname().machine}: the sandbox works on x86_64 and aarch64"
    for name, bad, hint in _SWITCHES:
        if _read_line(name) == bad and os.geteuid() != 0:
            return f"unprivileged user namespaces are switched off: {hint}"
    return ""


_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=10000"),
)


def advice(stderr: str) -> str:
    """The next step when bubblewrap itself failed, out of what it said."""
    said = stderr.lower()
    if "unknown option" in said:
        return "this bubblewrap cannot mount from descriptors: apt-get install --only-upgrade bubblewrap"
    if _read_line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" and ("uid map" in said or "permission" in said):
        return "AppArmor forbids user namespaces: give bwrap a profile (docs/guides/sandbox.md)"
    if "namespace" in said or "uid map" in said:
        return "user namespaces do not work here; docs/guides/sandbox.md says what to look at"
    return "docs/guides/sandbox.md says what the sandbox needs"


def _read_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
