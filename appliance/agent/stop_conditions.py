"""Whether a loop goes on: voters in one order, and the first that has something to say decides; what a person is then told.

Pure: it is told the outcome of a turn's commands, remembers of earlier turns only what voters ask for, and returns a
verdict. The order: an explicit end; words without a command; bad turns in a row; a circle; standing still; caps. What
ends a loop from outside, such as a stop or a prompt that is too large, arrives as an error and has its verdict in `of_error`.
"""

import json
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import Cancelled, OwlError, ProviderError, Unavailable
from appliance.records import ToolCall

SAME_UPDATES, STALLS = 3, 3  # identical reports in a row, and turns with nothing in them, that end a run
GO_ON, DONE, NO_ANSWER, CANNOT = 102, 200, 204, 422  # what an update may say
OFFLINE = "offline"  # how a loop ends that no provider could be reached for
KEPT_TURNS = 64  # of marks and targets
REPETITIONS = 3  # of a pattern
PERIOD = 4  # turns that a pattern has at most
STAGNANT = 5  # turns in a row that touch the same thing
TARGETS = ("path", "ref", "to", "target")
PLACES = ("line", "offset", "page", "after")  # a reader that asks for the next part does not stand still
MOST_CHARS = 200
UNREACHABLE = ("network", "gateway")


class Caps(Struct, frozen=True):
    """The limits of one loop."""

    turns: int = 99
    commands: int = 990
    strikes: int = 3
    repetitions: int = REPETITIONS
    period: int = PERIOD


class CallEffect(Struct, frozen=True):
    """One command as it ended. `claim` is an update's status, 0 for any other; `text` is an update's body."""

    name: str
    status: int = 200
    outcome: str = "ok"
    is_terminal: bool = False
    claim: int = 0
    text: str = ""

    @property
    def is_failed(self) -> bool:
        """True when it did not do what was asked."""
        return self.status >= 400


class AnswerOutcome(Struct, frozen=True):
    """What one answer came to. `trouble` says what could not be read or had to be mended; `is_malformed`: no call could."""

    text: str = ""
    effects: tuple[CallEffect, ...] = ()
    mark: str = ""
    touched: frozenset[str] = frozenset()
    trouble: str = ""
    is_malformed: bool = False

    @property
    def is_stall(self) -> bool:
        """True for an answer with nothing in it."""
        return not self.text.strip() and not self.effects

    @property
    def failure(self) -> str:
        """The first thing that went wrong; "" for a clean turn. What was asked for after an end is no failure."""
        for effect in self.effects:
            if effect.is_failed:
                return f"{effect.name}: {effect.outcome}"
            if effect.is_terminal:
                break
        return self.trouble or ("the answer was empty" if self.is_stall else "")


class Past(Struct, frozen=True):
    """The turns of a loop so far, the latest included, as the stop conditions need them."""

    turns: int = 0
    commands: int = 0
    strikes: int = 0
    stalls: int = 0
    marks: tuple[str, ...] = ()
    touched: tuple[frozenset[str], ...] = ()
    updates: tuple[str, ...] = ()

    def after(self, turn: AnswerOutcome) -> "Past":
        """The same with one turn more: however much failed in it, it is one strike, and a clean one ends the streak."""
        said = tuple(d.text for d in turn.effects if d.claim)
        return replace(
            self,
            turns=self.turns + 1,
            commands=self.commands + len(turn.effects),
            strikes=self.strikes + 1 if turn.failure else 0,
            stalls=self.stalls + 1 if turn.is_stall else 0,
            marks=(*self.marks, turn.mark)[-KEPT_TURNS:],
            touched=(*self.touched, turn.touched)[-KEPT_TURNS:],
            updates=(*self.updates, *said)[-KEPT_TURNS:],
        )


class Verdict(Struct, frozen=True):
    """How it goes on. With `is_over` the loop has ended with a status and a label; `text` is what is left to be said.

    `is_overridden`: an update that claimed the end is void, because something failed beside it.
    """

    is_over: bool = False
    status: int = GO_ON
    outcome: str = ""
    text: str = ""
    is_overridden: bool = False


ON = Verdict()
Voter = Callable[[Past, AnswerOutcome, Caps], Verdict | None]


def judge(past: Past, turn: AnswerOutcome, caps: Caps) -> Verdict:
    """The verdict after a turn, which `past` includes already."""
    for voter in VOTERS:
        if (verdict := voter(past, turn, caps)) is not None:
            return verdict
    return ON


def of_error(error: OwlError, *, is_begun: bool) -> Verdict:
    """The verdict on an error that ended a turn; `is_begun` when words of the answer had been shown."""
    if isinstance(error, Cancelled):
        return Verdict(True, 499, "cancelled", error.message)
    if is_begun and isinstance(error, Unavailable):  # the model went away: an interruption, not a bad request
        return Verdict(True, 499, "interrupted", excuse(error))
    is_offline = isinstance(error, ProviderError) and error.kind == "network" and error.outcome == "provider_not_available"
    return Verdict(True, 500, OFFLINE if is_offline else error.outcome, excuse(error))


