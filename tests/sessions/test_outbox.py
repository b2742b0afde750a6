"""Letters as rows: put once, in order, chosen within a context, tried again, given up, forgotten."""

import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import new_store
from test_database import child, finished, killed

from appliance.clock import now_ms, this_process
from appliance.errors import BadInput, Busy, Conflict, NotFound
from appliance.records import Inbound
from appliance.sessions.outbox import DeliveryPatience, Notification, Outbox, OutboxFilled, Posting, context_of
from appliance.sessions.runs import Runs
from appliance.store.database import Store

DAY_MS = 24 * 3600 * 1000


class Post:
    """An outbox with a store of its own."""

    def __init__(self, path: Path, patience: DeliveryPatience | None = None) -> None:
        self.store = new_store(path)
        self.me = this_process().encode()
        self.outbox = Outbox(self.store, self.me, patience)
        self.runs = Runs(self.store, self.me)

    def put(self, key: str, text: str = "hoot", person: str = "ann", **more: object) -> int:
        return self.outbox.put(Notification(key, person, text, **more))  # type: ignore[arg-type]

    def session(self, channel: str, sender: str = "ann", **metadata: object) -> str:
        inbound = Inbound(channel, sender, "hi", f"{channel}-{sender}", 1, metadata=metadata)
        self.runs.touch_session(inbound)
        return inbound.session

    def ready(self, now: int | None = None) -> list[str]:
        return [posting.notification.key for posting in self.outbox.due(now)[0]]


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path / "owlbox.db")


def test_a_letter_comes_back_as_it_was_put(post: Post) -> None:
    letter = Notification(
        "k", "ann", "hoot 🦉", "user:ann", "mail:ann", "mail", "r", "/a/b.pdf", {"subject": "Re: owls", "n": [1, None]}, "c-1"
    )
    found = post.outbox.get(post.outbox.put(letter))
    assert found.notification == letter and (found.status, found.attempts, found.may_repeat, found.via) == ("waiting", 0, False, "")
    assert post.outbox.find("k") == found and post.outbox.find("other") is None


def test_a_letter_carries_the_marks_of_what_it_tells_of_also_when_several_are_told_together(post: Post) -> None:
    post.outbox.put(Notification("a", "ann", "hoot"), sources=("task:3",))
    post.runs.marks.add("task:3", "web", "https://a.example/")
    post.runs.marks.add("schedule:7", "mail")
    one = post.outbox.put(Notification("b", "ann", "hoot", marks=(("document", "x"),)), sources=("task:3", "schedule:7"))
    two = post.outbox.put(Notification("c", "ann", "hoot", marks=(("agent", ""), ("mail", ""))))
    marks = (("document", "x"), ("web", "https://a.example/"), ("mail", ""))
    assert post.outbox.find("a").notification.marks == ()  # type: ignore[union-attr]
    assert set(post.outbox.get(one).notification.marks) == set(marks) and post.outbox.get(one).notification.metadata == {}
    post.outbox.join([post.outbox.get(one), post.outbox.get(two)], "both")
    assert set(post.outbox.get(one).notification.marks) == {*marks, ("agent", "")}


@pytest.mark.covers("A-021")
def test_same_key_twice_is_one_letter(post: Post) -> None:
    assert post.put("k", "first") == post.put("k", "second")
    assert [p.notification.text for p in post.outbox.list_postings()] == ["first"]


def test_a_letter_falls_with_the_transaction_it_was_put_in(post: Post) -> None:
    with pytest.raises(ZeroDivisionError), post.store.write():
        post.put("k")
        raise ZeroDivisionError
    assert post.outbox.list_postings() == []


