"""What needs no server: entries and their files, the index of tools, answers as text, what a sandbox of a server is told."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_hubs import standing, stub
from rooms import USE_ROOMS
from stores import new_store

from appliance.errors import BadInput, ConfigError, NotFound, ServerError, from_outcome
from appliance.mcp import content, offers, sandbox, server_config
from appliance.mcp.offers import Offers
from appliance.mcp.sandbox import Enclosure
from appliance.runtime.paths import Home
from appliance.runtime.tool_settings import McpServer
from appliance.sandbox import bubblewrap

TOOL = {"name": "look_up", "description": "Look a word up", "inputSchema": {"type": "object"}}


def home_with(folder: Path, text: str) -> Home:
    (folder / server_config.FILE).write_text(text)
    return Home(folder)


@pytest.mark.covers("B-137", "S-095")
def test_entries_of_other_programs_are_understood(tmp_path: Path) -> None:
    entries = {
        "a": {"command": "x", "args": ["-y"], "env": {"A": "1"}, "cwd": "/srv", "alwaysAllow": ["z"]},
        "b": {"type": "streamable-http", "url": "https://b", "headers": {"X": "y"}, "disabled": True},
        "c": {"url": "https://c"},
    }
    found = server_config.read(home_with(tmp_path, json.dumps({"mcpServers": entries})), {"d": McpServer(command="d")}, {})
    assert [(one.name, one.transport, one.source, one.keys.enabled) for one in found.values()] == [
        ("d", "stdio", "owlbox.toml", True),
        ("a", "stdio", "servers.json", True),
        ("b", "http", "servers.json", False),
        ("c", "http", "servers.json", True),
    ]
    assert found["a"].keys.args == ("-y",) and found["a"].keys.cwd == "/srv" and found["b"].keys.headers == {"X": "y"}
    assert server_config.read(Home(tmp_path / "none"), {}, {}) == {}


@pytest.mark.covers("S-095", "E-244")
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "cannot be read"),
        ("[]", "no table of servers"),
        ('{"mcpServers": {"x": 1}}', "no table of servers"),
        ('{"mcpServers": {"x": {"transport": "smoke", "command": "y"}}}', '"stdio", "http"'),
        ('{"mcpServers": {"x": {"transport": "stdio", "url": "http://y"}}}', "command"),
        ('{"mcpServers": {"x": {"command": "y", "colour": "red"}}}', "unknown key"),
        ('{"mcpServers": {"x": {"command": 1}}}', "text"),
        ('{"mcpServers": {"d": {"command": "y"}}}', "d is in owlbox.toml and in servers.json"),
    ],
)
def test_entries_that_cannot_be_right_are_refused(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        server_config.read(home_with(tmp_path, text), {"d": McpServer(command="d")}, {})
    assert word in caught.value.message


def test_a_server_has_another_key_when_what_it_offers_may_differ() -> None:
    one = server_config.check("x", {"command": "y"}, {})
    assert one.key == server_config.check("x", {"command": "y", "timeout_s": 5, "expose": "meta", "memory_mb": 99}, {}).key
    others = [server_config.check("x", {"command": "y", **more}, {}).key for more in ({"args": ["a"]}, {"network": True})]
    assert len({one.key, *others}) == 3


@pytest.mark.covers("B-138")
def test_an_unchanged_list_is_not_written_again(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    known_tools = Offers(store)
    assert known_tools.store_offer("s", "k", {"tools": [TOOL], "title": "S"})
    count = store.value("SELECT total_changes()")
    assert not known_tools.store_offer("s", "k", {"tools": [TOOL], "title": "S"}) and store.value("SELECT total_changes()") == count
    known_tools.learn("m", {known_tools.wares()[0].id: [1.0, 0.0]})
    assert known_tools.store_offer("s", "k", {"tools": [TOOL, {**TOOL, "name": "two"}], "title": "S"})
    assert [ware.name for ware in known_tools.unread("m")] == ["two"]  # the other one's vector was kept
    assert {ware.name for ware in known_tools.by_words("words", 5)} == {"look_up", "two"} and known_tools.by_words("!!", 5) == []
    known_tools.failed("s", "gone")
    known = known_tools.find_offer("s")
    assert known is not None and known.error == "gone" and len(known_tools.wares("s")) == 2
    known_tools.forget("s")
    assert known_tools.wares() == [] and known_tools.find_offer("s") is None and known_tools.by_words("words", 5) == []
    store.close()


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c)
)
FIELDS = st.sampled_from(["type", "text", "data", "mimeType", "uri", "name"])
BLOCKS = st.lists(st.dictionaries(FIELDS, st.text(max_size=8) | st.none()), max_size=4)


@given(VALUES)
def test_whatever_a_server_lists_is_taken_or_left_out(value: Any) -> None:
    for one in ({"description": value}, {"inputSchema": value}, {"annotations": value, "title": value}):
        ware = offered({"name": "x", **one})
        assert ware.name == "x" and isinstance(ware.schema, dict) and isinstance(ware.hints, dict) and ware.text()


def offered(said: dict[str, Any]) -> Any:
    return offers._build_ware("s", said)


@pytest.mark.covers("B-140")
@given(BLOCKS)
def test_blocks_of_any_shape_become_text(blocks: list[dict[str, Any]]) -> None:
    kinds = ("text", "image", "audio", "resource", "resource_link")
    reply = content.reply({"content": [*blocks, *({**b, "type": kind} for b in blocks for kind in kinds)]}, "s", "t")
    assert isinstance(reply.text, str) and reply.text and "\x1b" not in reply.text


@pytest.mark.covers("E-242", "B-139")
def test_the_network_is_looked_for_first() -> None:
    assert content.kind_of("429 invalid token required") == "retryable"
    assert content.kind_of("403 invalid") == "auth_error"
    for kind, status, code in (("retryable", 503, 5), ("auth_error", 401, 4), ("input_error", 400, 2), ("permanent", 500, 1)):
        error = from_outcome(kind, "x", "y")
        assert isinstance(error, ServerError) and (error.status, error.exit_code, error.outcome) == (status, code, kind)


@pytest.mark.covers("A-170")
def test_a_sandbox_has_no_network_unless_it_is_given() -> None:
    shut = sandbox.options(Enclosure("x", ("true",), Path("/usr")))
    assert "--unshare-net" in shut and "/etc/ssl" not in shut
    open_ = sandbox.options(Enclosure("x", ("true",), Path("/usr"), has_network=True))
    assert "--unshare-net" not in open_ and "/etc/resolv.conf" in open_ and shut[-1] != open_[-1]
    assert {"--unshare-user", "--unshare-pid", "--unshare-ipc", "--cap-drop", "--clearenv"} <= set(open_)
    with pytest.raises(BadInput):
        sandbox.options(Enclosure("x", ("true",), Path("/usr"), binds=(bubblewrap.Bind(Path("/usr"), "/etc"),)))


def test_programs_are_seen_with_what_they_were_installed_with(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    modules = tmp_path / "npm/node_modules/.bin"
    modules.mkdir(parents=True)
    for path in (venv / "bin/tool", modules / "tool", tmp_path / "alone"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    assert [b.source for b in sandbox.needed(str(venv / "bin/tool"))] == [venv]
    assert [b.source for b in sandbox.needed(str(modules / "tool"))] == [tmp_path / "npm/node_modules"]
    assert [b.source for b in sandbox.needed(str(tmp_path / "alone"))] == [tmp_path / "alone"]
    assert sandbox.needed(sandbox.program("true")) == []
    for bad in ("no-such-program", "/no/such/program"):
        with pytest.raises(NotFound):
            sandbox.program(bad)
    with pytest.raises(BadInput):
        sandbox.bind("relative")


@pytest.mark.covers("B-138")
def test_tools_are_found_by_meaning_when_there_are_vectors(tmp_path: Path) -> None:
    axes = ("clock hour time zone", "commit git branch", "picture image")

    def embed(texts: Sequence[str], deadline_s: float, is_background: bool) -> tuple[str, Sequence[Sequence[float]]]:
        return "m", [[0.01 + sum(word in axis for word in text.lower().split()) for axis in axes] for text in texts]

    with standing(tmp_path, embed=embed) as stand:
        stand.hub.add("s", stub())
        wanted = {"clock": "tell the hour", "log": "show a commit", "draw": "make a picture"}
        tools = [{"name": name, "description": about} for name, about in wanted.items()]
        stand.offers.store_offer("s", stand.hub.servers()["s"].key, {"tools": tools})
        assert "owlbox mcp index" in stand.hub.search("time zone", semantic_only=True).note
        model, vectors = embed([f"{ware.name}: {ware.description}" for ware in stand.offers.wares()], 1, False)
        stand.offers.learn(model, {ware.id: vector for ware, vector in zip(stand.offers.wares(), vectors)})
        assert stand.hub.search("time zone", semantic_only=True).wares[0].name == "clock"
        assert stand.hub.search("git branch").wares[0].name == "log"
        assert stand.hub.search("git branch", keyword_only=True).wares == ()
        assert stand.ferry.pid is None


@pytest.mark.covers("A-170", "B-141")
def test_configured_servers_cost_neither_a_process_nor_the_library(tmp_path: Path) -> None:
    program = f"""{USE_ROOMS}from pathlib import Path
from mcp_hubs import standing, stub
with standing(Path({str(tmp_path)!r})) as stand:
    for name in ("one", "two", "three"):
        stand.hub.add(name, stub())
    import appliance.service.core
    print(len(stand.hub.entries()), stand.hub.status()["state"], stand.ferry.pid, "mcp" in sys.modules, "anyio" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[0] == "3 not running None False False", done.stderr
