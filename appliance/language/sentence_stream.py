"""An answer of a small model as it streams, without what is broken about it and without what it only claims to have done.

Broken is repetition, half a sentence at its end, raw calls. The first sentence is passed on word by word, its first word as it
comes, so that a person sees it at once; every later one when it is whole and new. A sentence that was said before, or whose runs of
four words mostly were, ends the answer. One that only says again what the person said is left out.

A claim ("I've set a reminder") of an answer that called no tool is read by nobody. A short first sentence ("Sure!") and one that
begins as a claim waits until it is known what becomes of it; one that greets or asks does not wait. What begins otherwise and turns
out to be one has been read in part; what follows it never is. Knows nothing about models or tokens, and no words: whether a
sentence is a claim is for its caller to say.
"""

import re
from collections.abc import Callable

from appliance.language import sentences
from appliance.language.languages import alternatives, expression
from appliance.text.model_marks import OVER, AnswerStart

RUN = 4  # words that count as one piece of repetition
HELD_WORDS = 8  # repeated within the first sentence before it is given up
FEWEST_WORDS = 3  # shorter sentences such as "Yes." may come twice
MOST_SHORT = 2
REPEATED = 0.5  # of a sentence's runs of words
WORDS = re.compile(r"[\w'’-]+")
RAW_BEGUN = re.compile(r"^\s*[<{\[`]")
RAW_CHARS = 12  # after which text that begins like a raw call is none
RAW = re.compile(r"^\s*(?:<\|?[a-z_]+|\{\s*\"|\[\s*\{|```json)", re.IGNORECASE)


class SentenceStream:
    """What may be shown of an answer. `said` is all that was passed on; once `is_over`, nothing more is worth reading."""

    def __init__(self, forbidden: str = "", echo: str = "") -> None:
        """`forbidden` is a text no sentence of which is passed on, nor one mostly made of it: the model's own instructions.

        Nor is a sentence of `echo`, what the person said, of RUN words or more.
        """
        self._start = AnswerStart()
        self._rest = ""  # behind the last whole sentence
        self._shown = 0  # characters of `_rest` that were passed on
        self._forbidden = _plain_words(forbidden)
        told = self._forbidden.split()
        self._told_words = frozenset(told)
        self._told_runs = {tuple(told[n : n + RUN]) for n in range(len(told) - RUN + 1)}
        said = [_plain_words(one) for one in (*sentences.split(echo), echo)]
        self._echoes = frozenset(one for one in said if one.count(" ") >= RUN - 1)
        self._runs: set[tuple[str, ...]] = set()
        self._counts: dict[str, int] = {}
        self.said = ""
        self.is_over = False

    def feed(self, text: str) -> str:
        """Take what came; what may be shown now."""
        if self.is_over:
            return ""
        return self._take(self._start.feed(text))

    def _take(self, text: str) -> str:
        self._rest += text
        if not self.said and RAW.match(self._rest):
            self.is_over = len(self._rest) > 40
            return ""
        over = OVER.search(self._rest)
        if over is not None and not (over[0] == "</s>" and "<s>" in self.said + self._rest):
            self._rest = self._rest[: over.start()].rstrip()
            shown = self._finish_rest(is_cut=False)
            self.is_over = True
            return shown
        shown, start = "", 0
        for end in sentences.boundaries(self._rest, is_open=True):
            if not self.is_over:
                shown += self._take_sentence(self._rest[start:end])
                start = end
        self._rest = self._rest[start:]
        return self._pass_on(shown + ("" if self.is_over else self._show_begun()))

    def finish(self, *, is_cut: bool) -> str:
        """What is left to be shown: a last sentence that is whole. `is_cut`: the model was stopped in the middle."""
        before = "" if self.is_over else self._take(self._start.finish())
        return before + self._finish_rest(is_cut=is_cut)

    def _finish_rest(self, *, is_cut: bool) -> str:
        rest, self._rest = self._rest, ""
        if self.is_over or not rest.strip() or (not self.said and RAW.match(rest)):
            return ""
        if not is_cut:
            return self._pass_on(self._take_sentence(rest))
        if self.said[self._shown :].strip() or self._shown == 0:
            return "" if self.said.strip() else self._pass_on(f"{rest.rstrip().rstrip(',;:')} …")
        return self._pass_on(" …")

    def _pass_on(self, text: str) -> str:
        if not self.said:
            text = text.lstrip()
        self.said += text
        return text

    def _take_sentence(self, text: str) -> str:
        """A whole sentence less what was shown of it, or "" and the end of it all when it says nothing new."""
        shown, self._shown = self._shown, 0
        words = [word.lower() for word in WORDS.findall(text)]
        key = " ".join(words)
        self._counts[key] = self._counts.get(key, 0) + 1
        runs = [tuple(words[n : n + RUN]) for n in range(len(words) - RUN + 1)]
        repeated = sum(run in self._runs for run in runs)
        is_again = self._counts[key] > (1 if len(words) >= FEWEST_WORDS else MOST_SHORT) and bool(words)
        is_inner = len(runs) > HELD_WORDS and len(set(runs)) < len(runs) * REPEATED
        if not shown and (is_again or is_inner or (runs and repeated > len(runs) * REPEATED)):
            self.is_over = True
            return ""
        recited = sum(run in self._told_runs for run in runs)
        if not shown and ((len(words) > RUN and key in self._forbidden) or (runs and recited > len(runs) * REPEATED)):
            return ""
        if not shown and key in self._echoes:
            return ""
        self._runs.update(runs)
        return text[shown:]

    def _show_begun(self) -> str:
        """As much of the first sentence as says nothing twice and is no beginning of a forbidden one or of a raw call."""
        if self.said[: len(self.said) - self._shown].strip() or not self._rest.strip():
            return ""
        if not self._shown and RAW_BEGUN.match(self._rest) and len(self._rest) < RAW_CHARS:
            return ""
        begun = self._rest.lstrip()
        end = self._rest.rfind(" ") if " " in begun else len(self._rest)
        mark = max(self._rest.rfind(first, self._shown) for first in "<[")
        end = mark if 0 <= mark < end else end  # it may become one of the model's
        words = [word.lower() for word in WORDS.findall(self._rest[:end])]
        begun_words = " ".join(words)
        if words and any(one.startswith(begun_words) for one in self._echoes):
            return ""
        if words and f" {' '.join(words[: RUN + 2])}" in f" {self._forbidden}":  # the last may be half a word
            return ""
        if words and words[0] in self._told_words and sum(word not in self._told_words for word in words) <= 1:
            return ""  # "Owlbox is a helpful assistant ...": judged when it is whole
        if any(tuple(words[n : n + RUN]) in self._told_runs for n in range(len(words) - RUN + 1)):
            return ""
        seen: set[tuple[str, ...]] = set()
        held = 0
        for n in range(len(words) - RUN + 1):
            run = tuple(words[n : n + RUN])
            held = held + 1 if run in seen else 0
            seen.add(run)
        if held >= HELD_WORDS:
            self.is_over = True
        if held or end <= self._shown:
            return ""
        new, self._shown = self._rest[self._shown : end], end
        return new


def _plain_words(text: str) -> str:
    return " ".join(word.lower() for word in WORDS.findall(text))


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
