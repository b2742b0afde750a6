"""The folder that a command is typed in is nobody's library: what lies there is never imported, by any process that it starts."""

import re
import subprocess
import sys
from pathlib import Path

from process import ROOT, Box, a_shared_box  # noqa: F401

from appliance.clock import monotonic_s, sleep_s

TRAPS = ("apsw", "sqlite_vec", "json", "msgspec", "yaml", "llama_cpp", "cryptography", "appliance")


def test_no_process_imports_from_the_folder_it_was_started_in(shared_box: Box, tmp_path: Path) -> None:
    for name in TRAPS:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'a').write({name!r})\nraise SystemExit(7)\n")
    program = str(Path(sys.executable).with_name("owlbox"))

    def type_in(*words: str) -> "subprocess.CompletedProcess[str]":
        line = [program, "--home", str(shared_box.home.root), *words]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=shared_box.environ)

    line = [program, "--home", str(shared_box.home.root), "serve"]
    core = subprocess.Popen(line, cwd=tmp_path, env=shared_box.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end_s = monotonic_s() + 60
        while not shared_box.runtime.joinpath("core.sock").exists() and core.poll() is None and monotonic_s() < end_s:
            sleep_s(0.1)
        for words in (["status"], ["doctor"], ["ask", "hello"], ["backup"]):
            assert "Traceback" not in type_in(*words).stderr
        assert core.poll() is None
    finally:
        core.terminate()
        core.wait(60)
    assert not (tmp_path / "sprung").exists()


def test_every_python_that_is_started_leaves_its_folder_out() -> None:
    """`-P`, or `-I`, wherever this package starts itself."""
    starts = re.compile(r'sys\.executable,[^\]\n]*"-m"')
    for file in (ROOT / "appliance").rglob("*.py"):
        for found in starts.findall(file.read_text(encoding="utf-8")):
            assert '"-P"' in found or '"-I"' in found, f"{file.name}: {found}"
