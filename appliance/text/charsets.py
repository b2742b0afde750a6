"""Characters out of bytes by the name of a charset, as browsers read them: a name stands for what is really sent under it.

GB2312 is read as GB18030, Shift_JIS as Windows-31J, EUC-KR as CP949, Latin-1 as Windows-1252; ISO-2022-JP and EUC-JP with the signs
that Japanese machines add to JIS. US-ASCII, no name and an unknown one are UTF-8 where the bytes are, else Windows-1252. Only names
of this table choose a codec: what others call text encodings in Python may take quadratic time or read escapes.
"""

import re

# By codec of Python: the names under which it is sent. From the Encoding Standard, with UTF-7, which old mails have.
NAMES = {
    "utf-8": "utf-8 unicode-1-1-utf-8 x-unicode20utf8 utf-8-mac",
    "utf-16": "utf-16 unicode iso-10646-ucs-2 ucs-2",
    "utf-16-le": "utf-16le",
    "utf-16-be": "utf-16be unicodefffe",
    "utf-7": "utf-7 unicode-1-1-utf-7",
    "": "us-ascii ascii ansi_x3.4-1968 iso646-us",  # what is said where nothing is known
    "cp1252": "windows-1252 cp1252 cp819 iso-8859-1 iso_8859-1:1987 latin1 l1 x-cp1252",
    "cp1250": "windows-1250 cp1250 x-cp1250",
    "cp1251": "windows-1251 cp1251 x-cp1251",
    "cp1253": "windows-1253 cp1253 x-cp1253",
    "cp1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 latin5 l5",
    "cp1255": "windows-1255 cp1255 x-cp1255",
    "cp1256": "windows-1256 cp1256 x-cp1256",
    "cp1257": "windows-1257 cp1257 x-cp1257",
    "cp1258": "windows-1258 cp1258 x-cp1258",
    "cp874": "windows-874 cp874 dos-874 tis-620 iso-8859-11",
    "cp866": "ibm866 cp866 866",
    "cp850": "ibm850 cp850 850",
    "cp437": "ibm437 cp437 437",
    "iso8859-2": "iso-8859-2 latin2 l2",
    "iso8859-3": "iso-8859-3 latin3 l3",
    "iso8859-4": "iso-8859-4 latin4 l4",
    "iso8859-5": "iso-8859-5 cyrillic",
    "iso8859-6": "iso-8859-6 iso-8859-6-e iso-8859-6-i arabic",
    "iso8859-7": "iso-8859-7 greek",
    "iso8859-8": "iso-8859-8 iso-8859-8-e iso-8859-8-i hebrew logical visual",
    "iso8859-10": "iso-8859-10 latin6 l6",
    "iso8859-13": "iso-8859-13",
    "iso8859-14": "iso-8859-14",
    "iso8859-15": "iso-8859-15 latin9 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi8-r koi8 koi",
    "koi8-u": "koi8-u koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "gb18030 gbk x-gbk gb2312 gb_2312-80 chinese cp936 windows-936 euc-cn",
    "hz": "hz-gb-2312 hz",
    "big5hkscs": "big5 big5-hkscs cn-big5 x-x-big5 cp950",
    "cp932": "shift_jis sjis x-sjis ms_kanji ms932 windows-31j cp932",
    "cp949": "euc-kr ks_c_5601-1987 ks_c_5601-1989 ksc5601 korean iso-ir-149 windows-949 cp949 uhc",
    "iso2022_kr": "iso-2022-kr",
    "euc_jp": "euc-jp x-euc-jp",
    "euc_jis_2004": "euc-jis-2004 euc-jisx0213",
    "shift_jis_2004": "shift-jis-2004 shift-jisx0213",
    "iso2022_jp": "iso-2022-jp iso-2022-jp-1 iso-2022-jp-2 iso-2022-jp-3 iso-2022-jp-2004 iso-2022-jp-ext iso-2022-jp-ms "
    "cp50220 cp50221",
}
MARKS = re.compile(r":\d{4}\Z|[\W_]+")  # names are written with and without marks: latin-9, iso_8859-2:1987, iso88591
CODECS = {MARKS.sub("", name): codec for codec, names in NAMES.items() for name in names.split()}
# The 27 signs of Windows-1252 between 0x80 and 0x9f; the other bytes there stand for themselves, as in browsers.
WINDOWS = {byte: sign for byte in range(0x80, 0xA0) if (sign := bytes([byte]).decode("cp1252", "ignore"))}
ESCAPE = re.compile(rb"\x1b(\([BJI]|\$[@AB]|\$\([@ABCDOPQ])")
DOUBLE = (b"$@", b"$B", b"$(@", b"$(B")
# Other sets that an escape sequence of ISO-2022-JP calls: JIS X 0212, GB 2312, KS X 1001, JIS X 0213 of two years.
SETS = {
    b"$(D": "iso2022_jp_1",
    b"$A": "iso2022_jp_2",
    b"$(A": "iso2022_jp_2",
    b"$(C": "iso2022_jp_2",
    b"$(O": "iso2022_jp_3",
    b"$(P": "iso2022_jp_2004",
    b"$(Q": "iso2022_jp_2004",
}
LOST = "\ufffd"


