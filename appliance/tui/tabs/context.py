"""What the assistant knows: the tree of entries, a preview, and a search through them.

Changes nothing but for deleting: entries are written by editing files in `box/` or by talking to the assistant.
"""

from functools import partial
from typing import Any

from rich.text import Text
from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Tree
from textual.widgets.tree import TreeNode

from appliance.errors import OwlError
from appliance.text.invisible import escape_invisible
from appliance.text.references import for_people
from appliance.tui.choice_list import Rows
from appliance.tui.panel import Host, Panel, is_missing
from appliance.tui.shown_text import Row, Shown

PAGE = 500
MOST = 5000
LINES = 400
FEW = 200  # entries that are shown with all folders open; of more the schemes come first, to choose one
HITS = 30
MARKDOWN = "text/markdown"
MISSING = "This core does not list entries yet: update it, or use / to search."
COUNTED = "{count} entries. Arrow keys and Return open one,\n/ searches all of them."
EMPTY = "Nothing here yet. Put Markdown files into\n{home}/box/notes and they appear here."


class EntryTree(Tree[str]):
    """Entries by scheme and folder."""

    BINDINGS = [Binding("enter", "select_cursor", "Open", key_display="Enter")]


class Context(Panel):
    """The tab of what is known."""

    LABEL = "Context"
    SCOPED_CSS = False
    DEFAULT_CSS = """
    Context #query { border: none; height: 1; padding: 0 1; background: $surface; }
    Context #query:focus { background: $boost; }
    Context #side { width: 32; }
    Context Tree { background: $background; padding: 0 1; scrollbar-size-vertical: 1; }
    Context #hits { display: none; }
    Context #look { width: 1fr; padding: 0 0 0 1; scrollbar-size-vertical: 1; }
    Context #name { color: $secondary; padding: 0 1; }
    Context #plain { padding: 0 1; }
    .-narrow Context #side { width: 1fr; }
    .-narrow Context #look { display: none; }
    .-narrow Context.-reading #side { display: none; }
    .-narrow Context.-reading #look { display: block; }
    .-wide Context #side { width: 46; }
    """
    BINDINGS = [
        Binding("slash", "search", "Search", key_display="/", priority=True),  # what is typed right after it must not get lost
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("r", "refresh", "Refresh"),
        Binding("shift+up,k", "look(-1)", "Scroll", key_display="k/j"),
        Binding("shift+down,j", "look(1)", show=False),
        Binding("backspace,left", "up", show=False),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._refs: list[str] = []
        self._entries: list[dict[str, Any]] = []
        self._folders: dict[tuple[str, ...], TreeNode[str]] = {}
        self._hits: list[str] = []
        self._shown = ""

    def compose(self) -> ComposeResult:
        """Search, tree or hits, preview."""
        field = Input(placeholder="/ searches what the owl knows", id="query", select_on_focus=False)
        field.cursor_blink = False
        yield field
        with Horizontal():
            with Vertical(id="side"):
                tree = EntryTree("everything", id="tree")
                tree.show_root = False
                tree.guide_depth = 2
                yield tree
                yield Rows(id="hits", markup=False)
            with VerticalScroll(id="look"):
                yield Shown(id="name", markup=False)
                yield Shown(id="plain", markup=False)

    def enter(self) -> None:
        """Look again at what is there."""
        self.screen.set_focus(self._visible_list)
        self.action_refresh()

    def leave(self) -> bool:
        """Esc goes back from reading, then from the hits to the tree."""
        if self.has_class("-reading"):
            self.remove_class("-reading")
            self.call_after_refresh(lambda: self.screen.set_focus(self._visible_list))  # it can be focused once it is drawn again
            if self.screen.has_class("-narrow"):
                return True
        field = self.query_one("#query", Input)
        if not (field.has_focus or self._hits_shown):
            return False
        field.value = ""
        self._show_hits(False)
        return True

    @property
    def _entry_shelf(self) -> EntryTree:
        return self.query_one(EntryTree)

    @property
    def _hits_shown(self) -> bool:
        return bool(self.query_one("#hits").display)

    @property
    def _visible_list(self) -> EntryTree | Rows:
        return self.query_one("#hits", Rows) if self._hits_shown else self._entry_shelf

    # -- keys ---------------------------------------------------------------------------------------

    def action_refresh(self) -> None:
        """Fetch the list of entries, a page at a time."""
        self._fetch_entries([])

    def action_search(self) -> None:
        """Type words to look for."""
        field = self.query_one("#query", Input)
        if field.has_focus:
            raise SkipAction
        self.screen.set_focus(field)

    def action_delete(self) -> None:
        """Delete the entry under the cursor, when asked twice."""
        ref = self._ref_under_cursor()
        if not ref:
            self.host.say("go to an entry first: a folder is deleted entry by entry", True)
            return
        deleted = partial(self._show_deleted, ref)
        self.sure(f"Delete {for_people(ref)}", "d", lambda: self.ask("entry.rm", {"ref": ref}, deleted))

    def _ref_under_cursor(self) -> str:
        if self._hits_shown:
            place = self.query_one("#hits", Rows).highlighted
            return self._hits[place] if place is not None and place < len(self._hits) else ""
        node = self._entry_shelf.cursor_node
        return str(node.data or "") if node is not None else ""

    def _show_deleted(self, ref: str, outcome: dict[str, Any]) -> None:
        if int(outcome["status"]) >= 400:
            self.host.say(f"{outcome['message']} ({outcome['hint']})" if outcome["hint"] else outcome["message"], True)
            return
        self.host.say(f"deleted {for_people(ref)}", False)
        if self._hits_shown:
            place = self._hits.index(ref) if ref in self._hits else -1
            if place >= 0:
                self._hits.pop(place)
                self.query_one("#hits", Rows).remove_option_at_index(place)
        self._show_text("")
        self.action_refresh()

    def action_look(self, lines: int) -> None:
        """Scroll the preview."""
        self.query_one("#look").scroll_relative(y=lines * 3, animate=False)

    def action_read(self) -> None:
        """On a narrow screen the entry takes the place of the list."""
        self.add_class("-reading")
        if self.screen.has_class("-narrow"):
            self.screen.set_focus(self.query_one("#look"))

    def action_up(self) -> None:
        """To the folder above."""
        if not self.leave():
            self._entry_shelf.action_cursor_parent()

    def on_key(self, event: events.Key) -> None:
        """Down leaves the search field."""
        if event.key == "down" and self.query_one("#query").has_focus:
            self.screen.set_focus(self._visible_list)
            event.stop()

    # -- listing ------------------------------------------------------------------------------------

    def _fetch_entries(self, entries: list[dict[str, Any]]) -> None:
        def page(found: list[dict[str, Any]]) -> None:
            entries.extend(found)
            if len(found) == PAGE and len(entries) < MOST:
                self._fetch_entries(entries)
            else:
                self._show_entries(entries)

        params = {"prefix": "", "limit": PAGE, "offset": len(entries)}
        self.ask("entry.list", params, page, failed=self._show_unlisted)

    def _show_unlisted(self, error: OwlError) -> None:
        if is_missing(error, "entry.list"):
            self._show_text(MISSING)
        else:
            self._show_error(error)

    def _show_entries(self, entries: list[dict[str, Any]]) -> None:
        refs = [e["ref"] for e in entries]
        if refs == self._refs:
            return
        self._entries, self._refs = entries, refs
        tree, few = self._entry_shelf, len(refs) <= FEW
        was_open = {key: node.is_expanded for key, node in self._folders.items()}
        before = tree.cursor_node
        here = before.data or next((key for key, node in self._folders.items() if node is before), None) if before else None
        tree.clear()
        nodes: dict[object, TreeNode[str]] = {}
        folders = self._folders = {}
        for entry in sorted(entries, key=lambda e: e["ref"]):
            *path, name = parts(entry["ref"])
            for depth in range(1, len(path) + 1):
                key = tuple(path[:depth])
                if key not in folders:
                    above = folders[key[:-1]] if depth > 1 else tree.root
                    label = Text(escape_invisible(key[-1], "line"))
                    folders[key] = nodes[key] = above.add(label, expand=was_open.get(key, few))
            above = folders[tuple(path)] if path else tree.root
            nodes[entry["ref"]] = above.add_leaf(Text(escape_invisible(name, "line")), data=entry["ref"])
        tree.root.expand()
        if (node := nodes.get(here)) is not None:
            self.call_after_refresh(tree.move_cursor, node)
        else:
            tree.cursor_line = 0
        if not entries:
            self._show_text(EMPTY.format(home=self.host.home))
        elif not self._shown:
            self._show_text(COUNTED.format(count=len(entries)))
        if len(entries) >= MOST:
            self.host.say(f"the first {MOST} entries are shown; / searches all", False)

    def on_tree_node_highlighted(self, event: "Tree.NodeHighlighted[str]") -> None:
        """Show the entry under the cursor."""
        if event.node.data:
            self.show(event.node.data)

    def on_tree_node_selected(self, event: "Tree.NodeSelected[str]") -> None:
        """Return or a click."""
        if event.node.data:
            self.show(event.node.data)
            self.action_read()

    # -- searching ----------------------------------------------------------------------------------

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search."""
        query = event.value.strip()
        if query:
            self.ask("tool.call", {"name": "search", "arguments": {"query": query, "limit": HITS}}, self._show_found)
        else:
            self._show_hits(False)

    def _show_found(self, outcome: dict[str, Any]) -> None:
        if int(outcome["status"]) >= 400:
            self.host.say(f"{outcome['message']} ({outcome['hint']})" if outcome["hint"] else outcome["message"], True)
            return
        hits = list((outcome.get("data") or {}).get("hits") or [])
        self._hits = [hit["ref"] for hit in hits]
        rows = self.query_one("#hits", Rows)
        titles = [hit["title"] or for_people(hit["ref"]) for hit in hits]
        shown = zip(titles, hits, strict=True)
        rows.set_options([Row(Content.assemble((title, "bold"), f"\n  {hit['snippet']}")) for title, hit in shown])
        self._show_hits(True)
        if hits:
            rows.highlighted = 0
        else:
            self._show_text(f"Nothing found. {outcome['message']}")

    def _show_hits(self, is_shown: bool) -> None:
        self.query_one("#hits").display = is_shown
        self._entry_shelf.display = not is_shown
        self.screen.set_focus(self._visible_list)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the hit under the cursor."""
        if event.option_index < len(self._hits):
            self.show(self._hits[event.option_index])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return or a second click."""
        event.stop()
        self.action_read()

    # -- the entry ----------------------------------------------------------------------------------

    def show(self, ref: str) -> None:
        """Show an entry, whoever asks."""
        self._shown = ref
        self.ask("entry.view", {"ref": ref, "line": 1, "limit": LINES}, self._show_entry, failed=self._show_unviewed)

    def _show_unviewed(self, error: OwlError) -> None:
        if is_missing(error, "entry.view"):
            self._show_text(MISSING)
        else:
            self._show_text(str(error))

    async def _show_entry(self, entry: dict[str, Any]) -> None:
        if entry["ref"] != self._shown and self._shown:
            self._shown = entry["ref"]
        text = entry.get("text")
        if text is None:
            lines = entry.get("lines") or []
            text = "\n".join(lines) if isinstance(lines, list) else str(lines)
        await self.query("Prose").remove()
        title = entry.get("title") or ""
        head = Content.assemble((title, "bold"), "\n" if title else "", (for_people(entry["ref"]), "dim"))
        self.query_one("#name", Shown).update(head)
        is_markdown = entry.get("mime") == MARKDOWN or entry["ref"].endswith(".md") or entry["ref"].startswith("memory://")
        self.query_one("#plain", Shown).update("" if is_markdown else text)
        if is_markdown:
            from appliance.tui.markdown_view import Prose  # late: the Markdown parser takes its time

            await self.query_one("#look").mount(Prose(text))
        self.query_one("#look").scroll_home(animate=False)

    def _show_text(self, text: str) -> None:
        self._shown = ""
        self.query("Prose").remove()
        self.query_one("#name", Shown).update("")
        self.query_one("#plain", Shown).update(text)


def parts(ref: str) -> list[str]:
    """Scheme, folders and name of a reference."""
    scheme, mark, rest = ref.partition("://")
    return [f"{scheme}:/", *rest.split("/")] if mark else ref.split("/")
