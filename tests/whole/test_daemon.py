"""The core as a service: one at a time, orderly to stop, and with a broker that it keeps alive."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from process import PLAY, Box, Core, a_box, is_gone, left_over, script, send, until  # noqa: F401

from appliance.clock import sleep_s
from appliance.errors import Conflict, NotFound, OwlError, Refused
from appliance.runtime import paths
from appliance.runtime.jsonrpc import Wire, connect
from appliance.runtime.rpc_client import Client

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


LATE = '[[turns]]\nrepeat = true\ntext = "Late."\n'  # what a broker plays that comes after one whose answer never ends


def asking(core: Core, text: str, **more: Any) -> tuple[threading.Thread, list[Any]]:
    """Ask in a thread; the list gets every notification and, last, the result or the error."""
    seen: list[Any] = []

    def work() -> None:
        try:
            with core.client() as client:
                stream = client.stream("message.send", {"text": text, **more}, deadline_s=120)
                while True:
                    seen.append(next(stream))
        except StopIteration as end:
            seen.append(end.value)
        except OwlError as error:
            seen.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, seen


# -- one core, and what belongs to it -----------------------------------------------------------------


@pytest.mark.covers("A-009")
def test_a_second_core_is_refused_and_names_the_first(box: Box) -> None:
    core = box.serve()
    second = box.run("serve")
    assert second.returncode == 5 and f"pid {core.child.pid}" in second.stderr and second.stderr.count("\n") == 1
    assert core.is_up() and box.run("ask", "hello").returncode == 0
    core.kill()
    assert box.serve().is_up()


@pytest.mark.covers("A-001")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running_when_the_core_ends(box: Box, number: signal.Signals) -> None:
    core = box.serve()
    broker = core.broker_pid()
    core.child.send_signal(number)
    assert core.child.wait(60) == (-9 if number == signal.SIGKILL else 0)
    until(lambda: is_gone(broker), "the broker ends")
    assert box.json("status")["core"] == "not running"


@pytest.mark.covers("A-001")
@pytest.mark.parametrize("moment_s", [0, 0.02, 0.05, 0.1, 0.15, 0.2])
def test_a_core_killed_while_its_broker_is_being_born_leaves_none(box: Box, moment_s: float) -> None:
    core = box.serve()
    sleep_s(moment_s)
    core.kill()
    until(lambda: not left_over(box), "nothing works on this home")


@pytest.mark.covers("A-004", "A-186")
@pytest.mark.parametrize("token", ["", "guessed", "A" * 43])
def test_only_the_core_may_talk_to_the_broker(box: Box, token: str) -> None:
    core = box.serve()
    core.broker_pid()
    path = str(paths.broker_socket(box.runtime))
    with pytest.raises(Refused):
        Client(path, name="stranger", token=token)
    refusals = [line for line in box.log("broker/broker") if "refused" in line["message"]]
    assert refusals and f"pid={os.getpid()}" in refusals[-1]["peer"]
    with pytest.raises(Refused):
        Client(str(paths.core_socket(box.runtime)), name="stranger", token="never issued")
    assert any("not issued" in line["message"] for line in box.log("core"))


@pytest.mark.covers("A-004")
def test_every_model_call_is_in_the_log_of_the_broker(box: Box) -> None:
    core = box.serve()
    box.run("ask", "hello")

    def calls() -> list[dict[str, Any]]:
        return [line for line in box.log("broker/broker") if line["message"] == "request"]

    until(lambda: {c["operation"] for c in calls()} >= {"plan", "generate"}, "they are in it, as soon as they were answered")
    assert all(f"pid={core.child.pid}" in c["sender"] and c["result"] == "ok" for c in calls() if c["operation"] == "generate")


@pytest.mark.covers("A-186")
def test_the_token_is_nowhere_but_in_the_environment_of_the_broker(box: Box) -> None:
    core = box.serve()
    broker = core.broker_pid()
    box.run("ask", "hello")
    token = core.call("core.broker")["token"]
    assert len(token) >= 32
    # What the kernel shows our own user; the broker's environment it shows root alone.
    for pid in (core.child.pid, broker):
        assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert token.encode() not in Path(f"/proc/{core.child.pid}/environ").read_bytes()
    core.stop()
    for folder in (box.home.root, Path(box.environ["XDG_RUNTIME_DIR"])):
        assert [p for p in folder.rglob("*") if p.is_file() and token.encode() in p.read_bytes()] == []


@pytest.mark.covers("A-186")
def test_every_broker_gets_a_token_of_its_own(box: Box) -> None:
    core = box.serve()
    first = core.broker_pid()
    old = core.call("core.broker")["token"]
    send(first, signal.SIGKILL)
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    core.broker_pid()
    assert core.call("core.broker")["token"] != old
    with pytest.raises(Refused):
        Client(str(paths.broker_socket(box.runtime)), name="late", token=old)


@pytest.mark.covers("A-185")
@needs(root=True)  # the broker shows nobody else what it has open
def test_the_sockets_are_private_and_no_tcp_port_is_open(box: Box) -> None:
    core = box.serve()
    pids = (core.child.pid, core.broker_pid())
    for path in (paths.core_socket(box.runtime), paths.broker_socket(box.runtime)):
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o660)
    assert stat.S_IMODE(box.runtime.stat().st_mode) == 0o700
    mine = {inode for pid in pids for inode in sockets_of(pid)}
    lines = [line for name in ("tcp", "tcp6", "udp", "udp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    assert mine and not mine & {line.split()[9] for line in lines}


def sockets_of(pid: int) -> set[str]:
    """Inodes of a process's sockets."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


