"""Markdown as people write it here: front matter, comments, headings. Pure text, no files."""

import re
from typing import Any

from appliance.errors import BadInput

FENCE = "---"
MOST_FRONT_CHARS = 32 * 1024  # that are read as YAML for its fields
FENCE_LINE = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
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
        mark, said = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        where = f" (line {mark.line + 2})" if mark is not None else ""
        why = " ".join(str(said).split())
        raise BadInput(f"front matter is not YAML{where}: {why}", hint="write lines of name: value") from None
    if front is not None and not isinstance(front, dict):
        raise BadInput(f"front matter must be lines of name: value, got {type(front).__name__}")
    return front or {}, "\n".join(lines[end + 1 :]).lstrip("\n")


def front(text: str) -> str:
    """The lines of the front matter with both fences as they stand, "" for none."""
    first = FENCE_LINE.match(text)
    end = FENCE_LINE.search(text, first.end()) if first else None
    return text[: end.end()] if end else ""


def fields(text: str) -> tuple[list[str], str]:
    """The front matter as lines of "name: value" with the values as they are written, and the body; nothing is refused.

    The title is left out: it names the whole.
    """
    text = text.removeprefix("\ufeff")
    head = front(text)
    if not head:
        return [], text
    import yaml

    body, lines = text[len(head) :].lstrip("\r\n"), head.splitlines()
    end = len(lines) - 1
    try:
        said = (
            None
            if len(head) > MOST_FRONT_CHARS
            else _load_yaml("\n".join(lines[1:end]), getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        )  # as strings: 0160 555 is no number, and 12:30 not 750
    except (yaml.YAMLError, ValueError, RecursionError):
        return [line.strip() for line in lines[1:end] if line.strip()], body
    if not isinstance(said, dict):
        return [line.strip() for line in lines[1:end] if line.strip()], body
    found = []
    for name, value in said.items():
        values = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str) and one.strip()]
        if values and name != "title":
            found.append(f"{re.sub(r'[_-]+', ' ', str(name))}: {', '.join(' '.join(one.split()) for one in values)}")
    return found, body


def _load_yaml(source: str, kind: Any = None) -> Any:
    """YAML without aliases: a few lines of them say more than a message about them could hold."""
    import yaml

    loader = kind or getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is in every wheel; built by hand it may be missing
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
    """The first heading, unless it is a lower one with others beside it, and names a part of the text; "" for none."""
    found = [(len(one[0]) - len(one[0].lstrip("#")), one[1]) for one in HEADING.finditer(visible(body))]
    is_part = any(1 < level <= found[0][0] for level, _ in found[1:])
    return "" if not found or is_part else found[0][1].rstrip("#").rstrip()
