"""Conversations with a model as they really go, written down as captures of what to expect.

    python tests/bench/capture_conversations.py --model FILE.gguf [--only TEXT] [--tier TIER] [--write FILE]

Each conversation of conversations.toml is a thread of one core with one home, so tasks and memories of one are there in the next.
What comes out differs with model, processor and day. Judges nothing: a person reads it.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from bench_hello import ask_ours, serving

from appliance.clock import iso, now_ms
from appliance.service.core import Core

SCRIPT = Path(__file__).with_name("conversations.toml")
HEAD = """# Conversations

What to expect of a small model, as captured on {date} with {model} by `tests/bench/capture_conversations.py`: ten conversations
of eight turns each over nine notes, one after the other in one home. Another model, processor or day gives other words. Answers
that end with a source in brackets come from notes; what was done is said by the program; the rest is the model's, and
some of that is wrong.
"""


def captured(core: Core, turns: list[str]) -> Iterator[tuple[str, str]]:
    """Each prompt of a conversation with its answer."""
    thread = ""
    for prompt in turns:
        answer = ask_ours(core, prompt, thread)
        thread = answer.thread
        yield prompt, answer.text.strip()


def quoted(text: str) -> str:
    """An answer as a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines() or [""])


def main() -> int:
    """Ask, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--only", default="", metavar="TEXT", help="conversations whose title has this text")
    parser.add_argument("--tier", default="auto", choices=("auto", "tiny", "small", "able"))
    parser.add_argument("--write", type=Path, metavar="FILE")
    args = parser.parse_args()
    script = tomllib.loads(SCRIPT.read_text(encoding="utf-8"))
    lines = [HEAD.format(date=iso(now_ms())[:10], model=args.model.stem)]
    with serving(args.model.resolve(), script["notes"], MODELS__TIER=args.tier) as core:
        for title, turns in script["conversations"].items():
            if args.only not in title:
                continue
            print(f"## {title}", flush=True)
            lines.append(f"## {title}\n")
            for prompt, text in captured(core, turns):
                text = text.replace("box://", "")  # as a screen shows addresses
                print(f"**{prompt}**\n{quoted(text)}\n", flush=True)
                lines.append(f"**{prompt}**\n\n{quoted(text)}\n")
    if args.write is not None:
        args.write.write_text("\n".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
