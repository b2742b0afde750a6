"""What goes wrong is said in one line: the value, the next step, the right exit code, and nothing half-written."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import model_file, model_home  # noqa: F401
from needs import leave_out, needs
from process import Box, a_box, a_shared_box, clean_environ, script, tree  # noqa: F401
from stores import new_home

from appliance.runtime.paths import Home
from appliance.store.database import Store

NOBODY = 65534
needs_root = needs(root=True)  # to become another user, or to mount a small disk


def assert_told(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """One line on standard error with these words, this exit code, and nothing on standard output."""
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("owlbox: "), done.stderr
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert done.stdout == ""


# name: (command, standard input, exit code, words of the message)
WORDS: dict[str, tuple[list[str], bytes, int, list[str]]] = {
    "unknown command": (["stauts"], b"", 2, ["stauts", "did you mean status?"]),
    "unknown action": (["thread", "vew"], b"", 2, ["vew", "did you mean view?"]),
    "unknown option": (["status", "--nope"], b"", 2, ["--nope", "--help"]),
    "missing argument": (["thread", "view"], b"", 2, ["id", "--help"]),
    "home without a folder": (["--home"], b"", 2, ["--home", "--help"]),
    "unknown thread": (["thread", "view", "feedbeef"], b"", 3, ["feedbeef", "thread list"]),
    "unknown thread to ask in": (["ask", "--thread", "feedbeef", "hi"], b"", 3, ["feedbeef", "thread list"]),
    "unknown thread to chat in": (["chat", "--thread", "feedbeef"], b"hi\n", 3, ["feedbeef", "thread list"]),
    "unknown role": (["thread", "view", "feedbeef", "--only", "owl"], b"", 2, ["owl", "assistant"]),
    "limit no number": (["thread", "list", "--limit", "many"], b"", 2, ["many", "--help"]),
    "limit too small": (["thread", "list", "--limit", "0"], b"", 2, ["limit", ">= 1", "got 0"]),
    "limit past any number": (["thread", "list", "--limit", "9" * 20], b"", 2, ["limit", "1000", "9" * 20]),
    "search limit too large": (["search", "owl", "--limit", "5000"], b"", 2, ["limit", "50"]),
    "interval too short": (["thread", "follow", "--interval", "1"], b"", 2, ["1 ms", "50"]),
    "nothing to search": (["search", "!!"], b"", 2, ["!!"]),
    "unknown note": (["read", "memory://notes/none"], b"", 3, ["memory:/notes/none", "context tree"]),
    "empty question": (["ask"], b"", 2, ["nothing to ask", "owlbox ask"]),
    "blank question": (["ask", "   "], b"\n\n", 2, ["nothing to ask", "owlbox ask"]),
    "long question": (["ask"], b"x" * 200_000, 2, ["200000", "100000", "note"]),
    "unknown model": (["model", "add", "smolm2"], b"", 3, ["smolm2", "did you mean smollm2?"]),
    "no such model file": (["model", "add", "/nowhere/x.gguf"], b"", 3, ["/nowhere/x.gguf"]),
    "docs nowhere": (["docs", "--write", "/nowhere/docs"], b"", 1, ["/nowhere/docs", "No such file"]),
    "reload without a core": (["reload"], b"", 3, ["no core", "every start"]),
}


@pytest.fixture(scope="module", name="settled")
def a_settled_box(shared_box: Box) -> Box:
    """The documents of a new home have become entries, as they do at the first look."""
    assert shared_box.run("entry", "list").returncode == 0
    return shared_box


@pytest.mark.parametrize("case", WORDS)
def test_bad_words(settled: Box, case: str) -> None:
    words, given, code, expected = WORDS[case]
    before = tree(settled.home.root)
    assert_told(settled.run(*words, text=given), code, *expected)
    assert tree(settled.home.root) == before


@pytest.mark.parametrize("case", ["unknown thread", "unknown command", "limit no number", "empty question", "unknown note"])
def test_errors_are_json_for_programs(settled: Box, case: str) -> None:
    words, given, code, expected = WORDS[case]
    done = settled.run("--json", *words, text=given)
    error = json.loads(done.stderr)["error"]
    assert done.returncode == code and expected[0] in error["message"] and set(error) == {"status", "outcome", "message", "hint"}


# name: (text of owlbox.toml, environment, words of the message)
CONFIGURATIONS: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "broken TOML": ("[system]\nname = owl\n", {}, ["owlbox.toml", "line 2", "docs/reference/configuration.md"]),
    "not UTF-8": ("", {}, ["owlbox.toml", "line 1", "UTF-8"]),
    "unknown key": ("[models]\nthraeds = 2\n", {}, ["models.thraeds", "did you mean models.threads?"]),
    "unknown table": ("[modles]\nthreads = 2\n", {}, ["modles", "did you mean models?"]),
    "wrong type": ('[models]\nthreads = "two"\n', {}, ["models.threads", "'two'", "whole number"]),
    "out of range": ("[models]\nthreads = 9999\n", {}, ["models.threads", "9999", "256"]),
    "unset variable": ('[system]\nname = "${OWL_NAME}"\n', {}, ["OWL_NAME", "${OWL_NAME:-}"]),
    "bad variable": ("", {"OWLBOX__MODELS__THREADS": "two"}, ["OWLBOX__MODELS__THREADS", "'two'", "whole number"]),
    "unknown variable": ("", {"OWLBOX__MODELS__THRAEDS": "2"}, ["OWLBOX__MODELS__THRAEDS", "did you mean models.threads?"]),
    "unknown pool": ('[models]\npool = "nosuch"\n', {}, ["models.pool", "nosuch", "default"]),
}


@pytest.mark.parametrize(
    ("case", "command"), [*((case, "serve") for case in CONFIGURATIONS), ("broken TOML", "ask"), ("unknown variable", "ask")]
)
def test_bad_configuration(box: Box, case: str, command: str) -> None:
    text, environ, expected = CONFIGURATIONS[case]
    box.home.config.write_bytes(text.encode() if case != "not UTF-8" else b"name = '\xff'\n")
    before = tree(box.home.root)
    words = [command] if command == "serve" else [command, "hello"]
    assert_told(box.run(*words, **environ), 2, *expected)
    assert tree(box.home.root) == before


# -- models -----------------------------------------------------------------------------------------


def spoil(box: Box, content: bytes) -> None:
    """Without a script, with this as the only model."""
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    if content:
        (box.home.models / "owl.gguf").write_bytes(content)


def beginning(model_file: Path, size: int) -> bytes:  # noqa: F811
    with model_file.open("rb") as file:
        return file.read(size)


MODELS: dict[str, tuple[Callable[[Path], bytes], list[str]]] = {
    "none": (lambda path: b"", ["no model in", "owlbox model add smollm2"]),
    "cut off": (lambda path: beginning(path, 5_000_000), ["owl.gguf"]),
    "cut off in the header": (lambda path: beginning(path, 100), ["owl.gguf"]),
    "something else": (lambda path: b"<html>not a model</html>" * 100, ["owl.gguf"]),
}


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("has_core", [False, True])
def test_a_model_that_cannot_be_used(box: Box, model_file: Path, case: str, has_core: bool) -> None:  # noqa: F811
    content, expected = MODELS[case]
    spoil(box, content(model_file))
    core = box.serve() if has_core else None
    done = box.run("ask", "hello")
    assert done.returncode in (1, 2, 5) and done.returncode == (5 if case == "none" else done.returncode)
    assert_told(done, done.returncode, *expected)
    (thread,) = box.json("thread", "list")
    assert thread["status"] == 500 and box.run("search", "owls").returncode == 0
    assert core is None or core.stop() == 0


# -- the home -----------------------------------------------------------------------------------------


def test_no_home(tmp_path: Path, runtime: Path) -> None:
    box = Box(Home(tmp_path / "none"), clean_environ(tmp_path, runtime))
    for words in (["ask", "hi"], ["serve"], ["status"], ["doctor"], ["thread", "list"], ["model", "list"], ["remember", "x"]):
        assert_told(box.run(*words), 3, str(box.home.root), "owlbox init")
    assert not box.home.root.exists()


# The checkout may lie where that user cannot look: all is imported and read before.
AS_NOBODY = f"""
import encodings.utf_8_sig, os, sys
from appliance.cli import backup, main as cli, screen, service, session
from appliance.console import tool_command
from appliance.service import core, daemon
from appliance.upkeep import backups, home_setup, restore
tool_command.commands()
os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
for line in sys.argv.pop().splitlines():
    print(cli.main([*sys.argv[1:], *line.split()]), flush=True)
