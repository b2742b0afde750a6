"""A skill as it arrives: read whole into memory from a folder, a zip, a tar archive or the files of a repository.

Bounds: 200 files, 4 MiB in all, 2 MiB a file, 20 folders deep. Refused, not skipped: links, devices, names that leave the
folder, two files of one name, archives that unpack to more than they say. Left out: version control, caches, installed
modules. Nothing is written, so a package that is refused leaves nothing behind.
"""

import io
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath

import msgspec

from appliance.errors import BadInput, NotFound, TooLarge
from appliance.skills.skill_file import FILE
from appliance.store import disk_faults
from appliance.text import tar_reader

MAX_FILES, MAX_BYTES, MAX_FILE_BYTES, MAX_DEPTH = 200, 4 << 20, 2 << 20, 20
MAX_ARCHIVE_BYTES = 16 << 20
LEFT_OUT = frozenset((".git", ".github", "node_modules", "vendor", "__pycache__", ".venv", ".DS_Store"))


class PackageFile(msgspec.Struct, frozen=True):
    """One file of a package."""

    data: bytes
    is_executable: bool = False


Files = dict[str, PackageFile]


class SkillPackage(msgspec.Struct, frozen=True):
    """A skill's folder in memory: its files by their path in it, and where it came from."""

    name: str  # of the folder
    files: Files
    source: str

    @property
    def entry(self) -> str:
        """The path of its SKILL.md."""
        return next(path for path in sorted(self.files) if path.lower() == FILE)


def read_package(source: Path, inner: str = "") -> SkillPackage:
    """The skill in a local folder, file or archive; `inner` names the folder in it where there are several."""
    try:
        info = source.stat()
    except OSError as error:
        raise NotFound(
            f"{source} cannot be read: {error.strerror}", hint="name a folder, a .md, .zip or .tar.gz file, or a Git URL"
        ) from None
    if stat.S_ISDIR(info.st_mode):
        return choose(dict(_folder_files(source)), source.resolve().name, inner, str(source))
    if not stat.S_ISREG(info.st_mode):
        raise BadInput(f"{source} is neither a file nor a folder")
    if info.st_size > MAX_ARCHIVE_BYTES:
        raise TooLarge(f"{source} has {info.st_size} bytes, the limit is {MAX_ARCHIVE_BYTES}")
    with disk_faults.naming(source):
        data = source.read_bytes()
    return read_data(data, source, inner, str(source))


def read_data(data: bytes, place: PurePath, inner: str, source: str) -> SkillPackage:
    """The skill in what was read from a file at `place`: its Markdown, or an archive."""
    if place.suffix.lower() == ".md":
        name = place.parent.name if place.name.lower() == FILE else place.stem
        return SkillPackage(name, {"SKILL.md": PackageFile(data)}, source)
    return choose(read_archive(data, place.name), place.name.split(".")[0], inner, source)


def read_archive(data: bytes, name: str) -> Files:
    """The files of a zip or tar archive, judged by what it holds and not by its name."""
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            return dict(_bounded(_zip_files(data)))
        return dict(_bounded(_tar_files(data)))
    except (*tar_reader.UNREADABLE, zipfile.BadZipFile, RuntimeError) as error:
        raise BadInput(f"{name} is not a zip or tar archive that can be read: {error}") from None


def choose(files: Files, name: str, inner: str, source: str) -> SkillPackage:
    """The one skill among files: in the folder `inner`, at the top, or in the only folder that holds one."""
    files = {path: file for path, file in files.items() if not LEFT_OUT & set(path.split("/"))}
    homes = sorted({str(PurePosixPath(path).parent) for path in files if PurePosixPath(path).name.lower() == FILE})
    if inner:
        wanted = inner.strip("/")
        # An archive of a repository has one folder above all others.
        found = [home for home in homes if home == wanted or ("/" in home and home.split("/", 1)[1] == wanted)]
    else:
        found = [home for home in homes if home == "."] or homes
    if not found:
        where = f"{source}{' in ' + inner if inner else ''}"
        raise NotFound(f"{where} holds no SKILL.md", hint=f"it has skills in {', '.join(homes[:8])}" if homes else "")
    if len(found) > 1:
        raise BadInput(f"{source} holds {len(found)} skills", hint=f"choose one with --folder: {', '.join(found[:12])}")
    home = "" if found[0] == "." else f"{found[0]}/"
    kept = {path[len(home) :]: file for path, file in files.items() if path.startswith(home)}
    if not any(path.lower() == FILE for path in kept):
        raise NotFound(f"{source} holds no SKILL.md")
    return SkillPackage(PurePosixPath(home.rstrip("/")).name or name, kept, source)