@pytest.mark.covers("A-193")
@pytest.mark.parametrize("field", ["key", "person", "text"])
def test_missing_fields_are_named(post: Post, field: str) -> None:
    given = {"key": "k", "person": "ann", "text": "hoot"} | {field: " "}
    with pytest.raises(BadInput, match=f"needs {field}"):
        post.outbox.put(Notification(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(("person", "context"), [("ann", "user:ann"), ("group:7", "group:7")])
def test_context_follows_from_the_person(post: Post, person: str, context: str) -> None:
    assert context_of(person) == context == post.outbox.get(post.put("k", person=person)).notification.context


@pytest.mark.covers("A-193")
def test_queue_is_full_of_letters_and_prompts_together(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db", DeliveryPatience(max_waiting=3))
    post.put("a")
    run = post.runs.begin(post.session("local"), "chat").id
    post.runs.enqueue(run, 1, "c")
    post.outbox.require_room()
    post.put("b")
    with pytest.raises(Busy, match="queue full: 3") as caught:
        post.outbox.require_room()
    assert caught.value.hint
    post.outbox.require_room(is_person=True)  # one prompt waits: notifications do not count against people
    post.put("an end that must be told")
    post.outbox.clear("")
    post.outbox.require_room()


@pytest.mark.covers("A-193")
def test_letters_of_a_session_are_listed_and_cleared(post: Post) -> None:
    post.put("a", session="mail:ann"), post.put("b", session="mail:ann"), post.put("c", session="local:ann")
    assert [p.notification.key for p in post.outbox.list_postings(session="mail:ann")] == ["b", "a"]
    assert post.outbox.clear("mail:ann") == 2
    assert post.outbox.counts() == {"cancelled": 2, "waiting": 1}
    assert [p.notification.key for p in post.outbox.list_postings(status="waiting")] == ["c"]


def test_listing_pages_newest_first_within_a_context(post: Post) -> None:
    for i in range(5):
        post.put(f"k{i}", person="ann" if i % 2 else "bob")
    assert [p.notification.key for p in post.outbox.list_postings(limit=2, offset=1)] == ["k3", "k2"]
    assert [p.notification.key for p in post.outbox.list_postings(context="user:ann")] == ["k3", "k1"]


# -- by hand ----------------------------------------------------------------------------------------


def test_cancelled_letters_are_not_sent_and_can_be_sent_after_all(post: Post) -> None:
    letter = post.put("k")
    assert post.outbox.cancel(letter).status == "cancelled"
    assert post.ready() == [] and not post.outbox.begin_sending(letter, "mail")
    with pytest.raises(Conflict, match="is cancelled"):
        post.outbox.cancel(letter)
    assert post.outbox.retry(letter).status == "waiting"
    assert post.ready() == ["k"]


@pytest.mark.parametrize("status", ["sending", "sent"])
def test_what_a_channel_has_is_neither_cancelled_nor_repeated(post: Post, status: str) -> None:
    letter = post.put("k")
    post.outbox.begin_sending(letter, "mail")
    if status == "sent":
        post.outbox.end(letter, "sent")
    for decide in (post.outbox.cancel, post.outbox.retry):
        with pytest.raises(Conflict, match=f"is {status}"):
            decide(letter)


def test_a_failed_letter_gets_all_its_attempts_again(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db", DeliveryPatience(max_attempts=1))
    letter = post.put("k")
    post.outbox.begin_sending(letter, "mail")
    assert post.outbox.put_off(letter, "no net").status == "failed"
    again = post.outbox.retry(letter)
    assert (again.status, again.attempts, again.error, again.ended_ms) == ("waiting", 0, "", None)


def test_unknown_letters_are_not_found(post: Post) -> None:
    for ask in (post.outbox.get, post.outbox.cancel, post.outbox.retry):
        with pytest.raises(NotFound, match="no notification 7"):
            ask(7)


# -- sending ----------------------------------------------------------------------------------------


def test_letters_of_one_conversation_go_in_order_and_hold_up_no_other(post: Post) -> None:
    for key, session in (("a1", "mail:ann"), ("b1", "mail:bob"), ("a2", "mail:ann"), ("b2", "mail:bob")):
        post.put(key, session=session)
    assert post.ready() == ["a1", "b1"]
    first = post.outbox.find("a1")
    assert first is not None and post.outbox.begin_sending(first.id, "mail")
    post.outbox.put_off(first.id, "down")
    assert post.ready() == ["b1"]  # a2 waits behind a1
    post.outbox.cancel(first.id)
    assert post.ready() == ["b1", "a2"]


def test_pauses_double_up_to_the_longest_and_end_in_failure(tmp_path: Path) -> None:
    patience = DeliveryPatience(retry_s=5, retry_max_s=60, max_attempts=7)
    post = Post(tmp_path / "owlbox.db", patience)
    letter, pauses = post.put("k"), []
    for _ in range(7):
        assert post.outbox.begin_sending(letter, "mail")
        began = now_ms()
        left = post.outbox.put_off(letter, "down")
        pauses.append((left.due_ms - now_ms(), left.due_ms - began))
    assert all(least <= 1000 * pause_s <= most for pause_s, (least, most) in zip((5, 10, 20, 40, 60, 60, 60), pauses, strict=True))
    assert (left.status, left.error, left.attempts) == ("failed", "down", 7) and left.ended_ms


def test_next_moment_is_told(post: Post) -> None:
    letter = post.put("k")
    ready, later = post.outbox.due()
    assert len(ready) == 1 and later is None
    post.outbox.begin_sending(letter, "mail")
    due = post.outbox.put_off(letter, "down").due_ms
    assert post.outbox.due() == ([], due)


def test_a_free_delay_costs_no_attempt(post: Post) -> None:
    letter = post.put("k")
    for _ in range(20):
        assert post.outbox.begin_sending(letter, "local")
        assert post.outbox.put_off(letter, "being answered", is_free=True).status == "waiting"
    assert post.outbox.get(letter).attempts == 0


def test_a_clock_set_back_does_not_keep_letters_waiting(post: Post) -> None:
    letter = post.put("k")
    post.outbox.begin_sending(letter, "mail")
    post.outbox.put_off(letter, "down")
    assert post.ready(now_ms() - 300 * DAY_MS) == ["k"]


def test_a_letter_is_taken_once(post: Post) -> None:
    letter, taken = post.put("k"), []
    start = threading.Barrier(8)

    def race() -> None:
        start.wait()
        taken.append(post.outbox.begin_sending(letter, "mail"))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [False] * 7 + [True]
    assert post.outbox.get(letter).attempts == 1


def test_another_process_cannot_end_what_this_one_sends(post: Post) -> None:
    letter = post.put("k")
    post.outbox.begin_sending(letter, "mail")
    other = Outbox(post.store, "boot/1/1")
    other.end(letter, "sent")
    other.put_off(letter, "down")
    assert post.outbox.get(letter).status == "sending"


@pytest.mark.covers("A-021")
@pytest.mark.parametrize(("channel", "is_marked"), [("mail", True), ("local", False)])
def test_a_letter_whose_sender_died_is_sent_again_and_marked_unless_its_channel_knows_it(
    tmp_path: Path, channel: str, is_marked: bool
) -> None:
    code = """
        from appliance.clock import this_process, sleep_s
        from appliance.sessions.outbox import Notification, Outbox
        outbox = Outbox(Store.create(path), this_process().encode())
        outbox.begin_sending(outbox.put(Notification("k", "ann", "hoot")), sys.argv[2])
        print("taken", flush=True)
        sleep_s(60)
    """
    killed(child(code, tmp_path / "owlbox.db", channel), after="taken")
    post = Post(tmp_path / "owlbox.db")
    assert post.ready() == []
    (left,) = post.outbox.recover((), lambda name: name == "local")
    assert (left.status, left.may_repeat, left.attempts) == ("waiting", is_marked, 1)
    assert "ended in the middle of attempt 1" in post.outbox.get(left.id).error
    assert post.ready() == ["k"] and post.outbox.recover((), lambda name: True) == []


def test_a_letter_that_kills_its_sender_is_given_up(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db", DeliveryPatience(max_attempts=3))
    letter = post.put("k")
    for _ in range(3):
        assert post.outbox.begin_sending(letter, "mail")
        (left,) = post.outbox.recover((), lambda name: False)
    assert left.status == "failed" == post.outbox.get(letter).status


def test_what_a_living_process_sends_is_left_alone(post: Post, tmp_path: Path) -> None:
    code = """
        from appliance.clock import this_process
        from appliance.sessions.outbox import Notification, Outbox
        outbox = Outbox(Store.open(path), this_process().encode())
        outbox.begin_sending(outbox.put(Notification("k", "ann", "hoot")), "mail")
        print("taken", flush=True)
        sys.stdin.readline()
    """
    other = child(code, tmp_path / "owlbox.db")
    assert other.stdout is not None and other.stdout.readline() == "taken\n"
    assert post.outbox.recover((), lambda name: False) == []
    mine = post.put("mine", session="x")
    post.outbox.begin_sending(mine, "mail")
    assert post.outbox.recover({mine}, lambda name: False) == []
    other.kill()
    other.wait()
    assert [left.notification.key for left in post.outbox.recover({mine}, lambda name: False)] == ["k"]


def test_handing_over_is_one_transaction_and_happens_once(post: Post) -> None:
    letter = post.put("k")
    post.outbox.begin_sending(letter, "local", durable=False)
    with pytest.raises(ZeroDivisionError), post.outbox.handing_over("k"):
        raise ZeroDivisionError
    assert post.outbox.get(letter).status == "sending"
    with post.outbox.handing_over("k") as is_new:
        assert is_new
    assert post.outbox.get(letter).status == "sent"
    for key in ("k", "nonsense"):
        with post.outbox.handing_over(key) as is_new:
            assert not is_new


def test_bell_rings_within_the_transaction_and_due_waits_for_its_end(post: Post) -> None:
    """Whoever is woken by the bell looks while the letter is not committed yet, and must not miss it."""
    seen: list[list[str]] = []
    looking = threading.Thread(target=lambda: seen.append(post.ready()))
    post.outbox.events.subscribe(OutboxFilled, lambda filled: looking.start())
    with post.store.write():
        post.put("k")
        looking.join(0.3)
        assert seen == []
    looking.join(60)
    assert seen == [["k"]]


def test_a_channel_that_opens_hastens_only_what_insists_on_it(post: Post) -> None:
    for key, channel in (("a", "mail"), ("b", "chat"), ("c", "")):
        letter = post.put(key, channel=channel)
        post.outbox.begin_sending(letter, channel)
        post.outbox.put_off(letter, "down")
    assert post.ready() == [] and post.outbox.hasten("mail") == 1
    assert post.ready() == ["a"] and post.outbox.hasten("matrix") == 0


# -- where to ---------------------------------------------------------------------------------------


def test_addresses_are_those_of_the_context_last_used_first(post: Post) -> None:
    post.session("mail", "ann", subject="Re: owls"), post.session("local", "ann"), post.session("mail", "bob")
    with post.store.write() as execute:
        execute("UPDATE sessions SET last_active_ms = 5 WHERE id = 'mail:ann'")
    found = post.outbox.addresses("user:ann")
    assert [(a.channel, a.session, a.metadata) for a in found] == [
        ("local", "local:ann", {}),
        ("mail", "mail:ann", {"subject": "Re: owls"}),
    ]
    assert [a.session for a in post.outbox.addresses("user:ann", channel="mail")] == ["mail:ann"]
    assert post.outbox.addresses("user:ann", session="mail:bob") == []


def test_a_thread_of_another_context_is_none(post: Post) -> None:
    run = post.runs.begin(post.session("local", "bob"), "chat").id
    letter = Notification("k", "ann", "hoot", "user:ann", run=run)
    assert post.outbox.thread(letter) == ""
    assert post.outbox.thread(Notification("k", "bob", "hoot", "user:bob", run=run)) == run


# -- care -------------------------------------------------------------------------------------------


def test_what_is_old_is_given_up_then_forgotten(post: Post) -> None:
    waiting, sent = post.put("waiting"), post.put("sent", session="s")
    post.outbox.begin_sending(sent, "mail")
    post.outbox.end(sent, "sent")
    assert post.outbox.forget() == 0
    assert post.outbox.forget(now_ms() + 32 * DAY_MS) == 2
    assert [p.notification.key for p in post.outbox.list_postings()] == ["waiting"]
    left = post.outbox.get(waiting)
    assert (left.status, left.error) == ("failed", "not delivered within 31 days")
    assert post.outbox.forget(now_ms() + 64 * DAY_MS) == 1


def test_a_letter_from_before_the_clock_was_set_is_not_given_up_for_its_age(tmp_path: Path) -> None:
    post = Post(tmp_path / "owlbox.db")
    letter, sent = post.put("k"), post.put("sent", session="s")
    post.outbox.begin_sending(sent, "mail")
    post.outbox.end(sent, "sent")
    with Store.open(tmp_path / "owlbox.db").write() as execute:
        execute("UPDATE outbox SET created_ms = 60000, due_ms = 60000 WHERE id = ?", (letter,))
        execute("UPDATE outbox SET created_ms = 60000, ended_ms = 60000 WHERE id = ?", (sent,))
    assert post.outbox.forget() == 0 and post.outbox.get(sent).status == "sent" and post.outbox.get(letter).status == "waiting"
    assert post.outbox.forget(now_ms() + 32 * DAY_MS) == 1 and post.outbox.get(letter).status == "failed"


def test_looking_writes_nothing(post: Post) -> None:
    post.put("k")
    before = post.store.value("PRAGMA data_version"), post.store.path.with_name("owlbox.db-wal").stat()
    post.outbox.due(), post.outbox.recover((), bool), post.outbox.hasten("mail"), post.outbox.forget(), post.outbox.require_room()
    after = post.store.value("PRAGMA data_version"), post.store.path.with_name("owlbox.db-wal").stat()
    assert (before[0], before[1].st_mtime_ns, before[1].st_size) == (after[0], after[1].st_mtime_ns, after[1].st_size)


def test_processes_that_put_the_same_letters_put_each_once(tmp_path: Path) -> None:
    new_store(tmp_path / "owlbox.db").close()
    code = """
        from appliance.sessions.outbox import Notification, Outbox
        outbox = Outbox(Store.open(path), sys.argv[2])
        for i in range(50):
            outbox.put(Notification(f"k{i}", "ann", sys.argv[2]))
    """
    for process in [child(code, tmp_path / "owlbox.db", i) for i in range(3)]:
        finished(process)
    assert len(Post(tmp_path / "owlbox.db").outbox.list_postings(limit=1000)) == 50


def _model(posting: Posting) -> tuple[str, int]:
    return posting.status, posting.attempts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "take", "end", "off", "cancel", "retry", "die"]), st.integers(0, 3)), max_size=30
    )
)
def test_any_order_of_steps_keeps_one_row_a_key_and_never_unsends(post: Post, steps: list[tuple[str, int]]) -> None:
    post.outbox.patience = DeliveryPatience(max_attempts=3)
    with post.store.write() as execute:
        execute("DELETE FROM outbox")
    sent: set[str] = set()
    for what, which in steps:
        key = f"k{which}"
        known = post.outbox.find(key)
        if what == "put":
            post.put(key)
        elif what == "die":
            post.outbox.recover((), lambda name: False)
        elif known is not None:
            try:
                if what == "take":
                    post.outbox.begin_sending(known.id, "mail")
                elif what == "end":
                    if known.status == "sending":
                        post.outbox.end(known.id, "sent")
                        sent.add(key)
                elif what == "off":
                    post.outbox.put_off(known.id, "down")
                else:
                    (post.outbox.cancel if what == "cancel" else post.outbox.retry)(known.id)
            except Conflict:
                assert _model(post.outbox.get(known.id)) == _model(known)
    rows = {p.notification.key: p for p in post.outbox.list_postings(limit=100)}
    assert all(rows[key].status == "sent" for key in sent)
    assert all(p.attempts <= 3 for p in rows.values())
    assert all((p.ended_ms is not None) == (p.status in ("sent", "logged", "failed", "cancelled")) for p in rows.values())


def test_many_tasks_do_not_hide_the_door_of_a_person(tmp_path: Path) -> None:
    store = new_store(tmp_path / "owlbox.db")
    runs = Runs(store, "")
    runs.touch_session(Inbound("local", "ann", "hello", "m1", 1))
    for number in range(120):
        runs.open_session(f"task:{number}", "ann", "user:ann")
    assert [one.session for one in Outbox(store, "").addresses("user:ann")] == ["local:ann"]
    store.close()
