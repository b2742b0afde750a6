"""The parts that every other part of a core stands on: the home, its configuration, the database, runs, events and hooks."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from appliance.channels import session_control
from appliance.clock import this_process
from appliance.runtime import config, log, paths, sd_notify
from appliance.runtime.crash_points import Passed
from appliance.runtime.events import Events
from appliance.runtime.hooks import Hooks
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.runtime.users import user_name
from appliance.sessions.people import People, PersonRules
from appliance.sessions.runs import Runs
from appliance.sessions.uploads import UploadFiles
from appliance.store.database import Store
from appliance.store.process_registry import Leases


class BaseParts(Struct, frozen=True):
    """What every part is built from. `is_shared` is for the core that others talk to, `passed` for tests of crashes."""

    home: Home
    environ: Mapping[str, str]
    runtime: Path
    live: config.Live
    redactor: log.Redactor
    store: Store
    leases: Leases
    people: People
    uploads: UploadFiles
    runs: Runs
    events: Events
    hooks: Hooks
    passed: Passed
    is_shared: bool

    def settings(self) -> Config:
        """The current configuration."""
        return self.live.current


class HasServices(Protocol):
    """A part that tools may ask for."""

    def services(self) -> dict[str, Any]:
        """Its objects, by the names that tools use."""
        ...


def merge_services(base: BaseParts, *parts: HasServices) -> dict[str, Any]:
    """Join the services that tools request by name."""
    services: dict[str, Any] = {"runs": base.runs}
    for part in parts:
        services |= part.services()
    return services


def build_base(
    home: Home, environ: Mapping[str, str], live: config.Live, process: str, passed: Passed, *, is_shared: bool
) -> BaseParts:
    """Open the log and the database of a home."""
    settings = live.current
    redactor = log.Redactor(config.secrets(settings))
    log.start(process, home.logs, settings.system.level, redactor, is_service=sd_notify.is_service(environ))
    runtime = paths.runtime_folder(home, environ, make=True)
    store = Store.open(home.database, mmap_mb=settings.store.mmap_mb)
    events = Events()
    people = People(store, lambda: person_rules(live.current), events)
    uploads = UploadFiles(home.root / "sessions")
    runs = Runs(store, this_process().encode(), lambda: session_control.rules(live.current), events, people, uploads)
    return BaseParts(
        *(home, environ, runtime, live, redactor, store, Leases(store), people, uploads),
        *(runs, events, Hooks(events), passed, is_shared),
    )


def person_rules(settings: Config) -> PersonRules:
    """What the configuration says of people."""
    addresses = session_control.owners(settings.people)
    return PersonRules(settings.system.admin_users, user_name(os.getuid()), addresses, settings.sandbox.groups)
