"""Pulls the plug of an emulated box and looks at what the next start makes of it: what `make image-test KILLS=50` runs.

A box is photographed while it works: its card is copied with the emulator halted, which leaves exactly what a kill of the emulator
at that moment leaves, without what it had not written yet. Each photograph is started once and must come to a running system
whose doctor is content, with everything that was acknowledged before the photograph, and with a version that works. There are
cuts of the first start, of a box that is talked to, and of an update.
"""

import json
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from emulator import Box, Card

# Runs in the box: sends messages to the core and writes entries, and prints the name of each once it is acknowledged.
LOAD = """\
import os, sys
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
path = str(paths.find_core(Home(paths.SERVICE_HOME), os.environ))
for number in range(100_000):
    with Client(path, name="load", timeout_s=60) as client:
        name = f"{sys.argv[1]}-{number}"
        if number % 4 == 0:
            client.call("message.send", {"text": name, "message_id": name, "wait": False}, deadline_s=60)
        else:
            done = client.call("entry.set", {"ref": f"memory://cuts/{name}", "body": name}, deadline_s=60)
            assert done["status"] in (200, 201), done
        print(name, flush=True)
"""
# Runs in the box as the user of the core: what there is of it, and what the doctor says.
CHECK = """\
import json, os, subprocess
import appliance
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
done = subprocess.run(["owlbox", "doctor", "--json"], capture_output=True, text=True)
found = json.loads(done.stdout)
told = {"checks": len(found), "problems": [f"{one['name']}: {one['message']}" for one in found if one["state"] == "problem"]}
names = set()
with Client(str(paths.find_core(Home(paths.SERVICE_HOME), os.environ)), name="check", timeout_s=120) as client:
    for sql in (
        "SELECT e.content FROM inbox i JOIN events e ON e.run = i.run AND i.message_id LIKE '%/' || e.content",
        "SELECT body FROM entries WHERE path LIKE 'memory://cuts/%'",
    ):
        names.update(row[0] for row in client.call("sql.query", {"sql": sql, "limit": 100_000}, deadline_s=120)["rows"])
told |= {"names": sorted(names), "version": appliance.__version__}
print(json.dumps(told))
"""


class Photograph(NamedTuple):
    """A card as it was at a moment, and what had been promised by then."""

    disk: Path
    at_s: float
    promised: frozenset[str]


class Cuts:
    """Cuts of one card's boxes; each is counted and told."""

    def __init__(self, card: Card, port: int, chance: random.Random, say: Callable[[str], None]) -> None:
        self.card, self._port, self._chance, self._say = card, port, chance, say
        self.count = 0

    def of_first_start(self, count: int, length_s: float) -> None:
        """Cuts between power on and a while after the first login."""
        disk = self.card.layer("first-cuts")
        box = Box(self.card, disk, self._port, has_firmware=False)
        box.power_on()
        shots = self._photograph(box, disk, "first start", count, (2, length_s))
        box.kill()
        disk.unlink()
        self._look_at(shots, "first start")

    def of_load(self, box: Box, disk: Path, count: int, length_s: float) -> None:
        """Cuts of a box that runs, while it is told things; the last of them is a kill."""
        promised: list[str] = []
        for name, text in (("load.py", LOAD), ("check.py", CHECK)):
            (self.card.folder / name).write_text(text)
            box.put(self.card.folder / name, f"/tmp/{name}")
        words = [*box.words("admin"), "sudo -u owlbox /opt/owlbox/current/bin/python -I -X utf8 /tmp/load.py cut"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as load:
            reader = threading.Thread(target=lambda: promised.extend(line.strip() for line in load.stdout or ()))
            reader.start()
            shots = self._photograph(box, disk, "load", count, (5, length_s), lambda: frozenset(promised))
            box.kill()
            load.kill()
            reader.join()
        self._look_at(shots, "load")

    def of_update(self, box: Box, disk: Path, apply: str, count: int, length_s: float) -> None:
        """Cuts while a command applies an update."""
        with subprocess.Popen([*box.words("admin"), apply], stdout=subprocess.PIPE, text=True) as update:
            shots = self._photograph(box, disk, "update", count, (1, length_s), is_over=lambda: update.poll() is not None)
            said = update.communicate()[0]
        self._say(f"  the update itself: {' '.join(said.split())}")
        self._look_at(shots, "update")

    def _photograph(
        self,
        box: Box,
        disk: Path,
        what: str,
        count: int,
        between_s: tuple[float, float],
        promised: Callable[[], frozenset[str]] = frozenset,
        is_over: Callable[[], bool] = lambda: False,
    ) -> list[Photograph]:
        moments = sorted(self._chance.uniform(*between_s) for _ in range(count))
        began_s, shots = time.monotonic(), list[Photograph]()
        for number, moment_s in enumerate(moments):
            while time.monotonic() - began_s < moment_s and not is_over():
                time.sleep(0.05)
            if is_over() and shots:
                break
            path = disk.with_name(f"{disk.stem}-{what.replace(' ', '-')}-{number}.qcow2")
            by_then = promised()
            at_s = time.monotonic() - began_s
            box.photograph(path)
            shots.append(Photograph(path, at_s, by_then))
        return shots

    def _look_at(self, shots: list[Photograph], what: str) -> None:
        """Start each photograph, and fail unless it comes up whole."""
        for shot in shots:
            box = Box(self.card, shot.disk, self._port, has_firmware=False)
            try:
                after_s = box.start()
                box.ssh("admin", "systemctl is-system-running --wait", check=False)
                told = look_over(box, self.card)
                lost = shot.promised - set(told["names"])
                failed = box.ssh("admin", "systemctl --failed --no-legend --plain --no-pager", check=False).stdout.split()
                if lost or told["problems"] or failed:
                    raise SystemExit(f"FAILED: {what} cut at {shot.at_s:.1f} s: lost {lost}, {told}, {failed}\n{box.journal()}")
            finally:
                box.kill()
            self.count += 1
            shot.disk.unlink()
            whole = f"{len(shot.promised)} promised, all there" if shot.promised else "whole"
            self._say(f"  cut {self.count}, {what} at {shot.at_s:.1f} s: up after {after_s:.0f} s with {told['version']}, {whole}")


def look_over(box: Box, card: Card) -> dict[str, Any]:
    """What there is in a box, and what its doctor calls a problem."""
    script = card.folder / "check.py"
    script.write_text(CHECK)
    done = box.ssh("admin", "sudo -u owlbox /opt/owlbox/current/bin/python -I -X utf8 -", check=False, stdin=script)
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"FAILED: the look in the box said {done.stdout[-500:]}{done.stderr[-800:]}\n{box.journal()}") from None
    return told
