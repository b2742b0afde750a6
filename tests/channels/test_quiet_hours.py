"""Quiet hours, mutes and preferred channels: what waits, what goes at once, and by which door."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_delivery import QUICK, Lines, ended
from test_outbox import Post

from appliance.channels.delivery import OutboxSender
from appliance.channels.quiet_hours import Quiet, is_unasked
from appliance.clock import now_ms
from appliance.errors import BadInput
from appliance.runtime.settings import Config, Notifications, System
from appliance.runtime.subscriptions import Notices
from appliance.sessions.outbox import Notification, Posting
from appliance.sessions.preferred_channel import _read_channel

HOUR_MS = 3_600_000
NOON = 1_800_014_400_000  # 2027-01-15 12:00 UTC


class Night:
    """An outbox with rules about quiet."""

    def __init__(self, folder: Path, **rules: object) -> None:
        self.post = Post(folder / "owlbox.db", QUICK)
        self.rules = Config(system=System(timezone="UTC"), notifications=Notifications(**rules))  # type: ignore[arg-type]
        self.quiet = Quiet(self.post.store, lambda: self.rules)

    def put(self, key: str, **more: object) -> Posting:
        return self.post.outbox.get(self.post.put(key, **more))

    def until(self, key: str, now: int = NOON, **metadata: object) -> int | None:
        return self.quiet.until(self.put(key, metadata=metadata), now)


def test_only_what_nobody_waits_for_is_held_back(tmp_path: Path) -> None:
    night = Night(tmp_path, quiet_from="00:00", quiet_until="24:00")
    for key in ("answer:1", "proposal:1:2", "message:x"):
        assert night.until(key) is None
    assert night.until("schedule:1:2", urgency="now") is None
    for key in ("task:1:1:complete", "job:9", "schedule:1:3", "heartbeat:x"):
        assert night.until(key) is not None
    assert is_unasked(Notification("drop:1", "ann", "x", metadata={"urgency": "normal"}))


def test_quiet_hours_end_in_the_morning(tmp_path: Path) -> None:
    night = Night(tmp_path, quiet_from="22:00", quiet_until="07:00")
    assert night.until("task:1") is None
    assert night.until("task:2", NOON + 11 * HOUR_MS) == NOON + 19 * HOUR_MS
    assert night.until("task:3", NOON - 6 * HOUR_MS) == NOON - 5 * HOUR_MS


def test_a_mute_holds_for_its_context_until_it_is_over(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.quiet.mute("user:ann", NOON + HOUR_MS, NOON)
    assert night.until("task:1") == NOON + HOUR_MS
    assert night.until("task:2", NOON + HOUR_MS) is None
    assert night.quiet.until(night.put("task:3", person="bob"), NOON) is None
    assert night.quiet.unmute("user:ann") and not night.quiet.unmute("user:ann")
    assert night.until("task:4") is None
    for wrong in (NOON, NOON + 32 * 24 * HOUR_MS):
        with pytest.raises(BadInput, match="over, or more than"):
            night.quiet.mute("user:ann", wrong, NOON)


def test_what_is_held_back_lets_what_comes_after_it_go_first(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db")
    held = post.put("task:1")
    post.put("answer:1")
    now = now_ms()
    post.outbox.hold(held, now + HOUR_MS)
    assert post.ready() == ["answer:1"]
    assert post.outbox.due()[1] == now + HOUR_MS
    assert post.ready(now + HOUR_MS) == ["task:1"]


@pytest.fixture
def door(tmp_path: Path) -> Lines:
    return Lines(tmp_path / "out")


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


@pytest.fixture
def screens() -> Notices:
    return Notices()


@pytest.fixture
def wants() -> dict[str, str]:
    return {}


@pytest.fixture
def courier(night: Night, screens: Notices, wants: dict[str, str]) -> Iterator[OutboxSender]:
    preferred = lambda context: wants.get(context, "")  # noqa: E731
    courier = OutboxSender(night.post.outbox, preferred=preferred, quiet=night.quiet, notices=screens)
    courier.start()
    yield courier
    assert courier.close()


def test_what_waited_is_told_all_at_once(courier: OutboxSender, night: Night, door: Lines) -> None:
    courier.register("mail", door)
    night.post.session("mail")
    night.quiet.mute("user:ann", now_ms() + HOUR_MS)
    for number in (1, 2, 3):
        night.post.put(f"task:{number}", f"Task {number} done.")
    night.post.put("answer:1", "An answer.")
    ended(night.post, "answer:1")
    assert door.texts() == ["An answer."]
    assert [p.held_ms is not None for p in night.post.outbox.list_postings(status="waiting")] == [True] * 3
    night.quiet.unmute("user:ann")
    assert night.post.outbox.free("user:ann") == 3
    ended(night.post, "task:1")
    assert door.texts()[1:] == ["Held back until now: |  | 1. Task 1 done. |  | 2. Task 2 done. |  | 3. Task 3 done."]
    assert [night.post.outbox.find(f"task:{n}").status for n in (2, 3)] == ["cancelled"] * 2  # type: ignore[union-attr]


@pytest.mark.covers("A-248")
def test_tui_reaches_a_person_only_while_they_look(courier: OutboxSender, night: Night, screens: Notices, door: Lines) -> None:
    courier.register("local", door)
    courier.register("mail", door)
    night.post.session("mail")
    night.post.session("local")
    night.post.session("mail")
    letter = Notification("k", "ann", "x", "user:ann", channel="tui")
    found = courier.choose(letter)
    assert found is not None and found.channel == "mail"
    box = screens.look_out("ann")
    found = courier.choose(letter)
    assert found is not None and found.channel == "local"
    screens.blink(box)
    found = courier.choose(letter)
    assert found is not None and found.channel == "mail"
    courier.unregister("mail")
    courier.unregister("local")
    assert courier.choose(letter) is None


@pytest.mark.covers("A-248")
def test_none_and_places_of_a_channel(courier: OutboxSender, night: Night, door: Lines) -> None:
    courier.register("slack", door)
    courier.register("web", door)
    for channel, sender in (("slack", "C042"), ("slack", "D007"), ("web", "ann")):
        inbound = night.post.session(channel, sender)
        assert inbound == f"{channel}:{sender}"
    with night.post.store.write() as execute:
        execute("UPDATE sessions SET context = 'user:ann'")

    def chosen(channel: str) -> str | None:
        found = courier.choose(Notification("k", "ann", "x", "user:ann", channel=channel))
        return None if found is None else found.session

    assert chosen("none") is None
    assert chosen("slack/C042") == "slack:C042" and chosen("slack/dm") in ("slack:D007", "slack:C042")
    assert chosen("web") == "web:ann"


@pytest.mark.covers("A-249")
def test_preferred_channel_comes_before_the_last_used(
    courier: OutboxSender, night: Night, wants: dict[str, str], door: Lines
) -> None:
    for name in ("mail", "web"):
        courier.register(name, door)
        night.post.session(name)
    letter = Notification("k", "ann", "x", "user:ann")

    def chosen() -> str | None:
        found = courier.choose(letter)
        return None if found is None else found.channel

    assert chosen() in ("mail", "web")
    for wanted in ("mail", "web"):
        wants["user:ann"] = wanted
        assert chosen() == wanted
    wants["user:ann"] = "tui"
    assert chosen() in ("mail", "web")
    wants["user:ann"] = "none"
    assert chosen() is None


@pytest.mark.covers("A-249")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("---\npreferred_channel: tui\n---\n# Ada\n", "tui"),
        ("# Ada\n\n- Preferred channel: Mail\n", "mail"),
        ("# Ada\n\n**preferred_channel:** slack/C042\n", "slack/C042"),
        ("# Ada\n<!-- preferred_channel: web -->\n", ""),
        ("# Ada\n<!--\npreferred_channel: web\n-->\n", ""),
        ("# Ada\nShe likes owls.\n", ""),
        ("---\nbroken\n", ""),
    ],
)
def test_user_md_names_the_preferred_channel(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "USER.md"
    path.write_text(text)
    assert _read_channel(path) == wanted
    assert _read_channel(tmp_path / "missing.md") == ""
