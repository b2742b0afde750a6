"""Where backups go, and which go away: places without their disk, and clocks that are wrong (faketime)."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from needs import needs
from process import Box, a_box

from appliance.clock import now_ms
from appliance.errors import Unavailable
from appliance.runtime.settings import DAY_MS, Backups, Config
from appliance.upkeep import backup_target, backups, sealed_backups
from appliance.upkeep.checks import upkeep

__all__ = ["a_box"]


def silent(step: str, done: int, total: int) -> None:
    """Nobody looks at the progress."""


def make_aged(box: Box, folder: Path, *ages: float) -> None:
    """Backups of the home that say that they were made so many days ago."""
    for number, age in enumerate(ages):
        (box.home.box / "notes/n.md").write_text("x" * (number + 1))
        path = backups.make(box.home, Config(), folder, silent).backup.path
        with zipfile.ZipFile(path) as archive:
            kept = {name: archive.read(name) for name in archive.namelist()}
        made_ms = now_ms() - round(age * DAY_MS)
        kept["manifest.json"] = json.dumps({**json.loads(kept["manifest.json"]), "made_ms": made_ms}).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in kept.items():
                archive.writestr(name, content)
    (box.home.box / "notes/n.md").write_text("changed since")


def run_at(box: Box, when: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command under a clock that says something else."""
    command = ["faketime", "-f", when, *box.command(*words)]
    return subprocess.run(command, env=box.environ, capture_output=True, text=True, timeout=60, check=False)


@needs("faketime")
@pytest.mark.parametrize("clock", ["+3652d", "+61d"])
def test_a_clock_that_is_ahead_costs_one_backup_at_most(box: Box, clock: str) -> None:
    make_aged(box, box.home.backups, 20, 10, 5, 1)
    (copy := box.home.backups / f"before-migration-3-{now_ms() - 2 * DAY_MS}.db").write_text("a database")
    done = run_at(box, clock, "backup")
    assert done.returncode == 0, done.stderr
    left = backups.listing(box.home.backups)
    assert len(left) == 5 and copy.exists()
    found = upkeep.check_backups(box.home, Config(), rows=1)
    assert found.state == "warning" and "1 of 5 backups are dated in the future" in found.message and "timedatectl" in found.hint
    (box.home.box / "notes/n.md").write_text("once more")
    settings = Config(backups=Backups(keep=5))
    made = backups.make(box.home, settings, box.home.backups, silent)
    ahead = left[-1].path.name
    assert made.removed == (ahead,) and upkeep.check_backups(box.home, settings, rows=1).state == "ok"


@needs("faketime")
def test_a_backup_is_made_in_1970(box: Box) -> None:
    make_aged(box, box.home.backups, 3, 1)
    done = run_at(box, "1970-01-01 00:01:00", "backup")
    assert done.returncode == 0, done.stderr
    assert len(backups.listing(box.home.backups)) == 3


def test_ages_are_counted_among_backups_and_one_goes_for_one(box: Box) -> None:
    make_aged(box, box.home.backups, 200, 100, 90, 1)
    removed = []
    for number in range(4):
        (box.home.box / "notes/n.md").write_text(f"more {number}")
        removed.append(len(backups.make(box.home, Config(), box.home.backups, silent).removed))
    assert removed == [1, 1, 0, 0]  # the oldest went when the last of them was made


def test_sealed_ones_go_one_for_one_and_those_of_the_future_first(tmp_path: Path) -> None:
    names = [f"owlbox-{stamp}T000000Z.zip.sealed" for stamp in ("20240101", "20250101", "20260101", "29990101")]
    for name in names:
        (tmp_path / name).touch()
    assert sealed_backups.rotate(tmp_path, names[2], keep=2) == [names[3]]
    assert sealed_backups.rotate(tmp_path, names[2], keep=2) == [names[0]]
    assert sealed_backups.rotate(tmp_path, names[2], keep=2) == []


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_target_without_its_disk_is_refused_and_named(box: Box, tmp_path: Path, is_sealed: bool) -> None:
    with box.home.config.open("a") as file:
        file.write('\n[backups]\ntarget = "/media/nostick/owlbox"\n')
        if is_sealed:
            (tmp_path / "key").write_text("a long enough line\n")
            file.write(f'key_file = "{tmp_path / "key"}"\n')
    done = box.run("backup")
    assert (done.returncode, done.stdout) == (5, "") and "no disk is mounted at /media/nostick" in done.stderr
    assert not Path("/media/nostick").exists() and "lsblk" in done.stderr
    assert box.run("backup", "--to", "/mnt/nostick").returncode == 5
    found = box.run("doctor", "backups")
    assert found.returncode == 1 and "no disk is mounted at /media/nostick" in found.stdout


