"""A plain file on a disk that fails (EIO) or is damaged (EUCLEAN, EBADMSG): each command that reads it says so, and which file."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos_disk import FailingDisk
from needs import leave_out, needs
from process import Box, clean_environ, script
from recorded_disk import FSYNC, READ, WRITE, RecordedDisk
from stores import new_home
from test_disk_words import WRITING

from appliance.cli import main as cli
from appliance.runtime.paths import Home
from appliance.secrets.vault import Vault


class FailingFile(RecordedDisk):
    """A file of a file system of its own that gives an error for what is done with it."""

    def __init__(self, place: Path, content: bytes, number: int) -> None:
        self._number = number
        super().__init__(place, content)

    def _answer(self, operation: int, node: int, body: bytes) -> tuple[int, bytes]:
        return (self._number, b"") if operation in (READ, WRITE, FSYNC) else super()._answer(operation, node, body)


@contextmanager
def failing(path: Path, place: Path, number: int = errno.EIO) -> Iterator[None]:
    """Let a file that is there fail."""
    place.mkdir(exist_ok=True)
    try:
        disk = FailingFile(place, path.read_bytes(), number)
    except OSError as error:
        leave_out(f"no file system of one's own: {error}")
    try:
        subprocess.run(["mount", "--bind", str(disk.path), str(path)], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], capture_output=True)
        disk.close()


@pytest.fixture(name="home")
def a_home(tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    new_home(home := Home(tmp_path / "home"))
    for name in [name for name in os.environ if name.startswith("OWLBOX")]:
        monkeypatch.delenv(name)
    for name, value in clean_environ(tmp_path, runtime).items():
        monkeypatch.setenv(name, value)
    for line in (["note", "the roof leaks"], ["backup", "--to", str(tmp_path / "backups")], ["export", str(tmp_path / "export")]):
        assert cli.main(["--home", str(home.root), *line]) == 0
    Vault(home.vault).set("llm/openai", "sk-example")
    home.logs.mkdir(exist_ok=True)
    (home.logs / "cli.log").write_text("{}\n")
    (tmp_path / "paper.md").write_text("# Owls\n\nThey hunt at night.\n")
    return home


# A file, and the commands that need it.
READ_BY = {
    "backups/*.zip": ["restore FILE", "restore FILE --home PLACE/other"],
    "export/manifest.json": ["import PLACE/export --home PLACE/other"],
    "export/tables/entries.jsonl": ["import PLACE/export --home PLACE/other"],
    "export/box/USER.md": ["import PLACE/export --home PLACE/other"],
    "paper.md": ["context add FILE", "skill install FILE"],
    "home/owlbox.toml": ["status", "config set system.timezone Europe/Berlin", "task list", "backup", "doctor configuration"],
    "home/box/USER.md": ["backup", "export PLACE/again", "document view USER"],
    "home/box/notes/*.md": ["backup", "export PLACE/again"],
    "home/vault/secrets": ["secret list", "doctor vault"],
    "home/vault/key-*": ["doctor vault"],
    "home/logs/cli.log": ["logs"],
}
LISTED = ("context", "doctor")  # what is found is their answer


@needs(root=True)
@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN, errno.EBADMSG])
def test_what_cannot_be_read_is_the_disks_fault(
    home: Home, tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for name in READ_BY if number == errno.EIO else ("paper.md", "home/owlbox.toml"):
        [path] = tmp_path.glob(name)
        with failing(path, tmp_path / "served", number):
            for line in READ_BY[name]:
                words = line.replace("FILE", str(path)).replace("PLACE", str(tmp_path)).split()
                code = cli.main([*([] if "--home" in words else ["--home", str(home.root)]), *words])
                told = capsys.readouterr()
                said = told.err or told.out
                is_told = all(one in said for one in ("the disk is failing", str(path), "dmesg"))
                if code != (1 if words[0] in LISTED else 5) or not is_told:
                    wrong.append((line, code, said))
    assert not wrong, "\n".join(map(str, wrong))
    assert not (tmp_path / "other/owlbox.db").exists(), "no home is made of half an export"


@needs("mkfs.ext4", "losetup", root=True)
def test_what_cannot_be_written_is_the_disks_fault(tmp_path: Path, runtime: Path) -> None:
    (place := tmp_path / "disk").mkdir()
    try:
        disk = FailingDisk(place)
    except (OSError, subprocess.CalledProcessError) as error:
        leave_out(f"no disk of one's own: {error}")
    try:
        box = Box(Home(place / "home"), clean_environ(tmp_path, runtime))
        new_home(box.home)
        script(box, '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n')
        for line in (["note", "it leaks"], ["backup", "--to", str(tmp_path / "backups")], ["export", str(tmp_path / "export")]):
            assert box.run(*line).returncode == 0
        [saved] = (tmp_path / "backups").glob("*.zip")
        wrong = []
        disk.fail()
        for line in WRITING:
            words = line.replace("SAVED/backups", str(saved)).replace("SAVED", str(tmp_path)).replace("DISK", str(place)).split()
            done = box.run(*words, text="sk-example-long")
            said = done.stderr.splitlines()[-1:]
            if done.returncode != 5 or not all("the disk is failing" in one and "dmesg" in one for one in said or [""]):
                wrong.append((line, done.returncode, done.stderr))
        assert not wrong, "\n".join(map(str, wrong))
        disk.mend()
        assert box.run("note", "it is dry").returncode == 0 and "leaks" in box.run("search", "leaks").stdout
    finally:
        disk.close()
