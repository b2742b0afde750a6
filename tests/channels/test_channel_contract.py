"""What every channel promises, asked of each file in `connectors` without its servers; a new channel adds a line to `TABLES`.

What needs a server - repeats, restarts, bursts, strangers - is in the channel's own file, `test_NAME.py`.
"""

import subprocess
import sys
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from process import ROOT, until
from stores import new_store

from appliance.agent.loop import MAX_WATCHED, Feed
from appliance.channels import connectors
from appliance.channels.connections import ConfigError, Connections, Runner, connect
from appliance.channels.contract import REPEAT, UNCERTAIN, Connection, Received, Running
from appliance.channels.delivery import FINAL, OutboxSender
from appliance.channels.gateway import Admission, Gateway
from appliance.channels.live_answers import LiveAnswers, Pace
from appliance.clock import CancelToken, now_ms
from appliance.errors import Busy, Lost, NotFound, OwlError, Refused, Unavailable
from appliance.knowledge.calendar import Calendars
from appliance.knowledge.entries import Entries
from appliance.knowledge.lookups import LOOKUPS
from appliance.records import Cancel, Delta, Event, LoopEnded, Outbound
from appliance.runtime.events import Events
from appliance.runtime.paths import Home
from appliance.runtime.settings import Channels, Connector, Email, Keys, Matrix, Slack, Workspace
from appliance.sessions.outbox import Outbox
from appliance.store.database import Store
from appliance.store.wall_clock import CLOCKLESS_MS

# The table of each channel, with servers at which nobody listens, and a notification that it could send.
MAILED = {"mail": {"address": "ann@example.org"}}
TABLES: dict[str, tuple[Keys, dict[str, Any]]] = {
    "email": (
        Email(
            imap_host="127.0.0.1", imap_port=1, smtp_host="127.0.0.1", smtp_port=1, user="owl@example.org", password="p", tls=False
        ),
        MAILED,
    ),
    "matrix": (Matrix(homeserver="http://127.0.0.1:1", user="@owl:x", token="t"), {"matrix": {"room": "!r:x"}}),
    "webhook": (Connector(keys={"url": "http://127.0.0.1:1/hook", "key": "k" * 16}), {}),
}
TABLES["telegram"] = (Connector(keys={"token": "t", "api_url": "http://127.0.0.1:1"}), {"telegram": {"chat": 1}})
TABLES["calendar"] = (Connector(keys={"url": "http://127.0.0.1:1/dav/"}), {})
TABLES |= {name: (Connector(keys={"url": "http://127.0.0.1:1/x"}), {}) for name in LOOKUPS}
TABLES["weather"][0].keys["place"] = "52.5, 13.4"
TABLES["feeds"] = (Connector(keys={"feeds": {"x": "http://127.0.0.1:1/x"}}), {})
TABLES |= {"push": (Connector(), {}), "unifiedpush": (Connector(), {}), "ntfy": (Connector(keys={"url": "http://127.0.0.1:1"}), {})}
TABLES["slack"] = (Slack(bot_token="b", app_token="a", api_url="http://127.0.0.1:1/api"), {"slack": {"channel": "C1"}})
LONG_AGO_MS = CLOCKLESS_MS + 1
PUSHED = {"push", "unifiedpush", "ntfy"}  # each device has a copy of its own: test_push.py sends
LISTENING = {"webhook", *PUSHED}  # those that wait for others, and post to one URL whomever it is for
MIRRORS = {"calendar", *LOOKUPS}  # those that carry no messages: whatever is to be sent there is refused
FILES = sorted(path.stem for path in Path(connectors.__file__ or "").parent.glob("*.py") if not path.stem.startswith("_"))


def make(name: str, store: Store | None = None) -> Connection:
    services = {"secret": str, "keep_secret": print, "store": store, "home": None, "data_folder": Path}
    services |= {"inbox": None, "listener": None, "fetch": None, "subscriptions": None}
    if name in MIRRORS and store is not None:
        entries = Entries(store)
        services |= {"entries": entries, "calendars": Calendars(entries, lambda: UTC, lambda: None), "fetch_file": None}
    services["fetch_configured"] = unreachable
    return connect(name, TABLES[name][0], services)


