"""Every part of a core, built once for one home and handed down; the same for a service, a worker and one command.

Nothing here decides anything about a turn, opens a socket or waits. `service.daemon` serves it, `cli.connect` calls it in a
command's own process, `workers` works through the queue with it.
"""

import logging
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from appliance import __version__, tools
from appliance.agent import titles
from appliance.agent.agent import Agent, Limits
from appliance.agent.approvals import ACCEPTED, Approvals
from appliance.agent.dispatch import Dispatch, RunLog
from appliance.agent.loop import Loops
from appliance.agent.loop_events import CallsAbandoned, LoopStored, MessageAccepted, TaskDecided, TaskReady, TurnStarting
from appliance.agent.plugins import Ground as Adding
from appliance.agent.plugins import Plugins
from appliance.agent.released_calls import ReleasedCalls
from appliance.agent.result_pages import Overflow
from appliance.agent.taint_gate import HeldCalls
from appliance.agent.titles import Titles
from appliance.agent.toolbox import Toolbox
from appliance.channels import session_control
from appliance.channels.inbox import Inbox
from appliance.channels.rpc.approvals import ApprovalMethods
from appliance.channels.rpc.entries import EntryMethods
from appliance.channels.rpc.sessions import SessionMethods
from appliance.channels.rpc.sql import SqlMethods
from appliance.channels.rpc.threads import ThreadMethods
from appliance.channels.rpc.tools import ToolMethods
from appliance.clock import now_ms, this_process
from appliance.errors import Busy, ConfigError, DeadlineExceeded, Lost, OwlError, Refused
from appliance.ingest import notes
from appliance.ingest.notes import PromptDocuments
from appliance.ingest.own_documents import Documents
from appliance.ingest.receiver import Intake
from appliance.ingest.sources import Sources
from appliance.ingest.watcher import Watch, walk
from appliance.ingest.workspace_sync import Project
from appliance.knowledge import vss_index
from appliance.knowledge.drives import Drives
from appliance.knowledge.entries import Entries
from appliance.knowledge.grep import Texts
from appliance.knowledge.index import Passages
from appliance.knowledge.indexer import Indexer, Options, answering, embedding
from appliance.knowledge.known_names import Familiar
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.search import Search
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor, Views
from appliance.mcp.page_loader import Loading
from appliance.models.client import Models
from appliance.models.usage import Accounts
from appliance.prompt.budget import Budget, Rows
from appliance.prompt.compaction import Compactor
from appliance.prompt.entry_blocks import Blocks
from appliance.prompt.inspection import Sight
from appliance.prompt.packet import More, Packets
from appliance.prompt.run_log import Chronicle
from appliance.prompt.sent_copies import Copies
from appliance.prompt.static_size import Sizes
from appliance.records import Ask, Event, Inbound, Part, Route, to_plain
from appliance.runtime import config, hook_points, log, paths, sd_notify
from appliance.runtime.crash_points import Passed, nobody
from appliance.runtime.events import Events
from appliance.runtime.hooks import Hooks
from appliance.runtime.methods import method
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
from appliance.runtime.shutdown import Shutdown
from appliance.secrets.vault_client import Strongbox
from appliance.service import home_faults, policy_parts, skill_parts, small_models
from appliance.service.agent_limits import limits
from appliance.service.broker_lending import Lender
from appliance.service.broker_process import Broker, Given, Keeper
from appliance.service.broker_renewal import Renewal
from appliance.service.command_parts import Floor, Workshop
from appliance.service.heartbeat_parts import Unasked
from appliance.service.local_models import LocalModels
from appliance.service.mcp_guests import Guests
from appliance.service.mcp_parts import Harbor
from appliance.service.pending_keys import Pending, Reloaded
from appliance.service.queue_parts import Ground, Office
from appliance.service.role_parts import Stage as Scenery
from appliance.service.role_parts import Troupe
from appliance.service.schedule_parts import Around, Hours
from appliance.service.taint_parts import TaintParts
from appliance.service.undo import Undo
from appliance.sessions.events import SPOKEN
from appliance.sessions.history import History, Recall
from appliance.sessions.outbox import Patience
from appliance.sessions.runs import Runs
from appliance.store import visibility
from appliance.store.database import Store
from appliance.store.process_registry import Leases
from appliance.web.web_tools import Given as Outside
from appliance.web.web_tools import Web
from appliance.work.briefing import Briefing
from appliance.work.tick import Parts
from appliance.work.worker import Post, Shift
from appliance.work.worker_log import Phases

