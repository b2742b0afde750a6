"""What schedules do when they are due: remind, put tasks in the queue, say something in a conversation.

A reminder is a letter to the thread in which it was asked for, without any model. Tasks, their order among each other
included, are known by the firing's key, a message by the same as its message id, so that none is there twice. What a
model wrote here is text for a task, and says nothing about who is told. Owns no table.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import correlation_id
from appliance.errors import BadInput, Exhausted, NotFound
from appliance.records import Inbound
from appliance.sessions.outbox import Letter, Outbox, context_of
from appliance.sessions.runs import DONE, FAILED, STOPPED, Runs
from appliance.work import rules_in_words
from appliance.work.conditions import Wanted
from appliance.work.firing import Done, Due
from appliance.work.schedules import Schedule
from appliance.work.tasks import NewTask, Tasks

MAX_WAITING = 1000  # tasks in the queue, to which schedules add no more: without a worker they would pile up for ever
ENDED = (DONE, STOPPED, FAILED)
LOCAL = "local"  # the channel
NOW, NORMAL = "now", "normal"  # of letters: whether quiet hours hold it back
Accept = Callable[[Inbound, str], int]  # a message and its correlation; the loop that answers it


class Hands(Struct, frozen=True):
    """What effects work with; `is_open` says whether a channel runs."""

    outbox: Outbox
    tasks: Tasks
    runs: Runs
    accept: Accept
    start: Callable[[int], None]
    is_open: Callable[[str], bool]


class Effects:
    """Brings them about."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    # -- within the transaction -----------------------------------------------------------------------

    def remind(self, due: Due) -> Done:
        """A letter with the text; late ones say so."""
        known = due.schedule
        text = f"Reminder: {known.action.text or known.name}"
        if due.late_ms:
            text += f"\n(It was due on {rules_in_words.moment(due.due_ms, known.rule.zone)}.)"
        self._hands.outbox.put(self.letter(known, due.key, text, NOW), sources=(f"schedule:{known.ref}",))
        return Done("reminded")

    def plan(self, due: Due) -> Done:
        """The tasks that the action names, or that the model wants, or one by the schedule's own name."""
        known = due.schedule
        if self._hands.tasks.counts().get("pending", 0) >= MAX_WAITING:
            raise Exhausted(f"{MAX_WAITING} tasks wait already", hint="owlbox worker list: somebody has to do them")
        made: list[int] = []
        for place, wanted in enumerate(_wanted(due)):
            task = self._hands.tasks.add(
                NewTask(
                    wanted.name,
                    wanted.description,
                    wanted.priority,
                    [made[before] for before in wanted.depends_on if 0 <= before < place],
                    person=known.person,
                    session=known.session,
                    origin=self.thread(known) or None,
                    key=f"{due.key}:{place}",
                )
            )
            marks = self._hands.runs.marks
            marks.inherit(f"task:{task.id}", f"schedule:{known.ref}")
            marks.take(f"task:{task.id}", due.verdict.marks if due.verdict is not None else ())
            made.append(task.id)
        return Done(f"task {', '.join(map(str, made))}", "running")

    # -- after it -------------------------------------------------------------------------------------

    def say(self, due: Due) -> Done:
        """A turn in the session that the schedule names."""
        return self.say_in(due, due.schedule.session)

    def say_in(self, due: Due, session: str) -> Done:
        """The action's text as a message in a session; skipped when its channel does not run (S-068)."""
        known, hands = due.schedule, self._hands
        channel, _, sender = session.partition(":")
        if not (channel and sender):
            raise BadInput(f"schedule {known.ref} names no session", hint="set one such as local:ada")
        if not hands.is_open(channel):
            return Done(f"channel {channel} does not run", "skipped")
        thread = self.thread(known, session) or self._latest(session)
        said = known.action.text or known.name
        marks = hands.runs.marks.carried(f"schedule:{known.ref}")
        message = Inbound(channel, sender, said, due.key, due.now_ms, thread=thread, metadata=dict(known.metadata), marks=marks)
        if marks:  # a stranger's text is not the person's word because a clock says it
            message = replace(message, own_chars=-1)
        loop = hands.accept(message, correlation_id())
        found = hands.runs.loop(loop)
        if found.status in ENDED:  # a process that died had begun it
            return Done(found.outcome)
        hands.start(loop)
        return Done(f"message to {session}", "running")

    # -- letters --------------------------------------------------------------------------------------

    def letter(self, known: Schedule, key: str, text: str, urgency: str) -> Letter:
        """A text about a schedule for whoever it belongs to, in the thread where it was asked for, else in their last one.

        Who has never talked here is told when they are connected.
        """
        has_talked = self._hands.outbox.addresses(known.context or context_of(known.person))
        return Letter(
            key,
            known.person,
            text,
            known.context,
            known.session,
            known.notify.channel or ("" if has_talked else LOCAL),
            run=self.thread(known) or self._latest(known.session) or None,
            metadata={"schedule": known.ref, "urgency": urgency},
        )

    def thread(self, known: Schedule, session: str = "") -> str:
        """The thread that a schedule was made in, if it is still there, and in the session when one is given."""
        try:
            run = self._hands.runs.get(known.source) if known.source else None
        except NotFound:
            return ""
        return run.id if run is not None and session in ("", run.session) else ""

    def _latest(self, session: str) -> str:
        found = self._hands.runs.listing(kind="chat", session=session, limit=1) if session else []
        return found[0].id if found else ""


def _wanted(due: Due) -> Sequence[Wanted]:
    known = due.schedule
    given = known.action.details.get("tasks") or ()
    if given:
        return [
            Wanted(
                str(task.get("name") or known.name),
                str(task.get("description") or ""),
                str(task.get("priority") or "medium"),
                tuple(task.get("depends_on") or ()),
            )
            for task in given
        ]
    if due.verdict is not None and due.verdict.tasks:
        return due.verdict.tasks
    return [Wanted(known.name, known.description)]
