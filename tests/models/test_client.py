"""The core's client of the broker, against brokers that are late, hung, or leave in the middle."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import quick
from process import clean_environ, until
from record_tools import replace

from appliance.clock import Alarms, CancelToken, monotonic_s
from appliance.errors import Busy, Cancelled, Lost, Refused
from appliance.models.client import AHEAD_S, Models
from appliance.records import Ask, Finish, Measure, Message, Part, Piece, Route, to_plain
from appliance.runtime import log
from appliance.runtime.jsonrpc import Peer
from appliance.runtime.methods import method
from appliance.runtime.rpc_server import Listener, ServedCall, listen

ROUTE = Route("local", "scripted", "s", 8192, "grammar")
ASK = Ask((Part("core", "You are an owl."),), (Message("user", "hi"),), deadline_s=60, correlation="c0ffee")
FINISH = Finish("stop", provider="scripted", model="s", prompt_tokens=5, output_tokens=2)


class Service:
    """A broker's methods, playing one behaviour."""

    def __init__(self, behaviour: str = "answer") -> None:
        self.behaviour = behaviour
        self.reads_s = 0.6
        self.asked: list[Ask] = []
        self.correlations: list[str] = []
        self.cancelled = threading.Event()
        self.spoke = threading.Event()
        self.listener: Listener | None = None

    @method("plan")
    def plan(self, call: ServedCall, pool: str = "") -> list[dict[str, Any]]:
        """One route; one that lingers answers the first question alone."""
        self.correlations.append(call.correlation)
        if self.behaviour == "linger" and len(self.correlations) > 1:
            call.cancel.wait(60)
            raise Cancelled("stopped")
        return [to_plain(ROUTE)]

    @method("measure")
    def measure(self, call: ServedCall, route: str, ask: Ask) -> dict[str, Any]:
        """A size."""
        return dict(to_plain(Measure(route, {"core": 7}, 9)))

    @method("generate")
    def generate(self, call: ServedCall, route: str, ask: Ask) -> dict[str, Any]:
        """Two pieces and an end, or not."""
        self.asked.append(ask)
        self.correlations.append(call.correlation)
        if self.behaviour == "busy":
            raise Busy("the CPU is taken")
        if self.behaviour == "faint":
            call.cancel.wait(self.reads_s)  # the prompt
            assert self.listener is not None
            self.listener.close()
            raise Cancelled("stopped")
        call.notify("piece", to_plain(Piece("hoot ")))
        self.spoke.set()
        if self.behaviour == "leave":
            assert self.listener is not None
            self.listener.close()
        if self.behaviour in ("leave", "linger"):
            call.cancel.wait(60)
            self.cancelled.set()
            raise Cancelled("stopped")
        call.notify("piece", to_plain(Piece("hoot")))
        return dict(to_plain(FINISH))


def broker(path: Path, service: Service, token: str = "") -> Listener:
    def gate(peer: Peer, params: dict[str, Any]) -> None:
        if params.get("token", "") != token:
            raise Refused("wrong token")

    listener = Listener(listen(path), name="broker", gate=gate, alarms=Alarms())
    listener.offer(service)
    service.listener = listener
    listener.start()
    return listener


class Reviver:
    """Whoever supervises the broker: keeps the reasons, and may act."""

    def __init__(self, act: Callable[[str], None] = lambda reason: None) -> None:
        self.reasons: list[str] = []
        self._act = act

    def __call__(self, reason: str) -> str:
        self.reasons.append(reason)
        self._act(reason)
        return ""


class Supervised:
    """A broker at a path, brought back by a reviver; with a token for each connection."""

    def __init__(self, path: Path, reviver: Callable[[str], str], tokens: Iterator[str] | None = None) -> None:
        self.socket = path
        self._tokens = tokens or repeat("")
        self.revive = reviver

    @property
    def token(self) -> str:
        return next(self._tokens)

    def ended(self) -> str:
        return ""


def models(path: Path, revive: Callable[[str], str] | None = None, **options: Any) -> Models:
    return Models(Supervised(path, revive or Reviver()), **{"wait_s": 60, "health_s": 60, **options})


@pytest.fixture
def path(runtime: Path) -> Path:
    return runtime / "broker.sock"


@pytest.fixture
def service(path: Path) -> Iterator[Service]:
    made = Service()
    listener = broker(path, made)
    yield made
    listener.close()


