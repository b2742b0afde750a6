"""Where an update stands: one small file beside the versions, written whole and flushed before each step.

A machine that loses power reads it at the next start: until the step `gated` everything goes back to the version before, from then
on everything goes forward. Later versions must be able to read what earlier ones wrote.
"""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from appliance.clock import now_ms
from appliance.errors import StoreError
from appliance.runtime import paths

FILE = "update.json"
KEPT_RESULTS = 10


class Step(StrEnum):
    """In their order; what is named has begun and may be done in part."""

    IDLE = "idle"
    BUILDING = "building"  # the environment of the new version, beside the old one
    TRYING = "trying"  # the new version, on a copy of the home
    STOPPING = "stopping"  # the services
    SAVING = "saving"  # the database, for a way back
    SWITCHING = "switching"  # the link `current`
    MIGRATING = "migrating"  # the database, and the doctor of the new version looks it over
    GATED = "gated"  # the new version is well: forward from here
    STARTING = "starting"  # the services
    TIDYING = "tidying"  # what is not needed any more
    ROLLING_BACK = "rolling back"


class UpdateResult(Struct, frozen=True):
    """The outcome of an update."""

    version: str
    said: str
    is_applied: bool
    at_ms: int


class Journal(Struct, frozen=True):
    """The present update, and the outcome of earlier ones. `old` and `new` are versions; `saved` is the copy of the database.

    A rollback goes back to `previous`, and to the database of `previous_saved`: a later update that came to nothing leaves both.
    """

    step: Step = Step.IDLE
    old: str = ""
    new: str = ""
    saved: str = ""
    previous: str = ""
    previous_saved: str = ""
    results: tuple[UpdateResult, ...] = ()


class JournalFile:
    """The file of one installation."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read(self) -> Journal:
        """As it was last written; a fresh one when there is none."""
        try:
            with paths.naming(self._path):
                return msgspec.convert(json.loads(self._path.read_text("utf-8")), Journal)
        except FileNotFoundError:
            return Journal()
        except (OSError, ValueError, msgspec.ValidationError) as error:
            hint = "remove it when `current` leads to a version that works"
            raise StoreError(f"{self._path} cannot be read: {error}", hint=hint) from None

    def write(self, journal: Journal) -> Journal:
        """On the disk when it returns."""
        paths.put(self._path, json.dumps(msgspec.to_builtins(journal), indent=1).encode(), 0o644)
        return journal

    def change(self, journal: Journal, **fields: Any) -> Journal:
        """Write it with other values."""
        return self.write(msgspec.structs.replace(journal, **fields))

    def end(self, journal: Journal, said: str, *, is_applied: bool) -> Journal:
        """Record the end of the present update and keep its outcome."""
        results = (UpdateResult(journal.new, said, is_applied, now_ms()), *journal.results)[:KEPT_RESULTS]
        return self.change(journal, step=Step.IDLE, new="", results=results)
