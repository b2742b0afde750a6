"""The lines at the top that say what a person is told unasked: a reminder, the end of a task, an alert. Esc closes them.

Each rings the terminal's bell. Shown are the newest three; all of them stand in their threads.
"""

from appliance.tui.shown_text import Shown

SHOWN = 3
MAX_CHARS = 300  # of one text
UNHEARD = ("answer", "proposal")  # what these notifications say is named as new in its thread, without a bell


class Banner(Shown):
    """Hidden while there is nothing to say."""

    DEFAULT_CSS = """
    Banner { height: auto; max-height: 6; padding: 0 1; background: $warning; color: $background; text-style: bold; display: none; }
    Banner.-on { display: block; }
    Banner:ansi { background: ansi_default; color: ansi_default; text-style: bold reverse; }
    """

    def __init__(self) -> None:
        super().__init__("", id="banner", markup=False)
        self._texts: list[str] = []

    def ring(self, text: str) -> None:
        """One more text."""
        said = " ".join(text.split())
        self._texts = [*self._texts, said if len(said) <= MAX_CHARS else f"{said[:MAX_CHARS]} …"][-SHOWN:]
        self.update("\n".join([*self._texts[:-1], f"{self._texts[-1]}  (Esc closes)"]))
        self.add_class("-on")
        self.app.bell()

    def dismiss(self) -> bool:
        """Nothing any more; False when there was nothing."""
        was_on = bool(self._texts)
        self._texts.clear()
        self.remove_class("-on")
        return was_on


def is_rung(key: str) -> bool:
    """Whether a notification with this key is one that nobody waits for."""
    return key.partition(":")[0] not in UNHEARD
