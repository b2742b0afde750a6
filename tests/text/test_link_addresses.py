"""Links of Markdown whose addresses are to be seen."""

import re

import pytest
from markdown_it import MarkdownIt

from appliance.text import urls


@pytest.mark.parametrize(
    "text",
    [
        "[here](https://evil.example/?d=1)",
        "[here](<https://evil.example/?d=1>)",
        "[here](\n https://evil.example/?d=1 'title')",
        "[a [b] c](HTTPS://evil.example/?d=1)",
        "![seen](https://evil.example/?d=1)",
        "[here](&#104;ttps://evil.example/?d=1)",
        "[here][1]\n\n[1]: https://evil.example/?d=1",
        "[here]\n\n[here]:\n  <https://evil.example/?d=1>",
        "[here](mailto:eve@evil.example?subject=1)",
    ],
)
def test_a_link_shows_where_it_leads(text: str) -> None:
    shown = MarkdownIt("commonmark").render(urls.show_addresses(text))
    assert "evil.example" in re.sub("<[^>]*>", "", shown) and not re.search("<a [^>]*>(here|a )", shown)


@pytest.mark.parametrize("text", ["words[0](x) and f(y)", "- [ ] milk", "[box://notes/a.md]", "see [1]", "https://owls.example/"])
def test_what_is_no_link_stays_as_it_is(text: str) -> None:
    assert urls.show_addresses(text) == text
