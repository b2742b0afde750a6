"""With `models.local_only` the broker cannot reach any network, as the kernel sees to it; and nothing of a local box tries."""

import errno
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from needs import needs
from process import Box, a_box, until  # noqa: F401
from test_broker import ROOT, TOKEN, started
from test_remote_end_to_end import asked_for, remote_box
from wire import Turn

from appliance.runtime.paths import Home

# Serves as the broker does, while a thread of it, begun before, waits to be confined and then tries to connect.
TRYING = """
import os, socket, sys, threading, time
from pathlib import Path
from appliance.models import broker
from appliance.runtime.paths import Home

def confined():
    return "Seccomp:\\t2" in Path("/proc/thread-self/status").read_text()

def attempt():
    for _ in range(6000):
        if confined() or Path(sys.argv[1], "go").exists():
            break
        time.sleep(0.02)
    found = []
    for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_INET6, ("::1", {port}))):
        try:
            socket.socket(family, socket.SOCK_STREAM).connect(address)
            found.append("connected")
        except OSError as error:
            found.append(str(error.errno))
    Path(sys.argv[1], "found").write_text(f"{{confined()}} {{' '.join(found)}}")

threading.Thread(target=attempt, daemon=True).start()
sys.exit(broker.serve(Home(Path(sys.argv[1])), os.environ, socket_path=Path(sys.argv[2]), ready_fd=int(sys.argv[3])))
"""


@contextmanager
def listening() -> Iterator[int]:
    """A port of this machine where somebody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.covers("A-008")
@pytest.mark.parametrize("is_local", [True, False])
def test_a_local_broker_cannot_connect_and_an_open_one_can(tmp_path: Path, is_local: bool) -> None:
    (tmp_path / "play.toml").write_text('[[turns]]\ntext = "hoot"\nrepeat = true\n')
    (tmp_path / "owlbox.toml").write_text(f'[models]\nscript = "play.toml"\nlocal_only = {str(is_local).lower()}\n')
    if not is_local:
        (tmp_path / "go").touch()
    with listening() as port, started(Home(tmp_path), TRYING.format(port=port), OWLBOX_TOKEN=TOKEN) as broker:
        until((tmp_path / "found").exists, "the thread has tried")
        until(lambda: bool((tmp_path / "found").read_text()), "the thread has said so")
        confined, four, six = (tmp_path / "found").read_text().split()
        with broker.client() as client:
            assert client.call("status")["is_confined"] is is_local
    assert (confined, four) == (("True", str(errno.EAFNOSUPPORT)) if is_local else ("False", "connected"))
    assert (six == str(errno.EAFNOSUPPORT)) is is_local, "nobody listens there: it may be refused, but not forbidden"


def test_switching_it_off_and_on_again_restarts_the_broker(box: Box) -> None:
    core = box.serve()
    first = core.broker_pid()
    assert core.call("core.status")["broker"]["is_confined"]
    for value, is_confined in (("false", False), ("true", True)):
        text = box.home.config.read_text() if box.home.config.exists() else ""
        kept = "\n".join(line for line in text.splitlines() if not line.startswith(("[models]", "local_only")))
        box.home.config.write_text(f"{kept}\n[models]\nlocal_only = {value}\n")
        told = core.call("core.reload")
        assert "models.local_only" in told["changed"], told

        def is_so(wanted: bool = is_confined, before: int = first) -> bool:
            broker = core.call("core.status")["broker"]
            return broker["state"] == "running" and broker["pid"] != before and broker["is_confined"] is wanted

        until(is_so, "the new broker is as it should be")
        first = int(core.call("core.status")["broker"]["pid"])


@pytest.mark.covers("A-008", "A-263")
def test_it_holds_for_the_next_question_although_an_answer_is_streaming(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        wires["a"].always = Turn(chunks=("word ",) * 40, pause_s=0.2)
        core = box.serve()
        first = core.broker_pid()
        asking = box.start("ask", "a long story")
        until(lambda: bool(asked_for(wires["a"])), "the answer streams")
        box.home.config.write_text(box.home.config.read_text().replace("local_only = false", "local_only = true\nthreads = 2"))
        told = box.json("reload")
        assert told == {"changed": "models.local_only", "broker": "models.threads", "restart": ""}, "it is answering"
        status = core.call("core.status")
        assert (
            status["broker"]["is_confined"] and status["broker"]["pid"] == first and status["pending"]["broker"] == "models.threads"
        )
        assert "pending      when the model process has answered" in box.run("status").stdout
        done = box.run("ask", "another question")
        assert done.returncode != 0 and "local_only is true" in done.stderr
        assert len(asked_for(wires["a"])) == 1
        out, _ = asking.communicate(timeout=120)
        assert out.decode().count("word") == 40, "what was being said is finished"
        until(lambda: core.call("core.status")["pending"] == {"broker": "", "restart": ""}, "nothing waits")
        assert core.broker_pid() != first and len(asked_for(wires["a"])) == 1
        assert box.json("reload") == {"changed": "", "broker": "", "restart": ""}


@pytest.mark.covers("A-263")
def test_pools_changed_while_an_answer_streams_are_used_after_it(box: Box) -> None:
    with remote_box(box, '"a/m"') as wires:
        wires["a"].always = Turn(chunks=("word ",) * 15, pause_s=0.2)
        wires["b"].always = Turn(chunks=("Tu-whit.",))
        core = box.serve()
        asking = box.start("ask", "a long story")
        until(lambda: bool(asked_for(wires["a"])), "the answer streams")
        box.home.config.write_text(box.home.config.read_text().replace('default = ["a/m"]', 'default = ["b/n"]'))
        assert box.run("reload").stdout == (
            "changed: nothing\nwhen the model process has answered what it is asked now: pools.default\n"
        )
        assert box.json("reload")["broker"] == "pools.default", "it is said again"
        asking.communicate(timeout=120)
        until(lambda: core.call("core.status")["pending"]["broker"] == "", "nothing waits")
        assert box.run("ask", "who are you now?").stdout == "Tu-whit.\n"


# Runs in a network of its own in which every address is reached over one interface, where every packet is seen. First
# an attempt on purpose, then a whole box at work.
CAPTURE = """
import json, socket, subprocess, sys, threading, time

