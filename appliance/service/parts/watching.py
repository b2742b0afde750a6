"""Builds what watches the core: figures, the probes of the broker, and the port for programs that collect.

`metrics.port` opens a port of this machine alone that answers /metrics and /health, with as much HTTP as one GET a connection
takes. Requests by another name than this machine's are refused, so that no page of a browser reads the figures.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from appliance.clock import now_ms
from appliance.errors import OwlError, Unavailable
from appliance.models.client import ModelAnswered, Models
from appliance.records import to_plain
from appliance.runtime.methods import method
from appliance.service.broker_process import Broker, BrokerHandle
from appliance.service.parts.base import BaseParts
from appliance.service.watching.figures import Figures
from appliance.service.watching.health import Health, Prober, describe_broker

LOG = logging.getLogger(__name__)
HERE = "127.0.0.1"
REQUEST_BYTES, WAIT_S = 4096, 5.0
NAMES = (HERE, "localhost", "[::1]")
Answer = Callable[[], tuple[int, str]]
REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Port:
    """The listening port; `pages` are functions that give a status and a text, by path."""

    def __init__(self, number: int, pages: Mapping[str, Answer]) -> None:
        self._number = number
        self._pages = pages
        self._listener: socket.socket | None = None

    def open(self) -> int:
        """Listen from now on; the number of the port."""
        try:
            self._listener = socket.create_server((HERE, self._number), backlog=8)
        except OSError as error:
            message = f"metrics.port {self._number} cannot be opened: {error.strerror}"
            raise Unavailable(message, hint="another program has it: owlbox config set metrics.port NUMBER") from None
        threading.Thread(target=self._serve, args=(self._listener,), name="metrics-port", daemon=True).start()
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed
            with connection:
                connection.settimeout(WAIT_S)
                try:
                    status, text = self._answer(connection.recv(REQUEST_BYTES).decode("latin-1"))
                    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    body = text.encode()
                    connection.sendall(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                except OSError:
                    continue  # who asked has left, or said nothing

    def _answer(self, request: str) -> tuple[int, str]:
        first, *headers = request.split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return 400, "this is no HTTP request\n"
        hosts = [line.partition(":")[2].strip().lower() for line in headers if line.lower().startswith("host:")]
        if hosts and (hosts[0].rpartition(":")[0] or hosts[0]) not in NAMES and hosts[0] not in NAMES:
            return 403, "only by a name of this machine\n"
        if words[0] != "GET":
            return 405, "only GET\n"
        page = self._pages.get(words[1].partition("?")[0])
        if page is None:
            return 404, f"there are {', '.join(self._pages)}\n"
        try:
            return page()
        except OwlError as error:
            LOG.error("metrics could not be read: %s", error)
            return 503, f"{error.message}\n"


class BrokerPart:
    """The broker as a part that is probed."""

    name = "broker"

    def __init__(self, keeper: BrokerHandle, models: Models) -> None:
        self._keeper = keeper
        self._models = models

    def is_running(self) -> bool:
        """Whether it is there to be asked."""
        return self._keeper.is_running()

    def probe(self, limit_s: float) -> Health:
        """Ask a part for its health; Lost when it does not answer in time."""
        return describe_broker(self._models.status(limit_s))

    def restart(self, why: str) -> str:
        """End it and start another."""
        return self._keeper.revive(why)


class Watching:
    """What the core says of itself to programs; `start` is for the core that others talk to."""

    def __init__(self, base: BaseParts, broker: BrokerHandle, models: Models) -> None:
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
