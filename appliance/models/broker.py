"""The broker process: holds the models and answers the core over its own socket.

Started by the core with a token in OWLBOX_TOKEN, valid for this process only, or by systemd with none;
then only our own user, and the one in OWLBOX_CORE_UID or OWLBOX_CORE_USER, are served. With OWLBOX_CHILD=1 it ends when the
thread that started it does, and OWLBOX_CONFIG names the configuration that the core has in force. Idle means
parked: no thread wakes up while nobody asks. It opens the vault, so it leaves no core file and no other process of its
user may look into it. With `models.local_only` the kernel refuses it every socket but Unix ones. Knows nothing about
conversations. Not hidden: root reads everything.
"""

import ctypes
import hmac
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Annotated, Any

from appliance.clock import Alarms, monotonic_s
from appliance.errors import BadInput, DeadlineExceeded, OwlError, Refused
from appliance.models.pool import Pool
from appliance.providers import memory_room
from appliance.records import Ask, Finish, to_plain
from appliance.runtime import config, log, rpc_server, sd_notify
from appliance.runtime.jsonrpc import Peer
from appliance.runtime.methods import method
from appliance.runtime.paths import Home, broker_socket, runtime_folder
from appliance.runtime.rpc_server import Gate, Listener, ServedCall
from appliance.runtime.signatures import Range
from appliance.sandbox import seccomp
from appliance.secrets import vault
from appliance.secrets.vault import Vault
from appliance.secrets.vault_methods import Custody

LOG = logging.getLogger(__name__)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
OOM_SCORE = "500"  # as in its unit
LOAD_S = 600.0
MB = 1_000_000
MAX_TEXTS = 256  # of one call: their vectors fit in a frame


class Service:
    """The methods of the broker's socket."""

    def __init__(
        self,
        pool: Pool,
        vault_status: Callable[[], dict[str, Any]] = dict,
        *,
        is_confined: bool = False,
        end_when_idle: Callable[[], bool] = bool,
    ) -> None:
        """`end_when_idle` ends this process once it answers nobody, and says whether that is now."""
        self._pool = pool
        self._end_when_idle = end_when_idle
        self._vault_status = vault_status
        self._is_confined = is_confined
        self._born_s = monotonic_s()
        self._spawn_s = _age_s()
        self._guard = threading.Lock()
        self._served = 0

    @method("renew")
    def renew(self, call: ServedCall, is_local_only: bool = False) -> dict[str, Any]:
        """The configuration has changed: end as soon as nobody is answered, for the next process to read it.

        With `is_local_only` no request to a remote model begins from now on; one that is being answered is finished.
        """
        if is_local_only:
            self._pool.remotes.deny()
            self._is_confined = self._is_confined or confine()
        return {"pid": os.getpid(), "is_idle": self._end_when_idle()}

    @method("plan")
    def plan(self, call: ServedCall, pool: str = "") -> list[dict[str, Any]]:
        """The routes of a pool that can be asked now, best first."""
        return [to_plain(route) for route in self._pool.plan(pool)]

    @method("generate", is_long=True)
    def generate(self, call: ServedCall, route: str, ask: Ask) -> dict[str, Any]:
        """Streams `piece` notifications {id, text, is_reasoning}; the result is the Finish."""
        started_s = monotonic_s()
        first_ms = 0
        finish: Finish | None = None
        pieces = self._pool.generate(route, ask, call.cancel)
        try:
            for piece in pieces:
                if isinstance(piece, Finish):
                    finish = piece
                    continue
                first_ms = first_ms or _ms_since(started_s)
                call.notify("piece", {"id": call.id, **to_plain(piece)})
        except OwlError as error:
            LOG.info("not generated", extra={"route": route, "slot": ask.slot, "result": error.outcome, "ms": _ms_since(started_s)})
            raise
        finally:
            pieces.close()
        if finish is None:
            raise OwlError(f"route {route} ended without a finish", hint="the log has the details")
        with self._guard:
            self._served += 1
        LOG.info(
            "generated",
            extra={
                "route": route,
                "model": finish.model,
                "slot": ask.slot,
                "purpose": ask.purpose,
                "prompt": finish.prompt_tokens,
                "evaluated": finish.evaluated_tokens,
                "output": finish.output_tokens,
                "result": finish.reason,
                "first_ms": first_ms,
                "ms": _ms_since(started_s),
            },
        )
        return dict(to_plain(finish))

    @method("measure")
    def measure(self, call: ServedCall, route: str, ask: Ask) -> dict[str, Any]:
        """Tokens of a request, per named part and in total."""
        return dict(to_plain(self._pool.measure(route, ask, call.cancel)))

    @method("count")
    def count(self, call: ServedCall, route: str, texts: list[str]) -> list[int]:
        """Tokens of each text, by the route's tokenizer."""
        return self._pool.count(route, texts, call.cancel)

    @method("embed", is_long=True)
    def embed(
        self,
        call: ServedCall,
        texts: list[str],
        is_background: bool = False,
        deadline_s: Annotated[float, Range(0, 86_400), "longest wait"] = 60,
    ) -> dict[str, Any]:
        """`vectors` has a unit vector for each text, at most 256 texts, `model` what made them; without texts nothing is loaded."""
        if len(texts) > MAX_TEXTS:
            raise BadInput(f"{len(texts)} texts at once, {MAX_TEXTS} are allowed", hint="send them in several calls")
        model, vectors = self._pool.embed(texts, call.cancel, deadline_s=deadline_s, is_background=is_background)
        return {"model": model, "vectors": vectors}

    @method("load")
    def load(self, call: ServedCall, route: str) -> dict[str, Any]:
        """Bring the route's model into memory now, so that the first answer does not wait for it."""
        return dict(to_plain(self._pool.load(route, call.cancel, LOAD_S)))

    @method("providers")
    def providers(self, call: ServedCall) -> dict[str, Any]:
        """How each configured provider is doing, and what is spent; asks none of them."""
        return self._pool.remotes.status()

    @method("listing", is_long=True)
    def listing(self, call: ServedCall) -> list[dict[str, Any]]:
        """Every model of every configured provider; asks all of them."""
        return self._pool.remotes.listing(call.cancel)

    @method("reset")
    def reset(self, call: ServedCall, provider: str = "") -> dict[str, Any]:
        """Ask a provider again that is left alone, "" for all of them."""
        self._pool.remotes.reset(provider)
        return self._pool.remotes.status()

    @method("status")
    def status(self, call: ServedCall) -> dict[str, Any]:
        """What is loaded, what it takes, whether it is busy, how many answers were given."""
        mine: dict[str, Any] = {"served": self._served, "pid": os.getpid(), "is_confined": self._is_confined}
        mine |= {"uptime_s": round(monotonic_s() - self._born_s, 1), "spawn_s": self._spawn_s}
        return {**self._pool.status(), **_measure_memory(), **mine, "vault": self._vault_status()}


