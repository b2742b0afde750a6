"""A thread as one page of HTML to keep or to show others: what was said, with calls and thoughts folded.

Everything comes from people, models and strangers: it is escaped, Markdown makes no HTML of its own, nothing is loaded from
elsewhere, and links lead only to the web.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

from appliance.text.invisible import escape_invisible

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
body { color: #2a2620; background: #faf6ee; }
h1 { font-size: 1.4rem; } .user { border-left: 4px solid #8a5a00; padding-left: .8rem; font-weight: 600; white-space: pre-wrap; }
.note, time { color: #6b6355; font-size: .85rem; } details { margin: .6rem 0; font-size: .9rem; }
pre { background: #f2ecdf; padding: .6rem; overflow-x: auto; white-space: pre-wrap; } table { border-collapse: collapse; }
td, th { border: 1px solid #cdc3ae; padding: .2rem .6rem; }
@media (prefers-color-scheme: dark) { body { color: #ece4d4; background: #191714; } pre { background: #2b2823; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_page(title: str, events: Sequence[dict[str, Any]]) -> str:
    """The page of a thread with these events."""
    from appliance.tui.markdown_view import answer_parser  # late: the Markdown parser takes its time

    markdown = answer_parser()
    markdown.validateLink = lambda url: url.startswith(("https://", "http://"))  # type: ignore[method-assign]
    markdown.disable("image")
    results = {event["call_id"]: event for event in events if event["kind"] == "tool_result"}
    parts = []
    for event in events:
        text = escape_invisible(str(event["content"]))
        if event["kind"] == "message" and event["role"] == "user":
            at = datetime.fromtimestamp(event["at_ms"] / 1000).strftime("%Y-%m-%d %H:%M")
            parts.append(f'<p class="user">{escape(text)} <time>{at}</time></p>')
        elif event["kind"] == "message" and event["role"] == "assistant":
            parts.append(f"<div>{markdown.render(text)}</div>")
        elif event["kind"] == "thinking":
            parts.append(_folded("thoughts", text))
        elif event["kind"] == "tool_use":
            result = results.get(event["call_id"])
            given = json.dumps(event["input"] or {}, ensure_ascii=False, indent=2)
            said = "no result" if result is None else str(result["content"])
            parts.append(_folded(f"called {event['tool']}", escape_invisible(f"{given}\n\n{said}")))
        elif event["kind"] == "status_change" and int(event["status"]) >= 400:
            parts.append(f'<p class="note">{escape(text)}</p>')
    name = escape(escape_invisible(title, "line") or "A thread")
    strangers = [event for event in events if event["kind"] == "tool_result" and (event["input"] or {}).get("origin")]
    told = "<!-- saved from url=(0013)owlbox:thread -->\n" if strangers else ""  # a page with texts of strangers is one, too
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{name}</title>'
    return (
        f"<!doctype html>\n{told}<html><head>{head}<style>{STYLE}</style></head>\n<body><h1>{name}</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _folded(head: str, text: str) -> str:
    return f"<details><summary>{escape(escape_invisible(head, 'line'))}</summary><pre>{escape(text)}</pre></details>"
