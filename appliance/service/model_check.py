"""Whether this device and this model fit together: a few measured answers, tried tool calls, a verdict in words.

Everything goes through the model port, as a person's question, so the numbers hold what a person waits for: the
socket, the queue and the model. Knows nothing about files, catalogues or terminals. Ends in the time it was given:
what does not fit is left out and said. Not promised: the same numbers while the machine does other work, and that
ten short requests foretell every tool call.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median
from typing import Any, Protocol

from msgspec import Struct
from msgspec import field as struct_field
from msgspec.structs import replace

from appliance.clock import correlation_id, monotonic_s
from appliance.errors import DeadlineExceeded, TooLarge
from appliance.prompt.packet import CALLING, INSTRUCTIONS, STYLE, tool_line
from appliance.records import Ask, Cancel, Finish, Message, Model, Part, Route, ToolCall, ToolSpec

Progress = Callable[[str, int, int], None]

SECONDS = 180.0
TEXT_TOKENS = 600
LETTERS_A_TOKEN = 4  # of English, roughly; what was really read is counted by the model
WRITTEN_TOKENS = 64
FEWEST_TOKENS = 8  # a shorter answer says nothing about speed
WRITINGS = 3
CALL_TOKENS = 200
ENOUGH_CALLS = 5
LEFT_S = 1.0  # with less than this no step is begun
STEPS = ("load", "reading", "writing", "tool calls")

# The thresholds of the verdict.
TALKS, PATIENT = 8.0, 3.0  # tokens/s written: one reads along, one can wait
RELIABLE = 0.8  # of the tool calls

FACTS = (
    "The garden fence was painted green in April, and two boards at the gate are still loose.",
    "The dentist moved to the house beside the station; the old number no longer works.",
    "Anna's birthday is in June, and she would like a book about birds.",
    "The spare key hangs behind the blue coat in the hall.",
    "Bread is cheaper on Thursdays, and the baker closes at noon on Saturdays.",
    "The tax letter has to be answered before the end of the month.",
    "The heating is serviced every second autumn, last by the firm from the valley.",
    "The train to the coast leaves at ten past eight and needs no reservation.",
)


class Calls(Struct, frozen=True):
    """Tool calls that were asked for: one call that could be read, with a known tool and its arguments, of the right tool."""

    asked: int = 0
    parseable: int = 0
    valid: int = 0
    expected: int = 0

    @property
    def rate(self) -> float:
        """The part that was right."""
        return self.expected / self.asked if self.asked else 0.0


class Qualification(Struct, frozen=True):
    """What was measured; None where nothing could be.

    `read_s` is the time to the first piece of an answer about a text never seen, `read_tokens` what was read for it: nothing is
    subtracted, so the first token written and the way through the socket are in `prefill_tokens_per_s`. `rss_mb` is the model
    process with the part of the model's file it has read.
    """

    model: str
    provider: str
    route: str
    window: int
    load_s: float | None = None
    read_s: float | None = None
    read_tokens: int = 0
    prefill_tokens_per_s: float | None = None
    decode_tokens_per_s: float | None = None
    decodes: int = 0
    calls: Calls = struct_field(default_factory=Calls)
    rss_mb: int = 0
    free_mb: int = 0
    total_mb: int = 0
    took_s: float = 0.0
    notes: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()


class Bench(Model, Protocol):
    """The model port of a core, which can also say how its broker is."""

    def status(self) -> dict[str, Any]: ...


def qualify(model: Bench, route: Route, progress: Progress, cancel: Cancel, *, seconds: float = SECONDS) -> Qualification:
    """Measure a route for at most about `seconds`, and judge it. Cancelled when stopped; `progress(step, done, steps)`."""
    started_s = monotonic_s()
    trial = Trial(model, route, cancel, seconds)
    found = Qualification(route.model, route.provider, route.name, route.window)
    work: tuple[Callable[[Qualification], Qualification], ...] = (trial.load, trial.read, trial.write, trial.call)
    for done, (step, measure) in enumerate(zip(STEPS, work, strict=True)):
        progress(step, done, len(STEPS))
        found = trial.within(step, measure, found)
    state = model.status()
    found = replace(
        found,
        rss_mb=state.get("rss_mb", 0),
        free_mb=state.get("free_mb", 0),
        total_mb=state.get("total_mb", 0),
        took_s=round(monotonic_s() - started_s, 1),
        notes=tuple(trial.notes),
    )
    return replace(found, verdict=judge(found))


# -- measuring --------------------------------------------------------------------------------------


class Timed(Struct, frozen=True):
    """An answer by the clock: seconds to its first piece and to its end, its pieces, and its Finish unless it was cut."""

    first_s: float
    total_s: float
    pieces: int
    finish: Finish | None

    @property
    def tokens_per_s(self) -> float | None:
        """How fast it was written after the first piece; None when it is too short to say."""
        tokens = self.finish.output_tokens if self.finish is not None else self.pieces
        span_s = self.total_s - self.first_s
        return (tokens - 1) / span_s if tokens >= FEWEST_TOKENS and span_s > 0 else None


class Trial:
    """The steps of one qualification, with the text that nobody has read before."""

    def __init__(self, model: Bench, route: Route, cancel: Cancel, seconds: float) -> None:
        self._model = model
        self._route = route
        self._cancel = cancel
        self._end_s = monotonic_s() + seconds
        self._longest_s = seconds / 10  # of one answer that is only to show its speed
        self._mark = correlation_id()
        tokens = min(TEXT_TOKENS, route.window // 2)
        self._text = (Part("instructions", unread(self._mark, tokens)),)
        self.notes: list[str] = []

    def within(self, step: str, measure: Callable[[Qualification], Qualification], found: Qualification) -> Qualification:
        """The step's result; when there is no time left, or too little, a note instead."""
        if self._left_s() < LEFT_S:
            self.notes.append(f"{step}: left out, the time was up")
            return found
        try:
            return measure(found)
        except (DeadlineExceeded, TooLarge) as error:
            if isinstance(error, TooLarge) and step == STEPS[0]:
                raise  # the model does not fit into memory: there is nothing to measure
            self.notes.append(f"{step}: {error.message}")
        return found

    def load(self, found: Qualification) -> Qualification:
        """Bring the model into memory, if it is not there, by one word."""
        if (load := os.getloadavg()[0]) > (cores := os.cpu_count() or 1):
            self.notes.append(f"the machine was busy (load {load:.1f} on {cores} cores): alone it would be faster")
        timed = self._timed(self._ask((), "Hi", "load", 1))
        if self._model.status().get("is_busy"):
            self.notes.append("somebody else was being answered meanwhile: alone it would be faster")
        return replace(found, load_s=_round(timed.total_s))

    def read(self, found: Qualification) -> Qualification:
        """The first token about a text that was never read."""
        timed = self._timed(self._ask(self._text, "What colour is the garden fence?", "reading", 2))
        count = timed.finish.evaluated_tokens if timed.finish is not None else 0
        speed = count / timed.first_s if timed.first_s > 0 else 0
        return replace(found, read_s=_round(timed.first_s), read_tokens=count, prefill_tokens_per_s=_round(speed) or None)

    def write(self, found: Qualification) -> Qualification:
        """The speed of longer answers: the median of three."""
        question = "Write the numbers from one to one hundred as words, one after the other."
        speeds: list[float] = []
        tried = 0
        while tried < WRITINGS and self._left_s() >= LEFT_S:
            try:
                timed = self._timed(self._ask(self._text, question, "writing", WRITTEN_TOKENS), self._longest_s)
            except DeadlineExceeded:
                break
            tried += 1
            if (speed := timed.tokens_per_s) is not None:
                speeds.append(speed)
        if len(speeds) < WRITINGS:
            self.notes.append(f"writing: {len(speeds)} of {WRITINGS} answers were long enough to measure")
        return replace(found, decode_tokens_per_s=_round(median(speeds)) if speeds else None, decodes=len(speeds))

    def call(self, found: Qualification) -> Qualification:
        """Measure how many plain requests the model turns into the right tool call."""
        system, calls = instructions(self._route.dialect != "native"), Calls()
        for request, wanted in REQUESTS:
            if self._left_s() < LEFT_S:
                break
            ask = replace(self._ask(system, request, "calls", CALL_TOKENS), tools=TOOLS, temperature=0.0)
            try:
                made = self._call(ask)
            except DeadlineExceeded:
                break
            calls = counted(calls, made, wanted)
        if calls.asked < len(REQUESTS):
            self.notes.append(f"tool calls: {calls.asked} of {len(REQUESTS)} requests fit into the time")
        return replace(found, calls=calls)

    def _call(self, ask: Ask) -> tuple[ToolCall, ...]:
        """The calls of an answer. With the grammar a call never shows as text: an answer that speaks is none, and is cut."""
        with closing(self._pieces(ask)) as pieces:
            for piece in pieces:
                if isinstance(piece, Finish):
                    return piece.tool_calls
                if ask.dialect == "grammar" and not piece.is_reasoning and piece.text.strip():
                    return ()
        return ()

    def _timed(self, ask: Ask, limit_s: float = float("inf")) -> Timed:
        """Ask, and look at the clock; an answer longer than `limit_s` after its first piece is cut."""
        started_s, first_s, count = monotonic_s(), 0.0, 0
        with closing(self._pieces(ask)) as pieces:
            for piece in pieces:
                now_s = monotonic_s() - started_s
                if isinstance(piece, Finish):
                    return Timed(first_s or now_s, now_s, count, piece)
                first_s, count = first_s or now_s, count + 1
                if now_s - first_s > limit_s:
                    break
        return Timed(first_s, monotonic_s() - started_s, count, None)

    def _pieces(self, ask: Ask) -> Any:
        return self._model.generate(self._route, replace(ask, deadline_s=max(0.1, self._left_s())), self._cancel)

    def _ask(self, system: Sequence[Part], question: str, slot: str, max_tokens: int) -> Ask:
        return Ask(
            system=tuple(system),
            messages=(Message("user", question),),
            dialect=self._route.dialect,
            slot=f"bench-{self._mark}-{slot}",
            purpose="bench",
            max_tokens=max_tokens,
            correlation=self._mark,
            person="bench",
        )

    def _left_s(self) -> float:
        return self._end_s - monotonic_s()


