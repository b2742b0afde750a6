"""The courier with real channels: where letters go, in which order, what failing and dying costs, and nobody held up.

The contract is run against every channel of the product: the local door, and a door that writes lines to a file and
cannot know what it wrote before, as mail cannot. A new channel joins `DOORS`.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_database import child, finished, until
from test_outbox import Post

from appliance.channels.contract import REPEAT
from appliance.channels.delivery import OutboxSender
from appliance.channels.local import Local
from appliance.clock import monotonic_s, sleep_s
from appliance.errors import BadInput, Busy, DeadlineExceeded, Lost, NotFound, OwlError, Refused, TooLarge, Unavailable
from appliance.records import Event, Outbound
from appliance.runtime.crash_points import CrashPoint
from appliance.runtime.subscriptions import MAX_WAITING, Notice, Notices
from appliance.sessions.outbox import Address, DeliveryPatience, Notification, Outbox
from appliance.sessions.runs import Runs

QUICK = DeliveryPatience(retry_s=0.05, retry_max_s=0.2, max_attempts=4)


class Lines:
    """A door that appends to a file and remembers nothing, like a mail server."""

    is_idempotent = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def deliver(self, message: Outbound) -> None:
        with self.path.open("a") as file:
            file.write(message.text.replace("\n", " | ") + "\n")

    def texts(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


class Thread:
    """The local door, and what stands in the thread it writes to."""

    is_idempotent = True

    def __init__(self, path: Path) -> None:
        post = Post(path.with_name("owlbox.db"))
        self.runs = post.runs
        found = self.runs.list_runs()
        self.run = found[0].id if found else self.runs.begin(post.session("local"), "chat").id
        self.deliver = Local(post.outbox, post.runs, Notices()).deliver

    def texts(self) -> list[str]:
        return [event.content.replace("\n", " | ") for event in self.runs.events(self.run)]


DOORS: dict[str, Callable[[Path], Lines | Thread]] = {"lines": Lines, "local": Thread}


@dataclass
class Faulty:
    """A door in front of another one, which fails before or after it has delivered."""

    door: Lines | Thread
    before: list[BaseException] = field(default_factory=list)
    after: list[BaseException] = field(default_factory=list)
    is_open: threading.Event = field(default_factory=threading.Event)

    @property
    def is_idempotent(self) -> bool:
        return self.door.is_idempotent

    def deliver(self, message: Outbound) -> None:
        if self.before:
            raise self.before.pop(0)
        self.door.deliver(message)
        if self.after:
            raise self.after.pop(0)


class Slow:
    """A door that takes its time: until it is let go, or for ever."""

    is_idempotent = False

    def __init__(self) -> None:
        self.has_begun, self.go = threading.Event(), threading.Event()
        self.texts: list[str] = []

    def deliver(self, message: Outbound) -> None:
        self.has_begun.set()
        assert self.go.wait(120)
        self.texts.append(message.text)


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path / "owlbox.db", QUICK)


@pytest.fixture
def courier(post: Post) -> Iterator[OutboxSender]:
    courier = OutboxSender(post.outbox)
    courier.start()
    yield courier
    assert courier.close()


def ended(post: Post, key: str, status: str = "sent") -> None:
    until(lambda: (p := post.outbox.find(key)) is not None and p.status == status)


# -- the contract of a channel ----------------------------------------------------------------------


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Lines | Thread:
    return DOORS[request.param](tmp_path / "out")


def put(post: Post, door: Lines | Thread, key: str, text: str) -> int:
    return post.put(key, text, channel="door", run=getattr(door, "run", None))


def test_each_letter_is_delivered_once_and_in_order(post: Post, courier: OutboxSender, door: Lines | Thread) -> None:
    courier.register("door", door)
    for i in range(12):
        put(post, door, f"k{i}", f"hoot {i}")
        put(post, door, f"k{i}", "the same key says nothing new")
    ended(post, "k11")
    courier.wake()
    assert door.texts() == [f"hoot {i}" for i in range(12)]
    assert {p.via for p in post.outbox.list_postings()} == {"door"}


@pytest.mark.parametrize("error", [BadInput, NotFound, Refused, TooLarge])
def test_what_is_refused_is_failed_at_once_and_the_next_one_goes(
    post: Post, courier: OutboxSender, door: Lines | Thread, error: type[OwlError]
) -> None:
    courier.register("door", Faulty(door, before=[error("no such address")]))
    put(post, door, "k", "hoot"), put(post, door, "next", "toot")
    ended(post, "next")
    found = post.outbox.find("k")
    assert found is not None and (found.status, found.attempts, found.error) == ("failed", 1, "no such address")
    assert door.texts() == ["toot"]


@pytest.mark.covers("E-330")
def test_a_door_that_is_down_for_a_while_gets_the_letter_once(post: Post, courier: OutboxSender, door: Lines | Thread) -> None:
    courier.register("door", Faulty(door, before=[Unavailable("down"), Unavailable("still down")]))
    put(post, door, "k", "hoot")
    ended(post, "k")
    assert door.texts() == ["hoot"]
    found = post.outbox.find("k")
    assert found is not None and (found.attempts, found.may_repeat) == (3, False)


def test_a_door_that_stays_down_gets_no_more_after_the_last_attempt(
    post: Post, courier: OutboxSender, door: Lines | Thread
) -> None:
    courier.register("door", Faulty(door, before=[Unavailable("down")] * 4))
    put(post, door, "k", "hoot")
    ended(post, "k", "failed")
    found = post.outbox.find("k")
    assert found is not None and (found.attempts, found.error, door.texts()) == (4, "down", [])


def test_a_busy_door_costs_no_attempts(post: Post, courier: OutboxSender, door: Lines | Thread) -> None:
    courier.register("door", Faulty(door, before=[Busy("not now")] * 8))
    put(post, door, "k", "hoot")
    ended(post, "k")
    found = post.outbox.find("k")
    assert found is not None and found.attempts == 1


@pytest.mark.parametrize("error", [Lost("gone"), DeadlineExceeded("late"), ValueError("a bug"), OSError("broken pipe")])
def test_uncertain_delivery_is_marked_unless_the_door_knows(
    post: Post, courier: OutboxSender, door: Lines | Thread, error: Exception
) -> None:
    courier.register("door", Faulty(door, after=[error]))
    put(post, door, "k", "hoot")
    ended(post, "k")
    assert door.texts() == (["hoot"] if door.is_idempotent else ["hoot", f"{REPEAT} | hoot"])


@pytest.mark.covers("A-021")
@pytest.mark.parametrize("step", [CrashPoint.LETTER_TAKEN, CrashPoint.LETTER_DELIVERED, CrashPoint.LETTER_SENT])
def test_killed_at_any_step_it_is_delivered_once_or_marked(tmp_path: Path, step: CrashPoint, door: Lines | Thread) -> None:
    code = """
        import os, signal
        from test_delivery import DOORS, QUICK, Post, put, sleep_s
        from appliance.channels.delivery import OutboxSender
        def passed(step):
            if step.name == sys.argv[2]:
                os.kill(os.getpid(), signal.SIGKILL)
        post, door = Post(path, QUICK), DOORS[sys.argv[3]](path.with_name("out"))
        courier = OutboxSender(post.outbox, passed=passed)
        courier.register("door", door)
        put(post, door, "k", "hoot")
        courier.start()
        sleep_s(60)
    """
    name = next(n for n, make in DOORS.items() if isinstance(door, make))  # type: ignore[arg-type]
    process = child(code, tmp_path / "owlbox.db", step.name, name)
    process.wait(60)
    assert process.returncode == -9, process.communicate()
    assert finished(child("Store.open(path).problems() == [] or sys.exit(1)", tmp_path / "owlbox.db")) == ""
    post = Post(tmp_path / "owlbox.db", QUICK)
    courier = OutboxSender(post.outbox)
    courier.register("door", door)
    courier.start()
    ended(post, "k")
    assert courier.close()
    repeat = f"{REPEAT} | hoot"
    at_lines = {CrashPoint.LETTER_TAKEN: [repeat], CrashPoint.LETTER_DELIVERED: ["hoot", repeat], CrashPoint.LETTER_SENT: ["hoot"]}
    assert door.texts() == (["hoot"] if door.is_idempotent else at_lines[step])


# -- where letters go -------------------------------------------------------------------------------


def open_all(courier: OutboxSender, tmp_path: Path, *names: str) -> dict[str, Lines]:
    doors = {name: Lines(tmp_path / name) for name in names}
    for name, one in doors.items():
        courier.register(name, one)
    return doors


def test_choice_is_explicit_then_preferred_then_the_session_then_the_last_used(post: Post, tmp_path: Path) -> None:
    preferences = {"user:ann": "chat"}
    courier = OutboxSender(post.outbox, preferred=lambda context: preferences.get(context, ""))
    open_all(courier, tmp_path, "mail", "chat", "web")
    for at, channel in enumerate(("mail", "chat", "web")):
        session = post.session(channel, to=f"{channel}-box")
        with post.store.write() as execute:
            execute("UPDATE sessions SET last_active_ms = ? WHERE id = ?", (at, session))
    letter = Notification("k", "ann", "hoot", "user:ann", session="mail:ann")
    explicit = Notification("k", "ann", "hoot", "user:ann", session="mail:ann", channel="web")
    assert courier.choose(explicit) == Address("web", "web:ann", {"to": "web-box"})
    assert courier.choose(letter) == Address("chat", "chat:ann", {"to": "chat-box"})
    preferences.clear()
    assert courier.choose(letter) == Address("mail", "mail:ann", {"to": "mail-box"})
    assert courier.choose(Notification("k", "ann", "hoot", "user:ann")) == Address("web", "web:ann", {"to": "web-box"})
    courier.unregister("web")
    assert courier.choose(Notification("k", "ann", "hoot", "user:ann")) == Address("chat", "chat:ann", {"to": "chat-box"})
    preferences["user:ann"] = "matrix"  # not open: passed over
    assert courier.choose(letter) == Address("mail", "mail:ann", {"to": "mail-box"})


def test_a_letter_never_goes_to_another_context(post: Post, courier: OutboxSender, tmp_path: Path) -> None:
    doors = open_all(courier, tmp_path, "mail", "chat")
    post.session("mail", "bob"), post.session("chat", "bob")
    assert courier.choose(Notification("k", "ann", "hoot", "user:ann", session="mail:bob")) is None
    explicit = Notification("k", "ann", "hoot", "user:ann", session="mail:bob", channel="mail")
    assert courier.choose(explicit) == Address("mail")  # no conversation of hers: the channel has to know her
    post.put("k", session="mail:bob")
    ended(post, "k", "logged")
    assert doors["mail"].texts() == doors["chat"].texts() == []


def test_nobody_to_tell_is_logged_with_its_key(post: Post, courier: OutboxSender, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "appliance.channels.delivery"):
        post.put("the key", person="group:7"), post.put("next", person="group:7")
        ended(post, "next", "logged")
    assert "nobody to tell: notification 1 (the key) for group:7" in caplog.text


@dataclass
class Ear:
    """A door that keeps what it was given."""

    is_idempotent = False
    heard: list[Outbound] = field(default_factory=list)

    def deliver(self, message: Outbound) -> None:
        self.heard.append(message)


def test_the_door_is_told_the_way_back_and_what_the_letter_adds(post: Post, courier: OutboxSender) -> None:
    ear = Ear()
    courier.register("mail", ear)
    run = post.runs.begin(post.session("mail", subject="owls", message="7"), "chat").id
    post.put("k", session="mail:ann", run=run, metadata={"subject": "[owlbox] done"}, attachment="/a.pdf", correlation="c-1")
    ended(post, "k")
    way = {"subject": "[owlbox] done", "message": "7"}
    assert ear.heard == [Outbound("mail:ann", "hoot", "/a.pdf", way, "k", "ann", run, "c-1")]


@pytest.mark.covers("A-193", "E-330")
def test_what_insists_on_a_closed_channel_waits_for_it_with_the_reason(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db", DeliveryPatience(retry_s=30))
    courier = OutboxSender(post.outbox)
    courier.start()
    letter = post.put("k", channel="mail")
    until(lambda: post.outbox.get(letter).attempts == 1)
    found = post.outbox.get(letter)
    assert (found.status, found.error) == ("waiting", "channel mail is not open")
    ear = Ear()
    courier.register("mail", ear)  # at once, not after the pause
    ended(post, "k")
    assert len(ear.heard) == 1 and courier.close()


def test_what_insists_on_a_channel_that_never_opens_fails_after_its_attempts(post: Post, courier: OutboxSender) -> None:
    post.put("k", channel="pigeon")
    ended(post, "k", "failed")
    found = post.outbox.find("k")
    assert found is not None and (found.attempts, found.error) == (4, "channel pigeon is not open")


# -- side by side -----------------------------------------------------------------------------------


def test_slow_and_failing_channels_hold_up_nobody_else(post: Post, courier: OutboxSender, tmp_path: Path) -> None:
    slow = Slow()
    courier.register("slow", slow)
    courier.register("broken", Faulty(Lines(tmp_path / "never"), before=[Unavailable("down")] * 4))
    doors = open_all(courier, tmp_path, "mail")
    post.put("s1", channel="slow"), post.put("b1", channel="broken"), post.put("s2", channel="slow")
    assert slow.has_begun.wait(60)
    for i in range(5):
        post.put(f"m{i}", f"hoot {i}", channel="mail")
    ended(post, "m4")
    ended(post, "b1", "failed")
    assert doors["mail"].texts() == [f"hoot {i}" for i in range(5)] and slow.texts == []
    slow.go.set()
    ended(post, "s2")


@pytest.mark.covers("A-193")
def test_a_channel_is_replaced_while_it_sends(post: Post, courier: OutboxSender) -> None:
    slow, ear = Slow(), Ear()
    courier.register("mail", slow)
    post.put("first", channel="mail"), post.put("second", channel="mail")
    assert slow.has_begun.wait(60)
    courier.register("mail", ear)
    slow.go.set()
    ended(post, "second")
    assert (len(slow.texts), [m.key for m in ear.heard]) == (1, ["second"])


@pytest.mark.covers("A-193")
def test_closing_waits_for_what_is_being_sent_and_begins_nothing_more(post: Post) -> None:
    courier, slow = OutboxSender(post.outbox), Slow()
    courier.register("mail", slow)
    courier.start()
    post.put("first", channel="mail"), post.put("other", channel="mail", person="bob"), post.put("late", channel="mail")
    assert slow.has_begun.wait(60)
    threading.Timer(0.3, slow.go.set).start()
    assert courier.close(60)
    assert post.outbox.counts() == {"sent": 1, "waiting": 2} and slow.texts == ["hoot"]


def test_closing_does_not_wait_for_a_door_that_hangs(post: Post) -> None:
    courier, slow = OutboxSender(post.outbox), Slow()
    courier.register("mail", slow)
    courier.start()
    post.put("k", channel="mail")
    assert slow.has_begun.wait(60)
    began_s = monotonic_s()
    assert not courier.close(0.3)
    assert monotonic_s() - began_s < 20
    assert post.outbox.counts() == {"sending": 1}  # whoever starts next knows that it may have arrived
    slow.go.set()


def test_nothing_is_sent_again_when_the_record_could_not_be_made(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db", QUICK)
    locked = Post(tmp_path / "owlbox.db")
    ear = Ear()

    class Blocking(Ear):
        def deliver(self, message: Outbound) -> None:
            ear.deliver(message)
            held.set()
            assert release.wait(60)

    held, release = threading.Event(), threading.Event()
    quick = Outbox(type(post.store).open(tmp_path / "owlbox.db", busy_delays_ms=(20,)), post.me, QUICK)
    courier = OutboxSender(quick)
    courier.register("mail", Blocking())
    courier.start()
    quick.put(Notification("k", "ann", "hoot", channel="mail"))
    assert held.wait(60)
    with locked.store.write():
        release.set()
        sleep_s(0.5)  # the record fails meanwhile, more than once a round is tried
        courier.wake()
        sleep_s(0.2)
    assert courier.close(60)
    assert len(ear.heard) == 1 and post.outbox.counts() == {"sent": 1}


def test_a_round_that_fails_is_not_the_last(post: Post, courier: OutboxSender, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in choosing a way, the next round is made."""
    wrong = [ZeroDivisionError("a bug"), Busy("database busy")]

    class Wrong(OutboxSender):
        def choose(self, letter: Notification) -> Address | None:
            if wrong:
                self.wake()
                raise wrong.pop()
            return super().choose(letter)

    ear, failing = Ear(), Wrong(post.outbox)
    courier.close()
    failing.register("mail", ear)
    failing.start()
    post.put("k", channel="mail")
    ended(post, "k")
    assert len(ear.heard) == 1 and "a bug" in caplog.text and failing.close()


