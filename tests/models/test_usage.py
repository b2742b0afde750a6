"""What requests took: written down one by one and as sums, and what people are told when one fails."""

from pathlib import Path

import pytest
from record_tools import fields, replace
from stores import new_store

from appliance.agent.stop_conditions import excuse, of_error
from appliance.clock import new_id
from appliance.errors import PROVIDER_CODES, BadInput, ContextTooLong, OwlError, ProviderError, TooLarge, Unavailable, from_outcome
from appliance.models.usage import MOST_RECORDS, Accounts
from appliance.records import Ask, Finish, Route
from appliance.runtime.jsonrpc import error_frame, raise_error
from appliance.sessions.runs import Runs
from appliance.sessions.turns import COST_COLUMNS
from appliance.store.database import Store

FAR = Route("big", "openai", "gpt", 1000, "native", is_remote=True)
FINISH = Finish(
    "stop",
    provider="openrouter",
    model="gpt-2026",
    prompt_tokens=1000,
    cached_tokens=400,
    cache_write_tokens=100,
    output_tokens=50,
    reasoning_tokens=20,
    cost_micros=2500,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "owlbox.db")


def asked(person: str = "ada", run: str = "", purpose: str = "turn") -> Ask:
    return Ask((), (), slot=run, person=person, purpose=purpose)


@pytest.mark.covers("A-116", "A-119", "R-201")
def test_a_request_is_written_down_with_everything_it_took_and_who_answered(store: Store) -> None:
    runs, accounts = Runs(store, new_id()), Accounts(store)
    runs.open_session("local:ada", "ada", "user:ada")
    run = runs.begin("local:ada", "chat", title="owls").id
    accounts.add(FAR, asked(run=run), FINISH)
    accounts.add(FAR, asked("", "title:1", "title"), replace(FINISH, cost_micros=None, is_estimated=True))
    newest, first = accounts.records()
    assert (newest["person"], newest["run"], newest["purpose"], newest["is_estimated"], newest["cost_micros"]) == (
        "",
        "",
        "title",
        True,
        None,
    )
    assert {**first, "at_ms": 0} == {
        "at_ms": 0,
        "person": "ada",
        "run": run,
        "purpose": "turn",
        "route": "big",
        "provider": "openrouter",
        "model": "gpt-2026",
        "is_estimated": False,
        "prompt": 1000,
        "cached": 400,
        "cache_write": 100,
        "output": 50,
        "reasoning": 20,
        "cost_micros": 2500,
    }
    assert accounts.records(run=run) == [first] and accounts.records(person="") == [newest]


@pytest.mark.covers("A-116")
def test_sums_by_person_session_model_and_day(store: Store) -> None:
    runs, accounts = Runs(store, new_id()), Accounts(store)
    told = {}
    for person in ("ada", "ben"):
        runs.open_session(f"local:{person}", person, f"user:{person}")
        told[person] = runs.begin(f"local:{person}", "chat", title="owls").id
    for person, count in (("ada", 3), ("ben", 1)):
        for _ in range(count):
            accounts.add(FAR, asked(person, told[person]), FINISH)
    accounts.add(FAR, asked("", purpose="title"), replace(FINISH, model="other", cost_micros=None))
    assert [(one.name, one.requests, one.prompt, one.cost_micros) for one in accounts.sums("person")] == [
        ("ada", 3, 3000, 7500),
        ("ben", 1, 1000, 2500),
        ("", 1, 1000, 0),
    ]
    assert {one.name: one.requests for one in accounts.sums("session")} == {"local:ada": 3, "local:ben": 1, "": 1}
    assert {one.name: (one.requests, one.unpriced) for one in accounts.sums("model")} == {
        "openrouter/gpt-2026": (4, 0),
        "openrouter/other": (1, 1),
    }
    (day,) = accounts.sums("day", person="ada")
    assert (day.requests, day.output, day.cached, day.cache_write, day.reasoning) == (3, 150, 1200, 300, 60)
    assert accounts.sums("provider", session="local:ben")[0].requests == 1
    runs.delete(told["ada"])
    assert accounts.sums("session")[0].requests == 3  # what was spent stays spent