def unread(mark: str, tokens: int) -> str:
    """English text of about so many tokens that nobody has read before: it begins with `mark`."""
    text, number = f"Notebook {mark}.", 0
    while len(text) < tokens * LETTERS_A_TOKEN:
        number += 1
        text += f" Note {number}: {FACTS[number % len(FACTS)]}"
    return text[: tokens * LETTERS_A_TOKEN]


def _round(number: float) -> float:
    return round(number, 3 if number < 10 else 1)


# -- tool calls -------------------------------------------------------------------------------------


def _spec(name: str, description: str, required: Sequence[str], **optional: Any) -> ToolSpec:
    properties: dict[str, Any] = {n: {"type": "string"} for n in required}
    for key, default in optional.items():
        properties[key] = {"type": "integer" if isinstance(default, int) else "string", "default": default}
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(required)})


TOOLS = (
    _spec("search", "Find notes by their words.", ("query",), limit=5),
    _spec("remember", "Keep a fact as a note.", ("text",)),
    _spec("remind", "Tell the person something at a time.", ("text", "at")),
    _spec("tasks", "List the tasks that are open or done.", (), state="open"),
)
REQUESTS = (
    ("What do my notes say about the garden fence?", "search"),
    ("Remember that the spare key is under the blue pot.", "remember"),
    ("Remind me at 18:00 to water the plants.", "remind"),
    ("Which tasks are still open?", "tasks"),
    ("Find my notes about the tax letter.", "search"),
    ("Please keep this: the dentist is called Doctor Weber.", "remember"),
    ("Remind me tomorrow at 9:00 to call the bank.", "remind"),
    ("Show me the tasks that are done.", "tasks"),
    ("Look up what I wrote about Anna's birthday.", "search"),
    ("Note down that the milk is in the cellar.", "remember"),
)


