"""What fills a packet and how it is made to fit: numbers, the table, what is lowered and in what order."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_tools import replace
from stores import new_store

from appliance.clock import this_process
from appliance.errors import NotFound, TooLarge, Unavailable
from appliance.knowledge.contents import Content
from appliance.knowledge.entries import By, Entries
from appliance.knowledge.schemes import Schemes
from appliance.knowledge.search import Search
from appliance.knowledge.verbs import Verbs
from appliance.knowledge.views import Actor, Views
from appliance.prompt.budget import Budget, BudgetRows
from appliance.prompt.entry_blocks import Blocks
from appliance.prompt.inspection import telemetry
from appliance.prompt.packet import More, Packets
from appliance.prompt.packet_types import Packet, PacketScene
from appliance.prompt.run_log import Chronicle
from appliance.prompt.sent_copies import Copies, _split_pieces
from appliance.records import Ask, Event, Finish, Inbound, Message, Part, Route, ToolCall, ToolSpec
from appliance.runtime.paths import Home
from appliance.sessions.runs import Runs
from appliance.text import tokens
from appliance.text.tokens import PromptTable, Share, estimate, is_too_long

TEXT = "The owl sleeps in the barn. "


class NoSkills:
    """Skills port without any."""

    def lines(self) -> list[str]:
        return []


class Desk:
    """A run with everything that a packet needs, on a real database."""

    def __init__(self, home: Home) -> None:
        self.store = new_store(home.database)
        self.entries, self.views, kinds = Entries(self.store), Views(self.store), Schemes()
        self.runs = Runs(self.store, this_process().encode())
        self.runs.touch_session(Inbound("local", "ada", "", "m0", 1))
        self.run = self.runs.begin("local:ada", "ask").id
        self.verbs = Verbs(self.store, self.entries, self.views, kinds)
        self.blocks = Blocks(self.store, self.entries, kinds)
        chronicle = Chronicle(self.store, lambda run: self.runs.events(run))
        self.documents = [Part("SOUL", "I am an owl.")]
        self.packets = Packets(
            lambda: self.documents, Search(self.store), NoSkills(), more=More(blocks=self.blocks, chronicle=chronicle)
        )
        self.counted: list[int] = []
        self.copies = Copies(self.store)
        self.budget = Budget(self.packets, BudgetRows(self.views, self.entries, self.copies))

    def actor(self, turn: int) -> Actor:
        return Actor("model", self.run, 1, turn)

    def know(self, name: str, chars: int, turn: int, *, is_open: bool = True) -> None:
        """A fact that the run sees, opened in a turn or only summarized."""
        entry = self.entries.put(f"known://{name}", Content(body=(TEXT * chars)[:chars]), By("model"), scope=f"run:{self.run}")
        self.views.show(self.actor(turn), entry.id, "visible" if is_open else "summarized")

    def scene(self, window: int = 0, turn: int = 2, **more: object) -> PacketScene:
        route = Route("r", "p", "m", window, "tags")
        return replace(PacketScene(self.run, route, layout="entries", turn=turn, loop=1, prompt="Where is the owl?"), **more)

    def visible(self) -> list[str]:
        return [view.path for view in self.views.views_of(self.run, prefix="known", visibility="visible")]


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    made = Desk(home)
    yield made
    made.store.close()


# -- numbers --------------------------------------------------------------------------------------------


@pytest.mark.covers("R-159")
@pytest.mark.parametrize(("text", "want"), [(None, 0), ("", 0), ("a", 1), ("ab", 1), ("abc", 2), ("x" * 1001, 501)])
def test_an_estimate_is_characters_over_two_rounded_up(text: str | None, want: int) -> None:
    assert estimate(text) == want


@pytest.mark.covers("R-159")
def test_the_divisor_is_a_setting() -> None:
    assert estimate("x" * 100, 4) == 25 and tokens.of_chars(100, 0.5) == 200


@pytest.mark.covers("R-162")
@pytest.mark.parametrize(("window", "want"), [(100_000, 90_000), (1001, 900), (1, 0), (0, None)])
def test_a_prompt_may_fill_nine_tenths_of_a_known_window(window: int, want: int | None) -> None:
    assert tokens.ceiling_of(window) == want


@pytest.mark.parametrize(
    "text", ["The owl sleeps in the barn. " * 50, "käuzchen " * 80, "猫头鹰" * 200, "🦉" * 100, "0123456789" * 90, ""]
)
def test_no_text_has_more_tokens_than_bytes_and_prose_about_as_many_as_estimated(text: str) -> None:
    most = tokens.at_most(text)
    assert estimate(text) <= most <= max(len(text.encode()), estimate(text))
    if text.isascii() and " " in text:
        assert most <= 1.2 * estimate(text)


@pytest.mark.covers("E-145", "R-167")
@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("This model's maximum context length is 8192 tokens", True),
        ("the request exceeds the available context size", True),
        ("prompt is too long: 210000 tokens", True),
        ("token limit exceeded", True),
        ("input is too large for this model's context", True),
        ("rate limit exceeded", False),
        ("rate limit exceeded: too many tokens per minute", False),
        ("429", False),
        ("503 Service Unavailable", False),
        ("invalid API key", False),
        ("timeout after 30 s", False),
    ],
)
def test_a_context_that_is_too_long_is_told_from_other_trouble(text: str, want: bool) -> None:
    assert is_too_long(text) is want


@given(st.integers(0, 10**7), st.integers(-5, 10**7))
def test_a_count_that_cannot_be_one_teaches_nothing(chars: int, counted: int) -> None:
    found = tokens.density(chars, counted)
    assert found is None or 0.2 <= found <= 16


# -- the table ------------------------------------------------------------------------------------------


@pytest.mark.covers("R-160", "R-161", "R-163")
def test_the_table_lists_schemes_by_size_and_its_lines_add_up() -> None:
    shares = [
        ("known", True, Share(60, 10)),
        ("file", True, Share(300, 20)),
        ("known", True, Share(40, 5)),
        ("url", False, Share(500, 30)),
    ]
    table = tokens.table(shares, system=100, ceiling=1000)
    assert table.usage == 100 + (10 + 20 + 5 + 30) + (50 + 280 + 35) == 530 and table.free == 470
    assert table.text().split("\n") == [
        "scheme | visible | tokens | %",
        "file | 1 | 300 | 30",
        "known | 2 | 100 | 10",
        "summarized: 1 entries, 30 tokens, 3%",
        "system: 100 tokens, 10%",
        "total: usage 530, ceiling 1000, free 470",
    ]
    assert Share(60, 10).more == 50


def test_a_table_without_a_ceiling_says_so() -> None:
    assert tokens.table([], 5, None).text().endswith("total: usage 5, no ceiling") and PromptTable().free is None


@pytest.mark.covers("R-160", "R-161", "R-163")
def test_what_the_packet_says_of_itself_is_what_it_holds(desk: Desk) -> None:
    desk.know("open", 1000, 1)
    desk.know("closed", 1000, 1, is_open=False)
    packet = desk.budget.assemble(desk.scene(100_000))
    known = desk.blocks.visible_items(desk.run).data
    visible, closed = (next(i for i in known if i.path.endswith(name)) for name in ("open", "closed"))
    assert visible.share.more == estimate(visible.full + "\n") and f'tokens="{visible.share.more}"' in packet.messages[0].content
    assert closed.share.summarized == estimate(closed.summary)
    line = packet.table.lines[0]
    assert (line.scheme, line.count, line.tokens) == ("known", 1, visible.share.visible)
    assert packet.table.summarized == 1 and packet.table.summarized_tokens == closed.share.summarized
    assert packet.table.text() in packet.messages[0].content
    assert abs(packet.table.usage - packet.tokens) < 0.1 * packet.tokens


@pytest.mark.covers("R-160", "R-161")
@pytest.mark.parametrize(("count", "chars"), [(200, 20), (30, 700), (3, 9000)])
def test_many_small_entries_are_counted_with_what_stands_around_them(desk: Desk, count: int, chars: int) -> None:
    for n in range(count):
        desk.know(f"n{n}", chars, 1)
    packet = desk.packets.assemble(desk.scene(10_000_000))
    assert abs(packet.table.usage - packet.tokens) < 0.05 * packet.tokens


@pytest.mark.covers("R-168")
def test_telemetry_has_the_last_turns_context_and_the_sum_of_prompts() -> None:
    turns = [{"prompt_tokens": 100, "output_tokens": 5}, {"prompt_tokens": None}, {"prompt_tokens": 140, "output_tokens": 7}]
    assert telemetry(turns) == {"context_tokens": 140, "prompt_tokens": 240, "output_tokens": 12}
    assert telemetry([]) == {"context_tokens": 0, "prompt_tokens": 0, "output_tokens": 0}


# -- before a call --------------------------------------------------------------------------------------


@pytest.mark.covers("R-166", "E-138")
def test_nothing_is_lowered_while_it_fits(desk: Desk) -> None:
    desk.know("old", 2000, 1)
    desk.know("new", 2000, 1)
    packet = desk.budget.assemble(desk.scene(100_000))
    assert not packet.is_over and packet.tokens > 2000 and len(desk.visible()) == 2
    assert "error://" not in packet.messages[0].content


@pytest.mark.covers("E-140", "R-162")
def test_without_a_known_window_nothing_is_enforced(desk: Desk) -> None:
    desk.know("huge", 400_000, 1)
    packet = desk.budget.assemble(desk.scene(0))
    assert packet.ceiling is None and not packet.is_over and desk.visible() == ["known://huge"]
    assert 'tokensFree="unlimited"' in packet.messages[0].content


@pytest.mark.covers("R-164", "E-141", "E-142", "E-146")
def test_what_the_turn_before_opened_is_summarized_whatever_its_status_and_nothing_else(desk: Desk) -> None:
    desk.know("early", 4000, 1)
    desk.know("late", 8000, 4)
    failed = desk.entries.put("error://bad", Content(body="x" * 4000), By("system"), scope=f"run:{desk.run}")
    desk.views.show(desk.actor(4), failed.id, "visible", "failed", 404, "not_found")
    before = {view.path: view.status for view in desk.views.views_of(desk.run)}
    packet = desk.budget.assemble(desk.scene(5000, turn=5))
    assert not packet.is_over and packet.tokens < 4500
    assert desk.visible() == ["known://early"]
    assert '<error path="error://bad" visibility="summarized" status="404"' in packet.messages[0].content
    assert {view.path: view.status for view in desk.views.views_of(desk.run) if view.path in before} == before
    note = desk.views.get(desk.run, "error://turn_5/budget/opened")
    assert (note.state, note.status) == ("failed", 413)
    assert "known://late" in desk.entries.get(note.path, scope=note.scope).body and "early" not in packet.blocks[-1].text


@pytest.mark.covers("R-164")
def test_what_counts_is_what_the_provider_said_of_the_turn_before(desk: Desk) -> None:
    desk.know("late", 4000, 1)
    first = desk.packets.assemble(desk.scene(100_000, turn=1))
    roomy = desk.scene(3000, before=replace(first, key=desk.scene(3000).key))
    assert desk.budget.assemble(replace(roomy, measured=900)).tokens < 2700  # an estimate alone would be over
    assert desk.visible() == ["known://late"]
    assert desk.budget.assemble(replace(roomy, measured=2900)).tokens < 2700
    assert desk.visible() == []


@pytest.mark.covers("R-164")
def test_a_prompt_that_leaves_no_room_is_shown_in_part_with_a_note(desk: Desk) -> None:
    packet = desk.budget.assemble(desk.scene(2500, prompt="Read this. " + "word " * 2000))
    assert packet.recovery.is_prompt_short and not packet.is_over
    assert 'visibility="summarized"' in packet.blocks[0].text and len(packet.blocks[0].text) < 800
    assert desk.views.get(desk.run, "error://turn_2/budget/prompt").status == 413


@pytest.mark.covers("R-164", "R-162", "E-139")
def test_what_cannot_be_made_to_fit_is_an_error_413_that_says_by_how_much(desk: Desk) -> None:
    for n in range(6):
        desk.know(f"old{n}", 900, 0)  # opened long ago: nothing of it may be closed
    with pytest.raises(TooLarge, match="more than the model may be sent") as caught:
        desk.budget.assemble(desk.scene(2001))
    size, over = (int(number) for number in re.findall(r"[0-9]+", caught.value.message))
    assert caught.value.status == 413 and over == size - 1800 > 0


def test_a_window_too_small_for_the_instructions_alone_says_so(desk: Desk) -> None:
    for layout in ("chat", "entries"):
        scene = desk.scene(2000, layout=layout, specs=(ToolSpec("get", "x" * 9000, {}),), messages=(Message("user", "hi"),))
        with pytest.raises(TooLarge, match="instructions, documents and tools alone") as caught:
            desk.budget.assemble(scene)
        assert caught.value.status == 413 and "window" in caught.value.hint


@pytest.mark.covers("E-143")
def test_after_a_crash_the_prompt_is_whole_again_when_there_is_room(desk: Desk) -> None:
    desk.know("late", 6000, 0)
    prompt = "Read this. " + "word " * 300
    short = desk.budget.assemble(desk.scene(5000, turn=2, prompt=prompt))
    assert short.recovery.is_prompt_short
    desk.views.demote(desk.actor(3), [view.entry for view in desk.views.views_of(desk.run)], "archived")
    again = desk.budget.assemble(desk.scene(5000, turn=3, prompt=prompt))  # a new process knows of no packet before
    assert not again.recovery.is_prompt_short and prompt in again.messages[0].content


def recovering(desk: Desk, turns: int, closing: int = 0) -> Packet:
    """So many turns with a prompt in part, in one of which something was closed."""
    for n in range(4):
        desk.know(f"old{n}", 1200, 0)
    scene = desk.scene(5400, prompt="Read this. " + "word " * 700)
    packet = desk.budget.assemble(scene)
    for turn in range(1, turns + 1):
        if turn == closing:
            desk.views.demote(desk.actor(turn), [desk.views.get(desk.run, "known://old0").entry], "archived")
        packet = desk.budget.assemble(replace(scene, turn=2 + turn, before=packet))
    return packet


@pytest.mark.covers("E-144")
def test_three_turns_that_free_nothing_end_in_413(desk: Desk) -> None:
    assert recovering(desk, 2).recovery.idle_turns == 2


@pytest.mark.covers("E-144")
def test_the_third_is_the_last(desk: Desk) -> None:
    with pytest.raises(TooLarge, match="3 turns"):
        recovering(desk, 3)


@pytest.mark.covers("E-144")
def test_closing_something_gives_three_more_turns(desk: Desk) -> None:
    assert recovering(desk, 4, closing=2).recovery.idle_turns == 2


@pytest.mark.covers("E-144")
def test_a_prompt_is_whole_again_as_soon_as_there_is_room(desk: Desk) -> None:
    packet = recovering(desk, 1)
    desk.views.demote(desk.actor(4), [view.entry for view in desk.views.views_of(desk.run, prefix="known")], "archived")
    prompt = "Read this. " + "word " * 700
    whole = desk.budget.assemble(desk.scene(5400, turn=4, prompt=prompt, before=packet))
    assert not whole.recovery.is_prompt_short and prompt in whole.messages[0].content


def test_the_earlier_conversation_goes_before_an_error(desk: Desk) -> None:
    for n in range(12):
        desk.runs.append(Event(run=desk.run, kind="message", role="assistant", content=f"{n} " + "said " * 100))
    packet = desk.budget.assemble(desk.scene(2000))
    assert not packet.is_over and "said said" not in packet.messages[0].content
    assert packet.notes == ("the earlier conversation was left out",)


def test_an_estimate_is_checked_once_with_the_routes_own_tokenizer_before_anything_is_lowered(desk: Desk) -> None:
    asked: list[Ask] = []

    def count(route: Route, ask: Ask) -> int:
        asked.append(ask)
        return sum(len(p.text) for p in ask.system) // 4 + len(ask.messages[0].content) // 4

    desk.know("late", 8000, 1)
    budget = Budget(desk.packets, BudgetRows(desk.views, desk.entries), count)
    packet = budget.assemble(desk.scene(4000))
    assert not packet.is_over and len(asked) == 1 and desk.visible() == ["known://late"]
    budget.assemble(desk.scene(4000))
    assert len(asked) == 1  # what was learnt holds


@pytest.mark.parametrize("layout", ["chat", "entries"])
def test_a_script_of_many_tokens_is_counted_before_it_is_sent(desk: Desk, layout: str) -> None:
    """Two characters a token is too few for it: the packet seems to fit, and would not."""
    asked: list[Ask] = []

    def count(route: Route, ask: Ask) -> int:
        asked.append(ask)
        return sum(len(text.encode()) for text in [*(p.text for p in ask.system), *(m.content for m in ask.messages)])

    budget, owls = Budget(desk.packets, BudgetRows(desk.views, desk.entries), count), "猫头鹰在谷仓里睡觉。"
    entry = desk.entries.put("known://cn", Content(body=owls * 100), By("model"), scope=f"run:{desk.run}")
    desk.views.show(desk.actor(1), entry.id, "visible")
    talk = [Message(role, owls * 10) for _ in range(5) for role in ("user", "assistant")]  # type: ignore[arg-type]
    window = 3200 if layout == "chat" else 4200  # the words of a packet of entries are longer
    packet = budget.assemble(desk.scene(window, layout=layout, messages=(*talk, Message("user", "?"))))
    assert asked and not packet.is_over and packet.tokens <= 0.9 * window
    assert sum(len(text.encode()) for text in [*(p.text for p in packet.system), packet.messages[0].content]) < 0.9 * window + 20
    if layout == "entries":
        assert desk.visible() == []
    else:
        assert 1 < len(packet.messages) < 11
    asked.clear()
    Budget(desk.packets, BudgetRows(desk.views, desk.entries), count).assemble(
        desk.scene(3200, layout="chat", messages=(Message("user", "hi"),))
    )
    assert asked == []  # what is short in any script is not counted


def test_no_message_is_left_out_of_a_chat_because_of_a_guess(desk: Desk) -> None:
    """The first prompt after a start: nobody knows yet how the route counts."""
    asked: list[Ask] = []

    def count(route: Route, ask: Ask) -> int:
        asked.append(ask)
        return (sum(len(p.text) for p in ask.system) + sum(len(m.content) for m in ask.messages)) // 4

    talk = [Message(role, "word " * 80) for _ in range(10) for role in ("user", "assistant")]  # type: ignore[arg-type]
    scene = desk.scene(3000, layout="chat", messages=(*talk, Message("user", "now?")))
    assert desk.budget.assemble(scene).notes  # nobody counts: it is estimated, and pruned
    packet = Budget(desk.packets, BudgetRows(desk.views, desk.entries), count).assemble(scene)
    assert packet.messages == scene.messages and packet.notes == () and len(asked) == 1


def test_a_route_that_cannot_count_leaves_the_estimate(desk: Desk) -> None:
    def count(route: Route, ask: Ask) -> int:
        raise Unavailable("gone")

    desk.know("late", 8000, 1)
    assert not Budget(desk.packets, BudgetRows(desk.views, desk.entries), count).assemble(desk.scene(4000)).is_over
    assert desk.visible() == []


# -- after dispatch -------------------------------------------------------------------------------------


@pytest.mark.covers("R-165", "E-142", "E-146")
def test_what_a_turn_opened_is_summarized_again_when_the_next_packet_would_not_fit(desk: Desk) -> None:
    desk.know("before", 2000, 1)
    scene = desk.scene(4000, turn=2)
    packet = desk.budget.assemble(scene)
    desk.know("opened", 9000, 2)
    desk.runs.append(Event(run=desk.run, kind="tool_result", role="tool", tool="get", call_id="c", content="the whole text"))
    lowered = desk.budget.dispatched(scene, packet, Finish("stop", prompt_tokens=packet.tokens))
    assert lowered == ("known://opened",) and desk.visible() == ["known://before"]
    assert desk.views.get(desk.run, "known://opened").status == 200
    assert desk.views.get(desk.run, "error://turn_2/budget/dispatched").status == 413
    after = desk.budget.assemble(replace(scene, turn=3, before=packet, measured=packet.tokens))
    assert not after.is_over and after.tokens != packet.tokens and "the whole text" in after.messages[0].content


@pytest.mark.covers("R-166")
def test_what_a_turn_opened_stays_open_while_it_fits(desk: Desk) -> None:
    scene = desk.scene(40_000, turn=2)
    packet = desk.budget.assemble(scene)
    desk.know("opened", 9000, 2)
    assert desk.budget.dispatched(scene, packet, Finish("stop")) == () and desk.visible() == ["known://opened"]


# -- the chat layout --------------------------------------------------------------------------------------


def test_a_chat_that_cannot_fit_is_an_error_413_and_one_that_was_pruned_says_so(desk: Desk) -> None:
    chat = desk.scene(1000, layout="chat", messages=(Message("user", "x" * 9000),))
    with pytest.raises(TooLarge):
        desk.budget.assemble(chat)
    talk = tuple(Message(role, "y" * 300) for _ in range(9) for role in ("user", "assistant"))  # type: ignore[arg-type]
    packet = desk.budget.assemble(desk.scene(2000, layout="chat", messages=(*talk, Message("user", "now?"))))
    assert not packet.is_over and "earlier messages were left out" in packet.notes[0] and packet.messages[-1].content == "now?"


def test_a_conversation_of_more_messages_than_are_shown_begins_with_the_same_one_for_several_prompts(desk: Desk) -> None:
    firsts, lengths = [], []
    for n in range(150):
        desk.runs.append(Event(run=desk.run, kind="message", role="user" if n % 2 == 0 else "assistant", content=f"said {n}"))
        messages = tuple(desk.runs.recent(desk.run, 80))
        shown = desk.packets.assemble(desk.scene(0, layout="chat", messages=messages, remembered=80)).messages
        assert shown[-1].content.split("\n")[-1] == f"said {n}"
        firsts.append(shown[0].content.split("\n")[-1])
        lengths.append(len(shown))
    assert lengths[:79] == list(range(1, 80)) and min(lengths[79:]) > 60 and max(lengths) <= 80
    assert len(set(firsts[79:])) <= 16  # for 35 prompts more


def test_how_a_route_counts_is_learnt_from_its_answers(desk: Desk) -> None:
    scene = desk.scene(0, layout="chat", messages=(Message("user", "z" * 3000),))
    packet = desk.budget.assemble(scene)
    assert packet.tokens == tokens.of_chars(packet.chars)
    desk.budget.answered(scene, packet, "ok", "", Finish("stop", prompt_tokens=packet.chars // 4))
    assert desk.packets.density(scene.route) == 4 and desk.budget.assemble(scene).tokens == tokens.of_chars(packet.chars, 4)


# -- copies -----------------------------------------------------------------------------------------------


@pytest.mark.covers("R-158")
def test_a_turn_can_be_looked_at_as_it_was_sent_and_said(desk: Desk) -> None:
    desk.know("open", 500, 1)
    scene = desk.scene(50_000, specs=(ToolSpec("get", "Get it.", {}),))
    packet = desk.budget.assemble(scene)
    desk.budget.answered(scene, packet, "<get path='x'/>", "I wonder.", Finish("stop", prompt_tokens=77))
    called = Finish("tool_calls", (ToolCall("c", "get", {"path": "known://open"}),))
    desk.budget.answered(replace(scene, turn=3), packet, "", "", called)
    assert '"name":"get"' in desk.copies.get(desk.run, 3).text("answer").replace(" ", "")
    copy = desk.copies.get(desk.run, 2)
    assert copy.text("system") == "\n\n".join(part.text for part in packet.system)
    assert copy.text("user") == packet.messages[0].content
    assert (copy.text("answer"), copy.text("reasoning"), copy.tokens) == ("<get path='x'/>", "I wonder.", 77)
    assert desk.copies.turns(desk.run) == [2, 3]
    with pytest.raises(NotFound):
        desk.copies.get(desk.run, 9)
    assert not [e for e in desk.blocks.visible_items(desk.run).all() if "wonder" in e.summary + e.full]  # the model sees none of it


@pytest.mark.covers("R-158")
def test_what_did_not_change_is_not_stored_again(desk: Desk) -> None:
    for n in range(20):
        desk.know(f"n{n}", 700, 1, is_open=False)
    scene, size = desk.scene(50_000), []
    for turn in range(2, 6):
        packet = desk.budget.assemble(replace(scene, turn=turn))
        desk.budget.answered(replace(scene, turn=turn), packet, f"answer {turn}", "", Finish("stop"))
        size.append(int(desk.store.value("SELECT SUM(chars) FROM copied_texts")))
    assert len(packet.messages[0].content) > 11_000 and max(b - a for a, b in zip(size, size[1:])) < 700


@pytest.mark.covers("R-158")
def test_a_turn_of_a_long_run_costs_what_is_new_in_it(desk: Desk) -> None:
    for n in range(400):
        desk.know(f"n{n}", 300, 1, is_open=False)
    scene, rows = desk.scene(10_000_000), []
    for turn in range(2, 8):
        desk.know(f"n{turn * 50}", 310 + turn, turn, is_open=False)  # one entry changes, and goes to the end of the summary
        desk.runs.append(Event(run=desk.run, kind="message", role="assistant", content=f"said {turn} " * 20))
        packet = desk.budget.assemble(replace(scene, turn=turn))
        desk.budget.answered(replace(scene, turn=turn), packet, "", "", Finish("stop"))
        assert desk.copies.get(desk.run, turn).text("user") == packet.messages[0].content
        rows.append(int(desk.store.value("SELECT SUM(chars) FROM copied_texts")))
    assert len(packet.messages[0].content) > 150_000 and max(b - a for a, b in zip(rows, rows[1:])) < 40_000


@given(st.lists(st.text(st.sampled_from("ab\n\u2028🦉\ud800"), max_size=40000), max_size=2))
@settings(max_examples=20, deadline=None)
def test_pieces_are_the_whole_text(texts: list[str]) -> None:
    for text in texts:
        pieces = list(_split_pieces(Part("x", text)))
        assert "".join(piece for _, piece in pieces) == text and [name for name, _ in pieces] == ["x", *[""] * (len(pieces) - 1)]


@pytest.mark.covers("R-158")
def test_copies_are_kept_for_block_runs_only_unless_told_otherwise_and_go_after_a_time(desk: Desk) -> None:
    chat = desk.scene(0, layout="chat", messages=(Message("user", "hi"),))
    desk.budget.answered(chat, desk.budget.assemble(chat), "ok", "", Finish("stop"))
    assert desk.copies.turns(desk.run) == []
    desk.copies.kept = "all"
    desk.budget.answered(chat, desk.budget.assemble(chat), "ok", "", Finish("stop"))
    assert desk.copies.get(desk.run, 2).text("user") == "hi"
    assert desk.copies.expire(31) == 0 and desk.copies.turns(desk.run) == [2]
    assert desk.copies.expire(-1) == 1 and desk.store.value("SELECT COUNT(*) FROM copied_texts") == 0
    desk.copies.kept = "none"
    desk.budget.answered(chat, desk.budget.assemble(chat), "ok", "", Finish("stop"))
    assert desk.copies.turns(desk.run) == []


def test_copies_go_with_their_run(desk: Desk) -> None:
    scene = desk.scene(50_000)
    desk.budget.answered(scene, desk.budget.assemble(scene), "ok", "", Finish("stop"))
    assert desk.copies.turns(desk.run) == [2]
    desk.runs.delete(desk.run)
    assert desk.store.value("SELECT COUNT(*) FROM copies") == 0
    desk.copies.expire(31)
    assert desk.store.value("SELECT COUNT(*) FROM copied_texts") == 0
