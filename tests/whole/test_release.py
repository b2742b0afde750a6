"""A release: two builds give the same bytes, a signed list names them, and `make` takes a wheel from it only as it was signed."""

import base64
import functools
import hashlib
import http.server
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from appliance import __version__
from appliance.secrets import encryption
from appliance.store.migrations import LATEST
from appliance.upkeep.updates import bundle

ROOT = Path(__file__).parents[2]
PRIVATE, PUBLIC = encryption.new_signing_key()
ENGINE = re.search(r'"llama-cpp-python==([0-9.]+)"', (ROOT / "pyproject.toml").read_text()).group(1)  # type: ignore[union-attr]
CHANGES = hashlib.sha256((ROOT / "image-build/llama_patch.py").read_bytes()).hexdigest()[:8]
MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
TOOLS = "bash sed uname getconf grep sort sha256sum cut mkdir flock dirname env tr"  # of what wheels.sh needs, no compiler


def wheel_name(machine: str = platform.machine(), libc: str = "2_31", changes: str = CHANGES) -> str:
    """The name of an engine's wheel."""
    return f"llama_cpp_python-{ENGINE}-1_{changes}-py3-none-manylinux_{libc}_{machine}.whl"


def make_wheel(path: Path) -> Path:
    """A wheel with nothing in it but its metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name, version = path.name.split("-")[:2]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{name}.dist-info/METADATA"), f"Name: {name}\nVersion: {version}\nLicense: MIT\n")
    return path


def key_files(folder: Path) -> tuple[Path, Path]:
    """Files with the private and the public key."""
    folder.mkdir(parents=True, exist_ok=True)
    private, public = folder / "signing.key", folder / "update.pub"
    private.write_bytes(base64.b64encode(PRIVATE))
    public.write_bytes(base64.b64encode(PUBLIC) + b"\n")
    return private, public


def publish(folder: Path, *names: str) -> Path:
    """A release with these wheels alone."""
    for name in names:
        make_wheel(folder / name)
    data = "".join(f"{bundle.digest_file(folder / name)}  {name}\n" for name in names).encode()
    (folder / "SHA256SUMS").write_bytes(data)
    (folder / "SHA256SUMS.sig").write_bytes(encryption.sign(PRIVATE, data))
    return folder


def take(tmp_path: Path, place: object, key: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """What published.py says when the engine is to be taken from a place."""
    words = ("take", "llama_cpp_python", ENGINE, f"1_{CHANGES}", key or key_files(tmp_path)[1], tmp_path / "into", place)
    return subprocess.run(
        [sys.executable, "-I", str(ROOT / "release/published.py"), *map(str, words)], capture_output=True, text=True, timeout=60
    )


def wheels_sh(tmp_path: Path, **environment: object) -> "subprocess.CompletedProcess[str]":
    """What `make` runs before it installs, where there is no compiler; the cache is in the folder of the test."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name in TOOLS.split():
        if not (tools / name).exists():
            (tools / name).symlink_to(shutil.which(name) or "/nothing")
    given = {"PATH": tools, "HOME": tmp_path, "XDG_CACHE_HOME": tmp_path / "cache", **environment}
    script = [str(ROOT / "image-build/wheels.sh"), sys.executable]
    plain = {name: str(value) for name, value in given.items()}
    return subprocess.run(script, env=plain, capture_output=True, text=True, timeout=60)


def build(place: Path, umask: int, zone: str) -> Path:
    """The release that a clean checkout in this place gives, with an image and engines that were made before."""
    place.mkdir(parents=True)
    cache = place.parent / "cache"
    for name in ("appliance", "skills", "image-build", "release"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, place / name)
    when = {f"GIT_{who}_DATE": "2026-01-02T03:04:05Z" for who in ("AUTHOR", "COMMITTER")}
    git = ["git", "-C", str(place), "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "All"]):
        subprocess.run([*git, *words], check=True, env={**os.environ, **when})
    files = ("engine-wheel.sh", "engine-source.sh", "llama_patch.py", "aarch64.cmake")
    recipe = hashlib.sha256(b"".join((ROOT / "image-build" / name).read_bytes() for name in files)).hexdigest()
    for arch, machine in MACHINES.items():
        made = make_wheel(cache / "owlbox/image/wheels" / arch / wheel_name(machine, "2_36"))
        made.with_name("engine-recipe").write_text(recipe)
    image = place / f"build/image/owlbox-{__version__}-arm64.img"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"\0" * 5000)
    image.with_name(f"{image.name}.zst").write_bytes(b"packed")
    image.with_suffix(".sbom.json").write_text("{}\n")
    command = [sys.executable, str(place / "release/release.py"), str(key_files(place.parent)[0]), "--no-updates"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "TZ": zone}
    environment.pop("SOURCE_DATE_EPOCH", None)
    subprocess.run(
        [*command, "--url", "https://example.com/r"], check=True, cwd=place.parent, env=environment, umask=umask, timeout=240
    )
    return place / "build/release" / __version__


