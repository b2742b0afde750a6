"""Tools for notes as files of the person's folder: write_note, append_note."""

from typing import Annotated, TypedDict

from appliance.agent.tool_results import Reply
from appliance.agent.toolbox import Caller, tool
from appliance.ingest.own_documents import NOTES, Documents
from appliance.language import items
from appliance.runtime.signatures import Range

TITLE_WORDS = 6
Name = Annotated[str, Range(1, 300), "the file below box/, such as notes/garden.md"]


class WrittenNote(TypedDict):
    path: str


@tool(group="notes", command="note", menu=())
def write_note(
    text: Annotated[str, Range(1, 20_000), "what the note says, in Markdown"],
    title: Annotated[str, Range(0, 100), "what it is called; empty for its first words"] = "",
    *,
    documents: Documents,
    caller: Caller,
) -> Reply[WrittenNote]:
    """Write a new note into the person's folder."""
    words = text.split()
    title = title.strip() or " ".join(words[:TITLE_WORDS]).strip(" .,:;") or "Note"
    path = documents.add_note(title[:1].upper() + title[1:], text, caller.run)
    return Reply({"path": f"box://{NOTES}/{path.name}"}, f"Wrote the note {path.stem} (box/{NOTES}/{path.name})")


@tool(group="notes", menu=())
def append_note(
    name: Name,
    text: Annotated[str, Range(1, 20_000), "what is added: one line for each item"],
    take_back: Annotated[bool, "take these lines off the end again; refused where it does not end in them"] = False,
    *,
    documents: Documents,
    caller: Caller,
) -> Reply[WrittenNote]:
    """Add lines to the end of a note, in the form it has: a list gets items."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    change = items.taken_off if take_back else items.added
    path = documents.change_note(name, lambda body: change(body, lines), caller.run)
    said = f"{'Took off' if take_back else 'Added to'} the note {path.stem} ({name_in_box(name)}): {'; '.join(lines)}"
    return Reply({"path": name_in_box(name).replace("box/", "box://", 1)}, said)


def name_in_box(name: str) -> str:
    return f"box/{name.removeprefix('box://').removeprefix('box/')}"