def unreachable(url: str, cancel: Cancel, **given: object) -> Any:
    raise Unavailable(f"{url} is out of reach")


class Deaf:
    """An intake that nobody reaches."""

    def take(self, received: Received) -> bool:
        raise AssertionError("nothing can come")

    def refuse(self, sender: str, why: str) -> None:
        raise AssertionError("nothing can come")

    def find_refusal(self, received: Received) -> str:
        return ""

    def is_welcome(self, sender: str) -> bool:
        return False

    def last_taken_ms(self) -> int:
        return 0


def test_every_channel_is_in_the_table() -> None:
    assert sorted(TABLES) == FILES


@pytest.mark.covers("A-286", "S-129")
def test_the_page_says_what_there_is_not_and_it_is_not_there() -> None:
    page = (ROOT / "docs/guides/channels.md").read_text(encoding="utf-8")
    for name in ("WhatsApp", "Discord", "voice", "telephones", "households", "graphics card"):
        assert name in page.partition("## What there is not")[2].partition("\n## ")[0]
        assert name.casefold() not in FILES


@pytest.mark.covers("A-183")
@pytest.mark.parametrize("name", FILES)
def test_a_channel_without_its_server_says_so_and_can_be_closed(name: str, home: Home) -> None:
    made = make(name, store := new_store(home.database))
    assert isinstance(made, Connection) and all(isinstance(line, str) for line in made.warnings())
    steps = (made.check, lambda: made.receive(Running(Deaf(), CancelToken(), lambda: pytest.fail("it is not connected"))))
    for step in steps[:1] if name in LISTENING else steps:
        with pytest.raises((OwlError, OSError)):
            step()
    made.typing({}, True)
    made.typing(TABLES[name][1], True)
    made.typing(TABLES[name][1], False)
    made.close()
    store.close()


@pytest.mark.covers("S-120", "S-107")
@pytest.mark.parametrize("name", [one for one in FILES if one not in MIRRORS | PUSHED])
def test_a_send_says_whether_it_may_have_arrived(name: str, home: Home) -> None:
    made = make(name, store := new_store(home.database))
    with pytest.raises(Unavailable) as error:
        made.deliver(Outbound(f"{name}:ann", "hello", metadata=TABLES[name][1], key="k"))
    assert not isinstance(error.value, UNCERTAIN) or made.is_idempotent
    if name not in LISTENING:
        with pytest.raises(FINAL):
            made.deliver(Outbound("local:ann", "hello", key="k"))  # nothing says where to
        made.deliver(Outbound(f"{name}:ann", "  ", metadata=TABLES[name][1], key="k"))  # nothing to say, nothing sent
    made.close()
    store.close()


@pytest.mark.parametrize("name", sorted(MIRRORS))
def test_what_carries_no_messages_refuses_them_for_good(name: str, home: Home) -> None:
    made = make(name, store := new_store(home.database))
    with pytest.raises(FINAL):
        made.deliver(Outbound(f"{name}:ann", "hello", key="k"))
    made.close()
    store.close()


def test_nothing_of_a_channel_is_imported_while_it_is_off() -> None:
    program = "import sys, appliance.service.core; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    strange = {"imapclient", "smtplib", "imaplib", "nio", "aiohttp", "slack_sdk", "markdown_it", "vodozemac"} & loaded
    assert strange == set() and not [one for one in loaded if one.startswith("appliance.channels.connectors.")]


def test_what_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['imapclient'] = None\n"
        "from appliance.channels.connections import connect; from appliance.runtime.settings import Email\n"
        "try: connect('email', Email(), {})\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "the package imapclient is not installed" in done.stdout
    assert "run make in the folder of the sources, which installs it" in done.stdout
    with pytest.raises(ConfigError, match="this version has no such channel"):
        connect("pigeon", Email(), {})


