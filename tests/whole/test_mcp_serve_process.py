"""`owlbox mcp-serve` as other agents use it: the SDK's own client against the real program, and a Unix socket."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import leave_out
from process import LIMIT_S, Box, Core, a_box, a_shared_box, end, until

from appliance.channels.ssh_command import FED_S

__all__ = ["a_box", "a_shared_box"]
LINE = '{"jsonrpc": "2.0", "id": %d, "method": "%s", "params": %s}\n'
WHO = '{"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}'
HELLO = LINE % (1, "initialize", WHO)
SEARCH = LINE % (2, "tools/call", '{"name": "search", "arguments": {"query": "mice"}}')


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Iterator[Core]:
    shared_box.run("remember", "Owls eat mice at night.", "--title", "Owls")
    made = shared_box.serve()
    yield made
    end(made.child)


def by_sdk(box: Box, talk: Callable[[Any], Awaitable[Any]], mode: str = "auto", *words: str) -> Any:
    """What the SDK's client comes to with our server as its child."""
    try:
        from mcp.client.client import Client
        from mcp.client.stdio import StdioServerParameters
    except ImportError:
        leave_out("needs the extra mcp")
    program, *arguments = box.command("mcp-serve", *words)

    async def whole() -> Any:
        server = StdioServerParameters(command=program, args=arguments, env=box.environ)
        async with Client(server, mode=mode, read_timeout_seconds=LIMIT_S) as client:
            return await talk(client)

    return asyncio.run(whole())


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")])
def test_the_sdk_s_client_lists_and_calls_in_both_eras(core: Core, mode: str, version: str):
    async def talk(client: Any) -> Any:
        listed = await client.list_tools()
        found = await client.call_tool("search", {"query": "mice"})
        wrong = await client.call_tool("search", {})
        return client.protocol_version, listed, found, wrong

    spoken, listed, found, wrong = by_sdk(core.box, talk, mode)
    assert {tool.name for tool in listed.tools} == {"search", "read", "context_list", "list_tasks", "view_task"}
    assert all(tool.annotations.read_only_hint for tool in listed.tools)
    assert "memory://notes/owls" in found.content[0].text and not found.is_error
    assert wrong.is_error and "query" in wrong.content[0].text
    assert spoken == version


def test_a_task_is_added_only_with_the_option_and_noted(core: Core):
    async def add(client: Any) -> Any:
        return await client.call_tool("create_task", {"name": "buy seeds"})

    from mcp.shared.exceptions import MCPError

    with pytest.raises((MCPError, ExceptionGroup)):
        by_sdk(core.box, add)
    assert core.box.json("task", "list") == []
    assert "buy seeds" in by_sdk(core.box, add, "auto", "--tasks").content[0].text
    assert [task["name"] for task in core.box.json("task", "list")] == ["buy seeds"]
    rows = core.box.json("policy", "log", "--kind", "guest_call")
    assert [row["detail"]["outcome"] for row in rows if row["detail"]["tool"] == "create_task"] == ["ok", "asked"]


def test_what_is_piped_in_is_answered_without_a_core_and_nothing_else_is_printed(box: Box):
    box.run("remember", "Owls eat mice at night.", "--title", "Owls")
    done = box.run("mcp-serve", text=HELLO + "garbage\n" + SEARCH)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and {one["id"] for one in answers} == {1, None, 2}
    assert "memory://notes/owls" in next(one for one in answers if one["id"] == 2)["result"]["content"][0]["text"]


def test_a_home_that_is_none_is_an_ordinary_error(box: Box, tmp_path: Path):
    done = box.run("mcp-serve", "--home", str(tmp_path / "nowhere"), text=HELLO)
    assert done.returncode == 3 and done.stdout == "" and "owlbox init" in done.stderr


