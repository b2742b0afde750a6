"""Tools that are the six verbs: set, get, rm, cp, mv, update. Not in the menu, which stays small; tags name them."""

from typing import Annotated, Any, Literal

from msgspec.structs import replace

from appliance.agent.dispatch import actor_of
from appliance.agent.toolbox import Caller, tool
from appliance.knowledge.entries import Content
from appliance.knowledge.verb_arguments import Look, Write
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Visibility
from appliance.records import Outcome
from appliance.sessions.runs import Runs

Path = Annotated[str, "scheme://path, a file's path, or a pattern with * or **"]
Filter = Annotated[str, "only entries whose text matches: words, a glob or /regex/"]
Preview = Annotated[bool, "only list what it would be done to"]
Seen = Annotated[Visibility | None, "how you see it from now on"]


@tool(group="entries", name="set", menu=("run",))
def set_entry(
    path: Annotated[str, "scheme://path, a file's path, or a pattern; may be empty for kind known"] = "",
    body: Annotated[str | None, "the whole text, or edit markers such as <<SEARCH old SEARCH <<REPLACE new REPLACE"] = None,
    search: Annotated[str | None, "text to replace, or s/old/new/; empty appends"] = None,
    replace: Annotated[str | None, "what takes its place"] = None,
    visibility: Seen = None,
    summary: Annotated[str | None, "what it is, in at most 80 characters"] = None,
    attributes: Annotated[dict[str, Any] | None, "replaces the stored attributes"] = None,
    filter: Filter = "",
    kind: Annotated[Literal["entry", "known"], "known: a bare path means known://path"] = "entry",
    preview: Preview = False,
    *,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Write or edit an entry, or change how you see it."""
    content = Content(attributes=attributes)
    write = Write(body, search, replace, visibility, summary, wanted=filter, kind=kind, is_preview=preview, content=content)
    return verbs.set(actor_of(runs, caller), path, write)


@tool(group="entries", name="get", menu=("run",))
def get_entry(
    path: Path,
    body: Filter = "",
    line: Annotated[int | None, "first line to show, negative from the end; nothing is promoted"] = None,
    limit: Annotated[int | None, "how many lines"] = None,
    preview: Annotated[bool, "only list what matches"] = False,
    *,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Read an entry; a pattern lists what matches and makes it visible."""
    outcome = verbs.get(actor_of(runs, caller), path, Look(body, line, limit, preview))
    return outcome if outcome.message else replace(outcome, message=f"{path} is empty")


@tool(group="entries", name="rm", menu=("run",))
def rm_entry(
    path: Path,
    body: Filter = "",
    preview: Preview = False,
    *,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Remove an entry, or all that match a pattern."""
    return verbs.rm(actor_of(runs, caller), path, Look(body, is_preview=preview))


@tool(group="entries", name="cp", menu=("run",))
def cp_entry(
    path: Path,
    to: Annotated[str, "the destination"] = "",
    body: Annotated[str, "the destination, when to is empty; else only entries whose text matches"] = "",
    visibility: Seen = None,
    preview: Preview = False,
    *,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Copy an entry; all that match a pattern go below a destination that ends in /."""
    look = Look(body if to else "", is_preview=preview)
    return verbs.cp(actor_of(runs, caller), path, to or body.strip(), visibility, look)


@tool(group="entries", name="mv", menu=("run",))
def mv_entry(
    path: Path,
    to: Annotated[str, "the destination"] = "",
    body: Annotated[str, "the destination, when to is empty; else only entries whose text matches"] = "",
    visibility: Seen = None,
    preview: Preview = False,
    *,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Move or rename an entry; all that match a pattern go below a destination that ends in /."""
    look = Look(body if to else "", is_preview=preview)
    return verbs.mv(actor_of(runs, caller), path, to or body.strip(), visibility, look)


@tool(group="run", name="update", menu=("run",))
def update_run(
    body: Annotated[str, "how it stands, in a sentence"] = "",
    status: Annotated[Literal[102, 200, 204, 422], "102 goes on, 200 done, 204 done without an answer, 422 cannot be done"] = 102,
    *,
    verbs: Verbs,
    runs: Runs,
    caller: Caller,
) -> Outcome:
    """Say how the work stands."""
    return verbs.update(actor_of(runs, caller), body, status)
