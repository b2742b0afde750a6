"""A live listener on a real socket: manners, deadlines, floods, and whatever a client may throw at it."""

import json
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import needs
from process import until

from appliance.clock import Alarms, CancelToken, monotonic_s
from appliance.errors import BadInput, Busy, Cancelled, Conflict, DeadlineExceeded, Lost, NotFound, OwlError, Refused, Unavailable
from appliance.runtime import log
from appliance.runtime.jsonrpc import MAX_FRAME_BYTES, NOBODY, Peer
from appliance.runtime.methods import method
from appliance.runtime.rpc_client import Client
from appliance.runtime.rpc_server import Listener, ServedCall, listen

BIG = "x" * 500_000


class Service:
    """Methods that do what tests need."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.cancelled = threading.Semaphore(0)
        self.go = threading.Event()
        self.seen: list[Any] = []

    @method("echo")
    def echo(self, call: ServedCall, text: str = "") -> str:
        """Say it again."""
        self.seen.append(text)
        return text

    @method("wait")
    def wait(self, call: ServedCall, seconds: float = 120.0) -> bool:
        """Wait for a cancel."""
        self.started.release()
        if call.cancel.wait(seconds):
            self.cancelled.release()
            raise Cancelled("told to stop")
        return False

    @method("hold")
    def hold(self, call: ServedCall) -> str:
        """Wait for the test."""
        self.started.release()
        self.go.wait(120)
        return "held"

    @method("stream", is_long=True)
    def stream(self, call: ServedCall) -> str:
        """Wait for the test, as a long call."""
        return self.hold(call)

    @method("peek", is_quiet=True)
    def peek(self, call: ServedCall) -> str:
        """Look on."""
        return "seen"

    @method("count")
    def count(self, call: ServedCall, to: int) -> int:
        """Stream."""
        for n in range(to):
            call.notify("number", {"n": n})
        return to

    @method("flood")
    def flood(self, call: ServedCall) -> int:
        """Stream more than any buffer holds."""
        self.started.release()
        for _ in range(100):
            call.notify("much", {"text": BIG})
        return 1

    @method("who")
    def who(self, call: ServedCall) -> list[Any]:
        """What the kernel and hello say of the caller."""
        return [call.uid, call.peer.pid, call.client, call.correlation, log.correlation()]

    @method("me")
    def me(self, call: ServedCall) -> list[Any]:
        """Who asks."""
        return [call.uid, call.person, call.client]

    @method("fail")
    def fail(self, call: ServedCall, outcome: str) -> None:
        """Raise."""
        if outcome == "bug":
            raise ZeroDivisionError("secret detail")
        raise NotFound("no such owl", hint="look in the barn")

    @method("huge")
    def huge(self, call: ServedCall) -> str:
        """More than a frame holds."""
        return "x" * MAX_FRAME_BYTES

    @method("odd")
    def odd(self, call: ServedCall) -> object:
        """What JSON cannot hold."""
        return object()


class Served:
    """A listener with its service, its clients' end, and its log."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.path = folder / "s.sock"
        self.log = folder / "logs"
        self.service = Service()
        self.listener = Listener(listen(self.path), name="core", **{"gate": self.gate, "alarms": Alarms(), **options})
        self.listener.offer(self.service)
        self.listener.start()

    def gate(self, peer: Peer, params: dict[str, Any]) -> None:
        if params.get("token"):
            raise Refused("this token was not issued here")

    def client(self, name: str = "test", token: str = "") -> Client:
        return Client(str(self.path), name=name, token=token, timeout_s=60)

    def raw(self, *, is_greeted: bool = True) -> "Raw":
        return Raw(self.path, is_greeted)

    def settle(self) -> None:
        """Wait until every call has ended and is logged; nothing is served afterwards."""
        self.listener._pool.shutdown(wait=True)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.log / "core.log").read_text().splitlines()]


