"""A person who is deactivated: cut off at every way in and out at once, and served again with the same addresses, keys and logins.

One core behind its socket and its socket of programs, and one person who comes by browser, token, ssh key, the machine itself and a
channel. The page in a browser and a real sshd are asked the same in `test_web_page` and `test_ssh`.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
import pytest
from process import until
from test_api import Served, serving

from appliance.channels.contract import Received
from appliance.channels.gateway import Admission, Gateway
from appliance.clock import monotonic_s, new_id, now_ms
from appliance.errors import Conflict, OwlError, Refused
from appliance.language.times.recurrence import interval
from appliance.runtime import paths
from appliance.runtime.jsonrpc import Peer
from appliance.runtime.methods import LocalCall
from appliance.runtime.rpc_client import Client
from appliance.runtime.users import user_name
from appliance.service.daemon import build_gate
from appliance.service.parts.programs import hang_up_on_ended, open_programs
from appliance.sessions.outbox import Notification
from appliance.work.schedules import Action, New
from appliance.work.tasks import NewTask

PASSWORD = "a barn by night"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFHL+RdGVuKJVFrOpBhmSLbtcZ25lJVNiOYwmE4gzdsC ann@laptop"
ADDRESS = "@ann:example.org"
UID = 1  # of `daemon`, which every system has
SLOW = {"text": "one two three four five six seven eight nine ten", "chunk_size": 2, "chunk_delay_s": 0.5, "repeat": True}
ANSWERS: dict[str, Any] = {"slow": [SLOW], "hoot": [{"text": "Hoot.", "repeat": True}]}


@dataclass
class Ann:
    """One person and her ways in; each way raises when she is refused."""

    served: Served
    cookie: str
    token: str
    invite: str
    entrance: Gateway

    @property
    def core(self) -> Any:
        return self.served.core

    def page(self) -> Client:
        """What the HTTP server opens for her browser, or `owlbox web` for a program's token."""
        return Client(self.served.path, name="web", token=self.cookie, timeout_s=60)

    def program(self) -> openai.OpenAI:
        path = str(paths.programs_socket(self.core.runtime))
        http = httpx2.Client(transport=httpx2.HTTPTransport(uds=path), timeout=60)
        return openai.OpenAI(base_url="http://localhost/v1", api_key=self.token, http_client=http, max_retries=0)

    def hear(self, text: str, **more: Any) -> bool:
        """A message of hers in a channel; whether it is taken."""
        return self.entrance.take(Received(new_id(), ADDRESS, text, 1, is_proven=True, **more))

    def ways(self) -> dict[str, Callable[[], object]]:
        logins, call = self.core.policy.logins, self.core.table.call
        return {
            "cookie": lambda: logins.check_token(self.cookie),
            "page": lambda: self.page().call("thread.list", {"limit": 1}),
            "password": lambda: logins.enter_password("ann", PASSWORD, call=LocalCall()),
            "token": lambda: [one.id for one in self.program().models.list()],
            "key": lambda: self.core.policy.ssh_keys.find_person(KEY),
            "this machine": lambda: call(LocalCall(uid=UID), "thread.list", {"limit": 1}),
            "hello from this machine": lambda: build_gate(self.core)(Peer(1, UID, os.getgid()), {}),
            "another server": lambda: call(LocalCall(person="ann"), "thread.list", {"limit": 1}),
            "for a group": lambda: call(LocalCall(uid=UID, context="group:family"), "thread.list", {"limit": 1}),
        }


