"""Markdown as people write it here: front matter, comments, headings. Pure text, no files."""

import re
from typing import TYPE_CHECKING, Any

from appliance.errors import BadInput

if TYPE_CHECKING:
    import yaml

FENCE = "---"
MOST_FRONT_CHARS = 32 * 1024  # that are read as YAML for its fields
FENCE_LINE = re.compile(r"^---[ \t]*\r?(?:\n|\Z)", re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.*)$", re.MULTILINE)
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
NOTHING = (None, "~", "null")
NUMBERED = re.compile(r"[ \t]+(#\w.*)")  # "issue #12", "#general": a remark has a blank behind its sign
TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


def split(text: str) -> tuple[dict[str, Any], str]:
    """Front matter and body; BadInput when the front matter is there and cannot be read.

    Values are texts as they are written, lists and tables of them, and None where nothing is: `yes`, `1.10` and `2026-01-01`
    are a name or a description in most places. `truth` reads those that are to be true or false.
    """
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
    except (yaml.YAMLError, RecursionError) as error:
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
        said = None if len(head) > MOST_FRONT_CHARS else _load_yaml("\n".join(lines[1:end]))
    except (yaml.YAMLError, RecursionError):
        return [line.strip() for line in lines[1:end] if line.strip()], body
    if not isinstance(said, dict):
        return [line.strip() for line in lines[1:end] if line.strip()], body
    found = []
    for name, value in said.items():
        values = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str) and one.strip()]
        if values and name != "title":
            found.append(f"{re.sub(r'[_-]+', ' ', str(name))}: {', '.join(' '.join(one.split()) for one in values)}")
    return found, body


def truth(value: Any) -> bool | None:
    """What a value of front matter says by one of YAML's words for true and false; None when it says something else."""
    return TRUTHS.get(value.lower()) if isinstance(value, str) else None


def _load_yaml(source: str) -> Any:
    """YAML without aliases: a few lines of them say more than a message about them could hold."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml is in every wheel; built by hand it may be missing
    if "*" in source and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(source, Loader=loader)):
        raise yaml.YAMLError("aliases such as *name are not taken")
    node = yaml.compose(source, Loader=loader)
    return None if node is None else _value(node, source)


def _value(node: "yaml.Node", source: str) -> Any:
    import yaml

    if node.tag not in TAGS:
        raise yaml.MarkedYAMLError(problem=f"tags such as {node.tag} are not taken", problem_mark=node.start_mark)
    if isinstance(node, yaml.MappingNode):
        return {_key(key): _value(value, source) for key, value in node.value}
    if not isinstance(node, yaml.ScalarNode):
        return [_value(one, source) for one in node.value]
    if node.style:  # quoted, or in lines of its own
        return node.value
    behind = NUMBERED.match(source, node.end_mark.index)
    return f"{node.value} {behind[1].rstrip()}".lstrip() if behind and truth(node.value) is None else node.value or None


def _key(node: "yaml.Node") -> str:
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        raise yaml.MarkedYAMLError(problem="a name must be one word or text", problem_mark=node.start_mark)
    return str(node.value)


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