class Raw:
    """Bytes in, frames out."""

    def __init__(self, path: Path, is_greeted: bool) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(path))
        self.file = self.sock.makefile("rb")
        if is_greeted:
            assert "result" in self.ask({"id": 0, "method": "hello", "params": {"client": "raw"}})

    @classmethod
    def over(cls, sock: socket.socket) -> "Raw":
        """The same over a socket that is connected."""
        made = cls.__new__(cls)
        made.sock, made.file = sock, sock.makefile("rb")
        sock.settimeout(60)
        return made

    def send(self, frame: Any) -> None:
        self.sock.sendall(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        return dict(json.loads(self.file.readline()))

    def ask(self, frame: Any) -> dict[str, Any]:
        self.send(frame)
        return self.read()

    def close(self) -> None:
        self.file.close()
        self.sock.close()


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[Served]:
    made = Served(folder, **options)
    log.start("core", made.log, "info", log.Redactor())
    try:
        yield made
    finally:
        made.service.go.set()
        made.listener.close()
        log.stop()
        logging.getLogger(log.ROOT).propagate = True


@pytest.fixture
def served(runtime: Path) -> Iterator[Served]:
    with serving(runtime) as made:
        yield made


@pytest.fixture(scope="module")
def sturdy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder, serving(Path(folder)) as made:
        yield made


# -- the socket -------------------------------------------------------------------------------------


@pytest.mark.covers("A-185", "R-169")
def test_the_socket_is_private_and_no_tcp_port_is_open(served: Served) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o660
    own = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    assert not [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]


@pytest.mark.covers("A-185")
def test_an_answer_streams_before_it_is_complete(served: Served) -> None:
    with served.client() as client:
        stream = client.stream("count", {"to": 3})
        got = []
        while True:
            try:
                got.append(next(stream))
            except StopIteration as end:
                assert end.value == 3
                break
    assert got == [("number", {"n": n}) for n in range(3)]


def test_a_stale_socket_is_replaced_and_a_file_in_the_way_is_not(runtime: Path) -> None:
    path = runtime / "x.sock"
    listen(path).close()
    assert path.is_socket()
    listen(path).close()
    (runtime / "file").write_text("mine")
    with pytest.raises(BadInput, match="not a socket"):
        listen(runtime / "file")
    assert (runtime / "file").read_text() == "mine"


# -- manners ----------------------------------------------------------------------------------------


@pytest.mark.covers("E-147", "R-170")
def test_before_hello_only_ping_and_discover_are_answered(served: Served) -> None:
    raw = served.raw(is_greeted=False)
    error = raw.ask({"id": 1, "method": "echo", "params": {"text": "x"}})["error"]
    assert error["data"]["outcome"] == "permission" and "say hello before echo" in error["message"]
    assert raw.ask({"id": 2, "method": "ping"})["result"] == {"pid": os.getpid(), "name": "core"}
    found = raw.ask({"id": 3, "method": "discover"})["result"]
    echo = found["methods"]["echo"]
    assert echo["doc"] == "Say it again." and "text" in echo["params"]["properties"]
    assert (echo["result"], echo["access"], echo["is_long"]) == ({"type": "string"}, "admin", False)
    assert found["notifications"]["delta"]["params"]["properties"] == {"text": {"type": "string"}}
    assert raw.ask({"id": 4, "method": "hello", "params": {"client": "x", "token": "wrong"}})["error"]["data"]["status"] == 403
    assert raw.ask({"id": 5, "method": "echo"})["error"]["data"]["status"] == 403
    assert served.service.seen == []


@pytest.mark.covers("E-155")
def test_a_method_added_later_is_discovered_and_callable(served: Served) -> None:
    def late(call: ServedCall, n: int) -> int:
        """Came later."""
        return n + 1

    with served.client() as client:
        with pytest.raises(NotFound):
            client.call("plug.late", {"n": 1})
        served.listener.add("plug.late", late)
        assert client.call("discover")["methods"]["plug.late"]["doc"] == "Came later."
        assert client.call("plug.late", {"n": 1}) == 2


@pytest.mark.parametrize("name", ["echo", "hello", "ping", "discover", "cancel"])
def test_a_method_s_name_is_taken_once(served: Served, name: str) -> None:
    with pytest.raises(Conflict, match=f"{name} is offered twice"):
        served.listener.add(name, lambda call: None)


def test_the_caller_is_who_the_kernel_says(served: Served) -> None:
    with served.client("tui") as client:
        uid, pid, name, _, _ = client.call("who")
    assert (uid, pid, name) == (os.getuid(), os.getpid(), "tui")


@pytest.mark.covers("A-271")
def test_every_request_has_a_uuid_4_that_its_work_and_its_log_line_carry(served: Served) -> None:
    mine = str(uuid.uuid4())
    with served.client() as client:
        assert client.call("who", correlation=mine)[3:] == [mine, mine]
        first, second = client.call("who")[3], client.call("who")[3]
    assert uuid.UUID(first).version == 4 and first != second
    served.settle()
    ids = [line["correlation"] for line in served.lines() if line.get("operation") == "who"]
    assert sorted(ids) == sorted([mine, first, second])  # each is written down after it was answered


@pytest.mark.parametrize("bad", ["", "x" * 65, "two\nlines", 7, ["a"], None])
def test_a_correlation_id_unfit_for_a_log_line_is_replaced(served: Served, bad: Any) -> None:
    got = served.raw().ask({"id": 1, "method": "who", "correlation": bad})["result"][3]
    assert uuid.UUID(got).version == 4


@pytest.mark.covers("A-188")
def test_every_request_is_logged_with_time_sender_operation_and_result(served: Served) -> None:
    with served.client("tui") as client:
        client.call("echo", {"text": "private words"})
        for params in ({"outcome": "not_found"}, {"outcome": "bug"}, {}):
            with pytest.raises(OwlError):
                client.call("fail", params)
        with pytest.raises(NotFound):
            client.call("nowhere")
        with pytest.raises(DeadlineExceeded):
            client.call("wait", deadline_s=0.1)
        served.service.cancelled.acquire(timeout=180)
    served.settle()
    lines = [line for line in served.lines() if line["message"] == "request"]
    # Each is written down after it was answered, so the next one may come before it.
    assert sorted((line["operation"], line["result"]) for line in lines) == [
        ("echo", "ok"), ("fail", "bad_input"), ("fail", "failed"), ("fail", "not_found"), ("hello", "ok"), ("nowhere", "not_found"),
        ("wait", "timeout"),
    ]  # fmt: skip
    sender = f"tui pid={os.getpid()} uid={os.getuid()}"
    assert all(line["sender"] == sender and line["at"].endswith("Z") and line["ms"] >= 0 for line in lines)
    assert "private words" not in (served.log / "core.log").read_text()


@pytest.mark.covers("A-188")
def test_requests_that_are_answered_early_are_logged_too(served: Served) -> None:
    raw = served.raw()
    raw.ask(b"{nonsense}\n")
    raw.ask({"id": 1, "method": 5})
    raw.ask({"id": 2, "method": "echo", "params": [1]})
    raw.ask({"id": 3, "method": "cancel", "params": {"id": 9}})
    raw.ask({"id": 4, "method": "echo", "deadline_s": "soon"})
    raw.send({"id": 5, "method": "hold"})
    assert served.service.started.acquire(timeout=180)
    raw.ask({"id": 5, "method": "echo"})
    raw.ask(b"x" * (MAX_FRAME_BYTES + 5) + b"\n")
    lines = [(line["operation"], line["result"]) for line in served.lines() if line["message"] == "request"]
    assert lines == [
        ("hello", "ok"), ("?", "bad_input"), ("?", "bad_input"), ("echo", "bad_input"), ("cancel", "ok"), ("echo", "bad_input"),
        ("echo", "conflict"), ("?", "too_large"),
    ]  # fmt: skip


def test_who_only_looks_on_is_no_news_in_the_log(served: Served) -> None:
    with served.client() as client:
        assert client.call("peek") == "seen"
        client.call("echo")
    served.settle()
    # A call of the test before, which was held, may end only now.
    assert [line["operation"] for line in served.lines() if line["operation"] != "hold"] == ["hello", "echo"]


def test_long_calls_leave_the_pool_to_quick_ones_and_have_a_limit_of_their_own(runtime: Path) -> None:
    with serving(runtime, threads=1, max_long=2) as served:
        raw = served.raw()
        for n in (1, 2):
            raw.send({"id": n, "method": "stream"})
            assert served.service.started.acquire(timeout=180)
        assert raw.ask({"id": 3, "method": "echo", "params": {"text": "quick"}})["result"] == "quick"
        surplus = raw.ask({"id": 4, "method": "stream"})["error"]
        assert surplus["data"]["outcome"] == "busy" and "2 long calls" in surplus["message"] and surplus["data"]["hint"]
        served.service.go.set()
        assert {raw.read()["result"] for _ in (1, 2)} == {"held"}
        until(lambda: "result" in raw.ask({"id": 5, "method": "stream"}), "there is room again")


# -- frames -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "code", "part"),
    [
        (b"{nonsense}\n", -32700, "not JSON"),
        (b'{"id": 1, "method": "\xff\xfe"}\n', -32700, "not JSON"),
        (b"[" * 100_000 + b"\n", -32700, "not JSON"),
        ([], -32600, "must be an object, got list"),
        ([{"id": 1, "method": "ping"}], -32600, "batches are not supported"),
        (7, -32600, "must be an object"),
        ({"id": 1}, -32600, "needs a method"),
        ({"id": 1, "method": 5}, -32600, "needs a method"),
        ({"id": 1.5, "method": "ping"}, -32600, "needs a method"),
        ({"id": [1], "method": "ping"}, -32600, "needs a method"),
        ({"id": True, "method": "ping"}, -32600, "needs a method"),
        ({"id": 1, "method": "nowhere"}, -32601, "unknown method nowhere"),
        ({"id": 1, "method": "echo", "params": [1]}, -32602, "params must be an object, got list"),
        ({"id": 1, "method": "echo", "params": None}, -32602, "params must be an object, got NoneType"),
        ({"id": 1, "method": "echo", "params": {"text": 1}}, -32602, "text: Expected `str`, got `int`"),
        ({"id": 1, "method": "echo", "params": {"txt": "x"}}, -32602, "txt: unknown argument, expected text"),
        ({"id": 1, "method": "echo", "params": {"call": 1}}, -32602, "call: unknown argument"),
        ({"id": 1, "method": "count"}, -32602, "to: is required"),
        ({"id": 1, "method": "echo", "deadline_s": "soon"}, -32602, "deadline_s must be a number"),
        (b'{"id": 1, "method": "echo", "deadline_s": NaN}\n', -32602, "deadline_s must be a number"),
        ({"id": 1, "method": "huge"}, -32000, "frame of"),
        ({"id": 1, "method": "odd"}, -32000, "the result cannot be sent"),
        ({"id": 1, "method": "fail", "params": {"outcome": "bug"}}, -32000, "fail failed inside core"),
    ],
)
def test_a_bad_frame_is_answered_and_the_connection_lives_on(sturdy: Served, frame: Any, code: int, part: str) -> None:
    raw = sturdy.raw()
    answer = raw.ask(frame)
    assert answer["error"]["code"] == code
    assert part in answer["error"]["message"] + answer["error"]["data"]["hint"] and "secret" not in json.dumps(answer)
    assert answer["id"] == (frame["id"] if isinstance(frame, dict) and code != -32600 else answer["id"])
    assert raw.ask({"id": 2, "method": "echo", "params": {"text": "still here"}})["result"] == "still here"
    raw.close()