@pytest.mark.covers("A-211")
def test_what_a_broker_prints_and_logs_is_kept_in_its_own_folder(box: Box) -> None:
    script(box, '[[turns]]\nnosuch = "key"\n')
    core = box.serve()
    core.broker_pid()
    assert (box.home.logs / "broker/output.log").exists()
    assert {line["process"] for line in box.log("broker/broker")} == {"broker"}
    assert {line["process"] for line in box.log("core")} == {"core"}


# -- the broker's health ------------------------------------------------------------------------------


@pytest.mark.covers("A-014")
def test_a_broker_killed_while_idle_is_back_for_the_next_question(box: Box) -> None:
    core = box.serve()
    first = core.broker_pid()
    send(first, signal.SIGKILL)
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert core.broker_pid() != first and core.call("core.status")["broker"]["restarts"] == 1


@pytest.mark.covers("A-014")
def test_questions_that_wait_when_the_broker_dies_are_answered(box: Box) -> None:
    script(box, '[[turns]]\nrepeat = true\ndelay_s = 600\ntext = "Late."\n')
    core = box.serve()
    broker = core.broker_pid()
    asked = [asking(core, f"question {i}") for i in range(3)]
    until(lambda: core.call("core.status")["answering"] == 3, "all are in")
    until(lambda: any(line["message"] == "request" and line["operation"] == "plan" for line in box.log("broker/broker")), "asked")
    script(box, LATE)
    send(broker, signal.SIGKILL)
    for thread, seen in asked:
        thread.join(60)
        assert seen[-1]["status"] == 200 and ("delta", {"text": "Late."}) in seen


@pytest.mark.covers("A-014")
def test_a_hung_broker_is_killed_and_its_question_is_answered(box: Box) -> None:
    script(box, '[[turns]]\nrepeat = true\ndelay_s = 600\ntext = "Late."\n')
    core = box.serve(OWLBOX__ORCHESTRATOR__HEALTH_INTERVAL_MS="500")
    broker = core.broker_pid()
    thread, seen = asking(core, "hello")
    until(lambda: core.call("core.status")["broker"].get("is_busy", False), "the model is at it")
    script(box, LATE)
    send(broker, signal.SIGSTOP)
    try:
        thread.join(60)
        assert seen[-1]["status"] == 200, seen[-1]
        assert core.broker_pid() != broker and is_gone(broker)
    finally:
        if not is_gone(broker):
            send(broker, signal.SIGKILL)


@pytest.mark.covers("A-014")
def test_a_broker_that_hangs_while_idle_is_replaced_when_it_is_needed(box: Box) -> None:
    core = box.serve()
    broker = core.broker_pid()
    send(broker, signal.SIGSTOP)
    try:
        assert "not answering" in core.call("core.status")["broker"]["state"]
        done = box.run("ask", "hello")
        assert (done.returncode, done.stdout) == (0, "Hoot hoot.\n"), done.stderr
        assert core.broker_pid() != broker and is_gone(broker)
    finally:
        if not is_gone(broker):
            send(broker, signal.SIGKILL)


# -- state that outlives a core -----------------------------------------------------------------------


