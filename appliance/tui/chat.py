"""The talk: messages and answers as they come, tool boxes, what waits for a decision, the input below.

One `Talk` is shown at a time. What arrives for another one (the thread was left while it was answered)
is not drawn; the record has it. Drawing follows the end unless somebody scrolled up. A queued message and a
decision may both be under way: every event is drawn once, whoever brings it.
"""

from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList

from appliance.clock import monotonic_s
from appliance.tui import commands
from appliance.tui.approvals import Waits
from appliance.tui.branch_tree import inherited
from appliance.tui.command_runner import Executor
from appliance.tui.composer import Composer, Menu
from appliance.tui.follower import Follower, Sight
from appliance.tui.incoming import Onlooker
from appliance.tui.message_widgets import OUTCOMES, CommandTails, Note, ToolBox, explained
from appliance.tui.owl.face import OwlPicture
from appliance.tui.packet_meter import Meter
from appliance.tui.panel import Host, Panel, named
from appliance.tui.queue_keys import QueueKeys
from appliance.tui.sender import (
    PROPOSED,
    RUNNING,
    WAITING,
    Accepted,
    DecisionMade,
    Ended,
    Grew,
    Happened,
    Held,
    News,
    Outgoing,
    Prepares,
    Taken,
    Talk,
)
from appliance.tui.shown_text import Shown
from appliance.tui.transcript import QUEUED, Transcript

GREETING = "I am your owl. Ask me about your notes,\nor type / for a list of commands."
PAGE_EVENTS = 12  # two screens of a talk: what costs time is drawing
LEAST_EVENTS = 6  # of a thread that is opened, when it has as many
LEAVE_WORDS = ("exit", "quit", ":q")
TITLE_CHARS = 60
STOP_WITHIN_S = 3.0


