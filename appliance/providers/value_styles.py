"""The manners in which models write the values of a call, as pieces of GBNF: JSON, loose JSON, Python, Gemma's own, tags.

Each says what stands around and between texts, lists and objects, and how a name and a constant are written. `grammar` puts
the pieces together. Blanks are fixed wherever the manner has fixed ones, so that most punctuation need not be drawn.
"""

import json
from typing import Any

from msgspec import Struct

MANY_ITEMS = 32  # of a list whose schema sets no limit: small models count on for ever
# \u only for characters that can be seen: a lone surrogate or a NUL is no text that could be stored.
JSON_CHAR = r"""
char ::= [^"\\\x00-\x1f\x7f] | "\\" (["\\/bfnrt] | "u" code)
code ::= [1-9a-cefA-CEF] hex{3} | [dD] [0-7] hex{2} | "0" ([1-9a-fA-F] hex{2} | "0" [2-7a-fA-F] hex)
hex ::= [0-9a-fA-F]
"""
NUMBERS = r"""
integer ::= "-"? ("0" | [1-9] [0-9]{0,17})
number ::= "-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?
"""


def dumped(value: Any) -> str:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def literal(text: str) -> str:
    """A text as GBNF."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class Style(Struct, frozen=True):
    """One manner; every field but `constants` and `quote` is a piece of GBNF."""

    comma: str = '", "'
    colon: str = '": "'
    opening: str = '"{"'
    closing: str = '"}"'
    first: str = '"["'
    last: str = '"]"'
    quote: str = '"'
    name: str = "string"  # of a member that no schema names
    char: str = JSON_CHAR
    constants: tuple[str, str, str] = ("true", "false", "null")
    has_quoted_names: bool = True
    more: str = ""  # rules that the others use

    def key(self, name: str) -> str:
        """A member's name with what follows it."""
        return f"{literal(dumped(name) if self.has_quoted_names else name)} {self.colon}"

    def value(self, value: Any) -> str:
        """A constant as it is written."""
        if value is None or isinstance(value, bool):
            return self.constants[2 if value is None else 0 if value else 1]
        if isinstance(value, str):
            return dumped(value) if self.quote == '"' else f"{self.quote}{value}{self.quote}"
        return dumped(value)

    def rules(self) -> str:
        """The rules for values of any kind."""
        quote, (true, false, null) = literal(self.quote), self.constants
        more = f"{{0,{MANY_ITEMS - 1}}}"
        lines = (
            f"string ::= {quote} char* {quote}",
            f"boolean ::= {literal(true)} | {literal(false)}",
            f"null ::= {literal(null)}",
            "value ::= string | number | boolean | null | array | object",
            f"array ::= {self.first} (value ({self.comma} value){more})? {self.last}",
            f"object ::= {self.opening} (pair ({self.comma} pair){more})? {self.closing}",
            f"pair ::= {self.name} {self.colon} value",
        )
        return f"{self.char}{NUMBERS}{self.more}" + "\n".join(lines) + "\n"


JSON = Style()
# As it stands in a fence: on one line or on many.
LOOSE = Style(
    comma='ws "," ws',
    colon='ws ":" ws',
    opening='"{" ws',
    closing='ws "}"',
    first='"[" ws',
    last='ws "]"',
    more="ws ::= [ \\t\\n]{0,60}\n",
)
PYTHON = Style(constants=("True", "False", "None"))
GEMMA = Style(
    comma='","',
    colon='":"',
    quote='<|"|>',
    name="word",
    char='\nchar ::= [^<\\x00-\\x08\\x0b-\\x1f\\x7f] | "<" [^|<\\x00-\\x1f\\x7f]\n',
    has_quoted_names=False,
    more="word ::= [A-Za-z_] [A-Za-z0-9_]{0,60}\n",
)
