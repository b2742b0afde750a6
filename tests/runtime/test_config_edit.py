"""One key of owlbox.toml changes and every other character stays."""

import os
import tomllib
from difflib import ndiff
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import ConfigError
from appliance.runtime import config, config_edit, config_reference
from appliance.runtime.paths import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def change(home: Home, old: str, text: str = "owl") -> str:
    home.config.write_bytes(old.encode())
    assert config_edit.set_text(home, {}, "models", "default", text)
    assert config.load(home, {}).models.default == text
    return home.config.read_bytes().decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", '[models]\ndefault = "owl"\n'),
        ("# mine\n", '# mine\n\n[models]\ndefault = "owl"\n'),
        ("# mine", '# mine\n[models]\ndefault = "owl"\n'),
        ('[models]\ndefault = "a" # why\nthreads = 2\n', '[models]\ndefault = "owl" # why\nthreads = 2\n'),
        ("[models]\ndefault='a'\n", '[models]\ndefault="owl"\n'),
        ('[models] # the mind\n  "default"  = "a#b"  # c\n', '[models] # the mind\n  "default"  = "owl"  # c\n'),
        ('[models]\n#default = ""\nthreads = 2\n', '[models]\ndefault = "owl"\nthreads = 2\n'),
        ("[models]\nthreads = 2\n", '[models]\ndefault = "owl"\nthreads = 2\n'),
        ('[models]\r\ndefault = "a"\r\n# x\r\n', '[models]\r\ndefault = "owl"\r\n# x\r\n'),
        ('\ufeff[models]\ndefault = "a"\n', '\ufeff[models]\ndefault = "owl"\n'),
        ('models.default = "a"\n', 'models.default = "owl"\n'),
        ("models.threads = 2\n", 'models.threads = 2\nmodels.default = "owl"\n'),
        ("models = { threads = 2 } # m\n", 'models = { threads = 2, default = "owl"} # m\n'),
        ('[models]\ndefault = """\na\n""" # why\n# end\n', '[models]\ndefault = "owl" # why\n# end\n'),
        ("[models]\r\n# of models\r\n\r\n# of the box\r\n[system]\r\n", None),
        ("# a\n\n[system]\n# b\n\n\n# c\n", None),
        ('[routes.x]\nprovider = "local"\nmodel = "a"\n', None),
        ('[prompt]\nsystem_prompt_override = """\n[models]\ndefault = "no"\n"""\n[models]\ndefault = "a"\n', None),
        ('[models]\n[backups]\ntarget = "default = 1"\n', '[models]\ndefault = "owl"\n[backups]\ntarget = "default = 1"\n'),
    ],
)
def test_only_the_key_changes(home: Home, old: str, new: str | None) -> None:
    found = change(home, old)
    if new is not None:
        assert found == new
    else:  # nothing is lost, and no line end is of another kind
        assert [line for line in old.splitlines() if line not in found.splitlines()] in ([], ['default = "a"'])
        assert "\r" not in old or found.count("\n") == found.count("\r\n")
    before = tomllib.loads(old.removeprefix("\ufeff"))
    before.setdefault("models", {})["default"] = "owl"
    assert tomllib.loads(found.removeprefix("\ufeff")) == before


def test_the_file_that_init_writes_keeps_its_comments(home: Home) -> None:
    old = config_reference.default_toml()
    new = change(home, old)
    assert new == old.replace('#default = ""  #', 'default = "owl"  #', 1) and new != old


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_name_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    home = Home(tmp_path_factory.mktemp("amend"))
    change(home, '[models]\ndefault = "another one"\n', text)


def test_the_same_value_touches_nothing(home: Home) -> None:
    home.config.write_text('[models]\ndefault = "owl"\n')
    before = home.config.stat()
    assert not config_edit.set_text(home, {}, "models", "default", "owl")
    assert home.config.stat() == before


def test_mode_and_link_are_kept(home: Home, tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("[models]\n")
    real.chmod(0o640)
    home.config.symlink_to(real)
    assert config_edit.set_text(home, {}, "models", "default", "owl")
    assert home.config.is_symlink() and real.stat().st_mode & 0o777 == 0o640 and 'default = "owl"' in real.read_text()


@pytest.mark.parametrize(
    ("old", "complaint"),
    [
        ("models = 3\n", "not a table"),
        ("[models\n", "line 1"),
        ("[models]\nthread = 2\n", "unknown key models.thread"),
        ("[models]\nthreads = -1\n", "models.threads = -1"),
    ],
)
def test_a_file_that_cannot_be_changed_stays_as_it_is(home: Home, old: str, complaint: str) -> None:
    home.config.write_text(old)
    with pytest.raises(ConfigError, match=complaint):
        config_edit.set_text(home, {}, "models", "default", "owl")
    assert home.config.read_text() == old and os.listdir(home.root) == ["owlbox.toml"]


def test_what_cannot_be_changed_is_said_with_the_line_to_write(home: Home) -> None:
    """Where no way to write it reads as it should, the text is not changed at all."""
    with pytest.raises(ConfigError, match="only a person can change") as caught:
        config_edit.edited("[a]\n", ("a", "b"), "x", {"a": {"b": "y"}}, home.config)
    assert caught.value.hint == 'in [a]: b = "x"'


OLD = """\
# Mine: since 2026, edited by hand.
title.x = 1            # odd spacing,  kept
"quoted key" = [ 1,
   2, # two
]

[channels.email]   # mail
  enabled   =  false
# password = "old"
user = 'owl'

[[sandbox.mounts]]
path = "/a"   # first
[[sandbox.mounts]]
path = "/b"

[sandbox.roles.exec]
memory_mb = 99 # more
# end, no newline"""


@pytest.mark.parametrize(
    ("place", "value", "line"),
    [
        (("channels", "email", "enabled"), True, "  enabled   =  true"),
        (("channels", "email", "user"), "ada", 'user = "ada"'),
        (("sandbox", "roles", "exec", "memory_mb"), 7, "memory_mb = 7 # more"),
        (("channels", "email", "password"), "p", 'password = "p"'),
        (("channels", "email", "tls"), False, "tls = false"),
        (("title", "x"), 2, "title.x = 2            # odd spacing,  kept"),
        (("system", "admin_users"), ["a", "b"], 'admin_users = ["a", "b"]'),
    ],
)
def test_every_other_line_stays_byte_by_byte(home: Home, place: tuple[str, ...], value: object, line: str) -> None:
    wanted = tomllib.loads(OLD)
    config_edit.put(wanted, place, value)
    found = config_edit.edited(OLD, place, value, wanted, home.config)
    changes = [one for one in ndiff(OLD.splitlines(), found.splitlines()) if one[0] in "+-" and one[2:].strip()]
    assert f"+ {line}" in changes and len(changes) <= 2 and tomllib.loads(found) == wanted


@pytest.mark.parametrize("old", [None, "", " \n"])
def test_a_file_that_says_nothing_is_written_whole(home: Home, old: str | None) -> None:
    if old is not None:
        home.config.write_text(old)
    wanted = ['a"b\\c', "ü\n\x7f"]
    assert config_edit.set_value(home, {}, ("tools", "blocked_patterns"), wanted)
    assert config.load(home, {}).tools.blocked_patterns == tuple(wanted)
    assert not config_edit.set_value(home, {}, ("tools", "blocked_patterns"), wanted)
    assert config_edit.set_value(home, {}, ("routes", "my.own"), {"provider": "local", "model": "a"})
    assert tomllib.loads(home.config.read_text())["routes"] == {"my.own": {"provider": "local", "model": "a"}}
