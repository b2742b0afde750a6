"""Values as JSON, JavaScript or Python would write them: names without quotes, either quote, trailing commas.

For the arguments of tool calls that models write in those manners. Hopeless says how far was looked.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from appliance.text.scanner import Hopeless, Source

NAME = r"[A-Za-z_][\w.-]{0,99}"
QUOTED = re.compile(r'"""(.*?)"""|"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|(<\|"\|>|<escape>)(.*?)\4', re.DOTALL)
BARE = re.compile(r"[^,:=(){}\[\]\"'\s]+(?: [^,:=(){}\[\]\"'\s]+)*")
KEY = re.compile(rf"\s*[\"']?({NAME})[\"']?\s*[:=]")
WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
NUMBER = re.compile(r"[-+]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,2})?")


class Loose(Struct):
    """Reads values as JSON, JavaScript or Python would write them; Hopeless when they are neither."""

    source: Source
    depth: int = 0
    is_literal: bool = False  # a word without quotes is a number, a truth or nothing, no text
    _at: int = 0  # behind the members that were read last

    def read(self, at: int) -> tuple[Any, int]:
        """The value at `at` and where it ends."""
        text, at = self.source.text, self.source.after_blanks(at)
        if self.depth > 32:
            raise Hopeless(at)
        if text.startswith("{", at):
            return self._read_object(at + 1, "}")
        if (opened := text[at : at + 1]) in ("[", "("):
            return self._read_list(at + 1, "]" if opened == "[" else ")")
        if quoted := QUOTED.match(text, at):
            plain = quoted.group(1) if quoted.group(1) is not None else quoted.group(5)
            inner = quoted.group(2) if quoted.group(2) is not None else quoted.group(3)
            return (plain if plain is not None else _unescape_text(inner)), quoted.end()
        bare = BARE.match(text, at)
        if bare is None:
            raise Hopeless(at)
        value = _read_word(bare.group())
        if self.is_literal and value is not None and isinstance(value, str):
            raise Hopeless(at)
        return value, bare.end()

    def arguments(self, at: int) -> tuple[dict[str, Any], int]:
        """The arguments of a Python call, up to and with its bracket; the one without a name is ""."""
        return self._read_object(at, ")")

    def _read_object(self, at: int, close: str) -> tuple[dict[str, Any], int]:
        self.depth += 1
        found: dict[str, Any] = {}
        for place in self._find_members(at, close):
            key = KEY.match(self.source.text, place)
            if key is None and (close == "}" or "" in found):
                raise Hopeless(place)
            found[key.group(1) if key else ""], self._at = self.read(key.end() if key else place)
        self.depth -= 1
        return found, self._at

    def _read_list(self, at: int, close: str) -> tuple[list[Any], int]:
        self.depth += 1
        found = []
        for place in self._find_members(at, close):
            value, self._at = self.read(place)
            found.append(value)
        self.depth -= 1
        return found, self._at

    def _find_members(self, at: int, close: str) -> Iterator[int]:
        """Where each member begins; afterwards `_at` is behind the closing bracket."""
        self._at, is_first = at, True
        while True:
            at = self.source.after_blanks(self._at)
            if self.source.text.startswith(close, at):
                self._at = at + 1
                return
            if not is_first:
                if not self.source.text.startswith(",", at):
                    raise Hopeless(at)
                at = self.source.after_blanks(at + 1)
                if self.source.text.startswith(close, at):
                    self._at = at + 1
                    return
            is_first = False
            yield at


def _unescape_text(text: str) -> str:
    """A text with its escapes read; the backslash of none, as in C:\\Users, stays."""

    def plain(found: re.Match[str]) -> str:
        sign = found[1]
        return chr(int(sign[1:], 16)) if len(sign) > 1 else ESCAPES.get(sign, sign if sign in "\\\"'/\n" else found[0])

    return ESCAPED.sub(plain, text)


def _read_word(word: str) -> Any:
    if word in WORDS:
        return WORDS[word]
    if NUMBER.fullmatch(word):
        return int(word) if word.lstrip("+-").isdigit() else float(word)
    return word