def test_an_oversized_frame_is_answered_with_its_size_and_the_connection_lives_on(sturdy: Served) -> None:
    raw = sturdy.raw()
    raw.send(b"x" * (MAX_FRAME_BYTES + 5) + b"\n")
    answer = raw.read()
    assert answer["id"] is None and f"frame of {MAX_FRAME_BYTES + 5} bytes" in answer["error"]["message"]
    assert answer["error"]["data"]["outcome"] == "too_large"
    assert raw.ask({"id": 2, "method": "ping"})["id"] == 2
    raw.close()


def test_frames_may_share_a_packet_or_be_spread_over_many(sturdy: Served) -> None:
    raw = sturdy.raw()
    frames = b"".join(json.dumps({"id": n, "method": "echo", "params": {"text": f"é{n}"}}).encode() + b"\n" for n in range(1, 6))
    raw.send(frames)
    assert {raw.read()["result"] for _ in range(5)} == {f"é{n}" for n in range(1, 6)}
    for i in range(0, len(frames), 7):
        raw.send(frames[i : i + 7])
    assert {raw.read()["id"] for _ in range(5)} == {1, 2, 3, 4, 5}
    raw.close()


def test_a_cut_off_last_frame_is_not_run(served: Served) -> None:
    raw = served.raw()
    raw.send({"id": 1, "method": "echo", "params": {"text": "whole"}})
    raw.send(b'{"id": 2, "method": "echo", "params": {"text": "cut"}}')
    raw.sock.shutdown(socket.SHUT_WR)
    assert [json.loads(line)["id"] for line in raw.file] in ([1], [])  # hanging up may overtake the answer
    assert served.service.seen in (["whole"], [])


