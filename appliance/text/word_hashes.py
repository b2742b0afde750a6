"""Hashes by which the words of a text are known again in another one, whatever stands around them and however they are set.

Looked at are letters and digits alone, small and without accents: blanks, line breaks, punctuation, quotes and escapes of JSON and
HTML are no part of them. `kept` are the hashes to store: all of the text, its short lines, and runs of LEAST_RUN letters that
begin at lines and at each STEPth word. `found` are those of another text, of a run at each of its words. So about ten words in
the same order are found, whether they are numbered, quoted, wrapped or in a table. Pure.
Not promised: short lines within others, words in another order, and runs of text without blanks that begin in the middle of it.
"""

import html
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import accumulate

from appliance.text.invisible import normalized

LEAST_RUN = 40  # letters and digits in a row: eight words of English, more than phrases have that everybody uses
LEAST_LINE = 24  # of a whole line, or of a cell of a table, that is known again by itself: many headings and phrases have 20
LEAST_KINDS = 8  # different letters of a run: bars, zeros and empty tables say nothing
STEP = 3  # words from one kept run to the next
MAX_KEPT = 20_000  # of one text; a longer one has more words between them
MAX_LINE = 200  # characters of a short line with what stands around it
WORD = re.compile(r"[^\W_]+")
ESCAPE = re.compile(r"\\(?:[nrtbf]|u([0-9a-fA-F]{4}))")
CELLS = (re.compile(r'[|\t"]'), re.compile("[,;]"))  # between which a short line may stand in another


def kept(text: str, own: str = "") -> set[int]:
    """The hashes to know a text by; without those of what stands in `own`."""
    plain = _plain(text)
    lines = [WORD.findall(line) for line in plain.splitlines()]
    words = [word for line in lines for word in line]
    step = max(STEP, len(words) // MAX_KEPT)
    starts = {*list(accumulate((len(line) for line in lines), initial=0))[:-1][:MAX_KEPT], *range(0, len(words), step)}
    runs = _runs(words, starts)
    mine = WORD.findall(_plain(own)) if own else []
    said = "".join(mine)
    short = {line for one in lines if (line := _short_line(one))}
    whole = "".join(words)
    made = {_hash(line) for line in list(short)[:MAX_KEPT] if line not in said} | (runs - _runs(mine) if mine else runs)
    return made if len(whole) < LEAST_LINE or whole in said else made | {_hash(whole)}


def whole(text: str) -> set[int]:
    """The hash of all of a text; none of one without a letter."""
    letters = "".join(WORD.findall(_plain(text)))
    return {_hash(letters)} if letters else set()


def number_of(text: str) -> int:
    """A number that stands for a text, letter by letter."""
    return _hash(text)


def found(text: str) -> set[int]:
    """Every hash that one which is kept may be equal to."""
    plain = _plain(text)
    words = WORD.findall(plain)
    hashes = _runs(words)
    hashes.update(_hash(line) for line in _short_lines(plain))
    if words:
        hashes.add(_hash("".join(words)))
    return hashes


def _plain(text: str) -> str:
    text = ESCAPE.sub(_unescape, text) if "\\" in text else text
    return normalized("NFKD", html.unescape(text)).casefold()


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else "\n"


def _runs(words: list[str], starts: Iterable[int] | None = None) -> set[int]:
    """The hashes of the runs that begin at these words, or at each."""
    letters = "".join(words)
    data, size = letters.encode("utf-16-le", "surrogatepass"), 2 * LEAST_RUN  # two bytes a letter: places are counted in letters
    is_wide = len(data) != 2 * len(letters)  # some have four
    sizes = (len(word.encode("utf-16-le", "surrogatepass")) // 2 if is_wide else len(word) for word in words)
    places = list(accumulate(sizes, initial=0))[:-1]
    chosen = places if starts is None else [places[n] for n in starts if n < len(places)]
    slices = (data[2 * at : 2 * at + size] for at in chosen)
    return {_hash_bytes(one) for one in slices if len(one) == size and (starts is None or len(set(one)) > LEAST_KINDS)}


def _short_lines(plain: str) -> Iterator[str]:
    """Lines, and cells of lines, that are too short to have a run and long enough to be known again."""
    for line in plain.splitlines():
        if len(line) < LEAST_LINE:
            continue
        for cells in ([line], *(cell.split(line) for cell in CELLS if cell.search(line))):
            for one in cells:
                if LEAST_LINE <= len(one) <= MAX_LINE and (short := _short_line(WORD.findall(one))):
                    yield short


def _short_line(words: list[str]) -> str:
    """The letters of a short line without numbers and dates at its ends; "" of any other."""
    first, last = 0, len(words)
    while first < last and words[first].isdigit():
        first += 1
    while last > first and words[last - 1].isdigit():
        last -= 1
    line = "".join(words[first:last])
    return line if LEAST_LINE <= len(line) < LEAST_RUN else ""


def _hash(letters: str) -> int:
    return _hash_bytes(letters.encode("utf-16-le", "surrogatepass"))


def _hash_bytes(data: bytes) -> int:
    """63 bits: two cheap sums, for which nobody gains anything by making two texts that have the same."""
    return zlib.crc32(data) << 31 | zlib.adler32(data)
