"""Twenty seconds of chaos by a plan that is the same each time; `make chaos` takes ten, of another one."""

import subprocess
import sys

from chaos import FAKETIME
from needs import leave_out, needs
from process import ROOT

SEED = 20261121
LENGTH_S = 12.0  # with the start and the calm afterwards twenty seconds


@needs("gcc", "faketime")
def test_nothing_is_lost_and_nothing_done_twice_in_a_minute_of_chaos() -> None:
    if not FAKETIME.exists():
        leave_out(f"needs {FAKETIME}")
    command = [sys.executable, str(ROOT / "tests/support/chaos.py"), "--seed", str(SEED), "--length", str(LENGTH_S)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "kept: 0 " not in done.stdout