@pytest.mark.covers("S-012")
@pytest.mark.parametrize("name", FILES)
def test_a_channel_that_declares_streaming_shows_and_no_other_is_asked_to(name: str, home: Home) -> None:
    made = make(name, store := new_store(home.database))
    assert made.is_streaming == (type(made).show is not Connection.show)
    if made.is_streaming:
        with pytest.raises(FINAL):
            made.show(Outbound("local:ann", "hello", key="k"))  # nothing says where to
        with pytest.raises(OwlError):
            made.show(Outbound(f"{name}:ann", "hello", metadata=TABLES[name][1], key="k"))
    made.close()
    store.close()


class Written(Connection):
    """Keeps what it is asked to do; `plan` holds errors of the next calls."""

    def __init__(self, *, is_streaming: bool = True, plan: tuple[Exception, ...] = ()) -> None:
        self.is_streaming = is_streaming
        self.plan = list(plan)
        self.calls: list[tuple[str, str, str]] = []

    def show(self, message: Outbound) -> str:
        self.calls.append(("show", message.text, message.shown))
        if self.plan:
            raise self.plan.pop(0)
        return message.shown or "m1"

    def deliver(self, message: Outbound) -> None:
        self.calls.append(("send", message.text, message.shown))


class Writing:
    """A channel, an answer of a loop that is being written for it, and the sender."""

    def __init__(self, home: Home, channel: Written) -> None:
        self.channel = channel
        self.store, self.feed = new_store(home.database), Feed()
        self.live = LiveAnswers("a", channel, self.store, self.feed, Pace(0.01, 0.01, 0.01)) if channel.is_streaming else None
        self.runner = Runner(
            "a", channel, Gateway("a", Admission(), None), OutboxSender(Outbox(self.store, "core")), live=self.live
        )
        if self.live is not None:
            self.live.watch(7, Outbound("a:x", "", key="answer:7"))

    def write(self, *items: Any) -> "Writing":
        """Pieces of the answer, each of which is shown before the next."""
        for item in items:
            count = len(self.channel.calls)
            self.feed.put(7, item)
            if isinstance(item, Delta) and self.live is not None:
                until(lambda: len(self.channel.calls) > count, "it is shown", 10)  # noqa: B023
        return self

    def end(self, text: str) -> list[tuple[str, str, str]]:
        """The answer is complete and sent; every call of the channel."""
        self.feed.put(7, LoopEnded(200, "completed"))
        self.runner.deliver(Outbound("a:x", text, key="answer:7"))
        self.store.close()
        return self.channel.calls


@pytest.mark.covers("S-012", "E-249")
def test_a_streaming_channel_gets_pieces_as_they_come_and_then_the_whole_in_their_place(home: Home) -> None:
    calls = Writing(home, Written()).write(Delta("one"), Delta(" two")).end("one two three")
    assert calls == [("show", "one …", ""), ("show", "one two …", "m1"), ("send", "one two three", "m1")]


@pytest.mark.covers("S-012", "E-249")
def test_any_other_channel_gets_exactly_one_message_at_the_end(home: Home) -> None:
    calls = Writing(home, Written(is_streaming=False)).write(Delta("one"), Delta(" two")).end("one two three")
    assert calls == [("send", "one two three", "")]


def test_a_limit_delays_what_is_shown_and_an_error_ends_it_and_the_answer_comes_all_the_same(home: Home) -> None:
    writing = Writing(home, Written(plan=(Busy("slower", retry_s=0.02),))).write(Delta("one"))
    until(lambda: len(writing.channel.calls) == 2, "it is tried again")
    assert writing.end("one two") == [("show", "one …", ""), ("show", "one …", ""), ("send", "one two", "m1")]
    home.database.unlink()
    writing = Writing(home, Written(plan=(Refused("no"),))).write(Delta("one"))
    writing.feed.put(7, Delta(" two"))
    assert writing.end("one two") == [("show", "one …", ""), ("send", "one two", "")]


