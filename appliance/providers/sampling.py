"""The second half of a generation: drawing tokens after the prompt was read, until the answer is whole.

Where tools are offered, an answer that begins with { (in our own words), or the part of it that begins with a mark of the
model's family, is held to one tool call and never shown as text; anything else streams as prose. Thoughts in front come as pieces
of their own. Knows nothing about prompts, loading or who waits.

Small models write the same words again and again until they are stopped: `Repeats` finds the same block, word for word, with
nothing in between. Lists, tables and code repeat, too, but change a little each time.

Prompt lookup guesses the next tokens from what the prompt and the answer said before. They are evaluated together with the
one that was drawn; each is then drawn as if there had been no guess, so the text is the same, sooner, where an answer quotes.
"""

import logging
import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from appliance.providers.call_signs import Signs
from appliance.providers.family import Family
from appliance.providers.grammar import Sampler, read_call
from appliance.providers.kv_cache import HeldSequence, Sequences, common
from appliance.providers.llama_library import LoadedModel
from appliance.providers.token_stream import StreamedAnswer
from appliance.records import Ask, Piece, ToolCall, ToolSpec
from appliance.text import model_marks

LOG = logging.getLogger(__name__)
THINKING_TOKENS = 8  # at the end of a prompt, enough for <think> and a line break in any vocabulary
WORDS = re.compile(r"\w+|[^\w\s]")
LONGEST = 120  # words of a block
LOOK_WORDS = 16  # between two looks
FEWEST = 96  # words that have to repeat; what is shorter is a chorus
PLAIN_FEWEST = 400  # ... of a block without letters, such as the rows of a matrix
LONG = 24  # words of a block that nobody says four times
ROUNDS, LONG_ROUNDS = 12, 4
KEPT = max(PLAIN_FEWEST, LONGEST * LONG_ROUNDS) + LONGEST
AGREE = 3  # tokens at the end that have to stand earlier, too
FIRST_GUESS, LONGEST_GUESS = 2, 7  # eight tokens at once: kernels take four rows in one step, and a ninth costs as much as two
TRIED = 8  # guessed tokens after which guessing has to have been right
LEAST_RIGHT = 0.4  # of them: a guessed token takes a third of the time of one that is drawn (bundled model, 2026-11-24)
KEPT_WEIGHT = 0.8  # weight of earlier guesses at each new one: an answer may begin to quote late
PAUSE_GUESSES = 32  # that are left out where guessing was wrong
TOKEN_BYTES = 4


class PromptLookup:
    """Guesses for one answer, and how right they were."""

    def __init__(self) -> None:
        self._size = FIRST_GUESS
        self._tried = self._right = 0.0
        self._pause = 0
        self.guessed = self.right = 0

    def guess(self, tokens: Sequence[int], room: int) -> list[int]:
        """Tokens that may follow this text, at most `room`; often none."""
        if self._pause > 0:
            self._pause -= 1
            return []
        at = find_continuation(tokens)
        return list(tokens[at : at + max(0, min(room, self._size))]) if at is not None else []

    def judge(self, guessed: int, right: int) -> None:
        """Count the guessed tokens and the right ones, and set the size of the next guess."""
        self.guessed, self.right = self.guessed + guessed, self.right + right
        self._tried = self._tried * KEPT_WEIGHT + guessed
        self._right = self._right * KEPT_WEIGHT + right
        self._size = min(LONGEST_GUESS, self._size * 2) if right == guessed else FIRST_GUESS
        if self._tried >= TRIED and self._right < LEAST_RIGHT * self._tried:
            self._pause, self._tried, self._right = PAUSE_GUESSES, 0.0, 0.0


def find_continuation(tokens: Sequence[int]) -> int | None:
    """Where a text went on the last time that it said what it ends with; None when it never did."""
    data, length = array("i", tokens).tobytes(), AGREE * TOKEN_BYTES
    end = len(data) - TOKEN_BYTES  # the end itself is no earlier place
    while end >= length and (at := data.rfind(data[-length:], 0, end)) >= 0:
        if at % TOKEN_BYTES == 0:
            return at // TOKEN_BYTES + AGREE
        end = at + length - 1  # found between two tokens
    return None


