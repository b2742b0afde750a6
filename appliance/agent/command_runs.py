"""Commands of models: who has to allow one, where its output goes while it runs, and what the caller reads in the end.

Three kinds of call lead here. One that may run at once runs while its caller waits. One that needs a person's word becomes
a proposal, and runs in the background from the moment it is accepted: a run that is shown its entries goes on meanwhile and
sees its channels grow, a chat waits for the result. What was begun in a run ends with it when that is stopped. The policy is
asked before anything is proposed, and again before anything runs. Knows nothing about models.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace as replace_dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.approvals import APPROVED, Ballot
from appliance.agent.command_output import APPLIED, RECORDED, CommandEnd, Stream, Streams
from appliance.agent.dispatch import actor_of
from appliance.agent.loop_events import BackgroundWorkEnded, CommandStopped
from appliance.agent.toolbox import Caller
from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Conflict, NotFound, OwlError, Refused
from appliance.knowledge.action_log import MAX_SUBJECT, Waiting, since_proposed
from appliance.knowledge.entries import Content, Entries, Entry
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor
from appliance.policy.modes import terms as terms_of
from appliance.records import Outcome
from appliance.runtime.events import Events
from appliance.sandbox.bubblewrap import Execution, SandboxOrder
from appliance.sandbox.workspace import Workbench, WorkspaceJob
from appliance.sessions.runs import Runs
from appliance.text.invisible import escape_invisible

LOG = logging.getLogger(__name__)
GROUP = "shell"
READING = ("env",)  # actions that only look: the working folder cannot be written to
COMMANDS = ("exec", "shell", "sh", "env")
FILES = {"write_file": "write", "edit_file": "edit"}
SHOWN_FILES, SHOWN_LINES, SHOWN_COLUMNS = 20, 60, 300  # of files that a command names, for whoever decides
BEFORE = "before_hash"  # the attribute that says what the file was when its change was proposed
WRITE_S = 1.0  # at most one write to the disk in so long, however much is said
WATCH_S = 1.0  # how often it is looked whether somebody has ended a command that runs
REST = 20  # times as long as a write took is waited before the next
KEPT_TEXT = 400_000  # characters of output that the caller is handed
NEEDS_APPROVAL = "it needs approval, and nobody is here to give it"


class Ran(Struct, frozen=True):
    """A command that is over: what it said in the order in which it said it, and how it ended."""

    execution: Execution
    text: str
    timeout_s: float

    @property
    def data(self) -> dict[str, Any]:
        """For programs (A-133)."""
        done = self.execution
        names = ("id", "status", "exit_code", "duration_ms", "error", "is_cut")
        said = {name: getattr(done, name).decode("utf-8", "replace") for name in ("stdout", "stderr")}
        return {name: getattr(done, name) for name in names} | said


class Executions:
    """Runs commands for tools and for decisions. Publishes `BackgroundWorkEnded` and `CommandStopped`."""

    def __init__(self, bench: Workbench, streams: Streams, verbs: Verbs, runs: Runs, entries: Entries, events: Events) -> None:
        self._bench = bench
        self._streams = streams
        self._verbs = verbs
        self._runs = runs
        self._entries = entries
        self._events = events
        self._guard = threading.Lock()
        self._running: dict[str, tuple[str, CancelToken]] = {}  # by channel, of what run and how it is stopped
        self._reasons: dict[str, str] = {}  # by channel, why one of these is being stopped
        self._threads: list[threading.Thread] = []
        self._is_closing = False

    # -- what tools ask for -------------------------------------------------------------------------

    def run(self, caller: Caller, action: str, command: str, timeout_s: float = 0) -> Ran | Outcome:
        """Run a command line, or record that it waits for somebody's word: the outcome says so then."""
        job = self._build_job(caller, action, timeout_s)
        is_reading = action in READING
        if self._needs_decision(caller, not is_reading and self._bench.has_project(job)):
            self._bench.judge(job, command, is_read_only=is_reading)
            text, approved = self.described(caller, action, command)
            given = {"command": command, "timeout_s": job.timeout_s, "role": caller.terms.role, APPROVED: approved}
            return self._verbs.record(self._actor_for(caller), action, subject(command), text, given)
        order = self._bench.prepared(job, command, is_read_only=is_reading)
        order = self._bench.bound(order, command, caller.terms.approved)
        if caller.run and caller.log and caller.terms.layout == "entries":
            stream = self._streams.begin(self._actor_for(caller), action, caller.log)
            with self._note_job(job, stream) as mine:
                return self._run_streamed(mine, command, stream, order)
        return self._run_plain(job, command, order)

    def described(self, caller: Caller, action: str, command: str) -> tuple[str, dict[str, str]]:
        """A command for whoever decides, after the files that it names; and their hashes, to which the decision is bound."""
        job = self._build_job(caller, action, 0)
        files = self._bench.named_files(job, command, is_read_only=action in READING)
        approved = {name: str(one["sha256"]) for name, one in files.items()}
        # Lines of a command that names no files must not pass for the head of one that does.
        head = told_files(files) or (["Command:"] if "\n" in command.strip() else [])
        return "\n".join([*head, command]), approved

    def write(self, caller: Caller, tool: str, path: str, given: dict[str, Any]) -> dict[str, Any] | Outcome:
        """Change a file in the sandbox; one of a project waits for somebody's word where the run's terms want that."""
        job = self._build_job(caller, tool, 0, "files")
        if caller.terms.mode == "ask":
            raise Refused(f"{tool} is not allowed here: {caller.terms.bars_files}", hint="say what should be changed instead")
        is_shared = not self._bench.is_own(job, path)
        if is_shared and self._needs_decision(caller, True):
            self._bench.judge_write(job, path)
            text = given.get("content") or f"{given.get('old_text', '')}\n->\n{given.get('new_text', '')}"
            before = self._bench.touch(job, "hash", path)["sha256"]
            more = {"path": path, "given": given, "role": caller.terms.role, BEFORE: before}
            return self._verbs.record(self._actor_for(caller), tool, path, f"{path}\n\n{text}", more)
        return self._bench.touch(job, FILES[tool], path, **given)

    # -- what decisions lead to ---------------------------------------------------------------------

    def check(self, ballot: Ballot) -> bool:
        """Speaks against a change of a file, or a command that names one, which somebody has edited since it was proposed."""
        waiting = ballot.waiting
        entry = self._entries.get(waiting.ref, scope=f"run:{waiting.run}")
        if APPROVED in entry.attributes:
            return self._check_named(ballot, entry)
        if waiting.action not in FILES or BEFORE not in entry.attributes:
            return True
        job, path = self._build_job(self._caller_of(waiting, entry), waiting.action, 0, "files"), str(entry.attributes.get("path"))
        try:
            was, now = str(entry.attributes[BEFORE]), str(self._bench.touch(job, "hash", path)["sha256"])
        except OwlError as error:
            ballot.veto = Outcome(error.status, error.outcome, error.message, error.hint)
            return False
        if now != was:
            ballot.veto = Outcome(409, "conflict", since_proposed(path, was, now), "ask for the change again")
        return now == was

    def _check_named(self, ballot: Ballot, entry: Entry) -> bool:
        """The same for the files that a command names; the sandbox looks once more, directly before it begins."""
        action, command = ballot.waiting.action, command_of(entry)
        try:
            was = {str(name): str(value) for name, value in entry.attributes[APPROVED].items()}
            _, now = self.described(self._caller_of(ballot.waiting, entry), action, command)
        except OwlError as error:
            ballot.veto = Outcome(error.status, error.outcome, error.message, error.hint)
            return False
        changed = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
        if changed:
            words = "; ".join(since_proposed(escape_invisible(n, "exact"), was.get(n, ""), now.get(n, "")) for n in changed[:3])
            ballot.veto = Outcome(409, "conflict", f"not run: {words}", "look at it again, and ask for the command again")
        return not changed

    def accepted(self, waiting: Waiting, outcome: Outcome) -> None:
        """Something that waited was accepted: a command begins, a file is changed. What somebody did already is only noted."""
        if waiting.action not in (*COMMANDS, *FILES):
            return
        entry = self._entries.get(waiting.ref, scope=f"run:{waiting.run}")
        if not set(RECORDED) & set(entry.attributes):
            return  # of the same name, and not recorded here
        caller = self._caller_of(waiting, entry)
        run = self._runs.get(waiting.run)
        if waiting.action in FILES:
            self._apply_edit(caller, waiting, entry.attributes)
            return
        actor = replace(self._actor_for(caller), log=waiting.ref)
        command = str(entry.attributes.get("command") or waiting.subject)
        timeout_s = float(entry.attributes.get("timeout_s") or 0)
        self._runs.taint(run.id, "command")
        stream = self._streams.begin(actor, waiting.action, waiting.ref)
        if entry.body.strip():  # whoever accepted it ran it
            self._streams.append(run.id, stream.output, entry.body)
            self._streams.end(run.id, stream.output, CommandEnd())
            return
        caller = replace(caller, terms=replace(caller.terms, approved=dict(entry.attributes.get(APPROVED) or {})))
        self._start_thread(self._build_job(caller, waiting.action, timeout_s), command, stream)

    def is_running(self, run: str, ref: str) -> bool:
        """Whether a chat's command that was accepted still runs, and its answer has to wait."""
        if self._runs.get(run).settings.layout == "entries":
            return False
        return self._streams.is_open(run, ref)

    def cancel(self, run: str, path: str = "", reason: str = "stopped") -> int:
        """Stop the commands that run in the background in a run, or the one with this channel; how many. NotFound for none."""
        with self._guard:
            hit = [token for name, (of, token) in self._running.items() if of == run and path in ("", name)]
            self._reasons |= {name: reason for name, (of, _) in self._running.items() if of == run and path in ("", name)}
        for token in hit:
            token.set()
        if path and not hit:  # somebody else's process runs it
            try:
                self._streams.end(run, path, CommandEnd(-1, 0, reason, is_stopped=True))
            except Conflict as error:
                raise NotFound(f"{path} does not run", hint=error.message) from None
            self._events.publish(CommandStopped(run, "", path, reason))  # and that process sees it within WATCH_S
            return 1
        return len(hit)

    def end(self, run: str, path: str, ended: CommandEnd) -> None:
        """Somebody says how the command of a channel ended; where it still runs, it is stopped. Conflict the second time."""
        self._streams.end(run, path, ended)
        with suppress(NotFound):  # whoever says so ran it
            self.cancel(run, path, ended.reason or "reported as ended")

    def result(self, run: str, ref: str) -> Outcome | None:
        """The result of an accepted command; None when there is no such command."""
        return self._streams.result(run, ref)

    def abandon(self, run: str) -> int:
        """Stop all commands of a run, of which there may be none; how many."""
        return self.cancel(run)

    def close(self) -> None:
        """Stop everything and wait until it is noted, but not for ever."""
        with self._guard:
            self._is_closing = True
            tokens, threads = [token for _, token in self._running.values()], list(self._threads)
        for token in tokens:
            token.set()
        for thread in threads:
            thread.join(10)

    def tails(self, limit: int = 5, lines: int = 3) -> list[dict[str, str]]:
        """The commands that run and the last lines of what they said, for people."""
        found = []
        running = [one for one in self._streams.running() if self._runs.is_shown(one[0])]
        for run, path in running[:limit]:
            with suppress(NotFound):
                body = self._entries.get(path, scope=f"run:{run}").body
                found.append({"run": run, "path": path, "tail": "\n".join(body.rstrip("\n").split("\n")[-lines:])})
        return found

    # -- inside -------------------------------------------------------------------------------------

    def _build_job(self, caller: Caller, tool: str, timeout_s: float, group: str = GROUP) -> WorkspaceJob:
        most_s = self._bench.deadline_s(tool, group, 0)
        wanted_s = min(timeout_s, most_s) if timeout_s > 0 else most_s
        return WorkspaceJob(tool, group, caller.cancel, caller.session, caller.run, caller.terms, wanted_s)

    def _caller_of(self, waiting: Waiting, entry: Entry) -> Caller:
        """The caller who requested the waiting command."""
        run = self._runs.get(waiting.run)
        terms = terms_of("act", run.settings, role=str(entry.attributes.get("role") or ""))
        return Caller(run.id, CancelToken(), run.session, terms, waiting.ref)

    def _actor_for(self, caller: Caller) -> Actor:
        return actor_of(self._runs, caller)

    @staticmethod
    def _needs_decision(caller: Caller, is_shared: bool) -> bool:
        """Whether somebody has to be asked. Where nobody is there, what stays in the sandbox needs no approval."""
        terms = caller.terms
        if not caller.run or terms.approval == "auto":
            return False
        if terms.is_attended and terms.has_proposals:
            return True
        if is_shared:
            why = NEEDS_APPROVAL if not terms.is_attended else "this run proposes nothing"
            raise Refused(f"not done: {why}", hint="wait_task tells a person" if not terms.is_attended else "do without it")
        return False

    def _run_plain(self, job: WorkspaceJob, command: str, order: SandboxOrder) -> Ran:
        """Run it; everything it says is kept in the order in which it came."""
        said = bytearray()

        def show(stream: int, data: bytes) -> None:
            if len(said) < 4 * KEPT_TEXT:
                said.extend(data)

        done = self._bench.carry_out(job, command, order, show)
        return self._build_ran(job, done, bytes(said))

    def _build_ran(self, job: WorkspaceJob, done: Execution, said: bytes) -> Ran:
        text, is_cut = self._streams.clean(_decode_text(said)), done.is_cut
        if len(text) > KEPT_TEXT:
            text, is_cut = text[:KEPT_TEXT], True
        out, err = (self._streams.clean(part.decode("utf-8", "replace")).encode() for part in (done.stdout, done.stderr))
        return Ran(replace_dataclass(done, stdout=out, stderr=err, is_cut=is_cut), text, job.timeout_s)

    def _run_streamed(self, job: WorkspaceJob, command: str, stream: Stream, order: SandboxOrder | None = None) -> Ran:
        """The same, and what it says goes to its channels meanwhile; without an order it is judged now."""
        pour = _Pour(self._streams, stream, job.cancel.set if isinstance(job.cancel, CancelToken) else _stop_nothing)
        said = bytearray()

        def show(number: int, data: bytes) -> None:
            if len(said) < 4 * KEPT_TEXT:
                said.extend(data)
            pour.take(number, data)

        try:
            if order is None:
                order = self._bench.prepared(job, command, is_read_only=job.tool in READING)
                order = self._bench.bound(order, command, job.terms.approved)
            done = self._bench.carry_out(job, command, order, show)
        except OwlError as error:
            pour.finish(CommandEnd(-1, 0, error.message))
            raise
        is_stopped = done.status == "cancelled"
        reason = done.error if done.status == "timeout" or done.exit_code < 0 else ""
        if is_stopped:
            with self._guard:
                reason = self._reasons.get(stream.output, "stopped")
        pour.finish(CommandEnd(done.exit_code, done.duration_ms, reason, is_stopped))
        if is_stopped:
            self._events.publish(CommandStopped(job.run, command, stream.output, reason))
        return self._build_ran(job, done, bytes(said))

    def _start_thread(self, job: WorkspaceJob, command: str, stream: Stream) -> None:
        thread = threading.Thread(target=self._in_background, args=(job, command, stream), name="command", daemon=True)
        with self._guard:
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    @contextmanager
    def _note_job(self, job: WorkspaceJob, stream: Stream) -> Iterator[WorkspaceJob]:
        """The job with a cancellation token that others can find by its channel."""
        token = CancelToken()
        if isinstance(job.cancel, CancelToken):
            job.cancel.then(token.set)
        with self._guard:
            self._running[stream.output] = (job.run, token)
            if self._is_closing:
                token.set()
        is_over = threading.Event()
        watcher = threading.Thread(target=self._watch_end, args=(stream, token, is_over), name="command end", daemon=True)
        watcher.start()
        try:
            yield replace(job, cancel=token)
        finally:
            is_over.set()
            with self._guard:
                self._running.pop(stream.output, None)
                self._reasons.pop(stream.output, None)

    def _watch_end(self, stream: Stream, token: CancelToken, is_over: threading.Event) -> None:
        """Stop a command whose channels another process has ended: what it says nothing to would go on unseen."""
        with suppress(OwlError):  # where nothing can be read, nothing can be written about the end either
            while not is_over.wait(WATCH_S):
                if not self._streams.is_open(stream.run, stream.log):
                    token.set()
                    return

    def _in_background(self, job: WorkspaceJob, command: str, stream: Stream) -> None:
        try:
            with self._note_job(job, stream) as mine:
                self._run_streamed(mine, command, stream)
        except OwlError as error:
            LOG.warning("a command was not run: %s", error, extra={"run": job.run})
        try:
            self._events.publish(BackgroundWorkEnded(job.run))
        except OwlError as error:
            LOG.warning("thread %s does not go on: %s", job.run, error)

    def _apply_edit(self, caller: Caller, waiting: Waiting, attributes: Any) -> None:
        """Change the file as it was proposed; the outcome stands in the proposal's entry."""
        job = self._build_job(caller, waiting.action, 0, "files")
        try:
            given = dict(attributes.get("given") or {})
            done = self._bench.touch(job, FILES[waiting.action], str(attributes.get("path")), **given)
            text = written(waiting.action, waiting.subject, done)
        except OwlError as error:
            text = f"not done: {error}"
        content = Content(body=text, attributes={**attributes, APPLIED: True})
        self._entries.put(waiting.ref, content, scope=f"run:{waiting.run}")


