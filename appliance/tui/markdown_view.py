"""Markdown of an answer or of an entry. Imported when the first one is shown, because it takes its time.

Plain CommonMark with tables: no HTML, and no guessing of links (`garden.md` is a note, not a web address).
References such as [box://notes/garden.md] are shown as [notes/garden.md] and open the entry when clicked.
"""

import re
from collections.abc import Callable, Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.style import Style
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownBlock, MarkdownBullet, MarkdownListItem, MarkdownOrderedList, MarkdownParagraph

from appliance.text.invisible import escape_invisible
from appliance.text.references import for_people

REF = re.compile(r"\[?\b([a-z][a-z0-9_]*:/[^\s\]\[()<>\"']*[^\s\]\[()<>\"'.,;:!?])\]?")
WEB = ("http://", "https://", "file://", "mailto://")


def parser() -> MarkdownIt:
    """The parser for CommonMark with tables, without HTML."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def answer_parser() -> MarkdownIt:
    """The same for what is said in a talk: a line ends where it was ended."""
    made = parser()
    made.core.ruler.push("line_ends", _keep_line_ends)
    made.core.ruler.push("numbers", _keep_numbers)
    return made


def _keep_line_ends(state: StateCore) -> None:
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


def _keep_numbers(state: StateCore) -> None:
    lists: list[list[Token]] = []
    for token in state.tokens:
        if token.type == "ordered_list_open":
            lists.append([])
        elif token.type == "list_item_open" and token.info:
            lists[-1].append(token)
        elif token.type == "ordered_list_close":
            items = lists.pop()
            for item in items if _is_numbered([one.info for one in items]) else ():
                item.attrSet("value", item.info)


def _is_numbered(written: Sequence[str]) -> bool:
    """Whether each item of a list has a number of its own; "1. 1. 1." is counted."""
    return len(set(written)) == len(written)


class Numbered(MarkdownOrderedList):
    """A list with the numbers that were written, where each has its own: tasks are called by theirs."""

    def compose(self) -> ComposeResult:
        """The items behind their numbers."""
        items = [block for block in self._blocks if isinstance(block, MarkdownListItem)]
        if not _is_numbered([block.bullet for block in items]):
            yield from super().compose()
            return
        width = max((len(block.bullet) for block in items), default=0) + len(". ")
        for block in items:
            bullet = MarkdownBullet()
            bullet.symbol = f"{block.bullet}. ".rjust(width + 1)
            yield Horizontal(bullet, Vertical(*block._blocks))
        self._blocks.clear()


class Words(MarkdownParagraph):
    """A paragraph whose references stand out."""

    def set_content(self, content: Content) -> None:
        """Take new text."""
        for found in reversed([*REF.finditer(content.plain)]):
            if not found[1].startswith(WEB):
                link = Style.from_meta({"@click": f"app.open_ref({found[1]!r})"})
                shown = Content(found[0].replace(found[1], for_people(found[1]))).stylize("$secondary bold").stylize(link)
                content = Content("").join((content[: found.start()], shown, content[found.end() :]))
        super().set_content(content)


class Prose(Markdown):
    """Markdown, set close."""

    BULLETS = ["• ", "◦ ", "▪ ", "• ", "◦ "]
    BLOCKS = {**Markdown.BLOCKS, "paragraph_open": Words, "ordered_list_open": Numbered}
    DEFAULT_CSS = """
    Prose { padding: 0 2; }
    Prose MarkdownHeader { margin: 0 0 1 0; padding: 0; content-align: left middle; text-style: bold; background: transparent; }
    Prose MarkdownH1, Prose MarkdownH2 { color: $primary; text-style: bold underline; }
    Prose MarkdownBlockQuote { margin: 0 0 1 0; background: transparent; border-left: solid $secondary; }
    Prose MarkdownFence { margin: 0 0 1 0; background: $panel; color: $foreground; }
    Prose MarkdownFence > Label, Prose MarkdownFence:ansi > Label { padding: 0 1; }
    Prose MarkdownFence:ansi { margin: 0 0 1 0; }
    Prose MarkdownTable { margin: 0 0 1 0; width: auto; }
    Prose MarkdownBullet { color: $secondary; }
    Prose MarkdownHorizontalRule { margin: 0 0 1 0; padding: 0; }
    """

    def __init__(self, text: str = "", parse: Callable[[], MarkdownIt] = parser) -> None:
        super().__init__(escape_invisible(text), parser_factory=parse, open_links=False)

    def update(self, markdown: str) -> AwaitComplete:
        """Show this instead."""
        return super().update(escape_invisible(markdown))

    def append(self, markdown_fragment: str) -> AwaitComplete:
        """Show this, too: a piece of an answer, which is shown anew when it is whole."""
        return super().append(escape_invisible(markdown_fragment, before=self.source[-16:]))

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """A link cannot be opened on a box without a screen: it is copied instead."""
        event.stop()
        self.app.copy_to_clipboard(event.href)
        self.app.notify(f"copied {event.href}", markup=False)

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        """The widget for a block; an unknown one becomes a paragraph."""
        return self.BLOCKS.get(block_name, Words)