def serve(home: Home, environ: MutableMapping[str, str], *, socket_path: Path | None = None, ready_fd: int | None = None) -> int:
    """Run the broker until SIGTERM or SIGINT; the exit code. Call it from the main thread of its own process.

    `environ` is usually os.environ: the token is taken out of it. One byte is written to `ready_fd` when
    the socket accepts.
    """
    parent = os.getppid()
    # Blocked here, before any thread exists, so that sigwait below is the only one that gets them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    is_child = environ.get("OWLBOX_CHILD") == "1"
    if is_child:
        _die_with(parent)
    users, gate = core_users(environ), make_gate(environ)
    given_config = environ.pop("OWLBOX_CONFIG", "")
    settings = config.load(home, environ, path=Path(given_config) if is_child and given_config else None)
    redactor = log.Redactor(config.secrets(settings))
    is_service = sd_notify.is_service(environ) and not is_child
    log.start("broker", home.logs / "broker", settings.system.level, redactor, is_service=is_service)
    harden()
    is_confined = settings.models.local_only and confine()
    safe = Vault(home.vault, credential=vault.credential(environ), learn=redactor.add)
    custody = _open_custody(safe, redactor, users)
    notifier, given = sd_notify.Notifier(environ), sd_notify.given_socket(environ)
    if given is None:
        path = socket_path or broker_socket(runtime_folder(home, environ, make=True))
    else:
        path = Path(given.getsockname())
    pool = Pool(home, settings, secret=safe.resolve)
    sock = given or rpc_server.listen(path)
    mine = path.stat().st_ino
    server = Listener(sock, name="broker", gate=gate, alarms=Alarms(), is_given=given is not None, owners=users)
    end = lambda: server.end_when_idle(lambda: os.kill(os.getpid(), signal.SIGTERM))  # noqa: E731
    server.offer(Service(pool, custody.status, is_confined=is_confined, end_when_idle=end), custody)
    server.start()
    LOG.info("listening", extra={"socket": str(path)})
    if ready_fd is not None:
        os.write(ready_fd, b"1")
        os.close(ready_fd)
    notifier.ready(f"listens at {path}")
    received = _wait_signal(notifier, path)
    LOG.info("stopping", extra={"signal": received})
    notifier.stopping(received)
    server.close()
    if given is None and path.exists() and path.stat().st_ino == mine:  # a newer broker may own the path by now
        path.unlink(missing_ok=True)
    try:
        pool.close()
    except DeadlineExceeded:
        LOG.warning("a generation did not stop in time")
    safe.close()
    log.stop()
    return 0


