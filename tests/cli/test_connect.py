"""How a command finds the core: it waits for one that is starting, and works alone where none runs."""

import threading
from pathlib import Path

from stores import new_home

from appliance.clock import monotonic_s
from appliance.console.connect import reach
from appliance.runtime.paths import Home
from appliance.upkeep.home_lock import Lock


def test_a_command_waits_while_a_core_starts_or_ends(tmp_path: Path, runtime: Path) -> None:
    """What it changed beside a core that has read its records already, that core would not know."""
    home = Home(tmp_path / "box")
    new_home(home)
    environ = {"XDG_RUNTIME_DIR": str(runtime), "PATH": "/usr/bin:/bin"}
    lock = Lock(home.lock)
    began_s = monotonic_s()
    threading.Timer(0.6, lock.release).start()
    way = reach(home, environ)
    waited_s = monotonic_s() - began_s
    way.close()
    assert not way.is_remote and waited_s >= 0.6
    began_s = monotonic_s()
    reach(home, environ).close()
    assert monotonic_s() - began_s < 10, "nothing is waited for where none runs"
