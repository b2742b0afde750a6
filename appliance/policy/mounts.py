"""Which folders of the disk a tool may see, and how: the allowlist, what is never shown, and paths inside a root.

Owns resolution: a rule of a person comes before one of a group, that before one for everybody, and among equals the
first listed; what is not listed is denied. Whether a policy lets any folder be bound at all is for
`policy.policy_file`. Looks at the disk only to follow links. Not promised: that a path is still the same when it is
mounted; `sandbox.descriptors` opens it anew and follows no link then.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from posixpath import normpath
from typing import Any, Literal, get_args

from msgspec import Struct

from appliance.errors import BadInput, ConfigError, Refused, TooLarge
from appliance.secrets.sensitive_files import is_secret

Mode = Literal["readonly", "readwrite", "denied"]
Kind = Literal["project", "reference"]
Narrowing = Literal["hidden", "readonly"]
# Names that are never shown, whatever is listed, beside those that `secrets.sensitive_files` knows.
BLOCKED = (
    *(".ssh", ".gnupg", ".aws", ".env", "credentials", ".kube", ".docker", "*.pem", "*.key", "id_rsa"),
    *(".bash_history", ".zsh_history"),
)
PROJECT_ROLES = ("coder",)  # who may see projects
PROCESSES = "/proc"  # of this machine: what runs, and with what words and variables
MAX_PATH = 4096  # bytes
MAX_LOOKED_AT = 200_000  # files of a folder that is to be shown


class MountRule(Struct, frozen=True):
    """One entry of the allowlist. `path` may hold `*`, which stands for any characters, also `/`."""

    path: str
    mode: Mode = "readonly"
    kind: Kind = "reference"
    user: str = ""
    group: str = ""


class Who(Struct, frozen=True):
    """On whose behalf a tool runs, and in which role."""

    user: str = ""
    groups: tuple[str, ...] = ()
    role: str = ""
    is_admin: bool = False


class MountAccess(Struct, frozen=True):
    """What may be done at a path. `rule` names what spoke against it or narrowed it, `why` says it, `index` is the entry."""

    path: str
    mode: Mode
    rule: str = ""
    why: str = ""
    index: int | None = None


def clean(path: str) -> str:
    """The absolute path without `.`, `..` and doubled slashes; BadInput for one that is relative, empty or holds a NUL."""
    _check_path(path)
    if not path.startswith("/"):
        raise BadInput(f"the path {path!r} is not absolute", hint="begin it with /")
    return "/" + normpath(path).lstrip("/")


def contains(root: str | Path, path: str | Path) -> bool:
    """Whether a cleaned path is this root or lies in it, by whole names: `/ws` does not hold `/ws-evil/x`."""
    top, below = str(root).rstrip("/"), str(path)
    return below == top or below.startswith(f"{top}/")


def matches(pattern: str, path: str) -> bool:
    """Whether a cleaned path is what an entry names: the same, or with `*` for any characters."""
    return fnmatchcase(path, _escape_pattern(pattern)) if "*" in pattern else path == pattern


def listed(path: str, allow: Sequence[str], deny: Sequence[str]) -> bool:
    """Whether lists let a path pass: an empty `allow` allows all, and a match in `deny` always wins."""
    path = clean(path)
    return not any(matches(p, path) for p in deny) and (not allow or any(matches(p, path) for p in allow))


def blocked(path: str) -> str:
    """The part of a path that is never shown to a tool; "" when there is none."""
    return next((name for name in path.split("/") if is_blocked(name)), "")


def is_blocked(name: str) -> bool:
    """Whether a file or folder of this name is never shown to a tool."""
    return is_secret(name) or any(fnmatchcase(name.lower(), pattern) for pattern in BLOCKED)


class Allowlist(Struct, frozen=True):
    """The folders that may be seen. `closed` are never shown: the product's own; `is_open` adds all others, read-only."""

    rules: tuple[MountRule, ...] = ()
    closed: tuple[str, ...] = ()
    is_open: bool = False

    @classmethod
    def of(cls, rules: Iterable[MountRule] = (), *, closed: Iterable[Path] = (), is_open: bool = False) -> "Allowlist":
        """Checked and cleaned; ConfigError names an entry that cannot be by its number."""
        shut = dict.fromkeys(form for path in closed for form in (str(path), os.path.realpath(path)))
        return cls(tuple(_check_rule(i, rule) for i, rule in enumerate(rules)), tuple(shut), is_open)

    def resolve(self, path: str, who: Who, *, is_writable: bool = False) -> MountAccess:
        """The rights of this person's tool at a path after its links were followed.

        A link counts as what it leads to: both places have to be allowed, and neither may be one that is never shown.
        """
        path = clean(path)
        real, links = os.path.realpath(path), self._resolve_links()
        for place in dict.fromkeys((path, real)):
            if reason := self._refuse_always(place):
                return MountAccess(path, "denied", "mount.bind.blocked", reason)
        found = self._resolve_entry(path, who, links)
        if real != path and found.mode != "denied":
            there = self._resolve_entry(real, who, links)
            if there.mode == "denied":
                why = f"it leads to {real}, which is not allowed: {there.why}"
                return MountAccess(path, "denied", there.rule, why, found.index)
            found = MountAccess(
                real, _narrower_mode(found.mode, there.mode), found.rule or there.rule, found.why or there.why, found.index
            )
        if is_writable or found.mode != "readwrite":
            return found
        return MountAccess(found.path, "readonly", found.rule, found.why, found.index)

    def visible(self, who: Who) -> list[MountAccess]:
        """The folders that this person's tools see without asking for them: every entry that is one folder and is there."""
        found = []
        for path in dict.fromkeys(rule.path for rule in self.rules if "*" not in rule.path):
            resolved = self.resolve(path, who, is_writable=True)
            if resolved.mode != "denied" and os.path.exists(resolved.path):
                found.append(resolved)
        return found

    def narrowed(
        self, root: str, who: Who, limit: int = MAX_LOOKED_AT, *, is_deep: bool = True
    ) -> Iterator[tuple[Path, Narrowing]]:
        """Files and folders below a root that this person sees less of than of the root, outer ones first.

        Hidden: denied ones, those never shown, and sockets and pipes, because whoever listens there is outside and a
        read-only mount does not stop a message. Readonly: what an entry of its own says so of; an entry that means the
        root as well was weighed there. TooLarge when there are too many files; not `is_deep` looks at the root's own alone.
        """
        waiting, looked_at, links = [root], 0, self._resolve_links()
        while waiting:
            for entry in _scan_entries(waiting.pop()):
                looked_at += 1
                if looked_at > limit:
                    raise TooLarge(f"{root} holds more than {limit} files", hint="list the folders below it that are needed")
                is_shut = is_blocked(entry.name) or entry.path == PROCESSES or entry.path in self.closed or _is_door(entry)
                found = "hidden" if is_shut else self._find_narrowing(entry.path, root, who, links)
                if found is not None:
                    yield Path(entry.path), found
                if found == "hidden":
                    continue
                if is_deep and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)

    def is_readonly_below(self, root: str, path: str, who: Who) -> bool:
        """Whether an entry of its own makes a path below a root read-only, or a folder between them."""
        links, top = self._resolve_links(), Path(root)
        below = [one for one in (Path(path), *Path(path).parents) if top in one.parents]
        return any(self._find_narrowing(str(one), root, who, links) == "readonly" for one in below)

    def _find_narrowing(self, path: str, root: str, who: Who, links: Mapping[str, str]) -> Narrowing | None:
        index = self._find_winning(path, who, links)
        mode = None if index is None else self._apply_rule(path, who, index).mode
        if index is None or mode == "readwrite":
            return None
        return "hidden" if mode == "denied" else None if matches(self.rules[index].path, root) else "readonly"

    def _refuse_always(self, path: str) -> str:
        if name := blocked(path):
            return f"{name} is never shown to a tool"
        if contains(PROCESSES, path):
            return f"{PROCESSES} shows the processes of this machine, which no tool sees"
        inside = next((root for root in self.closed if contains(root, path)), "")
        return f"{inside} belongs to owlbox itself" if inside else ""

    def _resolve_links(self) -> Mapping[str, str]:
        """Where denied entries lead: a folder is denied by every name it has."""
        return {rule.path: os.path.realpath(rule.path) for rule in self.rules if rule.mode == "denied"}

    def _find_winning(self, path: str, who: Who, links: Mapping[str, str]) -> int | None:
        """The entry that decides about a path: of the person, of one of the groups, or of everybody; the first of these."""
        best: tuple[int, int] | None = None
        for index, rule in enumerate(self.rules):
            if rule.user and rule.user != who.user or rule.group and rule.group not in who.groups:
                continue
            priority = 0 if rule.user else 1 if rule.group else 2
            is_meant = matches(rule.path, path) or rule.mode == "denied" and links[rule.path] == path
            if is_meant and (best is None or priority < best[0]):
                best = priority, index
        return None if best is None else best[1]

    def _resolve_entry(self, path: str, who: Who, links: Mapping[str, str]) -> MountAccess:
        index = self._find_winning(path, who, links)
        if index is None:
            if self.is_open:
                return MountAccess(path, "readonly", "", "paths that are not listed are read-only")
            return MountAccess(path, "denied", "mount.bind.source_not_allowed", f"{path} is not in the allowlist")
        return self._apply_rule(path, who, index)

    def _apply_rule(self, path: str, who: Who, index: int) -> MountAccess:
        """The decision of one mount rule for a path."""
        rule = self.rules[index]
        if rule.mode == "denied":
            return MountAccess(path, "denied", "mount.bind.denied", f"{path} is denied by entry {index}", index)
        if rule.kind == "project" and who.role not in PROJECT_ROLES:
            why = f"{path} is a project, which is for the role {' or '.join(PROJECT_ROLES)}"
            return MountAccess(path, "denied", "mount.project.role", why, index)
        if rule.mode == "readonly":
            return MountAccess(path, "readonly", "", f"entry {index} is read-only", index)
        if rule.kind == "reference":
            return MountAccess(path, "readonly", "", f"entry {index} is a reference, which is read-only", index)
        if not rule.user and not who.is_admin:
            return MountAccess(path, "readonly", "", f"entry {index} is shared, and only an admin writes there", index)
        return MountAccess(path, "readwrite", "", "", index)


