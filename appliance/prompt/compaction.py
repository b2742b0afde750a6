"""Compaction: the older part of a conversation as a summary, so that a long one still fits its model.

A compaction is an event that names the events it covers; those stay as they are, and only what a model is shown
changes. It is made when a conversation nears its limit, in the background and after the answer, or when somebody
asks for it. The small pool words it; where that is no use, or invents things, lines made by a rule stand in.
Knows nothing about channels. Never covers the newest exchanges, nor anything of a prompt that is being answered.
"""

import json
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from appliance.clock import CancelToken
from appliance.errors import Conflict, OwlError
from appliance.knowledge.search import words_of
from appliance.models import failover
from appliance.records import Ask, Cancel, Event, Finish, Message, Model, Part, Piece, Route
from appliance.runtime import log
from appliance.sessions.events import CUT, CUT_SHORT, SPOKEN, compacted
from appliance.sessions.runs import Runs
from appliance.text.tokens import estimate

LOG = logging.getLogger(__name__)
KEPT_EXCHANGES = 2  # newest ones that are never covered
LEAST_EVENTS = 4  # fewer are not worth a summary
SUMMARY_CHARS = 2_000
LINE_CHARS = 160
TAKEN_CHARS = 12_000  # of the conversation that the small model reads
SPOKEN_CHARS = 2_000  # of one message, or of the summary before
OWN_WORDS = 0.4  # a summary with more words of its own than this part is not one of the text
TASK = (
    "Summarize this conversation for yourself, in at most 150 words of plain sentences: what was asked, what was found out "
    "or decided, names, numbers, and what is still open. Add nothing that is not in it."
)


class Covering(Struct, frozen=True):
    """What a compaction would replace: the events, oldest first, and the ids of all that are covered then."""

    events: tuple[Event, ...]
    ids: tuple[int, ...]


class Compactor:
    """Makes compactions; `start` does it in a thread of its own, one at a time."""

    def __init__(self, runs: Runs, model: Model, *, pool: str = "small") -> None:
        self._runs = runs
        self._model = model
        self._pool = pool
        self._guard = threading.Lock()
        self._due: set[str] = set()
        self._cancel = CancelToken()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compaction")

    def covering(self, run: str) -> Covering:
        """The events that a summary could cover now; none where it could cover nothing."""
        found = self._runs.get(run)
        summary = self._runs.record.compaction(found.id, found.head)
        events = compacted(self._runs.record.path(found.head, kinds=SPOKEN), summary)
        begins = [at for at, event in enumerate(events) if event.kind == "message" and event.role == "user"]
        if len(begins) <= KEPT_EXCHANGES:
            return Covering((), ())
        older = events[: begins[-KEPT_EXCHANGES]]
        before = (*summary.input.get("covers", ()), summary.id) if summary is not None and summary.input else ()
        ids = dict.fromkeys((*before, *(event.id for event in older)))
        return Covering(tuple(older), tuple(ids))

    def compact(self, run: str, *, is_background: bool = False) -> Event:
        """Summarize the older part of a run's conversation; Conflict when there is too little of it."""
        found = self._runs.get(run)
        covering = self.covering(found.id)
        if len(covering.events) < LEAST_EVENTS:
            raise Conflict("there is too little to summarize", hint="the newest exchanges always stay as they are")
        words = self._by_model(covering.events, is_background)
        text = words or by_rule(covering.events)
        given = {"covers": list(covering.ids), "by": "model" if words else "rule"}
        if self._runs.get(found.id).head != found.head:
            covering_now = set(self.covering(found.id).ids)
            if not set(covering.ids) <= covering_now:  # somebody went to another branch meanwhile
                raise Conflict("the conversation went elsewhere meanwhile", hint="try again")
        event = Event(run=found.id, kind="compaction", role="system", content=text, input=given, correlation=log.correlation())
        return self._runs.append(event, durable=True)

    def start(self, run: str) -> bool:
        """Have a run that nears its limit summarized soon; False when that is under way, or switched off."""
        with self._guard:
            if run in self._due or self._cancel.is_set():
                return False
            self._due.add(run)
        self._thread.submit(self._compact_run, run)
        return True

    def close(self) -> None:
        """Begin nothing more, and stop what runs."""
        self._cancel.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _compact_run(self, run: str) -> None:
        try:
            event = self.compact(run, is_background=True)
            LOG.info("a conversation was summarized", extra={"run": run, "covers": len((event.input or {})["covers"])})
        except OwlError as error:
            LOG.info("run %s was not summarized: %s", run, error)
        finally:
            with self._guard:
                self._due.discard(run)

    def _by_model(self, events: Sequence[Event], is_background: bool) -> str:
        """The summary as the small pool words it; "" when it cannot, or says what was never said."""
        told = _render_events(events)
        try:
            routes = self._model.plan(self._pool)
            route = routes[0]
            ask = Ask(
                system=(Part("instructions", TASK),),
                messages=(Message("user", told),),
                purpose="compaction",
                dialect=route.dialect,
                is_background=is_background,
                max_tokens=300,
                correlation=log.correlation(),
            )
            if route.window and estimate(told, 4) > route.window // 2:
                return ""
            said = _read_answer(self._model, routes, ask, self._cancel)
        except (OwlError, IndexError) as error:
            LOG.info("a summary is made by rule: %s", error)
            return ""
        return said if is_faithful(said, told) else ""


