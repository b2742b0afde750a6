"""The edits a body can spell out: `<<IDENT … IDENT`, SEARCH/REPLACE conflict blocks, sed commands.

Owns the grammars only; `text.edits` carries them out. Knows nothing about the text that is edited. A body
that holds none of them is one replacement by the whole body, byte for byte. Two things are never read
as markers: a packet rendering (`<<:::path … :::path`), and a heredoc with an ordinary word, such as
`cat <<EOF`, unless it is the first thing of the body. Text around complete markers is ignored: it is
talk about the edit.
"""

import re
from typing import Literal

from msgspec import Struct

from appliance.errors import BadInput, TooLarge

Operator = Literal["new", "replace", "prepend", "append", "delete", "search_replace", "sed"]
Keyword = Literal["NEW", "REPLACE", "PREPEND", "APPEND", "DELETE", "SEARCH"]
KEYWORDS: tuple[tuple[Keyword, Operator], ...] = (
    ("NEW", "new"),
    ("REPLACE", "replace"),
    ("PREPEND", "prepend"),
    ("APPEND", "append"),
    ("DELETE", "delete"),
    ("SEARCH", "search_replace"),
)
MAX_OPERATIONS = 200
PLAIN = "DOC1"  # the envelope we recommend for text that holds markers
OPENER = re.compile(
    r"(?<![^\s>])<<(?:(?P<word>[A-Z][A-Za-z0-9_]*)(?!\S)|:::(?P<path>\S+))"
    r"|^(?P<run><{5,})[ \t]*(?P<half>SEARCH|REPLACE)[ \t]*\r?$",
    re.MULTILINE,
)
NEXT_MARKER = re.compile(r"\s*<<(?P<word>REPLACE[A-Za-z0-9_]*)(?!\S)")
BLOCK_START = re.compile(r"^<{5,}[ \t]*(?:SEARCH|REPLACE)[ \t]*\r?$", re.MULTILINE)
DIVIDER = re.compile(r"^(={5,})[ \t]*\r?$", re.MULTILINE)
BLOCK_END = re.compile(r"^>{5,}[ \t]*REPLACE[ \t]*\r?$", re.MULTILINE)
HALF_BLOCK = re.compile(r"\s*^={5,}[ \t]*\r?$", re.MULTILINE)
FIRST_LINE = re.compile(r"[ \t]*\r?\n|\s")
SPACE = re.compile(r"\s*")
SED_FLAGS = re.compile(r"[A-Za-z0-9]*(?=[;\s]|\Z)")
SED_NEXT = re.compile(r"[;\s]+s\Z")
KNOWN_FLAGS, OTHER_FLAGS = set("giIrE"), set("pmMew0123456789")
OPEN_ENDED = "/|#@!~%^"  # delimiters that prose does not put after an s: only these may lack the last one


class Operation(Struct, frozen=True):
    """One edit: `text` is what comes in (or, for "delete", goes; for "sed", the commands)."""

    kind: Operator
    text: str
    search: str | None = None


class Sed(Struct, frozen=True):
    """One `s/pattern/replacement/flags`, delimiters unescaped; `is_regex` when the flag r or E asks for it."""

    pattern: str
    replacement: str
    is_global: bool
    is_case_blind: bool
    is_regex: bool = False


def parse_markers(body: str) -> list[Operation]:
    """The edits a body spells out, in order; one "replace" by the whole body when it spells out none.

    BadInput for an opener without its closer, a SEARCH without its REPLACE, an empty DELETE.
    """
    found = _EditReader(body).read()
    if found is not None:
        return found
    if parse_sed(body) is not None:
        return [Operation("sed", body)]
    return [Operation("replace", body)]


# -- markers and blocks -----------------------------------------------------------------------------


