"""The units: parsed, checked against the command line, and started by a real systemd in a throw-away machine."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import machine
import pytest
from machine import LAUNCHER, SERVICES, SOCKETS, TIMER, TIMERS, UNITS, Machine
from model_fixtures import shallow_file, shallow_home
from needs import needs
from process import Box, a_box, until

from appliance.cli import main
from appliance.cli.screen import TUNABLES
from appliance.clock import monotonic_s
from appliance.mcp import bridge_client
from appliance.mcp.bridge import PROGRAMS
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.sandbox import tool_unit
from appliance.store.database import Store
from appliance.store.process_registry import Leases

CHANNELS = (
    "calendar",
    "email",
    "exchange_rates",
    "feeds",
    "home_assistant",
    "matrix",
    "ntfy",
    "push",
    "slack",
    "telegram",
    "unifiedpush",
    "weather",
    "webhook",
    "web",
)
CHANNELS_OFF = ", ".join(f"{name} off" for name in CHANNELS)

__all__ = ["a_box", "shallow_file", "shallow_home"]
ALL = sorted(path.name for path in UNITS.iterdir() if path.suffix in (".service", ".socket", ".timer"))
RUNNER = "/opt/owlbox/bin/owlbox-tool"  # written by install.sh, as the launcher is
BRIDGE, PROGRAM = "/opt/owlbox/bin/owlbox-bridge", "/opt/owlbox/bin/owlbox-program"
RECOVERY = "/opt/owlbox/bin/owlbox-recovery"  # of the version before; root, because it changes links in /opt/owlbox
PLAY = '[[turns]]\nrepeat = true\ntext = "Hoot hoot."\n'
PEOPLE = 'u alice - "In the group" /home/alice /bin/sh\nm alice owlbox\nu mallory - "Not in it" /home/mallory /bin/sh\n'

BACKUP = "owlbox-backup.timer"

Unit = dict[str, list[str]]


def read(path: Path) -> Unit:
    """Every "Section.Key" of a unit with its values, in order."""
    found: Unit = {}
    section = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, sign, value = line.partition("=")
            assert sign and section, f"{path.name}: {line}"
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def commands() -> Iterator[tuple[str, str]]:
    """Everything that the units and the sshd drop-in run."""
    for name in ALL:
        for key, values in read(UNITS / name).items():
            if key.startswith("Service.Exec"):
                yield from ((name, value) for value in values)
    forced = re.findall(r"^ +ForceCommand (.+)$", (UNITS / "sshd-owlbox.conf").read_text(), re.MULTILINE)
    assert len(forced) == 1
    yield "sshd-owlbox.conf", forced[0]


# -- as text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_every_command_exists(name: str, command: str):
    program, *words = command.split()
    if program == LAUNCHER:
        assert callable(main.parser(words).parse_args(words).handler)
    else:
        is_known = program in (RUNNER, BRIDGE, PROGRAM, RECOVERY) or (program in ("/bin/kill", "/bin/ln") and shutil.which(program))
        assert is_known, f"{name} runs {program}"


def test_a_command_that_does_not_exist_would_be_noticed():
    with pytest.raises(Exception, match="unknown command surve"):
        main.parser(["surve"]).parse_args(["surve"])


@pytest.mark.parametrize("name", ALL)
def test_units_name_only_each_other_and_systemd_s(name: str):
    unit = read(UNITS / name)
    keys = ("Unit.Requires", "Unit.Wants", "Unit.After", "Install.Also", "Install.WantedBy")
    named = {word for key in keys for value in unit.get(key, []) for word in value.split()}
    known = {
        "network.target",
        "time-set.target",
        "local-fs.target",
        "systemd-tmpfiles-setup.service",
        "sysinit.target",
        "multi-user.target",
        "sockets.target",
        "timers.target",
    }
    assert named - known <= set(ALL)
    started = name.rpartition(".")[0] + ("@.service" if unit.get("Socket.Accept") == ["yes"] else ".service")
    assert name.endswith(".service") or started in ALL


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_watched_and_restarted(name: str):
    unit = read(UNITS / name)
    wanted = {"Type": "notify", "WatchdogSec": "60", "Restart": "on-failure", "NotifyAccess": "main"}
    assert {key: unit[f"Service.{key}"] for key in wanted} == {key: [value] for key, value in wanted.items()}
    assert unit["Unit.StartLimitBurst"] == ["10"]


def test_no_service_runs_as_root_or_through_a_shell():
    for name in (n for n in ALL if n.endswith(".service") and n != "owlbox-recovery.service"):
        unit = read(UNITS / name)
        assert unit["Service.User"][0].startswith("owlbox")
        assert unit["Service.NoNewPrivileges"] == ["yes"]
    assert not [c for _, c in commands() if re.search(r"\bsh\b|[|;&<>`]|^[-+!@:]", c)]


def test_the_core_gets_what_it_gets_from_the_screen_of_a_checkout():
    assert {f"{name}={value}" for name, value in TUNABLES.items()} <= set(read(UNITS / "owlbox.service")["Service.Environment"])


def test_core_and_broker_agree_on_where_they_meet():
    core, broker = read(UNITS / "owlbox.service"), read(UNITS / "owlbox-broker.service")
    assert f"OWLBOX_BROKER_SOCKET={read(UNITS / 'owlbox-broker.socket')['Socket.ListenStream'][0]}" in core["Service.Environment"]
    assert f"OWLBOX_CORE_USER={core['Service.User'][0]}" in broker["Service.Environment"]
    home = Home(paths.SERVICE_HOME)
    assert f"OWLBOX_HOME={home.root}" in core["Service.Environment"]
    assert read(UNITS / "owlbox.socket")["Socket.ListenStream"] == [str(paths.core_socket(paths.SERVICE_RUNTIME))]
    assert broker["Service.User"] != core["Service.User"]
    tool, gate = read(UNITS / "owlbox-tool@.service"), read(UNITS / "owlbox-tool.socket")
    assert gate["Socket.ListenStream"] == [str(paths.SERVICE_TOOL)]
    assert (gate["Socket.SocketUser"], gate["Socket.SocketMode"]) == (core["Service.User"], ["0600"])
    assert f"OWLBOX_CORE_USER={core['Service.User'][0]}" in tool["Service.Environment"]
    assert tool["Service.User"] == [tool_unit.USER] and tool["Service.ExecStart"] == [RUNNER]
    bridge, gate = read(UNITS / "owlbox-bridge.service"), read(UNITS / "owlbox-bridge.socket")
    assert f"{bridge_client.GIVEN}={gate['Socket.ListenStream'][0]}" in core["Service.Environment"]
    assert (gate["Socket.SocketUser"], gate["Socket.SocketMode"]) == (core["Service.User"], ["0600"])
    assert f"OWLBOX_CORE_USER={core['Service.User'][0]}" in bridge["Service.Environment"]
    assert bridge["Service.User"][0] not in (core["Service.User"][0], tool_unit.USER)
    program, gate = read(UNITS / "owlbox-program@.service"), read(UNITS / "owlbox-program.socket")
    assert f"{PROGRAMS}={gate['Socket.ListenStream'][0]}" in bridge["Service.Environment"]
    assert (gate["Socket.SocketUser"], gate["Socket.SocketMode"]) == (bridge["Service.User"], ["0600"])
    assert program["Service.User"] == bridge["Service.User"] and program["Service.ExecStart"] == [PROGRAM]
    assert program["Unit.BindsTo"] == ["owlbox-bridge.service"]
    web = read(UNITS / "owlbox-web.service")
    assert f"OWLBOX_WEB_USER={web['Service.User'][0]}" in core["Service.Environment"]
    assert str(paths.SERVICE_HOME) in web["Service.InaccessiblePaths"][0].split()
    for name in ("owlbox-worker@.service", "owlbox-worker.service", "owlbox-heartbeat.service"):
        told = [value for value in core["Service.Environment"] if "SOCKET=" in value]
        assert [value for value in read(UNITS / name)["Service.Environment"] if "SOCKET=" in value] == told


def test_a_task_that_fails_is_no_failure_of_the_timers_unit():
    assert read(UNITS / "owlbox-worker.service")["Service.ExecStart"] == ["/opt/owlbox/bin/owlbox worker run --task-may-fail"]


@pytest.mark.parametrize("name", [n for n in ALL if n.endswith(".service")])
def test_exposure_is_at_most_1_5_and_that_of_sandboxes_more(name: str, tmp_path: Path):
    # Bubblewrap needs namespaces and mounts, which is why tools have a unit of their own, and servers of tools, with a network.
    threshold = {"owlbox-tool@.service": 25, "owlbox-program@.service": 30, "owlbox-recovery.service": 20}.get(name, 15)
    # As a user's: since 257 the system's own makes /run/systemd first, where none has booted.
    check = ["systemd-analyze", "--user", "security", "--offline=true", f"--threshold={threshold}", "--no-pager", str(UNITS / name)]
    done = subprocess.run(check, capture_output=True, text=True, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr


# -- the machine --------------------------------------------------------------------------------------

MACHINE = UNITS / "machine"


def test_the_firewall_lets_in_ssh_and_the_name_alone():
    text = (MACHINE / "nftables.conf").read_text()
    opened = re.findall(r"^ +(?:ip6? daddr \S+ )?(tcp|udp) dport (\d+)", text, re.MULTILINE)
    assert opened == [("tcp", "22"), ("udp", "5353"), ("udp", "5353")]
    assert text.count("policy drop;") == 2 and text.count("{") == text.count("}")
    nft = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if nft and os.geteuid() == 0:
        done = subprocess.run(["unshare", "--net", nft, "-c", "-f", str(MACHINE / "nftables.conf")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_every_file_for_the_machine_is_installed_on_request_alone(tmp_path: Path):
    for options, count in (((), 0), (("--machine",), len(list(MACHINE.iterdir())))):
        root = tmp_path / f"root{count}"
        command = [str(UNITS / "install.sh"), "--destdir", str(root), "--python", "/usr/bin/python3", *options]
        subprocess.run(command, capture_output=True, check=True)
        there = {path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
        assert sum(path.read_bytes() in there for path in MACHINE.iterdir()) == count


def test_every_page_that_a_unit_or_a_message_names_is_installed(tmp_path: Path):
    command = [str(UNITS / "install.sh"), "--destdir", str(tmp_path), "--python", "/usr/bin/python3"]
    subprocess.run(command, capture_output=True, check=True)
    share = tmp_path / "opt/owlbox/share"
    there = {str(path.relative_to(share)) for path in share.rglob("*.md")}
    sources = [path for path in UNITS.iterdir() if path.is_file()] + list((machine.ROOT / "appliance").rglob("*.py"))
    named = {page for path in sources for page in re.findall(r"docs/(?!requirements)(?:[a-z]+/)?[a-z-]+\.md", path.read_text())}
    assert {"docs/guides/systemd.md", "docs/guides/trouble.md"} <= named <= there


def test_the_model_is_given_up_before_the_core():
    order = ("owlbox-tool@.service", "owlbox-broker.service", "owlbox-worker@.service", "owlbox.service")
    scores = [int(read(UNITS / name)["Service.OOMScoreAdjust"][0]) for name in order]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 4
    assert read(UNITS / "owlbox-broker.service")["Service.MemoryMax"] == ["85%"]


# -- installing ---------------------------------------------------------------------------------------


@pytest.mark.covers("B-007")
def test_nothing_installs_a_service_by_itself(box: Box):
    system = [
        Path("/etc/systemd"),
        Path("/usr/lib/systemd"),
        Path("/lib/systemd/system"),
        Path("/etc/cron.d"),
        Path("/run/systemd/system"),
    ]

    def everything() -> list[str]:
        return sorted(str(path) for folder in system if folder.exists() for path in folder.rglob("*"))

    before = everything()
    core = box.serve()
    assert box.run("ask", "hi").returncode == 0
    assert core.stop() == 0
    for words in (["init", "--force"], ["doctor"], ["maintain"], ["door"]):
        box.run(*words)
    assert everything() == before
    left = [p for p in Path(box.environ["HOME"]).rglob("*") if p.suffix in (".service", ".timer", ".socket", ".desktop")]
    assert left == []
    makefile = (machine.ROOT / "Makefile").read_text()
    assert "install.sh" not in makefile and "systemctl" not in makefile


def test_install_lists_what_it_puts_and_can_be_repeated(tmp_path: Path):
    def install(*options: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([UNITS / "install.sh", *options], capture_output=True, text=True)

    target = ["--destdir", str(tmp_path)]
    done = install(*target, "--ssh")
    assert done.returncode == 0 and "systemctl enable --now" in done.stderr
    said = done.stdout.split()
    assert sorted(said) == sorted(f"/{p.relative_to(tmp_path)}" for p in tmp_path.rglob("*") if p.is_symlink() or p.is_file())
    assert {f"/etc/systemd/system/{name}" for name in ALL} <= set(said)
    assert install(*target, "--ssh").stdout.split() == said
    assert all(os.access(tmp_path / program[1:], os.X_OK) for program in (LAUNCHER, RUNNER, BRIDGE))
    for wrong in (["--frce"], [*target, "--python", "python3"], [*target, "--python", "/x; rm -rf /"], ["--destdir"]):
        assert install(*wrong).returncode != 0, wrong


# -- as a service, without systemd --------------------------------------------------------------------


@pytest.mark.covers("S-101")
def test_serve_opens_no_terminal_and_names_its_channels(box: Box):
    """The banner and the log, and nothing asked of a terminal."""
    core = box.serve()
    assert core.stop() == 0
    assert core.child.stdout is not None and core.child.stderr is not None
    assert core.child.stdout.read() == b""
    assert core.child.stderr.read().decode().startswith("owlbox ")
    said = [line["message"] for line in box.log("core")]
    assert {"channel matrix is disabled", "channel email is disabled"} <= set(said)


@pytest.mark.covers("S-102")
@pytest.mark.parametrize("is_up", [True, False])
def test_status_prints_pools_channels_and_workspace(box: Box, is_up: bool, tmp_path: Path):
    text = '[pools]\ndefault = ["local"]\nquick = ["local"]\n[models]\npool = "quick"\n'
    text += '[channels.email]\nenabled = true\nimap_host = "127.0.0.1"\nimap_port = 1\nsmtp_host = "127.0.0.1"\n'
    text += 'user = "owl@here"\npassword = "not-to-be-shown"\n'
    box.home.config.write_text(f'{text}[sandbox]\nworkspace = "{tmp_path}"\n')
    if is_up:
        core = box.serve()
        until(lambda: core.call("core.status")["channels"]["email"] not in (True, "connecting"), "it was tried")
    lines = dict(line.split(maxsplit=1) for line in box.run("status").stdout.splitlines())
    assert "quick = local" in lines["pools"] and "default = local" in lines["pools"]
    assert lines["pools"].endswith("(in use: quick)")
    state = "127.0.0.1:1 cannot be reached: [Errno 111] Connection refused" if is_up else True
    assert lines["channels"] == CHANNELS_OFF.replace("email off", f"email {state if is_up else 'on'}")
    assert lines["workspace"] == str(tmp_path)
    status = box.json("status")
    assert (status["default_pool"], status["channels"]) == (
        "quick",
        {"email": state, **dict.fromkeys(set(CHANNELS) - {"email"}, False)},
    )
    assert "not-to-be-shown" not in str(status)


# -- in a machine -------------------------------------------------------------------------------------


def set_up(root: Path, configuration: str) -> Home:
    """A machine's folder with the services installed and enabled as a person would, impatient for the tests."""
    machine.make_root(root)
    people = root / "etc/sysusers.d/people.conf"
    people.parent.mkdir()
    people.write_text(PEOPLE)
    machine.install(root)
    home, owner = Home(root / "var/lib/owlbox"), machine.user_id(root, "owlbox")
    home.config.write_text(configuration)
    home.config.chmod(0o600)
    os.chown(home.config, owner, owner)
    for name in SERVICES:
        machine.drop_in(root, name, "[Service]\nWatchdogSec=6\nRestartSec=0.2\n")
    machine.drop_in(root, TIMER, "[Timer]\nOnBootSec=1s\nRandomizedDelaySec=0\nAccuracySec=100ms\n")
    machine.drop_in(root, BACKUP, "[Timer]\nRandomizedDelaySec=0\nAccuracySec=100ms\n")
    stamp = root / "var/lib/systemd/timers" / f"stamp-{BACKUP}"  # the last time was two nights ago
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    os.utime(stamp, (stamp.stat().st_mtime - 2 * 86400,) * 2)
    machine.enable(root, *SERVICES, *SOCKETS, TIMER, BACKUP)
    return home


