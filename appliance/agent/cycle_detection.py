"""Going round in circles: what a turn did as one mark, and whether the latest marks or targets repeat.

Knows calls by their names and arguments alone. The model is never told: a hint would only become a part of the circle.
"""

import json
from collections.abc import Iterable, Sequence

from appliance.records import ToolCall

REPETITIONS = 3  # of a pattern
PERIOD = 4  # turns that a pattern has at most
STAGNANT = 5  # turns in a row that touch the same thing
TARGETS = ("path", "ref", "to", "target")
PLACES = ("line", "offset", "page", "after")  # a reader that asks for the next part does not stand still


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
    """What each of so many latest turns touched; "" when there is no such thing."""
    if len(latest) < turns:
        return ""
    return min(frozenset.intersection(*latest[-turns:]), default="")
