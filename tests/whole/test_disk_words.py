"""A full, read-only, inode-less or failing disk is told alike by every command, tool and method: what is wrong, and what to do."""

import argparse
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from needs import leave_out, needs
from process import Box, clean_environ, script
from proof import IS_WHOLE, part
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
    "restore SAVED/backups",
    "import SAVED/export --home DISK/new",
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
        for _ in range(20):  # a file may be made meanwhile
            space = os.statvfs(place)
            option = "ro" if fault == "read-only" else f"nr_inodes={space.f_files - space.f_ffree}"
            if not subprocess.run(["mount", "-o", f"remount,{option}", str(place)], capture_output=True).returncode:
                return
        raise AssertionError(f"the disk stays as it is: {option}")


@needs(root=True)
@pytest.mark.parametrize("fault", WORDS)
def test_every_command_that_writes_names_the_fault(
    disk: Box, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = disk.home.root.parent
    for name in [name for name in os.environ if name.startswith("OWLBOX")]:
        monkeypatch.delenv(name)
    for name, value in disk.environ.items():
        monkeypatch.setenv(name, value)
    for line in (["backup", "--to", str(tmp_path / "backups")], ["export", str(tmp_path / "export")]):
        assert cli.main(["--home", str(disk.home.root), *line]) == 0
    [saved] = (tmp_path / "backups").glob("*.zip")
    capsys.readouterr()
    break_disk(place, fault)
    wrong = []
    for line in WRITING:
        line = line.replace("SAVED/backups", str(saved)).replace("SAVED", str(tmp_path))
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


# Commands that are not walked through below: they go on until somebody leaves, ask a model or a server, or change the installation.
NOT_WALKED = """
ask chat tui prompt-size init serve broker web onboard restore import update doctor door docs help completion metrics
thread.follow task.watch worker.run worker.start secret.set secret.rotate secret.unlock people.password document.edit mcp.auth
model.add model.bench model.remote model.providers skill.install skill.prepare channel.test mcp.import-global call
""".split()
GIVEN = {
    "address": "mail/x@example.org",
    "at": "1",
    "when": "never",
    "frequency": "every day at 7",
    "start": "1",
    "schedule": "0 9 * * *",
}
GIVEN |= {
    "folder": "DISK/export",
    "value": "Europe/Berlin",
    "key": "system.timezone",
    "origins": "web",
    "length": "2h",
    "length_": "2h",
}
RAW = ("No space", "Read-only file", "Input/output error", "internal error", "Traceback", "failed inside")


def leafs(made: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[argparse.Action]]]:
    """Every command, and the arguments that it must be given."""
    below = [action for action in made._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield words, [one for one in made._actions if (not one.option_strings and one.nargs not in ("?", "*")) or one.required]
    for action in below:
        for name, one in action.choices.items():
            yield from leafs(one, (*words, name))


def command_lines(place: Path, ids: dict[str, str]) -> Iterator[list[str]]:
    """A line for each command, with what there is in the home."""
    for words, needed in leafs(cli.whole_parser()):
        if words[0] in NOT_WALKED or ".".join(words) in NOT_WALKED:
            continue
        line = list(words)
        for one in needed:
            value = ids.get(f"{words[0]}.{one.dest}") or ids.get(one.dest) or GIVEN.get(one.dest, "1" if one.type is int else "x")
            value = next(iter(one.choices)) if one.choices else value
            line += [*one.option_strings[:1], value.replace("DISK", str(place))]
        yield line


def walk(box: Box, capsys: pytest.CaptureFixture[str], ids: dict[str, str], words: str) -> tuple[list[tuple[str, int, str]], int]:
    """What is told wrongly, and how often the fault is named."""
    wrong, named, standing = [], 0, sys.stdin
    with open(os.devnull, encoding="utf-8") as sys.stdin:
        for line in part(command_lines(box.home.root.parent, ids), 2):
            try:
                code = cli.main(["--home", str(box.home.root), *line])
            except SystemExit as error:
                code = int(str(error.code or 0))
            said = capsys.readouterr().err
            named += words in said
            is_told = words in said and code == 5 and said.count("\n") == 1 and " (" in said
            if words in said and not is_told or any(raw in said for raw in RAW) and not is_told:
                wrong.append((" ".join(line), code, said))
    sys.stdin = standing
    return wrong, named


@needs(root=True)
@pytest.mark.parametrize("fault", [*WORDS, "failing"])
def test_every_command_there_is_names_the_fault_it_meets(
    disk: Box, fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OWLBOX")]:
        monkeypatch.delenv(name)
    for name, value in disk.environ.items():
        monkeypatch.setenv(name, value)
    core = disk.serve()
    assert disk.run("ask", "hi").returncode == 0
    for line in ("task add sweep", "schedule add x --frequency hourly", "memory add the well is deep", "people add ben"):
        assert disk.run(*line.split()).returncode == 0, line
    thread, session = disk.json("thread", "list")[0]["id"], disk.json("session", "list")[0]["id"]
    ids = {"run": thread, "thread": thread, "thread.id": thread, "session": session, "session.id": session, "person": "ben"}
    ids |= {"schedule.id": "x", "memory.key": str(next(iter(disk.json("memory", "list")[0].values()))), "ref": "box://USER.md"}
    if fault in ("read-only", "failing"):
        assert core.stop() == 0
    if fault == "failing":
        failing = FailingDisk()
        try:
            wrong, named = walk(disk, capsys, ids, "the disk is failing")
        finally:
            failing.unregister()
    else:
        break_disk(disk.home.root.parent, fault)
        if fault == "read-only":
            core = disk.serve()
        wrong, named = walk(disk, capsys, ids, WORDS[fault])
    assert not wrong, "\n".join(map(str, wrong))
    assert named > (5 if fault == "inodes" else 25) // (1 if IS_WHOLE else 3), named  # the database needs no new file


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
