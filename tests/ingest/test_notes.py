"""The prompt documents in box/: which are read, in which order, and what is said of those that cannot be."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.errors import BadInput, NotFound
from appliance.ingest import prompt_documents
from appliance.ingest.document_methods import PromptDocuments
from appliance.ingest.prompt_documents import ALWAYS, LAST, MAX_CHARS, SHIPPED
from appliance.runtime.methods import LocalCall
from appliance.store import visibility
from appliance.text import markdown


def names(box: Path) -> list[str]:
    return [part.name for part in prompt_documents.documents(box)[0]]


@pytest.mark.covers("B-112")
def test_a_new_box_says_when_each_document_is_loaded_and_who_may_change_it(tmp_path: Path) -> None:
    prompt_documents.install(tmp_path)
    told = {one.name: (one.loading, one.may_modify) for one in PromptDocuments(tmp_path).listing()}
    assert told["SOUL"] == ("always", False)
    assert {told[name] for name in ("BELIEFS", "GOALS", "CAPABILITIES")} == {("always", True)}
    assert told["HEARTBEAT"] == ("never", False)
    (tmp_path / "SOUL.md").write_text("---\nagent-modification: true\n---\nHoot.")
    (tmp_path / "GOALS.md").write_text("---\nloading: contextual\nagent-modification: false\n---\nGrow.")
    told = {one.name: (one.loading, one.may_modify) for one in PromptDocuments(tmp_path).listing()}
    assert told["SOUL"] == ("always", False) and told["GOALS"] == ("contextual", False)


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "users/../USER", "users/ada/SOUL", "roles/coder/USER", "", ".x", "GROUP", "notes/a"]
)
def test_what_is_no_document_has_no_file(tmp_path: Path, name: str) -> None:
    assert prompt_documents.find(tmp_path, name) is None


def test_people_read_and_write_any_document_by_its_name_and_no_link_is_followed(tmp_path: Path) -> None:
    methods = PromptDocuments(tmp_path)
    for name in ("user", "house", "users/ada/USER", "roles/coder/SOUL.md"):
        written = methods.write(name, f"Text of {name}.", call=LocalCall())
        assert methods.view(written["name"])["text"] == f"Text of {name}."
    assert (tmp_path / "USER.md").exists() and (tmp_path / "house.md").exists()
    with visibility.showing("user:ben"), pytest.raises(NotFound):
        methods.view("users/ada/USER")
    (tmp_path / "secret").write_text("hidden")
    (tmp_path / "link.md").symlink_to(tmp_path / "secret")
    with pytest.raises(BadInput, match="it is a link"):
        methods.view("link")


def test_a_new_box_gets_every_document_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    box = tmp_path / "box"
    assert [path.stem for path in prompt_documents.install(box)] == list(SHIPPED)
    assert all((box / f"{name}.md").read_text(encoding="utf-8") == prompt_documents.shipped(name) for name in SHIPPED)
    (box / "SOUL.md").write_text("I am Ada's owl.")
    (box / "USER.md").unlink()
    assert [path.name for path in prompt_documents.install(box)] == ["USER.md"] and prompt_documents.install(box) == []
    assert (box / "SOUL.md").read_text() == "I am Ada's owl."


def test_documents_come_in_one_order_whatever_the_folder_says(tmp_path: Path) -> None:
    for name in (LAST, *reversed(ALWAYS), "HEARTBEAT", "OTHER"):
        (tmp_path / f"{name}.md").write_text(f"Text of {name}.")
    assert names(tmp_path) == [*ALWAYS, LAST]
    assert prompt_documents.documents(tmp_path)[0][0].text == "Text of SOUL."


@pytest.mark.parametrize(
    "text",
    ["", "  \n\n", "# Who I am\n", "# A\n\n## B\n", "<!-- write here -->\n# A\n", "---\ntitle: x\n---\n", "<!--\nmany\nlines\n-->"],
)
def test_a_document_that_says_nothing_costs_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "SOUL.md").write_text(text)
    assert prompt_documents.documents(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xef\xbb\xbfHoot.\r\nTwice.\r\n", "Hoot.\nTwice."),
        (b"---\ntitle: x\n---\n\n# Owl\n\nHoot. <!-- hidden -->\n", "# Owl\n\nHoot."),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_what_people_s_editors_write_is_read(tmp_path: Path, raw: bytes, text: str) -> None:
    (tmp_path / "SOUL.md").write_bytes(raw)
    (part,), problems = prompt_documents.documents(tmp_path)
    assert part.text == text and problems == []


def test_a_document_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").mkdir()
    (tmp_path / "USER.md").write_text("---\ntitle: never ends\n")
    (tmp_path / "GOALS.md").write_text("---\ntitle: [\n---\nx")
    (tmp_path / "MEMORY.md").write_text("Tea at four.")
    parts, problems = prompt_documents.documents(tmp_path)
    assert [p.name for p in parts] == ["MEMORY"]
    assert [p.split(":")[0] for p in problems] == ["SOUL.md", "USER.md", "GOALS.md"]
    assert "cannot be read: Is a directory" in problems[0] and "never ends" in problems[1] and "not YAML" in problems[2]


def test_a_document_that_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("x" * MAX_CHARS)
    assert prompt_documents.documents(tmp_path)[0][0].text == "x" * MAX_CHARS
    (tmp_path / "SOUL.md").write_text("x" * (MAX_CHARS * 50))
    text = prompt_documents.documents(tmp_path)[0][0].text
    assert text.startswith("x" * MAX_CHARS + "\n[cut:") and len(text) < MAX_CHARS + 100


def test_a_folder_that_is_not_there_holds_no_documents(tmp_path: Path) -> None:
    assert prompt_documents.documents(tmp_path / "none") == ([], [])


# -- markdown -------------------------------------------------------------------------------------------


ROOM = {"day": "2026-13-45", "room": "4 #12", "in": "#general", "none": None}


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("plain", {}, "plain"),
        ("---\na: 1\nb: [x]\n---\n\nbody", {"a": "1", "b": ["x"]}, "body"),
        ("\ufeff---\r\na: 1\r\n---\r\nbody\r\n", {"a": "1"}, "body\n"),
        ("---\non: yes\nb: {c: [no, 1.10, 0x1F, null]}\n---\nx", {"on": "yes", "b": {"c": ["no", "1.10", "0x1F", "null"]}}, "x"),
        ("---\nday: 2026-13-45\nroom: 4 #12\nin: #general\nnone:  # yet\n---\nx", ROOM, "x"),
        ("---\n---\nbody", {}, "body"),
        ("text\n---\na: 1\n---\n", {}, "text\n---\na: 1\n---\n"),
    ],
)
def test_front_matter_is_taken_from_the_top_only(text: str, front: dict[str, Any], body: str) -> None:
    assert markdown.split(text) == (front, body)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("---\na: 1\n", "never ends"),
        ("---\n- a\n---\n", "got list"),
        ("---\na: [1\n---\n", "not YAML"),
        ("---\n[a]: b\n---\n", "not YAML"),
        ("---\n!!python/object/apply:os.getcwd []\n---\n", "not YAML"),
    ],
)
def test_front_matter_that_cannot_be_read_is_refused(text: str, part: str) -> None:
    with pytest.raises(BadInput, match=part):
        markdown.split(text)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="-a:1 \n#<!>[]{}&*'\"\t\\", max_size=60))
def test_any_front_matter_is_read_or_refused(text: str) -> None:
    try:
        front, body = markdown.split(f"---\n{text}\n---\nbody")
    except BadInput as error:
        assert error.message
    else:
        assert isinstance(front, dict) and body.endswith("body")


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("# One\n# Two", "One"),
        ("## Lena\n5\n\n## Tobi\n6", ""),
        ("## One\n### Two", "One"),
        ("text\n## Deep ##\n", "Deep"),
        ("<!-- # no -->\n", ""),
        ("#no", ""),
    ],
)
def test_the_first_visible_heading_is_the_title(body: str, title: str) -> None:
    assert markdown.title(body) == title
