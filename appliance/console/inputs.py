"""What a command is given beside its arguments: texts of files and pipes, JSON, what a person writes in an editor."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from appliance.errors import BadInput, NotFound, TooLarge

MOST_BYTES = 4_000_000  # what one call may take


def read_text(place: str, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file, `-` for standard input: whole, or refused before anything is sent."""
    name = "standard input" if place == "-" else place
    try:
        if place == "-":
            data = sys.stdin.buffer.read(most_bytes + 1)
        else:
            with open(place, "rb") as file:
                data = file.read(most_bytes + 1)
    except OSError as error:
        raise NotFound(f"{place} cannot be read: {error.strerror}", hint="name a file that you may read") from None
    if len(data) > most_bytes:
        raise TooLarge(f"{name} has more than {most_bytes} bytes", hint="shorten or split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is not UTF-8 at byte {error.start}", hint="convert it first") from None


def read_object(text: str, example: str = '{"timezone": "UTC"}') -> dict[str, Any]:
    """A JSON object in an argument, `-` for one on standard input."""
    try:
        found = json.loads((read_text("-") if text == "-" else text) or "{}")
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{text[:60]} is not JSON: {error}", hint=f"give an object such as {example}") from None
    if not isinstance(found, dict):
        raise BadInput(f"{text[:60]} is not a JSON object", hint=f"give an object such as {example}")
    return found


def edit_text(text: str, name: str) -> str:
    """What a person makes of a text in $VISUAL or $EDITOR, in a private file of this name; refused where the editor fails."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "nano"
    with tempfile.TemporaryDirectory(prefix="owlbox-") as folder:  # private: mode 0700
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(["sh", "-c", f'{editor} "$1"', "sh", str(path)], check=False)
        if done.returncode:
            raise BadInput(f"{editor} ended with {done.returncode}: nothing is changed", hint="set EDITOR, or give a file")
        return path.read_text(encoding="utf-8", errors="replace")
