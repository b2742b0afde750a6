"""Headers of pictures, sound and film: real files of one and a half seconds, made with FFmpeg, and broken ones."""

import base64
import io
import struct
import wave
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.matrix.media_headers import film_size, length_ms, picture_size

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 7, 5) + b"rest"
PACKED = {  # for how long each plays, in milliseconds; whole frames of an MP3 are a little more
    "a.mp3": (
        1656,
        """
        eNrzdDFmYQABLgY4+P/Y4gCc45mXlg+k+IFYnIGBPYBBHQgMgcAaBFyAwA8IIkAgCQhygKAMBBqAoBMIJoPAXCBYDgQbQWA3EBwBgnMgcAMIHg
        HBGxD4BgT/gQBkr09iWZpCTmJuKgMSUGFaAGGwB1zgYUthIA38fyxxBEgxe4DNd/R1NdEzVNBIzCnISFQw0AzFDrCoA5ljDTMnlEiAw5wyKpmz
        kUrmHBk1Z9ScUXNGzaG1OVjAcDUHANclRUg=
        """,
    ),
    "cbr.mp3": (
        1656,
        """
        eNrzdDFmYQABLgY4+P9Y4giQYvYAcXwcfV1N9AwVNBJzCjISFQw0Q7EDLOpA5ljDzAklEuAwp4xK5mykkjlHRs0ZNWfUnFFzaG0OFjBczQEAVQ
        gByw==
        """,
    ),
    "a.flac": (
        1500,
        """
        eNrtyr8KQQEUx/Hjuq7r72ZSkgeweADK6L6DbnJNZBCbsvAAJjNegRRKJJsByy2xKwziWnDOY6jfZznf0zmWYWaJKKGSyiNAFHI96E6UPC+D6d
        513hgGZ7HnLdLP8T2s8Y9llavFEge1KE4AAAAAAAAAAAAAAAAAAADw/77OQKcFh12XdK05R2FJZcuptCXdG87KR1I9cl66kh6bs3OR1HacqYKk
        d8+Zj0rqb87JVNL34TysJP0vTtP4OjU9oJwyvIybP1ANRzE=
        """,
    ),
    "a.ogg": (
        1500,
        """
        eNrzT08PZmBiQAMpO49kMQr7F5QWe6QmpjAyWjA6yIMl/EHKUQAjEHtO3RfCqAdSHpKYXswGFElLyy1ITQfJiQBxal5yfkpqka1PYlmyQk5mUj
        5QJcSkht0Ik0Cu4GoQtzNiZyMVcHA/s1ZencDBsWYz37FREj8JDnmWCilGeMgzA3GrS5WCFJ4QHsQeAgDdPc2t
        """,
    ),
    "a.m4a": (
        1500,
        """
        eNqVUb1OAkEQnj1AKTChkGjMJZ4JdGpB0EoT7GisjBbG5mD24GSXu+wuJFpR+hK+jc9gTeNz4OxxyCLGhMlO5ne/2W8HAPzIvKS3rZsAwANrY5
        1I0iYAlCPFOdkriaFhh8HutkqYnzJJJoQh5GSAsCbHbYDzGTCwZyVsvet33IZ/xaPTMCockv9khtnMwiYazXVybPu5dY5Gk/W50GZ1w+IW87vs
        XWIckhNI/It7c3b/kQVnAxRqWdHJeOR23lGMnXCEgtse1pHxKCKnquUaaB0XeR8VjxwKlbESwcJnFW26gvxnbTQ6PY8ybYUbtBlUl08lueQaLW
        EoTKfTBhWLZA/atR86MC9RplR7e/iCHfKYZ6lrk31TvhqoZN+TTfHsCnx6Sc+ZbHUvt/tUe81rxTxPuV7i9J+SHul+ijZQiRD5HDafZ+jdfgqr
        iot+PUZjOV9IbpbcT9xF0PJUmKbCXUY5pm1/A//uZAU=
        """,
    ),
    "f.mov": (
        1500,
        """
        eNp9Us0vA0EUf7P9ID6CKGmiYRM9kjg4SYiESCWEk5OE0dlq0x1dO2OFSxsnDg78AeJPkEjryAF/BBJXV2eSejPb6rYaL/v2fcx7v/fmvQGAWE
        YeOfvSNAEM8CV0HuaYhZJyRiUAuYX+DhSV4Uh8/LU4wr/53Wfl/R7g+uJkVqnPyvsF8NBik8qWMYdhV3h0pcw8GSs27FCUFwoeFrK5l2XQRKEP
        gMgbEFBfg0hzVKs9D/+Sgd+ldGke9U2Z1zVDf9GwLvxfp21d9ZvSZtJiUqBMWLaQjYwars41ujjLUVRMzlrvroC2oVjVxmSW2a5SeNZ2PX8xv9
        SzgY5Ciu4x28IgUua5vQz6Yx7XoME2J+pADIEOXNsMAnUvUkl/cSDJfJwEc61M4Mo9tTy1lmUhd2zUn4QULBBT5s60FxzT0tLqup694nkcUQrV
        VD2ia4V6aZM71u50+6XFq2oQa5ZgQj+MUqk0h8BhlFPmgHb14sTISwQ9o6jcqO7KZ4N+eWLC4/kpDBnhaGwhiiFEddLvUOHUGlQcF1JvrN40vg
        o9nxheLuhXnEBfusUXqkkTz46Dzxh5BrlP1fTx0oVAbvIHYEyGGg==
        """,
    ),
    "f.webm": (
        1500,
        """
        eNqTcr2/eL5TWyOj03cg/tTI4vS5kcOpqaU8NSnXqb2Ryam1kUkiuCGdkQEEGN8L+s4u2eW7uzt4dYuo58q04DWNCyE8sZB12UDeMd/dPUCeUM
        jh9OA1TYxKEK5M8O5sEPfmG4g5DJEMtAIgVy3Qur6xmd/JwbehxSexLC3cEUy5dHY4TC8AKwI59vo6qFv8rjcyFh/tgOpnnNPIoLR1TnNpXkpH
        I0Nba1h8WIBFcyOj8uPmFtmzqQwPJmxodNjVaDCrkSl0Q0vozkbG0HeNDDB/MTEwgLx+obj4bPKB7mSEqeknZrgubnf1c/Z3cQ1yae8GOihZIS
        czqaygIv3EQtfFHS6hQY4hnv5+Lu2TDQysQMhQz9QAChjknbeV3n3eyLB4RSMDQ8MGJoa5jFoODAYMDO4cra0drS0dTEwMbH3+Z47P/hjB8O//
        6oCGxdMaGb8wXGRkYBVYwyDBIBGh/4WBo4eBASjO/AKLOCiKJu7u39zIsL0LmBQ+NjGWf2hkBgBiFaG3
        """,
    ),
}
FILES = {name: (ms, zlib.decompress(base64.b64decode(text))) for name, (ms, text) in PACKED.items()}
VORBIS = b"OggS\0\2" + bytes(20) + b"\1\x1e" + b"\1vorbis" + struct.pack("<IBI", 0, 1, 44_100) + bytes(14)
VORBIS += b"OggS\0\4" + struct.pack("<q", 66_150) + bytes(13)


