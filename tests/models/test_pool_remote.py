"""Remote routes of a pool: which names mean what, who is inert, what is cheapest, how many at a time, and what it costs."""

import threading
from pathlib import Path

import pytest
import wire
from record_tools import replace
from services import BROKEN, CUT, DENIED, GARBLED, LIMITED, SLOW, Stage, asked, pooled, service
from test_pool import dropped

from appliance.clock import CancelToken, monotonic_s
from appliance.errors import (
    Cancelled,
    ConfigError,
    DeadlineExceeded,
    Exhausted,
    NotFound,
    OwlError,
    ProviderError,
    Refused,
    Unavailable,
)
from appliance.models.pool import Pool
from appliance.models.rate_limit import Throttle
from appliance.models.remote_models import Breaker
from appliance.records import Finish, Piece
from appliance.runtime import config
from appliance.runtime.paths import Home
from appliance.runtime.settings import PROVIDERS, Config, ModelSettings, Price, ProviderSettings, RouteTable, Spending

OPEN = ModelSettings(local_only=False)


def ends(pool: Pool, name: str, words: str = "hi", **more: object) -> Finish:
    """How an answer of one route ends."""
    *_, finish = pool.generate(name, asked(words, **more), CancelToken())
    assert isinstance(finish, Finish)
    return finish


# -- names -----------------------------------------------------------------------------------------------


@pytest.mark.covers("A-108", "R-197")
@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [("a/m", "a", "m"), ("a/meta-llama/x", "a", "meta-llama/x"), ("a/x:free@eu/y", "a", "x:free@eu/y"), ("big", "b", "q/r")],
)
def test_the_first_segment_is_the_provider_and_the_rest_the_model(tmp_path: Path, name: str, provider: str, model: str) -> None:
    pool = pooled(tmp_path, Stage(), routes={"big": RouteTable("b", "q/r", context=300, max_output_tokens=20)})
    (route,) = pool.plan(name)
    assert (route.name, route.provider, route.model, route.is_remote, route.dialect) == (name, provider, model, True, "native")
    assert (ends(pool, name).provider, ends(pool, name).model) == (provider, model)


@pytest.mark.covers("R-197")
def test_a_provider_that_nobody_configured_is_never_asked(tmp_path: Path) -> None:
    stage = Stage({"openai/gpt-4o": [["hoot"]]})
    pool = pooled(tmp_path, stage, pools={"default": ("openai/gpt-4o", "a/m")})
    assert [route.name for route in pool.plan()] == ["a/m"]
    with pytest.raises(ProviderError, match="provider openai is not configured") as caught:
        pool.plan("openai/gpt-4o")
    assert "owlbox secret set llm/openai" in caught.value.hint
    pool.remotes.listing(CancelToken())
    assert not [name for name in stage.heard if name.startswith(("openai", "ollama"))]
    assert [one["name"] for one in pool.remotes.status()["providers"]] == ["a", "b", "c"]
    named = pooled(tmp_path, Stage({"ollama/x": [["hoot"]]}), pools={"default": ("ollama/x",)})
    assert [one["name"] for one in named.remotes.status()["providers"]] == ["ollama", "a", "b", "c"]
    assert ends(named, "ollama/x").provider == "ollama"


def test_a_provider_that_nobody_knows_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="no provider nobody") as caught:
        pooled(tmp_path, Stage()).plan("nobody/m")
    assert caught.value.outcome == "provider_not_found" and "openrouter" in caught.value.hint


@pytest.mark.covers("S-025")
def test_a_server_of_this_machine_is_a_provider_like_any_other_and_needs_no_key(tmp_path: Path) -> None:
    near = ProviderSettings(base_url="http://127.0.0.1:9/v1")
    pool = pooled(
        tmp_path,
        Stage(),
        providers={
            "lab": near,
            "pc": ProviderSettings(base_url="http://pc.home.arpa/v1"),
            "ollama": replace(PROVIDERS["ollama"], timeout_s=60),
        },
    )
    assert [pool.plan(name)[0].provider for name in ("lab/m", "pc/m", "ollama/m")] == ["lab", "pc", "ollama"]
    assert ends(pool, "lab/m").cost_micros == 0