def excuse(error: OwlError) -> str:
    """The failure in words for people (S-015): a key, too many requests, no connection, else its kind and first line."""
    if not isinstance(error, ProviderError):
        return str(error)
    line, hint = first_line(error.message), f" ({error.hint})" if error.hint else ""
    if error.outcome == "authentication_failed":
        return f"The model's provider did not accept the key: {line}. Set it again: {error.hint or 'owlbox secret set llm/NAME'}"
    if error.outcome == "rate_limited" or error.kind == "rate":
        when = f"in {error.retry_after_s:.0f} s" if error.retry_after_s else "in a while"
        return f"The model's provider has had too many requests: {line}. Try again {when}."
    if error.outcome == "provider_timeout":
        return f"The model's provider did not answer in time: {line}. Try again."
    if error.kind in UNREACHABLE:
        return f"The model's provider cannot be reached: {line}. Try again when the network is back{hint}."
    if error.outcome == "provider_not_available":
        return f"No model can be asked just now: {line}{hint}"
    return f"{error.outcome}: {line}{hint}"


def first_line(text: str) -> str:
    """The first line that says something, shortened, without a full stop at its end."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else "it did not say why"
    line = line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1].rstrip()}…"
    return line.rstrip(".")


# -- circles: what a turn did as one mark. The model is never told, a hint would only become a part of the circle. --


def fingerprint(calls: Iterable[ToolCall]) -> str:
    """One mark for what a turn asks for: the set of its calls with all their arguments; "" for none."""
    said = {json.dumps([call.name, call.arguments], sort_keys=True, ensure_ascii=False) for call in calls}
    return "\n".join(sorted(said))


def period(marks: Sequence[str], repetitions: int = REPETITIONS, longest: int = PERIOD) -> int:
    """How many turns the pattern has that the latest turns repeat so often; 0 when they repeat none."""
    for length in range(1, longest + 1):
        latest = marks[-length * repetitions :]
        if (
            len(latest) == length * repetitions
            and all(latest)
            and all(a == b for a, b in zip(latest, latest[length:], strict=False))
        ):
            return length
    return 0


def touched(calls: Iterable[ToolCall]) -> frozenset[str]:
    """What a turn's calls are about: their paths and references, but not that of one who reads on."""
    found = set()
    for call in calls:
        if not any(call.arguments.get(name) for name in PLACES):
            found |= {value for name in TARGETS if isinstance(value := call.arguments.get(name), str) and value}
    return frozenset(found)


def stagnant(latest: Sequence[frozenset[str]], turns: int = STAGNANT) -> str:
    """The first target that all of the latest `turns` turns touched; "" for none."""
    if len(latest) < turns:
        return ""
    return min(frozenset.intersection(*latest[-turns:]), default="")


# -- the voters ----------------------------------------------------------------------------------------


def explicit(past: Past, turn: AnswerOutcome, caps: Caps) -> Verdict | None:
    """A call that ends the work, or the last update that says so: unless something failed in the same turn."""
    if any(effect.is_terminal and not effect.is_failed for effect in turn.effects):
        return Verdict(True, DONE, "ok")
    claims = [effect for effect in turn.effects if effect.claim]
    if not claims or claims[-1].claim == GO_ON:
        return None
    last = claims[-1]
    if any(effect.is_failed for effect in turn.effects):
        return None if past.strikes >= caps.strikes else Verdict(is_overridden=True)
    if last.claim == CANNOT:
        return Verdict(True, DONE, "cannot_comply", last.text)
    return Verdict(True, DONE, "ok", "" if last.claim == NO_ANSWER else last.text)


def no_call(past: Past, turn: AnswerOutcome, caps: Caps) -> Verdict | None:
    """Words and no command: the final answer, unless a command was meant."""
    if turn.text.strip() and not turn.effects and not turn.is_malformed:
        return Verdict(True, DONE, "ok")
    return None


def strikes(past: Past, turn: AnswerOutcome, caps: Caps) -> Verdict | None:
    """So many bad turns in a row, or so many with nothing in them."""
    if past.strikes >= caps.strikes or past.stalls >= STALLS:
        return Verdict(True, 499, "strikes", turn.failure)
    return None


def circle(past: Past, turn: AnswerOutcome, caps: Caps) -> Verdict | None:
    """Stop a loop that repeats the same turns."""
    if found := period(past.marks, caps.repetitions, caps.period):
        return Verdict(True, 499, "cycle", f"the same {found} turn{'s' if found > 1 else ''} {caps.repetitions} times over")
    return None


def standing_still(past: Past, turn: AnswerOutcome, caps: Caps) -> Verdict | None:
    """Stop a loop that uses one target turn after turn, or repeats one report."""
    if found := stagnant(past.touched):
        return Verdict(True, 499, "stagnation", f"{STAGNANT} turns in a row about {found}")
    latest = past.updates[-SAME_UPDATES:]
    if len(latest) == SAME_UPDATES and len(set(latest)) == 1 and any(effect.claim for effect in turn.effects):
        return Verdict(True, 499, "stagnation", f"the same report {SAME_UPDATES} times")
    return None


def caps_reached(past: Past, turn: AnswerOutcome, caps: Caps) -> Verdict | None:
    """As many turns or commands as one loop may have."""
    if past.turns >= caps.turns:
        return Verdict(True, 499, "max_turns", f"Max turns exceeded ({caps.turns})")
    if past.commands >= caps.commands:
        return Verdict(True, 499, "too_many_commands", f"more than {caps.commands} commands")
    return None


VOTERS: tuple[Voter, ...] = (explicit, no_call, strikes, circle, standing_still, caps_reached)
