"""The commands about what a model is sent in a thread: `owlbox packet size`, `show` and `compact`, made from their methods."""

import argparse
from typing import Any

from appliance.console.verbs import Noun, Verb, takes


def _tell_size(args: argparse.Namespace, found: dict[str, Any]) -> list[str]:
    """The table of what fills a packet."""
    limit = f" of {found['ceiling']}" if found["ceiling"] is not None else ""
    took = found["telemetry"]
    sent = f"sent so far: {took['prompt_tokens']} tokens, {took['context_tokens']} with the last call"
    return [
        f"{found['run']}: {found['tokens']} tokens{limit} by route {found['route']}, layout {found['layout']}",
        *found["text"].splitlines(),
        *([f"{sent}; {took['output_tokens']} came back"] if took["prompt_tokens"] else []),
        *found["notes"],
    ]


def _tell_copy(args: argparse.Namespace, found: dict[str, Any]) -> str:
    """The texts of one turn, or one of them."""
    if args.part:
        return str(found[args.part])
    names = [name for name in ("system", "user", "reasoning", "answer") if found[name]]
    return "\n".join(f"--- {name}, turn {found['turn']}\n{found[name]}\n" for name in names)


def _tell_prompt(args: argparse.Namespace, size: dict[str, Any]) -> list[str]:
    head = f"{size['static']} tokens of static prompt on route {size['route']} ({size['dialect']}), {size['total']} in all"
    return [head, *(f"  {name:<14}{tokens:>6}" for name, tokens in size["groups"].items())]


# fmt: off
NOUNS = (
    Noun("packet", "show what a model is sent", (
        Verb("size", "run.packet", "run", text="show the size of each part that would be sent now", says=_tell_size),
        Verb("show", "run.packet", "run --turn@0", text="show what the model was sent and answered in a turn", says=_tell_copy,
             adds=takes("--part", default="", choices=["system", "user", "answer", "reasoning"], help="only this text")),
        Verb("compact", "run.compact", text="summarize the older part of a conversation; the originals stay",
             says=lambda args, done: f"{done['covers']} events are now in short:\n{done['summary']}"),
    )),
    Verb("prompt-size", "prompt.size", "text? --role", text="show how many tokens each part of the prompt takes", says=_tell_prompt,
         helps={"text": "the message to measure with", "role": "as this role would send it; default: the assistant"}),
)