@pytest.mark.covers("S-020", "R-200")
def test_a_window_is_what_is_configured_or_listed_or_discovered_or_a_hundred_thousand(tmp_path: Path) -> None:
    stage = Stage(windows={"mine": 7000, "said": 9000})
    tables = {"set": RouteTable("a", "mine", context=300), "found": RouteTable("a", "said")}
    pool = pooled(tmp_path, stage, routes=tables)
    windows = {name: pool.plan(name)[0].window for name in ("set", "found", "a/mine", "a/gpt-4o", "a/nobody-knows")}
    assert windows == {"set": 300, "found": 9000, "a/mine": 7000, "a/gpt-4o": 128_000, "a/nobody-knows": 100_000}
    pool.plan("found")
    assert stage.heard == ["a/said?", "a/mine?", "a/nobody-knows?"]  # each is asked once
    most = {name: pool.plan(name)[0].max_tokens for name in windows}  # an answer leaves room for the question
    assert most == {"set": 75, "found": 2250, "a/mine": 1750, "a/gpt-4o": 8192, "a/nobody-knows": 8192}


@pytest.mark.covers("A-123", "A-117", "A-122", "A-118", "A-124", "S-020")
def test_defaults_of_providers() -> None:
    usual = Config().providers
    assert {(one.timeout_s, one.requests_per_minute, one.concurrent) for one in usual.values()} == {(120, 60, 10)}
    assert (usual["anthropic"].priority, usual["openai"].priority) == (10, 20)
    assert usual["anthropic"].fallback == usual["openai"].fallback == ("openrouter",) and usual["gemini"].fallback == ()
    assert not any(one.key or one.reasoning for one in usual.values())


@pytest.mark.covers("A-111")
@pytest.mark.parametrize("role", ["default", "small"])
def test_which_model_a_role_has_is_a_line_of_the_configuration(tmp_path: Path, role: str) -> None:
    file = tmp_path / "owlbox.toml"
    head = '[models]\nlocal_only = false\n[providers.openai]\nkey = "k"\n[providers.gemini]\nkey = "k"\n[pools]\n'
    for model in ("openai/gpt-4o", "gemini/gemini-2.5-pro"):
        file.write_text(f'{head}{role} = ["{model}"]\n')
        pool = Pool(Home(tmp_path), config.load(Home(tmp_path), {}, path=file), make=Stage().make)
        (route,) = pool.plan(role)
        assert (route.name, ends(pool, route.name).provider) == (model, model.partition("/")[0])
        pool.close()


# -- who stands in for whom ------------------------------------------------------------------------------


@pytest.mark.covers("A-118")
def test_providers_that_stand_in_follow_the_route_they_stand_in_for(tmp_path: Path) -> None:
    known = {
        "anthropic": replace(PROVIDERS["anthropic"], key="k", fallback=("openrouter", "bedrock")),
        "openrouter": replace(PROVIDERS["openrouter"], key="k"),
        "bedrock": service(priority=5),
        "plain": service(),
    }
    pool = pooled(tmp_path, Stage(), providers=known, pools={"default": ("anthropic/claude-x", "plain/m")})
    names = [route.name for route in pool.plan()]
    assert names == ["anthropic/claude-x", "bedrock/claude-x", "openrouter/anthropic/claude-x", "plain/m"]
    assert [route.name for route in pool.plan("plain/m")] == ["plain/m"]
    keyless = known | {"openrouter": PROVIDERS["openrouter"]}
    pool = pooled(tmp_path, Stage(), providers=keyless, pools={"default": ("anthropic/claude-x",)})
    assert [route.name for route in pool.plan()] == ["anthropic/claude-x", "bedrock/claude-x"]


@pytest.mark.covers("A-120")
def test_an_alias_goes_to_the_cheapest_and_a_pinned_model_stays_where_it_is(tmp_path: Path) -> None:
    prices = {"a/m": Price(3, 15), "b/m": Price(1, 2), "c/org/m": Price(1, 2)}
    known = {"a": service(), "b": service(priority=50), "c": service(priority=10)}
    tables = {"best": RouteTable("a", "m", also=("b/m", "c/org/m", "openai/m"))}
    pool = pooled(tmp_path, Stage(), providers=known, routes=tables, prices=prices, pools={"default": ("best",)})
    assert [route.name for route in pool.plan()] == ["c/org/m", "b/m", "best"]
    assert [route.name for route in pool.plan("a/m")] == ["a/m"]
    unknown = pooled(tmp_path, Stage(), providers=known, routes=tables, prices={"b/m": Price(9, 9)})
    assert [route.name for route in unknown.plan("best")][0] == "b/m"  # a price that nobody knows is no bargain


