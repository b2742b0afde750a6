"""How the screen looks on this terminal: its theme, and letters it can show.

The theme goes by what a person chose, else by the environment; NO_COLOR goes before both. With sixteen colours or none the
terminal's own are used, and what is chosen is underlined or in reverse too. A terminal that is not UTF-8 gets
ASCII of the same width, whatever a widget draws; the console of Linux keeps what its font has.
"""

import re
import unicodedata
from collections.abc import Mapping

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter, dim_style
from textual.theme import Theme

NIGHT = Theme(
    name="owl-night",
    primary="#d9a441",
    secondary="#8fb8a8",
    accent="#e6b95c",
    warning="#e6b95c",
    error="#f07f6a",
    success="#9cc47c",
    foreground="#ece4d4",
    background="#191714",
    surface="#211f1b",
    panel="#2b2823",
    boost="#332f29",
    dark=True,
    variables={"block-cursor-foreground": "#191714"},
)
DAY = Theme(
    name="owl-day",
    primary="#8a5a00",
    secondary="#2f6b5a",
    accent="#8a5a00",
    warning="#8a5a00",
    error="#a8321e",
    success="#3c6e21",
    foreground="#2a2620",
    background="#faf6ee",
    surface="#f2ecdf",
    panel="#e8e0cf",
    boost="#e0d6c2",
    dark=False,
    variables={"block-cursor-foreground": "#ffffff"},
)
# At least 7 to 1 between any text and what it stands on.
CONTRAST = Theme(
    name="owl-contrast",
    primary="#ffd84d",
    secondary="#9ee8ff",
    accent="#ffd84d",
    warning="#ffb14d",
    error="#ff9d8f",
    success="#8cf08c",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#101010",
    boost="#1c1c1c",
    dark=True,
    variables={
        "block-cursor-foreground": "#000000",
        "text-muted": "#ffffff",
        "text-disabled": "#d0d0d0",
        "border-blurred": "#ffffff",
    },
)
UNCOLOURED = {
    "ansi-background": "ansi_black",
    "ansi-foreground": "ansi_white",
    "block-cursor-foreground": "ansi_black",
    "block-cursor-background": "ansi_yellow",
    "block-cursor-text-style": "bold underline",  # lists of Textual 8 drop "reverse"
    "block-cursor-blurred-foreground": "ansi_default",
    "block-cursor-blurred-background": "ansi_default",
    "block-cursor-blurred-text-style": "bold underline",
    "input-cursor-foreground": "ansi_default",
    "input-cursor-background": "ansi_default",
    "input-cursor-text-style": "reverse",
    "border": "ansi_default",
    "border-blurred": "ansi_default",
    "scrollbar": "ansi_bright_black",
    "scrollbar-background": "ansi_default",
    "screen-selection-background": "ansi_blue",
    "screen-selection-foreground": "ansi_white",
}
PLAIN = Theme(
    name="owl-plain",
    ansi=True,
    primary="ansi_yellow",
    secondary="ansi_cyan",
    accent="ansi_yellow",
    warning="ansi_yellow",
    error="ansi_red",
    success="ansi_green",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables=UNCOLOURED,
)
THEMES = (NIGHT, DAY, CONTRAST, PLAIN)
DIM = {NIGHT.name: 0.75, DAY.name: 0.85, CONTRAST.name: 0.9}  # how much is left of a colour that is dimmed
AUTO = "auto"
# What a person chooses, in the order in which it is offered.
CHOICES = {AUTO: "", "dark": NIGHT.name, "light": DAY.name, "contrast": CONTRAST.name, "terminal": PLAIN.name}
CHOSEN = "OWLBOX__SCREEN__THEME"  # so that the first picture has the right colours, before the core says `screen.theme`

