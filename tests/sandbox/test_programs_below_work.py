"""A home or cache that lies below /work, which is what a sandboxed call sees as its own folder: on a machine of that shape."""

import os
import subprocess
import sys
from pathlib import Path

from needs import needs

pytestmark = needs("bwrap", "perl")
LIMIT_S = 120
INSIDE = """
import os, subprocess, sys, threading
from pathlib import Path
from appliance.mcp import sandbox
from appliance.sandbox.launcher import SandboxOrder as Order, Sandbox
from appliance.sandbox.skill_scripts import SkillScripts, environment_variables
from appliance.skills.environments import name_python

installed = Path("/work/installed")
for name in ("venv", "skill-envs/1"):
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(installed / name)], check=True)
    program = installed / name / "bin/hoot"
    program.write_text(f"#!{installed}/{name}/bin/python\\nimport sys; print(sys.prefix)\\n")
    program.chmod(0o755)
name_python(installed / "skill-envs/1")

def run(argv, binds, folder, environ={}):
    done = Sandbox().run(Order("hoot", "s1", tuple(argv), folder=folder, binds=tuple(binds), environ=environ), threading.Event())
    assert done.status == "completed", done
    print(done.stdout.decode().strip())

data = installed / "data"
data.mkdir()
server = str(installed / "venv/bin/hoot")
run(sandbox.words_of(server), sandbox.needed(server), data)
skill = {"tea": SkillScripts(installed, installed / "skill-envs/1")}
for folder in (data, None):  # a command's, and what `skill prepare` asks
    run(["/bin/bash", "-c", "hoot"], skill["tea"].binds(), folder, environment_variables(skill))
print(os.listdir(data))
"""


def test_programs_run_there_and_leave_nothing_in_the_folder_of_a_call(tmp_path: Path) -> None:
    """Everything of this machine at its place, but for /work, which holds what it held and a folder of ours."""
    words = ["bwrap", "--tmpfs", "/"]
    for place in sorted(Path("/").iterdir()):
        if place.is_symlink():
            words += ["--symlink", os.readlink(place), str(place)]
        elif place != Path("/work"):
            words += ["--dev-bind", str(place), str(place)]
    for place in Path("/work").iterdir() if Path("/work").is_dir() else ():
        words += ["--dev-bind", str(place), str(place)]
    words += ["--bind", str(tmp_path), "/work/installed", "--chdir", os.getcwd(), sys.executable, "-c", INSIDE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    programs = "/programs/work/installed"
    assert done.stdout.splitlines() == [f"{programs}/venv", *[f"{programs}/skill-envs/1"] * 2, "[]"], done.stderr
