"""The talk: messages and answers as they come, tool boxes, what waits for a decision, the input below.

One `Talk` is shown at a time. What arrives for another one (the thread was left while it was answered)
is not drawn; the record has it. Drawing follows the end unless somebody scrolled up. A queued message and a
decision may both be under way: every event is drawn once, whoever brings it.
"""

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList

from appliance.clock import monotonic_s
from appliance.tui import commands
from appliance.tui.approvals import QUESTION, Waits
from appliance.tui.branch_tree import inherited
from appliance.tui.command_runner import Executor
from appliance.tui.command_tails import CommandTails
from appliance.tui.composer import Composer, Menu
from appliance.tui.follower import Follower, Sight
from appliance.tui.incoming import Onlooker
from appliance.tui.message_widgets import OUTCOMES, Earlier, Note, Said, ToolBox, explained
from appliance.tui.owl.face import OwlPicture
from appliance.tui.packet_meter import Meter
from appliance.tui.panel import Host, Panel, named
from appliance.tui.sender import (
    PROPOSED,
    RUNNING,
    WAITING,
    Accepted,
    Decided,
    Ended,
    Grew,
    Happened,
    Held,
    News,
    Outgoing,
    Taken,
    Talk,
)
from appliance.tui.shown_text import Shown

if TYPE_CHECKING:
    from appliance.tui.markdown_view import Prose

GREETING = "I am your owl. Ask me something about what is in your box,\nor type / to see what else there is."
PAGE_EVENTS = 30
LEAST_EVENTS = 10  # of a thread that is opened, when it has as many
MOST_WIDGETS = 200  # a widget of Textual takes 40 kB, an answer with a table has fifty of them
TITLE_CHARS = 60
STOP_WITHIN_S = 3.0
QUEUED = "queued"
KEEP = 4  # the last things said stay, however large


