"""What importing a module costs: seldom used engines are loaded when they are first needed."""

import subprocess
import sys

import pytest

ENGINES = {"regex", "jsonpath", "elementpath"}
# Each took 8 to 90 ms of every start of the core before it was imported where it is used.
LATE = {
    "xml.sax",
    "urllib.request",
    "http.client",
    "certifi",
    "tomlkit",
    "pathspec",
    "yaml",
    "regex",
    "importlib.metadata",
    "email.message",
}
LATE |= {"asyncio", "numpy", "llama_cpp", "textual", "pypdf", "trafilatura", "cryptography", "requests", "urllib3", "watchfiles"}


def loaded(module: str) -> set[str]:
    code = f"import {module}, sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.split())


@pytest.mark.parametrize(("module", "absent"), [("appliance.text.patterns", ENGINES), ("appliance.service.core", LATE)])
def test_engines_are_not_imported_before_they_are_needed(module: str, absent: set[str]) -> None:
    found = loaded(module)
    assert module in found
    assert found & absent == set()
