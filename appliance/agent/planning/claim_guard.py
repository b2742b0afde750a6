"""An answer of a model that called no tool, without a sentence which says that it did something: nobody may read that.

Text is passed on as it streams. A short first sentence ("Sure!") and one that begins as such a claim waits until it is known what
becomes of it. What begins otherwise and turns out to be one has been read in part; what follows it never is. Knows no words:
whether a sentence is a claim is for its caller to say.
"""

import re
from collections.abc import Callable

from appliance.text import sentences
from appliance.text.sentence_stream import SentenceStream

FEW_WORDS = 3  # of a sentence that waits for the next one
BEGUN = re.compile(
    r"^\W*(?:(?:ok|okay|sure|great|alright|all right|of course|certainly|absolutely|yes|done|noted|got it)\W+)*"
    r"(?:(?:gut|klar|d'accord|vale|claro)\W+)*"
    r"(?:i(?:['’](?:ve|ll|m))?|let|your|the|a|reminder|task|alarm|timer|note|done|it|we|ich|wir|die|der|j['’]ai|je|la|le|he|hemos|voy|te)\b",
    re.IGNORECASE,
)
SOON = 24  # characters after which a sentence that does not begin as a claim is passed on


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
        if self._has_claimed:
            honest = f" {self._honest}" if self.said.strip() else self._honest
            self.said += honest
            shown += honest
        return shown

    def _pass_on(self, text: str, *, is_last: bool = False) -> str:
        if self._has_claimed:
            return ""
        self._held += text
        at = 0
        for end in sentences.boundaries(self._held, is_open=not is_last):
            if self._check((self._begun + self._held[at:end]).strip()):
                self._has_claimed = True
                # What waits is a word such as "Sure!", which belongs to the claim.
                shown, self._held = self._held[:at] if self._begun or self.said else "", ""
                self.said += shown
                return shown
            is_short = not self._begun and not self.said and len(self._held[:end].split()) <= FEW_WORDS
            if is_short and not is_last:
                continue
            at, self._begun = end, ""
        rest = self._held[at:]
        if at == 0 and len(self._held.split()) <= FEW_WORDS and not self._begun and not is_last:
            return ""
        if rest.strip() and not is_last and (self._begun or (len(rest) >= SOON and not BEGUN.match(rest))):
            self._begun += rest
            at = len(self._held)
        shown, self._held = self._held[:at], self._held[at:]
        self.said += shown
        return shown
