"""The commands about what happens at its time: `owlbox schedule`, `owlbox cron`, `owlbox remind`, made from the tools for it.

What is added here: a reminder in the words of a sentence, and one round of firing for timers.
"""

import argparse
import os
from typing import Any

from appliance.cli.console.connect import require_owner
from appliance.cli.console.terminal import say, say_json
from appliance.cli.console.verbs import Noun, Verb, call
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

WHEN = "when: every weekday at 7am; 0 7 * * 1-5; in 20 minutes"


def show_changed(args: argparse.Namespace, home: Home) -> int:
    """Change a schedule."""
    given = {name: value for name in ("name", "frequency", "description") if (value := getattr(args, name)) is not None}
    if not given:
        raise BadInput("nothing to change", hint="give --name, --frequency or --description")
    return call(args, home, args.verb, {"id": args.id, **given})


def show_reminder(args: argparse.Namespace, home: Home) -> int:
    """Add a reminder."""
    text = " ".join(args.text)
    said = f"remind {text}" if args.text[0].lower() in ("me", "us") else f"remind me {text}"  # as one says it
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


def _next_time(one: dict[str, Any]) -> str:
    from appliance.work import rules_in_words

    return rules_in_words.moment(one["next_ms"], one["zone"])[4:20] if one["next_ms"] else "-"


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
        return call(args, home, args.verb, {"job_id": args.id})
    except NotFound:
        raise NotFound(f"No job found with id '{args.id}'", hint="owlbox cron list shows them") from None


JOB = {"id": "its id, as `cron list` shows it"}
# fmt: off
ONE = (
    ("view", "view_schedule", "everything about one: its rule, its next times, how it went"),
    ("enable", "enable_schedule", "resume one"),
    ("resume", "enable_schedule", "the same as enable"),
    ("disable", "disable_schedule", "pause one"),
    ("pause", "disable_schedule", "the same as disable"),
    ("delete", "delete_schedule", "delete one"),
    ("trigger", "trigger_schedule", "do it now, whatever its time"),
)
NOUNS = (
    Noun("schedule", "what is done at its time, again and again or once", (
        Verb("add", "tool create_schedule",
             "name+ --frequency --description --action --mode --role --timezone --notify --tell", helps={"frequency": WHEN},
             text="add one, and show what its words mean"),
        Verb("list", "tool list_schedules", "--enabled --disabled=enabled --status --type --limit --soonest --offset",
             text="all of them, in the order in which they were made", part="schedules", empty="no schedules",
             helps={"enabled": "only those that are on", "disabled": "only those that are off",
                    "soonest": "what is due next first, what is over last"},
             rows="id state=status next=next_ms name~ when=words~", cells={"next_ms": _next_time}),
        *(Verb(word, f"tool {tool}", text=text) for word, tool, text in ONE),
        Verb("update", "tool update_schedule", text="change one", handler=show_changed),
        Verb("preview", "tool preview_schedule", "frequency+ --timezone", helps={"frequency": WHEN},
             text="what words about time mean, without adding anything"),
        Verb("run", text="do what is due now and end, for timers; nothing is done twice, whoever else does the same", handler=run),
    )),
    Noun("cron", "messages that are said in a conversation at their times", (
        Verb("list", "tool cron_list", "-", text="all of them", part="schedules", says=_tell_jobs),
        Verb("add", "tool cron_add", "name message schedule --channel@cli:local --timezone --disabled=enabled", text="add one",
             helps={"disabled": "add it switched off"}),
        Verb("remove", "tool cron_remove", "id=job_id", text="remove one", handler=remove_job, helps=JOB),
        Verb("enable", "tool cron_set_enabled", "id=job_id", text="enable one", fixed={"enabled": True}, helps=JOB),
        Verb("disable", "tool cron_set_enabled", "id=job_id", text="disable one", fixed={"enabled": False}, helps=JOB),
    )),
    Verb("remind", "tool remind", "text+ --when --timezone", handler=show_reminder,
         text="be reminded of something: owlbox remind call the plumber tomorrow at noon", helps={"text": "of what, and when"}),
)
