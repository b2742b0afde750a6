"""Token arithmetic: estimates, what a window leaves room for, and the table of what fills it.

Pure numbers. Where no tokenizer is at hand, characters over a divisor, deliberately on the high side; where a
prompt of the same route has been counted, its own characters per token. Knows nothing about entries or models.
"""

import math
import re
import string
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

DIVISOR = 2  # characters per token where no tokenizer counts; most texts have more, so what is estimated fits
CEILING = 0.9  # of a window that a prompt may fill: an estimate may be short by a tenth
DENSEST, THINNEST = 0.2, 16.0  # characters per token that a real tokenizer may have; anything else was miscounted

LIGHT = (string.ascii_letters + " ").encode()  # several of them are one token in any vocabulary

# Words of providers about a prompt that is too long, and words that mean something else whatever stands beside them.
TOO_LONG = re.compile(
    r"context (?:size|length|limit|window)|token limit|tokens? exceed|exceeds? .{0,40}tokens?\b"
    r"|(?:prompt|input|request|context|message)s? (?:is|are|was) too (?:long|large)|too (?:long|large) for .{0,40}context",
    re.IGNORECASE,
)
NOT_LENGTH = re.compile(r"rate.?limit|\b429\b|\b503\b|api key|timeout|timed out|per minute|quota", re.IGNORECASE)


def estimate(text: str | None, divisor: float = DIVISOR) -> int:
    """About how many tokens a text has: 0 for nothing, at least 1 for anything, never less for more text."""
    return 0 if not text else of_chars(len(text), divisor)


def of_chars(chars: int, divisor: float = DIVISOR) -> int:
    """About how many tokens so many characters are."""
    return 0 if chars <= 0 else max(1, math.ceil(chars / divisor))


def at_most(text: str, divisor: float = DIVISOR) -> int:
    """About how many tokens a text may have: other letters, digits and signs can be one for each of their bytes."""
    data = text.encode("utf-8", "surrogatepass")
    heavy = len(data.translate(None, LIGHT))
    return of_chars(len(data) - heavy, divisor) + heavy


def density(chars: int, tokens: int) -> float | None:
    """Characters per token of a prompt that was counted; None for a count that cannot be one."""
    if chars <= 0 or tokens <= 0 or not DENSEST <= chars / tokens <= THINNEST:
        return None
    return chars / tokens


def ceiling_of(window: int, part: float = CEILING) -> int | None:
    """How much of a window a prompt may fill; None where the window is not known: nothing is enforced then."""
    return math.floor(window * part) if window > 0 else None


def is_too_long(text: str) -> bool:
    """Whether a provider's complaint says that the prompt does not fit its window."""
    return bool(TOO_LONG.search(text)) and not NOT_LENGTH.search(text)


class Share(Struct, frozen=True):
    """What an entry costs: rendered visible, with the line it keeps in the summary, and summarized."""

    visible: int
    summarized: int

    @property
    def more(self) -> int:
        """What it costs to see it whole rather than summarized: the number that the model is shown."""
        return self.visible - self.summarized


class SchemeLine(Struct, frozen=True):
    """The visible entries of one scheme."""

    scheme: str
    count: int
    tokens: int


class PromptTable(Struct, frozen=True):
    """What fills a prompt. `system` is everything that is no entry."""

    lines: tuple[SchemeLine, ...] = ()
    summarized: int = 0
    summarized_tokens: int = 0
    system: int = 0
    ceiling: int | None = None

    @property
    def usage(self) -> int:
        """All of it together."""
        return sum(line.tokens for line in self.lines) + self.summarized_tokens + self.system

    @property
    def free(self) -> int | None:
        """The tokens left below the ceiling, negative above it; None without one."""
        return None if self.ceiling is None else self.ceiling - self.usage

    def scaled(self, factor: float) -> "PromptTable":
        """The same in tokens of another size; the ceiling is what it is."""
        if factor == 1:
            return self
        lines = tuple(replace(line, tokens=math.ceil(line.tokens * factor)) for line in self.lines)
        summarized, system = math.ceil(self.summarized_tokens * factor), math.ceil(self.system * factor)
        return replace(self, lines=lines, summarized_tokens=summarized, system=system)

    def text(self) -> str:
        """The table as a model and a person read it."""
        whole = self.ceiling or self.usage
        rows = ["scheme | visible | tokens | %"]
        rows += [f"{line.scheme} | {line.count} | {line.tokens} | {_percent_of(line.tokens, whole)}" for line in self.lines]
        rows.append(
            f"summarized: {self.summarized} entries, {self.summarized_tokens} tokens, {_percent_of(self.summarized_tokens, whole)}%"
        )
        rows.append(f"system: {self.system} tokens, {_percent_of(self.system, whole)}%")
        limit = "no ceiling" if self.ceiling is None else f"ceiling {self.ceiling}, free {self.free}"
        rows.append(f"total: usage {self.usage}, {limit}")
        return "\n".join(rows)


def table(shares: Iterable[tuple[str, bool, Share]], system: int, ceiling: int | None) -> PromptTable:
    """The table of entries given as scheme, whether visible, and cost; the schemes that take most come first."""
    found: dict[str, list[int]] = {}
    count = summarized = 0
    for scheme, is_visible, share in shares:
        if is_visible:
            line = found.setdefault(scheme, [0, 0])
            line[0] += 1
            line[1] += share.visible
        else:
            count += 1
            summarized += share.summarized
    lines = sorted(
        (SchemeLine(scheme, n, tokens) for scheme, (n, tokens) in found.items()), key=lambda line: (-line.tokens, line.scheme)
    )
    return PromptTable(tuple(lines), count, summarized, system, ceiling)


def _percent_of(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0
