"""Looks the home over and says what is wrong, in words, with the next step. Repairs only what is derived.

Works with or without a running core and starts nothing that stays. Each check is a function that
returns a finding; one that raises becomes a finding too.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from appliance.agent import plugin_files
from appliance.errors import BadInput, OwlError
from appliance.ingest import notes, prompt_documents
from appliance.models import catalogue
from appliance.policy import policy_file
from appliance.prompt.roles import Roles
from appliance.runtime import config, paths, trusted_files
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
from appliance.runtime.settings import Config
from appliance.sandbox.launcher import Plan, Sandbox
from appliance.secrets import plaintext_migration
from appliance.sessions.outbox import Outbox
from appliance.sessions.people import People
from appliance.skills import catalog
from appliance.store import disk_faults
from appliance.store.database import Store
from appliance.store.process_registry import Leases, ProcessRegistry
from appliance.upkeep import home_faults, home_setup
from appliance.upkeep.checks import database, machine, upkeep
from appliance.upkeep.checks.finding import Finding
from appliance.upkeep.checks.table_process import BRIEF_S, TableCheck
from appliance.upkeep.checks.unworkable import Known, find_unworkable
from appliance.work.tasks import TaskRows

LOG = logging.getLogger(__name__)
STATUS_S = 10.0
LAST = ("database", "log", "configuration", "queue", "channels", "backups")  # what waits for the process that reads the tables


class Doctor:
    """The checks of one home by their names, in the order in which they are told."""

    def __init__(
        self, home: Home, environ: Mapping[str, str], *, is_repairing: bool = False, tables: TableCheck | None = None
    ) -> None:
        """`tables` has been begun by a caller who would not wait for this module to be read."""
        self.home, self.environ = home, environ
        self._tables = tables or TableCheck(home, None if is_repairing else BRIEF_S)
        self.checks: dict[str, Callable[[], Finding]] = {
            "home": lambda: _home(home, is_repairing),
            "configuration": lambda: _configuration(home, environ, self),
            "database": lambda: database.check(home, self._tables, is_repairing=is_repairing),
            "log": lambda: database.check_log(home, is_repairing=is_repairing),
            "model": lambda: _model(home, self.settings, self.status),
            "prefix": lambda: upkeep.check_prefix(home, self.settings, is_repairing=is_repairing),
            "documents": lambda: _documents(home),
            "folder": lambda: _folder(home, environ),
            "runtime": lambda: _runtime(home, environ, is_answered=is_repairing or bool(self.status)),
            "queue": lambda: _queue(home, environ, self.store),
            "channels": lambda: upkeep.check_channels(self.settings, self.status, self._count_failed()),
            "disk": lambda: upkeep.check_disk(home, self.settings),
            "wear": lambda: machine.check_wear(home),
            "memory": machine.check_memory,
            "temperature": machine.check_temperature,
            "throttling": machine.check_throttling,
            "clock": machine.check_clock,
            "sandbox": lambda: _sandbox(home, environ, self.status),
            "units": lambda: machine.check_units(home),
            "vault": lambda: _vault(home, environ, self.status.get("broker", {}), self.vault),
            "plugins": lambda: _plugins(home, self.settings, self.status),
            "roles": lambda: _roles(home, environ),
            "updates": lambda: upkeep.check_updates(home, self.settings),
            "backups": lambda: upkeep.check_backups(home, self.settings, self._count_rows()),
        }

    def examine(self, names: Collection[str] = ()) -> list[Finding]:
        """Every finding, or those of the checks that are named."""
        if unknown := [name for name in names if name not in self.checks]:
            raise BadInput(f"no check {unknown[0]}", hint=f"there are: {', '.join(self.checks)}")
        wanted = [name for name in self.checks if not names or name in names]
        found: dict[str, Finding] = {}
        try:
            for name in sorted(wanted, key=lambda name: LAST.index(name) if name in LAST else -1):
                found[name] = self._run(name)
        finally:
            self._tables.close()
            if (store := vars(self).pop("store", None)) is not None:
                store.close()
        return [_refer(found[name], [found[earlier] for earlier in wanted[:at]]) for at, name in enumerate(wanted)]

    def _run(self, name: str) -> Finding:
        try:
            return self.checks[name]()
        except OwlError as error:
            told = disk_faults.explain_fault(error) or error
            return Finding(name, "problem", told.message, told.hint)
        except Exception as error:
            if fault := disk_faults.explain_fault(error):
                return Finding(name, "problem", fault.message, fault.hint)
            LOG.debug("check %s failed", name, exc_info=True)  # the finding says it; a traceback is for who asks for it
            return Finding(name, "problem", f"the check itself failed: {type(error).__name__}: {error}")

    @cached_property
    def settings(self) -> Config:
        """The configuration; a check that needs it says what is wrong with it."""
        return config.load(self.home, self.environ)

    @cached_property
    def status(self) -> dict[str, Any]:
        """The status of the running core, asked once."""
        return _asked(self.home, self.environ, "core.status")

    @cached_property
    def vault(self) -> dict[str, Any]:
        """What a running core's broker says of the vault. A core that only reads has no broker, and would wait for one."""
        is_running = self.status.get("broker", {}).get("state") == "running"
        return _asked(self.home, self.environ, "secret.list") if is_running else {}

    @cached_property
    def store(self) -> Store:
        """The database, opened once for the checks that come after its own, which may have repaired it; see `LAST`."""
        return Store.open(self.home.database)

    def list_secrets(self) -> list[str] | None:
        """The names of the secrets, None without a core that tells them."""
        return [secret["name"] for secret in self.vault["secrets"]] if "secrets" in self.vault else None

    def list_people(self) -> list[str] | None:
        """The names of the persons, None for a database that cannot be read."""
        try:
            return [person.name for person in People(self.store).list_people()]
        except OwlError:
            return None  # the check of the database says why

    def list_groups(self) -> list[str] | None:
        """The names of the groups, None for a database that cannot be read."""
        try:
            return list(People(self.store).list_groups())
        except OwlError:
            return None

    def _count_failed(self) -> int:
        return Outbox(self.store, "").counts().get("failed", 0)

    def _count_rows(self) -> int:
        """The total of the database's row counts."""
        return sum(self.store.facts().counts.values())


