"""The everyday set, run in a process and a home of its own with the model of this core: nothing of it reaches the person's home.

Starts `service.bench.everyday`, hands it the way to the broker over its standard input (a token in an environment could be read by
others), and passes on what it says. Ends it with the time, and when the caller leaves. Knows nothing about the requests.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from appliance.clock import CancelToken
from appliance.errors import Cancelled, Unavailable
from appliance.records import Tier

FEWEST_WORDS, LEAST_S = 6, 0.15  # of an answer that says something about speed
CATEGORIES = ("talk", "notes", "unknown", "state", "act", "text")


class Way(Struct, frozen=True):
    """How a model is asked: the folder of its file, where the broker listens and what it knows us by, and the file's stem.

    With `is_background` what people ask meanwhile goes first.
    """

    models: Path
    socket: Path
    token: str
    stem: str
    is_background: bool = False


class Answered(Struct, frozen=True):
    """One request: whether the answer was right and what was wrong with it, seconds to its first word and to its end."""

    category: str
    prompt: str
    answer: str
    problem: str
    first_s: float
    total_s: float
    words: int

    @property
    def words_per_s(self) -> float | None:
        """How fast it was written; None for what the program said at once."""
        span_s = self.total_s - self.first_s
        return (self.words - 1) / span_s if self.words >= FEWEST_WORDS and span_s >= LEAST_S else None


class Row(Struct, frozen=True):
    """A category in numbers; `words_per_s` is None where no answer was long enough, `first_s` the median."""

    category: str
    passed: int
    asked: int
    first_s: float
    words_per_s: float | None


class Everyday(Struct, frozen=True):
    """One run of the set."""

    tier: Tier
    answers: tuple[Answered, ...]
    items: int

    @property
    def passed(self) -> int:
        """How many were right."""
        return sum(not one.problem for one in self.answers)

    @property
    def rate(self) -> float:
        """The part of those asked that was right."""
        return self.passed / len(self.answers) if self.answers else 0.0

    @property
    def words_per_s(self) -> float | None:
        """The median speed of what the model wrote."""
        return _median([one.words_per_s for one in self.answers])

    def rows(self) -> list[Row]:
        """One for each category."""
        found = []
        for category in CATEGORIES:
            mine = [one for one in self.answers if one.category == category]
            if mine:
                passed = sum(not one.problem for one in mine)
                speed = _median([one.words_per_s for one in mine])
                found.append(Row(category, passed, len(mine), round(median(one.first_s for one in mine), 2), speed))
        return found


def _median(speeds: Sequence[float | None]) -> float | None:
    known = [speed for speed in speeds if speed is not None]
    return round(median(known), 1) if known else None


def run(way: Way, tier: Tier, seconds: float, tell: Callable[[int, int, str], object], cancel: CancelToken) -> Everyday:
    """Put the set to a model as one of this tier; what was not answered in time is left out. `tell(done, of, category)`."""
    asked = {"models": str(way.models), "socket": str(way.socket), "token": way.token, "stem": way.stem, "tier": tier}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OWLBOX")}
    with tempfile.TemporaryDirectory(prefix="owlbox-") as folder:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "appliance.service.bench.everyday"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**kept, "XDG_RUNTIME_DIR": folder, "NO_COLOR": "1"},
            text=True,
            errors="replace",
        )
        clock = threading.Timer(seconds, child.kill)
        forget = cancel.then(child.kill)
        answers: list[Answered] = []
        items = 0
        try:
            clock.start()
            assert child.stdin is not None and child.stdout is not None and child.stderr is not None
            try:
                child.stdin.write(json.dumps(asked | {"folder": folder, "is_background": way.is_background}) + "\n")
                child.stdin.close()
            except BrokenPipeError:
                pass  # it has ended, and says why
            for line in child.stdout:
                said = json.loads(line)
                items = said["items"]
                if "answer" in said:
                    answers.append(Answered(**said["answer"]))
                tell(len(answers), items, said["next"])
            complaint = child.stderr.read().strip().rpartition("\n")[2]
            child.wait()
        finally:
            clock.cancel()
            forget()
            if child.poll() is None:
                child.kill()
                child.wait()
    if cancel.is_set():
        raise Cancelled("stopped")
    if not answers and child.returncode > 0:
        raise Unavailable(
            f"the everyday set could not be run: {complaint or child.returncode}", hint="owlbox doctor checks the home"
        )
    return Everyday(tier, tuple(answers), items)
