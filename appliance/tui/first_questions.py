"""The first questions, asked in the middle of the screen as long as they are open (S-046); the core writes the answers down.

One question at a time with a line for the answer: Return answers, an empty answer leaves the question out, Esc leaves the rest
for the next start. What was typed before the questions came is never taken for an answer: then they are asked the next time.
"""

from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from appliance.errors import OwlError
from appliance.tui.choice_list import Dialog
from appliance.tui.shown_text import Shown


class FirstQuestions(Dialog[str]):
    """Closes with the last words of the interview, or that the rest is asked the next time, and with what to do then."""

    DEFAULT_CSS = """
    FirstQuestions { align: center middle; }
    FirstQuestions > Vertical { width: 68; max-width: 100%; height: auto; max-height: 100%; padding: 0 1;
        border: round $primary; background: $panel; }
    FirstQuestions > Vertical:ansi { border: round ansi_yellow; background: ansi_default; }
    FirstQuestions #note { color: $foreground 70%; height: auto; }
    FirstQuestions #question { height: auto; margin: 0 0 1 0; }
    FirstQuestions Input, FirstQuestions Input:focus { border: none; border-left: outer $primary; height: 1; padding: 0 1; }
    FirstQuestions Input:ansi, FirstQuestions Input:ansi:focus { border-left: outer ansi_yellow; }
    FirstQuestions #keys { color: $foreground 70%; height: auto; margin: 1 0 0 0; }
    FirstQuestions #keys:ansi, FirstQuestions #note:ansi { color: ansi_default; }
    .-short FirstQuestions #keys, FirstQuestions .-none { display: none; }
    """
    BINDINGS = [Binding("escape", "later", show=False)]

    def __init__(self, ask: Callable[..., None], asked: dict[str, Any]) -> None:
        """`ask` calls the core as `Panel.ask` does; `asked` is the question that is open."""
        super().__init__()
        self._ask = ask
        self._asked = asked
        self._is_waiting = False

    def compose(self) -> ComposeResult:
        """The question, a line for the answer, the keys."""
        with Vertical():
            yield Shown(id="note", markup=False, classes="-none")
            yield Shown(id="question", markup=False)
            field = Input(id="answer", select_on_focus=False)
            field.cursor_blink = False
            yield field
            yield Shown(id="keys", markup=False)

    def on_mount(self) -> None:
        """Ask."""
        self._show_question()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand the answer in, once."""
        event.stop()
        if not self._is_waiting:
            self._is_waiting = True
            self._ask("interview.answer", {"text": event.value}, self._take_next, failed=self._give_up, about="first questions")

    def action_later(self) -> None:
        """Esc."""
        self._close(self._asked["later"])

    def _take_next(self, asked: dict[str, Any]) -> None:
        if not self.is_current:
            return
        self._asked, self._is_waiting = asked, False
        if asked["is_open"]:
            self._show_question()
        else:
            self._close(asked["text"])

    def _give_up(self, error: OwlError) -> None:
        """Trouble keeps nobody from talking: a core that went away asks again when it is back."""
        if self.is_current:
            self.app.notify(str(error), severity="error")
            self._close(self._asked["later"])

    def _close(self, words: str) -> None:
        self.dismiss(f"{words}\n\n{self._asked['hints']}")

    def _show_question(self) -> None:
        note = self.query_one("#note", Shown)
        note.update(self._asked["note"])
        note.set_class(not self._asked["note"], "-none")
        count = f"{self._asked['number']}/{self._asked['total']} "
        self.query_one("#question", Shown).update(Content.assemble((count, "bold $primary"), self._asked["text"]))
        self.query_one("#keys", Shown).update(self._asked["keys"])
        field = self.query_one(Input)
        field.value = ""
        field.focus()
