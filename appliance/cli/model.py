"""The commands about model files: list, add, rm, use, info, bench. Works on the home's files, with or without a running core.

Each function takes the parsed arguments and the home and returns the exit code. What is known about models
is `catalogue`'s matter. Not promised: that the memory told here is free when the model is loaded.
"""

import argparse
import hashlib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from appliance.cli import usage
from appliance.console import terminal, verbs
from appliance.console.connect import connected, require_owner
from appliance.console.parser import Command
from appliance.console.terminal import Table, say, say_json, say_line, show
from appliance.errors import Conflict, Lost, NotFound, OwlError
from appliance.models import catalogue
from appliance.models.catalogue import MB, Model
from appliance.models.tiers import BASES, Measured, Tiers
from appliance.providers import gguf
from appliance.records import to_plain
from appliance.runtime import config, config_edit, paths
from appliance.runtime.paths import Home
from appliance.runtime.rpc_client import Client
from appliance.runtime.settings import Config

# As the local model chooses its window and measures itself; a test compares the two.
SMALLEST_WINDOW, WINDOW_STEP = 512, 256
TALKS = 8.0  # tokens/s that one can read along with, as `service.bench.model_check` has it; a test compares the two
HOW_TO_ANSWER = "owlbox model offer yes downloads it, owlbox model offer no dismisses it."
CACHE_PARTS = {"f16": 1.0, "q8_0": 34 / 64}
FIT_WORDS = {"yes": "yes", "tight": "with a smaller window", "no": "no"}
# ggml tensor types by the names people know.
QUANTISATIONS = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 29: "IQ1_M", 30: "BF16", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class Info:
    """All that is known of a model: from the catalogue, and, when the file is here, from the file."""

    name: str
    title: str
    kind: str
    licence: str
    path: str
    is_installed: bool
    is_in_use: bool
    size_bytes: int
    ram_mb: int
    fits: str
    source: str = ""
    sha256: str = ""
    is_verified: bool = False
    is_known: bool = False  # the catalogue has it
    figures: str = ""
    tier: str = ""
    architecture: str = ""
    quantisation: str = ""
    trained_window: int = 0
    window: int = 0
    memory_mb: int = 0
    free_mb: int = 0
    has_template: bool = False
    template_sha256: str = ""
    dialect: str = ""
    problem: str = ""


def add(command: Command) -> None:
    """Add the group, with what is about remote models."""
    root = command("model", models, "local and remote models")
    known = root.add_subparsers(metavar="ACTION", parser_class=type(root))
    command("list", models, "list local models and the catalogue, by memory needed", known)
    made = command("add", fetch, "download a model of the catalogue, or copy a .gguf file", known)
    made.add_argument("model", help="a name from `model list`, or the path of a .gguf file")
    made = command("rm", remove, "delete a model's file and its download", known)
    made.add_argument("model", help="a name from `model list`")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument("--force", action="store_true", help="even when it is in use")
    made.add_argument("--cache", action="store_true", help="its copy for other homes of this user too")
    made = command("offer", offer, "the better model that fits this computer; accept or decline it", known)
    made.add_argument("answer", nargs="?", default="", choices=["", "yes", "no"], help="yes downloads it, no dismisses the offer")
    made = command("use", use, "use this model for answers, or this embedding model for search", known)
    made.add_argument("model", help="the name of an installed model")
    made = command("info", info, "show everything about one model", known)
    made.add_argument("model", help="a name from `model list`, or the path of a .gguf file")
    made = command("bench", bench, "test a model on this device: everyday requests, speed, memory, tool calls", known)
    made.add_argument("model", nargs="?", default="", help="the name of an installed model; default: the one that answers")
    made.add_argument("--seconds", type=float, default=600, metavar="N", help="time limit in seconds (600); the rest is left out")
    verbs.add_verbs(command, usage.OF_MODELS, known)


def models(args: argparse.Namespace, home: Home) -> int:
    """List known and present models."""
    home.require()
    settings = config.load(home, os.environ)
    found = catalogue.listing(home)
    used = [_is_in_use(home, settings, m) for m in found]
    rows = []
    for m, is_used in zip(found, used):
        state = m.problem or ("in use" if is_used else "installed" if m.is_installed else "")
        size = f"{m.size_bytes // MB} MB" if m.size_bytes else "?"
        score = f"{m.score:g}" if m.score else ""
        rows.append([m.name, m.kind, size, f"{m.ram_mb} MB", FIT_WORDS[m.fits], score, m.licence, state or m.title])
    heads = ["model", "kind", "size", "memory", "fits", "calls %", "licence", "state"]
    code = show(args, [{**to_plain(m), "is_in_use": is_used} for m, is_used in zip(found, used)], Table(rows, heads, ["state"]))
    if not args.json:
        say("calls %: BFCL v3, as its maker has published it")
    return code


