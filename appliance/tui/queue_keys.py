"""What waits to be sent, chosen and changed: Ctrl+K and Ctrl+J choose, Ctrl+E edits, Ctrl+X deletes, Esc lets go.

The queue itself is the sender's; what is shown of it are bubbles of the transcript. Only what was not sent yet can be had back.
"""

from collections.abc import Callable

from appliance.tui.message_widgets import Said
from appliance.tui.panel import Host
from appliance.tui.sender import Outgoing
from appliance.tui.transcript import QUEUED, Transcript

HINT = "queued: ^E edits it, ^X deletes it, ^K and ^J choose another, Esc lets go"


class QueueKeys:
    """The keys of one chat for its queue."""

    def __init__(self, host: Host, transcript: Transcript, type_text: Callable[[str], None]) -> None:
        self._host = host
        self._transcript = transcript
        self._type_text = type_text
        self._chosen: Outgoing | None = None

    def take(self, key: str, typed: str) -> bool:
        """Act on a key that was pressed in the input, which holds `typed`; False when the key means something else."""
        queued = [one for one, said in self._bubbles().items() if said.state == QUEUED]
        if self._chosen not in queued:
            self._choose(None)
        if key == "ctrl+k" and queued:
            place = queued.index(self._chosen) if self._chosen else len(queued)
            self._choose(queued[max(0, place - 1)])
        elif key == "ctrl+j" and queued and (self._chosen or not typed.strip()):
            place = queued.index(self._chosen) + 1 if self._chosen else 0
            self._choose(queued[place] if place < len(queued) else None)
        elif key == "ctrl+e" and self._chosen and typed.strip():
            self._host.say("send or clear what is typed first, then ^E", True)
        elif key in ("ctrl+e", "ctrl+x") and self._chosen:
            self._take_back(self._chosen, is_edited=key == "ctrl+e")
        else:
            return False
        return True

    def let_go(self) -> bool:
        """Choose nothing; False when nothing was chosen."""
        was_chosen = self._chosen is not None
        self._choose(None)
        return was_chosen

    def _take_back(self, message: Outgoing, *, is_edited: bool) -> None:
        if not self._host.sender.take_back(message):
            self._host.say("too late: it is being sent", True)
            return
        self._choose(None)
        self._bubbles()[message].remove()
        self._transcript.said.pop(message)
        if is_edited:
            self._type_text(message.text)
        self._host.say("taken out of the queue" if is_edited else "deleted from the queue", False)

    def _choose(self, message: Outgoing | None) -> None:
        self._chosen = message
        for one, said in self._bubbles().items():
            said.set_class(one is message, "-chosen")
        if message is not None:
            self._host.say(HINT, False)
            self._bubbles()[message].scroll_visible(animate=False)

    def _bubbles(self) -> dict[Outgoing, Said]:
        return {one: said for one, said in self._transcript.said.items() if isinstance(one, Outgoing)}
