"""The same attacks through the tool unit, in a real systemd: from a core that is not root, as a user who owns nothing.

`attacks.py` runs once with everything it can try; what would not stop runs after it. The treasures belong to the users
they belong to on an appliance. That the attempts are worth something is shown by `test_attacks`.
"""

import json
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attacks
import machine
import pytest
from machine import Machine
from needs import needs
from test_attacks import ENDED, ENDLESS, ENDLESS_BYTES, NAMES, NUMBERS, REFUSED, SECRET, SMALL, Verdicts

from appliance.sandbox import seccomp

pytestmark = needs("bwrap", "perl")
HOME = "/var/lib/owlbox"
TREASURES = {
    "database": "owlbox.db",
    "configuration": "owlbox.toml",
    "keys": "keys.toml",
    "other": "sessions/other/data/secret",
    "people": "users/mia/MEMORY.md",
    "identity": "box/SOUL.md",
    "log": "logs/core.log",
}
# Has orders carried out by the unit, as the core would; also listens wherever it can.
CORE = """
import json, pathlib, socket, sys, threading
from appliance.sandbox.launcher import Limits, SandboxOrder, Plan, Sandbox
world, endless, given_bytes = json.load(sys.stdin)
local, server = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))
local.bind("\\0" + world["abstract"])
local.listen()
import os
world |= {"port": server.getsockname()[1], "core": os.getpid()}
folder = pathlib.Path("/var/lib/owlbox/sessions/own/data")
sandbox, said = Sandbox(Plan(unit=pathlib.Path("/run/owlbox-tool/tool.sock"))), {}
def run(name, *words, **limits):
    argv = ("/usr/bin/python3", "-I", "-S", "attacks.py", *words)
    limits = Limits(**{"timeout_s": 60, **limits})
    order = SandboxOrder("exec", "own", argv, folder=folder, stdin=json.dumps(world).encode(), limits=limits)
    done = sandbox.run(order, threading.Event())
    said[name] = [done.status, done.exit_code, done.error, done.stdout.decode()[:100000], done.stderr.decode()[-2000:]]
    for path in folder.glob("fill-*"):
        path.unlink()
run("all")
for name, limits in endless.items():
    run(name, name, str(given_bytes), **limits)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Machine]:
    with machine.folder() as root:
        machine.make_root(root)
        machine.install(root)
        machine.enable(root, "owlbox-tool.socket")
        with machine.booted(root) as made:
            yield made


@pytest.fixture(scope="module")
def said(up: Machine) -> dict[str, list[Any]]:
    """What became of each attack."""
    home = up.root / HOME[1:]
    own = home / "sessions/own/data"
    for name in (*TREASURES.values(), "sessions/own/data/attacks.py"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    shutil.copyfile(attacks.__file__, own / "attacks.py")
    shutil.copyfile("/usr/bin/id", own / "id")
    up.ok("chown", "-R", "owlbox:owlbox", HOME)
    up.ok("chown", "-R", "owlbox:owlbox-tool", f"{HOME}/sessions")
    up.ok("chmod", "-R", "u=rwX,g=,o=", HOME)
    up.ok("chmod", "711", HOME)
    up.ok("chmod", "2710", f"{HOME}/sessions", f"{HOME}/sessions/own")
    up.ok("chmod", "640", f"{HOME}/sessions/own/data/attacks.py")
    up.ok("chown", "root", f"{HOME}/sessions/own/data/id")
    (own / "id").chmod(stat.S_ISUID | 0o755)
    up.ok("systemd-run", "--quiet", "--uid=owlbox-broker", "--unit=victim", "sleep", "600")
    numbers = {call: seccomp.number(call) for call in seccomp.calls()}
    world = {
        **{name: f"{HOME}/{path}" for name, path in TREASURES.items()},
        "home": HOME,
        "outside": f"{HOME}/mark",
        "broker": int(up.show("victim.service", "MainPID")),
        "core_socket": "/run/owlbox-tool/tool.sock",
        "broker_socket": "/run/systemd/private",
        "abstract": "owlbox-attacked",
        "secret": SECRET,
        "groups": ["release_agent", "cgroup.procs"],
        "is_inside": True,
        "first": 1,
        "numbers": {**{call: pair[seccomp.this_machine() != "x86_64"] for call, pair in NUMBERS.items()}, **numbers},
    }
    endless = {name: {**SMALL, "timeout_s": 2 if name in ("grow_output", "grow_processes") else 60} for name in ENDLESS}
    inside = ["nsenter", "-t", str(up.leader), "-a", "--", "setpriv", "--reuid=owlbox", "--regid=owlbox", "--init-groups"]
    done = subprocess.run(
        [*inside, machine.PYTHON, "-I", "-c", CORE],
        input=json.dumps([world, endless, ENDLESS_BYTES]),
        capture_output=True,
        text=True,
        timeout=450,
        env={"PATH": "/usr/bin:/bin", "PROVIDER_KEY": SECRET},
    )
    assert done.returncode == 0, done.stderr + up.journal()
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def verdicts(said: dict[str, list[Any]]) -> Verdicts:
    _, code, error, out, err = said["all"]
    assert code == 0, (error, err)
    return {line.pop("name"): line for line in map(json.loads, out.splitlines())}


@pytest.mark.covers("A-003", "A-057", "A-065", "A-066", "A-067", "A-068")
@pytest.mark.parametrize("name", NAMES)
def test_every_attempt_is_refused_in_the_unit_too(verdicts: Verdicts, name: str) -> None:
    found = verdicts[name]
    assert "got" not in found, found
    assert found["refused"] == ENDED.get(name, found["refused"])
    assert name in ENDED or found["refused"] in REFUSED, found


@pytest.mark.covers("A-283", "A-069")
@pytest.mark.parametrize("name", ENDLESS)
def test_whoever_does_not_stop_is_ended_in_the_unit_too(said: dict[str, list[Any]], name: str) -> None:
    status, code, error, _, err = said[name]
    if name in ("grow_processes", "grow_output"):  # the kernel gives no more, and who asks on waits for the end
        assert (status, code) == ("timeout", -1), (error, err)
    else:
        assert (status, code) == ("failed", -1) and ENDLESS[name][0] in error, (error, err)


@pytest.mark.covers("A-003", "A-280")
def test_nothing_of_it_is_left_in_the_machine(up: Machine, said: dict[str, list[Any]]) -> None:
    assert not (up.root / HOME[1:] / "mark").exists()
    for name in ("keys.toml", "sessions/other/data/secret"):
        assert Path(up.root / HOME[1:] / name).read_text() == SECRET
    assert up.run("pgrep", "-u", "owlbox-tool").stdout == ""
    up.until(lambda: "owlbox-tool@" not in up.ok("systemctl", "list-units", "--no-legend", "owlbox-tool@*"), "every unit is gone")
