"""What is sent in each format, by its bytes, and what only one of them has."""

import json
from typing import Any

import pytest
import wire
from record_tools import replace
from test_providers import ADD, CLASSES, REMOTE, STORY, answered, ask, asking, remote
from wire import Call, Raw, Status, Turn

from appliance.clock import CancelToken
from appliance.errors import ProviderError
from appliance.providers.chat_template import spoken
from appliance.providers.formats.openai import OpenAI
from appliance.records import Ask, Image, Message, Part, Piece, ToolCall, ToolSpec
from appliance.text import answer_parser

OWL = Image("owl.png", "image/png", "aGVsbG8=")
DEEP = ToolSpec("mcp.files/read", "Reads.", {"type": "object", "properties": {}})
TALK = (
    Message("user", "Add 2 and 3."),
    Message("assistant", "Gladly.", tool_calls=(ToolCall("call_1", "add", {"a": 2, "b": 3}),), reasoning="Hm."),
    Message("tool", "5", tool_call_id="call_1"),
    Message("user", "Thanks."),
    Message("user", "And 5 and 1?"),
)
SYSTEM = (
    Part("SOUL", "You are an owl."),
    Part("instructions", "Be kind."),
    Part("persona", "Be brief."),
    Part("style", "No lists."),
)


@pytest.fixture(params=REMOTE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sent(kind: str, asked: Ask, turn: wire.Answer = STORY, path: str = "", **more: Any) -> wire.Seen:
    with wire.playing(turn) as server:
        server.url += path
        answered(server, kind, asked, **more)
        return server.seen[0]


def test_a_conversation_in_the_openai_format() -> None:
    seen = sent("openai", Ask(SYSTEM, TALK, (ADD,), "native", max_tokens=99, stop=("END",)), path="/v1")
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == "Bearer sk-canary-12345678"
    assert seen.headers["user-agent"].startswith("owlbox/")
    arguments = json.dumps({"a": 2, "b": 3})
    assert seen.body == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.1,
        "max_tokens": 99,
        "stop": ["END"],
        "tools": [{"type": "function", "function": {"name": "add", "description": ADD.description, "parameters": ADD.schema}}],
        "messages": [
            {"role": "system", "content": "You are an owl.\n\nBe kind.\n\nBe brief.\n\nNo lists."},
            {"role": "user", "content": "Add 2 and 3."},
            {
                "role": "assistant",
                "content": "Gladly.",
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "5"},
            {"role": "user", "content": "Thanks.\n\nAnd 5 and 1?"},
        ],
    }


@pytest.mark.covers("A-121")
def test_a_conversation_in_the_messages_format_with_its_marks() -> None:
    seen = sent("anthropic", Ask(SYSTEM, TALK, (ADD,), "native", max_tokens=99, stop=("END",)))
    mark = {"cache_control": {"type": "ephemeral"}}
    assert seen.path == "/v1/messages"
    assert (seen.headers["x-api-key"], seen.headers["anthropic-version"]) == ("sk-canary-12345678", "2023-06-01")
    assert seen.body == {
        "model": "m-1",
        "stream": True,
        "max_tokens": 99,
        "temperature": 0.1,
        "stop_sequences": ["END"],
        "tools": [{"name": "add", "description": ADD.description, "input_schema": ADD.schema, **mark}],
        "system": [
            {"type": "text", "text": "You are an owl.\n\nBe kind.", **mark},
            {"type": "text", "text": "\n\nBe brief.\n\nNo lists."},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Add 2 and 3."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Gladly."},
                    {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 2, "b": 3}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "5"},
                    {"type": "text", "text": "Thanks.\n\nAnd 5 and 1?", **mark},
                ],
            },
        ],
    }


def test_a_conversation_in_the_gemini_format() -> None:
    seen = sent("gemini", Ask(SYSTEM, TALK, (ADD, DEEP), "native", max_tokens=99, stop=("END",), must_call=True))
    assert seen.path == "/v1beta/models/m-1:streamGenerateContent?alt=sse"
    assert seen.headers["x-goog-api-key"] == "sk-canary-12345678"
    (tools,) = seen.body.pop("tools")
    first, second = tools["functionDeclarations"]
    assert first["parameters"]["properties"] == {"a": {"type": "INTEGER"}, "b": {"type": "INTEGER"}}
    assert "parameters" not in second and second["name"].startswith("mcp_files_read_")
    assert seen.body == {
        "systemInstruction": {"parts": [{"text": "You are an owl.\n\nBe kind.\n\nBe brief.\n\nNo lists."}]},
        "generationConfig": {"maxOutputTokens": 99, "temperature": 0.1, "stopSequences": ["END"]},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "contents": [
            {"role": "user", "parts": [{"text": "Add 2 and 3."}]},
            {"role": "model", "parts": [{"text": "Gladly."}, {"functionCall": {"name": "add", "args": {"a": 2, "b": 3}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "add", "response": {"result": "5"}}}, {"text": "Thanks.\n\nAnd 5 and 1?"}],
            },
        ],
    }