def test_a_pool_falls_to_the_local_model_when_its_providers_are_away(tmp_path: Path) -> None:
    stage = Stage({"a/m": [[BROKEN]]})
    home = dropped(tmp_path, "owl")
    pool = pooled(home.root, stage, pools={"default": ("a/m", "local")})
    seen = [(route.name, route.dialect, route.is_remote) for route in pool.plan()]
    assert seen == [("a/m", "native", True), ("local", "grammar", False)]
    for _ in range(3):
        with pytest.raises(ProviderError):
            ends(pool, "a/m")
    assert [route.name for route in pool.plan()] == ["local"]


@pytest.mark.parametrize("name", ["a/m", "big", "ollama/m"])
def test_local_only_refuses_every_provider(tmp_path: Path, name: str) -> None:
    stage = Stage()
    pool = pooled(tmp_path, stage, models=ModelSettings(), routes={"big": RouteTable("b", "m")})
    for act in (lambda: pool.plan(name), lambda: ends(pool, name), lambda: pool.measure(name, asked(), CancelToken())):
        with pytest.raises(Unavailable, match=r"models\.local_only is true"):
            act()
    assert pool.remotes.listing(CancelToken()) == [] and stage.heard == []
    assert pool.remotes.status() == {"is_local_only": True, "providers": [], "spending": {}}


# -- how a request goes ----------------------------------------------------------------------------------


