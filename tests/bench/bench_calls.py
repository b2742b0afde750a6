"""Function calling, measured beside llama-cpp-python's own handler: same model, same run, same questions.

    python tests/bench/bench_calls.py [--data FILE] [--model FILE] [--count N | --all] [--ours] [--json FILE]

The questions are every second item of the Berkeley Function-Calling Leaderboard v4 (simple_python,
multiple, irrelevance), one JSON object a line: {set, id, question, function, ground_truth}. They are no
part of this repository; without them the rows are left out. Knows nothing about what is good enough.
Ours runs through `providers.llama`, in our own words and, where the model's template knows tools,
in its own format; theirs through `chat_format="chatml-function-calling"`, both at
temperature 0 with the same threads, batch and longest answer (theirs has none of its own, and would fill
the window with a call that does not end).
"""

import argparse
import json
import math
import os
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import figures
from record_tools import replace

from appliance.clock import monotonic_s
from appliance.models import catalogue
from appliance.prompt.packet import CALLING, tool_line
from appliance.providers import families, gguf
from appliance.providers.llama import Llama, Options
from appliance.providers.llama_library import BATCH
from appliance.providers.sampling import Writing
from appliance.records import Ask, Finish, Message, Part, Route, ToolCall, ToolSpec
from appliance.runtime.paths import Home

DATA = Path(__file__).parents[3] / "shared" / "data" / "bfcl-dev.jsonl"
SOURCE = "the sets are in ShishirPatil/gorilla, folder berkeley-function-call-leaderboard/bfcl_eval/data"
SETS = ("simple_python", "multiple", "irrelevance")
ROUTE = Route("local", "llama", "smollm2", 4096, "grammar")
WINDOW = 4096
MAX_TOKENS = 512  # what an Ask allows
SPEED_ITEMS = 6
KINDS_OF_ASKING = ("free", "forced", "named")
KINDS = {"dict": "object", "float": "number", "tuple": "array"}
PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@dataclass(frozen=True)
class Item:
    """One question with the tools offered; `accepted` is None where no call is right."""

    set: str
    id: str
    question: str
    tools: tuple[ToolSpec, ...]
    accepted: dict[str, dict[str, list[Any]]] | None


@dataclass(frozen=True)
class Reply:
    """What an engine answered: a call as text, or none, and what that took."""

    name: str = ""
    arguments: str = ""
    has_tried: bool = False
    tokens: int = 0
    seconds: float = 0


@dataclass
class Row:
    """One line of the table."""

    items: int = 0
    calls: int = 0
    parseable: int = 0
    valid: int = 0
    correct: int = 0
    tokens: int = 0
    seconds: float = 0
    by_set: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))


# -- questions ----------------------------------------------------------------------------------------