def test_an_answer_comes_piece_by_piece_and_ends_with_what_it_cost(path: Path, service: Service) -> None:
    assert list(models(path).generate(ROUTE, ASK, CancelToken())) == [Piece("hoot "), Piece("hoot"), FINISH]
    assert service.asked == [ASK] and service.correlations == ["c0ffee"]


def test_routes_and_sizes_are_records(path: Path, service: Service) -> None:
    assert models(path).plan("default") == (ROUTE,)
    assert models(path).measure(ROUTE, ASK) == Measure("local", {"core": 7}, 9)


def test_routes_that_were_asked_for_ahead_are_read_and_not_asked_for_again(path: Path, service: Service) -> None:
    using = models(path)
    using.plan_ahead()  # there is no connection yet: nobody is asked
    assert using.plan() == (ROUTE,) and len(service.correlations) == 1
    with log.correlated("4f9c"):
        using.plan_ahead()
    until(lambda: service.correlations[1:] == ["4f9c"], "asked ahead")
    assert using.plan() == (ROUTE,) and len(service.correlations) == 2
    assert using.plan() == (ROUTE,) and len(service.correlations) == 3


def test_routes_of_another_pool_or_of_a_while_ago_are_asked_for_now(path: Path, service: Service) -> None:
    using = models(path)
    using.plan()
    using.plan_ahead()
    assert using.plan("default") == (ROUTE,)
    until(lambda: len(service.correlations) == 3, "asked ahead and for another pool")
    threading.Event().wait(AHEAD_S + 0.1)
    assert using.plan() == (ROUTE,) and len(service.correlations) == 4


def test_a_broker_that_leaves_after_it_was_asked_ahead_is_asked_anew(path: Path) -> None:
    listener = broker(path, Service("linger"))
    made: list[Listener] = []
    using = models(path, Reviver(lambda reason: None if made else made.append(broker(path, Service()))))
    using.plan()
    using.plan_ahead()
    listener.close()
    assert using.plan() == (ROUTE,)
    made[0].close()


@pytest.mark.covers("A-271")
def test_every_question_to_the_broker_carries_the_correlation_id(path: Path, service: Service) -> None:
    with log.correlated("4f9c"):
        models(path).plan()
        list(models(path).generate(ROUTE, replace(ASK, correlation="4f9d"), CancelToken()))
    assert service.correlations == ["4f9c", "4f9d"]


def test_a_broker_that_is_not_there_yet_is_waited_for(path: Path) -> None:
    service, made = Service(), []
    timer = threading.Timer(0.4, lambda: made.append(broker(path, service)))
    timer.start()
    revive = Reviver()
    assert list(models(path, revive).generate(ROUTE, ASK, CancelToken()))[-1] == FINISH
    assert set(revive.reasons) == {"needed"} and len(service.asked) == 1
    made[0].close()


def test_a_short_call_waits_for_the_broker_too_and_starts_it(path: Path) -> None:
    made: list[Listener] = []
    revive = Reviver(lambda reason: None if made else made.append(broker(path, Service())))
    assert models(path, revive).plan() == (ROUTE,)
    assert revive.reasons == ["needed"]
    made[0].close()


def test_a_broker_that_stays_away_is_given_up_on(path: Path) -> None:
    started_s = monotonic_s()
    with pytest.raises(Lost, match="nothing answers"):
        models(path, wait_s=0.3).plan()
    with pytest.raises(Lost, match="nothing answers"):
        list(models(path, wait_s=0.3).generate(ROUTE, ASK, CancelToken()))
    with pytest.raises(Lost, match="nothing answers"):
        models(path, wait_s=600).embed(["owl"], deadline_s=0.3)  # what may not take long is not waited for longer
    assert monotonic_s() - started_s < 20


@pytest.mark.parametrize("use", ["plan", "generate"])
def test_a_broker_that_accepts_and_never_greets_is_revived(path: Path, use: str) -> None:
    hung, made = listen(path), []

    def restart(reason: str) -> None:
        if reason != "needed" and not made:
            hung.close()
            made.append(broker(path, Service()))

    revive = Reviver(restart)
    using = models(path, revive, health_s=0.5)
    assert using.plan() == (ROUTE,) if use == "plan" else list(using.generate(ROUTE, ASK, CancelToken()))[-1] == FINISH
    assert "broker does not answer" in revive.reasons[0]
    made[0].close()


