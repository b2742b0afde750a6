"""Schedules in a running owlbox: told in their thread without a model, answered as turns, done by workers, killed, begun again."""

import getpass
import json
import re
from typing import Any

import pytest
from process import Box, Core, a_box, script, until  # noqa: F401

from appliance.clock import now_ms, sleep_s

PLAY = """
[[turns]]
match = "^set it"
tool_calls = [{name = "use", arguments = {tool = "remind", arguments = {text = "the cake", when = "in 2 seconds"}}}]
[[turns]]
match = "^again and again"
tool_calls = [{name = "use", arguments = {tool = "create_schedule", arguments = {name = "more", frequency = "every 60"}}}]
[[turns]]
match = "^stuck"
delay_s = 600
[[turns]]
repeat = true
text = "Hoot hoot."
"""
VERDICT = '{"isDue": true, "reasoning": "it is full", "tasks": [{"name": "look"}, {"name": "howl", "depends_on": [0]}]}'
QUICK = {"OWLBOX__SCHEDULER__POLL_MS": "500", "OWLBOX__SCHEDULER__MIN_INTERVAL_S": "0"}
ME = f"local:{getpass.getuser()}"


@pytest.fixture
def owl(box: Box) -> Box:
    script(box, PLAY)
    box.environ |= QUICK
    return box


def schedules(box: Box) -> list[dict[str, Any]]:
    """Those of people."""
    return [one for one in box.json("schedule", "list") if one["created_by"] == "user"]


def thread_of(box: Box, text: str) -> str:
    assert box.run("chat", text=f"{text}\n").returncode == 0
    return str(box.json("thread", "list", "--type", "chat")[0]["id"])


def letters(box: Box, run: str) -> list[str]:
    return [event["content"] for event in box.events(run) if (event["input"] or {}).get("letter")]


@pytest.mark.covers("A-256")
def test_a_reminder_asked_for_in_a_chat_is_told_there_at_its_time_without_a_model(owl: Box) -> None:
    owl.serve()
    run = thread_of(owl, "set it")
    requests = owl.json("sql", "SELECT COUNT(*) AS n FROM requests")
    until(lambda: letters(owl, run) == ["Reminder: the cake"], "the reminder is told")
    assert owl.json("sql", "SELECT COUNT(*) AS n FROM requests") == requests
    [one] = schedules(owl)
    assert (one["status"], one["source"], one["person"]) == ("completed", run, getpass.getuser())


def test_a_reminder_asked_for_at_the_command_line_is_told_in_the_thread_last_talked_in(owl: Box) -> None:
    owl.serve()
    run = thread_of(owl, "hello")
    assert owl.run("remind", "tea", "in", "1", "second").returncode == 0
    until(lambda: letters(owl, run) == ["Reminder: tea"], "the reminder is told")


@pytest.mark.covers("S-068", "S-062", "S-063")
def test_a_cron_job_added_while_the_core_runs_is_a_turn_in_its_session(owl: Box) -> None:
    owl.serve()
    run = thread_of(owl, "hello")
    made = owl.run("cron", "add", "news", "what is new?", "every 3600")
    assert made.returncode == 0, made.stderr
    until(lambda: any(event["content"] == "what is new?" for event in owl.events(run)), "it was said")
    until(lambda: [one["status"] for one in view(owl, "news")["firings"]] == ["done"], "its firing is done")
    said = [event["content"] for event in owl.events(run) if event["kind"] == "message"]
    assert said[-2:] == ["what is new?", "Hoot hoot."]


@pytest.mark.covers("A-245")
def test_an_answer_that_takes_too_long_is_stopped_and_counts_as_a_failure(owl: Box) -> None:
    owl.serve(OWLBOX__SCHEDULER__TIMEOUT_S="2")
    thread_of(owl, "hello")
    assert owl.run("cron", "add", "slow", "stuck", "every 3600").returncode == 0
    until(lambda: [one["status"] for one in view(owl, "slow")["firings"]] == ["failed"], "its firing has failed")
    assert view(owl, "slow")["schedule"]["failures"] == 1


def view(box: Box, name: str) -> dict[str, Any]:
    found: dict[str, Any] = box.json("schedule", "view", name)
    return found


def test_what_a_schedule_says_may_make_no_schedule(owl: Box) -> None:
    owl.serve()
    run = thread_of(owl, "hello")
    assert owl.run("cron", "add", "heap", "again and again", "every 3600").returncode == 0
    until(lambda: [one["status"] for one in view(owl, "heap")["firings"]] == ["done"], "its firing is done")
    assert [one["name"] for one in schedules(owl)] == ["heap"]
    results = [event for event in owl.events(run) if event["kind"] == "tool_result"]
    assert [one["outcome"] for one in results] == ["scheduled"]


