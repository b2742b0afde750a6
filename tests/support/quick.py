"""Processes of ours for tests, at the price of a fork: born from a process that has imported the product already.

`Popen` and `run` are those of `subprocess` for `python -m appliance ...` and `python -c ...`: real processes in a
session of their own, with the arguments, variables, folder and streams they were given. What they save is the loading
of modules, most of a short command's time. Not for tests of that loading, of a process's size or of `/proc/PID/environ`:
those take `subprocess`, as everything does whose variables speak to the loader or to Python itself.

A process keeps its number until its end was looked at here, and is only ever signalled through a handle of the kernel's.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import siblings

ROOT = Path(__file__).parents[2]
ENVIRON = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
PADDING = " " * 60_000  # in arguments and variables of the nest: room for those of its children
MOST_FDS = 64
# Heavy, and seldom needed; what imports one of them loads it all the same.
LEFT_OUT = (
    "tui",
    *("providers/llama", "providers/encoder", "providers/kv_cache", "providers/prefix_cache"),
    *("models/encoder_conversion", "knowledge/vss_index", "cli/screen"),
    *("mcp/bridge", "mcp/connection", "mcp/stdio_transport", "mcp/http_transport"),
)
# Of other packages, what the product imports where it is needed first: in nearly every process.
LATER = ("yaml", "encodings.ascii", "encodings.utf_8_sig")
# Variables that mean something before a program's first line: those tests have to start a new interpreter.
EARLY = ("PYTHON", "LD_", "LC_", "FAKETIME", "MALLOC")
HARMLESS = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
LANG = "C.UTF-8"
LOST = -1  # how a process ended that nobody can be asked about
# Commands that may start processes of ours, a broker most of all.
HAVE_CHILDREN = {"serve", "ask", "chat", "worker", "tui", "doctor", "heartbeat", "maintain"}


# -- the tests' side ----------------------------------------------------------------------------------


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` of a command that `is_quick`; its process is a grandchild of ours."""

    _reply: socket.socket
    _handle = -1

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *more: Any) -> None:
        pass_fds, cwd, env, _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = more
        streams = [theirs if theirs >= 0 else own for theirs, own in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))]
        order = {"words": list(map(str, args)), "cwd": str(cwd or os.getcwd()), "env": dict(env), "fds": list(pass_fds)}
        try:
            self._reply = nest().order(order, [*streams, *pass_fds])
            data, found = _received(self._reply, 1)
        finally:
            # As subprocess does it: our ends stay, theirs go.
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]
        self.pid, self._handle = int(data), found[0]
        self._child_created = True

    def send_signal(self, sig: int) -> None:
        """A signal to exactly this process; nothing when it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, sig)

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                self._look(0)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        with self._waitpid_lock:  # type: ignore[attr-defined]
            self._look(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _look(self, timeout_s: float | None) -> None:
        if self.returncode is not None:
            return
        ended = select.poll()
        ended.register(self._handle, select.POLLIN)
        if not ended.poll(None if timeout_s is None else max(0, timeout_s * 1000)):
            return
        try:
            self._reply.sendall(b".")
            self.returncode = os.waitstatus_to_exitcode(int(self._reply.recv(16)))
        except OSError:  # of a process that this one was forked from
            self.returncode = LOST
            return
        self._reply.close()
        os.close(self._handle)


def is_quick(command: list[str], environ: Mapping[str, str] | None) -> bool:
    """True when a fork is as good as a new interpreter."""
    words = _plain(command)
    if environ is None or words[:1] != [sys.executable] or words[1:2] not in (["-m"], ["-c"]):
        return False
    if words[1] == "-m" and words[2] != "appliance":
        return False
    if sum(map(len, command)) + sum(len(key) + len(value) for key, value in environ.items()) > len(PADDING) // 2:
        return False
    early = {key: value for key, value in environ.items() if key.startswith(EARLY)}
    return all(HARMLESS.get(key) == value for key, value in early.items()) and environ.get("LANG") == LANG


def _plain(command: list[str]) -> list[str]:
    """Without `-P`: nothing is imported from the folder it works in, here or there."""
    return [*command[:1], *command[2:]] if command[1:2] == ["-P"] else command


def popen(command: list[str], **more: Any) -> "subprocess.Popen[Any]":
    """A process of ours: quick where that makes no difference."""
    kind = Popen if is_quick(command, more.get("env")) else subprocess.Popen
    return kind(command, **more)


def run(command: list[str], *, given: str | bytes = b"", timeout_s: float = 180, **more: Any) -> "subprocess.CompletedProcess[Any]":
    """A command run to its end, its output kept."""
    given = given or ("" if more.get("text") else b"")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with popen(command, **pipes, **more) as child:
        try:
            out, err = child.communicate(given, timeout=timeout_s)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(command, child.returncode, out, err)


class Nest:
    """The process that others are born from. Processes forked from its owner may order, too: a message is whole or not."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders, self._guard = ours, threading.Lock()
        environ = {"PATH": os.environ["PATH"], "LANG": LANG, **HARMLESS, "PADDING": PADDING}
        command = [sys.executable, str(Path(__file__)), str(theirs.fileno()), PADDING]
        self._child = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        self.pid = self._child.pid

    def order(self, order: dict[str, Any], fds: list[int]) -> socket.socket:
        """Have a process born; the connection that speaks of it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        text = os.memfd_create("order")  # a message of a socket has a limit that an order may pass
        try:
            os.write(text, json.dumps(order).encode("utf-8", "surrogateescape"))
            with self._guard:
                socket.send_fds(self._orders, [b"."], [theirs.fileno(), text, *fds])
        finally:
            theirs.close()
            os.close(text)
        return ours

    def close(self) -> None:
        """No more of them; those that still run are ended."""
        self._orders.close()
        self._child.wait()


@functools.cache
def nest() -> Nest:
    """The nest of this process, and of those that it forks later."""
    return Nest()


def _received(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
    data, found, _, _ = socket.recv_fds(connection, 64, most)
    return data, found


# -- the nest -----------------------------------------------------------------------------------------


class Egg:
    """One child as the nest knows it: collected when its owner has seen its end, or is gone."""

    def __init__(self, pid: int, reply: socket.socket) -> None:
        self.pid, self.reply = pid, reply
        handle = os.pidfd_open(pid)
        socket.send_fds(reply, [str(pid).encode()], [handle])
        os.close(handle)

    def answer(self) -> None:
        """Its owner asks how it ended, or has left."""
        with contextlib.suppress(OSError):
            if not self.reply.recv(1):
                os.kill(self.pid, signal.SIGKILL)  # ours, and not collected yet
            _, status = os.waitpid(self.pid, 0)
            self.reply.sendall(str(status).encode())
        self.reply.close()


def load() -> None:
    """Import the product, but for its heavy parts."""
    package = ROOT / "appliance"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).with_suffix("")
        if name.stem != "__init__" and not any(name.is_relative_to(one) for one in LEFT_OUT):
            importlib.import_module(".".join(("appliance", *name.parts)))
    for name in LATER:
        importlib.import_module(name)
    for language in sys.modules["appliance.language.languages"].Languages().all:
        language.patterns, language.refusals  # noqa: B018 - half a second that every first message would cost
    for function in sys.modules["appliance.tools"].load():
        sys.modules["appliance.agent.toolbox"].read_tool(function)
    for path in (ROOT / "skills").rglob("SKILL.md"):
        sys.modules["appliance.skills.catalog"].read_skill(path.parents[1], path)
    kinds = sys.modules["appliance.language.answer_kinds"]
    for kind in kinds.all_kinds():
        kinds.compiled(kind.question)  # as every first search does


def have_children() -> None:
    """Let this process, loaded and with one thread, start processes of ours at the price of a fork."""
    siblings.provide(lambda found: _hatch(found, is_last=True), is_quick)


def brood(orders: socket.socket) -> int:
    """Bear children until nobody orders any; the exit code, in the nest and in every child."""
    load()
    gc.collect()
    gc.freeze()  # what all share is not looked at, and so not copied
    eggs: dict[int, Egg] = {}
    while True:
        poll = select.poll()
        for number in (orders.fileno(), *eggs):
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll():
            if number in eggs:
                eggs.pop(number).answer()
                continue
            data, found = _received(orders, MOST_FDS)
            if not data:
                return _leave(eggs)
            reply = socket.socket(fileno=found[0])
            pid = os.fork()
            if pid == 0:
                _hatch(found[1:])
            for handle in found[1:]:
                os.close(handle)
            eggs[reply.fileno()] = Egg(pid, reply)


def _leave(eggs: dict[int, Egg]) -> int:
    for egg in eggs.values():
        os.kill(egg.pid, signal.SIGKILL)
        os.waitpid(egg.pid, 0)
    return 0


def _hatch(found: list[int], is_last: bool = False) -> None:
    """Become the process that was ordered, in a child just forked; does not return. The last has ordinary children."""
    code, (text, *given) = 1, found
    try:
        order = json.loads(os.pread(text, os.fstat(text).st_size, 0))
        _settle(order, given)
        if not is_last and HAVE_CHILDREN.intersection(order["words"]):
            have_children()
        code = _perform(order["words"])
    finally:
        try:
            if sys.exc_info()[0] is not None:
                traceback.print_exc()
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        finally:
            os._exit(code)  # also where its streams are on a full disk: what called the nest is not its to clean up


def _settle(order: dict[str, Any], given: list[int]) -> None:
    """A session, streams, handles, folder, variables and a command line of its own."""
    if order.get("is_session", True):
        os.setsid()
    wanted = [0, 1, 2, *order["fds"]]
    lowest = max(*wanted, *given) + 1
    spare = [fcntl.fcntl(handle, fcntl.F_DUPFD, lowest) for handle in given]
    os.closerange(3, spare[0])
    os.closerange(spare[-1] + 1, 1 << 20)
    for handle, number in zip(spare, wanted, strict=True):
        os.dup2(handle, number)
    os.closerange(spare[0], spare[-1] + 1)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    siblings.inscribe(order["words"], order["env"])
    kinds = (("stdin", 0, "r", "surrogateescape"), ("stdout", 1, "w", "surrogateescape"), ("stderr", 2, "w", "backslashreplace"))
    for name, number, mode, errors in kinds:
        opened = open(number, mode, encoding="utf-8", errors=errors, closefd=False)
        opened.reconfigure(line_buffering=number == 2 or opened.isatty())  # type: ignore[union-attr]
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)


def _perform(words: list[str]) -> int:
    sys.orig_argv = list(words)  # who begins anew runs this
    words = _plain(words)
    sys.argv = ["-c", *words[3:]]
    try:
        if words[1] == "-c":
            space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
            exec(compile(words[2], "<string>", "exec"), space)  # noqa: S102 - what `python -c` does
            return 0
        sys.argv[0] = str(ROOT / "appliance/__main__.py")
        return int(importlib.import_module("appliance.__main__").main() or 0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(brood(socket.socket(fileno=int(sys.argv[1]))))
