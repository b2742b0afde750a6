"""Fetching skills from the web: a Git repository over HTTP, or an archive or a Markdown file at a URL.

Every request goes through `web.fetch`, so addresses are judged, bytes and time are limited, and each is noted. Of a repository
the newest commit alone is fetched, into memory: nothing is checked out, and no hook, filter, submodule or setting of it is
looked at. What arrives is measured before it is unpacked, because a few bytes may stand for gigabytes. Covered: links and
submodules within the skill's folder are refused. Not covered: repositories that want a name and password. Importing this
imports dulwich only once a repository is fetched.
"""

import io
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from urllib.parse import unquote, urldefrag, urlsplit

from appliance.errors import BadInput, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.records import Cancel
from appliance.runtime.methods import Call, method
from appliance.skills.package import MAX_DEPTH, MAX_FILE_BYTES, PackageFile, SkillPackage, check_files, choose, read_data
from appliance.skills.skill_service import encode_files
from appliance.text import urls
from appliance.web.fetch import Fetch, Fetched, Want, check_found

if TYPE_CHECKING:
    from dulwich.object_store import MemoryObjectStore
    from dulwich.objects import ObjectID

ADDING = "adding"  # the session that the requests of people are noted for
FETCH_S = 120.0  # for one request
MAX_PACK_BYTES = 16 << 20
MAX_OBJECT_BYTES = 16 << 20  # of one file of the repository, the skill's or not
MAX_UNPACKED_BYTES = 64 << 20  # of all of them: this stands in the memory of the core for a moment
MAX_OBJECTS = 20_000
PART_BYTES = 1 << 16
TOO_LARGE = (
    f"a repository of more than {MAX_UNPACKED_BYTES >> 20} MiB, or with a file of {MAX_OBJECT_BYTES >> 20} MiB, is not taken"
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".md")
FOLDER_MODE, LINK_MODE, SUBMODULE_MODE = 0o040000, 0o120000, 0o160000
DELTAS = (6, 7)  # kinds of objects in a pack: against one at an offset, against one by its name
LOCAL_HINT = "fetch it yourself (git clone, or a browser) and install the folder or the archive"


class FetchedSkill(TypedDict):
    """A skill as `skill.review` and `skill.install` take it; `source` says which commit it was."""

    files: dict[str, str]
    folder: str
    source: str


