"""The heartbeat on a core with a scripted model: what it looks after, when it keeps still, and whom it tells."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from record_tools import replace
from test_delegation import opened
from test_scenarios import CHAT, Stage

from appliance.clock import now_ms, sleep_s
from appliance.language.times.recurrence import upcoming
from appliance.records import Outbound
from appliance.work.heartbeat import Beat, Heartbeat, jittered
from appliance.work.heartbeat_file import Section
from appliance.work.schedules import Schedule

ANSWERS: dict[str, Any] = {
    "talk": ["Hoot."] * 20,
    "quiet": ["HEARTBEAT_OK"] * 9,
    "door": ["The door is open."] * 9,
    "inside": ["It said HEARTBEAT_OK, but the door is open."],
    "last": ["All is well.\nHEARTBEAT_OK"],
    "broken": [{"text": "", "error": "too_large"}] * 9,
    "keep": [{"tool_calls": [{"name": "remember", "arguments": {"text": "The door was open.", "title": "Door"}}]}, "HEARTBEAT_OK"],
    "plants": ["The plants are dry."] * 9,
    "circles": ["The door is open. " * 2000],
}
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with opened(tmp_path_factory.mktemp("heartbeat"), ANSWERS) as made:
        yield made


@pytest.fixture(autouse=True)
def fresh(stage: Stage) -> Iterator[None]:
    yield
    file(stage, "")
    stage.core.live.current = replace(stage.core.live.current, heartbeat=type(stage.core.live.current.heartbeat)())


def file(stage: Stage, text: str | None, folder: str = "") -> None:
    path = stage.core.home.box / folder / "HEARTBEAT.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True) if text is None else path.write_text(text)
    stage.core.heartbeat.look([path])


def configure(stage: Stage, **keys: Any) -> None:
    current = stage.core.live.current
    stage.core.live.current = replace(current, heartbeat=replace(current.heartbeat, **keys))
    stage.core.heartbeat.sync()


def rows(stage: Stage) -> dict[str, Schedule]:
    return {one.key: one for one in stage.core.schedules.rows.list_schedules(limit=100) if one.key.startswith("heartbeat:")}


def look(stage: Stage, title: str = "checklist", key: str = "k", **more: Any) -> Beat:
    return stage.core.heartbeat.heartbeat.check_file("", title, key, **more)


def another(stage: Stage, *, is_able: bool) -> Heartbeat:
    """A heartbeat of the same core that was begun just now, and does not stay."""
    core = stage.core
    settings = lambda: core.live.current.heartbeat  # noqa: E731
    parts = core.home.box, settings, core.jobs, core.schedules.effects, core.schedules.timetable
    return Heartbeat(*parts, lambda: is_able, is_lasting=core.heartbeat.heartbeat._priority == "background")


def jobs(stage: Stage) -> int:
    return int(stage.core.store.value("SELECT COUNT(*) FROM jobs"))


def talk(stage: Stage) -> str:
    return stage.ask("[talk] Hello.", CHAT).run


@pytest.mark.covers("S-070", "E-268", "E-269")
def test_nothing_is_asked_before_anybody_has_talked(stage: Stage):
    file(stage, "- [ ] [door] is it shut?\n")
    before = jobs(stage)
    assert look(stage) == Beat("skipped", "nobody has talked yet")
    talk(stage)
    sleep_s(0.01)
    later = another(stage, is_able=False)
    assert later.check_file("", "checklist", "k") == Beat("skipped", "nobody has talked since the start")
    assert jobs(stage) == before


@pytest.mark.covers("S-070", "S-071", "E-268")
@pytest.mark.parametrize("text", ["# T\n", "\n\n", "<!-- note -->\n", "- [ ]\n", "- [x] done\n", "## S\nCadence: daily\nPrompt: y"])
def test_nothing_to_look_after_has_no_schedule_and_asks_nobody(stage: Stage, text: str):
    talk(stage)
    before = jobs(stage)
    file(stage, text)
    assert "heartbeat:box:checklist" not in rows(stage)
    assert look(stage) == Beat("skipped", "nothing to check") and jobs(stage) == before


@pytest.mark.covers("S-070", "E-268")
def test_a_missing_file_does_not_skip(stage: Stage):
    talk(stage)
    configure(stage, prompt="[quiet] Look around.")
    file(stage, None)
    assert "heartbeat:box:checklist" in rows(stage)
    assert look(stage).outcome == "quiet"


@pytest.mark.covers("S-072", "E-270")
def test_outside_of_the_active_hours_nobody_is_asked(stage: Stage):
    talk(stage)
    file(stage, "- [ ] [door] is it shut?\n")
    configure(stage, active_from="08:00", active_until="08:00")
    before = jobs(stage)
    assert look(stage) == Beat("skipped", "outside of the active hours") and jobs(stage) == before
    configure(stage, active_from="00:00", active_until="24:00", timezone="Mars/Base")
    assert look(stage, key="mars").outcome == "alert"
    assert any("Mars/Base" in problem for problem in stage.core.heartbeat.heartbeat.problems)


@pytest.mark.covers("S-073", "E-271")
@pytest.mark.parametrize(("name", "outcome"), [("quiet", "quiet"), ("last", "quiet"), ("inside", "alert"), ("door", "alert")])
def test_only_what_needs_attention_is_told(stage: Stage, name: str, outcome: str):
    talk(stage)
    file(stage, f"- [ ] [{name}] look\n")
    assert look(stage, key=name).outcome == outcome
    letter = stage.core.outbox.find(f"heartbeat:{name}")
    assert (letter is not None) is (outcome == "alert")


def test_what_a_tiny_model_cannot_look_after_is_said_once(stage: Stage):
    talk(stage)
    file(stage, "- [ ] Is the garage door shut?\n")
    current = stage.core.live.current
    stage.core.live.current = replace(current, models=replace(current.models, tier="tiny"))
    try:
        beats = [look(stage, key=f"tiny{n}") for n in range(3)]
    finally:
        stage.core.live.current = current
    assert {one.outcome for one in beats} == {"failed"}
    told = [
        one.notification
        for one in stage.core.outbox.list_postings(limit=100)
        if one.notification.key.startswith("heartbeat:unable:")
    ]
    assert len(told) == 1 and told[0].text.startswith("Is the garage door shut?") and "more capable model" in told[0].text


@pytest.mark.covers("S-074", "A-249")
def test_an_alert_goes_to_the_thread_last_talked_in_and_is_put_once(stage: Stage):
    file(stage, "- [ ] [door] look\n")
    thread = talk(stage)
    assert look(stage, key="twice").text == look(stage, key="twice").text == "The door is open."
    letters = [one for one in stage.core.outbox.list_postings(limit=100) if one.notification.key == "heartbeat:twice"]
    (found,) = letters
    assert (found.notification.session, found.notification.run, found.notification.person) == ("local:ada", thread, "ada")
    stage.core.queue.channel.deliver(_outbound(stage, found.id))
    assert stage.core.runs.events(thread)[-1].content == "The door is open."


@pytest.mark.covers("S-074")
def test_of_several_people_the_one_who_talked_last_is_told(stage: Stage):
    file(stage, "- [ ] [door] look\n")
    talk(stage)
    at_ms = now_ms()
    with stage.core.store.write() as execute:
        for name, apart in (("bob", -DAY_MS), ("cid", -2 * DAY_MS)):
            stage.core.runs.open_session(f"local:{name}", name, f"user:{name}")
            execute("UPDATE sessions SET last_active_ms = ? WHERE id = ?", (at_ms + apart, f"local:{name}"))
    for key, person in (("last is ada", "ada"), ("last is bob", "bob")):
        assert look(stage, key=key).outcome == "alert"
        letter = stage.core.outbox.find(f"heartbeat:{key}")
        assert letter is not None and (letter.notification.person, letter.notification.session) == (person, f"local:{person}")
        with stage.core.store.write() as execute:
            execute("UPDATE sessions SET last_active_ms = ? WHERE id = 'local:bob'", (now_ms() + 1,))
    with stage.core.store.write() as execute:
        execute("UPDATE sessions SET last_active_ms = 0 WHERE id IN ('local:bob', 'local:cid')")


def _outbound(stage: Stage, letter: int) -> Any:
    known = stage.core.outbox.get(letter).notification
    assert stage.core.outbox.begin_sending(letter, "local")
    return Outbound(known.session, known.text, None, {}, known.key, known.person, known.run or "", "")


def test_what_is_looked_after_is_in_nobody_s_history(stage: Stage):
    thread = talk(stage)
    before = len(stage.core.runs.events(thread))
    file(stage, "- [ ] [quiet] look\n")
    assert look(stage).outcome == "quiet"
    assert len(stage.core.runs.events(thread)) == before
    assert not [one for one in stage.core.history.last("user:ada", 50) if "look" in one.text and "Hello" not in one.text]


def test_an_alert_that_finds_no_end_is_cut_and_says_where_the_rest_is(stage: Stage):
    talk(stage)
    file(stage, "- [ ] [circles] look\n")
    told = look(stage, key="circles").text
    assert len(told) < 1700 and told.startswith("The door is open.")
    ref = told.rpartition("owlbox job view ")[2].rstrip(")")
    assert len(stage.core.jobs.get(ref).result) > len(told)
    letter = stage.core.outbox.find("heartbeat:circles")
    assert letter is not None and letter.notification.text == told


@pytest.mark.covers("S-075", "E-272")
def test_a_failure_is_logged_and_the_next_look_goes_on(stage: Stage):
    talk(stage)
    file(stage, "- [ ] [broken] look\n")
    (row,) = rows(stage).values()
    assert stage.core.heartbeat.heartbeat.run_beat(row, 1).startswith("failed")
    file(stage, "- [ ] [door] look\n")
    assert look(stage, key="next").outcome == "alert"


@pytest.mark.covers("S-075")
def test_switched_off_there_is_nothing(stage: Stage):
    file(stage, "- [ ] [door] look\n\n## Plants\nCadence: daily\nPrompt: [plants] look\n")
    assert len(rows(stage)) == 2
    configure(stage, enabled=False)
    assert rows(stage) == {}
    assert look(stage, key="off").outcome == "skipped"


@pytest.mark.covers("S-076", "E-273")
def test_own_pool_and_a_tool_that_keeps_things(stage: Stage):
    talk(stage)
    file(stage, "- [ ] [keep] look\n")
    assert look(stage).outcome == "quiet"
    assert stage.core.store.value("SELECT COUNT(*) FROM entries WHERE body LIKE '%The door was open.%'") >= 1
    current = stage.core.live.current
    stage.core.live.current = replace(current, pools={**current.pools, "tiny": ("local",)})
    assert stage.core.roles.get("heartbeat").pool != "tiny"
    configure(stage, pool="tiny")
    assert stage.core.roles.get("heartbeat").pool == "tiny" and stage.core.roles.get("assistant").pool != "tiny"


@pytest.mark.covers("A-250")
def test_what_a_section_came_to_is_worded_by_the_assistant(stage: Stage):
    talk(stage)
    file(stage, "## Plants\nCadence: daily\nPrompt: [plants] look\n")
    plain = look(stage, "Plants", "plain")
    assert plain == Beat("alert", "The plants are dry.")  # the scripted model counts as too small to word anything
    able = another(stage, is_able=True)
    sleep_s(0.01)
    talk(stage)  # since it began
    before = jobs(stage)
    assert able.check_file("", "Plants", "worded").outcome == "alert"
    roles = stage.core.store.rows("SELECT role FROM jobs ORDER BY created_ms, rowid LIMIT 10 OFFSET ?", (before,))
    assert [role for (role,) in roles] == ["heartbeat", "assistant"]
    assert stage.core.store.rows("SELECT DISTINCT priority FROM jobs") == [("background",)]  # people's questions go first


@pytest.mark.covers("A-251", "A-253")
def test_sections_become_schedules_that_stay_while_they_say_the_same(stage: Stage):
    good = "## Plants\nCadence: daily\nPrompt: [plants] look\n\n## Mail\nCadence: weekly\nPrompt: look\n"
    text = f"{good}\n## Bad\nCadence: now\nPrompt: x\n"
    file(stage, text)
    first = rows(stage)
    assert sorted(one.name for one in first.values()) == ["Heartbeat: Mail", "Heartbeat: Plants"]
    assert any("'Bad'" in problem for problem in stage.core.heartbeat.heartbeat.problems)
    changes = stage.core.store.value("SELECT total_changes()")
    stage.core.heartbeat.sync()
    assert rows(stage) == first and stage.core.store.value("SELECT total_changes()") == changes
    file(stage, text.replace("Prompt: look", "Prompt: look again"))
    second = rows(stage)
    assert {one.id for one in first.values()} & {one.id for one in second.values()} == {
        one.id for one in first.values() if one.name.endswith("Plants")
    }
    file(stage, "nothing here\n", "users/bob")
    assert "heartbeat:user:bob:checklist" in rows(stage)
    file(stage, None, "users/bob")
    assert "heartbeat:user:bob:checklist" not in rows(stage)


@pytest.mark.covers("E-324")
def test_one_file_with_a_checklist_and_a_section_has_one_schedule_for_each_however_often_it_is_edited(stage: Stage):
    text = "# Heartbeat\n\n- [ ] is the door shut?\n\n## Plants\nCadence: weekly\nPrompt: Look at the plants.\n"
    file(stage, text)
    first = rows(stage)
    assert {(one.name, one.rule.kind, one.type) for one in first.values()} == {
        ("Heartbeat: HEARTBEAT.md", "interval", "heartbeat"),
        ("Heartbeat: Plants", "cron", "heartbeat"),
    }
    beat = first["heartbeat:box:checklist"]
    for number in range(4):
        file(stage, text.replace("Look at", f"Look {number} times at") + f"- [ ] and {number}?\n")
        edited = rows(stage)
        assert sorted(one.name for one in edited.values()) == ["Heartbeat: HEARTBEAT.md", "Heartbeat: Plants"]
        assert edited["heartbeat:box:checklist"] == beat  # the lines are read when it is due
    file(stage, text)
    assert {(one.key, one.rule) for one in rows(stage).values()} == {(one.key, one.rule) for one in first.values()}
    file(stage, text.replace("- [ ] is", "- [x] is"))
    assert [one.name for one in rows(stage).values()] == ["Heartbeat: Plants"]


@pytest.mark.covers("A-252")
@pytest.mark.parametrize("seed", range(40))
def test_cadences_are_drawn_within_their_bounds(seed: int):
    def times(cadence: str) -> list[datetime]:
        rule = jittered(Section("T", cadence, "p"), f"box-{seed}", "UTC")
        assert rule == jittered(Section("T", cadence, "p"), f"box-{seed}", "UTC")
        return [datetime.fromtimestamp(at / 1000, UTC) for at in upcoming(rule, 1_800_000_000_000, 4)]

    hourly, daily, weekly, biweekly, monthly = map(times, ("hourly", "daily", "weekly", "biweekly", "monthly"))
    assert {(b - a).total_seconds() for a, b in zip(hourly, hourly[1:])} == {3600}
    assert {(b - a).days for a, b in zip(daily, daily[1:])} == {1}
    assert {(b - a).days for a, b in zip(weekly, weekly[1:])} == {7}
    assert {(b - a).days for a, b in zip(biweekly, biweekly[1:])} == {14}
    assert all(6 <= one.hour <= 22 for one in (*daily, *weekly, *biweekly, *monthly))
    assert all(one.isoweekday() <= 5 for one in weekly) and all(1 <= one.day <= 28 for one in monthly)


def test_it_fires_when_it_is_due(stage: Stage):
    talk(stage)
    file(stage, "- [ ] [door] look\n")
    (row,) = rows(stage).values()
    assert "alert" in stage.core.schedules.runner.trigger(row)
