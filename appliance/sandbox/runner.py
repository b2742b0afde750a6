"""Runs one order in one sandbox: starts bubblewrap, reads what it says, ends it in time, leaves nothing.

Everything a call starts lives in a process namespace of its own, whose first process we hold by a handle:
when that one is gone the kernel has ended all the others, and only then does `run` return. The kernel also
ends it when the thread that called `run` ends, however that happens. Output beyond its limit is read and
thrown away. Does not queue, retry or log: that is `sandbox`.
"""

import contextlib
import json
import math
import os
import select
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import Unavailable
from appliance.sandbox import bubblewrap
from appliance.sandbox.bubblewrap import Execution, SandboxOrder, Status
from appliance.sandbox.control_group import CallGroup
from appliance.sandbox.descriptors import Descriptors
from appliance.sandbox.resource_usage import MEMORY_S, UsageWatch

if TYPE_CHECKING:
    from appliance.records import Cancel  # brings msgspec, which the tool unit would load for every call

Show = Callable[[int, bytes], None]
NOT_STARTED = "not_started"
TIDY_S = 0.5  # how long bubblewrap may take to notice
END_S = 5.0  # how long the kernel may take to end all processes of one
_CHUNK = 1 << 16
_CALM_S = 0.002  # between reading what is thrown away: whoever writes without end waits, not we
_INFO, _READY, _EXIT = 3, 4, 5  # what a descriptor is for; 1 and 2 are the streams


@dataclass(frozen=True)
class Means:
    """What a sandbox is made with: the process it is for, the kernel's Landlock, the control group in which calls may have
    theirs, bubblewrap and how long that may take.
    """

    core: str
    abi: int
    groups: Path | None = None
    bwrap: str = bubblewrap.BWRAP
    start_s: float = 10.0


def run(order: SandboxOrder, means: Means, cancel: "Cancel", show: Show | None = None) -> Execution:
    """Carry out an order to its end, whatever end.

    Unavailable with outcome not_started when no sandbox could be made and so nothing of the command has run.
    """
    with contextlib.ExitStack() as closing:
        cell = _Cell(order, means, cancel, show, closing)
        cell.start()
        try:
            return cell.follow()
        finally:
            cell.destroy()


class _Stream:
    """One stream of output: what is kept of it, and who is shown that."""

    def __init__(self, kind: int, limit_bytes: int, show: Show | None) -> None:
        self.kind = kind
        self.kept = bytearray()
        self.is_cut = False
        self._limit_bytes = limit_bytes
        self._show = show

    def add(self, data: bytes) -> None:
        """Keep what fits and show it."""
        fits = data[: self._limit_bytes - len(self.kept)]
        self.is_cut = self.is_cut or len(fits) < len(data)
        self.kept += fits
        if fits and self._show is not None:
            self._show(self.kind, fits)


