"""The composition root: builds every part once and hands it down; runs the core as a service.

`Core` is the same whether it serves a socket or lives for one command. `serve` adds the lock against a
second core, the socket, signals and the orderly end. Nothing here decides anything about a turn.
"""

import fcntl
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from appliance import __version__, config, log, markdown, notes, notify, places, policy, qualify, queries, tools
from appliance.agent import Agent, Limits
from appliance.channels.rpc import Means, Rpc, Shelf
from appliance.clock import Alarms, CancelToken, now_ms, this_process
from appliance.drives import Drives
from appliance.entries import PROJECT, Entries
from appliance.errors import AlreadyRunning, ConfigError, DeadlineExceeded, Lost, OwlError, Refused, StoreError
from appliance.grep import Texts
from appliance.inbox import Inbox
from appliance.jsonrpc import Peer
from appliance.leases import Leases
from appliance.listener import Listener, listen
from appliance.models import Models
from appliance.packet import Packets
from appliance.places import Home
from appliance.records import Ask, Event, Message, Outbound, Outcome, Part, to_plain
from appliance.runs import Runs
from appliance.schemes import Schemes
from appliance.search import Search
from appliance.settings import LOCAL, Config
from appliance.shutdown import Shutdown
from appliance.skills import Skills
from appliance.store import Store
from appliance.supervisor import Broker, Given, Keeper
from appliance.toolbox import Toolbox
from appliance.undo import Undo
from appliance.verbs import Verbs
from appliance.views import Actor, Views
from appliance.watch import Watch, walk

LOG = logging.getLogger(__name__)
# Keys that `reload` takes into use, and those that a new broker does; they may be the beginnings of keys.
AT_ONCE = (
    "system.log_level",
    "system.debug",
    "models.temperature",
    "models.max_output_tokens",
    "llm.deadline_ms",
    "llm.broker_wait_s",
    "budget.ceiling",
    "budget.token_divisor",
    "budget.history_messages",
    "runs.max_turns",
    "runs.max_commands",
    "runs.max_strikes",
    "prompt.",
    "policy.",
    "tools.deadline_s",
    "orchestrator.health_interval_ms",
    "orchestrator.disk_",
)
QUERY_S = 10.0  # for a query that somebody typed
BROKER = ("models.", "pools", "routes", "providers")


class LogDoor:
    """Status and channel port of the local door: clients follow by themselves, so it only notes things in the log."""

    def show(self, session: str, state: str) -> None:
        """Note what the owl is doing."""
        LOG.debug("session %s is %s", session, state)

    def deliver(self, message: Outbound) -> None:
        """Note that an answer waits to be read; its text is in the thread and not repeated here."""
        LOG.info("an answer waits in %s", message.metadata.get("run"), extra={"session": message.session})


