"""Plain keys into the vault: where they are found, what they are called there, and what is left of the file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.errors import ConfigError, Unavailable
from appliance.runtime import config
from appliance.runtime.paths import Home
from appliance.secrets import plaintext_migration

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


# the file with @ where the value stands, how the value is written there, its name in the vault
FILES = {
    "header": ("# a\n[providers.openai] # b\nkey = @  # don't\n", f'"{KEY}"', "llm/openai"),
    "literal": ("[providers.openai]\nkey=@\n", f"'{KEY}'", "llm/openai"),
    "dotted": ("providers.openai.key = @\n", f'"{KEY}"', "llm/openai"),
    "inline": ("providers = { openai = { key = @ } }", f'"{KEY}"', "llm/openai"),
    "long": ("[providers.openai]\nkey = @\n", f'"""\n{KEY}"""', "llm/openai"),
    "escaped": ("[providers.openai]\nkey = @\n", f'"\\u0073{KEY[1:]}"', "llm/openai"),
    "quotes": ('# don\'t """ \'\n[providers.openai]\nkey = @\n', f'"{KEY}"', "llm/openai"),
    "windows": ("\ufeff[providers.openai]\r\nkey = @\r\n", f'"{KEY}"', "llm/openai"),
    "matrix": ("[channels.matrix]\ntoken = @\n", f'"{KEY}"', "channel/matrix-token"),
    "search": ('[tools.web_search]\nprovider = "brave"\nkey = @\n', f'"{KEY}"', "search/brave"),
    "mcp": ('[tools.mcp.g]\ncommand = "x"\nenv = { A_TOKEN = @, DEBUG = "1" }\n', f'"{KEY}"', "mcp/g-A_TOKEN"),
}


@pytest.mark.covers("A-194")
@pytest.mark.parametrize("case", FILES)
def test_only_the_value_is_replaced_by_its_name(home: Home, case: str) -> None:
    text, literal, name = FILES[case]
    home.config.write_bytes(text.replace("@", literal).encode())
    home.config.chmod(0o640)
    kept: dict[str, str] = {}
    moved = plaintext_migration.move(home, {}, keep(kept))
    assert kept == {name: KEY} and home.config.read_bytes().decode() == text.replace("@", f'"secret:{name}"')
    assert len(moved.notices) == 1 and name in moved.notices[0] and KEY not in moved.notices[0]
    assert plaintext_migration.found(home, {}) == [] and KEY not in config.secrets(config.load(home, {}))
    assert home.config.stat().st_mode & 0o777 == 0o640 and os.listdir(home.root) == ["owlbox.toml"]


def test_a_comment_loses_its_copy_of_the_value(home: Home) -> None:
    text = '#key = "@"\n[providers.openai]\nkey = "@" # not @\n'
    home.config.write_text(text.replace("@", KEY))
    plaintext_migration.move(home, {}, keep({}))
    assert home.config.read_text() == text.replace("@", "secret:llm/openai")


def test_what_is_no_secret_or_has_a_name_already_stays(home: Home) -> None:
    text = '[providers.openai]\nkey = "secret:llm/work"\n[tools.mcp.x]\ncommand = "x"\nenv = { LANG = "C.UTF-8" }\n'
    home.config.write_text(text)
    assert (
        plaintext_migration.found(home, {}) == []
        and plaintext_migration.move(home, {}, keep({})).notices == ()
        and home.config.read_text() == text
    )


def test_without_a_file_or_with_a_broken_one_nothing_is_found(home: Home) -> None:
    assert plaintext_migration.found(home, {}) == []
    home.config.write_text("[providers\n")
    assert plaintext_migration.found(home, {}) == [] and plaintext_migration.spare(home, {"OPENAI_API_KEY": KEY}) == []


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
    moved = plaintext_migration.move(home, environ, keep(kept))
    assert kept == {"llm/openai": KEY, "llm/groq": "gsk-0123456789", "mcp/git-GIT_TOKEN": 'ghp-"012345678'}
    assert moved.environ == {
        "OWLBOX__PROVIDERS__GROQ__KEY": "secret:llm/groq",
        "OWLBOX__TOOLS__MCP": '{"git": {"command": "x", "env": {"GIT_TOKEN": "secret:mcp/git-GIT_TOKEN"}}}',
        "PATH": "/bin",
    }
    assert home.config.read_text() == '[providers.openai]\nkey = "secret:llm/openai"\n'
    assert "variable OPENAI_API_KEY" in moved.notices[0] and "GEMINI_API_KEY" in moved.notices[-1]
    assert plaintext_migration.found(home, moved.environ) == []
    assert [word for notice in moved.notices for word in (KEY, "gsk-0", "ghp-") if word in notice] == []


def test_a_variable_that_the_configuration_needs_elsewhere_stays(home: Home) -> None:
    home.config.write_text('[prompt]\nsystem_prompt_override = "${OPENAI_API_KEY}"\n')
    assert plaintext_migration.spare(home, {"OPENAI_API_KEY": KEY}) == []


def test_the_file_keeps_its_value_until_the_vault_has_it(home: Home) -> None:
    text = f'[providers.openai]\nkey = "{KEY}"\n'
    home.config.write_text(text)

    def put(name: str, value: str) -> bool:
        raise Unavailable("the vault is locked")

    with pytest.raises(Unavailable):
        plaintext_migration.move(home, {}, put)
    assert home.config.read_text() == text


def test_two_values_that_would_have_one_name_stay_where_they_are(home: Home) -> None:
    text = f'[tools.mcp.a-b]\ncommand = "x"\nenv = {{ TOKEN = "{KEY}" }}\n'
    text += f'[tools.mcp.a]\ncommand = "x"\nenv = {{ b-TOKEN = "{KEY}-other" }}\n'
    home.config.write_text(text)
    kept: dict[str, str] = {}
    with pytest.raises(ConfigError, match="would both be mcp/a-b-TOKEN"):
        plaintext_migration.move(home, {}, keep(kept))
    assert kept == {} and home.config.read_text() == text


def test_a_value_in_a_table_on_one_line_is_moved_too(home: Home) -> None:
    text = '[providers]\nopenai = { key = "$${a}-01234567" }\n'  # as it is read, it is "${a}-01234567"
    home.config.write_text(text)
    kept: dict[str, str] = {}
    plaintext_migration.move(home, {}, keep(kept))
    assert kept == {"llm/openai": "${a}-01234567"}
    assert 'openai = { key = "secret:llm/openai" }' in home.config.read_text()


@pytest.mark.covers("A-201")
def test_every_provider_that_lacks_a_key_is_named_and_local_ones_need_none(home: Home) -> None:
    pools = '[pools]\ndefault = ["openai/a", "groq/b", "openai/c", "ollama/d", "lmstudio/e", "mistral/f"]\n'
    home.config.write_text(pools + '[providers.mistral]\nkey = "secret:llm/mistral"\n')
    with pytest.raises(ConfigError, match=r"providers\.openai\.key is missing: .*; providers\.groq\.key is missing: ") as caught:
        config.load(home, {})
    assert caught.value.key == "providers.openai.key" and "owlbox secret set llm/openai" in caught.value.hint
    assert not {"ollama", "lmstudio", "mistral"} & set(str(caught.value).replace(".", " ").replace("/", " ").split())
    home.config.write_text('[pools]\ndefault = ["ollama/d", "lmstudio/e"]\n')
    assert config.load(home, {}).pools["default"] == ("ollama/d", "lmstudio/e")
