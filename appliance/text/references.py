"""What a reference means: one stored form for each thing, and the forms people and models write.

Owns reading, showing and making references; knows nothing about what is stored under them. A path is
`scheme://locator` or a bare file path. `drive:/path` is the same as `drive://path`; it is how drives are
shown to models. People read and type `notes/x.md` for a file of box/ and `/srv/a.txt` for one on the disk (`for_people`,
`as_typed`). Pure text: nothing here asks whether a file or an entry exists. Not promised: that two spellings
of one URL, or `a/b` and `a/./b`, are one thing.
"""

import re
import unicodedata
from collections.abc import Callable
from urllib.parse import quote, urlsplit

from appliance.clock import now_ms
from appliance.errors import BadInput

MAX_PATH = 2048
MAX_SLUG = 80  # characters of the text a slug is made of
FILE_BACKED = ("disk",)  # drives whose paths name files on a disk, as bare paths do
AS_WRITTEN = ("url", "http", "https")  # a URL stays as it is, dots and doubled slashes included
KEPT = "!*'()~"  # beside letters, digits and -_. these need no escape in a slug
DRIVE = re.compile(r"([a-z][a-z0-9_-]*):/")
GOOGLE = re.compile(r"/(?:a/[^/]+/)?(?:document|spreadsheets|presentation)/(?:u/\d+/)?d/([A-Za-z0-9_-]+)(?:/|$)")
NAME = re.compile(r"[A-Za-z0-9_.-]+")
DRIVES = ("box", "disk", "memory", "agent", "skill", "calendar", "contacts")  # whose addresses people see
SHOWN = re.compile(rf"(?<![\w/:])({'|'.join(DRIVES)}):/{{1,2}}(?=[^\s/\]])")
OPEN = re.compile(rf"(?<![\w/:])(?:{'|'.join(name[:end] for name in DRIVES for end in range(1, len(name) + 1))})(?::/{{0,2}})?$")
MARKS = {"box": "", "disk": "/"}  # what stands before a path of these drives for people; `memory:/` and the like before others
UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NOT_OWNERS = frozenset(
    "about apps blog collections contact customer-stories enterprise events explore features issues join login marketplace "
    "new notifications orgs organizations pricing pulls readme search security settings site sponsors stars topics trending "
    "users".split()
)


def parse_ref(ref: str) -> str:
    """The stored path of a reference: `drive:/path` becomes `drive://path`; BadInput for what cannot be a path."""
    ref = unicodedata.normalize("NFC", ref.strip())
    if not ref:
        raise BadInput("the reference is empty", hint="use scheme://path, for example memory://notes/garden")
    if len(ref) > MAX_PATH:
        raise BadInput(f"the reference has {len(ref)} characters, the limit is {MAX_PATH}", hint="shorten it")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in ref):
        raise BadInput(f"the reference holds a control character or half a character: {ref!r}", hint="remove it")
    found = DRIVE.match(ref)
    if found:
        ref = f"{found[1]}://{ref[found.end() :].lstrip('/')}"
    if len(ref) > MAX_PATH:
        raise BadInput(f"the reference has {len(ref)} characters, the limit is {MAX_PATH}", hint="shorten it")
    if scheme_of(ref) not in AS_WRITTEN and ".." in locator_of(ref).split("/"):
        raise BadInput(f"the reference may not go up: {ref}", hint="give the full path without ..")
    return ref


def is_ref(text: str) -> bool:
    """Whether this is a usable reference with a drive: `disk:/a` and `known://a` are, `disk:a` and `BAD:/a` are not."""
    try:
        return DRIVE.match(parse_ref(text)) is not None
    except BadInput:
        return False


def scheme_of(path: str | None) -> str | None:
    """The text before the first `://`; None for a bare path, `key:value`, nothing at all."""
    scheme, mark, _ = (path or "").partition("://")
    return scheme if mark and scheme else None


def locator_of(path: str) -> str:
    """What follows the scheme of a stored path; the path itself when it has none."""
    scheme = scheme_of(path)
    return path if scheme is None else path[len(scheme) + 3 :]


