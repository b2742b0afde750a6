"""JSONPath of RFC 9535 over JSON texts: what a path selects, within a `Watch`.

Imports the whole library, so import this module where it is needed. The library is used strictly: its
extensions match with the engine of the standard library, which nothing stops. Its own parts are changed
in three ways: every node and every test of a filter looks at the watch, nodes keep neither path nor
children (with long keys they would be gigabytes), and `match()` and `search()` have a timeout.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import jsonpath
import regex
from jsonpath.filter import FunctionExtension, RelativeFilterQuery, RootFilterQuery
from jsonpath.function_extensions._pattern import map_re
from jsonpath.parse import Parser
from jsonpath.path import JSONPath

from appliance.errors import BadInput, TooLarge
from appliance.text.pattern_limits import DEPTH_LIMIT, PatternWatch, bounded, short

TEXT_LIMIT = 1_000_000  # characters


class JsonPathSelector:
    """A JSONPath compiled once; BadInput when it is not valid."""

    name = "JSONPath"

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._path = _Environment(strict=True).compile(text)
        except (jsonpath.JSONPathError, ValueError, OverflowError) as error:
            raise BadInput(f"the pattern {short(text)} is not valid JSONPath: {_first_line(error)}", hint="see RFC 9535") from None

    def values(self, subject: str, watch: PatternWatch) -> Iterator[str]:
        """The selected values, strings as they are and all else as JSON; none when the subject is not JSON."""
        data = _read_json(subject)
        if data is None:
            return
        try:
            for node in self._path.finditer(data, filter_context={"watch": watch}):
                yield node.obj if isinstance(node.obj, str) else json.dumps(node.obj, ensure_ascii=False)
        except RecursionError:
            raise TooLarge("the JSON is nested too deeply for this path", hint=f"{DEPTH_LIMIT} levels are allowed") from None
        except jsonpath.JSONPathError as error:
            raise BadInput(f"the pattern {short(self._text)} cannot be used: {_first_line(error)}") from None


def _read_json(subject: str) -> dict[str, Any] | list[Any] | None:
    """The object or list of a JSON text, for paths select inside of those; None when it is neither."""
    if subject.lstrip()[:1] not in ("{", "["):
        return None
    try:
        data: dict[str, Any] | list[Any] = json.loads(bounded(subject, TEXT_LIMIT, "the JSON"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return data


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


class _JsonNode(jsonpath.JSONPathMatch):
    def new_child(self, obj: object, key: int | str) -> "_JsonNode":
        self._filter_context["watch"].check()
        return _build_root(obj, self.root, self._filter_context)

    def add_child(self, *children: jsonpath.JSONPathMatch) -> None:
        pass


def _build_root(obj: object, root: Any, context: Any) -> _JsonNode:
    return _JsonNode(filter_context=context, obj=obj, parent=None, path="", parts=(), root=root)


class _Path(JSONPath):
    def finditer(self, data: Any, *, filter_context: Any = None) -> Iterable[jsonpath.JSONPathMatch]:
        filter_context["watch"].check()
        nodes: Iterable[jsonpath.JSONPathMatch] = [_build_root(data, data, filter_context)]
        for segment in self.segments:
            nodes = segment.resolve(nodes)
        return nodes


class _Relative(RelativeFilterQuery):
    def evaluate(self, context: Any) -> object:
        context.extra_context["watch"].check()
        return super().evaluate(context)


class _Call(FunctionExtension):
    def evaluate(self, context: Any) -> object:
        if self.name not in ("match", "search"):
            return super().evaluate(context)
        watch: PatternWatch = context.extra_context["watch"]
        function = context.env.function_extensions[self.name]
        value, expression = self._unpack_node_lists(function, [arg.evaluate(context) for arg in self.args])
        if not isinstance(value, str) or not isinstance(expression, str):
            return False
        try:
            pattern = regex.compile(map_re(expression))
            find = pattern.fullmatch if self.name == "match" else pattern.search
            return find(value, timeout=watch.left_s()) is not None
        except (regex.error, OverflowError, ValueError):
            return False  # RFC 9535 2.4.6: what is no regular expression matches nothing
        except TimeoutError:
            raise watch.over() from None


class _JsonPathParser(Parser):
    def parse_relative_query(self, stream: Any) -> Any:
        return _Relative(self._watch_query(super().parse_relative_query(stream)))

    def parse_absolute_query(self, stream: Any) -> Any:
        return RootFilterQuery(self._watch_query(super().parse_absolute_query(stream)))

    def parse_function_extension(self, stream: Any) -> Any:
        call = super().parse_function_extension(stream)
        return _Call(call.name, call.args) if isinstance(call, FunctionExtension) else call

    def _watch_query(self, query: Any) -> _Path:
        return _Path(env=self.env, segments=query.path.segments)


class _Environment(jsonpath.JSONPathEnvironment):
    parser_class = _JsonPathParser
    max_recursion_depth = DEPTH_LIMIT

    def compile(self, path: str) -> _Path:
        parsed = super().compile(path)
        assert isinstance(parsed, JSONPath)  # strict: no unions
        return _Path(env=self, segments=parsed.segments)