@pytest.mark.covers("A-212")
def test_sessions_and_processes_are_on_record_after_a_kill(box: Box) -> None:
    core = box.serve()
    broker = core.broker_pid()
    thread, _ = asking(core, "stuck")
    until(lambda: [t["status"] for t in core.call("thread.list")] == [102], "it answers")
    core.kill()
    thread.join(60)
    with box.store() as store:
        rows = store.rows("SELECT kind, pid, ended_ms FROM processes WHERE kind IN ('core', 'broker') ORDER BY kind")
        session = store.row("SELECT person, context, status, process <> '', last_active_ms > 0, archived_ms FROM sessions")
    assert rows == [("broker", broker, None), ("core", core.child.pid, None)]
    until(lambda: is_gone(broker), "its broker follows it")
    assert session is not None and session[1].startswith("user:") and session[2:] == ("active", 1, 1, None)
    status = box.json("status")
    assert status["sessions"][0]["status"] == "stopped" and status["sessions"][0]["process"] == ""
    assert {p["reason"] for p in status["processes"]} == {"killed"}


@pytest.mark.covers("A-185")
def test_a_message_in_the_queue_outlives_a_killed_core(box: Box) -> None:
    core = box.serve()
    thread, _ = asking(core, "stuck")
    until(lambda: [t["status"] for t in core.call("thread.list")] == [102], "the first is being answered")
    queued = core.call("message.send", text="and mine?", wait=False)["run"]
    core.kill()
    thread.join(60)
    again = box.serve()
    until(lambda: again.call("thread.view", id=queued)["thread"]["status"] == 200, "the queued one is answered")
    stuck = next(t for t in again.call("thread.list") if t["title"] == "stuck")
    assert (stuck["status"], stuck["outcome"]) == (499, "interrupted")


# -- configuration ------------------------------------------------------------------------------------


@pytest.mark.covers("A-263")
def test_sighup_takes_a_changed_value_and_keeps_the_old_one_when_the_file_is_broken(box: Box) -> None:
    core = box.serve()
    core.broker_pid()
    box.home.config.write_text('[system]\nlog_level = "debug"\n')
    core.child.send_signal(signal.SIGHUP)
    until(lambda: any("configuration reloaded: system.log_level" in line["message"] for line in box.log("core")), "reloaded")
    box.home.config.write_text("[system\n")
    core.child.send_signal(signal.SIGHUP)
    until(lambda: any("not reloaded" in line["message"] and "line 1" in line["message"] for line in box.log("core")), "it says so")
    box.run("ask", "hello")
    assert any(line["level"] == "debug" for line in box.log("core")), "the old value holds"
    told = box.run("reload")
    assert told.returncode == 2 and "the old one stays" in told.stderr and core.is_up()


def test_a_reload_that_finds_the_database_busy_does_not_end_the_core(box: Box, tmp_path: Path) -> None:
    box.home.config.write_text(f'[skills]\nfolders = ["{tmp_path}/more"]\n')
    core = box.serve()
    with box.store() as store, store.write():  # before there is anything to read: nobody else gets it done
        (tmp_path / "more/fly").mkdir(parents=True)
        (tmp_path / "more/fly/SKILL.md").write_text("---\nname: fly\ndescription: How to fly.\n---\nUp.\n")
        core.child.send_signal(signal.SIGHUP)
        until(lambda: any("reload was not finished" in line["message"] for line in box.log("core")), "it says so")
    assert core.is_up() and core.call("core.reload") == {"changed": "", "broker": "", "restart": ""}


def test_a_reload_takes_effect_at_once_and_says_what_waits_for_a_restart(box: Box) -> None:
    core = box.serve()
    first = core.broker_pid()
    (box.home.root / "rules.toml").write_text('[tools]\ndeny = ["search"]\n')
    box.home.config.write_text('[policy]\npath = "rules.toml"\n[store]\nmmap_mb = 9\n[models]\ncontext = 4096\n')
    told = box.run("reload").stdout
    assert told == "changed: models.context, policy.path\nafter a restart: store.mmap_mb\n"
    assert box.run("reload").stdout == "changed: nothing\nafter a restart: store.mmap_mb\n", "it still waits"
    assert "pending      after a restart: store.mmap_mb" in box.run("status").stdout
    assert core.call("tool.call", name="search", arguments={"query": "owl"})["status"] == 403
    until(lambda: core.broker_pid() != first, "another broker")
    (box.home.root / "rules.toml").write_text("[tools\n")
    assert box.run("reload").returncode == 2
    assert core.call("tool.call", name="search", arguments={"query": "owl"})["status"] == 403, "the old policy holds"


def test_a_command_with_another_runtime_folder_finds_the_core(box: Box, tmp_path: Path) -> None:
    core = box.serve()
    elsewhere = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert f"running, pid {core.child.pid}" in box.run("status", **elsewhere).stdout
    core.kill()
    assert "core         not running" in box.run("status", **elsewhere).stdout


