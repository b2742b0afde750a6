"""Ollama's interface, as far as programs need it that talk with a model there: /api/chat, /api/tags and /api/version.

The same assistant, threads, tokens and rights as at `/v1`, in another form: an answer is lines of JSON unless it is wanted whole.
Home Assistant's Assist speaks it. Not done: generate, embeddings, loading and making of models, images, tools of the program.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from appliance import __version__
from appliance.clock import monotonic_s, now_ms
from appliance.errors import BadInput, OwlError
from appliance.http.message import HttpMessage, Response
from appliance.http.openai_routes import MAX_BODY_BYTES, CompletionAnswer, OpenAiRoutes, read_wanted
from appliance.http.program_calls import Told
from appliance.http.server import route

LINES = "application/x-ndjson"
LATEST = ":latest"  # what Ollama adds to a name without a tag


class OllamaRoutes:
    """The routes, over those of `/v1`."""

    def __init__(self, openai: OpenAiRoutes) -> None:
        self._openai = openai

    @route("GET", "/api/version", access="open")
    def tell_version(self, request: HttpMessage) -> Response:
        """Which version answers."""
        return Response.of_json({"version": __version__})

    @route("GET", "/api/tags", access="open")
    def list_models(self, request: HttpMessage) -> Response:
        """The assistant, and the local models that talk."""
        details = {"parent_model": "", "format": "gguf", "family": "owlbox", "families": ["owlbox"]}
        details |= {"parameter_size": "", "quantization_level": ""}
        names = [f"{name}{LATEST}" for name in self._openai.chat_models(request)]
        rest = {"modified_at": _time(0), "size": 0, "digest": "", "details": details}
        return Response.of_json({"models": [{"name": name, "model": name, **rest} for name in names]})

    @route("POST", "/api/chat", access="open", max_body=MAX_BODY_BYTES)
    def chat(self, request: HttpMessage) -> Response:
        """Send an answer, in lines unless it is wanted whole."""
        started_s, given = monotonic_s(), request.json()
        wanted = read_wanted(_as_completion(given), "")
        told, key = self._openai.begin(request, wanted)
        answer = CompletionAnswer(wanted)
        if wanted.is_streamed:
            first = next(told, None)  # what is wrong from the start is answered with its status
            return Response(200, self._lines(answer, told, first, key, started_s), LINES, (("X-Accel-Buffering", "no"),))
        for _ in answer.hear(told):
            pass
        self._openai.remember(key, wanted, answer)
        return Response.of_json(_message(answer, answer.text) | _end(answer, started_s))

    def _lines(self, answer: CompletionAnswer, told: Told, first: Any, key: str, started_s: float) -> Iterator[bytes]:
        """A line of JSON for each piece; what goes wrong on the way is the last one."""
        try:
            for text in answer.hear(told, first):
                yield _line(_message(answer, text) | {"done": False})
            self._openai.remember(key, answer.wanted, answer)
            yield _line(_message(answer, "") | _end(answer, started_s))
        except OwlError as error:
            yield _line({"error": str(error)})
        finally:
            told.close()


def _as_completion(given: dict[str, Any]) -> dict[str, Any]:
    """A request in the form that `/v1` has."""
    options, messages = given.get("options") or {}, given.get("messages")
    if not isinstance(options, dict):
        raise BadInput("options must be an object", hint="look at options")
    if isinstance(messages, list) and any(isinstance(one, dict) and one.get("images") for one in messages):
        raise BadInput("only texts are understood: no images", hint="look at messages")
    model = given.get("model")
    made = {"model": model.removesuffix(LATEST) if isinstance(model, str) else model, "messages": messages}
    made |= {"stream": given.get("stream", True), "temperature": options.get("temperature"), "stop": options.get("stop")}
    most = options.get("num_predict")
    endless = isinstance(most, int) and most < 0  # -1 and -2 are as much as there is room for
    return {**made, "tools": given.get("tools"), "max_tokens": None if endless else most}


def _message(answer: CompletionAnswer, text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"model": answer.wanted.model, "created_at": _time(now_ms()), "message": message}


def _end(answer: CompletionAnswer, started_s: float) -> dict[str, Any]:
    """What stands at the end of an answer; times are in nanoseconds."""
    took = round(1e9 * (monotonic_s() - started_s))
    counts = {"prompt_eval_count": answer.usage["prompt_tokens"], "eval_count": answer.usage["completion_tokens"]}
    times = {"total_duration": took, "load_duration": 0, "prompt_eval_duration": 0, "eval_duration": took}
    return {"done": True, "done_reason": "length" if answer.reason == "length" else "stop", **times, **counts}


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
