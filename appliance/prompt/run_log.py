"""What was said and done in a run, as lines of its log: earlier prompts, answers, and results that left no entry.

Reads events, loops and turns; writes nothing. Lines are in the order of turns and never change once they are
there, so a log grows at its end. The prompt that is being answered is not among them: it has its own block.
Knows nothing about entries but the paths that are in the log already.
"""

from collections.abc import Callable, Container, Sequence

from msgspec import Struct

from appliance.records import Event
from appliance.sessions.events import origin_of
from appliance.store.database import Store
from appliance.text.fences import exact, foreign, safe

DETOUR = "use"  # the tool whose calls are recorded as those of the tool that is meant
SAID_CHARS = 500  # of an earlier prompt or answer
RESULT_CHARS = 10_000
PIECE = 40  # numbers of events that leave a log together, so that its beginning stays the same for a while
WAITING = 100
PROMPT, SAID, DONE = 0, 1, 2  # the order within a turn

Branch = Callable[[str], Sequence[Event]]
Place = tuple[int, int, int, int]


class LogLine(Struct, frozen=True):
    """One line of a log and where it belongs: turn, kind, source and number."""

    place: Place
    text: str


class Chronicle:
    """Writes the lines of runs' logs; `branch` gives the events of a run from its beginning to its head."""

    def __init__(self, store: Store, branch: Branch) -> None:
        self._store = store
        self._branch = branch

    def lines(self, run: str, noted: Container[str] = (), limit: int = 80) -> list[LogLine]:
        """The last lines of a run; not the results of those actions whose folder in the log is in `noted`."""
        branch = self._branch(run)
        meant = {e.call_id: str((e.input or {}).get("tool", e.tool)) for e in branch if e.kind == "tool_use" and e.tool == DETOUR}
        events = _newest_events([e for e in branch if e.kind in ("message", "tool_result")], limit)
        turns, prompts, skipped = self._number_turns({e.run for e in events} | {run}, run)
        found = []
        for event in events:
            number = prompts.get(event.id) or turns.get(event.turn or 0, 0)
            name = meant.get(event.call_id, event.tool)
            if event.id in skipped or (event.kind == "tool_result" and f"log://turn_{number}/{name}/" in noted):
                continue
            if (line := _line_of_event(event, number)) is not None:
                found.append(line)
        return sorted(found, key=lambda line: line.place)

    def _number_turns(self, runs: set[str], run: str) -> tuple[dict[int, int], dict[int, int], set[int]]:
        """The number of each turn, the turn in which each prompt was begun, and the prompts that are not earlier ones."""
        marks = ", ".join("?" * len(runs))
        rows = self._store.rows(
            "SELECT l.run, l.prompt, l.status, t.id, r.turn_base FROM loops l JOIN runs r ON r.id = l.run "
            f"LEFT JOIN turns t ON t.loop = l.id WHERE l.run IN ({marks}) ORDER BY l.run, l.seq, t.seq",
            tuple(sorted(runs)),
        )
        turns: dict[int, int] = {}
        prompts: dict[int, int] = {}
        skipped: set[int] = set()
        count: dict[str, int] = {}
        newest = None
        for of, prompt, status, turn, base in rows:
            if status == WAITING:
                skipped.add(int(prompt or 0))
                continue
            number = int(base) + count.get(of, 0) + 1
            prompts.setdefault(int(prompt or 0), number)
            newest = int(prompt or 0) if of == run else newest
            if turn is not None:
                count[of] = count.get(of, 0) + 1
                turns[int(turn)] = number
        return turns, prompts, skipped | ({newest} if newest is not None else set())


def _newest_events(events: Sequence[Event], limit: int) -> Sequence[Event]:
    """The newest events, at most so many, beginning at the same one until a good piece more has come."""
    cut = len(events) - limit
    if cut <= 0:
        return events
    begins = (at for at in range(cut, len(events)) if events[at].seq // PIECE != events[at - 1].seq // PIECE)
    return events[next(begins, cut) :]


def _line_of_event(event: Event, turn: int) -> LogLine | None:
    if event.kind == "tool_result":
        short, origin = _shorten_text(event.content, RESULT_CHARS), origin_of(event)
        text = foreign(origin, short) if origin else exact(event.tool, short)
        return LogLine((turn, DONE, 1, event.seq), f'<log action="{event.tool}" status="{event.status}" turn="{turn}">{text}</log>')
    if event.role == "user":
        return LogLine((turn, PROMPT, 1, event.seq), f'<prompt turn="{turn}">{safe(_shorten_text(event.content))}</prompt>')
    if event.role == "assistant" and event.content:
        return LogLine((turn, SAID, 1, event.seq), f'<answer turn="{turn}">{safe(_shorten_text(event.content))}</answer>')
    return None


def _shorten_text(text: str, limit: int = SAID_CHARS) -> str:
    return text if len(text) <= limit else f"{text[:limit].rstrip()}…"
