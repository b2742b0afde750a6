"""Every part of a core, built once for one home and handed down; the same for a service, a worker and one command.

Nothing here decides anything about a turn, opens a socket or waits. `service.daemon` serves it, `cli.console.connect` calls it in a
command's own process, `workers` works through the queue with it.
"""

import logging
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from appliance import __version__, tools
from appliance.agent import titles
from appliance.agent.agent import Agent, Limits
from appliance.agent.approvals import ACCEPTED, Approvals
from appliance.agent.dispatch import Dispatch, RunLog
from appliance.agent.loop import Loops
from appliance.agent.loop_events import CallsAbandoned, LoopStored, MessageAccepted, TurnStarting
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
from appliance.channels.scheduled_messages import ScheduledMessages
from appliance.clock import now_ms
from appliance.errors import Busy, ConfigError, DeadlineExceeded, Lost, OwlError, Refused
from appliance.ingest import notes
from appliance.ingest.notes import PromptDocuments
from appliance.ingest.own_documents import Documents
from appliance.ingest.receiver import Intake
from appliance.ingest.watcher import Watch, walk
from appliance.ingest.workspace_sync import Project
from appliance.knowledge.indexer import embedding
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.mcp.page_loader import Loading
from appliance.prompt.budget import Budget, Rows
from appliance.prompt.compaction import Compactor
from appliance.prompt.entry_blocks import Blocks
from appliance.prompt.inspection import Sight
from appliance.prompt.packet import More, Packets
from appliance.prompt.run_log import Chronicle
from appliance.prompt.sent_copies import Copies
from appliance.prompt.static_size import Sizes
from appliance.records import Ask, Event, Inbound, Part, Route, to_plain
from appliance.runtime import config, hook_points, log
from appliance.runtime.crash_points import Passed, nobody
from appliance.runtime.methods import method
from appliance.runtime.paths import Home
from appliance.runtime.shutdown import Shutdown
from appliance.service import home_faults, small_models
from appliance.service.agent_limits import limits
from appliance.service.broker_lending import Lender
from appliance.service.broker_process import Given
from appliance.service.mcp_guests import Guests
from appliance.service.model_offers import ModelOffers
from appliance.service.parts.base import build_base
from appliance.service.parts.commands import Floor, Workshop
from appliance.service.parts.heartbeat import HeartbeatParts
from appliance.service.parts.knowledge import build_knowledge
from appliance.service.parts.mcp_servers import Harbor
from appliance.service.parts.memory import build_memory
from appliance.service.parts.models import build_models
from appliance.service.parts.policy import Warden
from appliance.service.parts.queue import OthersWrote, QueueParts, RemindersWanted
from appliance.service.parts.roles import Stage as Scenery
from appliance.service.parts.roles import Troupe
from appliance.service.parts.schedules import ScheduleParts
from appliance.service.parts.taint import TaintParts
from appliance.service.pending_keys import Pending, Reloaded
from appliance.service.undo import Undo
from appliance.sessions.events import SPOKEN
from appliance.sessions.history import Recall
from appliance.skills.skill_service import SkillService
from appliance.store import visibility
from appliance.web.web_tools import Given as Outside
from appliance.web.web_tools import Web
from appliance.work.briefing import Briefing
from appliance.work.firing import Effect
from appliance.work.outcomes import TaskNotices
from appliance.work.tick import TickParts
from appliance.work.work_events import ScheduleChanged, TaskRunBegun, WorkStarting
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
        base = build_base(self.home, environ, self.live, process, passed, is_shared=is_shared)
        self.base, self.events, self.hooks, self.redactor, self.runtime = base, base.events, base.hooks, base.redactor, base.runtime
        self.store, self.leases, self.runs = base.store, base.leases, base.runs
        self.warden = Warden(home, environ, base.settings, self.store, self.redactor.clean_all, closed=[self.runtime])
        models = self.model_parts = build_models(base, process, broker)
        self.broker, self.models, self.local = models.broker, models.models, models.local
        self.strongbox, self.renewal = models.strongbox, models.renewal
        knowledge = build_knowledge(base, models)
        self.passages, self.entries = knowledge.passages, knowledge.entries
        self.indexer, self.finder = knowledge.indexer, knowledge.finder
        self.skills, self.folder, self.views, self.history = knowledge.skills, knowledge.folder, knowledge.views, knowledge.history
        self.watch = Watch(home.box, self.folder.known, self._take, beside=[home.drop] if is_shared else [])
        services: dict[str, Any] = {"entries": self.entries, "finder": self.finder, "runs": self.runs}
        services |= {"passages": self.passages, "indexer": self.indexer, "history": self.history}
        people = self.runs.people.contexts
        self.skill_service = SkillService(self.skills, self.warden.ledger, people)
        services |= {"skills": self.skills, "skill_service": self.skill_service}
        self.memory = build_memory(base, models, knowledge, people)
        services["documents"] = Documents(home.box, people, self.folder)
        services["overflow"] = Overflow(self.store, self.entries)
        services |= {"drives": knowledge.drives, "texts": knowledge.texts}
        self.knowledge, self._services = knowledge, services
        self._build_reach()
        self._build_queue()
        self._build_prompt()
        self._build_agent()
        self._build_channels()
        self._build_control()
        self._order_shutdown()

    def _build_reach(self) -> None:
        """What reaches the web and servers of tools, and the workspace."""
        base, home, environ, settings = self.base, self.home, self.base.environ, self.live.current
        knowledge, services = self.knowledge, self._services
        outside = Outside(self.store, self.entries, self.views, environ, self.warden.ledger.note, self.strongbox.get)
        self.web = Web(outside, settings.tools)
        self._services |= self.web.services()
        self.loading = Loading(lambda: self.servers.hub, self.models, self.web.page, lambda route: self.local.is_able(route))
        load = self.loading.page
        self.intake = services["intake"] = Intake(knowledge.sources, home, environ, fetch=load, load=load)
        reading = embedding(self.models, self.model_parts.patient, lambda: False)
        ashore = home, environ, self.runtime, base.settings, self.store
        self.servers = Harbor(*ashore, self.strongbox, reading, self.warden.ledger.note)
        services["mcp"] = self.servers.hub
        self.verbs = services["verbs"] = Verbs(
            *(self.store, self.entries, self.views, self.knowledge.schemes),  # the workspace is made after the verbs that ask it
            files=lambda: self.project,
        )
        workspace = Path(settings.sandbox.workspace).expanduser() if settings.sandbox.workspace else None
        self.project = Project(
            *(workspace, self.store, knowledge.sources, self.verbs, self.intake.gather),
            closed=[home.root],
            check_room=lambda actor, tokens: self.sight.require_room(actor.run, tokens),
        )

    def _build_queue(self) -> None:
        """Tasks, commands, roles and the taint gate, which runs and workers share."""
        base, home = self.base, self.home
        self.queue = QueueParts(base, self.broker)
        self.tasks, self.outbox = self.queue.tasks, self.queue.outbox
        self.offers = ModelOffers(home, self.base.settings, self.local, self.queue.tell, is_lasting=self.base.is_shared)
        self.events.subscribe(OthersWrote, lambda wrote: self._woke())
        floor = Floor(
            home,
            base.environ,
            self.runtime,
            base.settings,
            self.store,
            self.runs,
            self.entries,
            self.views,
            self.verbs,
            self.warden,
        )
        ties = self.hooks, self.outbox, self.queue.notices, self.skills.scripts
        self.workshop = Workshop(floor, *ties, self.events, clean=self.redactor.clean)
        self._services |= {"tasks": self.tasks, "crew": self.queue.crew, **self.workshop.services()}
        self.troupe = Troupe(
            Scenery(home.box, base.settings, self.store, self.runs, self.outbox, self.hooks, self.events, is_lasting=base.is_shared)
        )
        self.roles, self.jobs = self.troupe.roles, self.troupe.jobs
        held_calls = HeldCalls(self.runs, self.verbs, self.warden.ledger, self.outbox, self.workshop.executions)
        self.taint = TaintParts(self.store, self.runs, self.skills, held_calls, self.warden.ledger, self.hooks)

    def _build_prompt(self) -> None:
        """What a model is sent, and the schedules that ask one."""
        base, home, settings = self.base, self.home, self.live.current
        self.blocks = Blocks(self.store, self.entries, self.knowledge.schemes, settings.budget.token_divisor, self.hooks)
        beside = More(self.hooks, self.blocks, Chronicle(self.store, self._branch), lambda about: notes.contextual(home.box, about))
        self.packets = Packets(
            self._documents,
            self.finder,
            self.skills,
            more=beside,
        )
        self.packets.configure(settings.prompt, settings.budget, self.history.owners)
        self.schedules = ScheduleParts(
            base, self.outbox, self.tasks, self.models, self.packets.relevant, self.taint.origins.carried
        )
        self.task_notices = TaskNotices(self.runs, self.outbox, self.schedules.outcomes, self.events)
        self.events.subscribe(RemindersWanted, lambda wanted: self.schedules.runner.remind())
        self._services |= {**self.troupe.services(), "timetable": self.schedules.timetable}

    def _build_agent(self) -> None:
        """Tools, what is decided about their calls, and the loops that call them."""
        home, settings, services = self.home, self.live.current, self._services
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
        self.copies = Copies(self.store, settings.runs.copies)
        self.compactor = Compactor(self.runs, self.models, is_automatic=lambda: self.live.current.budget.compact)
        rows = Rows(self.views, self.entries, self.copies)
        self.budget = Budget(self.packets, rows, count=self._count, full=self.compactor.start)
        self.released = ReleasedCalls(self.runs, self.entries, self.views, self.taint.grants, self.toolbox, self.events)
        self.hooks.add(ACCEPTED, self.released.accepted)
        background = self.released, self.workshop.executions
        self.approvals = Approvals(self.store, self.runs, self.verbs, self.hooks, self.events, self.warden.rules, background)
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
            status=self.queue.channel,
            events=self.events,
            roles=self.roles,
            passed=self.base.passed,
        )
        self.events.subscribe(TurnStarting, self._before_turn)
        self.events.subscribe(MessageAccepted, self.taint.note_message)
        self.events.subscribe(TaskRunBegun, self.taint.note_task)
        self.events.subscribe(WorkStarting, lambda starting: self._refresh())
        self.events.subscribe(CallsAbandoned, lambda abandoned: self.recorder.mend(abandoned.run))
        self.plugins = Plugins(Adding(home.box, self.hooks, self.knowledge.schemes, self.toolbox, services), settings.plugins)
        self.plugins.watch(self.entries, self.views, self.runs)
        self.troupe.tie(self.loops, self.toolbox)

    def _build_channels(self) -> None:
        """Messages of people and of schedules, and what is done unasked."""
        base = self.base
        self.inbox = Inbox(
            self.store,
            self.runs,
            self.loops,
            relevant=self._relevant,
            outbox=self.outbox,
            approvals=self.approvals,
            skills=self.skill_service,
            passed=self.base.passed,
        )
        scheduler = lambda: self.live.current.scheduler  # noqa: E731
        lineage = self.schedules.timetable.lineage
        self.scheduled_messages = ScheduledMessages(
            self.inbox, self.queue.courier, self.schedules.effects, self.jobs, lineage, scheduler
        )
        say, prompt = self.scheduled_messages.say, self.scheduled_messages.prompt
        self.schedules.firing.register("message", Effect(say, is_inside=False, needs_core=True))
        self.schedules.firing.register("prompt", Effect(prompt, is_inside=False, needs_core=True))
        is_able = lambda: self._is_able(self.models.plan(self.live.current.models.pool)[0])  # noqa: E731
        self.unasked = HeartbeatParts(base, self.schedules, self.queue, self.jobs, is_able)

    def _build_control(self) -> None:
        """What people do with sessions and runs, and the methods that they call."""
        home, settings, services, is_shared = self.home, self.live.current, self._services, self.base.is_shared
        self.shutdown = Shutdown(settings.system.shutdown_s, settings.system.hook_s)
        sizes = Sizes(self.models, self.packets, self.roles, self.troupe.menu, lambda: self.live.current.models.pool)
        made = session_control.build(
            self.store,
            self.runs,
            self.inbox,
            self.views,
            self.models.plan,
            history=self.history,
            is_served=is_shared,
            forget=self.workshop.bench.forget,
            review=self.memory.review,
        )
        self.control = made
        undo = Undo(
            *(self.store, self.entries, self.runs, lambda: (self.project, self.folder)),
            changed=partial(self.events.publish, ScheduleChanged()),
        )
        seen = self.runs, self.packets, self.copies, self.compactor, self.models.plan, self.toolbox.specs, self.roles.of
        self.sight = Sight(*seen)

        self.guests = guests = Guests(self.store, services, self.warden.rules, self.warden.ledger)
        # The objects whose marked functions a socket offers, and a command without a core calls.
        self.offered: tuple[object, ...] = (
            *(
                self,
                self.runs,
                made,
                made.branches,
                made.transcripts,
                undo,
                self.models,
                self.model_parts.accounts,
                sizes,
                self.sight,
            ),
            *(self.skills, self.skill_service, self.memory.service, PromptDocuments(home.box)),
            *(self.intake, self.strongbox, self.warden.ledger, self.warden.methods),
            *(self.taint.grants, self.local, self.workshop.methods, self.servers, self.servers.hub, guests, self.troupe, self.jobs),
            *(self.offers, self.queue, self.queue.crew, self.outbox, self.queue.live, self.unasked),
            *(ThreadMethods(self.inbox, self.runs), SessionMethods(made), SqlMethods(self.store), ToolMethods(self.toolbox)),
            EntryMethods(self.entries, self.runs, self.verbs, self.project, self.approvals, made),
            ApprovalMethods(self.inbox, self.runs, self.approvals, self.released),
        )

    def _order_shutdown(self) -> None:
        """What ends before what."""
        self.shutdown.component("inbox", lambda: self.inbox.close(self.shutdown.reason))
        self.shutdown.component("offers", self.offers.close)
        self.shutdown.component("unasked", self.unasked.close)
        self.shutdown.component("scheduled messages", self.scheduled_messages.close)
        self.shutdown.component("schedules", self.schedules.close)
        self.shutdown.component("jobs", self.troupe.close)
        self.shutdown.component("commands", self.workshop.close)
        self.shutdown.component("servers", self.servers.close)
        self.shutdown.component("released calls", self.released.close)
        self.shutdown.component("courier", self.queue.close)
        self.shutdown.component("compactor", self.compactor.close)
        self.shutdown.component("titles", self.titles.close)
        self.shutdown.component("guests", self.guests.close)
        self.shutdown.component("toolbox", self.toolbox.close)
        self.shutdown.component("policy", self.warden.gate.stop)
        self.shutdown.component("indexer", self.indexer.stop)
        self.shutdown.component("broker", self.broker.stop)
        self.shutdown.component("sessions", self.runs.stop_sessions)

    def recover(self) -> None:
        """Mend what a killed process left behind, read the skills; writes nothing when there is nothing to mend."""
        if self.store.is_read_only:
            return
        self.hooks.tell(hook_points.PROJECT_STARTING, self.home)
        self.queue.crew.recover()
        for lease in self.leases.bury():
            LOG.warning("%s %d ended without saying so: %s", lease.kind, lease.process.pid, lease.reason)
        for loop in self.runs.recover(_ignore):
            LOG.warning("run %s was interrupted and is marked so", loop.run)
            self.recorder.mend(loop.run)
        self.workshop.recover(is_shared=self.base.is_shared)
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
        parts = TickParts(
            *(self.store, self.tasks, self.runs, self.loops, self.models, self.packets, briefing),
            *(self.queue.roster, self.local.tiers, self.troupe.roles),
        )
        return self.queue.build_shift(post, phases, parts, self.schedules.runner if is_scheduling else None)

    def _refresh(self) -> None:
        """Before a piece of work: take a configuration into use that has changed meanwhile; a bad one leaves the old one."""
        if self.live.is_outdated():
            try:
                self.reload()
            except OwlError as error:
                LOG.error("the configuration from before is used: %s", error)

    def _ended(self, stored: LoopStored) -> None:
        """Within the transaction that ended a loop."""
        if stored.end.status == 200:
            self.titles.ended(stored.loop.run)

    def _woke(self) -> None:
        """Another process may have written entries, and left work to us."""
        self.indexer.wake()
        self.troupe.look()
        self.schedules.runner.wake()

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
            "channels": self.queue.connections.plain(settings.channels),
            **self.workshop.status(),
            "entries": self.entries.count(),
            "search": to_plain(self.indexer.status()),
            "faults": home_faults.listing(self.home, self.store),
            "folder": self._folder(),
            "plugins": self.plugins.plain(),
            "answering": self.inbox.busy(),
            "queue": self.queue.counts(),
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
            self.strongbox.settle(self.home, self.base.environ)  # what it read stays in our memory until we are started again
            try:
                keys, settings = self.live.reload(), self.live.current
                self.web.reload(settings.tools)
                self.servers.reload()
                if self.warden.gate.reload() == "skipped":
                    raise Busy("the policy is being read by somebody else", hint="reload once more")
            except OwlError as error:
                self.live.restore(old)
                self.web.reload(old.tools)  # else hosts of the new one could be reached
                self.servers.reload()
                LOG.error("configuration not reloaded: %s", error)
                if not isinstance(error, ConfigError):
                    raise
                raise ConfigError(f"configuration not reloaded, the old one stays: {error}") from None
            self.redactor.add(*config.secrets(settings))
            logging.getLogger(log.ROOT).setLevel(log.LEVELS[settings.system.level])
            self.agent.configure(self._limits())
            self.packets.configure(settings.prompt, settings.budget, self.history.owners)
            self.blocks.configure(settings.budget.token_divisor)
            self.copies.configure(settings.runs.copies)
            self.toolbox.use(self.warden.gate.policy)  # also when only what is switched off has changed
            self.models.configure(settings.llm.broker_wait_s, settings.orchestrator.health_interval_ms / 1000)
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
                self.queue.drops.take()
            finally:
                self.queue.changed()  # as in `take_drops`

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
