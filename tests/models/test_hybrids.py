"""Models whose layers keep one state in place of a row per token: they go back to marks, and evaluate what is new.

The files have random weights and the architectures of Qwen 3.5, LFM2, Granite 4 H and Nemotron H.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hybrid_models import KINDS, hybrid_model

from appliance.providers.kv_cache import KEPT_MARKS, HeldSequence, common
from appliance.providers.llama import Llama, Options
from appliance.records import Ask, Finish, Message, Part, Piece, Route

ROUTE = Route("local", "llama", "hybrid", 1024, "grammar")
OPTIONS = Options(context=1024, threads=1, seed=7)
SYSTEM = (Part("core", "You are Owlbox, a small and friendly owl that lives in a box. You answer briefly, and never twice."),)
TALK = (Message("user", "Where is the key?"), Message("assistant", "With Ada."), Message("user", "And the lock?"))


@pytest.fixture(params=KINDS)
def llama(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Llama]:
    """A model of each architecture."""
    path = tmp_path / "hybrid.gguf"
    path.write_bytes(hybrid_model(request.param))
    found = Llama(path, OPTIONS)
    yield found
    found.close()


def ask(*messages: Message, slot: str = "chat") -> Ask:
    return Ask(SYSTEM, messages, temperature=0.0, max_tokens=4, slot=slot)


def run(llama: Llama, request: Ask) -> Finish:
    *pieces, finish = llama.generate(ROUTE, request, threading.Event())
    assert isinstance(finish, Finish) and all(isinstance(piece, Piece) for piece in pieces)
    return finish


def prompts(llama: Llama, *asks: Ask) -> list[list[int]]:
    assert llama._ready is not None
    return [llama._ready.prompt(one) for one in asks]


@pytest.mark.covers("R-208", "S-003")
def test_a_second_turn_evaluates_only_what_is_new(llama: Llama) -> None:
    first = run(llama, ask(TALK[0]))
    assert first.evaluated_tokens == first.prompt_tokens
    second = run(llama, ask(*TALK))
    before, after = prompts(llama, ask(TALK[0]), ask(*TALK))
    # The template writes an answer of before without the empty thoughts that its own answer begins with.
    assert second.evaluated_tokens == len(after) - common(before, after) < len(after) // 2


def test_another_conversation_and_the_next_start_evaluate_what_is_behind_the_system_text(llama: Llama) -> None:
    run(llama, ask(*TALK))
    other = ask(Message("user", "Who are you?"), slot="other")
    (wanted,) = prompts(llama, other)
    stable = llama._ready.stable(other, wanted) if llama._ready is not None else 0
    assert run(llama, other).evaluated_tokens == len(wanted) - stable < len(wanted) // 2
    llama.close()
    again = Llama(llama.path, OPTIONS)
    assert run(again, other).evaluated_tokens == len(wanted) - stable
    again.close()


@pytest.mark.covers("S-003")
def test_what_is_evaluated_behind_a_mark_gives_the_same_numbers(llama: Llama) -> None:
    llama.load(threading.Event())
    assert llama._ready is not None
    loaded, sequences = llama._ready.loaded, llama._ready.sequences
    begin, end = loaded.tokens("The key is with Ada, who lives "), loaded.tokens("next to the bakery.")

    def evaluate(held: HeldSequence, tokens: list[int]) -> bytes:
        sequences.extend(held, tokens, lambda: False)
        return loaded.copy_row(-1)

    held = sequences.place("one", begin, False)
    evaluate(held, begin)
    sequences.mark(held)
    wanted = evaluate(held, end)
    evaluate(held, end)
    sequences.cut(held, len(begin))
    assert held.tokens == begin and evaluate(held, end) == wanted, "back in its own sequence"
    sequences.release(held)
    other = sequences.place("two", [*begin, *end[:1], 0], False)
    assert other is not held and other.tokens == begin and evaluate(other, end) == wanted, "in a copy for another conversation"
    assert evaluate(held, end) == evaluate(other, end), "and neither disturbs the other"
    state = sequences.snapshot(other)
    third = sequences.place("three", [0], False)
    assert sequences.adopt(third, other.tokens, state) and evaluate(third, end) == evaluate(other, end), "read from disk"


def test_a_sequence_keeps_its_first_mark_and_the_last_ones(llama: Llama) -> None:
    llama.load(threading.Event())
    assert llama._ready is not None
    sequences = llama._ready.sequences
    held = sequences.place("one", [0], False)
    for _ in range(KEPT_MARKS + 2):
        sequences.extend(held, [5, 6], lambda: False)
        sequences.mark(held)
    assert sorted(held.marks) == [2, *range(12 - 2 * (KEPT_MARKS - 2), 13, 2)]
    sequences.cut(held, 11)
    assert len(held.tokens) == 10
    sequences.cut(held, 7)
    assert len(held.tokens) == 2 and list(held.marks) == [2]


def test_an_evaluation_that_was_stopped_goes_on_from_the_last_mark(llama: Llama) -> None:
    llama.load(threading.Event())
    assert llama._ready is not None
    loaded, sequences = llama._ready.loaded, llama._ready.sequences
    held = sequences.place("one", [0], False)
    sequences.extend(held, [5, 6, 7], lambda: False)
    sequences.mark(held)
    sequences.extend(held, [8, 9], lambda: False)
    kept = list(held.tokens)
    assert loaded.evaluate([10, 11], held.id, len(held.tokens), rows=1) == 0  # as far as one that ended half-way
    sequences._remove_unfinished(held)
    assert (held.tokens, held.lost) == (kept[:3], kept[3:])
    sequences.extend(held, [10], lambda: False)
    assert held.tokens == [*kept, 10]
