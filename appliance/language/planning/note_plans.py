"""Notes as wholes, as plans: which there are, what one says, what is put behind it, and the names that its first lines give.

Several notes that may be meant, or one that only comes near, are asked back. A list gets an item for each thing, any other note one
paragraph. Where there is no such note, things for a list become tasks, and for the rest it is asked whether to write one. Knows
nothing about files: `append_note` changes them.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime

from appliance.language import items, word_forms
from appliance.language.evidence import Finder
from appliance.language.languages import Language, words_in
from appliance.language.named_notes import BOX, NamedNotes, bare_title, names_list, without_link
from appliance.language.planning.plans import Do, Plan, Say, Scene, answer_of, ask_back, ask_which, tool_call
from appliance.language.planning.results import do
from appliance.language.ports import Notes
from appliance.language.router import Intent
from appliance.language.times import dates
from appliance.records import ThreadState
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
            return ask_which(intent, {line.title: f"- {line.title} [{line.ref}]" for line in found[:MOST_ASKED]})
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
            return ask_which(intent, {path: f"- {path}" for path in found[:MOST_ASKED]})
        return Do(tool_call("message", file=found[0]), lambda outcome: answer_of(outcome, intent)) if found else None

    def read_note(self, scene: Scene, intent: Intent) -> Plan | None:
        """What the note says that is named; None when none is named so, a question back when several are."""
        found, _ = self._notes.named(intent.parts["query"], intent.language)
        if len(found) > 1:
            return ask_which(intent, {line.title: f"- {line.title} [{line.ref}]" for line in found[:MOST_ASKED]})
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
        days = [one for one in shown if one is not None]
        refs = tuple(ref for one in days for ref in one.quoted)
        return Say("\n\n".join(one.text for one in days), state=ThreadState(quoted=refs)) if meant else None

    def _show(self, ref: str, language: Language) -> Say | None:
        entry = self._entries.find(ref)
        if entry is None:
            return None
        fields, body = markdown.fields(entry.body)
        text = "\n\n".join(filter(None, ("\n".join(fields), markdown.visible(body))))
        if len(text) > SHOWN_CHARS:
            cut = text.rfind("\n", 0, SHOWN_CHARS)
            text = f"{text[: cut if cut > 0 else SHOWN_CHARS].rstrip()}\n…\n{language.say('rest_of_note', ref=ref)}"
        return Say(f"{text}\n\n[{ref}]", state=ThreadState(quoted=(ref,), said=text))


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
            return self.add_to(sure[0].ref, text, intent)
        if sure or near:
            return ask_which(intent, {one.title: f"- {one.title}" for one in (sure or near)[:MOST_SHOWN]})
        if names_list(intent.parts["title"], intent.language) and (plan := otherwise()) is not None:
            return plan
        return ask_back(intent.language, "sure_titled_note", title=title[:1].upper() + title[1:], body=text)

    def append_perhaps(self, intent: Intent) -> Plan | None:
        """The same for what may be no note at all, "the altos": done where it is the very title of a list, else asked or left."""
        title = bare_title(intent.parts["title"], intent.language)
        sure, _ = self._notes.named(intent.parts["title"], intent.language)
        if len(sure) != 1:
            return None
        if self._is_list(sure[0].ref) and len(words_in(title)) >= len(words_in(sure[0].title)):
            return self.add_to(sure[0].ref, intent.parts["items"], intent)
        return ask_back(intent.language, "sure_append", items=intent.parts["items"], title=sure[0].title)

    def add_to(self, ref: str, text: str, intent: Intent) -> Plan:
        """One call that adds a text to a note, as items where it is a list."""
        text = without_link(text, intent.language)
        is_quoted = re.search(rf"[\"'“„«‘]\s*{re.escape(text)}\s*[\"'”“»’]", intent.text) is not None
        lines = items.listed(text, intent.language) if self._is_list(ref) and not is_quoted else [text.strip(' ,;"“”„«»')]
        call = tool_call("append_note", name=ref.removeprefix(BOX), text="\n".join(lines))
        return do(call, intent)

    def read_list(self, title: str, language: Language) -> Say | None:
        """What stands in the list that is called so or has this reference, None where there is none or several."""
        sure = [] if "://" in title else [one.ref for one in self._notes.named(title, language)[0]]
        entry = self._entries.find(sure[0] if len(sure) == 1 else title) if len(sure) < 2 else None
        if entry is None or ("://" not in title and not items.is_list(entry.body)):
            return None
        body = re.sub(r"\A\s*# .*\n+", "", markdown.fields(entry.body)[1]).strip()
        return Say(f"{body}\n[{entry.path}]", state=ThreadState(quoted=(entry.path,), said=body)) if body else None

    def is_there(self, ref: str) -> bool:
        """Whether there still is a note of this reference, `box://notes/garden.md`."""
        return self._entries.find(ref) is not None

    def _is_list(self, ref: str) -> bool:
        """Whether a note ends in a list."""
        entry = self._entries.find(ref)
        return entry is not None and items.is_list(entry.body)


PRODUCT = "Owlbox"
PERSON_LINE, ASSISTANT_LINE = "- To be called: ", "- Your name: "  # of the documents that the first start writes


def say_person(entries: Notes, intent: Intent) -> Say | None:
    """What the person is called; None where they never said so."""
    name = _line(entries, "USER", PERSON_LINE)
    return Say(intent.language.say("my_name", name=name)) if name else None


def say_assistant(entries: Notes, intent: Intent) -> Say:
    """Who the assistant is, by its name."""
    name = _line(entries, "IDENTITY", ASSISTANT_LINE)
    return Say(intent.language.say("who", name=name or PRODUCT))


def _line(entries: Notes, document: str, beginning: str) -> str:
    """What a document of the box says behind the beginning of one of its lines."""
    entry = entries.find(f"box://{document}.md")
    lines = entry.body.splitlines() if entry is not None else []
    return next((line.removeprefix(beginning).strip(" .") for line in lines if line.startswith(beginning)), "")
