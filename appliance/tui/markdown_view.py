"""Markdown of an answer or of an entry. Imported when the first one is shown, because it takes its time.

Plain CommonMark with tables: no HTML, and no guessing of links (`garden.md` is a note, not a web address).
References such as [box://notes/garden.md] are shown as [notes/garden.md] and open the entry when clicked.
"""

import re

from markdown_it import MarkdownIt
from textual.await_complete import AwaitComplete
from textual.content import Content
from textual.style import Style
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownBlock, MarkdownParagraph

from appliance.text.invisible import escape_invisible
from appliance.text.references import for_people

REF = re.compile(r"\[?\b([a-z][a-z0-9_]*:/[^\s\]\[()<>\"']*[^\s\]\[()<>\"'.,;:!?])\]?")
WEB = ("http://", "https://", "file://", "mailto://")


def parser() -> MarkdownIt:
    """The parser for CommonMark with tables, without HTML."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


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
    BLOCKS = {**Markdown.BLOCKS, "paragraph_open": Words}
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

    def __init__(self, text: str = "") -> None:
        super().__init__(escape_invisible(text), parser_factory=parser, open_links=False)

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
