"""From token bytes to text that may be shown: whole characters, no part of a stop string, no tool call.

Thoughts in front of the answer, in any of the marks of `text.model_marks`, come apart from the answer. Pure. Knows nothing
about models; `Answer` is fed bytes and says what to send and when to stop.
"""

import codecs
import re
from collections.abc import Sequence
from typing import Any

from appliance.providers.call_signs import Sign, Signs
from appliance.text import model_marks


class StreamedAnswer:
    """One answer as it grows. With `may_call`, text that begins with { is a call and is held back for good; with `signs`, text of
    which they say so.

    `is_thinking`: the prompt itself ended with the mark of thoughts, so the first words are thoughts. `may_be_thinking`: the model
    may end thoughts that it never opened, so all waits for that end; an answer without one is shown when it is whole.
    """

    def __init__(
        self,
        stops: Sequence[str],
        *,
        may_call: bool = False,
        is_thinking: bool = False,
        may_be_thinking: bool = False,
        signs: Signs | None = None,
    ) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [s for s in stops if s]
        self._signs = signs if signs is not None or not may_call else Signs((), (), is_bare=True)
        self._said = ""
        self._may_think = True
        self._may_be_thinking = may_be_thinking
        self.has_thought_unmarked: bool | None = None  # whether it ended thoughts that it never opened, as far as this answer tells
        self._held = ""
        self._thoughts = ""
        self._has_thought = self._is_blank = self._has_messages = False
        self.is_thinking = is_thinking
        self.opened = "<think>"  # the mark of the thoughts that began last
        self.is_call = self.is_loose = False
        self.is_stopped = False

    def begins_call(self, data: bytes) -> bool:
        """True when these next bytes would begin a call: everything before them is white space or thoughts."""
        is_first = not self.is_thinking and not self._held.strip() and not self._said.strip()
        is_bare = self._signs is not None and self._signs.is_bare
        return is_bare and not self.is_call and is_first and data.lstrip().startswith(b"{")

    def begin_call(self, opening: str) -> None:
        """The prompt itself ended with the beginning of a call: all that comes belongs to it."""
        self._held, self.is_call = opening, True

    def feed(self, data: bytes) -> str:
        """Text of the answer that may be shown now, often ""."""
        self._held += self._decoder.decode(data)
        if self.is_call or self._is_thought():
            return ""
        if self._has_messages and (at := self._held.find(model_marks.MESSAGE_END)) >= 0:
            shown = self._release_text(at, has_more=False)  # another message of this answer follows
            self._held, self._said = self._held.removeprefix(model_marks.MESSAGE_END), self._said + "\n\n"
            self._may_think = True
            return shown + "\n\n" + self.feed(b"")
        if self._signs is None:
            return self._release_text(len(self._held))
        sign, at = self._signs.of(self._held, self._said)
        is_begun = sign in (Sign.MARK, Sign.FENCE)
        shown = self._release_text(at, has_more=not is_begun)
        if is_begun and not self.is_stopped:
            self.is_call, self.is_loose = True, sign is Sign.FENCE
            self._held = self._held.lstrip()
        return shown

    def thoughts(self) -> str:
        """The thoughts that came since this was last asked; none are empty lines only."""
        new = self._thoughts if self._has_thought else self._thoughts.lstrip()
        self._has_thought, self._thoughts = self._has_thought or bool(new), ""
        return new

    def _is_thought(self) -> bool:
        """True while nothing held back is known to be answer; moves thoughts aside."""
        if not self.is_thinking and self._may_think:
            begun = self._held.lstrip()
            channel = model_marks.begun_channel(begun)
            if channel is None or model_marks.may_become_thought(begun):
                return True
            mark, at = channel
            self._may_think, self._has_messages = False, self._has_messages or (at > 0 and not begun.startswith("<|channel>"))
            if at:
                self.is_thinking, self._held, self.opened = bool(mark), begun[at:], mark or self.opened
            elif opened := model_marks.THOUGHT_OPEN.match(begun):
                self.is_thinking, self._held, self.opened = True, begun[opened.end() :], opened[0]
        if self._may_be_thinking and not self.is_thinking:
            if model_marks.THOUGHT_CLOSE.search(self._held) is None:
                return True
            self.is_thinking = self.has_thought_unmarked = True
        self._may_be_thinking = False
        if not self.is_thinking:
            return self._is_between()
        self._may_think = False
        is_channel = self.opened in model_marks.THOUGHT_CHANNELS
        closes: Sequence[str] = [model_marks.closing(self.opened)] if is_channel else model_marks.CLOSES
        closing = re.compile(re.escape(closes[0])) if is_channel else model_marks.THOUGHT_CLOSE
        if closed := closing.search(self._held):
            more, self._held = self._held[: closed.start()], self._held[closed.end() :]
            self._thoughts, self.is_thinking = self._thoughts + more.rstrip(), False
            self._is_blank, self._may_think = True, is_channel
            return self._is_thought() if is_channel else self._is_between()
        cut = len(self._held) - max(_count_overlap(self._held.lower(), mark) for mark in closes)
        self._thoughts, self._held = self._thoughts + self._held[:cut], self._held[cut:]
        return True

    def _is_between(self) -> bool:
        """True while only empty lines have come since the thoughts ended; they are dropped."""
        if self._is_blank:
            self._held = self._held.lstrip()
            self._is_blank = not self._held
        return self._is_blank

    def expect_answer(self) -> None:
        """Its thoughts come apart: what comes here is the answer."""
        self._may_be_thinking = False

    def finish(self, *, is_cut: bool = False) -> str:
        """What was held back and may be shown after all: a stop string that never came; what were no thoughts, unless `is_cut`."""
        rest, self._held = self._held + self._decoder.decode(b"", True), ""
        if self.is_thinking or (is_cut and self._may_be_thinking):
            self._thoughts, rest = self._thoughts + rest, ""
        whole = self._said + rest
        if model_marks.THOUGHT_CLOSE.search(whole) and not model_marks.THOUGHT_OPEN.search(whole):
            self.has_thought_unmarked = True
        elif self._may_be_thinking and not is_cut:
            self.has_thought_unmarked = False
        return "" if self.is_call or self.is_stopped else rest

    @property
    def call_text(self) -> str:
        """The call so far."""
        return self._held if self.is_call else ""

    def _release_text(self, end: int, *, has_more: bool = True) -> str:
        """What may be shown of the text up to `end`, without what may become a stop string."""
        places = [at for stop in self._stops if (at := self._held.find(stop, 0, end)) >= 0]
        if places:
            shown, self._held, self.is_stopped = self._held[: min(places)], "", True
            return shown
        keep = max((_count_overlap(self._held, stop) for stop in self._stops), default=0) if has_more else 0
        cut = min(end, len(self._held) - keep)
        shown, self._held = self._held[:cut], self._held[cut:]
        self._said += shown
        return shown


