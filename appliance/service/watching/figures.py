"""Figures in the text format of Prometheus: what was counted since the core began, and how things stand when somebody asks.

Counts come from events of the core; how things stand is read from the database and the kernel at the time of the question, so that
nothing is polled and nothing is written. The same values of each answer and tool stand in the log, under the run's correlation id.
"""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from appliance.channels.gateway import ChannelChanged, MessageCounted
from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.models.client import ModelAnswered
from appliance.runtime.events import Events
from appliance.runtime.paths import Home
from appliance.store import disk_room
from appliance.store.database import Store
from appliance.upkeep.checks import machine
from appliance.work.jobs import JobEnded

LOG = logging.getLogger(__name__)
Labels = tuple[tuple[str, str], ...]
MOST_SESSIONS = 50  # of the last day that are told apart
DAY_MS = 86_400_000
BREAKS = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Figure(NamedTuple):
    """What a family of values means: its name without the prefix, its kind, and words."""

    name: str
    kind: str
    words: str


FAMILIES = tuple(
    Figure(*row)
    for row in (
        ("up", "gauge", "1 while the core answers"),
        ("uptime_seconds", "gauge", "Time since the core began"),
        ("process_cpu_seconds_total", "counter", "Processor time of a process"),
        ("process_memory_bytes", "gauge", "Memory that a process holds"),
        ("process_spawn_seconds", "gauge", "Time the newest broker took from its start to its first answer"),
        ("process_starts_total", "counter", "Processes that were started, by kind"),
        ("model_requests_total", "counter", "Answers of models"),
        ("model_seconds_total", "counter", "Time of those answers, from the question to the last word"),
        ("model_first_token_seconds_total", "counter", "Time of those answers until the first word"),
        ("model_tokens_total", "counter", "Tokens of those answers, by kind"),
        ("model_tokens_per_second", "gauge", "Tokens a second of the last answer, from its first word on"),
        ("model_waiting", "gauge", "Requests that wait for the local model"),
        ("model_busy", "gauge", "1 while the local model answers"),
        ("person_tokens_total", "counter", "Tokens of remote and local models, by person"),
        ("session_tokens", "gauge", "Tokens of sessions in which something was said within a day"),
        ("tool_calls_total", "counter", "Calls of tools"),
        ("tool_seconds_total", "counter", "Time of those calls"),
        ("job_seconds_total", "counter", "Time from handing work over to its result"),
        ("jobs_total", "counter", "Work that was handed over, by its end"),
        ("messages_total", "counter", "Messages that were accepted, by channel"),
        ("channel_connected", "gauge", "1 while a channel that is switched on is connected, 0 while it is not"),
        ("channel_messages_total", "counter", "Messages of channels, by their outcome: each attempt to send by itself"),
        ("sessions", "gauge", "Sessions by status"),
        ("tasks", "gauge", "Tasks by status"),
        ("notifications", "gauge", "Notifications by status"),
        ("memory_entries", "gauge", "What is remembered, by whom it belongs to"),
        ("memory_bytes", "gauge", "Size of what is remembered, by whom it belongs to"),
        ("database_bytes", "gauge", "Size of the database and of its log"),
        ("disk_used_ratio", "gauge", "Part of the disk that is in use"),
        ("disk_written_bytes_total", "counter", "Bytes written to the disk since the machine started"),
        ("disk_written_bytes_per_day", "gauge", "The same, for a day at this rate"),
        ("temperature_celsius", "gauge", "Sensors of the machine"),
    )
)