def by_rule(events: Sequence[Event]) -> str:
    """What was said as short lines: an earlier summary, then the first and the newest of them that fit.

    What failed or was rejected is not told as done.
    """
    failed = {event.call_id: event.outcome for event in events if event.kind == "tool_result" and event.status >= 400}
    lines = []
    for event in events:
        text = " ".join(event.content.split())
        if event.kind == "compaction":
            lines.append(text if len(text) <= SUMMARY_CHARS // 2 else f"{text[: SUMMARY_CHARS // 2]}…")
        elif event.kind == "message" and text:
            short = text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS].rstrip()}…"
            short += CUT_SHORT if event.role == "assistant" and event.status == CUT else ""
            lines.append(f"- {'asked' if event.role == 'user' else 'answered'}: {short}")
        elif event.kind == "tool_use":
            verb = f"did not ({failed[event.call_id]})" if event.call_id in failed else "did"
            lines.append(f"- {verb}: {event.tool} {json.dumps(event.input or {}, ensure_ascii=False)[:LINE_CHARS]}")
    head, rest = lines[:1], lines[1:]
    room = SUMMARY_CHARS - sum(map(len, head))
    kept: list[str] = []
    for line in reversed(rest):
        room -= len(line) + 1
        if room < 0:
            kept.insert(0, "- …")
            break
        kept.insert(0, line)
    return "\n".join([*head, *kept])


def is_faithful(summary: str, text: str) -> bool:
    """Whether a summary is one: not empty, shorter than the text, and mostly in its words."""
    if not summary or len(summary) > SUMMARY_CHARS or len(summary) >= len(text):
        return False
    said, known = words_of(summary, 500), {word[:5] for word in words_of(text, 100_000)}
    strange = sum(word[:5] not in known for word in said)
    return bool(said) and strange <= OWN_WORDS * len(said)


def _render_events(events: Sequence[Event]) -> str:
    """What there is to summarize, within its limit: the summary before, which stands for all that it covers, and the newest."""
    lines = [line for event in events if (line := _render_event(event))]
    head = lines[:1] if events and events[0].kind == "compaction" else []
    room = TAKEN_CHARS - sum(map(len, head))
    rest: list[str] = []
    for line in reversed(lines[len(head) :]):
        room -= len(line) + 1
        if room < 0:
            break
        rest.append(line)
    return "\n".join([*head, *reversed(rest)])


def _render_event(event: Event) -> str:
    """One line of what there is to summarize; "" for nothing."""
    who = {"user": "Person", "assistant": "Owl", "tool": "Result", "system": "Before"}
    text = event.content if event.kind != "tool_use" else f"calls {event.tool} {json.dumps(event.input or {}, ensure_ascii=False)}"
    return f"{who.get(event.role, event.role)}: {text[:SPOKEN_CHARS]}" if text else ""


def _read_answer(model: Model, routes: Sequence[Route], ask: Ask, cancel: Cancel) -> str:
    text = ""
    for piece in failover.generate(model, routes, ask, cancel):
        if isinstance(piece, Piece) and not piece.is_reasoning:
            text += piece.text
        elif isinstance(piece, Finish) and piece.reason in ("length", "repetition", "filtered"):
            text = text.rpartition(".")[0] + "."  # a sentence that was cut off says little
    return text.strip()