class Mask:
    """Hides texts in a stream however it is cut: an end that may begin one of them is held back until more has come."""

    def __init__(self, secrets: Sequence[str], shown: str = "[key]") -> None:
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._shown = shown
        self._held = ""

    def feed(self, text: str) -> str:
        """Take a token; the text that may be shown now."""
        self._held += text
        shown = ""
        while True:
            begun = len(self._held) - max((_count_overlap(self._held, secret) for secret in self._secrets), default=0)
            whole = min(((at, -len(one)) for one in self._secrets if (at := self._held.find(one)) >= 0), default=(begun, 0))
            if whole[0] >= begun:  # none, or one that may be the beginning of a longer one
                shown, self._held = shown + self._held[:begun], self._held[begun:]
                return shown
            shown += self._held[: whole[0]] + self._shown
            self._held = self._held[whole[0] - whole[1] :]

    def finish(self) -> str:
        """The held back text, once no token follows."""
        rest, self._held = self.clean(self._held), ""
        return rest

    def clean(self, text: str) -> str:
        """A whole text without them."""
        for secret in self._secrets:
            text = text.replace(secret, self._shown)
        return text

    def clean_all(self, value: Any) -> Any:
        """A value of JSON without them."""
        if isinstance(value, dict):
            return {self.clean(name): self.clean_all(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.clean_all(inner) for inner in value]
        return self.clean(value) if isinstance(value, str) else value


def _count_overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
