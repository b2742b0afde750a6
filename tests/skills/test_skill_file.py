"""SKILL.md as people write it: what loads, what is reported, and that the public reference validator says the same."""

from pathlib import Path

import pytest
import skills_ref

from appliance.errors import BadInput
from appliance.skills.skill_file import RESERVED, find_faults, name_of, normalise_name, parse_skill

ROOT = Path(__file__).parents[2]
LONG = "\n".join(f"{n}. Do step {n}." for n in range(1, 501))
GOOD = "name: tea\ndescription: Make good tea."

# Folder, what SKILL.md holds, whether the public format takes it, and the name under which it loads here ("" when it does not).
SHAPES: dict[str, tuple[str, str, bool, str]] = {
    "plain": ("tea", f"---\n{GOOD}\n---\nBoil water.\n", True, "tea"),
    "folded description": ("tea", "---\nname: tea\ndescription: >\n  Make good tea,\n  for many.\n---\nBoil.\n", True, "tea"),
    "literal description": ("tea", "---\nname: tea\ndescription: |\n  Make tea.\n  Use it: often.\n---\nBoil.\n", True, "tea"),
    "quoted description": ("tea", '---\nname: tea\ndescription: "Say: \\"tea\\"!"\n---\nBoil.\n', True, "tea"),
    "nested metadata": (
        "tea",
        f"---\n{GOOD}\nmetadata:\n  author: ada\n  requires:\n    bins:\n      - sh\n---\nBoil.\n",
        True,
        "tea",
    ),
    "every public field": (
        "tea",
        f"---\n{GOOD}\nlicense: Apache-2.0\ncompatibility: needs a kettle\nallowed-tools: Bash(git:*) Read\n---\nBoil.\n",
        True,
        "tea",
    ),
    "crlf": ("tea", f"---\n{GOOD}\n---\nBoil.\n".replace("\n", "\r\n"), True, "tea"),
    "byte order mark": ("tea", f"\ufeff---\n{GOOD}\n---\nBoil.\n", False, "tea"),
    "unicode name": ("größe", "---\nname: größe\ndescription: Miss nach.\n---\nMiss.\n", True, "größe"),
    "cyrillic name": ("чай", "---\nname: чай\ndescription: Tea.\n---\nBoil.\n", True, "чай"),
    "five hundred lines": ("tea", f"---\n{GOOD}\n---\n{LONG}\n", True, "tea"),
    "no front matter": ("tea", "# Tea\n\nBoil water.\n", False, "tea"),
    "front matter without an end": ("tea", f"---\n{GOOD}\nBoil.\n", False, ""),
    "no name": ("tea", "---\ndescription: Make tea.\n---\nBoil.\n", False, "tea"),
    "no description": ("tea", "---\nname: tea\n---\nBoil.\n", False, "tea"),
    "empty description": ("tea", '---\nname: tea\ndescription: ""\n---\nBoil.\n', False, "tea"),
    "another name than the folder": ("tea", "---\nname: coffee\ndescription: Brew.\n---\nBrew.\n", False, ""),
    "capital letters": ("Tea", "---\nname: Tea\ndescription: Make tea.\n---\nBoil.\n", False, "tea"),
    "two hyphens": ("a--b", "---\nname: a--b\ndescription: Make tea.\n---\nBoil.\n", False, "a-b"),
    "a hyphen at the end": ("tea-", "---\nname: tea-\ndescription: Make tea.\n---\nBoil.\n", False, "tea"),
    "underscore": ("green_tea", "---\nname: green_tea\ndescription: Make tea.\n---\nBoil.\n", False, "green-tea"),
    "a field of its own": ("tea", f"---\n{GOOD}\nversion: 2\n---\nBoil.\n", False, "tea"),
    "always at the top": ("tea", f"---\n{GOOD}\nalways: true\n---\nBoil.\n", False, "tea"),
    "flow list": ("tea", f"---\n{GOOD}\nallowed-tools: [Read, Bash]\n---\nBoil.\n", False, "tea"),
    "flow table": ("tea", f"---\n{GOOD}\nmetadata: {{a: b}}\n---\nBoil.\n", False, "tea"),
    "a key twice": ("tea", f"---\n{GOOD}\nname: tea\n---\nBoil.\n", False, "tea"),
    "not YAML": ("tea", "---\nname: [\n---\nBoil.\n", False, ""),
    "a list": ("tea", "---\n- name\n- tea\n---\nBoil.\n", False, ""),
    "a number for a name": ("123", "---\nname: 123\ndescription: Count.\n---\nCount.\n", True, "123"),
    "true for a description": ("tea", "---\nname: tea\ndescription: true\n---\nBoil.\n", True, "tea"),
    "long name": ("a" * 65, f"---\nname: {'a' * 65}\ndescription: Long.\n---\nBoil.\n", False, "a" * 64),
    "long description": ("tea", f"---\nname: tea\ndescription: {'x' * 1025}\n---\nBoil.\n", False, "tea"),
    "long compatibility": ("tea", f"---\n{GOOD}\ncompatibility: {'x' * 501}\n---\nBoil.\n", False, "tea"),
    "comments": ("tea", f"---\n# how we do it\n{GOOD} # really\n---\nBoil.\n", True, "tea"),
    "a colon inside": ("tea", "---\nname: tea\ndescription: Make tea: the good one\n---\nBoil.\n", False, "tea"),
    "a rule in the body": ("tea", f"---\n{GOOD}\n---\nBoil.\n\n---\n\nServe.\n", True, "tea"),
    "nothing but front matter": ("tea", f"---\n{GOOD}\n---\n", True, ""),
    "empty front matter": ("tea", "---\n---\nBoil.\n", False, "tea"),
    "an anchor": ("tea", "---\nname: &n tea\ndescription: Make tea.\n---\nBoil.\n", False, "tea"),
    "tab": ("tea", f"---\n{GOOD}\nmetadata:\n\tauthor: ada\n---\nBoil.\n", False, "tea"),
}