def examine(home: Home, environ: Mapping[str, str]) -> list[Finding]:
    """Every finding about a home."""
    return Doctor(home, environ).examine()


def _refer(one: Finding, earlier: Sequence[Finding]) -> Finding:
    """A finding; one that says what an earlier check has said, and knows no other step, names that check instead."""
    said = (one.message, one.hint)
    same = next((other.name for other in earlier if one.state == "problem" and (other.message, other.hint) == said), "")
    return replace(one, message=f"not checked: see {same}", hint="") if same else one


def _home(home: Home, is_repairing: bool) -> Finding:
    home.require()
    if closed := home_faults.closed(home):
        return Finding(
            "home",
            "problem",
            "; ".join(closed),
            f"what it is for does not work until: chmod -R u+rwX {home.root}; what another user owns needs sudo chown first",
        )
    missing = [name for name in paths.FOLDERS if not (home.root / name).is_dir()]
    if missing:
        hint = (
            f"what was in them: owlbox backup list, owlbox restore FILE; owlbox init --force --home {home.root} makes them, empty"
        )
        return Finding("home", "warning", f"missing folders: {', '.join(missing)}", hint)
    if is_repairing and (closed := home_setup.close(home)):
        return Finding("home", "ok", f"closed to others: {', '.join(closed)}")
    most = 0o007 if home.root == paths.SERVICE_HOME else 0o077  # of what others may; the appliance's group may enter
    for folder in (home.root, home.box):
        if (mode := folder.stat().st_mode & 0o777) & most:
            hint = f"owlbox doctor --repair, or chmod {'o=' if most == 0o007 else '0700'} {folder}"
            return Finding("home", "warning", f"{folder} is open to others (mode {mode:o})", hint)
    if fault := disk_faults.write_fault(home.root):
        return Finding("home", "problem", fault.message, fault.hint)
    return Finding("home", "ok", str(home.root))


