"""Whether the parts of a core are well: each answers a probe, and one that does not answer three times in a row is started anew.

A part is probed only while it runs: stopping it ends the probing, and a stopped one is never started by it. One that is well and
that nobody has asked for anything since the last probe is left alone for longer, so that an idle box sleeps; whoever asks it
meanwhile notices by himself that it hangs, and has it probed as often as before.
"""

import logging
from collections.abc import Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from appliance.clock import monotonic_s, now_ms
from appliance.errors import OwlError
from appliance.runtime.periodic import Rounds
from appliance.runtime.settings import Orchestrator

LOG = logging.getLogger(__name__)
Status = Literal["healthy", "degraded", "unhealthy"]
START_PROBES, START_EVERY_S = 30, 2.0
RESTING = 20  # so many times the usual pause while nobody asks: ten minutes
USE = ("served", "is_busy", "waiting")  # what changes when somebody does


class Health(Struct, frozen=True):
    """What a part answers to a probe."""

    status: Status
    message: str = ""
    uptime_s: float = 0.0
    metrics: dict[str, str] = {}


class ProbedPart(Protocol):
    """A part that is probed: whether it runs, its answer within so many seconds, and what starts it anew."""

    name: str

    def is_running(self) -> bool: ...
    def probe(self, limit_s: float) -> Health: ...
    def restart(self, why: str) -> object: ...


class Prober:
    """Probes one part every so often, in a thread of its own that sleeps between."""

    def __init__(self, part: ProbedPart, keys: Callable[[], Orchestrator]) -> None:
        self._part = part
        self._keys = keys
        self._rounds = Rounds(f"probe-{part.name}", self.look, f"probes of {part.name}", LOG)
        self.failures = 0
        self.healthy_ms = 0
        self.last = Health("unhealthy", "not asked yet")
        self._is_resting = False
        self._probed_s = 0.0
        self._start_probes = START_PROBES  # how many more a start may take

    def start(self) -> None:
        """Begin to probe."""
        self._rounds.start()

    def stop(self) -> None:
        """Probe no more, and start nothing any more."""
        self._rounds.stop()

    def look(self) -> float:
        """One probe; the seconds until the next one.

        A part that is being started has START_PROBES to become healthy, one every START_EVERY_S, before any of them counts.
        """
        keys, before = self._keys(), self.last
        if self._part.is_running() and not self._rounds.is_closing:
            limit_s = keys.health_timeout_ms / 1000
            self._probe(min(START_EVERY_S, limit_s) if self._start_probes else limit_s)
            if self._is_starting():
                return max(0.0, START_EVERY_S - (monotonic_s() - self._probed_s))
            if self.failures >= keys.health_failures:
                why = f"it did not answer {self.failures} probes in a row"
                LOG.error(
                    "%s is started again: %s", self._part.name, why, extra={"part": self._part.name, "probe": self.last.message}
                )
                self.failures, self._start_probes = 0, START_PROBES
                self._part.restart(why)
        else:
            self.failures, self._start_probes = 0, START_PROBES
        self._is_resting = is_unused(before, self.last)
        return keys.health_interval_ms / 1000 * (RESTING if self._is_resting else 1)

    def note_use(self) -> None:
        """Somebody asks the part again: probe it as often as is usual."""
        if self._is_resting:
            self._is_resting = False
            self._rounds.wake()

    def is_stale(self) -> bool:
        """Whether the last answer is older than the usual pause, or there is none."""
        return not self.healthy_ms or monotonic_s() - self._probed_s > self._keys().health_interval_ms / 1000

    def _is_starting(self) -> bool:
        """Whether it is still to become healthy after a start; one that takes too long is warned of, and counts from then on."""
        if self.last.status != "unhealthy":
            self._start_probes = 0
        if not self._start_probes:
            return False
        self._start_probes -= 1
        if not self._start_probes:
            LOG.warning("%s is not healthy after %g s: %s", self._part.name, START_PROBES * START_EVERY_S, self.last.message)
        self.failures = 0
        return True

    def _probe(self, limit_s: float) -> None:
        self._probed_s = monotonic_s()
        try:
            self.last = self._part.probe(limit_s)
        except OwlError as error:
            self.last = Health("unhealthy", error.message)
        if self.last.status == "unhealthy":
            self.failures += 1
        else:
            self.failures, self.healthy_ms = 0, now_ms()


def is_unused(before: Health, now: Health) -> bool:
    """Whether a healthy part has done nothing between two answers, and does nothing."""
    is_same = all(now.metrics.get(name) == before.metrics.get(name) for name in USE)
    is_free = now.metrics.get("is_busy") == "False" and now.metrics.get("waiting") == "0"
    return now.status == before.status == "healthy" and is_same and is_free


def describe_broker(told: dict[str, Any]) -> Health:
    """A broker's status as the answer to a probe."""
    metrics: dict[str, str] = {
        name: str(told[name]) for name in ("model", "memory_mb", "rss_mb", "served", "is_busy", "waiting") if name in told
    }
    problem = str(told.get("vault", {}).get("problem") or "")
    return Health("degraded" if problem else "healthy", problem or "answers", float(told.get("uptime_s", 0)), metrics)
