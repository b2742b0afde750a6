"""Changed keys of the configuration that the running broker does not know yet, and having it renewed for them.

A broker reads the configuration at its start alone. Asked to, it denies remote models at once where `models.local_only` says so,
ends as soon as it answers nobody, and its keeper, or systemd, starts the next one with what the file says now. One that cannot
be told is told before it is asked anything else. Knows nothing about what the keys mean.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from appliance.errors import Lost, OwlError
from appliance.models.client import Models
from appliance.runtime.rpc_client import Client
from appliance.service.broker_process import Keeper

LOG = logging.getLogger(__name__)
SWITCH = "models.local_only"


class Renewal:
    """What waits for the next broker."""

    def __init__(self, keeper: Keeper, models: Models, is_local_only: Callable[[], bool]) -> None:
        """`models` must not wait for a broker that does not run."""
        self._keeper = keeper
        self._models = models
        self._is_local_only = is_local_only
        self._guard = threading.Lock()
        self._keys: tuple[str, ...] = ()
        self._told_pid = 0  # the broker that ends when it can; 0 while none could be told

    def begin(self, keys: Iterable[str]) -> None:
        """These keys have changed: nothing is asked of a broker that does not know them without its being told first."""
        with self._guard:
            self._keys, self._told_pid = tuple(dict.fromkeys((*self._keys, *keys))), 0
        if not self._keys:
            return
        if not self._keeper.is_running():
            self._finish()
            return
        try:
            self._tell(self._models.call)
        except OwlError as error:
            LOG.warning("the broker is told of a changed configuration when it answers: %s", error)

    def meet(self, client: Client) -> None:
        """A broker is met for the first time, or once more after a while."""
        if self._keys and not self._told_pid:
            self._tell(client.call)
        elif self._keys and client.server.get("pid") != self._told_pid:
            self._finish()

    def waiting(self) -> tuple[str, ...]:
        """The keys whose change is not in force, because the broker from before still answers."""
        if self._keys and self._told_pid:
            try:
                is_new = self._models.status()["pid"] != self._told_pid
            except Lost:
                is_new = True  # it has ended
            except OwlError:
                is_new = False
            if is_new:
                self._finish()
        return self._keys

    def _tell(self, call: Callable[[str, dict[str, Any]], Any]) -> None:
        is_local_only = self._is_local_only()
        told = call("renew", {"is_local_only": is_local_only})
        if told["is_idle"]:
            self._finish()
            return
        with self._guard:
            self._told_pid = int(told["pid"])
            if is_local_only:
                self._keys = tuple(key for key in self._keys if key != SWITCH)

    def _finish(self) -> None:
        with self._guard:
            self._keys, self._told_pid = (), 0
