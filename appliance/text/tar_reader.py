"""Tar archives of others, read member by member: what they may cost is decided here.

Plain files and folders with the headers that our own tools, GNU tar and git write. Every header is one block and what it
announces is bounded: long names of GNU, and PAX records of which `path` alone is used. Refused with TarError: anything whose
size, place or shape stands in another record, headers in a row without a file, and what unpacks to more than was allowed.
`tarfile` is used for single blocks only, because it reads chained headers by recursion and announced ones whole into memory.
Follows nothing and writes nothing.
"""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from tarfile import TarError, TarInfo
from typing import IO

BLOCK = tarfile.BLOCKSIZE
LARGEST_RECORD = 1 << 16  # bytes of a long name, or of one PAX header
MOST_HEADERS = 3  # before one member: a global one, a PAX header and a long name
HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME)
UNREADABLE = (TarError, OSError, EOFError, lzma.LZMAError, zlib.error)  # what reading an archive may raise


class Member:
    """One file or folder of an archive. Its bytes can be read until the next member is asked for."""

    def __init__(self, info: TarInfo, name: str, file: "_Bounded") -> None:
        self.name = name
        self.size_bytes = info.size
        self.is_file = info.isreg()
        self.is_folder = info.isdir()
        self.is_executable = bool(info.mode & 0o111)
        self.left = info.size
        self._file = file

    def read(self, size: int) -> bytes:
        """At most so many of its bytes, b"" at its end; TarError when the archive ends before."""
        data = self._file.take(min(size, self.left))
        self.left -= len(data)
        return data


class _Bounded:
    """The bytes of an archive, of which no more are ever read than allowed."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self._file = file
        self._left = most_bytes

    def take(self, size: int) -> bytes:
        """Exactly so many bytes."""
        self._left -= size
        if self._left < 0:
            raise TarError("it unpacks to more than is taken")
        data = self._file.read(size)
        if len(data) != size:
            raise TarError("it is cut off")
        return data

    def skip(self, size: int) -> None:
        """Pass over bytes."""
        while size:
            size -= len(self.take(min(size, 1 << 20)))


def decompressed(file: IO[bytes]) -> IO[bytes]:
    """The bytes of an archive that may be compressed."""
    head = file.read(2)
    file.seek(0)
    if head == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    return bz2.BZ2File(file) if head == b"BZ" else lzma.LZMAFile(file) if head == b"\xfd7" else file


def members(file: IO[bytes], most_bytes: int) -> Iterator[Member]:
    """The members of an archive in their order; no more bytes of it are read."""
    source, name, headers = _Bounded(file, most_bytes), "", 0
    while (block := source.take(BLOCK)).strip(b"\0"):
        info = TarInfo.frombuf(block, "utf-8", "surrogateescape")
        if info.size < 0 or info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, *HEADERS):
            raise TarError(f"it holds {info.name}, which is a link or a device")
        if info.type not in HEADERS:
            if info.isdir() and info.size:
                raise TarError("it holds a folder with a size")
            member = Member(info, name or info.name, source)
            yield member
            source.skip(member.left + -info.size % BLOCK)
            name, headers = "", 0
            continue
        headers += 1
        if info.size > LARGEST_RECORD or headers > MOST_HEADERS:
            raise TarError("it has a header that is longer than any tool writes")
        data = source.take(info.size + -info.size % BLOCK)[: info.size]
        if info.type == tarfile.GNUTYPE_LONGNAME:
            name = data.rstrip(b"\0").decode("utf-8", "surrogateescape")
        elif info.type == tarfile.XHDTYPE:
            name = _path_of(data) or name


def _path_of(data: bytes) -> str:
    """The path in the records of a PAX header, "" without one. TarError where they change how the member is read."""
    found = ""
    while data:
        length, _, rest = data.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) + 1 < int(length) <= len(data):
            raise TarError("it has a PAX header that cannot be read")
        key, _, value = data[len(length) + 1 : int(length) - 1].partition(b"=")
        if key == b"size" or key.startswith(b"GNU.sparse"):
            raise TarError(f"it has a PAX header with {key.decode('ascii', 'replace')}")
        found = value.decode("utf-8", "surrogateescape") if key == b"path" else found
        data = data[int(length) :]
    return found
