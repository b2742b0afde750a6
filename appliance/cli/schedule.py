"""The commands about what happens at its time: `owlbox schedule`, `owlbox cron`, `owlbox remind`, made from the tools for it.

What is added here: a reminder in the words of a sentence, and one round of firing for timers.
"""

import argparse
import os
from typing import Any

from appliance.console.connect import require_owner
from appliance.console.terminal import say, say_json
from appliance.console.verbs import Noun, Verb, call
from appliance.errors import NotFound
from appliance.runtime.paths import Home

WHEN = "when: every weekday at 7am; 0 7 * * 1-5; in 20 minutes"


def show_reminder(args: argparse.Namespace, home: Home) -> int:
    """Add a reminder."""
    text = " ".join(args.text)
    said = f"remind {text}" if text.lower().startswith(("me ", "us ")) else f"remind me {text}"  # as one says it
    return call(args, home, args.verb, {"text": said, "when": args.when, "timezone": args.timezone})


def run(args: argparse.Namespace, home: Home) -> int:
    """One round of firing in this process, with or without a core."""
    from appliance.service.core import Core

    require_owner(home)
    core = Core(home, os.environ, process="worker", is_shared=False)
    try:
        count, left = core.schedules.runner.round(), core.schedules.runner.left()
    finally:
        core.close("the round is over")
    if args.json:
        return say_json({"fired": count, "left": left})
    say(f"done: {count}" if count else "nothing was done" if left else "nothing was due")
    if left:
        say(f"{left} due that only a running core does, and it stays so: owlbox serve")
    return 0


def _tell_jobs(args: argparse.Namespace, jobs: list[dict[str, Any]]) -> list[str]:
    """Cron jobs, three lines each (S-069)."""
    lines = []
    for job in jobs:
        lines.append(f"  [{'on' if job['is_enabled'] else 'off'}] {job['id']}  {job['name']}")
        lines.append(f"       {job['frequency'] or job['spec']} ({job['zone']}) -> {job['session']}")
        lines += [f"       {line}" for line in job["text"].splitlines()]
    return lines or ["No cron jobs configured."]


def remove_job(args: argparse.Namespace, home: Home) -> int:
    """Remove a cron job."""
    try:
        return call(args, home, args.verb, {"id": args.id})
    except NotFound:
        raise NotFound(f"No job found with id '{args.id}'", hint="owlbox cron list shows them") from None


SWITCHES = (("enable", True, "resume a schedule"), ("disable", False, "pause a schedule"))
JOB = {"id": "its id, as `cron list` shows it"}
# fmt: off
ONE = (
    ("view", "view_schedule", "show one: its rule, next times and past runs"),
    ("delete", "delete_schedule", "delete a schedule"),
    ("trigger", "trigger_schedule", "run it now"),
)
NOUNS = (
    Noun("schedule", "schedules and reminders", (
        Verb("add", "tool create_schedule",
             "name+ --frequency --description --action --mode --role --timezone --notify --tell --channel "
             "--disabled=enabled", helps={"frequency": WHEN},
             text="add a schedule, and show how it was understood"),
        Verb("list", "tool list_schedules", "--enabled --disabled=enabled --status --type --limit --soonest --offset",
             text="list schedules, oldest first", part="schedules", empty="no schedules",
             helps={"enabled": "only those that are on", "disabled": "only those that are off",
                    "soonest": "next due first"},
             rows="id state=status next=next_ms name~ when=words~"),
        *(Verb(word, f"tool {tool}", text=text) for word, tool, text in ONE),
        *(Verb(word, "tool update_schedule", "id", text=text, fixed={"enabled": is_on}) for word, is_on, text in SWITCHES),
        Verb("update", "tool update_schedule", text="change a schedule"),
        Verb("preview", "tool preview_schedule", "frequency+ --timezone", helps={"frequency": WHEN},
             text="show how a time is understood, without adding anything"),
        Verb("run", text="run what is due and exit, for timers; nothing runs twice", handler=run),
    )),
    Noun("cron", "messages to the assistant at exact times", (
        Verb("list", "tool list_schedules", "-", text="all of them", part="schedules", says=_tell_jobs,
             fixed={"type": "cron", "limit": 1000}),
        Verb("add", "tool create_schedule",
             "name message=description schedule=frequency --channel@cli:local --timezone --disabled=enabled", text="add one",
             fixed={"action": "message"}, helps={"disabled": "add it switched off"}),
        Verb("remove", "tool delete_schedule", "id", text="remove one", handler=remove_job, helps=JOB),
        Verb("enable", "tool update_schedule", "id", text="enable one", fixed={"enabled": True}, helps=JOB),
        Verb("disable", "tool update_schedule", "id", text="disable one", fixed={"enabled": False}, helps=JOB),
    )),
    Verb("remind", "tool remind", "text+ --when --timezone", handler=show_reminder,
         text="set a reminder: owlbox remind call the plumber tomorrow at noon", helps={"text": "what, and when"}),
)
