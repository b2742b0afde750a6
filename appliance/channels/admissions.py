"""Who may write in a channel, and who might before: what came under stricter rules is judged by those as well.

The only writer of table `admissions`, which has a row for each change of a channel's rules.
"""

import msgspec
from msgspec import Struct

from appliance.channels.contract import Received
from appliance.clock import now_ms
from appliance.store.database import Store

MOST = 20  # changes of one channel that are remembered
UNLISTED, ASIDE = "the sender is not listed", "it is said among others"


class Admission(Struct, frozen=True):
    """Who may write in a channel, besides persons whose address is linked and proven.

    `policy` "allowlist" takes listed senders, "mention" also everybody in a room who addresses the assistant, "open" everybody.

    `rooms`, where any are given, are the only ones. `folds_case`: addresses that differ in their case alone are the same.
    """

    policy: str = "allowlist"
    allow_from: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ()
    folds_case: bool = False

    def find_fault(self, received: Received, *, is_linked: bool) -> str:
        """Why a message is kept out, "" when it is not; ASIDE where people talk among themselves.

        An unknown policy lets nobody in.
        """
        if received.room and self.policy == "mention" and not received.is_addressed:
            return ASIDE
        if received.room and self.rooms and received.room not in self.rooms:
            return f"the room {received.room} is not listed"
        sender, allowed = received.sender, self.allow_from
        if self.folds_case:
            sender, allowed = sender.casefold(), tuple(one.casefold() for one in allowed)
        if self.policy == "open" or (self.policy == "mention" and received.room):
            return ""
        return "" if self.policy in ("mention", "allowlist") and (is_linked or sender in allowed) else UNLISTED


def note_admission(store: Store, channel: str, admission: Admission) -> tuple[tuple[int, Admission], ...]:
    """Remember that these are the rules of a channel from now on; those before, each with the moment at which it ended."""
    rows = store.rows("SELECT since_ms, admission FROM admissions WHERE channel = ? ORDER BY since_ms", (channel,))
    known = [(int(since_ms), msgspec.json.decode(str(text), type=Admission)) for since_ms, text in rows]
    if not known or known[-1][1] != admission:
        now = max(now_ms(), known[-1][0] + 1 if known else 0)
        with store.write(durable=True) as execute:
            given = (channel, now, msgspec.json.encode(admission).decode())
            execute("INSERT INTO admissions (channel, since_ms, admission) VALUES (?, ?, ?)", given)
            for since_ms, _ in known[: 1 - MOST]:
                execute("DELETE FROM admissions WHERE channel = ? AND since_ms = ?", (channel, since_ms))
        known.append((now, admission))
    return tuple((until_ms, before) for (_, before), (until_ms, _) in zip(known, known[1:], strict=False))
