"""Answers of every format, mutated by the thousand, through `answers.read`: nothing raises, no code is run.

    python tests/support/fuzz_answers.py --count 1000000 --seed 1 --processes 2 --json

The oracle: a call of a tool named `sentinel` is planted in code, in a comment or in a quotation between two
mutated parts that hold neither backticks nor tildes. Whatever the mutations did, it is code, so no
command may come from it. Every command must be a tool's, and no warning may hold a live tag.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from appliance.clock import monotonic_s  # noqa: E402
from appliance.records import ToolSpec  # noqa: E402
from appliance.text import answer_parser  # noqa: E402

TEXT = {"type": "string"}


def spec(name: str, *arguments: str) -> ToolSpec:
    schema = {"type": "object", "properties": dict.fromkeys(arguments, TEXT), "required": list(arguments[:1])}
    return ToolSpec(name, "Do it.", {**schema, "additionalProperties": False})


TOOLS = (
    spec("search", "query"),
    spec("remember", "text", "title"),
    spec("get", "path", "body"),
    spec("set", "path", "body", "search", "replace"),
    spec("rm", "path", "body"),
    spec("mv", "path", "to"),
    spec("cp", "path", "to"),
    spec("update", "body", "status"),
    spec("sh", "command"),
    spec("ask_user", "question", "options"),
    spec("unknown", "body"),
    spec("sentinel", "path"),
)
NAMES = {t.name for t in TOOLS}
JSON = '{"name": "search", "arguments": {"query": "garden"}}'
CORPUS = (
    "The garden is south of the house.",
    "",
    "a < b and c > d",
    "<b>bold</b> and <i>more</i>",
    "- one\n- two\n\n> three",
    "1. `x`\n2. y",
    '<get path="src/a.py"/>',
    "<get>src/a.py</get>",
    '<get path="*.py" body="TODO" preview/>',
    "<get path='a b' line=3 limit=40/>",
    '<set path="k">value\nand more\n</set>',
    '<set path="k" body="v"/>',
    '<set path="f" search="30">80</set>',
    '<set path="a.html"><div class="a">t</div></set>',
    '<set path="d">Write <rm path="x"/> there.</set>',
    '<set path="x">x > 5 && y < 10</set>',
    "<rm>old.txt</rm>",
    '<rm path="unknown://q"></unknown>\n<update>go</update>',
    '<mv path="a.txt">b.txt</mv>',
    '<cp path="a" to="b"/>',
    '<sh command="ls -la"/>',
    "<sh>cat > x <<EOF\n<html>\n</html>\nEOF</sh>",
    "<search>wal mode</search>",
    '<search path="wal mode"/>',
    '<ask_user question="Which?" options="A, B"/>',
    "<ask_user>Which DB?</ask_user>",
    '<unknown body="what?"/>',
    "<update>done</update>",
    '<update status="200">all is done</update>',
    "I look.\n<get path='a'/>\nThen:\n<rm>b</rm>\nDone.",
    '<get path="a.py/>\n<rm path="b"/>',
    '<get path="a.py">\n<get path="b.py">',
    "<summarize>The end",
    '<set path="k">unclosed',
    "<thinking>hm</thinking><get path='a'/>",
    JSON,
    f"Look:\n{JSON}\nDone.",
    f"[{JSON},\n{JSON}]",
    f"{JSON}\n{JSON}",
    '{"colour": "red", "list": [1, 2, {"a": null}]}',
    '{"tool_calls": [{"type": "function", "function": {"name": "rm", "arguments": "{\\"path\\": \\"x\\"}"}}]}',
    JSON[:-1],
    JSON[:-12],
    f"<tool_call>\n{JSON}\n</tool_call>",
    f"<tool_call>{JSON}</tool_call>\n<tool_call>{JSON}</tool_call>",
    f"<tool_call>{JSON}",
    "<tool_call>\n<function=search>\n<parameter=query>\nq\n</parameter>\n</function>\n</tool_call>",
    '<function=rm>{"path": "x"}</function>',
    '<function_calls><invoke name="get"><parameter name="path">a</parameter></invoke></function_calls>',
    '<tool_use><name>search</name><input>{"query": "q"}</input></tool_use>',
    f"[TOOL_CALLS] [{JSON}]",
    '[TOOL_CALLS]rm[ARGS]{"path": "x"}',
    '<|tool_call>call:search{query:"x y"}<tool_call|>',
    '<|tool_call>call:get{path:<|"|>a<|"|>,body:b}<tool_call|>',
    f"<|python_tag|>{JSON}",
    '<|python_tag|>search.call(query="q")<|eom_id|>',
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi.",
    '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "q"}<|call|>',
    "<|channel>thought\nhm<channel|>Hello.",
    "<think>a <rm>x</rm></think>Hello",
    "<|im_start|>assistant\nHello<|im_end|>",
    "Über 20 °C — ≤ 3 €, \u202eright\u202c \U0001f989",
    '<known>x</known> <shell>ls</shell> <read_file path="a"/>',
)
FENCED = (
    f"```json\n{JSON}\n```",
    "```tool_code\nsearch(query='q')\n```",
    '```tool_code\n<get path="a"/>\n```',
    "```python\nx = 1\n```",
    "`a` ``b`` ~~~",
)
TOKENS = (
    "<",
    ">",
    "/>",
    "</",
    "/",
    '"',
    "'",
    "=",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ":",
    ",",
    "\\",
    " ",
    "\n",
    "\n\n",
    "\t",
    "|",
    "é",
    "\u2028",
    "\x00",
    "\ud800",
    "“",
    "<get ",
    "</get>",
    "<set path=",
    "</set>",
    "<rm>",
    "<sh>",
    "</sh>",
    "<sentinel",
    "search",
    "path",
    "name",
    "arguments",
    "<tool_call>",
    "</tool_call>",
    "<|tool_call>",
    "<tool_call|>",
    "call:rm{",
    "[TOOL_CALLS]",
    "<|channel|>",
    "<|message|>",
    "to=functions.rm",
    "<function=",
    "<parameter=path>",
    "</parameter>",
    "<|python_tag|>",
    "<tool_use>",
    "<think>",
    "</think>",
    '{"name":',
    '"arguments": {',
    "null",
    "1e999",
)
TICKS = ("`", "``", "```", "```json\n", "```tool_code\n", "\n```\n", "~~~\n")
PLANTED = (
    '<sentinel path="x"/>',
    "<sentinel>x</sentinel>",
    '{"name": "sentinel", "arguments": {"path": "x"}}',
    'so "this": <sentinel path="x"/>',
)
CODE = (
    "`{}`",
    "``{}``",
    "``{} ` more``",
    "```\nfirst\n\n{}\n```",
    "```xml\n{}\n```",
    "```python\n{}\n\n```",
    "~~~\n{}\n\nmore\n~~~",
    "````\n```\n{}\n```\n````",
    "- one\n- ```xml\n  {}\n  ```\n- two",
    "1. Write:\n\n   ```\n   {}\n\n   more\n   ```\n2. two",
    "- a\n  - b\n\n    ~~~xml\n    {}\n    ~~~\n",
    "> ```\n> {}\n> ```",
    "Write this: ```xml\n{}\n\n``` and so on.",
    "Write this: ```\n{}\n```\nand so on.",
    "```xml\n{}```\n\nand\n\n```\n{}\n```",
    "```xml\n<a/>\n``` and\n\n```\n{}\n```",
    "```md\n```xml\n<a/>\n```\n{}\n```",
    "You can call:\n\n```json\n{}\n```\n\nand so on.",
    "<pre>\n{}\n\nmore\n</pre>",
    '<PRE class="x"><code>{}</code></PRE>',
    "Use <code>{}</code> for it.",
    "<!-- {} -->",
    "<!--\n{}\n\nmore -->",
    "Like this:\n\n    {}\n\nand so on.",
    "Like this:\n\n\tfirst\n\n\t{}\n",
    "1. one\n\n       {}\n",
)
QUOTED = ('"{}"', "'{}'", "“{}”", "„{}“", "«{}»", "‘{}’", 'He said: "do {} now."', "Type 'so {}', then wait.", '("{}")')


def mutated(rng: random.Random, text: str, tokens: Sequence[str]) -> str:
    """The text after a few deletions, repetitions, swaps, insertions or a cut."""
    for _ in range(rng.randrange(6)):
        start = rng.randrange(len(text) + 1)
        stop = min(len(text), start + rng.randrange(1, 12))
        match rng.randrange(6):
            case 0:
                text = text[:start] + text[stop:]
            case 1:
                text = text[:stop] + text[start:stop] + text[stop:]
            case 2:
                text = text[:start] + text[start:stop][::-1] + text[stop:]
            case 3 | 4:
                text = text[:start] + rng.choice(tokens) + text[start:]
            case _:
                text = text[:start] if rng.randrange(4) == 0 else text + rng.choice(tokens)
    return text


def without_code(rng: random.Random) -> str:
    """A mutated answer in which nothing is code."""
    text = mutated(rng, "\n".join(rng.choices(CORPUS, k=rng.randrange(1, 3))), TOKENS)
    return text.replace("`", "'").replace("~", "-").replace("sentinel", "rm")


def fault(text: str, *, is_planted: bool) -> str:
    """What is wrong with how a text is read, "" when nothing is; an exception counts too."""
    answer = answer_parser.read(text, (), TOOLS)
    if not {c.name for c in answer.calls} <= NAMES:
        return "a call of no tool"
    if is_planted and any(c.name == "sentinel" for c in answer.calls):
        return "code was run"
    if any("<" in warning for warning in answer.warnings):
        return "a live tag in a warning"
    if text.strip() and not (answer.calls or answer.warnings or answer.text):
        return "dropped without a word"
    return ""


def run(count: int, seed: int, limit_s: float = 86_400) -> dict[str, Any]:
    """Read so many mutated answers, fewer when time is up; half of them have a sentinel planted in code."""
    rng, calls, failures, started_s = random.Random(seed), 0, [], monotonic_s()
    for number in range(count):
        if number % 1000 == 0 and monotonic_s() - started_s > limit_s:
            count = number
            break
        if is_planted := number % 2 == 0:
            planted, shape = rng.choice(PLANTED), rng.choice((*CODE, *QUOTED))
            code = shape.replace("{}", planted if shape not in QUOTED or planted.startswith("<") else PLANTED[0])
            text = f"{without_code(rng)}\n\n{code}\n\n{without_code(rng)}"
        else:
            text = mutated(rng, "\n".join(rng.choices(CORPUS + FENCED, k=rng.randrange(1, 3))), TOKENS + TICKS)
        try:
            problem = fault(text, is_planted=is_planted)
            calls += len(answer_parser.read(text, (), TOOLS).calls) if number % 16 == 1 else 0
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this looks for
            problem = f"{type(error).__name__}: {error}"
        if problem and len(failures) < 20:
            failures.append({"problem": problem, "text": text})
    seconds = monotonic_s() - started_s
    return {"count": count, "seed": seed, "calls": calls, "failures": failures, "seconds": seconds}


def main() -> int:
    """Fuzz from the command line; exit code 1 when something failed."""
    parser = argparse.ArgumentParser(description="Mutated answers through the answer parser.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=86_400, help="stop after so long, whatever the count")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    parts = [asked.count // asked.processes + (n < asked.count % asked.processes) for n in range(asked.processes)]
    started_s = monotonic_s()
    with ProcessPoolExecutor(asked.processes) as pool:
        reports = list(pool.map(run, parts, range(asked.seed, asked.seed + asked.processes), [asked.seconds] * asked.processes))
    seconds = monotonic_s() - started_s
    failures = [failure for report in reports for failure in report["failures"]]
    count = sum(report["count"] for report in reports)
    rate = round(count / seconds)
    if asked.json:
        print(json.dumps({"count": count, "seconds": round(seconds, 1), "per_second": rate, "failures": failures}))
    else:
        print(f"{count} answers in {seconds:.1f} s ({rate} a second), {len(failures)} failures")
        for failure in failures:
            print(f"{failure['problem']}: {failure['text']!r}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
