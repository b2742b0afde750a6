"""What a call of a server's tool costs: through hub, bridge and sandbox beside the protocol's own client, in one run.

    python tests/bench/bench_mcp.py [--calls N] [--json FILE]

The same server (`mcp-server-time`) answers both. Then the idle cost: three servers configured and none used starts nothing.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import figures
from mcp import Client, StdioServerParameters
from mcp_hubs import real, standing

ARGUMENTS = {"timezone": "UTC"}


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def told(name: str, first: float, rest: list[float]) -> None:
    rest.sort()
    late = rest[int(0.95 * len(rest))]
    print(f"{name:<28} first {first:8.1f} ms   median {statistics.median(rest):6.2f} ms   p95 {late:6.2f} ms")


async def own_client(command: str, calls: int) -> tuple[float, list[float]]:
    began = time.perf_counter()
    async with Client(StdioServerParameters(command=command)) as client:
        await client.call_tool("get_current_time", ARGUMENTS)
        first = 1000 * (time.perf_counter() - began)
        rest = []
        for _ in range(calls):
            one = time.perf_counter()
            await client.call_tool("get_current_time", ARGUMENTS)
            rest.append(1000 * (time.perf_counter() - one))
    return first, rest


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--json", default="build/bench-mcp.json", metavar="FILE")
    args = parser.parse_args()
    calls = args.calls
    command = str(real() / "venv/bin/mcp-server-time")
    with tempfile.TemporaryDirectory() as folder, standing(Path(folder)) as stand:
        for name in ("time", "two", "three"):
            stand.hub.add(name, {"command": command})
        print(f"three servers configured, none used: bridge {stand.ferry.pid or 'not started'}")
        first = timed(lambda: stand.hub.call("time", "get_current_time", ARGUMENTS))
        rest = [timed(lambda: stand.hub.call("time", "get_current_time", ARGUMENTS)) for _ in range(calls)]
        told("hub, bridge and sandbox", first, rest)
        words = Path(f"/proc/{stand.ferry.pid}/status").read_text()
        print(f"the bridge takes {next(line for line in words.splitlines() if line.startswith('VmRSS')).split(':')[1].strip()}")
    first, others = asyncio.run(own_client(command, calls))
    told("the protocol's own client", first, others)
    ours_ms, others_ms = statistics.median(rest), statistics.median(others)
    figures.write(args.json, {"first_ms": first, "call_ms": ours_ms, "own_client_call_ms": others_ms})
    print(f"ours costs {ours_ms - others_ms:.2f} ms more a call, {ours_ms / others_ms:.1f} times")


if __name__ == "__main__":
    main()
