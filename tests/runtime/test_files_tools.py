"""The file tools of one core, each call in a real sandbox: what they answer, and where they do not go."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from process import clean_environ, until
from stores import new_home

from appliance.clock import CancelToken, new_id
from appliance.policy.modes import FREE
from appliance.records import Inbound, Outcome, Terms, ToolCall
from appliance.runtime import config_edit
from appliance.runtime.paths import Home
from appliance.sandbox.workspace import label
from appliance.service.core import Core

pytestmark = needs("bwrap", "perl")
INSIDE = Path(config_edit.__file__).parent.parent / "sandbox" / "file_program.py"
SESSION = "local:ada"
CODER = Terms(approval="auto", role="coder")


class Desk:
    """A core on a home of its own, and one conversation in it."""

    def __init__(self, folder: Path, **keys: str) -> None:
        self.runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
        self.runtime.mkdir(0o700)
        self.home = Home(folder / "home")
        new_home(self.home)
        usual = {"TOOL_SOCKET": "OWLBOX_", **dict.fromkeys(("PIP_NO_INDEX", "PIP_FIND_LINKS", "npm_config_registry"), "")}
        prefixes = {name: usual.get(name, "OWLBOX__") for name in keys}
        environ = clean_environ(folder, self.runtime) | {f"{prefixes[name]}{name}": value for name, value in keys.items()}
        self.core = Core(self.home, environ, process="cli", is_shared=False)
        with self.core.store.write():
            self.core.runs.touch_session(Inbound("local", "ada", "hi", new_id(), 1))
        self.work = self.home.root / "sessions" / label(SESSION) / "data"

    def do(self, name: str, *, terms: Terms = FREE, run: str = "", session: str = SESSION, **given: Any) -> Outcome:
        """A call as a person or a model makes it."""
        return self.core.toolbox.dispatch(ToolCall("c", name, given), run, CancelToken(), session, terms=terms)

    def put(self, name: str, text: str | bytes) -> Path:
        """A file in the working folder."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def close(self) -> None:
        assert self.core.close("the test is over") == []
        for path in sorted(self.runtime.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.runtime.rmdir()


def opened(folder: Path, **keys: str) -> Iterator[Desk]:
    desk = Desk(folder, **keys)
    yield desk
    desk.close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    yield from opened(tmp_path_factory.mktemp("files"))


def shown(outcome: Outcome) -> tuple[int, str, str]:
    return outcome.status, outcome.outcome, outcome.message


# -- reading -----------------------------------------------------------------------------------------


@pytest.mark.covers("A-130")
def test_every_built_in_tool_can_be_called_by_its_name(desk: Desk) -> None:
    names = "read_file write_file edit_file list_dir grep find exec web_search web_fetch message".split()
    box = desk.core.toolbox
    assert [name for name in names if box.spec(box.meant(ToolCall("c", name, {})).name) is None] == []


@pytest.mark.covers("A-130", "A-134", "S-077", "E-274", "E-309")
def test_a_file_is_read_whole_or_by_lines(desk: Desk) -> None:
    desk.put("notes/a.txt", "one\ntwo\nthree\n")
    assert shown(desk.do("read_file", path="notes/a.txt")) == (200, "ok", "one\ntwo\nthree\n")
    assert desk.do("read_file", path="/work/notes/a.txt").message == "one\ntwo\nthree\n"
    assert desk.do("read_file", path=str(desk.work / "notes/a.txt")).message == "one\ntwo\nthree\n"
    part = desk.do("read_file", path="notes/a.txt", offset=2, limit=1).message
    assert part == "two\n\n[the file goes on: lines 2 to 2 shown; use offset]"
    assert desk.do("read_file", path="notes/a.txt", offset=9).message == "(no line 9)"
    assert shown(desk.do("read_file", path="notes")) == (400, "bad_input", "notes is a directory")
    assert shown(desk.do("read_file", path="notes/none.txt")) == (404, "not_found", "notes/none.txt does not exist")


@pytest.mark.covers("A-134", "S-077")
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": None},
        {"path": ""},
        {"path": "a", "offset": -1},
        {"path": "a", "limit": 0},
        {"path": "a\0b"},
        {"path": "x" * 5000},
    ],
)
def test_a_path_that_cannot_be_is_an_invalid_argument(desk: Desk, given: dict[str, Any]) -> None:
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"})):
        found = desk.do(tool, **given, **more)
        assert found.status == 400 and ("path" in found.message or "offset" in found.message or "limit" in found.message)