# -- for every format ------------------------------------------------------------------------------------


@pytest.mark.covers("A-115")
def test_the_longest_answer_is_what_the_provider_allows(kind: str) -> None:
    seen = sent(kind, ask(max_tokens=50_000), max_tokens=4096)
    assert "4096" in json.dumps(seen.body) and "50000" not in json.dumps(seen.body)


@pytest.mark.covers("A-108")
def test_a_models_name_may_hold_slashes(kind: str) -> None:
    seen = sent(kind, ask(), model="meta-llama/x:free")
    assert "meta-llama/x:free" in json.dumps(seen.body) or "/models/meta-llama%2Fx%3Afree:stream" in seen.path


@pytest.mark.covers("A-114")
@pytest.mark.parametrize("has_images", [False, True])
def test_a_picture_is_sent_or_told_of(kind: str, has_images: bool) -> None:
    body = json.dumps(
        sent(kind, Ask((), (Message("user", "What is it?", images=(OWL,)),), dialect="native"), has_images=has_images).body
    )
    assert ("aGVsbG8=" in body) is has_images
    assert ("[picture owl.png, image/png, 1 kB: this model cannot see it]" in body) is not has_images


@pytest.mark.covers("A-114")
def test_the_local_model_is_told_of_a_picture_too() -> None:
    assert spoken(Message("user", "What is it?", images=(OWL,))) == f"What is it?\n{OWL.reference}"


@pytest.mark.covers("R-199")
def test_the_temperature_is_a_tenth_and_no_thoughts_are_asked_for(kind: str) -> None:
    body = json.dumps(sent(kind, ask()).body)
    assert '"temperature": 0.1' in body and "think" not in body.lower() and "reasoning" not in body


@pytest.mark.covers("S-023")
def test_every_request_is_a_stream(kind: str) -> None:
    for purpose in ("turn", "title"):
        seen = sent(kind, ask(purpose=purpose))
        assert seen.body.get("stream") is True or seen.path.endswith("streamGenerateContent?alt=sse")


def test_a_key_may_have_its_place_in_a_header_of_the_configuration(kind: str) -> None:
    with wire.playing(STORY) as server:
        server.url += "/openai/deployments/owl?api-version=2024-10-21"
        answered(server, kind, ask(), headers={"api-key": "{key}", "X-Title": "owlbox"})
        (seen,) = server.seen
    assert seen.headers["api-key"] == "sk-canary-12345678" and seen.headers["x-title"] == "owlbox"
    assert not {"authorization", "x-api-key", "x-goog-api-key"} & set(seen.headers)
    assert seen.path.startswith("/openai/deployments/owl/") and "api-version=2024-10-21" in seen.path.partition("?")[2]


def test_without_a_key_none_is_sent(kind: str) -> None:
    seen = sent(kind, ask(), key=lambda: "")
    assert not {"authorization", "x-api-key", "x-goog-api-key"} & set(seen.headers)


def test_names_that_providers_refuse_are_changed_and_changed_back(kind: str) -> None:
    name = sent(kind, ask(tools=(DEEP,)))
    theirs = next(word for word in json.dumps(name.body).replace('"', " ").split() if word.startswith("mcp_files_read_"))
    with wire.playing(Turn(calls=(Call(theirs, ("{}",)),), finish="calls")) as server:
        _, finish = answered(server, kind, ask(tools=(DEEP,)))
    assert [call.name for call in finish.tool_calls] == ["mcp.files/read"]


