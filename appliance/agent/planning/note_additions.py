"""Additions to notes that a person asks for: which note is meant, and what is put behind it.

A note is meant when its title holds every word that names it, and no other note's does as well; several, or one that only comes
near, are asked back. A list gets an item for each thing, any other note one paragraph. Where there is no such note, things for a
list become tasks, and for the rest it is asked whether to write one. Knows nothing about files: `append_note` changes them.
"""

import re
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from appliance.agent.planning.plans import Do, Plan, Say, answer_of, tool_call
from appliance.ingest import note_lines
from appliance.knowledge import word_forms
from appliance.knowledge.entries import Entries
from appliance.prompt.routing import items
from appliance.prompt.routing.languages import Language, words_in
from appliance.prompt.routing.note_titles import bare_title, names_list, without_compound, without_link
from appliance.prompt.routing.router import Intent
from appliance.text import markdown

BOX = "box://"
NO_NOTES = re.compile(r"^box://(?:roles|skills)/|^box://(?:[^/]+/)*(?:[A-Z]{3,}|SKILL)\.md$")
MOST_NOTES = 5000  # that are looked through
MOST_SHOWN = 8
LEAST_NEAR = 0.5  # of the words that name a note, for one to be asked about
COMPOUND = 4  # letters of a word that may be part of a compound


class Note(Struct, frozen=True):
    """A note that may be meant."""

    ref: str
    title: str


class Additions:
    """Makes the plans; `ignored` are words that name nothing."""

    def __init__(self, entries: Entries, ignored: Collection[str]) -> None:
        self._entries = entries
        self._ignored = ignored

    def append(self, intent: Intent, otherwise: Callable[[], Plan | None]) -> Plan | None:
        """What is asked for is put behind the note that is meant; `otherwise` where there is none and it is for a list."""
        text, title = intent.parts["items"], bare_title(intent.parts["title"], intent.language)
        sure, near = self._named(intent.parts["title"], intent.language)
        if len(sure) == 1:
            return self.add_to(sure[0], text, intent)
        if sure or near:
            lines = [f"- {one.title}" for one in (sure or near)[:MOST_SHOWN]]
            return Say("\n".join([intent.language.say("which"), *lines]))
        if names_list(intent.parts["title"], intent.language) and (plan := otherwise()) is not None:
            return plan
        return Say(intent.language.say("sure_titled_note", title=title[:1].upper() + title[1:], body=text))

    def append_perhaps(self, intent: Intent) -> Plan | None:
        """The same for what may be no note at all, "the altos": done where it is the very title of a list, else asked or left."""
        title = bare_title(intent.parts["title"], intent.language)
        sure, _ = self._named(intent.parts["title"], intent.language)
        if len(sure) != 1:
            return None
        if self.is_list(sure[0]) and len(words_in(title)) >= len(words_in(sure[0].title)):
            return self.add_to(sure[0], intent.parts["items"], intent)
        return Say(intent.language.say("sure_append", items=intent.parts["items"], title=sure[0].title))

    def add_to(self, note: Note, text: str, intent: Intent) -> Plan:
        """One call that adds a text to a note, as items where it is a list."""
        text = without_link(text, intent.language)
        is_quoted = re.search(rf"[\"'“„«‘]\s*{re.escape(text)}\s*[\"'”“»’]", intent.text) is not None
        lines = items.listed(text, intent.language) if self.is_list(note) and not is_quoted else [text.strip(' ,;"“”„«»')]
        call = tool_call("append_note", name=note.ref.removeprefix(BOX), text="\n".join(lines))
        return Do(call, lambda outcome: answer_of(outcome, intent))

    def read_list(self, title: str, language: Language) -> str:
        """What stands in the list that is called so, "" where there is none or several."""
        sure, _ = self._named(title, language)
        entry = self._entries.find(sure[0].ref) if len(sure) == 1 else None
        if entry is None or not note_lines.is_list(entry.body):
            return ""
        body = re.sub(r"\A\s*# .*\n+", "", markdown.split(entry.body)[1]).strip()
        return f"{body}\n[{entry.path}]" if body else ""

    def is_list(self, note: Note) -> bool:
        """Whether a note ends in a list."""
        entry = self._entries.find(note.ref)
        return entry is not None and note_lines.is_list(entry.body)

    def note_of_file(self, name: str) -> Note | None:
        """The note of a file, `notes/garden.md`."""
        entry = self._entries.find(f"{BOX}{name}")
        return None if entry is None else Note(entry.path, entry.title)

    def _named(self, said: str, language: Language) -> tuple[list[Note], list[Note]]:
        """The notes whose titles hold every word, those named most closely alone; and where there is none, those that come near."""
        title = bare_title(said, language)
        notes = [
            Note(line.ref, line.title)
            for line in self._entries.list_lines(BOX, limit=MOST_NOTES)
            if line.ref.endswith(".md") and not NO_NOTES.search(line.ref)
        ]
        if same := [one for one in notes if _plain(one.title) in (_plain(said), _plain(title))]:
            return same, same
        near: list[Note] = []
        for text in dict.fromkeys((title, without_compound(title, language))):
            full, some = self._scored(text, notes)
            if full:
                return full, full
            near = near or some
        return [], near

    def _scored(self, title: str, notes: Sequence[Note]) -> tuple[list[Note], list[Note]]:
        words = word_forms.content_words(title, self._ignored) or word_forms.content_words(title, ())
        if not words:
            return [], []
        full, some = [], []
        for note in notes:
            name = f"{note.title} {note.ref.rpartition('/')[2].removesuffix('.md').replace('-', ' ')}"
            share = sum(_has(word_forms.stem(word), name) for word in words) / len(words)
            if share == 1:
                written = word_forms.content_words(name, ())
                more = len(word_forms.content_words(note.title, self._ignored)) - len(words)
                full.append(((sum(word not in written for word in words), abs(more)), note))
            if share >= LEAST_NEAR:
                some.append(note)
        least = min((place for place, _ in full), default=(0, 0))
        return [note for place, note in full if place == least], some


def _has(stem: str, name: str) -> bool:
    """Whether a name has a word of this stem, as a part of a compound as well."""
    if word_forms.has_stem(stem, name):
        return True
    return len(stem) >= COMPOUND and any(stem in word_forms.strip_accents(word) for word in words_in(name))


def _plain(text: str) -> str:
    return " ".join(word_forms.content_words(text, ()))