@pytest.fixture(scope="module")
def owlery() -> Iterator[Machine]:
    """A machine with the services up and a scripted model."""
    with machine.folder() as root:
        home = set_up(root, '[models]\nscript = "models/play.toml"\n')
        (home.models / "play.toml").write_text(PLAY)
        with machine.booted(root) as up:
            yield up


def restarts(up: Machine, name: str) -> int:
    return int(up.show(name, "NRestarts"))


def test_services_become_ready_and_answer(owlery: Machine):
    assert owlery.booted_s < machine.LIMIT_S
    assert owlery.ok("systemctl", "is-active", *SERVICES, *SOCKETS, TIMER).split() == ["active"] * 5
    assert owlery.show("owlbox.service", "StatusText") == "serves /var/lib/owlbox"
    assert owlery.show("owlbox-broker.service", "StatusText") == "listens at /run/owlbox-broker/broker.sock"
    status = owlery.ok(LAUNCHER, "status")
    assert "running, pid" in status and "default = local" in status and CHANNELS_OFF in status
    assert owlery.ok(LAUNCHER, "ask", "hi") == "Hoot hoot."
    assert json.loads(owlery.ok(LAUNCHER, "status", "--json"))["broker"]["is_confined"]  # models.local_only, by the kernel
    assert owlery.ok("systemctl", "--failed", "--quiet", "--no-legend") == ""


