"""A list to choose from, for keyboard and mouse."""

from contextlib import suppress

from textual import events
from textual._widget_navigation import Direction
from textual.binding import Binding
from textual.widgets import OptionList


class Rows(OptionList):
    """A first click moves the cursor; a click on the row under the cursor chooses it."""

    DEFAULT_CSS = """
    Rows, Rows:focus { border: none; height: 1fr; padding: 0; background: $background; scrollbar-size-vertical: 1; }
    """
    BINDINGS = [Binding("enter", "select", "Open", key_display="Enter")]

    async def _on_click(self, event: events.Click) -> None:
        place = event.style.meta.get("option")
        if place is not None and place != self.highlighted:
            self.highlighted = place
            event.prevent_default()
        else:
            await super()._on_click(event)

    def _move_page(self, direction: Direction) -> None:
        with suppress(KeyError):  # filled and never drawn yet: Textual looks for its lines and has none
            super()._move_page(direction)
