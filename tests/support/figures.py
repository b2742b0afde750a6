"""Numbers that a measurement writes for a program to read, as JSON."""

import json
from pathlib import Path
from typing import Any


def write(file: str | Path, numbers: object) -> None:
    """Write numbers into a file, whose folder is made when it is missing; the name "" writes nothing."""
    if not str(file):
        return
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read(file: str | Path) -> dict[str, Any]:
    """The numbers of a file."""
    return dict(json.loads(Path(file).read_text(encoding="utf-8")))