def test_systemd_has_nothing_to_say_against_the_units(owlery: Machine):
    """`verify` leaves with 0 for an unknown key: any word is a failure."""
    done = owlery.run("systemd-analyze", "verify", "--man=no", *(f"/etc/systemd/system/{name}" for name in ALL))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_core_and_broker_are_different_users_with_nothing_to_spare(owlery: Machine):
    core, broker = (owlery.show(name, "MainPID") for name in SERVICES)
    for pid, user in ((core, "owlbox"), (broker, "owlbox-broker")):
        assert owlery.ok("stat", "-c", "%U", f"/proc/{pid}") == user
        status = owlery.ok("cat", f"/proc/{pid}/status")
        assert re.search(r"CapBnd:\s0+$", status, re.MULTILINE) and re.search(r"NoNewPrivs:\s1$", status, re.MULTILINE)
        assert re.search(r"Seccomp:\s2$", status, re.MULTILINE)
    inside = ("nsenter", "-t", broker, "-m", "--")
    assert owlery.run(*inside, "ls", "/var/lib/owlbox").stdout == ""
    assert owlery.run(*inside, "ls", "/var/lib/owlbox-broker/models").stdout.split() == ["play.toml", "prefix"]
    assert owlery.run(*inside, "touch", "/var/lib/owlbox-broker/models/x").returncode != 0
    assert owlery.run(*inside, "cat", "/var/lib/owlbox/owlbox.db", "/run/owlbox/core.sock").returncode != 0


