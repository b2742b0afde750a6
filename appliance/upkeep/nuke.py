"""Deleting what an installation knows, by scope: for who begins anew or gives the box away."""

from collections.abc import Mapping

from appliance.errors import Refused
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.store import clearing
from appliance.store.clearing import Scope
from appliance.store.database import Store
from appliance.store.process_registry import Leases, ProcessRegistry


def count(home: Home, scope: Scope) -> dict[str, int]:
    """The rows that would be deleted, by table."""
    store = Store.open(home.database)
    try:
        return clearing.count(store, scope)
    finally:
        store.close()


def clear(home: Home, environ: Mapping[str, str], scope: Scope) -> dict[str, int]:
    """Delete it; Refused while a worker runs. The caller holds the lock of the home."""
    store = Store.open(home.database)
    try:
        roster = ProcessRegistry(store, Leases(store), paths.runtime_folder(home, environ) / "workers")
        if running := roster.running():
            alive = [worker for worker in running if worker.is_alive()]
            hint = "owlbox worker stop ID, then again" if alive else "owlbox worker reap, then again: it died without saying so"
            names = ", ".join(worker.id[-8:] for worker in running[:3])
            raise Refused(f"{len(running)} workers count as running ({names}): nothing was deleted", hint=hint)
        return clearing.clear(store, scope)
    finally:
        store.close()
