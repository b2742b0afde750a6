"""The screen as a whole: tabs on top, a panel, the status line, the keys. Starts the two worker threads.

Every panel is one entry of PANELS. What goes wrong is one line at the bottom; what goes very wrong is
logged, the terminal is restored, and `run` raises one error with the next step, never a traceback.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.filter import LineFilter
from textual.message import Message
from textual.timer import Timer
from textual.widgets import ContentSwitcher, Footer, Input, TextArea

from appliance.clock import monotonic_s
from appliance.errors import OwlError
from appliance.runtime.rpc_client import Client
from appliance.tui import theme as look
from appliance.tui.banner import Banner
from appliance.tui.chat import Chat
from appliance.tui.connection import Contact, Link
from appliance.tui.first_questions import FirstQuestions
from appliance.tui.frame import FrameApp
from appliance.tui.navigation import Navigator
from appliance.tui.owl.face import Owl
from appliance.tui.panel import Panel
from appliance.tui.picker import Picker
from appliance.tui.sender import Sender
from appliance.tui.shown_text import Shown
from appliance.tui.status_line import TITLE_FROM, status_line
from appliance.tui.tabs.context import Context
from appliance.tui.tabs.help_panel import HelpGuide
from appliance.tui.tabs.schedules import Schedules
from appliance.tui.tabs.tasks import Tasks
from appliance.tui.tabs.threads import Threads
from appliance.tui.tabs.tool_calls import Tools
from appliance.tui.tabs.workers import Workers

LOG = logging.getLogger(__name__)
FAREWELL_S = 3.0  # for the core to note that a thread was left
PANELS: tuple[type[Panel], ...] = (Chat, Tools, Context, Tasks, Threads, Schedules, Workers, HelpGuide)
NAMES_FROM = 76  # columns that the names of all tabs take
NOTICE_S = 6.0
WATCHED_S = 180.0  # after the last key, in which what is on the screen is kept new
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class KeyFooter(Footer):
    """The keys that do something now, drawn anew only where they are others: a third of a change of tabs was that."""

    _shown: tuple[Any, ...] = ()

    async def recompose(self) -> None:
        """Draw them; what is told of them may be what is shown already."""
        shown = tuple(one[1:] for one in self.screen.active_bindings.values() if one.binding.show)
        if shown != self._shown:
            self._shown = shown
            await super().recompose()


class Tab(Shown):
    """The name of a panel, or its number where there is no room for all names; a click goes there."""

    DEFAULT_CSS = """
    Tab { width: auto; padding: 0 1; color: $foreground 70%; }
    Tab:hover { background: $boost; }
    Tab.-on { color: $background; background: $primary; text-style: bold; }
    Tab:ansi { color: ansi_default; }
    Tab:ansi.-on { color: ansi_default; background: ansi_default; text-style: bold reverse; }
    """

    def __init__(self, panel: type[Panel]) -> None:
        super().__init__(panel.LABEL, markup=False, id=f"tab-{panel.LABEL.lower()}")
        self._label = panel.LABEL
        self._panel = panel.LABEL.lower()

    def show(self, is_on: bool, has_room: bool) -> None:
        """Draw it; the one that is open has its name always."""
        self.set_class(is_on, "-on")
        label = self._label if is_on or has_room else str(1 + [panel.LABEL for panel in PANELS].index(self._label))
        if str(self.content) != label:
            self.update(label)

    async def on_click(self) -> None:
        """Go there."""
        await self.run_action(f"app.panel({self._panel!r})")


class Face(FrameApp):
    """The program. `revive` is asked before each attempt to reach a core that is away."""

    TITLE = "Owlbox"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-medium"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (14, "-tall")]
    CSS = """
    #_default { background: $background; }
    #top { height: 1; background: $panel; }
    #title { width: 1fr; text-align: right; padding: 0 1; color: $foreground 70%; text-wrap: nowrap; text-overflow: ellipsis; }
    #status { height: 1; padding: 0 1; background: $panel; color: $foreground 80%; text-wrap: nowrap; text-overflow: ellipsis; }
    #status.-notice { height: auto; max-height: 3; text-wrap: wrap; }
    #status.-error { color: $error; text-style: bold; }
    Footer { background: $background; }
    ContentSwitcher { height: 1fr; }
    .-narrow #title { display: none; }
    .-short Footer { display: none; }
    TextArea .text-area--placeholder, Input > .input--placeholder { color: $foreground 70%; }
    TextArea:ansi .text-area--placeholder, Input:ansi > .input--placeholder { color: ansi_default; text-style: dim; }
    OptionList:ansi > .option-list--option-highlighted { text-style: bold underline; }
    Tree:ansi > .tree--cursor { text-style: bold underline; }
    Button:ansi:focus { text-style: bold reverse; }
    #look { border-left: solid $foreground 25%; }
    #look:ansi { border-left: solid ansi_bright_black; }
    """
    BINDINGS = [
        Binding("escape", "close", "Back", key_display="Esc"),
        Binding("tab", "turn(1)", "Next", key_display="Tab", priority=True),
        Binding("shift+tab", "turn(-1)", show=False, priority=True),
        *(Binding(f"f{i}", f"panel('{p.LABEL.lower()}')", show=False, priority=True) for i, p in enumerate(PANELS, 1)),
        Binding("ctrl+r", "reconnect", show=False),
        Binding("ctrl+l", "threads", show=False, priority=True),
        Binding("ctrl+n", "step_thread(1)", show=False, priority=True),
        Binding("ctrl+p", "step_thread(-1)", show=False, priority=True),
        Binding("ctrl+g", "palette", show=False, priority=True),
        Binding("ctrl+s", "copy", show=False, priority=True),
        Binding("ctrl+o", "decide", show=False),
        Binding("ctrl+c", "leave", "Quit", key_display="^C", priority=True),
        Binding("ctrl+q", "quit", show=False),
    ]

    class Met(Message):
        """News of the link, from its thread."""

        def __init__(self, contact: Contact) -> None:
            super().__init__()
            self.contact = contact

    def __init__(
        self,
        socket: str,
        home: str,
        environ: Mapping[str, str],
        revive: Callable[[], str],
        thread: str = "",
        prompt: str = "",
        *,
        is_asking: bool = False,
    ) -> None:
        """`is_asking`: the first questions are asked where they are open and nothing else was begun."""
        self._environ = dict(environ)  # first: Textual takes NO_COLOR out of it
        theme = look.theme(environ)
        super().__init__(ansi_color=True if theme == look.PLAIN.name else None)
        self._letters = look.letters(environ)
        for one in look.THEMES:
            self.register_theme(one)
        self.theme = theme
        self.link = Link(socket, lambda contact: self._post_news(self.Met(contact)), revive, environ)
        self.sender = Sender(self.link, lambda news: self._post_news(Chat.Arrived(news)))
        self.home = home
        self._thread = thread
        self._prompt = prompt
        self._is_theme_typed = False
        self._is_asking = is_asking and not (thread or prompt)
        self._contact = Contact(False)
        self._was_up = False
        self._last_words = ""
        self.left = ""  # the thread that was open when the screen was left
        self._core: dict[str, Any] = {}
        self._touched_s = monotonic_s()
        self._notice: tuple[str, bool] | None = None
        self._clock: Timer | None = None
        self._unnotice: Timer | None = None

    def get_line_filters(self) -> "list[LineFilter]":
        """Textual's, and ours for terminals that cannot show every letter."""
        dim = [look.Dim(look.DIM[self.theme])] if self.theme in look.DIM else []
        return [*dim, *super().get_line_filters(), look.Calm(), *([self._letters] if self._letters else [])]

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        with Horizontal(id="top"):
            yield Owl()
            for panel in PANELS:
                yield Tab(panel)
            yield Shown(id="title", markup=False)
        yield Banner()
        with ContentSwitcher(initial="chat"):
            for panel in PANELS:
                yield panel(self)
        yield Shown(id="status", markup=False)
        yield KeyFooter(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """The first screen is there: now connect."""
        self._show_panel("chat")
        self.refresh_status()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            try:
                loop.add_signal_handler(number, self.exit)
            except (RuntimeError, ValueError):
                pass  # not the main thread: a test
        self.run_worker(self.link.stay_connected, thread=True, group="link")
        self.run_worker(self.sender.run, thread=True, group="sender")
        self.run_worker(self.chat.follower.run, thread=True, group="follower")

    def on_unmount(self) -> None:
        """Let the worker threads go."""
        self.sender.close()
        self.link.close()

    def _post_news(self, message: Message) -> None:
        """Called in worker threads."""
        if not self.link.is_closing:
            target = self.chat if isinstance(message, Chat.Arrived) else self
            target.post_message(message)

    @property
    def chat(self) -> Chat:
        """The first panel."""
        return self.screen_stack[0].query_one(Chat)

    @property
    def _active_panel(self) -> Panel:
        current = self.screen_stack[0].query_one(ContentSwitcher).current
        return self.screen_stack[0].query_one(f"#{current}", Panel)

    # -- panels -------------------------------------------------------------------------------------

    def action_panel(self, name: str) -> None:
        """Show a panel."""
        if len(self.screen_stack) == 1:
            self._show_panel(name)

    def action_turn(self, step: int) -> None:
        """The next or the previous panel; inside a question, the next answer."""
        if len(self.screen_stack) > 1:
            self.screen.focus_next()
        elif not (step > 0 and self._active_panel.take_tab()):
            names = [p.LABEL.lower() for p in PANELS]
            self._show_panel(names[(names.index(str(self._active_panel.id)) + step) % len(names)])

    def action_close(self) -> None:
        """Esc: close what is open, stop an answer, go back to the chat."""
        if self.screen_stack[0].query_one(Banner).dismiss():
            return
        if not self._active_panel.leave() and self._active_panel.id != "chat":
            self._show_panel("chat")

    # -- over the screen ----------------------------------------------------------------------------

    @property
    def _navigator(self) -> Navigator:
        return Navigator(self, self.chat, PANELS, self._show_panel)

    def action_threads(self) -> None:
        """Choose a thread; again, close the list."""
        if len(self.screen_stack) == 1:
            self._navigator.open_threads()
        elif isinstance(self.screen, Picker):
            self.screen.action_close()

    def action_step_thread(self, step: int) -> None:
        """The next or the previous thread."""
        if len(self.screen_stack) == 1:
            self._navigator.step_thread(step)

    def action_palette(self) -> None:
        """Choose something to do; again, close the list."""
        if len(self.screen_stack) == 1:
            self._navigator.open_palette()
        elif isinstance(self.screen, Picker):
            self.screen.action_close()

    def action_copy(self) -> None:
        """Choose something to copy."""
        if len(self.screen_stack) == 1:
            self._navigator.open_copy()

    def action_decide(self) -> None:
        """From any tab to what waits for a decision."""
        self._show_panel("chat")
        if self.chat.waits.here is not None:
            self.chat.waits.focus()
        else:
            self.call_later(self.chat.execute, "/waiting")

    def action_mouse(self, word: str) -> None:
        """Leave the mouse to the terminal, which then selects text, or take it back."""
        if word not in ("on", "off"):
            self.say("/mouse off gives the mouse to the terminal, /mouse on takes it back", bool(word))
        elif self._driver is not None:
            switch = "_enable_mouse_support" if word == "on" else "_disable_mouse_support"
            getattr(self._driver, switch, lambda: None)()
            self.say("the terminal selects text now, until /mouse on" if word == "off" else "the mouse works here again", False)

    def action_open_ref(self, ref: str) -> None:
        """Show an entry that an answer names."""
        self._show_panel("context")
        self.query_one(Context).show(ref)

    async def on_event(self, event: events.Event) -> None:
        """Every key is seen here first, whoever takes it."""
        if isinstance(event, events.Key):
            if not self.screen_stack:
                return  # it is closing: Textual would look for the screen
            if not event.is_forwarded:
                self._touch()
        await super().on_event(event)

    def _touch(self) -> None:
        """Somebody is there: after a while without anybody, look at once at what has changed."""
        was_watched, self._touched_s = self.is_watched(), monotonic_s()
        for owl in self.screen_stack[0].query(Owl):
            owl.touch()
        if not was_watched and self._active_panel.id != "chat":
            self._active_panel.enter()

    def on_key(self, event: events.Key) -> None:
        """Digits go to a tab where nothing is typed."""
        is_typing = isinstance(self.focused, TextArea | Input)
        if not is_typing and event.key.isdecimal() and 1 <= int(event.key) <= len(PANELS):
            self.action_panel(PANELS[int(event.key) - 1].LABEL.lower())
            event.stop()

    def _show_panel(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        self._draw_tabs()
        self.query_one(Owl).redraw()
        self._active_panel.enter()

    def resume(self, thread: str) -> None:
        """Continue a thread in the chat."""
        self._show_panel("chat")
        self.chat.resume(thread)

    def attached(self) -> str:
        """The thread in the chat."""
        return self.chat.talk.thread

    def is_watched(self) -> bool:
        """Whether somebody has pressed a key lately."""
        return monotonic_s() - self._touched_s < WATCHED_S

    def unread(self) -> Collection[str]:
        """The threads in which something came that was not on the screen."""
        return self.chat.onlooker.unread

    # -- the core -----------------------------------------------------------------------------------

    def on_face_met(self, event: Met) -> None:
        """The core is there, or it has gone."""
        self._contact = event.contact
        if self._contact.is_up:
            self._was_up = True
            self._active_panel.enter()
            self.weigh()
            self.chat.ask("notice.list", {"is_waiting": True}, self._show_waiting)
            if self._is_asking:
                self.chat.ask("interview.answer", {}, self._ask_first, failed=lambda error: None)
            thread, prompt, self._thread, self._prompt = self._thread, self._prompt, "", ""
            if thread:
                self.chat.resume(thread, prompt)
            elif prompt:
                self.chat.call_later(self.chat.send, prompt)
        elif (last_words := self._contact.last_words) and last_words != self._last_words:
            self._last_words = last_words  # once: it is tried again every few seconds
            self.chat.note(f"The core cannot start: {last_words}")
        self.refresh_status()

    def _draw_tabs(self) -> None:
        current = self.screen_stack[0].query_one(ContentSwitcher).current
        for tab in self.screen_stack[0].query(Tab):
            tab.show(tab.id == f"tab-{current}", self.size.width >= NAMES_FROM)

    def on_resize(self) -> None:
        """There may be room for names of tabs and the owl now, or none any more; Textual takes the new size after this."""
        self.call_later(self._fit_size)

    def _fit_size(self) -> None:
        if self.screen_stack and self.screen_stack[0].query(Owl):
            self._draw_tabs()
            self.screen_stack[0].query_one(Owl).redraw()
            self.refresh_status()

    def action_reconnect(self) -> None:
        """Do not wait for the next attempt."""
        self.link.hurry()

    def weigh(self) -> None:
        """Ask what model and context window there are."""
        self.chat.ask("core.status", {}, self._take_status)

    def _take_status(self, status: dict[str, Any]) -> None:
        unread = status.get("folder", {}).get("unread", "")
        if unread and unread != self._core.get("folder", {}).get("unread"):
            self.say(f"{unread}; /status says why", True)
        self._core = status
        screen = status.get("screen", {"owl": True, "theme": look.AUTO})  # an older core says nothing of it
        self.screen_stack[0].query_one(Owl).show_owl(screen["owl"])
        if not self._is_theme_typed:
            self._use_theme(screen["theme"])
        self.refresh_status()

    def action_theme(self, name: str) -> None:
        """Other colours, on this screen; without a name, say which there are."""
        if name not in look.CHOICES:
            self.say(f"{name[:40] + ': ' if name else ''}/theme takes {', '.join(look.CHOICES)}", bool(name))
            return
        self._is_theme_typed = True
        self._use_theme(name)
        why = "NO_COLOR is set, so there are no colours" if "NO_COLOR" in self._environ else f"colours: {name}"
        self.say(f"{why}; owlbox config set screen.theme {name} keeps it", False)

    def _use_theme(self, name: str) -> None:
        found = look.theme(self._environ, name)
        if found != self.theme:
            self.theme = found
            self.ansi_color = found == look.PLAIN.name

    def ring(self, text: str) -> None:
        """A banner with a bell, for what nobody asked for just now."""
        self.screen_stack[0].query_one(Banner).ring(text)

    def _ask_first(self, asked: dict[str, Any]) -> None:
        """The first questions are open; whoever is typing already is not disturbed."""
        self._is_asking = False
        is_typing = any(one.text for one in self.screen_stack[0].query(TextArea))
        if asked["is_open"] and len(self.screen_stack) == 1 and not is_typing and not self.attached():
            self.push_screen(FirstQuestions(self.chat.ask, asked), self._end_first)

    def _end_first(self, words: str | None) -> None:
        """The questions are answered or left; what a person who is new here does next."""
        self.chat.note(words or "")

    def _show_waiting(self, waiting: list[dict[str, Any]]) -> None:
        """What this person was told while no screen was open."""
        for one in waiting:
            self.ring(str(one["text"]))
        if waiting:
            self.chat.ask("notice.seen", {"keys": [one["key"] for one in waiting]}, lambda found: None)

    # -- the lines ----------------------------------------------------------------------------------

    def say(self, text: str, is_error: bool, for_s: float = 0.0) -> None:
        """One line at the bottom, for some seconds."""
        self._notice = (" ".join(text.split()), is_error)
        if self._unnotice is not None:
            self._unnotice.stop()
        self._unnotice = self.set_timer(for_s or NOTICE_S * (2 if is_error else 1), self._forget_notice)
        self.refresh_status()

    def notify(self, message: str, **more: Any) -> None:
        """Textual's own notices go to the bottom line too."""
        self.say(message, more.get("severity") == "error")

    def _forget_notice(self) -> None:
        self._notice = None
        self.refresh_status()

    def refresh_status(self) -> None:
        """Draw owl, title and status line."""
        if not self.is_running or not self.screen_stack:
            return
        chat, screen = self.chat, self.screen_stack[0]
        is_running = chat.running is not None
        ended, chat.ended = chat.ended, ""
        screen.query_one(Owl).feel((ended or chat.mood) if self._contact.is_up else "away" if self._was_up else "starting")
        screen.query_one("#title", Shown).update(chat.talk.title if self.size.width >= TITLE_FROM else "")
        line = screen.query_one("#status", Shown)
        line.set_class(self._notice is not None, "-notice")
        line.set_class(self._notice is not None and self._notice[1], "-error")
        line.update(self._notice[0] if self._notice else status_line(self.chat, self._contact, self._core, self._was_up))
        if is_running and self._clock is None:
            self._clock = self.set_interval(1.0, self.refresh_status)
        elif not is_running and self._clock is not None:
            self._clock.stop()
            self._clock = None

    # -- the end ------------------------------------------------------------------------------------

    def exit(self, result: None = None, return_code: int = 0, message: Any = None) -> None:
        """Leave; which thread was open is known afterwards, when nothing is on the screen any more."""
        self.left = self.chat.talk.thread if self.screen_stack else self.left
        super().exit(result, return_code, message)

    def action_leave(self) -> None:
        """Ctrl+C copies a selection; else stops the answer, then clears what is typed, then leaves."""
        focused = self.focused
        text = focused.selected_text if isinstance(focused, TextArea | Input) else ""
        text = text or self.screen.get_selected_text() or ""
        if not text:
            if self._active_panel.id == "chat" and self.chat.interrupt():
                return
            if isinstance(focused, TextArea | Input) and (focused.text if isinstance(focused, TextArea) else focused.value):
                focused.clear()
            else:
                self.exit()
            return
        self.copy_to_clipboard(text)
        self.screen.clear_selection()
        self.say(f"copied {len(text)} characters; Ctrl+C again leaves", False)

    def _handle_exception(self, error: Exception) -> None:
        """Something we did not foresee: into the log with it; the terminal is restored and `run` says it in one line."""
        LOG.error("the screen failed", exc_info=error)
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        self._exit_renderables.clear()


def run(socket: str, home: str, revive: Callable[[], str], *, thread: str = "", prompt: str = "") -> None:
    """Show the screen until the person leaves; `thread` is continued, `prompt` is said first."""
    if sys.__stderr__ is not None and hasattr(sys.__stderr__, "reconfigure"):
        sys.__stderr__.reconfigure(errors="replace")  # Textual writes there
    if isinstance(ANSI_SEQUENCES_KEYS, dict):
        ANSI_SEQUENCES_KEYS["\x1b\r"] = "\n"  # Alt+Return, which Textual 8 takes for Escape and Return
    app = Face(socket, home, os.environ, revive, thread, prompt, is_asking=True)
    try:
        app.run()
        if app._exception is None:
            farewell(socket, app.left, app.link.identity)
    finally:
        app.link.close()
    if app._exception is not None:
        error = app._exception
        raise OwlError(f"the screen failed: {type(error).__name__}: {error}", hint=f"{home}/logs/tui/tui.log has the details")


def farewell(socket: str, thread: str, identity: Mapping[str, str] | None = None) -> None:
    """Mark the thread that was open as ended, and say how to go on with it, on the terminal that is free again."""
    if not thread:
        return
    with suppress(OwlError):  # it is kept all the same
        with Client(socket, name="tui", identity=identity) as client:
            client.call("thread.end", {"id": thread}, deadline_s=FAREWELL_S)
    print(f"Thread {thread} ended.\nContinue with: owlbox chat --thread {thread}", file=sys.stderr)
