"""What a worker is told about a task before it begins: one text, within what the model can read.

The task itself, what its predecessors found out, the texts that belong to it, and what earlier attempts at it have
done already, so that nothing is done twice. Owns no table; writes nothing. Knows nothing about models or claims.
"""

import json
from collections.abc import Iterator, Sequence

from appliance.errors import OwlError
from appliance.knowledge.entries import Entries
from appliance.language.request_texts import EARLIER, PREDECESSORS, TASK, TEXTS
from appliance.records import Event
from appliance.sessions.runs import Runs
from appliance.work.tasks import Claim, TaskRows

LEAST, MOST = 1500, 40_000  # characters
ATTEMPTS = 3
RESULT_CHARS = 400


class Briefing:
    """Writes the first message of a task's thread."""

    def __init__(self, tasks: TaskRows, runs: Runs, entries: Entries) -> None:
        self._tasks = tasks
        self._runs = runs
        self._entries = entries

    def text(self, claim: Claim, room_chars: int) -> str:
        """The whole of it: the task always, the rest each in an equal share of the room that is left."""
        task = claim.task
        room = min(MOST, max(LEAST, room_chars))
        head = shortened("\n\n".join(part for part in (f"{TASK}{task.name}", task.description.strip()) if part), room)
        found = [
            (PREDECESSORS, list(self._predecessor_outputs(task.id))),
            (TEXTS, list(self._context_texts(task.context_ids))),
            (EARLIER, list(self._earlier_attempts(claim))),
        ]
        sections = [(title, lines) for title, lines in found if lines]
        share = max(LEAST, room - len(head)) // max(1, len(sections))
        return "\n\n".join([head, *(f"{title}:\n{_fit_texts(lines, share)}" for title, lines in sections)])

    def _predecessor_outputs(self, task: int) -> Iterator[str]:
        for before in self._tasks.predecessors(task):
            yield f"[task {before.id}: {before.name}]\n{before.output.strip() or '(no output)'}"

    def _context_texts(self, refs: Sequence[str]) -> Iterator[str]:
        for ref in refs:
            try:
                body = self._entries.get(ref).body.strip() or "(no text)"
            except OwlError as error:
                body = f"({error.message})"
            yield f"[{ref}]\n{body}"

    def _earlier_attempts(self, claim: Claim) -> Iterator[str]:
        """Every recorded call of the attempts before this one with its result, and their last words.

        Not of those up to one after which the task was reset, to be done anew.
        """
        before = [one for one in self._tasks.attempts(claim.task.id) if one.number < claim.number]
        anew = max((place for place, one in enumerate(before, 1) if one.outcome in ("complete", "reset")), default=0)
        for attempt in [one for one in before[anew:] if one.run][-ATTEMPTS:]:
            lines = _completed_calls(self._runs.events(attempt.run))
            if lines:
                yield "\n".join([f"Attempt {attempt.number} ({attempt.outcome or 'not ended'}):", *lines])


def _completed_calls(events: Sequence[Event]) -> list[str]:
    results = {event.call_id: event for event in events if event.kind == "tool_result"}
    lines = []
    for event in events:
        if event.kind == "tool_use":
            given = shortened(json.dumps(event.input or {}, ensure_ascii=False), RESULT_CHARS)
            result = results.get(event.call_id)
            became = "no result is known; it may or may not have taken effect" if result is None else result.content
            lines.append(f"- {event.tool} {given}: {shortened(' '.join(became.split()), RESULT_CHARS)}")
        elif event.kind == "message" and event.role == "assistant" and event.content.strip():
            lines.append(f"- said: {shortened(' '.join(event.content.split()), RESULT_CHARS)}")
    return lines


def _fit_texts(texts: Sequence[str], room: int) -> str:
    """The texts within so many characters: each gets an equal share, what short ones leave goes to the others."""
    left = room
    shown: dict[int, str] = {}
    for place, text in sorted(enumerate(texts), key=lambda pair: len(pair[1])):
        share = left // (len(texts) - len(shown))
        shown[place] = shortened(text, max(80, share))
        left -= len(shown[place])
    return "\n\n".join(shown[place] for place in range(len(texts)))


def shortened(text: str, chars: int) -> str:
    """The text, or its beginning with a note of how long it is."""
    if len(text) <= chars:
        return text
    note = f" … [cut: {len(text)} characters]"
    return text[: max(0, chars - len(note))].rstrip() + note
