"""Values that can be read and cannot work are refused when they are set, at a reload and by the doctor, with the key's name."""

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from process import Box, a_box
from stores import new_home

from appliance.cli import main as cli
from appliance.errors import ConfigError
from appliance.runtime import config_edit
from appliance.runtime.config import reference
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.runtime.tool_settings import Mount, SandboxSettings
from appliance.service.core import Core
from appliance.upkeep.checks.unworkable import find_unworkable, require_workable
from appliance.upkeep.doctor import Doctor

__all__ = ["a_box"]
PROVIDER = '[providers.acme]\nbase_url = "http://127.0.0.1:9/v1"\n'
ROUTE = '[routes.own]\nprovider = "local"\nmodel = "own"\n'
SERVER = '[tools.mcp.own]\ncommand = "/bin/true"\n'
WORKSPACE = "[channels.slack.workspaces.birds]\n"
# A key, what the file has before, and a value that cannot work.
VALUES: list[tuple[str, str, Any]] = [
    ("system.timezone", "", "Mars/Base"),
    ("heartbeat.timezone", "", "Mars/Base"),
    ("system.admin_users", "", ["nobody-here"]),
    ("sandbox.groups", "", {"birds": ["nobody-here"]}),
    ("sandbox.mounts.user", "", [{"path": "/tmp", "user": "nobody-here"}]),
    ("sandbox.mounts.group", "", [{"path": "/tmp", "group": "no-group"}]),
    ("sandbox.mounts.path", "", [{"path": "/nowhere"}]),
    ("sandbox.workspace", "", "/nowhere"),
    ("people.owner_aliases.channel", "", [{"address": "ben@example.org", "channel": "pigeon"}]),
    ("backups.target", "", "/media/nostick"),
    ("backups.target", "", "ftp://nas/backups"),
    ("backups.key_file", "", "/nowhere/key"),
    ("channels.web.certificate", "", "nowhere.pem"),
    ("channels.web.key", "", "nowhere.pem"),
    ("channels.web.host", "", "192.0.2.7"),
    ("channels.web.address", "", "owl.lan"),
    ("channels.email.imap_host", "", "https://mail.example.org/"),
    ("channels.email.smtp_host", "", "mail example"),
    ("channels.email.trusted_server", "", "mail example"),
    ("channels.email.password", "", "secret:channel/nowhere"),
    ("channels.matrix.homeserver", "", "https://"),
    ("channels.matrix.trusted_servers", "", ["https://matrix.org/"]),
    ("channels.matrix.token", "", "secret:llm/openai"),
    ("channels.slack.api_url", "", "slack.com"),
    ("channels.slack.bot_token", "", "secret:channel/nowhere"),
    ("channels.slack.app_token", "", "secret:nowhere"),
    ("channels.slack.workspaces.birds.api_url", WORKSPACE, "slack.com"),
    ("channels.slack.workspaces.birds.bot_token", WORKSPACE, "secret:channel/nowhere"),
    ("channels.slack.workspaces.birds.app_token", WORKSPACE, "secret:channel/nowhere"),
    ("channels.webhook.key", "", "secret:channel/nowhere"),
    ("channels.webhook.sources", "", {"doorbell": "secret:channel/nowhere"}),
    ("providers.acme.base_url", PROVIDER, "http://two words/v1"),
    ("providers.acme.key", PROVIDER, "secret:llm/nowhere"),
    ("providers.acme.ca_file", PROVIDER, "/nowhere/ca.pem"),
    ("providers.acme.fallback", PROVIDER, ["nobody"]),
    ("models.default", "", "no-such-model"),
    ("models.embedding", "", "no-such-model"),
    ("models.script", "", "nowhere.toml"),
    ("models.pool", "", "no-such-pool"),
    ("heartbeat.pool", "", "no-such-pool"),
    ("agents.worker.pool", "", "no-such-pool"),
    ("agents.worker.model", "", "nobody/model"),
    ("pools.default", "", ["nobody/model"]),
    ("routes.own.model", ROUTE, "no-such-model"),
    ("routes.own.provider", ROUTE, "nobody"),
    ("routes.own.also", ROUTE, ["nobody/model"]),
    ("tools.mcp.own.command", SERVER, "no-such-program"),
    ("tools.mcp.own.cwd", SERVER, "/nowhere"),
    ("tools.mcp.own.mounts", SERVER, ["/nowhere"]),
    ("tools.mcp.own.writable", SERVER, ["relative"]),
    ("tools.mcp.own.url", SERVER, "http://two words/"),
    ("tools.mcp.own.issuer", SERVER + 'client_id = "us"\nclient_secret = "${HOME}"\n', "http://"),
    ("tools.mcp.own.env", SERVER, {"TOKEN": "secret:mcp/nowhere"}),
    ("tools.mcp.own.headers", SERVER, {"Authorization": "secret:mcp/nowhere"}),
    ("tools.mcp.own.client_secret", SERVER, "secret:mcp/nowhere"),
    ("tools.web.private_networks", "", ["192.168.1.0/99"]),
    ("tools.web.allow_hosts", "", ["two words"]),
    ("tools.web.block_hosts", "", ["two words"]),
    ("tools.web_search.url", "", "http://two words/"),
    ("tools.web_search.key", "", "secret:search/nowhere"),
    ("tools.blocked_patterns", "", [" "]),
    ("policy.path", "", "nowhere/policy.toml"),
    ("audit.file", "", "nowhere/audit.jsonl"),
    ("skills.folders", "", ["/nowhere"]),
    ("plugins.enabled", "", ["no-such-plugin"]),
    ("notifications.quiet_from", "", "noon"),
    ("notifications.quiet_until", "", "noon"),
    ("heartbeat.active_from", "", "noon"),
    ("heartbeat.active_until", "", "noon"),
    ("updates.source", "", "/nowhere"),
    ("updates.key", "", "no key"),
    ("updates.folder", "", "/nowhere"),
]
# Text that names nothing outside, or something that only a server could know: whom it serves and how they are called there.
FREE = """
providers.NAME.headers prompt.system_prompt_override heartbeat.prompt people.owner_aliases.address skills.trusted tools.disabled
tools.mcp.NAME.args tools.mcp.NAME.client_id channels.email.user channels.email.from_address channels.email.allow_from
channels.email.pins channels.matrix.user channels.matrix.rooms channels.matrix.allow_from channels.slack.trigger
channels.slack.rooms channels.slack.allow_from channels.slack.workspaces.NAME.trigger channels.slack.workspaces.NAME.rooms
channels.slack.workspaces.NAME.allow_from
""".split()