@pytest.mark.covers("A-247", "B-046")
def test_a_prompt_apart_from_the_conversation_is_told_there(owl: Box) -> None:
    owl.serve()
    run = thread_of(owl, "hello")
    assert (
        owl.run(
            "schedule", "add", "look", "--frequency", "every day at 9", "--action", "prompt", "--description", "look"
        ).returncode
        == 0
    )
    assert owl.run("schedule", "trigger", "look").returncode == 0
    until(lambda: [one["status"] for one in view(owl, "look")["firings"]] == ["done"], "its firing is done")
    assert "look" not in [event["content"] for event in owl.events(run)]
    told = owl.json("sql", "SELECT text FROM outbox WHERE key LIKE 'schedule:%'")
    assert "look:\\nHoot hoot." in json.dumps(told)


@pytest.mark.covers("A-254", "A-257", "B-049")
def test_killed_and_begun_again_it_tells_what_was_due_meanwhile_once(owl: Box) -> None:
    core = owl.serve()
    made = owl.run("remind", "tea", "in 10 minutes", "--json")
    ref = json.loads(made.stdout)["schedule"]["id"]
    core.kill()
    assert view(owl, ref)["schedule"]["status"] == "active"
    said = owl.run("remind", "me", "in", "ten", "minutes", "to", "turn", "the", "roast", "--json")  # as one says it
    assert json.loads(said.stdout)["schedule"]["text"] == "turn the roast"
    with owl.store() as store, store.write() as execute:
        execute("UPDATE schedule_state SET next_ms = ? WHERE id = ?", (now_ms() - 1, int(ref, 16)))
    owl.serve()
    until(lambda: view(owl, ref)["schedule"]["status"] == "completed", "it is told")
    assert len(owl.json("sql", f"SELECT id FROM outbox WHERE key LIKE 'schedule:{ref}:%'")) == 1


@pytest.mark.covers("B-045", "B-046", "E-182", "B-049")
def test_a_timers_round_without_a_core_judges_and_makes_tasks(owl: Box) -> None:
    assert owl.run("schedule", "add", "Howl", "--frequency", "judged: every full moon").returncode == 0
    script(owl, f"title = '{VERDICT}'\n{PLAY}")  # what the scripted model says to side questions
    assert owl.json("schedule", "run") == {"fired": 1, "left": 0}
    assert owl.json("schedule", "run") == {"fired": 0, "left": 0}
    assert {one["name"]: one["open_blockers"] for one in owl.json("task", "list")} == {"look": 0, "howl": 1}


@pytest.mark.covers("B-049", "S-068", "A-245")
def test_without_a_core_a_message_stays_due_and_the_core_says_it(owl: Box) -> None:
    assert owl.run("cron", "add", "news", "Sum up.", "every 86400").returncode == 0
    assert owl.run("schedule", "add", "look", "--frequency", "every day at 9", "--action", "prompt").returncode == 0
    with owl.store() as store, store.write() as execute:
        execute("UPDATE schedule_state SET next_ms = ?", (now_ms() - 1,))
    assert owl.json("schedule", "run") == {"fired": 0, "left": 2}
    assert "2 due that only a running core does" in owl.run("schedule", "run").stdout
    assert owl.run("worker", "run").stdout == "nothing to do\n" and owl.run("heartbeat").returncode == 0
    refused = owl.run("schedule", "trigger", "look")
    assert refused.returncode == 5 and "owlbox serve" in refused.stderr
    with owl.store() as store:
        assert store.rows("SELECT status FROM firings") == store.rows("SELECT id FROM loops") == []
        assert store.value("SELECT MAX(failures) FROM schedule_state") == 0
        owl.serve()
        until(lambda: store.rows("SELECT status FROM firings") == [("done",)] * 2, "the core has said both")


@pytest.mark.covers("A-257", "A-248")
@pytest.mark.parametrize("has_core", [False, True])
def test_a_person_who_only_asks_is_told_at_their_next_question_once(owl: Box, has_core: bool) -> None:
    if has_core:
        owl.serve()
    assert owl.run("ask", "hello").returncode == 0
    assert owl.run("remind", "nap", "in", "1", "seconds").returncode == 0
    sleep_s(1.5)
    if has_core:
        until(lambda: owl.json("sql", "SELECT id FROM outbox WHERE status = 'sent'"), "it is delivered")
    told = owl.run("ask", "what is new?")
    assert told.stdout == "Hoot hoot.\n" and re.fullmatch(r"\* \d\d:\d\d Reminder: nap\n", told.stderr)
    again = owl.run("ask", "and now?")
    assert (again.stdout, again.stderr) == ("Hoot hoot.\n", "")
    assert [one["title"] for one in owl.json("thread", "list", "--type", "chat")] == ["Notifications"]


