"""Pulls the plug of an emulated box and looks at what the next start makes of it: what `make image-test KILLS=50` runs.

    .venv/bin/python image-build/power_cuts.py IMAGE [--cuts 50] [--seed 0] [--key FILE] [--minutes N] [--cores N] [--counted]

A cut is a SIGKILL of the emulator, whose card is a file written through the host's cache: what the emulator had not written yet is
gone. Of a first start and of an update, which take minutes, several cuts are made of one run: the card is copied with the emulator
halted, which leaves exactly what a kill at that moment leaves. After each cut the box is started and must come to a running system
with no failed unit, a doctor without a problem, everything that was acknowledged before the cut, and a version that works.

The start that is looked at after one cut takes the next one: the box is told things until it is killed, and at times its next start
is killed, too, before one is looked at. So a card goes through many cuts, and everything that it ever acknowledged must be there
after each. Answers come from a script and nothing is embedded: an emulator would be busy with that alone.

Cuts add up: `power-cuts-ARCH.json` beside the image has every cut with its phase, its moment and what was found; a second call goes
on where the first one ended, until there are enough. A card that did not come up whole is kept, and ends the run.
"""

import argparse
import base64
import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "image-build")]

import trial_versions  # noqa: E402
from emulator import BOARDS, Box, Card  # noqa: E402

