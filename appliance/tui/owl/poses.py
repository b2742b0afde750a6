"""What the owl looks like: poses of three rows in ASCII, and loops of them, one for each thing that can go on (B-173).

A row of a pose is at most `COLUMNS` wide; the middle row begins with the face, which is all that the corner of the screen shows.
Knows nothing of widgets or of time: `tui.owl.face` draws.
"""

from dataclasses import dataclass

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
class Loop:
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
    "startup": Loop((("sleeping", 0.3), ("surprised", 0.3), ("happy", 0.6), ("neutral", 0.0))),
    "idle": Loop((("neutral", 0.0),)),
    "thinking": Loop((("thinking", 0.6), ("thinking more", 0.6), ("thinking on", 0.6)), is_endless=True),
    "working": Loop((("typing", 0.4), ("typing on", 0.4)), is_endless=True),
    "reading": Loop((("reading", 0.0),)),
    "success": Loop((("wings up", 0.4), ("excited", 0.4), ("wings out", 0.4), ("happy", 1.2), ("neutral", 0.0))),
    "error": Loop((("dizzy", 1.0), ("sad", 5.0), ("neutral", 0.0))),
    "waiting": Loop((("alert", 0.0),)),
    "starting": Loop((("sleeping", 0.0),)),
    "away": Loop((("confused", 0.0),)),
    "asleep": Loop((("sleeping", 0.0),)),
}
FLEETING = frozenset(name for name, loop in LOOPS.items() if not loop.is_endless and loop.frames[-1][0] == "neutral" != name)
# What an idle owl that is watched does now and then, one after the other.
FIDGETS = ("blink", "blink", "left", "blink", "right", "blink", "wink")
