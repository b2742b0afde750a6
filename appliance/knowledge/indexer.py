"""What search needs a model for, done when there is time: vectors, and on request chunks and descriptions by a model.

Owns the one thread of a core that computes vectors. It is parked until somebody wakes it: a write, a search, a new
model; nothing polls. A write never waits for it. Without an embedding model, or with another one than before, it says
so in its status and stays quiet until it is told to try again. Knows nothing about sockets or prompts: models are
functions that somebody hands in.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Sequence

from msgspec import Struct

from appliance.errors import BadInput, Cancelled, Conflict, DeadlineExceeded, Lost, OwlError, Unavailable
from appliance.knowledge import chunking
from appliance.knowledge.change_log import By
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import Entries
from appliance.knowledge.index import IndexCounts, Passages, is_prose
from appliance.knowledge.search import Vector
from appliance.knowledge.vss_index import Vss
from appliance.models import failover
from appliance.models.client import Models
from appliance.records import Ask, Message, Part, Piece
from appliance.runtime.settings import ContextSettings

LOG = logging.getLogger(__name__)
BATCH = 32  # texts embedded at once (B-094)
AT_ONCE = 4  # texts for which a model is asked before vectors have their turn again
SETTLE_S = 0.2  # after a wake: what is written together is embedded together
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 3600.0  # before it tries again what failed for the moment
QUERY_S = 20.0  # for a query's vector: without a core a broker has to start for it and load the model
BRIEF_S = 0.3  # for one that somebody's answer waits for: when it is late, words must do
AT_A_TIME = 4  # of those; one that a hung broker keeps takes a place until it ends
BATCH_S = 300.0  # people come first, so a batch may take long
ASK_S = 10.0  # for the small model (B-089, B-093)
STOP_S = 5.0
PROPOSE_CHARS, DESCRIBE_CHARS = 12_000, 8000  # of a text that the small model is shown
DESCRIPTION_CHARS = 300

CUT = (
    "You cut a text into parts that each treat one thing. Its lines are numbered. Answer with the first and last line of "
    "each part, as JSON and nothing else: [[1, 12], [13, 30]]"
)
DESCRIBE = "Say in one short sentence what this text is about. Answer with the sentence and nothing else."
RANGES = re.compile(r"\[\s*(?:\[\s*\d{1,9}\s*,\s*\d{1,9}\s*\]\s*+(?:,\s*+)?)+\]")

# Texts, the longest time in seconds, and whether people go first; the model's name and a vector for each text.
Embed = Callable[[Sequence[str], float, bool], tuple[str, Sequence[Sequence[float]]]]
Answer = Callable[[str, str], str]  # what a model says to instructions and a text


class IndexStatus(Struct, frozen=True):
    """What the index holds and what its thread is doing: parked, working, or why it cannot."""

    state: str
    chunks: int
    vectors: int
    pending: int
    model: str = ""
    note: str = ""


class Indexer:
    """Computes what waits, in a thread of its own or, for a command without a core, when `work` is called."""

    def __init__(
        self,
        passages: Passages,
        entries: Entries,
        embed: Embed,
        answer: Answer | None = None,
        keys: ContextSettings = ContextSettings(),
        beside: Vss | None = None,
        patient_embed: Embed | None = None,
    ) -> None:
        """`beside` is an index of vectors that is made again when there are others.

        `patient_embed` computes them in the thread: it must not bring back a broker that has ended.
        """
        self._patient_embed = patient_embed or embed
        self._beside = beside
        self._passages = passages
        self._entries = entries
        self._embed = embed
        self._answer = answer
        self._keys = keys
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble = ""  # why there are no vectors; cleared by `retry`
        self._is_foreign = False  # whether that is another model than before: only `retry` may try again
        self._delay = ""  # what failed for the moment
        self._silence = ""  # why no model answers
        self._seen: set[tuple[int, str]] = set()  # texts that got no description
        self._is_working = False
        self._one = threading.Lock()  # one at a time computes vectors in this process
        self._brief = threading.Semaphore(AT_A_TIME)
        self._batch = BATCH  # fewer on a device that does not get through so many in time
        self.brief_s = BRIEF_S

    # -- the thread -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what waits, and go on with what comes."""
        self._thread = threading.Thread(target=self._run_loop, name="indexer", daemon=True)
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it computes at the moment is lost and will be computed again."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
        if self._beside is not None:
            self._beside.close()

    def wake(self) -> None:
        """Something may wait. Called within the transaction of a write, so it does nothing but ring."""
        self._wake.set()

    def retry(self) -> None:
        """Try again after a failure, for example because a model was added."""
        self._trouble, self._is_foreign = "", False
        self._wake.set()

    def status(self) -> IndexStatus:
        """The progress of indexing, and the problem that stops it."""
        counts, known = self._passages.counts(), self._passages.embedder()
        state = "working" if self._is_working else "parked" if self._thread else "not running"
        state = self._trouble or (f"tries again soon: {self._delay}" if self._delay and not self._is_working else state)
        return IndexStatus(state, counts.chunks, counts.vectors, counts.pending, known.model if known else "", self._silence)

    def _run_loop(self) -> None:
        pause_s: float | None = None
        while True:
            self._wake.wait(pause_s)
            if self._stop.wait(SETTLE_S):
                return
            self._wake.clear()
            try:
                self._passages.wait_for_writers()  # the write that rang is not committed yet
                self.index_pending(self._stop.is_set)
                pause_s, self._delay = None, ""
            except OwlError as error:
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s if pause_s else FIRST_PAUSE_S)
                # While a core starts, its broker does not answer yet.
                LOG.log(logging.INFO if isinstance(error, Lost) else logging.WARNING, "indexing stops for %g s: %s", pause_s, error)
                self._delay = str(error)

    # -- the work ---------------------------------------------------------------------------------

    def index_pending(self, is_stopped: Callable[[], bool] = lambda: False) -> IndexCounts:
        """Do everything that waits, in the calling thread; how much is indexed after it.

        What is missing for good (no model, another model) is noted for `status`; raises what may pass.
        """
        with self._one:
            self._is_working = True
            try:
                self._passages.catch_up(is_stopped)
                self._ask_models(is_stopped)
                if not self._trouble:
                    self._embed_waiting(is_stopped)
                self._make_beside()
            finally:
                self._is_working = False
        return self._passages.counts()

    def reembed(self) -> int:
        """Make every vector anew, with the model there is now; how many are to be made.

        With a running thread they are made by it, else by `work`.
        """
        count = self._passages.forget_vectors()
        self.retry()
        return count

    @property
    def is_running(self) -> bool:
        """Whether a thread does the work."""
        return self._thread is not None and not self._stop.is_set()

    def vector(self, question: str, deadline_s: float = QUERY_S) -> tuple[Vector | None, str]:
        """A query's vector, or None and why there is none. Rings when something waits for its own."""
        trouble = self._trouble
        if not self._is_foreign and self._passages.has_waiting():
            self.retry()
        if self._passages.embedder() is None:
            return None, f"found by words alone: {trouble or 'no vectors are made yet'}"
        try:
            model, vectors = self._embed([question], deadline_s, False)
        except Cancelled:
            raise
        except OwlError as error:
            return None, f"found by words alone: {error}"
        return Vector(model, vectors[0]), ""

    def brief(self, question: str) -> Vector | None:
        """A query's vector when it comes within `brief_s`, else None at once after that; brings no broker back."""
        if self._passages.embedder() is None or not self._brief.acquire(blocking=False):
            return None
        found: list[Vector] = []
        is_done = threading.Event()

        def ask() -> None:
            try:
                model, vectors = self._embed([question], self.brief_s, False)
                found.append(Vector(model, vectors[0]))
            except OwlError as error:
                LOG.debug("found by words alone: %s", error)
            finally:
                self._brief.release()
                is_done.set()

        threading.Thread(target=ask, name="query", daemon=True).start()  # a hung broker cannot be hurried
        is_done.wait(self.brief_s)
        return found[0] if found else None

    def _embed_waiting(self, is_stopped: Callable[[], bool]) -> None:
        while not is_stopped():
            batch = self._passages.waiting(self._batch)
            if not batch:
                self._passages.tidy()
                return
            try:
                embed = self._patient_embed if self.is_running else self._embed
                model, vectors = embed([chunk.text for chunk in batch], BATCH_S, True)
                self._passages.store_vectors(model, list(zip(batch, vectors)))
            except DeadlineExceeded:
                self._batch = max(1, len(batch) // 4)  # else the same texts would be begun again for ever
                raise
            except (Conflict, Unavailable) as error:
                if isinstance(error, Unavailable) and type(error) is not Unavailable:
                    raise  # a broker that restarts, a busy database: that passes
                self._trouble, self._is_foreign = str(error), isinstance(error, Conflict)
                LOG.info("no vectors: %s", error)
                return

    def _make_beside(self) -> None:
        if self._beside is None or not self._beside.is_due(self._passages.state()):
            return
        try:
            self._beside.make(*self._passages.vectors())
        except Unavailable as error:
            LOG.warning("vectors are looked through without it: %s", error)
            self._beside = None

    def _ask_models(self, is_stopped: Callable[[], bool]) -> None:
        """Chunks and descriptions by a model, where that is wanted."""
        if self._answer is None or not (self._keys.describe or self._keys.chunker == "model"):
            return
        self._silence = ""
        try:
            while self._keys.chunker == "model" and not is_stopped():
                found = self._passages.to_propose("model", AT_ONCE)
                if not found:
                    break
                for entry in found:
                    made, how = chunking.by_model(entry.body, self._propose_ranges, is_prose=is_prose(entry))
                    self._passages.replace(entry, made, how if how == "model" else "fallback")
            if self._keys.describe:
                self._describe_texts(is_stopped)
        except Lost:
            raise
        except Unavailable as error:
            self._silence = f"no model for chunks and descriptions: {error}"
            LOG.info("%s", self._silence)

    def _propose_ranges(self, numbered: str) -> list[tuple[int, int]]:
        if self._answer is None or len(numbered) > PROPOSE_CHARS:
            raise BadInput("the text is too long for the small model")
        return ranges_of(self._answer(CUT, numbered))

    def _describe_texts(self, is_stopped: Callable[[], bool]) -> None:
        """A sentence about each text that has none; what a model could not describe is left for the next start."""
        for entry in self._passages.undescribed(chunking.WHOLE_CHARS):
            if is_stopped() or self._answer is None:
                return
            if (entry.id, entry.hash) in self._seen:
                continue
            self._seen.add((entry.id, entry.hash))
            said = " ".join(self._answer(DESCRIBE, entry.body[:DESCRIBE_CHARS]).split())[:DESCRIPTION_CHARS]
            if said:
                content = Content(description=said)
                try:
                    self._entries.put(entry.path, content, By("system"), scope=entry.scope, expected_hash=entry.hash)
                except Conflict:
                    pass  # it has changed meanwhile, and will be looked at again


def ranges_of(said: str) -> list[tuple[int, int]]:
    """The line ranges in a model's answer; [] when there are none."""
    found = RANGES.search(said)
    if found is None:
        return []
    text = re.sub(r",\s*\]\s*$", "]", found[0])
    try:
        return [(int(first), int(last)) for first, last in json.loads(text)]
    except ValueError:
        return []


def answering(models: Models, pool: Callable[[], str]) -> Answer:
    """Asks the first route of a pool, in the background, and gives it ten seconds; "" when it is too late."""

    def answer(instructions: str, text: str) -> str:
        routes = models.plan(pool())
        ask = Ask(
            system=(Part("instructions", instructions),),
            messages=(Message("user", text),),
            purpose="index",
            is_background=True,
            max_tokens=256,
            deadline_s=ASK_S,
        )
        said = ""
        try:
            for piece in failover.generate(models, routes, ask, threading.Event()):
                said += piece.text if isinstance(piece, Piece) and not piece.is_reasoning else ""
        except (Unavailable, Cancelled):
            raise
        except OwlError as error:
            LOG.info("the small model did not answer: %s", error)
            return ""  # half an answer is none
        return said

    return answer


def embedding(models: Models, patient: Models, is_patient: Callable[[], bool]) -> Embed:
    """Embeds with the broker's model, which is named in its answer.

    Work in the background goes through `patient` while `is_patient`: it must not bring back a broker that ended. So
    does what has hardly any time.
    """

    def embed(texts: Sequence[str], deadline_s: float, is_background: bool) -> tuple[str, Sequence[Sequence[float]]]:
        through = patient if deadline_s <= BRIEF_S or (is_background and is_patient()) else models
        made = through.embed(texts, is_background=is_background, deadline_s=deadline_s)
        return made.model, made.vectors

    return embed
