"""Pictures of the screen for README and docs/: each a scene played to a real core in a home with notes, as SVG and as text.

`python tests/support/captures.py` writes docs/captures/ anew, with scenes that the small model plays; `make captures` runs it.
What differs from run to run (milliseconds, tokens, ids, times) is replaced by a fixed text of the same width in the picture itself,
and the owl sits still, so that the files are the same byte for byte as long as the screen is.
"""

import asyncio
import html
import re
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from process import Box, Core, boxed, script, until
from rich.cells import cell_len
from rich.segment import Segment
from screens import HOME, Seen
from stores import let_chats_do_all
from textual.color import Color
from textual.filter import LineFilter

from appliance import __version__
from appliance.models import catalogue
from appliance.runtime import paths
from appliance.tui.app import Face
from appliance.tui.owl.face import Owl

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/captures"
ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor"}
FIXED = (
    (re.compile(r"^connected$"), "script"),  # what it says until the core tells its model
    (re.compile(r"· \d+ ms\b"), "· 4 ms"),
    (re.compile(r"context \d+ of \d+ \(\d+ %\)"), "context 1630 of 8192 (19 %)"),
    (re.compile(rf"\b{re.escape(__version__)}\b"), "VERSION"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{8}\b"), "0f1e2d3c"),
)
NOTES = {
    "garden.md": "# Garden\n\nPeas go into the garden in March, beans in May. Cover both at night as long as there is frost.\n",
    "garage.md": "# Garage\n\nThe garage door code is kept by Ada, the neighbour. She lives at number 12.\n",
    "kitchen.md": "# Kitchen\n\nThe oven needs 20 minutes to be hot.\n",
}
PLAY = '''
[[turns]]
match = "in the garden"
tool_calls = [{name = "search", arguments = {query = "garden spring"}}]
[[turns]]
match = "in the garden"
text = """In **March** the peas come first [box://notes/garden.md]:

| when | what | remember |
|---|---|---|
| March | peas | cover them at night |
| May | beans | the last frost is over |
"""
[[turns]]
match = "write that down"
[[turns.tool_calls]]
name = "set"
arguments.path = "spring.md"
arguments.body = "# Spring\\n\\n- March: sow peas, cover them at night\\n- May: sow beans\\n"
[[turns]]
repeat = true
text = "Hoot."
'''
# A person's way to the pictures; each is written where `take` is called.
Scene = Callable[["Stage"], Awaitable[None]]


class Fixed(LineFilter):
    """Puts fixed texts in the place of what varies; the width of the line stays."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The line as every run draws it."""
        found = [Segment(_fix(one.text), one.style, one.control) for one in segments]
        more = sum(cell_len(one.text) for one in segments) - sum(cell_len(one.text) for one in found)
        for at in range(len(found) - 1, -1, -1):
            blank = len(found[at].text) - len(found[at].text.rstrip(" "))
            if more > 0 or blank >= -more > 0:
                text = found[at].text + " " * more if more > 0 else found[at].text[:more]
                found[at] = Segment(text, found[at].style, found[at].control)
                break
        return found


class Captured(Face):
    """The screen with nothing on it that varies."""

    def get_line_filters(self) -> list[LineFilter]:
        """Ours last."""
        return [*super().get_line_filters(), Fixed()]


@dataclass
class Stage:
    """A screen that is played on, and what was taken of it: name to picture and text."""

    seen: Seen
    taken: dict[str, tuple[str, str]]

    async def take(self, name: str, title: str) -> None:
        """Take a picture once the owl sits still."""
        owl = self.seen.app.query_one(Owl)
        await self.seen.until(lambda: owl.mood in ("idle", "waiting", "asleep"), "the owl sits still")
        owl._stop_timer()
        owl._draw("alert" if owl.mood == "waiting" else "neutral")
        shown = ""
        while shown != (shown := self.seen.text()):  # a busy machine scrolls later
            await self.seen.pilot.pause(0.4)
        picture = self.seen.app.export_screenshot(title=title, simplify=True)
        self.taken[name] = self_contained(picture), self.seen.text() + "\n"


def self_contained(picture: str) -> str:
    """The picture without fonts from elsewhere, and with spaces at ends of lines left out."""
    without = re.sub(r"\s*@font-face \{.*?\}\n", "\n", picture, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in without.split("\n")).replace("Fira Code, monospace", "monospace").strip() + "\n"


def words_of(picture: str) -> list[str]:
    """The words in a picture, from its first line to its last."""
    rows: dict[str, str] = {}
    for place, text in re.findall(r'<text class="[^"]*-r\d+" x="[^"]*" y="([^"]*)"[^>]*>([^<]*)</text>', picture, re.DOTALL):
        rows[place] = rows.get(place, "") + text
    whole = "".join(rows[place] for place in sorted(rows, key=float))
    return html.unescape(whole).split()


def play(core: Core, scene: Scene, size: tuple[int, int] = (80, 24), *, is_asking: bool = False) -> dict[str, tuple[str, str]]:
    """Play a scene to a core; what was taken."""
    app = Captured(str(paths.core_socket(core.box.runtime)), HOME, ENVIRON, lambda: "", is_asking=is_asking)
    taken: dict[str, tuple[str, str]] = {}

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await scene(Stage(Seen(app, pilot), taken))

    asyncio.run(run())
    return taken


async def scripted_scene(stage: Stage) -> None:
    """What every reader sees first: an answer with its source, what waits for a decision, what is known."""
    seen = stage.seen
    await seen.shows("1/6")
    await stage.take("first-questions", "owlbox")
    await seen.type("/skip")
    await seen.shows("All right")
    await seen.type("/new")
    await seen.type("What comes first in the garden?")
    await seen.shows("frost is over", "context")
    await stage.take("chat", "owlbox")
    await seen.type("Good, write that down for me.")
    await seen.shows("Ctrl+O, then a letter")
    await stage.take("decision", "owlbox")
    await seen.press("ctrl+o", "a")
    await seen.shows("Hoot.", "context")
    await seen.press("f3")
    await seen.press("slash", *"frost", "enter")
    await seen.shows("Peas go into the garden")
    await stage.take("context", "owlbox")


async def small_model_scene(stage: Stage) -> None:
    """The bundled model answers from a note."""
    seen = stage.seen
    await seen.shows("● ")
    await seen.type("Who keeps the garage door code?")
    await seen.until(lambda: seen.app.chat.running is None and "Ada" in seen.text(), "it is answered")
    await seen.press("escape")  # a banner, where the computer has room for a larger model
    await stage.take("small-model", "owlbox")


@contextmanager
def seeded(prepare: Callable[[Box], None]) -> Iterator[Core]:
    """A core on a home with NOTES that are found."""
    with (
        tempfile.TemporaryDirectory(prefix="captures-") as place,
        tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as runtime,
    ):
        with boxed(Path(place), Path(runtime)) as box:
            (box.home.box / "notes").mkdir(exist_ok=True)
            for name, text in NOTES.items():
                (box.home.box / "notes" / name).write_text(text, encoding="utf-8")
            prepare(box)
            core = box.serve()
            until(lambda: len(core.call("entry.list", prefix="box://notes/")) == len(NOTES), "the notes are found")
            yield core


def with_script(box: Box) -> None:
    """A model that says PLAY."""
    let_chats_do_all(box.home)
    script(box, PLAY)


def with_small_models(box: Box) -> None:
    """The bundled models, which answer the same to the same."""
    (box.home.box / "BOOTSTRAP.md").unlink()
    box.environ.pop("OWLBOX__MODELS__SCRIPT")
    box.environ.update({"OWLBOX__AGENTS__ASSISTANT__TEMPERATURE": "0", "OWLBOX__MODELS__TEMPERATURE": "0"})
    for name in ("smollm2", "minilm"):
        catalogue.add(box.home, name, lambda stage, done, total: None)


def scripted_captures() -> dict[str, tuple[str, str]]:
    """Those that need no model."""
    with seeded(with_script) as core:
        return play(core, scripted_scene, is_asking=True)


def _fix(text: str) -> str:
    for pattern, instead in FIXED:
        text = pattern.sub(instead, text)
    return text


def main() -> int:
    """Write every capture anew."""
    taken = scripted_captures()
    with seeded(with_small_models) as core:
        taken |= play(core, small_model_scene)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name, (picture, text) in taken.items():
        (FOLDER / f"{name}.svg").write_text(picture, encoding="utf-8")
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
    print(f"wrote {', '.join(sorted(taken))} to {FOLDER.relative_to(ROOT)}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
