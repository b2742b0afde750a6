"""Runs what a model asked for, where it can do no harm: one sandbox a call, made for it and gone after it.

Owns who may run now, the second try when a sandbox cannot be made, the pause after that fails too, and the
list of what runs. What a sandbox is, is `sandbox.bubblewrap`; how one lives and ends, `sandbox.runner`. Under systemd the tool
unit carries the order out as a user of its own (`sandbox.tool_unit`), in a checkout a child of this process does.
Nothing is ever run outside a sandbox: where there can be none, `run` says so.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance import clock
from appliance.clock import monotonic_s, new_id
from appliance.errors import Cancelled, NotFound, Unavailable
from appliance.records import Cancel
from appliance.sandbox import bubblewrap, control_group, landlock, runner, tool_unit
from appliance.sandbox.bubblewrap import Bind, Execution, Limits, Profile, SandboxOrder, Status
from appliance.sandbox.folder_turns import FolderTurns
from appliance.sandbox.slots import LOOK_S, Slots

__all__ = ["Bind", "Execution", "Limits", "Plan", "Profile", "Sandbox", "SandboxOrder", "Status"]
LOG = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0

Show = Callable[[int, bytes], None]


class Plan(Struct, frozen=True):
    """Settings for running sandboxes on this machine."""

    max_concurrent: int = 10
    wait_s: float = 60.0  # how long a call may wait for its turn
    slots: Path | None = None  # a folder, when other processes share the turns
    unit: Path | None = None  # the tool unit's socket; without one a child of this process runs the sandbox
    bwrap: str = bubblewrap.BWRAP
    start_s: float = 10.0  # a sandbox that is not made by then hangs


class Sandbox:
    """Carries out orders; safe to call from many threads, each of which waits for its own."""

    def __init__(self, plan: Plan | None = None) -> None:
        self._plan = plan or Plan()
        self._slots = Slots(self._plan.max_concurrent, self._plan.slots)
        self.folders = FolderTurns(self._plan.slots / "folders" if self._plan.slots is not None else None)
        groups = control_group.find() if self._plan.unit is None else None
        self._means = runner.Means(this_core(), landlock.version(), groups, self._plan.bwrap, self._plan.start_s)
        self._guard = threading.Lock()
        self._running: dict[str, tuple[SandboxOrder, threading.Event]] = {}
        self._has_worked = False
        self._failures = 0
        self._reason = ""
        self._pause_end_s = 0.0

    def run(self, order: SandboxOrder, cancel: Cancel, show: Show | None = None) -> Execution:
        """Carry out one order; whatever becomes of the command is in the result.

        BadInput for an order that cannot be carried out as it stands; Unavailable when there is no sandbox,
        Busy when no turn came up. `show` gets each piece of output that is kept, 1 for stdout and 2 for
        stderr, on the calling thread.
        """
        order = order if order.execution else replace(order, execution=new_id())
        bubblewrap.check(order)
        self._require_sandbox()
        began_s, stop = monotonic_s(), threading.Event()
        either = _Either(cancel, stop)
        with self._guard:
            self._running[order.execution] = (order, stop)
        try:
            self._wait_pause(either)
            with self._slots.take(either, self._plan.wait_s):
                return self._try_twice(order, either, show)
        except Cancelled as error:
            duration_ms = round(1000 * (monotonic_s() - began_s))
            return Execution(order.execution, "cancelled", -1, b"", b"", duration_ms, error.message)
        finally:
            with self._guard:
                self._running.pop(order.execution, None)

    @property
    def wait_s(self) -> float:
        """The seconds that a call may wait for its turn."""
        return self._plan.wait_s

    def cancel(self, execution: str) -> None:
        """End a running or waiting order; NotFound when there is none of that id (any more)."""
        with self._guard:
            found = self._running.get(execution)
        if found is None:
            raise NotFound(f"no execution {execution} is running")
        found[1].set()

    def listing(self) -> list[SandboxOrder]:
        """The orders that run or wait in this process, oldest first."""
        with self._guard:
            return [order for order, _ in self._running.values()]

    def missing(self) -> str:
        """Why there can be no sandbox here, with the next step; "" when there can. The first time one is tried."""
        reason = self._find_absent()
        if reason or self._plan.unit is not None or self._has_worked:
            return reason
        try:
            runner.run(SandboxOrder("trial", "", ("true",)), self._means, threading.Event())
        except Unavailable as error:
            return f"{error.message.replace(': ', ', ')}: {error.hint}"
        self._has_worked = True
        return ""

    def _find_absent(self) -> str:
        """The missing requirements that can be seen without starting a sandbox."""
        unit = self._plan.unit
        if unit is None:
            return bubblewrap.missing(self._plan.bwrap)
        return "" if unit.exists() else f"the tool unit's socket {unit} is not there: systemctl enable --now owlbox-tool.socket"

    def _require_sandbox(self) -> None:
        message, _, hint = self._find_absent().partition(": ")
        if message:
            raise Unavailable(message, hint=hint)

    def sweep(self) -> int:
        """End what cores that are gone have left running (A-020); how many processes that were."""
        ended = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            core = bubblewrap.core_of(_process_title(int(pid)))
            if core and is_left(core):
                ended += _kill_process(int(pid), core)
        if ended:
            LOG.warning("ended %d processes of sandboxes left behind by an earlier core", ended)
        return ended

    def health(self) -> dict[str, Any]:
        """How sandboxes are doing here, for doctor and status alike: until one has worked, one is tried."""
        missing, has_unit = self.missing(), self._plan.unit is not None
        return {
            "state": "missing" if missing else "degraded" if self._failures else "ok",
            "is_degraded": self._failures > 0,
            "reason": missing or self._reason,
            "running": self._slots.running,
            "waiting": self._slots.waiting,
            "max_concurrent": self._plan.max_concurrent,
            "runner": "unit" if has_unit else "child",
            "uid": tool_unit.user_id() if has_unit else os.getuid(),
            "has_landlock": self._means.abi > 0,
            "landlock": self._means.abi,
            "has_group": self._means.groups is not None,
            "seccomp": os.uname().machine,
        }

    def _try_twice(self, order: SandboxOrder, cancel: Cancel, show: Show | None) -> Execution:
        """Try again once when no sandbox could be made (A-011); the command has not begun then."""
        for attempt in (1, 2):
            try:
                done = self._carry_out(order, cancel, show)
            except Unavailable as error:
                if error.outcome != runner.NOT_STARTED:
                    raise
                self._log_failure(order, attempt, error)
                if attempt == 2:
                    raise
            else:
                with self._guard:
                    self._failures, self._reason, self._has_worked = 0, "", True
                return done
        raise AssertionError("unreachable")

    def _carry_out(self, order: SandboxOrder, cancel: Cancel, show: Show | None) -> Execution:
        if self._plan.unit is not None:
            return tool_unit.send(self._plan.unit, order, self._means.core, cancel, show)
        return runner.run(order, self._means, cancel, show)

    def _log_failure(self, order: SandboxOrder, attempt: int, error: Unavailable) -> None:
        """Say everything that is known; after the second time others wait before they try (A-018)."""
        told = {
            "tool": order.tool,
            "session": order.session,
            "execution": order.execution,
            "profile": order.profile,
            "folder": str(order.folder or ""),
            "binds": [f"{b.source}:{b.inside}" for b in order.binds],
            "program": order.argv[0],
        }
        LOG.log(logging.WARNING if attempt == 1 else logging.ERROR, "%s, attempt %d of 2: %s", error, attempt, told)
        if attempt == 2:
            with self._guard:
                self._failures += 1
                self._reason = error.message
                self._pause_end_s = monotonic_s() + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (self._failures - 1))

    def _wait_pause(self, cancel: Cancel) -> None:
        """Wait out the pause after a failure; raises where the deadline comes first."""
        end_s = monotonic_s() + self._plan.wait_s
        while self._failures and (now_s := monotonic_s()) < self._pause_end_s:
            if now_s >= end_s:
                raise Unavailable(f"sandboxes cannot be made at present: {self._reason}", hint="owlbox doctor")
            if cancel.wait(LOOK_S):
                raise Cancelled("cancelled while sandboxes could not be made")


class _Either:
    """Set when one of two cancellation tokens is."""

    def __init__(self, first: Cancel, second: threading.Event) -> None:
        self._first = first
        self._second = second

    def is_set(self) -> bool:
        return self._first.is_set() or self._second.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set() or self._second.wait(timeout) or self.is_set()


def this_core() -> str:
    """Our name in the titles of sandboxes: where our number counts, and our process."""
    return f"{_pid_namespace()}:{clock.this_process().encode()}"


def is_left(core: str) -> bool:
    """Whether a core that a title names is gone. One in a container has numbers of its own, of which we know nothing."""
    where, _, process = core.partition(":")
    return where == _pid_namespace() and not clock.is_alive(process)


def _pid_namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _process_title(pid: int) -> str:
    """The first word of a process's command line, "" when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(4096).partition(b"\0")[0].decode("utf-8", "replace")
    except OSError:
        return ""


def _kill_process(pid: int, core: str) -> bool:
    """End a process if it is still the one that was meant and ours to end."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if bubblewrap.core_of(_process_title(pid)) != core:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True
