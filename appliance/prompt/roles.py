"""Roles: as whom a model works. Which tools it has, who answers, how long it may take, what it is told of the home.

A role is a Markdown file with front matter. Those that ship lie in the package, a file `box/roles/NAME.md` of the home
goes over them or adds one. Read again whenever a file has changed, at the next question. A file that cannot be used
leaves what was there before, and is named in `problems`. Caps that a file does not name are those of `[agents.NAME]`
in the configuration. Knows nothing about tools but their names; what a name means is for the toolbox.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from appliance.errors import BadInput, ConfigError, NotFound, OwlError
from appliance.policy import modes
from appliance.runtime import trusted_files
from appliance.runtime.settings import AGENTS, LOCAL, Config
from appliance.runtime.settings import RoleSettings as Caps
from appliance.text import markdown

LOG = logging.getLogger(__name__)
FOLDER = "roles"  # of box/
ASSISTANT, WORKER, HEARTBEAT, CHILD = "assistant", "worker", "heartbeat", "child"
SHIPPED = (ASSISTANT, WORKER, "researcher", "coder", "memory", HEARTBEAT)
NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
MAX_CHARS = 20_000
DELEGATING = ("delegate",)  # the one tool of an assistant that only delegates
DIRECT = tuple(modes.BAR + group for group in modes.AWAY)  # what one has not that does the rest itself
CHILD_DOCUMENTS = ("AGENTS", "ENVIRONMENT")  # of roles that name none (S-092)
CHILD_TURNS = 20
Preset = Literal["auto", "direct", "delegating", "open"]
Sandbox = Literal["", "db", "files", "project", "exec"]


class Role(Struct, frozen=True):
    """As whom a model works. `pool` may be a route too; None for `tools` and `documents` means all of them.

    `max_turns` 0 and `temperature` None leave it to the configuration, `timeout_s` 0 sets no limit. In the background
    people's questions go first, and nobody is asked; a child is somebody's helper: nobody is asked there either, and
    it has no helpers. `tasks` are the tools it has beside its own for a task of the queue.
    """

    name: str = ASSISTANT
    description: str = ""
    pool: str = ""
    max_turns: int = 0
    temperature: float | None = None
    is_temperature_set: bool = False  # by the home; what ships leaves a small model to the configuration
    timeout_s: float = 0
    tools: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = ()
    documents: tuple[str, ...] | None = None
    sandbox: Sandbox = ""
    preset: Preset = "auto"
    prompt_file: str = ""
    text: str = ""
    has_skills: bool = True
    is_background: bool = False
    is_child: bool = False
    is_own: bool = False  # its file is the home's
    menu: str = "chat"  # which tools it is shown first

    @property
    def is_chat(self) -> bool:
        """True for the one that people talk with."""
        return self.name == ASSISTANT

    @property
    def unkept(self) -> tuple[str, ...] | None:
        """Its tools without what its preset keeps from it."""
        if not self.is_chat:
            return self.tools
        return None if self.tools == DELEGATING else modes.unbarred(self.tools)


CHAT = Role()


class _Known(Struct):
    """A file as it was when it was read."""

    stamp: tuple[int, int, int]
    role: Role | None
    problem: str = ""


class Roles:
    def __init__(self, box: Path, settings: Callable[[], Config], is_shared: Callable[[], bool] = lambda: False) -> None:
        """`is_shared` says whether more than one person or group talks with this box."""
        self._folder = box / FOLDER
        self._box = box
        self._settings = settings
        self._is_shared = is_shared
        self._guard = threading.Lock()
        self._shipped: dict[str, Role] = {}
        self._known: dict[str, _Known] = {}
        self._said = ""  # what is wrong with the folder is logged once

    # -- asking -------------------------------------------------------------------------------------

    def get(self, name: str) -> Role:
        """The role as it is now, with its caps and what its prompt file says; NotFound names those there are."""
        found = self._find_role(name)
        if found is None:
            hint = f"there are {', '.join(one.name for one in self.list_roles())}; box/{FOLDER}/NAME.md adds one"
            raise NotFound(f"no role {name}", hint=hint)
        text = "\n\n".join(part for part in (self._read_prompt(found), found.text) if part)
        return replace(self._apply_caps(found), text=text)

    def role_of(self, name: str, is_queue: bool = False) -> Role:
        """The role of a run, by the name it was begun with; the assistant's for none and for one that is gone."""
        if is_queue:
            return self.queue()
        try:
            return self.get(name) if name and name != ASSISTANT else self.assistant()
        except NotFound:
            return self.assistant()

    def assistant(self) -> Role:
        """Whom people talk with: without files, commands and the web, or with `delegate` alone where several people or groups do.

        Only where the house says `open` it has those too: then what a stranger wrote and what can do harm meet in one place.
        """
        found = self.get(ASSISTANT)
        preset = found.preset
        if preset == "auto":
            preset = "delegating" if self._is_shared() else "direct"
        if preset == "delegating":
            return replace(found, tools=DELEGATING, preset=preset)
        tools = found.tools if preset == "open" or found.tools == () else (*(found.tools or ()), *DIRECT)
        return replace(found, tools=tools, preset=preset)

    def queue(self, max_turns: int = 0) -> Role:
        """Who works on a task of the queue: a worker with the tools for that beside its own, whom nobody can help."""
        found = self.get(WORKER)
        tools = None if found.tools is None or found.tasks is None else (*found.tools, *found.tasks)
        found = replace(found, tools=tools, documents=None, max_turns=max_turns or found.max_turns)
        return replace(found, text=found.text if found.is_own else "", is_background=True, menu=WORKER)

    def child(self, name: str = "", text: str | None = None) -> Role:
        """Who is given one piece of work: this role, or a plain helper with every tool (S-091).

        `text` takes the place of what its own file says; what its prompt file says stays before it (S-092).
        """
        found = self.get(name) if name else Role(CHILD, max_turns=CHILD_TURNS, documents=CHILD_DOCUMENTS)
        if text is not None:
            found = replace(found, text="\n\n".join(part for part in (self._read_prompt(found), text) if part))
        return replace(found, is_child=True)

    def list_roles(self) -> list[Role]:
        """Every role, those that ship first, each as it holds now but without the text of its prompt file."""
        names = [*SHIPPED, *sorted(name for name in self._read_own() if name not in SHIPPED)]
        return [self._apply_caps(found) for name in names if (found := self._find_role(name)) is not None]

    def helpers(self) -> list[Role]:
        """The roles that work can be handed to: not whom people talk with, and not the one that the core alone sets to work."""
        return [one for one in self.list_roles() if one.name not in (ASSISTANT, HEARTBEAT)]

    def profiles(self) -> list[Role]:
        """The roles that the home has added, by name: the kinds of helper that can be asked for (S-093)."""
        return [one for one in self.list_roles() if one.name not in SHIPPED]

    @property
    def problems(self) -> list[str]:
        """The faults of role files, one line each."""
        self._read_own()
        with self._guard:
            return [f"{FOLDER}/{name}.md: {known.problem}" for name, known in sorted(self._known.items()) if known.problem]

    # -- inside -------------------------------------------------------------------------------------

    def _find_role(self, name: str) -> Role | None:
        own = self._read_own()
        if (known := own.get(name)) is not None and known.role is not None:
            return known.role
        return self._load_shipped(name) if name in SHIPPED else None

    def _load_shipped(self, name: str) -> Role:
        with self._guard:
            if name not in self._shipped:
                text = (resources.files("appliance") / "box" / FOLDER / f"{name}.md").read_text(encoding="utf-8")
                self._shipped[name] = parse(name, text)
            return self._shipped[name]

    def _read_own(self) -> Mapping[str, _Known]:
        """The files of the home as they are now; each is read when it has changed."""
        found: dict[str, Path] = {}
        try:
            for path in self._folder.glob("*.md"):
                found[path.stem] = path
        except OSError as error:
            if (said := f"roles cannot be listed: {error}") != self._said:
                LOG.warning("%s", said)
                self._said = said
        with self._guard:
            for name in [name for name in self._known if name not in found]:
                del self._known[name]
            for name, path in found.items():
                self._read_role_file(name, path)
            return dict(self._known)

    def _read_role_file(self, name: str, path: Path) -> None:
        """Read one file if it is not as it was; what was good before stays when it is not good now."""
        before = self._known.get(name)
        try:
            info = path.lstat()
            stamp = (info.st_ctime_ns, info.st_size, info.st_ino)
            if before is not None and before.stamp == stamp:
                return
            self._known[name] = _Known(stamp, before.role if before is not None else None)
            if path.is_symlink():
                raise BadInput("it is a link", hint="copy the file itself")
            if why := trusted_files.problem(path, home=self._box.parent):
                self._known[name].role = None  # also one that was good before: whose word it was is not known any more
                raise BadInput(why)
            with path.open(encoding="utf-8", errors="replace") as file:
                made = replace(parse(name, file.read(MAX_CHARS + 1)), is_own=True)
            self._check_pool(made.pool)
            self._known[name].role = made
            LOG.info("role %s read", name)
        except FileNotFoundError:
            self._known.pop(name, None)
        except (OwlError, OSError) as error:
            what = error.message if isinstance(error, OwlError) else f"cannot be read: {error.strerror}"
            self._known.setdefault(name, _Known((0, 0, 0), None)).problem = what
            LOG.warning("role %s not taken: %s", name, what)

    def _check_pool(self, pool: str) -> None:
        """ConfigError for a pool that is none, and no route (E-286)."""
        settings = self._settings()
        known = {*settings.pools, *settings.routes, LOCAL}
        if pool and pool not in known and pool.partition("/")[0] not in {*settings.providers, LOCAL}:
            raise ConfigError(f"pool {pool} is not configured", key="pool", hint=f"there are {', '.join(sorted(settings.pools))}")

    def _apply_caps(self, role: Role) -> Role:
        """With what the configuration says about the role, where its file does not."""
        caps = self._settings().agents.get(role.name, Caps())
        temperature = role.temperature if role.temperature is not None else caps.temperature
        shipped = AGENTS.get(role.name, Caps()).temperature
        return replace(
            role,
            pool=(role.name == HEARTBEAT and self._settings().heartbeat.pool) or role.pool or caps.model or caps.pool,
            max_turns=role.max_turns or caps.max_iterations,
            temperature=temperature,
            is_temperature_set=temperature is not None and temperature != shipped,
            timeout_s=role.timeout_s or (caps.timeout_s if role.name in self._settings().agents else 0),
        )

    def _read_prompt(self, role: Role) -> str:
        """What a role's prompt file says now; "" for none and for one that cannot be read (S-092)."""
        if not role.prompt_file:
            return ""
        path = (self._box / role.prompt_file).resolve()
        if not path.is_relative_to(self._box.resolve()):
            LOG.warning("role %s: prompt file %s lies outside of box/", role.name, role.prompt_file)
            return ""
        if why := trusted_files.problem(path, home=self._box.parent):
            LOG.warning("role %s: prompt file %s is not taken: %s", role.name, role.prompt_file, why)
            return ""
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                return markdown.visible(file.read(MAX_CHARS))
        except OSError:
            return ""


