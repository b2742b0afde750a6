"""A second index of vectors, in memory, from the extra `knowledge.vss_index` (sqlite-vss): the query half of what sqlite-vec does.

One process makes it, whole, from the vectors that sqlite-vec keeps, and from then on it is only read. It stands for the
vectors of one moment; asked about any others, or about none, it has no answer, and sqlite-vec, which is the truth, is
asked instead. So nothing here can lose or hold back anything. Needs an x86-64 machine with libblas3 and liblapack3.
"""

import struct
import sys
import threading
from array import array
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from appliance.clock import monotonic_s
from appliance.errors import Unavailable

MOST = 5_000  # vectors: with twice as many, making it takes ten times as long (measured)
PAUSE = 20  # times as long as making it took, before it is made again


class VectorState(Struct, frozen=True):
    """Which vectors there are: the model's number, how many, the largest key and the sum of the keys, which never come back."""

    embedder: int
    count: int
    largest: int
    total: int


class Vss:
    def __init__(self, folder: Path) -> None:
        """`folder` holds the libraries: `installed` finds it."""
        self._folder = folder
        self._guard = threading.Lock()
        self._db: apsw.Connection | None = None
        self._state: VectorState | None = None
        self._next_s = 0.0

    def is_due(self, state: VectorState) -> bool:
        """Whether it should be made for these vectors now."""
        return 0 < state.count <= MOST and state != self._state and monotonic_s() >= self._next_s

    def make(self, state: VectorState, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Stand for these vectors (keys, and numbers of a byte each) from now on; Unavailable when the libraries do not load."""
        started_s = monotonic_s()
        db = self._load_extension(len(vectors[0][1]))
        with db:
            db.executemany(
                "INSERT INTO vectors (rowid, numbers) VALUES (?, ?)", ((key, _unit_vector(packed)) for key, packed in vectors)
            )
        with self._guard:
            old, self._db, self._state = self._db, db, state
        self._next_s = monotonic_s() + PAUSE * (monotonic_s() - started_s)
        if old is not None:
            old.close()

    def nearest(self, state: VectorState, packed: bytes, limit: int) -> dict[int, float] | None:
        """The nearest vectors by cosine; None when it does not stand for these vectors, or there are none."""
        with self._guard:
            if self._db is None or state != self._state or not state.count:
                return None
            rows: list[tuple[Any, ...]] = self._db.execute(
                "SELECT rowid, distance FROM vectors WHERE vss_search(numbers, vss_search_params(?, ?))",
                (_unit_vector(packed), min(limit, state.count)),
            ).fetchall()
        return {int(key): 1 - distance / 2 for key, distance in rows}  # squared, of unit vectors

    def close(self) -> None:
        """Give the memory back."""
        with self._guard:
            if self._db is not None:
                self._db.close()
            self._db = self._state = None

    def _load_extension(self, dimension: int) -> apsw.Connection:
        db = apsw.Connection(":memory:")
        try:
            db.enable_load_extension(True)
            for name in ("vector0", "vss0"):
                db.load_extension(str(self._folder / name))
            db.enable_load_extension(False)
            db.execute(f"CREATE VIRTUAL TABLE vectors USING vss0(numbers({int(dimension)}))")
        except apsw.Error as error:
            db.close()
            raise Unavailable(f"sqlite-vss does not load: {error}", hint="sudo apt install libblas3 liblapack3") from None
        return db


def installed() -> Path | None:
    """Where the libraries of the extra are; None without it. Its package is not imported: that would bring sqlite3."""
    return next((place for path in sys.path if (place := Path(path or ".", "sqlite_vss")).is_dir()), None)


def _unit_vector(packed: bytes) -> bytes:
    """Numbers of a byte each as a unit vector of floats."""
    values = array("b", packed)
    size = sqrt(float(sum(value * value for value in values))) or 1.0
    return struct.pack(f"<{len(values)}f", *(value / size for value in values))
