"""An answer of a model that called no tool, without a sentence which says that it did something: nobody may read that.

Text is passed on as it streams. A short first sentence ("Sure!") and one that begins as such a claim waits until it is known what
becomes of it; one that greets or asks does not wait. What begins otherwise and turns out to be one has been read in part; what
follows it never is. Knows no words: whether a sentence is a claim is for its caller to say.
"""

import re
from collections.abc import Callable

from appliance.language import sentences
from appliance.language.language_files import alternatives, expression
from appliance.language.sentence_stream import SentenceStream

FEW_WORDS = 3  # of a sentence that waits for the next one
BEHIND = re.compile(r"[\s,]*")  # a greeting: "Hello, I have ..."
SOON = 24  # characters after which a sentence that does not begin as a claim is passed on


def _greeting() -> "re.Pattern[str]":
    """A whole greeting, behind which no word goes on, as "hi" may: it does not wait for what tells that it is over."""
    return re.compile(rf"^\W*(?=\w{{5}}){alternatives('greeting')}\Z", re.IGNORECASE)


class ClaimGuard:
    """A sentence stream without claims; `said` is all that was passed on, once `is_over` nothing more is worth reading."""

    def __init__(self, stream: SentenceStream, is_claim: Callable[[str], bool], honest: str) -> None:
        """`honest` is what is said in place of a claim, and of all that would follow it."""
        self._stream = stream
        self._check = is_claim
        self._honest = honest
        self._held = ""
        self._begun = ""  # the part of a sentence that was passed on already
        self._has_claimed = False
        self.said = ""

    @property
    def is_over(self) -> bool:
        return self._has_claimed or self._stream.is_over

    def feed(self, text: str) -> str:
        """Take what came; what may be shown now."""
        return self._pass_on(self._stream.feed(text))

    def finish(self, *, is_cut: bool) -> str:
        """What is left to be shown."""
        shown = "" if self._has_claimed else self._pass_on(self._stream.finish(is_cut=is_cut), is_last=True)
        if self._begun and not self._has_claimed:  # all of the last sentence was passed on
            self._has_claimed = self._check(self._begun.strip())
        if self._has_claimed:
            honest = f" {self._honest}" if self.said.strip() else self._honest
            self.said += honest
            shown += honest
        return shown

    def _pass_on(self, text: str, *, is_last: bool = False) -> str:
        if self._has_claimed:
            return ""
        self._held += text
        whole, first = self._begun + self._held, len(self._begun)
        start = 0  # of the sentence that is looked at
        for end in sentences.boundaries(whole, is_open=not is_last):
            if self._check(whole[start:end].strip()):
                self._has_claimed = True
                # What waits is a word such as "Sure!", which belongs to the claim.
                shown, self._held = whole[first : max(first, start)] if first or self.said else "", ""
                self.said += shown
                return shown
            is_short = not first and not self.said and len(whole[:end].split()) <= FEW_WORDS
            if is_short and not is_last and not expression("plain_begins").match(whole):
                continue
            start = end
        at = max(first, start)
        if not is_last:
            at += self._count_begun(whole[start:first], whole[at:], is_first=not self.said and start == 0)
        shown, self._begun, self._held = whole[first:at], whole[start:at], whole[at:]
        self.said += shown
        return shown

    @staticmethod
    def _count_begun(begun: str, rest: str, *, is_first: bool) -> int:
        """How many characters more of a sentence that goes on are passed on already, after those of it that were."""
        plain = (expression("plain_begins").match(rest) or _greeting().match(rest)) if is_first and not begun else None
        if not rest.strip() or (is_first and len(rest.split()) <= FEW_WORDS and not begun and plain is None):
            return 0
        if plain is None and not begun and (len(rest) < SOON or expression("claim_begins").match(rest)):
            return 0
        said, more = (plain[0], rest[plain.end() :]) if plain is not None else (begun, rest)
        behind = BEHIND.match(more)
        waits = f"{said}{behind[0] if behind else ''}".rstrip().endswith(",") and expression("claim_begins").match(more)
        return len(rest) - len(more) if waits else len(rest)