"""


def as_nobody(box: Box, *lines: str) -> "Iterator[subprocess.CompletedProcess[str]]":
    """Commands by a user who owns nothing, one after the other in one process; each says one line."""
    command = [sys.executable, "-c", AS_NOBODY, "--home", str(box.home.root), "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, env=box.environ, cwd="/", timeout=180)
    codes, said = done.stdout.split(), done.stderr.splitlines(keepends=True)
    assert len(codes) == len(said) == len(lines), done
    for line, code, words in zip(lines, codes, said, strict=True):
        yield subprocess.CompletedProcess(line, int(code), "", words)


@needs_root
def test_a_home_of_another_user(runtime: Path) -> None:
    runtime.chmod(0o755)
    box = Box(Home(runtime / "home"), {**os.environ, **clean_environ(runtime, runtime / "run")})
    new_home(box.home)
    (runtime / "run").mkdir()
    os.chown(runtime / "run", NOBODY, NOBODY)
    before = tree(box.home.root)
    for done in as_nobody(box, "ask hi", "serve", "thread list", "init", "init --force"):
        assert_told(done, 2, str(box.home.root), "--home")
    assert tree(box.home.root) == before


@needs_root
def test_a_closed_file_is_named_with_what_shows_whose_it_is(runtime: Path) -> None:
    runtime.chmod(0o755)
    box = Box(Home(runtime / "home"), {**os.environ, **clean_environ(runtime, runtime / "run")})
    new_home(box.home)
    (runtime / "run").mkdir()
    (runtime / "closed").mkdir(0o700)
    for path in (runtime / "run", box.home.root, *box.home.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    for done in as_nobody(box, f"restore {runtime}/closed/x.zip", f"backup --to {runtime}/closed/x"):
        assert_told(done, 1, f"{runtime}/closed/x", "Permission denied", "ls -ld ")


DATABASES: dict[str, tuple[Callable[[Path], Any], int, list[str]]] = {
    "damaged": (lambda path: scribble(path), 1, ["owlbox.db", "damaged", "backups"]),
    "something else": (lambda path: path.write_text("Dear diary\n" * 500), 1, ["owlbox.db", "not a database", "backups"]),
    "newer": (lambda path: change(path, "PRAGMA user_version = 999"), 1, ["owlbox.db", "version 999", "update owlbox"]),
    "another program's": (lambda path: change(path, "PRAGMA application_id = 7"), 1, ["another application", "--home"]),
    "gone": (lambda path: path.unlink(), 3, ["owlbox.db", "owlbox init --force"]),
}


def scribble(path: Path) -> None:
    """Damage the first page, behind its magic words."""
    with path.open("r+b") as file:
        file.seek(16)
        file.write(b"\xa5" * 4000)


def change(path: Path, sql: str) -> None:
    store = Store.open(path)
    with store.write() as execute:
        execute(sql)
    store.close()


@pytest.mark.parametrize("case", DATABASES)
@pytest.mark.parametrize("words", [["serve"], ["ask", "hi"]])
def test_a_database_that_cannot_be_used(box: Box, case: str, words: list[str]) -> None:
    spoil_it, code, expected = DATABASES[case]
    spoil_it(box.home.database)
    before = tree(box.home.root)
    assert_told(box.run(*words), code, *expected)
    assert tree(box.home.root) == before


def test_a_core_after_a_crash_looks_for_damage_before_it_serves(box: Box) -> None:
    box.run("remember", "word " * 20_000, "--title", "long")
    core = box.serve()
    core.kill()
    with box.store() as store:
        store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    size = box.home.database.stat().st_size
    with box.home.database.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 8192)
    done = box.run("serve")
    assert_told(done, 1, "owlbox.db", "damaged")


# -- the machine --------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["serve"], ["ask", "hi"]])
def test_a_socket_path_that_is_too_long(box: Box, words: list[str]) -> None:
    long = Path(box.environ["XDG_RUNTIME_DIR"]) / ("deep" * 25)
    long.mkdir(mode=0o700)
    skip = ("logs", "owlbox.db", "owlbox.db-wal", "owlbox.db-shm")  # the notes of box/ may be taken in
    before = tree(box.home.root, skip)
    done = box.run(*words, XDG_RUNTIME_DIR=str(long))
    assert_told(done, 2, str(long), "107")
    if words[0] == "ask":
        assert tree(box.home.root, skip) == before and box.json("thread", "list") == []
    assert box.run("remember", "no socket needed", XDG_RUNTIME_DIR=str(long)).returncode == 0


def test_a_runtime_folder_that_others_can_read_is_refused(box: Box) -> None:
    folder = box.runtime
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    assert_told(box.run("serve"), 2, str(folder), "XDG_RUNTIME_DIR")


def test_a_link_that_leads_nowhere_is_no_runtime_folder(box: Box) -> None:
    box.runtime.symlink_to("/nonexistent/elsewhere")
    assert_told(box.run("status"), 2, "not a private folder", "XDG_RUNTIME_DIR")


def test_an_error_line_never_steers_the_terminal(box: Box) -> None:
    done = box.run("entry", "view", "box://\x1b[2J\u009b2J\u202e")
    assert_told(done, done.returncode, "box://")
    assert done.returncode and not set(done.stderr) & set("\x1b\u009b\u202e")


@pytest.fixture
def small_disk(runtime: Path) -> Iterator[Path]:
    """A disk of two megabytes: a home and its write-ahead log just fit."""
    place = runtime / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs", str(place)], capture_output=True).returncode:
        leave_out("cannot mount here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Take every byte that is left."""
    path = disk / "ballast"
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return path


