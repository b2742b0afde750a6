"""What the doctor reads from the machine below, from saved prompts and from the tables of a database."""

import contextlib
import io
import json
import os
import threading
from pathlib import Path

import apsw
import pytest
from stores import new_home, new_store

from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.store import table_check
from appliance.store.migrations import LATEST
from appliance.upkeep.checks import machine, table_process, upkeep
from appliance.upkeep.doctor import Doctor

PAGE = 4096


def write(root: Path, files: dict[str, str]) -> Path:
    """A root folder with these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


ZONE = "sys/class/thermal/thermal_zone0"
THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
MEMORY = "MemTotal:  4000000 kB\nMemAvailable: {} kB\n"
SIGNS = [
    (machine.check_temperature, {}, "ok", "no sensor"),
    (machine.check_temperature, {f"{ZONE}/type": "cpu", f"{ZONE}/temp": "61000"}, "ok", "61 C (cpu)"),
    (machine.check_temperature, {f"{ZONE}/type": "cpu", f"{ZONE}/temp": "78000"}, "warning", "78 C"),
    (machine.check_temperature, {f"{ZONE}/type": "cpu", f"{ZONE}/temp": "86000"}, "problem", "86 C"),
    (machine.check_temperature, {f"{ZONE}/type": "cpu", f"{ZONE}/temp": "nonsense"}, "ok", "no sensor"),
    (machine.check_throttling, {}, "ok", "not reported"),
    (machine.check_throttling, {THROTTLED: "0x0"}, "ok", "full speed"),
    (machine.check_throttling, {THROTTLED: "50000"}, "warning", "but not now: the supply voltage is too low"),
    (machine.check_throttling, {THROTTLED: "50005"}, "problem", "now: the supply voltage"),
    (machine.check_memory, {"proc/meminfo": MEMORY.format(3000000), "proc/vmstat": "oom_kill 0"}, "ok", "2929 of 3906 MB free"),
    (machine.check_memory, {"proc/meminfo": MEMORY.format(3000000), "proc/vmstat": "oom_kill 2"}, "ok", "2 processes"),
    (machine.check_memory, {"proc/meminfo": MEMORY.format(100000), "proc/vmstat": "oom_kill 0"}, "warning", "97 of 3906"),
    (machine.check_memory, {}, "ok", "not reported"),
]


@pytest.mark.parametrize("number", range(len(SIGNS)))
def test_signs_of_the_machine_are_read(tmp_path: Path, number: int) -> None:
    look, files, state, words = SIGNS[number]
    found = look(write(tmp_path, files))
    assert (found.state, words in found.message) == (state, True), found
    assert bool(found.hint) or found.state == "ok"


@pytest.mark.parametrize(
    ("files", "state", "words"),
    [
        ({"stat": "1 0 8 0 1 0 2000000 0", "size": "62500000"}, "ok", "0.10 GB a day"),
        ({"stat": "1 0 8 0 1 0 2000000000 0", "size": "62500000"}, "warning", "would last 0 years"),
        ({"stat": "1 0 8 0 1 0 0 0", "size": "1", "device/life_time": "0x01 0x09"}, "warning", "90 % of its life"),
        ({"stat": "1 0 8 0 1 0 0 0", "size": "1", "device/life_time": "0x01 0x01"}, "ok", "tells no more"),
        ({}, "ok", "tells no more"),
    ],
)
def test_wear_of_the_card_is_estimated(tmp_path: Path, files: dict[str, str], state: str, words: str) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    device = os.stat(home.root).st_dev
    card = tmp_path / "sys/block/mmcblk0"
    write(card, {**files, "mmcblk0p2/partition": "2"})
    write(tmp_path, {"proc/uptime": "864000.0 1.0"})
    links = tmp_path / "sys/dev/block"
    links.mkdir(parents=True)
    (links / f"{os.major(device)}:{os.minor(device)}").symlink_to(card / "mmcblk0p2")
    found = machine.check_wear(home, tmp_path)
    assert (found.state, words in found.message) == (state, True), found


def test_the_clock_is_asked_of_the_kernel() -> None:
    assert machine.check_clock().state in ("ok", "warning")


@pytest.mark.covers("E-239", "B-145", "B-147")
def test_each_table_has_a_state_and_a_missing_one_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path)
    store = new_store(home.database)
    with store.write() as execute:
        execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, x'00', 1)")
    store.close()
    for limit_s in (None, 1.0):
        found = table_process.TableCheck(home, limit_s).result()
        assert found.problems == () and set(found.states) == set(table_check.list_expected(LATEST))
        assert {name for name, state in found.states.items() if state != "empty"} == {"changesets", "wall_clock"}
    db = apsw.Connection(str(home.database))
    db.execute("DROP TABLE mutes")
    db.close()
    found = table_process.TableCheck(home, 1.0).result()
    assert found.states["mutes"] == "missing" and found.problems == ("table mutes is missing",)


class Indexing(io.StringIO):
    """What a check prints, and a process that indexes more words at each line of it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._store, self._number = new_store(path), 0
        self._index(50)

    def write(self, text: str) -> int:
        if text.startswith("at "):
            self._index(40)
        return super().write(text)

    def _index(self, count: int) -> None:
        for _ in range(count):
            self._number += 1
            with self._store.write() as execute:
                text = f"owl{self._number} hunts mice {self._number}"
                execute("INSERT INTO chunks_fts (rowid, head, text, near) VALUES (?, '', ?, '')", (self._number, text))
                execute("DELETE FROM chunks_fts WHERE rowid = ?", (self._number - 45,))


