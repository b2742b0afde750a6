"""The owl: a face of five letters that shows what the core is doing.

Awake it blinks now and then; after a minute without a key it sits still, so that an idle screen costs
nothing. It thinks while an answer runs, and closes its eyes while the core is away.
"""

from textual.timer import Timer

from appliance.clock import monotonic_s
from appliance.tui.shown_text import Shown

AWAKE, BLINKING, AWAY = "(o,o)", "(-,-)", "(-,-)"
THINKING = ("(o,o)", "(O,o)", "(o,o)", "(o,O)")
BLINK_EVERY_S = 7.0
BLINK_S = 0.25
THINK_S = 0.6
AWAKE_FOR_S = 60.0
PORTRAIT = "  ,___,\n  (o,o)\n  /)_)\n   “ “"


class Owl(Shown):
    """The face in the corner."""

    DEFAULT_CSS = "Owl { width: 7; padding: 0 1; color: $primary; text-style: bold; }"

    def __init__(self) -> None:
        super().__init__(AWAKE, markup=False)
        self.mood = "away"
        self._moved_s = monotonic_s()
        self._timer: Timer | None = None
        self._step = 0

    def on_mount(self) -> None:
        """Begin."""
        self.feel("away")

    def feel(self, mood: str) -> None:
        """Show another mood: idle, thinking or away."""
        self.mood = mood
        self._stop_timer()
        if mood == "thinking":
            self._timer = self.set_interval(THINK_S, self._draw_thinking)
        elif mood == "idle":
            self.touch()
        self._draw_face(AWAY if mood == "away" else AWAKE)

    def touch(self) -> None:
        """Somebody is there: blink for another minute."""
        self._moved_s = monotonic_s()
        if self.mood == "idle" and self._timer is None:
            self._timer = self.set_timer(BLINK_EVERY_S, self._draw_blinking)

    def _draw_thinking(self) -> None:
        self._step += 1
        self._draw_face(THINKING[self._step % len(THINKING)])

    def _draw_blinking(self) -> None:
        self._draw_face(BLINKING)
        self._timer = self.set_timer(BLINK_S, self._draw_awake)

    def _draw_awake(self) -> None:
        self._draw_face(AWAKE)
        is_watched = monotonic_s() - self._moved_s < AWAKE_FOR_S
        self._timer = self.set_timer(BLINK_EVERY_S, self._draw_blinking) if is_watched else None

    def _draw_face(self, face: str) -> None:
        if str(self.content) != face:
            self.update(face, layout=False)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
