"""owlbox onboard: answers are piped in as they would be typed, and the files are looked at."""

import tomllib
from typing import Any

import pytest
from process import Box, a_box  # noqa: F401

from appliance.ingest import prompt_documents


def files(box: Box) -> dict[str, str]:
    return {path.name: path.read_text() for path in (box.home.config, *sorted(box.home.box.glob("*.md")))}


def onboard(box: Box, *lines: str) -> Any:
    done = box.run("onboard", "--no-test", text="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.covers("E-294", "S-121")
def test_empty_answers_change_nothing_however_often(box: Box) -> None:
    (box.home.box / "SOUL.md").write_text("Mine.")
    before = files(box)
    for _ in range(2):
        onboard(box, *[""] * 8)
        assert files(box) == before


@pytest.mark.covers("E-294", "S-122")
def test_documents_are_replaced_after_a_yes_for_all_and_a_yes_for_each(box: Box) -> None:
    for name in ("SOUL", "USER"):
        (box.home.box / f"{name}.md").write_text("Mine.")
    (box.home.box / "GOALS.md").unlink()
    onboard(box, "", "", "n")
    assert (box.home.box / "SOUL.md").read_text() == "Mine." and (box.home.box / "GOALS.md").exists()
    onboard(box, "", "", "y", "n", "y")
    assert (box.home.box / "SOUL.md").read_text() == "Mine."
    assert (box.home.box / "USER.md").read_text() == prompt_documents.shipped("USER")


@pytest.mark.covers("S-123")
def test_the_first_questions_come_back_only_after_a_yes(box: Box) -> None:
    bootstrap = box.home.box / "BOOTSTRAP.md"
    bootstrap.unlink(missing_ok=True)
    onboard(box, "", "", "")
    assert not bootstrap.exists()
    onboard(box, "", "", "y")
    assert bootstrap.read_text() == prompt_documents.shipped("BOOTSTRAP")


@pytest.mark.covers("S-124")
def test_addresses_of_the_owner_are_one_a_line_and_none_keeps_the_old_ones(box: Box) -> None:
    onboard(box, "", "ada@example.org", "@ada:x matrix", "")
    aliases = tomllib.loads(box.home.config.read_text())["people"]["owner_aliases"]
    assert aliases == ["ada@example.org", {"address": "@ada:x", "channel": "matrix"}]
    assert "@ada:x matrix" in onboard(box, "", "").stderr
    assert tomllib.loads(box.home.config.read_text())["people"]["owner_aliases"] == aliases


@pytest.mark.covers("S-121")
def test_a_service_is_asked_first_with_its_key_in_the_vault_and_the_key_is_never_shown(box: Box) -> None:
    key = "sk-hidden-0123456789"
    done = onboard(box, "n", "openai", "gpt-x", key, "")
    settings = tomllib.loads(box.home.config.read_text())
    assert settings["pools"]["default"] == ["openai/gpt-x", "local"] and settings["models"]["local_only"] is False
    assert settings["providers"]["openai"]["key"] == "secret:llm/openai"
    before = files(box)
    again = onboard(box, "", "", "", "", "")
    assert files(box) == before and "[openai]" in again.stderr and "[gpt-x]" in again.stderr and "[********]" in again.stderr
    assert key not in done.stdout + done.stderr + again.stdout + again.stderr + "".join(before.values())
    assert "llm/openai" in box.run("secret", "list").stdout


def test_a_running_core_uses_what_was_changed_or_says_what_it_waits_for(box: Box) -> None:
    core = box.serve()
    done = onboard(box, "n", "acme", "https://api.example.org/v1", "large", "sk-0123456789", "ada@example.org", "", "")
    assert "The running core uses" in done.stdout and "people.owner_aliases" in done.stdout.partition("after a restart: ")[2]
    assert "The running core uses" not in onboard(box, "", "", "").stdout
    assert core.call("core.reload")["changed"] == ""
