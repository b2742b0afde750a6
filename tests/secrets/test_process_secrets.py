"""Secrets as variables and files of a tool's process: names, and paths that stay inside."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, OwlError, Refused
from appliance.secrets import process_secrets


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    (tmp_path / "base2").mkdir()
    return tmp_path / "base"


@pytest.mark.covers("A-203")
@pytest.mark.parametrize(
    ("kind", "name", "variable"),
    [
        ("mcp", "github", "CRED_MCP_GITHUB"),
        ("api-key", "my.service", "CRED_API_KEY_MY_SERVICE"),
        ("skill", "x-API_KEY", "CRED_SKILL_X_API_KEY"),
        ("llm", "größe 1", "CRED_LLM_GR__E_1"),
    ],
)
def test_a_variable_s_usual_name(kind: str, name: str, variable: str) -> None:
    assert process_secrets.variable(kind, name) == variable


def test_a_variable_needs_both_parts() -> None:
    for kind, name in (("", "x"), ("mcp", "")):
        with pytest.raises(BadInput):
            process_secrets.variable(kind, name)


@pytest.mark.covers("A-202", "E-308")
@pytest.mark.parametrize(
    "path",
    [
        "../etc/passwd",
        "sub/../../etc/x",
        "sub/../../x",
        "../base2/f",
        "..",
        "a/../..",
        "/../x",
        "/..",
        "./../base2/f",
        "a//../../f",
    ],
)
def test_a_path_that_leaves_is_refused(base: Path, path: str) -> None:
    for act in (lambda: process_secrets.target(base, path), lambda: process_secrets.write(base, path, "x")):
        with pytest.raises(Refused, match="leaves the folder"):
            act()
    assert list((base.parent / "base2").iterdir()) == []


@pytest.mark.covers("A-202", "E-308")
@pytest.mark.parametrize(
    ("path", "inside"),
    [("f", "f"), ("/f", "f"), ("/sub/f", "sub/f"), ("sub/../f", "f"), ("./a/b", "a/b"), ("..f", "..f")],
)
def test_a_path_inside_is_taken_and_a_leading_slash_means_the_folder(base: Path, path: str, inside: str) -> None:
    assert process_secrets.target(base, path) == base / inside
    made = process_secrets.write(base, path, "välue")
    assert made == base / inside and made.read_text() == "välue" and stat.S_IMODE(made.stat().st_mode) == 0o600


@pytest.mark.parametrize("path", ["", "/", ".", "a/..", "x\0y"])
def test_a_path_that_names_no_file_is_refused(base: Path, path: str) -> None:
    with pytest.raises(BadInput):
        process_secrets.write(base, path, "x")


@pytest.mark.covers("A-202")
def test_links_lead_nowhere(base: Path) -> None:
    other = base.parent / "base2"
    (base / "out").symlink_to(other)
    (base / "file").symlink_to(other / "f")
    for path in ("out/f", "file"):
        with pytest.raises(Refused):
            process_secrets.write(base, path, "x")
    (base / "in").symlink_to(base)  # stays inside, and is not followed all the same
    with pytest.raises(Refused, match="not a folder"):
        process_secrets.write(base, "in/f", "x")
    assert list(other.iterdir()) == []


def test_a_file_is_replaced_whole_and_its_folders_are_private(base: Path) -> None:
    for value in ("one", "two"):
        assert process_secrets.write(base, "keys/api", value).read_text() == value
    assert stat.S_IMODE((base / "keys").stat().st_mode) == 0o700 and os.listdir(base / "keys") == ["api"]


@pytest.mark.covers("A-202")
@settings(max_examples=200, deadline=None)
@given(path=st.text(st.sampled_from("./ab\\\0 ~"), max_size=12))
def test_no_path_gets_out(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    base = tmp_path_factory.getbasetemp() / "never-made"
    try:
        assert process_secrets.target(base, path).is_relative_to(base.resolve())
    except OwlError:
        pass