def within(root: Path, text: str, *, is_restricted: bool = True) -> Path:
    """The file that a tool's argument means in a working folder; Refused outside of it unless it is not restricted.

    Relative to the folder. Links are followed, and what they lead to has to lie in the folder as well. Also where the
    folder does not hold it in, what is never shown is refused.
    """
    if not text:
        raise BadInput("the path is empty", hint="name a file")
    _check_path(text)
    if ".." in text.split("/"):
        raise BadInput(f"the path may not go up: {text}", hint="give the path without ..")
    top = os.path.realpath(root)
    path = os.path.realpath(os.path.join(top, text))
    is_inside = contains(top, path)
    if is_restricted and not is_inside:
        raise Refused(f"path is outside workspace: {text}", hint="use a path relative to the working folder")
    shown = path[len(top) :] if is_inside else path
    if name := blocked(shown) or blocked(text):
        raise Refused(f"{name} is never shown to a tool", hint="do without it")
    return Path(path)


def _check_path(path: str) -> None:
    if "\0" in path:
        raise BadInput("the path holds a NUL byte", hint="remove it")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise BadInput(f"the path {path!r} holds half a character", hint="write it again") from None
    if size > MAX_PATH:
        raise BadInput(f"the path has more than {MAX_PATH} bytes", hint="shorten it")