class _Pour:
    """Gathers what a command says and writes it down now and then."""

    def __init__(self, streams: Streams, stream: Stream, stop: Callable[[], object]) -> None:
        """`stop` is called when somebody has ended the channels meanwhile."""
        self._streams = streams
        self._stream = stream
        self._stop = stop
        self._held = {1: bytearray(), 2: bytearray()}
        self._due_s = monotonic_s() + WRITE_S
        self._is_over = False

    def take(self, number: int, data: bytes) -> None:
        """Some more."""
        self._held[number] += data
        if monotonic_s() >= self._due_s and not self._is_over:
            began_s = monotonic_s()
            self._write_held(is_last=False)
            took_s = monotonic_s() - began_s
            self._due_s = monotonic_s() + max(WRITE_S, REST * took_s)

    def finish(self, ended: CommandEnd) -> None:
        """Write what is left, and how it ended; nothing when somebody ended it before."""
        self._write_held(is_last=True)
        with suppress(Conflict, NotFound):
            self._streams.end(self._stream.run, self._stream.output, ended)

    def _write_held(self, *, is_last: bool) -> None:
        for number, held in self._held.items():
            whole = len(held) if is_last else _count_whole(held)
            if not whole or self._is_over:
                continue
            text = _decode_text(bytes(held[:whole]))
            del held[:whole]
            try:
                self._streams.append(self._stream.run, self._stream.channels[number], text)
            except (Conflict, NotFound):
                self._is_over = True  # somebody ended it, or the run is gone
                self._stop()