def test_a_broker_that_hangs_before_its_first_word_is_revived_and_asked_again(path: Path) -> None:
    greeter, made = Greeter(path), []

    def restart(reason: str) -> None:
        if reason != "needed" and not made:
            greeter.close()
            made.append(broker(path, Service()))

    revive = Reviver(restart)
    assert list(models(path, revive, silence_s=0.2, health_s=0.5).generate(ROUTE, ASK, CancelToken()))[-1] == FINISH
    assert "broker does not answer" in revive.reasons[0] and greeter.greeted == 1
    made[0].close()


class Greeter:
    """A broker that greets its first caller, and may answer some requests with nothing, then hangs: it reads no more."""

    def __init__(self, path: Path, answers: int = 1) -> None:
        self.sock, self.greeted, self.answers = listen(path), 0, answers
        self._held: list[socket.socket] = []
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        one, _ = self.sock.accept()
        self._held.append(one)
        for number in range(1, self.answers + 1):
            one.recv(65536)
            self.greeted += 1
            one.sendall(b'{"jsonrpc": "2.0", "id": %d, "result": {}}\n' % number)

    def close(self) -> None:
        for sock in (self.sock, *self._held):
            sock.close()


def test_a_broker_that_leaves_in_the_middle_of_an_answer_is_lost(path: Path, service: Service) -> None:
    service.behaviour, revive = "leave", Reviver()
    pieces = models(path, revive).generate(ROUTE, ASK, CancelToken())
    assert next(pieces) == Piece("hoot ")
    with pytest.raises(Lost):
        next(pieces)
    assert len(service.asked) == 1 and revive.reasons == []


def test_an_error_of_the_broker_is_raised_as_it_is_and_not_repeated(path: Path, service: Service) -> None:
    service.behaviour = "busy"
    with pytest.raises(Busy, match="the CPU is taken"):
        list(models(path).generate(ROUTE, ASK, CancelToken()))
    assert len(service.asked) == 1


def test_a_stop_while_waiting_for_the_broker_is_heard(path: Path) -> None:
    cancel = CancelToken()
    threading.Timer(0.2, cancel.set).start()
    started_s = monotonic_s()
    with pytest.raises(Cancelled, match="while the model process was restarting"):
        list(models(path).generate(ROUTE, ASK, cancel))
    assert monotonic_s() - started_s < 20


def test_a_stop_in_the_middle_of_an_answer_reaches_the_broker(path: Path, service: Service) -> None:
    service.behaviour, cancel = "linger", CancelToken()
    pieces = models(path).generate(ROUTE, ASK, cancel)
    assert next(pieces) == Piece("hoot ")
    cancel.set()
    with pytest.raises(Cancelled):
        next(pieces)
    assert service.cancelled.wait(60)


def test_leaving_an_answer_stops_the_broker(path: Path, service: Service) -> None:
    service.behaviour = "linger"
    with closing(models(path).generate(ROUTE, ASK, CancelToken())) as pieces:  # type: ignore[type-var]
        assert next(pieces) == Piece("hoot ")
    assert service.cancelled.wait(60)


def test_a_slow_broker_that_still_pings_is_not_revived(path: Path, service: Service) -> None:
    service.behaviour, revive, cancel = "linger", Reviver(), CancelToken()
    threading.Timer(0.6, cancel.set).start()
    with pytest.raises(Cancelled):
        list(models(path, revive, silence_s=0.1).generate(ROUTE, ASK, cancel))
    assert revive.reasons == []


def test_status_never_starts_a_broker(path: Path) -> None:
    revive = Reviver()
    with pytest.raises(Lost):
        models(path, revive).status()
    assert revive.reasons == []


def test_the_token_is_asked_for_at_every_connection(path: Path) -> None:
    tokens = iter(["old", "new"])
    listener = broker(path, Service(), token="new")
    made = Models(Supervised(path, Reviver(), tokens), wait_s=30)
    with pytest.raises(Refused):
        made.plan()
    assert made.plan() == (ROUTE,)
    listener.close()


def test_a_plan_and_the_answer_that_follows_share_a_connection(path: Path) -> None:
    tokens = iter(["only"])
    listener = broker(path, Service(), token="only")
    made = Models(Supervised(path, Reviver(), tokens), wait_s=30)
    assert made.plan() == (ROUTE,)
    assert [*made.generate(ROUTE, ASK, CancelToken())][-1] == FINISH
    listener.close()