def check_files(files: Files) -> Files:
    """The same files, as long as their paths stay in the folder and they are within the bounds."""
    return dict(
        _bounded((_checked(path), PackageFile(_limited(file.data, path), file.is_executable)) for path, file in files.items())
    )


def _bounded(found: Iterator[tuple[str, PackageFile]]) -> Iterator[tuple[str, PackageFile]]:
    """The same files, once each, as long as they are within the bounds."""
    seen: set[str] = set()
    total = 0
    for path, file in found:
        total += len(file.data)
        if len(seen) >= MAX_FILES:
            raise TooLarge(f"a skill of more than {MAX_FILES} files is not taken")
        if total > MAX_BYTES:
            raise TooLarge(f"a skill of more than {MAX_BYTES >> 20} MiB is not taken")
        if path.lower() in seen:
            raise BadInput(f"it holds {path} twice")
        seen.add(path.lower())
        yield path, file


def _checked(path: str) -> str:
    """A path that stays in its folder; BadInput for any other."""
    parts = path.split("/")
    is_bad = not path or path.startswith("/") or "\\" in path or any(ord(char) < 32 for char in path)
    if (
        is_bad
        or any(part in ("", ".", "..") for part in parts)
        or len(parts) > MAX_DEPTH
        or any(len(p.encode()) > 255 for p in parts)
    ):
        raise BadInput(f"it holds a file called {path!r}, which does not stay in its folder")
    return path


def _folder_files(root: Path) -> Iterator[tuple[str, PackageFile]]:
    def walk() -> Iterator[tuple[str, PackageFile]]:
        for folder, folders, names, handle in os.fwalk(root, follow_symlinks=False):
            inner = os.path.relpath(folder, root)
            if inner.count("/") > MAX_DEPTH:
                raise BadInput(f"{folder} lies too deep")
            for name in list(folders):
                if name in LEFT_OUT:
                    folders.remove(name)
                elif stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                    raise BadInput(f"{os.path.join(inner, name)} is a link; a skill holds plain files only")
            folders.sort()
            for name in sorted(names):
                shown = name if inner == "." else f"{inner}/{name}"
                if name in LEFT_OUT:
                    continue
                try:
                    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
                except OSError:
                    raise BadInput(f"{shown} is a link or cannot be read; a skill holds plain files only") from None
                with open(opened, "rb") as file:
                    info = os.fstat(file.fileno())
                    if not stat.S_ISREG(info.st_mode):
                        raise BadInput(f"{shown} is not a plain file")
                    if info.st_size > MAX_FILE_BYTES:
                        raise TooLarge(f"{shown} has {info.st_size} bytes, the limit is {MAX_FILE_BYTES}")
                    yield _checked(shown), PackageFile(file.read(MAX_FILE_BYTES), bool(info.st_mode & 0o111))

    return _bounded(walk())


def _zip_files(data: bytes) -> Iterator[tuple[str, PackageFile]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for item in archive.infolist():
            mode = item.external_attr >> 16
            if item.is_dir():
                continue
            if stat.S_ISLNK(mode):
                raise BadInput(f"{item.filename} is a link; a skill holds plain files only")
            if item.flag_bits & 1:
                raise BadInput(f"{item.filename} is encrypted")
            with archive.open(item) as file:
                yield (
                    _checked(item.filename),
                    PackageFile(_limited(file.read(MAX_FILE_BYTES + 1), item.filename), bool(mode & 0o111)),
                )


def _tar_files(data: bytes) -> Iterator[tuple[str, PackageFile]]:
    for item in tar_reader.members(tar_reader.decompressed(io.BytesIO(data)), MAX_ARCHIVE_BYTES):
        if item.is_file:
            name = item.name.removeprefix("./")
            yield _checked(name), PackageFile(_limited(item.read(MAX_FILE_BYTES + 1), name), item.is_executable)


def _limited(data: bytes, name: str) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise TooLarge(f"{name} has more than {MAX_FILE_BYTES} bytes")
    return data