# -- a file ------------------------------------------------------------------------------------------


class _Front(Struct, frozen=True):
    """A role's front matter, to be asked key by key."""

    raw: dict[str, Any]
    used: set[str] = set()

    def get(self, key: str, kind: type | tuple[type, ...], otherwise: Any) -> Any:
        self.used.add(key)
        found = self.raw.get(key)
        return otherwise if found in markdown.NOTHING else self._checked(key, found if isinstance(found, kind) else None)

    def _checked(self, key: str, found: Any) -> Any:
        if found is None:
            raise BadInput(f"{key}: {self.raw[key]!r} is not a valid value", hint="docs/guides/roles.md explains every key")
        return found

    def truth(self, key: str, otherwise: bool) -> bool:
        found = self.get(key, str, None)
        return otherwise if found is None else bool(self._checked(key, markdown.truth(found)))

    def names(self, key: str) -> tuple[str, ...] | None:
        found = self.get(key, (list, str), None)
        if found is None or found == "all":
            return None
        given = found.split(",") if isinstance(found, str) else found
        if not all(isinstance(one, str) and not NUMBER.fullmatch(one) and markdown.truth(one) is None for one in given):
            raise BadInput(f"{key}: {found!r} is not a list of names", hint=f"write {key}: [one, two]")
        return tuple(name for one in given if (name := one.strip()))

    def word(self, key: str, among: tuple[str, ...], otherwise: str) -> Any:
        found = self.get(key, str, otherwise)
        if found not in among:
            raise BadInput(f"{key}: {found!r}", hint=f"use {', '.join(one for one in among if one)}")
        return found

    def number(self, key: str, low: float, high: float) -> float | None:
        said = self.get(key, str, None)
        if said is None:
            return None
        found = float(self._checked(key, said if NUMBER.fullmatch(said) else None))
        if not low <= found <= high:
            raise BadInput(f"{key}: {said} is out of range", hint=f"use {low:g} to {high:g}")
        return found


