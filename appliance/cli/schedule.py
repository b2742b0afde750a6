"""The commands about what happens at its time: `owlbox schedule`, `owlbox cron`, `owlbox remind`.

Each but `schedule run` is one tool, called as `tool.call` whether a core runs or not. What is added here: flags in the form
people expect, tables, the lines of cron jobs, and one round of firing for timers.
"""

import argparse
import os
import sys
from collections.abc import Callable

from appliance.cli.console import terminal, tool_command
from appliance.cli.console.connect import require_owner
from appliance.cli.console.terminal import say, say_json, say_line
from appliance.errors import BadInput, NotFound
from appliance.runtime.paths import Home

ABOUT = "what is done at its time, again and again or once"
ABOUT_CRON = "messages that are said in a conversation at their times"
ABOUT_REMIND = "be reminded of something: owlbox remind call the plumber tomorrow at noon"
ABOUT_RUN = "do what is due now and end, for timers; nothing is done twice, whoever else does the same"
HEADS = ["id", "state", "next", "name", "when"]
NO_JOBS = "No cron jobs configured."

Command = Callable[..., argparse.ArgumentParser]
ID = "its id, 8 hex digits, or its name"
JOB = "its id, as `cron list` shows it"
WHEN = "when: every weekday at 7am; 0 7 * * 1-5; in 20 minutes"
ONE = {
    "view": ("view_schedule", "everything about one: its rule, its next times, how it went"),
    "enable": ("enable_schedule", "resume one"),
    "resume": ("enable_schedule", "the same as enable"),
    "disable": ("disable_schedule", "pause one"),
    "pause": ("disable_schedule", "the same as disable"),
    "delete": ("delete_schedule", "delete one"),
    "trigger": ("trigger_schedule", "do it now, whatever its time"),
}


def add(command: Command) -> None:
    """Add the three groups."""
    _add_schedules(command)
    _add_cron(command)
    remind = command("remind", show_reminder, ABOUT_REMIND)
    remind.add_argument("text", nargs="+", help="of what, and when")
    remind.add_argument("--when", default="", metavar="TIME", help="when, if the text does not say it")
    remind.add_argument("--timezone", default="", metavar="ZONE", help="local, UTC, +05:30, Europe/Berlin")


def _add_schedules(command: Command) -> None:
    root = command("schedule", show_list, ABOUT)
    root.set_defaults(enabled=None, status="", type="", limit=100, offset=0, soonest=False)
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    made = command("add", show_added, "add one, and show what its words mean", known)
    made.add_argument("name", nargs="+", help="what is to be done")
    made.add_argument("--frequency", required=True, metavar="TEXT", help=WHEN)
    made.add_argument("--description", default="", metavar="TEXT", help="everything needed to do it")
    made.add_argument("--action", default="tasks", choices=["tasks", "prompt", "message", "reminder"], help="what it does then")
    made.add_argument("--mode", default="", choices=["session", "isolated", "silent"], help="of a prompt")
    made.add_argument("--role", default="", metavar="NAME", help="as whom a prompt works")
    made.add_argument("--timezone", default="", metavar="ZONE", help="local, UTC, +05:30, Europe/Berlin")
    made.add_argument("--notify", default="", metavar="CHANNEL", help="by which channel you are told: tui, email, slack/dm, none")
    made.add_argument("--tell", default="all", choices=["all", "success", "failure", "nothing"], help="of which results")
    listing = command("list", show_list, "all of them, in the order in which they were made", known)
    only = listing.add_mutually_exclusive_group()
    only.add_argument("--enabled", dest="enabled", action="store_true", default=None, help="only those that are on")
    only.add_argument("--disabled", dest="enabled", action="store_false", default=None, help="only those that are off")
    listing.add_argument("--status", default="", choices=["active", "paused", "completed", "failed"], help="only in this state")
    listing.add_argument("--type", default="", choices=["scheduled", "heartbeat", "system"], help="only of this type")
    listing.add_argument("--limit", type=int, default=100)
    listing.add_argument("--soonest", action="store_true", help="what is due next first, what is over last")
    listing.add_argument("--offset", type=int, default=0)
    for word, (tool, text) in ONE.items():
        one = command(word, call, text, known)
        one.set_defaults(tool=tool)
        one.add_argument("id", help=ID)
    change = command("update", show_changed, "change one", known)
    change.add_argument("id", help=ID)
    for option, text in (("name", "what it is called"), ("frequency", WHEN), ("description", "everything needed to do it")):
        change.add_argument(f"--{option}", metavar="TEXT", help=text)
    preview = command("preview", show_preview, "what words about time mean, without adding anything", known)
    preview.add_argument("frequency", nargs="+", help=WHEN)
    preview.add_argument("--timezone", default="", metavar="ZONE")
    command("run", run, ABOUT_RUN, known)


