"""What a channel is: the class below which every file in `connectors` has one, and what it hands in.

A channel receives, sends, says that an answer is being written, and checks itself. It decides nothing: who may write, what is
a repeat, which group a room is and where an attachment is kept is `channels.gateway`, the same for all. It is run by
`channels.connections` in a thread of its own, which connects it again after a failure.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct

from appliance.clock import CancelToken
from appliance.errors import DeadlineExceeded, HttpError, Lost
from appliance.records import Marked, Outbound

MAX_ATTACHMENTS = 20
REPEAT = "(This may be a repeat.)"  # begins a text that the service may have already
UNCERTAIN = (Lost, DeadlineExceeded)  # errors that leave open whether it has


@contextmanager
def lost_when_sent(name: str) -> Iterator[None]:
    """Lost in place of an error after which a service may have what was sent; one before that passes."""
    try:
        yield
    except HttpError as error:
        if not error.may_have_arrived:
            raise
        raise Lost(f"{name} may have it: {error.message}") from None
    except DeadlineExceeded as error:
        raise Lost(f"{name} may have it: {error.message}") from None


class Attached(Struct, frozen=True):
    """A file that came with a message; `problem` says why there are no bytes.

    `fetch` gets the bytes, where the service keeps them: it is called for a message that is taken, never for a stranger's.
    """

    name: str
    mime: str
    data: bytes = b""
    problem: str = ""
    fetch: Callable[[], bytes] | None = None


class Received(Struct, frozen=True):
    """A message as a channel read it.

    `message_id` is the service's own id: the same one is taken once. `sender` is the address that the message names, and
    `is_proven` says that the service or its signature proves it; an address of a person is believed only then. `doubt` says why
    a message is certainly from that address and still has no rights of its person, such as a device that nobody has verified:
    they are taken for a guest. `room` is the
    place that several people share, "" for a message to the assistant alone, and `is_addressed` says that it is meant there.
    `own_chars` is how much of the text the sender wrote, where a quotation follows; None for all. `references` are ids of
    messages that it answers, the nearest first: it continues their thread. `thread` is the service's own name of one. Without
    either `is_new_thread` begins one, else the newest goes on. `metadata` is what the channel needs to answer. `reaction` is the
    sign, or its name, that somebody put to a message of ours, and `is_about_newest` says that we wrote none after that one.
    """

    message_id: str
    sender: str
    text: str
    at_ms: int
    own_chars: int | None = None
    is_proven: bool = False
    doubt: str = ""
    room: str = ""
    room_name: str = ""
    is_addressed: bool = True
    references: tuple[str, ...] = ()
    is_new_thread: bool = False
    thread: str = ""
    attachments: tuple[Attached, ...] = ()
    marks: Marked = ()
    metadata: dict[str, Any] = {}
    reaction: str = ""
    is_about_newest: bool = False


class ChannelIntake(Protocol):
    """Takes messages of one channel. `take` raises Busy, or another error of our tree, for one that is to be kept for later."""

    def take(self, received: Received) -> bool:
        """Whether it is taken, now or before; False for one that is refused, which is logged."""
        ...

    def refuse(self, sender: str, why: str) -> None:
        """Log a message that cannot even be read as one, once for a sender and reason."""
        ...

    def find_refusal(self, received: Received) -> str:
        """Why a message is refused for who sent it and where, whatever it says; "" when it is not."""
        ...

    def is_welcome(self, sender: str) -> bool:
        """Whether an invitation of this sender to a room is accepted."""
        ...

    def last_taken_ms(self) -> int:
        """When a message of this channel was taken last, 0 for never: what is newer has come while nobody listened."""
        ...


class Running(Struct, frozen=True):
    """What a channel is handed while it runs: who takes messages, when to stop, and whom to tell that it is connected."""

    intake: ChannelIntake
    stop: CancelToken
    connected: Callable[[], None]


class Connection(ABC):
    """A channel to people elsewhere. Below it only `deliver` has to be written.

    `is_idempotent`: it knows notifications by their key and delivers each once. `is_live`: people see at once what is delivered,
    so that copies of an answer reach them there. `folds_case`: addresses that differ in their case alone are the same.
    `checks_senders`: it hands in messages of senders alone whom it knows and has authenticated, so that no list of them is needed.
    `is_streaming`: it shows an answer while it is written, with `show`; any other sends each answer once, when it is complete.
    """

    is_idempotent = False
    is_live = True
    is_streaming = False
    folds_case = False
    checks_senders = False

    def receive(self, running: Running) -> None:
        """Connect, say so, hand in messages until `stop`; any error ends it, and it is called again later."""
        running.connected()
        running.stop.wait()

    @abstractmethod
    def deliver(self, message: Outbound) -> None:
        """Send it, as the port `Channel` says. Called in a thread of its own, one after the other."""

    def show(self, message: Outbound) -> str:
        """Show how far an answer has come: as a new message, or in place of `message.shown`; the name of that message.

        Asked of a channel alone that `is_streaming`, seldom enough for any service. `deliver` is called later with the same key
        and name and puts the whole answer in its place. An error ends the showing, Busy delays it. "" where nothing was shown.
        """
        return ""

    def typing(self, metadata: dict[str, Any], is_on: bool) -> None:  # noqa: B027 (most show nothing)
        """Show that an answer is being written, or is not any more. Never waits, never raises."""

    def check(self) -> list[str]:
        """Try what it needs, over connections of its own; what was tried, one line each. An error says what failed."""
        return []

    def warnings(self) -> list[str]:
        """The settings of this channel that are dangerous."""
        return []

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Release what it holds. Called once, after `receive` was told to stop."""