class Chat(Panel):
    """The first tab."""

    LABEL = "Chat"
    SCOPED_CSS = False
    DEFAULT_CSS = """
    Chat #talk { height: 1fr; scrollbar-size-vertical: 1; }
    Chat #line { height: auto; align-vertical: bottom; }
    Chat #greeting { padding: 1 2; color: $foreground 80%; }
    Chat .-gone { display: none; }
    """
    BINDINGS = [
        Binding("ctrl+o", "decide", "Decide", key_display="^O"),
        Binding("ctrl+t", "tools", "Tools", key_display="^T"),
        Binding("ctrl+b", "meter", show=False),
        Binding("ctrl+up", "scroll(-1)", show=False),
        Binding("ctrl+down", "scroll(1)", show=False),
        Binding("ctrl+home", "oldest", show=False),
        Binding("ctrl+end", "newest", show=False),
    ]

    class Arrived(Message):
        """News of the sender, from its thread."""

        def __init__(self, news: News) -> None:
            super().__init__()
            self.news = news

    class Shown(Message):
        """What came by itself, from the follower's thread."""

        def __init__(self, sight: Sight) -> None:
            super().__init__()
            self.sight = sight

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.follower = Follower(host.link, self._show_by_itself)
        self.onlooker = Onlooker(self)
        self.talk = Talk()
        self._under_way: list[Outgoing] = []
        self._drawn: set[int] = set()
        self.began_s = 0.0
        self._said: dict[Outgoing, Said] = {}
        self._boxes: dict[str, ToolBox] = {}
        self._seqs: dict[Widget, int] = {}
        self._answer: Prose | None = None
        self._text = ""
        self._oldest = 1
        self._is_explained = False
        self._next, self._told = "", ""
        self._asked_to_stop_s = -STOP_WITHIN_S
        self._stopped: Outgoing | None = None  # by Ctrl+C
        self._are_open = False
        self.cost: dict[str, Any] = {}
        self.ended = ""  # "success" or "error" of the last answer, until the owl has shown it
        self.waits = Waits(self.ask)
        self._meter = Meter()
        self._tails = CommandTails(self, lambda: self.talk.thread, lambda: list(self._boxes.values()))
        self._executor = Executor(self, self, self.waits)

    @property
    def mood(self) -> str:
        """What goes on here, as the owl shows it."""
        if self.running is None:
            return "waiting" if self.waits.here is not None else "idle"
        is_working = any(box.is_running for box in self._boxes.values())
        return "working" if is_working else "reading" if self._answer is not None else "thinking"

    @property
    def running(self) -> Outgoing | None:
        """What is being answered now."""
        return self._under_way[-1] if self._under_way else None

    def compose(self) -> ComposeResult:
        """Talk, what waits, what fills the packet, menu, input."""
        with VerticalScroll(id="talk", can_focus=False):
            yield Shown(GREETING, id="greeting", classes="-hello", markup=False)
        yield self.waits
        yield self._meter
        menu = Menu()
        yield menu
        composer = Composer(menu)
        composer.suggest = self._executor.offers
        with Horizontal(id="line"):
            yield OwlPicture()
            yield composer

    def on_mount(self) -> None:
        """Stay at the end as it grows."""
        self._talk_scroll.anchor()

    def enter(self) -> None:
        """Type."""
        self.screen.set_focus(self.query_one(Composer))
        if self.host.link.is_up and self.running is None:
            self.waits.refresh_waiting(self.talk.thread)

    def leave(self) -> bool:
        """Esc closes the menu, leaves what waits, then asks whether to stop, then stops."""
        menu = self.query_one(Menu)
        if menu.is_open:
            menu.offer(())
            return True
        if self.waits.leave():
            return True
        if self.waits.holds_focus:
            self.query_one(Composer).focus()
            return True
        if self.running is None:
            return False
        if monotonic_s() - self._asked_to_stop_s > STOP_WITHIN_S:
            self._asked_to_stop_s = monotonic_s()
            self.host.say("Esc again stops the answer", False)
            return True
        self._asked_to_stop_s = -STOP_WITHIN_S
        self._stop_run(self.running)
        return True

    def interrupt(self) -> bool:
        """Ctrl+C stops the answer at once; False when none runs, or that one was asked to stop before."""
        if self.running is None or self.running is self._stopped:
            return False
        self._stopped = self.running
        self.host.say("stopping the answer; Ctrl+C again clears the line, then leaves", False)
        self._stop_run(self.running)
        return True

    def take_tab(self) -> bool:
        """Tab completes a command."""
        return self.query_one(Composer).take_tab()

    @property
    def _talk_scroll(self) -> VerticalScroll:
        return self.query_one("#talk", VerticalScroll)

    # -- typing -------------------------------------------------------------------------------------

    def on_text_area_changed(self, event: Composer.Changed) -> None:
        """Offer commands while one is typed, and what may follow some."""
        self._offer_commands()
        self._executor.prepare(event.text_area.text, self._offer_commands)

    def _offer_commands(self) -> None:
        self.query_one(Menu).offer(self._executor.offers(self.query_one(Composer).text))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click on the menu."""
        event.stop()
        self.query_one(Composer).choose(is_final=True)

    def on_composer_scrolled(self, event: Composer.Scrolled) -> None:
        """Page Up and Page Down; at the very top, older events are fetched."""
        if event.pages < 0 and self._talk_scroll.scroll_y <= 0 and self._oldest > 1:
            self._fetch_earlier()
        elif event.pages < 0:
            self._talk_scroll.scroll_page_up(animate=False)
        else:
            self._talk_scroll.scroll_page_down(animate=False)

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        """A command is executed here, an answer goes to the question; anything else is a message, queued if an answer runs."""
        command = commands.split(event.text)
        if command is not None:
            await self._executor.execute(*command, is_running=self.running is not None)
        elif not self.waits.answer_question(event.text):
            await self.send(event.text)

    async def send(self, text: str) -> None:
        """Hand a message to the sender and show it."""
        self._toggle_greeting(False)
        message = Outgoing(text, self.talk)
        if not self.talk.title:
            title = " ".join(text.split())
            self.talk.title = title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…"
        self.onlooker.mine.add(message.correlation)
        bubble = self._said[message] = Said(text, state=QUEUED if self.running else "sending")
        await self._talk_scroll.mount(bubble)  # below the queued ones
        self._talk_scroll.anchor()
        self.host.sender.queue_message(message)
        self.host.refresh_status()

    def type_text(self, text: str) -> None:
        """Put a text into the input."""
        self.query_one(Composer).replace_text(text)

    # -- what waits ---------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The key that decides is offered only while something waits."""
        return action != "decide" or self.waits.here is not None

    def action_decide(self) -> None:
        """Go to what waits, and back."""
        (self.query_one(Composer) if self.waits.holds_focus else self.waits).focus()

    def on_waits_moved(self, event: Waits.Moved) -> None:
        """Something else waits than before; what somebody else has decided goes on here too."""
        if self.waits.here is None and self.waits.holds_focus:
            self.query_one(Composer).focus()
        if event.is_elsewhere and self.running is None:
            self._run_beside(self.host.sender.follow, self.talk)
        self.app.refresh_bindings()
        self.host.refresh_status()

    def on_waits_decided(self, event: Waits.Decided) -> None:
        """Tell the core, and hear how the answer goes on."""
        self.query_one(Composer).focus()
        self._run_beside(self.host.sender.decide, self.talk, event.decision)
        self.app.refresh_bindings()

    def _run_beside(self, work: Callable[..., None], *given: Any) -> None:
        self.run_worker(lambda: work(*given), thread=True, group="beside")

    def action_meter(self) -> None:
        """Show what fills the packet of this thread, or hide it."""
        if self._meter.display or self.talk.thread:
            self._meter.display = not self._meter.display
            self._fetch_packet()
        else:
            self.host.say("nothing has been said yet: a thread has a budget once it has begun", True)

    def _fetch_packet(self) -> None:
        if self._meter.display and self.talk.thread:
            self.ask("run.packet", {"run": self.talk.thread}, self._meter.show)

    # -- threads ------------------------------------------------------------------------------------

    def resume(self, thread: str, prompt: str = "", told: str = "") -> None:
        """Show a thread and go on in it, at once with `prompt` if there is one; `told` is what the bottom line says then."""
        self._next, self._told = prompt, told
        self.ask("thread.view", {"id": thread, "after": 2**62}, self._thread_found)

    async def open(self, talk: Talk, events: list[dict[str, Any]] | None = None) -> None:
        """Show another conversation; what runs in the old one goes on unseen."""
        self.talk = talk
        self._under_way.clear()
        self._drawn.clear()
        self.cost = {}
        self._answer, self._text = None, ""
        self._boxes.clear()
        self._said.clear()
        self._seqs.clear()
        for child in list(self._talk_scroll.children):
            if not child.has_class("-hello"):
                await child.remove()
        self._toggle_greeting(not events)
        for event in events or []:
            await self._draw_event(event)
        self._talk_scroll.anchor()
        self.call_after_refresh(self._forget_old)
        self._meter.display = self._meter.display and bool(talk.thread)
        self._fetch_packet()
        self.waits.refresh_waiting(talk.thread)
        self.onlooker.turn_to(talk)
        self.follower.show(talk.thread, talk.seq)
        self.host.refresh_status()

    def _thread_found(self, found: dict[str, Any]) -> None:
        thread = found["thread"]
        after = max(0, int(thread["last_seq"]) - PAGE_EVENTS)
        self.ask("thread.view", {"id": thread["id"], "after": after}, lambda more: self._thread_opened(more, after))

    async def _thread_opened(self, found: dict[str, Any], after: int) -> None:
        thread, events = found["thread"], found["events"]
        if len(events) < LEAST_EVENTS and after:  # its present branch may end long before its newest event
            earlier = max(0, after - 8 * (thread["last_seq"] - after))
            self.ask("thread.view", {"id": thread["id"], "after": earlier}, lambda more: self._thread_opened(more, earlier))
        elif thread["parent"] and not after:
            read = lambda: inherited(self.host.link.call, thread["id"])  # noqa: E731
            self.work(read, lambda before: self._show_thread(found, after, before), about="inherited")
        else:
            await self._show_thread(found, after, [])

    async def _show_thread(self, found: dict[str, Any], after: int, before: list[dict[str, Any]]) -> None:
        """Show a thread from `after` on, below what it has from the thread it was forked off."""
        thread, events = found["thread"], found["events"]
        talk = Talk(thread["id"], named(thread), events[-1]["seq"] if events else 0)
        self._oldest = after + 1
        await self.open(talk, [*({**event, "seq": 0} for event in before[-PAGE_EVENTS:]), *events])
        self._take_cost(found)
        if after:
            await self._talk_scroll.mount(Earlier(after), before=0)
        if thread["status"] == RUNNING:
            self.host.sender.queue_message(Outgoing("", talk, is_accepted=True))
        elif thread["status"] != PROPOSED:
            self._finish_boxes()
        self.host.say(self._told or f"resumed {talk.title or thread['id']}", False)
        self.ask("session.list", {"limit": 1000}, lambda known: self._tell_session(thread["session"], known), failed=_nothing)
        if self._next:
            await self.send(self._next)
            self._next = ""

    def _tell_session(self, session: str, known: list[dict[str, Any]]) -> None:
        state = next((str(one["status"]) for one in known if one["id"] == session), "active")
        if state in ("archived", "stopped"):
            self.host.say(f"resumed {self.talk.title}: its session is {state}, your next message brings it back", False)
        elif state in ("closing", "closed"):
            self.host.say(f"session {session} is {state} and takes no more messages: /new begins another thread", True)

    def on_click(self, event: Any) -> None:
        """The line above the oldest message."""
        if isinstance(event.widget, Earlier):
            self._fetch_earlier()

    def _fetch_earlier(self) -> None:
        after, oldest = max(0, self._oldest - 1 - PAGE_EVENTS), self._oldest
        self.ask("thread.view", {"id": self.talk.thread, "after": after}, lambda found: self._show_earlier(found, after, oldest))

    async def _show_earlier(self, found: dict[str, Any], after: int, before: int) -> None:
        if found["thread"]["id"] != self.talk.thread or self._oldest != before:
            return
        self._oldest = after + 1
        await self.query(Earlier).remove()
        first = next((c for c in self._talk_scroll.children if not c.has_class("-hello")), None)
        for event in found["events"]:
            if event["seq"] < before:
                await self._draw_event(event, before=first)
        if after:
            await self._talk_scroll.mount(Earlier(after), before=0)

    # -- news of the sender -------------------------------------------------------------------------

    async def on_chat_arrived(self, event: Arrived) -> None:
        """Draw what happened to the talk on the screen."""
        news = event.news
        if news.message.talk is not self.talk:
            return
        if isinstance(news, Taken):
            self._under_way.append(news.message)
            self.began_s = monotonic_s()
            self._is_explained = False
            self._show_state(news.message, "sending")
        elif isinstance(news, Accepted):
            self._show_state(news.message, "")
            if self.follower.thread != self.talk.thread:
                self.follower.show(self.talk.thread, news.message.seq)
            if said := self._said.get(news.message):
                self._seqs[said] = news.message.seq
        elif isinstance(news, Held):
            self._show_state(news.message, "" if news.message.is_accepted else "waiting for the core")
        elif isinstance(news, Grew):
            await self._grow_answer(news.text)
        elif isinstance(news, Happened):
            await self.draw_once(news.event)
        elif isinstance(news, Decided):
            self._tell_decided(news)
        else:
            await self._end_answer(news)
        self.host.refresh_status()

    def _show_by_itself(self, sight: Sight) -> None:
        """Called in the follower's thread."""
        if not self.host.link.is_closing:
            self.post_message(self.Shown(sight))

    async def on_chat_shown(self, event: Shown) -> None:
        """Draw what came by itself: into the talk, or as a word that there is something elsewhere."""
        await self.onlooker.handle_sight(event.sight)
        self.host.refresh_status()

    def go_after(self) -> None:
        """Somebody else has set something going in the talk."""
        self._run_beside(self.host.sender.follow, self.talk)

    def _tell_decided(self, news: Decided) -> None:
        word = {"accept": "accepted", "reject": "rejected"}.get(news.decision.action, "went wrong")
        if news.is_late:
            self.host.say(f"decided elsewhere meanwhile: {news.decision.about}", False)
        elif news.is_error and news.decision.action == "accept":
            self.host.say(f"not done: {news.why}", True)
        else:
            self.host.say(f"{word}: {news.decision.about}", False)
            for box in [b for b in self._boxes.values() if b.is_command and b.is_running and news.decision.action == "accept"]:
                box.wait(False)
                self._tails.follow()

    def _show_state(self, message: Outgoing, state: str) -> None:
        if message in self._said:
            self._said[message].show(state)

    async def _grow_answer(self, text: str) -> None:
        self._text += text
        if self._answer is None:
            self._answer = await self._add_prose("")
        await self._answer.append(text)

    async def _end_answer(self, end: Ended) -> None:
        self._under_way = [one for one in self._under_way if one is not end.message]
        self._show_state(end.message, "" if end.message.is_accepted or not end.message.text else "not sent")
        self._said.pop(end.message, None)
        self._answer, self._text = None, ""
        self.ended = "success" if end.status == 200 else "error" if end.status >= 400 and end.outcome not in OUTCOMES else ""
        if self.running is None:
            await self.onlooker.catch_up()
        if end.status != PROPOSED and self.running is None:
            self._finish_boxes()
        if end.status not in (WAITING, 200, PROPOSED) and not self._is_explained:
            await self._mount_widget(Note(explained(end.outcome, end.why), is_error=end.outcome not in OUTCOMES))
            self.host.weigh()  # the core may have met a fault
        await self._forget_old()
        if end.message.talk.thread:
            self.ask("thread.view", {"id": end.message.talk.thread, "after": 2**62}, self._take_cost)
            self.waits.refresh_waiting(end.message.talk.thread)
        self._fetch_packet()

    def _take_cost(self, found: dict[str, Any]) -> None:
        self.cost = (found["turns"] or [{}])[-1]
        self.host.weigh()

    # -- drawing ------------------------------------------------------------------------------------

    async def draw_once(self, event: dict[str, Any]) -> None:
        """One stored event, unless it is on the screen."""
        if event["seq"] not in self._drawn:
            self._drawn.add(event["seq"])
            await self._draw_event(event)

    async def _draw_event(self, event: dict[str, Any], before: Widget | None = None) -> None:
        """One stored event."""
        kind, role = event["kind"], event["role"]
        if kind == "message" and role == "user":
            await self._mount_widget(Said(event["content"]), before, event["seq"])
        elif kind == "message" and role == "assistant":
            await self._draw_answer(event, before)
        elif kind == "tool_use":
            self._answer, self._text = None, ""
            box = self._boxes[event["call_id"]] = ToolBox(event)
            await self._mount_widget(box, before, event["seq"])
            box.open(self._are_open)
            if before is None:
                box.start()
            if box.is_command and before is None:
                self._tails.follow()
        elif kind == "tool_result" and event["call_id"] in self._boxes:
            self._boxes[event["call_id"]].finish(event)
            if event["tool"] == QUESTION and event["status"] == 200:
                await self._mount_widget(Said(event["content"]), before, event["seq"])
            self._fetch_packet()
        elif kind == "proposal" and event["call_id"] in self._boxes:
            self._boxes[event["call_id"]].wait()
        elif kind == "status_change" and event["outcome"] in ("waiting", "failover"):
            await self._mount_widget(Note(f"… {event['content']}", is_error=False), before, event["seq"])
        elif kind == "status_change" and event["status"] >= 400:
            word, _, why = str(event["content"]).partition(": ")
            self._is_explained = True
            await self._mount_widget(Note(explained(word, why), is_error=word not in OUTCOMES), before, event["seq"])

    async def _draw_answer(self, event: dict[str, Any], before: Widget | None) -> None:
        answer, text = self._answer, self._text
        self._answer, self._text = None, ""
        if answer is None or before is not None:
            await self._add_prose(event["content"], before, event["seq"])
            return
        self._seqs[answer] = event["seq"]
        if text.strip() != event["content"].strip():
            await answer.update(event["content"])

    async def _add_prose(self, text: str, before: Widget | None = None, seq: int = 0) -> "Prose":
        from appliance.tui.markdown_view import Prose  # late: the Markdown parser takes its time

        prose = Prose(text)
        await self._mount_widget(prose, before, seq)
        return prose

    async def _mount_widget(self, widget: Widget, before: Widget | None = None, seq: int = 0) -> None:
        if seq:
            self._seqs[widget] = seq
        queued = next((said for said in self._said.values() if said.state == QUEUED), None)
        await self._talk_scroll.mount(widget, before=before or queued)

    async def _forget_old(self) -> None:
        """Take the oldest off the screen when there is too much of it, unless somebody is reading there."""
        room = self._talk_scroll
        if room.scroll_y < room.max_scroll_y - 1:
            return
        sizes = [(c, 1 + len(c.query("*"))) for c in room.children if not c.has_class("-hello")]
        left = sum(size for _, size in sizes)
        gone = []
        for child, size in sizes[:-KEEP]:
            if left <= MOST_WIDGETS:
                break
            left -= size
            gone.append(child)
            self._seqs.pop(child, None)
        if gone:
            await room.remove_children(gone)
            self._oldest = next((self._seqs[c] for c in room.children if c in self._seqs), self._oldest)
            await self.query(Earlier).remove()
            if self._oldest > 1:
                await room.mount(Earlier(self._oldest - 1), before=0)
            self._boxes = {call: box for call, box in self._boxes.items() if box.is_mounted}
            self.call_after_refresh(gc.collect)  # widgets refer to each other in circles: the memory comes back only so

    def _finish_boxes(self) -> None:
        """A call that has no result when its answer ended never gets one."""
        for box in [one for one in self._boxes.values() if one.is_running]:
            box.finish(None)

    def _toggle_greeting(self, is_new: bool) -> None:
        self.query(".-hello").set_class(not is_new, "-gone")

    def note(self, text: str) -> None:
        """Say something that is not part of the conversation."""
        self._toggle_greeting(False)
        self.run_worker(self._mount_widget(Note(text)))
        self._talk_scroll.anchor()

    # -- keys ---------------------------------------------------------------------------------------

    def action_tools(self) -> None:
        """Open or close every tool box."""
        self._are_open = not self._are_open
        for box in self.query(ToolBox):
            box.open(self._are_open)

    def action_scroll(self, lines: int) -> None:
        """Move a line."""
        self._talk_scroll.scroll_relative(y=lines, animate=False)

    def action_oldest(self) -> None:
        """Go to the beginning."""
        self._talk_scroll.scroll_home(animate=False)

    def action_newest(self) -> None:
        """Go to the end and stay there."""
        self._talk_scroll.anchor()

    def _stop_run(self, message: Outgoing) -> None:
        if message.talk.thread:
            self.ask("run.stop", {"run": message.talk.thread}, _nothing)


_nothing: Callable[[Any], None] = lambda _: None  # noqa: E731
