"""Opening and closing of the channels in `connectors`, as the configuration switches them on.

One that cannot be opened is logged and reported by `channel_states`; the others and the core go on. Its notifications wait in the
outbox. Knows nothing about what a channel does.
"""

import importlib
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from appliance.channels import connectors
from appliance.channels.delivery import Courier
from appliance.errors import BadInput, ConfigError, OwlError
from appliance.records import Channel
from appliance.runtime.settings import Channels, Connector
from appliance.runtime.signatures import signature

LOG = logging.getLogger(__name__)


class Connection(Channel, Protocol):
    """A channel to people elsewhere; `close` stops what it began, and is called once."""

    def close(self) -> None: ...


def connect(name: str, table: Connector, services: Mapping[str, Any]) -> Connection:
    """Open a channel; ConfigError names the keys of its table that cannot be."""
    try:
        function = importlib.import_module(f"{connectors.__name__}.{name}").connect
    except ImportError as error:
        raise ConfigError(f"channels.{name}: {error}", key=f"channels.{name}", hint="install what it needs") from None
    wanted = signature(function)
    try:
        bound = wanted.bind(table.keys)
    except BadInput as error:
        raise ConfigError(f"channels.{name}: {error.message}", key=f"channels.{name}", hint=error.hint) from None
    made: Connection = function(**bound, **{service: services[service] for service in wanted.services})
    return made


class Connections:
    """The channels in `connectors` that are open."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier
        self._open: dict[str, Connection] = {}
        self._problems: dict[str, str] = {}

    def channel_states(self, settings: Channels) -> dict[str, bool | str]:
        """For each channel whether it is on, or why it could not be opened; of those to come, whether they are asked for."""
        found = {name: self._problems.get(name, name in self._open) for name in settings.connectors}
        return {"matrix": settings.matrix.enabled, "email": settings.email.enabled, **found}

    def open(self, tables: Mapping[str, Connector], services: Mapping[str, Any]) -> None:
        """Open those that are switched on; `services` are what they may ask for by name."""
        for name, table in tables.items():
            if not table.enabled:
                LOG.info("channel %s is disabled", name)
                continue
            try:
                self._open[name] = connect(name, table, services)
            except (OwlError, OSError) as error:
                LOG.error("channel %s is not open: %s", name, error)
                self._problems[name] = str(error)
                continue
            self._courier.register(name, self._open[name])
            LOG.info("channel %s is open", name)

    def close(self) -> None:
        """Close them; what is still to be sent waits for the next start."""
        while self._open:
            name, channel = self._open.popitem()
            self._courier.unregister(name)
            try:
                channel.close()
            except (OwlError, OSError) as error:
                LOG.warning("channel %s did not close: %s", name, error)
