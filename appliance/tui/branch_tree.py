"""Every branch of a thread and of its forks, and the messages of the present one, to go back to. Asks nobody itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList

from appliance.tui.choice_list import Dialog, Rows
from appliance.tui.shown_text import Row, Shown

KEYS = "Enter continues there, f forks there, Esc closes"


@dataclass(frozen=True)
class Place:
    """A place in the tree to go on from: after event `seq` of a run; 0 is its beginning. `text` is then typed anew."""

    run: str
    seq: int
    text: str = ""
    is_head: bool = False  # nothing has to be moved to get there


@dataclass(frozen=True)
class Choice:
    """A chosen place of the tree, and whether to fork there."""

    place: Place
    is_fork: bool


@dataclass(frozen=True)
class SaidMessage:
    """A message of a person on the present branch, and the number of the event before it."""

    seq: int
    before: int
    text: str


class Tree(Dialog[Choice | None]):
    """Closes with a choice, or with nothing."""

    DEFAULT_CSS = """
    Tree { align: center middle; }
    Tree > Vertical { width: 90%; max-width: 110; height: auto; max-height: 90%; border: round $primary;
        background: $panel; padding: 0 1; }
    Tree Rows, Tree Rows:focus { height: auto; max-height: 60vh; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    Tree #keys { color: $foreground 70%; }
    Tree #keys:ansi { color: ansi_default; }
    """
    BINDINGS = [Binding("escape,q", "close", show=False), Binding("f", "fork", show=False)]

    def __init__(self, run: str, branches: Sequence[Mapping[str, Any]], said: Sequence[SaidMessage]) -> None:
        super().__init__()
        self._lines = lines(run, branches, said)

    def compose(self) -> ComposeResult:
        """The branches, the keys."""
        with Vertical():
            yield Rows(*(Row(line) for line, _ in self._lines), id="branches", markup=False)
            yield Shown(KEYS, id="keys", markup=False)

    def on_mount(self) -> None:
        """The present place is under the cursor."""
        rows = self.query_one(Rows)
        here = [i for i, (_, place) in enumerate(self._lines) if place.is_head]
        rows.highlighted = here[0] if here else 0
        rows.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return or a second click."""
        event.stop()
        self._choose_place(is_fork=False)

    def action_fork(self) -> None:
        """A new thread from there."""
        self._choose_place(is_fork=True)

    def action_close(self) -> None:
        """Nothing."""
        self.dismiss(None)

    def _choose_place(self, *, is_fork: bool) -> None:
        place = self.query_one(Rows).highlighted
        if place is not None:
            self.dismiss(Choice(self._lines[place][1], is_fork))


def lines(run: str, branches: Sequence[Mapping[str, Any]], said: Sequence[SaidMessage]) -> list[tuple[Content, Place]]:
    """What is shown, and where each line leads: after the thread's present branch, what was said on it, the newest first."""
    found: list[tuple[Content, Place]] = []
    for branch in branches:
        is_here = branch["run"] == run and branch["is_head"]
        mark = ("● ", "bold $primary") if is_here else ("* " if branch["is_head"] else "  ")
        start = f"from {branch['from_seq']}, " if branch["from_seq"] else ""
        about = f"  {start}to {branch['seq']}" if branch["seq"] else "  nothing said yet"
        name = f"{branch['alias']}: " if branch["depth"] else ""
        text = str(branch["text"]) or "(empty)"
        line = Content.assemble("  " * int(branch["depth"]), mark, (name, "$secondary"), (text, "bold"), (about, "dim"))
        found.append((line, Place(str(branch["run"]), int(branch["seq"]), is_head=bool(branch["is_head"]))))
        if is_here:
            for one in reversed(said):
                words = " ".join(one.text.split())
                line = Content.assemble("  " * int(branch["depth"]), f"    ▌{one.seq:>4} ", words)
                found.append((line, Place(run, one.before, one.text)))
    return found


def inherited(call: Callable[[str, dict[str, Any]], Any], thread: str) -> list[dict[str, Any]]:
    """The events before a fork, from the threads it comes from."""
    found: list[dict[str, Any]] = []
    seen, has_more = 0, True
    while has_more:
        page = call("run.path", {"run": thread, "offset": seen, "limit": 1000})
        found += [event for event in page["events"] if event["run"] != thread]
        seen, has_more = seen + len(page["events"]), page["has_more"]
    return found