class Core:
    """Every part of a core, built for one home."""

    def __init__(self, home: Home, environ: Mapping[str, str], *, process: str = "core", is_shared: bool = True) -> None:
        self.home = home.require()
        self.live = config.Live(home, environ)
        self.started_ms = now_ms()
        settings = self.live.current
        self.redactor = log.Redactor(config.secrets(settings))
        log.start(process, home.logs, settings.system.level, self.redactor, is_service=notify.is_service(environ))
        self.runtime = places.runtime_folder(home, environ, make=True)
        rules = policy.load(home.root / settings.policy.path if settings.policy.path else None, settings.policy.mode)
        self.store = Store.open(home.database, busy_delays_ms=settings.store.busy_delays_ms, mmap_mb=settings.store.mmap_mb)
        me = this_process().encode()
        self.leases = Leases(self.store)
        self.runs = Runs(self.store, me)
        self.entries = Entries(self.store)
        self.finder = Search(self.store)
        more = [home.root / folder for folder in settings.skills.folders]
        self.skills = Skills(home.box, self.entries, environ, more=more, is_enabled=settings.skills.enabled)
        self.folder = notes.Folder(home.box, self.entries, self.skills.is_skill)
        self.watch = Watch(home.box, self.folder.known, self._take)
        # One broker for the core, systemd's or a child; a command that lives without a core has its own, private one.
        given = environ.get("OWLBOX_BROKER_SOCKET", "") if is_shared else ""
        path = places.broker_socket(self.runtime) if is_shared else self.runtime / f"broker-{os.getpid()}.sock"
        self.broker: Keeper = Given(Path(given)) if given else Broker(home, path, environ, self.leases)
        self.models = Models(
            str(self.broker.socket),
            token=lambda: self.broker.token,
            revive=self.broker.revive,
            wait_s=settings.llm.broker_wait_s,
            silence_s=settings.orchestrator.health_interval_ms / 1000,
        )
        services: dict[str, Any] = {"entries": self.entries, "finder": self.finder, "runs": self.runs}
        kinds = Schemes()
        services |= {"drives": Drives(self.store, self.entries, kinds), "texts": Texts(self.store, kinds)}
        self.views = Views(self.store)
        self.verbs = services["verbs"] = Verbs(self.store, self.entries, self.views, kinds)
        self.toolbox = Toolbox(
            tools.load(),
            services,
            policy=rules,
            deadline_s=settings.tools.deadline_s,
            threads=settings.tools.parallel,
            interrupt=self.store.interrupt,
        )
        self.packets = Packets(
            self._documents,
            self.finder,
            self.skills,
            override=settings.prompt.system_prompt_override,
            ceiling=settings.budget.ceiling,
            divisor=settings.budget.token_divisor,
        )
        self.agent = Agent(self.models, self.toolbox, self.packets, self.runs, limits(settings))
        door = LogDoor()
        self.inbox = Inbox(
            self.store, self.runs, self.models, self.agent, relevant=self.packets.relevant, status=door, channel=door
        )
        self.shutdown = Shutdown(settings.system.shutdown_s, settings.system.hook_s)
        means = Means(
            self.toolbox.dispatch, self._tools, self.status, self.plan, self.prompt_size, self.reload, self.shut_down, self.bench
        )
        undo = Undo(self.store, self.entries, self.runs)
        shelf = Shelf(
            self._listing,
            self.entries.view,
            self.skills.listing,
            self._act,
            self._history,
            lambda run, who, is_dry_run: to_plain(undo.undo(run, who, is_dry_run=is_dry_run)),
            self._query,
            self._waiting,
        )
        self.rpc = Rpc(self.inbox, self.runs, means, shelf)
        self.shutdown.component("inbox", lambda: self.inbox.close(self.shutdown.reason))
        self.shutdown.component("toolbox", self.toolbox.close)
        self.shutdown.component("broker", self.broker.stop)
        self.shutdown.component("sessions", self.runs.stop_sessions)

    def recover(self) -> None:
        """Mend what a killed process left behind, read the skills; writes nothing when there is nothing to mend."""
        for lease in self.leases.bury():
            LOG.warning("%s %d ended without saying so: %s", lease.kind, lease.process.pid, lease.reason)
        for loop in self.runs.recover(_ignore):
            LOG.warning("run %s was interrupted and is marked so", loop.run)
        try:
            self.skills.sync()
        except OwlError as error:
            LOG.warning("skills could not be read: %s", error)  # a command that needs none still works

    def close(self, reason: str) -> list[str]:
        """End everything in order; returns the steps that did not end well."""
        if self.shutdown.state == "running":
            self.shutdown.initiate(reason)
        bad = self.shutdown.run()
        self.store.close()
        log.stop()
        return bad

    # -- what the door offers -----------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What runs, what it holds, what it is doing. Starts nothing."""
        settings = self.live.current
        try:
            broker: dict[str, Any] = {"state": "not running"}
            if self.broker.is_running():
                broker = {"state": "running", **self.models.status()}
        except (Lost, Refused, DeadlineExceeded) as error:
            broker = {"state": f"not answering: {error.message}"}
        latest = self.runs.listing(limit=1)
        return {
            "version": __version__,
            "home": str(self.home.root),
            "pid": os.getpid(),
            "state": self.shutdown.state,
            "uptime_s": (now_ms() - self.started_ms) // 1000,
            "broker": {**broker, "restarts": self.broker.restarts},
            "pools": {name: list(routes) for name, routes in settings.pools.items()},
            "default_pool": settings.models.pool,
            "channels": {"matrix": settings.channels.matrix.enabled, "email": settings.channels.email.enabled},
            "workspace": settings.sandbox.workspace or str(self.home.root / "sessions"),
            "entries": self.entries.count(),
            "folder": self._folder(),
            "answering": self.inbox.busy(),
            "sessions": self.runs.sessions()[:10],
            "last_thread": to_plain(latest[0]) if latest else None,
            "processes": [lease.plain() for lease in self.leases.listing(10)],
        }

    def plan(self, pool: str) -> list[dict[str, Any]]:
        """The routes of a pool that could answer now, as the broker says."""
        return [to_plain(route) for route in self.models.plan(pool)]

    def bench(self, model: str, seconds: float, progress: qualify.Progress, cancel: CancelToken) -> dict[str, Any]:
        """Numbers and a verdict about a local model, "" for the one that answers; nothing is recorded."""
        route = self.models.plan(f"{LOCAL}/{model}" if model else "")[0]
        found: dict[str, Any] = to_plain(qualify.qualify(self.models, route, progress, cancel, seconds=seconds))
        return found

    def prompt_size(self, text: str) -> dict[str, Any]:
        """Tokens of the prompt for a text, by part, counted by the broker on what it received."""
        route = self.models.plan(self.live.current.models.pool)[0]
        specs = tuple(self.toolbox.specs())
        system = self.packets.system(specs, route.dialect, route.window)
        ask = Ask(
            system=system, messages=(Message("user", text),), tools=specs, dialect=route.dialect, correlation=log.correlation()
        )
        measure = self.models.measure(route, ask)
        shipped = {n: markdown.visible(notes.shipped(n)) for n in notes.SHIPPED}
        groups = {"instructions": 0, "tools": 0, "documents": 0, "skills": 0, "person": 0}
        for name, tokens in measure.parts.items():
            if name in ("instructions", "style"):
                groups["instructions"] += tokens
            elif name in ("tools", "skills"):
                groups[name] += tokens
            elif any(p.name == name and shipped.get(name) == p.text for p in system):
                groups["documents"] += tokens
            elif any(p.name == name for p in system):
                groups["person"] += tokens
        static = sum(tokens for name, tokens in groups.items() if name != "person")
        return {
            "route": route.name,
            "dialect": route.dialect,
            "model": measure.model,
            "static": static,
            "groups": groups,
            "parts": measure.parts,
            "total": measure.total,
        }

    def reload(self) -> tuple[str, str]:
        """Take a changed configuration and policy into use; ConfigError keeps the old ones.

        Returns the keys that hold from now on, and those that hold after a restart.
        """
        old = self.live.current
        changed, what = self.live.reload()
        if not changed and what:
            LOG.error("configuration not reloaded: %s", what)
            raise ConfigError(f"configuration not reloaded, the old one stays: {what}")
        settings = self.live.current
        try:
            rules = policy.load(self.home.root / settings.policy.path if settings.policy.path else None, settings.policy.mode)
        except ConfigError as error:
            self.live.current = old
            LOG.error("configuration not reloaded: %s", error)
            raise
        self.redactor.add(*config.secrets(settings))
        logging.getLogger(log.ROOT).setLevel(log.LEVELS[settings.system.level])
        self.agent.limits = limits(settings)
        self.packets.override = settings.prompt.system_prompt_override
        self.packets.ceiling, self.packets.divisor = settings.budget.ceiling, settings.budget.token_divisor
        self.toolbox.use(rules)
        self.toolbox.deadline_s = settings.tools.deadline_s
        self.models.wait_s = settings.llm.broker_wait_s
        self.models.silence_s = settings.orchestrator.health_interval_ms / 1000
        keys = what.split(", ") if what else []
        is_renewed = any(key.startswith(BROKER) and not key.startswith(AT_ONCE) for key in keys) and self._renew_broker()
        at_once = AT_ONCE + BROKER if is_renewed else AT_ONCE
        now = ", ".join(key for key in keys if key.startswith(at_once))
        later = ", ".join(key for key in keys if not key.startswith(at_once))
        LOG.info("configuration reloaded: %s%s", now or "nothing changed", f"; after a restart: {later}" if later else "")
        self.skills.sync()  # folders of skills outside box/ are not watched
        return now, later

    def _renew_broker(self) -> bool:
        """Let the broker read its configuration again; False while it answers, and when it is not ours to restart."""
        if not isinstance(self.broker, Broker) or self.inbox.busy():
            return False
        if self.broker.is_running():
            self.broker.revive("its configuration changed")
        return True

    def shut_down(self, reason: str) -> None:
        """Ask for the end; `serve` does it."""
        self.shutdown.initiate(reason)
        os.kill(os.getpid(), signal.SIGTERM)

    def _documents(self) -> list[Part]:
        parts, problems = notes.documents(self.home.box)
        for problem in problems:
            LOG.warning("prompt document left out: %s", problem)
        return [*parts, *self.skills.always()]

    def _take(self, paths: Sequence[Path]) -> None:
        """Files of box/ have changed."""
        self.folder.take(paths)
        self.skills.take(paths)

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
        problems = [*self.folder.problems, *self.skills.problems]
        return {"path": str(self.home.box), "state": self.watch.state, "problems": problems[:20], "problem_count": len(problems)}

    def _listing(self, prefix: str, limit: int, offset: int) -> list[dict[str, Any]]:
        return [to_plain(line) for line in self.entries.listing(prefix, limit=limit, offset=offset)]

    def _act(self, run: str, verb: str, given: dict[str, Any]) -> Outcome:
        """A verb on behalf of a person, outside of any thread or at the newest turn of one."""
        if not run:
            return self.verbs.perform(Actor("client"), verb, given)
        found = self.runs.get(run).id
        return self.verbs.perform(Actor("client", found, *self.runs.moment(found)), verb, given)

    def _waiting(self, run: str, limit: int) -> list[dict[str, Any]]:
        return [to_plain(one) for one in self.verbs.waiting(self.runs.get(run).id if run else "", limit)]

    def _history(self, ref: str, limit: int, run: str) -> list[dict[str, Any]]:
        """The changes of an entry as a thread or a person sees it; NotFound when there never was one."""
        for scope in [f"run:{self.runs.get(run).id}", PROJECT] if run else [PROJECT]:
            found = self.entries.changes(ref, scope=scope, limit=limit)
            if found or self.entries.find(ref, scope=scope):
                return [to_plain(change) for change in found]
        self.entries.get(ref)
        return []

    def _query(self, sql: str, limit: int, cancel: CancelToken) -> tuple[Sequence[str], Sequence[Sequence[Any]], bool]:
        """What somebody's own query says."""
        found = self.store.query(sql.strip() or queries.TABLES, limit=limit, deadline_s=QUERY_S, is_stopped=cancel.is_set)
        return found.columns, found.rows, found.has_more

    def _tools(self) -> list[dict[str, Any]]:
        return [{**to_plain(t.spec), "command": t.mark.command, "is_in_menu": t.mark.is_in_menu} for t in self.toolbox.tools()]


