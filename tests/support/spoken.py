"""What a person said, of a message as a model is told it."""

from appliance.providers.scripted import SENT


def spoken(text: str) -> str:
    """The message without the line that says when it was sent."""
    return SENT.sub("", text)