def test_several_calls_of_one_answer_come_apart(kind: str) -> None:
    calls = (Call("add", ('{"a": 1}',), "call_x"), Call("add", ('{"a"', ": 2}"), "call_y"), Call("add", (), "call_z"))
    with wire.playing(Turn(chunks=("Both.",), calls=calls, finish="calls")) as server:
        pieces, finish = answered(server, kind, ask(tools=(ADD,)))
    assert [call.arguments for call in finish.tool_calls] == [{"a": 1}, {"a": 2}, {}]
    assert len({call.id for call in finish.tool_calls}) == 3
    assert "".join(piece.text for piece in pieces) == "Both."


@pytest.mark.parametrize("text", ['{"a": 2, "b": 3,}', "{'a': 2, b: 3}", '{"a": 2, "b": \n3'])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_arguments_that_are_no_json_are_mended_or_reported_and_never_lost(kind: str, text: str) -> None:
    with wire.playing(Turn(chunks=("Well.",), calls=(Call("add", (text,)),), finish="calls")) as server:
        pieces, finish = answered(server, kind, ask(tools=(ADD,)))
    assert finish.tool_calls == ()
    found = answer_parser.read("".join(piece.text for piece in pieces), finish.tool_calls, (ADD,))
    assert found.text == "Well."
    if text.endswith("}"):
        assert [call.arguments for call in found.calls] == [{"a": 2, "b": 3}]
    else:
        assert found.is_malformed


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_call_that_was_cut_off_is_dropped_and_the_answer_was_too_long(kind: str) -> None:
    calls = (Call("add", ('{"a": 1}',), "call_x"), Call("add", ('{"a": 2, "b',), "call_y"))
    with wire.playing(Turn(calls=calls, finish="length"), Turn(calls=calls[1:], finish="length")) as server:
        _, finish = answered(server, kind, ask(tools=(ADD,)))
        assert [call.id for call in finish.tool_calls] == ["call_x"]
        pieces, finish = answered(server, kind, ask(tools=(ADD,)))
    assert (finish.reason, finish.tool_calls, pieces) == ("length", (), [Piece("", tool="add")])


def test_what_a_provider_declines_is_told(kind: str) -> None:
    with wire.playing(Turn(finish="refused")) as server:
        made, route = asking(server, kind)
        with pytest.raises(ProviderError, match="declined to answer"):
            list(made.generate(route, ask(), CancelToken()))


# -- openai -----------------------------------------------------------------------------------------------


@pytest.mark.covers("S-024", "S-013")
@pytest.mark.parametrize("has_reasoning", [False, True])
def test_reasoning_is_sent_back_where_flagged_also_an_empty_one(has_reasoning: bool) -> None:
    said = (
        Message("user", "?"),
        Message("assistant", "a", reasoning="Hm."),
        Message("user", "?"),
        Message("assistant", "b"),
        Message("user", "?"),
    )
    seen = sent("openai", Ask((), said, dialect="native"), has_reasoning=has_reasoning)
    given = [message.get("reasoning_content") for message in seen.body["messages"] if message["role"] == "assistant"]
    assert given == (["Hm.", ""] if has_reasoning else [None, None])


