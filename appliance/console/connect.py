"""How a command reaches the core: over its socket when one runs, else the same method table in this process.

The heavy parts are imported only when this process must do the work itself, so that commands against a
running core start quickly (the one place besides `cli.main` where imports are not at the top).
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from appliance.clock import monotonic_s, sleep_s, use_zone
from appliance.console import garbage
from appliance.errors import DeadlineExceeded, Lost, OwlError, Refused, Unavailable
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import CONTEXT, STARTING_S, Client, read_identity

# Methods whose answer depends on what is in box/.
VERBS = ("set", "get", "rm", "cp", "mv", "resolve")
ENTRY_METHODS = ("entry.list", "entry.view", "entry.history", *(f"entry.{verb}" for verb in VERBS))
FOLDER_METHODS = ("message.send", "tool.call", "skill.list", *ENTRY_METHODS)
Listen = Callable[[str, dict[str, Any]], None]
ANSWER_S = 3600.0
GONE_S = 5.0  # a core whose socket is gone makes it anew within a few seconds
CALL_S = 150.0  # a call may have to load the model first


class Reach(Protocol):
    """A way to call the method table."""

    is_remote: bool

    def call(self, method: str, params: dict[str, Any] | None = None, listen: Listen | None = None) -> Any: ...
    def stop(self, run: str) -> None: ...
    def close(self) -> None: ...


class RemoteTable:
    """The table of a running core."""

    is_remote = True

    def __init__(self, path: str, identity: Mapping[str, str]) -> None:
        self._path = path
        self._identity = identity
        self._client: Client | None = self._greet()

    def call(self, method: str, params: dict[str, Any] | None = None, listen: Listen | None = None) -> Any:
        """The result; notifications go to `listen`. After a stop or a lost core the next call connects anew."""
        client, self._client = self._client or self._greet(), None
        try:
            stream = client.stream(method, params, deadline_s=ANSWER_S if listen else CALL_S)
            while True:
                try:
                    name, value = next(stream)
                except StopIteration as end:
                    self._client = client
                    return end.value
                if listen is not None:
                    listen(name, value)
        finally:
            # What is left of an unfinished call would be taken for a part of the next one.
            if self._client is None:
                client.close()

    def stop(self, run: str) -> None:
        """Stop an answer, over a connection of its own because the other one is busy."""
        with Client(self._path, name="cli", identity=self._identity) as other:
            other.call("run.stop", {"run": run})

    def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()

    def _greet(self) -> Client:
        made = Client(self._path, name="cli", timeout_s=STARTING_S, identity=self._identity)
        _show_times_in(str(made.server.get("zone", "")))
        return made


class InProcess:
    """The table of a core that lives for this one command."""

    is_remote = False

    def __init__(self, home: Home, environ: Mapping[str, str]) -> None:
        with garbage.loading():
            from appliance.runtime import jsonrpc, methods
            from appliance.service.core import Core

        self._context = environ.get(CONTEXT, "")
        self._core = Core(home, environ, process="cli", is_shared=False)
        self._core.recover()
        _show_times_in(self._core.live.current.system.timezone)
        self._check_path = jsonrpc.check_path
        self._has_looked = False
        self._local_call = methods.LocalCall

    def call(self, method: str, params: dict[str, Any] | None = None, listen: Listen | None = None) -> Any:
        """The result; notifications go to `listen`."""
        if method == "discover":
            return self._core.table.describe()
        if method == "message.send":
            if (params or {}).get("wait", True):
                self._check_path(str(self._core.broker.socket))  # before anything is recorded
            else:
                self._core.inbox.close("this process only hands it in")
        if method in FOLDER_METHODS and not self._has_looked and not self._core.store.is_read_only:
            self._core.box_folder.compare()  # no core watched the folder meanwhile
            self._has_looked = True
        call = self._local_call(listen or (lambda name, value: None), context=self._context)
        return self._core.table.call(call, method, params or {})

    def stop(self, run: str) -> None:
        """Stop an answer."""
        self._core.inbox.stop(run)

    def close(self) -> None:
        """End the core of this command."""
        self._core.close("command finished")


def _show_times_in(zone: str) -> None:
    """Moments of this command are those of this zone; what it shows instead of one that is not known is said."""
    if not use_zone(zone):
        said = f"owlbox: system.timezone {zone!r} is not known: times are UTC (owlbox doctor)"
        print(said, file=sys.stderr)


def reach(home: Home, environ: Mapping[str, str]) -> Reach:
    """The running core if there is one, else this process."""
    identity = read_identity(environ)
    try:
        if (path := _await_core(home, environ)) is not None:
            return RemoteTable(str(path), identity)
    except DeadlineExceeded as error:
        raise paths.silent_core(home) or error from None
    except Lost:
        pass  # the file is a dead core's
    except PermissionError:
        raise Refused(f"user {os.getuid()} may not use this Owlbox", hint="sudo adduser YOU owlbox, then log in again") from None
    if "ssh_key" in identity:  # who it is, only the core can say
        raise Unavailable("no core is running", hint="ask the owner of this box to start it")
    refuse_root(home)
    return InProcess(home, environ)


def _await_core(home: Home, environ: Mapping[str, str]) -> Path | None:
    """The socket of the running core, of one that is starting as soon as it listens; None where none runs.

    A change beside a core that is starting would be made behind its back: what it has read already, it goes on with.
    """
    began_s = monotonic_s()
    while not (path := paths.find_core(home, environ)).exists() or paths.is_core_stopped(home):
        if (fault := paths.silent_core(home)) is None:
            return None
        limit_s = GONE_S if paths.read_holder(home)[1] else STARTING_S
        if paths.is_core_stopped(home) or monotonic_s() > began_s + limit_s:
            raise fault
        sleep_s(0.05)
    return path


@contextmanager
def connected(home: Home) -> Iterator[Reach]:
    """A connection for the time of a command; closed whatever happens."""
    way = reach(home, os.environ)
    try:
        yield way
    finally:
        way.close()


def reload_core(home: Home) -> list[str]:
    """Put what was changed in owlbox.toml in force in a core that runs; the outcome in words, none where no core runs."""
    if not paths.find_core(home, os.environ).exists():
        return []
    try:
        with connected(home) as way:
            done = way.call("core.reload") if way.is_remote else {}
    except OwlError as error:
        return [f"The running core goes on as before: {error}"]
    told = [f"The running core uses {done['changed']} from now on."] if done.get("changed") else []
    return [*told, *(f"Not in force yet; {line}" for line in pending_lines(done))]


def pending_lines(given: Mapping[str, Any]) -> list[str]:
    """Changed keys that are not in force, and what they wait for, a line each."""
    waits = (("broker", "when the model process has answered what it is asked now"), ("restart", "after a restart"))
    return [f"{when}: {given[what]}" for what, when in waits if given.get(what)]


def refuse_root(home: Home) -> None:
    """Refused when root would work in somebody else's home: files made so would lock the service out of it."""
    owner = home.require().root.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise Refused(f"{home.root} belongs to user {owner} and no core is running", hint="start the core, or run as that user")


def require_owner(home: Home) -> None:
    """Refused when this process does not own the home: for commands that work on its files beside a running core."""
    owner = home.require().root.stat().st_uid
    if os.geteuid() != owner:
        raise Refused(f"{home.root} belongs to user {owner}", hint="run this as that user: sudo -u NAME owlbox ...")