@pytest.fixture(name="ann")
def an_ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ann]:
    with serving(tmp_path_factory.mktemp("deactivation"), ANSWERS) as served:
        core = served.core
        hang_up_on_ended(core, served.listener.hang_up)
        server = open_programs(core, build_gate(core))
        assert server is not None
        server.start()
        served.call("login.set_password", person="ann", password=PASSWORD)
        served.call("people.key", person="ann", key=KEY)
        for address in (f"chat/{ADDRESS}", f"local/{user_name(UID)}"):
            served.call("people.link", identity=address, person="ann")
        served.call("group.change", group="family", add=["ann"])
        cookie = core.policy.logins.redeem_invite(
            core.policy.logins.invite_person("ann", call=LocalCall()).invite, call=LocalCall()
        ).token
        token = served.call("login.token", name="kitchen", person="ann")["token"]
        entrance = Gateway("chat", Admission("open"), core.connections._parts)
        yield Ann(served, cookie, token, core.policy.logins.invite_person("ann", call=LocalCall()).invite, entrance)
        server.close()


def is_refused(way: Callable[[], object]) -> bool:
    try:
        way()
    except (Refused, openai.AuthenticationError):
        return True
    return False


def test_every_way_in_is_closed_and_opens_again_for_the_same_keys(ann: Ann, caplog: pytest.LogCaptureFixture) -> None:
    asked = ann.served.call("usage.requests", limit=1)
    assert [name for name, way in ann.ways().items() if is_refused(way)] == []
    shown = ann.served.call("people.activate", person="ann", is_active=False)
    listed = {one["name"]: one["is_active"] for one in ann.served.call("people.list")}
    assert shown["is_active"] is False and listed["ann"] is False
    assert [name for name, way in ann.ways().items() if not is_refused(way)] == []
    assert is_refused(lambda: ann.core.policy.logins.redeem_invite(ann.invite, call=LocalCall()))
    for making in ("login.invite", "login.token"):
        with pytest.raises(Refused, match="ann is deactivated"):
            ann.served.call(making, person="ann", **({"name": "x"} if making == "login.token" else {}))
    acting = LocalCall(context="user:ann")
    assert ann.core.table.call(acting, "thread.list", {"limit": 1}) == []
    with pytest.raises(Refused, match="ann is deactivated"):
        ann.core.table.call(acting, "message.send", {"text": "[hoot] in her name"})
    with caplog.at_level(logging.WARNING):
        taken = [
            ann.hear("[hoot] who?"),
            ann.hear("[hoot] who?"),
            ann.hear("[hoot]", room="!r:x.org"),
            ann.hear("x", doubt="unverified"),
        ]
    assert taken == [False] * 4 and ann.served.call("usage.requests", limit=1) == asked
    assert len([one for one in caplog.messages if "refused a message of" in one]) == 1, "logged once"
    assert "SHA256" not in ann.core.home.ssh_keys.read_text()
    noted = [one.kind for one in ann.core.policy.ledger.listing() if one.kind.startswith("person_")]
    assert noted == ["person_deactivated"]
    ann.served.call("people.activate", person="ann")
    assert [name for name, way in ann.ways().items() if is_refused(way)] == [], "the same cookie, password, token and key"
    assert ann.core.policy.logins.redeem_invite(ann.invite, call=LocalCall()).person == "ann" and ann.hear("[hoot] again")
    assert "SHA256" in ann.core.home.ssh_keys.read_text()


