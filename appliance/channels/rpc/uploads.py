"""Files for a message: taken in pieces, kept for the session, and told to the model with the message that names them.

A document's text follows the message, as one that is piped in: it is none of the person's words. A picture is shown to a model
that sees pictures; any other is told its name, and so is the person.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Struct

from appliance.ingest import extract
from appliance.ingest.extract_process import Clerk
from appliance.ingest.receiver import Intake
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.runtime.users import caller_name, caller_session
from appliance.sessions.uploads import MAX_IMAGE_BYTES, Upload, UploadFiles

MAX_CHARS = 20_000  # of what one document says
MAX_UPLOADS = 10


class KeptUpload(Struct, frozen=True):
    """A file that was kept; `note` says what a person should know about it."""

    name: str
    path: str
    mime: str
    size_bytes: int
    is_image: bool
    note: str


class AttachedFiles(Struct, frozen=True):
    """The text that a message adds for its files, and the pictures among them."""

    text: str
    images: tuple[Mapping[str, Any], ...]


class Uploads:
    """Keeps files and reads them out; `sees_images` says whether the model that answers sees pictures."""

    def __init__(self, files: UploadFiles, intake: Intake, environ: Mapping[str, str], sees_images: Callable[[], bool]) -> None:
        self._files = files
        self._intake = intake
        self._environ = environ
        self._sees_images = sees_images

    @method("upload.keep", access="own")
    def keep(
        self,
        key: Annotated[str, Range(1, 64), "of ingest.piece, by which it came"],
        name: Annotated[str, Range(1, 400), "what the file is called"],
        *,
        call: Call,
    ) -> KeptUpload:
        """Keep a file for the session of the caller, to be named in `uploads` of message.send."""
        kept = self._files.keep(caller_session(call), name, self._intake.staging.take_data(caller_name(call), key))
        note = ""
        if kept.is_image and kept.size_bytes > MAX_IMAGE_BYTES:
            note = "too large for a model to see; it is told the name"
        elif kept.is_image and not self._sees_images():
            note = "the model sees no pictures; it is told the name"
        return KeptUpload(kept.name, kept.path, kept.mime, kept.size_bytes, kept.is_image, note)

    def attach(self, call: Call, names: Sequence[str]) -> AttachedFiles:
        """The text that a message adds for these files."""
        found = [self._files.read(caller_session(call), name) for name in dict.fromkeys(names[:MAX_UPLOADS])]
        texts = [self._describe(upload, data) for upload, data in found]
        images = tuple({"name": one.name, "mime": one.mime, "size_bytes": one.size_bytes} for one, _ in found if one.is_image)
        return AttachedFiles("\n\n".join(texts), images)

    def _describe(self, upload: Upload, data: bytes) -> str:
        line = f"[file {upload.name}, {upload.mime}, {upload.size_bytes} bytes: {upload.path}]"
        if upload.is_image:
            return line
        form = extract.form_of(upload.name, data[:4096])
        if form == "bytes":
            return line
        clerk = Clerk(self._environ)
        try:
            read = clerk.read(upload.name, data, form) if form in extract.RISKY else extract.read(upload.name, data, form)
        finally:
            clerk.close()
        if not (read.text or "").strip():
            return f"{line}\n[{read.note or 'it has no text'}]"
        text = read.text or ""
        cut = f"\n[cut: {MAX_CHARS} of {len(text)} characters]" if len(text) > MAX_CHARS else ""
        return f"{line}\n{text[:MAX_CHARS]}{cut}"
