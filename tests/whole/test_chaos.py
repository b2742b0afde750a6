"""Some seconds of chaos by a plan that is the same each time; `make chaos` takes ten minutes, of another one.

That it would notice is seen by `make chaos SABOTAGE=1`: ten builds that are broken in one line each.
"""

import subprocess
import sys

import pytest
from chaos import FAKETIME
from chaos_sabotage import SABOTAGES
from chaos_words import Templates
from needs import leave_out, needs
from process import ROOT
from proof import IS_WHOLE

SEED = 20261121
LENGTH_S = 600.0 if IS_WHOLE else 6.0  # with the start and the calm afterwards fifteen seconds


@needs("gcc", "faketime")
def test_nothing_is_lost_and_nothing_done_twice_in_seconds_of_chaos() -> None:
    if not FAKETIME.exists():
        leave_out(f"needs {FAKETIME}")
    command = [sys.executable, str(ROOT / "tests/support/chaos.py"), "--seed", str(SEED), "--length", str(LENGTH_S)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600 + LENGTH_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "kept: 0 " not in done.stdout


def test_each_sabotage_finds_its_line() -> None:
    for name, sabotage in SABOTAGES.items():
        assert (ROOT / "appliance" / sabotage.file).read_text("utf-8").count(sabotage.old) == 1, name


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [
        ("queue full: 3 messages wait to be answered or delivered", True),
        ("owlbox status shows what is being done; try again when some are done", True),
        ("list index out of range", False),
        ("exec failed: KeyError: 'a'", False),
        ("the request failed inside the core", False),
    ],
)
def test_only_sentences_of_the_program_are_taken_for_its_words(text: str, is_ours: bool) -> None:
    assert (Templates(ROOT / "appliance").problem(text) == "") is is_ours
