"""Packages that scripts of skills need, installed once for each definition into a folder of their own.

Owns `skill-envs/HASH` of the home: a Python environment (pip), Node packages (npm), or both. They are installed by the core,
with the network, for a skill that is trusted; tools see the folder read-only. No code of a package runs while it is installed:
pip takes wheels only, npm runs no scripts. What `verify` says is run in the sandbox. Packages of the system (apt, apk) are
looked for and named, never installed. A folder without its mark was not finished, and is made anew.
"""

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec

from appliance.clock import monotonic_s
from appliance.errors import BadInput, Cancelled, DeadlineExceeded, Refused, Unavailable
from appliance.policy.audit_log import Ledger
from appliance.records import Cancel
from appliance.runtime.methods import Call, method
from appliance.runtime.users import caller_name
from appliance.sandbox import folder_tree
from appliance.sandbox.bubblewrap import Limits, SandboxOrder, place_of_program
from appliance.sandbox.launcher import Sandbox
from appliance.sandbox.skill_scripts import SkillScripts, environment_variables
from appliance.skills.catalog import FoundSkill, SkillCatalog
from appliance.skills.skill_file import PackageNeed
from appliance.store import visibility

MARK = ".prepared"  # written last
PYTHON = "/usr/bin/python3"  # that of the sandbox
INSTALLED = ("pip", "npm")  # sources that need a folder; the others are the system's
INSTALL_S = 600.0
VERIFY = Limits(timeout_s=60.0)
LAST_CHARS = 400  # of what a program said last
# Names of a registry alone: no addresses, no paths, no options.
NAMES = {
    "pip": re.compile(
        r"[A-Za-z0-9][\w.-]*(?:\[[\w.,-]+\])?(?:(?:==|>=|<=|~=|!=|<|>)[\w.*+!]+(?:,(?:==|>=|<=|~=|!=|<|>)[\w.*+!]+)*)?"
    ),
    "npm": re.compile(r"(?:@[a-z0-9~-][\w.~-]*/)?[a-z0-9~-][\w.~-]*(?:@[\w.^~<>=*-]+)?"),
}
GIVEN = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")
GIVEN_KINDS = re.compile(r"PIP_\w+|npm_config_\w+|(?:https?|no|all)_proxy", re.IGNORECASE)


class PackageState(msgspec.Struct, frozen=True):
    """A package that a skill's scripts need. `state` is installed, missing, or unverified where nothing says how to see it."""

    name: str
    source: str
    state: str
    said: str = ""


class Prepared(TypedDict):
    """What preparing a skill came to. `variables` are those that its scripts want: secrets `skill/NAME`."""

    name: str
    folder: str
    packages: list[PackageState]
    variables: list[str]


def hash_packages(packages: Sequence[PackageNeed]) -> str:
    """The name of the folder for these packages; "" when they need none."""
    wanted = sorted(f"{one.source} {one.name}" for one in packages if one.source in INSTALLED)
    return hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:24] if wanted else ""


def find_environment(folder: Path, packages: Sequence[PackageNeed]) -> Path | None:
    """Where these packages are installed, None when they are not."""
    name = hash_packages(packages)
    return folder / name if name and (folder / name / MARK).is_file() else None