def _configuration(home: Home, environ: Mapping[str, str], known: Known) -> Finding:
    settings = config.load(home, environ)
    if found := list(find_unworkable(home, settings, known)):
        return Finding("configuration", "problem", "; ".join(error.message for error in found), found[0].hint)
    policy_file.of(home, settings, environ)
    return Finding("configuration", "ok", str(home.config) if home.config.exists() else "all defaults")


def _model(home: Home, settings: Config, status: dict[str, Any]) -> Finding:
    if settings.models.script:
        return Finding("model", "warning", f"every model is replaced by the script {settings.models.script}", "unset models.script")
    if ended := status.get("broker", {}).get("last_end"):
        return Finding(
            "model", "warning", f"the model process {ended}", "too little memory? owlbox model list says what each needs"
        )
    here = [m for m in catalogue.listing(home) if m.is_installed]
    bad = [m for m in here if m.problem]
    if bad:
        return Finding("model", "problem", f"{bad[0].name}: {bad[0].problem}", f"owlbox model add {bad[0].name}")
    damaged = [(m, problem) for m in here if (problem := catalogue.damage(home, m))]
    if damaged:
        model, problem = damaged[0]
        return Finding("model", "problem", problem, f"owlbox model rm {model.name}, then owlbox model add {model.name}")
    if not any(m.kind == "chat" for m in here):
        what = "no model that can talk" if here else "no model"
        return Finding("model", "problem", f"{what} in {home.models}", catalogue.FIRST)
    known = catalogue.entries(home)
    said = (f"{m.name} ({m.size_bytes // 1_000_000} MB{'' if m.name in known else ', content unknown to us'})" for m in here)
    return Finding("model", "ok", ", ".join(said))


def _documents(home: Home) -> Finding:
    parts, problems = prompt_documents.documents(home.box)
    if why := trusted_files.problem(home.box / "HEARTBEAT.md", home=home.root):
        problems.append(f"HEARTBEAT.md: not taken: {why}")
    if problems:
        return Finding("documents", "problem", "; ".join(problems), f"fix it in {home.box}")
    return Finding("documents", "ok", f"in the prompt: {', '.join(p.name for p in parts) or 'none'}")


def _folder(home: Home, environ: Mapping[str, str]) -> Finding:
    """Reads every file of box/: what could not become an entry is worth a look, and nothing is broken."""
    problems = [*notes.check(home.box, environ), *catalog.find_problems(home.box)]
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        return Finding(
            "folder", "warning", f"not taken: {'; '.join(problems[:5])}{more}", f"fix or move them; they are in {home.box}"
        )
    return Finding("folder", "ok", "every file of box/ can be read")


def _runtime(home: Home, environ: Mapping[str, str], *, is_answered: bool) -> Finding:
    folder = paths.runtime_folder(home, environ, make=True)
    places_used = max(len(os.fsencode(str(path(folder)))) for path in (paths.core_socket, paths.broker_socket))
    if places_used > 107:
        return Finding(
            "runtime", "problem", f"socket path of {places_used} bytes: {folder}", "set XDG_RUNTIME_DIR to a shorter folder"
        )
    if not is_answered and (fault := paths.silent_core(home)):
        return Finding("runtime", "problem", fault.message, fault.hint)
    return Finding("runtime", "ok", str(folder))


def _queue(home: Home, environ: Mapping[str, str], store: Store) -> Finding:
    """Whether what waits has somebody to do it."""
    roster = ProcessRegistry(store, Leases(store), paths.runtime_folder(home, environ) / "workers")
    tasks = TaskRows(store)
    if gone := roster.gone(None):
        return Finding("queue", "warning", f"{len(gone)} workers died; what they held waits", "owlbox worker reap")
    if tasks.is_work() and not roster.running():
        return Finding("queue", "warning", "tasks wait and no worker runs", "owlbox worker start --persist")
    if waiting := tasks.counts()["waiting"]:
        return Finding("queue", "ok", f"{waiting} tasks wait for a person: owlbox task list --status waiting")
    return Finding("queue", "ok", f"{len(roster.running())} workers run")