def test_a_core_that_ends_and_comes_back_is_found_again(box: Box):
    box.run("remember", "Owls eat mice at night.", "--title", "Owls")
    first = box.serve()
    child = subprocess.Popen(
        box.command("mcp-serve"), env=box.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdin is not None and child.stdout is not None

    def ask(line: str) -> Any:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(line.encode())
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    try:
        assert ask(HELLO)["result"]["protocolVersion"] == "2025-11-25"
        assert "owls" in ask(SEARCH)["result"]["content"][0]["text"]
        first.stop()
        assert "owls" in ask(SEARCH)["result"]["content"][0]["text"]  # done by itself meanwhile
        box.serve()
        assert "owls" in ask(SEARCH)["result"]["content"][0]["text"]
        child.stdin.close()
        assert child.wait(LIMIT_S) == 0
    finally:
        end(child)


def test_over_a_socket_of_its_own(core: Core):
    path = Path(core.box.environ["XDG_RUNTIME_DIR"]) / "agents.sock"
    child = core.box.start("mcp-serve", "--socket", str(path))
    until(path.exists, "it listens")
    assert path.stat().st_mode & 0o777 == 0o600
    for _ in range(2):  # one after the other, and both at once
        with connected(path) as one, connected(path) as two:
            for sock in (one, two):
                sock.sendall((HELLO + SEARCH).encode())
            for sock in (one, two):
                with sock.makefile() as lines:
                    assert json.loads(lines.readline())["id"] == 1
                    assert "owls" in json.loads(lines.readline())["result"]["content"][0]["text"]
    busy = core.box.run("mcp-serve", "--socket", str(path))
    assert busy.returncode == 5 and "listens at" in busy.stderr
    child.terminate()
    assert child.wait(LIMIT_S) == 0 and not path.exists()


def connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(LIMIT_S)
    sock.connect(str(path))
    return sock


def test_a_socket_that_systemd_gave_serves_who_is_at_its_other_end(core: Core):
    ours, theirs = socket.socketpair()
    with ours:
        child = subprocess.Popen(
            core.box.command("mcp-serve", "--peer"), env=core.box.environ, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL
        )
        theirs.close()
        try:
            ours.sendall((HELLO + LINE % (2, "tools/call", '{"name": "list_tasks", "arguments": {}}')).encode())
            with ours.makefile() as lines:
                lines.readline()
                assert json.loads(lines.readline())["result"]["isError"] is False
            ours.shutdown(socket.SHUT_WR)
            assert child.wait(LIMIT_S) == 0
        finally:
            end(child)
    assert core.box.run("mcp-serve", "--peer", text=HELLO).returncode == 2


@pytest.mark.parametrize("path", ["/nowhere/at/all.sock", "/tmp/" + "x" * 120])
def test_a_socket_that_cannot_be_is_bad_usage(core: Core, path: str):
    done = core.box.run("mcp-serve", "--socket", path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


def test_no_file_is_replaced_by_a_socket(core: Core, tmp_path: Path):
    kept = tmp_path / "kept"
    kept.write_text("mine")
    assert core.box.run("mcp-serve", "--socket", str(kept)).returncode == 2 and kept.read_text() == "mine"


def test_a_terminal_is_told_where_to_name_it(box: Box):
    master, slave = os.openpty()
    try:
        done = subprocess.run(box.command("mcp-serve"), env=box.environ, stdin=slave, capture_output=True, timeout=LIMIT_S)
    finally:
        os.close(master)
        os.close(slave)
    assert done.returncode == 2 and b"docs/guides/mcp-serve.md" in done.stderr


def test_over_ssh_an_agent_may_take_its_time(core: Core):
    """What sshd runs for user owl; other commands stop listening after a second of silence."""
    child = subprocess.Popen(
        core.box.command("door"),
        env={**core.box.environ, "SSH_ORIGINAL_COMMAND": "mcp-serve"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(FED_S + 0.5)
        out, _ = child.communicate((HELLO + SEARCH).encode(), LIMIT_S)
        assert [json.loads(line)["id"] for line in out.splitlines()] == [1, 2]
    finally:
        end(child)
    for words in ("mcp-serve --socket /tmp/x", "mcp-serve --peer", "mcp-serve --home /"):
        assert core.box.run("door", SSH_ORIGINAL_COMMAND=words).returncode == 2
