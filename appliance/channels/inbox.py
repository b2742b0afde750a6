"""From a message on a channel to a finished answer: accept once, one turn per session at a time, tell everybody.

Owns the `inbox` and `turn_locks` tables. A message is acknowledged after it is committed; the same
message id of a channel is accepted once. Turns run in threads of their own and commit every step before
it is shown, so a slow or gone listener changes nothing. `relay` hands what happens in a loop on to a caller, in pieces that fit
into a frame. Knows nothing about sockets: a caller who is gone is told by what `notify` raises.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.agent.approvals import Approvals
from appliance.agent.loop import Loops
from appliance.agent.loop_events import (
    CallsAbandoned,
    LoopPaused,
    LoopReady,
    LoopStored,
    MessageAccepted,
    MessageComing,
    RunFreed,
    Shown,
)
from appliance.clock import CancelToken, is_alive, now_ms
from appliance.errors import BadInput, Cancelled, Conflict, NotFound, OwlError
from appliance.policy.taint_marks import CARRIED
from appliance.records import CallPreparing, Delta, Event, Inbound, LoopEnded, RunSettings, Thinking, to_plain
from appliance.runtime import log
from appliance.runtime.crash_points import CrashPoint, Passed, nobody
from appliance.sessions.outbox import Notification, Outbox
from appliance.sessions.people import Identity, PersonActivated
from appliance.sessions.runs import DONE, FAILED, PROPOSED, RUNNING, STOPPED, WAITING, Loop, Runs, Start
from appliance.sessions.sessions import NO_DOOR
from appliance.sessions.turns import LoopOrphaned
from appliance.skills.skill_service import Called, SkillService
from appliance.store import visibility
from appliance.store.database import Store

LOG = logging.getLogger(__name__)
MAX_TEXT = 100_000
UNFIT = re.compile(r"[^\w.@+-]")
TITLE_CHARS = 60
LOCAL, CHILD = "local", "child"  # the kind of runs in which delegated work is done
LOCK_POLL_S = 0.2
FOLLOW_S = 0.3
# An event leaves room in a frame of 4 MiB: a character takes up to 6 bytes, escaped.
MAX_CHARS = 100_000
Notify = Callable[[str, dict[str, Any]], None]

INTERRUPTED = ("stopped", "interrupted")  # how an answer ends that nobody stopped on purpose
KILLED = LoopEnded(STOPPED, "interrupted")
LATER = LoopEnded(WAITING, "waiting", "it will be answered after the restart")
LEFT = LoopEnded(WAITING, "waiting", "the answer goes on without this listener")
HELD = LoopEnded(WAITING, "waiting", "this thread waits for your approval: your message is answered afterwards")


def answer_key(loop: int) -> str:
    """The key of the notification that is the answer of a loop."""
    return f"answer:{loop}"


class AcceptedMessage(Struct, frozen=True):
    """A message that is safely in the database; `is_new` is False when it was there already."""

    run: str
    loop: int
    seq: int
    is_new: bool


class Inbox:
    """Accepts messages and works through them; hears of loops to continue.

    Publishes `MessageComing`, `MessageAccepted` and `CallsAbandoned`.
    """

    def __init__(
        self,
        store: Store,
        runs: Runs,
        loops: Loops,
        *,
        relevant: Callable[[Inbound], str],
        outbox: Outbox,
        approvals: Approvals | None = None,
        skills: SkillService | None = None,
        passed: Passed = nobody,
        copies: Callable[[dict[str, Any], str], Sequence[Identity]] = lambda session, origin: (),
    ) -> None:
        """`relevant` gives the passages that are shown with a message; without `approvals` nothing to approve.

        Without `skills` a message that begins with a slash is text like any other. `copies` names the other addresses, open at
        this moment, to which the answer to a message goes too: by its session, and the channel from which it came.
        """
        self._store = store
        self._runs = runs
        self._loops = loops
        self._relevant = relevant
        self._outbox = outbox
        self._approvals = approvals
        self._skills = skills
        self._events = loops.events
        self._passed = passed
        self._copies = copies
        self._guard = threading.Lock()
        self._cancels: dict[int, CancelToken] = {}
        self._queues: dict[str, list[Loop]] = {}
        # Prompts that a busy or full database kept us from beginning, by session.
        self._late: dict[str, list[Loop]] = {}
        self._held: set[str] = set()  # threads with prompts behind a loop that waits for a decision
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="turn")
        self._is_closing = False
        self.feed = loops.feed
        self._events.subscribe(LoopReady, lambda ready: self.start(ready.loop))
        self._events.subscribe(RunFreed, lambda freed: self.free(freed.run))
        self._events.subscribe(LoopStored, self._put_answer)
        self._events.subscribe(PersonActivated, self._stop_person)
        self._events.subscribe(LoopOrphaned, lambda orphaned: self._put_answer(LoopStored(orphaned.loop, KILLED)))

    # -- accepting ----------------------------------------------------------------------------------

    def accept(self, inbound: Inbound, correlation: str, thread: Callable[[], str] | None = None) -> AcceptedMessage:
        """Commit a message durably and queue its answer; nothing is run yet.

        `thread` makes or finds its thread, in the same transaction and not for a message that is here already.
        """
        if not inbound.text.strip():
            raise BadInput("the message is empty", hint="type a question")
        if len(inbound.text) > MAX_TEXT:
            raise BadInput(
                f"the message has {len(inbound.text)} characters, the limit is {MAX_TEXT}", hint="put it in a note and ask about it"
            )
        # Kept with the message: the notes as the model is shown them, and what the channel wants back.
        shown: dict[str, Any] = {k: v for k, v in (("relevant", self._relevant(inbound)), ("metadata", inbound.metadata)) if v}
        if inbound.own_chars is not None and inbound.own_chars < len(inbound.text):
            shown["own"] = max(0, inbound.own_chars)
        if inbound.images:
            shown["images"] = [dict(one) for one in inbound.images]
        marks = list(inbound.marks)
        if inbound.own_chars is not None and 0 <= inbound.own_chars < len(inbound.text):
            marks.append(("document", "piped in with the message"))
        if self._skills is not None:
            self._skills.refresh()
        if called := self._parse_call(inbound):
            shown |= {"rendered": called["text"], "own": 0, "short": called["short"]}
            marks += [] if called["is_trusted"] else [("skill", called["name"])]
        self._passed(CrashPoint.RECEIVED)
        self._events.publish(MessageComing())
        with self._store.write(durable=True) as execute:
            seen = execute(
                "SELECT run, loop FROM inbox WHERE channel = ? AND message_id = ?", (inbound.channel, inbound.message_id)
            )
            if seen:
                return AcceptedMessage(seen[0][0], seen[0][1], 0, is_new=False)
            self._outbox.require_room(is_person=True)
            self._runs.touch_session(inbound)
            run = self._run_for(inbound if thread is None else replace(inbound, thread=thread()))
            whose = self._runs.person(self._runs.get(run).session)
            if whose and self._runs.people.resolve(inbound.channel, inbound.sender_id) != whose:
                marks.append((f"person:{UNFIT.sub('_', inbound.sender_id)[:128]}", ""))
            shown |= {CARRIED: marks} if marks else {}
            event = self._runs.append(
                Event(
                    run=run,
                    kind="message",
                    role="user",
                    content=inbound.text,
                    input=shown or None,
                    channel=inbound.channel,
                    sender_id=inbound.sender_id,
                    correlation=correlation,
                    at_ms=inbound.at_ms,
                )
            )
            self._events.publish(MessageAccepted(run, inbound, str(shown.get("relevant") or "")))
            loop = self._runs.enqueue(run, event.id, correlation, inbound.mode)
            execute(
                "INSERT INTO inbox (channel, message_id, run, loop, received_ms) VALUES (?, ?, ?, ?, ?)",
                (inbound.channel, inbound.message_id, run, loop, now_ms()),
            )
        self._passed(CrashPoint.ACCEPTED)
        if inbound.is_injected:
            self._loops.inject(run, loop)
        return AcceptedMessage(run, loop, event.seq, is_new=True)

    def _parse_call(self, inbound: Inbound) -> Called | None:
        """What a message `/name words` stands for, None for any other; BadInput with the usage when a word is missing."""
        if self._skills is None or not inbound.text.startswith("/"):
            return None
        session = self._runs.people.find(inbound.session)
        own = f"user:{self._runs.people.resolve(inbound.channel, inbound.sender_id)}"
        with visibility.showing(session.context if session is not None else inbound.context or own):
            return self._skills.expand(inbound.text)

    def _run_for(self, inbound: Inbound) -> str:
        title = " ".join(inbound.text.split())
        title = title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…"
        if not inbound.thread:
            start = Start(inbound.alias, settings=inbound.settings or RunSettings())
            return self._runs.begin(inbound.session, inbound.kind, title=title, start=start).id
        run = self._runs.get(inbound.thread)
        if run.session != inbound.session:
            theirs, ours = (self._runs.people.get(session) for session in (run.session, inbound.session))
            if theirs.channel != NO_DOOR or theirs.context != ours.context:  # the same name at another channel is somebody else
                raise Conflict(f"thread {run.id} belongs to {run.session}", hint="start one of your own")
        if not run.title:
            self._runs.entitle(run.id, title)
        return run.id

    # -- working ------------------------------------------------------------------------------------

    def start(self, loop_id: int) -> None:
        """Answer a queued prompt in a thread of its own, after what its session has before it."""
        loop = self._runs.loop(loop_id)
        if loop.status not in (WAITING, RUNNING):
            self.feed.put(loop_id, LoopEnded(loop.status, loop.outcome))
            return
        if self._runs.is_of_task(loop):
            self.feed.put(loop_id, LoopEnded(WAITING, "waiting", "a worker goes on with it"))
            return
        for one in self._runs.queue(loop.run):
            if one.id < loop_id and one.status == WAITING and one.process == self._runs.process:
                self._start_loop(one)  # accepted before: first come, first served, whoever gets here first
        self._start_loop(loop)

    def _start_loop(self, loop: Loop) -> None:
        loop_id = loop.id
        with self._guard:
            is_closing = self._is_closing
            if not is_closing and loop_id not in self._cancels:
                queue = self._queues.setdefault(loop.session, [])
                is_idle = not queue
                late = [one for one in self._late.pop(loop.session, ()) if one.id != loop_id]
                for one in (*late, loop):
                    self._cancels[one.id] = CancelToken()
                    queue.append(one)
                if is_idle:
                    self._pool.submit(self._work_loop, queue[0])
        if is_closing:
            self._loops.settle(loop.session, partial(self._runs.release, loop_id))
            self.feed.put(loop_id, LATER)

    def start_waiting(self) -> int:
        """Begin everything that was accepted and never answered; returns how many.

        Not what another living process has accepted: a command without a core answers its own question.
        """
        loops = [w for w in self._runs.waiting() if w.process == self._runs.process or not is_alive(w.process)]
        for loop in loops:
            self.start(loop.id)
        return len(loops)

    def free(self, run: str) -> None:
        """Begin what was held up in a thread by a loop that waited for a decision."""
        for loop in self._runs.waiting():
            if loop.run == run and (loop.process == self._runs.process or not is_alive(loop.process)):
                self.start(loop.id)

    def stop(self, run: str) -> bool:
        """Stop what runs or waits in a thread; False when there is nothing."""
        is_hit = self._cancel_loops(run)
        # What waited may have been decided, and gone on with, between the two looks.
        if self._abandon_decision(run) or self._cancel_loops(run) or is_hit:
            return True
        self._require_ours(run)
        return False

    def _abandon_decision(self, run: str) -> bool:
        """Give up what waits for a decision in a thread."""
        return self._approvals is not None and self._approvals.abandon(run)

    def _cancel_loops(self, run: str) -> bool:
        with self._guard:
            tokens = dict(self._cancels)
        hit = [token for loop_id, token in tokens.items() if self._runs.loop(loop_id).run == run]
        for token in hit:
            token.set()
        return bool(hit)

    def _stop_person(self, decided: PersonActivated) -> None:
        """Stop what is answered, or waits to be, in the sessions of somebody who is deactivated."""
        with self._guard:
            tokens = {} if decided.is_active else dict(self._cancels)
        for loop_id, token in tokens.items():
            if self._runs.context_of(self._runs.loop(loop_id).run) == f"user:{decided.person}":
                token.set()

    def _require_ours(self, run: str) -> None:
        """Conflict when another process works in a thread: it cannot be stopped from here."""
        for loop in self._runs.queue(run):
            if loop.status == RUNNING and loop.process != self._runs.process and is_alive(loop.process):
                is_task = self._runs.is_of_task(loop)
                hint = f"owlbox task cancel {self._runs.get(run).task}" if is_task else "press Ctrl+C where it was asked"
                raise Conflict(f"thread {run} is being answered by another process", hint=hint)

    def abort(self, run: str) -> bool:
        """Stop only what is being answered in a thread: prompts that wait come next. False when nothing is."""
        for loop in self._runs.queue(run):
            with self._guard:
                token = self._cancels.get(loop.id)
            if loop.status == RUNNING and token is not None:
                token.set()
                return True
        if self._abandon_decision(run):
            return True
        self._require_ours(run)
        return False

    def waiting(self, session: str) -> list[Loop]:
        """The prompts of a session that were accepted and not begun, oldest first."""
        with self._guard:
            stopped = {loop_id for loop_id, token in self._cancels.items() if token.is_set()}
        return [loop for loop in self._runs.waiting() if loop.session == session and loop.id not in stopped]

    def clear(self, session: str) -> int:
        """Answer none of the prompts that wait in a session; how many. What is being answered goes on."""
        count = 0
        for loop in self.waiting(session):
            with self._guard:
                token = self._cancels.get(loop.id)
            if token is not None:
                token.set()
                count += 1
                continue
            with self._store.write(durable=True):
                if self._runs.loop(loop.id).status == WAITING:
                    self._runs.end_loop(loop, STOPPED, "cancelled")
                    count += 1
        return count

    def busy(self) -> int:
        """How many prompts are being answered or wait for their turn in this process."""
        with self._guard:
            return len(self._cancels)

    def close(self, reason: str) -> None:
        """Stop every answer and wait until its transcript is whole."""
        with self._guard:
            self._is_closing = True
            self._loops.begin_close()
            tokens = list(self._cancels.values())
        LOG.info("stopping %d answers: %s", len(tokens), reason)
        for token in tokens:
            token.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._loops.close()
        for loop_id in list(self._cancels):
            self.feed.put(loop_id, LATER)

    def _work_loop(self, loop: Loop) -> None:
        with self._guard:
            cancel = self._cancels[loop.id]
        end = LoopEnded(FAILED, "failed", "internal error")
        with log.correlated(loop.correlation):
            try:
                self._loops.pay(loop.session)
                end = self._answer_locked(loop, cancel)
            except OwlError as error:
                end = LoopEnded(FAILED, error.outcome, str(error))
                LOG.error("loop %d of run %s: %s", loop.id, loop.run, error)
            except Exception:
                LOG.exception("loop %d of run %s failed", loop.id, loop.run)
            finally:
                self._begin_next(loop, is_late=end is LATER)
                self.feed.put(loop.id, end)
                if end.status == PROPOSED:
                    self._loops.settle(loop.session, partial(self._suspend, loop))
                if loop.run in self._held and end.status not in (WAITING, PROPOSED):
                    self._held.discard(loop.run)
                    self._loops.settle(loop.session, partial(self.free, loop.run))

    def _suspend(self, loop: Loop) -> None:
        """A loop waits for a decision, which may have been made before we let go of it."""
        if self._runs.loop(loop.id).status == WAITING:
            self.start(loop.id)
        else:
            self._events.publish(LoopPaused(loop.run))

    def _put_answer(self, stored: LoopStored) -> None:
        """Within the transaction that ends a loop: a notification to its channel, when nobody listens to its answer.

        Also that it failed or was interrupted, to somebody elsewhere.

        Also about what waits for a decision, once for each time. Not about work: whoever asked for it is told of its end.
        """
        loop, end = stored.loop, stored.end
        is_broken = end.status == FAILED or (end.status == STOPPED and end.outcome in INTERRUPTED)
        if not (is_broken or end.status in (DONE, PROPOSED)) or self._runs.get(loop.run).kind == CHILD:
            return
        session = self._runs.session(loop.session)
        if session["channel"] == NO_DOOR:
            return  # whoever asked for the task is told of its end, even when its loop's end was written late
        key, (seq, said) = answer_key(loop.id), self._runs.last_words(loop.id)
        if end.status == PROPOSED:
            key, seq = f"proposal:{loop.id}:{self._runs.get(loop.run).last_seq}", self._runs.get(loop.run).last_seq
            said = f"This needs your approval: {end.message}. Run owlbox approve or owlbox reject."
        origin, metadata = self._runs.origin(loop.prompt)
        if is_broken:  # at a terminal the error is seen; elsewhere silence would look like a lost message
            words = self._runs.unfinished_words(loop).rstrip()
            why = f"(The answer ends here: {end.outcome}.)" if words else f"This could not be answered ({end.outcome})."
            said = "" if origin in ("", LOCAL) else f"{words}\n\n{why}".strip()
        if not said.strip():
            return
        notification = Notification(
            key,
            session["person"],
            said,
            session["context"],
            loop.session,
            origin or session["channel"],
            loop.run,
            metadata={**metadata, "seq": seq},
            correlation=loop.correlation,
        )
        if not self.feed.is_heard(loop.id):
            self._outbox.put(notification, sources=(f"run:{loop.run}",))
        for other in self._copies(session, origin):
            copy = replace(notification, key=f"{key}:{other.channel}", channel=other.channel, metadata=dict(other.reply))
            self._outbox.put(copy, sources=(f"run:{loop.run}",))

    def _begin_next(self, loop: Loop, *, is_late: bool) -> None:
        """This prompt is done with, or put off: begin the session's next one."""
        with self._guard:
            del self._cancels[loop.id]
            if is_late:
                self._late.setdefault(loop.session, []).append(loop)
            queue = self._queues[loop.session]
            queue.remove(loop)
            if not queue:
                del self._queues[loop.session]
            elif not self._is_closing:
                self._pool.submit(self._work_loop, queue[0])

    def _answer_locked(self, loop: Loop, cancel: CancelToken) -> LoopEnded:
        try:
            try:
                if self._runs.paused_loop(loop.run) is not None:
                    self._held.add(loop.run)
                    return HELD
                is_ours = self._begin_prompt(loop, cancel)
            except OwlError as error:
                return self._end_unbegun(loop, error)
            return self._loops.answer(loop, cancel) if is_ours else self._follow_answer(loop, cancel)
        finally:
            self._loops.settle(loop.session, partial(self._release_lock, loop))

    def _begin_prompt(self, loop: Loop, cancel: CancelToken) -> bool:
        """Take the session's turn, then the prompt; False when somebody else has taken that.

        One turn per session across processes; here the queue saw to it already. A dead holder is passed
        over, and so are we ourselves: a full disk may have kept us from unlocking. What was left by a process before us is
        synced before the model has anything to do: a box that loses its power under load would else be asked the same at
        every start. What we accepted ourselves is synced while the model begins to evaluate, and asked once more at most.
        """
        if cancel.is_set():
            raise Cancelled("stopped before it began")
        if not self._runs.people.is_served(loop.session):
            raise Cancelled("its person is deactivated")
        while not self._take_lock(loop):
            if self._runs.loop(loop.id).status != WAITING:
                return False
            if cancel.wait(LOCK_POLL_S):
                raise Cancelled("stopped before it began")
        try:
            self._runs.start_loop(loop.id, is_synced=loop.process != self._runs.process)
        except Conflict:
            return False
        return True

    def _end_unbegun(self, loop: Loop, error: OwlError) -> LoopEnded:
        """How a prompt ends that was not begun: "failed" only once that is on record, or it would be answered after all."""
        if isinstance(error, Cancelled):
            if self._is_closing:
                return LATER
            end = LoopEnded(STOPPED, "cancelled", error.message)
            is_taken_up = self._runs.last_turn(loop.id) is not None  # and has calls that were not run
            finish = partial(self._loops.finish, loop, "", replace(end, message=""))
            self._loops.settle(loop.session, finish if is_taken_up else partial(self._runs.end_loop, loop, STOPPED, "cancelled"))
            if is_taken_up:
                self._loops.settle(loop.session, lambda: self._events.publish(CallsAbandoned(loop.run)))
            return end
        LOG.error("loop %d of run %s could not begin: %s", loop.id, loop.run, error)
        end = LoopEnded(FAILED, error.outcome, str(error))
        try:
            self._loops.finish(loop, "", end)
        except NotFound:
            pass  # its thread was deleted
        except OwlError:
            return LATER
        return end

    def _follow_answer(self, loop: Loop, cancel: CancelToken) -> LoopEnded:
        """Stream an answer that another process writes, as it is stored."""
        seen = self._runs.record.seq(loop.prompt)
        while True:
            now = self._runs.loop(loop.id)
            for event in self._runs.events(loop.run, after=seen):
                seen = event.seq
                if event.correlation != loop.correlation:
                    continue
                if event.kind == "message" and event.role == "assistant":
                    self.feed.put(loop.id, Delta(event.content))
                self.feed.put(loop.id, event)
            if now.status not in (WAITING, RUNNING):
                return LoopEnded(now.status, now.outcome)
            if now.status == RUNNING and not is_alive(now.process):
                self._runs.recover(lambda event: None)
            if cancel.wait(FOLLOW_S):
                return LATER if self._is_closing else LoopEnded(STOPPED, "cancelled", "another process goes on answering")

    # -- the turn lock ------------------------------------------------------------------------------

    def _take_lock(self, loop: Loop) -> bool:
        held = "SELECT process FROM turn_locks WHERE session = ?"
        found = self._store.value(held, (loop.session,))
        if found and found != self._runs.process and is_alive(str(found)):
            return False
        with self._store.write() as execute:
            again = execute(held, (loop.session,))
            if again and again[0][0] != found:
                return False  # another process was quicker
            execute(
                "INSERT INTO turn_locks (session, process, loop, taken_ms) VALUES (?1, ?2, ?3, ?4) "
                "ON CONFLICT (session) DO UPDATE SET process = ?2, loop = ?3, taken_ms = ?4",
                (loop.session, self._runs.process, loop.id, now_ms()),
            )
        return True

    def release_dead(self) -> None:
        """Remove the turns of processes that died after their answer or in it: nobody else does unless a session is asked again."""
        for session, holder in self._store.rows("SELECT session, process FROM turn_locks"):
            if holder != self._runs.process and not is_alive(str(holder)):
                with self._store.write() as execute:
                    execute("DELETE FROM turn_locks WHERE session = ? AND process = ?", (session, holder))

    def _release_lock(self, loop: Loop) -> None:
        with self._store.write() as execute:
            execute(
                "DELETE FROM turn_locks WHERE session = ? AND loop = ? AND process = ?", (loop.session, loop.id, self._runs.process)
            )


