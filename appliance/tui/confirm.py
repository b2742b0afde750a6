"""A question with two answers, in the middle of the screen."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label

from appliance.text.invisible import escape_invisible


class Confirm(ModalScreen[bool]):
    """Closes with True or False."""

    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > Vertical { width: 56; max-width: 95%; height: auto; border: round $error; background: $panel; padding: 0 1; }
    Confirm Label { width: 100%; margin: 0 0 1 0; }
    Confirm Horizontal { height: auto; align: center middle; }
    Confirm Button { margin: 0 1; }
    """
    BINDINGS = [
        Binding("y", "answer(True)", show=False),
        Binding("n,escape", "answer(False)", show=False),
        Binding("left,right,up,down", "app.focus_next", show=False),
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__()
        self._question = question
        self._yes = yes

    def compose(self) -> ComposeResult:
        """The question above two buttons."""
        with Vertical():
            yield Label(escape_invisible(self._question), markup=False)
            with Horizontal():
                yield Button(f"{self._yes} (y)", id="yes", variant="error", compact=True)
                yield Button("Keep (n)", id="no", compact=True)

    def on_mount(self) -> None:
        """The harmless answer is under the cursor."""
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A click or Return."""
        self.dismiss(event.button.id == "yes")

    def action_answer(self, is_yes: bool) -> None:
        """A key."""
        self.dismiss(is_yes)
