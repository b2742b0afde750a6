"""The core's client of the broker: plan, generate, measure over its socket, riding out a restart.

Holds no provider key and no model. A broker that is gone or hung before the first piece of an answer is
waited for, up to a limit counted from that loss, while whoever supervises it brings it back; after the first
piece, or when it is lost again and again, the answer is lost and the caller is told. Knows nothing about runs.

Vectors of the texts asked for last are kept, of one model, so that a question is embedded once, whoever looks something up for it.
"""

import logging
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

from msgspec import Struct

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded, Lost, OwlError
from appliance.models.failover import denied
from appliance.records import Ask, Cancel, Finish, Measure, Piece, Route, from_plain, to_plain
from appliance.runtime import log
from appliance.runtime.events import Events
from appliance.runtime.jsonrpc import WATCHER
from appliance.runtime.methods import method
from appliance.runtime.rpc_client import Client

LOG = logging.getLogger(__name__)
CONNECT_S = 5.0
HEALTH_S = 5.0  # how long a healthy broker may take to answer a ping
AT_ONCE = 256  # texts that the broker takes in one call
MEET_S = 60.0  # after which a broker is met again, over a new connection
AHEAD_S = 1.0  # for which routes that were asked for ahead are taken for those of now
SPARE_S = 50.0  # how long a connection is kept for the next request
RESTING_S = 24 * 3600.0
SMALLER = "choose a smaller model or window: owlbox model list, models.context in owlbox.toml"
MAX_LOSSES = 5  # a question that ends every broker is not asked for ever
LAST_STARTS_S = 15.0  # for a broker that ended at every start to do so once more, or not
KEPT = 1000  # texts: examples of the router, questions, and sentences that are asked about again
LONGEST = 2000  # characters of one that is kept


class Embedded(Struct, frozen=True):
    """Unit vectors of some texts, in their order, and the model that made them."""

    model: str
    vectors: Sequence[Sequence[float]]


