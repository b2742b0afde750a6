"""From token bytes to text that may be shown: whole characters, no part of a stop string, no tool call.

Pure. Knows nothing about models; `Answer` is fed bytes and says what to send and when to stop.
"""

import codecs
from collections.abc import Sequence


class Answer:
    """One answer as it grows. With `may_call`, text that begins with { is a call and is held back for good."""

    def __init__(self, stops: Sequence[str], *, may_call: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [s for s in stops if s]
        self._may_call = may_call
        self._held = ""
        self.is_call = False
        self.is_stopped = False

    def begins_call(self, data: bytes) -> bool:
        """True when these next bytes would begin a call: everything before them is white space."""
        return self._may_call and not self.is_call and not self._held.strip() and data.lstrip().startswith(b"{")

    def feed(self, data: bytes) -> str:
        """Text that may be shown now, often ""."""
        self._held += self._decoder.decode(data)
        if self.is_call:
            return ""
        if self._may_call and not self._held.strip():
            return ""
        self.is_call = self._may_call and self._held.lstrip().startswith("{")
        self._may_call = self.is_call
        return "" if self.is_call else self._release()

    def finish(self) -> str:
        """What was held back and may be shown after all: a stop string that never came."""
        rest, self._held = self._held + self._decoder.decode(b"", True), ""
        return "" if self.is_call or self.is_stopped else rest

    @property
    def call_text(self) -> str:
        """The call so far."""
        return self._held if self.is_call else ""

    def _release(self) -> str:
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if places:
            shown, self._held, self.is_stopped = self._held[: min(places)], "", True
            return shown
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
