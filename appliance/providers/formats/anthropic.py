"""Models behind the messages format: Anthropic's, and servers that speak it, such as llama-server.

Tools, the part of the system text that other conversations share, and the end of the conversation are marked to be
cached. Thoughts are asked for only where they are flagged; those before a call are kept in memory, because the
format wants them back unchanged with its result. After a restart they are gone, and such a turn goes on without thoughts.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from appliance.errors import ProviderError
from appliance.providers import tool_schemas
from appliance.providers.conversation import RequestTalk, TalkTurn, ToolNames, described
from appliance.providers.error_mapping import Heard, fault
from appliance.providers.http_provider import Hosted
from appliance.providers.remote_settings import ListedModel
from appliance.providers.response import AnswerDraft, at, items, number, parsed
from appliance.providers.sse import SseEvent
from appliance.records import Ask, Cancel, Image

VERSION = "2023-06-01"
CACHED = {"cache_control": {"type": "ephemeral"}}
LEAST_THOUGHT, MOST_THOUGHT = 1024, 8192  # tokens; fewer are refused
REASONS: Mapping[str, Literal["stop", "length", "tool_calls"]] = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop",
    "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "length",
    "tool_use": "tool_calls",
}  # fmt: skip


class Anthropic(Hosted):
    """A model of a server that speaks the messages format."""

    optional = {
        **{name: name for name in ("temperature", "stop_sequences", "tool_choice", "cache_control")},
        "thinking.enabled": "adaptive",
        "thinking": "thinking",
    }

    # -- the request ---------------------------------------------------------------------------------------

    def _build_headers(self) -> dict[str, str]:
        return {"anthropic-version": VERSION, **self.remote.signed("x-api-key")}

    def _answer_url(self) -> str:
        return self._address_of("/messages")

    def _address_of(self, path: str, query: str = "") -> str:
        is_whole = urlsplit(self.remote.base_url).path.rstrip("/").endswith("/v1")
        return self.remote.url(path if is_whole else f"/v1{path}", query)

    def _build_body(self, ask: Ask, talk: RequestTalk, names: ToolNames) -> dict[str, Any]:
        limit = min(ask.max_tokens, self.max_tokens)
        body: dict[str, Any] = {"model": self.model, "messages": [], "stream": True, "max_tokens": limit}
        more: dict[str, Any] = {"temperature": ask.temperature}
        if ask.stop:
            more["stop_sequences"] = [stop for stop in ask.stop if stop.strip()]
        if tools := described(self._tools_beside(ask), names):
            body["tools"] = [
                {"name": n, "description": t.description, "input_schema": tool_schemas.flat(t.schema)} for n, t in tools
            ]
            if ask.must_call:
                more["tool_choice"] = {"type": "any"}
        is_thinking = self._request_thinking(ask, talk, body, more)
        body["messages"] = [self._convert_turn(turn, is_thinking) for turn in talk.turns]
        if talk.system:
            body["system"] = [{"type": "text", "text": talk.system}]
        if self.remote.is_caching and "cache_control" not in self.refused:
            _mark_cacheable(body, talk)
        return body | {name: value for name, value in more.items() if name not in self.refused}

    def _request_thinking(self, ask: Ask, talk: RequestTalk, body: dict[str, Any], more: dict[str, Any]) -> bool:
        """Ask for thoughts where they are flagged and possible; True when they are."""
        if not self.remote.has_reasoning or ask.must_call or "thinking" in self.refused or ask.purpose != "turn":
            return False
        last = next((turn for turn in reversed(talk.turns) if turn.role == "assistant"), None)
        is_going_on = bool(talk.turns[-1].results) and last is not None
        if is_going_on and last is not None and not self._thoughts_of(last):
            return False  # nobody knows what was thought before these calls
        more.pop("temperature")
        if "thinking.enabled" in self.refused:
            more["thinking"] = {"type": "adaptive"}
            return True
        room, half = self.max_tokens - body["max_tokens"], body["max_tokens"] // 2
        budget = min(MOST_THOUGHT, room if room >= LEAST_THOUGHT else half)
        if budget < LEAST_THOUGHT:
            more["temperature"] = ask.temperature
            return False
        if room >= LEAST_THOUGHT:
            body["max_tokens"] += budget
        more["thinking"] = {"type": "enabled", "budget_tokens": budget}
        return True

    def _thoughts_of(self, turn: TalkTurn) -> list[dict[str, Any]]:
        """The thinking blocks before the calls of a turn, unchanged."""
        kept = self.recalled(turn.calls[0].id) if turn.calls else None
        return items(json.loads(kept)) if isinstance(kept, str) else []

    def _convert_turn(self, turn: TalkTurn, is_thinking: bool) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = self._thoughts_of(turn) if is_thinking else []
        blocks += [{"type": "tool_result", "tool_use_id": r.id, "content": r.text or "(nothing)"} for r in turn.results]
        blocks += [_convert_image(image) for image in turn.images]
        if turn.texts:
            blocks.append({"type": "text", "text": turn.text.rstrip() if turn.role == "assistant" else turn.text})
        blocks += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in turn.calls]
        return {"role": turn.role, "content": blocks}

    # -- the answer ----------------------------------------------------------------------------------------

    def _read_event(self, draft: AnswerDraft, sent: SseEvent) -> None:
        event = parsed(sent.data, self.name, draft.hidden)
        kind, place = event.get("type"), event.get("index")
        if kind == "error" or event.get("error"):
            raise fault(self.remote, Heard(0, {}, event), draft.hidden)
        if kind == "message_start":
            self._note_usage(draft, at(event, "message"))
        elif kind == "content_block_start":
            self._begin_block(draft, place, at(event, "content_block"))
        elif kind == "content_block_delta":
            self._extend_block(draft, place, at(event, "delta"))
        elif kind == "message_delta":
            self._note_usage(draft, event)
            self._note_end(draft, at(event, "delta", "stop_reason"))
        elif kind == "message_stop":
            draft.is_over = True
            if draft.reason is None and draft.has_output:
                draft.end("stop")

    def _read_whole(self, draft: AnswerDraft, body: dict[str, Any]) -> None:
        if body.get("error"):
            raise fault(self.remote, Heard(0, {}, body), draft.hidden)
        if not isinstance(body.get("content"), list):
            raise ProviderError(f"{self.name} ({self.model}) sent an answer without content", outcome="invalid_response")
        self._note_usage(draft, body)
        for place, block in enumerate(items(body["content"])):
            self._begin_block(draft, place, block)
        self._note_end(draft, body.get("stop_reason") or "end_turn")

    def _begin_block(self, draft: AnswerDraft, place: Any, block: Any) -> None:
        kind = at(block, "type")
        if kind == "text":
            draft.say(at(block, "text"))
        elif kind == "thinking":
            draft.think(at(block, "thinking"))
            draft.kept[place] = {
                "type": "thinking",
                "thinking": at(block, "thinking") or "",
                "signature": at(block, "signature") or "",
            }
        elif kind == "redacted_thinking":
            draft.kept[place] = {"type": "redacted_thinking", "data": at(block, "data") or ""}
        elif kind == "tool_use":
            given = at(block, "input")  # here only when the answer came in one piece
            text = json.dumps(given, ensure_ascii=False) if isinstance(given, dict) and given else None
            draft.call(place, id=at(block, "id"), name=at(block, "name"), text=text)

    def _extend_block(self, draft: AnswerDraft, place: Any, delta: Any) -> None:
        draft.say(at(delta, "text"))
        thought, signature = at(delta, "thinking"), at(delta, "signature")
        block = draft.kept.get(place)
        if isinstance(thought, str):
            draft.think(thought)
            if block is not None:
                block["thinking"] += thought
        if isinstance(signature, str) and block is not None:
            block["signature"] += signature
        part = at(delta, "partial_json")
        if isinstance(part, str):
            draft.call(place, text=part)

    def _note_end(self, draft: AnswerDraft, reason: Any) -> None:
        if not isinstance(reason, str):
            return
        draft.is_refused = reason == "refusal"
        draft.end(REASONS.get(reason, "stop"))
        blocks = [block for block in draft.kept.values() if block.get("signature") or block["type"] == "redacted_thinking"]
        if blocks and self.remote.has_reasoning:
            draft.mark(json.dumps(blocks, ensure_ascii=False))

    def _note_usage(self, draft: AnswerDraft, message: Any) -> None:
        if isinstance(model := at(message, "model"), str):
            draft.model = model
        usage = at(message, "usage")
        read, written = at(usage, "cache_read_input_tokens"), at(usage, "cache_creation_input_tokens")
        draft.count(cached=read, written=written, output=at(usage, "output_tokens"))
        fresh = at(usage, "input_tokens")
        if isinstance(fresh, int):  # theirs is what was neither read from a cache nor written to one
            draft.count(prompt=fresh + draft.usage.cached + draft.usage.written)

    # -- the models ----------------------------------------------------------------------------------------

    def listing(self, cancel: Cancel | None = None) -> tuple[ListedModel, ...]:
        """The models that the server offers."""
        body = self._get_json(self._address_of("/models", "limit=1000"), cancel)
        return tuple(_convert_listed(one) for one in items(at(body, "data")))


def _mark_cacheable(body: dict[str, Any], talk: RequestTalk) -> None:
    """Mark what is worth caching: the tools, the stable part of the system text, and the conversation so far."""
    if body.get("tools"):
        body["tools"][-1] |= CACHED
    if talk.stable:
        rest = talk.system.removeprefix(talk.stable)
        body["system"] = [{"type": "text", "text": talk.stable, **CACHED}, *([{"type": "text", "text": rest}] if rest else [])]
    last = body["messages"][-1]["content"][-1]
    last |= CACHED


def _convert_image(image: Image) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _convert_listed(one: dict[str, Any]) -> ListedModel:
    window = number(one.get("max_input_tokens")) or number(one.get("context_window")) or number(at(one, "meta", "n_ctx"))
    return ListedModel(str(one.get("id") or ""), window, number(one.get("max_tokens")) or number(one.get("max_output_tokens")))
