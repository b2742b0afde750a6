"""Writing, changing and deleting skills: only whole texts that are skills, only in the folder."""

import os
from pathlib import Path

import pytest

from appliance.errors import BadInput, Conflict, NotFound, OwlError, Refused
from appliance.skills import front_matter
from appliance.skills.editing import compose, delete_skill, edit_skill, write_skill
from appliance.skills.ranking import search_skills
from appliance.skills.skill_file import Argument, Skill, find_faults, parse_skill
from appliance.text.edits import LinePatch


@pytest.mark.covers("B-128", "E-223")
def test_names_are_made_right_or_refused(tmp_path: Path) -> None:
    skill, is_new = write_skill(tmp_path, "My Skill!", "Does it.", "Do it.")
    assert (skill.name, is_new) == ("my-skill", True) and (tmp_path / "my-skill/SKILL.md").is_file()
    for name, body, outcome in (
        ("help", "x", "reserved_name"),
        ("Skills", "x", "reserved_name"),
        ("###", "x", "invalid_name"),
        ("new", "x", "reserved_name"),
        ("tea", " \n", "empty_body"),
        ("my skill", "x", "path_conflict"),
    ):
        with pytest.raises(OwlError) as caught:
            write_skill(tmp_path, name, "d", body)
        assert caught.value.outcome == outcome
    changed, is_new = write_skill(tmp_path, "my-skill", "Does more.", "Do more.", is_overwriting=True)
    assert not is_new and changed.description == "Does more." and sorted(os.listdir(tmp_path)) == ["my-skill"]


@pytest.mark.covers("E-225", "B-128")
@pytest.mark.parametrize(
    "text", ['Say "hello":\nthen - go', "a: b # c", "[x] {y} & *z !t", "'", "---", "%", "a\u2028 line", "one\n\n  two\t\\n three"]
)
def test_any_description_survives_and_the_file_is_valid(text: str, tmp_path: Path) -> None:
    """The file holds the text as it was given; lists show it as one line."""
    skill, _ = write_skill(
        tmp_path, "tea", text, "Boil.", [Argument("n", 'how "many": x', True, None), Argument("m", "", False, "[1]")]
    )
    path = tmp_path / "tea/SKILL.md"
    assert front_matter.read(path.read_text())[0]["description"] == text
    assert [line.split(":")[0].strip('"') for line in path.read_text().splitlines()[1:4]] == ["name", "description", "metadata"]
    again = parse_skill(path, path.read_text())
    assert again.description == skill.description == " ".join(text.split())
    assert [(a.name, a.description, a.is_required, a.default) for a in again.arguments] == [
        ("n", 'how "many": x', True, None),
        ("m", "", False, "[1]"),
    ]
    assert find_faults(path.parent) == []


@pytest.mark.covers("B-129", "E-224")
def test_an_edit_that_breaks_a_skill_changes_nothing(tmp_path: Path) -> None:
    write_skill(tmp_path, "tea", "Make tea.", "Boil.\nServe.")
    path = tmp_path / "tea/SKILL.md"
    before = path.read_bytes()
    for patch in (LinePatch(1, 1, ""), LinePatch(4, 4, ""), LinePatch(2, 2, "name: coffee"), LinePatch(2, 2, "name: [")):
        with pytest.raises(BadInput) as caught:
            edit_skill(tmp_path, "tea", [patch])
        assert caught.value.outcome == "invalid_skill" and path.read_bytes() == before
    with pytest.raises(BadInput) as caught:
        edit_skill(tmp_path, "tea", [LinePatch(5, 6, "")])
    assert caught.value.outcome == "empty_body" and path.read_bytes() == before
    assert edit_skill(tmp_path, "tea", [LinePatch(5, 5, "Boil water.")]).body == "Boil water.\nServe."


def test_a_lone_file_is_changed_where_it_is_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "tea.md").write_text("Boil.")
    assert edit_skill(tmp_path, "tea", [LinePatch(1, 1, "Steep.")]).body == "Steep."
    assert delete_skill(tmp_path, "tea") == tmp_path / "tea.md" and os.listdir(tmp_path) == []
    write_skill(tmp_path, "tea", "d", "Boil.")
    (tmp_path / "tea/scripts").mkdir()
    (tmp_path / "tea/scripts/run").write_text("x")
    delete_skill(tmp_path, "tea")
    assert os.listdir(tmp_path) == []
    for name in ("tea", "../tea", "", ".x"):
        with pytest.raises(NotFound):
            delete_skill(tmp_path, name)


def test_nothing_outside_of_the_folder_is_reached_through_links(tmp_path: Path) -> None:
    folder, outside = tmp_path / "skills", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "SKILL.md").write_text("theirs")
    (folder / "tea").symlink_to(outside)
    (folder / "milk").mkdir()
    (folder / "milk/SKILL.md").symlink_to(outside / "SKILL.md")
    for name in ("tea", "milk"):
        with pytest.raises((Refused, Conflict)):
            write_skill(folder, name, "d", "Mine.", is_overwriting=True)
    with pytest.raises((Refused, NotFound)):
        edit_skill(folder, "milk", [LinePatch(1, 1, "Mine.")])
    assert (outside / "SKILL.md").read_text() == "theirs"


@pytest.mark.covers("B-127")
def test_what_a_hit_counts() -> None:
    def made(name: str, description: str = "", body: str = "x", *arguments: Argument) -> Skill:
        return parse_skill(Path(f"{name}.md"), compose(name, description, body, arguments))

    skills = [
        made("tea"),
        made("b", "tea"),
        made("c", "", "x", Argument("tea", "tea")),
        made("d", "", "tea " * 9),
        made("e", "", "milk"),
    ]
    assert [(hit.skill.name, hit.score) for hit in search_skills(skills, "TEA")] == [("tea", 10), ("b", 5), ("c", 5), ("d", 5)]
    assert [hit.skill.name for hit in search_skills(skills, "tea milk", 1)] == ["tea"] and search_skills(skills, " ") == []