def test_group_members_may_talk_and_others_not(owlery: Machine):
    assert owlery.ok(LAUNCHER, "ask", "hi", user="alice") == "Hoot hoot."
    refused = owlery.run(LAUNCHER, "status", user="mallory")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "may not use this Owlbox" in refused.stderr and refused.stderr.count("\n") == 1
    assert "Permission denied" in owlery.run("cat", "/var/lib/owlbox/owlbox.db", user="alice").stderr
    for user in ("alice", "root"):
        done = owlery.run(LAUNCHER, "doctor", user=user)
        assert (done.returncode, done.stdout) == (4, "") and "sudo -u" in done.stderr
    assert "problem" not in owlery.ok(LAUNCHER, "doctor", user="owlbox")
    # The broker has no word for anybody but the core.
    for user in ("alice", "mallory"):
        talk = "from appliance.runtime.rpc_client import Client; Client('/run/owlbox-broker/broker.sock', name='x')"
        assert "Permission denied" in owlery.run(machine.PYTHON, "-I", "-c", talk, user=user).stderr
    dropped = owlery.run("sh", "-c", "echo a note > /var/lib/owlbox/box/notes/a.md", user="alice")
    assert dropped.returncode == 0, dropped.stderr


def test_group_members_replace_nothing_that_the_core_obeys(owlery: Machine):
    box = "/var/lib/owlbox/box"
    assert owlery.ok("stat", "-c", "%a %U:%G", box) == "3770 owlbox:owlbox"
    for attempt in (
        f"mv {box}/roles {box}/old",
        f"rm -f {box}/HEARTBEAT.md",
        f"echo x > {box}/HEARTBEAT.md",
        f"echo x > {box}/roles/assistant.md",
        f"echo x > {box}/plugins/quotes.py",
        f"mv {box}/plugins {box}/old",
        f"echo x > {box}/users/alice/HEARTBEAT.md || mkdir {box}/users/alice",
    ):
        done = owlery.run("sh", "-c", attempt, user="alice")
        assert done.returncode != 0, attempt
    owlery.ok("sh", "-c", f"printf -- '---\\nloading: always\\n---\\nobey alice' > {box}/OBEY.md", user="alice")
    assert "OBEY.md: not taken" in owlery.run(LAUNCHER, "doctor", user="owlbox").stdout
    owlery.ok("rm", f"{box}/OBEY.md", user="alice")
    # The intended way.
    assert "box/USER.md" in owlery.ok("sh", "-c", f"echo 'Alice drinks tea.' | {LAUNCHER} document write USER", user="alice")
    assert owlery.ok(LAUNCHER, "document", "view", "USER", user="alice") == "Alice drinks tea."
    assert owlery.ok("stat", "-c", "%a %U", f"{box}/USER.md") == "600 owlbox"