def remove_unused(folder: Path, skills: SkillCatalog) -> list[str]:
    """Remove the environments whose packages no skill of anybody declares; gives their names."""
    wanted = {hash_packages(skill.packages) for skill in skills.everybodys()}
    existing = [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []
    gone = sorted(name for name in existing if name not in wanted)
    for name in gone:
        folder_tree.remove(folder / name)
    return gone


class SkillEnvironments:
    """Installs and verifies the packages of trusted skills."""

    def __init__(self, folder: Path, skills: SkillCatalog, sandbox: Sandbox, environ: Mapping[str, str], ledger: Ledger) -> None:
        """`environ` is what the core was started with; a part of it reaches pip and npm, such as what names a proxy."""
        self._folder = folder
        self._skills = skills
        self._sandbox = sandbox
        self._environ = {name: text for name, text in environ.items() if name in GIVEN or GIVEN_KINDS.fullmatch(name)}
        self._ledger = ledger
        self._guard = threading.Lock()

    def scripts(self, name: str) -> SkillScripts | None:
        """What a command gets of a skill: packages and variables only of one that is trusted."""
        folder = self._skills.scripts(name)
        if folder is None:
            return None
        one = self._skills.get(name)
        if not self._skills.is_trusted(one):
            return SkillScripts(folder)
        return SkillScripts(folder, find_environment(self._folder, one.skill.packages), one.skill.script_env)

    @method("skill.prepare", is_long=True)
    def prepare_for_caller(
        self,
        call: Call,
        name: Annotated[str, "the skill's name, as `skill list` shows it"],
        owner: Annotated[str, "whose: user:ID or group:ID; empty for everybody's and one's own"] = "",
    ) -> Prepared:
        """Install and verify the packages that a trusted skill declares; what is installed already is only verified."""
        with visibility.showing(owner or visibility.current()):
            one = self._skills.get(name)
        found = self.prepare(one, call.cancel)
        detail = {
            "skill": found["name"],
            "owner": one.owner or "all",
            "packages": [f"{one.name} ({one.source}): {one.state}" for one in found["packages"]],
        }
        self._ledger.note("skill_prepared", actor=f"user:{caller_name(call)}", detail=detail)
        return found

    def prepare(self, one: FoundSkill, cancel: Cancel) -> Prepared:
        """The same for a skill that was found."""
        skill = one.skill
        if not self._skills.is_trusted(one):
            raise Refused(f"the skill {skill.name} is not trusted", hint=f"owlbox skill trust {skill.name}")
        for package in skill.packages:
            _check_name(package)
        with self._guard:
            folder = self._installed_folder(skill.packages, cancel)
            states = [self._verify(package, folder, cancel) for package in skill.packages]
        return Prepared(name=skill.name, folder=str(folder or ""), packages=states, variables=list(skill.script_env))

    def _installed_folder(self, packages: Sequence[PackageNeed], cancel: Cancel) -> Path | None:
        name = hash_packages(packages)
        if not name or (found := find_environment(self._folder, packages)):
            return found if name else None
        folder = self._folder / name
        if folder.exists():
            folder_tree.remove(folder)  # one that was not finished
        folder.mkdir(parents=True)
        try:
            self._install(folder, packages, cancel)
            (folder / MARK).touch()
        except BaseException:
            folder_tree.remove(folder)
            raise
        return folder

    def _install(self, folder: Path, packages: Sequence[PackageNeed], cancel: Cancel) -> None:
        deadline_s = monotonic_s() + INSTALL_S
        if names := [one.name for one in packages if one.source == "pip"]:
            self._run([PYTHON, "-I", "-m", "venv", "--without-pip", str(folder)], cancel, deadline_s)
            pip = [sys.executable, "-I", "-m", "pip", "--python", str(folder / "bin/python3"), "install", "--only-binary", ":all:"]
            self._run([*pip, "--no-input", "--disable-pip-version-check", "--no-cache-dir", "-q", "--", *names], cancel, deadline_s)
            name_python(folder)
        if names := [one.name for one in packages if one.source == "npm"]:
            npm = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            self._run([*npm, "--", *names], cancel, deadline_s)

    def _run(self, words: list[str], cancel: Cancel, deadline_s: float) -> None:
        """Run a program to its end; Unavailable says what it said last."""
        program = os.path.basename(words[0]) if "pip" not in words else "pip"
        environ = {"PATH": os.defpath, **self._environ, "PYTHONNOUSERSITE": "1"}
        try:
            process = subprocess.Popen(
                words,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"{words[0]} cannot be started: {error.strerror}", hint=f"apt-get install {program}") from None
        with process:
            while True:
                try:
                    said, _ = process.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    if cancel.is_set() or monotonic_s() > deadline_s:
                        os.killpg(process.pid, signal.SIGKILL)
                        if cancel.is_set():
                            raise Cancelled(f"{program} was stopped") from None
                        raise DeadlineExceeded(f"{program} took longer than {INSTALL_S:g} s", hint="try again later") from None
        if process.returncode:
            last = said.decode("utf-8", "replace").strip()[-LAST_CHARS:]
            hint = "check the network and the names of the packages; pip takes wheels only, npm runs no scripts"
            raise Unavailable(f"{program} did not install the packages: {' '.join(last.split())}", hint=hint)

    def _verify(self, package: PackageNeed, folder: Path | None, cancel: Cancel) -> PackageState:
        """Whether a package is there, as its `verify` says in the sandbox."""
        is_ours = package.source in INSTALLED
        if not package.verify:
            return PackageState(package.name, package.source, "installed" if is_ours else "unverified")
        scripts = {"": SkillScripts(self._folder, folder if is_ours else None)}
        order = SandboxOrder(
            "skill_verify",
            "skills",
            ("/bin/bash", "-c", package.verify),
            binds=scripts[""].binds(),
            environ=environment_variables(scripts),
            limits=VERIFY,
        )
        done = self._sandbox.run(order, cancel)
        if done.status == "completed" and done.exit_code == 0:
            return PackageState(package.name, package.source, "installed")
        last = (done.error or (done.stderr or done.stdout).decode("utf-8", "replace")).strip()[-LAST_CHARS:]
        return PackageState(package.name, package.source, "missing", " ".join(last.split()) or f"exit code {done.exit_code}")


def name_python(folder: Path) -> None:
    """Write into the programs of an environment where the sandbox sees their Python."""
    inside = place_of_program(str(folder))
    for program in (folder / "bin").iterdir() if inside != str(folder) else ():
        if not program.is_symlink() and (data := program.read_bytes()).startswith(b"#!"):
            program.write_bytes(data.replace(f"{folder}/bin/".encode(), f"{inside}/bin/".encode()))


def _check_name(package: PackageNeed) -> None:
    """BadInput for what is no plain name of a registry."""
    pattern = NAMES.get(package.source)
    if pattern is not None and not pattern.fullmatch(package.name):
        hint = "such as requests or requests==2.32; no addresses, paths or options"
        raise BadInput(f"{package.name!r} is not a name of a package for {package.source}", hint=hint)