def test_every_key_that_takes_a_text_is_in_the_table() -> None:
    taken = re.findall(r"^\| `([\w.]+)` \| (?:text|(?:list|table) of [a-z ]*text)", reference(), re.MULTILINE)
    named = {
        re.sub(r"^(providers|routes|agents|pools|tools\.mcp|channels\.slack\.workspaces)\.\w+", r"\1.NAME", key)
        for key, _, _ in VALUES
    }
    assert set(taken) - named - set(FREE) == set()


def place_of(key: str, value: Any) -> list[str]:
    """Where the value stands in the file: of a list of tables that is the list."""
    place = key.split(".")
    return place[:-1] if isinstance(value, list) and isinstance(value[0], dict) else place


@pytest.fixture
def core(tmp_path: Path, runtime: Path) -> Iterator[Core]:
    home = Home(tmp_path / "core")
    new_home(home)
    made = Core(home, {**os.environ, "XDG_RUNTIME_DIR": str(runtime)})
    yield made
    made.close("the test has ended")


def test_a_value_that_cannot_work_is_refused_with_its_key_everywhere(
    core: Core, runtime: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, wrong = core.home, []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert core.vault.listing()["secrets"] == []
    core.base.people.change_group("birds")
    mount = Config(sandbox=SandboxSettings(mounts=(Mount(path="/tmp", group="birds"),)))
    assert list(find_unworkable(home, mount, core)) == []
    for key, before, value in VALUES:
        home.config.write_text(before)
        core.live.reload()
        place, told = place_of(key, value), []
        given = value if isinstance(value, str) else json.dumps(value)
        is_asked = (
            re.search(r"secret:\w+/nowhere|nobody-here|no-group", given) is not None
        )  # in a command each time by a core of its own
        if not is_asked or key in ("channels.email.password", "system.admin_users"):
            code = cli.main(["--home", str(home.root), "config", "set", ".".join(place), given])
            told.append(capsys.readouterr().err if code == 2 else f"taken: {code}")
        assert home.config.read_text() == before
        raw = tomllib.loads(before)
        config_edit.put(raw, place, value)
        home.config.write_text(tomlkit.dumps(raw))
        try:
            core.reload()
            told.append("taken")
        except ConfigError as error:
            told.append(str(error))
        if "/nowhere" not in given or "secret:" not in given:  # of secrets the doctor asks a core that is served: see below
            [found] = Doctor(home, core.base.environ).examine(["configuration"])
            told.append(str(found.message))
        last = key.rpartition(".")[2]
        wrong += [(key, one) for one in told if last not in one or "taken" in one or ".".join(place) not in one]
    assert not wrong, "\n".join(map(str, wrong))


def test_a_secret_that_is_set_later_makes_it_right(box: Box) -> None:
    core = box.serve()
    box.home.config.write_text('[tools.web_search]\nkey = "secret:search/brave"\n')
    said = "tools.web_search.key cannot work: there is no secret search/brave"
    done = box.run("reload")
    assert done.returncode == 2 and said in done.stderr and "owlbox secret set search/brave" in done.stderr
    assert said in box.run("doctor", "configuration").stdout
    done = box.run("config", "set", "channels.email.password", "secret:channel/email")
    assert done.returncode == 2 and "channels.email.password cannot work: there is no secret channel/email" in done.stderr
    for name in ("search/brave", "channel/email"):
        assert box.run("secret", "set", name, text="a-long-value\n").returncode == 0
    assert box.run("config", "set", "channels.email.password", "secret:channel/email").returncode == 0
    assert box.run("reload").returncode == 0 and box.run("doctor", "configuration").returncode == 0
    assert core.stop() == 0


def set_key(home: Home, key: str, value: str) -> None:
    place = key.split(".")
    config_edit.set_value(home, {}, place, value, lambda settings: require_workable(home, settings, [key]))


def test_values_that_work_are_taken(home: Home, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("four words that nobody knows\n")
    home.models.mkdir(parents=True, exist_ok=True)
    (home.models / "own-model-q8.gguf").write_bytes(b"GGUF")
    taken = (
        ("models.default", "own-model"),
        ("system.timezone", "Europe/Berlin"),
        ("backups.target", str(tmp_path / "far")),
        ("backups.target", "sftp://owl@nas.local/backups"),
        ("backups.key_file", str(tmp_path / "key")),
        ("channels.email.imap_host", "mail.example.org"),
    )
    for key, value in taken:
        set_key(home, key, value)
    assert list(find_unworkable(home, Config())) == []


def test_reload_and_doctor_refuse_it_too_and_a_core_starts_with_it(box: Box) -> None:
    core = box.serve()
    config_edit.set_value(box.home, {}, ["heartbeat", "timezone"], "Mars/Base")
    done = box.run("reload")
    assert done.returncode != 0 and "heartbeat.timezone" in done.stderr and "the old one stays" in done.stderr
    done = box.run("doctor", "configuration")
    assert done.returncode == 1 and "heartbeat.timezone" in done.stdout
    assert core.stop() == 0
    assert box.serve().stop() == 0


def test_a_file_broken_under_a_running_core_shows_in_status(box: Box) -> None:
    core = box.serve()
    assert box.json("status")["faults"] == []
    with box.home.config.open("a") as file:
        file.write("\nnot toml at all [\n")
    [fault] = box.json("status")["faults"]
    assert "the next start fails" in fault and "owlbox.toml" in fault
    assert box.run("status").stdout.splitlines()[0].startswith("problem")
    assert core.stop() == 0