class _EditReader:
    """Reads one body from left to right."""

    def __init__(self, body: str) -> None:
        self._body = body
        self._at = 0
        self._operations: list[Operation] = []
        self._renderings: dict[str, int] | None = None

    def read(self) -> list[Operation] | None:
        """The operations, or None when the body is to be taken as it is."""
        while opener := self._find_opener():
            if opener["path"]:
                return None
            if opener["run"]:
                self._read_block(opener)
            else:
                self._read_marker(opener)
        return self._operations or None

    def _add_operation(self, kind: Operator, text: str, search: str | None = None) -> None:
        if len(self._operations) == MAX_OPERATIONS:
            raise TooLarge(f"the body holds more than {MAX_OPERATIONS} edits", hint="send it in parts")
        self._operations.append(Operation(kind, text, search))

    def _find_opener(self) -> re.Match[str] | None:
        """The next thing that opens an edit or a rendering; the place to read on is behind it."""
        self._half_block()
        if "<<" not in self._body:  # which is seen at once, where the expression takes a second for a megabyte
            return None
        space = SPACE.match(self._body, self._at) if self._at == 0 or self._operations else None
        while opener := OPENER.search(self._body, self._at):
            self._at = opener.end()
            if opener["path"]:
                if self._is_rendered(opener):
                    return opener
            elif opener["run"] or _operator_of(opener["word"]) or (space and opener.start() == space.end()):
                return opener
        return None

    def _is_rendered(self, opener: re.Match[str]) -> bool:
        if self._renderings is None:
            words = re.finditer(r"(?<!\S):::(\S+)", self._body)
            self._renderings = {word[1]: word.start() for word in words}
        return self._renderings.get(opener["path"], -1) > opener.start()

    def _read_marker(self, opener: re.Match[str]) -> None:
        word = opener["word"]
        kind = _operator_of(word)
        text = self._read_inner(word)
        if kind == "search_replace":
            following = NEXT_MARKER.match(self._body, self._at)
            if following is None:
                raise BadInput(f"<<{word} is not followed by <<REPLACE", hint=f"write {word} and then <<REPLACE new text REPLACE")
            self._at = following.end()
            self._add_operation(kind, self._read_inner(following["word"]), text)
            word = following["word"]
        elif kind == "delete" and not text:
            raise BadInput(f"<<{word} names nothing to delete", hint=f"write the text between <<{word} and {word}")
        else:
            self._add_operation(kind or "replace", text)
        self._refuse_leftover(word, is_envelope=kind is None)

    def _read_inner(self, word: str) -> str:
        closer = re.compile(rf"(?<=\s){word}(?!\S)").search(self._body, self._at)
        if closer is None:
            hint = f"end it with {word} on a line of its own; if it is text, wrap all of it in <<{PLAIN} and {PLAIN}"
            raise BadInput(f"<<{word} is never closed", hint=hint)
        raw = self._body[self._at : closer.start()]
        self._at = closer.end()
        above = raw.rstrip(" \t")  # the closer may be indented on its line
        raw = above[:-1].removesuffix("\r") if above.endswith("\n") else raw[:-1]
        first = FIRST_LINE.match(raw)
        return raw[first.end() :] if first else raw

    def _refuse_leftover(self, word: str, *, is_envelope: bool) -> None:
        """BadInput when what follows shows that the closer was a word of the text: it would be lost."""
        opener = OPENER.search(self._body, self._at)
        rest = self._body[self._at : opener.start() if opener else len(self._body)]
        if word in rest.split() or (is_envelope and rest.strip()):
            raise BadInput(f"{word} occurs inside of its own text", hint=f"use another word, such as <<{word}1 … {word}1")

    def _read_block(self, opener: re.Match[str]) -> None:
        """A conflict block whose first line has been read."""
        ends = self._block_end(self._at)
        if ends is None:
            raise BadInput(f"{opener[0].strip()} is never closed", hint="end it with a line >>>>>>> REPLACE")
        inside = self._body[self._at : ends.start()]
        self._at = ends.end()
        dividers = list(DIVIDER.finditer(inside))
        if opener["half"] == "REPLACE":
            self._add_operation("new", _trim_half(inside))
            return
        if not dividers:
            raise BadInput("the SEARCH block has no line =======", hint="put ======= between the old and the new text")
        # A line of another length may be a heading of the quoted text.
        divider = next((d for d in dividers if len(d[1]) == len(opener["run"])), dividers[0])
        old, new = _trim_half(inside[: divider.start()]), _trim_half(inside[divider.end() :])
        self._add_operation("search_replace", new, old)

    def _half_block(self) -> None:
        """Blocks without a SEARCH half: only in front, or behind another edit, where no text can precede it."""
        while opener := HALF_BLOCK.match(self._body, self._at) if self._at == 0 or self._operations else None:
            ends = self._block_end(opener.end())
            if ends is None:
                return
            self._add_operation("new", _trim_half(self._body[opener.end() : ends.start()]))
            self._at = ends.end()

    def _block_end(self, at: int) -> re.Match[str] | None:
        """The line that ends the block; None when another block begins before it."""
        ends = BLOCK_END.search(self._body, at)
        return None if ends is None or BLOCK_START.search(self._body, at, ends.start()) else ends


