"""A full, read-only, inode-less or failing disk is told alike by every command, tool and method: what is wrong, and what to do."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from needs import leave_out, needs
from process import Box, clean_environ, script
from stores import new_home, new_store

from appliance.cli import main as cli
from appliance.errors import DiskFailing, NotFound, OwlError
from appliance.runtime.paths import Home
from appliance.store import disk_faults
from appliance.store.database import Store

# Commands that write, each in a place of its own: the database, the configuration, box/, the vault, logs, other folders.
WRITING = (
    "mcp add x --command true",
    "worker start",
    "note the roof leaks",
    "config set system.timezone Europe/Berlin",
    "channel disable email",
    "channel enable email",
    "skill create watering --description plants",
    "secret set llm/openai",
    "chat -p hi",
    "task add sweep",
    "schedule add x --frequency hourly",
    "remind sweep tomorrow at 7",
    "people add ben",
    "people invite ben",
    "people password ben",
    "mute 2h",
    "memory add x",
    "context add /etc/hostname",
    "entry set a.txt x",
    "maintain --now",
    "backup",
    "export DISK/export",
    "init --home DISK/other",
    "ask hi",
    "serve",
)
WORDS = {"full": "disk full", "read-only": "the disk is read-only", "inodes": "inodes are used up"}


@pytest.fixture(name="disk")
def a_small_disk(tmp_path: Path, runtime: Path) -> Iterator[Box]:
    place = runtime / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=0700", "tmpfs", str(place)], capture_output=True).returncode:
        leave_out("cannot mount here")
    try:
        box = Box(Home(place / "home"), clean_environ(tmp_path, runtime))
        new_home(box.home)
        script(box, '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n')
        yield box
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def break_disk(place: Path, fault: str) -> None:
    if fault == "full":
        with pytest.raises(OSError, match="No space"), (place / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with pytest.raises(OSError, match="No space"), (place / "rest").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
    else:
        space = os.statvfs(place)
        option = "ro" if fault == "read-only" else f"nr_inodes={space.f_files - space.f_ffree}"
        subprocess.run(["mount", "-o", f"remount,{option}", str(place)], check=True)


@needs(root=True)
@pytest.mark.parametrize("fault", WORDS)
def test_every_command_that_writes_names_the_fault(
    disk: Box, fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = disk.home.root.parent
    break_disk(place, fault)
    for name in [name for name in os.environ if name.startswith("OWLBOX")]:
        monkeypatch.delenv(name)
    for name, value in disk.environ.items():
        monkeypatch.setenv(name, value)
    wrong = []
    for line in WRITING:
        words = [word.replace("DISK", str(place)) for word in line.split()]
        if line.startswith(
            ("skill create", "init", "ask", "secret set", "serve", "people password", "chat", "worker start")
        ):  # wants streams or a child of its own
            done = disk.run(*words, text="sk-example-long")
            code, said = done.returncode, done.stderr
        else:
            code = cli.main([*([] if "--home" in words else ["--home", str(disk.home.root)]), *words])
            said = capsys.readouterr().err
        if (code, said.count("\n")) != (5, 1) or WORDS[fault] not in said or " (" not in said:
            wrong.append((line, code, said))
    assert not wrong, wrong
    for check in ("home", "disk"):
        done = disk.run("doctor", check)
        assert done.returncode == 1 and WORDS[fault] in done.stdout, (check, done.stdout)


@pytest.mark.parametrize("number", disk_faults.ON_A_DISK)
def test_an_error_of_ours_that_was_made_of_the_disks_is_the_disks(number: int, tmp_path: Path) -> None:
    try:
        try:
            raise OSError(number, os.strerror(number), str(tmp_path / "x"))
        except OSError as error:
            raise OwlError(f"cannot do it: {error.strerror}") from None
    except OwlError as error:
        found = disk_faults.explain_fault(error)
    assert found is not None and found.exit_code == 5 and str(tmp_path / "x") in found.message and found.hint
    assert disk_faults.explain_fault(NotFound("no such thing")) is None
    assert disk_faults.explain_fault(OSError(errno.EACCES, "no right", "x")) is None


class FailingFile(apsw.VFSFile):
    """A file whose disk gives an error for everything behind its first page."""

    def xRead(self, amount: int, offset: int) -> bytes:
        if offset >= 4096:
            failed = apsw.IOError("disk I/O error")
            failed.extendedresult = apsw.SQLITE_IOERR_CORRUPTFS  # what SQLite makes of EIO
            raise failed
        return super().xRead(amount, offset)


class FailingDisk(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
        return FailingFile("unix", name, flags)


def test_a_database_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with closing(new_store(tmp_path / "owlbox.db")):
        pass
    disk = FailingDisk()
    try:
        with (
            pytest.raises(DiskFailing, match="the disk is failing: .*owlbox.db") as failed,
            closing(Store.open(tmp_path / "owlbox.db")) as store,
        ):
            store.problems()
    finally:
        disk.unregister()
    assert "dmesg" in failed.value.hint
