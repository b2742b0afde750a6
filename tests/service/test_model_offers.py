"""A better model is offered once, fetched beside everything else, tried, and used; every trouble is one line."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from process import Box, a_box, until  # noqa: F401
from record_tools import replace
from test_download import DATA, SHA256, Handler, Server, server  # noqa: F401
from test_gguf import model

from appliance.clock import CancelToken
from appliance.errors import BadInput, Busy, Cancelled, Conflict, DiskFull, NotFound
from appliance.models import catalogue
from appliance.models.client import Models
from appliance.models.tiers import Measured
from appliance.runtime.paths import Home
from appliance.runtime.settings import Config
from appliance.runtime.settings import Models as ModelSettings
from appliance.service.broker_process import ExternalBroker
from appliance.service.local_models import LocalModels, Progress
from appliance.service.model_offers import ModelOffers

ENTRY = """
[{name}]
title = "for a test"
licence = "MIT"
source = "url"
url = "{url}"
file = "{name}.gguf"
size_bytes = {size}
sha256 = "{sha256}"
ram_mb = {ram}
score = {score}
"""
PRESENT = ENTRY.format(name="present", url="https://example.org/p", size=0, sha256="00" * 32, ram=90, score=1)
AWAY = "http://127.0.0.1:9/better.gguf"


class Offered:
    """The offers of a home with one model of the catalogue in use, and what people were told."""

    def __init__(self, root: Path, *, url: str = AWAY, size: int = len(DATA), sha256: str = SHA256, ram: int = 100) -> None:
        self.home = Home(root)
        self.home.models.mkdir(parents=True)
        (self.home.models / "present.gguf").write_bytes(model())
        better = ENTRY.format(name="better", url=url, size=size, sha256=sha256, ram=ram, score=99)
        (self.home.models / "catalogue.toml").write_text(PRESENT + better)
        self.config = Config()
        self.told: list[tuple[str, str]] = []
        self.broker = ExternalBroker(root / "nobody.sock")
        self.models = Models(self.broker, wait_s=0)
        self.local = LocalModels(self.home, lambda: self.config, self.models, self.broker)
        self.offers = self.again()

    def again(self) -> ModelOffers:
        """The offers as the next core has them."""
        return ModelOffers(self.home, lambda: self.config, self.local, lambda person, text: self.told.append((person, text)))


@pytest.fixture(name="make")
def a_home_with_an_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Offered]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda **given: Offered(tmp_path / "home", **given)


def quiet(stage: str, done: int, total: int) -> None:
    pass


# -- what is offered ----------------------------------------------------------------------------------


def test_the_best_that_fits_is_offered_once_to_each_person_and_never_again_once_declined(make: Callable[..., Offered]) -> None:
    home = make()
    line = home.offers.first("ada")
    assert line.startswith("A more capable model fits this computer: better (") and "MIT" in line and "\n" not in line
    assert home.offers.first("ada") == home.again().first("ada") == "" and home.offers.first("tom") == line
    assert home.offers.view()["state"] == "offered"
    assert "better is not offered again" in home.offers.decline()
    assert home.again().first("lea") == "" and home.again().view()["state"] == "declined"
    assert home.offers.accept("ada", is_lasting=False).startswith("better is being fetched"), "but it may be wanted all the same"


@pytest.mark.parametrize("reason", ["chosen by name", "script", "remote first", "own file", "memory", "disk", "pace", "is here"])
def test_nothing_is_offered_that_would_be_of_no_use(make: Callable[..., Offered], reason: str) -> None:
    home = make(ram=10_000_000 if reason == "memory" else 100, size=8 << 40 if reason == "disk" else len(DATA))
    if reason == "chosen by name":
        home.config = replace(Config(), models=replace(ModelSettings(), default="present"))
    elif reason == "script":
        home.config = replace(Config(), models=replace(ModelSettings(), script="play.toml"))
    elif reason == "remote first":
        home.config = replace(Config(), pools={"default": ("far", "local")})
    elif reason == "own file":
        (home.home.models / "present.gguf").rename(home.home.models / "mine.gguf")
    elif reason == "pace":
        path = home.home.models / "present.gguf"
        home.local.tiers.keep(path, Measured("tiny", 20, 24, 0, 3.0 * len(DATA) / path.stat().st_size * 0.9))
    elif reason == "is here":
        (home.home.models / "better.gguf").write_bytes(model())
    assert "better (" not in home.offers.first("ada") and home.offers.view()["name"] != "better"
    if reason in ("chosen by name", "script", "remote first", "own file"):
        assert home.offers.view()["state"] == "none"
        with pytest.raises(Conflict, match="no better model"):
            home.offers.accept("ada", is_lasting=False)


def test_a_file_of_what_is_remembered_that_cannot_be_read_is_begun_anew(make: Callable[..., Offered]) -> None:
    home = make()
    for text in ("", "[]", '{"wanted": 3}', '{"told": "x"}'):
        (home.home.models / "offer.json").write_text(text)
        assert home.offers.view()["state"] == "offered"
    with pytest.raises(NotFound, match="no model is wanted"):
        home.offers.fetch(quiet)


# -- troubles of the download -------------------------------------------------------------------------


def test_without_a_network_it_is_said_once_and_wanted_on(make: Callable[..., Offered]) -> None:
    home = make()
    home.offers.accept("ada", is_lasting=True)
    until(lambda: bool(home.told), "it is said")
    assert home.told[0][0] == "ada" and "better cannot be fetched now" in home.told[0][1] and "\n" not in home.told[0][1]
    home.offers.start()  # tried once more
    home.offers.close()
    later = home.again()
    later.start()
    later.close()
    assert len(home.told) == 1 and later.view()["state"] == "waiting"


def test_a_wrong_file_and_a_full_disk_end_it(make: Callable[..., Offered], server: Server) -> None:  # noqa: F811
    home = make(url=server.url, sha256="ab" * 32)
    home.offers.accept("ada", is_lasting=False)
    with pytest.raises(BadInput, match="SHA-256"):
        home.offers.fetch(quiet)
    assert not (home.home.models / "better.gguf").exists() and home.offers.view()["state"] == "offered"
    home.offers.accept("ada", is_lasting=False)
    own = home.home.models / "catalogue.toml"
    own.write_text(own.read_text().replace(f"size_bytes = {len(DATA)}", f"size_bytes = {8 << 40}"))
    with pytest.raises(DiskFull, match="MB of disk are needed"):
        home.offers.fetch(quiet)
    assert home.offers.view()["name"] != "better"


def test_in_the_background_the_reason_is_told_in_one_line(make: Callable[..., Offered], server: Server) -> None:  # noqa: F811
    home = make(url=server.url, sha256="ab" * 32)
    home.offers.accept("ada", is_lasting=True)
    until(lambda: bool(home.told), "it is said")
    home.offers.close()
    ((person, text),) = home.told
    assert (
        person == "ada"
        and text.startswith("better is not fetched: better.gguf: SHA-256 is")
        and "present goes on answering" in text
    )


def test_a_model_that_cannot_be_tried_is_kept_and_does_not_answer(make: Callable[..., Offered], server: Server) -> None:  # noqa: F811
    home = make(url=server.url)
    server.faults = [lambda handler: Handler.well(handler, cut=len(DATA) // 2)]
    home.offers.accept("ada", is_lasting=False)
    said = home.offers.fetch(quiet)
    assert said.startswith("better is here but could not be tried") and said.endswith("present goes on answering.")
    assert (home.home.models / "better.gguf").read_bytes() == DATA and len(server.asked) == 2, "resumed where it was cut"
    used = catalogue.in_use(home.home, "")
    assert used is not None and used.name == "present.gguf"


def test_a_download_that_is_declined_meanwhile_stops(make: Callable[..., Offered], server: Server) -> None:  # noqa: F811
    home = make(url=server.url)
    home.offers.accept("ada", is_lasting=False)

    def decline(stage: str, done: int, total: int) -> None:
        with pytest.raises(Busy):
            home.offers.accept("tom", is_lasting=False)
        home.offers.decline()

    with pytest.raises(Cancelled, match="stopped"):
        home.offers.fetch(decline)
    assert not (home.home.models / "better.gguf").exists() and home.offers.view()["state"] == "declined"


# -- what was tried -----------------------------------------------------------------------------------


class Tried(LocalModels):
    """Local models whose measuring, which takes minutes, comes to what it is told."""

    found: Measured
    asked: tuple[str, bool] = ("", False)

    def bench(
        self, model: str, seconds: float, progress: Progress, cancel: CancelToken, *, is_background: bool = False
    ) -> dict[str, Any]:
        self.asked = (model, is_background)
        self.tiers.keep(self._home.models / f"{model}.gguf", self.found)
        return {"tier": self.found.tier}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ((), (15, 24, 8.0), "better answers from now on: 15 of 24 everyday requests, 8 words/s, used as small. "),
        ((16, 24, 9.0), (15, 24, 8.0), "better answers from now on: "),
        ((17, 24, 9.0), (15, 24, 8.0), "better is here but does worse (15 of 24 everyday requests, 8 words/s): "),
        ((), (14, 24, 8.0), "better is here but does worse ("),
        ((), (24, 24, 1.4), "better is here but writes only 1.4 words/s: "),
    ],
)
def test_it_answers_from_now_on_when_it_does_as_well_and_otherwise_stays(
    make: Callable[..., Offered],
    server: Server,  # noqa: F811
    old: tuple[Any, ...],
    new: tuple[Any, ...],
    said: str,
) -> None:
    better = model(data=512)
    server.faults = [lambda handler: Handler.well(handler, data=better)]
    home = make(url=server.url, size=len(better), sha256=hashlib.sha256(better).hexdigest())
    home.local = local = Tried(home.home, lambda: home.config, home.models, home.broker)
    local.found = Measured("small", new[0], new[1], 0, new[2])
    if old:
        local.tiers.keep(home.home.models / "present.gguf", Measured("small", old[0], old[1], 0, old[2]))
    offers = home.again()
    offers.accept("ada", is_lasting=False)
    told = offers.fetch(quiet)
    used = catalogue.in_use(home.home, "")
    assert told.startswith(said) and local.asked == ("better", True) and used is not None
    if "from now on" in said:
        assert used.stem == "better" and told.endswith("owlbox model use present goes back.")
    else:
        assert used.stem == "present" and told.endswith("present goes on answering; owlbox model use better takes it all the same.")
    assert json.loads((home.home.models / "offer.json").read_text())["wanted"] == ""


def test_a_better_model_is_fetched_and_tried_while_talk_goes_on(box: Box, server: Server) -> None:  # noqa: F811
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    server.faults = [lambda handler: Handler.well(handler, cut=len(DATA) // 2)]
    (box.home.models / "present.gguf").write_bytes(model())
    better = ENTRY.format(name="better", url=server.url, size=len(DATA), sha256=SHA256, ram=100, score=99)
    (box.home.models / "catalogue.toml").write_text(PRESENT + better)
    core = box.serve()
    assert "better" in core.call("model.first_offer")["text"] and core.call("model.first_offer")["text"] == ""
    assert "present goes on answering" in box.json("model", "offer", "yes")["text"]
    assert box.run("ask", "What is 3 plus 4?").stdout.startswith("3 plus 4 = 7")
    until(lambda: core.call("model.offer")["name"] != "better", "it is here and was tried")
    tried = "better is here but could not be tried"
    until(lambda: any(one["text"].startswith(tried) for one in core.call("notice.waiting")), "the person is told")
    assert core.call("core.status")["local"]["model"] == "present" and len(server.asked) == 2
