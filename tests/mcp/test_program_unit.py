"""Servers of tools in a unit of their own, with a socket at which each connection starts one, as systemd does."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import quick
from needs import needs

from appliance.errors import OwlError
from appliance.mcp import program_unit
from appliance.mcp.program_unit import Program
from appliance.mcp.sandbox import Enclosure
from appliance.sandbox.bubblewrap import Bind

LIMIT_S = 60.0
pytestmark = needs("bwrap", "perl")
Start = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a shell in the unit and hands it to `work`; what that returns."""
    runtime, ended = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp")), list[subprocess.Popen[bytes]]()
    gate = socket.socket(socket.AF_UNIX)
    gate.bind(str(runtime / "program.sock"))
    gate.listen()

    def accept() -> None:
        while True:
            try:
                line, _ = gate.accept()
            except OSError:
                return
            with line:
                ended.append(subprocess.Popen([sys.executable, "-m", "appliance.mcp.program_unit"], stdin=line))

    thread = threading.Thread(target=accept)
    thread.start()
    folder = tmp_path / "server"
    folder.mkdir()

    def start(script: str, work: Callable[[Program], Awaitable[str]], **more: object) -> str:
        async def run() -> str:
            reading, writing = os.pipe()
            what = Enclosure("stub", ("/bin/sh", "-c", script), folder, **more)  # type: ignore[arg-type]
            try:
                program = await program_unit.start(runtime / "program.sock", what, "test", writing, 1 << 16)
                os.close(writing)
                assert await asyncio.to_thread(os.read, reading, 1), "it says that it begins"
                return await work(program)
            finally:
                os.close(reading)

        return asyncio.run(asyncio.wait_for(run(), LIMIT_S))

    yield start
    gate.shutdown(socket.SHUT_RDWR)
    gate.close()
    thread.join()
    for child in ended:
        child.kill()
        child.wait()
    shutil.rmtree(runtime)


async def read_out(program: Program) -> str:
    """Its input is ended, and all that it says read."""
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write(b"hoot\n")
    program.stdin.close()
    return (await program.stdout.read()).decode()


def test_a_server_is_spoken_to_and_tells_its_exit_code(start: Start) -> None:
    async def work(program: Program) -> str:
        return f"{await read_out(program)}{await program.wait()} {program.returncode}"

    assert start('read word; echo "$word $0 $(pwd)"; exit 7', work) == "hoot /bin/sh /work\n7 7"


def test_it_holds_nothing_but_its_three_streams(start: Start) -> None:
    assert start("ls /proc/self/fd", read_out).split() == ["0", "1", "2", "3"], "the last is the folder that is listed"


def test_one_that_does_not_end_is_killed_with_all_of_it(start: Start) -> None:
    async def work(program: Program) -> str:
        os.kill(program.pid, 0)
        program.kill()
        return str(await program.wait())

    assert start("trap '' TERM; sleep 1000 & wait", work) == "-9"


@needs(root=True)  # to become a second user
def test_another_user_is_refused_before_anything_is_read() -> None:
    os.seteuid(65534)  # whose connection it is
    try:
        mine, theirs = socket.socketpair()
    finally:
        os.seteuid(0)
    with mine, theirs:
        mine.shutdown(socket.SHUT_WR)
        command = [sys.executable, "-c", "from appliance.mcp import program_unit; program_unit.main()"]
        with quick.popen(command, stdin=theirs, env=quick.ENVIRON, cwd=quick.ROOT) as child:
            assert child.wait(LIMIT_S) == 0
        assert b"user 65534 may not have tools run" in mine.recv(1000)


def test_what_cannot_be_enclosed_is_refused_with_words(start: Start, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(OwlError, match="link"):
        start("true", read_out, binds=(Bind(link, "/mnt"),))