@pytest.mark.covers("B-145")
def test_what_is_indexed_during_the_check_is_no_damage(tmp_path: Path) -> None:
    path = Home(tmp_path).database
    with contextlib.redirect_stdout(Indexing(path)):
        found = table_check.check(path, 5.0)
    assert found["problems"] == [] and "corrupt" not in found["tables"].values()


@pytest.mark.covers("B-145")
def test_a_database_that_another_holds_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    path = Home(tmp_path).database
    new_store(path).close()
    other = apsw.Connection(str(path))
    other.pragma("locking_mode", "exclusive")
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.3, other.close)
    release.start()
    try:
        assert table_check.check(path, 5.0)["problems"] == []
    finally:
        release.join()


@pytest.mark.covers("B-145")
def test_a_damaged_table_is_corrupt_and_the_others_keep_their_states(tmp_path: Path) -> None:
    home = Home(tmp_path)
    store = new_store(home.database)
    with store.write() as execute:
        for number in range(40):
            execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES (?, 1, zeroblob(900), 1)", (f"r{number}",))
    pages = [row[0] for row in store.rows("SELECT pageno FROM dbstat WHERE name = 'changesets' AND pagetype = 'leaf'")]
    store.checkpoint()
    store.close()
    with home.database.open("r+b") as file:
        for page in pages[1:4]:
            file.seek((page - 1) * PAGE)
            file.write(b"\x7f" * PAGE)
    for limit_s in (None, 5.0):
        found = table_process.TableCheck(home, limit_s).result()
        assert [name for name, state in found.states.items() if state == "corrupt"] == ["changesets"], found
        assert found.problems


@pytest.mark.covers("B-145")
def test_a_process_that_is_ended_by_the_damage_does_not_end_the_doctor(tmp_path: Path) -> None:
    new_home(Home(tmp_path / "home"))
    home = Home(tmp_path / "home")
    check = table_process.TableCheck(home, None)
    assert check._process is not None
    check._process.kill()
    found = check.result()
    assert found.problems and "ends the process" in found.problems[0] and found.states["entries"] in ("ok", "empty")


def test_only_the_checks_that_are_named_are_made(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    new_home(home)
    looks = Doctor(home, {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert [one.name for one in looks.examine(("disk", "home"))] == ["home", "disk"]
    with pytest.raises(BadInput, match="no check dsk"):
        looks.examine(("dsk",))


def test_damaged_saved_prompts_are_named_and_removed_by_repair(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    new_home(home)
    facts = json.dumps({"tokens": 2, "payload": 3}).encode()
    whole = b"OWLSTATE1\n" + len(facts).to_bytes(4, "little") + facts + bytes(11)
    folder = home.models / "prefix"
    (folder / "a.state").write_bytes(whole)
    (folder / "b.state").write_bytes(whole[:-1])
    (folder / "c.state").write_bytes(b"no")
    found = upkeep.check_prefix(home, Config(), is_repairing=False)
    assert found.state == "warning" and "2 are damaged" in found.message
    assert upkeep.check_prefix(home, Config(), is_repairing=True).state == "ok"
    assert [path.name for path in folder.glob("*.state")] == ["a.state"]


def test_a_backup_that_is_too_old_is_a_warning_once_there_is_something_to_lose(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    new_home(home)
    assert upkeep.check_backups(home, Config(), rows=0).state == "ok"
    found = upkeep.check_backups(home, Config(), rows=3)
    assert found.state == "warning" and "owlbox backup" in found.hint and now_ms() > machine.BUILT_MS


@pytest.mark.parametrize(
    ("status", "failed", "state", "words"),
    [
        ({}, 0, "ok", "only this machine"),
        ({"channels": {"matrix": True, "email": False}}, 0, "ok", "open: matrix"),
        ({"channels": {"matrix": False, "web": True}, "page": "http://localhost:8420"}, 0, "ok", "open: web"),
        ({"channels": {"email": "no such host"}}, 0, "problem", "email: no such host"),
        ({"channels": {"web": "cannot listen at 127.0.0.1 port 80: in use"}}, 0, "problem", "web: cannot listen"),
        ({}, 2, "warning", "2 notifications"),
    ],
)
def test_channels_that_are_not_open_are_named(status: dict[str, object], failed: int, state: str, words: str) -> None:
    found = upkeep.check_channels(Config(), status, failed)
    assert (found.state, words in found.message) == (state, True)
