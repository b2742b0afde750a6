"""What asking a remote model costs us beside the provider itself. Run it with `make bench-remote`.

    python tests/bench/bench_remote.py [--others PYTHON] [--rounds N] [--json FILE]

A provider that answers at once plays the same turns to everybody: our three adapters, and, with a Python that has
them, `llm` and the official `openai` client. Each client has a process of its own, reads one word and then 500, and
keeps its connection. The floor is a bare socket that reads the same bytes and understands none of them. Knows nothing
about what is good enough.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import figures

WORDS = 500
WARM = 3
KEY = "sk-bench-00000000"
OURS = ("openai", "anthropic", "gemini")
OTHERS = ("openai client", "llm")
PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/short:streamGenerateContent",
}


def main() -> int:
    """Measure, print, write; or be the server or one client of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--others", default="", metavar="PYTHON", help="a Python with llm and openai")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", default="build/bench-remote.json", metavar="FILE")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", default="", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve()
    if args.client:
        print(json.dumps(client(args.client, args.url, args.rounds)))
        return 0
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        names = [("floor", sys.executable), *((name, sys.executable) for name in OURS)]
        names += [(name, args.others) for name in OTHERS if args.others]
        found = {name: started(python, name, url, args.rounds) for name, python in names}
    finally:
        server.stdin.close()
        server.wait(30)
    figures.write(args.json, {"words": WORDS, "rounds": args.rounds, **found})
    show(found)
    return 0


def started(python: str, name: str, url: str, rounds: int) -> dict[str, Any]:
    """What a client measured, in a process of its own."""
    command = [python, __file__, "--client", name, "--url", url, "--rounds", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def show(found: dict[str, Any]) -> None:
    """The numbers as a table, those of the floor taken off."""
    floor = found["floor"]
    print(f"{'':<14} {'turn ms':>8} {'cpu ms':>8} {'word us':>8} {'cpu us':>8} {'import ms':>10}   added to an instant provider")
    for name, one in found.items():
        less = {
            key: one[key] - (floor[key] if name != "floor" else 0) for key in ("turn_ms", "turn_cpu_ms", "word_us", "word_cpu_us")
        }
        row = " ".join(f"{value:>8.2f}" for value in less.values())
        print(f"{name:<14} {row} {one['import_ms']:>10.0f}" + ("   (not taken off itself)" if name == "floor" else ""))


# -- the server --------------------------------------------------------------------------------------------


def serve() -> int:
    """Plays one word to `short` and many to anything else, until its input ends."""
    import wire

    with wire.playing() as server:
        turns = {n: wire.Turn(chunks=("word ",) * n, used=wire.Used(100, n)) for n in (1, WORDS)}
        played = {(kind, n): tuple(form(turn)) for kind, form in wire.FORMATS.items() for n, turn in turns.items()}

        class Chosen(list):  # type: ignore[type-arg]
            """The answer that the newest request asks for."""

            def __bool__(self) -> bool:
                return True

            def pop(self, index: Any = 0) -> Any:
                seen = server.seen.pop()
                kind = next(kind for kind, path in PATHS.items() if seen.path.startswith(path.partition("short")[0]))
                is_short = "short" in seen.path or seen.body.get("model") == "short"
                return wire.Raw(played[kind, 1 if is_short else WORDS])

        server.answers = Chosen()
        print(server.url, flush=True)
        sys.stdin.read()
    return 0


# -- the clients -------------------------------------------------------------------------------------------


def client(name: str, url: str, rounds: int) -> dict[str, float]:
    """Milliseconds of a turn of one word, microseconds of each further word, both also as CPU time; the import."""
    began_s = time.perf_counter()
    say = {"floor": floor, "openai client": official, "llm": llm}.get(name, lambda url: ours(name, url))(url)
    for _ in range(WARM):
        assert say("short") == 1
    import_ms = (time.perf_counter() - began_s) * 1000
    short, long = timed(say, "short", 1, rounds), timed(say, "long", WORDS, max(5, rounds // 3))
    return {
        "turn_ms": short[0] * 1000,
        "turn_cpu_ms": short[1] * 1000,
        "word_us": (long[0] - short[0]) / (WORDS - 1) * 1e6,
        "word_cpu_us": (long[1] - short[1]) / (WORDS - 1) * 1e6,
        "import_ms": import_ms,
    }


def timed(say: Callable[[str], int], model: str, words: int, rounds: int) -> tuple[float, float]:
    """Seconds and CPU seconds of a turn, in the middle of several."""
    walls, cpus = [], []
    for _ in range(rounds):
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        count = say(model)
        walls.append(time.perf_counter() - wall_s)
        cpus.append(time.process_time() - cpu_s)
        assert count == words, f"{count} words"
    return statistics.median(walls), statistics.median(cpus)


def floor(url: str) -> Callable[[str], int]:
    parts = urlsplit(url)
    sock = socket.create_connection((parts.hostname or "", parts.port or 0))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(model: str) -> int:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
        head = (
            f"POST {PATHS['openai']} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        sock.sendall(head.encode() + body)
        tail, count = b"", 0
        while not tail.endswith(b"0\r\n\r\n"):
            data = sock.recv(65536)
            count += (tail[-20:] + data).count(b"word ") - tail[-20:].count(b"word ")
            tail = (tail + data)[-40:]
        return count

    return say


def ours(kind: str, url: str) -> Callable[[str], int]:
    from appliance.clock import CancelToken
    from appliance.providers.formats.anthropic import Anthropic
    from appliance.providers.formats.gemini import Gemini
    from appliance.providers.formats.openai import OpenAI
    from appliance.providers.remote_settings import Remote
    from appliance.records import Ask, Message, Piece, Route

    kinds: dict[str, Any] = {"openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini}
    base = f"{url}/v1beta" if kind == "gemini" else f"{url}/v1"
    made = {m: kinds[kind](Remote("bench", kind, base, m, lambda: KEY)) for m in ("short", "long")}  # type: ignore[arg-type]
    asked, route = Ask((), (Message("user", "Hi"),), dialect="native"), Route("r", "bench", "m", 1, "native")
    return lambda model: sum(isinstance(piece, Piece) for piece in made[model].generate(route, asked, CancelToken()))


def official(url: str) -> Callable[[str], int]:
    import openai

    made = openai.OpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0)

    def say(model: str) -> int:
        stream = made.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Hi"}], stream=True, stream_options={"include_usage": True}
        )
        return sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in stream)

    return say


def llm(url: str) -> Callable[[str], int]:
    from llm.default_plugins.openai_models import Chat

    made = {m: Chat(m, model_name=m, api_base=f"{url}/v1") for m in ("short", "long")}
    return lambda model: sum(bool(text) for text in made[model].prompt("Hi", key=KEY, stream=True))


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2])]
    sys.exit(main())
