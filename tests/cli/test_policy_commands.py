"""The commands about policy and tools, beside a running core and without one."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import needs
from process import Box, Core, a_shared_box, boxed, until  # noqa: F401

from appliance.errors import TooLarge
from appliance.policy import policy_file


@pytest.fixture(scope="module", name="core")
def a_core(shared_box: Box) -> Core:
    """One running core for the tests of this file; its policy is a file that each test may change."""
    shared_box.home.config.write_text('[policy]\npath = "policy.toml"\n[tools]\nblocked_patterns = ["git push"]\n')
    return shared_box.serve()


def rules(core: Core, text: str = policy_file.FIRST) -> None:
    """Give the running core this policy."""
    (core.box.home.root / "policy.toml").write_text(text)
    core.call("policy.reload")


def said(box: Box, *words: str, code: int = 0) -> str:
    done = box.run(*words)
    assert done.returncode == code, done.stderr
    return done.stdout if code in (0, 4) and done.stdout else done.stderr


@pytest.mark.covers("A-043")
def test_the_core_makes_the_policy_file_and_shows_it(core: Core) -> None:
    assert (core.box.home.root / "policy.toml").read_text() == policy_file.FIRST
    told = said(core.box, "policy", "show")
    assert "mode: strict" in told and "max_memory 8g" in told and "mounts: volumes, tmpfs" in told and "git push" in told
    plain = core.box.json("policy", "show")
    assert "network: proxy\n" in told
    narrow = core.box.run("policy", "show", COLUMNS="80").stdout.splitlines()
    assert all(len(line) <= 80 for line in narrow) and "printenv, env" in " ".join(narrow)
    assert (plain["policy"]["quotas"]["max_pids"], plain["policy"]["has_binds"], plain["state"]) == (1024, False, "idle")


@pytest.mark.covers("A-149", "A-152", "E-296")
def test_test_says_what_the_policy_would_say(core: Core) -> None:
    box = core.box
    assert said(box, "policy", "test", "ls -l") == "allowed (strict)\n"
    assert "command.blocked (exec): the command matches 'sudo'" in said(box, "policy", "test", "ls; sudo ls", code=4)
    assert "git push" in said(box, "policy", "test", "git push", code=4)
    assert "quota.cpu.max (big)" in said(box, "policy", "test", "--tool", "big", "--cpus", "8", "--memory", "9g", code=4)
    found = json.loads(box.run("policy", "test", "--network", "host", "--json").stdout)
    assert (found["is_allowed"], found["violations"][0]["rule"]) == (False, "network.host.disabled")
    assert "--memory much: must be a size such as 512m" in said(box, "policy", "test", "--memory", "much", code=2)
    for word in ("--cpus", "--pids"):
        assert f"{word} -3: must be 0 or more" in said(box, "policy", "test", word, "-3", code=2)
    assert said(box, "policy", "test", "--tool", "message", "--target", "core").startswith("allowed")
    told = said(box, "policy", "test", "--tool", "message", "--target", "person:bob", code=4)
    assert "ipc.allow (message): it may not send to person:bob" in told
    assert core.call("audit.list", kind="policy_denied") == []


@pytest.mark.covers("A-055", "E-298")
def test_test_shows_how_a_folder_would_be_seen(core: Core, tmp_path: Path) -> None:
    rules(core, f'[[mounts.rules]]\npath = "{tmp_path}"\nmode = "readwrite"\nkind = "project"\n')
    words = ("policy", "test", "--role", "coder", "--mount", str(tmp_path), "--write")
    assert f"{tmp_path} is writable at" in said(core.box, *words, "--admin")
    told = said(core.box, *words)
    assert f"{tmp_path} is read-only" in told and "mount.bind.downgraded" in told
    assert "blocked" in said(core.box, "policy", "test", "--mount", str(core.box.home.root / "owlbox.toml"), code=4)
    rules(core)


@pytest.mark.covers("A-031", "A-032")
def test_without_a_network_no_tool_asks_the_web(core: Core) -> None:
    rules(core, "[network]\nproxy = false\n")
    for name, given in (("fetch_url", {"url": "http://[::1]/"}), ("mcp_list_tools", {"query": "owls"})):
        found = tool(core, name, **given)
        assert (found["status"], found["message"]) == (403, f"{name} is not allowed here (network.proxy.disabled)")
    row = core.call("audit.list", kind="policy_denied", limit=1)[0]
    assert (row["actor"], row["rule"]) == ("mcp_list_tools", "network.proxy.disabled")
    assert "network.proxy.disabled" in said(core.box, "policy", "test", "--network", "proxy", code=4)
    assert tool(core, "search", query="owl")["status"] == 200
    rules(core)
    assert "loopback" in tool(core, "fetch_url", url="http://[::1]/")["message"], "its own rules are the next to be asked"


@pytest.mark.covers("A-046", "E-305")
def test_reload_by_command_and_by_signal_keeps_the_old_policy_when_the_file_is_bad(core: Core) -> None:
    box, file = core.box, core.box.home.root / "policy.toml"
    file.write_text("[tools]\ndeny = ['search']")
    assert said(box, "policy", "reload") == "policy reloaded\n" and said(box, "policy", "reload") == "policy unchanged\n"
    assert tool(core, "search", query="owl")["status"] == 403
    file.write_text("[tools")
    assert "not TOML" in said(box, "policy", "reload", code=2)
    core.child.send_signal(signal.SIGHUP)
    until(lambda: len(core.call("audit.list", kind="policy_reload", severity="error")) == 2, "the signal was heard")
    assert tool(core, "search", query="owl")["status"] == 403, "the old policy holds"
    rules(core)
    assert tool(core, "search", query="owl")["status"] == 200
    assert "policy_denied" in said(box, "policy", "log", "--rule", "tools.deny")


@pytest.mark.covers("A-045", "E-307")
def test_policy_of_one_session_is_set_and_removed(core: Core, tmp_path: Path) -> None:
    box = core.box
    (tmp_path / "own.toml").write_text("[tools]\ndeny = ['search']")
    session = "local:nobody"
    assert said(box, "policy", "set", session, str(tmp_path / "own.toml")) == f"session {session}: strict\n"
    told = box.run("policy", "set", session, str(tmp_path / "own.toml"))
    assert told.stderr == "nobody has talked in local:nobody yet: it holds from the first word (owlbox session list)\n"
    known = core.call("session.create", channel="local", sender="bob")["id"]
    assert box.run("policy", "set", known, str(tmp_path / "own.toml")).stderr == ""
    assert said(box, "policy", "unset", known)
    assert f"session {session} has its own, set by" in said(box, "policy", "show")
    assert "tools: deny search" in said(box, "policy", "show", "--session", session)
    assert "tools.deny: search" in said(box, "policy", "test", "--tool", "search", "--session", session, code=4)
    assert said(box, "policy", "test", "--tool", "search").startswith("allowed")
    (tmp_path / "own.toml").write_text("mood = 1")
    assert "unknown key mood" in said(box, "policy", "set", session, str(tmp_path / "own.toml"), code=2)
    (tmp_path / "own.toml").write_bytes(b"mode = '\xff'")
    assert "not UTF-8" in said(box, "policy", "set", session, str(tmp_path / "own.toml"), code=2)
    for text, words in (("", "the policy of session"), ("[tools", "policy of session local:nobody is not TOML")):
        (tmp_path / "own.toml").write_text(text)
        assert words.removeprefix("the ") in said(box, "policy", "set", session, str(tmp_path / "own.toml"), code=2)
    none = str(tmp_path / "none.toml")
    assert f"{none} cannot be read: No such file" in said(box, "policy", "set", session, none, code=3)
    (tmp_path / "own.toml").write_text('mode = "strict"\n' + "#" * 4_000_000)
    assert "more than 4000000 bytes" in said(box, "policy", "set", session, str(tmp_path / "own.toml"), code=TooLarge.exit_code)
    (tmp_path / "own.toml").write_text('mode = "strict"\n')
    assert "without a conversation" in said(box, "policy", "set", "", str(tmp_path / "own.toml"), code=2)
    assert "has the policy for all again" in said(box, "policy", "unset", session)
    assert "no policy of its own" in said(box, "policy", "unset", session, code=3)


def test_check_reads_a_file_and_starts_nothing(shared_box: Box, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(policy_file.FIRST)
    assert "is fine: strict, 0 folders" in said(shared_box, "policy", "check", str(path))
    path.write_text("[quotas]\nmax_pids = 0")
    assert "quotas.max_pids" in said(shared_box, "policy", "check", str(path), code=2)
    assert "no file" in said(shared_box, "policy", "check", str(tmp_path / "none.toml"), code=3)
    assert not (tmp_path / "none.toml").exists()
    os.mkfifo(tmp_path / "pipe.toml")
    assert "is not a file" in said(shared_box, "policy", "check", str(tmp_path / "pipe.toml"), code=2)


@needs("bwrap", "perl")
@pytest.mark.covers("A-063")
def test_log_lists_what_was_written_down(core: Core) -> None:
    rules(core)
    assert "policy_reload" in said(core.box, "policy", "log", "--kind", "policy_", "--limit", "3")
    found = core.box.json("policy", "log", "--limit", "1")
    assert len(found) == 1 and found[0]["id"] > 0
    assert "--severity 'bad' is none of" in said(core.box, "policy", "log", "--severity", "bad", code=2)
    shown = said(core.box, "status")
    assert "\nsandbox      ok: system calls filtered, " in shown and " of 10 in use\n" in shown
    ran = tool(core, "exec", command="echo said; exit 3")
    for width in ("80", "60", ""):  # how each command ended is to be seen, also on a narrow screen
        lines = core.box.run("policy", "log", "--kind", "exec", "--limit", "1", COLUMNS=width).stdout.splitlines()
        assert all(len(line) <= int(width or 1000) for line in lines) and (width or len(lines) == 1)
        told = " ".join(" ".join(lines).split())
        assert " warning exec exec local:" in told and "command echo said; exit 3," in told
        assert f"execution {ran['data']['id']}, status failed, exit_code 3, duration_ms " in told
    assert said(core.box, "policy", "log", "--kind", "nothing") == "nothing was written down\n"


def tool(core: Core, name: str, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = core.call("tool.call", name=name, arguments=arguments)
    return found


@pytest.mark.covers("A-146")
def test_tools_are_listed_with_state_and_numbers(core: Core) -> None:
    before = {one["name"]: one for one in core.box.json("tool", "list")}["search"]["calls"]
    assert tool(core, "search", query="owl")["status"] == 200
    after = {one["name"]: one for one in core.box.json("tool", "list")}["search"]
    assert (after["state"], after["is_enabled"], after["version"], after["needs"]["profile"]) == ("available", True, "1", "db")
    assert (after["calls"]["total"], after["calls"]["success"]) == (before["total"] + 1, before["success"] + 1)
    assert after["last_ms"] > 0 and "search" in said(core.box, "tool", "list")


@pytest.mark.covers("A-145", "A-071")
def test_a_tool_can_be_switched_off_while_the_core_runs(core: Core) -> None:
    config = core.box.home.config
    before = config.read_text()
    config.write_text(before.replace("[tools]\n", '[tools]\ndisabled = ["search"]\ndeadlines_s = {read = 7}\n'))
    assert "tools.disabled" in said(core.box, "reload")
    found = tool(core, "search", query="owl")
    assert (found["status"], found["outcome"], found["message"]) == (503, "unavailable", "search is switched off")
    listed = {one["name"]: one for one in core.box.json("tool", "list")}
    assert listed["search"]["state"] == "disabled" and listed["read"]["deadline_s"] == 7
    config.write_text(before)
    said(core.box, "reload")
    assert tool(core, "search", query="owl")["status"] == 200


def test_reload_needs_a_core_and_the_rest_does_not(box_alone: Box) -> None:
    assert "no core is running" in said(box_alone, "policy", "reload", code=3)
    box_alone.home.config.write_text('[policy]\npath = "own.toml"\n')
    assert "own.toml is not there yet" in said(box_alone, "policy", "check")
    assert not (box_alone.home.root / "own.toml").exists()
    assert "mode: strict" in said(box_alone, "policy", "show")
    assert "the policy of the configuration is fine" in said(box_alone, "policy", "check")
    assert "refused" in said(box_alone, "policy", "test", "sudo ls", code=4)


@pytest.fixture(name="box_alone")
def a_box_alone(tmp_path: Path, runtime: Path) -> Iterator[Box]:
    """A home on which nothing runs."""
    with boxed(tmp_path, runtime) as made:
        yield made
