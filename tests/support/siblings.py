"""Children of ours that a process starts itself (the broker of a core, a worker), at the price of a fork as well.

`provide` forks a helper from a process that has the product loaded and only one thread. From then on `subprocess.Popen` of
`python -P -m appliance ...` has the helper clone itself as a further child of its own parent (CLONE_PARENT): real children,
with their arguments, variables, folder and streams, which their parent signals and waits for as ever. Everything else is
started as ever, and so are these where the kernel does not say what the clone needs, or the helper is gone.

What is inherited is what the process had when the helper was made: limits and masks that were set later are not.
"""

import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
PR_GET_TID_ADDRESS = 40
# Number of clone(2), and the place of `child_tid` among its arguments.
CLONE = {"x86_64": (56, 3), "aarch64": (220, 4)}.get(platform.machine())
MOST_FDS = 64

# Takes the descriptors of an order, the first of which is its text, and does not return.
Become = Callable[[list[int]], object]
IsQuick = Callable[[list[str], Mapping[str, str]], bool]


def provide(become: Become, is_quick: IsQuick) -> None:
    """Let this process have such children from now on."""
    address = _tid_address()
    if CLONE is None or not address:
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        _help(theirs, address, become)
    theirs.close()
    guard = threading.Lock()

    class Popen(subprocess.Popen[Any]):
        """`subprocess.Popen`, but for what the helper can start."""

        def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *more: Any) -> None:
            pass_fds, cwd, env, _, _, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *how = more
            _, gid, gids, uid, umask, is_session, group = how
            environ = dict(os.environ if env is None else env)
            is_ours = isinstance(args, list) and args[1:2] == ["-P"]  # tests that want a process loaded anew leave it out
            is_plain = is_ours and close_fds and not (executable or preexec_fn or shell)
            is_plain = is_plain and (gid, gids, uid, umask, group) == (None, None, None, -1, -1)
            if is_plain and is_quick(list(map(str, args)), environ):
                streams = [theirs if theirs >= 0 else own for theirs, own in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))]
                order = {"words": list(map(str, args)), "cwd": str(cwd or os.getcwd()), "env": environ, "fds": list(pass_fds)}
                with guard:
                    pid = _ask(ours, {**order, "is_session": is_session}, [*streams, *pass_fds])
                if pid:
                    self.pid, self._child_created = pid, True
                    self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
                    return
            super()._execute_child(args, executable, preexec_fn, close_fds, *more)  # type: ignore[misc]

    subprocess.Popen = Popen  # type: ignore[misc]


def inscribe(words: list[str], environ: Mapping[str, str]) -> None:
    """Write command line and variables where the kernel shows them from: over those of the process that was loaded."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    for at, parts in ((45, words), (47, [f"{key}={value}" for key, value in environ.items()])):
        begin, end = int(fields[at]), int(fields[at + 1])
        text = b"".join(os.fsencode(part) + b"\0" for part in parts)
        if len(text) >= end - begin:
            raise ValueError(f"{len(text)} bytes of arguments or variables; there is room for {end - begin}")
        ctypes.memset(begin, 0, end - begin)
        ctypes.memmove(begin, text, len(text))


def _ask(connection: socket.socket, order: dict[str, Any], fds: list[int]) -> int:
    """The process id of the child that was ordered; 0 when there is none."""
    text = os.memfd_create("order")
    try:
        os.write(text, json.dumps(order).encode("utf-8", "surrogateescape"))
        socket.send_fds(connection, [b"."], [text, *fds])
        return int(connection.recv(16) or b"0")
    except OSError:
        return 0
    finally:
        os.close(text)


def _help(connection: socket.socket, address: int, become: Become) -> None:
    """Be the helper, until its parent is gone; does not return."""
    os.setsid()
    inscribe(["helper"], {})
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.closerange(3, connection.fileno())
    os.closerange(connection.fileno() + 1, 1 << 20)
    while True:
        data, fds, _, _ = socket.recv_fds(connection, 16, MOST_FDS)
        if not data:
            os._exit(0)
        pid = _clone(address)
        if not pid:
            become(fds)
        for number in fds:
            os.close(number)
        connection.send(str(pid).encode())


def _tid_address() -> int:
    """Where the C library keeps the number of the running thread, which a clone has to set; 0 when the kernel does not say."""
    found = ctypes.c_void_p()
    if ctypes.CDLL(None).prctl(PR_GET_TID_ADDRESS, ctypes.byref(found), 0, 0, 0):
        return 0
    return found.value or 0


def _clone(address: int) -> int:
    """What `os.fork` does, with another parent: its child becomes one of our parent."""
    assert CLONE is not None
    number, place = CLONE
    flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | signal.SIGCHLD
    given = [ctypes.c_long(number), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4]
    given[1 + place] = ctypes.c_long(address)
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None).syscall(*given)
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    return max(0, pid)
