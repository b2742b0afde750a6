"""Models behind Google's generateContent format.

Schemas of tools are reduced to what it takes. Calls have no ids there: they get one here. What it wants to see again
beside a call (its signature) is kept in memory. Thoughts are asked for only where they are flagged.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from appliance.errors import ProviderError
from appliance.providers import tool_schemas
from appliance.providers.conversation import RequestTalk, TalkTurn, ToolNames, described
from appliance.providers.error_mapping import Heard, fault
from appliance.providers.http_provider import Hosted
from appliance.providers.remote_settings import ListedModel
from appliance.providers.response import AnswerDraft, at, items, number, parsed
from appliance.providers.sse import SseEvent
from appliance.records import Ask, Cancel

VERSIONED = re.compile(r"/v[0-9]+[a-z0-9]*(?:/|$)")
STOPS = 5
UNSIGNED = "skip_thought_signature_validator"  # for a call whose signature nobody has any more
REASONS: Mapping[str, Literal["stop", "length", "tool_calls"]] = {"STOP": "stop", "MAX_TOKENS": "length"}
REFUSALS = ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
BROKEN_CALL = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE")


class Gemini(Hosted):
    """A model of Google's own interface."""

    optional = {
        "temperature": "temperature",
        "stopSequences": "stop_?sequences",
        "toolConfig": "tool_?config",
        "thinkingConfig": "thinking(?:_?config)?",
    }

    # -- the request ---------------------------------------------------------------------------------------

    def _build_headers(self) -> dict[str, str]:
        return self.remote.signed("x-goog-api-key")

    def _answer_url(self) -> str:
        return self._address_of(f"/models/{quote(self.model.removeprefix('models/'), safe='')}:streamGenerateContent", "alt=sse")

    def _address_of(self, path: str, query: str = "") -> str:
        is_whole = VERSIONED.search(urlsplit(self.remote.base_url).path)
        return self.remote.url(path if is_whole else f"/v1beta{path}", query)

    def _build_body(self, ask: Ask, talk: RequestTalk, names: ToolNames) -> dict[str, Any]:
        body: dict[str, Any] = {"contents": [self._convert_turn(turn) for turn in talk.turns]}
        if talk.system:
            body["systemInstruction"] = {"parts": [{"text": talk.system}]}
        config: dict[str, Any] = {"maxOutputTokens": min(ask.max_tokens, self.max_tokens), "temperature": ask.temperature}
        if ask.stop:
            config["stopSequences"] = list(ask.stop[:STOPS])
        if self.remote.has_reasoning:
            config["thinkingConfig"] = {"includeThoughts": True}
        body["generationConfig"] = {name: value for name, value in config.items() if name not in self.refused}
        if tools := described(self._tools_beside(ask), names):
            body["tools"] = [{"functionDeclarations": [_declare_tool(n, t.description, t.schema) for n, t in tools]}]
            if ask.must_call and "toolConfig" not in self.refused:
                body["toolConfig"] = {"functionCallingConfig": {"mode": "ANY"}}
        return body

    def _convert_turn(self, turn: TalkTurn) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"functionResponse": {"name": r.name, "response": {"result": r.text}}} for r in turn.results]
        parts += [{"inlineData": {"mimeType": image.media_type, "data": image.data}} for image in turn.images]
        if turn.texts:
            parts.append({"text": turn.text})
        for i, call in enumerate(turn.calls):
            part: dict[str, Any] = {"functionCall": {"name": call.name, "args": call.arguments}}
            signature = self.recalled(call.id)
            if signature or (i == 0 and "gemini-3" in self.model):  # the first of a turn must have one there
                part["thoughtSignature"] = signature or UNSIGNED
            parts.append(part)
        return {"role": "model" if turn.role == "assistant" else "user", "parts": parts}

    # -- the answer ----------------------------------------------------------------------------------------

    def _read_event(self, draft: AnswerDraft, sent: SseEvent) -> None:
        self._read_whole(draft, parsed(sent.data, self.name, draft.hidden))

    def _read_whole(self, draft: AnswerDraft, body: dict[str, Any]) -> None:
        if body.get("error"):
            raise fault(self.remote, Heard(0, {}, body), draft.hidden)
        self._note_usage(draft, body)
        if at(body, "promptFeedback", "blockReason"):
            draft.is_refused = True
            draft.end("length")
        candidate = at(body, "candidates", 0)
        for part in items(at(candidate, "content", "parts")):
            self._read_part(draft, part)
        self._note_end(draft, at(candidate, "finishReason"))

    def _read_part(self, draft: AnswerDraft, part: dict[str, Any]) -> None:
        if part.get("thought") is True:
            draft.think(part.get("text"))
            return
        draft.say(part.get("text"))
        call = part.get("functionCall")
        if isinstance(call, dict):
            place = draft.kept["calls"] = draft.kept.get("calls", 0) + 1
            arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
            draft.call(place, id=call.get("id"), name=call.get("name"), text=arguments, mark=part.get("thoughtSignature"))

    def _note_end(self, draft: AnswerDraft, reason: Any) -> None:
        if not isinstance(reason, str) or reason == "FINISH_REASON_UNSPECIFIED":
            return
        if reason in BROKEN_CALL and not draft.has_output:
            raise ProviderError(
                f"{self.name} ({self.model}): the model wrote a call that cannot be read",
                hint="ask again",
                outcome="invalid_response",
            )
        draft.is_refused = reason in REFUSALS
        draft.end(REASONS.get(reason, "length" if draft.is_refused else "stop"))

    def _note_usage(self, draft: AnswerDraft, body: dict[str, Any]) -> None:
        if isinstance(model := body.get("modelVersion"), str):
            draft.model = model
        usage = body.get("usageMetadata")
        if not isinstance(usage, dict):
            return
        draft.count(prompt=usage.get("promptTokenCount"), cached=usage.get("cachedContentTokenCount"))
        said, thought = usage.get("candidatesTokenCount"), usage.get("thoughtsTokenCount")
        draft.count(reasoning=thought)
        if number(said) or number(thought):
            draft.count(output=number(said) + number(thought))

    # -- the models ----------------------------------------------------------------------------------------

    def listing(self, cancel: Cancel | None = None) -> tuple[ListedModel, ...]:
        """The models that can be asked for text."""
        found: list[ListedModel] = []
        query = "pageSize=1000"
        for _ in range(10):
            body = self._get_json(self._address_of("/models", query), cancel)
            found += [_convert_listed(one) for one in items(at(body, "models")) if _can_answer(one)]
            token = at(body, "nextPageToken")
            if not isinstance(token, str) or not token:
                break
            query = f"pageSize=1000&pageToken={quote(token, safe='')}"
        return tuple(found)


def _declare_tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "description": description}
    if tool_schemas.has_arguments(schema):  # an object without members is refused there
        found["parameters"] = tool_schemas.subset(schema)
    return found


def _can_answer(one: dict[str, Any]) -> bool:
    ways = one.get("supportedGenerationMethods")
    return not isinstance(ways, list) or "generateContent" in ways


def _convert_listed(one: dict[str, Any]) -> ListedModel:
    name = str(one.get("name") or "").removeprefix("models/")
    return ListedModel(name, number(one.get("inputTokenLimit")), number(one.get("outputTokenLimit")))
