"""Where a message is typed: Return sends, other keys break the line, Up and Down go through what was sent."""

from collections.abc import Callable

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import OptionList, TextArea

from appliance.tui.commands import Offer, offers
from appliance.tui.shown_text import Row

NEWLINE_KEYS = ("shift+enter", "ctrl+j", "alt+enter", "\n")


class Menu(OptionList, can_focus=False):
    """The lines that what is typed may become."""

    DEFAULT_CSS = """
    Menu { display: none; height: auto; max-height: 8; border: none; padding: 0 1; background: $panel; scrollbar-size: 1 1;
        text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._shown: tuple[Offer, ...] = ()

    @property
    def is_open(self) -> bool:
        """True while there is something to choose from."""
        return bool(self.display)

    @property
    def selected_offer(self) -> Offer:
        """The line under the cursor."""
        return self._shown[self.highlighted or 0]

    def offer(self, offers: tuple[Offer, ...]) -> None:
        """Show these, or hide when there are none."""
        if offers != self._shown:
            self._shown = offers
            self.set_options([Row(f"{o.shown or o.line:<18} {o.about}") for o in offers])
            self.highlighted = 0 if offers else None
        self.display = bool(offers)


class Composer(TextArea):
    """The input: grows to six lines."""

    DEFAULT_CSS = """
    Composer { height: auto; max-height: 8; min-height: 3; border: round $border-blurred; padding: 0 1; background: $background; }
    Composer:focus { border: round $primary; }
    Composer .text-area--cursor-line { background: $background; }
    .-short Composer, .-short Composer:focus { border: none; min-height: 1; max-height: 3; padding: 0; }
    """
    BINDINGS = [
        Binding("ctrl+j", "newline", "New line", key_display="^J"),
        Binding("pageup", "scroll_talk(-1)", show=False),
        Binding("pagedown", "scroll_talk(1)", show=False),
    ]

    class Sent(Message):
        """A message was typed."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Scrolled(Message):
        """The talk above is to move by pages."""

        def __init__(self, pages: int) -> None:
            super().__init__()
            self.pages = pages

    def __init__(self, menu: Menu) -> None:
        super().__init__(
            soft_wrap=True, tab_behavior="focus", show_line_numbers=False, placeholder="Ask the owl, or type / for commands"
        )
        self.cursor_blink = False
        self._menu = menu
        self.suggest: Callable[[str], tuple[Offer, ...]] = offers
        self.take_queue_key: Callable[[str, str], bool] = lambda key, typed: False
        self._sent: list[str] = []
        self._place = 0
        self._typed = ""

    def replace_text(self, text: str) -> None:
        """Replace what is typed; the cursor goes to its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    def remember(self, texts: list[str]) -> None:
        """What was sent before, in this thread: Up goes through it, too. Not when something was sent here already."""
        if not self._sent:
            self._sent = texts
            self._place = len(texts)

    async def _on_key(self, event: events.Key) -> None:
        self._menu.offer(self.suggest(self.text))  # what was typed just now has not been drawn yet
        if self._menu.is_open and event.key in ("up", "down", "enter"):
            self._choose_offer(event.key)
        elif event.key == "enter":
            self._submit_text()
        elif self.take_queue_key(event.key, self.text):
            pass
        elif event.key == "ctrl+d" and not self.text:
            self.app.exit()
        elif event.key in NEWLINE_KEYS:
            self.action_newline()
        elif event.key == "up" and self.navigator.is_first_wrapped_line(self.cursor_location) and self._place > 0:
            self._go_to_sent(self._place - 1)
        elif event.key == "down" and self.navigator.is_last_wrapped_line(self.cursor_location) and self._place < len(self._sent):
            self._go_to_sent(self._place + 1)
        else:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()

    def take_tab(self) -> bool:
        """Tab completes a command of the menu; False when there is none."""
        if self._menu.is_open:
            self.choose(is_final=False)
            return True
        return False

    def action_newline(self) -> None:
        """Break the line."""
        self.insert("\n")

    def action_scroll_talk(self, pages: int) -> None:
        """Page Up and Page Down move what was said."""
        self.post_message(self.Scrolled(pages))

    def _choose_offer(self, key: str) -> None:
        if key == "up":
            self._menu.action_cursor_up()
        elif key == "down":
            self._menu.action_cursor_down()
        else:
            self.choose(is_final=key == "enter")

    def choose(self, *, is_final: bool) -> None:
        """Run the line under the cursor, or only write it when something is to follow."""
        chosen = self._menu.selected_offer
        if is_final and (not chosen.has_more or self.text.lower() == chosen.line):
            self._send_text(chosen.line)
        else:
            self.replace_text(f"{chosen.line} " if chosen.has_more else chosen.line)
        self._menu.offer(())

    def _submit_text(self) -> None:
        row, column = self.cursor_location
        if column and self.document[row][column - 1] == "\\":
            self.replace("\n", (row, column - 1), (row, column))
            return
        if text := self.text.strip():
            self._send_text(text)

    def _send_text(self, text: str) -> None:
        if text not in self._sent[-1:]:
            self._sent.append(text)
        self._place, self._typed = len(self._sent), ""
        self.replace_text("")
        self.post_message(self.Sent(text))

    def _go_to_sent(self, place: int) -> None:
        if self._place == len(self._sent):
            self._typed = self.text
        self._place = place
        self.replace_text(self._typed if place == len(self._sent) else self._sent[place])
