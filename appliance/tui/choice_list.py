"""A list to choose from, for keyboard and mouse, and a screen over the screen that is answered once."""

from asyncio import sleep
from contextlib import suppress
from typing import TypeVar

from textual import events
from textual._widget_navigation import Direction
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.screen import ModalScreen
from textual.widgets import OptionList

Answer = TypeVar("Answer")


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


class Dialog(ModalScreen[Answer]):
    """Textual closes whatever screen is on top and gives the answer again when a second Return was on its way already."""

    # That of Textual's own, which a class between it and ours does not hand on: else nothing is seen behind.
    DEFAULT_CSS = "Dialog { background: $background 60%; &:ansi { background: transparent; } }"

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close with an answer; nothing when it is closed."""
        return super().dismiss(result) if self.is_current else AwaitComplete(sleep(0))
