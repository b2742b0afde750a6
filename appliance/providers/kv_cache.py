"""Which tokens llama.cpp still remembers, per conversation, so that only new ones are evaluated.

A sequence belongs to a slot (`Ask.slot`) until it is needed elsewhere. Where background work shares the
context with conversations, some are for it alone, so that it never takes their place; when the window
itself is full, what must give way is put aside in memory and brought back, or evaluated again when memory
is short. Evaluating the same tokens in other chunks gives slightly other numbers (llama.cpp's kernels differ
by batch size), so a chunk that was interrupted is evaluated again as it was. What the next token is drawn from behind the
last few prompts is kept, too: a prompt that comes again is not evaluated at all. Owns the books; the memory
itself is llama.cpp's. One thread at a time, the holder of the turn.
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from appliance.errors import Cancelled, TooLarge, Unavailable
from appliance.providers import memory_room
from appliance.providers.llama_library import BACKGROUND_BATCH, FULL, LoadedModel

WORTH_SHARING = 8  # tokens: a template's first words are in every prompt
FOR_BACKGROUND = 2  # sequences that only background work uses
LEAVE_FREE_BYTES = 200_000_000  # memory that putting aside does not touch
ENDS_BYTES = 1_000_000  # of numbers behind whole prompts; one has 0.2 MB in the bundled model, at most 0.6 in others

MARKS_BYTES = 256_000_000  # of partial states in all: one has 50 MB in a model of 4 billion
KEPT_MARKS = 4  # of a sequence

Stop = Callable[[], bool]


@dataclass
class HeldSequence:
    """One sequence of the context: whose it is, and the tokens it holds in order.

    `is_active` while an answer is being made with it, paused or not. `aside` is its state when it had to
    leave the window; `lost` are tokens that must be evaluated again before it can go on. `marks` are the partial states of a
    recurrent model behind its first so many tokens: the only places that it can go back to.
    """

    id: int
    slot: str | None = None
    tokens: list[int] = field(default_factory=list)
    used: int = 0
    is_background: bool = True
    is_active: bool = False
    aside: bytes = b""
    lost: list[int] = field(default_factory=list)
    marks: dict[int, bytes] = field(default_factory=dict)

    def reach(self, length: int, *, is_recurrent: bool) -> int:
        """How many of its first `length` tokens it can be cut to."""
        if not is_recurrent or length == len(self.tokens):
            return length
        return max((at for at in self.marks if at <= length), default=0)


class Sequences:
    """Hands out sequences and keeps their books exact, also when an evaluation is stopped half-way."""

    def __init__(self, loaded: LoadedModel, reserved: int) -> None:
        """`reserved` sequences are for background work alone, the others for conversations."""
        self._loaded = loaded
        self._reserved = reserved
        self._held = [HeldSequence(i) for i in range(loaded.sequences)]
        self._ends: deque[tuple[list[int], bytes]] = deque()
        self._ticks = itertools.count(1)

    def reserve(self, count: int) -> None:
        """From now on the last `count` sequences are for background work."""
        self._reserved = count
        for held in self._held[-count:]:
            if not held.is_active:
                self._drop_tokens(held)
                held.slot = None

    def place(self, slot: str, prompt: Sequence[int], is_background: bool) -> HeldSequence:
        """The slot's sequence, holding the longest known beginning of `prompt` and nothing else.

        At least the last token is left to evaluate, since only evaluation yields the next one, unless that is known (`end_of`).
        """
        own = self._find_own(slot) or self._free_one(is_background)
        own.slot, own.used, own.is_background, own.is_active = slot, next(self._ticks), is_background, True
        if own.aside:
            self._bring_back(own, common(own.tokens, prompt) > 0)
        own.lost = []
        end = self._known_end(prompt)
        most = len(prompt) - (0 if end else 1)
        found = {h.id: self._reach(h, min(common(h.tokens, prompt), most)) for h in self._held if not h.aside}
        donor = max((h for h in self._held if not h.aside), key=lambda h: found[h.id])
        keep, shared = found[own.id], found[donor.id]
        if donor is not own and (shared > keep + WORTH_SHARING or (end and shared == len(prompt) > keep)):
            self._loaded.clear(own.id)
            self._loaded.copy(donor.id, own.id, shared)
            own.tokens, own.marks = list(donor.tokens), dict(donor.marks)
            if not self._loaded.is_recurrent:
                del own.tokens[shared:]
            keep = shared
        self.cut(own, keep)
        return own

    def _reach(self, held: HeldSequence, length: int) -> int:
        return held.reach(length, is_recurrent=self._loaded.is_recurrent)

    def mark(self, held: HeldSequence) -> None:
        """Let a recurrent model go back to where a sequence is now. The first mark of a sequence stays, and the last ones."""
        at, loaded = len(held.tokens), self._loaded
        if not loaded.is_recurrent or not at or at in held.marks:
            return
        size = loaded.state_bytes(held.id, is_partial=True)
        if size > MARKS_BYTES // KEPT_MARKS or memory_room.free_bytes() < LEAVE_FREE_BYTES + 2 * size:
            return
        held.marks[at] = loaded.save(held.id, is_partial=True)
        while len(held.marks) > KEPT_MARKS:
            del held.marks[sorted(held.marks)[1]]
        for other in sorted(self._held, key=lambda h: h.used):
            if sum(len(state) for one in self._held for state in one.marks.values()) <= MARKS_BYTES:
                break
            if other is not held:
                other.marks.clear()

    def end_of(self, held: HeldSequence, prompt: Sequence[int]) -> bytes:
        """The numbers that the next token is drawn from, where a sequence holds all of a prompt that came before; else b""."""
        return self._known_end(prompt) if len(held.tokens) == len(prompt) else b""

    def keep_end(self, prompt: Sequence[int]) -> None:
        """Keep those of a prompt that was evaluated to its end just now, in place of what was kept for longest."""
        if self._known_end(prompt):
            return
        self._ends.append((list(prompt), self._loaded.copy_row(-1)))
        while sum(len(row) for _, row in self._ends) > ENDS_BYTES:
            self._ends.popleft()

    def _known_end(self, prompt: Sequence[int]) -> bytes:
        return next((row for tokens, row in self._ends if tokens == prompt), b"")

    def release(self, held: HeldSequence) -> None:
        """The answer is over; the sequence stays until its place is needed."""
        held.is_active = False
        held.lost = []

    def cut(self, held: HeldSequence, length: int) -> None:
        """Forget all but the first `length` tokens, or what of them the model can keep."""
        if length >= len(held.tokens) and length:
            return
        if not length or not self._loaded.cut(held.id, length):
            length = self._roll_back(held, length)
        del held.tokens[length:]
        held.marks = {at: state for at, state in held.marks.items() if at <= length}

    def _roll_back(self, held: HeldSequence, length: int) -> int:
        """Go back to the last mark within the first `length` tokens, or to nothing; how many tokens are left."""
        at = max((mark for mark in held.marks if mark <= length), default=0)
        if at and self._loaded.restore(held.id, held.marks[at], is_partial=True) and self._loaded.cut(held.id, at):
            return at
        self._loaded.clear(held.id)
        return 0

    def adopt(self, held: HeldSequence, tokens: Sequence[int], state: bytes | memoryview) -> bool:
        """Let a sequence hold a saved state; False when it has no room, or llama.cpp does not take it."""
        self._drop_tokens(held)
        while not self._loaded.restore(held.id, state):
            taken = sum(len(h.tokens) for h in self._held if not h.aside)
            if taken + len(tokens) <= self._loaded.window or not self._make_room(held):
                return False
        held.tokens = list(tokens)
        self.mark(held)
        return True

    def size_bytes(self, held: HeldSequence) -> int:
        """Size of what `snapshot` would return."""
        return self._loaded.state_bytes(held.id)

    def snapshot(self, held: HeldSequence) -> bytes:
        """The state of a sequence, for `adopt`."""
        return self._loaded.save(held.id)

    def extend(self, held: HeldSequence, tokens: Sequence[int], should_stop: Stop, rows: int = 1) -> None:
        """Evaluate more tokens; Cancelled between chunks or inside one, TooLarge when nothing can make room.

        The next token can be drawn behind each of the last `rows`, as far as they are in one chunk (see `chunk`).
        `should_stop` is asked before every chunk and may let others go first; whatever they displaced is
        brought back. After an error the sequence still holds what was evaluated before it.
        """
        chunk = self.chunk(held)
        for i in range(0, len(tokens), chunk):
            part = tokens[i : i + chunk]
            self._evaluate_part(held, part, should_stop, rows if i + chunk >= len(tokens) else 0)

    def chunk(self, held: HeldSequence) -> int:
        """The number of tokens that are evaluated at once."""
        return min(BACKGROUND_BATCH, self._loaded.batch) if held.is_background else self._loaded.batch

    def _evaluate_part(self, held: HeldSequence, part: Sequence[int], should_stop: Stop, rows: int) -> None:
        while True:
            if should_stop():
                raise Cancelled("stopped before the answer was complete")
            if held.aside or held.lost:
                self._recover_lost(held, should_stop)
            try:
                code = self._loaded.evaluate(part, held.id, len(held.tokens), rows=rows)
            except Unavailable:
                self._drop_tokens(held)
                raise
            if code == 0:
                held.tokens += part
                return
            self._remove_unfinished(held)
            # Stopped, or interrupted for somebody more urgent: `should_stop` tells which.
            if code == FULL and not self._make_room(held):
                raise TooLarge(f"the window of {self._loaded.window} tokens is full", hint="start a new conversation")

    def _recover_lost(self, held: HeldSequence, should_stop: Stop) -> None:
        """Bring back what others displaced while we rested."""
        if held.aside:
            self._bring_back(held, True)
        lost, held.lost = held.lost, []
        for i in range(0, len(lost), BACKGROUND_BATCH):
            self._evaluate_part(held, lost[i : i + BACKGROUND_BATCH], should_stop, 0)

    def _bring_back(self, held: HeldSequence, is_wanted: bool) -> None:
        state, tokens, marks = held.aside, held.tokens, held.marks
        held.aside = b""
        if is_wanted and self.adopt(held, tokens, state):
            held.marks |= marks
        else:
            held.tokens = []
            if held.is_active and is_wanted:
                held.lost = tokens

    def _remove_unfinished(self, held: HeldSequence) -> None:
        """Remove what an unfinished evaluation may have left behind our books."""
        if not self._loaded.cut(held.id, len(held.tokens)):
            left = self._roll_back(held, len(held.tokens))
            held.lost, held.tokens = held.tokens[left:], held.tokens[:left]

    def _find_own(self, slot: str) -> HeldSequence | None:
        return next((h for h in self._held if h.slot == slot and not h.is_active), None)

    def _free_one(self, is_background: bool) -> HeldSequence:
        others = len(self._held) - self._reserved
        mine = self._held[others:] if is_background else self._held[:others]
        victim = min((h for h in mine if not h.is_active), key=lambda h: (h.slot is not None, h.used))
        victim.slot, victim.lost = None, []  # its tokens stay: the new owner may share a beginning with it
        return victim

    def _make_room(self, keeper: HeldSequence) -> bool:
        """Take one other sequence out of the window; False when no other holds anything.

        Idle ones first, background before conversations, the longest unused first. Forgotten is only what
        is idle and no conversation that background work would displace.
        """
        others = [h for h in self._held if h is not keeper and h.tokens and not h.aside]
        if not others:
            return False
        victim = min(others, key=lambda h: (h.is_active, not h.is_background, h.used))
        if victim.is_active or (keeper.is_background and not victim.is_background):
            self._put_aside(victim)
        else:
            self._drop_tokens(victim)
        return True

    def _put_aside(self, held: HeldSequence) -> None:
        """Move a sequence's state out of the window, or note its tokens when memory is short."""
        tokens, marks = held.tokens, held.marks
        state = (
            self._loaded.save(held.id)
            if memory_room.free_bytes() > LEAVE_FREE_BYTES + 2 * self._loaded.state_bytes(held.id)
            else b""
        )
        self._drop_tokens(held)
        if state:
            held.tokens, held.aside, held.marks = tokens, state, marks
        elif held.is_active:
            held.lost = tokens

    def _drop_tokens(self, held: HeldSequence) -> None:
        self._loaded.clear(held.id)
        held.tokens, held.aside, held.marks = [], b"", {}


def common(known: Sequence[int], wanted: Sequence[int]) -> int:
    """Length of the common beginning."""
    length = min(len(known), len(wanted))
    if known[:length] == wanted[:length]:
        return length
    return next(i for i in range(length) if known[i] != wanted[i])
