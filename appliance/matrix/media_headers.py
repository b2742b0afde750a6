"""What the headers of pictures, sound and film say: width and height, and for how long they play.

Pictures: PNG, GIF, JPEG. Sound and film: WAV, FLAC, MP3, Ogg (Opus and Vorbis), MP4 and its kin (M4A, MOV), WebM and Matroska.
Reads headers alone, in time that grows with their number at most; None for what is of another kind, is broken or does not say.
Decodes nothing, so a file that lies about itself is believed.
"""

import struct

MAX_MS = 30 * 24 * 3600 * 1000  # of what is longer the header is broken
MAX_BOXES = 10_000
EBML_HEAD = 64 * 1024  # where Matroska says its length, behind which it need not be looked for
MP3_KBITS = {  # of a frame's layer III, by version
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
}
MP3_HZ = {3: (44100, 48000, 32000, 0), 2: (22050, 24000, 16000, 0), 0: (11025, 12000, 8000, 0)}


def picture_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, GIF or JPEG."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return struct.unpack(">II", data[16:24])
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return struct.unpack("<HH", data[6:10])
    at = 2
    while data.startswith(b"\xff\xd8") and at + 9 < len(data) and data[at] == 0xFF:
        if 0xC0 <= data[at + 1] <= 0xCF and data[at + 1] not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def film_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of the first picture track of an MP4."""
    for track in _boxes(_box(data, b"moov"), b"trak"):
        header = _box(track, b"tkhd")
        if len(header) >= 8 and (size := struct.unpack(">II", header[-8:])) > (0, 0):
            return size[0] >> 16, size[1] >> 16  # 16 bits stand behind the point
    return None


def length_ms(data: bytes) -> int | None:
    """For how many milliseconds sound or film plays."""
    try:
        seconds = _length_s(data)
    except (struct.error, IndexError, ZeroDivisionError, OverflowError, KeyError):
        return None
    return round(seconds * 1000) if 0 < seconds * 1000 <= MAX_MS else None


def _length_s(data: bytes) -> float:
    """The same in seconds; 0 for what does not say. What is cut short raises what reading it raises."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _wave_s(data)
    if data[:4] == b"fLaC":
        packed = int.from_bytes(data[18:26], "big")  # 20 bits of rate, 3 of channels, 5 of depth, 36 of samples
        return (packed & (1 << 36) - 1) / (packed >> 44)
    if data[:4] == b"OggS":
        return _ogg_s(data)
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide"):
        return _mp4_s(_box(_box(data, b"moov"), b"mvhd"))
    if data[:4] == b"\x1aE\xdf\xa3":
        return _matroska_s(data[:EBML_HEAD])
    return _mp3_s(data)


def _wave_s(data: bytes) -> float:
    at, rate = 12, 0
    for _ in range(MAX_BOXES):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"fmt ":
            rate = struct.unpack_from("<I", data, at + 16)[0]  # bytes a second
        if name == b"data":
            return float(min(size, len(data) - at - 8) / rate)
        at += 8 + size + size % 2
    return 0


def _ogg_s(data: bytes) -> float:
    """The position at the end of the last page, by the rate that the first one names."""
    first = 27 + data[26]  # behind the header and the sizes of the page's parts
    if data[first : first + 8] == b"OpusHead":
        skipped, rate = struct.unpack_from("<H", data, first + 10)[0], 48_000
    elif data[first : first + 7] == b"\x01vorbis":
        skipped, rate = 0, struct.unpack_from("<I", data, first + 12)[0]
    else:
        return 0
    return float((struct.unpack_from("<q", data, data.rindex(b"OggS") + 6)[0] - skipped) / rate)


def _mp4_s(header: bytes) -> float:
    form, at = (">IQ", 20) if header[0] == 1 else (">II", 12)  # behind two times of 64 or 32 bits
    scale, length = struct.unpack_from(form, header, at)
    return float(length / scale)


def _matroska_s(head: bytes) -> float:
    about = head.index(b"\x15\x49\xa9\x66") if b"\x15\x49\xa9\x66" in head else len(head)
    at, scale = head.find(b"\x44\x89", about), 1_000_000
    if at < 0:
        return 0  # as browsers record it
    if (named := head.find(b"\x2a\xd7\xb1\x83", about)) >= 0:
        scale = int.from_bytes(head[named + 4 : named + 7], "big")
    ticks = struct.unpack_from(">d" if head[at + 2] == 0x88 else ">f", head, at + 3)[0]
    return float(ticks * scale / 1e9)


def _mp3_s(data: bytes) -> float:
    """By the count of frames that the first one holds, or else by its rate, which then holds for all."""
    at = 0
    if data[:3] == b"ID3":
        at = 10 + (data[6] << 21 | data[7] << 14 | data[8] << 7 | data[9])
    if data[at] != 0xFF or data[at + 1] & 0xE6 != 0xE2:  # eleven ones, layer III
        return 0
    version = data[at + 1] >> 3 & 3
    hertz = MP3_HZ[version][data[at + 2] >> 2 & 3]
    samples = 1152 if version == 3 else 576
    is_mono = data[at + 3] >> 6 == 3
    info = at + 4 + ((17 if is_mono else 32) if version == 3 else (9 if is_mono else 17))
    if data[info : info + 4] in (b"Xing", b"Info") and data[info + 7] & 1:
        return float(struct.unpack_from(">I", data, info + 8)[0] * samples / hertz)
    return (len(data) - at) / (MP3_KBITS[3 if version == 3 else 2][data[at + 2] >> 4] * 125)


def _box(data: bytes, name: bytes) -> bytes:
    """The content of the first box of this name; b"" for none."""
    return next(iter(_boxes(data, name)), b"")


def _boxes(data: bytes, name: bytes) -> list[bytes]:
    """The content of each box of this name on this level."""
    found, at = [], 0
    for _ in range(MAX_BOXES):
        if at + 8 > len(data):
            break
        size, called = struct.unpack_from(">I4s", data, at)
        head = 8
        if size == 1 and at + 16 <= len(data):  # 64 bits of size
            size, head = struct.unpack_from(">Q", data, at + 8)[0], 16
        if size < head:
            break  # to the end of the file, or broken
        if called == name:
            found.append(data[at + head : at + size])
        at += size
    return found
