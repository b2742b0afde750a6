"""Guessing what the prompt says already: the same text as without, in fewer evaluations, and a pause where it does not help."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_fixtures import shallow_file, shallow_home  # noqa: F401

from appliance.providers.llama import Llama, Options
from appliance.providers.llama_library import LoadedModel
from appliance.providers.sampling import FIRST_GUESS, LONGEST_GUESS, PAUSE_GUESSES, PromptLookup, Writing, find_continuation
from appliance.records import Ask, Message, Part, ToolSpec

NOTE = "The boiler was serviced on the third of March by Ms Okafor, who replaced the valve and left the pressure at 1.6 bar."
SAY = ToolSpec("say", "Say a text", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
ASKS = {
    "quoted": {},
    "punished for repeating itself": {"repeat_penalty": 1.1},
    "drawn by chance": {"temperature": 0.8},
    "held to a grammar": {"tools": (SAY,), "must_call": True},
}


def test_the_latest_place_where_the_end_stands_is_where_it_goes_on() -> None:
    assert find_continuation([1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 6, 7, 1, 2, 3, 4]) == 10
    assert find_continuation([8, 2, 3, 4, 5, 9, 2, 3, 4]) == 4 and find_continuation([3, 4, 5, 9, 2, 3, 4]) is None
    assert find_continuation([7, 7, 7, 7]) == 3, "a place may overlap the end, but not be it"
    assert find_continuation([1, 2, 3, 4]) is None and find_continuation([]) is None
    assert find_continuation([0x0100, 0, 0, 5, 0, 0, 1, 0, 0]) is None, "bytes that agree between two tokens are no place"


def test_guesses_grow_while_they_are_right_and_pause_when_they_are_wrong() -> None:
    text, lookup = [*range(1, 40), 1, 2, 3], PromptLookup()
    assert lookup.guess(text, 99) == [*range(4, 4 + FIRST_GUESS)] and lookup.guess(text, 1) == [4]
    assert lookup.guess(text, 0) == [] and lookup.guess([1, 2, 3], 99) == []
    for _ in range(3):
        lookup.judge(FIRST_GUESS, FIRST_GUESS)
    assert len(lookup.guess(text, 99)) == LONGEST_GUESS
    while lookup.guess(text, 99):
        lookup.judge(LONGEST_GUESS, 0)
    assert [lookup.guess(text, 99) for _ in range(PAUSE_GUESSES - 1)] == [[]] * (PAUSE_GUESSES - 1)
    assert lookup.guess(text, 99) and lookup.right == 3 * FIRST_GUESS < lookup.guessed


@pytest.fixture(scope="module")
def llama(shallow_file: Path) -> Iterator[Llama]:  # noqa: F811
    loaded = Llama(shallow_file, Options(context=512, threads=1))
    loaded.load(threading.Event())
    yield loaded
    loaded.close()


def written(llama: Llama, ask: Ask, *, is_guessing: bool) -> tuple[str, list[int], Writing]:
    """What is said, or called for, and the tokens that the sequence is left with."""
    ready = llama._ready
    assert ready is not None
    prompt = ready.prompt(ask)
    held = ready.sequences.place(ask.slot, prompt, False)
    ready.sequences.extend(held, prompt[len(held.tokens) :], lambda: False)
    writing = Writing(ready, ask, held, 7, must_call=ask.must_call, is_guessing=is_guessing)
    try:
        text = "".join(piece.text for piece in writing.pieces(lambda: False))
    finally:
        writing.close()
        ready.sequences.release(held)
    return text + repr(writing.calls()), list(held.tokens), writing


@pytest.mark.model
@pytest.mark.parametrize("how", ASKS)
def test_a_text_that_stands_in_the_prompt_comes_out_the_same_with_guesses(llama: Llama, how: str) -> None:
    words = Message("user", f"Repeat this note word for word:\n\n{NOTE}")
    more = {"temperature": 0.0, "max_tokens": 36, "slot": how, **ASKS[how]}
    ask = Ask(**{"system": (Part("core", "You are an owl."),), "messages": (words,), **more})
    text, tokens, plain = written(llama, ask, is_guessing=False)
    same, left, guessing = written(llama, ask, is_guessing=True)
    assert (same, left, guessing.count, guessing.reason) == (text, tokens, plain.count, plain.reason)
    assert plain.lookup is None and guessing.lookup is not None and guessing.lookup.right >= 2


@pytest.mark.model
def test_what_is_evaluated_together_gives_the_numbers_that_it_gives_alone(llama: Llama) -> None:
    ready = llama._ready
    assert ready is not None
    loaded = ready.loaded
    assert 1 <= loaded.alike() <= LONGEST_GUESS + 1
    tokens = loaded.tokens(NOTE)[: loaded.alike()]
    loaded.evaluate(tokens, loaded.sequences, 0, rows=1)
    together = loaded.copy_row(-1)
    loaded.clear(loaded.sequences)
    for i, token in enumerate(tokens):
        loaded.evaluate([token], loaded.sequences, i, rows=1)
    assert loaded.copy_row(-1) == together
    loaded.clear(loaded.sequences)


@pytest.mark.model
def test_the_numbers_of_a_text_do_not_depend_on_what_others_keep_in_the_window(shallow_file: Path) -> None:  # noqa: F811
    loaded = LoadedModel(shallow_file, 256, 1, "f16", lambda: False)
    tokens, seen = loaded.tokens(NOTE), set()
    for others in (0, 4, 8):  # without flash attention all three differ
        if others:
            loaded.evaluate(tokens[:others], 1, 0, rows=0)
        loaded.evaluate(tokens, 0, 0, rows=1)
        seen.add(loaded.copy_row(-1))
        loaded.clear(0)
        loaded.clear(1)
    loaded.close()
    assert len(seen) == 1