@needs_root
def test_init_on_a_full_disk(small_disk: Path, tmp_path: Path, runtime: Path) -> None:
    box = Box(Home(small_disk / "home"), clean_environ(tmp_path, runtime))
    ballast = fill(small_disk)
    assert_told(box.run("init"), 5, str(box.home.root), "free some space")
    assert not box.home.config.exists()
    ballast.unlink()
    assert box.run("init", "--force").returncode == 0 and box.run("doctor").returncode in (0, 1)


@needs_root
def test_asking_and_remembering_on_a_full_disk(small_disk: Path, tmp_path: Path, runtime: Path) -> None:
    box = Box(Home(small_disk / "home"), clean_environ(tmp_path, runtime))
    assert box.run("init").returncode == 0
    script(box, '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n')
    assert box.run("ask", "before").returncode == 0
    ballast = fill(small_disk)
    for words in (["ask", "too full"], ["remember", "too full " * 500]):
        assert_told(box.run(*words), 5, "disk", "free some space")
    ballast.unlink()
    assert box.run("ask", "after").stdout == "Hoot hoot.\n"
    assert [t["title"] for t in box.json("thread", "list")] == ["after", "before"]
    with box.store() as store:
        assert store.problems() == []


def test_what_the_policy_denies_is_refused(box: Box) -> None:
    box.home.config.write_text('[policy]\npath = "policy.toml"\n')
    (box.home.root / "policy.toml").write_text('[tools]\ndeny = ["remember"]\n')
    box.run("entry", "list")
    before = box.json("status")["entries"]
    assert_told(box.run("remember", "a secret"), 4, "remember", "tools.deny")
    assert box.json("status")["entries"] == before


