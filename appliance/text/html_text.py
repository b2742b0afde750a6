"""The text of an HTML page: headings, paragraphs, lists and tables as Markdown, without scripts and menus.

With `trafilatura` (extra `web`) the main text of a page is found; without it, or where it finds nothing, every
visible word is kept. Pure: bytes in, text out, and no network. Not promised: that a page made by scripts has
any text. Words are found in time linear in the page, whatever its marks leave open; what finds the main text may take long over
hostile input: `ingest.extract_process` runs this where a deadline can end it.
"""

import re
from collections import Counter
from html import unescape

from appliance.text import charsets

CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
MIN_CHARS = 1000  # of a page's words: a shorter one is taken whole, for little of it can be a frame
UNSEEN = frozenset("script style noscript template svg math head iframe object canvas select".split())
BREAKING = frozenset(
    "address article aside blockquote dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li "
    "main nav ol p pre section summary table tr ul".split()
)
# Where markup begins. The end of a tag is the first ">" that stands in no value; a quote that is never closed holds nothing.
MARKUP = re.compile(r"<(?:(?P<comment>!--)|(?P<other>[!?]|/(?![a-zA-Z]))|(?P<close>/?)(?P<name>[a-zA-Z][^\s/>]*+))")
TAG_END = re.compile(r"(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+>")
COMMENT_END = re.compile(r"(?<=<!--)-?>|--!?>")
OTHER_END = re.compile(">")
CODE_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}
MAX_INDENT = 12  # levels of lists that are shown as such
HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}


def is_refined() -> bool:
    """Whether the main text of a page can be told from its frame."""
    from importlib.metadata import PackageNotFoundError, version  # 10 ms that no start needs

    try:
        return bool(version("trafilatura"))
    except PackageNotFoundError:
        return False


def decoded(data: bytes, charset: str = "") -> str:
    """The characters of a page: by its byte order mark, what was said of it, what it says itself, else as UTF-8."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(name, "replace")
    said = CHARSET.search(data[:4096])
    named = (charset, said[1].decode("ascii") if said else "")
    return charsets.decode(data, next((name for name in named if charsets.codec_of(name)), ""))


def page(data: bytes, charset: str = "", *, has_frame: bool = True) -> tuple[str, str]:
    """Title and text of a page; one without a frame of menus, such as a mail, is taken whole."""
    source = decoded(data, charset)
    seen = _Page()
    seen.feed(source)
    title, text = seen.title(), seen.text()
    if has_frame and len(text) > MIN_CHARS and is_refined() and (main := _extract_main(source)) and len(main) * 10 > len(text):
        text = main  # a tenth or less of what is to be seen would not be the main text
    return title, text


def _extract_main(source: str) -> str:
    """The main text of a page; "" when none is found, or what finds it is not whole."""
    try:
        import trafilatura  # takes half a second, and most files are no pages
    except ImportError:
        return ""
    return str(trafilatura.extract(source, output_format="markdown", include_tables=True, include_comments=False) or "")


class _Page:
    """Collects what a reader would see."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._title: list[str] = []
        self._heading: list[str] = []
        self._hidden: list[str] = []
        self._hidden_counts = Counter[str]()
        self._is_title = self._is_first_heading = False
        self._pre = self._lists = 0
        self._tables: list[int] = []  # of each table that is open, how many rows it has
        self._row = -1  # where the parts of an open row begin

    def title(self) -> str:
        """The title of the page, else its first heading."""
        return " ".join("".join(self._title).split()) or " ".join("".join(self._heading).split())

    def text(self) -> str:
        """The text, with no more than one blank line at a time."""
        lines = [line.rstrip() for line in "".join(self._parts).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def feed(self, source: str) -> None:
        """Read a whole page. Markup that has no end reaches to the end of the page."""
        at = 0
        while found := MARKUP.search(source, at):
            self._read_words(source[at : found.start()])
            if found["comment"] or found["other"]:
                end = (COMMENT_END if found["comment"] else OTHER_END).search(source, found.end())
            else:
                end = TAG_END.match(source, found.end())
            if end is None:
                return
            at, tag = end.end(), (found["name"] or "").lower()
            if found["close"]:
                self._close_tag(tag)
            elif tag:
                self._open_tag(tag)
            if tag in CODE_END and not found["close"]:  # nothing in it is markup but its own end
                if (close := CODE_END[tag].search(source, at)) is None:
                    return
                at = close.start()
        self._read_words(source[at:])

    def _open_tag(self, tag: str) -> None:
        self._is_title = tag == "title" and not self._title  # a title that was never closed ends here
        if self._hidden or tag in UNSEEN:
            if tag in UNSEEN:
                self._hidden.append(tag)
                self._hidden_counts[tag] += 1
            elif tag == "body" and self._hidden_counts["head"]:
                self._hidden.clear()  # a head that was never closed
                self._hidden_counts.clear()
            return
        if tag in BREAKING:
            self._break_lines(1 if tag in ("li", "tr", "dt", "dd") else 2)
        if tag in HEADINGS:
            self._parts.append(f"{HEADINGS[tag]} ")
            self._is_first_heading = not self._heading
        elif tag == "li":
            self._parts.append(f"{'  ' * min(MAX_INDENT, max(0, self._lists - 1))}- ")
        elif tag in ("ul", "ol"):
            self._lists += 1
        elif tag == "pre":
            self._pre += 1
            self._parts.append("```\n")
        elif tag == "br":
            self._parts.append("\n")
        elif tag == "table":
            self._tables.append(0)
        elif tag == "tr":
            self._row = len(self._parts)
        elif tag in ("td", "th"):
            self._parts.append("| " if len(self._parts) == self._row else " | ")

    def _close_tag(self, tag: str) -> None:
        if tag == "title":
            self._is_title = False
        if self._hidden:
            inner = ""
            while self._hidden_counts[tag] and inner != tag:
                inner = self._hidden.pop()
                self._hidden_counts[inner] -= 1
            return
        if tag in HEADINGS:
            self._is_first_heading = False
        elif tag in ("ul", "ol"):
            self._lists = max(0, self._lists - 1)
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._parts.append("\n```")
        elif tag == "table" and self._tables:
            self._tables.pop()
        elif tag == "tr":
            self._end_row()
        if tag in BREAKING:
            self._break_lines(1 if tag in ("li", "tr", "dt", "dd") else 2)

    def _read_words(self, source: str) -> None:
        data = unescape(source)
        if not data:
            return
        if self._is_title:
            self._title.append(data)
        elif not self._hidden:
            text = data if self._pre else re.sub(r"\s+", " ", data)
            if self._is_first_heading:
                self._heading.append(text)
            is_at_start = not self._parts or self._parts[-1].endswith("\n")
            if text := text.lstrip(" ") if is_at_start and not self._pre else text:  # space between two tags is no line
                self._parts.append(text)

    def _end_row(self) -> None:
        """A row whose cells are single lines becomes one of a Markdown table; one that holds paragraphs stays as it is."""
        start, self._row = self._row, -1
        cells = "".join(self._parts[start:]).strip().removeprefix("|").split(" | ") if start >= 0 else []
        if len(cells) < 2 or not self._tables or any("\n" in cell.strip() for cell in cells):
            return
        line = f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |"
        self._parts[start:] = [line if self._tables[-1] else f"{line}\n|{' --- |' * len(cells)}"]
        self._tables[-1] += 1

    def _break_lines(self, lines: int) -> None:
        if self._parts and not self._parts[-1].endswith("\n" * lines):
            self._parts.append("\n" * lines)