KEYS = (
    *("description", "pool", "model", "max_iterations", "temperature", "timeout_s", "tools", "tasks", "documents", "sandbox"),
    *("preset", "prompt_file", "skills"),
)


def parse(name: str, text: str) -> Role:
    """The role in a file's text; BadInput says what is wrong with it."""
    if not NAME.fullmatch(name):
        raise BadInput(f"{name!r} cannot be a role's name", hint="use lower-case letters, digits, - and _")
    if name == CHILD:
        raise BadInput(f"{CHILD} is the plain helper, which has no file", hint="give it another name")
    if len(text) > MAX_CHARS:
        raise BadInput(f"it has more than {MAX_CHARS} characters", hint="put the rest into a note")
    raw, body = markdown.split(text)
    front = _Front(raw)
    if strange := [str(key) for key in raw if key not in KEYS]:
        raise BadInput(f"unknown key {strange[0]}", hint=f"there are {', '.join(KEYS)}")
    documents = front.names("documents")
    if documents is None and raw.get("documents") != "all" and name not in SHIPPED:
        documents = CHILD_DOCUMENTS
    turns = front.number("max_iterations", 1, 10_000)
    return Role(
        name,
        description=" ".join(front.get("description", str, "").split()),
        pool=front.get("model", str, "") or front.get("pool", str, ""),
        max_turns=int(turns or 0),
        temperature=front.number("temperature", 0, 2),
        timeout_s=front.number("timeout_s", 1, 86_400) or 0,
        tools=front.names("tools"),
        tasks=front.names("tasks") if "tasks" in raw else (),
        documents=documents,
        sandbox=front.word("sandbox", ("", "db", "files", "project", "exec"), ""),
        preset=front.word("preset", get_args(Preset), "auto"),
        prompt_file=front.get("prompt_file", str, ""),
        text=markdown.visible(body),
        has_skills=front.truth("skills", True),
    )


def role_data(role: Role) -> dict[str, Any]:
    """A role as JSON-ready values."""
    return {name: value for name, value in asdict(role).items() if name not in ("is_background", "is_child", "menu")}