def test_lone_surrogates_pass_through(sturdy: Served) -> None:
    with sturdy.client() as client:
        assert client.call("echo", {"text": "a\ud800b \udfff"}) == "a\ud800b \udfff"


def test_a_notification_is_run_and_not_answered(sturdy: Served) -> None:
    raw = sturdy.raw()
    raw.send({"method": "echo", "params": {"text": "noted"}})
    raw.send({"method": "nowhere"})
    raw.send({"id": None, "method": "echo", "params": {"text": "null is none"}})
    assert raw.ask({"id": 1, "method": "echo", "params": {"text": "asked"}})["id"] == 1
    raw.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        raw.read()
    assert {"noted", "null is none"} <= set(sturdy.service.seen)
    raw.close()


def test_an_id_in_use_is_a_conflict_and_free_again_afterwards(served: Served) -> None:
    raw = served.raw()
    raw.send({"id": "a", "method": "hold"})
    assert served.service.started.acquire(timeout=180)
    assert raw.ask({"id": "a", "method": "echo"})["error"]["data"]["outcome"] == "conflict"
    served.service.go.set()
    assert raw.read() == {"jsonrpc": "2.0", "id": "a", "result": "held"}
    assert raw.ask({"id": "a", "method": "ping"})["id"] == "a"


# -- stopping ---------------------------------------------------------------------------------------


