"""Schemes: who may write what, where it lives, and what the model never sees."""

from typing import Any

import pytest

from appliance.errors import BadInput, Conflict, Refused
from appliance.knowledge.schemes import BARE, CATEGORIES, EVERYBODY, TIERS, Scheme, Schemes, check_scope

AUDIT = ("tool", "instructions", "system", "reasoning", "model", "user", "assistant", "content")


def writers(path: str) -> str:
    """The tiers that may write a path, from the highest to the lowest, by their first letters."""
    return "".join(tier[0] for tier in TIERS if Schemes().may_write(path, tier))


@pytest.mark.covers("R-021", "R-022")
@pytest.mark.parametrize(
    ("path", "who", "category"),
    [
        ("notes/a.md", "spcm", "data"),
        ("known://a", "spcm", "data"),
        ("http://x.org", "spcm", "data"),
        ("https://x.org", "spcm", "data"),
        ("sh://turn_1/ls_1", "spcm", "data"),
        ("env://turn_1/ls_1", "spcm", "data"),
        ("unknown://a", "spcm", "unknown"),
        ("prompt://1", "sp", "prompt"),
        ("log://turn_1/get/a", "spm", "logging"),
        ("update://1", "spcm", "logging"),
        ("error://1", "spcm", "logging"),
        ("skill://planner", "sp", "data"),
        ("box://notes/a.md", "s", "data"),
        ("memory://notes/a", "spcm", "data"),
        ("agent://a", "spcm", "data"),
        ("disk://a", "spc", "data"),
        ("url://https://x.org", "spc", "data"),
        ("google-docs://1", "spc", "data"),
        ("github://o/r", "spc", "data"),
        *((f"{name}://1", "s", "audit") for name in AUDIT),
    ],
)
def test_who_writes_what_and_of_which_category_it_is(path: str, who: str, category: str) -> None:
    assert (writers(path), Schemes().find_scheme(path).category) == (who, category)


@pytest.mark.covers("R-021", "R-024")
@pytest.mark.parametrize("path", ["system://1", "reasoning://turn_1", "instructions://system", "prompt://1", "box://SOUL.md"])
def test_model_is_refused_with_403(path: str) -> None:
    with pytest.raises(Refused, match="model may not write ") as caught:
        Schemes().check_write(path, "model")
    assert (caught.value.status, caught.value.outcome) == (403, "permission")
    assert caught.value.hint
    Schemes().check_write(path, "system")


@pytest.mark.covers("R-021")
def test_tier_that_does_not_exist_may_write_nothing() -> None:
    schemes = Schemes()
    assert not [s.name for s in schemes.list_schemes() if schemes.may_write(f"{s.name}://x", "stranger")]
    with pytest.raises(Refused):
        schemes.check_write("known://a", "")


def test_refused_write_of_a_mirrored_file_says_where_to_edit_it() -> None:
    with pytest.raises(Refused, match=r"edit the file in box/"):
        Schemes().check_write("box://SOUL.md", "client")


@pytest.mark.covers("R-022")
def test_only_audit_is_hidden_from_the_model() -> None:
    listing = Schemes().list_schemes()
    assert (
        {s.name for s in listing if not s.is_visible_to_model} == {s.name for s in listing if s.category == "audit"} == set(AUDIT)
    )


@pytest.mark.covers("R-019", "R-026")
def test_unknown_scheme_has_defaults() -> None:
    schemes = Schemes()
    assert schemes.find_scheme("stranger://x") == Scheme("stranger", True, "logging", "run", EVERYBODY)
    assert schemes.find_scheme("notes/a.md").name == schemes.find_scheme("").name == BARE
    schemes.check_write("stranger://x", "model")
    assert schemes.scope_for("stranger://x", run="r1") == "run:r1"


@pytest.mark.covers("R-019", "R-020")
def test_scheme_is_declared_once_and_for_all_its_entries() -> None:
    schemes = Schemes()
    mine = Scheme("recipe", category="data", scope="global", writers=frozenset({"plugin"}))
    schemes.register(mine)
    schemes.register(mine)
    assert schemes.find_scheme("recipe://cake") == schemes.find_scheme("recipe://soup") == mine
    with pytest.raises(Conflict, match="recipe is declared already"):
        schemes.register(Scheme("recipe", category="unknown"))
    assert Schemes().find_scheme("recipe://cake") != mine  # nothing is shared


@pytest.mark.covers("R-020")
@pytest.mark.parametrize(
    "wrong",
    [{"category": "gossip"}, {"category": ""}, {"scope": "house"}, {"writers": frozenset({"cat"})}, {"name": "A b"}, {"name": ""}],
)
def test_wrong_declaration_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as caught:
        Schemes().register(Scheme(**{"name": "recipe", **wrong}))
    assert caught.value.hint
    assert CATEGORIES == ("data", "logging", "unknown", "prompt", "audit")


@pytest.mark.covers("R-011", "R-019")
@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("known://a", "run:r1"),
        ("unknown://a", "run:r1"),
        ("log://turn_1/a", "run:r1"),
        ("update://a", "run:r1"),
        ("notes/a.md", "project:1"),
        ("memory://a", "project:1"),
        ("box://a", "project:1"),
        ("skill://a", "project:1"),
        ("disk://a", "project:1"),
        ("url://https://x.org", "project:1"),
    ],
)
def test_scope_follows_from_the_scheme(path: str, scope: str) -> None:
    assert Schemes().scope_for(path, run="r1", project=1) == scope
    assert check_scope(scope) == scope


@pytest.mark.covers("R-023")
def test_project_or_run_that_is_missing_fails_loudly() -> None:
    schemes = Schemes()
    with pytest.raises(BadInput, match="memory:/a belongs to a project, and none is given"):
        schemes.scope_for("memory://a", run="r1")
    with pytest.raises(BadInput, match="known:/a belongs to a run, and none is given"):
        schemes.scope_for("known://a", project=1)
    schemes.register(Scheme("law", scope="global"))
    assert schemes.scope_for("law://a") == "global"


@pytest.mark.covers("R-011")
@pytest.mark.parametrize(
    "scope", ["", "project", "project:", "project:x", "run:", "run:a b", "Global", "user:", "user:a\n", "team:a"]
)
def test_what_is_not_a_scope(scope: str) -> None:
    with pytest.raises(BadInput, match="there is no scope"):
        check_scope(scope)
