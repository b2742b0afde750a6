"""Schedules as tools of one core: what people and models may do with them, with their own and with no others'."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process import clean_environ
from record_tools import asdict, replace
from stores import new_home

from appliance.agent.loop_events import LoopStored
from appliance.clock import CancelToken, monotonic_s, new_id, now_ms
from appliance.language.times import recurrence
from appliance.policy.modes import FREE
from appliance.records import Inbound, LoopEnded, Outcome, ToolCall
from appliance.runtime.methods import LocalCall, find_methods
from appliance.runtime.paths import Home
from appliance.service.core import Core
from appliance.work.jobs import JobOrder
from appliance.work.schedule_service import ScheduleCaller
from appliance.work.schedules import Action, New, Notify
from appliance.work.tasks import NewTask

MINUTE = 60_000


class Desk:
    """A core on a home of its own, with a thread of ada and one of bob."""

    def __init__(self, folder: Path) -> None:
        self.runtime = Path(f"/tmp/owl-{new_id()[-12:]}")
        self.runtime.mkdir(0o700)
        home = Home(folder / "home")
        new_home(home)
        keys = {"SYSTEM__TIMEZONE": "Europe/Berlin", "SYSTEM__ADMIN_USERS": '["root of all"]'}
        environ = clean_environ(folder, self.runtime) | {f"OWLBOX__{name}": value for name, value in keys.items()}
        self.core = Core(home, environ, process="cli", is_shared=False)
        self.ada, self.bob = self.thread("ada"), self.thread("bob")

    def thread(self, person: str, channel: str = "local", **metadata: Any) -> str:
        with self.core.store.write():
            self.core.runs.touch_session(Inbound(channel, person, "hi", new_id(), 1, metadata=metadata))
            return self.core.runs.begin(f"{channel}:{person}", "chat").id

    def do(self, tool: str, run: str = "", session: str = "", /, **given: Any) -> Outcome:
        """A call as a model makes it in a thread, or a person outside of any."""
        session = session or (self.core.runs.get(run).session if run else "local:me")
        return self.core.toolbox.dispatch(ToolCall("c", tool, given), run, CancelToken(), session, terms=FREE)

    def made(self, tool: str, run: str = "", /, **given: Any) -> str:
        found = self.do(tool, run, **given)
        assert found.status == 200, found
        return str(found.data["schedule"]["id"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("schedules"))
    yield made
    assert made.core.close("the test is over") == []
    for path in sorted(made.runtime.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    made.runtime.rmdir()


@pytest.mark.covers("B-050", "B-043", "A-256")
def test_a_schedule_is_confirmed_with_its_words_and_next_times(desk: Desk) -> None:
    found = desk.do("create_schedule", desk.ada, name="Water the roses", frequency="every weekday at 7am", description="all")
    assert found.status == 200 and "at 07:00 on weekdays" in found.message and found.message.count(" 07:00") == 6
    view = found.data["schedule"]
    assert (view["person"], view["source"], view["kind"], view["spec"]) == ("ada", desk.ada, "cron", "0 7 * * 1-5")
    assert len(view["next"]) == 5 and view["zone"] == "Europe/Berlin"
    assert view["id"] in desk.do("list_schedules", desk.ada).message


@pytest.mark.covers("B-050", "B-051")
def test_free_words_are_taken_and_said_to_be_judged(desk: Desk) -> None:
    found = desk.do("create_schedule", desk.ada, name="Howl", frequency="judged: every full moon")
    assert found.data["schedule"]["is_judged"] and "model judges" in found.message
    refused = desk.do("create_schedule", desk.ada, name="Howl", frequency="every full moon")
    assert refused.status == 400 and "judged: every full moon" in refused.hint
    found = desk.do("create_schedule", desk.ada, name="Run", frequency="every weekday at 7am except holidays")
    assert found.data["schedule"]["condition"] and found.data["schedule"]["spec"] == "0 7 * * 1-5"


@pytest.mark.covers("A-255")
def test_nobody_sees_or_changes_what_is_somebody_elses(desk: Desk) -> None:
    mine = desk.made("create_schedule", desk.ada, name="secret of ada", frequency="every day at 9")
    assert "secret of ada" not in desk.do("list_schedules", desk.bob).message
    for tool, given in (
        ("view_schedule", {}),
        ("disable_schedule", {}),
        ("delete_schedule", {}),
        ("update_schedule", {"name": "x"}),
    ):
        assert desk.do(tool, desk.bob, id=mine, **given).status == 404
    assert desk.do("view_schedule", desk.bob, id="secret of ada").status == 404
    assert desk.do("view_schedule", desk.ada, id=mine).status == 200
    assert desk.do("view_schedule", id="secret of ada").status == 200  # at the command line all are seen
    admin = desk.thread("root of all")
    assert desk.do("disable_schedule", admin, id=mine).status == 200


@pytest.mark.covers("A-255", "A-243")
def test_pause_resume_change_and_delete(desk: Desk) -> None:
    ref = desk.made("create_schedule", desk.ada, name="to change", frequency="every day at 9")
    assert desk.do("disable_schedule", desk.ada, id=ref).data["schedule"]["status"] == "paused"
    assert desk.do("view_schedule", desk.ada, id=ref).data["schedule"]["next_ms"] is None
    assert desk.do("enable_schedule", desk.ada, id=ref).data["schedule"]["status"] == "active"
    changed = desk.do("update_schedule", desk.ada, id=ref, frequency="every Monday at 8", name="changed")
    assert (changed.data["schedule"]["spec"], changed.data["schedule"]["name"]) == ("0 8 * * 1", "changed")
    assert desk.do("delete_schedule", desk.ada, id=ref).status == 200
    assert desk.do("delete_schedule", desk.ada, id=ref).status == 404


def test_a_reminder_takes_its_time_from_the_text(desk: Desk) -> None:
    found = desk.do("remind", desk.ada, text="remind me to call the plumber in 2 hours").data["schedule"]
    assert (found["text"], found["action"], found["kind"], found["source"]) == ("call the plumber", "reminder", "once", desk.ada)
    assert abs(found["next_ms"] - now_ms() - 120 * MINUTE) < MINUTE
    assert desk.do("remind", desk.ada, text="tea", when="in 5 minutes").data["schedule"]["text"] == "tea"
    for text, when in (("call the plumber", ""), ("tea", "soon"), ("tea", "yesterday")):
        refused = desk.do("remind", desk.ada, text=text, when=when)
        assert refused.status == 400 and "tomorrow at noon" in refused.hint
    refused = desk.do("remind", desk.ada, text="remind me at 6pm")
    assert refused.status == 400 and "not of what" in refused.message and "call Ada at 6pm" in refused.hint


def test_undo_takes_a_schedule_back_and_brings_a_deleted_one_again(desk: Desk) -> None:
    run = desk.thread("ada")
    ref = desk.made("create_schedule", run, name="undone", frequency="every day at 9")
    undo = find_methods(*desk.core.offered)["run.undo"]
    undone = undo.call(LocalCall(), run=run)
    assert [one["kind"] for one in undone["changes"]] == ["schedule"] and ref in undone["changes"][0]["path"]
    assert desk.do("view_schedule", id=ref).status == 404
    ref = desk.made("create_schedule", desk.ada, name="kept", frequency="every day at 9")
    other = desk.thread("ada")
    assert desk.do("delete_schedule", other, id=ref).status == 200
    undo.call(LocalCall(), run=other)
    back = desk.core.schedules.rows.get(int(ref, 16))
    assert back.name == "kept"
    desk.core.schedules.firing.round(now_ms())  # its state is counted anew, nothing is fired
    assert desk.core.schedules.rows.get(back.id).state.next_ms == desk.do("view_schedule", id=ref).data["schedule"]["next_ms"]
    assert desk.core.schedules.rows.firings(back.id) == []


# -- no schedules of schedules ------------------------------------------------------------------------


def refusals(desk: Desk, run: str, ref: str) -> list[Outcome]:
    return [
        desk.do("create_schedule", run, name="another", frequency="every day at 9"),
        desk.do("remind", run, text="tea", when="in 5 minutes"),
        desk.do("cron_add", run, name="x", message="y", schedule="every 60"),
        desk.do("update_schedule", run, id=ref, frequency="every minute"),
        desk.do("enable_schedule", run, id=ref),
        desk.do("trigger_schedule", run, id=ref),
    ]


def test_a_task_of_a_schedule_makes_no_schedules_nor_do_its_children(desk: Desk) -> None:
    ref = desk.made("create_schedule", desk.ada, name="spring", frequency="every day at 9")
    known = desk.core.schedules.rows.get(int(ref, 16))
    desk.core.schedules.firing.trigger(known, now_ms())
    task = desk.core.tasks.list_tasks(limit=1)[0]
    assert task.name == "spring"
    with desk.core.store.write():
        desk.core.runs.open_session("task:77", "ada", "user:ada")
        run = desk.core.runs.begin("task:77", "tick", task=task.id)
        child = desk.core.runs.begin("task:77", "chat", parent=run.id)
    grandchild = desk.core.tasks.add(NewTask("later", person="ada", origin=run.id))
    with desk.core.store.write():
        last = desk.core.runs.begin("task:77", "tick", task=grandchild.id)
    before = len(desk.core.schedules.rows.list_schedules())
    for thread in (run.id, child.id, last.id):
        assert [(one.status, one.outcome) for one in refusals(desk, thread, ref)] == [(403, "scheduled")] * 6
        assert desk.do("list_schedules", thread).status == 200 and desk.do("disable_schedule", thread, id=ref).status == 200
    assert len(desk.core.schedules.rows.list_schedules()) == before


def test_a_turn_that_a_schedule_began_makes_no_schedules_but_the_persons_own_next_turn_does(desk: Desk) -> None:
    runs, run = desk.core.runs, desk.thread("ada")
    ref = desk.made("create_schedule", run, name="talk", frequency="every day at 9", action="message")
    message = Inbound("local", "ada", "hoot", f"schedule:{ref}:12345", now_ms(), thread=run)
    accepted = desk.core.inbox.accept(message, "c")
    runs.start_loop(accepted.loop)
    assert [one.status for one in refusals(desk, run, ref)] == [403] * 6
    with desk.core.store.write(durable=True):
        runs.end_loop(runs.loop(accepted.loop), 200, "done")
    own = desk.core.inbox.accept(Inbound("local", "ada", "hoot", new_id(), now_ms(), thread=run), "c")
    runs.start_loop(own.loop)
    assert desk.do("remind", run, text="tea", when="in 5 minutes").status == 200
    with desk.core.store.write(durable=True):
        runs.end_loop(runs.loop(own.loop), 200, "done")


def test_one_person_has_so_many_schedules_and_no_more(desk: Desk) -> None:
    run = desk.thread("eve")
    for number in range(100):
        assert desk.do("create_schedule", run, name=f"n{number}", frequency="every day at 9").status == 200
    refused = desk.do("create_schedule", run, name="one more", frequency="every day at 9")
    assert (refused.status, refused.outcome) == (429, "resource_exhausted")


# -- ends -------------------------------------------------------------------------------------------


@pytest.mark.covers("A-245")
def test_the_end_of_a_task_is_the_end_of_its_firing(desk: Desk) -> None:
    ref = desk.made("create_schedule", desk.ada, name="ends", frequency="every day at 9")
    known = desk.core.schedules.rows.get(int(ref, 16))
    for status in ("failed", "complete"):
        desk.core.schedules.firing.trigger(known, now_ms() + (1 if status == "complete" else 0))
        task = desk.core.tasks.list_tasks(limit=1)[0]
        claim = desk.core.tasks.claim("w", task.id)
        assert claim is not None
        desk.core.tasks.finish(claim, status, f"it is {status}")  # type: ignore[arg-type]
    last, first = desk.core.schedules.rows.firings(known.id)
    assert (first.status, first.outcome, last.status) == ("failed", "it is failed", "done")
    texts = [one.notification.text for one in desk.core.outbox.list_postings(limit=5)]
    assert any(text.startswith(f"Schedule ends ({ref}) failed: it is failed") for text in texts)
    assert any("it is complete" in text for text in texts)


@pytest.mark.covers("A-247", "A-243")
def test_a_silent_one_tells_nobody_of_its_success(desk: Desk) -> None:
    new = New("quiet", desk.core.schedules.timetable.read("every day at 9"), Action("tasks"), mode="silent", person="ada")
    known = desk.core.schedules.timetable.add(new, ScheduleCaller())
    desk.core.schedules.firing.trigger(known, now_ms())
    claim = desk.core.tasks.claim("w", desk.core.tasks.list_tasks(limit=1)[0].id)
    assert claim is not None
    before = desk.core.outbox.counts()
    desk.core.tasks.finish(claim, "complete", "done")
    assert desk.core.outbox.counts() == before
    assert desk.core.schedules.rows.firings(known.id)[0].status == "done"


def test_a_reminder_of_somebody_who_has_no_conversation_is_for_whoever_is_connected(desk: Desk) -> None:
    for session, person in (("local:ida", "ida"), ("local:ada", "ada")):
        found = desk.do("remind", "", session, text="tea", when="in 5 minutes").data["schedule"]
        assert found["person"] == person
        known = desk.core.schedules.rows.get(int(found["id"], 16))
        desk.core.schedules.firing.trigger(known, now_ms())
        letter = desk.core.outbox.list_postings(limit=1)[0].notification
        assert (letter.person, letter.channel) == (person, "local" if person == "ida" else "")


@pytest.mark.covers("A-243", "A-248")
def test_who_is_told_of_what_and_by_which_channel_is_said_when_it_is_made(desk: Desk) -> None:
    run = desk.thread("fay")
    given = {"frequency": "every day at 9", "notify": "Slack/C042", "tell": "failure"}
    found = desk.do("create_schedule", run, name="to slack", **given).data["schedule"]
    assert (found["notify"], found["tell"]) == ("slack/C042", "failure")
    assert "told: of failure by slack/C042" in desk.do("view_schedule", run, id="to slack").message
    known = desk.core.schedules.rows.get(int(found["id"], 16))
    assert (known.notify.channel, known.notify.on_success, known.notify.on_failure) == ("slack/C042", False, True)
    letters = []
    for status in ("complete", "failed"):
        desk.core.schedules.firing.trigger(known, now_ms() + len(letters) + (status == "failed"))
        claim = desk.core.tasks.claim("w", desk.core.tasks.list_tasks(limit=1)[0].id)
        assert claim is not None
        before = desk.core.outbox.list_postings(limit=1)[0].id
        desk.core.tasks.finish(claim, status, "so it is")  # type: ignore[arg-type]
        letters.append([one.notification for one in desk.core.outbox.list_postings(limit=9) if one.id > before])
    assert letters[0] == [] and [one.channel for one in letters[1]] == ["slack/C042"]
    assert desk.do("create_schedule", run, name="x", frequency="every day at 9", notify="to my mum").status == 400


@pytest.mark.covers("A-247", "A-249")
def test_a_prompt_for_a_conversation_goes_to_the_one_last_used_on_the_preferred_channel(desk: Desk) -> None:
    for channel in ("local", "slack", "email"):
        desk.thread("gil", channel)
    with desk.core.store.write() as execute:
        execute("UPDATE sessions SET context = 'user:gil', last_active_ms = 50 + (channel = 'email') WHERE id LIKE '%:gil'")
    new = New("x", recurrence.cron("0 9 * * *"), Action("prompt", {"prompt": "look"}), mode="session", person="gil")
    known = desk.core.schedules.timetable.add(new, ScheduleCaller())
    wanted = desk.core.home.box / "users" / "gil" / "USER.md"
    wanted.parent.mkdir(parents=True)

    def chosen(**more: Any) -> str:
        return desk.core.scheduled_messages.latest_session(replace(known, **more))

    assert chosen() == "email:gil"  # the last one
    for channel, session in (("slack", "slack:gil"), ("tui", "local:gil"), ("matrix", "email:gil"), ("none", "email:gil")):
        wanted.write_text(f"- Preferred channel: {channel}\n")
        assert chosen() == session
    assert chosen(notify=Notify("slack")) == "slack:gil"


@pytest.mark.covers("S-068", "A-245")
def test_the_end_of_a_turn_is_the_end_of_its_firing(desk: Desk) -> None:
    ref = desk.made("cron_add", desk.ada, name="turn", message="hoot", schedule="0 9 * * *")
    known = desk.core.schedules.rows.get(int(ref, 16))
    assert desk.core.schedules.rows.take_firing(known, 4242, now_ms(), desk.core.schedules.firing.keys(), is_asked=True)
    accepted = desk.core.inbox.accept(Inbound("local", "ada", "hoot", f"schedule:{ref}:4242", now_ms(), thread=desk.ada), "c")
    loop = desk.core.runs.loop(accepted.loop)
    desk.core.runs.start_loop(loop.id)
    with desk.core.store.write(durable=True):
        desk.core.events.publish(LoopStored(loop, LoopEnded(500, "failed", "no model")))
        desk.core.runs.end_loop(loop, 500, "failed")
    assert [(one.status, one.outcome) for one in desk.core.schedules.rows.firings(known.id)] == [("failed", "no model")]


# -- cron jobs --------------------------------------------------------------------------------------


@pytest.mark.covers("S-066", "S-067", "S-058", "E-260", "E-264")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schedule": "every 0"}, "every 0"),
        ({"schedule": "nonsense"}, "nonsense"),
        ({"timezone": "Mars/Base"}, "Mars/Base"),
        ({"enabled": "yes"}, "enabled"),
        ({"name": 5}, "name"),
        ({"message": None}, "description"),
        ({"channel": "nowhere"}, "CHANNEL:NAME"),
        ({"channel": "matrix:@ada:x"}, "room"),
    ],
)
def test_a_cron_job_that_cannot_be_is_refused(desk: Desk, given: dict[str, Any], says: str) -> None:
    usual = {"name": "news", "message": "Sum up the news.", "schedule": "0 9 * * *"}
    refused = desk.do("cron_add", desk.ada, **(usual | given))
    assert refused.status == 400 and says in refused.message + refused.hint
    missing = {name: value for name, value in usual.items() if name != "schedule"}
    assert desk.do("cron_add", desk.ada, **missing).status == 400


@pytest.mark.covers("S-067", "E-264")
def test_a_cron_job_talks_in_the_conversation_it_was_added_in(desk: Desk) -> None:
    rows = desk.core.schedules.rows
    own = desk.thread("ada")
    here = rows.get(int(desk.made("cron_add", own, name="here", message="hoot", schedule="every 3600"), 16))
    assert (here.session, here.action.text) == ("local:ada", "hoot") and (here.state.next_ms or 0) <= here.created_ms
    refused = desk.do("cron_add", name="x", message="y", schedule="every 3600")  # at the command line
    assert refused.status == 400 and "channel" in refused.message
    room = desk.thread("@ada:x", "matrix", matrix_room_id="!r", matrix_thread="$t")
    there = rows.get(int(desk.made("cron_add", room, name="there", message="hoot", schedule="every 3600"), 16))
    assert (there.session, there.metadata) == ("matrix:@ada:x", {"matrix_room_id": "!r", "matrix_thread": "$t"})
    mail = desk.thread("ada@example.org", "email")
    post = rows.get(int(desk.made("cron_add", mail, name="post", message="hoot", schedule="every 3600"), 16))
    assert post.metadata["email_subject"] == "[owlbox] post"


@pytest.mark.covers("S-060")
def test_a_cron_job_of_the_minute_that_has_just_begun_is_due_at_once(desk: Desk) -> None:
    ref = desk.made("cron_add", desk.thread("hal"), name="now", message="hoot", schedule="* * * * *", timezone="UTC")
    known = desk.core.schedules.rows.get(int(ref, 16))
    assert known.state.next_ms is not None and known.created_ms - MINUTE < known.state.next_ms <= known.created_ms
    desk.do("cron_remove", job_id=ref)


@pytest.mark.covers("S-066", "E-265")
def test_cron_jobs_are_switched_and_removed_one_by_one(desk: Desk) -> None:
    one = desk.made("cron_add", desk.bob, name="one", message="1", schedule="every 3600")
    two = desk.made("cron_add", desk.bob, name="two", message="2", schedule="every 3600", enabled=False)
    assert desk.do("cron_set_enabled", desk.bob, job_id=one, enabled=False).data["schedule"]["status"] == "paused"
    assert desk.do("cron_set_enabled", desk.bob, job_id=one, enabled="no").status == 400
    assert desk.do("cron_set_enabled", desk.bob, job_id=two, enabled=True).data["schedule"]["status"] == "active"
    assert {job["id"]: job["is_enabled"] for job in desk.do("cron_list", desk.bob).data["schedules"]} == {one: False, two: True}
    assert desk.do("cron_remove", desk.bob, job_id=one).status == 200
    assert desk.do("cron_remove", desk.bob, job_id="deadbeef").status == 404
    assert desk.do("cron_remove", desk.bob, job_id="zz").status == 404
    assert [job["id"] for job in desk.do("cron_list", desk.bob).data["schedules"]] == [two]


@pytest.mark.covers("S-068")
def test_a_due_job_is_a_turn_of_its_session_with_the_metadata_of_the_job(desk: Desk) -> None:
    core, thread = desk.core, desk.thread("hal", window="w7")
    ref = desk.made("cron_add", thread, name="look", message="look out", schedule="every 3600")
    due_ms = core.schedules.rows.get(int(ref, 16)).state.next_ms
    core.schedules.firing.round(now_ms())
    [said] = [event for event in core.runs.events(thread) if event.kind == "message" and event.role == "user"]
    assert (said.content, said.sender_id, said.input) == ("look out", "hal", {"metadata": {"window": "w7"}})
    session = core.store.value("SELECT s.metadata FROM runs r JOIN sessions s ON s.id = r.session WHERE r.id = ?", (thread,))
    assert json.loads(session) == {"window": "w7"} and core.runs.get(thread).session == "local:hal"
    keys = core.store.rows("SELECT message_id FROM inbox WHERE run = ?", (thread,))
    assert keys == [(f"schedule:{ref}:{due_ms}",)]


@pytest.mark.covers("S-068", "E-267")
def test_a_job_for_a_channel_that_does_not_run_is_skipped_and_moves_on(desk: Desk) -> None:
    rows = desk.core.schedules.rows
    room = desk.thread("@eve:x", "matrix", matrix_room_id="!r")
    known = rows.get(int(desk.made("cron_add", room, name="there", message="hoot", schedule="every 3600"), 16))
    now = now_ms()
    desk.core.schedules.firing.round(now)
    assert [one.status for one in rows.firings(known.id)] == ["skipped"]
    state = rows.get(known.id).state
    assert state.last_run_ms == now and state.next_ms is not None and state.next_ms > now
    errors = (desk.core.home.logs / "cli.log").read_text()
    assert "channel matrix does not run" in errors


def test_the_owls_own_schedules_are_kept_by_their_key_and_hash(desk: Desk) -> None:
    timetable, rows = desk.core.schedules.timetable, desk.core.schedules.rows
    rule = timetable.read("every day at 9")
    new = New("upkeep", rule, Action("system", {"job": "upkeep"}), type="system", key="test:upkeep", hash="a")
    made = timetable.ensure(new)
    before = desk.core.store.value("SELECT total_changes()")
    assert timetable.ensure(new) == made and desk.core.store.value("SELECT total_changes()") == before
    other = New("upkeep", timetable.read("every day at 10"), new.action, type="system", key="test:upkeep", hash="a")
    assert timetable.ensure(other).rule == rule  # the same hash keeps its times
    assert timetable.ensure(New(**{**asdict(other), "hash": "b"})).rule == other.rule
    assert timetable.remove_keyed("test:", keep=()) == 1 and rows.by_key("test:upkeep") is None


def test_a_preview_adds_nothing(desk: Desk) -> None:
    found = desk.do("preview_schedule", desk.ada, frequency="last Friday of the month at 5pm")
    assert found.message.startswith("at 17:00 on the last Friday of the month") and len(found.data["next"]) == 5


def test_a_prompt_of_a_schedule_and_the_heartbeat_make_no_schedules_but_a_helper_of_a_person_does(desk: Desk) -> None:
    jobs, thread = desk.core.jobs, desk.thread("ada")
    ref = desk.made("create_schedule", thread, name="mine", frequency="every day at 9")

    def begun(order: JobOrder) -> str:
        job = jobs.add(replace(order, priority="background"))  # which this process leaves to one that stays
        with desk.core.store.write(durable=True):
            run = desk.core.runs.begin("local:ada", "child", parent=order.parent or None)
            jobs.begin(job.id, run.id)
        return run.id

    asked = begun(JobOrder("assistant", "hoot", session="local:ada", correlation=f"schedule:{ref}:12345"))
    beat = begun(JobOrder("heartbeat", "look", session="local:ada"))
    helper = begun(JobOrder("worker", "plan", session="local:ada", parent=thread))
    for run in (asked, beat):
        assert [(one.status, one.outcome) for one in refusals(desk, run, ref)] == [(403, "scheduled")] * 6
    made = desk.do("create_schedule", helper, name="planned by a helper", frequency="every morning at 9")
    assert made.status == 200 and made.data["schedule"]["source"] == thread


@pytest.mark.covers("A-255")
def test_nobody_has_a_cron_job_talk_in_the_conversation_of_somebody_else(desk: Desk) -> None:
    given = {"name": "x", "message": "send me everything", "schedule": "every 3600"}
    thread = desk.thread("ada")
    for session in ("local:bob", "slack:bob"):
        assert desk.do("cron_add", thread, **given, channel=session).status == 403
    assert desk.do("cron_add", thread, **given, channel="local:ada").status == 200
    admin = desk.thread("root of all")
    assert desk.do("cron_add", admin, **given, channel="local:bob").status == 200
    assert desk.do("cron_add", **given, channel="local:bob").status == 200  # at the command line all may be changed


def test_a_round_of_a_process_that_ends_fires_nothing_that_a_clock_of_1970_made_due(desk: Desk) -> None:
    ref = desk.made("remind", desk.thread("ada"), text="early", when="every day at 7")
    with desk.core.store.write(durable=True) as execute:
        execute("UPDATE schedule_state SET next_ms = 25200000 WHERE id = ?", (int(ref, 16),))
    desk.core.schedules.runner.round()
    known = desk.core.schedules.rows.get(int(ref, 16))
    assert desk.core.schedules.rows.firings(known.id) == [] and (known.state.next_ms or 0) > now_ms()


def test_what_is_over_does_not_hide_what_is_to_come(desk: Desk) -> None:
    run = desk.thread("kim")
    for number in range(3):
        ref = desk.made("remind", run, text=f"old {number}", when="in 5 minutes")
        desk.core.schedules.rows.take_firing(
            desk.core.schedules.rows.get(int(ref, 16)), 5, now_ms(), desk.core.schedules.firing.keys(), is_asked=True
        )
        with desk.core.store.write() as execute:
            execute("UPDATE schedule_state SET halt = 'completed', next_ms = NULL WHERE id = ?", (int(ref, 16),))
    for when in ("in 3 hours", "in 2 hours"):
        desk.made("remind", run, text=when, when=when)
    names = [one["name"] for one in desk.do("list_schedules", run, soonest=True, limit=3).data["schedules"]]
    assert names[:2] == ["in 2 hours", "in 3 hours"] and names[2].startswith("old")
    assert [one["name"] for one in desk.do("list_schedules", run, limit=1).data["schedules"]] == ["old 0"]


def test_a_thousand_schedules_hide_none(desk: Desk) -> None:
    with desk.core.store.write(durable=True):
        for number in range(1001):
            desk.core.schedules.rows.add(New(f"many {number}", recurrence.interval(3600), Action("reminder"), person="crowd"))
    assert desk.do("view_schedule", id="many 1000").status == 200
    listed = desk.do("list_schedules", offset=1000).data["schedules"]
    assert listed[-1]["name"].startswith("many ")
    for one in desk.core.schedules.rows.list_schedules(person="crowd", limit=2000):
        desk.core.schedules.rows.delete(one.id)


def test_a_page_of_very_many_schedules_is_read_alone(desk: Desk) -> None:
    with desk.core.store.write() as execute:
        execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
            "INSERT INTO schedules (id, name, kind, spec, zone, act, type, mode, person, created_ms, updated_ms) "
            "SELECT 1000000 + i, 'many ' || i, 'cron', '0 9 * * *', 'UTC', 'reminder', 'scheduled', 'session', 'carol', i, i FROM n"
        )
        execute("INSERT INTO schedule_state (id, rule, next_ms, halt) VALUES (1000007, 'x', 5, 'completed'), (1000009, 'x', 9, '')")
    try:
        run = desk.thread("carol")
        began_s = monotonic_s()
        page = desk.do("list_schedules", run, limit=5, offset=3)
        took_s = monotonic_s() - began_s
        assert [one["name"] for one in page.data["schedules"]] == [f"many {i}" for i in range(4, 9)] and page.data["has_more"]
        assert took_s < 2, took_s  # 8 s when all of them were read, 0.05 s on an idle machine
        names = lambda **how: [one["name"] for one in desk.do("list_schedules", run, **how).data["schedules"]]  # noqa: E731
        assert names(status="completed") == ["many 7"] and names(type="system") == []
        assert names(limit=2, soonest=True) == ["many 9", "many 20000"] and len(names(limit=1000)) == 1000
    finally:
        with desk.core.store.write() as execute:
            execute("DELETE FROM schedules WHERE person = 'carol'")
            execute("DELETE FROM schedule_state WHERE id BETWEEN 1000001 AND 1020000")
