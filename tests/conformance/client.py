"""Our client for the protocol's own suite: a home of its own, and the commands that a person would type.

Started by the suite with the address of its server; the variable MCP_CONFORMANCE_SCENARIO names what is looked at.
Where a login is wanted, the address that a person would open is opened, and whatever it leads to.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 280
CALLS = {
    "tools_call": ("add_numbers", {"a": 5, "b": 3}),
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults", {}),
    "sse-retry": ("test_reconnection", {}),
}


class Person:
    """Somebody at a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OWLBOX", "XDG_"))},
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "OWLBOX_HOME": str(folder / "home"),
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "appliance", *words]

    def type(self, *words: str) -> int:
        """Run a command; what it says goes to the suite's files."""
        done = subprocess.run(self.command(*words), env=self.environ, timeout=LIMIT_S, capture_output=True, text=True)
        print(f"$ owlbox {' '.join(words)}\n{done.stdout}{done.stderr}", flush=True)
        return done.returncode

    def log_in(self) -> int:
        """`owlbox mcp auth`, with a browser that does what pages say."""
        child = subprocess.Popen(
            self.command("mcp", "auth", "suite", "--json"),
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with child:
            assert child.stderr is not None and child.stdout is not None
            for line in child.stderr:
                print(f"auth: {line}", end="", flush=True)
                if line.startswith('{"') and (address := json.loads(line).get("address")):
                    visit(address)
            print(child.stdout.read(), flush=True)
        return child.returncode


def visit(address: str) -> None:
    """Open an address and follow where it leads."""
    try:
        with urllib.request.urlopen(address, timeout=LIMIT_S) as page:
            page.read()
    except (urllib.error.URLError, OSError) as error:
        print(f"the browser got no page: {error}", flush=True)


def play(person: Person, scenario: str, url: str) -> int:
    """What a person would do."""
    person.type("init")
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}") if scenario == "auth/pre-registration" else {}
    named = ("--client-id", given["client_id"], "--client-secret-env", "SUITE_SECRET") if given else ()
    person.environ["SUITE_SECRET"] = given.get("client_secret", "")
    code = person.type("mcp", "add", "suite", "--url", url, "--no-index", *named)
    if scenario == "initialize" or code:
        return code or person.type("mcp", "list", "suite", "--fresh")
    tool, arguments = CALLS.get(scenario, ("test-tool", {}))
    is_login = scenario.startswith("auth/")
    if is_login:
        code = person.log_in()
    call = ("mcp", "exec", "suite", tool, json.dumps(arguments))
    code = person.type(*call) if not code else code
    if is_login and code:  # it may want another login for this call
        code = person.log_in() or person.type(*call)
    return code


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    try:
        return play(Person(folder), os.environ.get("MCP_CONFORMANCE_SCENARIO", ""), sys.argv[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