class SkillFetch:
    """Fetches skills for whoever is about to install one."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    @method("skill.fetch", access="all")
    def fetch(
        self,
        call: Call,
        url: Annotated[str, "of a Git repository, a .zip, .tar.gz or .md; #NAME is a branch or tag"],
        folder: Annotated[str, "the folder in it that holds SKILL.md, where there are several"] = "",
    ) -> FetchedSkill:
        """Fetch a skill from the web; nothing is written."""
        package = self.read(url, folder, call.cancel)
        return FetchedSkill(files=encode_files(package), folder=package.name, source=package.source)

    def read(self, url: str, inner: str, cancel: Cancel) -> SkillPackage:
        """The skill at a URL."""
        is_git = url.startswith("git+")
        plain, ref = urldefrag(url.removeprefix("git+"))
        place = PurePosixPath(unquote(urlsplit(urls.parse(plain).url).path))
        if not is_git and place.name.lower().endswith(ARCHIVES):
            found = check_found(self._ask(plain, Want(kind="file", accept="*/*"), cancel))
            return read_data(found.body, place, inner, plain)
        commit, store = self._fetch_commit(plain, ref, cancel)
        name = place.name.removesuffix(".git") or "skill"
        try:
            return _read_package(store, commit, name, inner, plain)
        except (ValueError, LookupError) as error:
            raise BadInput(f"{plain} lacks parts of itself: {_one_line(error)}", hint=LOCAL_HINT) from None

    def _ask(self, url: str, want: Want, cancel: Cancel) -> Fetched:
        try:
            return self._fetch.get(url, session=ADDING, timeout_s=FETCH_S, max_bytes=MAX_PACK_BYTES, want=want, cancel=cancel)
        except TooLarge:
            raise TooLarge(f"{url} has more than {MAX_PACK_BYTES >> 20} MiB", hint=LOCAL_HINT) from None
        except Unavailable as error:
            hint = error.hint if error.outcome == "rate_limited" else f"check the network and the URL, or {LOCAL_HINT}"
            raise Unavailable(error.message, hint=hint, outcome=error.outcome) from None

    def _fetch_commit(self, url: str, ref: str, cancel: Cancel) -> "tuple[ObjectID, MemoryObjectStore]":
        """The newest commit of a branch, of a tag or of the repository's HEAD, with its files."""
        from dulwich.client import AbstractHttpGitClient
        from dulwich.errors import GitProtocolError, NotGitRepository
        from dulwich.object_store import MemoryObjectStore, ObjectStoreGraphWalker

        ask = self._ask

        class GitClient(AbstractHttpGitClient):
            """Speaks Git's protocol through our own requests, whole answers at once."""

            def _http_request(
                self, url: str, headers: dict[str, str] | None = None, data: Any = None, raise_for_status: bool = True
            ) -> Any:
                lines = {key: value for key, value in (headers or {}).items() if key not in ("Accept", "Content-Length")}
                accept = (headers or {}).get("Accept", "*/*")
                body = data if data is None or isinstance(data, bytes) else b"".join(data)
                found = ask(url, Want(kind="file", accept=accept, headers=lines, body=body), cancel)
                return _Response(_check_git(found)), io.BytesIO(found.body).read

        chosen: list[ObjectID] = []

        def want_one(refs: Any, depth: int | None = None) -> "list[ObjectID]":
            names = [f"refs/heads/{ref}", f"refs/tags/{ref}"] if ref else ["HEAD"]
            chosen.extend(refs[name.encode()] for name in names if name.encode() in refs)
            if not chosen:
                known = [name.decode("utf-8", "replace").split("/", 2)[2] for name in refs if name.startswith(b"refs/heads/")]
                hint = f"name a branch with #NAME: {', '.join(sorted(known)[:8])}" if known else "nothing was pushed to it yet"
                raise NotFound(f"{url} has no {'branch or tag ' + ref if ref else 'HEAD'}", hint=hint)
            return chosen[:1]

        pack, store = io.BytesIO(), MemoryObjectStore()
        try:
            client = GitClient(url, thin_packs=False)
            walker = ObjectStoreGraphWalker([], lambda commit: [], shallow=set())
            # Version 0: the later ones may name other places to fetch parts of it from.
            client.fetch_pack("", want_one, walker, pack.write, depth=1, protocol_version=0)
            measure_pack(pack.getbuffer())
            file, commit_pack, abort = store.add_pack()
            try:
                file.write(pack.getvalue())
            except BaseException:
                abort()
                raise
            commit_pack()
        except OwlError:
            raise
        except (GitProtocolError, NotGitRepository) as error:
            raise Unavailable(f"{url} did not answer as Git does: {_one_line(error)}", hint=LOCAL_HINT) from None
        except (ValueError, LookupError, AssertionError, TypeError, EOFError, OSError, zlib.error) as error:
            raise BadInput(f"what {url} sent is not a repository: {_one_line(error)}", hint=LOCAL_HINT) from None
        return chosen[0], store


class _Response:
    """An answer as dulwich wants it."""

    def __init__(self, found: Fetched) -> None:
        self.status = found.status
        self.headers = dict(found.headers)
        self.content_type = found.content_type or None
        self.redirect_location = found.url if len(found.hops) > 1 else ""

    def close(self) -> None:
        """Everything was read."""


def _check_git(found: Fetched) -> Fetched:
    """The same, as long as a server of Git sent it."""
    if found.status in (401, 403):
        raise Refused(f"{found.url} wants a name and password: the repository is private, or not there", hint=LOCAL_HINT)
    if not check_found(found).content_type.startswith("application/x-git-"):
        raise NotFound(
            f"{found.hops[0]} is not a Git repository", hint="give the URL that `git clone` takes, or of a .zip or .tar.gz"
        )
    return found


def measure_pack(pack: memoryview) -> None:
    """TooLarge for a pack that unpacks to more than is taken; BadInput for one that cannot be read.

    An object gives its own size and a delta that of its result, and both may lie, so every one is unpacked against its limit.
    """
    if len(pack) < 32 or bytes(pack[:4]) != b"PACK":
        raise BadInput("the repository sent no pack", hint=LOCAL_HINT)
    count, at, total = int.from_bytes(pack[8:12], "big"), 12, 0
    if count > MAX_OBJECTS:
        raise TooLarge(f"a repository of more than {MAX_OBJECTS} files and folders is not taken", hint=LOCAL_HINT)
    for _ in range(count):
        kind, at = pack[at] >> 4 & 7, at + _length_of_number(pack, at)
        if kind == DELTAS[0]:
            at += _length_of_number(pack, at)
        elif kind == DELTAS[1]:
            at += 20
        data, at = _unpack(pack, at)
        size = max(len(data), _delta_size(data) if kind in DELTAS else 0)
        total += len(data) + (size if kind in DELTAS else 0)
        if size > MAX_OBJECT_BYTES or total > MAX_UNPACKED_BYTES:
            raise TooLarge(TOO_LARGE, hint=LOCAL_HINT)