def read_items(path: Path) -> list[Item]:
    """Every item of a file."""
    return [item(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line]


def item(plain: dict[str, Any]) -> Item:
    """An item with its schemas as JSON schemas."""
    tools = tuple(ToolSpec(f["name"], f["description"], normal(f["parameters"])) for f in plain["function"])
    truth = plain.get("ground_truth")
    return Item(plain["set"], plain["id"], plain["question"][0][-1]["content"], tools, truth[0] if truth else None)


def normal(schema: dict[str, Any]) -> dict[str, Any]:
    """The data's schema as a JSON schema: `dict`, `float`, `tuple` and `any` are its own words."""
    kind = schema.get("type", "any")
    found = {key: schema[key] for key in ("description", "enum", "default") if key in schema}
    if kind != "any":
        found["type"] = KINDS.get(kind, kind)
    if isinstance(schema.get("items"), dict):
        found["items"] = normal(schema["items"])
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {name: normal(part) for name, part in schema["properties"].items()}
        found["required"] = [name for name in schema.get("required", []) if name in found["properties"]]
        found["additionalProperties"] = False
    return found


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """So many items, the same ones each time, evenly from every set."""
    chosen: list[Item] = []
    for i, name in enumerate(SETS):
        group = [x for x in items if x.set == name]
        wanted = min(len(group), count // len(SETS) + (i < count % len(SETS)))
        chosen += [group[k * len(group) // wanted] for k in range(wanted)]
    return chosen


# -- judging ------------------------------------------------------------------------------------------


def faults(value: Any, schema: dict[str, Any], at: str = "arguments") -> Iterator[str]:
    """Where a value breaks its schema: types, required, enum, unknown names."""
    kind = schema.get("type")
    if kind and (not isinstance(value, PYTHON_TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{at}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{at}: {value} is no JSON number"
    if isinstance(value, list) and "items" in schema:
        for i, part in enumerate(value):
            yield from faults(part, schema["items"], f"{at}[{i}]")
    if isinstance(value, dict) and "properties" in schema:
        yield from (f"{at}: {name} is missing" for name in schema.get("required", []) if name not in value)
        for name, part in value.items():
            if name in schema["properties"]:
                yield from faults(part, schema["properties"][name], f"{at}.{name}")
            else:
                yield f"{at}: {name} is unknown"


def is_correct(item: Item, name: str, arguments: dict[str, Any] | None) -> bool:
    """The leaderboard's rule: the right function, every value among the accepted ones; or rightly no call."""
    if item.accepted is None:
        return arguments is None
    if arguments is None or name not in item.accepted:
        return False
    return fits(arguments, item.accepted[name])


def fits(given: Any, accepted: dict[str, list[Any]]) -> bool:
    """Each given name is known and its value accepted; a missing one is accepted when "" is."""
    if not isinstance(given, dict) or not set(given) <= set(accepted):
        return False
    return all(any(same(given[n], one) for one in values) if n in given else "" in values for n, values in accepted.items())


def same(value: Any, accepted: Any) -> bool:
    """Equal by the leaderboard's measure: letters without case, spaces and punctuation; whole numbers are floats too."""
    if isinstance(accepted, dict):
        return fits(value, accepted)
    if isinstance(accepted, list):
        return isinstance(value, list) and len(value) == len(accepted) and all(same(*pair) for pair in zip(value, accepted))
    if isinstance(accepted, str) and isinstance(value, str):
        return bare(value) == bare(accepted)
    return isinstance(value, bool) == isinstance(accepted, bool) and bool(value == accepted)


def bare(text: str) -> str:
    return "".join(c for c in text.lower().replace("'", '"') if c not in " ,./-_*^")


def tally(row: Row, item: Item, reply: Reply) -> str:
    """Count one reply; returns what was wrong with its form, or ""."""
    row.items += 1
    row.tokens, row.seconds = row.tokens + reply.tokens, row.seconds + reply.seconds
    row.calls += reply.has_tried
    arguments, fault = None, ""
    if reply.has_tried:
        try:
            arguments = json.loads(reply.arguments, strict=False)
        except ValueError:
            fault = f"not JSON: {reply.arguments[-80:]!r}"
    tool = next((t for t in item.tools if t.name == reply.name), None)
    if reply.has_tried and not fault:
        row.parseable += 1
        fault = f"no tool {reply.name!r}" if tool is None else next(faults(arguments, tool.schema), "")
        row.valid += not fault
    right = is_correct(item, reply.name, arguments if isinstance(arguments, dict) else None)
    right = right and (item.accepted is not None or not reply.has_tried)
    row.correct += right
    row.by_set[item.set][0] += right
    row.by_set[item.set][1] += 1
    return fault


# -- engines ------------------------------------------------------------------------------------------


class Ours:
    """The product's engine, as the broker uses it."""

    title = "owlbox"

    def __init__(self, path: Path, threads: int) -> None:
        self.llama = Llama(path, Options(context=WINDOW, threads=threads, seed=1))
        self.llama.load(threading.Event())

    def ask(self, item: Item, **more: Any) -> Ask:
        """The request for an item: tools told in the system text as a packet tells them, and the question."""
        system = (Part("tools", "\n".join([CALLING, *(tool_line(t) for t in item.tools)])),)
        said = (Message("user", item.question),)
        return Ask(system, said, **{"tools": item.tools, "temperature": 0, "max_tokens": MAX_TOKENS, "slot": "bench", **more})

    def free(self, item: Item) -> Reply:
        """The model decides whether to call; prose is not waited for, since a call would come first."""
        began_s, last = monotonic_s(), Finish("stop")
        for part in self.llama.generate(ROUTE, self.ask(item), threading.Event()):
            if isinstance(part, Finish):
                last = part
            elif part.text.strip():
                return Reply(seconds=monotonic_s() - began_s)
        return reply(last.tool_calls, last.reason == "length", last.output_tokens, monotonic_s() - began_s)

    def forced(self, item: Item) -> Reply:
        """The answer has to be a call, of any of the tools."""
        return self._forced(item, item.tools)

    def named(self, item: Item) -> Reply:
        """The answer has to be a call of the right tool; all are told."""
        return self._forced(item, tuple(t for t in item.tools if t.name in (item.accepted or {})))

    def _forced(self, item: Item, tools: tuple[ToolSpec, ...]) -> Reply:
        began_s = monotonic_s()
        ready, ask = self.llama._ready, replace(self.ask(item), must_call=True)
        assert ready is not None
        prompt = ready.prompt(ask)
        held = ready.sequences.place(ask.slot, prompt, False)
        ask = replace(ask, tools=tools)  # all are told, these may be called
        writing = Writing(ready, ask, held, 1, must_call=True)
        try:
            ready.sequences.extend(held, prompt[len(held.tokens) :], never)
            list(writing.pieces(never))
        finally:
            writing.close()
            ready.sequences.release(held)
        return reply(writing.calls(), True, writing.count, monotonic_s() - began_s)

    def prose(self, item: Item, tokens: int) -> int:
        """Up to so many tokens after the same prompt without a grammar: how many came."""
        *_, finish = self.llama.generate(ROUTE, self.ask(item, tools=(), max_tokens=tokens), threading.Event())
        assert isinstance(finish, Finish)
        return finish.output_tokens

    def remember(self, item: Item) -> None:
        """Read the prompt, so that what follows need not."""
        self.prose(item, 1)


class Native(Ours):
    """The same in the format that the model was trained on: its template tells the tools."""

    title = "owlbox, own format"

    def ask(self, item: Item, **more: Any) -> Ask:
        """The request for an item: the tools are the template's to tell."""
        return replace(super().ask(item, **more), system=(Part("persona", "You are a helpful assistant."),), dialect="native")


class Theirs:
    """llama-cpp-python's own function-calling handler."""

    title = "llama-cpp-python"

    def __init__(self, path: Path, threads: int) -> None:
        import llama_cpp

        class Bounded(llama_cpp.Llama):  # type: ignore[misc]
            """Its handler sets no limit to a call."""

            def create_completion(self, *args: Any, **more: Any) -> Any:
                more["max_tokens"] = min(more.get("max_tokens") or MAX_TOKENS, MAX_TOKENS)
                return super().create_completion(*args, **more)

        self.llama: Any = Bounded(
            str(path), n_ctx=WINDOW, n_batch=BATCH, n_ubatch=BATCH, n_threads=threads, n_threads_batch=threads, verbose=False,
            seed=1, chat_format="chatml-function-calling",
        )  # fmt: skip

    def free(self, item: Item) -> Reply:
        """tool_choice "auto"."""
        return self._reply(item, "auto")

    def named(self, item: Item) -> Reply:
        """tool_choice names the right function; it knows no choice that only says that there must be a call."""
        name = next(iter(item.accepted or {}), item.tools[0].name)
        return self._reply(item, {"type": "function", "function": {"name": name}})

    def prose(self, item: Item, tokens: int) -> int:
        """Up to so many tokens without a grammar: how many came."""
        said = [{"role": "user", "content": item.question}]
        answer = self.llama.create_chat_completion(said, temperature=0, max_tokens=tokens)
        return int(answer["usage"]["completion_tokens"])

    def remember(self, item: Item) -> None:
        """Read the prompt of a named call; all but the last token is kept for the next time."""
        self.named(item)

    def _reply(self, item: Item, choice: Any) -> Reply:
        tools = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}}
            for t in item.tools
        ]
        said = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": item.question}]
        began_s = monotonic_s()
        answer = self.llama.create_chat_completion(said, tools=tools, tool_choice=choice, temperature=0)
        seconds = monotonic_s() - began_s
        message, tokens = answer["choices"][0]["message"], answer["usage"]["completion_tokens"]
        if not message.get("tool_calls"):
            return Reply(tokens=tokens, seconds=seconds)
        call = message["tool_calls"][0]["function"]
        return Reply(call["name"], call["arguments"], True, tokens, seconds)


def reply(calls: tuple[ToolCall, ...], has_tried: bool, tokens: int, seconds: float) -> Reply:
    """Ours as a Reply; a call that was cut off counts as tried, and as not parseable."""
    if calls:
        return Reply(calls[0].name, json.dumps(calls[0].arguments), True, tokens, seconds)
    return Reply("", "", has_tried, tokens, seconds)


def never() -> bool:
    """Nobody stops a measurement."""
    return False


# -- running ------------------------------------------------------------------------------------------


def measure(items: Sequence[Item], answer: Callable[[Item], Reply]) -> tuple[Row, list[str]]:
    """A row over the items, and what was wrong with the form of calls."""
    row, complaints = Row(), []
    for one in items:
        if fault := tally(row, one, answer(one)):
            complaints.append(f"  {one.id}: {fault}")
    return row, complaints


def speeds(engine: Ours | Theirs, items: Sequence[Item]) -> dict[str, float]:
    """Tokens a second of named calls and of prose as long, in turns, with the prompt already read."""
    calls, prose = [0.0, 0.0], [0.0, 0.0]
    for one in items:
        engine.remember(one)
        began_s = monotonic_s()
        tokens = engine.named(one).tokens
        calls = [calls[0] + tokens, calls[1] + monotonic_s() - began_s]
        engine.prose(one, 1)
        began_s = monotonic_s()
        prose = [prose[0] + engine.prose(one, tokens), prose[1] + monotonic_s() - began_s]
    return {"with_grammar": round(calls[0] / calls[1], 1), "without": round(prose[0] / prose[1], 1)}


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("OWLBOX_BFCL") or DATA))
    parser.add_argument("--model", type=Path, help="another model file than the bundled one")
    parser.add_argument("--free", action="store_true", help="only the rows in which the model decides whether to call")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ours", action="store_true", help="leave the other engine out: it takes most of the time")
    parser.add_argument("--json", default="build/bench-calls.json", metavar="FILE")
    args = parser.parse_args()
    if not args.data.exists():
        print(f"function calling: left out, {args.data} is missing; {SOURCE}")
        return 0
    items = read_items(args.data)
    items = items if args.all else spread(items, args.count)
    with tempfile.TemporaryDirectory() as folder:
        home, file = Home(Path(folder)), args.model
        if file is None:
            catalogue.add(home, "smollm2", lambda stage, done, total: None)
            file = home.models / catalogue.entries()["smollm2"].file
        is_native = families.find(gguf.read(file).chat_template) is not None
        engines: list[type[Ours] | type[Theirs]] = [Ours, *([Native] if is_native else []), *([] if args.ours else [Theirs])]
        numbers = rows(items, file, engines, ("free",) if args.free else KINDS_OF_ASKING)
    figures.write(args.json, numbers)
    return 0


def rows(items: Sequence[Item], model: Path, engines: Sequence[type[Ours] | type[Theirs]], kinds: Sequence[str]) -> dict[str, Any]:
    """Every row, printed as it is known."""
    threads = len(os.sched_getaffinity(0))
    numbers: dict[str, Any] = {"items": len(items), "model": model.stem, "threads": threads, "max_tokens": MAX_TOKENS}
    with_truth = [x for x in items if x.accepted is not None]
    print(f"{len(items)} questions, {model.stem}, {threads} threads, at most {MAX_TOKENS} tokens")
    print(f"{'':<25}{'calls':>8}{'JSON':>6}{'valid':>7}{'correct':>9}{'s':>8}{'tokens':>8}  correct per set")
    for title, engine in ((each.title, each(model, threads)) for each in engines):
        for kind in kinds:
            if not hasattr(engine, kind):
                continue
            row, complaints = measure(items if kind == "free" else with_truth, getattr(engine, kind))
            numbers[f"{title} {kind}"] = show(f"{title}, {kind}", row)
            print("\n".join(complaints), end="\n" * bool(complaints))
        if tuple(kinds) != KINDS_OF_ASKING:
            continue
        numbers[f"{title} tokens/s"] = found = speeds(engine, with_truth[:: max(1, len(with_truth) // SPEED_ITEMS)][:SPEED_ITEMS])
        print(f"{title}, tokens/s of calls and of prose: {found['with_grammar']}, {found['without']}", flush=True)
    return numbers


def show(title: str, row: Row) -> dict[str, Any]:
    """One row on the screen, and as JSON."""
    sets = ", ".join(f"{name} {right}/{of}" for name, (right, of) in row.by_set.items())
    counts = f"{f'{row.calls}/{row.items}':>8}{row.parseable:>6}{row.valid:>7}{row.correct:>9}"
    print(f"{title:<25}{counts}{row.seconds:>8.1f}{row.tokens:>8}  {sets}", flush=True)
    return {**vars(row), "by_set": {name: list(pair) for name, pair in row.by_set.items()}}


if __name__ == "__main__":
    sys.exit(main())
