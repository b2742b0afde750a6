"""Tools for skills: list, read, search, write and delete them.

What a model writes is checked like what a person writes. It stays untrusted: its description stands in no prompt until a person
trusts it, because the words of a model may be those of a page that it has read.
"""

from typing import Annotated, Literal, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, Needs, tool
from appliance.errors import BadInput
from appliance.policy.taint import ToolReach
from appliance.runtime.signatures import Range
from appliance.skills.arguments import usage_of
from appliance.skills.catalog import SkillCatalog
from appliance.skills.skill_file import Argument, name_of
from appliance.skills.skill_service import SkillService
from appliance.text.edits import LinePatch

FOUND, LISTED = 10, 50  # skills of a page
WRITES = Needs(reach=ToolReach("skill", target="name"))
Name = Annotated[str, Range(1, 200), "the skill's name"]


class ListedSkill(TypedDict):
    name: str
    description: str
    missing: str


class SkillList(TypedDict):
    skills: list[ListedSkill]
    total: int


class SkillText(TypedDict):
    name: str
    ref: str
    text: str
    files: list[str]


class WrittenSkill(TypedDict):
    name: str
    path: str
    created: bool


@tool(group="skills", is_read_only=True, menu=())
def skill_list(
    query: Annotated[str, Range(0, 1000), "only what these words find, best first"] = "",
    limit: Annotated[int, Range(0, 200), "how many to show; 0: ten of what is found, fifty of all"] = 0,
    offset: Annotated[int, Range(0, 100_000)] = 0,
    *,
    skills: SkillCatalog,
) -> Reply[SkillList]:
    """List the skills that there are, by name, or find those for some words."""
    limit = limit or (FOUND if query else LISTED)
    found = skills.listing(query=query, limit=limit + offset)
    page = [
        ListedSkill(name=one.name, description=_shown_description(one.description, one.is_trusted), missing=one.missing)
        for one in found
    ]
    page = page[offset : offset + limit]
    lines = [f"{one['name']}: {one['description']}{' (needs ' + one['missing'] + ')' if one['missing'] else ''}" for one in page]
    rest = len(found) - offset - len(page)
    if rest > 0:
        lines.append(f"and {rest} more: offset={offset + len(page)}")
    none = f"No skill has {query!r} in it." if query else "No skills found."
    return Reply(SkillList(skills=page, total=len(found)), "\n".join(lines) or none)


@tool(group="skills", is_read_only=True, menu=())
def skill_read(
    name: Name,
    path: Annotated[str, "a file beside it, such as references/x.md"] = "",
    *,
    skills: SkillCatalog,
    skill_service: SkillService,
) -> Reply[SkillText]:
    """Read how a skill is done, or a file that belongs to it."""
    found = skill_service.view(name, path)
    one = skills.get(name)
    skills.count_use(one)
    rest = f"\n\nFiles beside it: {', '.join(found['files'])}" if found["files"] and not path else ""
    return Reply(SkillText(name=one.skill.name, ref=one.ref, text=found["text"], files=found["files"]), found["text"] + rest)


@tool(group="skills", menu=(), needs=WRITES)
def skill_write(
    name: Name,
    description: Annotated[str, Range(0, 1024), "one sentence: what it does and when to use it"] = "",
    body: Annotated[str, "the steps, in Markdown"] = "",
    arguments: Annotated[tuple[Argument, ...], "words after /name"] = (),
    on_conflict: Annotated[Literal["error", "overwrite"], "when there is one of this name"] = "error",
    patches: Annotated[tuple[LinePatch, ...], "instead lines of its file from 1; end_line 0 inserts, empty content deletes"] = (),
    *,
    skill_service: SkillService,
    caller: Caller,
) -> Reply[WrittenSkill]:
    """Write a new skill, which can be called as /name from the next message on, or change lines of one."""
    if patches:
        one = skill_service.edit(name, patches, by=author_of(caller))
        text = f"Changed the skill {one.skill.name}."
        return Reply(WrittenSkill(name=one.skill.name, path=str(one.skill.path), created=False), text)
    if not description.strip() or not body.strip():
        raise BadInput("a new skill has a description and a body", hint="give both, or patches", outcome="invalid_arguments")
    one, is_new = skill_service.create(
        name, description, body, arguments, is_overwriting=on_conflict == "overwrite", by=author_of(caller)
    )
    text = (
        f"{'Wrote' if is_new else 'Replaced'} the skill {one.skill.name}. {usage_of(one.skill)} uses it from the next message on."
    )
    return Reply(WrittenSkill(name=one.skill.name, path=str(one.skill.path), created=is_new), text)


@tool(group="skills", menu=(), needs=WRITES)
def skill_delete(name: Name, *, skill_service: SkillService, caller: Caller) -> str:
    """Delete a skill with its files."""
    path = skill_service.delete(name, by=author_of(caller))
    return f"Deleted the skill {name_of(name) or name} ({path})."


def _shown_description(description: str, is_trusted: bool) -> str:
    """A description, or that nobody trusts it yet: a list is no place for a stranger's words."""
    return description if is_trusted else "(not trusted: skill_read shows it)"


def author_of(caller: Caller) -> str:
    """Who writes, for the audit log: the run of a model, else the person at the command line."""
    return f"run:{caller.run}" if caller.run else "local"
