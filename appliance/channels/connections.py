"""Running of the channels in `connectors`, as the configuration switches them on.

Each has a thread of its own, which connects it and hears its messages, and another in `delivery`, which sends. One that fails
is tried again after 1, 2, 4 … 60 seconds; the others and the core go on. Its notifications wait in the outbox. They are
threads and no processes because memory is short: measured beside docs/guides/channels.md. Nothing of a channel is imported as long
as it is off. Knows nothing about what a channel does.
"""

import importlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.loop_events import LoopStored
from appliance.channels import connectors
from appliance.channels.contract import REPEAT, Connection, Running
from appliance.channels.delivery import OutboxSender
from appliance.channels.gateway import Admission, ChannelChanged, Gateway
from appliance.channels.gateway import Parts as GatewayParts
from appliance.channels.live_answers import LiveAnswers
from appliance.clock import CancelToken, now_ms
from appliance.errors import BadInput, Busy, ConfigError, Lost, NotFound, OwlError, Unavailable
from appliance.records import Outbound
from appliance.runtime import config
from appliance.runtime.config_keys import about
from appliance.runtime.events import Events
from appliance.runtime.methods import method
from appliance.runtime.settings import Channels, ConfigReloaded, Connector, Workspace
from appliance.runtime.signatures import signature

LOG = logging.getLogger(__name__)
FIRST_S, LONGEST_S = 1.0, 60.0  # pauses before a channel is connected again
CLOSING_S = 5.0
SLACK = "slack"  # the one channel of which there may be several
SHIPPED = ("email", "matrix", SLACK)  # with keys of their own
OWN = ("email", SLACK)  # whose packages come with ours
SETTINGS = "settings"  # the positional parameter of a `connect` whose table has keys of its own in `runtime.settings`
NAME = re.compile(r"[a-z0-9_]{1,40}(-[a-z0-9_]{1,40})?")
Name = Annotated[str, "the name of a channel"]


class ChannelState(Struct, frozen=True):
    """A channel as people see it.

    `state` is off, on where no core serves it, connecting, connected, failing, or broken, which no retry mends. `key` is that of
    its table. Counts are those since it was switched on in this core: messages `taken`, `repeated` and `refused`, and those that
    were `sent` and that `failed` to be, each attempt by itself.
    """

    name: str
    state: str
    problem: str = ""
    since_ms: int = 0
    restarts: int = 0
    taken: int = 0
    repeated: int = 0
    refused: int = 0
    warnings: tuple[str, ...] = ()
    sent: int = 0
    failed: int = 0
    key: str = ""


def read_tables(settings: Channels) -> dict[str, Any]:
    """The table of every channel that there is, by its name: those that ship, those with a file, those that are configured."""
    files = {name: Connector() for name in config.described("channels.connectors").choices}
    own = {item.name: vars(settings)[item.name] for item in fields(settings) if item.name in (*SHIPPED, *files)}
    # Each workspace is a channel of its own; a change of one of them is none of the others.
    first = Workspace(**{item.name: getattr(settings.slack, item.name) for item in fields(Workspace)})
    more = {f"{SLACK}-{name}": table for name, table in settings.slack.workspaces.items()}
    return {**files, **own, SLACK: first, **more, **settings.connectors}


def key_of(name: str) -> str:
    """The dotted key of a channel's table."""
    return f"channels.{SLACK}.workspaces.{name.removeprefix(f'{SLACK}-')}" if name.startswith(f"{SLACK}-") else f"channels.{name}"


def admission(table: Any, *, folds_case: bool = False) -> Admission:
    """Who may write in a channel, as its table says; with keys of its own a table has `policy`, `allow_from` and `rooms`."""
    keys = table.keys if isinstance(table, Connector) else vars(table)
    given = {name: keys[name] for name in ("policy", "allow_from", "rooms") if name in keys}
    allowed, rooms = (tuple(str(one) for one in given.get(name, ())) for name in ("allow_from", "rooms"))
    return Admission(str(given.get("policy", "allowlist")), allowed, rooms, folds_case)