def limits(settings: Config) -> Limits:
    """The agent's caps from the configuration."""
    return Limits(
        max_turns=settings.runs.max_turns,
        max_commands=settings.runs.max_commands,
        max_strikes=settings.runs.max_strikes,
        history_messages=settings.budget.history_messages,
        temperature=settings.models.temperature,
        max_output_tokens=settings.models.max_output_tokens,
        deadline_s=settings.llm.deadline_ms / 1000,
    )


class Lock:
    """One core per home: a lock on a file of the home, which the kernel releases however we end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = open(path, "a+b", buffering=0)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}", hint="check owner and mode of the home folder") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            pid = self._file.readline(32).decode("ascii", "replace").strip() or "?"
            self._file.close()
            raise AlreadyRunning(
                f"a core (pid {pid}) is already running on {path.parent}",
                hint="owlbox status shows it; stop it before starting another",
            ) from None
        self.tell("")

    def tell(self, socket_path: str) -> None:
        """Write down who holds it and where it listens, for `places.find_core`."""
        self._file.truncate(0)
        self._file.write(os.fsencode(f"{os.getpid()}\n{socket_path}"))

    def release(self) -> None:
        """Let another core start."""
        self._file.truncate(0)
        self._file.close()


class Signals:
    """SIGTERM, SIGINT and SIGHUP as something to wait for.

    Through the wake-up descriptor, which is written when a signal comes: a handler that fills a queue may be
    called too late when it comes just before the wait, and the core slept on (2026-11-21).
    """

    def __init__(self) -> None:
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, frame: None)
        signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)

    def wait(self, limit_s: float | None) -> int | None:
        """The next signal's number; None when there is none in time."""
        self._ear.settimeout(limit_s)
        try:
            return self._ear.recv(1)[0]
        except TimeoutError:
            return None