def _add_cron(command: Command) -> None:
    root = command("cron", show_jobs, ABOUT_CRON)
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    command("list", show_jobs, "all of them", known)
    made = command("add", show_job, "add one", known)
    made.add_argument("name", help="what it is called")
    made.add_argument("message", help="what is said to the assistant")
    made.add_argument("schedule", help="five cron fields, or 'every N' with N seconds")
    made.add_argument("--channel", default="cli:local", metavar="SESSION", help="the conversation; your own without")
    made.add_argument("--timezone", default="local", metavar="ZONE")
    made.add_argument("--disabled", action="store_true", help="add it switched off")
    remove = command("remove", show_removed, "remove one", known)
    remove.add_argument("id", help=JOB)
    for word in ("enable", "disable"):
        switch = command(word, call_switch, f"{word} one", known)
        switch.set_defaults(is_enabled=word == "enable")
        switch.add_argument("id", help=JOB)


# -- schedules --------------------------------------------------------------------------------------


def call(args: argparse.Namespace, home: Home) -> int:
    """Call the tool for one schedule and print what it answers."""
    return tool_command.run_tool(args, home, args.tool, {"id": args.id})


def show_added(args: argparse.Namespace, home: Home) -> int:
    """Add a schedule; its words and next times."""
    names = ("frequency", "description", "action", "mode", "role", "timezone", "notify", "tell")
    given = {"name": " ".join(args.name), **{name: getattr(args, name) for name in names}}
    return tool_command.run_tool(args, home, "create_schedule", given)


def show_changed(args: argparse.Namespace, home: Home) -> int:
    """Change a schedule."""
    given = {name: value for name in ("name", "frequency", "description") if (value := getattr(args, name)) is not None}
    if not given:
        raise BadInput("nothing to change", hint="give --name, --frequency or --description")
    return tool_command.run_tool(args, home, "update_schedule", {"id": args.id, **given})


def show_preview(args: argparse.Namespace, home: Home) -> int:
    """Say what words about time mean."""
    given = {"frequency": " ".join(args.frequency), "timezone": args.timezone}
    return tool_command.run_tool(args, home, "preview_schedule", given)


def show_reminder(args: argparse.Namespace, home: Home) -> int:
    """Add a reminder."""
    text = " ".join(args.text)
    said = f"remind {text}" if args.text[0].lower() in ("me", "us") else f"remind me {text}"  # as one says it
    return tool_command.run_tool(args, home, "remind", {"text": said, "when": args.when, "timezone": args.timezone})


def show_list(args: argparse.Namespace, home: Home) -> int:
    """Print schedules as a table."""
    from appliance.work import rules_in_words

    given = {name: getattr(args, name) for name in ("limit", "offset", "status", "type", "soonest")}
    given |= {} if args.enabled is None else {"enabled": args.enabled}
    data = tool_command.ask_once(home, "list_schedules", given)["data"]
    if args.json:
        return say_json(data["schedules"])
    if not data["schedules"]:
        say("no schedules")
        return 0
    rows = []
    for one in data["schedules"]:
        ahead = rules_in_words.moment(one["next_ms"], one["zone"])[4:20] if one["next_ms"] else "-"
        rows.append([one["id"], one["status"], ahead, one["name"], one["words"]])
    terminal.table(rows, HEADS, sys.stdout, cut=["name", "when"])
    if data["has_more"]:
        say(f"there are more: --offset {args.offset + len(rows)}", sys.stderr)
    return 0


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


# -- cron jobs --------------------------------------------------------------------------------------


def show_jobs(args: argparse.Namespace, home: Home) -> int:
    """Print cron jobs, three lines each (S-069)."""
    jobs = tool_command.ask_once(home, "cron_list", {})["data"]["schedules"]
    if args.json:
        return say_json(jobs)
    for job in jobs:
        say_line(f"  [{'on' if job['is_enabled'] else 'off'}] {job['id']}  {job['name']}")
        say_line(f"       {job['frequency'] or job['spec']} ({job['zone']}) -> {job['session']}")
        say(f"       {job['text']}")
    if not jobs:
        say(NO_JOBS)
    return 0


def show_job(args: argparse.Namespace, home: Home) -> int:
    """Add a cron job."""
    given = {"name": args.name, "message": args.message, "schedule": args.schedule, "timezone": args.timezone}
    return tool_command.run_tool(args, home, "cron_add", {**given, "channel": args.channel, "enabled": not args.disabled})


def show_removed(args: argparse.Namespace, home: Home) -> int:
    """Remove a cron job."""
    try:
        return tool_command.run_tool(args, home, "cron_remove", {"job_id": args.id})
    except NotFound:
        raise NotFound(f"No job found with id '{args.id}'", hint="owlbox cron list shows them") from None


def call_switch(args: argparse.Namespace, home: Home) -> int:
    """Switch a cron job on or off."""
    return tool_command.run_tool(args, home, "cron_set_enabled", {"job_id": args.id, "enabled": args.is_enabled})


# -- inside -----------------------------------------------------------------------------------------