# Runs in the box: sends messages to the core and writes entries, and prints the name of each once it is acknowledged.
LOAD = """\
import os, sys
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
path = str(paths.find_core(Home(paths.SERVICE_HOME), os.environ))
with Client(path, name="load", timeout_s=60) as client:
    for number in range(100_000):
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
PYTHON = "sudo -u owlbox /opt/owlbox/current/bin/python -I -X utf8"
SETTLED = "systemctl is-system-running --wait >/dev/null; systemctl --failed --no-legend --plain --no-pager | cut -d ' ' -f 1"
PLAY = '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n'
PLAYED = "owlbox config set models.script models/play.toml"
PLACE = "/var/lib/owlbox/models/play.toml"
LOAD_S = (0.5, 15.0)  # after the first acknowledgement
AT_ONCE = 10  # cuts of one first start or update
UPDATE_GAP_S = 15.0  # between cuts of an update, on average
IN_START = 0.3  # of the boxes that were killed while they were told things: in their next start, too
FIRST, START, LOADED, UPDATE = "first start", "start after a cut", "load", "update"
Say = Callable[[str], None]


class Shot(NamedTuple):
    """A card that was cut off: in which phase, how many seconds into it, and what it had acknowledged by then."""

    disk: str
    phase: str
    at_s: float
    promised: list[str]


class Record:
    """The cuts that were looked at and the shots that were not yet: a file, whole at any time."""

    def __init__(self, path: Path, image: Path, seed: int) -> None:
        """Read it, or begin one; SystemExit when it is of another image."""
        self._path = path
        self._image = f"{image.name} of {image.stat().st_mtime_ns}"
        self.seed, self.cuts, self.shots = seed, list[dict[str, Any]](), list[Shot]()
        self.first_s = 0.0
        if path.exists():
            read = json.loads(path.read_text())
            if read["image"] != self._image:
                raise SystemExit(f"{path} has cuts of {read['image']}: remove it and {path.with_suffix('')}/ to begin anew")
            self.seed, self.cuts, self.first_s = read["seed"], read["cuts"], read["first_s"]
            self.shots = [Shot(*one) for one in read["shots"]]

    def save(self) -> None:
        """Write it down."""
        kept = {"image": self._image, "seed": self.seed, "first_s": self.first_s, "cuts": self.cuts, "shots": self.shots}
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(kept, indent=1) + "\n")
        os.replace(part, self._path)

    def count(self, phase: str) -> int:
        """Cuts of a phase, with those that nobody looked at yet."""
        return sum(one["phase"] == phase for one in self.cuts) + sum(shot.phase == phase for shot in self.shots)

    def chance(self) -> random.Random:
        """Where the next cut is drawn from: the seed and what was done, so that a run that goes on draws as an unbroken one."""
        return random.Random(f"{self.seed}/{len(self.cuts)}/{len(self.shots)}")


class Cuts:
    """Cuts of one card's boxes until there are enough; `key` is the private one of updates, without it there are none of those."""

    def __init__(
        self, card: Card, record: Record, port: int, key: bytes, say: Say, cores: int = 2, is_counted: bool = False
    ) -> None:
        self.card, self.record, self._port, self._key, self._say = card, record, port, key, say
        self._cores, self._is_counted = cores, is_counted

    def run(self, count: int, end_s: float) -> None:
        """Cut until there are `count`, or until a moment of the monotonic clock; SystemExit when a card is not whole."""
        settled, shots = self.card.folder / "settled.qcow2", self.record.shots
        if not settled.exists():
            self._settle(settled)
        while len(self.record.cuts) < count and time.monotonic() < end_s:
            if not shots and self._choose() == FIRST:
                self._cut_first_start()
            elif not shots and self._choose() == UPDATE:
                self._cut_update()
            elif not shots:
                self._add([self._cut_start(str(self.card.layer(f"again-{len(self.record.cuts)}", settled)), [])])
            self._look_at(shots[0], is_last=len(self.record.cuts) + 1 >= count)

    def _box(self, disk: Path) -> Box:
        """One whose clock counts instructions is slower, but however busy this machine is, nothing in it is late."""
        box = Box(self.card, disk, self._port, cores=self._cores, has_firmware=False)
        box.counts_instructions = self._is_counted
        return box

    def _choose(self) -> str:
        """The phase that has had the fewest cuts for its share."""
        shares = {FIRST: 1, UPDATE: 1 if self._key else 0, LOADED: 4}
        done = {phase: self.record.count(phase) for phase in shares}
        done[LOADED] += self.record.count(START)
        return min((phase for phase, share in shares.items() if share), key=lambda phase: done[phase] / shares[phase])

    # -- what is cut --------------------------------------------------------------------------------

    def _settle(self, settled: Path) -> None:
        """A card after its first start, shut down in good order, whose model is a script."""
        disk = self.card.layer("settling")
        box = self._box(disk)
        try:
            self.record.first_s = box.start()
            self._say(f"first start: login after {self.record.first_s:.0f} s")
            box.ssh("admin", SETTLED)
            box.ssh("admin", f"sudo -u owlbox sh -c 'cat >{PLACE} && {PLAYED}'", stdin=self.card.put("play", PLAY))
            box.ssh("admin", "sudo rm /var/lib/owlbox/models/all-MiniLM*.gguf")
            box.stop()
        finally:
            box.kill()
        self.record.save()
        disk.rename(settled)

    def _cut_first_start(self) -> None:
        """Cuts between power on and a while after the first login."""
        chance, disk = self.record.chance(), self.card.layer("first")
        moments = sorted(chance.uniform(1, self.record.first_s * 1.3) for _ in range(2 * AT_ONCE))
        box = self._box(disk)
        box.power_on()
        try:
            began_s, shots = time.monotonic(), list[Shot]()
            for moment_s in moments:
                time.sleep(max(0.0, began_s + moment_s - time.monotonic()))
                shots.append(self._photograph(box, disk, FIRST, began_s, []))
        finally:
            box.kill()
            disk.unlink()
        self._keep(shots, chance)

    def _cut_update(self) -> None:
        """Cuts while an update is applied to a box that was told things before; it may take as long as it does."""
        chance, disk = self.record.chance(), self.card.layer("update", self.card.folder / "settled.qcow2")
        box = self._box(disk)
        shots = list[Shot]()
        try:
            box.start()
            with self._load(box, "update") as names:
                wait_for(lambda: len(names) >= 40, "forty acknowledgements")
            place = trial_versions.put(box, self.card, self._key, 1, {})
            update = subprocess.Popen([*box.words("admin"), f"sudo owlbox update apply {place}"], stdout=subprocess.PIPE, text=True)
            began_s = time.monotonic()
            while update.poll() is None:
                time.sleep(chance.expovariate(1 / UPDATE_GAP_S))
                shots.append(self._photograph(box, disk, UPDATE, began_s, names))
            said = update.communicate()[0]
            self._say(f"the update itself, in {time.monotonic() - began_s:.0f} s: {' '.join(said.split())}")
        finally:
            box.kill()
            disk.unlink()
        self._keep(shots, chance)

    def _keep(self, shots: list[Shot], chance: random.Random) -> None:
        """Some of one run's shots, no two of the same card: where nothing was written between two cuts they are one."""
        contents = [hashlib.sha256(Path(shot.disk).read_bytes()).digest() for shot in shots]
        found = {content: number for number, content in enumerate(contents)}  # the last one has promised the most
        kept = sorted(chance.sample(sorted(found.values()), min(AT_ONCE, len(found))))
        for number in set(range(len(shots))) - set(kept):
            Path(shots[number].disk).unlink()
        self._add([shots[number] for number in kept])

    def _cut_start(self, disk: str, promised: list[str]) -> Shot:
        """A cut while a card starts."""
        at_s = self.record.chance().uniform(0.5, self.record.first_s)
        box = self._box(Path(disk))
        box.power_on()
        time.sleep(at_s)
        box.kill()
        return Shot(disk, START, at_s, promised)

    def _photograph(self, box: Box, disk: Path, phase: str, began_s: float, promised: list[str]) -> Shot:
        at_s = time.monotonic() - began_s
        path = disk.with_name(f"{disk.stem}-{len(self.record.cuts)}-{at_s:.2f}.qcow2")
        box.photograph(path)
        return Shot(str(path), phase, at_s, list(promised))

    # -- what becomes of it -------------------------------------------------------------------------

    def _look_at(self, shot: Shot, *, is_last: bool) -> None:
        """Start a card, note what was found, and cut it again unless others wait."""
        box = self._box(Path(shot.disk))
        try:
            up_s = box.start()
            failed = box.ssh("admin", SETTLED, check=False).stdout.split()
            told = look_over(box, self.card)
            lost = sorted(set(shot.promised) - set(told["names"]))
            wrong = [*(f"lost {name}" for name in lost), *told["problems"], *(f"failed: {unit}" for unit in failed)]
            self._note(shot, up_s, told["version"], wrong)
            if wrong:
                raise SystemExit(f"FAILED: {shot.disk} is kept: {'; '.join(wrong)}\n{box.journal()}")
            if is_last or self.record.shots or self._choose() != LOADED:
                box.kill()
                Path(shot.disk).unlink()
                return
            length_s = self.record.chance().uniform(*LOAD_S)
            with self._load(box, f"cut-{len(self.record.cuts)}") as names:
                wait_for(lambda: bool(names), "an acknowledgement")
                time.sleep(length_s)
                box.kill()
        finally:
            box.kill()
        promised = [*shot.promised, *names]
        is_in_start = self.record.chance().random() < IN_START
        self._add([self._cut_start(shot.disk, promised) if is_in_start else Shot(shot.disk, LOADED, length_s, promised)])

    @contextlib.contextmanager
    def _load(self, box: Box, name: str) -> Iterator[list[str]]:
        """A box is told things meanwhile; the names of what it acknowledged, whole when this ends."""
        names: list[str] = []
        box.put(self.card.put("load.py", LOAD), "/tmp/load.py")
        command = [*box.words("admin"), f"{PYTHON} /tmp/load.py {name}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as load:
            reader = threading.Thread(target=lambda: names.extend(line.strip() for line in load.stdout or ()))
            reader.start()
            try:
                yield names
            finally:
                load.kill()
                reader.join()

    def _add(self, shots: list[Shot]) -> None:
        self.record.shots += shots
        self.record.save()

    def _note(self, shot: Shot, up_s: float, version: str, wrong: list[str]) -> None:
        number = len(self.record.cuts) + 1
        cut = {"cut": number, "phase": shot.phase, "at_s": round(shot.at_s, 2), "promised": len(shot.promised)}
        self.record.cuts.append({**cut, "up_s": round(up_s), "version": version, "wrong": wrong})
        if not wrong:
            self.record.shots.remove(shot)
        self.record.save()
        found = "; ".join(wrong) or (f"{len(shot.promised)} promised, all there" if shot.promised else "whole")
        self._say(f"  cut {number}, {shot.phase} at {shot.at_s:.1f} s: up after {up_s:.0f} s with {version}, {found}")


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = 600) -> None:
    """Wait until something holds; SystemExit when it does not come."""
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            raise SystemExit(f"FAILED: no {what.removeprefix('an ')} in {limit_s:g} s")
        time.sleep(0.05)


