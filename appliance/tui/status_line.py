"""The line at the bottom while nothing else is said there: whether the core is there, the model, what waits, what is new."""

from collections.abc import Mapping
from typing import Any

from textual.content import Content

from appliance.clock import monotonic_s
from appliance.tui.chat import Chat
from appliance.tui.connection import Contact

TITLE_FROM = 100  # columns from which the title of the thread has room beside the tabs; else it stands at the bottom


def status_line(chat: Chat, contact: Contact, core: Mapping[str, Any], was_up: bool) -> Content:
    """`core` is what `core.status` said last; `was_up` says that the core has been there before."""
    if not contact.is_up:
        word = "core away" if was_up else "connecting"
        tries = f" · next try in {contact.wait_s:.1f} s, ^R now" if contact.wait_s else ""
        why = f" · {contact.why}" if contact.why else ""
        return Content.assemble((f"○ {word}", "bold $warning"), f"{tries}{why}")
    broker = core.get("broker", {})
    words: list[Any] = [("● ", "$success"), str(chat.cost.get("model") or broker.get("model") or "connected")]
    if chat.talk.role:
        words.append(f" as {chat.talk.role}")
    if faults := core.get("faults"):
        words = [("● ", "$error"), (faults[0].partition(":")[0], "bold $error"), ", /status"]
    if chat.running is not None:
        words.append(f" · thinking {monotonic_s() - chat.began_s:.0f} s")
    if chat.waits.count:
        where = ", /waiting" if chat.waits.here is None else ""
        words.append((f" · {chat.waits.count} waiting for you{where}", "bold $warning"))
    if chat.onlooker.unread:
        threads = "1 thread" if len(chat.onlooker.unread) == 1 else f"{len(chat.onlooker.unread)} threads"
        words.append((f" · new in {threads}, F5", "bold $primary"))
    title = f" · {chat.talk.title}" if chat.talk.title and chat.app.size.width < TITLE_FROM else ""
    used = _context_used(chat.cost, int(broker.get("window") or 0))
    return Content.assemble(*words, used, *remote_words(broker.get("remote", {})), (title, "dim"))


def _context_used(cost: Mapping[str, Any], window: int) -> str:
    used = (cost.get("prompt_tokens") or 0) + (cost.get("output_tokens") or 0)
    if not used:
        return ""
    return f" · context {used} of {window} ({100 * used // window} %)" if window else f" · context {used}"


def remote_words(remote: Mapping[str, Any]) -> list[Any]:
    """Providers that are left alone, and what is spent where that has a limit, for the status line."""
    away = [one["name"] for one in remote.get("providers", ()) if one["state"] == "skipped"]
    words: list[Any] = [(f" · {', '.join(away)} left alone", "$warning")] if away else []
    spending = remote.get("spending", {})
    if limit := spending.get("limits", {}).get("day_usd"):
        words.append(f" · ${spending['day_usd']:.2f} of ${limit:.2f} today")
    return words