def test_what_runs_for_her_ends_at_once_and_what_runs_for_others_goes_on(ann: Ann) -> None:
    """One after the other: the model answers one at a time."""

    def chat(client: Client) -> Iterator[str]:
        yield from (params["text"] for said, params in client.stream("message.send", {"text": "[slow] count"}) if said == "delta")

    def borrow() -> Iterator[str]:
        asked: Any = [{"role": "user", "content": "[slow] count"}]
        told = ann.program().chat.completions.create(model="local", messages=asked, stream=True)
        yield from ((one.choices[0].delta.content or "") for one in told if one.choices)

    def follow(pieces: Callable[[], Iterator[str]]) -> tuple[str, bool]:
        """What is heard of an answer in the middle of which she is deactivated, and whether it ends within two seconds."""
        text, decided_s = "", 0.0
        try:
            for piece in pieces():
                text += piece
                if text and not decided_s:
                    ann.served.call("people.activate", person="ann", is_active=False)
                    decided_s = monotonic_s()
        except (OwlError, openai.APIError, httpx2.HTTPError):
            pass
        lasted_s = monotonic_s() - decided_s
        until(lambda: not ann.core.inbox.busy(), "nothing is answered")
        ann.served.call("people.activate", person="ann")
        return text, lasted_s < 2

    for pieces in (lambda: chat(ann.page()), borrow):
        text, is_quick = follow(pieces)
        assert is_quick and "three" not in text, text
    assert follow(lambda: chat(ann.served.client())) == (SLOW["text"], False)
    assert ann.hear("[slow] in a channel")
    until(lambda: bool(ann.core.inbox.busy()), "it is answered")
    ann.served.call("people.activate", person="ann", is_active=False)
    until(lambda: not ann.core.inbox.busy(), "it is not any more")
    ended = ann.core.store.rows(
        "SELECT l.outcome FROM loops l JOIN runs r ON r.id = l.run JOIN sessions s ON s.id = r.session "
        "WHERE s.person = 'ann' ORDER BY l.id"
    )
    assert [row[0] for row in ended] == ["cancelled", "cancelled"]


def test_nothing_is_sent_due_or_worked_on_for_her_until_she_is_back(ann: Ann) -> None:
    core, sent = ann.core, []
    core.queue.courier.register(
        "chat", type("Chat", (), {"is_idempotent": False, "deliver": lambda self, message: sent.append(message.text)})()
    )
    assert ann.hear("[hoot] first")
    until(lambda: not core.inbox.busy(), "she is answered")
    core.queue.courier.flush()
    assert sent == ["Hoot."]
    ann.served.call("people.activate", person="ann", is_active=False)
    core.outbox.put(Notification("n1", "ann", "news", "user:ann", channel="chat"), durable=True)
    core.outbox.put(Notification("n2", "ann", "news", "user:ann"), durable=True)
    core.queue.courier.flush()
    assert sent == ["Hoot."] and [one.status for one in core.outbox.list_postings(limit=2)] == ["logged"] * 2
    rows = core.schedules.rows
    hers = [
        New(n, interval(60, "UTC"), Action("reminder", {"text": n}), person="ann", context=c)
        for n, c in (("a", ""), ("b", "user:ann"))
    ]
    theirs = New("c", interval(60, "UTC"), Action("reminder", {"text": "c"}), person="ann", context="group:family")
    for new in (*hers, theirs):
        rows.add(new, now_ms() - 120_000)
    assert [one.name for one in rows.due(now_ms())] == ["c"] and rows.next_ms([rows.due(now_ms())[0].id]) is None
    task = core.queue.tasks.add(NewTask("water", person="ann")).id
    assert core.queue.tasks.claim("w1") is None
    ann.served.call("people.activate", person="ann")
    assert {one.name for one in rows.due(now_ms())} == {"a", "b", "c"}
    claim = core.queue.tasks.claim("w1")
    assert claim is not None and claim.task.id == task


def test_whoever_asks_and_the_cores_own_user_cannot_be_deactivated(ann: Ann) -> None:
    own = user_name(os.getuid())
    core = ann.core
    with core.store.write():
        core.base.people.ensure_person(own)
        core.base.people.ensure_person("bea")
    with pytest.raises(Conflict, match="cannot be deactivated"):
        ann.served.call("people.activate", person=own, is_active=False)
    with pytest.raises(Conflict, match="cannot be deactivated"):
        core.base.people.activate_person("bea", is_active=False, call=LocalCall(person="bea"))
    with pytest.raises(Refused):
        core.table.call(LocalCall(person="ann"), "people.activate", {"person": "bea", "is_active": False})
    assert json.dumps(ann.served.call("people.list")).count('"is_active": true') == 3