@pytest.mark.covers("A-277")
@pytest.mark.parametrize(("text", "problem"), [("mode = 'lax'\n", "lax"), ("[tools\n", "not TOML"), ("", "empty")])
def test_an_invalid_policy_file_stops_the_start(box: Box, text: str, problem: str) -> None:
    box.home.config.write_text('[policy]\npath = "policy.toml"\n')
    (box.home.root / "policy.toml").write_text(text)
    done = box.run("serve")
    assert done.returncode == 2 and problem in done.stderr and "policy.toml" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.covers("A-277")
def test_without_a_policy_path_the_default_policy_lets_tools_run(box: Box) -> None:
    assert box.serve().is_up()
    assert box.run("remember", "all is allowed").returncode == 0


@pytest.mark.covers("R-203")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[channels.matrix]\nenabled = true\n", "channels.matrix.user"),
        ("[channels.email]\nenabled = true\n", "channels.email.imap_host"),
        ('[system]\ntimezone = ""\n', "system.timezone"),
        ('[providers.cloud]\nbase_url = ""\n', "providers.cloud.base_url"),
        ('[sandbox]\nworkspace = "${OWL_NAME}"\n', "OWL_NAME"),
    ],
)
def test_missing_configuration_stops_the_start_and_is_named(box: Box, text: str, named: str) -> None:
    box.home.config.write_text(text)
    done = box.run("serve")
    assert done.returncode == 2 and named in done.stderr and done.stderr.count("\n") == 1


# -- one id through everything ------------------------------------------------------------------------


@pytest.mark.covers("A-271")
def test_one_correlation_id_is_in_both_logs_and_in_every_event(box: Box) -> None:
    script(box, '[[turns]]\ntool_calls = [{name = "search", arguments = {query = "tea"}}]\n[[turns]]\ntext = "Done."\n')
    box.serve()
    run = box.json("ask", "where is the tea?")["run"]
    events = box.events(run)
    (correlation,) = {event["correlation"] for event in events}
    assert UUID4.fullmatch(correlation) and [e["kind"] for e in events].count("tool_result") == 1

    def operations(name: str) -> list[str]:  # each is written down after it was answered
        return [line.get("operation", "") for line in box.log(name) if line["correlation"] == correlation]

    until(lambda: "message.send" in operations("core"), "it is in the log of the core")
    until(lambda: operations("broker/broker").count("generate") == 2, "and twice in that of the broker")
    other = box.events(box.json("ask", "and now?")["run"])
    assert {event["correlation"] for event in other} != {correlation}


# -- an orderly end -----------------------------------------------------------------------------------


@pytest.mark.covers("A-274", "A-276", "E-323")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_answer_in_good_order(box: Box, number: signal.Signals) -> None:
    core = box.serve()
    thread, seen = asking(core, "endless one")
    until(lambda: any(isinstance(item, tuple) and item[0] == "delta" for item in list(seen)), "it speaks")
    core.child.send_signal(number)
    assert core.child.wait(60) == 0
    thread.join(60)
    (run,) = box.json("thread", "list")
    assert (run["status"], run["outcome"]) == (499, "stopped")
    said = box.events(run["id"])
    assert said[1]["content"].startswith("one ") and said[-1]["kind"] == "status_change"
    with box.store() as store:
        assert store.value("SELECT status FROM sessions") == "stopped"
        assert store.value("SELECT COUNT(*) FROM turn_locks") == 0
        assert store.value("SELECT COUNT(*) FROM processes WHERE ended_ms IS NULL") == 0
    words = [line["message"] for line in box.log("core")]
    assert f"shutdown initiated: signal {number.name}" in words and f"shutdown complete: signal {number.name}" in words
    assert not paths.core_socket(box.runtime).exists()


@pytest.mark.covers("A-274")
def test_a_second_request_to_shut_down_is_refused(box: Box) -> None:
    core = box.serve()
    wire = greeted(core)
    asks = [{"jsonrpc": "2.0", "id": i, "method": "core.shutdown", "params": {"reason": "test"}} for i in (2, 3)]
    wire.sock.sendall("".join(json.dumps(ask) + "\n" for ask in asks).encode())
    lines = wire.lines()
    answers = [json.loads(line) for line in (next(lines), next(lines)) if isinstance(line, bytes)]
    assert sorted("error" in a for a in answers) == [False, True]
    refusal = next(a["error"] for a in answers if "error" in a)
    assert "already initiated" in refusal["message"] and refusal["data"]["outcome"] == "already_running"
    assert core.child.wait(60) == 0
    wire.close()


