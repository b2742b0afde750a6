"""Everything as readable files and back; backups that are sealed, and that go to another machine."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sshd
from process import Box, a_box, end, until  # noqa: F401

from appliance.errors import BadInput, OwlError, Refused, StoreError
from appliance.runtime.paths import Home
from appliance.store import table_lines
from appliance.upkeep import exports, restore, sealed_backups

PASSPHRASE = "four words of mine"
KILLED = """
import os, sys
from pathlib import Path
from appliance.runtime.paths import Home
from appliance.upkeep import exports
def die(event, args):
    if event == "open" and "schedules.json" in str(args[0]):
        os.kill(os.getpid(), 9)
sys.addaudithook(die)
exports.write(Home(Path("{home}")), Path("{out}"))
"""


def settled(line: str) -> dict[str, object]:
    """A row without what follows from the rest: when it was indexed."""
    return {name: value for name, value in json.loads(line).items() if name != "indexed_ms"}


def rows(box: Box) -> dict[str, list[str]]:
    with box.store() as store:
        return {table: list(table_lines.write_lines(store, table)) for table in table_lines.list_tables(store)}


@pytest.mark.covers("A-006", "A-007")
def test_an_export_is_readable_and_makes_the_same_home_again(box: Box, tmp_path: Path) -> None:
    for words in (["ask", "hi"], ["task", "add", "sweep"], ["remind", "in 2 hours", "tea"], ["remember", "the well is deep"]):
        assert box.run(*words).returncode == 0, words
    (box.home.box / "notes").mkdir(exist_ok=True)
    (box.home.box / "notes/garden.md").write_text("Beans by the wall.\n")
    with box.store() as store, store.write() as execute:
        execute("INSERT INTO changesets (run, seq, change, at_ms) VALUES ('r', 1, x'00ff10', 1)")
    out = tmp_path / "out"
    assert box.run("export", str(out)).returncode == 0
    [session] = (out / "sessions").iterdir()
    lines = [json.loads(line) for line in session.read_text().splitlines()]
    assert lines[0]["kind"] == "ask" and [line["content"] for line in lines[1:]][0] == "hi" and lines[1]["at"].endswith("Z")
    assert list(csv.DictReader((out / "tasks.csv").open()))[0]["name"] == "sweep"
    assert "tea" in json.dumps(json.loads((out / "schedules.json").read_text()))
    assert any("the well is deep" in path.read_text() for path in out.rglob("*.md"))
    assert (out / "box/notes/garden.md").read_text() == "Beans by the wall.\n" and (out / "owlbox.toml").exists()
    before = rows(box)
    assert box.run("export", str(out)).returncode != 0  # it is not empty
    new = box.home.root.parent / "again"
    done = box.run("import", str(out), "--home", str(new))
    assert done.returncode == 0, done.stderr
    second_out = tmp_path / "second"
    assert box.run("export", str(second_out), "--home", str(new)).returncode == 0
    for table, lines_before in before.items():
        now = (second_out / f"tables/{table}.jsonl").read_text().split("\n")[:-1]
        assert [settled(line) for line in now] == [settled(line) for line in lines_before], table
    found = box.run("search", "well", "--home", str(new)).stdout
    assert "deep" in found and box.run("doctor", "database", "--home", str(new)).returncode == 0
    done = box.run("import", str(out), "--home", str(new))
    assert done.returncode != 0 and "import into a new home" in done.stderr


@pytest.mark.covers("R-204")
def test_each_turn_of_a_run_is_a_text_file_to_read_later(box: Box, tmp_path: Path) -> None:
    box.environ["OWLBOX__RUNS__COPIES"] = "all"
    assert box.run("ask", "hi").returncode == 0 and box.run("ask", "hi there").returncode == 0
    assert "wrote 1 turns" in box.run("export", "--run", "latest", str(tmp_path / "a")).stdout
    text = (tmp_path / "a/turn-001.txt").read_text()
    assert "== system\n" in text and "== user\n" in text and "hi there" in text and "== answer\nHoot hoot." in text
    first = box.json("thread", "list")[-1]["id"]
    assert box.run("export", "--run", first, str(tmp_path / "b")).returncode == 0
    assert "hi there" not in (tmp_path / "b/turn-001.txt").read_text()
    assert box.run("export", "--run", "nonesuch", str(tmp_path / "c")).returncode == 3


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("manifest.json", "{}", "cannot be read"),
        ("tables/tasks.jsonl", "", "holds other rows"),
        ("tables/tasks.jsonl", "[1\n", "a line in"),
        ("tables/tasks.jsonl", "[" * 100_000 + "\n", "a line in"),
        ("manifest.json", "[" * 100_000, "cannot be read"),
        ("manifest.json", '{"owlbox": "1", "database": 10, "at": "", "rows": {"tasks": "many"}}', "cannot be read"),
        ("manifest.json", " " * 5_000_000, "is not a plain file of at most"),
        ("UNFINISHED", "", "is not whole"),
    ],
)
def test_an_export_that_was_changed_is_refused(box: Box, tmp_path: Path, name: str, text: str, words: str) -> None:
    assert box.run("task", "add", "sweep").returncode == 0
    assert box.run("export", str(tmp_path / "out")).returncode == 0
    (tmp_path / "out" / name).write_text(text)
    done = box.run("import", str(tmp_path / "out"), "--home", str(tmp_path / "new"))
    assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["owlbox.lock"]  # nothing half made


def test_an_import_takes_plain_files_alone(box: Box, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    out, number = tmp_path / "out", 0
    exports.write(box.home, out)
    (out / "box/notes").mkdir(exist_ok=True)
    (out / "box/notes/link.md").symlink_to(tmp_path / "secret")
    os.mkfifo(out / "box/notes/pipe.md")
    (out / "box/runs.sh").write_text("x")
    (out / "box/runs.sh").chmod(0o4777)
    new = Home(tmp_path / "new")
    new.root.mkdir()
    exports.read(new, out)
    assert (new.box / "runs.sh").stat().st_mode & 0o7777 == 0o775
    assert (new.box / "SOUL.md").exists() and list((new.box / "notes").iterdir()) == []
    assert sorted(path.name for path in new.backups.iterdir()) == []
    for name in ("manifest.json", "owlbox.toml", "tables/entries.jsonl", "box"):
        for make in (
            (lambda path: path.symlink_to(tmp_path / "secret"), os.mkfifo)
            if name != "box"
            else (lambda path: path.symlink_to(tmp_path),)
        ):
            (out / name).rename(tmp_path / "kept")
            make(out / name)
            home = Home(tmp_path / f"home{(number := number + 1)}")
            home.root.mkdir()
            with pytest.raises(BadInput, match="plain file|is a link"):
                exports.read(home, out)
            assert list(home.root.iterdir()) == []
            (out / name).unlink()
            (tmp_path / "kept").rename(out / name)


def test_an_export_that_was_cut_off_says_so_and_is_made_again(box: Box, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = KILLED.format(home=box.home.root, out=out)
    assert subprocess.run([sys.executable, "-c", script], env=box.environ).returncode == -9
    assert (out / "tables").is_dir() and "cut off" in (out / "UNFINISHED").read_text()
    done = box.run("import", str(out), "--home", str(tmp_path / "new"))
    assert done.returncode == 2 and "its export was cut off" in done.stderr and f"owlbox export {out}" in done.stderr
    (out / "mine.txt").write_text("not written by an export")
    done = box.run("export", str(out))
    assert done.returncode != 0 and "is not empty" in done.stderr and (out / "tables").is_dir()
    (out / "mine.txt").unlink()
    assert box.run("export", str(out)).returncode == 0 and not (out / "UNFINISHED").exists()
    assert box.run("import", str(out), "--home", str(tmp_path / "new")).returncode == 0


def ignore(stage: str, done: int, total: int) -> None:
    """Nobody watches."""


@pytest.mark.parametrize("size", [0, 1, sealed_backups.PIECE, sealed_backups.PIECE + 1])
def test_what_is_sealed_opens_again_with_the_same_words_alone(tmp_path: Path, size: int) -> None:
    source, sealed, opened = (tmp_path / name for name in ("a", "b", "c"))
    source.write_bytes(os.urandom(size))
    sealed_backups.seal(source, sealed, PASSPHRASE, ignore)
    assert sealed_backups.is_sealed(sealed) and not sealed_backups.is_sealed(source)
    sealed_backups.unseal(sealed, opened, PASSPHRASE, ignore)
    assert opened.read_bytes() == source.read_bytes() and sealed.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Refused, match="does not open with this passphrase"):
        sealed_backups.unseal(sealed, tmp_path / "d", "other words", ignore)
    data = sealed.read_bytes()
    for number, spoilt in enumerate((data[:-1], data[:-20] + bytes([data[-20] ^ 1]) + data[-19:], data + b"more")):
        sealed.write_bytes(spoilt)
        with pytest.raises(OwlError):
            sealed_backups.unseal(sealed, tmp_path / f"e{number}", PASSPHRASE, ignore)
        assert not (tmp_path / f"e{number}").exists()
    if size > sealed_backups.PIECE:  # a whole piece that is missing
        sealed.write_bytes(data[: data.index(b"\n") + 1 + 4 + sealed_backups.PIECE + 28])
        with pytest.raises((StoreError, Refused)):
            sealed_backups.unseal(sealed, tmp_path / "f", PASSPHRASE, ignore)


@pytest.mark.parametrize(
    "told",
    [
        *({"rounds": 10**12}, {"rounds": 0}, {"rounds": "many"}, {"salt": "zz" * 16}, {"salt": "ab" * 15}, {"salt": "ab" * 400}),
        *({"salt": 5}, {"format": 2}),
    ],
)
def test_what_a_sealed_file_says_of_its_key_is_bounded(box: Box, tmp_path: Path, told: dict[str, object]) -> None:
    head = {"what": sealed_backups.MAGIC, "format": 1, "salt": "ab" * 16, "rounds": 600_000}
    path = tmp_path / "a.zip.sealed"
    path.write_bytes(json.dumps({**head, **told}).encode() + b"\n" + bytes(100))
    assert not sealed_backups.is_sealed(path)
    with pytest.raises(StoreError, match="a sealed backup whose first line this owlbox does not take"):
        restore.is_archive(path)


def test_heads_that_are_deep_and_pieces_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip.sealed"
    path.write_bytes(b"[" * 5000)
    assert not sealed_backups.is_sealed(path)
    head = json.dumps({"what": sealed_backups.MAGIC, "format": 1, "salt": "ab" * 16, "rounds": 1}).encode() + b"\n"
    for rest in (b"\xff\xff\xff\xff" + bytes(9), b"\x40\0\0\0" + bytes(9), b"", b"\0\0\0\0", b"\x02"):
        path.write_bytes(head + rest)
        with pytest.raises(StoreError, match="damaged or cut off"):
            sealed_backups.unseal(path, tmp_path / "out", PASSPHRASE, ignore)
        assert not (tmp_path / "out").exists()


def test_of_two_backups_of_the_same_second_the_second_is_kept(tmp_path: Path) -> None:
    for name in (
        "owlbox-20260101T000000Z.zip.sealed",
        "owlbox-20260102T000000Z.zip.sealed",
        "owlbox-20260102T000000Z-2.zip.sealed",
    ):
        (tmp_path / name).write_bytes(b"")
    newest = [sealed_backups.in_order(path.name) for path in tmp_path.iterdir()]
    assert max(newest) == ("20260102T000000Z", 2) and min(newest) == ("20260101T000000Z", 1)


@pytest.mark.parametrize(
    "text", ["http://a/b", "sftp://", "sftp://u:p@host/x", 'sftp://host/a"b', "sftp://-oProxyCommand=x/y", "sftp://h:99999/"]
)
def test_places_that_are_none_are_named(text: str) -> None:
    with pytest.raises(BadInput):
        sealed_backups.parse_place(text)
    assert sealed_backups.parse_place("sftp://u@h:2222/~/b") == sealed_backups.SftpFolder("u@h", "b", 2222)


def test_a_sealed_backup_on_a_stick_is_restored(box: Box, tmp_path: Path) -> None:
    stick, key = tmp_path / "stick", tmp_path / "key"
    assert box.run("task", "add", "sweep").returncode == 0
    done = box.run("backup", "--encrypt")
    assert done.returncode == 2 and "--to" in done.stderr
    key.write_text("short\n")
    box.environ["OWLBOX__BACKUPS__KEY_FILE"] = str(key)
    done = box.run("backup", "--to", str(stick))
    assert done.returncode == 2 and "at least 8" in done.stderr
    key.write_text(f"{PASSPHRASE}\n")
    done = box.run("backup", "--to", str(stick))
    assert done.returncode == 0 and "sealed" in done.stdout, done.stderr
    [sealed] = stick.iterdir()
    assert b"sweep" not in sealed.read_bytes() and sealed.name in box.run("backup", "list", "--to", str(stick)).stdout
    core = box.serve()
    # A core that has just started may still write.
    until(lambda: not core.call("backup.make")["is_new"], "nothing more is written")
    made, again = core.call("backup.make"), core.call("backup.make")
    assert (made["file"], again["is_new"]) == (again["file"], False) and core.call("backup.list")[0]["file"] == made["file"]
    assert core.stop() == 0
    assert box.run("task", "add", "dust").returncode == 0
    assert "nothing was changed" in box.run("restore", str(sealed), "--dry-run").stdout
    assert box.run("restore", str(sealed)).returncode == 0
    assert [one["name"] for one in box.json("task", "list")] == ["sweep"]
    key.write_text("other words than before\n")
    done = box.run("restore", str(sealed))
    assert done.returncode == 4 and "passphrase" in done.stderr and not list(box.home.root.glob(".restoring-*"))


@pytest.mark.skipif(not sshd.SSHD, reason="needs sshd (package openssh-server)")
def test_backups_go_to_another_machine_by_sftp_and_come_back(box: Box, tmp_path: Path) -> None:
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "sshd").write_text(sshd.LAX.format(folder=tmp_path))
    port = sshd.free_port()
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True) if os.geteuid() == 0 else None
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([sshd.SSHD, "-D", "-e", "-f", str(tmp_path / "sshd"), "-p", str(port)], stdout=log, stderr=log)
    try:
        until(lambda: sshd.is_listening(port), "sshd listens")
        options = f"IdentityFile {tmp_path}/key\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
        (tmp_path / "ssh").write_text(options)
        box.environ |= {"OWLBOX_SSH_CONFIG": str(tmp_path / "ssh"), "OWLBOX__BACKUPS__KEEP": "1"}
        place = f"sftp://{sshd.USER}@127.0.0.1:{port}{tmp_path}/far"
        assert box.run("task", "add", "sweep").returncode == 0
        done = box.run("backup", "--to", place)
        assert done.returncode == 0, done.stderr
        [far] = (tmp_path / "far").iterdir()
        assert far.name in box.run("backup", "list", "--to", place).stdout
        assert box.run("task", "add", "dust").returncode == 0
        assert box.run("backup", "--to", place).returncode == 0
        [newest] = (tmp_path / "far").iterdir()  # backups.keep: one goes for one that is made
        assert newest.name != far.name
        assert box.run("restore", f"{place}/{far.name}").returncode != 0
        far = newest
        done = box.run("restore", f"{place}/{far.name}", "--home", str(tmp_path / "new"))
        assert done.returncode == 0, done.stderr
        assert len(json.loads(box.run("task", "list", "--json", "--home", str(tmp_path / "new")).stdout)) == 2
    finally:
        end(server)
    done = box.run("backup", "--to", place)
    assert done.returncode != 0 and "try it by hand: sftp" in done.stderr
