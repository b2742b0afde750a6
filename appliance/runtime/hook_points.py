"""The moments at which plugins may listen, decide or change something: their names, and what is handed over at each.

An event tells; a chain is asked until one says False; a filter hands a value on from one to the next. Names never
change once they are here; docs/guides/plugins.md shows this table, and a test holds it to that. Pure: fires nothing.
"""

from typing import Literal

from msgspec import Struct

Kind = Literal["event", "chain", "filter"]

PROJECT_STARTING, PROJECT_STARTED = "project.starting", "project.started"
RUN_CREATED, RUN_CONFIG, RUN_STATE, RUN_PROGRESS = "run.created", "run.config", "run.state", "run.progress"
ASK_STARTED, ASK_COMPLETED, ACT_STARTED, ACT_COMPLETED = "ask.started", "ask.completed", "act.started", "act.completed"
LOOP_STARTED, LOOP_COMPLETED, STEP_COMPLETED = "loop.started", "loop.completed", "step.completed"
TURN_STARTED, CONTEXT, BUDGET, MESSAGES = "turn.started", "turn.context", "budget.checked", "llm.messages"
SYSTEM, USER = "packet.system", "packet.user"
REQUEST_STARTED, RESPONSE, REQUEST_COMPLETED = "request.started", "llm.response", "request.completed"
TURN_RESPONSE, RECORDING, HANDLING, TOOL_BEFORE, TOOL_AFTER = (
    "turn.response",
    "call.recording",
    "call.handling",
    "tool.before",
    "tool.after",
)
ENTRY_CREATED, ENTRY_CHANGED = "entry.created", "entry.changed"
PREPARE, PENDING, VETO, CONTENT = "proposal.prepare", "proposal.pending", "proposal.veto", "proposal.content"
ACCEPTED, REJECTED = "proposal.accepted", "proposal.rejected"
DISPATCHED, VERDICT, TURN_COMPLETED = "turn.dispatched", "verdict", "turn.completed"
VISIBLE, SUMMARIZED = "view.visible:", "view.summarized:"  # followed by the name of a scheme


class HookPoint(Struct, frozen=True):
    """One name: what it is, what is handed over (a filter's value first), and when."""

    name: str
    kind: Kind
    given: str
    when: str


def _list_moments() -> tuple[HookPoint, ...]:
    run = "Run"
    rows: tuple[tuple[str, Kind, str, str], ...] = (
        (PROJECT_STARTING, "event", "home", "a core begins, before anything is mended or read"),
        (PROJECT_STARTED, "event", "home", "it is ready"),
        (RUN_CREATED, "event", run, "a run was begun, forked or read in"),
        (RUN_CONFIG, "filter", f"RunSettings, {run}", "a loop takes what its run is set to"),
        (RUN_STATE, "event", "run id, status, outcome", "a run's status has changed"),
        (RUN_PROGRESS, "event", "run id, text", "something happened that a person may want to see"),
        (ASK_STARTED, "event", "run id", "a question that changes nothing begins to be answered"),
        (ASK_COMPLETED, "event", "run id, LoopEnded", "and has ended"),
        (ACT_STARTED, "event", "run id", "a prompt that may change something begins to be answered"),
        (ACT_COMPLETED, "event", "run id, LoopEnded", "and has ended"),
        (LOOP_STARTED, "event", "Loop", "a loop begins, or goes on after a decision"),
        (LOOP_COMPLETED, "event", "Loop, LoopEnded", "it has ended, or waits for a decision"),
        (STEP_COMPLETED, "event", "Event", "an event of a run is stored"),
        (TURN_STARTED, "event", "run id, number, route", "the model is about to be asked"),
        (CONTEXT, "event", "Scene", "what a packet is made for is known: its messages and tools"),
        (SYSTEM, "filter", "tuple of Part, Scene", "the system text is put together; the product's parts have priorities 10 to 50"),
        (USER, "filter", "tuple of Part, Stage", "the blocks of a message are put together, in the layout of entries"),
        (BUDGET, "event", "Scene, Packet", "a packet fits the window"),
        (MESSAGES, "filter", "tuple of Message, run id", "the messages go to the model"),
        (REQUEST_STARTED, "event", "run id, Ask", "a model is asked"),
        (RESPONSE, "filter", "text, run id", "it has answered, or the program in its place; what it says is read afterwards"),
        (REQUEST_COMPLETED, "event", "run id, Finish", "what that took is known"),
        (TURN_RESPONSE, "filter", "Answer, run id", "the answer is read: its words and its calls"),
        (RECORDING, "filter", "Recorded, scene", "a call is about to be recorded: it may be another one, or refused"),
        (HANDLING, "chain", "ToolCall, run id", "a call is about to be run; False refuses it"),
        (TOOL_BEFORE, "event", "ToolCall, run id", "a tool is called"),
        (TOOL_AFTER, "filter", "Outcome, ToolCall, run id", "it has answered"),
        (ENTRY_CREATED, "event", "EntryNews", "an entry is there that was not"),
        (ENTRY_CHANGED, "event", "EntryNews", "an entry, or how a run sees it, is another one"),
        (PREPARE, "event", "run id, ToolCall, refs", "a call made proposals"),
        (PENDING, "event", "run id, refs", "they are recorded and wait for a person's decision"),
        (VETO, "chain", "Ballot", "one is about to be accepted; set its veto and return False"),
        (CONTENT, "filter", "text, Waiting", "the text that is stored with it"),
        (ACCEPTED, "event", "Waiting, Outcome", "it was accepted and done"),
        (REJECTED, "event", "Waiting, Outcome", "it was rejected"),
        (DISPATCHED, "event", "run id, tuple of Done", "the calls of a turn have their results"),
        (VERDICT, "filter", "Verdict, run id", "whether the loop goes on; `Verdict(True, 200, 'ok', 'words')` ends it"),
        (TURN_COMPLETED, "event", "run id, number, Verdict", "a turn is over"),
        (f"{VISIBLE}SCHEME", "filter", "text, Entry", "an entry of this scheme is shown whole"),
        (f"{SUMMARIZED}SCHEME", "filter", "text, Entry", "an entry of this scheme is shown as a line"),
    )
    return tuple(HookPoint(*row) for row in rows)


MOMENTS = _list_moments()
Change = Literal["created", "body", "attributes", "moved", "removed", "restored", "visibility", "status", "summary"]


class EntryNews(Struct, frozen=True):
    """The outcome of an entry, told once it is committed; `run` is "" for a change outside of every run."""

    path: str
    kind: Change
    run: str = ""
    scope: str = ""
    writer: str = ""


def is_known(name: str) -> bool:
    """Whether something happens under a name."""
    return any(name == one.name for one in MOMENTS) or name.startswith((VISIBLE, SUMMARIZED))
