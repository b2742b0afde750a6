"""Keeps a local model's tool call inside the tools' JSON schemas: the grammar, and drawing under it.

Sampling is free first: a token is drawn as the model likes it, and only one that breaks the grammar is
drawn again among those that do not. The grammar holds types, names, choices, required fields and how
long texts and lists may be. It does not hold `minimum`, `maximum`, `pattern` and `format`: such values
are refused where the tool runs, and the model reads why. Calls are written as `json.dumps` writes them,
so that most of their punctuation is known beforehand and need not be drawn.

One pass writes name and arguments. Choosing the tool first and showing its full schema right before the
arguments was right as often (33 against 32 of 100 questions of the Berkeley leaderboard, 50 of them with
several tools; SmolLM2-135M, 2026-11-22) and took 2.9 times as long.
"""

import ctypes
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance.errors import Unavailable
from appliance.providers.grammar_matcher import Grammar, GrammarState
from appliance.providers.llama_library import LoadedModel
from appliance.providers.value_styles import JSON, MANY_ITEMS, Style, dumped, literal
from appliance.records import ToolCall, ToolSpec

MAX_DEPTH = 8
MAX_RULES = 2000
LIMITS = {"minLength": "shortest", "minItems": "shortest", "maxLength": "longest", "maxItems": "longest"}
NAME, ARGUMENTS = '{"name": ', ', "arguments": '
KINDS: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "array": list, "object": dict}
KINDS |= {"boolean": bool, "null": type(None)}
SCALARS = ("string", "integer", "number", "boolean", "null")
TOP_K, TOP_P, MIN_P = 40, 0.95, 0.05  # llama.cpp's own defaults
# What is left to the model at the end of a known text: models write a space or a common beginning with what follows.
FRAGMENT = re.compile(rb"[^\x00-\x1f!-/:-@\[-`{-~]+\Z")
CLOSING = (b'"', b"]", b"}")
LIKELIEST = 256  # tokens looked at first when one has to be drawn again
# DRY: repeats longer than the allowed length (tokens) are punished by multiplier * base ** (length - allowed).
DRY_MULTIPLIER, DRY_BASE, DRY_LAST_TOKENS = 0.8, 1.75, 256
PENALIZED_TOKENS = 64  # that a repeat penalty looks back on
PROSE_LOOPS = 4, (b"\n", b":", b'"', b"*")  # allowed length, and what ends a repeat
CALL_LOOPS = 8, ()  # small models repeat an item of a list for ever, and there every item ends with a quote


# -- schema to grammar --------------------------------------------------------------------------------


def call_grammar(tools: Sequence[ToolSpec]) -> str:
    """GBNF for exactly one call of one of the tools in our own words, white space allowed in front."""

    def call(tool: ToolSpec, rules: GrammarRules) -> str:
        return f'{literal(dumped(tool.name) + ARGUMENTS)} {rules.arguments_of(tool)} "}}"'

    return calls_grammar(tools, JSON, call, [r"root ::= [ \t\r\n]* call", f"call ::= {literal(NAME)} chosen"])


def calls_grammar(
    tools: Sequence[ToolSpec], style: Style, call: "Callable[[ToolSpec, GrammarRules], str]", start: Sequence[str]
) -> str:
    """GBNF whose rules `start` use `chosen`: what `call` makes of one of the tools."""
    rules, calls = GrammarRules({}, style), []
    for tool in tools:
        tried = GrammarRules(dict(rules.names), style)
        made = call(tool, tried)
        if len(tried.names) > MAX_RULES:  # such arguments are checked only where the tool runs
            made = call(ToolSpec(tool.name, tool.description, {"type": "object"}), rules)
        else:
            rules = tried
        calls.append(made)
    return "\n".join([*start, f"chosen ::= {' | '.join(calls)}", *rules.lines()]) + style.rules()


def simple(schema: Any, root: Any) -> dict[str, Any]:
    """The part of a JSON schema that a grammar can hold: shapes, names, choices and lengths."""
    return Shapes(root).of(schema)


