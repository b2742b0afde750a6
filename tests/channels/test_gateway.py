"""Who may write in a channel, whose a message is, and which group a room is: asked of the gateway, which is the same for all."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import channel_rig
import pytest
from channel_rig import Rig
from process import until

from appliance.channels.contract import Attached, Received
from appliance.channels.gateway import BURST, MAX_LOGGED, Admission, Gateway
from appliance.clock import new_id, now_ms
from appliance.errors import Busy
from appliance.records import Event
from appliance.sessions.outbox import Notification

ANN, BEN, EVE = "@ann:x.org", "@ben:x.org", "@eve:evil.test"


@pytest.fixture(scope="module", name="rig")
def a_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with channel_rig.running(tmp_path_factory.mktemp("gateway"), {}) as rig:
        rig.core.base.people.add_person("ann")
        rig.core.base.people.link_identity(f"chat/{ANN}", "ann")
        yield rig


def gateway(rig: Rig, **admission: object) -> Gateway:
    return Gateway("chat", Admission(**admission), rig.core.connections._parts)  # type: ignore[arg-type]


count = iter(range(10_000))


def said(sender: str = BEN, text: str = "hello", **more: object) -> Received:
    """A message that comes after the rules of this millisecond were set."""
    return Received(f"m{next(count)}", sender, text, int(more.pop("at_ms", now_ms() + 10)), **more)  # type: ignore[arg-type]


ROOM = {"room": "!r:x.org", "room_name": "Tea & cake"}
ASIDE = {**ROOM, "is_addressed": False}
POLICIES = [
    ("open", EVE, {}, True),
    ("open", EVE, ASIDE, True),
    ("mention", EVE, ROOM, True),
    ("mention", EVE, ASIDE, False),
    ("mention", EVE, {}, False),
    ("mention", BEN, {}, True),
    ("allowlist", BEN, {}, True),
    ("allowlist", BEN, ASIDE, True),
    ("allowlist", EVE, ROOM, False),
    ("allowlist", ANN, {"is_proven": True}, True),
    ("open", ANN, {"is_proven": False}, False),
    ("mention", ANN, {**ROOM, "is_proven": True}, True),
    ("everybody", BEN, {}, False),
]


@pytest.mark.covers("S-105")
@pytest.mark.parametrize(("policy", "sender", "more", "is_taken"), POLICIES)
def test_a_policy_says_who_is_taken(rig: Rig, policy: str, sender: str, more: dict[str, object], is_taken: bool) -> None:
    before = len(rig.messages())
    assert gateway(rig, policy=policy, allow_from=(BEN,)).take(said(sender, **more)) is is_taken
    assert len(rig.messages()) == before + is_taken


@pytest.mark.covers("S-104", "S-105")
def test_what_was_refused_stays_refused_when_more_are_let_in(rig: Rig) -> None:
    before_ms, before = now_ms() - 1, len(rig.messages())
    strict = gateway(rig, policy="mention", allow_from=(BEN,))
    old = [said(EVE, "old", at_ms=now_ms()), said(EVE, "aside", at_ms=now_ms(), **ASIDE), said(EVE, "not seen", at_ms=before_ms)]
    assert not any(map(strict.take, old[:2]))
    until(lambda: now_ms() > old[1].at_ms, "the clock goes on")
    for _ in range(2):  # also after a restart
        wide = gateway(rig, policy="open")
        assert not any(map(wide.take, old)) and len(rig.messages()) == before
    assert wide.take(said(BEN, "was listed", at_ms=old[1].at_ms)) and wide.take(said(EVE, "new", **ASIDE))
    assert rig.messages()[before:] == ["was listed", "new"]


@pytest.mark.covers("S-104")
def test_rooms_that_are_not_listed_ids_seen_before_and_empty_or_long_messages_are_refused(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    entrance = gateway(rig, policy="open", rooms=("!other:x.org",))
    before = len(rig.messages())
    with caplog.at_level(logging.WARNING):
        for one in (
            said(**ROOM),
            said(**ROOM),
            said(text=" "),
            said(text="x" * 200_000),
            said(sender=" "),
            Received("", BEN, "hi", 1),
        ):
            assert not entrance.take(one)
    assert len(rig.messages()) == before and entrance.counts["refused"] == 6
    assert len([one for one in caplog.records if "is not listed" in one.getMessage()]) == 1
    once = said(text="once")
    assert [entrance.take(one) for one in (once, once)] == [True, True] and rig.messages().count("once") == 1


@pytest.mark.covers("A-182", "A-181")
def test_a_room_is_a_group_made_when_first_addressed_and_silent_when_deactivated(rig: Rig) -> None:
    people, entrance = rig.core.base.people, gateway(rig, policy="mention", allow_from=(BEN,))
    assert not entrance.take(said(EVE, "aside", room="!new:x.org", room_name="New", is_addressed=False))
    assert "!new:x.org" not in {one.room for one in people.list_rooms()}
    entrance.take(said(EVE, "in the room", room="!new:x.org", room_name="New"))
    [group] = [one.group for one in people.list_rooms() if one.room == "!new:x.org"]
    assert rig.session_of("in the room")[:2] == (f"chat:group:{group}", f"group:{group}") and group.startswith("new-")
    entrance.take(said(BEN, "to you alone"))
    assert rig.session_of("to you alone")[:2] == (f"chat:{BEN}", f"user:chat:{BEN.replace(':', '%3A')}")
    people.change_group(group, is_active=False)
    assert not entrance.take(said(BEN, "not heard", room="!new:x.org", is_proven=True)) and "not heard" not in rig.messages()
    assert "in the room" in rig.messages()
    people.change_group(group, is_active=True)
    assert entrance.take(said(BEN, "heard again", room="!new:x.org"))
    people.change_group("family", room="chat/!new:x.org")
    entrance.take(said(BEN, "as family", room="!new:x.org"))
    assert rig.session_of("as family")[1] == "group:family"


def test_a_room_cannot_take_the_name_of_a_group(rig: Rig) -> None:
    rig.core.base.people.change_group("admins")
    entrance = gateway(rig, policy="open")
    entrance.take(said(EVE, "let me in", room="!evil:x", room_name="admins"))
    assert rig.session_of("let me in")[1] != "group:admins"


@pytest.mark.covers("A-266")
def test_linked_addresses_share_a_session_and_others_see_its_answers(rig: Rig) -> None:
    people = rig.core.base.people
    until(lambda: not rig.core.inbox.busy(), "nothing of before is answered")
    last = rig.core.store.value("SELECT COALESCE(MAX(id), 0) FROM outbox")
    sql = "SELECT channel, metadata FROM outbox WHERE session = 'local:ann' AND id > ? ORDER BY id"
    people.link_identity("other/ann-2", "ann")
    assert people.find_linked("other", "ann-2") == "ann"
    Gateway("other", Admission(), rig.core.connections._parts).take(
        Received("o1", "ann-2", "from elsewhere", now_ms(), is_proven=True, metadata={"place": "there"})
    )
    gateway(rig).take(said(ANN, "from the chat", is_proven=True, metadata={"place": "here"}))
    one, two = rig.session_of("from elsewhere"), rig.session_of("from the chat")
    assert one[:2] == two[:2] == ("local:ann", "user:ann") and one[2] == two[2]
    assert rig.marks("from the chat") == []
    until(lambda: not rig.core.inbox.busy(), "it is answered")
    rows = rig.core.store.rows(sql, (last,))
    assert [str(row[0]) for row in rows] == ["other", "chat"] and '"here"' in str(
        rows[1][1]
    )  # none for those that are not connected

    class Live:
        is_idempotent = True

        def deliver(self, message: object) -> None:
            """Taken."""

    rig.core.queue.courier.register("other", Live(), is_live=True)  # type: ignore[arg-type]
    gateway(rig).take(said(ANN, "again", is_proven=True, metadata={"place": "here"}))
    until(lambda: not rig.core.inbox.busy(), "it is answered")
    rows = rig.core.store.rows(sql, (last,))[2:]
    assert [str(row[0]) for row in rows] == ["chat", "other"] and '"there"' in str(rows[1][1])
    origins = "SELECT channel FROM events WHERE content IN ('from elsewhere', 'from the chat') ORDER BY id"
    assert [str(row[0]) for row in rig.core.store.rows(origins)] == ["other", "chat"]
    rig.core.queue.courier.unregister("other")


def test_words_of_others_are_marked_and_one_sender_cannot_fill_everything(rig: Rig) -> None:
    entrance = gateway(rig, policy="open")
    entrance.take(said("@zoe:x.org", "zoe says"))
    assert rig.marks("zoe says") == ["person:@zoe_x.org"]
    with pytest.raises(Busy):
        for i in range(BURST * 20):  # the budget grows again while it is spent
            entrance.take(said("@flood:x.org", f"f{i}"))
    assert entrance.take(said("@quiet:x.org", "still heard"))


def test_only_so_many_senders_are_counted_and_who_wrote_longest_ago_is_forgotten(rig: Rig) -> None:
    entrance = gateway(rig, policy="open")
    entrance._spend("early")
    for number in range(MAX_LOGGED - 2):
        entrance._spend(f"s{number}")
    entrance._spend("early")
    entrance._spend("late")
    assert len(entrance._budgets) == MAX_LOGGED and list(entrance._budgets)[-2:] == ["early", "late"]
    entrance._spend("later")
    assert len(entrance._budgets) == MAX_LOGGED and "s0" not in entrance._budgets and "s1" in entrance._budgets


def test_halves_of_characters_are_stored_as_question_marks_or_refused(rig: Rig) -> None:
    entrance, half = gateway(rig, policy="open"), "\ud800"
    torn = Attached(f"{half}.txt", half, b"x")
    metadata: dict[str, Any] = {"mail": {"subject": half, "references": [half]}}
    assert entrance.take(said(text=f"torn {half} \0", metadata=metadata, attachments=(torn,), room="!h", room_name=half))
    assert rig.messages()[-1].startswith("torn ? \0\n\n[attachment '?.txt' (?, 1 bytes)")
    for more in ({"room": half}, {"thread": half}, {"references": (half,)}, {"sender": half}):
        assert not entrance.take(said(**more))  # type: ignore[arg-type]
    assert entrance.counts["refused"] == 4
    until(lambda: not rig.core.inbox.busy(), "it is answered")


def test_a_file_of_a_stranger_is_not_fetched_and_one_that_comes_later_keeps_its_message(rig: Rig) -> None:
    fetched: list[str] = []

    def later() -> bytes:
        fetched.append("x")
        raise Busy("the service is slow")

    file = Attached("a.txt", "text/plain", fetch=later)
    assert not gateway(rig, policy="allowlist").take(said(EVE, attachments=(file,))) and fetched == []
    before = len(rig.messages())
    with pytest.raises(Busy):
        gateway(rig, policy="open").take(said(EVE, attachments=(file,), at_ms=now_ms() + 1000))  # behind the change
    assert len(rig.messages()) == before and fetched == ["x"]


def test_whoever_asked_is_told_that_a_restart_ended_the_answer_behind_what_was_said(tmp_path: Path) -> None:
    heard: list[object] = []
    with channel_rig.running(tmp_path, {}) as rig:
        gateway(rig, policy="open").take(said(text="something long"))
        rig.core.inbox.feed.watch(int(rig.core.store.value("SELECT MAX(id) FROM loops")), heard.append)
        until(lambda: len(heard) > 3, "it is being answered")
    with channel_rig.running(tmp_path, {}) as rig:
        [told] = rig.core.outbox.list_postings()
        assert told.notification.channel == "chat" and told.notification.text.startswith("one two")
        assert told.notification.text.endswith("\n\n(The answer ends here: stopped.)")


def sent(rig: Rig, notification: Notification) -> None:
    """Have the record say that a channel sent this just now."""
    note = rig.core.outbox.put(notification)
    with rig.core.store.write() as execute:
        execute("UPDATE outbox SET status = 'sent', via = 'chat', ended_ms = ? WHERE id = ?", (now_ms(), note))


def asked(rig: Rig, text: str, answer: str) -> str:
    """A prompt of ben's that was answered, and the answer sent to him; its run."""
    assert gateway(rig, policy="open").take(said(BEN, text))
    until(lambda: not rig.core.inbox.busy(), "it is answered")
    run = rig.session_of(text)[2]
    told = rig.core.runs.append(Event(run, "message", "assistant", answer))
    sent(rig, Notification(new_id(), f"chat:{BEN}", answer, channel="chat", run=run, metadata={"seq": told.seq}))
    return run