def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setparams((2, 2, 8000, 0, "NONE", ""))
        made.writeframes(bytes(48_000))
    return file.getvalue()


def test_pictures_say_how_large_they_are() -> None:
    assert picture_size(PNG) == (7, 5) and picture_size(b"GIF89a\x03\0\x04\0") == (3, 4)
    assert picture_size(b"\xff\xd8\xff\xe0\0\x04xx\xff\xc0\0\x0b\x08\0\x02\0\x09\x01") == (9, 2)
    assert picture_size(b"\xff\xd8\xff") is picture_size(b"text") is None


@pytest.mark.covers("S-108")
@pytest.mark.parametrize("name", FILES)
def test_sound_and_film_say_for_how_long_they_play(name: str) -> None:
    ms, data = FILES[name]
    assert length_ms(data) == ms and film_size(data) == ((64, 48) if name == "f.mov" else None)


@pytest.mark.covers("S-108")
def test_wav_and_vorbis_and_an_mp3_without_a_tag_say_it_too() -> None:
    assert length_ms(wav()) == 1500 and length_ms(VORBIS) == 1500
    tagged = FILES["cbr.mp3"][1]
    assert tagged[:3] == b"ID3" and length_ms(tagged[20:]) == 1656


def test_what_is_no_sound_or_does_not_say_has_no_length() -> None:
    for data in (b"", b"text", PNG, wav()[:30], FILES["a.m4a"][1][:40], b"OggS" + bytes(100), b"\xff\xfb" + b"\0" * 9):
        assert length_ms(data) is film_size(data) is None


@given(name=st.sampled_from([*FILES, "vorbis"]), cut=st.integers(0, 2000), at=st.integers(0, 700), put=st.binary(max_size=8))
def test_no_broken_file_raises(name: str, cut: int, at: int, put: bytes) -> None:
    data = VORBIS if name == "vorbis" else FILES[name][1]
    broken = (data[:at] + put + data[at + len(put) :])[: len(data) - cut % len(data)]
    for found in (length_ms(broken), film_size(broken), picture_size(broken)):
        assert found is None or isinstance(found, int | tuple)