for words in ("link set lo up", "route add local default dev lo", "-6 route add local default dev lo"):
    subprocess.run(["ip", *words.split()], check=True)
packets, seen = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3)), []

def watch():
    while True:
        seen.append(packets.recv(65535)[12:60].hex())

def attempt(family, kind, address):
    with socket.socket(family, kind) as sock:
        sock.settimeout(0.3)
        try:
            sock.connect(address)
            sock.send(b"x")
        except OSError:
            pass

threading.Thread(target=watch, daemon=True).start()
attempt(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 443))
attempt(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))
attempt(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 443))
time.sleep(0.3)
on_purpose = {packet[:4] for packet in seen}
seen.clear()
done = subprocess.run(json.loads(sys.argv[1]), capture_output=True, text=True, timeout=400, stdin=subprocess.DEVNULL)
time.sleep(0.3)
print(json.dumps({"on_purpose": sorted(on_purpose), "box": seen, "said": done.stdout + done.stderr}))
"""

SERVING = textwrap.dedent("""
    import os, subprocess, sys, time
    core = subprocess.Popen([sys.executable, "-m", "appliance", "serve"], stderr=subprocess.DEVNULL)
    try:
        for words in (["ask", "hello"], ["ask", "please fetch it"], ["task", "add", "watch the wood"], ["status"], ["doctor"]):
            done = subprocess.run([sys.executable, "-m", "appliance", *words], capture_output=True, text=True, timeout=180)
            print(words[0], done.returncode, done.stdout[:300], done.stderr[:300])
    finally:
        core.terminate()
        core.wait(60)
""")


@pytest.mark.covers("A-008")
@needs("unshare", "ip", root=True)
def test_no_packet_leaves_a_box_whose_models_are_local(box: Box) -> None:
    program = ["unshare", "--net", "--", sys.executable, "-c", CAPTURE, json.dumps([sys.executable, "-c", SERVING])]
    environ = {**box.environ, "OWLBOX_HOME": str(box.home.root), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    done = subprocess.run(program, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=450)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["on_purpose"] == ["0800", "86dd"]  # the capture sees what there is to see, of either kind
    assert found["box"] == [] and "ask 0 Hoot hoot." in found["said"], found