def _operator_of(word: str) -> Operator | None:
    return next((kind for keyword, kind in KEYWORDS if word.startswith(keyword)), None)


def _trim_half(text: str) -> str:
    """What stands between two marker lines, without the line ends that belong to those."""
    text = text.removeprefix("\n")
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


# -- sed --------------------------------------------------------------------------------------------


def parse_sed(text: str) -> list[Sed] | None:
    """The commands of a text that is nothing but sed substitutions, None for any other text.

    Any delimiter; commands are separated by `;`, space or newline; a field ends at the line's end. The
    last delimiter of a command may be missing where the delimiter is one of /|#@!~%^.
    """
    found: list[Sed] = []
    text = text.strip()
    at = 0
    while at < len(text):
        step = _sed_command(text, at)
        if step is None:
            return None
        sed, at = step
        found.append(sed)
        if len(found) > MAX_OPERATIONS:
            raise TooLarge(f"the text holds more than {MAX_OPERATIONS} sed commands", hint="send it in parts")
        while at < len(text) and text[at] in "; \t\r\n":
            at += 1
    return found or None


def _sed_command(text: str, at: int) -> tuple[Sed, int] | None:
    delimiter = text[at + 1 : at + 2]
    if text[at] != "s" or not delimiter or delimiter.isalnum() or delimiter.isspace() or delimiter == "\\":
        return None
    field = re.compile(rf"((?:\\[^\n]|[^\\\n{re.escape(delimiter)}]|\\$)*)({re.escape(delimiter)}?)", re.MULTILINE)
    pattern = field.match(text, at + 2)
    if pattern is None or not pattern[2]:
        return None
    replacement = field.match(text, pattern.end())
    if replacement is None:
        return None
    flags = SED_FLAGS.match(text, replacement.end()) if replacement[2] else None
    end, new = replacement.end(), replacement[1].removesuffix("" if replacement[2] else "\r")
    if flags is not None and set(flags[0]) <= KNOWN_FLAGS | OTHER_FLAGS:
        end = flags.end()
    elif delimiter not in OPEN_ENDED:
        return None
    elif replacement[2]:
        # `s/a/b;s/c/d`: what looked like the last delimiter belongs to the next command.
        following = SED_NEXT.search(new)
        if following is None:
            return None
        new, end, flags = new[: following.start()], replacement.start() + following.end() - 1, None
    return _build_sed(pattern[1], new, delimiter, flags[0] if flags else ""), end


def _build_sed(pattern: str, replacement: str, delimiter: str, flags: str) -> Sed:
    if not pattern:
        raise BadInput("the sed command has nothing to search for", hint="write s/old/new/")
    if odd := sorted(set(flags) - KNOWN_FLAGS):
        raise BadInput(f"sed flags {''.join(odd)} are not supported", hint="g, i and r (regular expression) are")
    old, new = (part.replace("\\" + delimiter, delimiter) for part in (pattern, replacement))
    return Sed(old, new, "g" in flags, bool(set(flags) & set("iI")), bool(set(flags) & set("rE")))