def connect(name: str, table: Any, services: Mapping[str, Any]) -> Connection:
    """Make a channel, which is not connected yet; ConfigError names what is missing or the keys of its table that cannot be."""
    key, file = key_of(name), name.partition("-")[0]
    if not NAME.fullmatch(name):
        hint = f"name it with up to 40 of a-z, 0-9 and _, such as {SLACK}.workspaces.birds"
        raise ConfigError(f"{key}: {name!r} cannot be the name of a channel", key=key, hint=hint)
    try:
        function = importlib.import_module(f"{connectors.__name__}.{file}").connect
    except ModuleNotFoundError as error:
        if error.name == f"{connectors.__name__}.{file}":
            raise ConfigError(f"{key}: this version has no such channel", key=key, hint=f"set {key}.enabled = false") from None
        hint = (
            "run make in the folder of the sources, which installs it"
            if file in OWN
            else f"{sys.executable} -m pip install {error.name}"
        )
        raise ConfigError(f"{key}: the package {error.name} is not installed", key=key, hint=hint) from None
    except ImportError as error:
        raise ConfigError(f"{key}: {error}", key=key, hint="install what it needs") from None
    wanted_arguments = signature(function)
    given = {SETTINGS: table} if [one.name for one in wanted_arguments.fields] == [SETTINGS] else None
    try:
        bound = wanted_arguments.bind(table.keys) if given is None else given
    except BadInput as error:
        raise ConfigError(f"{key}: {error.message}", key=key, hint=error.hint) from None
    made: Connection = function(**bound, **{service: services[service] for service in wanted_arguments.services})
    return made


def _list_missing(name: str, table: Any) -> list[str]:
    """The needed keys of a channel's table that nobody has set."""
    items = () if isinstance(table, Connector) else fields(table)
    return [f"{key_of(name)}.{one.name}" for one in items if about(one).is_needed and getattr(table, one.name) == ""]