def _decode_text(data: bytes) -> str:
    """Output bytes as text that can be stored and sent anywhere."""
    return data.decode("utf-8", "replace").replace("\0", "\\0")


def _count_whole(data: bytearray) -> int:
    """The number of bytes that form whole UTF-8 characters."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if needed <= back else len(data) - back
    return len(data)


def _stop_nothing() -> None:
    """Nobody can be stopped."""


def subject(command: str) -> str:
    """What a command is called in lists: its first line, and a sign that there are more."""
    first, _, rest = command.strip().partition("\n")
    return f"{first[:MAX_SUBJECT]} …" if rest or len(first) > MAX_SUBJECT else first


def command_of(entry: Entry) -> str:
    """The command that waits in a proposal, whether it was proposed as such or held."""
    held = entry.attributes.get("held")
    arguments = held.get("arguments") if isinstance(held, dict) else None
    given = arguments if isinstance(arguments, dict) else entry.attributes
    return str(given.get("command") or "")


def told_files(files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines about the files that a command names, before the command itself, so that nothing of it can pass for one of them:
    hash and size, and behind a bar the text of those that it names itself."""
    lines = ["It will not run if one of these files is changed before:"] if files else []
    for name, one in list(files.items())[:SHOWN_FILES]:
        size = f"{one['size_bytes']} bytes, " if one["size_bytes"] >= 0 else ""
        lines.append(f"  {escape_invisible(name, 'exact')}: {size}sha256 {str(one['sha256'])[:16]}")
        text = str(one.get("text") or "").rstrip("\n").split("\n") if one.get("text") else []
        lines += [f"  | {escape_invisible(line[:SHOWN_COLUMNS], 'exact')}" for line in text[:SHOWN_LINES]]
        lines += [f"  | … {len(text) - SHOWN_LINES} more lines"] if len(text) > SHOWN_LINES else []
    lines += [f"  … and {len(files) - SHOWN_FILES} more files"] if len(files) > SHOWN_FILES else []
    return [*lines, "Command:"] if files else []


def written(tool: str, path: str, done: dict[str, Any]) -> str:
    """The message that reports a changed file."""
    if tool == "edit_file":
        return f"Replaced {done['count']} occurrence{'' if done['count'] == 1 else 's'} in {path}"
    return f"Wrote {done['bytes']} bytes to {path}"