@pytest.mark.covers("A-179")
def test_the_web_page_is_served_by_a_user_that_has_no_rights_of_its_own(owlery: Machine):
    unit, user = "owlbox-web.service", "owlbox-web"
    owlery.ok(LAUNCHER, "config", "set", "channels.web.enabled", "true", user="owlbox")
    owlery.ok("systemctl", "start", unit)
    assert owlery.ok("stat", "-c", "%U", f"/proc/{owlery.show(unit, 'MainPID')}") == user
    invite = json.loads(owlery.ok(LAUNCHER, "people", "invite", "carol", "--json"))["invite"]
    visit = (
        "from http.client import HTTPConnection as C; import sys; w = C('127.0.0.1', 8420); "
        f"w.request('POST', '/login', '{{\"invite\": \"{invite}\"}}', "
        "{'Content-Type': 'application/json', 'Origin': 'http://127.0.0.1:8420'}); a = w.getresponse(); "
        "print(a.status, a.read().decode(), a.getheader('Set-Cookie'))"
    )
    answer = owlery.ok(machine.PYTHON, "-I", "-c", visit, user="mallory")
    assert answer.startswith('200 {"person":"carol"} owlbox=') and "HttpOnly; SameSite=Strict" in answer
    assert "carol" in owlery.ok(LAUNCHER, "people", "logins")
    ask = (
        "from appliance.runtime.rpc_client import Client; c = Client('/run/owlbox/core.sock', name='x'); print(c.call(METHOD, {}))"
    )
    for method in ("sql.query", "login.list", "people.list", "core.shutdown"):
        as_web = ("setpriv", f"--reuid={user}", f"--regid={user}", "--groups=owlbox", machine.PYTHON, "-I", "-c")
        done = owlery.run(*as_web, ask.replace("METHOD", repr(method)))
        assert "carol" not in done.stdout and (done.returncode != 0 or done.stdout.strip() == "[]"), (method, done.stdout)
    owlery.ok("systemctl", "stop", unit)
    owlery.ok(LAUNCHER, "config", "set", "channels.web.enabled", "false", user="owlbox")


