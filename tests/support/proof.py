"""How much of what is many a test tries: a part of it in `make test`, all of it in `make proof` (PROOF=1).

The part is spread evenly and the same each time: enough for a plain mistake to be seen.
"""

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

IS_WHOLE = os.environ.get("PROOF") == "1"


def part(cases: "Iterable[T]", one_in: int) -> "list[T]":
    """One in so many of these cases, or all of them."""
    return list(cases)[:: 1 if IS_WHOLE else one_in]
