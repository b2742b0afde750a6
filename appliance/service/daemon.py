"""Runs the core as a service: the lock against a second core, the socket, signals and the orderly end.

What it serves is built by `core`. Nothing here decides anything about a turn.

A logout or a cleaner of /tmp may take the runtime folder away: `SocketWatch` looks once a second,
whenever the watched folder is looked at, and makes the sockets anew, also one that systemd holds, which systemd does not.
"""

import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from appliance import __version__
from appliance.clock import Alarms
from appliance.errors import ConfigError, OwlError, Refused, StoreError
from appliance.language.times import timezones
from appliance.runtime import paths, sd_notify
from appliance.runtime.jsonrpc import NOBODY, Peer
from appliance.runtime.paths import Home
from appliance.runtime.rpc_server import Gate, Listener, listen
from appliance.runtime.signals import Signals
from appliance.runtime.users import user_name
from appliance.secrets import plaintext_migration
from appliance.service.core import Core
from appliance.service.heap import HeapCare, share_heaps
from appliance.service.parts.programs import hang_up_on_ended, open_programs
from appliance.store import disk_faults, storage_errors
from appliance.upkeep import home_faults
from appliance.upkeep.home_lock import Lock

LOG = logging.getLogger(__name__)
CHECK_S, CHECK_UNCLEAN_S = 2.0, 60.0  # longest check of the database at a start, after a clean end and after another
READING_S = 1.0  # between two looks whether a disk that took no writes takes them again
WRITES_AGAIN = -1
MAX_TOKEN, MAX_KEY = 128, 16_384
AGAIN = "OWLBOX_AGAIN"  # names the process that has begun anew, which it does once


