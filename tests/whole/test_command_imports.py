"""What a command imports while a core runs that answers it: the parts that reach the core and print, and nothing of the core."""

import subprocess
import sys

from process import Box, a_box  # noqa: F401
from test_command_list import HEAVY, PROGRAM, ROOMS_OF_THE_CORE

COMMANDS = (
    ("status",),
    ("task", "list"),
    ("context", "list"),
    ("schedule", "list"),
    ("entry", "list"),
    ("thread", "list"),
    ("session", "list"),
    ("worker", "list"),
    ("job", "list"),
    ("role", "list"),
    ("skill", "list"),
    ("tool", "list"),
    ("cron", "list"),
    ("run", "list"),
    ("packet", "size", "x"),
    ("usage",),
    ("sql",),
    ("grants",),
    ("mcp", "servers"),
    ("search", "tea"),
    ("remember", "Tea is at four."),
)

# The times of schedules are put in words where they are read.
IN_WORDS = {"appliance.work"} | {f"appliance.work.{name}" for name in ("rules_in_words", "recurrence", "timezones")}


def test_a_command_imports_nothing_of_the_core_that_answers_it(box: Box) -> None:
    box.serve()
    for words in COMMANDS:
        command = [sys.executable, "-c", PROGRAM, "--home", str(box.home.root), *words]
        done = subprocess.run(command, env=box.environ, capture_output=True, text=True, timeout=60)
        found = done.stdout.rpartition("\nloaded\n")[2]
        assert found, (words, done.stderr)
        own = {name for name in found.split() if name.startswith("appliance.")}
        core = {name for name in own if name.split(".")[1] in ROOMS_OF_THE_CORE}
        assert core - IN_WORDS == set(), words
        assert set(found.split()) & (HEAVY if core == set() else HEAVY - {"msgspec"}) == set(), words
        assert len(own) <= 32, words