@pytest.mark.covers("B-044", "B-049")
def test_a_worker_fires_what_is_due_before_it_looks_for_tasks_and_not_when_told_so(owl: Box) -> None:
    assert owl.run("schedule", "add", "roses", "--frequency", "2099-01-01 at 9").returncode == 0
    with owl.store() as store, store.write() as execute:
        execute("UPDATE schedule_state SET next_ms = ?", (now_ms() - 1,))
    owl.run("worker", "run", "--no-eval-schedules")
    assert owl.json("task", "list") == []
    owl.run("worker", "run")
    assert [one["name"] for one in owl.json("task", "list")] == ["roses"]
    assert view(owl, "roses")["schedule"]["status"] == "completed"


@pytest.mark.covers("S-069", "E-266", "E-260", "E-265", "S-066")
def test_commands_about_cron_jobs(owl: Box) -> None:
    assert owl.run("cron", "list").stdout == "No cron jobs configured.\n"
    for wrong in ("every 0", "every -5", "every x", "nonsense"):
        refused = owl.run("cron", "add", "n", "m", wrong)
        assert refused.returncode == 2 and repr(wrong) in refused.stderr
    ref = owl.json("cron", "add", "news", "Sum up.", "0 9 * * 1-5")["schedule"]["id"]
    assert owl.run("cron", "list").stdout == f"  [on] {ref}  news\n       0 9 * * 1-5 (local) -> {ME}\n       Sum up.\n"
    assert owl.run("cron", "disable", ref).returncode == 0
    assert owl.run("cron").stdout.startswith(f"  [off] {ref}  news\n")
    gone = owl.run("cron", "remove", "12345678")
    assert gone.returncode == 3 and "No job found with id '12345678'" in gone.stderr
    assert owl.run("cron", "remove", ref).returncode == 0
    assert owl.run("cron", "list").stdout == "No cron jobs configured.\n"


@pytest.mark.covers("B-049", "S-063")
def test_commands_about_schedules(owl: Box) -> None:
    assert owl.run("schedule", "add", "roses").returncode == 2  # the frequency is mandatory
    given = ("--frequency", "every night at 2", "--notify", "none", "--tell", "failure")
    assert owl.json("schedule", "add", "backup", *given)["schedule"]["tell"] == "failure"
    assert "of failure by none" in owl.run("schedule", "view", "backup").stdout
    assert owl.run("remind", "on", "1", "May", "2035", "to", "buy", "a", "gift").returncode == 0
    assert owl.run("remind", "on", "1", "May", "2035", "to", "buy", "a", "gift", "for", "Monday").returncode == 2
    assert [one["name"] for one in owl.json("schedule", "list", "--soonest")][-2:] == ["backup", "buy a gift"]
    for name in ("backup", "buy a gift"):
        assert owl.run("schedule", "delete", name).returncode == 0
    for name in ("a", "b"):
        assert owl.run("schedule", "add", name, "--frequency", "every weekday at 7am", "--description", "all").returncode == 0
    assert owl.run("schedule", "disable", "a").returncode == 0
    assert [one["name"] for one in owl.json("schedule", "list", "--enabled")] == ["b"]
    assert [one["name"] for one in owl.json("schedule", "list", "--disabled")] == ["a"]
    assert [one["name"] for one in owl.json("schedule", "list", "--limit", "1", "--offset", "1")] == ["b"]
    shown = owl.run("schedule", "list", COLUMNS="80")
    assert all(len(line) <= 80 for line in shown.stdout.splitlines()) and "at 07:00 on weekdays" in shown.stdout
    assert owl.run("schedule", "enable", "a").returncode == 0 and owl.run("schedule", "trigger", "a").returncode == 0
    assert [one["name"] for one in owl.json("task", "list")] == ["a"]
    assert owl.run("schedule", "delete", "a").returncode == 0 and owl.run("schedule", "view", "a").returncode == 3
    assert (
        "at 17:00 on the last Friday" in owl.run("schedule", "preview", "last", "Friday", "of", "the", "month", "at", "5pm").stdout
    )


@pytest.mark.covers("A-246")
def test_what_goes_wrong_stands_in_a_file_of_its_own(owl: Box) -> None:
    words = ("--frequency", "every day at 9", "--action", "message", "--channel", "local:ada")
    assert owl.run("schedule", "add", "odd", *words).returncode == 0
    with owl.store() as store, store.write() as execute:
        execute("UPDATE schedules SET session = 'nowhere'")
        execute("UPDATE schedule_state SET next_ms = ?", (now_ms() - 1,))
    owl.serve().stop()
    lines = [json.loads(line) for line in (owl.home.logs / "scheduler-errors.log").read_text().splitlines()]
    assert lines and all(line["level"] == "error" for line in lines) and "names no session" in lines[-1]["message"]
