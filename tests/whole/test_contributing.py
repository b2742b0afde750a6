"""CONTRIBUTING.md: its examples, written into a copy of the checkout, pass their tests and keep the layers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./-]+)`\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TESTS = [path for path in FILES if Path(path).name.startswith("test_")]
COPIED = ("appliance", "skills", "tests/support", "tests/conftest.py", "tests/test_layers.py", "pyproject.toml")
LIMIT_S = 120


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what tests need, compiled files included, with the files of the examples."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        (folder / name).parent.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name)
        else:
            shutil.copy2(ROOT / name, folder / name)
    for path, text in FILES.items():
        assert not (ROOT / path).exists(), f"{path} is no longer an example"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, whose package comes first whatever is installed."""
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=checkout, env=environ, capture_output=True, text=True, timeout=LIMIT_S
    )


def test_every_kind_has_an_example_with_a_test() -> None:
    kinds = re.findall(r"^## An? (.+)$", PAGE, re.MULTILINE)
    assert kinds == ["tool", "format of providers", "channel", "skill", "plugin"]
    assert len(TESTS) == len(kinds)


def test_the_tests_of_the_examples_pass_in_a_copy_of_the_checkout(checkout: Path) -> None:
    modules = [path.removeprefix("appliance/").removesuffix(".py").replace("/", ".") for path in FILES if path.startswith("app")]
    layers = [f"tests/test_layers.py::test_imports_point_down[{one}]" for one in modules if not one.endswith(".toml")]
    done = run(checkout, "pytest", "-q", "-p", "no:cacheprovider", *TESTS, *layers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{PAGE.count('def test_') + len(layers)} passed" in done.stdout


def test_the_examples_are_in_the_style_of_the_checkout(checkout: Path) -> None:
    paths = [path for path in FILES if path.endswith(".py")]
    for arguments in (["check"], ["format", "--check", "--diff"]):
        done = run(checkout, "ruff", *arguments, "--no-cache", *paths)
        assert done.returncode == 0, done.stdout + done.stderr
