"""Schemes: what kind of thing a path is, where it lives, who may write it and whether the model sees it.

Owns the declarations and the questions about them; knows nothing about rows. A scheme that nobody
declared has the defaults, so what is stored under it stays within reach. `writers` are named one by one:
being above a named tier does not by itself allow a write, so that `runtime.log` can be closed to clients.
"""

import re
from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

from appliance.errors import BadInput, Conflict, Refused
from appliance.text.references import display, scheme_of

Tier = Literal["system", "plugin", "client", "model"]  # from the highest to the lowest
Category = Literal["data", "logging", "unknown", "prompt", "audit"]
Home = Literal["run", "project", "global"]

TIERS: tuple[Tier, ...] = get_args(Tier)
CATEGORIES: tuple[Category, ...] = get_args(Category)
EVERYBODY = frozenset(TIERS)
SYSTEM: frozenset[Tier] = frozenset({"system"})
PLUGINS: frozenset[Tier] = frozenset({"system", "plugin"})
NOT_THE_MODEL: frozenset[Tier] = frozenset({"system", "plugin", "client"})
NOT_CLIENTS: frozenset[Tier] = frozenset({"system", "plugin", "model"})

BARE = "file"  # the scheme of a path without one
REFUSED = "permission:403"  # outcome of a view whose write was refused
SCOPE = re.compile(r"global|project:[0-9]{1,18}|run:[A-Za-z0-9_-]{1,64}|(?:user|group):[^\s\x00-\x20\x7f]{1,128}")


class Scheme(Struct, frozen=True):
    """What one scheme is. `scope` is where its entries live when nothing else is said."""

    name: str
    is_visible_to_model: bool = True
    category: Category = "logging"
    scope: Home = "run"
    writers: frozenset[Tier] = EVERYBODY
    hint: str = ""  # what to do instead of a write that is refused


def _builtin_schemes() -> Iterable[Scheme]:
    """The schemes that come with the product."""
    yield Scheme(BARE, category="data", scope="project")
    for name in ("known", "sh", "env", "http", "https"):
        yield Scheme(name, category="data")
    yield Scheme("unknown", category="unknown")
    yield Scheme("prompt", category="prompt", writers=PLUGINS)
    yield Scheme("log", writers=NOT_CLIENTS)
    for name in ("update", "error"):
        yield Scheme(name)
    for name in ("tool", "instructions", "system", "reasoning", "model", "user", "assistant", "content"):
        yield Scheme(name, is_visible_to_model=False, category="audit", writers=SYSTEM)
    yield Scheme("run", writers=NOT_THE_MODEL, scope="project")
    mirrored = "it mirrors a file: edit the file in box/"
    yield Scheme("box", category="data", scope="project", writers=SYSTEM, hint=mirrored)
    yield Scheme("skill", category="data", scope="project", writers=PLUGINS, hint="edit the skill's file in box/skills/")
    for name in ("memory", "agent"):
        yield Scheme(name, category="data", scope="project")
    fetched = "it is a copy of something elsewhere: add it again to refresh it, write your own under agent:/ or known://"
    for name in ("disk", "url", "google-docs", "github"):
        yield Scheme(name, category="data", scope="project", writers=NOT_THE_MODEL, hint=fetched)
    for name in ("calendar", "contacts"):
        hint = "it mirrors a server: use add_event, change_event or remove_event"
        yield Scheme(name, category="data", scope="project", writers=SYSTEM, hint=hint)
    yield Scheme("session", category="data")


class Schemes:
    """The declared schemes of one process."""

    def __init__(self) -> None:
        self._schemes = {scheme.name: scheme for scheme in _builtin_schemes()}

    def register(self, scheme: Scheme) -> None:
        """Declare a scheme; a second declaration must be equal."""
        if not re.fullmatch(r"[a-z][a-z0-9+._-]*", scheme.name):
            raise BadInput(f"{scheme.name!r} cannot be a scheme", hint="use small letters, digits and - + . _")
        if scheme.category not in CATEGORIES:
            raise BadInput(f"{scheme.name}: there is no category {scheme.category!r}", hint=f"use one of {', '.join(CATEGORIES)}")
        if scheme.scope not in get_args(Home):
            raise BadInput(f"{scheme.name}: there is no scope {scheme.scope!r}", hint=f"use one of {', '.join(get_args(Home))}")
        if strange := scheme.writers - EVERYBODY:
            raise BadInput(f"{scheme.name}: there is no writer {min(strange)!r}", hint=f"use some of {', '.join(TIERS)}")
        if self._schemes.setdefault(scheme.name, scheme) != scheme:
            raise Conflict(f"the scheme {scheme.name} is declared already, and differently", hint="choose another name")

    def find_scheme(self, path: str) -> Scheme:
        """The scheme of a stored path; defaults for one that nobody declared."""
        name = scheme_of(path) or BARE
        return self._schemes.get(name) or Scheme(name)

    def list_schemes(self) -> list[Scheme]:
        """Every declared scheme by name."""
        return [self._schemes[name] for name in sorted(self._schemes)]

    def hidden(self) -> list[str]:
        """The names of the schemes that models do not see."""
        return [scheme.name for scheme in self.list_schemes() if not scheme.is_visible_to_model]

    def may_write(self, path: str, tier: str) -> bool:
        """Whether a writer of this tier may change what is stored under the path."""
        return tier in self.find_scheme(path).writers

    def check_write(self, path: str, tier: str) -> None:
        """Refused when a writer of this tier may not change what is stored under the path."""
        if not self.may_write(path, tier):
            scheme = self.find_scheme(path)
            allowed = ", ".join(t for t in TIERS if t in scheme.writers)
            raise Refused(f"{tier} may not write {display(path)}", hint=scheme.hint or f"{scheme.name} is written by: {allowed}")

    def is_of_runs(self, path: str) -> bool:
        """Whether the path's scheme was declared as one that every run has its own entries of."""
        declared = self._schemes.get(scheme_of(path) or BARE)
        return declared is not None and declared.scope == "run"

    def scope_for(self, path: str, run: str = "", project: int | None = None) -> str:
        """The scope in which a stored path lives; BadInput when the run or the project it needs is not known."""
        home = self.find_scheme(path).scope
        if home == "global":
            return home
        if home == "project":
            if project is None:
                raise BadInput(f"{display(path)} belongs to a project, and none is given", hint="name the project")
            return f"project:{project}"
        if not run:
            raise BadInput(f"{display(path)} belongs to a run, and none is given", hint="name the run")
        return f"run:{run}"


def is_file(path: str) -> bool:
    """Whether a stored path is that of a project's file, with or without `file://`."""
    return (scheme_of(path) or BARE) == BARE


def check_scope(scope: str) -> str:
    """The scope itself; BadInput for what is none of global, project:N, run:ID, user:NAME, group:NAME."""
    if not SCOPE.fullmatch(scope):
        raise BadInput(f"there is no scope {scope!r}", hint="use global, project:N, run:ID, user:NAME or group:NAME")
    return scope