def test_cancel_stops_the_call_it_names(served: Served) -> None:
    raw = served.raw()
    raw.send({"id": 1, "method": "wait"})
    assert served.service.started.acquire(timeout=180)
    answers = [raw.ask({"id": 2, "method": "cancel", "params": {"id": 1}}), raw.read()]
    by_id = {a["id"]: a for a in answers}
    assert by_id[2]["result"] == {"cancelled": True} and by_id[1]["error"]["data"]["outcome"] == "cancelled"
    assert raw.ask({"id": 3, "method": "cancel", "params": {"id": 1}})["result"] == {"cancelled": False}


@pytest.mark.parametrize("params", [{}, {"id": None}, {"id": [1]}, {"id": {}}, {"id": 9}])
def test_a_cancel_that_names_nothing_stops_nothing(served: Served, params: dict[str, Any]) -> None:
    raw = served.raw()
    raw.send({"method": "wait", "params": {"seconds": 0.3}})
    assert served.service.started.acquire(timeout=180)
    assert raw.ask({"id": 2, "method": "cancel", "params": params})["result"] == {"cancelled": False}
    assert not served.service.cancelled.acquire(timeout=0.5)


def test_the_client_s_token_cancels_at_the_server(served: Served) -> None:
    cancel = CancelToken()
    with served.client() as client:
        threading.Timer(0.1, cancel.set).start()
        with pytest.raises(Cancelled, match="told to stop"):
            next(client.stream("wait", deadline_s=60, cancel=cancel))


def test_a_deadline_is_answered_by_the_server_and_the_work_is_told(served: Served) -> None:
    with served.client() as client:
        started_s = monotonic_s()
        with pytest.raises(DeadlineExceeded, match=r"wait took longer than 0\.2 s"):
            client.call("wait", deadline_s=0.2)
        assert monotonic_s() - started_s < 20
        assert served.service.cancelled.acquire(timeout=180)
        assert client.call("echo", {"text": "next"}) == "next"