def fetch(args: argparse.Namespace, home: Home) -> int:
    """Fetch or copy a model."""
    home.require()
    progress = terminal.Progress()
    try:
        path = catalogue.add(home, args.model, progress.show)
    finally:
        progress.end()
    return show(args, {"model": path.stem, "path": str(path)}, f"{path.stem} is ready: {path}")


def offer(args: argparse.Namespace, home: Home) -> int:
    """Show what is offered and how far it is, or answer it; without a core that stays the download happens here."""
    progress = terminal.Progress()
    with connected(home) as way:
        if not args.answer:
            found = way.call("model.offer")
            said = found["text"] or "No better model is offered: owlbox model list shows all, owlbox model add NAME fetches one."
            if found["state"] in ("offered", "declined"):
                said += " It was declined." if found["state"] == "declined" else f" {HOW_TO_ANSWER}"
            return show(args, found, said)
        found = way.call("model.answer_offer", {"is_wanted": args.answer == "yes"})
        if found["is_left"]:
            if not args.json:
                say(found["text"])
            try:
                found = way.call(
                    "model.fetch_offer", {}, lambda name, value: progress.show(value["step"], value["done"], value["steps"])
                )
            finally:
                progress.end()
    return show(args, found, str(found["text"]))


def remove(args: argparse.Namespace, home: Home) -> int:
    """Delete a model's file; asks first."""
    require_owner(home)
    model = catalogue.find(home, args.model)
    if _is_in_use(home, config.load(home, os.environ), model) and not args.force:
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
    hidden = getattr(config.load(home, os.environ).models, key) != stem
    state = _reload_core(home) if is_changed else ""
    if args.json:
        say_json({"model": model.name, "key": f"models.{key}", "value": stem, "is_changed": is_changed, "core": state})
    else:
        say_line(f"models.{key} = {stem}" + ("" if is_changed else " already"))
        if state:
            say(state)
    if hidden:
        variable = f"OWLBOX__MODELS__{key.upper()}"
        terminal.complain(f"{variable} is set in this environment and still decides here")
    return 0


def info(args: argparse.Namespace, home: Home) -> int:
    """Everything about one model."""
    home.require()
    settings, path = config.load(home, os.environ), Path(args.model).expanduser()
    progress = terminal.Progress()
    try:
        if path.is_file():
            found = _of_file(home, settings, path, progress.show)
        else:
            found = _of_model(home, settings, catalogue.find(home, args.model), progress.show)
    finally:
        progress.end()
    return show(args, to_plain(found), [f"{name:<14} {text}" for name, text in _info_lines(found)])


def bench(args: argparse.Namespace, home: Home) -> int:
    """Measure a model on this device, say how it does, and which other one to try."""
    home.require()
    known = catalogue.listing(home)
    stem, progress = _find_stem(home, args.model), terminal.Progress()
    params = {"model": stem, "seconds": args.seconds}
    with connected(home) as way:
        try:
            found = way.call(
                "model.bench", params, lambda name, value: progress.show_steps(value["step"], value["done"], value["steps"])
            )
        finally:
            progress.end()
    found["next"] = _suggest_next(found, known)
    if args.json:
        return say_json(found)
    if found["everyday"]:
        rows = [
            [r["category"], f"{r['passed']} of {r['asked']}", f"{r['first_s']:.1f} s", _format_speed(r)] for r in found["everyday"]
        ]
        terminal.table(rows, [found["model"], "right", "first word", "words/s"], sys.stdout)
        say("")
    terminal.table(_measured_rows(found), [found["model"], "", ""], sys.stdout, cut=[""])
    for sentence in (*found["verdict"], found["next"], *(f"Note: {note}." for note in found["notes"])):
        if sentence:
            say(sentence)
    return 0


# -- what bench says --------------------------------------------------------------------------------


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


def _format_speed(row: dict[str, Any]) -> str:
    """How fast the answers of a category were written; those of the program are there at once."""
    return f"{row['words_per_s']:g}" if row["words_per_s"] is not None else "at once"


