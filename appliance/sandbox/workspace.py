"""Where a conversation's tools work: its folder, the folders it is shown, its limits; asks the policy, then the sandbox.

Owns `sessions/ID/data` of the home and what a path means to a tool. Every call is judged before anything of it exists, and
a path is looked at here and again in the sandbox, whose mounts hold it in the end. Inside, the working folder is `/work`,
and folders that the person has listed are `/project/NAME`. Opens no file that a tool wrote. Knows nothing about entries.
"""

import functools
import hashlib
import json
import logging
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from appliance import __version__
from appliance.errors import BadInput, Cancelled, Conflict, DeadlineExceeded, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.policy import mounts, shell_parser
from appliance.policy.audit_log import Ledger, Severity
from appliance.policy.gate import Gate
from appliance.policy.mounts import Who
from appliance.policy.rules import Judgement, Policy, PolicyRequest, Runtime, Usage, WantedFolder
from appliance.records import Cancel, Terms
from appliance.runtime import tool_settings
from appliance.runtime.settings import Config
from appliance.runtime.users import user_name
from appliance.sandbox import folder_tree, skill_scripts
from appliance.sandbox.bubblewrap import SCRIPTS, WORK, Bind, Execution, Limits, Profile, SandboxOrder
from appliance.sandbox.launcher import Sandbox
from appliance.sandbox.skill_scripts import SkillScripts
from appliance.store.disk_room import DiskRoom

LOG = logging.getLogger(__name__)
PROJECT = "/project"  # folders that the person has listed, by name
DISK = "/disk"  # any other place, where the working folder does not hold tools in
MB = 1 << 20
ANSWER_BYTES = 16 * MB  # of a file tool, as JSON
MAX_CONTENT = 16 * MB  # characters that one call writes
MAX_NARROWED = 400  # each is a mount with a descriptor of its own, of which a process has 1024
NEVER_SHOWN = ("mount.bind.blocked", "mount.bind.denied", "mount.project.role")
PIECE = re.compile(r"[^\s'\"`;|&<>()$={}\[\],:]+")
MAX_WORD, MAX_WORDS = 1000, 500  # characters of a name in a command, and names
PYTHON, SHELL = "/usr/bin/python3", "/bin/bash"
BEGIN = "begin"  # what the program for files is told, to become an approved command
FAULTS: Mapping[str, type[OwlError]] = {
    "bad_input": BadInput, "not_found": NotFound, "permission": Refused, "conflict": Conflict, "too_large": TooLarge,
}  # fmt: skip

Show = Callable[[int, bytes], None]
Masks = Literal["none", "near", "all"]  # whether what has to be hidden is looked for: not, in the folder itself, or below too


class WorkspaceJob(Struct, frozen=True):
    """A call of a tool: which tool of which group, for whom, on what terms, and until when."""

    tool: str
    group: str
    cancel: Cancel
    session: str = ""
    run: str = ""
    terms: Terms = Terms()
    timeout_s: float = 60.0


class ShownFolder(Struct, frozen=True):
    """A folder that a tool sees, and where."""

    source: Path
    inside: str
    is_writable: bool


class WorkspacePath(Struct, frozen=True):
    """A path as the sandbox sees it; `folders` are those it is shown for it."""

    inside: str
    shown: str
    folders: tuple[ShownFolder, ...] = ()
    is_writable: bool = True  # as far as entries below the folder say