def _sandbox(home: Home, environ: Mapping[str, str], told: dict[str, Any]) -> Finding:
    """Whether there can be sandboxes; a trial one is made and thrown away. What a running core has met with counts too."""
    health = Sandbox(Plan(unit=paths.tool_socket(home, environ))).health()
    if reason := str(health["reason"] or told.get("sandbox", {}).get("reason", "")):
        message, _, hint = reason.partition(": ")
        return Finding("sandbox", "problem", f"tools that touch files or run commands are unavailable: {message}", hint)
    uid = f"a user of its own ({health['uid']})" if health["runner"] == "unit" else f"own uid ({health['uid']})"
    landlock = f"Landlock {health['landlock']}" if health["has_landlock"] else "no Landlock in this kernel"
    kept = "" if health["runner"] == "unit" else ", limits kept by the kernel" if health["has_group"] else ", limits looked at"
    return Finding("sandbox", "ok", f"tool uid = {uid}, system calls filtered ({health['seccomp']}), {landlock}{kept}")


def _vault(home: Home, environ: Mapping[str, str], broker: dict[str, Any], told: dict[str, Any]) -> Finding:
    """How the vault is kept, as its broker says, else as its folder looks; and keys that stand in plain."""
    if plain := plaintext_migration.found(home, environ):
        keys = ", ".join(find.key for find in plain)
        return Finding("vault", "warning", f"in plain: {keys}", "the next start of the core moves them into the vault")
    if problem := broker.get("vault", {}).get("problem") or home_faults.emptied_vault(home):
        return Finding("vault", "problem", problem, "what needs a key fails; everything else works")
    if told.get("is_locked"):
        return Finding("vault", "warning", "locked: what needs a key cannot work", "owlbox secret unlock")
    for count, words, hint in (
        (told.get("expired", 0), "secrets have expired", "owlbox secret list, then set them again or purge them"),
        (told.get("expiring", 0), "secrets end within 7 days", "owlbox secret list"),
    ):
        if count:
            return Finding("vault", "warning", f"{count} {words}", hint)
    if told.get("key") == "file" or list(home.vault.glob("key-*")):
        hint = "owlbox secret rotate --to passphrase, or --to credential: docs/guides/secrets.md"
        return Finding("vault", "warning", "its key is beside it: whoever reads the disk can read the secrets", hint)
    return Finding("vault", "ok", f"{told['count']} secrets, key: {told['key']}" if told.get("count") else "no secrets")


def _plugins(home: Home, settings: Config, status: dict[str, Any]) -> Finding:
    """Whether what is enabled can be read; nothing of it is run here."""
    enabled = settings.plugins.enabled
    problems = plugin_files.check(home.box, enabled)
    if enabled and not problems:
        problems = [one for one in status.get("folder", {}).get("problems", ()) if "plugin " in one]
    if problems:
        return Finding("plugins", "warning", "; ".join(problems), "fix it, or remove it from [plugins] enabled")
    return Finding("plugins", "ok", ", ".join(enabled) or "none")


def _roles(home: Home, environ: Mapping[str, str]) -> Finding:
    """Whether the files of roles can be used."""
    settings = config.load(home, environ)
    known = Roles(home.box, lambda: settings)
    if problems := known.problems:
        return Finding("roles", "warning", "; ".join(problems), "fix the file, docs/guides/roles.md explains every key")
    return Finding("roles", "ok", ", ".join(one.name for one in known.list_roles()))


def _asked(home: Home, environ: Mapping[str, str], method: str) -> dict[str, Any]:
    """What a running core says; nothing without one, for nothing is started here."""
    try:
        with Client(str(paths.find_core(home, environ)), name="doctor") as client:
            return dict(client.call(method, deadline_s=STATUS_S))
    except (OwlError, OSError):
        return {}