def test_an_idle_courier_does_not_wake_up(post: Post, courier: OutboxSender) -> None:
    rounds: list[int] = []
    look = post.outbox.due
    post.outbox.due = lambda now=None: (rounds.append(1), look(now))[1]  # type: ignore[method-assign]
    courier.register("mail", Ear())
    until(lambda: bool(rounds))

    def is_idle() -> bool:
        rounds.clear()
        sleep_s(1.0)
        return not rounds

    assert any(is_idle() for _ in range(10))  # the first time it may be on its way to rest


# -- the local door ---------------------------------------------------------------------------------


@pytest.fixture
def local(post: Post, courier: OutboxSender) -> Notices:
    notices = Notices()
    courier.register("local", Local(post.outbox, post.runs, notices))
    return notices


def test_a_letter_stands_in_its_thread_and_is_shown_to_who_follows(post: Post, local: Notices) -> None:
    run = post.runs.begin(post.session("local"), "chat").id
    mine, hers, everybody = local.subscribe("ann"), local.subscribe("bob"), local.subscribe()
    post.put("k", "The task is done.", run=run, correlation="c-1")
    ended(post, "k")
    (event,) = post.runs.events(run)
    assert (event.kind, event.role, event.content, event.correlation) == ("message", "assistant", "The task is done.", "c-1")
    assert event.input == {"letter": "k"} and post.runs.recent(run, 5)[0].content == "The task is done."
    for box in (mine, everybody):
        notice = next(iter(box))
        assert (notice.person, notice.text, notice.run, notice.seq) == ("ann", "The task is done.", run, event.seq)
    hers.close()
    assert list(hers) == []


