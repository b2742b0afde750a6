"""Additions to notes that a person asks for: what is put behind the note that is meant.

Several notes that may be meant, or one that only comes near, are asked back. A list gets an item for each thing, any other note one
paragraph. Where there is no such note, things for a list become tasks, and for the rest it is asked whether to write one. Knows
nothing about files: `append_note` changes them.
"""

import re
from collections.abc import Callable

from appliance.language import items
from appliance.language.languages import Language, words_in
from appliance.language.note_titles import bare_title, names_list, without_link
from appliance.language.planning import list_ends
from appliance.language.planning.named_notes import BOX, NamedNotes, Note
from appliance.language.planning.plans import Do, Plan, answer_of, ask_back, ask_which, tool_call
from appliance.language.ports import Notes
from appliance.language.router import Intent
from appliance.text import markdown

MOST_SHOWN = 8


class Additions:
    """Makes the plans."""

    def __init__(self, entries: Notes, notes: NamedNotes) -> None:
        self._entries = entries
        self._notes = notes

    def append(self, intent: Intent, otherwise: Callable[[], Plan | None]) -> Plan | None:
        """What is asked for is put behind the note that is meant; `otherwise` where there is none and it is for a list."""
        text, title = intent.parts["items"], bare_title(intent.parts["title"], intent.language)
        sure, near = self._notes.named(intent.parts["title"], intent.language)
        if len(sure) == 1:
            return self.add_to(sure[0], text, intent)
        if sure or near:
            lines = [f"- {one.title}" for one in (sure or near)[:MOST_SHOWN]]
            return ask_which(intent, lines)
        if names_list(intent.parts["title"], intent.language) and (plan := otherwise()) is not None:
            return plan
        return ask_back(intent.language, "sure_titled_note", title=title[:1].upper() + title[1:], body=text)

    def append_perhaps(self, intent: Intent) -> Plan | None:
        """The same for what may be no note at all, "the altos": done where it is the very title of a list, else asked or left."""
        title = bare_title(intent.parts["title"], intent.language)
        sure, _ = self._notes.named(intent.parts["title"], intent.language)
        if len(sure) != 1:
            return None
        if self.is_list(sure[0]) and len(words_in(title)) >= len(words_in(sure[0].title)):
            return self.add_to(sure[0], intent.parts["items"], intent)
        return ask_back(intent.language, "sure_append", items=intent.parts["items"], title=sure[0].title)

    def add_to(self, note: Note, text: str, intent: Intent) -> Plan:
        """One call that adds a text to a note, as items where it is a list."""
        text = without_link(text, intent.language)
        is_quoted = re.search(rf"[\"'“„«‘]\s*{re.escape(text)}\s*[\"'”“»’]", intent.text) is not None
        lines = items.listed(text, intent.language) if self.is_list(note) and not is_quoted else [text.strip(' ,;"“”„«»')]
        call = tool_call("append_note", name=note.ref.removeprefix(BOX), text="\n".join(lines))
        return Do(call, lambda outcome: answer_of(outcome, intent))

    def read_list(self, title: str, language: Language) -> str:
        """What stands in the list that is called so, "" where there is none or several."""
        sure, _ = self._notes.named(title, language)
        entry = self._entries.find(sure[0].ref) if len(sure) == 1 else None
        if entry is None or not list_ends.is_list(entry.body):
            return ""
        body = re.sub(r"\A\s*# .*\n+", "", markdown.fields(entry.body)[1]).strip()
        return f"{body}\n[{entry.path}]" if body else ""

    def is_list(self, note: Note) -> bool:
        """Whether a note ends in a list."""
        entry = self._entries.find(note.ref)
        return entry is not None and list_ends.is_list(entry.body)

    def note_of_file(self, name: str) -> Note | None:
        """The note of a file, `notes/garden.md`."""
        entry = self._entries.find(f"{BOX}{name}")
        return None if entry is None else Note(entry.path, entry.title)