class Repeats:
    """Follows one text as it comes."""

    def __init__(self) -> None:
        self._rest = ""  # may go on: the last word of what came
        self._words: list[str] = []
        self._unseen = 0

    def feed(self, text: str) -> bool:
        """Take what came; True when the text circles."""
        found = list(WORDS.finditer(self._rest + text))
        whole = self._rest + text
        begin = found[-1].start() if found and found[-1].end() == len(whole) else len(whole)
        fresh = [match.group() for match in found if match.start() < begin]
        self._rest = whole[begin:]
        self._words = [*self._words, *fresh][-KEPT:]
        self._unseen += len(fresh)
        if self._unseen < LOOK_WORDS:
            return False
        self._unseen = 0
        return circles(self._words)


def circles(words: list[str]) -> bool:
    """True when words end in one block said over and over."""
    return any(_counts_repeat(words, length) for length in range(1, min(LONGEST, len(words) // LONG_ROUNDS) + 1))


def _counts_repeat(words: list[str], length: int) -> bool:
    if words[-1] != words[-1 - length] or words[-2 * length : -length] != words[-length:]:
        return False
    same, end = length, len(words)
    while same < end and words[end - same - 1] == words[end - same - 1 + length]:
        same += 1
    fewest = FEWEST if any(letter.isalpha() for word in words[-length:] for letter in word) else PLAIN_FEWEST
    return same >= fewest and same >= length * (LONG_ROUNDS if length >= LONG else ROUNDS)


class SamplerModel(Protocol):
    """What a writer needs of a model in memory."""

    loaded: LoadedModel
    sequences: Sequences

    def family(self, ask: Ask) -> Family | None: ...

    def grammar(self, tools: tuple[ToolSpec, ...], family: Family | None = None, *, is_loose: bool = False) -> str: ...


class Writing:
    """The second half of a generation: drawing tokens after the prompt was read.

    `end`: the numbers that the first token is drawn from, where the prompt was not evaluated.
    `must_call`: the answer is a call from its first token on, without thoughts, whatever the model would rather say.
    `is_guessing`: what the prompt says already is evaluated several tokens at a time. Prose that goes in circles is ended;
    the reason is then "repetition".
    """

    def __init__(
        self,
        ready: SamplerModel,
        ask: Ask,
        held: HeldSequence,
        seed: int | None,
        *,
        end: bytes = b"",
        must_call: bool = False,
        is_guessing: bool = True,
    ) -> None:
        self._ready = ready
        self._ask = ask
        self._held = held
        seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        family = self._family = ready.family(ask)
        may_call = bool(ask.tools) and (must_call or ask.dialect == "grammar" or family is not None)
        signs = None
        if may_call:
            names, marks = [tool.name for tool in ask.tools], () if family is None else family.marks
            signs = Signs(marks, names if family is not None else (), is_bare=family is None or family.is_bare)
        self._marks = {} if family is None else _tokens_of(ready.loaded, (*family.marks, *family.more_marks))
        self._texts = {token: text.encode() for text, token in self._marks.items()}
        self._sampler = Sampler(ready.loaded, ask.temperature, seed, ask.repeat_penalty, self._marks)
        self._sampler.end = end
        opened = "" if must_call else self._opened_thoughts(held.tokens)
        self._answer = StreamedAnswer(ask.stop, is_thinking=bool(opened), signs=signs)
        self._answer.opened = opened or self._answer.opened
        self._most_thoughts = max(1, ask.max_tokens // 2)  # the other half is for the answer
        self._is_free = False  # what was said breaks the grammar: it is read as it is
        if must_call and may_call and family is None:
            self._sampler.constrain(ready.grammar(ask.tools), "call")
        elif must_call and may_call and family is not None:
            self._answer.begin_call(family.opening)
            self._hold_to_grammar()
        self._repeats = Repeats()
        # A recurrent model could not forget what was guessed wrong.
        self.lookup = PromptLookup() if is_guessing and not ready.loaded.is_recurrent else None
        self._guess: list[int] = []  # evaluated, and not said so far
        self._guessed = self._right = 0
        self.reason: Any = "stop"
        self.count = 0
        self.sureness = self._drawn = 1.0  # of the least likely token said, and of the last, where asked for
        self._is_named = False  # whether the tool that is called was told

    def close(self) -> None:
        """Free the sampler, and leave the sequence with what was said."""
        self._forget_guess()
        self._sampler.close()

    def pieces(self, should_stop: Callable[[], bool]) -> Iterator[Piece]:
        """Text that may be shown, until the model ends, a stop string comes, the call is whole or room runs out."""
        loaded = self._ready.loaded
        while True:
            tokens = self._next_tokens()
            if loaded.is_end(tokens[0]):
                break
            self.count += len(tokens)
            for piece in self._show_pieces(self._answer.feed(b"".join(map(self._token_bytes, tokens)))):
                yield piece
                if self._repeats.feed(piece.text):
                    self.reason = "repetition"
            if self._answer.is_call and not self._sampler.is_constrained and not self._is_free:
                self._hold_to_grammar()
            if name := self._begun_call():
                yield Piece("", tool=name)
            if self.reason != "stop":
                break
            if self._answer.is_stopped or self._sampler.is_complete:
                break
            self.sureness = min(self.sureness, self._drawn)  # what comes behind the end says nothing about the answer
            if self.count >= self._ask.max_tokens or len(self._held.tokens) - len(self._guess) + len(tokens) >= loaded.window:
                self.reason = "length"
                break
            self._evaluate(tokens, should_stop)
        yield from self._show_pieces("" if self._answer.is_call else self._answer.finish())

    def calls(self) -> tuple[ToolCall, ...]:
        """The tool call, if the answer was one; a call cut short is dropped, and nobody sees its text."""
        if not self._answer.is_call:
            return ()
        call = self._read_call(self._answer.call_text)
        if call is None:
            self.reason = "length"
            LOG.warning("tool call cut off", extra={"tokens": self.count, "limit": self._ask.max_tokens})
            return ()
        return (call,)

    def _evaluate(self, tokens: list[int], should_stop: Callable[[], bool]) -> None:
        """Evaluate what was said, unless it was guessed, together with a guess of what comes next.

        Nobody else may go first while a part of a guess is left: what it is drawn from would be overwritten.
        """
        self._sampler.end = b""
        right = common(self._guess, tokens)
        self._guess, self._right, self._sampler.row = self._guess[right:], self._right + right, self._sampler.row + right
        if right == len(tokens):
            return
        self._forget_guess()
        fresh = tokens[right:]
        guess = [] if self.lookup is None else self._make_guess(self.lookup, fresh)
        self._ready.sequences.extend(self._held, [*fresh, *guess], should_stop, rows=len(guess) + 1)
        self._guess, self._guessed, self._sampler.row = guess, len(guess), -1 - len(guess)

    def _make_guess(self, lookup: PromptLookup, fresh: list[int]) -> list[int]:
        """What may come next, as far as the answer and the window have room and each token is drawn from the same numbers."""
        loaded, said = self._ready.loaded, [*self._held.tokens, *fresh]
        guess = lookup.guess(said, min(self._ask.max_tokens - self.count, loaded.window - len(said)))
        guess = guess[: next((i for i, token in enumerate(guess) if loaded.is_end(token)), len(guess))]
        return guess[: max(0, loaded.alike() - len(fresh))] if guess else guess

    def _forget_guess(self) -> None:
        """Take what was guessed and not said out of the sequence."""
        if self.lookup is not None and self._guessed:
            self.lookup.judge(self._guessed, self._right)
        if self._guess:
            self._ready.sequences.cut(self._held, max(0, len(self._held.tokens) - len(self._guess)))
        self._guess, self._guessed, self._right, self._sampler.row = [], 0, 0, -1

    def _read_call(self, text: str) -> ToolCall | None:
        if self._family is None:
            return read_call(text)
        is_whole = self._sampler.is_complete or (self._is_free and self.reason != "length")
        return self._family.read(text, self._ask.tools) if is_whole else None

    def _begun_call(self) -> str:
        """The tool that the answer calls, as soon as it is named; "" before, and when it was told."""
        if self._is_named or not self._answer.is_call:
            return ""
        names = "|".join(re.escape(tool.name) for tool in self._ask.tools)
        found = re.search(rf"(?<![\w.-])({names})(?=[^\w-])", self._answer.call_text)  # the name stands first in every format
        self._is_named = found is not None
        return found[1] if found else ""

    def _hold_to_grammar(self) -> None:
        """Hold what comes to the grammar of the call that has begun, if what it has so far allows that."""
        text = self._answer.call_text
        gbnf = self._ready.grammar(self._ask.tools, self._family, is_loose=self._answer.is_loose)
        self._is_free = not self._sampler.constrain(gbnf, "root", text.encode())

    def _show_pieces(self, text: str) -> Iterator[Piece]:
        if thoughts := self._answer.thoughts():
            yield Piece(thoughts, is_reasoning=True)
        if text:
            yield Piece(text)

    def _token_bytes(self, token: int) -> bytes:
        """What a token says; the marks of thoughts and calls count as text also where they are control tokens."""
        piece = self._texts.get(token) or self._ready.loaded.piece(token)
        if not piece and model_marks.is_of_thoughts(name := self._ready.loaded.text_of(token)):
            return name.encode()
        return piece

    def _opened_thoughts(self, prompt: Sequence[int]) -> str:
        """The mark with which the model's template has already begun its thoughts, "" where it has not."""
        said = b"".join(map(self._token_bytes, prompt[-THINKING_TOKENS:])).decode("utf-8", "replace").rstrip()
        return next((one[0] for one in model_marks.THOUGHT_OPEN.finditer(said) if one.end() == len(said)), "")

    def _next_tokens(self) -> list[int]:
        """The next token, and those that can only follow it: all are evaluated together."""
        begun = self._sampler.skip() if self.count == 0 else []
        if begun:
            return begun
        if self._answer.is_thinking and self.count >= self._most_thoughts:
            self._most_thoughts = self._ask.max_tokens  # they are ended once, in the model's own words for it
            return self._end_of_thoughts()
        token = self._sampler.draw()
        if self._ask.is_measured:
            self._drawn = self._sampler.probability(token)
        if not self._sampler.is_constrained and self._answer.begins_call(self._ready.loaded.piece(token)):
            self._sampler.constrain(self._ready.grammar(self._ask.tools, self._family))
        return [self._sampler.settle(token), *self._sampler.skip()]

    def _end_of_thoughts(self) -> list[int]:
        loaded, mark = self._ready.loaded, model_marks.closing(self._answer.opened)
        if mark == model_marks.MESSAGE_END:
            parts = re.findall(r"<[^>]*>|[^<]+", mark + model_marks.SPOKEN[2])
        else:
            parts = [mark] if self._answer.opened in model_marks.THOUGHT_CHANNELS else ["\n", mark, "\n\n"]
        known = ((part, loaded.token_of(part)) for part in parts)
        return [token for part, one in known for token in ([one] if one >= 0 else loaded.tokens(part))]


def _tokens_of(loaded: LoadedModel, marks: Sequence[str]) -> dict[str, int]:
    """Those marks that are a token of their own which says nothing as a piece."""
    found = {mark: loaded.token_of(mark) for mark in marks if mark}
    return {mark: token for mark, token in found.items() if token >= 0 and not loaded.piece(token)}