def test_a_text_that_stands_in_its_thread_already_is_not_repeated_there(post: Post, local: Notices) -> None:
    run = post.runs.begin(post.session("local"), "chat").id
    seq = post.runs.append(Event(run=run, kind="message", role="assistant", content="hoot")).seq
    box = local.subscribe("ann")
    post.put("answer", run=run, metadata={"seq": seq})
    ended(post, "answer")
    assert len(post.runs.events(run)) == 1 and next(iter(box)).seq == seq


@pytest.mark.covers("A-248", "A-257")
def test_a_letter_of_no_thread_goes_into_the_last_chat_which_is_made_when_there_is_none(post: Post, local: Notices) -> None:
    asked = post.runs.begin(post.session("local"), "ask").id
    post.put("first", "the oven is hot")
    ended(post, "first")
    (chat,) = post.runs.list_runs(kind="chat")
    assert (chat.session, chat.title, chat.outcome) == ("local:ann", "Notifications", "ok")
    box = local.subscribe("ann")
    post.put("second", "the oven is cold")
    ended(post, "second")
    notice = next(iter(box))
    assert (notice.run, notice.seq, notice.key) == (chat.id, 2, "second")
    assert [event.content for event in post.runs.events(chat.id)] == ["the oven is hot", "the oven is cold"]
    assert post.runs.events(asked) == []