REACTIONS = [
    (BEN, "👍🏽", True, "Shall I delete it?", "yes"),
    (BEN, "-1", True, "Shall I delete it?", "no"),
    (BEN, "🎉", True, "Shall I delete it?", ""),
    (BEN, "👍", True, "It is deleted.", ""),
    (BEN, "👍", False, "Shall I delete it?", ""),
    (EVE, "👍", True, "Shall I delete it?", ""),
]


@pytest.mark.parametrize(("sender", "sign", "is_newest", "answer", "meant"), REACTIONS)
def test_only_two_signs_at_the_question_asked_last_are_an_answer_and_others_ask_no_model(
    rig: Rig, sender: str, sign: str, is_newest: bool, answer: str, meant: str
) -> None:
    run = asked(rig, f"about {new_id()}", answer)
    loops, before, seq = rig.core.store.value("SELECT COUNT(*) FROM loops"), rig.messages(), rig.core.runs.get(run).last_seq
    reaction = said(sender, f"[reacts with {sign}]", reaction=sign, is_about_newest=is_newest)
    for _ in range(2):
        assert gateway(rig, policy="open").take(reaction)
    until(lambda: not rig.core.inbox.busy(), "nothing goes on")
    assert rig.core.store.value("SELECT COUNT(*) FROM loops") == loops + bool(meant)
    assert rig.messages()[len(before) :] == ([meant] if meant else [])
    recorded = [e for e in rig.core.runs.events(run, after=seq) if e.outcome == "reaction"]
    assert [e.content for e in recorded] == ([] if meant or sender == EVE else [f"[reacts with {sign}]"])


def test_a_sign_at_a_reminder_that_came_behind_a_question_answers_nothing(rig: Rig) -> None:
    run = asked(rig, "about the roses", "Shall I delete it?")
    sent(rig, Notification(new_id(), f"chat:{BEN}", "Time for tea", channel="chat"))
    before = rig.messages()
    assert gateway(rig, policy="open").take(said(BEN, "[reacts with +1]", reaction="+1", is_about_newest=True))
    assert rig.messages() == before and rig.core.runs.events(run)[-1].content == "[reacts with +1]"


def test_strangers_reactions_are_refused_and_one_to_nothing_begins_no_thread(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    runs = rig.core.store.value("SELECT COUNT(*) FROM runs")
    assert not gateway(rig).take(said(EVE, "[reacts with +1]", reaction="+1", is_about_newest=True))
    assert gateway(rig, policy="open").take(said("@new:x.org", "[reacts with +1]", reaction="+1", is_about_newest=True))
    assert rig.core.store.value("SELECT COUNT(*) FROM runs") == runs and "the sender is not listed" in caplog.text
