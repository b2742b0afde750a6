"""One contract for every provider: the local model, a script, and the three formats over HTTP. Real parts, no exceptions made."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import wire
from model_fixtures import shallow_home
from process import until
from record_tools import replace
from wire import Call, Half, Status, Turn, Used

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import Cancelled, DeadlineExceeded, TooLarge
from appliance.models.pool import Pool
from appliance.providers import formats
from appliance.providers.http_provider import Hosted
from appliance.providers.remote_settings import Remote
from appliance.providers.scripted import Scripted
from appliance.records import Ask, Finish, Message, Part, Piece, Route, ToolCall, ToolSpec
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config, ModelSettings

__all__ = ["shallow_home"]

SECRET = "sk-canary-12345678"
PROMPT_S = 20.0  # generous: a stop takes milliseconds
ADD = ToolSpec(
    "add",
    "Adds two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)
STORY = Turn(chunks=("Once ", "there was ", "an owl — ", "eine Käuzin 🦉, ", "who slept."))
LONG = Turn(chunks=("word ",) * 400, pause_s=0.1)  # longer than PROMPT_S
CALLS = Turn(calls=(Call("add", ('{"a": ', "2, ", '"b": 3}')),), finish="calls")
CLASSES: dict[str, type[Hosted]] = {kind: formats.load(kind) for kind in ("openai", "anthropic", "gemini")}
KINDS = ("llama", "scripted", *CLASSES)
REMOTE = tuple(CLASSES)
TOO_LONG = {
    "error": {"message": "This model's maximum context length is 8192 tokens, you sent 90000.", "type": "invalid_request_error"}
}

Generate = Callable[[Ask, CancelToken], Iterator[Piece | Finish]]


def ask(words: str = "Tell me about an owl.", **more: Any) -> Ask:
    return Ask(
        **{"system": (Part("instructions", "Be kind."),), "messages": (Message("user", words),), "dialect": "native", **more}
    )


def remote(url: str, kind: Any, **more: Any) -> Remote:
    given = {"provider": kind, "kind": kind, "base_url": url, "model": "m-1", "key": lambda: SECRET}
    return Remote(**{**given, **more})


@dataclass
class Plug:
    """A provider under test. `plays` makes it answer with these turns; the local model answers as it likes."""

    kind: str
    generate: Generate
    plays: Callable[..., None]

    def all(self, asked: Ask) -> tuple[list[Piece], Finish]:
        *pieces, finish = list(self.generate(asked, CancelToken()))
        assert isinstance(finish, Finish)
        assert all(isinstance(piece, Piece) for piece in pieces)
        return pieces, finish  # type: ignore[return-value]


@pytest.fixture(scope="module")
def llama_pool(shallow_home: Home) -> Iterator[Pool]:
    pool = Pool(shallow_home, Config(models=ModelSettings(context=1024, threads=2)))
    yield pool
    pool.close()


@pytest.fixture(params=KINDS)
def plug(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Plug]:
    if request.param == "llama":
        pool: Pool = request.getfixturevalue("llama_pool")
        local = lambda a, c: pool.generate("local", replace(a, dialect="grammar", max_tokens=min(a.max_tokens, 200)), c)  # noqa: E731
        yield Plug("llama", local, lambda *turns: None)
    elif request.param == "scripted":
        yield from scripted(tmp_path)
    else:
        with wire.playing() as server:
            made = CLASSES[request.param](remote(server.url, request.param))
            route = Route("r", made.name, made.model, made.window, "native")
            yield Plug(request.param, lambda a, c: made.generate(route, a, c), lambda *turns: server.answers.extend(turns))
            made.close()


def scripted(folder: Path) -> Iterator[Plug]:
    made: list[Scripted] = []

    def plays(*turns: wire.Answer) -> None:
        path = folder / "script.json"
        path.write_text(json.dumps({"turns": [written(turn) for turn in turns]}), encoding="utf-8")
        made.append(Scripted(path, 8192))

    route = Route("r", "scripted", "script", 8192, "native")
    yield Plug("scripted", lambda a, c: made[-1].generate(route, a, c), plays)


def written(turn: wire.Answer) -> dict[str, Any]:
    """A turn as the script file has it."""
    if isinstance(turn, Status):
        return {"error": "too_large"}
    if isinstance(turn, Half):
        return {"chunks": list(turn.turn.chunks[:2]), "delay_s": 0} | ({"chunk_delay_s": 60} if turn.is_silent else {})
    assert isinstance(turn, Turn)
    calls = [{"name": c.name, "arguments": json.loads("".join(c.pieces)), "id": c.id} for c in turn.calls]
    return {"chunks": list(turn.chunks), "tool_calls": calls, "chunk_delay_s": turn.pause_s}


# -- the contract ----------------------------------------------------------------------------------------


@pytest.mark.covers("A-110", "A-112", "A-122", "S-023", "S-025")
def test_an_answer_comes_in_pieces_and_ends_with_one_finish(plug: Plug) -> None:
    plug.plays(STORY)
    pieces, finish = plug.all(ask(max_tokens=24))
    assert pieces
    if plug.kind == "llama":  # how much it says is its own affair; it is never kept back until the end
        assert len(pieces) >= finish.output_tokens / 4
    else:
        assert [piece.text for piece in pieces if piece.text] == list(STORY.chunks)
        assert finish.reason == "stop"
    assert finish.tool_calls == ()


@pytest.mark.covers("A-112")
def test_a_tool_call_comes_whole_with_an_id_and_never_as_text(plug: Plug) -> None:
    plug.plays(CALLS)
    pieces, finish = plug.all(ask("Add 2 and 3.", tools=(ADD,), must_call=True, max_tokens=200))
    (call,) = finish.tool_calls
    assert finish.reason == "tool_calls"
    assert isinstance(call, ToolCall) and call.id and call.name == "add" and set(call.arguments) == {"a", "b"}
    assert "".join(piece.text for piece in pieces).strip() == ""
    if plug.kind != "llama":
        assert call.arguments == {"a": 2, "b": 3}


@pytest.mark.covers("R-201")
def test_every_answer_says_who_gave_it_and_what_it_cost(plug: Plug) -> None:
    plug.plays(STORY)
    _, finish = plug.all(ask(max_tokens=8))
    assert finish.provider and finish.model
    assert finish.prompt_tokens > 0 and finish.output_tokens > 0
    assert 0 <= finish.evaluated_tokens <= finish.prompt_tokens
    assert not finish.is_estimated or plug.kind == "scripted"


def test_a_stop_before_the_beginning_asks_nobody(plug: Plug) -> None:
    plug.plays(STORY)
    token = CancelToken()
    token.set()
    with pytest.raises(Cancelled):
        list(plug.generate(ask(), token))


@pytest.mark.covers("A-122")
def test_a_stop_while_it_speaks_ends_it_soon(plug: Plug) -> None:
    plug.plays(LONG)
    token = CancelToken()
    answer = plug.generate(ask("Write a very long story with many chapters.", max_tokens=200), token)
    next(answer)
    began_s = monotonic_s()
    token.set()
    with pytest.raises(Cancelled):
        list(answer)
    assert monotonic_s() - began_s < PROMPT_S


def lengthy(plug: Plug) -> str:
    """A question that takes long to read for a local model: how long it then speaks is its own affair."""
    return "owl " * (600 if plug.kind == "llama" else 1) + "Write a very long story with many chapters."


def soon_s(plug: Plug) -> float:
    """A moment in which an answer has begun and is not over: two layers read 600 words in a tenth of a second."""
    return 0.02 if plug.kind == "llama" else 0.2


def test_a_stop_reaches_an_answer_that_has_fallen_silent(plug: Plug) -> None:
    plug.plays(Half(STORY, 8, is_silent=True))
    token = CancelToken()
    threading.Timer(soon_s(plug), token.set).start()
    began_s = monotonic_s()
    with pytest.raises(Cancelled):
        list(plug.generate(ask(lengthy(plug), max_tokens=200), token))
    assert monotonic_s() - began_s < PROMPT_S


def test_a_deadline_ends_it(plug: Plug) -> None:
    plug.plays(LONG)
    began_s = monotonic_s()
    with pytest.raises(DeadlineExceeded):
        list(plug.generate(ask(lengthy(plug), max_tokens=200, deadline_s=soon_s(plug)), CancelToken()))
    assert monotonic_s() - began_s < PROMPT_S


@pytest.mark.covers("R-167")
def test_a_prompt_that_does_not_fit_is_too_large_for_every_provider(plug: Plug) -> None:
    plug.plays(Status(400, TOO_LONG))
    words = "owl " * 3000 if plug.kind == "llama" else "owl"
    with pytest.raises(TooLarge):
        list(plug.generate(ask(words), CancelToken()))


@pytest.mark.covers("A-122")
def test_two_answers_at_once_do_not_mix(plug: Plug) -> None:
    turns = [Turn(chunks=(f"{name} ",) * 20, pause_s=0.005) for name in ("left", "right")]
    plug.plays(*turns)
    found: dict[int, tuple[list[Piece], Finish]] = {}

    def one(n: int) -> None:
        found[n] = plug.all(ask(f"Question {n}", max_tokens=20, slot=str(n), person=str(n)))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
    if plug.kind != "llama":
        texts = sorted("".join(piece.text for piece in pieces) for pieces, _ in found.values())
        assert texts == ["left " * 20, "right " * 20]


def test_an_answer_that_nobody_reads_to_its_end_disturbs_no_later_one(plug: Plug) -> None:
    plug.plays(LONG, STORY)
    answer = plug.generate(ask("Write a very long story.", max_tokens=200), CancelToken())
    next(answer)
    answer.close()  # type: ignore[attr-defined]
    pieces, _ = plug.all(ask(max_tokens=8))
    assert "".join(piece.text for piece in pieces).strip()


# -- what only a network has -------------------------------------------------------------------------------


@pytest.fixture(params=REMOTE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asking(server: wire.Wire, kind: str, **more: Any) -> tuple[Hosted, Route]:
    made = CLASSES[kind](remote(server.url, kind, **more))
    return made, Route("r", made.name, made.model, made.window, "native")


def answered(server: wire.Wire, kind: str, asked: Ask, **more: Any) -> tuple[list[Piece], Finish]:
    made, route = asking(server, kind, **more)
    *pieces, finish = list(made.generate(route, asked, CancelToken()))
    made.close()
    return pieces, finish  # type: ignore[return-value]


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("is_crlf", [False, True])
def test_answers_are_read_however_their_bytes_are_cut(kind: str, size: int, is_crlf: bool) -> None:
    turn = replace(STORY, chunks=("Käuzchen 🦉 ", "äöü"), slice_bytes=size, is_crlf=is_crlf)
    with wire.playing(turn) as server:
        pieces, finish = answered(server, kind, ask())
    assert "".join(piece.text for piece in pieces) == "Käuzchen 🦉 äöü"
    assert finish.reason == "stop"


@pytest.mark.covers("A-116", "R-201")
def test_usage_tells_cached_written_and_thought_tokens_apart(kind: str) -> None:
    used = Used(
        prompt=1000, output=50, cached=800, written=100 if kind == "anthropic" else 0, reasoning=0 if kind == "anthropic" else 20
    )
    with wire.playing(replace(STORY, used=used)) as server:
        _, finish = answered(server, kind, ask())
    assert (finish.prompt_tokens, finish.evaluated_tokens, finish.cached_tokens) == (1000, 200, 800)
    assert (finish.output_tokens, finish.cache_write_tokens, finish.reasoning_tokens) == (50, used.written, used.reasoning)
    assert finish.model == wire.SERVED and not finish.is_estimated


@pytest.mark.covers("A-116")
def test_usage_that_is_missing_is_estimated_and_marked(kind: str) -> None:
    with wire.playing(replace(STORY, used=None)) as server:
        _, finish = answered(server, kind, ask())
    assert finish.is_estimated and finish.prompt_tokens > 0 and finish.output_tokens > 0


@pytest.mark.covers("S-024", "R-199", "A-112")
@pytest.mark.parametrize("has_reasoning", [False, True])
def test_thoughts_are_handed_on_only_where_they_are_flagged(kind: str, has_reasoning: bool) -> None:
    turn = replace(STORY, reasoning=("An owl. ", "Hm."), signature="c2ln")
    with wire.playing(turn) as server:
        pieces, finish = answered(server, kind, ask(), has_reasoning=has_reasoning)
    thought = "".join(piece.text for piece in pieces if piece.is_reasoning)
    assert thought == finish.reasoning == ("An owl. Hm." if has_reasoning else "")
    assert "".join(piece.text for piece in pieces if not piece.is_reasoning) == "".join(STORY.chunks)


@pytest.mark.covers("S-024", "R-199")
def test_thoughts_left_in_the_text_come_apart_from_it(kind: str) -> None:
    with wire.playing(Turn(chunks=("<thi", "nk>A mou", "se?</th", "ink>\n\nYes."))) as server:
        pieces, finish = answered(server, kind, ask(), has_reasoning=True)
    assert finish.reasoning == "A mouse?"
    assert "".join(piece.text for piece in pieces if not piece.is_reasoning) == "Yes."


BARE = Turn(chunks=("A mou", "se?</th", "ink>\n\nYes."))
CUT = Turn(chunks=("A mou", "se? Or"), finish="length")
PLAIN = Turn(chunks=("No ", "mouse."))


def told(kind: str, *turns: Turn, **settings: Any) -> list[tuple[list[str], str]]:
    """The pieces and thoughts of each answer, each of an adapter of its own, as after a restart."""
    found = []
    with wire.playing(*turns) as server:
        for _ in turns:
            made, route = asking(server, kind, has_reasoning=True, **settings)
            *pieces, finish = list(made.generate(route, ask(), CancelToken()))
            found.append(([piece.text for piece in pieces if not piece.is_reasoning], finish.reasoning))
            made.close()
    return found


def test_a_model_that_ends_thoughts_it_never_opened_is_known_after_a_restart(kind: str, tmp_path: Path) -> None:
    turns = (BARE, BARE, CUT, Turn(chunks=("<think>Hm.", "</think>", "No.")), PLAIN, PLAIN, BARE)
    first, *others = told(kind, *turns, learnt=tmp_path / "spend" / "thoughts")
    # Of a model that nobody knows the first answer is known at its end alone; the parser of answers takes its thoughts away.
    assert "".join(first[0]) == "A mouse?</think>\n\nYes."
    assert others[:3] == [(["Yes."], "A mouse?"), ([], "A mouse? Or"), (["No."], "Hm.")]
    # It thinks no more: one answer is held back, the next comes as it is written.
    assert others[3:5] == [(["No mouse."], ""), (["No ", "mouse."], "")]


@pytest.mark.parametrize(
    "name", "deepseek-r1:8b Qwen/QwQ-32B qwen3-4b-thinking-2507 MiniMax-M2 qwen3.6:27b glm-z1-9b phi-4-reasoning".split()
)
def test_a_model_whose_name_says_that_it_thinks_shows_no_thoughts_from_the_first(kind: str, name: str, tmp_path: Path) -> None:
    assert told(kind, BARE, model=name) == [(["Yes."], "A mouse?")]
    assert told(kind, PLAIN, PLAIN, model=name, learnt=tmp_path / "one")[1] == (["No ", "mouse."], "")


def test_words_are_not_held_back_behind_thoughts_that_come_apart(kind: str) -> None:
    ((pieces, thoughts),) = told(kind, Turn(reasoning=("Hm.",), chunks=("No ", "mouse.")), model="deepseek-r1")
    assert pieces == ["No ", "mouse."] and thoughts == "Hm."


@pytest.mark.parametrize(
    "name", "gpt-4o claude-sonnet-4-5 qwen2.5-7b llama-3.1-8b unthinkable mistral-small gemma3:4b bar1".split()
)
def test_no_word_waits_for_a_model_that_does_not_think(kind: str, name: str) -> None:
    assert told(kind, PLAIN, model=name) == [(["No ", "mouse."], "")]


@pytest.mark.parametrize(("end", "reason"), [("stop", "stop"), ("length", "length"), ("refused", "filtered")])
def test_why_an_answer_ended_is_told(kind: str, end: str, reason: str) -> None:
    with wire.playing(replace(STORY, finish=end)) as server:
        assert answered(server, kind, ask())[1].reason == reason


def test_a_stop_text_ends_an_answer_also_where_the_server_does_not_heed_it(kind: str) -> None:
    with wire.playing(Turn(chunks=("one ", "two EN", "D three ", "four") + ("more ",) * 200, pause_s=0.01)) as server:
        pieces, finish = answered(server, kind, ask(stop=("END",)))
        assert "".join(piece.text for piece in pieces) == "one two "
        assert finish.reason == "stop"
        assert server.wait_broken()  # it does not go on talking


@pytest.mark.covers("A-123", "S-020")
def test_a_request_waits_two_minutes_for_8192_tokens_of_a_model_that_reads_100000_by_default(kind: str) -> None:
    made = CLASSES[kind](remote("http://127.0.0.1:1", kind))
    assert (made.remote.timeout_s, made.max_tokens, made.window) == (120, 8192, 100_000)
    assert not made.remote.has_reasoning


def test_a_connection_is_used_again(kind: str) -> None:
    with wire.playing(STORY, STORY, STORY) as server:
        made, route = asking(server, kind)
        for _ in range(3):
            list(made.generate(route, ask(), CancelToken()))
        made.close()
    assert len({seen.line for seen in server.seen}) == 1


def echoes() -> list[Turn]:
    """The key, whole and cut in every place, in words, thoughts and arguments."""
    cuts = [(f"It is {SECRET[:at]}", f"{SECRET[at:]}, so s") for at in range(len(SECRET) + 1)]
    spelled = tuple(f"{letter}" for letter in f"It is {SECRET}, so s")
    return [*(Turn(cut) for cut in cuts), Turn(spelled), Turn(("It is ", SECRET[:7]))]


@pytest.mark.covers("A-186")
def test_a_key_that_comes_back_in_an_answer_is_hidden(kind: str) -> None:
    for turn in echoes():
        with wire.playing(turn) as server:
            pieces, _ = answered(server, kind, ask())
            shown = "It is sk-cana" if turn.chunks[-1] == SECRET[:7] else "It is [key], so s"
            assert "".join(piece.text for piece in pieces) == shown, turn.chunks
    arguments = json.dumps({"a": 1, "b": 2, "note": [SECRET]})
    turn = Turn(
        reasoning=(f"Hm, {SECRET[:5]}", f"{SECRET[5:]} is"), calls=(Call("add", (arguments[:30], arguments[30:])),), finish="calls"
    )
    with wire.playing(turn) as server:
        pieces, finish = answered(server, kind, ask(tools=(ADD,)), has_reasoning=True)
    assert SECRET not in repr(pieces) + repr(finish) and "[key]" in finish.reasoning
    assert finish.tool_calls[0].arguments["note"] == ["[key]"]


@pytest.mark.covers("A-129")
def test_models_are_listed_and_the_window_discovered(kind: str) -> None:
    pages = {
        "openai": {
            "data": [{"id": "m-1", "context_length": 32768, "top_provider": {"max_completion_tokens": 2048}}, {"id": "m-2"}]
        },
        "anthropic": {"data": [{"id": "m-1", "max_input_tokens": 32768, "max_tokens": 2048}, {"id": "m-2"}]},
        "gemini": {
            "models": [
                {"name": "models/m-1", "inputTokenLimit": 32768, "outputTokenLimit": 2048},
                {"name": "models/m-2", "supportedGenerationMethods": ["generateContent"]},
                {"name": "models/embed", "supportedGenerationMethods": ["embedContent"]},
            ]
        },
    }
    with wire.playing() as server:
        server.models = pages[kind]
        made, _ = asking(server, kind)
        assert made.window == 100_000
        assert [one.model for one in made.listing()] == ["m-1", "m-2"]
        made.load(CancelToken())
        assert (made.window, made.max_tokens) == (32768, 2048)
        fixed, _ = asking(server, kind, window=5000)
        fixed.load(CancelToken())
        assert fixed.window == 5000
    assert all("sk-canary" in json.dumps(seen.headers) for seen in server.seen)


@pytest.mark.covers("R-200", "R-167")
def test_a_window_is_learned_from_the_complaint_about_it(kind: str) -> None:
    with wire.playing(Status(400, TOO_LONG)) as server:
        made, route = asking(server, kind)
        with pytest.raises(TooLarge):
            list(made.generate(route, ask(), CancelToken()))
    assert made.window == 8192


@pytest.mark.covers("A-113")
def test_a_model_without_tools_answers_and_is_refused_as_an_agent(kind: str) -> None:
    with wire.playing(STORY, STORY) as server:
        assert answered(server, kind, ask(), has_tools=False)[1].reason == "stop"
        with pytest.raises(Exception, match="cannot call tools") as caught:
            answered(server, kind, ask(tools=(ADD,)), has_tools=False)
        assert caught.value.outcome == "model_not_supported"  # type: ignore[attr-defined]
        assert len(server.seen) == 1
        answered(server, kind, ask(tools=(ADD,), dialect="tags"), has_tools=False)
    assert "tools" not in server.seen[-1].body


def test_a_parameter_that_a_server_refuses_is_left_out_from_then_on(kind: str) -> None:
    refusal = Status(400, {"error": {"message": "Unsupported parameter: 'temperature' is not supported with this model."}})
    with wire.playing(refusal, STORY, STORY) as server:
        made, route = asking(server, kind)
        list(made.generate(route, ask(), CancelToken()))
        list(made.generate(route, ask(), CancelToken()))
    assert [("temperature" in json.dumps(seen.body)) for seen in server.seen] == [True, False, False]


def test_many_streams_run_at_once(kind: str) -> None:
    with wire.playing() as server:
        server.always = Turn(chunks=("a", "b"), is_held=True)
        made, route = asking(server, kind)
        counts: list[int] = []
        threads = [
            threading.Thread(target=lambda: counts.append(len(list(made.generate(route, ask(), CancelToken()))))) for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        until(lambda: len(server.seen) == 10, "all ten are asked while none has ended")
        server.go.set()
        for thread in threads:
            thread.join(60)
    assert counts == [3] * 10
    assert len({seen.line for seen in server.seen}) == 10