def _measured_rows(found: dict[str, Any]) -> list[list[str]]:
    """The numbers as rows: what, how much, of what."""
    calls = found["calls"]

    def of(name: str, unit: str) -> str:
        return "not measured" if found[name] is None else f"{found[name]:g} {unit}"

    return [
        ["ready after", of("load_s", "s"), "loading it, if it was not in memory, and one word"],
        ["first token, cold", of("cold_s", "s"), f"a text never seen: {found['cold_tokens']} tokens read"],
        ["first token, warm", of("warm_s", "s"), f"the same text, another question: {found['warm_tokens']} tokens read"],
        ["reading", of("prefill_tokens_per_s", "tokens/s"), "the cold text; its first token and the way are in it"],
        ["writing", of("decode_tokens_per_s", "tokens/s"), f"median of {found['decodes']}"],
        ["tool calls", f"{calls['expected']} of {calls['asked']}", f"{calls['parseable']} readable, {calls['valid']} valid"],
        ["memory", f"{found['rss_mb']} MB", f"{found['free_mb']} MB of {found['total_mb']} MB are free beside it"],
        ["took", f"{found['took_s']:g} s", f"{found['provider']}, window {found['window']}"],
    ]


def _suggest_next(found: dict[str, Any], known: list[Model]) -> str:
    """What to try next, by name: models of one family of formats are about as fast as they are small."""
    mine = next((m for m in known if m.file == f"{found['model']}.gguf"), None)
    others = [m for m in known if m.kind == "chat" and m.fits == "yes" and not m.problem and m.size_bytes]
    if mine is None or found["advice"] == "keep":
        return ""
    if found["advice"] == "smaller":
        less = [m for m in others if m.ram_mb < mine.ram_mb]
        return (
            _suggest_model(max(less, key=lambda m: m.ram_mb), "is smaller")
            if less
            else "There is no smaller model in the catalogue."
        )
    room_mb, speed = found["free_mb"] + mine.ram_mb, found["decode_tokens_per_s"]
    more = [
        m
        for m in others
        if m.size_bytes > mine.size_bytes and m.ram_mb <= room_mb and speed * mine.size_bytes / m.size_bytes >= TALKS
    ]
    if not more:
        return ""
    best = max(more, key=lambda m: m.size_bytes)
    return _suggest_model(best, f"is larger and may still write about {speed * mine.size_bytes / best.size_bytes:.0f} tokens/s")


def _suggest_model(model: Model, why: str) -> str:
    fetch = "" if model.is_installed else f"owlbox model add {model.name}, then "
    return f"Next: {model.name} {why}: {fetch}owlbox model bench {model.name}"


# -- what info knows --------------------------------------------------------------------------------


def _of_model(home: Home, settings: Config, model: Model, progress: catalogue.Progress) -> Info:
    entry = catalogue.entries(home).get(model.name)
    where = (entry.url or f"package {entry.package}") if entry else "dropped into models/"
    path = home.models / model.file
    made = Info(
        name=model.name,
        title=model.title,
        kind=model.kind,
        licence=model.licence or "not said",
        path=str(path) if model.is_installed else "",
        is_installed=model.is_installed,
        is_in_use=_is_in_use(home, settings, model),
        size_bytes=model.size_bytes,
        ram_mb=model.ram_mb,
        fits=model.fits,
        source=where,
        sha256=entry.sha256 if entry else "",
        is_known=entry is not None,
        figures=model.figures,
        problem=model.problem,
    )
    return _inspect_file(made, path, settings, progress) if model.is_installed else made


def _of_file(home: Home, settings: Config, path: Path, progress: catalogue.Progress) -> Info:
    """A file anywhere; one in models/ is the model of that name."""
    if (home.models / path.name).exists() and path.samefile(home.models / path.name):
        return _of_model(home, settings, catalogue.find(home, path.name), progress)
    model = catalogue.described(path)
    known = next((e for e in catalogue.entries(home).values() if e.file == path.name), None)
    made = Info(
        name=model.name,
        title=model.title,
        kind=model.kind,
        licence=model.licence or "not said",
        path=str(path),
        is_installed=False,
        is_in_use=False,
        size_bytes=model.size_bytes,
        ram_mb=model.ram_mb,
        fits=model.fits,
        sha256=known.sha256 if known else "",
        is_known=known is not None,
        figures=known.figures if known else "",
        problem=model.problem,
    )
    return _inspect_file(made, path, settings, progress)


def _inspect_file(made: Info, path: Path, settings: Config, progress: catalogue.Progress) -> Info:
    """With what the file itself says, and whether it is the catalogue's to the byte."""
    sha256 = catalogue.digest(path, "verify", progress)
    made = replace(made, sha256=sha256, is_verified=bool(made.sha256) and sha256 == made.sha256)
    try:
        header = gguf.read(path)
    except OwlError as error:
        return replace(made, problem=error.message)
    limit = settings.models.memory_mb * MB or free_bytes()
    window = choose_window(header, settings, limit)
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        name = QUANTISATIONS.get(tensor.type, f"type {tensor.type}")
        sizes[name] = sizes.get(name, 0) + (tensor.size_bytes or 0)
    template, tier = header.chat_template, ""
    if made.kind == "chat":
        tiers = Tiers(path.parent, lambda: settings.models.tier)
        name, basis = tiers.of_file(path)
        tier = f"{name}, {BASES[basis]}{_measured_as(tiers.measured(path) if basis == 'measured' else None)}"
    return replace(
        made,
        tier=tier,
        architecture=header.architecture,
        quantisation=max(sizes, key=lambda name: sizes[name], default=""),
        trained_window=header.context_length,
        window=window,
        memory_mb=round(needed_bytes(header, settings, window) / MB),
        free_mb=limit // MB,
        has_template=bool(template),
        template_sha256=hashlib.sha256(template.encode("utf-8")).hexdigest() if template else "",
        dialect="grammar" if made.kind == "chat" else "none",
    )