def test_a_conversation_keeps_its_connection(path: Path) -> None:
    tokens = iter(["only"])
    listener = broker(path, Service(), token="only")
    made = Models(Supervised(path, Reviver(), tokens), wait_s=30)
    for _ in range(3):
        assert made.plan() == (ROUTE,) and [*made.generate(ROUTE, ASK, CancelToken())][-1] == FINISH
    listener.close()


def test_an_answer_that_was_stopped_leaves_no_connection_behind(path: Path, service: Service) -> None:
    tokens, cancel = iter(["", ""]), CancelToken()
    made = Models(Supervised(path, Reviver(), tokens), wait_s=30)
    pieces = made.generate(ROUTE, ASK, cancel)
    assert next(pieces) == Piece("hoot ")
    cancel.set()
    try:
        list(pieces)
    except Cancelled:
        pass  # the last piece may be on its way by then, or not
    assert made.plan() == (ROUTE,) and next(tokens, None) is None


def test_a_broker_that_hangs_behind_a_connection_that_was_kept_is_revived(path: Path) -> None:
    """It answers the first request, and no other one."""
    greeter, made = Greeter(path, answers=2), []

    def restart(reason: str) -> None:
        if reason != "needed" and not made:
            greeter.close()
            made.append(broker(path, Service()))

    revive = Reviver(restart)
    using = models(path, revive, health_s=0.5)
    assert using.plan() == ()
    assert using.plan() == (ROUTE,) and "broker does not answer" in revive.reasons[0]
    made[0].close()


def test_a_connection_that_a_broker_left_behind_is_not_asked(path: Path) -> None:
    revive = Reviver()
    listener, made = broker(path, Service()), models(path, revive)
    made.plan()
    listener.close()
    path.unlink(missing_ok=True)
    again = broker(path, Service())
    assert [*made.generate(ROUTE, ASK, CancelToken())][-1] == FINISH and not revive.reasons
    again.close()


def test_a_broker_that_dies_late_but_before_its_first_word_is_waited_for(path: Path, service: Service) -> None:
    service.behaviour, service.reads_s, made = "faint", 3, []
    revive = Reviver(lambda reason: None if made else made.append(broker(path, Service())))
    assert list(models(path, revive, wait_s=2.5).generate(ROUTE, ASK, CancelToken()))[-1] == FINISH
    made[0].close()


def test_a_question_that_ends_every_broker_is_given_up(path: Path) -> None:
    services: list[Service] = []

    def restart(reason: str) -> None:
        if not services or services[-1].asked:
            services.append(Service("faint"))
            broker(path, services[-1])

    with pytest.raises(Lost):
        list(models(path, Reviver(restart)).generate(ROUTE, ASK, CancelToken()))
    assert [len(service.asked) for service in services] == [1] * 5


def test_why_a_broker_does_not_start_is_in_the_error(path: Path) -> None:
    with pytest.raises(Lost, match="does not start: the card is gone"):
        models(path, lambda reason: "the card is gone", wait_s=3600).plan()  # a few more starts, not an hour of them


# Greets, and ends at the question: a model that crashes on it, in a process of its own.
FAINT = """
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
while True:
    lines = server.accept()[0].makefile("rw")
    for asked in map(json.loads, lines):
        if asked["method"] not in ("hello", "ping"):
            os.unlink(sys.argv[1])
            os._exit(1)
        print(json.dumps({"id": asked["id"], "result": {"pid": os.getpid(), "name": "broker"}}), file=lines, flush=True)
"""


def test_a_short_call_that_ends_every_broker_is_given_up(path: Path, tmp_path: Path) -> None:
    ended: list[subprocess.Popen[bytes]] = []

    def restart(reason: str) -> None:
        if not ended or ended[-1].poll() is not None:
            ended.append(quick.popen([sys.executable, "-c", FAINT, str(path)], env=clean_environ(tmp_path, path.parent)))
            until(path.exists, "it listens")

    with pytest.raises(Lost, match="connection lost"):
        models(path, Reviver(restart), wait_s=3600).embed(["owl"], deadline_s=3600)
    assert len(ended) == 6 and all(child.wait() == 1 for child in ended)