def _is_door(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a socket, a pipe or a device."""
    is_plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
    return not is_plain and not entry.is_symlink()


def _escape_pattern(pattern: str) -> str:
    """The pattern with only `*` meaning something."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def _narrower_mode(one: Mode, other: Mode) -> Mode:
    return one if one == other else "readonly"


def _check_rule(index: int, rule: MountRule) -> MountRule:
    """The rule with its path cleaned; ConfigError that names the entry's number."""
    key = f"mounts[{index}]"

    def fail(name: str, value: Any, expected: str) -> ConfigError:
        return ConfigError(f"{key}.{name} = {value!r}: must be {expected}", key=f"{key}.{name}")

    if not isinstance(rule.path, str) or not rule.path.startswith("/") or "\0" in rule.path:
        raise fail("path", rule.path, "an absolute path")
    if rule.mode not in get_args(Mode):
        raise fail("mode", rule.mode, f"one of {', '.join(get_args(Mode))}")
    if rule.kind not in get_args(Kind):
        raise fail("kind", rule.kind, f"one of {', '.join(get_args(Kind))}")
    if rule.user and rule.group:
        raise ConfigError(f"{key} has a user and a group: must be for one of them", key=key)
    return MountRule("/" + normpath(rule.path).lstrip("/"), rule.mode, rule.kind, rule.user, rule.group)


def _scan_entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return  # what we cannot look into, the tool cannot either
