"""The owl on the screen: a face in the corner, and a picture of three rows beside the input, both of what goes on.

While somebody is there it blinks now and then; a minute after the last key it sits still, and by night it sleeps, so that an
idle screen costs nothing. The face owns what goes on and the only timer; the picture follows it.

The poses have three rows of ASCII, at most `COLUMNS` wide; the middle row begins with the face, which is all that the corner of the
screen shows. There is a loop of them for each thing that can go on (B-173).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from textual.timer import Timer
from textual.widget import Widget

from appliance.clock import monotonic_s, now_ms
from appliance.tui.shown_text import Shown

FIDGET_EVERY_S = 7.0
FIDGET_S = 0.3
AWAKE_FOR_S = 60.0
NIGHT_BEGINS, NIGHT_ENDS = 22, 6  # o'clock, of the computer that the screen runs on
COLUMNS = 8
FACE_COLUMNS = 5
CROWN = ",___,"
FOLDED, UP, OUT, LOW = "/)_)", "\\)_(/", "~)_(~", "/(_)\\"


@dataclass(frozen=True)
class Pose:
    """One picture."""

    name: str
    crown: str
    face: str
    body: str

    @property
    def rows(self) -> str:
        """The three rows, as one text of a fixed width."""
        return "\n".join(f" {row:<{COLUMNS - 1}}" for row in (self.crown, self.face, self.body))


@dataclass(frozen=True)
class PoseLoop:
    """Poses and how long each stands; without `is_endless` the last one stays."""

    frames: tuple[tuple[str, float], ...]
    is_endless: bool = False


POSES = {
    pose.name: pose
    for pose in (
        Pose("neutral", CROWN, "(o,o)", FOLDED),
        Pose("blink", CROWN, "(-,-)", FOLDED),
        Pose("wink", CROWN, "(o,-)", FOLDED),
        Pose("left", CROWN, "(o,_)", FOLDED),
        Pose("right", CROWN, "(_,o)", FOLDED),
        Pose("happy", CROWN, "(^,^)", FOLDED),
        Pose("excited", CROWN, "(^,^)", UP),
        Pose("wings up", CROWN, "(o,o)", UP),
        Pose("wings out", CROWN, "(^,^)", OUT),
        Pose("sad", CROWN, "(u,u)", LOW),
        Pose("surprised", CROWN, "(O,O)", FOLDED),
        Pose("alert", f"{CROWN}!", "(O,O)", FOLDED),
        Pose("confused", f"{CROWN}?", "(o,O)", FOLDED),
        Pose("dizzy", CROWN, "(x,x)", LOW),
        Pose("thinking", f"{CROWN}.", "(o,o)", FOLDED),
        Pose("thinking more", f"{CROWN}..", "(O,o)", FOLDED),
        Pose("thinking on", f"{CROWN} .", "(o,O)", FOLDED),
        Pose("reading", CROWN, "(v,v)", "/[=]\\"),
        Pose("typing", CROWN, "(v,v)", "/)=(,"),
        Pose("typing on", CROWN, "(v,v)", ",)=(\\"),
        Pose("sleeping", f"{CROWN}z", "(-,-)", FOLDED),
    )
}
# By what goes on. Those of nothing to do stand still: an idle screen draws nothing.
LOOPS = {
    "startup": PoseLoop((("sleeping", 0.3), ("surprised", 0.3), ("happy", 0.6), ("neutral", 0.0))),
    "idle": PoseLoop((("neutral", 0.0),)),
    "thinking": PoseLoop((("thinking", 0.6), ("thinking more", 0.6), ("thinking on", 0.6)), is_endless=True),
    "working": PoseLoop((("typing", 0.4), ("typing on", 0.4)), is_endless=True),
    "reading": PoseLoop((("reading", 0.0),)),
    "success": PoseLoop((("wings up", 0.4), ("excited", 0.4), ("wings out", 0.4), ("happy", 1.2), ("neutral", 0.0))),
    "error": PoseLoop((("dizzy", 1.0), ("sad", 5.0), ("neutral", 0.0))),
    "waiting": PoseLoop((("alert", 0.0),)),
    "starting": PoseLoop((("sleeping", 0.0),)),
    "away": PoseLoop((("confused", 0.0),)),
    "asleep": PoseLoop((("sleeping", 0.0),)),
}
FLEETING = frozenset(name for name, loop in LOOPS.items() if not loop.is_endless and loop.frames[-1][0] == "neutral" != name)
# What an idle owl that is watched does now and then, one after the other.
FIDGETS = ("blink", "blink", "left", "blink", "right", "blink", "wink")


class OwlPicture(Shown):
    """Three rows."""

    SCOPED_CSS = False
    DEFAULT_CSS = f"""
    OwlPicture {{ width: {COLUMNS}; height: 3; color: $primary; text-style: bold; }}
    .-narrow OwlPicture, .-short OwlPicture, .-no-owl OwlPicture {{ display: none; }}
    """

    def __init__(self) -> None:
        super().__init__(POSES["neutral"].rows)

    @property
    def is_seen(self) -> bool:
        """Whether its panel is on top of a screen that has room for it."""
        is_left_out = any(map(self.screen.has_class, ("-narrow", "-short", "-no-owl")))
        return not is_left_out and all(one.display for one in self.ancestors_with_self if isinstance(one, Widget))


class Owl(Shown):
    """The face, and what goes on: a name of LOOPS."""

    DEFAULT_CSS = "Owl { width: 7; padding: 0 1; color: $primary; text-style: bold; }"

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.fromtimestamp(now_ms() / 1000)) -> None:
        super().__init__(POSES["neutral"].face)
        self.mood = "starting"
        self.pose = ""
        self._now = now
        self._touched_s = monotonic_s()
        self._timer: Timer | None = None
        self._step = 0
        self._fidgets = 0
        self._is_shown = True

    def on_mount(self) -> None:
        """Begin."""
        self._begin("starting")

    def show_owl(self, is_shown: bool) -> None:
        """Show it, or leave it out everywhere, as `screen.owl` says."""
        if is_shown is self._is_shown:
            return
        self._is_shown = is_shown
        self.display = is_shown
        self.screen.set_class(not is_shown, "-no-owl")
        if is_shown:
            self._begin(self.mood)
        else:
            self._stop_timer()

    def feel(self, mood: str) -> None:
        """Something else goes on; what passes by itself, such as joy, is shown to its end when nothing is to be done."""
        is_at_rest = self.mood in ("idle", "asleep")
        if mood == self.mood or (mood == "idle" and (is_at_rest or self.mood in FLEETING)):
            return
        self._begin("startup" if (self.mood, mood) == ("starting", "idle") else mood)

    def touch(self) -> None:
        """Somebody is there: wake, and fidget for another minute."""
        self._touched_s = monotonic_s()
        if self.mood == "asleep" or (self.mood == "idle" and not self._is_fidgeting):
            self._begin("idle")

    def redraw(self) -> None:
        """Draw the pose again: where the picture is seen, the face in the corner keeps still beside it."""
        pictures = [one for one in self.screen.query(OwlPicture) if one.is_seen]
        for picture in pictures:
            picture.update(POSES[self.pose].rows, layout=False)
        face = POSES["neutral" if pictures else self.pose].face
        if str(self.content) != face:
            self.update(face, layout=False)

    # -- inside -------------------------------------------------------------------------------------

    @property
    def _is_watched(self) -> bool:
        return monotonic_s() - self._touched_s < AWAKE_FOR_S

    @property
    def _is_fidgeting(self) -> bool:
        return self._timer is not None and self._is_watched

    def _begin(self, mood: str) -> None:
        self.mood, self._step = mood, 0
        if self._is_shown:
            self._draw_step()

    def _draw_step(self) -> None:
        """Draw the frame that is due; a timer for the next one, if there is one."""
        loop = LOOPS[self.mood]
        pose, stands_s = loop.frames[self._step % len(loop.frames)]
        self._draw(pose)
        self._step += 1
        if loop.is_endless or self._step < len(loop.frames):
            self._after(stands_s, self._draw_step)
        elif self.mood in FLEETING or self.mood in ("idle", "asleep"):
            self._rest()
        else:
            self._stop_timer()

    def _rest(self) -> None:
        """Nothing goes on: fidget while somebody is there, else sleep by night, else sit still until then."""
        if self._is_watched:
            self.mood = "idle"
            self._after(FIDGET_EVERY_S, self._fidget)
            return
        now = self._now()
        self.mood = "asleep" if is_night(now) else "idle"
        self._draw(LOOPS[self.mood].frames[-1][0])
        self._after(until_change_s(now), self._rest)

    def _fidget(self) -> None:
        if not self._is_watched:
            self._rest()
            return
        self._draw(FIDGETS[self._fidgets % len(FIDGETS)])
        self._fidgets += 1
        self._after(FIDGET_S, self._draw_idle)

    def _draw_idle(self) -> None:
        self._draw("neutral")
        self._rest()

    def _draw(self, name: str) -> None:
        """Draw a pose wherever the owl is; nothing where it stands already."""
        if name == self.pose:
            return
        self.pose = name
        self.redraw()

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.set_timer(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None


def is_night(now: datetime) -> bool:
    """Whether the owl's people sleep, and with them the owl that nobody needs."""
    return now.hour >= NIGHT_BEGINS or now.hour < NIGHT_ENDS


def until_change_s(now: datetime) -> float:
    """Seconds until the night begins or ends, whichever is next, and a little more."""
    hour = NIGHT_ENDS if is_night(now) else NIGHT_BEGINS
    then = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return ((then if then > now else then + timedelta(days=1)) - now).total_seconds() + 1.0