def write(tmp_path: Path, folder: str, text: str) -> Path:
    path = tmp_path / folder / "SKILL.md"
    path.parent.mkdir()
    path.write_bytes(text.encode())
    return path


@pytest.mark.covers("A-154")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_reference_validator_says_the_same(shape: str, tmp_path: Path) -> None:
    folder, text, is_valid, _ = SHAPES[shape]
    path = write(tmp_path, folder, text)
    theirs = skills_ref.validate(path.parent)
    assert (not theirs) == is_valid, theirs
    assert (not find_faults(path.parent)) == is_valid, (find_faults(path.parent), theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_can_be_used_loads_and_the_rest_says_why(shape: str, tmp_path: Path) -> None:
    folder, text, _, name = SHAPES[shape]
    path = write(tmp_path, folder, text)
    if name:
        found = parse_skill(path, text.removeprefix("\ufeff").replace("\r\n", "\n"))
        assert found.name == name and found.body
        return
    with pytest.raises(BadInput) as caught:
        parse_skill(path, text.replace("\r\n", "\n"))
    assert caught.value.message


def test_a_folder_without_a_skill_is_no_skill(tmp_path: Path) -> None:
    assert find_faults(tmp_path / "none") and find_faults(tmp_path) == ["SKILL.md is missing"]
    (tmp_path / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    assert find_faults(tmp_path) == ["SKILL.md is not UTF-8 text (byte 10)"]


@pytest.mark.covers("S-048", "B-119", "A-161")
def test_fields_are_read_at_the_top_and_below_metadata(tmp_path: Path) -> None:
    fields = (
        "always: true\nrequires:\n  bins: [gh, git]\n  env: [TOKEN]\naddons:\n  packages:\n    - name: jq\n      source: apt\n"
        "      verify: jq --version\n  env: [JQ_KEY]\narguments:\n  - name: file\n    required: true\n  - name: [7]\n"
        "  - nothing\n  - name: depth\n    default: 3\n    description: how deep\n  - name: file\n"
    )
    top = parse_skill(tmp_path / "tea.md", f"---\ndescription: Tea.\n{fields}---\nBoil.")
    below = "metadata:\n" + "".join(f"  {line}\n" for line in fields.splitlines())
    inner = parse_skill(tmp_path / "tea.md", f"---\ndescription: Tea.\n{below}---\nBoil.")
    for found in (top, inner):
        assert found.is_always and found.bins == ("gh", "git") and found.env == ("TOKEN",) and found.script_env == ("JQ_KEY",)
        assert [(p.name, p.source, p.verify) for p in found.packages] == [("jq", "apt", "jq --version")]
        assert [(a.name, a.is_required, a.default) for a in found.arguments] == [("file", True, None), ("depth", False, "3")]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("requires: gh", "requires must be a table"),
        ("requires:\n  bins: gh", "requires.bins must be a list"),
        ("addons:\n  packages:\n    - name: x\n      source: curl", "addons.packages needs name and source"),
        ("addons:\n  packages:\n    - x", "addons.packages needs name and source"),
    ],
)
def test_what_cannot_be_meant_is_named(fields: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        parse_skill(tmp_path / "tea.md", f"---\n{fields}\n---\nBoil.")


@pytest.mark.covers("E-223")
def test_names() -> None:
    assert [normalise_name(word) for word in ("My Skill!", "###", "Größe", "a" * 80)] == ["my-skill", "", "gr-e", "a" * 64]
    assert [name_of(word) for word in ("My Skill!", "###", "Größe", "a__b")] == ["my-skill", "", "größe", "a-b"]
    assert {"help", "skills", "clear", "exit"} <= RESERVED


@pytest.mark.covers("S-055", "A-164", "B-125")
def test_bundled_skills_are_valid_short_and_complete() -> None:
    folders = sorted(path.parent for path in (ROOT / "skills").glob("*/SKILL.md"))
    wanted = {
        *("memory", "cron", "github", "git", "task-extractor", "inbox-triage", "follow-up-manager", "daily-briefing"),
        *("weekly-review", "meeting-prep-and-recap", "decision-log", "personal-ops-router", "summarize", "research"),
        *("skill-creator", "code-review", "standup", "capabilities", "web-research"),
    }
    assert wanted <= {folder.name for folder in folders}
    for folder in folders:
        assert skills_ref.validate(folder) == find_faults(folder) == []
        skill = parse_skill(folder / "SKILL.md", (folder / "SKILL.md").read_text())
        # About four characters to a token: 400 tokens. Counted with the real tokenizer in tests/whole.
        assert len(skill.body) < 1_700 and not skill.is_reserved, folder.name
        assert skill.is_always == (folder.name in ("memory", "github")), folder.name
