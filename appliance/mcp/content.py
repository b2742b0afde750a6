"""What servers of tools answer, as text: blocks joined, pictures kept beside it, errors told apart by what can be done.

Pure: takes the plain values of the protocol and knows nothing about connections. Everything here was written by
strangers; it is made printable and bounded, never believed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from appliance.records import Image

Kind = Literal["", "retryable", "auth_error", "input_error", "permanent"]
MAX_CHARS = 2_000_000  # of one answer
MAX_IMAGES = 8
MAX_IMAGE_CHARS = 2_000_000  # of one picture, as base64
# What a text says of its cause. The network comes first: "429: invalid key?" is tried again before it is corrected.
TELLING: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "retryable",
        re.compile(
            r"connection (was )?(refused|reset|closed|lost|aborted)|econn(refused|reset|aborted)|enotfound|eai_again|etimedout|"
            r"(name|host|domain)\b.{0,40}\bnot (be )?(found|known|resolved)|getaddrinfo|tim(ed|e)[ -]?out|\b(429|502|503|504)\b|"
            r"too many requests|rate limit|service unavailable|temporarily unavailable|network (error|is unreachable)|"
            r"socket hang up|fetch failed|all connection attempts failed",
            re.IGNORECASE,
        ),
    ),
    (
        "auth_error",
        re.compile(
            r"\b(401|403)\b|unauthori[sz]ed|forbidden|authenticat|(bad|invalid|expired) (token|credentials|api key)",
            re.I,
        ),
    ),
    ("input_error", re.compile(r"invalid|required|schema|missing (argument|parameter|field)|validation", re.IGNORECASE)),
)
HINTS: Mapping[str, str] = {
    "retryable": "try again in a moment; owlbox mcp ping NAME says whether it is there",
    "auth_error": "the server wants a login: owlbox mcp auth NAME",
    "input_error": "look at the arguments with mcp_info and call it again",
    "permanent": "trying again will not help; do without it, or tell the person",
}


class ServerReply(Struct, frozen=True):
    """What a call came to: the whole text, pictures beside it, and for an error its kind and the next step."""

    text: str
    is_error: bool = False
    kind: Kind = ""
    hint: str = ""
    images: tuple[Image, ...] = ()
    data: Any = None
    server: str = ""
    tool: str = ""


class _Gathered(Struct):
    texts: list[str] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)


def kind_of(text: str) -> Kind:
    """The kind of error that a message describes."""
    return next((kind for kind, pattern in TELLING if pattern.search(text[:20_000])), "permanent")


def hint_of(kind: str, server: str = "") -> str:
    """The next step after an error of this kind."""
    return HINTS[kind].replace("NAME", server) if server else HINTS[kind]


def reply(result: Mapping[str, Any], server: str, tool: str) -> ServerReply:
    """The answer to a call of a tool."""
    gathered = _Gathered()
    for block in result.get("content") or ():
        _add_block(block if isinstance(block, Mapping) else {"type": "text", "text": str(block)}, gathered)
    data = result.get("structuredContent")
    text = "\n".join(gathered.texts)
    if not text and data is not None:
        text = json.dumps(data, ensure_ascii=False)
    text = bounded(printable(text))
    if not result.get("isError"):
        said = text or "(the server answered with nothing)"
        return ServerReply(said, images=tuple(gathered.images), data=data, server=server, tool=tool)
    kind = kind_of(text)
    said = text or "the server says that the call failed, and not why"
    return ServerReply(said, True, kind, hint_of(kind, server), tuple(gathered.images), data, server, tool)


def resource(result: Mapping[str, Any]) -> str:
    """The text of a resource that was read."""
    gathered = _Gathered()
    for content in result.get("contents") or ():
        _add_block({"type": "resource", "resource": content}, gathered)
    return bounded(printable("\n".join(gathered.texts))) or "(empty)"


def prompt(result: Mapping[str, Any]) -> str:
    """The messages of a prompt, one after another, each behind who says it."""
    lines = []
    for message in result.get("messages") or ():
        gathered = _Gathered()
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            _add_block(block if isinstance(block, Mapping) else {"type": "text", "text": str(block)}, gathered)
        lines.append(f"{message.get('role', 'user')}: " + "\n".join(gathered.texts))
    return bounded(printable("\n\n".join(lines))) or "(empty)"


def printable(text: str) -> str:
    """A text without what steers a terminal or hides from a reader: control characters and marks of direction."""
    return "".join(letter for letter in text if letter in "\n\t" or _is_plain(letter))


def bounded(text: str, limit: int = MAX_CHARS) -> str:
    """The text, cut where it is longer than that, and saying so."""
    return text if len(text) <= limit else f"{text[:limit]}\n[cut: {limit} of {len(text)} characters kept]"


def _is_plain(letter: str) -> bool:
    code = ord(letter)
    return not (code < 32 or 127 <= code < 160 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or 0xD800 <= code <= 0xDFFF)


def _add_block(block: Mapping[str, Any], to: _Gathered) -> None:
    """Put one block where it belongs."""
    kind = block.get("type")
    if kind == "text":
        to.texts.append(str(block.get("text", "")))
    elif kind == "image":
        to.texts.append(_store_image(block, to))
    elif kind == "audio":
        to.texts.append(f"[sound, {block.get('mimeType', '?')}, {_format_size(block.get('data'))}]")
    elif kind == "resource_link":
        about = " - ".join(str(block[key]) for key in ("title", "name", "description") if block.get(key))
        to.texts.append(f"[link to {block.get('uri', '?')}: {about}]")
    elif kind == "resource":
        to.texts += _resource_lines(block.get("resource") or {})
    else:
        to.texts.append(f"[a block of kind {kind!s:.40} that cannot be shown]")


def _store_image(block: Mapping[str, Any], to: _Gathered) -> str:
    data, kind = str(block.get("data", "")), str(block.get("mimeType", "image/png"))
    name = f"{len(to.images) + 1}"
    if len(to.images) >= MAX_IMAGES or len(data) > MAX_IMAGE_CHARS or not kind.startswith("image/"):
        return f"[picture, {kind}, {_format_size(data)}: not kept]"
    to.images.append(Image(name, kind, data))
    return f"[picture {name}, {kind}, {_format_size(data)}]"


def _resource_lines(content: Mapping[str, Any]) -> Iterator[str]:
    uri, kind = content.get("uri", "?"), content.get("mimeType", "")
    if "text" in content:
        yield f"[{uri}{f', {kind}' if kind else ''}]\n{content['text']}"
    else:
        yield f"[{uri}, {kind or 'bytes'}, {_format_size(content.get('blob'))}]"


def _format_size(data: Any) -> str:
    return f"{max(1, len(str(data or '')) * 3 // 4000)} kB"


def names(found: Sequence[str], limit: int = 8) -> str:
    """Names as a list to read, with how many more there are."""
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more