@pytest.mark.covers("A-122")
def test_several_remote_streams_run_at_once(tmp_path: Path) -> None:
    meeting = threading.Barrier(4)  # each goes on only when all have begun
    pool = pooled(tmp_path, Stage({"a/m": [["one ", meeting, "two"]]}))
    found: list[str] = []

    def run() -> None:
        found.append("".join(p.text for p in pool.generate("a/m", asked(), CancelToken()) if isinstance(p, Piece)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["one two"] * 4
    assert not pool.status()["is_busy"]


@pytest.mark.covers("A-122")
def test_more_than_the_concurrent_ones_wait_and_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    known = {"a": service(concurrent=1)}
    pool = pooled(tmp_path, Stage({"a/m": [["one ", "two"]]}), providers=known, pools={"default": ("a/m",)})
    holder = pool.generate("a/m", asked(), CancelToken())
    next(holder)
    with pytest.raises(DeadlineExceeded, match=r"a had no room for this request within 0\.1 s"):
        ends(pool, "a/m", deadline_s=0.1)
    stop = CancelToken()
    threading.Timer(0.05, stop.set).start()
    with pytest.raises(Cancelled):
        list(pool.generate("a/m", asked(), stop))
    assert pool.remotes.status()["providers"][0]["open"] == 1
    list(holder)
    assert ends(pool, "a/m").provider == "a"


@pytest.mark.covers("A-117")
def test_requests_beyond_the_limit_wait_until_the_minute_is_over() -> None:
    throttle = Throttle("a", 3, 10, period_s=0.4)
    begun: list[float] = []
    began_s = monotonic_s()

    def work() -> None:
        with throttle.turn(CancelToken(), 60):
            begun.append(monotonic_s() - began_s)

    threads = [threading.Thread(target=work) for _ in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begun.sort()
    assert len(begun) == 7 and begun[3] >= 0.4 and begun[6] >= 0.8  # never more than three in any 0.4 s
    assert throttle.load().waiting == 0


@pytest.mark.covers("A-117")
def test_requests_are_let_through_in_the_order_they_came() -> None:
    throttle = Throttle("a", 100, 1)
    order: list[int] = []

    def work(number: int) -> None:
        with throttle.turn(CancelToken(), 60):
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    with throttle.turn(CancelToken(), 60):
        for number, thread in enumerate(threads):
            thread.start()
            while throttle.load().waiting <= number:
                threading.Event().wait(0.005)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]


@pytest.mark.covers("A-124")
def test_a_breaker_opens_after_three_in_a_row_for_a_minute_and_one_success_closes_it() -> None:
    breaker = Breaker()
    assert [breaker.failed(at_s, "oops") for at_s in (0.0, 1.0)] == [False, False] and breaker.left_s(1) == 0
    breaker.succeeded()
    assert [breaker.failed(at_s, "oops") for at_s in (2.0, 3.0, 4.0)] == [False, False, True]
    assert (breaker.left_s(4), breaker.left_s(63.9) > 0, breaker.left_s(64), breaker.standing.why) == (60, True, 0, "oops")
    assert breaker.failed(65, "again") and breaker.left_s(66) == 59  # a second chance that failed
    breaker.reset()
    assert breaker.left_s(66) == 0 and breaker.standing.failures == 0


@pytest.mark.parametrize("error", [DENIED, LIMITED, ProviderError("no", outcome="invalid_request")])
def test_what_is_refused_or_only_busy_does_not_count_as_a_failure(tmp_path: Path, error: OwlError) -> None:
    pool = pooled(tmp_path, Stage({"a/m": [[error]]}))
    for _ in range(5):
        with pytest.raises(ProviderError) as caught:
            ends(pool, "a/m")
        assert caught.value is error


@pytest.mark.covers("A-023")
def test_a_malformed_answer_is_asked_for_once_more(tmp_path: Path) -> None:
    stage = Stage({"a/m": [[GARBLED], ["hoot"]], "b/m": [[GARBLED]]})
    pool = pooled(tmp_path, stage)
    assert ends(pool, "a/m").reason == "stop" and stage.heard.count("a/m") == 2
    with pytest.raises(ProviderError, match="JSON"):
        ends(pool, "b/m")
    assert stage.heard.count("b/m") == 2


def test_a_model_that_ends_thoughts_it_never_opened_is_known_to_the_next_broker(tmp_path: Path) -> None:
    def said(name: str) -> str:
        settings = Config(models=OPEN, providers={"a": ProviderSettings(base_url=server.url)})
        pool = Pool(Home(tmp_path), settings)
        pieces = list(pool.generate(name, asked("hi"), CancelToken()))
        pool.close()
        return "".join(piece.text for piece in pieces if isinstance(piece, Piece))

    bare = wire.Turn(chunks=("A mouse?", "</think>", "Yes."))
    with wire.playing(bare, bare, bare) as server:
        assert [said(name) for name in ("a/m", "a/m", "a/other")] == ["A mouse?</think>Yes.", "Yes.", "A mouse?</think>Yes."]


def test_a_key_is_looked_up_at_each_request(tmp_path: Path) -> None:
    stage, given = Stage(), ["first", "second"]
    settings = Config(models=OPEN, providers={"a": service(key="secret:llm/a")}, pools={"default": ("a/m",)})
    pool = Pool(Home(tmp_path), settings, secret=lambda name: f"{name}={given.pop(0)}", make=stage.make)
    ends(pool, "a/m")
    ends(pool, "a/m")
    assert stage.keys == ["secret:llm/a=first", "secret:llm/a=second"]


def test_an_answer_is_asked_to_be_no_longer_than_its_route_allows(tmp_path: Path) -> None:
    stage = Stage()
    pool = pooled(tmp_path, stage, routes={"big": RouteTable("a", "m", max_output_tokens=70)})
    ends(pool, "big", max_tokens=5000)
    assert stage.asks[0].max_tokens == 70


# -- what it costs ---------------------------------------------------------------------------------------


@pytest.mark.covers("A-116", "A-119", "R-201", "A-128")
def test_a_finish_says_who_answered_and_what_it_cost(tmp_path: Path) -> None:
    finish = Finish("stop", prompt_tokens=1000, cached_tokens=400, cache_write_tokens=100, output_tokens=50, model="m-2026")
    stage = Stage({"a/m": [["hoot", finish]], "b/m": [["hoot", finish]]})
    pool = pooled(tmp_path, stage, prices={"a/m": Price(3, 15, 0.3, 3.75)})
    found = ends(pool, "a/m", person="ada")
    assert (found.provider, found.model, found.cost_micros) == ("a", "m-2026", 500 * 3 + 120 + 375 + 750)
    assert ends(pool, "b/m").cost_micros is None  # nobody knows
    assert pool.remotes.status()["spending"]["day_tokens"] == 2100
    assert pool.remotes.status()["spending"]["day_usd"] == pytest.approx(0.002745)


@pytest.mark.covers("A-128")
def test_at_a_limit_remote_models_are_refused_and_free_ones_are_not(tmp_path: Path) -> None:
    known = {"a": service(), "lab": ProviderSettings(base_url="http://10.0.0.2/v1")}
    stage, limits = Stage(), Spending(person_day_usd=0.6)
    pool = pooled(tmp_path, stage, providers=known, prices={"a/m": Price(100, 1000)}, spending=limits, pools={"default": ("a/m",)})
    assert ends(pool, "a/m", person="ada", max_tokens=512).cost_micros == 100 * 100 + 10 * 1000
    assert ends(pool, "a/m", person="ada", max_tokens=512).provider == "a"
    used = pool.remotes.status()["spending"]
    with pytest.raises(Exhausted, match="may cost"):
        ends(pool, "a/m", person="ada", max_tokens=600)
    assert pool.remotes.status()["spending"] == used and len(stage.asks) == 2
    assert ends(pool, "a/m", person="ben", max_tokens=512) and ends(pool, "lab/m", person="ada", max_tokens=9000)


def test_with_a_limit_of_money_a_model_without_a_price_is_refused(tmp_path: Path) -> None:
    pool = pooled(tmp_path, Stage(), spending=Spending(day_usd=5))
    with pytest.raises(Refused, match="nobody knows what a/m costs"):
        ends(pool, "a/m")
    assert ends(pooled(tmp_path, Stage(), spending=Spending(day_tokens=9000)), "a/m").cost_micros is None


def test_an_answer_that_is_stopped_costs_what_was_seen_and_one_that_never_began_nothing(tmp_path: Path) -> None:
    pool = pooled(tmp_path, Stage({"a/m": [["x" * 40, "y" * 40]], "b/m": [[DENIED]]}), prices={"m": Price(1, 1)})
    answer = pool.generate("a/m", asked("w" * 30), CancelToken())
    next(answer)
    assert pool.remotes.status()["spending"]["day_tokens"] == 30 + 512
    answer.close()
    assert pool.remotes.status()["spending"]["day_tokens"] == 30 + 20
    with pytest.raises(ProviderError):
        ends(pool, "b/m")
    assert pool.remotes.status()["spending"]["day_tokens"] == 50


@pytest.mark.covers("A-128")
def test_what_is_put_down_before_a_request_is_the_most_it_may_cost(tmp_path: Path) -> None:
    known = {"a": service(reasoning=True), "b": service()}
    prices = {"m": Price(1, 1, 0.1, 1.25)}
    pool = pooled(tmp_path, Stage(), providers=known, prices=prices, routes={"deep": RouteTable("a", "m", max_output_tokens=900)})
    for name, micros, count in (("b/m", 1000 + 200, 1000), ("deep", 1000 + 900, 1700)):
        before = pool.remotes.status()["spending"]
        answer = pool.generate(name, asked("w" * 800, max_tokens=200), CancelToken())
        next(answer)
        now = pool.remotes.status()["spending"]
        assert round((now["day_usd"] - before["day_usd"]) * 1e6) == micros and now["day_tokens"] - before["day_tokens"] == count
        answer.close()


@pytest.mark.parametrize(
    ("error", "tokens"),
    [(NotFound("no secret llm/a"), 0), (DENIED, 0), (BROKEN, 0), (CUT, 30), (SLOW, 30), (DeadlineExceeded("too long"), 30)],
    ids=lambda value: value.outcome if isinstance(value, OwlError) else "",
)
def test_a_failure_costs_nothing_unless_it_may_have_been_answered(tmp_path: Path, error: OwlError, tokens: int) -> None:
    pool = pooled(tmp_path, Stage({"a/m": [[error]]}), prices={"m": Price(1, 1)})
    with pytest.raises(type(error)):
        ends(pool, "a/m", "w" * 30)
    assert pool.remotes.status()["spending"]["day_tokens"] == tokens


def test_who_is_stopped_while_waiting_in_line_spends_nothing(tmp_path: Path) -> None:
    pool = pooled(tmp_path, Stage(), providers={"a": service(concurrent=1)})
    first = pool.generate("a/m", asked(), CancelToken())
    next(first)
    before = pool.remotes.status()["spending"]
    with pytest.raises(DeadlineExceeded):
        ends(pool, "a/m", "w" * 30, deadline_s=0.05)
    assert pool.remotes.status()["spending"] == before
    first.close()


def test_an_answer_is_none_the_worse_when_its_cost_cannot_be_put_down(tmp_path: Path) -> None:
    pool = pooled(tmp_path, Stage(), prices={"m": Price(1, 1)})
    answer = pool.generate("a/m", asked("w" * 30), CancelToken())
    next(answer)
    (lock,) = tmp_path.rglob("spend.lock")
    lock.unlink()
    lock.mkdir()
    *_, finish = answer
    assert isinstance(finish, Finish)
    lock.rmdir()
    assert pool.remotes.status()["spending"]["day_tokens"] == 30 + 512  # the most stays put down


# -- looking ---------------------------------------------------------------------------------------------


@pytest.mark.covers("A-129")
def test_a_listing_holds_the_models_of_all_configured_providers_and_says_who_did_not_answer(tmp_path: Path) -> None:
    stage = Stage({"a/m": [[""]], "a/org/n": [[""]], "b/m": [[""]], "c/m": [[""]]}, silent=("b",))
    pool = pooled(tmp_path, stage, prices={"a/m": Price(3, 15)})
    found = pool.remotes.listing(CancelToken())
    assert [(one.get("name"), one.get("problem")) for one in found] == [
        ("a/m", None),
        ("a/org/n", None),
        (None, "no route to host"),
        ("c/m", None),
    ]
    assert (found[0]["window"], found[0]["input_usd"], found[1]["input_usd"]) == (1000, 3, None)


def test_a_reset_of_nobody_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no provider z"):
        pooled(tmp_path, Stage()).remotes.reset("z")


# -- the configuration -----------------------------------------------------------------------------------


@pytest.mark.covers("S-021", "S-020")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[models]\npool = "none"', "models.pool"),
        ('[pools]\ndefault = ["nope"]', "pools.default[0]"),
        ('[pools]\ndefault = ["local", "nobody/m"]', "pools.default[1]"),
        ('[routes.r]\nprovider = "nobody"\nmodel = "m"', "routes.r.provider"),
        ('[routes.r]\nprovider = "openai"\nmodel = "m"\nalso = ["nobody/m"]', "routes.r.also[0]"),
        ('[routes.r]\nprovider = "openai"\nmodel = "m"\nalso = ["openai"]', "routes.r.also[0]"),
        ('[heartbeat]\npool = "none"', "heartbeat.pool"),
        ("[pools]\nempty = []", "pools.empty"),
        ('[providers.openai]\nfallback = ["none"]', "providers.openai.fallback[0]"),
        ('[pools]\nbig = ["anthropic/m"]', "providers.anthropic.key"),
        ("[prices.m]\ninput = -1", "prices.m.input"),
        ('[prices."a b"]\ninput = 1', "prices.a b"),
        ("[spending]\nday_usd = -1", "spending.day_usd"),
    ],
)
def test_a_bad_reference_is_named_when_the_file_is_read(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "owlbox.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(Home(tmp_path), {})
    assert caught.value.key == key and key in str(caught.value)


@pytest.mark.covers("S-020", "A-108")
def test_a_key_alone_makes_a_known_provider_usable(tmp_path: Path) -> None:
    text = '[pools]\ndefault = ["openai/gpt-4o", "local"]\n[prices."openai/gpt-4o:x"]\ninput = 1\n[models]\nlocal_only = false\n'
    (tmp_path / "owlbox.toml").write_text(text + '[providers.openai]\nkey = "secret:llm/openai"\n')
    found = config.load(Home(tmp_path), {})
    assert found.providers["openai"].base_url == "https://api.openai.com/v1" and found.prices["openai/gpt-4o:x"].input == 1
    assert config.secrets(found) == ()
