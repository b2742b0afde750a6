"""`owlbox config`: what holds, and one key changed in the file as a person wrote it."""

import json
from pathlib import Path

import pytest

from appliance.cli import main
from appliance.runtime import config
from appliance.runtime.paths import Home

FILE = '# mine\n[models]\nthreads = 2 # few\n\n[providers.Attic]\nbase_url = "http://127.0.0.1:1/v1"\nkey = "sk-canary-123"\n'


@pytest.fixture
def box(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.config.write_text(FILE)
    home.config.chmod(0o600)
    return home


def owl(box: Home, *words: str) -> int:
    return main.main(["--home", str(box.root), *words])


def test_every_key_is_listed_and_no_secret(box: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert owl(box, "--json", "config", "list") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["models.threads"] == 2 and found["heartbeat.enabled"] is True and len(found) > 250
    assert found["providers.Attic.key"] == "[hidden]"


def test_what_was_set_is_marked_and_found_by_a_word(box: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert owl(box, "config", "list", "--changed") == 0
    out = capsys.readouterr().out
    assert "models.threads *" in out and "heartbeat" not in out and "cpus" not in out and "sk-canary" not in out
    assert owl(box, "config", "list", "quiet") == 0
    assert "notifications.quiet_from" in capsys.readouterr().out
    assert owl(box, "config", "list", "nothing-like-this") == 3


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("models.threads", "4", "threads = 4 # few"),
        ("heartbeat.enabled", "no", "enabled = false"),
        ("system.admin_users", '["ada"]', 'admin_users = ["ada"]'),
        ("providers.attic.timeout_s", "9", "timeout_s = 9.0"),
        ("heartbeat.prompt", "${X:-owl}", 'prompt = "${X:-owl}"'),
    ],
)
def test_one_key_is_changed_and_nothing_else(
    box: Home, capsys: pytest.CaptureFixture[str], key: str, value: str, line: str
) -> None:
    assert owl(box, "config", "set", key, value) == 0
    text = box.config.read_text()
    assert line in text.splitlines()
    assert [one for one in FILE.splitlines() if one not in text.splitlines()] in ([], ["threads = 2 # few"])
    assert f"{key.replace('attic', 'Attic')} = " in capsys.readouterr().out
    config.load(box, {})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("models.threds", "4", "did you mean models.threads?"),
        ("models.threads", "many", "must be a whole number"),
        ("models.threads", "-1", "must be between 0 and 256"),
        ("models.pool", "none", "one of the pools"),
        ("system.admin_users", "ada", "not JSON"),
        ("nonsense", "1", "unknown key nonsense"),
    ],
)
def test_a_bad_change_is_refused_in_words_and_leaves_the_file(
    box: Home, capsys: pytest.CaptureFixture[str], key: str, value: str, said: str
) -> None:
    assert owl(box, "config", "set", key, value) == 2
    err = capsys.readouterr().err
    assert said in err and "OWLBOX__" not in err and box.config.read_text() == FILE