class Chat(Panel):
    """The first tab."""

    LABEL = "Chat"
    SCOPED_CSS = False
    DEFAULT_CSS = """
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

    class SightShown(Message):
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
        self.began_s = 0.0
        self.transcript = Transcript(self._note_call, self._fetch_packet)
        self._next, self._told = "", ""
        self._asked_to_stop_s = -STOP_WITHIN_S
        self._stopped: Outgoing | None = None  # by Ctrl+C
        self.cost: dict[str, Any] = {}
        self.ended = ""  # "success" or "error" of the last answer, until the owl has shown it
        self.waits = Waits(self.ask, self._focus_composer)
        self._meter = Meter()
        self._tails = CommandTails(self, lambda: self.talk.thread, lambda: list(self.transcript.boxes.values()))
        self._queue_keys = QueueKeys(host, self.transcript, self.type_text)
        self._executor = Executor(self, self, self.waits)

    @property
    def mood(self) -> str:
        """The state of the chat that the owl shows."""
        if self.running is None:
            return "waiting" if self.waits.here is not None else "idle"
        is_working = any(box.is_running for box in self.transcript.boxes.values())
        return "working" if is_working else "reading" if self.transcript.is_answering else "thinking"

    @property
    def running(self) -> Outgoing | None:
        """The message that is being answered."""
        return self._under_way[-1] if self._under_way else None

    def compose(self) -> ComposeResult:
        """Talk, what waits, what fills the packet, menu, input."""
        with self.transcript:
            yield Shown(GREETING, id="greeting", classes="-hello", markup=False)
        yield self.waits
        yield self._meter
        menu = Menu()
        yield menu
        composer = Composer(menu)
        composer.suggest = self._executor.offers
        composer.take_queue_key = self._queue_keys.take
        with Horizontal(id="line"):
            yield OwlPicture()
            yield composer

    def on_mount(self) -> None:
        """Stay at the end as it grows."""
        self.transcript.anchor()

    def enter(self) -> None:
        """Type."""
        composer = next(iter(self.query(Composer)), None)
        if composer is None:
            self.call_after_refresh(self.enter)  # the core was there before the input
            return
        self.screen.set_focus(composer)
        if self.host.link.is_up and self.running is None:
            self.waits.refresh_waiting(self.talk.thread)

    def leave(self) -> bool:
        """Esc closes the menu, leaves what waits, then asks whether to stop, then stops."""
        menu = self.query_one(Menu)
        if menu.is_open:
            menu.offer(())
            return True
        if self.waits.leave() or self._queue_keys.let_go():
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

    # -- typing -------------------------------------------------------------------------------------

    def on_text_area_changed(self, event: Composer.Changed) -> None:
        """Offer commands while one is typed, and what may follow some."""
        self._offer_commands()
        self._executor.prepare(event.text_area.text, self._offer_commands)

    def _offer_commands(self) -> None:
        composer = self.query_one(Composer)
        self.query_one(Menu).offer(self._executor.offers(composer.text))
        composer.border_subtitle = Content(self._executor.hint(composer.text))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click on the menu."""
        event.stop()
        self.query_one(Composer).choose(is_final=True)

    def on_composer_scrolled(self, event: Composer.Scrolled) -> None:
        """Page Up and Page Down; beyond the window, more is fetched."""
        room = self.transcript
        if event.pages < 0 and room.scroll_y <= 0:
            room.want(True)
        elif event.pages < 0:
            room.scroll_page_up(animate=False)
        elif room.scroll_y >= room.max_scroll_y - 1 and not room.is_at_end:
            room.want(False)
        else:
            room.scroll_page_down(animate=False)

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        """A command is executed here, an answer goes to the question; anything else is a message, queued if an answer runs."""
        if event.text.lower() in LEAVE_WORDS:
            self.app.exit()
        elif commands.split(event.text) is not None:
            await self.execute(event.text)
        elif not self.waits.answer_question(event.text):
            await self.send(event.text)

    async def execute(self, line: str) -> None:
        """Do what a command says."""
        if (command := commands.split(line)) is not None:
            await self._executor.execute(*command, is_running=self.running is not None)

    async def send(self, text: str) -> None:
        """Hand a message to the sender and show it."""
        if not self.transcript.is_at_end:  # what is said now belongs below the newest
            self.resume(self.talk.thread, text)
            return
        self._toggle_greeting(False)
        message = Outgoing(text, self.talk)
        if not self.talk.title:
            title = " ".join(text.split())
            self.talk.title = title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…"
        self.onlooker.mine.add(message.correlation)
        await self.transcript.add_said(message, text, QUEUED if self.running else "sending")
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

    def _focus_composer(self) -> None:
        self.screen.set_focus(self.query_one(Composer))

    def on_waits_moved(self, event: Waits.Moved) -> None:
        """Something else waits than before; what somebody else has decided goes on here too."""
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
            self.host.say("nothing has been said yet: send a message first", True)

    def _fetch_packet(self) -> None:
        if self._meter.display and self.talk.thread:
            self.ask("run.packet", {"run": self.talk.thread}, self._meter.show)

    # -- threads ------------------------------------------------------------------------------------

    def resume(self, thread: str, prompt: str = "", told: str = "") -> None:
        """Show a thread and go on in it, at once with `prompt` if there is one; `told` is what the bottom line says then."""
        self._next, self._told = prompt, told
        self.ask("thread.view", {"id": thread, "after": 2**62, "turns": 1}, self._thread_found)

    async def open(self, talk: Talk, events: list[dict[str, Any]] | None = None, oldest: int = 1) -> None:
        """Show another conversation; what runs in the old one goes on unseen."""
        self.talk = talk
        self._under_way.clear()
        self.cost = {}
        self.transcript.said.clear()
        self._toggle_greeting(not events)
        await self.transcript.show(events or [], oldest)
        self._meter.display = self._meter.display and bool(talk.thread)
        self._fetch_packet()
        self.waits.refresh_waiting(talk.thread)
        self.onlooker.turn_to(talk)
        self.follower.show(talk.thread, talk.seq)
        self.host.refresh_status()

    def _thread_found(self, found: dict[str, Any]) -> None:
        thread = found["thread"]
        after = max(0, int(thread["last_seq"]) - PAGE_EVENTS)
        self.ask("thread.view", {"id": thread["id"], "after": after, "turns": 1}, lambda more: self._thread_opened(more, after))

    async def _thread_opened(self, found: dict[str, Any], after: int) -> None:
        thread, events = found["thread"], found["events"]
        if len(events) < LEAST_EVENTS and after:  # its present branch may end long before its newest event
            earlier = max(0, after - 8 * (thread["last_seq"] - after))
            self.ask(
                "thread.view", {"id": thread["id"], "after": earlier, "turns": 1}, lambda more: self._thread_opened(more, earlier)
            )
        elif thread["parent"] and not after:
            read = lambda: inherited(self.host.link.call, thread["id"])  # noqa: E731
            self.work(read, lambda before: self._show_thread(found, after, before), about="inherited")
        else:
            await self._show_thread(found, after, [])

    async def _show_thread(self, found: dict[str, Any], after: int, before: list[dict[str, Any]]) -> None:
        """Show a thread from `after` on, below what it has from the thread it was forked off."""
        thread, events = found["thread"], found["events"]
        talk = Talk(thread["id"], named(thread), events[-1]["seq"] if events else 0, thread["role"])
        self.query_one(Composer).remember([one["content"] for one in events if one["kind"] == "message" and one["role"] == "user"])
        await self.open(talk, [*({**event, "seq": 0} for event in before[-PAGE_EVENTS:]), *events], after + 1)
        self._take_cost(found)
        if thread["status"] == RUNNING:
            self.host.sender.queue_message(Outgoing("", talk, is_accepted=True))
        elif thread["status"] != PROPOSED:
            self.transcript.finish_boxes()
        self.host.say(self._told or f"resumed {talk.title or thread['id']}", False)
        self.ask("session.list", {"limit": 1000}, lambda known: self._tell_session(thread["session"], known), failed=_nothing)
        if self._next:
            await self.send(self._next)
            self._next = ""

    def _tell_session(self, session: str, known: list[dict[str, Any]]) -> None:
        state = next((str(one["status"]) for one in known if one["id"] == session), "active")
        if state in ("archived", "stopped"):
            self.host.say(f"resumed {self.talk.title}: its session is {state}, your next message reopens it", False)
        elif state in ("closing", "closed"):
            self.host.say(f"session {session} is {state} and takes no more messages: /new begins another thread", True)

    def on_transcript_wanted(self, event: Transcript.Wanted) -> None:
        """Fetch what is beyond the window."""
        room = self.transcript
        after = max(0, room.oldest - 1 - PAGE_EVENTS) if event.is_earlier else room.newest
        limit = min(PAGE_EVENTS, room.oldest - 1 - after) if event.is_earlier else PAGE_EVENTS
        params = {"id": self.talk.thread, "after": after, "limit": max(1, limit), "turns": 1}
        self.ask("thread.view", params, lambda found: self._show_more(found, after, event.is_earlier), about="more")

    async def _show_more(self, found: dict[str, Any], after: int, is_earlier: bool) -> None:
        room, events = self.transcript, found["events"]
        if found["thread"]["id"] != self.talk.thread:
            return
        if is_earlier:
            await room.add_earlier([event for event in events if event["seq"] < room.oldest], after + 1)
        elif after == room.newest:
            await room.add_later(events, events[-1]["seq"] if found["has_more"] else 0)

    async def _show_oldest(self, found: dict[str, Any]) -> None:
        events = found["events"]
        if found["thread"]["id"] == self.talk.thread and events:
            await self.transcript.show(events, 1, events[-1]["seq"] if found["has_more"] else 0, is_from_top=True)

    # -- news of the sender -------------------------------------------------------------------------

    async def on_chat_arrived(self, event: Arrived) -> None:
        """Draw what happened to the talk on the screen."""
        news = event.news
        if news.message.talk is not self.talk:
            return
        if isinstance(news, Taken):
            self._under_way.append(news.message)
            self.began_s = monotonic_s()
            self.transcript.is_explained = False
            self._show_state(news.message, "sending")
        elif isinstance(news, Accepted):
            self._show_state(news.message, "")
            if self.follower.thread != self.talk.thread:
                self.follower.show(self.talk.thread, news.message.seq)
            self.transcript.place_said(news.message, news.message.seq)
        elif isinstance(news, Held):
            self._show_state(news.message, "" if news.message.is_accepted else "waiting for the core")
        elif isinstance(news, Grew):
            await (self.transcript.grow_thought if news.is_thought else self.transcript.grow_answer)(news.text)
        elif isinstance(news, Prepares):
            await self.transcript.prepare_call(news.tool)
        elif isinstance(news, Happened):
            await self.draw_once(news.event)
        elif isinstance(news, DecisionMade):
            self._tell_decided(news)
        else:
            await self._end_answer(news)
        self.host.refresh_status()

    def _show_by_itself(self, sight: Sight) -> None:
        """Called in the follower's thread."""
        if not self.host.link.is_closing:
            self.post_message(self.SightShown(sight))

    async def on_chat_sight_shown(self, event: SightShown) -> None:
        """Draw what came by itself: into the talk, or as a word that there is something elsewhere."""
        await self.onlooker.handle_sight(event.sight)
        self.host.refresh_status()

    def go_after(self) -> None:
        """Somebody else has set something going in the talk."""
        self._run_beside(self.host.sender.follow, self.talk)

    def _tell_decided(self, news: DecisionMade) -> None:
        word = {"accept": "accepted", "reject": "rejected"}.get(news.decision.action, "went wrong")
        if news.is_late:
            self.host.say(f"already decided elsewhere: {news.decision.about}", False)
        elif news.is_error and news.decision.action == "accept":
            self.host.say(f"not done: {news.why}", True)
        else:
            self.host.say(f"{word}: {news.decision.about}", False)
            for box in [
                b for b in self.transcript.boxes.values() if b.is_command and b.is_running and news.decision.action == "accept"
            ]:
                box.wait(False)
                self._tails.follow()

    def _show_state(self, message: Outgoing, state: str) -> None:
        if message in self.transcript.said:
            self.transcript.said[message].show(state)

    async def _end_answer(self, end: Ended) -> None:
        self._under_way = [one for one in self._under_way if one is not end.message]
        self._show_state(end.message, "" if end.message.is_accepted or not end.message.text else "not sent")
        self.transcript.said.pop(end.message, None)
        await self.transcript.end_answer()
        self.ended = "success" if end.status == 200 else "error" if end.status >= 400 and end.outcome not in OUTCOMES else ""
        if self.running is None:
            await self.onlooker.catch_up()
        if end.status != PROPOSED and self.running is None:
            self.transcript.finish_boxes()
        if end.status not in (WAITING, 200, PROPOSED) and not self.transcript.is_explained:
            await self.transcript.add(Note(explained(end.outcome, end.why), is_error=end.outcome not in OUTCOMES))
            self.host.weigh()  # the core may have met a fault
        await self.transcript.forget_far()
        if end.message.talk.thread:
            self.ask("thread.view", {"id": end.message.talk.thread, "after": 2**62, "turns": 1}, self._take_cost)
            self.waits.refresh_waiting(end.message.talk.thread)
        self._fetch_packet()

    def _take_cost(self, found: dict[str, Any]) -> None:
        self.cost = (found["turns"] or [{}])[-1]
        self.host.weigh()

    # -- drawing ------------------------------------------------------------------------------------

    async def draw_once(self, event: dict[str, Any]) -> None:
        """One stored event, unless it is on the screen."""
        await self.transcript.draw_once(event)

    def _note_call(self, box: ToolBox) -> None:
        """A call has begun."""
        box.start()
        if box.is_command:
            self._tails.follow()

    def _toggle_greeting(self, is_new: bool) -> None:
        self.query(".-hello").set_class(not is_new, "-gone")

    def note(self, text: str) -> None:
        """Say something that is not part of the conversation."""
        self._toggle_greeting(False)
        self.run_worker(self.transcript.add(Note(text)))
        self.transcript.anchor()

    # -- keys ---------------------------------------------------------------------------------------

    def action_tools(self) -> None:
        """Open or close every tool box and thought."""
        self.transcript.open_all()

    def action_scroll(self, lines: int) -> None:
        """Move a line."""
        self.transcript.scroll_relative(y=lines, animate=False)

    def action_oldest(self) -> None:
        """Go to the beginning of the thread."""
        if self.transcript.oldest > 1 and self.running is None:
            self.ask("thread.view", {"id": self.talk.thread, "limit": PAGE_EVENTS, "turns": 1}, self._show_oldest, about="more")
        else:
            self.transcript.scroll_home(animate=False)

    def action_newest(self) -> None:
        """Go to the end and stay there."""
        if self.transcript.is_at_end:
            self.transcript.anchor()
        else:
            self.resume(self.talk.thread, told="the newest")

    def _stop_run(self, message: Outgoing) -> None:
        if message.talk.thread:
            self.ask("run.stop", {"run": message.talk.thread}, _nothing)


_nothing: Callable[[Any], None] = lambda _: None  # noqa: E731
