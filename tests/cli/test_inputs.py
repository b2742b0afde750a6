"""What a command is given beside its arguments is taken whole, or refused with the name of what it was."""

from pathlib import Path

import pytest

from appliance.console.inputs import edit_text, read_object, read_text
from appliance.errors import BadInput, NotFound, OwlError, TooLarge


def test_a_file_is_read_whole_without_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xef\xbb\xbf# One\r\n")
    assert read_text(str(tmp_path / "a.md")) == "# One\r\n"


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (None, NotFound, "cannot be read: No such file"),
        (b"ab\xff", BadInput, "not UTF-8 at byte 2"),
        (b"x" * 11, TooLarge, "more than 10"),
    ],
)
def test_what_is_no_text_or_too_long_is_refused(tmp_path: Path, data: bytes | None, error: type[OwlError], words: str) -> None:
    path = tmp_path / "a.md"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(error, match=words) as caught:
        read_text(str(path), 10)
    assert str(path) in caught.value.message and caught.value.hint


def test_an_object_is_one(tmp_path: Path) -> None:
    assert read_object('{"a": [1]}') == {"a": [1]} and read_object("") == {}
    for text in ("{broken", "[1]", "[" * 100_000):
        with pytest.raises(BadInput, match="JSON") as caught:
            read_object(text)
        assert len(caught.value.message) < 300 and "timezone" in caught.value.hint


def test_an_editor_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/one/two/")
    assert edit_text("one\n", "a.md") == "two\n"
    for editor in ("false", "/nowhere/editor"):
        monkeypatch.setenv("VISUAL", editor)
        with pytest.raises(BadInput, match="nothing is changed"):
            edit_text("one\n", "a.md")