def test_who_never_talked_here_has_a_conversation_too(post: Post, local: Notices) -> None:
    post.put("k", "nap", person="bob")
    ended(post, "k")
    (chat,) = post.runs.list_runs()
    assert (chat.session, post.runs.session(chat.session)["context"]) == ("local:bob", "user:bob")


def test_what_is_a_groups_and_of_no_thread_is_logged(post: Post, local: Notices) -> None:
    post.put("k", "the oven is hot", person="group:7", channel="local")
    ended(post, "k", "logged")
    assert post.runs.list_runs() == []


def test_a_deleted_thread_does_not_lose_its_letter(post: Post, local: Notices) -> None:
    run = post.runs.begin(post.session("local"), "chat").id
    box = local.subscribe("ann")
    post.runs.delete(run)
    post.put("k", run=run)
    ended(post, "k")
    made = next(iter(box)).run
    assert made != run and [event.content for event in post.runs.events(made)] == ["hoot"]


def test_what_was_not_shown_yet_is_known_until_it_is(post: Post, local: Notices) -> None:
    for key in ("one", "two"):
        post.put(key)
        ended(post, key)
    assert [one.notification.key for one in post.outbox.unseen("ann")] == ["one", "two"] and post.outbox.unseen("bob") == []
    assert post.outbox.see("bob", ["one"]) == 0
    assert (post.outbox.see("ann", ["one"]), post.outbox.see("ann", ["one"])) == (1, 0)
    assert [one.notification.key for one in post.outbox.unseen("ann")] == ["two"]


