"""Everything as readable files and back; backups that are sealed, and that go to another machine."""

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest
import sshd
from process import Box, a_box, end, until  # noqa: F401

from appliance.errors import BadInput, OwlError, Refused, StoreError
from appliance.service import sealed_backups
from appliance.store import table_lines

PASSPHRASE = "four words of mine"


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
    ],
)
def test_an_export_that_was_changed_is_refused(box: Box, tmp_path: Path, name: str, text: str, words: str) -> None:
    assert box.run("task", "add", "sweep").returncode == 0
    assert box.run("export", str(tmp_path / "out")).returncode == 0
    (tmp_path / "out" / name).write_text(text)
    done = box.run("import", str(tmp_path / "out"), "--home", str(tmp_path / "new"))
    assert done.returncode != 0 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


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
    assert sealed_backups.parse_place("sftp://u@h:2222/~/b") == sealed_backups.Place("u@h", "b", 2222)


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
        assert len(list((tmp_path / "far").iterdir())) == 1  # backups.keep
        assert box.run("restore", f"{place}/{far.name}").returncode != 0
        [far] = (tmp_path / "far").iterdir()
        done = box.run("restore", f"{place}/{far.name}", "--home", str(tmp_path / "new"))
        assert done.returncode == 0, done.stderr
        assert len(json.loads(box.run("task", "list", "--json", "--home", str(tmp_path / "new")).stdout)) == 2
    finally:
        end(server)
    done = box.run("backup", "--to", place)
    assert done.returncode != 0 and "try it by hand: sftp" in done.stderr