def serve(home: Home, environ: Mapping[str, str]) -> int:
    """Run the core until a signal or a client ends it; returns the exit code."""
    lock = Lock(home.require().lock)
    try:
        settle(home, environ)
        share_heaps()
        signals = Signals((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        while (code := _serve(home, environ, lock, signals)) == WRITES_AGAIN:
            print("owlbox: the disk takes writes again", file=sys.stderr, flush=True)
        if stuck := [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread() and _is_stuck(t)]:
            # Python would wait for them, without a lock on the home and without a core to ask.
            print(f"owlbox: left behind: {', '.join(stuck)}", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        return code
    finally:
        lock.release()


def settle(home: Home, environ: Mapping[str, str], *, is_worker: bool = False) -> None:
    """Move plain keys into the vault and begin this process anew, so that none is left in its memory or environment.

    Returns when there is nothing to move, or when it cannot be done.
    """
    is_again = environ.get(AGAIN) == str(os.getpid())
    is_found = bool(plaintext_migration.found(home, environ))
    if is_again or environ is not os.environ or not (is_found or plaintext_migration.spare(home, environ)):
        return
    if is_found:
        core = Core(home, environ, process="worker" if is_worker else "core", is_shared=not is_worker)
        try:
            moved = core.vault.settle(home, environ)
        finally:
            core.close("keys are being moved into the vault")
    else:
        moved = plaintext_migration.move(home, environ, lambda name, value: False)
    for line in moved.notices if moved else ("keys in plain could not be moved into the vault; the log says why",):
        print(f"owlbox: {line}", file=sys.stderr, flush=True)
    if moved:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**moved.environ, AGAIN: str(os.getpid())})


def _is_stuck(thread: threading.Thread) -> bool:
    thread.join(0.2)
    return thread.is_alive()


def _serve(home: Home, environ: Mapping[str, str], lock: Lock, signals: Signals) -> int:
    """Serve with a core of its own; WRITES_AGAIN when a core that only read has to make way for one that writes."""
    notifier = sd_notify.Notifier(environ)
    given = sd_notify.given_socket(environ)
    core = Core(home, environ)
    listener: Listener | None = None
    place = Path(given.getsockname()) if given is not None else paths.core_socket(core.runtime)
    try:
        was_clean = all(lease.ended_ms is not None for lease in core.leases.listing() if lease.kind == "core")
        if not was_clean:
            notifier.status("checking the database after an unclean end")
        problems = core.store.problems(limit_s=CHECK_S if was_clean else CHECK_UNCLEAN_S)
        if problems:
            raise StoreError(f"database {home.database} is damaged: {problems[0]}", hint=storage_errors.AFTER_DAMAGE)
        if core.store.is_read_only:
            listener = open_listener(core, given)
            _serve_reading(core, listener)
            if not _wait(core, signals, notifier, str(place)):
                return 0
            return 1 if given is not None else WRITES_AGAIN  # systemd, whose socket it is, starts the next one
        core.queue.take_drops()
        core.recover()
        _settle(core)
        listener = open_listener(core, given)
        lease = core.leases.begin("core")
        servers: dict[Path, SocketServer] = {place: listener}
        heap = HeapCare(core.store)
        core.shutdown.before("heap", heap.stop)
        sockets = SocketWatch(core, servers, lambda: lock.tell(str(place)))
        # Before the listener: a socket that we closed is not to be made anew.
        core.shutdown.before("folder", core.box_folder.watch.stop)
        core.shutdown.before("listener", listener.stop_accepting)
        core.shutdown.before("channels", core.connections.close)
        core.shutdown.before("skills", core.skill_rescan.stop)
        core.shutdown.after("hang up", listener.close)
        core.shutdown.after("lease", lambda: core.leases.end(lease, core.shutdown.reason))
        core.broker.start()
        hang_up_on_ended(core, listener.hang_up)
        core.policy.ssh_keys.write_file()
        listener.start()
        lock.tell(str(place))
        if (programs := open_programs(core, build_gate(core))) is not None:
            core.shutdown.before("programs", programs.close)
            programs.start()
            servers[paths.programs_socket(core.runtime)] = programs
        heap.start()
        core.queue.courier.start()
        core.connections.start({"listener": listener})
        core.schedules.runner.start()
        core.box_folder.watch.start(sockets.look)
        core.skill_rescan.start()
        core.indexer.start()
        core.model_parts.watching.start()
        if core.web_page is not None:
            core.shutdown.before("web page", core.web_page.stop)
            core.web_page.start()
        again = core.inbox.start_waiting()
        _announce(core)
        LOG.info("core is up", extra={"home": str(home.root), "waiting": again})
        _wait(core, signals, notifier, str(place))
        return 0
    finally:
        notifier.stopping(core.shutdown.reason or "failed to start")
        core.close("failed to start" if core.shutdown.state == "running" else core.shutdown.reason)
        if listener is not None and listener.sock is not given:
            place.unlink(missing_ok=True)  # also one that was made anew in place of systemd's
        paths.programs_socket(core.runtime).unlink(missing_ok=True)


def _serve_reading(core: Core, listener: Listener) -> None:
    """Answer what needs no write, on a disk that takes none: nothing is mended, watched, sent, due or asked of a model."""
    core.shutdown.before("listener", listener.stop_accepting)
    core.shutdown.after("hang up", listener.close)
    listener.start()
    _announce(core)
    fault = home_faults.disk(core.home, core.store)
    LOG.error("the core only reads: %s", fault)
    print(f"owlbox: only reading: {fault}", file=sys.stderr, flush=True)


def _settle(core: Core) -> None:
    """Bring the installation's own schedules in line, before any call; what cannot be done now is done at the next change."""
    try:
        core.heartbeat.sync()
    except OwlError as error:
        LOG.error("the installation's own schedules are as they were: %s", error)


def _announce(core: Core) -> None:
    """Say on stderr who is up; `serve` itself never opens a terminal."""
    print(f"owlbox {__version__} serves {core.home.root}", file=sys.stderr, flush=True)


def _wait(core: Core, signals: Signals, notifier: sd_notify.Notifier, path: str) -> bool:
    """Parked until a signal; SIGHUP reloads, the others end. A client's shutdown arrives as SIGTERM.

    A core that only reads looks every few seconds whether its disk takes writes again, and ends with True when it does.

    Under a watchdog it wakes up to say that this thread and the socket at `path` both respond.
    """
    notifier.ready(f"serves {core.home.root}")
    while True:
        is_reading = core.store.is_read_only
        number = signals.wait(min(notifier.interval_s or READING_S, READING_S) if is_reading else notifier.interval_s)
        if number is None:
            notifier.pulse(path)
            if is_reading and not disk_faults.is_read_only(core.home.root):
                core.shutdown.initiate("the disk takes writes again")
                return True
            continue
        if number == signal.SIGHUP:
            notifier.reloading()
            try:
                core.reload()
                core.queue.take_drops()
                notifier.ready(f"serves {core.home.root}")
            except ConfigError as error:
                notifier.ready(f"keeps the old configuration: {error}")  # logged too
            except (OwlError, OSError) as error:  # a busy database or a full disk is no reason to end
                LOG.error("reload was not finished: %s", error)
                notifier.ready(f"reload was not finished: {error}")
            continue
        if core.shutdown.state == "running":
            core.shutdown.initiate(f"signal {signal.Signals(number).name}")
        return False


def build_gate(core: Core) -> Gate:
    """Says as whom a caller of the core works, by what the kernel says of them and a token; Refused for a stranger."""
    allowed = {os.getuid(), 0}
    sshd = core.base.environ.get("OWLBOX_SSH_USER", "")  # whom sshd runs `owlbox door` as
    guest = core.base.environ.get("OWLBOX_WEB_USER", "")  # the HTTP server's user, which serves strangers

    def gate(peer: Peer, params: dict[str, Any]) -> Peer | None:
        if peer.person:
            return None  # authenticated by the server that handed the connection over
        # Socket mode 0660 admits the group; its members are people of this box (host trust).
        if peer.uid not in allowed and os.getgid() not in (peer.gid, *peer.groups):
            LOG.warning("refused hello of uid %d", peer.uid)
            raise Refused(f"user {peer.uid} may not use this Owlbox", hint="ask its admin")
        if token := params.get("token"):
            try:
                login = core.policy.logins.find(str(token)[:MAX_TOKEN])
            except Refused:
                LOG.warning("refused hello of pid %d: a token that was not issued", peer.pid)
                raise
            return Peer(peer.pid, NOBODY, NOBODY, person=login.person, login=login.id)
        if key := params.get("ssh_key"):
            # A public key is no secret: only the user whose every process sshd has begun may say that it was proved.
            if peer.uid not in allowed and not (sshd and user_name(peer.uid) == sshd):
                raise Refused(f"user {peer.uid} may not speak for a key", hint="leave it out")
            proved = core.policy.ssh_keys.find_person(str(key)[:MAX_KEY])
            return Peer(peer.pid, NOBODY, NOBODY, person=proved.person, login=proved.fingerprint)
        if peer.uid not in allowed:
            core.base.people.require_active(core.callers.name_of(peer))
        # By itself it may do what everybody may, whoever the admins are: only a session's token makes it more.
        return Peer(peer.pid, NOBODY, NOBODY, person=guest) if guest and user_name(peer.uid) == guest else None

    return gate


def open_listener(core: Core, given: socket.socket | None) -> Listener:
    """A listener that serves the core's methods at its socket once it is started, or at the one that systemd gave us."""
    settings = core.live.current
    path = paths.core_socket(core.runtime)
    try:
        sock = listen(path) if given is None else given
    except OSError as error:
        raise OwlError(f"cannot listen at {path}: {error.strerror}") from None
    return Listener(
        sock,
        name="core",
        gate=build_gate(core),
        table=core.table,
        calls=core.calls,
        alarms=Alarms(),
        deadline_s=settings.api.rpc_timeout_ms / 1000,
        is_given=given is not None,
        zone=lambda: timezones.resolve_local(core.live.current.system.timezone),
    )


class SocketServer(Protocol):
    """What accepts at a socket, and can do so at another one."""

    def accept_at(self, sock: socket.socket) -> None: ...


class SocketWatch:
    """Binds the sockets of servers again when their names are gone, then calls `bound`."""

    def __init__(self, core: Core, servers: Mapping[Path, SocketServer], bound: Callable[[], None]) -> None:
        self._core = core
        self._servers = servers
        self._bound = bound
        self._inodes: dict[Path, int] = {}  # of names that were seen to be open
        self._has_failed = False

    def look(self) -> None:
        """See to it that each name is there; what cannot be made is said once and tried again at the next look."""
        lost = [path for path in self._servers if not (inode := _inode_of(path)) or inode != self._inodes.get(path)]
        if not lost:
            return
        try:
            paths.runtime_folder(self._core.home, self._core.base.environ, make=True)
            gone = [path for path in lost if not _is_open(path)]
            for path in gone:
                LOG.warning("%s is gone, and is made again", path)
                self._servers[path].accept_at(listen(path))
            if gone:
                self._bound()
            self._inodes.update({path: _inode_of(path) for path in lost})
            self._has_failed = False
        except (OwlError, OSError) as error:
            if not self._has_failed:
                LOG.error("the sockets in %s cannot be made: %s", self._core.runtime, error)
            self._has_failed = True


def _inode_of(path: Path) -> int:
    """The number of the file that has this name, 0 without one."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _is_open(path: Path) -> bool:
    """Whether somebody listens under this name; a core that was killed may have left a socket in place of systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        return caller.connect_ex(str(path)) not in (errno.ENOENT, errno.ECONNREFUSED)
