"""Every part of a core, built once for one home and handed down; the same for a service, a worker and one command.

Nothing here decides anything about a turn, opens a socket or waits. `service.daemon` serves it, `console.connect` calls it in a
command's own process, `workers` works through the queue with it.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from appliance import __version__
from appliance.agent.plugins import Plugins, PluginTargets
from appliance.channels.interview import Interview
from appliance.channels.rpc.approvals import ApprovalMethods
from appliance.channels.rpc.command_output import ToolMethods
from appliance.channels.rpc.connectors import WebhookMethods
from appliance.channels.rpc.entries import EntryMethods, WorkspaceControl
from appliance.channels.rpc.run_state import RunStates
from appliance.channels.rpc.sessions import SessionMethods
from appliance.channels.rpc.sql import SqlMethods
from appliance.channels.rpc.threads import ThreadMethods
from appliance.clock import now_ms, use_zone
from appliance.errors import Busy, ConfigError, DeadlineExceeded, Lost, OwlError, Refused
from appliance.http.site import page_address
from appliance.ingest.document_methods import PromptDocuments
from appliance.matrix.device_book import DeviceBook
from appliance.models.raw_chat import RawChat
from appliance.prompt.inspection import PacketInspector
from appliance.prompt.static_size import Sizes
from appliance.records import Event, to_plain
from appliance.runtime import config, config_edit, hook_points, log
from appliance.runtime.crash_points import Passed, nobody
from appliance.runtime.methods import MethodTable, method
from appliance.runtime.paths import Home
from appliance.runtime.rpc.call_log import CallLog
from appliance.runtime.rpc_client import STARTING_S
from appliance.runtime.settings import ConfigReloaded
from appliance.runtime.shutdown import Shutdown
from appliance.service.callers import Callers
from appliance.service.parts.agent import build_agent
from appliance.service.parts.base import build_base, merge_services
from appliance.service.parts.box_folder import BoxFolder
from appliance.service.parts.channels import (
    build_connections,
    build_inbox,
    build_scheduled_messages,
    build_session_control,
    build_uploads,
)
from appliance.service.parts.commands import CommandParts
from appliance.service.parts.heartbeat import HeartbeatParts
from appliance.service.parts.knowledge import build_knowledge, build_memory
from appliance.service.parts.models import build_models
from appliance.service.parts.policy import build_policy
from appliance.service.parts.prompt import build_prompt
from appliance.service.parts.queue import QueueParts
from appliance.service.parts.roles import RoleService, build_roles
from appliance.service.parts.schedules import ScheduleParts
from appliance.service.parts.taint import build_taint
from appliance.service.parts.tools import build_toolbox, build_tools
from appliance.service.parts.web import build_mcp_servers, build_web
from appliance.service.parts.workspace import build_workspace
from appliance.service.skill_parts import SkillRescan
from appliance.service.undo import Undo
from appliance.service.web_process import WebProcess, build_web_process
from appliance.store import visibility
from appliance.upkeep import home_faults
from appliance.upkeep.backups import BackupMethods
from appliance.upkeep.checks.unworkable import find_unworkable, require_workable
from appliance.work.briefing import Briefing
from appliance.work.tick import TickParts
from appliance.work.work_events import WorkStarting
from appliance.work.worker import WorkerLoop, WorkerOptions
from appliance.work.worker_log import Phases

LOG = logging.getLogger(__name__)


class Pending(Struct, frozen=True):
    """Keys by what they wait for: a renewed broker, or the next start."""

    broker: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    def plain(self) -> dict[str, str]:
        """For programs."""
        return {"broker": ", ".join(self.broker), "restart": ", ".join(self.restart)}

    def text(self) -> str:
        """In one line, "" for nothing."""
        waits = ((self.broker, "when the broker has answered what it is asked now"), (self.restart, "after a restart"))
        return "; ".join(f"{', '.join(keys)} {when}" for keys, when in waits if keys)


class Reloaded(Struct, frozen=True):
    """The result of a reload: the keys that took effect, and those that wait for a restart."""

    changed: str
    pending: Pending


class Core:
    """Every part of a core, built for one home."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str],
        *,
        process: str = "core",
        is_shared: bool = True,
        passed: Passed = nobody,
        live: config.Live | None = None,
    ) -> None:
        """`is_shared` is for the core that others talk to; `process` "worker" borrows that one's broker."""
        self.home = home.require()
        self._reloading, self.started_ms = threading.Lock(), now_ms()
        self.live = live or config.Live(home, environ)
        base = self.base = build_base(self.home, environ, self.live, process, passed, is_shared=is_shared)
        self.events, self.hooks, self.redactor, self.runtime = base.events, base.hooks, base.redactor, base.runtime
        self.store, self.leases, self.runs, self.calls = base.store, base.leases, base.runs, CallLog(base.store)
        self.policy = build_policy(base)
        models = self.model_parts = build_models(base, process)
        self.broker, self.models, self.local, self.vault = models.broker, models.models, models.local, models.vault
        known = self.knowledge = build_knowledge(base, self.policy, models)
        self.entries, self.views, self.history, self.skills = known.entries, known.views, known.history, known.skills
        self.skill_rescan = SkillRescan(known.skills, base.settings)
        self.indexer, self.memory = known.indexer, build_memory(base, models, known, self.runs.people.contexts)
        self.servers = build_mcp_servers(base, self.policy, models)
        web = build_web(base, self.policy, models, known, self.servers)
        self.web, self.intake = web.web, web.intake
        workspace, queue = build_workspace(base, known, web.intake), QueueParts(base, self.broker)
        self.project, self.verbs = workspace.project, workspace.verbs
        self.queue, self.tasks, self.outbox = queue, queue.tasks, queue.outbox
        self.commands = CommandParts(base, self.policy, models, known, workspace, self.queue)
        roles = build_roles(base)
        self.roles, self.jobs = roles.roles, roles.jobs
        self.taint = build_taint(base, self.policy, known, self.verbs, self.queue, self.commands)
        prompt = build_prompt(base, models, known)
        self.packets, self.blocks, self.copies, self.compactor = prompt.packets, prompt.blocks, prompt.copies, prompt.compactor
        self.schedules = ScheduleParts(base, self.queue, self.models, self.packets, self.taint.origins)
        services = merge_services(base, known, self.servers, web, workspace, queue, self.commands, roles, prompt, self.schedules)
        self.toolbox = build_toolbox(base, self.policy, self.taint, self.servers.hub, services)
        tools = build_tools(base, self.policy, known, workspace, self.commands, self.taint, self.toolbox)
        self.released, self.approvals, self.recorder = tools.released, tools.approvals, tools.recorder
        answering = build_agent(base, models, known, prompt, tools, self.queue, self.roles, web.lookups)
        self.agent, self.loops, self.titles = answering.agent, answering.loops, answering.titles
        self.events.subscribe(WorkStarting, self._refresh)
        self.plugins = Plugins(PluginTargets(home.box, base.hooks, known.schemes, self.toolbox, services), base.settings().plugins)
        self.role_service = RoleService(base, roles, self.outbox, self.loops, self.toolbox)
        inbox = self.inbox = build_inbox(base, known, self.packets, queue, tools, self.loops)
        self.connections, self.push = build_connections(base, known, web, inbox, queue, self.vault, self.commands.bench)
        self.scheduled_messages = build_scheduled_messages(base, self.inbox, self.queue, self.schedules, self.jobs)
        self.heartbeat = HeartbeatParts(base, models, self.queue, self.schedules, self.jobs)
        self.box_folder = BoxFolder(base, known, self.queue, self.heartbeat, self.plugins, self.memory.document)
        self.control = build_session_control(base, models, known, self.inbox, self.memory.review)
        seen = self.runs, self.packets, self.copies, self.compactor, self.models.plan, self.toolbox.specs, self.roles.role_of
        self.sight = PacketInspector(*seen)
        self.offered = self._list_methods()
        self.table = MethodTable(*self.offered, entitle=self.callers.entitled)
        self.shutdown = self._order_shutdown()

    @property
    def callers(self) -> Callers:
        """Says which calls a caller may make, and restricts what they are shown."""
        return Callers(self.runs, self.base.people, self.policy.ledger, lambda: self.live.current.system.admin_users)

    def _list_methods(self) -> tuple[object, ...]:
        """The objects whose marked functions a socket offers, and a command without a core calls."""
        models, queue, made = self.model_parts, self.queue, self.control
        uploads = build_uploads(self.base, models, self.intake)
        workspace = WorkspaceControl(self.project, self.verbs, self.sight.require_room)
        sizes = Sizes(self.models, self.packets, self.roles, self.role_service.menu, lambda: self.live.current.models.pool)
        states, raw_chat = RunStates(self.runs, self.views), RawChat(self.models, self.local.names)
        undo = Undo(self.store, self.entries, self.runs, (self.project, self.knowledge.folder), self.events)
        return (
            *(
                self,
                self.calls,
                models.watching,
                BackupMethods(self.home, self.base.settings),
                self.runs,
                self.base.people,
                self.policy.logins,
                self.policy.ssh_keys,
                made,
                made.branches,
                made.transcripts,
                undo,
                self.models,
                raw_chat,
                models.accounts,
                sizes,
                self.sight,
            ),
            *(
                self.skills,
                self.knowledge.skill_service,
                PromptDocuments(self.home.box),
                Interview(self.home.box, self.set_timezone),
                self.intake,
                self.web.skills,
                self.commands.packages,
                self.vault,
                self.memory.service,
            ),
            *(
                self.policy.ledger,
                self.policy.methods,
                self.taint.grants,
                self.local,
                self.commands.methods,
                self.servers,
            ),
            *(self.servers.hub, self.role_service, self.jobs, queue, queue.crew, self.outbox, queue.live),
            *(
                uploads,
                ThreadMethods(self.inbox, self.runs, uploads, made.require_model),
                SessionMethods(made, states),
                SqlMethods(self.store),
                ToolMethods(self.toolbox),
            ),
            *(self.heartbeat, self.connections, WebhookMethods(self.connections), self.push, DeviceBook(self.store)),
            EntryMethods(self.entries, self.runs, self.verbs, workspace, self.approvals, made, self.policy.ledger),
            ApprovalMethods(self.inbox, self.runs, self.approvals, self.released),
        )

    def _order_shutdown(self) -> Shutdown:
        """Register the parts in the order in which they are stopped."""
        shutdown = Shutdown()
        shutdown.component("inbox", lambda: self.inbox.close(shutdown.reason))
        steps: tuple[tuple[str, Callable[[], None]], ...] = (
            ("watching", self.model_parts.watching.stop),
            ("heartbeat", self.heartbeat.close),
            ("scheduled messages", self.scheduled_messages.close),
            ("schedules", self.schedules.close),
            ("jobs", self.role_service.close),
            ("commands", self.commands.close),
            ("servers", self.servers.close),
            ("released calls", self.released.close),
            ("log of calls", self.calls.flush),
            ("courier", self.queue.close),
            ("compactor", self.compactor.close),
            ("titles", self.titles.close),
            ("toolbox", self.toolbox.close),
            ("policy", self.policy.gate.stop),
            ("indexer", self.indexer.stop),
            ("broker", self.broker.stop),
            ("sessions", self.runs.stop_sessions),
        )
        for name, close in steps:
            shutdown.component(name, close)
        return shutdown

    def recover(self) -> None:
        """Mend what a killed process left behind, read the skills; writes nothing when there is nothing to mend."""
        use_zone(self.live.current.system.timezone)
        if self.store.is_read_only:
            return
        self.hooks.tell(hook_points.PROJECT_STARTING, self.home)
        self.queue.crew.recover()
        for lease in self.leases.mark_dead():
            LOG.warning("%s %d ended without saying so: %s", lease.kind, lease.process.pid, lease.reason)
        for loop in self.runs.recover(_ignore):
            LOG.warning("run %s was interrupted and is marked so", loop.run)
            self.recorder.mend(loop.run)
        self.inbox.release_dead()
        self.commands.recover(is_shared=self.base.is_shared)
        self.approvals.recover()
        self.role_service.recover()
        try:
            self.skills.sync()
        except OwlError as error:
            LOG.warning("skills could not be read: %s", error)  # a command that needs none still works
        self.hooks.tell(hook_points.PROJECT_STARTED, self.home)

    def close(self, reason: str) -> list[str]:
        """End everything in order; returns the steps that did not end well."""
        if self.shutdown.state == "running":
            self.shutdown.initiate(reason)
        bad = self.shutdown.run()
        self.policy.ledger.close()
        self.store.close()
        log.stop()
        return bad

    # -- the queue ----------------------------------------------------------------------------------

    def shift(self, post: WorkerOptions, phases: Phases, *, is_scheduling: bool = True) -> WorkerLoop:
        """A worker made of these parts; run it from the main thread of a process of its own."""
        briefing = Briefing(self.tasks, self.runs, self.entries)
        parts = TickParts(
            *(self.store, self.tasks, self.runs, self.loops, self.models, self.packets, briefing),
            *(self.queue.roster, self.local.tiers, self.roles),
        )
        return self.queue.build_shift(post, phases, parts, self.schedules.runner if is_scheduling else None)

    def _refresh(self, starting: WorkStarting) -> None:
        """Before a piece of work: take a configuration into use that has changed meanwhile; a bad one leaves the old one."""
        if self.live.is_outdated():
            try:
                self.reload()
            except OwlError as error:
                LOG.error("the configuration from before is used: %s", error)

    # -- methods ------------------------------------------------------------------------------------

    @cached_property
    def web_page(self) -> WebProcess | None:
        """The server of the web page as a child of this process, which `daemon` starts; None when there is none."""
        return build_web_process(self.home, self.base.environ, is_enabled=self.live.current.channels.web.enabled)

    @method("core.status", access="own")
    def status(self) -> dict[str, Any]:
        """What runs, what it holds, what it is doing; for a person with standard rights without what is the installation's."""
        settings = self.live.current
        try:
            broker: dict[str, Any] = {"state": "not running"}
            if self.broker.is_running():
                broker = {"state": "running", **self.models.status()}
        except (Lost, Refused, DeadlineExceeded) as error:
            is_young = isinstance(error, Lost) and now_ms() - self.started_ms < STARTING_S * 1000
            broker = {"state": "starting" if is_young else f"not answering: {error.message}"}
        latest = [run for run in self.runs.list_runs(limit=20) if run.kind != "child"]
        known = {
            "version": __version__,
            "pid": os.getpid(),
            "state": self.shutdown.state,
            "uptime_s": (now_ms() - self.started_ms) // 1000,
            "sessions": self.runs.sessions()[:10],
            "last_thread": to_plain(latest[0]) if latest else None,
            "local": self.local.status(),
            "default_pool": settings.models.pool,
            "screen": {"owl": settings.screen.owl, "theme": settings.screen.theme},
        }
        processes = self.leases.listing(10)
        if visibility.asking() is not None:
            names: dict[str, list[str]] = {name: [] for name in settings.pools}
            return {**known, "pools": names, "processes": sum(lease.ended_ms is None for lease in processes)}
        web, problem = settings.channels.web, self.web_page.problem if self.web_page is not None else ""
        return {
            **known,
            "home": str(self.home.root),
            "owner": self.base.people.owner,
            "broker": {**broker, "restarts": self.broker.restarts, "last_end": self.broker.last_end},
            "pending": self.pending().plain(),
            "pools": {name: list(routes) for name, routes in settings.pools.items()},
            "channels": {**self.connections.channel_states(), "web": web.enabled and (problem or True)},
            "page": page_address(web) if web.enabled else "",
            **self.commands.status(),
            "entries": self.entries.count(),
            "search": to_plain(self.indexer.status()),
            "faults": [
                *home_faults.listing(self.home, self.store),
                *home_faults.next_start(self.home, self.base.environ),
                *map(str, find_unworkable(self.home, settings, keys=("system.timezone", "heartbeat.timezone"))),
            ],
            "folder": self.box_folder.status(),
            "plugins": self.plugins.plain(),
            "answering": self.inbox.busy(),
            "queue": self.queue.counts(),
            "roles": {"problems": self.role_service.problems, "jobs": self.jobs.counts()},
            "processes": [lease.plain() for lease in processes],
        }

    @method("core.reload")
    def reload_for_caller(self) -> dict[str, Any]:
        """Read the configuration again; a bad one changes nothing. `changed` is in force, `broker` and `restart` name what waits.

        Keys under `broker` hold as soon as the broker has answered what it is being asked, those under `restart` after one.
        """
        done = self.reload()
        return {"changed": done.changed, **done.pending.plain()}

    def reload(self) -> Reloaded:
        """Take a changed configuration and policy into use; ConfigError keeps the old ones. What was not taken is in `pending`."""
        with self._reloading:  # one at a time: one that fails would else bring back what another has replaced
            old = self.live.current
            self.vault.settle(self.home, self.base.environ)  # what it read stays in our memory until we are started again
            try:
                keys, settings = self.live.reload(), self.live.current
                require_workable(self.home, settings, keys, self)
                self.web.reload(settings.tools)
                if self.policy.gate.reload() == "skipped":
                    raise Busy("the policy is being read by somebody else", hint="reload once more")
            except OwlError as error:
                self.live.restore(old)
                self.web.reload(old.tools)  # else hosts of the new one could be reached
                LOG.error("configuration not reloaded: %s", error)
                if not isinstance(error, ConfigError):
                    raise
                raise ConfigError(f"configuration not reloaded, the old one stays: {error}") from None
            self.redactor.add(*config.secrets(settings))
            logging.getLogger(log.ROOT).setLevel(log.LEVELS[settings.system.level])
            use_zone(settings.system.timezone)
            self.events.publish(ConfigReloaded(settings, keys))
            pending = self.pending()
            waiting = [*pending.broker, *pending.restart]
            now = ", ".join(key for key in keys if key not in waiting)
            LOG.info("configuration reloaded: %s; pending: %s", now or "nothing changed", pending.text() or "nothing")
            self.skills.sync()  # folders of skills outside box/ are not watched
            self.heartbeat.sync()
            self.indexer.retry()
            return Reloaded(now, pending)

    def list_secrets(self) -> list[str] | None:
        """The names of the secrets, for a look at the configuration."""
        try:
            return [secret["name"] for secret in self.vault.listing()["secrets"]]
        except OwlError:
            return None  # a vault that nobody can read has another fault

    def list_people(self) -> list[str]:
        """The names of the persons."""
        return [person.name for person in self.base.people.list_people()]

    def list_groups(self) -> list[str]:
        """The names of the groups."""
        return list(self.base.people.list_groups())

    def set_timezone(self, name: str) -> None:
        """Write `system.timezone` into the configuration and put it in force; an error leaves the old one."""
        if config_edit.set_text(self.home, self.base.environ, "system", "timezone", name):
            self.reload()

    def pending(self) -> Pending:
        """The keys that were changed and are not in force, and what they wait for."""
        return Pending(self.model_parts.renewal.waiting(), self.live.waiting())

    @method("core.shutdown")
    def shut_down(self, reason: str = "asked to") -> dict[str, Any]:
        """Stop the core in good order."""
        self.shutdown.initiate(reason)
        os.kill(os.getpid(), signal.SIGTERM)  # `serve` ends it
        return {"state": "initiated"}


def _ignore(event: Event) -> None:
    """Nobody listens yet when the core recovers."""
