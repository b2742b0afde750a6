"""The policy file and its verdicts on tools."""

import pytest

from appliance import policy
from appliance.errors import ConfigError
from appliance.policy import Policy, Verdict


@pytest.fixture
def load(tmp_path):
    """Load a policy file with this text."""

    def load(text, **more):
        path = tmp_path / "policy.toml"
        path.write_text(text)
        return policy.load(path, **more)

    return load


@pytest.mark.covers("A-277")
def test_without_a_path_the_default_policy_holds():
    assert policy.load(None) == Policy("strict", (), ())
    assert policy.load(None).check("shell") == Verdict(True, "")


def test_file_is_read(load):
    found = load('mode = "permissive"\n[tools]\nallow = ["read_*"]\ndeny = ["read_secret"]')
    assert found == Policy("permissive", ("read_*",), ("read_secret",))


def test_mode_of_the_file_wins_over_the_given_one(load):
    assert load('mode = "strict"', mode="disabled").mode == "strict"
    assert load("[tools]", mode="disabled").mode == "disabled"


@pytest.mark.covers("A-277")
@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('mode = "lax"', "mode", "strict, permissive, disabled"),
        ("mode = []", "mode", "strict, permissive, disabled"),
        ("mood = 1", "mood", "unknown key mood"),
        ("[tools]\ndney = []", "tools.dney", "unknown key tools.dney"),
        ("tools = 1", "tools", "must be a table"),
        ('[tools]\nallow = "shell"', "tools.allow", "a list"),
        ("[tools]\ndeny = [1]", "tools.deny", "a list"),
        ("[tools", "policy.path", "not TOML"),
        (" \n", "policy.path", "is empty"),
    ],
)
def test_invalid_file_names_itself_and_the_key(load, tmp_path, text, key, words):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.key == key
    assert str(tmp_path / "policy.toml") in str(caught.value) and words in str(caught.value)


@pytest.mark.covers("A-277")
def test_named_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="none.toml: No such file"):
        policy.load(tmp_path / "none.toml")


TOOLS = ("read_*", "shell"), ("shell", "read_s*")


@pytest.mark.parametrize(
    ("mode", "allow", "deny", "tool", "verdict"),
    [
        ("strict", (), (), "shell", Verdict(True)),
        ("strict", (), ("shell",), "shell", Verdict(False, "tools.deny: shell")),
        ("strict", (), ("shell",), "shell2", Verdict(True)),
        ("strict", *TOOLS, "read_file", Verdict(True)),
        ("strict", *TOOLS, "shell", Verdict(False, "tools.deny: shell")),
        ("strict", *TOOLS, "read_secret", Verdict(False, "tools.deny: read_s*")),
        ("strict", *TOOLS, "write_file", Verdict(False, "tools.allow: not listed")),
        ("permissive", *TOOLS, "shell", Verdict(True, "tools.deny: shell")),
        ("permissive", *TOOLS, "write_file", Verdict(True, "tools.allow: not listed")),
        ("disabled", *TOOLS, "shell", Verdict(True)),
    ],
)
def test_verdict_on_a_tool(mode, allow, deny, tool, verdict):
    assert Policy(mode, allow, deny).check(tool) == verdict
