"""Models behind the chat completions format: OpenAI's, and every server that speaks it, by configuration alone.

OpenRouter, Groq, DeepSeek, xAI, Mistral, Ollama, LM Studio, vLLM, llama-server; Azure (its api-version in the query of the
address, its key in a header of its own), Bedrock and Vertex by their compatible addresses. Reasoning is sent back and
taken only where it is flagged. Not promised: what a compatible server leaves out of the format.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from appliance.errors import ProviderError
from appliance.providers import tool_schemas
from appliance.providers.conversation import RequestTalk, TalkTurn, ToolNames, described, read
from appliance.providers.error_mapping import Heard, fault
from appliance.providers.http_provider import Hosted
from appliance.providers.remote_settings import ListedModel, Remote, is_near
from appliance.providers.response import AnswerDraft, at, items, number, parsed
from appliance.providers.sse import SseEvent
from appliance.records import Ask, Cancel, Image

DONE = "[DONE]"
STOPS = 4  # as many as the format takes; more are looked for here
NEW_LIMIT = ("openai.com", "azure.com", "azure.us")  # hosts whose models know only the new name of the limit
OLLAMA_WINDOW = 4096  # what Ollama reads when nobody told it otherwise; the rest it cuts off in silence
REASONS: Mapping[str, Literal["stop", "length", "tool_calls"]] = {
    "stop": "stop", "end_turn": "stop", "eos": "stop", "eos_token": "stop", "stop_sequence": "stop",
    "length": "length", "max_tokens": "length", "model_length": "length", "content_filter": "length",
    "tool_calls": "tool_calls", "function_call": "tool_calls", "tool_use": "tool_calls",
}  # fmt: skip
WINDOWS = ("context_length", "max_model_len", "context_window", "max_context_length", "context_size", "max_input_tokens")


class OpenAI(Hosted):
    """A model of a server that speaks the chat completions format."""

    optional = {
        name: name for name in ("stream_options", "temperature", "max_tokens", "max_completion_tokens", "stop", "tool_choice")
    }

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote)
        host = urlsplit(remote.base_url).hostname or ""
        self._is_new = host.endswith(NEW_LIMIT)
        self._is_marked = (
            remote.is_caching and host.endswith("openrouter.ai") and remote.model.startswith(("anthropic/", "google/gemini"))
        )
        self._id_size = 9 if host.endswith("mistral.ai") else 0

    # -- the request ---------------------------------------------------------------------------------------

    def _build_headers(self) -> dict[str, str]:
        return self.remote.signed("Authorization", "Bearer {key}")

    def _answer_url(self) -> str:
        return self.remote.url("/chat/completions")

    def _build_talk(self, ask: Ask) -> RequestTalk:
        return read(ask, has_images=self.remote.has_images, id_size=self._id_size, must_alternate=False)

    def _build_body(self, ask: Ask, talk: RequestTalk, names: ToolNames) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": self._build_messages(talk), "stream": True}
        limit = min(ask.max_tokens, self.max_tokens)
        first, second = ("max_completion_tokens", "max_tokens") if self._is_new else ("max_tokens", "max_completion_tokens")
        more: dict[str, Any] = {"stream_options": {"include_usage": True}, "temperature": ask.temperature}
        more[second if first in self.refused else first] = limit
        if ask.stop:
            more["stop"] = list(ask.stop[:STOPS])
        if tools := described(self._tools_beside(ask), names):
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": n, "description": t.description, "parameters": tool_schemas.flat(t.schema)},
                }
                for n, t in tools
            ]
            if ask.must_call:
                more["tool_choice"] = "required"
        return body | {name: value for name, value in more.items() if name not in self.refused}

    def _build_messages(self, talk: RequestTalk) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if talk.system:
            found.append({"role": "system", "content": self._mark_system(talk)})
        for turn in talk.turns:
            if turn.role == "assistant":
                found.append(self._convert_turn(turn))
                continue
            found += [{"role": "tool", "tool_call_id": r.id, "content": r.text} for r in turn.results]
            if turn.images:
                found.append({"role": "user", "content": [*_text_parts(turn), *map(_convert_image, turn.images)]})
            elif turn.texts:
                found.append({"role": "user", "content": turn.text})
        return found

    def _convert_turn(self, turn: TalkTurn) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "assistant", "content": turn.text}
        if self.remote.has_reasoning:
            said["reasoning_content"] = turn.reasoning  # also an empty one: some servers miss it
        if turn.calls:
            said["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": json.dumps(c.arguments, ensure_ascii=False)},
                }
                for c in turn.calls
            ]
        return said

    def _mark_system(self, talk: RequestTalk) -> Any:
        """The system text; where a router hands marks of caches on, its stable part is marked."""
        if not self._is_marked or not talk.stable:
            return talk.system
        parts = [{"type": "text", "text": talk.stable, "cache_control": {"type": "ephemeral"}}]
        rest = talk.system.removeprefix(talk.stable)
        return [*parts, {"type": "text", "text": rest}] if rest else parts

    # -- the answer ----------------------------------------------------------------------------------------

    def _read_event(self, draft: AnswerDraft, sent: SseEvent) -> None:
        if sent.data.strip() == DONE:
            draft.is_over = True
            if draft.reason is None and draft.has_output:
                draft.end("stop")
            return
        chunk = parsed(sent.data, self.name, draft.hidden)
        self._raise_complaint(draft, chunk)
        self._note_usage(draft, chunk)
        choice = at(chunk, "choices", 0)
        if choice is not None:
            self._read_delta(draft, at(choice, "delta"))
            self._note_end(draft, at(choice, "finish_reason"))

    def _read_whole(self, draft: AnswerDraft, body: dict[str, Any]) -> None:
        self._raise_complaint(draft, body)
        choice = at(body, "choices", 0)
        if not isinstance(choice, dict):
            raise ProviderError(f"{self.name} ({self.model}) sent an answer without a choice", outcome="invalid_response")
        self._note_usage(draft, body)
        self._read_delta(draft, at(choice, "message"))
        self._note_end(draft, at(choice, "finish_reason") or "stop")

    def _raise_complaint(self, draft: AnswerDraft, chunk: dict[str, Any]) -> None:
        """Raise what an event complains of."""
        if chunk.get("error"):
            raise fault(self.remote, Heard(0, {}, chunk), draft.hidden)

    def _read_delta(self, draft: AnswerDraft, delta: Any) -> None:
        draft.think(at(delta, "reasoning_content") or at(delta, "reasoning"))
        content = at(delta, "content")
        draft.say(content)
        for part in items(content):  # some servers send their text in parts
            draft.say(at(part, "text"))
            draft.think(at(part, "thinking"))
            for thought in items(at(part, "thinking")):
                draft.think(at(thought, "text"))
        draft.say(at(delta, "refusal"))
        for i, call in enumerate(items(at(delta, "tool_calls"))):
            text, id = at(call, "function", "arguments"), at(call, "id")
            if isinstance(text, dict):
                text = json.dumps(text, ensure_ascii=False)
            draft.call(self._place_call(draft, call.get("index", i), id), id=id, name=at(call, "function", "name"), text=text)

    @staticmethod
    def _place_call(draft: AnswerDraft, index: Any, id: Any) -> Any:
        """Which call a part belongs to: some servers number all of them 0 and tell them apart by their ids."""
        index = index if isinstance(index, int) else 0
        place, known = draft.kept.get(index, (index, id))
        if id and known and id != known:
            place = (index, str(id))
        draft.kept[index] = (place, id or known)
        return place

    def _note_end(self, draft: AnswerDraft, reason: Any) -> None:
        if isinstance(reason, str) and reason:
            draft.is_refused = reason == "content_filter"
            draft.end(REASONS.get(reason, "stop"))

    def _note_usage(self, draft: AnswerDraft, chunk: dict[str, Any]) -> None:
        if isinstance(model := chunk.get("model"), str):
            draft.model = model
        usage = chunk.get("usage") or at(chunk, "x_groq", "usage")
        if not isinstance(usage, dict):
            return
        draft.count(prompt=usage.get("prompt_tokens"), output=usage.get("completion_tokens"))
        draft.count(cached=usage.get("prompt_cache_hit_tokens"), written=at(usage, "prompt_tokens_details", "cache_write_tokens"))
        draft.count(cached=at(usage, "prompt_tokens_details", "cached_tokens"))
        draft.count(reasoning=at(usage, "completion_tokens_details", "reasoning_tokens"))

    # -- the models ----------------------------------------------------------------------------------------

    def listing(self, cancel: Cancel | None = None) -> tuple[ListedModel, ...]:
        """The models that the server offers."""
        body = self._get_json(self.remote.url("/models"), cancel)
        found = body if isinstance(body, list) else at(body, "data") or at(body, "models")
        return tuple(_convert_listed(one) for one in items(found))

    def discover(self, cancel: Cancel | None = None) -> int:
        """Ask how much the model reads; a server nearby is also asked in its own words."""
        super().discover(cancel)
        if not self._window and is_near(urlsplit(self.remote.base_url).hostname or ""):
            self._window = self._ask_window(cancel)
        return self.window

    def _ask_window(self, cancel: Cancel | None) -> int:
        """The window that llama-server, LM Studio or Ollama say a model has."""
        props = self._get_optional(self._root_url("/props"), cancel)
        if found := number(at(props, "default_generation_settings", "n_ctx")):
            return found
        for one in items(at(self._get_optional(self._root_url("/api/v0/models"), cancel), "data")):
            window = number(one.get("loaded_context_length")) or number(one.get("max_context_length"))
            if one.get("id") == self.model and window:
                return window
        running = self._get_optional(self._root_url("/api/ps"), cancel)
        if not isinstance(running, dict) or "models" not in running:
            return 0
        names = (self.model, f"{self.model}:latest")
        mine = next((one for one in items(running["models"]) if one.get("name") in names), {})
        return number(mine.get("context_length")) or OLLAMA_WINDOW

    def _root_url(self, path: str) -> str:
        """An address beside the format's own."""
        parts = urlsplit(self.remote.base_url)
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _text_parts(turn: TalkTurn) -> list[dict[str, Any]]:
    return [{"type": "text", "text": turn.text}] if turn.texts else []


def _convert_image(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{image.data}"}}


def _convert_listed(one: dict[str, Any]) -> ListedModel:
    window = next((n for name in WINDOWS if (n := number(one.get(name)))), 0)
    window = window or number(at(one, "meta", "n_ctx")) or number(at(one, "top_provider", "context_length"))
    most = number(one.get("max_completion_tokens")) or number(at(one, "top_provider", "max_completion_tokens"))
    return ListedModel(str(one.get("id") or one.get("name") or ""), window, most)
