"""Notes as wholes, as plans: which there are, and what one says that is asked for by its name."""

from collections.abc import Collection

from appliance.agent.planning.plans import Plan, Say, Scene
from appliance.errors import BadInput
from appliance.knowledge import word_forms
from appliance.knowledge.entries import Entries, Line
from appliance.prompt.routing.router import Intent
from appliance.text import markdown

FOLDER = "box://"
NO_NOTES = ("roles/", "skills/", "users/", "groups/")  # folders of the home's own documents; those beside them are no notes
MOST_LISTED = 20
MOST_NOTES = 5000
SHOWN_CHARS = 1500  # of a note


class NotePlans:
    """Makes them; `ignored` are words that name nothing."""

    def __init__(self, entries: Entries, ignored: Collection[str]) -> None:
        self._entries = entries
        self._ignored = ignored

    def list_notes(self, scene: Scene, intent: Intent) -> Plan:
        """The notes that there are, the newest first."""
        notes = sorted(self._notes(), key=lambda line: -line.updated_ms)
        if not notes:
            return Say(intent.language.say("no_notes"))
        lines = [f"- {line.title or line.ref} [{line.ref}]" for line in notes[:MOST_LISTED]]
        if len(notes) > MOST_LISTED:
            lines.append(intent.language.say("more_notes", number=str(len(notes) - MOST_LISTED)))
        return Say("\n".join([intent.language.say("all_notes", number=str(len(notes))), *lines]))

    def read_note(self, scene: Scene, intent: Intent) -> Plan | None:
        """What the note says that is named; None when none is named so, a question back when several are."""
        found = self.find_named(intent.parts["query"])
        if not found:
            return None
        if len(found) > 1:
            return Say("\n".join([intent.language.say("which"), *(f"- {line.title} [{line.ref}]" for line in found[:8])]))
        entry = self._entries.find(found[0].ref)
        if entry is None:
            return None
        try:
            text = markdown.visible(markdown.split(entry.body)[1])
        except BadInput:
            text = entry.body.strip()
        if len(text) > SHOWN_CHARS:
            cut = text.rfind("\n", 0, SHOWN_CHARS)
            text = f"{text[: cut if cut > 0 else SHOWN_CHARS].rstrip()}\n…\n{intent.language.say('rest_of_note', ref=found[0].ref)}"
        return Say(f"{text}\n\n[{found[0].ref}]")

    def find_named(self, name: str) -> list[Line]:
        """The notes whose title or file holds every word of a name; of several those with the fewest words beside it."""
        words = [word_forms.stem(word) for word in word_forms.content_words(name, self._ignored)]
        if not words:
            return []
        found: dict[int, list[Line]] = {}
        for line in self._notes():
            file = line.ref.rsplit("/", 1)[-1].removesuffix(".md").replace("-", " ").replace("_", " ")
            for called in (line.title, file):
                if called and all(word_forms.has_stem(word, called) for word in words):
                    beside = len(word_forms.content_words(called, self._ignored)) - len(words)
                    found.setdefault(max(0, beside), []).append(line)
                    break
        return found[min(found)] if found else []

    def _notes(self) -> list[Line]:
        lines = self._entries.list_lines(FOLDER, limit=MOST_NOTES)
        return [
            line
            for line in lines
            if "/" in line.ref.removeprefix(FOLDER) and not line.ref.removeprefix(FOLDER).startswith(NO_NOTES)
        ]
