"""Notes as wholes, as plans: which there are, and what one says that is asked for by its name."""

from collections.abc import Callable, Sequence
from datetime import datetime

from appliance.language import word_forms
from appliance.language.evidence import Finder
from appliance.language.languages import Language
from appliance.language.planning.named_notes import BOX, NamedNotes
from appliance.language.planning.plans import Do, Plan, Say, Scene, answer_of, ask_which, tool_call
from appliance.language.ports import Notes
from appliance.language.router import Intent
from appliance.language.times import dates
from appliance.text import markdown

MOST_LISTED = 20
MOST_ASKED = 8  # of which one may be meant
SHOWN_CHARS = 1500  # of a note

MOST_UNREAD = 3  # files named that could not be read
Names = Callable[[], Sequence[str]]  # of files
Files = Callable[[], Sequence[tuple[str, str]]]  # path and title of files


class NotePlans:
    """Makes them."""

    def __init__(self, entries: Notes, notes: NamedNotes, finder: Finder, unread: Names, files: Files) -> None:
        """`unread` names the files that could not be read, `files` those that may be sent."""
        self._unread = unread
        self._entries = entries
        self._notes = notes
        self._finder = finder
        self._files = files

    def describe_unread(self, language: Language) -> str:
        """Which files of the folder could not be read, "" for none."""
        names = self._unread()
        listed = ", ".join(names[:MOST_UNREAD]) + (", …" if len(names) > MOST_UNREAD else "")
        return language.say("unread", count=str(len(names)), names=listed) if names else ""

    def list_notes(self, scene: Scene, intent: Intent) -> Plan:
        """The notes that there are, the newest first."""
        notes = sorted(self._notes.all(), key=lambda line: -line.updated_ms)
        if not notes:
            return Say(intent.language.say("no_notes"))
        lines = [f"- {line.title or line.ref} [{line.ref}]" for line in notes[:MOST_LISTED]]
        if len(notes) > MOST_LISTED:
            lines.append(intent.language.say("more_notes", number=str(len(notes) - MOST_LISTED)))
        return Say("\n".join([intent.language.say("all_notes", number=str(len(notes))), *lines]))

    def keep_note(self, scene: Scene, intent: Intent) -> Plan | None:
        """A note that is to be deleted is a file of the person, which no words remove: it is named; None where there is none."""
        found, _ = self._notes.named(intent.parts["title"], intent.language)
        if len(found) > 1:
            return ask_which(intent, [f"- {line.title} [{line.ref}]" for line in found[:MOST_ASKED]])
        return Say(intent.language.say("note_stays", file=found[0].ref.replace("://", "/"))) if found else None

    def send_file(self, intent: Intent) -> Plan | None:
        """Send the file that is named, or that alone says all that names it; None for none, a question back for several."""
        query, files = intent.parts["query"], self._files()
        found = self._notes.files(query, intent.language, files)
        if not found:
            calling = intent.language.words["files"] | intent.language.words["notes"]
            about = " ".join(word for word in query.split() if word.lower() not in calling)
            told = {one.ref.removeprefix(BOX) for one in self._finder.find_evidence(about).best if one.coverage >= 1}
            found = [path for path, _ in files if path in told]
        if len(found) > 1:
            return ask_which(intent, [f"- {path}" for path in found[:MOST_ASKED]])
        return Do(tool_call("message", file=found[0]), lambda outcome: answer_of(outcome, intent)) if found else None

    def read_note(self, scene: Scene, intent: Intent) -> Plan | None:
        """What the note says that is named; None when none is named so, a question back when several are."""
        found, _ = self._notes.named(intent.parts["query"], intent.language)
        if len(found) > 1:
            return ask_which(intent, [f"- {line.title} [{line.ref}]" for line in found[:MOST_ASKED]])
        return self._show(found[0].ref, intent.language) if found else None

    def read_day(self, question: str, language: Language, now: datetime) -> Say | None:
        """What the notes of a day say, "what did I do on 3 November?"; None where more is asked, or no note is called by the day.

        Of a day without its year the last one is meant, where none has come yet the next.
        """
        day = dates.day_in(question, language, now)
        if day is None or set(word_forms.content_words(day.rest, self._finder.ignored)) - language.words["diary"]:
            return None
        named = [(found[0], note.ref) for note in self._notes.all() if (found := day.pattern.search(f"{note.title} {note.ref}"))]
        today = f"{now:%Y-%m-%d}"
        meant = max((one for one, _ in named if one <= today), default=min((one for one, _ in named), default=""))
        shown = [self._show(ref, language) for one, ref in sorted(named) if one == meant]
        return Say("\n\n".join(one.text for one in shown if one is not None)) if meant else None

    def _show(self, ref: str, language: Language) -> Say | None:
        entry = self._entries.find(ref)
        if entry is None:
            return None
        fields, body = markdown.fields(entry.body)
        text = "\n\n".join(filter(None, ("\n".join(fields), markdown.visible(body))))
        if len(text) > SHOWN_CHARS:
            cut = text.rfind("\n", 0, SHOWN_CHARS)
            text = f"{text[: cut if cut > 0 else SHOWN_CHARS].rstrip()}\n…\n{language.say('rest_of_note', ref=ref)}"
        return Say(f"{text}\n\n[{ref}]")
