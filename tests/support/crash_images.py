"""Power cuts of a busy home's disk, hundreds in minutes: every write of a real core is recorded, and any moment is made again.

A home lies on ext4 with the mount options of an image, on a disk that remembers its writes and flushes (`recorded_disk`). A core
is asked, told, configured and given secrets, and what it acknowledges is noted with how much the disk had been written by then.
Then moments are drawn by chance: what the disk held, with a random part of what it had not flushed missing or torn, is mounted
as after a power cut. ext4 must be sound after its journal was replayed, doctor may find no problem, and everything that was
acknowledged before must be there; of every few images a core is started and asked as well.

    python tests/support/crash_images.py --seed 7 --length 30 --cuts 300
"""

import argparse
import bisect
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from process import Box, Core, clean_environ, end, left_over, script, until  # noqa: E402
from recorded_disk import RecordedDisk, hide_mounts  # noqa: E402
from stores import new_home  # noqa: E402

from appliance.clock import monotonic_s  # noqa: E402
from appliance.errors import OwlError  # noqa: E402
from appliance.runtime.paths import Home  # noqa: E402
from appliance.store.database import Store  # noqa: E402
from appliance.upkeep import doctor  # noqa: E402

DISK_MB = 96
OPTIONS = "loop,noatime,commit=30,errors=remount-ro"  # of / in image-build/overlay/etc/fstab
PLAY = '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n'
STARTED = 8  # of so many images one gets a core
MESSAGES = "SELECT e.content FROM inbox i JOIN events e ON e.run = i.run AND i.message_id LIKE '%/' || e.content"
ENTRIES = "SELECT body FROM entries WHERE path LIKE 'memory://cuts/%'"
Promise = tuple[int, str, str]  # how long the log was when it was acknowledged, its kind, its name