@pytest.mark.covers("A-109")
@pytest.mark.parametrize(
    ("delta", "text", "thought"),
    [
        ({"content": "x", "reasoning": "OpenRouter"}, "x", "OpenRouter"),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Mistral"}]}, {"type": "text", "text": "x"}]},
            "x",
            "Mistral",
        ),
        ({"content": "x", "reasoning_content": None, "refusal": None, "tool_calls": None}, "x", ""),
        ({"refusal": "No."}, "No.", ""),
    ],
)
def test_the_manners_of_compatible_servers_are_understood(delta: Any, text: str, thought: str) -> None:
    events = [{"choices": [{"delta": delta}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": []}]
    with wire.playing(Raw(tuple(f"data: {json.dumps(event)}\n\n".encode() for event in events))) as server:
        pieces, finish = answered(server, "openai", ask(), has_reasoning=True)
    assert "".join(piece.text for piece in pieces if not piece.is_reasoning) == text
    assert finish.reasoning == thought


@pytest.mark.covers("A-109")
def test_calls_that_are_all_numbered_0_come_apart_by_their_ids() -> None:
    calls = [{"index": 0, "id": f"c{n}", "function": {"name": "add", "arguments": f'{{"a": {n}}}'}} for n in range(2)]
    events = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    with wire.playing(Raw(tuple(f"data: {json.dumps(event)}\n\n".encode() for event in events))) as server:
        _, finish = answered(server, "openai", ask(tools=(ADD,)))
    assert [call.arguments for call in finish.tool_calls] == [{"a": 0}, {"a": 1}] and finish.reason == "tool_calls"


@pytest.mark.covers("A-109")
def test_an_answer_in_one_piece_is_an_answer() -> None:
    whole = {
        "openai": {
            "model": "w",
            "choices": [{"message": {"content": "Hoot."}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3},
        },
        "anthropic": {"content": [{"type": "text", "text": "Hoot."}], "stop_reason": "end_turn", "usage": {"input_tokens": 3}},
        "gemini": {
            "candidates": [{"content": {"parts": [{"text": "Hoot."}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3},
        },
    }
    for kind, body in whole.items():
        with wire.playing(Status(200, body), Status(200, {"odd": 1})) as server:
            pieces, finish = answered(server, kind, ask())
            assert [piece.text for piece in pieces] == ["Hoot."] and finish.prompt_tokens == 3
            with pytest.raises(ProviderError):
                answered(server, kind, ask())


@pytest.mark.covers("A-109", "A-110")
@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://openrouter.ai/api/v1", "/api/v1/chat/completions"),
        ("https://api.groq.com/openai/v1/", "/openai/v1/chat/completions"),
        (
            "https://x.openai.azure.com/openai/deployments/owl?api-version=1",
            "/openai/deployments/owl/chat/completions?api-version=1",
        ),
        ("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", "/openai/v1/chat/completions"),
        ("https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/openapi", "/endpoints/openapi/chat/completions"),
    ],
)
def test_every_compatible_server_is_reached_by_its_address(url: str, path: str) -> None:
    assert OpenAI(remote(url, "openai"))._answer_url().endswith(path)


@pytest.mark.parametrize(("host", "word"), [("api.openai.com", "max_completion_tokens"), ("api.groq.com", "max_tokens")])
def test_the_limit_has_the_name_that_the_server_knows(host: str, word: str) -> None:
    made = OpenAI(remote(f"https://{host}/v1", "openai"))
    asked = ask()
    assert {"max_tokens", "max_completion_tokens"} & set(_body(made, asked)) == {word}


def test_a_server_that_wants_the_other_name_of_the_limit_gets_it() -> None:
    refusal = Status(400, {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}})
    with wire.playing(refusal, STORY) as server:
        answered(server, "openai", ask(max_tokens=77))
    assert server.seen[0].body["max_tokens"] == server.seen[1].body["max_completion_tokens"] == 77
    assert "max_tokens" not in server.seen[1].body


@pytest.mark.covers("A-121")
def test_a_router_is_told_what_to_cache() -> None:
    made = OpenAI(remote("https://openrouter.ai/api/v1", "openai", model="anthropic/claude"))
    first, rest = _body(made, Ask(SYSTEM, TALK, dialect="native"))["messages"][0]["content"]
    assert first == {"type": "text", "text": "You are an owl.\n\nBe kind.", "cache_control": {"type": "ephemeral"}}
    assert rest["text"].startswith("\n\nBe brief.")


def test_mistral_gets_ids_of_nine_letters_always_the_same() -> None:
    made = OpenAI(remote("https://api.mistral.ai/v1", "openai"))
    calls = [_body(made, Ask((), TALK, dialect="native"))["messages"][1]["tool_calls"][0]["id"] for _ in range(2)]
    assert calls[0] == calls[1] and len(calls[0]) == 9 and calls[0].isalnum()


@pytest.mark.covers("R-200")
@pytest.mark.parametrize(
    ("pages", "window"),
    [
        ({"/props": {"default_generation_settings": {"n_ctx": 4096}}}, 4096),
        ({"/api/v0/models": {"data": [{"id": "m-1", "max_context_length": 9000, "loaded_context_length": 6000}]}}, 6000),
        ({"/api/ps": {"models": [{"name": "m-1:latest", "context_length": 16384}]}}, 16384),
        ({"/api/ps": {"models": []}}, 4096),
        ({}, 100_000),
    ],
)
def test_servers_nearby_are_asked_for_the_window_in_their_own_words(pages: dict[str, Any], window: int) -> None:
    with wire.playing() as server:
        server.models, server.pages = {"data": [{"id": "m-1"}, {"id": "other"}]}, pages
        server.url += "/v1"
        made, _ = asking(server, "openai")
        assert made.discover(CancelToken()) == window  # type: ignore[attr-defined]


def _body(made: Any, asked: Ask) -> Any:
    from appliance.providers.conversation import ToolNames

    return made._build_body(asked, made._build_talk(asked), ToolNames(asked))


# -- anthropic ---------------------------------------------------------------------------------------------

THOUGHT = Turn(
    reasoning=("Two ", "and three."), signature="c2lnbmVk", calls=(Call("add", ('{"a": 2}',), "toolu_1"),), finish="calls"
)


def test_thoughts_before_a_call_go_back_unchanged_with_its_result() -> None:
    with wire.playing(THOUGHT, STORY) as server:
        made, route = asking(server, "anthropic", has_reasoning=True)
        *_, finish = made.generate(route, ask(tools=(ADD,)), CancelToken())
        messages = (Message("user", "?"), Message("assistant", "", finish.tool_calls), Message("tool", "5", tool_call_id="toolu_1"))  # type: ignore[union-attr]
        list(made.generate(route, Ask((), messages, (ADD,), "native"), CancelToken()))
        first, second = (seen.body for seen in server.seen)
    assert first["thinking"]["type"] == "enabled" and first["max_tokens"] > first["thinking"]["budget_tokens"] >= 1024
    assert "temperature" not in first
    assert second["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Two and three.", "signature": "c2lnbmVk"}
    assert "thinking" in second


def test_where_an_answer_may_take_all_there_is_thoughts_take_half_of_it() -> None:
    body = sent("anthropic", ask(max_tokens=8192), has_reasoning=True).body
    assert (body["max_tokens"], body["thinking"]) == (8192, {"type": "enabled", "budget_tokens": 4096})
    short = sent("anthropic", ask(max_tokens=1500), has_reasoning=True, max_tokens=1500).body
    assert (short["max_tokens"], "thinking" in short, short["temperature"]) == (1500, False, 0.1)


def test_calls_whose_thoughts_nobody_has_any_more_go_on_without() -> None:
    messages = (
        Message("user", "?"),
        Message("assistant", "", (ToolCall("toolu_9", "add", {}),)),
        Message("tool", "5", tool_call_id="toolu_9"),
    )
    body = sent("anthropic", Ask((), messages, (ADD,), "native"), has_reasoning=True).body
    assert "thinking" not in body and body["temperature"] == 0.1


def test_a_model_that_decides_itself_how_long_to_think_is_let() -> None:
    refusal = Status(
        400, {"error": {"message": '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'}}
    )
    with wire.playing(refusal, STORY) as server:
        answered(server, "anthropic", ask(), has_reasoning=True)
    assert server.seen[1].body["thinking"] == {"type": "adaptive"}


def test_marks_are_left_out_where_caching_is_off() -> None:
    assert "cache_control" not in json.dumps(sent("anthropic", Ask(SYSTEM, TALK, (ADD,), "native"), is_caching=False).body)


# -- gemini --------------------------------------------------------------------------------------------------


def test_what_stands_beside_a_call_goes_back_with_it() -> None:
    with wire.playing(replace(THOUGHT, reasoning=()), STORY) as server:
        made, route = asking(server, "gemini", model="gemini-3-pro")
        *_, finish = made.generate(route, ask(tools=(ADD,)), CancelToken())
        (call,) = finish.tool_calls  # type: ignore[union-attr]
        other = ToolCall("call_other", "add", {"a": 1})
        messages = (
            *(Message("user", "?"), Message("assistant", "", (call,)), Message("tool", "5", tool_call_id=call.id)),
            *(Message("assistant", "", (other,)), Message("tool", "6", tool_call_id="call_other")),
        )
        list(made.generate(route, Ask((), messages, (ADD,), "native"), CancelToken()))
        contents = server.seen[1].body["contents"]
    assert call.id
    assert contents[1]["parts"][0]["thoughtSignature"] == "c2lnbmVk"
    assert contents[3]["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


def test_a_call_that_the_model_wrote_badly_is_an_invalid_response() -> None:
    event = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}
    with wire.playing(Raw((f"data: {json.dumps(event)}\n\n".encode(),))) as server:
        made, route = asking(server, "gemini")
        with pytest.raises(ProviderError) as caught:
            list(made.generate(route, ask(), CancelToken()))
    assert caught.value.outcome == "invalid_response"


def test_an_address_with_a_version_of_its_own_is_kept() -> None:
    made = CLASSES["gemini"](remote("https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google", "gemini"))
    assert made._answer_url() == (
        "https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/models/m-1:streamGenerateContent?alt=sse"
    )
