"""One record of memory and its form as a Markdown file: a metadata block, a title and the text.

Writing and reading a record give the same record again. Each way in which a file can be wrong has an error of its own. Topics
become folder names, owners are cleaned of what a path could mean by them. Pure: knows nothing about where records are kept.
"""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from appliance.errors import BadInput, TooLarge
from appliance.text import markdown

Scope = Literal["user", "group"]
Kind = Literal["note", "preference", "decision", "fact", "context"]
MAX_FILE_BYTES = 100 << 10
MAX_TOPIC = 100
MAX_TAGS = 32
GENERAL = "general"
FENCE = markdown.FENCE
OWNER_CHARS = re.compile(r"[^A-Za-z0-9._-]+")


class MemoryRecord(msgspec.Struct, frozen=True):
    """Something that is remembered. `owner` is "" for what everybody on the box shares; times are milliseconds."""

    id: str
    text: str
    title: str = ""
    scope: Scope = "user"
    owner: str = ""
    kind: Kind = "note"
    topic: str = GENERAL
    tags: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    importance: int = 5
    confidence: float = 1.0
    is_verified: bool = False
    version: int = 1
    source: str = ""
    ttl_s: int = 0
    created_ms: int = 0
    updated_ms: int = 0

    @property
    def expires_ms(self) -> int:
        """When it is not remembered any more, 0 for never."""
        return self.created_ms + self.ttl_s * 1000 if self.ttl_s else 0

    def is_expired(self, now_ms: int) -> bool:
        """Whether it may not be shown any more."""
        return bool(self.ttl_s) and now_ms >= self.expires_ms


def require_owner(scope: str, owner: str) -> tuple[Scope, str]:
    """A scope and a cleaned owner; BadInput for another scope and for an owner of whom nothing is left."""
    if scope not in get_args(Scope):
        raise BadInput(f"scope {scope!r} is none", hint="it is user or group")
    cleaned = "-".join(part for part in OWNER_CHARS.sub("-", owner.replace("../", "")).split("-") if part).strip(".")
    cleaned = cleaned.rsplit("/", 1)[-1]
    if not cleaned:
        raise BadInput(f"owner {owner!r} names nobody", hint="name a person or a group")
    return scope, cleaned  # type: ignore[return-value]


def check_topic(topic: str) -> str:
    """A topic as it was given; BadInput for one that could leave its folder or is too long."""
    if len(topic) > MAX_TOPIC:
        raise BadInput(f"a topic of {len(topic)} characters is too long", hint=f"at most {MAX_TOPIC}")
    if ".." in topic or "/" in topic or "\\" in topic:
        raise BadInput(f"topic {topic!r} may hold no .., / or \\", hint="use a few words")
    return topic


def topic_folder(topic: str) -> str:
    """The folder of a topic: lower case with hyphens, `general` when nothing is left."""
    plain = unicodedata.normalize("NFKC", check_topic(topic)).lower()
    kept = "".join(char if char.isalnum() else "-" for char in plain)
    return re.sub(r"-+", "-", kept).strip("-") or GENERAL


def to_markdown(record: MemoryRecord) -> str:
    """The record as a file; TooLarge when it would be more than 100 KiB."""
    front: dict[str, Any] = {
        "id": record.id,
        "scope": record.scope,
        "owner": record.owner,
        "type": record.kind,
        "topic": record.topic,
        "created": _iso(record.created_ms),
        "updated": _iso(record.updated_ms),
        "labels": dict(record.labels),
        "tags": list(record.tags),
        "importance": record.importance,
        "confidence": record.confidence,
        "verified": record.is_verified,
        "version": record.version,
        "source": record.source,
        "ttl": record.ttl_s,
    }
    import yaml  # 10 ms that only writing a record needs

    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=100_000)
    text = f"{FENCE}\n{head}{FENCE}\n# {record.title}\n\n{record.text}\n"
    if len(text.encode()) > MAX_FILE_BYTES:
        raise TooLarge(f"a memory of {len(text.encode())} bytes is too long", hint=f"at most {MAX_FILE_BYTES}; keep it as a note")
    return text


def from_markdown(text: str) -> MemoryRecord:
    """The record in a file; BadInput says what is wrong with it."""
    if not text.strip():
        raise BadInput("the file is empty", outcome="empty")
    if len(text.encode()) > MAX_FILE_BYTES:
        raise TooLarge(f"a memory of {len(text.encode())} bytes is too long", hint=f"at most {MAX_FILE_BYTES}")
    if not text.startswith(FENCE):
        raise BadInput("it has no metadata: the first line must be ---", outcome="no_metadata")
    if not re.search(rf"\n{FENCE}[ \t]*(?:\n|$)", text):
        raise BadInput("the metadata starts with --- and never ends", outcome="no_closing_fence")
    front, body = markdown.split(text)
    for key in ("id", "type", "created", "updated"):
        if not front.get(key):
            raise BadInput(f"{key} is missing in the metadata", outcome=f"no_{key}")
    if front["type"] not in get_args(Kind):
        raise BadInput(f"type {front['type']!r} is none", hint=", ".join(get_args(Kind)), outcome="bad_type")
    title, rest = "", body
    if body.startswith("# "):
        head, _, rest = body.partition("\n")
        title = head[2:].strip()
    scope = str(front.get("scope") or "user")
    if scope not in get_args(Scope):
        raise BadInput(f"scope {scope!r} is none", hint="it is user or group", outcome="bad_scope")
    return MemoryRecord(
        id=str(front["id"]),
        text=rest.strip("\n"),
        title=title,
        scope=scope,  # type: ignore[arg-type]
        owner=str(front.get("owner") or ""),
        kind=front["type"],
        topic=str(front.get("topic") or GENERAL),
        tags=_texts(front, "tags"),
        labels=_labels(front),
        importance=_number(front, "importance", 5, int),
        confidence=_number(front, "confidence", 1.0, float),
        is_verified=markdown.truth(front.get("verified")) is True,
        version=_number(front, "version", 1, int),
        source=str(front.get("source") or ""),
        ttl_s=_number(front, "ttl", 0, int),
        created_ms=_milliseconds(front, "created"),
        updated_ms=_milliseconds(front, "updated"),
    )


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _milliseconds(front: Mapping[str, Any], key: str) -> int:
    value = front[key]
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise BadInput(
            f"{key} {value!r} is not a time", hint="write one such as 2026-01-31T08:00:00+00:00", outcome=f"bad_{key}"
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)


def _texts(front: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = front.get(key) or []
    if not isinstance(value, list):
        raise BadInput(f"{key} must be a list, not {value!r}", outcome=f"bad_{key}")
    return tuple(str(item) for item in value[:MAX_TAGS] if item is not None)


def _labels(front: Mapping[str, Any]) -> dict[str, str]:
    value = front.get("labels") or {}
    if not isinstance(value, dict):
        raise BadInput(f"labels must be lines of name: value, not {value!r}", outcome="bad_labels")
    return {key: "" if item is None else str(item) for key, item in value.items()}


def _number(front: Mapping[str, Any], key: str, default: Any, kind: type) -> Any:
    value = front.get(key, str(default))
    try:
        return kind(float(value))
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{key} must be a number, not {value!r}", outcome=f"bad_{key}") from None