def test_two_builds_of_a_commit_give_the_same_bytes_and_all_is_signed(tmp_path: Path) -> None:
    one, other = build(tmp_path / "one/tree", 0o022, "UTC"), build(tmp_path / "in/another/place", 0o077, "Asia/Tokyo")
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert {name: bundle.digest_file(one / name) for name in names} == {
        str(path.relative_to(other)): bundle.digest_file(path) for path in other.rglob("*") if path.is_file()
    }
    assert names == sorted(
        ["NOTES.md", "SHA256SUMS", "SHA256SUMS.sig", "constraints.txt", "index.html", "os_list.json", "parts.json"]
        + [f"owlbox-{__version__}-{end}" for end in ("arm64.img.zst", "arm64.sbom.json", "py3-none-any.whl")]
        + [wheel_name(machine, "2_36") for machine in MACHINES.values()]
    )
    assert subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=one).returncode == 0
    assert encryption.is_signed(PUBLIC, (one / "SHA256SUMS").read_bytes(), (one / "SHA256SUMS.sig").read_bytes())
    checks = [sys.executable, str(ROOT / "release/published.py"), "check", str(one), str(key_files(tmp_path)[1])]
    assert subprocess.run(checks, capture_output=True, text=True).stdout == f"{len(names) - 2} files are what was signed\n"
    (one / "new.whl").write_bytes(b"")
    assert "new.whl was not signed" in subprocess.run(checks, capture_output=True, text=True).stderr

    (entry,) = json.loads((other / "os_list.json").read_text())["os_list"]
    packed = other / f"owlbox-{__version__}-arm64.img.zst"
    assert (entry["url"], entry["release_date"]) == (f"https://example.com/r/{packed.name}", "2026-01-02")
    assert (entry["extract_size"], entry["image_download_size"]) == (5000, 6)
    assert entry["extract_sha256"] == hashlib.sha256(b"\0" * 5000).hexdigest()
    assert entry["image_download_sha256"] == bundle.digest_file(packed)
    parts = {part["name"]: part for part in json.loads((other / "parts.json").read_text())["components"]}
    own = other / f"owlbox-{__version__}-py3-none-any.whl"
    assert parts["owlbox"]["hashes"] == [{"alg": "SHA-256", "content": bundle.digest_file(own)}]
    assert parts["llama_cpp_python"]["licenses"] == [{"license": {"name": "MIT"}}] and parts["owlbox"]["version"] == __version__
    with zipfile.ZipFile(own) as archive:
        inside = archive.namelist()
    assert "appliance/models/catalogue.toml" in inside and any(name.endswith("skills/git/SKILL.md") for name in inside)
    notes = (other / "NOTES.md").read_text()
    assert notes.startswith(f"# Owlbox {__version__}") and notes.count("\n## ") == 0 and len(notes.splitlines()) > 20


def test_a_bundle_of_the_same_wheels_has_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for number, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        wheel = make_wheel(folder / f"owlbox-{__version__}-py3-none-any.whl")
        os.utime(wheel, (number * 1000, number * 1000))
        wheel.chmod((0o600, 0o644)[number])
        told = bundle.describe(__version__, LATEST, [wheel], bundle.this_target(), 1_700_000_000_000, 1_800_000_000_000)
        made.append(bundle.digest_file(bundle.build(folder, told, [wheel], PRIVATE)))
    assert made[0] == made[1]


def test_the_wheel_that_fits_is_taken_as_it_was_signed(tmp_path: Path) -> None:
    other = "x86_64" if platform.machine() != "x86_64" else "aarch64"
    release = publish(tmp_path / "release", wheel_name(other), wheel_name(libc="9_99"), wheel_name(changes="0" * 8), wheel_name())
    done = take(tmp_path, release)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.strip()).read_bytes() == (release / wheel_name()).read_bytes()
    assert [path.name for path in (tmp_path / "into").iterdir()] == [wheel_name()]


