"""Titles: thought up in the background after the first answer, or the first words stay."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stores import new_store
from test_database import until
from test_inbox import Desk, Voice
from test_scenarios import opened

from appliance.agent.titles import LEAST_BYTES, Titles, is_able, tidy
from appliance.errors import Unavailable
from appliance.records import Ask, Cancel, Finish, Piece, Route, RunSettings
from appliance.store.database import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = new_store(tmp_path / "owlbox.db")
    yield made
    made.close()


def titled(title: str) -> Callable[[Ask, Cancel], Iterator[Piece | Finish]]:
    """Answers turns, and names conversations like this."""

    def speak(ask: Ask, cancel: Cancel) -> Iterator[Piece | Finish]:
        if ask.purpose == "title" and title == "fails":
            raise Unavailable("the small model is away")
        if ask.purpose == "title" and title == "hangs":
            cancel.wait(30)
        yield Piece(title if ask.purpose == "title" else "An answer.")
        yield Finish("stop")

    return speak


def named(store: Store, title: str, way: str = "model", kind: str = "chat", able: bool = True) -> tuple[Desk, Titles, str]:
    """A chat with one answer, and what names it."""
    desk = Desk(store, Voice(titled(title)))
    titles = Titles(desk.runs, desk.model, lambda: way, lambda route: able)  # type: ignore[arg-type, return-value]
    run = desk.accept("Why do owls turn their heads so far?", kind=kind)
    desk.inbox.start(run.loop)
    until(lambda: desk.inbox.busy() == 0)
    return desk, titles, run.run


@pytest.mark.covers("B-055")
def test_chat_is_named_in_the_background_by_the_small_model(store: Store) -> None:
    desk, titles, run = named(store, 'Title: "How far owls can turn their heads."')
    assert desk.runs.get(run).title == "Why do owls turn their heads so far?"
    assert titles.ended(run) is True
    until(lambda: desk.runs.get(run).title == "How far owls can turn their heads")
    [ask] = [one for one in desk.model.asks if one.purpose == "title"]  # type: ignore[attr-defined]
    assert ask.is_background and ask.slot != run and "Why do owls" in ask.messages[-1].content
    titles.close()


@pytest.mark.covers("B-055")
@pytest.mark.parametrize("title", ["fails", "", "...", "Owl", '{"name": "search"}', " ".join(["far"] * 40)])
def test_failure_leaves_the_first_words(store: Store, title: str) -> None:
    desk, titles, run = named(store, title)
    titles.ended(run)
    titles._thread.shutdown(wait=True)
    assert desk.runs.get(run).title == "Why do owls turn their heads so far?"
    titles.close()


@pytest.mark.covers("B-055")
def test_title_that_takes_for_ever_holds_up_no_answer_and_no_end(store: Store) -> None:
    desk, titles, run = named(store, "hangs")
    assert titles.ended(run)
    assert [e.role for e in desk.runs.events(run)] == ["user", "assistant"]
    again = desk.answer("and why?", thread=run)
    assert again[-1].status == 200  # type: ignore[union-attr]
    titles.close()  # at once: it is told to stop
    assert titles.ended(run) is False


@pytest.mark.parametrize(("way", "kind", "able"), [("words", "chat", True), ("model", "ask", True), ("auto", "chat", False)])
def test_some_runs_keep_their_first_words(store: Store, way: str, kind: str, able: bool) -> None:
    desk, titles, run = named(store, "A title of exactly five words", way, kind, able)
    titles.ended(run)
    titles.close()
    assert [one.purpose for one in desk.model.asks] == ["turn"]  # type: ignore[attr-defined]


def test_only_the_first_answer_names_a_chat_and_never_over_a_persons_name_for_it(store: Store) -> None:
    desk, titles, run = named(store, "A title of exactly five words")
    desk.answer("again", thread=run)
    assert titles.ended(run) is False
    desk.runs.entitle(run, "mine")
    titles._set_title(run, "Why do owls turn their heads so far?")
    assert desk.runs.get(run).title == "mine"
    titles.close()


@pytest.mark.covers("B-055")
@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("How far owls turn their heads", "How far owls turn their heads"),
        ('**"Owls and their necks."**\nThis title tells', "Owls and their necks"),
        ("# Titel: Eulen, ihre Hälse und mehr", "Eulen, ihre Hälse und mehr"),
        ("one two three four five six seven eight, nine ten", "one two three four five six seven eight"),
        ("Owls \x1b[2J and \u202etheir necks", "Owls [2J and their necks"),
        ("Owls", ""),
        ("", ""),
        ("<tool>x y z</tool>", ""),
        ("word " * 17, ""),
        ("a" * 60 + " " + "b" * 60, ""),
    ],
)
def test_answer_becomes_a_title_of_at_most_eight_words(said: str, title: str) -> None:
    assert tidy(said) == title


def test_only_a_large_local_model_is_asked_and_any_remote_one(tmp_path: Path) -> None:
    (tmp_path / "small.gguf").write_bytes(b"x")
    with open(tmp_path / "large-q4.gguf", "wb") as file:
        file.truncate(LEAST_BYTES + 1)
    models = {"small": False, "large-q4": True, "[gone]": False}
    assert {m: is_able(Route("r", "llama", m, 8192, "grammar"), tmp_path) for m in models} == models
    assert is_able(Route("r", "openai", "far away", 8192, "native"), tmp_path)


@pytest.mark.covers("B-055")
def test_a_core_has_a_chat_named_after_its_first_answer(tmp_path: Path) -> None:
    with opened(tmp_path, {"owls": ["An answer."]}) as stage:
        live = stage.core.live
        live.current = replace(live.current, runs=replace(live.current.runs, titles="model"))
        told = stage.ask("[owls] How far can they look?", RunSettings())
        until(lambda: stage.core.runs.get(told.run).title == "A short talk")  # the scripted model's
