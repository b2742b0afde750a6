"""Disks that stop taking writes, under a running core and at its start: named by their cause, and what can be read is read."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from needs import leave_out, needs
from process import Box, clean_environ, script, until
from stores import new_home

from appliance.clock import monotonic_s
from appliance.knowledge.entries import Entries
from appliance.runtime.paths import Home
from appliance.store.database import Store

needs_root = needs(root=True)
READING = (["thread", "list"], ["entry", "list"], ["schedule", "list"])
WRITING = (["ask", "hi"], ["task", "add", "sweep the floor"])


def mount(*words: str) -> None:
    if subprocess.run(["mount", *words], capture_output=True).returncode:
        leave_out(f"cannot mount here: {' '.join(words)}")


def a_box_on(place: Path, tmp_path: Path, runtime: Path) -> Box:
    """A home with something in it."""
    box = Box(Home(place / "home"), clean_environ(tmp_path, runtime))
    new_home(box.home)
    script(box, '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n')
    assert box.run("remember", "the well is deep", "--title", "well").returncode == 0
    with closing(Store.open(box.home.database)) as store:
        Entries(store).set("late.txt", "its words wait for being indexed, which writes")
    return box


@pytest.fixture
def memory_disk(tmp_path: Path, runtime: Path) -> Iterator[Box]:
    """A home on a file system of its own, which can be mounted anew."""
    place = runtime / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", str(place))
    try:
        yield a_box_on(place, tmp_path, runtime)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def failing_disk(tmp_path: Path, runtime: Path) -> Iterator[tuple[Box, Path]]:
    """A home on ext4, and the file that lets the kernel meet an error in it, after which it writes no more."""
    image, place = runtime / "disk.img", runtime / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(48_000_000)
    if subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True).returncode:
        leave_out("no mkfs.ext4 here")
    mount("-o", "loop,errors=remount-ro", str(image), str(place))
    try:
        device = next(line.split()[0] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == str(place))
        trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
        if not trigger.exists():
            leave_out("this kernel cannot let ext4 meet an error")
        yield a_box_on(place, tmp_path, runtime), trigger
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def assert_only_reads(box: Box) -> None:
    """What needs no write is answered, the rest fails with the cause, status and doctor name it."""
    for words in READING:
        done = box.run(*words)
        assert done.returncode == 0, (words, done.stderr)
    assert "deep" in box.run("search", "well").stdout
    for words in WRITING:
        done = box.run(*words)
        assert done.returncode == 5 and done.stderr.count("\n") == 1, (words, done.stderr)
        assert "the disk is read-only" in done.stderr and "mode" not in done.stderr, (words, done.stderr)
    assert "the disk is read-only" in str(box.json("status")["faults"])
    assert box.run("status").stdout.splitlines()[0].startswith("problem      the disk is read-only")
    began_s = monotonic_s()
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}
    assert monotonic_s() - began_s < 9, "nobody waits for a broker that is not started"
    assert found["disk"]["state"] == "problem" and found["disk"]["message"] == "not checked: see home"
    assert found["home"]["state"] == "problem" and "read-only" in found["home"]["message"] and "dmesg" in found["home"]["hint"]


@needs_root
def test_a_disk_that_fails_under_a_running_core_is_named_and_read(failing_disk: tuple[Box, Path], tmp_path: Path) -> None:
    box, trigger = failing_disk
    core = box.serve()
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    trigger.write_text("1")
    assert_only_reads(box)
    core.kill()
    assert_only_reads(box)
    core = box.serve()
    assert_only_reads(box)
    assert [t["title"] for t in box.json("thread", "list")] == ["hi"]
    saved = box.json("backup", "--to", str(tmp_path / "stick"))
    assert saved["is_new"] and saved["rows"]["runs"] == 1
    assert core.stop() == 0
    assert core.child.stderr is not None and "only reading: the disk is read-only" in core.child.stderr.read().decode()


@needs_root
@pytest.mark.parametrize("was_killed", [False, True])
def test_a_read_only_home_is_read_after_a_restart_and_written_once_its_disk_takes_it(memory_disk: Box, was_killed: bool) -> None:
    box = memory_disk
    core = box.serve()
    assert box.run("ask", "hi").returncode == 0
    if was_killed:
        os.killpg(os.getpgid(core.broker_pid()), 9)
        core.kill()
    else:
        assert core.stop() == 0
    mount("-o", "remount,ro", str(box.home.root.parent))
    assert_only_reads(box)
    core = box.serve()
    assert_only_reads(box)
    mount("-o", "remount,rw", str(box.home.root.parent))
    until(lambda: box.run("remember", "later").returncode == 0, "the core writes again, without having been told")
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    assert box.json("status")["faults"] == []
    assert core.stop() == 0
    assert not [line for line in box.log("core") if "did not end in time" in line["message"]]
    with box.store() as store:
        assert store.problems() == []


@pytest.fixture
def limited_disk(tmp_path: Path, runtime: Path) -> Iterator[tuple[Box, Path]]:
    """A home on a btrfs subvolume with a quota of 8 MB, and the subvolume."""
    image, place = runtime / "disk.img", runtime / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(130_000_000)
    subprocess.run(["mkfs.btrfs", "-q", "-m", "single", str(image)], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True).returncode:
        pytest.skip("the kernel of this machine mounts no btrfs")
    person = place / "person"
    try:
        for words in (["subvolume", "create", str(person)], ["quota", "enable", str(place)]):
            subprocess.run(["btrfs", *words], check=True, capture_output=True)
        yield a_box_on(person, tmp_path, runtime), person
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@needs("btrfs", "mkfs.btrfs", root=True)
def test_a_used_up_quota_is_named_and_nothing_is_lost(limited_disk: tuple[Box, Path]) -> None:
    """On a file system that copies on write the kernel ends a core whose shared memory it cannot store (SIGBUS)."""
    box, disk = limited_disk
    core = box.serve()
    assert box.run("ask", "hi").stdout == "Hoot hoot.\n"
    subprocess.run(["btrfs", "qgroup", "limit", "8M", str(disk)], check=True)
    with pytest.raises(OSError, match="quota"), (disk / "fill").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            os.fsync(file.fileno())
    box.run("thread", "list")
    assert core.stop() in (0, -signal.SIGBUS)
    for words in (["remember", "more"], *WRITING, ["backup"], ["serve"]):
        done = box.run(*words)
        assert done.returncode == 5 and "a disk quota is used up" in done.stderr and "mode" not in done.stderr, (words, done.stderr)
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}
    assert "a disk quota is used up" in found["disk"]["message"] + found["database"]["message"]
    (disk / "fill").unlink()
    os.sync()
    until(lambda: box.run("remember", "later").returncode == 0, "the freed space is counted")
    core = box.serve()
    assert [t["title"] for t in box.json("thread", "list")] == ["hi"] and "deep" in box.run("search", "well").stdout
    assert box.json("status")["faults"] == [] and core.stop() == 0
    with box.store() as store:
        assert store.problems() == []


@needs_root
def test_a_read_only_home_that_was_never_served_is_refused_with_the_cause(memory_disk: Box) -> None:
    mount("-o", "remount,ro", str(memory_disk.home.root.parent))
    done = memory_disk.run("serve")
    assert done.returncode == 5 and "the disk is read-only" in done.stderr and "mode" not in done.stderr, done.stderr
    assert "deep" in memory_disk.run("search", "well").stdout


@needs_root
def test_used_up_inodes_are_named_and_nothing_is_lost(memory_disk: Box) -> None:
    box = memory_disk
    core = box.serve()
    assert box.run("ask", "hi").returncode == 0
    mount("-o", f"remount,nr_inodes={_inodes_used(box.home.root.parent)}", str(box.home.root.parent))
    assert "inodes are used up" in str(box.json("status")["faults"])
    found = {f["name"]: f for f in json.loads(box.run("doctor", "--json").stdout)}
    assert found["disk"]["state"] == "problem" and found["disk"]["message"] == "not checked: see home"
    assert found["home"]["state"] == "problem" and "inodes" in found["home"]["message"] and "df -i" in found["home"]["hint"]
    assert box.run("remember", "needs no new file").returncode == 0
    assert core.stop() == 0
    mount("-o", f"remount,nr_inodes={_inodes_used(box.home.root.parent)}", str(box.home.root.parent))
    for words in (["remember", "needs the log of the database"], ["backup"]):
        done = box.run(*words)
        assert done.returncode == 5 and "inodes are used up" in done.stderr and "mode" not in done.stderr, done.stderr
    mount("-o", "remount,nr_inodes=0", str(box.home.root.parent))
    assert box.run("remember", "later").returncode == 0


def _inodes_used(place: Path) -> int:
    space = os.statvfs(place)
    return space.f_files - space.f_ffree


def test_a_store_says_which_fault_the_disk_has(tmp_path: Path) -> None:
    """The words for each fault are made from the error of the system."""
    from appliance.store import disk_faults

    said = {number: disk_faults.disk_fault(number, tmp_path / "x.db") for number in disk_faults.ON_A_DISK}
    assert sorted(error.outcome for error in said.values()) == [*["disk_failing"] * 3, "disk_full", "disk_full", "disk_read_only"]
    assert any("disk quota is used up" in error.message for error in said.values())
    assert not any("mode" in error.hint for error in said.values())
    Store.create(tmp_path / "x.db").close()
    assert disk_faults.standing_fault(tmp_path / "x.txt") is None and disk_faults.write_fault(tmp_path) is None