class Runner:
    """Runs one channel: the thread that connects it, again and again, and what it says of itself."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        gateway: Gateway,
        courier: OutboxSender,
        *,
        live: LiveAnswers | None = None,
        first_s: float = FIRST_S,
    ) -> None:
        """`live` shows answers while they are written, on a channel that can."""
        self.name = name
        self.connection = connection
        self.gateway = gateway
        self._live = live
        self._courier = courier
        self._first_s = first_s
        self._stop = CancelToken()
        self._failures = 0
        self._state, self._problem, self._since_ms, self._restarts = "connecting", "", now_ms(), -1
        self._thread = threading.Thread(target=self._run, name=f"channel-{name}", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._courier.expect(self.name)
        self.gateway.note_state(False)
        for line in self.connection.warnings():
            LOG.warning("channel %s: %s", self.name, line)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is still to be sent waits for the next start."""
        self._stop.set()
        self._courier.unregister(self.name)
        self._courier.expect(self.name, is_expected=False)
        if self._live is not None:
            self._live.close()
        self._thread.join(CLOSING_S)
        if self._thread.is_alive():
            LOG.warning("channel %s did not end in time", self.name)
        try:
            self.connection.close()
        except (OwlError, OSError) as error:
            LOG.warning("channel %s did not close: %s", self.name, error)

    @property
    def is_idempotent(self) -> bool:
        """As the channel says."""
        return self.connection.is_idempotent

    def deliver(self, message: Outbound) -> None:
        """Send a message, in place of what was shown of it while it was written; the outcome is counted."""
        shown = self._live.settle(message.key) if self._live is not None else None
        if shown == "" and not self.is_idempotent and not message.text.startswith(REPEAT):
            message = replace(message, text=f"{REPEAT}\n{message.text}")
        try:
            if shown == "" and self.is_idempotent:
                shown = self.connection.show(message)  # once more: that names what stands there, or puts it there
            self.connection.deliver(replace(message, shown=shown) if shown else message)
        except Busy:
            raise  # it costs no attempt
        except (OwlError, OSError):
            self.gateway.count("failed")
            raise
        self.gateway.count("sent")
        if shown is not None and self._live is not None:
            self._live.forget(message.key)

    def state(self) -> ChannelState:
        """The state of the connection with its counters and warnings."""
        return ChannelState(
            self.name,
            self._state,
            self._problem,
            self._since_ms,
            max(0, self._restarts),
            warnings=tuple(self.connection.warnings()),
            key=key_of(self.name),
            **self.gateway.counts,
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.connection.receive(Running(self.gateway, self._stop, self._note_connected))
                if self._stop.is_set():
                    return
                raise Lost("the connection ended")
            except (OwlError, OSError) as error:
                self._note_failure(str(error))
            except Exception as error:  # one channel's defect must not end it for good, nor anything else
                LOG.exception("channel %s failed", self.name)
                self._note_failure(f"{type(error).__name__}: {error}")
            self._stop.wait(pause_s(self._failures, self._first_s))

    def _note_connected(self) -> None:
        self._failures = 0
        self._restarts += 1
        self._change("connected")
        LOG.info("channel %s is open", self.name)
        if not self._stop.is_set():
            self._courier.register(self.name, self, is_live=self.connection.is_live)

    def _note_failure(self, problem: str) -> None:
        self._failures += 1
        if self._stop.is_set():
            return
        self._courier.unregister(self.name)
        if self._problem != problem:  # said once, not every minute
            LOG.error("channel %s is not connected, again in %g s: %s", self.name, pause_s(self._failures), problem)
        self._change("failing", problem)

    def _change(self, state: str, problem: str = "") -> None:
        self.gateway.note_state(state == "connected")
        if (state, problem) != (self._state, self._problem):
            self._state, self._problem, self._since_ms = state, problem, now_ms()


def pause_s(failures: int, first_s: float = FIRST_S) -> float:
    """The pause after so many failures in a row."""
    return min(LONGEST_S, first_s * 2.0 ** min(max(0, failures - 1), 10)) if failures else 0.0


class Connections:
    """The channels in `connectors`: those that are on run."""

    def __init__(
        self,
        courier: OutboxSender,
        events: Events,
        settings: Callable[[], Channels],
        services: Mapping[str, Any],
        parts: GatewayParts | None = None,
        *,
        make: Callable[[str, Any, Mapping[str, Any]], Connection] = connect,
    ) -> None:
        """`services` are what files of channels may ask for by name. Without `parts` channels send and take no messages."""
        self._make = make
        self._courier = courier
        self._events = events
        self._parts = parts
        self._settings = settings
        self._runners: dict[str, Runner] = {}
        self._broken: dict[str, str] = {}
        self._tables: dict[str, Any] = {}
        self._services = services
        self._is_started = False
        self._guard = threading.RLock()
        events.subscribe(LoopStored, self._end_typing)
        events.subscribe(ConfigReloaded, lambda reloaded: self.apply())

    # -- running ------------------------------------------------------------------------------------

    def start(self, services: Mapping[str, Any] | None = None) -> None:
        """Run those that are switched on; with more `services` that only a serving core has."""
        self._services = {**self._services, **(services or {})}
        self._is_started = True
        self.apply()

    def apply(self) -> None:
        """Run what the configuration switches on now; one whose table has changed begins anew. Nothing before `start`."""
        with self._guard:
            if not self._is_started:
                return
            for name in set(self._tables) - set(read_tables(self._settings())):
                self._stop_one(name)  # a workspace that is no longer there
                del self._tables[name]
            for name, table in read_tables(self._settings()).items():
                if self._tables.get(name) == table:
                    continue
                self._stop_one(name)
                self._tables[name] = table
                if table.enabled:
                    self._start_one(name, table)
                else:
                    LOG.info("channel %s is disabled", name)

    def close(self) -> None:
        """Stop them; what is still to be sent waits for the next start."""
        with self._guard:
            self._is_started = False
            for name in list(self._runners):
                self._stop_one(name)
            self._tables.clear()

    def _start_one(self, name: str, table: Any) -> None:
        try:
            self._check_app(name, table)
            connection = self._make(name, table, self._services)
            admitted = Admission("open") if connection.checks_senders else admission(table, folds_case=connection.folds_case)
            parts, live = self._parts, None
            if connection.is_streaming and parts is not None:
                live = LiveAnswers(name, connection, parts.store, parts.inbox.feed)
            gateway = Gateway(name, admitted, parts, connection, live)
        except (OwlError, OSError) as error:
            LOG.error("channel %s is not open: %s", name, error)
            self._broken[name] = str(error)
            self._events.publish(ChannelChanged(name, False))
            return
        self._runners[name] = Runner(name, connection, gateway, self._courier, live=live)
        self._runners[name].start()

    def _check_app(self, name: str, table: Any) -> None:
        """ConfigError for a workspace with the app of another one: Slack would share the events out between the two."""
        for other, known in self._tables.items():
            if isinstance(table, Workspace) and isinstance(known, Workspace) and other != name and known.enabled:
                if known.app_token == table.app_token:
                    key = f"{key_of(name)}.app_token"
                    raise ConfigError(f"{key} is that of {other}", key=key, hint="each workspace has an app of its own")

    def _stop_one(self, name: str) -> None:
        self._broken.pop(name, None)
        if (runner := self._runners.pop(name, None)) is not None:
            runner.close()
        self._events.publish(ChannelChanged(name, None))

    def connection(self, name: str) -> Connection:
        """The channel of this name, while it runs; NotFound when it is off, Unavailable while it is not open."""
        runner = self._runners.get(name)
        if runner is None:
            table = read_tables(self._settings()).get(name)
            if table is not None and table.enabled:  # who is told 404 may not try again
                raise Unavailable(f"channel {name} is not open at the moment", hint="try again; owlbox channel list says why")
            raise NotFound(f"channel {name} is not switched on", hint=f"owlbox channel enable {name}")
        return runner.connection

    # -- what is said of them -------------------------------------------------------------------------

    def channel_states(self) -> dict[str, bool | str]:
        """For each channel whether it is connected, or why it is not although it is switched on."""
        short: dict[str, bool | str] = {}
        for one in self.list_states():
            short[one.name] = one.state in ("connected", "on") or (one.state != "off" and (one.problem or one.state))
        return short

    @method("channel.list")
    def list_states(self) -> list[ChannelState]:
        """Every channel that there is: whether it is on and connected, its problem, and how many messages it took and refused."""
        with self._guard:
            return [self._state_of(name, table) for name, table in read_tables(self._settings()).items()]

    def _state_of(self, name: str, table: Any) -> ChannelState:
        if (runner := self._runners.get(name)) is not None:
            return runner.state()
        if name in self._broken:
            return ChannelState(name, "broken", self._broken[name], key=key_of(name))
        return ChannelState(name, ("connecting" if self._is_started else "on") if table.enabled else "off", key=key_of(name))

    @method("channel.test", is_long=True)
    def test(self, name: Name) -> dict[str, Any]:
        """Try what a channel needs, over connections of its own, whether it is on or not: what was tried."""
        tables = read_tables(self._settings())
        if name not in tables:
            raise NotFound(f"no channel {name}", hint=f"there are {', '.join(tables)}")
        if missing := _list_missing(name, tables[name]):
            hint = f"owlbox config set {missing[0]} VALUE"
            raise ConfigError(f"{' and '.join(missing)} must be set first", key=missing[0], hint=hint)
        connection = connect(name, tables[name], self._services)
        try:
            return {"channel": name, "tried": connection.check(), "warnings": connection.warnings()}
        finally:
            connection.close()

    def _end_typing(self, stored: LoopStored) -> None:
        for runner in list(self._runners.values()):
            runner.gateway.end_typing(stored.loop.id)
