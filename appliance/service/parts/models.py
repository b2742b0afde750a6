"""Builds the core's way to models: the broker's keeper, its clients, the vault behind it, and what is known of local models.

Here is also what renews a running broker whose configuration has changed: it denies remote models at once where `models.local_only`
says so, ends as soon as it answers nobody, and its keeper, or systemd, starts the next one. One that cannot be told is told before
it is asked anything else.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from appliance.agent.loop_events import MessageComing
from appliance.errors import Lost, OwlError
from appliance.models.client import BrokerMet, ModelAnswered, Models, RunningBroker, VectorCache
from appliance.models.usage import Accounts
from appliance.runtime import config, paths
from appliance.runtime.rpc_client import Client
from appliance.runtime.settings import ConfigReloaded
from appliance.secrets.vault_client import VaultClient
from appliance.service.broker_lending import SharedBroker
from appliance.service.broker_process import Broker, BrokerHandle, ExternalBroker
from appliance.service.local_models import LocalModels
from appliance.service.parts.base import BaseParts
from appliance.service.parts.watching import Watching

LOG = logging.getLogger(__name__)
SWITCH = "models.local_only"


class BrokerReload:
    """What waits for the next broker."""

    def __init__(self, keeper: BrokerHandle, models: Models, is_local_only: Callable[[], bool]) -> None:
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


class ModelParts(Struct, frozen=True):
    """`patient` asks a broker that runs and waits for none; the others wait for one that is being started."""

    broker: BrokerHandle
    models: Models
    patient: Models
    accounts: Accounts
    local: LocalModels
    vault: VaultClient
    renewal: BrokerReload
    watching: Watching


def build_models(base: BaseParts, process: str) -> ModelParts:
    """The keeper that the process needs, with everything that asks it."""
    settings, accounts = base.settings(), Accounts(base.store)
    keeper = choose_keeper(base, process)

    def is_local_only() -> bool:
        return base.settings().models.local_only

    known = VectorCache()
    models = Models(
        keeper,
        wait_s=settings.llm.broker_wait_s,
        silence_s=settings.orchestrator.health_interval_ms / 1000,
        is_local_only=is_local_only,
        events=base.events,
        known=known,
    )
    patient = Models(RunningBroker(keeper), wait_s=0, known=known)
    vault = VaultClient(models.call, base.redactor)
    renewal = BrokerReload(keeper, patient, is_local_only)
    base.events.subscribe(ModelAnswered, lambda answered: accounts.add(answered.route, answered.ask, answered.finish))
    base.events.subscribe(BrokerMet, lambda met: vault.learn(met.client.call))
    base.events.subscribe(BrokerMet, lambda met: renewal.meet(met.client))
    base.events.subscribe(MessageComing, lambda coming: models.plan_ahead())

    def use(reloaded: ConfigReloaded) -> None:
        settings = reloaded.settings
        models.configure(settings.llm.broker_wait_s, settings.orchestrator.health_interval_ms / 1000)
        if not (isinstance(keeper, SharedBroker) and keeper.is_borrowed):
            renewal.begin(key for key in reloaded.keys if config.described(key).is_broker)

    base.events.subscribe(ConfigReloaded, use)
    local = LocalModels(base.home, base.settings, models)
    return ModelParts(keeper, models, patient, accounts, local, vault, renewal, Watching(base, keeper, patient))


def choose_keeper(base: BaseParts, process: str) -> BrokerHandle:
    """systemd's broker, or a child; a worker borrows the core's; a command without a core has its own, private one."""
    is_worker = process == "worker"
    given = base.environ.get("OWLBOX_BROKER_SOCKET", "") if base.is_shared or is_worker else ""
    if given:
        return ExternalBroker(Path(given))
    path = paths.broker_socket(base.runtime) if base.is_shared else base.runtime / f"broker-{os.getpid()}.sock"
    if not is_worker:
        return Broker(base.home, path, base.environ, base.leases)
    return SharedBroker(base.home, base.environ, lambda: Broker(base.home, path, base.environ, base.leases))
