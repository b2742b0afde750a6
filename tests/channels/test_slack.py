"""Slack from end to end: a server that speaks Socket Mode and the Web API, a core with a scripted model."""

import gc
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import channel_rig
import pytest
from channel_rig import LONG, SAID, Rig
from cutting import LOST_ANSWER, relay
from process import until
from slack_server import BOT, TEAM, Workspace, workspace
from websockets.sync.client import ClientConnection

from appliance.channels.connectors.slack import plain_text
from appliance.channels.slack_api import SlackApi
from appliance.errors import Refused
from appliance.sessions.outbox import Notification

ANN, BEN, EVE = "U0ANN", "U0BEN", "U0EVE"


class Place:
    """The core and the workspace."""

    def __init__(self, rig: Rig, space: Workspace) -> None:
        self.rig, self.space = rig, space

    def posts(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many posts."""
        until(lambda: len(self.space.posts()) >= count, lambda: f"{count} posts, {self.rig.state('slack')}")
        until(self.rig.quiet, "nothing more is sent")
        until(lambda: not self.space.open_envelopes, "everything is confirmed")
        return self.space.posts()


def keys(space: Workspace) -> dict[str, str]:
    """The configuration of a workspace."""
    given = {"enabled": True, "api_url": space.url, "bot_token": "xoxb", "app_token": "xapp", "allow_from": [f"{TEAM}/{BEN}"]}
    return channel_rig.settings("channels.slack", given) | {"OWLBOX__OUTBOX__RETRY_S": "0.2"}


@pytest.fixture(scope="module", name="place")
def a_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with workspace() as space:

        def prepare(core: Any) -> None:
            core.base.people.add_person("ann")
            core.base.people.link_identity(f"slack/{TEAM}/{ANN}", "ann")

        with channel_rig.running(tmp_path_factory.mktemp("slack"), keys(space), prepare=prepare) as rig:
            rig.until_connected("slack")
            yield Place(rig, space)


@pytest.fixture(autouse=True)
def _no_calls(place: Place) -> None:
    place.space.calls.clear()


def test_a_talk_is_answered_once_however_often_its_event_comes(place: Place) -> None:
    place.space.event("hello &lt;owl&gt;", ts="5.0001")
    place.space.event("hello &lt;owl&gt;", ts="5.0001")
    place.space.event("it is me", user=ANN)
    said = {"channel": "D0DM", "markdown_text": SAID, "unfurl_links": False, "unfurl_media": False}
    assert said in place.posts(2) and len(place.space.posts()) == 2
    assert place.rig.session_of("hello <owl>")[0] == f"slack:{TEAM}/{BEN}"
    assert place.rig.session_of("it is me")[:2] == ("local:ann", "user:ann") and place.rig.marks("it is me") == []


@pytest.mark.covers("S-012")
def test_a_long_answer_is_shown_while_it_is_written_in_one_message(place: Place) -> None:
    place.space.event("something long")
    place.posts(1)
    until(lambda: place.space.shown() == [LONG], lambda: f"the whole answer: {place.space.shown()}")
    edits = [given for method, given in place.space.calls if method == "chat.update"]
    assert len(place.space.posts()) == 1 and place.space.posts()[0]["markdown_text"].endswith(" …") and 1 <= len(edits) <= 4


def test_a_reaction_to_an_answer_is_recorded_in_its_thread_without_a_model_and_no_other_is(place: Place) -> None:
    place.space.event(f"<@{BOT}> react", user=EVE, channel="C0TEA", ts="8.1")
    place.posts(1)
    moment = next(f"9.{number}" for number, (method, _) in enumerate(place.space.calls, 1) if method == "chat.postMessage")
    item = {"type": "message", "channel": "C0TEA", "ts": moment}
    told = {"type": "reaction_added", "reaction": "+1", "item": item, "event_ts": "8.2"}
    for _ in range(2):
        place.space.event("", user=EVE, item_user=BOT, **told)
    place.space.event("", user=EVE, item_user=BEN, **told)
    place.space.event("", user=BOT, item_user=BOT, **told)
    place.space.event("", user=EVE, item_user=BOT, **{**told, "reaction": "<x>"})
    sql = "SELECT run, content FROM events WHERE outcome = 'reaction'"
    until(lambda: place.rig.core.store.rows(sql) and not place.space.open_envelopes, "it is recorded")
    assert place.rig.core.store.rows(sql) == [(place.rig.session_of("react")[2], "[reacts with :+1:]")]
    assert len(place.posts(1)) == 1 and place.rig.messages()[-1] == "react"


@pytest.mark.covers("A-181", "A-015", "E-291")
def test_each_workspace_is_a_channel_of_its_own_and_the_loss_of_one_touches_no_other(tmp_path: Path) -> None:
    with workspace() as space, workspace("T0OTHER", ("xoxb-2", "xapp-2")) as other:
        given = {"enabled": True, "api_url": other.url, "bot_token": "xoxb-2", "app_token": "xapp-2"}
        given |= {"allow_from": [f"T0OTHER/{BEN}"]}
        with channel_rig.running(tmp_path, keys(space) | channel_rig.settings("channels.slack.workspaces.other", given)) as rig:
            rig.until_connected("slack")
            rig.until_connected("slack-other")
            space.event("first", ts="5.1")
            other.event("second", ts="5.1")
            until(lambda: len(space.posts()) == len(other.posts()) == 1, lambda: f"{space.calls} {other.calls}")
            assert (
                rig.session_of("first")[0] == f"slack:{TEAM}/{BEN}" and rig.session_of("second")[0] == f"slack-other:T0OTHER/{BEN}"
            )
            other.stop()
            until(lambda: rig.state("slack-other").state == "failing", "the loss is noticed")
            space.event("still here")
            until(lambda: len(space.posts()) == 2, "it is answered")
            until(rig.quiet, "it is counted")
            state = rig.state("slack")
            assert (state.state, state.taken, state.sent, state.failed, state.restarts) == ("connected", 2, 2, 0, 0)
            assert rig.state("slack-other").key == "channels.slack.workspaces.other"
            text = rig.core.model_parts.watching.metrics()["text"]
            for outcome, count in (("taken", 2), ("sent", 2)):
                assert f'owlbox_channel_messages_total{{channel="slack",outcome="{outcome}"}} {count}' in text
            other.start()


MALFORMED: tuple[dict[str, Any], ...] = (
    {"files": "x"},
    {"files": [1, {"size": "many", "name": 3, "url_private": ["x"]}]},
    {"text": ["x"]},
    {"text": {"a": 1}, "thread_ts": {"b": 2}},
    {"user": {"id": "U0BEN"}},
    {"channel": ["C1"], "ts": 5},
    {"type": "reaction_added", "item": "x"},
    {"type": "reaction_added", "item": {"channel": "D0DM", "ts": "9.1"}, "reaction": 5, "item_user": BOT},
    {"ts": "9" * 400},
    {"text": "x" * 200_000},
    {"subtype": ["a"]},
    {"type": ["message"]},
)


def test_malformed_events_are_confirmed_and_refused_and_the_connection_stays(place: Place) -> None:
    before, restarts = len(place.rig.messages()), place.rig.state("slack").restarts
    for number, more in enumerate(MALFORMED):
        place.space.event(**{"text": "malformed", "ts": f"4.{number}", "user": "U0MAL", **more})
    for data in (
        "[]",
        "5",
        "null",
        '{"envelope_id": 5}',
        '{"envelope_id": "e9"}',
        '{"envelope_id": "e8", "payload": {"event": []}}',
    ):
        place.space.sockets[-1].send(data)
    place.space.event("sound")
    place.posts(1)
    assert place.rig.messages()[before:] == ["sound"] and place.rig.state("slack").restarts == restarts


@pytest.mark.covers("A-181")
def test_in_a_channel_mentions_and_the_trigger_are_answered_in_a_thread(place: Place) -> None:
    before = len(place.rig.messages())
    place.space.event("among us", user=EVE, channel="C0TEA")
    place.space.event(f"<@{BOT}> tea?", user=EVE, channel="C0TEA", ts="7.1")
    place.space.event(f"<@{BOT}> tea?", user=EVE, channel="C0TEA", ts="7.1", type="app_mention")
    place.space.event("@owlbox cake?", user=EVE, channel="C0TEA", ts="7.2", thread_ts="7.1")
    assert sorted(one["thread_ts"] for one in place.posts(2)) == ["7.1", "7.1"] and len(place.space.posts()) == 2
    assert place.rig.messages()[before:] == ["tea?", "@owlbox cake?"]
    assert place.rig.session_of("tea?")[1].startswith("group:c0tea-")


def test_strangers_robots_and_malformed_events_are_refused_without_a_model(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    before = len(place.rig.messages())
    with caplog.at_level(logging.WARNING):
        place.space.event("let me in", user=EVE)
        place.space.event("again", user=EVE)
        place.space.event("from a bot", bot_id="B1")
        place.space.event("ours", user=BOT)
        place.space.event("changed", subtype="message_changed")
        place.space.event("elsewhere", payload_team="T0OTHER")
        place.space.event("odd", user="../../etc")
        place.space.send({"type": "events_api", "payload": "text", "envelope_id": "e1"})
        place.space.event("a friend after all")
        place.posts(1)
    assert place.rig.messages()[before:] == ["a friend after all"]
    assert len([one for one in caplog.records if "U0EVE" in one.getMessage()]) == 1


@pytest.mark.covers("S-120", "A-015")
def test_lost_answers_are_marked_limits_are_kept_and_a_restart_loses_nothing(place: Place) -> None:
    place.space.plan = ["limited", "hang-up"]
    place.space.event("please")
    assert [one["markdown_text"] for one in place.posts(2)] == [SAID, f"(This may be a repeat.)\n{SAID}"]
    place.space.send({"type": "disconnect", "envelope_id": "none", "reason": "refresh_requested"})
    place.space.open_envelopes.clear()
    place.space.event("after the refresh")
    place.posts(3)
    place.space.stop()
    until(lambda: place.rig.state("slack").state == "failing", "the loss is noticed")
    place.space.event("meanwhile")
    place.space.start()
    place.posts(4)
    assert "meanwhile" in place.rig.messages()
    place.space.plan = ["channel_not_found"]
    place.rig.core.outbox.put(Notification("gone", "x", "hi", channel="slack", metadata={"slack": {"channel": "C9"}}), durable=True)
    until(lambda: place.rig.core.outbox.find("gone").status == "failed", "it is given up")


@pytest.mark.covers("S-108")
@pytest.mark.parametrize(("tier", "said"), [("tiny", "Sent the file Boiler manual.pdf."), ("able", "It is on its way.")])
def test_a_file_that_is_asked_for_is_uploaded(place: Place, tier: str, said: str) -> None:
    data = place.rig.put_manual()
    place.space.files.pop("/upload/F1", None)
    with place.rig.tier(tier):
        place.space.event("Send me the boiler manual")
        place.posts(1)
    assert place.space.files["/upload/F1"] == data
    assert [one["markdown_text"] for one in place.space.posts()] == [said], "its name stands at the file"


def test_files_come_and_go_and_the_token_goes_to_slack_alone(place: Place) -> None:
    place.space.files["/files/a.txt"] = b"tea"
    url = f"http://127.0.0.1:{place.space.port}/files/a.txt"
    files = [{"name": "a.txt", "mimetype": "text/plain", "size": 3, "url_private_download": url}]
    place.space.event("see", subtype="file_share", files=[*files, {"name": "b", "url_private": "https://evil.test/x"}])
    place.posts(1)
    said = place.rig.messages()[-1]
    assert "'a.txt' (text/plain, 3 bytes): /work/incoming/owlbox-" in said and "is not there: the file lies at evil.test" in said
    session = place.rig.session_of("see")[0]
    folder = place.rig.core.commands.bench.folder(session)
    (folder / "plan.txt").write_text("step one")
    person = place.rig.core.base.people.resolve("slack", f"{TEAM}/{BEN}")
    note = Notification(
        "f", person, "here", session=session, channel="slack", attachment="plan.txt", metadata={"slack": {"channel": "D0DM"}}
    )
    place.rig.core.outbox.put(note, durable=True)
    place.posts(2)
    assert place.space.files["/upload/F1"] == b"step one"
    for address in ("http://slack.com/x", "https://slack.com.evil.test/x", "https://evilslack.com/x"):
        with pytest.raises(Refused):
            SlackApi("https://slack.com/api").download(address, "token", 10)


@pytest.mark.covers("A-181")
def test_a_forwarded_message_is_read_and_is_none_of_the_sender_s_words(place: Place) -> None:
    shared = [
        {"is_share": True, "author_name": "Cleo", "text": "The gate is <https://x.org/g|open>.\nShut it."},
        {"text": "no share"},
        7,
    ]
    place.space.event("what is this?", attachments=shared)
    place.posts(1)
    text = "what is this?\n\n[forwarded from Cleo]\n> The gate is open (https://x.org/g).\n> Shut it."
    run, event = place.rig.core.store.rows("SELECT run, content FROM events WHERE role = 'user' ORDER BY id DESC LIMIT 1")[0]
    assert event.startswith(text) and "no share" not in event
    place.space.event("", attachments=shared)
    place.posts(2)
    assert place.rig.messages()[-1].startswith("[forwarded from Cleo]")


def test_marks_of_slack_are_read_as_people_do_and_the_tokens_are_tried(place: Place) -> None:
    assert (
        plain_text("see <https://x.org/a|the page> and <https://y.org> &amp; &lt;b&gt;")
        == "see the page (https://x.org/a) and https://y.org & <b>"
    )
    written = "<http://example.org|example.org> <mailto:a@b.org|a@b.org> <tel:+4930|call us> <#C1|birds> <@U1|ben> <@U2> <!here>"
    assert plain_text(written) == "example.org a@b.org call us (+4930) #birds @ben @U2 @here"
    assert plain_text("<!date^139^{date}|18 February> <!subteam^S1|@team> 1 < 2 <") == "18 February @team 1 < 2 <"
    assert place.rig.core.connections.test("slack")["tried"] == ["the bot is owl in Birds", "the app may open a socket"]


def test_the_kernel_asks_whether_slack_is_there_and_we_ask_seldom(place: Place) -> None:
    place.rig.until_connected("slack")
    links = [one for one in gc.get_objects() if type(one) is ClientConnection and one.close_code is None]
    assert links and {one.ping_interval for one in links} == {600.0}  # a ping wakes three threads
    for one in links:
        assert one.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert one.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


NOT_ANSWERED = "This could not be answered (interrupted)."
KILLS = {  # after which step, and what stands in the workspace in the end
    "RECEIVED": [SAID],
    "ACCEPTED": [SAID],
    "TURN_BEGUN": [NOT_ANSWERED],
    "LETTER_DELIVERED": [SAID, f"(This may be a repeat.)\n{SAID}"],
}


@pytest.mark.parametrize("step", KILLS)
def test_killed_between_receive_and_send_it_is_answered_once_or_marked(step: str, tmp_path: Path) -> None:
    with workspace() as space:
        space.event("kill")
        channel_rig.kill_at(step, tmp_path, keys(space))
        with channel_rig.running(tmp_path, keys(space)) as rig:
            until(lambda: len(space.shown()) >= len(KILLS[step]), lambda: f"it is answered: {space.shown()}")
            until(lambda: rig.quiet() and not space.open_envelopes, "nothing more is sent")
            assert rig.messages() == ["kill"]
        assert space.shown() == KILLS[step]


def is_ended(shown: list[str]) -> bool:
    """Whether one answer stands there which says that it was interrupted, behind what was kept of it.

    Killed before the name of what was shown was noted, it stands below that, marked.
    """
    ended = r"(one.*\n\n\(The answer ends here|This could not be answered \().*\.\)?"
    marked = r"\(This may be a repeat\.\)\n" if len(shown) == 2 and shown[0].endswith(" …") else ""
    return len(shown) == 1 + bool(marked) and re.fullmatch(marked + ended, shown[-1], re.S) is not None


def test_killed_while_an_answer_is_shown_its_end_takes_the_place_of_what_was_shown(tmp_path: Path) -> None:
    with workspace() as space:
        with channel_rig.serving(tmp_path, keys(space)) as child:
            space.event("something long")
            until(lambda: bool(space.posts()), "it is shown")
            child.kill()
        with channel_rig.running(tmp_path, keys(space)):
            until(lambda: is_ended(space.shown()), lambda: f"it ends: {space.shown()}")
        assert len(space.posts()) == len(space.shown())


CUTS = {  # after how many bytes of the post, and what stands in the workspace in the end
    0: [f"(This may be a repeat.)\n{SAID}"],
    200: [f"(This may be a repeat.)\n{SAID}"],
    LOST_ANSWER: [SAID, f"(This may be a repeat.)\n{SAID}"],
}


def test_a_network_that_is_cut_in_the_middle_of_a_post_costs_no_answer(tmp_path: Path) -> None:
    with workspace() as space, relay(space.port) as wire:
        given = keys(space) | {"OWLBOX__CHANNELS__SLACK__API_URL": f"http://127.0.0.1:{wire.port}/api"}
        with channel_rig.running(tmp_path, given) as rig:
            rig.until_connected("slack")
            for count, stands in CUTS.items():
                space.calls.clear()
                wire.cuts.append((b"chat.postMessage", count))
                space.event("cut it")
                until(lambda: len(space.shown()) >= len(stands), lambda: f"{count}: {space.shown()}", 20)  # noqa: B023
                until(rig.quiet, "nothing more is sent")
                assert space.shown() == stands, count
            assert wire.done == [(b"chat.postMessage", count) for count in CUTS]
