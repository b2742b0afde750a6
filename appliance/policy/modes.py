"""On what terms a loop works: read-only or with everything, who decides about changes, and which tools that leaves.

Pure: what a mode and its flags take away, the order in which tools are shown, and why a single call is refused.
Fixed when a loop begins. What a policy forbids comes before and is none of its business.
"""

from collections.abc import Sequence

from appliance.records import Mode, RunSettings, Terms, ToolSpec

# Tools that a flag takes away, by name or by group.
SHELL = ("sh", "exec", "shell")
LOOKING = ("env",)  # a command that only looks
ASKING = ("ask_user",)
WEB_GROUPS = ("web",)
# Groups that an assistant is kept from, and whom it hands such work to.
AWAY = {"files": "coder or worker", "shell": "coder", "web": "researcher or worker"}
BAR = "-"  # before a name or a group in a list of tools: all of the list but that
STARTING, STARTING_GROUPS = ("spawn_worker",), ("delegation",)  # what sets other runs to work
# The order in which tools are shown: gather, reason, act, communicate. Others come after those of their kind.
GATHER = ("think", "get", "search", "read", "env")
ACT = ("set", "cp", "mv", "rm", "sh")
COMMUNICATE = ("update", "ask_user")


FREE = Terms()


def terms(mode: Mode, settings: RunSettings, *, is_attended: bool = True, role: str = "") -> Terms:
    """The terms of a loop from its mode and the settings of its run; in doubt the narrower ones. Tools are its role's matter."""
    return Terms(
        mode="ask" if "ask" in (mode, settings.approval) else "act",
        approval="auto" if settings.is_yolo or settings.approval == "auto" else "review",
        layout=settings.layout,
        has_repo=not settings.no_repo,
        has_web=not settings.no_web,
        has_interaction=not settings.no_interaction,
        has_proposals=not settings.no_proposals,
        is_attended=is_attended,
        role=role,
    )


def refusal(terms: Terms, name: str, group: str = "") -> str:
    """The reason why a mode excludes a tool; "" when it does not."""
    if name in SHELL and terms.mode == "ask":
        return "this question is answered without running commands"
    if (name in (*SHELL, *LOOKING, *ASKING)) and not terms.has_proposals:
        return "this run proposes nothing"
    if name in ASKING and not terms.has_interaction:
        return "this run asks nobody"
    if name in ASKING and not terms.is_attended:
        return "it needs approval, and nobody is here to answer"
    if group in WEB_GROUPS and not terms.has_web:
        return "this run stays away from the web"
    if terms.is_child and (group in STARTING_GROUPS or name in STARTING):
        return "a run that was started by another one starts none"
    return ""


def has(tools: tuple[str, ...] | None, name: str, group: str) -> bool:
    """Whether a list of names and groups has a tool. None has all; what is barred is barred, and bars alone leave the rest."""
    if tools is None or not tools:
        return tools is None
    if not {BAR + name, BAR + group}.isdisjoint(tools):
        return False
    given = unbarred(tools)
    return given is None or name in given or group in given


def unbarred(tools: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """A list of tools without its bars; None, which is all, where it has nothing else."""
    given = tuple(one for one in tools or () if not one.startswith(BAR))
    return given if given or tools == () else None


def bars(tools: tuple[str, ...] | None) -> tuple[str, ...]:
    """The entries of a list that exclude tools: those that begin with `BAR`."""
    return tuple(one for one in tools or () if one.startswith(BAR))


def instead(tools: tuple[str, ...] | None, group: str) -> str:
    """What whoever may not have a tool of a group does instead; "" where nothing is known."""
    is_away = group in AWAY and tools is not None and BAR + group in tools
    return f"hand it over: delegate with agent {AWAY[group]}, and all that is to be known in task" if is_away else ""


def menu(terms: Terms, specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The tools that these terms leave, in the order in which a model is shown them."""
    return tuple(sorted((s for s in specs if not refusal(terms, s.name, s.group)), key=_place_of))


def _place_of(spec: ToolSpec) -> tuple[int, int]:
    for stage, names in ((0, GATHER), (2, ACT), (4, COMMUNICATE)):
        if spec.name in names:
            return stage, names.index(spec.name)
    return (1 if spec.is_read_only else 3), int(spec.name == "use")  # which leads to all the others
