"""Going places from any tab: threads by Ctrl+L, Ctrl+N and Ctrl+P, all that can be done by Ctrl+G, what was said to copy by Ctrl+S.

Each opens a list over the screen; what is chosen is done by the chat, whose tab is then shown.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from textual.app import App

from appliance.clock import now_ms
from appliance.errors import OwlError
from appliance.tui.chat import Chat
from appliance.tui.commands import COMMANDS
from appliance.tui.message_widgets import Said
from appliance.tui.panel import Panel, ago, named
from appliance.tui.picker import Item, Picker

LAST = 200  # threads that are offered
FENCE = re.compile(r"^(?:```|~~~)[^\n]*\n(.*?)^(?:```|~~~)[ \t]*$", re.MULTILINE | re.DOTALL)
BRIEF = 60


class Navigator:
    """Opens lists over the screen of one program."""

    def __init__(self, app: App[None], chat: Chat, panels: Sequence[type[Panel]], show_panel: Callable[[str], None]) -> None:
        self._app = app
        self._chat = chat
        self._panels = panels
        self._show_panel = show_panel

    # -- threads ------------------------------------------------------------------------------------

    def open_threads(self) -> None:
        """All threads, the present one marked; it is there also when they cannot be listed."""
        params = {"type": "chat", "limit": LAST}
        self._chat.ask("thread.list", params, self._show_threads, failed=self._show_unlisted, about="threads to go to")

    def step_thread(self, step: int) -> None:
        """The next or the previous thread in the order of the list, the newest first."""
        params = {"type": "chat", "limit": LAST}
        self._chat.ask("thread.list", params, lambda found: self._step(found, step), about="threads to go to")

    def _step(self, threads: list[dict[str, Any]], step: int) -> None:
        ids, here = [one["id"] for one in threads], self._chat.talk.thread
        place = ids.index(here) + step if here in ids else 0 if step > 0 else -1
        if 0 <= place < len(ids):
            self._resume(ids[place])
        else:
            self._chat.host.say("there is no older thread" if step > 0 else "there is no newer thread", False)

    def _show_threads(self, threads: list[dict[str, Any]], note: str = "") -> None:
        talk, now = self._chat.talk, now_ms()
        items = [
            Item(one["id"], named(one) or "(untitled)", ago(one["updated_ms"], now), "●" if one["id"] == talk.thread else "")
            for one in threads
        ]
        if talk.thread and talk.thread not in [one.key for one in items]:
            items.insert(0, Item(talk.thread, talk.title or talk.thread, "open now", "●"))
        items.append(Item("", "a new thread", "begin again", "+"))
        self._app.push_screen(Picker("type to find a thread", items, here=talk.thread, note=note), self._take_thread)

    def _show_unlisted(self, error: OwlError) -> None:
        self._show_threads([], f"the others cannot be listed: {error}")

    def _take_thread(self, thread: str | None) -> None:
        if thread == "":
            self._type_command("/new")
        elif thread and thread != self._chat.talk.thread:
            self._resume(thread)

    def _resume(self, thread: str) -> None:
        self._show_panel("chat")
        self._chat.resume(thread)

    # -- everything ---------------------------------------------------------------------------------

    def open_palette(self) -> None:
        """Tabs and commands."""
        items = [Item(f"tab {p.LABEL.lower()}", p.LABEL, f"tab, F{number}") for number, p in enumerate(self._panels, 1)]
        items += [Item(f"/{c.name}", f"/{c.name}", c.about) for c in COMMANDS]
        keys = (("threads", "Ctrl+L", "go to another thread"), ("copy", "Ctrl+S", "copy something that was said"))
        items += [Item(key, name, about) for key, name, about in keys]
        self._app.push_screen(Picker("type what you want to do", items), self._take_action)

    def _take_action(self, key: str | None) -> None:
        if key is None:
            return
        if key.startswith("tab "):
            self._show_panel(key.removeprefix("tab "))
        elif key == "threads":
            self.open_threads()
        elif key == "copy":
            self.open_copy()
        else:
            self._type_command(key)

    def _type_command(self, line: str) -> None:
        """Execute a command that needs nothing more; write the others, to be completed."""
        self._show_panel("chat")
        command = next(one for one in COMMANDS if f"/{one.name}" == line)
        if command.argument:
            self._chat.type_text(f"{line} ")
        else:
            self._app.call_later(self._chat.execute, line)

    # -- copying ------------------------------------------------------------------------------------

    def open_copy(self) -> None:
        """What was said and shown here, the newest first, with code apart: what is chosen goes to the clipboard of the terminal."""
        texts: list[tuple[str, str]] = []
        for widget in self._chat.transcript.children:
            if isinstance(widget, Said):
                texts.append(("you", widget.words))
            elif (source := getattr(widget, "source", "")) and isinstance(source, str):
                texts.append(("answer", source))
                texts += [("code", code) for code in FENCE.findall(source)]
        if not texts:
            self._chat.host.say("nothing was said here yet", True)
            return
        whole = "\n\n".join(text for kind, text in texts if kind != "code")
        texts.insert(0, ("all", whole))
        items = [
            Item(str(number), f"{kind}: {' '.join(text.split())[:BRIEF]}", f"{len(text)} letters")
            for number, (kind, text) in reversed(list(enumerate(texts)))
        ]

        def copy(key: str | None) -> None:
            if key is not None:
                text = texts[int(key)][1]
                self._app.copy_to_clipboard(text)
                self._chat.host.say(f"copied {len(text)} characters to the clipboard of your terminal", False)

        self._app.push_screen(Picker("type to find what to copy", items), copy)
