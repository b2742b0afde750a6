"""Builds what decides in place of tiny and small models: the router with its languages, the finder of sentences, the guide."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock

from appliance.agent.work_guide import WorkGuide
from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.knowledge.entries import Entries
from appliance.knowledge.evidence import Finder
from appliance.knowledge.search import Search
from appliance.models.client import Models
from appliance.prompt.routing.languages import Languages
from appliance.prompt.routing.router import Router
from appliance.work import timezones

EMBED_S = 5.0  # for sentences that an answer waits for; words must do when it takes longer
KEPT = 1000  # vectors: of examples, and of sentences that are asked about again


class Vectors:
    """Vectors of short texts, those asked for last kept; none at all where there is no model for them."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._guard = Lock()
        self._kept: OrderedDict[str, Sequence[float]] = OrderedDict()

    def of(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, or none for any."""
        with self._guard:
            missing = [text for text in dict.fromkeys(texts) if text not in self._kept]
        try:
            made = self._models.embed(missing, deadline_s=EMBED_S) if missing else []
        except OwlError:
            return ()
        with self._guard:
            self._kept.update(zip(missing, made))
            found = [self._kept[text] for text in texts if text in self._kept]
            for text in texts:
                if text in self._kept:
                    self._kept.move_to_end(text)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found if len(found) == len(texts) else ()


def guide(home: Path, search: Search, entries: Entries, models: Models, zone: Callable[[], str]) -> WorkGuide:
    """The guide of a home; `zone` names the time zone of the box."""
    languages, vectors = Languages(home), Vectors(models)

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return vectors.of(texts) if search.has_vectors() else ()

    finder = Finder(search, entries, embed, languages.function_words(), languages.pointing_words(), languages.alike_words)
    return WorkGuide(
        Router(languages, embed), finder, entries, lambda: datetime.fromtimestamp(now_ms() / 1000, timezones.find(zone()))
    )
