"""Values that can be read and cannot work are refused when they are set, at a reload and by the doctor, with the key's name."""

from pathlib import Path

import pytest
from process import Box, a_box

from appliance.errors import ConfigError
from appliance.runtime import config_edit
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.service.checks.unworkable import find_unworkable, require_workable

__all__ = ["a_box"]
VALUES = [
    ("system.timezone", "Mars/Base"),
    ("heartbeat.timezone", "Mars/Base"),
    ("notifications.timezone", "Europe/Nowhere"),
    ("backups.target", "/media/nostick"),
    ("backups.target", "ftp://nas/backups"),
    ("backups.key_file", "/nowhere/key"),
    ("channels.web.certificate", "nowhere.pem"),
    ("channels.email.imap_host", "https://mail.example.org/"),
    ("channels.email.smtp_host", "mail example"),
    ("providers.acme.ca_file", "/nowhere/ca.pem"),
    ("models.default", "no-such-model"),
    ("models.embedding", "no-such-model"),
    ("routes.own.model", "no-such-model"),
]


def set_key(home: Home, key: str, value: str) -> None:
    place = key.split(".")
    config_edit.set_value(home, {}, place, value, lambda settings: require_workable(home, settings, [key]))


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_a_value_that_cannot_work_is_refused_with_its_key(home: Home, key: str, value: str) -> None:
    if key.startswith("providers."):
        home.config.write_text('[providers.acme]\nbase_url = "http://127.0.0.1:9/v1"\n')
    if key.startswith("routes."):
        home.config.write_text('[routes.own]\nprovider = "local"\nmodel = ""\n')
    before = home.config.read_bytes() if home.config.exists() else b""
    with pytest.raises(ConfigError) as refused:
        set_key(home, key, value)
    assert refused.value.key == key and key in refused.value.message and refused.value.hint
    assert (home.config.read_bytes() if home.config.exists() else b"") == before


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
    config_edit.set_value(box.home, {}, ["notifications", "timezone"], "Mars/Base")
    done = box.run("reload")
    assert done.returncode != 0 and "notifications.timezone" in done.stderr and "the old one stays" in done.stderr
    done = box.run("doctor", "configuration")
    assert done.returncode == 1 and "notifications.timezone" in done.stdout
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