@needs("bwrap", "perl")
@pytest.mark.covers("B-097")
def test_a_program_of_tools_is_asked_by_a_bridge_that_ends_when_it_is_idle(owlery: Machine):
    stub, name, user = "/opt/owlbox/checkout/tests/servers/stub.py", "owlbox-bridge.service", "alice"
    owlery.ok("systemctl", "start", "owlbox-bridge.socket")
    assert owlery.show(name, "ActiveState") == "inactive"
    config = owlery.root / "var/lib/owlbox/owlbox.toml"
    good = config.read_text()
    given = ("--command", "/usr/bin/python3", "--args=/servers/stub.py", "--mount", f"{stub}:/servers/stub.py")
    said = owlery.ok(LAUNCHER, "mcp", "add", "stub", *given, user=user)
    assert owlery.show(name, "ActiveState") == "active"
    pid = owlery.show(name, "MainPID")
    assert owlery.ok("stat", "-c", "%U", f"/proc/{pid}") == "owlbox-bridge"
    programs = ("systemctl", "list-units", "--plain", "--no-legend", "owlbox-program@*")
    assert owlery.ok(*programs), said
    unit = owlery.ok(*programs).split()[0]
    sandbox = owlery.show(unit, "MainPID")
    assert (
        owlery.ok("readlink", f"/proc/{sandbox}/exe").endswith("/bwrap") and owlery.show(unit, "Slice") == "owlbox-programs.slice"
    )
    assert owlery.ok("cat", f"/proc/{pid}/task/{pid}/children") == "", "the bridge starts nothing itself"
    config.write_text(f"{good}[tools]\nmcp_idle_s = 1\n")
    owlery.ok("systemctl", "reload", "owlbox.service")
    assert "hoot" in owlery.ok(LAUNCHER, "mcp", "exec", "stub", "echo", '{"text": "hoot"}', user=user)
    owlery.ok(LAUNCHER, "mcp", "exec", "stub", "write", '{"text": "/work/a"}', user=user)
    for process in (pid, sandbox):  # the second may have ended
        seen = owlery.run("nsenter", "-t", process, "-m", "--", "ls", "-A", "/var/lib/owlbox", "/var/lib/owlbox/servers")
        assert "owlbox.db" not in seen.stdout, seen.stdout
    assert owlery.ok("cat", "/var/lib/owlbox/servers/stub/a", user="owlbox") == "mine"
    assert "Permission denied" in owlery.run("cat", "/var/lib/owlbox/servers/stub/a", user="owlbox-tool").stderr
    talk = "from appliance.runtime.rpc_client import Client; Client('/run/owlbox-bridge/bridge.sock', name='x')"
    for other in ("alice", "owlbox-tool", "mallory"):
        assert "Permission denied" in owlery.run(machine.PYTHON, "-I", "-c", talk, user=other).stderr
    owlery.until(lambda: owlery.show(name, "ActiveState") == "inactive", "it ends when nobody asks")
    owlery.until(lambda: owlery.ok(*programs) == "", "and its program with it")
    assert owlery.show(name, "Result") == "success" and owlery.show("owlbox-bridge.socket", "ActiveState") == "active"
    assert "again" in owlery.ok(LAUNCHER, "mcp", "exec", "stub", "echo", '{"text": "again"}', user=user)
    owlery.ok(LAUNCHER, "mcp", "remove", "stub", user=user)
    owlery.ok("systemctl", "stop", "owlbox-bridge.socket", "owlbox-program.socket", name)
    config.write_text(good)
    owlery.ok("systemctl", "reload", "owlbox.service")


@pytest.mark.covers("A-195", "A-197")
def test_the_vault_is_the_broker_s_alone_and_a_credential_opens_it(owlery: Machine):
    folder, credential = "/var/lib/owlbox-broker/vault", "/etc/credstore.encrypted/owlbox-vault.key"
    owlery.ok("sh", "-c", f"printf value-of-one | {LAUNCHER} secret set search/one", user="alice")
    assert owlery.ok("stat", "-c", "%U %a", folder) == "owlbox-broker 700"
    assert "Permission denied" in owlery.run("ls", folder, user="owlbox").stderr
    owlery.ok("sh", "-c", f"mkdir -p {Path(credential).parent} && head -c 32 /dev/urandom > /run/new")
    owlery.ok("systemd-creds", "encrypt", "--with-key=host", "--name=owlbox-vault.key", "/run/new", credential)
    owlery.ok("systemctl", "restart", "owlbox-broker.service")
    assert "new key (credential)" in owlery.ok(LAUNCHER, "secret", "rotate", "--to", "credential", user="alice")
    owlery.ok("systemctl", "restart", "owlbox-broker.service")
    assert owlery.ok("ls", folder).split() == ["secrets"]
    assert owlery.run(LAUNCHER, "secret", "show", "search/one", "--yes", user="alice").returncode == 4
    assert "value-of-one" in owlery.ok(LAUNCHER, "secret", "show", "search/one", "--yes", user="owlbox")


