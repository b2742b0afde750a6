"""The life of a worker's process: registered, alive to others, working tick by tick, stopped in good order.

The main thread waits for signals, gives signs of life and buries dead workers; a second one works. So a worker in a
model call of five minutes goes on beating, and one that is asked to stop does so at once: SIGTERM and SIGINT give
the claim back, SIGUSR1 means that there is something to look at, a task that was added or is to be stopped. Idle
it sleeps. A terminal that is closed (SIGHUP) asks it to stop too. One that was taken for dead ends when it learns of
it, and has changed nothing meanwhile. Not promised: that a tool which hears no stop ends in time; then the process
ends with it, and the claim is given back by others.
"""

import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from appliance.clock import monotonic_s
from appliance.errors import OwlError, Unavailable
from appliance.runtime.settings import WorkerSettings
from appliance.runtime.signals import Signals
from appliance.sessions.runs import Runs
from appliance.store.process_registry import Mode, ProcessRegistry, Pulse
from appliance.work.tick import LOST, STOPPED, Ticks
from appliance.work.work_events import WorkDone, WorkerIdle
from appliance.work.worker_control import WorkerManager
from appliance.work.worker_log import Phases

LOG = logging.getLogger(__name__)
WORKED, NOTHING, NO_MODEL, DECLARED_DEAD, TASK_FAILED = 0, 0, 5, 1, 1  # exit codes
RETRY_S = 5.0  # after no model could be asked, doubling
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SECOND_LOOK_S = 2.0  # a signal may come before the commit that it tells of


class WorkerOptions(Struct, frozen=True):
    """Who works, and how: `task` is the only one it may take, `log` its file unless it is in the foreground."""

    id: str
    mode: Mode
    task: int | None = None
    log: Path | None = None


