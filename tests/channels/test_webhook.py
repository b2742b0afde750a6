"""Webhooks: signed messages of programs that come in once, and notifications that go out signed, whatever happens on the way."""

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import wire
from process import Box, a_box  # noqa: F401
from test_api import Served, serving
from test_database import until

from appliance.channels.connectors.webhook import Webhook, connect, sign
from appliance.channels.contract import REPEAT
from appliance.channels.gateway import BURST
from appliance.clock import now_ms, sleep_s
from appliance.errors import BadInput, Busy, Lost, NotFound, Refused, Unavailable
from appliance.records import Outbound
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.service.daemon import build_gate
from appliance.service.parts.programs import open_programs
from appliance.sessions.outbox import Notification

SECRET, OURS = "the doorbell's secret", "the secret of what is sent"
TABLE = "[outbox]\nretry_s = 0.1\n"
TABLE += f"[channels.webhook]\nenabled = true\nurl = '%s/in'\nkey = '{OURS}'\nsources = {{ doorbell = \"{SECRET}\" }}\n"


@pytest.fixture(scope="module")
def listener() -> Iterator[Any]:
    with wire.playing(*[wire.Status(200, {})] * 50) as server:
        yield server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, listener: Any) -> Iterator[Served]:
    def furnish(home: Home) -> None:
        home.config.write_text(TABLE % listener.url)

    answers = {"rings": [{"text": "Somebody is there.", "repeat": True}]}
    with serving(tmp_path_factory.mktemp("hooks"), answers, furnish) as made:
        server = open_programs(made.core, build_gate(made.core))
        assert server is not None
        server.start()
        made.core.connections.start()
        until(lambda: made.core.connections.channel_states()["webhook"] is True)
        yield made
        server.close()
        made.core.connections.close()


def post(served: Served, text: Any, message_id: str = "m", source: str = "doorbell", **wrong: Any) -> httpx2.Response:
    """Send a webhook; `wrong` are headers that replace the right ones, or a body."""
    body = wrong.pop("body", json.dumps({"text": text}).encode())
    timestamp = wrong.pop("timestamp", str(now_ms() // 1000))
    signature = wrong.pop("signature", sign(wrong.pop("secret", SECRET), message_id, timestamp, body))
    headers = {"X-Owlbox-Id": message_id, "X-Owlbox-Timestamp": timestamp, "X-Owlbox-Signature": signature}
    headers = {name: value.encode("latin-1") for name, value in headers.items()}
    path = str(paths.programs_socket(served.core.runtime))
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=30) as client:
        return client.post(f"http://localhost/hooks/{source}", content=body, headers=headers)


@pytest.mark.covers("A-184", "A-183")
def test_a_signed_message_is_untrusted_text_in_a_thread_of_its_source_and_its_answer_goes_out(
    served: Served, listener: Any
) -> None:
    assert post(served, "[rings] at the door", "ring-1").status_code == 202
    run = served.core.runs.list_runs(limit=1)[0]
    assert run.session == "webhook:doorbell"
    until(lambda: served.core.runs.get(run.id).status == 200)
    assert "person:doorbell" in served.core.runs.get(run.id).origins
    served.core.queue.courier.flush()
    until(lambda: any(b"Somebody is there." in json.dumps(one.body).encode() for one in listener.seen))
    sent = next(one for one in listener.seen if one.body.get("text") == "Somebody is there.")
    assert sent.path == "/in" and sent.body["in_reply_to"] == "ring-1" and sent.body["thread"] == run.id
    headers = {name.lower(): value for name, value in sent.headers.items()}
    raw = json.dumps(sent.body, ensure_ascii=False).encode()
    assert headers["x-owlbox-signature"] == sign(OURS, headers["x-owlbox-id"], headers["x-owlbox-timestamp"], raw)


def test_what_comes_again_is_refused_and_after_a_restart_does_nothing(served: Served) -> None:
    now = str(now_ms() // 1000)
    assert [post(served, "[rings] twice", "ring-2", timestamp=now).status_code for _ in range(3)] == [202, 409, 409]
    served.core.connections.close()
    served.core.connections.start()
    until(lambda: served.core.connections.channel_states()["webhook"] is True)
    assert post(served, "[rings] twice", "ring-2", timestamp=now).status_code == 202  # taken before, and done once
    said = [e for run in served.core.runs.list_runs(limit=50) for e in served.core.runs.events(run.id) if e.role == "user"]
    assert sum("twice" in event.content for event in said) == 1


OLD, FUTURE = str(now_ms() // 1000 - 400), str(now_ms() // 1000 + 86_400)  # far away also for a run that takes long


def test_a_stranger_is_in_the_log_once_however_often_it_tries_and_no_model_is_asked(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    loops = served.core.store.value("SELECT COUNT(*) FROM loops")
    with caplog.at_level(logging.WARNING):
        for source in ("doorbell", "burglar"):
            for number in range(3):
                answer = post(served, "let me in", f"try-{source}-{number}", source=source, secret="a guess of mine")
                assert answer.status_code == 403
    for source in ("doorbell", "burglar"):
        assert len([one for one in caplog.records if f"of {source}: the signature is wrong" in one.getMessage()]) == 1
    assert served.core.store.value("SELECT COUNT(*) FROM loops") == loops


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"secret": "another secret of somebody"}, 403),
        ({"signature": "v1=00"}, 403),
        ({"signature": "v1=\xff"}, 403),
        ({"signature": ""}, 400),
        ({"timestamp": OLD}, 403),
        ({"timestamp": FUTURE}, 403),
        ({"timestamp": "soon"}, 403),
        ({"timestamp": "\xb2" * 10}, 403),
        ({"source": "stranger"}, 403),
        ({"source": "doorbell/x"}, 400),
        ({"body": b"no json"}, 400),
        ({"body": b"\xff\xfe"}, 400),
        ({"body": b"[]"}, 400),
        ({"body": json.dumps({"text": "x" * 10_241}).encode()}, 413),
        ({"body": b'{"text": "' + b"x" * 70_000 + b'"}'}, 413),
        ({"text": " "}, 400),
        ({"text": 7}, 400),
    ],
)
def test_what_is_wrong_is_refused_and_begins_nothing(served: Served, given: dict[str, Any], status: int) -> None:
    before = served.core.store.value("SELECT COUNT(*) FROM events")
    answer = post(served, **{"text": "x", "message_id": f"wrong-{status}", **given})
    assert answer.status_code == status, answer.text
    assert SECRET not in answer.text and served.core.store.value("SELECT COUNT(*) FROM events") == before


