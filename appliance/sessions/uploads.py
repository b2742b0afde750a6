"""Files that a person sends with a message: kept in the folder that the tools of the session work in, under `uploads/`.

They are there as long as the session. A tool may have changed that folder: no link in it is followed, and only plain files are
opened. A picture is told by how it begins, not by its name. Knows nothing about what a file says; owns no table.
"""

import mimetypes
import os
import stat
import threading
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from appliance.errors import BadInput, NotFound, Refused, TooLarge, Unavailable
from appliance.records import Event, Image
from appliance.sandbox.workspace import label

FOLDER, INSIDE = "uploads", "/work/uploads"  # below a session's data, and as its tools see it
MAX_BYTES = 20 * 1024 * 1024
MAX_NAME_BYTES = 120
MAX_IMAGE_BYTES = 1536 * 1024  # of one picture for a model; a frame to the broker holds two
MAX_IMAGES_BYTES = 2 * 1024 * 1024  # of the newest pictures of a conversation
HEADS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Upload(Struct, frozen=True):
    """A file that was sent; `path` is where tools find it."""

    name: str
    mime: str
    size_bytes: int

    @property
    def path(self) -> str:
        """Where tools find it."""
        return f"{INSIDE}/{self.name}"

    @property
    def is_image(self) -> bool:
        """Whether a model that sees pictures is shown it."""
        return self.mime.startswith("image/")


class UploadFiles:
    """The uploads of all sessions."""

    def __init__(self, sessions: Path) -> None:
        """`sessions` is the folder with one folder for each session."""
        self._sessions = sessions
        self._writing = threading.Lock()  # two of one name at once: the second finds the first

    def keep(self, session: str, name: str, data: bytes) -> Upload:
        """Write a file, under another name where there is one of this name with other contents."""
        if len(data) > MAX_BYTES:
            raise TooLarge(f"{name!r} has {len(data)} bytes, {MAX_BYTES} are allowed")
        plain = plain_name(name)
        stem, dot, suffix = plain.rpartition(".")
        try:
            folder = self._open_folder(session, make=True)
            try:
                for number in range(1, 1000):
                    tried = plain if number == 1 else f"{stem}-{number}{dot}{suffix}" if stem else f"{plain}-{number}"
                    with self._writing:
                        is_kept = _write_new(folder, tried, data)
                    if is_kept:
                        return Upload(tried, mime_of(tried, data), len(data))
            finally:
                os.close(folder)
        except OSError as error:
            raise Unavailable(f"{plain} cannot be kept: {error.strerror}") from None
        raise BadInput(f"there are too many files named {plain}", hint="give it another name")

    def read(self, session: str, name: str) -> tuple[Upload, bytes]:
        """A file with its bytes; NotFound when there is none of this name."""
        if name != plain_name(name):
            raise BadInput(f"upload {name!r}", hint="as upload.keep named it")
        try:
            folder = self._open_folder(session)
            try:
                data = _read(folder, name)
            finally:
                os.close(folder)
        except FileNotFoundError:
            raise NotFound(f"no upload {name}", hint="send it again") from None
        except OSError as error:
            raise Refused(f"upload {name}: {error.strerror}") from None
        return Upload(name, mime_of(name, data), len(data)), data

    def load_images(self, session: str, events: Iterable[Event]) -> Mapping[int, tuple[Image, ...]]:
        """The pictures that came with messages, by the id of the event, the newest as far as there is room for them."""
        found: dict[int, tuple[Image, ...]] = {}
        room = MAX_IMAGES_BYTES
        for event in sorted((e for e in events if e.input and e.input.get("images")), key=lambda e: -e.id):
            images = []
            for given in (event.input or {})["images"]:
                if room < given["size_bytes"] or given["size_bytes"] > MAX_IMAGE_BYTES:
                    continue
                try:
                    upload, data = self.read(session, given["name"])
                except (BadInput, NotFound, Refused, TooLarge):
                    continue  # it was removed since: the message names it
                if upload.is_image and len(data) <= room:
                    room -= len(data)
                    images.append(Image.of_bytes(upload.name, upload.mime, data))
            found[event.id] = tuple(images)
        return found

    def _open_folder(self, session: str, *, make: bool = False) -> int:
        """A descriptor of a session's uploads; none of the folders on the way there may be a link."""
        handle = os.open(self._sessions, DIRECTORY)
        for part in (label(session), "data", FOLDER):
            try:
                if make:
                    try:
                        os.mkdir(part, 0o770, dir_fd=handle)
                    except FileExistsError:
                        pass
                inner = os.open(part, DIRECTORY, dir_fd=handle)
            finally:
                os.close(handle)
            handle = inner
        return handle


def plain_name(name: str) -> str:
    """A name that is safe in a folder, on a screen and in a prompt, out of what somebody's file is called."""
    text = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    text = "".join(one if unicodedata.category(one)[0] not in "CZ" else " " for one in text)
    text = " ".join(text.split()).strip(". ")
    stem, dot, suffix = text.rpartition(".")
    while len(text.encode()) > MAX_NAME_BYTES and len(stem) > 1 and len(suffix) < 20:
        stem = stem[:-1]
        text = f"{stem}{dot}{suffix}"
    while len(text.encode()) > MAX_NAME_BYTES:
        text = text[:-1]
    return text or "unnamed"


def mime_of(name: str, data: bytes) -> str:
    """The type of a file: a picture by its first bytes, anything else by its name."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    for head, mime in HEADS:
        if data.startswith(head):
            return mime
    guessed = mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"
    return "application/octet-stream" if guessed.startswith("image/") and guessed != "image/svg+xml" else guessed


def _read(folder: int, name: str) -> bytes:
    with open(os.open(name, READING, dir_fd=folder), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise Refused(f"upload {name} is not a plain file")
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TooLarge(f"upload {name} has more than {MAX_BYTES} bytes")
    return data


def _write_new(folder: int, name: str, data: bytes) -> bool:
    """Write a file whole; False when there is one with other contents."""
    try:
        return _read(folder, name) == data
    except FileNotFoundError:
        pass
    except (OSError, Refused, TooLarge):
        return False
    part = f".{name}.part"
    try:
        os.unlink(part, dir_fd=folder)
    except FileNotFoundError:
        pass
    with open(os.open(part, WRITING, 0o640, dir_fd=folder), "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True