def codec_of(name: str) -> str:
    """The codec for a charset by its name, "" for one that is unknown or says nothing."""
    plain = MARKS.sub("", name.strip().strip("\"'").casefold())
    return CODECS.get(plain) or CODECS.get(re.sub(r"\Acs(?:iso(?=latin))?", "", plain), "")


def decode(data: bytes, charset: str = "") -> str:
    """The characters of some bytes; never fails. What cannot be read is U+FFFD."""
    codec = codec_of(charset)
    if codec == "cp1252":
        return data.decode("latin-1").translate(WINDOWS)
    if codec in ("", "utf-8"):
        return _decode_utf8(data)
    if codec == "iso2022_jp":
        return _decode_jis(data)
    if codec == "euc_jp":
        return _decode_euc(data)
    if codec == "big5hkscs":
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            codec = "cp950"  # has the signs of Windows, and none of Hong Kong
    return data.decode(codec, "replace")


def _decode_utf8(data: bytes) -> str:
    """UTF-8, in which a few bytes may be damaged; Windows-1252 for bytes that are something else."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    lost = text.count(LOST)
    if lost and lost >= sum(char > "\x7f" for char in text) - lost:
        return data.decode("latin-1").translate(WINDOWS)
    return text


def _decode_jis(data: bytes) -> str:
    """ISO-2022-JP: runs between escape sequences, each in its set of signs."""
    runs = ESCAPE.split(data)
    found = [runs[0].decode("iso2022_jp_2" if b"\x1b." in runs[0] else "ascii", "replace")]
    for kind, run in zip(runs[1::2], runs[2::2], strict=True):
        if kind in DOUBLE:
            found.append(_decode_pairs(run))
        elif kind in SETS:
            found.append((b"\x1b" + kind + run + b"\x1b(B").decode(SETS[kind], "replace"))
        elif kind == b"(I":
            found.append(bytes(byte | 0x80 if byte > 0x20 else byte for byte in run).decode("cp932", "replace"))
        else:  # ISO-2022-JP-2 puts accents and Greek behind single shifts
            found.append(run.decode("iso2022_jp_2" if b"\x1b." in run else "ascii", "replace"))
    return "".join(found)


def _decode_pairs(run: bytes) -> str:
    """Signs of two bytes of JIS X 0208 and what Japanese machines add to it; a line break between them is one."""
    made, at = bytearray(), 0
    while at < len(run):
        if run[at] < 0x21 or at + 1 == len(run):
            made.append(run[at] if run[at] < 0x21 else ord("?"))
            at += 1
            continue
        made += _shift_pair(run[at], run[at + 1])
        at += 2
    return bytes(made).decode("cp932", "replace")


def _shift_pair(row: int, cell: int) -> bytes:
    """The two bytes of Shift_JIS for a sign of JIS."""
    first = (row - 0x21 >> 1) + (0x81 if row < 0x5F else 0xC1)
    second = cell + (0x1F if cell < 0x60 else 0x20) if row & 1 else cell + 0x7E
    return bytes((first & 0xFF, second & 0xFF))


def _decode_euc(data: bytes) -> str:
    """EUC-JP; with the signs of Japanese machines where the codec does not know them."""
    try:
        return data.decode("euc_jp")
    except UnicodeDecodeError:
        pass
    made, at = bytearray(), 0
    while at < len(data):
        byte = data[at]
        if 0xA1 <= byte <= 0xFE and at + 1 < len(data):
            made += _shift_pair(byte & 0x7F, data[at + 1] & 0x7F)
            at += 2
        else:
            at += byte == 0x8E  # what follows is one byte of Shift_JIS
            made.append(data[at] if at < len(data) else ord("?"))
            at += 1
    return bytes(made).decode("cp932", "replace")