def test_an_answer_whose_beginning_may_stand_there_is_sent_as_one_that_may_be_a_repeat(home: Home) -> None:
    """The service did not say, or we were killed before we had noted what it said."""
    writing = Writing(home, Written(plan=(Lost("nobody knows"),))).write(Delta("one"))
    writing.feed.put(7, Delta(" two"))
    assert writing.end("one two") == [("show", "one …", ""), ("send", f"{REPEAT}\none two", "")]
    home.database.unlink()
    killed = Writing(home, Written())
    noted: list[Any] = []
    killed.channel.show = lambda message: noted.extend(killed.store.rows("SELECT key, message FROM live_answers")) or "m1"  # type: ignore[method-assign,func-returns-value]
    killed.feed.put(7, Delta("one"))
    until(lambda: bool(noted), "it is shown")
    assert noted == [("answer:7", "")], "before the service is asked"
    until(lambda: killed.store.rows("SELECT message FROM live_answers") == [("m1",)], "its name is noted")
    with killed.store.write() as execute:
        execute("UPDATE live_answers SET message = ''")
    killed.store.close()
    again = Writing(home, Written())
    for text in (f"{REPEAT}\none two", "later"):
        again.runner.deliver(Outbound("a:x", text, key="answer:7"))
    assert again.channel.calls == [("send", f"{REPEAT}\none two", ""), ("send", "later", "")], "marked once, and forgotten"
    with again.store.write() as execute:
        execute("INSERT INTO live_answers VALUES ('a', 'answer:7', '', 1)")
    again.channel.is_idempotent = True
    again.runner.deliver(Outbound("a:x", "one two", key="answer:7"))
    assert again.channel.calls[2:] == [("show", "one two", ""), ("send", "one two", "m1")], "a service that knows repeats is asked"
    again.store.close()


def test_what_another_process_has_shown_is_replaced_and_what_is_stopped_is_left_whole(home: Home) -> None:
    writing = Writing(home, Written()).write(Delta("one"))
    until(lambda: bool(writing.store.value("SELECT COUNT(*) FROM live_answers")), "it is kept what is shown")
    writing.store.close()
    again = Writing(home, Written())
    again.runner.deliver(Outbound("a:x", "one two", key="answer:7"))
    again.runner.deliver(Outbound("a:x", "later", key="answer:7"))
    assert again.channel.calls == [("send", "one two", "m1"), ("send", "later", "")]
    again.store.close()
    stopped = Writing(home, Written()).write(Delta("half"), LoopEnded(499, "cancelled"))
    until(lambda: stopped.channel.calls[-1] == ("show", "half", "m1"), "it ends without a mark")
    until(lambda: not stopped.store.value("SELECT COUNT(*) FROM live_answers"), "it is forgotten")
    stopped.store.close()


def test_what_nobody_sends_any_more_is_forgotten_at_the_next_start(home: Home) -> None:
    store = new_store(home.database)
    with store.write() as execute:
        execute("INSERT INTO live_answers VALUES ('a', 'answer:1', 'm1', ?), ('a', 'answer:2', 'm2', ?)", (LONG_AGO_MS, now_ms()))
    LiveAnswers("a", Written(), store, Feed())
    assert store.rows("SELECT key FROM live_answers") == [("answer:2",)]


def test_a_core_that_runs_long_keeps_no_more_of_answers_than_it_may(home: Home) -> None:
    store, feed, channel = new_store(home.database), Feed(), Written()
    live = LiveAnswers("a", channel, store, feed, Pace(0.0, 0.0, 0.0))
    for loop in range(MAX_WATCHED + 1):  # none of which ever ends
        live.watch(loop, Outbound("a:x", "", key=f"answer:{loop}"))
    with store.write() as execute:
        execute("INSERT INTO live_answers VALUES ('a', 'answer:1', 'm1', ?)", (LONG_AGO_MS,))
    feed.put(0, Delta("the oldest"))
    assert channel.calls == []
    feed.put(MAX_WATCHED, Delta("the newest"))
    until(lambda: store.rows("SELECT key FROM live_answers") == [(f"answer:{MAX_WATCHED}",)], "what is old is forgotten")
    live.close()
    store.close()
    again = Feed()
    for loop in range(MAX_WATCHED + 1):
        again.watch(loop, [].append)
    seen: list[Any] = []
    again.watch(0, seen.append)
    again.put(0, Delta("heard"))
    assert seen == [Delta("heard")] and len(again._watchers) == MAX_WATCHED