class Workbench:
    """Has files touched and commands run for conversations."""

    def __init__(
        self,
        folder: Path,
        settings: Callable[[], Config],
        gate: Gate,
        ledger: Ledger,
        sandbox: Sandbox,
        person: Callable[[str], str],
        scripts: Callable[[str], SkillScripts | None],
        secret: Callable[[str], str],
    ) -> None:
        """`person` says who talks in a session, `scripts` what a command gets of a skill, `secret` knows values of the vault."""
        self._folder = folder
        self._settings = settings
        self._disk = DiskRoom(folder.parent, lambda: (settings().orchestrator.disk_warn, settings().orchestrator.disk_refuse))
        self._gate = gate
        self._ledger = ledger
        self._sandbox = sandbox
        self._person = person
        self._scripts_of = scripts
        self._secret = secret
        self._program = Path(__file__).with_name("file_program.py").read_text("utf-8")
        digest = hashlib.sha256(self._program.encode()).hexdigest()
        self._files = Runtime("inside", __version__, digest)

    # -- what tools ask for -------------------------------------------------------------------------

    def deadline_s(self, tool: str, group: str, own_s: float = 0) -> float:
        """The longest time of a call, as configured now; `own_s` is what the tool says of itself."""
        return self._settings().tools.deadline_of(tool, group, own_s)

    def touch(self, job: WorkspaceJob, verb: str, path: str, **given: Any) -> dict[str, Any]:
        """What one verb of `inside` did to a path: its answer, or an error of the tree."""
        is_writing = verb in ("write", "edit")
        place = self.place(job, path)
        if any(isinstance(value, str) and len(value) > MAX_CONTENT for value in given.values()):
            raise TooLarge(f"more than {MAX_CONTENT} characters in one call", hint="write it in parts")
        masks: Masks = "all" if verb in ("grep", "find") else "near" if verb == "list" else "none"
        order, granted = self._build_order(job, place.folders, self._files, is_writing=is_writing)
        if is_writing and not (place.is_writable and all(one.is_writable for one in granted)):
            raise Refused(f"{place.shown} is read-only", hint="write into the working folder")
        tops = [one.inside for one in place.folders] or [WORK]
        asked = {"verb": verb, "path": place.inside, "shown": place.shown, "tops": tops, **given}
        profile: Profile = "project" if place.folders else "files"
        done = self._run_order(
            job,
            replace(
                order,
                argv=self._python_words(),
                stdin=json.dumps(asked).encode(),
                profile=profile,
                limits=replace(order.limits, output_bytes=ANSWER_BYTES),
            ),
            masks=masks,
            is_writing=is_writing,
        )
        return self._parse_answer(job, done)

    def judge(self, job: WorkspaceJob, command: str, *, is_read_only: bool = False) -> Judgement:
        """What the policy says to a command; Refused when it may not run. Nothing is started."""
        return self._judge_folders(job, self._listed_folders(job), _runtime_of(SHELL), command=command, is_writing=not is_read_only)

    def judge_write(self, job: WorkspaceJob, path: str) -> None:
        """Refused when a file may not be changed here. Nothing is started."""
        place = self.place(job, path)
        judgement = self._judge_folders(job, place.folders, self._files)
        if not place.is_writable or not all(one.is_writable for one in judgement.mounts if one.kind == "bind"):
            raise Refused(f"{place.shown} is read-only", hint="write into the working folder")

    def prepared(self, job: WorkspaceJob, command: str, *, is_read_only: bool = False) -> SandboxOrder:
        """A command line as the sandbox takes it, judged; `is_read_only` writes to /tmp alone."""
        folders = self._listed_folders(job)
        order, _ = self._build_order(job, folders, _runtime_of(SHELL), command=command, is_writing=not is_read_only)
        scripts = self._find_scripts(command)
        binds = (*order.binds, *dict.fromkeys(bind for one in scripts.values() for bind in one.binds()))
        environ = {**skill_scripts.environment_variables(scripts), **self._find_variables(command, scripts)}
        files = dict(skill_scripts.read_scripts(scripts))
        argv = (SHELL, "-c", command)
        return replace(order, argv=argv, is_writable=not is_read_only, files=files, binds=binds, environ=environ)

    def named_files(self, job: WorkspaceJob, command: str, *, is_read_only: bool = False) -> dict[str, dict[str, Any]]:
        """The files that a command names, and those that these name, by how they are called in the working folder.

        Each has `sha256` and `size_bytes`, those that the command itself names also `text`. What a command finds by itself,
        such as with `find`, is not among them.
        """
        order = self.prepared(job, command, is_read_only=is_read_only)
        asked = json.dumps({"verb": "named", "shown": command[:100], **_search_request(order, command)}).encode()
        limits = replace(order.limits, output_bytes=ANSWER_BYTES)
        looking = replace(order, argv=self._python_words(), stdin=asked, is_writable=False, limits=limits, environ={})
        done = self._run_order(job, looking)
        return dict(self._parse_answer(job, done)["files"])

    def bound(self, order: SandboxOrder, command: str, approved: Mapping[str, str]) -> SandboxOrder:
        """The same order, which begins only while the files that the command names have these hashes."""
        if not approved:
            return order
        given = {"shown": command[:100], "approved": dict(approved), "argv": order.argv, **_search_request(order, command)}
        return replace(order, argv=(*self._python_words(), BEGIN), stdin=json.dumps(given).encode())

    def _python_words(self) -> tuple[str, ...]:
        """The command line that runs the program for files."""
        return (PYTHON, "-I", "-S", "-B", "-c", self._program)

    def carry_out(self, job: WorkspaceJob, command: str, order: SandboxOrder, show: Show | None = None) -> Execution:
        """Run what was prepared; whatever becomes of it is in the result, and in the audit."""
        done = self._run_order(job, order, show, is_writing=order.is_writable, is_command=True)
        detail = {"command": command, "execution": done.id, "status": done.status, "exit_code": done.exit_code}
        detail |= {"duration_ms": done.duration_ms, "stdout_bytes": len(done.stdout), "stderr_bytes": len(done.stderr)}
        severity: Severity = "info" if done.status == "completed" else "warning"
        self._ledger.note("exec", severity=severity, session=job.session, run=job.run, actor=job.tool, detail=detail)
        return done

    def has_project(self, job: WorkspaceJob) -> bool:
        """Whether a command of this caller could change more than the conversation's own folder."""
        return self._workspace_folder is not None or any(one.is_writable for one in self._listed_folders(job))

    def is_own(self, job: WorkspaceJob, path: str) -> bool:
        """Whether a path lies in the conversation's own folder and nowhere else."""
        return self._workspace_folder is None and not self.place(job, path).folders

    # -- places -------------------------------------------------------------------------------------

    def folder(self, session: str) -> Path:
        """The data folder of a conversation; it may not be there yet."""
        return self._folder / label(session) / "data"

    def forget(self, session: str) -> None:
        """Remove the folder of a conversation with all that is in it; a workspace stays."""
        folder = self._folder / label(session)
        if left := folder_tree.remove(folder):
            LOG.warning("%d files or folders of %s were not removed", left, folder)

    def root(self, session: str) -> Path:
        """The working folder: the one that the configuration names, else the conversation's. Refused for one of our own."""
        if self._workspace_folder is None:
            return self.folder(session)
        found = self._gate.policy.allowlist.resolve(str(self._workspace_folder), Who())
        if found.rule == "mount.bind.blocked":
            raise Refused(
                f"tools cannot work in {self._workspace_folder}: {found.why}", hint="name another folder as sandbox.workspace"
            )
        return self._workspace_folder

    def place(self, job: WorkspaceJob, path: str) -> WorkspacePath:
        """Where a path that a tool was given leads; Refused when it leads out of everything the tool is shown."""
        if not path:
            raise BadInput("the path is empty", hint="name a file", outcome="invalid_arguments")
        mounts.clean(f"/{path}")  # NUL bytes and length
        root = Path(os.path.realpath(self.root(job.session)))
        text, is_restricted = path, self._settings().sandbox.restrict_to_workspace
        if text == WORK or text.startswith(f"{WORK}/"):
            text = f"{root}{text[len(WORK) :]}"
        listed = self._listed_folders(job)
        for one in listed:
            if mounts.contains(one.inside, posixpath.normpath(text)):
                text = f"{one.source}{posixpath.normpath(text)[len(one.inside) :]}"
        lexical = posixpath.normpath(posixpath.join(str(root), text))
        tops = (root, *(one.source for one in listed))
        if ".." in path.split("/") and (not is_restricted or any(mounts.contains(top, lexical) for top in tops)):
            raise BadInput(f"the path may not go up: {path}", hint="give the path without ..", outcome="invalid_arguments")
        real = os.path.realpath(lexical)
        # The innermost of the folders that hold it: what an entry of its own says is what holds there.
        around = [one for one in listed if mounts.contains(one.source, lexical) and mounts.contains(one.source, real)]
        inner = max(around, key=lambda one: len(str(one.source)), default=None)
        if mounts.contains(root, lexical) and mounts.contains(root, real) and (inner is None or root not in inner.source.parents):
            found = mounts.within(root, os.path.relpath(lexical, root))
            is_writable = self._require_unmasked(job, str(root), str(found))
            return WorkspacePath(_inside_path(WORK, root, found), _trim_path(path), is_writable=is_writable)
        if inner is not None:
            is_writable = self._require_unmasked(job, str(inner.source), real)
            return WorkspacePath(_inside_path(inner.inside, inner.source, Path(real)), _trim_path(path), (inner,), is_writable)
        if is_restricted or not lexical.startswith("/"):
            raise Refused(f"path is outside workspace: {path}", hint="use a path relative to the working folder")
        return self._place_anywhere(path, Path(real))

    def _place_anywhere(self, path: str, real: Path) -> WorkspacePath:
        """A place that nobody listed, read-only; its folder is shown, or itself when it is one."""
        if not real.exists():
            raise NotFound(f"{path} does not exist")
        if name := mounts.blocked(str(real)):
            raise Refused(f"{name} is never shown to a tool", hint="do without it")
        inside = posixpath.normpath(f"{DISK}{real}")
        return WorkspacePath(inside, _trim_path(path), (ShownFolder(real, inside, False),))

    def _require_unmasked(self, job: WorkspaceJob, top: str, real: str) -> bool:
        """Whether entries below a folder that is shown let a path in it be written; Refused for what is never shown or denied."""
        allowlist, who = self._policy_of(job).allowlist, self._caller_of(job)
        below = os.path.relpath(real, top)
        if name := mounts.blocked(below):
            raise Refused(f"{name} is never shown to a tool", hint="do without it")
        path, is_own = top, self._workspace_folder is None and top == os.path.realpath(self.folder(job.session))
        for part in Path(below).parts if not is_own else ():
            path = os.path.join(path, part)
            if part != "." and allowlist.resolve(path, who).rule in NEVER_SHOWN:
                raise Refused(f"{path} is never shown to a tool", hint="do without it")
        return is_own or not (_is_run_by_git(below) or allowlist.is_readonly_below(top, real, who))

    def _listed_folders(self, job: WorkspaceJob) -> tuple[ShownFolder, ...]:
        """The folders that this caller is shown beside the working folder."""
        policy, who = self._policy_of(job), self._caller_of(job)
        if not policy.has_binds:
            return ()
        found: dict[str, ShownFolder] = {}
        for one in policy.allowlist.visible(who):
            if not mounts.listed(one.path, policy.mounts.allow, policy.mounts.deny):
                continue
            name = os.path.basename(one.path) or "root"
            number = next(n for n in range(1, 1000) if _number_name(name, n) not in found)
            inside = f"{PROJECT}/{_number_name(name, number)}"
            found[_number_name(name, number)] = ShownFolder(Path(one.path), inside, one.mode == "readwrite")
        return tuple(found.values())

    # -- one call -----------------------------------------------------------------------------------

    def _judge_folders(
        self, job: WorkspaceJob, folders: Iterable[ShownFolder], runtime: Runtime, *, command: str = "", is_writing: bool = True
    ) -> Judgement:
        limits = self._limits_of(job)
        usage = Usage(limits.cpus, limits.memory_bytes, 0, limits.pids, limits.tmp_bytes, limits.disk_bytes)
        wanted = [WantedFolder(str(self.root(job.session)), WORK, is_writing, "volume"), WantedFolder("", "/tmp", True, "tmpfs")]
        wanted += [WantedFolder(str(one.source), one.inside, is_writing and one.is_writable) for one in folders]
        for name, scripts in self._find_scripts(command).items():
            wanted.append(WantedFolder(str(scripts.folder), skill_scripts.place_of(name), False, "volume"))
            wanted += [WantedFolder(str(bind.source), bind.inside, False, "volume") for bind in scripts.binds()]
        request = PolicyRequest(
            job.tool,
            self._caller_of(job),
            job.session,
            job.run,
            tuple(wanted),
            usage,
            command=command,
            runtime=runtime,
        )
        return self._gate.judge(request).require()

    def _build_order(
        self,
        job: WorkspaceJob,
        folders: tuple[ShownFolder, ...],
        runtime: Runtime,
        *,
        command: str = "",
        is_writing: bool = True,
    ) -> tuple[SandboxOrder, tuple[ShownFolder, ...]]:
        """An order without words, judged; the folders that were granted, which may be less than was asked for."""
        judgement = self._judge_folders(job, folders, runtime, command=command, is_writing=is_writing)
        granted = tuple(
            ShownFolder(Path(one.source), one.inside, one.is_writable) for one in judgement.mounts if one.kind == "bind"
        )
        order = SandboxOrder(
            job.tool,
            label(job.session),
            ("true",),
            folder=self._make_folder(job.session),
            binds=tuple(Bind(one.source, one.inside, one.is_writable) for one in granted),
            limits=self._limits_of(job),
        )
        return order, granted

    def _run_order(
        self,
        job: WorkspaceJob,
        order: SandboxOrder,
        show: Show | None = None,
        *,
        masks: Masks = "all",
        is_writing: bool = False,
        is_command: bool = False,
    ) -> Execution:
        """Carry out an order whose binds are the folders that were granted, with what is never shown in them hidden.

        What is hidden is looked for at the last moment, while no command that could rename it runs.
        """
        self._disk.require(f"{job.tool} was not run")
        sandbox = self._sandbox
        if masks == "none":
            return sandbox.run(order, job.cancel, show)
        tops = [
            ShownFolder(bind.source, bind.inside, bind.is_writable)
            for bind in order.binds
            if bind.source.is_dir() and not bind.is_own
        ]
        if self._workspace_folder is not None:
            tops.append(ShownFolder(self._workspace_folder, WORK, is_writing))
        used = [(str(top.source), top.is_writable) for top in tops]
        if order.folder is not None:
            used.append((str(order.folder), order.is_writable))
        with sandbox.folders.take(
            [top for top, _ in used],
            [top for top, is_writable in used if is_writable and is_command],
            lambda: self._narrow_binds(job, tops, is_deep=masks == "all"),
            cancel=job.cancel,
            wait_s=sandbox.wait_s,
            is_strict=order.argv[-1] == BEGIN,
        ) as narrowed:
            repositories, programs = self._guard_repositories(tops)
            return sandbox.run(replace(order, binds=(*order.binds, *repositories, *narrowed, *programs)), job.cancel, show)

    def _parse_answer(self, job: WorkspaceJob, done: Execution) -> dict[str, Any]:
        """Parse the output of the program inside the sandbox."""
        if done.status == "timeout":
            raise DeadlineExceeded(f"{job.tool} took longer than {job.timeout_s:g} s and was stopped", hint="ask for less at once")
        if done.status == "cancelled":
            raise Cancelled(f"{job.tool} was stopped")
        try:
            said: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            if done.exit_code == 127:
                raise Unavailable(f"{PYTHON} is not there", hint="apt-get install python3") from None
            said_last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise OwlError(f"{job.tool} failed: {done.error or 'no answer'}; {said_last}".rstrip("; ")) from None
        if "error" in said:
            raise FAULTS.get(str(said["error"]), OwlError)(str(said["message"]))
        found: dict[str, Any] = said["done"]
        return found

    def _narrow_binds(self, job: WorkspaceJob, tops: Sequence[ShownFolder], *, is_deep: bool) -> tuple[Bind, ...]:
        """What is shown less than the folder around it: an empty folder or /dev/null hides it, or it is mounted read-only."""
        allowlist, who = self._policy_of(job).allowlist, self._caller_of(job)
        found: list[Bind] = []
        pins: dict[str, Bind] = {}
        for top in tops:
            for path, narrowing in allowlist.narrowed(str(top.source), who, is_deep=is_deep):
                if path.is_symlink() or narrowing == "readonly" and not top.is_writable:
                    continue  # what a link leads to is judged where it is
                inside = _inside_path(top.inside, top.source, path)
                if top.is_writable and not mounts.is_blocked(path.name) and (path.is_dir() or path.is_file()):
                    pins |= {one.inside: one for one in _pin_folders(top, path)}
                hidden = self._empty_folder() if path.is_dir() else Path(os.devnull)
                found.append(Bind(hidden if narrowing == "hidden" else path, inside))
        if len(pins) + len(found) > MAX_NARROWED:
            tops_named = ", ".join(str(top.source) for top in tops)
            raise TooLarge(
                f"more than {MAX_NARROWED} files and folders in {tops_named} would have to be hidden or kept read-only",
                hint="list the folders below that are needed",
            )
        # First the folders, outer ones before inner ones: each would uncover what was hidden in it before.
        return (*(pins[inside] for inside in sorted(pins)), *found)

    def _guard_repositories(self, tops: Sequence[ShownFolder]) -> tuple[list[Bind], list[Bind]]:
        """The git folders of writable repositories, which then cannot be renamed, and read-only what git runs by itself in them.

        A hook, or a program that the configuration names, would run outside with the rights of the person who uses git there.
        """
        pins, programs = [], []
        for top in (one for one in tops if one.is_writable):
            git, inside = top.source / ".git", _inside_path(top.inside, top.source, top.source / ".git")
            if git.is_symlink():
                continue
            if git.is_file():  # of a worktree: it says where the rest is
                programs.append(Bind(git, inside))
            elif git.is_dir():
                pins.append(Bind(git, inside, True))
                hooks, config = git / "hooks", git / "config"
                if not hooks.is_symlink():
                    programs.append(Bind(hooks if hooks.is_dir() else self._empty_folder(), f"{inside}/hooks"))
                if config.is_file() and not config.is_symlink():
                    programs.append(Bind(config, f"{inside}/config"))
        return pins, programs

    def _limits_of(self, job: WorkspaceJob) -> Limits:
        settings = self._settings()
        found = tool_settings.bounds_of(settings.sandbox, job.tool, job.group, job.terms.role)
        return Limits(
            found.cpus,
            found.memory_mb * MB,
            found.pids,
            found.disk_mb * MB,
            timeout_s=job.timeout_s,
        )

    def _caller_of(self, job: WorkspaceJob) -> Who:
        """On whose behalf it is; whoever talks on this machine itself is its admin, unless the configuration names admins."""
        user = self._person(job.session) if job.session else ""
        admins = self._settings().system.admin_users
        is_admin = job.session.partition(":")[0] in ("", "local") and (not admins or user in ("", user_name(os.getuid()), *admins))
        return Who(user, self._gate.groups_of(user), job.terms.role, is_admin)

    def _find_scripts(self, command: str) -> dict[str, SkillScripts]:
        """What a command gets of the skills that it names, by their names: of those that are there (A-056)."""
        known = ((name, self._scripts_of(name)) for name in skill_scripts.find_skill_names(command))
        return {name: scripts for name, scripts in known if scripts is not None}

    def _find_variables(self, command: str, scripts: Mapping[str, SkillScripts]) -> dict[str, str]:
        """The variables of the one skill of which a command runs a script, and nothing else (A-161)."""
        name = skill_scripts.find_only_skill(command)
        found = {}
        for variable in scripts[name].variables if name in scripts else ():
            try:
                found[variable] = self._secret(f"skill/{variable}")
            except NotFound:
                hint = f"a person sets it: owlbox secret set skill/{variable}"
                raise Refused(f"the skill {name} needs the variable {variable}", hint=hint) from None
        return found

    def _policy_of(self, job: WorkspaceJob) -> Policy:
        return self._gate.of(job.session)

    @property
    def _workspace_folder(self) -> Path | None:
        named = self._settings().sandbox.workspace
        return Path(os.path.realpath(Path(named).expanduser())) if named else None

    def _make_folder(self, session: str) -> Path:
        """The working folder, which is there from now on."""
        folder = self.root(session)
        try:
            folder.mkdir(mode=0o770 if self._workspace_folder is None else 0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"the working folder {folder} cannot be made: {error.strerror}") from None
        return Path(os.path.realpath(folder))

    def _empty_folder(self) -> Path:
        folder = self._folder / ".empty"
        folder.mkdir(mode=0o555, exist_ok=True)
        return Path(os.path.realpath(folder))