LOG = logging.getLogger(__name__)
LOGGED = 400  # newest events of a run that its log may be made of
ELSEWHERE = 6  # messages from other doors that are shown with the next one at this door


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
        broker: Given | None = None,
    ) -> None:
        """`is_shared` is for the core that others talk to; `process` "worker" borrows that one's broker, others use `broker`."""
        self.home = home.require()
        self._reloading = threading.Lock()
        self.live = live or config.Live(home, environ)
        self.started_ms = now_ms()
        self.events = Events()
        settings = self.live.current
        self.redactor = log.Redactor(config.secrets(settings))
        log.start(process, home.logs, settings.system.level, self.redactor, is_service=sd_notify.is_service(environ))
        self.runtime = paths.runtime_folder(home, environ, make=True)
        self.store = Store.open(home.database, busy_delays_ms=settings.store.busy_delays_ms, mmap_mb=settings.store.mmap_mb)
        current, clean = (lambda: self.live.current), self.redactor.clean_all
        self.warden = policy_parts.Warden(home, environ, current, self.store, clean, closed=[self.runtime])
        me = this_process().encode()
        self.leases = Leases(self.store)
        self.runs = Runs(self.store, me, lambda: session_control.rules(self.live.current.sessions))
        self.passages = Passages(self.store, lambda: self.indexer.wake())
        self.entries = Entries(self.store, self.passages.index)
        second = vss_index.Vss(found) if is_shared and (found := vss_index.installed()) else None
        known = Familiar(self.store).names
        self.finder = Search(self.store, self.passages, known, embed=lambda text: self.indexer.brief(text), beside=second)
        self.skills = skill_parts.build_skills(home, settings.skills, self.store, self.entries, environ)
        self.folder = notes.Folder(home.box, self.entries, self.skills.is_skill)
        self.watch = Watch(home.box, self.folder.known, self._take, beside=[home.drop] if is_shared else [])
        self._environ, self._is_shared = environ, is_shared
        self.broker: Keeper = broker or self._keeper(is_shared, is_worker=process == "worker")
        accounts = Accounts(self.store)
        self.models = Models(
            lambda: str(self.broker.socket),
            token=lambda: self.broker.token,
            revive=self.broker.revive,
            wait_s=settings.llm.broker_wait_s,
            silence_s=settings.orchestrator.health_interval_ms / 1000,
            account=accounts.add,
            only=broker.route if broker is not None else "",
        )
        self.local = LocalModels(home, current, self.models, self.broker)
        self.strongbox = Strongbox(self.models.call, self.redactor)
        self.models.is_local_only = lambda: self.live.current.models.local_only
        patient = Models(lambda: str(self.broker.socket), token=lambda: self.broker.token, revive=lambda reason: "", wait_s=0)
        self.renewal = Renewal(self.broker, patient, self.models.is_local_only)
        self.models.met, self.models.ended = self._met, self.broker.ended
        self.indexer = Indexer(
            self.passages,
            self.entries,
            embedding(self.models, patient, lambda: self.indexer.is_running),
            answering(self.models, lambda: "small"),
            Options(settings.context.chunker, settings.context.describe),
            second,
        )
        services: dict[str, Any] = {"entries": self.entries, "finder": self.finder, "runs": self.runs}
        self.history = History(self.store, session_control.owners(settings.people))
        services |= {"passages": self.passages, "indexer": self.indexer, "history": self.history}
        services["documents"] = Documents(home.box, self.runs.people.contexts, self.folder)
        self.hooks = Hooks()
        services["overflow"] = Overflow(self.store, self.entries)
        kinds = Schemes()
        drives = Drives(self.store, self.entries, kinds)
        services |= {"drives": drives, "texts": Texts(self.store, kinds)}
        sources = Sources(self.store, self.entries, drives)
        self.views = Views(self.store)
        outside = Outside(self.store, self.entries, self.views, environ, self.warden.ledger.note, self.strongbox.get)
        self.web = Web(outside, settings.tools)
        services |= self.web.services()
        self.loading = Loading(lambda: self.servers.hub, self.models, self.web.page, lambda route: self.local.is_able(route))
        load = self.loading.page
        intake = services["intake"] = Intake(sources, home, environ, fetch=load, load=load)
        reading = embedding(self.models, patient, lambda: False)
        ashore = home, environ, self.runtime, current, self.store
        self.servers = Harbor(*ashore, self.strongbox, reading, self.warden.ledger.note)
        services["mcp"] = self.servers.hub
        self.verbs = services["verbs"] = Verbs(
            *(self.store, self.entries, self.views, kinds),  # the workspace is made after the verbs that ask it
            files=lambda: self.project,
        )
        workspace = Path(settings.sandbox.workspace).expanduser() if settings.sandbox.workspace else None
        self.project = Project(
            *(workspace, self.store, sources, self.verbs, intake.gather),
            closed=[home.root],
            check_room=lambda actor, tokens: self.sight.require_room(actor.run, tokens),
        )
        ground = Ground(home, environ, self.runtime, self.store, self.leases, self.runs)
        patience = Patience(**asdict(settings.outbox))
        self.office = Office(ground, lambda: self.live.current.workers, patience, self.broker, passed, self._woke)
        self.tasks, self.outbox = self.office.tasks, self.office.outbox
        floor = Floor(
            home, environ, self.runtime, current, self.store, self.runs, self.entries, self.views, self.verbs, self.warden
        )
        ties = self.hooks, self.outbox, self.office.notices, self.skills.scripts
        self.workshop = Workshop(floor, *ties, self.events, clean=self.redactor.clean)
        services |= {"tasks": self.tasks, "crew": self.office.crew, **self.workshop.services()}
        self.troupe = Troupe(Scenery(home.box, current, self.store, self.runs, self.outbox, self.hooks, is_lasting=is_shared))
        self.roles, self.jobs = self.troupe.roles, self.troupe.jobs
        self.hours = Hours(ground, current)
        services |= {**self.troupe.services(), **self.hours.services()}
        held_calls = HeldCalls(self.runs, self.verbs, self.warden.ledger, self.outbox, self.workshop.executions)
        self.taint = TaintParts(self.store, self.runs, self.skills, held_calls, self.warden.ledger, self.hooks)
        self.toolbox = Toolbox(
            tools.load(),
            services,
            rules=self.warden.rules,
            guard=self.taint.checkpoint,
            runs=self.runs,
            store=self.store,
            threads=settings.tools.parallel,
        )
        self.warden.gate.tell(self.toolbox.use)
        self.servers.show(self.toolbox)
        self.blocks = Blocks(self.store, self.entries, kinds, settings.budget.token_divisor, self.hooks)
        beside = More(self.hooks, self.blocks, Chronicle(self.store, self._branch), lambda about: notes.contextual(home.box, about))
        self.packets = Packets(
            self._documents,
            self.finder,
            self.skills,
            override=settings.prompt.system_prompt_override,
            ceiling=settings.budget.ceiling,
            divisor=settings.budget.token_divisor,
            more=beside,
        )
        self.packets.strategy, self.packets.owners = settings.budget.pruning, self.history.owners
        self.copies = Copies(self.store, settings.runs.copies)
        self.compactor = Compactor(self.runs, self.models, is_automatic=lambda: self.live.current.budget.compact)
        rows = Rows(self.views, self.entries, self.copies)
        self.budget = Budget(self.packets, rows, count=self._count, full=self.compactor.start)
        self.released = ReleasedCalls(self.runs, self.entries, self.views, self.taint.grants, self.toolbox, self.events)
        self.hooks.add(ACCEPTED, self.released.accepted)
        background = self.released, self.workshop.executions
        self.approvals = Approvals(self.store, self.runs, self.verbs, self.hooks, self.events, self.warden.rules, background)
        self.events.subscribe(TaskDecided, self._task_decided)
        self.events.subscribe(TaskReady, lambda ready: self.office.changed())
        self.recorder = RunLog(self.store, self.runs, self.verbs)
        approve, wary = self.approvals.accept_now, self.taint.is_wary
        self.dispatch = Dispatch(self.toolbox, hooks=self.hooks, recorder=self.recorder, approve=approve, is_wary=wary)
        recall = Recall(self.runs, self.runs.question)
        guide = small_models.guide(home.root, self.finder, self.entries, self.models, lambda: self.live.current.system.timezone)
        core = self.models, self.toolbox, self.packets, recall, self._limits(), self.dispatch
        self.agent = Agent(*core, budget=self.budget, guide=guide)
        self.titles = Titles(self.runs, self.models, lambda: self.live.current.runs.titles, self._is_able)
        self.loops = Loops(
            self.store,
            self.runs,
            self.agent,
            status=self.office.door,
            events=self.events,
            roles=self.roles,
            passed=passed,
        )
        self.events.subscribe(TurnStarting, self._before_turn)
        self.events.subscribe(LoopStored, self._ended)
        self.events.subscribe(MessageAccepted, self.taint.note_message)
        self.events.subscribe(CallsAbandoned, lambda abandoned: self.recorder.mend(abandoned.run))
        self.plugins = Plugins(Adding(home.box, self.hooks, kinds, self.toolbox, services), settings.plugins)
        self.plugins.watch(self.entries, self.views, self.runs)
        self.troupe.tie(self.loops, self.toolbox)
        self.inbox = Inbox(
            self.store,
            self.runs,
            self.loops,
            relevant=self._relevant,
            outbox=self.outbox,
            approvals=self.approvals,
            passed=passed,
        )
        queue = self.outbox, self.tasks, self.inbox, self.troupe.jobs, self.models, self.packets.relevant
        around = Around(current, *queue, self.taint.origins.carried, self.office.courier, self.redactor)
        self.hours.tie(around, self.office)
        is_able = lambda: self._is_able(self.models.plan(self.live.current.models.pool)[0])  # noqa: E731
        self.unasked = Unasked(ground, current, self.hours, self.office, self.jobs, is_able, is_lasting=is_shared)
        self.shutdown = Shutdown(settings.system.shutdown_s, settings.system.hook_s)
        sizes = Sizes(self.models, self.packets, self.roles, self.troupe.menu, lambda: self.live.current.models.pool)
        made = session_control.build(
            self.store, self.runs, self.inbox, self.views, self.models.plan, history=self.history, is_served=is_shared
        )
        made.forget = self.workshop.bench.forget
        self.control = made
        undo = Undo(self.store, self.entries, self.runs, lambda: (self.project, self.folder))
        undo.changed = self.hours.timetable.changed
        seen = self.runs, self.packets, self.copies, self.compactor, self.models.plan, self.toolbox.specs, self.roles.of
        self.sight = Sight(*seen)
        self.shutdown.component("inbox", lambda: self.inbox.close(self.shutdown.reason))
        self.shutdown.component("unasked", self.unasked.close)
        self.shutdown.component("hours", self.hours.close)
        self.shutdown.component("jobs", self.troupe.close)
        self.shutdown.component("commands", self.workshop.close)
        self.shutdown.component("servers", self.servers.close)
        self.shutdown.component("released calls", self.released.close)
        self.shutdown.component("courier", self.office.close)
        self.shutdown.component("compactor", self.compactor.close)
        self.shutdown.component("titles", self.titles.close)
        guests = Guests(self.store, services, self.warden.rules, self.warden.ledger)
        self.shutdown.component("guests", guests.close)
        self.shutdown.component("toolbox", self.toolbox.close)
        self.shutdown.component("policy", self.warden.gate.stop)
        self.shutdown.component("indexer", self.indexer.stop)
        self.shutdown.component("broker", self.broker.stop)
        self.shutdown.component("sessions", self.runs.stop_sessions)
        # The objects whose marked functions a socket offers, and a command without a core calls.
        self.offered: tuple[object, ...] = (
            *(self, self.runs, made, made.branches, made.transcripts, undo, self.models, accounts, sizes, self.sight),
            *(self.skills, PromptDocuments(home.box), intake, self.strongbox, self.warden.ledger, self.warden.methods),
            *(self.taint.grants, self.local, self.workshop.methods, self.servers, self.servers.hub, guests, self.troupe, self.jobs),
            *(self.office, self.office.crew, self.outbox, self.office.live, self.unasked),
            *(ThreadMethods(self.inbox, self.runs), SessionMethods(made), SqlMethods(self.store), ToolMethods(self.toolbox)),
            EntryMethods(self.entries, self.runs, self.verbs, self.project, self.approvals, made),
            ApprovalMethods(self.inbox, self.runs, self.approvals, self.released),
        )

    def recover(self) -> None:
        """Mend what a killed process left behind, read the skills; writes nothing when there is nothing to mend."""
        if self.store.is_read_only:
            return
        self.hooks.tell(hook_points.PROJECT_STARTING, self.home)
        self.office.crew.recover()
        for lease in self.leases.bury():
            LOG.warning("%s %d ended without saying so: %s", lease.kind, lease.process.pid, lease.reason)
        for loop in self.runs.recover(_ignore):
            LOG.warning("run %s was interrupted and is marked so", loop.run)
            self.recorder.mend(loop.run)
        self.workshop.recover(is_shared=self._is_shared)
        self.approvals.recover()
        self.troupe.recover()
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
        self.store.close()
        log.stop()
        return bad

    # -- the queue ----------------------------------------------------------------------------------

    def shift(self, post: Post, phases: Phases, *, is_scheduling: bool = True) -> Shift:
        """A worker made of these parts; run it from the main thread of a process of its own."""
        briefing = Briefing(self.tasks, self.runs, self.entries)
        parts = Parts(self.store, self.tasks, self.runs, self.loops, self.models, self.packets, briefing, self.office.roster.held_s)
        parts = replace(parts, marked=self.taint.origins.task, go_on=self.approvals.go_on, role=self.troupe.roles.queue)
        parts = replace(parts, is_able=self.local.is_able)
        return self.office.shift(post, phases, parts, self._refresh, is_scheduling=is_scheduling)

    def _refresh(self) -> None:
        """Before a piece of work: take a configuration into use that has changed meanwhile; a bad one leaves the old one."""
        if self.live.is_outdated():
            try:
                self.reload()
            except OwlError as error:
                LOG.error("the configuration from before is used: %s", error)

    def _ended(self, stored: LoopStored) -> None:
        """Within the transaction that ended a loop."""
        loop, end = stored.loop, stored.end
        self.hours.loop_ended(loop, end)
        self.troupe.heard(loop, end)
        if not self.office.ended(loop, end):
            self.troupe.ended(loop, end)
        if end.status == 200:
            self.titles.ended(loop.run)

    def _task_decided(self, decided: TaskDecided) -> None:
        decided.is_found = self.tasks.decided(decided.run, decided.failure)

    def _woke(self) -> None:
        """Another process may have written entries, and left work to us."""
        self.indexer.wake()
        self.troupe.look()
        self.hours.wake()

    def _keeper(self, is_shared: bool, *, is_worker: bool) -> Keeper:
        """systemd's broker, or a child; a worker borrows the core's; a command without a core has its own, private one."""
        given = self._environ.get("OWLBOX_BROKER_SOCKET", "") if is_shared or is_worker else ""
        if given:
            return Given(Path(given))
        path = paths.broker_socket(self.runtime) if is_shared else self.runtime / f"broker-{os.getpid()}.sock"
        if not is_worker:
            return Broker(self.home, path, self._environ, self.leases)
        return Lender(self.home, self._environ, lambda: Broker(self.home, path, self._environ, self.leases))

    # -- methods ------------------------------------------------------------------------------------

    @method("core.status", access="own")
    def status(self) -> dict[str, Any]:
        """What runs, what it holds, what it is doing."""
        settings = self.live.current
        try:
            broker: dict[str, Any] = {"state": "not running"}
            if self.broker.is_running():
                broker = {"state": "running", **self.models.status()}
        except (Lost, Refused, DeadlineExceeded) as error:
            broker = {"state": f"not answering: {error.message}"}
        latest = [run for run in self.runs.listing(limit=20) if run.kind != "child"]
        return {
            "version": __version__,
            "home": str(self.home.root),
            "pid": os.getpid(),
            "state": self.shutdown.state,
            "uptime_s": (now_ms() - self.started_ms) // 1000,
            "broker": {**broker, "restarts": self.broker.restarts, "last_end": self.broker.last_end},
            "local": self.local.status(),
            "pending": self.pending().plain(),
            "pools": {name: list(routes) for name, routes in settings.pools.items()},
            "default_pool": settings.models.pool,
            "channels": self.office.connections.plain(settings.channels),
            **self.workshop.status(),
            "entries": self.entries.count(),
            "search": to_plain(self.indexer.status()),
            "faults": home_faults.listing(self.home, self.store),
            "folder": self._folder(),
            "plugins": self.plugins.plain(),
            "answering": self.inbox.busy(),
            "queue": self.office.counts(),
            "roles": {"problems": self.troupe.problems, "jobs": self.troupe.jobs.counts()},
            "sessions": self.runs.sessions()[:10],
            "last_thread": to_plain(latest[0]) if latest else None,
            "processes": [lease.plain() for lease in self.leases.listing(10)],
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
            self.strongbox.settle(self.home, self._environ)  # what it read stays in our memory until we are started again
            try:
                keys, settings = self.live.reload(), self.live.current
                self.web.reload(settings.tools)
                self.servers.reload()
                if self.warden.gate.reload() == "skipped":
                    raise Busy("the policy is being read by somebody else", hint="reload once more")
            except OwlError as error:
                self.live.current = old
                self.web.reload(old.tools)  # else hosts of the new one could be reached
                self.servers.reload()
                LOG.error("configuration not reloaded: %s", error)
                if not isinstance(error, ConfigError):
                    raise
                raise ConfigError(f"configuration not reloaded, the old one stays: {error}") from None
            self.redactor.add(*config.secrets(settings))
            logging.getLogger(log.ROOT).setLevel(log.LEVELS[settings.system.level])
            self.agent.limits = self._limits()
            self.packets.override = settings.prompt.system_prompt_override
            self.packets.ceiling, self.packets.divisor = settings.budget.ceiling, settings.budget.token_divisor
            self.blocks.divisor, self.packets.strategy = settings.budget.token_divisor, settings.budget.pruning
            self.copies.kept = settings.runs.copies
            self.toolbox.use(self.warden.gate.policy)  # also when only what is switched off has changed
            self.models.wait_s = settings.llm.broker_wait_s
            self.models.silence_s = settings.orchestrator.health_interval_ms / 1000
            if not (isinstance(self.broker, Lender) and self.broker.is_borrowed):
                self.renewal.begin(key for key in keys if config.described(key).is_broker)
            pending = self.pending()
            waiting = [*pending.broker, *pending.restart, *(key for key in keys if config.described(key).is_later)]
            now = ", ".join(key for key in keys if key not in waiting)
            LOG.info("configuration reloaded: %s; pending: %s", now or "nothing changed", pending.text() or "nothing")
            self.skills.sync()  # folders of skills outside box/ are not watched
            self.unasked.sync()
            self.indexer.retry()
            return Reloaded(now, pending)

    def pending(self) -> Pending:
        """The keys that were changed and are not in force, and what they wait for."""
        return Pending(self.renewal.waiting(), self.live.waiting())

    def _met(self, client: Client) -> None:
        """A broker is about to be asked, for the first time or after a while."""
        self.strongbox.learn(client.call)
        self.renewal.meet(client)

    @method("core.shutdown")
    def shut_down(self, reason: str = "asked to") -> dict[str, Any]:
        """Stop the core in good order."""
        self.shutdown.initiate(reason)
        os.kill(os.getpid(), signal.SIGTERM)  # `serve` ends it
        return {"state": "initiated"}

    def _branch(self, run: str) -> list[Event]:
        """What was said and done on the branch that a run is on."""
        return self.runs.record.path(self.runs.get(run).head, kinds=SPOKEN, limit=LOGGED)

    def _count(self, route: Route, ask: Ask) -> int:
        """Tokens of a prompt, as the broker counts them on what it is sent."""
        return self.models.measure(route, ask).total

    def _relevant(self, inbound: Inbound) -> str:
        """What is shown with a message: notes that fit it, and what the same person said at other doors meanwhile."""
        told = self.history.elsewhere(inbound.session, inbound.sender_id, ELSEWHERE)
        session = self.runs.people.find(inbound.session)
        with visibility.showing(session.context if session is not None else f"user:{inbound.sender_id}"):
            return self.packets.relevant(inbound.text, [Part(one.run, f"{one.label} {one.text}") for one in told])

    def _documents(self) -> list[Part]:
        parts, problems = notes.documents(self.home.box)
        for problem in problems:
            LOG.warning("prompt document left out: %s", problem)
        return [*parts, *self.skills.always()]

    def _take(self, paths: Sequence[Path]) -> None:
        """Files of box/ or drop/ have changed."""
        inside = [path for path in paths if path.is_relative_to(self.home.box.resolve())]
        self.folder.take(inside)
        self.skills.take(inside)
        self.unasked.look(inside)
        if len(inside) < len(paths):
            try:
                self.office.drops.take()
            finally:
                self.office.changed()  # as in `take_drops`

    def look(self) -> None:
        """Take what changed in box/ while nobody watched it: for a command that runs without a core."""
        tree = walk(self.home.box)
        if str(self.home.box) not in tree.folders:
            return  # it is away, and may come back: what it held stays known
        shut = [Path(folder) for folder in tree.closed]
        known = [path for path in self.folder.known() if not any(path.is_relative_to(folder) for folder in shut)]
        self._take(sorted({*map(Path, tree.files), *known}))

    def _folder(self) -> dict[str, Any]:
        """What is known about box/; only `serve` watches it."""
        problems = [*self.plugins.problems, *self.folder.problems, *self.skills.problems]
        return {"path": str(self.home.box), "state": self.watch.state, "problems": problems[:20], "problem_count": len(problems)}

    def _is_able(self, route: Route) -> bool:
        return titles.is_able(route, self.home.models)

    def _limits(self) -> Limits:
        return replace(limits(self.live.current), tier=self.local.tiers.of)

    def _before_turn(self, starting: TurnStarting) -> None:
        """A run that is shown its entries sees the workspace as it is now."""
        run, terms = starting.run, starting.terms
        if terms.layout == "entries":
            self.project.before_turn(Actor("plugin", run, *self.runs.moment(run)), has_repo=terms.has_repo)


def _ignore(event: Event) -> None:
    """Nobody listens yet when the core recovers."""