# What the fonts of the Linux console have beyond Latin-1.
CONSOLE = frozenset("─│┌┐└┘├┤┬┴┼═║╔╗╚╝█▄▀▌▐░▒▓•…–—‘’“”")
# C0 without tab and newline, DEL, C1, and what overrides or isolates the direction of writing.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ASCII = str.maketrans(
    {
        **dict.fromkeys("─━═╌╍┄┅▔╴╶", "-"),
        **dict.fromkeys("▁▂▃▄▅▆▇", " "),  # the ends of a scroll bar
        **dict.fromkeys("│┃║▎▊▌▐▏▕╎╏┆┇┊┋", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╔╗╚╝╭╮╰╯┏┓┗┛┣┫╋╠╣╬", "+"),
        **dict.fromkeys("█▓▀", "#"),
        **dict.fromkeys("▒░", ":"),
        **dict.fromkeys("•·●▪◦‣⭑○", "*"),
        **dict.fromkeys("–—‐‑−", "-"),
        **dict.fromkeys("‘’‚′", "'"),
        **dict.fromkeys("“”„″«»", '"'),
        **dict.fromkeys("▶▸›", ">"),
        **dict.fromkeys("▼▾", "v"),
        **dict.fromkeys("◀◂‹", "<"),
        **dict.fromkeys("▲▴↑", "^"),
        "…": ".",
        "✔": "+",
        "✘": "x",
        "⟳": "~",
        "→": ">",
        "←": "<",
        "↓": "v",
        "×": "x",
        "\u00a0": " ",
    }
)


def theme(environ: Mapping[str, str], chosen: str = "") -> str:
    """The name of the theme: the chosen one of CHOICES, else what suits the terminal that the environment describes."""
    found = CHOICES.get(chosen or environ.get(CHOSEN, AUTO), "")
    is_rich = "256color" in environ.get("TERM", "") or environ.get("COLORTERM") in ("truecolor", "24bit")
    if "NO_COLOR" in environ or not (found or is_rich):
        return PLAIN.name
    return found or (NIGHT.name if is_dark(environ) else DAY.name)


def is_dark(environ: Mapping[str, str]) -> bool:
    """False when COLORFGBG ends in 7 or more; a missing or malformed one means dark."""
    last = environ.get("COLORFGBG", "").rpartition(";")[2]
    return not (last.isdecimal() and int(last) >= 7)


def letters(environ: Mapping[str, str]) -> "Letters | None":
    """The filter this terminal needs, None when it shows everything."""
    if not is_utf8(environ):
        return Letters(frozenset())
    return Letters(CONSOLE) if environ.get("TERM") == "linux" else None


def is_utf8(environ: Mapping[str, str]) -> bool:
    """False when the environment names another encoding, or C; with nothing said, terminals are UTF-8."""
    lang = environ.get("LANG", "")
    kind = environ.get("LC_CTYPE", "")
    if kind == "C.UTF-8" and lang in ("C", "POSIX"):
        kind = ""  # Python put it there itself, because of the C in LANG (PEP 538)
    name = environ.get("LC_ALL") or kind or lang
    return not name or "utf8" in name.lower().replace("-", "")


class Calm(LineFilter):
    """Takes out what could steer the terminal or reorder a line: Textual lets most of it through, as if it had no width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The line without control characters."""
        return [s if s.control or s.text.isprintable() else Segment(STEERING.sub("", s.text), s.style) for s in segments]


class Dim(LineFilter):
    """Dims by a part that leaves text readable, also on the line under the cursor, where Textual's own leaves too little."""

    def __init__(self, left: float) -> None:
        super().__init__()
        self._left = left

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The line with colours in place of what is dim."""
        return [self._dim(one, background) if one.style is not None and one.style.dim else one for one in segments]

    def _dim(self, segment: Segment, background: Color) -> Segment:
        style = segment.style
        if style is None or style.color is None or style.color.triplet is None or (style.bgcolor and style.bgcolor.triplet is None):
            return segment
        behind = Style(bgcolor=background.rich_color) + style if style.bgcolor is None else style
        return Segment(segment.text, dim_style(behind, background, self._left), segment.control)


class Letters(LineFilter):
    """Replaces letters that the terminal cannot show by others of the same width."""

    def __init__(self, extra: frozenset[str]) -> None:
        super().__init__()
        self._extra = extra
        self._latin = bool(extra)

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The line, showable."""
        return [s if s.text.isascii() else Segment(self.text(s.text), s.style, s.control) for s in segments]

    def text(self, text: str) -> str:
        """The text, showable and exactly as wide."""
        return "".join(map(self._map_letter, text))

    def _map_letter(self, letter: str) -> str:
        if letter.isascii() or letter in self._extra or (self._latin and "\xa1" <= letter <= "\xff"):
            return letter
        known = letter.translate(ASCII)
        if known.isascii():
            return known
        width = cell_len(letter)
        plain = unicodedata.normalize("NFKD", letter)[0]
        return plain if width == 1 and plain.isascii() else "?" * width