class Figures:
    """The figures of one core."""

    def __init__(self, home: Home, store: Store, events: Events, broker: Callable[[], dict[str, Any]]) -> None:
        """`broker` says how the broker is, and raises when it does not answer."""
        self._home = home
        self._store = store
        self._broker = broker
        self._started_ms = now_ms()
        self._guard = threading.Lock()
        self._counts: dict[tuple[str, Labels], float] = defaultdict(float)
        self._last_event = int(store.value("SELECT COALESCE(MAX(id), 0) FROM events"))
        events.subscribe(ModelAnswered, self._count_answer)
        events.subscribe(JobEnded, self._count_job)
        events.subscribe(MessageCounted, self._count_message)
        events.subscribe(ChannelChanged, self._note_channel)

    def text(self) -> str:
        """All of them."""
        values: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for source in (self._count_tools, self._read_core, self._read_broker, self._read_store, self._read_machine):
            for name, labels, value in source():
                values[name].append((labels, value))
        with self._guard:
            for (name, labels), value in sorted(self._counts.items()):
                values[name].append((labels, value))
        lines = []
        for family in FAMILIES:
            if found := values.get(family.name):
                lines += [f"# HELP owlbox_{family.name} {family.words}", f"# TYPE owlbox_{family.name} {family.kind}"]
                lines += [f"owlbox_{family.name}{_format_labels(labels)} {_format_value(value)}" for labels, value in found]
        return "\n".join(lines) + "\n"

    # -- counting -----------------------------------------------------------------------------------

    def _count_answer(self, answered: ModelAnswered) -> None:
        finish = answered.finish
        labels = (("provider", finish.provider or answered.route.provider), ("model", finish.model or answered.route.model))
        writing_s = answered.total_s - answered.first_s
        rate = finish.output_tokens / writing_s if writing_s > 0 else 0.0
        kinds = {"prompt": finish.prompt_tokens, "cached": finish.cached_tokens, "output": finish.output_tokens}
        with self._guard:
            self._counts["model_requests_total", labels] += 1
            self._counts["model_seconds_total", labels] += answered.total_s
            self._counts["model_first_token_seconds_total", labels] += answered.first_s
            self._counts["model_tokens_per_second", labels] = rate
            for kind, count in kinds.items():
                self._counts["model_tokens_total", (*labels, ("kind", kind))] += count
        extra = {**dict(labels), "seconds": round(answered.total_s, 3), "first_s": round(answered.first_s, 3)}
        LOG.info("a model answered", extra={**extra, **kinds, "tokens_per_s": round(rate, 1)})

    def _count_job(self, ended: JobEnded) -> None:
        job = ended.job
        seconds = max(0, (job.ended_ms or now_ms()) - job.created_ms) / 1000
        labels = (("tool", job.tool), ("outcome", job.outcome or job.status))
        with self._guard:
            self._counts["jobs_total", labels] += 1
            self._counts["job_seconds_total", labels] += seconds
        LOG.info("work that was handed over has ended", extra={**dict(labels), "seconds": round(seconds, 3)})

    def _count_message(self, counted: MessageCounted) -> None:
        with self._guard:
            self._counts["channel_messages_total", (("channel", counted.channel), ("outcome", counted.outcome))] += 1

    def _note_channel(self, changed: ChannelChanged) -> None:
        key = "channel_connected", (("channel", changed.channel),)
        with self._guard:
            if changed.is_connected is None:
                self._counts.pop(key, None)
            else:
                self._counts[key] = changed.is_connected

    def _count_tools(self) -> Iterable[tuple[str, Labels, float]]:
        """Results that were recorded since the last question, by any process of ours."""
        with self._guard:
            rows = self._store.rows(
                "SELECT tool, status >= 400, COUNT(*), SUM(COALESCE(duration_ms, 0)), MAX(id) FROM events "
                "WHERE id > ? AND kind = 'tool_result' GROUP BY 1, 2",
                (self._last_event,),
            )
            for tool, has_failed, count, total_ms, newest in rows:
                labels = (("tool", str(tool)), ("outcome", "failed" if has_failed else "ok"))
                self._counts["tool_calls_total", labels] += int(count)
                self._counts["tool_seconds_total", labels] += int(total_ms) / 1000
                self._last_event = max(self._last_event, int(newest))
        return ()

    # -- reading ------------------------------------------------------------------------------------

    def _read_core(self) -> Iterable[tuple[str, Labels, float]]:
        yield "up", (), 1
        yield "uptime_seconds", (), (now_ms() - self._started_ms) / 1000
        yield from _read_process("core", os.getpid())
        for worker, pid in self._store.rows("SELECT id, pid FROM workers WHERE status = 'running'"):
            yield from _read_process(f"worker {str(worker)[-8:]}", int(pid))
        for kind, count in self._store.rows("SELECT kind, COUNT(*) FROM processes GROUP BY kind"):
            yield "process_starts_total", (("kind", str(kind)),), int(count)

    def _read_broker(self) -> Iterable[tuple[str, Labels, float]]:
        try:
            told = self._broker()
        except OwlError:
            return  # it does not run: its values are missing, as Prometheus wants it
        yield "model_busy", (), float(bool(told.get("is_busy")))
        yield "model_waiting", (), float(told.get("waiting", 0))
        if spawn_s := told.get("spawn_s"):
            yield "process_spawn_seconds", (("process", "broker"),), float(spawn_s)
        yield from _read_process("broker", int(told.get("pid", 0)))

    def _read_store(self) -> Iterable[tuple[str, Labels, float]]:
        rows = self._store.rows
        for name, label, sql in (
            ("person_tokens_total", "person", "SELECT person, SUM(prompt + output) FROM usage GROUP BY person"),
            ("messages_total", "channel", "SELECT channel, COUNT(*) FROM inbox GROUP BY channel"),
            ("sessions", "status", "SELECT status, COUNT(*) FROM sessions GROUP BY status"),
            ("tasks", "status", "SELECT status, COUNT(*) FROM tasks GROUP BY status"),
            ("notifications", "status", "SELECT status, COUNT(*) FROM outbox GROUP BY status"),
        ):
            yield from ((name, ((label, str(value)),), float(count)) for value, count in rows(sql))
        sql = (
            "SELECT u.session, SUM(u.prompt + u.output) FROM usage u JOIN sessions s ON s.id = u.session "
            "WHERE s.last_active_ms > ? GROUP BY u.session ORDER BY 2 DESC LIMIT ?"
        )
        for session, tokens in rows(sql, (now_ms() - DAY_MS, MOST_SESSIONS)):
            yield "session_tokens", (("session", str(session)),), float(tokens)
        sql = "SELECT audience, COUNT(*), SUM(octet_length(body)) FROM entries WHERE path LIKE 'memory://%' GROUP BY audience"
        for owner, count, size in rows(sql):
            yield "memory_entries", (("owner", str(owner) or "all"),), float(count)
            yield "memory_bytes", (("owner", str(owner) or "all"),), float(size or 0)

    def _read_machine(self) -> Iterable[tuple[str, Labels, float]]:
        for name, path in (("database", self._home.database), ("log", Path(f"{self._home.database}-wal"))):
            yield "database_bytes", (("file", name),), float(path.stat().st_size if path.exists() else 0)
        yield "disk_used_ratio", (), round(disk_room.used_part(self._home.root), 4)
        if disk := machine.find_disk(self._home):
            written, up_s = machine.read_written(disk), machine.read_uptime()
            yield "disk_written_bytes_total", (("disk", disk.name),), float(written)
            if up_s:
                yield "disk_written_bytes_per_day", (("disk", disk.name),), round(written / up_s * 86_400)
        for sensor, degrees in machine.read_temperatures().items():
            yield "temperature_celsius", (("sensor", sensor),), degrees


def _read_process(name: str, pid: int) -> Iterable[tuple[str, Labels, float]]:
    """Time and memory of a process, as the kernel says; nothing of one that is gone or another user's to hide."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return
    ticks = int(fields[11]) + int(fields[12])
    yield "process_cpu_seconds_total", (("process", name),), ticks / os.sysconf("SC_CLK_TCK")
    yield "process_memory_bytes", (("process", name),), float(pages * os.sysconf("SC_PAGE_SIZE"))


def _format_labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value.translate(BREAKS)}"' for name, value in labels) + "}" if labels else ""


def _format_value(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"