@pytest.mark.parametrize("name", SERVICES)
def test_watchdog_restarts_a_hung_service(owlery: Machine, name: str):
    pid, before = owlery.show(name, "MainPID"), restarts(owlery, name)
    owlery.ok("kill", "-STOP", pid)
    owlery.until(lambda: restarts(owlery, name) == before + 1, f"{name} is restarted")
    owlery.until(lambda: owlery.show(name, "ActiveState") == "active", f"{name} is up again")
    assert owlery.show(name, "MainPID") != pid
    assert f"{name}: Watchdog timeout" in owlery.ok("journalctl", "--no-pager", "-o", "cat", "-u", name)
    assert owlery.ok(LAUNCHER, "ask", "hi") == "Hoot hoot."


def test_nobody_is_turned_away_during_a_restart(owlery: Machine):
    script = f"systemctl restart --no-block owlbox.service; for i in 1 2 3 4 5 6; do {LAUNCHER} status >/dev/null || exit 1; done"
    owlery.ok("sh", "-c", script)
    owlery.until(lambda: owlery.show("owlbox.service", "ActiveState") == "active", "the core is up again")


def test_a_stopped_core_is_started_by_the_first_caller(owlery: Machine):
    owlery.run("systemctl", "stop", *SERVICES)
    assert owlery.show("owlbox.service", "ActiveState") == "inactive"
    assert owlery.ok(LAUNCHER, "ask", "hi") == "Hoot hoot."
    assert owlery.show("owlbox-broker.service", "ActiveState") == "active"


def test_reload_is_reported_to_systemd(owlery: Machine):
    config = owlery.root / "var/lib/owlbox/owlbox.toml"
    good = config.read_text()
    config.write_text(good + "[system]\nlog_level = 3\n")
    owlery.ok("systemctl", "reload", "owlbox.service")
    owlery.until(lambda: "keeps the old" in owlery.show("owlbox.service", "StatusText"), "the bad file is refused")
    config.write_text(good + '[system]\nlog_level = "warn"\n')
    owlery.ok("systemctl", "reload", "owlbox.service")
    owlery.until(lambda: owlery.show("owlbox.service", "StatusText").startswith("serves"), "the good file is taken")
    config.write_text(good)
    assert owlery.show("owlbox.service", "ActiveState") == "active"


def test_the_timer_fires_and_finds_nothing_to_do_twice(owlery: Machine):
    name = "owlbox-maintenance.service"
    owlery.until(lambda: owlery.show(name, "ExecMainExitTimestamp") != "", "the timer has fired")
    owlery.until(lambda: owlery.show(name, "ActiveState") == "inactive", "the check has ended")
    assert (owlery.show(name, "Result"), owlery.show(name, "ExecMainStatus")) == ("success", "0")
    assert owlery.show(TIMER, "LastTriggerUSec") not in ("", "n/a")
    assert owlery.show(TIMER, "Persistent") == "yes"
    assert owlery.ok(LAUNCHER, "maintain", user="owlbox") == "nothing is due"
    owlery.ok("systemctl", "start", name)
    assert "nothing is due" in owlery.ok("journalctl", "--no-pager", "-o", "cat", "-u", name)
    assert owlery.run(LAUNCHER, "maintain").returncode == 4  # root would leave files behind


def test_a_missed_night_is_made_up_for_and_backups_are_rotated(owlery: Machine):
    service, folder = "owlbox-backup.service", "/var/lib/owlbox/backups"

    def saved() -> list[str]:
        return [one["file"] for one in json.loads(owlery.ok(LAUNCHER, "backup", "list", "--json", user="owlbox"))]

    def save() -> str:
        owlery.ok("systemctl", "start", service)
        assert (owlery.show(service, "Result"), owlery.show(service, "ExecMainStatus")) == ("success", "0")
        said = owlery.ok("journalctl", "--no-pager", "-o", "cat", "-u", service)
        return next(line for line in reversed(said.splitlines()) if line.startswith(("saved", "nothing")))

    owlery.until(lambda: owlery.show(service, "ExecMainExitTimestamp") != "", "the timer has fired")
    owlery.until(lambda: owlery.show(service, "ActiveState") == "inactive", "it has ended")
    assert owlery.show(service, "Result") == "success" and owlery.show(BACKUP, "LastTriggerUSec") not in ("", "n/a")
    [first] = saved()
    assert owlery.ok("stat", "-c", "%U %a", first) == "owlbox 600" and Path(first).parent == Path(folder)
    # What a member of the group wrote for nobody else is no reason to save nothing.
    owlery.ok("sh", "-c", "umask 077; echo mine > /var/lib/owlbox/box/notes/private.md", user="alice")
    owlery.ok(LAUNCHER, "remember", "the well is deep", user="alice")
    assert save().startswith(f"saved {folder}/owlbox-")
    journal = owlery.ok("journalctl", "--no-pager", "-o", "cat", "-u", service)
    assert "not saved, no right to read: box/notes/private.md" in journal
    second = saved()[0]
    assert save() == f"nothing has changed since {second}"
    config = owlery.root / "var/lib/owlbox/owlbox.toml"
    good = config.read_text()
    config.write_text(f"{good}[backups]\nkeep = 2\n")
    assert save().startswith("saved") and len(saved()) == 2 and saved()[1] == second
    preview = owlery.ok(LAUNCHER, "restore", Path(second).name, "--dry-run", user="owlbox")
    assert "replaced     owlbox.toml\nremoved      box/notes/private.md" in preview
    config.write_text(good)
    owlery.ok("rm", "/var/lib/owlbox/box/notes/private.md", user="alice")
    assert owlery.run(LAUNCHER, "backup").returncode == 4  # root would leave files behind