def label(session: str) -> str:
    """A session as the name of a folder and of a process: readable, and never that of another session."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", session).strip(".-")[:40] or "nobody"
    return plain if plain == session else f"{plain}-{hashlib.sha256(session.encode()).hexdigest()[:10]}"


def _inside_path(inside: str, top: Path, path: Path) -> str:
    return posixpath.normpath(posixpath.join(inside, os.path.relpath(path, top)))


def _pin_folders(top: ShownFolder, path: Path) -> list[Bind]:
    """The folders above a hidden path, each mounted on itself: what is hidden by its path would be found by the next call
    if a command gave one of them another name, and nobody renames a mount."""
    above = [folder for folder in path.parents if top.source in folder.parents]
    return [Bind(folder, _inside_path(top.inside, top.source, folder), True) for folder in above]


def _is_run_by_git(path: str) -> bool:
    """Whether a path is, or lies in, what git runs by itself: hooks, its configuration, the file that says where these are."""
    _, name, behind = path.rpartition(".git") if path == ".git" or path.endswith("/.git") else path.partition(".git/")
    return bool(name) and (not behind or not {"hooks", "config"}.isdisjoint(Path(behind).parts))


def _trim_path(path: str) -> str:
    return path if path == "/" else path.rstrip("/") or "."


def _number_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _search_request(order: SandboxOrder, command: str) -> dict[str, Any]:
    """What the program for files needs to look for the names in a command."""
    tops = [WORK, *(bind.inside for bind in order.binds if bind.inside.startswith(f"{PROJECT}/")), SCRIPTS]
    return {"path": WORK, "tops": tops, "words": words_of(command)}


def words_of(command: str) -> list[str]:
    """What may name a file in a command: its words as the shell reads them, where output goes, and pieces of all of these."""
    simples = [one for pipeline in shell_parser.read(command).pipelines for one in pipeline]
    words = [word for one in simples for word in (*one.words, *(target for _, target in one.targets), *one.texts)]
    pieces = [piece for word in (*words, command) for piece in PIECE.findall(word)]
    return [word for word in dict.fromkeys([*words, *pieces]) if len(word) <= MAX_WORD][:MAX_WORDS]


def _runtime_of(program: str) -> Runtime:
    """A program of this machine as it is now."""
    real = os.path.realpath(program)
    try:
        info = os.stat(real)
    except OSError:
        raise Unavailable(f"{program} is not there", hint="apt-get install bash") from None
    return _read_runtime(program, real, info.st_mtime_ns, info.st_size)


@functools.lru_cache(8)
def _read_runtime(program: str, real: str, changed_ns: int, size_bytes: int) -> Runtime:
    digest = hashlib.sha256(Path(real).read_bytes()).hexdigest()
    return Runtime(os.path.basename(program), digest[:12], digest)