def greeted(core: Core) -> Wire:
    """A bare connection that has said hello."""
    wire = connect(str(paths.core_socket(core.box.runtime)), 30)
    wire.send({"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"client": "test"}})
    next(wire.lines())
    return wire


@pytest.mark.covers("A-276")
def test_what_waits_at_shutdown_is_answered_after_the_restart(box: Box) -> None:
    core = box.serve()
    thread, _ = asking(core, "stuck")
    until(lambda: [t["status"] for t in core.call("thread.list")] == [102], "the first is being answered")
    queued = core.call("message.send", text="and mine?", wait=False)["run"]
    assert core.stop() == 0
    thread.join(60)
    again = box.serve()
    until(lambda: again.call("thread.view", id=queued)["thread"]["status"] == 200, "answered")


def test_a_deleted_thread_is_refused_while_it_is_being_answered(box: Box) -> None:
    core = box.serve()
    thread, seen = asking(core, "stuck")
    until(lambda: bool(seen), "accepted")
    run = seen[0][1]["run"]
    until(lambda: core.call("thread.view", id=run)["thread"]["status"] == 102, "begun")
    with pytest.raises(Conflict):
        core.call("thread.delete", id=run)
    core.call("run.stop", run=run)
    thread.join(60)
    core.call("thread.delete", id=run)
    with pytest.raises(NotFound):
        core.call("thread.view", id=run)


def test_a_socket_file_of_a_dead_core_is_in_nobodys_way(box: Box) -> None:
    box.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = paths.core_socket(box.runtime)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert box.serve().is_up()


# -- what a broken file or a stuck thread must not do ---------------------------------------------------


def test_a_broker_starts_again_although_the_configuration_is_broken_by_now(box: Box) -> None:
    box.home.config.write_text("[models]\nmax_output_tokens = 77\n")
    core = box.serve()
    first = core.broker_pid()
    box.home.config.write_text("[models\n")
    send(first, signal.SIGKILL)
    assert box.run("ask", "hello").stdout == "Hoot hoot.\n"
    assert core.broker_pid() != first


def test_a_broker_that_ends_at_every_start_is_left_alone_until_it_is_needed(box: Box) -> None:
    core = box.serve(OWLBOX__LLM__BROKER_WAIT_S="10")
    first, path = core.broker_pid(), paths.broker_socket(box.runtime)
    path.unlink()
    path.mkdir()
    send(first, signal.SIGKILL)
    until(lambda: any("ends at every start" in line["message"] for line in box.log("core")), "it gives up")
    count = core.call("core.status")["broker"]["restarts"]
    sleep_s(4)  # longer than the next pause would be
    assert core.call("core.status")["broker"]["restarts"] == count
    done = box.run("ask", "hello")
    assert done.returncode == 5 and "does not start" in done.stderr and "broker.sock" in done.stderr
    path.rmdir()
    until(lambda: box.run("ask", "hello").stdout == "Hoot hoot.\n", "it is needed and starts")


def test_a_core_with_a_stuck_thread_ends_all_the_same(box: Box) -> None:
    code = (
        "import os, sys, time\nfrom concurrent.futures import ThreadPoolExecutor\nfrom pathlib import Path\n"
        "from appliance.service import daemon\nfrom appliance.runtime.paths import Home\n"
        "ThreadPoolExecutor(1, thread_name_prefix='stuck').submit(time.sleep, 600)\n"
        "sys.exit(daemon.serve(Home(Path(sys.argv[1])), os.environ))\n"
    )
    words = [sys.executable, "-c", code, str(box.home.root)]
    core = Core(box, subprocess.Popen(words, env=box.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    box.children.append(core.child)
    until(core.is_up, "the core listens")
    core.child.terminate()
    assert core.child.wait(60) == 0 and core.child.stderr is not None
    assert "left behind: stuck_0" in core.child.stderr.read().decode()


def test_a_core_that_is_told_to_makes_what_is_missing_of_its_home(box: Box) -> None:
    shutil.rmtree(box.home.backups)
    core = Core(box, box.start("serve", "--init"))
    until(core.is_up, "the core listens")
    assert box.home.backups.is_dir() and core.stop() == 0


LARGE = """
import ctypes
from appliance.service.heap import share_heaps

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks used free top".split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Heap
share_heaps()
block = bytearray(4 << 20)
del block  # from the first one on the C library would take blocks up to this size from the heaps
before = library.mallinfo2().hblkhd
block = bytearray(1 << 20)
print(library.mallinfo2().hblkhd - before >= 1 << 20)
"""


def test_large_blocks_of_memory_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr
