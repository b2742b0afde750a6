"""The commands about model files: `owlbox model list`, `add`, `rm`, `use`, `info`, `bench`, with or without a running core.

They work on the home's files with the rights of whoever types; what is known about models is the matter of `models.catalogue` and
`models.model_info`.
"""

import argparse
import os
import sys
from typing import Any

from appliance.cli import usage
from appliance.console import terminal
from appliance.console.connect import connected, reload_core, require_owner
from appliance.console.terminal import say, say_json, show
from appliance.console.verbs import Noun, Verb, lines, table, takes
from appliance.errors import Conflict, NotFound
from appliance.models import catalogue, model_info
from appliance.models.catalogue import MB
from appliance.records import to_plain
from appliance.runtime import config, config_edit
from appliance.runtime.paths import Home

FIT_WORDS = {"yes": "yes", "tight": "with a smaller window", "no": "no"}
NAME = "a name from `model list`"
ROWS = "model=name kind size=size_bytes memory=ram_mb fits calls_%=score licence state~"
CELLS = {
    "size_bytes": lambda one: f"{one['size_bytes'] // MB} MB" if one["size_bytes"] else "?",
    "ram_mb": lambda one: f"{one['ram_mb']} MB",
    "fits": lambda one: FIT_WORDS[one["fits"]],
    "score": lambda one: f"{one['score']:g}" if one["score"] else "",
    "state": lambda one: one["problem"] or ("in use" if one["is_in_use"] else "installed" if one["is_installed"] else one["title"]),
}


def models(args: argparse.Namespace, home: Home) -> int:
    """List known and present models."""
    settings = config.load(home.require(), os.environ)
    found = [{**to_plain(m), "is_in_use": model_info.is_in_use(home, settings, m)} for m in catalogue.listing(home)]
    return show(args, found, table(found, ROWS, CELLS, "")._replace(foot=["calls %: BFCL v3, as its maker has published it"]))


def fetch(args: argparse.Namespace, home: Home) -> int:
    """Fetch or copy a model."""
    home.require()
    with terminal.Progress() as progress:
        path = catalogue.add(home, args.model, progress.show)
    return show(args, {"model": path.stem, "path": str(path)}, f"{path.stem} is ready: {path}")


def remove(args: argparse.Namespace, home: Home) -> int:
    """Delete a model's file; asks first."""
    require_owner(home)
    model = catalogue.find(home, args.model)
    if model_info.is_in_use(home, config.load(home, os.environ), model) and not args.force:
        raise Conflict(f"{model.name} is in use", hint="owlbox model use OTHER first, or --force")
    if not args.yes:
        print(f"Delete {model.file} ({model.size_bytes // MB} MB)? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Conflict(f"{model.name} is kept", hint="answer y, or give --yes")
    gone = catalogue.remove(home, model, is_with_cache=args.cache)
    return show(args, {"model": model.name, "deleted": [str(p) for p in gone]}, "\n".join(f"deleted {p}" for p in gone))


def use(args: argparse.Namespace, home: Home) -> int:
    """Make a model the one that answers, or for an embedding model the one that finds by meaning."""
    require_owner(home)
    model = catalogue.find(home, args.model)
    if not model.is_installed:
        raise NotFound(f"{model.name} is not installed", hint=f"owlbox model add {model.name}")
    if model.problem:
        raise Conflict(f"{model.name}: {model.problem}", hint=f"replace it: owlbox model rm {model.name}, then add it again")
    key, stem = ("embedding" if model.kind == "embedding" else "default"), model.file.removesuffix(".gguf")
    is_changed = config_edit.set_text(home, os.environ, "models", key, stem)
    state = reload_core(home) if is_changed else []
    data = {"model": model.name, "key": f"models.{key}", "value": stem, "is_changed": is_changed, "core": " ".join(state)}
    show(args, data, [f"models.{key} = {stem}" + ("" if is_changed else " already"), *state])
    if getattr(config.load(home, os.environ).models, key) != stem:
        terminal.complain(f"OWLBOX__MODELS__{key.upper()} is set in this environment and still decides here")
    return 0


def info(args: argparse.Namespace, home: Home) -> int:
    """Everything about one model."""
    settings = config.load(home.require(), os.environ)
    with terminal.Progress() as progress:
        found = model_info.describe(home, settings, args.model, progress.show)
    return show(args, found, lines(found, FACTS, FACT_CELLS))


def bench(args: argparse.Namespace, home: Home) -> int:
    """Measure a model on this device, and say how it does."""
    home.require()
    params = {"model": _find_stem(home, args.model), "seconds": args.seconds}
    with connected(home) as way, terminal.Progress() as progress:
        found = way.call(
            "model.bench", params, lambda name, value: progress.show_steps(value["step"], value["done"], value["steps"])
        )
    if args.json:
        return say_json(found)
    terminal.table(_measured_rows(found), [found["model"], "", ""], sys.stdout, cut=[""])
    for sentence in (*found["verdict"], *(f"Note: {note}." for note in found["notes"])):
        say(sentence)
    return 0


def _find_stem(home: Home, name: str) -> str:
    """The file stem of an installed model that can talk; of a home that we may not read the name as it is."""
    if not name or not os.access(home.models, os.R_OK | os.X_OK):
        return name
    model = catalogue.find(home, name)
    if not model.is_installed:
        raise NotFound(f"{model.name} is not installed", hint=f"owlbox model add {model.name}")
    if model.kind != "chat" or model.problem:
        why = model.problem or f"it is an {model.kind} model and cannot talk"
        raise Conflict(f"{model.name}: {why}", hint="owlbox model list shows the others")
    return model.file.removesuffix(".gguf")


def _measured_rows(found: dict[str, Any]) -> list[list[str]]:
    """The numbers as rows: what, how much, of what."""
    calls = found["calls"]

    def of(name: str, unit: str) -> str:
        return "not measured" if found[name] is None else f"{found[name]:g} {unit}"

    return [
        ["ready after", of("load_s", "s"), "loading it, if it was not in memory, and one word"],
        ["first word", of("read_s", "s"), f"about a text never seen: {found['read_tokens']} tokens read"],
        ["reading", of("prefill_tokens_per_s", "tokens/s"), "that text; the first token and the way are in it"],
        ["writing", of("decode_tokens_per_s", "tokens/s"), f"median of {found['decodes']}"],
        ["tool calls", f"{calls['expected']} of {calls['asked']}", f"{calls['parseable']} readable, {calls['valid']} valid"],
        ["memory", f"{found['rss_mb']} MB", f"{found['free_mb']} MB of {found['total_mb']} MB are free beside it"],
        ["took", f"{found['took_s']:g} s", f"{found['provider']}, window {found['window']}"],
    ]


# -- what is said -----------------------------------------------------------------------------------


def _tell_sum(found: dict[str, Any]) -> str:
    """The checksum, and what it is compared with."""
    if not found["sha256"]:
        return ""
    if not found["path"]:
        return f"{found['sha256']} (expected)"
    of = "NOT the catalogue's" if found["is_known"] else "of the file; nothing to compare it with"
    return f"{found['sha256']} ({'verified' if found['is_verified'] else of})"


def _tell_memory(found: dict[str, Any]) -> str:
    if found["architecture"]:
        return f"about {found['memory_mb']} MB with that window, {found['free_mb']} MB free"
    return f"about {found['ram_mb']} MB; fits this machine: {FIT_WORDS[found['fits']]}"


def _tell_template(found: dict[str, Any]) -> str:
    if not found["architecture"] or found["kind"] != "chat":
        return ""
    return f"sha256 {found['template_sha256']}" if found["has_template"] else "none in the file; a general one is used"


def _tell_dialect(dialect: str) -> str:
    if dialect in ("", "none"):
        return ""
    if dialect == "grammar":
        return "told in Owlbox's own words: the template knows none in a known format"
    return f"told in the format of the {dialect} family"


FACTS = "model=name title licence source path problem achieves=figures tier size=size_bytes sha256 architecture window " \
        "memory=memory_mb template tools=dialect"  # fmt: skip
FACT_CELLS = {
    "name": lambda one: (
        f"{one['name']} ({one['kind']}), "
        + ("in use" if one["is_in_use"] else "installed" if one["is_installed"] else "not installed")
    ),
    "size_bytes": lambda one: f"{one['size_bytes']} bytes" if one["size_bytes"] else "not known before it is fetched",
    "sha256": _tell_sum,
    "architecture": lambda one: one["architecture"] and f"{one['architecture']}, mostly {one['quantisation']}",
    "window": lambda one: (
        one["architecture"] and f"{one['window']} tokens here, trained for {one['trained_window'] or 'an unknown number'}"
    ),
    "memory_mb": _tell_memory,
    "template": _tell_template,
    "dialect": lambda one: _tell_dialect(one["dialect"]),
}


def _add_removal(made: argparse.ArgumentParser) -> None:
    made.add_argument("model", help=NAME)
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--force", action="store_true", help="even when it is in use")
    made.add_argument("--cache", action="store_true", help="its copy for other homes of this user too")


# fmt: off
NOUNS = (
    Noun("model", "local and remote models", (
        Verb("list", text="list local models and the catalogue, by memory needed", handler=models),
        Verb("add", text="download a model of the catalogue, or copy a .gguf file", handler=fetch,
             adds=takes("model", help=f"{NAME}, or the path of a .gguf file")),
        Verb("rm", text="delete a model's file and its download", handler=remove, adds=_add_removal),
        Verb("use", text="use this model for answers, or this embedding model for search", handler=use,
             adds=takes("model", help="the name of an installed model")),
        Verb("info", text="show everything about one model", handler=info,
             adds=takes("model", help=f"{NAME}, or the path of a .gguf file")),
        Verb("bench", "model.bench", "model? --seconds", handler=bench,
             text="test a model on this device: speed, memory, tool calls"),
        *usage.OF_MODELS,
    )),
)
