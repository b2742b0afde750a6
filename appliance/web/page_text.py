"""What a fetched page says, as text: HTML as Markdown without scripts and menus, anything else as it is.

Owns the choice of how a page is read: a small one here, a larger one by a child that can be ended, because pages come
from anybody. What `text.html_text` and `ingest.extract` know about HTML is theirs. Control characters and characters that nobody
sees are left out. Not promised: that a text is true, or harmless to a model that believes it.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from appliance.errors import Unavailable
from appliance.ingest.extract_process import Clerk
from appliance.text import html_text
from appliance.web.fetch import Fetched

HTML = ("text/html", "application/xhtml+xml")
SMALL_BYTES = 16_384  # what no parser takes long over, however it is written
DEADLINE_S = 10.0
LOOKS = re.compile(rb"\s*(?:<!doctype html|<html[\s>])", re.IGNORECASE)
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")


class PageWords(Struct, frozen=True):
    """Title and text of a page."""

    title: str
    text: str


class Readable:
    """Reads pages; `environ` is what a child may know."""

    def __init__(self, environ: Mapping[str, str], deadline_s: float = DEADLINE_S) -> None:
        self._environ = environ
        self._deadline_s = deadline_s

    def words(self, found: Fetched) -> PageWords:
        """The text of a page; Unavailable when it cannot be extracted in time."""
        body = whole(found.body) if found.is_cut else found.body
        if not is_html(found):
            return PageWords("", clean(html_text.decoded(body, found.charset)))
        if len(body) <= SMALL_BYTES:
            title, text = html_text.page(body, found.charset, has_frame=False)
            return PageWords(clean(title), clean(text))
        clerk = Clerk(self._environ, self._deadline_s)
        try:
            read = clerk.read("page", body, "html", found.charset)
        finally:
            clerk.close()
        if read.text is None:
            error = Unavailable(f"{found.url} cannot be read as a page", hint='ask for it with format "html"')
            raise error.saying("web", found.url)
        return PageWords(clean(read.title), clean(read.text))

    def source(self, found: Fetched) -> str:
        """A page as it was written."""
        return clean(html_text.decoded(whole(found.body) if found.is_cut else found.body, found.charset))


def is_html(found: Fetched) -> bool:
    """Whether a page is HTML, by what its server says or, when it says nothing, by how it begins."""
    if found.content_type:
        return found.content_type in HTML
    return LOOKS.match(found.body[:512]) is not None


def clean(text: str) -> str:
    """A text with one kind of line end, and nothing in it that a terminal obeys or that nobody sees."""
    return UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def whole(data: bytes) -> bytes:
    """Bytes that were cut somewhere, without a part of a character at their end, should they be UTF-8."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return data
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if length > back else data
    return data