class _Cell:
    """One sandbox while it exists."""

    def __init__(
        self, order: SandboxOrder, means: Means, cancel: "Cancel", show: Show | None, closing: contextlib.ExitStack
    ) -> None:
        self._order = order
        self._means = means
        self._cancel = cancel
        self._closing = closing
        self._streams = {kind: _Stream(kind, order.limits.output_bytes, show) for kind in (1, 2)}
        self._open: dict[int, int] = {}  # what we still read from: descriptor, what it is for
        self._info = b""
        self._init = self._init_handle = -1
        self._group: CallGroup | None = None
        self._gate = -1  # what its first process waits for until it is in the group
        self._watch: UsageWatch | None = None
        self._look_due_s = 0.0
        self._is_ready = self._is_over = False
        self._left = ""  # what could not be ended
        self._began_s = monotonic_s()

    # -- beginning -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start bubblewrap on this thread, which the kernel will hold it to."""
        with contextlib.ExitStack() as ours, Descriptors() as files:
            ends = {kind: os.pipe2(os.O_CLOEXEC) for kind in (1, 2, _INFO, _READY)}
            for kind, (reading, end) in ends.items():
                ours.callback(os.close, end)
                self._closing.callback(os.close, reading)
                self._open[reading] = kind
            writing = {kind: pair[1] for kind, pair in ends.items()}
            info = ["--json-status-fd", str(writing[_INFO])]
            if self._means.groups is not None and self._make_group(self._means.groups):
                waiting, self._gate = os.pipe2(os.O_CLOEXEC)
                ours.callback(os.close, waiting)
                self._closing.callback(os.close, self._gate)
                info += ["--block-fd", str(waiting)]
            listed = files.listed([*bubblewrap.options(self._order), *info])
            handed = [*files.numbers, writing[_INFO], writing[_READY], *([waiting] if self._group else [])]
            stdin = files.add(self._order.stdin)
            command = bubblewrap.command(self._order, writing[_READY], self._means.abi)
            with _few_cpus(self._order.limits.cpus):
                self._child = self._spawn_child(
                    [bubblewrap.title(self._order, self._means.core), "--args", str(listed), "--", *command],
                    (stdin, writing[1], writing[2]),
                    handed,
                )
        handle = os.pidfd_open(self._child.pid)
        self._closing.callback(os.close, handle)
        self._open[handle] = _EXIT

    def _make_group(self, above: Path) -> bool:
        """Whether there is a control group for this call; without one its limits are looked at from outside."""
        limits = self._order.limits
        try:
            self._group = CallGroup(above, self._order.execution, limits.memory_bytes, limits.pids)
        except OSError:
            return False
        self._closing.callback(self._group.remove)
        return True

    def _spawn_child(self, words: list[str], streams: tuple[int, int, int], handed: list[int]) -> "subprocess.Popen[bytes]":
        stdin, stdout, stderr = streams
        try:
            return subprocess.Popen(
                words,
                executable=self._means.bwrap,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=handed,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            message = f"{self._means.bwrap} cannot be started: {error.strerror}"
            raise Unavailable(message, hint=bubblewrap.missing(self._means.bwrap), outcome=NOT_STARTED) from error

    # -- while it runs ---------------------------------------------------------------------------

    def follow(self) -> Execution:
        """Read and watch until it ends or has to."""
        with selectors.DefaultSelector() as chosen:
            for handle in self._open:
                os.set_blocking(handle, False)
                chosen.register(handle, selectors.EVENT_READ)
            while not self._is_over:
                reason = self._reason_to_end()
                if reason is not None:
                    return self._end_early(*reason)
                for key, _ in chosen.select(MEMORY_S):
                    if not self._read_stream(key.fd):
                        chosen.unregister(key.fd)
                if any(stream.is_cut for stream in self._streams.values()):
                    sleep_s(_CALM_S)
        self._child.wait()
        if not self._is_ready:
            self._drain_streams()
            raise self._not_started()
        return self._end_exited(self._child.returncode)

    def _reason_to_end(self) -> tuple[Status, str] | None:
        if self._cancel.is_set():
            return "cancelled", "cancelled"
        limit_s = self._order.limits.timeout_s
        if monotonic_s() - self._began_s >= limit_s:
            return "timeout", f"timed out after {limit_s:g} s; it was ended with everything it had started"
        if not self._is_ready and monotonic_s() - self._began_s >= self._means.start_s:
            raise self._not_started()
        if self._watch is None or monotonic_s() < self._look_due_s:
            return None
        complaint = self._watch.complaint()
        self._look_due_s = monotonic_s() + MEMORY_S
        return ("failed", f"{complaint}; it was ended with everything it had started") if complaint else None

    def _read_stream(self, handle: int) -> bool:
        """Read once; False when nothing more will come from there."""
        kind = self._open[handle]
        if kind == _EXIT:
            self._is_over = True
            return False
        try:
            data = os.read(handle, _CHUNK)
        except BlockingIOError:
            return True
        if kind in self._streams:
            self._streams[kind].add(data)
        elif kind == _INFO:
            self._info += data
            self._watch_init()
        elif data:
            self._is_ready = True
            self._watch_init()
        return bool(data)

    def _watch_init(self) -> None:
        """Hold the sandbox's first process by a handle, and watch it once it stands in its own world."""
        if self._init < 0 and b"\n" in self._info:
            self._init = int(json.loads(self._info.partition(b"\n")[0].decode())["child-pid"])
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(self._init)
                self._closing.callback(os.close, handle)
                # One that ended already may have left its number to somebody else.
                if _read_stat(self._init)[1:2] == [str(self._child.pid)]:
                    self._init_handle = handle
            if self._group is not None:
                try:
                    self._group.take(self._init)
                except OSError:
                    self._group = None
                os.write(self._gate, b"!")
        if self._is_ready and self._init_handle >= 0 and self._watch is None:
            limits = self._order.limits
            self._look_due_s = monotonic_s() + MEMORY_S
            is_held = self._group is not None
            self._watch = UsageWatch(
                self._init, self._order.folder, limits.memory_bytes, limits.pids, limits.disk_bytes, has_group=is_held
            )

    # -- the end ---------------------------------------------------------------------------------

    def destroy(self) -> None:
        """End every process of it and wait until the kernel has, but not for ever."""
        end_s = monotonic_s() + END_S
        with contextlib.ExitStack() as found:
            firsts = [self._init_handle] if self._init_handle >= 0 else list(self._find_unborn(found))
            for handle in firsts:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            exits = [handle for handle, kind in self._open.items() if kind == _EXIT]
            # Bubblewrap notices the end of its child, cleans up after it and ends. One that we had to stop must not go
            # on: it would only now have its child.
            if self._init_handle < 0 or not all(_is_readable(handle, TIDY_S) for handle in exits):
                self._child.kill()
            if all(_is_readable(handle, max(0.0, end_s - monotonic_s())) for handle in (*firsts, *exits)):
                self._child.wait()
            else:
                self._left = f"process {self._child.pid} does not end; does a disk not answer?"

    def _find_unborn(self, found: contextlib.ExitStack) -> Iterator[int]:
        """Handles of first processes we have not been told of.

        Bubblewrap's child is bound to its parent only some moments after it is born; without this it could wait
        for its dead parent for ever. A stopped parent has no more children while we look, and gives no number away.
        """
        if self._child.poll() is not None:
            return
        self._child.send_signal(signal.SIGSTOP)
        end_s = monotonic_s() + END_S
        while _read_stat(self._child.pid)[:1] not in (["T"], ["Z"], []) and monotonic_s() < end_s:
            sleep_s(0.001)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if _read_stat(int(pid))[1:2] == [str(self._child.pid)]:
                handle = os.pidfd_open(int(pid))
                found.callback(os.close, handle)
                yield handle

    def _end_early(self, status: Status, error: str) -> Execution:
        """It had to end: what it said until then is kept (A-012)."""
        self.destroy()
        self._drain_streams()
        if said := self._clean():
            status, error = "failed", f"{said}; it was ended with everything it had started"
        return self._build_execution(status, -1, error)

    def _end_exited(self, code: int) -> Execution:
        """It ended by itself; what it left running ends now."""
        self.destroy()
        self._drain_streams()
        if said := self._clean():
            return self._build_execution("failed", -1, said)
        if self._group is not None and (said := self._group.complaint()):
            return self._build_execution("failed", -1, f"{said}; it was ended with everything it had started")
        if code == 0:
            return self._build_execution("completed", 0, "")
        if code < 0:
            return self._build_execution("failed", -1, f"its sandbox was ended by signal {-code} ({_signal_name(-code)})")
        if code > 128:
            return self._build_execution("failed", code, f"ended by signal {code - 128} ({_signal_name(code - 128)})")
        return self._build_execution("failed", code, f"exit code {code}")

    def _clean(self) -> str:
        """What is said of the files that it left and that were removed; "" for none. Not while a process of it may still write."""
        return self._watch.clean() if self._watch is not None and not self._left else ""

    def _drain_streams(self) -> None:
        """Read what is still in the pipes; nobody writes any more."""
        for handle, kind in self._open.items():
            while kind in self._streams:
                try:
                    data = os.read(handle, _CHUNK)
                except BlockingIOError:
                    break
                if not data:
                    break
                self._streams[kind].add(data)

    def _build_execution(self, status: Status, code: int, error: str) -> Execution:
        out, err = self._streams[1], self._streams[2]
        duration_ms = round(1000 * (monotonic_s() - self._began_s))
        is_cut = out.is_cut or err.is_cut
        if self._left:
            status, error = "failed", f"{error}; {self._left}" if error else self._left
        return Execution(self._order.execution, status, code, bytes(out.kept), bytes(err.kept), duration_ms, error, is_cut)

    def _not_started(self) -> Unavailable:
        said = bytes(self._streams[2].kept).decode("utf-8", "replace").strip()
        code = self._child.poll()
        what = f"not made within {self._means.start_s:g} s" if code is None else f"bubblewrap left with {code}"
        return Unavailable(f"no sandbox for {self._order.label}: {said or what}", hint=bubblewrap.advice(said), outcome=NOT_STARTED)


@contextmanager
def _few_cpus(cpus: float) -> Iterator[None]:
    """Whatever is started meanwhile stays on so many processors; a part of one counts as one.

    The one we run on is the first of them: going to another one and back would take longer than all the rest of a start.
    """
    mine = os.sched_getaffinity(0)
    wanted = math.ceil(cpus)
    if wanted >= len(mine):
        yield
        return
    with open("/proc/thread-self/stat", encoding="utf-8", errors="replace") as file:
        here = int(file.read().rpartition(")")[2].split()[36])  # the field "processor"
    ordered = sorted(mine, key=lambda cpu: (cpu < here, cpu))
    os.sched_setaffinity(0, ordered[:wanted])
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def _is_readable(handle: int, wait_s: float) -> bool:
    poll = select.poll()  # select() knows only the first 1024 descriptors
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(1000 * wait_s))


def _read_stat(pid: int) -> list[str]:
    """State, parent and what follows of a process, as the kernel writes them; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
