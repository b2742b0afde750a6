"""What an entry holds: its fields, their limits, and what becomes of them when somebody writes.

Owns `Entry` and `Content` and the rules between them; knows nothing about the database. An entry is
text, perhaps with the bytes it was read from, or bytes without a text, or a folder, which has neither.
"""

import hashlib
import json
import mimetypes
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.errors import BadInput, Conflict, TooLarge
from appliance.text.references import locator_of, scheme_of

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_BLOB_BYTES = 16 * 1024 * 1024
MAX_ATTRIBUTES_BYTES = 64 * 1024
MAX_ATTRIBUTES_DEPTH = 32
MAX_CHARACTERS = {"title": 200, "description": 2000, "mime": 200, "source_url": 2048}

FOLDER = "inode/directory"  # the MIME type of a folder
TEXT = "text/plain"
MARKDOWN = "text/markdown"
BYTES = "application/octet-stream"
IN_MARKDOWN = ("box", "skill")  # schemes whose texts are Markdown, whatever their names
OOXML, OPEN = "application/vnd.openxmlformats-officedocument", "application/vnd.oasis.opendocument"
TYPES = {
    "md": MARKDOWN,
    "markdown": MARKDOWN,
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "gz": "application/gzip",
    "docx": f"{OOXML}.wordprocessingml.document",
    "xlsx": f"{OOXML}.spreadsheetml.sheet",
    "epub": "application/epub+zip",
    "pptx": f"{OOXML}.presentationml.presentation",
    "odt": f"{OPEN}.text",
    "ods": f"{OPEN}.spreadsheet",
    "odp": f"{OPEN}.presentation",
    "ics": "text/calendar",
    "vcf": "text/vcard",
    "rtf": "application/rtf",
}
TEXTUAL = ("application/json", "application/xml", "application/yaml", "application/javascript")


class Entry(Struct, frozen=True):
    """One thing the assistant knows. `hash` is the SHA-256 of the body, or of the bytes of what is not text."""

    id: int
    scope: str
    path: str
    title: str
    body: str
    attributes: dict[str, Any] = {}
    hash: str = ""
    writer: str = ""
    run: str = ""
    created_ms: int = 0
    updated_ms: int = 0
    uid: str = ""
    description: str = ""
    mime: str = ""
    source_url: str = ""
    is_textual: bool = True
    indexed_ms: int | None = None

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder: a name other entries lie under."""
        return self.mime == FOLDER


class Content(Struct, frozen=True):
    """What a write wants of an entry; None keeps what is stored. Text or bytes, not both.

    `original` are the bytes that the body was read from, as of a PDF: kept until another body is written.
    """

    body: str | None = None
    blob: bytes | None = None
    title: str | None = None
    description: str | None = None
    mime: str | None = None
    source_url: str | None = None
    attributes: Mapping[str, Any] | None = None
    original: bytes | None = None


def digest(data: bytes) -> str:
    """The SHA-256 of these bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def guess_mime(path: str, is_textual: bool) -> str:
    """The MIME type that the name at the end of a stored path suggests."""
    _, dot, ending = locator_of(path).rpartition("/")[2].lower().rpartition(".")
    # An instance of its own has the types that come with Python, not those of this machine.
    found = TYPES.get(ending) or mimetypes.MimeTypes().types_map[True].get(f".{ending}", "") if dot else ""
    if not is_textual:
        return found or BYTES
    if found.startswith("text/") or found in TEXTUAL:
        return found
    return MARKDOWN if scheme_of(path) in IN_MARKDOWN else TEXT


