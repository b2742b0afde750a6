"""What the last check for a newer version found, in a small file of the home. Asks nothing of anybody."""

import json

from msgspec import Struct
from msgspec.structs import asdict

from appliance.runtime import paths
from appliance.runtime.paths import Home

FILE = "update-check.json"


class Check(Struct, frozen=True):
    """What was found: the newest version for this machine, "" when it is the present one, and where."""

    at_ms: int
    version: str = ""
    place: str = ""
    problem: str = ""


def read_check(home: Home) -> Check | None:
    """The result of the last check; None when there was none."""
    try:
        return Check(**json.loads((home.root / FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_check(home: Home, check: Check) -> None:
    """Keep it for the doctor."""
    paths.put(home.root / FILE, json.dumps(asdict(check)).encode())


def order(version: str) -> tuple[int, ...]:
    """The sort key of a version."""
    return tuple(int(part) for part in version.split("."))
