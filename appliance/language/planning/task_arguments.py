"""What a task is called that a person asks for in a sentence: a short name, and all that was said where that is longer. Pure."""

import textwrap
from typing import Any

MAX_NAME = 100
QUOTES = "\"'“”‘’«»"


def task_arguments(text: str) -> dict[str, Any]:
    """Name and description of a task, as `create_task` takes them."""
    whole = " ".join(text.rstrip(" .!?\n").split()).strip(QUOTES)
    name = textwrap.shorten(whole, MAX_NAME, placeholder=" …") if " " in whole[:MAX_NAME] else whole[:MAX_NAME]
    return {"name": name} if name == whole and "\n" not in text else {"name": name, "description": text}
