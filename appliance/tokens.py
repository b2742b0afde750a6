"""Token estimates where no tokenizer is at hand: characters over a divisor, deliberately on the high side."""

import math

DIVISOR = 2


def estimate(text: str | None, divisor: float = DIVISOR) -> int:
    """About how many tokens a text has: 0 for nothing, at least 1 for anything, never less for more text."""
    return 0 if not text else max(1, math.ceil(len(text) / divisor))
