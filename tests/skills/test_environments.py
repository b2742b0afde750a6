"""Packages and variables of skills: installed once, seen by their scripts alone; real pip, real sandbox, no network."""

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Server, serving
from test_files_tools import Desk, opened

from appliance.clock import CancelToken
from appliance.errors import BadInput, Refused, Unavailable
from appliance.sandbox.skill_scripts import find_only_skill
from appliance.skills.environments import Prepared

WORD = "correct-horse-battery"


def wheel(folder: Path, name: str) -> None:
    """A package as pip takes it: a module that says where it is, and a program."""
    folder.mkdir(exist_ok=True)
    about = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"def main():\n    print('{name} runs')\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(path, text)


def put(desk: Desk, name: str, addons: str, script: str = "") -> None:
    scripts = desk.home.box / "skills" / name / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    (scripts.parent / "SKILL.md").write_text(f"---\nname: {name}\ndescription: It does.\naddons:\n{addons}---\nRun it.\n")
    (scripts / "run.sh").write_text(script)
    desk.core.skills.sync()


def pip(name: str, verify: str = "") -> str:
    return f"  packages:\n    - name: {name}\n      source: pip\n      verify: {verify}\n"


def prepare(desk: Desk, name: str) -> Prepared:
    return desk.core.commands.packages.prepare(desk.core.skills.get(name), CancelToken())


def folders(desk: Desk) -> list[str]:
    root = desk.home.root / "skill-envs"
    return sorted(path.name for path in root.iterdir()) if root.is_dir() else []


@pytest.fixture
def registry() -> Iterator[Server]:
    """One package as npm takes it, with a script that npm would run after installing it."""
    about = {"name": "whisk", "version": "1.0.0", "bin": {"whisk": "run.js"}, "scripts": {"postinstall": "touch ran"}}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in {
            "package/package.json": json.dumps(about),
            "package/run.js": "#!/usr/bin/env node\nconsole.log('whisk runs', require('fs').existsSync(__dirname + '/ran'))\n",
        }.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    with serving() as server:
        one = {**about, "dist": {"tarball": server.page("/whisk.tgz", packed.getvalue(), "application/octet-stream")}}
        whole = {"name": "whisk", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": one}}
        server.page("/whisk", json.dumps(whole), "application/json")
        yield server


@pytest.fixture
def desk(tmp_path: Path, registry: Server) -> Iterator[Desk]:
    for name in ("steep", "pour"):
        wheel(tmp_path / "wheels", name)
    yield from opened(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "wheels"), npm_config_registry=registry.url())


@pytest.mark.covers("A-161", "A-162", "A-160")
def test_packages_are_installed_once_and_seen_by_the_scripts_of_their_skill_alone(desk: Desk) -> None:
    script = "steep; python3 -c 'import steep; steep.main()'; touch $(dirname $(command -v steep))/x; python3 -c 'import pour'"
    put(desk, "tea", pip("steep", "steep"), script)
    put(desk, "mate", pip("pour", "pour"), "steep")
    with pytest.raises(Refused, match="not trusted"):
        prepare(desk, "tea")
    for name in ("tea", "mate"):
        desk.core.skills.trust(name, "ada")
        found = prepare(desk, name)
        assert [one.state for one in found["packages"]] == ["installed"]
    assert len(folders(desk)) == 2
    mark = Path(prepare(desk, "tea")["folder"], ".prepared")
    first_ns = mark.stat().st_mtime_ns
    assert Path(prepare(desk, "tea")["folder"], ".prepared").stat().st_mtime_ns == first_ns, "installed once"
    ran = desk.do("exec", command="bash /skills/tea/scripts/run.sh").data
    assert ran["stdout"] == "steep runs\nsteep runs\n"
    assert "Read-only file system" in ran["stderr"] and "No module named 'pour'" in ran["stderr"]
    assert desk.do("exec", command="bash /skills/mate/scripts/run.sh").data["exit_code"] == 127, "nothing of the other skill"
    assert desk.do("exec", command="steep").data["exit_code"] == 127, "nothing for other commands"
    desk.core.skills.distrust("tea", "ada")
    assert desk.do("exec", command="bash /skills/tea/scripts/run.sh").data["stdout"] == ""


