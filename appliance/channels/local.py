"""The local channel: a notification is put into the thread it belongs to and shown to whoever is connected.

Delivered once: the event and the notification's end are one transaction. One of no thread, or of one that was deleted, goes
into the last chat of its conversation, which is made when there is none; without a conversation to the log, and to those who
follow. A thread that is being answered gets its notifications after that, so that nothing
comes between a call and its result. Knows nothing about sockets: clients follow `notices`.
"""

import logging

from appliance.clock import now_ms
from appliance.errors import Busy, NotFound
from appliance.policy.taint_marks import CARRIED
from appliance.records import Event, Outbound
from appliance.runtime.subscriptions import Notice, Notices
from appliance.sessions.outbox import LOGGED, SENT, Outbox, context_of
from appliance.sessions.runs import Runs

LOG = logging.getLogger(__name__)
LOCAL = "local"
SEQ = "seq"  # in a notification's metadata: where its text stands in the thread already
TITLE = "Notifications"  # of a chat that begins with one
LOG_CHARS = 2000


class Local:
    """Channel port and status port of the local channel."""

    is_idempotent = True

    def __init__(self, outbox: Outbox, runs: Runs, notices: Notices) -> None:
        self._outbox = outbox
        self._runs = runs
        self._notices = notices

    def show(self, session: str, state: str) -> None:
        """Note what the assistant is doing."""
        LOG.debug("session %s is %s", session, state)

    def deliver(self, message: Outbound) -> None:
        """Put it into its thread and tell those who follow; Busy while the thread is being answered."""
        run = self._find_thread(message.run)
        is_followed = self._notices.is_followed(message.person)
        seq = int(message.metadata.get(SEQ) or 0) if run else 0
        with self._outbox.handing_over(message.key, SENT if run or message.session or is_followed else LOGGED) as is_new:
            if not is_new:
                return
            run = run or self._last_chat(message)
            if run and not seq:
                seq = self._append_message(run, message)
        self._notices.put(Notice(message.person, message.text, run, seq, now_ms(), message.key))
        if run:
            LOG.info("event %d of thread %s waits to be read", seq, run, extra={"session": message.session})
        elif not is_followed:
            LOG.info("for %s: %s", message.person, message.text[:LOG_CHARS], extra={"letter": message.key})

    def _last_chat(self, message: Outbound) -> str:
        """The newest chat of the conversation, made when there is none; "" for no conversation. Within a transaction."""
        if not message.session:
            return ""
        try:
            self._runs.session(message.session)
        except NotFound:
            self._runs.open_session(message.session, message.person, context_of(message.person))
        found = self._runs.list_runs(kind="chat", session=message.session, limit=1)
        if found:
            return found[0].id
        made = self._runs.begin(message.session, "chat", title=TITLE).id
        self._runs.end(made, "ok")  # nobody waits for anything there
        return made

    def _append_message(self, run: str, message: Outbound) -> int:
        if self._runs.is_answering(run):
            raise Busy(f"thread {run} is being answered")
        more = {"attachment": message.attachment} if message.attachment else {}
        event = Event(
            run=run,
            kind="message",
            role="assistant",
            content=message.text,
            input={"letter": message.key, **more, **({CARRIED: list(message.marks)} if message.marks else {})},
            channel=LOCAL,
            sender_id="assistant",
            correlation=message.correlation,
        )
        return self._runs.append(event).seq

    def _find_thread(self, run: str) -> str:
        """The thread, "" for none and for one that is gone."""
        try:
            return self._runs.get(run).id if run else ""
        except NotFound:
            return ""
