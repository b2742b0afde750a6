"""The tools that run commands, in real sandboxes: what they answer, how they end, and what they never say."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import needs
from test_files_tools import CODER, SESSION, Desk, opened, shown

from appliance.clock import CancelToken, monotonic_s, sleep_s
from appliance.errors import Unavailable
from appliance.records import Outcome, ToolCall
from appliance.sandbox import landlock
from appliance.sandbox.launcher import Bind, SandboxOrder

pytestmark = needs("bwrap", "perl")
TOKEN = "owl-token-5f3c1b7a9d"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("shell")
    for made in opened(folder, TOOLS__BLOCKED_PATTERNS='["git push"]'):
        made.core.redactor.add(TOKEN)
        yield made


@pytest.mark.covers("A-130", "A-140", "E-310", "A-133")
def test_a_command_that_ended_was_carried_out_whatever_its_code(desk: Desk) -> None:
    found = desk.do("exec", command="echo ok | cat")
    assert shown(found) == (200, "ok", "ok\n[exit code 0]")
    assert {name: found.data[name] for name in ("status", "exit_code", "stdout", "stderr")} == {
        "status": "completed",
        "exit_code": 0,
        "stdout": "ok\n",
        "stderr": "",
    }
    assert len(found.data["id"]) == 36 and found.data["duration_ms"] > 0
    assert shown(desk.do("exec", command="exit 7")) == (200, "ok", "[exit code 7]")
    unknown = desk.do("exec", command="no-such-thing-here")
    assert unknown.status == 200 and unknown.message.endswith("[exit code 127]")
    both = desk.do("exec", command="echo out; sleep 0.1; echo err >&2; sleep 0.1; echo out")
    assert both.message == "out\nerr\nout\n[exit code 0]"


@pytest.mark.covers("E-310", "A-149", "A-153")
@pytest.mark.parametrize(
    ("command", "pattern"), [("rm -rf /", "rm -rf /"), ("MKFS x", "mkfs"), ("git  push", "git push"), ("echo $(sudo ls)", "sudo")]
)
def test_a_blocked_command_is_refused_before_anything_is_there(desk: Desk, command: str, pattern: str) -> None:
    session = f"local:{command}"
    found = desk.do("exec", command=command, session=session)
    told = f"command.blocked (exec): the command matches {pattern!r}, which is blocked"
    assert shown(found) == (403, "permission", told)
    assert not desk.core.commands.bench.folder(session).exists()
    (line,) = [line for line in desk.core.policy.ledger.listing() if line.session == session]
    assert (line.kind, line.rule) == ("policy_denied", "command.blocked")


@pytest.mark.covers("E-310")
def test_words_that_only_look_like_one_are_not_blocked(desk: Desk) -> None:
    for command in ("mkdir -p x", "touch summary.txt; cat summary.txt", "echo reformat the environment.txt"):
        assert desk.do("exec", command=command).message.endswith("[exit code 0]")


@pytest.mark.covers("S-081", "S-082", "E-277")
def test_the_shell_answers_with_its_own_words(desk: Desk) -> None:
    assert shown(desk.do("shell", command="echo a; echo b >&2")) == (200, "ok", "a\nb")
    assert shown(desk.do("shell", command="true")) == (200, "ok", "(no output)")
    assert desk.do("shell", command="echo no; exit 3").message == "Exit code 3:\nno"
    bad = desk.do("shell", command="exit 3")
    assert bad.status == 500 and bad.message.startswith("Exit code 3:")
    assert desk.do("shell", command="pwd").message == "/work"
    for given in ({}, {"command": None}, {"command": "  "}):
        assert desk.do("shell", **given).status == 400


@pytest.mark.covers("E-277", "E-317", "S-081", "A-280")
@pytest.mark.parametrize("tool", ["shell", "exec"])
def test_what_takes_too_long_is_ended_and_what_it_said_is_kept(desk: Desk, tool: str) -> None:
    command = "echo begun; (sleep 60; touch late) & sleep 60"
    found = desk.do(tool, command=command, timeout=1)
    assert shown(found) == (504, "timeout", "Command timed out after 1s\nbegun")
    assert (found.data["status"], found.data["exit_code"], found.data["stdout"]) == ("timeout", -1, "begun\n")
    assert desk.core.commands.sandbox.health()["running"] == 0 and not (desk.work / "late").exists()


@pytest.mark.covers("S-081", "E-277")
@pytest.mark.parametrize("timeout", ["abc", None, -5, "0", "nan", "inf"])
def test_a_time_that_is_none_means_thirty_seconds(desk: Desk, timeout: object) -> None:
    assert desk.do("shell", command="echo fine", timeout=timeout).message == "fine"


@pytest.mark.covers("A-204")
def test_secrets_are_in_no_output(desk: Desk) -> None:
    environment = desk.do("exec", command="cat /proc/self/environ; set").message
    assert "OWLBOX" not in environment and str(desk.home.root) not in environment and "HOME=/work" in environment
    found = desk.do("exec", command=f"echo {TOKEN[:9]}'{TOKEN[9:]}'; echo {TOKEN} >&2")
    assert TOKEN not in found.message and TOKEN not in str(found.data)


@pytest.mark.covers("A-279")
def test_a_cancelled_command_is_ended(desk: Desk) -> None:
    cancel, results = CancelToken(), list[Outcome]()
    call = ToolCall("c", "exec", {"command": "echo begun; sleep 60"})
    thread = threading.Thread(target=lambda: results.append(desk.core.toolbox.dispatch(call, "", cancel, SESSION)))
    thread.start()
    end_s = monotonic_s() + 60
    while desk.core.commands.sandbox.health()["running"] == 0 and monotonic_s() < end_s:
        sleep_s(0.02)
    cancel.set()
    thread.join(60)
    assert [one.status for one in results] == [499] and desk.core.commands.sandbox.health()["running"] == 0


@pytest.mark.covers("A-002", "A-056", "A-153")
def test_a_command_writes_to_its_folder_alone_and_reaches_nobody(desk: Desk) -> None:
    home = desk.home.root
    script = (
        f"touch here /usr/x /etc/x /x {home}/x 2>/dev/null; ls {home} /home /root 2>/dev/null; id -u; : > /dev/tcp/127.0.0.1/22"
    )
    found = desk.do("exec", command=script)
    assert found.data["stdout"] == "1000\n" and (desk.work / "here").exists() and not (home / "x").exists()
    assert found.data["exit_code"] != 0


@pytest.mark.covers("A-056", "A-160")
def test_a_command_sees_the_scripts_of_the_skill_that_it_names_and_of_no_other(desk: Desk) -> None:
    for name in ("tidy", "other"):
        scripts = desk.home.box / "skills" / name / "scripts"
        (scripts / "lib").mkdir(parents=True)
        (scripts.parent / "SKILL.md").write_text(f"---\nname: {name}\ndescription: It does.\n---\nRun it.\n")
        (scripts / "run.sh").write_text('echo "ran $1"; cat ${0%/*}/lib/part; : > $0')
        (scripts / "lib/part").write_text(f"part of {name}\n")
        (scripts / ".env").write_text("KEY=1")
        (scripts / "link").symlink_to(desk.home.config)
    desk.core.skills.sync()
    found = desk.do("exec", command="bash /skills/tidy/scripts/run.sh x; find /skills -type f -o -type l | sort; : > /skills/new")
    assert found.message.splitlines()[:2] == ["ran x", "part of tidy"] and found.message.count("Read-only file system") == 2
    assert "/skills/tidy/scripts/lib/part\n/skills/tidy/scripts/run.sh\n" in found.data["stdout"]
    assert not any(word in found.message for word in ("other", "link", ".env"))
    assert desk.do("exec", command="/skills/tidy/scripts/../SKILL.md").data["exit_code"] == 127, "nothing else of the skill"
    assert desk.do("exec", command="ls /skills /skills/none/scripts").data["exit_code"] == 2
    desk.core.policy.gate.set_session(SESSION, "[mounts]\nvolumes = false", "ada")
    refused = desk.do("exec", command="bash /skills/tidy/scripts/run.sh")
    desk.core.policy.gate.lift_session(SESSION, "ada")
    assert refused.status == 403 and refused.message.startswith("mount.volume.disabled (exec)")
    with (desk.home.box / "skills/tidy/scripts/large").open("wb") as file:
        file.truncate(5 << 20)
    assert desk.do("exec", command="bash /skills/tidy/scripts/run.sh").status == 413


def test_env_looks_and_changes_nothing(desk: Desk) -> None:
    desk.put("seen.txt", "seen")
    found = desk.do("env", command="cat seen.txt; echo x > seen.txt; touch new; touch /tmp/x && echo scratch")
    assert found.data["stdout"] == "seenscratch\n"
    assert (desk.work / "seen.txt").read_text() == "seen" and not (desk.work / "new").exists()


def test_endless_output_is_cut_and_says_so(desk: Desk) -> None:
    found = desk.do("exec", command="head -c 3000000 /dev/zero | tr '\\0' a")
    assert found.data["is_cut"] and len(found.data["stdout"]) == 1 << 20


@pytest.mark.covers("A-131", "A-140")
def test_limits_and_roles_are_those_of_the_configuration(tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = {"SANDBOX__ROLES": '{"coder": {"memory_mb": 64}}', "TOOLS__DEADLINES_S": '{"exec": 15}', "TOOLS__DISABLED": '["sh"]'}
    for desk in opened(tmp_path_factory.mktemp("limits"), **keys):
        hog = "python3 -c 'import time; x = bytearray(100 << 20); time.sleep({}); print(len(x))'"
        assert "[exit code 0]" in desk.do("exec", command=hog.format(0)).message
        assert "64 MB of memory" in desk.do("exec", command=hog.format(600), terms=CODER).message
        assert desk.do("exec", command="sleep 60", timeout=40).message == "Command timed out after 15s"
        assert desk.do("sh", command="true").status == 503


def test_without_a_sandbox_nothing_runs_and_the_reason_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bare")
    for desk in opened(folder, TOOL_SOCKET=str(folder / "nobody.sock")):
        for name, given in (
            ("exec", {"command": "touch x"}),
            ("read_file", {"path": "x"}),
            ("write_file", {"path": "x", "content": ""}),
        ):
            found = desk.do(name, **given)
            assert found.status == 503 and "tool unit's socket" in found.message
        health = desk.core.status()["sandbox"]
        assert health["state"] == "missing" and "nobody.sock is not there" in health["reason"]


@pytest.mark.covers("A-018", "A-067")
def test_status_says_what_holds_sandboxes_and_when_they_cannot_be_made(desk: Desk, tmp_path: Path) -> None:
    held = desk.core.status()["sandbox"]
    assert (held["state"], held["seccomp"], held["landlock"]) == ("ok", os.uname().machine, landlock.version())
    below = (Bind(tmp_path, "/project"), Bind(tmp_path, "/project/below"))  # a mount that nobody can make
    with pytest.raises(Unavailable):
        desk.core.commands.sandbox.run(SandboxOrder("exec", "s1", ("true",), binds=below, profile="project"), CancelToken())
    health = desk.core.status()["sandbox"]
    assert (health["state"], health["is_degraded"]) == ("degraded", True) and "/project/below" in health["reason"]
    assert desk.do("exec", command="echo again").message == "again\n[exit code 0]"
    assert desk.core.status()["sandbox"]["state"] == "ok"