def _unpack(pack: memoryview, at: int) -> tuple[bytes, int]:
    """What is packed at a place, and where it ends."""
    unpack, data = zlib.decompressobj(), bytearray()
    while not unpack.eof:
        part = pack[at : at + PART_BYTES]  # a part at a time: zlib copies what it does not need
        if not part:
            raise BadInput("the repository's pack was cut", hint="try again")
        data += unpack.decompress(part, MAX_OBJECT_BYTES + 1 - len(data))
        if len(data) > MAX_OBJECT_BYTES:
            raise TooLarge(TOO_LARGE, hint=LOCAL_HINT)
        at += len(part) - len(unpack.unused_data)
    return bytes(data), at


def _length_of_number(data: "memoryview | bytes", at: int) -> int:
    """How many bytes a number takes whose last byte alone is below 128."""
    length = 1
    while data[at + length - 1] & 0x80:
        length += 1
    return length


def _delta_size(delta: bytes) -> int:
    """How many bytes the commands of a delta make: each copies a part of another object, or brings bytes of its own."""
    at, size = 0, 0
    for _ in range(2):  # the sizes of what it is made from and of what it makes, which may lie
        at += _length_of_number(delta, at)
    while at < len(delta):
        command = delta[at]
        at += 1
        if command & 0x80:
            bits = [command >> bit & 1 for bit in range(7)]
            length = 0
            for place, is_there in enumerate(bits):
                if is_there:
                    length |= (delta[at] << 8 * (place - 4)) if place >= 4 else 0
                    at += 1
            size += length or 0x10000
        else:
            size, at = size + command, at + command
        if size > MAX_OBJECT_BYTES:
            return size
    return size


def _read_package(store: "MemoryObjectStore", commit: "ObjectID", name: str, inner: str, url: str) -> SkillPackage:
    """The one skill of a commit. The folder is chosen by names; of what lies in it alone the contents are read."""
    from dulwich.objects import Blob, Commit, Tag, Tree

    found = store[commit]
    while isinstance(found, Tag):
        found = store[found.object[1]]
    if not isinstance(found, Commit):
        raise BadInput(f"{url} names no commit", hint="name a branch or a tag")
    shown = f"{url}#{found.id.decode()[:12]}"

    seen = 0

    def walk(tree: "ObjectID", above: str, depth: int) -> "Iterator[tuple[str, int, ObjectID]]":
        nonlocal seen
        part = store[tree]
        if not isinstance(part, Tree) or depth > MAX_DEPTH:
            raise BadInput(f"{url} has a folder that cannot be read: {above or '/'}")
        for entry in part.items():
            path, seen = above + entry.path.decode("utf-8", "replace"), seen + 1
            if seen > MAX_OBJECTS:  # more than came, as one folder may be named in many places
                raise TooLarge(f"a repository of more than {MAX_OBJECTS} files and folders is not taken", hint=LOCAL_HINT)
            if entry.mode == FOLDER_MODE:
                yield from walk(entry.sha, f"{path}/", depth + 1)
            else:
                yield path, entry.mode, entry.sha

    names: dict[str, PackageFile] = {}
    for path, mode, blob in walk(found.tree, "", 0):
        names[path] = PackageFile(b"%o %s" % (mode, blob), mode & 0o111 != 0)
    chosen = choose(names, name, inner, url)

    def load(path: str, file: PackageFile) -> PackageFile:
        mode, _, blob = file.data.partition(b" ")
        kind = int(mode, 8) & 0o170000
        if kind in (LINK_MODE, SUBMODULE_MODE):
            what = "a link" if kind == LINK_MODE else "a repository within it (a submodule)"
            raise BadInput(f"{path} is {what}; a skill holds plain files only")
        content = store[_object_id(blob)]
        if not isinstance(content, Blob) or len(content.data) > MAX_FILE_BYTES:
            raise TooLarge(f"{path} has more than {MAX_FILE_BYTES} bytes")
        return PackageFile(content.data, file.is_executable)

    return SkillPackage(chosen.name, check_files({path: load(path, file) for path, file in chosen.files.items()}), shown)


def _object_id(text: bytes) -> "ObjectID":
    from dulwich.objects import ObjectID

    return ObjectID(text)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
