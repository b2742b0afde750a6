"""Vectors of texts that were asked for before, so that a question is embedded once, whoever looks something up for it.

Bounded: the texts asked for last are kept. All are of one model; the first answer of another one forgets them. Vectors are kept
as arrays, a quarter of the size of lists. Knows nothing about who makes vectors. Safe from several threads.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

KEPT = 1000  # texts: examples of the router, questions, and sentences that are asked about again
LONGEST = 2000  # characters of one that is kept


class Embedded(Struct, frozen=True):
    """Unit vectors of some texts, in their order, and the model that made them."""

    model: str
    vectors: Sequence[Sequence[float]]


class VectorCache:
    """Vectors by their texts."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._model = ""
        self._kept: OrderedDict[str, Sequence[float]] = OrderedDict()

    def find(self, texts: Iterable[str]) -> tuple[str, dict[str, Sequence[float]]]:
        """Those of the texts that are known, with their vectors, and the model of them all."""
        with self._guard:
            found = {text: self._kept[text] for text in texts if text in self._kept}
            for text in found:
                self._kept.move_to_end(text)
            return self._model, found

    def keep(self, model: str, vectors: Mapping[str, Sequence[float]]) -> None:
        """Keep what a model made, and nothing of another one."""
        with self._guard:
            if model != self._model:
                self._model = model
                self._kept.clear()
            for text, vector in vectors.items():
                if len(text) <= LONGEST:
                    self._kept[text] = array("d", vector)
                    self._kept.move_to_end(text)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