@pytest.mark.covers("A-162")
def test_the_same_definition_is_shared_and_removed_with_the_last_skill_that_has_it(desk: Desk) -> None:
    for name in ("tea", "mate"):
        put(desk, name, pip("steep"))
        desk.core.skills.trust(name, "ada")
    assert prepare(desk, "tea")["folder"] == prepare(desk, "mate")["folder"]
    service = desk.core.knowledge.skill_service
    service.delete("tea", by="ada")
    assert len(folders(desk)) == 1
    service.delete("mate", by="ada")
    assert folders(desk) == []


@pytest.mark.skipif(shutil.which("npm", path="/usr/bin") is None, reason="npm is not there")
@pytest.mark.covers("A-161", "A-162")
def test_packages_of_node_are_installed_without_running_their_scripts(desk: Desk) -> None:
    put(desk, "tea", "  packages:\n    - name: whisk\n      source: npm\n      verify: whisk\n", "whisk")
    desk.core.skills.trust("tea", "ada")
    assert [one.state for one in prepare(desk, "tea")["packages"]] == ["installed"]
    assert desk.do("exec", command="bash /skills/tea/scripts/run.sh").data["stdout"] == "whisk runs false\n"


@pytest.mark.covers("A-162")
def test_what_cannot_be_installed_says_why_and_leaves_nothing(desk: Desk) -> None:
    put(desk, "tea", pip("no-such-package"))
    desk.core.skills.trust("tea", "ada")
    with pytest.raises(Unavailable, match="no-such-package") as missing:
        prepare(desk, "tea")
    assert "network" in missing.value.hint and folders(desk) == []
    for name in ("--index-url=http://x", "git+https://x/y", "./here", "a b"):
        put(desk, "tea", pip(f'"{name}"'))
        desk.core.skills.trust("tea", "ada")
        with pytest.raises(BadInput, match="not a name of a package"):
            prepare(desk, "tea")


@pytest.mark.covers("A-161")
def test_packages_of_the_system_are_looked_for_and_named(desk: Desk) -> None:
    addons = "  packages:\n"
    for name, verify in (("bash", "bash --version"), ("none", "no-such-program"), ("some", '""')):
        addons += f"    - name: {name}\n      source: apt\n      verify: {verify}\n"
    put(desk, "tea", addons)
    desk.core.skills.trust("tea", "ada")
    found = prepare(desk, "tea")
    assert [one.state for one in found["packages"]] == ["installed", "missing", "unverified"]
    assert "127" in found["packages"][1].said and folders(desk) == []


@pytest.mark.covers("A-161")
def test_variables_reach_the_script_of_their_skill_and_no_other_command(desk: Desk) -> None:
    put(desk, "tea", "  env:\n    - TEA_TOKEN\n", 'echo "${#TEA_TOKEN}"; echo "$TEA_TOKEN"')
    run = "bash /skills/tea/scripts/run.sh"
    assert desk.do("exec", command=run).data["stdout"].split() == ["0"], "nothing while nobody trusts it"
    desk.core.skills.trust("tea", "ada")
    unset = desk.do("exec", command=run)
    assert unset.status == 403 and "TEA_TOKEN" in unset.message and "owlbox secret set skill/TEA_TOKEN" in unset.hint
    desk.core.vault.put("skill/TEA_TOKEN", WORD)
    given = desk.do("exec", command=run)
    assert given.data["stdout"].split()[0] == str(len(WORD)) and WORD not in given.message
    for other in ("echo ${#TEA_TOKEN}", f"{run}; echo ${{#TEA_TOKEN}}", f"cat /skills/tea/scripts/run.sh; {run}"):
        assert str(len(WORD)) not in desk.do("exec", command=other).data["stdout"].split()


def test_only_a_lone_script_of_one_skill_counts() -> None:
    assert find_only_skill("bash /skills/tea/scripts/run.sh two words") == "tea"
    assert find_only_skill("/skills/tea/scripts/lib/run 'x y'") == "tea"
    for command in (
        "cat /skills/tea/scripts/run.sh",
        "bash -c /skills/tea/scripts/run.sh",
        "bash /skills/tea/scripts/../../x",
        "bash /skills/tea/scripts/run.sh | tee x",
        "bash /skills/tea/scripts/run.sh > x",
        "bash /skills/tea/scripts/run.sh $(env)",
        "bash /skills/tea/scripts/run.sh /skills/mate/scripts/x",
        "X=1 bash /skills/tea/scripts/run.sh",
        "",
    ):
        assert find_only_skill(command) == "", command
