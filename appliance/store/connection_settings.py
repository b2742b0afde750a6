"""What is set on every connection to the database: small named functions, in the order in which they are applied."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import apsw

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import StoreError
from appliance.store.sql_functions import FUNCTIONS

WAL_WAIT_S = 10
CACHE_KB = 400  # of pages, for each connection


def _enable_wal(db: apsw.Connection) -> None:
    # While another process makes the database, SQLite refuses this at once instead of waiting (3.54.1).
    end_s = monotonic_s() + WAL_WAIT_S
    while True:
        try:
            db.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if monotonic_s() > end_s:
                raise
            sleep_s(0.05)


def _foreign_keys(db: apsw.Connection) -> None:
    db.pragma("foreign_keys", True)


def _set_synchronous(db: apsw.Connection) -> None:
    db.pragma("synchronous", "normal")


def _temporary_in_memory(db: apsw.Connection) -> None:
    db.pragma("temp_store", "memory")


def _small_cache(db: apsw.Connection) -> None:
    # There are several connections, and the system keeps the file's pages anyway.
    db.pragma("cache_size", -CACHE_KB)


def functions(db: apsw.Connection) -> None:
    for function in FUNCTIONS:
        db.create_scalar_function(function.name, function.call, function.value_count, deterministic=function.is_deterministic)


def vectors(db: apsw.Connection) -> None:
    """Load sqlite-vec: its library alone, because its package imports sqlite3."""
    library = _vector_library()
    db.enable_load_extension(True)
    try:
        db.load_extension(library)
    except apsw.ExtensionLoadingError as error:
        raise StoreError(f"sqlite-vec does not load: {error}", hint="pip install --force-reinstall sqlite-vec") from None
    finally:
        db.enable_load_extension(False)


@functools.cache  # each connection of a process loads it
def _vector_library() -> str:
    found = next((place for path in sys.path if (place := Path(path or ".", "sqlite_vec")).is_dir()), None)
    if found is None:
        raise StoreError("the package sqlite-vec is not installed", hint="pip install sqlite-vec")
    return str(found / "vec0")


SETTINGS: tuple[Callable[[apsw.Connection], None], ...] = (
    _foreign_keys,
    _set_synchronous,
    _temporary_in_memory,
    _small_cache,
    functions,
    vectors,
)
WITH_LOG = (_enable_wal, *SETTINGS)
