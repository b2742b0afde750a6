"""References of files in box/, and whose a file is. Reads nothing."""

import unicodedata
from pathlib import Path

from appliance.errors import BadInput
from appliance.ingest.watcher import is_text
from appliance.knowledge import entries

SCHEME = "box://"
OWNERS = {"users": "user", "groups": "group"}  # folders of box/ whose folders belong to one person or group each


def ref_of(root: Path, path: Path) -> str:
    """The reference of a file: `box://` and its path in the folder; BadInput for a name that cannot be one."""
    name = path.relative_to(root).as_posix()
    if not is_text(name):
        raise BadInput("its name is not UTF-8", hint="rename it")
    ref = unicodedata.normalize("NFC", SCHEME + name)
    if entries.parse_ref(ref) != ref:
        raise BadInput("its name begins or ends with a space", hint="rename it")
    return ref


def owner_of(root: Path, path: Path) -> str:
    """The context whose file it is, such as `user:ada`: what lies below users/ID and groups/ID is theirs alone; "" for nobody's."""
    parts = path.relative_to(root).parts
    kind = OWNERS.get(parts[0], "") if len(parts) > 2 else ""
    return f"{kind}:{parts[1]}" if kind else ""
