"""Titles: a chat's name in a few words, thought up by the small pool while nobody waits for it.

A chat is called by its first words until the first answer has been given; then the small pool is asked, in the
background, so that no answer is later for it and every answer goes first. A title that is no use, or a model that
fails, leaves the first words; so does a person who has named the chat meanwhile. Knows nothing about doors.
"""

import glob
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from appliance.clock import CancelToken
from appliance.errors import OwlError
from appliance.models import failover
from appliance.records import Ask, Finish, Message, Model, Part, Route
from appliance.sessions.runs import Runs

LOG = logging.getLogger(__name__)
Way = Literal["auto", "model", "words"]
POOL = "small"
LOCAL = ("llama", "scripted")  # providers whose models are files of this box
MOST_WORDS, LEAST_WORDS, MOST_CHARS = 8, 2, 80
PROMPT_CHARS = 1000
# Of a local model's file. Of eight titles by the bundled model (145 MB) none was usable (2026-11-22).
LEAST_BYTES = 250_000_000
ASKED = (
    "Write a title of 5 to 8 words for a conversation that begins with the message below. "
    "Use the language of the message. Answer with the title alone."
)
BEFORE = re.compile(r"^(?:title|titel|titre|título)\s*:\s*", re.IGNORECASE)


class Titles:
    """Names chats, one at a time."""

    def __init__(self, runs: Runs, model: Model, way: Callable[[], Way], is_able: Callable[[Route], bool]) -> None:
        self._runs = runs
        self._model = model
        self._way = way
        self._is_able = is_able
        self._cancel = CancelToken()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="titles")

    def ended(self, run: str) -> bool:
        """A loop of a chat has ended: have the chat named soon if it was its first; False when it is not to be."""
        found = self._runs.get(run)
        is_first = self._runs.moment(run)[0] == 1
        if self._cancel.is_set() or self._way() == "words" or found.kind != "chat" or not is_first or found.parent is not None:
            return False
        self._thread.submit(self._set_title, found.id, found.title)
        return True

    def close(self) -> None:
        """Name no more chats, and give up the one that is being named."""
        self._cancel.set()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _set_title(self, run: str, default: str) -> None:
        try:
            if title := self._ask_title(run):
                self._runs.entitle(run, title, instead_of=default)
        except OwlError as error:
            LOG.info("a chat keeps its first words as its title: %s", error, extra={"run": run})

    def _ask_title(self, run: str) -> str:
        first = self._runs.events(run, roles=("user",), limit=1)
        routes = self._model.plan(POOL)
        route = routes[0]
        if not first or not (self._way() == "model" or self._is_able(route)):
            return ""
        message = Message("user", f"{ASKED}\n\n{first[0].content[:PROMPT_CHARS]}")
        ask = Ask(
            system=(Part("instructions", "You name conversations."),),
            messages=(message,),
            dialect=route.dialect,
            slot=f"title:{run}",
            purpose="title",
            is_background=True,
            max_tokens=32,
        )
        text = ""
        for piece in failover.generate(self._model, routes, ask, self._cancel):
            if not isinstance(piece, Finish) and not piece.is_reasoning:
                text += piece.text
        return tidy(text)


def is_able(route: Route, folder: Path) -> bool:
    """Whether a route's model is worth asking: any remote one, and a local one of more than `LEAST_BYTES`."""
    if route.provider not in LOCAL:
        return True
    try:
        return max((path.stat().st_size for path in folder.glob(f"{glob.escape(route.model)}*.gguf")), default=0) > LEAST_BYTES
    except OSError:
        return False


def tidy(said: str) -> str:
    """A model's answer as a title of at most eight words; "" when it is none."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    first = "".join(char if char.isprintable() else " " for char in lines[0]) if lines else ""
    title = BEFORE.sub("", first.strip("#*_ "))
    words = title.strip("\"'`*_#“”„«» ").rstrip(".").split()
    if not LEAST_WORDS <= len(words) <= 2 * MOST_WORDS or words[0][0] in "{[<":
        return ""
    title = " ".join(words[:MOST_WORDS]).rstrip(" ,;:-")
    return title if len(title) <= MOST_CHARS else ""
