"""What is said of a time that cannot be read, that there is not, or that has passed: a phrase of the language files.

A phrase `time_NAME` holds what is wrong and behind a bar the next step. The error speaks English; `said_in` gives its words in the
language of a conversation.
"""

from appliance.errors import BadInput
from appliance.language.languages import FIRST, Language, read_shipped

STEP = " | "  # between what is wrong and the next step


class UnclearTime(BadInput):
    """A time that is not understood; the parts fill the gaps of its phrase."""

    def __init__(self, name: str, **parts: str) -> None:
        self.phrase, self.parts = f"time_{name}", parts
        message, _, hint = read_shipped(FIRST)["phrases"][self.phrase].format(**parts).partition(STEP)
        super().__init__(message, hint=hint)

    def said_in(self, language: Language) -> tuple[str, str]:
        """What is wrong and the next step, in a language."""
        message, _, hint = language.say(self.phrase, **self.parts).partition(STEP)
        return message, hint
