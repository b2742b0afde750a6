"""A screen over the screen that is answered once."""

from asyncio import sleep
from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """Textual closes whatever screen is on top and gives the answer again when a second Return was on its way already."""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Close with an answer; nothing when it is closed."""
        return super().dismiss(result) if self.is_current else AwaitComplete(sleep(0))