def test_a_thread_that_is_being_answered_gets_its_letter_after_that(post: Post, local: Notices) -> None:
    run = post.runs.begin(post.session("local"), "chat").id
    prompt = post.runs.append(Event(run=run, kind="message", role="user", content="hi"))
    loop = post.runs.enqueue(run, prompt.id, "c")
    post.runs.start_loop(loop)
    letter = post.put("k", run=run)
    until(lambda: "being answered" in post.outbox.get(letter).error)
    post.runs.append(Event(run=run, kind="message", role="assistant", content="hello"))
    post.runs.end_loop(post.runs.loop(loop), 200, "ok")
    post.runs.leave(loop)
    ended(post, "k")
    assert [event.content for event in post.runs.events(run)] == ["hi", "hello", "hoot"]


def test_a_slow_follower_misses_the_oldest_and_is_told_how_many() -> None:
    notices = Notices()
    box = notices.subscribe()
    for i in range(MAX_WAITING + 5):
        assert notices.put(Notice("ann", str(i))) == 1
    assert box.lost == 5 and next(iter(box)).text == "5"
    notices.leave(box)
    assert notices.put(Notice("ann", "gone")) == 0 and not notices.is_followed("ann")
    assert len(list(box)) == MAX_WAITING - 1


def test_the_local_door_never_writes_into_a_thread_of_another_context(post: Post, local: Notices) -> None:
    run = Runs(post.store, post.me).begin(post.session("local", "bob"), "chat").id
    mine = post.session("local", "ann")
    post.put("k", run=run)
    ended(post, "k")
    assert post.runs.events(run) == [] and post.runs.list_runs()[0].session == mine
