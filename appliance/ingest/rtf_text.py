"""The text of rich text files (RTF), as word processors and note programs write them, without looks, pictures and fields. Pure."""

import re

TOKEN = re.compile(r"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-z])|([{}])|[\r\n]+|([^\\{}\r\n]+)", re.DOTALL)
SIGNS = {"par": "\n", "line": "\n", "row": " |\n", "cell": " | ", "tab": "\t", "page": "\n", "emdash": "—", "endash": "–"} | {
    "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "bullet": "•", "sect": "\n"
}  # fmt: skip
# Groups whose text nobody sees.
UNSEEN = frozenset(
    "fonttbl colortbl stylesheet info pict object header footer headerl headerr footerl footerr listtable listoverridetable "
    "rsidtbl generator fldinst themedata colorschememapping latentstyles datastore xmlnstbl bkmkstart bkmkend nonshppict".split()
)
MOST_DEPTH = 1000


def read(data: bytes) -> str:
    """The text of a file; ValueError for what is none."""
    if not data.lstrip().startswith(b"{\\rtf"):
        raise ValueError("no rich text")
    source = data.decode("latin-1")
    named = re.search(r"\\ansicpg(\d{3,5})", source[:4096])
    charset = f"cp{named[1]}" if named and named[1] != "65001" else "utf-8" if named else "cp1252"
    parts: list[str] = []
    raw = bytearray()
    stack: list[tuple[bool, int]] = []
    is_unseen, skip, left = False, 1, 0
    for at in TOKEN.finditer(source):
        word, number, code, sign, brace, text = at.groups()
        if code is not None and not is_unseen and not left:
            raw.append(int(code, 16))  # letters of some alphabets take two of them
            continue
        if raw:
            parts.append(_decoded(bytes(raw), charset))
            raw.clear()
        if brace == "{":
            stack.append((is_unseen, skip))
            left = 0
            if len(stack) > MOST_DEPTH:
                raise ValueError("groups nested too deep")
        elif brace == "}":
            is_unseen, skip = stack.pop() if stack else (False, 1)
            left = 0
        elif word in UNSEEN or sign == "*":
            is_unseen = True
        elif is_unseen:
            continue
        elif code is not None:
            left -= 1
        elif word == "uc":
            skip = max(0, int(number or 1))
        elif word == "u" and number:
            parts.append(chr(int(number) % 65536))
            left = skip  # what stands there for programs that know no Unicode
        elif word in SIGNS:
            parts.append(SIGNS[word])
        elif sign is not None:
            parts.append({"~": " ", "_": "-", "\n": "\n", "\r": "\n"}.get(sign, sign if sign in "\\{}" else ""))
        elif text:
            parts.append(text[left:] if left else text)
            left = max(0, left - len(text))
    parts.append(_decoded(bytes(raw), charset))
    whole = "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    lines = [re.sub(r"[ \t]+", " ", line).strip() for line in whole.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _decoded(raw: bytes, charset: str) -> str:
    try:
        return raw.decode(charset, "replace")
    except LookupError:
        return raw.decode("cp1252", "replace")