def _wait_signal(notifier: sd_notify.Notifier, path: Path) -> str:
    """Parked until a signal to stop, whose name is returned; under a watchdog it wakes up to say that we respond."""
    while True:
        if notifier.interval_s is None:
            return signal.Signals(signal.sigwait(STOP_SIGNALS)).name
        received = signal.sigtimedwait(STOP_SIGNALS, notifier.interval_s)
        if received is not None:
            return signal.Signals(received.si_signo).name
        notifier.pulse(str(path))


def make_gate(environ: MutableMapping[str, str]) -> Gate:
    """Who may say hello: holders of this process's token, or, when there is none, our user and the core's."""
    token = environ.pop("OWLBOX_TOKEN", "")
    users = core_users(environ)

    def gate(peer: Peer, params: dict[str, Any]) -> None:
        if token:
            given = params.get("token")
            is_welcome = isinstance(given, str) and hmac.compare_digest(
                given.encode("utf-8", "replace"), token.encode("utf-8", "replace")
            )
        else:
            is_welcome = peer.uid in users
        if not is_welcome:
            why = "missing or wrong token" if token else f"user {peer.uid} is not the core's"
            LOG.warning("refused hello", extra={"peer": f"pid={peer.pid} uid={peer.uid}", "reason": why})
            raise Refused(f"the broker serves its own core only: {why}", hint="talk to the core instead")

    return gate


def core_users(environ: Mapping[str, str]) -> set[int]:
    """The users that a core may have: ours, and the one that the unit names."""
    users = {os.getuid()}
    core = environ.get("OWLBOX_CORE_UID", "")
    if core.isdecimal():
        users.add(int(core))
    if name := environ.get("OWLBOX_CORE_USER", ""):
        users.add(sd_notify.user_id(name))
    return users


def harden() -> None:
    """Leave no core file, let no other process of our user read our memory, environment or descriptors, and go before the core does
    when memory ends."""
    try:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    except OSError as error:  # a filter of system calls; its unit says so then
        LOG.warning("the kernel is not told to end the broker first when memory ends: %s", error)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError) as error:  # a filter of system calls; its unit sets the limit then
        LOG.warning("the limit on core files cannot be set: %s", error)
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        LOG.warning("other processes of this user can look into the broker: %s", os.strerror(ctypes.get_errno()))


def confine() -> bool:
    """Give up every network for good, as the kernel sees to it; False, and a line in the log, where the kernel cannot."""
    try:
        seccomp.install(seccomp.no_network())
    except OwlError as error:
        LOG.error("models.local_only is kept by ourselves alone, not by the kernel: %s", error)
        return False
    return True


def _open_custody(safe: Vault, redactor: log.Redactor, users: set[int]) -> Custody:
    """The vault's methods; what it holds is hidden in the log from now on. A vault that cannot be read stops no local model."""
    try:
        redactor.add(*safe.values())
        if safe.is_locked:
            LOG.warning("the vault is locked: owlbox secret unlock")
    except (OwlError, OSError) as error:
        LOG.error("the vault cannot be read: %s", error)
    return Custody(safe, users)


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGTERM when the thread that started us ends; exit at once if it already has."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)


def _measure_memory() -> dict[str, int]:
    """In MB: what this process holds (of the model's file the part it has read), what is left for programs, what there is."""
    page, total = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    held = int(Path("/proc/self/statm").read_text().split()[1])
    return {"rss_mb": page * held // MB, "free_mb": memory_room.free_bytes() // MB, "total_mb": page * total // MB}


def _age_s() -> float:
    """The seconds since the start of this process, from the kernel."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return round(float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"), 2)


def _ms_since(started_s: float) -> int:
    return round((monotonic_s() - started_s) * 1000)
