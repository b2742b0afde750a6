"""The command `owlbox onboard`: the questions that set a home up, as often as one likes.

What is configured already is the default of each question, and Return keeps it. Keys go into the vault and are never shown.
Configuration is changed by `config_edit`, documents are written from their templates, and nothing there is overwritten
without a yes. Each function takes the parsed arguments and the home.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Callable
from typing import Any

from appliance.cli import secret
from appliance.console import terminal
from appliance.console.connect import connected, reload_core, require_owner
from appliance.console.terminal import say
from appliance.errors import BadInput, OwlError
from appliance.runtime import config, config_edit
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config
from appliance.runtime.users import user_name

Command = Callable[..., argparse.ArgumentParser]
YES = ("y", "yes", "j", "ja", "o", "oui", "s", "si", "sí")
QUESTION = "What is the capital of France?"
MEMORY = """\
What is remembered is stored on this machine. Files in box/ are yours to read and change; notes of conversations are listed by
owlbox memory list, and owlbox memory forget removes one for good, with its history and its index."""


def add(command: Command) -> None:
    """Add the command."""
    made = command("onboard", onboard, "set up your home step by step; Return keeps the current value")
    made.add_argument("--no-test", action="store_true", help="do not ask the model a test question at the end")


def onboard(args: argparse.Namespace, home: Home) -> int:
    """Ask everything once."""
    from appliance.upkeep import home_setup

    if args.json:
        raise BadInput("onboard asks a person", hint="owlbox config set KEY VALUE is for programs")
    is_fresh = not home.config.exists()
    if is_fresh:
        home_setup.init(home, is_forced=home.root.exists())
        say(f"made {home.root}")
    require_owner(home)
    _choose_model(home, config.load(home, os.environ))
    _choose_aliases(home, config.load(home, os.environ))
    if not is_fresh:
        _write_documents(home)
        _reload(home)
    say(MEMORY)
    if not args.no_test:
        _test_model(home)
    return 0


def ask_line(question: str, known: str = "") -> str:
    """One answer; an empty one, and the end of input, keep what is known."""
    print(f"{question}{f' [{known}]' if known else ''}: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or known


def ask_yes(question: str, known: bool) -> bool:
    """Yes or no; an empty answer keeps what is known."""
    answer = ask_line(f"{question} [{'Y/n' if known else 'y/N'}]").lower()
    return answer in YES if answer else known


def set_value(home: Home, place: tuple[str, ...], value: Any) -> None:
    """Change one key in owlbox.toml and say so; silent where it is so already."""
    if config_edit.set_value(home, os.environ, place, value):
        say(f"{'.'.join(place)} is set")


def _reload(home: Home) -> None:
    for line in reload_core(home):
        say(line)


def _choose_model(home: Home, settings: Config) -> None:
    """Who answers: this machine alone, or a service first (S-121)."""
    first = settings.pools.get("default", (LOCAL,))[0]
    is_local = ask_yes("Answer with a model on this machine only, and send nothing out?", settings.models.local_only)
    if is_local:
        set_local_only(home, settings, True)
        return
    known_provider, _, known_model = first.partition("/") if first != LOCAL else ("", "", "")
    provider = ask_line(f"Service ({', '.join(sorted(settings.providers))}, or a name of your own)", known_provider)
    if not provider:
        say("no service was named: models stay as they are")
        return
    known = settings.providers.get(provider)
    if known is None or not known.base_url:
        if address := ask_line("Address of its API", known.base_url if known else ""):
            set_value(home, ("providers", provider, "base_url"), address)
    model = ask_line("Its name of the model", known_model if provider == known_provider else "")
    if not model:
        raise BadInput(f"no model of {provider} was named", hint="owlbox onboard asks again")
    _keep_key(home, provider, bool(known and known.key))
    set_local_only(home, settings, False)
    routes = settings.pools.get("default", (LOCAL,))
    wanted = f"{provider}/{model}"
    if routes[0] != wanted:
        set_value(home, ("pools", "default"), [wanted, *(one for one in routes if one == LOCAL)])


def set_local_only(home: Home, settings: Config, is_local: bool) -> None:
    """Whether remote models may be asked."""
    if settings.models.local_only is not is_local:
        set_value(home, ("models", "local_only"), is_local)


def _keep_key(home: Home, provider: str, has_key: bool) -> None:
    """Put a key into the vault; Return keeps the one there is."""
    name = f"llm/{provider}"
    question = f"Its key{' [********]' if has_key else ''}: "
    if value := getpass.getpass(question, stream=sys.stderr) if sys.stdin.isatty() else ask_line(question.rstrip(": ")):
        with connected(home) as way:
            secret.send_sealed(way, "secret.set", {"name": name, "expires_ms": None}, value, f"set {name}")
        set_value(home, ("providers", provider, "key"), f"secret:{name}")


def _choose_aliases(home: Home, settings: Config) -> None:
    """The owner's addresses elsewhere, one a line; none keeps the old ones (S-124)."""
    known = [f"{one.address} {one.channel}".strip() for one in settings.people.owner_aliases]
    say(f"This installation is yours, {user_name(os.getuid())}: owlbox people list shows you as its owner.", sys.stderr)
    say(
        "Your names and addresses elsewhere, one a line, with a channel behind one that holds there alone; an empty line ends.",
        sys.stderr,
    )
    if known:
        say(f"Now: {', '.join(known)}", sys.stderr)
    given: list[Any] = []
    while line := ask_line("address channel"):
        address, *channel = line.split()
        given.append({"address": address, "channel": channel[0]} if channel else address)
    if given:
        set_value(home, ("people", "owner_aliases"), given)


def name_owner(home: Home, name: str) -> None:
    """One more name of the owner on this machine and in the web page; in other channels it is nobody's."""
    known = config.load(home, os.environ).people.owner_aliases
    set_value(
        home,
        ("people", "owner_aliases"),
        [*({"address": one.address, "channel": one.channel} for one in known), {"address": name, "channel": LOCAL}],
    )
    _reload(home)


def _write_documents(home: Home) -> None:
    """Missing documents from their templates, those there after one question for all and one for each (S-122, S-123)."""
    from appliance.ingest import prompt_documents

    files = {name: home.box / f"{name}.md" for name in prompt_documents.SHIPPED}
    is_bootstrap = files[prompt_documents.LAST].exists()
    existing = [
        name
        for name, path in files.items()
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != prompt_documents.shipped(name)
    ]
    if not is_bootstrap and ask_yes("Ask the first questions again (BOOTSTRAP.md)?", False):
        files[prompt_documents.LAST].write_text(prompt_documents.shipped(prompt_documents.LAST), encoding="utf-8")
        say("wrote BOOTSTRAP.md")
    for name, path in files.items():
        if not path.exists() and name != prompt_documents.LAST:
            path.write_text(prompt_documents.shipped(name), encoding="utf-8")
            say(f"wrote {path.name}")
    if existing and ask_yes(f"Put templates in the place of documents you have changed ({', '.join(existing)})?", False):
        for name in existing:
            if ask_yes(f"Replace {name}.md?", False):
                files[name].write_text(prompt_documents.shipped(name), encoding="utf-8")
                say(f"wrote {name}.md")


def _test_model(home: Home) -> None:
    """One real question to whoever answers now."""
    say(f"A question to try it: {QUESTION}", sys.stderr)
    try:
        with connected(home) as way:
            answer, result = terminal.ask(way, {"text": QUESTION, "kind": "ask"}, None, None)
            error = terminal.verdict(result)
            say(answer.text if error is None else f"It did not answer: {error}")
    except OwlError as error:
        say(f"It did not answer: {error}")
