"""A server whose tools and answers are odd in as many ways as there are cases; started with the name of a list."""

import json
import sys

OBJECT = {"type": "object"}
ODD = [
    {"inputSchema": {}},
    {"inputSchema": None},
    {},
    {"inputSchema": {"type": "string"}},
    {"inputSchema": {"type": ["object", "null"]}},
    {"inputSchema": "object"},
    {"inputSchema": [OBJECT]},
    {"inputSchema": True},
    {"inputSchema": {**OBJECT, "properties": []}},
    {"inputSchema": {**OBJECT, "required": "text"}},
    {"inputSchema": {"$ref": "#/nowhere"}},
    {"inputSchema": {"anyOf": [OBJECT]}},
    {"inputSchema": OBJECT, "outputSchema": {"type": "array"}},
    {"inputSchema": OBJECT, "outputSchema": "text"},
    {"inputSchema": OBJECT, "annotations": "read only"},
    {"inputSchema": OBJECT, "annotations": {"readOnlyHint": "maybe"}},
    {"inputSchema": OBJECT, "description": 5},
    {"inputSchema": OBJECT, "title": ["a"]},
    {"inputSchema": OBJECT, "icons": [1]},
    {"inputSchema": OBJECT, "_meta": []},
]
GOOD = [
    {"name": "answer", "inputSchema": {**OBJECT, "properties": {"text": {"type": "string"}}}},
    {"name": "half", "description": "half a \ud83d owl", "inputSchema": OBJECT},
    {"name": "extra", "inputSchema": {**OBJECT, "additionalProperties": False}, "unknown": {"a": 1}},
    {"name": "any", "inputSchema": {**OBJECT, "properties": {"x": True, "y": {}}}},
    {"name": "nullish", "inputSchema": OBJECT, "description": None, "annotations": None},
]
TOOLS = [
    *GOOD[:2],
    *({"name": f"odd{number}", **one} for number, one in enumerate(ODD)),
    *GOOD[2:],
    "tool",
    None,
    {"name": 7},
    GOOD[0],
    {"name": "", "inputSchema": OBJECT},
]
LISTS = {
    "all": {"tools": TOOLS},
    "none": {},
    "null": {"tools": None},
    "table": {"tools": {"answer": OBJECT}},
    "cursor": {"tools": GOOD[:1], "nextCursor": 5},
    "twice": {"tools": [GOOD[0], GOOD[0]]},
    "result": None,
}
RESULTS = {
    "empty": {},
    "no content": {"content": None},
    "no blocks": {"content": []},
    "null": None,
    "words": {"content": "plain words"},
    "block": {"content": {"type": "text", "text": "one block"}},
    "strings": {"content": ["a", "b"]},
    "kind": {"content": [{"type": "video", "data": "x"}, {"type": "text", "text": "after"}]},
    "no kind": {"content": [{"text": "no kind"}]},
    "no text": {"content": [{"type": "text"}]},
    "number": {"content": [7]},
    "picture": {"content": [{"type": "image", "data": "x"}]},
    "array": {"content": [], "structuredContent": [1, 2]},
    "scalar": {"structuredContent": 7},
    "object": {"structuredContent": {"a": 1}},
    "half": {"content": [{"type": "text", "text": "half \ud83d owl, whole \U0001f989"}]},
    "low half": {"content": [{"type": "text", "text": "\udc00"}]},
    "flag": {"content": [{"type": "text", "text": "x"}], "isError": "no"},
    "huge": {"content": [{"type": "text", "text": "x" * 5_000_000}]},
    "wide": {"content": [{"type": "text", "text": "\u20ac" * 2_000_000}]},
    "many": {"content": [{"type": "text", "text": "y"}] * 5000},
    "huge object": {"structuredContent": {"a": "z" * 5_000_000}},
    "list": ["x"],
    "text": "x",
}


def send(number: object, result: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    asked = json.loads(line)
    name, number, params = asked.get("method"), asked.get("id"), asked.get("params") or {}
    if name == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "zoo", "version": "1"}}
        send(number, {"protocolVersion": "2025-11-25", **about})
    elif name == "tools/list":
        send(number, LISTS[sys.argv[1]])
    elif name == "tools/call":
        send(number, RESULTS[params["arguments"]["text"]])
    elif number is not None:
        send(number, {})