@pytest.mark.covers("A-134")
def test_what_is_no_text_is_told_and_a_strange_letter_is_not(desk: Desk) -> None:
    desk.put("picture", b"\x89PNG\0\0")
    desk.put("latin", b"caf\xe9\n")
    desk.put("void", b"")
    assert shown(desk.do("read_file", path="picture")) == (400, "bad_input", "picture holds no text: 6 bytes")
    assert desk.do("read_file", path="latin").message == "caf\ufffd\n"
    assert desk.do("read_file", path="void").message == "(empty file)"
    os.mkfifo(desk.work / "pipe")
    assert desk.do("read_file", path="pipe").message == "pipe is not a file"


@pytest.mark.covers("S-077", "E-274", "A-057")
def test_no_path_leads_out_of_the_working_folder(desk: Desk, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the key")
    evil = desk.work.with_name("data-evil")
    evil.mkdir(exist_ok=True)
    (evil / "x").write_text("the key")
    desk.put("ok.txt", "fine")
    for name, target in (("out", secret), ("folder", tmp_path), ("up", Path("../.."))):
        if not (desk.work / name).is_symlink():
            (desk.work / name).symlink_to(target)
    database = str(desk.home.database)
    for path in (
        "../../etc/passwd",
        "/etc/passwd",
        str(secret),
        "out",
        "folder/secret.txt",
        "up/owlbox.db",
        database,
        f"{evil}/x",
        "~",
    ):
        found = desk.do("read_file", path=path)
        assert found.status in (403, 404) and "the key" not in found.message and "root:" not in found.message, path
        if path not in ("~",):
            assert found.message == f"path is outside workspace: {path}"
    assert desk.do("write_file", path="out", content="changed").status == 403 and secret.read_text() == "the key"
    assert desk.do("read_file", path="ok.txt").message == "fine"


@pytest.mark.covers("A-059")
@pytest.mark.parametrize(
    "path", ["sub/../here.txt", "./../data/here.txt", "/work/sub/../here.txt", "sub/..", "sub/../x/../here.txt"]
)
def test_a_path_that_goes_up_is_refused_even_where_it_leads_back(desk: Desk, path: str) -> None:
    desk.put("here.txt", "fine")
    desk.put("sub/x", "")
    for name, given in (("read_file", {}), ("write_file", {"content": "no"}), ("list_dir", {}), ("grep", {"pattern": "fine"})):
        found = desk.do(name, path=path, **given)
        assert shown(found) == (400, "invalid_arguments", f"the path may not go up: {path}")
        assert found.hint == "give the path without .."
    assert (desk.work / "here.txt").read_text() == "fine"


@pytest.mark.covers("E-274")
def test_the_program_inside_does_not_follow_a_link_out_either(tmp_path: Path) -> None:
    """The core looked before; here the link has come afterwards."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/link").symlink_to("/etc/passwd")
    order = {"verb": "read", "path": str(tmp_path / "work/link"), "shown": "link", "tops": [str(tmp_path / "work")]}
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-B", INSIDE], input=json.dumps(order), capture_output=True, text=True)
    assert json.loads(done.stdout) == {"error": "permission", "message": "path is outside workspace: link"}


@pytest.mark.covers("A-053", "A-059")
@pytest.mark.parametrize("verb", ["read", "edit", "write"])
def test_a_link_that_comes_after_the_path_was_judged_leads_nowhere(tmp_path: Path, verb: str) -> None:
    """A command that runs meanwhile may put it there; what it leads to may be a key in the same folder."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("KEY")
    (tmp_path / "sub").symlink_to(".ssh")
    order = {"verb": verb, "path": f"{tmp_path}/sub/config", "shown": "sub/config", "tops": [str(tmp_path)]}
    order |= {"content": "x", "old_text": "KEY", "new_text": "x"}
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-B", INSIDE], input=json.dumps(order), capture_output=True, text=True)
    assert json.loads(done.stdout) == {"error": "permission", "message": "sub/config was changed meanwhile"}
    assert (tmp_path / ".ssh/config").read_text() == "KEY"


def test_names_stand_on_one_line_and_can_be_stored(desk: Desk) -> None:
    folder = desk.put("odd/a\nb\x1b[31m", "x\n").parent
    (folder / os.fsdecode(b"caf\xe9 (deleted)")).write_text("x\n")
    named = ["odd/a\\nb\\x1b[31m", "odd/caf\\xe9 (deleted)"]
    assert desk.do("find", path="odd", pattern="*").message.split("\n") == ["2 found", *named]
    assert desk.do("grep", path="odd", pattern="x").message.split("\n") == [f"{name}:1: x" for name in named]
    assert desk.do("list_files", path="odd").message == "f  a\\nb\\x1b[31m\nf  caf\\xe9 (deleted)"
    assert desk.do("read_file", path="odd/" + os.fsdecode(b"caf\xe9 (deleted)")).message == "x\n"
    assert shown(desk.do("read_file", path="a\ud800"))[:2] == (400, "bad_input")
    assert shown(desk.do("write_file", path="n" * 300, content=""))[:2] == (400, "bad_input")


@pytest.mark.covers("A-057")
def test_another_conversation_has_another_folder(desk: Desk) -> None:
    desk.put("mine.txt", "mine")
    assert desk.do("read_file", path="mine.txt", session="local:bob").status == 404
    assert desk.do("write_file", path="mine.txt", content="his", session="local:bob").status == 200
    assert (desk.work / "mine.txt").read_text() == "mine"
    assert len({label(name) for name in ("local:ada", "local-ada", "local.ada", "local/ada", "LOCAL:ada", "é", "è", "")}) == 8


def test_the_folder_goes_with_its_conversation(desk: Desk, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    session = "local:gone"
    with desk.core.store.write():
        desk.core.runs.touch_session(Inbound("local", "gone", "hi", new_id(), 1))
    assert desk.do("write_file", path="a/b", content="x", session=session).status == 200
    folder = desk.core.commands.bench.folder(session)
    (folder / "link").symlink_to(kept)
    desk.core.runs.people.move(session, "closing")
    desk.core.runs.people.move(session, "closed")
    desk.core.control.delete(session)
    assert not folder.parent.exists() and kept.read_text() == "kept" and desk.put("mine.txt", "x").exists()


def test_files_that_hold_keys_are_not_shown_even_here(desk: Desk) -> None:
    desk.put("box/.env", "KEY=1")
    assert desk.do("read_file", path="box/.env").message == ".env is never shown to a tool"


# -- writing -----------------------------------------------------------------------------------------


@pytest.mark.covers("A-135", "S-078", "E-275")
def test_a_file_is_written_whole_with_the_folders_above_it(desk: Desk) -> None:
    assert desk.do("write_file", path="deep/er/new.txt", content="Grüße\n").message == "Wrote 8 bytes to deep/er/new.txt"
    assert (desk.work / "deep/er/new.txt").read_text() == "Grüße\n"
    assert desk.do("write_file", path="deep/er/new.txt", content="").message == "Wrote 0 bytes to deep/er/new.txt"
    assert (desk.work / "deep/er/new.txt").read_bytes() == b""
    assert [path.name for path in (desk.work / "deep/er").iterdir()] == ["new.txt"]  # no temporary file
    missing = desk.do("write_file", path="other.txt")
    assert missing.status == 400 and "content" in missing.message and not (desk.work / "other.txt").exists()
    assert desk.do("write_file", path="deep", content="x").message == "deep is a directory"
    assert desk.do("write_file", path="deep/er/new.txt/below", content="x").status in (400, 404)


@pytest.mark.covers("A-135")
def test_a_file_is_replaced_and_not_changed_in_place(desk: Desk) -> None:
    path = desk.put("kept.sh", "old")
    path.chmod(0o750)
    other = desk.work / "hard"
    os.link(path, other)
    assert desk.do("write_file", path="kept.sh", content="new").status == 200
    assert (path.read_text(), other.read_text(), path.stat().st_mode & 0o777) == ("new", "old", 0o750)


@pytest.mark.covers("A-136", "E-309")
def test_every_place_of_a_text_is_replaced(desk: Desk) -> None:
    path = desk.put("edit.txt", "a-b-a\r\n")
    assert desk.do("edit_file", path="edit.txt", old_text="a", new_text="cc").message == "Replaced 2 occurrences in edit.txt"
    assert path.read_bytes() == b"cc-b-cc\r\n"
    assert shown(desk.do("edit_file", path="edit.txt", old_text="zz", new_text=""))[:2] == (409, "conflict")
    assert shown(desk.do("edit_file", path="edit.txt", old_text="", new_text="x")) == (
        400,
        "invalid_arguments",
        "old_text is empty",
    )
    assert desk.do("edit_file", path="none.txt", old_text="a", new_text="b").status == 404
    assert path.read_bytes() == b"cc-b-cc\r\n"
    assert desk.do("edit_file", path="edit.txt", old_text="cc", new_text="").message == "Replaced 2 occurrences in edit.txt"


# -- looking around -----------------------------------------------------------------------------------


@pytest.mark.covers("A-137", "S-079", "E-276")
def test_folders_are_listed_first_and_by_name(desk: Desk) -> None:
    for name in ("list/b/x", "list/a.txt", "list/C", "list/void/.keep"):
        desk.put(name, "12345")
    (desk.work / "list/void/.keep").unlink()
    assert desk.do("list_files", path="list").message == "d  b\nd  void\nf  C\nf  a.txt"
    lines = desk.do("list_dir", path="list").message.splitlines()
    assert [line.split()[:3] for line in lines] == [["d", "b", "-"], ["d", "void", "-"], ["f", "C", "5"], ["f", "a.txt", "5"]]
    assert desk.do("list_files", path="list/void").message == "(empty)" == desk.do("list_dir", path="list/void").message
    for name in ("list_dir", "list_files"):
        assert shown(desk.do(name, path="list/a.txt")) == (400, "bad_input", "list/a.txt is not a directory")
        assert desk.do(name, path="nowhere").status == 404
        assert "list" in desk.do(name, path=None).message and desk.do(name).message == desk.do(name, path=".").message


@pytest.mark.covers("A-138")
def test_lines_are_found_by_a_regular_expression(desk: Desk) -> None:
    desk.put("src/a.py", "import os\nprint('Owl')\n")
    desk.put("src/sub/b.py", "nothing\nimport re\n")
    desk.put("src/bin", b"import\0")
    assert desk.do("grep", pattern=r"^import \w+$", path="src").message == "src/a.py:1: import os\nsrc/sub/b.py:2: import re"
    assert desk.do("grep", pattern="owl", path="src/a.py", ignore_case=True).message == "src/a.py:2: print('Owl')"
    none = desk.do("grep", pattern="zebra", path="src")
    assert (none.status, none.message) == (200, "No match for zebra in src (2 files looked at).")
    assert none.data["skipped"] == 1
    for given in ({"pattern": "", "path": "src"}, {"pattern": "x", "path": ""}, {"pattern": "(", "path": "src"}):
        assert desk.do("grep", **given).status == 400
    assert desk.do("grep", pattern="x", path="nowhere").status == 404
    desk.put("src/long", "x" * 5000 + "needle" + "y" * 5000)
    assert 0 < len(desk.do("grep", pattern="needle", path="src/long").message) < 600


@pytest.mark.covers("A-139")
def test_names_are_found_by_a_glob(desk: Desk) -> None:
    for name in ("tree/a.py", "tree/sub/b.py", "tree/sub/deep/c.py", "tree/sub/c.txt"):
        desk.put(name, "")
    assert desk.do("find", path="tree", pattern="*.py").message == "3 found\ntree/a.py\ntree/sub/b.py\ntree/sub/deep/c.py"
    assert desk.do("find", path="tree", pattern="sub/*.py").message == "1 found\ntree/sub/b.py"
    assert desk.do("find", path="tree", pattern="**/*.py").data["total"] == 3
    assert desk.do("find", path="tree", pattern="s?b").message == "1 found\ntree/sub/"
    none = desk.do("find", path="tree", pattern="*.rs")
    assert (none.status, none.message) == (200, "Nothing called *.rs in tree.")
    assert desk.do("find", path="tree/a.py", pattern="*").message == "tree/a.py is not a directory"
    assert desk.do("find", path="nowhere", pattern="*").status == 404


@pytest.mark.covers("A-138", "E-317")
def test_a_pattern_without_end_is_ended_and_the_core_answers_meanwhile(tmp_path: Path) -> None:
    for desk in opened(tmp_path, TOOLS__DEADLINES_S='{"grep": 1.0}'):
        desk.put("trap", "a" * 60 + "!")
        found = desk.do("grep", pattern="(a+)+$", path="trap")
        assert (found.status, found.outcome) == (504, "timeout")


@pytest.mark.covers("S-083", "A-070")
def test_others_are_answered_while_a_file_is_read(desk: Desk) -> None:
    """The core only waits for another process: its own threads are free. What that may use is what the tool may."""
    desk.put("trap", "a" * 60 + "!")
    sandbox, cancel, results = desk.core.commands.sandbox, CancelToken(), list[Outcome]()
    call = ToolCall("c", "grep", {"pattern": "(a+)+$", "path": "trap"})  # it would take years
    thread = threading.Thread(target=lambda: results.append(desk.core.toolbox.dispatch(call, "", cancel, SESSION)))
    thread.start()
    try:
        until(lambda: sandbox.health()["running"] == 1, "it reads")
        (reading,) = sandbox.listing()
        assert desk.do("list_files", path=".").status == 200 and desk.core.store.value("SELECT 1") == 1
        assert reading in sandbox.listing(), "and it was still at it"
    finally:
        cancel.set()
        thread.join(60)
    assert [one.status for one in results] == [499]
    limits = reading.limits
    assert (limits.cpus, limits.memory_bytes >> 20, limits.pids, limits.timeout_s) == (0.2, 128, 20, 60)


# -- folders that the person lists --------------------------------------------------------------------


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("listed")
    for name, text in (
        ("project/a.py", "print(1)\n"),
        ("project/.env", "KEY=1"),
        ("project/sub/id_rsa", "KEY=2"),
        ("library/book.txt", "call me\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "library/leak").symlink_to(folder / "project/.env")
    mounts = [
        {"path": str(folder / "project"), "mode": "readwrite", "kind": "project", "user": "ada"},
        {"path": str(folder / "library")},
    ]
    yield from opened(folder, SANDBOX__MOUNTS=json.dumps(mounts))


@pytest.mark.covers("A-056", "A-057")
def test_listed_folders_are_seen_by_whom_they_are_for(listed: Desk) -> None:
    folder = listed.home.root.parent
    assert listed.do("read_file", path=str(folder / "library/book.txt")).message == "call me\n"
    assert listed.do("read_file", path="/project/library/book.txt").message == "call me\n"
    assert listed.do("read_file", path="/project/library/../library/book.txt").message.startswith("the path may not go up: ")
    assert listed.do("write_file", path="/project/library/new", content="x").message == "/project/library/new is read-only"
    run = listed.core.runs.begin(SESSION, "chat").id
    asking = listed.do("write_file", path="/project/library/new", content="x", run=run)
    assert (asking.status, asking.message) == (403, "/project/library/new is read-only")  # and not proposed
    assert listed.core.approvals.waiting(run) == []
    assert listed.do("read_file", path=str(folder / "project/a.py")).status == 403
    assert listed.do("read_file", path=str(folder / "project/a.py"), terms=CODER).message == "print(1)\n"
    assert listed.do("edit_file", path="/project/project/a.py", old_text="1", new_text="2", terms=CODER).status == 200
    assert (folder / "project/a.py").read_text() == "print(2)\n" and not (folder / "library/new").exists()
    assert listed.do("exec", command="cat /project/project/a.py /project/library/*.txt", terms=CODER).message.startswith(
        "print(2)\ncall"
    )


@pytest.mark.covers("A-057", "A-058")
def test_keys_in_a_listed_folder_stay_hidden(listed: Desk) -> None:
    folder = listed.home.root.parent
    for path in ("project/.env", "project/sub/id_rsa", "library/leak"):
        found = listed.do("read_file", path=str(folder / path), terms=CODER)
        assert found.status == 403 and "KEY" not in found.message
    found = listed.do("grep", pattern="KEY", path="/project/project", terms=CODER)
    assert found.message.startswith("No match")
    command = "cat /project/project/.env /project/project/sub/id_rsa /project/library/leak 2>/dev/null; echo done"
    assert listed.do("exec", command=command, terms=CODER).message == "done\n[exit code 0]"


@pytest.mark.covers("A-068", "A-153")
def test_a_program_outside_is_not_reached_through_its_socket_in_a_listed_folder(listed: Desk) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(listed.home.root.parent / "library/agent"))
        door.listen()
        command = "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(shift) or die qq($!\n)' /project/library/agent"
        said = listed.do("exec", command=command, terms=CODER).message
        assert said.startswith("Connection refused") and said.endswith("[exit code 111]")
        door.setblocking(False)
        with pytest.raises(BlockingIOError):
            door.accept()
    (listed.home.root.parent / "library/agent").unlink()


@pytest.mark.covers("A-049", "A-052")
def test_a_folder_for_a_group_is_seen_by_who_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "nest").mkdir()
    (tmp_path / "nest/egg").write_text("an egg")
    mounts = json.dumps([{"path": f"{tmp_path}/nest", "group": "birds"}])
    for desk in opened(tmp_path, SANDBOX__MOUNTS=mounts, SANDBOX__GROUPS='{"birds": ["ada", "eve"], "cats": ["bob"]}'):
        with desk.core.store.write():
            desk.core.runs.touch_session(Inbound("local", "bob", "hi", new_id(), 1))
        assert desk.do("read_file", path="/project/nest/egg").message == "an egg"
        assert desk.do("exec", command="cat /project/nest/egg", terms=CODER).message == "an egg\n[exit code 0]"
        assert desk.do("read_file", path="/project/nest/egg", session="local:bob").status == 403
        request = {"who": {"user": "eve"}, "mounts": [{"source": f"{tmp_path}/nest"}]}
        assert desk.core.policy.methods.test(request)["is_allowed"]
        request["who"] = {"user": "bob"}
        assert not desk.core.policy.methods.test(request)["is_allowed"]


# -- the working folder that the person names ---------------------------------------------------------


@pytest.mark.covers("A-053", "A-057")
def test_tools_do_not_work_in_the_home_of_the_owl(tmp_path: Path) -> None:
    for desk in opened(tmp_path, SANDBOX__WORKSPACE=str(tmp_path / "home" / "box")):
        calls = [("exec", {"command": "ls"}), ("read_file", {"path": "SOUL.md"}), ("write_file", {"path": "a", "content": ""})]
        for name, given in calls:
            found = desk.do(name, **given)
            assert found.status == 403 and found.message.endswith("belongs to owlbox itself")


def test_a_home_behind_a_link_is_a_home(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk")
    for desk in opened(tmp_path / "link"):
        assert desk.do("write_file", path="a.txt", content="kept").status == 200
        assert desk.do("exec", command="cat a.txt", terms=CODER).message == "kept\n[exit code 0]"
        assert desk.do("read_file", path="a.txt").message == "kept"


@pytest.mark.covers("S-077", "A-057", "A-058")
def test_a_workspace_hides_the_keys_and_the_home_that_lie_in_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / "plan.md").write_text("a plan")
    for desk in opened(tmp_path, SANDBOX__WORKSPACE=str(tmp_path)):
        assert desk.do("read_file", path="plan.md").message == "a plan"
        assert desk.do("read_file", path=".env").status == 403
        assert desk.do("read_file", path="home/owlbox.toml").status == 403
        assert (
            desk.do("exec", command="cat .env home/owlbox.toml; ls home; cat plan.md", terms=CODER)
            .message.rpartition("\n")[0]
            .endswith("a plan")
        )
        said = desk.do("exec", command="cat .env home/owlbox.toml home/owlbox.db 2>/dev/null; echo", terms=CODER).message
        assert said == "[exit code 0]"
        assert desk.do("list_files").message.count("\n") >= 1


@pytest.mark.covers("A-053", "A-057", "A-066")
def test_a_command_cannot_give_what_is_hidden_by_its_path_another_path(tmp_path: Path) -> None:
    """Else the next call would not know it again: its own home in the workspace, a folder that a policy denies."""
    for name in ("work/data/deep", "project/sub/shut"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/sub/shut/a").write_text("SECRET")
    for name in (".env", "a.pem", "id_rsa", "z.key"):
        (tmp_path / "work/data" / name).write_text("SECRET")
        (tmp_path / "work/data/deep" / name).write_text("SECRET")
    project = {"path": f"{tmp_path}/project", "mode": "readwrite", "kind": "project", "user": "ada"}
    mounts = json.dumps([project, {"path": f"{tmp_path}/project/sub/shut", "mode": "denied"}])
    keys = {"SANDBOX__WORKSPACE": f"{tmp_path}/work", "SANDBOX__MOUNTS": mounts}
    for desk in opened(tmp_path / "work/data/deep", **keys):
        rename = "perl -e 'rename shift, shift or print qq($!\\n)'"
        pairs = ("data gone", "data/deep data/gone", "/project/project/sub /project/project/gone")
        command = "; ".join([*(f"{rename} {pair}" for pair in pairs), "echo x >data/new", "echo done"])
        said = desk.do("exec", command=command, terms=CODER).message
        assert said.count("Device or resource busy") == 3 and said.endswith("done\n[exit code 0]")
        found = desk.do("exec", command="cat $(find . /project -type f); grep -r SECRET . /project; echo looked", terms=CODER)
        assert "SECRET" not in found.message and "looked" in found.message
        assert "Read-only" in desk.do("env", command="touch data/newer").message
    assert (tmp_path / "work/data/new").exists() and not (tmp_path / "work/data/newer").exists()


@pytest.mark.covers("A-057")
def test_a_folder_with_too_much_to_hide_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(401):
        (tmp_path / f"many/{number}.pem").touch()
    for desk in opened(tmp_path, SANDBOX__MOUNTS=json.dumps([{"path": f"{tmp_path}/many"}])):
        found = desk.do("exec", command="ls /project/many", terms=CODER)
        assert found.status == 413 and "more than 400 files and folders" in found.message
        (tmp_path / "many/0.pem").unlink()
        assert desk.do("exec", command="ls /project/many | wc -l", terms=CODER).message.startswith("400")


@pytest.mark.covers("A-050", "A-057")
def test_a_folder_listed_readonly_stays_so_inside_a_writable_one(tmp_path: Path) -> None:
    for name in ("ws/sub/ro/f", "ws/a.lock", "work/ro/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("original")
    mine = {"kind": "project", "user": "ada"}
    mounts = [
        {"path": f"{tmp_path}/ws", "mode": "readwrite", **mine},
        {"path": f"{tmp_path}/ws/sub/ro", "mode": "readonly", **mine},
        {"path": f"{tmp_path}/ws/*.lock", "mode": "readonly", **mine},
        {"path": f"{tmp_path}/work/ro", "mode": "readonly"},
    ]
    for desk in opened(tmp_path, SANDBOX__WORKSPACE=f"{tmp_path}/work", SANDBOX__MOUNTS=json.dumps(mounts)):
        paths = ("/project/ws/sub/ro/f", "/project/ro/f", f"{tmp_path}/ws/sub/ro/f", "/project/ws/a.lock", "ro/f", "/work/ro/f")
        for path in paths:
            assert desk.do("read_file", path=path, terms=CODER).message == "original", path
            found = desk.do("write_file", path=path, content="changed", terms=CODER)
            assert (found.status, found.message) == (403, f"{path} is read-only")
        command = "; ".join([*(f"echo x >{path}" for path in paths if str(tmp_path) not in path), "echo y >/project/ws/sub/new"])
        said = desk.do("exec", command=f"{command}; mv /project/ws/sub /project/ws/x; mv ro x; rm -rf ro; echo end", terms=CODER)
        assert said.message.count("Read-only file system") >= 5 and said.message.count("Device or resource busy") >= 2
        assert desk.do("write_file", path="/project/ws/sub/own", content="x", terms=CODER).status == 200
    assert {(tmp_path / name).read_text() for name in ("ws/sub/ro/f", "ws/a.lock", "work/ro/f")} == {"original"}
    assert (tmp_path / "ws/sub/new").exists()


@pytest.mark.covers("S-080")
def test_an_open_workspace_reads_what_the_user_can_and_writes_nothing_more(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("elsewhere")
    (other / "credentials").write_text("KEY=1")
    for desk in opened(tmp_path, SANDBOX__RESTRICT_TO_WORKSPACE="false"):
        assert desk.do("read_file", path=str(other / "a.txt")).message == "elsewhere"
        assert desk.do("list_files", path=str(other)).message == "f  a.txt\nf  credentials"
        assert desk.do("write_file", path=str(other / "a.txt"), content="x").status == 403
        assert desk.do("read_file", path=str(other / "credentials")).status == 403
        assert desk.do("read_file", path=str(desk.home.config)).status == 403
        assert "KEY" not in desk.do("grep", pattern="KEY", path=str(other)).message.replace("No match for KEY", "")
        assert (other / "a.txt").read_text() == "elsewhere"
        assert "d  etc" in desk.do("list_files", path="/").message
        assert desk.do("read_file", path=f"/proc/{os.getpid()}/environ").message.startswith("mount.bind.blocked")
