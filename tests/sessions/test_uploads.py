"""Files of sessions: names that are safe, nothing followed out of the folder, pictures told by how they begin."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.errors import BadInput, NotFound, OwlError, TooLarge
from appliance.records import Event
from appliance.sessions.uploads import MAX_BYTES, MAX_IMAGE_BYTES, UploadFiles, mime_of, plain_name

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
SESSION = "local:ann"

NAMES = {
    "plan.pdf": "plan.pdf",
    "../../etc/passwd": "passwd",
    "C:\\notes\\tea.txt": "tea.txt",
    ".ssh": "ssh",
    "": "unnamed",
    "...": "unnamed",
    "a\x00b\nc\u202etxt.exe": "a b c txt.exe",
    "<img src=x onerror=alert(1)>.png": "<img src=x onerror=alert(1)>.png",
    "e\u0301t\u00e9.txt": "\u00e9t\u00e9.txt",
    f"{'long' * 100}.md": f"{'long' * 29}l.md",
}


@pytest.fixture
def files(tmp_path: Path) -> UploadFiles:
    return UploadFiles(tmp_path)


@pytest.mark.parametrize("given", NAMES)
def test_a_name_is_safe_in_a_folder_and_on_a_screen(given: str) -> None:
    assert plain_name(given) == NAMES[given] and plain_name(NAMES[given]) == NAMES[given]


@pytest.mark.covers("A-179")
def test_a_file_is_kept_below_its_sessions_data_and_two_of_a_name_stay_apart(files: UploadFiles, tmp_path: Path) -> None:
    first = files.keep(SESSION, "tea.txt", b"green")
    again = files.keep(SESSION, "tea.txt", b"green")
    other = files.keep(SESSION, "tea.txt", b"black")
    assert (first.name, again.name, other.name, other.path) == ("tea.txt", "tea.txt", "tea-2.txt", "/work/uploads/tea-2.txt")
    [folder] = tmp_path.iterdir()
    assert sorted(p.name for p in (folder / "data/uploads").iterdir()) == ["tea-2.txt", "tea.txt"]
    assert files.read(SESSION, "tea-2.txt")[1] == b"black"
    with pytest.raises(NotFound):
        files.read("local:ben", "tea.txt")
    with pytest.raises(BadInput):
        files.read(SESSION, "../data/uploads/tea.txt")
    with pytest.raises(TooLarge):
        files.keep(SESSION, "big", bytes(MAX_BYTES + 1))


def test_two_of_a_name_at_once_are_both_kept_whole(files: UploadFiles) -> None:
    given = [bytes([number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda data: files.keep(SESSION, "tea.txt", data), given))
    assert len({one.name for one in kept}) == 8
    assert [files.read(SESSION, one.name)[1] for one in kept] == given


def test_no_link_that_a_tool_put_there_is_followed(files: UploadFiles, tmp_path: Path) -> None:
    files.keep(SESSION, "tea.txt", b"green")
    [folder] = tmp_path.iterdir()
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (folder / "data/uploads/link").symlink_to(secret)
    os.mkfifo(folder / "data/uploads/pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OwlError):
            files.read(SESSION, name)
        assert files.keep(SESSION, name, b"new").name == f"{name}-2"
    (folder / "data/uploads").rename(tmp_path / "elsewhere")
    (folder / "data/uploads").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OwlError):
        files.keep(SESSION, "x", b"x")
    assert secret.read_text() == "mine" and not (tmp_path / "elsewhere/x").exists()


def test_a_picture_is_what_begins_like_one() -> None:
    assert [mime_of("x.txt", PNG), mime_of("x", b"\xff\xd8\xff\xe0"), mime_of("x", b"RIFF1234WEBP")] == [
        "image/png",
        "image/jpeg",
        "image/webp",
    ]
    assert mime_of("x.png", b"<script>") == "application/octet-stream" and mime_of("x.pdf", b"%PDF-") == "application/pdf"


@pytest.mark.covers("A-180")
def test_the_newest_pictures_are_shown_as_far_as_there_is_room(files: UploadFiles) -> None:
    big = PNG + bytes(MAX_IMAGE_BYTES - len(PNG))
    names = [files.keep(SESSION, f"{n}.png", big + b"") for n in range(2)] + [files.keep(SESSION, "small.png", PNG)]

    def event(number: int, *names: str) -> Event:
        images = [
            {"name": name, "mime": "image/png", "size_bytes": MAX_IMAGE_BYTES if name != "small.png" else 28} for name in names
        ]
        return Event("run", "message", "user", "look", id=number, input={"images": images})

    found = files.load_images(SESSION, [event(1, "0.png"), event(2, "1.png", "small.png"), event(3), event(4, "gone.png")])
    assert {number: [one.name for one in images] for number, images in found.items()} == {4: [], 2: ["1.png", "small.png"], 1: []}
    assert found[2][1].data and names[2].is_image
