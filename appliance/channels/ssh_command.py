"""The channel over ssh: turns the text of a forced command into words of ours, or refuses it.

An allow-list of commands, and for each its allowed options by their full names. The text is only ever cut
into words: no shell, no globbing, no variables; `;`, `|`, `$(...)` and newlines are text like any other.
What is left over goes behind `--`, so it can never be taken for an option. Knows nothing about what the
commands do, and runs nothing itself.
"""

import os
import select
import shlex
from collections.abc import Mapping

from appliance.errors import BadInput, Refused
from appliance.runtime.rpc_client import SSH_KEY

# Options by command; True for those that take a value.
ALLOWED: dict[tuple[str, ...], dict[str, bool]] = {
    ("ask",): {"--thread": True, "--later": False},
    ("status",): {},
    ("search",): {"--limit": True},
    ("read",): {"--line": True, "--limit": True},
    ("remember",): {"--title": True},
    ("thread", "list"): {"--type": True, "--limit": True, "--offset": True},
    ("thread", "view"): {"--only": True},
    ("thread", "follow"): {"--interval": True},
    ("task", "add"): {"--priority": True, "--description": True},
    ("task", "list"): {"--status": True, "--limit": True},
    ("task", "view"): {"--follow": False},
    ("schedule", "list"): {},
    ("remind",): {"--when": True, "--timezone": True},
    ("secret", "list"): {},
    ("secret", "set"): {"--expires": True},
    ("prompt-size",): {},
}
EVERYWHERE = {"--json": False}
FED_S = 1.0


def admit(text: str) -> list[str]:
    """The arguments for our own parser; [] for no command at all, BadInput for anything that is not allowed."""
    words = _split_words(text)
    if not words:
        return []
    command = next((c for c in (tuple(words[:2]), tuple(words[:1])) if c in ALLOWED), None)
    if command is None:
        raise BadInput(f"{' '.join(words[:2])[:60]!r} is not offered over ssh", hint=f"there are {offer()}")
    options, rest = _sort_options(words[len(command) :], {**EVERYWHERE, **ALLOWED[command]})
    return [*command, *options, *(["--", *rest] if rest else [])]


def read_key(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that says which key the caller has proved, by what sshd wrote down of it (`ExposeAuthInfo`); none without."""
    file = environ.get("SSH_USER_AUTH", "")
    if not file:
        return {}
    with open(file, encoding="utf-8", errors="replace") as lines:
        keys = [line.strip().removeprefix("publickey ") for line in lines if line.startswith("publickey ")]
    if len(keys) != 1:
        raise Refused(f"you logged in with {len(keys)} keys, and not with one", hint="log in with one key")
    return {SSH_KEY: keys[0]}


def offer() -> str:
    """The commands that are allowed, for people."""
    return ", ".join(" ".join(command) for command in ALLOWED)


def is_fed(stdin: int) -> bool:
    """True on a terminal, or when something comes through the pipe within a second.

    `ssh owl@box ask hello` typed at a terminal leaves the pipe open and empty: waiting for its end would
    wait for the person. The price: a program that takes longer for its first byte is not listened to.
    """
    return os.isatty(stdin) or bool(select.select([stdin], [], [], FED_S)[0])


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        # An apostrophe, as in `ask what's new`: ssh has eaten the quotes that were around it.
        return text.split()


def _sort_options(words: list[str], allowed: dict[str, bool]) -> tuple[list[str], list[str]]:
    """Allowed options as `--name` or `--name=value`, and everything that is no option."""
    options: list[str] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, is_joined, value = word.partition("=")
        if word == "--":
            rest += left
        elif not word.startswith("-") or word == "-":
            rest.append(word)
        elif name not in allowed or (is_joined and not allowed[name]):
            raise BadInput(f"option {word[:60]!r} is not offered over ssh", hint="put -- before text that begins with a dash")
        elif not allowed[name]:
            options.append(name)
        else:
            given = value if is_joined else next(left, None)
            if given is None:
                raise BadInput(f"option {name} needs a value")
            options.append(f"{name}={given}")
    return options, rest
