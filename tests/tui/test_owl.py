"""The owl: its poses, and that it does what goes on; and the colours of the screen, in which everything can be read."""

from collections.abc import Iterator
from datetime import datetime

import pytest
from process import Box, Core, a_shared_box, script  # noqa: F401
from screens import Seen, show
from stores import let_chats_do_all
from textual.color import Color

from appliance.runtime import config_edit
from appliance.tui import theme
from appliance.tui.app import Tab
from appliance.tui.owl.face import COLUMNS, FACE_COLUMNS, FIDGETS, LOOPS, POSES, Owl, OwlPicture, is_night, until_change_s

ENVIRON = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
PLAY = """
[[turns]]
match = "slow"
text = "one two three four five six seven eight"
delay_s = 0.5
chunk_size = 4
chunk_delay_s = 0.1
[[turns]]
match = "count"
tool_calls = [{name = "use", arguments = {tool = "exec", arguments = {command = "sleep 1"}}}]
[[turns]]
match = "count"
text = "Counted."
[[turns]]
match = "broken"
repeat = true
error = "too_large"
[[turns]]
repeat = true
text = "**Hoot** `hoot`."
"""
WANTED = """neutral happy excited sad surprised sleeping thinking confused dizzy alert wink left right reading typing
wings_up wings_out""".split()


@pytest.fixture(scope="module")
def core(shared_box: Box) -> Iterator[Core]:
    let_chats_do_all(shared_box.home)
    script(shared_box, PLAY)
    yield shared_box.serve()


@pytest.mark.covers("B-173")
def test_poses_are_three_rows_of_ascii_and_loops_are_made_of_them() -> None:
    assert {name.replace("_", " ") for name in WANTED} <= set(POSES)
    for pose in POSES.values():
        rows = pose.rows.split("\n")
        assert len(rows) == 3 and pose.rows.isascii() and {len(row) for row in rows} == {COLUMNS}, pose.name
        assert len(pose.face) == FACE_COLUMNS, pose.name
    frames = [name for loop in LOOPS.values() for name, _ in loop.frames]
    assert {*frames, *FIDGETS} <= set(POSES)
    assert len({pose.rows for pose in POSES.values()}) == len(POSES)
    assert {"idle", "thinking", "working", "success", "error", "startup", "asleep"} <= set(LOOPS)