def test_a_notification_whose_arrival_nobody_knows_comes_again_with_a_mark_and_the_same_id(served: Served, listener: Any) -> None:
    def told() -> list[str]:
        served.core.queue.courier.flush()
        return [one.body["text"] for one in listener.seen if one.body.get("id") == "told-1"]

    until(lambda: told() == [] and not served.core.outbox.counts().get("waiting") and not served.core.inbox.busy())
    listener.answers.insert(0, wire.HangUp())
    served.core.queue.outbox.put(Notification("told-1", "root", "The tea is ready.", channel="webhook"), durable=True)
    until(lambda: len(told()) == 2)
    assert told() == ["The tea is ready.", f"{REPEAT}\nThe tea is ready."]


def test_a_burst_of_a_source_is_taken_as_fast_as_it_may_write_and_a_killed_core_takes_nothing_twice(box: Box) -> None:
    """The sender repeats what it was not told is taken, under the same id."""
    box.home.config.write_text(f'[channels.webhook]\nenabled = true\nsources = {{ doorbell = "{SECRET}" }}\n')
    core = box.serve()
    until(lambda: box.json("channel", "list")[-1]["state"] == "connected")
    statuses: list[int] = []

    def send() -> None:
        for number in range(60):
            while (status := _try_post(box, number)) not in (202, 409):
                statuses.append(status)
                sleep_s(0.1)
            statuses.append(status)

    sender = threading.Thread(target=send)
    sender.start()
    until(lambda: statuses.count(202) >= 20)
    core.kill()
    box.serve()
    sender.join(120)
    assert not sender.is_alive() and set(statuses) <= {0, 202, 409, 503}, statuses
    with box.store() as store:
        sql = "SELECT content FROM events WHERE kind = 'message' AND role = 'user' ORDER BY id"
        assert [str(row[0]) for row in store.rows(sql)] == [f"ring {number}" for number in range(60)]
    later = (_try_post(box, 1000 + number) for number in range(3 * BURST))  # a slow machine earns new ones meanwhile
    assert 503 in later, "whoever writes too much is told to come later"


def _try_post(box: Box, number: int) -> int:
    """The status, 0 for nobody there."""
    body, now = json.dumps({"text": f"ring {number}"}).encode(), str(now_ms() // 1000)
    headers = {"X-Owlbox-Id": f"b{number}", "X-Owlbox-Timestamp": now, "X-Owlbox-Signature": sign(SECRET, f"b{number}", now, body)}
    try:
        # Without reading certificates, which a socket has none of: that took more time than the posting.
        transport = httpx2.HTTPTransport(uds=str(box.runtime / "programs.sock"), verify=False)
        with httpx2.Client(transport=transport, timeout=30) as client:
            return client.post("http://localhost/hooks/doorbell", content=body, headers=headers).status_code
    except httpx2.TransportError:
        return 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [(200, None), (503, Unavailable), (429, Busy), (401, Refused), (404, Refused), ("hangs up", Lost), ("nobody", Unavailable)],
)
def test_an_answer_says_whether_it_arrived(answer: Any, error: type[Exception] | None) -> None:
    message = Outbound("webhook:x", "hello", key="k1")
    plays = [wire.Status(answer, {})] if isinstance(answer, int) else [wire.HangUp()] if answer == "hangs up" else []
    with wire.playing(*plays) as server:
        url = server.url
        if answer != "nobody":
            channel = Webhook(url, OURS, {}, str)
            if error is None:
                channel.deliver(message)
            else:
                with pytest.raises(error) as raised:
                    channel.deliver(message)
                assert type(raised.value) is error or error is Unavailable
            channel.close()
    if answer == "nobody":
        channel = Webhook(url, OURS, {}, str)
        with pytest.raises(Unavailable) as raised:
            channel.deliver(message)
        assert not isinstance(raised.value, Lost)
        channel.close()


def test_settings_that_cannot_be_are_told() -> None:
    with pytest.raises(BadInput, match="key: is needed"):
        connect("https://example.org/in", secret=str)
    with pytest.raises(BadInput, match="fewer than 16"):
        Webhook("", "", {"x": "short"}, str).check()
    with pytest.raises(NotFound, match="url is not set"):
        Webhook("", "", {}, str).deliver(Outbound("webhook:x", "hello"))
    assert Webhook("http://10.0.0.5/x", OURS, {}, str).warnings() and not Webhook("http://localhost/x", OURS, {}, str).warnings()
