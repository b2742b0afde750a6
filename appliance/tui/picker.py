"""A list over the screen to choose from by typing: threads, models, and everything that can be done. Asks nobody itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList

from appliance.tui.choice_list import Dialog, Rows
from appliance.tui.shown_text import Row, Shown


@dataclass(frozen=True)
class Item:
    """Something that can be chosen: what it is known by, what is shown, and more that is shown dim."""

    key: str
    name: str
    about: str = ""
    mark: str = ""


class Picker(Dialog[str | None]):
    """Closes with the key of what was chosen, or with nothing. `note` stands below the list."""

    DEFAULT_CSS = """
    Picker { align: center top; }
    Picker > Vertical { width: 90%; max-width: 90; height: auto; max-height: 90%; margin: 1 0; border: round $primary;
        background: $panel; padding: 0 1; }
    Picker Input, Picker Input:focus { border: none; height: 1; padding: 0; background: $panel; }
    Picker Rows, Picker Rows:focus { height: auto; max-height: 60vh; background: $panel; }
    Picker Rows { text-wrap: nowrap; text-overflow: ellipsis; }
    Picker #note { color: $foreground 70%; }
    Picker #note:ansi { color: ansi_default; }
    .-short Picker > Vertical { margin: 0; border: none; }
    """
    BINDINGS = [Binding("escape", "close", show=False)]

    def __init__(self, prompt: str, items: Sequence[Item], *, here: str = "", note: str = "") -> None:
        """`here` is the key of the one that is under the cursor at first."""
        super().__init__()
        self._prompt = prompt
        self._items = list(items)
        self._shown: list[Item] = []
        self._here = here
        self._note = note

    def compose(self) -> ComposeResult:
        """What is typed, the list, a note."""
        with Vertical():
            field = Input(placeholder=self._prompt)
            field.cursor_blink = False
            yield field
            rows = Rows(markup=False)
            rows.can_focus = False
            yield rows
            yield Shown(self._note or "Enter chooses, Esc closes", id="note", markup=False)

    def on_mount(self) -> None:
        """Everything is there to begin with."""
        self.query_one(Input).focus()
        self._fill("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Only what has all the words."""
        self._fill(event.value)

    def on_key(self, event: events.Key) -> None:
        """The arrows move in the list while the input has the focus."""
        moves = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down"}
        if event.key in moves:
            getattr(self.query_one(Rows), f"action_{moves[event.key]}")()
            event.stop()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return."""
        self._choose(self.query_one(Rows).highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click."""
        event.stop()
        self._choose(event.option_index)

    def action_close(self) -> None:
        """Nothing."""
        self.dismiss(None)

    def _choose(self, place: int | None) -> None:
        if place is not None and place < len(self._shown):
            self.dismiss(self._shown[place].key)

    def _fill(self, typed: str) -> None:
        words = typed.lower().split()
        self._shown = [one for one in self._items if all(word in f"{one.name} {one.about}".lower() for word in words)]
        self._shown.sort(key=lambda one: not one.name.lower().lstrip("/").startswith(typed.lower().lstrip("/"))) if typed else None
        rows = self.query_one(Rows)
        width = min(28, max((len(one.name) for one in self._shown), default=0))
        nothing = [Row(Content.assemble(("  nothing has these words", "dim")))]  # without any row the list would vanish
        rows.set_options([Row(_line(one, width)) for one in self._shown] or nothing)
        keys = [one.key for one in self._shown]
        rows.highlighted = (keys.index(self._here) if self._here in keys and not typed else 0) if keys else None


def _line(item: Item, width: int) -> Content:
    return Content.assemble((f"{item.mark or ' '} ", "bold $primary"), f"{item.name:<{width}}", (f"  {item.about}", "dim"))
