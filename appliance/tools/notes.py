"""The tool that writes a note as a file of the person's folder: write_note."""

from typing import Annotated

from appliance.agent.toolbox import Caller, tool
from appliance.ingest.own_documents import NOTES, Documents
from appliance.runtime.signatures import Range

TITLE_WORDS = 6


@tool(group="notes", command="note", menu=())
def write_note(
    text: Annotated[str, Range(1, 20_000), "what the note says, in Markdown"],
    title: Annotated[str, Range(0, 100), "what it is called; empty for its first words"] = "",
    *,
    documents: Documents,
    caller: Caller,
) -> str:
    """Write a new note into the person's folder."""
    words = text.split()
    title = title.strip() or " ".join(words[:TITLE_WORDS]).strip(" .,:;") or "Note"
    path = documents.add_note(title[:1].upper() + title[1:], text, caller.run)
    return f"Wrote the note {path.stem} (box/{NOTES}/{path.name})"