class Shapes:
    """Makes shapes of the schemas of one document; what is referred to often is looked at once per depth."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[tuple[int, int], tuple[Any, dict[str, Any]]] = {}  # the schema too, so that its id stays its own

    def of(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """One schema's shape; {} is anything."""
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}
        if (id(schema), depth) not in self._known:
            self._known[id(schema), depth] = schema, self._build_shape(schema, depth)
        return self._known[id(schema), depth][1]

    def _build_shape(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        inner = depth + 1
        if "$ref" in schema:
            return self.of(_resolve_reference(schema["$ref"], self._root), inner + 1)
        if isinstance(schema.get("allOf"), list):
            return _join_shapes([self.of(part, inner) for part in (_without_key(schema, "allOf"), *schema["allOf"])])
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return {"anyOf": [self.of(option, inner) for option in schema[key]]}
        if isinstance(schema.get("type"), list) and schema["type"]:
            return {"anyOf": [self.of({**schema, "type": kind}, inner) for kind in schema["type"]]}
        kept: dict[str, Any] = {"const": schema["const"]} if "const" in schema else {}
        kept |= {key: schema[key] for key, kind in (("type", str), ("enum", list)) if isinstance(schema.get(key), kind)}
        kept |= {ours: schema[key] for key, ours in LIMITS.items() if isinstance(schema.get(key), int)}
        for key in ("items", "additionalProperties"):
            if key in schema:
                kept[key] = schema[key] is not False and self.of(schema[key], inner)
        if isinstance(first := schema.get("prefixItems"), list):
            kept["prefixItems"] = [self.of(part, inner) for part in first]
        if isinstance(fields := schema.get("properties"), dict):
            kept["properties"] = {name: self.of(part, inner) for name, part in fields.items()}
        if isinstance(names := schema.get("required"), list):
            kept["required"] = [name for name in names if isinstance(name, str)]
        return kept


def _join_shapes(shapes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for shape in shapes:
        fields = {**whole.get("properties", {}), **shape.get("properties", {})}
        names = [*whole.get("required", []), *shape.get("required", [])]
        whole |= shape | ({"properties": fields, "required": names} if fields else {})
    return whole


def _without_key(schema: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k != key}


def _resolve_reference(reference: Any, root: Any) -> Any:
    for name in str(reference).removeprefix("#").split("/")[1:]:
        root = root.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


class GrammarRules:
    """Grammar rules of shapes, as `simple` returns them; equal shapes share a rule."""

    def __init__(self, names: dict[str, str], style: Style = JSON) -> None:
        self.names = names
        self.style = style
        self._known: dict[int, tuple[dict[str, Any], str]] = {}

    def lines(self) -> list[str]:
        """Every rule made so far."""
        return [f"{name} ::= {body}" for body, name in self.names.items()]

    def arguments_of(self, tool: ToolSpec) -> str:
        """The name of a rule for the arguments of a tool, as one object."""
        return self.object_of(simple(tool.schema, tool.schema))

    def of(self, shape: dict[str, Any]) -> str:
        """The name of a rule for values of this shape."""
        if id(shape) not in self._known:
            self._known[id(shape)] = shape, self._build_rule(shape)
        return self._known[id(shape)][1]

    def _build_rule(self, shape: dict[str, Any]) -> str:
        kind = shape.get("type")
        if options := self._allowed_values(shape):
            return self._name_rule(" | ".join(literal(self.style.value(value)) for value in options))
        if "anyOf" in shape:
            return self._name_rule(" | ".join(dict.fromkeys(self.of(option) for option in shape["anyOf"])))
        if kind == "array" or (kind is None and ("items" in shape or "prefixItems" in shape)):
            return self._array_rule(shape)
        if kind == "object" or (kind is None and "properties" in shape):
            return self.object_of(shape)
        if kind == "string" and ("longest" in shape or "shortest" in shape):
            quote = literal(self.style.quote)
            return self._name_rule(f"{quote} char{_format_times(shape, -1)} {quote}")
        return kind if kind in SCALARS else "value"

    def object_of(self, shape: dict[str, Any]) -> str:
        """The name of a rule for objects of this shape: required fields first, the others in order or left out, no more."""
        if not shape.get("properties") and not shape.get("required"):
            return self._free_object(shape.get("additionalProperties", {}))
        return self._name_rule(f"{self.style.opening} {self.members(shape, self.style.key)} {self.style.closing}")

    def members(self, shape: dict[str, Any], key: Callable[[str], str]) -> str:
        """What stands between the brackets of an object whose fields are known; `key` writes a name and what follows it."""
        fields: dict[str, Any] = shape.get("properties", {})
        required = list(dict.fromkeys(shape.get("required", [])))
        comma = self.style.comma
        parts = [f"{key(name)} {self.of(fields.get(name, {}))}" for name in required]
        rest, starts = '""', []
        for name in reversed([name for name in fields if name not in required]):
            pair = f"{key(name)} {self.of(fields[name])}"
            starts.append(f"{pair} {rest}")
            rest = self._name_rule(f"({comma} {pair})? {rest}")
        return f" {comma} ".join(parts) + f" {rest}" if parts else f"({' | '.join(reversed(starts))})?" if starts else '""'

    def _allowed_values(self, shape: dict[str, Any]) -> list[Any]:
        """The only values allowed; those that contradict the type would leave nothing to say."""
        options = [shape["const"]] if "const" in shape else shape.get("enum", [])
        fitting = [v for v in options if _is_kind(v, shape.get("type"))]
        return [v for v in fitting if not isinstance(v, float) or math.isfinite(v)]

    def _free_object(self, value: Any) -> str:
        style = self.style
        if value is False:
            return self._name_rule(f"{style.opening} {style.closing}")
        name = self.of(value)
        if name == "value":
            return "object"
        pair = f"{style.name} {style.colon} {name}"
        return self._name_rule(f"{style.opening} ({pair} ({style.comma} {pair}){{0,{MANY_ITEMS - 1}}})? {style.closing}")

    def _array_rule(self, shape: dict[str, Any]) -> str:
        style = self.style
        first = [self.of(part) for part in shape.get("prefixItems", [])]
        items = shape.get("items", {})
        if first:
            return self._name_rule(f"{style.first} {f' {style.comma} '.join(first)} {style.last}")
        if items is False or shape.get("longest") == 0:
            return self._name_rule(f"{style.first} {style.last}")
        item, least = self.of(items), max(0, shape.get("shortest", 0))
        more = _format_times({"shortest": least - 1, "longest": shape.get("longest", max(MANY_ITEMS, least)) - 1}, MANY_ITEMS)
        inside = f"{item} ({style.comma} {item}){more}"
        return self._name_rule(f"{style.first} {inside if least else f'({inside})?'} {style.last}")

    def _name_rule(self, body: str) -> str:
        return self.names.setdefault(body, f"r{len(self.names)}")


def _format_times(shape: dict[str, Any], otherwise: int) -> str:
    least, most = max(0, shape.get("shortest", 0)), shape.get("longest", otherwise)
    return f"{{{least},{most}}}" if most >= least else f"{{{least},}}"


def _is_kind(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind in (None, "boolean")
    return kind is None or isinstance(value, KINDS.get(kind, object))


def read_call(text: str) -> ToolCall | None:
    """The call in a complete JSON object, or None while it is incomplete."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not isinstance(value.get("arguments"), dict):
        return None
    return ToolCall("call_1", value["name"], value["arguments"])


# -- drawing ------------------------------------------------------------------------------------------


class Sampler:
    """Draws the next token: greedy at temperature 0, else top-k, top-p, min-p and a seeded draw.

    Before that, DRY (don't repeat yourself) makes it ever less likely to go on with what the answer
    already said: small models otherwise fall into a loop. The prompt does not count, so quoting is free. With a `repeat_penalty`
    a plain one on the last words takes DRY's place: of the two it alone stops the loops of models under a billion parameters.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        temperature: float,
        seed: int,
        repeat_penalty: float = 0.0,
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """`marks` are control tokens that a call is written with, by their text: they count as that text."""
        import numpy

        self._numpy: Any = numpy
        self._loaded = loaded
        self._api = loaded.api
        kind = [("id", numpy.intc), ("logit", numpy.single), ("p", numpy.single)]
        self._table: Any = numpy.zeros(loaded.vocabulary_size, dtype=numpy.dtype(kind, align=True))
        self._ids: Any = numpy.arange(loaded.vocabulary_size, dtype=numpy.intc)
        self._grammar: Grammar | None = None
        self._place: GrammarState | None = None
        self._marks = dict(marks or {})
        self._marked = {token: text.encode() for text, token in self._marks.items()}
        self._temperature, self._seed, self._repeat_penalty = temperature, seed, repeat_penalty
        self.end = b""  # the numbers to draw from, where they are not those of an evaluation
        self.row = -1  # behind which of the tokens evaluated last is drawn, counted from their end
        self._chain = self._build_steps(*PROSE_LOOPS)

    def _build_steps(self, allowed_length: int, breakers: tuple[bytes, ...]) -> Any:
        api = self._api
        steps = [api.llama_sampler_init_greedy()]
        if self._temperature > 0:
            steps = [
                api.llama_sampler_init_top_k(TOP_K),
                api.llama_sampler_init_top_p(TOP_P, 1),
                api.llama_sampler_init_min_p(MIN_P, 1),
                api.llama_sampler_init_temp(self._temperature),
                api.llama_sampler_init_dist(self._seed),
            ]
        ends = (ctypes.c_char_p * len(breakers))(*breakers)
        settings = DRY_MULTIPLIER, DRY_BASE, allowed_length, DRY_LAST_TOKENS, ends, len(breakers)
        chain = api.llama_sampler_chain_init(api.llama_sampler_chain_default_params())
        if self._repeat_penalty and self._grammar is None:
            steps = [
                api.llama_sampler_init_penalties(self._loaded.vocabulary_size, PENALIZED_TOKENS, self._repeat_penalty, 0.0, 0.0),
                *steps,
            ]
            for step in steps:
                api.llama_sampler_chain_add(chain, step)
            return chain
        # Looking up the breakers in the vocabulary takes 10 ms (2026-11-22), so one is made per model and copied.
        key = ("dry", allowed_length, tuple(breakers))
        dry = self._loaded.sampler(key, lambda: api.llama_sampler_init_dry(self._loaded.vocabulary, *settings))
        for step in [dry, *steps]:
            api.llama_sampler_chain_add(chain, step)
        return chain

    def close(self) -> None:
        """Free what C allocated."""
        self._api.llama_sampler_free(self._chain)

    def probability(self, token: int) -> float:
        """How likely the model holds a token at this place, before anything is done about repeating."""
        logits = self._read_logits()
        return float(1.0 / self._numpy.exp(logits - logits[token]).sum())

    def constrain(self, gbnf: str, start: str = "root", said: bytes = b"") -> bool:
        """From now on `settle` holds tokens to a rule of this grammar; False when what was `said` already breaks it."""
        grammar = Grammar(gbnf, start)
        place = grammar.walk(grammar.begin, said)
        if place is None:
            return False
        self._grammar, self._place = grammar, place
        self._api.llama_sampler_free(self._chain)
        self._chain = self._build_steps(*CALL_LOOPS)
        return True

    @property
    def is_constrained(self) -> bool:
        """True after `constrain`."""
        return self._grammar is not None

    @property
    def is_complete(self) -> bool:
        """True when the grammar allows nothing more."""
        return self._place is not None and self._place.is_over

    def draw(self) -> int:
        """Choose the next token without the grammar; `settle` accepts it."""
        return self._choose_token(self._ids)

    def settle(self, token: int) -> int:
        """The drawn token if the grammar allows it, else the likeliest draw among those it allows; remembered as said."""
        if self._grammar is not None:
            after = self._place_after(token)
            if after is None:
                token = self._choose_token(self._allowed_tokens(wants_end=self._loaded.is_end(token)))
                after = self._place_after(token)
            self._place = after
        self._api.llama_sampler_accept(self._chain, token)
        return token

    def skip(self) -> list[int]:
        """Tokens of the text that alone may follow; often none. They count as said, but never as a repeat."""
        if self._grammar is None or self._place is None:
            return []
        data, after = self._grammar.must(self._place)
        if not after.is_over:
            data = FRAGMENT.sub(b"", data)
        tokens = self._tokenize_text(data.decode("utf-8", "replace")) if data else []
        if b"".join(map(self._token_bytes, tokens)) != data:
            return []  # a tokenizer that adds a space of its own, or half a character: drawn token by token
        self._place = self._grammar.walk(self._place, data)
        return tokens

    def _tokenize_text(self, text: str) -> list[int]:
        """The tokens of a text, marks as the tokens that they are."""
        for mark, token in self._marks.items():
            before, found, after = text.partition(mark)
            if found:
                return [*self._tokenize_text(before), token, *self._tokenize_text(after)]
        return self._loaded.tokens(text) if text else []

    def _token_bytes(self, token: int) -> bytes:
        return self._marked.get(token) or self._loaded.piece(token)

    def _place_after(self, token: int) -> GrammarState | None:
        piece = self._token_bytes(token)
        return self._grammar.walk(self._place, piece) if self._grammar is not None and piece else None

    def _allowed_tokens(self, *, wants_end: bool) -> Any:
        """The likeliest tokens that the grammar allows, at least one; those that close something, if it is time to end."""
        logits = self._read_logits()
        count = LIKELIEST
        while True:
            likely = self._ids if count >= len(logits) else self._numpy.argpartition(-logits, count)[:count]
            found = [token for token in likely.tolist() if self._place_after(token) is not None]
            if found:
                closing = [token for token in found if self._loaded.piece(token)[:1] in CLOSING]
                found = closing if wants_end and closing else found
                return self._numpy.array(found, dtype=self._numpy.intc)
            if count >= len(logits):
                raise Unavailable("the model has no token for what a tool's arguments allow", hint="use another model")
            count *= 16

    def _read_logits(self) -> Any:
        if self.end:
            return self._numpy.frombuffer(self.end, self._numpy.single)
        pointer = self._api.llama_get_logits_ith(self._loaded.context, self.row)
        return self._numpy.ctypeslib.as_array(pointer, shape=(self._loaded.vocabulary_size,))

    def _choose_token(self, tokens: Any) -> int:
        table = self._table[: len(tokens)]
        table["id"], table["logit"] = tokens, self._read_logits()[tokens]
        data = ctypes.cast(table.ctypes.data, ctypes.POINTER(self._api.llama_token_data))
        choice = self._api.llama_token_data_array(data=data, size=len(tokens), selected=-1, sorted=False)
        self._api.llama_sampler_apply(self._chain, ctypes.byref(choice))
        return int(choice.data[choice.selected].id)