def test_nothing_is_shown_of_a_turn_that_is_over_when_the_next_is_written(home: Home) -> None:
    said = Event("r", "message", "assistant", "I look.")
    calls = Writing(home, Written()).write(Delta("I look."), said, Delta("Found")).end("Found it")
    assert calls[1:] == [("show", "Found …", "m1"), ("send", "Found it", "m1")]


class Broken(Connection):
    """Fails in a way that nobody thought of, the first two times."""

    def __init__(self) -> None:
        self.tries = 0

    def receive(self, running: Running) -> None:
        self.tries += 1
        if self.tries < 3:
            raise ZeroDivisionError("a defect")
        super().receive(running)

    def deliver(self, message: Outbound) -> None:
        """Taken."""


@pytest.mark.covers("A-015", "E-291")
def test_a_defect_of_one_channel_touches_no_other_and_it_runs_again(home: Home) -> None:
    store = new_store(home.database)
    courier = OutboxSender(Outbox(store, "core"))
    broken, sound = Broken(), Broken()
    sound.tries = 10
    gates = [(name, one, Gateway(name, Admission(), None)) for name, one in (("a", broken), ("b", sound))]
    runners = [Runner(*gate, courier, first_s=0.05) for gate in gates]
    for one in runners:
        one.start()
    until(lambda: runners[0].state().state == "connected" and runners[1].state().state == "connected", "both run")
    assert broken.tries == 3 and runners[1].state().restarts == 0 and courier.channels() == ("a", "b")
    assert courier.live_channels() == {"a", "b"}
    with pytest.raises(Busy):
        runners[0].gateway.take(Received("1", "x", "hi", 1))
    for one in runners:
        one.close()
    assert courier.channels() == () and courier.live_channels() == frozenset()
    store.close()


def test_two_workspaces_with_one_app_and_odd_names_are_named_and_touch_no_other(home: Home) -> None:
    store = new_store(home.database)
    given = {"enabled": True, "bot_token": "b", "app_token": "a", "api_url": "http://127.0.0.1:1/api"}
    more = {"birds": Workspace(**given), "a/b": Workspace(**{**given, "app_token": "other"})}  # type: ignore[arg-type]
    tables = {"now": Channels(slack=Slack(**given, workspaces=more))}  # type: ignore[arg-type]
    made = Connections(OutboxSender(Outbox(store, "core")), Events(), lambda: tables["now"], {"secret": str, "data_folder": Path})
    made.start()
    states = {one.name: one for one in made.list_states()}
    assert states["slack-birds"].problem.startswith("channels.slack.workspaces.birds.app_token is that of slack")
    assert "cannot be the name of a channel" in states["slack-a/b"].problem
    assert states["slack"].state in ("connecting", "failing")
    tables["now"] = Channels(slack=Slack(**given))  # type: ignore[arg-type]
    made.apply()
    assert [one.name for one in made.list_states() if one.name.startswith("slack")] == ["slack"]
    made.close()
    store.close()


def test_a_changed_table_begins_anew_and_one_that_is_switched_off_ends(home: Home) -> None:
    store = new_store(home.database)
    tables = {"now": Channels(email=Email(enabled=True, imap_host="127.0.0.1", imap_port=1, password="p", user="u"))}
    services = {"secret": str, "data_folder": Path}
    made = Connections(OutboxSender(Outbox(store, "core")), Events(), lambda: tables["now"], services)
    assert made.channel_states()["email"] is True  # on, and nobody serves it
    with pytest.raises(Unavailable):
        made.connection("email")  # so far: whoever is told that there is none may not try again
    with pytest.raises(NotFound):
        made.connection("matrix")
    made.start()
    until(lambda: made.channel_states()["email"] not in ("connecting", True), "it was tried")
    assert "cannot be reached" in str(made.channel_states()["email"]) and made.channel_states()["matrix"] is False
    tables["now"] = Channels()
    made.apply()
    assert made.channel_states()["email"] is False
    made.close()
    store.close()