@pytest.mark.covers("B-173")
def test_it_does_what_goes_on(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        owl = seen.app.query_one(Owl)

        async def feels(*moods: str) -> None:
            for mood in moods:
                await seen.until(lambda mood=mood: owl.mood == mood, f"it feels {mood}, not {owl.mood}")

        await feels("startup", "idle")
        await seen.type("slow")
        await feels("thinking", "reading", "success", "idle")
        assert seen.app.query_one(OwlPicture).is_seen and str(owl.content) == "(o,o)"
        await seen.type("count for me")
        await feels("waiting")
        await seen.press("f2")
        assert str(owl.content) == "(O,O)", "the corner shows it where no picture is"
        await seen.press("f1", "ctrl+o", "a")
        await feels("working", "success", "idle")
        await seen.type("broken")
        await feels("error")
        core_client_gone(seen)
        await feels("away")

    show(ENVIRON, core.box.runtime, scenario)


def core_client_gone(seen: Seen) -> None:
    """The connection that is watched breaks."""
    for one in list(seen.app.link._open):
        one.close()


@pytest.mark.covers("B-173")
def test_idle_it_sits_still_and_by_night_it_sleeps(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        owl = seen.app.query_one(Owl)
        await seen.until(lambda: owl.mood == "idle", "it is idle")
        for hour, mood in ((12, "idle"), (23, "asleep"), (5, "asleep"), (7, "idle")):
            owl._now = lambda hour=hour: datetime(2030, 1, 1, hour)
            owl._touched_s -= 3600
            owl._rest()
            assert owl.mood == mood and owl.pose == LOOPS[mood].frames[0][0]
            assert owl._timer is not None and owl._timer._interval > 3600, "nothing is drawn until the day or the night begins"
        owl._now = lambda: datetime(2030, 1, 1, 23)
        owl._rest()
        await seen.press("a")
        assert (owl.mood, owl.pose) == ("idle", "neutral") and 1 < owl._timer._interval < 60

    show(ENVIRON, core.box.runtime, scenario)
    assert is_night(datetime(2030, 1, 1, 22)) and not is_night(datetime(2030, 1, 1, 6))
    assert until_change_s(datetime(2030, 1, 1, 21, 59)) == 61 and until_change_s(datetime(2030, 1, 1, 23)) == 7 * 3600 + 1


def set_screen(core: Core, key: str, value: object) -> None:
    config_edit.set_value(core.box.home, core.box.environ, ("screen", key), value)
    core.call("core.reload")


def test_one_key_leaves_it_out(core: Core) -> None:
    async def without(seen: Seen) -> None:
        await seen.is_connected()
        await seen.until(lambda: ",___," not in seen.text() and "(o,o)" not in seen.text(), "it is left out")
        await seen.type("hello")
        await seen.shows("Hoot")
        assert ",___," not in seen.text() and seen.lines()[0].startswith(" Chat")

    set_screen(core, "owl", False)
    show(ENVIRON, core.box.runtime, without)
    set_screen(core, "owl", True)


# -- colours ------------------------------------------------------------------------------------------


def luminance(colour: Color) -> float:
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def hard_to_read(seen: Seen, ratio: float) -> list[str]:
    """The texts on the screen that differ too little from what they stand on."""
    found = []
    for strip in seen.app.screen._compositor.render_strips():
        for segment in strip:
            style = segment.style
            if style and any(letter.isalnum() for letter in segment.text) and style.color and style.bgcolor:
                fore, back = (Color(*part.get_truecolor()) for part in (style.color, style.bgcolor))
                light, dark = sorted((luminance(fore), luminance(back)), reverse=True)
                if (light + 0.05) / (dark + 0.05) < ratio:
                    found.append(f"{segment.text.strip()!r} {(light + 0.05) / (dark + 0.05):.1f} {fore.hex} on {back.hex}")
    return found


def test_everything_can_be_read_in_every_theme_and_what_is_typed_goes_before_what_is_configured(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.until(lambda: seen.app.theme == theme.DAY.name, "the configuration holds")
        await seen.type("hello")
        await seen.shows("Hoot", "context")
        await seen.type("broken")
        await seen.shows("too_large")
        await seen.type("/theme blue")
        await seen.shows("blue: /theme takes auto, dark, light, contrast, terminal")
        hard: list[str] = []
        for name, ratio in (("light", 4.5), ("dark", 4.5), ("contrast", 7.0)):
            await seen.press("f1")
            await seen.type(f"/theme {name}")
            await seen.shows(f"colours: {name}")
            assert seen.app.theme == theme.CHOICES[name]
            seen.app.weigh()
            for key in ("slash", "backspace", *(f"f{number}" for number in range(2, 9))):
                hard += [f"{name} {key} {text}" for text in hard_to_read(seen, ratio)]
                await seen.press(key)
        assert not hard and seen.app.theme == theme.CONTRAST.name

    set_screen(core, "theme", "light")
    show(ENVIRON, core.box.runtime, scenario)
    set_screen(core, "theme", "auto")


def test_no_color_goes_before_every_theme(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.is_connected()
        await seen.type("/theme dark")
        await seen.shows("NO_COLOR is set")
        assert seen.app.theme == theme.PLAIN.name

    show({**ENVIRON, "NO_COLOR": "1"}, core.box.runtime, scenario)


def test_the_frame_fits_every_size(core: Core) -> None:
    async def scenario(seen: Seen) -> None:
        await seen.shows("connected")
        labels = [tab._label for tab in seen.app.query(Tab)]
        for width, height in ((40, 10), (200, 60)):
            await seen.pilot.resize_terminal(width, height)
            for number, label in enumerate(labels, 1):
                await seen.press(f"f{number}")
                first = seen.lines()[0]
                assert label in first and len(first) <= width and len(seen.lines()) == height
                assert str(number) not in first and (labels[-1] if width > 72 or label == labels[-1] else str(len(labels))) in first
            await seen.press("f1")
            is_roomy = width >= 64 and height >= 14
            await seen.until(lambda is_roomy=is_roomy: seen.app.query_one(OwlPicture).is_seen is is_roomy, "the owl where it fits")

    show(ENVIRON, core.box.runtime, scenario, (40, 10))
