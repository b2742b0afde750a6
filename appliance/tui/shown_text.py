"""Text on the screen, with escapes for what nobody sees: the widgets and rows that every panel shows others' words with.

Escaping comes before layout, because an escape is wider than what it stands for. The rule itself is `text.invisible`.
"""

from typing import Any

from textual.content import Content
from textual.visual import VisualType
from textual.widgets import Static
from textual.widgets.option_list import Option

from appliance.text.invisible import escape, escape_invisible, find_unseen


class Shown(Static):
    """A text that may hold anything; never read as markup."""

    def __init__(self, content: VisualType = "", **given: Any) -> None:
        super().__init__(readable(content), **{"markup": False, **given})

    def update(self, content: VisualType = "", *, layout: bool = True) -> None:
        """Show this instead; what stands there already is not drawn again."""
        new, old = readable(content), self.content
        if isinstance(old, Content) and isinstance(new, Content):
            is_same = old.is_same(new)
        else:
            is_same = isinstance(old, str) and isinstance(new, str) and old == new
        if not is_same:
            super().update(new, layout=layout)


class Row(Option):
    """A row of a list."""

    def __init__(self, prompt: VisualType, **given: Any) -> None:
        super().__init__(readable(prompt), **given)


def readable(content: VisualType) -> VisualType:
    """The same with escapes, which stand out where the text has styles."""
    if isinstance(content, str):
        return escape_invisible(content)
    if not isinstance(content, Content) or (content.plain.isascii() and content.plain.isprintable()):
        return content
    pieces, done = [], 0
    for at in find_unseen(content.plain):
        pieces += [content[done:at], Content.styled(escape(content.plain[at]), "reverse")]
        done = at + 1
    return Content("").join([*pieces, content[done:]]) if pieces else content
