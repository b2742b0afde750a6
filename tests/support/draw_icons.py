"""Draws the icons of the web page: the owl of `owl.svg`, as PNG in the sizes that phones ask for.

The shapes are those of the SVG, 64 units wide; each pixel is the mean of 16 samples. `python draw_icons.py` writes them.
"""

import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STATIC = Path(__file__).parents[2] / "appliance/http/static"
ICONS = {"icon-192.png": (192, 1.0, False), "icon-512.png": (512, 1.0, False), "icon-maskable.png": (512, 0.8, True)}
SAMPLES = 4  # in each direction
GROUND, BODY, WHITE, PUPIL, BEAK = (
    (0xF7, 0xF5, 0xF0),
    (0x7A, 0x5C, 0x3E),
    (0xFF, 0xFD, 0xF7),
    (0x1D, 0x1A, 0x16),
    (0xE0, 0xA0, 0x30),
)

Grid = NDArray[np.float64]
Mask = NDArray[np.bool_]


def circle(x: Grid, y: Grid, cx: float, cy: float, radius: float) -> Mask:
    """What lies in a circle."""
    return (x - cx) ** 2 + (y - cy) ** 2 <= radius**2


def body(x: Grid, y: Grid) -> Mask:
    """M12 10 l12 8 h16 l12-8 v30 a20 20 0 0 1-40 0 z: two ears, straight sides, a round belly."""
    ears = np.minimum(18, 10 + np.minimum(np.abs(x - 12), np.abs(x - 52)) * 8 / 12)
    trunk = (x >= 12) & (x <= 52) & (y >= ears) & (y <= 40)
    belly = circle(x, y, 32, 40, 20) & (y >= 40)
    return trunk | belly


def beak(x: Grid, y: Grid) -> Mask:
    """M32 36 l4 6-4 5-4-5 z."""
    half = np.where(y <= 42, (y - 36) * 4 / 6, (47 - y) * 4 / 5)
    return np.abs(x - 32) <= half


def draw(size: int, scale: float, is_opaque: bool) -> bytes:
    """A PNG of the owl, `scale` of the square high; on a ground of its own where it is opaque."""
    at = (np.arange(size * SAMPLES) + 0.5) / (size * SAMPLES) * 64
    x, y = np.meshgrid((at - 32) / scale + 32, (at - 32) / scale + 32)
    picture = np.zeros((*x.shape, 4))
    if is_opaque:
        picture[:] = (*GROUND, 255)
    shapes = ((body(x, y), BODY), (circle(x, y, 23, 30, 10) | circle(x, y, 41, 30, 10), WHITE))
    shapes += ((circle(x, y, 24, 31, 5) | circle(x, y, 40, 31, 5), PUPIL), (beak(x, y), BEAK))
    for mask, colour in shapes:
        picture[mask] = (*colour, 255)
    parts = picture.reshape(size, SAMPLES, size, SAMPLES, 4)
    alpha = parts[..., 3:].sum((1, 3))
    colours = (parts[..., :3] * parts[..., 3:]).sum((1, 3)) / np.maximum(alpha, 1)
    pixels = np.concatenate([colours, alpha / SAMPLES**2], 2).round().astype(np.uint8)
    return png(pixels)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A picture of red, green, blue and opacity as PNG."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = ((b"IHDR", struct.pack(">2I5B", width, height, 8, 6, 0, 0, 0)), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    parts = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def read(data: bytes) -> NDArray[np.uint8]:
    """The pixels of a PNG that `png` wrote."""
    width, height = struct.unpack(">2I", data[16:24])
    length = struct.unpack(">I", data[33:37])[0]
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + length]), np.uint8).reshape(height, 1 + width * 4)
    return rows[:, 1:].reshape(height, width, 4)


def main() -> int:
    for name, how in ICONS.items():
        (STATIC / name).write_bytes(draw(*how))
    return 0


if __name__ == "__main__":
    sys.exit(main())