def instructions(has_lines: bool) -> tuple[Part, ...]:
    """The product's own words about tools, with the tools as lines unless the route describes them itself."""
    lines = (Part("tools", "\n".join([CALLING, *(tool_line(t) for t in TOOLS)])),) if has_lines else ()
    return (Part("instructions", INSTRUCTIONS), *lines, Part("style", STYLE))


def counted(calls: Calls, made: Sequence[ToolCall], wanted: str) -> Calls:
    """The counts with one more answer: only exactly one call, with every required argument, counts as valid."""
    tool = next((t for t in TOOLS if made and t.name == made[0].name), None)
    is_parseable = len(made) == 1
    is_valid = is_parseable and tool is not None and all(n in made[0].arguments for n in tool.schema["required"])
    return Calls(
        asked=calls.asked + 1,
        parseable=calls.parseable + is_parseable,
        valid=calls.valid + is_valid,
        expected=calls.expected + (is_valid and made[0].name == wanted),
    )


# -- the verdict ------------------------------------------------------------------------------------


def judge(found: Qualification) -> tuple[str, ...]:
    """The numbers in plain sentences.

    Writing: from 8 tokens/s one reads along, from 3 it takes patience, below it is for work at night. Tool calls: from 80 % one
    can count on them, judged from 5 requests. A script is not judged.
    """
    if found.provider == "scripted":
        return ("A script answers in place of a model (models.script): these are its numbers, not the device's.",)
    if found.read_s is None:
        return ("In the time given it did not begin to answer a question about a page of text: too slow, unless it was busy.",)
    return _of_writing(found.decode_tokens_per_s), _of_calls(found.calls)


def _of_writing(speed: float | None) -> str:
    if speed is None:
        return "How fast it writes could not be measured."
    if speed >= TALKS:
        return f"It writes {speed:.1f} tokens/s: you can read along."
    if speed >= PATIENT:
        return f"It writes {speed:.1f} tokens/s: usable for talking, with patience."
    return f"It writes {speed:.1f} tokens/s: too slow for talking, fine for work at night."


def _of_calls(calls: Calls) -> str:
    said = f"{calls.expected} of {calls.asked} tool calls were right"
    if calls.asked < ENOUGH_CALLS:
        return f"Whether it can call tools is not known: {calls.asked} requests fit into the time."
    return f"{said}: reliable." if calls.rate >= RELIABLE else f"{said}: do not count on tool calls."
