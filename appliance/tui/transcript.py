"""What was said in a thread, as far as it is on the screen: a window of its events, drawn one by one.

A long thread is shown in parts: `oldest` and `newest` are the numbers of the first and the last event of the window, and
what is needed beyond them is asked for with `Wanted`. At the end of the thread the window grows with it and drops what is
far above; of somebody who reads back it drops what is far below. Asks nobody itself.
"""

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.containers import VerticalScroll
from textual.events import Click
from textual.message import Message
from textual.widget import Widget

from appliance.tui.approvals import QUESTION
from appliance.tui.message_widgets import OUTCOMES, Earlier, Later, Note, Preparing, Said, Thought, ToolBox, explained

if TYPE_CHECKING:
    from appliance.tui.markdown_view import Prose

MOST_WIDGETS = 120  # a widget of Textual takes 40 kB, an answer with a table has fifty of them
COLLECT_AFTER = 60  # messages that were taken off the screen
KEEP = 4  # the last things said stay, however large
QUEUED = "queued"
SETTLE_S = 0.2  # no further part is asked for before the last one has found its place


class Transcript(VerticalScroll, can_focus=False):
    """The talk: messages, answers, thoughts, calls and notes."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; scrollbar-size-vertical: 1; }
    """

    class Wanted(Message):
        """Somebody reads on beyond the window: to what is earlier, or later."""

        def __init__(self, is_earlier: bool) -> None:
            super().__init__()
            self.is_earlier = is_earlier

    def __init__(self, called: Callable[[ToolBox], None], answered: Callable[[], None]) -> None:
        """`called` hears of a call that begins now, `answered` of a result."""
        super().__init__(id="talk")
        self._called = called
        self._answered = answered
        self.said: dict[object, Said] = {}  # what was typed here and is on its way, by its message
        self.boxes: dict[str, ToolBox] = {}
        self._seqs: dict[Widget, int] = {}
        self._drawn: set[int] = set()
        self._answer: Prose | None = None
        self._text = ""
        self._thought: Thought | None = None
        self._are_open = False
        self._last_box: ToolBox | None = None
        self._is_settled = True
        self._gone = 0
        self.is_explained = False  # whether the reason of the last failure stands there
        self.oldest = 1
        self.newest = 0  # 0 while the window ends where the thread does

    @property
    def is_at_end(self) -> bool:
        """True while what comes is drawn; False of somebody who reads far back."""
        return not self.newest

    @property
    def is_answering(self) -> bool:
        """True while text of an answer grows."""
        return self._answer is not None

    # -- the window ---------------------------------------------------------------------------------

    async def show(self, events: list[dict[str, Any]], oldest: int, newest: int = 0, *, is_from_top: bool = False) -> None:
        """Show these and nothing else; they begin with number `oldest` and end with `newest`, or with the thread for 0.

        Somebody who wants to read from the top begins there, others at the end.
        """
        self.oldest, self.newest = oldest, newest
        self._drawn.clear()
        self._answer, self._text, self._thought = None, "", None
        self.boxes.clear()
        self._seqs.clear()
        with self.app.batch_update():
            await self.remove_children([child for child in self.children if not child.has_class("-hello")])
            for event in events:
                await self._draw_event(event)
            if is_from_top:
                await self._drop(reversed([child for child in self.children if child in self._seqs]), is_below=True)
            await self._mark_ends()
        if is_from_top:
            self.release_anchor()
            self.scroll_home(animate=False)
        else:
            self.anchor()
            self.call_after_refresh(self.forget_far)
        self._settle_soon()
        self.call_after_refresh(self._fill_screen)

    def _fill_screen(self) -> None:
        """Short messages may leave room on a large screen."""
        if self.oldest > 1 and self.is_at_end and self.max_scroll_y == 0:
            self._is_settled = True
            self.want(True)

    async def add_earlier(self, events: list[dict[str, Any]], oldest: int) -> None:
        """Show these above what is there, which stays where it is."""
        before, height = self.scroll_y, self.virtual_size.height
        first = next((child for child in self.children if child in self._seqs), None)
        with self.app.batch_update():
            for event in events:
                await self._draw_event(event, first)
            self.oldest = oldest
            await self._drop(reversed([child for child in self.children if child in self._seqs]), is_below=True)
            await self._mark_ends()
        self.call_after_refresh(self._keep_place, before, height)

    async def add_later(self, events: list[dict[str, Any]], newest: int) -> None:
        """Show these below; `newest` is 0 when they reach the end of the thread."""
        self.newest = 0
        await self.query(Later).remove()
        with self.app.batch_update():
            for event in events:
                await self.draw_once(event)
            self.newest = newest
            height = self.virtual_size.height
            dropped = await self._drop([child for child in self.children if child in self._seqs], is_below=False)
            await self._mark_ends()
        if dropped:
            self.call_after_refresh(self._keep_place, self.scroll_y, height)
        self._settle_soon()

    def _keep_place(self, before: float, height: int) -> None:
        self.scroll_to(y=before + self.virtual_size.height - height, animate=False)
        self._settle_soon()
        self._fill_screen()

    def _settle_soon(self) -> None:
        def settle() -> None:
            self._is_settled = True

        self._is_settled = False
        self.set_timer(SETTLE_S, settle)

    def want(self, is_earlier: bool) -> None:
        """Ask for more, unless there is none or it is on its way."""
        if self._is_settled and (self.oldest > 1 if is_earlier else not self.is_at_end):
            self._is_settled = False
            self.set_timer(2.0, self._settle_soon)  # whatever becomes of the question
            self.post_message(self.Wanted(is_earlier))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Near the end of what is there more is wanted."""
        super().watch_scroll_y(old_value, new_value)
        if not self.is_mounted or not self.size.height or round(old_value) == round(new_value):
            return
        if new_value < old_value and new_value < self.size.height / 2:
            self.want(True)
        elif new_value > old_value and new_value > self.max_scroll_y - self.size.height / 2:
            self.want(False)

    def on_click(self, event: Click) -> None:
        """The lines above and below the window."""
        if isinstance(event.widget, Earlier | Later):
            self.want(isinstance(event.widget, Earlier))

    async def _mark_ends(self) -> None:
        await self.query("Earlier, Later").remove()
        if self.oldest > 1:
            await self.mount(Earlier(self.oldest - 1), before=0)
        if not self.is_at_end:
            await self.mount(Later())

    async def _drop(self, children: Any, *, is_below: bool) -> bool:
        """Take what is too much off one end of the window; whether anything was."""
        drawn = [child for child in children if not isinstance(child, Said) or child not in self.said.values()]
        if is_below and (self.said or self._answer is not None or any(box.is_running for box in self.boxes.values())):
            return False  # what goes on stays in sight
        sizes = [(child, 1 + len(child.query("*"))) for child in drawn]
        left, gone = sum(size for _, size in sizes), []
        for child, size in sizes[:-KEEP]:
            if left <= MOST_WIDGETS:
                break
            left -= size
            gone.append(child)
            self._drawn.discard(self._seqs.pop(child, 0))
        if not gone:
            return False
        await self.remove_children(gone)
        seqs = [self._seqs[child] for child in self.children if child in self._seqs]
        if is_below:
            self.newest = max(seqs, default=self.newest)
            self._drawn = {seq for seq in self._drawn if seq <= self.newest}
            self.release_anchor()
        else:
            self.oldest = min(seqs, default=self.oldest)
        self.boxes = {call: box for call, box in self.boxes.items() if box.is_mounted}
        self._gone += len(gone)
        if self._gone > COLLECT_AFTER:  # widgets refer to each other in circles: the memory comes back only so
            self._gone = 0
            self.call_after_refresh(gc.collect)
        return True

    async def forget_far(self) -> None:
        """Take the oldest off the screen when there is too much of it, unless somebody is reading there."""
        if self.scroll_y >= self.max_scroll_y - 1 and self.is_at_end:
            if await self._drop([child for child in self.children if child in self._seqs], is_below=False):
                await self._mark_ends()

    # -- drawing ------------------------------------------------------------------------------------

    async def draw_once(self, event: dict[str, Any]) -> None:
        """One stored event, unless it is on the screen, or below the window."""
        if event["seq"] not in self._drawn and self.is_at_end:
            self._drawn.add(event["seq"])
            await self._end_preparing()
            await self._draw_event(event)

    async def grow_answer(self, text: str) -> None:
        """More text of the answer that is being given."""
        self._text += text
        if not self.is_at_end:
            return
        await self._end_preparing()
        if self._answer is None:
            self._answer = await self._add_prose("")
        await self._answer.append(text)

    async def grow_thought(self, text: str) -> None:
        """More of the thoughts before it; folded like all others."""
        if not self.is_at_end:
            return
        if self._thought is None:
            self._thought = Thought("")
            await self.add(self._thought, self._answer)
            self._thought.open(self._are_open)
        self._thought.grow(text)

    async def prepare_call(self, tool: str) -> None:
        """A call has begun that is not whole yet."""
        await self._end_preparing()
        if self.is_at_end:
            await self.add(Preparing(tool))

    async def _end_preparing(self) -> None:
        await self.query(Preparing).remove()

    async def end_answer(self) -> None:
        """The next text belongs to another answer."""
        if self._thought is not None:
            self._thought.finish(self._thought.words)
        self._begin_answer()
        await self._end_preparing()

    def _begin_answer(self) -> None:
        self._answer, self._text, self._thought = None, "", None

    async def add_said(self, message: object, text: str, state: str) -> None:
        """Add the message that was just typed, below everything that is queued."""
        bubble = self.said[message] = Said(text, state=state)
        await self.mount(bubble)
        self.anchor()

    def place_said(self, message: object, seq: int) -> None:
        """Record the event number of a typed message."""
        if (bubble := self.said.get(message)) is not None:
            self._seqs[bubble] = seq

    async def add(self, widget: Widget, before: Widget | None = None, seq: int = 0) -> None:
        """A widget at its place: above what is queued."""
        if seq:
            self._seqs[widget] = seq
        queued = next((said for said in self.said.values() if said.state == QUEUED), None)
        await self.mount(widget, before=before or queued)

    def finish_boxes(self) -> None:
        """A call that has no result when its answer ended never gets one."""
        for box in [one for one in self.boxes.values() if one.is_running]:
            box.finish(None)

    def open_all(self) -> None:
        """Open or close every call and thought."""
        self._are_open = not self._are_open
        for box in self.query(ToolBox):
            box.open(self._are_open)
        for thought in self.query(Thought):
            thought.open(self._are_open)

    async def _draw_event(self, event: dict[str, Any], before: Widget | None = None) -> None:
        """One stored event."""
        kind, role, seq = event["kind"], event["role"], event["seq"]
        if kind == "message" and role == "user":
            await self.add(Said(event["content"]), before, seq)
        elif kind == "message" and role == "assistant":
            await self._draw_answer(event, before)
        elif kind == "thinking":
            await self._draw_thought(event, before)
        elif kind == "tool_use":
            self._begin_answer()
            box = self._last_box = self.boxes[event["call_id"]] = ToolBox(event)
            await self.add(box, before, seq)
            box.open(self._are_open)
            if before is None:
                self._called(box)
        elif kind == "tool_result" and event["call_id"] in self.boxes:
            self.boxes[event["call_id"]].finish(event)
            if event["tool"] == QUESTION and event["status"] == 200:
                await self.add(Said(event["content"]), before, seq)
            self._answered()
        elif kind == "proposal" and event["call_id"] in self.boxes:
            self.boxes[event["call_id"]].wait()
        elif kind == "status_change" and event["outcome"] in ("waiting", "failover"):
            await self.add(Note(f"… {event['content']}", is_error=False), before, seq)
        elif kind == "status_change" and event["status"] >= 400:
            word, _, why = str(event["content"]).partition(": ")
            self.is_explained = True
            await self.add(Note(explained(word, why), is_error=word not in OUTCOMES), before, seq)

    async def _draw_thought(self, event: dict[str, Any], before: Widget | None) -> None:
        """Thoughts stand above the answer that they led to, which has been shown already when they are stored."""
        if before is None and self._thought is not None:  # it has been shown as it came
            self._seqs[self._thought] = event["seq"]
            self._thought.finish(event["content"])
            self._thought = None
            return
        thought = Thought(event["content"])
        await self.add(thought, before or self._answer, event["seq"])
        thought.open(self._are_open)

    async def _draw_answer(self, event: dict[str, Any], before: Widget | None) -> None:
        answer, text = self._answer, self._text
        self._begin_answer()
        if self._last_box is not None:
            self._last_box.be_repeated(event["content"])
        if answer is None or before is not None:
            await self._add_prose(event["content"], before, event["seq"])
            return
        self._seqs[answer] = event["seq"]
        if text.strip() != event["content"].strip():
            await answer.update(event["content"])

    async def _add_prose(self, text: str, before: Widget | None = None, seq: int = 0) -> "Prose":
        from appliance.tui.markdown_view import Prose, answer_parser  # late: the Markdown parser takes its time

        prose = Prose(text, answer_parser)
        await self.add(prose, before, seq)
        return prose
