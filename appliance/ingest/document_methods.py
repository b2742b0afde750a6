"""Prompt documents at the socket: people list, read and write them; everybody reads, admins write.

The files belong to the core's user, because they speak to conversations. A document of one person or group is shown to
whoever may see that context. Knows nothing about what the assistant may write itself: `own_documents` does.
"""

import errno
import logging
import os
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from appliance.errors import BadInput, NotFound, TooLarge
from appliance.ingest import prompt_documents
from appliance.ingest.box_refs import owner_of
from appliance.ingest.prompt_documents import MAX_CHARS, SHIPPED
from appliance.runtime import paths
from appliance.runtime.methods import Call, method
from appliance.runtime.signatures import Range
from appliance.store import visibility
from appliance.text import markdown

LOG = logging.getLogger(__name__)
Name = Annotated[str, Range(1, 200), "such as USER, HEARTBEAT, users/ID/USER or roles/NAME/SOUL"]


class Described(Struct, frozen=True):
    """A prompt document: when it is loaded, whether the assistant may change it, how long it is, what is wrong with it."""

    name: str
    loading: str
    may_modify: bool
    words: int
    problem: str = ""


class PromptDocuments:
    """Lists, reads and writes them."""

    def __init__(self, box: Path) -> None:
        self._box = box

    @method("document.list", access="all")
    def listing(self) -> list[Described]:
        """The documents that there are, in the order of prompts, those of persons, groups and roles last."""
        return [describe(self._box, path) for path in prompt_documents.listing(self._box) if self._is_seen(path)]

    @method("document.view", access="all")
    def view(self, name: Name) -> dict[str, Any]:
        """A document as its file is, "" for none."""
        path = self._document_path(name)
        return {"name": prompt_documents.name_of(self._box, path), "text": read_text(path)}

    @method("document.write")
    def write(self, name: Name, text: Annotated[str, "the whole document"], *, call: Call) -> dict[str, Any]:
        """Put this in the place of a document; it counts from the next message."""
        path = self._document_path(name)
        if len(text) > MAX_CHARS:
            raise TooLarge(f"{name} would have {len(text)} characters, more than {MAX_CHARS}", hint="put the rest into a note")
        markdown.split(text)  # BadInput for front matter that no prompt could read
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths.put(path, text.encode("utf-8", "replace"))
        name = prompt_documents.name_of(self._box, path)
        LOG.info("document %s was written by user %d", name, call.uid)
        return {"name": name, "path": f"box/{name}.md"}

    def _document_path(self, name: str) -> Path:
        path = prompt_documents.find(self._box, name)
        if path is None or not self._is_seen(path):
            raise NotFound(f"no document {name}", hint=f"there are {', '.join(SHIPPED)}, and users/ID/USER, roles/NAME/SOUL")
        return path

    def _is_seen(self, path: Path) -> bool:
        return bool(visibility.seen(owner_of(self._box, path)))


def describe(box: Path, path: Path) -> Described:
    """The metadata of a document's file."""
    name = prompt_documents.name_of(box, path)
    try:
        front, body = markdown.split(read_text(path))
    except BadInput as error:
        return Described(name, "", False, 0, error.message)
    loading = "never" if name == "HEARTBEAT" else str(front.get(prompt_documents.LOADING) or "always")
    words = len(markdown.visible(body).split()) if markdown.has_text(body) else 0
    return Described(name, loading, prompt_documents.may_modify(name, front), words)


def read_text(path: Path) -> str:
    """The text of a document, "" where there is no file; BadInput when it cannot be read. A link is not followed.

    On the appliance every member adds files to box/, and the core reads more than they may.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with paths.naming(path), open(handle, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise BadInput(f"{path.name} cannot be read: {why}", hint="put a file in its place") from None
