"""Looking at the full screen in tests: as lines of plain text, and compared with files in tests/screens/.

What differs from run to run (milliseconds, token counts, the version) is replaced by letters; nothing else is. With
OWLBOX_SCREENS=write in the environment the files are written anew: read the diff before committing it.
"""

import asyncio
import difflib
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from process import LEAST_PAUSE_S
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.pilot import Pilot
from textual.screen import Screen

from appliance import __version__
from appliance.clock import monotonic_s
from appliance.runtime import paths
from appliance.runtime.users import user_name
from appliance.tui.app import Face

FOLDER = Path(__file__).parents[1] / "screens"
LIMIT_S = 90.0
SETTLE_S = 60.0


def _as_root(found: "re.Match[str]") -> str:
    """The name of whoever runs the tests as if that were root, as wide as it was where a frame follows."""
    name = f"{found[1]}root"
    return name + (found[2] if len(found[2]) == 2 else " " * (len(found[0]) - len(name)))


VARYING = (
    (re.compile(rf"\b(local:|for ){re.escape(user_name(os.getuid()))}\b( *)"), _as_root),
    (re.compile(r"(\bfor root) +$", re.MULTILINE), r"\1"),
    (re.compile(r"([·*]) \d+ ms\b"), r"\1 N ms"),
    (re.compile(rf"\b{re.escape(__version__)}\b"), "VERSION"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d(:\d\d)?\b"), "DAY DD MMM YYYY HH:MM"),
    (re.compile(r"\b(\d\d )?[A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d\b"), "DD MMM YYYY HH:MM:SS"),
    (re.compile(r"([✔✘⟳?]) \d\d:\d\d "), r"\1 HH:MM "),
    (re.compile(r"\bpid( +)\d+ on \S+"), r"pid\1N on HOST"),
    (re.compile(r"([●‖]) +\d+ (min|h|d)\b"), r"\1   N UNIT"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "IDENTITY"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8}\b"), "IDENTITY"),
    (re.compile(r"\([-oOuvx^_],[-oOuvx^_]\)"), "(o,o)"),  # the owl moves
    (re.compile(r",___,[ .!?z]{2}"), ",___,  "),
    (re.compile(r"/\)_\) |[\\~]\)_\([/~]|/\(_\)\\|/\[=\]\\|/\)=\(,|,\)=\(\\"), "/)_) "),
    (re.compile(r"○ IDENTITY +(now|\d+ min)"), r"○ IDENTITY N UNIT"),
    (re.compile(r"thinking \d+ s"), "thinking N s"),
    (re.compile(r"next try in [\d.]+ s, \^R now( · owlbox doctor shows why)?"), "next try in N s, ^R now"),
    (re.compile(r"█+░+( +)\d+ of \d+ tokens, \d+ %"), r"████░░░░\1N of N tokens, N %"),
    (re.compile(r"(?m)^( (?:system|conversation|free)\b.*?)\d+( +\d+ %)?$"), r"\1N"),
    (re.compile(r"messages: \d+, (now|\d+ s|\d+ min) *│"), "messages: N, now │"),
    (re.compile(r"/tmp/owl-\w+"), "/run/owlbox"),
    (re.compile(r"\d+ can be used(, \d+ cannot)?"), "N can be used"),  # as programs of this computer are there
    (re.compile(r"context \d+ of \d+ \(\d+ %\)"), "context N of N (N %)"),
)
CONNECTED = re.compile(r"[●*] (connected|script)\b")
HOME = "/srv/owlbox"  # what the screen says its home is

Scenario = Callable[["Seen"], Awaitable[None]]


class Undrawn(Compositor):
    """Renders a screen when a test looks at it: without a terminal, Textual would render every change and throw it away."""

    is_changed = True  # since a test looked last

    def render_update(self, full: bool = False, screen_stack: list[Screen[Any]] | None = None, simplify: bool = False) -> Any:
        """Nothing, which is what is written anywhere; a picture is made as ever."""
        self.is_changed = True
        if full:
            return super().render_update(full, screen_stack, simplify)
        self._dirty_regions.clear()
        return None


class UndrawnFace(Face):
    """The screen without a terminal; drawing is what `test_frame` and `test_tui_terminal` test."""

    def _register(self, parent: Any, *widgets: Any, **more: Any) -> list[Any]:
        for widget in widgets:
            if isinstance(widget, Screen):
                widget._compositor = Undrawn()
        return super()._register(parent, *widgets, **more)


class Seen:
    """A running screen, its keys and what it shows."""

    def __init__(self, app: Face, pilot: "Pilot[None]") -> None:
        self.app = app
        self.pilot = pilot
        self._lines: list[str] = []
        self._rendered: Compositor | None = None

    def lines(self) -> list[str]:
        """The screen as it is now; rendered when it has changed since the last look: half of a test was that."""
        compositor = self.app.screen._compositor
        if compositor is not self._rendered or getattr(compositor, "is_changed", True) or compositor._dirty_regions:
            visible_screen_stack.set(self.app._background_screens)  # what stands behind a dialogue
            strips = compositor.render_strips()
            self._lines = ["".join(segment.text for segment in strip).rstrip() for strip in strips]
            self._rendered = compositor
            if isinstance(compositor, Undrawn):
                compositor.is_changed = False
        return self._lines

    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.lines())

    async def shows(self, *words: str) -> None:
        """Wait until all of these stand on the screen."""

        def are_there() -> bool:
            text = self.text()
            return all(word in text for word in words)

        await self.until(are_there, f"{words} on the screen")

    async def is_connected(self, *words: str) -> None:
        """Wait until the core is there, and these words: it may know its model before the screen first asks."""

        def is_there() -> bool:
            text = self.text()
            return CONNECTED.search(text) is not None and all(word in text for word in words)

        await self.until(is_there, f"a core, and {words} on the screen")

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so; to read the whole screen takes long, so it is done a tenth of the time at most."""
        end_s = monotonic_s() + LIMIT_S
        while True:
            began_s = monotonic_s()
            if is_so():
                return
            now_s = monotonic_s()
            assert now_s < end_s, f"not in {LIMIT_S:g} s: {what}\n{self.text()}"
            await asyncio.sleep(min(0.5, max(LEAST_PAUSE_S, 9 * (now_s - began_s))))
            self.app.screen._on_timer_update()

    async def type(self, text: str) -> None:
        """Type letters and press Return."""
        await self.pilot.press(*("space" if c == " " else "slash" if c == "/" else c for c in text), "enter")

    async def press(self, *keys: str) -> None:
        """Press keys and let the screen settle."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def same_as(self, name: str) -> None:
        """Compare with tests/screens/NAME.txt, waiting for a screen that is still settling (or an owl that blinks)."""
        path = FOLDER / f"{name}.txt"
        if os.environ.get("OWLBOX_SCREENS") == "write":
            FOLDER.mkdir(exist_ok=True)
            path.write_text(self._steady_text(), encoding="utf-8")
        wanted, end_s = path.read_text(encoding="utf-8"), monotonic_s() + SETTLE_S
        while (text := self._steady_text(wanted)) != wanted and monotonic_s() < end_s:
            await self.pilot.pause(0.1)
        lines = difflib.unified_diff(wanted.splitlines(), text.splitlines(), f"tests/screens/{name}.txt", "the screen", lineterm="")
        assert text == wanted, "\n".join(lines)

    async def same_in_both(self, name: str) -> None:
        """Compare a screen of 80 by 24, and the same at 120 by 40."""
        await self.same_as(name)
        self.app._forget_notice()  # it may stand no longer when the other is compared
        await self.pilot.resize_terminal(120, 40)
        await self.until(lambda: len(self.lines()) == 40, "the larger screen")
        await self.same_as(f"{name}-120x40")
        await self.pilot.resize_terminal(80, 24)
        await self.pilot.pause()

    def _steady_text(self, wanted: str = "") -> str:
        text = self.text() + "\n"
        for pattern, letters in VARYING:
            text = pattern.sub(letters, text)
        if "● connected\n" in wanted:  # a quick core knows its model by then
            text = text.replace("● script\n", "● connected\n")
        return text


def show(
    environ: dict[str, str],
    runtime: Path,
    scenario: Scenario,
    size: tuple[int, int] = (80, 24),
    revive: Callable[[], str] = lambda: "",
    is_asking: bool = False,
) -> Face:
    """Run the screen against the core of a runtime folder, and a scenario with it; returns what is left of it."""
    app = UndrawnFace(str(paths.core_socket(runtime)), HOME, environ, revive, is_asking=is_asking)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await scenario(Seen(app, pilot))

    asyncio.run(run())
    return app
