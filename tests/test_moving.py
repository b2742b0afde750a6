"""Plain keys into the vault: where they are found, what they are called there, and what is left of the file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance import config, moving
from appliance.errors import ConfigError, Unavailable
from appliance.places import Home

KEY = "sk-plain-0123456789"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def keep(kept: dict[str, str]) -> Callable[[str, str], bool]:
    def put(name: str, value: str) -> bool:
        is_new = kept.get(name) != value
        kept[name] = value
        return is_new

    return put


# what the file says, what it says afterwards, the name in the vault
FILES = {
    "header": (f'# a\n[providers.openai] # b\nkey = "{KEY}"  # don\'t\n', '# a\n[providers.openai] # b\nkey = "secret:llm/openai"  # don\'t\n', "llm/openai"),
    "literal": (f"[providers.openai]\nkey='{KEY}'\n", '[providers.openai]\nkey="secret:llm/openai"\n', "llm/openai"),
    "dotted": (f'providers.openai.key = "{KEY}"\n', 'providers.openai.key = "secret:llm/openai"\n', "llm/openai"),
    "inline": (f'providers = {{ openai = {{ key = "{KEY}" }} }}', 'providers = { openai = { key = "secret:llm/openai" } }', "llm/openai"),
    "long": (f'[providers.openai]\nkey = """\n{KEY}"""\n', '[providers.openai]\nkey = "secret:llm/openai"\n', "llm/openai"),
    "escaped": (f'[providers.openai]\nkey = "\\u0073{KEY[1:]}"\n', '[providers.openai]\nkey = "secret:llm/openai"\n', "llm/openai"),
    "quotes": (
        f"# don't \"\"\" '\n[providers.openai]\nkey = \"{KEY}\"\n",
        "# don't \"\"\" '\n[providers.openai]\nkey = \"secret:llm/openai\"\n",
        "llm/openai",
    ),
    "comment": (
        f'#key = "{KEY}"\n[providers.openai]\nkey = "{KEY}"\n',
        '#key = "secret:llm/openai"\n[providers.openai]\nkey = "secret:llm/openai"\n',
        "llm/openai",
    ),
    "windows": (f'\ufeff[providers.openai]\r\nkey = "{KEY}"\r\n', '\ufeff[providers.openai]\r\nkey = "secret:llm/openai"\r\n', "llm/openai"),
    "matrix": (f'[channels.matrix]\ntoken = "{KEY}"\n', '[channels.matrix]\ntoken = "secret:channel/matrix-token"\n', "channel/matrix-token"),
    "search": (
        f'[tools.web_search]\nprovider = "brave"\nkey = "{KEY}"\n',
        '[tools.web_search]\nprovider = "brave"\nkey = "secret:search/brave"\n',
        "search/brave",
    ),
    "mcp": (
        f'[tools.mcp.git]\ncommand = "x"\nenv = {{ GIT_TOKEN = "{KEY}", DEBUG = "1" }}\n',
        '[tools.mcp.git]\ncommand = "x"\nenv = { GIT_TOKEN = "secret:mcp/git-GIT_TOKEN", DEBUG = "1" }\n',
        "mcp/git-GIT_TOKEN",
    ),
}  # fmt: skip


@pytest.mark.covers("A-194")
@pytest.mark.parametrize("case", FILES)
def test_only_the_value_is_replaced_by_its_name(home: Home, case: str) -> None:
    old, new, name = FILES[case]
    home.config.write_bytes(old.encode())
    home.config.chmod(0o640)
    kept: dict[str, str] = {}
    moved = moving.move(home, {}, keep(kept))
    assert kept == {name: KEY} and home.config.read_bytes().decode() == new
    assert len(moved.notices) == 1 and name in moved.notices[0] and KEY not in moved.notices[0]
    assert moving.found(home, {}) == [] and KEY not in config.secrets(config.load(home, {}))
    assert home.config.stat().st_mode & 0o777 == 0o640 and os.listdir(home.root) == ["owlbox.toml"]


def test_what_is_no_secret_or_has_a_name_already_stays(home: Home) -> None:
    text = '[providers.openai]\nkey = "secret:llm/work"\n[tools.mcp.x]\ncommand = "x"\nenv = { LANG = "C.UTF-8" }\n'
    home.config.write_text(text)
    assert moving.found(home, {}) == [] and moving.move(home, {}, keep({})).notices == () and home.config.read_text() == text


def test_without_a_file_or_with_a_broken_one_nothing_is_found(home: Home) -> None:
    assert moving.found(home, {}) == []
    home.config.write_text("[providers\n")
    assert moving.found(home, {}) == [] and moving.spare(home, {"OPENAI_API_KEY": KEY}) == []


@pytest.mark.covers("A-107", "A-194")
def test_variables_lose_their_values_too(home: Home) -> None:
    home.config.write_text('[providers.openai]\nkey = "${OPENAI_API_KEY}"\n')
    environ = {
        "OPENAI_API_KEY": KEY,
        "OWLBOX__PROVIDERS__GROQ__KEY": "gsk-0123456789",
        "OWLBOX__TOOLS__MCP": '{"git": {"command": "x", "env": {"GIT_TOKEN": "ghp-\\"012345678"}}}',
        "GEMINI_API_KEY": "of another program",
        "PATH": "/bin",
    }
    kept: dict[str, str] = {}
    moved = moving.move(home, environ, keep(kept))
    assert kept == {"llm/openai": KEY, "llm/groq": "gsk-0123456789", "mcp/git-GIT_TOKEN": 'ghp-"012345678'}
    assert moved.environ == {
        "OWLBOX__PROVIDERS__GROQ__KEY": "secret:llm/groq",
        "OWLBOX__TOOLS__MCP": '{"git": {"command": "x", "env": {"GIT_TOKEN": "secret:mcp/git-GIT_TOKEN"}}}',
        "PATH": "/bin",
    }
    assert home.config.read_text() == '[providers.openai]\nkey = "secret:llm/openai"\n'
    assert "variable OPENAI_API_KEY" in moved.notices[0] and "GEMINI_API_KEY" in moved.notices[-1]
    assert moving.found(home, moved.environ) == []
    assert [word for notice in moved.notices for word in (KEY, "gsk-0", "ghp-") if word in notice] == []


def test_a_variable_that_the_configuration_needs_elsewhere_stays(home: Home) -> None:
    home.config.write_text('[prompt]\nsystem_prompt_override = "${OPENAI_API_KEY}"\n')
    assert moving.spare(home, {"OPENAI_API_KEY": KEY}) == []


@pytest.mark.covers("A-194")
def test_the_file_keeps_its_value_until_the_vault_has_it(home: Home) -> None:
    text = f'[providers.openai]\nkey = "{KEY}"\n'
    home.config.write_text(text)

    def put(name: str, value: str) -> bool:
        raise Unavailable("the vault is locked")

    with pytest.raises(Unavailable):
        moving.move(home, {}, put)
    assert home.config.read_text() == text


def test_what_cannot_be_changed_is_said_with_the_line_to_write(home: Home) -> None:
    home.config.write_text('[providers.openai]\nkey = "sk-${X}"\n[providers.groq]\n"k\\u0065y" = "abcdefghij"\n')
    assert moving.move(home, {"X": "a"}, keep({})).environ == {"X": "a"}
    home.config.write_text(f'[providers.openai]\nkey = "{KEY}"\n')
    home.config.chmod(0o400)
    assert 'key = "secret:llm/openai"' in str(ConfigError("x", hint='write key = "secret:llm/openai"'))