def look_over(box: Box, card: Card) -> dict[str, Any]:
    """What there is in a box, and what its doctor calls a problem."""
    done = box.ssh("admin", f"{PYTHON} -", check=False, stdin=card.put("check.py", CHECK))
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"FAILED: the look in the box said {done.stdout[-500:]}{done.stderr[-800:]}\n{box.journal()}") from None
    return told


def cut_power(
    image: Path,
    arch: str,
    port: int,
    count: int,
    *,
    seed: int = 0,
    key: bytes = b"",
    minutes: float = 600,
    cores: int = 2,
    is_counted: bool = False,
) -> Record:
    """Cut boxes with an image off until there are `count` cuts of it, or for so many minutes; SystemExit when one is not whole."""
    place = image.absolute().with_name(f"power-cuts-{arch}")
    place.mkdir(exist_ok=True)
    record = Record(place.with_suffix(".json"), image, seed)
    card = Card(image, place, arch)
    cuts = Cuts(card, record, port, key, lambda line: print(line, flush=True), cores, is_counted)
    cuts.run(count, time.monotonic() + minutes * 60)
    by_phase = Counter(str(one["phase"]) for one in record.cuts)
    told = ", ".join(f"{number} {phase}" for phase, number in sorted(by_phase.items()))
    print(f"{len(record.cuts)} of {count} power cuts, each followed by a whole start: {told}")
    return record


def main() -> int:
    """Cut one image's boxes off; 0 when every card came up whole and there are enough cuts."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("image", type=Path)
    words.add_argument("--arch", choices=sorted(BOARDS))
    words.add_argument("--cuts", type=int, default=50)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--key", type=Path, help="the private key of updates that the image takes")
    words.add_argument("--minutes", type=float, default=600, help="how long; a further call goes on")
    words.add_argument("--port", type=int, default=22023)
    words.add_argument("--cores", type=int, default=2, help="of the emulated box; 1 leaves more of this machine to others")
    words.add_argument("--counted", action="store_true", help="the box's clock counts instructions; wants one core")
    chosen = words.parse_args()
    if chosen.counted and chosen.cores != 1:
        words.error("a clock that counts instructions wants --cores 1")
    arch = chosen.arch or ("arm64" if "arm64" in chosen.image.name else "amd64")
    key = base64.b64decode(chosen.key.read_text("ascii")) if chosen.key else b""
    given = {"seed": chosen.seed, "key": key, "minutes": chosen.minutes, "cores": chosen.cores, "is_counted": chosen.counted}
    return 0 if len(cut_power(chosen.image, arch, chosen.port, chosen.cuts, **given).cuts) >= chosen.cuts else 1


if __name__ == "__main__":
    sys.exit(main())
