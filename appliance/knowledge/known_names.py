"""The names of people that the assistant has met, as they stand in texts: of people documents in `box/`, and of senders.

Search prefers what a named person said and embeds a question without names. Reads only. Not promised: everybody's
name. What does not look like one, such as a number or the account of a service, is left out.
"""

import re
from collections.abc import Iterable

from appliance.knowledge.entries import PROJECT
from appliance.language.languages import all_words
from appliance.store.database import Store

FOLDERS = ("box://users/", "box://people/", "box://notes/people/")
AFTER_SLASH = "0"  # sorts after whatever lies in a folder
MOST = 1000
PARTS = 3  # words of a name at most


class KnownNames:
    """The people and things that the assistant knows by name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """Full names and first names, each once."""
        found = [name for known in (*self._documented_people(), *self._list_senders()) if (name := spoken(known))]
        return list(dict.fromkeys(part for name in found for part in (name, name.split()[0])))

    def _documented_people(self) -> Iterable[str]:
        """People that have a folder or a document of their own: its title when that is a name, else what it is called."""
        for folder in FOLDERS:
            rows = self._store.rows(
                "SELECT path, title FROM entries WHERE scope = ? AND path >= ? AND path < ? LIMIT ?",
                (PROJECT, folder, folder[:-1] + AFTER_SLASH, MOST),
            )
            for path, title in rows:
                name, _, below = str(path)[len(folder) :].partition("/")
                yield name.removesuffix(".md") if below or not spoken(str(title)) else str(title)

    def _list_senders(self) -> Iterable[str]:
        rows = self._store.rows("SELECT person FROM sessions UNION SELECT sender_id FROM sessions LIMIT ?", (MOST,))
        return (str(row[0]) for row in rows)


def spoken(known: str) -> str:
    """A name as it stands in a text, for an address, an account or a title: `Ada Lovelace`, `Ada`; "" when it is none."""
    text = re.split(r"[@:]", known.strip().removeprefix("@"))[0]
    words = re.split(r"[\s._+-]+", text.strip())
    if not 1 <= len(words) <= PARTS or not all(len(word) > 1 and word.isalpha() for word in words):
        return ""
    return "" if words[0].lower() in all_words("accounts") else " ".join(word[0].upper() + word[1:] for word in words)
