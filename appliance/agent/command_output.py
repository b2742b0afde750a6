"""What a command says while it runs: two entries that grow, `sh://turn_N/NAME_1` for its output and `_2` for errors.

Begun with status 102, ended once with 200, 500 or 499, and never changed afterwards. What was done and how it ended stands in
the command's log entry; what it said stands here and nowhere else. Secrets are hidden before anything is stored. Knows
nothing about processes: who runs the command appends, in pieces that are worth a write to the disk.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from appliance.clock import is_alive
from appliance.errors import Conflict, NotFound
from appliance.knowledge.change_log import By
from appliance.knowledge.entries import Content, Entries, Entry
from appliance.knowledge.views import Actor, State, Views
from appliance.records import Outcome
from appliance.store.database import Store

SCHEMES = {"env": "env"}  # of an action's channels; any other one's are sh
OURS = ("sh://", "env://")
RECORDED = ("command", "given")  # attributes of what was recorded to be done when somebody allows it
APPLIED = "is_applied"  # the attribute that says that it was done, where nothing streams
CHANNELS = "channels"  # the attribute of a log entry that names them, with their sizes
MAX_BODY = 2_000_000  # characters of one channel
WRITER = "plugin"
STALE = "interrupted: the process that ran it is gone"


class Stream(Struct, frozen=True):
    """A command that runs: its log entry, and its channels by number."""

    run: str
    log: str
    channels: Mapping[int, str]

    @property
    def output(self) -> str:
        """The entry that takes standard output."""
        return self.channels[1]

    @property
    def errors(self) -> str:
        """The entry that takes standard error."""
        return self.channels[2]


class CommandEnd(Struct, frozen=True):
    """How a command ended; `reason` for one that was stopped or never ran to its end."""

    exit_code: int = 0
    duration_ms: int = 0
    reason: str = ""
    is_stopped: bool = False

    @property
    def text(self) -> str:
        took = f"{self.duration_ms / 1000:.1f} s"
        if self.is_stopped:
            return f"stopped after {took}: {self.reason}"
        return f"exit code {self.exit_code} after {took}" + (f"; {self.reason}" if self.reason else "")


class Streams:
    """Writes channels and the log entries that belong to them."""

    def __init__(
        self, store: Store, entries: Entries, views: Views, process: str, clean: Callable[[str], str] = lambda text: text
    ) -> None:
        self._store = store
        self._entries = entries
        self._views = views
        self._process = process
        self._clean = clean

    def clean(self, text: str) -> str:
        """A text as it may be stored and shown, without secrets."""
        return self._clean(text)

    def begin(self, actor: Actor, action: str, log: str) -> Stream:
        """The action in this log entry has been allowed (200) and runs: two empty channels with 102, summarized."""
        folder = f"{SCHEMES.get(action, 'sh')}://{log.partition('://')[2].partition('/')[0]}/"
        slug, scope = log.rpartition("/")[2], f"run:{actor.run}"
        with self._store.write(run=actor.run, durable=True):
            number, name = 1, slug
            while self._entries.find(f"{folder}{name}_1", scope=scope) is not None:
                number, name = number + 1, f"{slug}_{number + 1}"
            stream = Stream(actor.run, log, {n: f"{folder}{name}_{n}" for n in (1, 2)})
            for path in stream.channels.values():
                given = {"log": log, "process": self._process}
                made = self._entries.put(path, Content(body="", attributes=given), By(WRITER, actor.run), scope=scope)
                self._views.show(actor, made.id, "summarized", "streaming", 102)
            self._update_entry(actor.run, log, "it runs", {CHANNELS: dict.fromkeys(stream.channels.values(), 0)}, 200)
        return stream

    def append(self, run: str, path: str, text: str) -> int:
        """Let a channel grow; its size in bytes. Conflict once it has ended: what is over stays as it is."""
        self._require_open(run, path)
        scope = f"run:{run}"
        with self._store.write(run=run, durable=True):
            view = self._require_open(run, path)
            entry = self._entries.get(path, scope=scope)
            body = self._clean(entry.body + text)
            if len(body) > MAX_BODY:
                body = body[:MAX_BODY]
            if body != entry.body:
                self._entries.put(path, Content(body=body), By(WRITER, run), scope=scope)
                # A write does not end it: that is what status and state are for.
                self._views.resolve(run, view, "streaming", 102)
        return len(body.encode("utf-8", "replace"))

    def end(self, run: str, path: str, ended: CommandEnd) -> None:
        """The command of a channel has ended so: all its channels have, and its log entry says how. Conflict the second time."""
        with self._store.write(run=run, durable=True):
            self._require_open(run, path)
            log = str(self._entries.get(path, scope=f"run:{run}").attributes.get("log", ""))
            self._end_log(run, log, ended)

    def result(self, run: str, log: str) -> Outcome | None:
        """The outcome of something that was allowed and has been done or given up, with what it said; None for all else."""
        entry, view = self._entries.find(log, scope=f"run:{run}"), self._views.find(run, log)
        if entry is None or view is None or not set(RECORDED) & set(entry.attributes) or view.state in ("proposed", "failed"):
            return None
        if self.is_open(run, log):
            return None
        if CHANNELS not in entry.attributes and APPLIED not in entry.attributes:
            return Outcome(499, "interrupted", "it was accepted and not done: interrupted")
        said = [self._entries.get(path, scope=entry.scope).body for path in entry.attributes.get(CHANNELS, ())]
        end = f"[{entry.body}]" if said else entry.body
        text = "\n".join([*(part.rstrip("\n") for part in said if part.strip()), end])
        return Outcome(view.status, "ok" if view.status < 400 else "aborted", text, origin="command")

    def is_open(self, run: str, log: str) -> bool:
        """Whether the command of a log entry still runs, in whatever process."""
        entry = self._entries.find(log, scope=f"run:{run}")
        if entry is None or CHANNELS not in entry.attributes:
            return False
        return any((view := self._views.find(run, path)) and view.state == "streaming" for path in entry.attributes[CHANNELS])

    def running(self, run: str = "") -> list[tuple[str, str]]:
        """Run and channel 1 of every command that runs, in one run or in all."""
        found = [view for view in self._views.streaming(run) if view.path.startswith(OURS)]
        return [(view.run, view.path) for view in found if view.path.endswith("_1") and view.scope == f"run:{view.run}"]

    def clear(self, run: str = "") -> int:
        """End what processes that are gone have left open, in one run or in all; how many commands."""
        count = 0
        for found, path in self.running(run):
            entry = self._entries.get(path, scope=f"run:{found}")
            if is_alive(str(entry.attributes.get("process", ""))):
                continue
            with self._store.write(run=found, durable=True):
                self._end_log(found, str(entry.attributes.get("log", "")), CommandEnd(-1, 0, STALE, is_stopped=True))
            count += 1
        return count

    # -- inside -------------------------------------------------------------------------------------

    def _require_open(self, run: str, path: str) -> int:
        view = self._views.find(run, path) if path.startswith(OURS) else None
        if view is None:
            raise NotFound(f"thread {run} has no channel {path}", hint="it is named in the command's log entry")
        if view.state != "streaming":
            raise Conflict(f"{path} is over with {view.status}", hint="what has ended stays so")
        return view.entry

    def _end_log(self, run: str, log: str, ended: CommandEnd) -> None:
        entry = self._entries.get(log, scope=f"run:{run}")
        sizes: dict[str, int] = {}
        for path in entry.attributes.get(CHANNELS, {}):
            state, status, outcome = _state_of(ended)
            channel = self._entries.find(path, scope=f"run:{run}")
            view = self._views.find(run, path)
            if channel is None or view is None:
                continue
            sizes[path] = _size_bytes(channel)
            if view.state == "streaming":
                for watcher in (run, *self._views.watchers(channel.id, beside=run)):
                    self._views.resolve(watcher, channel.id, state, status, outcome)
        told = "; ".join(f"{path}: {size} bytes" for path, size in sizes.items())
        given = {CHANNELS: sizes, "exit_code": ended.exit_code, "duration_ms": ended.duration_ms}
        self._update_entry(
            run, log, "; ".join(part for part in (ended.text, told) if part), given, 499 if ended.is_stopped else 200
        )

    def _update_entry(self, run: str, log: str, text: str, given: Mapping[str, Any], status: Literal[200, 499]) -> None:
        scope = f"run:{run}"
        known = self._entries.get(log, scope=scope)
        self._entries.put(log, Content(body=text, attributes={**known.attributes, **given}), By("system", run), scope=scope)
        state: State = "resolved" if status == 200 else "cancelled"
        self._views.resolve(run, known.id, state, status, "" if status == 200 else "aborted")


def _state_of(ended: CommandEnd) -> tuple[State, int, str]:
    if ended.is_stopped:
        return "cancelled", 499, ended.reason[:200] or "stopped"
    return ("resolved", 200, "") if ended.exit_code == 0 else ("failed", 500, f"exit code {ended.exit_code}")


def _size_bytes(entry: Entry) -> int:
    return len(entry.body.encode("utf-8", "replace"))