def _measured_as(found: Measured | None) -> str:
    """What a measurement came to, as a part of a line."""
    if found is None:
        return ""
    speed = f", {found.words_per_s:.0f} words/s" if found.words_per_s else ""
    return f": {found.passed} of {found.asked} everyday requests, {found.calls} % of function calls{speed}"


def _info_lines(found: Info) -> list[tuple[str, str]]:
    """Info for people."""
    state = "in use" if found.is_in_use else "installed" if found.is_installed else "not installed"
    lines = [("model", f"{found.name} ({found.kind}), {state}"), ("title", found.title), ("licence", found.licence)]
    lines += [("source", found.source), ("path", found.path), ("problem", found.problem), ("achieves", found.figures)]
    lines.append(("tier", found.tier))
    size = f"{found.size_bytes} bytes" if found.size_bytes else "not known before it is fetched"
    lines.append(("size", size))
    verdict = " (verified)" if found.is_verified else " (of the file; nothing to compare it with)" if found.path else " (expected)"
    if found.path and not found.is_verified and found.is_known:
        verdict = " (NOT the catalogue's)"
    lines.append(("sha256", found.sha256 + verdict if found.sha256 else ""))
    if found.architecture:
        template = f"sha256 {found.template_sha256}" if found.has_template else "none in the file; a general one is used"
        lines += [
            ("architecture", f"{found.architecture}, mostly {found.quantisation}"),
            ("window", f"{found.window} tokens here, trained for {found.trained_window or 'an unknown number'}"),
            ("memory", f"about {found.memory_mb} MB with that window, {found.free_mb} MB free"),
        ]
        if found.kind == "chat":
            lines += [("template", template), ("tools", f"{found.dialect} dialect")]
    else:
        lines.append(("memory", f"about {found.ram_mb} MB; fits this machine: {FIT_WORDS[found.fits]}"))
    return [(name, text) for name, text in lines if text]


def choose_window(header: gguf.Header, settings: Config, limit_bytes: int) -> int:
    """The window the local model would get within a limit of memory; the asked-for one if given."""
    trained = header.context_length or catalogue.LARGEST_WINDOW
    if settings.models.context:
        return min(settings.models.context, trained)
    window = min(trained, catalogue.LARGEST_WINDOW)
    while window > SMALLEST_WINDOW and needed_bytes(header, settings, window) > limit_bytes:
        window -= WINDOW_STEP
    return max(window, min(trained, SMALLEST_WINDOW))


def needed_bytes(header: gguf.Header, settings: Config, window: int) -> int:
    """Estimated memory of the loaded model with that window."""
    saved = header.token_bytes * window * (1 - CACHE_PARTS[settings.models.cache_type])
    return header.memory_bytes(window, catalogue.BATCH) - round(saved)


def free_bytes(proc: Path = Path("/proc")) -> int:
    """Memory that programs may still take, as the kernel sees it; what a control group allows may be less."""
    for line in (proc / "meminfo").read_text("utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return catalogue.machine_bytes()


# -- what is in use ---------------------------------------------------------------------------------


def _is_in_use(home: Home, settings: Config, model: Model) -> bool:
    if not model.is_installed:
        return False
    path = home.models / model.file
    if model.kind == "embedding":
        return catalogue.in_use(home, settings.models.embedding, "embedding") == path
    return path in [catalogue.in_use(home, name) for name in catalogue.local_names(settings)]


def _reload_core(home: Home) -> str:
    """Tell a running core; what it says."""
    socket = paths.find_core(home, os.environ)
    if not socket.exists():
        return ""
    try:
        with Client(str(socket), name="cli") as client:
            done = client.call("core.reload")
    except Lost:
        return ""
    except OwlError as error:
        return f"the running core goes on as before: {error}"
    is_waiting = "models." in done["broker"]
    return (
        "the running core uses it when it has answered what it is asked now"
        if is_waiting
        else "the running core uses it from now on"
    )