class WorkerLoop:
    """One worker from its registration to its end. Run it from the main thread of its process.

    Publishes `WorkDone` and `WorkerIdle`.
    """

    def __init__(
        self,
        post: WorkerOptions,
        roster: ProcessRegistry,
        crew: WorkerManager,
        runs: Runs,
        ticks: Ticks,
        pace: Callable[[], WorkerSettings],
        phases: Phases,
    ) -> None:
        self._post = post
        self._roster = roster
        self._crew = crew
        self._runs = runs
        self._ticks = ticks
        self._pace = pace
        self._phases = phases
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._ended = threading.Event()
        self.did_work = self.has_failed_task = False
        self._code = NOTHING
        self.reason = "its work was done"
        self._reaped_s = float("-inf")
        self._grace_s, self._stop_at_s = 0.0, float("inf")
        self._was_woken = False

    def run(self, registered: Callable[[], None] = lambda: None, *, grace_s: float = 30.0) -> int:
        """Work until there is nothing more to do, or a signal; the exit code. `registered` is called once that is so.

        Once and in the foreground, with nothing due, it does not even register.
        A thread that does not stop in `grace_s` is left behind: end the process then.
        """
        if self._post.mode == "once" and self._post.log is None and not self._ticks.is_due(self._post.task):
            # A timer may start us every minute: that leaves no trace while there is nothing to do.
            self._ended.set()
            self._end_idle()
            return NOTHING
        # Before anybody can know of us, and for those who are told too late that we have left: an unhandled SIGUSR1
        # would end the process.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # Under nohup a closed terminal is no reason to stop.
        ends = [one for one in ENDS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
        signals = Signals((*ends, signal.SIGUSR1))
        pulse = self._roster.begin(self._post.id, self._post.mode, task=self._post.task, log=self._post.log)
        worker = threading.Thread(target=self._run_loop, args=(signals, pulse.hold), name="tick", daemon=True)
        try:
            registered()
            LOG.info("worker %s works", self._post.id, extra={"mode": self._post.mode, "task": self._post.task})
            worker.start()
            self._watch_worker(pulse, signals, grace_s)
        finally:
            self._sign_off(pulse, signals)
        return self._code

    @property
    def is_left_behind(self) -> bool:
        """True when its thread did not stop in time."""
        return not self._ended.is_set()

    # -- the main thread ------------------------------------------------------------------------------

    def _watch_worker(self, pulse: Pulse, signals: Signals, grace_s: float) -> None:
        self._grace_s, due_s = grace_s, monotonic_s()
        while not self._ended.is_set() and (now_s := monotonic_s()) < self._stop_at_s:
            if now_s >= due_s:
                self._run_guarded("beat", lambda: self._send_heartbeat(pulse))
                self._run_guarded("reap", self._reap_workers)
                pace = self._pace()
                due_s = now_s + min(pace.heartbeat_s, pace.reap_interval_s if self._is_persistent() else pace.heartbeat_s)
            number = signals.wait(max(0.01, min(due_s, self._stop_at_s) - monotonic_s()))
            if number in ENDS and number is not None and not self._stop.is_set():
                self._request_end(STOPPED, signal.Signals(number).name)
            elif number == signal.SIGUSR1:
                self._run_guarded("look", self._ticks.check_claim)
                self._wake.set()

    def _send_heartbeat(self, pulse: Pulse) -> None:
        """A heartbeat: in memory, and in the row while a claim is held."""
        pulse.beat()
        if self._ticks.is_busy():
            if not self._roster.beat(self._post.id):
                self._declared_dead()
            self._ticks.check_claim()

    def _reap_workers(self) -> None:
        """Only persistent workers watch the others (B-019)."""
        if not self._is_persistent() or monotonic_s() - self._reaped_s < self._pace().reap_interval_s:
            return
        self._reaped_s = monotonic_s()
        if self._crew.reap():
            self._runs.recover(lambda event: None)
            self._wake.set()

    def _run_guarded(self, what: str, step: Callable[[], object]) -> None:
        """A busy database or a full disk must not end the worker."""
        try:
            step()
        except OwlError as error:
            LOG.error("%s: %s", what, error)
        except Exception:
            LOG.exception("%s failed", what)

    def _request_end(self, why: str, reason: str) -> None:
        LOG.info("worker %s stops: %s", self._post.id, reason)
        self.reason, self._stop_at_s = reason, monotonic_s() + self._grace_s
        self._stop.set()
        if why == STOPPED:
            self._ticks.begin_close()
        self._ticks.interrupt(why)
        self._wake.set()

    def _declared_dead(self) -> None:
        """Others took us for dead: what we held is theirs."""
        if not self._stop.is_set():
            LOG.error("worker %s was taken for dead and ends", self._post.id)
            self._code = DECLARED_DEAD
            self._request_end(LOST, "taken for dead")

    def _sign_off(self, pulse: Pulse, signals: Signals) -> None:
        """Say that we have ended, unless we hold something still: then others find it when we are gone."""
        if self.is_left_behind or self._ticks.is_busy():
            LOG.error("worker %s ends with a claim that could not be given back", self._post.id)
        else:
            self._run_guarded("end", lambda: self._roster.end(self._post.id, "stopped", self.reason))
        pulse.end()
        if not self.is_left_behind:
            signals.close()

    def _is_persistent(self) -> bool:
        return self._post.mode == "persist"

    # -- the thread that works --------------------------------------------------------------------------

    def _run_loop(self, signals: Signals, hold: Callable[[bool], None]) -> None:
        try:
            if self._is_persistent():
                self._go_on(hold)
            else:
                self._tick_once(hold)
        finally:
            self._ended.set()
            signals.ring()

    def _tick_once(self, hold: Callable[[bool], None]) -> None:
        try:
            did_work = self._ticks.tick(self._post.id, self._post.task, hold)
        except OwlError as error:
            LOG.error("worker %s: %s", self._post.id, error)
            self._phases.note(f"nothing done: {error}")
            self._code, self.reason = error.exit_code, error.message
        except Exception as error:
            LOG.exception("the tick failed")
            self._phases.note(f"the tick failed: {type(error).__name__}: {error}")
            self._code, self.reason = 1, f"the tick failed: {type(error).__name__}"
        else:
            if did_work:
                self.did_work = True
                if self._ticks.failed is not None:
                    self.has_failed_task = True
                    self._code, self.reason = TASK_FAILED, f"task {self._ticks.failed} failed"
                self._publish_done()
            else:
                self._end_idle()

    def _end_idle(self) -> None:
        self._phases.note("nothing to do")
        self.reason = "there was nothing to do"

    def _go_on(self, hold: Callable[[bool], None]) -> None:
        pause_s = 0.0
        while not self._stop.is_set():
            is_second_look = False
            if not self._is_standing():
                return
            try:
                self._wake.clear()
                did_work, trouble = self._ticks.tick(self._post.id, hold=hold), ""
                if self._ticks.was_interrupted:
                    trouble = "interrupted"
            except OwlError as error:
                did_work, trouble = False, str(error)
                LOG.log(logging.WARNING if isinstance(error, Unavailable) else logging.ERROR, "no work done: %s", error)
            except Exception as error:  # the worker's loop survives its task (B-012)
                did_work, trouble = False, f"{type(error).__name__}: {error}"
                LOG.exception("the tick failed")
            if did_work:
                self.did_work = True
                self._publish_done()
            if did_work and not trouble:
                pause_s = 0.0
                continue
            interval_s = self._pace().tick_interval_s
            if trouble:
                self._phases.note(trouble)
                pause_s = min(interval_s, max(RETRY_S, pause_s * 2))
            else:
                pause_s, is_second_look = 0.0, self._was_woken
            self._sleep_until(pause_s or (min(interval_s, SECOND_LOOK_S) if is_second_look else interval_s))

    def _sleep_until(self, pause_s: float) -> None:
        """Until it is time, or somebody says that there is something to do."""
        self._ticks.events.publish(WorkerIdle())
        if self._stop.is_set():
            return
        self._phases.say("sleeping", f"{pause_s:g}s")
        self._was_woken = self._wake.wait(pause_s)

    def _is_standing(self) -> bool:
        """False when others took us for dead meanwhile."""
        try:
            is_standing = self._roster.get(self._post.id).status == "running"
        except OwlError as error:
            LOG.error("cannot see whether we still count: %s", error)
            return True
        if not is_standing:
            self._declared_dead()
        return is_standing

    def _publish_done(self) -> None:
        """Others may go on with what has become possible, and notifications may leave."""
        self._run_guarded("tell", lambda: self._ticks.events.publish(WorkDone()))