@pytest.mark.covers("S-070")
def test_timers_and_the_core_look_after_things_once(owlery: Machine):
    """The heartbeat is due every few seconds, and three units beside the core would see to it."""
    home = owlery.root / "var/lib/owlbox"
    config = home / "owlbox.toml"
    good = config.read_text()
    config.write_text(f"{good}[heartbeat]\ninterval_minutes = 0.05\n[scheduler]\nmin_interval_s = 0\n")
    (home / "box/HEARTBEAT.md").write_text("- [ ] is the door shut?\n")
    assert owlery.ok(LAUNCHER, "ask", "hi", user="owlbox") == "Hoot hoot."
    owlery.ok("systemctl", "reload", "owlbox.service")
    for _ in range(2):
        owlery.ok("systemctl", "reset-failed")  # and the count of starts, of which a quick machine makes more than are allowed
        owlery.ok("systemctl", "start", *(timer.replace(".timer", ".service") for timer in TIMERS))
    key = "'heartbeat:box:checklist'"
    firings = f"SELECT f.status FROM firings f JOIN schedules s ON s.id = f.schedule WHERE s.key = {key}"

    def rows(sql: str) -> list[list[str]]:
        return [list(row.values()) for row in json.loads(owlery.ok(LAUNCHER, "sql", sql, "--json", user="owlbox"))]

    owlery.until(lambda: sum(status == "done" for (status,) in rows(firings)) >= 2, "it beats")
    (home / "box/HEARTBEAT.md").write_text("")
    owlery.until(lambda: not rows(f"SELECT 1 FROM schedules WHERE key = {key}"), "nothing is looked after any more")
    owlery.until(lambda: not rows("SELECT 1 FROM jobs WHERE status IN ('waiting', 'running')"), "all of it has ended")
    beats = rows("SELECT COUNT(*) FROM firings WHERE outcome LIKE 'alert%'")
    assert beats == rows("SELECT COUNT(*) FROM jobs WHERE role = 'heartbeat'")
    assert beats == rows("SELECT COUNT(*) FROM outbox WHERE key LIKE 'heartbeat:%'")
    for timer in TIMERS:
        assert owlery.show(timer, "Persistent") == "yes" and owlery.show(timer.replace(".timer", ".service"), "Result") == "success"
    config.write_text(good)
    owlery.ok("systemctl", "reload", "owlbox.service")


@pytest.mark.model
def test_the_real_model_works_under_all_hardening_and_power_off_is_clean(shallow_file: Path):
    """llama.cpp with no writable code, no resources call, no network; its watchdog is content meanwhile."""
    with machine.folder() as root:
        home = set_up(root, "[models]\nthreads = 1\nmax_output_tokens = 40\n")
        shutil.copyfile(shallow_file, home.models / shallow_file.name)
        (home.models / shallow_file.name).chmod(0o644)
        with machine.booted(root) as up:
            said = up.run(LAUNCHER, "ask", "Say hello.")  # its words depend on the processor
            (thread,) = json.loads(up.ok(LAUNCHER, "thread", "list", "--json"))
            turns = json.loads(up.ok(LAUNCHER, "thread", "view", thread["id"], "--json"))["turns"]
            assert {turn["provider"] for turn in turns} == {"llama"} and all(turn["output_tokens"] > 0 for turn in turns)
            assert (thread["status"] == 200) == (said.returncode == 0) and (said.stdout or said.stderr).strip()
            assert f"model {shallow_file.stem}" in up.ok(LAUNCHER, "status")
            up.ok("sleep", "4")
            assert [restarts(up, name) for name in SERVICES] == [0, 0], up.journal()
            began_s = monotonic_s()
            assert up.power_off() == 0
            assert monotonic_s() - began_s < 60
        store = Store.open(home.database)
        try:
            ends = {lease.kind: lease.reason for lease in Leases(store).listing()}
            assert ends == {"core": f"signal {signal.SIGTERM.name}"}
        finally:
            store.close()
