"""Sends what the outbox holds: one thread that sleeps until the next notification is due, one more for each channel in use.

Owns the choice of a channel, and which channels are open. A slow or failing channel holds up nobody else's notifications;
within a channel notifications go one after the other. Nothing is polled: a notification that was put rings the bell of the
outbox. Only the core runs one: another process that puts a notification has to tell the core, which calls `wake`.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from msgspec import Struct

from appliance.channels.contract import REPEAT, UNCERTAIN
from appliance.channels.quiet_hours import Quiet, together
from appliance.clock import monotonic_s, now_ms
from appliance.errors import BadInput, Busy, NotFound, OwlError, Refused, TooLarge
from appliance.records import Channel, Outbound
from appliance.runtime import log
from appliance.runtime.crash_points import CrashPoint, Passed, nobody
from appliance.runtime.periodic import RETRY_S, Rounds
from appliance.runtime.subscriptions import Notices
from appliance.sessions.outbox import FAILED, LOGGED, SENT, Address, Notification, Outbox, OutboxFilled, Posting
from appliance.text.references import for_people

LOG = logging.getLogger(__name__)
FINAL = (BadInput, NotFound, Refused, TooLarge)  # it will not be taken later either
EXPECTED_S = 600.0  # between two tries of a channel that is not connected; once it is, nothing waits
LOCAL, TUI, NOBODY, DIRECT = "local", "tui", "none", "dm"  # names of channels that people write


class Owed(Struct, frozen=True):
    """The outcome of a notification that could not be recorded; next tried at a moment of the monotonic clock."""

    notification: int
    work: Callable[[], object]
    due_s: float


class OutboxSender:
    """Delivers notifications over the channels that are open."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        preferred: Callable[[str], str] = lambda context: "",
        is_told: Callable[[str], bool] = lambda context: True,
        quiet: Quiet | None = None,
        notices: Notices | None = None,
        passed: Passed = nobody,
    ) -> None:
        """`preferred` names the channel that a context would rather be told by, "" for none, `is_told` whether it is told at all.

        `quiet` says what has to wait; `notices` knows who looks at a screen, so that `tui` reaches them.
        """
        self._outbox = outbox
        self.preferred = preferred
        self._is_told = is_told
        self._quiet = quiet
        self._notices = notices
        self._passed = passed
        self._rounds = Rounds("courier", self._deliver_due, "notifications", LOG)
        self._state = threading.Condition()  # over what follows
        self._channels: dict[str, Channel] = {}
        self._lanes: dict[str, ThreadPoolExecutor] = {}
        self._queued: dict[int, Future[None]] = {}  # notifications handed to a lane, until their outcome is recorded
        self._sending: set[int] = set()  # those that their lane works on
        self._owed: list[Owed] = []
        self._expected: set[str] = set()
        self._live: set[str] = set()
        self.is_started = False
        outbox.events.subscribe(OutboxFilled, lambda filled: self.wake())

    # -- channels -----------------------------------------------------------------------------------

    def expect(self, name: str, *, is_expected: bool = True) -> None:
        """A channel that is switched on and not connected yet: what insists on it waits without losing attempts."""
        with self._state:
            (self._expected.add if is_expected else self._expected.discard)(name)

    def register(self, name: str, channel: Channel, *, is_live: bool = False) -> None:
        """Open a channel, or put another in its place; what insists on it is tried now. `is_live`: people see it at once."""
        with self._state:
            self._channels[name] = channel
            (self._live.add if is_live else self._live.discard)(name)
        self._outbox.hasten(name)
        self.wake()

    def unregister(self, name: str) -> None:
        """Close a channel: notifications that insist on it wait, others go elsewhere."""
        with self._state:
            self._channels.pop(name, None)
            self._live.discard(name)

    def live_channels(self) -> frozenset[str]:
        """The channels that are open and whose people see at once what is delivered."""
        with self._state:
            return frozenset(self._live)

    def channels(self) -> tuple[str, ...]:
        """The names of the channels that are open."""
        with self._state:
            return tuple(sorted(self._channels))

    # -- the thread ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what a dead process left, then send what is put."""
        self.is_started = True
        self._rounds.start()

    def flush(self, limit_s: float = 5.0) -> None:
        """Send what is due now and wait for it, in a process that ends soon and did not `start`."""
        end_s = monotonic_s() + limit_s
        while monotonic_s() < end_s:
            self._deliver_due()
            with self._state:
                queued = list(self._queued.values())
            if not queued:
                return
            wait(queued, max(0.0, end_s - monotonic_s()))

    def wake(self) -> None:
        """There may be something new to send; never blocks."""
        self._rounds.wake()

    def close(self, limit_s: float = 5.0) -> bool:
        """Begin nothing more and wait for what is being sent; False when a channel did not end in time."""
        end_s = monotonic_s() + limit_s
        self._rounds.stop()
        with self._state:
            queued = list(self._queued.values())
            lanes = list(self._lanes.values())
        for future in queued:
            future.cancel()
        for lane in lanes:
            lane.shutdown(wait=False, cancel_futures=True)
        self._rounds.join(end_s - monotonic_s())
        with self._state:
            is_done = self._state.wait_for(lambda: not self._sending, max(0.0, end_s - monotonic_s()))
        try:
            self._record_owed(is_last=True)
        except OwlError as error:
            LOG.error("not recorded: the outcome of %d notifications: %s", len(self._owed), error)
            return False
        return is_done

    def _deliver_due(self) -> float | None:
        """Hand everything that is due to its channel; how long to sleep then, None until somebody rings."""
        self._record_owed()
        with self._state:
            mine = set(self._queued)
        for posting in self._outbox.recover(mine, self._is_idempotent):
            LOG.warning("notification %d: %s", posting.id, posting.error)
        ready, next_ms = self._outbox.due()
        if any(posting.held_ms is not None for posting in ready):
            self._gather_withheld(mine)
            ready, next_ms = self._outbox.due()
        for posting in ready:
            if posting.id not in mine:
                self._hand_on(posting)
        waits_s = [max(0.0, owed.due_s - monotonic_s()) for owed in list(self._owed)]
        if next_ms is not None:
            waits_s.append(max(0.0, (next_ms - now_ms()) / 1000))
        return min(waits_s, default=None)

    def _is_idempotent(self, name: str) -> bool:
        with self._state:
            channel = self._channels.get(name)
        return channel is not None and channel.is_idempotent

    # -- one notification ---------------------------------------------------------------------------------

    def _hand_on(self, posting: Posting) -> None:
        """Choose where it goes; into the lane of that channel, into the log, or back."""
        notification = posting.notification
        if self._quiet is not None and (until_ms := self._quiet.until(posting, now_ms())):
            self._outbox.hold(posting.id, until_ms)
            self.wake()  # what comes after it, and when it is due itself
            return
        address = self.choose(notification)
        if address is None:
            LOG.info("nobody to tell: notification %d (%s) for %s", posting.id, notification.key, notification.context)
            self._outbox.end(posting.id, LOGGED, "no channel reaches them")
            self.wake()  # the next one of the same conversation
            return
        with self._state:
            is_expected = address.channel in self._expected
            if self._rounds.is_closing:
                return
            if is_open := address.channel in self._channels:
                # Where a device is reached its person says: a slow one holds up that person alone.
                name = f"{address.channel}/{notification.person}" if "subscription" in notification.metadata else address.channel
                lane = self._lanes.get(name)
                if lane is None:
                    lane = self._lanes[name] = ThreadPoolExecutor(1, f"to-{name}")
                self._queued[posting.id] = lane.submit(self._deliver_recorded, posting, address)
        if not is_open:
            if is_expected:  # tried as soon as it is connected
                self._outbox.put_off(posting.id, f"channel {address.channel} is not connected", is_free=True, pause_s=EXPECTED_S)
            else:
                self._outbox.put_off(posting.id, f"channel {address.channel} is not open")
            self.wake()

    def choose(self, notification: Notification) -> Address | None:
        """Where a notification goes: the channel it insists on, else the preferred one, that of its session, the last used.

        A person always has a conversation here, also one who never talked. None when no open channel reaches its context, or it
        is not to be told: then it is logged. Never a conversation of another context.
        """
        if not self._is_told(notification.context):
            return None
        found, wanted = self._outbox.addresses, notification.channel or self.preferred(notification.context)
        if wanted == NOBODY:
            return None
        channel, _, place = wanted.partition("/")
        if notification.channel and channel != TUI:
            same = (
                found(notification.context, channel=channel, session=notification.session)
                if notification.session and not place
                else []
            )
            return next(
                iter([*same, *self.at(notification.context, wanted)]),
                _own_conversation(notification) if channel == LOCAL else Address(channel),
            )
        mine = found(notification.context, session=notification.session) if notification.session else []
        addresses = [*mine, *found(notification.context)]
        if channel == TUI and self._notices is not None and self._notices.has_screen(notification.person):
            addresses = [*(one for one in addresses if one.channel == LOCAL), Address(LOCAL)]
        elif channel == TUI:  # the thread at least, for the next time that somebody looks
            addresses = sorted(addresses, key=lambda one: one.channel == LOCAL)
        elif wanted:
            addresses = [*self.at(notification.context, wanted), *addresses]
        if notification.context == f"user:{notification.person}":
            addresses = [one for one in addresses if one.session] + [_own_conversation(notification)]
        is_open = self.channels()
        return next((one for one in addresses if one.channel in is_open), None)

    def at(self, context: str, wanted: str) -> list[Address]:
        """The conversations at a channel, or at one place of it, the last used first: `slack`, `slack/dm`, `slack/C042`, `tui`."""
        channel, _, place = wanted.partition("/")
        known = self._outbox.addresses(context, channel=LOCAL if channel == TUI else channel)
        return [one for one in known if place in ("", DIRECT) or place in one.session.split(":")]

    def _gather_withheld(self, mine: set[int]) -> None:
        """Say what was held back for one conversation all at once."""
        if self._quiet is None:
            return
        groups: dict[tuple[str, ...], list[Posting]] = {}
        for posting in self._outbox.released(now_ms()):
            address = self.choose(posting.notification)
            if posting.id not in mine and address is not None and self._quiet.until(posting, now_ms()) is None:
                thread = (posting.notification.run or "") if address.channel == LOCAL else ""
                place = address.session or posting.notification.session  # of a device, which has no conversation
                groups.setdefault((posting.notification.context, address.channel, place, thread), []).append(posting)
        for group in groups.values():
            if len(group) > 1:
                self._outbox.join(group, together([one.notification.text for one in group]))

    def _deliver_recorded(self, posting: Posting, address: Address) -> None:
        """Deliver one notification in its lane and record the result."""
        with self._state:
            channel = self._channels.get(address.channel)
            self._sending.add(posting.id)
        try:
            if channel is not None:  # else it was closed meanwhile, and another is chosen
                with log.correlated(posting.notification.correlation):
                    self._send_posting(posting, address, channel)
        except Exception:
            LOG.exception("notification %d", posting.id)
        finally:
            with self._state:
                self._sending.discard(posting.id)
                if all(owed.notification != posting.id for owed in self._owed):
                    del self._queued[posting.id]
                self._state.notify_all()
            self.wake()

    def _send_posting(self, posting: Posting, address: Address, channel: Channel) -> None:
        notification = posting.notification
        text = notification.text
        if address.channel != LOCAL and notification.attachment and notification.attachment.endswith(text):
            text = ""  # the file comes with its name
        try:
            message = Outbound(
                address.session,
                for_people(f"{REPEAT}\n{text}" if posting.may_repeat else text),
                notification.attachment,
                {**address.metadata, **notification.metadata},
                notification.key,
                notification.person,
                self._outbox.thread(notification),
                notification.correlation,
                notification.marks,
                files_of=notification.session if notification.session != address.session and notification.attachment else "",
            )
            is_ours = self._outbox.begin_sending(posting.id, address.channel, durable=not channel.is_idempotent)
        except OwlError as error:
            LOG.error("notification %d was not begun, trying again in %g s: %s", posting.id, RETRY_S, error)
            self._owed.append(Owed(posting.id, lambda: None, monotonic_s() + RETRY_S))
            return
        if not is_ours:
            return  # it was decided otherwise
        self._passed(CrashPoint.LETTER_TAKEN)
        work = self._deliver_message(posting.id, message, address.channel, channel)
        try:
            work()
        except OwlError as error:  # it must not go out again meanwhile
            LOG.error("notification %d: its outcome is kept for later: %s", posting.id, error)
            self._owed.append(Owed(posting.id, work, monotonic_s() + RETRY_S))

    def _deliver_message(self, notification_id: int, message: Outbound, name: str, channel: Channel) -> Callable[[], object]:
        """Give a notification to its channel; what is to be recorded then."""
        put_off = partial(self._outbox.put_off, notification_id)
        try:
            channel.deliver(message)
        except FINAL as error:
            LOG.error("notification %d was refused by %s: %s", notification_id, name, error)
            return partial(self._outbox.end, notification_id, FAILED, str(error))
        except Busy as error:
            return partial(put_off, str(error), is_free=True, pause_s=error.retry_s)
        except OwlError as error:
            LOG.warning("notification %d could not be sent over %s: %s", notification_id, name, error)
            return partial(put_off, str(error), may_repeat=isinstance(error, UNCERTAIN) and not channel.is_idempotent)
        except Exception as error:
            LOG.exception("notification %d: channel %s failed", notification_id, name)
            return partial(put_off, f"{type(error).__name__}: {error}", may_repeat=not channel.is_idempotent)
        self._passed(CrashPoint.LETTER_DELIVERED)
        return partial(self._record_sent, notification_id)

    def _record_sent(self, notification_id: int) -> None:
        self._outbox.end(notification_id, SENT)
        self._passed(CrashPoint.LETTER_SENT)

    def _record_owed(self, *, is_last: bool = False) -> None:
        """Make the records that could not be made before, as far as it is time again."""
        for owed in list(self._owed):
            if is_last or owed.due_s <= monotonic_s():
                owed.work()
                self._owed.remove(owed)
                with self._state:
                    self._queued.pop(owed.notification, None)


def _own_conversation(notification: Notification) -> Address:
    """The conversation that a person always has here; none in particular for what is a group's."""
    return Address(LOCAL, f"{LOCAL}:{notification.person}" if notification.context == f"user:{notification.person}" else "")