# -- letters and streams ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [b"caf\xe9 latin-1", b"a\x00b", b"\xed\xa0\x80 half a pair", "\U0001f989 – ß\r\n".encode(), b"\x1b[31mred"]
)
def test_any_bytes_may_be_asked(settled: Box, given: bytes) -> None:
    done = settled.run("ask", "--json", text=given)
    assert done.returncode == 0, done.stderr
    asked = settled.events(json.loads(done.stdout)["run"])[0]["content"]
    assert asked == given.decode("utf-8", "replace").strip()


def test_any_bytes_may_be_said_in_a_chat(settled: Box) -> None:
    assert settled.run("chat", text=b"caf\xe9 \x00 \x1b[31m\n").stdout == "Hoot hoot.\n"


def test_an_argument_that_is_no_text_is_refused(settled: Box) -> None:
    words = [*map(os.fsencode, settled.command("ask")), b"caf\xe9"]
    done = subprocess.run(words, capture_output=True, env=settled.environ, text=True, timeout=180)
    assert_told(done, 2, "caf", "UTF-8")


@pytest.mark.parametrize(
    ("words", "closed"),
    [("ask hello", "<&-"), ("chat", "<&- 2>&-"), ("status", "<&- >&- 2>&-")],
)
def test_closed_streams_are_no_error(settled: Box, words: str, closed: str) -> None:
    line = f"exec {shutil.which('env')} {sys.executable} -m appliance --home {settled.home.root} {words} {closed}"
    given = None if "<" in closed else subprocess.DEVNULL
    done = subprocess.run(["sh", "-c", line], stdin=given, capture_output=True, text=True, env=settled.environ, timeout=180)
    assert done.returncode == 0 and "internal error" not in done.stderr and "Traceback" not in done.stderr


def test_output_in_ascii_still_shows_every_thread(box: Box) -> None:
    box.run("ask", "größer…")
    done = box.run("thread", "list", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "gr\\xf6\\xdfer" in done.stdout


@pytest.mark.parametrize("words", ["ask hello", "docs", "--help"])
def test_a_pipe_that_is_closed_early_is_no_traceback(settled: Box, words: str) -> None:
    line = f"{sys.executable} -m appliance --home {settled.home.root} {words} </dev/null | head -c1"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=settled.environ, timeout=180)
    assert len(done.stdout) == 1 and done.stderr == ""
