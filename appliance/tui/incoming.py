"""What the chat does with that which comes by itself: drawn into the talk, or named as new somewhere else.

What was typed here is on the screen already, and its answer comes with the message; the rest of the thread waits until
that has ended, so that nothing stands between a question and its answer.
"""

from typing import Any, Protocol

from appliance.tui.approvals import Waits
from appliance.tui.banner import is_rung
from appliance.tui.follower import Came, Sight, Stands, Told
from appliance.tui.panel import Host, named
from appliance.tui.sender import PROPOSED, RUNNING, Outgoing, Talk


class ChatPanel(Protocol):
    """Interface of the chat for incoming events."""

    host: Host
    talk: Talk
    waits: Waits

    @property
    def running(self) -> Outgoing | None: ...
    async def draw_once(self, event: dict[str, Any]) -> None: ...
    def note(self, text: str) -> None: ...
    def go_after(self) -> None: ...


class Onlooker:
    """Knows what is new. `mine` are the correlations of what was typed here, `unread` the threads with something new."""

    def __init__(self, chat: ChatPanel) -> None:
        self._chat = chat
        self._late: list[dict[str, Any]] = []
        self._title = ""  # of the talk, as the core last said it
        self.mine: set[str] = set()
        self.unread: set[str] = set()

    def turn_to(self, talk: Talk) -> None:
        """Another talk is on the screen."""
        self._late.clear()
        self._title = ""
        self.unread.discard(talk.thread)

    async def handle_sight(self, sight: Sight) -> None:
        """Something came."""
        talk = self._chat.talk
        if isinstance(sight, Came) and sight.thread == talk.thread:
            self._late.append(sight.event)
            await self.catch_up()
        elif isinstance(sight, Stands) and sight.state["id"] == talk.thread:
            self._take_state(sight.state)
        elif isinstance(sight, Told):
            notice = sight.notice
            self._announce_run(str(notice["run"]), str(notice["text"]), is_rung(str(notice.get("key", ""))))

    async def catch_up(self) -> None:
        """Draw what came by itself, unless what was typed or decided here is answered: that streams, and would stand twice."""
        running = self._chat.running
        if running is not None and (running.text or running.is_decision):
            return
        late, self._late = self._late, []
        for event in late:
            self._chat.talk.seq = max(self._chat.talk.seq, int(event["seq"]))
            if event["role"] != "user" or event["correlation"] not in self.mine:
                await self._chat.draw_once(event)

    def _announce_run(self, run: str, text: str, is_loud: bool) -> None:
        if is_loud:
            self._chat.host.ring(text)
        if not run:
            self._chat.note(text)
        elif run != self._chat.talk.thread:
            self.unread.add(run)
            self._chat.host.refresh_status() if is_loud else self._chat.host.say(f"new in another thread: {text}", False)

    def _take_state(self, state: dict[str, Any]) -> None:
        """Somebody else has set something going in the talk, or it waits for a decision."""
        chat, title = self._chat, named(state)
        if not chat.talk.title or self._title not in ("", title):  # it was given a better one meanwhile
            chat.talk.title = title
        self._title = title
        chat.talk.role = str(state.get("role", ""))
        if state["status"] == RUNNING and chat.running is None:
            chat.go_after()
        if chat.waits.here is not None or (state["status"] == PROPOSED and chat.running is None):
            chat.waits.refresh_waiting(chat.talk.thread)
