"""What every panel shares: its title, its way to the core, and asking the core without blocking the screen."""

import re
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Protocol

from textual.containers import Vertical

from appliance.clock import monotonic_s
from appliance.errors import NotFound, OwlError
from appliance.tui.connection import CALL_S, Link
from appliance.tui.sender import Sender

Then = Callable[[Any], object]
SURE_S = 4.0  # within which the same key again means yes
GIVEN_NAME = re.compile(r"_[0-9]{13}(_[0-9]+)?$")  # a thread that nobody named is called by the time it began


class Host(Protocol):
    """What a panel may use of the program around it, which builds the panels and so cannot be imported here."""

    link: Link
    sender: Sender
    home: str

    def say(self, text: str, is_error: bool, for_s: float = 0.0) -> None:
        """Show one line at the bottom, for as long as it takes to read."""
        ...

    def resume(self, thread: str) -> None:
        """Continue a thread in the chat."""
        ...

    def attached(self) -> str:
        """The thread in the chat."""
        ...

    def is_watched(self) -> bool:
        """Whether somebody has pressed a key lately; what nobody looks at is not asked for again and again."""
        ...

    def unread(self) -> Collection[str]:
        """The threads in which something came that was not on the screen."""
        ...

    def refresh_status(self) -> None:
        """Draw the status line anew."""
        ...

    def weigh(self) -> None:
        """Ask anew what model and context window there are."""
        ...

    def ring(self, text: str) -> None:
        """Show a banner, with a bell."""
        ...


class Panel(Vertical):
    """One tab."""

    LABEL: ClassVar[str] = ""

    def __init__(self, host: Host) -> None:
        super().__init__(id=self.LABEL.lower())
        self.host = host
        self._asked: dict[str, int] = {}
        self._sure_about, self._sure_until_s = "", 0.0

    def enter(self) -> None:
        """The panel is shown: take the focus, look again at what may have changed."""

    def leave(self) -> bool:
        """Esc was pressed; True when something of the panel was closed by it."""
        return False

    def take_tab(self) -> bool:
        """Tab was pressed; True when the panel had a use for it."""
        return False

    def ask(self, method: str, params: dict[str, Any], then: Then, *, failed: Then | None = None, about: str = "") -> None:
        """Call the core in a worker thread; `then` gets the result here, an error goes to the bottom line.

        A second question to the same method, or about the same thing, takes the place of the first.
        """
        self.work(lambda: self.host.link.call(method, params, CALL_S), then, failed=failed, about=about or method)

    def work(self, what: Callable[[], Any], then: Then, *, failed: Then | None = None, about: str) -> None:
        """The same for what takes several calls, made by `what` in the worker thread."""
        number = self._asked[about] = self._asked.get(about, 0) + 1

        def work() -> None:
            try:
                answer, result = then, what()
            except OwlError as error:
                answer, result = failed or self._show_error, error
            if self._asked[about] == number:
                self.hand(answer, result)

        self.run_worker(work, group=about, thread=True)

    def sure(self, question: str, key: str, then: Callable[[], object]) -> None:
        """Do something when the same is asked for twice within a few seconds; the first time only say what would be done."""
        if question == self._sure_about and monotonic_s() < self._sure_until_s:
            self._sure_about = ""
            then()
            return
        self._sure_about, self._sure_until_s = question, monotonic_s() + SURE_S
        self.host.say(f"{question}? Press {key} again", True, SURE_S)

    def hand(self, then: Then, value: Any) -> None:
        """Call a function of the screen from a worker thread, unless the screen is being left."""
        if not self.host.link.is_closing:
            self.call_later(then, value)

    def _show_error(self, error: OwlError) -> None:
        self.host.say(str(error), True)


def named(thread: dict[str, Any]) -> str:
    """What a thread is called: its first words, after the name a person gave it, if one did."""
    alias, title = str(thread.get("alias") or ""), str(thread["title"])
    if not alias or GIVEN_NAME.search(alias):
        return title
    return f"{alias}: {title}" if title else alias


def ago(at_ms: int, now_ms: int) -> str:
    """The age of a moment, in at most six characters."""
    return _format_span(max(0, now_ms - at_ms) // 60_000) or "now"


def until(at_ms: int | None, now_ms: int) -> str:
    """The time until a moment, in at most six characters."""
    return "-" if at_ms is None else _format_span(max(0, at_ms - now_ms + 59_999) // 60_000) or "now"


def _format_span(minutes: int) -> str:
    """A length of time in one unit; nothing for none."""
    if minutes < 60:
        return f"{minutes} min" if minutes else ""
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"


def is_missing(error: OwlError, method: str) -> bool:
    """True when the core is older than this screen and does not have the method."""
    return isinstance(error, NotFound) and method in error.message and "method" in error.message