@pytest.mark.covers("A-128")
def test_of_each_person_the_newest_thousand_are_kept_and_the_sums_of_all(store: Store) -> None:
    accounts = Accounts(store)
    accounts.add(FAR, asked("ben"), FINISH)
    with store.write():
        for number in range(MOST_RECORDS + 7):
            accounts.add(FAR, asked("ada"), replace(FINISH, output_tokens=number))
    kept = accounts.records(person="ada", limit=5000)
    assert (len(kept), kept[0]["output"], kept[-1]["output"]) == (1000, 1006, 7)
    assert len(accounts.records(person="ben")) == 1
    assert accounts.sums("person", person="ada")[0].requests == 1007


@pytest.mark.covers("R-201")
def test_a_turn_keeps_everything_that_a_finish_says() -> None:
    assert set(COST_COLUMNS.split(", ")) == {item.name for item in fields(Finish)} - {"tool_calls", "reasoning", "sureness"}


# -- words -------------------------------------------------------------------------------------------------


@pytest.mark.covers("S-015")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ProviderError("openai: Incorrect key.\nmore", outcome="authentication_failed"),
            "The model's provider did not accept the key: openai: Incorrect key. Set it again: owlbox secret set llm/NAME",
        ),
        (
            ProviderError("slow down", outcome="rate_limited", kind="rate", retry_after_s=12.4),
            "The model's provider has had too many requests: slow down. Try again in 12 s.",
        ),
        (
            ProviderError("slow", outcome="rate_limited"),
            "The model's provider has had too many requests: slow. Try again in a while.",
        ),
        (ProviderError("120 s", outcome="provider_timeout"), "The model's provider did not answer in time: 120 s. Try again."),
        (
            ProviderError("no route to host", outcome="provider_not_available", kind="network"),
            "The model's provider cannot be reached: no route to host. Try again when the network is back.",
        ),
        (
            ProviderError("a is left alone", outcome="provider_not_available", hint="reset it"),
            "No model can be asked just now: a is left alone (reset it)",
        ),
        (ProviderError("\n  it   broke\nTraceback", outcome="stream_error"), "stream_error: it broke"),
        (ProviderError("x" * 300, outcome="model_not_found"), f"model_not_found: {'x' * 199}…"),
        (ProviderError("", outcome="upstream_error", kind="server"), "upstream_error: it did not say why"),
        (Unavailable("no model", hint="add one"), "no model (add one)"),
    ],
)
def test_a_failure_in_words_for_people(error: OwlError, words: str) -> None:
    assert excuse(error) == words
    assert of_error(error, is_begun=False).text == words


@pytest.mark.covers("A-127", "A-126")
@pytest.mark.parametrize("code", PROVIDER_CODES)
def test_every_code_of_a_provider_crosses_the_socket_as_it_is(code: str) -> None:
    made = from_outcome(code, "why", "next")
    assert isinstance(made, ProviderError)
    made.kind, made.retry_after_s = "rate", 7.5
    with pytest.raises(ProviderError) as caught:
        raise_error(error_frame(1, made)["error"])
    found = caught.value
    assert (found.outcome, found.status, found.kind, found.retry_after_s) == (code, PROVIDER_CODES[code], "rate", 7.5)
    assert (found.message, found.hint, isinstance(found, TooLarge)) == ("why", "next", code == "context_too_long")
    assert type(found) is type(made) and not isinstance(found, BadInput)


def test_a_kind_of_error_without_a_label_of_its_own_takes_none_away() -> None:
    class Special(OwlError):
        def __init__(self, message: str) -> None:
            super().__init__(message)

    assert type(from_outcome(OwlError.outcome, "why", "next")) is OwlError
    assert Special("why").outcome == OwlError.outcome


def test_an_answer_without_network_ends_so_that_a_worker_can_tell() -> None:
    assert of_error(ProviderError("gone", outcome="provider_not_available", kind="network"), is_begun=False).outcome == "offline"
    assert of_error(ProviderError("gone", kind="network"), is_begun=True).status == 499
    assert of_error(ContextTooLong("much"), is_begun=False).outcome == "context_too_long"
