"""When notifications are held back: quiet hours, and people who want to hear of nothing for a while.

Owns `mutes`. Says until when a notification has to wait; `channels.delivery` asks before it hands one on, and `outbox` keeps the
time with the notification, so that a restart changes nothing. Only what nobody has asked for waits: answers, what waits for a
decision, and reminders at their time never do. Knows nothing about channels.
"""

from collections.abc import Callable

from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.language.times import timezones
from appliance.runtime.settings import Config
from appliance.sessions.outbox import Notification, Posting
from appliance.store.database import Store
from appliance.store.wall_clock import Leap
from appliance.work import day_windows

UNASKED = ("task", "job", "schedule", "heartbeat")  # what the keys of such notifications begin with
URGENT = ("reminder", "now")
MAX_MUTE_MS = 31 * 86_400_000
HEAD = "Held back until now:"


class Quiet:
    """Reads the rules, reads and writes mutes."""

    def __init__(self, store: Store, settings: Callable[[], Config]) -> None:
        self._store = store
        self._settings = settings

    def until(self, posting: Posting, now: int) -> int | None:
        """Until when a notification has to wait; None when it may go."""
        notification = posting.notification
        if not is_unasked(notification):
            return None
        settings = self._settings().notifications
        zone = timezones.find(self._settings().system.timezone)
        ends = [self.muted_until(notification.context, now)]
        night = day_windows.window(settings.quiet_from, settings.quiet_until)
        if night.has(now, zone):
            ends.append(night.end_ms(now, zone))
        return max(ends) or None

    def mute(self, context: str, until_ms: int, now: int | None = None) -> int:
        """Hold back what is for a context until then; BadInput for the past, and for more than a month."""
        now = now_ms() if now is None else now
        if not now < until_ms <= now + MAX_MUTE_MS:
            raise BadInput("a time that is over, or more than 31 days away", hint="owlbox mute 2h; owlbox mute off ends it")
        with self._store.write(durable=True) as execute:
            execute(
                "INSERT INTO mutes (context, until_ms, made_ms) VALUES (?1, ?2, ?3) "
                "ON CONFLICT (context) DO UPDATE SET until_ms = ?2, made_ms = ?3",
                (context, until_ms, now),
            )
        return until_ms

    def move(self, leap: Leap) -> None:
        """Let a mute of a clock that was wrong last as long as it was to; call inside the write that notes the leap."""
        with self._store.write() as execute:
            sql = "UPDATE mutes SET until_ms = until_ms + ?1, made_ms = made_ms + ?1 WHERE made_ms BETWEEN ?2 AND ?3"
            execute(sql, (leap.by_ms, leap.since_ms, leap.until_ms))

    def unmute(self, context: str) -> bool:
        """Hold nothing back any more; False when nothing was."""
        with self._store.write() as execute:
            return bool(execute("DELETE FROM mutes WHERE context = ? RETURNING 1", (context,)))

    def muted_until(self, context: str, now: int | None = None) -> int:
        """Until when a context hears of nothing; 0 for not at all."""
        now = now_ms() if now is None else now
        found = int(self._store.value("SELECT until_ms FROM mutes WHERE context = ?", (context,)) or 0)
        return found if now < found <= now + MAX_MUTE_MS else 0


def is_unasked(notification: Notification) -> bool:
    """Whether a notification is about something that nobody waits for at this moment."""
    urgency = notification.metadata.get("urgency", "")
    return urgency not in URGENT and (bool(urgency) or notification.key.partition(":")[0] in UNASKED)


def together(texts: list[str]) -> str:
    """Several texts as one."""
    return "\n\n".join([HEAD, *(f"{number}. {text}" for number, text in enumerate(texts, 1))])