class VectorCache:
    """Vectors by their texts."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._model = ""
        self._kept: OrderedDict[str, Sequence[float]] = OrderedDict()

    def find(self, texts: Iterable[str]) -> tuple[str, dict[str, Sequence[float]]]:
        """Those of the texts that are known, with their vectors, and the model of them all."""
        with self._guard:
            found = {text: self._kept[text] for text in texts if text in self._kept}
            for text in found:
                self._kept.move_to_end(text)
            return self._model, found

    def keep(self, model: str, vectors: Mapping[str, Sequence[float]]) -> None:
        """Keep what a model made, and nothing of another one."""
        with self._guard:
            if model != self._model:
                self._model = model
                self._kept.clear()
            for text, vector in vectors.items():
                if len(text) <= LONGEST:
                    self._kept[text] = array("d", vector)
                    self._kept.move_to_end(text)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


class BrokerMet(Struct, frozen=True):
    """A broker is about to be asked for the first time, or again after a minute."""

    client: Client


class ModelAnswered(Struct, frozen=True):
    """A request was answered, by the route that `finish` names: after so many seconds, the first of them without a word."""

    route: Route
    ask: Ask
    finish: Finish
    first_s: float = 0.0
    total_s: float = 0.0


class BrokerAccess(Protocol):
    """Where the broker listens now, which may be another place each time, and what brings it back."""

    @property
    def socket(self) -> Path: ...
    @property
    def token(self) -> str: ...
    def revive(self, reason: str) -> str:
        """Start or restart it; why that is not done, "" when it is."""
        ...

    def ended(self) -> str:
        """Why it ended the last time, "" where it is not known: a connection that is cut does not say it."""
        ...


class RunningBroker:
    """A broker that is asked while it runs, and never started."""

    def __init__(self, broker: BrokerAccess) -> None:
        self._broker = broker

    @property
    def socket(self) -> Path:
        return self._broker.socket

    @property
    def token(self) -> str:
        return self._broker.token

    def revive(self, reason: str) -> str:
        return ""

    def ended(self) -> str:
        return ""


class Models:
    """Model port of the core. Publishes `BrokerMet`, and `ModelAnswered`, whose failing subscribers cost no answer."""

    def __init__(
        self,
        broker: BrokerAccess,
        *,
        wait_s: float = 60.0,
        silence_s: float = 30.0,
        health_s: float = HEALTH_S,
        is_local_only: Callable[[], bool] = lambda: False,
        events: Events | None = None,
        known: VectorCache | None = None,
    ) -> None:
        """With `is_local_only` no remote route is asked. `known` is shared by those who ask one broker."""
        self._vectors = known or VectorCache()
        self._broker = broker
        self.wait_s = wait_s
        self.silence_s = silence_s
        self._health_s = health_s
        self._known: tuple[int, float] = (0, 0.0)  # the broker that was met last, and when
        self._is_local_only = is_local_only
        self._events = events or Events()
        self._guard = threading.Lock()
        self._spare: tuple[Client, float] | None = None  # the connection of the last request, and when that ended
        self._ahead: tuple[Client, Callable[[], Any], float] | None = None  # what `plan_ahead` asked, how to read it, and when

    def configure(self, wait_s: float, silence_s: float) -> None:
        """Wait so long for a broker from now on, and take it for hung after so long a silence."""
        self.wait_s, self.silence_s = wait_s, silence_s

    @method("model.plan", access="all")
    def plan(self, pool: str = "") -> tuple[Route, ...]:
        """The routes of a pool that could answer now, best first; what is missing when there is none. Loads nothing."""
        # The empty name is the pool that `models.pool` names; what is missing comes as Unavailable.
        found = None if pool else self._read_ahead()
        if found is None:
            found = self._call_broker("plan", {"pool": pool})
        return tuple(from_plain(Route, r) for r in found)

    def plan_ahead(self) -> None:
        """Ask for the routes of the usual pool, which `plan` reads soon: a message is being put on the disk meanwhile.

        Waits for nobody, and asks only over a connection that is there already.
        """
        client = self._take_spare()
        if client is None:
            return
        try:
            idle = (self._health_s, self._check_broker)
            read = client.begin("plan", {"pool": ""}, deadline_s=60, correlation=log.correlation(), idle=idle)
        except Lost:
            client.close()
            return
        with self._guard:
            before, self._ahead = self._ahead, (client, read, monotonic_s())
        if before is not None:
            before[0].close()

    def _read_ahead(self) -> Any:
        """The answer to `plan_ahead`; None when it was not asked just now, or the broker has gone since."""
        with self._guard:
            ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        client, read, asked_s = ahead
        if monotonic_s() - asked_s > AHEAD_S:
            client.close()
            return None
        try:
            found = read()
        except OwlError:  # `plan` asks again, and says what is wrong
            client.close()
            return None
        self._keep_connection(client)
        return found

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        """Pieces as they come, then one Finish. Closing the generator stops the model."""
        end_s = monotonic_s() + ask.deadline_s
        losses = 0
        while True:
            if route.is_remote and self._is_local_only():
                raise denied(route.name)
            has_begun = False
            try:
                for piece in self._attempt_answer(route, ask, cancel, end_s):
                    has_begun = True
                    yield piece
                return
            except Lost as error:
                losses += 1
                if has_begun or losses > MAX_LOSSES:
                    raise self._explain_loss(error) from None
                LOG.warning("broker gone before an answer began: %s", error)
                if not self._wait_for_broker(cancel, min(end_s, monotonic_s() + self.wait_s)):
                    raise self._explain_loss(error) from None

    def measure(self, route: Route, ask: Ask) -> Measure:
        """Prompt size as the broker counts it."""
        return from_plain(Measure, self._call_broker("measure", {"route": route.name, "ask": to_plain(ask)}, deadline_s=120))

    def embed(self, texts: Sequence[str], *, is_background: bool = False, deadline_s: float = 60) -> Embedded:
        """A unit vector for each text, by the embedding model of the box; no texts, and texts asked for just before, ask nobody.

        Work in the background has its texts embedded, whoever knows them, and leaves none behind: there are too many.
        """
        while True:
            model, known = ("", {}) if is_background else self._vectors.find(texts)
            missing = [text for text in dict.fromkeys(texts) if text not in known]
            if not missing:
                return Embedded(model, [known[text] for text in texts])
            made: dict[str, Sequence[float]] = {}
            for start in range(0, len(missing), AT_ONCE):
                part = missing[start : start + AT_ONCE]
                params = {"texts": part, "is_background": is_background, "deadline_s": deadline_s}
                answer = self._call_broker("embed", params, deadline_s=deadline_s)
                name, vectors = str(answer["model"]), dict(zip(part, answer["vectors"], strict=True))
                self._vectors.keep(name, {} if is_background else vectors)
                made |= vectors
            if not known or name == model:
                return Embedded(name, [made[text] if text in made else known[text] for text in texts])
            # Those that were known are another model's: once more, all by the one that answers now.

    @method("model.providers", access="all")
    def providers(self) -> dict[str, Any]:
        """How each configured provider is doing, its limits, and what is spent; asks none of them."""
        return dict(self._call_broker("providers", {}))

    @method("model.remote", access="all", is_long=True)
    def list_remote(self) -> list[dict[str, Any]]:
        """Every model that the configured providers offer, with its window and price; asks all of them."""
        return list(self._call_broker("listing", {}))

    @method("model.reset")
    def reset(self, provider: Annotated[str, "its name; empty for all"] = "") -> dict[str, Any]:
        """Ask a provider again that is paused after failures."""
        return dict(self._call_broker("reset", {"provider": provider}))

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Any other short method of the broker, which is waited for when it has to start first."""
        return self._call_broker(method, params)

    def status(self, limit_s: float | None = None) -> dict[str, Any]:
        """What the broker says about itself; Lost when it does not run. Never starts it."""
        with Client(str(self._broker.socket), name=WATCHER, token=self._broker.token, timeout_s=limit_s or CONNECT_S) as client:
            return dict(client.call("status", deadline_s=limit_s))

    def _attempt_answer(self, route: Route, ask: Ask, cancel: Cancel, end_s: float) -> Iterator[Piece | Finish]:
        token = cancel if isinstance(cancel, CancelToken) else CancelToken()
        began_s, first_s = monotonic_s(), 0.0
        client = self._take_connection()
        left_s = max(1.0, end_s - monotonic_s())
        if ask.is_background:
            left_s += RESTING_S  # the broker bounds its computing; how long people go first is not its fault
        params = {"route": route.name, "ask": to_plain(ask)}
        try:
            stream = client.stream(
                "generate",
                params,
                deadline_s=left_s,
                correlation=ask.correlation,
                cancel=token,
                idle=(self.silence_s, self._check_broker),
            )
            while True:
                try:
                    name, value = next(stream)
                except StopIteration as end:
                    finish = from_plain(Finish, end.value)
                    break
                if name == "piece":
                    first_s = first_s or monotonic_s() - began_s
                    yield from_plain(Piece, value)
        except BaseException:
            client.close()
            raise
        if token.is_set():
            client.close()  # it hangs up soon, if it was stopped in the last moment
        else:
            self._keep_connection(client)
        total_s = monotonic_s() - began_s
        self._record_usage(ModelAnswered(route, ask, finish, first_s or total_s, total_s))
        yield finish

    def _record_usage(self, answered: ModelAnswered) -> None:
        """Put it down before the answer is handed on, which may be the last that we do."""
        try:
            self._events.publish(answered)
        except OwlError as error:
            LOG.error("what a request took is not put down: %s", error)

    def _take_connection(self) -> Client:
        """The connection that the last request left, or a new one; a conversation needs one."""
        return self._take_spare() or self._connect_broker()

    def _take_spare(self) -> Client | None:
        """The connection of the last request, if there is one that can be used."""
        with self._guard:
            spare, self._spare = self._spare, None
        if spare is not None:
            client, left_s = spare
            now_s = monotonic_s()
            if now_s - left_s < SPARE_S and now_s - self._known[1] <= MEET_S and client.is_fresh():
                return client
            client.close()
        return None

    def _keep_connection(self, client: Client) -> None:
        """Leave it for the next request; the one that was left before is closed."""
        with self._guard:
            spare, self._spare = self._spare, (client, monotonic_s())
        if spare is not None:
            spare[0].close()

    def _connect_broker(self) -> Client:
        """A connection to the broker; one that accepts and never greets is hung, and is brought back."""
        try:
            client = Client(str(self._broker.socket), name="core", token=self._broker.token, timeout_s=self._health_s)
        except DeadlineExceeded as error:
            raise self._revive_hung(error) from None
        pid, now_s = int(client.server.get("pid") or 0), monotonic_s()
        if pid != self._known[0] or now_s - self._known[1] > MEET_S:
            self._known = (pid, now_s)
            self._events.publish(BrokerMet(client))
        return client

    def _check_broker(self) -> None:
        """Called when an answer has been silent for a while: a broker that cannot even ping is hung."""
        try:
            self._ping_broker()
        except (Lost, DeadlineExceeded) as error:
            raise self._revive_hung(error) from None

    def _explain_loss(self, error: Lost) -> Lost:
        """The error with the broker's exit status where it is known."""
        why = self._broker.ended()
        return Lost(f"the model process {why}", hint=SMALLER if "memory" in why else error.hint) if why else error

    def _revive_hung(self, error: OwlError) -> Lost:
        self._broker.revive(f"broker does not answer: {error}")
        return Lost("the model process was hung and is being restarted")

    def _ping_broker(self) -> None:
        with Client(str(self._broker.socket), name=WATCHER, token=self._broker.token, timeout_s=self._health_s) as client:
            client.call("ping")

    def _is_gone(self) -> bool:
        try:
            self._ping_broker()
        except (Lost, DeadlineExceeded):
            return True
        return False

    def _wait_for_broker(self, cancel: Cancel, give_up_s: float) -> bool:
        """True when it is back, False when it is not in time; Lost with its last words when it ends at every start."""
        pause_s, why = 0.05, ""
        while monotonic_s() < give_up_s:
            if cancel.wait(pause_s):
                raise Cancelled("stopped while the model process was restarting")
            was_hopeful, why = not why, self._broker.revive("needed")
            if not self._is_gone():
                return True
            if why and was_hopeful:
                give_up_s = min(give_up_s, monotonic_s() + LAST_STARTS_S)
            pause_s = min(1.0, pause_s * 1.5)
        if why:
            lost = Lost(f"the model process does not start: {why}", hint="owlbox doctor checks the home")
            raise self._explain_loss(lost) if "memory" in self._broker.ended() else lost
        return False

    def _call_broker(self, method: str, params: dict[str, Any], deadline_s: float = 60) -> Any:
        """A short call, waiting for the broker if it has to start first, but no longer than for the call itself.

        A call that ends one broker after the other is given up.
        """
        give_up_s = monotonic_s() + min(self.wait_s, deadline_s)
        pause, ended = CancelToken(), set[int]()
        while True:
            pid = 0
            try:
                client = self._take_connection()
                pid = int(client.server.get("pid") or 0)
                try:
                    idle = (self._health_s, self._check_broker)  # a connection that was kept may be to one that hangs
                    found = client.call(method, params, deadline_s=deadline_s, correlation=log.correlation(), idle=idle)
                except BaseException:
                    client.close()
                    raise
                self._keep_connection(client)
                return found
            except Lost as error:
                ended |= {pid} - {0}
                if monotonic_s() > give_up_s:
                    raise
                if len(ended) > MAX_LOSSES:
                    raise self._explain_loss(error) from None
            self._wait_for_broker(pause, give_up_s)