@pytest.mark.parametrize("deadline", ["1e400", "1" + "0" * 300, "-5", "0"])
def test_no_deadline_breaks_the_clock_of_the_others(served: Served, deadline: str) -> None:
    raw = served.raw()
    raw.send(b'{"id": 1, "method": "wait", "params": {"seconds": 0.1}, "deadline_s": %s}\n' % deadline.encode())
    assert raw.read()["id"] == 1
    with served.client() as client, pytest.raises(DeadlineExceeded, match="wait took"):
        client.call("wait", deadline_s=0.1)


@pytest.mark.covers("R-179")
def test_only_what_takes_long_by_its_nature_has_no_deadline_of_its_own(runtime: Path) -> None:
    with serving(runtime, deadline_s=0.2) as served:
        raw, begun = served.raw(), monotonic_s()
        raw.send({"id": 1, "method": "stream"})
        assert served.service.started.acquire(timeout=60)
        late = raw.ask({"id": 2, "method": "wait"})
        assert late["id"] == 2 and late["error"]["data"]["status"] == 504 and monotonic_s() - begun < 60
        served.service.go.set()
        assert raw.read() == {"jsonrpc": "2.0", "id": 1, "result": "held"}
        raw.close()


def test_a_deadline_runs_while_a_call_waits_for_a_thread(runtime: Path) -> None:
    with serving(runtime, threads=1) as served, served.client() as busy, served.client() as late:
        busy._wire.send({"jsonrpc": "2.0", "id": 50, "method": "hold"})
        assert served.service.started.acquire(timeout=180)
        started_s = monotonic_s()
        with pytest.raises(DeadlineExceeded, match="echo took longer"):
            late.call("echo", {"text": "too late"}, deadline_s=0.2)
        assert monotonic_s() - started_s < 20
        served.service.go.set()
        assert late.call("echo", {"text": "now"}, deadline_s=60) == "now"
        assert served.service.seen == ["now"]


def test_a_client_that_vanishes_stops_what_it_had_running(served: Served) -> None:
    raw = served.raw()
    raw.send({"id": 1, "method": "wait"})
    raw.send({"method": "wait"})
    raw.send({"method": "wait"})
    assert all(served.service.started.acquire(timeout=180) for _ in range(3))
    raw.close()
    assert all(served.service.cancelled.acquire(timeout=180) for _ in range(3))


def test_closing_hangs_up_and_stops_the_work(served: Served) -> None:
    raw = served.raw()
    raw.send({"id": 1, "method": "wait"})
    assert served.service.started.acquire(timeout=180)
    served.listener.close()
    assert served.service.cancelled.acquire(timeout=180)
    with pytest.raises(Lost):
        served.client()


# -- floods -----------------------------------------------------------------------------------------


def test_a_client_too_many_is_told_and_a_free_place_is_taken(runtime: Path) -> None:
    with serving(runtime, max_connections=3) as served:
        inside = [served.client() for _ in range(3)]
        for _ in range(5):
            with pytest.raises(Unavailable, match="3 clients are connected already") as caught:
                served.client()
            assert not isinstance(caught.value, Lost) and caught.value.hint == "close one and try again"
        assert inside[0].call("echo", {"text": "x"}) == "x"
        inside.pop().close()
        _eventually(served)


def test_a_client_too_many_that_is_slow_to_speak_still_learns_why(runtime: Path) -> None:
    with serving(runtime, max_connections=0) as served:
        late = served.raw(is_greeted=False)
        threading.Event().wait(0.2)
        assert late.ask({"id": 1, "method": "hello"})["error"]["data"]["outcome"] == "unavailable"
        late.close()


@pytest.mark.covers("A-185")
def test_callers_that_never_say_hello_lock_nobody_out(served: Served) -> None:
    silent = [served_socket(served.path) for _ in range(70)]
    began_s = monotonic_s()
    with served.client() as client:
        assert client.call("echo", {"text": "x"}) == "x" and monotonic_s() - began_s < 2
        assert [sock.recv(1) for sock in silent] == [b""] * 70, "they are hung up on"
        assert monotonic_s() - began_s < 15
        assert client.call("echo", {"text": "y"}) == "y", "who said hello may be silent as long as it likes"
    for sock in silent:
        sock.close()


def test_a_hello_in_small_steps_is_too_slow(served: Served) -> None:
    raw, began_s = served.raw(is_greeted=False), monotonic_s()
    with pytest.raises(OSError):
        for byte in json.dumps({"id": 1, "method": "hello", "params": {"client": "x" * 500}}).encode():
            raw.send(bytes([byte]))
            threading.Event().wait(0.05)
    assert monotonic_s() - began_s < 15
    raw.close()


# Says hello as another user as often as it may, then waits to be told to go.
CROWD = """
import json, socket, sys
count, crowd = 0, []
for number in range(int(sys.argv[2])):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
    sock.sendall(json.dumps({"id": 1, "method": "hello", "params": {"client": "crowd"}}).encode() + b"\\n")
    count += b'"result"' in sock.makefile("rb").readline()
    crowd.append(sock)
print(count, flush=True)
sys.stdin.read()
"""


@needs(root=True)
def test_places_are_kept_for_the_owner(runtime: Path) -> None:
    with serving(runtime, max_connections=16) as served:
        runtime.chmod(0o755)
        served.path.chmod(0o666)
        child = subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", CROWD, str(served.path), "20"],
            user=65534,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None and child.stdout.readline() == "12\n"
            with served.client() as client:
                assert client.call("echo", {"text": "x"}) == "x"
        finally:
            child.communicate()


def test_a_person_s_connections_are_counted_when_they_say_who_they_are(runtime: Path) -> None:
    def gate(peer: Peer, params: dict[str, Any]) -> Peer | None:
        return Peer(peer.pid, NOBODY, NOBODY, person=params["token"], login="x") if params.get("token") else None

    with serving(runtime, max_connections=16, gate=gate) as served:
        held = []
        with pytest.raises(Busy, match="4 connections of mallory"):
            for _ in range(5):
                held.append(Client(str(served.path), name="web", token="mallory"))
        assert len(held) == 4
        with Client(str(served.path), name="web", token="ann") as ann, served.client() as own:
            assert ann.call("echo", {"text": "x"}) == own.call("echo", {"text": "x"}) == "x"
        for one in held:
            one.close()


def test_the_end_comes_when_nothing_runs_any_more(served: Served) -> None:
    ended = threading.Event()
    served.listener.add("end", lambda call: served.listener.end_when_idle(ended.set))
    with served.client() as client, served.client() as other:
        running = threading.Thread(target=lambda: client.call("hold"))
        running.start()
        served.service.started.acquire()
        assert other.call("end") is False and not ended.wait(0.2)
        assert other.call("echo", {"text": "x"}) == "x" and not ended.is_set(), "others are served meanwhile"
        served.service.go.set()
        running.join(60)
        assert ended.wait(60)
        with pytest.raises(Lost):
            other.call("echo", {"text": "y"})


def test_an_idle_server_ends_when_the_asking_one_is_answered(served: Served) -> None:
    ended = threading.Event()
    served.listener.add("end", lambda call: served.listener.end_when_idle(ended.set))
    with served.client() as client:
        assert client.call("end") is True and ended.wait(60)


def test_by_default_the_65th_is_one_too_many(served: Served) -> None:
    inside = [served.raw() for _ in range(64)]
    with pytest.raises(Unavailable, match="64 clients"):
        served.client()
    for raw in inside:
        raw.close()
    _eventually(served)


def served_socket(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return sock


def test_callers_that_leave_at_once_do_not_make_it_deaf(runtime: Path) -> None:
    with serving(runtime, max_connections=1) as served:
        inside = served.client()
        for _ in range(50):
            served_socket(served.path).close()
        assert inside.call("echo", {"text": "x"}) == "x"
        inside.close()
        _eventually(served)


def test_running_out_of_descriptors_does_not_make_it_deaf(runtime: Path) -> None:
    code = """
import resource, socket, sys, threading
from pathlib import Path
from appliance.runtime.rpc_client import Client
from appliance.clock import Alarms, sleep_s
from appliance.runtime.rpc_server import Listener, listen
path = Path(sys.argv[1])
listener = Listener(listen(path), name="core", gate=lambda peer, params: None, alarms=Alarms(), max_connections=1000)
listener.start()
Client(str(path), name="x").close()
sock = socket.socket(socket.AF_UNIX)
resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, 4096))
sock.connect(str(path))
sleep_s(0.5)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
sock.close()
print(Client(str(path), name="x").call("ping")["name"])
"""
    done = subprocess.run([sys.executable, "-c", code, str(runtime / "fd.sock")], capture_output=True, text=True, timeout=120)
    assert done.stdout == "core\n", done.stderr


def test_a_client_that_never_reads_holds_up_nobody(served: Served) -> None:
    slow = served.raw()
    for n in range(1, 5):
        slow.send({"id": n, "method": "flood", "deadline_s": 0.3})
    assert all(served.service.started.acquire(timeout=180) for _ in range(4))
    threading.Event().wait(0.5)  # its deadlines pass while its buffer is full
    with served.client() as client:
        started_s = monotonic_s()
        assert client.call("echo", {"text": "quick"}) == "quick"
        with pytest.raises(DeadlineExceeded, match="wait took"):
            client.call("wait", deadline_s=0.2)
        assert monotonic_s() - started_s < 20
    slow.close()


ODD_VALUES = ["echo", "hello", "cancel", "discover", "wait", "", "\ud800", {}, {"id": []}, {"client": []}, {"seconds": 0}]
ODD_FRAMES = st.dictionaries(
    st.sampled_from(["id", "method", "params", "deadline_s", "correlation", "jsonrpc", "x"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.lists(st.integers(), max_size=2) | st.sampled_from(ODD_VALUES),
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200) | ODD_FRAMES.map(lambda frame: json.dumps(frame).encode() + b"\n"), max_size=6))
def test_no_bytes_kill_it(sturdy: Served, packets: list[bytes]) -> None:
    raw = sturdy.raw(is_greeted=len(packets) % 2 == 0)
    try:
        for packet in packets:
            raw.send(packet)
        raw.send(b"\n" + json.dumps({"id": "last", "method": "ping"}).encode() + b"\n")
        while raw.read().get("id") != "last":
            pass  # answers to whatever came before
    finally:
        raw.close()
    with sturdy.client() as client:
        assert client.call("echo", {"text": "alive"}) == "alive"


def test_an_error_reaches_the_caller_as_it_was_raised(sturdy: Served) -> None:
    with sturdy.client() as client, pytest.raises(NotFound) as caught:
        client.call("fail", {"outcome": "not_found"})
    assert (caught.value.message, caught.value.hint) == ("no such owl", "look in the barn")


def _eventually(served: Served) -> None:
    """The server notices a closed connection in its own time; a minute is plenty."""
    end_s = monotonic_s() + 60
    while True:
        try:
            with served.client() as client:
                assert client.call("echo", {"text": "in"}) == "in"
            return
        except Unavailable:
            if monotonic_s() > end_s:
                raise
            threading.Event().wait(0.02)


# Says hello on many connections and asks for much that it never reads, as the user it is started as.
GREEDY = """
import json, socket, sys, time
def frame(number, method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\\n"
held = []
for _ in range(12):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
    sock.sendall(frame(0, "hello", client="greedy"))
    held.append(sock)
time.sleep(0.5)
for sock in held:
    sock.setblocking(False)
    try:
        for number in range(1, 40):
            sock.send(frame(number, sys.argv[2]))
    except BlockingIOError:
        pass
print("asked", flush=True)
time.sleep(120)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")
@pytest.mark.parametrize("method", ["flood", "stream"])
def test_another_user_who_asks_for_much_and_reads_nothing_holds_up_nobody(runtime: Path, method: str) -> None:
    with serving(runtime, threads=8, max_long=8) as served:
        runtime.chmod(0o755)
        served.path.chmod(0o666)
        command = ["/usr/bin/python3", "-c", GREEDY, str(served.path), method]  # any user may start this one
        with subprocess.Popen(command, stdout=subprocess.PIPE, user=65534, group=65534, extra_groups=[]) as child:
            assert child.stdout is not None and child.stdout.readline() == b"asked\n"
            threading.Event().wait(1)
            with served.client() as client:
                started_s = monotonic_s()
                assert all(client.call("echo", {"text": "quick"}) == "quick" for _ in range(20))
                served.service.go.set()
                assert client.call("stream") == "held"
                assert monotonic_s() - started_s < 10
            child.kill()
