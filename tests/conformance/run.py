"""The protocol's own suite against our client: `make conformance`, by hand, with npm and network.

What fails is in `expected.yml` with its reason; anything else that fails, and anything there that passes, ends with 1.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.yml"
LIMIT_MS = 600_000


def fetched() -> Path:
    """The folder with the suite, fetched once for each list of packages."""
    key = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = cache / "owlbox/conformance" / key
    done = root / "node_modules/.done"
    if not done.exists():
        root.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, root)
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=root, check=True)
        done.touch()
    return root


def suite(root: Path) -> list[str]:
    """The command of the suite, with a Node that is new enough."""
    nodes = [*root.glob("node_modules/node-linux-*/bin/node")]
    program = root / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    return [str(nodes[0]) if nodes else "node", str(program)]


def said_by(words: list[str], root: Path) -> "tuple[int, str]":
    """The exit code of a command, and what it says without colours."""
    done = subprocess.run([*words, "-o", str(root / "results")], cwd=root, capture_output=True, text=True)
    return done.returncode, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


def against_client(command: list[str], root: Path, wanted: list[str]) -> int:
    """Every scenario, one after the other: side by side, the suite starts more processes than a small machine has room for."""
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^  - (\S+)", listed.partition("Client scenarios")[2], re.MULTILINE)
    known = set(yaml.safe_load(EXPECTED.read_text()) or ())
    client = f"{sys.executable} {HERE / 'client.py'}"
    wrong = 0
    for name in wanted or names:
        words = [*command, "client", "--command", client, "--scenario", name, "--timeout", str(LIMIT_MS)]
        code, said = said_by(words, root)
        counts = re.search(r"^Passed: .*$", said, re.MULTILINE)
        is_wrong = bool(code) != (name in known)
        wrong += is_wrong
        verdict = "fails" if code else "passes"
        note = f", which is {'not ' if is_wrong else ''}expected" if code or is_wrong else ""
        print(f"{name}: {verdict}{note} ({counts.group() if counts else 'no checks'})", flush=True)
        if is_wrong:
            print("\n".join(line for line in said.splitlines() if "FAILURE" in line or line.startswith("  ")), flush=True)
    print(f"client: {len(wanted or names)} scenarios, {wrong} not as expected")
    return 1 if wrong else 0


def main() -> int:
    """Every scenario, or those that are named."""
    root = fetched()
    return against_client(suite(root), root, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
