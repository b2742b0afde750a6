"""Compaction and pruning: what of a long conversation is sent, and that nothing of it is lost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_budget import Desk

from appliance.clock import monotonic_s, sleep_s
from appliance.errors import Conflict, Unavailable
from appliance.prompt import pruning
from appliance.prompt.budget import Budget, BudgetRows
from appliance.prompt.compaction import KEPT_EXCHANGES, TAKEN_CHARS, Compactor, by_rule, is_faithful
from appliance.prompt.pruning import STRATEGIES, WINDOW, Windows, cut_results, labelled, prune, size_of
from appliance.records import Ask, Cancel, Event, Finish, Measure, Message, Piece, Route, ToolCall
from appliance.runtime.paths import Home
from appliance.sessions.history import label

ROUTE = Route("small", "scripted", "s", 8192, "grammar")


@dataclass
class Writer:
    """Model port that says one thing, or fails."""

    says: str = ""
    asked: list[Ask] = field(default_factory=list)
    is_gone: bool = False

    def plan(self, pool: str) -> Sequence[Route]:
        if self.is_gone:
            raise Unavailable("no model")
        return (ROUTE,)

    def generate(self, route: Route, ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        self.asked.append(ask)
        yield Piece(self.says)
        yield Finish("stop")

    def measure(self, route: Route, ask: Ask) -> Measure:
        return Measure("s", {}, 0)


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    made = Desk(home)
    yield made
    made.store.close()


def talk(desk: Desk, exchanges: int, words: str = "the barn owl") -> None:
    for n in range(exchanges):
        desk.runs.append(Event(run=desk.run, kind="message", role="user", content=f"Question {n} about {words}?"))
        desk.runs.append(Event(run=desk.run, kind="message", role="assistant", content=f"Answer {n}: {words} sleeps."))


# -- compaction -----------------------------------------------------------------------------------------


@pytest.mark.covers("A-103")
def test_a_compaction_lists_what_it_covers_and_the_originals_stay(desk: Desk) -> None:
    talk(desk, 6)
    before = desk.runs.events(desk.run)
    says = "We spoke about the barn owl: it sleeps."
    event = Compactor(desk.runs, Writer(says)).compact(desk.run)
    assert (event.kind, event.content) == ("compaction", says)
    covered = [e.id for e in before[: -2 * KEPT_EXCHANGES]]
    assert event.input == {"covers": covered, "by": "model"}
    assert desk.runs.events(desk.run)[: len(before)] == before
    messages = desk.runs.recent(desk.run, 80)
    assert says in messages[0].content and [m.content for m in messages[1:]] == [e.content for e in before[-2 * KEPT_EXCHANGES :]]


@pytest.mark.covers("A-103")
def test_the_next_compaction_covers_the_one_before(desk: Desk) -> None:
    talk(desk, 6)
    compactor = Compactor(desk.runs, Writer("", is_gone=True))
    first = compactor.compact(desk.run)
    talk(desk, 4, "the tawny owl")
    second = compactor.compact(desk.run)
    assert {*(first.input or {})["covers"], first.id} < set((second.input or {})["covers"])
    shown = [m.content for m in desk.runs.recent(desk.run, 80)]
    assert len(shown) == 1 + 2 * KEPT_EXCHANGES and "Question 0 about the barn owl" in shown[0]  # by way of the first one


@pytest.mark.covers("A-102")
def test_the_model_that_summarizes_reads_the_summary_before_and_the_newest_of_the_rest(desk: Desk) -> None:
    talk(desk, 6)
    first = Compactor(desk.runs, Writer("We spoke about the barn owl Hugo: it sleeps.")).compact(desk.run)
    talk(desk, 40, "the tawny owl " * 20)
    writer = Writer("We spoke about owls.")
    Compactor(desk.runs, writer).compact(desk.run)
    told = writer.asked[0].messages[0].content
    assert told.startswith(f"Before: {first.content}\n") and "Answer 37" in told and "Question 0 about the tawny" not in told
    assert len(told) < TAKEN_CHARS + 200


@pytest.mark.covers("A-102")
@pytest.mark.parametrize("says", ["", "Bananas cost twelve euros in Paris since Tuesday.", "owl " * 2000])
def test_a_summary_that_is_none_is_made_by_rule(desk: Desk, says: str) -> None:
    talk(desk, 5)
    event = Compactor(desk.runs, Writer(says)).compact(desk.run)
    assert (event.input or {})["by"] == "rule"
    assert "asked: Question 0 about the barn owl?" in event.content and "answered: Answer 2" in event.content


def test_there_must_be_something_to_summarize(desk: Desk) -> None:
    talk(desk, KEPT_EXCHANGES + 1)
    with pytest.raises(Conflict, match="too little"):
        Compactor(desk.runs, Writer("x")).compact(desk.run)


@pytest.mark.covers("A-102")
def test_a_chat_that_nears_its_limit_is_summarized_in_the_background(desk: Desk) -> None:
    talk(desk, 12)
    compactor = Compactor(desk.runs, Writer("We spoke about the barn owl."))
    budget = Budget(desk.packets, BudgetRows(desk.views, desk.entries), full=compactor.start)
    scene = desk.scene(1000, layout="chat", messages=tuple(desk.runs.recent(desk.run, 80)))
    packet = budget.assemble(scene)
    budget.answered(scene, packet, "ok", "", Finish("stop", prompt_tokens=600))
    sleep_s(0.05)
    assert [e for e in desk.runs.events(desk.run) if e.kind == "compaction"] == []
    budget.answered(scene, packet, "ok", "", Finish("stop", prompt_tokens=850))
    end_s = monotonic_s() + 60
    while not [e for e in desk.runs.events(desk.run) if e.kind == "compaction"] and monotonic_s() < end_s:
        sleep_s(0.02)
    made = [e for e in desk.runs.events(desk.run) if e.kind == "compaction"]
    assert len(made) == 1 and len(desk.runs.recent(desk.run, 80)) == 1 + 2 * KEPT_EXCHANGES
    compactor.close()
    assert not compactor.start(desk.run)


@pytest.mark.covers("A-102")
def test_it_can_be_switched_off_and_waits_behind_people(desk: Desk) -> None:
    talk(desk, 8)
    writer = Writer("We spoke about the barn owl.")
    Compactor(desk.runs, writer).compact(desk.run, is_background=True)
    assert writer.asked[0].is_background and writer.asked[0].purpose == "compaction"


def test_a_rule_keeps_the_beginning_and_the_newest_within_its_limit() -> None:
    events = [Event(run="r", kind="message", role="user", content=f"{n} " + "word " * 30) for n in range(80)]
    text = by_rule(events)
    assert len(text) < 2200 and text.startswith("- asked: 0 ") and "- asked: 79 " in text and "\n- …\n" in text


@pytest.mark.parametrize(
    ("summary", "want"), [("", False), ("The owl sleeps in the barn.", True), ("Aliens landed near Rome yesterday.", False)]
)
def test_a_summary_is_in_the_words_of_what_it_summarizes(summary: str, want: bool) -> None:
    assert is_faithful(summary, "Person: where does the owl sleep?\nOwl: it sleeps in the old barn behind the house.") is want


def test_a_fork_from_before_a_compaction_knows_nothing_of_it(desk: Desk) -> None:
    talk(desk, 6)
    head = desk.runs.get(desk.run).head
    Compactor(desk.runs, Writer("We spoke about the barn owl.")).compact(desk.run)
    desk.runs.set_head(desk.run, head)
    assert len(desk.runs.recent(desk.run, 80)) == 12


# -- pruning ----------------------------------------------------------------------------------------------


def conversation(count: int, size: int = 100) -> list[Message]:
    made = []
    for n in range(count):
        call = ToolCall(f"c{n}", "look", {"at": "x"})
        made += [
            Message("user", f"u{n} " + "x" * size),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "r" * size, tool_call_id=f"c{n}"),
            Message("assistant", f"a{n} " + "x" * size),
        ]
    return made


@pytest.mark.covers("B-064", "E-232")
def test_a_result_over_fifty_thousand_characters_is_cut_with_a_note() -> None:
    long, fine = Message("tool", "x" * 50_001, tool_call_id="a"), Message("tool", "x" * 50_000, tool_call_id="b")
    said = Message("user", "y" * 60_000)
    cut, same, other = cut_results([long, fine, said])
    assert cut.content.startswith("x" * 50_000 + "\n[cut: 50000 of 50001") and same is fine and other is said


@pytest.mark.covers("B-064", "A-104")
@pytest.mark.parametrize(("window", "want"), [(200_000, 176_313 - 100), (8192, 6451 - 100), (0, 176_313 - 100)])
def test_the_answers_room_and_a_tenth_of_the_rest_stay_free(window: int, want: int) -> None:
    assert pruning.room_of(window, 100, 0.9) == want


@pytest.mark.covers("B-064", "E-233")
def test_a_window_that_cannot_be_asked_for_is_the_last_known_one_or_the_default() -> None:
    windows = Windows()
    assert windows.window_of("m", 0) == WINDOW == 200_000
    assert windows.window_of("m", 8192) == 8192 and windows.window_of("m", 0) == 8192 and windows.window_of("other", 0) == 200_000


@pytest.mark.covers("B-064", "E-232")
def test_the_oldest_after_the_first_go_and_the_place_of_the_cut_seldom_moves() -> None:
    firsts, all_of = [], conversation(40)
    for count in range(20, 41):
        kept = prune(all_of[: 4 * count], 3000).messages
        assert kept[0] == all_of[0] and kept[-1] == all_of[4 * count - 1] and sum(map(size_of, kept)) <= 3000
        firsts.append(kept[1].content)
    assert len(set(firsts)) < 12


@pytest.mark.covers("A-104")
def test_defaults_of_pruning() -> None:
    assert size_of(Message("user", "hi"), 4) == 10 and size_of(Message("user", "x" * 100), 4) == 25
    assert (pruning.FIRST, pruning.LAST) == (2, 10) and STRATEGIES[0] == "opening"
    system = Message("system", "You are an owl.")
    kept = prune([system, *conversation(20)], 800).messages
    assert kept[0] == system and kept[-1].content.startswith("a19 ")


@pytest.mark.covers("A-104")
def test_each_strategy_keeps_what_it_promises() -> None:
    said = [Message(role, f"{role} {n} " + "x" * 80) for n in range(30) for role in ("user", "assistant")]  # type: ignore[arg-type]
    ends = prune(said, 1000, strategy="ends").messages
    assert ends[:2] == said[:2] and ends[2:] == said[-10:]
    recent = prune(said, 500, strategy="recent").messages
    assert recent == said[-len(recent) :] and said[0] not in recent
    done = [*said[:10], *conversation(1), *said[10:]]
    important = prune(done, 600, strategy="important").messages
    assert any(m.role == "tool" for m in important) and important[-1] == said[-1]


@given(st.sampled_from(STRATEGIES), st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(20, 2000))
def test_what_is_sent_is_a_valid_conversation_that_fits_or_the_newest_step(strategy: str, sizes: list[int], room: int) -> None:
    told = [m for n, size in enumerate(sizes) for m in conversation(1, size)]
    kept = prune(told, room, strategy=strategy).messages  # type: ignore[arg-type]
    places = [next(i for i, m in enumerate(told) if m is k) for k in kept]
    assert places == sorted(places) and any(m.role == "user" for m in kept)
    open_calls: set[str] = set()
    for message in kept:
        if message.role == "tool":
            assert message.tool_call_id in open_calls
        open_calls |= {call.id for call in message.tool_calls}
    assert {call.id for m in kept for call in m.tool_calls} == {m.tool_call_id for m in kept if m.role == "tool"}
    newest = [m for m in told[-4:] if m in kept]
    assert newest and (sum(map(size_of, kept)) <= room or len(kept) <= 4)


def test_a_long_loop_of_one_prompt_loses_its_oldest_steps() -> None:
    steps = [m for m in conversation(30) if m.role != "user"]
    kept = prune([Message("user", "do it"), *steps], 1500).messages
    assert kept[0].content == "do it" and kept[-1] == steps[-1] and 5 < len(kept) < 60
    assert sum(map(size_of, kept)) <= 1500


def test_speakers_are_named_when_there_are_several() -> None:
    ada, bob = Message("user", "hi", channel="slack", sender_id="ada"), Message("user", "ho", channel="mail", sender_id="bob")
    answer = Message("assistant", "hello")
    assert labelled([ada, answer, ada], label) == [ada, answer, ada]
    assert [m.content for m in labelled([ada, answer, bob], label)] == ["[slack / ada]\nhi", "hello", "[mail / bob]\nho"]