def check(path: str, content: Content) -> None:
    """BadInput or TooLarge for what an entry cannot hold."""
    if content.body is not None:
        if content.blob is not None:
            raise BadInput(f"{path}: text and bytes at once", hint="give one of them")
        size = len(content.body)
        if size <= MAX_BODY_BYTES:  # only then is it worth encoding
            size = len(_encode_text(content.body, path, "body"))
        if size > MAX_BODY_BYTES:
            raise TooLarge(f"{path}: the body has {size} bytes or more, the limit is {MAX_BODY_BYTES}", hint="split it")
    if content.original is not None and content.body is None:
        raise BadInput(f"{path}: the bytes of a text without the text", hint="give both")
    for data in (content.blob, content.original):
        if data is not None and len(data) > MAX_BLOB_BYTES:
            raise TooLarge(f"{path}: {len(data)} bytes, the limit is {MAX_BLOB_BYTES}", hint="keep a smaller file")
    for name, most in MAX_CHARACTERS.items():
        text = getattr(content, name) or ""
        if len(text) > most:
            raise TooLarge(f"{path}: the {name} has {len(text)} characters, the limit is {most}", hint="shorten it")
        _encode_text(text, path, name)
    if content.mime == FOLDER:
        raise BadInput(f"{path}: {FOLDER} is for folders", hint="make a folder instead")
    if content.attributes is not None:
        attributes_text(path, content.attributes)


def attributes_text(path: str, attributes: Mapping[str, Any]) -> str:
    """Attributes as they are stored; BadInput for what is not a JSON object, TooLarge for a big one."""
    hint = 'give an object such as {"tags": ["garden"]}'
    if not isinstance(attributes, Mapping) or not all(isinstance(key, str) for key in attributes):
        raise BadInput(f"{path}: the attributes are not a JSON object", hint=hint)
    if _is_deeper(attributes, MAX_ATTRIBUTES_DEPTH):
        raise BadInput(f"{path}: the attributes are nested deeper than {MAX_ATTRIBUTES_DEPTH} levels", hint="make them flatter")
    try:
        text = json.dumps(dict(attributes), ensure_ascii=False, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{path}: the attributes are not JSON: {error}", hint=hint) from None
    size = len(_encode_text(text, path, "attributes"))
    if size > MAX_ATTRIBUTES_BYTES:
        raise TooLarge(f"{path}: the attributes have {size} bytes, the limit is {MAX_ATTRIBUTES_BYTES}", hint="use the body")
    return text


def is_same(one: Entry, other: Entry) -> bool:
    """Whether two entries have the same content; in attributes 1, 1.0 and true are three things."""
    texts = [attributes_text(entry.path, entry.attributes) for entry in (one, other)]
    return texts[0] == texts[1] and replace(one, attributes={}) == replace(other, attributes={})


def merged(before: Entry, content: Content) -> Entry:
    """The entry with everything that the content says; Conflict when a folder would become a file."""
    if before.is_folder and (content.body is not None or content.blob is not None):
        raise Conflict(f"{before.path} is a folder", hint="write to a name under it, or remove the folder first")
    names = ("title", "description", "mime", "source_url")
    after = replace(before, **{name: value for name in names if (value := getattr(content, name)) is not None})
    if content.attributes is not None:
        # As they will be read: a tuple becomes a list.
        after = replace(after, attributes=json.loads(attributes_text(before.path, content.attributes)))
    if content.body is not None:
        after = replace(after, body=content.body, hash=digest(content.body.encode()), is_textual=True)
    elif content.blob is not None:
        after = replace(after, body="", hash=digest(content.blob), is_textual=False)
    if not content.mime and (not after.mime or after.is_textual != before.is_textual):
        after = replace(after, mime=guess_mime(after.path, after.is_textual))
    if (after.hash, after.title) != (before.hash, before.title):
        after = replace(after, indexed_ms=None)  # what an index knows of it is stale
    return after


def _encode_text(text: str, path: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{path}: the {name} holds half a character at {error.start}", hint="leave it out") from None


def _is_deeper(value: object, levels: int) -> bool:
    if isinstance(value, Mapping):
        return levels == 0 or any(_is_deeper(item, levels - 1) for item in value.values())
    if isinstance(value, list | tuple):
        return levels == 0 or any(_is_deeper(item, levels - 1) for item in value)
    return False
