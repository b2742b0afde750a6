"""Shows characters that nobody sees as escapes such as `\\u{200b}`, so that what a person reads is what will be used.

Three forms. "text" is for words of a conversation: line breaks and tabs stay. "line" is for a title, a name or a cell: line
breaks are escaped too. Both keep joiners where they are spelling: in emoji sequences, and between letters of scripts that
join. "exact" is for a command, a path, an address or any other target: every character is escaped that is not plainly seen,
also a joiner, a space other than the usual one, what is unassigned and what is for private use. Not promised: that letters
which look alike can be told apart.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal
from unicodedata import category

Form = Literal["text", "line", "exact"]
SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
ZWNJ, ZWJ = "\u200c", "\u200d"
# Default_Ignorable_Code_Point of Unicode 16 and a note head without ink (1D159): no part of any word.
_IGNORED = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
IGNORED = re.compile(f"[{_IGNORED}]")
# Those; controls; line and paragraph separators; halves of pairs; noncharacters.
UNSEEN = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff{_IGNORED}]")
EXACT = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs")
BLANK = "\u2800"  # a Braille cell without dots
# Scripts that are spelt with ZWJ and ZWNJ: Arabic to Arabic Extended-A, those of India and Sri Lanka, Tibetan and Myanmar,
# Khmer and Mongolian.
JOINING = re.compile("[\u0620-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18aa]")
VARIANT = re.compile("[\u180b-\u180d\u180f]")  # of a Mongolian letter
# The flags of England, Scotland and Wales are the only ones that Unicode recommends to spell with tags.
FLAGS = tuple("\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in name) + "\U000e007f" for name in ("gbeng", "gbsct", "gbwls"))
TAIL = re.compile("[\u200c\u200d\ufe0e\ufe0f\U0001f3f4\U000e0020-\U000e007f]+$")


def escape_invisible(text: str, form: Form = "text", *, before: str = "") -> str:
    """The text with an escape for every character that cannot be seen; `before` is what stands before it on the screen."""
    if text.isascii() and text.isprintable():
        return text
    pieces, done = [], 0
    for at in find_unseen(text, form, before=before):
        pieces += [text[done:at], escape(text[at])]
        done = at + 1
    return "".join([*pieces, text[done:]])


def find_unseen(text: str, form: Form = "text", *, before: str = "") -> Iterator[int]:
    """Where the characters stand that are shown as escapes."""
    if form == "exact":
        yield from (at for at, char in enumerate(text) if is_unseen(char))
        return
    whole, start = before + text, len(before)
    for found in UNSEEN.finditer(text):
        if not _is_spelling(whole, start + found.start(), form):
            yield found.start()


def escape(char: str) -> str:
    """One character by its number, those that everybody knows by their letter."""
    return SHORT.get(char) or f"\\u{{{ord(char):x}}}"


def is_unseen(char: str) -> bool:
    """Whether a character of a target is not plainly seen."""
    return char != " " and (category(char) in EXACT or char == BLANK or UNSEEN.fullmatch(char) is not None)


def unfinished(text: str) -> int:
    """How many characters at the end can only be judged with what follows, for a text that comes in pieces."""
    found = TAIL.search(text)
    return len(found[0]) if found else 0


def _is_spelling(text: str, at: int, form: Form) -> bool:
    """Whether the character at a place belongs to how the word or the picture there is spelt."""
    char, last, following = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if char in "\n\t" or (char == "\r" and following == "\n"):
        return form == "text"
    if char in "\ufe0e\ufe0f":
        return _is_picture(last) or (last in tuple("0123456789#*") and following == "\u20e3")
    if char == ZWJ and _is_picture(following):
        return _is_picture(last) or (last == "\ufe0f" and _is_picture(text[at - 2 : at - 1]))
    if char in (ZWJ, ZWNJ):
        return bool(JOINING.match(last) and JOINING.match(following))
    if VARIANT.match(char):
        return "\u1820" <= last <= "\u18aa"
    if "\U000e0020" <= char <= "\U000e007f":
        begin = text.rfind("\U0001f3f4", max(0, at - 6), at)
        return begin >= 0 and text.startswith(FLAGS, begin)
    return False


def _is_picture(char: str) -> bool:
    """Whether a character may be part of an emoji: a symbol, a skin tone, or a picture newer than this Python knows."""
    is_new = "\U0001f000" <= char <= "\U0001faff"
    return bool(char) and not char.isascii() and (is_new or category(char) in ("So", "Sk", "Sm", "Po"))


# -- normal forms ---------------------------------------------------------------------------------------

# `unicodedata.normalize` sorts combining marks that stand in a row, which takes their number squared: 64,000 of them took 48 s.
# As many are kept as the stream-safe format of Unicode (UAX 15) has.
MOST_MARKS = 30
MAYBE_MARKS = re.compile(r"[^\w\x00-\x7f]{31,}")  # marks are neither letters nor ASCII
# Two ligatures that stand for a sentence each: a text of them grows eighteen times.
SENTENCES = re.compile("[\ufdfa\ufdfb]")


def normalized(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """The text in a normal form."""
    if text.isascii():
        return text
    text = MAYBE_MARKS.sub(_without_many, text)
    return unicodedata.normalize(form, SENTENCES.sub("", text) if "K" in form else text)


def _without_many(match: re.Match[str]) -> str:
    kept, marks = [], 0
    for letter in match[0]:
        marks = marks + 1 if unicodedata.combining(letter) else 0
        if marks <= MOST_MARKS:
            kept.append(letter)
    return "".join(kept)
