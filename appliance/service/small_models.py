"""Builds what decides in place of tiny and small models: the router with its languages, the finder of sentences, the guide."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.ingest.notes import Folder
from appliance.knowledge.entries import Entries
from appliance.knowledge.search import Search
from appliance.language.evidence import Finder
from appliance.language.languages import Languages
from appliance.language.router import Router
from appliance.language.times import timezones
from appliance.language.work_planner import WorkPlanner
from appliance.models.client import Models

EMBED_S = 5.0  # for sentences that an answer waits for; words must do when it takes longer


def guide(home: Path, search: Search, entries: Entries, models: Models, zone: Callable[[], str], folder: Folder) -> WorkPlanner:
    """The guide of a home; `zone` names the time zone of the box, `folder` knows its files and what could not be read."""
    languages = Languages(home)

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, or none for any."""
        try:
            return models.embed(texts, deadline_s=EMBED_S).vectors if search.has_vectors() else ()
        except OwlError:
            return ()

    finder = Finder(search, entries, embed, languages.function_words(), languages.pointing_words(), languages.alike_words)
    now = lambda: datetime.fromtimestamp(now_ms() / 1000, timezones.find(zone()))  # noqa: E731
    return WorkPlanner(Router(languages, embed), finder, entries, now, lambda: folder.unread, folder.list_files)