@contextmanager
def mounted(disk: Path, place: Path) -> Iterator[None]:
    """A disk in its place for a while."""
    subprocess.run(["mount", "-o", OPTIONS, str(disk), str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)
        until(lambda: not subprocess.run(["losetup", "-j", str(disk)], capture_output=True).stdout, "nobody uses the disk")


def fill(box: Box, disk: RecordedDisk, length_s: float) -> list[Promise]:
    """Keep a core busy for a while; what it acknowledged."""
    promises: list[Promise] = []
    core = box.serve()
    end_s = monotonic_s() + length_s

    def repeat(kind: str, act: Callable[[Core, str], None]) -> None:
        number = 0
        while monotonic_s() < end_s:
            number += 1
            name = f"{kind}-{number}"
            act(core, name)
            promises.append((len(disk.log), kind, name))

    threads = [threading.Thread(target=repeat, args=one, name=one[0]) for one in ACTS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Not stopped in good order: its last writes are those of a core that runs.
    core.kill()
    close(box)
    return sorted(promises)


def close(box: Box) -> None:
    """Nobody uses the disk any more: of a core that has ended the broker ends by itself."""
    until(lambda: left_over(box) == [], "the broker ends")
    for child in box.children:
        end(child)
    box.children.clear()


def say(core: Core, name: str) -> None:
    core.call("message.send", text=name, message_id=name, wait=False)


def enter(core: Core, name: str) -> None:
    done = core.call("entry.set", ref=f"memory://cuts/{name}", body=name)
    assert done["status"] in (200, 201), done


def keep_secret(core: Core, name: str) -> None:
    done = core.box.run("secret", "set", f"skill/{name}", text="feather")
    assert done.returncode == 0, done.stderr


def configure(core: Core, name: str) -> None:
    done = core.box.run("config", "set", "backups.keep", str(10 + int(name.rpartition("-")[2])))
    assert done.returncode == 0, done.stderr


def save(core: Core, name: str) -> None:
    core.call("backup.make")


ACTS = {"message": say, "entry": enter, "secret": keep_secret, "setting": configure, "backup": save}


def look(box: Box, expected: list[Promise], *, is_started: bool) -> list[str]:
    """What is wrong with a home after a power cut."""
    wrong = [f"{f.name}: {f.message}" for f in doctor.examine(box.home, box.environ) if f.state == "problem"]
    store = Store.open(box.home.database)
    try:
        there = {str(row[0]) for sql in (MESSAGES, ENTRIES) for row in store.rows(sql)}
    finally:
        store.close()
    named = {name for _, kind, name in expected if kind in ("message", "entry")}
    wrong += [f"lost {name}" for name in sorted(named - there)]
    settings = [int(name.rpartition("-")[2]) for _, kind, name in expected if kind == "setting"]
    text = box.home.config.read_text()
    if settings and not any(f"keep = {10 + number}" in text for number in (max(settings), max(settings) + 1)):
        wrong.append(f"lost the setting {max(settings)}")
    if is_started:
        wrong += start(box, [name for _, kind, name in expected if kind == "secret"])
    return wrong


def start(box: Box, secrets: list[str]) -> list[str]:
    """What is wrong with a core that is started on it."""
    core = box.serve()
    try:
        wrong = [] if box.run("ask", "hello").stdout == "Hoot hoot.\n" else ["no answer"]
        kept = box.run("secret", "list").stdout
        wrong += [f"lost secret {name}" for name in secrets if f"skill/{name}" not in kept]
        found = json.loads(box.run("doctor", "--json").stdout)
        wrong += [f"with a core: {one['name']}: {one['message']}" for one in found if one["state"] == "problem"]
    finally:
        core.stop()
        close(box)
    return wrong


def main() -> int:
    """Record, cut, and count; 1 when anything was lost or is not whole."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    words.add_argument("--length", type=float, default=30.0, help="seconds of work that are recorded")
    words.add_argument("--cuts", type=int, default=300)
    chosen = words.parse_args()
    hide_mounts()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with (
        tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as runtime,
        tempfile.TemporaryDirectory(prefix="owl-disk-") as folder,
    ):
        work = Path(folder)
        place, served, image = work / "place", work / "served", work / "disk.img"
        place.mkdir()
        served.mkdir()
        image.write_bytes(bytes(DISK_MB << 20))
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        box = Box(Home(place / "home"), clean_environ(work, Path(runtime)))
        with mounted(image, place):
            new_home(box.home)
            script(box, PLAY)
        disk = RecordedDisk(served, image.read_bytes())
        try:
            with mounted(disk.path, place):
                promises = fill(box, disk, chosen.length)
        finally:
            disk.close()
        flushes = sum(entry is None for entry in disk.log)
        by_kind = Counter(kind for _, kind, _ in promises)
        print(f"seed {chosen.seed}: {len(disk.log) - flushes} writes, {flushes} flushes; acknowledged: {dict(by_kind)}", flush=True)
        return cut(box, disk, promises, image, place, chosen.cuts, chosen.seed)


def cut(box: Box, disk: RecordedDisk, promises: list[Promise], image: Path, place: Path, count: int, seed: int) -> int:
    """Make the images of so many moments and look at each."""
    dice, began_s, failures = random.Random(seed), monotonic_s(), 0
    for number in range(count):
        moment = dice.randrange(1, len(disk.log) + 1)
        expected = promises[: bisect.bisect_right(promises, moment, key=lambda one: one[0])]
        image.write_bytes(disk.crash(moment, dice))
        with mounted(image, place):
            try:
                wrong = look(box, expected, is_started=number % STARTED == 0)
            except (OwlError, AssertionError) as error:
                wrong = [str(error)]
        sound = subprocess.run(["e2fsck", "-fn", str(image)], capture_output=True, text=True)
        wrong += [f"ext4: {sound.stdout}"] if sound.returncode else []
        if number % 50 == 49:
            print(f"  {number + 1} power cuts", flush=True)
        if wrong:
            failures += 1
            print(f"  cut {number} after {moment} of {len(disk.log)} writes: {'; '.join(wrong)}", flush=True)
    print(f"{count} power cuts, {failures} not whole, in {monotonic_s() - began_s:.0f} s; of {STARTED} one got a core")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