def serve(home: Home, environ: Mapping[str, str]) -> int:
    """Run the core until a signal or a client ends it; returns the exit code."""
    lock = Lock(home.require().lock)
    try:
        code = _serve(home, environ, lock)
        if stuck := [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread() and _is_stuck(t)]:
            # Python would wait for them, without a lock on the home and without a core to ask.
            print(f"owlbox: left behind: {', '.join(stuck)}", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code
    finally:
        lock.release()


def _is_stuck(thread: threading.Thread) -> bool:
    thread.join(0.2)
    return thread.is_alive()


def _serve(home: Home, environ: Mapping[str, str], lock: Lock) -> int:
    signals = Signals()
    notifier = notify.Notifier(environ)
    given = notify.given_socket(environ)
    core = Core(home, environ)
    listener: Listener | None = None
    try:
        was_clean = all(lease.ended_ms is not None for lease in core.leases.listing() if lease.kind == "core")
        if not was_clean:
            notifier.status("checking the database after an unclean end")
        problems = [] if was_clean else core.store.problems(is_quick=True)
        if problems:
            raise StoreError(f"database {home.database} is damaged: {problems[0]}", hint="owlbox doctor; backups are in backups/")
        core.recover()
        listener = _listener(core, given)
        lease = core.leases.begin("core")
        core.shutdown.before("listener", listener.stop_accepting)
        core.shutdown.before("folder", core.watch.stop)
        core.shutdown.after("hang up", listener.close)
        core.shutdown.after("lease", lambda: core.leases.end(lease, core.shutdown.reason))
        core.broker.start()
        listener.start()
        lock.tell(listener.sock.getsockname())
        core.watch.start()
        again = core.inbox.start_waiting()
        _announce(core)
        LOG.info("core is up", extra={"home": str(home.root), "waiting": again})
        _wait(core, signals, notifier, listener.sock.getsockname())
        return 0
    finally:
        notifier.stopping(core.shutdown.reason or "failed to start")
        core.close("failed to start" if core.shutdown.state == "running" else core.shutdown.reason)
        if listener is not None and given is None:
            places.core_socket(core.runtime).unlink(missing_ok=True)


def _announce(core: Core) -> None:
    """Say on stderr who is up, and in the log which channels are; `serve` itself never opens a terminal."""
    print(f"owlbox {__version__} serves {core.home.root}", file=sys.stderr, flush=True)
    if too_early := config.not_used(core.live.current):
        LOG.warning("set, but not used in this version: %s", ", ".join(too_early))
    channels = core.live.current.channels
    for name, is_enabled in (("matrix", channels.matrix.enabled), ("email", channels.email.enabled)):
        if is_enabled:
            LOG.warning("channel %s is enabled, but this version has none", name)
        else:
            LOG.info("channel %s is disabled", name)


def _wait(core: Core, signals: Signals, notifier: notify.Notifier, path: str) -> None:
    """Parked until a signal; SIGHUP reloads, the others end. A client's shutdown arrives as SIGTERM.

    Under a watchdog it wakes up to say that this thread and the socket at `path` both respond.
    """
    notifier.ready(f"serves {core.home.root}")
    while True:
        number = signals.wait(notifier.interval_s)
        if number is None:
            notifier.pulse(path)
            continue
        if number == signal.SIGHUP:
            notifier.reloading()
            try:
                core.reload()
                notifier.ready(f"serves {core.home.root}")
            except ConfigError as error:
                notifier.ready(f"keeps the old configuration: {error}")  # logged too
            except (OwlError, OSError) as error:  # a busy database or a full disk is no reason to end
                LOG.error("reload was not finished: %s", error)
                notifier.ready(f"reload was not finished: {error}")
            continue
        if core.shutdown.state == "running":
            core.shutdown.initiate(f"signal {signal.Signals(number).name}")
        return


def _listener(core: Core, given: socket.socket | None) -> Listener:
    settings = core.live.current
    allowed = {os.getuid(), 0}

    def gate(peer: Peer, params: dict[str, Any]) -> None:
        # Socket mode 0660 admits the group; its members are people of this box (host trust).
        if peer.uid not in allowed and os.getgid() not in (peer.gid, *peer.groups):
            LOG.warning("refused hello of uid %d", peer.uid)
            raise Refused(f"user {peer.uid} may not talk to this owl", hint="ask its admin")
        if params.get("token"):
            LOG.warning("refused hello of pid %d: a token that was not issued", peer.pid)
            raise Refused("this token was not issued here", hint="people need no token")

    path = places.core_socket(core.runtime)
    try:
        sock = listen(path) if given is None else given
    except OSError as error:
        raise OwlError(f"cannot listen at {path}: {error.strerror}") from None
    listener = Listener(
        sock,
        name="core",
        gate=gate,
        alarms=Alarms(),
        deadline_s=settings.api.rpc_timeout_ms / 1000,
        max_connections=settings.api.max_connections,
        is_given=given is not None,
    )
    listener.offer(core.rpc)
    return listener


def _ignore(event: Event) -> None:
    """Nobody listens yet when the core recovers."""
