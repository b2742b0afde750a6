"""Builds what watches the core: figures, the probes of the broker, and the port for programs that collect."""

import os
from typing import Any

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.models.client import ModelAnswered, Models
from appliance.records import to_plain
from appliance.runtime.methods import method
from appliance.service.broker_process import Broker, Keeper
from appliance.service.parts.base import BaseParts
from appliance.service.watching.figures import Figures
from appliance.service.watching.health import Health, Prober, describe_broker
from appliance.service.watching.port import Port


class BrokerPart:
    """The broker as a part that is probed."""

    name = "broker"

    def __init__(self, keeper: Keeper, models: Models) -> None:
        self._keeper = keeper
        self._models = models

    def is_running(self) -> bool:
        """Whether it is there to be asked."""
        return self._keeper.is_running()

    def probe(self, limit_s: float) -> Health:
        """How it says that it is; Lost when it does not answer in time."""
        return describe_broker(self._models.status(limit_s))

    def restart(self, why: str) -> str:
        """End it and start another."""
        return self._keeper.revive(why)


class Watching:
    """What the core says of itself to programs; `start` is for the core that others talk to."""

    def __init__(self, base: BaseParts, broker: Keeper, models: Models) -> None:
        self._broker = broker
        self._started_ms = now_ms()
        self._figures = Figures(base.home, base.store, base.events, models.status)
        self.prober = Prober(BrokerPart(broker, models), lambda: base.settings().orchestrator)
        base.events.subscribe(ModelAnswered, lambda answered: self.prober.note_use())
        pages = {
            "/metrics": lambda: (200, self._figures.text()),
            "/health": self._answer_health,
            "/health/live": lambda: (200, "ok\n"),
        }
        self._port = Port(base.settings().metrics.port, pages)
        self._has_port = bool(base.settings().metrics.port)

    def start(self) -> None:
        """Probe the broker from now on, and open the port if it is configured."""
        if isinstance(self._broker, Broker):  # one that systemd looks after is asked by systemd
            self.prober.start()
        if self._has_port:
            self._port.open()

    def stop(self) -> None:
        """Probe and answer no more."""
        self.prober.stop()
        self._port.close()

    @method("core.metrics", is_quiet=True)
    def metrics(self) -> dict[str, str]:
        """Figures in the text format of Prometheus, under `text`."""
        return {"text": self._figures.text()}

    @method("core.health", is_quiet=True)
    def health(self) -> dict[str, Any]:
        """Whether the core and the parts that it looks after are well: status, message, uptime_s and metrics of each."""
        core = Health("healthy", "answers", (now_ms() - self._started_ms) / 1000, {"pid": str(os.getpid())})
        broker = self.prober.last
        if not self._broker.is_running():
            broker = Health("degraded", "not running; the next question starts it")
        elif self.prober.is_stale():
            try:
                self.prober.look()
            except OwlError as error:
                broker = Health("unhealthy", error.message)
            else:
                broker = self.prober.last
        return {"core": to_plain(core), "broker": to_plain(broker)}

    def _answer_health(self) -> tuple[int, str]:
        told = self.health()
        is_well = all(part["status"] != "unhealthy" for part in told.values())
        lines = "".join(f"{name} {part['status']} {part['message']}\n" for name, part in told.items())
        return (200 if is_well else 503), lines
