"""Sentences as people say them, written before the grammar was: right, or asked back, and never silently wrong."""

import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from appliance.errors import BadInput
from appliance.language.languages import Languages
from appliance.language.times import recurrence, time_expression

ZONE = "Europe/Berlin"
NOW_MS = int(datetime(2026, 3, 5, 12, tzinfo=ZoneInfo(ZONE)).timestamp() * 1000)  # a Thursday
ITEMS = [json.loads(line) for line in Path(__file__).with_name("fresh.jsonl").read_text("utf-8").splitlines()]
LANGUAGES = Languages()


def read(said: str) -> time_expression.TimeExpression:
    likely = sorted(LANGUAGES.detect(said), key=lambda one: -one.lexicon.count_words(said))
    return time_expression.split(said, likely[0].lexicon, NOW_MS, ZONE)


def fits(wanted: str, got: datetime) -> bool:
    """Whether a moment is one of those wanted: days, moments, or times of a day from one to another."""
    for one in wanted.split("|"):
        first, _, last = one.partition("..")
        if f"{got:%Y-%m-%dT%H:%M}".startswith(first) or (last and first <= f"{got:%Y-%m-%dT%H:%M}" <= f"{first[:11]}{last}"):
            return True
    return False


@pytest.mark.covers("B-051")
@pytest.mark.parametrize("item", ITEMS, ids=[one["say"] for one in ITEMS])
def test_a_sentence_is_understood_whole_or_asked_back(item: dict[str, object]) -> None:
    try:
        found = read(str(item["say"]))
    except BadInput:
        found = time_expression.TimeExpression("")
    if found.rule is None:
        assert item.get("ask")
        return
    assert item.get("ask") != "only"
    moments = [datetime.fromtimestamp(ms / 1000, ZoneInfo(ZONE)) for ms in recurrence.upcoming(found.rule, NOW_MS)]
    if "last" in item:
        assert fits(
            str(item["last"]), datetime.fromtimestamp(recurrence.upcoming(found.rule, NOW_MS, 99)[-1] / 1000, ZoneInfo(ZONE))
        )
    wanted = item["at"]
    assert isinstance(wanted, list) and len(moments) >= len(wanted) and all(map(fits, wanted, moments))
    assert item.get("once", found.rule.kind == "once") == (found.rule.kind == "once")
    assert str(item.get("text", found.text)).lower() == found.text.lower()