def relay(items: Iterable[Shown], notify: Notify, *, is_through: bool = False) -> LoopEnded:
    """Tell a caller everything about a loop until it ends, or waits for a decision; with `is_through` also beyond that.

    Notifications: `delta` for text, `thinking` and `preparing` for what comes before it, `event` for every stored event,
    `proposal` for what waits for a decision.
    """
    end = LEFT
    for item in items:
        if isinstance(item, Delta | Thinking):
            name = "delta" if isinstance(item, Delta) else "thinking"
            for start in range(0, len(item.text), MAX_CHARS):  # a slow listener gets them joined
                notify(name, {"text": item.text[start : start + MAX_CHARS]})
        elif isinstance(item, CallPreparing):
            notify("preparing", {"tool": item.tool})
        elif isinstance(item, LoopEnded):
            end = item
            if not (is_through and item.status == PROPOSED):
                break
        else:
            notify("event", fit(item)[0])
            if item.kind == "proposal":
                notify("proposal", {"run": item.run, "text": item.content, **(item.input or {})})
    return end


def fit(event: Event) -> tuple[dict[str, Any], int]:
    """An event ready to be sent, and its size in characters; what is too long is cut and says so."""
    plain: dict[str, Any] = to_plain(event)
    given = json.dumps(event.input, ensure_ascii=False) if event.input else ""
    if len(given) > MAX_CHARS:
        plain["input"] = {"cut": f"{len(given)} characters are too many to show"}
        given = ""
    size = len(event.content)
    if size > MAX_CHARS:
        plain["content"] = f"{event.content[:MAX_CHARS]}\n[cut: {MAX_CHARS} of {size} characters shown]"
    return plain, min(size, MAX_CHARS) + len(given) + 500
