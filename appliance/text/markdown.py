"""Markdown as people write it here: front matter, comments, headings. Pure text, no files."""

import re
from typing import Any

from appliance.errors import BadInput

FENCE = "---"
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.*)$", re.MULTILINE)


def split(text: str) -> tuple[dict[str, Any], str]:
    """Front matter and body; BadInput when the front matter is there and cannot be read."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].strip() != FENCE:
        return {}, text
    try:
        end = next(i for i, line in enumerate(lines[1:], 1) if line.strip() == FENCE)
    except StopIteration:
        raise BadInput("front matter starts with --- and never ends", hint="close it with a line of ---") from None
    import yaml  # 10 ms, and most texts have no front matter

    try:
        front = _load_yaml("\n".join(lines[1:end]))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2026-13-45
        raise BadInput(f"front matter is not YAML: {' '.join(str(error).split())}", hint="write lines of name: value") from None
    if front is not None and not isinstance(front, dict):
        raise BadInput(f"front matter must be lines of name: value, got {type(front).__name__}")
    return front or {}, "\n".join(lines[end + 1 :]).lstrip("\n")


def _load_yaml(source: str) -> Any:
    """YAML without aliases: a few lines of them say more than a message about them could hold."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is in every wheel; built by hand it may be missing
    if "*" in source and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(source, Loader=loader)):
        raise yaml.YAMLError("aliases such as *name are not taken")
    return yaml.load(source, Loader=loader)


def visible(body: str) -> str:
    """The text without comments and outer blank lines."""
    return COMMENT.sub("", body).strip()


def has_text(body: str) -> bool:
    """True when something besides headings and comments is written."""
    return bool(HEADING.sub("", visible(body)).strip())


def title(body: str) -> str:
    """The first heading, or ""."""
    found = HEADING.search(visible(body))
    return found.group(1).rstrip("#").rstrip() if found else ""
