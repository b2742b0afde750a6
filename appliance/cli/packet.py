"""The commands about packets: `owlbox packet size`, `show` and `compact`.

What a model is sent in a thread, what it was sent, and a shorter form of a long conversation. Each takes the parsed
arguments and the home and returns the exit code, as in `cli.listings`.
"""

import argparse
from collections.abc import Callable

from appliance.cli.console.terminal import say, say_json, say_line, show
from appliance.cli.console.tool_command import once
from appliance.errors import BadInput
from appliance.runtime.paths import Home

Command = Callable[..., argparse.ArgumentParser]


def add(command: Command) -> None:
    """Add the group."""
    root = command("packet", choose, "what a model is sent in a thread")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    for name, handler, text in (
        ("size", size, "what fills the packet that would be sent now"),
        ("show", show_copy, "what a turn's model was sent and said, word for word"),
        ("compact", compact, "summarize the older part of a conversation; the originals stay"),
    ):
        made = command(name, handler, text, known)
        made.add_argument("run", help="the thread: its name or id, or the beginning or end of the id")
    known.choices["show"].add_argument("--turn", type=int, default=0, help="which turn; the newest one when not given")
    known.choices["show"].add_argument(
        "--part", default="", choices=["system", "user", "answer", "reasoning"], help="only this text"
    )


def choose(args: argparse.Namespace, home: Home) -> int:
    """No action was named."""
    raise BadInput("packet: say what to do", hint="owlbox packet size, show or compact, and a thread")


def size(args: argparse.Namespace, home: Home) -> int:
    """The table of what fills a packet."""
    found = once(home, "run.packet", {"run": args.run})
    if args.json:
        return say_json(found)
    limit = f" of {found['ceiling']}" if found["ceiling"] is not None else ""
    say_line(f"{found['run']}: {found['tokens']} tokens{limit} by route {found['route']}, layout {found['layout']}")
    say(found["text"])
    took = found["telemetry"]
    if took["prompt_tokens"]:
        say(
            f"sent so far: {took['prompt_tokens']} tokens, {took['context_tokens']} with the last call; "
            f"{took['output_tokens']} came back"
        )
    for note in found["notes"]:
        say(note)
    return 0


def show_copy(args: argparse.Namespace, home: Home) -> int:
    """The texts of one turn."""
    found = once(home, "run.copy", {"run": args.run, "turn": args.turn})
    if args.json:
        return say_json(found)
    for name in ("system", "user", "reasoning", "answer"):
        if args.part == name:
            say(found[name])
        elif not args.part and found[name]:
            say(f"--- {name}, turn {found['turn']}\n{found[name]}\n")
    return 0


def compact(args: argparse.Namespace, home: Home) -> int:
    """Summarize a conversation."""
    done = once(home, "run.compact", {"run": args.run})
    return show(args, done, f"{done['covers']} events are now in short:\n{done['summary']}")
