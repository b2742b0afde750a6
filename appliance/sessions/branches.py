"""Branches: the tree that events make, inside one run and across its forks.

Reads the tree, forks a run and jumps to another branch of one; nothing is copied and nothing goes away. A fork is a run
of its own that begins where it left the other one: views are copied as they are now, texts and events are not. A jump
moves the head of a run, so that what comes next hangs elsewhere. Only places where every call has its result can
be gone on from. Owns no table; knows nothing about who asks.
"""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput, Conflict, NotFound
from appliance.knowledge.views import Views
from appliance.records import Event
from appliance.runtime.methods import method
from appliance.runtime.signatures import Range
from appliance.sessions.runs import RUNNING, Run, Runs, Start
from appliance.store.database import Store

Named = Annotated[str, "its name or id, or the beginning or end of the id"]
SHOWN = 80  # characters of a branch's first words


class Branch(Struct, frozen=True):
    """One branch: where it ends, where it left which other one (0: at the beginning), and how it begins.

    `is_head` says that the run goes on here. A fork without an event of its own has `seq` 0.
    """

    run: str
    alias: str
    seq: int
    from_run: str
    from_seq: int
    text: str
    at_ms: int
    is_head: bool
    depth: int = 0


class Branches:
    """Reads and grows the tree."""

    def __init__(self, store: Store, runs: Runs, views: Views) -> None:
        self._store = store
        self._runs = runs
        self._views = views

    # -- reading ------------------------------------------------------------------------------------

    def path(self, ref: str, seq: int = 0) -> list[Event]:
        """A run's present branch, or the one that ends at a number of it, from its very beginning on (A-215)."""
        return self.page(ref, seq)[0]

    def page(self, ref: str, seq: int = 0, offset: int = 0, limit: int = 100_000) -> tuple[list[Event], int]:
        """Some events of such a branch, and how many it has."""
        run = self._runs.get(ref)
        line = self._runs.record.path(self._event_at(run, seq).id if seq else run.head, has_texts=False)
        return self._runs.record.some([event.id for event in line[offset : offset + limit]]), len(line)

    @method("run.tree", access="own")
    def tree(self, run: Named) -> list[Branch]:
        """Every branch of a run and of its forks: where it ends, which other one it left, how it begins."""
        # Also of what it was forked off; each run's by number, forks after their run.
        root = self._runs.get(run)
        while root.parent is not None:
            try:
                root = self._runs.get(root.parent)
            except NotFound:
                break  # deleted, but for what this one needs
        found: list[Branch] = []
        waiting = [(root, 0)]
        while waiting:  # each run's, then those of its forks; a line of forks may be longer than a stack is deep
            one, depth = waiting.pop()
            found += (replace(branch, depth=depth) for branch in self._branches_of(one))
            waiting += ((fork, depth + 1) for fork in reversed(self._runs.forks(one.id)))
        return found

    def _branches_of(self, run: Run) -> Iterable[Branch]:
        links = self._runs.record.links(run.id)
        if not links:
            origin = self._runs.record.get(run.head) if run.head is not None else None
            where = (origin.run, origin.seq) if origin else ("", 0)
            yield Branch(run.id, run.alias, 0, *where, run.title[:SHOWN], run.created_ms, is_head=True)
            return
        known = {at: (seq, parent) for at, seq, parent, *_ in links}
        children: dict[int | None, list[int]] = {}
        for at, _, parent, *_ in links:
            children.setdefault(parent, []).append(at)
        for leaf in (at for at in known if at not in children):
            start: int = leaf
            while (up := known[start][1]) in known and up is not None and children[up][0] == start:
                start = up
            end, said = self._runs.record.get(leaf), self._runs.record.get(self._first_words(links, start, leaf))
            split = known[start][1]
            origin = self._runs.record.get(split) if split is not None else None
            if end is not None:
                where = (origin.run, origin.seq) if origin else ("", 0)
                text = " ".join((said or end).content.split())[:SHOWN]
                yield Branch(run.id, run.alias, end.seq, *where, text, end.at_ms, is_head=leaf == run.head)

    @staticmethod
    def _first_words(links: list[tuple[int, int, int | None, str, str]], start: int, leaf: int) -> int:
        """The first message between two events of one branch, else the first event."""
        parents = {at: parent for at, _, parent, *_ in links}
        spoken = {at for at, _, _, kind, _ in links if kind == "message"}
        found, at = start, leaf
        while at != start:
            found = at if at in spoken else found
            up = parents[at]
            if up is None:
                break
            at = up
        return start if start in spoken else found

    # -- growing ------------------------------------------------------------------------------------

    @method("run.fork", access="own")
    def fork(
        self,
        run: Named,
        seq: Annotated[int, Range(0, 2**53), "after this event; 0 is where the run stands now"] = 0,
        alias: Annotated[str, "the name of the new run"] = "",
    ) -> Run:
        """A new run that begins where this one stands; nothing is copied but what it sees, and nothing goes away."""
        # While an answer is given that is before its prompt. BadInput where a call has no result yet.
        known = self._runs.get(run)
        self._runs.people.require_open(known.session)
        if seq:
            head: int | None = self._require_whole(known, self._event_at(known, seq)).id
        else:
            head = self._standing_head(known)
        with self._store.write(durable=True):
            start = Start(alias, known.role, known.settings, head, self._turns_until(known, head))
            made = self._runs.begin(known.session, "chat", parent=known.id, title=known.title, start=start)
            self._views.fork(known.id, made.id)
        return made

    @method("run.jump", access="own")
    def jump(self, run: Named, seq: Annotated[int, Range(0, 2**53), "after this event; 0 is the beginning"]) -> Run:
        """Go on after another event of a run: what is said next begins a branch there, the old one stays."""
        # Conflict while prompts are open. What the run sees of entries stays as it is.
        known = self._runs.get(run)
        self._runs.people.require_open(known.session)
        with self._store.write(durable=True):
            if self._runs.queue(known.id):
                raise Conflict(f"thread {known.id} has prompts that are not done with", hint="wait for them, or stop them first")
            head = self._require_whole(known, self._event_at(known, seq)).id if seq else self._fork_origin(known)
            if head != known.head:
                self._runs.set_head(known.id, head)
        return self._runs.get(known.id)

    # -- inside -------------------------------------------------------------------------------------

    def _event_at(self, run: Run, seq: int) -> Event:
        found = self._runs.record.events_of(run.id, after=seq - 1, limit=1) if seq > 0 else []
        if not found or found[0].seq != seq:
            raise NotFound(f"thread {run.id} has no event {seq}", hint=f"its events are numbered up to {run.last_seq}")
        return found[0]

    def _fork_origin(self, run: Run) -> int | None:
        """Where a run began: in another one when it was forked."""
        first = self._runs.record.events_of(run.id, limit=1)
        return first[0].parent if first else run.head

    def _require_whole(self, run: Run, event: Event) -> Event:
        """The event itself; BadInput when a call before it waits for its result."""
        waiting: set[str] = set()
        last = 0
        for one in self._runs.record.path(event.id, has_texts=False):
            if one.kind == "tool_use":
                waiting.add(one.call_id)
            elif one.kind == "tool_result":
                waiting.discard(one.call_id)
            if not waiting and one.run == run.id:
                last = one.seq
        if waiting:
            hint = f"{last} is the last place before it" if last else "begin at 0"
            raise BadInput(f"event {event.seq} of thread {run.id} stands between a call and its result", hint=hint)
        return event

    def _standing_head(self, run: Run) -> int | None:
        """The head of a run; while one is being answered what was before its prompt."""
        busy = [loop for loop in self._runs.queue(run.id) if loop.status >= RUNNING]
        if not busy:
            waiting = {loop.prompt for loop in self._runs.queue(run.id)}
            path = self._runs.record.path(run.head, limit=len(waiting) + 1, has_texts=False)
            return next((event.id for event in reversed(path) if event.id not in waiting), None)
        prompt = self._runs.record.get(busy[0].prompt)
        return prompt.parent if prompt is not None else self._fork_origin(run)

    def _turns_until(self, run: Run, head: int | None) -> int:
        """How many turns the lineage has had on the branch that ends there (R-039)."""
        path = self._runs.record.path(head, has_texts=False)
        last = max((event.turn for event in path if event.turn is not None), default=0)
        numbers = [turn["number"] for turn in self._runs.turns(run.id) if turn["id"] <= last]
        return max(numbers, default=run.turn_base)
