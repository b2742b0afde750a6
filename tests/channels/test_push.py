"""Push: what is told to a person reaches their devices once, encrypted, with the words they chose, and nothing unasked.

A core with its sender, and push services on loopback that decrypt; kills are those of a process of its own.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from channel_rig import Rig, kill_at, running, settings
from process import ROOT, Box, a_box, until  # noqa: F401
from push_service import Device, PushService, serving

from appliance.channels.connectors.push import connect as connect_push
from appliance.channels.contract import REPEAT
from appliance.errors import BadInput, Busy, ConfigError, Conflict, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.records import Outbound
from appliance.runtime.methods import LocalCall
from appliance.sessions.logins import LoginsEnded
from appliance.sessions.outbox import Notification, Posting

WAYS = ("push", "unifiedpush", "ntfy")
NEAR = {
    "tools.web": {"private_networks": ["127.0.0.0/8"], "requests_per_minute": 1000},
    "outbox": {"retry_s": 0.05, "retry_max_s": 0.1},
}
NEAR["notifications"] = {"quiet_from": "00:00", "quiet_until": "00:00"}  # type: ignore[dict-item]


def environ(service: PushService, *ways: str, **more: dict[str, Any]) -> dict[str, str]:
    tables: dict[str, dict[str, Any]] = {**NEAR, **{f"channels.{way}": {"enabled": True} for way in ways}, **more}  # type: ignore[dict-item]
    if "ntfy" in ways:
        tables["channels.ntfy"] = {"enabled": True, "url": service.url}
    return {name: value for table, keys in tables.items() for name, value in settings(table, keys).items()}


@pytest.fixture(scope="module")
def service() -> Iterator[PushService]:
    with serving() as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, service: PushService) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("push"), environ(service, *WAYS)) as rig:
        for way in WAYS:
            rig.until_connected(way)
        yield rig


@pytest.fixture
def rig(shared: Rig, service: PushService) -> Iterator[Rig]:
    yield shared
    until(shared.quiet, "all is told")
    for one in shared.core.push.list_subscriptions(everybody=True, call=LocalCall()):
        shared.core.push.unsubscribe(one.id, one.person, call=LocalCall())
    service.plan.clear()
    service.taken.clear()
    service.always, service.body = 201, b""


def call(rig: Rig, method: str, by: str = "", **params: Any) -> Any:
    return rig.core.table.call(LocalCall(person=by), method, params)


def subscribe(rig: Rig, service: PushService, path: str, person: str = "ann", **more: Any) -> tuple[Device, str]:
    """A device of a person that is told from now on; its id."""
    device = Device()
    given = {"way": "push", "endpoint": f"{service.url}{path}", "person": person, **device.keys, **more}
    made = call(rig, "push.subscribe", **given)
    until(lambda: service.told(device, path), "it is greeted")
    return device, made["id"]


def tell(rig: Rig, text: str, person: str = "ann", key: str = "", **about: Any) -> str:
    made = Notification(key or f"message:{text}", person, text, **about)
    rig.core.outbox.put(made, durable=True)
    return made.key


def copies(rig: Rig, key: str) -> list[Posting]:
    return [one for one in rig.core.outbox.list_postings(limit=200) if one.notification.key.startswith(f"{key}@")]


def test_a_reminder_reaches_each_device_once_with_the_words_that_were_chosen(rig: Rig, service: PushService) -> None:
    phone, _ = subscribe(rig, service, "/phone", shows="text", name="Ann's phone")
    tablet, _ = subscribe(rig, service, "/tablet")
    key = tell(rig, "Ring the **plumber**", key="schedule:1:now", metadata={"schedule": "1", "urgency": "now"})
    until(rig.quiet, "all is told")
    assert [one["body"] for one in service.told(phone, "/phone")][1:] == ["Ring the **plumber**"]
    assert [one["body"] for one in service.told(tablet, "/tablet")] == ["The owl has a message for you.", "The owl has a reminder."]
    assert rig.core.outbox.find(key).status == "sent", "and it stands in the conversation"
    assert [one.status for one in copies(rig, key)] == ["sent", "sent"]
    assert b"plumber" not in b"".join(one.body for one in service.taken), "nobody on the way reads it"
    claims = service.check_signature(service.taken[-1])
    assert claims["aud"] == service.url and claims["sub"].startswith("mailto:") and claims["key"] == call(rig, "push.key")["key"]
    headers = service.taken[-1].headers
    assert (headers["ttl"], headers["urgency"], headers["content-encoding"]) == ("86400", "high", "aes128gcm")
    assert len(headers["topic"]) == 32 and headers["topic"] == service.told(tablet, "/tablet")[-1]["tag"]
    tell(rig, "Ring the **plumber**", key=key)
    until(rig.quiet, "all is told")
    assert len(service.taken) == 4, "put once more it is told no more"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("task:4:1:complete", "A task has ended."),
        ("job:4", "A task has ended."),
        ("proposal:7:1", "The owl asks for your approval."),
        ("held:7:1", "The owl asks for your approval."),
        ("answer:9", "The owl has answered."),
        ("message:9", "The owl has a message for you."),
    ],
)
def test_a_hint_says_of_what_kind_it_is_and_nothing_else(rig: Rig, service: PushService, key: str, hint: str) -> None:
    device, _ = subscribe(rig, service, "/hint")
    tell(rig, "the secret of the barn", key=key)
    until(lambda: len(service.told(device, "/hint")) == 2, "it is told")
    told = service.told(device, "/hint")[1]
    assert told["body"] == hint and "barn" not in json.dumps(told)


def test_what_is_for_others_for_groups_and_for_other_channels_is_copied_nowhere(rig: Rig, service: PushService) -> None:
    subscribe(rig, service, "/ann")
    tell(rig, "for ben", person="ben")
    tell(rig, "for the family", person="group:family")
    tell(rig, "ann in the family", context="group:family")
    tell(rig, "by mail", channel="email")
    rig.core.store.rows("SELECT 1")
    until(lambda: len(service.taken) == 1 and not rig.core.outbox.counts().get("sending"), "nothing more is sent")
    assert [one.notification.channel for one in rig.core.outbox.list_postings(limit=4)] == ["email", "", "", ""]
    for one in rig.core.outbox.list_postings(status="waiting"):
        rig.core.outbox.cancel(one.id)


def test_a_reminder_that_insists_on_push_reaches_the_devices_of_push_alone(rig: Rig, service: PushService) -> None:
    device, _ = subscribe(rig, service, "/phone")
    subscribe(rig, service, "/app", way="unifiedpush")
    key = tell(rig, "by push", channel="push")
    until(rig.quiet, "all is told")
    assert [one.notification.channel for one in copies(rig, key)] == ["push"] and len(service.told(device, "/phone")) == 2
    assert rig.core.outbox.find(key).status == "sent"
    tell(rig, "x", "ben", channel="push")
    until(lambda: rig.core.outbox.find("message:x").status == "failed", "who has no device is not told, which is said")


def test_a_device_that_is_gone_is_forgotten_and_its_person_told(rig: Rig, service: PushService) -> None:
    for status in (404, 410):
        device, id = subscribe(rig, service, f"/{status}", name="Ann's phone")
        other, other_id = subscribe(rig, service, f"/other{status}", shows="text")
        service.plan += [(status, {})]
        rig.core.outbox.put(
            Notification(f"only:{status}", "ann", "Hoot", session=f"push:{id}", channel="push", metadata={"subscription": id})
        )
        until(lambda: "is gone" in str(service.told(other, f"/other{status}")), "the other one says so")  # noqa: B023
        assert [one["id"] for one in call(rig, "push.list", person="ann")] == [other_id]
        assert rig.core.outbox.find(f"only:{status}").status == "cancelled"
        assert "Ann's phone gets no notifications any more" in rig.core.outbox.told("ann", 5)[0].notification.text
        taken = len([one for one in service.taken if one.path == f"/{status}"])
        tell(rig, f"after {status}")
        until(rig.quiet, "all is told")
        assert len([one for one in service.taken if one.path == f"/{status}"]) == taken
        call(rig, "push.unsubscribe", id=other_id, person="ann")


def test_what_fails_is_tried_again_and_a_busy_service_costs_no_attempt(rig: Rig, service: PushService) -> None:
    device, _ = subscribe(rig, service, "/flaky")
    service.plan += [(500, {}), (429, {"Retry-After": "0"}), (502, {})]
    key = tell(rig, "in the end")
    until(lambda: service.plan == [(502, {})] or not service.plan, "two were refused", 30)
    posting = copies(rig, key)[0]
    assert posting.attempts <= 2 and posting.status in ("waiting", "sending"), "a 429 is no attempt"
    rig.core.outbox.hasten("push")
    until(lambda: [one.status for one in copies(rig, key)] == ["sent"], "it is told", 30)
    assert len(service.told(device, "/flaky")) == 5 and len({one["tag"] for one in service.told(device, "/flaky")[1:]}) == 1


def test_only_subscriptions_that_can_be_are_kept(rig: Rig, service: PushService) -> None:
    keys = Device().keys
    wrong: list[tuple[dict[str, Any], type[OwlError]]] = [
        ({"endpoint": "http://push.example.org/x"}, Refused),
        ({"endpoint": "http://10.0.0.7/x"}, Refused),
        ({"endpoint": "https://192.168.1.1/x"}, Refused),
        ({"endpoint": "https://169.254.169.254/latest"}, Refused),
        ({"endpoint": "https://[::1]/x"}, Refused),
        ({"endpoint": "https://[::ffff:10.0.0.1]/x"}, Refused),
        ({"endpoint": "https://0x7f.1:22/x"}, Refused),
        ({"endpoint": "https://push.example.org:25/x"}, Refused),
        ({"endpoint": "file:///etc/passwd"}, OwlError),
        ({"endpoint": "https://ann:pw@push.example.org/x"}, OwlError),
        ({"endpoint": "https://push.example.org/\r\nX: y"}, OwlError),
        ({"endpoint": f"https://push.example.org/{'x' * 1000}"}, OwlError),
        ({"endpoint": ""}, BadInput),
        ({"endpoint": f"{service.url}/x", "key": ""}, BadInput),
        ({"endpoint": f"{service.url}/x", "auth": keys["auth"] + "AAAA"}, BadInput),
        ({"endpoint": f"{service.url}/x", "shows": "all"}, BadInput),
        ({"endpoint": f"{service.url}/x", "way": "matrix"}, BadInput),
        ({"endpoint": "a topic", "way": "ntfy", "key": "", "auth": ""}, BadInput),
        ({"endpoint": "../admin", "way": "ntfy", "key": "", "auth": ""}, BadInput),
        ({"endpoint": "owl", "way": "ntfy"}, BadInput),
    ]
    for given, error in wrong:
        with pytest.raises(error):
            call(rig, "push.subscribe", **{"way": "push", "person": "ann", **keys, **given})
    assert call(rig, "push.list", everybody=True) == [] and service.taken == []


def test_a_person_has_ten_and_the_same_device_counts_once(rig: Rig, service: PushService) -> None:
    device, id = subscribe(rig, service, "/0", name="old")
    for number in range(1, 10):
        call(rig, "push.subscribe", way="push", endpoint=f"{service.url}/{number}", person="ann", **Device().keys)
    with pytest.raises(TooLarge):
        call(rig, "push.subscribe", way="push", endpoint=f"{service.url}/11", person="ann", **Device().keys)
    again = call(rig, "push.subscribe", way="push", endpoint=f"{service.url}/0", person="ann", name="new", **device.keys)
    assert again["id"] == id and len(call(rig, "push.list", person="ann")) == 10
    assert [one["name"] for one in call(rig, "push.list", person="ann") if one["id"] == id] == ["new"]


def test_a_device_changes_hands_with_its_secret_and_nobody_takes_one_by_its_address(rig: Rig, service: PushService) -> None:
    device, id = subscribe(rig, service, "/tablet", name="tablet")
    for keys in (Device().keys, {**device.keys, "auth": Device().keys["auth"]}):
        with pytest.raises(Conflict):
            call(rig, "push.subscribe", "ben", way="push", endpoint=f"{service.url}/tablet", **keys)
    topic = call(rig, "push.subscribe", way="ntfy", person="ann")["endpoint"]
    with pytest.raises(Conflict):
        call(rig, "push.subscribe", way="ntfy", endpoint=topic, person="ben")
    assert {one["person"] for one in call(rig, "push.list", everybody=True)} == {"ann"}
    call(rig, "push.subscribe", way="push", endpoint=f"{service.url}/tablet", person="ben", **device.keys)
    assert [one["id"] for one in call(rig, "push.list", person="ben")] == [id]
    assert "tablet tells ben from now on" in rig.core.outbox.list_postings(context="user:ann", limit=1)[0].notification.text or any(
        "tablet tells ben" in one.notification.text for one in rig.core.outbox.list_postings(context="user:ann")
    )
    call(rig, "push.unsubscribe", id=topic and call(rig, "push.list", person="ann")[0]["id"], person="ann")


def test_who_logs_in_sees_and_ends_only_their_own(rig: Rig, service: PushService) -> None:
    _, id = subscribe(rig, service, "/ann")
    rig.core.base.people.ensure_person("eve")
    assert call(rig, "push.list", "eve") == []
    for method, given in (
        ("push.list", {"person": "ann"}),
        ("push.list", {"everybody": True}),
        ("push.unsubscribe", {"id": id, "person": "ann"}),
        ("push.subscribe", {"way": "ntfy", "person": "ann"}),
    ):
        with pytest.raises(Refused):
            call(rig, method, "eve", **given)
    with pytest.raises(NotFound):
        call(rig, "push.unsubscribe", "eve", id=id)
    assert "endpoint" not in json.dumps(call(rig, "push.list", person="ann")) and "/ann" not in json.dumps(
        call(rig, "people.show", person="ann")
    )


def test_a_login_that_is_ended_takes_its_device_along(rig: Rig, service: PushService) -> None:
    class LoggedIn(LocalCall):
        login = "login-1"

    given = {"way": "push", "endpoint": f"{service.url}/phone", **Device().keys}
    rig.core.base.people.ensure_person("ann")
    mine = LoggedIn(person="ann")
    mine.login = "login-1"
    rig.core.table.call(mine, "push.subscribe", given)
    _, kept = subscribe(rig, service, "/other")
    rig.core.events.publish(LoginsEnded(("login-1", "login-2")))
    assert [one["id"] for one in call(rig, "push.list", person="ann")] == [kept]


def test_a_person_who_is_deactivated_is_told_nothing_and_one_who_is_removed_has_no_device(rig: Rig, service: PushService) -> None:
    subscribe(rig, service, "/carl", "carl")
    call(rig, "people.activate", person="carl", is_active=False)
    tell(rig, "hush", "carl")
    until(rig.quiet, "all is decided")
    assert len(service.taken) == 1
    call(rig, "people.activate", person="carl")
    call(rig, "people.remove", person="carl")
    tell(rig, "hush again", "carl")
    until(rig.quiet, "all is decided")
    assert len(service.taken) == 1 and call(rig, "push.list", everybody=True) == []


def test_titles_and_texts_are_plain_cut_and_show_what_cannot_be_seen(rig: Rig, service: PushService) -> None:
    device, _ = subscribe(rig, service, "/evil", shows="text", name="<b>\u202ephone\n")
    tell(rig, "<img src=x onerror=alert(1)> \u202eevil\u200b", key="message:evil")
    tell(rig, "🦉" * 5000, key="message:long")
    until(lambda: len(service.told(device, "/evil")) == 3, "all is told")
    _, evil, long = service.told(device, "/evil")
    assert evil["body"] == "<img src=x onerror=alert(1)> \\u{202e}evil\\u{200b}" and evil["title"] == "Owlbox"
    assert long["body"] == "🦉" * 699 + "…"
    assert call(rig, "push.list", person="ann")[0]["name"] == "<b>\\u{202e}phone"


def test_redirects_are_not_followed_and_huge_answers_not_read(rig: Rig, service: PushService) -> None:
    subscribe(rig, service, "/away")
    service.plan += [(307, {"Location": f"{service.url}/stolen"})]
    first = tell(rig, "redirected")
    until(lambda: [one.status for one in copies(rig, first)] == ["failed"], "it is refused")
    service.body = b"x" * 50_000_000
    second = tell(rig, "huge")
    until(lambda: [one.status for one in copies(rig, second)] == ["sent"], "it is told")
    assert {one.path for one in service.taken} == {"/away"}


def test_a_service_that_never_answers_holds_up_its_person_alone(tmp_path: Path, service: PushService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, running(tmp_path, environ(service, "push")) as rig:
        rig.until_connected("push")
        slow = f"http://127.0.0.1:{silent.getsockname()[1]}/slow"
        call(rig, "push.subscribe", way="push", endpoint=slow, person="eve", **Device().keys)
        device, _ = subscribe(rig, service, "/quick", shows="text")
        tell(rig, "at once")
        until(lambda: [one["body"] for one in service.told(device, "/quick")][1:] == ["at once"], "she is told")
        assert rig.core.outbox.counts()["sending"] == 1, "the other one still waits for an answer"
        waiting = silent.accept()[0]
        silent.close()
        waiting.close()


def test_each_push_is_in_the_audit_log_without_the_address_that_is_a_secret(rig: Rig, service: PushService) -> None:
    subscribe(rig, service, "/capability-7")
    rows = call(rig, "audit.list", kind="fetch", limit=5)
    text = json.dumps(rows, default=str)
    assert service.url in text and "capability-7" not in text


def test_unifiedpush_is_encrypted_as_web_push_is(rig: Rig, service: PushService) -> None:
    device, _ = subscribe(rig, service, "/UP?token=abc", way="unifiedpush", shows="text")
    tell(rig, "for an app")
    until(lambda: len(service.told(device, "/UP?token=abc")) == 2, "it is told")
    assert service.told(device, "/UP?token=abc")[1]["body"] == "for an app"


def test_ntfy_publishes_under_a_topic_that_nobody_guesses(rig: Rig, service: PushService) -> None:
    service.always = 200
    made = call(rig, "push.subscribe", way="ntfy", person="ann", name="my topic")
    assert len(made["endpoint"]) > 20 and "the owl has" not in made["name"]
    tell(rig, "not for the server", metadata={"schedule": "3", "urgency": "now"})
    until(lambda: len(service.taken) == 2, "it is told")
    told = json.loads(service.taken[1].body)
    assert told == {"topic": made["endpoint"], "title": "Owlbox", "message": "The owl has a reminder.", "priority": 4}
    assert service.taken[1].path == "/"


def test_ntfy_marks_what_may_have_arrived_and_says_what_went_wrong(rig: Rig, service: PushService) -> None:
    service.always = 200
    made = call(rig, "push.subscribe", way="ntfy", person="ann", shows="text")
    until(rig.quiet, "it is greeted")
    channel = rig.core.connections.connection("ntfy")
    about = {"metadata": {"subscription": made["id"]}, "key": "k", "person": "ann"}
    channel.deliver(Outbound("", f"{REPEAT}\nhello", **about))
    assert json.loads(service.taken[-1].body)["message"] == f"{REPEAT} hello"
    for status, error in ((401, Refused), (413, TooLarge), (429, Busy), (507, Unavailable), (302, Refused)):
        service.plan += [(status, {})]
        with pytest.raises(error):
            channel.deliver(Outbound("", "hello", **about))
    with pytest.raises(Refused):
        channel.deliver(Outbound("", "hello", **{**about, "person": "eve"}))


def test_the_channels_say_what_they_have_tried_and_count(rig: Rig, service: PushService) -> None:
    subscribe(rig, service, "/phone")
    tried = call(rig, "channel.test", name="push")["tried"]
    assert len(tried) == 2 and service.url in tried[1] and call(rig, "channel.test", name="ntfy")["tried"]
    state = rig.state("push")
    assert state.sent >= 1 and state.taken == 0 and len(service.taken) == 1, "a test sends nothing"
    with pytest.raises(ConfigError):
        connect_push("me", subscriptions=None, fetch=None, secret=str, keep_secret=print)  # type: ignore[arg-type]


def test_without_its_channel_nothing_is_copied_and_nobody_subscribes(tmp_path: Path, service: PushService) -> None:
    with running(tmp_path, environ(service, "push")) as rig:
        rig.until_connected("push")
        subscribe(rig, service, "/phone")
        before = len(service.taken)
    with running(tmp_path, environ(service)) as rig:
        with pytest.raises(NotFound, match="not switched on"):
            call(rig, "push.key")
        key = tell(rig, "nobody hears")
        until(rig.quiet, "all is told")
        assert copies(rig, key) == [] and len(service.taken) == before
    limited = {"tools.web": {"private_networks": ["127.0.0.0/8"], "requests_per_minute": 1}}
    with running(tmp_path, environ(service, "push", **limited)) as rig:
        rig.until_connected("push")
        assert [one["person"] for one in call(rig, "push.list", everybody=True)] == ["ann"], "a restart keeps it"
        first, second = tell(rig, "one"), tell(rig, "two")
        until(lambda: copies(rig, second)[0].error != "", "the second waits")
        assert [copies(rig, key)[0].status for key in (first, second)] == ["sent", "waiting"]
        assert copies(rig, second)[0].attempts == 0, "a limit of our own costs no attempt"


def test_without_a_network_it_waits_and_an_address_of_this_network_is_never_asked(tmp_path: Path) -> None:
    with serving() as service:
        with running(tmp_path, environ(service, "push")) as rig:
            rig.until_connected("push")
            device, id = subscribe(rig, service, "/phone")
    with running(tmp_path, environ(service, "push")) as rig:
        rig.until_connected("push")
        key = tell(rig, "later")
        until(lambda: copies(rig, key) and copies(rig, key)[0].attempts >= 2, "it is tried again")
        assert copies(rig, key)[0].status in ("waiting", "sending") and "connection" in copies(rig, key)[0].error
        assert rig.core.outbox.find(key).status == "sent", "the conversation has it"
    far = environ(service, "push", **{"tools.web": {"private_networks": []}})
    with running(tmp_path, far) as rig:
        rig.until_connected("push")
        until(lambda: copies(rig, key)[0].status == "failed", "what is no longer allowed is refused")
        assert "loopback" in copies(rig, key)[0].error and "/phone" not in copies(rig, key)[0].error, "a path may be a secret"


@pytest.mark.parametrize("step", ["LETTER_TAKEN", "LETTER_DELIVERED"])
def test_killed_in_the_middle_a_device_shows_it_once(tmp_path: Path, step: str) -> None:
    with serving() as service:
        given = environ(service, "push")
        with running(tmp_path, given) as rig:
            rig.until_connected("push")
            device, id = subscribe(rig, service, "/phone", shows="text")
            rig.core.queue.courier.close()
            tell(rig, "once", session=f"push:{id}", channel="push", metadata={"subscription": id})
        kill_at(step, tmp_path, given)
        with running(tmp_path, given) as rig:
            until(rig.quiet, "all is told")
        told = [one for one in service.told(device, "/phone") if one["body"] == "once"]
        assert len(told) == (1 if step == "LETTER_TAKEN" else 2) and len({one["tag"] for one in told}) == 1, "one stands there"


def test_nothing_of_push_is_imported_while_it_is_off() -> None:
    program = "import sys, appliance.service.core; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert not {"cryptography", "appliance.secrets.web_push", "requests"} & set(done.stdout.split())


def test_errors_of_a_service_are_told_apart(rig: Rig, service: PushService) -> None:
    channel = rig.core.connections.connection("push")
    _, id = subscribe(rig, service, "/status")
    told = Outbound("", "hello", metadata={"subscription": id}, key="k", person="ann")
    answers = (
        (401, Unavailable),
        (403, Unavailable),
        (400, Unavailable),
        (413, TooLarge),
        (429, Busy),
        (503, Unavailable),
        (301, Refused),
    )
    for status, error in answers:
        service.plan += [(status, {"Location": "/x"} if status == 301 else {})]
        with pytest.raises(error):
            channel.deliver(told)
    with pytest.raises(NotFound):
        channel.deliver(Outbound("", "hello", metadata={"subscription": "none"}, key="k", person="ann"))
    with pytest.raises(Refused):
        channel.deliver(Outbound("", "hello", metadata={"subscription": id}, key="k", person="eve"))
    with pytest.raises(NotFound):
        channel.deliver(Outbound("", "hello", key="k", person="ben"))
    channel.deliver(Outbound("", " ", key="k"))