def test_another_disk_than_before_is_taken_only_when_asked(box: Box) -> None:
    target = box.home.root.parent / "disk"
    place = str(target)
    backup_target.record(box.home, place)
    known = backup_target.read(box.home, place)
    assert known is not None and known.disk and known.at_ms
    backup_target.require_same_disk(box.home, place)
    (box.home.backups / "target.json").write_text(json.dumps({"place": place, "disk": "1234-ABCD", "at_ms": 1}))
    with pytest.raises(Unavailable, match="not on the disk that took the last backup"):
        backup_target.require_same_disk(box.home, place)
    with box.home.config.open("a") as file:
        file.write(f'\n[backups]\ntarget = "{place}"\n')
    assert box.run("backup").returncode == 5 and not target.exists()
    assert box.run("backup", "--to", place).returncode == 0
    (box.home.box / "notes/n.md").write_text("x")
    assert box.run("backup").returncode == 0


def test_a_folder_of_fstab_that_is_not_mounted_is_no_place(box: Box, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "etc/fstab").write_text(f"# disks\nUUID=1 / ext4 defaults 0 1\nnas:/b {tmp_path}/my\\040nas nfs noauto 0 0\n")
    mounts = "22 1 0:21 / / rw - ext4 /dev/sda2 rw\n"
    (root / "proc/self/mountinfo").write_text(mounts)
    with pytest.raises(Unavailable, match="my nas"):
        backup_target.require_disk(box.home, tmp_path / "my nas/owlbox", root)
    (root / "proc/self/mountinfo").write_text(f"{mounts}23 22 0:40 / {tmp_path}/my\\040nas rw - nfs nas:/b rw\n")
    backup_target.require_disk(box.home, tmp_path / "my nas/owlbox", root)
    assert backup_target.find_disk(tmp_path / "my nas/owlbox", root) == "nas:/b"
    assert backup_target.find_disk(tmp_path, root) == "/dev/sda2"


def test_a_dead_server_and_a_missing_key_file_show_in_doctor(box: Box, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text("Host *\n  ProxyCommand false\n")
    with box.home.config.open("a") as file:
        file.write('\n[backups]\ntarget = "sftp://owl@nas.invalid/backups"\n')
    environ = {"OWLBOX_SSH_CONFIG": str(config)}
    found = box.run("doctor", "backups", **environ)
    assert found.returncode == 1 and "owl@nas.invalid cannot be used for backups: " in found.stdout, found.stdout
    assert box.run("backup", **environ).returncode == 5
    place = sealed_backups.parse_place("sftp://owl@127.0.0.1:9/backups")
    with pytest.raises(Unavailable, match="owl@127.0.0.1 cannot be used for backups: ssh: connect to host 127.0.0.1 port 9: Conn"):
        sealed_backups.require_answer(place)
    assert backups.listing(box.home.backups), "the copy at home is there, and is not what was asked for"
    found = box.run("doctor", "backups", OWLBOX__BACKUPS__KEY_FILE=str(tmp_path / "none"), OWLBOX__BACKUPS__TARGET="")
    assert found.returncode == 1 and "the key file" in found.stdout and os.fspath(tmp_path / "none") in found.stdout


def test_a_configuration_that_cannot_be_read_is_no_quiet_plain_backup(box: Box) -> None:
    with box.home.config.open("a") as file:
        file.write("\n[backups]\ntarget = 5\n")
    done = box.run("backup")
    assert done.returncode == 2 and "saved without the configuration's backups.target" in done.stderr
    assert len(backups.listing(box.home.backups)) == 1
