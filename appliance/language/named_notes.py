"""The notes that there are, and which of them a person names: "the garden note", "my note about the car", "Einkaufsliste".

A note is meant when its title or file holds every word that names it, and no other note's is as close. Reads entries, changes none.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

from appliance.language import word_forms
from appliance.language.languages import Language, strip_accents, words_in
from appliance.language.ports import ListedNote, Notes

LEAST_BEFORE = 4  # letters of a word that a compound begins with: "Garten" in "Gartennotiz"
EDGE = " .,:!?\"'“”„«»"


def names_list(title: str, language: Language) -> bool:
    """Whether a person called it a list."""
    return any(word.endswith(one) for word in words_in(title) for one in language.words["lists"])


def says_note(title: str, language: Language) -> bool:
    """Whether a person called it a note or a list."""
    return any(word.endswith(one) for word in words_in(title) for one in (*language.words["lists"], *language.words["notes"]))


def bare_title(title: str, language: Language) -> str:
    """What a note is called, without "note about the" and "list"."""
    kept: list[str] = []
    generic = language.words["notes"] | language.words["lists"] | language.words["about"] | language.words["definite"]
    for word in title.strip(EDGE).split():
        plain = word.lower().strip(EDGE)
        if not kept and plain in generic:
            continue
        kept.append(word)
    while len(kept) > 1 and kept[-1].lower().strip(EDGE) in generic:
        kept.pop()
    text = " ".join(kept) or title
    return language.expression("elision").sub("", text).strip(EDGE)


def without_compound(title: str, language: Language) -> str:
    """A title without "list" or "note" at the end of its last word: "Garten" of "Gartennotiz"."""
    for end in language.words["lists"] | language.words["notes"]:
        if title.lower().endswith(end) and len(title) >= len(end) + LEAST_BEFORE and title[-len(end) - 1].isalpha():
            return title[: -len(end)].rstrip("s-")
    return title


def without_link(text: str, language: Language) -> str:
    """What is to be added without the "that" before it."""
    first, _, rest = text.strip().partition(" ")
    return rest if rest and first.lower() in language.words["that"] else text


def is_meant(title: str, language: Language) -> bool:
    """Whether these words name one note or list, rather than the list of tasks or none at all."""
    if ":" in title:
        return False
    words = set(words_in(title)) - language.words["notes"] - language.words["lists"] - language.words["definite"]
    if not words - language.words["about"] - language.words["common"]:
        return False  # "the list"
    is_of_tasks = words & language.words["tasks"] or any(name in title.lower() for name in language.words["tasks"] if "-" in name)
    return says_note(title, language) and not is_of_tasks


BOX = "box://"
# The home's own documents are no notes: those of roles, skills and people, and the prompts, with names in capitals.
NO_NOTES = re.compile(r"^box://(?:roles|skills|users|groups)/|^box://(?:[^/]+/)*(?:[A-Z]{3,}|SKILL)\.md$")
SIGNS = re.compile(r"[\W_]+")  # between the words of a path
MOST_NOTES = 5000  # that are looked through
LEAST_NEAR = 0.5  # of the words that name a note, for one to be asked about
COMPOUND = 4  # letters of a word that may be part of a compound


class NamedNotes:
    """Finds them; `ignored` are words that name nothing."""

    def __init__(self, entries: Notes, ignored: Collection[str]) -> None:
        self._entries = entries
        self._ignored = ignored

    def all(self) -> list[ListedNote]:
        """All notes, by their references."""
        lines = self._entries.list_lines(BOX, limit=MOST_NOTES)
        return [line for line in lines if line.ref.endswith(".md") and not NO_NOTES.search(line.ref)]

    def named(self, said: str, language: Language) -> tuple[list[ListedNote], list[ListedNote]]:
        """The notes whose titles hold every word, those named most closely alone; and where there is none, those that come near."""
        title = bare_title(said, language)
        notes = self.all()
        if same := [one for one in notes if _plain(one.title) in (_plain(said), _plain(title))]:
            return same, same
        near: list[ListedNote] = []
        for text in dict.fromkeys((title, without_compound(title, language))):
            full, some = self._scored(text, notes)
            if full:
                return full, full
            near = near or some
        return [], near

    def files(self, said: str, language: Language, files: Sequence[tuple[str, str]]) -> list[str]:
        """The paths of files whose name, folder or title holds every word; the one alone that is called just so.

        What only says that it is a file ("manual", "photo") may be missing in its name.
        """
        listed = [(path, f"{title} {SIGNS.sub(' ', path)}") for path, title in files if not NO_NOTES.search(BOX + path)]
        if said in dict(listed):
            return [said]
        words = word_forms.content_words(said, self._ignored) or word_forms.content_words(said, ())
        for these in (words, [word for word in words if word not in language.words["files"]]):
            found = [path for path, name in listed if these and all(_names(word, name) for word in these)]
            if found:
                same = [path for path in found if _plain(SIGNS.sub(" ", PurePosixPath(path).stem)) == " ".join(these)]
                return same if len(same) == 1 else found
        return []

    def _scored(self, title: str, notes: Sequence[ListedNote]) -> tuple[list[ListedNote], list[ListedNote]]:
        words = word_forms.content_words(title, self._ignored) or word_forms.content_words(title, ())
        if not words:
            return [], []
        full, some = [], []
        for note in notes:
            name = f"{note.title} {note.ref.rpartition('/')[2].removesuffix('.md').replace('-', ' ').replace('_', ' ')}"
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
    return len(stem) >= COMPOUND and any(stem in strip_accents(word) for word in words_in(name))


def _names(word: str, name: str) -> bool:
    """Whether a name has a word, or the words of a compound."""
    return _has(word_forms.stem(word), name) or word_forms.is_compound(word, name)


def _plain(text: str) -> str:
    return " ".join(word_forms.content_words(text, ()))
