"""Calls that share folders of this machine: where something is hidden, none begins while a command could rename it."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from needs import needs
from test_files_tools import CODER, SESSION, opened

from appliance.clock import CancelToken
from appliance.errors import Busy, Cancelled
from appliance.sandbox.folder_turns import FolderTurns, FolderUse
from appliance.sandbox.workspace import WorkspaceJob

NEVER = CancelToken()
# Gives a folder another name, and another folder its name, for as long as it is told; over and over.
SWAP = """python3 -I -S -c '
import ctypes, time
end = time.time() + 2
while time.time() < end:
    ctypes.CDLL(None).renameat2(-100, b"/project/p/kept", -100, b"/project/p/OTHER", 2)
    time.sleep(0.003)
'"""


@needs("bwrap", "perl")
@pytest.mark.covers("A-057", "A-058", "A-066")
@pytest.mark.parametrize("other", ["plain", "linked"])
def test_a_command_cannot_rename_what_another_call_hides(tmp_path: Path, other: str) -> None:
    """Else the other call would see it, or make an empty file behind a link, outside of the sandbox."""
    for name in ("p/kept", "p/plain", "p/linked", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "p/kept/.env").write_text("SECRET")
    (tmp_path / "p/linked/.env").symlink_to(f"/oldroot{tmp_path}/out/made")
    mounts = json.dumps([{"path": f"{tmp_path}/p", "mode": "readwrite", "kind": "project", "user": "ada"}])
    with contextmanager(opened)(tmp_path, SANDBOX__MOUNTS=mounts) as desk:
        swapping = threading.Thread(target=lambda: desk.do("exec", command=SWAP.replace("OTHER", other), terms=CODER))
        swapping.start()
        seen = ""
        while swapping.is_alive():
            seen += desk.do("exec", command="cat /project/p/*/.env; true", terms=CODER).message
            seen += desk.do("grep", pattern="SECR", path="/project/p", terms=CODER).message
        assert "SECRET" not in seen and list((tmp_path / "out").iterdir()) == []


@needs("bwrap", "perl")
def test_commands_share_a_folder_in_which_nothing_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    mounts = json.dumps([{"path": f"{tmp_path}/p", "mode": "readwrite", "kind": "project", "user": "ada"}])
    waits = "touch /project/p/ONE; for i in $(seq 200); do test -e /project/p/OTHER && echo met && break; sleep 0.1; done"
    said: list[str] = []
    with contextmanager(opened)(tmp_path, SANDBOX__MOUNTS=mounts) as desk:

        def run(one: str, other: str) -> None:
            command = waits.replace("ONE", one).replace("OTHER", other)
            said.append(desk.do("exec", command=command, terms=CODER).message)

        threads = [threading.Thread(target=run, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one.startswith("met") for one in said] == [True, True]


@pytest.mark.parametrize(
    ("one", "other", "is_waiting"),
    [
        (FolderUse(("/a",), ("/a",), True), FolderUse(("/a",), ("/a",), True), True),
        (FolderUse(("/a",), ("/a",)), FolderUse(("/a",), ("/a",)), False),
        (FolderUse(("/a",), ("/a",)), FolderUse(("/a/b",), (), True), True),
        (FolderUse(("/a/b",), ("/a/b",)), FolderUse(("/a",), (), True), True),
        (FolderUse(("/a",), (), True), FolderUse(("/a",), (), True), False),
        (FolderUse(("/a",), ("/a",)), FolderUse(("/ab",), ("/ab",), True), False),
        (FolderUse(("/",), (), True), FolderUse(("/a",), ("/a",)), True),
    ],
)
def test_whoever_needs_things_to_stay_waits_for_whoever_writes_there(one: FolderUse, other: FolderUse, is_waiting: bool) -> None:
    assert one.conflicts(other) is is_waiting and other.conflicts(one) is is_waiting


def test_a_call_in_another_process_counts_until_that_process_ends(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from appliance.clock import CancelToken, sleep_s\n"
        "from appliance.sandbox.folder_turns import FolderTurns\n"
        "with FolderTurns(Path(sys.argv[1])).take(['/a'], ['/a'], lambda: (1,), cancel=CancelToken(), wait_s=5):\n"
        "    print('in', flush=True); sleep_s(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"in\n"
        turns, looked = FolderTurns(tmp_path), list[int]()

        def scan() -> tuple[int, ...]:
            looked.append(1)
            return (1,)

        with pytest.raises(Busy, match="another command works in /a"), turns.take(["/a"], [], scan, cancel=NEVER, wait_s=0.2):
            pass
        stopped = CancelToken()
        stopped.set()
        with pytest.raises(Cancelled), turns.take(["/a"], [], scan, cancel=stopped, wait_s=60):
            pass
        with turns.take(["/b"], ["/b"], scan, cancel=NEVER, wait_s=0) as found:
            assert found == (1,) and looked == [1], "only where nobody writes is anything looked for"
        child.kill()
        child.wait()
        with turns.take(["/a"], ["/a"], scan, cancel=NEVER, wait_s=0):
            assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == ["gate"]


@needs("bwrap", "perl")
@pytest.mark.covers("A-057")
def test_another_command_cannot_change_an_approved_script_while_it_is_begun(tmp_path: Path) -> None:
    """Its hash is compared before the shell reads it."""
    swap = SWAP.replace("/project/p/kept", "/work/job.sh").replace("/project/p/OTHER", "/work/evil.sh")
    with contextmanager(opened)(tmp_path) as desk:
        desk.put("job.sh", "echo harmless\n")
        desk.put("evil.sh", "echo EVIL\n")
        job = WorkspaceJob("exec", "shell", NEVER, SESSION, "", CODER, 30)
        bench, command = desk.core.commands.bench, "bash job.sh"
        approved = {name: str(one["sha256"]) for name, one in bench.named_files(job, command).items()}
        assert list(approved) == ["job.sh"]
        swapping = threading.Thread(target=lambda: desk.do("exec", command=swap, terms=CODER))
        swapping.start()
        said = b""
        while swapping.is_alive():
            said += bench.carry_out(job, command, bench.bound(bench.prepared(job, command), command, approved)).stdout
        assert b"EVIL" not in said
