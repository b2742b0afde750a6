"""Figures, probes, the port that answers them, and the lines of a run in every process's log."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from process import Box, Core, a_box  # noqa: F401
from stores import new_store

from appliance.errors import Lost
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import Entries
from appliance.records import Event
from appliance.runtime.events import Events
from appliance.runtime.paths import Home
from appliance.runtime.settings import Orchestrator
from appliance.service.parts.watching import Port
from appliance.service.watching import figures, log_reader
from appliance.service.watching.health import Health, Prober, describe_broker
from appliance.sessions.runs import Runs
from appliance.work.jobs import Job, JobEnded

LINE = re.compile(r'owlbox_[a-z_]+(\{([a-z]+="([^"\\\n]|\\.)*",?)+\})? -?[0-9.e+-]+')


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ask(port: int, text: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text.encode())
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts).decode()


def get(port: int, path: str, host: str = "127.0.0.1") -> str:
    return ask(port, f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")


def bound_addresses(port: int) -> set[str]:
    """The addresses at which somebody listens at a port, as the kernel writes them."""
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    places = [row[1].split(":") for row in rows if row[3] == "0A"]
    return {address for address, number in places if int(number, 16) == port}


@pytest.fixture
def core(box: Box) -> Iterator[tuple[Box, Core, int]]:
    port = free_port()
    box.environ["OWLBOX__METRICS__PORT"] = str(port)
    core = box.serve()
    yield box, core, port
    assert core.stop() == 0


@pytest.mark.covers("A-272")
def test_tools_work_that_was_handed_over_and_memory_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, events = new_store(tmp_path / "owlbox.db"), Events()
    made = figures.Figures(Home(tmp_path), store, events, dict)
    job = Job("coder", "Go.", tool="spawn", id="j1", status="done", created_ms=1000, ended_ms=3500)
    with caplog.at_level(logging.INFO, logger="appliance"):
        events.publish(JobEnded(job))
    assert [vars(one)["seconds"] for one in caplog.records if "handed over" in one.getMessage()] == [2.5]
    runs = Runs(store, "")
    runs.open_session("local:ada", "ada", "user:ada")
    run = runs.begin("local:ada", "chat").id
    for status, took_ms in ((200, 1500), (200, 500), (404, 250)):
        runs.append(Event(run, "tool_result", "tool", "x", tool="search", status=status, duration_ms=took_ms))
    Entries(store).put("memory://notes/key", Content(body="The key hangs in the shed."), audience="user:ada")
    lines = made.text().splitlines()
    for line in (
        *('owlbox_jobs_total{tool="spawn",outcome="done"} 1', 'owlbox_job_seconds_total{tool="spawn",outcome="done"} 2.5'),
        *('owlbox_tool_calls_total{tool="search",outcome="ok"} 2', 'owlbox_tool_seconds_total{tool="search",outcome="ok"} 2'),
        *('owlbox_tool_calls_total{tool="search",outcome="failed"} 1', 'owlbox_memory_bytes{owner="user:ada"} 26'),
    ):
        assert line in lines, (line, lines)
    store.close()


@pytest.mark.covers("A-272", "A-270", "A-006")
def test_a_core_tells_its_figures_and_one_run_is_found_in_every_log(core: tuple[Box, Core, int]) -> None:
    box, _, port = core
    assert box.run("ask", "hi").returncode == 0 and box.run("task", "add", "sweep").returncode == 0
    text = box.run("metrics").stdout
    wrong = [line for line in text.splitlines() if not line.startswith("# ") and not LINE.fullmatch(line)]
    assert wrong == []
    names = set(re.findall(r"^owlbox_([a-z_]+)", text, re.MULTILINE))
    assert names >= {
        *("up", "process_cpu_seconds_total", "process_memory_bytes", "process_spawn_seconds", "process_starts_total"),
        *("model_requests_total", "model_seconds_total", "model_first_token_seconds_total", "model_tokens_total", "model_waiting"),
        *("person_tokens_total", "session_tokens", "messages_total", "sessions", "tasks", "database_bytes", "disk_used_ratio"),
    }
    assert names <= {family.name for family in figures.FAMILIES}
    assert 'owlbox_messages_total{channel="local"} 1' in text and 'owlbox_tasks{status="pending"} 1' in text
    assert bound_addresses(port) == {"0100007F"}, "of this machine alone"
    page = get(port, "/metrics")
    assert page.startswith("HTTP/1.1 200 OK") and "owlbox_up 1" in page and "version=0.0.4" in page
    health = get(port, "/health")
    assert "200 OK" in health and "core healthy" in health and "broker healthy" in health
    assert "ok" in get(port, "/health/live")
    assert get(port, "/metrics", host="evil.example").startswith("HTTP/1.1 403")
    for request, status in (("POST /metrics HTTP/1.1\r\n\r\n", 405), ("GET /other HTTP/1.1\r\n\r\n", 404), ("hello\r\n\r\n", 400)):
        assert ask(port, request).startswith(f"HTTP/1.1 {status} ")
    run = box.json("thread", "list")[0]["id"]
    lines = [json.loads(line) for line in box.run("logs", "--run", run, "--json").stdout.splitlines()]
    assert {line["process"] for line in lines} == {"core", "broker"}
    assert all({"at", "level", "process", "pid", "correlation", "message"} <= line.keys() for line in lines)
    answered = [line for line in lines if line["message"] == "a model answered"]
    assert answered and answered[0]["output"] > 0 and answered[0]["seconds"] >= answered[0]["first_s"]
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert "a model answered" in box.run("logs", "--run", answered[0]["correlation"]).stdout
    done = box.run("logs", "--run", "nonesuch")
    assert done.returncode == 3 and "no run nonesuch" in done.stderr
    coming = log_reader.follow(box.home, log_reader.LogFilter(process="core"))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, coming)
        assert box.run("ask", "hi again").returncode == 0
        assert first.result(30)["process"] == "core"


def test_a_port_that_is_taken_is_named(box: Box) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        box.environ["OWLBOX__METRICS__PORT"] = str(taken.getsockname()[1])
        done = box.run("serve")
    assert done.returncode != 0 and "metrics.port" in done.stderr and "Traceback" not in done.stderr


class Patient:
    """A part that answers as it was told to."""

    name = "broker"

    def __init__(self, *answers: str) -> None:
        self.answers, self.restarts, self.runs, self.limits = list(answers), 0, True, set[float]()
        keys = Orchestrator(health_interval_ms=30_000, health_timeout_ms=5000, health_failures=3)
        self.prober = Prober(self, lambda: keys)

    def is_running(self) -> bool:
        return self.runs

    def probe(self, limit_s: float) -> Health:
        self.limits.add(limit_s)
        said = self.answers.pop(0) if self.answers else "lost"
        if said == "lost":
            raise Lost("it does not answer")
        return Health(said)  # type: ignore[arg-type]

    def restart(self, why: str) -> None:
        self.restarts += 1


@pytest.mark.covers("A-026", "A-027", "A-028")
def test_a_part_that_does_not_answer_three_times_is_started_anew(caplog: pytest.LogCaptureFixture) -> None:
    keys = Orchestrator()
    assert (keys.health_interval_ms, keys.health_timeout_ms, keys.health_failures) == (30_000, 5000, 3)
    one = Patient("healthy", "lost", "lost", "degraded", "lost", "unhealthy", "healthy", "lost", "lost")
    for _ in range(9):
        assert one.prober.look() == 30
    assert one.restarts == 0 and one.prober.failures == 2 and one.limits == {2.0, 5.0} and one.prober.healthy_ms > 0
    with caplog.at_level("ERROR", logger="appliance"):
        one.prober.look()
    assert one.restarts == 1 and one.prober.failures == 0
    assert "broker is started again: it did not answer 3 probes" in caplog.text
    assert describe_broker({"uptime_s": 4.5, "model": "m", "served": 2}) == Health(
        "healthy", "answers", 4.5, {"model": "m", "served": "2"}
    )
    assert describe_broker({"vault": {"problem": "locked"}}).status == "degraded"


def test_a_part_that_nobody_asks_is_left_alone_until_somebody_does() -> None:
    one = Patient()
    told = {"served": "3", "is_busy": "False", "waiting": "0"}
    one.probe = lambda limit_s: Health("healthy", metrics=told)  # type: ignore[method-assign]
    assert [one.prober.look() for _ in range(3)] == [30, 600, 600] and not one.prober.is_stale()
    told = {**told, "is_busy": "True"}
    assert one.prober.look() == 30, "it works on something"
    told = {**told, "is_busy": "False", "served": "4"}
    assert [one.prober.look() for _ in range(2)] == [30, 600]
    one.prober.note_use()
    assert one.prober._is_resting is False


@pytest.mark.covers("A-030")
def test_a_part_that_was_stopped_is_neither_probed_nor_started() -> None:
    one = Patient()
    one.runs = False
    for _ in range(5):
        one.prober.look()
    assert (one.restarts, one.limits) == (0, set())
    one.runs = True
    one.prober.look()
    one.prober.stop()
    for _ in range(5):
        one.prober.look()
    assert one.restarts == 0 and one.prober.failures == 0


@pytest.mark.covers("A-029")
def test_a_start_may_take_a_minute_and_only_then_do_probes_count(caplog: pytest.LogCaptureFixture) -> None:
    slow = Patient(*["lost"] * 28, "healthy", "lost")
    with caplog.at_level("WARNING", logger="appliance"):
        assert [round(slow.prober.look()) for _ in range(30)] == [*[2] * 28, 30, 30]
        assert slow.prober.failures == 1 and not caplog.text
        never = Patient()
        assert [round(never.prober.look()) for _ in range(30)] == [2] * 30
        assert "broker is not healthy after 60 s: it does not answer" in caplog.text
    assert never.restarts == never.prober.failures == 0 and never.limits == {2.0}
    assert [never.prober.look() for _ in range(3)] == [30] * 3 and never.restarts == 1
    assert round(never.prober.look()) == 2 and never.prober.failures == 0, "the next one has as long"


def test_labels_are_escaped_and_lines_that_are_none_are_left_out(tmp_path: Path) -> None:
    assert figures._format_labels((("person", 'a"b\\c\nd'),)) == '{person="a\\"b\\\\c\\nd"}'
    home = Home(tmp_path)
    home.logs.mkdir()
    good = {"at": "2026-01-02T00:00:00Z", "level": "info", "process": "core", "message": "one", "correlation": "c1"}
    lines = [good, {**good, "at": "2026-01-01T00:00:00Z", "level": "error", "message": "zero"}, {"at": "x"}, "words", 5]
    (home.logs / "core.log").write_text("\n".join(map(json.dumps, lines)) + "\nhalf a li")
    assert [line["message"] for line in log_reader.read(home, log_reader.LogFilter(), 10)] == ["zero", "one"]
    assert [line["message"] for line in log_reader.read(home, log_reader.LogFilter(level="error"), 10)] == ["zero"]
    assert log_reader.read(home, log_reader.LogFilter(("c2",)), 10) == []


def test_a_closed_port_answers_nobody() -> None:
    port = Port(0, {"/metrics": lambda: (200, "x\n")})
    number = port.open()
    assert get(number, "/metrics").endswith("x\n")
    port.close()
    with pytest.raises(OSError):
        get(number, "/metrics")
