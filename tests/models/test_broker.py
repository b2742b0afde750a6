"""The broker as a process: real socket, real token, real signals; a scripted model behind it."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import quick

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import BadInput, Busy, Cancelled, DeadlineExceeded, NotFound, Refused, Unavailable
from appliance.records import Ask, Finish, Message, Part, from_plain, to_plain
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client

ROOT = Path(__file__).parents[2]
TOKEN = "test-token-0123456789"
SERVE = (
    "import os, sys; from pathlib import Path; from appliance.models import broker; from appliance.runtime.paths import Home\n"
    "sys.exit(broker.serve(Home(Path(sys.argv[1])), os.environ, socket_path=Path(sys.argv[2]), ready_fd=int(sys.argv[3])))\n"
)
PLAY = """
[[turns]]
match = "slow"
repeat = true
chunks = ["one ", "two"]
chunk_delay_s = 60
[[turns]]
match = "fail"
repeat = true
error = "busy"
[[turns]]
repeat = true
text = "hoot hoot"
chunk_size = 4
"""


@dataclass
class Running:
    """A broker process and how to reach it."""

    child: "subprocess.Popen[bytes]"
    socket: Path
    home: Home

    def client(self, token: str = TOKEN) -> Client:
        return Client(str(self.socket), name="test", token=token, timeout_s=60)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home.logs / "broker/broker.log").read_text().splitlines()]


@contextmanager
def started(home: Home, program: str = SERVE, **environ: str) -> Iterator[Running]:
    """A broker that accepts, ended afterwards. Its socket is under /tmp: pytest's folders are too deep for one."""
    reader, writer = os.pipe()
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder:
        socket = Path(folder) / "b.sock"
        command = [sys.executable, "-c", program, str(home.root), str(socket), str(writer)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("OWLBOX")}
        child = quick.popen(command, cwd=ROOT, env={**clean, **quick.ENVIRON, **environ}, pass_fds=[writer])
        os.close(writer)
        try:
            assert os.read(reader, 1) == b"1", "the broker did not start"
            yield Running(child, socket, home)
        finally:
            os.close(reader)
            child.terminate()
            child.wait(60)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose only model is a script."""
    (tmp_path / "play.toml").write_text(PLAY)
    (tmp_path / "owlbox.toml").write_text('[models]\nscript = "play.toml"\n')
    return Home(tmp_path)


@pytest.fixture
def broker(home: Home) -> Iterator[Running]:
    with started(home, OWLBOX_TOKEN=TOKEN) as running:
        yield running


def ask(words: str, **more: Any) -> dict[str, Any]:
    record = Ask((Part("core", "You are an owl."),), (Message("user", words),), **more)
    return {"route": "local", "ask": to_plain(record)}


def generate(client: Client, words: str, *, correlation: str = "", **more: Any) -> tuple[list[str], Finish]:
    stream, texts = client.stream("generate", ask(words, **more), deadline_s=60, correlation=correlation), []
    while True:
        try:
            name, params = next(stream)
        except StopIteration as end:
            return texts, from_plain(Finish, end.value)
        assert name == "piece"
        texts.append(params["text"])


@pytest.mark.covers("S-003", "B-171")
def test_an_answer_streams_and_ends_with_one_finish(broker: Running) -> None:
    with broker.client() as client:
        assert client.call("plan")[0] == {
            "name": "local",
            "provider": "scripted",
            "model": "play",
            "window": 8192,
            "dialect": "native",
            "max_tokens": 0,
            "is_remote": False,
        }
        texts, finish = generate(client, "hi")
        assert texts == ["hoot", " hoo", "t"]
        assert (finish.reason, finish.provider, finish.model) == ("stop", "scripted", "play")
        assert client.call("count", {"route": "local", "texts": ["abcd", ""]}) == [2, 0]
        assert client.call("measure", ask("hi"))["parts"] == {"core": 8, "messages": 1}
        status = client.call("status")
        assert (status["served"], status["is_busy"], status["pid"]) == (1, False, broker.child.pid)


@pytest.mark.covers("A-186")
@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", "test-token-\u00e9"])
def test_a_missing_or_foreign_token_is_refused_and_logged(broker: Running, token: str) -> None:
    with pytest.raises(Refused, match="missing or wrong token"):
        broker.client(token)
    refusals = [line for line in broker.log() if line["message"] == "refused hello"]
    assert len(refusals) == 1 and f"pid={os.getpid()}" in refusals[0]["peer"]
    with broker.client() as client:
        assert client.call("status")["served"] == 0


@pytest.mark.covers("A-186")
def test_the_token_ends_with_its_process_and_is_written_nowhere(home: Home) -> None:
    with started(home, OWLBOX_TOKEN=TOKEN) as first, first.client():
        pass
    with started(home, OWLBOX_TOKEN="another-token") as second:
        with pytest.raises(Refused):
            second.client(TOKEN)
        second.client("another-token").close()
    kept = b"".join(p.read_bytes() for p in home.root.rglob("*") if p.is_file())
    assert TOKEN.encode() not in kept and b"another-token" not in kept


@pytest.mark.covers("A-186")
def test_the_token_leaves_the_environment(home: Home) -> None:
    program = SERVE.replace("sys.exit(", "print(", 1) + "print('left', os.environ.get('OWLBOX_TOKEN'))\n"
    reader, writer = os.pipe()
    socket = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp")) / "b.sock"
    command = [sys.executable, "-c", program, str(home.root), str(socket), str(writer)]
    child = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "OWLBOX_TOKEN": TOKEN}, pass_fds=[writer], stdout=subprocess.PIPE
    )
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    child.terminate()
    assert child.communicate(timeout=60)[0].decode().split("\n")[:2] == ["0", "left None"]
    socket.parent.rmdir()


def test_without_a_token_our_own_user_is_served(home: Home) -> None:
    with started(home) as running, running.client("") as client:
        assert client.call("plan")


def test_the_correlation_id_is_in_every_line_of_the_work(broker: Running) -> None:
    with broker.client() as client:
        generate(client, "hi", correlation="11111111-2222-4333-8444-555555555555")
        with pytest.raises(Busy):
            generate(client, "fail", correlation="other")
    end_s = monotonic_s() + 60
    while sum(line.get("operation") == "generate" for line in broker.log()) < 2 and monotonic_s() < end_s:
        threading.Event().wait(0.02)  # a request is logged after it was answered
    mine = [line for line in broker.log() if line["correlation"].startswith("1111")]
    assert [line["message"] for line in mine] == ["generated", "request"]
    assert (mine[0]["route"], mine[0]["output"], mine[0]["result"]) == ("local", 5, "stop")
    assert mine[0]["prompt"] == mine[0]["evaluated"] == 9 and mine[0]["ms"] >= 0
    others = [line["message"] for line in broker.log() if line["correlation"] == "other"]
    assert others == ["not generated", "request"]


def test_cancel_stops_an_answer_and_frees_the_model(broker: Running) -> None:
    stop = CancelToken()
    with broker.client() as client:
        stream = client.stream("generate", ask("slow"), deadline_s=30, cancel=stop)
        assert next(stream)[1]["text"] == "one "
        started_s = monotonic_s()
        stop.set()
        with pytest.raises(Cancelled):
            next(stream)
        assert monotonic_s() - started_s < 20
        assert generate(client, "hi")[0]


def test_a_client_that_hangs_up_frees_the_model(broker: Running) -> None:
    first = broker.client()
    next(first.stream("generate", ask("slow"), deadline_s=30))
    first.close()
    with broker.client() as client:
        assert generate(client, "hi")[0]


@pytest.mark.parametrize("where", ["frame", "ask"])
def test_the_deadline_of_the_frame_or_of_the_ask_ends_it(broker: Running, where: str) -> None:
    with broker.client() as client:
        params, limit_s = (ask("slow"), 0.3) if where == "frame" else (ask("slow", deadline_s=0.3), 30.0)
        with pytest.raises(DeadlineExceeded):
            for _ in client.stream("generate", params, deadline_s=limit_s):
                pass
        assert generate(client, "hi")[0]


def test_wrong_requests_are_explained(broker: Running) -> None:
    with broker.client() as client:
        with pytest.raises(NotFound, match="unknown method invent"):
            client.call("invent")
        with pytest.raises(NotFound, match="no pool named huge"):
            client.call("plan", {"pool": "huge"})
        with pytest.raises(BadInput, match=r"ask.*messages"):
            client.call("generate", {"route": "local", "ask": {"system": []}})
        with pytest.raises(Busy, match="the script says"):
            generate(client, "fail")


def test_a_bug_in_a_provider_does_not_end_the_broker(home: Home) -> None:
    broken = "from appliance.providers import scripted; scripted.ScriptedTurn = None\n"
    with (
        started(home, SERVE.replace("sys.exit", broken + "sys.exit", 1), OWLBOX_TOKEN=TOKEN) as running,
        running.client() as client,
    ):
        for _ in range(2):
            with pytest.raises(Exception, match="plan failed inside broker"):
                client.call("plan")
        assert client.call("ping")["pid"] == running.child.pid
        assert "TypeError" in [line for line in running.log() if "trace" in line][0]["trace"]


def test_a_missing_model_is_said_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "owlbox.toml").write_text("")
    with started(Home(tmp_path), OWLBOX_TOKEN=TOKEN) as running, running.client() as client:
        with pytest.raises(Unavailable, match="no model in") as caught:
            client.call("load", {"route": "local"})
        assert caught.value.hint == "owlbox model add smollm2"


def test_terminate_cancels_what_runs_and_exits_cleanly(broker: Running) -> None:
    with broker.client() as client:
        stream = client.stream("generate", ask("slow"), deadline_s=30)
        next(stream)
        started_s = monotonic_s()
        broker.child.send_signal(signal.SIGTERM)
        with pytest.raises((Cancelled, Unavailable)):
            next(stream)
    assert broker.child.wait(60) == 0
    assert monotonic_s() - started_s < 20
    assert not broker.socket.exists()


def test_a_killed_broker_is_replaced_on_the_same_socket(home: Home) -> None:
    with started(home, OWLBOX_TOKEN=TOKEN) as running, running.client() as client:
        stream = client.stream("generate", ask("slow"), deadline_s=30)
        next(stream)
        running.child.kill()
        with pytest.raises(Unavailable, match="connection lost"):
            next(stream)
        running.child.wait()
        reader, writer = os.pipe()
        command = [sys.executable, "-c", SERVE, str(home.root), str(running.socket), str(writer)]
        second = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OWLBOX_TOKEN": "fresh"}, pass_fds=[writer])
        os.close(writer)
        assert os.read(reader, 1) == b"1"
        os.close(reader)
        with running.client("fresh") as again:
            assert generate(again, "hi")[0]
        second.terminate()
        assert second.wait(60) == 0


def test_a_child_broker_ends_with_its_parent(home: Home) -> None:
    spawn = (
        "import os, subprocess, sys; sys.stdout.flush()\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[4], *sys.argv[1:4]], pass_fds=[int(sys.argv[3])],\n"
        "                         env={**os.environ, 'OWLBOX_CHILD': '1'})\n"
        "print(child.pid, flush=True); sys.stdin.read(); os._exit(0)\n"
    )
    reader, writer = os.pipe()
    socket = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp")) / "b.sock"
    command = [sys.executable, "-c", spawn, str(home.root), str(socket), str(writer), SERVE]
    parent = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[writer])
    os.close(writer)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert os.read(reader, 1) == b"1"
    handle = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    assert select.select([handle], [], [], 60)[0], "the broker outlived its parent"
    os.close(handle)
    os.close(reader)
    socket.unlink(missing_ok=True)
    socket.parent.rmdir()


def test_idle_means_parked(broker: Running) -> None:
    with broker.client() as client:
        client.call("status")

        def switches() -> int:
            tasks = Path(f"/proc/{broker.child.pid}/task").glob("*/status")
            texts = [p.read_text() for p in tasks]
            return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if "ctxt_switches" in line)

        def is_parked() -> bool:
            before = switches()
            threading.Event().wait(1.0)
            return switches() == before

        assert any(is_parked() for _ in range(20)), "it wakes up every second"  # what it was asked may take a while to end
