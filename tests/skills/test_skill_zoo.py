"""Skill files as they are found in public, in our own words: what each is read as, and why others are none."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import new_store

from appliance.errors import BadInput
from appliance.knowledge.entries import Entries
from appliance.skills.catalog import SkillCatalog, find_problems
from appliance.skills.skill_file import Skill, parse_skill
from appliance.skills.skill_records import SkillRecords

NOTE = "line 3: description is no YAML, and read as text"
# The lines after `description:` as they are written, and the description that is meant.
DESCRIPTIONS: list[tuple[str, str]] = [
    ("Look after bees.", "Look after bees."),
    ("'Look after bees.'", "Look after bees."),
    ('"Look after bees."', "Look after bees."),
    ("Look after bees: hives, honey.", "Look after bees: hives, honey."),
    ("Use when: the hive is loud.", "Use when: the hive is loud."),
    ("Bees. Examples: 'feed them', 'move them'", "Bees. Examples: 'feed them', 'move them'"),
    ('Say "hive: open" to begin', 'Say "hive: open" to begin'),
    ("@bees are looked after", "@bees are looked after"),
    ("`bee` runs the hive", "`bee` runs the hive"),
    ("[beta] Look after bees", "[beta] Look after bees"),
    ("[draft] Bees: a guide", "[draft] Bees: a guide"),
    ("{name} is fed", "{name} is fed"),
    ("*bold* bees", "*bold* bees"),
    ("!important bees", "!important bees"),
    ("%d bees", "%d bees"),
    ("| bees | wasps |", "| bees | wasps |"),
    ("> bees quoted", "> bees quoted"),
    (r'"Match \d+ bees"', r"Match \d+ bees"),
    (r'"C:\hives\new"', r"C:\hives\new"),
    (r"Match \d+: digits", r"Match \d+: digits"),
    ('"Bees" and wasps', '"Bees" and wasps'),
    ("'Bees' and wasps", "'Bees' and wasps"),
    ("It's a hive: open it", "It's a hive: open it"),
    ("Bees - wasps: both", "Bees - wasps: both"),
    ("? bees", "? bees"),
    ("- bees", "- bees"),
    (", bees", ", bees"),
    ("Bees\n  and wasps", "Bees and wasps"),
    ("Bees: small\n  and wasps: large", "Bees: small and wasps: large"),
    ("Bees: small\nand wasps go on here", "Bees: small and wasps go on here"),
    ("|\n  Bees\n  and wasps", "Bees and wasps"),
    (">-\n  Bees\n  and wasps", "Bees and wasps"),
    (">\n  Bees: small\n  wasps: large", "Bees: small wasps: large"),
    ("\n  Bees on the next line", "Bees on the next line"),
    ("Bees # and a remark", "Bees"),
    ("Bees#1 are best", "Bees#1 are best"),
    ("Bienen füttern: täglich 🐝", "Bienen füttern: täglich 🐝"),
    ("Bees <tag>: x</tag>", "Bees <tag>: x</tag>"),
    ("Bees (see https://example.org/a: b)", "Bees (see https://example.org/a: b)"),
    ("Bees — wasps: “both”", "Bees — wasps: “both”"),
    ("12 bees", "12 bees"),
    ("2026", "2026"),
    *((one, one) for one in "yes No on off true null ~ 1.10 0x1F 0o17 1_000 12:30 2026-01-01 2026-13-45".split()),
    ("Bees of hive #12 and #13", "Bees of hive #12 and #13"),
    ("#bees are looked after", "#bees are looked after"),
    ("Bees in\n  hive #12", "Bees in hive #12"),
    ("| # a remark\n  Bees: hive #12", "Bees: hive #12"),
    ("", ""),
]
# The front matter besides the description.
FRONTS: list[tuple[str, str]] = [
    ("name: hive\nversion: 1.0", "Bees."),
    ("name: hive\nallowed-tools: Read, Bash(git: *)", "Bees."),
    ("name: hive\nallowed-tools: [Read, Write]", "Bees."),
    ("name: hive\nargument-hint: [file] [--all]", "Bees."),
    ("name: hive\nmodel: @large", "Bees."),
    ("name: hive\nmetadata:\n  author: Ann: Bee\n  version: 1", "Bees."),
    ("name: hive\nmetadata:\n\tauthor: Ann", "Bees."),
    ("name: hive\ntriggers:\n  - feed: them\n  - @bees", "Bees."),
    ("name: hive\ntags: [bees, honey", "Bees."),
    ("name: hive\nlicense: MIT (see: LICENSE)", "Bees."),
    ("Name: Hive\nname: hive", "Bees."),
    ("# a remark\nname: hive", "Bees."),
]
# Files that are no skills, and what is said of them.
NONE: list[tuple[str, str]] = [
    ("---\nname: hive\nFeed them.", "never ends"),
    ("---\nname: wasp\n---\nFeed them.", "calls it 'wasp'"),
    ("---\nname: hive\n---\n", "says nothing"),
    ("---\n- hive\n---\nFeed them.", "got list"),
    ("---\n]\nname: hive\n---\nFeed.", r"not YAML \(line 2\)"),
    ("---\nname: hive\nrequires: everything\n---\nFeed.", "must be a table"),
]


def skill(front: str) -> Skill:
    return parse_skill(Path("hive/SKILL.md"), f"---\n{front}\n---\n\nFeed them.\n")


@pytest.mark.parametrize(("written", "meant"), DESCRIPTIONS, ids=[repr(written)[:40] for written, _ in DESCRIPTIONS])
def test_a_description_is_read_as_it_is_meant(written: str, meant: str) -> None:
    found = skill(f"name: hive\ndescription: {written}\nlicense: MIT")
    assert (found.description, found.license, found.body) == (meant, "MIT", "Feed them.")


@pytest.mark.parametrize(("front", "meant"), FRONTS, ids=[repr(front)[:40] for front, _ in FRONTS])
def test_one_line_that_is_no_yaml_costs_no_other(front: str, meant: str) -> None:
    assert skill(f"{front}\ndescription: Bees.").description == meant


def test_what_was_read_as_text_is_noted_with_its_line() -> None:
    assert skill("name: hive\ndescription: Bees: small\nlicense: MIT").notes == (
        "line 3: description is no YAML, and read as text",
    )
    assert skill("name: hive\ndescription: Bees.").notes == ()
    assert skill("name: hive\nrequires:\n  bins: [git]\n  why: a: b\ndescription: x").bins == ("git",)


@pytest.mark.parametrize(("text", "said"), NONE, ids=[said for _, said in NONE])
def test_a_file_that_is_no_skill_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_skill(Path("hive/SKILL.md"), text)


@pytest.fixture
def found(tmp_path: Path) -> Iterator[SkillCatalog]:
    store = new_store(tmp_path / "owlbox.db")
    made = SkillCatalog(tmp_path / "box", Entries(store), SkillRecords(store), os.environ)
    made.folder.mkdir(parents=True)
    made.sync()
    yield made
    store.close()


def test_a_skipped_skill_is_named_with_its_line_and_by_its_name(found: SkillCatalog) -> None:
    path = found.folder / "hive/SKILL.md"
    path.parent.mkdir()
    path.write_text("---\n]\nname: hive\n---\nFeed.")
    found.rescan()
    (said,) = found.skipped()
    assert said.startswith(f"{path}: front matter is not YAML (line 2)") and find_problems(found.box)
    with pytest.raises(BadInput, match="the skill hive is skipped: front matter"):
        found.get("hive")
    path.write_text("---\nname: hive\ndescription: [beta] Bees\n---\nFeed.")
    found.rescan()
    assert found.skipped() == [] and found.describe(found.get("hive")).notes == (
        "line 3: description is no YAML, and read as text",
    )


def test_a_new_text_counts_without_a_watch(found: SkillCatalog) -> None:
    path = found.folder / "hive.md"
    path.write_text("Feed them once.")
    assert found.rescan() and found.get("hive").skill.body == "Feed them once."
    path.write_text("Feed them twice.")
    assert found.rescan() and found.get("hive").skill.body == "Feed them twice."
    assert not found.rescan()
    path.unlink()
    assert found.rescan() and not found.skipped()