@pytest.fixture(name="served")
def a_served_release(tmp_path: Path) -> Iterator[str]:
    """The address of a release."""
    folder = publish(tmp_path / "served", wheel_name())
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_wheel_is_taken_from_an_address(tmp_path: Path, served: str) -> None:
    assert take(tmp_path, served).returncode == 0
    assert (tmp_path / "into" / wheel_name()).is_file()
    missing = take(tmp_path, f"{served}/nothing")
    assert missing.returncode == 1 and "SHA256SUMS cannot be read" in missing.stderr
    plain = take(tmp_path, "http://example.com/r")
    assert plain.returncode == 1 and "has to begin with https://" in plain.stderr


def test_what_was_not_signed_is_not_taken(tmp_path: Path) -> None:
    release = publish(tmp_path / "release", wheel_name())
    wheel, sums, signature = (release / name for name in (wheel_name(), "SHA256SUMS", "SHA256SUMS.sig"))
    good = {path: path.read_bytes() for path in (wheel, sums, signature)}
    _, other = encryption.new_signing_key()
    stranger = tmp_path / "stranger.pub"
    stranger.write_bytes(base64.b64encode(other))
    for path, content, why in (
        (wheel, good[wheel] + b"x", "is not what was signed"),
        (sums, good[sums].replace(b"1_", b"2_"), "the signature of SHA256SUMS is not that"),
        (signature, bytes([good[signature][0] ^ 1]) + good[signature][1:], "the signature of SHA256SUMS is not that"),
        (signature, good[signature][:63], "the signature of SHA256SUMS is not that"),
        (signature, b"", "the signature of SHA256SUMS is not that"),
    ):
        path.write_bytes(content)
        done = take(tmp_path, release)
        assert done.returncode == 1 and why in done.stderr, (path.name, done.stderr)
        path.write_bytes(good[path])
    assert "is not that of this key" in take(tmp_path, release, stranger).stderr
    stranger.write_text("no key")
    assert "is no public key" in take(tmp_path, release, stranger).stderr
    assert not (tmp_path / "into").exists()


def test_make_takes_the_wheel_of_a_release_without_a_compiler(tmp_path: Path) -> None:
    release = publish(tmp_path / "release", wheel_name())
    key = key_files(tmp_path)[1]
    done = wheels_sh(tmp_path, WHEELS=release, UPDATE_KEY=key)
    assert done.returncode == 0 and "nothing is compiled" in done.stderr, done.stderr
    assert (Path(done.stdout.strip()) / wheel_name()).is_file()
    shutil.rmtree(release)
    again = wheels_sh(tmp_path)  # it is in the cache now
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")


def test_make_finds_a_release_in_the_cache_and_compiles_where_nothing_fits(tmp_path: Path) -> None:
    release = publish(tmp_path / "cache/owlbox/release", wheel_name(changes="0" * 8))
    key = key_files(tmp_path)[1]
    done = wheels_sh(tmp_path, UPDATE_KEY=key)
    assert done.returncode == 1 and "has no wheel" in done.stderr and "needed once to compile llama.cpp" in done.stderr, done.stderr
    publish(release, wheel_name())
    assert "nothing is compiled" in wheels_sh(tmp_path, UPDATE_KEY=key).stderr


def test_make_compiles_nothing_where_the_named_release_cannot_be_trusted(tmp_path: Path) -> None:
    release = publish(tmp_path / "release", wheel_name())
    (release / wheel_name()).write_bytes(b"something else")
    done = wheels_sh(tmp_path, WHEELS=release, UPDATE_KEY=key_files(tmp_path)[1])
    assert done.returncode == 1 and "is not what was signed" in done.stderr and "to compile" not in done.stderr
    no_key = wheels_sh(tmp_path, WHEELS=release, UPDATE_KEY=tmp_path / "nothing")
    assert no_key.returncode == 1 and "there is no key to check it by" in no_key.stderr


def test_the_forge_builds_a_release_with_the_same_command() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]["build"]["steps"]
    runs = "\n".join(step.get("run", "") for step in steps)
    assert "make release KEY=" in runs and "make image ARCH=amd64" in runs and "make image ARCH=arm64" in runs