def is_file_backed(path: str) -> bool:
    """Whether a stored path names a file on a disk: a bare path, or one on the disk drive."""
    return (scheme_of(path) or FILE_BACKED[0]) in FILE_BACKED


def display(path: str) -> str:
    """A stored path as it is shown: `drive:/path`; web addresses and bare paths as they are."""
    scheme = scheme_of(path)
    if scheme is None or scheme in ("http", "https") or not DRIVE.fullmatch(f"{scheme}:/"):
        return path
    return f"{scheme}:/{locator_of(path)}"


def for_people(text: str) -> str:
    """A text with its addresses as people know them: `notes/x.md` in box/, `/srv/a.txt` on the disk, else `memory:/a`."""
    return SHOWN.sub(lambda found: MARKS.get(found[1], f"{found[1]}:/"), text) if ":/" in text else text


def begin_of_address(text: str) -> int:
    """Where a word at the end of a text begins that may go on as an address; its length for none."""
    found = OPEN.search(text)
    return found.start() if found else len(text)


def as_typed(address: str) -> str:
    """The reference of an address that a person types: without a drive it is a file of box/ or, after a slash, of the disk."""
    if not address or DRIVE.match(address) or ":/" in address or UNIQUE.fullmatch(address):
        return address
    return f"disk:{address}" if address.startswith("/") else f"box:/{address}"


def folder_of(path: str) -> str:
    """A stored path without the slashes at its end; the root of a drive and `/` stay."""
    return path if path.endswith("://") else path.rstrip("/") or path


def is_under(path: str, folder: str) -> bool:
    """Whether a stored path is this folder or lies in it, by whole names: `/a/b` is under `/a`, `/ab` is not."""
    folder = folder_of(folder)
    return path == folder or path.startswith(folder if folder.endswith("/") else f"{folder}/")


def slug(text: str) -> str:
    """Text as a locator: spaces as `_`, commas as `/`, whatever else is unsafe percent-encoded; "" for no text."""
    parts = text[:MAX_SLUG].replace(" ", "_").replace(",", "/").split("/")
    return "/".join(_escape_part(part) for part in parts if part)


def unique_slug(text: str, taken: Callable[[str], bool]) -> str:
    """A slug that is not taken, with `_2`, `_3`... where need be; made of the time when there is no text."""
    wanted = slug(text) or str(now_ms())
    found, number = wanted, 1
    while taken(found):
        number += 1
        found = f"{wanted}_{number}"
    return found


def _escape_part(part: str) -> str:
    if part in (".", ".."):
        return part.replace(".", "%2E")  # a name here, not a way up
    return quote(unicodedata.normalize("NFC", part), safe=KEPT, errors="replace")


def route_url(text: str, server: str = "") -> str:
    """The reference a URL is kept under: a document of Google, a place on GitHub, else `url:/` and the text itself.

    `server` is the name of the MCP server that fetched it: one named after a service speaks for other hosts too.
    """
    text, server = text.strip(), server.lower()
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").removeprefix("www.")
    except ValueError:
        return f"url:/{text}"
    if parts.scheme not in ("http", "https"):
        return f"url:/{text}"
    found = ""
    if host == "docs.google.com" or ("google" in server and "doc" in server):
        document = GOOGLE.match(parts.path)
        found = f"google-docs:/{document[1]}" if document else ""
    elif host in ("github.com", "raw.githubusercontent.com") or "github" in server:
        found = _on_github([name for name in parts.path.split("/") if name], host == "raw.githubusercontent.com")
    return found or f"url:/{text}"


def _on_github(names: list[str], is_raw: bool) -> str:
    """`github:/owner/repo/path` of the parts of a path on GitHub, "" when they name neither repository nor file."""
    if len(names) < 2 or names[0] in NOT_OWNERS or not all(NAME.fullmatch(name) for name in names[:2]):
        return ""
    owner, repository, *rest = names
    root = f"github:/{owner}/{repository.removesuffix('.git')}"
    if not rest:
        return root
    if not is_raw and rest.pop(0) not in ("blob", "tree", "raw"):
        return ""  # issues, a release, a wiki: pages, not files
    is_long = rest[:1] == ["refs"]  # refs/heads/main is main written out
    return "/".join([root, *rest[3 if is_long else 1 :]])
