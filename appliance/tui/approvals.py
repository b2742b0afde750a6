"""What waits for the person's word in the talk: the change as a difference, or the question, and the keys that decide.

Shows one thing at a time and says how many there are. It never takes the focus by itself: what is typed for the
input must not decide anything. While something is shown it is looked for again every few seconds, because another
client may decide it. Asks the core through its panel; the decision itself is a message to that panel.
"""

from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Button, Input

from appliance.errors import OwlError
from appliance.text.invisible import Form, escape_invisible
from appliance.tui.sender import Decision
from appliance.tui.shown_text import Shown

LOOK_S = 3.0  # how old the card may be while it is on the screen
MOST = 100
SHOWN_CHARS = 16_000
QUESTION = "ask_user"
REMEMBERED = "7d"
HELD = "d: accept for 7 days"
AWAY = "Ctrl+O, then a letter"
HERE = "↑↓ scroll, Esc back"
SEVERAL = "←→ others, ↑↓ scroll, Esc"
ANSWER = "type the answer below, or its number"
WHY = "why not? Return rejects it with this reason, Esc cancels"


class Waits(Vertical, can_focus=True):
    """The card between talk and input; hidden while nothing waits."""

    DEFAULT_CSS = """
    Waits { display: none; height: auto; max-height: 60%; border: round $warning 60%; padding: 0 1; background: $background; }
    Waits:focus, Waits:focus-within { border: round $primary; }
    Waits:ansi { border: round ansi_yellow; }
    Waits:ansi:focus, Waits:ansi:focus-within { border: heavy ansi_yellow; }
    Waits #head { height: auto; max-height: 3; text-style: bold; }
    Waits VerticalScroll { height: auto; max-height: 40vh; scrollbar-size-vertical: 1; }
    Waits #why { display: none; border: none; height: 1; padding: 0; background: $surface; }
    Waits.-asking #why { display: block; }
    Waits Horizontal { height: 1; }
    Waits Button { margin: 0 1 0 0; min-width: 0; width: auto; }
    Waits #hint { width: 1fr; height: 1; color: $foreground 70%; text-align: right; text-wrap: nowrap; text-overflow: ellipsis; }
    Waits #hint:ansi { color: ansi_default; }
    .-narrow Waits #hint { display: none; }
    .-short Waits { border: none; padding: 0; }
    .-short Waits #hint, .-short Waits:focus #hint { display: none; }
    """
    BINDINGS = [
        Binding("a", "decide('accept')", "Accept", show=False),
        Binding("d", "remember", "Accept for 7 days", show=False),
        Binding("r", "decide('reject')", "Reject", show=False),
        Binding("w", "why", "Reject, why", show=False),
        Binding("f", "decide('error')", "Went wrong", show=False),
        Binding("left,p", "turn(-1)", show=False),
        Binding("right,n", "turn(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "scroll(-8)", show=False),
        Binding("pagedown", "scroll(8)", show=False),
    ]

    class Decided(Message):
        """The person has decided."""

        def __init__(self, decision: Decision) -> None:
            super().__init__()
            self.decision = decision

    class Moved(Message):
        """What waits is not what it was; `is_elsewhere` when somebody else decided something that was shown."""

        def __init__(self, is_elsewhere: bool) -> None:
            super().__init__()
            self.is_elsewhere = is_elsewhere

    def __init__(self, ask: Callable[..., None], go_back: Callable[[], None]) -> None:
        """`go_back` moves the focus to where it belongs when the card is hidden."""
        super().__init__(id="waits")
        self._ask = ask
        self._go_back = go_back
        self._thread = ""
        self._here: list[dict[str, Any]] = []
        self._at = 0
        self._full: dict[str, Any] | None = None
        self._timer: Timer | None = None
        self.count = 0  # what waits in all threads

    def compose(self) -> ComposeResult:
        """What it is about, what would change, the answers."""
        yield Shown(id="head", markup=False)
        with VerticalScroll(can_focus=False):
            yield Shown(id="body", markup=False)
        field = Input(placeholder=WHY, id="why", select_on_focus=False)
        field.cursor_blink = False
        yield field
        with Horizontal():
            for name, label in (("accept", "Accept (a)"), ("reject", "Reject (r)"), ("why", "Reject, saying why (w)")):
                button = Button(label, id=f"do-{name}", compact=True)
                button.can_focus = False
                yield button
            yield Shown(AWAY, id="hint", markup=False)

    # -- what waits ---------------------------------------------------------------------------------

    @property
    def here(self) -> dict[str, Any] | None:
        """What is on the card."""
        return self._here[self._at] if self._here else None

    @property
    def question(self) -> dict[str, Any] | None:
        """What the assistant asks, if that is on the card."""
        return self.here if self.here and self.here["action"] == QUESTION else None

    def refresh_waiting(self, thread: str) -> None:
        """Ask again what waits, in this thread and in all."""
        if thread != self._thread:
            self._thread = thread
            self.clear()
        self._ask("entry.waiting", {"limit": MOST}, self._take_count, failed=_ignore_error, about="waiting")
        if thread:
            self._ask(
                "entry.waiting", {"run": thread, "limit": MOST}, self._take_listing, failed=_ignore_error, about="waiting here"
            )

    def clear(self) -> None:
        """Nothing waits here, or it is being decided."""
        self._show_proposals([])

    def answer_question(self, text: str) -> bool:
        """Answer the question on the card with what was typed, or with the choice of this number; False without one."""
        if self.question is None or self._shown_proposal is None:
            return False
        options = list(self._shown_proposal["options"])
        is_number = text.isdecimal() and 1 <= int(text) <= len(options)
        self._send_decision("accept", options[int(text) - 1] if is_number else text)
        return True

    def decide(self, action: str, output: str = "") -> bool:
        """Decide about what is on the card; False when nothing is, also while the next one is being fetched."""
        if self._shown_proposal is None:
            return False
        self._send_decision(action, output)
        return True

    def leave(self) -> bool:
        """Esc closes the line for the reason; False when it is not open."""
        if not self.has_class("-asking"):
            return False
        self._hide_reason()
        self.focus()
        return True

    @property
    def holds_focus(self) -> bool:
        """True while keys come here."""
        focused = self.screen.focused
        return focused is not None and self in (focused, *focused.ancestors)

    # -- keys ---------------------------------------------------------------------------------------

    def action_decide(self, action: str) -> None:
        """Accept or reject it; a question is accepted by its answer."""
        if action == "accept" and self.question is not None:
            self.app.notify(ANSWER)
            return
        self.decide(action)

    def action_remember(self) -> None:
        """Accept a call that is held for a stranger's text, and let the like of it pass for a while."""
        if self._shown_proposal is not None and self._shown_proposal.get("because"):
            self._send_decision("accept", "", REMEMBERED)

    def action_why(self) -> None:
        """Ask for the reason, then reject."""
        self.add_class("-asking")
        self.query_one("#why", Input).focus()

    def action_turn(self, step: int) -> None:
        """The next or the previous one."""
        if self._here:
            self._at = (self._at + step) % len(self._here)
            self._fetch_proposal()

    def action_scroll(self, lines: int) -> None:
        """Read on."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def on_key(self, event: events.Key) -> None:
        """A digit chooses an answer; elsewhere it would go to a tab."""
        if event.key.isdecimal() and self.question is not None and self.has_focus:
            event.stop()
            if self._shown_proposal is not None and 1 <= int(event.key) <= len(self._shown_proposal["options"]):
                self.answer_question(event.key)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The reason was typed."""
        event.stop()
        self.decide("reject", event.value.strip())

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A click."""
        event.stop()
        if event.button.id == "do-why":
            self.action_why()
        else:
            self.action_decide("accept" if event.button.id == "do-accept" else "reject")

    def on_focus(self) -> None:
        """Say what the keys do now."""
        self._show_hint()

    def on_blur(self) -> None:
        """Say how to come back."""
        self._show_hint()

    # -- inside -------------------------------------------------------------------------------------

    @property
    def _shown_proposal(self) -> dict[str, Any] | None:
        """The proposal on the screen, so that no other one is decided by mistake."""
        return self._full if self.here and self._full and self._full["ref"] == self.here["ref"] else None

    def _send_decision(self, action: str, output: str, remember: str = "") -> None:
        assert self.here is not None
        about = self.here["subject"] if self.question else title(self._shown_proposal or {**self.here, "source": ""})
        digest = str((self._shown_proposal or {}).get("digest") or "")
        decision = Decision(self.here["ref"], action, output, about, remember, digest)
        self.count = max(0, self.count - 1)
        self.clear()
        self.post_message(self.Decided(decision))

    def _take_count(self, found: list[dict[str, Any]]) -> None:
        if len(found) != self.count:
            self.count = len(found)
            self.post_message(self.Moved(False))

    def _take_listing(self, found: list[dict[str, Any]]) -> None:
        found = [one for one in found if one["run"] == self._thread]
        if _listing_keys(found) == _listing_keys(self._here):
            return
        is_elsewhere = bool({one["ref"] for one in self._here} - {one["ref"] for one in found})
        self._show_proposals(found)
        self.post_message(self.Moved(is_elsewhere))

    def _show_proposals(self, found: list[dict[str, Any]]) -> None:
        before = self.here["ref"] if self.here else ""
        self._here = found
        refs = [one["ref"] for one in found]
        self._at = refs.index(before) if before in refs else 0
        self._full = None
        if found:
            self._fetch_proposal()
            if self._timer is None:
                self._timer = self.set_interval(LOOK_S, self._look_again)
            return
        self._hide_reason()
        if self.holds_focus:
            self._go_back()  # before it is hidden: Textual would choose the next widget
        self.display = False
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _look_again(self) -> None:
        """Only while it is on the screen."""
        if self.is_on_screen:
            self.refresh_waiting(self._thread)

    def _fetch_proposal(self) -> None:
        if one := self.here:
            self._ask(
                "run.proposal",
                {"ref": one["ref"], "run": one["run"]},
                self._draw_proposal,
                failed=self._show_unfetched,
                about="card",
            )

    def _show_unfetched(self, error: OwlError) -> None:
        """Decided while we asked, or a core that cannot show it: what is known must do."""
        if self.here is not None:
            self._draw_proposal(
                {**self.here, "text": str(error), "patch": "", "options": [], "source": "", "is_file_change": False}
            )

    def _draw_proposal(self, full: dict[str, Any]) -> None:
        if self.here is None or full["ref"] != self.here["ref"]:
            return
        self._full = full
        many = f"  {self._at + 1} of {len(self._here)}" if len(self._here) > 1 else ""
        self.query_one("#head", Shown).update(Content.assemble(("? ", "bold $warning"), title(full), (many, "dim")))
        because = str(full.get("because") or "")
        lines = [Content.assemble(("because of ", "bold $warning"), escape_invisible(because, "exact"))] if because else []
        self.query_one("#body", Shown).update(Content("\n").join([*lines, *body(full)]))
        self.query_one(VerticalScroll).scroll_home(animate=False)
        for name in ("accept", "why"):
            self.query_one(f"#do-{name}").display = full["action"] != QUESTION or name == "why"
        self.display = True
        self._show_hint()

    def _hide_reason(self) -> None:
        self.remove_class("-asking")
        self.query_one("#why", Input).value = ""

    def _show_hint(self) -> None:
        if not self.is_mounted:
            return
        is_held = bool(self._shown_proposal and self._shown_proposal.get("because"))
        here = HELD if is_held else SEVERAL if len(self._here) > 1 else HERE
        text = ANSWER if self.question is not None else here if self.holds_focus else AWAY
        self.query_one("#hint", Shown).update(text)


def title(full: dict[str, Any]) -> str:
    """The requested action in one line."""
    if full["action"] == QUESTION:
        return "The owl asks"
    words = [full["action"], full["source"], "→" if full["source"] else "", full["subject"]]
    return " ".join(escape_invisible(word, "exact") for word in words if word)


def body(full: dict[str, Any]) -> list[Content]:
    """What would change, line by line: a person decides about what is seen, so long lines are broken, not cut."""
    text = full["patch"] or full["text"]
    lines = text[:SHOWN_CHARS].rstrip("\n").split("\n")
    if full["patch"]:
        shown = [_colour_line(line) for line in lines[2:]]  # the first two name the file, which the head does
    else:
        form: Form = "text" if full["action"] == QUESTION else "exact"
        shown = [Content(escape_invisible(line, form)) for line in lines]
    if len(text) > SHOWN_CHARS:
        rest = f"… {len(text) - SHOWN_CHARS} more characters: owlbox entry get {full['ref']} --thread {full['run']}"
        shown.append(Content.assemble((rest, "dim")))
    return shown


def _colour_line(line: str) -> Content:
    style = {"+": "$success", "-": "$error", "@": "dim"}.get(line[:1], "")
    return Content.assemble((line, style))


def _listing_keys(found: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(one["ref"], one["updated_ms"]) for one in found]


def _ignore_error(error: OwlError) -> None:
    """The status line says what is wrong with the core."""
