"""The everyday set: how answers are judged, which tier follows, and a run with the real small model in a home of its own."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from model_fixtures import ONE_THREAD, model_file, model_home  # noqa: F401
from process import Box, a_box, left_over  # noqa: F401
from record_tools import replace

from appliance.errors import Unavailable
from appliance.models import catalogue
from appliance.records import Tier
from appliance.runtime.paths import Home
from appliance.service.bench import everyday
from appliance.service.bench.everyday_runs import CATEGORIES, Answered, Everyday
from appliance.service.bench.model_check import Calls
from appliance.service.local_models import MEANING, settle, told

ALL_CALLS = Calls(10, 10, 10, 9)
NO_CALLS = Calls(10, 2, 1, 0)


def run_of(tier: Tier, right: int, wrong: int = 0, category: str = "talk") -> Everyday:
    one = Answered(category, "?", "Yes.", "", 0.1, 0.2, 1)
    return Everyday(tier, (*[one] * right, *[replace(one, problem="too long")] * wrong), right + wrong)


# -- the set ------------------------------------------------------------------------------------------


def test_the_set_is_short_and_has_every_category() -> None:
    wanted = tomllib.loads(everyday.ITEMS.read_text(encoding="utf-8"))
    items = wanted["items"]
    assert 20 <= len(items) <= 30 and {item["category"] for item in items} == set(CATEGORIES)
    for item in items:
        assert set(item) <= {"category", "prompt", "any", "admits", "effect", "holds", "most", "is_weekday", "due"}
        assert (item["category"] == "act") == ("effect" in item)
    said = " ".join(wanted["notes"].values())
    for item in items:
        if item["category"] == "notes":
            assert any(word in said for word in item["any"]), item


@pytest.mark.parametrize(
    ("text", "item", "problem"),
    [
        ("The code is 5093.", {"any": ["5093"]}, ""),
        ("The code is 5094.", {"any": ["5093"]}, "without 5093"),
        ("", {}, "no answer"),
        ("  ", {}, "no answer"),
        ('{"name": "search", "arguments": {}}', {}, "a raw call, or markup"),
        ("<think> hm", {}, "a raw call, or markup"),
        ("I am here for it. I am here for it. I am here for it.", {}, "goes in circles"),
        ("one two three four five six seven eight " * 20, {}, "goes in circles"),
        (" ".join(f"word{n}" for n in range(101)), {}, "too long"),
        (" ".join(f"word{n}" for n in range(101)), {"most": 120}, ""),
        ("I find nothing about that in your notes.", {"admits": True}, ""),
        ("Your notes do not say.", {"admits": True}, ""),
        ("It is 12345.", {"admits": True}, "made something up"),
        ("Today is Someday.", {"is_weekday": True}, "another day"),
    ],
)
def test_an_answer_is_judged_by_its_words(text: str, item: dict[str, Any], problem: str) -> None:
    assert everyday.wrong_with(text, item) == problem


# -- the tier -----------------------------------------------------------------------------------------


def never(tier: Tier) -> Everyday:
    raise AssertionError(f"{tier} was tried")


def test_nobody_is_promoted_for_function_calls_alone() -> None:
    tried: list[Tier] = []

    def fails(tier: Tier) -> Everyday:
        tried.append(tier)
        return run_of(tier, 10, 10)

    assert settle(run_of("small", 20), ALL_CALLS, fails).tier == "small" and tried == ["able"]
    assert settle(run_of("small", 14, 6), ALL_CALLS, never).tier == "small"
    assert settle(run_of("small", 20), NO_CALLS, never).tier == "small"
    assert settle(run_of("small", 20), Calls(3, 3, 3, 3), never).tier == "small", "too few calls say nothing"


def test_a_model_rises_as_far_as_calls_and_everyday_go_well() -> None:
    assert settle(run_of("small", 20), ALL_CALLS, lambda tier: run_of(tier, 20)).tier == "able"
    assert settle(run_of("tiny", 20), ALL_CALLS, lambda tier: run_of(tier, 20)).tier == "able"
    assert settle(run_of("tiny", 20), ALL_CALLS, lambda tier: run_of(tier, 20 if tier == "small" else 5, 0)).tier == "small"
    assert settle(run_of("able", 20), ALL_CALLS, never).tier == "able"


def test_a_model_that_fails_in_its_tier_falls_one_and_one_that_cannot_be_asked_stays() -> None:
    def away(tier: Tier) -> Everyday:
        raise Unavailable("no memory")

    assert settle(run_of("able", 8, 12), ALL_CALLS, never).tier == "small"
    assert settle(run_of("small", 8, 12), NO_CALLS, never).tier == "tiny"
    assert settle(run_of("tiny", 2, 18), NO_CALLS, never).tier == "tiny"
    assert settle(run_of("small", 20), ALL_CALLS, away).tier == "small"


def test_what_a_model_is_good_for_is_said_in_words() -> None:
    some = (*run_of("tiny", 5).answers, *run_of("tiny", 3, 2, "notes").answers, *run_of("tiny", 0, 3, "text").answers)
    said = told(Everyday("tiny", some, 13), NO_CALLS, "tiny")
    assert said[0] == f"8 of 13 everyday requests went well. It is used as tiny: {MEANING['tiny']}."
    assert said[1:] == (
        "Good for: talk and plain questions.",
        "Sometimes wrong: questions about your notes.",
        "Not to be relied on: short work on a text; calling tools by itself.",
    )


# -- with the real small model ------------------------------------------------------------------------


@pytest.fixture(name="served")
def a_box_with_the_bundled_model(box: Box, model_home: Home) -> Box:  # noqa: F811
    del box.environ["OWLBOX__MODELS__SCRIPT"]
    box.environ.update(ONE_THREAD)
    file = catalogue.entries()["smollm2"].file
    (box.home.models / file).hardlink_to(model_home.models / file)
    return box


def homes_of_runs() -> set[str]:
    """The folders in which an everyday set runs; not those of sockets (`owlbox-UID-...`), which other programs make."""
    return {p.name for p in Path(os.environ.get("TMPDIR", "/tmp")).glob("owlbox-*") if p.name.count("-") == 1}


@pytest.mark.model
def test_the_bundled_model_is_measured_in_a_home_of_its_own(served: Box) -> None:
    served.serve()
    folders = homes_of_runs()
    found = served.json("model", "bench")
    rows = {row["category"]: row for row in found["everyday"]}
    assert list(rows) == list(CATEGORIES) and sum(row["asked"] for row in rows.values()) == 24
    assert rows["act"]["passed"] == rows["act"]["asked"] and rows["state"]["passed"] == rows["state"]["asked"]
    assert rows["notes"]["passed"] >= 5 and found["tier"] == "tiny" and found["basis"] == "measured on this device"
    assert "It is used as tiny" in found["verdict"][0]
    assert (found["model"], found["provider"]) == (catalogue.entries()["smollm2"].file.removesuffix(".gguf"), "llama")
    assert 0 < found["warm_tokens"] < found["cold_tokens"] / 4 and 400 < found["cold_tokens"] < 1200
    assert found["cold_s"] > 0 and found["warm_s"] > 0 and found["prefill_tokens_per_s"] > 0
    assert found["decode_tokens_per_s"] > 0 and found["rss_mb"] > 100
    assert found["calls"]["asked"] > 0 and len(found["verdict"]) >= 4
    assert served.json("thread", "list") == served.json("task", "list") == []
    assert {one["name"] for one in served.json("schedule", "list")} == {"Look after the database", "Look after the search index"}
    assert not list(served.home.box.glob("**/lantern*")), "nothing of it reaches the person's home"
    assert homes_of_runs() <= folders
    kept = json.loads((served.home.models / "tiers.json").read_text())
    assert kept[catalogue.entries()["smollm2"].file]["tier"] == "tiny"
    assert served.json("status")["local"]["basis"] == "measured on this device"
    said = served.run("model", "info", "smollm2").stdout
    assert "tiny, measured on this device: " in said and "everyday requests" in said


@pytest.mark.model
def test_what_does_not_fit_into_the_time_is_left_out_and_no_tier_is_kept(served: Box) -> None:
    found = served.json("model", "bench", "--seconds", "5")
    assert any(note.startswith("everyday: ") for note in found["notes"])
    assert not (served.home.models / "tiers.json").exists() and found["basis"].startswith("expected")
    assert not list((served.home.models / "prefix").glob("*"))  # the text is not kept on disk
    assert left_over(served) == []
