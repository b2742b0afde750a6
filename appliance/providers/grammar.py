"""Keeps a local model's tool call inside the tools' JSON schemas, one token at a time.

Sampling is free first: only a token that breaks the grammar is drawn again under its mask, which costs
20 ms where a check costs 0.6. The grammar bounds shapes, not values (the converter ignores `maximum`,
and lengths make it slow), so arguments are validated again where the tool runs.
"""

import ctypes
import json
from collections.abc import Sequence
from typing import Any

from appliance.errors import Unavailable
from appliance.providers.library import Loaded
from appliance.records import ToolCall, ToolSpec

ROOT = b"root"
KEPT = ("type", "enum", "const")
MAX_DEPTH = 8
ANY_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}
# The converter has no error of its own: these are what odd schemas were seen to raise.
CONVERTER_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RecursionError)
TOP_K, TOP_P, MIN_P = 40, 0.95, 0.05
# DRY: repeats longer than the allowed length (tokens) are punished by multiplier * base ** (length - allowed).
DRY_MULTIPLIER, DRY_BASE, DRY_ALLOWED_LENGTH, DRY_LAST_TOKENS = 0.8, 1.75, 4, 256
DRY_BREAKERS = (b"\n", b":", b'"', b"*")


def call_grammar(tools: Sequence[ToolSpec]) -> str:
    """GBNF for exactly one call of one of the tools, white space allowed in front."""
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    convert: Any = json_schema_to_gbnf
    alternatives = []
    for tool in tools:
        arguments = simple(tool.schema, tool.schema)
        try:
            convert(json.dumps(arguments))
        except CONVERTER_ERRORS:  # such a tool's arguments are checked only where the tool runs
            arguments = ANY_OBJECT
        alternatives.append(_object({"name": {"const": tool.name}, "arguments": arguments}, ["name", "arguments"]))
    text: str = convert(json.dumps({"anyOf": alternatives}))
    lines = ["root ::= [ \\t\\n]* call" if line.startswith("root ::=") else line for line in text.splitlines()]
    body = next(line for line in text.splitlines() if line.startswith("root ::="))
    return "\n".join([*lines, "call ::=" + body.removeprefix("root ::=")]) + "\n"


def simple(schema: Any, root: Any, depth: int = 0) -> dict[str, Any]:
    """The part of a JSON schema that a grammar can hold: shapes, names and choices."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    if "$ref" in schema:
        return simple(_target(schema["$ref"], root), root, depth + 1)
    kept: dict[str, Any] = {key: schema[key] for key in KEPT if key in schema}
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return {"anyOf": [simple(option, root, depth + 1) for option in schema[key]]}
    if "items" in schema:
        kept["items"] = simple(schema["items"], root, depth + 1)
    if schema.get("type") == "object" or "properties" in schema:
        fields = schema.get("properties") or {}
        if not fields:
            # The converter reads an object without properties as {}: say that anything may be in it.
            extra = schema.get("additionalProperties", True)
            return (
                _object({}, [])
                if extra is False
                else {"type": "object", "additionalProperties": simple(extra, root, depth + 1) or True}
            )
        return _object({name: simple(part, root, depth + 1) for name, part in fields.items()}, schema.get("required", []))
    return kept


def _object(fields: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def _target(reference: str, root: Any) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        root = root.get(name) if isinstance(root, dict) else None
    return root


def read_call(text: str) -> ToolCall | None:
    """The call in a complete JSON object, or None while it is incomplete."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not isinstance(value.get("arguments"), dict):
        return None
    return ToolCall("call_1", value["name"], value["arguments"])


class Sampler:
    """Draws the next token: greedy at temperature 0, else top-k, top-p, min-p and a seeded draw.

    Before that, DRY (don't repeat yourself) makes it ever less likely to go on with what the answer
    already said: small models otherwise fall into a loop. The prompt does not count, so quoting is free.
    """

    def __init__(self, loaded: Loaded, temperature: float, seed: int) -> None:
        import numpy

        self._numpy: Any = numpy
        self._loaded = loaded
        self._api = api = loaded.api
        self._chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        self._grammar: Any = None
        steps = [api.llama_sampler_init_greedy()]
        if temperature > 0:
            steps = [
                api.llama_sampler_init_top_k(TOP_K),
                api.llama_sampler_init_top_p(TOP_P, 1),
                api.llama_sampler_init_min_p(MIN_P, 1),
                api.llama_sampler_init_temp(temperature),
                api.llama_sampler_init_dist(seed),
            ]
        for step in [self._no_loops(), *steps]:
            api.llama_sampler_chain_add(self._chain, step)

    def _no_loops(self) -> Any:
        breakers = (ctypes.c_char_p * len(DRY_BREAKERS))(*DRY_BREAKERS)
        return self._api.llama_sampler_init_dry(
            self._loaded.vocabulary, DRY_MULTIPLIER, DRY_BASE, DRY_ALLOWED_LENGTH, DRY_LAST_TOKENS, breakers, len(DRY_BREAKERS)
        )

    def close(self) -> None:
        """Free what C allocated."""
        self._api.llama_sampler_free(self._chain)
        if self._grammar is not None:
            self._api.llama_sampler_free(self._grammar)

    def draw(self) -> int:
        """The next token, unconstrained."""
        return int(self._api.llama_sampler_sample(self._chain, self._loaded.context, -1))

    def constrain(self, gbnf: str) -> None:
        """From now on `settle` holds tokens to this grammar."""
        self._grammar = self._api.llama_sampler_init_grammar(self._loaded.vocabulary, gbnf.encode(), ROOT)
        if not self._grammar:
            raise Unavailable("llama.cpp refused the tools' grammar", hint="the log has its complaint")

    @property
    def is_constrained(self) -> bool:
        """True after `constrain`."""
        return self._grammar is not None

    def settle(self, token: int) -> int:
        """The drawn token if the grammar allows it, else one drawn again under its mask."""
        if not self._allows(token):
            token = self._draw_masked()
        # Accepting a token that was not checked first ends the process.
        self._api.llama_sampler_accept(self._grammar, token)
        return token

    def _allows(self, token: int) -> bool:
        one = (self._api.llama_token_data * 1)()
        one[0].id, one[0].logit, one[0].p = token, 1.0, 0.0
        self._apply(self._grammar, one, 1)
        return bool(one[0].logit != float("-inf"))

    def _draw_masked(self) -> int:
        size = self._loaded.vocabulary_size
        logits = self._api.llama_get_logits_ith(self._loaded.context, -1)
        kind = self._numpy.dtype([("id", self._numpy.intc), ("logit", self._numpy.single), ("p", self._numpy.single)], align=True)
        table = self._numpy.zeros(size, dtype=kind)
        table["id"] = self._numpy.arange(size)
        table["logit"] = self._numpy.ctypeslib.as_array(logits, shape=(size,))
        pointer = table.ctypes.data_as(ctypes.POINTER(self._api.llama_token_data))
        choice = self._apply(self._grammar, pointer, size)
        self._api.llama_sampler_apply(self._chain, ctypes.byref(choice))
        return int(choice.data[choice.selected].id)

    def _apply(self, sampler: Any, data: Any, size: int) -> Any:
        pointer = ctypes.cast(data, ctypes.POINTER(self._api.llama_token_data))
        choice = self._api.llama_token_data_array(data=pointer, size=size, selected=-1, sorted=False)
        self._api.llama_sampler_apply(sampler, ctypes.byref(choice))
        return choice
