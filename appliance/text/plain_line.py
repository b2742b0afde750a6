"""A stranger's words as one plain line: no markup, nothing unseen, of limited length. Pure."""

import html
import re

from appliance.text.invisible import IGNORED

TAG = re.compile(r"<[^<>]{0,2000}>")
# What Markdown, terminals or our references would make more of than letters.
PLAIN = str.maketrans({"[": "(", "]": ")", "<": "‹", ">": "›", "`": "'", "*": "∗", "_": " ", "|": "/", "\\": "/"})
EDGES = "#-+=~!/@ "


def plain_line(text: str, most: int) -> str:
    """The text so. Markup is taken out twice, because titles of feeds are often escaped HTML."""
    text = text[: 10 * most]
    for _ in range(2):
        text = TAG.sub(" ", html.unescape(text))
    text = IGNORED.sub("", text.translate(PLAIN))
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    line = line.lstrip(EDGES) if not line.lstrip("-")[:1].isdigit() else line
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
